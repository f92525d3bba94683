package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"quartermaster/domain"
	"quartermaster/projections"
)

// errTaken is why work on a partition ends that another session owns now.
var errTaken = fmt.Errorf("its owner is another session: %w", projections.ErrFenced)

// lostError is why a session was lost. It is a [projections.ErrFenced] and does not
// speak as one: nobody need have taken over what the session held.
type lostError string

func (e lostError) Error() string { return string(e) }

func (lostError) Unwrap() error { return projections.ErrFenced }

// After a failure, work on a partition starts again after this pause, twice as
// long each time.
const (
	firstPause = time.Second
	lastPause  = 15 * time.Second
)

// Work folds one partition until its context ends.
type Work func(ctx context.Context, store *Store, tp domain.TopicPartition) error

// Share folds this session's share of the partitions until ctx ends, then lets
// go of them and returns nil.
//
// Partitions of the live generations of the session's method, in order, are
// dealt in turn to the live sessions of that method that share, by name of
// instance: partition i goes to session i modulo their number. A session claims
// what is dealt to it and free, and lets go of what no longer is, once work on
// it has returned. So whoever joins or leaves is noticed within a quarter of a
// lease, and a dead one when its lease is over.
//
// Work that returns is started again while the claim lasts, after a pause: 1 s,
// doubling up to 15 s. But [projections.ErrFenced] ends the claim, nil says that
// there is no more to do, and an error that is fatal ends Share, which returns
// it. When the session is lost, Share returns why.
func (s *Session) Share(ctx context.Context, work Work) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	var (
		wg     sync.WaitGroup
		once   sync.Once
		fatal  error
		stores = map[string]*Store{}
	)
	start := func(h Holding, store *Store) {
		held, end := context.WithCancelCause(ctx)
		s.mu.Lock()
		s.held[h] = end
		s.claims++
		s.mu.Unlock()
		wg.Go(func() {
			defer end(nil)
			if err := s.hold(held, h, store, work); err != nil {
				once.Do(func() { fatal = fmt.Errorf("generation %s: %w", h.Generation, err) })
				cancel(fatal)
			}
		})
	}
	tick := time.NewTicker(s.cfg.Lease / beats)
	defer tick.Stop()
	sharing, failing := false, false
	for ctx.Err() == nil {
		err := error(nil)
		if !sharing {
			err = s.share(ctx, true)
			sharing = err == nil
		}
		if sharing {
			err = s.rearrange(ctx, stores, start)
		}
		if err != nil && !failing && ctx.Err() == nil {
			s.log.Warn("cannot see how the partitions are shared", "error", err)
		}
		failing = err != nil
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	if s.ctx.Err() == nil {
		bound, stop := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease)
		defer stop()
		if err := s.share(bound, false); err != nil {
			s.log.Warn("cannot say that this instance stops", "error", err)
		}
	}
	wg.Wait()
	if s.dropped > 0 {
		s.log.Info("lost partitions with the session", "partitions", s.dropped, "why", context.Cause(s.ctx))
	}
	if s.ctx.Err() == nil {
		if err := s.abandon(ctx); err != nil {
			s.log.Warn("cannot let go of all partitions", "error", err)
		}
	}
	switch {
	case fatal != nil:
		return fatal
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	default:
		return nil
	}
}

// share says whether partitions are dealt to this session.
func (s *Session) share(ctx context.Context, sharing bool) error {
	_, err := s.db.ExecContext(ctx, `update quartermaster.sessions set sharing = $2 where token = $1`, s.token, sharing)
	return err
}

// abandon lets go of what the session owns without working on it: a claim that
// was interrupted may have been made.
func (s *Session) abandon(ctx context.Context) error {
	bound, stop := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease)
	defer stop()
	_, err := s.db.ExecContext(bound, `update quartermaster.partitions set owner = null where owner = $1`, s.token)
	return err
}

// dealt is a partition that is dealt to this session or owned by it.
type dealt struct {
	Holding
	mine, own, free bool // dealt to this session, owned by it, owned by nobody alive
}

