#!/usr/bin/env bash
# Production on one machine. Starts a real Apache Kafka and a real Postgres and runs the tests
# that need them. Then runs the demo through three instances while broker, database and
# instances are stopped and killed. Compares the rows with those of an in-memory fold of the
# same log, and cleans up.
#
#   integration.sh            everything
#   integration.sh docs       only the commands of docs/operate/production.md, on the default ports
#   integration.sh tests      only the tests and a short crash campaign
#   integration.sh demo       only the demo
#   integration.sh pages      only the pages in a browser, on the demo
#   integration.sh access     only a day of customers, finance and an auditor, who ask three instances over the API
#
# With CI_LONG=1 the tests also start three brokers and kill them.
set -euo pipefail
cd "$(dirname "$0")/../.."
what=${1:-all}
go=${GO:-go}
kafka_port=${KAFKA_PORT:-29092} postgres_port=${POSTGRES_PORT:-25432}

run=$(mktemp -d)
chmod 755 "$run" # the database's user must be able to enter it
kafka() { deploy/dev/kafka.sh "$@" --dir "$run/kafka" --port "$kafka_port"; }
postgres() { deploy/dev/postgres.sh "$@" --dir "$run/postgres" --port "$postgres_port"; }
declare -A serving=() # process ids by instance

cleanup() {
	local status=$?
	set +e
	for name in "${!serving[@]}"; do kill -9 "${serving[$name]}" 2>/dev/null; done
	if [ "$status" != 0 ]; then
		for log in "$run"/*.log; do echo "--- the end of ${log##*/}"; tail -n 25 "$log"; done
		rivals
	fi
	kafka clean >/dev/null 2>&1
	postgres clean >/dev/null 2>&1
	rm -rf "$run"
	exit "$status"
}
trap cleanup EXIT

# Prints the last log lines of the instances of a failed campaign, and then why it failed.
rivals() {
	local said log
	said=$(sed -n 's/.*what the rivals said is in //p' "$run/campaign" 2>/dev/null)
	[ -d "$said" ] || return
	find "$said" -maxdepth 1 -name '*.log' -printf '%T@ %p\n' | sort -n | tail -n 4 | while read -r _ log; do
		echo "--- the end of ${log##*/}"
		tail -n 6 "$log" | cut -c 1-500
	done
	grep -F 'FAILED: ' "$run/campaign"
}

say() { printf '%4d s  %s\n' "$SECONDS" "$*"; }
fail() { say "FAILED: $*"; exit 1; }

# ---- docs/operate/production.md, as printed ------------------------------------------

ready() {
	for _ in {1..300}; do
		if curl -fsS http://127.0.0.1:7070/readyz 2>/dev/null; then return; fi
		sleep 0.1
	done
	return 1
}

# Copies the commands from the page and runs them on the default ports, in a separate data
# directory. Servers that a developer runs on these ports are not touched.
page=docs/operate/production.md
docs() {
	local port home=$run/dev installed
	for port in 19092 15432; do
		if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
			say "$page is NOT tested: port $port is taken"
			return
		fi
	done
	say "the commands of $page, as printed"
	deploy/dev/kafka.sh install >"$run/docs.log" 2>&1
	installed=${QM_DEV_HOME:-$([ "$(id -u)" = 0 ] && echo /var/cache || echo "${XDG_CACHE_HOME:-$HOME/.cache}")/quartermaster/dev}
	mkdir -p "$home" "$run/first"
	chmod 755 "$home"
	ln -s "$installed"/kafka-* "$home"
	ln -s "$PWD/deploy" "$run/first/deploy"
	sed -n '/^```sh production$/,/^```$/{/^```/!p}' "$page" >"$run/first/lines"
	[ "$(wc -l <"$run/first/lines")" -ge 6 ] || fail "$page has no commands"
	# serve runs in the background, and the next command waits until it is ready.
	{
		declare -f ready
		sed -E 's/^(quartermaster serve [^#]*).*/\1 \&\necho $! >pid; ready/' "$run/first/lines"
	} >"$run/first/script"
	local failed=''
	(
		export QM_DEV_HOME=$home QUARTERMASTER_DATA_DIR=$run/first/home PATH=$PWD/bin:$PATH
		cd "$run/first"
		exec bash -eu script
	) >>"$run/docs.log" 2>&1 || failed=1
	if [ -s "$run/first/pid" ]; then kill "$(cat "$run/first/pid")" 2>/dev/null || true; fi
	QM_DEV_HOME=$home deploy/dev/kafka.sh clean
	QM_DEV_HOME=$home deploy/dev/postgres.sh clean
	[ -z "$failed" ] || fail "the commands of $page"
}
case $what in all | docs | tests) docs ;; esac
[ "$what" != docs ] || exit 0

