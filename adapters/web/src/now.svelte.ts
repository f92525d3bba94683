// now is where the data ends, which is what pages show unless one chooses another time.
export const now = $state({ until: '2026-06-01T00:00:00Z', month: '2026-05' })

// before returns the instant some days before where the data ends, as a date.
export function before(days: number): string {
  return new Date(Date.parse(now.until) - days * 86_400_000).toISOString().slice(0, 10)
}
