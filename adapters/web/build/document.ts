// Writes what the pages take from the document of the API, schemas/openapi/v1.json: its types, so that a field that
// changed does not compile, and how each operation is written as a command.
import { readFileSync, writeFileSync } from 'node:fs'
import openapiTS, { astToString } from 'openapi-typescript'

const source = '../../schemas/openapi/v1.json'
const said = '// Made from schemas/openapi/v1.json by build/document.ts.\n'

interface Operation {
  parameters?: { name: string; in: string; description: string; schema: { type: string } }[]
}

const document = JSON.parse(readFileSync(source, 'utf8')) as { paths: Record<string, Record<string, Operation>> }

// An argument is described as "NAME of the command", and what it names may follow; everything else is a flag.
const commands: Record<string, { args: string[]; switches: string[] }> = {}
for (const [path, methods] of Object.entries(document.paths)) {
  for (const operation of Object.values(methods)) {
    const asked = (operation.parameters ?? []).filter((p) => p.in === 'query')
    const args = asked.filter((p) => / of the command(:|$)/.test(p.description)).map((p) => p.name)
    const switches = asked.filter((p) => p.schema.type === 'boolean').map((p) => p.name)
    if (args.length + switches.length > 0) commands[path] = { args, switches }
  }
}

writeFileSync('src/api/document.d.ts', said + astToString(await openapiTS(new URL(source, `file://${process.cwd()}/`))))
writeFileSync(
  'src/api/commands.ts',
  `${said}// Parameters that are arguments of the command, and those that are flags without a value, by path.\n` +
    `export const commands: Record<string, { args: string[]; switches: string[] }> = ${JSON.stringify(commands, null, 1)}\n`,
)
