-- +goose Up

alter table quartermaster.generations add column id uuid not null default gen_random_uuid(), add column copy_of uuid;
comment on column quartermaster.generations.id is 'Tells it from another generation that had its name before.';
comment on column quartermaster.generations.copy_of is 'In another database than the first: the id of the generation in the first. Null until that was noted.';

-- +goose Down
alter table quartermaster.generations drop column id, drop column copy_of;
