package procurement

import (
	"math/big"
	"math/bits"
	"sort"
)

// bound evaluates a certificate in integers. It implements the formula in the comment of
// [Certificate], with the minimum over each epoch found on its curves.
func (s *solver) bound(c *Certificate) wide {
	var sum wide
	for m := range s.epochs {
		s.boundEpoch(&sum, m, c.Cover[m], c.Guarantee[m])
	}
	cover, guarantee := prefix(c.Cover), prefix(c.Guarantee)
	for i := range s.arcs {
		a := &s.arcs[i]
		worth := cover[a.to] - cover[a.from]
		if a.guaranteed {
			worth += guarantee[a.to] - guarantee[a.from]
		}
		if worth > a.cost {
			sum.add(a.cost-worth, a.max)
		}
	}
	return sum
}

func prefix(prices []Nano) []Nano {
	out := make([]Nano, len(prices)+1)
	for i, v := range prices {
		out[i+1] = out[i] + v
	}
	return out
}

// boundEpoch adds the least cost of an epoch at the prices of cover and guarantee. With g
// guaranteed units bought, the best total cover is what the curve of A gives at the price of cover,
// as far as discount-only units can make up the rest. So the cost as a function of g alone is
// convex, and a search finds its minimum.
func (s *solver) boundEpoch(sum *wide, m int, cover, guarantee Nano) {
	e := &s.epochs[m]
	c := &s.costs[m]
	total, guaranteed := c.parts(e.HeldGuaranteed)
	least := min(e.HeldDiscountOnly, c.quota)
	want := total.reach(cover)
	change := func(g int) Nano { // of the cost, from g to g+1
		d := cover + guarantee - guaranteed.at(g)
		switch {
		case g+c.quota < want: // more discount-only units would exceed the quota
			d -= total.at(g + c.quota)
		case g+least < want: // one discount-only unit less
			d -= cover
		default:
			d -= total.at(g + least)
		}
		return d
	}
	top := max(total.top(), guaranteed.top())
	g := sort.Search(top, func(g int) bool { return change(g) >= 0 })
	covered := min(max(want, g+least), g+c.quota)
	guaranteed.addCost(sum, g)
	total.addCost(sum, covered)
	sum.add(cover+guarantee, g)
	sum.add(cover, covered-g-least)
}

// affordable lowers the prices until no start with Max Unlimited is worth more than it costs.
// Prices that are nearly so change only slightly.
func (s *solver) affordable(c *Certificate) {
	for i := range s.arcs {
		a := &s.arcs[i]
		if a.max != Unlimited {
			continue
		}
		worth := Nano(0)
		for m := a.from; m < a.to; m++ {
			worth += c.Cover[m]
			if a.guaranteed {
				worth += c.Guarantee[m]
			}
		}
		if worth <= a.cost {
			continue
		}
		lower := func(v Nano) Nano { // by cost/worth, rounded down
			hi, lo := bits.Mul64(uint64(v), uint64(a.cost))
			q, _ := bits.Div64(hi, lo, uint64(worth))
			return Nano(q)
		}
		for m := a.from; m < a.to; m++ {
			c.Cover[m] = lower(c.Cover[m])
			if a.guaranteed {
				c.Guarantee[m] = lower(c.Guarantee[m])
			}
		}
	}
}

// gap returns cost − bound.
func gap(cost, bound *big.Int) *big.Int { return new(big.Int).Sub(cost, bound) }
