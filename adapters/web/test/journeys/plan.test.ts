// What a planner's journeys do not try: the curve of a plan, new plans, and what is cancelled or wrong.
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import type { Browser, Page } from 'playwright-core'
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

const figure = (page: Page, at: string) => page.locator(`data[data-figure="${at}"]`).first().getAttribute('value')
const answer = async (...args: string[]) => JSON.parse(await site.answer([...args, '-o', 'json']))

// tab presses Tab until something has the focus.
async function tab(page: Page, name: RegExp): Promise<void> {
  for (let i = 0; i < 150; i++) {
    await page.keyboard.press('Tab')
    const on = await page.evaluate(() => (document.activeElement as HTMLElement | null)?.innerText ?? '')
    if (name.test(on)) return
  }
  assert.fail(`nothing named ${name} gets the focus`)
}

const long = process.env['CI_LONG'] === '1'

test('the curve of a recorded plan', { skip: !long }, async () => {
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/plan`)
  await settle(page)
  const [{ plan }] = await answer('plan', 'list')
  const recorded = await answer('plan', 'show', plan)
  await page.getByRole('button', { name: 'Draw the curve' }).click()
  const cost = page.locator('data[data-figure="/alternatives/0/expected_cost"]')
  await cost.waitFor()
  // The scenario buys what the plan does, so it costs the same, to the cent.
  assert.equal(Number(await cost.getAttribute('value')).toFixed(2), Number(recorded.total.cost).toFixed(2))
  await page.getByRole('combobox', { name: 'Pool' }).selectOption('us-east-1 p5.48xlarge')
  await page.getByRole('img', { name: /^us-east-1 p5.48xlarge: In the hours/ }).waitFor()
  assert.deepEqual(faults, [])
  await context.close()
})

test('a new plan, by keyboard', async () => {
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/fleet`)
  await settle(page)
  await page.keyboard.press('g')
  await page.keyboard.press('p')
  await settle(page)
  await tab(page, /^New plan$/)
  await page.keyboard.press('Enter')
  await page.getByRole('form', { name: 'New plan' }).waitFor()
  const months = page.getByLabel('Months')
  for (let i = 0; i < 50 && !(await months.evaluate((e) => e === document.activeElement)); i++) await page.keyboard.press('Tab')
  await page.keyboard.type('12')
  await page.keyboard.press('Tab')
  await page.keyboard.type('2%')
  await page.keyboard.press('Enter')
  await page.locator('data[data-figure="/total/cost"]').waitFor()
  const same = await answer('plan', '--at', '2026-06-01', '--months', '12', '--growth', '2%', '--dry-run')
  assert.equal(await figure(page, '/total/cost'), same.total.cost)
  assert.match(page.url(), /months=12/)
  assert.deepEqual(faults, [])
  await context.close()
})

test('a plan of a forecast, with its address', { skip: !long }, async () => {
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/plan?show=new&demand=forecast&scenarios=4&months=12&region=us-east-1&order_price=5000&second_best=true`)
  await settle(page)
  await page.getByRole('button', { name: 'Compute the plan' }).click()
  await page.locator('data[data-figure="/total/cvar_90"]').waitFor()
  const same = await answer('plan', '--at', '2026-06-01', '--months', '12', '--demand', 'forecast', '--scenarios', '4', '--region', 'us-east-1', '--order-price', '5000', '--second-best', '--dry-run')
  assert.equal(await figure(page, '/total/cvar_90'), same.total.cvar_90)
  assert.equal(await figure(page, '/fewer_orders/saves'), same.fewer_orders.saves)
  assert.equal(await figure(page, '/alternatives/0/more'), same.alternatives[0].more)
  assert.deepEqual(faults, [])
  await context.close()
})

test('a long plan is cancelled', async () => {
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/plan?show=new&demand=forecast&scenarios=64&months=60`)
  await settle(page)
  await page.getByRole('button', { name: 'Compute the plan' }).click()
  const cancel = page.getByRole('button', { name: 'Cancel The plan' })
  await cancel.click()
  await cancel.waitFor({ state: 'detached' })
  await page.getByText('The plan: cancelled').waitFor({ state: 'attached' })
  assert.deepEqual(faults, [])
  await context.close()
})

test('what is wrong in a contract has its line', async () => {
  const { context, page, faults } = await visit(browser, site)
  await page.goto(`${site.origin}/plan?show=contract`)
  await settle(page)
  await page.getByRole('textbox', { name: 'Contract, as YAML' }).fill('apiVersion: quartermaster/v1\nkind: Contract\nterm: 3\n')
  await page.getByRole('button', { name: 'Evaluate the contract' }).click()
  await page.getByText('contract.yaml:3').first().waitFor()
  assert.deepEqual(faults, [])
  await context.close()
})
