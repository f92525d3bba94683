-- +goose Up

create table quartermaster.secret (
	secret bytea not null check (octet_length(secret) = 32),
	one boolean primary key default true check (one)
);
comment on table quartermaster.secret is 'What instances prove to each other that they composed a decision with. Nobody else may read it.';

-- +goose Down
drop table quartermaster.secret;
