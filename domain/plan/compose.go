package plan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/packing"
	"quartermaster/domain/procurement/check"
)

// MaxMonths bounds the horizon.
const MaxMonths = 120

// latest is the latest time of a plan: later its problem could not be stated.
var latest = domain.InstantOf(time.Date(2139, 12, 31, 0, 0, 0, 0, time.UTC))

// Compute answers a question. It returns an [OutOfRangeError] when an assumption is out of range.
// It returns an error that wraps check.ErrRejected when a checker rejects an answer: then there is no
// plan, and the solver has a bug.
//
// lp plans pools together that share something, and least orders. Without one (nil or
// [linear.ErrUnavailable]) pools that need it are left out, and the plan says so. The context can
// stop a joint solve, and is checked between groups of pools.
func Compute(ctx context.Context, q *Question, lp linear.Solver) (*Plan, error) {
	c, err := newComposer(q)
	if err != nil {
		return nil, err
	}
	p := &Plan{
		Position: q.Position, At: q.At, Horizon: domain.Interval{From: c.span[0].From, To: c.end()}, Assumptions: q.Assumptions,
		Methods: q.Assumptions.Methods(q.Folds), Regions: []RegionPlan{}, Excluded: []ExcludedPool{},
		Baselines: []Baseline{}, Calendar: []instance.MonthMoney{}, EndOfHorizon: []Sensitivity{},
		Certificate: []instance.Proof{},
	}
	if len(q.Only) == 1 {
		p.Region = q.Only[0]
	} else {
		p.Only = slices.Clone(q.Only)
	}
	c.take(q.Pools)
	p.Assumptions.Salvage = c.salvage
	planned := map[*candidate]*PoolPlan{}
	var done []instance.Settled
	solve := func(g *group) (*solved, error) { return c.solve(ctx, g, lp) }
	if err := settle(ctx, c, solve, func(x *solved) error {
		done = append(done, x.settled)
		return c.present(x, p, planned)
	}); err != nil {
		return nil, err
	}
	p.Excluded, p.WithoutSolver = append(p.Excluded, c.excluded()...), c.withoutSolver
	for _, k := range c.pools {
		pool := planned[k]
		if pool == nil {
			continue
		}
		r := p.region(k.Region)
		r.Pools = append(r.Pools, *pool)
		r.Purchases = append(r.Purchases, pool.Purchases...)
		r.add(&pool.Amounts)
		r.Calendar = sumMonths(r.Calendar, pool.Calendar)
	}
	c.countSpends()
	p.Expiry, p.Ignored, p.Notes = c.ladder(), c.ignored(), c.notes
	if len(c.budget) > 0 && len(p.Excluded)+len(p.Ignored) > 0 {
		p.Notes = append(p.Notes, "hard budgets bound what is in the plan: what excluded pools and ignored commitments "+
			"cost is not counted in them")
	}
	c.pack(p)
	for i := range p.Regions {
		r := &p.Regions[i]
		r.Gap = gap(r.Cost, r.LowerBound)
		r.risk()
		p.Total.add(&r.Amounts)
		if len(r.Calendar) > 0 {
			p.Calendar = sumMonths(p.Calendar, r.Calendar)
		}
	}
	p.Total.Gap = gap(p.Total.Cost, p.Total.LowerBound)
	p.Total.risk()
	if c.a.SecondBest || c.a.MaxShare.IsPositive() {
		if err := c.alternatives(ctx, p, done, lp); err != nil {
			return nil, err
		}
	}
	return p, p.name()
}

