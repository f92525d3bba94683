// Measures pages over the DevTools protocol, medians of 20, and writes a table for docs/evidence/benchmarks.md. Not a test: times
// depend on the machine. "make bench-web" runs it; QM_RUNS and QM_UPDATES are how often.
import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { cpus, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { CDPSession, Page } from 'playwright-core'
import { browse, program, serve, settle, visit, type Site } from './site.ts'
import { scales } from './weigh.ts'

const run = promisify(execFile)
const runs = Number(process.env['QM_RUNS'] ?? 20)
const updates = Number(process.env['QM_UPDATES'] ?? 8640) // 24 hours of one each 10 s
const paths = ['/fleet', '/models', '/costs', '/plan', '/what-if', '/audit', '/alerts', '/admin']

const median = (all: number[]) => [...all].sort((a, b) => a - b)[Math.floor(all.length / 2)] ?? NaN
const ms = (n: number) => `${Math.round(n)} ms`
const MB = (n: number) => `${(n / 1e6).toFixed(1)} MB`
const row = (...cells: string[]) => console.log(`| ${cells.join(' | ')} |`)

// A page notes when its first answer is painted: a figure, a table or words; or the field of a scenario.
const watch = `(() => {
  window.watch = () => { window.painted = undefined; requestAnimationFrame(look) }
  const look = () => document.querySelector('main .asked[aria-busy=false] :is(data, table, p), main textarea') ? requestAnimationFrame(() => { window.painted = performance.now() }) : requestAnimationFrame(look)
  window.watch()
})()`

async function painted(page: Page): Promise<number> {
  await page.waitForFunction(() => (window as { painted?: number }).painted !== undefined)
  return page.evaluate('window.painted') as Promise<number>
}

async function heap(devtools: CDPSession): Promise<number> {
  await devtools.send('HeapProfiler.collectGarbage')
  await devtools.send('HeapProfiler.collectGarbage')
  return (await devtools.send('Runtime.getHeapUsage')).usedSize
}

const browser = await browse()

async function pages(site: Site): Promise<void> {
  const { context, page } = await visit(browser, site, { viewport: { width: 1400, height: 900 } })
  await context.addInitScript(watch)
  const devtools = await context.newCDPSession(page)
  await devtools.send('Performance.enable')
  const task = async () => (await devtools.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration')?.value ?? 0
  const bare: number[] = []
  for (let n = 0; n < runs; n++) {
    await page.goto(`${site.origin}/api/v1/login`) // a small answer of the same server
    bare.push((await page.evaluate('performance.getEntriesByType("navigation")[0].loadEventEnd')) as number)
  }
  const weigh = await scales(browser, site)
  const fleet = await weigh('/fleet')
  console.log(`${cpus().length} cores, load ${loadavg()[0]?.toFixed(1)}; a bare page of the same server is there after ${ms(median(bare))}\n`)
  row('Page', 'code, first load', 'after the fleet', 'answers', 'ready', 'answered', 'main thread')
  row('---', '---', '---', '---', '---', '---', '---')
  for (const path of paths) {
    const { code, answers, assets } = await weigh(path)
    const further = [...assets].filter(([name]) => !fleet.assets.has(name)).reduce((sum, [, bytes]) => sum + bytes, 0)
    const ready: number[] = []
    const answered: number[] = []
    const busy: number[] = []
    for (let n = 0; n < runs + 1; n++) {
      await page.goto('about:blank')
      const before = await task()
      await page.goto(site.origin + path)
      const at = await painted(page)
      const last = (await page.evaluate('Math.max(...performance.getEntriesByType("resource").filter((r) => r.name.includes("/api/") && r.responseEnd <= window.painted).map((r) => r.responseEnd))')) as number
      await settle(page)
      if (n === 0) continue // warms the server
      ready.push(at)
      answered.push(last)
      busy.push(1000 * ((await task()) - before))
    }
    row(path, `${(code / 1000).toFixed(1)} kB`, `${(further / 1000).toFixed(1)} kB`, `${(answers / 1000).toFixed(1)} kB`, ms(median(ready)), ms(median(answered)), ms(median(busy)))
  }
  console.log('\nNavigation by link, with the code at hand:')
  row('To', 'painted after the click', 'of which after the last answer')
  row('---', '---', '---')
  for (const [name, path] of [['Models', '/models'], ['Costs', '/costs'], ['Alerts', '/alerts']] as const) {
    const whole: number[] = []
    const after: number[] = []
    for (let n = 0; n < runs + 1; n++) {
      await page.getByRole('link', { name: 'Fleet', exact: true }).click()
      await settle(page)
      const click = (await page.evaluate(`(() => { performance.clearResourceTimings(); const t = performance.now(); document.querySelector('nav a[href^="${path}"]').click(); window.watch(); return t })()`)) as number
      const at = await painted(page)
      const last = (await page.evaluate('Math.max(0, ...performance.getEntriesByType("resource").filter((r) => r.name.includes("/api/") && r.responseEnd <= window.painted).map((r) => r.responseEnd))')) as number
      if (n === 0) continue
      whole.push(at - click)
      after.push(at - Math.max(last, click))
      await settle(page)
    }
    row(name, ms(median(whole)), ms(median(after)))
  }
  await context.close()
}

// many is a log with 10,000 deployments.
async function many(): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'quartermaster-many-'))
  const file = join(dir, 'estate.json.yaml')
  const deployments = Array.from({ length: 10_000 }, (_, n) => ({ id: `d-${String((n * 7919) % 10_000).padStart(5, '0')}`, workspace: 'platform', cluster: 'lab', class: 'serving', model: `model-${n % 50}`, replicas: 1 + (n % 9), need: { gpus: 1 } }))
  await writeFile(file, JSON.stringify({ apiVersion: 'quartermaster/v1', kind: 'Estate', workspace: 'platform', effective_from: '2026-05-01', clusters: [{ id: 'lab', provider: 'own', provider_class: 'owned', region: 'r' }], regions: [{ id: 'r', country: 'DE' }], deployments }))
  await run(program, ['apply', '-f', file, '--data-dir', dir], { maxBuffer: 1 << 26 })
  const site = await serve(dir)
  const { context, page } = await visit(browser, site, { viewport: { width: 1400, height: 900 } })
  const devtools = await context.newCDPSession(page)
  await settle(page)
  const before = await heap(devtools)
  await page.goto(`${site.origin}/models`)
  await settle(page)
  const after = await heap(devtools)
  const timed = async (act: string) => {
    const all: number[] = []
    for (let n = 0; n < runs; n++) all.push((await page.evaluate(`new Promise((done) => { const t = performance.now(); (${act})(${n}); requestAnimationFrame(() => setTimeout(() => done(performance.now() - t))) })`)) as number)
    return median(all)
  }
  const table = `[...document.querySelectorAll('table')].find((t) => t.caption.textContent.includes('Deployments'))`
  const sort = await timed(`(n) => ${table}.querySelectorAll('thead button')[n % 2].click()`)
  const filter = await timed(`(n) => { const i = document.querySelector('form[aria-label=Filters] input'); i.value = 'd-0' + (n % 10); i.dispatchEvent(new Event('change', { bubbles: true })) }`)
  console.log(`\n10,000 deployments: sorted after ${ms(sort)}, filtered after ${ms(filter)}; heap ${MB(after)}, ${MB(after - before)} more than the fleet's page before`)
  await context.close()
  await site.close()
  await rm(dir, { recursive: true, force: true })
}

// open is a page that stays open while what it shows is asked and shown again and again.
async function open(site: Site): Promise<void> {
  const { context, page } = await visit(browser, site, { viewport: { width: 1400, height: 900 } })
  const devtools = await context.newCDPSession(page)
  await page.goto(`${site.origin}/fleet`)
  await settle(page)
  const again = async (n: number) => {
    await page.evaluate(`(async () => { for (let n = 0; n < ${n}; n++) { const s = document.querySelector('section select'); s.value = ['cluster', 'provider'][n % 2]; s.dispatchEvent(new Event('change', { bubbles: true })); do { await new Promise((r) => setTimeout(r, 20)) } while (document.querySelector('[aria-busy=true]')); history.replaceState(null, '', location.href) } })()`)
    await settle(page)
  }
  await again(50)
  const before = await heap(devtools)
  const began = Date.now()
  for (let n = 0; n < updates; n += 40) await again(40)
  const after = await heap(devtools)
  console.log(`\n${updates} updates of an open page in ${Math.round((Date.now() - began) / 1000)} s: heap from ${MB(before)} to ${MB(after)}`)
  await context.close()
}

const site = await serve()
await pages(site)
await open(site)
await site.close()
await many()
await browser.close()
