package postgres

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/lib/pq"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Comparison is the result of comparing two generations at one position.
type Comparison struct {
	A, B     Generation // when the comparison began
	Position domain.Position
	Tables   []TableComparison // tables in which either has rows, in order

	// RowByRow says that rows were compared. If the two generations have different fold versions,
	// their rows are not comparable, and only the numbers of rows are given.
	RowByRow    bool
	Differences []projections.Difference // the first hundred, by table and key
	DigestA     [32]byte                 // of the rows; set when RowByRow
	DigestB     [32]byte
}

// TableComparison is the result for one table.
type TableComparison struct {
	Table        string
	RowsA, RowsB int64
	Changed      int64 // in both, but different
	OnlyA, OnlyB int64
}

// Equal reports whether every row is the same in both.
func (c *Comparison) Equal() bool {
	for _, t := range c.Tables {
		if t.Changed+t.OnlyA+t.OnlyB > 0 {
			return false
		}
	}
	return c.RowByRow && c.DigestA == c.DigestB
}

// ErrBehind means that two generations cannot be compared at one position, because the first is
// behind the second. The caller folds the first generation further and tries again.
var ErrBehind = errors.New("generation is behind the one that it is compared with")

// shownDifferences bounds the list of differences in a comparison.
const shownDifferences = 100

// Compare compares the rows of two generations at the position that a has when Compare is called.
// It reads a as of that moment, calls fold, and reads b. fold MUST bring b to exactly that position
// and keep it there. Rows are merged in the order of their keys, so memory does not grow with their
// number. Neither generation changes.
func (db *DB) Compare(
	ctx context.Context,
	a, b string,
	fold func(context.Context, domain.Position) error,
) (*Comparison, error) {
	c, err := db.compare(ctx, a, b, fold)
	if err != nil {
		return nil, fmt.Errorf("compare generations %s and %s: %w", a, b, err)
	}
	return c, nil
}

func (db *DB) compare(
	ctx context.Context,
	a, b string,
	fold func(context.Context, domain.Position) error,
) (*Comparison, error) {
	ga, err := db.Generation(ctx, a)
	if err != nil {
		return nil, err
	}
	gb, err := db.Generation(ctx, b)
	if err != nil {
		return nil, err
	}
	c := &Comparison{A: *ga, B: *gb, RowByRow: ga.Method == projections.Method && gb.Method == projections.Method}
	if !c.RowByRow {
		return c, db.compareCounts(ctx, c, fold)
	}
	return c, db.Store(a, "").View(ctx, func(va projections.View) error {
		if err := c.meet(ctx, va.Position(), fold); err != nil {
			return err
		}
		return db.Store(b, "").View(ctx, func(vb projections.View) error {
			if at := vb.Position(); at.String() != c.Position.String() {
				return fmt.Errorf("the second generation is at %s, not at %s", at, c.Position)
			}
			return c.views(projections.Stored(va), projections.Stored(vb))
		})
	})
}

// meet has b folded up to the position of a.
func (c *Comparison) meet(ctx context.Context, at domain.Position, fold func(context.Context, domain.Position) error) error {
	if !at.Covers(c.B.Position()) {
		return fmt.Errorf("%w: %s is at %s, %s at %s", ErrBehind, c.A.Name, at, c.B.Name, c.B.Position())
	}
	c.Position = at.Clone()
	return fold(ctx, at.Clone())
}

// views compares row by row, and computes both digests.
func (c *Comparison) views(a, b projections.View) error {
	var digestA, digestB projections.Digester
	compared := map[projections.Table]TableComparison{}
	inOrder := slices.SortedFunc(slices.Values(projections.Tables()), func(x, y projections.Table) int {
		return projections.Key{Table: x}.Compare(projections.Key{Table: y})
	})
	for _, t := range inOrder {
		tc := TableComparison{Table: t.String()}
		err := merge(encoded(a, t), encoded(b, t), func(k projections.Key, x, y []byte) error {
			if x != nil {
				tc.RowsA++
				digestA.Add(k, x)
			}
			if y != nil {
				tc.RowsB++
				digestB.Add(k, y)
			}
			switch {
			case x == nil:
				tc.OnlyB++
			case y == nil:
				tc.OnlyA++
			case bytes.Equal(x, y):
				return nil
			default:
				tc.Changed++
			}
			if len(c.Differences) < shownDifferences {
				c.Differences = append(c.Differences, projections.Difference{Key: k, InA: x != nil, InB: y != nil})
			}
			return nil
		})
		if err != nil {
			return err
		}
		compared[t] = tc
	}
	for _, t := range projections.Tables() {
		if tc := compared[t]; tc.RowsA+tc.RowsB > 0 {
			c.Tables = append(c.Tables, tc)
		}
	}
	c.DigestA, c.DigestB = digestA.Sum(), digestB.Sum()
	return nil
}

// encodedRow is a row in the encoding that is digested, or the error of reading it.
type encodedRow struct {
	key   projections.Key
	bytes []byte
	err   error
}

