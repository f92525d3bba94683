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

var errNoProduction error = &helped{&InvalidError{Err: errors.New("this command needs a configuration")}, RemedyNameConfig}

// Database opens the database of the configuration.
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

// A command that only reads creates nothing. A command that appends creates the topics of a log,
// if no rows were folded from it yet.
const (
	Reading purpose = iota
	Appending
)

// errNoTopics means that a Kafka cluster has no topics of ours: it is new, or the wrong one.
var errNoTopics = errors.New("this Kafka cluster has no topics of Quartermaster yet: " +
	"start \"quartermaster serve\", which creates them, or correct kafka.brokers")

// OpenProduction opens log and rows. It refuses rows of another log before it creates anything.
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
	if h.app.Config.Parts != "" {
		h.DB.Parts = h.source
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
		return err // rows that belong to no log yet are empty: the first instance to fold binds them
	}
	return h.Bind(ctx)
}

// haveTopics checks that the topics exist with the required settings.
func (h *Conn) haveTopics(ctx context.Context) error {
	specs := domain.TopicSpecs()
	missing, err := h.Log.MissingTopics(ctx, specs)
	switch {
	case err != nil:
		return err
	case len(missing) == len(specs):
		return errNoTopics
	case len(missing) > 0:
		return fmt.Errorf("this Kafka cluster lacks topics %v: if they never existed, start \"quartermaster serve\", which creates them; "+
			"if they were deleted, restore them", missing)
	}
	return h.Log.CheckTopics(ctx, specs)
}

// makeTopics creates the topics that the rows do not know and checks all. A topic that rows were
// folded from is never created again: it would be empty.
func (h *Conn) makeTopics(ctx context.Context, known map[domain.Topic]postgres.TopicIdentity) error {
	specs := domain.TopicSpecs()
	fresh := slices.DeleteFunc(slices.Clone(specs), func(s domain.TopicSpec) bool { _, ok := known[s.Topic]; return ok })
	err := h.Log.EnsureTopics(ctx, fresh)
	if errors.Is(err, kafkago.InvalidReplicationFactor) {
		has := "fewer"
		if n, err := h.Log.Brokers(ctx); err == nil {
			has = fmt.Sprint(n)
		}
		return fmt.Errorf("%w: kafka.replication is %d and the cluster has %s brokers: start the others, or lower kafka.replication",
			err, h.app.Config.Kafka.Replication, has)
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

// Bind refuses rows of another log, and a log whose topics were recreated.
func (h *Conn) Bind(ctx context.Context) error {
	topics, err := h.Log.TopicIDs(ctx)
	if err != nil {
		return err
	}
	return h.DB.Bind(ctx, h.ID, topics)
}

// A command that waits for rows of other processes polls every awaitEvery, and gives up when they
// make no progress for awaitPatience.
const (
	AwaitEvery    = 100 * time.Millisecond
	awaitPatience = 10 * time.Second
	askEvery      = time.Second // see [postgres.DB.Ask]
)

// await waits until the instances have folded the log up to end. If they do not, the answer uses
// what is folded, and a note says so. An answer names its position, and old rows are better than
// none during a database restart.
func (h *Conn) await(ctx context.Context, end domain.Position) error {
	bar := h.app.track(Work{Name: "wait", Total: end.Records(), Unit: "events"})
	defer bar.Stop()
	var at domain.Position
	tick := time.NewTicker(AwaitEvery)
	defer tick.Stop()
	for moved, asked := time.Now(), (time.Time{}); ; {
		var now domain.Position
		if err := h.View(ctx, func(v projections.View) error { now = v.Position(); return nil }); err != nil {
			return err
		}
		bar.Set(now.Records())
		if now.Covers(end) {
			diverged, err := h.diverged(ctx)
			if err == nil && diverged != nil {
				h.app.tell("%s. The answer is from the log as it was", Advised(diverged))
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
		if time.Since(asked) > askEvery {
			if asked = time.Now(); h.DB.Ask(ctx) != nil {
				asked = asked.Add(awaitPatience) // a role that only reads waits for the next commit
			}
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
				h.app.tell("%s events of the log are not folded, and for %s none was: is an instance of \"quartermaster serve\" running with %s? What follows is at position %s",
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

// diverged returns a [kafka.ErrDiverged] where the log is not the one that the rows were folded
// from; nil: it is the same.
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

// JoinedErrors joins the errors in the order of partitions; nil if there are none.
func JoinedErrors(found map[domain.TopicPartition]*kafka.DivergedError) error {
	var errs []error
	for _, tp := range slices.SortedFunc(maps.Keys(found), domain.TopicPartition.Compare) {
		errs = append(errs, found[tp])
	}
	return errors.Join(errs...)
}

// StopOf returns the stop of a diverged partition, in the words of its runner.
func StopOf(d *kafka.DivergedError) projections.Stop {
	return projections.Stop{Offset: d.Position, Reason: d.Error(), Advice: d.Advice(), Kind: d.Kind()}
}

// agreed caches whether the log still is the one that the rows were folded from.
type agreed struct {
	mu      sync.Mutex
	read    time.Time // when the rows were read
	at      domain.Position
	anchors map[domain.TopicPartition]domain.Anchor
	stops   projections.Stops
	checked map[domain.TopicPartition]time.Time
}

// agreeEvery is how long a comparison of a partition stays valid.
const agreeEvery = time.Second

// agrees is the [kafka.Log.Guard] with --config: new records of a log that lost some would take
// the offsets of lost ones. It fails with a [kafka.ErrDiverged]. It compares a partition once a
// second, and after each failure or new connection. While the database is unreachable it uses the
// rows that were read last.
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
	_, next, err := h.Log.BrokerBounds(ctx, []domain.TopicPartition{tp})
	if err != nil {
		return fmt.Errorf("compare the log with the rows: %w", err)
	}
	// Compare the last record only after an incident, not every second.
	if anew || next[tp] < at[tp] || stops[tp].Advice != "" {
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

// folded returns how far the rows are folded and which partitions are stopped: as of now with
// anew, else at most a second old, or as last known while the database does not answer.
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

// Standing returns the partitions that rows at a position lack records of, if each of them is
// stopped until a person acts: then there is nothing to wait for.
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

// Digest returns the digest of the rows and their position.
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
