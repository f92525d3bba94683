import type { components, paths } from './document'

// Answered is what an operation answers with at once: a value, or a list that is sent line by line.
type Answered<P extends keyof paths> = paths[P] extends { get: { responses: { 200: { content: infer C } } } }
  ? C extends { 'application/json': infer D }
    ? D
    : C extends { 'application/x-ndjson': infer L }
      ? L[]
      : never
  : never

// Reading is every operation that answers at once.
export type Reading = { [P in keyof paths]: [Answered<P>] extends [never] ? never : P }[keyof paths]

// Working is every operation that answers when its work is done.
export type Working = {
  [P in keyof paths]: paths[P] extends { post: { responses: { 202: unknown } } } ? P : never
}[keyof paths]

export type Operation = Reading | Working

type Parameters<P extends Operation> = paths[P] extends { get: { parameters: { query?: infer Q } } }
  ? NonNullable<Q>
  : paths[P] extends { post: { parameters: { query?: infer Q } } }
    ? NonNullable<Q>
    : Record<string, never>

// Query is what an operation may be asked. The form of the answer is not part of it.
export type Query<P extends Operation> = Omit<Parameters<P>, 'output' | 'width'>

// The document names the answer of work by the words of its command.
type Noun<P extends string> = P extends `/api/v1/${infer W}` ? Joined<W> : never
type Joined<W extends string> = W extends `${infer A}/${infer B}` ? `${A}-${Joined<B>}` : W
type Done<N extends string> = components['schemas'] extends Record<N, infer D> ? D : never

export type Data<P extends Operation> = [Answered<P>] extends [never] ? Done<`answer.${Noun<P>}`> : Answered<P>

// Answer is what an operation answered, with the question.
export interface Answer<P extends Operation = Operation> {
  path: P
  query: Query<P>
  data: Data<P>
  notes: string[]
  next: string | null // path and query of the next page
  work?: string // path of the work that answered
  text?: string // of that answer, as it came: digits that a number does not hold are kept
  against?: { data: Data<P>; next: string | null } // the same as of the moment that the page is compared with
}

// Fault is what is wrong in a document that was sent, and where.
export type Fault = components['schemas']['Fault']

// Problem is why there is no answer: a problem of RFC 9457, or that the server cannot be reached.
export class Problem extends Error {
  readonly status: number // 0: the server did not answer
  readonly kind: string
  readonly faults: Fault[]

  constructor(status: number, kind: string, detail: string, faults: Fault[] = []) {
    super(detail)
    this.status = status
    this.kind = kind
    this.faults = faults
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

// quoted returns a word as a shell reads it.
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

export async function problemOf(response: Response): Promise<Problem> {
  try {
    return said((await response.json()) as Said)
  } catch {
    return new Problem(response.status, 'unavailable', `the server answered with ${response.status}`)
  }
}

type Said = components['schemas']['Problem']

// said returns a problem as the API says it.
export function said({ type = '', status, detail, faults }: Said): Problem {
  return new Problem(status, type.slice(type.lastIndexOf(':') + 1), detail, faults ?? [])
}

// send sends a request. A server that cannot be reached is a problem, too.
export async function send(url: string, request: RequestInit = {}): Promise<Response> {
  try {
    return await fetch(url, request)
  } catch (e) {
    if (request.signal?.aborted) throw e
    throw new Problem(0, 'unavailable', 'The server cannot be reached.')
  }
}

// ask asks an operation.
export async function ask<P extends Reading>(path: P, query: Query<P>, signal?: AbortSignal): Promise<Answer<P>> {
  return asked(path, query, address(path, query), signal)
}

// more asks for the page after an answer, with as many rows as that or, to sort them, with many.
export async function more<P extends Reading>(of: Answer<P>, many: boolean, signal?: AbortSignal): Promise<Answer<P>> {
  const next = of.next ?? ''
  return asked(of.path, of.query, many ? next.replace(/\blimit=\d+/, 'limit=10000') : next, signal)
}

async function asked<P extends Reading>(path: P, query: Query<P>, url: string, signal?: AbortSignal): Promise<Answer<P>> {
  const response = await send(url, { signal: signal ?? null, headers: { Accept: 'application/json' } })
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

// asOf returns the position as of which an operation answers the same for ever, '' if there is none. A recorded plan or scenario,
// and a close, have the position that they were computed at, when they were not recorded yet.
export function asOf({ path, data }: { path: string; data: unknown }): string {
  if (['/api/v1/plan/show', '/api/v1/simulate/show', '/api/v1/costs/close/show'].includes(path)) return ''
  return (data as { position?: string } | null)?.position ?? ''
}
