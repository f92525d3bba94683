package app

import (
	"context"

	"quartermaster/domain"
	"quartermaster/domain/recommend"
	"quartermaster/domain/recommend/house"
	"quartermaster/projections"
	estates "quartermaster/projections/recommend"
)

// Headroom is what clusters can still take, and where else replicas may run.
type Headroom struct {
	Position string         `json:"position"`
	At       domain.Instant `json:"at"`
	Region   string         `json:"region,omitempty"`
	recommend.Headroom
}

// Headroom returns what the clusters of a region can still take, "" for all.
func (c *Caller) Headroom(ctx context.Context, at At, about domain.Instant, region string) (ans *Headroom, err error) {
	err = c.readFrom(ctx, at, about, func(v projections.View, about domain.Instant) error {
		if err := (narrowed{region: region}).known(v); err != nil {
			return err
		}
		e, err := c.estate(ctx, v, about)
		if err != nil {
			return err
		}
		nodes, err := estates.FreeNodes(v, about, "")
		if err != nil {
			return err
		}
		ans = &Headroom{Position: v.Position().String(), At: about, Region: region, Headroom: *recommend.NewHeadroom(e, nodes, region, house.Check)}
		return nil
	})
	return ans, err
}
