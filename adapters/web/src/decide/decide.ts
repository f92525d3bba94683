import { Problem, problemOf } from '../api/ask'
import type { components } from '../api/document'
import { session } from '../session.svelte'
import { sign, type Key } from './key'

export type Proposed = components['schemas']['Proposed']

// Deciding is a command that decides, with what it is given.
export interface Deciding {
  command: string // its words
  title: string // what one does, in words
  parameters: Record<string, string | string[] | boolean>
  documents?: { name: string; text: string }[]
}

// propose asks what a decision would do. It changes nothing.
export async function propose(d: Deciding, key: Key): Promise<Proposed> {
  const parameters = Object.fromEntries(Object.entries(d.parameters).filter(([, v]) => v !== ''))
  return send<Proposed>('POST', '/api/v1/decisions', { command: d.command, parameters, documents: d.documents ?? [], public_key: key.shown })
}

// decide signs what was proposed, and appends it.
export async function decide(p: Proposed, key: Key): Promise<components['schemas']['DecidedProposal']> {
  const messages = (p.events ?? []).map((e) => e.message)
  const signatures = await Promise.all(messages.map((m) => sign(key, m)))
  return send('PUT', `/api/v1/decisions/${encodeURIComponent(p.id ?? '')}`, { seal: p.seal, messages, signatures })
}

async function send<T>(method: string, path: string, body: unknown): Promise<T> {
  let response: Response
  try {
    response = await fetch(path, { method, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) })
  } catch {
    throw new Problem(0, 'unavailable', 'The server cannot be reached. What you typed is still here.')
  }
  if (response.status === 401) void session.ended()
  if (!response.ok) throw await problemOf(response)
  return (await response.json()) as T
}
