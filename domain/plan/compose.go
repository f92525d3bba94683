package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/packing"
	"quartermaster/domain/procurement"
)

// MaxMonths bounds the horizon.
const MaxMonths = 120

// Compute answers a question. It returns an error when an assumption is out of
// range, or wrapping check.ErrRejected when the checker refuses what the
// solver found: then there is no plan, and the solver is at fault.
func Compute(q *Question) (*Plan, error) {
	a := &q.Assumptions
	if a.Months < 1 || a.Months > MaxMonths {
		return nil, fmt.Errorf("horizon of %d months, want 1 to %d", a.Months, MaxMonths)
	}
	if a.Weeks < 1 || a.Weeks > 520 {
		return nil, fmt.Errorf("lookback of %d weeks, want 1 to 520", a.Weeks)
	}
	if a.Salvage.IsNegative() || a.Salvage.GreaterThan(decimal.NewFromInt(1)) {
		return nil, fmt.Errorf("salvage %s is not from 0 to 1", a.Salvage)
	}
	if a.SpotOverhead.IsNegative() || a.SpotOverhead.GreaterThan(decimal.New(99, -2)) {
		return nil, fmt.Errorf("spot overhead %s is not from 0 to 0.99", a.SpotOverhead)
	}
	if a.ShortageFactor.LessThan(decimal.NewFromInt(1)) || a.ShortageFactor.GreaterThan(decimal.NewFromInt(1000)) {
		return nil, fmt.Errorf("shortage factor %s is not from 1 to 1000", a.ShortageFactor)
	}
	c := &composer{q: q, a: a}
	var err error
	if c.discount, err = newDiscount(a.AnnualRate, 2*MaxMonths); err != nil {
		return nil, err
	}
	c.all = months(q.At, 2*MaxMonths)
	c.span = c.all[:a.Months]
	p := &Plan{
		Position: q.Position, At: q.At, Horizon: domain.Interval{From: c.span[0].From, To: c.span[a.Months-1].To}, Assumptions: *a,
		Methods: Methods(q.Folds), Region: q.Region,
		Regions: []RegionPlan{}, Expiry: ladder(q.Held, q.At), Left: []LeftPool{},
	}
	pools := slices.Clone(q.Pools)
	slices.SortFunc(pools, func(x, y Pool) int {
		return cmp.Or(cmp.Compare(x.Region, y.Region), cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Unit, y.Unit))
	})
	for i := range pools {
		pool, left, err := c.pool(&pools[i])
		if err != nil {
			return nil, err
		}
		if left != "" {
			p.Left = append(p.Left, LeftPool{pools[i].Region, pools[i].Kind, pools[i].Unit, left})
			continue
		}
		r := p.region(pools[i].Region)
		r.Pools = append(r.Pools, *pool)
		r.Purchases = append(r.Purchases, pool.Purchases...)
		r.add(&pool.Amounts)
	}
	if err := c.pack(p); err != nil {
		return nil, err
	}
	for i := range p.Regions {
		r := &p.Regions[i]
		r.Gap = gap(r.Cost, r.LowerBound)
		p.Total.add(&r.Amounts)
	}
	p.Total.Gap = gap(p.Total.Cost, p.Total.LowerBound)
	return p, p.name()
}

// Methods names the versions of everything that a plan is computed by, given that
// of the rows.
func Methods(folds string) []string {
	return []string{folds, Method, packing.Method, procurement.Method}
}

// name gives the plan an id that is a digest of everything in it but the
// position: the same question asked again later, with nothing new, is the same
// plan.
func (p *Plan) name() error {
	position := p.Position
	p.ID, p.Position = "", ""
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	p.ID, p.Position = "plan-"+hex.EncodeToString(sum[:6]), position
	return nil
}

