-- +goose Up

create table quartermaster.readers (
	role text primary key,
	workspaces text[]
);
comment on table quartermaster.readers is 'Roles that may read views, as "quartermaster generation migrate" last found them in the configuration.';
comment on column quartermaster.readers.workspaces is 'Workspaces that the role sees, with those below them; null: the whole estate.';

create index closed_allocations_readers on quartermaster.closed_allocations (workspace, books);
create index closed_dues_readers on quartermaster.closed_dues (workspace, books);

-- +goose Down
drop index quartermaster.closed_allocations_readers, quartermaster.closed_dues_readers;
drop table quartermaster.readers;
