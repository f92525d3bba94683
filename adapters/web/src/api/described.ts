import { problemOf, send } from './ask'

// Words are what the document of the API says of a value.
export interface Words {
  field: string
  operation: string
}

interface Schema {
  $ref?: string
  description?: string
  properties?: Record<string, Schema>
  additionalProperties?: Schema | boolean
  items?: Schema
  anyOf?: Schema[]
}

interface Document {
  paths: Record<string, Record<string, { description?: string; 'x-answer'?: Schema; responses: Record<string, { content: Record<string, { schema: Schema }> }> }>>
  components: { schemas: Record<string, Schema> }
}

let read: Promise<Document> | undefined

// described returns what the document of the API says of the value that a pointer leads to.
export async function described(path: string, pointer: string): Promise<Words> {
  read ??= load()
  const document = await read
  const operation = document.paths[path]?.['get'] ?? document.paths[path]?.['post']
  let schema = resolve(document, operation?.['x-answer'] ?? operation?.responses['200']?.content['application/json']?.schema)
  let field = ''
  for (const step of pointer.split('/').slice(1)) {
    const further = /^\d+$/.test(step) && schema?.items ? schema.items : (schema?.properties?.[step] ?? extra(schema))
    schema = resolve(document, further)
    field = further?.description ?? schema?.description ?? ''
  }
  return { field, operation: (operation?.description ?? '').replaceAll(/(?<!\n)\n(?!\n|[- ])/g, ' ') }
}

// load reads the document. If that fails, the next who asks tries again.
async function load(): Promise<Document> {
  try {
    const response = await send('/api/v1/openapi.json')
    if (!response.ok) throw await problemOf(response)
    return (await response.json()) as Document
  } catch (e) {
    read = undefined
    throw e
  }
}

function extra(schema: Schema | undefined): Schema | undefined {
  return typeof schema?.additionalProperties === 'object' ? schema.additionalProperties : undefined
}

function resolve(document: Document, schema: Schema | undefined): Schema | undefined {
  for (let depth = 0; schema && depth < 8; depth++) {
    const further = schema.$ref ? document.components.schemas[schema.$ref.replace('#/components/schemas/', '')] : schema.anyOf?.find((s) => s.$ref ?? s.properties)
    if (!further) return schema
    schema = further
  }
  return schema
}
