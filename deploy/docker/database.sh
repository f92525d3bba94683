#!/bin/sh
# Runs in Postgres' container when its data directory is initialized. Creates the database and a
# role that owns only this database, because row security does not apply to a superuser.
set -eu
psql -v ON_ERROR_STOP=1 -U postgres <<'SQL'
\set word `cat /run/secrets/role`
create role quartermaster login password :'word';
create database quartermaster owner quartermaster;
SQL
