-- Views for people, over the rows of the active generation. They stay the same when tables
-- change and when another generation becomes active.
--
-- Each view is written for one generation, whose schema is called "rows" here. The program
-- expands it to one branch for every generation, and only the branch of the active one
-- returns rows. So a switch changes a single row. There are four shorthands:
--
--	in_effect(T)       every row t of T with e, its version in effect now
--	in_effect(T, TYPE) the same, but only versions of one event type
--	list(J)            J if it is a JSON array, else an empty array: an empty
--	                   list is written as null in some places
--	cluster_of(t)      the cluster of a row t about a node: tables have the shard, c/3-of-8
--
-- A view shows the content of the log. Whether the signer of a decision had the right to
-- make it is answered by the program, not here.

create view quartermaster.workspaces as
select t.workspace, e.event->>'name' as name, e.event->>'parent' as parent, e.event->>'currency' as currency,
	e.event->>'owner' as owner, e.event->>'cost_centre' as cost_centre, e.event->>'entity' as entity, e.effective
from in_effect(workspaces);
comment on view quartermaster.workspaces is 'Workspaces: customers, teams and business units, as they are now.';
comment on column quartermaster.workspaces.parent is 'Workspace that this one reports to.';
comment on column quartermaster.workspaces.currency is 'Currency of the reports to it (ISO 4217).';
comment on column quartermaster.workspaces.owner is 'Who answers for its costs.';
comment on column quartermaster.workspaces.cost_centre is 'Cost centre that its costs are booked to.';
comment on column quartermaster.workspaces.entity is 'Company that bears its costs.';
comment on column quartermaster.workspaces.effective is 'Since when this holds.';

create view quartermaster.clusters as
select t.cluster, e.workspace as owner, e.event->>'name' as name, e.event->>'provider' as provider,
	e.event->>'provider_class' as provider_class, e.event->>'region' as region,
	e.event->>'billing_account' as billing_account, e.effective
from in_effect(clusters);
comment on view quartermaster.clusters is 'Clusters as they are now.';
comment on column quartermaster.clusters.owner is 'Workspace that owns the cluster; others may run there.';
comment on column quartermaster.clusters.effective is 'Since when this holds.';

create view quartermaster.nodes as
select t.cluster, t.node, l.type = 'NodeRetired' as retired, e.event->>'sku' as sku, e.event->>'provider' as provider,
	e.event->>'billing_account' as billing_account, e.event->>'resource_id' as resource_id, e.event->>'zone' as zone,
	e.event->>'billing_model' as billing_model, jsonb_array_length(list(e.event->'gpus')) as gpus,
	e.event->'gpus'->0->>'model' as gpu_model, e.effective, l.effective as changed
from in_effect(nodes, NodeRegistered)
cross join lateral (
	select v->>'type' as type, (v->>'effective')::timestamptz as effective
	from jsonb_array_elements(t.facts) with ordinality as x(v, n)
	where (v->>'effective')::timestamptz <= now() and v->>'type' in ('NodeRegistered', 'NodeRetired') order by n desc limit 1
) l;
comment on view quartermaster.nodes is 'Machines as they are now.';
comment on column quartermaster.nodes.retired is 'Whether the machine was taken out of the fleet for good.';
comment on column quartermaster.nodes.sku is 'Instance type.';
comment on column quartermaster.nodes.resource_id is 'Id on the bill of the supplier.';
comment on column quartermaster.nodes.gpus is 'Number of GPUs that the machine was last registered with. "quartermaster fleet" shows GPUs that are missing or were retired since.';
comment on column quartermaster.nodes.gpu_model is 'Model of the first GPU.';
comment on column quartermaster.nodes.effective is 'Since when this description holds.';
comment on column quartermaster.nodes.changed is 'When the machine was last described or retired.';

create view quartermaster.deployments as
select t.cluster, t.deployment, e.workspace, e.type = 'DeploymentRemoved' as removed, e.event->>'class' as class,
	e.event->>'model' as model, e.event->>'tier' as tier, e.event->>'environment' as environment,
	(e.event->>'replicas')::bigint as replicas, (e.event->'need'->>'count')::bigint as gpus_per_replica, e.effective
from in_effect(deployments);
comment on view quartermaster.deployments is 'Models and jobs that workspaces run, as they are now.';
comment on column quartermaster.deployments.gpus_per_replica is 'Whole GPUs that one replica needs.';
comment on column quartermaster.deployments.effective is 'Since when this holds.';

create view quartermaster.usage_by_observer as
select t.workspace, cluster_of(t) as cluster, t.deployment, t.node, t.hour, t.source,
	t.gpu_seconds, t.slice_seconds, t.measured_seconds, t.active_seconds
from rows.usage_held t
where t.gpu_seconds + t.slice_seconds > 0;
comment on view quartermaster.usage_by_observer is 'Seconds for which each workspace held GPUs, for each deployment, machine, hour and observer, as that observer reported it. For pods the workspace is empty, because mapping rules assign pods to workspaces when usage is read. Do not sum over observers: where two observers saw the same GPU both have rows, so a sum over them counts its time twice, and corrections are not applied. Sum one source at a time, or use "quartermaster usage", which resolves them. An hour in which the number of shards of the cluster changed has a row for each number.';
comment on column quartermaster.usage_by_observer.hour is 'Start of the UTC hour.';
comment on column quartermaster.usage_by_observer.source is 'Observer that reported it.';
comment on column quartermaster.usage_by_observer.gpu_seconds is 'Seconds for which whole GPUs were held, summed over GPUs.';
comment on column quartermaster.usage_by_observer.slice_seconds is 'Seconds for which parts of GPUs (MIG instances, time-slice replicas) were held, summed over parts and not weighted by their size.';
comment on column quartermaster.usage_by_observer.measured_seconds is 'Seconds of these for which activity was measured.';
comment on column quartermaster.usage_by_observer.active_seconds is 'Measured seconds times activity: 0.5 for a device that was half busy for a second.';

create view quartermaster.usage as
select t.day, case when t.held then t.workspace end as workspace, t.cluster,
	case when t.held then t.deployment end as deployment, t.gpu_model, t.billing_model,
	t.in_service_ms / 1000.0 as in_service_seconds, t.allocated_ms / 1000.0 as allocated_seconds, t.busy_unattributed_ms / 1000.0 as busy_unattributed_seconds, t.idle_ms / 1000.0 as idle_seconds,
	t.failed_ms / 1000.0 as failed_seconds, t.maintenance_ms / 1000.0 as maintenance_seconds, t.unprovisioned_ms / 1000.0 as unprovisioned_seconds, t.unobserved_ms / 1000.0 as unobserved_seconds,
	t.allocated_while_failed_ms / 1000.0 as allocated_while_failed_seconds, t.undeclared_ms / 1000.0 as undeclared_seconds, t.measured_ms / 1000.0 as measured_seconds,
	t.active_permille_ms / 1000000.0 as active_seconds