say 'starting Apache Kafka and Postgres'
kafka start >"$run/kafka.log" 2>&1 || fail 'Apache Kafka did not start'
postgres start >"$run/postgres.log" 2>&1 || fail 'Postgres did not start'
QM_KAFKA_BROKERS=$(kafka brokers)
QM_POSTGRES_DSN=$(postgres dsn)
QM_POSTGRES_SH=$PWD/deploy/dev/postgres.sh
export QM_KAFKA_BROKERS QM_POSTGRES_DSN QM_POSTGRES_SH
if [ -n "${CI_LONG:-}" ]; then export QM_KAFKA_SH=$PWD/deploy/dev/kafka.sh; fi

# On an Apache Kafka of its own, because it kills an instance and reads everybody's requests in the log.
access() {
	say 'a day of customers, finance and an auditor'
	QM_KAFKA_SH=$PWD/deploy/dev/kafka.sh "$go" test -count=1 -v -run '^TestProductionStory$' ./cmd/quartermaster
}

"$go" build -C deploy/dev/idp -trimpath -o "$run/idp" .
if [ "$what" != demo ] && [ "$what" != pages ]; then
	say 'installing identity providers of two makes'
	deploy/dev/idp-node.sh install >"$run/idp-node.log" 2>&1 || fail 'oidc-provider was not installed'
	export QM_IDP=$run/idp QM_IDP_NODE=$PWD/deploy/dev/idp-node.sh
	if [ "$what" = access ]; then
		access
		exit 0
	fi
	say 'tests against both servers'
	# In parallel, because each package has its own server and waits most of the time.
	"$go" test -count=1 -timeout 20m ./adapters/kafka ./adapters/postgres
	"$go" test -count=1 -timeout 20m -run '^TestProduction|^TestProjection|^TestScript$/^projection$' ./cmd/quartermaster
	say 'the API, asked by its own document'
	deploy/dev/schemathesis.sh ${CI_LONG:+600}
	say 'a broker that loses the end of its log, on a server of its own'
	QM_KAFKA_SH=$PWD/deploy/dev/kafka.sh "$go" test -count=1 -run '^TestLostTail$' ./adapters/kafka
	QM_KAFKA_SH=$PWD/deploy/dev/kafka.sh "$go" test -count=1 -run '^TestProductionLost$/^Kafka$' ./cmd/quartermaster
	access
	say 'a short crash campaign, on servers of its own'
	make crash RESULTS= 2>&1 | tee "$run/campaign"
fi
[ "$what" != tests ] || exit 0

# ---- The demo through three instances --------------------------------------------

say 'three instances on an empty log'
umask 077
printf '%s' "$QM_POSTGRES_DSN" >"$run/dsn"
cat >"$run/quartermaster.yaml" <<YAML
kafka:
  brokers: [$QM_KAFKA_BROKERS]
  replication: 1
postgres:
  dsn_file: $run/dsn
