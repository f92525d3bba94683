package whatif

import (
	"cmp"
	"math/bits"
	"slices"

	"quartermaster/domain/procurement"
)

// Pools that share only quotas need no linear program. The value of a unit of quota to a pool falls
// with each further unit: it first avoids leaving demand unserved, then replaces spot; it first
// lets a discount-only unit serve, then one on demand. The cheapest hour gives the quota to the
// largest saving, unit by unit (the continuous knapsack, Dantzig, 1957).

// claim is a use of a quota by a want. It replaces spot or unserved demand, by an on-demand unit or
// a discount-only one.
type claim struct {
	want       int
	quota      int // by its position in the group, −1: it needs none
	spot, paid bool
	saves, use int64 // by unit: money, and how much of the quota
}

// claims are the uses of quotas that save something, the best first.
func (t *together) claims() []claim {
	var out []claim
	for i, d := range t.g.wants {
		onDemand, spot, shortage := t.terms.OnDemand[d.pool], t.terms.Spot[d.pool], t.terms.Shortage[i]
		if onDemand < 0 || d.refuge {
			continue
		}
		x := &t.m.pools[t.g.pools[d.pool]]
		for _, c := range []claim{{saves: int64(shortage)}, {paid: true, saves: int64(shortage - onDemand)},
			{spot: true, saves: int64(spot)}, {spot: true, paid: true, saves: int64(spot - onDemand)}} {
			if c.saves > 0 {
				c.want, c.quota, c.use = i, slices.Index(t.g.quotas, x.quota), x.perUnit
				out = append(out, c)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b claim) int {
		hi, lo := bits.Mul64(uint64(a.saves), uint64(b.use))
		other, low := bits.Mul64(uint64(b.saves), uint64(a.use))
		return cmp.Or(cmp.Compare(other, hi), cmp.Compare(low, lo))
	})
	return out
}

// share is the part of an hour's want that something serves, in millionths of units.
type share struct {
	unserved, priced int64 // that the quota would keep from being unserved, and that a discount-only unit may cover
	need, spot       int64 // beyond what is guaranteed, and the part that may run on spot
	firm, paid       int64 // within the quota, and the on-demand part of it
}

// ration serves the hours of pools that share only quotas, with the result of [joint.Recourse].
func (t *together) ration(hours []int64) {
	claims, n := t.claims(), len(t.g.wants)
	shares, left := make([]share, n), make([]int64, len(t.g.quotas))
	for slot, count := range hours {
		if count == 0 {
			continue
		}
		for i, d := range t.g.wants {
			units := t.units[slot*n+i] * one
			x := share{need: max(0, units-t.have.Guaranteed[d.pool]*one), priced: t.have.DiscountOnly[d.pool] * one}
			if spot := t.terms.Spot[d.pool]; spot >= 0 && spot < t.terms.Shortage[i] {
				x.spot = t.parts[slot*n+i] * one
				if have := t.have.Spot[d.pool]; have != procurement.Unlimited {
					x.spot = min(x.spot, have*one)
				}
				x.spot = min(x.spot, x.need)
			}
			x.unserved = x.need - x.spot
			shares[i] = x
		}
		for k, q := range t.have.Quotas {
			left[k] = unlimited
			if q != procurement.Unlimited {
				left[k] = q * one
			}
		}
		for i := range claims {
			c := &claims[i]
			x := &shares[c.want]
			// Unserved demand comes first, and so do discount-only units.
			from, to := int64(0), x.unserved
			if c.spot {
				from, to = x.unserved, x.need
			}
			if c.paid {
				from = max(from, x.priced)
			} else {
				to = min(to, x.priced)
			}
			take := to - max(from, x.firm)
			if c.quota >= 0 {
				take = min(take, left[c.quota]/c.use)
			}
			if take <= 0 {
				continue
			}
			if c.quota >= 0 {
				left[c.quota] -= take * c.use
			}
			x.firm += take
			if c.paid {
				x.paid += take
			}
		}
		for i, d := range t.g.wants {
			x, home := &shares[i], d.home
			onSpot := min(x.spot, x.need-x.firm)
			t.amounts.OnDemand[d.pool] += x.paid * count
			t.amounts.Firm[home] += (t.units[slot*n+i]*one - x.need + x.firm) * count
			t.amounts.Spot[home] += onSpot * count
			t.amounts.Shortage[i] += (x.need - x.firm - onSpot) * count
		}
	}
}
