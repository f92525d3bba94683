package instance

import (
	"cmp"
	"context"
	"fmt"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/baseline"
	"quartermaster/domain/procurement/joint"
)

// Baseline is what is done without a plan, and what that comes to over the same
// scenarios, prices and rule for the end of the horizon: a rule of package baseline,
// which every pool follows by itself. What is held stays, and goes on where nobody
// gives notice, but where all is served on demand: there nothing is held, bought or
// run on spot.
//
// Rules buy what a recommendation would name: one offer of capacity or of a price
// for one pool. Least orders, lots and what excludes one another are no part of
// them, nor are ramps, owned hardware and commitments to spend, so that a baseline may
// be cheaper than anything that is sold. Nor do they look at budgets: all demand is
// served that can be, whatever it costs, and what that is more than a budget allows is
// in Broken. A baseline with anything there is no rival of the answer, which keeps it.
type Baseline struct {
	Name    string         `json:"baseline"`
	Cost    domain.Decimal `json:"cost"`
	Penalty domain.Decimal `json:"shortage_penalty"`
	Nominal domain.Decimal `json:"nominal_cost"`
	// Unserved is the expected unit-hours that nothing serves: where all is on demand,
	// those that the quota refuses.
	Unserved string `json:"unserved_unit_hours"`
	// Broken is what it does not keep, none where it keeps all that the instance asks.
	Broken []Broken       `json:"does_not_keep,omitempty"`
	Pools  []BaselinePool `json:"pools,omitempty"` // where a rule looks back
}

// Broken is what a baseline does not keep.
type Broken struct {
	Bound string `json:"bound"` // "posture", "budget ID", "unserved share" or "spot share"
	// Over is by how much a budget is exceeded, on its basis: nominal, expected over the
	// scenarios, in the instance's currency.
	Over *domain.Decimal `json:"over,omitempty"`
}

// BaselinePool is what a rule does in a pool.
type BaselinePool struct {
	Pool  string `json:"pool"`
	Offer string `json:"offer,omitempty"` // the one that is bought, if it is one
	Units int    `json:"units"`           // of the pool, that it aims at
	Hours int    `json:"observed_hours"`  // that it looks at
	// Horizon says that demand before the horizon is not given, and the first days of
	// the horizon are looked at instead.
	Horizon bool `json:"looks_at_horizon,omitempty"`
}

// ladderParts are the parts in which a ladder buys: one a month of a year's term.
const ladderParts = 12

// rules are the baselines of an instance, in order.
var rules = []struct {
	rule baseline.Rule
	days int
}{
	{baseline.BuyNothing, 0}, {baseline.OnDemand, 0}, {baseline.Lookback, 7}, {baseline.Lookback, 30}, {baseline.Lookback, 60}, {baseline.Ladder, 60}, {baseline.Peak, 60},
}

// Baselines says what is done without a plan comes to. It needs no solver.
func Baselines(ctx context.Context, in *Instance) ([]Baseline, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	return newLoads().baselines(ctx, in)
}

func (w *loads) baselines(ctx context.Context, in *Instance) ([]Baseline, error) {
	loose := *in
	loose.Budgets = nil
	loose.Offers = slices.DeleteFunc(slices.Clone(in.Offers), func(o Offer) bool {
		return o.Kind != domain.OfferReserved && o.Kind != domain.OfferCapacityBlock || len(o.Ramp) > 0
	})
	for i := range loose.Offers {
		o := &loose.Offers[i]
		o.MinUnits, o.Lot, o.Exclusive = 0, 0, ""
	}
	m, err := w.compile(ctx, &loose, nil)
	if err != nil {
		return nil, err
	}
	bare := loose
	bare.Commitments, bare.Offers, bare.Pools = nil, nil, slices.Clone(in.Pools)
	for i := range bare.Pools {
		bare.Pools[i].Spot = nil
	}
	bare.Scenarios = slices.Clone(in.Scenarios)
	for i := range bare.Scenarios {
		bare.Scenarios[i].Spot = nil
	}
	alone, err := w.compile(ctx, &bare, nil)
	if err != nil {
		return nil, err
	}
	// Rules weigh prices pro rata, and pay as the answer does.
	one := decimal.NewFromInt(1)
	sold, err := w.compile(ctx, &loose, &one)
	if err != nil {
		return nil, err
	}
	goesOn := m.goesOn()
	pools, err := sold.rulePools(goesOn)
	if err != nil {
		return nil, err
	}
	var out []Baseline
	for _, r := range rules {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		of, orders, looked := m, slices.Clone(goesOn), []BaselinePool(nil)
		if r.rule == baseline.OnDemand {
			of, orders = alone, nil
		}
		if r.days > 0 {
			bought, by, err := m.follow(pools, r.rule, r.days)
			if err != nil {
				return nil, err
			}
			orders, looked = append(orders, bought...), by
		}
		c, err := of.comesTo(orders, in.Budgets)
		if err != nil {
			return nil, fmt.Errorf("baseline %s: %w", r.rule, err)
		}
		c.Name, c.Pools = (&baseline.Baseline{Rule: r.rule, Days: r.days}).Name(), looked
		out = append(out, *c)
	}
	return out, nil
}

