import { address, problemOf, Problem, send, type Fault } from '../../api/ask'
import type { components } from '../../api/document'
import { session } from '../../session.svelte'

type Scenario = components['schemas']['answer.simulate-check']

// name is that of the document that is sent.
export const name = 'scenario.yaml'
const kept = 'what-if'

// Draft is the scenario that somebody writes. It is kept in this tab, so that nothing typed is lost: not by going elsewhere,
// not when the session ends. The server says what is wrong in it.
export class Draft {
  text = $state(sessionStorage.getItem(kept) ?? '')
  faults = $state.raw<Fault[]>([])
  model = $state.raw<Scenario | null>(null) // of the text as it was last without faults
  problem = $state.raw<Problem | null>(null) // why it could not be checked
  checking = $state(false)

  constructor() {
    $effect(() => {
      const text = this.text
      sessionStorage.setItem(kept, text)
      if (text === '' || session.over) return
      const ends = new AbortController()
      // Keys come faster than answers; a few milliseconds save most questions.
      const wait = setTimeout(() => void this.#check(text, ends.signal), 20)
      return () => {
        clearTimeout(wait)
        ends.abort()
      }
    })
  }

  async #check(text: string, signal: AbortSignal): Promise<void> {
    this.checking = true
    try {
      const response = await send(address('/api/v1/simulate/check', { file: name }), {
        method: 'POST',
        headers: { 'Content-Type': 'application/json' },
        body: JSON.stringify({ documents: [{ name, text }] }),
        signal,
      })
      if (response.ok) {
        this.model = (await response.json()) as Scenario
        this.faults = []
        this.problem = null
      } else {
        const problem = await problemOf(response)
        this.faults = problem.faults
        this.problem = problem.faults.length > 0 ? null : problem
        if (problem.status === 401) void session.ended()
      }
    } catch (e) {
      if (signal.aborted) return
      this.problem = e instanceof Problem ? e : new Problem(0, 'unavailable', String(e))
    }
    this.checking = false
  }
}
