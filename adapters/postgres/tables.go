package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/lib/pq"

	"quartermaster/projections"
)

// table describes how a [projections.Table] is stored in Postgres: its key in columns with readable
// names, the row in the encoding of the folds, and the same row in JSON for SQL.
type table struct {
	of      projections.Table
	comment string
	scope   column // of Key.Scope
	id      column // of Key.ID; without a name, Key.ID is "" in every row
	at      column // of Key.Hour; without a name, Key.Hour is 0 in every row
	kind    timeKind
	facts   string // what the column facts holds; "" if the table has no such column
	hot     bool   // its rows are updated often
}

// column is a column with its comment.
type column struct{ name, comment string }

// timeKind is how a table stores Key.Hour.
type timeKind int

const (
	timeless    timeKind = iota
	byHour               // the hour, in partitions by month
	byDay                // the hour; the table is partitioned by month
	byMonth              // the month
	incarnation          // the number as it is
	offset               // the number less one
)

var (
	workspaceColumn = column{"workspace", "Workspace (customer, team or business unit)."}
	clusterColumn   = column{"cluster", "Cluster."}
	shardColumn     = column{"cluster", "Cluster, or one of its shards: c/3-of-8 is shard 3 of the 8 of cluster c."}
	nodeColumn      = column{"node", "Machine, by its name within the cluster."}
	accountColumn   = column{"account", "Invoice issuer and billing account, separated by a bar."}
	marketColumn    = column{"market", "Supplier and region, separated by a bar."}
	entityColumn    = column{"entity", "Ledger entity that the books belong to."}
	serverColumn    = column{"server", "Deployment, model and tier, separated by bars."}
	hourColumn      = column{"hour", "Start of the UTC hour that the row covers."}
	dayColumn       = column{"day", "Start of the UTC day that the row is filed under."}
	monthColumn     = column{"month", "Start of the UTC month that the row is filed under."}
)

const history = `All versions as a JSON array, in the order in which they took effect. ` +
	`"effective": since when the version holds. "appended": when it was appended to the log. ` +
	`"recorded": when it was known, if that was stated. "workspace". "signed_by": who decided it. ` +
	`"type" and "event": what happened. ` +
	`Whether a signer had the right to decide is answered by the program quartermaster, not here.`

