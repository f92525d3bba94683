package projections_test

import (
	"bytes"
	"context"
	"math"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// plain exposes only the interface of a view, as a database does.
type plain struct{ projections.View }

// Tallies implements the view of [projections.TalliesOf].
func (v plain) Tallies() ([]projections.Tally, error) { return projections.TalliesOf(v.View) }

// A snapshot has the same bytes, and rows have the same digest, whether they come from a store that
// knows its partitions and keeps rows encoded, or from a plain view, or from a snapshot that was
// read.
func TestSnapshotsOfAnyView(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		draw := rapid.SampledFrom([]func(*rapid.T) *storetest.Log{storetest.Draw, storetest.DrawUsage}).Draw(t, "log")
		l := draw(t)
		if rapid.Bool().Draw(t, "every type") {
			l.Append(storetest.Examples()...)
		}
		if rapid.Bool().Draw(t, "broken") {
			tp := rapid.SampledFrom(domain.AllPartitions()).Draw(t, "partition")
			l.AppendRaw(tp, []byte("key"), []byte("broken"), storetest.Start)
		}
		m := storetest.Fold(t, l) // strict: everything that can be sealed is sealed
		var store, view bytes.Buffer
		sum, _, err := m.WriteSnapshot(&store, "test")
		if err != nil {
			t.Fatal(err)
		}
		storetest.Look(t, m, func(v projections.View) error {
			if got, err := projections.WriteSnapshot(&view, plain{v}, "test"); err != nil || got != sum {
				t.Errorf("the digest of the view is %x: %v; want %x", got, err, sum)
			}
			got, err := projections.DigestOf(plain{v})
			if got != sum || storetest.DigestOf(t, m) != sum {
				t.Errorf("digests are %x and %x, want %x", got, storetest.DigestOf(t, m), sum)
			}
			return err
		})
		if !bytes.Equal(store.Bytes(), view.Bytes()) {
			t.Errorf("%d bytes of the store and %d of the view differ", store.Len(), view.Len())
		}
		again := reopened(t, store.Bytes(), nil)
		view.Reset()
		storetest.Look(t, again, func(v projections.View) error {
			_, err := projections.WriteSnapshot(&view, plain{v}, "test")
			return err
		})
		if !bytes.Equal(store.Bytes(), view.Bytes()) {
			t.Error("what was read again is written otherwise")
		}
	})
}

// A stream whose incarnation exceeds the signed range survives a snapshot like any other: its
// events are not counted again.
func TestSnapshotOfAnyIncarnation(t *testing.T) {
	l := storetest.NewLog()
	env := storetest.Examples()[0]
	env.Incarnation = math.MaxUint64
	l.Append(env)
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	sum, at, err := m.WriteSnapshot(&b, "test")
	if err != nil {
		t.Fatal(err)
	}
	for tp := range at {
		if at[tp] > 0 {
			l.Repeat(tp, 0)
		}
	}
	again := reopened(t, b.Bytes(), nil)
	r := l.Runner(again)
	if err := r.CatchUp(context.Background(), l.End()); err != nil {
		t.Fatal(err)
	}
	if n := r.Progress().Repeats; n != 1 {
		t.Errorf("%d repeats are known as such, want 1", n)
	}
	if got, _, err := again.Digest(); err != nil || got != sum {
		t.Errorf("after a repeat the digest is %x, want %x: %v", got, sum, err)
	}
}
