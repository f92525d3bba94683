package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
)

// solved is a group of pools with its answers.
type solved struct {
	*group
	answer *instance.Answer
	// unlimited serves all demand on demand without quotas, and low serves low demand with the
	// answer's purchases; low is nil for a forecast.
	unlimited, low *instance.Answer
	targets        []instance.Target // by offer
	settled        instance.Settled
	bundled        *bundled                     // fewer orders, if asked for
	later          map[instance.Order]*Decision // of what need not be ordered yet
	waits          map[instance.Order]*Wait     // of what should not be ordered yet
	regrets        map[instance.Order]*Regret   // of what is bought for a forecast
}

// solve answers the problem of a group, and has the answer checked against the problem's document.
func (c *composer) solve(ctx context.Context, g *group, lp linear.Solver) (*solved, error) {
	in, err := c.problem(g)
	if err != nil {
		return nil, err
	}
	x, err := c.answer(ctx, g, in, lp)
	if err != nil {
		return nil, err
	}
	if x.later, err = c.stages(ctx, g, in, x.answer); err != nil {
		return nil, err
	}
	if x.waits, err = c.waits(g, x.answer.Orders()); err != nil {
		return nil, err
	}
	if x.regrets, err = c.regrets(ctx, in, x.answer); err != nil {
		return nil, err
	}
	if x.bundled, err = c.bundle(ctx, in, x.answer); err != nil {
		return nil, err
	}
	x.settled = x.answer.Settled(in, func() (*instance.Instance, error) { return c.problem(g) })
	return x, nil
}

func (c *composer) answer(ctx context.Context, g *group, in *instance.Instance, lp linear.Solver) (x *solved, err error) {
	x = &solved{group: g}
	if x.answer, err = instance.SolveUntil(ctx, ctx, in, lp, 0); err != nil {
		return nil, err
	}
	x.targets = x.answer.Targets()
	if err := instance.EndOfHorizon(ctx, in, x.answer, lp, 0); err != nil {
		return nil, err
	}
	if err := instance.Compare(ctx, in, x.answer); err != nil {
		return nil, err
	}
	if err := instance.Follows(ctx, in, x.answer); err != nil {
		return nil, err
	}
	bare := *in
	bare.Offers, bare.Commitments, bare.Quotas, bare.Budgets, bare.Overflow = nil, nil, nil, nil, nil
	bare.Substitutes, bare.Posture = nil, nil
	bare.Pools = slices.Clone(in.Pools)
	bare.Pools = slices.DeleteFunc(bare.Pools, func(p instance.Pool) bool {
		return !slices.Contains(namesOf(g.pools), p.ID) // stated again for a spend commitment or a provider
	})
	for i := range bare.Pools {
		bare.Pools[i].Quota, bare.Pools[i].QuotaPerUnit, bare.Pools[i].Spot = "", 0, nil
	}
	if x.unlimited, err = instance.Evaluate(ctx, &bare, nil); err != nil {
		return nil, err
	}
	if c.a.Demand == Forecast {
		return x, nil
	}
	low, orders := *in, x.answer.Orders()
	low.Posture = nil // it binds what is bought, and not how low demand is served
	low.Demands = slices.Clone(in.Demands)
	for i := range low.Demands {
		if low.Demands[i].Hourly, err = c.low(g.pools[i]); err != nil {
			return nil, err
		}
	}
	low.Offers = nil // only what is bought is priced
	for _, o := range in.Offers {
		if slices.ContainsFunc(orders, func(x instance.Order) bool { return x.Offer == o.ID }) {
			low.Offers = append(low.Offers, o)
		}
	}
	x.low, err = instance.Evaluate(ctx, &low, orders)
	return x, err
}

