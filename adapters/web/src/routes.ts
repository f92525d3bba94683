import type { Component } from 'svelte'

// Route is a page. Its code is loaded when one goes there.
export interface Route {
  path: string
  title: string
  key?: string // g and this letter go there
  load: () => Promise<{ default: Component }>
}

export const routes: Route[] = [
  { path: '/fleet', title: 'Fleet', key: 'f', load: () => import('./pages/Fleet.svelte') },
  { path: '/models', title: 'Models', key: 'm', load: () => import('./pages/Models.svelte') },
  { path: '/costs', title: 'Costs', key: 'c', load: () => import('./pages/Costs.svelte') },
  { path: '/plan', title: 'Plan', key: 'p', load: () => import('./pages/Plan.svelte') },
  { path: '/what-if', title: 'What-if', key: 'w', load: () => import('./pages/WhatIf.svelte') },
  { path: '/audit', title: 'Audit', key: 'a', load: () => import('./pages/Audit.svelte') },
  { path: '/gpu', title: 'Machine', load: () => import('./pages/Gpu.svelte') },
  { path: '/alerts', title: 'Alerts', key: 'l', load: () => import('./pages/Alerts.svelte') },
  { path: '/admin', title: 'Admin', key: 'd', load: () => import('./pages/Admin.svelte') },
]

// routeOf returns the page of a path; the first is that of the root.
export function routeOf(path: string): Route | undefined {
  return path === '/' ? routes[0] : routes.find((r) => r.path === path)
}
