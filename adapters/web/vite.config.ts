import { svelte } from '@sveltejs/vite-plugin-svelte'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import { defineConfig, type Plugin } from 'vite'

const out = 'pages'

// packed writes compressed copies beside each file, which the server sends as they are. Brotli is a seventh smaller, but browsers
// read it only over TLS and from their own machine.
function packed(): Plugin {
  return {
    name: 'packed',
    apply: 'build',
    buildStart() {
      for (const old of ['assets', 'page', 'index.html', 'index.html.br', 'index.html.gz']) rmSync(`${out}/${old}`, { recursive: true, force: true }) // a build that fails leaves nothing half
    },
    closeBundle() {
      if (!existsSync(`${out}/index.html`)) return
      const within = (folder: string) => readdirSync(`${out}/${folder}`).map((name) => `${out}/${folder}/${name}`)
      for (const file of [`${out}/index.html`, ...within('page'), ...within('assets')]) {
        writeFileSync(`${file}.br`, brotliCompressSync(readFileSync(file)))
        writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }))
      }
    },
  }
}

// documents writes a document for each page beside that of the root. It names the scripts and styles of the page, so that the browser
// loads them while it still loads the script that would ask for them, and the first question of every page.
function documents(): Plugin {
  return {
    name: 'documents',
    apply: 'build',
    writeBundle(_, bundle) {
      const chunks = Object.values(bundle).filter((c) => c.type === 'chunk')
      const whole = readFileSync(`${out}/index.html`, 'utf8')
      // links are those of a script and of what it imports, but for those that the document has.
      const links = (of: string, seen = new Set<string>()): string[] => {
        const c = chunks.find((c) => c.fileName === of)
        if (!c || seen.has(of) || whole.includes(of)) return []
        seen.add(of)
        const styles = [...(c.viteMetadata?.importedCss ?? [])].map((css) => `<link rel="stylesheet" crossorigin href="/${css}">`)
        return [`<link rel="modulepreload" crossorigin href="/${of}">`, ...styles, ...c.imports.flatMap((i) => links(i, seen))]
      }
      mkdirSync(`${out}/page`)
      const pages = [...readFileSync('src/routes.ts', 'utf8').matchAll(/path: '(\/[\w-]+)'.*import\('\.(\/pages\/\w+\.svelte)'\)/g)]
      if (pages.length === 0) throw new Error('src/routes.ts has no page')
      pages.forEach(([, path, source], n) => {
        const script = chunks.find((c) => c.facadeModuleId?.endsWith(`/src${source}`))
        if (!script) throw new Error(`${path} has no script`)
        const first = ['<link rel="preload" as="fetch" crossorigin href="/api/v1/overview">', ...links(script.fileName)]
        const document = whole.replace('  </head>', `    ${first.join('\n    ')}\n  </head>`)
        writeFileSync(`${out}/page${path}.html`, document)
        if (n === 0) writeFileSync(`${out}/index.html`, document)
      })
    },
  }
}

export default defineConfig({
  plugins: [svelte(), documents(), packed()],
  build: {
    outDir: out,
    emptyOutDir: false, // pages/none.html stays
    assetsInlineLimit: 0, // the Content-Security-Policy allows no data: in scripts and styles
    target: 'es2023',
    modulePreload: { polyfill: false },
    // Nearly every page has these. One file is packed better than twenty, and each has headers.
    rolldownOptions: {
      treeshake: { moduleSideEffects: [{ test: /custom-element\.js$/, sideEffects: false }] }, // no page is an element of its own
      output: {
        codeSplitting: {
          groups: [
            { name: 'shared', test: /node_modules\/svelte|vite\/|src\/(api\/(ask|changes|question)\.|[a-z.]+\.(ts|css)$|parts\/(Asked|Bar|Figure|Filters|Login|Search|Stack|Table|Tabs|Tile)\.)/ },
            { name: 'work', test: /src\/(api\/work\.|parts\/Worked\.)/ },
          ],
        },
      },
    },
  },
})
