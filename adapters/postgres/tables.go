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

// table is how a [projections.Table] stands in Postgres: its key under names
// for people, the row as folds encode it, and the same row in JSON for SQL.
type table struct {
	of      projections.Table
	comment string
	scope   column // of Key.Scope
	id      column // of Key.ID; without a name it is "" in every row
	at      column // of Key.Hour; without a name it is 0 in every row
	kind    timeKind
	facts   string // what the column facts holds; "" where there is none
	hot     bool   // its rows are written many times
}

// column is a column with its comment.
type column struct{ name, comment string }

// timeKind is what a table keeps of Key.Hour.
type timeKind int

const (
	timeless    timeKind = iota
	byHour               // the hour, in partitions by month
	byDay                // the day
	byMonth              // the month
	incarnation          // the number as it is
	offset               // the number less one
)

var (
	workspaceColumn = column{"workspace", "Workspace (customer, team or business unit)."}
	clusterColumn   = column{"cluster", "Cluster."}
	nodeColumn      = column{"node", "Machine, by its name within the cluster."}
	accountColumn   = column{"account", "Invoice issuer and billing account, with a bar between."}
	marketColumn    = column{"market", "Supplier and region, with a bar between."}
	entityColumn    = column{"entity", "Ledger entity whose books these are."}
	serverColumn    = column{"server", "Deployment, model and tier, with bars between."}
	hourColumn      = column{"hour", "The UTC hour that the row covers, by its beginning."}
	dayColumn       = column{"day", "The UTC day that the row is filed under, by its beginning."}
	monthColumn     = column{"month", "The UTC month that the row is filed under, by its beginning."}
)

const history = `Every version of the thing as a JSON array, in the order in which they took effect: "effective" since when it holds, "appended" when it came into the log, "recorded" when it was known where that was stated, "workspace", "signed_by" who decided it, "type" and "event" what happened. Whether a signer had the right to decide is answered by the program quartermaster, not here.`

