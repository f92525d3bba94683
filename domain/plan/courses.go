package plan

import (
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// baselines computes the costs of buying nothing and of all on-demand, and finds the binding bounds
// of the plan.
func (c *composer) baselines(out *PoolPlan, p *procurement.Pool, k *candidate, sol *answer) error {
	s := k.shelf
	plan, err := procurement.Evaluate(p, sol.Purchases)
	if err != nil {
		return err
	}
	current, err := procurement.Evaluate(p, nil)
	if err != nil {
		return err
	}
	out.Current = expected(p, current.Cost).Add(k.owed)
	out.Penalty, out.CurrentPenalty = expected(p, plan.ShortageCost), expected(p, current.ShortageCost)
	for i := range plan.Scenarios {
		out.Costs = append(out.Costs, money(plan.Scenarios[i].Cost).Add(k.owed))
	}
	out.risk()
	onDemand := new(big.Int)
	quota, share, short := []domain.Instant{}, []domain.Instant{}, []domain.Instant{}
	for m := range p.Epochs {
		e, served := &p.Epochs[m], &plan.Epochs[m]
		for step := range demandOf(e) {
			unitHours := int64(step.Units) * int64(step.Hours)
			onDemand.Add(onDemand, new(big.Int).Mul(big.NewInt(unitHours), big.NewInt(int64(e.OnDemand))))
			if e.Quota >= 0 {
				out.Refused += int64(max(0, step.Units-e.Quota)) * int64(step.Hours)
			}
		}
		out.Served.Guaranteed += served.Guaranteed
		out.Served.DiscountOnly += served.DiscountOnly
		out.Served.Unused += served.UnusedGuaranteed + served.UnusedDiscountOnly
		out.Served.Spot += served.Spot
		out.Served.OnDemand += served.OnDemand
		out.Served.Shortage += served.Shortage
		from := c.span[m].From
		if served.Shortage > 0 {
			short = append(short, from)
		}
		guaranteed, total := coverage(p, sol.Purchases, m)
		atQuota, atShare := false, false
		for step := range demandOf(e) {
			spot := 0
			if e.Spot >= 0 {
				spot = step.Units * e.SpotPermille / 1000
			}
			rest := step.Units - total - spot
			atShare = atShare || spot > 0 && rest > 0 && e.Spot < e.OnDemand
			atQuota = atQuota || e.Quota >= 0 && step.Units-guaranteed-spot > 0 && step.Units-guaranteed-spot >= e.Quota
		}
		if atQuota {
			quota = append(quota, from)
		}
		if atShare {
			share = append(share, from)
		}
	}
	out.Served.Held = out.Served.Guaranteed + out.Served.DiscountOnly
	for _, n := range []*int64{&out.Refused, &out.Served.Held, &out.Served.Guaranteed, &out.Served.DiscountOnly,
		&out.Served.Unused, &out.Served.Spot, &out.Served.OnDemand, &out.Served.Shortage} {
		*n = mean(*n, p.Weight())
	}
	out.Amounts.OnDemand = expected(p, onDemand)
	if s.quota != nil {
		out.bind("on_demand_quota", fmt.Sprintf("%s allows %d GPUs on demand, and the plan uses all of it",
			s.quota.Provider, s.quota.GPUs), quota...)
	}
	if len(quota) > 0 {
		price, err := worthOfQuota(p, sol.Bound)
		if err != nil {
			return err
		}
		out.Binding[len(out.Binding)-1].Price = &price
	}
	out.bind("spot_share", "as much runs on spot as may, and on-demand serves the rest", share...)
	out.bind("shortage", fmt.Sprintf("%d unit-hours stay unserved", out.Served.Shortage), short...)
	for _, b := range sol.Purchases {
		o := &s.terms[b.Offer]
		name, from := p.Offers[b.Offer].ID, c.span[b.Epoch].From
		if o.MaxUnits > 0 && b.Units == int(o.MaxUnits) {
			out.bind("max_units", fmt.Sprintf("%s sells at most %d at a time", name, o.MaxUnits), from)
			starts := p.Offers[b.Offer].Starts
			at := slices.IndexFunc(starts, func(s procurement.Start) bool { return s.Epoch == b.Epoch })
			worth := big.NewInt(int64(sol.Certificate.Worth(p, b.Offer, at)))
			price := expected(p, worth).Sub(money(big.NewInt(int64(starts[at].Cost))))
			i := slices.IndexFunc(out.Binding, func(x Binding) bool {
				return x.Constraint == "max_units" && x.Months[len(x.Months)-1] == from && strings.HasPrefix(x.Detail, name)
			})
			if most := &out.Binding[i].Price; price.IsPositive() && (*most == nil || price.GreaterThan(**most)) {
				*most = &price // where it binds most
			}
		}
		if b.Epoch > 0 && o.starts[0] == b.Epoch && c.span[b.Epoch-1].From < c.ready(o.OfferQuoted) {
			out.bind("lead_time", fmt.Sprintf("%s takes %d hours to come", name, o.LeadTimeHours), from)
		}
	}
	for _, b := range sol.tooFew {
		o := &s.terms[b.Offer]
		out.bind("min_units", fmt.Sprintf("%s sells at least %d at a time, and fewer would be bought",
			p.Offers[b.Offer].ID, o.MinUnits), c.span[b.Epoch].From)
	}
	return nil
}

// demandOf yields the steps of an epoch over all its scenarios.
func demandOf(e *procurement.Epoch) iter.Seq[procurement.Step] {
	return func(yield func(procurement.Step) bool) {
		for _, step := range e.Demand {
			if !yield(step) {
				return
			}
		}
		for i := range e.Cases {
			for _, step := range e.Cases[i].Demand {
				if !yield(step) {
					return
				}
			}
		}
	}
}

// bind records a binding bound with its months; it does nothing if there are none.
func (out *PoolPlan) bind(constraint, detail string, months ...domain.Instant) {
	if len(months) == 0 {
		return
	}
	for i := range out.Binding {
		if b := &out.Binding[i]; b.Constraint == constraint && b.Detail == detail {
			b.Months = append(b.Months, months...)
			return
		}
	}
	out.Binding = append(out.Binding, Binding{Constraint: constraint, Detail: detail, Months: months})
}

// coverage returns the units that cover an epoch with guaranteed capacity, and the total with
// discount-only commitments.
func coverage(p *procurement.Pool, bought []procurement.Purchase, m int) (guaranteed, total int) {
	e := &p.Epochs[m]
	guaranteed, total = e.HeldGuaranteed, e.HeldGuaranteed+e.HeldDiscountOnly
	for _, b := range bought {
		o := &p.Offers[b.Offer]
		if b.Epoch <= m && m < b.Epoch+o.Term {
			total += b.Units
			if o.Guaranteed {
				guaranteed += b.Units
			}
		}
	}
	return guaranteed, total
}
