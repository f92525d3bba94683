package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"

	"quartermaster/domain"
	"quartermaster/projections"
)

// ErrMethod means that the active rows were made by another version of the folds. An operator reads
// them with the program of that version, or rebuilds them with this one.
var ErrMethod = errors.New("rows were made by another version of the program")

// View implements [projections.Store] on the rows of the store's generation.
func (s *Store) View(ctx context.Context, read func(projections.View) error) error {
	return s.db.view(ctx, s.generation, s.tuning.page, read)
}

// View calls read with a consistent snapshot of the active generation. It fails with [ErrMethod] if
// another fold version made that generation.
func (db *DB) View(ctx context.Context, read func(projections.View) error) error {
	return db.view(ctx, "", defaultTuning.page, read)
}

// ViewOf is View of a named generation, which this fold version MUST have made; "" is the active
// one.
func (db *DB) ViewOf(ctx context.Context, generation string, read func(projections.View) error) error {
	return db.view(ctx, generation, defaultTuning.page, read)
}

// view calls read with a snapshot of a generation, "" for the active one.
func (db *DB) view(ctx context.Context, generation string, page int, read func(projections.View) error) error {
	for missing := ""; ; {
		views, name, err := db.openViews(ctx, generation, page)
		if isCode(err, pqerror.UndefinedTable) || isCode(err, pqerror.InvalidSchemaName) {
			// The generation was dropped after its name was read and before its rows were. Before
			// that, another generation was made active.
			if generation == "" && name != missing {
				missing = name
				continue
			}
			if errors.Is(err, ErrDatabases) {
				return err
			}
			return fmt.Errorf("the rows of generation %q were dropped: %w", name, err)
		}
		if err != nil {
			return err
		}
		var (
			each []projections.View
			left []projections.PartDigest
		)
		for _, v := range views {
			each, left = append(each, v), append(left, v.detached...)
		}
		if len(left) > 0 && db.Parts == nil {
			return errors.Join(errNoParts(name, left[0]), closeAll(views))
		}
		err = read(projections.ByCluster(projections.Over(projections.Beside(each...), db.Parts, left)))
		return errors.Join(err, closeAll(views))
	}
}

func closeAll(views []*view) (err error) {
	for _, v := range views {
		err = errors.Join(err, v.close())
	}
	return err
}

// openViews begins a transaction in each database that has rows of a generation. It returns the name
// of the generation even if its rows were dropped.
func (db *DB) openViews(ctx context.Context, generation string, page int) (views []*view, name string, err error) {
	if generation == "" {
		if generation, err = db.readable(ctx); err != nil {
			return nil, generation, err
		}
	}
	defer func() {
		if err != nil {
			_ = closeAll(views)
		}
	}()
	first, err := openView(ctx, db.DB, generation, page)
	if err != nil {
		return nil, generation, err
	}
	views = append(views, first)
	first.mu.Lock()
	places, err := placed(ctx, first.tx, generation)
	first.mu.Unlock()
	if err != nil {
		return views, generation, fmt.Errorf("read where the rows of generation %q are: %w", generation, err)
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		if name == "" {
			continue
		}
		at, err := db.home(name)
		if err != nil {
			return views, generation, err
		}
		v, err := openView(ctx, at, generation, page)
		if isCode(err, pqerror.UndefinedTable) || isCode(err, pqerror.InvalidSchemaName) {
			err = fmt.Errorf("%w: %w", missingRows(name, generation), err)
		}
		if err != nil {
			return views, generation, within(name, err)
		}
		views = append(views, v)
		for _, tp := range places[name] {
			if _, ok := v.position[tp]; !ok {
				return views, generation, missingRows(name, generation)
			}
		}
		if len(v.position) != len(places[name]) {
			return views, generation, fmt.Errorf("%w: of generation %s database %q has the partitions %v, and the first database says %v",
				ErrDatabases, generation, name, slices.SortedFunc(maps.Keys(v.position), domain.TopicPartition.Compare), places[name])
		}
	}
	return views, generation, nil
}

