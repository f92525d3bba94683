// Edits of a scenario's text change one value and leave every other line as it was.
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { test } from 'node:test'
import { add, extend, find, inside, items, place, put, quoted, set, top, unquoted } from '../src/pages/whatif/scenario.ts'

const folder = new URL('../../../deploy/demo/scenarios/', import.meta.url)
const all = readdirSync(folder).filter((name) => name.endsWith('.yaml'))
const read = (name: string) => readFileSync(new URL(name, folder), 'utf8')

// changed returns the lines that differ.
const changed = (a: string, b: string) => b.split('\n').filter((line, i) => line !== a.split('\n')[i])

for (const name of all) {
  test(name, () => {
    const text = read(name)
    assert.deepEqual(top(text).slice(0, 3).map((e) => e.key), ['apiVersion', 'kind', 'name'])
    assert.deepEqual(changed(text, set(text, 'runs', '7')), ['runs: 7'])
    const at = find(inside(text, find(top(text), 'base')), 'at')
    assert.ok(at)
    assert.equal(changed(text, put(text, at, '2026-05-01')).length, 1)
    for (const list of ['changes', 'alternatives']) {
      for (const item of items(text, find(top(text), list))) {
        assert.ok(find(item.entries, list === 'changes' ? 'kind' : 'name'), `${list} ${text.slice(item.from, item.to)}`)
        for (const e of item.entries) assert.equal(text.slice(e.from, e.to), e.value)
      }
    }
    assert.ok(items(text, find(top(text), 'alternatives')).length > 0)
  })
}

test('elements are added and extended', () => {
  const text = read('demand-growth.yaml')
  const more = add(text, 'changes', '{kind: quota_change, limit_gpus: 5}')
  assert.deepEqual(more.split('\n').filter((line) => !text.split('\n').includes(line)), ['  - {kind: quota_change, limit_gpus: 5}'])
  const [first] = items(more, find(top(more), 'changes'))
  assert.ok(first)
  assert.match(extend(more, first, 'region', 'us-east-1'), /monthly: \{triangular: \[0, 0.02, 0.05\]\}, region: us-east-1\}\n/)
  const empty = 'base: {}\n'
  const base = find(top(empty), 'base')
  assert.ok(base)
  assert.equal(extend(empty, { ...base, entries: inside(empty, base) }, 'at', '2026-06-01'), 'base: {at: 2026-06-01}\n')
  const block = 'changes:\n  - kind: new_offer\n    hourly: 3 # a guess\n\nalternatives:\n  - name: a\n'
  const [offer] = items(block, find(top(block), 'changes'))
  assert.ok(offer)
  assert.equal(find(offer.entries, 'hourly')?.value, '3')
  assert.equal(add('kind: Scenario\n', 'changes', '{kind: x}'), 'kind: Scenario\nchanges:\n  - {kind: x}\n')
  assert.equal(items(add(add('kind: Scenario\n', 'changes', '{kind: x}'), 'changes', '{kind: y}'), find(top(add(add('kind: Scenario\n', 'changes', '{kind: x}'), 'changes', '{kind: y}')), 'changes')).length, 2)
})

test('text is quoted where YAML would read something else', () => {
  for (const value of ['buy or rent', 'a: b', 'yes', '5', "it's", '# no', '']) assert.equal(unquoted(quoted(value)), value)
  assert.equal(quoted('buy or rent'), 'buy or rent')
  assert.equal(unquoted("'it''s'"), "it's")
})

test('places of faults', () => {
  assert.deepEqual(place('a: 1\nb: two\n', 2, 4), { from: 8, to: 11 })
  assert.deepEqual(place('a: 1\nb: two\n', 2, 0), { from: 5, to: 11 })
  assert.deepEqual(place('a', 9, 9), { from: 1, to: 1 })
})
