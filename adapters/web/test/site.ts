// A site is a real "quartermaster serve" on the demo's log, and a real browser. Nothing of our own is imitated.
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import { chromium, type Browser, type BrowserContext, type Page, type Request } from 'playwright-core'

const run = promisify(execFile)

// program is the binary under test.
export const program = process.env['QUARTERMASTER'] ?? '../../bin/quartermaster'

export interface Site {
  dir: string // data directory
  origin: string
  link(): Promise<string> // opens a session, once
  answer(args: string[]): Promise<string> // what a command writes, on the same log
  close(): Promise<void>
}

// copied is a copy of the demo's log, for tests that change it.
export async function copied(): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'quartermaster-web-'))
  const from = process.env['QM_WEB_DATA']
  if (from) await cp(from, dir, { recursive: true, filter: (file) => !file.endsWith('.sock') })
  else await run(program, ['demo', '--once', '--quiet', '--data-dir', dir], { maxBuffer: 1 << 26 })
  return dir
}

// serve serves a log until it is closed: a copy of the demo's, unless one is named. A port is chosen unless one is named; a server
// that comes back has that of before. It is ready once it says so. Rules are evaluated if one waits for that, and not otherwise, so
// that the log stays as it is.
export async function serve(dir = '', port = '0', says = 'caught up'): Promise<Site> {
  const own = dir || (await copied())
  const server = spawn(program, ['serve', '--data-dir', own, '--listen', '127.0.0.1:0', '--browser', `127.0.0.1:${port}`, ...(says === 'caught up' ? ['--advice=false'] : []), '-o', 'json'], { stdio: ['ignore', 'ignore', 'pipe'] })
  const first = await ready(server, says)
  const socket = `unix:${join(own, 'api.sock')}`
  let links = [first]
  return {
    dir: own,
    origin: new URL(first).origin,
    async link() {
      return links.pop() ?? (JSON.parse((await run(program, ['login', '--server', socket, '-o', 'json'])).stdout) as { link: string }).link
    },
    async answer(args) {
      return answered([...args, '--server', socket])
    },
    async close() {
      const ended = new Promise((resolve) => server.once('exit', resolve))
      server.kill('SIGTERM')
      await ended
      if (!dir) await rm(own, { recursive: true, force: true })
    },
  }
}

// answered returns what a command writes. An answer that lacks events is one (5).
export async function answered(args: string[]): Promise<string> {
  try {
    return (await run(program, args, { maxBuffer: 1 << 28 })).stdout
  } catch (e) {
    if ((e as { code?: number }).code === 5) return (e as { stdout: string }).stdout
    throw e
  }
}

// ready waits until a server says so, and returns its link.
export function ready(server: ChildProcess, says = 'caught up'): Promise<string> {
  return new Promise((resolve, reject) => {
    let link = ''
    const said: string[] = []
    createInterface({ input: server.stderr! }).on('line', (line) => {
      said.push(line)
      const entry = JSON.parse(line) as { msg: string; link?: string }
      link = entry.link ?? link
      if (entry.msg === says) resolve(link)
    })
    server.once('close', (code) => reject(new Error(`serve ended with ${code}:\n${said.join('\n')}`)))
  })
}

// browse starts a browser.
export async function browse(): Promise<Browser> {
  return chromium.launch({ executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] })
}

// slow is by how much browsers are slowed down, which shows what a test leaves to time. Nothing waits for a time: a limit is
// what a machine that is busy with other work needs.
const slow = Number(process.env['QM_WEB_SLOW'] ?? 1)
const limit = 180_000

// asked are the requests of a page that are not answered yet. Streams of events never are.
const asked = new WeakMap<Page, Set<Request>>()

// opened opens a context.
export async function opened(browser: Browser, options: Parameters<Browser['newContext']>[0] = {}): Promise<BrowserContext> {
  const context = await browser.newContext(options)
  context.setDefaultTimeout(limit)
  context.on('page', (page) => {
    const open = new Set<Request>()
    asked.set(page, open)
    page.on('request', (r) => r.resourceType() !== 'eventsource' && open.add(r))
    page.on('requestfinished', (r) => open.delete(r))
    page.on('requestfailed', (r) => open.delete(r))
  })
  if (slow > 1) {
    context.on('page', (page) => {
      void context.newCDPSession(page).then((line) => line.send('Emulation.setCPUThrottlingRate', { rate: slow }))
    })
  }
  return context
}

// watched opens a page. Whatever it may not do by its policy, and every error of its scripts, is kept in faults.
export async function watched(context: BrowserContext): Promise<{ page: Page; faults: string[] }> {
  const page = await context.newPage()
  const faults: string[] = []
  page.on('pageerror', (e) => faults.push(`script: ${e.message}`))
  page.on('console', (m) => {
    if (m.type() === 'error' && !/status of (400|401|403|404|503)/.test(m.text())) faults.push(`console: ${m.text()}`)
  })
  return { page, faults }
}

// visit opens a session in a new context.
export async function visit(browser: Browser, site: Site, options: Parameters<Browser['newContext']>[0] = {}): Promise<{ context: BrowserContext; page: Page; faults: string[] }> {
  const context = await opened(browser, options)
  const { page, faults } = await watched(context)
  await page.goto(await site.link())
  return { context, page, faults }
}

// settle waits until everything that a page asks is answered, and drawn.
export async function settle(page: Page): Promise<void> {
  const open = asked.get(page) ?? new Set()
  do {
    while (open.size > 0) await page.waitForTimeout(5)
    await page.waitForFunction(() => !document.querySelector('[aria-busy="true"]') && document.querySelector('h1'))
    await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))))
  } while (open.size > 0)
}