// settle has each group of pools solved, and its result taken before the next. Of a group that cannot
// be solved, the pools at fault are left out and the others are grouped again.
func settle[T any](ctx context.Context, c *composer, solve func(*group) (T, error), take func(T) error) error {
	for open := c.groups(c.planned()); len(open) > 0; {
		g := &open[0]
		open = open[1:]
		x, err := solve(g)
		switch {
		case err == nil:
			if err := take(x); err != nil {
				return err
			}
		case ctx.Err() != nil || errors.Is(err, check.ErrRejected) || !c.drop(ctx, g, err):
			return fmt.Errorf("%s: %w", listed(namesOf(g.pools)), err)
		default:
			c.withoutSolver = c.withoutSolver || errors.Is(err, linear.ErrUnavailable)
			rest := slices.DeleteFunc(g.pools, func(k *candidate) bool { return k.left != "" })
			open = append(open, c.groups(rest)...)
		}
	}
	return nil
}

// excluded names the pools that are not planned.
func (c *composer) excluded() (out []ExcludedPool) {
	for _, k := range c.pools {
		if k.left != "" {
			out = append(out, ExcludedPool{k.Region, k.Kind, k.Unit, k.left, k.next})
		}
	}
	return out
}

// planned are the pools that can be planned.
func (c *composer) planned() []*candidate {
	return slices.DeleteFunc(slices.Clone(c.pools), func(k *candidate) bool { return k.left != "" })
}

// drop leaves out the pools of a group that cannot be planned, or reports that none is at fault.
func (c *composer) drop(ctx context.Context, g *group, why error) bool {
	if errors.Is(why, linear.ErrUnavailable) {
		reason := "some of its offers have a least order"
		if len(g.pools) > 1 {
			reason = "it shares something with others: " + strings.Join(g.by, "; ")
		}
		for _, k := range g.pools {
			c.leave(k, &refusal{reason + ", and there is no solver of linear programs",
				"\"make highs\" fetches one, then build again"})
		}
		return true
	}
	// Only budgets and postures can make a group infeasible, and they bound all of it.
	if clash := (*instance.Infeasible)(nil); errors.As(why, &clash) {
		var parts []string
		for _, x := range clash.Constraints {
			parts = append(parts, x.Detail)
		}
		what, next := "a hard budget cannot be kept: ", "raise the budget, or make it a soft one"
		if in := c.protect(g); in != nil {
			what = fmt.Sprintf("what the policy %s protects cannot be kept: ", c.q.Posture.Policy)
			next = "import offers that guarantee capacity where it is needed, lower the share that the policy protects, or end it"
			if len(c.budget) > 0 {
				next += "; or raise the budget, or make it a soft one"
			}
		}
		for _, k := range g.pools {
			c.leave(k, &refusal{what + strings.Join(parts, "; "), next})
		}
		return true
	}
	if len(g.pools) == 1 {
		c.leave(g.pools[0], why)
		return true
	}
	found := false
	for _, k := range g.pools {
		in, err := c.problem(&group{pools: []*candidate{k}})
		if err == nil {
			_, err = instance.Evaluate(ctx, in, nil)
		}
		if err != nil {
			c.leave(k, err)
			found = true
		}
	}
	return found
}

// take prepares the pools of a question in the order in which plans list them.
func (c *composer) take(pools []Pool) {
	pools = slices.Clone(pools)
	slices.SortFunc(pools, func(x, y Pool) int {
		return cmp.Or(cmp.Compare(x.Region, y.Region), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Unit, y.Unit))
	})
	c.foreseeTogether(pools)
	for i := range pools {
		c.pools = append(c.pools, c.prepare(&pools[i]))
	}
	c.share()
	for i, k := range c.pools {
		if k.left != "" {
			continue
		}
		if err := c.finish(k); err != nil {
			k.refuse(err)
		} else if i > 0 && c.pools[i-1].left == "" && c.pools[i-1].name() == k.name() {
			k.refuse(&refusal{"another pool of that name counts its demand in another unit", "import its demand in one unit"})
		}
	}
	c.salvage = c.a.Salvage
	if c.a.SalvageFrom == Forecast {
		c.salvage = c.left()
	}
	c.assign()
	c.fund()
	c.guard()
}