// encoded returns the rows of a table by key. The bytes are valid until the next row.
func encoded(v projections.View, t projections.Table) iter.Seq[encodedRow] {
	return func(yield func(encodedRow) bool) {
		var buf []byte
		var last *projections.Key
		stop := errors.New("enough")
		err := v.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) (err error) {
			if last != nil && last.Compare(k) >= 0 {
				return fmt.Errorf("rows are out of order: %s comes after %s", k, *last)
			}
			last = &k
			if buf, err = projections.AppendRow(buf[:0], k, row); err != nil {
				return err
			}
			if !yield(encodedRow{key: k, bytes: buf}) {
				return stop
			}
			return nil
		})
		if err != nil && !errors.Is(err, stop) {
			yield(encodedRow{err: fmt.Errorf("read table %s: %w", t, err)})
		}
	}
}

// merge calls yield with each key that either side has, in order, and the row of each side (nil if
// it has none).
func merge(a, b iter.Seq[encodedRow], yield func(k projections.Key, x, y []byte) error) error {
	nextA, stopA := iter.Pull(a)
	defer stopA()
	nextB, stopB := iter.Pull(b)
	defer stopB()
	x, okA := nextA()
	y, okB := nextB()
	for okA || okB {
		if err := cmp.Or(x.err, y.err); err != nil {
			return err
		}
		var order int
		switch {
		case !okB:
			order = -1
		case !okA:
			order = 1
		default:
			order = x.key.Compare(y.key)
		}
		var err error
		switch {
		case order < 0:
			err = yield(x.key, x.bytes, nil)
		case order > 0:
			err = yield(y.key, nil, y.bytes)
		default:
			err = yield(x.key, x.bytes, y.bytes)
		}
		if err != nil {
			return err
		}
		if order <= 0 {
			x, okA = nextA()
		}
		if order >= 0 {
			y, okB = nextB()
		}
	}
	return nil
}

// compareCounts compares numbers of rows.
func (db *DB) compareCounts(ctx context.Context, c *Comparison, fold func(context.Context, domain.Position) error) error {
	at, rowsA, err := db.counts(ctx, c.A.Name)
	if err != nil {
		return err
	}
	if err := c.meet(ctx, at, fold); err != nil {
		return err
	}
	at, rowsB, err := db.counts(ctx, c.B.Name)
	if err != nil {
		return err
	}
	if at.String() != c.Position.String() {
		return fmt.Errorf("the second generation is at %s, not at %s", at, c.Position)
	}
	names := maps.Clone(rowsA)
	maps.Copy(names, rowsB) // either may have tables that the other lacks
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if rowsA[name]+rowsB[name] > 0 {
			c.Tables = append(c.Tables, TableComparison{Table: name, RowsA: rowsA[name], RowsB: rowsB[name]})
		}
	}
	return nil
}

// counts returns how many rows each table of a generation has, and its position at that moment. It
// works for any fold version, because it does not decode rows.
func (db *DB) counts(ctx context.Context, name string) (at domain.Position, rows map[string]int64, err error) {
	places, err := placed(ctx, db, name)
	if err != nil {
		return nil, nil, err
	}
	at, rows = domain.Position{}, map[string]int64{}
	for _, place := range slices.Sorted(maps.Keys(places)) {
		home, err := db.home(place)
		if err != nil {
			return nil, nil, err
		}
		some, n, err := countsIn(ctx, home, name)
		if err != nil {
			return nil, nil, within(place, err)
		}
		maps.Copy(at, some)
		for t := range n {
			rows[t] += n[t]
		}
	}
	return at, rows, nil
}

// countsIn is counts of what one database has.
func countsIn(ctx context.Context, db *sql.DB, name string) (at domain.Position, rows map[string]int64, err error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = tx.Rollback() }()
	found, err := tx.QueryContext(ctx, `
		select topic, partition, next_offset from quartermaster.partitions where generation = $1 and database = ''`, name)
	if err != nil {
		return nil, nil, err
	}
	parts, err := collect(found, func(rows *sql.Rows, p *Partition) error {
		return rows.Scan(&p.Topic, &p.Partition, &p.Next)
	})
	if err != nil {
		return nil, nil, err
	}
	g := Generation{Partitions: parts}
	tables, err := collectText(tx.QueryContext(ctx, `
		select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = $1 and c.relkind in ('r', 'p') and not c.relispartition order by 1`, schemaOf(name)))
	if err != nil {
		return nil, nil, err
	}
	rows = map[string]int64{}
	for _, t := range tables {
		var n int64
		err := tx.QueryRowContext(ctx,
			fmt.Sprintf(`select count(*) from %s.%s`, schemaOf(name), pq.QuoteIdentifier(t))).Scan(&n)
		if err != nil {
			return nil, nil, fmt.Errorf("count rows of table %s: %w", t, err)
		}
		rows[t] = n
	}
	return g.Position(), rows, nil
}
