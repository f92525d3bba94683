package plan

import (
	"cmp"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Summary is a plan on one screen: cost and savings, use of commitments, what is left out, and
// binding bounds. It is a pure function of the plan, and part of no recorded document.
type Summary struct {
	Plan     string          `json:"plan"`
	Horizon  domain.Interval `json:"horizon"`
	Currency string          `json:"currency"`
	Regions  []string        `json:"regions"`
	Pools    int             `json:"pools"`
	// Cost is the plan's net present cost, and LowerBound its proven bound.
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	// Savings compare Cost with [BuyNothing], [UnderQuota] and [WithoutQuota], in this order, as
	// far as the plan has them.
	Savings []Saving `json:"savings"`
	// Rule is the simple purchasing rule that costs least; nil if the plan has none.
	Rule *Rule `json:"simple_rule"`
	// Purchases is the number of orders in the plan, Units and GPUs what they buy, and Upfront the
	// nominal upfront payment.
	Purchases int `json:"purchases"`
	// Later is the number of orders that need not be placed yet and are decided by demand ([Decision]).
	Later int `json:"decided_later,omitempty"`
	// Waiting is the number of units that wait until demand for them was there ([Wait]).
	Waiting int            `json:"units_that_wait,omitempty"`
	Units   int            `json:"units"`
	GPUs    int            `json:"gpus"`
	Upfront domain.Decimal `json:"upfront"`
	// Coverage is the percentage of demand GPU-hours that commitments and owned machines serve, or
	// spend commitments pay for.
	// Utilization is the percentage of their GPU-hours that serve. Both are rounded to two places,
	// half away from zero, and null if there are no such hours.
	Coverage    *domain.Decimal `json:"commitment_coverage_percent"`
	Utilization *domain.Decimal `json:"commitment_utilization_percent"`
	// Signing is what is signed now and later, by supplier and class.
	Signing  []Signing  `json:"signing"`
	Excluded []Excluded `json:"excluded"`
	// Binding are the binding bounds of the plan, the most costly first.
	Binding []SummaryBinding `json:"binding"`
}

// Signing is what a plan buys of one class from one supplier.
type Signing struct {
	Supplier string `json:"supplier"`
	// Class is the GPU model, the machine type of an offer without GPUs, or "spend" for spend commitments,
	// which count no machines.
	Class string `json:"class"`
	// Now is the number of machines to sign when the horizon begins, and Upfront what that pays at once.
	// Waiting are those that could be signed then and wait until demand for them was there ([Wait]).
	Now     int            `json:"units_now"`
	Upfront domain.Decimal `json:"upfront_now"`
	Waiting int            `json:"units_that_wait"`
	// Later is the number of machines that are decided later, the first of them by Next; 0 if there are none.
	Later int            `json:"units_later"`
	Next  domain.Instant `json:"next_decided_by,omitempty"`
	// Cost is that of all within the horizon, less salvage.
	Cost domain.Decimal `json:"cost"`
}

// sign adds a purchase to what is signed of its class.
func (s *Summary) sign(b *Purchase) {
	class := cmp.Or(b.GPUModel, b.SKU)
	if len(b.Covers) > 0 {
		class = "spend"
	}
	i, found := slices.BinarySearchFunc(s.Signing, b, func(x Signing, b *Purchase) int {
		return cmp.Or(cmp.Compare(x.Supplier, b.Provider), cmp.Compare(x.Class, class))
	})
	if !found {
		s.Signing = slices.Insert(s.Signing, i, Signing{Supplier: b.Provider, Class: class})
	}
	x, units := &s.Signing[i], b.Units
	if len(b.Covers) > 0 {
		units = 0
	}
	x.Cost = x.Cost.Add(b.Cost)
	by := cmp.Or(b.OrderBy, b.Term.From)
	if b.Decision != nil {
		by = b.Decision.By
	}
	if by > s.Horizon.From {
		x.Later += units
		if x.Next == 0 || by < x.Next {
			x.Next = by
		}
		return
	}
	waiting := 0
	if b.Wait != nil {
		waiting = b.Wait.Units
	}
	x.Waiting += waiting
	x.Now += units - waiting
	now := decimal.NewFromInt(int64(b.Units - waiting))
	x.Upfront = x.Upfront.Add(b.Upfront.Mul(now).DivRound(decimal.NewFromInt(int64(max(1, b.Units))), 9))
}

// Names of what a plan is compared with. Each is one number of a plan.
const (
	BuyNothing   = "buy nothing"           // Amounts.Current
	UnderQuota   = "on-demand under quota" // the baseline on_demand: nothing held, with a penalty for what the quota refuses
	WithoutQuota = "on-demand, no quota"   // Amounts.OnDemand
)

// Rule is a simple purchasing rule beside a plan, on the demand that the plan assumes.
type Rule struct {
	Baseline string         `json:"baseline"`
	Cost     domain.Decimal `json:"cost"`
	More     domain.Decimal `json:"more"` // than the plan; negative where it buys less than an offer sells
	// Percent is More in percent of the plan's cost, rounded to two places, half away from zero;
	// null if that is 0.
	Percent *domain.Decimal `json:"percent"`
	// AsGood means that Percent is from 0 to 1. Forecasts of demand err by more, so the rule may do as
	// well: a backtest shows how it did.
	AsGood bool `json:"as_good"`
}

// bestRule returns the simple rule that costs least of those that keep every hard budget and the posture, the first
// of equal ones.
func (p *Plan) bestRule() *Rule {
	var least *Baseline
	for i := range p.Baselines {
		if b := &p.Baselines[i]; b.Name != "buy_nothing" && b.Name != "on_demand" && len(b.Broken) == 0 && (least == nil || b.Cost.LessThan(least.Cost)) {
			least = b
		}
	}
	if least == nil {
		return nil
	}
	r := &Rule{Baseline: least.Name, Cost: least.Cost, More: least.Cost.Sub(p.Total.Cost)}
	r.Percent = percentOf(r.More, p.Total.Cost)
	r.AsGood = !r.More.IsNegative() && (r.Percent == nil || r.Percent.LessThanOrEqual(decimal.NewFromInt(1)))
	return r
}

// Saving is what a plan saves against an alternative, negative if that is cheaper.
type Saving struct {
	Against string         `json:"against"`
	Cost    domain.Decimal `json:"cost"`
	Amount  domain.Decimal `json:"amount"` // Cost less the plan's
	// Percent is Amount in percent of Cost, rounded to two places, half away from zero; null if
	// Cost is 0.
	Percent *domain.Decimal `json:"percent"`
	// Broken names the hard budgets, or "posture", that the alternative does not keep, and the plan does.
	Broken []string `json:"does_not_keep,omitempty"`
}

// Excluded is what a plan leaves out for one reason.
type Excluded struct {
	What   string   `json:"what"` // pools, commitments or offers
	Reason string   `json:"reason"`
	Count  int      `json:"count"`
	Names  []string `json:"names"` // all for pools and commitments; for offers the first of each pool
	// Next is what the user can do about it, "" if unknown.
	Next string `json:"next_step,omitempty"`
}

// SummaryBinding is a bound with the pools in which it binds.
type SummaryBinding struct {
	Pools []string `json:"pools"` // as "region kind"
	Binding
}

// Summary returns the plan's summary.
func (p *Plan) Summary() *Summary {
	s := &Summary{
		Plan: p.ID, Horizon: p.Horizon, Currency: p.Assumptions.Currency, Regions: []string{}, Excluded: []Excluded{},
		Signing: []Signing{},
		Binding: []SummaryBinding{},
		Cost:    p.Total.Cost, LowerBound: p.Total.LowerBound, Gap: p.Total.Gap, Savings: p.savings(), Rule: p.bestRule(),
	}
	var served, held, idle, paid decimal.Decimal // in GPU-hours
	for i := range p.Regions {
		r := &p.Regions[i]
		if r.Region != "" {
			s.Regions = append(s.Regions, r.Region)
		}
		s.Pools += len(r.Pools)
		for j := range r.Purchases {
			b := &r.Purchases[j]
			s.Purchases++
			s.sign(b)
			if b.Decision != nil {
				s.Later++
			}
			if b.Wait != nil {
				s.Waiting += b.Wait.Units
			}
			if len(b.Covers) == 0 {
				s.Units += b.Units
			}
			s.GPUs += b.GPUs
			s.Upfront = s.Upfront.Add(b.Upfront)
		}
		for j := range r.Pools {
			q := &r.Pools[j]
			gpus := decimal.NewFromInt(int64(max(1, q.GPUsPerUnit)))
			hours := func(n int64) decimal.Decimal { return decimal.NewFromInt(n).Mul(gpus) }
			v := &q.Served
			held, idle, paid = held.Add(hours(v.Held)), idle.Add(hours(v.Unused)), paid.Add(hours(v.SpendCommitted))
			served = served.Add(hours(v.Held)).Add(hours(v.Spot)).Add(hours(v.OnDemand)).Add(hours(v.Shortage))
			name := p.poolName(r.Region, q.Kind)
			for _, b := range q.Binding {
				s.Binding = append(s.Binding, SummaryBinding{[]string{name}, b})
			}
			for _, l := range q.ExcludedOffers {
				s.exclude("offers", l.Reason, "", l.Offers, l.First)
			}
		}
	}
	s.Coverage, s.Utilization = percentOf(held.Add(paid), served), percentOf(held, held.Add(idle))
	for i := range p.Components {
		for _, b := range p.Components[i].Binding {
			s.Binding = append(s.Binding, SummaryBinding{slices.Clone(p.Components[i].Pools), b})
		}
	}
	for _, l := range p.Excluded {
		s.exclude("pools", l.Reason, l.Next, 1, p.poolName(l.Region, l.Kind))
	}
	for i := range p.Ignored {
		s.exclude("commitments", p.Ignored[i].Reason, "", 1, p.Ignored[i].Commitment)
	}
	order := []string{"pools", "commitments", "offers"}
	slices.SortStableFunc(s.Excluded, func(a, b Excluded) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.What), slices.Index(order, b.What)),
			cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Next, b.Next))
	})
	slices.SortStableFunc(s.Binding, func(a, b SummaryBinding) int {
		return cmp.Or(boundPrice(b.Price).Cmp(boundPrice(a.Price)), cmp.Compare(len(b.Months), len(a.Months)),
			slices.Compare(a.Pools, b.Pools),
			cmp.Compare(a.Constraint, b.Constraint), cmp.Compare(a.Detail, b.Detail))
	})
	return s
}

