// A page that stays open says that there are newer events, and shows them when it is asked to.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { browse, copied, program, serve, settle, visit } from './site.ts'

const run = promisify(execFile)

test('newer events', async () => {
  const dir = await copied()
  const site = await serve(dir)
  const browser = await browse()
  try {
    const { page, faults } = await visit(browser, site)
    await settle(page)
    const newer = page.getByRole('button', { name: 'There are newer events' })
    const position = page.getByText(/position: [\d,]+ records/)
    let before = await position.innerText()
    assert.equal(await newer.count(), 0)
    await run(program, ['operator', 'add', 'dora', '--role', 'planner', '--new-key', join(dir, 'dora.pem'), '--data-dir', dir])
    await newer.waitFor()
    assert.equal(await position.innerText(), before, 'figures changed by themselves')
    // Another page asks for itself, and shows the newest.
    await page.getByRole('link', { name: 'Models' }).click()
    await settle(page)
    assert.equal(await newer.count(), 0)
    before = await position.innerText()
    await run(program, ['operator', 'add', 'dan', '--role', 'planner', '--new-key', join(dir, 'dan.pem'), '--data-dir', dir])
    await newer.click()
    await page.waitForFunction((text) => !document.querySelector('footer')?.textContent?.includes(text), before)
    assert.equal(await newer.count(), 0)
    assert.deepEqual(faults, [])
  } finally {
    await browser.close()
    await site.close()
    await rm(dir, { recursive: true, force: true })
  }
})