func (s *Session) look(ctx context.Context) ([]dealt, error) {
	rows, err := s.db.QueryContext(ctx, `
		with sharers as (
			select token, row_number() over (order by instance collate "C") - 1 as i, count(*) over () as n
			from quartermaster.sessions where sharing and method = $1 and alive_until > now()
		), parts as (
			select p.generation, p.topic, p.partition, p.owner,
				row_number() over (order by p.generation collate "C", p.topic collate "C", p.partition) - 1 as i
			from quartermaster.partitions p join quartermaster.generations g on g.name = p.generation
			where g.state = 'live' and g.method = $1
		)
		select p.generation, p.topic, p.partition, coalesce(s.token = $2, false), coalesce(p.owner = $2, false),
			p.owner is null or not exists (select from quartermaster.sessions a where a.token = p.owner and a.alive_until > now())
		from parts p left join sharers s on s.i = p.i % s.n
		where p.owner = $2 or s.token = $2
		order by p.i`, s.cfg.Method, s.token)
	if err != nil {
		return nil, err
	}
	return collect(rows, func(rows *sql.Rows, d *dealt) error {
		return rows.Scan(&d.Generation, &d.Topic, &d.Partition, &d.mine, &d.own, &d.free)
	})
}

// rearrange claims what is dealt to this session and lets go of what is not.
func (s *Session) rearrange(ctx context.Context, stores map[string]*Store, start func(Holding, *Store)) error {
	ctx, stop := context.WithTimeout(ctx, s.cfg.Lease)
	defer stop()
	found, err := s.look(ctx)
	if err != nil {
		return err
	}
	keep := map[Holding]bool{}
	for _, d := range found {
		store := stores[d.Generation]
		if store == nil {
			store = s.Store(d.Generation)
			stores[d.Generation] = store
		}
		s.mu.Lock()
		end, held := s.held[d.Holding]
		s.mu.Unlock()
		switch {
		case held && !d.own:
			end(errTaken)
		case held && d.mine:
			keep[d.Holding] = true
		case held:
		case d.mine && (d.own || d.free):
			// Ours already: its work has ended, or the claim was made without our
			// hearing of it.
			claimed, err := store.Claim(ctx, d.TopicPartition)
			if err != nil {
				return fmt.Errorf("claim %s: %w", d, err)
			}
			if claimed {
				keep[d.Holding] = true
				start(d.Holding, store)
			}
		case d.own:
			// Letting go of it failed before.
			claimed, err := store.Claim(ctx, d.TopicPartition)
			if err == nil && claimed {
				err = store.Release(ctx, d.TopicPartition)
			}
			if err != nil {
				return fmt.Errorf("let go of %s: %w", d, err)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for h, end := range s.held {
		if !keep[h] {
			end(nil)
		}
	}
	return nil
}

// hold works on a partition as long as it is this session's, then lets go of
// it. It returns an error that is fatal.
func (s *Session) hold(ctx context.Context, h Holding, store *Store, work Work) error {
	err := s.persist(ctx, h, store, work)
	lost := errors.Is(err, projections.ErrFenced)
	if !lost {
		bound, stop := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease)
		defer stop()
		if err := store.Release(bound, h.TopicPartition); err != nil {
			s.log.Warn("cannot let go of a partition", "generation", h.Generation, "partition", h.TopicPartition.String(), "error", err)
		}
	}
	s.mu.Lock()
	delete(s.held, h)
	together := s.ctx.Err() != nil // with the session all are lost, and Share says so once
	if lost {
		s.losses++
		if together {
			s.dropped++
		}
	}
	s.mu.Unlock()
	if lost && !together {
		s.log.Info("lost a partition", "generation", h.Generation, "partition", h.TopicPartition.String(), "why", err)
	}
	if lost || ctx.Err() != nil {
		return nil
	}
	return err
}

// persist works until ctx ends, whose cause it returns, or until trying again
// is of no use.
func (s *Session) persist(ctx context.Context, h Holding, store *Store, work Work) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := work(ctx, store, h.TopicPartition)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			<-ctx.Done()
			return context.Cause(ctx)
		case errors.Is(err, projections.ErrFenced), s.cfg.Fatal != nil && s.cfg.Fatal(err):
			return err
		}
		if time.Since(began) > lastPause {
			pause = firstPause
		}
		s.log.Warn("folding a partition failed; it is tried again", "generation", h.Generation, "partition", h.TopicPartition.String(), "error", err, "pause", pause.String())
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
