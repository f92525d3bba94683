import type { Answer } from '../../api/ask'

// Simulated is the answer of a scenario: a frozen one, or one that was just run.
export type Simulated = Answer<'/api/v1/simulate/show'>
export type Outcome = NonNullable<Simulated['data']['alternatives']>[number]

// short writes an amount on an axis.
export const short = (v: number) => v.toLocaleString('en', { notation: 'compact', maximumFractionDigits: 1 })