// tables are the specifications of all tables, in the order of [projections.Tables].
var tables = []*table{
	{of: projections.TableStreams, hot: true,
		comment: "How far each source has come in each partition of the log, and which of its events have not arrived.",
		scope:   column{"log_partition", "Topic and number of the partition, separated by a slash."},
		id:      column{"source", "Program or file that reported."},
		at: column{"incarnation", "Incarnation of the source; each numbers its events anew. " +
			"0 has the incarnations that ended; \"mark\" then counts their events. " +
			"An unsigned 64-bit number: above 2^63-1 it shows as negative."},
		kind: incarnation,
		facts: `Highest sequence number seen ("mark"), missing ones below it ("gaps"), ` +
			`how many were given up ("lost"), time of the latest event ("last").`},
	{of: projections.TableQuarantine,
		comment: "Records of the log that could not be used, each with the reason. Reports that may lack them say so.",
		scope:   column{"log_partition", "Topic and number of the partition, separated by a slash."},
		at:      column{"record_offset", "Offset of the record in the partition."},
		kind:    offset,
		facts:   "Reason, SHA-256 of the record, and its type, source, workspace and cluster as far as they could be read."},

	{of: projections.TableWorkspaces, comment: "Workspaces: customers, teams and business units.",
		scope: workspaceColumn, id: column{"name", "The workspace again: a workspace registers itself."}, facts: history},
	{of: projections.TableOperators, comment: "People and programs whose signatures are decisions.",
		scope: workspaceColumn, id: column{"operator", "Operator."}, facts: history},
	{of: projections.TablePolicies, comment: "Policies: residency, sharing of discounts and the like.",
		scope: workspaceColumn, id: column{"policy", "Policy."}, facts: history},
	{of: projections.TableQuotas, comment: "How much of a resource a workspace may take.",
		scope: workspaceColumn, id: column{"quota", "Quota."}, facts: history},
	{of: projections.TableBudgets, comment: "Budgets of workspaces.",
		scope: workspaceColumn, id: column{"budget", "Budget."}, facts: history},
	{of: projections.TableRegions, comment: "Regions, their countries and the round-trip times to other regions.",
		scope: workspaceColumn, id: column{"region", "Region."}, facts: history},
	{of: projections.TableCertifications, comment: "Certifications that providers and clusters hold.",
		scope: workspaceColumn, facts: history,
		id: column{"certification", "Provider, cluster and certification, separated by bars."}},
	{of: projections.TableMethods, comment: "Versions of the calculation methods, and since when each applies.",
		scope: workspaceColumn, id: column{"method", "Method, for example attribution."}, facts: history},
	{of: projections.TableMappingRules, comment: "Rules that assign workloads of a cluster to workspaces.",
		scope: workspaceColumn, id: column{"rule", "Rule."}, facts: history},
	{of: projections.TableLegalHolds, comment: "Legal holds, which stop removals.",
		scope: workspaceColumn, id: column{"hold", "Legal hold."}, facts: history},
	{of: projections.TablePeople, comment: "Names of people, sealed with keys that are kept outside the log.",
		scope: workspaceColumn, id: column{"person", "Id of the person, as in operators."}, facts: history},

	{of: projections.TableClusters, comment: "Clusters, their suppliers and their owners.",
		scope: clusterColumn, id: column{"name", "The cluster again: a cluster registers itself."}, facts: history},
	{of: projections.TableClusterKeys,
		comment: "Keys with which clusters report, by their HMAC; the keys themselves are not stored.",
		scope:   clusterColumn, id: column{"key_id", "Name of the key."}, facts: history},
	{of: projections.TableNodes, comment: "Machines as they were registered and retired.",
		scope: clusterColumn, id: nodeColumn, facts: history},
	{of: projections.TableAssets, comment: "Owned hardware: acquired, revised, disposed of.",
		scope: clusterColumn, id: column{"asset", "Asset."}, facts: history},
	{of: projections.TableMaintenance, comment: "Maintenance windows.",
		scope: clusterColumn, id: column{"maintenance", "Maintenance."}, facts: history},
	{of: projections.TableOutages, comment: "Periods in which nodes were down, as declared by people.",
		scope: clusterColumn, id: column{"outage", "Outage."}, facts: history},

	{of: projections.TableUsage, hot: true,
		comment: "Who held which GPU when: one row for each machine and hour, with the report of every observer, " +
			"in the encoding of the program. In SQL use usage_held, which is written with it.",
		scope: shardColumn, id: nodeColumn, at: hourColumn, kind: byHour},
	{of: projections.TableNodeGPUs,
		comment: "GPUs that were reported under the name of each machine in a month, each with its first and last hour, " +
			"in the encoding of the program. It serves to count a GPU once that was reported under two names. " +
			"Also how much was reported after the month.",
		scope: shardColumn, id: nodeColumn, at: monthColumn, kind: byMonth},
	{of: projections.TableServing, hot: true,
		comment: "What model servers did: requests, tokens, times to the first token, one row for each server and hour.",
		scope:   clusterColumn, id: serverColumn, at: hourColumn, kind: byHour,
		facts: "Sums for each source. Gauges are multiplied by milliseconds and summed: divide by known_ms for the mean."},
	{of: projections.TableServers, hot: true,
		comment: "What monitoring systems scraped of each model server, one row for each pod and hour.",
		scope:   clusterColumn,
		id: column{"server", "Deployment, model, tier, engine and unit, separated by bars; " +
			"a bar within a name has a backslash before it."},
		at: hourColumn, kind: byHour,
		facts: "Counts of the hour, gauges as means in thousandths, and histograms of the time to the first token " +
			"and of the wait in the queue, one for each set of bounds."},
	{of: projections.TableJobs, comment: "Jobs: queued, started, finished.",
		scope: clusterColumn, id: column{"job", "Job."}, facts: history},
	{of: projections.TableDemand, hot: true,
		comment: "How many GPUs were demanded: one row for each series and month, in the encoding of the program.",
		scope:   clusterColumn, id: column{"series", "Pool, model and unit, separated by bars."}, at: monthColumn, kind: byMonth},
	{of: projections.TableEnergy, comment: "Metered power.",
		scope: clusterColumn, id: column{"meter", "Meter."}, at: dayColumn, kind: byDay, facts: history},
	{of: projections.TableUsageCorrections, comment: "Corrections of which workload held a GPU.",
		scope: clusterColumn, id: column{"correction", "Correction."}, facts: history},

	{of: projections.TableFaults, comment: "Faults of GPUs.",
		scope: shardColumn, id: nodeColumn, at: dayColumn, kind: byDay,
		facts: history + ` One version may stand for repeats: "count" is the number of events (absent: one), ` +
			`"effective" the time of the first and "last" of the last. ` +
			`If "rest" is true they were different faults of the same kind, more than a row keeps separately.`},
	{of: projections.TableHealth, comment: "Machines taken out of service and returned, and times without reports.",
		scope: shardColumn, id: nodeColumn, at: dayColumn, kind: byDay, facts: history},

	{of: projections.TableDeployments, comment: "Models and jobs that workspaces run.",
		scope: clusterColumn, id: column{"deployment", "Deployment."}, facts: history},
	{of: projections.TableReplicas, comment: "How many replicas of a model were seen.",
		scope: clusterColumn, id: serverColumn, at: dayColumn, kind: byDay, facts: history},

	{of: projections.TableBillingLines,
		comment: "Lines of suppliers' bills, as received. " +
			"The view quartermaster.billing_lines has columns with their FOCUS names.",
		scope: accountColumn, id: column{"line", "The line's own id within the account."},
		at: monthColumn, kind: byMonth, facts: history},
	{of: projections.TableInvoices, comment: "Invoices, received independently of their lines.",
		scope: accountColumn, id: column{"invoice", "Invoice number."}, facts: history},
	{of: projections.TableBillingPeriods, comment: "Billing periods that suppliers have closed.",
		scope: accountColumn, id: column{"period", "Start of the period."}, facts: history},

	{of: projections.TableOffers, comment: "What suppliers sell, and at what price.",
		scope: marketColumn, id: column{"offer", "Offer, by its id within the market."},
		at: monthColumn, kind: byMonth, facts: history},
	{of: projections.TableOnDemandQuotas, comment: "How many GPUs an account may start on demand.",
		scope: marketColumn, id: column{"quota", "Account and GPU model, separated by a bar."}, facts: history},
	{of: projections.TableSpotInterruptions, comment: "Spot capacity that suppliers reclaimed.",
		scope: marketColumn, id: column{"sku_zone", "Instance type and zone, separated by a bar."},
		at: dayColumn, kind: byDay, facts: history},
	{of: projections.TableTariffs, comment: "Prices of power.",
		scope: marketColumn, id: column{"site", "Site."}, facts: history},
	{of: projections.TableFXRates, comment: "Exchange rates.",
		scope: column{"pair", "Currencies: the value of one unit of the first in the second."},
		id:    column{"kind", "What the rate may be used for: spot, average or payment."},
		at:    monthColumn, kind: byMonth, facts: history},

	{of: projections.TablePlans, comment: "Computed plans. Their documents are in the log.",
		scope: workspaceColumn, id: column{"plan", "Plan."}, facts: history},
	{of: projections.TableScenarios, comment: "Scenarios that recommendations cite.",
		scope: workspaceColumn, id: column{"scenario", "Scenario."}, facts: history},
	{of: projections.TableRecommendations, comment: "Recommendations and their outcomes.",
		scope: workspaceColumn, id: column{"recommendation", "Recommendation."}, facts: history},
	{of: projections.TableCommitments, comment: "Contracts with suppliers: offers that were bought.",
		scope: workspaceColumn, id: column{"commitment", "Commitment, by its id on the bill."}, facts: history},

	{of: projections.TableCloses, comment: "Closes of our own books.",
		scope: entityColumn, id: column{"period", "Start of the period."}, facts: history},
	{of: projections.TableExports, comment: "Exports: figures that were published.",
		scope: entityColumn, id: column{"export", "Export."}, facts: history},
	{of: projections.TableCheckpoints, comment: "Signed statements of the content of the log.",
		scope: entityColumn, at: monthColumn, kind: byMonth, facts: history},
	{of: projections.TableResolutions, comment: "How quarantined records were resolved.",
		scope: entityColumn, id: column{"record", "Topic, partition and offset of the record."}, facts: history},
	{of: projections.TableConflicts,
		comment: "Records with a sequence number that another record of the stream already has. They are in quarantine.",
		scope:   entityColumn, id: column{"record", "Topic, partition and offset of the record in quarantine."}, facts: history},
	{of: projections.TableGapResolutions, comment: "Events of streams that will never arrive, as stated by an operator.",
		scope: entityColumn, id: column{"stream", "Topic and partition, source and incarnation."}, facts: history},
	{of: projections.TableSwitches, comment: "Generations that were switched to, by whom and why.",
		scope: entityColumn, id: column{"generation", "The generation that was active from then on."}, facts: history},
	{of: projections.TableRemovals, comment: "What was removed under a retention policy.",
		scope: entityColumn, id: column{"removal", "Removal."}, facts: history},
	{of: projections.TableDenials, comment: "Refused attempts.",
		scope: entityColumn, id: column{"principal", "Who tried."}, at: dayColumn, kind: byDay, facts: history},

	{of: projections.TableGrants, comment: "Who may read what a role may, in a workspace and in those below it.",
		scope: workspaceColumn, id: column{"grant_id", "Grant."}, facts: history},
	{of: projections.TableServiceKeys, comment: "Keys of service accounts, by their HMAC; the keys themselves are not stored.",
		scope: workspaceColumn, id: column{"key_id", "Name of the key."}, facts: history},
	{of: projections.TableSessions, comment: "Since when what an identity provider gave somebody before is not valid any more.",
		scope: workspaceColumn, id: column{"principal", "Who."}, facts: history},
	{of: projections.TableAccess, comment: "Who asked what of the API, folded into one event for each minute.",
		scope: workspaceColumn, id: column{"principal", "Who asked."}, at: dayColumn, kind: byDay, facts: history},

	{of: projections.TableIncidents, comment: "What needs a person. The documents with the findings are in the log.",
		scope: workspaceColumn, id: column{"incident", "Incident."}, facts: history},
	{of: projections.TableSilences, comment: "Which incidents cause no notices, and until when.",
		scope: workspaceColumn, id: column{"silence", "Silence."}, facts: history},
}

