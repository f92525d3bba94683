package whatif

import (
	"cmp"
	"slices"
	"sort"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// outcome is the result of an alternative in one trial. Hours are unit-hours in millionths.
type outcome struct {
	cost, penalty, stranded int64
	capacity                int64 // payments for what is held and bought
	demand, served          int64
	spot, unserved          int64
}

// supply is what a pool has in an epoch.
type supply struct {
	guaranteed, priced int64 // units, priced within the quota
	more               int64 // quota that is left for on-demand
	avail              int64
	all, paid          int64 // units paid for, and what they cost
}

// evaluator evaluates trials of an alternative, one after another.
type evaluator struct {
	m      *compiled
	groups []*together // empty: each pool is served independently
	supply []supply    // by pool and epoch
	late   []window
	grown  curve // of the epoch that is evaluated
}

// newEvaluator evaluates with what is held and bought so far.
func newEvaluator(m *compiled) (*evaluator, error) {
	v := apart(m)
	for i := range m.groups {
		t, err := newTogether(m, &m.groups[i])
		if err != nil {
			return nil, err
		}
		v.groups = append(v.groups, t)
	}
	return v, nil
}

// apart evaluates pools independently, each with all of a shared quota.
func apart(m *compiled) *evaluator {
	return &evaluator{m: m, supply: make([]supply, len(m.pools)*len(m.spans))}
}

// group returns what serves a pool together with others, nil if it is independent.
func (v *evaluator) group(p int) *together {
	if g := v.m.pools[p].group; g >= 0 && len(v.groups) > 0 {
		return v.groups[g]
	}
	return nil
}

// evaluate computes the result of a world.
func (v *evaluator) evaluate(w *world) (outcome, error) {
	m := v.m
	var out outcome
	v.equip(w, &out)
	for p := range m.pools {
		if v.group(p) != nil {
			continue
		}
		for e := range m.spans {
			v.epoch(w, p, e, &out)
		}
	}
	if len(w.windows)+len(v.late) > 0 {
		v.windows(w, &out)
	}
	for _, t := range v.groups {
		t.r.Begin()
		for e := range m.spans {
			if err := t.epoch(v, w, e, &out); err != nil {
				return out, err
			}
		}
	}
	out.cost += out.capacity + m.cold
	return out, nil
}

// equip computes the available capacity, and pays for it.
func (v *evaluator) equip(w *world, out *outcome) {
	m := v.m
	clear(v.supply)
	v.late = v.late[:0]
	for i := range m.pays {
		p := &m.pays[i]
		amount := p.amount
		switch {
		case p.offer >= 0:
			amount = p.costs(&w.bought[p.offer]) - v.delay(p, w)
		case p.held >= 0:
			amount = p.costs(&w.held[p.held])
		}
		out.capacity += amount
		if p.pool < 0 {
			continue
		}
		n := int64(p.to - p.from)
		for e := p.from; e < p.to; e++ {
			s := &v.supply[p.pool*len(m.spans)+e]
			units := p.at(e)
			if p.guaranteed {
				s.guaranteed += units
			} else {
				s.priced += units
			}
			s.all += units
			s.paid += amount / n
		}
	}
	for p := range m.pools {
		x, avail := &m.pools[p], w.avail[p]
		if avail != noSpotBounds {
			spot := instance.Spot{Overhead: w.lost[p]}
			avail = int64(spot.Serves(int(avail/one))) * one
		}
		for e := range m.spans {
			at := p*len(m.spans) + e
			s := &v.supply[at]
			s.guaranteed, s.priced = s.guaranteed+x.held[0][e], s.priced+x.held[1][e]
			s.all += x.held[0][e] + x.held[1][e]
			s.avail = avail
			quota := int64(unlimited)
			switch {
			case x.epochs[e].onDemand < 0:
				quota = 0
			case x.quota >= 0 && v.group(p) == nil:
				quota = x.quotaOf(w.quota[x.quota*len(m.spans)+e])
			}
			s.priced = min(s.priced, quota)
			s.more = quota
			if quota != unlimited {
				s.more = quota - s.priced
			}
		}
	}
}

// delay removes the units of a late purchase in a world, for the hours by which they are late. It
// returns the hourly payments that are saved.
func (v *evaluator) delay(p *payment, w *world) (spared int64) {
	m, t := v.m, &w.bought[p.offer]
	if w.late[p.offer] == 0 || p.from >= p.to {
		return 0
	}
	there := m.starts[p.from] + int(w.late[p.offer])
	for e := p.from; e < p.to && m.starts[e] < there; e++ {
		from, end := m.starts[e], m.starts[e+1]
		to := min(there, end)
		v.late = append(v.late, window{pool: p.pool, from: from, to: to, units: p.at(e)})
		rent := times(p.rent[e], t.hourly)
		if e >= t.from {
			rent = times(rent, t.fx)
		}
		spared += mulDiv(rent, int64(to-from), int64(end-from))
	}
	return spared
}

// costs is the cost of a payment. Its parts are multiplied by the changes of their prices. If its
// currency changes value, that applies to all of it, or, if from an epoch on, to the hourly
// payments from then.
func (p *payment) costs(t *terms) int64 {
	hourly, upfront := times(p.hourly, t.hourly), times(p.upfront, t.upfront)
	rest := p.amount - p.hourly - p.upfront
	if t.from <= p.from {
		return times(hourly+upfront+rest, t.fx)
	}
	before := int64(0)
	for e := p.from; e < min(t.from, len(p.rent)); e++ {
		before += p.rent[e]
	}
	before = times(before, t.hourly)
	return before + times(hourly-before, t.fx) + upfront + rest
}

// times is an amount times a factor.
func times(amount, by int64) int64 {
	switch {
	case by == one:
		return amount
	case amount < 0:
		return -mulDiv(-amount, by, one)
	}
	return mulDiv(amount, by, one)
}

// prices returns the cost of a unit on demand and as spot for an hour.
func (v *evaluator) prices(w *world, p, e int) (onDemand, spot, shortage int64) {
	y := &v.m.pools[p].epochs[e]
	at := p*len(v.m.spans) + e
	onDemand, spot = y.onDemand, y.spot
	if onDemand > 0 {
		onDemand = mulDiv(onDemand, w.onDemand[at], one)
	}
	if spot > 0 {
		spot = mulDiv(spot, w.spot[at], one)
	}
	return onDemand, spot, y.shortage
}

// epoch serves the hours of a pool in an epoch, cheapest first: guaranteed units, discount-only
// units, then spot and on-demand in the order of their prices, as procurement does. Each is a sum
// over demand above a level.
func (v *evaluator) epoch(w *world, p, e int, out *outcome) {
	c := v.demand(w, p, e)
	s := &v.supply[p*len(v.m.spans)+e]
	onDemand, spot, shortage := v.prices(w, p, e)
	n := len(c.units)
	total := c.above(false, 0, 0, n)
	x := s.guaranteed + s.priced
	uncovered := c.above(false, x, 0, n)
	// rest is the demand above a level after spot took its part. Hours in which available units
	// bound spot are those with the most demand.
	bounded := n
	switch {
	case spot < 0:
		bounded = 0
	case s.avail != noSpotBounds:
		bounded = sort.Search(n, func(i int) bool { return (c.units[i]-c.rest[i])*one >= s.avail })
	}
	avail := s.avail
	if spot < 0 {
		avail = 0
	}
	rest := func(level int64) int64 {
		sum := c.above(true, level, 0, bounded)
		if bounded < n && level < unlimited/2 {
			sum += c.above(false, level+avail, bounded, n)
		}
		return sum
	}
	full := int64(unlimited)
	if s.more != unlimited {
		full = x + s.more
	}
	short := rest(full)
	var onSpot, rented int64
	if spot >= 0 && (onDemand < 0 || spot < onDemand) {
		left := rest(x)
		onSpot, rented = uncovered-left, left-short
	} else {
		left := c.above(false, full, 0, n)
		rented, onSpot = uncovered-left, left-short
	}
	penalty := cost(short, shortage)
	out.penalty += penalty
	out.cost += cost(onSpot, spot) + cost(rented, onDemand) + penalty
	out.demand += total
	out.spot += onSpot
	out.unserved += short
	out.served += total - short
	if s.all > 0 && s.paid > 0 {
		hours := c.hours[0]
		idle := s.all*hours - (total - uncovered)
		out.stranded += mulDiv(s.paid, max(0, idle)/1000, max(1, s.all*hours/1000))
	}
}

// demand is the hours of an epoch of a pool in a world. It is valid until the next call.
func (v *evaluator) demand(w *world, p, e int) *curve {
	x := &v.m.pools[p]
	base, at := &x.epochs[e].curve, p*len(v.m.spans)+e
	if w.factor[at] == one && w.added[at] == 0 && w.spare[p] == nil {
		return base
	}
	g := &v.grown
	g.units, g.count = g.units[:0], base.count
	for _, u := range base.units {
		g.units = append(g.units, w.wanted(p, e, u))
	}
	g.add(x.permille)
	return g
}

// served is how an hour of a pool is served, in units.
type served struct{ guaranteed, priced, spot, onDemand, short int64 }

// serveHour serves one hour of demand, part of which may run on spot.
func serveHour(demand, spotPart, guaranteed, priced, more, avail int64, spotFirst, hasSpot bool) (s served) {
	left := max(0, demand)
	take := func(most int64) int64 {
		n := min(left, max(0, most))
		left -= n
		return n
	}
	s.guaranteed = take(guaranteed)
	s.priced = take(priced)
	onSpot := min(spotPart, avail)
	if !hasSpot {
		onSpot = 0
	}
	if spotFirst {
		s.spot = take(onSpot)
		s.onDemand = take(more)
	} else {
		s.onDemand = take(more)
		s.spot = take(onSpot)
	}
	s.short = left
	return s
}

// windows corrects the results of hours of independent pools in which capacity is missing.
func (v *evaluator) windows(w *world, out *outcome) {
	m, all := v.m, slices.Concat(w.windows, v.late)
	for p := range m.pools {
		if v.group(p) != nil {
			continue
		}
		var of []window
		for _, x := range all {
			if x.pool == p {
				of = append(of, x)
			}
		}
		e := 0
		for _, h := range hoursTouched(of) {
			for m.starts[e+1] <= h {
				e++
			}
			without, gone := int64(0), false
			for _, x := range of {
				if h >= x.from && h < x.to {
					without += x.units
					gone = gone || x.whole
				}
			}
			onDemand, spot, shortage := v.prices(w, p, e)
			normal, _ := v.at(w, p, e, h, 0, false)
			now, _ := v.at(w, p, e, h, without, gone)
			pay := func(s served) int64 { return cost(s.spot, spot) + cost(s.onDemand, onDemand) }
			out.cost += pay(now) - pay(normal)
			out.spot += now.spot - normal.spot
			more := now.short - normal.short
			out.unserved += more
			out.served -= more
			penalty := cost(now.short, shortage) - cost(normal.short, shortage)
			out.penalty += penalty
			out.cost += penalty
		}
	}
}

// at serves an hour of an independent pool without some of its committed units, or with nothing at
// all.
func (v *evaluator) at(w *world, p, e, h int, without int64, whole bool) (served, int64) {
	x := &v.m.pools[p]
	s := &v.supply[p*len(v.m.spans)+e]
	units := w.wanted(p, e, int64(x.hourly[h]))
	demand := units * one
	if whole {
		return served{short: demand}, demand
	}
	onDemand, spot, _ := v.prices(w, p, e)
	guaranteed := max(0, s.guaranteed-without)
	priced := max(0, s.priced-max(0, without-s.guaranteed))
	more := s.more
	if more != unlimited {
		more += s.priced - priced
	}
	return serveHour(demand, units*x.permille/1000*one, guaranteed, priced, more, s.avail, spot < onDemand ||
		onDemand < 0, spot >= 0), demand
}

// stackBins is the number of parts of the hours of a displayed load-duration curve.
const stackBins = 100

// Stack is a pool's load-duration curve: hours of the horizon by falling demand, in equal parts,
// and what serves them on average, in units. For a pool that exchanges demand with others, it is
// what the pool serves, including demand of other pools; unserved demand is its own.
type Stack struct {
	Pool         string           `json:"pool"`
	Hours        []int            `json:"hours"` // at the end of each part
	Guaranteed   []domain.Decimal `json:"guaranteed"`
	DiscountOnly []domain.Decimal `json:"discount_only"`
	Spot         []domain.Decimal `json:"spot"`
	OnDemand     []domain.Decimal `json:"on_demand"`
	Unserved     []domain.Decimal `json:"unserved"`
	Committed    []domain.Decimal `json:"committed"` // available capacity
}

// stack shows how a pool is served in a world.
func (v *evaluator) stack(w *world, p int) (Stack, error) {
	m := v.m
	type hour struct {
		demand, have int64
		served
	}
	hours := make([]hour, 0, len(m.pools[p].hourly))
	for e := range m.spans {
		s := &v.supply[p*len(m.spans)+e]
		slots, err := v.group(p).serving(v, w, p, e)
		if err != nil {
			return Stack{}, err
		}
		for h := m.starts[e]; h < m.starts[e+1]; h++ {
			x, demand := v.at(w, p, e, h, 0, false)
			if slots != nil {
				x = slots[v.group(p).g.epochs[e].of[h-m.starts[e]]]
			}
			hours = append(hours, hour{demand, s.guaranteed + s.priced, x})
		}
	}
	slices.SortStableFunc(hours, func(a, b hour) int { return cmp.Compare(b.demand, a.demand) })
	out := Stack{Pool: m.in.Pools[p].ID}
	for bin := range stackBins {
		from, to := len(hours)*bin/stackBins, len(hours)*(bin+1)/stackBins
		if from == to {
			continue
		}
		var sum hour
		for _, x := range hours[from:to] {
			sum.have += x.have
			sum.guaranteed += x.guaranteed
			sum.priced += x.priced
			sum.spot += x.spot
			sum.onDemand += x.onDemand
			sum.short += x.short
		}
		n := int64(to - from)
		out.Hours = append(out.Hours, to)
		for _, x := range []struct {
			into *[]domain.Decimal
			sum  int64
		}{{&out.Guaranteed, sum.guaranteed}, {&out.DiscountOnly, sum.priced}, {&out.Spot, sum.spot},
			{&out.OnDemand, sum.onDemand}, {&out.Unserved, sum.short}, {&out.Committed, sum.have}} {
			*x.into = append(*x.into, units(x.sum/n))
		}
	}
	return out, nil
}
