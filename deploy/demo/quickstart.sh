#!/usr/bin/env bash
# Runs the tutorial of the first GPU node, as printed, on a machine without GPUs. The commands
# are copied from docs/tutorials/first-gpu-node.md. Only the host, the ports and the spool
# directory differ. dcgm-collector reads a simulated DCGM. The script succeeds when the node
# is in the fleet and its GPUs have hours.
#
# Needs a C compiler for the simulation, openssl, and the programs in bin/.
set -euo pipefail
cd "$(dirname "$0")/../.."

run=$(mktemp -d)
end() {
	for f in "$run"/*.pid; do [ ! -s "$f" ] || kill "$(cat "$f")" 2>/dev/null || true; done
	sleep 1
	rm -rf "$run"
}
trap end EXIT
die() { # die MESSAGE: prints the message and the end of the programs' logs
	echo "quick start: $*"
	tail -n 20 "$run"/*.log
	exit 1
}

page=docs/tutorials/first-gpu-node.md
sed -n '/^```sh node$/,/^```$/{/^```/!p}' "$page" >"$run/lines"
for line in 'make build' 'quartermaster serve ' 'node-reporter check ' 'node-reporter run '; do
	[ "$(grep -c "^$line" "$run/lines")" = 1 ] || die "$page does not have exactly one line that begins with \"$line\""
done

port=$((20000 + RANDOM % 10000))
while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port + 1)); done

await() { # await SECONDS WHAT COMMAND...: until the command succeeds
	local by=$((SECONDS + $1)) what=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		if [ $SECONDS -ge "$by" ]; then
			echo "timed out waiting for $what"
			return 1
		fi
		sleep 0.2
	done
}
serving() { grep -q 'msg="caught up"' serve.log && grep -q 'accepting events from nodes' serve.log; }
hours() { # hours KIND: milliseconds of GPU time of all workspaces
	quartermaster usage --by workspace --from "$(date -u -d '-1 day' +%FT%H:00:00Z)" --to "$(date -u -d '+1 hour' +%FT%H:00:00Z)" -o json |
		sed -nE 's/^ *"'"$1"'_gpu_ms": ([0-9]+),?$/\1/p' | tail -n 1
}
counts() {
	quartermaster fleet --cluster lab -o json >fleet.json
	grep -q '"state": "ok"' fleet.json && grep -q '"last_telemetry"' fleet.json && [ $(($(hours idle) + $(hours busy_unattributed) - $(hours undeclared))) -gt 0 ]
}
# Programs that do not end by themselves run in the background, and the next command waits
# until they are ready.
{
	declare -f await serving hours counts
	sed -E -e 's/^make build( && )?//' -e "s/(0\.0\.0\.0|quartermaster\.example):7443/127.0.0.1:$port/; s/DNS:quartermaster\.example/IP:127.0.0.1/" \
		-e "s/^(quartermaster serve [^#]*).*/\1 --listen 127.0.0.1:0 >serve.log 2>\&1 \&\necho \$! >serve.pid\nawait 60 'the service' serving/" \
		-e "s/^(node-reporter run [^#]*).*/\1 >node.log 2>\&1 \&\necho \$! >node.pid\nawait 90 'a node that counts' counts/" "$run/lines"
} >"$run/script"
mkdir "$run/bin"
ln -s "$PWD"/bin/* "$run/bin/"
printf 'gpus 8\nmodel NVIDIA H100 80GB HBM3\nseed 7\n' >"$run/scenario"
: >"$run/control"
echo "== The commands of $page, as printed"
(
	cd "$run"
	export QUARTERMASTER_DATA_DIR=$run/home NODE_REPORTER_SPOOL_DIR=$run/spool NODE_REPORTER_LISTEN=off
	export LD_LIBRARY_PATH=$run/bin/simdcgm SIMDCGM_SCENARIO=$run/scenario SIMDCGM_CONTROL=$run/control
	exec bash -eu -o pipefail script
) || die "the commands of $page did not produce a node with GPU hours"
echo
