package projections_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

// lazy is a store whose transactions are due when a test says so.
type lazy struct {
	*projections.Memory
	due     func(domain.TopicPartition, projections.Pending) bool
	mu      sync.Mutex // partitions are folded at the same time
	commits int
}

type lazyTx struct {
	projections.Tx
	s  *lazy
	tp domain.TopicPartition
}

func (s *lazy) Begin(ctx context.Context, tp domain.TopicPartition) (projections.Tx, error) {
	tx, err := s.Memory.Begin(ctx, tp)
	return lazyTx{tx, s, tp}, err
}

func (t lazyTx) Due(p projections.Pending) bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.s.due(t.tp, p)
}

func (t lazyTx) Commit(ctx context.Context, next int64, last domain.Anchor) error {
	t.s.mu.Lock()
	t.s.commits++
	t.s.mu.Unlock()
	return t.Tx.Commit(ctx, next, last)
}

// The rows do not depend on how many batches are folded in one transaction.
func TestCommitsDoNotChangeRows(t *testing.T) {
	long.Check(t, 30, 5000, func(t *rapid.T) {
		l := storetest.Draw(t)
		l.Batch = rapid.IntRange(1, 9).Draw(t, "batch")
		s := &lazy{Memory: projections.NewMemory(domain.TopicSpecs())}
		dice := rapid.SliceOfN(rapid.Bool(), 1, 20).Draw(t, "due")
		n := 0
		s.due = func(domain.TopicPartition, projections.Pending) bool {
			n++
			return dice[n%len(dice)]
		}
		r := l.Runner(s)
		one := rapid.SampledFrom(domain.AllPartitions()).Draw(t, "partition")
		for _, to := range []int64{l.End()[one] / 2, l.End()[one]} {
			if err := r.CatchUp(context.Background(), domain.Position{one: to}); err != nil {
				t.Fatal(err)
			}
			storetest.Look(t, s.Memory, func(v projections.View) error {
				if at := v.Position()[one]; at != to || r.Progress().Position[one] != to {
					t.Fatalf("%s is at %d, want %d", one, at, to)
				}
				return nil
			})
		}
		for tp, to := range l.End() {
			if err := r.CatchUp(context.Background(), domain.Position{tp: to}); err != nil {
				t.Fatal(err)
			}
		}
		if storetest.DigestOf(t, s.Memory) != storetest.DigestOf(t, storetest.Fold(t, l)) {
			t.Fatal("rows differ")
		}
		if got, want := r.Progress().Counts, counted(t, l); got != want {
			t.Fatalf("counted %+v, want %+v", got, want)
		}
	})
}

func counted(t *rapid.T, l *storetest.Log) projections.Counts {
	r := l.Runner(projections.NewMemory(domain.TopicSpecs()))
	if err := r.CatchUp(context.Background(), l.End()); err != nil {
		t.Fatal(err)
	}
	return r.Progress().Counts
}

// What was folded before reading failed is committed, and is not folded again.
func TestCommitBeforeAnError(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Examples()...)
	tp := longest(l)
	l.Batch = 1
	s := &lazy{Memory: projections.NewMemory(domain.TopicSpecs())}
	s.due = func(domain.TopicPartition, projections.Pending) bool { return false }
	at := l.End()[tp] - 1
	l.Break(tp, at)
	r := l.Runner(s)
	var stopped *projections.StoppedError
	if err := r.CatchUp(t.Context(), l.End()); !errors.As(err, &stopped) || stopped.Stops[tp].Offset != at {
		t.Fatalf("got %v", err)
	}
	l.Mend()
	if err := r.CatchUp(t.Context(), l.End()); err != nil {
		t.Fatal(err)
	}
	if storetest.DigestOf(t, s.Memory) != storetest.DigestOf(t, storetest.Fold(t, l)) {
		t.Error("rows differ")
	}
}

// differing is the error of a log that has other records.
type differing struct{ error }

func (differing) Advice() string { return "" }
func (differing) Kind() string   { return "differs" }
func (differing) Differs()       {}

// otherLog is a log that turns out to be another one after some records.
type otherLog struct {
	*storetest.Log
	after int64
}

func (l otherLog) ReadAfter(
	ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from, to int64, yield func([]domain.Record) error,
) error {
	if err := l.Log.ReadAfter(ctx, tp, last, from, min(to, l.after), yield); err != nil || to <= l.after {
		return err
	}
	return differing{errors.New("the log is another one")}
}

// Records that the log no longer has are given up with their rows.
func TestNoCommitOfRecordsThatAreGone(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Examples()...)
	tp := longest(l)
	s := &lazy{Memory: projections.NewMemory(domain.TopicSpecs())}
	s.due = func(domain.TopicPartition, projections.Pending) bool { return false }
	r := l.Runner(s)
	r.Log = otherLog{l, l.End()[tp] - 1}
	var stopped *projections.StoppedError
	if err := r.CatchUp(t.Context(), domain.Position{tp: l.End()[tp]}); !errors.As(err, &stopped) || s.commits != 0 {
		t.Fatalf("%d commits: %v", s.commits, err)
	}
}

// longest returns the partition with the most records.
func longest(l *storetest.Log) domain.TopicPartition {
	end := l.End()
	return slices.MaxFunc(domain.AllPartitions(), func(a, b domain.TopicPartition) int { return int(end[a] - end[b]) })
}

// The store hears that there are no more records, how often, and whether it was so before. What is
// left is committed when following ends.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := storetest.NewLog()
		l.Append(storetest.Examples()...)
		tp := longest(l)
		s := &lazy{Memory: projections.NewMemory(domain.TopicSpecs())}
		var heard []projections.Pending
		s.due = func(at domain.TopicPartition, p projections.Pending) bool {
			if at == tp {
				heard = append(heard, p)
			}
			return p.First && p.AtEnd
		}
		r := l.Runner(s)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.FollowPartition(ctx, tp) }()
		synctest.Wait()
		s.mu.Lock()
		first := heard[len(heard)-1]
		if want := (projections.Pending{Records: l.End()[tp], Span: first.Span, AtEnd: true, First: true}); first != want || s.commits != 1 {
			t.Errorf("%d commits, heard %+v, want %+v", s.commits, first, want)
		}
		heard = nil
		s.mu.Unlock()
		l.Repeat(tp, 0)
		for range 3 {
			synctest.Wait()
			l.Silence()
		}
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, p := range heard[:4] {
			if want := (projections.Pending{Records: 1, AtEnd: i > 0, Silent: max(0, i-1)}); p != want {
				t.Errorf("%d: heard %+v, want %+v", i, p, want)
			}
		}
		if r.Progress().Position[tp] != l.End()[tp]-1 {
			t.Error("the record counts as folded before it was committed")
		}
		cancel()
		s.mu.Unlock()
		err := <-done
		s.mu.Lock()
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if r.Progress().Position[tp] != l.End()[tp] || s.commits != 2 {
			t.Errorf("%d commits, at %s", s.commits, r.Progress().Position)
		}
	})
}
