package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// rebuilt returns a database whose active generation "a" has folded a log, and
// the store of a generation "b" that has folded none of it.
func rebuilt(t *testing.T, l *storetest.Log, method string) (*DB, *Store) {
	t.Helper()
	db, _ := migrated(t)
	s := join(t, db, "folder")
	if err := l.Runner(claimAll(t, s, "a")).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	if err := db.Create(t.Context(), "b", method); err != nil {
		t.Fatal(err)
	}
	return db, claimAll(t, s, "b")
}

func TestCompare(t *testing.T) {
	t.Parallel()
	l := storetest.Fleet(3, 40, storetest.Start)
	l.Append(storetest.Examples()...)
	db, b := rebuilt(t, l, projections.Method)
	ctx := t.Context()
	fold := func(ctx context.Context, to domain.Position) error { return l.Runner(b).CatchUp(ctx, to) }
	nothing := func(context.Context, domain.Position) error { return nil }

	if _, err := db.Compare(ctx, "a", "b", nothing); err == nil {
		t.Error("compared at two positions")
	}
	c, err := db.Compare(ctx, "a", "b", fold)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.Fold(ctx)
	if err != nil {
		t.Fatal(err)
	}
	digest, _, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if !c.Equal() || !c.RowByRow || c.DigestA != digest || c.DigestB != digest || c.Position.String() != l.End().String() || len(c.Differences) > 0 {
		t.Errorf("equal generations: %+v", c)
	}
	var rows int64
	for _, t := range c.Tables {
		rows += t.RowsA
	}
	if rows == 0 {
		t.Error("no rows were compared")
	}

	// One row changed, one missing and one extra, in tables of each kind.
	for _, q := range []string{
		`update rows_b.streams set row = (select row from rows_b.streams order by row desc limit 1) where row = (select row from rows_b.streams order by row limit 1)`,
		`delete from rows_b.usage_hours where (cluster, node, hour) = (select cluster, node, hour from rows_b.usage_hours order by 1, 2, 3 limit 1)`,
		`insert into rows_b.nodes (cluster, node, row, facts) select cluster, node || '~', row, facts from rows_b.nodes order by 1, 2 limit 1`,
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if c, err = db.Compare(ctx, "a", "b", nothing); err != nil {
		t.Fatal(err)
	}
	got := map[string]TableComparison{}
	for _, t := range c.Tables {
		got[t.Table] = t
	}
	if c.Equal() || c.DigestA != digest || c.DigestB == digest || len(c.Differences) != 3 ||
		got["streams"].Changed != 1 || got["usage_hours"].OnlyA != 1 || got["nodes"].OnlyB != 1 {
		t.Errorf("three differences: %v, %+v", c.Differences, got)
	}
	for _, d := range c.Differences {
		want := map[projections.Table][2]bool{projections.TableStreams: {true, true}, projections.TableUsage: {true, false}, projections.TableNodes: {false, true}}[d.Key.Table]
		if want != [2]bool{d.InA, d.InB} {
			t.Errorf("%s: in a %t, in b %t", d.Key, d.InA, d.InB)
		}
	}

	// All differences are counted, but only a hundred are listed.
	if _, err := db.Exec(`update rows_b.usage_hours set row = (select row from rows_b.usage_hours limit 1)`); err != nil {
		t.Fatal(err)
	}
	if c, err = db.Compare(ctx, "a", "b", nothing); err != nil || len(c.Differences) != shownDifferences {
		t.Errorf("%d differences are listed, %v", len(c.Differences), err)
	}

	// The first generation must not be behind the second.
	if _, err := db.Exec(`update quartermaster.partitions set next_offset = next_offset + 1 where generation = 'b' and topic = 'qm.fleet' and partition = 0`); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Compare(ctx, "a", "b", nothing); !errors.Is(err, ErrBehind) {
		t.Errorf("b is ahead: %v", err)
	}
}

// The first generation is folded further during the comparison. Its position at the beginning
// counts.
func TestCompareWhileFolded(t *testing.T) {
	t.Parallel()
	l := storetest.Fleet(2, 3, storetest.Start)
	db, _ := migrated(t)
	ctx := t.Context()
	if err := db.Create(ctx, "b", projections.Method); err != nil {
		t.Fatal(err)
	}
	s := join(t, db, "folder")
	a, b := claimAll(t, s, "a"), claimAll(t, s, "b")
	if err := l.Runner(a).CatchUp(ctx, l.End()); err != nil {
		t.Fatal(err)
	}
	was := l.End()
	c, err := db.Compare(ctx, "a", "b", func(ctx context.Context, to domain.Position) error {
		l.Append(storetest.Examples()...)
		if err := l.Runner(a).CatchUp(ctx, l.End()); err != nil {
			return err
		}
		return l.Runner(b).CatchUp(ctx, to)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Equal() || c.Position.String() != was.String() {
		t.Errorf("compared at %s, not at %s: %v", c.Position, was, c.Differences)
	}
}

// Rows of different methods are counted, not compared.
func TestCompareMethods(t *testing.T) {
	t.Parallel()
	l := storetest.Fleet(2, 3, storetest.Start)
	db, b := rebuilt(t, l, "another method")
	ctx := t.Context()
	c, err := db.Compare(ctx, "a", "b", func(ctx context.Context, to domain.Position) error { return l.Runner(b).CatchUp(ctx, to) })
	if err != nil {
		t.Fatal(err)
	}
	if c.RowByRow || c.Equal() || len(c.Tables) == 0 {
		t.Errorf("compared %+v", c)
	}
	for _, tc := range c.Tables {
		if tc.RowsA != tc.RowsB || tc.RowsA == 0 {
			t.Errorf("%+v", tc)
		}
	}
}

func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		side := func(name string) map[int64]byte {
			return rapid.MapOfN(rapid.Int64Range(0, 12), rapid.Byte(), 0, 12).Draw(t, name)
		}
		a, b := side("a"), side("b")
		rows := func(m map[int64]byte) func(func(encodedRow) bool) {
			return func(yield func(encodedRow) bool) {
				for h := range int64(13) {
					if v, ok := m[h]; ok && !yield(encodedRow{key: projections.Key{Table: projections.TableUsage, Hour: h}, bytes: []byte{v}}) {
						return
					}
				}
			}
		}
		var got, want []string
		if err := merge(rows(a), rows(b), func(k projections.Key, x, y []byte) error {
			got = append(got, fmt.Sprintf("%d %v %v", k.Hour, x, y))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for h := range int64(13) {
			var x, y []byte
			if v, ok := a[h]; ok {
				x = []byte{v}
			}
			if v, ok := b[h]; ok {
				y = []byte{v}
			}
			if x != nil || y != nil {
				want = append(want, fmt.Sprintf("%d %v %v", h, x, y))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("merged to %v, want %v", got, want)
		}
	})
	broken := errors.New("broken")
	err := merge(func(yield func(encodedRow) bool) { yield(encodedRow{err: broken}) }, func(func(encodedRow) bool) {}, nil)
	if !errors.Is(err, broken) {
		t.Errorf("rows that cannot be read: %v", err)
	}
}
