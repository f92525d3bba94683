#!/usr/bin/env bash
# Apache Kafka on this machine for development and tests, without Docker: the
# real broker in KRaft mode, one process or three. `kafka.sh --help` is the manual.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
self=${0##*/}

usage() {
	cat <<USAGE
Apache Kafka on this machine, without Docker.

Usage: $self COMMAND [BROKER...] [--option VALUE...]

Commands. Commands that take brokers act on all of them if none is named.
  install            fetch the jars with Maven and verify their checksums
  start   [BROKER]   install if needed, start, wait until the brokers answer
  stop    [BROKER]   stop cleanly; partitions are handed over first
  kill    [BROKER]   kill -9
  restart [BROKER]   stop and start
  pause   [BROKER]   freeze (SIGSTOP); clients see a broker that does not answer
  resume  [BROKER]   resume it (SIGCONT)
  check   [BROKER]   print the state of each; status 0 only if all answer
  brokers            print the addresses for clients, host:port,host:port
  clean              kill the brokers and remove the data

Options, each also an environment variable
  --port N           PORT           first port, default 19092; broker N of three listens
                                    on port+2(N-1), its controller one above
  --brokers 1|3      BROKERS        1 by default; with 3, topics get 3 replicas and
                                    acknowledged means written by 2
  --dir DIR          DIR            data of this run, default HOME/run/kafka-PORT
  --home HOME        QM_DEV_HOME    installations, shared by all runs; default
                                    $home_default
  --version V        KAFKA_VERSION  ${versions[*]}
  --heap SIZE        KAFKA_HEAP     memory of a broker's heap, default 512m
  --session SECONDS  KAFKA_SESSION  how long a broker may be silent before it counts as dead,
                                    default 9 (Kafka's default). For that long the partitions
                                    of a killed broker have no leader, and it cannot rejoin
  --wait SECONDS     KAFKA_WAIT     how long start and stop may take, default 120

The first start in a directory sets port, brokers and version, and stores them there. Later
commands need only --dir or --port.

Examples
  $self start
  QM_KAFKA_BROKERS=\$($self brokers) go test ./adapters/kafka/
  $self start --brokers 3 --port 29092 --dir /tmp/three
  $self kill 2 --dir /tmp/three
  $self start 2 --dir /tmp/three
  $self clean --dir /tmp/three
USAGE
}

die() {
	echo "$self: $*" >&2
	exit 1
}

# ---- Options -------------------------------------------------------------------

# Others cannot read root's home, and Postgres, which shares this folder, never runs as root.
if [ "$(id -u)" = 0 ]; then
	home_default=/var/cache/quartermaster/dev
else
	home_default=${XDG_CACHE_HOME:-${HOME:?}/.cache}/quartermaster/dev
fi
versions=(4.3.1 3.9.2) # the first is the default
plugin=org.apache.maven.plugins:maven-dependency-plugin:3.8.1

port=${PORT:-} brokers=${BROKERS:-} dir=${DIR:-} home=${QM_DEV_HOME:-$home_default}
version=${KAFKA_VERSION:-} heap=${KAFKA_HEAP:-512m} patience=${KAFKA_WAIT:-120}
session=${KAFKA_SESSION:-9}
command='' ids=()
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage; exit ;;
	--port | --brokers | --dir | --home | --version | --heap | --session | --wait)
		[ $# -ge 2 ] || die "$1 needs a value"
		case $1 in
		--port) port=$2 ;;
		--brokers) brokers=$2 ;;
		--dir) dir=$2 ;;
		--home) home=$2 ;;
		--version) version=$2 ;;
		--heap) heap=$2 ;;
		--session) session=$2 ;;
		--wait) patience=$2 ;;
		esac
		shift ;;
	--port=* | --brokers=* | --dir=* | --home=* | --version=* | --heap=* | --session=* | --wait=*)
		set -- "${1%%=*}" "${1#*=}" "${@:2}"
		continue ;;
	-*) die "unknown option $1; see $self --help" ;;
	*) if [ -z "$command" ]; then command=$1; else ids+=("$1"); fi ;;
	esac
	shift
done
[ -n "$command" ] || { usage >&2; exit 2; }
case $command in
install | start | stop | kill | restart | pause | resume | check | brokers | clean) ;;
*) die "unknown command $command; see $self --help" ;;
esac
[[ $patience =~ ^[1-9][0-9]*$ ]] || die "--wait $patience is not a number of seconds"
[[ $session =~ ^[1-9][0-9]*$ ]] || die "--session $session is not a number of seconds"

