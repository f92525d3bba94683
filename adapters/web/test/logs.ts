// Small logs, made by the program's own commands, of what is rarely there: nothing, one cluster, names that attack.
import { execFile } from 'node:child_process'
import { mkdtemp, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { program } from './site.ts'

const run = promisify(execFile)

export const markup = '<img src=x onerror=window.stolen=1>'

// hostile are names that a log may hold: 256 bytes without control characters. A name of a node is shorter.
export const hostile = [
  markup,
  '</script><script>window.stolen=1</script>',
  '\u202etfarc\u202c', // right-to-left override
  'بحث\u200f1',
  '=1+1',
  '@SUM(A1)',
  'x'.repeat(200),
  '👩‍🚀 '.repeat(17).trim(),
  'none', // what a page writes where there is no name
  `a'b"c\`d&amp;{e}$f/g~h`,
  'javascript:window.stolen=1',
]

export async function empty(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'quartermaster-empty-'))
}

export async function oneCluster(): Promise<string> {
  const dir = await empty()
  await apply(dir, { clusters: [{ id: 'lab', provider: 'own', provider_class: 'owned', region: 'eu-central-1' }], regions: [{ id: 'eu-central-1', country: 'DE' }] })
  return dir
}

// plant is the program that writes records that are no events, '' without. adapters/web/build/test.sh builds it with go.
const plant = process.env['QM_PLANT'] ?? ''
export const unhurt = plant ? false : 'QM_PLANT names no program that writes bad records: adapters/web/build/test.sh builds it with go'

// hurt has a cluster, three records in quarantine, and a stream that lacks three events.
export async function hurt(): Promise<string> {
  const dir = await oneCluster()
  await run(plant, [dir, 'garbage', 'gpu-twice', 'late'])
  return dir
}

// largest is the largest cost that a bill may have: more cents than a number of JavaScript counts.
const largest = '999999999999999.99'

// yen has a bill in yen and one in dollars that JavaScript could not add up.
export async function yen(): Promise<string> {
  const dir = await oneCluster()
  for (const [issuer, currency, amounts] of [['tokyo', 'JPY', ['1200', '98']], ['big', 'USD', [largest, '0.01', '0.01']]] as const) {
    const bill = join(dir, `${issuer}.csv`)
    const lines = amounts.map((amount) => ({
      BilledCost: amount, BillingAccountId: issuer, BillingAccountName: issuer, BillingCurrency: currency,
      BillingPeriodEnd: '2026-06-01T00:00:00Z', BillingPeriodStart: '2026-05-01T00:00:00Z', ChargeCategory: 'Usage', ChargeClass: '', ChargeDescription: amount,
      ChargePeriodEnd: '2026-05-01T01:00:00Z', ChargePeriodStart: '2026-05-01T00:00:00Z', ContractedCost: amount, EffectiveCost: amount, InvoiceId: issuer, InvoiceIssuerName: issuer, ListCost: amount,
      PricingQuantity: '1', PricingUnit: 'Hours', ProviderName: issuer, PublisherName: issuer, ResourceId: issuer, ServiceCategory: 'Compute', ServiceName: issuer,
    }))
    await csv(bill, Object.keys(lines[0] ?? {}), lines.map((l) => Object.values(l)))
    await run(program, ['import', 'focus', bill, '--data-dir', dir])
  }
  return dir
}

export async function manyWorkspaces(): Promise<string> {
  const dir = await empty()
  await apply(dir, { workspaces: Array.from({ length: 10_000 }, (_, n) => ({ id: `team-${String(n).padStart(5, '0')}`, parent: 'platform' })) })
  return dir
}

// manyGPUs is a fleet of 100,000 GPUs in ten clusters, each with an activity of its own in one hour, which ends at manyUntil.
export const manyUntil = '2026-05-01T01:00:00Z'
export async function manyGPUs(): Promise<string> {
  const dir = await empty()
  const clusters = Array.from({ length: 10 }, (_, n) => `big-${n}`)
  await apply(dir, { clusters: clusters.map((id) => ({ id, provider: 'own', provider_class: 'owned', region: 'r' })), regions: [{ id: 'r', country: 'DE' }] })
  let seed = 1
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647
  for (const cluster of clusters) {
    const file = join(dir, `${cluster}.csv`)
    const activity = Array.from({ length: 9_000 }, () => Math.floor(100 * random())).join(';')
    await csv(file, ['hour', 'vc', 'total_gpu', 'running_gpu_mean', 'running_gpu_max', 'pending_gpu_mean', 'pending_gpu_max', 'running_sm_active'], [['2026-05-01 00:00', 'n', '10000', '9000', '9000', '0', '0', activity]])
    await run(program, ['import', 'usage', file, '--cluster', cluster, '--zone', 'UTC', '--gpu-model', 'H100', '--interval', '1h', '--data-dir', dir])
  }
  return dir
}

