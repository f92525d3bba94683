// Small edits of a scenario's text that leave all other lines as they are. Only the server reads YAML: this finds values
// where scenarios usually have them, and what it does not find is edited in the text.

// Entry is a value of a mapping, and where it is in the text.
export interface Entry {
  key: string
  value: string
  from: number
  to: number
}

// Item is an element of a list: a mapping in braces, or one entry a line.
export interface Item {
  entries: Entry[]
  from: number
  to: number
}

// top returns the entries of the document.
export function top(text: string): Entry[] {
  return block(text, 0, text.length, 0)
}

// find returns an entry by its key.
export function find(entries: Entry[], key: string): Entry | undefined {
  return entries.find((e) => e.key === key)
}

// inside returns the entries of a value that is a mapping.
export function inside(text: string, of: Entry | undefined): Entry[] {
  if (!of) return []
  return text[of.from] === '{' ? braces(text, of.from, of.to) : block(text, of.from, of.to, indent(text, of.from))
}

// items returns the elements of a value that is a list with one element after each dash.
export function items(text: string, of: Entry | undefined): Item[] {
  if (!of) return []
  const dashes = [...text.slice(of.from, of.to).matchAll(/^( *)- +/gm)].filter((d, _, all) => d[1]?.length === all[0]?.[1]?.length)
  return dashes.map((d, i) => {
    const from = of.from + d.index + d[0].length
    const to = trimmed(text, from, i + 1 < dashes.length ? of.from + (dashes[i + 1]?.index ?? 0) : of.to)
    return { from, to, entries: text[from] === '{' ? braces(text, from, to) : block(text, from, to, d[0].length) }
  })
}

// put returns the text with another value.
export function put(text: string, of: Entry, value: string): string {
  return text.slice(0, of.from) + value + text.slice(of.to)
}

// set returns the text with an entry of the document, which is added if there is none.
export function set(text: string, key: string, value: string): string {
  const of = find(top(text), key)
  if (of) return put(text, of, value)
  const before = find(top(text), 'kind') ?? find(top(text), 'apiVersion')
  const at = before ? lineEnd(text, before.to) : 0
  return `${text.slice(0, at)}${at > 0 && text[at - 1] !== '\n' ? '\n' : ''}${key}: ${value}\n${text.slice(at)}`
}

// add returns the text with one more element of a list.
export function add(text: string, list: string, element: string): string {
  const of = find(top(text), list)
  if (!of || of.value === '' || of.value === '[]') return set(text, list, `\n  - ${element}`).replace(`${list}: \n`, `${list}:\n`)
  const dash = /^( *)- /m.exec(text.slice(of.from, of.to))
  const at = lineEnd(text, of.to)
  return `${text.slice(0, at)}${text[at - 1] === '\n' ? '' : '\n'}${dash?.[1] ?? '  '}- ${element}\n${text.slice(at)}`
}

// extend returns the text with one more entry of an element.
export function extend(text: string, of: Item, key: string, value: string): string {
  if (text[of.from] === '{') return `${text.slice(0, of.to - 1)}${of.entries.length > 0 ? ', ' : ''}${key}: ${value}${text.slice(of.to - 1)}`
  return `${text.slice(0, of.to)}\n${' '.repeat(column(text, of.from))}${key}: ${value}${text.slice(of.to)}`
}

// quoted writes text as a value.
export function quoted(value: string): string {
  return /^[A-Za-z][\w ./|-]*$/.test(value) && !/^(true|false|null|yes|no|on|off)$/i.test(value) ? value : JSON.stringify(value)
}

// unquoted reads a value that is text.
export function unquoted(value: string): string {
  if (/^'.*'$/s.test(value)) return value.slice(1, -1).replaceAll("''", "'")
  try {
    return value.startsWith('"') ? (JSON.parse(value) as string) : value
  } catch {
    return value
  }
}

// place returns where a line and column are in the text; both count from 1, and column 0 is the whole line.
export function place(text: string, line: number, at: number): { from: number; to: number } {
  const lines = text.split('\n')
  const start = Math.min(text.length, lines.slice(0, line - 1).reduce((n, l) => n + l.length + 1, 0))
  const end = start + (lines[line - 1]?.length ?? 0)
  return at > 0 ? { from: Math.min(start + at - 1, end), to: end } : { from: start, to: end }
}

const lineEnd = (text: string, at: number) => (text.indexOf('\n', at) < 0 ? text.length : text.indexOf('\n', at) + 1)
const column = (text: string, at: number) => at - (text.lastIndexOf('\n', at - 1) + 1)
const indent = (text: string, at: number) => /^ */.exec(text.slice(text.lastIndexOf('\n', at - 1) + 1))?.[0].length ?? 0

// trimmed returns the end of a range without the blank and comment lines after it.
function trimmed(text: string, from: number, to: number): number {
  return from + text.slice(from, to).replace(/(\n[ \t]*(#[^\n]*)?)*$/, '').length
}

// block returns the entries of a mapping with an entry a line, at an indentation.
function block(text: string, from: number, to: number, at: number): Entry[] {
  const keys = [...text.slice(from, to).matchAll(/(?<=^|\n)( *)([A-Za-z_]\w*):(?=[ \n]|$)[ ]*/g)].filter((k) => (k.index === 0 ? column(text, from) + (k[1]?.length ?? 0) : (k[1]?.length ?? 0)) === at)
  return keys.map((k, i) => {
    const begin = from + k.index + k[0].length
    let end = trimmed(text, begin, i + 1 < keys.length ? from + (keys[i + 1]?.index ?? 0) : to)
    const line = text.slice(begin, end)
    if (!line.includes('\n') && !/^['"{[]/.test(line)) end = begin + line.replace(/\s+#.*$/, '').length
    return { key: k[2] ?? '', value: text.slice(begin, end), from: begin, to: end }
  })
}

// braces returns the entries of a mapping in braces.
function braces(text: string, from: number, to: number): Entry[] {
  const entries: Entry[] = []
  let depth = 0
  let quote = ''
  let start = from + 1
  for (let i = from; i < to; i++) {
    const c = text[i] ?? ''
    if (quote) {
      if (c === quote) quote = ''
      continue
    }
    if ((c === '"' || c === "'") && /[\s:,[{]/.test(text[i - 1] ?? ' ')) quote = c
    else if ('{['.includes(c)) depth++
    else if ('}]'.includes(c)) depth--
    if ((c === ',' && depth === 1) || (depth === 0 && i > from)) {
      const part = /^(\s*)([A-Za-z_]\w*):(\s*)/.exec(text.slice(start, i))
      if (part) {
        const begin = start + part[0].length
        const value = text.slice(begin, i).trimEnd()
        entries.push({ key: part[2] ?? '', value, from: begin, to: begin + value.length })
      }
      start = i + 1
      if (depth === 0) break
    }
  }
  return entries
}