// openView begins a transaction that reads a consistent snapshot of what one database has.
func openView(ctx context.Context, db *sql.DB, generation string, page int) (_ *view, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("begin to read: %w", err)
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback()
		}
	}()
	// These locks come before the snapshot, so that no month is detached between the two: the rows of
	// one that the snapshot does not know to be detached are there until the end.
	for _, t := range monthly() {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("lock table only %s.%s in access share mode", schemaOf(generation), t)); err != nil {
			return nil, fmt.Errorf("begin to read generation %q: %w", generation, err)
		}
	}
	v := &view{
		ctx:      ctx,
		tx:       tx,
		size:     page,
		schema:   schemaOf(generation),
		position: domain.Position{},
		anchors:  map[domain.TopicPartition]domain.Anchor{},
		exact:    map[projections.Table]bool{},
	}
	// Reading a table of the generation takes a lock until the end, so that the generation cannot
	// be dropped meanwhile.
	rows, err := tx.QueryContext(ctx, fmt.Sprintf(`
		select topic, partition, next_offset, %s from quartermaster.partitions p
		where generation = $1 and database = '' and (select count(*) from (select from %s.streams limit 0) t) = 0`, anchorSQL, v.schema), generation)
	if err != nil {
		return nil, fmt.Errorf("read the position of generation %q: %w", generation, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var tp domain.TopicPartition
		var next int64
		var last anchor
		if err := rows.Scan(&tp.Topic, &tp.Partition, &next, &last); err != nil {
			return nil, fmt.Errorf("read the position of generation %q: %w", generation, err)
		}
		v.position[tp] = next
		if a := domain.Anchor(last); !a.IsZero() {
			v.anchors[tp] = a
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the position of generation %q: %w", generation, err)
	}
	v.detached, err = detached(ctx, tx, generation, "")
	return v, err
}

// readable returns the name of the active generation, which this fold version made.
func (db *DB) readable(ctx context.Context) (generation string, err error) {
	var method string
	err = db.QueryRowContext(ctx, `
		select g.name, g.method
		from quartermaster.active a join quartermaster.generations g on g.name = a.generation`,
	).Scan(&generation, &method)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", errors.New("the database has no active generation of rows; " +
			"\"quartermaster generation migrate\" makes the first")
	case err != nil:
		return "", fmt.Errorf("look up the active generation: %w", err)
	case method != projections.Method:
		return generation, fmt.Errorf("%w: the active generation %q has method %q, this program %q; "+
			"use the program of that version, or build and switch with \"quartermaster generation rebuild\"",
			ErrMethod, generation, method, projections.Method)
	}
	return generation, nil
}

// view implements [projections.View] on one connection. It is safe for concurrent use: each scan
// has a cursor, and holds mu only while it reads a page.
type view struct {
	ctx      context.Context
	schema   string
	size     int // page size in rows
	position domain.Position
	anchors  map[domain.TopicPartition]domain.Anchor
	detached []projections.PartDigest

	mu      sync.Mutex
	tx      *sql.Tx
	cursors int
	// exact says whether a table has keys that its columns cannot hold. A missing entry is unknown.
	exact map[projections.Table]bool
}

func (v *view) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.tx.Rollback()
}

func (v *view) Position() domain.Position { return v.position.Clone() }

func (v *view) Anchors() map[domain.TopicPartition]domain.Anchor { return maps.Clone(v.anchors) }

func (v *view) Get(k projections.Key) (projections.Row, error) {
	t := tableOf[k.Table]
	scope, _ := columnText(k.Scope, maxKey)
	id, _ := columnText(k.ID, maxKey)
	where, args := "t."+t.scope.name+" = $1", []any{scope}
	if t.id.name != "" {
		args = append(args, id)
		where += fmt.Sprintf(" and t.%s = $%d", t.id.name, len(args))
	} else if id != "" {
		return nil, nil
	}
	if t.at.name != "" {
		args = append(args, k.Hour)
		where += fmt.Sprintf(" and t.%s = %s", t.at.name, t.number(fmt.Sprintf("$%d::bigint", len(args))))
	} else if k.Hour != 0 {
		return nil, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var raw []byte
	err := v.tx.QueryRowContext(v.ctx,
		fmt.Sprintf("select t.row from %s.%s t where %s", v.schema, t.name(), where), args...).Scan(&raw)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", k, err)
	}
	row, err := projections.DecodeRow(k.Table, raw)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", k, err)
	}
	return row, nil
}

