import { quoted, search } from './ask.ts'
import { commands } from './commands.ts'

// always are the flags that the API sets, so that nothing is recorded.
const always: Record<string, string> = { '/api/v1/plan': 'dry-run', '/api/v1/log/replay': 'verify' }

// command returns the command that answers the same, for a shell.
export function command(path: string, query: object): string {
  const { args = [], switches = [] } = commands[path] ?? {}
  const words = ['quartermaster', ...path.replace('/api/v1/', '').split('/')]
  const last: string[] = []
  if (always[path]) words.push(`--${always[path]}`)
  for (const [name, value] of search(query)) {
    if (name === 'cursor') continue
    const flag = `--${name.replaceAll('_', '-')}`
    if (args.includes(name)) last.push(quoted(value))
    else if (switches.includes(name)) words.push(flag)
    else words.push(flag, quoted(value))
  }
  return [...words, ...last].join(' ')
}
