package projections_test

import (
	"context"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// A source that was restarted 10,000 times has one row for its past beside the row of its present,
// and the same counts. Repeats of past incarnations cannot be compared, and are quarantined.
func TestPastIncarnationsAreOneRow(t *testing.T) {
	const restarts = 10_000
	const source = "node-reporter/c/n"
	l := storetest.NewLog()
	var tp domain.TopicPartition
	at := func(i int) uint64 { return uint64(1_700_000_000_000_000 + 7_000_000*i) }
	event := func(i int, seq uint64, at domain.Instant) domain.Envelope {
		return domain.Envelope{Source: source, Cluster: "c", Time: at, Sequence: seq,
			Event: &domain.GPUFaultObserved{Node: "n", GPU: storetest.GPU("c", "n", 0), Kind: domain.FaultXID, Code: uint32(1 + i%7), Fatal: true}}
	}
	add := func(life int, seq, previous uint64) int64 {
		env := event(life, seq, storetest.Start+domain.Instant(life)*storetest.Minute)
		env.Incarnation = at(life)
		if previous > 0 {
			env.PreviousIncarnation, env.PreviousSequence = at(life-1), previous
		}
		var offset int64
		tp, offset = l.AppendAt(env, env.Time)
		return offset
	}
	for i := range restarts + 1 {
		previous := uint64(2)
		if i == 0 {
			previous = 0
		}
		add(i, 1, previous)
		add(i, 2, 0)
	}
	for _, i := range []int{0, 1, 77, 5000, restarts - 1} {
		l.Repeat(tp, int64(2*i))
		l.Repeat(tp, int64(2*i+1))
	}
	forged := add(5, 3, 0) // of one that is not remembered
	add(restarts-3, 3, 0)  // beyond a known end: it counts, and so do its gaps
	add(restarts+1, 1, 3)  // the last one ended with 3, of which 2 arrived
	m := projections.NewMemory(domain.TopicSpecs())
	m.Strict = true
	r := l.Runner(m)
	if err := r.CatchUp(context.Background(), l.End()); err != nil {
		t.Fatal(err)
	}
	if c := r.Progress().Counts; c.Repeats != 0 || c.Uncompared != 11 || c.Quarantined != 11 {
		t.Errorf("%+v", c)
	}
	rows := func() (n int, past *projections.Stream, size int) {
		t.Helper()
		if err := m.View(context.Background(), func(v projections.View) error {
			return v.Scan(projections.Query{Table: projections.TableStreams}, func(k projections.Key, row projections.Row) error {
				n++
				if s := row.(*projections.Stream); s.Past != nil {
					past = s
					b, err := projections.EncodeRow(s)
					size = len(b)
					return err
				}
				return nil
			})
		}); err != nil {
			t.Fatal(err)
		}
		return n, past, size
	}
	n, past, size := rows()
	// Its present incarnation, the one before with a gap, and the one that continued beyond its
	// end.
	if n != 4 || past == nil || past.Past.Incarnations != restarts-1 || size > 2500 {
		t.Fatalf("%d rows, past %+v of %d bytes", n, past, size)
	}
	if err := m.View(context.Background(), func(v projections.View) error {
		stats, err := registry.NewLogStats(v)
		if err != nil {
			return err
		}
		if s := stats.Sources[0]; s.Source != source || s.Incarnations != restarts+2 || s.Streams != restarts+2 || s.Events != 2*(restarts+1)+2 || s.Missing != 1 {
			t.Errorf("%+v", s)
		}
		q, err := registry.Quarantine(v)
		if err == nil && (len(q.Entries) != 11 || q.Entries[10].Offset != forged || q.Entries[0].Kind != projections.KindUncertain || q.Entries[10].Kind != projections.KindUncertain) {
			t.Errorf("in quarantine: %+v", q.Entries)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	add(restarts, 3, 0) // fills the gap
	if err := r.CatchUp(context.Background(), l.End()); err != nil {
		t.Fatal(err)
	}
	if n, past, _ := rows(); n != 3 || past.Past.Incarnations != restarts || past.Mark != 2*(restarts-1)+3 {
		t.Errorf("once everything arrived: %d rows, %+v", n, past)
	}
}
