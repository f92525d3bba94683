// Where an axis has its marks.

const day = 86_400

// step returns the least of 1, 2, 5, 10, 20 … and their tenths that is as large as something.
export function step(least: number): number {
  const ten = 10 ** Math.floor(Math.log10(least))
  return ten * ([1, 2, 5].find((n) => n * ten >= least) ?? 10)
}

// between returns the multiples of a step from one value to another.
export function between(from: number, to: number, by: number): number[] {
  const near = 1e-9 // of a step: 7 · 0.0001 / 0.0001 is less than 7
  const first = Math.ceil(from / by - near)
  return Array.from({ length: Math.max(0, Math.floor(to / by + near) - first + 1) }, (_, n) => (first + n) * by)
}

export interface Mark {
  at: number // seconds since 1970
  text: string
}

// instants returns marks between two instants, at whole hours, days or months of UTC, and not more than some.
export function instants(from: number, to: number, most: number): Mark[] {
  const least = (to - from) / Math.max(1, most)
  const by = [1, 3, 6, 12, 24, 48, 72, 168, 336].map((h) => h * 3600).find((s) => s >= least)
  if (by) return between(from, to, by).map((at) => ({ at, text: at % day === 0 ? iso(at).slice(5, 10) : iso(at).slice(11, 16) }))
  const months = [1, 2, 3, 6, 12, 24, 60, 120].find((m) => m * 30 * day >= least) ?? 1200
  const start = new Date(from * 1000)
  const all: Mark[] = []
  let month = Math.ceil(((start.getUTCFullYear() - 1900) * 12 + start.getUTCMonth()) / months) * months // since 1900
  for (let at = 0; (at = Date.UTC(0, month) / 1000) <= to; month += months) if (at >= from) all.push({ at, text: iso(at).slice(0, 7) })
  return all
}

const iso = (at: number) => new Date(at * 1000).toISOString()
