import { address, problemOf, Problem, read, said, send, type Answer, type Data, type Query, type Working } from './ask'
import type { components } from './document'
import { shown } from './question.svelte'
import { session } from '../session.svelte'

type State = components['schemas']['Work']

// Document is a file that is sent with a question, which names it.
export type Document = components['schemas']['Document']

const ended = (state: State) => ['done', 'failed', 'cancelled'].includes(state.state)

// Work is an operation whose answer takes long. It is made while a component is set up, and is cancelled with it. While it is
// done again, the answer before stays.
export class Work<P extends Working> {
  state = $state.raw<State | null>(null) // as the server last said
  answer = $state.raw<Answer<P> | null>(null)
  problem = $state.raw<Problem | null>(null)
  busy = $state(false)
  #at = '' // path of the work
  #events: EventSource | null = null
  #turn = 0 // of the last that was begun; what belongs to one before is left out

  constructor(readonly path: P) {
    $effect(() => {
      shown.add(this)
      return () => {
        shown.delete(this)
        void this.cancel()
      }
    })
  }

  // begin begins the work, and ends what is being done. It returns when there is an answer or a problem.
  async begin(query: Query<P>, documents: Document[] = []): Promise<void> {
    await this.cancel()
    const turn = ++this.#turn
    this.problem = null
    this.busy = true
    try {
      const begun = await send(address(this.path, query), {
        method: 'POST',
        ...(documents.length > 0 ? { headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ documents }) } : {}),
      })
      if (!begun.ok) throw await problemOf(begun)
      const at = begun.headers.get('Location') ?? ''
      if (turn !== this.#turn) return end(at)
      this.#at = at
      this.state = (await begun.json()) as State
      const state = await this.#follow(at)
      if (turn !== this.#turn) return
      if (state.problem) throw said(state.problem)
      if (state.state === 'cancelled') throw new Problem(409, 'conflict', 'The work was ended. Begin it again.')
      const answered = await send(`${at}/answer`)
      if (!answered.ok) throw await problemOf(answered)
      const text = await answered.text()
      const data = read(text) as Data<P>
      if (turn === this.#turn) this.answer = { path: this.path, query, data, text, notes: state.notes ?? [], next: null, work: at }
    } catch (e) {
      if (turn !== this.#turn) return
      this.problem = e instanceof Problem ? e : new Problem(0, 'unavailable', String(e))
      if (this.problem.status === 401) void session.ended()
    } finally {
      if (turn === this.#turn) {
        this.busy = false
        this.state = null
        this.#at = ''
      }
    }
  }

  // cancel ends the work, if it is not done.
  async cancel(): Promise<void> {
    this.#turn++
    this.#events?.close()
    const at = this.#at
    this.#at = ''
    this.busy = false
    this.state = null
    if (at) await end(at)
  }

  // follow keeps the state until the work has ended. The browser connects again by itself, and names the last event that
  // it has.
  #follow(at: string): Promise<State> {
    return new Promise((resolve, reject) => {
      const events = new EventSource(`${at}/events`)
      this.#events = events
      events.addEventListener('work', (event: MessageEvent<string>) => {
        const state = JSON.parse(event.data) as State
        this.state = state
        if (!ended(state)) return
        events.close()
        resolve(state)
      })
      events.onerror = () => {
        if (events.readyState !== EventSource.CLOSED) return
        // The answer was not a stream: the work has ended, is not known any more, or may not be seen.
        send(at).then(async (response) => {
          if (response.status === 404) throw new Problem(404, 'incomplete', 'The server does not know the work any more. Begin it again.')
          if (!response.ok) throw await problemOf(response)
          resolve((await response.json()) as State)
        }).catch(reject)
      }
    })
  }
}

async function end(at: string): Promise<void> {
  await fetch(at, { method: 'DELETE', keepalive: true }).catch(() => {})
}
