// The state of a view is its address. Filters that mean the same on every page stay when one goes to another.

export const kept = ['workspace', 'cluster', 'region', 'provider', 'gpu_model', 'from', 'to', 'as_of', 'against'] as const

class View {
  path = $state(location.pathname)
  query = $state.raw(new URLSearchParams(location.search))

  constructor() {
    addEventListener('popstate', () => this.#read())
  }

  // get returns a parameter, '' if it is not set.
  get(name: string): string {
    return this.query.get(name) ?? ''
  }

  // href returns the address of a page with the filters that are kept, and with changes.
  href(path: string, changes: Record<string, string> = {}): string {
    const q = new URLSearchParams()
    for (const [name, value] of this.query) if (path === this.path || (kept as readonly string[]).includes(name)) q.append(name, value)
    for (const [name, value] of Object.entries(changes)) {
      if (value === '') q.delete(name)
      else q.set(name, value)
    }
    return q.size > 0 ? `${path}?${q}` : path
  }

  // set changes parameters of this page.
  set(changes: Record<string, string>, replace = false): void {
    this.go(this.href(this.path, changes), replace)
  }

  // go goes to an address of this site.
  go(href: string, replace = false): void {
    if (replace) history.replaceState(null, '', href)
    else history.pushState(null, '', href)
    this.#read()
  }

  #read(): void {
    this.path = location.pathname
    this.query = new URLSearchParams(location.search)
  }
}

export const view = new View()

// part returns the address of a part of this page, with the filters that are kept, those that are named, and changes.
export function part(show: string, changes: Record<string, string | readonly string[]> = {}, keep: string[] = []): string {
  const q = new URLSearchParams()
  if (show) q.set('show', show)
  for (const [name, value] of view.query) if (((kept as readonly string[]).includes(name) || keep.includes(name)) && !(name in changes)) q.append(name, value)
  for (const [name, value] of Object.entries(changes)) for (const one of typeof value === 'string' ? [value] : value) if (one) q.append(name, one)
  return q.size > 0 ? `${view.path}?${q}` : view.path
}
