package joint

import (
	"context"
	"fmt"
	"math"
	"math/big"

	"quartermaster/domain/procurement"
)

// Evaluate serves every slot at least cost with what is held and bought; units are by choice. Where
// that would exceed a limit, it looks for the cheapest way that keeps the limit (Evaluation.Ways),
// and lists limits that stay exceeded. It needs no linear programming solver, and refuses units
// that the choices do not allow.
func Evaluate(p *Problem, units []int) (*Evaluation, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := p.allowed(units); err != nil {
		return nil, fmt.Errorf("problem %q: %w", p.ID, err)
	}
	var work Work
	pr := newPricer(p, p.blocks(), &work)
	pr.rounds = settled
	ev, err := p.evaluate(context.Background(), pr, units)
	if err != nil {
		return nil, fmt.Errorf("problem %q: %w", p.ID, err)
	}
	return ev, nil
}

// allowed returns an error for units that cannot be bought.
func (p *Problem) allowed(units []int) error {
	if len(units) != len(p.Choices) {
		return fmt.Errorf("units of %d choices, there are %d", len(units), len(p.Choices))
	}
	taken := map[string]string{}
	for j, x := range units {
		c := &p.Choices[j]
		switch {
		case x == 0:
			continue
		case x < 0 || x < c.Least || x > c.most():
			return fmt.Errorf("%d units of choice %d (%q): neither none nor within %d to %d", x, j, c.ID,
				max(1, c.Least), c.most())
		case x%c.Lot != 0:
			return fmt.Errorf("%d units of choice %d (%q): no multiple of %d", x, j, c.ID, c.Lot)
		case c.Group != "" && taken[c.Group] != "":
			return fmt.Errorf("choices %q and %q: of group %q one at most", taken[c.Group], c.ID, c.Group)
		}
		if c.Group != "" {
			taken[c.Group] = c.ID
		}
	}
	return nil
}

// allows reports whether units can be bought.
func (p *Problem) allows(units []int) bool { return p.allowed(units) == nil }

// most is the largest number of units that can be bought.
func (c *Choice) most() int {
	if c.Max == procurement.Unlimited {
		return MaxUnits
	}
	return c.Max
}

// evaluate is Evaluate for a valid problem, with all blocks in the pricer.
func (p *Problem) evaluate(ctx context.Context, pr *pricer, units []int) (*Evaluation, error) {
	mix, err := p.keep(ctx, pr, units)
	if err != nil {
		return nil, err
	}
	ev := &Evaluation{
		Purchases: new(big.Rat), OnDemand: new(big.Rat), Spot: new(big.Rat), Routes: new(big.Rat), Shortage: new(big.Rat),
		Limits: p.spent(units),
	}
	ways := []Way{{big.NewRat(1, 1), make([]int64, len(p.Limits))}}
	if mix != nil {
		ways = mix.ways()
		ev.Ways = ways
	}
	for j, x := range units {
		ev.Purchases.Add(ev.Purchases, product(int64(p.Choices[j].Cost), int64(x), int64(p.Weight)))
	}
	have := p.covers(units)
	for m := range p.Epochs {
		e := &p.Epochs[m]
		var cases []Served
		for c := range e.Cases {
			var s *Served
			for k, w := range ways {
				one, runs, err := p.served(ctx, pr, m, c, w.Multipliers, have)
				if err != nil {
					return nil, err
				}
				s = s.mix(one, w.Share)
				for _, r := range runs {
					r.Way = k
					ev.Runs = append(ev.Runs, r)
				}
			}
			p.charge(ev, m, c, s)
			cases = append(cases, *s)
		}
		ev.Cases = append(ev.Cases, cases)
	}
	sum := new(big.Rat)
	for _, part := range []*big.Rat{ev.Purchases, ev.OnDemand, ev.Spot, ev.Routes, ev.Shortage} {
		sum.Add(sum, part)
	}
	ev.Cost = ceil(sum)
	for i := range p.Needs {
		if !p.Needs[i].kept(p, have) {
			ev.Broken = append(ev.Broken, p.Needs[i].ID)
		}
	}
	for l := range p.Limits {
		if ev.Limits[l].Cmp(p.bound(l)) > 0 {
			ev.Broken = append(ev.Broken, p.Limits[l].ID)
		}
	}
	return ev, nil
}

