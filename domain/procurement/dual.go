package procurement

import (
	"math"
	"slices"
	"sort"
)

// ascents bounds the steps of ascend, each of which is a flow over all offers.
const ascents = 40

// ascend proves a bound, and offers mixes on the way, for a pool that is too large for the simplex.
// It sets a worth of guaranteed capacity, in addition to coverage, for each epoch. The worth is
// subtracted from the price of guaranteed purchases and added to their use; one flow then decides
// the rest and finds the prices of coverage. Each step moves the worth towards balancing use and
// purchases (Lagrange multipliers by subgradients, with Polyak's step length).
func (s *solver) ascend() {
	worth := make([]Nano, len(s.epochs))
	for m, h := range s.have(s.best.units) {
		if s.mixes[m] {
			_, alone := s.costs[m].parts(0)
			worth[m] = alone.at(h.guaranteed)
		}
	}
	theta := 1.0
	for range ascents {
		if s.best.cost == s.best.bound {
			return
		}
		before := s.best.bound
		// The price of unlimited purchases must not become negative.
		c := Certificate{Cover: make([]Nano, len(s.epochs)), Guarantee: worth}
		s.affordable(&c)
		use := s.priced(worth)
		for m := range s.epochs {
			c.Cover[m] = s.net.price[m+1] - s.net.price[m]
			if s.kinds[m].discountOnly && !s.kinds[m].guaranteed {
				c.Guarantee[m] = max(0, s.most(m)-c.Cover[m])
			}
		}
		worth = slices.Clone(worth)
		units := s.units()
		s.prove(c)
		if s.offer(units) {
			s.improve(units, true)
		}
		if !before.less(s.best.bound) {
			theta *= 0.7
		}
		// Units that are used but not bought raise the worth.
		have := s.have(units)
		norm := 0.0
		for m := range have {
			use[m] -= have[m].guaranteed - s.epochs[m].HeldGuaranteed
			norm += float64(float64(use[m]) * float64(use[m]))
		}
		if norm == 0 {
			return
		}
		cost, _ := s.best.cost.big().Float64()
		bound, _ := s.best.bound.big().Float64()
		step := theta * (cost - bound) / norm
		for m := range worth {
			if s.mixes[m] {
				most := s.most(m)
				move := min(max(math.Round(step*float64(use[m])), -float64(most)), float64(most))
				worth[m] = min(max(0, worth[m]+Nano(move)), most)
			}
		}
	}
}

// priced solves the flow with the given worth of guaranteed capacity. It returns the guaranteed
// units that each epoch would use of its coverage.
func (s *solver) priced(worth []Nano) (use []int) {
	sums := prefix(worth)
	curves := make([]curve, len(s.epochs))
	plans := make([]func(int) int, len(s.epochs))
	for m := range s.epochs {
		if s.mixes[m] {
			curves[m], plans[m] = s.pricedCurve(m, worth[m])
		} else {
			curves[m] = s.curve(m)
		}
	}
	for i := range s.arcs {
		if a := &s.arcs[i]; a.guaranteed {
			s.net.arcs[i].cost = a.cost - (sums[a.to] - sums[a.from])
		}
	}
	s.run(curves, func(*purchase) bool { return true })
	for i := range s.arcs {
		s.net.arcs[i].cost = s.arcs[i].cost
	}
	use = make([]int, len(s.epochs))
	for m, h := range s.have(s.units()) {
		n := h.guaranteed - s.epochs[m].HeldGuaranteed
		if plans[m] == nil {
			use[m] = n
		} else {
			use[m] = plans[m](n + h.discountOnly - s.epochs[m].HeldDiscountOnly)
		}
	}
	return use
}

// pricedCurve is the cost of an epoch by units of either kind, if using a unit as guaranteed costs
// its worth. First come guaranteed units that save more than the worth in addition to coverage,
// then discount-only units up to the quota, then further guaranteed units while they save more than
// the worth.
func (s *solver) pricedCurve(m int, worth Nano) (curve, func(units int) int) {
	e, c := &s.epochs[m], &s.costs[m]
	total, alone := c.parts(e.HeldGuaranteed)
	least := min(e.HeldDiscountOnly, c.quota)
	room := c.quota - least
	first := alone.reach(worth)
	top := max(total.top(), alone.top())
	most := sort.Search(top, func(g int) bool { return total.at(g+c.quota)+alone.at(g) <= worth })
	use := func(units int) int {
		return max(min(units, first), min(units-room, most))
	}
	var from []int
	for _, at := range total.from {
		from = append(from, at-least)
	}
	for _, at := range alone.from {
		from = append(from, at, at+room)
	}
	from = append(from, 0, first, first+room, most+room)
	slices.Sort(from)
	out := curve{}
	for i, at := range from {
		if at < 0 || i > 0 && from[i-1] == at {
			continue
		}
		saves := Nano(0)
		if at < most+room {
			saves = total.at(at + least)
			if next := use(at + 1); next > use(at) {
				saves += alone.at(next-1) - worth
			}
		}
		if n := len(out.saves); n == 0 || out.saves[n-1] != saves {
			out.from, out.saves = append(out.from, at), append(out.saves, saves)
		}
	}
	return out, use
}