// fund takes the budgets that can bind the plan, and notes why others do not.
func (c *composer) fund() {
	budgets := slices.Clone(c.q.Budgets)
	slices.SortFunc(budgets, func(x, y Budget) int { return cmp.Compare(x.ID, y.ID) })
	for _, b := range budgets {
		var why string
		switch {
		case b.Period.To != 0 && b.Period.To <= c.span[0].From || b.Period.From >= c.end():
			continue
		case b.Amount.Currency != c.a.Currency:
			why = c.foreign(b.Amount.Currency)
		case b.Period.From < c.span[0].From:
			why = "it begins before the horizon, and what was spent of it before is not known here: set one for the rest of its period"
		case c.within(b.Period.From) || c.within(b.Period.To):
			why = "it does not begin and end with a month"
		default:
			basis := instance.Cash
			if b.Basis == domain.BudgetAccrual {
				basis = instance.Accrual
			}
			c.budget = append(c.budget, instance.Budget{ID: b.ID, Basis: basis, Interval: b.Period, Amount: b.Amount.Amount})
			continue
		}
		c.notes = append(c.notes, fmt.Sprintf("hard budget %s does not bound the plan: %s", b.ID, why))
	}
}

// guard notes the postures that a plan cannot have.
func (c *composer) guard() {
	if p := c.q.Posture; p != nil && len(p.Others) > 0 {
		c.notes = append(c.notes, fmt.Sprintf("a plan has one posture, that of the policy %s: not applied is what %s protects",
			p.Policy, listed(p.Others)))
	}
}

// composer turns a question into a plan.
type composer struct {
	q      *Question
	a      *Assumptions
	growth growth
	span   []domain.Interval // the months of the horizon
	pools  []*candidate      // by region, kind and unit
	budget []instance.Budget
	notes  []string
	// salvage is the share of the cost of months beyond the horizon that is credited.
	salvage domain.Decimal
	held    []Held // with the pool that each serves
	// withoutSolver means that pools are left out for want of a solver of linear programs.
	withoutSolver bool
}

// OutOfRangeError is an assumption that is out of range.
type OutOfRangeError struct{ Err error }

func (e *OutOfRangeError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *OutOfRangeError) Unwrap() error { return e.Err }

// newComposer returns an [OutOfRangeError] for assumptions that are out of range.
func newComposer(q *Question) (*composer, error) {
	c, err := compose(q)
	if err != nil {
		return nil, &OutOfRangeError{err}
	}
	return c, nil
}

func compose(q *Question) (*composer, error) {
	a := &q.Assumptions
	one := decimal.NewFromInt(1)
	switch {
	case q.At < 0 || q.At > latest:
		return nil, fmt.Errorf("plan at %s, want 1970 to 2139", q.At)
	case a.Months < 1 || a.Months > MaxMonths:
		return nil, fmt.Errorf("horizon of %d months, want 1 to %d", a.Months, MaxMonths)
	case a.Weeks < 1 || a.Weeks > 520:
		return nil, fmt.Errorf("lookback of %d weeks, want 1 to 520", a.Weeks)
	case a.Salvage.IsNegative() || a.Salvage.GreaterThan(one):
		return nil, fmt.Errorf("salvage %s is not from 0 to 1", a.Salvage)
	case a.SpotOverhead.IsNegative() || a.SpotOverhead.GreaterThan(decimal.New(99, -2)):
		return nil, fmt.Errorf("spot overhead %s is not from 0 to 0.99", a.SpotOverhead)
	case a.ServiceLevel.IsNegative() || a.ServiceLevel.GreaterThanOrEqual(one):
		return nil, fmt.Errorf("service level %s is not from 0 to below 1; no number of spares reaches 1", a.ServiceLevel)
	case a.MaxShare.IsNegative() || a.MaxShare.GreaterThanOrEqual(one):
		return nil, fmt.Errorf("a largest share of %s of the cost is not from 0 to below 1", a.MaxShare)
	case a.OrderPrice.IsNegative():
		return nil, fmt.Errorf("a price of %s for placing an order is below 0", a.OrderPrice)
	case a.ShortageFactor.LessThan(one) || a.ShortageFactor.GreaterThan(decimal.NewFromInt(1000)):
		return nil, fmt.Errorf("shortage factor %s is not from 1 to 1000", a.ShortageFactor)
	}
	if err := a.checkDemand(); err != nil {
		return nil, err
	}
	if a.AnnualRate.IsNegative() || a.AnnualRate.GreaterThan(one) {
		return nil, fmt.Errorf("annual rate %s is not from 0 to 1", a.AnnualRate)
	}
	c := &composer{q: q, a: a, span: months(q.At, a.Months)}
	var err error
	// At most three months begin between staleAfter before At and the horizon.
	if c.growth, err = newGrowth(a.MonthlyGrowth, a.Months+2); err != nil {
		return nil, err
	}
	return c, nil
}

