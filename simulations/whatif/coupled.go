package whatif

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// group is pools whose hours are served together, because one may serve another's demand or because
// they share a quota.
type group struct {
	pools  []int   // of the model
	quotas []int   // of the instance
	takes  []int64 // by quota: what a unit takes in whatever pool, 1 where pools differ
	wants  []want  // the demands of its pools
	routes []groupRoute
	// across reports whether a pool may serve another's demand on an ordinary day; otherwise the
	// pools share only quotas then.
	across bool
	epochs []groupEpoch
}

// want is a demand, by its pool's position in the group. The part of it that may go elsewhere only
// while its own pool is gone is a separate want, which is otherwise zero.
type want struct {
	pool   int
	refuge bool
	home   int // the route to its own pool
}

// groupRoute is a route by which a pool serves a want.
type groupRoute struct {
	joint.Route
	hourly procurement.Nano   // nominal
	extra  []procurement.Nano // by epoch, discounted
}

// groupEpoch is the hours of an epoch. Hours with the same demand in every pool are one slot.
type groupEpoch struct {
	levels []int32 // slots × pools: the level of the pool's curve that is wanted
	count  []int64 // hours of each slot
	of     []int32 // by hour of the epoch: its slot
}

// nano is a nominal price in the unit of prices.
func nano(price domain.Decimal) (procurement.Nano, error) {
	n := price.Shift(priceDigits).Round(0)
	if n.GreaterThan(decimal.NewFromInt(maxPrice * 1_000_000_000)) {
		return 0, unfit("%s for a unit and hour is more than %d, which trials do not add up", price, maxPrice)
	}
	return procurement.Nano(n.IntPart()), nil
}

// couple finds the groups. refuge, if not nil, is the instance with the routes that protected
// demand may take while its region is gone.
func (m *compiled) couple(refuge *instance.Instance) error {
	in := m.in
	id := map[string]int{}
	for p := range in.Pools {
		id[in.Pools[p].ID] = p
	}
	var havens *instance.Priced
	if refuge != nil {
		// Curves do not say which hours coincide; the model has put them in an order.
		refuge.Demands = slices.Clone(refuge.Demands)
		for p := range m.pools {
			if d := slices.IndexFunc(refuge.Demands, func(d instance.Demand) bool {
				return d.ID == m.pools[p].demand
			}); d >= 0 && refuge.Demands[d].Duration != nil {
				hourly := make([]int, len(m.pools[p].hourly))
				for h, n := range m.pools[p].hourly {
					hourly[h] = int(n)
				}
				refuge.Demands[d].Duration, refuge.Demands[d].Hourly = nil, hourly
			}
		}
		var err error
		if havens, err = refuge.Priced(); err != nil {
			return err
		}
	}
	// Sets of pools, each named by its smallest index.
	with := make([]int, len(m.pools))
	for p := range with {
		with[p] = p
	}
	join := func(p, q int) {
		low, high := min(with[p], with[q]), max(with[p], with[q])
		for i := range with {
			if with[i] == high {
				with[i] = low
			}
		}
	}
	daily, fleeing := make([][]instance.Route, len(m.pools)), make([][]instance.Route, len(m.pools))
	for p := range m.pools {
		x := &m.pools[p]
		for q := range m.pools[:p] {
			if x.quota >= 0 && m.pools[q].quota == x.quota {
				join(p, q)
			}
		}
		if x.demand == "" {
			continue
		}
		daily[p] = m.priced.Routes(x.demand)
		if havens != nil && x.protected > 0 {
			if fleeing[p] = havens.Routes(x.demand); len(fleeing[p]) == len(daily[p]) {
				fleeing[p] = nil
			}
		}
		for _, r := range slices.Concat(daily[p], fleeing[p]) {
			join(p, id[r.Pool])
		}
	}
	for p := range m.pools {
		if with[p] != p {
			continue
		}
		g := group{}
		for q := range m.pools {
			if with[q] == p {
				g.pools = append(g.pools, q)
			}
		}
		if len(g.pools) == 1 {
			continue
		}
		for k, q := range g.pools {
			m.pools[q].group = len(m.groups)
			if i := m.pools[q].quota; i >= 0 && !slices.Contains(g.quotas, i) {
				g.quotas = append(g.quotas, i)
				g.takes = append(g.takes, int64(m.in.Takes(m.in.Quotas[i].ID)))
			}
			g.across = g.across || len(daily[q]) > 1
			for i, ways := range [][]instance.Route{daily[q], fleeing[q]} {
				if ways == nil {
					continue
				}
				g.wants = append(g.wants, want{k, i == 1, len(g.routes)})
				for _, w := range ways {
					if err := m.way(&g, slices.Index(g.pools, id[w.Pool]), &w); err != nil {
						return fmt.Errorf("demand %s from pool %s: %w", m.pools[q].demand, w.Pool, err)
					}
				}
			}
		}
		m.slots(&g)
		m.groups = append(m.groups, g)
	}
	return nil
}