// covers is what whole units cover, in fractions in which each hour is served exactly.
func (p *Problem) covers(units []int) *cover {
	grid := int64(1)
	if p.waits() {
		grid = Grain
	}
	out := make([]int64, len(units))
	for j, x := range units {
		out[j] = int64(x) * grid
	}
	return p.cover(out, grid)
}

func product(factors ...int64) *big.Rat {
	z := big.NewInt(1)
	for _, f := range factors {
		z.Mul(z, big.NewInt(f))
	}
	return new(big.Rat).SetInt(z)
}

func ceil(r *big.Rat) *big.Int {
	z, rest := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		z.Add(z, big.NewInt(1))
	}
	return z
}

// bound is the bound of a limit, times the problem's weight.
func (p *Problem) bound(l int) *big.Rat { return product(int64(p.Limits[l].Most), int64(p.Weight)) }

// spent is what units take of each limit, times the problem's weight.
func (p *Problem) spent(units []int) []*big.Rat {
	out := make([]*big.Rat, len(p.Limits))
	for l := range out {
		out[l] = new(big.Rat)
	}
	for j, x := range units {
		for l, v := range p.Choices[j].Spent {
			if x != 0 && v != 0 {
				out[l].Add(out[l], product(int64(v), int64(x), int64(p.Weight)))
			}
		}
	}
	return out
}

// kept reports whether a need is met.
func (n *Need) kept(p *Problem, have *cover) bool {
	for _, m := range n.Epochs {
		sum := new(big.Int)
		for _, t := range n.Terms {
			sum.Add(sum, new(big.Int).Mul(big.NewInt(int64(t.PerUnit)), big.NewInt(have.guaranteed[m][t.Pool])))
		}
		if sum.Cmp(product2(int64(n.Least), have.grid)) < 0 {
			return false
		}
	}
	return true
}

// charge adds what served a case to the evaluation.
func (p *Problem) charge(ev *Evaluation, m, c int, s *Served) {
	e := &p.Epochs[m]
	weight := int64(e.Cases[c].Weight)
	var money, spot, short big.Rat // of limits
	cost := func(to *big.Rat, units *big.Rat, price procurement.Nano, limited *big.Rat) {
		if units.Sign() == 0 {
			return
		}
		v := product(int64(price), weight)
		v.Mul(v, units)
		to.Add(to, v)
		if limited != nil {
			limited.Add(limited, v)
		}
	}
	for i := range s.Pools {
		cost(ev.OnDemand, s.Pools[i].OnDemand, e.Pools[i].OnDemand, &money)
		cost(ev.Spot, s.Pools[i].Spot, e.Pools[i].Spot, &money)
		cost(&spot, s.Pools[i].Spot, 1, nil)
	}
	for i := range s.Routes {
		cost(ev.Routes, s.Routes[i].Firm, e.Routes[i], &money)
		cost(ev.Routes, s.Routes[i].Spot, e.Routes[i], &money)
	}
	for i := range s.Demands {
		cost(ev.Shortage, s.Demands[i].Shortage, e.Shortage[i], nil)
		cost(&short, s.Demands[i].Shortage, 1, nil)
	}
	for l := range p.Limits {
		limit := &p.Limits[l]
		if limit.Serving == nil || limit.Serving[m] == 0 {
			continue
		}
		of := &money
		if limit.Unserved {
			of = &short
		} else if limit.Spot {
			of = &spot
		}
		ev.Limits[l].Add(ev.Limits[l], new(big.Rat).Mul(of, big.NewRat(limit.Serving[m], 1000)))
	}
}

