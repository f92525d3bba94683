-- +goose Up

create table quartermaster.detached_months (
	generation text not null references quartermaster.generations (name) on delete cascade,
	topic text not null,
	partition integer not null,
	month bigint not null,
	rows bigint not null,
	sha256 bytea not null,
	detached timestamptz not null default now(),
	primary key (generation, topic, partition, month)
);
comment on table quartermaster.detached_months is 'Months whose rows are in parts. A row of a table takes precedence over one of a part.';
comment on column quartermaster.detached_months.rows is 'Rows of the part.';
comment on column quartermaster.detached_months.sha256 is 'Digest of the rows of the part, which names its file.';

create table quartermaster.wanted (
	one boolean primary key default true check (one),
	asked timestamptz not null
);
insert into quartermaster.wanted (asked) values ('1970-01-01');
comment on table quartermaster.wanted is 'When somebody last asked for the present rows: instances then commit what they have folded.';

-- +goose Down
drop table quartermaster.detached_months, quartermaster.wanted;
