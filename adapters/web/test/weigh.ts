// What a page transfers, as the DevTools protocol counts it: with headers, compressed.
import type { Browser } from 'playwright-core'
import { settle, visit, type Site } from './site.ts'

export interface Weight {
  code: number // bytes of the document, scripts and styles
  answers: number // bytes of answers of the API
  assets: Map<string, number> // bytes of each script and style
}

// weigh loads a page for the first time: nothing is cached.
export async function weigh(browser: Browser, site: Site, path: string): Promise<Weight> {
  const { context, page } = await visit(browser, site)
  await settle(page)
  const devtools = await context.newCDPSession(page)
  await devtools.send('Network.enable')
  await devtools.send('Network.clearBrowserCache')
  const names = new Map<string, string>()
  const weight: Weight = { code: 0, answers: 0, assets: new Map() }
  devtools.on('Network.responseReceived', (e) => names.set(e.requestId, new URL(e.response.url).pathname))
  devtools.on('Network.loadingFinished', (e) => {
    const name = names.get(e.requestId) ?? ''
    if (name.startsWith('/api/')) weight.answers += e.encodedDataLength
    else weight.code += e.encodedDataLength
    if (name.startsWith('/assets/')) weight.assets.set(name, e.encodedDataLength)
  })
  await page.goto(site.origin + path)
  await settle(page)
  await context.close()
  return weight
}
