package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
)

// Alternative is the best plan without the offers of a supplier, or without one of its offers to a
// pool. What is held, on-demand and spot stay.
type Alternative struct {
	Supplier string `json:"supplier"`
	// Offer, Zone and Pool name the offer; without them all of the supplier's are left out. A spend
	// commitment over pools has no Pool.
	Offer string `json:"offer,omitempty"`
	Zone  string `json:"zone,omitempty"`
	Pool  string `json:"pool,omitempty"` // as "region kind"
	// Bought is the cost in the plan of the purchases that are left out.
	Bought domain.Decimal `json:"bought_cost"`
	// Cost and LowerBound are those of the alternative, and More is what Cost exceeds the plan's by.
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	More       domain.Decimal `json:"more"`
	// Purchases are what the pools buy that are planned again, and Certificate proves their bounds. The
	// other pools are as in the plan.
	Purchases   []instance.Order `json:"purchases"`
	Certificate []instance.Proof `json:"certificate,omitempty"` // of the first alternative only
}

// mostOffers bounds the offers that are left out one by one: those that most is spent on.
const mostOffers = 3

// settled is a group of pools with the amounts of its answer.
type settled struct {
	group
	cost, bound domain.Decimal
}

// left names what an alternative does without: a supplier's offers, or the one of its name in a problem.
type left struct {
	supplier, id      string
	offer, zone, pool string
}

// compare sorts suppliers before their offers.
func (x left) compare(y left) int {
	return cmp.Or(cmp.Compare(x.supplier, y.supplier), cmp.Compare(x.id, y.id))
}

// alternatives plans again without each supplier that the plan buys from, and without each of the
// offers that it spends most on. They are in the order of their costs: the first is the second-best
// plan.
func (c *composer) alternatives(ctx context.Context, p *Plan, groups []settled, lp linear.Solver) error {
	spent, by := map[left]domain.Decimal{}, map[left][]string{} // and the pools that buy it
	buys := func(b *Purchase, id, pool string, pools ...string) {
		for _, x := range []left{{supplier: b.Provider}, {b.Provider, id, b.Offer, b.Zone, pool}} {
			spent[x], by[x] = spent[x].Add(b.Cost), append(by[x], pools...)
		}
	}
	for i := range p.Regions {
		r := &p.Regions[i]
		for j := range r.Purchases {
			if b := &r.Purchases[j]; len(b.Covers) > 0 { // a spend commitment over pools
				buys(b, spendKey{b.Provider, b.Offer, monthsOf(b.Term)}.String(), "", b.Covers...)
			}
		}
		for j := range r.Pools {
			pool := r.Region + " " + r.Pools[j].Kind
			for n := range r.Pools[j].Purchases {
				b := &r.Pools[j].Purchases[n]
				buys(b, offerName(pool, b.Provider, b.Offer, b.Zone), pool, pool)
			}
		}
	}
	var suppliers, offers []left
	for _, x := range slices.SortedFunc(maps.Keys(spent), left.compare) {
		if x.id == "" {
			suppliers = append(suppliers, x)
		} else {
			offers = append(offers, x)
		}
	}
	slices.SortStableFunc(offers, func(x, y left) int { return spent[y].Cmp(spent[x]) })
	for _, x := range slices.Concat(suppliers, offers[:min(len(offers), mostOffers)]) {
		a, err := c.without(ctx, &x, by[x], groups, lp)
		if errors.Is(err, linear.ErrUnavailable) {
			p.Notes = append(p.Notes, fmt.Sprintf("no plan without %s: there is no solver of linear programs", x.supplier))
			continue
		} else if err != nil {
			return fmt.Errorf("without %s: %w", x.supplier, err)
		}
		a.Bought, a.More = spent[x], a.Cost
		a.Cost, a.LowerBound = a.Cost.Add(p.Total.Cost), a.LowerBound.Add(p.Total.LowerBound)
		p.Alternatives = append(p.Alternatives, *a)
	}
	slices.SortStableFunc(p.Alternatives, func(x, y Alternative) int { return x.Cost.Cmp(y.Cost) })
	for i := range p.Alternatives {
		if i > 0 {
			p.Alternatives[i].Certificate = nil
		}
	}
	return nil
}

// without solves the groups of pools again that buy something. Its amounts are differences to what
// the groups cost.
func (c *composer) without(ctx context.Context, x *left, pools []string, groups []settled, lp linear.Solver) (*Alternative, error) {
	out := &Alternative{Supplier: x.supplier, Offer: x.offer, Zone: x.zone, Pool: x.pool, Purchases: []instance.Order{}}
	for i := range groups {
		g := &groups[i]
		if !slices.ContainsFunc(g.pools, func(k *candidate) bool { return slices.Contains(pools, k.name()) }) {
			continue
		}
		in, err := c.problem(&g.group)
		if err != nil {
			return nil, err
		}
		in.Offers = slices.DeleteFunc(in.Offers, func(o instance.Offer) bool {
			return o.Provider == x.supplier && (x.id == "" || o.ID == x.id)
		})
		a, err := instance.Solve(ctx, in, lp)
		if err != nil {
			return nil, err
		}
		out.Cost, out.LowerBound = out.Cost.Add(a.Cost).Sub(g.cost), out.LowerBound.Add(a.LowerBound).Sub(g.bound)
		out.Purchases = append(out.Purchases, a.Orders()...)
		out.Certificate = append(out.Certificate, a.Proof...)
	}
	return out, nil
}
