package question

import (
	"errors"
	"fmt"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// hair is what unit-hours may differ by: they are rounded to six digits, and here and there some of
// them are added.
var hair = decimal.New(1, -5)

// recourse verifies how a group is served: that each demand is wanted as the question says, and is
// served or short; that nothing serves more than it can in the hours in which it is wanted; and
// what it costs.
func (v *verdict) recourse(g *group, p *Problem, spare spared) error {
	for e := range v.cal.n {
		for s := range v.scenarios {
			if err := v.hours(g, p, spare, e, s); err != nil {
				return fmt.Errorf("%s, scenario %q: %w", v.cal.name(e), v.scenarios[s].ID, err)
			}
		}
	}
	return nil
}

// wants is what a group's hours want, in unit-hours.
type wants struct {
	demand []int64 // by demand, with spares
	// reach is, by pool, the units of it that the demands with a route there want, at most, in each
	// slot; soft is the part that may run on spot. Where work waits, all that has come in the window
	// may be wanted in an hour; all of a pool is the bound of the sum.
	reach, soft [][]int
	all         []domain.Decimal
}

func wanted(p *Problem, c *Case) wants {
	w := wants{
		demand: make([]int64, len(p.Demands)), reach: make([][]int, len(p.Pools)), soft: make([][]int, len(p.Pools)),
		all: make([]domain.Decimal, len(p.Pools)),
	}
	come := make([]int64, len(p.Demands)) // earlier in the window, and may still wait
	for i := range p.Pools {
		w.reach[i], w.soft[i] = make([]int, len(c.Slots)), make([]int, len(c.Slots))
	}
	for k, slot := range c.Slots {
		for d, n := range slot.Units {
			w.demand[d] += int64(n) * int64(slot.Hours)
			if hours := p.Demands[d].Window; hours > 0 && k%hours == 0 {
				come[d] = 0
			}
		}
		for _, route := range p.Routes {
			d := &p.Demands[route.Demand]
			n := int64(slot.Units[route.Demand])
			up := func(n int64) int { return int((n*int64(route.Num) + int64(route.Den) - 1) / int64(route.Den)) }
			w.all[route.Pool] = w.all[route.Pool].Add(whole(up(n)).Mul(whole(slot.Hours)))
			n += come[route.Demand]
			soft := n * int64(d.Interruptible) / 1000
			if d.Window > 0 { // not rounded down
				soft = (n*int64(d.Interruptible) + 999) / 1000
			}
			w.reach[route.Pool][k] += up(n)
			w.soft[route.Pool][k] += up(soft)
		}
		for d, n := range slot.Waits {
			come[d] += int64(n)
		}
	}
	return w
}

// served adds the least of a bound and of what is wanted, over the hours; −1 is no bound. The sum is
// at most all that is wanted.
func served(c *Case, wanted []int, most int, all domain.Decimal) domain.Decimal {
	sum := new(big.Int)
	for k, n := range wanted {
		if most >= 0 {
			n = min(n, most)
		}
		sum.Add(sum, new(big.Int).Mul(big.NewInt(int64(n)), big.NewInt(int64(c.Slots[k].Hours))))
	}
	return decimal.Min(all, decimal.NewFromBigInt(sum, 0))
}

func (v *verdict) hours(g *group, p *Problem, spare spared, e, s int) error {
	x, length := &p.Epochs[e], whole(v.cal.length(e))
	c := &x.Cases[s]
	w := wanted(p, c)
	quotas, spends := make([]domain.Decimal, len(p.Quotas)), make([]domain.Decimal, len(p.Spends))
	penalty, serving, nominal := &v.penalty[s], &v.serving[s], &v.nominal[e][s]
	moved, arrived := zero, zero
	for i, n := range g.pools {
		id := p.Pools[i]
		row, sold := v.rows[e][s][id], &x.Pools[i]
		if row == nil {
			return fmt.Errorf("pool %q is not in the recourse", id)
		}
		demand, spares, routes := zero, zero, 0
		cheap, dear := zero, zero // price of a shortage here
		for d := range p.Demands {
			if v.pool[v.doc.Demands[g.demands[d]].Pool] != n {
				continue
			}
			demand = demand.Add(whole(w.demand[d]))
			if of := spare[d][s]; of != nil {
				spares = spares.Add(whole(of[e]))
			}
			price := decimal.New(x.Shortage[d], -v.digits)
			if routes == 0 || price.LessThan(cheap) {
				cheap = price
			}
			dear, routes = decimal.Max(dear, price), routes+1
		}
		on := row.OnDemand.Add(row.DiscountOnly)
		all := row.Guaranteed.Add(on).Add(row.Spot)
		for _, u := range []domain.Decimal{row.Guaranteed, row.OnDemand, row.DiscountOnly, row.Spot, row.Shortage, row.OverflowIn,
			row.OverflowOut, row.SpendCommitted, row.UnusedCommitted} {
			if u.IsNegative() {
				return fmt.Errorf("pool %q: unit-hours are negative", id)
			}
		}
		quotaUnits := -1
		if sold.Quota >= 0 && x.Quotas[sold.Quota] >= 0 {
			quotaUnits = x.Quotas[sold.Quota] / sold.QuotaPerUnit
			if x.Quotas[sold.Quota]%sold.QuotaPerUnit > 0 { // a part of an hour
				quotaUnits++
			}
			quotas[sold.Quota] = quotas[sold.Quota].Add(on.Mul(whole(sold.QuotaPerUnit)))
		}
		committed := whole(v.capacity[n][e] + v.priced[n][e]).Mul(length)
		over := func(have, most domain.Decimal) bool { return have.Sub(most).GreaterThan(hair) }
		switch {
		case !row.Demand.Add(row.Spare).Equal(demand):
			return fmt.Errorf("demand in pool %q is %s unit-hours, spares among them, and %s are wanted", id,
				row.Demand.Add(row.Spare), demand)
		case !row.Spare.Equal(spares):
			return fmt.Errorf("spares in pool %q are %s unit-hours, and %s are wanted (buffer)", id, row.Spare, spares)
		case over(row.Guaranteed, served(c, w.reach[i], v.capacity[n][e], w.all[i])):
			return fmt.Errorf("pool %q: %d guaranteed units cannot serve %s unit-hours", id, v.capacity[n][e], row.Guaranteed)
		case over(row.DiscountOnly, served(c, w.reach[i], v.priced[n][e], w.all[i])):
			return fmt.Errorf("pool %q: %d discount-only units cannot serve %s unit-hours", id, v.priced[n][e], row.DiscountOnly)
		case on.IsPositive() && sold.OnDemand < 0:
			return fmt.Errorf("pool %q sells nothing on demand, and %s unit-hours are served", id, on)
		case over(on, served(c, w.reach[i], -1, w.all[i])):
			return fmt.Errorf("pool %q serves %s unit-hours on demand, more than may want it", id, on)
		case over(on, served(c, w.reach[i], quotaUnits, w.all[i])):
			return fmt.Errorf("pool %q: quota %q leaves %d units on demand, which cannot serve %s unit-hours", id,
				v.doc.Pools[n].Quota, quotaUnits, on)
		case row.Spot.IsPositive() && sold.Spot < 0:
			return fmt.Errorf("pool %q has no spot, and %s unit-hours are served", id, row.Spot)
		case over(row.Spot, served(c, w.soft[i], c.Spot[i], w.all[i])):
			return fmt.Errorf("pool %q: spot cannot serve %s unit-hours: see interruptible_share, available_units and overhead",
				id, row.Spot)
		case over(row.SpendCommitted, row.OnDemand) || row.SpendCommitted.IsPositive() && sold.Spend < 0:
			return fmt.Errorf("pool %q: a commitment to spend pays for %s unit-hours", id, row.SpendCommitted)
		case row.UnusedCommitted.Sub(committed.Sub(row.Guaranteed).Sub(row.DiscountOnly)).Abs().GreaterThan(hair):
			return fmt.Errorf("pool %q: unused_committed is %s unit-hours, of %s committed", id, row.UnusedCommitted, committed)
		}
		if sold.Spend >= 0 {
			spends[sold.Spend] = spends[sold.Spend].Add(row.SpendCommitted.Mul(decimal.New(sold.SpendPrice, -v.digits)))
		}
		// What serves here is the demand at home less what is served elsewhere or short, and what
		// comes in along routes, each at its ratio.
		local := demand.Sub(row.OverflowOut).Sub(row.Shortage)
		in, extra, paid := interval{}, interval{}, interval{}
		first := true
		k := -1
		for d, way := range p.Routes {
			if way.Pool == i && v.pool[v.doc.Demands[g.demands[way.Demand]].Pool] != n {
				ratio := whole(way.Num).DivRound(whole(way.Den), places)
				e1, e2 := v.extra(g, way.Demand, n), decimal.New(x.Routes[d], -v.digits)
				if first {
					in, extra, paid = interval{ratio, ratio}, interval{e1, e1}, interval{e2, e2}
				} else {
					in, extra, paid = in.with(ratio), extra.with(e1), paid.with(e2)
				}
				first, k = false, d
			}
		}
		if k < 0 && row.OverflowIn.IsPositive() {
			return fmt.Errorf("pool %q may serve no demand from elsewhere, and overflow_in is %s", id, row.OverflowIn)
		}
		need := interval{local, local}
		need.add(in.least.Mul(row.OverflowIn), in.most.Mul(row.OverflowIn))
		if local.LessThan(hair.Neg()) || !need.holds(all, hair.Mul(whole(10)).Mul(decimal.Max(one, in.most))) {
			return fmt.Errorf("pool %q: %s unit-hours are served, and %s are wanted, %s short, %s overflow out and %s in", id, all,
				demand, row.Shortage, row.OverflowOut, row.OverflowIn)
		}
		moved, arrived = moved.Add(row.OverflowOut), arrived.Add(row.OverflowIn)
		penalty.add(cheap.Mul(row.Shortage), dear.Mul(row.Shortage))
		v.unserved[s] = v.unserved[s].Add(row.Shortage)
		pays := row.OnDemand.Sub(row.SpendCommitted)
		if sold.OnDemand >= 0 {
			price := decimal.New(sold.OnDemand, -v.digits).Mul(pays)
			serving.add(price, price)
			nominal.add(v.onDemand[n][e].Mul(pays), v.onDemand[n][e].Mul(pays))
		}
		if sold.Spot >= 0 {
			price := decimal.New(sold.Spot, -v.digits).Mul(row.Spot)
			serving.add(price, price)
			nominal.add(v.spot[n][e].Mul(row.Spot), v.spot[n][e].Mul(row.Spot))
		}
		serving.add(paid.least.Mul(row.OverflowIn), paid.most.Mul(row.OverflowIn))
		nominal.add(extra.least.Mul(row.OverflowIn), extra.most.Mul(row.OverflowIn))
	}
	if moved.Sub(arrived).Abs().GreaterThan(hair.Mul(whole(len(g.pools)))) {
		return fmt.Errorf("%s unit-hours overflow out of pools, and %s in", moved, arrived)
	}
	for q, used := range quotas {
		take := 0
		for _, sold := range x.Pools {
			if sold.Quota == q {
				take += sold.QuotaPerUnit
			}
		}
		if most := x.Quotas[q]; most >= 0 && used.Sub(whole(most).Mul(length)).GreaterThan(hair.Mul(whole(take))) {
			return fmt.Errorf("quota %q of %d units is used for %s unit-hours", p.Quotas[q], most, used)
		}
	}
	for i, used := range spends {
		give := zero
		for _, sold := range x.Pools {
			if sold.Spend == i {
				give = give.Add(hair.Mul(decimal.New(sold.SpendPrice, -v.digits)))
			}
		}
		if most := v.committedSpend(p, i, g, e).Mul(length); used.Sub(most).GreaterThan(give) {
			return fmt.Errorf("commitments to spend %q pay %s, of %s", p.Spends[i], used, most)
		}
	}
	return nil
}

func (i interval) with(v domain.Decimal) interval {
	return interval{decimal.Min(i.least, v), decimal.Max(i.most, v)}
}

// extra is the nominal price of overflow from a demand to a pool.
func (v *verdict) extra(g *group, demand, pool int) domain.Decimal {
	for _, way := range v.routes[g.demands[demand]] {
		if way.pool == pool {
			return way.extra
		}
	}
	return zero
}

// committedSpend is what may be spent in an hour of an epoch under a name.
func (v *verdict) committedSpend(p *Problem, spend int, g *group, e int) domain.Decimal {
	sum := decimal.New(p.Epochs[e].Spends[spend], -v.digits)
	for j, i := range g.choices {
		for _, c := range p.Choices[j].Spends {
			if c.Spend == spend && c.From <= e && e < c.To {
				sum = sum.Add(decimal.New(c.PerHour, -v.digits).Mul(whole(v.bought[i])))
			}
		}
	}
	return sum
}

// least is the cost of a group of one pool with one demand: its purchases, and every hour served
// from the cheapest source first. Only on demand and discount-only units share a bound, and take
// the same of it, so that no other order costs less.
func (v *verdict) least(g *group, p *Problem, lots []int) (*big.Int, error) {
	sum := new(big.Int)
	add := func(price int64, n int64) {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(price), big.NewInt(n)))
	}
	for j, n := range lots {
		add(p.Choices[j].Cost, int64(n)*int64(v.weight))
	}
	pool := g.pools[0]
	for e := range p.Epochs {
		x := &p.Epochs[e]
		sold := &x.Pools[0]
		short := x.Shortage[0]
		if sold.OnDemand > short {
			return nil, fmt.Errorf("shortage_hourly of demand %q is below the price on demand of %s", p.Demands[0].ID, v.cal.name(e))
		}
		firm, priced := v.capacity[pool][e], v.priced[pool][e]
		room := -1
		if sold.OnDemand < 0 {
			room = 0
		} else if sold.Quota >= 0 && x.Quotas[sold.Quota] >= 0 {
			room = x.Quotas[sold.Quota] / sold.QuotaPerUnit
		}
		for s := range x.Cases {
			var onSpot, onDemand, none int64
			for _, slot := range x.Cases[s].Slots {
				hours := int64(slot.Hours)
				left := max(0, slot.Units[0]-firm)
				open := left // of what needs quota
				if room >= 0 {
					open = min(open, room)
				}
				n := min(left, priced, open)
				left, open = left-n, open-n
				most := 0
				if sold.Spot >= 0 && sold.Spot <= short {
					most = slot.Units[0] * p.Demands[0].Interruptible / 1000
					if c := x.Cases[s].Spot[0]; c >= 0 {
						most = min(most, c)
					}
				}
				if sold.OnDemand >= 0 && sold.OnDemand <= sold.Spot { // spot is dearer
					n = min(left, open)
					left -= n
					onDemand += int64(n) * hours
					open = 0
				}
				n = min(left, most)
				left -= n
				onSpot += int64(n) * hours
				n = min(left, open)
				left -= n
				onDemand += int64(n) * hours
				none += int64(left) * hours
			}
			weight := int64(p.Weights[s])
			add(max(0, sold.OnDemand), onDemand*weight)
			add(max(0, sold.Spot), onSpot*weight)
			add(short, none*weight)
		}
	}
	return sum, nil
}

