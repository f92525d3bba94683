// How values are written. Money and counts stay digits: nothing here adds or rounds in floating point.

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 20 })

// digits writes a decimal with its digits grouped, and all of its places.
export function digits(value: string | number | bigint): string {
  const text = String(value)
  const parts = /^(-?\d+)(\.\d+)?$/.exec(text)
  if (!parts) return text
  return grouped.format(BigInt(parts[1] ?? '0')) .replace(/^0$/, text.startsWith('-0') ? '-0' : '0') + (parts[2] ?? '')
}

// scaled writes a whole number ÷ by with some places, rounded half away from zero. Anything else is written as it is.
export function scaled(value: string | number, by: bigint, places: number): string {
  if (!/^-?\d+$/.test(String(value))) return String(value)
  const n = BigInt(value)
  const scale = 10n ** BigInt(places)
  const whole = ((n < 0n ? -n : n) * scale * 2n + by) / (by * 2n)
  const text = `${whole / scale}${places > 0 ? `.${String(whole % scale).padStart(places, '0')}` : ''}`
  return digits(n < 0n && whole > 0n ? `-${text}` : text)
}

// rounded writes a decimal with some places, rounded half away from zero.
export function rounded(value: string | number, places: number): string {
  const parts = /^(-?\d+)(?:\.(\d+))?$/.exec(String(value))
  if (!parts) return String(value)
  const rest = parts[2] ?? ''
  return scaled(`${parts[1]}${rest}`, 10n ** BigInt(rest.length), places)
}

// percent writes a share as a percentage with one place. JSON writes very small and very large ones with an exponent.
function percent(share: string | number): string {
  const parts = /^(-?\d+)(?:\.(\d+))?$/.exec(String(share))
  if (!parts) return `${(Number(share) * 100).toFixed(1)}%`
  const rest = parts[2] ?? ''
  return `${scaled(`${parts[1]}${rest}00`, 10n ** BigInt(rest.length), 1)}%`
}

// Places of currencies, by ISO 4217, as domain.MinorUnits has them: a test compares the two. Browsers have those of daily life,
// where forints and rupiahs have none; bills have two.
const minor = [
  { places: 0, of: 'BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF' },
  { places: 3, of: 'BHD IQD JOD KWD LYD OMR TND' },
  { places: 4, of: 'CLF UYW' },
]
const known = new Map(minor.flatMap(({ places, of }) => of.split(' ').map((currency) => [currency, places] as const)))

// places returns how many places a currency has: yen have none, and one that is not known has two.
function places(currency: string): number {
  return known.get(currency) ?? 2
}

// Kind is how a value is written: money to the places of its currency and a price to four, so that columns align; the
// derivation has every digit. A number has all of its digits, such as an amount that the server rounded to the currency's own places.
export type Kind = 'text' | 'number' | 'count' | 'money' | 'price' | 'gpu-hours' | 'permille' | 'time' | 'fraction' | 'micros'

// written writes a value of an answer, of a currency where it is money. What is absent is a dash.
export function written(value: unknown, kind: Kind, currency = ''): string {
  if (value === null || value === undefined || value === '') return '–'
  const v = value as string | number
  switch (kind) {
    case 'number':
    case 'count':
      return digits(v)
    case 'money':
      return rounded(v, places(currency))
    case 'price':
      return rounded(v, 4)
    case 'gpu-hours':
      return scaled(v, 3_600_000n, 1)
    case 'permille':
      return `${scaled(v, 10n, 1)}%`
    case 'micros':
      return `${scaled(v, 1000n, 1)} ms`
    case 'fraction':
      return percent(v)
    case 'time':
      return time(String(v))
    default:
      return String(value)
  }
}

// time writes an instant in UTC, to the minute where it is whole.
export function time(text: string): string {
  const parts = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:\d\d)?(\.\d+)?Z$/.exec(text)
  if (!parts) return text
  const [, day, minute, second, rest] = parts
  if (minute === '00:00' && second === ':00' && !rest) return day ?? text
  return `${day} ${minute}${second === ':00' && !rest ? '' : second}${rest ?? ''}`
}

// local writes an instant in the zone of whoever looks.
export function local(text: string): string {
  return new Date(text).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'long' })
}

const words = new Intl.Collator('en')
const counting = new Intl.Collator('en', { numeric: true }) // a fifth as fast

// sortable returns a value as order reads it: numbers within text have one length, so that text is in order as people count. What
// is absent comes first.
export function sortable(value: unknown, numeric: boolean): string {
  const text = String(value ?? '')
  return numeric ? text : text.replace(/\d+/g, (digits) => digits.padStart(20, '0'))
}

// order compares sortable values: numbers by value, however many digits they have, others as text.
export function order(x: string, y: string, numeric: boolean): number {
  if (!numeric) return words.compare(x, y)
  const off = Number(x) - Number(y)
  if (off) return off
  return x.startsWith('-') && y.startsWith('-') ? counting.compare(y, x) : counting.compare(x, y)
}
