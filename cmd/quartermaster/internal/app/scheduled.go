package app

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"quartermaster/adapters/kafka"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/adapters/wire"
	"quartermaster/domain"
	"quartermaster/domain/merkle"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// recordOnce appends the only event of its stream: source, life, sequence 1. After a crash before
// the run was noted as done, the next attempt may append another. It is a repeat, which the folds
// drop: the first one counts.
func (h *Conn) recordOnce(ctx context.Context, source string, life domain.Instant, env *domain.Envelope) error {
	s := kafka.NewStream(h.Log, kafka.StreamConfig{Source: source, Incarnation: lifeOf(life), Encode: wire.Encode})
	if err := s.Append(ctx, env); err != nil {
		return fmt.Errorf("append %s to the log: %w", env.Event.Type(), err)
	}
	return nil
}

// lifeOf returns the incarnation of a time.
func lifeOf(t domain.Instant) uint64 { return uint64(t / domain.Second) }

// recorded reports whether the rows know an event that recordOnce appended. They may not know it
// yet.
func (h *Conn) recorded(ctx context.Context, topic domain.Topic, key, source string, life domain.Instant) (known bool, err error) {
	tp := domain.TopicPartition{Topic: topic, Partition: domain.PartitionOf([]byte(key), topic.Partitions())}
	err = h.View(ctx, func(v projections.View) error {
		row, err := v.Get(projections.StreamKey(tp, source, lifeOf(life)))
		known = row != nil
		return err
	})
	return known, err
}

// PlanSource is the source of the plans of the schedule.
const PlanSource = "quartermaster/schedule/plan"

// PlannedBefore is the outcome of a run whose plan was recorded by an earlier attempt that ended
// before it was noted as done.
const PlannedBefore = "a plan was recorded before"

// PlanOnce computes the usual plan at the present position and records it, once for a source and
// life.
func (h *Conn) PlanOnce(ctx context.Context, source string, life, at domain.Instant) (outcome string, err error) {
	q := UsualPlan()
	q.At = at
	if known, err := h.recorded(ctx, domain.TopicProcurement, q.Workspace, source, life); err != nil || known {
		return PlannedBefore, err
	}
	p, known, err := h.computePlan(ctx, q)
	switch {
	case errors.Is(err, ErrNothingToPlan):
		return "nothing to plan: no demand was observed", nil
	case err != nil:
		return "", err
	case p.Empty():
		return "nothing could be planned", nil
	case known:
		return p.ID + " was recorded before", nil
	}
	env, err := planComputed(p, q.Workspace, q.Assumptions)
	if err != nil {
		return "", fmt.Errorf("record plan %s: %w", p.ID, err)
	}
	if err := h.recordOnce(ctx, source, life, env); err != nil {
		return "", fmt.Errorf("record plan %s: %w", p.ID, err)
	}
	return p.ID, nil
}

// Snapshot writes the present rows into a scheduled snapshot.
func (h *Conn) Snapshot(ctx context.Context) (outcome string, err error) {
	var path string
	var sum [32]byte
	if h.DB == nil {
		if err := h.seal(ctx, h.Runner.Progress().Position); err != nil {
			return "", err
		}
	}
	err = h.View(ctx, func(v projections.View) error {
		path, err = snapshotfile.KeepScheduled(h.Snapshots(), v.Position(), func(w io.Writer) error {
			sum, err = projections.WriteSnapshot(w, v, h.ID)
			return err
		})
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, digest %x", path, sum), nil
}

// MonthBefore returns the month before that of t.
func MonthBefore(t time.Time) domain.Interval {
	return projections.BillingMonth(projections.BillingMonth(domain.InstantOf(t)).From - 1)
}

// Remind calls tell for every ledger entity whose books of the previous month are not closed.
func (h *Conn) Remind(ctx context.Context, tick time.Time, tell func(entity string, period domain.Interval) error) (outcome string, err error) {
	month := MonthBefore(tick)
	var open []string
	if err := h.View(ctx, func(v projections.View) error {
		open, err = openBooks(v, month)
		return err
	}); err != nil {
		return "", err
	}
	var errs []error
	for _, entity := range open {
		errs = append(errs, tell(entity, month))
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	if len(open) == 0 {
		return "nothing to close", nil
	}
	return "open: " + strings.Join(open, ", "), nil
}

// openBooks returns the ledger entities whose books of a period are not covered by a close in
// force, in order. Entities are known by earlier closes and exports. Without either, bills of
// that month remind of the workspace platform.
func openBooks(v projections.View, period domain.Interval) (open []string, err error) {
	entities := map[string]bool{} // whether closed
	for _, t := range []projections.Table{projections.TableCloses, projections.TableExports} {
		scopes, err := v.Scopes(t)
		if err != nil {
			return nil, err
		}
		for _, s := range scopes {
			entities[s] = false
		}
	}
	if len(entities) == 0 {
		errFound := errors.New("there are bills")
		err := costs.EachLine(v, period, func(*costs.LedgerLine) error { return errFound })
		if !errors.Is(err, errFound) {
			return nil, err
		}
		return []string{Platform}, nil
	}
	authority, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	if err := v.Scan(projections.Query{Table: projections.TableCloses}, func(k projections.Key, row projections.Row) error {
		history := row.(*projections.History)
		for i := range history.Versions {
			c, ok := history.Versions[i].Event.(*domain.BooksClosed)
			if ok && c.Period.From <= period.From && c.Period.To >= period.To && authority.Judge(k, history, i) == "" {
				entities[k.Scope] = true
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for _, entity := range slices.Sorted(maps.Keys(entities)) {
		if !entities[entity] {
			open = append(open, entity)
		}
	}
	return open, nil
}

// Checkpoint states in the archive what the rows are at a position, beside what is archived of every
// partition ([merkle.Rows] in a [merkle.Head]), signs a checkpoint of it, has it cosigned by the
// witnesses, and appends the checkpoint to the log, once for a life.
//
// It shows that the holder of the key said, no later than the log's own time of the event, that folding
// the records up to this position by this method gives these rows. If folding gives another digest, the
// log or the folds differ.
func (h *Conn) Checkpoint(ctx context.Context, key ed25519.PrivateKey, life, at domain.Instant) (outcome string, err error) {
	const source = "quartermaster/schedule/checkpoint"
	if known, err := h.recorded(ctx, domain.TopicBooks, Platform, source, life); err != nil || known {
		return "a checkpoint was signed before", err
	}
	if h.archive == nil {
		return "", errNoArchive
	}
	var sum [32]byte
	var pos domain.Position
	if err := h.View(ctx, func(v projections.View) error {
		pos = v.Position()
		sum, err = projections.DigestOf(v)
		return err
	}); err != nil {
		return "", err
	}
	head, signed, by, err := h.checkpoint(ctx, &merkle.Rows{Method: projections.Method, SHA256: sum, Position: pos.String()}, key)
	if err != nil {
		return "", err
	}
	env, err := h.checkpointSigned(at, pos, signed)
	if err != nil {
		return "", err
	}
	if err := h.recordOnce(ctx, source, life, env); err != nil {
		return "", err
	}
	// An attempt that ended before it was noted as done may have appended one that the rows did
	// not know above.
	return fmt.Sprintf("head %d with %d records, rows %x, cosigned by %d witnesses; where an earlier attempt appended one, that one counts",
		head.Number, head.Records, sum, len(by)), nil
}