// present adds the answer of a group to a plan, and to the plans of its pools.
func (c *composer) present(x *solved, p *Plan, into map[*candidate]*PoolPlan) error {
	a := x.answer
	p.Certificate = append(p.Certificate, a.Proof...)
	for i := range a.Baselines {
		b := &a.Baselines[i]
		at := slices.IndexFunc(p.Baselines, func(y Baseline) bool { return y.Name == b.Name })
		if at < 0 {
			at = len(p.Baselines)
			p.Baselines = append(p.Baselines, Baseline{Name: b.Name})
		}
		y := &p.Baselines[at]
		y.Cost, y.Penalty, y.Nominal = y.Cost.Add(b.Cost), y.Penalty.Add(b.Penalty), y.Nominal.Add(b.Nominal)
		for _, x := range b.Broken {
			if !slices.Contains(y.Broken, x.Bound) {
				y.Broken = append(y.Broken, x.Bound)
			}
		}
	}
	c.sensitivity(x, p)
	c.spending(x, p)
	c.addBundle(x, p)
	together := len(x.pools) > 1
	for _, k := range x.pools {
		pool, err := c.pool(x, k)
		if err != nil {
			return err
		}
		if !together {
			pool.Binding = slices.Insert(c.binding(a), 0, pool.Binding...)
			pool.Notes = append(pool.Notes, a.Caveats()...)
		}
		into[k] = pool
	}
	if !together {
		return nil
	}
	for _, note := range a.Caveats() {
		c.notes = append(c.notes, listed(namesOf(x.pools))+": "+note)
	}
	p.Components = append(p.Components, Component{
		By: x.by, Pools: namesOf(x.pools), Cost: a.Cost, LowerBound: a.LowerBound, Gap: a.Gap, Binding: c.binding(a),
	})
	return nil
}

// binding lists the binding constraints of an answer.
func (c *composer) binding(a *instance.Answer) []Binding {
	out := []Binding{}
	for _, b := range a.Binding {
		x := Binding{Constraint: b.Constraint, Detail: b.Detail, Price: &b.Price}
		for _, e := range b.Epochs {
			x.Months = append(x.Months, c.span[e].From)
		}
		out = append(out, x)
	}
	return out
}

// sensitivity adds what the answer of a group is at other salvages. A group whose purchases cannot
// outlive the horizon costs the same at each.
func (c *composer) sensitivity(x *solved, p *Plan) {
	a := x.answer
	for _, salvage := range []domain.Decimal{decimal.Zero, decimal.NewFromInt(1)} {
		i := slices.IndexFunc(p.EndOfHorizon, func(s Sensitivity) bool { return s.Salvage.Equal(salvage) })
		if i < 0 {
			i = len(p.EndOfHorizon)
			p.EndOfHorizon = append(p.EndOfHorizon, Sensitivity{Salvage: salvage, Orders: []instance.Order{}})
		}
		kept, cost, bound, orders := a.Cost, a.Cost, a.LowerBound, a.Orders()
		if j := slices.IndexFunc(a.EndOfHorizon, func(t instance.Terminal) bool { return t.Salvage.Equal(salvage) }); j >= 0 {
			t := &a.EndOfHorizon[j]
			kept, cost, bound, orders = t.Cost, *t.Best, *t.LowerBound, t.Purchases
		}
		s := &p.EndOfHorizon[i]
		s.Kept, s.Cost, s.LowerBound = s.Kept.Add(kept), s.Cost.Add(cost), s.LowerBound.Add(bound)
		s.Orders = append(s.Orders, orders...)
		for _, o := range orders {
			s.Units += o.Units
		}
	}
}

// partOf returns a pool's part of an answer or baseline.
func partOf(parts []instance.Part, pool string) *instance.Part {
	return &parts[slices.IndexFunc(parts, func(x instance.Part) bool { return x.Pool == pool })]
}

// amountsOf adds up the parts of an answer that belong to some pools of its problem.
func amountsOf(x *solved, names ...string) Amounts {
	var out Amounts
	for _, name := range names {
		part := partOf(x.answer.Parts, name)
		y := Amounts{
			Cost: part.Cost, Held: part.Committed, Penalty: part.Penalty, LowerBound: part.LowerBound, Nominal: part.Nominal,
			Stranded: part.Stranded,
		}
		if x.low != nil {
			y.Stranded = partOf(x.low.Parts, name).Stranded
		} else {
			y.Costs = part.Scenarios
		}
		for i := range x.answer.Baselines {
			if b := &x.answer.Baselines[i]; b.Name == "buy_nothing" {
				part := partOf(b.Parts, name)
				y.Current, y.CurrentPenalty = part.Cost, part.Penalty
			}
		}
		out.add(&y)
	}
	out.Gap = gap(out.Cost, out.LowerBound)
	out.risk()
	return out
}