func (v *view) Scopes(of projections.Table) ([]string, error) {
	t := tableOf[of]
	v.mu.Lock()
	defer v.mu.Unlock()
	exact, err := v.hasExact(t)
	if err != nil {
		return nil, err
	}
	rows, err := v.tx.QueryContext(v.ctx, t.scopesSQL(v.schema, exact))
	if err != nil {
		return nil, fmt.Errorf("read the scopes of %s: %w", of, err)
	}
	defer func() { _ = rows.Close() }()
	var scopes []string
	for rows.Next() {
		var scope string
		var bytes []byte
		if err := rows.Scan(&scope, &bytes); err != nil {
			return nil, fmt.Errorf("read the scopes of %s: %w", of, err)
		}
		if bytes != nil {
			scope = string(bytes)
		}
		// A scope occurs in both forms if only some of its ids are replaced.
		if n := len(scopes); n == 0 || scopes[n-1] != scope {
			scopes = append(scopes, scope)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the scopes of %s: %w", of, err)
	}
	return scopes, nil
}

// scopesSQL returns a query for the scopes of a table, each as in its column and, where the column
// has a replacement, as bytes.
func (t *table) scopesSQL(schema string, exact bool) string {
	if exact {
		return fmt.Sprintf(`
			select %s, exact[1] from %s.%s t
			group by 1, 2 order by coalesce(exact[1], convert_to(%[1]s, 'UTF8'))`, t.scope.name, schema, t.name())
	}
	// This jumps from scope to scope along the index instead of reading every row.
	return fmt.Sprintf(`
		with recursive s as (
			(select t.%[3]s scope from %[1]s.%[2]s t order by 1 limit 1)
			union all
			select (select t.%[3]s from %[1]s.%[2]s t where t.%[3]s > s.scope order by 1 limit 1) from s where s.scope is not null
		)
		select scope, null from s where scope is not null`, schema, t.name(), t.scope.name)
}

// hasExact reports whether a table has keys that its columns cannot hold.
func (v *view) hasExact(t *table) (bool, error) {
	has, known := v.exact[t.of]
	if known {
		return has, nil
	}
	err := v.tx.QueryRowContext(v.ctx,
		fmt.Sprintf("select exists (select from %s.%s where exact is not null)", v.schema, t.name())).Scan(&has)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", t.name(), err)
	}
	v.exact[t.of] = has
	return has, nil
}

// shared is a view for several scans at once, with small pages.
type shared struct {
	*view
	size int
}

// minPage bounds how small the pages of concurrent scans are.
const minPage = 8

// ForScans returns the view for n scans at once, whose pages together are about as large as one.
func (v *view) ForScans(n int) projections.View {
	return &shared{v, min(v.size, max(minPage, v.size/max(n, 1)))}
}

func (s *shared) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	return s.scan(q, s.size, yield)
}

func (v *view) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	return v.scan(q, v.size, yield)
}

// scan reads pages of a size.
func (v *view) scan(q projections.Query, size int, yield func(projections.Key, projections.Row) error) error {
	t := tableOf[q.Table]
	cursor, err := v.open(t, &q)
	if err != nil {
		return fmt.Errorf("scan %s: %w", q.Table, err)
	}
	names := map[string]string{}
	for {
		page, err := v.page(t, cursor, size, names)
		if err != nil {
			return fmt.Errorf("scan %s: %w", q.Table, err)
		}
		for i := range page {
			if err := yield(page[i].key, page[i].row); err != nil {
				return errors.Join(err, v.done(cursor))
			}
		}
		if len(page) < size {
			return v.done(cursor)
		}
	}
}

// open declares a cursor.
func (v *view) open(t *table, q *projections.Query) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	exact, err := v.hasExact(t)
	if err != nil {
		return "", err
	}
	v.cursors++
	cursor := fmt.Sprintf("c%d", v.cursors)
	sql, args := t.scanSQL(v.schema, q, exact)
	_, err = v.tx.ExecContext(v.ctx, "declare "+cursor+" no scroll cursor for "+sql, args...)
	return cursor, err
}

func (v *view) done(cursor string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, err := v.tx.ExecContext(v.ctx, "close "+cursor)
	return err
}

