// Runs the journeys of journeys.ts on one copy of the demo's log, with the demo's incidents. QM_JOURNEYS names a folder for a
// report with the figures and a picture of where each journey ended; QM_JOURNEY chooses jobs, by a regular expression.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import type { Browser } from 'playwright-core'
import { hurt, unhurt } from '../logs.ts'
import { browse, copied, program, serve, type Site } from '../site.ts'
import { Hand, said, type End, type Journey, type Way } from './hand.ts'
import { journeys } from './journeys.ts'
import { report, type Walked } from './report.ts'

const run = promisify(execFile)
const long = process.env['CI_LONG'] === '1'
const chosen = new RegExp(process.env['QM_JOURNEY'] ?? '')
const folder = process.env['QM_JOURNEYS']
const ways: Way[] = ['mouse', 'keyboard']

let site: Site
let browser: Browser
const walked: Walked[] = []
before(async () => {
  const dir = await copied()
  await run(program, ['archive', 'run', '--all', '--key', join(dir, 'operator.pem'), '--data-dir', dir])
  await run(program, ['access', 'grant', 'account:journey', '--role', 'viewer', '--data-dir', dir])
  await (await serve(dir, '0', 'scheduled work is done')).close() // rules open incidents
  site = await serve(dir)
  browser = await browse()
  if (folder) await mkdir(folder, { recursive: true })
})
after(async () => {
  await browser?.close()
  await site?.close()
  if (site) await rm(site.dir, { recursive: true, force: true })
  if (folder) await writeFile(join(folder, 'index.html'), report(journeys, walked))
})

test('six people have five jobs each, and twelve journeys run always', () => {
  const jobs = Object.groupBy(journeys, (j) => j.person)
  assert.deepEqual(Object.values(jobs).map((all) => all?.length), [5, 5, 5, 5, 5, 5])
  assert.equal(new Set(journeys.map((j) => j.job)).size, 30)
  assert.equal(journeys.filter((j) => j.first).length, 12)
})

for (const journey of journeys) {
  for (const by of ways) {
    const skip = !(long || journey.first) || !chosen.test(journey.job) || (journey.own === hurt && unhurt)
    test(`${journey.person}: ${journey.job}, by ${by}`, { skip }, () => (journey.own ? alone(journey, by, journey.own) : walk(journey, by, site)))
  }
}

// alone walks on a log of its own.
async function alone(journey: Journey, by: Way, log: () => Promise<string>): Promise<void> {
  const own = await serve(await log())
  try {
    await walk(journey, by, own)
  } finally {
    await own.close()
    await rm(own.dir, { recursive: true, force: true })
  }
}

async function walk(journey: Journey, by: Way, site: Site): Promise<void> {
  const hand = await Hand.comes(by, site, browser)
  let end: End | undefined
  let [want, problem] = ['', '']
  try {
    end = await journey.walk(hand)
    want = await said(site, end)
    assert.equal(end.shown, want, `quartermaster ${end.command.join(' ')}: ${end.at}`)
    assert.deepEqual(hand.faults, [])
  } catch (e) {
    problem = String(e)
    throw e
  } finally {
    if (folder) {
      const picture = `${journeys.indexOf(journey) + 1}-${by}.png`
      await (end?.page ?? hand.page).screenshot({ path: join(folder, picture) }).catch(() => {})
      walked.push({ journey, by, end, said: want, problem, picture })
    }
    await hand.leaves()
  }
}