// way adds a route to the last want of a group.
func (m *compiled) way(g *group, pool int, of *instance.Route) error {
	r := groupRoute{Route: joint.Route{Demand: len(g.wants) - 1, Pool: pool, Num: of.Num, Den: of.Den}}
	var err error
	if r.hourly, err = nano(of.Hourly); err != nil {
		return err
	}
	for e := range m.spans {
		extra, err := m.priced.Discounted(of.Hourly, e)
		if err != nil {
			return err
		}
		r.extra = append(r.extra, extra)
	}
	g.routes = append(g.routes, r)
	return nil
}

// slots merges hours with the same demand in every pool.
func (m *compiled) slots(g *group) {
	n := len(g.pools)
	for e := range m.spans {
		from, to := m.starts[e], m.starts[e+1]
		levels := make([]int32, (to-from)*n)
		order := make([]int32, to-from)
		for h := range order {
			order[h] = int32(h)
			for k, p := range g.pools {
				level, _ := slices.BinarySearch(m.pools[p].epochs[e].curve.units, int64(m.pools[p].hourly[from+h]))
				levels[h*n+k] = int32(level)
			}
		}
		at := func(h int32) []int32 { return levels[int(h)*n : (int(h)+1)*n] }
		slices.SortFunc(order, func(a, b int32) int { return cmp.Or(slices.Compare(at(a), at(b)), cmp.Compare(a, b)) })
		x := groupEpoch{of: make([]int32, to-from)}
		for i, h := range order {
			if i == 0 || !slices.Equal(at(order[i-1]), at(h)) {
				x.levels = append(x.levels, at(h)...)
				x.count = append(x.count, 0)
			}
			x.of[h] = int32(len(x.count) - 1)
			x.count[len(x.count)-1]++
		}
		g.epochs = append(g.epochs, x)
	}
}

// problem is a group without its prices and amounts.
func (m *compiled) problem(g *group) *joint.Problem {
	p := &joint.Problem{ID: m.in.Pools[g.pools[0]].ID, Weight: 1}
	e := joint.Epoch{Cases: []joint.Case{{Weight: 1}}}
	for _, i := range g.pools {
		x := &m.pools[i]
		p.Pools = append(p.Pools, m.in.Pools[i].ID)
		s := joint.Supply{Spot: -1, Quota: slices.Index(g.quotas, x.quota), QuotaPerUnit: int(x.perUnit), Spend: -1}
		if x.quota < 0 {
			s.Quota = -1
		}
		priced := slices.ContainsFunc(x.held[1], func(units int64) bool { return units > 0 }) ||
			slices.ContainsFunc(m.pays, func(y payment) bool { return y.pool == i && y.units != nil && !y.guaranteed })
		if priced {
			s.HeldDiscountOnly = 1
		}
		e.Pools = append(e.Pools, s)
		e.Cases[0].Spot = append(e.Cases[0].Spot, procurement.Unlimited)
	}
	for _, w := range g.wants {
		d := joint.Demand{ID: m.pools[g.pools[w.pool]].demand, Interruptible: int(m.pools[g.pools[w.pool]].permille)}
		p.Demands, e.Shortage = append(p.Demands, d), append(e.Shortage, 0)
	}
	for i := range g.routes {
		p.Routes, e.Routes = append(p.Routes, g.routes[i].Route), append(e.Routes, 0)
	}
	for _, q := range g.quotas {
		p.Quotas, e.Quotas = append(p.Quotas, m.in.Quotas[q].ID), append(e.Quotas, procurement.Unlimited)
	}
	p.Epochs = []joint.Epoch{e}
	return p
}