// amounts verifies what the answer says the purchases come to.
func (v *verdict) amounts(cost, bound *big.Int, exact bool) error {
	a := v.a
	weight := big.NewInt(int64(v.weight))
	in := make([]bool, len(v.choices))
	for _, g := range v.groups {
		for _, i := range g.choices {
			in[i] = true
		}
	}
	for i, n := range v.bought { // for pools without demand
		if n > 0 && !in[i] {
			c := new(big.Int).Mul(big.NewInt(v.orders[i].cost), big.NewInt(int64(n)))
			cost.Add(cost, c.Mul(c, weight))
		}
	}
	rest := map[int]bool{}
	for _, g := range v.groups {
		for _, p := range g.pools {
			rest[p] = true
		}
	}
	for p := range v.doc.Pools {
		for e := range v.rows {
			for s, rows := range v.rows[e] {
				row := rows[v.doc.Pools[p].ID]
				if row == nil {
					return fmt.Errorf("%s: pool %q is not in the recourse", v.cal.name(e), v.doc.Pools[p].ID)
				}
				if rest[p] {
					continue
				}
				idle := whole(v.capacity[p][e] + v.priced[p][e]).Mul(whole(v.cal.length(e)))
				used := row.Demand.Add(row.Guaranteed).Add(row.OnDemand).Add(row.DiscountOnly).Add(row.Spot).Add(row.Shortage)
				if !used.IsZero() || !row.UnusedCommitted.Equal(idle) {
					return fmt.Errorf("%s, scenario %q: nothing is wanted of pool %q: %s unit-hours are unused, and none serve",
						v.cal.name(e), v.scenarios[s].ID, v.doc.Pools[p].ID, idle)
				}
			}
		}
	}
	up := new(big.Int).Add(cost, new(big.Int).Sub(weight, big.NewInt(1)))
	total := decimal.NewFromBigInt(up.Div(up, weight), -v.digits)
	lower := decimal.NewFromBigInt(new(big.Int).Div(bound, weight), -v.digits)
	committed := v.committed.RoundBank(v.digits)
	if err := errors.Join(same("committed_cost", a.Committed, committed), same("cost", a.Cost, committed.Add(total)),
		same("lower_bound", a.LowerBound, committed.Add(lower)),
		same("serving_cost", a.Serving, a.Cost.Sub(a.Committed).Sub(a.Bought).Sub(a.Penalty))); err != nil {
		return err
	}
	if a.LowerBound.GreaterThan(a.Cost) {
		return fmt.Errorf("lower_bound %s is above the cost %s", a.LowerBound, a.Cost)
	}
	gap := zero
	switch {
	case a.LowerBound.IsPositive():
		gap = a.Cost.Sub(a.LowerBound).DivRound(a.LowerBound, 12)
	case a.Cost.IsPositive():
		gap = one
	}
	if err := same("gap", a.Gap, gap); err != nil {
		return err
	}
	if err := v.perScenario(); err != nil {
		return err
	}
	if err := v.calendar(); err != nil {
		return err
	}
	if err := v.bounded(); err != nil {
		return err
	}
	return v.afterwards()
}

