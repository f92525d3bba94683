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

// reduce turns the trials into a problem with a few weighted scenarios. It sorts trials by what
// they would cost if nothing were bought, at the prices of the instance, without outages and with
// independent pools. It then divides them into equal parts, one per scenario of the set. Each part
// becomes a scenario, weighted by its number of trials: the mean demand of its trials, hour by hour
// and including spare units, and their mean available spot. This preserves the expectation of
// demand, and its spread except within a part. What scenarios cannot vary enters at its mean over
// all trials, or not at all; [experiment.unmodelled] lists it by name.
func (e *experiment) reduce(ctx context.Context) (*scenarioSet, error) {
	c, m := e.c, e.m
	n, cells := e.s.Runs, len(m.pools)*len(m.spans)
	set := &scenarioSet{entries: []SetEntry{}}
	in := *c.in
	set.in = &in
	in.Name = cmp.Or(e.s.Name, "what-if")
	if !e.uncertain() {
		n = 1
	}
	all := means{
		trials: int64(n), onDemand: make([]int64, cells), spot: make([]int64, cells),
		quota:  make([]int64, len(in.Quotas)*len(m.spans)),
		hourly: make([]int64, len(in.Offers)), upfront: make([]int64, len(in.Offers)),
		heldHourly: make([]int64, len(in.Commitments)), heldUpfront: make([]int64, len(in.Commitments)),
	}
	// Sums over trials fit into 64 bits: factors are below 10⁹, and there are at most 10⁵ trials.
	size := make([]int64, n)
	w, v := c.newWorld(m), apart(m)
	for trial := range n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := w.set(c, m, e.values(trial)); err != nil {
			return nil, fmt.Errorf("trial %d: %w", trial, err)
		}
		all.add(w)
		w.plain(m)
		alone, err := v.evaluate(w)
		if err != nil {
			return nil, err
		}
		size[trial] = alone.cost
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(size[a], size[b]) })
	parts := min(e.s.Set, n)
	if size[order[0]] == size[order[n-1]] {
		parts = 1
	}
	for part := range parts {
		from, to := n*part/parts, n*(part+1)/parts
		s := newWants(c, m)
		for _, trial := range order[from:to] {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := w.set(c, m, e.values(trial)); err != nil {
				return nil, fmt.Errorf("trial %d: %w", trial, err)
			}
			s.add(m, w)
		}
		e.enter(set, part, parts, s)
	}
	c.refuge(&in)
	e.price(&in, &all)
	return set, nil
}

// uncertain reports whether trials can differ in what a problem can vary.
func (e *experiment) uncertain() bool {
	for i := range e.c.vars.list {
		if !e.c.certain(i) {
			return true
		}
	}
	return false
}

// plain reduces a world to what scenarios of an instance can vary: demand and available spot.
func (w *world) plain(m *compiled) {
	fill(w.onDemand, one)
	fill(w.spot, one)
	fill(w.late, 0)
	for _, of := range [][]terms{w.bought, w.held} {
		for i := range of {
			of[i] = terms{one, one, one, 0}
		}
	}
	for q := range m.in.Quotas {
		for e := range m.spans {
			w.quota[q*w.epochs+e] = m.quotaAt(q, e)
		}
	}
	w.windows = w.windows[:0]
}

// means sums over trials what enters a problem at its mean.
type means struct {
	trials                int64
	onDemand, spot, quota []int64
	// Of offers and of what is held, currencies included.
	hourly, upfront, heldHourly, heldUpfront []int64
}

func (s *means) add(w *world) {
	addTo(s.onDemand, w.onDemand)
	addTo(s.spot, w.spot)
	addTo(s.quota, w.quota)
	for _, x := range []struct {
		of              []terms
		hourly, upfront []int64
	}{{w.bought, s.hourly, s.upfront}, {w.held, s.heldHourly, s.heldUpfront}} {
		for i := range x.of {
			t := &x.of[i]
			x.hourly[i] += mulDiv(t.hourly, t.fx, one)
			x.upfront[i] += mulDiv(t.upfront, t.fx, one)
		}
	}
}

func addTo(sum, v []int64) {
	for i := range v {
		sum[i] += v[i]
	}
}

// wants sums over trials the demand of the pools that changes affect, by epoch and level of their
// curve. It has no entries for other pools.
type wants struct {
	trials int64
	levels [][]int64 // by pool and epoch
	avail  []int64
}

func newWants(c *composed, m *compiled) *wants {
	s := &wants{levels: make([][]int64, len(m.pools)*len(m.spans)), avail: make([]int64, len(m.pools))}
	for i := range c.levers {
		l := &c.levers[i]
		switch l.kind {
		case DemandGrowth, EfficiencyChange, ModelLaunch, DeploymentChange, FailureRate:
			for _, p := range l.pools {
				for e := range m.spans {
					s.levels[p*len(m.spans)+e] = make([]int64, len(m.pools[p].epochs[e].curve.units))
				}
			}
		}
	}
	return s
}

func (s *wants) add(m *compiled, w *world) {
	s.trials++
	for at, sums := range s.levels {
		if sums == nil {
			continue
		}
		p, e := at/len(m.spans), at%len(m.spans)
		for i, u := range m.pools[p].epochs[e].curve.units {
			sums[i] += w.wanted(p, e, u)
		}
	}
	for p, a := range w.avail {
		s.avail[p] += min(a, maxUnits*one)
	}
}