// served serves a case and reports by what, and when work that waits runs.
func (p *Problem) served(
	ctx context.Context, pr *pricer, m, c int, multipliers []int64, have *cover,
) (*Served, []Run, error) {
	zero := new(big.Rat)
	var runs []Run
	s := &Served{
		Pools: make([]PoolServed, len(p.Pools)), Demands: make([]DemandServed, len(p.Demands)),
		Routes: make([]RouteServed, len(p.Routes)),
	}
	for i := range s.Pools {
		s.Pools[i] = PoolServed{zero, zero, zero, zero, zero}
	}
	for i := range s.Demands {
		s.Demands[i] = DemandServed{new(big.Int), zero}
	}
	for i := range s.Routes {
		s.Routes[i] = RouteServed{zero, zero}
	}
	for b, block := range pr.blocks {
		// By entry and pool: guaranteed, discount-only, committed, on demand.
		split := map[*entry][][4]*big.Int{}
		t := &trimmed{free: make([]bool, len(block.routes)), over: make([]*big.Rat, len(block.routes))}
		for k, r := range block.routes {
			t.free[k] = p.Epochs[m].Routes[r] == 0
		}
		visit := func(g *regime, e *entry, q *query, slot []int64, rows []int, hours int64) {
			if split[e] == nil {
				split[e] = make([][4]*big.Int, g.pools)
				for i := range g.pools {
					split[e][i] = [4]*big.Int{new(big.Int), new(big.Int), new(big.Int), new(big.Int)}
				}
			}
			g.divide(e, q, slot, rows, hours, split[e], t)
		}
		if len(block.Demands) == 0 {
			continue
		}
		pd, err := pr.price(ctx, b, m, c, multipliers, have, visit)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range pd.entries {
			for i, of := range split[e] {
				to := &s.Pools[block.Pools[i]]
				for k, at := range []**big.Rat{&to.Guaranteed, &to.DiscountOnly, &to.Committed, &to.OnDemand} {
					if of[k].Sign() != 0 {
						*at = new(big.Rat).Add(*at, new(big.Rat).SetFrac(of[k], new(big.Int).Mul(big.NewInt(pd.grid), e.det)))
					}
				}
			}
		}
		for j, x := range pd.amounts() {
			if x.Sign() == 0 {
				continue
			}
			switch k := &pd.regime.columns[j]; k.kind {
			case firmRoute, spotRoute:
				to := &s.Routes[block.routes[k.of]]
				units := new(big.Rat).Mul(x, big.NewRat(block.den[k.of], 1))
				if k.kind == firmRoute {
					if over := t.over[k.of]; over != nil {
						units.Sub(units, over)
					}
					to.Firm = units
					break
				}
				to.Spot = units
				pool := &s.Pools[block.Pools[block.poolOf[k.of]]]
				pool.Spot = new(big.Rat).Add(pool.Spot, x.Mul(x, big.NewRat(block.num[k.of], 1)))
			case shortage:
				s.Demands[block.Demands[k.of]].Shortage = x
			}
		}
		v := &block.views[m][c]
		if pd.windows != nil {
			runs = append(runs, pd.windows.runs(block, v, m, c)...)
		}
		for i, d := range block.Demands {
			var sum exact
			for k, hours := range v.hours {
				sum.add(v.units[k*len(block.Demands)+i], hours)
			}
			s.Demands[d].Demand = sum.big()
		}
		for i, of := range t.pools {
			to := &s.Pools[block.Pools[i]]
			for k, at := range []**big.Rat{&to.Guaranteed, &to.DiscountOnly, &to.Committed, &to.OnDemand} {
				if of[k] != nil {
					*at = new(big.Rat).Add(*at, of[k])
				}
			}
		}
	}
	return s, runs, nil
}

