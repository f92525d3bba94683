// pages are the views that every shared test looks at: each page in each of its parts, on the demo's log.
export const pages = [
  '/fleet',
  '/fleet?show=map',
  '/fleet?show=health',
  '/fleet?show=stranded',
  '/fleet?by=workspace&cluster=gen-rented',
  '/models',
  '/models?search=chat',
  '/alerts',
  '/alerts?show=findings',
  '/alerts?show=actions',
  '/alerts?show=proposals',
  '/alerts?show=outcomes',
  '/alerts?show=waste',
  '/alerts?show=rules&rule=shadow',
]

// faulty are views of what is not there, or cannot be asked.
export const faulty = ['/fleet?from=nonsense', '/alerts?incident=i-0000000000000000', '/nowhere', '/models?search=nothing-has-this-name']
