package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/baseline"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/joint"
)

// Component is a set of pools that cannot be planned separately, with the proof of their joint
// plan.
type Component struct {
	Pools []string `json:"pools"`      // as "region kind"
	By    []string `json:"coupled_by"` // in words
	// Apart says why the pools are planned separately all the same, as if nothing were shared. If
	// it is empty they are planned together, and the fields below are set.
	Apart string `json:"planned_apart,omitempty"`
	// Cost and LowerBound include what is still owed. No purchases make Cost less than LowerBound.
	// The pools' own costs and bounds are parts of these.
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	Binding    []Binding      `json:"binding,omitempty"`
	// EndOfHorizon is the joint plan under salvage 0 and 1. Its costs include what is still owed.
	EndOfHorizon []instance.Terminal `json:"end_of_horizon,omitempty"`
	Certificate  []instance.Proof    `json:"certificate,omitempty"`
}

// Region is a location of pools, with its distance to other regions.
type Region struct {
	Region     string
	Country    string // ISO 3166-1 alpha-2, "" if unknown
	RoundTrips []domain.RoundTrip
}

// group is a component under construction.
type group struct {
	pools    []*candidate
	by       []string
	overflow []instance.Overflow
}

// groups finds the pools that cannot be planned separately: those that share a quota, and those
// that may serve each other's demand. Groups are in the order of their first pool.
func (c *composer) groups(planned func(*candidate) bool) []group {
	of := make([]int, len(c.pools)) // the first pool of its group
	for i := range of {
		of[i] = i
	}
	reasons := make([][]string, len(c.pools))
	overflow := make([][]instance.Overflow, len(c.pools))
	join := func(i, j int, why string) {
		i, j = of[i], of[j]
		if i > j {
			i, j = j, i
		}
		if i != j {
			for k := range of {
				if of[k] == j {
					of[k] = i
				}
			}
			reasons[i], overflow[i] = append(reasons[i], reasons[j]...), append(overflow[i], overflow[j]...)
		}
		if !slices.Contains(reasons[i], why) {
			reasons[i] = append(reasons[i], why)
		}
	}
	for i, k := range c.pools {
		if !planned(k) {
			continue
		}
		for j, l := range c.pools {
			if i == j || !planned(l) {
				continue
			}
			if i < j && sharesQuota(k, l) {
				q := k.shelf.quota
				join(i, j, fmt.Sprintf("the on-demand quota of %s in %s for all models together, %d GPUs", q.Provider,
					k.Region, q.GPUs))
			}
			if way := c.way(k, l); way != nil {
				measured := "measured"
				if way.Estimated {
					measured = "estimated"
				}
				join(i, j,
					fmt.Sprintf("demand of %s may be served in %s: a round trip of %d ms, %s, is within the "+
						"budget of %d ms of every deployment declared for it", k.name(), l.Region, way.RoundTripMS,
						measured, k.LatencyMicros/1000))
				if s := &overflow[of[i]]; !slices.Contains(*s, *way) {
					*s = append(*s, *way)
				}
			}
		}
	}
	var out []group
	for i := range c.pools {
		g := group{by: reasons[i], overflow: overflow[i]}
		for j, k := range c.pools {
			if of[j] == i {
				g.pools = append(g.pools, k)
			}
		}
		if len(g.pools) > 1 {
			slices.Sort(g.by)
			slices.SortFunc(g.overflow, func(a, b instance.Overflow) int {
				return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
			})
			out = append(out, g)
		}
	}
	return out
}

// sharesQuota reports whether one number bounds the on-demand use of two pools together, and
// nothing else does.
func sharesQuota(k, l *candidate) bool {
	a, b := k.quota(), l.quota()
	return a != nil && b != nil && a.Together && b.Together && k.Region == l.Region && a.Provider == b.Provider &&
		a.GPUs == b.GPUs
}