from rows.usage_days t;
comment on view quartermaster.usage is 'GPU time of each day by workspace, cluster, deployment, model and state, resolved as "quartermaster usage" does: each second of each GPU is in one state, and observers and corrections are decided. It has the months of quartermaster.usage_months and no others.';
comment on column quartermaster.usage.day is 'Day in UTC.';
comment on column quartermaster.usage.workspace is 'Workspace that held the GPUs; null if nobody did.';
comment on column quartermaster.usage.deployment is 'Deployment that held them; empty if unknown, null if nobody did.';
comment on column quartermaster.usage.gpu_model is 'Model of the GPUs; empty if not declared.';
comment on column quartermaster.usage.in_service_seconds is 'Seconds of whole GPUs in service. The states add up to it.';
comment on column quartermaster.usage.allocated_seconds is 'Held by a workspace.';
comment on column quartermaster.usage.busy_unattributed_seconds is 'Busy, and nobody knows for whom.';
comment on column quartermaster.usage.idle_seconds is 'Held by nobody.';
comment on column quartermaster.usage.failed_seconds is 'Failed and held by nobody.';
comment on column quartermaster.usage.maintenance_seconds is 'Set aside and held by nobody.';
comment on column quartermaster.usage.unprovisioned_seconds is 'Not part of any MIG instance.';
comment on column quartermaster.usage.unobserved_seconds is 'Without a report.';
comment on column quartermaster.usage.allocated_while_failed_seconds is 'Part of allocated_seconds that was held although failed.';
comment on column quartermaster.usage.undeclared_seconds is 'Part of in_service_seconds of GPUs that nobody declared.';
comment on column quartermaster.usage.measured_seconds is 'Part of allocated_seconds with measured activity.';
comment on column quartermaster.usage.active_seconds is 'measured_seconds times activity: 0.5 for a GPU that was half busy for a second.';

create view quartermaster.usage_months as
select t.month, not exists (
		select from rows.tallies x where x.month = t.month and x.rows_of in ('node_gpus', 'usage_hours')
		and x.changed_offset >= coalesce((t.next_offsets->>(x.topic || '/' || x.partition))::bigint, 0)
	) as current, t.inputs
from rows.usage_months t;
comment on view quartermaster.usage_months is 'Months that quartermaster.usage has: sealed months, as of the last "quartermaster parts make".';
comment on column quartermaster.usage_months.month is 'Start of the UTC month.';
comment on column quartermaster.usage_months.current is 'Whether no report of the month came since. Corrections, incidents and mapping rules are not considered here, but by "quartermaster usage".';
comment on column quartermaster.usage_months.inputs is 'What the usage was computed from.';

create view quartermaster.serving as
select t.cluster, left(t.server, -length('|' || (s->>'model') || '|' || coalesce(s->>'tier', ''))) as deployment,
	s->>'model' as model, s->>'tier' as tier, t.hour, s->>'source' as source, s->>'engine' as engine,
	sum((s->>'requests_ok')::numeric) as requests_ok, sum((s->>'requests_failed')::numeric) as requests_failed,
	sum((s->>'prompt_tokens')::numeric) as prompt_tokens, sum((s->>'generation_tokens')::numeric) as generation_tokens,
	sum((s->>'known_ms')::numeric) * 0.001 as measured_seconds,
	round(sum((s->>'queue_depth_milli_ms')::numeric) / nullif(sum((s->>'known_ms')::numeric), 0) * 0.001, 3) as queue_depth,
	round(sum((s->>'batch_size_milli_ms')::numeric) / nullif(sum((s->>'known_ms')::numeric), 0) * 0.001, 3) as batch_size,
	round(sum((s->>'kv_cache_permille_ms')::numeric) / nullif(sum((s->>'known_ms')::numeric), 0) * 0.001, 3) as kv_cache
from rows.serving_hours t cross join lateral jsonb_array_elements(list(t.facts->'sources')) s
group by t.cluster, t.server, t.hour, s->>'source', s->>'engine', s->>'model', s->>'tier';
comment on view quartermaster.serving is 'What model servers did in each hour, as each source reported it.';
comment on column quartermaster.serving.measured_seconds is 'Seconds that were reported, summed over the units of the server.';
comment on column quartermaster.serving.queue_depth is 'Mean number of waiting requests per unit.';
comment on column quartermaster.serving.batch_size is 'Mean number of requests processed at once.';
comment on column quartermaster.serving.kv_cache is 'Mean share of the KV cache in use, 0 to 1.';

create view quartermaster.servers as
select t.cluster, t.facts->>'deployment' as deployment, t.facts->>'model' as model, t.facts->>'tier' as tier,
	t.facts->>'engine' as engine, t.facts->>'unit' as unit, t.facts->>'node' as node, t.hour,
	(t.facts->>'requests_ok')::numeric as requests_ok, (t.facts->>'requests_failed')::numeric as requests_failed,
	(t.facts->>'requests_aborted')::numeric as requests_aborted,
	(t.facts->>'input_tokens')::numeric as input_tokens, (t.facts->>'generated_tokens')::numeric as generated_tokens,
	(t.facts->>'waiting_milli')::numeric * 0.001 as queue_depth, (t.facts->>'running_milli')::numeric * 0.001 as batch_size,
	(t.facts->>'kv_cache_permille')::numeric * 0.001 as kv_cache, (t.facts->>'gpu_requests_milli')::numeric * 0.001 as gpus_requested,
	(t.facts->>'ttft_mean_micros')::numeric * 0.000001 as ttft_mean_seconds,
	list(t.facts->'ttft') as ttft, list(t.facts->'queue_wait') as queue_wait
from rows.server_hours t;
comment on view quartermaster.servers is 'What monitoring systems scraped from each model server, or from a pod that requests GPUs (engine kubernetes), in each hour.';
comment on column quartermaster.servers.queue_depth is 'Mean number of waiting requests.';
comment on column quartermaster.servers.batch_size is 'Mean number of requests processed at once.';
comment on column quartermaster.servers.kv_cache is 'Mean share of the KV cache in use, 0 to 1.';
comment on column quartermaster.servers.gpus_requested is 'Mean number of GPUs that the pod requested.';
comment on column quartermaster.servers.ttft_mean_seconds is 'Mean time to the first token, exact.';
comment on column quartermaster.servers.ttft is 'Histograms of the time to the first token, one for each set of bounds: count, quantiles and buckets (up_to in microseconds, null for the last, and count). Add up buckets of equal bounds only.';
comment on column quartermaster.servers.queue_wait is 'Histograms of the wait in the queue, in the form of ttft.';

