#!/usr/bin/env bash
# Tests the pages on the demo's log, with a real server and a real browser. It needs bin/quartermaster with the pages, and
# Chromium: CHROMIUM names it, /usr/bin/chromium unless said otherwise. CI_LONG=1 adds themes and all journeys.
# With QM_WEB_CONFIG, the configuration of instances on Kafka and Postgres, test/production.test.ts asks there.
#
#   adapters/web/build/test.sh [FILE...]
set -euo pipefail
cd "$(dirname "$0")/.."
node=$(echo node_modules/node-linux-*/bin/node)
[ -x "$node" ] && [ -f pages/index.html ] || { echo 'there are no pages: make web builds them' >&2; exit 1; }
export CHROMIUM=${CHROMIUM:-/usr/bin/chromium}
if [ ! -x "$CHROMIUM" ]; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "there is no $CHROMIUM; installing it needs root and apt-get" >&2
		exit 1
	fi
	apt-get update -q && apt-get install -qy --no-install-recommends chromium fonts-dejavu-core
fi
export QUARTERMASTER=${QUARTERMASTER:-$PWD/../../bin/quartermaster}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
if [ -z "${QM_WEB_CONFIG:-}${QM_WEB_DATA:-}" ]; then
	export QM_WEB_DATA=$tmp/log
	"$QUARTERMASTER" demo --once --quiet --data-dir "$QM_WEB_DATA" >/dev/null
fi
# The identity provider where people log in, and the program that writes bad records. Tests that need them skip without Go.
built() { # built NAME FOLDER PACKAGE
	command -v "${GO:-go}" >/dev/null || return 0
	"${GO:-go}" build -C "../../$2" -trimpath -o "$tmp/$1" "$3" && echo "$tmp/$1"
}
QM_IDP=${QM_IDP:-$(built idp deploy/dev/idp .)}
QM_PLANT=${QM_PLANT:-$(built plant . ./cmd/quartermaster/testdata/plant)}
export QM_IDP QM_PLANT
files=("$@")
if [ ${#files[@]} = 0 ]; then
	"$node" node_modules/svelte-check/bin/svelte-check --fail-on-warnings --output machine
	"$node" node_modules/typescript/bin/tsc --noEmit -p test
	mapfile -t files < <(find test -name '*.test.ts' | sort)
fi
case ${files[0]} in
*.test.ts) "$node" --test --test-concurrency=2 --test-reporter=spec "${files[@]}" ;;
*) "$node" "${files[@]}" ;; # measures, or takes pictures
esac