// comesTo is what orders cost, beside budgets that are no part of the model.
func (m *model) comesTo(orders []Order, budgets []Budget) (*Baseline, error) {
	units, err := m.place(orders)
	if err != nil {
		return nil, err
	}
	o, err := m.outcome(units)
	if err != nil {
		return nil, err
	}
	cost, short := new(big.Int), new(big.Rat)
	for _, n := range o.costs {
		cost.Add(cost, n)
	}
	for e := range m.cal.n {
		for s := range m.scenarios {
			for p := range m.in.Pools {
				x := &o.by[e][s][p].shortage
				short.Add(short, new(big.Rat).Mul(x, big.NewRat(int64(m.scenarios[s].Weight), int64(m.weight))))
			}
		}
	}
	var broken []Broken
	for _, id := range o.broken {
		if slices.ContainsFunc(m.needs, func(n joint.Need) bool { return n.ID == id }) {
			id = "posture"
		}
		if !slices.Contains(broken, Broken{Bound: id}) {
			broken = append(broken, Broken{Bound: id})
		}
	}
	for _, b := range slices.SortedFunc(slices.Values(budgets), func(a, b Budget) int { return cmp.Compare(a.ID, b.ID) }) {
		if over := fixed(m.taken(&b, units, o), m.digits).Sub(b.Amount); over.IsPositive() {
			broken = append(broken, Broken{"budget " + b.ID, &over})
		}
	}
	_, nominal := m.months(units, o)
	return &Baseline{
		Cost: m.owed.RoundBank(m.digits).Add(m.quotient(cost, true)), Penalty: m.penalty(o), Nominal: nominal, Unserved: unitHours(short), Broken: broken,
	}, nil
}

// taken is what purchases, with what is held, take of a budget: nominal and expected,
// exactly.
func (m *model) taken(b *Budget, units []int, o *outcome) *big.Rat {
	sum := new(big.Rat)
	for e := range m.cal.n {
		if !m.inBudget(b, e) {
			continue
		}
		if b.Basis == Cash {
			sum.Add(sum, m.heldCash[e].Rat())
		} else {
			for _, of := range m.heldAccrual {
				sum.Add(sum, of[e].Rat())
			}
		}
		for s := range m.scenarios {
			x := m.serving(o, e, s)
			sum.Add(sum, x.Mul(x, big.NewRat(int64(m.scenarios[s].Weight), int64(m.weight))))
		}
	}
	for i, n := range units {
		if n == 0 {
			continue
		}
		of, accrual := m.money(&m.choices[i])
		if b.Basis == Accrual {
			of = accrual
		}
		for e := range m.cal.n {
			if m.inBudget(b, e) {
				sum.Add(sum, of[e].Mul(whole(n)).Rat())
			}
		}
	}
	return sum
}

// goesOn is what happens when nobody gives notice: every commitment that renews does,
// as often as the horizon lets it.
func (m *model) goesOn() []Order {
	var out []Order
	for i := range m.choices {
		x := &m.choices[i]
		switch last := len(out) - 1; {
		case x.goes == nil:
		case last >= 0 && out[last].Commitment == x.order.Commitment:
			out[last] = x.order // one more time
		default:
			out = append(out, x.order)
		}
	}
	return out
}

// rulePools states for each pool in order what a rule sees of it: prices, what is
// held and goes on, and what is sold for it, by the unit of the pool.
func (m *model) rulePools(goesOn []Order) ([]procurement.Pool, error) {
	units, err := m.place(goesOn)
	if err != nil {
		return nil, err
	}
	out := make([]procurement.Pool, len(m.in.Pools))
	for p := range out {
		out[p].ID = m.in.Pools[p].ID
		for e := range m.cal.n {
			x := procurement.Epoch{Span: m.cal.spans[e], Quota: procurement.Unlimited, HeldGuaranteed: m.heldGuaranteed[p][e], HeldDiscountOnly: m.heldDiscountOnly[p][e]}
			if x.OnDemand, x.Spot, err = m.supply(p, e); err != nil {
				return nil, err
			}
			out[p].Epochs = append(out[p].Epochs, x)
		}
	}
	for i, n := range units {
		for _, c := range m.choices[i].covers {
			for e := c.From; e < c.To; e++ {
				if x := &out[c.Pool].Epochs[e]; c.Guaranteed {
					x.HeldGuaranteed += n * c.Units
				} else {
					x.HeldDiscountOnly += n * c.Units
				}
			}
		}
	}
	for i := range m.choices {
		x := &m.choices[i]
		if x.offer == nil || x.tier > 0 {
			continue
		}
		p, each := &out[m.pool[x.offer.Pool]], max(1, x.offer.PerUnit)
		if last := len(p.Offers) - 1; last < 0 || p.Offers[last].ID != x.offer.ID {
			p.Offers = append(p.Offers, procurement.Offer{ID: x.offer.ID, Guaranteed: x.offer.GuaranteesCapacity, Term: x.offer.Term})
		}
		most := procurement.Unlimited
		if n := x.offer.MaxUnits; n > 0 && n <= procurement.MaxUnits/each {
			most = n * each
		}
		o := &p.Offers[len(p.Offers)-1]
		o.Starts = append(o.Starts, procurement.Start{Epoch: x.order.Epoch, Cost: (x.cost + procurement.Nano(each) - 1) / procurement.Nano(each), Max: most})
	}
	return out, nil
}

