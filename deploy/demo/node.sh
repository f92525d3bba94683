#!/usr/bin/env bash
# A GPU node from end to end, on a machine without GPUs. dcgm-collector reads a simulated
# DCGM. node-reporter spools the readings and delivers them through the gateway into an
# embedded log. Then a GPU falls off the bus and comes back, the gateway is killed and
# restarted, and the fleet shows each fault once, and its end.
#
# Needs a C compiler and the programs in bin/.
set -euo pipefail
cd "$(dirname "$0")/../.."

fault_within=${FAULT_WITHIN:-30} # seconds; generous, because test machines may be busy
run=$(mktemp -d)
pids=()
end() {
	for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
	wait 2>/dev/null || true
	rm -rf "$run"
}
trap end EXIT

qm() { bin/quartermaster --data-dir "$run/home" --quiet "$@"; }
die() { # die MESSAGE: prints the message and the end of the programs' logs
	echo "demo-node: $*"
	tail -n 20 "$run"/*.log
	exit 1
}
await() { # await SECONDS WHAT COMMAND...: until the command succeeds
	local by=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $by ] || die "timed out waiting for $what"
		sleep 0.1
	done
}

echo '== a cluster and its key'
cat >"$run/estate.yaml" <<'EOF'
apiVersion: quartermaster/v1
kind: Estate
workspace: platform
effective_from: 2026-01-01
workspaces:
  - {id: research, name: Research}
regions:
  - {id: eu, country: NL}
EOF
qm apply -f "$run/estate.yaml" >/dev/null
qm cluster register lab --provider own --class owned --region eu --key-file "$run/key"

address=127.0.0.1:0
serve() { # serve: starts the service; its gateway keeps its address across restarts
	# A port that was just released may need a moment.
	bin/quartermaster --data-dir "$run/home" serve --listen 127.0.0.1:0 --gateway "$address" >>"$run/serve.log" 2>&1 &
	service=$!
	pids+=("$service")
	await 30 'the service' grep -q 'msg="caught up"' "$run/serve.log"
	address=$(sed -nE 's/.*accepting events from nodes" address=([^ ]+).*/\1/p' "$run/serve.log" | tail -n 1)
}
serve
echo "the gateway listens at $address"

echo
echo '== a node of eight simulated GPUs'
printf 'gpus 8\nmodel NVIDIA H100 80GB HBM3\nseed 7\n' >"$run/scenario"
: >"$run/control"
echo '* research llm-training job-1' >"$run/holders"
cat >"$run/node.yaml" <<EOF
cluster: lab
node: gpu-node-1
interval: 2s
gateway: {url: "http://$address", key_file: $run/key}
spool: {dir: $run/spool}
collector: {command: $PWD/bin/dcgm-collector, engine: embedded}
attribution: {static: $run/holders, unmapped: unmapped}
register: {enabled: true, provider: own, billing_model: owned, sku: H100x8}
listen: "off"
EOF
mkdir -m 700 "$run/spool"
LD_LIBRARY_PATH=bin/simdcgm SIMDCGM_SCENARIO=$run/scenario SIMDCGM_CONTROL=$run/control \
	bin/node-reporter run --config "$run/node.yaml" >"$run/node.log" 2>&1 &
pids+=($!)
seen() { qm fleet --cluster lab -o json | grep -q '"last_telemetry"'; }
await 60 'the first sample of the node' seen
qm fleet --cluster lab --nodes

echo
echo '== GPU 3 falls off the bus (XID 79)'
begin=$(date +%s%N)
printf 'recovery 3 2\nxid 3 79\nlost 3\n' >>"$run/control"
broken() { qm fleet --cluster lab -o json | grep -q 'xid 79 at'; }
await "$fault_within" 'the fault in the fleet' broken
echo "in the fleet after $((($(date +%s%N) - begin) / 1000000)) ms, including the start of the command:"
qm fleet --cluster lab --nodes

echo
echo '== after a reset GPU 3 is back'
printf 'found 3\nrecovery 3 0\n' >>"$run/control"
mended() { [ "$(qm fleet --cluster lab -o json | grep -c '"state": "ok"')" = 1 ]; }
await 60 'the end of the fault in the fleet' mended
qm fleet --cluster lab

echo
echo '== the gateway is killed, another GPU fails, the gateway comes back'
kill -9 "$service"
wait "$service" 2>/dev/null || true
printf 'recovery 5 1\nxid 5 48\n' >>"$run/control"
sleep 3 # until the fault is in the spool and delivery has failed
: >"$run/serve.log"
serve
second() { qm fleet --cluster lab -o json | grep -q 'xid 48 at'; }
await 60 'the second fault in the fleet' second
sent() { qm log export --topic qm.hardware | grep -c "\"kind\":\"xid\",\"code\":$1,"; }
for xid in 79 48; do
	n=$(sent $xid) || die "XID $xid is not in the log"
	[ "$n" = 1 ] || echo "XID $xid was sent $n times"
done
[ "$(qm fleet --cluster lab -o json | grep -c '"[^"]* xid 48 at [^"]*",\?$')" = 1 ] || die 'XID 48 does not count once'
echo 'XID 48 counts once'

echo
echo '== an operator declares that GPU 5 is repaired'
qm node return lab/gpu-node-1 --reason 'reset by hand'
await 10 'the end of the fault in the fleet' mended
qm usage --by workspace --from "$(date -u +%FT%H:00:00Z)" --to "$(date -u -d "+1 hour" +%FT%H:00:00Z)"
qm log replay --verify
