const names = ['system', 'light', 'dark'] as const
type Name = (typeof names)[number]

class Theme {
  name = $state<Name>('system')

  constructor() {
    const before = localStorage.getItem('theme') as Name | null
    if (before && names.includes(before)) this.#set(before)
  }

  // turn goes to the next theme.
  turn(): void {
    this.#set(names[(names.indexOf(this.name) + 1) % names.length] ?? 'system')
  }

  #set(name: Name): void {
    this.name = name
    localStorage.setItem('theme', name)
    if (name === 'system') delete document.documentElement.dataset['theme']
    else document.documentElement.dataset['theme'] = name
  }
}

export const theme = new Theme()
