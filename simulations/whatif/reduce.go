package whatif

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// scenarioSet is the problem that purchases are solved for.
type scenarioSet struct {
	in      *instance.Instance
	entries []SetEntry
}

// reduce turns the draws into a problem with a few weighted scenarios. Draws are
// put in order of their demand, weighed by what it would cost on demand, and cut
// into as many parts of equal number as the scenario set has; each part becomes
// one scenario: the mean of its draws, pool by pool and epoch by epoch, weighted
// by their number. So the expectation of demand is kept, and its spread up to what
// lies within a part. Prices, interruptions, quotas and lead times enter at their
// mean over all draws: what is bought is paid for on average at those. Outages and
// maintenance are recourse alone.
func (e *experiment) reduce(ctx context.Context) (*scenarioSet, error) {
	c, m := e.c, e.m
	n, cells := e.s.Runs, len(m.pools)*len(m.spans)
	set := &scenarioSet{entries: []SetEntry{}}
	in := *c.in
	set.in = &in
	in.Name = cmp.Or(e.s.Name, "what-if")
	size := make([]*big.Int, n)
	// Sums over draws take 64 bits: factors are below 10⁹, demand that is added
	// below 10¹³, draws at most 10⁵.
	type sums struct{ factor, added, avail []int64 }
	total := struct{ onDemand, spot, quota, bought, late []int64 }{make([]int64, cells), make([]int64, cells), make([]int64, len(in.Quotas)*len(m.spans)), make([]int64, len(in.Offers)), make([]int64, len(in.Offers))}
	uncertain := false
	for i := range c.vars.list {
		uncertain = uncertain || !c.vars.list[i].number.Certain() || c.happening(i)
	}
	if !uncertain {
		n = 1
	}
	w := c.newWorld(m)
	worth := make([]int64, cells) // of a factor of one, in whole amounts
	for p := range m.pools {
		for i := range m.spans {
			y := &m.pools[p].epochs[i]
			worth[p*len(m.spans)+i] = cost(y.curve.sumUnits[0]*one, max(1, y.onDemand)) / one
		}
	}
	for draw := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := w.set(c, m, e.values(draw)); err != nil {
			return nil, fmt.Errorf("draw %d: %w", draw, err)
		}
		sum := new(big.Int)
		for i := range cells {
			y := &m.pools[i/len(m.spans)].epochs[i%len(m.spans)]
			sum.Add(sum, big.NewInt(mulDiv(worth[i], w.factor[i], 1000)))
			sum.Add(sum, new(big.Int).Mul(big.NewInt(w.added[i]/1000), big.NewInt(max(1, y.onDemand)/1_000_000*y.curve.hours[0]/1000)))
		}
		size[draw] = sum
		addTo(total.onDemand, w.onDemand)
		addTo(total.spot, w.spot)
		addTo(total.quota, w.quota)
		addTo(total.bought, w.bought)
		addTo(total.late, w.late)
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return size[a].Cmp(size[b]) })
	parts := min(e.s.Set, n)
	if order[0] == order[n-1] || size[order[0]].Cmp(size[order[n-1]]) == 0 && !c.spotVaries() {
		parts = 1
	}
	for part := range parts {
		from, to := n*part/parts, n*(part+1)/parts
		s := sums{make([]int64, cells), make([]int64, cells), make([]int64, len(m.pools))}
		for _, draw := range order[from:to] {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := w.set(c, m, e.values(draw)); err != nil {
				return nil, err
			}
			addTo(s.factor, w.factor)
			addTo(s.added, w.added)
			for p, a := range w.avail {
				s.avail[p] += min(a, maxUnits*one)
			}
		}
		e.enter(set, part, parts, int64(to-from), s.factor, s.added, s.avail)
	}
	e.c.refuge(&in)
	e.means(&in, int64(n), total.onDemand, total.spot, total.quota, total.bought, total.late)
	return set, nil
}

