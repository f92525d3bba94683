-- +goose Up

create table quartermaster.installation (
	one boolean primary key default true check (one),
	id uuid not null default gen_random_uuid(),
	name text not null default ''
);
insert into quartermaster.installation default values;
comment on table quartermaster.installation is 'Which databases hold the rows of one log together.';
comment on column quartermaster.installation.id is 'The same in all of them.';
comment on column quartermaster.installation.name is 'Name of this database in postgres.others; empty in the first, which has sessions, runs and claims for all.';

alter table quartermaster.partitions add column database text not null default '';
comment on column quartermaster.partitions.database is 'Name of the database that has the rows and the position; empty: this one.';

-- +goose Down
alter table quartermaster.partitions drop column database;
drop table quartermaster.installation;
