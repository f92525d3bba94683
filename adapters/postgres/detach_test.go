package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// detach leaves the rows of a month to parts, as a command does.
func detach(t testing.TB, db *DB, generation string, month int64) error {
	t.Helper()
	ctx := t.Context()
	writes, err := db.MonthWrites(ctx, generation, month)
	if err != nil {
		t.Fatal(err)
	}
	parts := partsOf(t, db, generation, month)
	return db.Detach(ctx, generation, month, parts, writes)
}

// partsOf makes the parts of a month.
func partsOf(t testing.TB, db *DB, generation string, month int64) (parts []projections.PartDigest) {
	t.Helper()
	if err := db.ViewOf(t.Context(), generation, func(v projections.View) error {
		r := projections.NewPartReader(v)
		for _, tp := range domain.AllPartitions() {
			if tp.Topic != domain.TopicTelemetry {
				continue
			}
			d, err := r.Digest(tp)
			if err != nil {
				return err
			}
			for _, p := range d.Parts {
				if p.Month == month {
					parts = append(parts, p)
					if err := db.Parts.(*storetest.Parts).Put(r, p); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return parts
}

// detachAll leaves every month to parts.
func detachAll(t testing.TB, db *DB, generation string) (months []int64) {
	t.Helper()
	months, err := db.HourMonths(t.Context(), generation)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range months {
		if err := detach(t, db, generation, m); err != nil {
			t.Fatal(err)
		}
	}
	return months
}

// taken is claimed by a session that takes over from the one before.
func taken(t testing.TB, db *DB, generation string, tune func(*tuning)) *Store {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), `update quartermaster.partitions set owner = null where generation = $1`, generation); err != nil {
		t.Fatal(err)
	}
	return claimed(t, db, generation, tune)
}

// hourRows counts the rows of the tables that are split by hour.
func hourRows(t testing.TB, db *DB, generation string) (n int) {
	t.Helper()
	for _, at := range db.all {
		for _, name := range monthly() {
			var rows int
			if err := at.QueryRowContext(t.Context(), fmt.Sprintf("select count(*) from %s.%s", schemaOf(generation), name)).Scan(&rows); err != nil {
				t.Fatal(err)
			}
			n += rows
		}
	}
	return n
}

func digests(t testing.TB, l *storetest.Log, db *DB, generation string) (got, want [32]byte) {
	t.Helper()
	m, err := l.Fold(t.Context())
	if err == nil {
		want, _, err = m.Digest()
	}
	if err == nil {
		err = db.ViewOf(t.Context(), generation, func(v projections.View) (err error) {
			got, err = projections.DigestOf(v)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return got, want
}

// late are facts about the hours of a log that another source reports afterwards.
func late(l *storetest.Log, nodes, hours int) {
	more := storetest.Fleet(nodes, hours, storetest.Start)
	for tp := range more.End() {
		for _, rec := range more.Records(tp) {
			env := *more.Event(&rec)
			env.Source, env.Incarnation, env.Sequence = "sha256:late", 1, 0
			l.Append(env)
		}
	}
}

// Rows in parts count as if they were in the database: for views, for digests, and for folds of late
// facts. Detaching again takes over what late facts wrote.
func TestDetach(t *testing.T) { testDetach(t, opened(t)) }

func testDetach(t *testing.T, db *DB) {
	parts := &storetest.Parts{}
	db.Parts = parts
	g := generation(t, db)
	l := storetest.Fleet(2, 40*24, storetest.Start)
	s := taken(t, db, g, nil)
	if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	if hourRows(t, db, g) == 0 {
		t.Fatal("no rows are split by hour")
	}
	for round := range 2 {
		if months := detachAll(t, db, g); len(months) != 2-round { // late facts are of the first month
			t.Fatalf("detached %v", months)
		}
		if n := hourRows(t, db, g); n != 0 {
			t.Errorf("%d rows are in the database still", n)
		}
		if got, want := digests(t, l, db, g); got != want {
			t.Fatalf("round %d: digest %x, want %x", round, got, want)
		}
		late(l, round+1, 3)
		again := taken(t, db, g, nil)
		if err := l.Runner(again).CatchUp(t.Context(), l.End()); err != nil {
			t.Fatal(err)
		}
		if got, want := digests(t, l, db, g); got != want {
			t.Fatalf("round %d, late: digest %x, want %x", round, got, want)
		}
		if n := hourRows(t, db, g); n == 0 || n > 100 {
			t.Errorf("late facts wrote %d rows", n)
		}
	}
	// A generation that was folded from the log alone is equal, row by row.
	whole := generation(t, db)
	if err := l.Runner(taken(t, db, whole, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	detachAll(t, db, g)
	c, err := db.Compare(t.Context(), g, whole, func(context.Context, domain.Position) error { return nil })
	if err != nil || !c.Equal() {
		t.Errorf("%+v: %v", c, err)
	}
	db.Parts = nil
	if err := db.ViewOf(t.Context(), g, func(projections.View) error { return nil }); err == nil || !strings.Contains(err.Error(), "set parts in the configuration") {
		t.Errorf("read without parts: %v", err)
	}
	if err := l.Runner(taken(t, db, g, nil)).CatchUp(t.Context(), l.End()); err != nil {
		t.Errorf("nothing is to be folded: %v", err)
	}
	db.Parts = &storetest.Parts{}
	if err := db.ViewOf(t.Context(), g, func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableUsage}, func(projections.Key, projections.Row) error { return nil })
	}); err == nil || !strings.Contains(err.Error(), "there is no part") {
		t.Errorf("read without a part: %v", err)
	}
}

// Whatever is detached when, the rows are those of a store that never detached anything.
func TestDetachAnywhere(t *testing.T) { testDetachAnywhere(t, opened(t)) }

func testDetachAnywhere(t *testing.T, db *DB) {
	g := generation(t, db)
	long.Check(t, 10, 500, func(t2 *rapid.T) {
		db.Parts = &storetest.Parts{}
		emptied(t, db, g)
		l := rapid.SampledFrom([]func(*rapid.T) *storetest.Log{storetest.Draw, storetest.DrawUsage}).Draw(t2, "log")(t2)
		end := l.End()
		for range rapid.IntRange(1, 3).Draw(t2, "rounds") {
			s := taken(t, db, g, func(h *tuning) { h.keep = rapid.SampledFrom([]int{0, 1000}).Draw(t2, "keep") })
			to := domain.Position{}
			for _, tp := range domain.AllPartitions() {
				if n := end[tp]; n > 0 {
					to[tp] = rapid.Int64Range(0, n).Draw(t2, "to")
				}
			}
			if err := raise(t, db, g, to); err != nil {
				t2.Fatal(err)
			}
			if err := l.Runner(s).CatchUp(t.Context(), to); err != nil {
				t2.Fatal(err)
			}
			detachAll(t, db, g)
		}
		if err := l.Runner(taken(t, db, g, nil)).CatchUp(t.Context(), end); err != nil {
			t2.Fatal(err)
		}
		if got, want := digests(t, l, db, g); got != want {
			t2.Fatalf("digest %x, want %x", got, want)
		}
	})
}

// raise raises a position to that of the rows, because a runner never goes back.
func raise(t testing.TB, db *DB, generation string, to domain.Position) error {
	return db.ViewOf(t.Context(), generation, func(v projections.View) error {
		for tp, at := range v.Position() {
			if at > 0 {
				to[tp] = max(to[tp], at)
			}
		}
		return nil
	})
}

// A fold that began before a month was detached is fenced, because it may believe that rows do not
// exist.
func TestDetachFences(t *testing.T) { testDetachFences(t, opened(t)) }

func testDetachFences(t *testing.T, db *DB) {
	db.Parts = &storetest.Parts{}
	g := generation(t, db)
	l := storetest.Fleet(1, 24, storetest.Start)
	s := taken(t, db, g, nil)
	if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	detachAll(t, db, g)
	late(l, 1, 1)
	if err := l.Runner(s).CatchUp(t.Context(), l.End()); !errors.Is(err, projections.ErrFenced) {
		t.Fatalf("folded under an old claim: %v", err)
	}
	for _, tp := range domain.AllPartitions() {
		if ok, err := s.Claim(t.Context(), tp); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	if got, want := digests(t, l, db, g); got != want {
		t.Fatalf("digest %x, want %x", got, want)
	}
}

// Rows that changed since they were compared with their part are not detached.
func TestDetachChanged(t *testing.T) {
	db := opened(t)
	db.Parts = &storetest.Parts{}
	g := generation(t, db)
	l := storetest.Fleet(1, 24, storetest.Start)
	s := taken(t, db, g, nil)
	if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	month := projections.MonthStart(storetest.Start)
	writes, err := db.MonthWrites(t.Context(), g, month)
	if err != nil || len(writes) == 0 {
		t.Fatal(writes, err)
	}
	parts := partsOf(t, db, g, month)
	late(l, 1, 1)
	if err := l.Runner(s).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	n := hourRows(t, db, g)
	if err := db.Detach(t.Context(), g, month, parts, writes); !errors.Is(err, ErrMonthChanged) || hourRows(t, db, g) != n {
		t.Fatalf("%d rows of %d are left: %v", hourRows(t, db, g), n, err)
	}
	if list, err := db.Detached(t.Context(), g); err != nil || len(list) > 0 {
		t.Fatal(list, err)
	}
	// A reader keeps its rows until it ends.
	if err := db.ViewOf(t.Context(), g, func(v projections.View) error {
		if err := detach(t, db, g, month); !errors.Is(err, ErrMonthChanged) {
			t.Errorf("detached while it was read: %v", err)
		}
		rows := 0
		err := v.Scan(projections.Query{Table: projections.TableUsage}, func(projections.Key, projections.Row) error { rows++; return nil })
		if rows != 24 {
			t.Errorf("%d hours, want 24", rows)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.Runner(s).CatchUp(context.Background(), l.End()); err != nil {
		t.Errorf("a refused detach stops folds: %v", err)
	}
}
