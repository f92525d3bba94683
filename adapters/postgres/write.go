package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"slices"
	"strings"

	"quartermaster/projections"
)

// write is the prepared content of a transaction.
type write struct {
	store  *Store
	rows   [len(tableOf)][]stored
	gone   [len(tableOf)][]projections.Key // removed before rows are written
	held   []heldRow
	hours  map[projections.Key][]heldRow // the rows of usage_held for each changed hour, after this write
	months map[month]bool
	// uncertain upserts rows even if they are believed new.
	uncertain bool
}

// stored is a row in the form of its table's columns.
type stored struct {
	key       projections.Key
	scope, id string
	plain     bool // the columns hold the key itself
	row       []byte
	facts     []byte // nil: none
	fresh     bool   // no row with this key exists yet
}

func (r *stored) size() int {
	n := len(r.scope) + len(r.id) + len(r.row) + len(r.facts) + 32
	if !r.plain {
		n += len(r.key.Scope) + len(r.key.ID)
	}
	return n
}

func newWrite(s *Store) *write {
	return &write{store: s, hours: map[projections.Key][]heldRow{}, months: map[month]bool{}}
}

// prepare encodes what changed in a working set.
func (s *Store) prepare(p *part) (*write, error) {
	w := newWrite(s)
	w.uncertain = p.uncertain
	for k, row := range p.rows.Changed {
		fresh := p.absent[k] || k.Table == projections.TableQuarantine
		if err := w.add(k, row, fresh, p.held[k]); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// add adds a row, and the rows of usage_held that it changes.
func (w *write) add(k projections.Key, row projections.Row, fresh bool, before []heldRow) error {
	if row == nil {
		w.gone[k.Table] = append(w.gone[k.Table], k)
		return nil
	}
	t := tableOf[k.Table]
	raw, err := projections.EncodeRow(row)
	if err != nil {
		return fmt.Errorf("%s: %w", k, err)
	}
	scope, scopePlain := columnText(k.Scope, maxKey)
	id, idPlain := columnText(k.ID, maxKey)
	r := stored{key: k, scope: scope, id: id, plain: scopePlain && idPlain, row: raw, fresh: fresh && !w.uncertain}
	if t.facts != "" {
		r.facts = facts(row)
	}
	if t.kind == byHour {
		w.months[monthOf(k.Hour)] = true
	}
	if u, ok := row.(*projections.UsageHour); ok {
		w.hours[k] = heldOf(k, u)
		w.held = appendChanged(w.held, w.hours[k], before, !w.uncertain)
	}
	w.rows[k.Table] = append(w.rows[k.Table], r)
	return nil
}

// write sends everything.
func (w *write) write(ctx context.Context, tx *sql.Tx) error {
	for _, t := range tables {
		if err := w.remove(ctx, tx, t, w.gone[t.of]); err != nil {
			return fmt.Errorf("remove %d rows of %s: %w", len(w.gone[t.of]), t.name(), err)
		}
		rows := w.rows[t.of]
		if len(rows) == 0 {
			continue
		}
		// Sorted rows are close together on the pages of table and index.
		slices.SortFunc(rows, func(a, b stored) int { return a.key.Compare(b.key) })
		if err := writeRows(ctx, tx, w.store.tuning, t.target(w.store.schema), rows); err != nil {
			return fmt.Errorf("write %d rows of %s: %w", len(rows), t.name(), err)
		}
	}
	if len(w.held) > 0 {
		slices.SortFunc(w.held, func(a, b heldRow) int { return a.compare(&b) })
		if err := writeRows(ctx, tx, w.store.tuning, heldTarget(w.store.schema), w.held); err != nil {
			return fmt.Errorf("write %d rows of %s: %w", len(w.held), held, err)
		}
	}
	return nil
}

// remove deletes the rows with these keys.
func (w *write) remove(ctx context.Context, tx *sql.Tx, t *table, keys []projections.Key) error {
	for len(keys) > 0 {
		n := min(len(keys), w.store.tuning.array)
		if _, err := tx.ExecContext(ctx, t.removeSQL(w.store.schema), keyArrays(keys[:n])...); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// target describes a table and how to write rows of type R to it.
type target[R any] struct {
	insert   string               // inserts rows from arrays
	conflict string               // what to do with existing rows
	arrays   func(rows []R) []any // the arguments of insert
	size     func(r *R) int       // approximate bytes of a row in a message
	fresh    func(r *R) bool      // whether the row certainly does not exist yet
}

// writeRows writes rows of a table. It inserts new rows and upserts the others. If a row that is
// believed new exists, that is an error, and the transaction changes nothing.
func writeRows[R any](ctx context.Context, tx *sql.Tx, how tuning, t target[R], rows []R) error {
	var fresh, changed []R
	for i := range rows {
		if t.fresh(&rows[i]) {
			fresh = append(fresh, rows[i])
		} else {
			changed = append(changed, rows[i])
		}
	}
	for chunk := range messages(fresh, how, t.size) {
		if _, err := tx.ExecContext(ctx, t.insert, t.arrays(chunk)...); err != nil {
			return err
		}
	}
	for chunk := range messages(changed, how, t.size) {
		if _, err := tx.ExecContext(ctx, t.insert+" "+t.conflict, t.arrays(chunk)...); err != nil {
			return err
		}
	}
	return nil
}

// messages splits rows into messages. A row that is larger than the bound on a message is sent
// alone.
func messages[R any](rows []R, how tuning, size func(*R) int) iter.Seq[[]R] {
	return func(yield func([]R) bool) {
		start, bytes := 0, 0
		for i := range rows {
			n := size(&rows[i])
			if i > start && (i-start == how.array || bytes+n > how.bytes) {
				if !yield(rows[start:i]) {
					return
				}
				start, bytes = i, 0
			}
			bytes += n
		}
		if start < len(rows) {
			yield(rows[start:])
		}
	}
}

// target describes how to write the table in a schema.
func (t *table) target(schema string) target[stored] {
	return target[stored]{
		insert: t.insertSQL(schema), conflict: t.conflict(), arrays: t.arrays,
		size:  (*stored).size,
		fresh: func(r *stored) bool { return r.fresh },
	}
}

// columns returns the columns that are written, with the key first.
func (t *table) columns() string {
	c := strings.Join(t.key(), ", ") + ", exact, row"
	if t.facts != "" {
		c += ", facts"
	}
	return c
}

func (t *table) conflict() string {
	set := "row = excluded.row"
	if t.facts != "" {
		set += ", facts = excluded.facts"
	}
	return fmt.Sprintf("on conflict (%s) do update set %s", strings.Join(t.key(), ", "), set)
}

// insertSQL returns a statement that inserts the rows of arrays.
func (t *table) insertSQL(schema string) string {
	values := "u.scope"
	if t.id.name != "" {
		values += ", u.id"
	}
	if t.at.name != "" {
		values += ", " + t.number("u.number")
	}
	values += ", case when u.exact_scope is not null then array[u.exact_scope, u.exact_id] end, u.row"
	if t.facts != "" {
		values += ", u.facts"
	}
	return fmt.Sprintf(`insert into %s.%s (%s) select %s
		from unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bytea[], $6::bytea[], $7::jsonb[])
			u(scope, id, number, exact_scope, exact_id, row, facts)`,
		schema, t.name(), t.columns(), values)
}

func (t *table) arrays(rows []stored) []any {
	size, facts := 0, 0
	for i := range rows {
		size += len(rows[i].row)
		facts += len(rows[i].facts)
	}
	n := len(rows)
	scopes, ids, numbers := newArray(oidText, 32*n), newArray(oidText, 32*n), newArray(oidInt8, 12*n)
	exactScopes, exactIDs := newArray(oidBytea, 4*n), newArray(oidBytea, 4*n)
	raws, jsons := newArray(oidBytea, size+4*n), newArray(oidJSONB, facts+5*n)
	for i := range rows {
		r := &rows[i]
		scopes.text(r.scope)
		ids.text(r.id)
		numbers.int(r.key.Hour)
		if r.plain {
			exactScopes.null()
			exactIDs.null()
		} else {
			exactScopes.text(r.key.Scope)
			exactIDs.text(r.key.ID)
		}
		raws.bytes(r.row)
		jsons.json(r.facts)
	}
	return []any{scopes.value(), ids.value(), numbers.value(), exactScopes.value(), exactIDs.value(), raws.value(), jsons.value()}
}
