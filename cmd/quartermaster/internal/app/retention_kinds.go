package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"quartermaster/adapters/kafka/archive"
	"quartermaster/adapters/kafka/embedded"
	"quartermaster/adapters/snapshotfile"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// logRemover deletes records of the log that the archive has.
type logRemover struct {
	h      *Conn
	before domain.Instant // only segments whose records are all before; 0: as the policy says
}

// beforeTime reads a time that bounds what is removed; 0 if s is empty.
func beforeTime(s string) (domain.Instant, error) {
	if s == "" {
		return 0, nil
	}
	t, err := domain.ParseTime(s)
	if err != nil {
		return 0, invalid("before", "%w", err)
	}
	return t, nil
}

// keptSince returns the time from which a rule for a number of days keeps records.
func keptSince(rule *registry.RetentionRule, now domain.Instant) domain.Instant {
	return now - domain.Instant(rule.Keep.Days)*domain.Day
}

// cutoff returns the time before which a rule lets go of records.
func (l *logRemover) cutoff(rule *registry.RetentionRule, now domain.Instant) (domain.Instant, error) {
	t := keptSince(rule, now)
	switch {
	case l.before == 0:
		return t, nil
	case l.before > t:
		return 0, invalid("before", "%s is too late: policy %s keeps %s, since %s", l.before, rule.Policy, rule.Rule, t)
	}
	return l.before, nil
}

func (l *logRemover) plan(
	ctx context.Context, v projections.View, r *registry.Retention, rule *registry.RetentionRule, now domain.Instant,
) (p removable, err error) {
	cutoff, err := l.cutoff(rule, now)
	if err != nil {
		return p, err
	}
	tps := domain.AllPartitions()
	first, _, err := l.h.Log.BrokerBounds(ctx, tps)
	if err != nil {
		return p, err
	}
	for _, tp := range tps {
		to, err := l.until(ctx, tp, cutoff)
		if err != nil {
			return p, err
		}
		// A hold keeps the segments from the first on that may have something it covers: of a log only
		// the beginning can be deleted.
		for i := range r.Holds {
			hold := &r.Holds[i]
			covers, err := coversPartition(v, hold, tp)
			if err != nil {
				return p, err
			}
			limit := first[tp]
			if covers && hold.Period.From != 0 {
				if limit, err = l.until(ctx, tp, hold.Period.From); err != nil {
					return p, err
				}
			}
			if covers && limit < to {
				p.keep(hold.Hold)
				to = max(limit, first[tp])
			}
		}
		if n := to - first[tp]; n > 0 {
			p.add(domain.Removed{Topic: tp.Topic, Partition: uint32(tp.Partition), From: first[tp], To: to, Records: uint64(n)})
		}
	}
	return p, nil
}

// due does not know the time that bounds a new removal.
func (l *logRemover) due(
	ctx context.Context, _ projections.View, rule *registry.RetentionRule, now domain.Instant,
) (func(*domain.Removed) (bool, error), error) {
	return func(r *domain.Removed) (bool, error) {
		tp := domain.TopicPartition{Topic: r.Topic, Partition: int(r.Partition)}
		to, err := l.until(ctx, tp, keptSince(rule, now))
		return r.To <= to, err
	}, nil
}

// until returns the first offset of the first segment that is not all before a time: the log may be
// deleted up to there.
func (l *logRemover) until(ctx context.Context, tp domain.TopicPartition, t domain.Instant) (int64, error) {
	to, err := l.h.archive.Since(ctx, tp, t)
	if err != nil {
		return 0, err
	}
	if to == math.MaxInt64 {
		if to, err = l.h.archive.End(ctx, tp); err != nil {
			return 0, err
		}
	}
	if l.h.Broker != nil {
		return embedded.Droppable(l.h.app.Dir, string(tp.Topic), tp.Partition, to)
	}
	return to, nil
}

// heldBy reports whether a hold keeps a record before an offset. A hold on a workspace keeps records of
// all, because a batch has records of several.
func (l *logRemover) heldBy(
	ctx context.Context, v projections.View, hold *registry.LegalHold, tp domain.TopicPartition, to int64,
) (bool, error) {
	if covers, err := coversPartition(v, hold, tp); err != nil || !covers {
		return false, err
	}
	if hold.Period.From == 0 {
		return true, nil
	}
	from, err := l.h.archive.Since(ctx, tp, hold.Period.From)
	return from < to, err
}

