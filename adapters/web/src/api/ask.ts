import { commands } from './commands'
import type { paths } from './document'

// Reading is every operation that answers at once.
export type Reading = {
  [P in keyof paths]: paths[P] extends { get: { responses: { 200: { content: { 'application/json': unknown } } } } } ? P : never
}[keyof paths]

type Parameters<P extends Reading> = paths[P] extends { get: { parameters: { query?: infer Q } } } ? NonNullable<Q> : Record<string, never>

// Query is what an operation may be asked. The form of the answer is not part of it.
export type Query<P extends Reading> = Omit<Parameters<P>, 'output' | 'width'>

export type Data<P extends Reading> = paths[P] extends { get: { responses: { 200: { content: { 'application/json': infer D } } } } } ? D : never

// Answer is what an operation answered, with the question.
export interface Answer<P extends Reading = Reading> {
  path: P
  query: Query<P>
  data: Data<P>
  notes: string[]
  next: string | null // path and query of the next page
}

// Problem is why there is no answer: a problem of RFC 9457, or that the server cannot be reached.
export class Problem extends Error {
  constructor(
    readonly status: number, // 0: the server did not answer
    readonly kind: string,
    detail: string,
  ) {
    super(detail)
  }
}

type Value = string | number | boolean | undefined | null | readonly string[]

// search returns a query as the API reads it. Values that are empty are left out.
export function search(query: object): URLSearchParams {
  const s = new URLSearchParams()
  for (const [name, value] of Object.entries(query) as [string, Value][]) {
    if (value === undefined || value === null || value === '' || value === false) continue
    for (const one of Array.isArray(value) ? value : [value]) s.append(name, String(one))
  }
  return s
}

// address returns path and query of a question, in a form of answer.
export function address(path: string, query: object, output = 'json'): string {
  const s = search(query)
  if (output !== 'json') s.set('output', output)
  return s.size > 0 ? `${path}?${s}` : path
}

// command returns the command that answers the same, for a shell.
export function command(path: string, query: object): string {
  const { args = [], switches = [] } = commands[path] ?? {}
  const words = ['quartermaster', ...path.replace('/api/v1/', '').split('/')]
  const last: string[] = []
  for (const [name, value] of search(query)) {
    if (name === 'cursor') continue
    const flag = `--${name.replaceAll('_', '-')}`
    if (args.includes(name)) last.push(quoted(value))
    else if (switches.includes(name)) words.push(flag)
    else words.push(flag, quoted(value))
  }
  return [...words, ...last].join(' ')
}

function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

export async function problemOf(response: Response): Promise<Problem> {
  try {
    const { type, detail } = (await response.json()) as { type: string; detail: string }
    return new Problem(response.status, type.slice(type.lastIndexOf(':') + 1), detail)
  } catch {
    return new Problem(response.status, 'unavailable', `the server answered with ${response.status}`)
  }
}

// ask asks an operation.
export async function ask<P extends Reading>(path: P, query: Query<P>, signal?: AbortSignal): Promise<Answer<P>> {
  return asked(path, query, address(path, query), signal)
}

// more asks for the page after an answer.
export async function more<P extends Reading>(of: Answer<P>, signal?: AbortSignal): Promise<Answer<P>> {
  return asked(of.path, of.query, of.next ?? '', signal)
}

async function asked<P extends Reading>(path: P, query: Query<P>, url: string, signal?: AbortSignal): Promise<Answer<P>> {
  let response: Response
  try {
    response = await fetch(url, { signal: signal ?? null, headers: { Accept: 'application/json' } })
  } catch (e) {
    if (signal?.aborted) throw e
    throw new Problem(0, 'unavailable', 'The server cannot be reached.')
  }
  if (!response.ok) throw await problemOf(response)
  const text = await response.text()
  const lines = response.headers.get('Content-Type')?.startsWith('application/x-ndjson')
  const data = (lines ? text.trimEnd().split('\n').filter(Boolean).map(read) : read(text)) as Data<P>
  return { path, query, data, notes: notesOf(response), next: nextOf(response) }
}

// read keeps whole numbers exact: those that a JavaScript number cannot hold stay text.
export function read(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text)
  return JSON.parse(text, (_, value: unknown, context?: { source: string }) =>
    typeof value === 'number' && Number.isInteger(value) && !Number.isSafeInteger(value) && context ? context.source : value,
  )
}

function notesOf(response: Response): string[] {
  const all = response.headers.get('Quartermaster-Note')
  return all ? all.split(', ').map(decodeURIComponent) : []
}

function nextOf(response: Response): string | null {
  return /<([^>]+)>;\s*rel="next"/.exec(response.headers.get('Link') ?? '')?.[1] ?? null
}

// at returns what a JSON pointer (RFC 6901) leads to.
export function at(data: unknown, pointer: string): unknown {
  let value = data
  for (const step of pointer.split('/').slice(1)) {
    value = (value as Record<string, unknown> | null)?.[step.replaceAll('~1', '/').replaceAll('~0', '~')]
  }
  return value
}
