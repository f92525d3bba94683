package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
)

// difference is what a comparison found: rows that should be there, rows that
// should not, rows that hold something else, and commits that nobody had the
// right to make.
type difference struct {
	Rows    int // compared
	Lost    []string
	Extra   []string
	Changed []string
	Trace   []string // offsets folded twice or never, or under a claim that was over
	Commits int
	Epochs  int // claims that committed something

	sums int // rows that differ and hold sums over events, where what counts twice shows
}

func (d *difference) any() bool {
	return len(d.Lost)+len(d.Extra)+len(d.Changed)+len(d.Trace) > 0
}

func (d *difference) String() string {
	var b strings.Builder
	for _, kind := range []struct {
		name string
		list []string
	}{{"lost", d.Lost}, {"doubled or of nowhere", d.Extra}, {"different", d.Changed}, {"commits", d.Trace}} {
		if len(kind.list) > 0 {
			fmt.Fprintf(&b, "%d %s: %s\n", len(kind.list), kind.name, strings.Join(kind.list[:min(10, len(kind.list))], "; "))
		}
	}
	return b.String()
}

// firstGeneration is the generation that rivals fold from the beginning.
const firstGeneration = "a"

// comparer reads what a generation of a database holds at one moment.
type comparer struct {
	db         *sql.DB
	generation string
	parts      string // directory of the rows that left the database
	tx         *sql.Tx
}

// position reads how far each partition of a generation is folded.
func (r *rowsOf) position(ctx context.Context, generation string) (domain.Position, error) {
	c := &comparer{db: r.db.DB, generation: generation}
	defer c.end()
	return c.position(ctx)
}

// position reads how far each partition is folded, beginning the moment.
func (c *comparer) position(ctx context.Context) (domain.Position, error) {
	tx, err := c.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	c.tx = tx
	rows, err := tx.QueryContext(ctx, `select topic, partition, next_offset from quartermaster.partitions where generation = $1`, c.generation)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	at := domain.Position{}
	for rows.Next() {
		var tp domain.TopicPartition
		var next int64
		if err := rows.Scan(&tp.Topic, &tp.Partition, &next); err != nil {
			return nil, err
		}
		at[tp] = next
	}
	return at, rows.Err()
}

// compare holds every row of the database's moment against the reference, which
// is at the same position.
func (c *comparer) compare(ctx context.Context, ref *reference) (*difference, error) {
	d := &difference{}
	met := map[rowName]bool{}
	sums := map[string]bool{"usage_hours": true, "serving_hours": true}
	tables, err := c.tables(ctx)
	if err != nil {
		return nil, err
	}
	detached, err := c.detachedParts(ctx)
	if err != nil {
		return nil, err
	}
	for table, key := range tables {
		one := func(name rowName, raw []byte) error {
			d.Rows++
			met[name] = true
			row, known := ref.rows[name]
			if !known {
				d.Extra = append(d.Extra, name.String())
				if sums[table] {
					d.sums++
				}
				return nil
			}
			want, err := row.encode()
			if err != nil {
				return fmt.Errorf("%w: %s: %w", errReference, name, err)
			}
			if !bytes.Equal(raw, want) {
				d.Changed = append(d.Changed, name.String())
				if sums[table] {
					d.sums++
				}
			}
			return nil
		}
		err := c.rows(ctx, table, key, one)
		if err == nil {
			err = c.left(detached, table, met, one)
		}
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", table, err)
		}
	}
	for name := range ref.rows {
		if !met[name] {
			d.Lost = append(d.Lost, name.String())
			if sums[name.table] {
				d.sums++
			}
		}
	}
	if err := c.held(ctx, ref, detached, d); err != nil {
		return nil, fmt.Errorf("compare usage_held: %w", err)
	}
	if c.generation == firstGeneration { // another one was not begun by rivals
		if err := c.trace(ctx, ref, d); err != nil {
			return nil, fmt.Errorf("compare commits: %w", err)
		}
	}
	slices.Sort(d.Lost)
	slices.Sort(d.Extra)
	slices.Sort(d.Changed)
	return d, nil
}

// end gives the moment up.
func (c *comparer) end() {
	if c.tx != nil {
		_ = c.tx.Rollback()
	}
}

// tables returns the tables of rows, with the columns of their keys in order.
func (c *comparer) tables(ctx context.Context) (map[string][]string, error) {
	rows, err := c.tx.QueryContext(ctx, `
		select c.relname, a.attname from pg_class c
		join pg_index i on i.indrelid = c.oid and i.indisprimary
		cross join unnest(i.indkey::int[]) with ordinality k(n, at)
		join pg_attribute a on a.attrelid = c.oid and a.attnum = k.n
		where c.relnamespace = $1::regnamespace and not c.relispartition and c.relname <> 'usage_held'
			and exists (select from pg_attribute e where e.attrelid = c.oid and e.attname = 'exact')
		order by 1, k.at`, "rows_"+c.generation)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := map[string][]string{}
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, err
		}
		out[table] = append(out[table], column)
	}
	return out, rows.Err()
}