snapshots: $run/snapshots
lease: 2s
schedules: {advice: off}
YAML
qm() { QUARTERMASTER_DATA_DIR=$run/home bin/quartermaster "$@" --config "$run/quartermaster.yaml"; }
qm generation migrate
start() { # start NAME...
	for name in "$@"; do
		QUARTERMASTER_DATA_DIR=$run/home QUARTERMASTER_INSTANCE=$name \
			bin/quartermaster serve --config "$run/quartermaster.yaml" --listen 127.0.0.1:0 >>"$run/$name.log" 2>&1 &
		serving[$name]=$!
	done
}
end() { # end SIGNAL NAME: sends a signal to an instance and waits for its end
	kill "-$1" "${serving[$2]}"
	wait "${serving[$2]}" 2>/dev/null || [ "$1" = KILL ] || fail "instance $2 did not end well"
	unset "serving[$2]"
}
owners() { # prints the instance of each partition, one per line
	qm generation status -o json | sed -nE 's/^ *"instance": "(.*)",?$/\1/p' | sed 's/^$/nobody/'
}
# Waits until exactly the named instances fold all partitions.
folded_by() { # folded_by NAME...
	local want deadline=$((SECONDS + 60))
	want=$(printf '%s\n' "$@" | sort | tr '\n' ' ')
	until [ "$(owners 2>/dev/null | sort -u | tr '\n' ' ')" = "$want" ]; do
		[ $SECONDS -lt $deadline ] || fail "partitions are not folded by $want but by $(owners | sort | uniq -c | tr '\n' ' ')"
		sleep 0.2
	done
	say "folded by $want"
}
# The pages, by people who log in. The program may have been built without.
pages() {
	[ -f adapters/web/pages/index.html ] || { say 'the pages are NOT tested: make web builds them'; return; }
	say 'the pages in a browser'
	QM_WEB_CONFIG=$run/quartermaster.yaml QM_IDP=$run/idp QUARTERMASTER=$PWD/bin/quartermaster QUARTERMASTER_DATA_DIR=$run/demo \
		QM_WEB_POSTGRES="$PWD/deploy/dev/postgres.sh --dir $run/postgres --port $postgres_port" adapters/web/build/test.sh test/production.test.ts
}
mkdir "$run/snapshots"
if [ "$what" = pages ]; then
	start a
	folded_by a
	qm demo --once --quiet --data-dir "$run/demo" >"$run/demo.log" 2>&1
	pages
	end TERM a
	exit 0
fi
start a b c
folded_by a b c
qm config check

say 'the demo, with trouble in the middle'
trouble() {
	sleep 3
	end KILL a
	say 'killed a'
	start a
	sleep 2
	kafka restart >>"$run/kafka.log" 2>&1
	say 'restarted Apache Kafka'
	sleep 2
	postgres immediate >>"$run/postgres.log" 2>&1
	postgres start >>"$run/postgres.log" 2>&1
	say 'stopped Postgres at once and started it'
	kill -STOP "${serving[b]}"
	sleep 4
	kill -CONT "${serving[b]}"
	say 'froze b for longer than its lease'
}
qm demo --once --quiet --data-dir "$run/demo" >"$run/demo.log" 2>&1 &
demo=$!
trouble
runs=1
# An interrupted demo resumes where it stopped. Nothing is counted twice.
until wait "$demo"; do
	[ $runs -lt 5 ] || fail 'the demo did not finish'
	runs=$((runs + 1))
	tail -n 1 "$run/demo.log"
	qm demo --once --quiet --data-dir "$run/demo" >"$run/demo.log" 2>&1 &
	demo=$!
done
say "the demo finished in $runs runs"
grep -E 'difference|equal' "$run/demo.log" || true

pages

say 'another program writes in transactions, aborts one, and writes a batch that is too large'
QM_SERVING_CONFIG=$run/quartermaster.yaml "$go" test -count=1 -run '^TestForeignWritesWhileServing$' ./cmd/quartermaster

say 'the instances take over from one another'
folded_by a b c
end KILL a
folded_by b c
end KILL b
folded_by c
start a b
folded_by a b c
end TERM c
folded_by a b

say 'rows in Postgres beside a fold of the same log in memory'
qm log replay --verify
# Records of the other program are in quarantine, so the answer says that it is incomplete.
code=0
qm costs --period 2026-05 --by workspace >/dev/null || code=$?
[ "$code" = 0 ] || [ "$code" = 5 ] || fail "costs ended with $code"
end TERM a
end TERM b
say 'everything passed'
