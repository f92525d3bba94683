package joint

import (
	"slices"

	"quartermaster/domain/procurement"
)

// Alone describes an independent pool as a pool of package procurement with the same costs, if
// possible. The conditions are as follows. It has one demand that does not wait, whose only route leads to it one to
// one at no extra cost. A quota is the only thing it may share, and it can use all of it (the quota
// is a multiple of QuotaPerUnit in all epochs). There is no spend, need or limit. Each choice
// covers nothing else, by one unit, in one range of epochs, in any number from 0 to Max.
//
// The pool's i-th offer is the i-th choice that covers it, with one start. Costs, bounds and the
// prices of a certificate agree with the problem's, times its weight.
func (p *Problem) Alone(pool int) (*procurement.Pool, bool) {
	demand := -1
	for i, r := range p.Routes {
		if r.Pool == pool {
			if demand >= 0 || r.Num != r.Den {
				return nil, false
			}
			for m := range p.Epochs {
				if p.Epochs[m].Routes[i] != 0 {
					return nil, false
				}
			}
			demand = r.Demand
		}
	}
	for _, r := range p.Routes {
		if r.Demand == demand && r.Pool != pool {
			return nil, false
		}
	}
	if demand < 0 || p.Demands[demand].Window > 0 {
		return nil, false
	}
	for i := range p.Needs {
		for _, t := range p.Needs[i].Terms {
			if t.Pool == pool {
				return nil, false
			}
		}
	}
	for i := range p.Limits {
		if p.Limits[i].Serving != nil {
			return nil, false
		}
	}
	out := &procurement.Pool{ID: p.Pools[pool]}
	for _, c := range p.Epochs[0].Cases {
		out.Weights = append(out.Weights, c.Weight)
	}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		s := &e.Pools[pool]
		quota := procurement.Unlimited
		if s.Quota >= 0 {
			for i := range e.Pools {
				if i != pool && p.usesQuota(i, s.Quota) {
					return nil, false
				}
			}
			if quota = e.Quotas[s.Quota]; quota != procurement.Unlimited {
				if quota%s.QuotaPerUnit != 0 {
					return nil, false
				}
				quota /= s.QuotaPerUnit
			}
		}
		if s.Spend >= 0 {
			return nil, false
		}
		short := e.Shortage[demand]
		to := procurement.Epoch{
			// Sources dearer than a shortage are not used.
			Span: e.Span, OnDemand: min(s.OnDemand, short), Spot: min(s.Spot, short), Shortage: short,
			SpotPermille: p.Demands[demand].Interruptible, Quota: quota,
			HeldGuaranteed: s.HeldGuaranteed, HeldDiscountOnly: s.HeldDiscountOnly,
		}
		for i := range e.Cases {
			c := &e.Cases[i]
			way := procurement.Case{SpotUnits: c.Spot[pool], Demand: steps(c.Slots, demand)}
			to.Cases = append(to.Cases, way)
		}
		out.Epochs = append(out.Epochs, to)
	}
	for i := range p.Choices {
		c := &p.Choices[i]
		if !slices.ContainsFunc(c.Cover, func(k Cover) bool { return k.Pool == pool }) {
			continue
		}
		spends := slices.ContainsFunc(c.Spent, func(n procurement.Nano) bool { return n != 0 })
		if len(c.Cover) != 1 || c.Cover[0].Units != 1 || len(c.Spend) > 0 || c.Least > 1 || c.Lot != 1 ||
			c.Group != "" || spends {
			return nil, false
		}
		k := c.Cover[0]
		out.Offers = append(out.Offers, procurement.Offer{
			ID: c.ID, Guaranteed: k.Guaranteed, Term: k.To - k.From,
			Starts: []procurement.Start{{Epoch: k.From, Cost: c.Cost, Max: c.Max}},
		})
	}
	if out.Validate() != nil { // beyond the limits of that package
		return nil, false
	}
	return out, true
}

func (p *Problem) usesQuota(pool, quota int) bool {
	for m := range p.Epochs {
		if p.Epochs[m].Pools[pool].Quota == quota {
			return true
		}
	}
	return false
}

// steps are the slots of a single demand.
func steps(slots []Slot, demand int) []procurement.Step {
	hours := make([]procurement.Step, 0, len(slots))
	for i := range slots {
		if u := slots[i].Units[demand]; u > 0 {
			hours = append(hours, procurement.Step{Units: u, Hours: slots[i].Hours})
		}
	}
	slices.SortFunc(hours, func(a, b procurement.Step) int { return a.Units - b.Units })
	out := hours[:0]
	for _, s := range hours {
		if n := len(out); n > 0 && out[n-1].Units == s.Units {
			out[n-1].Hours += s.Hours
		} else {
			out = append(out, s)
		}
	}
	return out
}
