import type { components } from '../../api/document'

type Subject = components['schemas']['advice.Subject']

// about writes a subject in words.
export function about(subject: Subject | undefined): string {
  return Object.entries(subject ?? {})
    .map(([kind, name]) => `${kind.replace('_', ' ')} ${name}`)
    .join(', ')
}
