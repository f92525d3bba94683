package joint

import (
	"math/big"
	"slices"

	"quartermaster/domain/procurement"
)

// saturation is, by epoch, and pool or spend, the most that can be of use in addition to what is
// held: capacity for the largest demand that may come to the pool in an hour, or for what a need
// asks of it alone, and spend for what such demand costs at the committed prices. More of it serves
// nothing (see [Leaf]).
type saturation struct {
	guaranteed, discountOnly [][]int64
	spends                   [][]*big.Int
}

func (p *Problem) saturation() *saturation {
	s := &saturation{}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		wanted := make([]int64, len(p.Pools))
		for c := range e.Cases {
			for _, units := range p.most(&e.Cases[c]) {
				now := make([]*big.Rat, len(p.Pools))
				for _, r := range p.Routes {
					u := units[r.Demand]
					if u == 0 || p.unwanted != nil && p.unwanted[r.Demand] {
						continue
					}
					v := big.NewRat(int64(u)*int64(r.Num), int64(r.Den))
					if now[r.Pool] != nil {
						v.Add(v, now[r.Pool])
					}
					now[r.Pool] = v
				}
				for k, v := range now {
					if v != nil {
						wanted[k] = max(wanted[k], ceil(v).Int64())
					}
				}
			}
		}
		g, o := make([]int64, len(p.Pools)), make([]int64, len(p.Pools))
		for k := range p.Pools {
			o[k] = max(0, wanted[k]-int64(e.Pools[k].HeldDiscountOnly))
			g[k] = wanted[k]
		}
		for i := range p.Needs {
			n := &p.Needs[i]
			if !slices.Contains(n.Epochs, m) {
				continue
			}
			for _, t := range n.Terms {
				g[t.Pool] = max(g[t.Pool], int64((n.Least+t.PerUnit-1)/t.PerUnit))
			}
		}
		for k := range p.Pools {
			g[k] = max(0, g[k]-int64(e.Pools[k].HeldGuaranteed))
		}
		spends := bigs(len(p.Spends))
		for k := range p.Pools {
			if at := e.Pools[k].Spend; at >= 0 {
				spends[at].Add(spends[at], product2(wanted[k], int64(e.Pools[k].SpendPrice)))
			}
		}
		for at := range spends {
			if spends[at].Sub(spends[at], big.NewInt(int64(e.Spends[at]))); spends[at].Sign() < 0 {
				spends[at].SetInt64(0)
			}
		}
		s.guaranteed, s.discountOnly, s.spends = append(s.guaranteed, g), append(s.discountOnly, o), append(s.spends, spends)
	}
	return s
}

func product2(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// most is the saturation of a cover in an epoch.
func (s *saturation) most(k *Cover, m int) int64 {
	if k.Guaranteed {
		return s.guaranteed[m][k.Pool]
	}
	return s.discountOnly[m][k.Pool]
}

// useful is the number of units of a choice of which more are of no use.
func (p *Problem) useful(s *saturation, j int) int {
	c := &p.Choices[j]
	n := int64(c.least())
	per := func(most *big.Int, each int64) {
		v := new(big.Int).Add(most, big.NewInt(each-1))
		if v.Quo(v, big.NewInt(each)); !v.IsInt64() || v.Int64() > MaxUnits {
			n = MaxUnits
		} else {
			n = max(n, v.Int64())
		}
	}
	for i := range c.Cover {
		for m := c.Cover[i].From; m < c.Cover[i].To; m++ {
			per(big.NewInt(s.most(&c.Cover[i], m)), int64(c.Cover[i].Units))
		}
	}
	for _, k := range c.Spend {
		for m := k.From; m < k.To; m++ {
			per(s.spends[m][k.Spend], int64(k.PerHour))
		}
	}
	lot := int64(c.Lot)
	n = (n + lot - 1) / lot * lot
	return int(min(n, int64(c.most()/c.Lot*c.Lot)))
}

// worths is what units of a choice are worth at a proof's slopes: a sum of terms, each of which
// grows with the units up to a saturation. All are times One, 10⁹ and the problem's weight.
type worths []worthTerm

type worthTerm struct {
	slope *big.Int // of one unit
	each  *big.Int // capacity or spend of one unit
	most  *big.Int // saturation
}

// of is the worth of n units.
func (w worths) of(n int) *big.Int {
	sum, units := new(big.Int), big.NewInt(int64(n))
	for i := range w {
		t := &w[i]
		have := new(big.Int).Mul(t.each, units)
		if have.Cmp(t.most) > 0 {
			have.Set(t.most)
		}
		sum.Add(sum, have.Mul(have, t.slope))
	}
	return sum
}

// least is the smallest value of n·cost − of(n) for multiples n of a lot from low to high. It
// returns false if there is none.
func (w worths) least(cost *big.Int, low, high, lot int) (*big.Int, bool) {
	at := func(n int) *big.Int {
		v := new(big.Int).Mul(cost, big.NewInt(int64(n)))
		return v.Sub(v, w.of(n))
	}
	slope := new(big.Int).Set(cost) // beyond the units looked at
	type stop struct {
		units int // the most without saturation
		rises *big.Int
	}
	var stops []stop
	for i := range w {
		t := &w[i]
		rises := new(big.Int).Mul(t.each, t.slope)
		slope.Sub(slope, rises)
		n := new(big.Int).Quo(t.most, t.each)
		units := MaxUnits
		if n.IsInt64() && n.Int64() < MaxUnits {
			units = int(n.Int64())
		}
		stops = append(stops, stop{units, rises})
	}
	if slope.Sign() >= 0 {
		return at(low), true
	}
	slices.SortFunc(stops, func(a, b stop) int { return a.units - b.units })
	for _, x := range stops {
		slope.Add(slope, x.rises)
		if slope.Sign() < 0 {
			continue
		}
		// The value is convex in the units, and falls up to here: it is smallest beside here.
		n := max(low, x.units/lot*lot)
		if high != procurement.Unlimited {
			n = min(n, high)
		}
		least := at(n)
		if n+lot <= high || high == procurement.Unlimited {
			if v := at(n + lot); v.Cmp(least) < 0 {
				least = v
			}
		}
		return least, true
	}
	if high == procurement.Unlimited {
		return nil, false
	}
	return at(high), true
}
