package postgres

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

func TestEveryTableHasItsPlace(t *testing.T) {
	var of []projections.Table
	for _, s := range tables {
		of = append(of, s.of)
		if s.comment == "" || s.scope.name == "" || s.scope.comment == "" || (s.at.name == "") != (s.kind == timeless) {
			t.Errorf("%s is not specified whole: %+v", s.name(), s)
		}
	}
	if !slices.Equal(of, projections.Tables()) {
		t.Errorf("tables of\n%v\nwant\n%v", of, projections.Tables())
	}
}

// texts returns the rows of a query of one column.
func texts(t *testing.T, db *DB, query string, args ...any) []string {
	t.Helper()
	out, err := collectText(db.QueryContext(t.Context(), query, args...))
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

// ofClosedMonths reports whether a view shows what a close has kept, which is loaded by commands and in no generation.
func ofClosedMonths(view string) bool {
	return slices.Contains([]string{"posted_months", "posted_allocations", "posted_units", "costs", "statements", "statements_due"}, view)
}

// TestCatalogue checks the server's catalogue: comments, rights and view options.
func TestCatalogue(t *testing.T) {
	reader, stranger := fmt.Sprintf("qm_test_reader_%d", os.Getpid()), fmt.Sprintf("qm_test_stranger_%d", os.Getpid())
	server := database(t)
	admin, err := connect(t.Context(), Config{DSN: server, MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{reader, stranger} {
		if _, err := admin.ExecContext(t.Context(), "create role "+role+" role current_user"); err != nil && !isCode(err, "42710") {
			t.Fatal(err)
		}
	}
	if err := admin.Close(); err != nil {
		t.Fatal(err)
	}
	db := openedAt(t, server, Reader{Role: reader})
	first := generation(t, db)
	second := generation(t, db)
	activate(t, db, first)
	l := storetest.NewLog()
	l.Append(storetest.Examples()...)
	if err := l.Runner(claimed(t, db, first, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}

	for _, without := range texts(t, db, `
		select c.oid::regclass::text from pg_class c
		where c.relnamespace::regnamespace::text in ('quartermaster', $1, $2) and c.relkind in ('r', 'p', 'v')
		and obj_description(c.oid, 'pg_class') is null and c.relname <> 'schema_version'`, schemaOf(first), schemaOf(second)) {
		t.Errorf("%s has no comment", without)
	}
	for _, without := range texts(t, db, `
		select c.oid::regclass::text || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
		where c.relnamespace::regnamespace::text in ($1, $2) and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
		and col_description(c.oid, a.attnum) is null`, schemaOf(first), schemaOf(second)) {
		t.Errorf("column %s has no comment", without)
	}
	for _, view := range texts(t, db, `
		select c.oid::regclass::text from pg_class c where c.relnamespace::regnamespace::text !~ '^(pg_|information_schema)' and
		(c.relkind = 'm' or c.relkind = 'v' and not coalesce('security_invoker=true' = any (c.reloptions), false))`) {
		t.Errorf("%s shows rows with the rights of who made it", view)
	}

	// A reader of the whole estate may read every view, and nobody else may read anything. Rows that only
	// the program can read are for the program.
	if _, _, err := db.Grant(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(viewNames(), "../usage_hours") {
		query := "select count(*)::text from quartermaster." + name
		table, raw := strings.CutPrefix(name, "../")
		if raw {
			query = "select count(*)::text from " + schemaOf(first) + "." + table
		}
		for role, may := range map[string]bool{reader: !raw, stranger: false} {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), "set local role "+role); err != nil {
				t.Fatal(err)
			}
			var n string
			err = tx.QueryRowContext(t.Context(), query).Scan(&n)
			switch {
			case may && err != nil:
				t.Errorf("%s as %s: %v", name, role, err)
			case may && n == "0" && name != "quarantine" && name != "usage" && name != "usage_months" && !ofClosedMonths(name):
				t.Errorf("%s is empty after an event of every type", name)
			case !may && !isCode(err, "42501"):
				t.Errorf("%s as %s: %s rows, error %v", name, role, n, err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range viewNames() {
		plan := strings.Join(texts(t, db, "explain (costs off) select * from quartermaster."+name), "\n")
		if name != "positions" && !ofClosedMonths(name) && strings.Count(plan, "One-Time Filter") < 2 {
			t.Errorf("%s does not choose its generation once:\n%s", name, plan)
		}
		// Every column can be read, not only counted.
		texts(t, db, "select x::text from quartermaster."+name+" x")
	}

	// Dropping a generation leaves the others' rows in the views.
	inTx(t, db, func(tx *sql.Tx) error {
		if err := db.dropTables(t.Context(), tx, second); err != nil {
			return err
		}
		_, err := tx.ExecContext(t.Context(), `delete from quartermaster.generations where name = $1`, second)
		return err
	})
	if got := texts(t, db, `select count(*)::text from quartermaster.nodes`); got[0] != "1" {
		t.Errorf("%s nodes after another generation was dropped, want 1", got[0])
	}
	for _, sql := range []string{"drop owned by " + reader, "drop role " + reader, "drop role " + stranger} {
		if _, err := db.ExecContext(t.Context(), sql); err != nil {
			t.Error(err)
		}
	}
}

func TestViewsOfExamples(t *testing.T) {
	db := opened(t)
	g := generation(t, db)
	activate(t, db, g)
	l := storetest.NewLog()
	l.Append(storetest.Examples()...)
	const step = 30 * domain.Second
	l.Append(domain.Envelope{Source: "prometheus/p", Cluster: "c7", Time: storetest.Start + step, Event: storetest.Scrape("ml/chat", "ml/chat-0", storetest.Start, step,
		storetest.Scraped{Metric: domain.MetricTTFT, Bound: 500_000, Series: 1, Values: []uint64{10, 40}}, storetest.Scraped{Metric: domain.MetricTTFT, Bound: domain.Infinite, Series: 1, Values: []uint64{10, 50}},
		storetest.Scraped{Metric: domain.MetricRequestsOK, Series: 1, Values: []uint64{0, 39}}, storetest.Scraped{Metric: domain.MetricWaiting, Series: 1, Values: []uint64{1500, 1500}})})
	l.AppendRaw(domain.TopicPartition{Topic: domain.TopicFleet}, []byte("c1"), []byte("no event"), storetest.Start)
	if err := l.Runner(claimed(t, db, g, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ query, want string }{
		{`select workspace || ' ' || name || ' ' || currency from quartermaster.workspaces`, "acme Acme EUR"},
		{`select cluster || ' ' || owner || ' ' || provider || ' ' || region from quartermaster.clusters`, "c1 acme aws eu-central-1"},
		{`select node || ' ' || gpus || ' ' || gpu_model || ' ' || retired from quartermaster.nodes`, "n1 2 H100 80GB true"},
		{`select deployment || ' ' || workspace || ' ' || replicas || ' ' || removed from quartermaster.deployments where not removed`, "chat acme 2 false"},
		{`select workspace || ' ' || deployment || ' ' || node || ' ' || hour || ' ' || gpu_seconds || ' ' || slice_seconds || ' ' || measured_seconds || ' ' || active_seconds from quartermaster.usage_by_observer`,
			"acme chat n1 2026-05-01 00:00:00+00 3600.000 0.000 3600.000 2520.000000"},
		{`select deployment || ' ' || model || ' ' || hour from quartermaster.serving`, "chat llama 2026-05-01 00:00:00+00"},
		{`select unit || ' ' || requests_ok || ' ' || queue_depth || ' ' || (h->>'count') || ' ' || string_agg(coalesce(b->>'up_to', 'more') || ':' || (b->>'count'), ' ') from quartermaster.servers cross join jsonb_array_elements(ttft) h cross join jsonb_array_elements(h->'buckets') b where cluster = 'c7' group by unit, requests_ok, queue_depth, h`,
			"ml/chat-0 39 1.500 40 500000:30 more:10"},
		{`select node || ' ' || kind || ' ' || code || ' ' || fatal from quartermaster.faults`, "n1 xid 79 true"},
		{`select "x_LineId" || ' ' || "BilledCost" || ' ' || "EffectiveCost" || ' ' || "BillingPeriodEnd" || ' ' || "x_Correction" || ' ' || coalesce("ListCost"::text, '-') from quartermaster.billing_lines`,
			"line-1 12.5 11.25 2026-06-01 00:00:00+00 false -"}, // line-2 is removed
		{`select invoice || ' ' || total || ' ' || currency || ' ' || period_to from quartermaster.invoices`, "i 25 USD 2026-06-01 00:00:00+00"},
		{`select offer || ' ' || withdrawn || ' ' || coalesce(hourly::text, '-') from quartermaster.offers order by 1`, "o false 31.4\no true -"},
		{`select commitment || ' ' || units || ' ' || hourly || ' ' || gpus_per_unit || ' ' || ended from quartermaster.commitments`, "c 4 19 8 2026-06-01 00:00:00+00"},
		{`select workspace || ' ' || budget || ' ' || period_from || ' ' || amount || ' ' || currency || ' ' || basis || ' ' || hard from quartermaster.budgets`,
			"acme b 2026-05-01 00:00:00+00 100 USD cash false"},
		{`select entity || ' ' || period_from || ' ' || prepared_by || ' ' || approved_by || ' ' || position || ' ' || method || ' ' || length(allocations_sha256) || ' ' || coalesce(postings_sha256, '-') from quartermaster.books`,
			"e 2026-05-01 00:00:00+00 root fin 0 m1 64 -"},
		{`select entity || ' ' || period_from || ' ' || translated || ' ' || currency || ' ' || billed || ' ' || effective || ' ' || coalesce(company, '-') from quartermaster.books_totals`,
			"e 2026-05-01 00:00:00+00 false USD 1 2 -\ne 2026-05-01 00:00:00+00 true EUR 1 2 -\ne 2026-05-01 00:00:00+00 true USD 0 0 us"},
		{`select plan || ' ' || position || ' ' || cost from quartermaster.plans`, "p 0 0"},
		{`select log_partition || ' ' || record_offset || ' ' || reason from quartermaster.quarantine`, `qm.fleet/0 0 record value "no event" is no event`},
		{`select sum(missing)::text from quartermaster.streams`, "0"},
		{`select sum(next_offset)::text from quartermaster.positions`, strconv.FormatInt(l.End().Records(), 10)},
	} {
		got := texts(t, db, c.query)
		slices.Sort(got)
		if want := c.want; strings.Join(got, "\n") != want {
			t.Errorf("%s\n%s\nwant\n%s", c.query, strings.Join(got, "\n"), want)
		}
	}
}

// TestUsageByObserver has a node's agent and Prometheus report the same eight GPUs for a day.
// Prometheus is a separate observer for each kind of series, so the sum over observers is 576
// GPU-hours although 192 were held. The view's name and comment forbid that sum, and the view usage
// shows none of it.
func TestUsageByObserver(t *testing.T) {
	db := opened(t)
	g := generation(t, db)
	activate(t, db, g)
	l := storetest.NewLog()
	l.Append(storetest.Node("c1", "n1", "H100 80GB", 8, storetest.Start))
	for hour := range domain.Instant(24) {
		during := domain.Interval{From: storetest.Start + hour*domain.Hour, To: storetest.Start + (hour+1)*domain.Hour}
		var seen []storetest.Seen
		for i := range 8 {
			seen = append(seen, storetest.Seen{ID: storetest.GPU("c1", "n1", i), Workspace: "acme", Deployment: "chat"})
		}
		for _, source := range []string{"node-reporter/c1/n1", "prometheus/p"} {
			l.Append(domain.Envelope{Source: source, Cluster: "c1", Time: during.To, Event: storetest.Sample("n1", during, seen...)})
		}
	}
	if err := l.Runner(claimed(t, db, g, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ query, want string }{
		{`select source || ' ' || sum(gpu_seconds) / 3600 from quartermaster.usage_by_observer group by source order by source`,
			"node-reporter/c1/n1 192.0000000000000000\nprometheus/c1/readings 192.0000000000000000\nprometheus/c1/sm_active 192.0000000000000000"},
		{`select count(*) from quartermaster.usage`, "0"}, // it has resolved months, of which none was computed
		{`select strpos(obj_description('quartermaster.usage_by_observer'::regclass), 'Do not sum over observers') > 0`, "true"},
		{`select strpos(obj_description('` + schemaOf(g) + `.usage_held'::regclass), 'Do not sum over observers') > 0`, "true"},
	} {
		if got := strings.Join(texts(t, db, c.query), "\n"); got != c.want {
			t.Errorf("%s\n%s\nwant\n%s", c.query, got, c.want)
		}
	}
}

func activate(t testing.TB, db *DB, generation string) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), `insert into quartermaster.active (generation) values ($1) on conflict (one) do update set generation = excluded.generation`, generation); err != nil {
		t.Fatal(err)
	}
}

// The tables with a time in their key are those whose rows belong to a month.
func TestTimedTables(t *testing.T) {
	for _, spec := range tables {
		timed := spec.kind == byHour || spec.kind == byDay || spec.kind == byMonth
		if spec.of.Timed() != timed {
			t.Errorf("rows of %s belong to a month: %t, its column is of kind %d", spec.name(), spec.of.Timed(), spec.kind)
		}
	}
}
