package planning

import (
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/plan"
	"quartermaster/projections"
	"quartermaster/projections/demand"
	"quartermaster/projections/registry"
)

// workRule is a policy for the work of a workspace, or for all work if that is "".
type workRule struct {
	workspace string
	*domain.PolicySet
}

// workRules returns the valid policies of a kind, by workspace and id.
func workRules(view projections.View, a *registry.Authority, at domain.Instant, kind domain.PolicyKind) ([]workRule, error) {
	var out []workRule
	err := view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), at)
		if v == nil {
			return nil
		}
		p := v.Event.(*domain.PolicySet)
		if p.Kind != kind || p.EffectiveTo != 0 && at >= p.EffectiveTo {
			return nil
		}
		r := workRule{k.Scope, p}
		if k.Scope == a.Root() {
			r.workspace = ""
		}
		out = append(out, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	return out, nil
}

// binds reports whether a policy is for some work. The place is that of the demand.
func (r *workRule) binds(w *workload, region, country string) bool {
	return (r.workspace == "" || r.workspace == w.Workspace) && picks(&r.Selector, w) && r.Selector.In(region, country)
}

// workOf is what runs in a pool: the deployments that are declared for it, else all work of each
// workspace with demand, of which nothing more is known.
func workOf(p *plan.Pool, declared map[string]need) []workload {
	var out []workload
	for i := range p.Mix {
		w := workload{Workload: p.Mix[i]}
		n := declared[w.ID]
		w.cluster, w.tier, w.environment = n.cluster, n.tier, n.environment
		out = append(out, w)
	}
	if len(out) > 0 {
		return out
	}
	for i := range p.Series {
		w := workload{}
		w.Workspace = p.Series[i].Workspace
		out = append(out, w)
	}
	return out
}

// substitutes returns the GPU models that may do all work of a pool, by model. Of several ratios for
// parts of the work the one that takes the most GPUs counts for all of it.
func substitutes(rules []workRule, p *plan.Pool, country string, work []workload) []plan.Substitute {
	of := map[string]*plan.Substitute{}
	for i := range work {
		may := map[string]plan.Substitute{}
		for j := range rules {
			r := &rules[j]
			if !r.binds(&work[i], p.Region, country) {
				continue
			}
			for _, s := range r.Substitutes {
				if !slices.Contains(demand.AllowedModels([]string{s.For}), p.Model()) {
					continue
				}
				for _, by := range demand.AllowedModels([]string{s.By}) {
					if by == p.Model() || len(work[i].Models) > 0 && !slices.Contains(work[i].Models, by) {
						continue
					}
					if x, ok := may[by]; !ok || s.GPUs.GreaterThan(x.GPUs) {
						may[by] = plan.Substitute{Model: by, GPUs: s.GPUs, Measured: s.Measured, Policy: r.Policy}
					}
				}
			}
		}
		for by, s := range may {
			if x := of[by]; i == 0 || x != nil && s.GPUs.GreaterThan(x.GPUs) {
				of[by] = &s
			}
		}
		maps.DeleteFunc(of, func(by string, _ *plan.Substitute) bool { return may[by].Model == "" })
	}
	var out []plan.Substitute
	for _, by := range slices.Sorted(maps.Keys(of)) {
		out = append(out, *of[by])
	}
	return out
}

// transfers returns the prices of moving work of a pool to another region, by policy.
func transfers(rules []workRule, p *plan.Pool, country string, work []workload) (out []plan.Transfer, err error) {
	for i := range rules {
		r := &rules[i]
		if !slices.ContainsFunc(work, func(w workload) bool { return r.binds(&w, p.Region, country) }) {
			continue
		}
		price, err := domain.ParseMoney(r.Value)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", r.Policy, err)
		}
		out = append(out, plan.Transfer{Price: price, Policy: r.Policy})
	}
	return out, nil
}

// protect takes the first posture policy that binds some work of a pool, and marks the pools of which it
// does. It returns nil if there is none.
func protect(rules []workRule, pools []plan.Pool, bound func(r *workRule, p *plan.Pool) bool) *plan.Posture {
	var out *plan.Posture
	for i := range rules {
		r := &rules[i]
		var of []int
		for j := range pools {
			if bound(r, &pools[j]) {
				of = append(of, j)
			}
		}
		switch {
		case len(of) == 0:
		case out != nil:
			out.Others = append(out.Others, r.Policy)
		default:
			out = &plan.Posture{
				Policy: r.Policy, Kind: r.Value, Share: r.Share.Decimal, Standby: r.Standby, Price: r.StandbyPriceShare.Decimal,
			}
			for _, j := range of {
				pools[j].Protected = true
			}
		}
	}
	return out
}

// idle returns the pools without demand that may serve that of others: of substitutes, and in the
// standby region.
func idle(pools []plan.Pool, p *plan.Posture) []demand.PoolKey {
	var out []demand.PoolKey
	want := func(k demand.PoolKey, there func(p *plan.Pool) bool) {
		for i := range pools {
			if pools[i].Region == k.Region && there(&pools[i]) {
				return
			}
		}
		out = append(out, k)
	}
	for i := range pools {
		k := &pools[i]
		for _, s := range k.Substitutes {
			want(demand.PoolKey{Region: k.Region, Kind: s.Model, Unit: "gpu"}, func(p *plan.Pool) bool { return p.Model() == s.Model })
		}
		if k.Protected && p.Standby != "" {
			want(demand.PoolKey{Region: p.Standby, Kind: k.Kind, Unit: k.Unit}, func(p *plan.Pool) bool {
				return p.Kind == k.Kind && p.Unit == k.Unit
			})
		}
	}
	slices.SortFunc(out, demand.PoolKey.Compare)
	return slices.Compact(out)
}