// pool is the plan of a pool.
func (c *composer) pool(x *solved, k *candidate) (*PoolPlan, error) {
	s, a := k.shelf, x.answer
	out := &PoolPlan{
		Kind: k.Kind, Unit: k.Unit, SKU: s.onDemand.SKU, GPUsPerUnit: s.gpus, Notes: c.notesOf(x.group, k), Demand: k.future.summary,
		Binding: []Binding{}, ExcludedOffers: s.left, OnDemand: priceOf(s.onDemand),
	}
	if out.ExcludedOffers == nil {
		out.ExcludedOffers = []ExcludedOffer{}
	}
	if s.quota != nil {
		out.QuotaGPUs = &s.quota.GPUs
	}
	if s.spot != nil && k.SpotShare.IsPositive() {
		price := priceOf(s.spot)
		out.Spot = &price
	}
	names := append([]string{k.name()}, c.shadows(x.group, k)...)
	out.Amounts = amountsOf(x, names...)
	for _, name := range names {
		out.Calendar = sumMonths(out.Calendar, partOf(a.Parts, name).Calendar)
	}
	out.Amounts.OnDemand = partOf(x.unlimited.Parts, k.name()).Cost
	for i := range a.Baselines {
		if b := &a.Baselines[i]; b.Name == "on_demand" {
			out.Refused = partOf(b.Parts, k.name()).Unserved.Round(0).IntPart()
		}
	}
	for i := range a.Proof {
		if slices.Contains(a.Proof[i].Pools, k.name()) {
			out.Solver = a.Proof[i].Solver
		}
	}
	short, err := c.served(x, k, &out.Served)
	if err != nil {
		return nil, err
	}
	if len(short) > 0 {
		out.Binding = append(out.Binding, Binding{
			Constraint: "shortage", Detail: fmt.Sprintf("%d unit-hours stay unserved", out.Served.Shortage), Months: short,
		})
	}
	out.Purchases, out.Targets = c.purchases(x, k), c.targets(x, k)
	return out, nil
}

