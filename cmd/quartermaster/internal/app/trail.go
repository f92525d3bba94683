package app

import (
	"context"
	"slices"

	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Trail says who decided what, and what came of it.
type Trail struct {
	Position string           `json:"position"`
	Entries  []registry.Entry `json:"entries"`
}

// TrailQuestion asks who decided what. Empty fields match all.
type TrailQuestion struct {
	registry.TrailFilter
	Refused bool // only what was refused, or took no effect
}

// AuditTrail answers who decided what, and what came of it.
func (c *Caller) AuditTrail(ctx context.Context, at At, q TrailQuestion) (ans *Trail, err error) {
	if q.To != 0 && q.To <= q.From {
		return nil, invalid("from", "%s to %s is no period", q.From, q.To)
	}
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		ans, err = trailOf(v, q)
		return err
	})
	return ans, err
}

func trailOf(v projections.View, q TrailQuestion) (*Trail, error) {
	auth, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	found, err := auth.Trail(v, q.TrailFilter)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		if err := knownInTrail(v, auth, q.TrailFilter); err != nil {
			return nil, err
		}
	}
	if q.Refused {
		found = slices.DeleteFunc(found, func(e registry.Entry) bool { return e.State != registry.Denied && e.State != registry.Void })
	}
	return &Trail{v.Position().String(), found}, nil
}

// knownInTrail refuses names that do not exist. Because of a typo a trail would be empty, and look like one of somebody
// who decided nothing.
func knownInTrail(v projections.View, auth *registry.Authority, f registry.TrailFilter) error {
	if err := (narrowed{workspace: f.Workspace}).empty(v); err != nil {
		return err
	}
	if err := (narrowed{cluster: f.Cluster}).known(v); err != nil {
		return err
	}
	if f.Recommendation != "" {
		var ids []string
		err := v.Scan(projections.Query{Table: projections.TableRecommendations}, func(k projections.Key, _ projections.Row) error {
			ids = append(ids, k.ID)
			return nil
		})
		if err != nil {
			return err
		}
		if err := among("recommendation", f.Recommendation, ids); err != nil {
			return err
		}
	}
	if f.Operator == "" {
		return nil
	}
	all, err := auth.Trail(v, registry.TrailFilter{})
	if err != nil {
		return err
	}
	names := auth.Deciders(nil)
	for i := range all {
		names = append(names, all[i].Operator)
	}
	slices.Sort(names)
	return among("operator", f.Operator, slices.Compact(names))
}
