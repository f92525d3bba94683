package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lib/pq"

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
// Partitions of the live generations of the session's method are dealt to the live
// sessions of that method that share: evenly, by the names of the instances, and so
// that as few move as can be (deal). A session claims what is dealt to it and free, and
// lets go of what no longer is, once work on it has returned. So whoever joins or leaves
// is noticed within a quarter of a lease, and a dead one when its lease is over.
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
		with alive as (
			select s.token, s.instance, sharing and method = $1 as shares from quartermaster.sessions s where `+aliveNow+`
		)
		select p.generation, p.topic, p.partition, coalesce(p.owner = $2, false), coalesce(a.instance, ''), g.state = 'live' and g.method = $1,
			array(select instance from alive where shares order by instance collate "C")
		from quartermaster.partitions p join quartermaster.generations g on g.name = p.generation left join alive a on a.token = p.owner
		where g.state = 'live' and g.method = $1 or p.owner = $2
		order by p.generation collate "C", p.topic collate "C", p.partition`, s.cfg.Method, s.token)
	if err != nil {
		return nil, err
	}
	var (
		names, owners []string // of the partitions that are dealt
		at            []int    // where they are in found
		sharers       pq.StringArray
		read          int
	)
	found, err := collect(rows, func(rows *sql.Rows, d *dealt) error {
		var owner string
		var folded bool
		err := rows.Scan(&d.Generation, &d.Topic, &d.Partition, &d.own, &owner, &folded, &sharers)
		d.free = owner == ""
		if folded { // what is owned of another generation is given up
			names, owners, at = append(names, d.String()), append(owners, owner), append(at, read)
		}
		read++
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, to := range deal(names, owners, sharers) {
		found[at[i]].mine = to == s.cfg.Instance
	}
	return slices.DeleteFunc(found, func(d dealt) bool { return !d.mine && !d.own }), nil
}

// deal says which of the sharers, in order, each partition is for, given who owns it
// now; "" when there are none. Loads differ by at most one. Nobody loses a partition
// but to make room: when one of them leaves, only its own partitions move, and when one
// joins, only as many as it gets. Equal arguments give equal answers.
func deal(partitions, owners, sharers []string) []string {
	to := make([]string, len(partitions))
	if len(sharers) == 0 {
		return to
	}
	owned := map[string][]int{}
	for i, owner := range owners {
		if _, ok := slices.BinarySearch(sharers, owner); ok {
			owned[owner] = append(owned[owner], i)
		}
	}
	// Those that have more than their part keep one more, where the number does not come
	// out even: they have more still while they let go of others.
	part, extra := len(partitions)/len(sharers), len(partitions)%len(sharers)
	ranked := slices.Clone(sharers)
	slices.SortStableFunc(ranked, func(a, b string) int { return min(1, max(0, len(owned[b])-part)) - min(1, max(0, len(owned[a])-part)) })
	type share struct{ sharer, topic string }
	load, of := map[string]int{}, map[share]int{}
	give := func(i int, name string) {
		to[i] = name
		load[name]++
		of[share{name, topicOf(partitions[i])}]++
	}
	for rank, name := range ranked {
		room := part
		if rank < extra {
			room++
		}
		mine := owned[name]
		slices.SortFunc(mine, func(a, b int) int { return cmp.Compare(weight(name, partitions[b]), weight(name, partitions[a])) })
		for len(mine) > room { // what it has most of goes first
			count := map[string]int{}
			for _, i := range mine {
				count[topicOf(partitions[i])]++
			}
			at := 0
			for j, i := range mine {
				if count[topicOf(partitions[i])] >= count[topicOf(partitions[mine[at]])] {
					at = j
				}
			}
			mine = slices.Delete(mine, at, at+1)
		}
		for _, i := range mine {
			give(i, name)
		}
	}
	// Of the rest, each goes where there is room and least of its topic.
	for i, p := range partitions {
		if to[i] == "" {
			full := part
			if !slices.ContainsFunc(sharers, func(s string) bool { return load[s] < part }) {
				full++
			}
			topic := topicOf(p)
			give(i, slices.MinFunc(sharers, func(a, b string) int {
				return cmp.Or(cmp.Compare(load[a]/max(full, 1), load[b]/max(full, 1)), cmp.Compare(of[share{a, topic}], of[share{b, topic}]),
					cmp.Compare(load[a], load[b]), cmp.Compare(weight(b, p), weight(a, p)))
			}))
		}
	}
	return to
}

// topicOf is the generation and topic of a partition.
func topicOf(partition string) string { return partition[:strings.LastIndexByte(partition, '/')] }

// weight orders the sharers of a partition as rendezvous hashing does.
func weight(sharer, partition string) uint64 {
	h := sha256.Sum256([]byte(sharer + "\x00" + partition))
	return binary.BigEndian.Uint64(h[:])
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
	if s.cfg.Left != nil {
		s.cfg.Left(h)
	}
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
	var said string
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
		if say := err.Error(); say != said {
			said = say
			s.log.Warn("folding a partition failed; it is tried again", "generation", h.Generation, "partition", h.TopicPartition.String(), "error", err, "pause", pause.String())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
