// The pages on Apache Kafka and Postgres, where people log in. deploy/dev/integration.sh starts the servers and loads the demo.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { promisify } from 'node:util'
import type { Browser, Page } from 'playwright-core'
import { violations } from './axe.ts'
import { answered, figures, found, misread } from './figures.ts'
import { config, idp, login, servePeople, type Public } from './people.ts'
import { browse, settle } from './site.ts'

const run = promisify(execFile)

const skip = config && idp ? false : 'QM_WEB_CONFIG and QM_IDP name no instance on Kafka and Postgres and no identity provider'

let site: Public
let browser: Browser
before(async () => {
  if (skip) return
  site = await servePeople()
  await site.command('access', 'grant', 'group:corp/finance', '--role', 'admin') // ana
  await site.command('access', 'grant', 'group:corp/ml', '--role', 'viewer', '--workspace', 'assistant') // bob, and ana
  browser = await browse()
})
after(async () => {
  await browser?.close()
  await site?.close()
})

const long = process.env['CI_LONG'] === '1'
const every = ['/fleet', '/models', '/costs?period=2026-05', '/plan', '/what-if', '/audit', '/gpu?node=vc-a01-000&cluster=gen-rented', '/alerts', '/admin']
if (long) every.push('/fleet?show=map', '/costs?show=close', '/audit?show=quarantine', '/admin?show=generations')
const compared = ['/fleet', '/costs?period=2026-05', '/plan']

const position = (page: Page) => page.locator('footer').getByText(/position: [\d,]+ records/).innerText()

test('each page answers as the command does', { skip }, async (t) => {
  const { context, page, faults } = await login(browser, site, 'ana')
  let same = 0
  for (const path of every) {
    await t.test(path, async () => {
      await page.goto(site.origin + path)
      await settle(page)
      assert.deepEqual(faults.splice(0), [], 'faults')
      assert.deepEqual(await page.getByRole('alert').allInnerTexts(), [])
      if (!compared.includes(path)) return
      assert.deepEqual(await violations(page), [], 'axe')
      for (const seen of await figures(page)) {
        assert.equal(seen.value, found(await answered(site, seen.path, seen.query), seen.at), `${seen.path}?${seen.query} at ${seen.at}`)
        assert.equal(misread(seen), '', `${seen.path} at ${seen.at}`)
        same++
      }
    })
  }
  assert.ok(same > 100, `${same} figures compared`)
  t.diagnostic(`${same} figures compared`)
  await context.close()
})

test('a reader of one workspace sees it, and is refused the rest', { skip }, async () => {
  const { context, page, faults, heard } = await login(browser, site, 'bob', '/costs?show=close')
  await settle(page)
  assert.match(await page.getByRole('alert').first().innerText(), /You may not see this\./)
  await page.goto(`${site.origin}/fleet`)
  await settle(page)
  assert.ok((await figures(page)).length > 5)
  assert.deepEqual(heard.filter((h) => /\bvc-a\d\d\b|gen-(index|owned|rented)/.test(h)), [])
  assert.deepEqual(faults, [])
  await context.close()
})

test('an open page hears of newer events, and shows them when it is asked to', { skip }, async () => {
  const { context, page, faults } = await login(browser, site, 'ana')
  await settle(page)
  const before = await position(page)
  const newer = page.getByRole('button', { name: 'There are newer events' })
  assert.equal(await newer.count(), 0)
  await site.command('operator', 'add', `dora-${process.pid}`, '--role', 'planner', '--new-key', join(site.dir, `dora-${process.pid}.pem`))
  await newer.waitFor()
  assert.equal(await position(page), before, 'figures changed by themselves')
  await newer.click()
  await page.waitForFunction((text) => !document.querySelector('footer')?.textContent?.includes(text), before)
  assert.deepEqual(faults, [])
  await context.close()
})

// The words of deploy/dev/postgres.sh, with its options.
const [postgres = '', ...options] = (process.env['QM_WEB_POSTGRES'] ?? '').split(' ')

test('a page that is opened while the database is away says so, and is there afterwards', { skip: skip || (long && postgres ? false : 'it stops the database: CI_LONG=1 and QM_WEB_POSTGRES') }, async () => {
  const { context, page, faults } = await login(browser, site, 'ana')
  await settle(page)
  const before = (await figures(page)).map((f) => f.value)
  try {
    await run(postgres, ['immediate', ...options])
    await page.goto(`${site.origin}/models`)
    await page.getByRole('alert').getByText('This page could not be loaded').waitFor()
    assert.equal(await page.locator('data, table').count(), 0)
    assert.deepEqual(await violations(page), [], 'axe')
  } finally {
    await run(postgres, ['start', ...options])
  }
  for (const end = Date.now() + 180_000; ; await page.waitForTimeout(500)) {
    await page.goto(`${site.origin}/fleet`)
    await settle(page)
    if ((await page.getByRole('alert').count()) === 0 && (await figures(page)).length > 0) break
    assert.ok(Date.now() < end, await page.getByRole('alert').first().innerText())
  }
  assert.deepEqual((await figures(page)).map((f) => f.value), before)
  assert.deepEqual(faults.filter((f) => !/status of 5/.test(f)), [])
  await context.close()
})

test('rows are built again and switched under an open page', { skip: skip || (long ? false : 'it takes long: CI_LONG=1') }, async () => {
  const { context, page, faults } = await login(browser, site, 'ana')
  await settle(page)
  const shown = async () => (await figures(page)).map((f) => [f.at, f.value])
  const [before, at] = [await shown(), await position(page)]
  const name = `pages${process.pid}`
  await site.command('generation', 'rebuild', name)
  await page.getByRole('link', { name: 'Admin' }).click()
  await page.getByRole('link', { name: 'Generations' }).click()
  await page.getByRole('row', { name: new RegExp(name) }).waitFor()
  await page.goto(`${site.origin}/fleet`)
  await settle(page)
  assert.deepEqual(await shown(), before, 'while it is built')
  await site.command('generation', 'switch', name, '--reason', 'a test')
  assert.deepEqual(await shown(), before, 'figures changed by themselves')
  const cluster = page.getByRole('form', { name: 'Filters' }).getByLabel('Cluster')
  await cluster.selectOption('gen-rented')
  await settle(page)
  await cluster.selectOption('')
  await settle(page)
  assert.deepEqual(await page.getByRole('alert').allInnerTexts(), [])
  assert.deepEqual(await shown(), before, 'after the switch')
  assert.equal(await position(page), at)
  assert.deepEqual(faults, [])
  await context.close()
})
