#!/usr/bin/env bash
# Kills the demo with SIGKILL repeatedly while it fills a data directory, then resumes it and
# checks its promises: nothing lost, nothing counted twice, the same bytes from a replay.
# Takes the demo's flags, for example --from DIR.
set -euo pipefail
cd "$(dirname "$0")/../.."
home=$(mktemp -d)
answer=$(mktemp)
trap 'rm -rf "$home" "$answer"' EXIT

size() { # size of the log in KiB, 0 if it does not exist
  local kib
  kib=$(du -sk "$home/log" 2>/dev/null | cut -f1) || true
  echo "${kib:-0}"
}
killed=0
for kib in 500 3000 6000; do # size of the log at which to kill; its final size is about 11,000
  bin/quartermaster demo --once --quiet --data-dir "$home" "$@" >"$answer" 2>&1 &
  demo=$!
  while kill -0 "$demo" 2>/dev/null && [ "$(size)" -lt "$kib" ]; do sleep 0.02; done
  if kill -9 "$demo" 2>/dev/null; then killed=$((killed + 1)); echo "killed with $(size) KiB of log"; fi
  wait "$demo" 2>/dev/null || true
done
[ "$killed" -gt 0 ] || { echo 'every run ended before it could be killed'; exit 1; }

value() { sed -nE "s/^  \"$1\": \"?([^\",]*)\"?,?\$/\\1/p" "$answer"; }
hold() { # hold WHAT HAVE WANT
  if [ -n "$2" ] && [ "$2" = "$3" ]; then echo "$1: $2"; else echo "$1: '$2', want '$3'"; exit 1; fi
}
bin/quartermaster demo --once -o json --quiet --data-dir "$home" "$@" >"$answer"
events=$(value events)
rest=$(value imported)
digest=$(value live_digest)
echo "resumed: $rest of $events events imported"
[ "$rest" -gt 0 ] || { echo 'every kill came too late: nothing was interrupted'; exit 1; }
hold 'difference between invoices and what was attributed' "$(value difference)" 0.00
hold 'digest of a replay' "$(value replay_digest)" "$digest"
bin/quartermaster demo --once -o json --quiet --data-dir "$home" "$@" >"$answer"
hold 'events imported by one more run' "$(value imported)" 0
hold 'events in the log' "$(value events)" "$events"
hold 'digest' "$(value live_digest)" "$digest"
bin/quartermaster log replay --verify --data-dir "$home"
