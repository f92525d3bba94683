// What goes wrong: logs with nothing or with names that attack, servers and sessions that end, slow lines, wrong clocks.
import assert from 'node:assert/strict'
import { rm } from 'node:fs/promises'
import { after, before, test, type TestContext } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import { empty, hostile, hostileLog, manyWorkspaces, markup, oneCluster } from './logs.ts'
import { pages } from './pages.ts'
import { browse, copied, opened, serve, settle, visit, type Site } from './site.ts'

const long = process.env['CI_LONG'] === '1'
const phone = { viewport: { width: 320, height: 640 } }

let dir: string // a copy of the demo's log, for servers that end
let browser: Browser
before(async () => {
  dir = await copied()
  browser = await browse()
})
after(async () => {
  await browser?.close()
  await rm(dir, { recursive: true, force: true })
})

// served serves a log while a test runs.
async function served(t: TestContext, data: string): Promise<Site> {
  const site = await serve(data)
  t.after(async () => {
    await site.close()
    if (data !== dir) await rm(data, { recursive: true, force: true })
  })
  return site
}

// wide is by how much the page is wider than its window.
const wide = (page: Page) => page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)

test('names that attack are text on every page, and break no layout', async (t) => {
  const site = await served(t, await hostileLog())
  const { context, page, faults } = await visit(browser, site, phone)
  const seen = new Set<string>()
  for (const path of [...pages, '/costs?period=2026-05&by=workspace', `/fleet?by=workspace&workspace=${encodeURIComponent(markup)}`, `/models?search=${encodeURIComponent(markup)}`, `/alerts?show=proposals&proposal=${encodeURIComponent(markup)}`]) {
    await t.test(path, async () => {
      await page.goto(site.origin + path)
      await settle(page)
      const text = await page.evaluate(() => document.body.textContent ?? '')
      for (const name of hostile) if (text.includes(name)) seen.add(name)
      assert.deepEqual(faults.splice(0), [], 'faults')
      assert.equal(await page.evaluate(() => 'stolen' in window), false)
      assert.equal(await page.locator('img, a[href^="javascript:"]').count(), 0)
      assert.ok((await wide(page)) <= 0, `the page is ${await wide(page)} px wider than the window`)
    })
  }
  assert.deepEqual(hostile.filter((n) => !seen.has(n)), [], 'names that no page shows')
  await context.close()
})