// way returns the overflow to a pool that may serve all demand of another, nil if there is none.
// Every deployment declared for the demand must name a latency budget. None may be bound to
// certifications or clusters, or have anti-affinity in only one of the two regions, because
// machines were counted for one of them.
func (c *composer) way(k, l *candidate) *instance.Overflow {
	if k.Region == l.Region || k.Kind != l.Kind || k.Unit != l.Unit || k.shelf.gpus != l.shelf.gpus ||
		k.LatencyMicros < 1000 || len(k.Mix) == 0 {
		return nil
	}
	from, to := c.region(k.Region), c.region(l.Region)
	for i := range k.Mix {
		w := &k.Mix[i]
		if len(w.Certifications)+len(w.Clusters)+len(w.ApartCluster)+len(w.ApartIn) > 0 ||
			len(w.Countries) > 0 && !(slices.Contains(w.Countries, to.Country) &&
				slices.Contains(w.Countries, from.Country)) {
			return nil
		}
	}
	for _, trip := range from.RoundTrips {
		if ms := (trip.Micros + 999) / 1000; trip.To == l.Region && ms <= k.LatencyMicros/1000 {
			return &instance.Overflow{From: k.Region, To: l.Region, RoundTripMS: int(ms), Estimated: !trip.Measured}
		}
	}
	return nil
}

func (c *composer) region(name string) Region {
	i := slices.IndexFunc(c.q.Regions, func(r Region) bool { return r.Region == name })
	if i < 0 {
		return Region{Region: name}
	}
	return c.q.Regions[i]
}

// statement is the problem of a group.
func (c *composer) statement(g *group) (*instance.Instance, error) {
	in, err := c.instance(g.pools)
	if err != nil {
		return nil, err
	}
	in.Overflow = g.overflow
	for i := range in.Regions {
		r := &in.Regions[i]
		r.Country = c.region(r.ID).Country
	}
	// In the instance a region's overflow applies to all its demand; budgets and countries narrow
	// it to the demand that may leave.
	for _, k := range g.pools {
		if !slices.ContainsFunc(g.pools, func(l *candidate) bool { return c.way(k, l) != nil }) {
			continue
		}
		d := &in.Demands[slices.IndexFunc(in.Demands, func(d instance.Demand) bool { return d.ID == k.name() })]
		d.LatencyBudgetMS = int(min(k.LatencyMicros/1000, 1_000_000))
		var both []string // countries allowed for every demand
		bound := false
		for i := range k.Mix {
			if w := &k.Mix[i]; len(w.Countries) > 0 && !bound {
				both, bound = slices.Clone(w.Countries), true
			} else if len(w.Countries) > 0 {
				both = slices.DeleteFunc(both, func(x string) bool { return !slices.Contains(w.Countries, x) })
			}
		}
		d.Countries = both
	}
	return in, nil
}

// couple plans the pools of a group together. It replaces the purchases and amounts of the separate
// plans. An error that wraps check.ErrRejected or is the context's ends the plan. Without a linear
// programming solver, or if the group is too large, the separate plans stay, and the component says
// so.
func (c *composer) couple(ctx context.Context, g *group, lp linear.Solver, pools map[*candidate]*PoolPlan) (*Component, error) {
	out := &Component{By: g.by}
	for _, k := range g.pools {
		out.Pools = append(out.Pools, k.name())
	}
	apart := func(why string) (*Component, error) {
		out.Apart = why
		for _, k := range g.pools {
			p := pools[k]
			p.Notes = append(p.Notes, "planned as if nothing were shared with others: "+why)
			out.Cost, out.LowerBound = out.Cost.Add(p.Cost), out.LowerBound.Add(p.LowerBound)
		}
		out.Gap = gap(out.Cost, out.LowerBound)
		return out, nil
	}
	names := namesOf(g.pools)
	slices.Sort(names)
	if len(slices.Compact(names)) < len(g.pools) {
		return apart("two of them have the same name and count otherwise")
	}
	in, err := c.statement(g)
	if err != nil {
		return nil, err
	}
	a, err := instance.Solve(ctx, in, lp)
	switch {
	case errors.Is(err, linear.ErrUnavailable):
		return apart(noSolver)
	case errors.Is(err, check.ErrRejected), ctx.Err() != nil:
		return nil, err
	case err != nil:
		return apart(err.Error())
	}
	if err := instance.EndOfHorizon(ctx, in, a, lp, 0); err != nil {
		return nil, err
	}
	owed := decimal.Zero
	for _, k := range g.pools {
		owed = owed.Add(k.owed)
	}
	// What is owed is the plan's own sum; it may differ in the ninth digit.
	ours := func(d domain.Decimal) domain.Decimal { return d.Sub(a.Committed).Add(owed) }
	out.Cost, out.LowerBound, out.Certificate, out.EndOfHorizon = ours(a.Cost), ours(a.LowerBound), a.Proof, a.EndOfHorizon
	out.Gap = gap(out.Cost, out.LowerBound)
	for i := range out.EndOfHorizon {
		t := &out.EndOfHorizon[i]
		t.Cost = ours(t.Cost)
		for _, d := range []*domain.Decimal{t.Best, t.LowerBound} {
			if d != nil {
				*d = ours(*d)
			}
		}
	}
	for _, b := range a.Binding {
		x := Binding{Constraint: b.Constraint, Detail: b.Detail, Price: &b.Price}
		for _, e := range b.Epochs {
			x.Months = append(x.Months, c.span[e].From)
		}
		out.Binding = append(out.Binding, x)
	}
	return out, c.divide(ctx, g, in, a, out, pools)
}