// refuge lets protected demand go to other regions, where nobody said otherwise: at
// the price of leaving it unserved, so that nothing moves on an ordinary day.
func (c *course) refuge(in *instance.Instance) {
	p := in.Posture
	if p == nil || len(c.alt.Spill) > 0 {
		return
	}
	in.Demands, in.Spill = slices.Clone(in.Demands), slices.Clone(in.Spill)
	dearest := decimal.Zero
	for i := range in.Demands {
		d := &in.Demands[i]
		if slices.Contains(p.Demands, d.ID) {
			d.LatencyBudgetMS, dearest = max(1, d.LatencyBudgetMS), decimal.Max(dearest, d.Shortage)
		}
	}
	for _, from := range in.Regions {
		for _, to := range in.Regions {
			known := slices.ContainsFunc(in.Spill, func(s instance.Spill) bool { return s.From == from.ID && s.To == to.ID })
			if from.ID == to.ID || known || p.Standby != "" && to.ID != p.Standby {
				continue
			}
			in.Spill = append(in.Spill, instance.Spill{From: from.ID, To: to.ID, RoundTripMS: 1, Estimated: true, Hourly: dearest})
		}
	}
}

// spotVaries reports whether what spot can be had differs between draws.
func (c *course) spotVaries() bool {
	return slices.ContainsFunc(c.levers, func(l lever) bool {
		return l.kind == SpotInterruption && l.third >= 0 && !c.number(l.third).Certain()
	})
}

func addTo(sum, v []int64) {
	for i := range v {
		sum[i] += v[i]
	}
}

// enter adds a scenario to a problem: the means of a part of the draws.
func (e *experiment) enter(set *scenarioSet, part, parts int, n int64, factor, added, avail []int64) {
	m, in := e.m, set.in
	s := instance.Scenario{ID: fmt.Sprintf("part %d of %d", part+1, parts), Weight: int(n), Hourly: map[string][]int{}, Spot: map[string]int{}}
	if n == 1 && parts == 1 {
		s.ID = "all"
	}
	wanted := new(big.Int)
	demands := slices.Clone(in.Demands)
	for p := range m.pools {
		x := &m.pools[p]
		changed := false
		hourly := make([]int, len(x.plain))
		for i := range m.spans {
			at := p*len(m.spans) + i
			a, b := (factor[at]+n/2)/n, added[at]/n
			changed = changed || a != one || b != 0
			for h := m.starts[i]; h < m.starts[i+1]; h++ {
				hourly[h] = int(max(0, (a*int64(x.plain[h])+b+one-1)/one))
				wanted.Add(wanted, big.NewInt(int64(hourly[h])))
			}
		}
		d := slices.IndexFunc(demands, func(d instance.Demand) bool { return d.Pool == in.Pools[p].ID })
		if d >= 0 && changed {
			if parts > 1 {
				s.Hourly[demands[d].ID] = hourly
				if demands[d].Hourly == nil { // scenarios replace hours, and no curve
					demands[d].Hourly, demands[d].Duration = make([]int, len(x.plain)), nil
					for h, v := range x.plain {
						demands[d].Hourly[h] = int(v)
					}
				}
			} else {
				demands[d].Hourly, demands[d].Duration = hourly, nil
			}
		}
		if a := (avail[p] + n/2) / n; e.bounded(p) && in.Pools[p].Spot != nil {
			if parts > 1 {
				s.Spot[in.Pools[p].ID] = int(a / one)
			} else {
				units := int(a / one)
				spot := *in.Pools[p].Spot
				spot.Available = &units
				in.Pools = slices.Clone(in.Pools)
				in.Pools[p].Spot = &spot
			}
		}
	}
	in.Demands = demands
	set.entries = append(set.entries, SetEntry{s.ID, int(n), decimal.NewFromBigInt(wanted, 0)})
	if parts > 1 {
		in.Scenarios = append(in.Scenarios, s)
	}
}

