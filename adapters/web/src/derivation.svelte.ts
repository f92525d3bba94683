import type { Answer } from './api/ask'
import type { Kind } from './format'

// Shown is a figure of an answer.
export interface Shown {
  of: Answer
  at: string // JSON pointer
  as: Kind
  about: string // what it is, in words
}

// derivation is the figure whose derivation is open.
export const derivation = $state<{ of: Shown | null }>({ of: null })

// explain opens the derivation of a figure.
export function explain(of: Shown): void {
  derivation.of = of
}
