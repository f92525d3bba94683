import type { components } from '../../api/document'

type Run = components['schemas']['usage.MapRun']

// Kind is what a character of the map stands for, and how it is drawn: a token of the design system, and how strong.
export interface Kind {
  text: string
  token: string
  strength: number
}

const digits = Array.from({ length: 10 }, (_, n): [string, Kind] => [String(n), { text: n === 9 ? '90% and more' : `${n * 10} to ${n * 10 + 9}%`, token: '--accent', strength: 0.12 + n * 0.098 }])

export const kinds: Record<string, Kind> = {
  ...Object.fromEntries(digits),
  a: { text: 'allocated', token: '--accent', strength: 0.8 },
  h: { text: 'held, not measured', token: '--third', strength: 0.6 },
  b: { text: 'busy without a holder', token: '--second', strength: 0.9 },
  i: { text: 'idle', token: '--second', strength: 0.35 },
  f: { text: 'failed', token: '--alert', strength: 1 },
  m: { text: 'maintenance', token: '--third', strength: 1 },
  p: { text: 'not provisioned', token: '--quiet', strength: 0.5 },
  u: { text: 'not observed', token: '--quiet', strength: 0.2 },
  '-': { text: 'not in service', token: '--quiet', strength: 0.05 },
}

// Column is a node on the map.
export interface Column {
  run: Run
  n: number // within the run
}

// columns returns the nodes of runs, in order.
export function columns(runs: readonly Run[]): Column[] {
  return runs.flatMap((run) => Array.from({ length: run.nodes }, (_, n) => ({ run, n })))
}

// nodeOf returns the name of a node: names of a run count up, with at least as many digits as the first.
export function nodeOf({ run, n }: Column): string {
  const number = run.first === undefined || run.first === '' ? '' : String(BigInt(run.first) + BigInt(n)).padStart(run.first.length, '0')
  return `${run.prefix}${number}${run.suffix ?? ''}`
}

// cellsOf returns the characters of a node, by the index of the GPU.
export function cellsOf({ run, n }: Column): string {
  return run.cells.slice(n * run.places, (n + 1) * run.places)
}
