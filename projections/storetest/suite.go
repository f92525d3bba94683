package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Reopener is a store that can be closed and reopened with its contents. If a store is one, the
// suite compares it before and after.
type Reopener interface {
	// Reopen closes the store and returns it opened again.
	Reopen(t *testing.T) projections.Store
}

// Step folds the next records of a partition, at most n of them, in one transaction, and returns
// how many there were. It fails with [projections.ErrFenced] if another process folded the
// partition meanwhile.
func Step(ctx context.Context, l *Log, s projections.Store, tp domain.TopicPartition, n int) (int, error) {
	tx, err := s.Begin(ctx, tp)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	records := l.Records(tp)
	records = records[min(tx.Next(), int64(len(records))):]
	records = records[:min(n, len(records))]
	if err := apply(ctx, l, tx, tp, records); err != nil {
		return 0, err
	}
	last := tx.Anchor()
	if len(records) > 0 {
		last = records[len(records)-1].Anchor()
	}
	return len(records), tx.Commit(ctx, tx.Next()+int64(len(records)), last)
}

// apply folds records into a transaction and leaves it open.
func apply(ctx context.Context, l *Log, tx projections.Tx, tp domain.TopicPartition, records []domain.Record) error {
	f := projections.NewProjector(tp, tp.Topic.Partitions(), l)
	rows, err := tx.Load(ctx, func(yield func(projections.Key) bool) {
		for i := range records {
			if !f.Keys(&records[i], yield) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	for i := range records {
		if err := f.Apply(rows, &records[i]); err != nil {
			return err
		}
	}
	return nil
}

// state summarizes a view.
type state struct {
	at      string
	anchors string
	digest  [32]byte
}

func stateOf(ctx context.Context, s projections.Store) (state, error) {
	var st state
	err := s.View(ctx, func(v projections.View) error {
		var err error
		st.at, st.anchors = v.Position().String(), fmt.Sprint(v.Anchors())
		st.digest, err = Digest(v)
		return err
	})
	return st, err
}

// Run checks a store. open returns a new, empty one for [domain.TopicSpecs].
func Run(t *testing.T, open func(t *testing.T) projections.Store) {
	ctx := context.Background()
	look := func(t *testing.T, s projections.Store) state {
		t.Helper()
		st, err := stateOf(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	// reference returns the state of a memory store after the whole log.
	reference := func(t *testing.T, l *Log) state {
		t.Helper()
		m, err := l.Fold(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return look(t, m)
	}
	catchUp := func(t *testing.T, l *Log, s projections.Store) {
		t.Helper()
		if err := l.Runner(s).CatchUp(ctx, l.End()); err != nil {
			t.Fatal(err)
		}
	}
	examples := func() *Log {
		l := NewLog()
		l.Append(Examples()...)
		return l
	}
	c1 := domain.PartitionOf([]byte("c1"), domain.TopicFleet.Partitions())
	fleet := domain.TopicPartition{Topic: domain.TopicFleet, Partition: c1}

	t.Run("Empty", func(t *testing.T) {
		s := open(t)
		for _, tp := range domain.AllPartitions() {
			tx, err := s.Begin(ctx, tp)
			if err != nil {
				t.Fatalf("begin %s: %v", tp, err)
			}
			if n := tx.Next(); n != 0 {
				t.Errorf("%s stands at %d, want 0", tp, n)
			}
			tx.Rollback()
			tx.Rollback() // does nothing
		}
		if st := look(t, s); st.at != "0" {
			t.Errorf("position %s, want 0", st.at)
		}
		err := s.View(ctx, func(v projections.View) error {
			row, err := v.Get(projections.Key{Table: projections.TableNodes, Scope: "c1", ID: "n1"})
			if row != nil {
				t.Errorf("an empty store has %v", row)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := s.Begin(ctx, domain.TopicPartition{Topic: domain.TopicFleet, Partition: 99}); err == nil {
			t.Error("began on a partition that does not exist")
		}
	})

	t.Run("EveryType", func(t *testing.T) {
		l, s := examples(), open(t)
		catchUp(t, l, s)
		err := s.View(ctx, func(v projections.View) error {
			if at := v.Position(); at.String() != l.End().String() {
				t.Errorf("position %s, want %s", at, l.End())
			}
			for _, table := range projections.Tables() {
				rows := 0
				var before projections.Key
				err := v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
					if rows++; rows > 1 && before.Compare(k) >= 0 {
						t.Errorf("%s was shown before %s", before, k)
					}
					before = k
					got, err := v.Get(k)
					if err != nil {
						return err
					}
					same, err := sameRow(row, got)
					if !same {
						t.Errorf("%s: got and scanned rows differ", k)
					}
					n := 0
					if err := v.Scan(projections.Query{Table: table, Scope: k.Scope}, func(l projections.Key, _ projections.Row) error {
						if l.Scope != k.Scope {
							t.Errorf("the scope %q has %s", k.Scope, l)
						}
						n++
						return nil
					}); err != nil || n == 0 {
						t.Errorf("scan of scope %q: %d rows, error %v", k.Scope, n, err)
					}
					return err
				})
				if err != nil {
					return err
				}
				if want := table != projections.TableQuarantine; want != (rows > 0) {
					t.Errorf("%s has %d rows after an event of every type", table, rows)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})

	t.Run("ScanStops", func(t *testing.T) {
		l, s := examples(), open(t)
		catchUp(t, l, s)
		stop := errors.New("stop")
		n := 0
		err := s.View(ctx, func(v projections.View) error {
			return v.Scan(projections.Query{Table: projections.TableStreams}, func(projections.Key, projections.Row) error { n++; return stop })
		})
		if n != 1 || !errors.Is(err, stop) {
			t.Errorf("%d rows after the first was refused, error %v", n, err)
		}
	})

	t.Run("OneNode", func(t *testing.T) {
		l, s := Fleet(3, 30, domain.Instant(400_000)*domain.Hour), open(t)
		catchUp(t, l, s)
		q := projections.Query{Table: projections.TableUsage}
		err := s.View(ctx, func(v projections.View) error {
			var all []projections.Key
			if err := v.Scan(projections.Query{Table: q.Table}, func(k projections.Key, _ projections.Row) error { all = append(all, k); return nil }); err != nil {
				return err
			}
			q.Scope, q.ID = all[len(all)/2].Scope, all[len(all)/2].ID
			for _, bound := range [][2]int64{{0, 0}, {400_003, 0}, {0, 400_009}, {400_003, 400_009}, {1, 2}} {
				q.From, q.To = bound[0], bound[1]
				var got, want []projections.Key
				for _, k := range all {
					if k.Scope == q.Scope && k.ID == q.ID && k.Hour >= q.From && (q.To == 0 || k.Hour < q.To) {
						want = append(want, k)
					}
				}
				if err := v.Scan(q, func(k projections.Key, _ projections.Row) error { got = append(got, k); return nil }); err != nil {
					return err
				}
				if !slices.Equal(got, want) {
					t.Errorf("hours %v of one node are %v, want %v", bound, got, want)
				}
			}
			// The GPUs that were reported under the name, from the first hour to the last.
			month, n := int64(0), 0
			if err := v.Scan(projections.Query{Table: projections.TableNodeGPUs, Scope: q.Scope, ID: q.ID}, func(k projections.Key, row projections.Row) error {
				month, n = k.Hour, n+1
				for _, g := range row.(*projections.NodeGPUs).GPUs {
					if g.First != 400_000 || g.Last != 400_029 {
						t.Errorf("%s was reported from hour %d to %d", g.ID, g.First, g.Last)
					}
				}
				return nil
			}); err != nil {
				return err
			}
			if n != 1 || month > 400_000 || month < 400_000-31*24 {
				t.Errorf("%d months, the last %d", n, month)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})

	t.Run("SameAsMemory", func(t *testing.T) {
		draw := rapid.Custom(Draw)
		for seed := range 4 {
			l := draw.Example(seed)
			s := open(t)
			catchUp(t, l, s)
			if got, want := look(t, s), reference(t, l); got != want {
				t.Errorf("log %d: %x at %s, want %x at %s", seed, got.digest, got.at, want.digest, want.at)
			}
			m, err := l.Fold(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := partsOf(t, s), partsOf(t, m); got != want {
				t.Errorf("log %d: parts are\n%swant\n%s", seed, got, want)
			}
			if got, want := talliesOf(t, s), talliesOf(t, m); got != want {
				t.Errorf("log %d: tallies are\n%swant\n%s", seed, got, want)
			}
		}
	})

	// Rows of incarnations that ended are removed, and reappear if one continues.
	t.Run("PastIncarnations", func(t *testing.T) {
		for _, batch := range []int{1, 3, 40} {
			l := NewLog()
			l.Batch = batch
			add := func(incarnation, seq, previous uint64) {
				env := domain.Envelope{Source: "node-reporter/c/n", Incarnation: incarnation, Sequence: seq, Cluster: "c", Time: Start + domain.Instant(seq)*domain.Second,
					Event: &domain.NodeCordoned{Node: "n", Reason: "test"}}
				if previous > 0 {
					env.PreviousIncarnation, env.PreviousSequence = incarnation-1, previous
				}
				l.Append(env)
			}
			for life := uint64(1); life <= 150; life++ {
				add(life, 1, min(life-1, 1)*2)
				if life%10 > 0 { // every tenth has a gap
					add(life, 2, 0)
				}
			}
			add(120, 2, 0) // fills one
			add(130, 3, 0) // beyond its end
			add(145, 3, 0)
			add(145, 4, 0)
			add(149, 2, 0) // repeats
			add(3, 2, 0)
			add(3, 9, 0)
			s := open(t)
			catchUp(t, l, s)
			if got, want := look(t, s), reference(t, l); got != want {
				t.Errorf("in batches of %d rows differ from those in memory", batch)
			}
			n := 0
			if err := s.View(ctx, func(v projections.View) error {
				return v.Scan(projections.Query{Table: projections.TableStreams}, func(projections.Key, projections.Row) error { n++; return nil })
			}); err != nil {
				t.Fatal(err)
			}
			// The past, 13 incarnations with gaps, one that continued, and the last.
			if want := 16; n != want {
				t.Errorf("in batches of %d: %d rows of streams, want %d", batch, n, want)
			}
		}
	})

	// Nodes of a cluster with shards are in several partitions. Readers see them by cluster, in the
	// order of nodes, with one row for each hour also where the number of shards changed within it.
	t.Run("Shards", func(t *testing.T) {
		l := NewLog()
		const nodes = 9
		for i := range nodes {
			for step, of := range []int{0, 4, 8} {
				from := Start + domain.Instant(10*step)*Minute
				node := fmt.Sprint("n", i)
				l.Append(domain.Envelope{
					Source: "node-reporter/c1/" + node, Incarnation: uint64(1 + step), Cluster: "c1", Shards: of,
					Time:  from + 10*Minute,
					Event: Sample(node, domain.Interval{From: from, To: from + 10*Minute}, Seen{ID: GPU("c1", node, 0), Workspace: "w"}),
				})
			}
		}
		s := open(t)
		catchUp(t, l, s)
		if got, want := look(t, s), reference(t, l); got != want {
			t.Errorf("stored rows differ from those in memory")
		}
		var found []string
		if err := s.View(ctx, func(v projections.View) error {
			scopes, err := v.Scopes(projections.TableUsage)
			if err != nil || len(scopes) != 1 || scopes[0] != "c1" {
				t.Errorf("scopes %q, want c1: %v", scopes, err)
			}
			for _, q := range []projections.Query{
				{Table: projections.TableUsage, Scope: "c1"}, {Table: projections.TableUsage, Scope: "c1", ID: "n3", Last: true},
				{Table: projections.TableUsage, Last: true, From: projections.HourOf(Start), To: projections.HourOf(Start) + 1}, {Table: projections.TableUsage, Scope: "c2"},
			} {
				err := v.Scan(q, func(k projections.Key, row projections.Row) error {
					seen := row.(*projections.UsageHour).Observers[0].Devices[0].Segments
					found = append(found, fmt.Sprint(k.ID, len(seen), (seen[0].To-seen[0].From)/60_000))
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, n := range []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "3", "0", "1", "2", "3", "4", "5", "6", "7", "8"} {
			want = append(want, fmt.Sprint("n"+n, 1, 30))
		}
		if !slices.Equal(found, want) {
			t.Errorf("read %q, want %q", found, want)
		}
	})

	t.Run("LargeBatch", func(t *testing.T) {
		l := Fleet(20, 4, Start)
		l.Batch = 100_000
		s := open(t)
		catchUp(t, l, s)
		small := Fleet(20, 4, Start)
		small.Batch = 7
		if got, want := look(t, s), reference(t, small); got != want {
			t.Errorf("%x at %s, want %x at %s", got.digest, got.at, want.digest, want.at)
		}
	})

	t.Run("Rollback", func(t *testing.T) {
		l, s := examples(), open(t)
		if _, err := Step(ctx, l, s, fleet, 1); err != nil {
			t.Fatal(err)
		}
		before := look(t, s)
		tx, err := s.Begin(ctx, fleet)
		if err != nil {
			t.Fatal(err)
		}
		tx.Rollback()
		if got := look(t, s); got != before {
			t.Error("a transaction that did nothing changed something")
		}
		if tx, err = s.Begin(ctx, fleet); err != nil {
			t.Fatal(err)
		}
		if err := apply(ctx, l, tx, fleet, l.Records(fleet)[1:3]); err != nil {
			t.Fatal(err)
		}
		tx.Rollback()
		// A store may refuse to continue, but it must not show what was rolled back.
		got, err := stateOf(ctx, s)
		if err == nil && got != before {
			t.Errorf("after a rollback the store shows %x at %s, want %x at %s", got.digest, got.at, before.digest, before.at)
		}
		if _, err := Step(ctx, l, s, fleet, 100); err == nil {
			catchUp(t, l, s)
			if got, want := look(t, s), reference(t, l); got != want {
				t.Error("after a rollback and the same again the rows differ")
			}
		}
	})

	t.Run("CommitTwice", func(t *testing.T) {
		l, s := examples(), open(t)
		tx, err := s.Begin(ctx, fleet)
		if err != nil {
			t.Fatal(err)
		}
		if err := apply(ctx, l, tx, fleet, l.Records(fleet)[:2]); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(ctx, 2, l.Records(fleet)[1].Anchor()); err != nil {
			t.Fatal(err)
		}
		before := look(t, s)
		if err := tx.Commit(ctx, 3, l.Records(fleet)[2].Anchor()); err == nil {
			t.Error("committed twice")
		}
		tx.Rollback() // does nothing
		if got := look(t, s); got != before {
			t.Error("what came after the commit changed something")
		}
	})

	t.Run("Fenced", func(t *testing.T) {
		l, s := examples(), open(t)
		first, err := s.Begin(ctx, fleet)
		if err != nil {
			t.Fatal(err)
		}
		// The second waits for the first, or is refused on commit.
		second := make(chan error, 1)
		go func() {
			tx, err := s.Begin(ctx, fleet)
			if err != nil {
				second <- err
				return
			}
			defer tx.Rollback()
			from := tx.Next()
			if err := apply(ctx, l, tx, fleet, l.Records(fleet)[from:from+1]); err != nil {
				second <- err
				return
			}
			err = tx.Commit(ctx, from+1, l.Records(fleet)[from].Anchor())
			if from == 2 && err == nil || from == 0 && errors.Is(err, projections.ErrFenced) {
				err = nil
			} else {
				err = fmt.Errorf("began at %d while another committed 2: %w", from, err)
			}
			second <- err
		}()
		if err := apply(ctx, l, first, fleet, l.Records(fleet)[:2]); err != nil {
			t.Fatal(err)
		}
		if err := first.Commit(ctx, 2, l.Records(fleet)[1].Anchor()); err != nil {
			t.Fatal(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
		catchUp(t, l, s)
		if got, want := look(t, s), reference(t, l); got != want {
			t.Error("rows differ after two folded the same partition")
		}
	})

	t.Run("TwoRunners", func(t *testing.T) {
		l, s := Fleet(10, 3, Start), open(t)
		l.Batch = 5
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			wg.Go(func() { errs[i] = l.Runner(s).CatchUp(ctx, l.End()) })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil && !errors.Is(err, projections.ErrFenced) {
				t.Errorf("want success or ErrFenced, not %v", err)
			}
		}
		catchUp(t, l, s)
		if got, want := look(t, s), reference(t, l); got != want {
			t.Error("rows differ after two runners")
		}
	})

	t.Run("ViewWhileFolding", func(t *testing.T) {
		l, s := Fleet(10, 6, Start), open(t)
		l.Batch = 3
		done := make(chan error, 1)
		go func() { done <- l.Runner(s).CatchUp(ctx, l.End()) }()
		for views := 0; ; views++ {
			if err := s.View(ctx, func(v projections.View) error { return consistent(v) }); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				if got, want := look(t, s), reference(t, l); got != want {
					t.Error("rows differ after views")
				}
				return
			default:
			}
		}
	})

	t.Run("ViewAcrossCommit", func(t *testing.T) {
		l, s := examples(), open(t)
		before := look(t, s)
		tx, err := s.Begin(ctx, fleet)
		if err != nil {
			t.Fatal(err)
		}
		if err := apply(ctx, l, tx, fleet, l.Records(fleet)); err != nil {
			t.Fatal(err)
		}
		seen := make(chan state, 1)
		go func() {
			st, err := stateOf(ctx, s)
			if err != nil {
				t.Error(err)
			}
			seen <- st
		}()
		if err := tx.Commit(ctx, int64(len(l.Records(fleet))), l.Records(fleet)[len(l.Records(fleet))-1].Anchor()); err != nil {
			t.Fatal(err)
		}
		if got, after := <-seen, look(t, s); got != before && got != after {
			t.Errorf("a view shows %x at %s, which is neither before nor after", got.digest, got.at)
		}
	})

	// A record on which the program fails is set aside, and none of its changes are kept, wherever
	// it is in a batch and however often the program restarts.
	t.Run("Panics", func(t *testing.T) {
		l, s := Fleet(6, 6, Start), open(t)
		var tp domain.TopicPartition
		for at, n := range l.End() {
			if n > l.End()[tp] {
				tp = at
			}
		}
		bad := map[int64]bool{2: true, 3: true, l.End()[tp] / 2: true, l.End()[tp] - 1: true}
		var sets []state
		for _, batch := range []int{1, 7, 1000} {
			l.Batch = batch
			if batch > 1 {
				s = open(t)
			}
			for _, to := range []int64{3, l.End()[tp]} {
				r := l.Runner(s)
				r.NewDecoder = func() projections.Decoder { return failing{l, tp, bad} }
				end := l.End()
				end[tp] = to
				if err := r.CatchUp(ctx, end); err != nil {
					t.Fatal(err)
				}
			}
			sets = append(sets, look(t, s))
			if err := s.View(ctx, func(v projections.View) error {
				list, err := registry.Quarantine(v)
				if err == nil && list.Open != len(bad) {
					t.Errorf("batches of %d: %d in quarantine, want %d", batch, list.Open, len(bad))
				}
				for i := range list.Entries {
					if e := &list.Entries[i]; e.Kind != projections.KindFailed || !bad[e.Offset] {
						t.Errorf("batches of %d: %+v", batch, e)
					}
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		}
		if sets[1] != sets[0] || sets[2] != sets[0] {
			t.Error("rows depend on where the batches end")
		}
	})

	t.Run("Spans", func(t *testing.T) {
		l, s := NewLog(), open(t)
		l.Append(Examples()...)
		n := int64(len(l.Records(fleet)))
		l.AppendSpan(fleet, 5, "cannot be unpacked")
		l.AppendSpan(fleet, 1, "")
		l.AppendSpan(fleet, 1, "was aborted")
		l.AppendSpan(fleet, 1, "") // the last of the log
		r := l.Runner(s)
		if err := r.CatchUp(ctx, l.End()); err != nil {
			t.Fatal(err)
		}
		if p := r.Progress(); !p.Position.Covers(l.End()) || p.Quarantined != 6 {
			t.Errorf("at %s, %d quarantined", p.Position, p.Quarantined)
		}
		if got, want := look(t, s), reference(t, l); got != want {
			t.Error("rows differ")
		}
		if err := s.View(ctx, func(v projections.View) error {
			list, err := registry.Quarantine(v)
			if err != nil {
				return err
			}
			if len(list.Entries) != 2 || list.Open != 6 || list.Incomplete.All != 6 {
				t.Fatalf("quarantine is %+v", list)
			}
			first, second := list.Entries[0], list.Entries[1]
			if first.Offset != n || first.Last != n+4 || first.Events() != 5 || first.Reason != "cannot be unpacked" || len(first.SHA256) != 32 {
				t.Errorf("a batch is %+v", first)
			}
			if second.Offset != n+6 || second.Last != 0 || second.Events() != 1 {
				t.Errorf("one event is %+v", second)
			}
			open, err := registry.Open(v)
			if err == nil && open.All != 6 {
				t.Errorf("%d open", open.All)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	})

	t.Run("StandsStill", func(t *testing.T) {
		l, s := Fleet(10, 6, Start), open(t)
		var broken domain.TopicPartition
		for tp, n := range l.End() {
			if n > l.End()[broken] {
				broken = tp
			}
		}
		at := l.End()[broken] / 2
		l.Break(broken, at)
		r := l.Runner(s)
		var stopped *projections.StoppedError
		if err := r.CatchUp(ctx, l.End()); !errors.As(err, &stopped) {
			t.Fatalf("got %v, want stops", err)
		}
		want := projections.Stops{broken: {Offset: at, Reason: "log is broken", Advice: "mend it", Kind: "broken"}}
		if !maps.Equal(stopped.Stops, want) || !maps.Equal(r.Progress().Stopped, want) {
			t.Errorf("stopped %v, want %v", stopped, want)
		}
		got, all := look(t, s).at, l.End()
		all[broken] = at
		if got != all.String() {
			t.Errorf("the others stand at %s, want %s", got, all)
		}
		if err := r.CatchUp(ctx, all); err != nil {
			t.Errorf("up to where it stopped: %v", err)
		}
		// It continues by itself once the log is repaired.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		paused, done := make(chan struct{}), make(chan error, 1)
		r.Pause = func(context.Context) bool {
			paused <- struct{}{}
			<-paused
			return true
		}
		go func() { done <- r.Follow(ctx) }()
		<-paused
		l.Mend()
		paused <- struct{}{}
		for !r.Progress().Position.Covers(l.End()) {
			select {
			case err := <-done:
				t.Fatalf("stopped: %v", err)
			default:
			}
		}
		if stops := r.Progress().Stopped; len(stops) != 0 {
			t.Errorf("still %v", stops)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, want := look(t, s), reference(t, l); got != want {
			t.Error("rows differ")
		}
	})

	t.Run("Follow", func(t *testing.T) {
		l, s := NewLog(), open(t)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		done := make(chan error, 1)
		r := l.Runner(s)
		go func() { done <- r.Follow(ctx) }()
		l.Append(Examples()...)
		for !r.Progress().Position.Covers(l.End()) {
			select {
			case err := <-done:
				t.Fatalf("stopped: %v", err)
			default:
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("after the end of its context: %v", err)
		}
		if got, want := look(t, s), reference(t, l); got != want {
			t.Error("rows differ after following")
		}
	})

	t.Run("Reopen", func(t *testing.T) {
		l := rapid.Custom(Draw).Example(7)
		s := open(t)
		r, ok := s.(Reopener)
		if !ok {
			t.Skip("the store does not outlive its process")
		}
		for _, tp := range domain.AllPartitions() {
			if _, err := Step(ctx, l, s, tp, len(l.Records(tp))/2); err != nil {
				t.Fatal(err)
			}
		}
		before := look(t, s)
		s = r.Reopen(t)
		if after := look(t, s); after != before {
			t.Errorf("opened again: %x at %s, want %x at %s", after.digest, after.at, before.digest, before.at)
		}
		catchUp(t, l, s)
		if got, want := look(t, s), reference(t, l); got != want {
			t.Error("rows differ when folding went on after opening again")
		}
	})
}

// consistent checks that rows and position of a view match: in a log without repeats, every record
// is in a stream or in quarantine.
func consistent(v projections.View) error {
	counted := map[string]int64{}
	count := func(table projections.Table, n func(projections.Row) int64) error {
		return v.Scan(projections.Query{Table: table}, func(k projections.Key, row projections.Row) error {
			counted[k.Scope] += n(row)
			return nil
		})
	}
	err := count(projections.TableStreams, func(row projections.Row) int64 {
		s := row.(*projections.Stream)
		return int64(s.Mark - s.Missing())
	})
	if err == nil {
		err = count(projections.TableQuarantine, func(row projections.Row) int64 { return int64(row.(*projections.Quarantined).Events()) })
	}
	if err != nil {
		return err
	}
	for tp, next := range v.Position() {
		if n := counted[tp.String()]; n != next {
			return fmt.Errorf("%s stands at %d and its rows at %d", tp, next, n)
		}
	}
	return nil
}

func sameRow(a, b projections.Row) (bool, error) {
	if a == nil || b == nil {
		return a == b, nil
	}
	x, err := projections.EncodeRow(a)
	if err != nil {
		return false, err
	}
	y, err := projections.EncodeRow(b)
	return string(x) == string(y), err
}
