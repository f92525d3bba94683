// A view is compared with another moment, and kept under a name.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { cp, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { browse, program, serve, settle, visit } from '../site.ts'

const run = promisify(execFile)

test('a month is compared with the moment before a bill, and the view is kept', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'quartermaster-compare-'))
  const from = process.env['QM_WEB_DATA']
  if (from) await cp(from, dir, { recursive: true })
  else await run(program, ['demo', '--once', '--data-dir', dir], { maxBuffer: 1 << 26 })
  const site = await serve(dir)
  const browser = await browse()
  try {
    const { page, faults } = await visit(browser, site)
    await page.goto(`${site.origin}/costs?period=2026-05`)
    await settle(page)
    // The position before the newest partition of bills had any: the figures of then are the command's.
    const now = JSON.parse(await site.answer(['costs', '--period', '2026-05', '--by', 'workspace', '-o', 'json'])) as { position: string; totals: { billed_minor: string }[] }
    const past = now.position.split(',').filter((p) => !p.startsWith('qm.billing/0=')).join(',')
    const then = JSON.parse(await site.answer(['costs', '--period', '2026-05', '--by', 'workspace', '--as-of', past, '-o', 'json'])) as { groups: { key: { workspace: string }; billed_minor: string }[] }
    await page.locator('footer summary').click()
    await page.getByLabel('Compare with a position').fill(past)
    await page.getByRole('button', { name: 'Compare', exact: true }).click()
    await page.getByText('compared with').waitFor()
    await settle(page)
    const of = (workspace: string) => (then.groups.find((g) => g.key.workspace === workspace)?.billed_minor ?? '').replace(/\B(?=(\d{3})+\.)/g, ',')
    const row = page.locator('table[data-path]').getByRole('row', { name: /^search/ })
    const changed = await row.innerText()
    assert.ok(changed.includes(`was ${of('search')}`) || (of('search') === '' && changed.includes('new')), changed)

    await page.getByRole('button', { name: 'Views' }).click()
    await page.getByRole('dialog').getByLabel('Name of what is shown now').fill('May, against before')
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click()
    await page.goto(`${site.origin}/fleet`)
    await settle(page)
    await page.getByRole('button', { name: 'Views' }).click()
    await page.getByRole('dialog').getByRole('link', { name: 'May, against before' }).click()
    await settle(page)
    assert.ok(page.url().includes('against='), page.url())
    assert.deepEqual(faults, [])
  } finally {
    await browser.close()
    await site.close()
    await rm(dir, { recursive: true, force: true })
  }
})