// follow says what a rule buys in each pool.
func (m *model) follow(pools []procurement.Pool, rule baseline.Rule, days int) (orders []Order, looked []BaselinePool, err error) {
	for p := range pools {
		past, interruptible, horizon, err := m.past(p, days)
		if err != nil {
			return nil, nil, err
		}
		if past == nil {
			continue
		}
		pool := pools[p]
		pool.Epochs = slices.Clone(pool.Epochs)
		for e := range pool.Epochs {
			pool.Epochs[e].SpotPermille = interruptible
		}
		var c baseline.Baseline
		switch rule {
		case baseline.Lookback:
			c = baseline.LookBack(&pool, past, days)
		case baseline.Ladder:
			c = baseline.Ladders(&pool, past, days, ladderParts)
		default:
			c = baseline.PeakReserved(&pool, past, days)
		}
		x := BaselinePool{Pool: pool.ID, Units: c.Units, Hours: c.Hours, Horizon: horizon}
		if c.Offer >= 0 {
			x.Offer = pool.Offers[c.Offer].ID
		}
		looked = append(looked, x)
		for _, b := range c.Purchases {
			id := pool.Offers[b.Offer].ID
			i := slices.IndexFunc(m.in.Offers, func(o Offer) bool { return o.ID == id })
			if n := b.Units / max(1, m.in.Offers[i].PerUnit); n > 0 {
				orders = append(orders, Order{Offer: id, Epoch: b.Epoch, Units: n})
			}
		}
	}
	return orders, looked, nil
}

// past is what the demands at home in a pool wanted in the last days, with the spares
// that they keep, and the share in thousandths that spot may carry; nil: none is at
// home there. Where one of them does not give its past, the first days of the horizon
// stand for it, as they are stated.
func (m *model) past(pool, days int) (hours []int, interruptible int, horizon bool, err error) {
	var home []int
	for i := range m.in.Demands {
		if m.pool[m.in.Demands[i].Pool] == pool {
			home = append(home, i)
			horizon = horizon || len(m.in.Demands[i].Past) == 0
		}
	}
	all, spot := int64(0), int64(0)
	for _, i := range home {
		d := &m.in.Demands[i]
		var one []int
		if horizon {
			one, err = m.firstDays(i, days)
		} else {
			one = slices.Clone(d.Past)
			if top := slices.Max(one); d.Buffer != nil && top > 0 {
				err = d.withSpares(one, top)
			}
		}
		if err != nil {
			return nil, 0, false, err
		}
		// Hours align at the end: what one gives less of was not observed.
		if hours == nil {
			hours = one
		} else {
			n := min(len(hours), len(one))
			hours, one = hours[len(hours)-n:], one[len(one)-n:]
			for h := range hours {
				if hours[h] < 0 || one[h] < 0 {
					hours[h] = -1
				} else {
					hours[h] += one[h]
				}
			}
		}
		for _, n := range one {
			all, spot = all+int64(max(0, n)), spot+int64(max(0, n))*int64(permille(d.Interruptible))
		}
	}
	if all > 0 {
		interruptible = int(spot / all)
	}
	return hours, interruptible, horizon, nil
}

// withSpares adds a buffer for failures to observed units.
func (d *Demand) withSpares(units []int, top int) error {
	spare, err := d.spares(top)
	if err != nil {
		return err
	}
	for h, n := range units {
		if n > 0 {
			units[h] = spare.With(n)
		}
	}
	return nil
}

// firstDays is what a demand wants, as stated, in the first days of the horizon. Of a
// load-duration curve the epochs that reach so far are taken, thinned to as many
// hours.
func (m *model) firstDays(demand, days int) ([]int, error) {
	d := &m.in.Demands[demand]
	all, err := m.wanted(demand, &Scenario{})
	if err != nil {
		return nil, err
	}
	if top := slices.Max(all); d.Buffer != nil && top > 0 {
		if err := d.withSpares(all, top); err != nil {
			return nil, err
		}
	}
	n := min(24*days, len(all))
	if d.Hourly != nil {
		return all[:n], nil
	}
	e, _ := slices.BinarySearch(m.cal.hours[:m.cal.n+1], int64(n))
	all = all[:m.cal.hours[e]]
	slices.Sort(all)
	out := make([]int, n)
	for i := range out {
		out[i] = all[(2*i+1)*len(all)/(2*n)]
	}
	return out, nil
}

// Compare adds to an answer what is done without a plan.
func Compare(ctx context.Context, in *Instance, a *Answer) (err error) {
	if err := in.Validate(); err != nil {
		return err
	}
	a.Baselines, err = a.loads().baselines(ctx, in)
	return err
}
