// What holds on every page: it is accessible, breaks no policy, and each figure on it is what the command answers.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Browser, Page } from 'playwright-core'
import { violations } from './axe.ts'
import { answered, figures, found, misread, unknown } from './figures.ts'
import { faulty, pages } from './pages.ts'
import { browse, serve, settle, visit, type Site } from './site.ts'

const long = process.env['CI_LONG'] === '1'

let site: Site
let browser: Browser
before(async () => {
  site = await serve()
  browser = await browse()
})
after(async () => {
  await browser?.close()
  await site?.close()
})

const looks: { name: string; options: Parameters<Browser['newContext']>[0] }[] = [
  { name: 'light', options: { colorScheme: 'light' } },
  ...(long
    ? [
        { name: 'dark', options: { colorScheme: 'dark' as const } },
        { name: 'forced colours', options: { forcedColors: 'active' as const } },
        { name: 'a phone', options: { viewport: { width: 320, height: 640 } } },
      ]
    : []),
]

let compared = 0

// compare holds that every figure on a page is in the answer of the command that the page names, and is written as it is.
async function compare(page: Page): Promise<void> {
  for (const seen of await figures(page)) {
    assert.deepEqual(unknown(seen.path, [seen.at]), [])
    const want = found(await answered(site, seen.path, seen.query), seen.at)
    assert.equal(seen.value, want, `${seen.path}?${seen.query} at ${seen.at}`)
    assert.equal(misread(seen), '', `${seen.path} at ${seen.at}`)
    compared++
  }
}

for (const look of looks) {
  test(`pages in ${look.name}`, async (t) => {
    const { context, page, faults } = await visit(browser, site, look.options)
    for (const path of [...pages, ...faulty]) {
      await t.test(path, async () => {
        faults.length = 0
        await page.goto(site.origin + path)
        await settle(page)
        assert.deepEqual(await violations(page), [], 'axe')
        assert.deepEqual(faults, [], 'faults')
        assert.equal(await page.locator('h1').count(), 1)
        const tables = await page.$$eval('table[data-list]', (all) => all.map((t) => [t.getAttribute('data-path') ?? '', t.getAttribute('data-list') ?? '', t.getAttribute('data-columns') ?? '']))
        for (const [of = '', list = '', columns = ''] of tables) assert.deepEqual(unknown(of, columns.split(' ').map((c) => `${list}/0${c}`)), [], `columns of ${of}`)
        assert.ok(!faulty.includes(path) || path === '/nowhere' || (await page.locator('[role=alert], table').count()) > 0, 'the page says what is wrong')
        if (look === looks[0] && !faulty.includes(path)) await compare(page)
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth)
        assert.ok(wide <= 0, `the page is ${wide} px wider than the window`)
      })
    }
    await context.close()
    if (look !== looks[0]) return
    t.diagnostic(`${compared} figures compared`)
    assert.ok(compared >= 500, `${compared} figures compared: want 500`)
  })
}

// axe and the watch for faults find what is there to find.
test('negative controls', async () => {
  const { context, page, faults } = await visit(browser, site)
  await settle(page)
  await page.evaluate(() => {
    document.querySelector('main')?.append(Object.assign(document.createElement('img'), { src: '/src/none.png' }))
    document.querySelector('main')?.setAttribute('style', 'color: #ddd')
    document.querySelector('h1')?.remove()
  })
  const found = (await violations(page)).join('\n')
  assert.match(found, /image-alt/)
  assert.match(found, /page-has-heading-one/)
  await page.evaluate(() => {
    const script = document.createElement('script')
    try {
      script.textContent = 'window.stolen = true'
      document.head.append(script)
    } catch {
      // trusted types refuse it before the policy does
    }
  })
  while (faults.length === 0) await page.waitForTimeout(10)
  assert.equal(await page.evaluate(() => 'stolen' in window), false)
  await context.close()
})
