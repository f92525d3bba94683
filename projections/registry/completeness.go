package registry

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Completeness says what a report may lack. The two overlap: what could not
// even be decoded is in quarantine, and its sequence is missing too.
type Completeness struct {
	Incomplete int `json:"incomplete"` // events in open quarantine that may concern the report
	// Missing are events of its topics that are known to exist and have not arrived,
	// whomever they concern, but for those that the nodes of another cluster than the
	// report's sent.
	Missing uint64 `json:"missing"`
	// Dropped is what agents of nodes said that they lost of the report's time: those
	// events are not missing, as they never come.
	Dropped []Loss `json:"dropped,omitempty"`
}

// CompletenessOf returns what a report about a workspace and a cluster ("" for all) and a
// time that is made of the given topics may lack. What the nodes of one cluster say
// concerns no other, while it may concern any workspace.
func CompletenessOf(view projections.View, workspace, cluster string, span domain.Interval, topics ...domain.Topic) (Completeness, error) {
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
		// Anybody may claim any sequence, so the sum may overflow.
		c.Missing += min(missing[t], math.MaxUint64-c.Missing)
	}
	c.Dropped, err = lossesIn(view, cluster, span, topics)
	return c, err
}

// Missing returns how many events of each topic are known to exist, by the gaps
// in their streams, and have not arrived. What an agent said that it lost is not
// awaited.
func Missing(view projections.View) (map[domain.Topic]uint64, error) { return missingOf(view, "") }

// missingOf leaves out what is of other clusters' nodes.
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

// Note returns for example "incomplete: 3 events; 7 events have not arrived; samples
// of node c/n from 2026-05-01T00:00:00Z to 2026-05-01T01:00:00Z were dropped", and ""
// when nothing is known to lack.
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

// namedLosses is how many losses a note names.
const namedLosses = 3

// events says what of a note is about events that may come.
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

// EachResolution calls yield with the resolutions that whoever signed them had the
// right to make, by the record that they resolve. Of one there may be several.
func EachResolution(view projections.View, yield func(id string, v *projections.Version)) error {
	a, err := NewAuthority(view)
	if err != nil {
		return err
	}
	if err := view.Scan(projections.Query{Table: projections.TableResolutions}, func(k projections.Key, row projections.Row) error {
		if v := a.Latest(k, row.(*projections.History)); v != nil {
			yield(k.ID, v)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("read quarantine resolutions: %w", err)
	}
	return nil
}

// Open counts what is in quarantine and not resolved. What it keeps in memory is
// the place of each record that was resolved, and not the records.
func Open(view projections.View) (projections.Incomplete, error) { return openOf(view, "") }

// openOf leaves out what is of other clusters' nodes.
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

// Quarantine lists what could not be folded. A resolution counts when whoever
// signed it had the right to; of several the latest. It holds every record that
// was ever in quarantine: where their number is enough, see [Open].
func Quarantine(view projections.View) (*projections.QuarantineList, error) {
	resolutions := map[string]*projections.Version{}
	if err := EachResolution(view, func(id string, v *projections.Version) {
		if have := resolutions[id]; have == nil || v.Order.After(have.Order) {
			resolutions[id] = v
		}
	}); err != nil {
		return nil, err
	}
	list := &projections.QuarantineList{Position: view.Position().String(), Entries: []projections.QuarantineEntry{}, Incomplete: projections.Incomplete{Workspaces: map[string]int{}}}
	err := view.Scan(projections.Query{Table: projections.TableQuarantine}, func(_ projections.Key, row projections.Row) error {
		q := row.(*projections.Quarantined)
		tp := domain.TopicPartition{Topic: q.Topic, Partition: q.Partition}
		e := projections.QuarantineEntry{ID: fmt.Sprintf("%s@%d", tp, q.Offset), Quarantined: *q}
		e.SHA256 = slices.Clone(q.SHA256)
		if v := resolutions[e.ID]; v != nil {
			ev := v.Event.(*domain.QuarantineResolved)
			e.Resolution, e.Note, e.Resolved, e.ResolvedBy = ev.Resolution, ev.Reason, v.Order.Effective, v.Signer.Operator
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
