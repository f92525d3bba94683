package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// StreamNotCompared is the kind of exceptions for streams with repeated sequences whose first
// record was no longer remembered.
const StreamNotCompared = "stream_not_compared"

// Uncompared is a source with events in one partition whose sequences had been seen too long ago to
// compare. They are repeats, or some are forged or from a copy of the source.
type Uncompared struct {
	Topic     domain.Topic `json:"topic"`
	Partition int          `json:"partition"`
	Source    string       `json:"source"`
	// Incarnation is 0 for the sum of all that have ended and have no row of their own.
	Incarnation uint64 `json:"incarnation"`
	Dropped     uint64 `json:"dropped"`         // telemetry, counted as repeats
	Quarantined uint64 `json:"quarantined"`     // in open quarantine, of kind "uncertain"
	First       string `json:"first,omitempty"` // the first in quarantine
}

// String names the stream.
func (u *Uncompared) String() string {
	if u.Incarnation == 0 {
		return fmt.Sprintf("%s/%d %s, incarnations that have ended", u.Topic, u.Partition, u.Source)
	}
	return fmt.Sprintf("%s/%d %s#%d", u.Topic, u.Partition, u.Source, u.Incarnation)
}

func (u *Uncompared) compare(v *Uncompared) int {
	return cmp.Or(
		cmp.Compare(u.Topic, v.Topic), cmp.Compare(u.Partition, v.Partition), cmp.Compare(u.Source, v.Source),
		cmp.Compare(u.Incarnation, v.Incarnation),
	)
}

// UncomparedStreams returns the streams with events that could not be compared, by topic,
// partition, source and incarnation.
func UncomparedStreams(view projections.View) ([]Uncompared, error) {
	var all []Uncompared
	if err := view.Scan(projections.Query{Table: projections.TableStreams}, func(k projections.Key, row projections.Row) error {
		if s := row.(*projections.Stream); s.Uncompared > 0 {
			tp := projections.ScopePartition(k.Scope)
			all = append(all, Uncompared{
				Topic: tp.Topic, Partition: tp.Partition, Source: s.Source, Incarnation: s.Incarnation,
				Dropped: s.Uncompared,
			})
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read streams: %w", err)
	}
	resolved := map[string]struct{}{}
	if err := registry.EachResolution(view, func(id string, _ *projections.Version) { resolved[id] = struct{}{} }); err != nil {
		return nil, err
	}
	quarantine := projections.Query{Table: projections.TableQuarantine}
	if err := view.Scan(quarantine, func(_ projections.Key, row projections.Row) error {
		q := row.(*projections.Quarantined)
		if q.Kind != projections.KindUncertain {
			return nil
		}
		id := projections.RecordID(q.Topic, uint32(q.Partition), q.Offset)
		if _, done := resolved[id]; !done {
			all = append(all, Uncompared{
				Topic: q.Topic, Partition: q.Partition, Source: q.Source, Incarnation: q.Incarnation, Quarantined: 1,
				First: id,
			})
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read quarantine: %w", err)
	}
	slices.SortStableFunc(all, func(a, b Uncompared) int { return a.compare(&b) })
	out := []Uncompared{}
	for i := range all {
		u := &all[i]
		if n := len(out); n > 0 && out[n-1].compare(u) == 0 {
			last := &out[n-1]
			last.Dropped, last.Quarantined = last.Dropped+u.Dropped, last.Quarantined+u.Quarantined
			last.First = cmp.Or(last.First, u.First)
			continue
		}
		out = append(out, *u)
	}
	return out, nil
}

// uncompared adds an exception for each stream with events that could not be compared.
func (inv *Inventory) uncompared(view projections.View, cluster string) error {
	streams, err := UncomparedStreams(view)
	if err != nil {
		return err
	}
	for i := range streams {
		u := &streams[i]
		if registry.OfAnother(u.Source, cluster) {
			continue
		}
		var parts []string
		if u.Dropped > 0 {
			parts = append(parts, fmt.Sprintf("%d were dropped as repeats", u.Dropped))
		}
		if u.Quarantined > 0 {
			parts = append(parts, fmt.Sprintf("%d are in quarantine, the first is %s", u.Quarantined, u.First))
		}
		inv.except(StreamNotCompared, u.String(),
			"events came with sequences that had been seen too long ago to compare, "+
				"so that some may be forged or of a copy of the source: "+strings.Join(parts, ", "))
	}
	return nil
}