// trimmed is what serves in hours in which more than is wanted would serve. The linear program only
// requires at least that, so units without extra cost may exceed it. Such units are existing
// capacity on routes without cost (free): a route with a price never serves more than is wanted. The
// excess does not serve; it is left out hour by hour, because another hour of the epoch may need the
// same units.
type trimmed struct {
	free  []bool        // by the block's routes
	over  []*big.Rat    // by route, in units of demand: what exceeds it; nil: nothing
	pools [][4]*big.Rat // by pool, as in divide; nil: nothing
}

// excess is, by route, what of a slot's firm units exceeds demand, in units of demand; nil if nothing
// does. flow is by route, and given by demand what serves it and is short, both times the entry's
// determinant and the grid, in whose fractions slot is.
func (t *trimmed) excess(b *block, flow, given []*big.Int, slot []int64, det, unit *big.Int) []*big.Rat {
	var out []*big.Rat
	for d, sum := range given {
		if sum == nil {
			continue
		}
		left := new(big.Int).Add(sum, new(big.Int).Mul(big.NewInt(slot[d]), det))
		for k := range flow {
			if left.Sign() <= 0 {
				break
			}
			if b.demandOf[k] != d || !t.free[k] || flow[k] == nil {
				continue
			}
			less := new(big.Int).Mul(flow[k], big.NewInt(b.den[k]))
			if less.Cmp(left) > 0 {
				less.Set(left)
			}
			left.Sub(left, less)
			if out == nil {
				out = make([]*big.Rat, len(flow))
			}
			out[k] = new(big.Rat).SetFrac(less, unit)
		}
	}
	return out
}

// divide splits a slot's firm units in each pool into guaranteed, discount-only, committed and on
// demand, in this order as far as each is available. It adds them times hours, the entry's
// determinant and the grid; those of a slot in which more than is wanted would serve to t, times hours.
func (g *regime) divide(e *entry, q *query, slot []int64, rows []int, hours int64, to [][4]*big.Int, t *trimmed) {
	b := g.block
	flow, given := make([]*big.Int, len(b.routes)), make([]*big.Int, g.demands)
	var other [3][]*big.Int // discount-only, committed, on demand
	for k := range other {
		other[k] = make([]*big.Int, g.pools)
	}
	gives := func(d int, x *big.Int, by int64) {
		if given[d] == nil {
			given[d] = new(big.Int)
		}
		given[d].Add(given[d], new(big.Int).Mul(x, big.NewInt(by)))
	}
	for i, j := range e.columns {
		if j >= len(g.columns) {
			continue
		}
		c := &g.columns[j]
		x := g.at(e, q, slot, rows, i)
		switch c.kind {
		case firmRoute:
			flow[c.of] = x
			gives(b.demandOf[c.of], x, b.den[c.of])
		case spotRoute:
			gives(b.demandOf[c.of], x, b.den[c.of])
		case shortage:
			gives(c.of, x, 1)
		case discountOnly:
			other[0][c.of] = x
		case committed:
			other[1][c.of] = x
		case onDemand:
			other[2][c.of] = x
		}
	}
	unit := new(big.Int).Mul(e.det, big.NewInt(q.grid))
	over := t.excess(b, flow, given, slot, e.det, unit)
	firm := make([]*big.Rat, g.pools)
	whole := make([]*big.Int, g.pools)
	for k, x := range flow {
		if x == nil {
			continue
		}
		p := b.poolOf[k]
		if whole[p] == nil {
			whole[p] = new(big.Int)
		}
		whole[p].Add(whole[p], new(big.Int).Mul(x, big.NewInt(b.num[k])))
	}
	n := big.NewInt(hours)
	if over != nil {
		for p, x := range whole {
			if x != nil {
				firm[p] = new(big.Rat).SetFrac(x, unit)
			}
		}
		for k, x := range over {
			if x == nil {
				continue
			}
			if t.over[k] == nil {
				t.over[k] = new(big.Rat)
			}
			t.over[k].Add(t.over[k], new(big.Rat).Mul(x, new(big.Rat).SetInt(n)))
			firm[b.poolOf[k]].Sub(firm[b.poolOf[k]], new(big.Rat).Mul(x, big.NewRat(b.num[k], b.den[k])))
		}
		t.split(g, firm, other, q, unit, n)
		return
	}
	for p, left := range whole {
		if left == nil {
			continue
		}
		have := new(big.Int).Mul(big.NewInt(q.r[g.demands+p]), e.det)
		for k := range 4 {
			if k > 0 {
				if have = other[k-1][p]; have == nil {
					continue
				}
			}
			if have.Cmp(left) > 0 {
				have = left
			}
			left = new(big.Int).Sub(left, have)
			to[p][k].Add(to[p][k], new(big.Int).Mul(have, n))
		}
	}
}

