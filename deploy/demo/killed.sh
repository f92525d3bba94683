#!/usr/bin/env bash
# Kills the demo with SIGKILL again and again while it fills a home, lets it go
# on, and holds it to what it promises: nothing lost, nothing twice, the same
# bytes from a replay. Takes the demo's flags, for example --from DIR.
set -euo pipefail
cd "$(dirname "$0")/../.."
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
answer="$home.json"
trap 'rm -rf "$home" "$answer"' EXIT

for after in 1 2.5 4; do
  bin/quartermaster demo --once --quiet --data "$home" "$@" >"$answer" 2>&1 &
  demo=$!
  sleep "$after"
  if kill -9 "$demo" 2>/dev/null; then echo "killed after $after s"; else echo "done before $after s"; fi
  wait "$demo" 2>/dev/null || true
done

value() { sed -nE "s/^  \"$1\": \"?([^\",]*)\"?,?\$/\\1/p" "$answer"; }
hold() { # hold WHAT HAVE WANT
  if [ "$2" = "$3" ]; then echo "$1: $2"; else echo "$1: $2, want $3"; exit 1; fi
}
bin/quartermaster demo --once --json --quiet --data "$home" "$@" >"$answer"
echo "went on: $(value imported) events imported of $(value events)"
events=$(value events)
digest=$(value live_digest)
hold 'difference between invoices and what was attributed' "$(value difference)" 0.00
hold 'digest of a replay' "$(value replay_digest)" "$digest"
bin/quartermaster demo --once --json --quiet --data "$home" "$@" >"$answer"
hold 'events imported by one more run' "$(value imported)" 0
hold 'events in the log' "$(value events)" "$events"
hold 'digest' "$(value live_digest)" "$digest"
bin/quartermaster log replay --verify --home "$home"