// scanSQL returns a query for the rows that q selects, in the order of keys. exact says that some
// keys of the table are not in its key columns.
func (t *table) scanSQL(schema string, q *projections.Query, exact bool) (string, []any) {
	from := schema + "." + t.name() + " t"
	scope, id, number := "t."+t.scope.name, "''", "0"
	if t.id.name != "" {
		id = "t." + t.id.name
	}
	var args []any
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	where, within := "true", "true" // by scope, by time
	if q.Scope != "" {
		name, _ := columnText(q.Scope, maxKey)
		where = scope + " = " + arg(name)
	}
	switch {
	case q.ID != "" && t.id.name != "":
		name, _ := columnText(q.ID, maxKey)
		where += " and " + id + " = " + arg(name)
	case q.ID != "":
		where = "false"
	}
	keys := []string{scope}
	if t.id.name != "" {
		keys = append(keys, id)
	}
	if exact {
		for i, k := range keys {
			keys[i] = fmt.Sprintf("coalesce(t.exact[%d], convert_to(%s, 'UTF8'))", i+1, k)
		}
	}
	thing := strings.Join(keys, ", ")
	if t.at.name == "" {
		if !q.Holds(projections.Key{Scope: q.Scope, ID: q.ID}) {
			where = "false"
		}
		return fmt.Sprintf("select %s, %s, %s, t.exact, t.row from %s where %s order by %s",
			scope, id, number, from, where, thing), args
	}
	at := "t." + t.at.name
	switch t.kind {
	case byHour, byDay, byMonth:
		number = "(extract(epoch from " + at + ") / 3600)::bigint"
	case offset:
		number = at + " + 1"
	case timeless, incarnation:
		number = at
	}
	if q.From != 0 {
		within = at + " >= " + t.number(arg(q.From)+"::bigint")
	}
	if q.To != 0 {
		within += " and " + at + " < " + t.number(arg(q.To)+"::bigint")
	}
	columns := fmt.Sprintf("%s, %s, %s, t.exact, t.row", scope, id, number)
	switch {
	case !q.Last:
		return fmt.Sprintf("select %s from %s where %s and %s order by %s, %s",
			columns, from, where, within, thing, at), args
	case t.kind != byHour || exact:
		return fmt.Sprintf(`
			select distinct on (%[5]s) %[1]s from %[2]s where %[3]s and %[4]s
			order by %[5]s, %[6]s desc`, columns, from, where, within, thing, at), args
	}
	// This jumps from key to key along the index and reads the last row of each, so that the cost
	// does not grow with the length of history.
	return fmt.Sprintf(`
		with recursive k(scope, id) as (
			(select %[5]s from %[2]s where %[3]s order by %[5]s limit 1)
			union all
			select n.* from k cross join lateral (
				select %[5]s from %[2]s where %[3]s and (%[5]s) > (k.scope, k.id) order by %[5]s limit 1) n
		)
		select %[1]s from k cross join lateral (
			select * from %[2]s where %[7]s = k.scope and %[8]s = k.id and %[4]s order by %[6]s desc limit 1) t
		order by %[5]s`, columns, from, where, within, thing, at, scope, id), args
}

type found struct {
	key projections.Key
	row projections.Row
}

// page reads the next rows of a cursor, at most size. names interns names.
func (v *view) page(t *table, cursor string, size int, names map[string]string) ([]found, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	rows, err := v.tx.QueryContext(v.ctx, fmt.Sprintf("fetch %d from %s", size, cursor))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	keep := func(b []byte) string {
		s, ok := names[string(b)]
		if !ok {
			s = string(b)
			if len(names) > 1<<16 {
				clear(names)
			}
			names[s] = s
		}
		return s
	}
	var page []found
	for rows.Next() {
		var scope, id, raw sql.RawBytes
		var exact []byte
		k := projections.Key{Table: t.of}
		if err := rows.Scan(&scope, &id, &k.Hour, &exact, &raw); err != nil {
			return nil, err
		}
		k.Scope, k.ID = keep(scope), keep(id)
		if exact != nil {
			var parts pq.ByteaArray
			if err := parts.Scan(exact); err != nil || len(parts) != 2 {
				return nil, fmt.Errorf("column exact of %s is not a pair", k)
			}
			k.Scope, k.ID = string(parts[0]), string(parts[1])
		}
		row, err := projections.DecodeRow(t.of, raw)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k, err)
		}
		page = append(page, found{k, row})
	}
	return page, rows.Err()
}
