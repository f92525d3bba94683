#!/bin/sh
# Generates the passwords of compose.yaml once. Each is in a file that only its reader can
# open: the user of Postgres (999 in its image), or the group of Quartermaster (65532).
set -eu
umask 077
cd /run/secrets
word() { head -c 24 /dev/urandom | base64 | tr '+/' 'ab'; }

if [ ! -s complete ]; then
	word >"admin"
	word >"role"
	cp role quartermaster
	chown 999:999 admin role
	chown 0:65532 quartermaster
	chmod 0440 quartermaster
	chmod 0711 .
	echo yes >complete
fi
