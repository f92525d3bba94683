import { now } from '../../now.svelte'
import { view } from '../../view.svelte'

// month returns the billing month that is shown.
export function month(): string {
  return view.get('period') || now.month
}

// common is what every question about a month is asked with.
export function common(): { period: string; as_of: string } {
  return { period: month(), as_of: view.get('as_of') }
}

// dimensions are what costs can be grouped by here. The command knows more.
export const dimensions = ['workspace', 'component', 'provider', 'gpu_model', 'cluster', 'region', 'deployment', 'model', 'class', 'billing_model', 'service', 'owner', 'cost_centre', 'entity']