absolute() { realpath -m -- "$1"; } # also for a path that does not exist
home=$(absolute "$home")
[ -z "$dir" ] && dir=$home/run/kafka-${port:-19092}
dir=$(absolute "$dir")

# The settings of the first start are kept. Other settings later are an error.
remember() { # remember NAME GIVEN DEFAULT
	local kept=''
	[ -f "$dir/settings" ] && kept=$(sed -n "s/^$1=//p" "$dir/settings")
	if [ -n "$kept" ] && [ -n "$2" ] && [ "$2" != "$kept" ]; then
		die "$dir was made with $1 $kept, not $2: choose another --dir, or $self clean --dir $dir"
	fi
	echo "${kept:-${2:-$3}}"
}
port=$(remember port "$port" 19092)
brokers=$(remember brokers "$brokers" 1)
version=$(remember version "$version" "${versions[0]}")
[[ $port =~ ^[1-9][0-9]{0,4}$ && $port -le 65530 ]] || die "--port $port is not a port below 65530"
case $brokers in 1 | 3) ;; *) die "--brokers $brokers: 1 or 3" ;; esac
sums=$here/kafka/$version.sha256
[ -f "$sums" ] || die "no list of checksums for Kafka $version: there are ${versions[*]}"
libs=$home/kafka-$version