// refuge adds routes to other regions for protected demand if the alternative has none: at the
// price of a shortage, so that nothing moves on an ordinary day.
func (c *composed) refuge(in *instance.Instance) {
	p := in.Posture
	if p == nil || p.Kind == instance.MultiProvider || len(c.alt.Overflow) > 0 {
		return
	}
	in.Demands, in.Overflow = slices.Clone(in.Demands), slices.Clone(in.Overflow)
	dearest := decimal.Zero
	for i := range in.Demands {
		d := &in.Demands[i]
		if slices.Contains(p.Demands, d.ID) {
			d.LatencyBudgetMS, dearest = max(1, d.LatencyBudgetMS), decimal.Max(dearest, d.Shortage)
		}
	}
	for _, from := range in.Regions {
		for _, to := range in.Regions {
			known := slices.ContainsFunc(in.Overflow, func(s instance.Overflow) bool {
				return s.From == from.ID && s.To == to.ID
			})
			if from.ID == to.ID || known || p.Standby != "" && to.ID != p.Standby {
				continue
			}
			in.Overflow = append(in.Overflow, instance.Overflow{
				From: from.ID, To: to.ID, RoundTripMS: 1, Estimated: true, Hourly: dearest,
			})
		}
	}
}

// haven is the alternative's instance with the routes that protected demand may take while its
// region is gone, nil if there are no others than on an ordinary day. No demand is kept at home
// then, so the routes added by [composed.refuge] cost nothing.
func (c *composed) haven() *instance.Instance {
	if c.in.Posture == nil || c.in.Posture.Kind == instance.MultiProvider || len(c.alt.Overflow) > 0 {
		return nil
	}
	in := *c.in
	c.refuge(&in)
	for i := len(c.in.Overflow); i < len(in.Overflow); i++ {
		in.Overflow[i].Hourly = decimal.Zero
	}
	return &in
}

// enter adds a scenario to a problem: the means of a part of the trials.
func (e *experiment) enter(set *scenarioSet, part, parts int, of *wants) {
	m, in, n := e.m, set.in, of.trials
	s := instance.Scenario{
		ID: fmt.Sprintf("part %d of %d", part+1, parts), Weight: int(n), Hourly: map[string][]int{},
		Spot: map[string]int{},
	}
	if n == 1 && parts == 1 {
		s.ID = "all"
	}
	wanted := new(big.Int)
	demands := slices.Clone(in.Demands)
	for p := range m.pools {
		x := &m.pools[p]
		d := slices.IndexFunc(demands, func(d instance.Demand) bool { return d.ID == x.demand })
		if d < 0 {
			continue
		}
		changed := of.levels[p*len(m.spans)] != nil
		hourly := make([]int, len(x.hourly))
		for i := range m.spans {
			c, sums := &x.epochs[i].curve, of.levels[p*len(m.spans)+i]
			for h := m.starts[i]; h < m.starts[i+1]; h++ {
				hourly[h] = int(x.hourly[h])
				if changed {
					k, _ := slices.BinarySearch(c.units, int64(x.hourly[h]))
					hourly[h] = int((sums[k] + n/2) / n)
				}
				wanted.Add(wanted, big.NewInt(int64(hourly[h])))
			}
		}
		if changed {
			// Demand is already deferred and includes its spare units. Scenarios replace hours, not
			// curves.
			demands[d].Buffer, demands[d].DeferHours, demands[d].DeferrableShare = nil, 0, decimal.Zero
			if parts > 1 {
				s.Hourly[x.demand] = hourly
			}
			if parts == 1 || demands[d].Hourly == nil {
				demands[d].Hourly, demands[d].Duration = hourly, nil
			}
		}
		if a := (of.avail[p] + n/2) / n; e.bounded(p) && in.Pools[p].Spot != nil {
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
	return slices.ContainsFunc(e.c.levers, func(l lever) bool {
		return l.kind == SpotInterruption && l.third >= 0 && slices.Contains(l.pools, p)
	})
}

// price sets prices, quotas and offers of a problem to their means over the trials.
func (e *experiment) price(in *instance.Instance, all *means) {
	m, n := e.m, all.trials
	in.Pools, in.Quotas, in.Offers, in.Commitments = slices.Clone(in.Pools), slices.Clone(in.Quotas),
		slices.Clone(in.Offers), slices.Clone(in.Commitments)
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
			path(&x, m.priced.Pools[p].ListedOnDemand, all.onDemand[from:to])
			pool.OnDemand = &x
		}
		if pool.Spot != nil {
			x := *pool.Spot
			path(&x.Price, m.priced.Pools[p].ListedSpot, all.spot[from:to])
			pool.Spot = &x
		}
	}
	e.limit(in, all.quota, n)
	mean := func(price domain.Decimal, sum int64) domain.Decimal {
		if sum == n*one {
			return price
		}
		return price.Mul(decimal.NewFromInt(sum).DivRound(decimal.NewFromInt(n*one), 12))
	}
	for o := range in.Offers {
		f := &in.Offers[o]
		f.Hourly, f.Upfront = mean(f.Hourly, all.hourly[o]), mean(f.Upfront, all.upfront[o])
	}
	for h := range in.Commitments {
		c := &in.Commitments[h]
		c.Hourly, c.Upfront = mean(c.Hourly, all.heldHourly[h]), mean(c.Upfront, all.heldUpfront[h])
	}
}

// limit sets the quotas of a problem to sums over trials, by quota and epoch, divided by the number
// of trials.
func (e *experiment) limit(in *instance.Instance, sums []int64, trials int64) {
	for q := range in.Quotas {
		x := instance.Quota{ID: in.Quotas[q].ID}
		changed, last := false, 0
		for i, span := range e.m.spans {
			limit := int(sums[q*len(e.m.spans)+i] / trials)
			changed = changed || int64(limit) != e.m.quotaAt(q, i)
			if i == 0 {
				x.Limit = limit
			} else if last != limit {
				x.Path = append(x.Path, instance.QuotaStep{From: span.From, Limit: limit})
			}
			last = limit
		}
		if changed {
			in.Quotas[q] = x
		}
	}
}
