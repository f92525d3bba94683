#!/usr/bin/env bash
# Postgres on this machine for development and tests, without Docker: a separate cluster,
# independent of the distribution's. `postgres.sh --help` is the manual.
set -euo pipefail

self=${0##*/}

usage() {
	cat <<USAGE
Postgres on this machine, without Docker.

Usage: $self COMMAND [--option VALUE...] [-- ARGUMENTS of psql]

Commands
  install      install the package if it is missing
  start        install if needed, create the cluster, start, wait until it answers
  stop         stop cleanly (fast: sessions are ended, data is flushed)
  immediate    stop as in a crash; the next start recovers from the log
  restart      stop and start
  check        log in and print the state; status 0 only if it answers
  dsn          print the connection string (lib/pq); dsn --socket uses the unix socket
  password     print the password of the role quartermaster
  psql         a session as the role quartermaster; as the superuser with --admin
  clean        stop and remove the data

Options, each also an environment variable
  --port N        PORT             default 15432, on 127.0.0.1 alone
  --dir DIR       DIR              data of this run, default HOME/run/postgres-PORT
  --home HOME     QM_DEV_HOME      default $home_default
  --version V     PG_VERSION       major version, default 15, else the newest installed
  --user USER     PG_USER          root only: who runs the server, default postgres
  --wait SECONDS  PG_WAIT          how long start and stop may take, default 60

The role quartermaster owns the database quartermaster and may create other databases and
roles (tests do). Passwords are generated with the cluster and stored in DIR, readable only by
the owner. The socket requires them too, because others may use this machine. All other
settings are Postgres' defaults, above all fsync=on.

Examples
  $self start
  QM_POSTGRES_DSN=\$($self dsn) go test ./adapters/postgres/
  $self psql -- -c 'select version()'
  $self start --dir /tmp/mine --port 25432 && $self immediate --dir /tmp/mine
  $self clean --dir /tmp/mine
USAGE
}

die() {
	echo "$self: $*" >&2
	exit 1
}

# ---- Options -------------------------------------------------------------------

# Others cannot read root's home, and Postgres never runs as root.
if [ "$(id -u)" = 0 ]; then
	home_default=/var/cache/quartermaster/dev
else
	home_default=${XDG_CACHE_HOME:-${HOME:?}/.cache}/quartermaster/dev
fi
port=${PORT:-} dir=${DIR:-} home=${QM_DEV_HOME:-$home_default} version=${PG_VERSION:-}
user=${PG_USER:-postgres} patience=${PG_WAIT:-60} admin='' socket='' command='' rest=()
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage; exit ;;
	--admin) admin=1 ;;
	--socket) socket=1 ;;
	--port | --dir | --home | --version | --user | --wait)
		[ $# -ge 2 ] || die "$1 needs a value"
		case $1 in
		--port) port=$2 ;;
		--dir) dir=$2 ;;
		--home) home=$2 ;;
		--version) version=$2 ;;
		--user) user=$2 ;;
		--wait) patience=$2 ;;
		esac
		shift ;;
	--port=* | --dir=* | --home=* | --version=* | --user=* | --wait=*)
		set -- "${1%%=*}" "${1#*=}" "${@:2}"
		continue ;;
	--)
		shift
		rest=("$@")
		break ;;
	-*) die "unknown option $1; see $self --help" ;;
	*) [ -z "$command" ] || die "one command at a time: $command or $1"; command=$1 ;;
	esac
	shift
