import { ask, type Data } from './api/ask'

// Estate is what one can ask about, and how far the data reaches. Pages show the time until then, unless one chooses another.
class Estate {
  overview = $state.raw<Data<'/api/v1/overview'> | null>(null)
  #turn = 0

  // until is where telemetry ends; without any, now.
  get until(): string {
    return this.overview?.until ?? new Date().toISOString()
  }

  // month is the last month with a bill, as YYYY-MM.
  get month(): string {
    return before(this.overview?.reaches.billing ?? this.until, 1).slice(0, 7)
  }

  get clusters(): string[] {
    return (this.overview?.clusters ?? []).map((c) => c.cluster)
  }

  get workspaces(): string[] {
    return (this.overview?.workspaces ?? []).map((w) => w.workspace)
  }

  get regions(): string[] {
    return [...new Set((this.overview?.clusters ?? []).flatMap((c) => c.region ?? []))].sort()
  }

  get providers(): string[] {
    return [...new Set((this.overview?.clusters ?? []).flatMap((c) => c.provider ?? []))].sort()
  }

  get models(): string[] {
    return [...new Set((this.overview?.clusters ?? []).flatMap((c) => (c.gpus ?? []).map((g) => g.model)))].sort()
  }

  async read(asOf: string): Promise<void> {
    const turn = ++this.#turn
    const { data } = await ask('/api/v1/overview', { as_of: asOf })
    if (turn === this.#turn) this.overview = data // not that of a position before
  }
}

export const now = new Estate()

// before returns the date of an instant, or some days before it. The start of a day counts to the day before.
export function before(instant: string, days: number): string {
  return new Date(Date.parse(instant) - days * 86_400_000).toISOString().slice(0, 10)
}
