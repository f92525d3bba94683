package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/lib/pq"
)

// querier is a database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// readersOf splits the configured readers into existing and missing roles. A missing role cannot be
// granted anything and MUST NOT keep rows from being written, so grants go to the existing ones
// only.
func readersOf(ctx context.Context, q querier, configured []string) (exist, missing []string, err error) {
	if len(configured) == 0 {
		return nil, nil, nil
	}
	exist, err = collectText(q.QueryContext(ctx,
		`select rolname from pg_roles where rolname = any ($1::text[]) order by rolname`, pq.Array(configured)))
	if err != nil {
		return nil, nil, fmt.Errorf("look for the readers: %w", err)
	}
	for _, role := range configured {
		if !slices.Contains(exist, role) {
			missing = append(missing, role)
		}
	}
	return exist, missing, nil
}

// grantViews returns SQL that lets roles read the views and tables of schema quartermaster.
func grantViews(roles []string) string {
	var b strings.Builder
	for _, role := range roles {
		role = pq.QuoteIdentifier(role)
		fmt.Fprintf(&b, "grant usage on schema quartermaster to %s;\n", role)
		for _, name := range readable() {
			fmt.Fprintf(&b, "grant select on quartermaster.%s to %s;\n", name, role)
		}
	}
	return b.String()
}

// grantRows returns SQL that lets roles read the existing tables of a generation.
func grantRows(generation string, roles []string) string {
	var b strings.Builder
	for _, role := range roles {
		fmt.Fprintf(&b, "grant usage on schema %s to %s;\ngrant select on all tables in schema %[1]s to %[2]s;\n",
			schemaOf(generation), pq.QuoteIdentifier(role))
	}
	return b.String()
}

// Grant lets the configured readers read every generation with all its months, and every view. It
// is needed for readers that were configured after these were made. It revokes nothing. It returns
// the roles that may read, and the configured roles that do not exist.
func (db *DB) Grant(ctx context.Context) (granted, missing []string, err error) {
	if err := db.follow(ctx); err != nil {
		return nil, nil, err
	}
	for name, at := range db.all {
		some, none, err := db.grant(ctx, at)
		if err != nil {
			return nil, nil, fmt.Errorf("let %s read: %w", strings.Join(db.readers, ", "), within(name, err))
		}
		if name == "" {
			granted, missing = some, none
			continue
		}
		// A role that lacks on one server cannot read all.
		granted = slices.DeleteFunc(granted, func(role string) bool { return slices.Contains(none, role) })
		missing = append(missing, slices.DeleteFunc(none, func(role string) bool { return slices.Contains(missing, role) })...)
	}
	return granted, missing, nil
}

func (db *DB) grant(ctx context.Context, at *sql.DB) (granted, missing []string, err error) {
	err = change(ctx, at, func(tx *sql.Tx) error {
		if granted, missing, err = readersOf(ctx, tx, db.readers); err != nil || len(granted) == 0 {
			return err
		}
		generations, err := collectText(tx.QueryContext(ctx, `select name from quartermaster.generations order by created, name`))
		if err != nil || len(generations) == 0 {
			return err
		}
		for _, g := range generations {
			// Without the lock, a month that is being made could be missed.
			if _, err := tx.ExecContext(ctx, lockMonths, monthsOf(g)); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, grantRows(g, granted)); err != nil {
				return err
			}
		}
		return db.execWithLockRetry(ctx, tx, grantViews(granted))
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