// served fills in what serves a pool's demand, as a mean over scenarios, and returns the months in
// which some demand is unserved.
func (c *composer) served(x *solved, k *candidate, out *Served) (short []domain.Instant, err error) {
	a := x.answer
	weights, all := map[string]domain.Decimal{}, decimal.Zero
	for i := range a.Scenarios {
		weights[a.Scenarios[i].Scenario] = decimal.NewFromInt(int64(a.Scenarios[i].Weight))
		all = all.Add(weights[a.Scenarios[i].Scenario])
	}
	var guaranteed, discountOnly, unused, spot, onDemand, shortage, in, away, paid domain.Decimal
	shadows := c.shadows(x.group, k)
	for _, r := range a.Recourse {
		at := slices.IndexFunc(r.Pools, func(h instance.PoolHours) bool { return h.Pool == k.name() })
		h := &r.Pools[at]
		add := func(text string, into *domain.Decimal) bool {
			if text == "" {
				return false
			}
			d, wrong := decimal.NewFromString(text)
			err = cmp.Or(err, wrong)
			*into = into.Add(d.Mul(weights[r.Scenario]))
			return d.IsPositive()
		}
		add(h.Guaranteed, &guaranteed)
		add(h.DiscountOnly, &discountOnly)
		add(h.UnusedCommitted, &unused)
		add(h.Spot, &spot)
		add(h.OnDemand, &onDemand)
		add(h.OverflowIn, &in)
		add(h.OverflowOut, &away)
		add(h.SpendCommitted, &paid)
		for i := range r.Pools {
			if y := &r.Pools[i]; slices.Contains(shadows, y.Pool) {
				var here domain.Decimal // the pool's own demand, as far as it can be told
				add(y.Guaranteed, &guaranteed)
				add(y.UnusedCommitted, &unused)
				add(y.OnDemand, &onDemand)
				add(y.SpendCommitted, &paid)
				add(y.OverflowIn, &here)
				own := decimal.Min(here, away)
				away, in = away.Sub(own), in.Add(here.Sub(own))
			}
		}
		if from := c.span[r.Epoch].From; add(h.Shortage, &shortage) && !slices.Contains(short, from) {
			short = append(short, from)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read the recourse of %s: %w", k.name(), err)
	}
	hours := func(d domain.Decimal) int64 { return d.DivRound(all, 0).IntPart() }
	*out = Served{
		Held: hours(guaranteed.Add(discountOnly)), Guaranteed: hours(guaranteed), DiscountOnly: hours(discountOnly),
		Unused: hours(unused), Spot: hours(spot), OnDemand: hours(onDemand), Shortage: hours(shortage),
		Elsewhere: hours(away), ForOthers: hours(in), SpendCommitted: hours(paid),
	}
	return short, nil
}

// purchases are those of an answer for a pool.
func (c *composer) purchases(x *solved, k *candidate) []Purchase {
	out, terms, shadows := []Purchase{}, x.terms(c, k), c.shadows(x.group, k)
	for i := range x.answer.Purchases {
		b := &x.answer.Purchases[i]
		if b.Pool != k.name() && !slices.Contains(shadows, b.Pool) {
			continue
		}
		o := &terms[slices.IndexFunc(terms, func(t term) bool {
			return OfferName(k.name(), t.OfferQuoted) == b.Offer
		})]
		y := Purchase{
			Provider: o.Market.Provider, Offer: o.Offer, Zone: o.Zone, Kind: o.Kind, SKU: o.SKU, GPUModel: o.GPUModel,
			Units: b.Units, GPUs: b.Units * k.shelf.gpus, Term: b.Term, Upfront: b.Upfront, Hourly: b.Hourly, Cost: b.Cost,
			Guaranteed: o.GuaranteesCapacity || o.Kind == domain.OfferOwned, Generated: o.Generated, Citation: o.Citation,
			Worth: b.Worth, Reason: b.Reason, Decision: x.later[b.Order], Wait: x.waits[b.Order],
			Regret: x.regrets[b.Order],
		}
		if o.LeadTimeHours > 0 {
			y.OrderBy = b.Term.From - domain.Instant(o.LeadTimeHours)*domain.Hour
		}
		out = append(out, y)
	}
	slices.SortFunc(out, comparePurchases)
	return out
}

func comparePurchases(x, y Purchase) int {
	return cmp.Or(cmp.Compare(x.Term.From, y.Term.From), cmp.Compare(x.Provider, y.Provider),
		cmp.Compare(x.Offer, y.Offer), cmp.Compare(x.Zone, y.Zone), cmp.Compare(x.Term.To, y.Term.To))
}

// targets are the price targets of what is offered to a pool.
func (c *composer) targets(x *solved, k *candidate) []Target {
	out := []Target{}
	for _, o := range x.terms(c, k) {
		name := OfferName(k.name(), o.OfferQuoted)
		at, ok := slices.BinarySearchFunc(x.targets, name, func(t instance.Target, name string) int { return cmp.Compare(t.Offer, name) })
		if !ok {
			continue
		}
		t := &x.targets[at]
		y := Target{
			Provider: o.Market.Provider, Offer: o.Offer, Zone: o.Zone, Hourly: o.Hourly, BuyAt: t.Hourly, From: c.span[t.Epoch].From,
		}
		for j := range x.answer.Purchases {
			if b := &x.answer.Purchases[j]; b.Offer == name {
				y.Units += b.Units
			}
		}
		out = append(out, y)
	}
	return out
}

// sumMonths adds one calendar to another with the same months.
func sumMonths(into, more []instance.MonthMoney) []instance.MonthMoney {
	if len(into) == 0 {
		return slices.Clone(more)
	}
	for i := range more {
		into[i].Cash, into[i].Accrual = into[i].Cash.Add(more[i].Cash), into[i].Accrual.Add(more[i].Accrual)
	}
	return into
}
