package instance

import (
	"context"
	"slices"

	"quartermaster/domain"
)

// around returns the part of an instance that is connected with a pool, and the pools in it. With a
// posture nothing is removed, because a posture may protect any demand.
func (in *Instance) around(ctx context.Context, pool string) (*Instance, []string, error) {
	m, err := newLoads().compile(ctx, in, nil)
	if err != nil {
		return nil, nil, err
	}
	k := slices.IndexFunc(m.components, func(c component) bool {
		return slices.ContainsFunc(c.pools, func(p int) bool { return m.in.Pools[p].ID == pool })
	})
	if k < 0 {
		return nil, nil, fault("/pool", nil, "pool %q has no demand, so nothing in it is worth buying", pool)
	}
	here := map[string]bool{}
	var pools []string
	for _, p := range m.components[k].pools {
		here[m.in.Pools[p].ID] = true
		pools = append(pools, m.in.Pools[p].ID)
	}
	slices.Sort(pools)
	if in.Posture != nil || len(pools) == len(in.Pools) {
		return in, pools, nil
	}
	out := *in
	rates := func(r map[string]domain.Decimal) bool {
		for id := range r {
			if here[id] {
				return true
			}
		}
		return false
	}
	quotas, demands, classes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	out.Pools = slices.DeleteFunc(slices.Clone(in.Pools), func(p Pool) bool { return !here[p.ID] })
	for i := range out.Pools {
		quotas[out.Pools[i].Quota], classes[out.Pools[i].Class] = true, true
	}
	out.Demands = slices.DeleteFunc(slices.Clone(in.Demands), func(d Demand) bool { return !here[d.Pool] })
	for i := range out.Demands {
		demands[out.Demands[i].ID] = true
	}
	out.Offers = slices.DeleteFunc(slices.Clone(in.Offers), func(o Offer) bool { return !here[o.Pool] && !rates(o.Rates) })
	out.Commitments = slices.DeleteFunc(slices.Clone(in.Commitments), func(c Commitment) bool {
		return !here[c.Pool] && !rates(c.Rates)
	})
	out.Quotas = slices.DeleteFunc(slices.Clone(in.Quotas), func(q Quota) bool { return !quotas[q.ID] })
	out.Substitutes = nil
	for _, s := range in.Substitutes {
		if named := len(s.Demands) > 0; named {
			s.Demands = slices.DeleteFunc(slices.Clone(s.Demands), func(id string) bool { return !demands[id] })
			if len(s.Demands) == 0 {
				continue
			}
		}
		if classes[s.For] && classes[s.Class] {
			out.Substitutes = append(out.Substitutes, s)
		}
	}
	out.Scenarios = slices.Clone(in.Scenarios)
	for i := range out.Scenarios {
		s := &out.Scenarios[i]
		s.Factors, s.Hourly, s.Spot = kept(s.Factors, demands), kept(s.Hourly, demands), kept(s.Spot, here)
	}
	return &out, pools, nil
}

func kept[V any](all map[string]V, names map[string]bool) map[string]V {
	var out map[string]V
	for name, v := range all {
		if names[name] {
			if out == nil {
				out = map[string]V{}
			}
			out[name] = v
		}
	}
	return out
}
