package plan

import (
	"context"
	"errors"
	"slices"

	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement/check"
)

// Order is what a plan buys: units of an offer to a pool that begin with a month of the horizon.
type Order struct {
	Pool  string // as "region kind"
	Offer string // as [OfferName] names it
	Month int
	Units int
}

// Orders is what [Compute] would buy, without what it compares, proves and presents. left says why pools
// are not planned.
func Orders(ctx context.Context, q *Question, lp linear.Solver) (orders []Order, left []ExcludedPool, err error) {
	c, err := newComposer(q)
	if err != nil {
		return nil, nil, err
	}
	c.take(q.Pools)
	for open := c.groups(c.planned()); len(open) > 0; {
		g := &open[0]
		open = open[1:]
		in, err := c.problem(g)
		var best []instance.Order
		if err == nil {
			best, err = instance.Best(ctx, in, lp)
		}
		switch {
		case err == nil:
			orders = append(orders, ordersOf(in, best)...)
		case ctx.Err() != nil || errors.Is(err, check.ErrRejected) || !c.drop(ctx, g, err):
			return nil, nil, err
		default:
			rest := slices.DeleteFunc(g.pools, func(k *candidate) bool { return k.left != "" })
			open = append(open, c.groups(rest)...)
		}
	}
	for _, k := range c.pools {
		if k.left != "" {
			left = append(left, ExcludedPool{k.Region, k.Kind, k.Unit, k.left, k.next})
		}
	}
	return orders, left, nil
}

// ordersOf names the pools of orders. What renews goes on without one.
func ordersOf(in *instance.Instance, best []instance.Order) (out []Order) {
	pools := make(map[string]string, len(in.Offers))
	for i := range in.Offers {
		pools[in.Offers[i].ID] = in.Offers[i].Pool
	}
	for _, o := range best {
		if o.Offer != "" {
			out = append(out, Order{pools[o.Offer], o.Offer, o.Epoch, o.Units})
		}
	}
	return out
}