// tableOf finds a specification by number.
var tableOf = func() (m [256]*table) {
	for _, t := range tables {
		m[t.of] = t
	}
	return m
}()

func (t *table) name() string { return t.of.String() }

// key returns the names of the key columns.
func (t *table) key() []string {
	key := []string{t.scope.name}
	for _, c := range []column{t.id, t.at} {
		if c.name != "" {
			key = append(key, c.name)
		}
	}
	return key
}

// number returns SQL that converts a number as in Key.Hour to the table's time column.
func (t *table) number(expr string) string {
	switch t.kind {
	case byHour, byDay, byMonth:
		return "to_timestamp(" + expr + " * 3600)"
	case offset:
		return expr + " - 1"
	default:
		return expr
	}
}

// held is the name of a table derived from usage hours and keyed by workspace.
const (
	held        = "usage_held"
	heldComment = "Seconds for which each workspace held GPUs, one row for each deployment, machine, hour and observer, " +
		"as that observer reported it. Do not sum over observers: where two observers saw the same GPU both have rows, " +
		"so a sum over them counts its time twice, and corrections are not applied. " +
		"Sum one source at a time, or use \"quartermaster usage\", which resolves them."
)

var heldColumns = []struct{ name, typ, comment string }{
	{"workspace", `text collate "C" not null`, "Workspace that held the devices."},
	{"cluster", `text collate "C" not null`, shardColumn.comment},
	{"deployment", `text collate "C" not null`, "Deployment of the workspace; empty: unknown."},
	{"node", `text collate "C" not null`, "Machine, by its name within the cluster."},
	{"hour", "timestamptz not null", "Start of the UTC hour."},
	{"source", `text collate "C" not null`, "Observer that reported it."},
	{"gpu_seconds", "numeric not null", "Seconds for which whole GPUs were held, summed over GPUs."},
	{"slice_seconds", "numeric not null", "Seconds for which parts of GPUs (MIG instances, time-slice replicas) were held, " +
		"summed over parts and not weighted by their size."},
	{"measured_seconds", "numeric not null", "Seconds of these for which activity was measured."},
	{"active_seconds", "numeric not null", "Measured seconds times activity: 0.5 for a device that was half busy for a second."},
}

