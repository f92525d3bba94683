package projections

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"quartermaster/domain"
)

// Log is where the runner reads records from.
type Log interface {
	// ReadAfter calls yield with the records of a partition with from <= offset < to, in order and
	// without holes, in batches. It fails if the log does not hold them all, or no longer holds
	// last, the record before from. A zero last is not checked. The records' memory may be reused
	// after yield returns.
	ReadAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from, to int64,
		yield func([]domain.Record) error) error
	// FollowAfter is ReadAfter without an end: it waits for more until ctx ends. It calls yield
	// without records once it has handed out all that were appended, and again each time that it
	// asked for more and there were none.
	FollowAfter(ctx context.Context, tp domain.TopicPartition, last domain.Anchor, from int64,
		yield func([]domain.Record) error) error
}

// endless stands for the end of a partition that is followed.
const endless = -1

// Runner folds the log into a store, each partition independently. All its state is in the store;
// any number of runs may follow each other.
type Runner struct {
	Log    Log
	Store  Store
	Topics []domain.TopicSpec
	// NewDecoder returns a decoder for one partition.
	NewDecoder func() Decoder
	// Pause waits before [Runner.Follow] retries a stopped partition. It returns false to end
	// retries. Nil: no retries.
	Pause func(context.Context) bool

	records atomic.Int64
	mu      sync.Mutex
	counts  Counts
	next    domain.Position
	stops   Stops
}

// Progress is the work of a Runner so far.
type Progress struct {
	Counts
	Records  int64           `json:"records"`
	Position domain.Position `json:"-"`
	// Stopped are the stopped partitions among those that this Runner folds.
	Stopped Stops `json:"-"`
}

// Progress returns the progress so far. It is safe for concurrent use.
func (r *Runner) Progress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Progress{
		Counts:   r.counts,
		Records:  r.records.Load(),
		Position: r.next.Clone(),
		Stopped:  maps.Clone(r.stops),
	}
}

// CatchUp folds every partition up to the given position and returns. If the store is already
// further, it stays there. If partitions stop because of [Lasting] errors, it returns a
// [StoppedError] after all others are folded.
func (r *Runner) CatchUp(ctx context.Context, to domain.Position) error {
	if err := r.each(ctx, func(ctx context.Context, tp domain.TopicPartition) error {
		if to[tp] == 0 {
			return nil
		}
		err := r.run(ctx, tp, to[tp])
		if lasting(err) != nil {
			_ = r.stopped(ctx, tp, err)
			return nil //nolint:nilerr // the others continue, and the answer names it
		}
		return err
	}); err != nil {
		return err
	}
	stops := r.Progress().Stopped
	maps.DeleteFunc(stops, func(tp domain.TopicPartition, _ Stop) bool { return to[tp] <= stops[tp].Offset })
	if len(stops) > 0 {
		return &StoppedError{stops}
	}
	return nil
}

// Follow folds every partition as it grows, until ctx ends or one fails with an error that is not
// [Lasting]. A stopped partition is retried after a Pause.
func (r *Runner) Follow(ctx context.Context) error {
	err := r.each(ctx, func(ctx context.Context, tp domain.TopicPartition) error {
		for {
			err := r.run(ctx, tp, endless)
			if lasting(err) == nil || ctx.Err() != nil {
				return err
			}
			_ = r.stopped(ctx, tp, err) // Progress names it
			if r.Pause == nil || !r.Pause(ctx) {
				return nil
			}
		}
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// FollowPartition folds one partition as it grows, until ctx ends or folding fails. It is for
// processes that share the partitions. [Runner.Progress] reports the partition and why it stopped,
// until [Runner.Forget].
func (r *Runner) FollowPartition(ctx context.Context, tp domain.TopicPartition) error {
	if err := r.run(ctx, tp, endless); err != nil {
		return fmt.Errorf("fold %s: %w", tp, r.stopped(ctx, tp, err))
	}
	return nil
}

// Forget removes a partition from [Runner.Progress] that this process no longer folds.
func (r *Runner) Forget(tp domain.TopicPartition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.next, tp)
	delete(r.stops, tp)
}

// each runs work for every partition and returns the first failure, after all have stopped.
func (r *Runner) each(ctx context.Context, work func(context.Context, domain.TopicPartition) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, t := range r.Topics {
		for i := range t.Partitions {
			tp := domain.TopicPartition{Topic: t.Topic, Partition: i}
			wg.Go(func() {
				if err := work(ctx, tp); err != nil {
					cancel(fmt.Errorf("fold %s: %w", tp, err))
				}
			})
		}
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (r *Runner) run(ctx context.Context, tp domain.TopicPartition, to int64) error {
	i := slices.IndexFunc(r.Topics, func(t domain.TopicSpec) bool { return t.Topic == tp.Topic })
	folder := NewProjector(tp, r.Topics[i].Partitions, r.NewDecoder())
	for {
		// Each pass sets another record aside, so this terminates.
		if err := r.pass(ctx, tp, to, folder); !errors.Is(err, ErrHalfway) {
			return err
		}
	}
}

// pass folds from the store's position. It returns [ErrHalfway] if it set a record aside because
// the program fails on it.
func (r *Runner) pass(ctx context.Context, tp domain.TopicPartition, to int64, folder *Projector) (err error) {
	tx, err := r.Store.Begin(ctx, tp)
	if err != nil {
		return err
	}
	from, last := tx.Next(), tx.Anchor()
	tx.Rollback()
	r.mu.Lock()
	if r.next == nil {
		r.next = domain.Position{}
	}
	r.next[tp] = from
	r.mu.Unlock()
	p := &pass{Runner: r, tp: tp, folder: folder, Pending: Pending{First: true}}
	defer func() { err = p.end(ctx, err) }()
	switch {
	case to == endless:
		return r.Log.FollowAfter(ctx, tp, last, from, func(records []domain.Record) error { return p.batch(ctx, records) })
	case from < to:
		return r.Log.ReadAfter(ctx, tp, last, from, to, func(records []domain.Record) error { return p.batch(ctx, records) })
	default:
		return nil
	}
}
