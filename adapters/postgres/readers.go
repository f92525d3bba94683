package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/lib/pq"
)

// Reader is a role of the server that may read views.
type Reader struct {
	Role string
	// Workspaces are those that the role sees, with those below them. Without any it sees the whole
	// estate.
	Workspaces []string
}

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// readersOf splits the configured readers into existing and missing roles. A missing role cannot be
// granted anything and MUST NOT keep rows from being written, so grants go to the existing ones
// only.
func readersOf(ctx context.Context, q querier, configured []Reader) (exist []Reader, missing []string, err error) {
	if len(configured) == 0 {
		return nil, nil, nil
	}
	roles := make([]string, len(configured))
	for i, r := range configured {
		roles[i] = r.Role
	}
	there, err := collectText(q.QueryContext(ctx, `select rolname from pg_roles where rolname = any ($1::text[])`, pq.Array(roles)))
	if err != nil {
		return nil, nil, fmt.Errorf("look for the readers: %w", err)
	}
	for _, r := range configured {
		if slices.Contains(there, r.Role) {
			exist = append(exist, r)
		} else {
			missing = append(missing, r.Role)
		}
	}
	return exist, missing, nil
}

// A reader of the whole estate may read every view, the tables that the views read, and these.
var control = []string{"active", "generations", "partitions", "log", "topics", "runs", "closed_months",
	"closed_allocations", "closed_units", "closed_statements", "closed_dues"}

// A reader of some workspaces may read viewsWithin and, of the tables that these read, the columns and
// rows of tablesWithin. Rows of other tables are about several workspaces or about suppliers: the API
// shows of them what a workspace may see.
var viewsWithin = []string{"workspaces", "budgets", "plans", "usage", "costs", "statements_due"}

var tablesWithin = []struct{ table, columns, rows string }{
	{"rows.workspaces", "", `workspace = any (seen)`},
	{"rows.budgets", "", `workspace = any (seen)`},
	{"rows.plans", "", `workspace = any (seen)`},
	{"rows.usage_days", "", `held and workspace = any (seen)`},
	{"quartermaster.active", " (generation)", `true`},
	{"quartermaster.closed_months", " (books, month)", `true`},
	{"quartermaster.closed_allocations", columnsOfCosts, `workspace = any (seen)`},
	{"quartermaster.closed_dues", "", `workspace = any (seen)`},
}

// columnsOfCosts are the columns of closed_allocations that the view costs reads.
var columnsOfCosts = func() string {
	var names []string
	for _, m := range regexp.MustCompile(`\ba\.("?\w+"?)`).FindAllStringSubmatch(statementOf("costs"), -1) {
		if !slices.Contains(names, m[1]) {
			names = append(names, m[1])
		}
	}
	return " (" + strings.Join(names, ", ") + ")"
}()

var rowsRead = regexp.MustCompile(`(?:\brows\.|\bin_effect\()(\w+)`)