const heldKey = "workspace, cluster, deployment, node, hour, source"

// monthly returns the tables that are partitioned by month.
func monthly() []string {
	names := []string{held}
	for _, t := range tables {
		if t.kind == byHour {
			names = append(names, t.name())
		}
	}
	return names
}

// generationName bounds names of generations, because they become part of a schema's name.
var generationName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

func checkGeneration(name string) error {
	if !generationName.MatchString(name) {
		return fmt.Errorf("generation %q: a name is a lower-case letter followed by up to 40 lower-case letters, "+
			"digits and underscores", name)
	}
	return nil
}

// schemaOf returns the schema of a generation's rows. It needs no quotes in SQL.
func schemaOf(generation string) string { return "rows_" + generation }

// createTables makes the schema of a generation with its empty tables, and makes the views again so
// that they cover this generation too. The generation's row in quartermaster.generations MUST exist
// already.
func (db *DB) createTables(ctx context.Context, tx *sql.Tx, name string) error {
	if err := checkGeneration(name); err != nil {
		return err
	}
	schema := schemaOf(name)
	packed := "set storage main"
	var lz4 bool
	err := tx.QueryRowContext(ctx, `
		select 'lz4' = any (enumvals) from pg_settings where name = 'default_toast_compression'`).Scan(&lz4)
	if err != nil {
		return fmt.Errorf("look up the server's compression methods: %w", err)
	}
	if lz4 {
		packed += ", alter column row set compression lz4"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "create schema %s;\ncomment on schema %[1]s is %s;\n",
		schema, pq.QuoteLiteral("Rows of generation "+name+", all at the position in quartermaster.partitions."))
	for _, t := range tables {
		t.create(&b, schema)
		if t.hot {
			fmt.Fprintf(&b, "alter table %s.%s alter column row %s;\n", schema, t.name(), packed)
		}
	}
	createHeld(&b, schema)
	createTallies(&b, schema)
	createUsageChanges(&b, schema)
	createUsage(&b, schema)
	for _, t := range monthly() {
		// All months outside the bounds share two partitions, so that bad times cannot make many.
		for _, far := range [][3]string{
			{"before", "minvalue", pq.QuoteLiteral(monthBound(firstMonth))},
			{"after", pq.QuoteLiteral(monthBound(endMonth)), "maxvalue"},
		} {
			fmt.Fprintf(&b, "create table %s.%s_%s (like %[1]s.%[2]s including all) with (%[4]s);\n",
				schema, t, far[0], hotStorage)
			fmt.Fprintf(&b, "alter table %s.%s attach partition %[1]s.%[2]s_%s for values from (%s) to (%s);\n",
				schema, t, far[0], far[1], far[2])
		}
		fmt.Fprintf(&b, "comment on table %s.%s_before is 'Rows of %[2]s before %s.';\n", schema, t, firstMonth)
		fmt.Fprintf(&b, "comment on table %s.%s_after is 'Rows of %[2]s from %s on.';\n", schema, t, endMonth)
	}
	if _, err := tx.ExecContext(ctx, b.String()); err != nil {
		return fmt.Errorf("create the tables of generation %q: %w", name, err)
	}
	return db.makeViews(ctx, tx, "")
}

