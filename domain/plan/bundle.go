package plan

import (
	"cmp"
	"context"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Bundle is a plan of fewer, larger orders, at a price of placing one. Each order is for one offer, pool
// and month. It is found by steps that each pay for themselves: two orders of an offer that follow each
// other become one, in the month of either, or an order is left out. So it is a plan that exists, and not
// proven to be the best.
type Bundle struct {
	Orders int `json:"orders"`
	// Cost is that of its purchases, without the price of placing them, and More what it exceeds the plan's by.
	Cost domain.Decimal `json:"cost"`
	More domain.Decimal `json:"more"`
	// Saves is what it costs less than the plan when every order of both has its price.
	Saves     domain.Decimal `json:"saves"`
	Purchases []BundledOrder `json:"purchases"`
}

// BundledOrder is an order of a bundle, with the beginning of its term.
type BundledOrder struct {
	instance.Order
	From domain.Instant `json:"from"`
}

// bundled is the part of a bundle that a group of pools has.
type bundled struct {
	orders []instance.Order
	cost   domain.Decimal
}

// bundle merges orders of an answer while that saves more than the price of placing one. What binds a
// posture or hard budgets is left as it is.
func (c *composer) bundle(ctx context.Context, in *instance.Instance, a *instance.Answer) (*bundled, error) {
	if !c.a.OrderPrice.IsPositive() {
		return nil, nil
	}
	b := &bundled{a.Orders(), a.Cost}
	if in.Posture != nil || len(in.Budgets) > 0 {
		return b, nil
	}
	slices.SortFunc(b.orders, func(x, y instance.Order) int {
		return cmp.Or(cmp.Compare(x.Offer, y.Offer), cmp.Compare(x.Commitment, y.Commitment), cmp.Compare(x.Epoch, y.Epoch))
	})
	for again := true; again; {
		again = false
		for i := 0; i < len(b.orders); {
			next, err := c.merge(ctx, in, a, b, i)
			if err != nil {
				return nil, err
			}
			if next == nil {
				i++
				continue
			}
			b, again = next, true
		}
	}
	return b, nil
}

// merge is the best step at an order, nil if none pays.
func (c *composer) merge(ctx context.Context, in *instance.Instance, a *instance.Answer, b *bundled, i int) (*bundled, error) {
	o := b.orders[i]
	if o.Offer == "" { // a renewal
		return nil, nil
	}
	steps := [][]instance.Order{slices.Delete(slices.Clone(b.orders), i, i+1)}
	if i+1 < len(b.orders) && b.orders[i+1].Offer == o.Offer {
		for _, at := range []int{i, i + 1} {
			one := slices.Clone(b.orders)
			one[at].Units = o.Units + b.orders[i+1].Units
			steps = append(steps, slices.Delete(one, 2*i+1-at, 2*i+2-at))
		}
	}
	var best *bundled
	for _, orders := range steps {
		cost, sold, err := a.Priced(ctx, in, orders)
		if err != nil {
			return nil, err
		}
		if sold && cost.Sub(b.cost).LessThan(c.a.OrderPrice) && (best == nil || cost.LessThan(best.cost)) {
			best = &bundled{orders, cost}
		}
	}
	return best, nil
}

// addBundle adds the part of a group to the plan's.
func (c *composer) addBundle(x *solved, p *Plan) {
	if x.bundled == nil {
		return
	}
	if p.FewerOrders == nil {
		p.FewerOrders = &Bundle{Purchases: []BundledOrder{}}
	}
	fewer := decimal.NewFromInt(int64(len(x.answer.Orders()) - len(x.bundled.orders)))
	b, more := p.FewerOrders, x.bundled.cost.Sub(x.answer.Cost)
	b.Orders += len(x.bundled.orders)
	b.Cost, b.More = b.Cost.Add(x.bundled.cost), b.More.Add(more)
	b.Saves = b.Saves.Add(fewer.Mul(c.a.OrderPrice)).Sub(more)
	for _, o := range x.bundled.orders {
		b.Purchases = append(b.Purchases, BundledOrder{o, c.span[o.Epoch].From})
	}
}
