import type { Answer } from '../../api/ask'

// Planned is a plan: a recorded one, or one that was just computed.
export type Planned = Answer<'/api/v1/plan/show'>

const rules: Record<string, string> = {
  plan: 'this plan',
  buy_nothing: 'buy nothing',
  current: 'buy nothing',
  on_demand: 'on demand under quota',
}

// rule names a simple rule that a plan is compared with.
export function rule(name: string): string {
  const parts = /^(lookback|ladder|constant|peak)_(\d+)d$/.exec(name)
  if (!parts) return rules[name] ?? name.replaceAll('_', ' ')
  const days = `last ${parts[2]} days`
  return {
    lookback: `best of the ${days}`,
    ladder: `${parts[2]} days, in twelfths`,
    constant: `${parts[2]} days, bought once`,
    peak: `peak of the ${days}`,
  }[parts[1] as 'lookback' | 'ladder' | 'constant' | 'peak']
}

// terms says what an offer is, without the machine that it is for.
export function terms(offer: string): string {
  return offer.split('/').slice(-2).join(', ').replaceAll('_', ' ').replace(/\b(\d+)m$/, '$1 months')
}
