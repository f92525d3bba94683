package procurement

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
)

// Algorithm names the method that produced a solution.
type Algorithm string

const (
	// Flow is a minimum-cost flow over all offers. Its solutions are exact.
	Flow Algorithm = "flow"
	// Linear is a linear program made integral by flows.
	Linear Algorithm = "linear"
	// Lagrange is a sequence of flows, each of which corrects the prices of guaranteed capacity,
	// for pools too large for the simplex.
	Lagrange Algorithm = "lagrange"
)

// Solution is what to buy, its cost, and the proof of a lower bound. Cost is the price of the
// purchases and of serving the rest, in Nano and times [Pool.Weight]; what is held costs nothing.
type Solution struct {
	Purchases   []Purchase  `json:"purchases"` // by offer and epoch, each pair once
	Cost        *big.Int    `json:"cost"`
	Bound       *big.Int    `json:"bound"` // what the certificate proves; never above Cost
	Exact       bool        `json:"exact"` // Cost equals Bound: nothing is cheaper
	Certificate Certificate `json:"certificate"`
	Algorithm   Algorithm   `json:"algorithm"`
	Work        Work        `json:"work"`
}

// Work counts what a solution took. Equal pools take equal work.
type Work struct {
	Flows  int `json:"flows"`
	Pushes int `json:"pushes"` // along shortest paths, over all flows
	Pivots int `json:"pivots"`
}

// Gap returns Cost − Bound, the most that other purchases could save.
func (s *Solution) Gap() *big.Int { return gap(s.Cost, s.Bound) }

// Solve finds the purchases that serve a pool at least cost. It fails only for a pool that
// [Pool.Validate] refuses. Which of two equally good mixes it returns depends on the offers, not on
// their order.
func Solve(p *Pool) (*Solution, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	s := newSolver(p)
	s.best.algorithm = Flow
	if s.simple() {
		s.flow()
	} else {
		s.mixed()
	}
	return s.solution()
}

// solver holds a pool in the form that the methods work on.
type solver struct {
	pool   *Pool
	epochs []Epoch
	costs  []epochCost
	arcs   []purchase // in canonical order
	mixes  []bool     // by epoch: both kinds can be bought, and the quota may bind
	kinds  []kinds    // by epoch: what can be bought

	net  *network
	work Work
	best struct {
		algorithm Algorithm
		units     []int // by arc
		cost      wide
		set       bool
		prices    Certificate
		bound     wide
	}
}

type kinds struct{ guaranteed, discountOnly bool }

// purchase is an arc before its limit is known: max is the start's Max.
type purchase struct {
	offer, start int
	from, to     int
	guaranteed   bool
	cost         Nano // times the pool's weight
	max          int
}

func newSolver(p *Pool) *solver {
	s := &solver{
		pool: p, epochs: p.Epochs, costs: make([]epochCost, len(p.Epochs)), mixes: make([]bool, len(p.Epochs)),
		kinds: make([]kinds, len(p.Epochs)),
	}
	for m := range p.Epochs {
		s.costs[m] = newEpochCost(&p.Epochs[m], p.ways(m))
	}
	weight := Nano(p.Weight())
	starts := 0
	for i := range p.Offers {
		starts += len(p.Offers[i].Starts)
	}
	s.arcs = make([]purchase, 0, starts)
	for i := range p.Offers {
		o := &p.Offers[i]
		for j, st := range o.Starts {
			if st.Max == 0 {
				continue
			}
			s.arcs = append(s.arcs, purchase{i, j, st.Epoch, o.end(st.Epoch, len(p.Epochs)), o.Guaranteed,
				weight * st.Cost, st.Max})
		}
	}
	s.arcs = s.sorted(s.arcs)
	for _, a := range s.arcs {
		for m := a.from; m < a.to; m++ {
			if a.guaranteed {
				s.kinds[m].guaranteed = true
			} else {
				s.kinds[m].discountOnly = true
			}
		}
	}
	for m, k := range s.kinds {
		s.mixes[m] = k.guaranteed && k.discountOnly && s.costs[m].quota < s.costs[m].top
	}
	arcs := make([]arc, len(s.arcs))
	for i, a := range s.arcs {
		arcs[i] = arc{from: int32(a.from), to: int32(a.to), cost: a.cost}
	}
	s.net = newNetwork(len(p.Epochs), arcs)
	return s
}

// sorted puts purchases in their order. There are few that begin in one epoch: they are put together
// first.
func (s *solver) sorted(arcs []purchase) []purchase {
	next := make([]int, len(s.epochs)+1)
	for i := range arcs {
		next[arcs[i].from+1]++
	}
	for m := range s.epochs {
		next[m+1] += next[m]
	}
	out := make([]purchase, len(arcs))
	for i := range arcs {
		out[next[arcs[i].from]] = arcs[i]
		next[arcs[i].from]++
	}
	from := 0
	for m := range s.epochs {
		slices.SortFunc(out[from:next[m]], s.compare)
		from = next[m]
	}
	return out
}

// compare orders purchases by content, so that the order of offers does not matter. A guaranteed
// one comes first, being at least as good.
func (s *solver) compare(a, b purchase) int {
	if c := cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to), cmp.Compare(a.cost, b.cost)); c != 0 {
		return c // nearly always
	}
	first := func(g bool) int {
		if g {
			return 0
		}
		return 1
	}
	unlimited := func(n int) int {
		if n == Unlimited {
			return MaxUnits + 1
		}
		return n
	}
	return cmp.Or(
		cmp.Compare(first(a.guaranteed), first(b.guaranteed)),
		cmp.Compare(unlimited(b.max), unlimited(a.max)),
		cmp.Compare(s.pool.Offers[a.offer].ID, s.pool.Offers[b.offer].ID),
		cmp.Compare(a.offer, b.offer),
	)
}

