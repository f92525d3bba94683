-- +goose Up

-- Closed months as SQL shows them. They are the same in every generation of rows.

create table quartermaster.closed_months (
	books bigint generated always as identity primary key,
	month timestamptz not null unique,
	allocations_sha256 bytea not null,
	postings_sha256 bytea,
	rows bigint not null,
	loaded timestamptz not null default now()
);
comment on table quartermaster.closed_months is 'Closed months whose allocations and statements are in tables. A row that is deleted takes them with it; "quartermaster parts make" loads them again from what was kept.';
comment on column quartermaster.closed_months.books is 'Number of the month in the other tables.';
comment on column quartermaster.closed_months.month is 'Start of the UTC month.';
comment on column quartermaster.closed_months.allocations_sha256 is 'SHA-256 of the file with the closed allocations.';
comment on column quartermaster.closed_months.postings_sha256 is 'SHA-256 of the file with what is posted into the month about earlier ones; null if nothing is.';
comment on column quartermaster.closed_months.rows is 'Rows of closed_allocations.';

create table quartermaster.closed_allocations (
	books bigint not null references quartermaster.closed_months on delete cascade,
	workspace text collate "C" not null,
	month timestamptz not null,
	posting_type text,
	"AvailabilityZone" text,
	"BilledCost" numeric,
	"BillingAccountId" text,
	"BillingAccountName" text,
	"BillingAccountType" text,
	"BillingCurrency" text,
	"BillingPeriodEnd" timestamptz,
	"BillingPeriodStart" timestamptz,
	"CapacityReservationId" text,
	"CapacityReservationStatus" text,
	"ChargeCategory" text,
	"ChargeClass" text,
	"ChargeDescription" text,
	"ChargeFrequency" text,
	"ChargePeriodEnd" timestamptz,
	"ChargePeriodStart" timestamptz,
	"CommitmentDiscountCategory" text,
	"CommitmentDiscountId" text,
	"CommitmentDiscountName" text,
	"CommitmentDiscountQuantity" numeric,
	"CommitmentDiscountStatus" text,
	"CommitmentDiscountType" text,
	"CommitmentDiscountUnit" text,
	"CommitmentProgramEligibilityDetails" text,
	"ConsumedQuantity" numeric,
	"ConsumedUnit" text,
	"ContractApplied" text,
	"ContractedCost" numeric,
	"ContractedUnitPrice" numeric,
	"EffectiveCost" numeric,
	"HostProviderName" text,
	"InvoiceDetailId" text,
	"InvoiceId" text,
	"InvoiceIssuerName" text,
	"ListCost" numeric,
	"ListUnitPrice" numeric,
	"PricingCategory" text,
	"PricingCurrency" text,
	"PricingCurrencyContractedUnitPrice" numeric,
	"PricingCurrencyEffectiveCost" numeric,
	"PricingCurrencyListUnitPrice" numeric,
	"PricingQuantity" numeric,
	"PricingUnit" text,
	"RegionId" text,
	"RegionName" text,
	"ResourceId" text,
	"ResourceName" text,
	"ResourceType" text,
	"ServiceCategory" text,
	"ServiceName" text,
	"ServiceProviderName" text,
	"ServiceSubcategory" text,
	"SkuId" text,
	"SkuMeter" text,
	"SkuPriceDetails" text,
	"SkuPriceId" text,
	"SubAccountId" text,
	"SubAccountName" text,
	"SubAccountType" text,
	"Tags" text,
	"x_ClusterId" text,
	"x_NodeId" text,
	"x_DeploymentId" text,
	"x_Component" text,
	"x_Class" text,
	"x_MatchMethod" text,
	"x_WorkloadClass" text,
	"x_Model" text,
	"x_GpuModel" text,
	"x_BillingModel" text,
	"x_Provider" text,
	"x_ProviderClass" text,
	"x_Region" text,
	"x_Owner" text,
	"x_CostCentre" text,
	"x_Entity" text,
	"x_Hour" timestamptz,
	"x_GpuSecondsBought" numeric,
	"x_GpuSecondsAllocated" numeric,
	"x_GpuSecondsMeasured" numeric,
	"x_GpuSecondsUseful" numeric,
	"x_OriginLineId" text,
	"x_AssetId" text,
	"x_SourceId" text,
	"x_SourceLine" numeric,
	"x_ReceivedAt" timestamptz,
	"x_CorrectionOf" text,
	"x_AllocationId" text,
	"x_CauseEventId" text,
	"x_Cause" text,
	"x_Generated" boolean
);
create index closed_allocations_workspace on quartermaster.closed_allocations (books, workspace);
comment on table quartermaster.closed_allocations is 'Allocations and postings of closed months, in the columns of exports. The view posted_allocations describes them.';

create table quartermaster.closed_statements (
	books bigint not null references quartermaster.closed_months on delete cascade,
	workspace text collate "C" not null,
	number text not null,
	month timestamptz not null,
	corrects text,
	posting_type text,
	component text,
	currency text not null,
	billed numeric not null,
	effective numeric not null,
	gpu_seconds_bought numeric,
	gpu_seconds_allocated numeric,
	gpu_seconds_measured numeric,
	gpu_seconds_useful numeric,
	causes text
);
create index closed_statements_workspace on quartermaster.closed_statements (books, workspace);
comment on table quartermaster.closed_statements is 'Lines of the statements of closed months. The view statements describes them.';

create table quartermaster.closed_dues (
	books bigint not null references quartermaster.closed_months on delete cascade,
	workspace text collate "C" not null,
	number text not null,
	currency text not null,
	charged numeric not null,
	notes numeric not null,
	due numeric not null,
	primary key (books, workspace, currency)
);
comment on table quartermaster.closed_dues is 'What the statements of closed months ask for. The view statements_due describes it.';

-- +goose Down
drop table quartermaster.closed_dues, quartermaster.closed_statements, quartermaster.closed_allocations, quartermaster.closed_months;