// together serves the hours of a group.
type together struct {
	m *compiled
	g *group
	r *joint.Recourse

	terms   joint.Terms
	have    joint.Capacity
	amounts joint.Amounts
	wanted  [][]int64 // by pool of the group and level: units that are wanted
	units   []int64   // slots × wants
	parts   []int64   // of units, those that may run on spot
	count   []int64   // hours of each slot, without those apart
	apart   []int64   // hours of each slot in a stretch in which capacity is missing
	total   []int64   // by pool of the group, of an epoch: unit-hours wanted
	used    []int64   // by pool of the group, of an epoch: committed unit-hours that serve
}

func newTogether(m *compiled, g *group) (*together, error) {
	r, err := joint.NewRecourse(m.problem(g))
	if err != nil {
		return nil, err
	}
	n, ways := len(g.pools), len(g.routes)
	prices := func(n int) []procurement.Nano { return make([]procurement.Nano, n) }
	return &together{
		m: m, g: g, r: r, wanted: make([][]int64, n), total: make([]int64, n), used: make([]int64, n),
		terms: joint.Terms{OnDemand: prices(n), Spot: prices(n), Routes: prices(ways), Shortage: prices(len(g.wants))},
		have: joint.Capacity{
			Guaranteed: make([]int64, n), DiscountOnly: make([]int64, n), Spot: make([]int64, n),
			Quotas: make([]int64, len(g.quotas)),
		},
		amounts: joint.Amounts{
			OnDemand: make([]int64, n), Firm: make([]int64, ways), Spot: make([]int64, ways),
			Shortage: make([]int64, len(g.wants)),
		},
	}, nil
}

// stretch is hours of an epoch in which the same capacity is missing.
type stretch struct {
	from, to int     // hours of the horizon
	without  []int64 // by pool of the group: missing committed units, in millionths
	gone     []bool  // by pool of the group: all of it is missing
}