create view quartermaster.faults as
select cluster_of(t) as cluster, t.node, (e.v->>'effective')::timestamptz as at, e.v->'event'->>'gpu' as gpu, e.v->'event'->>'kind' as kind,
	(e.v->'event'->>'code')::bigint as code, (e.v->'event'->>'fatal')::boolean as fatal,
	(e.v->'event'->>'count')::numeric as count, e.v->'event'->>'class' as class, e.v->'event'->>'action' as action,
	e.v->'event'->>'detail' as detail,
	coalesce((e.v->>'count')::numeric, 1) as events, coalesce((e.v->>'last')::timestamptz, (e.v->>'effective')::timestamptz) as last,
	coalesce((e.v->>'rest')::boolean, false) as rest
from rows.faults t cross join lateral jsonb_array_elements(t.facts) e(v);
comment on view quartermaster.faults is 'Faults of GPUs.';
comment on column quartermaster.faults.at is 'Time of the fault, or of the first of its repeats.';
comment on column quartermaster.faults.events is 'Number of reports that this row stands for: repeats at most a minute apart, or more if the day has more faults than are kept separately.';
comment on column quartermaster.faults.last is 'Time of the last report, or when a monitoring system saw the fault again.';
comment on column quartermaster.faults.rest is 'Whether the row stands for different faults of one kind, because there were more than are kept separately. gpu is then empty; for fatal faults it is the device.';
comment on column quartermaster.faults.code is 'XID number, or DCGM health code.';
comment on column quartermaster.faults.fatal is 'Whether the device cannot work until it is repaired.';

create view quartermaster.billing_lines as
select t.account, t.line, t.month,
	l.line->>'x_LineId' as "x_LineId",
	l.line->>'AllocatedMethodDetails' as "AllocatedMethodDetails",
	l.line->>'AllocatedMethodId' as "AllocatedMethodId",
	l.line->>'AllocatedResourceId' as "AllocatedResourceId",
	l.line->>'AllocatedResourceName' as "AllocatedResourceName",
	l.line->>'AllocatedTags' as "AllocatedTags",
	l.line->>'AvailabilityZone' as "AvailabilityZone",
	(l.line->>'BilledCost')::numeric as "BilledCost",
	l.line->>'BillingAccountId' as "BillingAccountId",
	l.line->>'BillingAccountName' as "BillingAccountName",
	l.line->>'BillingAccountType' as "BillingAccountType",
	l.line->>'BillingCurrency' as "BillingCurrency",
	nullif(l.line->>'BillingPeriodEnd', '')::timestamptz as "BillingPeriodEnd",
	nullif(l.line->>'BillingPeriodStart', '')::timestamptz as "BillingPeriodStart",
	l.line->>'CapacityReservationId' as "CapacityReservationId",
	l.line->>'CapacityReservationStatus' as "CapacityReservationStatus",
	l.line->>'ChargeCategory' as "ChargeCategory",
	l.line->>'ChargeClass' as "ChargeClass",
	l.line->>'ChargeDescription' as "ChargeDescription",
	l.line->>'ChargeFrequency' as "ChargeFrequency",
	nullif(l.line->>'ChargePeriodEnd', '')::timestamptz as "ChargePeriodEnd",
	nullif(l.line->>'ChargePeriodStart', '')::timestamptz as "ChargePeriodStart",
	l.line->>'CommitmentDiscountCategory' as "CommitmentDiscountCategory",
	l.line->>'CommitmentDiscountId' as "CommitmentDiscountId",
	l.line->>'CommitmentDiscountName' as "CommitmentDiscountName",
	(l.line->>'CommitmentDiscountQuantity')::numeric as "CommitmentDiscountQuantity",
	l.line->>'CommitmentDiscountStatus' as "CommitmentDiscountStatus",
	l.line->>'CommitmentDiscountType' as "CommitmentDiscountType",
	l.line->>'CommitmentDiscountUnit' as "CommitmentDiscountUnit",
	l.line->>'CommitmentProgramEligibilityDetails' as "CommitmentProgramEligibilityDetails",
	(l.line->>'ConsumedQuantity')::numeric as "ConsumedQuantity",
	l.line->>'ConsumedUnit' as "ConsumedUnit",
	l.line->>'ContractApplied' as "ContractApplied",
	(l.line->>'ContractedCost')::numeric as "ContractedCost",
	(l.line->>'ContractedUnitPrice')::numeric as "ContractedUnitPrice",
	(l.line->>'EffectiveCost')::numeric as "EffectiveCost",
	l.line->>'HostProviderName' as "HostProviderName",
	l.line->>'InvoiceDetailId' as "InvoiceDetailId",
	l.line->>'InvoiceId' as "InvoiceId",
	l.line->>'InvoiceIssuerName' as "InvoiceIssuerName",
	(l.line->>'ListCost')::numeric as "ListCost",
	(l.line->>'ListUnitPrice')::numeric as "ListUnitPrice",
	l.line->>'PricingCategory' as "PricingCategory",
	l.line->>'PricingCurrency' as "PricingCurrency",
	(l.line->>'PricingCurrencyContractedUnitPrice')::numeric as "PricingCurrencyContractedUnitPrice",
	(l.line->>'PricingCurrencyEffectiveCost')::numeric as "PricingCurrencyEffectiveCost",
	(l.line->>'PricingCurrencyListUnitPrice')::numeric as "PricingCurrencyListUnitPrice",
	(l.line->>'PricingQuantity')::numeric as "PricingQuantity",
	l.line->>'PricingUnit' as "PricingUnit",
	l.line->>'RegionId' as "RegionId",
	l.line->>'RegionName' as "RegionName",
	l.line->>'ResourceId' as "ResourceId",
	l.line->>'ResourceName' as "ResourceName",
	l.line->>'ResourceType' as "ResourceType",
	l.line->>'ServiceCategory' as "ServiceCategory",
	l.line->>'ServiceName' as "ServiceName",
	l.line->>'ServiceProviderName' as "ServiceProviderName",
	l.line->>'ServiceSubcategory' as "ServiceSubcategory",
	l.line->>'SkuId' as "SkuId",
	l.line->>'SkuMeter' as "SkuMeter",
	l.line->>'SkuPriceDetails' as "SkuPriceDetails",
	l.line->>'SkuPriceId' as "SkuPriceId",
	l.line->>'SubAccountId' as "SubAccountId",
	l.line->>'SubAccountName' as "SubAccountName",
	l.line->>'SubAccountType' as "SubAccountType",
	l.line->>'Tags' as "Tags",
	l.line->>'x_FocusVersion' as "x_FocusVersion",
	coalesce((l.line->>'x_Generated')::boolean, false) as "x_Generated",
	l.line->'Other' as "x_Other",
	l.appended as "x_Appended",
	l.type = 'BillingLineCorrected' as "x_Correction"
