// Finance explains a cent, looks at a budget, and closes a month with two signatures.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import type { Browser, Page } from 'playwright-core'
import { figures, found } from '../figures.ts'
import { browse, program, serve, settle, visit, type Site } from '../site.ts'

const run = promisify(execFile)
let dir: string
let site: Site
let browser: Browser
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'quartermaster-costs-'))
  const from = process.env['QM_WEB_DATA']
  if (from) await cp(from, dir, { recursive: true })
  else await run(program, ['demo', '--once', '--quiet', '--data-dir', dir], { maxBuffer: 1 << 26 })
  site = await serve(dir)
  browser = await browse()
})
after(async () => {
  await browser?.close()
  await site?.close()
  await rm(dir, { recursive: true, force: true })
})

const answer = async (...args: string[]) => JSON.parse(await site.answer([...args, '-o', 'json'])) as Record<string, unknown>

// shown returns a figure of an operation on the screen.
async function shown(page: Page, path: string, at: string): Promise<string> {
  const all = (await figures(page)).filter((f) => f.path === path && f.at === at)
  assert.ok(all[0], `no figure of ${path} at ${at}`)
  return all[0].value
}

// focused goes on with a key until an element has the focus.
async function focused(page: Page, name: string | RegExp, role: 'link' | 'button', most = 200): Promise<void> {
  const want = page.getByRole(role, { name }).first()
  for (let i = 0; i < most; i++) {
    if (await want.evaluate((e) => e === document.activeElement)) return
    await page.keyboard.press('Tab')
  }
  assert.fail(`${String(name)} is not reached by keyboard`)
}

// cent compares what is explained at the end with what the command says.
async function cent(page: Page): Promise<void> {
  await page.getByRole('heading', { name: '5 · The event' }).waitFor()
  const allocation = new URL(page.url()).searchParams.get('allocation') ?? ''
  const want = await answer('costs', 'explain', allocation)
  for (const at of ['/effective', '/weight', '/whole/effective']) assert.equal(await shown(page, '/api/v1/costs/explain', at), found(want, at), at)
}

test('a cent is explained, by mouse', async () => {
  const { context, page } = await visit(browser, site)
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Costs' }).click()
  await settle(page)
  await page.getByRole('table', { name: /^By workspace/ }).getByRole('link', { name: 'vc-a01', exact: true }).click()
  await settle(page)
  const of = await answer('costs', 'explain', '--workspace', 'vc-a01', '--period', '2026-05')
  assert.equal(await shown(page, '/api/v1/costs/explain', '/currencies/0/effective_minor'), found(of, '/currencies/0/effective_minor'))
  await page.getByRole('link', { name: '16,388 allocations of jobs' }).click()
  await settle(page)
  await page.getByRole('table', { name: /^Allocations/ }).getByRole('link').nth(2).click()
  await settle(page)
  await cent(page)
  await page.getByRole('link', { name: 'Its bytes, signature and proof' }).click()
  await settle(page)
  await page.getByRole('heading', { name: /BillingLineRecorded/ }).waitFor()
  await context.close()
})

test('a cent is explained, by keyboard', async () => {
  const { context, page } = await visit(browser, site)
  await settle(page)
  await page.keyboard.press('g')
  await page.keyboard.press('c')
  await page.getByRole('heading', { name: 'Costs' }).waitFor()
  await settle(page)
  await focused(page, 'vc-a01', 'link')
  await page.keyboard.press('Enter')
  await settle(page)
  await focused(page, /allocations of jobs/, 'link')
  await page.keyboard.press('Enter')
  await settle(page)
  await focused(page, /^gen-demo-0001-202605-commitment/, 'link')
  await page.keyboard.press('Enter')
  await settle(page)
  await cent(page)
  await context.close()
})

test('a budget is what the command says, and its bridge leads to what was spent', async () => {
  const { context, page } = await visit(browser, site)
  await page.goto(`${site.origin}/costs?show=budgets`)
  await settle(page)
  const want = await answer('costs', 'budget', '--period', '2026-05')
  for (const at of ['actual', 'remaining', 'variance/mix', 'variance/price', 'forecast_high']) {
    assert.equal(await shown(page, '/api/v1/costs/budget', `/budgets/0/${at}`), found(want, `/budgets/0/${at}`), at)
  }
  // The derivation of a figure names the command, and closes by keyboard.
  await focused(page, /Spent/, 'button')
  await page.keyboard.press('Enter')
  assert.match(await page.getByRole('dialog').innerText(), /quartermaster costs budget --period 2026-05/)
  await page.keyboard.press('Escape')
  await context.close()
})

const drawer = (page: Page) => page.getByRole('dialog')

// enrol makes a key in the browser, and registers it as that of an operator.
async function enrol(page: Page, title: string, operator: string): Promise<void> {
  await page.getByRole('button', { name: title }).click()
  await drawer(page).getByRole('button', { name: 'Make a key in this browser' }).click()
  await drawer(page).getByRole('button', { name: 'Show what this does' }).click()
  const key = /--public-key (\S+)/.exec(await drawer(page).getByText('--public-key').innerText())?.[1] ?? ''
  await run(program, ['operator', 'add', operator, '--role', 'finance', '--limit', '100000000 USD', '--public-key', key, '--data-dir', dir])
}

test('a month is closed by two', async () => {
  const close = async () => (await answer('costs', 'close', 'show', '--month', '2026-05')) as { state: string; prepared?: { operator: string }; approved?: { operator: string } }
  const ana = await visit(browser, site)
  await ana.page.goto(`${site.origin}/costs?show=close`)
  await settle(ana.page)
  await enrol(ana.page, 'Prepare the close …', 'ana')
  for (const field of await drawer(ana.page).getByLabel(/^Why this is accepted/).all()) await field.fill('generated for a demonstration')
  await drawer(ana.page).getByRole('button', { name: 'Show what this does' }).click()
  await drawer(ana.page).getByText('Signed by ana, until').waitFor()
  await drawer(ana.page).getByRole('button', { name: 'Sign and decide' }).click()
  await drawer(ana.page).getByText('It is decided and in the log.').waitFor()
  await drawer(ana.page).getByRole('button', { name: 'Close' }).click()
  await ana.page.getByText('Prepared: a second person may approve it.').waitFor()
  assert.equal((await close()).prepared?.operator, 'ana')

  // She may not approve it herself.
  await ana.page.getByRole('button', { name: 'Approve the close …' }).click()
  await drawer(ana.page).getByRole('button', { name: 'Show what this does' }).click()
  await drawer(ana.page).getByText('It would take no effect').waitFor()

  const ben = await visit(browser, site)
  await ben.page.goto(`${site.origin}/costs?show=close`)
  await settle(ben.page)
  await enrol(ben.page, 'Approve the close …', 'ben')
  await drawer(ben.page).getByRole('button', { name: 'Show what this does' }).click()
  await drawer(ben.page).getByText('Signed by ben, until').waitFor()
  await drawer(ben.page).getByRole('button', { name: 'Sign and decide' }).click()
  await drawer(ben.page).getByText('It is decided and in the log.').waitFor()
  await drawer(ben.page).getByRole('button', { name: 'Close' }).click()
  await ben.page.getByText('Closed: costs answer from the allocations').waitFor()
  const closed = await close()
  assert.deepEqual([closed.state, closed.prepared?.operator, closed.approved?.operator], ['closed', 'ana', 'ben'])
  await ana.context.close()
  await ben.context.close()
})
