package question

import (
	"fmt"
	"math/big"
	"slices"

	"quartermaster/domain"
)

func thousandths(share domain.Decimal) int { return int(share.Shift(3).IntPart()) }

// came is what a demand wants in each hour of a scenario, as it comes and without spares.
func (r *reading) came(d *demand, s *scenario) ([]int, error) {
	if replaced, ok := s.Hourly[d.ID]; ok {
		return replaced.wide(), nil
	}
	var out []int
	if d.Hourly != nil {
		out = d.Hourly.wide()
	} else {
		for _, curve := range d.Duration {
			for _, step := range slices.Backward(curve) { // the order decides nothing
				out = append(out, slices.Repeat([]int{step.Units}, step.Hours)...)
			}
		}
	}
	all, own := int64(1000), int64(1000)
	if s.Factor != 0 {
		all = int64(s.Factor)
	}
	if f, ok := s.Factors[d.ID]; ok {
		own = int64(f)
	}
	if all*own == 1_000_000 {
		return out, nil
	}
	factor, million := big.NewInt(all*own), big.NewInt(1_000_000)
	known := map[int]int{}
	for h, n := range out {
		m, ok := known[n]
		if !ok {
			x := new(big.Int).Mul(factor, big.NewInt(int64(n)))
			x.Add(x, big.NewInt(999_999)).Quo(x, million)
			if !x.IsInt64() || x.Int64() > 100_000_000 {
				return nil, fmt.Errorf("demand %q in scenario %q wants %s units in hour %d, more than 100000000", d.ID, s.ID, x, h)
			}
			m = int(x.Int64())
			known[n] = m
		}
		out[h] = m
	}
	return out, nil
}

func (u units) wide() []int {
	out := make([]int, len(u))
	for i, n := range u {
		out[i] = int(n)
	}
	return out
}

func (d *demand) waits() bool { return d.DeferHours > 0 && d.DeferrableShare.IsPositive() }

// wanted is what a demand wants in each hour as it comes, with its spares, which are returned by
// epoch too, and how much of it may wait; nil if nothing may.
func (r *reading) wanted(i, s int) (units, waits []int, spares []int64, err error) {
	d := &r.doc.Demands[i]
	if units, err = r.came(d, &r.scenarios[s]); err != nil {
		return nil, nil, nil, err
	}
	if d.waits() {
		share := int64(thousandths(d.DeferrableShare))
		for _, n := range units {
			waits = append(waits, int(int64(n)*share/1000))
		}
	}
	spares, err = r.withSpares(i, units)
	return units, waits, spares, err
}

// withSpares adds the spares for failures of nodes to each hour, and returns them by epoch; nil
// without a buffer.
func (r *reading) withSpares(i int, load []int) ([]int64, error) {
	d := &r.doc.Demands[i]
	if d.Buffer == nil {
		return nil, nil
	}
	perNode := max(1, d.Buffer.UnitsPerNode)
	var nodes []int
	for _, n := range load {
		if n > 0 {
			nodes = append(nodes, (n+perNode-1)/perNode)
		}
	}
	slices.Sort(nodes)
	spare, err := d.Buffer.spareNodes(slices.Compact(nodes))
	if err != nil {
		return nil, fmt.Errorf("demand %q: %w", d.ID, err)
	}
	out := make([]int64, r.cal.n)
	for e := range out {
		for h := r.cal.hours[e]; h < r.cal.hours[e+1]; h++ {
			if n := load[h]; n > 0 {
				more := spare[(n+perNode-1)/perNode] * perNode
				load[h] += more
				out[e] += int64(more)
			}
		}
	}
	return out, nil
}

// spareNodes returns, for numbers of nodes in use (ascending), the least numbers of spare ones that
// reach the service level. More nodes in use never need fewer spare ones.
func (b *buffer) spareNodes(nodes []int) (map[int]int, error) {
	gpus := whole(max(1, b.UnitsPerNode) * max(1, b.GPUsPerUnit))
	q := b.Failures.Mul(b.RepairHours).Mul(gpus).RoundCeil(18)
	if q.IsNegative() || q.Shift(1).GreaterThan(whole(5)) || !b.ServiceLevel.IsPositive() || !b.ServiceLevel.LessThan(one) {
		return nil, fmt.Errorf("a node is down %s of the time, and the service level is %s", q, b.ServiceLevel)
	}
	out := make(map[int]int, len(nodes))
	s := 0
	for _, k := range nodes {
		for !b.enough(k+s, s, q) {
			if s++; k+s > 1_000_000 {
				return nil, fmt.Errorf("%d nodes need more than %d spare ones", k, s)
			}
		}
		out[k] = s
	}
	return out, nil
}