from rows.billing_lines t
cross join lateral (
	select t.facts->-1->'event'->'line' as line, t.facts->-1->>'type' as type, (t.facts->-1->>'appended')::timestamptz as appended
) l
where l.type <> 'BillingLineRemoved';
comment on view quartermaster.billing_lines is 'Lines of suppliers'' bills as received, in the columns of FOCUS 1.4. A line that was received again shows its latest version, and one that the supplier removed is not shown. Amounts are exact.';
comment on column quartermaster.billing_lines.month is 'Start of the billing month that the line is filed under.';
comment on column quartermaster.billing_lines."x_Other" is 'Columns that FOCUS does not define, by name.';
comment on column quartermaster.billing_lines."x_Appended" is 'When the line was appended to the log.';
comment on column quartermaster.billing_lines."x_Correction" is 'Whether the line corrects an earlier one. A correction is added to the earlier line and does not replace it.';

create view quartermaster.invoices as
select t.account, t.invoice, l.event->>'InvoiceIssuerName' as issuer, l.event->>'BillingAccountId' as billing_account,
	(l.event->'total'->>'amount')::numeric as total, l.event->'total'->>'currency' as currency,
	l.event->>'InvoiceIssueStatus' as status, nullif(l.event->>'InvoiceIssueDate', '')::timestamptz as issued,
	nullif(l.event->>'PaymentDueDate', '')::timestamptz as due,
	nullif(l.event->'billing_period'->>'from', '')::timestamptz as period_from,
	nullif(l.event->'billing_period'->>'to', '')::timestamptz as period_to
from rows.invoices t cross join lateral (select t.facts->-1->'event' as event) l;
comment on view quartermaster.invoices is 'Invoices, received independently of their lines, each in its latest version.';
comment on column quartermaster.invoices.total is 'Amount due, tax included.';
comment on column quartermaster.invoices.period_to is 'End of the billing period, exclusive.';

create view quartermaster.offers as
select t.market, t.offer, (e.v->>'effective')::timestamptz as effective, e.v->>'type' = 'OfferWithdrawn' as withdrawn,
	e.v->'event'->>'sku' as sku, e.v->'event'->>'gpu_model' as gpu_model, (e.v->'event'->>'gpu_count')::bigint as gpus,
	e.v->'event'->>'kind' as kind, (e.v->'event'->>'term_months')::bigint as term_months,
	(e.v->'event'->>'upfront')::numeric as upfront, (e.v->'event'->>'hourly')::numeric as hourly,
	e.v->'event'->>'currency' as currency, (e.v->'event'->>'guarantees_capacity')::boolean as guarantees_capacity,
	nullif(e.v->'event'->>'valid_to', '')::timestamptz as valid_to, e.v->'event'->>'citation' as citation
from rows.offers t cross join lateral jsonb_array_elements(t.facts) e(v);
comment on view quartermaster.offers is 'What suppliers sell: every price that was quoted, and every withdrawal.';
comment on column quartermaster.offers.effective is 'Since when this holds. It holds until the next row of the offer.';
comment on column quartermaster.offers.gpus is 'Whole GPUs per unit.';
comment on column quartermaster.offers.upfront is 'Per unit.';
comment on column quartermaster.offers.hourly is 'Per unit and hour.';

create view quartermaster.commitments as
select t.workspace, t.commitment, e.event->>'contract' as contract, e.event->>'billing_account' as billing_account,
	e.event->'market'->>'provider' as provider, e.event->'market'->>'region' as region, e.event->>'kind' as kind,
	e.event->>'sku' as sku, e.event->>'gpu_model' as gpu_model, (e.event->>'gpus_per_unit')::bigint as gpus_per_unit,
	(l.event->>'units')::bigint as units, nullif(l.event->'term'->>'from', '')::timestamptz as term_from,
	nullif(l.event->'term'->>'to', '')::timestamptz as term_to, (l.event->'hourly'->>'amount')::numeric as hourly,
	(l.event->'upfront'->>'amount')::numeric as upfront, l.event->'hourly'->>'currency' as currency,
	(e.event->>'guarantees_capacity')::boolean as guarantees_capacity, e.event->'owners' as owners,
	(select min(nullif(v->'event'->>'at', '')::timestamptz) from jsonb_array_elements(t.facts) v where v->>'type' = 'CommitmentEnded') as ended
from in_effect(commitments, CommitmentPurchased)
cross join lateral (
	select v->'event' as event from jsonb_array_elements(t.facts) with ordinality as x(v, n)
	where v->>'type' in ('CommitmentPurchased', 'CommitmentRenewed') and (v->>'effective')::timestamptz <= now()
	order by n desc limit 1
) l;
comment on view quartermaster.commitments is 'Contracts with suppliers, with their current terms.';
comment on column quartermaster.commitments.commitment is 'Id on the bill: CommitmentDiscountId or CapacityReservationId.';
comment on column quartermaster.commitments.hourly is 'Per unit and hour.';
comment on column quartermaster.commitments.upfront is 'In total.';
comment on column quartermaster.commitments.owners is 'Commitment owners, who are charged for unused commitments, with their shares.';
comment on column quartermaster.commitments.ended is 'When it was ended before its term; null if it was not.';

create view quartermaster.budgets as
select t.workspace, t.budget, nullif(e.event->'period'->>'from', '')::timestamptz as period_from,
	nullif(e.event->'period'->>'to', '')::timestamptz as period_to, (e.event->'amount'->>'amount')::numeric as amount,
	e.event->'amount'->>'currency' as currency, e.event->>'basis' as basis, (e.event->>'hard')::boolean as hard, e.effective
from in_effect(budgets);
comment on view quartermaster.budgets is 'Budgets of workspaces, as they are now. What was spent of one is answered by the program.';
comment on column quartermaster.budgets.period_to is 'End of the period, exclusive.';
comment on column quartermaster.budgets.basis is 'cash: billed costs count; accrual: effective costs.';
comment on column quartermaster.budgets.hard is 'Meant to bind plans, where another only warns.';
comment on column quartermaster.budgets.effective is 'Since when this holds.';

