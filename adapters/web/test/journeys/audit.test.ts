// What an auditor's journeys do not try: a replay that is cancelled, and proofs that were altered.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import type { Browser } from 'playwright-core'
import { cosigned, included, type Outcome, type Proof } from '../../src/pages/audit/check.ts'
import { browse, copied, program, serve, visit, type Site } from '../site.ts'

const run = promisify(execFile)
let dir: string
let site: Site
let browser: Browser
let verifier: string
let record: string // of the demo's budget, which root signed
before(async () => {
  dir = await copied()
  const key = join(dir, 'operator.pem')
  await run(program, ['archive', 'run', '--all', '--key', key, '--data-dir', dir])
  verifier = (JSON.parse((await run(program, ['archive', 'verifier-key', '--key', key, '--data-dir', dir, '-o', 'json'])).stdout) as { verifier_key: string }).verifier_key
  site = await serve(dir)
  const budgets = (await site.answer(['log', 'tail', '--type', 'BudgetSet', '--operator', 'root', '-o', 'json'])).trim().split('\n').map((line) => JSON.parse(line) as { topic: string; partition: number; offset: number })
  record = budgets.map((r) => `${r.topic}/${r.partition}@${r.offset}`)[0] ?? ''
  browser = await browse()
})
after(async () => {
  await browser?.close()
  await site?.close()
  await rm(dir, { recursive: true, force: true })
})

const answer = async (...args: string[]) => JSON.parse(await site.answer([...args, '-o', 'json'])) as Record<string, never>

test('a replay is cancelled', async () => {
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/audit?show=replay`)
  await page.getByRole('button', { name: 'Replay', exact: true }).click()
  await page.getByRole('button', { name: 'Cancel Replay' }).click()
  await page.getByRole('progressbar').waitFor({ state: 'detached' })
  assert.equal(await page.getByRole('button', { name: 'Replay', exact: true }).isEnabled(), true)
  assert.deepEqual(faults, [])
  await context.close()
})

// The checks of the browser refuse what was altered.
test('an altered proof does not hold', async () => {
  const proof = (await answer('log', 'prove', record)) as unknown as Proof
  const leaf = (await answer('log', 'event', record))['leaf'] as unknown as string
  const broken = (all: Outcome[]) => all.filter((o) => o.holds !== true).map((o) => o.what)
  assert.deepEqual(broken(await included(proof, leaf)), [])
  const flip = (text: string) => (text[7] === 'A' ? 'B' : 'A')
  const altered = (text: string) => text.slice(0, 7) + flip(text) + text.slice(8)
  assert.deepEqual(broken(await included({ ...proof, leaf: altered(proof.leaf ?? '') }, leaf)), ['The proof is of these bytes', 'Record in its partition'])
  assert.deepEqual(broken(await included({ ...proof, path: altered(proof.path) }, leaf)), ['Record in its partition'])
  assert.deepEqual(broken(await included({ ...proof, path: proof.path.slice(0, -44) }, leaf)), ['Record in its partition'])
  assert.deepEqual(broken(await included({ ...proof, offset: Number(proof.offset) - 1 }, leaf)), ['Record in its partition'])
  assert.deepEqual(broken(await included({ ...proof, line: proof.line.replace(/next=\d+/, 'next=99') }, leaf)), ['Record in its partition', 'Partition in the head'])
  assert.deepEqual(broken(await included({ ...proof, line_path: altered(proof.line_path) }, leaf)), ['Partition in the head'])
  assert.deepEqual(broken(await included({ ...proof, checkpoint: proof.checkpoint.replace('\n1\n', '\n2\n') }, leaf)), ['Head in the checkpoint'])
  assert.equal((await cosigned(proof.checkpoint, verifier)).holds, true)
  assert.equal((await cosigned(proof.checkpoint.replace('\n1\n', '\n2\n'), verifier)).holds, false)
  assert.equal((await cosigned(proof.checkpoint, 'nonsense')).holds, null)
})