// divide gives each pool of a group its part of the joint plan.
func (c *composer) divide(
	ctx context.Context, g *group, in *instance.Instance, a *instance.Answer, of *Component,
	pools map[*candidate]*PoolPlan,
) error {
	parts, err := c.parts(g, a)
	if err != nil {
		return err
	}
	current, err := instance.Evaluate(ctx, in, nil)
	if err != nil {
		return err
	}
	before, err := c.parts(g, current)
	if err != nil {
		return err
	}
	rest, bound := of.Cost, of.LowerBound
	for _, p := range parts {
		rest = rest.Sub(p.cost)
	}
	for i, k := range g.pools {
		x, p := &parts[i], pools[k]
		if i == 0 {
			x.cost = x.cost.Add(rest) // the rounding remainder
		}
		problem, err := c.problem(k, c.a.Salvage)
		if err != nil {
			return err
		}
		p.Cost, p.Penalty, p.Current, p.CurrentPenalty = x.cost, x.penalty, before[i].cost, before[i].penalty
		p.LowerBound = bound
		if i < len(g.pools)-1 && of.Cost.IsPositive() {
			p.LowerBound = of.LowerBound.Mul(x.cost).DivRound(of.Cost, 12).RoundFloor(9)
		}
		bound = bound.Sub(p.LowerBound)
		p.Gap = gap(p.Cost, p.LowerBound)
		p.Served, p.Costs = x.served, nil
		if len(k.future.cases) > 0 {
			p.Costs = x.costs
		}
		p.risk()
		p.Purchases = c.purchases(problem, k.shelf, x.bought)
		c.reasons(p.Purchases, k, a)
		p.Certificate = procurement.Certificate{Cover: []procurement.Nano{}, Guarantee: []procurement.Nano{}}
		p.Sensitivity, p.Binding = []Sensitivity{}, []Binding{}
		p.bind("shortage", fmt.Sprintf("%d unit-hours stay unserved", p.Served.Shortage), x.short...)
		for _, proof := range a.Proof {
			if slices.Contains(proof.Pools, k.name()) {
				p.Solver = proof.Solver
			}
		}
		p.Calendar, p.Nominal, p.Stranded = nil, decimal.Zero, decimal.Zero
		if err := c.account(p, problem, k, x.bought, func(m int) (onDemand, spot domain.Decimal) {
			return x.onDemand[m], x.spot[m]
		}); err != nil {
			return err
		}
	}
	return c.baselinesTogether(ctx, g, in, pools)
}

// part is a pool's part of a component. Amounts include what is still owed.
type part struct {
	cost, penalty  domain.Decimal
	costs          []domain.Decimal // by scenario
	onDemand, spot []domain.Decimal // expected unit-hours by month
	short          []domain.Instant // months with unserved demand
	served         Served
	bought         []procurement.Purchase
}