create view quartermaster.books as
select t.entity, nullif(c.v->'event'->'period'->>'from', '')::timestamptz as period_from,
	nullif(c.v->'event'->'period'->>'to', '')::timestamptz as period_to, p.v->>'signed_by' as prepared_by,
	(select a.v->>'signed_by' from jsonb_array_elements(t.facts) with ordinality as a(v, n)
		where a.v->>'type' = 'CloseApproved' and a.n < c.n and a.v->'event'->'digest' = c.v->'event'->'digest'
		order by a.n desc limit 1) as approved_by,
	(c.v->>'effective')::timestamptz as closed, c.v->'event'->>'position' as position, c.v->'event'->>'method' as method,
	encode(decode(c.v->'event'->>'digest', 'base64'), 'hex') as allocations_sha256,
	nullif(encode(decode(coalesce(c.v->'event'->>'postings', ''), 'base64'), 'hex'), '') as postings_sha256
from rows.closes t cross join lateral (
	select x.v, x.n from jsonb_array_elements(t.facts) with ordinality as x(v, n) where x.v->>'type' = 'BooksClosed' order by x.n limit 1
) c left join lateral (
	select x.v from jsonb_array_elements(t.facts) with ordinality as x(v, n)
	where x.v->>'type' = 'ClosePrepared' and x.n < c.n and x.v->'event'->'digest' = c.v->'event'->'digest' order by x.n desc limit 1
) p on true;
comment on view quartermaster.books is 'Closed months, each in its first close. Their allocations, with what is posted about earlier months, are in quartermaster.posted_allocations, and their statements in quartermaster.statements.';
comment on column quartermaster.books.entity is 'Ledger entity whose books they are.';
comment on column quartermaster.books.period_to is 'End of the month, exclusive.';
comment on column quartermaster.books.position is 'Position of the log that the month was divided at.';
comment on column quartermaster.books.method is 'Version of attribution that divided it.';
comment on column quartermaster.books.allocations_sha256 is 'SHA-256 of the file with the closed allocations. Its first digits are in the numbers of the statements.';
comment on column quartermaster.books.postings_sha256 is 'SHA-256 of the file with what is posted into the month about earlier ones; null if nothing is.';

create view quartermaster.books_totals as
select t.entity, nullif(c.v->'event'->'period'->>'from', '')::timestamptz as period_from, k.kind = 'translated' as translated,
	m.v->>'currency' as currency, (m.v->>'billed')::numeric as billed, (m.v->>'effective')::numeric as effective,
	nullif(m.v->>'entity', '') as company
from rows.closes t cross join lateral (
	select x.v, x.n from jsonb_array_elements(t.facts) with ordinality as x(v, n) where x.v->>'type' = 'BooksClosed' order by x.n limit 1
) c cross join lateral (
	select x.v from jsonb_array_elements(t.facts) with ordinality as x(v, n)
	where x.v->>'type' = 'ClosePrepared' and x.n < c.n and x.v->'event'->'digest' = c.v->'event'->'digest' order by x.n desc limit 1
) p cross join (values ('totals'), ('translated')) k(kind)
cross join lateral jsonb_array_elements(list(p.v->'event'->k.kind)) m(v);
comment on view quartermaster.books_totals is 'What the allocations of closed months add up to, by currency: the sum of all statements of the month before rounding, without what is posted about earlier months.';
comment on column quartermaster.books_totals.translated is 'Whether it is the sum of all currencies in that of the books.';
comment on column quartermaster.books_totals.billed is 'As invoiced.';
comment on column quartermaster.books_totals.effective is 'With commitments spread over their terms.';
comment on column quartermaster.books_totals.company is 'Entity that keeps its books in this currency, and whose part it is; null for the sum of all.';

create view quartermaster.posted_months as
select m.month, encode(m.allocations_sha256, 'hex') as allocations_sha256, encode(m.postings_sha256, 'hex') as postings_sha256, m.rows, m.loaded,
	exists (select from quartermaster.books b where b.period_from = m.month and b.allocations_sha256 = encode(m.allocations_sha256, 'hex')
		and b.postings_sha256 is not distinct from encode(m.postings_sha256, 'hex')) as current
from quartermaster.closed_months m;
comment on view quartermaster.posted_months is 'Closed months that posted_allocations, posted_units, statements and statements_due have: those that were closed until the last "quartermaster costs close approve" or "quartermaster parts make".';
comment on column quartermaster.posted_months.month is 'Start of the UTC month.';
comment on column quartermaster.posted_months.allocations_sha256 is 'SHA-256 of the file with the closed allocations that were loaded.';
comment on column quartermaster.posted_months.postings_sha256 is 'SHA-256 of the file with what is posted into the month about earlier ones; null if nothing is.';
comment on column quartermaster.posted_months.rows is 'Number of rows of posted_allocations.';
comment on column quartermaster.posted_months.current is 'Whether the log closed the month with these files. If not, the next "quartermaster parts make" mends it.';

create view quartermaster.posted_allocations as
select a.workspace, a.month, m.month as books_period, a.posting_type,
	a."AvailabilityZone",
	a."BilledCost",
	a."BillingAccountId",
	a."BillingAccountName",
	a."BillingAccountType",
	a."BillingCurrency",
	a."BillingPeriodEnd",
	a."BillingPeriodStart",
	a."CapacityReservationId",
	a."CapacityReservationStatus",
	a."ChargeCategory",
	a."ChargeClass",
	a."ChargeDescription",
	a."ChargeFrequency",
	a."ChargePeriodEnd",
	a."ChargePeriodStart",
	a."CommitmentDiscountCategory",
	a."CommitmentDiscountId",
	a."CommitmentDiscountName",
	a."CommitmentDiscountQuantity",
	a."CommitmentDiscountStatus",
	a."CommitmentDiscountType",
	a."CommitmentDiscountUnit",
	a."CommitmentProgramEligibilityDetails",
	a."ConsumedQuantity",
	a."ConsumedUnit",
	a."ContractApplied",
	a."ContractedCost",
	a."ContractedUnitPrice",
	a."EffectiveCost",
	a."HostProviderName",
	a."InvoiceDetailId",
	a."InvoiceId",
	a."InvoiceIssuerName",
	a."ListCost",
	a."ListUnitPrice",
	a."PricingCategory",
	a."PricingCurrency",
	a."PricingCurrencyContractedUnitPrice",
	a."PricingCurrencyEffectiveCost",
	a."PricingCurrencyListUnitPrice",
	a."PricingQuantity",
	a."PricingUnit",
	a."RegionId",
	a."RegionName",
	a."ResourceId",
	a."ResourceName",
	a."ResourceType",
	a."ServiceCategory",
	a."ServiceName",
	a."ServiceProviderName",
	a."ServiceSubcategory",
	a."SkuId",
	a."SkuMeter",
	a."SkuPriceDetails",
	a."SkuPriceId",
	a."SubAccountId",
	a."SubAccountName",
	a."SubAccountType",
	a."Tags",
	a."x_ClusterId",
	a."x_NodeId",
	a."x_UnitId",
	a."x_DeploymentId",
	a."x_Component",
	a."x_Class",
	a."x_MatchMethod",
	a."x_WorkloadClass",
	a."x_Model",
	a."x_GpuModel",
	a."x_BillingModel",
	a."x_Provider",
	a."x_ProviderClass",
	a."x_Region",
	a."x_Owner",
	a."x_CostCentre",
	a."x_Entity",
	a."x_Hour",
	a."x_GpuSecondsBought",
	a."x_GpuSecondsAllocated",
	a."x_GpuSecondsMeasured",
	a."x_GpuSecondsUseful",
	a."x_OriginLineId",
	a."x_AssetId",
	a."x_SourceId",
	a."x_SourceLine",
	a."x_ReceivedAt",
	a."x_CorrectionOf",
	a."x_AllocationId",
	a."x_CauseEventId",
	a."x_Cause",
	a."x_Generated"