// bounded reports whether a change bounds the spot units of a pool.
func (e *experiment) bounded(p int) bool {
	return slices.ContainsFunc(e.c.levers, func(l lever) bool { return l.kind == SpotInterruption && l.third >= 0 && slices.Contains(l.pools, p) })
}

// means lets prices, quotas, offers and failures of a problem be what they are on
// average over the draws.
func (e *experiment) means(in *instance.Instance, n int64, onDemand, spot, quota, bought, late []int64) {
	m := e.m
	in.Pools, in.Quotas, in.Offers, in.Demands = slices.Clone(in.Pools), slices.Clone(in.Quotas), slices.Clone(in.Offers), slices.Clone(in.Demands)
	path := func(p *instance.Price, listed []domain.Decimal, factors []int64) {
		if !slices.ContainsFunc(factors, func(f int64) bool { return f != n*one }) {
			return
		}
		// The price of an epoch is its mean, in the instance's currency.
		p.Path, p.Currency = nil, ""
		last := decimal.Zero
		for i, f := range factors {
			hourly := listed[i].Mul(decimal.NewFromInt(f)).DivRound(decimal.NewFromInt(n*one), 12)
			if i == 0 {
				p.Hourly = hourly
			} else if !last.Equal(hourly) {
				p.Path = append(p.Path, instance.PriceStep{From: m.spans[i].From, Hourly: hourly})
			}
			last = hourly
		}
	}
	for p := range in.Pools {
		from, to := p*len(m.spans), (p+1)*len(m.spans)
		pool := &in.Pools[p]
		if pool.OnDemand != nil {
			x := *pool.OnDemand
			path(&x, m.priced.Pools[p].ListedOnDemand, onDemand[from:to])
			pool.OnDemand = &x
		}
		if pool.Spot != nil {
			x := *pool.Spot
			path(&x.Price, m.priced.Pools[p].ListedSpot, spot[from:to])
			pool.Spot = &x
		}
	}
	for q := range in.Quotas {
		x := &in.Quotas[q]
		was := *x
		var steps []instance.QuotaStep
		changed, last := false, 0
		for i := range m.spans {
			limit := int(quota[q*len(m.spans)+i] / n)
			changed = changed || int64(limit) != m.quotaAt(q, i)
			if i == 0 {
				x.Limit = limit
			} else if last != limit {
				steps = append(steps, instance.QuotaStep{From: m.spans[i].From, Limit: limit})
			}
			last = limit
		}
		if x.Path = steps; !changed {
			*x = was
		}
	}
	for o := range in.Offers {
		f := &in.Offers[o]
		if by := bought[o]; by != n*one {
			times := decimal.NewFromInt(by).DivRound(decimal.NewFromInt(n*one), 12)
			f.Hourly, f.Upfront = f.Hourly.Mul(times), f.Upfront.Mul(times)
		}
		if more := late[o] / n; more > 0 {
			f.From = max(f.From, in.From) + domain.Instant(more)*domain.Hour
		}
	}
	for i := range e.c.levers {
		l := &e.c.levers[i]
		if l.kind != FailureRate {
			continue
		}
		// Guaranteed capacity that is broken part of the time is bought with spares.
		for _, p := range l.pools {
			d := slices.IndexFunc(in.Demands, func(d instance.Demand) bool { return d.Pool == in.Pools[p].ID })
			if d < 0 {
				continue
			}
			b := instance.Buffer{ServiceLevel: decimal.New(99, -2), GPUsPerUnit: max(1, in.Pools[p].GPUs), UnitsPerNode: 1}
			if l.before > 0 {
				b.GPUsPerUnit = int(l.before)
			}
			b.FailuresPerGPUHour, b.RepairHours = e.c.number(l.value).Median(), e.c.number(l.second).Median()
			in.Demands[d].Buffer = &b
		}
	}
}