// dropTables drops the schema of a generation with all its rows, and removes it from the views.
func (db *DB) dropTables(ctx context.Context, tx *sql.Tx, name string) error {
	if err := checkGeneration(name); err != nil {
		return err
	}
	if err := db.makeViews(ctx, tx, name); err != nil {
		return fmt.Errorf("drop the tables of generation %q: %w", name, err)
	}
	return nil
}

func (t *table) create(b *strings.Builder, schema string) {
	name := schema + "." + t.name()
	fmt.Fprintf(b, "create table %s (\n\t%s text collate \"C\" not null", name, t.scope.name)
	if t.id.name != "" {
		fmt.Fprintf(b, ",\n\t%s text collate \"C\" not null", t.id.name)
	}
	switch t.kind {
	case byHour, byDay, byMonth:
		fmt.Fprintf(b, ",\n\t%s timestamptz not null", t.at.name)
	case incarnation, offset:
		fmt.Fprintf(b, ",\n\t%s bigint not null", t.at.name)
	case timeless:
	}
	b.WriteString(",\n\texact bytea[],\n\trow bytea not null")
	if t.facts != "" {
		b.WriteString(",\n\tfacts jsonb")
	}
	fmt.Fprintf(b, ",\n\tprimary key (%s)\n)", strings.Join(t.key(), ", "))
	switch {
	case t.kind == byHour:
		fmt.Fprintf(b, " partition by range (%s)", t.at.name)
	case t.hot:
		b.WriteString(" with (" + hotStorage + ")")
	}
	b.WriteString(";\n")
	fmt.Fprintf(b, "create index on %s (%s) where exact is not null;\n", name, t.scope.name)
	comment := func(c column) {
		if c.name != "" {
			fmt.Fprintf(b, "comment on column %s.%s is %s;\n", name, c.name, pq.QuoteLiteral(c.comment))
		}
	}
	fmt.Fprintf(b, "comment on table %s is %s;\n", name, pq.QuoteLiteral(t.comment))
	for _, c := range []column{t.scope, t.id, t.at} {
		comment(c)
	}
	comment(column{"exact", "The key's own bytes if a column cannot hold them as text or they are very long; " +
		"the key columns then have a stand-in. Null in nearly every row."})
	comment(column{"row", "The row as the program encodes it (CBOR, RFC 8949). This is what is compared and digested."})
	if t.facts != "" {
		comment(column{"facts", t.facts})
	}
}

