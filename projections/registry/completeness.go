package registry

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Completeness says what a report may lack. The two counts overlap: an event that could not be
// decoded is in quarantine, and its sequence is missing too.
type Completeness struct {
	Incomplete int `json:"incomplete"` // events in open quarantine that may concern the report
	// Missing counts events of the report's topics that are known to exist and have not arrived,
	// whatever workspace they concern. Events from nodes of other clusters than the report's are
	// excluded.
	Missing uint64 `json:"missing"`
	// Dropped lists what nodes' agents reported as lost in the report's time. Those events do not
	// count as missing, because they never come.
	Dropped []Loss `json:"dropped,omitempty"`
}

// CompletenessOf returns what a report about a workspace and a cluster ("" for all) and a time,
// computed from the given topics, may lack. Events of the nodes of one cluster concern no other
// cluster, but may concern any workspace.
func CompletenessOf(
	view projections.View, workspace, cluster string, span domain.Interval, topics ...domain.Topic,
) (Completeness, error) {
	open, err := openOf(view, cluster)
	if err != nil {
		return Completeness{}, err
	}
	missing, err := missingOf(view, cluster)
	if err != nil {
		return Completeness{}, err
	}
	c := Completeness{Incomplete: open.For(workspace)}
	for _, t := range topics {
		// Anyone may claim any sequence, so the sum could overflow.
		c.Missing += min(missing[t], math.MaxUint64-c.Missing)
	}
	c.Dropped, err = lossesIn(view, cluster, span, topics)
	return c, err
}

// Missing returns how many events of each topic are known to exist, from the gaps in their streams,
// and have not arrived. Events that an agent reported as lost are excluded.
func Missing(view projections.View) (map[domain.Topic]uint64, error) { return missingOf(view, "") }

// missingOf excludes events of other clusters' nodes.
func missingOf(view projections.View, cluster string) (map[domain.Topic]uint64, error) {
	missing := map[domain.Topic]uint64{}
	err := EachAwaited(view, func(k projections.Key, s *projections.Stream, n uint64) {
		if OfAnother(s.Source, cluster) {
			return
		}
		t := projections.ScopePartition(k.Scope).Topic
		missing[t] += min(n, math.MaxUint64-missing[t])
	})
	return missing, err
}

// Note returns for example "incomplete: 3 events; 7 events have not arrived; samples of node c/n
// from 2026-05-01T00:00:00Z to 2026-05-01T01:00:00Z were dropped", and "" if nothing is known to be
// missing.
func (c Completeness) Note() string {
	parts := []string{}
	if note := c.events(); note != "" {
		parts = append(parts, note)
	}
	for i := range c.Dropped {
		if i == namedLosses {
			parts = append(parts, fmt.Sprintf("and %d more losses", len(c.Dropped)-i))
			break
		}
		parts = append(parts, c.Dropped[i].String())
	}
	return strings.Join(parts, "; ")
}

// namedLosses is the number of losses that a note lists.
const namedLosses = 3

// events is the part of a note about events that may still come.
func (c Completeness) events() string {
	note := projections.Incomplete{All: c.Incomplete}.Note("")
	if c.Missing == 0 {
		return note
	}
	missing := fmt.Sprintf("%d events have not arrived", c.Missing)
	if c.Missing == 1 {
		missing = "1 event has not arrived"
	}
	if note == "" {
		return "incomplete: " + missing
	}
	return note + "; " + missing
}

// EachResolution calls yield with the valid resolutions, by the record that they resolve. A record
// may have several.
func EachResolution(view projections.View, yield func(id string, v *projections.Version)) error {
	a, err := NewAuthority(view)
	if err != nil {
		return err
	}
	resolutions := projections.Query{Table: projections.TableResolutions}
	if err := view.Scan(resolutions, func(k projections.Key, row projections.Row) error {
		if v := a.Latest(k, row.(*projections.History)); v != nil {
			yield(k.ID, v)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read quarantine resolutions: %w", err)
	}
	return nil
}

// Open counts what is in quarantine and not resolved. In memory it keeps only the place of each
// resolved record.
func Open(view projections.View) (projections.Incomplete, error) { return openOf(view, "") }

// openOf excludes records of other clusters' nodes.
func openOf(view projections.View, cluster string) (projections.Incomplete, error) {
	resolved := map[string]struct{}{}
	if err := EachResolution(view, func(id string, _ *projections.Version) { resolved[id] = struct{}{} }); err != nil {
		return projections.Incomplete{}, err
	}
	open := projections.Incomplete{Workspaces: map[string]int{}}
	var id []byte
	err := view.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
		q := row.(*projections.Quarantined)
		if q.Cluster != cluster && OfAnother(q.Source, cluster) {
			return nil
		}
		id = fmt.Appendf(id[:0], "%s/%d@%d", q.Topic, q.Partition, q.Offset)
		if _, done := resolved[string(id)]; !done {
			open.Add(q)
		}
		return nil
	})
	if err != nil {
		return projections.Incomplete{}, fmt.Errorf("read quarantine: %w", err)
	}
	return open, nil
}

// Quarantine lists what could not be folded, with valid resolutions; of several the latest counts.
// It holds every record that was ever in quarantine, but for resolved ones that were removed by
// policy. If the number is enough, use [Open].
func Quarantine(view projections.View) (*projections.QuarantineList, error) {
	resolutions := map[string]*projections.Version{}
	if err := EachResolution(view, func(id string, v *projections.Version) {
		if have := resolutions[id]; have == nil || v.Order.After(have.Order) {
			resolutions[id] = v
		}
	}); err != nil {
		return nil, err
	}
	removed, err := removedFromQuarantine(view)
	if err != nil {
		return nil, err
	}
	list := &projections.QuarantineList{
		Position: view.Position().String(), Entries: []projections.QuarantineEntry{},
		Incomplete: projections.Incomplete{Workspaces: map[string]int{}},
	}
	err = view.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
		q := row.(*projections.Quarantined)
		tp := domain.TopicPartition{Topic: q.Topic, Partition: q.Partition}
		e := projections.QuarantineEntry{ID: fmt.Sprintf("%s@%d", tp, q.Offset), Quarantined: *q}
		e.SHA256 = slices.Clone(q.SHA256)
		if v := resolutions[e.ID]; v != nil {
			ev := v.Event.(*domain.QuarantineResolved)
			e.Resolution, e.Note, e.Resolved, e.ResolvedBy = ev.Resolution, ev.Reason, v.Order.Effective, v.Signer.Operator
			if removed[e.ID] {
				list.Removed++
				return nil
			}
		} else {
			list.Open += q.Events()
			list.Incomplete.Add(q)
		}
		list.Entries = append(list.Entries, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read quarantine: %w", err)
	}
	return list, nil
}