async function apply(dir: string, declared: object): Promise<void> {
  const file = join(dir, 'estate.yaml')
  await writeFile(file, JSON.stringify({ apiVersion: 'quartermaster/v1', kind: 'Estate', workspace: 'platform', effective_from: '2026-05-01', ...declared }))
  await run(program, ['apply', '-f', file, '--data-dir', dir])
}

// hostileLog has every kind of name that a page shows, and texts of 4,000 characters with line ends.
export async function hostileLog(): Promise<string> {
  const dir = await empty()
  await apply(dir, {
    workspaces: hostile.map((id) => ({ id, name: id, cost_centre: id, parent: 'platform' })),
    regions: [{ id: markup, country: 'DE', name: markup }],
    clusters: hostile.slice(0, 4).map((id) => ({ id, name: id, provider: id, provider_class: 'owned', region: markup })),
    deployments: hostile.map((id) => ({ id, workspace: id, cluster: markup, environment: 'production', class: 'serving', model: id, replicas: 2, need: { gpus: 1 } })),
    budgets: hostile.slice(0, 3).map((id) => ({ id, workspace: id, amount: '10000 USD', basis: 'cash', period: { from: '2026-05-01', to: '2026-06-01' } })),
  })
  const usage = join(dir, 'usage.csv')
  const hours = Array.from({ length: 48 }, (_, h) => `2026-05-0${1 + Math.floor(h / 24)} ${String(h % 24).padStart(2, '0')}:00`)
  await csv(usage, ['hour', 'vc', 'total_gpu', 'running_gpu_mean', 'running_gpu_max', 'pending_gpu_mean', 'pending_gpu_max'], hours.flatMap((hour) => hostile.map((name) => [hour, name, '8', '3', '3', '1', '1'])))
  await run(program, ['import', 'usage', usage, '--cluster', markup, '--zone', 'UTC', '--gpu-model', '<b>V100</b>', '--data-dir', dir])
  const bill = join(dir, 'bill.csv')
  const lines = hostile.map((name, n) => ({
    BilledCost: n === 0 ? '123456789012345.67' : '98', BillingAccountId: name, BillingAccountName: name, BillingCurrency: n % 2 ? 'JPY' : 'USD',
    BillingPeriodEnd: '2026-06-01T00:00:00Z', BillingPeriodStart: '2026-05-01T00:00:00Z', ChargeCategory: 'Usage', ChargeClass: '', ChargeDescription: `${name}\n${'y'.repeat(3800)}`,
    ChargePeriodEnd: '2026-05-01T01:00:00Z', ChargePeriodStart: '2026-05-01T00:00:00Z', ContractedCost: '98', EffectiveCost: '98', InvoiceId: name, InvoiceIssuerName: name, ListCost: '98',
    PricingQuantity: '1', PricingUnit: 'Hours', ProviderName: name, PublisherName: name, ResourceId: name, ServiceCategory: 'Compute', ServiceName: name,
  }))
  await csv(bill, Object.keys(lines[0] ?? {}), lines.map((l) => Object.values(l)))
  await run(program, ['import', 'focus', bill, '--data-dir', dir])
  const proposal = join(dir, 'proposal.yaml')
  await writeFile(proposal, JSON.stringify({ recommendation: markup, kind: 'purchase', summary: `${markup} ${'z'.repeat(900)}`, why_more: markup, steps: hostile, cost: '99999999999999.99 USD', saving: '20000 USD' }))
  await run(program, ['recommend', 'propose', '-f', proposal, '--workspace', 'platform', '--data-dir', dir])
  return dir
}

async function csv(file: string, head: string[], rows: string[][]): Promise<void> {
  await writeFile(file, [head, ...rows].map((r) => r.map((c) => `"${c.replaceAll('"', '""')}"`).join(',')).join('\n') + '\n')
}
