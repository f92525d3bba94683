package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"quartermaster/adapters/postgres"
	"quartermaster/domain"
	"quartermaster/projections"
)

// stuckAfter is how long a partition with unfolded records may make no progress, or the log be
// silent, before an instance is not ready.
const stuckAfter = time.Minute

// readiness is the state that decides whether an instance is ready.
type readiness struct {
	stuck time.Duration
	next  map[postgres.Holding]int64
	moved map[postgres.Holding]time.Time
	heard time.Time // when the log last answered
	lone  bool      // no generation of this program's method is live
}

// keepReady checks every few seconds whether this instance folds, and logs once when it has
// nothing to fold at all.
func (in *instance) keepReady(ctx context.Context) {
	r := readiness{stuck: stuckAfter, heard: time.Now()}
	tick := time.NewTicker(min(lookEvery, in.watch))
	defer tick.Stop()
	for {
		err := in.hindered(ctx, &r)
		in.hindrance.Store(&err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// hindered returns why this instance is not ready. Inactive generations do not count.
func (in *instance) hindered(ctx context.Context, r *readiness) error {
	if active, err := in.conn.DB.Active(ctx); err == nil { // on an error, keep the last known one
		in.active.Store(&active)
	}
	s := in.session.Load()
	if s == nil {
		return errNoSession
	}
	in.mu.Lock()
	at := map[string]domain.Position{}
	for generation, runner := range in.runners {
		at[generation] = runner.Progress().Position
	}
	in.mu.Unlock()
	in.service.mu.Lock()
	end, heard := in.seen.End.Clone(), in.seenAt
	in.service.mu.Unlock()
	held := s.Stats().Held
	if len(held) > 0 {
		r.lone = false
	} else if err := in.aboutNothing(ctx, r); err != nil {
		return err
	}
	active := in.active.Load()
	held = slices.DeleteFunc(held, func(h postgres.Holding) bool { return active != nil && h.Generation != *active })
	return r.look(time.Now(), held, at, end, heard)
}

// aboutNothing returns why an instance folds nothing, unless there are more instances than
// partitions.
func (in *instance) aboutNothing(ctx context.Context, r *readiness) error {
	generations, err := in.conn.DB.Generations(ctx)
	if err != nil {
		return err
	}
	lone := !slices.ContainsFunc(generations, func(g postgres.Generation) bool {
		return g.State == postgres.Live && g.Method == projections.Method
	})
	if lone != r.lone {
		r.lone = lone
		if lone {
			in.log.Warn("no generation of " + projections.Method + " is live: folding nothing; \"quartermaster generation rebuild\" creates one")
		} else {
			in.log.Info("a generation of " + projections.Method + " is live")
		}
	}
	if lone {
		return fmt.Errorf("no generation of %s is live: folding nothing", projections.Method)
	}
	return nil
}

// look returns why an instance with these holdings and positions is not ready, by the bounds of
// the log when it last answered.
func (r *readiness) look(now time.Time, held []postgres.Holding, at map[string]domain.Position, end domain.Position, heard time.Time) error {
	next, moved := map[postgres.Holding]int64{}, map[postgres.Holding]time.Time{}
	var errs []error
	if r.heard = latest(r.heard, heard); now.Sub(r.heard) > r.stuck {
		errs = append(errs, fmt.Errorf("the log has not answered since %s", r.heard.UTC().Format(time.RFC3339)))
	}
	for _, h := range held {
		offset, read := at[h.Generation][h.TopicPartition]
		if !read {
			continue // it was only just taken over
		}
		next[h], moved[h] = offset, now
		was, known := r.next[h]
		if !known || next[h] > was || next[h] >= end[h.TopicPartition] {
			continue
		}
		moved[h] = r.moved[h]
		if now.Sub(moved[h]) > r.stuck {
			errs = append(errs, fmt.Errorf("%s of generation %s has been at %d since %s, with %d records to fold",
				h.TopicPartition, h.Generation, next[h], moved[h].UTC().Format(time.RFC3339), end[h.TopicPartition]-next[h]))
		}
	}
	r.next, r.moved = next, moved
	return errors.Join(errs...)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
