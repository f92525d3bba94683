// What a page transfers, as the DevTools protocol counts it: with headers, compressed.
import type { Browser } from 'playwright-core'
import { settle, visit, type Site } from './site.ts'

export interface Weight {
  code: number // bytes of the document, scripts and styles
  answers: number // bytes of answers of the API
  assets: Map<string, number> // bytes of each script and style
}

// scales weigh pages, each as if it were loaded for the first time: nothing is cached.
export async function scales(browser: Browser, site: Site): Promise<(path: string) => Promise<Weight>> {
  const { context, page } = await visit(browser, site)
  await settle(page)
  const devtools = await context.newCDPSession(page)
  await devtools.send('Network.enable')
  await devtools.send('Network.setCacheDisabled', { cacheDisabled: true })
  const names = new Map<string, string>()
  let weight: Weight
  devtools.on('Network.responseReceived', (e) => names.set(e.requestId, new URL(e.response.url).pathname))
  devtools.on('Network.loadingFinished', (e) => {
    const name = names.get(e.requestId) ?? ''
    if (name.startsWith('/api/')) weight.answers += e.encodedDataLength
    else weight.code += e.encodedDataLength
    if (name.startsWith('/assets/')) weight.assets.set(name, e.encodedDataLength)
  })
  return async (path) => {
    await page.goto('about:blank') // what the page before asked has ended
    names.clear()
    weight = { code: 0, answers: 0, assets: new Map() }
    await page.goto(site.origin + path)
    await settle(page)
    return weight
  }
}
