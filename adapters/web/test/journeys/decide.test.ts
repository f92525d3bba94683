// What no journey tries: a decision about something that the page did not show.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import type { Browser, Page } from 'playwright-core'
import { browse, copied, program, serve, settle, visit, type Site } from '../site.ts'

const run = promisify(execFile)
let dir: string
let site: Site
let browser: Browser
before(async () => {
  dir = await copied()
  site = await serve(dir)
  browser = await browse()
})
after(async () => {
  await browser?.close()
  await site?.close()
  await rm(dir, { recursive: true, force: true })
})

const recommendation = 'r-other'
const proposal = `recommendation: ${recommendation}
kind: purchase
summary: buy two machines with eight GPUs
cost: 5000 USD
saving: 20000 USD
`

const drawer = (page: Page) => page.getByRole('dialog')
const show = (page: Page) => drawer(page).getByRole('button', { name: 'Show what this does' })

// enrol makes a key in the browser, and has an admin register it.
async function enrol(page: Page, name: string): Promise<void> {
  await drawer(page).getByRole('button', { name: 'Make a key in this browser' }).click()
  await show(page).click()
  const said = await drawer(page).getByText('--public-key').innerText()
  const key = /--public-key (\S+)/.exec(said)?.[1] ?? ''
  await run(program, ['operator', 'add', name, '--role', 'planner', '--limit', '1000000 USD', '--public-key', key, '--data-dir', dir])
}

// sign asks what a decision does, and signs it.
async function sign(page: Page, operator: string): Promise<void> {
  await show(page).click()
  await drawer(page).getByText(`Signed by ${operator}, until`).waitFor()
  await drawer(page).getByRole('button', { name: 'Sign and decide' }).click()
}

async function stage(recommendation: string): Promise<{ stage: string; approvals: { operator: string }[] | null }> {
  return JSON.parse(await site.answer(['recommend', 'show', recommendation, '-o', 'json'])) as { stage: string; approvals: { operator: string }[] | null }
}

// Somebody withdraws a proposal while its page is open, and proposes something else under its name.
test('what was not shown is not approved', async () => {
  const file = join(dir, 'other.yaml')
  const propose = async (cost: string) => {
    await writeFile(file, proposal.replace('5000', cost))
    await run(program, ['recommend', 'propose', '--file', file, '--workspace', 'research', '--data-dir', dir])
  }
  await propose('5000')
  const { context, page } = await visit(browser, site)
  await page.goto(`${site.origin}/alerts?show=proposals&proposal=${recommendation}`)
  await settle(page)
  await run(program, ['recommend', 'withdraw', recommendation, '--data-dir', dir])
  await propose('9000')
  await page.getByRole('button', { name: 'Approve …' }).click()
  await enrol(page, 'dan')
  await show(page).click()
  await drawer(page).getByText('recommendation r-other is not what you were shown').waitFor()
  const refused = drawer(page).getByRole('button', { name: 'Sign and decide' })
  assert.ok((await refused.count()) === 0 || (await refused.isDisabled()))
  await drawer(page).getByRole('button', { name: 'Close' }).click()
  assert.deepEqual((await stage(recommendation)).approvals ?? [], [])

  // Once it is looked at again, it can be decided.
  await page.getByRole('button', { name: 'There are newer events' }).click()
  await settle(page)
  await page.getByText('9,000.00').waitFor()
  await page.getByRole('button', { name: 'Approve …' }).click()
  await sign(page, 'dan')
  await drawer(page).getByText('It is decided and in the log.').waitFor()
  assert.equal((await stage(recommendation)).approvals?.length, 1)
  await context.close()
})
