// Somebody with few rights sees theirs and nothing else, and is told who can grant more. They log in by the provider's form.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Browser } from 'playwright-core'
import { violations } from './axe.ts'
import { figures, found } from './figures.ts'
import { pages } from './pages.ts'
import { idp, login, servePeople, type Public } from './people.ts'
import { browse, settle } from './site.ts'

const skip = idp ? false : 'QM_IDP names no identity provider: adapters/web/build/test.sh builds it with go'

let site: Public
let browser: Browser
before(async () => {
  if (skip) return
  site = await servePeople()
  await site.command('access', 'grant', 'group:corp/ml', '--role', 'viewer', '--workspace', 'assistant') // bob
  await site.command('access', 'grant', 'user:corp/pia', '--role', 'operator')
  browser = await browse()
})
after(async () => {
  await browser?.close()
  await site?.close()
})

const long = process.env['CI_LONG'] === '1'

// plain are views that name nothing that somebody could have no right to: all of them with CI_LONG=1.
const named = pages.filter((p) => !/vc-a01|gen-rented|record=/.test(p))
const plain = long ? named : named.filter((_, n) => n % 3 === 0)
const others = /\bvc-a\d\d\b|\bgen-(index|owned|rented|wanted)\b|\b(RTX|V100|A10G)\b|AWS \(generated\)/

test('a reader of one workspace', { skip }, async (t) => {
  const { context, page, faults, heard } = await login(browser, site, 'bob')
  let refused = 0
  for (const path of plain) {
    await t.test(path, async () => {
      await page.goto(site.origin + path)
      await settle(page)
      assert.deepEqual(faults.splice(0), [], 'faults')
      const shown = await page.evaluate(() => document.documentElement.outerHTML)
      assert.doesNotMatch(shown, others)
      for (const alert of await page.getByRole('alert').allInnerTexts()) {
        assert.match(alert, /You may not see this\.|you may not ask this\./)
        assert.match(alert, /that takes the role .* an admin of (your workspace|the estate) can grant it/)
        if (refused++ % 4 === 0) assert.deepEqual(await violations(page), [], 'axe')
      }
    })
  }
  assert.ok(refused > plain.length / 3, `${refused} parts were refused`)
  const leaks = heard.filter((answer) => others.test(answer))
  assert.deepEqual(leaks.map((l) => `${l.slice(0, 200)} … ${others.exec(l)?.[0] ?? ''}`), [], 'answers about others')

  await t.test('their own figures are those that finance sees of them', async () => {
    await page.goto(`${site.origin}/costs?period=2026-05`)
    await settle(page)
    const want = JSON.parse(await site.answer(['costs', '--period', '2026-05', '--workspace', 'assistant', '-o', 'json'])) as unknown
    const money = (await figures(page)).filter((f) => f.path === '/api/v1/costs' && f.as === 'money')
    assert.ok(money.length >= 2)
    for (const f of money.filter((f) => /^\/totals\/0\/(billed|effective)_minor$/.test(f.at))) assert.equal(f.value, found(want, f.at), f.at)
  })
  await context.close()
})

test('a link to what one may not see says so, and who can grant it', { skip }, async () => {
  const { context, page, faults } = await login(browser, site, 'bob')
  const links = ['/fleet?cluster=gen-rented', '/costs?show=explain&workspace=vc-a01', '/costs?show=statements&workspace=vc-a01', '/gpu?node=vc-a01-000&cluster=gen-rented']
  for (const path of long ? links : links.slice(0, 2)) {
    await page.goto(site.origin + path)
    await settle(page)
    const said = await page.getByRole('alert').first().innerText()
    assert.match(said, /This is not there\./, path)
    assert.match(said, /what your rights do not cover\. An admin of the workspace that it is about can grant them\./, path)
    assert.equal(await page.locator('data[data-figure]').count(), 0, path)
    // What is not there at all is answered in the same words.
    const words = (text: string) => text.replaceAll(/gen-rented|gen-nowhere|vc-a01|vc-nobody/g, '…')
    await page.goto(site.origin + path.replace('gen-rented', 'gen-nowhere').replace('vc-a01', 'vc-nobody'))
    await settle(page)
    assert.equal(words(await page.getByRole('alert').first().innerText()), words(said), path)
  }
  assert.deepEqual(await violations(page), [], 'axe')
  assert.deepEqual(faults, [])
  await context.close()
})

test('an operator sees the whole estate, and no money', { skip }, async () => {
  const { context, page, faults } = await login(browser, site, 'pia')
  await settle(page)
  assert.ok((await figures(page)).length > 5)
  for (const path of plain.filter((p) => p.startsWith('/costs'))) {
    await page.goto(site.origin + path)
    await settle(page)
    assert.deepEqual(await figures(page), [], path)
    assert.match(await page.getByRole('alert').first().innerText(), /You may not see this\.[^]* role admin, finance/, path)
  }
  assert.deepEqual(await violations(page), [], 'axe')
  assert.deepEqual(faults, [])
  await context.close()
})

test('somebody without any right sees nothing', { skip }, async () => {
  const { context, page, faults, heard } = await login(browser, site, 'max')
  for (const path of ['/fleet', '/costs', '/what-if', '/alerts']) {
    await page.goto(site.origin + path)
    await settle(page)
    assert.deepEqual(await figures(page), [], path)
    assert.equal(await page.locator('h1').count(), 1)
    if (path !== '/what-if') assert.match(await page.getByRole('alert').first().innerText(), /You may not see this\./, path)
  }
  assert.deepEqual(await violations(page), [], 'axe')
  assert.deepEqual(heard.filter((h) => h.startsWith('200') && /gen-|vc-/.test(h)), [])
  assert.deepEqual(faults, [])
  await context.close()
})

test('a session that is ended in the middle of an edit loses nothing that was typed', { skip }, async () => {
  const { context, page, faults } = await login(browser, site, 'bob', '/alerts?show=proposals')
  await settle(page)
  await page.getByRole('button', { name: 'Propose what you wrote …' }).click()
  const drawer = page.getByRole('dialog')
  await drawer.getByRole('button', { name: 'Make a key in this browser' }).click()
  const text = drawer.getByLabel('proposal.yaml')
  await text.fill('summary: half a sentence')
  await drawer.getByLabel('Workspace').fill('assistant')
  await site.command('access', 'end-sessions', 'user:corp/bob')
  const show = drawer.getByRole('button', { name: 'Show what this does' })
  const ended = drawer.getByText('Your session has ended.')
  for (const end = Date.now() + 180_000; Date.now() < end && !(await ended.isVisible()); await page.waitForTimeout(300)) await show.click()
  await ended.waitFor()
  assert.deepEqual(await violations(page), [], 'axe')
  assert.equal(await text.inputValue(), 'summary: half a sentence')
  const [beside] = await Promise.all([context.waitForEvent('page'), drawer.getByRole('link', { name: 'Log in with corp' }).click()])
  await beside.locator('input[name=username]').fill('bob')
  await beside.locator('input[name=password]').fill('verysecure')
  await beside.locator('[type=submit]').click()
  await beside.getByRole('heading', { level: 1, name: 'Alerts' }).waitFor()
  await beside.close()
  await drawer.getByRole('button', { name: 'I am logged in again' }).click()
  await ended.waitFor({ state: 'detached' })
  assert.equal(await text.inputValue(), 'summary: half a sentence')
  assert.deepEqual(faults, [])
  await context.close()
})
