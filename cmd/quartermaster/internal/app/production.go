package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/postgres"
	"quartermaster/domain"
	"quartermaster/projections"
)

var errNoProduction = errors.New("this is for a log in production: name the configuration with --config or QUARTERMASTER_CONFIG")

// Database opens the rows in production.
func (s *App) Database(ctx context.Context) (*postgres.DB, error) {
	if s.Config == nil {
		return nil, errNoProduction
	}
	cfg, err := s.Config.ForPostgres()
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, cfg)
}

// purpose is what a data directory is opened for.
type purpose int

// Whoever only reads makes nothing; whoever appends makes the topics of a log
// that no rows are of yet.
const (
	Reading purpose = iota
	Appending
)

// errNoTopics means that a Kafka has no topics of ours: it is new, or another.
var errNoTopics = errors.New("this Kafka has no topics of Quartermaster's yet: start \"quartermaster serve\", which makes them, or correct kafka.brokers")

// OpenProduction opens log and rows. Rows of another log are refused before
// anything is made.
func (s *App) OpenProduction(ctx context.Context, why purpose) (*Conn, error) {
	h, err := s.Dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := h.openRows(ctx, why); err != nil {
		return nil, errors.Join(err, h.Shut())
	}
	return h, nil
}

func (h *Conn) openRows(ctx context.Context, why purpose) (err error) {
	h.Log.Guard = h.agrees
	if h.DB, err = h.app.Database(ctx); err != nil {
		return err
	}
	cfg, err := h.app.Config.ForPostgres()
	if err != nil {
		return err
	}
	state, err := postgres.Inspect(ctx, cfg)
	if err != nil {
		return err
	}
	if state.LogID != "" {
		if err := h.DB.Bind(ctx, h.ID, nil); err != nil {
			return err
		}
	}
	if why == Reading {
		err = h.haveTopics(ctx)
	} else {
		err = h.makeTopics(ctx, state.Topics)
	}
	if err != nil || state.LogID == "" && why == Reading {
		return err // rows that are of no log yet are none: whoever folds the first says of which
	}
	return h.Bind(ctx)
}

// haveTopics makes sure that the topics are there and as they must be.
func (h *Conn) haveTopics(ctx context.Context) error {
	specs := domain.TopicSpecs()
	missing, err := h.Log.MissingTopics(ctx, specs)
	switch {
	case err != nil:
		return err
	case len(missing) == len(specs):
		return errNoTopics
	case len(missing) > 0:
		return fmt.Errorf("this Kafka lacks topics %v: if they were never there, start \"quartermaster serve\", which makes them; if they were deleted, restore them", missing)
	}
	return h.Log.CheckTopics(ctx, specs)
}

// makeTopics makes those topics that the rows know nothing of and checks all. One
// that rows were folded from is never made again: it would be empty.
func (h *Conn) makeTopics(ctx context.Context, known map[domain.Topic]postgres.TopicIdentity) error {
	specs := domain.TopicSpecs()
	fresh := slices.DeleteFunc(slices.Clone(specs), func(s domain.TopicSpec) bool { _, ok := known[s.Topic]; return ok })
	err := h.Log.EnsureTopics(ctx, fresh)
	if errors.Is(err, kafkago.InvalidReplicationFactor) {
		has := "fewer"
		if n, err := h.Log.Brokers(ctx); err == nil {
			has = fmt.Sprint(n)
		}
		return fmt.Errorf("%w: kafka.replication is %d and the cluster has %s brokers: start the others, or set kafka.replication to what it has", err, h.app.Config.Kafka.Replication, has)
	}
	if err != nil {
		return err
	}
	err = h.Log.CheckTopics(ctx, specs)
	if errors.Is(err, kafkago.UnknownTopicOrPartition) {
		return fmt.Errorf("%w: a topic that they were folded from is gone; restore it: %w", postgres.ErrOtherLog, err)
	}
	return err
}

// Bind refuses rows of another log, and a log whose topics were made anew.
func (h *Conn) Bind(ctx context.Context) error {
	topics, err := h.Log.TopicIDs(ctx)
	if err != nil {
		return err
	}
	return h.DB.Bind(ctx, h.ID, topics)
}

// How a command waits for rows that other processes fold: it looks every
// awaitEvery, and gives up once they have not moved for awaitPatience.
const (
	AwaitEvery    = 100 * time.Millisecond
	awaitPatience = 10 * time.Second
)

