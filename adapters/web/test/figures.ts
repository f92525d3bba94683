import { readFileSync } from 'node:fs'
import type { Page } from 'playwright-core'
import { commands } from '../src/api/commands.ts'
import type { Site } from './site.ts'

// Answering is what commands of a site answer.
type Answering = Pick<Site, 'origin' | 'answer'>

// Seen is a figure on the screen.
export interface Seen {
  at: string // JSON pointer into the answer
  path: string
  query: string // JSON
  as: string
  value: string // as the answer has it
  text: string // as it is written
}

// figures returns the figures on the screen.
export async function figures(page: Page): Promise<Seen[]> {
  return page.$$eval('data[data-figure]', (all) =>
    all.map((d) => ({
      at: d.getAttribute('data-figure') ?? '',
      path: d.getAttribute('data-path') ?? '',
      query: d.getAttribute('data-query') ?? '{}',
      as: d.getAttribute('data-as') ?? '',
      value: d.getAttribute('value') ?? '',
      text: d.textContent ?? '',
    })),
  )
}

// args returns the arguments of the command that answers the same. Pages ask for long lists in parts; the command answers all.
export function args(path: string, query: Record<string, unknown>): string[] {
  const { args: last = [], switches = [] } = commands[path] ?? {}
  const words = path.replace('/api/v1/', '').split('/')
  const named: string[] = []
  for (const [name, value] of Object.entries(query)) {
    if (value === '' || value === null || value === false || name === 'limit' || name === 'cursor') continue
    for (const one of Array.isArray(value) ? (value as string[]) : [String(value)]) {
      if (last.includes(name)) named.push(one)
      else if (switches.includes(name)) words.push(`--${name.replaceAll('_', '-')}`)
      else words.push(`--${name.replaceAll('_', '-')}`, one)
    }
  }
  return [...words, ...named, '-o', 'json']
}

interface Schema {
  $ref?: string
  type?: string | string[]
  properties?: Record<string, Schema>
  additionalProperties?: Schema | boolean
  items?: Schema
  anyOf?: Schema[]
  oneOf?: Schema[]
}

interface Document {
  paths: Record<string, Record<string, { responses: Record<string, { content?: Record<string, unknown> }> }>>
  components: { schemas: Record<string, Schema> }
}

const document = JSON.parse(readFileSync(new URL('../../../schemas/openapi/v1.json', import.meta.url), 'utf8')) as Document

// unknown returns those of some pointers that lead to no field of an operation's answer, by the document of the API. A table
// shows a dash for a field that is gone, which nobody would notice.
export function unknown(path: string, pointers: string[]): string[] {
  const answer = document.components.schemas[`answer.${path.replace('/api/v1/', '').replaceAll('/', '-')}`]
  return pointers.filter((p) => !leads(answer, p.split('/').slice(lines(path) ? 2 : 1)))
}

// lines reports whether an answer is a document on each line. The document of the API describes one.
function lines(path: string): boolean {
  return document.paths[path]?.['get']?.responses['200']?.content?.['application/x-ndjson'] !== undefined
}

function leads(schema: Schema | undefined, [name, ...rest]: string[]): boolean {
  if (!schema) return false
  if (schema.$ref) return leads(document.components.schemas[schema.$ref.replace('#/components/schemas/', '')], name === undefined ? [] : [name, ...rest])
  if (name === undefined) return true
  if ((schema.anyOf ?? schema.oneOf)?.some((s) => leads(s, [name, ...rest]))) return true
  if (schema.items) return /^\d+$/.test(name) && leads(schema.items, rest)
  const any = typeof schema.additionalProperties === 'object' ? schema.additionalProperties : undefined
  const further = schema.properties?.[name] ?? any
  return further ? leads(further, rest) : !schema.type && !schema.properties && !schema.anyOf && !schema.oneOf // anything, such as the event of a record
}

const answers = new Map<string, Promise<unknown>>()

// answered returns what the command answers, and asks it once.
export function answered(site: Answering, path: string, query: string): Promise<unknown> {
  const key = `${site.origin} ${path} ${query}`
  const known = answers.get(key)
  if (known) return known
  const asked = ask(site, path, args(path, JSON.parse(query) as Record<string, unknown>))
  answers.set(key, asked)
  return asked
}

// exact keeps the digits of numbers that JavaScript does not hold.
function exact(text: string): unknown {
  const digits = (_: string, value: unknown, { source }: { source: string }) => (typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value) ? source : value)
  return JSON.parse(text, digits as (key: string, value: unknown) => unknown)
}

async function ask(site: Answering, path: string, words: string[]): Promise<unknown> {
  let text: string
  try {
    text = await site.answer([...words, '--limit', '0']) // all rows, of commands that have a limit
  } catch {
    text = await site.answer(words)
  }
  return lines(path) ? text.trimEnd().split('\n').filter(Boolean).map(exact) : exact(text)
}

// found returns what a pointer leads to in an answer, as text.
export function found(data: unknown, pointer: string): string {
  let value = data
  for (const step of pointer.split('/').slice(1)) value = (value as Record<string, unknown> | null | undefined)?.[step.replaceAll('~1', '/').replaceAll('~0', '~')]
  return value === null || value === undefined ? '' : String(value)
}

const scale: Record<string, [per: bigint, unit: string]> = { 'gpu-hours': [3_600_000n, ''], permille: [10n, '%'], micros: [1000n, ' ms'] }

// misread says why a text is not what a value is written as; '' if it is. It reads the text back, and does not format the value.
export function misread({ value, text, as }: Seen): string {
  if (value === '') return text === '–' ? '' : `nothing is written as ${text}`
  if (as === 'time' || as === 'text') return text.startsWith(value.slice(0, 10)) || as === 'text' ? '' : `${value} is written as ${text}`
  if (as === 'fraction') return Math.abs(Number(text.replace('%', '')) / 100 - Number(value)) <= 0.00051 ? '' : `${value} is written as ${text}`
  const [per, unit] = scale[as] ?? [1n, '']
  const number = text.endsWith(unit) ? text.slice(0, text.length - unit.length).replaceAll(',', '') : 'NaN'
  const [places, want, got] = common(value, number)
  if (got === null || want === null) return `${value} is written as ${text}`
  // got × per is within half of the last written place of want
  const written = (number.split('.')[1] ?? '').length
  const off = got * per - want
  const half = (per * 10n ** BigInt(places - written)) / 2n
  return (off < 0n ? -off : off) <= half ? '' : `${value} is written as ${text}`
}

// common returns two decimals as whole numbers of the same number of places.
function common(a: string, b: string): [number, bigint | null, bigint | null] {
  const places = Math.max(...[a, b].map((x) => (x.split('.')[1] ?? '').length), 6)
  const whole = (x: string) => (/^-?\d+(\.\d+)?$/.test(x) ? BigInt(x.replace('.', '') + '0'.repeat(places - (x.split('.')[1] ?? '').length)) : null)
  return [places, whole(a), whole(b)]
}