// give is what an amount may differ by where it is made from unit-hours that are rounded: prices
// are below a million, and there are not that many rounded figures in all.
func (v *verdict) give() domain.Decimal {
	figures := whole(len(v.doc.Pools)).Mul(whole(v.cal.n))
	most := one
	for i := range v.doc.Pools {
		if v.onDemand[i] != nil {
			most = decimal.Max(most, slices.MaxFunc(v.onDemand[i], domain.Decimal.Cmp))
		}
		if v.spot[i] != nil {
			most = decimal.Max(most, slices.MaxFunc(v.spot[i], domain.Decimal.Cmp))
		}
	}
	for i := range v.doc.Demands {
		most = decimal.Max(most, v.doc.Demands[i].Shortage)
	}
	integral := true // no figure is rounded
	for e := range v.rows {
		for _, rows := range v.rows[e] {
			for _, row := range rows {
				for _, u := range []domain.Decimal{row.OnDemand, row.Spot, row.OverflowIn, row.Shortage, row.SpendCommitted} {
					integral = integral && u.IsInteger()
				}
			}
		}
	}
	if integral {
		return decimal.New(2, -v.digits)
	}
	return figures.Mul(most).Shift(-6).Mul(decimal.NewFromInt(4))
}

func (v *verdict) perScenario() error {
	a := v.a
	if len(a.Scenarios) != len(v.scenarios) {
		return fmt.Errorf("scenarios: %d, of %d", len(a.Scenarios), len(v.scenarios))
	}
	give := v.give()
	expected, penalty := zero, interval{}
	for s := range v.scenarios {
		x := &a.Scenarios[s]
		if x.Scenario != v.scenarios[s].ID || x.Weight != v.scenarios[s].Weight {
			return fmt.Errorf("scenarios/%d is %q with weight %d", s, v.scenarios[s].ID, v.scenarios[s].Weight)
		}
		cost := interval{a.Committed.Add(a.Bought), a.Committed.Add(a.Bought)}
		cost.add(v.serving[s].least.Add(v.penalty[s].least), v.serving[s].most.Add(v.penalty[s].most))
		if !cost.holds(x.Cost, give) {
			return fmt.Errorf("scenarios/%d (%q): cost is %s, and the recourse comes to %s to %s", s, x.Scenario, x.Cost,
				cost.least.StringFixed(9), cost.most.StringFixed(9))
		}
		if x.Unserved.Sub(v.unserved[s]).Abs().GreaterThan(hair.Mul(whole(len(v.doc.Pools) * v.cal.n))) {
			return fmt.Errorf("scenarios/%d (%q): %s unit-hours are unserved, not %s", s, x.Scenario, v.unserved[s], x.Unserved)
		}
		expected = expected.Add(x.Cost.Mul(whole(x.Weight)))
		p := v.penalty[s].times(whole(x.Weight))
		penalty.add(p.least, p.most)
	}
	weight := whole(v.weight)
	if d := expected.DivRound(weight, 12).Sub(a.Cost).Abs(); d.GreaterThan(give) {
		return fmt.Errorf("cost is %s, and the scenarios come to %s on average", a.Cost, expected.DivRound(weight, 9))
	}
	penalty = interval{penalty.least.DivRound(weight, places), penalty.most.DivRound(weight, places)}
	if !penalty.holds(a.Penalty, give) {
		return fmt.Errorf("shortage_penalty is %s, and comes to %s to %s", a.Penalty, penalty.least.StringFixed(9), penalty.most.StringFixed(9))
	}
	// The worst tenth.
	order := make([]int, len(a.Scenarios))
	for s := range order {
		order[s] = s
	}
	slices.SortStableFunc(order, func(i, j int) int { return a.Scenarios[j].Cost.Cmp(a.Scenarios[i].Cost) })
	left, sum := v.weight, zero
	for _, s := range order {
		take := min(left, 10*a.Scenarios[s].Weight)
		sum, left = sum.Add(a.Scenarios[s].Cost.Mul(whole(take))), left-take
	}
	return same("cvar_90", a.CVaR, sum.DivRound(weight, 9))
}