// coversPartition reports whether a partition may have records that a hold covers.
func coversPartition(v projections.View, hold *registry.LegalHold, tp domain.TopicPartition) (bool, error) {
	if hold.Cluster == "" {
		return true, nil
	}
	in, err := registry.ClusterPartitions(v, hold.Cluster)
	if err != nil {
		return false, err
	}
	return in[tp] || !registry.KeyedByCluster(tp.Topic), nil
}

func (l *logRemover) held(
	ctx context.Context, v projections.View, holds []registry.LegalHold, r *domain.Removed,
) (by []string, err error) {
	tp := domain.TopicPartition{Topic: r.Topic, Partition: int(r.Partition)}
	for i := range holds {
		held, err := l.heldBy(ctx, v, &holds[i], tp, r.To)
		if err != nil {
			return nil, err
		}
		if held {
			by = append(by, holds[i].Hold)
		}
	}
	return by, nil
}

// check reads what is to be deleted from archive and log, and compares it.
func (l *logRemover) check(ctx context.Context, list []domain.Removed) error {
	for i := range list {
		tp := domain.TopicPartition{Topic: list[i].Topic, Partition: int(list[i].Partition)}
		first, _, err := l.h.Log.BrokerBounds(ctx, []domain.TopicPartition{tp})
		if err != nil {
			return err
		}
		to, err := l.h.archive.Confirm(ctx, l.h.Log, tp, first[tp], list[i].To)
		if err != nil {
			return err
		}
		if to < list[i].To {
			return &archive.DamageError{Partition: tp, Offset: to, Reason: fmt.Sprintf("it ends before offset %d", list[i].To)}
		}
	}
	return nil
}

func (l *logRemover) remove(ctx context.Context, r *domain.Removed) error {
	if gone, err := l.gone(ctx, r); err != nil || gone {
		return err
	}
	tp := domain.TopicPartition{Topic: r.Topic, Partition: int(r.Partition)}
	now, err := l.h.Log.DeleteRecords(ctx, tp, r.To)
	if err == nil && now < r.To {
		err = fmt.Errorf("delete records of %s before offset %d: the log still begins at %d", tp, r.To, now)
	}
	return err
}

func (l *logRemover) gone(ctx context.Context, r *domain.Removed) (bool, error) {
	tp := domain.TopicPartition{Topic: r.Topic, Partition: int(r.Partition)}
	first, _, err := l.h.Log.BrokerBounds(ctx, []domain.TopicPartition{tp})
	return first[tp] >= r.To, err
}

// snapshotRemover removes scheduled snapshots.
type snapshotRemover struct{ h *Conn }

func (s snapshotRemover) plan(
	ctx context.Context, v projections.View, r *registry.Retention, rule *registry.RetentionRule, _ domain.Instant,
) (p removable, err error) {
	old, err := snapshotfile.Old(s.h.Snapshots(), rule.Keep)
	if err != nil {
		return p, err
	}
	for _, in := range old {
		removed := domain.Removed{File: filepath.Base(in.Path), Records: 1, Digest: in.Digest[:]}
		by, err := s.held(ctx, v, r.Holds, &removed)
		if err != nil {
			return p, err
		}
		p.keep(by...)
		if len(by) == 0 {
			p.add(removed)
		}
	}
	return p, nil
}

func (s snapshotRemover) due(
	_ context.Context, _ projections.View, rule *registry.RetentionRule, _ domain.Instant,
) (func(*domain.Removed) (bool, error), error) {
	old, err := snapshotfile.Old(s.h.Snapshots(), rule.Keep)
	return func(r *domain.Removed) (bool, error) {
		return slices.ContainsFunc(old, func(in snapshotfile.Info) bool {
			return filepath.Base(in.Path) == r.File && bytes.Equal(in.Digest[:], r.Digest)
		}), nil
	}, err
}

