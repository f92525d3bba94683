package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// StreamGaps is a stream with awaited events: sequences that were skipped, and that neither its
// source nor an operator declared lost.
type StreamGaps struct {
	Topic       domain.Topic `json:"topic"`
	Partition   int          `json:"partition"`
	Source      string       `json:"source"`
	Incarnation uint64       `json:"incarnation"`
	Mark        uint64       `json:"mark"`    // highest sequence that is known to exist
	Awaited     uint64       `json:"awaited"` // events
	// First and Last bound the awaited sequences.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// OpenGaps returns the streams with awaited events, by topic, partition, source and incarnation.
func OpenGaps(view projections.View) ([]StreamGaps, error) {
	out := []StreamGaps{}
	err := EachAwaited(view, func(k projections.Key, s *projections.Stream, n uint64) {
		tp := projections.ScopePartition(k.Scope)
		g := StreamGaps{
			Topic: tp.Topic, Partition: tp.Partition, Source: s.Source, Incarnation: s.Incarnation, Mark: s.Mark,
			Awaited: n, First: 1, Last: s.Forgotten,
		}
		if len(s.Gaps) > 0 {
			g.Last = s.Gaps[len(s.Gaps)-1].Last
			if s.Lost == 0 {
				g.First = s.Gaps[0].First
			}
		}
		out = append(out, g)
	})
	slices.SortFunc(out, func(a, b StreamGaps) int {
		return cmp.Or(
			cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Source, b.Source),
			cmp.Compare(a.Incarnation, b.Incarnation),
		)
	})
	return out, err
}

// resolvedGaps returns the sequences that a valid decision declared lost, by stream.
func resolvedGaps(view projections.View) (map[string][]projections.Gap, error) {
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	out := map[string][]projections.Gap{}
	resolutions := projections.Query{Table: projections.TableGapResolutions}
	if err := view.Scan(resolutions, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			if e, ok := h.Versions[i].Event.(*domain.StreamGapResolved); ok && a.Judge(k, h, i) == "" {
				out[strings.Clone(k.ID)] = append(out[k.ID], projections.Gap{First: e.From, Last: e.To})
			}
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableGapResolutions, err)
	}
	return out, nil
}

// disjoint returns gaps ascending, with overlapping ones merged.
func disjoint(gaps []projections.Gap) []projections.Gap {
	if len(gaps) == 0 {
		return nil
	}
	slices.SortFunc(gaps, func(a, b projections.Gap) int { return cmp.Compare(a.First, b.First) })
	n := 0
	for _, g := range gaps[1:] {
		if g.First <= gaps[n].Last {
			gaps[n].Last = max(gaps[n].Last, g.Last)
			continue
		}
		n++
		gaps[n] = g
	}
	return gaps[:n+1]
}
