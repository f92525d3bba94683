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

// Component is pools that cannot be planned each by itself, and what proves the
// plan of them all.
type Component struct {
	Pools []string `json:"pools"`      // as "region kind"
	By    []string `json:"coupled_by"` // in words
	// Apart says why they are planned each by itself all the same, as if nothing were
	// shared; "": they are planned together, and what follows is there.
	Apart string `json:"planned_apart,omitempty"`
	// Cost and LowerBound hold what is still owed. Nothing that can be bought makes
	// Cost less than LowerBound; those of the pools are parts of them.
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	Binding    []Binding      `json:"binding,omitempty"`
	// EndOfHorizon is the plan of the pools if purchases beyond the horizon were worth
	// nothing, and everything. What is owed is in its costs.
	EndOfHorizon []instance.Terminal `json:"end_of_horizon,omitempty"`
	Certificate  []instance.Proof    `json:"certificate,omitempty"`
}

// Region is where pools are, and how far from others.
type Region struct {
	Region     string
	Country    string // ISO 3166-1 alpha-2, "" where it is not known
	RoundTrips []domain.RoundTrip
}

// group is a component on its way into a plan.
type group struct {
	pools    []*candidate
	by       []string
	overflow []instance.Overflow
}

// groups finds the pools that cannot be planned each by itself: those that share a
// quota, and those of which one may serve demand of another. Groups are by their
// first pool.
func (c *composer) groups(planned func(*candidate) bool) []group {
	of := make([]int, len(c.pools)) // the least of its group
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
				join(i, j, fmt.Sprintf("the on-demand quota of %s in %s for all models together, %d GPUs", q.Provider, k.Region, q.GPUs))
			}
			if way := c.way(k, l); way != nil {
				measured := "measured"
				if way.Estimated {
					measured = "estimated"
				}
				join(i, j, fmt.Sprintf("demand of %s may be served in %s: a round trip of %d ms, %s, is within the budget of %d ms of every deployment declared for it", k.name(), l.Region, way.RoundTripMS, measured, k.LatencyMicros/1000))
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
			slices.SortFunc(g.overflow, func(a, b instance.Overflow) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
			out = append(out, g)
		}
	}
	return out
}

// sharesQuota reports whether the on-demand use of two pools is bounded by one
// number together, and by nothing else.
func sharesQuota(k, l *candidate) bool {
	a, b := k.quota(), l.quota()
	return a != nil && b != nil && a.Together && b.Together && k.Region == l.Region && a.Provider == b.Provider && a.GPUs == b.GPUs
}