// held returns the holds whose period began before a snapshot was made: it may have rows of it.
func (s snapshotRemover) held(
	_ context.Context, _ projections.View, holds []registry.LegalHold, r *domain.Removed,
) (by []string, err error) {
	in := snapshotfile.InfoOf(filepath.Join(s.h.Snapshots(), r.File))
	if errors.Is(in.Err, os.ErrNotExist) {
		return nil, nil
	}
	for i := range holds {
		if in.Made >= holds[i].Period.From {
			by = append(by, holds[i].Hold)
		}
	}
	return by, nil
}

func (snapshotRemover) check(context.Context, []domain.Removed) error { return nil }

func (s snapshotRemover) remove(_ context.Context, r *domain.Removed) error {
	return snapshotfile.Remove(s.h.Snapshots(), r.File)
}

func (s snapshotRemover) gone(_ context.Context, r *domain.Removed) (bool, error) {
	_, err := os.Stat(filepath.Join(s.h.Snapshots(), r.File))
	if errors.Is(err, os.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// quarantineRemover takes resolved records off the list of the quarantine.
type quarantineRemover struct {
	entries map[string]*projections.QuarantineEntry // of the rows that were read last
}

// mostUnlisted is how many records a removal takes off the list, so that its events stay small.
const mostUnlisted = 5000

func (q *quarantineRemover) read(v projections.View) (*projections.QuarantineList, error) {
	list, err := registry.Quarantine(v)
	if err != nil {
		return nil, err
	}
	q.entries = map[string]*projections.QuarantineEntry{}
	for i := range list.Entries {
		q.entries[list.Entries[i].ID] = &list.Entries[i]
	}
	return list, nil
}

func (q *quarantineRemover) plan(
	ctx context.Context, v projections.View, r *registry.Retention, rule *registry.RetentionRule, now domain.Instant,
) (p removable, err error) {
	list, err := q.read(v)
	if err != nil {
		return p, err
	}
	for i := range list.Entries {
		e := &list.Entries[i]
		if !unlistable(e, rule, now) {
			continue
		}
		removed := domain.Removed{
			Topic: e.Topic, Partition: uint32(e.Partition), From: e.Offset, To: max(e.Last, e.Offset) + 1,
			Records: uint64(e.Events()),
		}
		by, err := q.held(ctx, v, r.Holds, &removed)
		if err != nil {
			return p, err
		}
		p.keep(by...)
		if len(by) == 0 {
			p.add(removed)
		}
		if len(p.removed) == mostUnlisted {
			break
		}
	}
	return p, nil
}

// unlistable reports whether a rule takes a record off the list.
func unlistable(e *projections.QuarantineEntry, rule *registry.RetentionRule, now domain.Instant) bool {
	return e.Resolution != "" && e.Resolved < keptSince(rule, now)
}

func (q *quarantineRemover) due(
	_ context.Context, v projections.View, rule *registry.RetentionRule, now domain.Instant,
) (func(*domain.Removed) (bool, error), error) {
	if _, err := q.read(v); err != nil {
		return nil, err
	}
	return func(r *domain.Removed) (bool, error) {
		e := q.entries[projections.RecordID(r.Topic, r.Partition, r.From)]
		return e != nil && unlistable(e, rule, now), nil
	}, nil
}

// held returns the holds that may be about a record. One whose workspace or cluster is unknown may be
// of any.
func (q *quarantineRemover) held(
	_ context.Context, v projections.View, holds []registry.LegalHold, r *domain.Removed,
) (by []string, err error) {
	if q.entries == nil {
		if _, err := q.read(v); err != nil {
			return nil, err
		}
	}
	e := q.entries[projections.RecordID(r.Topic, r.Partition, r.From)]
	if e == nil {
		return nil, nil
	}
	other := func(held, has string) bool { return held != "" && has != "" && held != has }
	for i := range holds {
		h := &holds[i]
		if other(h.Workspace, e.Workspace) || other(h.Cluster, e.Cluster) ||
			h.Period != (domain.Interval{}) && (e.Appended < h.Period.From || e.Appended >= h.Period.To) {
			continue
		}
		by = append(by, h.Hold)
	}
	return by, nil
}

func (*quarantineRemover) check(context.Context, []domain.Removed) error { return nil }

// remove does nothing: the event of the removal takes the record off the list, because rows are a
// function of the log alone.
func (*quarantineRemover) remove(context.Context, *domain.Removed) error { return nil }

func (*quarantineRemover) gone(context.Context, *domain.Removed) (bool, error) { return false, nil }
