package app

import (
	"cmp"
	"context"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// ResolveGap drafts that the missing events of a stream will never arrive. Source and topic
// identify the stream; where several have gaps, so do its partition (-1: any) and its incarnation
// (0: any).
func (c *Caller) ResolveGap(ctx context.Context, named registry.StreamGaps, reason string) (*registry.StreamGaps, Draft, error) {
	var found []registry.StreamGaps
	if err := c.read(ctx, "", func(_ *Conn, v projections.View) error {
		gaps, err := registry.OpenGaps(v)
		for _, g := range gaps {
			if g.Source == named.Source && g.Topic == named.Topic &&
				(named.Partition < 0 || g.Partition == named.Partition) &&
				g.Incarnation == cmp.Or(named.Incarnation, g.Incarnation) {
				found = append(found, g)
			}
		}
		return err
	}); err != nil {
		return nil, Draft{}, err
	}
	switch len(found) {
	case 0:
		return nil, Draft{}, &NotFoundError{What: "source", Name: named.Source, Err: fmt.Errorf("no gap of source %q in %s matches; see \"quartermaster streams list\"",
			named.Source, named.Topic)}
	case 1:
	default:
		return nil, Draft{}, invalid("partition", "%d streams of source %q have gaps in %s: select one by its partition and incarnation, "+
			"as in \"quartermaster streams list\"", len(found), named.Source, named.Topic)
	}
	g := &found[0]
	return g, Draft{Use: "streams-resolve", Events: []domain.Envelope{{
		Time: Now(), Subject: fmt.Sprintf("%s/%d %s", g.Topic, g.Partition, g.Source),
		Event: &domain.StreamGapResolved{
			Entity: Platform, Topic: g.Topic, Partition: uint32(g.Partition), Source: g.Source, Incarnation: g.Incarnation,
			From: g.First, To: g.Last, Reason: reason,
		},
	}}}, nil
}