// parts divides an answer by pool: purchases and what is owed go to the pool that they cover,
// supply to the pool in which it runs, and shortage to the pool of the demand.
func (c *composer) parts(g *group, a *instance.Answer) ([]part, error) {
	out := make([]part, len(g.pools))
	index := map[string]int{}
	weight := decimal.NewFromInt(int64(max(1, len(a.Scenarios))))
	for i, k := range g.pools {
		index[k.name()] = i
		out[i] = part{
			cost: k.owed, costs: slices.Repeat([]domain.Decimal{k.owed}, len(a.Scenarios)),
			onDemand: make([]domain.Decimal, len(c.span)), spot: make([]domain.Decimal, len(c.span)),
		}
	}
	for i := range a.Purchases {
		b := &a.Purchases[i]
		x := &out[index[b.Pool]]
		k := g.pools[index[b.Pool]]
		x.cost = x.cost.Add(b.Cost)
		for s := range x.costs {
			x.costs[s] = x.costs[s].Add(b.Cost)
		}
		at := slices.IndexFunc(k.shelf.terms, func(t term) bool { return OfferName(k.name(), t.OfferQuoted) == b.Offer })
		if at < 0 {
			return nil, fmt.Errorf("%s buys %q, which is not for sale to it", k.name(), b.Offer)
		}
		x.bought = append(x.bought, procurement.Purchase{Offer: at, Epoch: b.Epoch, Units: b.Units})
	}
	scenario := map[string]int{}
	for s := range a.Scenarios {
		scenario[a.Scenarios[s].Scenario] = s
	}
	sums := make([]struct{ guaranteed, discountOnly, unused, spot, onDemand, shortage, in, out domain.Decimal }, len(out))
	for _, r := range a.Recourse {
		for _, h := range r.Pools {
			i := index[h.Pool]
			x, k, sum := &out[i], g.pools[i], &sums[i]
			var wrong error
			read := func(text string, into *domain.Decimal) domain.Decimal {
				if text == "" {
					return decimal.Zero
				}
				d, err := decimal.NewFromString(text)
				wrong = cmp.Or(wrong, err)
				*into = into.Add(d)
				return d
			}
			read(h.Guaranteed, &sum.guaranteed)
			read(h.DiscountOnly, &sum.discountOnly)
			read(h.UnusedCommitted, &sum.unused)
			read(h.OverflowIn, &sum.in)
			read(h.OverflowOut, &sum.out)
			spot, onDemand, shortage := read(h.Spot, &sum.spot), read(h.OnDemand, &sum.onDemand),
				read(h.Shortage, &sum.shortage)
			if wrong != nil {
				return nil, fmt.Errorf("read the recourse of %s: %w", h.Pool, wrong)
			}
			middle := c.discount.middle(r.Epoch)
			price := k.shelf.onDemand.Hourly.Mul(middle)
			penalty := shortage.Mul(k.shelf.onDemand.Hourly.Mul(c.a.ShortageFactor).Mul(middle).RoundBank(9))
			cost := onDemand.Mul(price.RoundBank(9)).Add(penalty)
			if k.shelf.spot != nil {
				price := k.shelf.spot.Hourly.DivRound(decimal.NewFromInt(1).Sub(c.a.SpotOverhead), digits)
				cost = cost.Add(spot.Mul(price.Mul(middle).RoundBank(9)))
			}
			s := scenario[r.Scenario]
			x.costs[s] = x.costs[s].Add(cost).Round(9)
			x.cost, x.penalty = x.cost.Add(cost.DivRound(weight, digits)), x.penalty.Add(penalty.DivRound(weight, digits))
			x.onDemand[r.Epoch] = x.onDemand[r.Epoch].Add(onDemand.DivRound(weight, digits))
			x.spot[r.Epoch] = x.spot[r.Epoch].Add(spot.DivRound(weight, digits))
			if from := c.span[r.Epoch].From; shortage.IsPositive() && !slices.Contains(x.short, from) {
				x.short = append(x.short, from)
			}
		}
	}
	for i := range out {
		x, sum := &out[i], &sums[i]
		whole := func(d domain.Decimal) int64 { return d.DivRound(weight, 0).IntPart() }
		x.cost, x.penalty = x.cost.Round(9), x.penalty.Round(9)
		x.served = Served{
			Held: whole(sum.guaranteed.Add(sum.discountOnly)), Guaranteed: whole(sum.guaranteed),
			DiscountOnly: whole(sum.discountOnly), Unused: whole(sum.unused),
			Spot: whole(sum.spot), OnDemand: whole(sum.onDemand), Shortage: whole(sum.shortage),
			Elsewhere: whole(sum.out), ForOthers: whole(sum.in),
		}
	}
	return out, nil
}

