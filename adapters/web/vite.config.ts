import { svelte } from '@sveltejs/vite-plugin-svelte'
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
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
      for (const old of ['assets', 'index.html', 'index.html.br', 'index.html.gz']) rmSync(`${out}/${old}`, { recursive: true, force: true }) // a build that fails leaves nothing half
    },
    closeBundle() {
      if (!existsSync(`${out}/index.html`)) return
      for (const file of [`${out}/index.html`, ...readdirSync(`${out}/assets`).map((name) => `${out}/assets/${name}`)]) {
        writeFileSync(`${file}.br`, brotliCompressSync(readFileSync(file)))
        writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }))
      }
    },
  }
}

export default defineConfig({
  plugins: [svelte(), packed()],
  build: {
    outDir: out,
    emptyOutDir: false, // pages/none.html stays
    assetsInlineLimit: 0, // the Content-Security-Policy allows no data: in scripts and styles
    target: 'es2023',
    modulePreload: { polyfill: false },
    // Nearly every page has these. One file is packed better than twenty, and each has headers.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [{ name: 'shared', test: /node_modules\/svelte|vite\/|src\/(api|[a-z.]+\.ts$|parts\/(Asked|Bar|Drawer|Figure|Filters|Login|Search|Stack|Table|Tabs|Tile)\.)/ }],
        },
      },
    },
  },
})