// enough reports whether at most s of n nodes are down with the probability of the service level.
func (b *buffer) enough(n, s int, q domain.Decimal) bool {
	if b.Counted > 0 && !q.IsZero() {
		return counted(n, s, b.Counted, q, b.ServiceLevel)
	}
	return enough(n, s, q, b.ServiceLevel)
}

// counted reports whether P(X ≤ s) reaches a level, where X is negative binomial of shape r and mean
// nq. With odds o = nq/r, it is (1 + o)^−(r+s) times the sum over j ≤ s of
// C(r + j − 1, j)·o^j·(1 + o)^(s−j), which Horner's rule adds up.
func counted(n, s, r int, q, level domain.Decimal) bool {
	odds := new(big.Rat).Mul(q.Rat(), big.NewRat(int64(n), int64(r)))
	float := func(x *big.Rat) *big.Float { return new(big.Float).SetPrec(precision).SetRat(x) }
	o, all := float(odds), float(new(big.Rat).Add(odds, big.NewRat(1, 1)))
	sum, ways := number(1), number(1)
	for j := range s {
		ways.Mul(ways, o).Mul(ways, number(int64(r+j))).Quo(ways, number(int64(j+1)))
		sum.Mul(sum, all).Add(sum, ways)
	}
	power, base := number(1), new(big.Float).SetPrec(precision).Set(all)
	for k := r + s; k > 0; k >>= 1 {
		if k&1 == 1 {
			power.Mul(power, base)
		}
		base.Mul(base, base)
	}
	d := sum.Sub(sum.Quo(sum, power), float(level.Rat()))
	if d.Sign() == 0 || d.MantExp(nil) < -180 {
		return countedExactly(n, s, r, q.Rat(), level.Rat())
	}
	return d.Sign() > 0
}

// countedExactly is counted in whole numbers.
func countedExactly(n, s, r int, q, level *big.Rat) bool {
	odds := new(big.Rat).Mul(q, big.NewRat(int64(n), int64(r)))
	all := new(big.Rat).Add(odds, big.NewRat(1, 1))
	sum, ways, power := big.NewRat(1, 1), big.NewRat(1, 1), big.NewRat(1, 1)
	for j := range s {
		ways.Mul(ways, odds).Mul(ways, big.NewRat(int64(r+j), int64(j+1)))
		sum.Mul(sum, all).Add(sum, ways)
	}
	for range r + s {
		power.Mul(power, all)
	}
	return sum.Cmp(power.Mul(power, level)) >= 0
}

// enough reports whether P(Bin(n, q) ≤ s) reaches a level: in floating point of seventy digits, and
// in fractions where that is too close.
func enough(n, s int, q, level domain.Decimal) bool {
	if q.IsZero() {
		return true
	}
	float := func() *big.Float { return new(big.Float).SetPrec(precision) }
	down := float().SetRat(q.Rat())
	up := float().SetRat(one.Sub(q).Rat())
	odds := float().Quo(down, up)
	term, base := number(1), float().Set(up)
	for k := n; k > 0; k >>= 1 {
		if k&1 == 1 {
			term.Mul(term, base)
		}
		base.Mul(base, base)
	}
	sum := float().Set(term)
	for j := range s {
		term.Mul(term, odds).Mul(term, number(int64(n-j))).Quo(term, number(int64(j+1)))
		sum.Add(sum, term)
	}
	d := sum.Sub(sum, float().SetRat(level.Rat()))
	if d.Sign() == 0 || d.MantExp(nil) < -180 {
		return exactly(n, s, q.Rat(), level.Rat())
	}
	return d.Sign() > 0
}

func exactly(n, s int, q, level *big.Rat) bool {
	up := new(big.Rat).Sub(big.NewRat(1, 1), q)
	term := big.NewRat(1, 1)
	for range n {
		term.Mul(term, up)
	}
	sum := new(big.Rat).Set(term)
	for j := range s {
		term.Mul(term, q).Quo(term, up).Mul(term, big.NewRat(int64(n-j), int64(j+1)))
		sum.Add(sum, term)
	}
	return sum.Cmp(level) >= 0
}
