// What a page transfers, as the DevTools protocol counts it: with headers, compressed.
import type { Browser } from 'playwright-core'
import { settle, visit, type Site } from './site.ts'

// watch lets a page note when its main figure is painted: the first answer, with those within it, or the field of a scenario.
export const watch = `(() => {
  window.watch = () => { window.painted = undefined; requestAnimationFrame(look) }
  const there = (of) => of && (of.matches('textarea') || (!of.matches('[aria-busy=true]') && !of.querySelector('[aria-busy=true]') && of.querySelector('data, table, p')))
  const look = () => there(document.querySelector('main :is(.asked, textarea)')) ? requestAnimationFrame(() => { window.painted = performance.now() }) : requestAnimationFrame(look)
  window.watch()
})()`

export interface Weight {
  code: number // bytes of the document, scripts and styles
  answers: number // bytes of answers of the API
  assets: Map<string, number> // bytes of each script and style
  painted: number // bytes of everything until the first answer was painted
}

// scales weigh pages, each as if it were loaded for the first time: nothing is cached.
export async function scales(browser: Browser, site: Site): Promise<(path: string) => Promise<Weight>> {
  const { context, page } = await visit(browser, site)
  await settle(page)
  await page.addInitScript(watch)
  const devtools = await context.newCDPSession(page)
  await devtools.send('Network.enable')
  const names = new Map<string, string>()
  const ends: { at: number; bytes: number }[] = [] // by the clock of the browser, in s
  let began = Infinity
  let weight: Weight
  devtools.on('Network.requestWillBeSent', (e) => (began = Math.min(began, e.timestamp)))
  devtools.on('Network.responseReceived', (e) => names.set(e.requestId, new URL(e.response.url).pathname))
  devtools.on('Network.loadingFinished', (e) => {
    const name = names.get(e.requestId) ?? ''
    ends.push({ at: e.timestamp, bytes: e.encodedDataLength })
    if (name.startsWith('/api/')) weight.answers += e.encodedDataLength
    else weight.code += e.encodedDataLength
    if (name.startsWith('/assets/')) weight.assets.set(name, e.encodedDataLength)
  })
  return async (path) => {
    await page.goto('about:blank') // what the page before asked has ended
    await devtools.send('Network.clearBrowserCache') // without a cache, what a document names beforehand would be loaded twice
    names.clear()
    ends.length = 0
    began = Infinity
    weight = { code: 0, answers: 0, assets: new Map(), painted: 0 }
    await page.goto(site.origin + path)
    await settle(page)
    const painted = (await page.evaluate('window.painted')) as number
    weight.painted = ends.filter((e) => 1000 * (e.at - began) <= painted).reduce((sum, e) => sum + e.bytes, 0)
    return weight
  }
}
