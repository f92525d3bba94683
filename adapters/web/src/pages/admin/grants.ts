import type { Column } from '../../parts/Table.svelte'

// grants are the columns of a list of grants, after who has them.
export const grants: Column[] = [
  { at: '/role', label: 'role' },
  { at: '/workspace', label: 'workspace' },
  { at: '/from', label: 'from', as: 'time' },
  { at: '/to', label: 'to', as: 'time' },
  { at: '/granted_by', label: 'granted by' },
  { at: '/last_used', label: 'last used', as: 'time' },
  { at: '/grant', label: 'grant' },
]