// split is the end of divide for a slot with an excess: firm is what is left of each pool's units.
func (t *trimmed) split(g *regime, firm []*big.Rat, other [3][]*big.Int, q *query, unit, hours *big.Int) {
	if t.pools == nil {
		t.pools = make([][4]*big.Rat, g.pools)
	}
	for p, left := range firm {
		if left == nil {
			continue
		}
		for k := range 4 {
			have := big.NewRat(q.r[g.demands+p], q.grid)
			if k > 0 {
				if other[k-1][p] == nil {
					continue
				}
				have.SetFrac(other[k-1][p], unit)
			}
			have = least(have, left)
			left = new(big.Rat).Sub(left, have)
			if t.pools[p][k] == nil {
				t.pools[p][k] = new(big.Rat)
			}
			t.pools[p][k].Add(t.pools[p][k], have.Mul(have, new(big.Rat).SetInt(hours)))
		}
	}
}

func least(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) < 0 {
		return new(big.Rat).Set(a)
	}
	return new(big.Rat).Set(b)
}

// mix adds a share of another serving of the same case.
func (s *Served) mix(other *Served, share *big.Rat) *Served {
	if s == nil && share.Cmp(big.NewRat(1, 1)) == 0 {
		return other
	}
	if s == nil {
		zero := new(big.Rat)
		s = &Served{
			Pools: make([]PoolServed, len(other.Pools)), Demands: make([]DemandServed, len(other.Demands)),
			Routes: make([]RouteServed, len(other.Routes)),
		}
		for i := range s.Pools {
			s.Pools[i] = PoolServed{zero, zero, zero, zero, zero}
		}
		for i := range s.Demands {
			s.Demands[i] = DemandServed{other.Demands[i].Demand, zero}
		}
		for i := range s.Routes {
			s.Routes[i] = RouteServed{zero, zero}
		}
	}
	add := func(to **big.Rat, v *big.Rat) {
		if v.Sign() != 0 {
			t := new(big.Rat).Mul(v, share)
			*to = t.Add(t, *to)
		}
	}
	for i := range s.Pools {
		to, of := &s.Pools[i], &other.Pools[i]
		add(&to.Guaranteed, of.Guaranteed)
		add(&to.DiscountOnly, of.DiscountOnly)
		add(&to.Committed, of.Committed)
		add(&to.OnDemand, of.OnDemand)
		add(&to.Spot, of.Spot)
	}
	for i := range s.Demands {
		add(&s.Demands[i].Shortage, other.Demands[i].Shortage)
	}
	for i := range s.Routes {
		add(&s.Routes[i].Firm, other.Routes[i].Firm)
		add(&s.Routes[i].Spot, other.Routes[i].Spot)
	}
	return s
}