from quartermaster.closed_allocations a join quartermaster.closed_months m on m.books = a.books;
comment on view quartermaster.posted_allocations is 'Allocations of closed months as they were closed, and what was posted into them about earlier closed months: what "quartermaster costs export" writes, in its columns. Amounts are exact. It has the months of quartermaster.posted_months and no others.';
comment on column quartermaster.posted_allocations.workspace is 'Workspace that is charged, or an account of the platform.';
comment on column quartermaster.posted_allocations.month is 'Start of the billing month that the row is about.';
comment on column quartermaster.posted_allocations.books_period is 'Start of the month whose books have the row: later than month for what was posted about an earlier month.';
comment on column quartermaster.posted_allocations.posting_type is 'Why the row was posted about an earlier closed month: late, correction, reversal, reattribution, method, accrual. Null for an allocation of the month itself. Everything that adds up is then a difference.';
comment on column quartermaster.posted_allocations."x_ClusterId" is 'Cluster.';
comment on column quartermaster.posted_allocations."x_NodeId" is 'Machine that was paid for, as cluster/node; mixed for several, null for none.';
comment on column quartermaster.posted_allocations."x_UnitId" is 'Pod or job that held what was paid for; mixed for several, null for none.';
comment on column quartermaster.posted_allocations."x_DeploymentId" is 'Deployment that held what was paid for.';
comment on column quartermaster.posted_allocations."x_Component" is 'What became of what was paid for: allocated, idle, failed and so on.';
comment on column quartermaster.posted_allocations."x_Class" is 'Kind of charge: committed, on_demand, spot, owned, shared, credit, tax, rounding.';
comment on column quartermaster.posted_allocations."x_MatchMethod" is 'How the line was matched to machines.';
comment on column quartermaster.posted_allocations."x_WorkloadClass" is 'Class of the deployment.';
comment on column quartermaster.posted_allocations."x_Model" is 'Model that the deployment is declared to serve or train.';
comment on column quartermaster.posted_allocations."x_GpuModel" is 'GPU model of the machines.';
comment on column quartermaster.posted_allocations."x_BillingModel" is 'How the machines are paid for.';
comment on column quartermaster.posted_allocations."x_Provider" is 'Provider of the cluster, else of the billing account''s clusters, else the issuer.';
comment on column quartermaster.posted_allocations."x_ProviderClass" is 'Class of that provider.';
comment on column quartermaster.posted_allocations."x_Region" is 'Region of the cluster, else of the line.';
comment on column quartermaster.posted_allocations."x_Owner" is 'Who answers for the costs of the workspace in that hour.';
comment on column quartermaster.posted_allocations."x_CostCentre" is 'Cost centre of the workspace in that hour.';
comment on column quartermaster.posted_allocations."x_Entity" is 'Company that bears the costs of the workspace in that hour.';
comment on column quartermaster.posted_allocations."x_Hour" is 'Start of the hour that was paid for; null: the whole charge period.';
comment on column quartermaster.posted_allocations."x_GpuSecondsBought" is 'GPU time that was bought, in seconds of whole GPUs.';
comment on column quartermaster.posted_allocations."x_GpuSecondsAllocated" is 'The part of it with a holder.';
comment on column quartermaster.posted_allocations."x_GpuSecondsMeasured" is 'The part of that with measured activity.';
comment on column quartermaster.posted_allocations."x_GpuSecondsUseful" is 'Measured time times activity; null if time was held and none of it measured.';
comment on column quartermaster.posted_allocations."x_OriginLineId" is 'The line, unique within issuer and billing account.';
comment on column quartermaster.posted_allocations."x_AssetId" is 'Asset of a line of owned hardware, as cluster/asset.';
comment on column quartermaster.posted_allocations."x_SourceId" is 'Source of the event that recorded the line; of an import, the SHA-256 of the file with reader and options.';
comment on column quartermaster.posted_allocations."x_SourceLine" is 'Line of the imported file at which the row of the line starts.';
comment on column quartermaster.posted_allocations."x_ReceivedAt" is 'When the line was received: its event was appended then.';
comment on column quartermaster.posted_allocations."x_CorrectionOf" is 'The line that this one corrects.';
comment on column quartermaster.posted_allocations."x_AllocationId" is 'Id of the allocation, for quartermaster costs explain.';
comment on column quartermaster.posted_allocations."x_CauseEventId" is 'Events that can have caused a posting, as source#id of CloudEvents, separated by semicolons. Null if there is no single event: for samples, another method, and telemetry of clusters with shards.';
comment on column quartermaster.posted_allocations."x_Cause" is 'What can have caused a posting: types of events and what they are about, separated by semicolons.';
comment on column quartermaster.posted_allocations."x_Generated" is 'Whether the line is generated and no supplier sent it.';

