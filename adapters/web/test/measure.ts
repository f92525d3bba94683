// Measures pages over the DevTools protocol, medians of 20, and writes tables for docs/evidence/benchmarks.md. Not a test: times
// depend on the machine, so that a bare page of the same server is opened between the others, and the best beside the median says
// how quiet the machine was. "make bench-web" runs it; QM_RUNS and QM_UPDATES are how often.
import { execFile } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { cpus, loadavg, tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { CDPSession, Page } from 'playwright-core'
import { manyGPUs, manyUntil } from './logs.ts'
import { browse, program, serve, settle, visit, type Site } from './site.ts'
import { scales, watch } from './weigh.ts'

const run = promisify(execFile)
const runs = Number(process.env['QM_RUNS'] ?? 20)
const updates = Number(process.env['QM_UPDATES'] ?? 8640) // 24 hours of one each 10 s
const paths = ['/fleet', '/fleet?show=map', '/models', '/costs', '/plan', '/what-if', '/audit', '/alerts', '/admin']

type Five = [number[], number[], number[], number[], number[]]
const sorted = (all: number[]) => [...all].sort((a, b) => a - b)
const median = (all: number[]) => sorted(all)[Math.floor(all.length / 2)] ?? NaN
const ms = (all: number[]) => `${Math.round(median(all))} ms (${Math.round(sorted(all)[0] ?? NaN)})`
const kB = (n: number) => `${(n / 1000).toFixed(1)} kB`
const MB = (n: number) => `${(n / 1e6).toFixed(1)} MB`
const row = (...cells: string[]) => console.log(`| ${cells.join(' | ')} |`)
function table(...head: string[]): void {
  row(...head)
  row(...head.map(() => '---'))
}

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

// bare opens a small answer of the same server as a page.
async function bare(page: Page, site: Site): Promise<number> {
  await page.goto(`${site.origin}/api/v1/login`)
  return (await page.evaluate('performance.getEntriesByType("navigation")[0].loadEventEnd')) as number
}

async function pages(site: Site): Promise<void> {
  console.log(`${cpus().length} cores, load ${loadavg()[0]?.toFixed(1)}. Times are medians of ${runs}, with the best.\n`)
  const weigh = await scales(browser, site)
  const fleet = await weigh('/fleet')
  table('First load of', 'code', 'of it not in the fleet', 'answers', 'all until painted', 'all')
  for (const path of paths) {
    const { code, answers, assets, painted } = await weigh(path)
    const further = [...assets].filter(([name]) => !fleet.assets.has(name)).reduce((sum, [, bytes]) => sum + bytes, 0)
    row(path, kB(code), kB(further), kB(answers), kB(painted), kB(code + answers))
  }
  const { context, page } = await visit(browser, site, { viewport: { width: 1400, height: 900 } })
  await context.addInitScript(watch)
  const devtools = await context.newCDPSession(page)
  await devtools.send('Performance.enable')
  await devtools.send('Network.enable')
  const task = async () => (await devtools.send('Performance.getMetrics')).metrics.find((m) => m.name === 'TaskDuration')?.value ?? 0
  console.log()
  table('Ready', 'first visit', 'with the code at hand', 'of which until answered', 'main thread', 'bare page')
  for (const path of paths) {
    const [first, ready, answered, busy, none] = Array.from({ length: 5 }, (): number[] => []) as Five
    for (let n = 0; n < runs + 1; n++) {
      await page.goto('about:blank') // what is opened next is in a new process
      const small = await bare(page, site)
      await page.goto('about:blank')
      await devtools.send('Network.clearBrowserCache')
      await page.goto(site.origin + path)
      const cold = await painted(page)
      await settle(page)
      await bare(page, site)
      const before = await task()
      await page.goto(site.origin + path)
      const at = await painted(page)
      const last = (await page.evaluate('Math.max(0, ...performance.getEntriesByType("resource").filter((r) => r.name.includes("/api/") && r.responseEnd <= window.painted).map((r) => r.responseEnd))')) as number
      await settle(page)
      if (n === 0) continue // warms the server
      none.push(small)
      first.push(cold)
      ready.push(at)
      answered.push(last)
      busy.push(1000 * ((await task()) - before))
    }
    row(path, ms(first), ms(ready), ms(answered), ms(busy), ms(none))
  }
  console.log('\nNavigation by link, with the code at hand:')
  table('To', 'painted after the click', 'of which after the last answer')
  for (const [name, path] of [['Models', '/models'], ['Costs', '/costs'], ['Plan', '/plan'], ['Audit', '/audit'], ['Alerts', '/alerts']] as const) {
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
    row(name, ms(whole), ms(after))
  }
  await context.close()
}

// many is a log with 10,000 deployments. Its page asks for 50 rows, and for the others to sort them.
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
  const few = await heap(devtools)
  // timed does something, and waits until everything is answered and painted.
  const timed = async (act: string, times = runs) => {
    const all: number[] = []
    for (let n = 0; n < times; n++) all.push((await page.evaluate(`(async () => { const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done))); const t = performance.now(); (${act})(${n}); do await frame(); while (document.querySelector('[aria-busy=true]')); return performance.now() - t })()`)) as number)
    return all
  }
  const find = `[...document.querySelectorAll('table')].find((t) => t.caption.textContent.includes('Deployments'))`
  const filter = await timed(`(n) => { const i = document.querySelector('form[aria-label=Filters] input'); i.value = 'd-0' + (n % 10); i.dispatchEvent(new Event('change', { bubbles: true })) }`)
  await page.goto(`${site.origin}/models`)
  await settle(page)
  const first = await timed(`() => ${find}.querySelectorAll('thead button')[0].click()`, 1) // asks for the others
  const after = await heap(devtools)
  const sort = await timed(`(n) => ${find}.querySelectorAll('thead button')[n % 2].click()`)
  console.log(`\n10,000 deployments: filtered, asked and painted after ${ms(filter)}; heap ${MB(few)}, ${MB(few - before)} more than the fleet's page before; sorted after ${ms(first)} the first time, which asks for the others, and then after ${ms(sort)}; heap ${MB(after)}`)
  await context.close()
  await site.close()
  await rm(dir, { recursive: true, force: true })
}

