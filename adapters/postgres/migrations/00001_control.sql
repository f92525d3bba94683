-- +goose Up

-- Control tables: the log that the rows belong to, the sessions that fold them, and
-- the scheduled runs. Each generation's rows are in a schema of their own, which
-- the program creates (tables.go).

create table quartermaster.log (
	one boolean primary key default true check (one),
	log_id text not null
);
comment on table quartermaster.log is 'The Kafka cluster whose log the rows are folded from. Rows of another log cannot be used.';

create table quartermaster.topics (
	topic text primary key,
	topic_id text not null,
	partitions integer not null
);
comment on table quartermaster.topics is 'Topics as recorded at first sight. A topic that was deleted and created again has another id.';

create table quartermaster.generations (
	name text primary key,
	method text not null,
	state text not null check (state in ('building', 'live')),
	created timestamptz not null default now()
);
comment on table quartermaster.generations is 'Complete sets of rows, each in the schema "rows_" and its name. A building generation is folded by the rebuild that makes it, a live one by every instance of its method.';
comment on column quartermaster.generations.method is 'Version of the folds that make the rows.';

create table quartermaster.active (
	one boolean primary key default true check (one),
	generation text not null references quartermaster.generations (name),
	untold bytea
);
comment on table quartermaster.active is 'The active generation, which queries read: one row, which a switch changes.';
comment on column quartermaster.active.untold is 'The signed record of the last switch, until it is in the log; then null.';

create table quartermaster.sessions (
	token text primary key,
	instance text not null unique,
	method text not null,
	sharing boolean not null default false,
	started timestamptz not null default now(),
	lease interval not null,
	alive_until timestamptz not null
);
comment on table quartermaster.sessions is 'Running processes. A session is dead unless its alive_until is between now and now + lease; a dead session owns no partition.';
comment on column quartermaster.sessions.sharing is 'Whether partitions are assigned to it. A rebuild and a stopping process take none.';

create table quartermaster.partitions (
	generation text not null references quartermaster.generations (name) on delete cascade,
	topic text not null,
	partition integer not null,
	next_offset bigint not null default 0,
	last_offset bigint,
	last_epoch integer,
	last_sha256 bytea,
	epoch bigint not null default 0,
	owner text,
	stop_reason text,
	stop_advice text,
	primary key (generation, topic, partition)
) with (fillfactor = 50);
comment on table quartermaster.partitions is 'How far each partition is folded, and by whom. Every change of rows moves next_offset in the same transaction, and only if epoch is still that of the claim.';
comment on column quartermaster.partitions.next_offset is 'Offset of the first record that is not folded yet.';
comment on column quartermaster.partitions.last_offset is 'Offset of the last record that is folded; with last_epoch and last_sha256 it identifies the log that was folded. Null: no record.';
comment on column quartermaster.partitions.last_epoch is 'Epoch of the Kafka leader that appended that record; below 0: unknown.';
comment on column quartermaster.partitions.last_sha256 is 'SHA-256 of that record: key, headers and value, each preceded by its length.';
comment on column quartermaster.partitions.epoch is 'Number of the claim. A session with an older claim is fenced.';
comment on column quartermaster.partitions.owner is 'Token of the session that folds the partition; null: none.';
comment on column quartermaster.partitions.stop_reason is 'Why the partition is stopped at next_offset; null if it is not.';
comment on column quartermaster.partitions.stop_advice is 'What an operator does about it; empty if it is retried and may pass.';

create table quartermaster.runs (
	job text not null,
	input text not null,
	owner text,
	attempts integer not null default 1,
	failures integer not null default 0,
	started timestamptz not null default now(),
	next_try timestamptz,
	finished timestamptz,
	outcome text not null default '',
	error text not null default '',
	primary key (job, input)
);
comment on table quartermaster.runs is 'Scheduled runs. Each job runs once for each input, such as a day.';
comment on column quartermaster.runs.owner is 'Token of the session that runs it or has finished it; null: it failed or was interrupted.';
comment on column quartermaster.runs.next_try is 'When it may be tried again after a failure.';

-- +goose Down
drop table quartermaster.runs, quartermaster.partitions, quartermaster.sessions, quartermaster.active, quartermaster.generations, quartermaster.topics, quartermaster.log;
