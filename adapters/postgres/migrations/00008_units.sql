-- +goose Up

-- Who held what closed months paid for.

alter table quartermaster.closed_allocations add column "x_UnitId" text;

create table quartermaster.closed_units (
	books bigint not null references quartermaster.closed_months on delete cascade,
	workspace text collate "C" not null,
	month timestamptz not null,
	posting_type text,
	"x_ClusterId" text,
	"x_DeploymentId" text,
	"x_Component" text,
	"x_UnitId" text,
	"x_NodeId" text,
	"BillingCurrency" text,
	"BilledCost" numeric,
	"EffectiveCost" numeric,
	"x_GpuSecondsBought" numeric,
	"x_GpuSecondsAllocated" numeric,
	"x_GpuSecondsMeasured" numeric,
	"x_GpuSecondsUseful" numeric
);
create index closed_units_workspace on quartermaster.closed_units (books, workspace);
comment on table quartermaster.closed_units is 'What pods, jobs and machines cost in closed months. The view posted_units describes and adds them up.';

-- Months that were loaded before have no units: they are loaded again.
delete from quartermaster.closed_months;
