import { part } from '../../view.svelte'

// eventHref returns the address of one event: topic/partition@offset, or SOURCE#ID.
export function eventHref(record: string): string {
  return part('event', { record })
}