done
[ -n "$command" ] || { usage >&2; exit 2; }
case $command in
install | start | stop | immediate | restart | check | dsn | password | psql | clean) ;;
*) die "unknown command $command; see $self --help" ;;
esac
[ ${#rest[@]} -eq 0 ] || [ "$command" = psql ] || die "arguments after -- are for psql"
[[ $patience =~ ^[1-9][0-9]*$ ]] || die "--wait $patience is not a number of seconds"

absolute() { realpath -m -- "$1"; } # also for a path that does not exist
home=$(absolute "$home")
[ -n "$dir" ] || dir=$home/run/postgres-${port:-15432}
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
port=$(remember port "$port" 15432)
version=$(remember version "$version" '')
[[ $port =~ ^[1-9][0-9]{0,4}$ && $port -le 65535 ]] || die "--port $port is not a port"
[[ $version =~ ^[0-9]*$ ]] || die "--version $version is not a major version, such as 15"

# ---- Installation --------------------------------------------------------------

# Finds the programs. Debian has a directory for each version, outside PATH.
find_programs() {
	local candidate
	for candidate in "/usr/lib/postgresql/${version:-15}/bin" \
		$([ -n "$version" ] || printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
		if [ -x "$candidate/initdb" ]; then bin=$candidate && break; fi
	done
	if [ -z "${bin:-}" ]; then
		candidate=$(command -v initdb) || return 1
		bin=$(dirname "$(readlink -f "$candidate")")
	fi
	local found
	found=$("$bin/postgres" --version | sed -E 's/[^0-9]*([0-9]+).*/\1/')
	if [ -n "$version" ] && [ "$found" != "$version" ]; then return 1; fi
	version=$found
}

install() {
	if find_programs; then return; fi
	local package=postgresql-${version:-15}
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		die "no initdb found; needs the Debian package $package, or PATH with another Postgres"
	fi
	apt-get update -q >&2 || die 'apt-get update failed'
	if ! apt-cache show "$package" >/dev/null 2>&1; then
		[ -z "$version" ] || die "there is no package $package here"
		package=postgresql
	fi
	echo "installing $package"
	# By default the package would create and start a cluster of its own.
	local settings=/etc/postgresql-common/createcluster.d
	if [ ! -e "$settings" ]; then
		mkdir -p "$settings"
		echo 'create_main_cluster = false' >"$settings/quartermaster.conf"
	fi
	DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$package" >&2 ||
		die "could not install $package"
	find_programs || die "$package is installed, but no initdb is found"
}

# ---- The cluster ---------------------------------------------------------------

if [ "$(id -u)" = 0 ]; then
	as() { (cd "$dir" && runuser -u "$user" -- "$@"); }
	owner() { id "$user" >/dev/null 2>&1 || useradd --system --no-create-home --shell /usr/sbin/nologin "$user"; }
else
	as() { (cd "$dir" && "$@"); }
	owner() { user=$(id -un); }
fi

lock() { # one command at a time in a directory
	exec 9>"$dir/lock"
	flock -w "$patience" 9 || die "another command has been at work in $dir for $patience seconds"
}

runs() { [ -f "$dir/data/postmaster.pid" ] && as "$bin/pg_ctl" -D "$dir/data" status >/dev/null 2>&1; }

ask() { # ask ROLE DATABASE ARGUMENT...: psql over the socket
	local role=$1 database=$2
	shift 2
	# The environment may have settings for other servers.
	env -u PGPASSWORD -u PGSERVICE -u PGHOST -u PGHOSTADDR -u PGOPTIONS -u PGSSLMODE PGPASSFILE="$dir/pgpass" "$bin/psql" -X -h "$dir/socket" -p "$port" -U "$role" -d "$database" "$@"
}

secret() { head -c 24 /dev/urandom | base64 | tr '+/' 'ab'; }

prepare() { # creates the directory and the passwords
	[ ! -e "$dir" ] || [ -f "$dir/settings" ] || [ -z "$(ls -A "$dir")" ] || [ "$(ls -A "$dir")" = lock ] ||
		die "$dir contains other files: choose another --dir"
	mkdir -p "$dir"
	# The longest path of a socket is 107 bytes.
	[ $((${#dir} + ${#port} + 17)) -le 107 ] || die "$dir is too long a path for a unix socket: choose a shorter --dir"
	lock
	chmod 755 "$dir"
	as test -x "$dir" || die "user $user cannot enter $dir: Postgres does not run as root, so every folder on the way needs x for all (chmod a+x)"
	if [ -f "$dir/settings" ]; then return; fi
	local word admin_word
	word=$(secret) admin_word=$(secret)
	(
		umask 077
		echo "$word" >"$dir/password"
		printf '*:*:*:%s:%s\n' quartermaster "$word" postgres "$admin_word" >"$dir/pgpass"
		echo "postgres://quartermaster:$word@127.0.0.1:$port/quartermaster?sslmode=disable" >"$dir/dsn"
		echo "host=$dir/socket port=$port user=quartermaster password=$word dbname=quartermaster sslmode=disable" >"$dir/dsn-socket"
	)
	printf '%s\n' "port=$port" "version=$version" >"$dir/settings.fresh"
	mv "$dir/settings.fresh" "$dir/settings"
}

initialise() { # in a temporary directory that is then moved, so that no half-made cluster is used
	[ ! -d "$dir/data" ] || return 0
	rm -rf "$dir/fresh"
	local folder
	for folder in fresh socket log; do
		mkdir -p "$dir/$folder"
		[ "$(id -u)" != 0 ] || chown "$user:" "$dir/$folder"
	done
	# shellcheck disable=SC2016 # expanded by the inner shell
	sed -n 's/^[*:]*postgres://p' "$dir/pgpass" | as sh -c 'umask 077; cat >"$1"' write "$dir/log/word"
	as "$bin/initdb" -D "$dir/fresh" --username=postgres --pwfile="$dir/log/word" --auth=scram-sha-256 \
		--encoding=UTF8 --locale=C.UTF-8 >"$dir/initdb.log" 2>&1 9>&- ||
		die "initdb failed: $(tail -n 3 "$dir/initdb.log")"
	rm "$dir/log/word"
	as tee -a "$dir/fresh/postgresql.conf" >/dev/null <<SETTINGS

# Everything above is Postgres' default: fsync and full_page_writes are on.
listen_addresses = '127.0.0.1'
port = $port
unix_socket_directories = '$dir/socket'
max_connections = 100
log_line_prefix = '%m [%p] %q%u@%d '
SETTINGS
	mv "$dir/fresh" "$dir/data"
}

undo() { # cleans up after a failed or interrupted start
	for _ in {1..20}; do # pg_ctl does not know yet a server that has just started
		if as "$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1; then return; fi
		sleep 0.1
	done
}

start() {
	install
	owner
	prepare
	initialise
	if ! runs; then
		if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
			die "port $port is taken by another program: choose another --port"
		fi
		trap undo EXIT
		as "$bin/pg_ctl" -D "$dir/data" -l "$dir/log/postgres.log" -t "$patience" -w start >"$dir/start.log" 2>&1 9>&- || {
			tail -n 5 "$dir/log/postgres.log" >&2
			die "Postgres did not start; see $dir/log and $dir/start.log"
		}
	fi
	# After a crash in between, the next start does the rest.
	# psql reads the password from a file, because everyone can see a process's arguments.
	word=$dir/password ask postgres postgres -q -v ON_ERROR_STOP=1 <<'SQL'
\set word `cat "$word"`
select format('create role quartermaster login createdb createrole password %L', :'word')
where not exists (select from pg_roles where rolname = 'quartermaster') \gexec
select 'create database quartermaster owner quartermaster'
where not exists (select from pg_database where datname = 'quartermaster') \gexec
SQL
	trap - EXIT
	echo "Postgres $version answers at 127.0.0.1:$port; dsn in $dir/dsn"
}

stop() { # stop MODE
	[ -d "$dir/data" ] || return 0
	find_programs || die "the programs of Postgres $version were not found"
	owner
	lock
	if runs; then
		as "$bin/pg_ctl" -D "$dir/data" -m "$1" -t "$patience" -w stop >/dev/null || die "Postgres in $dir does not stop"
	elif "$bin/pg_isready" -q -h "$dir/socket" -p "$port"; then
		die "a server answers in $dir/socket, but $dir/data/postmaster.pid does not name it: nothing was removed; stop it first"
	fi
	exec 9>&-
}

exists() { [ -f "$dir/settings" ] || die "there is no Postgres in $dir: $self start"; }

case $command in
install)
	install
	echo "$("$bin/postgres" --version), in $bin"
	;;
start) start ;;
stop) stop fast ;;
immediate) stop immediate ;;
restart)
	stop fast
	start
	;;
check)
	exists
	find_programs && owner
	runs || die "does not run; $self start --dir $dir"
	ask quartermaster quartermaster -Atc "select 'answers at 127.0.0.1:$port: Postgres ' || current_setting('server_version') ||
		', fsync ' || current_setting('fsync') || ', encoding ' || current_setting('server_encoding') ||
		', ' || (select count(*) from pg_stat_activity where datname = current_database()) || ' of ' || current_setting('max_connections') || ' sessions'"
	;;
dsn)
	exists
	cat "$dir/dsn${socket:+-socket}"
	;;
password)
	exists
	cat "$dir/password"
	;;
psql)
	exists
	find_programs
	if [ -n "$admin" ]; then ask postgres quartermaster "${rest[@]}"; else ask quartermaster quartermaster "${rest[@]}"; fi
	;;
clean)
	[ -e "$dir" ] || exit 0
	[ -f "$dir/settings" ] || [ -z "$(ls -A "$dir")" ] || [ "$(ls -A "$dir")" = lock ] ||
		die "$dir was not made by this script: not removed"
	stop immediate
	rm -rf "$dir"
	;;
esac