create view quartermaster.costs as
select a.workspace, m.month as books_period, a.month, a.posting_type, a."x_Hour" as hour, a."x_ClusterId" as cluster,
	a."x_DeploymentId" as deployment, a."x_Component" as component, a."x_GpuModel" as gpu_model, a."x_Model" as model,
	a."x_WorkloadClass" as workload_class, a."x_Region" as region, a."x_Provider" as provider, a."x_ProviderClass" as provider_class,
	a."x_Owner" as owner, a."x_CostCentre" as cost_centre, a."x_Entity" as entity, a."BillingCurrency" as currency,
	sum(a."BilledCost") as billed, sum(a."EffectiveCost") as effective,
	sum(a."x_GpuSecondsBought") as gpu_seconds_bought, sum(a."x_GpuSecondsAllocated") as gpu_seconds_allocated,
	sum(a."x_GpuSecondsMeasured") as gpu_seconds_measured, sum(a."x_GpuSecondsUseful") as gpu_seconds_useful
from quartermaster.closed_allocations a join quartermaster.closed_months m on m.books = a.books
group by 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18;
comment on view quartermaster.costs is 'What closed months cost workspaces, and what was posted into them about earlier closed months: posted_allocations added up over the lines of suppliers, without what is about the supplier. Readers of some workspaces see what these are charged. It has the months of quartermaster.posted_months and no others.';
comment on column quartermaster.costs.workspace is 'Workspace that is charged, or an account of the platform.';
comment on column quartermaster.costs.month is 'Start of the billing month that the row is about.';
comment on column quartermaster.costs.books_period is 'Start of the month whose books have the row: later than month for what was posted about an earlier month.';
comment on column quartermaster.costs.posting_type is 'Why the row was posted about an earlier closed month: late, correction, reversal, reattribution, method, accrual. Null for what the month itself cost. Everything that adds up is then a difference.';
comment on column quartermaster.costs.hour is 'Start of the hour that was paid for; null: the whole charge period.';
comment on column quartermaster.costs.deployment is 'Deployment that held what was paid for.';
comment on column quartermaster.costs.component is 'What became of what was paid for: allocated, idle, failed and so on.';
comment on column quartermaster.costs.gpu_model is 'GPU model of the machines.';
comment on column quartermaster.costs.model is 'Model that the deployment is declared to serve or train.';
comment on column quartermaster.costs.workload_class is 'Class of the deployment.';
comment on column quartermaster.costs.region is 'Region of the cluster, else of the line.';
comment on column quartermaster.costs.provider is 'Provider of the cluster, else of the billing account''s clusters, else the issuer.';
comment on column quartermaster.costs.provider_class is 'Class of that provider.';
comment on column quartermaster.costs.owner is 'Who answers for the costs of the workspace in that hour.';
comment on column quartermaster.costs.cost_centre is 'Cost centre of the workspace in that hour.';
comment on column quartermaster.costs.entity is 'Company that bears the costs of the workspace in that hour.';
comment on column quartermaster.costs.billed is 'As invoiced.';
comment on column quartermaster.costs.effective is 'With commitments spread over their terms.';
comment on column quartermaster.costs.gpu_seconds_bought is 'GPU time that was bought, in seconds of whole GPUs.';
comment on column quartermaster.costs.gpu_seconds_allocated is 'The part of it with a holder.';
comment on column quartermaster.costs.gpu_seconds_measured is 'The part of that with measured activity.';
comment on column quartermaster.costs.gpu_seconds_useful is 'Measured time times activity; null if time was held and none of it measured.';

create view quartermaster.posted_units as
select a.workspace, a.month, m.month as books_period, a.posting_type,
	a."x_ClusterId",
	a."x_DeploymentId",
	a."x_Component",
	a."x_UnitId",
	a."x_NodeId",
	a."BillingCurrency",
	sum(a."BilledCost") as "BilledCost",
	sum(a."EffectiveCost") as "EffectiveCost",
	sum(a."x_GpuSecondsBought") as "x_GpuSecondsBought",
	sum(a."x_GpuSecondsAllocated") as "x_GpuSecondsAllocated",
	sum(a."x_GpuSecondsMeasured") as "x_GpuSecondsMeasured",
	sum(a."x_GpuSecondsUseful") as "x_GpuSecondsUseful"
from quartermaster.closed_units a join quartermaster.closed_months m using (books)
group by a.workspace, a.month, m.month, a.posting_type, a."x_ClusterId", a."x_DeploymentId", a."x_Component", a."x_UnitId", a."x_NodeId", a."BillingCurrency";
comment on view quartermaster.posted_units is 'What each pod or job costs on each machine in closed months, also within lines for several machines, and what was posted about earlier closed months. It adds up to quartermaster.posted_allocations, which has a row for each allocation. Amounts are exact.';
comment on column quartermaster.posted_units.workspace is 'Workspace that is charged, or an account of the platform.';
comment on column quartermaster.posted_units.month is 'Start of the billing month that the row is about.';
comment on column quartermaster.posted_units.books_period is 'Start of the month whose books have the row: later than month for what was posted about an earlier month.';
comment on column quartermaster.posted_units.posting_type is 'Why the row was posted about an earlier closed month: late, correction, reversal, reattribution, method, accrual. Null for what the month itself cost. Everything that adds up is then a difference.';
comment on column quartermaster.posted_units."x_ClusterId" is 'Cluster.';
comment on column quartermaster.posted_units."x_DeploymentId" is 'Deployment that held what was paid for.';
comment on column quartermaster.posted_units."x_Component" is 'What became of what was paid for: allocated, idle, failed and so on.';
comment on column quartermaster.posted_units."x_UnitId" is 'Pod or job that held what was paid for; null for none.';
comment on column quartermaster.posted_units."x_NodeId" is 'Machine that was paid for, as cluster/node; null for none.';
comment on column quartermaster.posted_units."BillingCurrency" is 'Currency, ISO 4217.';
comment on column quartermaster.posted_units."BilledCost" is 'What it costs in the ledger that reconciles with invoices.';
comment on column quartermaster.posted_units."EffectiveCost" is 'What it costs in the ledger that reconciles with commitments.';
comment on column quartermaster.posted_units."x_GpuSecondsBought" is 'GPU time that was bought, in seconds of whole GPUs.';
comment on column quartermaster.posted_units."x_GpuSecondsAllocated" is 'The part of it with a holder.';
comment on column quartermaster.posted_units."x_GpuSecondsMeasured" is 'The part of that with measured activity.';
comment on column quartermaster.posted_units."x_GpuSecondsUseful" is 'Measured time times activity.';

create view quartermaster.statements as
select s.workspace, m.month as books_period, s.number, s.month, s.corrects, s.posting_type, s.component, s.currency, s.billed, s.effective,
	s.gpu_seconds_bought, s.gpu_seconds_allocated, s.gpu_seconds_measured, s.gpu_seconds_useful, s.causes