// way says how far it is to a pool that may serve all demand of another, nil where
// it may not: every deployment declared for the demand has to name a budget for the
// round trip, and none may be bound to certifications or clusters, nor be apart from
// others in one place and not in another: machines were counted for one of the two.
func (c *composer) way(k, l *candidate) *instance.Overflow {
	if k.Region == l.Region || k.Kind != l.Kind || k.Unit != l.Unit || k.shelf.gpus != l.shelf.gpus || k.LatencyMicros < 1000 || len(k.Mix) == 0 {
		return nil
	}
	from, to := c.region(k.Region), c.region(l.Region)
	for i := range k.Mix {
		w := &k.Mix[i]
		if len(w.Certifications)+len(w.Clusters)+len(w.ApartCluster)+len(w.ApartIn) > 0 || len(w.Countries) > 0 && !(slices.Contains(w.Countries, to.Country) && slices.Contains(w.Countries, from.Country)) {
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
	// A region's ways are of all its demand in the instance; budgets and countries
	// say again which of it may go.
	for _, k := range g.pools {
		if !slices.ContainsFunc(g.pools, func(l *candidate) bool { return c.way(k, l) != nil }) {
			continue
		}
		d := &in.Demands[slices.IndexFunc(in.Demands, func(d instance.Demand) bool { return d.ID == k.name() })]
		d.LatencyBudgetMS = int(min(k.LatencyMicros/1000, 1_000_000))
		var both []string // countries that all may go to
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

// couple plans pools together that share something: it replaces what pools, planned
// each by itself, say of purchases and money. An error that wraps check.ErrRejected
// or is the context's ends the plan; without a solver of linear programs, or where
// the group is too large, the pools stay as they are, and the component says so.
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
	if err := instance.EndOfHorizon(ctx, in, a, lp); err != nil {
		return nil, err
	}
	owed := decimal.Zero
	for _, k := range g.pools {
		owed = owed.Add(k.owed)
	}
	// What is owed is the plan's own sum, which may differ in the ninth digit.
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

// divide gives each pool of a group its part of what they do together.
func (c *composer) divide(ctx context.Context, g *group, in *instance.Instance, a *instance.Answer, of *Component, pools map[*candidate]*PoolPlan) error {
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
			x.cost = x.cost.Add(rest) // what rounding leaves
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
		p.Certificate, p.Sensitivity, p.Binding = procurement.Certificate{Cover: []procurement.Nano{}, Guarantee: []procurement.Nano{}}, []Sensitivity{}, []Binding{}
		p.bind("shortage", fmt.Sprintf("%d unit-hours stay unserved", p.Served.Shortage), x.short...)
		for _, proof := range a.Proof {
			if slices.Contains(proof.Pools, k.name()) {
				p.Solver = proof.Solver
			}
		}
		p.Calendar, p.Nominal, p.Stranded = nil, decimal.Zero, decimal.Zero
		if err := c.account(p, problem, k, x.bought, func(m int) (onDemand, spot domain.Decimal) { return x.onDemand[m], x.spot[m] }); err != nil {
			return err
		}
	}
	return c.baselinesTogether(ctx, g, in, pools)
}

// part is what a pool does in a component. Amounts hold what is still owed.
type part struct {
	cost, penalty  domain.Decimal
	costs          []domain.Decimal // by scenario
	onDemand, spot []domain.Decimal // expected unit-hours by month
	short          []domain.Instant // months in which demand is not served
	served         Served
	bought         []procurement.Purchase
}

// parts divides an answer by pool: purchases and what is owed by the pool that they
// cover, what serves by the pool that it runs in, and shortage by that of the demand.
func (c *composer) parts(g *group, a *instance.Answer) ([]part, error) {
	out := make([]part, len(g.pools))
	index := map[string]int{}
	weight := decimal.NewFromInt(int64(max(1, len(a.Scenarios))))
	for i, k := range g.pools {
		index[k.name()] = i
		out[i] = part{cost: k.owed, costs: slices.Repeat([]domain.Decimal{k.owed}, len(a.Scenarios)), onDemand: make([]domain.Decimal, len(c.span)), spot: make([]domain.Decimal, len(c.span))}
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
			spot, onDemand, shortage := read(h.Spot, &sum.spot), read(h.OnDemand, &sum.onDemand), read(h.Shortage, &sum.shortage)
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
			Held: whole(sum.guaranteed.Add(sum.discountOnly)), Guaranteed: whole(sum.guaranteed), DiscountOnly: whole(sum.discountOnly), Unused: whole(sum.unused),
			Spot: whole(sum.spot), OnDemand: whole(sum.onDemand), Shortage: whole(sum.shortage), Elsewhere: whole(sum.out), ForOthers: whole(sum.in),
		}
	}
	return out, nil
}

// reasons copies from an answer what purchases of a pool are worth and why they are
// made.
func (c *composer) reasons(bought []Purchase, k *candidate, a *instance.Answer) {
	for i := range a.Purchases {
		x := &a.Purchases[i]
		for j := range bought {
			b := &bought[j]
			// Of offers in several zones either may be named.
			if x.Pool == k.name() && b.Reason == "" && b.Term.From == c.span[x.Epoch].From && b.Units == x.Units &&
				slices.ContainsFunc(k.shelf.terms, func(t term) bool {
					return t.Market.Provider == b.Provider && t.Offer == b.Offer && OfferName(k.name(), t.OfferQuoted) == x.Offer
				}) {
				worth := x.Worth
				b.Worth, b.Reason = &worth, x.Reason
				break
			}
		}
	}
}

// baselinesTogether replaces what is done without a plan: each pool follows the rule
// by itself, and what that comes to, comes of all of them together.
func (c *composer) baselinesTogether(ctx context.Context, g *group, in *instance.Instance, pools map[*candidate]*PoolPlan) error {
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
		// Least orders are no part of the rules.
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
				orders = append(orders, instance.Order{Offer: OfferName(k.name(), k.shelf.terms[b.Offer].OfferQuoted), Epoch: b.Epoch, Units: b.Units})
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

// noSolver is why pools are planned apart in a build, or on a machine, that solves no
// linear programs.
const noSolver = "this program was built without a solver of linear programs, or cannot run it here: \"make highs\" brings it in"

// WithoutSolver reports whether pools of the plan were planned apart because there
// was no solver of linear programs.
func (p *Plan) WithoutSolver() bool {
	return slices.ContainsFunc(p.Components, func(x Component) bool { return x.Apart == noSolver })
}

// SolvedTogether reports whether pools of the plan were planned together, which takes
// a solver of linear programs.
func (p *Plan) SolvedTogether() bool {
	return slices.ContainsFunc(p.Components, func(x Component) bool { return x.Apart == "" })
}

// methodsOfComponents names what components were solved by, beside a plan's other
// methods.
func (p *Plan) methodsOfComponents() []string {
	if !p.SolvedTogether() {
		return nil
	}
	return []string{instance.Method, joint.Method}
}
