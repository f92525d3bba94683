// A site where people log in with an identity provider: on a copy of the demo's log, or, where QM_WEB_CONFIG names the
// configuration of an instance, on its Kafka and Postgres. QM_IDP is the provider, of deploy/dev/idp.
import { execFile, spawn } from 'node:child_process'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { createServer, type AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { promisify } from 'node:util'
import type { Browser, BrowserContext, Page } from 'playwright-core'
import { answered, copied, opened, program, ready, watched, type Site } from './site.ts'

const run = promisify(execFile)

export const idp = process.env['QM_IDP'] ?? ''
export const config = process.env['QM_WEB_CONFIG'] ?? ''

export interface Public extends Omit<Site, 'link'> {
  command(...args: string[]): Promise<string> // as the owner of the home
}

// servePeople serves a log at an address where people log in, until it is closed.
export async function servePeople(): Promise<Public> {
  const dir = await mkdtemp(join(tmpdir(), 'quartermaster-people-'))
  const [port, issuing] = [await free(), await free()]
  const origin = `http://localhost:${port}`
  const provider = spawn(idp, ['--listen', `127.0.0.1:${issuing}`, '--redirect', `${origin}/api/v1/login/callback`], { stdio: ['ignore', 'pipe', 'inherit'] })
  const issuer = await new Promise<string>((resolve, reject) => {
    createInterface({ input: provider.stdout }).once('line', (line) => resolve(line.replace('issuer ', '')))
    provider.once('exit', (code) => reject(new Error(`the identity provider ended with ${code}`)))
  })
  await writeFile(join(dir, 'secret'), 'of tests & alone', { mode: 0o600 })
  const api = {
    listen: `127.0.0.1:${port}`,
    url: origin,
    socket: join(dir, 'api.sock'),
    providers: [{ name: 'corp', issuer, audience: 'quartermaster', scopes: ['openid', 'groups'], browser_client_id: 'quartermaster-web', browser_secret_file: join(dir, 'secret') }],
  }
  const file = join(dir, 'serve.yaml')
  const home = config ? (process.env['QUARTERMASTER_DATA_DIR'] ?? '') : await copied()
  if (config) {
    await writeFile(file, `${await readFile(config, 'utf8')}\napi: ${JSON.stringify(api)}\n`)
  } else {
    const { socket: _, ...listened } = api
    await writeFile(file, JSON.stringify({ api: listened }))
  }
  const where = config ? ['--config', file] : ['--data-dir', home]
  const socket = `unix:${config ? api.socket : join(home, 'api.sock')}`
  const args = ['serve', ...where, '--listen', '127.0.0.1:0', '-o', 'json', ...(config ? [] : ['--api-config', file, '--browser', '', '--advice=false'])]
  const server = spawn(program, args, { stdio: ['ignore', 'inherit', 'pipe'], env: { ...process.env, QUARTERMASTER_INSTANCE: 'pages' } })
  await ready(server)
  return {
    dir: home,
    origin,
    async command(...args) {
      return (await run(program, [...args, ...where], { maxBuffer: 1 << 28 })).stdout
    },
    async answer(args) {
      return answered([...args, '--server', socket])
    },
    async close() {
      const ended = new Promise((resolve) => server.once('exit', resolve))
      server.kill('SIGTERM')
      await ended
      provider.kill()
      for (const made of config ? [dir] : [dir, home]) await rm(made, { recursive: true, force: true })
    },
  }
}

// free returns a port that nobody listens at.
function free(): Promise<number> {
  return new Promise((resolve, reject) => {
    const probe = createServer().once('error', reject)
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address() as AddressInfo
      probe.close(() => resolve(port))
    })
  })
}

export interface Visit {
  context: BrowserContext
  page: Page
  faults: string[]
  heard: string[] // what the API answered
}

// login opens a page as somebody, who fills in the form of the provider.
export async function login(browser: Browser, site: Public, name: string, path = '/fleet'): Promise<Visit> {
  const context = await opened(browser)
  const { page, faults } = await watched(context)
  const heard: string[] = []
  page.on('response', (r) => {
    if (r.url().startsWith(`${site.origin}/api/v1/`) && !r.url().endsWith('/changes')) r.text().then((text) => heard.push(`${r.status()} ${r.url()}\n${text}`), () => {})
  })
  await page.goto(site.origin + path)
  await page.getByRole('link', { name: 'Log in with corp' }).click()
  await page.locator('input[name=username]').fill(name)
  await page.locator('input[name=password]').fill('verysecure')
  await page.locator('[type=submit]').click()
  await page.waitForURL(site.origin + path)
  return { context, page, faults, heard }
}
