import { asOf } from './ask'
import { shown } from './question.svelte'

// Changes follow the position of the log while a page is open. What is shown stays until whoever looks asks for the new: figures
// that change under one's eyes cannot be read, and nothing is decided from a page that is old.
class Changes {
  #newest = $state.raw(0n) // records of the log, as far as is known
  #seen = $state.raw(0n) // of them, when whoever looks asked for the new last
  // newer reports whether something that is shown, and is not as of the past, was answered before the newest records.
  newer = $derived(
    this.#newest > this.#seen &&
      [...shown].some((q) => {
        const of = q.again && q.answer && !('as_of' in q.answer.query && q.answer.query.as_of) ? asOf(q.answer) : '' // work is not done again by itself
        return of !== '' && records(of) < this.#newest
      }),
  )

  // follow follows changes until the returned function is called.
  follow(): () => void {
    let wait: ReturnType<typeof setTimeout> | undefined
    const open = () => {
      const events = new EventSource('/api/v1/changes')
      events.addEventListener('change', (e: MessageEvent<string>) => {
        const { position } = JSON.parse(e.data) as { position: string }
        this.#newest = records(position)
      })
      // A browser connects again if a line breaks, and not if it is refused, as by a server that has no place.
      events.onerror = () => {
        if (events.readyState === EventSource.CLOSED) wait = setTimeout(() => (now = open()), 30_000)
      }
      return events
    }
    let now = open()
    return () => {
      clearTimeout(wait)
      now.close()
    }
  }

  // show asks again for everything that is shown.
  show(): void {
    this.#seen = this.#newest
    for (const q of shown) q.again?.()
  }
}

export const changes = new Changes()

// records returns how many records a position has seen. Who asked what is not counted: no answer on a page changes by it.
export function records(position: string): bigint {
  return position.split(',').reduce((n, p) => (p.startsWith('qm.access/') ? n : n + BigInt(p.slice(p.indexOf('=') + 1) || 0)), 0n)
}
