import { untrack } from 'svelte'
import { SvelteSet } from 'svelte/reactivity'
import { ask, more, Problem, type Answer, type Query, type Reading } from './ask'
import { session } from '../session.svelte'
import { view } from '../view.svelte'

// shown are the answers that the page shows: its bar names their positions.
export const shown = new SvelteSet<{ readonly answer: { path: string; query: object; data: unknown; notes: string[] } | null; again?(): void }>()

// Question asks an operation, and again whenever what it asks changes. While it asks, the answer before stays. If another
// question is refused, it goes: it would be taken for that of what is refused. A question is made while a component is set up,
// and ends with it.
export class Question<P extends Reading> {
  answer = $state.raw<Answer<P> | null>(null)
  problem = $state.raw<Problem | null>(null)
  alone = $state.raw<Problem | null>(null) // why the answer is not compared
  asking = $state(true)
  #again = $state(0)
  #more: AbortController | null = null

  // of returns what to ask; null: nothing yet.
  constructor(path: P, of: () => Query<P> | null) {
    const query = $derived(of())
    const against = $derived(query && 'as_of' in query ? view.get('against') : '')
    const again = $derived.by(() => this.#again) // a field that is read in a constructor is not followed otherwise
    const key = $derived(query && JSON.stringify([query, against, again])) // the address changes more often
    $effect(() => (key ? untrack(() => this.#ask(path, query, against)) : undefined))
    $effect(() => {
      if (session.turn > 0) untrack(() => this.problem?.status === 401 && this.again())
    })
    $effect(() => {
      shown.add(this)
      return () => shown.delete(this)
    })
  }

  // ask asks, until the returned function is called.
  #ask(path: P, query: Query<P> | null, against: string): (() => void) | undefined {
    if (!query) return
    const ends = new AbortController()
    this.#more?.abort()
    this.asking = true
    const other = against ? ask(path, { ...query, as_of: against }, ends.signal).catch((e: unknown) => problemIn(e)) : null
    Promise.all([ask(path, query, ends.signal), other]).then(
      ([answer, other]) => {
        this.alone = other instanceof Problem ? other : null
        this.#take(other && !(other instanceof Problem) ? { ...answer, against: other } : answer)
      },
      (e: unknown) => !ends.signal.aborted && this.#fail(e, query),
    )
    return () => ends.abort()
  }

  again(): void {
    this.#again++
  }

  // more adds the rows of the next page, or many, to the list of the answer; '': the answer is the list.
  async more(list: string, many: boolean): Promise<void> {
    const before = this.answer
    if (!before?.next) return
    this.#more?.abort()
    const ends = (this.#more = new AbortController())
    this.asking = true
    try {
      const next = await more(before, many, ends.signal)
      const rows = (of: Answer<P>) => (list ? (of.data as Record<string, unknown[]>)[list] : (of.data as unknown[])) ?? []
      const all = [...rows(before), ...rows(next)]
      this.#take({ ...before, next: next.next, data: (list ? { ...(before.data as object), [list]: all } : all) as typeof before.data })
    } catch (e) {
      if (!ends.signal.aborted) this.#fail(e)
    }
  }

  #take(answer: Answer<P>): void {
    this.answer = answer
    this.problem = null
    this.asking = false
  }

  #fail(e: unknown, asked: Query<P> | null = null): void {
    this.problem = problemIn(e)
    this.asking = false
    if (this.problem.status === 401) void session.ended() // what is typed stays; after a login it is asked again
    else if (asked && JSON.stringify(asked) !== JSON.stringify(this.answer?.query)) this.answer = null
  }
}

function problemIn(e: unknown): Problem {
  return e instanceof Problem ? e : new Problem(0, 'unavailable', String(e))
}
