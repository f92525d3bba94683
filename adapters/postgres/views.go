package postgres

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
)

//go:embed views.sql
var viewsSQL string

// statements are the statements of views.sql, without comments.
var statements = func() []string {
	text := regexp.MustCompile(`(?m)^--.*\n`).ReplaceAllString(viewsSQL, "")
	var out []string
	for s := range strings.SplitSeq(text, ";\n") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}()

var (
	viewHead = regexp.MustCompile(`^create view quartermaster\.(\w+) as\n`)
	listOf   = regexp.MustCompile(`list\(([^()]+)\)`)
	// The form is that of domain.ShardKey.
	clusterOf = strings.NewReplacer("cluster_of(t)", `regexp_replace(t.cluster, '/[0-9]+-of-[0-9]+$', '')`)
	inEffect  = regexp.MustCompile(`in_effect\((\w+)(?:, (\w+))?\)`)
)

// viewNames returns the names of the views in views.sql.
func viewNames() []string {
	var names []string
	for _, s := range statements {
		if m := viewHead.FindStringSubmatch(s); m != nil {
			names = append(names, m[1])
		}
	}
	return names
}

// statementOf returns the statement of views.sql that makes a view.
func statementOf(view string) string {
	for _, s := range statements {
		if m := viewHead.FindStringSubmatch(s); m != nil && m[1] == view {
			return s
		}
	}
	panic("no view " + view)
}

// viewSQL expands a statement of views.sql to cover these generations. There MUST be at least one.
func viewSQL(statement string, generations []string) string {
	m := viewHead.FindStringSubmatch(statement)
	if m == nil {
		return statement
	}
	body := inEffect.ReplaceAllStringFunc(statement[len(m[0]):], func(s string) string {
		m := inEffect.FindStringSubmatch(s)
		of := ""
		if m[2] != "" {
			of = "v->>'type' = " + pq.QuoteLiteral(m[2]) + " and "
		}
		return `rows.` + m[1] + ` t cross join lateral (
	select v->'event' as event, v->>'type' as type, v->>'workspace' as workspace, (v->>'effective')::timestamptz as effective
	from jsonb_array_elements(t.facts) with ordinality as x(v, n)
	where ` + of + `(v->>'effective')::timestamptz <= now() order by n desc limit 1
) e`
	})
	body = listOf.ReplaceAllString(body, `(case when jsonb_typeof($1) = 'array' then $1 else '[]' end)`)
	body = clusterOf.Replace(body)
	// A view runs with the rights of the querying role.
	head := "create or replace view quartermaster." + m[1] + " with (security_invoker = true) as\n"
	if !strings.Contains(body, "rows.") {
		return head + body
	}
	branches := make([]string, len(generations))
	for i, g := range generations {
		// The server reads the active generation once and skips the other branches.
		branches[i] = "select * from (\n" + strings.ReplaceAll(body, "rows.", schemaOf(g)+".") +
			"\n) b where (select generation from quartermaster.active) = " + pq.QuoteLiteral(g)
	}
	return head + strings.Join(branches, "\nunion all\n")
}

// viewsWait is how long one try to change the views waits for their readers. New readers wait
// behind that try, so it is short and repeated.
const (
	viewsWait  = 200 * time.Millisecond
	viewsTries = 50
)

// ErrRead means that a generation, or the views over all of them, could not be changed because long
// queries read them. The caller tries again once these have ended; pg_stat_activity shows them.
var ErrRead = errors.New("long queries are reading the rows; try again when they have ended")

// lockViews makes those who change views, or who reads them, wait for each other.
const lockViews = `select pg_advisory_xact_lock(hashtextextended('quartermaster views', 0))`

// makeViews makes the views over all generations that tx sees. If without is not empty, it leaves
// out that generation and drops its rows. Both happen in one step or not at all, so that readers of
// these rows do not make readers of the views wait. Readers wait for a moment at most. Other
// callers of makeViews wait until tx ends. It fails with [ErrRead] if readers do not end in time.
func (db *DB) makeViews(ctx context.Context, tx *sql.Tx, without string) error {
	if _, err := tx.ExecContext(ctx, lockViews); err != nil {
		return fmt.Errorf("make the views: %w", err)
	}
	generations, err := collectText(tx.QueryContext(ctx,
		`select name from quartermaster.generations where name <> $1 order by created, name`, without))
	if err != nil {
		return fmt.Errorf("list the generations: %w", err)
	}
	var create, drop strings.Builder
	for _, s := range slices.Backward(statements) {
		if m := viewHead.FindStringSubmatch(s); m != nil {
			fmt.Fprintf(&drop, "drop view if exists quartermaster.%s;\n", m[1])
		}
	}
	if len(generations) > 0 {
		for _, s := range statements {
			fmt.Fprintf(&create, "%s;\n", viewSQL(s, generations))
		}
	} else {
		create.WriteString(drop.String())
	}
	if without != "" {
		fmt.Fprintf(&create, "drop schema if exists %s cascade;\n", schemaOf(without))
	}
	err = db.execWithLockRetry(ctx, tx, create.String())
	if isCode(err, pqerror.InvalidTableDefinition) {
		// The columns changed: an older program made the views.
		err = db.execWithLockRetry(ctx, tx, drop.String()+create.String())
	}
	if isCode(err, pqerror.LockNotAvailable) {
		err = fmt.Errorf("%w: %w", ErrRead, err)
	}
	if err != nil {
		return fmt.Errorf("make the views: %w", err)
	}
	if len(generations) == 0 {
		return nil
	}
	return db.allow(ctx, tx, generations)
}

// execWithLockRetry runs statements that lock what others read. It waits for the locks briefly,
// lets queries that queued behind it go first, and tries again.
func (db *DB) execWithLockRetry(ctx context.Context, tx *sql.Tx, statements string) error {
	var before string
	if err := tx.QueryRowContext(ctx, "select current_setting('lock_timeout')").Scan(&before); err != nil {
		return err
	}
	for try := 1; ; try++ {
		begin := fmt.Sprintf("savepoint patiently; set local lock_timeout = %d", viewsWait.Milliseconds())
		if _, err := tx.ExecContext(ctx, begin); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, statements)
		if err == nil {
			_, err = tx.ExecContext(ctx, "set local lock_timeout = "+pq.QuoteLiteral(before)+"; release savepoint patiently")
			return err
		}
		if _, e := tx.ExecContext(ctx, "rollback to savepoint patiently"); e != nil {
			return errors.Join(err, e)
		}
		if !isCode(err, pqerror.LockNotAvailable) || try == viewsTries {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(viewsWait):
		}
	}
}

// collectText returns the values of a query of one column.
func collectText(rows *sql.Rows, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	return collect(rows, func(rows *sql.Rows, s *string) error { return rows.Scan(s) })
}
