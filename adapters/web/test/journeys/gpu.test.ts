// Somebody on call looks at what failed on a machine, and at what its newest samples were.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Browser } from 'playwright-core'
import { digits } from '../../src/format.ts'
import { browse, serve, settle, visit, type Site } from '../site.ts'

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

interface Event {
  offset: number
  event: { id: string; source: string; type: string; time: string; data: { kind: string; code: number; detail: string } }
}
const tail = async (...args: string[]) => (await site.answer(['log', 'tail', ...args, '--cluster', 'gen-rented', '--subject', 'vc-a09-004', '-o', 'json'])).trim().split('\n').map((line) => JSON.parse(line) as Event)

test('the faults of a machine are those in the log, by mouse', async () => {
  const want = (await tail('--topic', 'qm.hardware', '-n', '500')).reverse()
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/gpu?node=vc-a09-004&cluster=gen-rented`)
  await settle(page)
  const rows = page.getByRole('table', { name: /^Faults/ }).locator('tbody tr')
  assert.equal(await rows.count(), want.length)
  const first = want.findIndex((e) => e.event.type.includes('GPUFaultObserved'))
  const fault = want[first]?.event
  const seen = await rows.nth(first).innerText()
  for (const text of [fault?.time.slice(0, 10) ?? '?', fault?.data.detail ?? '?']) assert.ok(seen.includes(text), `${seen}: want ${text}`)
  await rows.nth(first).getByRole('link', { name: `${fault?.data.kind} ${fault?.data.code}` }).click()
  await settle(page)
  assert.ok((await page.locator('main').innerText()).includes(fault?.data.detail ?? '?'), 'the event is shown')
  assert.deepEqual(faults, [])
  await context.close()
})

test('the newest samples of a machine, by keyboard', async () => {
  const [newest] = await tail('--type', 'NodeSampled', '-n', '1')
  const { context, page } = await visit(browser, site)
  await page.goto(`${site.origin}/gpu?node=vc-a09-004&cluster=gen-rented`)
  await settle(page)
  await page.getByRole('link', { name: 'the newest samples of the machine' }).focus()
  await page.keyboard.press('Enter')
  await settle(page)
  const links = await page.getByRole('table', { name: /^The newest events/ }).getByRole('link').allInnerTexts()
  assert.ok(links.includes(digits(newest?.offset ?? -1)), `${newest?.offset} is not among ${links.length}`)
  await context.close()
})
