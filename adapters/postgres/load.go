package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"

	"quartermaster/projections"
)

// Load implements [projections.Tx]. It reads the rows that are not in memory, with one query for
// each table. Records that are about to be folded cannot be in quarantine yet, so Load skips
// quarantine rows.
//
// It needs no transaction: if another process had written these rows, Commit would fail.
func (t *tx) Load(ctx context.Context, keys iter.Seq[projections.Key]) (*projections.WorkingSet, error) {
	p := t.part
	var missing [len(tableOf)][]projections.Key
	for k := range keys {
		if k.Table == projections.TableQuarantine || p.absent[k] || p.rows.Holds(k) {
			continue
		}
		// The key may share memory with a record.
		k.Scope, k.ID = strings.Clone(k.Scope), strings.Clone(k.ID)
		if p.absent == nil {
			p.absent = map[projections.Key]bool{}
		}
		p.absent[k] = true // until it is found
		missing[k.Table] = append(missing[k.Table], k)
	}
	for _, spec := range tables {
		for rest := missing[spec.of]; len(rest) > 0; {
			n := min(len(rest), t.store.tuning.array)
			if err := load(ctx, p.home, t.store.schema, spec, rest[:n], p); err != nil {
				t.failed = true
				return nil, fmt.Errorf("load %d rows of %s: %w", n, spec.name(), err)
			}
			rest = rest[n:]
		}
		if spec.kind != byHour {
			continue
		}
		if err := t.loadDetached(missing[spec.of]); err != nil {
			t.failed = true
			return nil, fmt.Errorf("load rows of %s: %w", spec.name(), err)
		}
	}
	return p.rows, nil
}

// load reads the existing rows of one table.
func load(ctx context.Context, home *sql.DB, schema string, t *table, keys []projections.Key, p *part) error {
	least, most := keys[0].Hour, keys[0].Hour
	for _, k := range keys {
		least, most = min(least, k.Hour), max(most, k.Hour)
	}
	args := keyArrays(keys)
	if t.kind == byHour {
		args = append(args, least, most)
	}
	rows, err := home.QueryContext(ctx, t.loadSQL(schema), args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var i int
	var raw []byte
	for rows.Next() {
		if err := rows.Scan(&i, &raw); err != nil {
			return err
		}
		k := keys[i-1]
		row, err := projections.DecodeRow(k.Table, raw)
		if err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
		p.rows.Add(k, row)
		if u, ok := row.(*projections.UsageHour); ok {
			p.held[k] = heldOf(k, u)
		}
		delete(p.absent, k)
	}
	return rows.Err()
}

// keyArrays returns keys as the arguments of [table.loadSQL]: scopes, ids and numbers.
func keyArrays(keys []projections.Key) []any {
	n := len(keys)
	scopes, ids, hours := newArray(oidText, 32*n), newArray(oidText, 32*n), newArray(oidInt8, 12*n)
	for _, k := range keys {
		text, _ := columnText(k.Scope, maxKey)
		scopes.text(text)
		text, _ = columnText(k.ID, maxKey)
		ids.text(text)
		hours.int(k.Hour)
	}
	return []any{scopes.value(), ids.value(), hours.value()}
}

// removeSQL returns a statement that deletes the rows of $1, $2, $3 (scope, id, number).
func (t *table) removeSQL(schema string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `delete from %s.%s t using unnest($1::text[], $2::text[], $3::bigint[]) k(scope, id, number)
		where t.%s = k.scope`, schema, t.name(), t.scope.name)
	if t.id.name != "" {
		fmt.Fprintf(&b, " and t.%s = k.id", t.id.name)
	}
	if t.at.name != "" {
		fmt.Fprintf(&b, " and t.%s = %s", t.at.name, t.number("k.number"))
	}
	return b.String()
}

// loadSQL returns a query for the rows of $1, $2, $3 (scope, id, number), each with its 1-based
// index in these arrays.
func (t *table) loadSQL(schema string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
		select k.i, t.row
		from unnest($1::text[], $2::text[], $3::bigint[]) with ordinality k(scope, id, number, i)
		join %s.%s t on t.%s = k.scope`, schema, t.name(), t.scope.name)
	if t.id.name != "" {
		fmt.Fprintf(&b, " and t.%s = k.id", t.id.name)
	}
	if t.at.name != "" {
		fmt.Fprintf(&b, " and t.%s = %s", t.at.name, t.number("k.number"))
	}
	if t.kind == byHour {
		// This makes the server read the partitions of these months only.
		fmt.Fprintf(&b, " where t.%[1]s >= to_timestamp($4::bigint * 3600) and t.%[1]s <= to_timestamp($5::bigint * 3600)",
			t.at.name)
	}
	return b.String()
}
