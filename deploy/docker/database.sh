#!/bin/sh
# Runs in Postgres' container when its data is made: the database, and a role that
# owns it and nothing else, since row security does not bind a superuser.
set -eu
psql -v ON_ERROR_STOP=1 -U postgres <<'SQL'
\set word `cat /run/secrets/role`
create role quartermaster login password :'word';
create database quartermaster owner quartermaster;
SQL
