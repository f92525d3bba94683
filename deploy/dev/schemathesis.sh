#!/usr/bin/env bash
# Asks the API what its own document says, and what it forbids: Schemathesis makes the questions,
# an example of each and then at random, alone and one after another. No answer may be a failure
# of the server, and each must be as the document describes it.
#
#   schemathesis.sh [SECONDS [SEED]]   for so long (default 80), on a fleet of its own; needs bin/quartermaster
#
# Each phase gets a quarter of the time, so that none takes that of the next: questions one after another are the last, and
# read the answers of long work. Another seed (default 1) draws other questions.
#
# Not checked: that every text is accepted where the document says string, since names, positions
# and documents have a grammar of their own.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-80} seed=${2:-1}
version=4.32.0
program=$PWD/bin/quartermaster
home=${QM_DEV_HOME:-$([ "$(id -u)" = 0 ] && echo /var/cache || echo "${XDG_CACHE_HOME:-$HOME/.cache}")/quartermaster/dev}
python=$home/schemathesis-$version

run=$(mktemp -d) serving=''
cleanup() {
	local status=$?
	set +e
	[ -z "$serving" ] || { kill "$serving" && wait "$serving"; }
	[ "$status" = 0 ] || tail -n 25 "$run/serve.log"
	rm -rf "$run"
	exit "$status"
}
trap cleanup EXIT

if ! [ -x "$python/bin/schemathesis" ]; then
	if ! python3 -c 'import ensurepip' 2>/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
		{ apt-get update -q && apt-get install -qy --no-install-recommends python3-venv; } >&2
	fi
	rm -rf "$python"
	mkdir -p "$home"
	python3 -m venv "$python"
	"$python/bin/pip" install -q "schemathesis==$version"
fi

export QUARTERMASTER_DATA_DIR=$run/home
"$program" demo --once --quiet >"$run/demo.log"
"$program" archive run --all --key "$QUARTERMASTER_DATA_DIR/operator.pem" --quiet >/dev/null # what "log prove" proves
"$program" access key issue schemathesis --key-file "$run/key" >/dev/null
"$program" access grant account:schemathesis --role admin >/dev/null
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
url=http://127.0.0.1:$port
"$program" serve --listen 127.0.0.1:0 --api "127.0.0.1:$port" >"$run/serve.log" 2>&1 &
serving=$!
header="Authorization: Bearer $(cat "$run/key")"
for _ in {1..300}; do
	curl -fsS -o "$run/first" -H "$header" "$url/api/v1/fleet" 2>/dev/null && break
	sleep 0.1
done
[ -s "$run/first" ] || { echo 'the server does not answer'; exit 1; }

cd "$run" # it writes files where it runs
ask() { # ask PHASE SECONDS
	"$python/bin/schemathesis" run "$OLDPWD/schemas/openapi/v1.json" --url "$url" --header "$header" \
		--phases "$1" --max-time "$2" --exclude-checks positive_data_acceptance \
		--max-examples 3 --seed "$seed" --no-shrink --continue-on-failure --no-color
}
failed=''
for phase in examples coverage fuzzing stateful; do
	ask "$phase" $((seconds / 4)) || failed=1
done
kill -0 "$serving" || { serving=''; echo 'the server ended'; exit 1; }
if grep -E 'panic|level=ERROR' "$run/serve.log"; then failed=1; fi
[ -z "$failed" ]