[ ${#ids[@]} -gt 0 ] && chosen=1 || chosen=''
for id in "${ids[@]}"; do
	[[ $id =~ ^[1-3]$ && $id -le $brokers ]] || die "there is no broker $id of $brokers"
done
[ -n "$chosen" ] || for ((id = 1; id <= brokers; id++)); do ids+=("$id"); done

port_of() { echo $((port + 2 * ($1 - 1))); }
addresses() {
	local all='' id
	for ((id = 1; id <= brokers; id++)); do all+=,127.0.0.1:$(port_of "$id"); done
	echo "${all#,}"
}

# ---- Installation --------------------------------------------------------------

java_fits() {
	local full
	full=$("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | sed -nE 's/.* version "([0-9][^"]*)".*/\1/p') || return 1
	[ -n "$full" ] && [ "${full%%.*}" -ge 17 ] || return 1
	classes=$home/kafka-$version-java-$full.classes
}

tools() { # tools JAVA [MAVEN]: installs what is missing, or says what to install
	local missing=()
	java_fits || missing+=(openjdk-17-jre-headless)
	[ $# -lt 2 ] || command -v mvn >/dev/null || missing+=(maven)
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		die "needs Java 17 or later and Maven; missing, by their Debian names: ${missing[*]}"
	fi
	echo "installing ${missing[*]}"
	apt-get update -q >&2 || die 'apt-get update failed'
	if [ "${missing[0]}" = openjdk-17-jre-headless ] && ! apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then
		missing[0]=default-jre-headless
	fi
	DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}" >&2 ||
		die "could not install ${missing[*]}"
	java_fits || die "Java 17 or later is needed; found: $("${JAVA_HOME:+$JAVA_HOME/bin/}java" -version 2>&1 | head -n 1)"
}

# Compares a folder with the list, both ways.
verify() {
	(cd "$1" && find . -name '*.jar' -printf '%P\n' | LC_ALL=C sort | xargs -r sha256sum --) |
		awk -v self="$self" -v list="$sums" '
			function say(jar, what) { print self ": " jar " " what >"/dev/stderr"; bad = 1 }
			BEGIN { while ((getline line <list) > 0) { split(line, part); want[part[2]] = part[1] } }
			!($2 in want) { say($2, "with SHA-256 " $1 " is not in the list"); next }
			want[$2] != $1 { say($2, "has SHA-256 " $1 ", not " want[$2]) }
			{ delete want[$2] }
			END { for (jar in want) say(jar, "is missing"); exit bad }'
}

install() {
	if [ -d "$libs" ]; then
		tools java
		verify "$libs" || die "the jars in $libs are not those of $sums: remove that folder and install again"
		return
	fi
	tools java maven
	mkdir -p "$home"
	exec 8>"$home/lock"
	flock 8
	if [ ! -d "$libs" ]; then # another process may have installed it meanwhile
		echo "fetching Kafka $version"
		local fresh=$libs.fresh
		rm -rf "$fresh"
		# Maven checks the repository's checksums (-C). Our list decides.
		local arguments=(-q -B -C -Dstyle.color=never -f "$here/kafka/pom.xml" "$plugin:copy-dependencies"
			"-Dkafka.version=$version" -DincludeScope=runtime "-DoutputDirectory=$fresh")
		case $version in 3.*) arguments+=(-Dreload4j) ;; esac
		mvn "${arguments[@]}" 2>&1 8>&- | sed $'s/\e\\[0m//g' >&2 || die "Maven could not fetch Kafka $version; its settings name the repository"
		if ! verify "$fresh"; then
			rm -rf "$fresh"
			die "Maven fetched other jars than those of $sums: nothing was installed"
		fi
		mv "$fresh" "$libs"
	fi
	exec 8>&-
	echo "Kafka $version is installed in $libs"
}

# ---- One broker ----------------------------------------------------------------

properties() { echo "$dir/broker-$1/server.properties"; }

pid_of() { # prints the process id of a running broker; ignores an id that was reused
	local pid arguments
	pid=$(cat "$dir/broker-$1/pid" 2>/dev/null) && [ -n "$pid" ] || return 1
	# A process shows no arguments once it is dead (a zombie), and for a moment while
	# it becomes Java: on a busy machine that moment is long.
	until arguments=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/cmdline") && [ -n "$arguments" ]; do
		grep -q '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" 2>/dev/null || return 1
		sleep 0.02
	done
	# The last argument is the path of the settings file, as it was given at the start.
	[ "$(realpath -m -- "${arguments##*$'\n'}")" = "$(properties "$1")" ] || return 1
	echo "$pid"
}

# Sets only what a small machine and the number of brokers require. Everything else is Kafka's
# default. Above all, the operating system flushes data: an acknowledged record survives the
# death of a broker process, but the loss of a machine only with three brokers.
configure() {
	local id=$1 voters='' n replicas=$brokers
	for ((n = 1; n <= brokers; n++)); do voters+=,$n@127.0.0.1:$(($(port_of "$n") + 1)); done
	mkdir -p "$dir/broker-$id/logs"
	cat >"$(properties "$id")" <<PROPERTIES
process.roles=broker,controller
node.id=$id
controller.quorum.voters=${voters#,}
listeners=PLAINTEXT://127.0.0.1:$(port_of "$id"),CONTROLLER://127.0.0.1:$(($(port_of "$id") + 1))
advertised.listeners=PLAINTEXT://127.0.0.1:$(port_of "$id")
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=$dir/broker-$id/data

# Topics are created explicitly, with their settings.
auto.create.topics.enable=false
default.replication.factor=$replicas
min.insync.replicas=$((replicas / 2 + 1))
offsets.topic.replication.factor=$replicas
transaction.state.log.replication.factor=$replicas
transaction.state.log.min.isr=$((replicas / 2 + 1))
share.coordinator.state.topic.replication.factor=$replicas
share.coordinator.state.topic.min.isr=$((replicas / 2 + 1))

broker.session.timeout.ms=$((session * 1000))
broker.heartbeat.interval.ms=$((session * 2000 / 9))

# Fewer internal partitions, and groups that do not wait 3 s for more members.
offsets.topic.num.partitions=10
transaction.state.log.num.partitions=10
group.initial.rebalance.delay.ms=0
PROPERTIES
	[ "$version" = "${version#3.}" ] || sed -i '/^share\./d' "$(properties "$id")"
	if [ ! -f "$dir/broker-$id/data/meta.properties" ]; then
		# Formatted in a temporary directory that is then moved, so that no half-formatted data is used.
		rm -rf "$dir/broker-$id/fresh"
		sed "s|^log.dirs=.*|log.dirs=$dir/broker-$id/fresh|" "$(properties "$id")" >"$dir/broker-$id/format.properties"
		java_line "$id"
		"${line[@]}" -Xmx128m kafka.tools.StorageTool format -t "$(sed -n 's/^cluster=//p' "$dir/settings")" \
			-c "$dir/broker-$id/format.properties" >"$dir/broker-$id/logs/format.log" 2>&1 ||
			die "format the data of broker $id: $(tail -n 3 "$dir/broker-$id/logs/format.log")"
		mv "$dir/broker-$id/fresh" "$dir/broker-$id/data"
		rm "$dir/broker-$id/format.properties"
	fi
}

java_line() { # sets line to the Java command for a broker, without the class to run
	line=("${JAVA_HOME:+$JAVA_HOME/bin/}java" "-Dquartermaster.logs=$dir/broker-$1/logs"
		"-Dlog4j2.configurationFile=$here/kafka/log4j2.properties"
		"-Dlog4j.configuration=file:$here/kafka/log4j.properties"
		-Djava.awt.headless=true -cp "$libs/*")
}

launch() { # in a separate session, so that Ctrl-C in a test does not reach the broker
	local id=$1
	java_line "$id"
	# Half of a start is the loading of classes. The first broker that stops cleanly saves them
	# in an archive that Java maps into memory.
	rm -f "$dir/broker-$id/classes"
	if [ -f "$classes" ]; then
		line+=("-XX:SharedArchiveFile=$classes")
	else
		line+=("-XX:ArchiveClassesAtExit=$dir/broker-$id/classes")
	fi
	# The process writes its id before it becomes Java, so a running broker always has a pid file.
	rm -f "$dir/broker-$id/pid"
	# shellcheck disable=SC2016 # expanded by the inner shell
	setsid bash -c 'echo $$ >"$1/pid"; shift; exec "$@"' start "$dir/broker-$id" \
		"${line[@]}" "-Xms$heap" "-Xmx$heap" -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
		-XX:InitiatingHeapOccupancyPercent=35 -XX:+ExitOnOutOfMemoryError -Xlog:cds=off -Xlog:cds+dynamic=off kafka.Kafka "$(properties "$id")" \
		</dev/null >"$dir/broker-$id/logs/output.log" 2>&1 9>&- &
	launched+=($!) # setsid does not fork here, so this is the broker
}

# Asks a broker for the brokers of its cluster (Metadata, version 1, no topics) and prints
# their ids. A broker that answers serves requests and has a controller.
ask() {
	(
		exec 3<>"/dev/tcp/127.0.0.1/$(port_of "$1")" || exit 1
		printf '\0\0\0\16\0\3\0\1\0\0\0\1\377\377\0\0\0\0' >&3
		mapfile -t b < <(timeout 3 head -c 4 <&3 | od -An -v -w1 -tu1)
		[ ${#b[@]} -eq 4 ] || exit 1
		mapfile -t b < <(timeout 3 head -c $((b[2] * 256 + b[3])) <&3 | od -An -v -w1 -tu1)
		[ ${#b[@]} -ge 8 ] || exit 1
		at=8 # after the correlation and the count: id, host, port, rack, each time
		for ((n = b[7]; n > 0; n--)); do
			echo $((b[at + 3]))
			at=$((at + 4))
			at=$((at + 2 + b[at] * 256 + b[at + 1] + 4))
			if [ $((b[at])) = 255 ]; then at=$((at + 2)); else at=$((at + 2 + b[at] * 256 + b[at + 1])); fi
		done
	) 2>/dev/null
}

answers() {
	local listed
	listed=$(ask "$1") && grep -qx "$1" <<<"$listed"
}

# ---- Commands ------------------------------------------------------------------

lock() { # one command at a time in a directory
	mkdir -p "$dir" || die "cannot make $dir"
	exec 9>"$dir/lock"
	flock -w "$patience" 9 || die "another command has been at work in $dir for $patience seconds"
}

start() {
	install
	lock
	if [ ! -f "$dir/settings" ]; then
		printf '%s\n' "port=$port" "brokers=$brokers" "version=$version" \
			"cluster=$(head -c 16 /dev/urandom | base64 | tr '+/' 'AB' | cut -c 1-22)" >"$dir/settings.fresh"
		mv "$dir/settings.fresh" "$dir/settings"
	fi
	local id started=() begin=$SECONDS
	launched=()
	for id in "${ids[@]}"; do
		if pid_of "$id" >/dev/null; then continue; fi
		if (exec 3<>"/dev/tcp/127.0.0.1/$(port_of "$id")") 2>/dev/null; then
			die "port $(port_of "$id") is taken by another program: choose another --port"
		fi
		configure "$id"
		started+=("$id")
	done
	trap undo EXIT
	for id in "${started[@]}"; do launch "$id"; done
	# All named brokers must answer, including those that ran before.
	for id in "${ids[@]}"; do
		until answers "$id"; do
			if [ -s "$dir/broker-$id/pid" ] && ! pid_of "$id" >/dev/null; then
				tail -n 5 "$dir/broker-$id/logs/output.log" "$dir/broker-$id/logs/server.log" >&2 || true
				die "broker $id exited immediately; see $dir/broker-$id/logs"
			fi
			if [ $((SECONDS - begin)) -ge "$patience" ]; then
				die "broker $id did not answer within $patience s; see $dir/broker-$id/logs"
			fi
			sleep 0.1
		done
	done
	trap - EXIT
	echo "Kafka $version answers at $(addresses)"
}

undo() { # cleans up after a failed or interrupted start
	local pid
	for pid in "${launched[@]}"; do
		kill -9 "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
}

signal() { # signal NAME: sends a signal to running brokers, and names those that do not run
	local id pid
	for id in "${ids[@]}"; do
		if pid=$(pid_of "$id"); then kill -s "$1" "$pid"; elif [ -n "$chosen" ]; then echo "broker $id does not run"; fi
	done
}

gone() { # gone SECONDS: waits until the processes have ended
	local id begin=$SECONDS
	for id in "${ids[@]}"; do
		while pid_of "$id" >/dev/null; do
			[ $((SECONDS - begin)) -lt "$1" ] || return 1
			sleep 0.05
		done
		known "$id"
		rm -f "$dir/broker-$id/pid"
	done
}

# Fails if a broker may still run in the directory that its pid file does not name, for example
# because it was started in another way. Nothing is removed then.
known() {
	local id=$1 pid arguments
	for pid in /proc/[0-9]*; do
		arguments=$(tr '\0' '\n' 2>/dev/null <"$pid/cmdline") || continue
		case $arguments in *kafka.Kafka*) ;; *) continue ;; esac
		[ "$(realpath -m -- "${arguments##*$'\n'}")" != "$(properties "$id")" ] ||
			die "broker $id runs as process ${pid#/proc/}, but $dir/broker-$id/pid does not name it: nothing was removed; stop that process first"
	done
	if [ -e "$dir/broker-$id/pid" ] && answers "$id"; then
		die "a broker $id answers at port $(port_of "$id"), but the process in $dir/broker-$id/pid does not run: nothing was removed; stop the listening process first"
	fi
}

stop() {
	[ -d "$dir" ] || return 0
	local id
	lock
	signal TERM
	signal CONT >/dev/null # a frozen broker must resume to receive the signal
	if ! gone "$patience"; then
		signal KILL
		gone 10 || die "brokers in $dir do not end"
		die "brokers in $dir did not stop within $patience s and were killed"
	fi
	for id in "${ids[@]}"; do
		if java_fits && [ ! -f "$classes" ] && [ -f "$dir/broker-$id/classes" ] && [ -w "$home" ]; then
			mv "$dir/broker-$id/classes" "$classes.$$"
			mv "$classes.$$" "$classes"
		fi
		rm -f "$dir/broker-$id/classes"
	done
}

check() {
	local id pid all=0 listed
	for id in "${ids[@]}"; do
		if ! pid=$(pid_of "$id"); then
			echo "broker $id: does not run"
			all=1
		elif listed=$(ask "$id" | sort | paste -sd ' ') && [ -n "$listed" ]; then
			echo "broker $id: answers at 127.0.0.1:$(port_of "$id"), process $pid, $(sed -nE 's/^VmRSS:\s+([0-9]+) kB/\1/p' "/proc/$pid/status") KiB, sees brokers $listed"
		else
			echo "broker $id: runs as process $pid and does not answer"
			all=1
		fi
	done
	return "$all"
}

case $command in
install) install ;;
start) start ;;
stop) stop ;;
kill)
	[ -d "$dir" ] || exit 0
	lock
	signal KILL
	gone 10 || die "brokers in $dir do not end"
	;;
restart)
	stop
	start
	;;
pause) signal STOP ;;
resume) signal CONT ;;
check) check ;;
brokers) addresses ;;
clean)
	[ -e "$dir" ] || exit 0
	[ -f "$dir/settings" ] || [ -z "$(ls -A "$dir")" ] || [ "$(ls -A "$dir")" = lock ] ||
		die "$dir was not made by this script: not removed"
	lock
	signal KILL
	gone 10 || die "brokers in $dir do not end"
	rm -rf "$dir"
	;;
esac