// region returns the plan of a region, made in its place when there is none yet.
func (p *Plan) region(name string) *RegionPlan {
	i, ok := slices.BinarySearchFunc(p.Regions, name, func(r RegionPlan, name string) int { return cmp.Compare(r.Region, name) })
	if !ok {
		p.Regions = slices.Insert(p.Regions, i, RegionPlan{Region: name, Purchases: []Purchase{}, Pools: []PoolPlan{}})
	}
	return &p.Regions[i]
}

func (a *Amounts) add(b *Amounts) {
	a.Cost, a.Held, a.Penalty = a.Cost.Add(b.Cost), a.Held.Add(b.Held), a.Penalty.Add(b.Penalty)
	a.Current, a.CurrentPenalty = a.Current.Add(b.Current), a.CurrentPenalty.Add(b.CurrentPenalty)
	a.OnDemand, a.LowerBound = a.OnDemand.Add(b.OnDemand), a.LowerBound.Add(b.LowerBound)
}

func gap(cost, bound domain.Decimal) domain.Decimal {
	if !bound.IsPositive() {
		return decimal.Zero
	}
	return cost.Sub(bound).DivRound(bound, 12)
}

// ladder returns what is bought and has not ended, the first to end first.
func ladder(held []Held, at domain.Instant) []Held {
	out := []Held{}
	for _, h := range held {
		if h.Term.To > at {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(x, y Held) int {
		return cmp.Or(cmp.Compare(x.Term.To, y.Term.To), cmp.Compare(x.Commitment, y.Commitment))
	})
	return out
}

type composer struct {
	q        *Question
	a        *Assumptions
	discount discount
	all      []domain.Interval // months from the start of the horizon on
	span     []domain.Interval // those of the horizon
}

// pool plans one pool. What cannot be planned is left out with a reason.
func (c *composer) pool(p *Pool) (*PoolPlan, string, error) {
	name := p.Region + " " + p.Kind
	s := stock(p, c.a, c.q.At, c.span[len(c.span)-1].To)
	if s.onDemand == nil {
		return nil, "nobody offers it on demand there, so there is no price to plan against", nil
	}
	var err error
	nodes, gpus := int64(1), int64(1)
	if p.Unit == "gpu" {
		if nodes, gpus, err = c.perMachine(p, s); err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
	}
	f, err := repeat(p, c.a, c.span, nodes, gpus)
	if err != nil {
		return nil, "", err
	}
	out := &PoolPlan{
		Kind: p.Kind, Unit: p.Unit, SKU: s.onDemand.SKU, GPUsPerUnit: s.gpus, Notes: []string{}, Demand: f.summary,
		Binding: []Binding{}, LeftOut: s.left, OnDemand: priceOf(s.onDemand), QuotaGPUs: s.quota,
	}
	if s.spot != nil && p.SpotShare.IsPositive() {
		price := priceOf(s.spot)
		out.Spot = &price
	}
	if out.LeftOut == nil {
		out.LeftOut = []LeftOut{}
	}
	problem, err := c.problem(p, s, f, c.a.Salvage)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	sol, err := solve(problem, s)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	if out.Purchases, err = c.purchases(problem, s, sol.Purchases, c.a.Salvage); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	out.Solver, out.Certificate = string(sol.Algorithm), sol.Certificate
	out.Cost, out.LowerBound = money(sol.Cost), money(sol.Bound)
	out.Gap = gap(out.Cost, out.LowerBound)
	if err := c.courses(out, problem, s, sol); err != nil {
		return nil, "", fmt.Errorf("%s: %w", name, err)
	}
	out.Sensitivity = []Sensitivity{}
	for _, salvage := range []domain.Decimal{decimal.Zero, decimal.NewFromInt(1)} {
		if salvage.Equal(c.a.Salvage) {
			continue
		}
		other, err := c.problem(p, s, f, salvage)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		sol, err := solve(other, s)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		bought, err := c.purchases(other, s, sol.Purchases, salvage)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
		out.Sensitivity = append(out.Sensitivity, Sensitivity{Salvage: salvage, Cost: money(sol.Cost), Purchases: bought})
	}
	return out, "", nil
}
