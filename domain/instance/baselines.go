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

// Baseline is a simple purchasing rule of package baseline, applied to every pool separately, and
// its cost over the same scenarios, prices and end-of-horizon rule. Existing commitments stay, and
// renew unless notice is given. The all-on-demand rule is the exception: it holds and buys nothing
// and runs nothing on spot.
//
// Rules buy what a recommendation would name: one offer of capacity or of a price for one pool.
// They ignore least orders, lots, exclusive groups, ramps, owned hardware and spend commitments, so
// a baseline may be cheaper than anything that is sold. They also ignore budgets: all demand is
// served that can be, at any cost. Broken shows by how much budgets are exceeded. A baseline with
// entries in Broken is not comparable with the answer, which satisfies all constraints.
type Baseline struct {
	Name    string         `json:"baseline"`
	Cost    domain.Decimal `json:"cost"`
	Penalty domain.Decimal `json:"shortage_penalty"`
	Nominal domain.Decimal `json:"nominal_cost"`
	// Unserved is the expected number of unit-hours that nothing serves. For the all-on-demand rule
	// these are what the quota refuses.
	Unserved string `json:"unserved_unit_hours"`
	// Broken lists the violated constraints; empty if the baseline satisfies the whole instance.
	Broken []Broken       `json:"does_not_keep,omitempty"`
	Pools  []BaselinePool `json:"pools,omitempty"` // where a rule looks back
	// Parts are those of buying nothing and of all on demand, as in [Answer.Parts] without bounds.
	Parts []Part `json:"-"`
}

// Broken is a constraint that a baseline violates.
type Broken struct {
	Bound string `json:"bound"` // "posture", "budget ID", "unserved share" or "spot share"
	// Over is the amount by which a budget is exceeded on its basis: nominal, expected over the
	// scenarios, in the instance's currency.
	Over *domain.Decimal `json:"over,omitempty"`
}

// BaselinePool is the result of a rule in one pool.
type BaselinePool struct {
	Pool  string `json:"pool"`
	Offer string `json:"offer,omitempty"` // the bought offer, if there is just one
	Units int    `json:"units"`           // target in units of the pool
	Hours int    `json:"observed_hours"`  // number of observed hours that the rule uses
	// Horizon says that no demand before the horizon is given, so the rule looks at the first days
	// of the horizon instead.
	Horizon bool `json:"looks_at_horizon,omitempty"`
}

// ladderParts is the number of parts in which a ladder buys: one a month of a year's term.
const ladderParts = 12

// rules are the baselines of an instance, in order.
var rules = []struct {
	rule baseline.Rule
	days int
}{
	{baseline.BuyNothing, 0}, {baseline.OnDemand, 0}, {baseline.Lookback, 7}, {baseline.Lookback, 30},
	{baseline.Lookback, 60}, {baseline.Ladder, 60}, {baseline.Peak, 60},
}

// Baselines evaluates the purchasing rules. It needs no solver.
func Baselines(ctx context.Context, in *Instance) ([]Baseline, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	m, err := newLoads().compile(ctx, in, nil)
	if err != nil {
		return nil, err
	}
	return m.baselines(ctx, in)
}

// baselines are those of the instance of the model.
func (m *model) baselines(ctx context.Context, in *Instance) ([]Baseline, error) {
	w := m.loads
	loose, changed := in.loosened()
	if changed {
		var err error
		if m, err = w.compile(ctx, loose, nil); err != nil {
			return nil, err
		}
	}
	bare := *loose
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
	// Rules compare pro-rata prices and pay the same prices as the answer.
	sold, err := m.under(ctx, loose, decimal.NewFromInt(1))
	if err != nil {
		return nil, err
	}
	goesOn := m.goesOn()
	followed, err := m.follow(ctx, sold, goesOn)
	if err != nil {
		return nil, err
	}
	var out []Baseline
	for k, r := range rules {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		of, orders := m, slices.Concat(goesOn, followed[k].orders)
		if r.rule == baseline.OnDemand {
			of, orders = alone, nil
		}
		c, err := of.comesTo(orders, in.Budgets, r.rule == baseline.BuyNothing || r.rule == baseline.OnDemand)
		if err != nil {
			return nil, fmt.Errorf("baseline %s: %w", r.rule, err)
		}
		c.Name, c.Pools = (&baseline.Baseline{Rule: r.rule, Days: r.days}).Name(), followed[k].looked
		out = append(out, *c)
	}
	return out, nil
}

