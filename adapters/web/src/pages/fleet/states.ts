// states are the states of a GPU's seconds, with the field of "usage" that has them.
export const states = [
  ['allocated', 'allocated_gpu_ms'],
  ['busy, unattributed', 'busy_unattributed_gpu_ms'],
  ['idle', 'idle_gpu_ms'],
  ['failed', 'failed_gpu_ms'],
  ['maintenance', 'maintenance_gpu_ms'],
  ['unprovisioned', 'unprovisioned_gpu_ms'],
  ['unobserved', 'unobserved_gpu_ms'],
] as const