// map is the picture of 100,000 GPUs, which is moved by a finger.
async function map(): Promise<void> {
  const dir = await manyGPUs()
  const site = await serve(dir)
  const { context, page } = await visit(browser, site, { viewport: { width: 1400, height: 900 } })
  await settle(page)
  await context.addInitScript('window.long = []; new PerformanceObserver((l) => window.long.push(...l.getEntries().map((e) => e.duration))).observe({ type: "longtask" })')
  await context.addInitScript(watch)
  const devtools = await context.newCDPSession(page)
  const [ready, none, longest, rates] = Array.from({ length: 5 }, (): number[] => []) as Five
  let bytes = ''
  for (let n = 0; n < runs + 1; n++) {
    const small = await bare(page, site)
    await page.goto(`${site.origin}/fleet?show=map&to=${manyUntil}`)
    const at = await painted(page)
    await settle(page)
    bytes = (await page.evaluate('(({ encodedBodySize, decodedBodySize }) => `${(encodedBodySize / 1000).toFixed(1)} kB, ${(decodedBodySize / 1000).toFixed(1)} kB plain`)(performance.getEntriesByType("resource").find((r) => r.name.includes("/fleet/map")))')) as string
    await page.evaluate('window.frames = 0; (function count() { window.frames++; requestAnimationFrame(count) })()')
    const frames = () => page.evaluate('[window.frames, performance.now()]') as Promise<[number, number]>
    const [from, began] = await frames()
    await devtools.send('Input.synthesizeScrollGesture', { x: 700, y: 450, yDistance: -3000, speed: 1500 })
    const [to, ended] = await frames()
    if (n === 0) continue
    none.push(small)
    ready.push(at)
    rates.push((1000 * (to - from)) / (ended - began))
    longest.push((await page.evaluate('Math.max(0, ...window.long)')) as number)
  }
  console.log(`\n100,000 GPUs: answer ${bytes}; ready after ${ms(ready)}, bare page ${ms(none)}; pans at ${median(rates).toFixed(1)} frames/s, ${sorted(rates)[0]?.toFixed(1)} at worst; longest task ${ms(longest)}, ${Math.round(sorted(longest).at(-1) ?? NaN)} ms at worst`)
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
await map()
await browser.close()
