#!/usr/bin/env bash
# A user's first hour with Quartermaster: every answer below is computed from
# events in a log that this script fills. The files are made up, in the columns
# of public data sets. The home is thrown away at the end; KEEP=1 keeps it.
set -euo pipefail
cd "$(dirname "$0")/first-hour"
PATH="$(cd ../../.. && pwd)/bin:$PATH"
QUARTERMASTER_HOME="$(mktemp -d)"
export QUARTERMASTER_HOME
if [[ -z ${KEEP:-} ]]; then
  trap 'rm -rf "$QUARTERMASTER_HOME"' EXIT
else
  trap 'echo "the home is $QUARTERMASTER_HOME"' EXIT
fi

say() { printf '\n# %s\n' "$1"; }
run() {
  printf '$ quartermaster %s\n' "$*"
  quartermaster "$@"
}

say 'Declare an estate. The first decision in a new home makes a first operator.'
run apply -f estate.yaml
say 'Import machines, workloads, a few days of use, demand and prices.'
run import nodes nodes.csv --cluster attic --epoch 2026-05-01
run import pods pods.csv --cluster attic --workspace research --epoch 2026-05-01
run import usage usage.csv --cluster earth --zone UTC --gpu-model V100
run import demand demand.csv --cluster earth --zone UTC
run import prices prices.csv
say 'Import a file again: nothing twice.'
run import usage usage.csv --cluster earth --zone UTC --gpu-model V100
say 'What there is, who used it, which models run.'
run fleet --at 2026-05-04
run usage --by workspace --from 2026-05-01 --to 2026-05-04
run models --at 2026-05-04
say 'Rebuild everything from the log, and compare it with the live rows.'
run log stats
run log replay --verify
