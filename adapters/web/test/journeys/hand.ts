// A hand does the same steps by mouse or by keyboard alone, so that a journey is written once.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Browser, Locator, Page } from 'playwright-core'
import { routes } from '../../src/routes.ts'
import { found } from '../figures.ts'
import { program, settle, visit, type Site } from '../site.ts'

const run = promisify(execFile)

export type Way = 'mouse' | 'keyboard'

// Journey is what a person does, and the figure that it ends in.
export interface Journey {
  person: string
  job: string
  first?: boolean // one of those that run without CI_LONG
  walk: (hand: Hand) => Promise<End>
  own?: () => Promise<string> // the log, where it is not that of the others: it would change what they see
}

// End is what the screen says at the end, and the command whose answer says the same, at a pointer.
export interface End {
  shown: string
  command: string[]
  at: string
  page: Page
  data?: unknown // what the command answered, if it was asked already
}

type Name = string | RegExp

export class Hand {
  readonly by: Way
  readonly site: Site
  readonly page: Page
  readonly faults: string[]
  readonly #browser: Browser
  readonly #others: Hand[] = []
  readonly #after: (() => Promise<void>)[] = []

  private constructor(by: Way, site: Site, page: Page, faults: string[], browser: Browser) {
    this.by = by
    this.site = site
    this.page = page
    this.faults = faults
    this.#browser = browser
  }

  // comes opens a session in a new browser window.
  static async comes(by: Way, site: Site, browser: Browser): Promise<Hand> {
    const { page, faults } = await visit(browser, site, { viewport: { width: 1280, height: 900 } })
    await settle(page)
    return new Hand(by, site, page, faults, browser)
  }

  // another is somebody else, with a browser of their own.
  async another(): Promise<Hand> {
    const other = await Hand.comes(this.by, this.site, this.#browser)
    this.#others.push(other)
    return other
  }

  // after is done at the end, when the figure was compared.
  after(act: () => Promise<void>): void {
    this.#after.push(act)
  }

  async leaves(): Promise<void> {
    for (const other of this.#others) await other.leaves()
    for (const act of this.#after) await act()
    await this.page.context().close()
  }

  // within is what can be reached now: what is in an open dialog, or else all of the page.
  get within(): Locator {
    return this.page.locator('dialog[open], body:not(:has(dialog[open]))')
  }

  // reach goes to an element from where the focus is, with Tab.
  async reach(to: Locator): Promise<void> {
    await to.and(this.page.locator(':not(:disabled)')).waitFor()
    for (let n = 0; n < 2000; n++) {
      const way = await to.evaluate((e) => {
        const on = document.activeElement
        if (e === on) return ''
        return on && on !== document.body && on.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_PRECEDING ? 'Shift+Tab' : 'Tab'
      })
      if (!way) return
      await this.page.keyboard.press(way)
    }
    assert.fail(`${String(to)} is not reached by keyboard`)
  }

  async #act(on: Locator): Promise<void> {
    if (this.by === 'mouse') await on.click()
    else {
      await this.reach(on)
      await this.page.keyboard.press('Enter')
    }
    await settle(this.page)
  }

  // go goes to a page of the menu.
  async go(title: string): Promise<void> {
    if (this.by === 'mouse') await this.page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: title }).click()
    else {
      await this.page.keyboard.press('g')
      await this.page.keyboard.press(routes.find((r) => r.title === title)?.key ?? '')
    }
    await this.page.getByRole('heading', { name: title, level: 1 }).waitFor()
    await settle(this.page)
  }

  // open follows a link; table is the caption of the table that it is in.
  async open(link: Name, table?: Name): Promise<void> {
    const from = table ? this.within.getByRole('table', { name: table }) : this.within
    await this.#act(from.getByRole('link', { name: link, exact: true }).first())
  }

  async press(button: Name): Promise<void> {
    await this.#act(this.within.getByRole('button', { name: button, exact: true }).first())
  }

  async unfold(summary: string): Promise<void> {
    await this.#act(this.within.locator('summary').filter({ hasText: summary }).first())
  }

