package projections_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// Whatever is in parts, a view gives the rows that a store gives which holds them all.
func TestOverParts(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		draw := rapid.SampledFrom([]func(*rapid.T) *storetest.Log{storetest.Draw, storetest.DrawUsage, storetest.DrawDemand}).Draw(t, "log")
		l := draw(t)
		again := ofDatabase(t, storetest.Fold(t, l))
		l.Append(storetest.Examples()...)
		whole := storetest.Fold(t, l)
		if err := l.Runner(again).CatchUp(context.Background(), l.End()); err != nil {
			t.Fatal(err)
		}
		over := storetest.NewDetached()
		if err := l.Runner(over).CatchUp(context.Background(), l.End()); err != nil {
			t.Fatal(err)
		}
		for _, tp := range domain.AllPartitions() {
			if rapid.Bool().Draw(t, "left") {
				if err := over.Detach(tp); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, m := range []*projections.Memory{over.Memory, again} {
			storetest.Look(t, whole, func(want projections.View) error {
				storetest.Look(t, m, func(got projections.View) error {
					for range 20 {
						q := query(t, want)
						a, err := rowsOf(want, q)
						b, errB := rowsOf(got, q)
						if err = errors.Join(err, errB); err != nil {
							return err
						}
						if !slices.Equal(a, b) {
							t.Fatalf("%+v: %d rows, want %d\n%q\n%q", q, len(b), len(a), b, a)
						}
					}
					return nil
				})
				return nil
			})
			if got, want := storetest.DigestOf(t, m), storetest.DigestOf(t, whole); got != want {
				t.Errorf("digest %x, want %x", got, want)
			}
		}
	})
}

// ofDatabase returns a store from a snapshot of a database that left some months to parts, and, unlike
// a memory store, kept no row of them.
func ofDatabase(t *rapid.T, m *projections.Memory) *projections.Memory {
	source := &storetest.Parts{}
	var snapshot bytes.Buffer
	storetest.Look(t, m, func(v projections.View) error {
		r, left := projections.NewPartReader(v), map[projections.PartKey]projections.PartDigest{}
		for _, tp := range domain.AllPartitions() {
			d, err := r.Digest(tp)
			if err != nil {
				return err
			}
			for _, p := range d.Parts {
				if rapid.Bool().Draw(t, "left") {
					left[p.PartKey] = p
					if err := source.Put(r, p); err != nil {
						return err
					}
				}
			}
		}
		over := projections.Over(without{plain{projections.Stored(v)}, left}, source, slices.Collect(maps.Values(left)))
		_, err := projections.WriteSnapshot(&snapshot, over, "test")
		return err
	})
	return reopened(t, snapshot.Bytes(), source)
}

// without is a view that lacks the rows of some parts. It can be scanned, but not for last rows.
type without struct {
	plain
	left map[projections.PartKey]projections.PartDigest
}

func (v without) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	return v.plain.Scan(q, func(k projections.Key, row projections.Row) error {
		if p, ok := projections.PartOf(k); ok {
			if _, ok = v.left[p]; ok {
				return nil
			}
		}
		return yield(k, row)
	})
}

