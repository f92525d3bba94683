package plan

import (
	"context"

	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
)

// Order is what a plan buys: units of an offer to a pool that begin with a month of the horizon.
type Order struct {
	Pool  string // as "region kind"
	Offer string // as [OfferName] names it
	Month int
	Units int
	Now   int // of the units: what does not wait for demand ([Wait])
}

// Orders is what [Compute] would buy, without what it compares, proves and presents. left says why pools
// are not planned.
func Orders(ctx context.Context, q *Question, lp linear.Solver) (orders []Order, left []ExcludedPool, err error) {
	c, err := newComposer(q)
	if err != nil {
		return nil, nil, err
	}
	c.take(q.Pools)
	err = settle(ctx, c, func(g *group) ([]Order, error) {
		in, err := c.problem(g)
		if err != nil {
			return nil, err
		}
		best, err := instance.Best(ctx, in, lp)
		if err != nil {
			return nil, err
		}
		waits, err := c.waits(g, best)
		return c.ordersOf(g, in, best, waits), err
	}, func(more []Order) error {
		orders = append(orders, more...)
		return nil
	})
	return orders, c.excluded(), err
}

// ordersOf names the pools of orders. What renews goes on without one.
func (c *composer) ordersOf(g *group, in *instance.Instance, best []instance.Order, waits map[instance.Order]*Wait) (out []Order) {
	pools := make(map[string]string, len(in.Offers))
	for i := range in.Offers {
		pools[in.Offers[i].ID] = in.Offers[i].Pool
	}
	for _, o := range best {
		if o.Offer != "" {
			now := o.Units
			if w := waits[o]; w != nil {
				now -= w.Units
			}
			pool := pools[o.Offer]
			if k := c.home(g, pool); k != nil {
				pool = k.name()
			}
			out = append(out, Order{pool, o.Offer, o.Epoch, o.Units, now})
		}
	}
	return out
}
