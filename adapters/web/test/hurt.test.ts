// Logs that lack events or hold bad ones, money of other currencies and of many digits, and links of another log.
import assert from 'node:assert/strict'
import { rm } from 'node:fs/promises'
import { after, before, test, type TestContext } from 'node:test'
import type { Browser } from 'playwright-core'
import { violations } from './axe.ts'
import { answered, figures, found, misread } from './figures.ts'
import { hurt, oneCluster, unhurt, yen } from './logs.ts'
import { browse, serve, settle, visit, type Site } from './site.ts'

let browser: Browser
before(async () => {
  browser = await browse()
})
after(() => browser?.close())

// served serves a log while a test runs.
async function served(t: TestContext, dir: string): Promise<Site> {
  const site = await serve(dir)
  t.after(async () => {
    await site.close()
    await rm(dir, { recursive: true, force: true })
  })
  return site
}

test('a log that lacks events and has some in quarantine says so on every page', { skip: unhurt }, async (t) => {
  const site = await served(t, await hurt())
  const { context, page, faults } = await visit(browser, site)
  const want = JSON.parse(await site.answer(['overview', '-o', 'json'])) as { incomplete: number; missing: number }
  assert.deepEqual([want.incomplete, want.missing], [3, 3])
  const bar = page.getByRole('contentinfo')
  for (const path of ['/fleet', '/models', '/costs', '/plan', '/alerts']) {
    await page.goto(site.origin + path)
    await settle(page)
    assert.match(await bar.innerText(), /incomplete: 3 events in quarantine/, path)
    assert.match(await bar.innerText(), /incomplete: 3 events that have not arrived/, path)
  }
  assert.deepEqual(await violations(page), [], 'axe')
  await bar.getByRole('link', { name: 'quarantine' }).click()
  await settle(page)
  const listed = JSON.parse(await site.answer(['quarantine', 'list', '-o', 'json'])) as { entries: { id: string }[] }
  assert.equal(listed.entries.length, 3)
  for (const { id } of listed.entries) await page.getByRole('row', { name: id }).waitFor()
  assert.deepEqual(await violations(page), [], 'axe')
  await bar.getByRole('link', { name: 'not arrived' }).click()
  await settle(page)
  await page.getByRole('table', { name: /^Events that are awaited/ }).getByRole('row', { name: /reporter\/n8/ }).waitFor()
  assert.deepEqual(faults, [])
  await context.close()
})

test('yen have no cents, and large bills have all of theirs', async (t) => {
  const site = await served(t, await yen())
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/costs?period=2026-05`)
  await settle(page)
  const text = await page.locator('main').innerText()
  assert.match(text, /1,298 ?JPY|1,298\s+JPY/)
  assert.doesNotMatch((await page.locator('main').textContent()) ?? '', /1,298\.0/) // nor in the names of bars
  assert.match(text, /1,000,000,000,000,000\.01/) // the largest bill, and two cents
  const shown = await figures(page)
  assert.ok(shown.length > 5)
  for (const seen of shown) {
    assert.equal(seen.value, found(await answered(site, seen.path, seen.query), seen.at), `${seen.path} at ${seen.at}`)
    assert.equal(misread(seen), '')
  }
  assert.deepEqual(faults, [])
  await context.close()
})

test('a link of another log is refused in clear words', async (t) => {
  const [one, other] = [await served(t, await yen()), await served(t, await oneCluster())]
  const { context, page, faults } = await visit(browser, other)
  const { position } = JSON.parse(await one.answer(['overview', '-o', 'json'])) as { position: string }
  await page.goto(`${other.origin}/fleet?as_of=${encodeURIComponent(position)}`)
  await settle(page)
  const alert = page.getByRole('alert').first()
  assert.match(await alert.innerText(), /is beyond the end of the log[^]*it is of another log, or this one has lost events/)
  assert.equal(await page.locator('data[data-figure]').count(), 0)
  assert.deepEqual(await violations(page), [], 'axe')
  await alert.getByRole('link', { name: 'Show it as of now' }).click()
  await settle(page)
  assert.equal(await page.getByRole('alert').count(), 0)
  assert.deepEqual(faults, [])
  await context.close()
})