// tables are the specifications of all tables, as [projections.Tables] orders them.
var tables = []*table{
	{of: projections.TableStreams, hot: true,
		comment: "How far each reporting program has come in each partition of the log, and what of it has not arrived.",
		scope:   column{"log_partition", "Topic and number of the partition, with a slash between."},
		id:      column{"source", "Program or file that reported."},
		at:      column{"incarnation", "Life of the source; each numbers its events anew. 0 has those that ended, \"mark\" their events. A number of 64 bits: one above 2^63-1 shows as negative."},
		kind:    incarnation,
		facts:   `Highest sequence seen ("mark"), missing ones below it ("gaps"), how many were given up ("lost"), time of the latest event ("last").`},
	{of: projections.TableQuarantine,
		comment: "Records of the log that could not be used, each with the reason. Reports that may lack them say so.",
		scope:   column{"log_partition", "Topic and number of the partition, with a slash between."},
		at:      column{"record_offset", "Place of the record within the partition."},
		kind:    offset,
		facts:   "Reason, SHA-256 of the record, and of its type, source, workspace and cluster what could be read."},

	{of: projections.TableWorkspaces, comment: "Workspaces: customers, teams and business units.",
		scope: workspaceColumn, id: column{"name", "The same again: a workspace registers itself."}, facts: history},
	{of: projections.TableOperators, comment: "People and programs whose signature decides.",
		scope: workspaceColumn, id: column{"operator", "Operator."}, facts: history},
	{of: projections.TablePolicies, comment: "Policies: residency, sharing of discounts and the like.",
		scope: workspaceColumn, id: column{"policy", "Policy."}, facts: history},
	{of: projections.TableQuotas, comment: "How much of a resource a workspace may take.",
		scope: workspaceColumn, id: column{"quota", "Quota."}, facts: history},
	{of: projections.TableBudgets, comment: "Budgets of workspaces.",
		scope: workspaceColumn, id: column{"budget", "Budget."}, facts: history},
	{of: projections.TableRegions, comment: "Regions, their countries and the time to reach others.",
		scope: workspaceColumn, id: column{"region", "Region."}, facts: history},
	{of: projections.TableCertifications, comment: "Certifications that providers and clusters hold.",
		scope: workspaceColumn, id: column{"certification", "Provider, cluster and certification, with bars between."}, facts: history},
	{of: projections.TableMethods, comment: "Versions of the methods of calculation, and since when each counts.",
		scope: workspaceColumn, id: column{"method", "Method, for example attribution."}, facts: history},
	{of: projections.TableMappingRules, comment: "Rules by which what runs in a cluster is assigned to workspaces.",
		scope: workspaceColumn, id: column{"rule", "Rule."}, facts: history},

	{of: projections.TableClusters, comment: "Clusters, their suppliers and their owners.",
		scope: clusterColumn, id: column{"name", "The same again: a cluster registers itself."}, facts: history},
	{of: projections.TableClusterKeys, comment: "Keys with which clusters report, by their HMAC; the keys themselves are kept nowhere.",
		scope: clusterColumn, id: column{"key_id", "Name of the key."}, facts: history},
	{of: projections.TableNodes, comment: "Machines as they were registered and retired.",
		scope: clusterColumn, id: nodeColumn, facts: history},
	{of: projections.TableAssets, comment: "Owned hardware: acquired, revised, disposed of.",
		scope: clusterColumn, id: column{"asset", "Asset."}, facts: history},
	{of: projections.TableMaintenance, comment: "Maintenance windows.",
		scope: clusterColumn, id: column{"maintenance", "Maintenance."}, facts: history},
	{of: projections.TableOutages, comment: "Times in which nodes were down, as people declared them.",
		scope: clusterColumn, id: column{"outage", "Outage."}, facts: history},

	{of: projections.TableUsage, hot: true,
		comment: "Who held which GPU when: one row for each machine and hour, as every observer saw it, in the encoding of the program. In SQL ask usage_held, which is written with it.",
		scope:   clusterColumn, id: nodeColumn, at: hourColumn, kind: byHour},
	{of: projections.TableNodeGPUs,
		comment: "Which GPUs were reported under the name of each machine in a month, each with the first hour and the last, in the encoding of the program: by it a GPU that is reported under two names is counted once. And how much was reported after the month.",
		scope:   clusterColumn, id: nodeColumn, at: monthColumn, kind: byMonth},
	{of: projections.TableServing, hot: true,
		comment: "What model servers did: requests, tokens, times to the first token, one row for each server and hour.",
		scope:   clusterColumn, id: serverColumn, at: hourColumn, kind: byHour,
		facts: "Sums for each source. Gauges are summed times milliseconds: divide by known_ms for the mean."},
	{of: projections.TableServers, hot: true,
		comment: "What monitoring systems scraped of each model server, one row for each pod and hour.",
		scope:   clusterColumn, id: column{"server", "Deployment, model, tier, engine and unit, with bars between; a bar within a name has a backslash before it."}, at: hourColumn, kind: byHour,
		facts: "Counts of the hour, gauges as means in thousandths, and histograms of the time to the first token and of the wait in the queue, one for each set of bounds."},
	{of: projections.TableJobs, comment: "Jobs: queued, started, finished.",
		scope: clusterColumn, id: column{"job", "Job."}, facts: history},
	{of: projections.TableDemand, hot: true,
		comment: "How many GPUs were wanted: one row for each series and month, in the encoding of the program.",
		scope:   clusterColumn, id: column{"series", "Pool, model and unit, with bars between."}, at: monthColumn, kind: byMonth},
	{of: projections.TableEnergy, comment: "Metered power.",
		scope: clusterColumn, id: column{"meter", "Meter."}, at: dayColumn, kind: byDay, facts: history},
	{of: projections.TableUsageCorrections, comment: "Corrections of who held a GPU.",
		scope: clusterColumn, id: column{"correction", "Correction."}, facts: history},

	{of: projections.TableFaults, comment: "Faults of GPUs.",
		scope: clusterColumn, id: nodeColumn, at: dayColumn, kind: byDay,
		facts: history + ` One version may stand for repeats: "count" is how many events (absent: one), "effective" when the first was and "last" the last. Where "rest" is true they were different faults of the same kind, more than a row keeps apart.`},
	{of: projections.TableHealth, comment: "Machines taken out of service and back, and times without reports.",
		scope: clusterColumn, id: nodeColumn, at: dayColumn, kind: byDay, facts: history},

	{of: projections.TableDeployments, comment: "Models and jobs that workspaces run.",
		scope: clusterColumn, id: column{"deployment", "Deployment."}, facts: history},
	{of: projections.TableReplicas, comment: "How many replicas of a model were seen.",
		scope: clusterColumn, id: serverColumn, at: dayColumn, kind: byDay, facts: history},

	{of: projections.TableBillingLines, comment: "Lines of suppliers' bills, as they came. Columns by their FOCUS names are in the view quartermaster.billing_lines.",
		scope: accountColumn, id: column{"line", "The line's own id within the account."}, at: monthColumn, kind: byMonth, facts: history},
	{of: projections.TableInvoices, comment: "Invoices, received independently of their lines.",
		scope: accountColumn, id: column{"invoice", "Invoice number."}, facts: history},
	{of: projections.TableBillingPeriods, comment: "Billing periods that suppliers have closed.",
		scope: accountColumn, id: column{"period", "Beginning of the period."}, facts: history},

	{of: projections.TableOffers, comment: "What suppliers sell, and for how much.",
		scope: marketColumn, id: column{"offer", "Offer, by its id within the market."}, at: monthColumn, kind: byMonth, facts: history},
	{of: projections.TableOnDemandQuotas, comment: "How many GPUs an account may start on demand.",
		scope: marketColumn, id: column{"quota", "Account and GPU model, with a bar between."}, facts: history},
	{of: projections.TableSpotInterruptions, comment: "Spot capacity that suppliers took back.",
		scope: marketColumn, id: column{"sku_zone", "Instance type and zone, with a bar between."}, at: dayColumn, kind: byDay, facts: history},
	{of: projections.TableTariffs, comment: "Prices of power.",
		scope: marketColumn, id: column{"site", "Site."}, facts: history},
	{of: projections.TableFXRates, comment: "Exchange rates.",
		scope: column{"pair", "Currencies: what one unit of the first is worth in the second."}, id: column{"kind", "What the rate may be used for: spot, average or payment."},
		at: monthColumn, kind: byMonth, facts: history},

	{of: projections.TablePlans, comment: "Plans that were computed. Their documents are in the log.",
		scope: workspaceColumn, id: column{"plan", "Plan."}, facts: history},
	{of: projections.TableScenarios, comment: "Scenarios that recommendations cite.",
		scope: workspaceColumn, id: column{"scenario", "Scenario."}, facts: history},
	{of: projections.TableRecommendations, comment: "Recommendations, and what became of them.",
		scope: workspaceColumn, id: column{"recommendation", "Recommendation."}, facts: history},
	{of: projections.TableCommitments, comment: "Contracts with suppliers: offers that were bought.",
		scope: workspaceColumn, id: column{"commitment", "Commitment, by its id on the bill."}, facts: history},

	{of: projections.TableCloses, comment: "Closes of our own books.",
		scope: entityColumn, id: column{"period", "Beginning of the period."}, facts: history},
	{of: projections.TableExports, comment: "Exports: figures that left the house.",
		scope: entityColumn, id: column{"export", "Export."}, facts: history},
	{of: projections.TableCheckpoints, comment: "Signed statements of what the log holds.",
		scope: entityColumn, at: monthColumn, kind: byMonth, facts: history},
	{of: projections.TableResolutions, comment: "What became of quarantined records.",
		scope: entityColumn, id: column{"record", "Topic, partition and offset of the record."}, facts: history},
	{of: projections.TableConflicts, comment: "Records that claim the place of another record in a stream. They are in quarantine.",
		scope: entityColumn, id: column{"record", "Topic, partition and offset of the record in quarantine."}, facts: history},
	{of: projections.TableGapResolutions, comment: "Events of streams that will never arrive, as somebody stated.",
		scope: entityColumn, id: column{"stream", "Topic and partition, source and incarnation."}, facts: history},
	{of: projections.TableSwitches, comment: "Generations that were switched to, by whom and why.",
		scope: entityColumn, id: column{"generation", "The generation that was read from then on."}, facts: history},
	{of: projections.TableDenials, comment: "Attempts that were refused.",
		scope: entityColumn, id: column{"principal", "Who tried."}, at: dayColumn, kind: byDay, facts: history},
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

// number returns the SQL that makes the time column of a number as Key.Hour has it.
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

// held is the child table of usage hours that is keyed by workspace.
const (
	held        = "usage_held"
	heldComment = "Seconds for which each workspace held GPUs, one row for each deployment, machine, hour and observer, as that observer reported it. " +
		"Do not sum over observers: where two observers saw the same GPU both have rows, so a sum over them counts its time twice, " +
		"and corrections are not applied. Sum one source at a time, or ask \"quartermaster usage\", which resolves them."
)

var heldColumns = []struct{ name, typ, comment string }{
	{"workspace", `text collate "C" not null`, "Workspace that held the devices."},
	{"cluster", `text collate "C" not null`, "Cluster."},
	{"deployment", `text collate "C" not null`, "Deployment of the workspace; empty: not known."},
	{"node", `text collate "C" not null`, "Machine, by its name within the cluster."},
	{"hour", "timestamptz not null", "The UTC hour, by its beginning."},
	{"source", `text collate "C" not null`, "Observer that reported it."},
	{"gpu_seconds", "numeric not null", "Seconds for which whole GPUs were held, of each GPU."},
	{"slice_seconds", "numeric not null", "Seconds for which parts of GPUs (MIG instances, time-slice replicas) were held, of each part, not weighted by its size."},
	{"measured_seconds", "numeric not null", "For how many of these seconds activity was measured."},
	{"active_seconds", "numeric not null", "Measured seconds times activity: 0.5 for a device that was half busy for a second."},
}

const heldKey = "workspace, cluster, deployment, node, hour, source"

// monthly are the tables that are partitioned by month.
func monthly() []string {
	names := []string{held}
	for _, t := range tables {
		if t.kind == byHour {
			names = append(names, t.name())
		}
	}
	return names
}

// A generation's name becomes part of a schema's.
var generationName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,40}$`)

func checkGeneration(name string) error {
	if !generationName.MatchString(name) {
		return fmt.Errorf("generation %q: a name has a small letter and then up to 40 small letters, digits and underscores", name)
	}
	return nil
}

// schemaOf returns the schema of a generation's rows, which needs no quotes.
func schemaOf(generation string) string { return "rows_" + generation }

// createTables makes the schema of a generation with its empty tables, and the
// views for people anew, over this generation too. Its row in
// quartermaster.generations is there already.
func (db *DB) createTables(ctx context.Context, tx *sql.Tx, name string) error {
	if err := checkGeneration(name); err != nil {
		return err
	}
	schema := schemaOf(name)
	packed := "set storage main"
	var lz4 bool
	if err := tx.QueryRowContext(ctx, `select 'lz4' = any (enumvals) from pg_settings where name = 'default_toast_compression'`).Scan(&lz4); err != nil {
		return fmt.Errorf("ask the server how it compresses: %w", err)
	}
	if lz4 {
		packed += ", alter column row set compression lz4"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "create schema %s;\ncomment on schema %[1]s is %s;\n", schema, pq.QuoteLiteral("Rows of generation "+name+", all at the position in quartermaster.partitions."))
	for _, t := range tables {
		t.create(&b, schema)
		if t.hot {
			fmt.Fprintf(&b, "alter table %s.%s alter column row %s;\n", schema, t.name(), packed)
		}
	}
	createHeld(&b, schema)
	for _, t := range monthly() {
		// What lies far off shares a partition, so that nobody can make many.
		for _, far := range [][3]string{{"before", "minvalue", pq.QuoteLiteral(monthBound(firstMonth))}, {"after", pq.QuoteLiteral(monthBound(endMonth)), "maxvalue"}} {
			fmt.Fprintf(&b, "create table %s.%s_%s (like %[1]s.%[2]s including all) with (%[4]s);\n", schema, t, far[0], hotStorage)
			fmt.Fprintf(&b, "alter table %s.%s attach partition %[1]s.%[2]s_%s for values from (%s) to (%s);\n", schema, t, far[0], far[1], far[2])
		}
		fmt.Fprintf(&b, "comment on table %s.%s_before is 'Rows of %[2]s before %s.';\n", schema, t, firstMonth)
		fmt.Fprintf(&b, "comment on table %s.%s_after is 'Rows of %[2]s from %s on.';\n", schema, t, endMonth)
	}
	readers, _, err := readersOf(ctx, tx, db.readers)
	if err != nil {
		return err
	}
	b.WriteString(grantRows(name, readers))
	if _, err := tx.ExecContext(ctx, b.String()); err != nil {
		return fmt.Errorf("create the tables of generation %q: %w", name, err)
	}
	return db.makeViews(ctx, tx, "")
}

// dropTables drops the schema of a generation with all its rows, and takes it out
// of the views for people.
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
	comment(column{"exact", "The key's own bytes where it is not text that a column can hold, or is very long; a stand-in is in the key columns then. Null in nearly every row."})
	comment(column{"row", "The row as the program encodes it (CBOR, RFC 8949), which is what is compared and digested."})
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

// Room is left on each page of the hot tables, so that a row that changes stays
// on its page and no index has to be told: a batch changes every row of a page.
// Rows above 2 KB are compressed by lz4, where the server has it, and stay there
// too. Measured on usage hours of eight GPUs that are stored again and again: with
// fillfactor 90 half of the changes leave their page and the table grows to twice
// its size; pglz, the server's usual, takes 64 µs a row of 2.5 KB and 204 µs one of
// 6.5 KB where lz4 takes 33 and 74.
const hotStorage = "fillfactor = 50"

// tableNames returns the names of a generation's tables.
func tableNames() []string {
	names := make([]string, 0, len(tables)+1)
	for _, t := range tables {
		names = append(names, t.name())
	}
	return slices.Concat(names, []string{held})
}