// reasons copies the worth and the reasons of a pool's purchases from an answer.
func (c *composer) reasons(bought []Purchase, k *candidate, a *instance.Answer) {
	for i := range a.Purchases {
		x := &a.Purchases[i]
		for j := range bought {
			b := &bought[j]
			// For an offer in several zones any of them may be named.
			if x.Pool == k.name() && b.Reason == "" && b.Term.From == c.span[x.Epoch].From && b.Units == x.Units &&
				slices.ContainsFunc(k.shelf.terms, func(t term) bool {
					return t.Market.Provider == b.Provider && t.Offer == b.Offer &&
						OfferName(k.name(), t.OfferQuoted) == x.Offer
				}) {
				worth := x.Worth
				b.Worth, b.Reason = &worth, x.Reason
				break
			}
		}
	}
}

// baselinesTogether replaces the baselines of a group's pools. Each pool follows the rules by
// itself; the cost is computed for all of them together.
func (c *composer) baselinesTogether(
	ctx context.Context, g *group, in *instance.Instance, pools map[*candidate]*PoolPlan,
) error {
	rules := make([][]baseline.Baseline, len(g.pools))
	for i, k := range g.pools {
		past, err := c.past(k)
		if err != nil {
			return err
		}
		problem, err := c.problem(k, c.a.Salvage)
		if err != nil {
			return err
		}
		rules[i] = baseline.All(problem, past)
	}
	for n := range rules[0] {
		// Rules ignore least orders.
		loose := *in
		loose.Offers = slices.Clone(in.Offers)
		for i := range loose.Offers {
			loose.Offers[i].MinUnits = 0
		}
		if rules[0][n].Rule == baseline.OnDemand {
			loose.Commitments, loose.Pools = nil, slices.Clone(in.Pools)
			for i := range loose.Pools {
				loose.Pools[i].Spot = nil
			}
		}
		var orders []instance.Order
		for i, k := range g.pools {
			for _, b := range joined(rules[i][n].Purchases, nil) {
				orders = append(orders, instance.Order{
					Offer: OfferName(k.name(), k.shelf.terms[b.Offer].OfferQuoted), Epoch: b.Epoch, Units: b.Units,
				})
			}
		}
		a, err := instance.Evaluate(ctx, &loose, orders)
		if err != nil {
			return fmt.Errorf("baseline %s: %w", rules[0][n].Name(), err)
		}
		parts, err := c.parts(g, a)
		if err != nil {
			return err
		}
		for i, k := range g.pools {
			x := &pools[k].Baselines[n]
			x.Cost, x.Penalty = parts[i].cost, parts[i].penalty
			if rules[0][n].Rule == baseline.OnDemand {
				x.Cost = x.Cost.Sub(k.owed)
				pools[k].Refused = parts[i].served.Shortage
			}
		}
	}
	return nil
}

// noSolver says why pools are planned separately in a build, or on a machine, without a linear
// programming solver.
const noSolver = "this program was built without a solver of linear programs, or cannot run it here: " +
	"\"make highs\" brings it in"

// WithoutSolver reports whether pools of the plan were planned separately because there was no
// linear programming solver.
func (p *Plan) WithoutSolver() bool {
	return slices.ContainsFunc(p.Components, func(x Component) bool { return x.Apart == noSolver })
}

// SolvedTogether reports whether some pools of the plan were planned together, which needs a linear
// programming solver.
func (p *Plan) SolvedTogether() bool {
	return slices.ContainsFunc(p.Components, func(x Component) bool { return x.Apart == "" })
}

// methodsOfComponents lists the methods that solved components, in addition to a plan's other
// methods.
func (p *Plan) methodsOfComponents() []string {
	if !p.SolvedTogether() {
		return nil
	}
	return []string{instance.Method, joint.Method}
}