// end is the end of the horizon.
func (c *composer) end() domain.Instant { return c.span[len(c.span)-1].To }

// leave removes a pool from the plan, together with what is held for it.
func (c *composer) leave(k *candidate, why error) {
	k.refuse(why)
	for i := range c.held {
		if h := &c.held[i]; h.CountsFor == k.name() {
			h.CountsFor, h.NotCounted = "", "its pool is excluded from the plan"
		}
	}
}

// Methods lists the versions of everything that computes a plan for repeated demand, given the
// version of the rows.
func Methods(folds string) []string {
	return append([]string{folds, Method, packing.Method}, instance.Methods()...)
}

// Methods lists the versions of everything that computes a plan with these assumptions, given the
// version of the rows.
func (a *Assumptions) Methods(folds string) []string {
	out := Methods(folds)
	if a.Demand == Forecast {
		out = append(out, forecast.Method)
	}
	return out
}

// name sets the plan's id to a digest of everything in it but the position: the same question,
// asked again later with nothing new, gives the same plan id.
func (p *Plan) name() error {
	position := p.Position
	p.ID, p.Position = "", ""
	id, err := IDOf("plan", p)
	p.ID, p.Position = id, position
	return err
}

// IDOf returns an id for an answer: its kind and a digest of its JSON. The id field itself MUST be
// empty, and so must the position if equal answers at different positions are to share an id.
func IDOf(kind string, answer any) (string, error) {
	b, err := json.Marshal(answer)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return kind + "-" + hex.EncodeToString(sum[:6]), nil
}

// region returns the plan of a region, inserting it in order if missing.
func (p *Plan) region(name string) *RegionPlan {
	i, ok := slices.BinarySearchFunc(p.Regions, name, func(r RegionPlan, name string) int {
		return cmp.Compare(r.Region, name)
	})
	if !ok {
		p.Regions = slices.Insert(p.Regions, i, RegionPlan{Region: name, Purchases: []Purchase{}, Pools: []PoolPlan{}})
	}
	return &p.Regions[i]
}

func (a *Amounts) add(b *Amounts) {
	a.Cost, a.Held, a.Penalty = a.Cost.Add(b.Cost), a.Held.Add(b.Held), a.Penalty.Add(b.Penalty)
	a.Current, a.CurrentPenalty = a.Current.Add(b.Current), a.CurrentPenalty.Add(b.CurrentPenalty)
	a.OnDemand, a.LowerBound = a.OnDemand.Add(b.OnDemand), a.LowerBound.Add(b.LowerBound)
	a.Nominal, a.Stranded = a.Nominal.Add(b.Nominal), a.Stranded.Add(b.Stranded)
	if a.Costs == nil {
		a.Costs = slices.Clone(b.Costs)
		return
	}
	for i := range b.Costs {
		a.Costs[i] = a.Costs[i].Add(b.Costs[i])
	}
}

func gap(cost, bound domain.Decimal) domain.Decimal {
	switch {
	case bound.IsPositive():
	case cost.IsPositive():
		return decimal.NewFromInt(1)
	default:
		return decimal.Zero
	}
	return cost.Sub(bound).DivRound(bound, 12)
}
