import { problemOf } from './api/ask'
import type { components } from './api/document'

type Session = components['schemas']['DescribedSession']

// Providers are who one can log in with.
export type Provider = components['schemas']['LoginProvider']

class SessionState {
  who = $state.raw<Session | null>(null)
  over = $state(false) // nobody is logged in, or not any more
  turn = $state(0) // of being logged in again: what was refused meanwhile is asked again
  // Nobody was logged in, so there is nothing to show. A page whose session has ended stays, with what was typed into it.
  out = $derived(this.over && this.who === null)
  // What is not there may be what one may not see, unless one is the owner of the home.
  limited = $derived(this.who !== null && this.who.principal !== 'everyone')
  providers = $state.raw<Provider[]>([])

  // read asks who is logged in.
  async read(): Promise<void> {
    const response = await fetch('/api/v1/login/session')
    if (response.ok) {
      this.who = (await response.json()) as Session
      if (this.over) this.turn++
      this.over = false
    } else if ((await problemOf(response)).status === 401) {
      await this.ended()
    }
  }

  async ended(): Promise<void> {
    if (this.over) return
    this.over = true
    const response = await fetch('/api/v1/login').catch(() => null)
    if (response?.ok) this.providers = (await response.json()) as Provider[]
  }

  // back asks whether somebody has logged in again, in another tab.
  async back(): Promise<void> {
    if (this.over) await this.read().catch(() => {})
  }

  async logout(): Promise<void> {
    await fetch('/api/v1/login', { method: 'DELETE' })
    this.who = null
    await this.ended()
  }
}

export const session = new SessionState()
