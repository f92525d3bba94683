import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import type { Page } from 'playwright-core'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

interface Violation {
  id: string
  nodes: { target: string[]; failureSummary: string }[]
}

// violations returns what axe finds against WCAG 2.2 AA and its best practices.
export async function violations(page: Page): Promise<string[]> {
  await page.evaluate(axe)
  const run = '(async () => (await axe.run(document, { resultTypes: ["violations"], rules: { "target-size": { enabled: true } } })).violations)()'
  const all = (await page.evaluate(run)) as Violation[]
  return all.flatMap((v) => v.nodes.slice(0, 3).map((n) => `${v.id}: ${n.target.join(' ')}: ${n.failureSummary.replaceAll('\n', ' ')}`))
}