func (c *comparer) rows(ctx context.Context, table string, key []string, yield func(rowName, []byte) error) error {
	// The first column is the scope; a last one that is a time or number places the
	// row in time; what is between is the id.
	id, number := "''", "0"
	for _, column := range key[1:] {
		switch column {
		case "hour", "day", "month":
			number = "(extract(epoch from " + column + ") / 3600)::bigint"
		case "incarnation", "record_offset":
			number = column
		default:
			id = column
		}
	}
	rows, err := c.tx.QueryContext(ctx, fmt.Sprintf(`select %s, %s, %s, exact is not null, row from rows_%s.%s`, key[0], id, number, c.generation, table))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		name := rowName{table: table}
		var odd bool
		var raw sql.RawBytes
		if err := rows.Scan(&name.scope, &name.id, &name.number, &odd, &raw); err != nil {
			return err
		}
		if odd {
			return fmt.Errorf("%s has a key that is no plain text", name)
		}
		if err := yield(name, raw); err != nil {
			return err
		}
	}
	return rows.Err()
}

// held compares usage_held. Of months whose hours are in parts it has only what late facts brought back.
func (c *comparer) held(ctx context.Context, ref *reference, detached []projections.PartDigest, d *difference) error {
	want := ref.held()
	rows, err := c.tx.QueryContext(ctx, `
		select workspace, cluster, deployment, node, source, (extract(epoch from hour) / 3600)::bigint,
			(gpu_seconds * 1000)::bigint, (slice_seconds * 1000)::bigint, (measured_seconds * 1000)::bigint, (active_seconds * 1000000)::bigint
		from rows_`+c.generation+`.usage_held where gpu_seconds + slice_seconds > 0`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var n heldName
		var t heldTimes
		if err := rows.Scan(&n.workspace, &n.cluster, &n.deployment, &n.node, &n.source, &n.hour, &t.whole, &t.part, &t.known, &t.active); err != nil {
			return err
		}
		d.Rows++
		w, known := want[n]
		switch {
		case !known:
			d.Extra = append(d.Extra, fmt.Sprintf("usage_held %v", n))
		case w != t:
			d.Changed = append(d.Changed, fmt.Sprintf("usage_held %v: %v instead of %v", n, t, w))
		}
		delete(want, n)
	}
	gone := map[int64]bool{}
	for _, p := range detached {
		gone[p.Month] = true
	}
	for n := range want {
		if gone[projections.MonthStart(domain.Instant(n.hour)*domain.Hour)] {
			continue
		}
		d.Lost = append(d.Lost, fmt.Sprintf("usage_held %v", n))
	}
	return rows.Err()
}

// trace checks what the commits say of themselves: that each offset was folded
// in exactly one, and none under a claim older than one that had committed.
func (c *comparer) trace(ctx context.Context, ref *reference, d *difference) error {
	rows, err := c.tx.QueryContext(ctx, `
		select topic, partition, from_offset, epoch, to_offset, rival from crash.trace where generation = $1
		order by topic collate "C", partition, from_offset, number`, c.generation)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	next, epochs := map[domain.TopicPartition]int64{}, map[domain.TopicPartition]int64{}
	for rows.Next() {
		var tp domain.TopicPartition
		var from, epoch, to int64
		var who string
		if err := rows.Scan(&tp.Topic, &tp.Partition, &from, &epoch, &to, &who); err != nil {
			return err
		}
		d.Commits++
		switch {
		case from < next[tp]:
			d.Trace = append(d.Trace, fmt.Sprintf("%s folded %s from %d to %d, of which up to %d was folded already", who, tp, from, to, next[tp]))
		case from > next[tp]:
			d.Trace = append(d.Trace, fmt.Sprintf("nobody folded %s from %d to %d", tp, next[tp], from))
		}
		if epoch < epochs[tp] {
			d.Trace = append(d.Trace, fmt.Sprintf("%s folded %s from %d under claim %d, after claim %d", who, tp, from, epoch, epochs[tp]))
		}
		if epoch > epochs[tp] {
			d.Epochs++
		}
		next[tp], epochs[tp] = max(next[tp], to), max(epochs[tp], epoch)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, tp := range slices.SortedFunc(maps.Keys(ref.next), domain.TopicPartition.Compare) {
		if next[tp] != ref.next[tp] {
			d.Trace = append(d.Trace, fmt.Sprintf("%s is at %d, and commits end at %d", tp, ref.next[tp], next[tp]))
		}
	}
	return nil
}

// compareNow compares a generation at whatever position it has, taking the
// reference there. Servers that go away meanwhile are asked again.
func compareNow(ctx context.Context, rows *rowsOf, generation string, brokers []string, ref *reference) (d *difference, at domain.Position, err error) {
	for range 20 {
		c := &comparer{db: rows.db.DB, generation: generation, parts: rows.parts()}
		if at, err = c.position(ctx); err == nil {
			bound, stop := context.WithTimeout(ctx, 5*time.Minute)
			if err = ref.read(bound, brokers, at); err == nil {
				d, err = c.compare(ctx, ref)
			}
			stop()
		}
		c.end()
		if err == nil || ctx.Err() != nil || errors.Is(err, errReference) {
			return d, at, err
		}
		rest(ctx, time.Second)
	}
	return nil, nil, errors.Join(errors.New("rows and log could not be compared"), err)
}