// stretches divides the hours of an epoch in which capacity is missing.
func (t *together) stretches(e int, windows ...[]window) []stretch {
	first, end := t.m.starts[e], t.m.starts[e+1]
	var touching []window
	var cuts []int
	for _, of := range windows {
		for _, x := range of {
			k := slices.Index(t.g.pools, x.pool)
			if from, to := max(x.from, first), min(x.to, end); k >= 0 && from < to {
				x.pool = k
				touching = append(touching, x)
				cuts = append(cuts, from, to)
			}
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	var out []stretch
	for i := 1; i < len(cuts); i++ {
		s := stretch{cuts[i-1], cuts[i], make([]int64, len(t.g.pools)), make([]bool, len(t.g.pools))}
		some := false
		for _, x := range touching {
			if x.from < s.to && s.from < x.to {
				some = true
				s.without[x.pool] += x.units
				s.gone[x.pool] = s.gone[x.pool] || x.whole
			}
		}
		if some {
			out = append(out, s)
		}
	}
	return out
}

// epoch serves an epoch in a world.
func (t *together) epoch(v *evaluator, w *world, e int, out *outcome) error {
	stretches := t.stretches(e, w.windows, v.late)
	if len(stretches) == 0 && !t.g.across && !t.binds(v, w, e) {
		for _, p := range t.g.pools {
			v.epoch(w, p, e, out)
		}
		return nil
	}
	t.demand(w, e)
	x := &t.g.epochs[e]
	t.count = append(t.count[:0], x.count...)
	for i := range stretches {
		s := &stretches[i]
		t.apart = slices.Grow(t.apart[:0], len(t.count))[:len(t.count)]
		clear(t.apart)
		for h := s.from; h < s.to; h++ {
			slot := x.of[h-t.m.starts[e]]
			t.apart[slot]++
			t.count[slot]--
		}
		if err := t.serve(v, w, e, s, t.apart, out); err != nil {
			return err
		}
	}
	if err := t.serve(v, w, e, nil, t.count, out); err != nil {
		return err
	}
	for k, p := range t.g.pools {
		out.demand += t.total[k] * one
		out.served += t.total[k] * one
		if s := &v.supply[p*len(t.m.spans)+e]; s.all > 0 && s.paid > 0 {
			all := s.all * int64(t.m.starts[e+1]-t.m.starts[e])
			out.stranded += mulDiv(s.paid, max(0, all-t.used[k])/1000, max(1, all/1000))
		}
	}
	return nil
}

// binds reports whether pools that share only quotas could want more than one of the quotas has.
func (t *together) binds(v *evaluator, w *world, e int) bool {
	m := t.m
	for _, q := range t.g.quotas {
		limit, most := w.quota[q*len(m.spans)+e], int64(0)
		for _, p := range t.g.pools {
			if x := &m.pools[p]; x.quota == q {
				units := x.epochs[e].curve.units
				peak := w.wanted(p, e, units[len(units)-1]) * one
				most += x.perUnit * max(0, peak-v.supply[p*len(m.spans)+e].guaranteed)
			}
		}
		if limit < noQuota && most > limit*one {
			return true
		}
	}
	return false
}

// demand computes the demand of each slot of an epoch in a world.
func (t *together) demand(w *world, e int) {
	g, n := t.g, len(t.g.wants)
	x := &g.epochs[e]
	for k, p := range g.pools {
		c := &t.m.pools[p].epochs[e].curve
		t.wanted[k], t.total[k], t.used[k] = t.wanted[k][:0], 0, 0
		for i, u := range c.units {
			units := w.wanted(p, e, u)
			t.wanted[k] = append(t.wanted[k], units)
			t.total[k] += units * c.count[i]
		}
	}
	t.units, t.parts = slices.Grow(t.units[:0], len(x.count)*n)[:len(x.count)*n],
		slices.Grow(t.parts[:0], len(x.count)*n)[:len(x.count)*n]
	for slot := range x.count {
		for i, d := range g.wants {
			units := int64(0)
			if !d.refuge {
				units = t.wanted[d.pool][x.levels[slot*len(g.pools)+d.pool]]
			}
			t.units[slot*n+i], t.parts[slot*n+i] = units, units*t.m.pools[g.pools[d.pool]].permille/1000
		}
	}
}

// serve serves hours of an epoch, normally or in a stretch with missing capacity. The cheapest way
// is decided at nominal prices, which are the same in most epochs; its cost is discounted.
func (t *together) serve(v *evaluator, w *world, e int, s *stretch, hours []int64, out *outcome) error {
	m, g := t.m, t.g
	grid := int64(1)
	gone := func(k int) bool { return s != nil && s.gone[k] }
	if s != nil && slices.ContainsFunc(g.wants, func(d want) bool { return d.refuge && gone(d.pool) }) {
		grid = one
	}
	units, parts := t.units, t.parts
	if grid != 1 {
		units, parts = t.flee(s)
	}
	t.have.Grid = grid
	for k, p := range g.pools {
		x, at := &m.pools[p], p*len(m.spans)+e
		y := &v.supply[at]
		guaranteed, priced := y.guaranteed, y.priced
		t.terms.OnDemand[k], t.terms.Spot[k] = factored(x.epochs[e].listedOnDemand, w.onDemand[at]),
			factored(x.epochs[e].listedSpot, w.spot[at])
		t.have.Spot[k] = procurement.Unlimited
		if y.avail != noSpotBounds {
			t.have.Spot[k] = y.avail / one * grid
		}
		switch {
		case gone(k):
			guaranteed, priced = 0, 0
			t.terms.OnDemand[k], t.terms.Spot[k] = -1, -1
		case s != nil:
			guaranteed, priced = max(0, guaranteed-s.without[k]), max(0, priced-max(0, s.without[k]-guaranteed))
		}
		t.have.Guaranteed[k], t.have.DiscountOnly[k] = guaranteed/one*grid, priced/one*grid
	}
	for i, q := range g.quotas {
		t.have.Quotas[i] = procurement.Unlimited
		if limit := w.quota[q*len(m.spans)+e]; limit < noQuota {
			t.have.Quotas[i] = (limit - limit%t.g.takes[i]) * grid
		}
	}
	for i, d := range g.wants {
		p := g.pools[d.pool]
		// On-demand is never skipped because of its price.
		t.terms.Shortage[i] = max(m.pools[p].listedShortage,
			factored(m.pools[p].epochs[e].listedOnDemand, w.onDemand[p*len(m.spans)+e]))
	}
	for i := range g.routes {
		// Among routes of equal cost, demand stays at home and takes no more than it needs.
		r := &g.routes[i]
		t.terms.Routes[i] = r.hourly + 1
		if r.Pool != g.wants[r.Demand].pool {
			t.terms.Routes[i]++
		}
	}
	clear(t.amounts.OnDemand)
	clear(t.amounts.Firm)
	clear(t.amounts.Spot)
	clear(t.amounts.Shortage)
	if !g.across && grid == 1 {
		t.ration(hours)
	} else if err := t.r.Serve(&t.terms, &t.have, units, parts, hours, &t.amounts); err != nil {
		return err
	}
	t.charge(v, w, e, out)
	return nil
}

// factored is a price times a factor; −1 means not sold.
func factored(price procurement.Nano, by int64) procurement.Nano {
	if price <= 0 || by == one {
		return price
	}
	return procurement.Nano(mulDiv(int64(price), by, one))
}

// flee splits off the part of the demand of missing pools that may go to a refuge, in millionths.
func (t *together) flee(s *stretch) (units, parts []int64) {
	n := len(t.g.wants)
	units, parts = make([]int64, len(t.units)), make([]int64, len(t.parts))
	for i := range units {
		units[i], parts[i] = t.units[i]*one, t.parts[i]*one
	}
	for i, d := range t.g.wants {
		if !d.refuge || !s.gone[d.pool] {
			continue
		}
		share := t.m.pools[t.g.pools[d.pool]].protected
		for at := i; at < len(units); at += n {
			// The previous want is the rest of the demand.
			for _, of := range [][]int64{units, parts} {
				of[at] = mulDiv(of[at-1], share, one)
				of[at-1] -= of[at]
			}
		}
	}
	return units, parts
}

// charge adds what served hours to an outcome.
func (t *together) charge(v *evaluator, w *world, e int, out *outcome) {
	m, g, a := t.m, t.g, &t.amounts
	for i := range g.routes {
		r := &g.routes[i]
		p := g.pools[r.Pool]
		out.cost += cost(a.Firm[i]+a.Spot[i], int64(r.extra[e]))
		_, spot, _ := v.prices(w, p, e)
		onSpot := mulDiv(a.Spot[i], int64(r.Num), int64(r.Den))
		out.cost += cost(onSpot, spot)
		out.spot += onSpot
		t.used[r.Pool] += mulDiv(a.Firm[i], int64(r.Num), int64(r.Den))
	}
	for k, p := range g.pools {
		onDemand, _, _ := v.prices(w, p, e)
		out.cost += cost(a.OnDemand[k], onDemand)
		t.used[k] -= a.OnDemand[k]
	}
	for i, d := range g.wants {
		penalty := cost(a.Shortage[i], m.pools[g.pools[d.pool]].epochs[e].shortage)
		out.penalty += penalty
		out.cost += penalty
		out.unserved += a.Shortage[i]
		out.served -= a.Shortage[i]
	}
}

// serving returns how a pool serves each slot of an epoch in a world in which nothing is missing;
// nil for an independent pool.
func (t *together) serving(v *evaluator, w *world, pool, e int) ([]served, error) {
	if t == nil {
		return nil, nil
	}
	g := t.g
	k := slices.Index(g.pools, pool)
	s := &v.supply[pool*len(t.m.spans)+e]
	t.demand(w, e)
	hours := make([]int64, len(g.epochs[e].count))
	out := make([]served, len(hours))
	for slot := range hours {
		hours[slot], t.used[k] = 1, 0
		if err := t.serve(v, w, e, nil, hours, &outcome{}); err != nil {
			return nil, err
		}
		hours[slot] = 0
		x := &out[slot]
		x.onDemand = t.amounts.OnDemand[k]
		x.guaranteed = min(t.used[k], s.guaranteed)
		x.priced = t.used[k] - x.guaranteed
		for i := range g.routes {
			if r := &g.routes[i]; r.Pool == k {
				x.spot += mulDiv(t.amounts.Spot[i], int64(r.Num), int64(r.Den))
			}
		}
		for i, d := range g.wants {
			if d.pool == k {
				x.short += t.amounts.Shortage[i]
			}
		}
	}
	return out, nil
}
