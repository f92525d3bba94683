#!/usr/bin/env bash
# Builds the pages into adapters/web/pages, which the programs embed. The packages are those of package-lock.json, with a
# Node of its own, from the registry that npm is configured for. Nothing is done if nothing has changed.
#
#   adapters/web/build/build.sh         build them
#   adapters/web/build/build.sh -try    on failure, say so and exit with 0; do not try again for ten minutes
set -euo pipefail
cd "$(dirname "$0")/.."
failed=node_modules/.failed

build() {
	if ! command -v npm >/dev/null; then
		echo 'npm is not installed (Debian: apt-get install npm)' >&2
		return 1
	fi
	if ! cmp -s package-lock.json node_modules/.installed; then
		npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1 --fetch-timeout=60000 || return 1
		cp package-lock.json node_modules/.installed
	fi
	local node
	node=$(echo node_modules/node-linux-*/bin/node)
	if [ ! -x "$node" ]; then
		echo "the registry has no Node for $(uname -sm)" >&2
		return 1
	fi
	"$node" build/document.ts && "$node" node_modules/vite/bin/vite.js build --logLevel warn
}

sources=(src build index.html package-lock.json svelte.config.js tsconfig.json vite.config.ts ../../schemas/openapi/v1.json)
if [ -f pages/index.html ] && [ -z "$(find "${sources[@]}" -newer pages/index.html -not -path src/api/document.d.ts -not -path src/api/commands.ts -print -quit)" ]; then
	exit 0
fi
if [ "${1:-}" != -try ]; then
	build
	exit
fi
if [ -n "$(find "$failed" -mmin -10 2>/dev/null)" ]; then
	echo 'continuing without the pages: building them failed lately; make web tries again' >&2
elif ! build; then
	mkdir -p node_modules && touch "$failed"
	echo 'continuing without the pages; make web builds them, and the API answers without' >&2
fi
