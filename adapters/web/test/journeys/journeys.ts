// What six people do, five jobs each. Every journey is done by mouse and by keyboard alone, and ends in a figure that a command
// answers, too. Those that are marked first run always, the others with CI_LONG=1.
import assert from 'node:assert/strict'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { hurt } from '../logs.ts'
import { copied } from '../site.ts'
import type { Hand, Journey } from './hand.ts'

const may = ['--period', '2026-05']
const at = ['--at', '2026-06-01']
const week = ['--from', '2026-05-25', '--to', '2026-06-01']

// before is the position before the newest bills of a month came.
async function before(hand: Hand): Promise<string> {
  const { position } = (await hand.ask('costs', ...may)) as { position: string }
  return position.split(',').filter((p) => !p.startsWith('qm.billing/0=')).join(',')
}

// record is the name of the newest decision that set a budget.
async function record(hand: Hand): Promise<{ id: string; offset: string }> {
  const line = (await hand.site.answer(['log', 'tail', '--type', 'BudgetSet', '--operator', 'root', '-o', 'json'])).trim().split('\n')[0] ?? ''
  const r = JSON.parse(line) as { topic: string; partition: number; offset: number }
  return { id: `${r.topic}/${r.partition}@${r.offset}`, offset: String(r.offset) }
}

const finance: Journey[] = [
  {
    person: 'finance',
    job: 'close a month with two signatures',
    first: true,
    own: copied,
    async walk(ana) {
      await ana.go('Costs')
      await ana.open('Close')
      await ana.press('Prepare the close …')
      await ana.enrol('ana', 'finance')
      const reasons = await ana.within.getByLabel(/^Why this is accepted/).count()
      for (let n = 0; n < reasons; n++) await ana.type({ label: /^Why this is accepted/, n }, 'generated for a demonstration')
      await ana.sign('ana')
      await ana.see('Prepared: a second person may approve it.')
      await ana.press('Approve the close …')
      await ana.press('Show what this does')
      await ana.see('It would take no effect') // it is she who prepared it
      const ben = await ana.another()
      await ben.go('Costs')
      await ben.open('Close')
      await ben.press('Approve the close …')
      await ben.enrol('ben', 'finance')
      await ben.sign('ben')
      await ben.see('Closed: costs answer from the allocations that were kept.')
      const closed = (await ben.ask('costs', 'close', 'show', '--month', '2026-05')) as { state: string; prepared: { operator: string }; approved: { operator: string } }
      assert.deepEqual([closed.state, closed.prepared.operator, closed.approved.operator], ['closed', 'ana', 'ben'])
      return ben.ends('costs close show', '/allocations', '--month', '2026-05')
    },
  },
  {
    person: 'finance',
    job: 'explain a cent',
    first: true,
    async walk(hand) {
      await hand.go('Costs')
      await hand.open('vc-a01', /^By workspace/)
      await hand.open(/allocations of jobs/)
      await hand.open(/^gen-demo-0001-202605-commitment/)
      await hand.page.getByRole('heading', { name: '5 · The event' }).waitFor()
      return hand.ends('costs explain', '/effective', new URL(hand.page.url()).searchParams.get('allocation') ?? '')
    },
  },
  {
    person: 'finance',
    job: 'how much of a budget is left, and why',
    async walk(hand) {
      await hand.go('Costs')
      await hand.open('Budgets')
      await hand.press(/Spent: how it is computed/)
      await hand.see(/quartermaster costs budget --period 2026-05/)
      await hand.press('Close')
      return hand.ends('costs budget', '/budgets/0/remaining', ...may)
    },
  },
  {
    person: 'finance',
    job: 'what commitments leave unused',
    async walk(hand) {
      await hand.go('Costs')
      await hand.open('Commitments')
      await hand.press('how ri-demo-1 is computed')
      await hand.see(/quartermaster costs commitments/)
      await hand.press('Close')
      return hand.ends('costs commitments', '/commitments/0/unused', ...may)
    },
  },
  {
    person: 'finance',
    job: 'what restated a month',
    async walk(hand) {
      const past = await before(hand)
      await hand.go('Costs')
      await hand.open('Changes')
      await hand.type('As known at', past)
      await hand.see('From before to after')
      return hand.ends('costs restate', '/after/0/effective', past, ...may)
    },
  },
]