func createHeld(b *strings.Builder, schema string) {
	name := schema + "." + held
	fmt.Fprintf(b, "create table %s (\n", name)
	for _, c := range heldColumns {
		fmt.Fprintf(b, "\t%s %s,\n", c.name, c.typ)
	}
	fmt.Fprintf(b, "\tprimary key (%s)\n) partition by range (hour);\n", heldKey)
	fmt.Fprintf(b, "comment on table %s is %s;\n", name, pq.QuoteLiteral(heldComment))
	for _, c := range heldColumns {
		fmt.Fprintf(b, "comment on column %s.%s is %s;\n", name, c.name, pq.QuoteLiteral(c.comment))
	}
}

// hotStorage leaves room on each page of the hot tables, so that an updated row stays on its page
// and no index changes: a batch updates every row of a page. Rows above 2 KB are compressed by lz4,
// if the server has it, and stay in the page too. Measured on usage hours of eight GPUs that are
// updated again and again: with fillfactor 90, half of the updates leave their page and the table
// grows to twice its size. pglz, the server's default, takes 64 µs for a row of 2.5 KB and 204 µs
// for one of 6.5 KB; lz4 takes 33 and 74 µs.
const hotStorage = "fillfactor = 50"

// tableNames returns the names of a generation's tables.
func tableNames() []string {
	names := make([]string, 0, len(tables)+4)
	for _, t := range tables {
		names = append(names, t.name())
	}
	return slices.Concat(names, []string{held, tallied, usageChanged, usageDays, usageMonths})
}
