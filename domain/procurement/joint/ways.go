package joint

import (
	"context"
	"math/big"
	"slices"
)

// If the cheapest serving would exceed a limit, each hour is served by a mix of the cheapest
// servings at different multipliers of the limits. The cheapest mix of all known ways is a small
// linear program, whose prices are the multipliers of the next way (column generation, Dantzig and
// Wolfe, 1960). The cost of serving at multipliers, less their price for what is left of the
// limits, is a lower bound of any mix and tells when to stop.

const (
	mixRounds = 60      // ways tried
	mixClose  = 1e-10   // of the cost
	mixGrain  = 1 << 20 // of a unit of a limit, to which use is rounded up
)

// outcome is the result of serving at some multipliers, times the problem's weight.
type outcome struct {
	multipliers []int64
	cost        *big.Rat
	took        []*big.Rat // by limit, without what purchases take
	cuts        []*cut     // if the master asked for them
}

// outcome serves the demand of all the pricer's blocks; see receives what was priced.
func (p *Problem) outcome(
	ctx context.Context, pr *pricer, multipliers []int64, have *cover, see func(caseKey, *priced),
) (*outcome, error) {
	o := &outcome{multipliers: multipliers, cost: new(big.Rat), took: make([]*big.Rat, len(p.Limits))}
	for l := range p.Limits {
		o.took[l] = new(big.Rat)
	}
	for b := range pr.blocks {
		if len(pr.blocks[b].Demands) == 0 {
			continue
		}
		for m := range p.Epochs {
			for c := range p.Epochs[m].Cases {
				if len(pr.blocks[b].views[m][c].hours) == 0 {
					continue
				}
				pd, err := pr.price(ctx, b, m, c, multipliers, have, nil)
				if err != nil {
					return nil, err
				}
				if see != nil {
					see(caseKey{b, m, c}, pd)
				}
				if !p.keeping {
					v := p.money(pr.blocks[b], pd, m)
					o.cost.Add(o.cost, v.Mul(v, product(int64(p.Epochs[m].Cases[c].Weight))))
				}
				for l := range p.Limits {
					if s := p.Limits[l].Serving; s != nil && s[m] != 0 {
						o.took[l].Add(o.took[l], p.taken(pr.blocks[b], pd, m, c, l))
					}
				}
			}
		}
	}
	return o, nil
}

// mixture is the cheapest mix of outcomes.
type mixture struct {
	of     []*outcome
	shares []*big.Rat
	prices []*big.Rat // by limit, for one more of it
	value  *big.Rat   // including the excess over limits at the highest price
	bound  *outcome   // the outcome whose multipliers give the best lower bound of any mix
	kept   bool       // all limits
}

// inUnits converts a multiplier to a price, in Nano per Nano or per unit-hour.
func (l *Limit) inUnits(multiplier int64) *big.Rat {
	if l.counts() {
		return new(big.Rat).SetInt64(multiplier)
	}
	return big.NewRat(multiplier, 1_000_000_000)
}