// query draws a query that may select rows.
func query(t *rapid.T, v projections.View) (q projections.Query) {
	q.Table = rapid.SampledFrom(projections.Tables()).Draw(t, "table")
	q.Last = rapid.Bool().Draw(t, "last")
	var keys []projections.Key
	if err := v.Scan(projections.Query{Table: q.Table}, func(k projections.Key, _ projections.Row) error {
		keys = append(keys, k)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(keys) == 0 {
		return q
	}
	k := rapid.SampledFrom(keys).Draw(t, "key")
	if rapid.Bool().Draw(t, "scoped") {
		q.Scope = k.Scope
	}
	if rapid.Bool().Draw(t, "of one") {
		q.ID = k.ID
	}
	if k.Hour > 0 && rapid.Bool().Draw(t, "from") {
		q.From = k.Hour
	}
	if k.Hour > 0 && rapid.Bool().Draw(t, "to") {
		q.To = k.Hour + rapid.Int64Range(1, 100).Draw(t, "hours")
	}
	return q
}

// rowsOf returns the rows that a query selects, each also by Get, and the scopes, as text.
func rowsOf(v projections.View, q projections.Query) (texts []string, err error) {
	scopes, err := v.Scopes(q.Table)
	if err != nil {
		return nil, err
	}
	texts = append(texts, fmt.Sprint(scopes))
	err = v.Scan(q, func(k projections.Key, row projections.Row) error {
		got, err := v.Get(k)
		if err != nil {
			return err
		}
		one, err := projections.AppendRow(nil, k, row)
		if err != nil {
			return err
		}
		two, err := projections.AppendRow(nil, k, got)
		if !bytes.Equal(one, two) {
			return fmt.Errorf("%s: scanned and got rows differ: %w", k, err)
		}
		texts = append(texts, string(one))
		return err
	})
	return texts, err
}

// parted is a log of two months, and a store that left both to parts.
func parted(t *testing.T) (*storetest.Log, storetest.Detached) {
	t.Helper()
	l := storetest.Fleet(2, 40*24, storetest.Start)
	d := storetest.NewDetached()
	if err := l.Runner(d).CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	for tp := range l.End() {
		if err := d.Detach(tp); err != nil {
			t.Fatal(err)
		}
	}
	clear(d.Parts.Scans)
	return l, d
}

// A question about a month reads the parts of that month, and no other.
func TestOneMonthReadsItsParts(t *testing.T) {
	_, d := parted(t)
	from := projections.HourOf(storetest.Start)
	if err := d.View(t.Context(), func(v projections.View) error {
		n := 0
		if err := v.Scan(projections.Query{Table: projections.TableUsage, From: from, To: from + 24}, func(projections.Key, projections.Row) error {
			n++
			return nil
		}); err != nil || n != 48 {
			t.Errorf("%d hours, want 48: %v", n, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for p := range d.Parts.Scans {
		if want := projections.MonthStart(storetest.Start); p.Month != want {
			t.Errorf("%s was read", p)
		}
	}
	if len(d.Parts.Scans) == 0 {
		t.Error("no part was read")
	}
}

// The digest of rows in parts is known, and reads none of them.
func TestDigestReadsNoParts(t *testing.T) {
	l, d := parted(t)
	want, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, _, err := d.Digest()
	b, _, errB := want.Digest()
	if a != b || err != nil || errB != nil {
		t.Errorf("digest %x, want %x: %v %v", a, b, err, errB)
	}
	var snapshot bytes.Buffer
	if _, _, err := d.WriteSnapshot(&snapshot, "test"); err != nil {
		t.Fatal(err)
	}
	if again, _, err := reopened(t, snapshot.Bytes(), d.Parts).Digest(); again != b || err != nil {
		t.Errorf("digest of a snapshot %x, want %x: %v", again, b, err)
	}
	if len(d.Parts.Scans) > 0 {
		t.Errorf("%v were read", d.Parts.Scans)
	}
}

// Questions about the last report of each node read no part. Those about an earlier time read the
// part of that time.
func TestLastReportIsInMemory(t *testing.T) {
	l, d := parted(t)
	whole, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	june := projections.MonthStart(storetest.Start + 31*domain.Day)
	for to, months := range map[int64]int{0: 0, june + 24*40: 0, june + 5: 1, june: 1, june - 24*20: 2} {
		clear(d.Parts.Scans)
		var got, want []projections.Key
		q := projections.Query{Table: projections.TableUsage, To: to, Last: true}
		for _, of := range []struct {
			m    *projections.Memory
			keys *[]projections.Key
		}{{d.Memory, &got}, {whole, &want}} {
			if err := of.m.View(t.Context(), func(v projections.View) error {
				return v.Scan(q, func(k projections.Key, _ projections.Row) error {
					*of.keys = append(*of.keys, k)
					return nil
				})
			}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) || len(got) != 2 {
			t.Errorf("before %d: %v, want %v", to, got, want)
		}
		read := map[int64]bool{}
		for p := range d.Parts.Scans {
			read[p.Month] = true
		}
		if len(read) > months {
			t.Errorf("before %d: %v were read", to, d.Parts.Scans)
		}
	}
}

// Rows are left to parts only as they were when the parts were made.
func TestDetachAtItsOffset(t *testing.T) {
	l := storetest.Fleet(1, 24, storetest.Start)
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for tp, next := range l.End() {
		before := m.Own(tp)
		if next > 0 && (m.Detach(tp, next-1, nil) || !m.Detach(tp, next, nil) || m.Own(tp) != before) {
			t.Errorf("%s is at %d: rows were left to parts of another offset, or lost", tp, next)
		}
	}
}

// A fold that asks for many rows of a past month takes the month back into memory: it does not read
// the part for each.
func TestImportOfAPastMonth(t *testing.T) {
	l, d := parted(t)
	before := l.End()
	more := storetest.Fleet(3, 40*24, storetest.Start)
	for tp := range more.End() {
		for _, rec := range more.Records(tp) {
			env := *more.Event(&rec)
			env.Source, env.Incarnation, env.Sequence = "sha256:late", 1, 0
			l.Append(env)
		}
	}
	for tp := range l.End() {
		if before[tp] == l.End()[tp] {
			continue
		}
		for {
			n, err := storetest.Step(t.Context(), l, d.Memory, tp, 50)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
		}
	}
	want, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, _, err := d.Digest()
	b, _, errB := want.Digest()
	if a != b || err != nil || errB != nil {
		t.Errorf("digest %x, want %x: %v %v", a, b, err, errB)
	}
	for p, n := range d.Parts.Scans {
		if n > 300 {
			t.Errorf("%s was read %d times", p, n)
		}
	}
}

// A snapshot over parts is of no use without them, and says which one lacks.
func TestSnapshotWithoutItsParts(t *testing.T) {
	_, d := parted(t)
	var b bytes.Buffer
	sum, _, err := d.WriteSnapshot(&b, "test")
	if err != nil {
		t.Fatal(err)
	}
	info, err := projections.ReadSnapshotInfo(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || len(info.Parts) < 2 || info.Digest != sum {
		t.Fatalf("%+v: %v", info, err)
	}
	if _, err := projections.CheckSnapshot(bytes.NewReader(b.Bytes()), int64(b.Len())); err != nil {
		t.Error(err)
	}
	for _, source := range []projections.PartSource{nil, &storetest.Parts{}} {
		m := projections.NewMemory(domain.TopicSpecs())
		m.Source = source
		_, err := m.ReadSnapshot(bytes.NewReader(b.Bytes()), int64(b.Len()), "test")
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(info.Parts[0].PartKey.String())) {
			t.Errorf("without parts: %v", err)
		}
	}
	again := reopened(t, b.Bytes(), d.Parts)
	if got, _, err := again.Digest(); err != nil || got != sum {
		t.Errorf("read again: %x, want %x: %v", got, sum, err)
	}
}