// highest is the largest useful multiplier of a limit. For a unit-hour it is a multiple of what any
// choice or shortage costs. For money it makes the cheapest source cost a multiple of a shortage.
// At it no hourly price exceeds 64 bits.
func (p *Problem) highest(l int) int64 {
	if p.ceiling != nil {
		return p.ceiling[l]
	}
	limit := &p.Limits[l]
	serving, price, ratio := int64(1), int64(1), int64(1)
	least, short, whole := int64(math.MaxInt64), int64(1), int64(1)
	for m := range p.Epochs {
		serving = max(serving, limit.Serving[m])
		e := &p.Epochs[m]
		for i := range e.Pools {
			price = max(price, int64(e.Pools[i].OnDemand))
			for _, v := range []int64{int64(e.Pools[i].OnDemand), int64(e.Pools[i].Spot)} {
				if v > 0 {
					least = min(least, v)
				}
			}
		}
		for i, r := range p.Routes {
			ratio = max(ratio, int64(r.Num), int64(r.Den))
			price = max(price, int64(e.Routes[i])*int64(r.Den), int64(e.Pools[r.Pool].Spot)*int64(r.Num))
			if v := int64(e.Routes[i]); v > 0 {
				least = min(least, v)
			}
		}
		for _, v := range e.Shortage {
			short = max(short, int64(v))
		}
	}
	for j := range p.Choices {
		whole = max(whole, int64(p.Choices[j].Cost))
	}
	// Limits share the room that Validate leaves.
	room := maxVector / 2 / int64(len(p.Limits))
	if limit.counts() {
		return min(scale(add(whole, scale(short, ratio, 1)), 16, 1), 1_000_000_000_000_000_000,
			scale(room/ratio, 1000, serving))
	}
	return min(scale(scale(short, ratio, 1), 16_000_000_000, least), 1_000_000_000_000_000_000,
		scale(room/price, 1_000_000_000_000, serving))
}

// nudge is the change of a multiplier that changes every price it affects by a Nano.
func (p *Problem) nudge(l int) int64 {
	limit := &p.Limits[l]
	serving, least := int64(math.MaxInt64), int64(math.MaxInt64)
	for m := range p.Epochs {
		if v := limit.Serving[m]; v > 0 {
			serving = min(serving, v)
		}
		e := &p.Epochs[m]
		for i := range e.Pools {
			for _, v := range []int64{int64(e.Pools[i].OnDemand), int64(e.Pools[i].Spot)} {
				if v > 0 {
					least = min(least, v)
				}
			}
		}
		for _, v := range e.Routes {
			if v > 0 {
				least = min(least, int64(v))
			}
		}
	}
	if limit.counts() {
		return 1000/serving + 1
	}
	return 2_000_000_000_000/serving/least + 1
}

// taken is what a block's serving takes of a limit in a case, times its weight.
func (p *Problem) taken(b *block, pd *priced, m, c, l int) *big.Rat {
	limit, e := &p.Limits[l], &p.Epochs[m]
	sum := new(big.Rat)
	if limit.Serving == nil || limit.Serving[m] == 0 {
		return sum
	}
	for j, x := range pd.amounts() {
		if x.Sign() == 0 {
			continue
		}
		of := big.NewInt(0)
		switch k := &pd.regime.columns[j]; k.kind {
		case firmRoute, spotRoute:
			r := k.of
			if !limit.Unserved && !limit.Spot {
				of.Mul(big.NewInt(int64(e.Routes[b.routes[r]])), big.NewInt(b.den[r]))
			}
			if k.kind == spotRoute {
				price := int64(e.Pools[b.Pools[b.poolOf[r]]].Spot)
				if limit.Spot {
					price = 1
				} else if limit.Unserved {
					price = 0
				}
				of.Add(of, new(big.Int).Mul(big.NewInt(price), big.NewInt(b.num[r])))
			}
		case onDemand:
			if !limit.Unserved && !limit.Spot {
				of.SetInt64(int64(e.Pools[b.Pools[k.of]].OnDemand))
			}
		case shortage:
			if limit.Unserved {
				of.SetInt64(1)
			}
		}
		if of.Sign() != 0 {
			sum.Add(sum, x.Mul(x, new(big.Rat).SetInt(of)))
		}
	}
	return sum.Mul(sum, new(big.Rat).Mul(big.NewRat(limit.Serving[m], 1000), product(int64(e.Cases[c].Weight))))
}
