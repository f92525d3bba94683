package procurement

import (
	"cmp"
	"slices"
	"sort"
)

// hinge is one term of a convex cost: saves × max(0, at − covered).
type hinge struct {
	at    int
	saves Nano
}

// epochCost is the cost of serving an epoch, A(g + min(p, quota)) + B(g), as sums of hinges in
// ascending order of at.
//
// For an hour with demand d, let S be the smaller of ⌊d·SpotPermille/1000⌋ and what spot can carry
// in the scenario, s the spot price, o on-demand, h shortage and Q the quota. Guaranteed units
// serve first, since they use nothing that others could, then discount-only units, at most Q of
// them. The rest is served cheapest first. If spot is cheaper:
//
//	A(c) = s·(d−c)⁺ + (o−s)·(d−S−c)⁺       B(g) = (h−o)·(d−S−Q−g)⁺
//
// and if on-demand is cheaper:
//
//	A(c) = o·(d−c)⁺       B(g) = (s−o)·(d−Q−g)⁺ + (h−s)·(d−Q−S−g)⁺
//
// The shortage is (d−g−S−Q)⁺ in both cases, however many discount-only units there are: each takes
// quota that on-demand would have used.
//
// S depends on the hour and not on purchases, so each term is convex in c or g, and so is their sum
// over hours and over scenarios with positive weights. The share is at most all of d, so S grows by
// 0 or 1 with each unit of demand. Hence d − S never falls, and the hinges of ascending demand
// ascend.
type epochCost struct {
	total      []hinge // A
	guaranteed []hinge // B
	quota      int     // bound of discount-only and on-demand; never Unlimited
	top        int     // highest demand
}

func newEpochCost(e *Epoch, ways []way) epochCost {
	c := epochCost{quota: e.Quota}
	for _, w := range ways {
		if n := len(w.Demand); n > 0 {
			c.top = max(c.top, w.Demand[n-1].Units)
		}
	}
	onDemand, spot, permille := e.OnDemand, e.Spot, e.SpotPermille
	if onDemand < 0 { // as if the quota for it were zero
		onDemand, c.quota = 0, 0
	}
	if c.quota == Unlimited {
		c.quota = max(c.top, MaxUnits)
	}
	if spot < 0 || permille == 0 {
		spot, permille = e.Shortage, 0
	}
	all := func(d, _ int) int { return d }
	beside := func(d, spot int) int { return d - spot }
	if spot < onDemand {
		c.total = merge(
			hinges(ways, permille, spot, all),
			hinges(ways, permille, onDemand-spot, beside))
		c.guaranteed = hinges(ways, permille, e.Shortage-onDemand, func(d, spot int) int { return d - spot - c.quota })
		return c
	}
	c.total = hinges(ways, permille, onDemand, all)
	c.guaranteed = merge(
		hinges(ways, permille, spot-onDemand, func(d, _ int) int { return d - c.quota }),
		hinges(ways, permille, e.Shortage-spot, func(d, spot int) int { return d - c.quota - spot }))
	return c
}

// hinges returns price × weight × hours at the place of each step of each way, given its demand and
// what spot can carry of it. Within a way places must not descend as demand ascends.
func hinges(ways []way, permille int, price Nano, place func(units, spot int) int) []hinge {
	if price == 0 {
		return nil
	}
	n, top := 0, 0
	for i := range ways {
		if k := len(ways[i].Demand); k > 0 {
			n, top = n+k, max(top, ways[i].Demand[k-1].Units)
		}
	}
	if len(ways) > 1 && top <= 8*n+1024 { // as in Steps
		saves := make([]Nano, top+1)
		eachHinge(ways, permille, price, place, func(at int, v Nano) { saves[at] += v })
		hs := make([]hinge, 0, min(n, top))
		for at, v := range saves {
			if v > 0 {
				hs = append(hs, hinge{at, v})
			}
		}
		return hs
	}
	hs := make([]hinge, 0, n)
	eachHinge(ways, permille, price, place, func(at int, saves Nano) { hs = append(hs, hinge{at, saves}) })
	if len(ways) > 1 {
		slices.SortFunc(hs, func(a, b hinge) int { return cmp.Compare(a.at, b.at) })
	}
	return gather(hs, 0, MaxUnits)
}

