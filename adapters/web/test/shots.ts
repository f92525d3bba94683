// Takes the screenshots of the README from the demo's log: "make shots" writes them into docs/shots.
import { mkdir, stat } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'
import { browse, serve, settle, visit } from './site.ts'

const folder = fileURLToPath(new URL('../../../docs/shots/', import.meta.url))
const shots = [
  ['fleet', '/fleet?from=2026-05-25&to=2026-06-01'],
  ['costs', '/costs?period=2026-05'],
  ['plan', '/plan'],
] as const

await mkdir(folder, { recursive: true })
const site = await serve()
const browser = await browse()
const { page } = await visit(browser, site, { viewport: { width: 1200, height: 750 }, colorScheme: 'light', reducedMotion: 'reduce' })
for (const [name, path] of shots) {
  await page.goto(site.origin + path)
  await settle(page)
  const file = `${folder}${name}.png`
  await page.screenshot({ path: file })
  const { size } = await stat(file)
  console.log(`docs/shots/${name}.png: ${(size / 1000).toFixed(0)} kB`)
  if (size > 120_000) throw new Error(`${file} has ${size} bytes: want 120,000 at most`)
}
await browser.close()
await site.close()