// boundPrice sorts bounds without a price last.
func boundPrice(price *domain.Decimal) domain.Decimal {
	if price == nil {
		return decimal.NewFromInt(-1)
	}
	return *price
}

func (p *Plan) poolName(region, kind string) string { return strings.TrimSpace(region + " " + kind) }

// savings compares the plan with the alternatives.
func (p *Plan) savings() []Saving {
	saving := func(against string, cost domain.Decimal, broken []string) Saving {
		amount := cost.Sub(p.Total.Cost)
		return Saving{against, cost, amount, percentOf(amount, cost), broken}
	}
	rule := func(name string) *Baseline {
		if i := slices.IndexFunc(p.Baselines, func(c Baseline) bool { return c.Name == name }); i >= 0 {
			return &p.Baselines[i]
		}
		return &Baseline{}
	}
	out := []Saving{saving(BuyNothing, p.Total.Current, rule("buy_nothing").Broken)}
	if b := rule("on_demand"); b.Name != "" {
		out = append(out, saving(UnderQuota, b.Cost, b.Broken))
	}
	return append(out, saving(WithoutQuota, p.Total.OnDemand, nil))
}

// exclude adds an item to those left out for the same reason.
func (s *Summary) exclude(what, reason, next string, count int, name string) {
	i := slices.IndexFunc(s.Excluded, func(x Excluded) bool { return x.What == what && x.Reason == reason && x.Next == next })
	if i < 0 {
		i = len(s.Excluded)
		s.Excluded = append(s.Excluded, Excluded{What: what, Reason: reason, Next: next, Names: []string{}})
	}
	x := &s.Excluded[i]
	x.Count += count
	if name != "" && !slices.Contains(x.Names, name) {
		x.Names = append(x.Names, name)
	}
}

// percentOf returns a part as a percentage of a whole, nil if the whole is 0.
func percentOf(part, whole domain.Decimal) *domain.Decimal {
	if whole.IsZero() {
		return nil
	}
	percent := part.Shift(2).DivRound(whole, 2)
	return &percent
}