// mixed finds the cheapest mix of ways within the room of the limits, beginning at the given
// multipliers.
func (p *Problem) mixed(
	room []*big.Rat, start []int64, rounds int, closely float64, look func([]int64) (*outcome, error),
) (*mixture, error) {
	var serving []int
	high := make([]*big.Rat, len(p.Limits))
	for l := range p.Limits {
		if p.Limits[l].Serving != nil {
			serving = append(serving, l)
			high[l] = p.Limits[l].inUnits(p.highest(l))
		}
	}
	var known []*outcome
	var low *big.Rat // lower bound of any mix
	var lowest *outcome
	add := func(multipliers []int64) error {
		o, err := look(multipliers)
		if err != nil {
			return err
		}
		known = append(known, o)
		v := new(big.Rat).Set(o.cost)
		for _, l := range serving {
			d := new(big.Rat).Sub(o.took[l], room[l])
			v.Add(v, d.Mul(d, p.Limits[l].inUnits(multipliers[l])))
		}
		if low == nil || v.Cmp(low) > 0 {
			low, lowest = v, o
		}
		return nil
	}
	if err := add(start); err != nil {
		return nil, err
	}
	// Where several ways cost the same, another implementation may choose a different one. So
	// multipliers keep a distance from such ties, each larger than the one before for ways that
	// take of several limits. All 0 is safe where nothing exceeds a limit.
	off := make([]int64, len(p.Limits))
	for i, l := range serving {
		off[l] = min(p.nudge(l)*[]int64{1, 7, 49}[i%3], p.highest(l))
	}
	if !slices.ContainsFunc(start, func(v int64) bool { return v != 0 }) {
		if !slices.ContainsFunc(serving, func(l int) bool { return known[0].took[l].Cmp(room[l]) > 0 }) {
			m := p.cheapest(known, serving, room, high)
			m.bound = lowest
			return m, nil
		}
		known = nil
		if err := add(off); err != nil {
			return nil, err
		}
	}
	for round := 0; ; round++ {
		m := p.cheapest(known, serving, room, high)
		next := slices.Clone(off)
		for _, l := range serving {
			if m.prices[l].Sign() <= 0 {
				continue
			}
			v := new(big.Rat).Set(m.prices[l])
			if !p.Limits[l].counts() {
				v.Mul(v, big.NewRat(1_000_000_000, 1))
			}
			next[l] = p.highest(l)
			if n := ceil(v); n.IsInt64() {
				next[l] = min(next[l], n.Int64()+off[l])
			}
		}
		gap, _ := new(big.Rat).Sub(m.value, low).Float64()
		value, _ := m.value.Float64()
		again := slices.ContainsFunc(known, func(o *outcome) bool { return slices.Equal(o.multipliers, next) })
		if round >= rounds || again || gap <= closely*value {
			m.bound = lowest
			return m, nil
		}
		if err := add(next); err != nil {
			return nil, err
		}
	}
}

// cheapest solves the small linear program: shares of outcomes that sum to one, the use of each
// limit, and the excess at the highest price. It is a simplex in fractions with Bland's rule. The
// use is rounded up before, because fractions over many hours are long.
func (p *Problem) cheapest(known []*outcome, serving []int, room, high []*big.Rat) *mixture {
	n, rows := len(known), len(serving)
	slack, missing, right := n, n+rows, n+2*rows
	grain := new(big.Rat).SetInt64(mixGrain)
	t := make([][]*big.Rat, rows+1) // the last is the objective
	for i := range t {
		t[i] = make([]*big.Rat, right+1)
		for j := range t[i] {
			t[i][j] = new(big.Rat)
		}
	}
	coarse := func(v *big.Rat) *big.Rat {
		z := new(big.Rat).SetInt(ceil(new(big.Rat).Mul(v, grain)))
		return z.Quo(z, grain)
	}
	// The first outcome's share is one less the others'.
	cost := t[rows]
	first := new(big.Rat).SetInt(ceil(known[0].cost))
	for k, o := range known {
		cost[k].Sub(new(big.Rat).SetInt(ceil(o.cost)), first)
	}
	cost[right].Neg(first)
	whole := make([]*big.Rat, right+1)
	for j := range whole {
		whole[j] = new(big.Rat)
	}
	for k := range n {
		whole[k].SetInt64(1)
	}
	whole[right].SetInt64(1)
	basis := []int{}
	for i, l := range serving {
		of := coarse(known[0].took[l])
		for k, o := range known {
			t[i][k].Sub(coarse(o.took[l]), of)
		}
		t[i][slack+i].SetInt64(1)
		t[i][missing+i].SetInt64(-1)
		t[i][right].Sub(room[l], of)
		cost[missing+i].Set(high[l])
		basis = append(basis, slack+i)
		if t[i][right].Sign() >= 0 {
			continue
		}
		basis[i] = missing + i
		for j := range t[i] {
			t[i][j].Neg(t[i][j])
		}
	}
	for i, l := range serving {
		if basis[i] == missing+i {
			less(cost, t[i], high[l])
		}
	}
	t = append(t[:rows:rows], whole, cost)
	basis = append(basis, 0)
	for {
		enter := -1
		for j := range right {
			if cost[j].Sign() < 0 {
				enter = j
				break
			}
		}
		if enter < 0 {
			break
		}
		leave := -1
		var step *big.Rat
		for i := range basis {
			if t[i][enter].Sign() <= 0 {
				continue
			}
			v := new(big.Rat).Quo(t[i][right], t[i][enter])
			if leave >= 0 {
				if d := v.Cmp(step); d > 0 || d == 0 && basis[i] > basis[leave] {
					continue
				}
			}
			leave, step = i, v
		}
		if leave < 0 { // shares are bounded, and excess costs
			break
		}
		by := new(big.Rat).Inv(t[leave][enter])
		for j := range t[leave] {
			t[leave][j].Mul(t[leave][j], by)
		}
		for i := range t {
			if i != leave && t[i][enter].Sign() != 0 {
				less(t[i], t[leave], new(big.Rat).Set(t[i][enter]))
			}
		}
		basis[leave] = enter
	}
	m := &mixture{prices: make([]*big.Rat, len(p.Limits)), value: new(big.Rat).Neg(cost[right]), kept: true}
	for l := range m.prices {
		m.prices[l] = new(big.Rat)
	}
	for i, l := range serving {
		m.prices[l].Set(cost[slack+i])
	}
	for k, o := range known {
		if i := slices.Index(basis, k); i >= 0 && t[i][right].Sign() > 0 {
			m.of, m.shares = append(m.of, o), append(m.shares, t[i][right])
		}
	}
	for i, j := range basis {
		if j >= missing && t[i][right].Sign() > 0 {
			m.kept = false
		}
	}
	return m
}

