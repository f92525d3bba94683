package instance

import (
	"math/big"

	"quartermaster/domain"
	"quartermaster/domain/procurement/check"
)

// bounded converts a solution's bound into one that holds for the instance as stated. Where a budget counts more
// than is spent (see [model.refine]), the problem is tighter than the instance. Enlarging the
// budget by that excess would allow all that the instance allows; the bound is what the certificate
// proves then.
func (m *model) bounded(c *component, by check.Report) *big.Int {
	if c.joint == nil || len(c.bounds) == 0 {
		return by.Bound
	}
	more := make([]*big.Int, len(c.bounds))
	for l, b := range c.bounds {
		more[l] = m.overcounted(c, &m.bounds[b], l)
	}
	out := by.Loosened(more)
	if out.Sign() < 0 { // costs are never negative
		out.SetInt64(0)
	}
	return out
}

// overcounted is the amount by which a budget, limit l of a component's problem, must be enlarged
// for the problem to allow whatever the instance allows.
func (m *model) overcounted(c *component, b *bound, l int) *big.Int {
	if b.budget == nil {
		return new(big.Int)
	}
	ratio := big.NewRat(1, 1) // the largest ratio of counted to spent
	count := func(counted *big.Rat, spent domain.Decimal) {
		if spent.IsPositive() {
			if r := counted.Quo(counted, spent.Shift(m.digits).Rat()); r.Cmp(ratio) > 0 {
				ratio = r
			}
		}
	}
	for e := range m.cal.n {
		if b.Serving[e] == 0 {
			continue
		}
		served := func(nominal domain.Decimal) {
			price, err := m.discounted(nominal, e)
			if err == nil { // it was counted before
				counted := big.NewRat(int64(price), 1000)
				count(counted.Mul(counted, big.NewRat(b.Serving[e], 1)), nominal.Mul(whole(b.parts)))
			}
		}
		for _, p := range c.pools {
			if m.onDemand[p] != nil {
				served(m.onDemand[p][e])
			}
			if m.spot[p] != nil {
				served(m.spot[p][e])
			}
		}
		for _, d := range c.demands {
			for _, r := range m.ways[d] {
				served(r.extra)
			}
		}
	}
	for j, i := range c.choices {
		count(big.NewRat(int64(c.joint.Choices[j].Spent[l]), 1), m.spentExactly(m.choice(i), b))
	}
	most := b.left.Mul(whole(b.parts)).Shift(m.digits).Rat()
	most.Mul(most, ratio)
	up := new(big.Int).Add(most.Num(), new(big.Int).Sub(most.Denom(), big.NewInt(1)))
	up.Quo(up, most.Denom())
	return up.Sub(up, big.NewInt(int64(b.Most)))
}
