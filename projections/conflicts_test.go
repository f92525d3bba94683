package projections_test

import (
	"context"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// A forged record does not suppress the true one with its sequence: the true one is quarantined
// beside the record that came first, the conflict is reported, and repeats of either change
// nothing.
func TestStreamConflict(t *testing.T) {
	l := storetest.NewLog()
	fault := func(seq uint64, xid uint32) domain.Envelope {
		return domain.Envelope{Source: "node-reporter/c/n", Cluster: "c", Time: storetest.Start + domain.Instant(seq), Sequence: seq,
			Event: &domain.GPUFaultObserved{Node: "n", GPU: storetest.GPU("c", "n", 0), Kind: domain.FaultXID, Code: xid, Fatal: true}}
	}
	tp, _ := l.AppendAt(fault(1, 79), storetest.Start)
	l.Append(fault(2, 13)) // forged
	_, at := l.AppendAt(fault(2, 79), storetest.Start+storetest.Minute)
	l.Repeat(tp, 0)
	l.Repeat(tp, 1)
	l.Repeat(tp, 2)
	m, err := l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	read := func(m *projections.Memory, read func(projections.View) error) {
		t.Helper()
		if err := m.View(context.Background(), read); err != nil {
			t.Fatal(err)
		}
	}
	read(m, func(v projections.View) error {
		q, err := registry.Quarantine(v)
		if err != nil {
			return err
		}
		if len(q.Entries) != 1 {
			t.Fatalf("in quarantine: %+v", q.Entries)
		}
		if e := q.Entries[0]; e.Offset != at || e.Kind != projections.KindConflict || e.Conflicts == nil || *e.Conflicts != 1 || e.Incarnation != 1 || e.Sequence != 2 || !strings.Contains(e.Reason, "offset 1") {
			t.Errorf("in quarantine: %+v", e)
		}
		inv, err := inventory.New(v, inventory.Filter{At: storetest.Start + domain.Hour})
		if err != nil {
			return err
		}
		found := ""
		for _, e := range inv.Exceptions {
			if e.Kind == inventory.StreamConflict {
				found = e.Subject + ": " + e.Detail
			}
		}
		if !strings.Contains(found, "node-reporter/c/n#1: 1 records") || !strings.Contains(found, "@2, of sequence 2, which qm.hardware/") {
			t.Errorf("exception %q of %v", found, inv.Exceptions)
		}
		if inv.Incomplete != 1 {
			t.Errorf("the report calls %d events incomplete", inv.Incomplete)
		}
		events, err := inventory.UntoldConflicts(v, "platform")
		if err != nil {
			return err
		}
		if len(events) != 1 {
			t.Fatalf("%d events tell of it", len(events))
		}
		want := domain.StreamConflictObserved{Entity: "platform", Topic: tp.Topic, Partition: uint32(tp.Partition), First: 1, Offset: at, Source: "node-reporter/c/n", Incarnation: 1, Sequence: 2}
		if e := events[0]; *e.Event.(*domain.StreamConflictObserved) != want || e.Time != storetest.Start+storetest.Minute || e.Cluster != "c" || domain.Validate(&e) != nil {
			t.Errorf("told %+v", e)
		}
		l.Append(events...)
		return nil
	})
	m, err = l.Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	read(m, func(v projections.View) error {
		if events, err := inventory.UntoldConflicts(v, "platform"); err != nil || len(events) != 0 {
			t.Errorf("told twice: %v, %v", events, err)
		}
		return nil
	})
}

// Old records cannot be compared. A sample is dropped as a repeat, and its stream reports the
// count. The same of an import is not reported. A stream's row keeps its size.
func TestOldSamplesAreCounted(t *testing.T) {
	l := storetest.NewLog()
	var tp domain.TopicPartition
	sample := func(source string, at domain.Instant) domain.Envelope {
		return domain.Envelope{Source: source, Cluster: "c", Time: at,
			Event: storetest.Sample("n", domain.Interval{From: at - storetest.Minute, To: at}, storetest.Seen{ID: storetest.GPU("c", "n", 0)})}
	}
	const source = "node-reporter/c/n"
	for i := range domain.Instant(1000) {
		tp, _ = l.AppendAt(sample(source, storetest.Start+i*storetest.Minute), storetest.Start+i*storetest.Minute)
	}
	other := sample(source, storetest.Start)
	other.Sequence = 950
	l.Append(other)
	other.Sequence = 3
	l.Append(other)
	l.Repeat(tp, 998)
	begin := int64(len(l.Records(tp)))
	for i := range domain.Instant(300) {
		l.Append(sample("sha256:12/usage.v1", storetest.Start+i*storetest.Minute))
	}
	for i := range int64(300) { // the same file again
		l.Repeat(tp, begin+i)
	}
	m := projections.NewMemory(domain.TopicSpecs())
	m.Strict = true
	r := l.Runner(m)
	if err := r.CatchUp(context.Background(), l.End()); err != nil {
		t.Fatal(err)
	}
	if c := r.Progress().Counts; c != (projections.Counts{Folded: 1300, Repeats: 302, Quarantined: 1, Uncompared: 1, Conflicts: 1}) {
		t.Errorf("%+v", c)
	}
	err := m.View(context.Background(), func(v projections.View) error {
		row, err := v.Get(projections.StreamKey(tp, source, 1))
		if err != nil {
			return err
		}
		raw, err := projections.EncodeRow(row)
		if err != nil {
			return err
		}
		if len(raw) > 1000 {
			t.Errorf("the row has %d bytes", len(raw))
		}
		again, err := projections.DecodeRow(projections.TableStreams, raw)
		if err != nil {
			return err
		}
		if b, err := projections.EncodeRow(again); err != nil || string(b) != string(raw) {
			t.Errorf("written and read it is %x, was %x: %v", b, raw, err)
		}
		if got := notCompared(t, v); len(got) != 1 || !strings.Contains(got[0], tp.String()+" node-reporter/c/n#1: ") || !strings.Contains(got[0], "1 were dropped") {
			t.Errorf("exceptions %q", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// notCompared returns an inventory's exceptions about events that could not be compared.
func notCompared(t *testing.T, v projections.View) (out []string) {
	t.Helper()
	inv, err := inventory.New(v, inventory.Filter{At: storetest.Start + domain.Hour, Cluster: "c"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range inv.Exceptions {
		if e.Kind == inventory.StreamNotCompared {
			out = append(out, e.Subject+": "+e.Detail)
		}
	}
	return out
}

// No flood of forged sequences and no forged end of an incarnation hides a true fault: it counts,
// or it is in quarantine and an exception names its stream. True resends are not reported.
func TestFaultsSurviveFloods(t *testing.T) {
	const source = "node-reporter/c/n"
	fault := func(life, seq uint64, xid uint32) domain.Envelope {
		gpu := storetest.GPU("c", "n", int(seq)%8) // otherwise equal faults of a day are merged
		return domain.Envelope{Source: source, Cluster: "c", Time: storetest.Start + domain.Instant(seq), Incarnation: life, Sequence: seq,
			Event: &domain.GPUFaultObserved{Node: "n", GPU: gpu, Kind: domain.FaultXID, Code: xid, Fatal: xid == 79}}
	}
	tests := map[string]struct {
		forge func(*storetest.Log)
		life  uint64
		from  uint64 // first of five true faults
		named string
	}{
		"none":                {func(*storetest.Log) {}, 5, 11, ""},
		"flood":               {func(l *storetest.Log) { flood(l, fault, 5, 10, 310) }, 5, 11, "node-reporter/c/n#5: "},
		"flood of one number": {func(l *storetest.Log) { sameNumber(l, fault, 5, 11, 300) }, 5, 11, ""},
		"end and flood": {func(l *storetest.Log) {
			flood(l, fault, 5, 11, 20)
			end := fault(6, 1, 13)
			end.PreviousIncarnation, end.PreviousSequence = 5, 19
			l.Append(end)
		}, 5, 11, "node-reporter/c/n#5: "},
		"chain of lives": {func(l *storetest.Log) {
			flood(l, fault, 6, 1, 1001)
			for life := uint64(7); life < 207; life++ {
				e := fault(life, 1, 13)
				e.PreviousIncarnation, e.PreviousSequence = life-1, 1
				if life == 7 {
					e.PreviousSequence = 1000
				}
				l.Append(e)
			}
		}, 5, 11, "node-reporter/c/n#5: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := storetest.NewLog()
			var tp domain.TopicPartition
			for seq := uint64(1); seq <= 10; seq++ {
				tp, _ = l.AppendAt(fault(5, seq, 13), storetest.Start+storetest.Minute)
			}
			if name == "chain of lives" {
				end := fault(6, 1, 13)
				end.PreviousIncarnation, end.PreviousSequence = 5, 10
				l.Append(end)
			}
			tt.forge(l)
			var at []int64
			for i := range uint64(5) {
				_, offset := l.AppendAt(fault(tt.life, tt.from+i, 79), storetest.Start+domain.Hour)
				at = append(at, offset)
			}
			m, err := l.Fold(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if err := m.View(context.Background(), func(v projections.View) error {
				kept := map[int64]bool{}
				list, err := registry.Quarantine(v)
				if err != nil {
					return err
				}
				for _, e := range list.Entries {
					kept[e.Offset] = true
				}
				if err := v.Scan(projections.Query{Table: projections.TableFaults}, func(_ projections.Key, row projections.Row) error {
					for _, f := range row.(*projections.History).Versions {
						if f.Event.(*domain.GPUFaultObserved).Code == 79 {
							kept[at[f.Order.Sequence-tt.from]] = true
						}
					}
					return nil
				}); err != nil {
					return err
				}
				for i, offset := range at {
					if !kept[offset] {
						t.Errorf("the true fault %d vanished", i)
					}
				}
				got := notCompared(t, v)
				if tt.named == "" && len(got) > 0 || tt.named != "" && (len(got) != 1 || !strings.Contains(got[0], tp.String()+" "+tt.named)) {
					t.Errorf("exceptions %q, want one of %q", got, tt.named)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// flood appends faults with the sequences from first to before end.
func flood(l *storetest.Log, fault func(life, seq uint64, xid uint32) domain.Envelope, life, first, end uint64) {
	for seq := first; seq < end; seq++ {
		l.Append(fault(life, seq, 13))
	}
}

// sameNumber appends n different faults of one sequence.
func sameNumber(l *storetest.Log, fault func(life, seq uint64, xid uint32) domain.Envelope, life, seq uint64, n uint32) {
	for i := range n {
		l.Append(fault(life, seq, 1000+i))
	}
}
