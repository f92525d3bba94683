#!/usr/bin/env bash
# An OpenID provider of another make, for tests of logins: oidc-provider, on Node. Nothing of it is in the repository but
# idp-node, which pins the versions.
#
#   idp-node.sh install [DIR]             installs it, and prints its folder
#   idp-node.sh start PORT REDIRECT...    serves it at http://localhost:PORT
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${QM_DEV_HOME:-$([ "$(id -u)" = 0 ] && echo /var/cache || echo "${XDG_CACHE_HOME:-$HOME/.cache}")/quartermaster/dev}

install() {
	local dir=${1:-$home/idp-node}
	mkdir -p "$dir"
	cp "$here"/idp-node/{idp.mjs,package.json,package-lock.json} "$dir"
	if ! cmp -s "$dir/package-lock.json" "$dir/node_modules/.installed"; then
		npm ci --prefix "$dir" --ignore-scripts --no-audit --no-fund >&2
		cp "$dir/package-lock.json" "$dir/node_modules/.installed"
	fi
	echo "$dir"
}

case ${1:-} in
install) install "${2:-}" ;;
start)
	dir=$(install)
	exec node --no-warnings "$dir/idp.mjs" "${@:2}"
	;;
*)
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
