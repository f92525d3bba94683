// Saved are the views that somebody keeps in this browser: an address with a name.
export interface Saved {
  name: string
  href: string
}

const place = 'views'

class Views {
  all = $state.raw<Saved[]>(read())

  // save keeps an address under a name, instead of what had the name before.
  save(name: string, href: string): void {
    this.#keep([...this.all.filter((v) => v.name !== name), { name, href }].sort((a, b) => a.name.localeCompare(b.name)))
  }

  forget(name: string): void {
    this.#keep(this.all.filter((v) => v.name !== name))
  }

  #keep(all: Saved[]): void {
    this.all = all
    localStorage.setItem(place, JSON.stringify(all))
  }
}

// read reads what is kept. What another program wrote there counts as nothing, and an address is one of this site.
function read(): Saved[] {
  try {
    const all = JSON.parse(localStorage.getItem(place) ?? '[]') as Saved[]
    return all.filter((v) => typeof v.name === 'string' && typeof v.href === 'string' && /^\/(?!\/)/.test(v.href))
  } catch {
    return []
  }
}

export const views = new Views()
