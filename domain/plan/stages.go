package plan

import (
	"cmp"
	"context"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Decision is when a purchase that need not be ordered yet is decided, and by which observed demand.
// Demand in the scenarios decides where the plan alone would order in all of them.
type Decision struct {
	// By is the last time to order: the lead time before the term begins.
	By domain.Instant `json:"decide_by"`
	// Month is the last whole month that is observed by then, 2006-01.
	Month string `json:"month"`
	// AtLeast is the mean demand in that month, in Unit, from which on the purchase is worth its cost.
	// It is that of the pool, or of all pools that a spend commitment pays for.
	AtLeast domain.Decimal `json:"order_if_demand_at_least"`
	Unit    string         `json:"unit"`
	// Orders is the number of scenarios with that demand. With 0 no demand there makes it worth its
	// cost, and AtLeast is above all of them.
	Orders int `json:"scenarios_that_order"`
	// Saves is what deciding by it saves, in the mean over these scenarios, against ordering in all.
	Saves domain.Decimal `json:"saves"`
}

// stages finds what of an answer is decided later, and by what. Purchases are judged in the order in
// which they are decided, each with those before it and without those after it.
func (c *composer) stages(ctx context.Context, g *group, in *instance.Instance, a *instance.Answer) (map[instance.Order]*Decision, error) {
	if c.a.Demand != Forecast {
		return nil, nil
	}
	type later struct {
		order instance.Order
		by    domain.Instant
		month int
		of    []*candidate
	}
	var orders []instance.Order // decided so far
	var open []later
	for i := range a.Purchases {
		b := &a.Purchases[i]
		of, lead := g.sold(c, b)
		by := b.Term.From - domain.Instant(lead)*domain.Hour
		month := -1
		for m, span := range c.span {
			if span.To <= by {
				month = m
			}
		}
		if len(of) == 0 || month < 0 {
			orders = append(orders, b.Order)
			continue
		}
		open = append(open, later{b.Order, by, month, of})
	}
	slices.SortStableFunc(open, func(x, y later) int { return cmp.Compare(x.by, y.by) })
	out := map[instance.Order]*Decision{}
	without, err := a.Under(ctx, in, orders)
	if err != nil || len(open) == 0 {
		return nil, err
	}
	for _, x := range open {
		orders = append(orders, x.order)
		with, err := a.Under(ctx, in, orders)
		if err != nil {
			return nil, err
		}
		gains, levels := make([]domain.Decimal, len(with)), make([]int64, len(with))
		for s := range with {
			gains[s] = without[s].Cost.Sub(with[s].Cost)
			for _, k := range x.of {
				levels[s] += k.future.levels[s][x.month]
			}
		}
		d := decide(gains, levels)
		d.By, d.Month, d.Unit = x.by, c.span[x.month].From.Time().Format("2006-01"), x.of[0].Unit
		out[x.order], without = d, with
	}
	return out, nil
}

// decide finds the level of demand from which on a purchase is ordered, so that its gains over equally
// likely scenarios are greatest. Among equally good levels it is the lowest.
func decide(gains []domain.Decimal, levels []int64) *Decision {
	order := make([]int, len(gains))
	all := decimal.Zero
	for s := range order {
		order[s], all = s, all.Add(gains[s])
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(levels[y], levels[x]) })
	best, sum := decimal.Zero, decimal.Zero
	d := &Decision{AtLeast: decimal.New(levels[order[0]]+1, -3)}
	for i, s := range order {
		sum = sum.Add(gains[s])
		if i+1 < len(order) && levels[order[i+1]] == levels[s] {
			continue
		}
		if sum.GreaterThanOrEqual(best) {
			best, d.Orders, d.AtLeast = sum, i+1, decimal.New(levels[s], -3)
		}
	}
	d.Saves = best.Sub(all).DivRound(decimal.NewFromInt(int64(len(gains))), 9)
	return d
}

// sold names the pools that a purchase is for, and its lead time in hours. Pools that count demand in
// different units, and renewals, have none.
func (g *group) sold(c *composer, b *instance.Purchase) (of []*candidate, lead uint32) {
	if k := c.home(g, b.Pool); k != nil {
		for _, t := range g.terms(c, k) {
			if OfferName(k.name(), t.OfferQuoted) == b.Offer {
				return []*candidate{k}, t.LeadTimeHours
			}
		}
	}
	for i := range g.spans {
		s := &g.spans[i]
		if s.String() != b.Offer {
			continue
		}
		for _, p := range s.prices {
			lead = max(lead, p.LeadTimeHours)
		}
		if slices.ContainsFunc(s.pools, func(k *candidate) bool { return k.Unit != s.pools[0].Unit }) {
			return nil, 0
		}
		return s.pools, lead
	}
	return nil, 0
}

// levelsOf are the means of drawn demand by month of the horizon, in thousandths of a unit.
func (c *composer) levelsOf(drawn [][]int64, from domain.Instant) [][]int64 {
	out := make([][]int64, len(drawn))
	for s := range drawn {
		for _, span := range c.span {
			whole, rest, n := int64(0), int64(0), hoursOf(span)
			for _, milli := range drawn[s][(span.From-from)/domain.Hour:][:n] {
				whole, rest = whole+milli/n, rest+milli%n
			}
			out[s] = append(out[s], whole+rest/n)
		}
	}
	return out
}