// byEpoch is what is paid and charged in each epoch besides serving.
func (v *verdict) byEpoch() (cash, accrual []domain.Decimal) {
	cash, accrual = slices.Clone(v.cash), make([]domain.Decimal, v.cal.n)
	for e := range accrual {
		for _, of := range v.accrual {
			accrual[e] = accrual[e].Add(of[e])
		}
	}
	for i, n := range v.bought {
		if n == 0 {
			continue
		}
		paid, charged := v.money(v.orders[i])
		for e := range cash {
			cash[e], accrual[e] = cash[e].Add(paid[e].Mul(whole(n))), accrual[e].Add(charged[e].Mul(whole(n)))
		}
	}
	return cash, accrual
}

// expected is the serving cost of an epoch, nominal.
func (v *verdict) expected(e int) interval {
	var sum interval
	for s := range v.scenarios {
		x := v.nominal[e][s].times(whole(v.scenarios[s].Weight))
		sum.add(x.least, x.most)
	}
	return interval{sum.least.DivRound(whole(v.weight), places), sum.most.DivRound(whole(v.weight), places)}
}

func (v *verdict) calendar() error {
	a := v.a
	cash, accrual := v.byEpoch()
	give := v.give()
	n, nominal := 0, zero
	for e := 0; e < v.cal.n; n++ {
		month := v.cal.starts[e].Time().Format("2006-01")
		var paid, charged interval
		for ; e < v.cal.n && v.cal.starts[e].Time().Format("2006-01") == month; e++ {
			x := v.expected(e)
			paid.add(cash[e].Add(x.least), cash[e].Add(x.most))
			charged.add(accrual[e].Add(x.least), accrual[e].Add(x.most))
		}
		if n >= len(a.Calendar) || a.Calendar[n].Month != month {
			return fmt.Errorf("calendar/%d is not of month %s", n, month)
		}
		x := &a.Calendar[n]
		if !paid.holds(x.Cash, give) {
			return fmt.Errorf("calendar: cash of %s is %s, and comes to %s", month, x.Cash, paid.least.StringFixed(9))
		}
		if !charged.holds(x.Accrual, give) {
			return fmt.Errorf("calendar: accrual of %s is %s, and comes to %s", month, x.Accrual, charged.least.StringFixed(9))
		}
		// Serving is the same in both, whatever it is. Both are rounded to the resolution.
		if want := x.Cash.Add(charged.least).Sub(paid.least); x.Accrual.Sub(want).Abs().GreaterThan(decimal.New(10, -v.digits)) {
			return fmt.Errorf("calendar: accrual of %s is %s, and beside its cash comes to %s", month, x.Accrual, want.StringFixed(9))
		}
		nominal = nominal.Add(x.Cash)
	}
	if n != len(a.Calendar) {
		return fmt.Errorf("calendar has %d months, of %d", len(a.Calendar), n)
	}
	return same("nominal_cost", a.Nominal, nominal)
}

