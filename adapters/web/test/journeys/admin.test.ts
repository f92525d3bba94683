// An admin reviews the service accounts, and gives one another key in the browser.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import type { Browser } from 'playwright-core'
import { time } from '../../src/format.ts'
import { browse, program, serve, settle, visit, type Site } from '../site.ts'

const run = promisify(execFile)
let dir: string
let site: Site
let browser: Browser
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'quartermaster-admin-'))
  const from = process.env['QM_WEB_DATA']
  if (from) await cp(from, dir, { recursive: true })
  else await run(program, ['demo', '--once', '--quiet', '--data-dir', dir], { maxBuffer: 1 << 26 })
  site = await serve(dir)
  await run(program, ['access', 'grant', 'account:dashboard', '--role', 'viewer', '--workspace', 'research', '--data-dir', dir])
  await run(program, ['access', 'grant', 'user:corp/1', '--role', 'viewer', '--workspace', 'research', '--data-dir', dir])
  await run(program, ['access', 'key', 'issue', 'dashboard', '--workspace', 'research', '--data-dir', dir])
  browser = await browse()
})
after(async () => {
  await browser?.close()
  await site?.close()
  await rm(dir, { recursive: true, force: true })
})

interface Listed {
  grants: { principal: string; grant: string }[]
  keys: { account: string; key_id: string; issued: string; live: boolean }[]
}
const listed = async () => JSON.parse(await site.answer(['access', 'list', '-o', 'json'])) as Listed

test('service accounts with their keys and grants, and another key, by mouse', async () => {
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/admin`)
  await page.getByRole('link', { name: 'Service accounts' }).click()
  await settle(page)
  const before = await listed()
  const keys = page.getByRole('table', { name: /^Keys of service accounts/ })
  for (const k of before.keys) {
    const row = await keys.getByRole('row').filter({ has: page.getByRole('cell', { name: k.key_id, exact: true }) }).innerText()
    for (const text of [k.account, time(k.issued), k.live ? 'yes' : 'no']) assert.ok(row.includes(text), `${row}: want ${text}`)
  }
  const grants = page.getByRole('table', { name: /^What service accounts may read/ })
  assert.equal(await grants.locator('tbody tr').count(), before.grants.filter((g) => g.principal.startsWith('account:')).length)

  await page.getByRole('button', { name: 'Issue a key …' }).click()
  const drawer = page.getByRole('dialog')
  await drawer.getByLabel('Account').fill('dashboard')
  await drawer.getByLabel('Workspace').fill('research')
  await drawer.getByRole('button', { name: 'Make a key in this browser' }).click()
  const show = drawer.getByRole('button', { name: 'Show what this does' })
  await show.click()
  const own = /--public-key (\S+)/.exec(await drawer.getByText('--public-key').innerText())?.[1] ?? ''
  await run(program, ['operator', 'add', 'ada', '--role', 'admin', '--public-key', own, '--data-dir', dir])
  await show.click()
  await drawer.getByText('Signed by ada, until').waitFor()
  await drawer.getByRole('button', { name: 'Sign and decide' }).click()
  await drawer.getByText('It is decided and in the log.').waitFor()
  const said = await drawer.locator('pre').first().innerText() // the only time that it is shown
  await drawer.getByRole('button', { name: 'Close' }).click()
  await settle(page)
  const added = (await listed()).keys.filter((k) => !before.keys.some((b) => b.key_id === k.key_id))
  assert.equal(added.length, 1)
  assert.ok(said.includes(added[0]?.key_id ?? '?'), said)
  await keys.getByRole('cell', { name: added[0]?.key_id ?? '?', exact: true }).first().waitFor()
  assert.deepEqual(faults, [])
  await context.close()
})

test('what webhooks could not deliver, by keyboard', async () => {
  const { context, page } = await visit(browser, site)
  await settle(page)
  await page.keyboard.press('g')
  await page.keyboard.press('d')
  await page.getByRole('heading', { name: 'Admin' }).waitFor()
  await page.getByRole('link', { name: 'Webhooks' }).focus()
  await page.keyboard.press('Enter')
  await settle(page)
  const letters = JSON.parse(await site.answer(['dead-letters', 'list', '-o', 'json'])) as unknown[]
  await page.getByRole('table', { name: new RegExp(`^Dead letters.*${letters.length} row`) }).waitFor()
  await context.close()
})
