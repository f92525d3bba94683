package app

import (
	"context"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/recommend"
	"quartermaster/domain/recommend/house"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	estates "quartermaster/projections/recommend"
)

// RecommendQuery asks what could be done.
type RecommendQuery struct {
	At        domain.Instant // 0: now
	Workspace string         // only recommendations to it
	Kind      string         // only this kind
	Cluster   string         // only those that touch it
}

// Recommendations returns what could be done about the findings of a time. Nothing is recorded.
func (c *Caller) Recommendations(ctx context.Context, at At, q RecommendQuery) (ans *recommend.Advice, err error) {
	if err := among("kind", q.Kind, domain.RecommendationKinds()); err != nil {
		return nil, err
	}
	err = c.readFrom(ctx, at, q.At, func(v projections.View, about domain.Instant) error {
		if err := (narrowed{cluster: q.Cluster}).known(v); err != nil {
			return err
		}
		if ans, err = c.recommend(ctx, v, about); err != nil {
			return err
		}
		other := func(r *recommend.Recommendation) bool {
			return q.Workspace != "" && r.Workspace != q.Workspace || q.Kind != "" && r.Kind != q.Kind || q.Cluster != "" && !slices.Contains(r.Clusters, q.Cluster)
		}
		ans.Made = slices.DeleteFunc(ans.Made, func(r recommend.Recommendation) bool { return other(&r) })
		ans.Refused = slices.DeleteFunc(ans.Refused, func(r recommend.Refused) bool { return other(&r.Recommendation) })
		if len(ans.Made) == 0 {
			return (narrowed{workspace: q.Workspace}).empty(v)
		}
		return nil
	})
	return ans, err
}

// recommend makes the recommendations of a time from rows.
func (c *Caller) recommend(ctx context.Context, v projections.View, at domain.Instant) (*recommend.Advice, error) {
	e, err := c.estate(ctx, v, at)
	if err != nil {
		return nil, err
	}
	return recommend.Select(e, recommend.Make(e), house.Check), nil
}

func (c *Caller) estate(ctx context.Context, v projections.View, at domain.Instant) (*recommend.Estate, error) {
	found, f, err := c.evaluate(ctx, v, at, nil, nil)
	if err != nil {
		return nil, err
	}
	return estates.Read(v, f, found, func(q costs.Query) (*costs.Report, error) { return c.costs(ctx, v, q) })
}
