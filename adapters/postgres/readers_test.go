package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// A configured reader without a role does not stop a generation or a month from being made. Once
// the role exists, Grant gives it access to what was made before.
func TestReaderCreatedLater(t *testing.T) {
	dsn := database(t)
	early := fmt.Sprintf("early_%d_%d", os.Getpid(), generations.Add(1))
	late := fmt.Sprintf("late_%d_%d", os.Getpid(), generations.Add(1))
	db, ctx, l := openedAt(t, dsn, Reader{Role: early}, Reader{Role: late}), t.Context(), examples()
	exec := func(q string) {
		t.Helper()
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(role string) {
		t.Cleanup(func() {
			// Revoking a role's rights requires membership in it.
			if _, err := db.Exec(fmt.Sprintf("grant %s to current_user; drop owned by %[1]s; drop role %[1]s", role)); err != nil {
				t.Error(err)
			}
		})
	}
	exec("create role " + early)
	remove(early)
	g := generation(t, db)
	if granted, missing, err := db.Grant(ctx); err != nil || !slices.Equal(missing, []string{late}) || len(granted) != 1 {
		t.Fatalf("granted %v, missing %v: %v", granted, missing, err)
	}
	if err := l.Runner(claimed(t, db, g, nil)).CatchUp(ctx, l.End()); err != nil {
		t.Fatalf("fold while %s is no role: %v", late, err)
	}
	// refused lists what a role may not read of views and the tables that they read.
	refused := func(role string) (names []string) {
		t.Helper()
		names, err := collectText(db.QueryContext(ctx, `
			select c.oid::regclass::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
			where n.nspname in ($2, 'quartermaster') and c.relname = any ($3::text[])
			and not (has_schema_privilege($1, n.oid, 'usage') and has_table_privilege($1, c.oid, 'select'))`,
			role, schemaOf(g), pq.Array(slices.Concat(viewNames(), control, rowsOfViews))))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if not := refused(early); len(not) > 0 {
		t.Errorf("%s may not read %v", early, not)
	}
	if missing, err := db.MissingReaders(ctx); err != nil || !slices.Equal(missing, []string{late}) {
		t.Errorf("missing are %v: %v", missing, err)
	}
	if s, err := Inspect(ctx, Config{DSN: dsn, Readers: db.readers}); err != nil || !slices.Equal(s.MissingReaders, []string{late}) {
		t.Errorf("Inspect tells of %v: %v", s.MissingReaders, err)
	}

	exec("create role " + late)
	remove(late)
	if not := refused(late); len(not) < len(rowsOfViews)+len(control) {
		t.Fatalf("%s is refused %d tables and views only", late, len(not))
	}
	granted, missing, err := db.Grant(ctx)
	if err != nil || len(missing) > 0 || len(granted) != 2 {
		t.Fatalf("granted %v, missing %v: %v", granted, missing, err)
	}
	if not := refused(late); len(not) > 0 {
		t.Errorf("%s still may not read %v", late, not)
	}
}

// loginRole makes a role that can log in to a database, and returns its name and a connection of it.
func loginRole(t testing.TB, db *DB, dsn, name string) (string, *sql.DB) {
	t.Helper()
	role := fmt.Sprintf("%s_%d_%d", name, os.Getpid(), generations.Add(1))
	if _, err := db.ExecContext(t.Context(), fmt.Sprintf("create role %s login password 'secret' role current_user", role)); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	as, err := connect(t.Context(), Config{DSN: u.String(), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := as.Close(); err != nil {
			t.Error(err)
		}
		if _, err := db.ExecContext(context.Background(), fmt.Sprintf("drop owned by %s; drop role %[1]s", role)); err != nil {
			t.Error(err)
		}
	})
	return role, as
}

// seenBy returns every cell that a role can read, by table or view and column, and how many tables and
// views refuse it.
func seenBy(t *testing.T, as *sql.DB) (cells map[string][]string, refused int) {
	t.Helper()
	names, err := collectText(as.QueryContext(t.Context(), `
		select n.nspname || '.' || c.relname || '.' || quote_ident(a.attname) from pg_class c
		join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
		where (n.nspname = 'quartermaster' or n.nspname like 'rows\_%') and c.relkind in ('r', 'p', 'v') and a.attnum > 0 and not a.attisdropped
		order by 1`))
	if err != nil || len(names) < 500 {
		t.Fatalf("%d columns: %v", len(names), err)
	}
	cells = map[string][]string{}
	for _, name := range names {
		table, column, _ := strings.Cut(strings.Replace(name, ".", "\x00", 1), ".")
		table = strings.Replace(table, "\x00", ".", 1)
		values, err := collectText(as.QueryContext(t.Context(), fmt.Sprintf("select coalesce(x.%s::text, '') from %s x order by 1", column, table)))
		switch {
		case isCode(err, "42501"):
			refused++
		case err != nil:
			t.Fatalf("%s: %v", name, err)
		default:
			cells[name] = values
		}
	}
	return cells, refused
}

// estateOfTwo has acme with a workspace below it, and a rival, with the same amounts of everything. Of
// the rival it has what a test says.
func estateOfTwo(t *testing.T, db *DB, generation, rival, amount string) {
	t.Helper()
	l, admin := storetest.NewLog(), storetest.NewOperator("root", 1)
	budget := func(workspace, amount string) {
		l.Append(admin.Sign(domain.Envelope{Workspace: workspace, Time: storetest.Start + 10, Event: &domain.BudgetSet{
			Budget: "b-" + workspace, Amount: domain.Money{Amount: decimal.RequireFromString(amount), Currency: "EUR"}, Basis: domain.BudgetCash,
			Period: domain.Interval{From: storetest.Start, To: storetest.Start + 30*domain.Day},
		}}))
		document := []byte(workspace)
		digest := sha256.Sum256(document)
		l.Append(domain.Envelope{Workspace: workspace, Time: storetest.Start + 10, Event: &domain.PlanComputed{
			Plan: "p-" + workspace, Position: "0", Method: "m1", Document: document, Digest: digest[:],
			Horizon: domain.Interval{From: storetest.Start, To: storetest.Start + 30*domain.Day},
		}})
	}
	for i, w := range []string{"acme", "acme-lab", rival} {
		l.Append(domain.Envelope{Workspace: w, Time: storetest.Start + domain.Instant(i), Event: &domain.WorkspaceRegistered{
			Name: w, Currency: "EUR", Parent: map[string]string{"acme-lab": "acme"}[w],
		}})
	}
	budget("acme", "1")
	budget("acme-lab", "2")
	budget(rival, amount)
	if err := l.Runner(claimed(t, db, generation, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), fmt.Sprintf(`
		insert into %[1]s.usage_months values ('2026-05-01', 'test', '{}');
		insert into %[1]s.usage_days select '2026-05-01', '2026-05-02', 'c1', 'H100', '', w <> '', w, 'd-' || w, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1
		from unnest($$%[2]s$$::text[]) w`, schemaOf(generation), `{acme,acme-lab,"",`+rival+`}`)); err != nil {
		t.Fatal(err)
	}
	may, err := projections.ParseMonth("2026-05")
	if err != nil {
		t.Fatal(err)
	}
	content := bookMonth()
	var rows []map[string]string
	for _, w := range []string{"acme", "acme-lab", rival} {
		cost := map[string]string{rival: amount}[w]
		if cost == "" {
			cost = "3"
		}
		for range 2 {
			rows = append(rows, map[string]string{
				"x_WorkspaceId": w, "x_BooksPeriod": "2026-05", "BilledCost": cost, "EffectiveCost": cost, "BillingCurrency": "EUR",
				"x_OriginLineId": "line-" + w, "InvoiceId": "invoice-" + rival, "ContractedUnitPrice": amount, "x_Component": "allocated",
			})
		}
		content.Statements = append(content.Statements, StatementRow{
			Workspace: w, Number: "2026-05/" + w, About: may, Component: "idle", Currency: "EUR", Billed: cost, Effective: cost,
		})
		content.Due = append(content.Due, StatementDue{Workspace: w, Number: "2026-05/" + w, Currency: "EUR", Charged: cost, Notes: "0", Due: cost})
	}
	rowsOf := bookMonth(rows...)
	content.Rows = rowsOf.Rows
	if err := db.PutBooks(t.Context(), Books{Month: may, Allocations: digestOf(byte(len(amount)))}, content); err != nil {
		t.Fatal(err)
	}
}

// A reader of a workspace sees what that workspace and those below it have, and the same bytes whatever
// others have, before and after generations change.
func TestReadersSeeTheirWorkspaces(t *testing.T) {
	dsn := database(t)
	db := openedAt(t, dsn)
	acme, asAcme := loginRole(t, db, dsn, "acme")
	lab, asLab := loginRole(t, db, dsn, "lab")
	finance, asFinance := loginRole(t, db, dsn, "finance")
	guest, asGuest := loginRole(t, db, dsn, "guest")
	first := generation(t, db)
	activate(t, db, first)
	estateOfTwo(t, db, first, "rival", "77")
	grant := func(readers ...Reader) {
		t.Helper()
		db.readers = readers
		if granted, missing, err := db.Grant(t.Context()); err != nil || len(missing) > 0 || len(granted) != len(readers) {
			t.Fatalf("granted %v, missing %v: %v", granted, missing, err)
		}
	}
	all := []Reader{{Role: acme, Workspaces: []string{"acme"}}, {Role: lab, Workspaces: []string{"acme-lab"}}, {Role: finance}}
	grant(all...)
	is := func(as *sql.DB, query string, want ...string) {
		t.Helper()
		got, err := collectText(as.QueryContext(t.Context(), query))
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s\n%q, want %q, error %v", query, got, want, err)
		}
	}
	shown := func() {
		t.Helper()
		for as, want := range map[*sql.DB][]string{asAcme: {"acme", "acme-lab"}, asLab: {"acme-lab"}, asFinance: {"acme", "acme-lab", "rival"}} {
			for _, view := range []string{"workspaces", "budgets", "plans", "costs", "statements_due"} {
				is(as, `select workspace from quartermaster.`+view+` order by 1`, want...)
			}
			is(as, `select workspace from quartermaster.usage where workspace is not null order by 1`, want...)
		}
		is(asAcme, `select workspace || ' ' || billed || ' ' || effective from quartermaster.costs order by 1`, "acme 6 6", "acme-lab 6 6")
		is(asFinance, `select workspace || ' ' || billed from quartermaster.costs order by 1`, "acme 6", "acme-lab 6", "rival 154")
		is(asFinance, `select count(*)::text from quartermaster.usage`, "4")
		is(asLab, `select count(*)::text from quartermaster.usage`, "1")
		for _, table := range []string{"posted_allocations", "statements", "posted_months", "billing_lines", "usage_months", "positions", "closed_statements", "readers"} {
			if _, err := collectText(asAcme.QueryContext(t.Context(), `select 'x' from quartermaster.`+table)); !isCode(err, "42501") {
				t.Errorf("%s may read %s: %v", acme, table, err)
			}
		}
		if _, refused := seenBy(t, asGuest); refused < 500 {
			t.Errorf("a role that is no reader is refused %d columns only", refused)
		}
	}
	shown()

	// Nobody widens what they see.
	for _, try := range []struct{ sql, code string }{
		{"set role " + finance, "42501"},
		{"set session authorization " + finance, "42501"},
		{"alter policy " + acme + " on " + schemaOf(first) + ".budgets using (true)", "42501"},
		{"alter table " + schemaOf(first) + ".budgets disable row level security", "42501"},
		{"insert into quartermaster.readers values ('" + acme + "', null)", "42501"},
		{"grant " + finance + " to " + acme, "42501"},
		{"begin; set local row_security = off; select count(*) from quartermaster.budgets", "42501"},
		{"rollback; create function pg_temp.peek(text) returns bool language plpgsql cost 0.0001 as " +
			"$$begin if $1 = 'rival' then raise 'peeked'; end if; return true; end$$", ""},
		{"select * from quartermaster.budgets where pg_temp.peek(workspace)", ""},
		{"select * from quartermaster.costs where pg_temp.peek(workspace)", ""},
		{"select * from " + schemaOf(first) + ".usage_days where pg_temp.peek(workspace)", ""},
	} {
		_, err := asAcme.ExecContext(t.Context(), try.sql)
		if try.code == "" && err != nil || try.code != "" && !isCode(err, pqerror.Code(try.code)) {
			t.Errorf("%s: %v", try.sql, err)
		}
	}
	for setting, value := range map[string]string{"quartermaster.scope": "rival", "search_path": "pg_temp", "session_replication_role": "replica"} {
		_, _ = asAcme.ExecContext(t.Context(), "set "+setting+" = "+pq.QuoteLiteral(value)) // whether it may is the server's
	}
	for _, role := range []string{lab, finance, "nobody"} {
		is(asAcme, "select quartermaster.workspaces_of("+pq.QuoteLiteral(role)+")::text", "{}")
	}
	is(asAcme, "select count(*)::text from pg_stats where tablename in ('budgets', 'plans', 'workspaces', 'usage_days', 'closed_allocations', 'closed_dues')", "0")
	shown()

	// What a tenant sees has the same bytes in a world where everything of the rival is different.
	seen, _ := seenBy(t, asAcme)
	if len(seen) < 50 {
		t.Errorf("%s sees %v", acme, slices.Sorted(maps.Keys(seen)))
	}
	otherDSN := database(t)
	other := openedAt(t, otherDSN, all...)
	otherFirst := generation(t, other)
	activate(t, other, otherFirst)
	estateOfTwo(t, other, otherFirst, "somebody", "99999")
	if _, _, err := other.Grant(t.Context()); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(otherDSN)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(acme, "secret")
	asOther, err := connect(t.Context(), Config{DSN: u.String(), MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = asOther.Close() }()
	seenThere, _ := seenBy(t, asOther)
	for name, cells := range seen {
		there := seenThere[strings.Replace(name, schemaOf(first), schemaOf(otherFirst), 1)]
		if want := strings.ReplaceAll(fmt.Sprint(cells), first, otherFirst); fmt.Sprint(there) != want {
			t.Errorf("%s is %v, in another world %v", name, cells, there)
		}
	}
	if _, err := other.ExecContext(t.Context(), "drop owned by "+acme+", "+lab+", "+finance); err != nil {
		t.Error(err)
	}

	// A new generation is bound before it is read.
	second := generation(t, db)
	estateOfTwo(t, db, second, "rival", "77")
	is(asAcme, `select workspace from `+schemaOf(second)+`.budgets order by 1`, "acme", "acme-lab")
	activate(t, db, second)
	shown()

	// A role that is granted a table by somebody else sees nothing of it.
	for _, table := range []string{"quartermaster.closed_allocations", schemaOf(second) + ".budgets"} {
		if _, err := db.ExecContext(t.Context(), "grant usage on schema quartermaster, "+schemaOf(second)+" to "+guest+"; grant select on "+table+" to "+guest); err != nil {
			t.Fatal(err)
		}
		is(asGuest, "select count(*)::text from "+table, "0")
	}

	// Who sees less than before, sees less at once; who is no reader any more, nothing.
	grant(Reader{Role: finance, Workspaces: []string{"acme-lab"}}, Reader{Role: lab})
	is(asFinance, `select workspace from quartermaster.budgets`, "acme-lab")
	is(asLab, `select workspace from quartermaster.budgets order by 1`, "acme", "acme-lab", "rival")
	if cells, _ := seenBy(t, asAcme); len(cells) > 0 {
		t.Errorf("%s still sees %v", acme, slices.Sorted(maps.Keys(cells)))
	}
}

// BenchmarkReaders asks for the usage of one of 1,000 workspaces, and for that of all, in a table
// with QM_BENCH_READERS_ROWS rows (docs/evidence/benchmarks.md reports 10 million): as the program's own
// user, who is bound by no policy, and as readers. It reports the best of several tries.
func BenchmarkReaders(b *testing.B) {
	rows := 100_000
	if s := os.Getenv("QM_BENCH_READERS_ROWS"); s != "" {
		var err error
		if rows, err = strconv.Atoi(s); err != nil {
			b.Fatal(err)
		}
	}
	dsn := database(b)
	db := openedAt(b, dsn)
	team, asTeam := loginRole(b, db, dsn, "team")
	finance, asFinance := loginRole(b, db, dsn, "finance")
	g := generation(b, db)
	activate(b, db, g)
	exec := func(as *sql.DB, q string) {
		b.Helper()
		if _, err := as.ExecContext(b.Context(), q); err != nil {
			b.Fatal(err)
		}
	}
	exec(db.DB, fmt.Sprintf(`
		insert into %[1]s.usage_months values ('2026-05-01', 'test', '{}');
		insert into %[1]s.usage_days
		select '2026-05-01', date '2026-05-01' + (i / 1000 %% 31), 'c' || i / 31000 %% 10, 'H100', '', true, 'team-' || i %% 1000, 'd-' || i / 310000,
			3600000, 3600000, 0, 0, 0, 0, 0, 0, 0, 0, 3600000, 500
		from generate_series(0, %[2]d) i`, schemaOf(g), rows-1))
	exec(db.DB, "analyze "+schemaOf(g)+".usage_days")
	db.readers = []Reader{{Role: team, Workspaces: []string{"team-7"}}, {Role: finance}}
	if _, _, err := db.Grant(b.Context()); err != nil {
		b.Fatal(err)
	}
	l := storetest.NewLog()
	for i := range 1000 {
		w := fmt.Sprintf("team-%d", i)
		l.Append(domain.Envelope{Workspace: w, Time: storetest.Start, Event: &domain.WorkspaceRegistered{Name: w, Currency: "EUR"}})
	}
	if err := l.Runner(claimed(b, db, g, nil)).CatchUp(b.Context(), l.End()); err != nil {
		b.Fatal(err)
	}
	exec(db.DB, "vacuum analyze "+schemaOf(g)+".workspaces")
	const one = `select day, sum(allocated_seconds) from quartermaster.usage where workspace = 'team-7' group by day`
	const own = `select day, sum(allocated_seconds) from quartermaster.usage group by day`
	const all = `select workspace, sum(allocated_seconds) from quartermaster.usage group by workspace`
	best := func(as *sql.DB, q string) (best time.Duration) {
		b.Helper()
		for range 5 {
			start := time.Now()
			days, err := collectText(as.QueryContext(b.Context(), "select x::text from ("+q+") x"))
			if err != nil || len(days) < 4 {
				b.Fatalf("%d rows: %v", len(days), err)
			}
			if d := time.Since(start); best == 0 || d < best {
				best = d
			}
		}
		return best
	}
	for b.Loop() {
		unbound, bound, everything, whole := best(db.DB, one), best(asTeam, own), best(db.DB, all), best(asFinance, all)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(unbound.Microseconds())/1000, "one-unbound-ms")
		b.ReportMetric(float64(bound.Microseconds())/1000, "one-reader-ms")
		b.ReportMetric(float64(bound)/float64(unbound), "one-ratio")
		b.ReportMetric(float64(everything.Microseconds())/1000, "all-unbound-ms")
		b.ReportMetric(float64(whole)/float64(everything), "all-ratio")
	}
}