const planner: Journey[] = [
  {
    person: 'capacity planner',
    job: 'what to buy, and why',
    first: true,
    async walk(hand) {
      const [{ plan = '' } = {}] = (await hand.ask('plan', 'list')) as { plan?: string }[]
      await hand.go('Plan')
      await hand.unfold('Why')
      const { regions } = (await hand.ask('plan', 'show', plan)) as { regions: { purchases?: { reason: string }[] }[] }
      await hand.see(regions.find((r) => r.purchases?.length)?.purchases?.[0]?.reason ?? 'nothing is bought')
      await hand.press('Verify this plan')
      await hand.see('Equal, byte for byte.')
      return hand.ends('plan show', '/total/cost', plan)
    },
  },
  {
    person: 'capacity planner',
    job: 'what would happen if, compared with the run before',
    first: true,
    async walk(hand) {
      await hand.go('What-if')
      await hand.choose('Start from an example', 'quota change')
      await hand.type('Trials', '20')
      await hand.press('Run the scenario')
      await hand.page.locator('data[data-figure="/alternatives/0/expected_cost"]').waitFor()
      assert.ok((await hand.page.getByRole('img', { name: /5th percentile.*95th percentile/ }).count()) >= 2)
      await hand.type('limit gpus', '{triangular: [300, 500, 900]}')
      await hand.press('Run the scenario')
      await hand.page.getByRole('region', { name: 'Compared with the run before' }).getByRole('row').nth(1).waitFor()
      const yaml = await hand.page.getByRole('textbox', { name: 'Scenario, as YAML' }).inputValue()
      assert.match(yaml, /^# The supplier may cut our on-demand quota[^]*^runs: 20$/m, 'comments stay')
      const folder = await mkdtemp(join(tmpdir(), 'quartermaster-what-if-'))
      const file = join(folder, 'scenario.yaml')
      await writeFile(file, yaml)
      const { simulation } = (await hand.ask('simulate', file)) as { simulation: string }
      await hand.see(simulation)
      hand.after(() => rm(folder, { recursive: true }))
      return hand.ends('simulate', '/alternatives/0/expected_cost', file)
    },
  },
  {
    person: 'capacity planner',
    job: 'how good the advice was',
    async walk(hand) {
      await hand.go('Plan')
      await hand.open('Backtest')
      await hand.press('Test the advice')
      return hand.ends('plan backtest', '/all/foresight_cost', '--from', '2025-06', '--to', '2026-06')
    },
  },
  {
    person: 'capacity planner',
    job: 'how well demand is forecast',
    async walk(hand) {
      await hand.go('Plan')
      await hand.open('Forecast')
      return hand.ends('plan forecast', '/all/weighted_mase', ...at)
    },
  },
  {
    person: 'capacity planner',
    job: 'what a contract is worth',
    async walk(hand) {
      await hand.go('Plan')
      await hand.open('Contract')
      await hand.press('Evaluate the contract')
      return hand.ends('plan evaluate', '/break_even_hourly', '../../deploy/demo/contracts/one-year-p4d.yaml', ...at, '--months', '24')
    },
  },
]

const auditor: Journey[] = [
  {
    person: 'auditor',
    job: 'prove an event',
    first: true,
    async walk(hand) {
      const { id, offset } = await record(hand)
      const { verifier_key } = (await hand.there('archive', 'verifier-key')) as { verifier_key: string }
      await hand.go('Audit')
      await hand.type('Type', 'BudgetSet')
      await hand.type('Operator', 'root')
      await hand.open(offset, /^The newest events/)
      await hand.see('Head in the checkpoint: holds')
      await hand.type(/Verifier key/, verifier_key.replace(/.{9}$/, (end) => (end.startsWith('A') ? 'B' : 'A') + end.slice(1)))
      await hand.see('Signature of the checkpoint: does not hold')
      await hand.type(/Verifier key/, verifier_key)
      await hand.see('Signature of the checkpoint: holds')
      assert.equal(await hand.page.getByText('does not hold').count(), 0)
      return hand.ends('log event', '/record/offset', id)
    },
  },
  {
    person: 'auditor',
    job: 'trace a decision',
    first: true,
    async walk(hand) {
      const { id, offset } = await record(hand)
      const { entries } = (await hand.ask('audit', 'trail', '--operator', 'root')) as { entries: { did: string }[] }
      await hand.go('Audit')
      await hand.open('Trail')
      await hand.type('Operator', 'root')
      for (const e of entries) await hand.see(e.did)
      await hand.open(offset, 'The trail')
      await hand.see('Signature of the decision: holds')
      return hand.ends('log event', '/record/offset', id)
    },
  },
  {
    person: 'auditor',
    job: 'replay the log',
    async walk(hand) {
      await hand.go('Audit')
      await hand.open('Replay')
      for (let n = 0; ; n++) {
        await hand.press('Replay')
        await hand.see('The rows that answer are those of the log')
        const data = (await hand.ask('log', 'replay', '--verify', '--memory', '2GiB')) as { position: string }
        // Who asked what is in the log, too, so that it may have grown meanwhile.
        const same = (await hand.page.getByRole('definition').getByText(data.position, { exact: true }).count()) > 0
        if (same || n === 3) return { ...(await hand.ends('log replay', '/events', '--verify', '--memory', '2GiB')), data }
      }
    },
  },
  {
    person: 'auditor',
    job: 'costs as they were known before a bill',
    async walk(hand) {
      const past = await before(hand)
      await hand.go('Audit')
      await hand.open('Compare')
      await hand.type('As known at', past)
      await hand.see('Two positions of the log')
      await hand.reach(hand.page.getByRole('link', { name: 'before', exact: true }).nth(1)) // of the costs
      await hand.page.keyboard.press('Enter')
      await hand.see('as of the past')
      return hand.ends('costs', '/totals/0/effective_minor', ...may, '--by', 'workspace', '--as-of', past)
    },
  },
  {
    person: 'auditor',
    job: 'who could have read what, since when',
    async walk(hand) {
      await hand.go('Audit')
      await hand.open('Access')
      await hand.type('Principal', 'account:journey')
      return hand.ends('audit access', '/could/0/from', '--principal', 'account:journey')
    },
  },
]

const operator: Journey[] = [
  {
    person: 'operator',
    job: 'what became of a GPU',
    first: true,
    async walk(hand) {
      await hand.go('Fleet')
      await hand.open('Map')
      const map = hand.page.getByRole('application', { name: /^GPUs of gen-rented/ })
      if (hand.by === 'mouse') await map.locator('canvas').click({ position: { x: 4, y: 4 } })
      else {
        await hand.reach(map)
        await hand.page.keyboard.press('Enter')
      }
      await hand.page.getByRole('heading', { name: 'Machine', level: 1 }).waitFor()
      const gpus = hand.page.getByRole('table', { name: /^Its GPUs/ })
      const gpu = await gpus.getByRole('link').and(hand.page.locator('tbody a')).first().innerText()
      await hand.open(gpu, /^Its GPUs/)
      await hand.see('GPU')
      return hand.ends('usage', '/total/allocated_gpu_ms', ...week, '--by', 'workspace', '--cluster', 'gen-rented', '--where', `gpu=${gpu}`)
    },
  },
  {
    person: 'operator',
    job: 'which moves free GPUs',
    first: true,
    async walk(hand) {
      await hand.go('Fleet')
      await hand.open('Stranded')
      await hand.press('thousandths gained')
      return hand.ends('fragmentation', '/moves/0/gain_milli', ...at)
    },
  },
  {
    person: 'operator',
    job: 'whether everything that was sent arrived',
    async walk(hand) {
      const telemetry = await hand.which('/partitions', (p: { topic: string; events: number }) => p.topic === 'qm.telemetry' && p.events > 0, 'log', 'stats')
      await hand.go('Admin')
      await hand.see('No stream lacks an event.')
      return hand.ends('log stats', `${telemetry}/events`)
    },
  },
  {
    person: 'operator',
    job: 'what could not be folded',
    own: hurt,
    async walk(hand) {
      await hand.go('Audit')
      await hand.open('Quarantine')
      await hand.choose('Only open', 'yes')
      await hand.press(/Open: how it is computed/)
      await hand.see(/quartermaster quarantine list --open/)
      await hand.press('Close')
      return hand.ends('quarantine list', '/open', '--open')
    },
  },
  {
    person: 'operator',
    job: 'deal with an incident, and silence it',
    async walk(hand) {
      const { incidents } = (await hand.ask('alerts', 'list')) as { incidents: { incident: string }[] }
      const incident = incidents[hand.by === 'mouse' ? 0 : 1]?.incident ?? ''
      const name = `sam-${hand.by}`
      await hand.go('Alerts')
      await hand.open(incident)
      await hand.press('Acknowledge …')
      await hand.type(/What you do about it/, 'a supplier is asked')
      await hand.enrol(name, 'operator')
      await hand.sign(name)
      await hand.see(/deals with it since/)
      await hand.press('Silence …')
      await hand.type('Until', '2099-01-01')
      await hand.type('Why', 'it is known')
      await hand.sign(name)
      await hand.see(/silent until 2099-01-01/)
      return hand.ends('alerts show', '/case/findings/0/value', incident)
    },
  },
]

const lead: Journey[] = [
  {
    person: 'team lead',
    job: 'how many replicas of a model run, everywhere',
    first: true,
    async walk(hand) {
      await hand.search('chat-70b')
      return hand.ends('models', '/models/0/declared_replicas', '--search', 'chat-70b', ...at)
    },
  },
  {
    person: 'team lead',
    job: 'have a purchase approved by two others',
    first: true,
    async walk(hand) {
      const recommendation = `r-${hand.by}`
      const names = ['ana', 'ben', 'cleo'].map((n) => `${n}-${hand.by}`)
      await hand.go('Alerts')
      await hand.open('Proposed')
      await hand.press('Propose what you wrote …')
      await hand.type('Workspace', 'research')
      await hand.type('proposal.yaml', `recommendation: ${recommendation}\nkind: purchase\nsummary: buy two machines with eight GPUs\ncost: 150000 USD\nsaving: 20000 USD\n`)
      await hand.enrol(names[0] ?? '', 'planner')
      await hand.sign(names[0] ?? '')
      await hand.open(recommendation)
      await hand.press('Approve …')
      await hand.press('Show what this does')
      await hand.see('It would take no effect') // it is their own
      let last = hand
      for (const name of names.slice(1)) {
        last = await hand.another()
        await last.go('Alerts')
        await last.open('Proposed')
        await last.open(recommendation)
        await last.press('Approve …')
        await last.enrol(name, 'planner')
        await last.sign(name)
      }
      const { stage, approvals } = (await hand.ask('recommend', 'show', recommendation)) as { stage: string; approvals: { operator: string }[] }
      assert.deepEqual([stage, ...approvals.map((a) => a.operator)], ['approved', ...names.slice(1)])
      const trail = await hand.site.answer(['audit', 'trail', '--recommendation', recommendation, '-o', 'json'])
      for (const name of names) assert.ok(trail.includes(`"${name}"`), `${name} is in the trail`)
      return last.ends('recommend show', '/approvals/1/time', recommendation)
    },
  },
  {
    person: 'team lead',
    job: 'what was paid for and not useful',
    async walk(hand) {
      await hand.go('Alerts')
      await hand.open('Waste')
      return hand.ends('advice waste', '/totals/0/wasted', ...may)
    },
  },
  {
    person: 'team lead',
    job: 'what a million tokens cost',
    async walk(hand) {
      const asked = [...may, '--per', 'million-tokens', '--by', 'model']
      const group = await hand.which('/groups', (g: { per_unit?: string }) => !!g.per_unit, 'costs', 'unit', ...asked)
      await hand.go('Costs')
      await hand.open('Unit costs')
      await hand.choose('Cost of a', 'million-tokens')
      await hand.choose('Grouped by', 'model')
      return hand.ends('costs unit', `${group}/per_unit`, ...asked)
    },
  },
  {
    person: 'team lead',
    job: 'what a workspace holds and leaves idle, kept as a view',
    async walk(hand) {
      await hand.go('Fleet')
      await hand.choose('Workspace', 'search')
      await hand.press('Views')
      await hand.type('Name of what is shown now', 'what search holds')
      await hand.press('Save')
      await hand.press('Close')
      await hand.go('Models')
      await hand.press('Views')
      await hand.open('what search holds')
      await hand.page.getByRole('heading', { name: 'Fleet', level: 1 }).waitFor()
      return hand.ends('usage', '/total/idle_gpu_ms', ...week, '--by', 'cluster', '--workspace', 'search')
    },
  },
]

const administrator: Journey[] = [
  {
    person: 'administrator',
    job: 'register a cluster, and rotate its key',
    first: true,
    async walk(hand) {
      const [name, cluster] = [`ada-${hand.by}`, `lab-${hand.by}`]
      await hand.go('Admin')
      await hand.open('Clusters and keys')
      await hand.press('Register a cluster …')
      await hand.type('Name', cluster)
      await hand.type('Provider', 'own')
      await hand.type(/^hyperscaler/, 'owned')
      await hand.type('Region', 'us-central')
      await hand.enrol(name, 'admin')
      await hand.sign(name)
      await hand.open(cluster)
      await hand.press('Rotate its key …')
      await hand.sign(name)
      const at = await hand.which('/clusters', (c: { cluster: string; keys: unknown[] }) => c.cluster === cluster && c.keys.length === 2, 'cluster', 'list')
      return hand.ends('cluster list', `${at}/keys/1/issued`)
    },
  },
  {
    person: 'administrator',
    job: 'let somebody read',
    first: true,
    async walk(hand) {
      const [name, principal] = [`abe-${hand.by}`, `account:reader-${hand.by}`]
      await hand.go('Admin')
      await hand.open('Access')
      await hand.press('Grant …')
      await hand.type('Who', principal)
      await hand.type('Role', 'viewer')
      await hand.type('Workspace', 'research')
      await hand.enrol(name, 'admin')
      await hand.sign(name)
      return hand.ends('access list', `${await hand.which('/grants', (g: { principal: string }) => g.principal === principal, 'access', 'list')}/from`)
    },
  },
  {
    person: 'administrator',
    job: 'take back what somebody may read',
    async walk(hand) {
      const [name, principal] = [`amy-${hand.by}`, `account:leaver-${hand.by}`]
      await hand.there('access', 'grant', principal, '--role', 'viewer')
      await hand.go('Admin')
      await hand.open('Access')
      await hand.press('Revoke a grant …')
      await hand.type('Grant', `viewer:${principal}`)
      await hand.enrol(name, 'admin')
      await hand.sign(name)
      await hand.tick('also ended ones')
      return hand.ends('access list', `${await hand.which('/grants', (g: { principal: string }) => g.principal === principal, 'access', 'list', '--past')}/to`, '--past')
    },
  },
  {
    person: 'administrator',
    job: 'declare a budget',
    async walk(hand) {
      const [name, budget] = [`aya-${hand.by}`, `travel-${hand.by}`]
      await hand.go('Admin')
      await hand.open('Declared')
      await hand.press('Declare …')
      await hand.type(
        'declarations.yaml',
        `apiVersion: quartermaster/v1\nkind: Estate\nworkspace: platform\neffective_from: 2026-06-01\nbudgets:\n- {id: ${budget}, workspace: search, amount: 1000 USD, basis: cash, period: {from: 2026-06-01, to: 2099-01-01}}\n`,
      )
      await hand.enrol(name, 'admin')
      await hand.sign(name)
      await hand.choose('Kind', 'budgets')
      return hand.ends('get', `${await hand.which('/entries', (e: { name: string }) => e.name.includes(budget), 'get', 'budgets')}/since`, 'budgets')
    },
  },
  {
    person: 'administrator',
    job: 'which files were imported',
    async walk(hand) {
      await hand.go('Admin')
      return hand.ends('import list', '/0/events')
    },
  },
]

export const journeys: Journey[] = [...finance, ...planner, ...auditor, ...operator, ...lead, ...administrator]
