// A view is compared with another moment.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { browse, serve, settle, visit } from '../site.ts'

test('a month is compared with the moment before a bill', async () => {
  const site = await serve()
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
    await page.goto(`${site.origin}/costs?period=2026-05&against=no-such-snapshot`)
    await settle(page)
    await page.getByText(/not compared\. .*no-such-snapshot/).first().waitFor()
    await row.waitFor()
    assert.ok(!(await row.innerText()).includes('was '), 'a comparison that there is not')
    await page.goBack()
    await settle(page)
    assert.ok(changed.includes(`was ${of('search')}`) || (of('search') === '' && changed.includes('new')), changed)
    assert.deepEqual(faults, [])
  } finally {
    await browser.close()
    await site.close()
  }
})