// loosened is the instance as rules see it: without budgets, and with the offers of capacity or a price
// that can be bought in any number. It reports whether that is another one.
func (in *Instance) loosened() (out *Instance, changed bool) {
	loose := *in
	loose.Budgets, loose.Offers = nil, nil
	changed = len(in.Budgets) > 0
	for _, o := range in.Offers {
		if o.Kind != domain.OfferReserved && o.Kind != domain.OfferCapacityBlock || len(o.Ramp) > 0 {
			changed = true
			continue
		}
		changed = changed || o.MinUnits > 0 || o.Lot > 0 || o.Exclusive != ""
		o.MinUnits, o.Lot, o.Exclusive = 0, 0, ""
		loose.Offers = append(loose.Offers, o)
	}
	return &loose, changed
}

// comesTo evaluates orders, with budgets that are not part of the model, and divides the result by
// pool if that is asked for.
func (m *model) comesTo(orders []Order, budgets []Budget, divided bool) (*Baseline, error) {
	units, err := m.place(orders)
	if err != nil {
		return nil, err
	}
	o, err := m.outcome(units)
	if err != nil {
		return nil, err
	}
	cost := new(big.Int)
	for _, n := range o.costs {
		cost.Add(cost, n)
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
	penalty, short, nominal := m.totals(units, o)
	out := &Baseline{
		Cost: m.owed.RoundBank(m.digits).Add(m.quotient(cost, true)), Penalty: fixed(penalty, m.digits), Nominal: nominal,
		Unserved: unitHours(short), Broken: broken,
	}
	if divided {
		a, of := &Answer{Cost: out.Cost}, m.accounts(units, o)
		m.amounts(a, of)
		m.divide(a, of)
		out.Parts = a.Parts
	}
	return out, nil
}

// taken is the exact amount that purchases and existing commitments take of a budget, nominal and
// expected.
func (m *model) taken(b *Budget, units []int, o *outcome) *big.Rat {
	sum := new(big.Rat)
	for e := range m.cal.n {
		if !m.inBudget(b, e) {
			continue
		}
		for _, of := range m.heldOn(b.Basis) {
			sum.Add(sum, of[e].Rat())
		}
		for s := range m.scenarios {
			for p := range m.in.Pools {
				x := m.serving(&o.by[e][s][p], p, e)
				sum.Add(sum, x.Mul(x, m.share(s)))
			}
		}
	}
	for i, n := range units {
		if n == 0 {
			continue
		}
		of, accrual := m.money(m.choice(i))
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

// heldOn returns what existing commitments take of a budget, by pool and epoch.
func (m *model) heldOn(basis BudgetBasis) [][]domain.Decimal {
	if basis == Cash {
		return m.heldCash
	}
	return m.heldAccrual
}

// goesOn returns the renewals when nobody gives notice: every renewing commitment renews as often
// as the horizon allows.
func (m *model) goesOn() []Order {
	var out []Order
	for i := range m.renewals {
		x := &m.renewals[i]
		if last := len(out) - 1; last >= 0 && out[last].Commitment == x.order.Commitment {
			out[last] = x.order // one more term
		} else {
			out = append(out, x.order)
		}
	}
	return out
}

// rulePools states what a rule sees of each pool, in order: prices, existing and renewed commitments,
// and offers, per unit of the pool. A pool is stated when it is asked for: all of them would take more
// memory than the instance.
type rulePools struct {
	*model
	renewed []procurement.Pool // of each pool no more than the units of renewed commitments
	choices [][]int32          // of offers, by pool
}

func (m *model) rulePools(goesOn []Order) (*rulePools, error) {
	units, err := m.place(goesOn)
	if err != nil {
		return nil, err
	}
	out := &rulePools{m, make([]procurement.Pool, len(m.in.Pools)), make([][]int32, len(m.in.Pools))}
	for i, n := range units {
		if offer := m.offer(i); offer != nil && m.choices[i].tier < 0 {
			p := m.pool[offer.Pool]
			out.choices[p] = append(out.choices[p], int32(i))
		}
		if n == 0 {
			continue
		}
		for _, c := range m.choice(i).covers {
			p := &out.renewed[c.Pool]
			if p.Epochs == nil {
				p.Epochs = make([]procurement.Epoch, m.cal.n)
			}
			for e := c.From; e < c.To; e++ {
				if x := &p.Epochs[e]; c.Guaranteed {
					x.HeldGuaranteed += n * c.Units
				} else {
					x.HeldDiscountOnly += n * c.Units
				}
			}
		}
	}
	return out, nil
}

func (m *rulePools) of(p int) (*procurement.Pool, error) {
	out := &procurement.Pool{ID: m.in.Pools[p].ID, Epochs: make([]procurement.Epoch, m.cal.n)}
	copy(out.Epochs, m.renewed[p].Epochs)
	for e := range out.Epochs {
		x := &out.Epochs[e]
		x.Span, x.Quota = m.cal.spans[e], procurement.Unlimited
		x.HeldGuaranteed += m.heldGuaranteed[p][e]
		x.HeldDiscountOnly += m.heldDiscountOnly[p][e]
		var err error
		if x.OnDemand, x.Spot, err = m.supply(p, e); err != nil {
			return nil, err
		}
	}
	for _, i := range m.choices[p] {
		offer := m.offer(int(i))
		each := max(1, offer.PerUnit)
		if last := len(out.Offers) - 1; last < 0 || out.Offers[last].ID != offer.ID {
			out.Offers = append(out.Offers, procurement.Offer{
				ID: offer.ID, Guaranteed: offer.GuaranteesCapacity, Term: offer.Term,
			})
		}
		most := procurement.Unlimited
		if n := offer.MaxUnits; n > 0 && n <= procurement.MaxUnits/each {
			most = n * each
		}
		o := &out.Offers[len(out.Offers)-1]
		o.Starts = append(o.Starts, procurement.Start{
			Epoch: int(m.model.choices[i].epoch), Cost: (m.costs[i] + procurement.Nano(each) - 1) / procurement.Nano(each), Max: most,
		})
	}
	return out, nil
}

// ruling is what a rule buys, and what it looked at in each pool.
type ruling struct {
	orders []Order
	looked []BaselinePool
}

// follow returns what each rule buys that looks back, by rule. Rules see the prices of a model.
func (m *model) follow(ctx context.Context, sold *model, goesOn []Order) ([]ruling, error) {
	pools, err := sold.rulePools(goesOn)
	if err != nil {
		return nil, err
	}
	perUnit := make(map[string]int, len(m.in.Offers))
	for i := range m.in.Offers {
		perUnit[m.in.Offers[i].ID] = max(1, m.in.Offers[i].PerUnit)
	}
	out := make([]ruling, len(rules))
	for p := range m.in.Pools {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		pool, err := pools.of(p)
		if err != nil {
			return nil, err
		}
		for k, r := range rules {
			if r.days == 0 {
				continue
			}
			past, interruptible, horizon, err := m.past(p, r.days)
			if err != nil {
				return nil, err
			}
			if past == nil {
				continue
			}
			for e := range pool.Epochs {
				pool.Epochs[e].SpotPermille = interruptible
			}
			var c baseline.Baseline
			switch r.rule {
			case baseline.Lookback:
				c = baseline.LookBack(pool, past, r.days)
			case baseline.Ladder:
				c = baseline.Ladders(pool, past, r.days, ladderParts)
			default:
				c = baseline.PeakReserved(pool, past, r.days)
			}
			x := BaselinePool{Pool: pool.ID, Units: c.Units, Hours: c.Hours, Horizon: horizon}
			if c.Offer >= 0 {
				x.Offer = pool.Offers[c.Offer].ID
			}
			out[k].looked = append(out[k].looked, x)
			for _, b := range c.Purchases {
				id := pool.Offers[b.Offer].ID
				if n := b.Units / perUnit[id]; n > 0 {
					out[k].orders = append(out[k].orders, Order{Offer: id, Epoch: b.Epoch, Units: n})
				}
			}
		}
	}
	return out, nil
}

// past returns the observed demand of the last days of the demands at home in a pool, with their
// spares, and the share in thousandths that spot may serve. It is nil if no demand is at home
// there. If one of them has no past, the first days of the horizon are used as stated.
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
		// Series are aligned at the end; hours missing from a shorter one were not observed.
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

// withSpares adds the failure buffer to observed units.
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

// firstDays returns the stated demand of the first days of the horizon. Of a load-duration curve it
// takes the epochs that cover those days, thinned to as many hours.
func (m *model) firstDays(demand, days int) ([]int, error) {
	d := &m.in.Demands[demand]
	all, _, err := m.wanted(demand, &Scenario{})
	if err != nil {
		return nil, err
	}
	if d.Hourly != nil {
		all = slices.Clone(all[:min(24*days, len(all))])
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

// Compare adds the baselines to an answer.
func Compare(ctx context.Context, in *Instance, a *Answer) (err error) {
	if err := in.Validate(); err != nil {
		return err
	}
	m, err := a.modelOf(ctx, in)
	if err == nil {
		a.Baselines, err = m.baselines(ctx, in)
	}
	return err
}