from quartermaster.closed_statements s join quartermaster.closed_months m on m.books = s.books;
comment on view quartermaster.statements is 'Final statements of workspaces, as "quartermaster costs statement" shows them: what each component cost, and the corrections of earlier statements. Amounts are exact; quartermaster.statements_due has what is asked for. It has the months of quartermaster.posted_months and no others.';
comment on column quartermaster.statements.workspace is 'Workspace that is charged, or an account of the platform.';
comment on column quartermaster.statements.books_period is 'Start of the month of the statement.';
comment on column quartermaster.statements.number is 'Number of the statement.';
comment on column quartermaster.statements.month is 'Start of the billing month that the row is about: for a correction the month of the statement that it corrects.';
comment on column quartermaster.statements.corrects is 'Number of the statement that the row corrects; null for what the month itself cost.';
comment on column quartermaster.statements.posting_type is 'Why it was corrected: late, correction, reversal, reattribution, method, accrual; null for what the month itself cost.';
comment on column quartermaster.statements.component is 'What became of what was paid for: allocated, idle, failed and so on; null for a correction.';
comment on column quartermaster.statements.billed is 'Reconciles with invoices.';
comment on column quartermaster.statements.effective is 'With commitments spread over their terms.';
comment on column quartermaster.statements.gpu_seconds_bought is 'GPU time that was bought, in seconds of whole GPUs; null for a correction, and so are the others.';
comment on column quartermaster.statements.gpu_seconds_allocated is 'The part of it with a holder.';
comment on column quartermaster.statements.gpu_seconds_measured is 'The part of that with measured activity.';
comment on column quartermaster.statements.gpu_seconds_useful is 'Measured time times activity; null if time was held and none of it measured.';
comment on column quartermaster.statements.causes is 'What can have caused a correction: types of events and what they are about, separated by semicolons.';

create view quartermaster.statements_due as
select d.workspace, m.month as books_period, d.number, d.currency, d.charged, d.notes, d.due
from quartermaster.closed_dues d join quartermaster.closed_months m on m.books = d.books;
comment on view quartermaster.statements_due is 'What the final statement of each workspace asks for in each currency, in whole minor units: rounded once for each invoice, so that the statements of all workspaces add up to the invoices.';
comment on column quartermaster.statements_due.workspace is 'Workspace that is charged, or an account of the platform.';
comment on column quartermaster.statements_due.books_period is 'Start of the month of the statement.';
comment on column quartermaster.statements_due.number is 'Number of the statement.';
comment on column quartermaster.statements_due.charged is 'For the month itself.';
comment on column quartermaster.statements_due.notes is 'Sum of the credit notes (negative) and debit notes for corrections of earlier statements.';
comment on column quartermaster.statements_due.due is 'charged and notes.';

create view quartermaster.plans as
select t.workspace, t.plan, (l.v->>'effective')::timestamptz as computed, l.v->'event'->>'position' as position,
	l.v->'event'->>'method' as method, nullif(l.v->'event'->'horizon'->>'from', '')::timestamptz as horizon_from,
	nullif(l.v->'event'->'horizon'->>'to', '')::timestamptz as horizon_to,
	(l.v->'event'->'cost'->>'amount')::numeric as cost, (l.v->'event'->'lower_bound'->>'amount')::numeric as lower_bound,
	l.v->'event'->'cost'->>'currency' as currency
from rows.plans t cross join lateral (select t.facts->-1 as v) l;
comment on view quartermaster.plans is 'Computed plans.';
comment on column quartermaster.plans.position is 'Position of the log that the plan was computed from.';
comment on column quartermaster.plans.lower_bound is 'No plan can cost less.';

create view quartermaster.quarantine as
select t.log_partition, t.record_offset, coalesce((t.facts->>'last')::bigint, t.record_offset) - t.record_offset + 1 as events,
	t.facts->>'reason' as reason, t.facts->>'type' as type, t.facts->>'source' as source,
	t.facts->>'workspace' as workspace, t.facts->>'cluster' as cluster,
	nullif(t.facts->>'appended', '')::timestamptz as appended, r.resolution
from rows.quarantine t left join lateral (
	select x.facts->-1->'event'->>'resolution' as resolution from rows.quarantine_resolutions x
	where x.record = t.log_partition || '@' || t.record_offset
	order by (x.facts->-1->>'effective')::timestamptz desc limit 1
) r on true;
comment on view quartermaster.quarantine is 'Records of the log that could not be used. Reports that may lack them say so.';
comment on column quartermaster.quarantine.events is 'Number of events from record_offset on. The events of a batch that could not be unpacked are one row.';
comment on column quartermaster.quarantine.workspace is 'Workspace that the record concerns; empty if unknown, so it may be any workspace.';
comment on column quartermaster.quarantine.resolution is 'The decision: reappended or discarded; null if still open.';

create view quartermaster.streams as
select t.log_partition, t.source, t.incarnation, (t.facts->>'mark')::numeric as mark,
	coalesce((t.facts->>'lost')::numeric, 0) + coalesce((
		select sum((g->>'last')::numeric - (g->>'first')::numeric + 1) from jsonb_array_elements(list(t.facts->'gaps')) g), 0) as missing,
	nullif(t.facts->>'last', '')::timestamptz as last
from rows.streams t;
comment on view quartermaster.streams is 'How far each source has come.';
comment on column quartermaster.streams.mark is 'Highest sequence number of an event that arrived.';
comment on column quartermaster.streams.missing is 'Number of events up to mark that have not arrived.';
comment on column quartermaster.streams.last is 'Time of the latest event.';

create view quartermaster.positions as
select p.topic, p.partition, p.next_offset
from quartermaster.partitions p
where p.generation = (select generation from quartermaster.active);
comment on view quartermaster.positions is 'Position of the log that the rows stand for. Everything read in one transaction (repeatable read) is at one position.';
comment on column quartermaster.positions.next_offset is 'Offset of the first record of the partition that is not in the rows yet.';

create or replace function quartermaster.workspaces_of(reader text) returns text[]
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
	with recursive seen(workspace) as (
		select w collate "C" from quartermaster.readers r cross join unnest(r.workspaces) w
		where r.role = reader and exists (select from pg_roles p where p.rolname = reader and pg_has_role(session_user, p.oid, 'member'))
		union
		select w.workspace from quartermaster.workspaces w join seen s on w.parent = s.workspace
	)
	select coalesce(array_agg(workspace), '{}') from seen
$$;
comment on function quartermaster.workspaces_of is 'Workspaces that a role of quartermaster.readers sees now, and none of a role that the user is not a member of. Policies ask it.';
