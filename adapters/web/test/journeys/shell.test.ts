// What the pages do not write, they name the command for: it is copied, and writes the document.
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { browse, program, serve, settle, visit } from '../site.ts'

const run = promisify(execFile)

test('a statement as a document, and evidence', async () => {
  const site = await serve()
  const browser = await browse()
  const into = await mkdtemp(join(tmpdir(), 'quartermaster-statement-'))
  try {
    const { context, page } = await visit(browser, site, { permissions: ['clipboard-read', 'clipboard-write'] })
    const copied = async (command: string) => {
      await page.getByRole('button', { name: `Copy the command quartermaster costs ${command}` }).first().click()
      await page.getByText('copied', { exact: true }).waitFor()
      return page.evaluate(() => navigator.clipboard.readText())
    }
    await page.goto(`${site.origin}/costs?show=statements&workspace=vc-a01`)
    await settle(page)
    const words = (await copied('statement')).split(' ')
    assert.deepEqual(words, ['quartermaster', 'costs', 'statement', '--month', '2026-05', '--workspace', 'vc-a01', '--out', 'statements'])
    await run(program, [...words.slice(1, -1), join(into, 'statements'), '--data-dir', site.dir])
    assert.deepEqual((await readdir(join(into, 'statements'))).sort(), ['statement-2026-05-vc-a01.html', 'statement-2026-05-vc-a01.pdf'])
    await page.goto(`${site.origin}/audit?show=archive`)
    await settle(page)
    assert.equal(await copied('evidence'), 'quartermaster costs evidence --period 2026-05 --out evidence-2026-05')
    await context.close()
  } finally {
    await browser.close()
    await site.close()
    await rm(into, { recursive: true, force: true })
  }
})
