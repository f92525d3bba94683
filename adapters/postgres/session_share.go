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

// errTaken is the reason to end work on a partition that another session owns now.
var errTaken = fmt.Errorf("its owner is another session: %w", projections.ErrFenced)

// lostError is why a session was lost. It wraps [projections.ErrFenced], but its text does not say
// "fenced", because no other session need have taken over.
type lostError string

func (e lostError) Error() string { return string(e) }

func (lostError) Unwrap() error { return projections.ErrFenced }

// After a failure, work on a partition restarts after firstPause. The pause doubles each time, up
// to lastPause.
const (
	firstPause = time.Second
	lastPause  = 15 * time.Second
)

// Work folds one partition until its context ends.
type Work func(ctx context.Context, store *Store, tp domain.TopicPartition) error

// Share folds this session's share of the partitions until ctx ends. It then releases them and
// returns nil.
//
// The partitions of the live generations of the session's method are assigned to the live sessions
// of that method that share. The assignment is even, depends on the names of the instances, and
// moves as few partitions as possible (see assign). A session claims free partitions that are
// assigned to it. It releases a partition that is assigned elsewhere after the work on it has
// returned. A session that joins or leaves is noticed within a quarter of a lease, and a dead one
// when its lease is over.
//
// While the claim lasts, work that fails is restarted after a pause of 1s, which doubles up to 15s.
// There are three exceptions. [projections.ErrFenced] ends the claim. Nil means that there is
// nothing more to do. A fatal error ends Share, which returns it. If the session is lost, Share
// returns the reason.
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
	tick := time.NewTicker(s.cfg.Lease / heartbeatsPerLease)
	defer tick.Stop()
	sharing, failing := false, false
	for ctx.Err() == nil {
		err := error(nil)
		if !sharing {
			err = s.share(ctx, true)
			sharing = err == nil
		}
		if sharing {
			err = s.rebalance(ctx, stores, start)
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
			s.log.Warn("cannot record that this instance stops", "error", err)
		}
	}
	wg.Wait()
	if s.dropped > 0 {
		s.log.Info("lost partitions with the session", "partitions", s.dropped, "why", context.Cause(s.ctx))
	}
	if s.ctx.Err() == nil {
		if err := s.releaseAll(ctx); err != nil {
			s.log.Warn("cannot release all partitions", "error", err)
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

// share records whether partitions are assigned to this session.
func (s *Session) share(ctx context.Context, sharing bool) error {
	_, err := s.db.ExecContext(ctx, `update quartermaster.sessions set sharing = $2 where token = $1`, s.token, sharing)
	return err
}

// releaseAll releases all partitions that the session owns, including those of a claim that was
// interrupted after it was made.
func (s *Session) releaseAll(ctx context.Context) error {
	bound, stop := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease)
	defer stop()
	_, err := s.db.ExecContext(bound, `update quartermaster.partitions set owner = null where owner = $1`, s.token)
	return err
}

// errNotAlive is what look returns once the session's lease is over by the database's clock. Nothing is
// assigned to it then, but its partitions MUST NOT be released as if others wanted them: the heartbeat
// ends the session, says why, and counts what was lost.
var errNotAlive = errors.New("the database does not count this instance as alive")

// assignment is a partition that is assigned to this session or owned by it.
type assignment struct {
	Holding
	place           string // the database that has its rows
	mine, own, free bool   // assigned to this session, owned by it, owned by no live session
}

func (s *Session) look(ctx context.Context) ([]assignment, error) {
	rows, err := s.db.QueryContext(ctx, `
		with alive as (
			select s.token, s.instance, sharing and method = $1 as shares from quartermaster.sessions s where `+aliveNow+`
		)
		select p.generation, p.topic, p.partition, p.database, coalesce(p.owner = $2, false), coalesce(a.instance, ''),
			g.state = 'live' and g.method = $1,
			array(select instance from alive where shares order by instance collate "C")
		from quartermaster.partitions p join quartermaster.generations g on g.name = p.generation
		left join alive a on a.token = p.owner
		where g.state = 'live' and g.method = $1 or p.owner = $2
		order by p.generation collate "C", p.topic collate "C", p.partition`, s.cfg.Method, s.token)
	if err != nil {
		return nil, err
	}
	var (
		names, owners []string // of the assigned partitions
		at            []int    // their indexes in found
		sharers       pq.StringArray
		read          int
	)
	found, err := collect(rows, func(rows *sql.Rows, d *assignment) error {
		var owner string
		var folded bool
		err := rows.Scan(&d.Generation, &d.Topic, &d.Partition, &d.place, &d.own, &owner, &folded, &sharers)
		d.free = owner == ""
		if folded { // owned partitions of other generations are released
			names, owners, at = append(names, d.String()), append(owners, owner), append(at, read)
		}
		read++
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(found) > 0 && !slices.Contains(sharers, s.cfg.Instance) {
		return nil, errNotAlive
	}
	for i, to := range assign(names, owners, sharers) {
		found[at[i]].mine = to == s.cfg.Instance
	}
	return slices.DeleteFunc(found, func(d assignment) bool { return !d.mine && !d.own }), nil
}

// assign assigns each partition to one of the sharers, given its current owner. sharers MUST be
// sorted. If there are no sharers, the result is "". Loads differ by at most one. As few partitions
// as possible move: if a sharer leaves, only its own partitions move, and if one joins, only as
// many as it gets. Equal arguments give equal results.
func assign(partitions, owners, sharers []string) []string {
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
	// If the division leaves a remainder, owners with more than the even part keep one partition
	// more. They own more than that until they have released the others.
	part, extra := len(partitions)/len(sharers), len(partitions)%len(sharers)
	ranked := slices.Clone(sharers)
	more := func(name string) int { return min(1, max(0, len(owned[name])-part)) }
	slices.SortStableFunc(ranked, func(a, b string) int { return more(b) - more(a) })
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
		slices.SortFunc(mine, func(a, b int) int {
			return cmp.Compare(weight(name, partitions[b]), weight(name, partitions[a]))
		})
		for len(mine) > room { // release from the topic with the most partitions
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
	// Each remaining partition goes to a sharer with room that has the fewest partitions of its
	// topic.
	for i, p := range partitions {
		if to[i] == "" {
			full := part
			if !slices.ContainsFunc(sharers, func(s string) bool { return load[s] < part }) {
				full++
			}
			topic := topicOf(p)
			give(i, slices.MinFunc(sharers, func(a, b string) int {
				return cmp.Or(
					cmp.Compare(load[a]/max(full, 1), load[b]/max(full, 1)),
					cmp.Compare(of[share{a, topic}], of[share{b, topic}]),
					cmp.Compare(load[a], load[b]),
					cmp.Compare(weight(b, p), weight(a, p)),
				)
			}))
		}
	}
	return to
}

// topicOf returns the generation and topic of a partition.
func topicOf(partition string) string { return partition[:strings.LastIndexByte(partition, '/')] }

// weight orders the sharers of a partition as rendezvous hashing does.
func weight(sharer, partition string) uint64 {
	h := sha256.Sum256([]byte(sharer + "\x00" + partition))
	return binary.BigEndian.Uint64(h[:])
}

// rebalance claims partitions that are assigned to this session and releases the others.
func (s *Session) rebalance(ctx context.Context, stores map[string]*Store, start func(Holding, *Store)) error {
	ctx, stop := context.WithTimeout(ctx, s.cfg.Lease)
	defer stop()
	found, err := s.look(ctx)
	if err != nil {
		return err
	}
	keep := map[Holding]bool{}
	todo := map[string][]assignment{} // by the database that has the rows
	for _, d := range found {
		if stores[d.Generation] == nil {
			stores[d.Generation] = s.Store(d.Generation)
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
		case d.mine && (d.own || d.free), d.own:
			todo[d.place] = append(todo[d.place], d)
		}
	}
	// A database that does not answer keeps no partition of another one waiting.
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for place, list := range todo {
		wg.Go(func() {
			for _, d := range list {
				err := s.settle(ctx, d, stores[d.Generation], func(h Holding, store *Store) {
					mu.Lock()
					keep[h] = true
					mu.Unlock()
					start(h, store)
				})
				if err != nil {
					mu.Lock()
					errs = append(errs, within(place, err))
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil && len(errs) == len(todo) {
		return err
	} else if err != nil && !s.partly {
		s.partly = true
		s.log.Warn("cannot claim the partitions of a database", "error", err)
	} else if err == nil {
		s.partly = false
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

// settle claims a partition that is assigned to this session, and releases one that it owns and that
// is not.
func (s *Session) settle(ctx context.Context, d assignment, store *Store, start func(Holding, *Store)) error {
	// If the session owns it already, its work has ended, the answer to an earlier claim was lost, or
	// an earlier release failed.
	claimed, err := store.Claim(ctx, d.TopicPartition)
	switch {
	case err != nil:
		return fmt.Errorf("claim %s: %w", d, err)
	case claimed && d.mine:
		start(d.Holding, store)
	case claimed:
		if err := store.Release(ctx, d.TopicPartition); err != nil {
			return fmt.Errorf("release %s: %w", d, err)
		}
	}
	return nil
}

// hold works on a partition while this session holds it, then releases it. It returns only fatal
// errors.
func (s *Session) hold(ctx context.Context, h Holding, store *Store, work Work) error {
	err := s.workUntilDone(ctx, h, store, work)
	if s.cfg.Left != nil {
		s.cfg.Left(h)
	}
	lost := errors.Is(err, projections.ErrFenced)
	if !lost {
		bound, stop := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Lease)
		defer stop()
		if err := store.Release(bound, h.TopicPartition); err != nil {
			s.log.Warn("cannot release a partition",
				"generation", h.Generation, "partition", h.TopicPartition.String(), "error", err)
		}
	}
	s.mu.Lock()
	delete(s.held, h)
	together := s.ctx.Err() != nil // the whole session is lost; Share logs that once
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

// workUntilDone works until ctx ends, and then returns its cause, or until a retry cannot help.
func (s *Session) workUntilDone(ctx context.Context, h Holding, store *Store, work Work) error {
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
			s.log.Warn("folding a partition failed; trying again", "generation", h.Generation,
				"partition", h.TopicPartition.String(), "error", err, "pause", pause.String())
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