// await waits until the instances have folded the log up to end. Where they do
// not, the answer is of what is folded, and a note says so: an answer names its
// position, and old rows are better than none while a database is restarted.
func (h *Conn) await(ctx context.Context, end domain.Position) error {
	bar := h.app.track(Work{Name: "wait", Total: end.Records(), Unit: "events"})
	defer bar.Stop()
	var at domain.Position
	tick := time.NewTicker(AwaitEvery)
	defer tick.Stop()
	for moved := time.Now(); ; {
		var now domain.Position
		if err := h.View(ctx, func(v projections.View) error { now = v.Position(); return nil }); err != nil {
			return err
		}
		bar.Set(now.Records())
		if now.Covers(end) {
			diverged, err := h.diverged(ctx)
			if err == nil && diverged != nil {
				h.app.tell("%s. What follows is of the log as it was", Advised(diverged))
			}
			return err
		}
		stops, err := h.Standing(ctx, now, end)
		if err != nil {
			return err
		}
		if stops != nil {
			h.noteStops(stops, end)
			return nil
		}
		if at == nil || now.Records() > at.Records() {
			at, moved = now, time.Now()
		}
		if time.Since(moved) > cmp.Or(h.app.Patience, awaitPatience) {
			stops, err := h.DB.Stops(ctx)
			maps.DeleteFunc(stops, func(tp domain.TopicPartition, _ projections.Stop) bool { return now[tp] >= end[tp] })
			h.noteStops(stops, end)
			left := end.Records() - now.Records()
			for tp := range stops {
				left -= end[tp] - now[tp]
			}
			if left > 0 {
				h.app.tell("%s events of the log are not folded, and for %s none was: is an instance of \"quartermaster serve --config %s\" running? What follows is at position %s",
					comma(int(left)), cmp.Or(h.app.Patience, awaitPatience), h.app.ConfigPath, now)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// diverged returns what is wrong where the log is not the one that the rows were
// folded from, a [kafka.ErrDiverged]; nil: it is the same.
func (h *Conn) diverged(ctx context.Context) (wrong, err error) {
	found, err := h.DivergedPartitions(ctx)
	return JoinedErrors(found), err
}

// DivergedPartitions is diverged by partition.
func (h *Conn) DivergedPartitions(ctx context.Context) (map[domain.TopicPartition]*kafka.DivergedError, error) {
	var at domain.Position
	var anchors map[domain.TopicPartition]domain.Anchor
	if err := h.View(ctx, func(v projections.View) error { at, anchors = v.Position(), v.Anchors(); return nil }); err != nil {
		return nil, err
	}
	return h.Log.Diverged(ctx, at, anchors)
}

// JoinedErrors are the errors in order; nil where there are none.
func JoinedErrors(found map[domain.TopicPartition]*kafka.DivergedError) error {
	var errs []error
	for _, tp := range slices.SortedFunc(maps.Keys(found), domain.TopicPartition.Compare) {
		errs = append(errs, found[tp])
	}
	return errors.Join(errs...)
}

// StopOf is the stop of a partition that has diverged, as its runner says it.
func StopOf(d *kafka.DivergedError) projections.Stop {
	return projections.Stop{Offset: d.Position, Reason: d.Error(), Advice: d.Advice(), Kind: d.Kind()}
}

// agreed is what is known of whether the log still is what the rows were folded from.
type agreed struct {
	mu      sync.Mutex
	read    time.Time // when the rows were asked
	at      domain.Position
	anchors map[domain.TopicPartition]domain.Anchor
	stops   projections.Stops
	checked map[domain.TopicPartition]time.Time
}

// agreeEvery is how long a partition counts as the one that was folded.
const agreeEvery = time.Second

// agrees is the [kafka.Log.Guard] in production: records that are appended to a
// log that lost some would take their offsets. It fails with a [kafka.ErrDiverged]. A
// partition is looked at once a second, and after each failure or new connection. While the
// database is away, the rows are those that were read last.
func (h *Conn) agrees(ctx context.Context, tp domain.TopicPartition, anew bool) error {
	known := &h.agreed
	known.mu.Lock()
	fresh := !anew && time.Since(known.checked[tp]) < agreeEvery
	known.mu.Unlock()
	if fresh {
		return nil
	}
	began := time.Now()
	at, anchors, stops, err := h.folded(ctx, anew)
	if err != nil {
		return fmt.Errorf("compare the log with the rows: %w", err)
	}
	_, next, err := h.Log.Bounds(ctx, tp)
	if err != nil {
		return fmt.Errorf("compare the log with the rows: %w", err)
	}
	// The last record is compared where something happened, not each second.
	if anew || next < at[tp] || stops[tp].Advice != "" {
		found, err := h.Log.Diverged(ctx, domain.Position{tp: at[tp]}, anchors)
		if err != nil {
			return err
		}
		if d := found[tp]; d != nil {
			return d
		}
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if known.checked == nil {
		known.checked = map[domain.TopicPartition]time.Time{}
	}
	known.checked[tp] = began
	return nil
}

// folded returns how far the rows are folded and what stands still: as of now when asked
// anew, else as of a second ago at most, or as last known while the database does not answer.
func (h *Conn) folded(ctx context.Context, anew bool) (domain.Position, map[domain.TopicPartition]domain.Anchor, projections.Stops, error) {
	known := &h.agreed
	known.mu.Lock()
	defer known.mu.Unlock()
	if !anew && known.at != nil && time.Since(known.read) < agreeEvery {
		return known.at, known.anchors, known.stops, nil
	}
	began := time.Now()
	err := h.View(ctx, func(v projections.View) error { known.at, known.anchors = v.Position(), v.Anchors(); return nil })
	if err == nil {
		known.read = began
		if known.stops, err = h.DB.Stops(ctx); err == nil {
			return known.at, known.anchors, known.stops, nil
		}
	}
	if known.at == nil {
		return nil, nil, nil, err
	}
	return known.at, known.anchors, known.stops, nil
}

// Standing returns the partitions that rows at a position lack records of, if every
// one of them stands still until a person acts: there is nothing to wait for.
func (h *Conn) Standing(ctx context.Context, at, end domain.Position) (projections.Stops, error) {
	stops, err := h.DB.Stops(ctx)
	if err != nil {
		return nil, err
	}
	lag := projections.Stops{}
	for tp, to := range end {
		if at[tp] >= to {
			continue
		}
		stop, ok := stops[tp]
		if !ok || stop.Advice == "" {
			return nil, nil
		}
		lag[tp] = stop
	}
	return lag, nil
}

// Digest returns the digest of the rows and the position that they stand for.
func (h *Conn) Digest(ctx context.Context) (sum [32]byte, at domain.Position, err error) {
	if h.DB == nil {
		return h.store.Digest()
	}
	err = h.View(ctx, func(v projections.View) error {
		at = v.Position()
		sum, err = projections.DigestOf(v)
		return err
	})
	if err != nil {
		err = fmt.Errorf("digest the rows: %w", err)
	}
	return sum, at, err
}