// bounded verifies budgets and limits. Where the answer does not say along which route demand went,
// the cheapest counts.
func (v *verdict) bounded() error {
	cash, accrual := v.byEpoch()
	give := v.give()
	for i := range v.doc.Budgets {
		b := &v.doc.Budgets[i]
		sum := zero
		for e := range v.cal.n {
			if !v.within(b, e) {
				continue
			}
			of := accrual
			if b.Basis == "cash" {
				of = cash
			}
			sum = sum.Add(of[e]).Add(v.expected(e).least)
		}
		if sum.Sub(b.Amount).GreaterThan(give) {
			return fmt.Errorf("budget %q (%s, from %s): %s is spent, of %s", b.ID, b.Basis, b.Interval.From, sum.StringFixed(9), b.Amount)
		}
	}
	for i := range v.bounds {
		x := &v.bounds[i]
		if x.budget != nil {
			continue
		}
		sum := zero
		for s := range v.scenarios {
			n := v.unserved[s]
			if x.spot {
				n = zero
				for e := range v.rows {
					for _, row := range v.rows[e][s] {
						n = n.Add(row.Spot)
					}
				}
			}
			sum = sum.Add(n.Mul(whole(v.scenarios[s].Weight)))
		}
		if most := whole(x.most).Mul(whole(v.weight)); sum.Sub(most).GreaterThan(hair.Mul(whole(len(v.doc.Pools) * v.cal.n * v.weight))) {
			return fmt.Errorf("limits/%s: %s unit-hours over all weights, of %s", x.name, sum, most)
		}
	}
	return nil
}

// afterwards verifies the cost with all and with nothing of what terms beyond the horizon cost.
func (v *verdict) afterwards() error {
	a := v.a
	if v.outlive != (len(a.EndOfHorizon) > 0) {
		return fmt.Errorf("end_of_horizon has %d entries, and terms beyond the horizon: %t", len(a.EndOfHorizon), v.outlive)
	}
	for k, x := range a.EndOfHorizon {
		if k > 1 || !x.Salvage.Equal(whole(k)) {
			return fmt.Errorf("end_of_horizon/%d is of salvage %s", k, x.Salvage)
		}
		sum := zero
		for i, n := range v.bought {
			if n > 0 {
				sum = sum.Add(v.value(v.orders[i], x.Salvage).RoundBank(v.digits).Mul(whole(n)))
			}
		}
		if err := same(fmt.Sprintf("end_of_horizon/%d/cost", k), x.Cost, a.Cost.Sub(a.Bought).Add(sum)); err != nil {
			return err
		}
	}
	return nil
}