// rowsOfViews are the tables of a generation that views read.
var rowsOfViews = func() []string {
	names := map[string]bool{}
	for _, s := range statements {
		if viewHead.MatchString(s) {
			for _, m := range rowsRead.FindAllStringSubmatch(s, -1) {
				names[m[1]] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}()

// portion is what a reader may read of a table: columns in brackets, "" for all, and the condition on rows.
type portion struct{ columns, rows string }

// reads returns the views of schema quartermaster that a reader may read, and what of the tables there
// and in the schemas of generations.
func (r *Reader) reads(generations []string) (views []string, tables map[string]portion) {
	tables = map[string]portion{}
	add := func(table, columns, rows string) {
		name, ok := strings.CutPrefix(table, "rows.")
		if !ok {
			tables[table] = portion{columns, rows}
			return
		}
		for _, g := range generations {
			tables[schemaOf(g)+"."+name] = portion{columns, rows}
		}
	}
	if len(r.Workspaces) == 0 {
		for _, name := range rowsOfViews {
			add("rows."+name, "", "true")
		}
		for _, name := range control {
			add("quartermaster."+name, "", "true")
		}
		return viewNames(), tables
	}
	// Asked once for a query, and not for each row.
	seen := "(select quartermaster.workspaces_of(" + pq.QuoteLiteral(r.Role) + "))"
	for _, t := range tablesWithin {
		add(t.table, t.columns, strings.ReplaceAll(t.rows, "seen", seen+"::text[]"))
	}
	return viewsWithin, tables
}

// allow lets the readers of quartermaster.readers read what they may of these generations, and nobody
// whom it let read before read anything else. Every table that a reader is granted has row-level
// security, so that whoever is granted one by somebody else sees no row. The program's own user owns
// the tables and is not bound by it. Callers wait for each other until tx ends.
func (db *DB) allow(ctx context.Context, tx *sql.Tx, generations []string) error {
	if _, err := tx.ExecContext(ctx, lockViews); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, `select r.role, r.workspaces from quartermaster.readers r join pg_roles p on p.rolname = r.role`)
	if err != nil {
		return err
	}
	readers, err := collect(rows, func(rows *sql.Rows, r *Reader) error { return rows.Scan(&r.Role, pq.Array(&r.Workspaces)) })
	if err != nil {
		return err
	}
	schemas := []string{"quartermaster"}
	for _, g := range generations {
		schemas = append(schemas, schemaOf(g))
	}
	policies, err := policiesIn(ctx, tx, schemas)
	if err != nil {
		return err
	}
	open, err := collectText(tx.QueryContext(ctx, `
		select n.nspname || '.' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = any ($1::text[]) and c.relkind in ('r', 'p') and not c.relispartition and not c.relrowsecurity`, pq.Array(schemas)))
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, table := range open {
		if schema, name := split(table); slices.Contains(control, name) || schema != "quartermaster" && slices.Contains(rowsOfViews, name) {
			fmt.Fprintf(&b, "alter table %s enable row level security;\n", table)
		}
	}
	roles := map[string]bool{}
	changed := map[string]bool{"quartermaster": true} // its views may have been made anew
	grants := map[string]*strings.Builder{}
	for _, schema := range schemas {
		grants[schema] = &strings.Builder{}
	}
	for _, r := range readers {
		roles[r.Role] = true
		role := pq.QuoteIdentifier(r.Role)
		for schema, to := range grants {
			fmt.Fprintf(to, "grant usage on schema %s to %s;\n", schema, role)
		}
		views, tables := r.reads(generations)
		for _, view := range views {
			fmt.Fprintf(grants["quartermaster"], "grant select on quartermaster.%s to %s;\n", view, role)
		}
		for _, table := range slices.Sorted(maps.Keys(tables)) {
			t, key := tables[table], policy{table, r.Role}
			schema, _ := split(table)
			fmt.Fprintf(grants[schema], "grant select%s on %s to %s;\n", t.columns, table, role)
			is, there := policies[key]
			delete(policies, key)
			if is == t.rows {
				continue
			}
			if there {
				fmt.Fprintf(&b, "drop policy %s on %s;\n", role, table)
			}
			fmt.Fprintf(&b, "create policy %s on %s for select to %[1]s using (%[3]s);\ncomment on policy %[1]s on %[2]s is %[4]s;\n",
				role, table, t.rows, pq.QuoteLiteral(t.rows))
			changed[schema] = true
		}
	}
	for _, p := range slices.SortedFunc(maps.Keys(policies), policy.compare) { // of those who may no longer read
		schema, _ := split(p.table)
		fmt.Fprintf(&b, "drop policy %s on %s;\n", pq.QuoteIdentifier(p.role), p.table)
		changed[schema], roles[p.role] = true, true
	}
	for _, schema := range schemas {
		if !changed[schema] {
			continue
		}
		for _, role := range slices.Sorted(maps.Keys(roles)) {
			fmt.Fprintf(&b, "revoke all on all tables in schema %s from %s;\nrevoke all on schema %[1]s from %[2]s;\n",
				schema, pq.QuoteIdentifier(role))
		}
		b.WriteString(grants[schema].String())
	}
	return db.execWithLockRetry(ctx, tx, b.String())
}

// split returns the schema and the name of a table.
func split(table string) (schema, name string) {
	schema, name, _ = strings.Cut(table, ".")
	return schema, name
}

// policy says which rows of a table a role sees. The role is its name; its comment is the condition.
type policy struct{ table, role string }

func (p policy) compare(q policy) int {
	return cmp.Or(strings.Compare(p.table, q.table), strings.Compare(p.role, q.role))
}

func policiesIn(ctx context.Context, tx *sql.Tx, schemas []string) (map[policy]string, error) {
	rows, err := tx.QueryContext(ctx, `
		select n.nspname || '.' || c.relname, p.polname, coalesce(obj_description(p.oid, 'pg_policy'), '')
		from pg_policy p join pg_class c on c.oid = p.polrelid join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = any ($1::text[])`, pq.Array(schemas))
	if err != nil {
		return nil, err
	}
	type row struct {
		policy
		rows string
	}
	all, err := collect(rows, func(rows *sql.Rows, r *row) error { return rows.Scan(&r.table, &r.role, &r.rows) })
	of := map[policy]string{}
	for _, r := range all {
		of[r.policy] = r.rows
	}
	return of, err
}

// Grant lets the configured readers read every generation, each what it may, and nobody else whom it
// let read before. It is needed after the configuration changed, and for roles that were made since. It
// returns the readers, and the configured roles that do not exist.
func (db *DB) Grant(ctx context.Context) (granted []Reader, missing []string, err error) {
	if err := db.follow(ctx); err != nil {
		return nil, nil, err
	}
	for name, at := range db.all {
		some, none, err := db.grant(ctx, at)
		if err != nil {
			return nil, nil, fmt.Errorf("let the readers read: %w", within(name, err))
		}
		if name == "" {
			granted, missing = some, none
			continue
		}
		// A role that lacks on one server cannot read all.
		granted = slices.DeleteFunc(granted, func(r Reader) bool { return slices.Contains(none, r.Role) })
		missing = append(missing, slices.DeleteFunc(none, func(role string) bool { return slices.Contains(missing, role) })...)
	}
	return granted, missing, nil
}

func (db *DB) grant(ctx context.Context, at *sql.DB) (granted []Reader, missing []string, err error) {
	err = change(ctx, at, func(tx *sql.Tx) error {
		if granted, missing, err = readersOf(ctx, tx, db.readers); err != nil {
			return err
		}
		// Whoever makes a generation or the views reads the table after that.
		if _, err := tx.ExecContext(ctx, lockViews); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `delete from quartermaster.readers`); err != nil {
			return err
		}
		for _, r := range granted {
			var workspaces any // null for the whole estate
			if len(r.Workspaces) > 0 {
				workspaces = pq.Array(r.Workspaces)
			}
			if _, err := tx.ExecContext(ctx, `insert into quartermaster.readers values ($1, $2)`, r.Role, workspaces); err != nil {
				return err
			}
		}
		generations, err := collectText(tx.QueryContext(ctx, `select name from quartermaster.generations order by created, name`))
		if err != nil || len(generations) == 0 {
			return err
		}
		return db.allow(ctx, tx, generations)
	})
	return granted, missing, err
}

// MissingReaders returns the configured readers that do not exist as roles of every database.
func (db *DB) MissingReaders(ctx context.Context) (missing []string, err error) {
	for name, at := range db.all {
		_, none, err := readersOf(ctx, at, db.readers)
		if err != nil {
			return nil, within(name, err)
		}
		for _, role := range none {
			if !slices.Contains(missing, role) {
				missing = append(missing, role)
			}
		}
	}
	return missing, nil
}
