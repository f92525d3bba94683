package instance

import (
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Part is the part of an answer's amounts that belongs to one pool. A purchase and what is held
// belong to the pool that they cover, what is served to the pool in which it runs, and a penalty
// and the cost of overflow to the home pool of the demand. Parts add up to the answer's amounts:
// the rounding remainder of each sum is in its largest part.
type Part struct {
	// Pool is "" for the part of no pool: spend commitments and cold standbys.
	Pool string
	// Cost is the sum of Committed, Bought, Serving and Penalty.
	Cost, Committed, Bought, Serving, Penalty domain.Decimal
	// LowerBound is the pool's part of the bound of its component, in proportion to cost, and
	// Committed. It is zero for purchases that are only evaluated.
	LowerBound        domain.Decimal
	Nominal, Stranded domain.Decimal
	Unserved          domain.Decimal // unit-hours of the demand at home there, expected
	Calendar          []MonthMoney
	Scenarios         []domain.Decimal // Cost, in the order of the answer's scenarios
}

// account is the exact money of a pool, or of what belongs to no pool.
type account struct {
	owed, bought domain.Decimal
	// By epoch, nominal; charged is the part of accrual for what is held and bought.
	cash, accrual, charged []*big.Rat
	serving, penalty       []*big.Rat // by scenario, discounted
	unserved               []*big.Rat // by scenario: unit-hours
	stranded               *big.Rat   // nominal; see [model.strand]
}

// accounts divides the result of purchases by pool. The last account is of what belongs to no pool.
func (m *model) accounts(units []int, o *outcome) []account {
	n := len(m.in.Pools)
	out := make([]account, n+1)
	zeros := func(n int) []*big.Rat {
		r := make([]*big.Rat, n)
		for i := range r {
			r[i] = new(big.Rat)
		}
		return r
	}
	for p := range out {
		x := &out[p]
		x.owed, x.bought = m.owedBy[p], decimal.Zero
		x.serving, x.penalty, x.unserved = zeros(len(m.scenarios)), zeros(len(m.scenarios)), zeros(len(m.scenarios))
		for e := range m.cal.n {
			x.cash = append(x.cash, m.heldCash[p][e].Rat())
			x.charged = append(x.charged, m.heldAccrual[p][e].Rat())
		}
	}
	for i, k := range units {
		if k == 0 {
			continue
		}
		x := m.choice(i)
		y := &out[m.belongs(x)]
		y.bought = y.bought.Add(decimal.New(int64(m.costs[i]), -m.digits).Mul(whole(k)))
		paid, charged := m.money(x)
		for e := range m.cal.n {
			y.cash[e].Add(y.cash[e], paid[e].Mul(whole(k)).Rat())
			y.charged[e].Add(y.charged[e], charged[e].Mul(whole(k)).Rat())
		}
	}
	for p := range out {
		x := &out[p]
		x.stranded = new(big.Rat)
		for e := range m.cal.n {
			x.accrual = append(x.accrual, new(big.Rat).Set(x.charged[e]))
		}
		if p == n {
			break
		}
		for e := range m.cal.n {
			for s := range m.scenarios {
				y := &o.by[e][s][p]
				if y.shortage.Sign() > 0 {
					x.unserved[s].Add(x.unserved[s], &y.shortage)
					x.penalty[s].Add(x.penalty[s], &y.penalty)
				}
				x.serving[s].Add(x.serving[s], m.discountedServing(y, p, e))
				nominal := m.serving(y, p, e)
				if len(m.scenarios) > 1 {
					nominal.Mul(nominal, m.share(s))
				}
				x.cash[e].Add(x.cash[e], nominal)
				x.accrual[e].Add(x.accrual[e], nominal)
			}
		}
	}
	return out
}

// belongs is the pool of a choice, or their number for a spend commitment.
func (m *model) belongs(x *choice) int {
	var kind domain.OfferKind
	var pool string
	if x.offer != nil {
		kind, pool = x.offer.Kind, x.offer.Pool
	} else {
		kind, pool = x.goes.Kind, x.goes.Pool
	}
	if kind == domain.OfferSpendCommitment {
		return len(m.in.Pools)
	}
	return m.pool[pool]
}

// share is the probability of a scenario.
func (m *model) share(s int) *big.Rat {
	return big.NewRat(int64(m.scenarios[s].Weight), int64(m.weight))
}

// totals are the amounts of purchases that a baseline states, expected over the scenarios. They are those
// of all accounts together.
func (m *model) totals(units []int, o *outcome) (penalty, unserved *big.Rat, nominal domain.Decimal) {
	var penalties, short tally
	cash := make([]tally, m.cal.n)
	for p := range m.heldCash {
		for e := range cash {
			cash[e].add(m.heldCash[p][e].Rat())
		}
	}
	for i, n := range units {
		if n > 0 {
			paid, _ := m.money(m.choice(i))
			for e := range cash {
				if !paid[e].IsZero() {
					cash[e].addProduct(new(big.Rat).SetInt64(int64(n)), paid[e])
				}
			}
		}
	}
	for e := range m.cal.n {
		for s := range m.scenarios {
			for p := range m.in.Pools {
				x := &o.by[e][s][p]
				if len(m.scenarios) > 1 {
					share := m.share(s)
					penalties.add(new(big.Rat).Mul(&x.penalty, share))
					short.add(new(big.Rat).Mul(&x.shortage, share))
					nominal := m.serving(x, p, e)
					cash[e].add(nominal.Mul(nominal, share))
					continue
				}
				penalties.add(&x.penalty)
				short.add(&x.shortage)
				cash[e].add(&x.extra)
				if m.onDemand[p] != nil {
					cash[e].addProduct(&x.onDemand, m.onDemand[p][e])
				}
				if m.spot[p] != nil {
					cash[e].addProduct(&x.spot, m.spot[p][e])
				}
			}
		}
	}
	nominal = decimal.Zero
	for e := 0; e < m.cal.n; {
		month := m.cal.spans[e].From.Time().Format("2006-01")
		var sum tally
		for ; e < m.cal.n && m.cal.spans[e].From.Time().Format("2006-01") == month; e++ {
			sum.add(cash[e].sum())
		}
		nominal = nominal.Add(fixed(sum.sum(), m.digits))
	}
	return penalties.sum(), short.sum(), nominal
}

// serving is the nominal cost of serving in a pool: on demand less what spend commitments pay, spot
// with its overhead, and the overflow of the demand at home there.
func (m *model) serving(x *served, p, e int) *big.Rat {
	sum := new(big.Rat).Set(&x.extra)
	if m.onDemand[p] != nil && x.onDemand.Sign() != 0 {
		sum.Add(sum, new(big.Rat).Mul(&x.onDemand, m.onDemand[p][e].Rat()))
	}
	if m.spot[p] != nil && x.spot.Sign() != 0 {
		sum.Add(sum, new(big.Rat).Mul(&x.spot, m.spot[p][e].Rat()))
	}
	return sum
}

// discountedServing is serving at the discounted and rounded prices that cost is made of.
func (m *model) discountedServing(x *served, p, e int) *big.Rat {
	sum := new(big.Rat).Set(&x.transfer)
	onDemand, spot, err := m.supply(p, e)
	if err != nil { // they were counted before
		return sum
	}
	if onDemand >= 0 && x.onDemand.Sign() != 0 {
		sum.Add(sum, new(big.Rat).Mul(&x.onDemand, m.inCurrency(onDemand)))
	}
	if spot >= 0 && x.spot.Sign() != 0 {
		sum.Add(sum, new(big.Rat).Mul(&x.spot, m.inCurrency(spot)))
	}
	return sum
}

// strand fills in the nominal cost of unused commitments in the scenario with the least demand:
// each pool's charge for an epoch, times the unused share of its unit-hours, and for no pool the
// unused part of spend commitments.
func (m *model) strand(units []int, o *outcome, of []account) {
	least, at := new(big.Rat), -1
	for s := range m.scenarios {
		sum := new(big.Rat)
		for e := range m.cal.n {
			for p := range m.in.Pools {
				sum.Add(sum, &o.by[e][s][p].demand)
			}
		}
		if at < 0 || sum.Cmp(least) < 0 {
			least, at = sum, s
		}
	}
	promised := new(big.Rat) // of spend commitments
	for s := range m.spends {
		for e := range m.cal.n {
			promised.Add(promised, m.heldSpend[s][e].Mul(whole(m.cal.hoursIn(e, e+1))).Rat())
		}
	}
	for i, n := range units {
		if n == 0 {
			continue
		}
		for _, v := range m.choice(i).spends {
			perHour := new(big.Rat).Mul(m.inCurrency(v.PerHour), big.NewRat(int64(n), 1))
			promised.Add(promised, perHour.Mul(perHour, new(big.Rat).SetInt64(m.cal.hoursIn(v.From, v.To))))
		}
	}
	committed := m.committed(units)
	for p := range m.in.Pools {
		for e := range m.cal.n {
			if m.rates[p].spend >= 0 {
				promised.Sub(promised, new(big.Rat).Mul(&o.by[e][at][p].spent, m.rates[p].price.Rat()))
			}
			if committed[p][e] == 0 {
				continue
			}
			share := m.unused(committed, o, e, at, p)
			share.Quo(share, new(big.Rat).SetInt64(committed[p][e]*m.cal.hoursIn(e, e+1)))
			of[p].stranded.Add(of[p].stranded, share.Mul(share, of[p].charged[e]))
		}
	}
	of[len(of)-1].stranded = promised
}

// amounts fills in the amounts of an answer that follow from its accounts. Cost is given.
func (m *model) amounts(a *Answer, of []account) {
	sum := func(by func(*account) []*big.Rat) *big.Rat {
		all := new(big.Rat)
		for p := range of {
			all.Add(all, m.mean(by(&of[p])))
		}
		return all
	}
	a.Committed, a.Bought = m.owed.RoundBank(m.digits), decimal.Zero
	for p := range of {
		a.Bought = a.Bought.Add(of[p].bought)
	}
	a.Penalty = fixed(sum(func(x *account) []*big.Rat { return x.penalty }), m.digits)
	a.Serving = a.Cost.Sub(a.Committed).Sub(a.Bought).Sub(a.Penalty)
	a.Calendar, a.Nominal = m.months(of)
	stranded := new(big.Rat)
	for p := range of {
		stranded.Add(stranded, of[p].stranded)
	}
	a.Stranded = fixed(stranded, m.digits)
	a.Scenarios = make([]ScenarioCost, len(m.scenarios))
	for s := range m.scenarios {
		cost, short := new(big.Rat), new(big.Rat)
		for p := range of {
			cost.Add(cost, of[p].serving[s]).Add(cost, of[p].penalty[s])
			short.Add(short, of[p].unserved[s])
		}
		a.Scenarios[s] = ScenarioCost{
			Scenario: m.scenarios[s].ID, Weight: m.scenarios[s].Weight,
			Cost: a.Committed.Add(a.Bought).Add(fixed(cost, m.digits)), Unserved: unitHours(short),
		}
	}
	a.CVaR = CVaR(a.Scenarios)
}

// mean is the expectation of amounts by scenario. Callers must not modify it.
func (m *model) mean(by []*big.Rat) *big.Rat {
	if len(by) == 1 {
		return by[0]
	}
	sum := new(big.Rat)
	for s, x := range by {
		sum.Add(sum, new(big.Rat).Mul(x, m.share(s)))
	}
	return sum
}

// months returns the calendar of accounts together, and its total cash.
func (m *model) months(of []account) ([]MonthMoney, domain.Decimal) {
	var out []MonthMoney
	nominal := decimal.Zero
	for e := 0; e < m.cal.n; {
		month := m.cal.spans[e].From.Time().Format("2006-01")
		var cash, accrual tally
		for ; e < m.cal.n && m.cal.spans[e].From.Time().Format("2006-01") == month; e++ {
			for p := range of {
				cash.add(of[p].cash[e])
				accrual.add(of[p].accrual[e])
			}
		}
		x := MonthMoney{Month: month, Cash: fixed(cash.sum(), m.digits), Accrual: fixed(accrual.sum(), m.digits)}
		nominal = nominal.Add(x.Cash)
		out = append(out, x)
	}
	return out, nominal
}

// divide fills in the parts of an answer, except their bounds.
func (m *model) divide(a *Answer, of []account) {
	a.Parts = make([]Part, len(of))
	for p := range of {
		x, y := &of[p], &a.Parts[p]
		if p < len(m.in.Pools) {
			y.Pool = m.in.Pools[p].ID
		}
		y.Committed, y.Bought = x.owed.RoundBank(m.digits), x.bought
		y.Serving, y.Penalty = fixed(m.mean(x.serving), m.digits), fixed(m.mean(x.penalty), m.digits)
		y.Stranded, y.Unserved = fixed(x.stranded, m.digits), fixed(m.mean(x.unserved), 6)
		y.Calendar, _ = m.months(of[p : p+1])
		for s := range m.scenarios {
			cost := new(big.Rat).Add(x.serving[s], x.penalty[s])
			y.Scenarios = append(y.Scenarios, y.Bought.Add(fixed(cost, m.digits)))
		}
	}
	foot(a.Committed, a.Parts, func(x *Part) *domain.Decimal { return &x.Committed })
	foot(a.Serving, a.Parts, func(x *Part) *domain.Decimal { return &x.Serving })
	foot(a.Penalty, a.Parts, func(x *Part) *domain.Decimal { return &x.Penalty })
	foot(a.Stranded, a.Parts, func(x *Part) *domain.Decimal { return &x.Stranded })
	for i := range a.Calendar {
		foot(a.Calendar[i].Cash, a.Parts, func(x *Part) *domain.Decimal { return &x.Calendar[i].Cash })
		foot(a.Calendar[i].Accrual, a.Parts, func(x *Part) *domain.Decimal { return &x.Calendar[i].Accrual })
	}
	for p := range a.Parts {
		x := &a.Parts[p]
		x.Cost = x.Committed.Add(x.Bought).Add(x.Serving).Add(x.Penalty)
		for i := range x.Calendar {
			x.Nominal = x.Nominal.Add(x.Calendar[i].Cash)
		}
		for s := range x.Scenarios {
			x.Scenarios[s] = x.Scenarios[s].Add(x.Committed)
		}
	}
	for s := range a.Scenarios {
		foot(a.Scenarios[s].Cost, a.Parts, func(x *Part) *domain.Decimal { return &x.Scenarios[s] })
	}
}

// foot makes the amounts of parts add up to a total: the difference goes to the largest, the first
// of equal ones.
func foot(total domain.Decimal, parts []Part, of func(*Part) *domain.Decimal) {
	rest, largest := total, 0
	for p := range parts {
		x := of(&parts[p])
		rest = rest.Sub(*x)
		if x.Abs().GreaterThan(of(&parts[largest]).Abs()) {
			largest = p
		}
	}
	x := of(&parts[largest])
	*x = x.Add(rest)
}

// bound divides the lower bound of an answer. bounds are those of the components, in units, times
// weight.
func (m *model) bound(a *Answer, units []int, bounds []*big.Int) {
	none := len(a.Parts) - 1
	for i, b := range bounds {
		c := &m.components[i]
		// What it costs by pool, and last the spend commitments.
		costs, all := make([]domain.Decimal, len(c.pools)+1), decimal.Zero
		for k, p := range c.pools {
			costs[k] = a.Parts[p].Cost.Sub(a.Parts[p].Committed)
			all = all.Add(costs[k])
		}
		for _, j := range c.choices {
			if m.belongs(m.choice(j)) == none {
				cost := decimal.New(int64(m.costs[j]), -m.digits).Mul(whole(units[j]))
				costs[len(c.pools)], all = costs[len(c.pools)].Add(cost), all.Add(cost)
			}
		}
		bound := m.quotient(b, false)
		if all.IsZero() {
			all = one
		}
		for k, p := range slices.Concat(c.pools, []int{none}) {
			a.Parts[p].LowerBound = a.Parts[p].LowerBound.Add(bound.Mul(costs[k]).DivRound(all, digits).RoundFloor(m.digits))
		}
	}
	for p := range a.Parts {
		a.Parts[p].LowerBound = a.Parts[p].LowerBound.Add(a.Parts[p].Committed)
	}
	// The rounding remainder goes where a bound stays below its cost.
	rest, order := a.LowerBound, make([]*Part, len(a.Parts))
	for p := range a.Parts {
		order[p], rest = &a.Parts[p], rest.Sub(a.Parts[p].LowerBound)
	}
	left := func(x *Part) domain.Decimal { return x.Cost.Sub(x.LowerBound) }
	slices.SortStableFunc(order, func(x, y *Part) int { return left(y).Cmp(left(x)) })
	for _, x := range order {
		more := decimal.Min(rest, left(x))
		x.LowerBound, rest = x.LowerBound.Add(more), rest.Sub(more)
	}
}
