// Pages are small: who opens one for the first time waits for what this weighs.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Browser } from 'playwright-core'
import { pages } from './pages.ts'
import { browse, serve, type Site } from './site.ts'
import { scales } from './weigh.ts'

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

const kB = (bytes: number) => `${(bytes / 1000).toFixed(1)} kB`

test('a first load is 60 kB of code at most, and each further page 35 kB', async (t) => {
  const weigh = await scales(browser, site)
  const fleet = await weigh('/fleet')
  const seen = new Set<string>()
  for (const path of pages.filter((p) => p.length < 60)) {
    await t.test(path, async (t) => {
      const { code, answers, assets } = await weigh(path)
      const further = [...assets].filter(([name]) => !fleet.assets.has(name)).reduce((n, [, bytes]) => n + bytes, 0)
      t.diagnostic(`${kB(code)} of code, ${kB(further)} after the fleet, ${kB(answers)} of answers`)
      assert.ok(code <= 60_000, `${path}: ${kB(code)} of code and document at first`)
      assert.ok(further <= 35_000, `${path}: ${kB(further)} of code after the fleet`)
      for (const name of assets.keys()) seen.add(name)
    })
  }
  assert.equal([...seen].filter((name) => !/\.(js|css|svg)$/.test(name)).length, 0, 'no fonts, no images')
})
