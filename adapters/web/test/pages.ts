const allocation =
  'issuer=AWS%20%28generated%29;account=demo-0001;line=gen-demo-0001-202605-commitment/2026-05-01/gen-rented/vc-a01-000;' +
  'hour=2026-05-01T00:00:00Z;workspace=vc-a01;cluster=gen-rented;deployment=jobs;component=allocated'

// pages are the views that every shared test looks at: each page in each of its parts, on the demo's log.
export const pages = [
  '/fleet',
  '/fleet?show=map',
  '/fleet?show=health',
  '/fleet?show=stranded',
  '/fleet?by=workspace&cluster=gen-rented',
  '/models',
  '/models?search=chat',
  '/costs',
  '/costs?by=component',
  '/costs?show=unit',
  '/costs?show=explain',
  '/costs?show=explain&workspace=vc-a01',
  `/costs?show=explain&allocation=${encodeURIComponent(allocation)}`,
  '/costs?show=allocations&workspace=vc-a01&where=component%3Dunused_commitment',
  '/costs?show=invoices',
  '/costs?show=commitments',
  '/costs?show=budgets',
  '/costs?show=close',
  '/costs?show=changes',
  '/costs?show=statements',
  '/costs?show=statements&workspace=vc-a01',
  '/plan',
  '/plan?show=new',
  '/plan?show=forecast',
  '/plan?show=contract',
  '/plan?show=backtest',
  '/alerts',
  '/alerts?show=findings',
  '/alerts?show=actions',
  '/alerts?show=proposals',
  '/alerts?show=outcomes',
  '/alerts?show=waste',
  '/alerts?show=rules&rule=shadow',
]

// faulty are views of what is not there, or cannot be asked.
export const faulty = ['/fleet?from=nonsense', '/alerts?incident=i-0000000000000000', '/nowhere', '/plan?plan=plan-000000000000', '/plan?show=forecast&region=nowhere', '/models?search=nothing-has-this-name', '/costs?period=2020-01', '/costs?show=explain&workspace=nobody', '/costs?show=explain&allocation=nothing']