for (const [name, log] of [['an empty log', empty], ['one cluster without machines', oneCluster]] as const) {
  test(name, async (t) => {
    const site = await served(t, await log())
    const { context, page, faults } = await visit(browser, site, phone)
    for (const path of long ? pages : pages.filter((_, n) => n % 3 === 0)) {
      await t.test(path, async () => {
        await page.goto(site.origin + path)
        await settle(page)
        assert.deepEqual(faults.splice(0), [], 'faults')
        assert.ok(((await page.locator('main').innerText()).length ?? 0) > 40, 'the page says something')
        assert.doesNotMatch(await page.locator('main').innerText(), /NaN|undefined|\[object|Infinity/)
        assert.ok((await wide(page)) <= 0)
      })
    }
    await context.close()
  })
}

test('10,000 workspaces', async (t) => {
  const site = await served(t, await manyWorkspaces())
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/costs?period=2026-05`)
  await settle(page)
  assert.ok((await page.locator('option').count()) < 200, 'the page lists every workspace')
  await page.getByRole('combobox', { name: 'Workspace' }).pressSequentially('TEAM-0998')
  assert.equal(await page.locator('datalist option').count(), 10)
  await page.getByRole('combobox', { name: 'Workspace' }).fill('team-09987')
  await page.keyboard.press('Tab')
  await page.waitForURL(/workspace=team-09987/)
  await page.goto(`${site.origin}/admin?show=declared&kind=workspaces`)
  await settle(page)
  assert.ok((await page.locator('tbody tr').count()) <= 100)
  // An order is that of all rows, also when other rows were shown meanwhile.
  const last = page.locator('table[data-list] tbody tr').first().filter({ hasText: 'team-09999' })
  await page.locator('table[data-list] thead button').filter({ hasText: 'name' }).click()
  await last.waitFor()
  for (const kind of ['clusters', 'workspaces']) {
    await page.getByRole('combobox', { name: 'Kind' }).selectOption(kind)
    await settle(page)
  }
  await last.waitFor()
  assert.deepEqual(faults, [])
  await context.close()
})

test('positions', async (t) => {
  const site = await served(t, dir)
  const { context, page, faults } = await visit(browser, site)
  await settle(page)
  const position = JSON.parse(await site.answer(['overview', '-o', 'json'])) as { position: string }

  await t.test('of another log is refused, and one can go back', async () => {
    const other = position.position.replaceAll(/=\d+/g, '=999999999')
    await page.goto(`${site.origin}/fleet?as_of=${encodeURIComponent(other)}`)
    await settle(page)
    await page.getByRole('alert').first().waitFor()
    await page.getByRole('link', { name: 'Back to now' }).click()
    await settle(page)
    assert.equal(await page.getByRole('alert').count(), 0)
    assert.ok((await page.locator('data[data-figure]').count()) > 5)
  })
  await t.test('of the past is said, and kept from page to page', async () => {
    await page.goto(`${site.origin}/fleet?as_of=${encodeURIComponent(position.position)}`)
    await settle(page)
    await page.getByText('as of the past').waitFor()
    await page.getByRole('link', { name: 'Models', exact: true }).click()
    await settle(page)
    assert.equal(new URL(page.url()).searchParams.get('as_of'), position.position)
  })
  await t.test('a workspace that is not there, and a page that is not there', async () => {
    await page.goto(`${site.origin}/fleet?workspace=nobody`)
    await settle(page)
    assert.match(await page.locator('main').innerText(), /nobody|There are none|no workspace/)
    await page.goto(`${site.origin}/fleet/nowhere`)
    await page.getByRole('heading', { name: 'No such page' }).waitFor()
  })
  assert.deepEqual(faults, [])
  await context.close()
})

// The link of the owner's browser ends with the process, so this is also a session that ends in the middle of an edit.
test('a server that goes and comes back loses nothing that was typed', async () => {
  let site = await serve(dir)
  const { context, page, faults } = await visit(browser, site)
  try {
    await page.goto(`${site.origin}/alerts?show=proposals`)
    await settle(page)
    await page.getByRole('button', { name: 'Propose what you wrote …' }).click()
    const text = page.getByRole('dialog').getByLabel('proposal.yaml')
    await text.fill('kind: purchase\nsummary: half a sentence')
    await page.getByRole('dialog').getByRole('button', { name: 'Make a key in this browser' }).click()
    await page.getByRole('dialog').getByLabel('Workspace').fill('research')
    const show = page.getByRole('dialog').getByRole('button', { name: 'Show what this does' })

    const port = new URL(site.origin).port
    await site.close()
    await show.click()
    await page.getByRole('dialog').getByText('The server cannot be reached.').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('link', { name: 'Findings' }).click()
    await page.getByRole('alert').getByText('The server cannot be reached.').first().waitFor()
    await page.goBack()

    site = await serve(dir, port)
    await page.getByRole('button', { name: 'Ask again' }).first().click()
    await page.getByText('Your session has ended.').waitFor()
    await page.getByRole('button', { name: 'Propose what you wrote …' }).waitFor() // the page is still there

    const beside = await context.newPage()
    await beside.goto(await site.link())
    await settle(beside)
    await beside.close()
    await page.bringToFront()
    await page.getByRole('button', { name: 'I am logged in again' }).click()
    await page.getByText('Your session has ended.').waitFor({ state: 'detached' })
    await settle(page)
    await page.getByRole('table', { name: 'Proposed recommendations' }).waitFor() // asked again by itself
  } finally {
    await site.close()
  }
  assert.deepEqual(faults.filter((f) => !f.includes('ERR_CONNECTION_REFUSED')), [])
  await context.close()
})

test('a session that ends in the middle of an edit', async (t) => {
  const site = await served(t, dir)
  const { context, page } = await visit(browser, site)
  await page.goto(`${site.origin}/alerts?show=proposals`)
  await settle(page)
  await page.getByRole('button', { name: 'Propose what you wrote …' }).click()
  const drawer = page.getByRole('dialog')
  await drawer.getByRole('button', { name: 'Make a key in this browser' }).click()
  await drawer.getByLabel('proposal.yaml').fill('summary: half a sentence')
  await drawer.getByLabel('Workspace').fill('research')
  await context.clearCookies()
  await drawer.getByRole('button', { name: 'Show what this does' }).click()
  await drawer.getByText('Your session has ended.').waitFor()
  assert.equal(await drawer.getByLabel('proposal.yaml').inputValue(), 'summary: half a sentence')

  const beside = await context.newPage()
  await beside.goto(await site.link())
  await settle(beside)
  await beside.close()
  await drawer.getByRole('button', { name: 'I am logged in again' }).click()
  await drawer.getByText('Your session has ended.').waitFor({ state: 'detached' })
  assert.equal(await drawer.getByLabel('proposal.yaml').inputValue(), 'summary: half a sentence')
  await drawer.getByRole('button', { name: 'Show what this does' }).click()
  await drawer.getByText('proposal.yaml:').or(drawer.getByText('It would take no effect')).first().waitFor() // an answer, not a refusal
  await context.close()
})

test('a part of a page whose code is not there any more says so', async (t) => {
  const site = await served(t, dir)
  const { context, page } = await visit(browser, site)
  await page.goto(`${site.origin}/costs?period=2026-05`)
  await settle(page)
  await page.route('**/assets/*', (route) => route.fulfill({ status: 404, body: 'another program has other files' }))
  await page.getByRole('link', { name: 'Statements' }).click()
  await page.getByRole('alert').getByText('A part of this page could not be loaded').waitFor()
  await page.unroute('**/assets/*')
  await page.getByRole('link', { name: 'Load the page again' }).click()
  await page.getByRole('heading', { name: 'As documents' }).waitFor()
  assert.equal(await page.getByRole('alert').count(), 0)
  await context.close()
})

test('who is not logged in sees nothing, and gets the page after', async (t) => {
  const site = await served(t, dir)
  const context = await opened(browser)
  const page = await context.newPage()
  await page.goto(`${site.origin}/models`)
  await page.getByRole('heading', { name: 'Log in' }).waitFor()
  assert.equal(await page.locator('data, table').count(), 0)
  const beside = await context.newPage()
  await beside.goto(await site.link())
  await settle(beside)
  await beside.close()
  await page.evaluate(() => dispatchEvent(new Event('focus')))
  await page.getByRole('table', { name: 'Models, everywhere' }).waitFor()
  await page.getByRole('button', { name: 'Log out' }).click()
  await page.getByRole('heading', { name: 'Log in' }).waitFor()
  assert.equal(await page.locator('data, table').count(), 0)
  await context.close()
})

test('browsers', async (t) => {
  const site = await served(t, dir)

  await t.test('without JavaScript the page says so', async () => {
    const context = await opened(browser, { javaScriptEnabled: false })
    const page = await context.newPage()
    await page.goto(`${site.origin}/fleet`)
    assert.match(await page.locator('body').innerText(), /The pages need JavaScript/)
    await context.close()
  })

  const { context, page, faults } = await visit(browser, site)
  const cluster = page.getByRole('form', { name: 'Filters' }).getByLabel('Cluster')
  await t.test('back, forward, reload and a second tab show the same', async () => {
    await page.goto(`${site.origin}/fleet`)
    await settle(page)
    await cluster.selectOption('gen-rented')
    await settle(page)
    const figures = () => page.locator('data[data-figure]').evaluateAll((all) => all.map((d) => d.getAttribute('value')))
    const narrow = await figures()
    await page.goBack()
    await settle(page)
    assert.equal(await cluster.inputValue(), '')
    assert.notDeepEqual(await figures(), narrow)
    await page.goForward()
    await settle(page)
    assert.equal(await cluster.inputValue(), 'gen-rented')
    assert.deepEqual(await figures(), narrow)
    await page.reload()
    await settle(page)
    assert.deepEqual(await figures(), narrow)
    const second = await context.newPage()
    await second.goto(page.url())
    await settle(second)
    assert.deepEqual(await second.locator('data[data-figure]').evaluateAll((all) => all.map((d) => d.getAttribute('value'))), narrow)
    await second.close()
  })

  await t.test('on paper there are figures, and no menus', async () => {
    await page.emulateMedia({ media: 'print' })
    assert.equal(await page.locator('header').isVisible(), false)
    assert.equal(await page.getByRole('form', { name: 'Filters' }).isVisible(), false)
    assert.equal(await page.locator('main').isVisible(), true)
    assert.equal(await page.locator('footer').isVisible(), true)
    await page.emulateMedia({ media: 'screen' })
  })

  await t.test('less motion is none', async () => {
    await page.emulateMedia({ reducedMotion: 'reduce' })
    const moving = await page.evaluate(() => [...document.querySelectorAll('*')].filter((e) => parseFloat(getComputedStyle(e).transitionDuration) > 0 || getComputedStyle(e).animationName !== 'none').length)
    assert.equal(moving, 0)
  })
  assert.deepEqual(faults, [])
  await context.close()

  await t.test('a clock that is years wrong changes nothing', async () => {
    const { context, page, faults } = await visit(browser, site)
    await page.goto(`${site.origin}/fleet`)
    await settle(page)
    const right = await page.locator('data[data-figure]').evaluateAll((all) => all.map((d) => d.getAttribute('value')))
    for (const year of ['1970-01-02', '2099-12-31']) {
      await page.clock.setFixedTime(new Date(`${year}T00:00:00Z`))
      await page.reload()
      await settle(page)
      assert.deepEqual(await page.locator('data[data-figure]').evaluateAll((all) => all.map((d) => d.getAttribute('value'))), right, year)
    }
    assert.deepEqual(faults, [])
    await context.close()
  })

  await t.test('on a slow line the page says that it asks, and answers', async () => {
    const { context, page, faults } = await visit(browser, site)
    const line = await context.newCDPSession(page)
    await line.send('Network.enable')
    await line.send('Network.emulateNetworkConditions', { offline: false, latency: 400, downloadThroughput: 50_000, uploadThroughput: 50_000 }) // 400 kbit/s
    await page.goto(`${site.origin}/models`, { waitUntil: 'commit' })
    await page.getByText(/Loading …|asking …/).first().waitFor()
    await page.getByRole('table', { name: 'Models, everywhere' }).waitFor()
    await settle(page)
    assert.deepEqual(faults, [])
    await context.close()
  })
})

test('by keyboard alone', async (t) => {
  const site = await served(t, dir)
  const { context, page, faults } = await visit(browser, site, { viewport: { width: 1280, height: 720 } })
  await page.goto(`${site.origin}/fleet`)
  await settle(page)
  const focused = () => page.evaluate(() => (document.activeElement as HTMLElement | null)?.innerText || document.activeElement?.getAttribute('aria-label') || document.activeElement?.id || '')

  await t.test('the skip link comes first, is seen, and leads past the menu', async () => {
    await page.keyboard.press('Tab')
    assert.equal(await focused(), 'Skip to the content')
    const box = await page.getByRole('link', { name: 'Skip to the content' }).boundingBox()
    assert.ok(box && box.width > 50 && box.y >= 0)
    await page.keyboard.press('Enter')
    await page.keyboard.press('Tab')
    assert.equal(await page.evaluate(() => document.activeElement?.closest('main') !== null), true)
  })

  await t.test('keys go to pages, search, and list themselves', async () => {
    await page.keyboard.press('g')
    await page.keyboard.press('m')
    await page.waitForURL(/\/models/)
    await page.waitForFunction(() => document.activeElement?.tagName === 'H1')
    assert.equal(await focused(), 'Models')
    await settle(page)
    await page.keyboard.press('/')
    await page.keyboard.type('chat')
    await page.keyboard.press('Enter')
    await page.waitForURL(/search=chat/)
    await page.getByRole('heading', { level: 1 }).focus()
    await page.keyboard.press('?')
    await page.getByRole('dialog').getByText('these keys').waitFor()
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    await page.keyboard.press('/')
    await page.keyboard.type('g f ?') // a key that is typed into a field is text
    assert.equal(await page.getByRole('searchbox').inputValue(), 'g f ?')
    assert.equal(await page.getByRole('dialog').count(), 0)
  })

  await t.test('a derivation holds the focus, and gives it back', async () => {
    await page.goto(`${site.origin}/fleet`)
    await settle(page)
    const figure = page.getByRole('button', { name: 'Held by workloads: how it is computed' })
    await figure.focus()
    await page.keyboard.press('Enter')
    await page.getByRole('dialog').getByRole('heading', { name: 'The command' }).waitFor()
    for (let n = 0; n < 8; n++) {
      await page.keyboard.press('Tab')
      // Beyond the last control is the browser's own window, whose document element is the body.
      assert.equal(await page.evaluate(() => document.activeElement === document.body || document.activeElement?.closest('dialog') !== null), true)
    }
    await page.keyboard.press('Escape')
    await page.getByRole('dialog').waitFor({ state: 'detached' })
    assert.equal(await figure.evaluate((f) => document.activeElement === f), true)
  })

  await t.test('all that has the focus shows it, and nothing covers it', async () => {
    for (const path of ['/fleet', '/models', '/costs', '/alerts']) {
      await page.goto(site.origin + path)
      await settle(page)
      const seen = new Set<string>()
      for (let n = 0; n < 60; n++) {
        await page.keyboard.press('Tab')
        const at = await page.evaluate(() => {
          const e = document.activeElement as HTMLElement
          if (e === document.body) return null
          const { outlineStyle, outlineWidth } = getComputedStyle(e)
          const box = e.getBoundingClientRect()
          const top = document.elementFromPoint(box.x + Math.min(box.width / 2, 20), box.y + Math.min(box.height / 2, 10))
          return { what: e.outerHTML.slice(0, 160), shown: outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2, covered: !(top !== null && (e.contains(top) || top.contains(e))) }
        })
        if (!at) break
        if (at.what.includes('tabindex="-1"')) continue
        assert.ok(at.shown, `${path}: no outline: ${at.what}`)
        assert.ok(!at.covered, `${path}: covered: ${at.what}`)
        seen.add(at.what)
      }
      assert.ok(seen.size > 10, `${path}: ${seen.size} stops`)
    }
  })
  assert.deepEqual(faults, [])
  await context.close()
})