// less subtracts a multiple of another row from a row.
func less(row, other []*big.Rat, times *big.Rat) {
	times = new(big.Rat).Set(times)
	for j := range row {
		if other[j].Sign() != 0 {
			row[j].Sub(row[j], new(big.Rat).Mul(other[j], times))
		}
	}
}

// cost is the cost of the mix.
func (m *mixture) cost() *big.Rat {
	sum := new(big.Rat)
	for k, o := range m.of {
		sum.Add(sum, new(big.Rat).Mul(o.cost, m.shares[k]))
	}
	return sum
}

// ways are those of the mix.
func (m *mixture) ways() []Way {
	var out []Way
	for k, o := range m.of {
		out = append(out, Way{m.shares[k], o.multipliers})
	}
	return out
}

// multipliers are the mix's prices of limits.
func (m *mixture) multipliers(p *Problem) []int64 {
	out := make([]int64, len(p.Limits))
	for l, v := range m.prices {
		if v.Sign() <= 0 {
			continue
		}
		v = new(big.Rat).Set(v)
		if !p.Limits[l].counts() {
			v.Mul(v, big.NewRat(1_000_000_000, 1))
		}
		out[l] = p.highest(l)
		if n := ceil(v); n.IsInt64() {
			out[l] = min(out[l], n.Int64())
		}
	}
	return out
}

// keep finds the ways of serving that keep the limits; nil if serving takes of none. If no
// multipliers keep a limit, it comes as close as possible.
func (p *Problem) keep(ctx context.Context, pr *pricer, units []int) (*mixture, error) {
	if !slices.ContainsFunc(p.Limits, func(l Limit) bool { return l.Serving != nil }) {
		return nil, nil
	}
	have := p.covers(units)
	room := p.spent(units)
	for l := range room {
		room[l].Sub(p.bound(l), room[l])
	}
	return p.mixed(room, make([]int64, len(p.Limits)), mixRounds, mixClose, func(multipliers []int64) (*outcome, error) {
		return p.outcome(ctx, pr, multipliers, have, nil)
	})
}

// money is the cost of serving at prices without multipliers.
func (p *Problem) money(b *block, pd *priced, m int) *big.Rat {
	e := &p.Epochs[m]
	sum := new(big.Rat)
	for j, x := range pd.amounts() {
		if x.Sign() == 0 {
			continue
		}
		of := new(big.Int)
		switch k := &pd.regime.columns[j]; k.kind {
		case firmRoute, spotRoute:
			of.Mul(big.NewInt(int64(e.Routes[b.routes[k.of]])), big.NewInt(b.den[k.of]))
			if k.kind == spotRoute {
				of.Add(of, new(big.Int).Mul(big.NewInt(int64(e.Pools[b.Pools[b.poolOf[k.of]]].Spot)), big.NewInt(b.num[k.of])))
			}
		case onDemand:
			of.SetInt64(int64(e.Pools[b.Pools[k.of]].OnDemand))
		case shortage:
			of.SetInt64(int64(e.Shortage[b.Demands[k.of]]))
		}
		sum.Add(sum, x.Mul(x, new(big.Rat).SetInt(of)))
	}
	return sum
}
