package inventory

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// StreamConflict is the kind of exceptions for streams in which several records claim one sequence.
const StreamConflict = "stream_conflict"

// UntoldConflicts returns events about quarantined records that claim the sequence of another, for
// those that have no such event in the log yet, by topic, partition and offset. The events are a
// function of the rows: every process computes the same. They do not depend on the clock; their
// time is the record's.
func UntoldConflicts(view projections.View, entity string) ([]domain.Envelope, error) {
	told := map[string]struct{}{}
	if err := view.Scan(projections.Query{Table: projections.TableConflicts}, func(k projections.Key, _ projections.Row) error {
		told[k.ID] = struct{}{}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableConflicts, err)
	}
	var out []domain.Envelope
	if err := eachConflict(view, func(q *projections.Quarantined, first int64) {
		id := projections.RecordID(q.Topic, uint32(q.Partition), q.Offset)
		if _, done := told[id]; done {
			return
		}
		out = append(out, domain.Envelope{
			Time: max(q.Appended, 1), Subject: id, Workspace: q.Workspace, Cluster: q.Cluster,
			Event: &domain.StreamConflictObserved{
				Entity: entity, Topic: q.Topic, Partition: uint32(q.Partition), First: first, Offset: q.Offset,
				Source: q.Source, Incarnation: q.Incarnation, Sequence: q.Sequence,
			},
		})
	}); err != nil {
		return nil, err
	}
	return out, nil
}

// eachConflict calls yield with the quarantined records that claim the sequence of another, and the
// offset of the other.
func eachConflict(view projections.View, yield func(q *projections.Quarantined, first int64)) error {
	err := view.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
		if q := row.(*projections.Quarantined); q.Conflicts != nil {
			yield(q, *q.Conflicts)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read quarantine: %w", err)
	}
	return nil
}

// conflicting adds an exception for each stream with open quarantined records that claim sequences
// of others.
func (inv *Inventory) conflicting(view projections.View, cluster string) error {
	list, err := registry.Quarantine(view)
	if err != nil {
		return err
	}
	n, first := map[string]int{}, map[string]*projections.QuarantineEntry{}
	for i := range list.Entries {
		e := &list.Entries[i]
		if e.Conflicts == nil || e.Resolution != "" || registry.OfAnother(e.Source, cluster) {
			continue
		}
		name := fmt.Sprintf("%s/%d %s#%d", e.Topic, e.Partition, e.Source, e.Incarnation)
		if n[name]++; first[name] == nil {
			first[name] = e
		}
	}
	for name, e := range first {
		inv.except(StreamConflict, name, fmt.Sprintf(
			"%d records in quarantine claim sequences that other records have, one of which may be forged; "+
				"the first is %s, of sequence %d, which %s has",
			n[name], e.ID, e.Sequence, projections.RecordID(e.Topic, uint32(e.Partition), *e.Conflicts)))
	}
	return nil
}