func eachHinge(ways []way, permille int, price Nano, place func(units, spot int) int, yield func(at int, saves Nano)) {
	for i := range ways {
		w := &ways[i]
		for _, s := range w.Demand {
			if at := place(s.Units, w.spot(s.Units, permille)); at > 0 {
				yield(at, price*Nano(w.weight)*Nano(s.Hours))
			}
		}
	}
}

func merge(a, b []hinge) []hinge {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	hs := make([]hinge, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].at < b[0].at:
			hs, a = append(hs, a[0]), a[1:]
		case len(a) == 0 || b[0].at < a[0].at:
			hs, b = append(hs, b[0]), b[1:]
		default:
			hs = append(hs, hinge{a[0].at, a[0].saves + b[0].saves})
			a, b = a[1:], b[1:]
		}
	}
	return hs
}

// shift returns the hinges after units are covered. Coverage beyond limit saves nothing.
func shift(hs []hinge, by, limit int) []hinge {
	if by == 0 && (len(hs) == 0 || hs[len(hs)-1].at <= limit) {
		return hs
	}
	return gather(hs, by, limit)
}

// gather shifts hinges and merges those at the same place.
func gather(hs []hinge, by, limit int) []hinge {
	out := make([]hinge, 0, len(hs))
	for _, h := range hs {
		at := min(h.at-by, limit)
		switch n := len(out); {
		case at <= 0:
		case n > 0 && out[n-1].at == at:
			out[n-1].saves += h.saves
		default:
			out = append(out, hinge{at, h.saves})
		}
	}
	return out
}

// byGuaranteed is the cost by guaranteed units, given the discount-only units.
func (c *epochCost) byGuaranteed(guaranteed, discountOnly int) curve {
	return newCurve(merge(
		shift(c.total, guaranteed+min(discountOnly, c.quota), MaxUnits),
		shift(c.guaranteed, guaranteed, MaxUnits)))
}

// parts returns A and B, given what is held guaranteed.
func (c *epochCost) parts(guaranteed int) (total, alone curve) {
	return newCurve(shift(c.total, guaranteed, MaxUnits)), newCurve(shift(c.guaranteed, guaranteed, MaxUnits))
}

// byDiscountOnly is the cost by discount-only units, without the part that they cannot change.
func (c *epochCost) byDiscountOnly(guaranteed, discountOnly int) curve {
	return newCurve(shift(c.total, guaranteed+discountOnly, c.quota-discountOnly))
}

// curve is a convex cost by units covered: from coverage from[i] up to the next entry, each further
// unit saves saves[i]. saves descends to the last entry, which is 0, and from[0] is 0.
type curve struct {
	from  []int
	saves []Nano
}

func newCurve(hs []hinge) curve {
	c := curve{make([]int, len(hs)+1), make([]Nano, len(hs)+1)}
	for i := len(hs) - 1; i >= 0; i-- {
		c.from[i+1] = hs[i].at
		c.saves[i] = c.saves[i+1] + hs[i].saves
	}
	return c
}

// top is the coverage above which more saves nothing.
func (c *curve) top() int { return c.from[len(c.from)-1] }

// at returns what one more unit saves if units are covered.
func (c *curve) at(units int) Nano {
	return c.saves[sort.SearchInts(c.from, units+1)-1]
}

// reach returns the smallest coverage at which one more unit saves at most price.
func (c *curve) reach(price Nano) int {
	return c.from[sort.Search(len(c.saves)-1, func(i int) bool { return c.saves[i] <= price })]
}

// addCost adds the cost of covering only the given units.
func (c *curve) addCost(sum *wide, units int) {
	for i := len(c.from) - 2; i >= 0 && c.from[i+1] > units; i-- {
		sum.add(c.saves[i], c.from[i+1]-max(units, c.from[i]))
	}
}
