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
		return slices.Clone(replaced), nil
	}
	out := make([]int, 0, r.cal.hours[r.cal.n])
	if d.Hourly != nil {
		out = append(out, d.Hourly...)
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

func (d *demand) waits() bool { return d.DeferHours > 0 && d.DeferrableShare.IsPositive() }

// stated is what a demand wants in each hour as it comes, with its spares.
func (r *reading) stated(i, s int) ([]int, error) {
	out, err := r.came(&r.doc.Demands[i], &r.scenarios[s])
	if err != nil {
		return nil, err
	}
	_, err = r.withSpares(i, out)
	return out, err
}

// served is what has to be served of a demand in each hour, after its deferral and with its spares,
// which are returned by epoch too.
func (r *reading) served(i, s int) (units []int, spares []int64, err error) {
	return r.scheduled(i, s, r.doc.Demands[i].waits() && (r.best[i] || r.levelled))
}

func (r *reading) scheduled(i, s int, level bool) ([]int, []int64, error) {
	d := &r.doc.Demands[i]
	out, err := r.came(d, &r.scenarios[s])
	if err != nil {
		return nil, nil, err
	}
	if level {
		beside := make([]int, len(out))
		for j := range r.doc.Demands {
			other := &r.doc.Demands[j]
			if j == i || other.Pool != d.Pool {
				continue
			}
			load, _, err := r.scheduled(j, s, j < i && other.waits())
			if err != nil {
				return nil, nil, err
			}
			for h, n := range load {
				beside[h] += n
			}
		}
		share := int64(thousandths(d.DeferrableShare))
		for from := 0; from < len(out); from += d.DeferHours {
			to := min(from+d.DeferHours, len(out))
			levelOut(out[from:to], beside[from:to], share)
		}
	}
	spares, err := r.withSpares(i, out)
	return out, spares, err
}

// levelOut moves what may wait to the hour of the window, from its own on, in which least is wanted
// so far. What comes last is placed first.
func levelOut(window, beside []int, share int64) {
	load, waiting := make([]int, len(window)), make([]int, len(window))
	for h, n := range window {
		waiting[h] = int(int64(n) * share / 1000)
		load[h] = n - waiting[h] + beside[h]
	}
	for h := len(window) - 1; h >= 0; h-- {
		pour(load[h:], waiting[h])
	}
	for h := range window {
		window[h] = load[h] - beside[h]
	}
}

// pour adds n units, each to the first of the lowest levels.
func pour(load []int, n int) {
	if n == 0 {
		return
	}
	takes := func(level int) (sum int) {
		for _, x := range load {
			sum += max(0, level-x)
		}
		return sum
	}
	low := slices.Min(load)
	high := low + n // a single lowest hour takes no more
	for low < high {
		if mid := (low + high + 1) / 2; takes(mid) <= n {
			low = mid
		} else {
			high = mid - 1
		}
	}
	n -= takes(low)
	for i, x := range load {
		switch {
		case x > low:
		case n > 0:
			load[i] = low + 1
			n--
		default:
			load[i] = low
		}
	}
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
		for !enough(k+s, s, q, b.ServiceLevel) {
			if s++; k+s > 1_000_000 {
				return nil, fmt.Errorf("%d nodes need more than %d spare ones", k, s)
			}
		}
		out[k] = s
	}
	return out, nil
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

// known finds for which waiting demands the most level schedule is the best one (defer_hours).
func (r *reading) known() {
	r.best = make([]bool, len(r.doc.Demands))
	for _, g := range r.groups {
		waiting, best := -1, true
		spot := slices.ContainsFunc(g.pools, func(p int) bool { return r.doc.Pools[p].Spot != nil })
		for _, i := range g.demands {
			d, first := &r.doc.Demands[i], &r.doc.Demands[g.demands[0]]
			if d.waits() {
				best = best && waiting < 0 && d.Buffer == nil
				waiting = i
				for e := range r.cal.n {
					best = best && r.cal.hours[e]%int64(d.DeferHours) == 0
				}
			}
			if len(g.demands) > 1 {
				best = best && d.Pool == first.Pool && len(r.routes[i]) == 1 && d.Shortage.Equal(first.Shortage)
			}
			if spot {
				share := thousandths(d.Interruptible)
				best = best && (share == 0 || share == 1000) && share == thousandths(first.Interruptible)
			}
		}
		switch {
		case waiting < 0:
		case best:
			r.best[waiting] = true
		default:
			g.unproven = true
		}
	}
}
