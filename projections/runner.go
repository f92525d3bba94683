package projections

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"quartermaster/domain"
)

// Log is where the runner reads records.
type Log interface {
	// Read calls yield with the records of a partition with from <= offset < to,
	// in order and without holes, in batches. It fails when the log does not
	// hold them all. The records' memory may be reused after yield returns.
	Read(ctx context.Context, tp domain.TopicPartition, from, to int64, yield func([]domain.Record) error) error
	// Follow is Read without an end: it waits for more until ctx ends.
	Follow(ctx context.Context, tp domain.TopicPartition, from int64, yield func([]domain.Record) error) error
}

// endless stands for the end of a partition that is followed.
const endless = -1

// Runner folds the log into a store, every partition on its own. It keeps no
// state but what the store has; any number of runs may follow one another.
type Runner struct {
	Log    Log
	Store  Store
	Topics []domain.TopicSpec
	// NewDecoder returns a decoder for one partition.
	NewDecoder func() Decoder

	folded, repeats, quarantined, records atomic.Int64
	mu                                    sync.Mutex
	next                                  domain.Position
}

// Progress is what a Runner did so far.
type Progress struct {
	Counts
	Records  int64           `json:"records"`
	Position domain.Position `json:"-"`
}

// Progress returns what was done so far; it may be called at any time.
func (r *Runner) Progress() Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Progress{
		Counts:   Counts{r.folded.Load(), r.repeats.Load(), r.quarantined.Load()},
		Records:  r.records.Load(),
		Position: r.next.Clone(),
	}
}

// CatchUp folds every partition up to the given position and returns. Where
// the store is already further, it stays there.
func (r *Runner) CatchUp(ctx context.Context, to domain.Position) error {
	return r.each(ctx, func(ctx context.Context, tp domain.TopicPartition) error {
		if to[tp] == 0 {
			return nil
		}
		return r.run(ctx, tp, to[tp])
	})
}

// Follow folds every partition as it grows, until ctx ends or a partition
// cannot be folded on.
func (r *Runner) Follow(ctx context.Context) error {
	err := r.each(ctx, func(ctx context.Context, tp domain.TopicPartition) error {
		return r.run(ctx, tp, endless)
	})
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// FollowPartition folds one partition as it grows, until ctx ends or it cannot
// be folded on. It is for processes that share the partitions: once it returns,
// [Runner.Progress] no longer names the partition.
func (r *Runner) FollowPartition(ctx context.Context, tp domain.TopicPartition) error {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.next, tp)
	}()
	if err := r.run(ctx, tp, endless); err != nil {
		return fmt.Errorf("fold %s: %w", tp, err)
	}
	return nil
}

// each runs work for every partition and returns the first failure, after all
// have stopped.
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
	folder := NewFolder(tp, r.Topics[i].Partitions, r.NewDecoder())
	tx, err := r.Store.Begin(ctx, tp)
	if err != nil {
		return err
	}
	from := tx.Next()
	tx.Rollback()
	r.at(tp, from)
	fold := func(records []domain.Record) error { return r.batch(ctx, tp, folder, records) }
	switch {
	case to == endless:
		return r.Log.Follow(ctx, tp, from, fold)
	case from < to:
		return r.Log.Read(ctx, tp, from, to, fold)
	default:
		return nil
	}
}

// batch folds records in one transaction.
func (r *Runner) batch(ctx context.Context, tp domain.TopicPartition, folder *Folder, records []domain.Record) error {
	if len(records) == 0 {
		return nil
	}
	tx, err := r.Store.Begin(ctx, tp)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if first := records[0].Offset; tx.Next() != first {
		return fmt.Errorf("read offset %d where %d is next: %w", first, tx.Next(), ErrFenced)
	}
	rows, err := tx.Load(ctx, func(yield func(Key) bool) {
		for i := range records {
			if !folder.Keys(&records[i], yield) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	before := folder.Counts()
	for i := range records {
		if err := folder.Apply(rows, &records[i]); err != nil {
			return fmt.Errorf("offset %d: %w", records[i].Offset, err)
		}
	}
	next := records[len(records)-1].Offset + 1
	if err := tx.Commit(ctx, next); err != nil {
		return err
	}
	after := folder.Counts()
	r.folded.Add(after.Folded - before.Folded)
	r.repeats.Add(after.Repeats - before.Repeats)
	r.quarantined.Add(after.Quarantined - before.Quarantined)
	r.records.Add(int64(len(records)))
	r.at(tp, next)
	return nil
}

func (r *Runner) at(tp domain.TopicPartition, next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = domain.Position{}
	}
	r.next[tp] = next
}