  // A field is named by its label; of several with one label, by its place among them.
  #field(of: Name | { label: Name; n: number }): Locator {
    const { label, n } = typeof of === 'object' && 'label' in of ? of : { label: of, n: 0 }
    return this.within.getByLabel(label).and(this.page.locator('input, select, textarea')).nth(n)
  }

  // type writes into a field instead of what is in it, and leaves it.
  async type(label: Name | { label: Name; n: number }, text: string): Promise<void> {
    const field = this.#field(label)
    if (this.by === 'mouse') await field.fill(text)
    else {
      await this.reach(field)
      await this.page.keyboard.press('Control+A')
      await this.page.keyboard.type(text)
    }
    await this.page.keyboard.press('Tab')
    await settle(this.page)
  }

  // choose takes what a list offers, by value or by name.
  async choose(label: Name, option: string): Promise<void> {
    const list = this.within.getByLabel(label).and(this.page.locator('select')).first()
    if (this.by === 'mouse') await list.selectOption(option)
    else {
      await this.reach(list)
      const steps = await list.evaluate((e, option) => {
        const { options, selectedIndex } = e as HTMLSelectElement
        return [...options].findIndex((o) => o.value === option || o.label === option) - selectedIndex
      }, option)
      for (let n = 0; n < Math.abs(steps); n++) await this.page.keyboard.press(steps > 0 ? 'ArrowDown' : 'ArrowUp')
    }
    await settle(this.page)
  }

  async tick(box: Name): Promise<void> {
    const on = this.within.getByRole('checkbox', { name: box })
    if (this.by === 'mouse') await on.click()
    else {
      await this.reach(on)
      await this.page.keyboard.press('Space')
    }
    await settle(this.page)
  }

  async search(text: string): Promise<void> {
    const field = this.page.getByRole('searchbox')
    if (this.by === 'mouse') await field.click()
    else await this.page.keyboard.press('/')
    await this.page.keyboard.type(text)
    await this.page.keyboard.press('Enter')
    await this.page.waitForURL(/search=/)
    await settle(this.page)
  }

  // see waits until something is said.
  async see(text: Name): Promise<void> {
    await this.within.getByText(text).first().waitFor()
  }

  // enrol makes a key in this browser, and has an admin register it for somebody.
  async enrol(operator: string, role: string): Promise<void> {
    await this.press('Make a key in this browser')
    await this.press('Show what this does')
    const said = await this.within.getByText('--public-key').first().innerText()
    const key = /--public-key (\S+)/.exec(said)?.[1] ?? ''
    await this.there('operator', 'add', operator, '--role', role, '--limit', '100000000 USD', '--public-key', key)
  }

  // sign asks what a decision does, and signs it.
  async sign(operator: string): Promise<void> {
    await this.press('Show what this does')
    await this.see(`Signed by ${operator}, until`)
    await this.press('Sign and decide')
    await this.see('It is decided and in the log.')
    await this.press('Close')
    await this.page.locator('dialog[open]').waitFor({ state: 'detached' })
    await settle(this.page)
  }

  // ask asks a command.
  async ask(...command: string[]): Promise<unknown> {
    return JSON.parse(await this.site.answer([...command, '-o', 'json']))
  }

  // there asks a command that needs the directory of the log, as one that signs with the key of root does.
  async there(...command: string[]): Promise<unknown> {
    const key = join(this.site.dir, 'operator.pem')
    return JSON.parse((await run(program, [...command, '--key', key, '--data-dir', this.site.dir, '-o', 'json'])).stdout)
  }

  // which is the place of what a command has in a list.
  async which(list: string, is: (row: never) => boolean, ...command: string[]): Promise<string> {
    let rows = await this.ask(...command)
    for (const step of list.split('/').slice(1)) rows = (rows as Record<string, unknown>)[step]
    const n = (rows as never[]).findIndex(is)
    assert.notEqual(n, -1, `${command.join(' ')}: none of ${list}`)
    return `${list}/${n}`
  }

  // ends reads the figure of an operation at a pointer. The command of the same words answers it, at the same pointer.
  async ends(operation: string, at: string, ...args: string[]): Promise<End> {
    const words = operation.split(' ')
    const figure = this.page.locator(`data[data-figure="${at}"]`).and(this.page.locator(`[data-path="/api/v1/${words.join('/')}"]`)).first()
    await figure.waitFor()
    await figure.scrollIntoViewIfNeeded()
    return { shown: (await figure.getAttribute('value')) ?? '', command: [...words, ...args], at, page: this.page }
  }
}

// said is what the command says where the screen showed something.
export async function said(site: Site, { command, at, data }: End): Promise<string> {
  const want = found(data ?? JSON.parse(await site.answer([...command, '-o', 'json'])), at)
  assert.notEqual(want, '', `${command.join(' ')} has nothing at ${at}`)
  return want
}
