// Values are written as they are: no digit is lost, however many there are.
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { asOf, at, read, search } from '../src/api/ask.ts'
import { command } from '../src/api/command.ts'
import { digits, order, rounded, sortable, time, written, type Kind } from '../src/format.ts'
import { between, instants, step } from '../src/parts/axis.ts'

test('numbers that JavaScript cannot hold stay digits', () => {
  const data = read('{"a": 12345678901234567890, "b": -98765432109876543210, "c": 1.25, "d": "12345678901234567890.125", "e": 9007199254740991}')
  assert.deepEqual(data, { a: '12345678901234567890', b: '-98765432109876543210', c: 1.25, d: '12345678901234567890.125', e: 9007199254740991 })
})

test('values are written with all of their digits', () => {
  const cases: [unknown, Kind, string][] = [
    ['12345678901234567890', 'count', '12,345,678,901,234,567,890'],
    ['-12345678901234567890.125', 'money', '-12,345,678,901,234,567,890.13'],
    ['99999999999999999999.99995', 'price', '100,000,000,000,000,000,000.0000'],
    ['99999999999999999999', 'gpu-hours', '27,777,777,777,777.8'],
    // A currency has the places that the server rounded to: yen have none, dinars three.
    ['1200', 'number', '1,200'],
    ['1200.125', 'number', '1,200.125'],
    ['-0.5', 'number', '-0.5'],
    ['0.005', 'money', '0.01'],
    ['-0.004', 'money', '0.00'],
    [0, 'count', '0'],
    [null, 'money', '–'],
    ['', 'count', '–'],
    [333, 'permille', '33.3%'],
    ['0.45', 'fraction', '45.0%'],
    [0.2675, 'fraction', '26.8%'], // 26.749999999999996 as a product
    ['-0.0005', 'fraction', '-0.1%'],
    [1, 'fraction', '100.0%'],
    [5e-7, 'fraction', '0.0%'],
    ['2026-05-01T00:00:00Z', 'time', '2026-05-01'],
    ['2026-05-01T10:30:01.5Z', 'time', '2026-05-01 10:30:01.5'],
    // What is not a number is shown, and stops nothing.
    ['1e21', 'count', '1e21'],
    [1.5, 'gpu-hours', '1.5'],
    ['none', 'micros', 'none ms'],
    ['<b>', 'time', '<b>'],
  ]
  for (const [value, kind, want] of cases) assert.equal(written(value, kind), want, `${String(value)} as ${kind}`)
  assert.equal(digits('007.10'), '7.10')
  assert.equal(rounded('x', 2), 'x')
  assert.equal(time('yesterday'), 'yesterday')
})

test('money has the places of its currency', () => {
  for (const [currency, want] of [['USD', '1,200.50'], ['JPY', '1,201'], ['KWD', '1,200.500'], ['HUF', '1,200.50'], ['points', '1,200.50'], ['', '1,200.50']] as const) assert.equal(written('1200.5', 'money', currency), want, currency)
  assert.equal(written('12345678901234567890', 'money', 'JPY'), '12,345,678,901,234,567,890')
})

test('a command is quoted for a shell', () => {
  assert.equal(
    command('/api/v1/usage', { by: ['workspace'], workspace: "'; rm -rf / #", from: '2026-05-01' }),
    `quartermaster usage --by workspace --workspace ''\\''; rm -rf / #' --from 2026-05-01`,
  )
  assert.equal(search({ a: '', b: null, c: false, d: ['x', 'y'] }).toString(), 'd=x&d=y')
})

test('a pointer finds names with slashes', () => {
  assert.equal(at({ 'a/b': { '~c': 1 } }, '/a~1b/~0c'), 1)
  assert.equal(at({}, '/a/b/c'), undefined)
})

test('values are ordered by value, and text as people count', () => {
  const sorted = (all: unknown[], numeric: boolean) => [...all].sort((a, b) => order(sortable(a, numeric), sortable(b, numeric), numeric))
  assert.deepEqual(sorted(['12345678901234567891', '9', '-12345678901234567890', '12345678901234567890', '-12345678901234567891', 10, '1.5'], true), [
    '-12345678901234567891', '-12345678901234567890', '1.5', '9', 10, '12345678901234567890', '12345678901234567891',
  ])
  assert.deepEqual(sorted(['gpu-10', 'gpu-9', null, 'Gpu-1'], false), [null, 'Gpu-1', 'gpu-9', 'gpu-10'])
})

test('a recorded plan or close is no answer as of its position', () => {
  assert.equal(asOf({ path: '/api/v1/usage', data: { position: 'qm.fleet/0=1' } }), 'qm.fleet/0=1')
  assert.equal(asOf({ path: '/api/v1/plan/show', data: { position: 'qm.fleet/0=1' } }), '')
  assert.equal(asOf({ path: '/api/v1/costs/close/show', data: { position: 'qm.fleet/0=1' } }), '')
  assert.equal(asOf({ path: '/api/v1/plan/list', data: [] }), '')
})

test('an axis has marks at round values', () => {
  assert.deepEqual([0.03, 0.2, 1, 17, 250, 501].map(step), [0.05, 0.2, 1, 20, 500, 1000])
  assert.deepEqual(between(-50, 149, 50), [-50, 0, 50, 100])
  assert.equal(between(0, 7 * 1e-4, 1e-4).length, 8) // 7 · 0.0001 / 0.0001 is less than 7
  const marks = (from: string, to: string, most: number) => instants(Date.parse(from) / 1000, Date.parse(to) / 1000, most).map((m) => m.text)
  assert.deepEqual(marks('2026-05-31T20:00:00Z', '2026-06-01T15:00:00Z', 4), ['00:00', '06:00', '12:00'].with(0, '06-01'))
  assert.deepEqual(marks('2026-05-25T00:00:00Z', '2026-06-01T00:00:00Z', 8), ['05-25', '05-26', '05-27', '05-28', '05-29', '05-30', '05-31', '06-01'])
  assert.deepEqual(marks('2026-06-01T00:00:00Z', '2029-05-01T00:00:00Z', 7), ['2026-07', '2027-01', '2027-07', '2028-01', '2028-07', '2029-01'])
  assert.deepEqual(marks('2026-06-01T00:00:00Z', '2026-06-01T00:00:00Z', 7), ['06-01'])
})