// simple reports whether the cost of each epoch is a function of the number of units bought, of
// either kind.
func (s *solver) simple() bool { return !slices.Contains(s.mixes, true) }

// curve is the cost of an epoch that does not mix, by units bought.
func (s *solver) curve(m int) curve {
	e := &s.epochs[m]
	if s.kinds[m].discountOnly && !s.kinds[m].guaranteed {
		return s.costs[m].byDiscountOnly(e.HeldGuaranteed, e.HeldDiscountOnly)
	}
	return s.costs[m].byGuaranteed(e.HeldGuaranteed, e.HeldDiscountOnly)
}

// flow solves a pool in which no epoch mixes. Otherwise it treats every unit as guaranteed, which
// can only be cheaper: the prices prove a bound, and the mix is a candidate.
func (s *solver) flow() {
	curves := make([]curve, len(s.epochs))
	for m := range curves {
		curves[m] = s.curve(m)
	}
	s.run(curves, func(*purchase) bool { return true })
	c := Certificate{make([]Nano, len(s.epochs)), make([]Nano, len(s.epochs))}
	for m := range s.epochs {
		c.Cover[m] = s.net.price[m+1] - s.net.price[m]
		if s.kinds[m].discountOnly && !s.kinds[m].guaranteed {
			// No guaranteed units are offered; at this price none are wanted.
			c.Guarantee[m] = max(0, s.most(m)-c.Cover[m])
		}
	}
	s.prove(c)
	s.offer(s.units())
}

// most is what a unit can save in an epoch at most: no higher price proves more.
func (s *solver) most(m int) Nano {
	sum := Nano(0)
	for _, hs := range [][]hinge{s.costs[m].total, s.costs[m].guaranteed} {
		for _, h := range hs {
			if h.at > s.epochs[m].HeldGuaranteed {
				sum += h.saves
			}
		}
	}
	return sum
}

// run solves a flow over the purchases that may be used.
func (s *solver) run(curves []curve, use func(*purchase) bool) {
	for i := range s.arcs {
		a := &s.net.arcs[i]
		switch {
		case !use(&s.arcs[i]):
			a.limit = 0
		case s.arcs[i].max == Unlimited:
			a.limit = maxCovered
		default:
			a.limit = s.arcs[i].max
		}
	}
	before := s.net.pushes
	s.net.solve(curves)
	s.work.Flows++
	s.work.Pushes += s.net.pushes - before
}

func (s *solver) units() []int {
	u := make([]int, len(s.arcs))
	for i := range u {
		u[i] = s.net.arcs[i].units
	}
	return u
}

// prove keeps a certificate that proves more than the one before.
func (s *solver) prove(c Certificate) {
	s.affordable(&c)
	if b := s.bound(&c); s.best.prices.Cover == nil || s.best.bound.less(b) {
		s.best.prices, s.best.bound = c, b
	}
}

// offer keeps a mix that costs less than the best one, and reports whether it did.
func (s *solver) offer(units []int) bool {
	cost := s.cost(units)
	if s.best.set && !cost.less(s.best.cost) {
		return false
	}
	s.best.units, s.best.cost, s.best.set = slices.Clone(units), cost, true
	return true
}

// have adds up coverage by epoch.
func (s *solver) have(units []int) []held {
	have := make([]held, len(s.epochs)+1)
	for i, n := range units {
		a := &s.arcs[i]
		if n == 0 {
			continue
		}
		if a.guaranteed {
			have[a.from].guaranteed += n
			have[a.to].guaranteed -= n
		} else {
			have[a.from].discountOnly += n
			have[a.to].discountOnly -= n
		}
	}
	for m := range s.epochs {
		have[m+1].guaranteed += have[m].guaranteed
		have[m+1].discountOnly += have[m].discountOnly
	}
	have = have[:len(s.epochs)]
	for m := range have {
		have[m].guaranteed += s.epochs[m].HeldGuaranteed
		have[m].discountOnly += s.epochs[m].HeldDiscountOnly
	}
	return have
}

// cost serves every hour: it does not rely on the curves.
func (s *solver) cost(units []int) wide {
	var sum wide
	for i, n := range units {
		sum.add(s.arcs[i].cost, n)
	}
	for m, h := range s.have(units) {
		e := &s.epochs[m]
		v := s.pool.serve(m, h)
		sum.addUnitHours(e.Spot, v.Spot)
		sum.addUnitHours(e.OnDemand, v.OnDemand)
		sum.addUnitHours(e.Shortage, v.Shortage)
	}
	return sum
}

func (s *solver) solution() (*Solution, error) {
	out := &Solution{
		Purchases: []Purchase{}, Cost: s.best.cost.big(), Bound: s.best.bound.big(),
		Certificate: s.best.prices, Algorithm: s.best.algorithm, Work: s.work,
	}
	for i, n := range s.best.units {
		if n > 0 {
			out.Purchases = append(out.Purchases, Purchase{s.arcs[i].offer, s.arcs[i].from, n})
		}
	}
	slices.SortFunc(out.Purchases, func(a, b Purchase) int {
		return cmp.Or(cmp.Compare(a.Offer, b.Offer), cmp.Compare(a.Epoch, b.Epoch))
	})
	switch out.Gap().Sign() {
	case 0:
		out.Exact = true
	case -1:
		return nil, fmt.Errorf("pool %q: the bound %d is above the cost %d: the solver is wrong", s.pool.ID,
			out.Bound, out.Cost)
	default:
		if out.Algorithm == Flow {
			return nil, fmt.Errorf("pool %q: the flow costs %d and proves %d: the solver is wrong", s.pool.ID,
				out.Cost, out.Bound)
		}
	}
	return out, nil
}
