package plan

import (
	"context"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
)

// Alternative is the best plan that buys less from a supplier, or less of one of its offers to a pool.
// What is held, on-demand and spot stay.
type Alternative struct {
	Supplier string `json:"supplier"`
	// Offer, Zone and Pool name the offer; without them all of the supplier's are meant. A spend
	// commitment over pools has no Pool.
	Offer string `json:"offer,omitempty"`
	Zone  string `json:"zone,omitempty"`
	Pool  string `json:"pool,omitempty"` // as "region kind"
	// AtMost is the share of Cost that the purchases of it may cost. It is left out where none of it is
	// bought.
	AtMost domain.Decimal `json:"at_most,omitzero"`
	// Bought is what the plan's purchases of it cost, and Left what the alternative's do.
	Bought domain.Decimal `json:"bought_cost"`
	Left   domain.Decimal `json:"left_cost,omitzero"`
	// Cost and LowerBound are those of the alternative, and More is what Cost exceeds the plan's by.
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	More       domain.Decimal `json:"more"`
	// Purchases are what the pools buy that are planned again, and Certificate proves their bounds. The
	// other pools are as in the plan.
	Purchases   []instance.Order `json:"purchases"`
	Certificate []instance.Proof `json:"certificate,omitempty"` // of the second-best plan only
}

// alternatives plans again without each supplier that the plan buys from, and with caps
// ([instance.Alternatives]).
func (c *composer) alternatives(ctx context.Context, p *Plan, groups []instance.Settled, lp linear.Solver) error {
	without, capped, notes, err := instance.Alternatives(ctx, groups, c.a.MaxShare, lp)
	if err != nil {
		return err
	}
	names := p.offers()
	present := func(list []instance.Alternative) (out []Alternative) {
		for i := range list {
			x := &list[i]
			y := names[x.Offer]
			y.Supplier, y.AtMost, y.Bought, y.Left, y.Cost, y.LowerBound = x.Supplier, x.AtMost, x.Bought, x.Left, x.Cost, x.LowerBound
			y.More, y.Purchases, y.Certificate = x.More, x.Purchases, x.Certificate
			out = append(out, y)
		}
		return out
	}
	if c.a.SecondBest {
		p.Alternatives = present(without)
	}
	p.Capped, p.Notes = present(capped), append(p.Notes, notes...)
	return nil
}

// offers are what a plan buys, by its name in a problem.
func (p *Plan) offers() map[string]Alternative {
	out := map[string]Alternative{}
	for i := range p.Regions {
		r := &p.Regions[i]
		for j := range r.Purchases {
			if b := &r.Purchases[j]; len(b.Covers) > 0 { // a spend commitment over pools
				key := spendKey{b.Provider, b.Offer, monthsOf(b.Term), paymentOf(b.Upfront, b.Hourly)}
				out[key.String()] = Alternative{Offer: b.Offer}
			}
		}
		for j := range r.Pools {
			pool := r.Region + " " + r.Pools[j].Kind
			for n := range r.Pools[j].Purchases {
				b := &r.Pools[j].Purchases[n]
				out[offerName(pool, b.Provider, b.Offer, b.Zone)] = Alternative{Offer: b.Offer, Zone: b.Zone, Pool: pool}
			}
		}
	}
	return out
}
