package joint

import (
	"errors"
	"math"
	"math/big"
	"slices"

	"quartermaster/domain/linear"
)

// whole solves the master in whole units if rounding left a large gap or found nothing. Each answer
// is evaluated, adds the cuts that it violates, and the master is solved again.
func (s *solver) whole(root *answer) error {
	begun := s.effort()
	for round := range wholeRounds {
		if s.effort()-begun > wholeWork || s.spent() {
			return nil
		}
		enough := wholeGap
		if len(s.part.Choices) > wholeMany {
			enough *= 2
		}
		if s.near(enough) {
			return nil
		}
		if round == 0 {
			s.ms.only(root)
		}
		before := s.best.value
		a, err := s.wholeMaster(root)
		if err != nil || a == nil || a.X == nil || s.best.units != nil && s.best.value <= a.bound*(1+closeEnough/10) {
			return err // the result is no better than the estimate
		}
		x := make([]float64, len(s.p.Choices))
		for j, v := range a.units {
			x[j] = math.Round(v)
		}
		_, cuts, err := s.ask(x, make([]int64, len(s.p.Limits)))
		if err != nil {
			return err
		}
		if s.ms.add(s.ms.broken(cuts, s.blocks, a), s.blocks) == 0 && s.best.value == before {
			return nil // it would give the same answer again
		}
	}
	return nil
}

// try evaluates units exactly, keeps the best, and reports whether they satisfy all needs and
// limits.
func (s *solver) try(units []int) (bool, error) {
	p := s.p
	s.work.Tried++
	s.pr.rounds = settling
	defer func() { s.pr.rounds = 0 }()
	if !p.allows(units) {
		return false, nil
	}
	have := p.covers(units)
	for _, n := range s.part.Needs {
		if !p.Needs[n].kept(p, have) {
			return false, nil
		}
	}
	bought := p.spent(units)
	for _, l := range s.part.Limits {
		if bought[l].Cmp(p.bound(l)) > 0 {
			return false, nil
		}
	}
	mix, err := p.keep(s.ctx, s.pr, units)
	if err != nil || mix != nil && !mix.kept {
		return false, err
	}
	cost := new(big.Rat)
	for j, x := range units {
		if x != 0 {
			cost.Add(cost, product(int64(p.Choices[j].Cost), int64(x), int64(p.Weight)))
		}
	}
	multipliers := make([]int64, len(p.Limits))
	if mix != nil {
		cost.Add(cost, mix.cost())
		multipliers = mix.multipliers(p)
	} else {
		for _, k := range s.keys {
			pd, err := s.pr.price(s.ctx, k.block, k.epoch, k.c, multipliers, have, nil)
			if err != nil {
				return false, err
			}
			c := pd.cost()
			cost.Add(cost, c.Mul(c, product(int64(p.Epochs[k.epoch].Cases[k.c].Weight))))
		}
	}
	if s.best.units == nil || cost.Cmp(s.best.cost) < 0 {
		s.best.units, s.best.cost, s.best.multipliers = slices.Clone(units), cost, multipliers
		s.best.value, _ = cost.Float64()
	}
	return true, nil
}

// candidates rounds a solution in several ways, repairs what rounding broke, and evaluates the
// results.
func (s *solver) candidates(a *answer) error {
	points := []map[int]float64{a.units}
	if s.center.units != nil {
		c := map[int]float64{}
		for _, j := range s.part.Choices {
			c[j] = s.center.units[j]
		}
		points = append(points, c)
	}
	for _, x := range points {
		for _, up := range []float64{0.5, 0.01, 0.8} {
			units := s.round(x, up)
			s.mend(units, x)
			if _, err := s.try(units); err != nil {
				return err
			}
		}
	}
	if s.best.units == nil && (len(s.part.Needs) > 0 || len(s.part.Limits) > 0) {
		_, err := s.wholeMaster(a)
		return err
	}
	return nil
}

// round makes lots of units whole, rounding up fractions of at least up, as least orders and groups
// allow.
func (s *solver) round(x map[int]float64, up float64) []int {
	p := s.p
	units := make([]int, len(p.Choices))
	most := map[string]int{} // by group: the choice bought most
	for _, j := range s.part.Choices {
		if g := p.Choices[j].Group; g != "" {
			if k, ok := most[g]; !ok || x[j]*float64(p.Choices[j].Cost) > x[k]*float64(p.Choices[k].Cost) {
				most[g] = j
			}
		}
	}
	for _, j := range s.part.Choices {
		c := &p.Choices[j]
		v := x[j]
		if c.Group != "" {
			if most[c.Group] != j {
				continue
			}
			for _, k := range s.part.Choices { // what it takes from the others
				if o := &p.Choices[k]; k != j && o.Group == c.Group && slices.Equal(o.Cover, c.Cover) {
					v += x[k]
				}
			}
		}
		lots := v / float64(c.Lot)
		n := int(math.Floor(lots+1-up)) * c.Lot
		if low := c.least(); n < low {
			n = 0
			if v >= up*float64(low) {
				n = low
			}
		}
		if high := c.most() / c.Lot * c.Lot; n > high {
			n = high
		}
		if n < c.least() {
			n = 0
		}
		units[j] = n
	}
	return units
}

// least is the smallest order.
func (c *Choice) least() int { return (max(1, c.Least) + c.Lot - 1) / c.Lot * c.Lot }

// more returns the next larger order, 0 if there is none.
func (c *Choice) more(n int) int {
	n = max(n+c.Lot, c.least())
	if n > c.most() {
		return 0
	}
	return n
}

// mend adds units until needs are met: of the choice that helps most for its cost, also considering
// what the solution wants of it.
func (s *solver) mend(units []int, x map[int]float64) {
	p := s.p
	for range 10_000 {
		have := p.covers(units)
		missing := map[[2]int]int64{} // by need and epoch
		for _, n := range s.part.Needs {
			need := &p.Needs[n]
			for _, m := range need.Epochs {
				left := int64(need.Least)
				for _, t := range need.Terms {
					left -= int64(t.PerUnit) * min(have.guaranteed[m][t.Pool]/have.grid, int64(need.Least))
				}
				if left > 0 {
					missing[[2]int{n, m}] = left
				}
			}
		}
		if len(missing) == 0 {
			return
		}
		best, most := -1, 0.0
		for _, j := range s.part.Choices {
			c := &p.Choices[j]
			next := c.more(units[j])
			if next == 0 || c.Group != "" && units[j] == 0 && slices.ContainsFunc(s.part.Choices, func(k int) bool {
				return units[k] > 0 && p.Choices[k].Group == c.Group
			}) {
				continue
			}
			added := int64(next - units[j])
			helps := 0.0
			for _, n := range s.part.Needs {
				for _, m := range p.Needs[n].Epochs {
					left := missing[[2]int{n, m}]
					if left <= 0 {
						continue
					}
					for _, k := range c.Cover {
						if k.Guaranteed && k.From <= m && m < k.To {
							for _, t := range p.Needs[n].Terms {
								if t.Pool == k.Pool {
									helps += float64(min(left, added*int64(k.Units)*int64(t.PerUnit)))
								}
							}
						}
					}
				}
			}
			if helps == 0 {
				continue
			}
			cost := float64(float64(c.Cost)*float64(added)) + 1
			if x[j] > float64(units[j]) {
				cost /= 4
			}
			if v := helps / cost; v > most {
				best, most = j, v
			}
		}
		if best < 0 {
			return
		}
		units[best] = p.Choices[best].more(units[best])
	}
}

// wholeMaster solves the master in whole units under the known cuts. With many choices it only
// considers units near those of a master solution and of the best so far (Danna, Rothberg and Le
// Pape, 2005, on relaxation-induced neighbourhoods).
func (s *solver) wholeMaster(root *answer) (*answer, error) {
	g, ok := s.ms.program(nil)
	if !ok {
		return nil, nil
	}
	if len(s.part.Choices) > wholeChoices && s.best.units != nil && root != nil {
		used := map[string]bool{} // groups of which either buys something
		for _, j := range s.part.Choices {
			if g := s.p.Choices[j].Group; g != "" && (s.best.units[j] > 0 || root.units[j] > wholeEnough) {
				used[g] = true
			}
		}
		for _, j := range s.part.Choices {
			c, col, x, have := &s.p.Choices[j], s.ms.choice[j], root.units[j], float64(s.best.units[j])
			if used[c.Group] {
				continue // it may be another of the group, such as a tier
			}
			lot := float64(c.Lot)
			low, high := math.Floor(x/lot+1e-6)*lot, math.Ceil(x/lot-1e-6)*lot
			if x < float64(c.least()) {
				low = 0
			}
			if x > 1e-6 {
				high = max(high, float64(c.least()))
			}
			g.Lower[col] = max(g.Lower[col], min(low, have))
			g.Upper[col] = min(g.Upper[col], max(high, have))
		}
	}
	s.p.makeWhole(g, s.part.Choices, s.ms.choice)
	sol, err := s.lp.Solve(s.ctx, g, linear.Limits{Nodes: wholeNodes, Gap: closeEnough, Checks: wholeChecks})
	if err != nil && s.ctx.Err() == nil && !errors.Is(err, linear.ErrUnavailable) {
		return &answer{Solution: &linear.Solution{Status: linear.Limited, Bound: math.Inf(-1)}}, nil // it found nothing
	} else if err != nil {
		return nil, err
	}
	s.ms.count(g, sol)
	if sol.X == nil {
		return &answer{Solution: sol}, nil
	}
	out := &answer{Solution: sol, units: map[int]float64{}, bound: sol.Objective * s.ms.unit}
	units := make([]int, len(s.p.Choices))
	for _, j := range s.part.Choices {
		out.units[j] = sol.X[s.ms.choice[j]]
		units[j] = int(math.Round(out.units[j]))
	}
	_, err = s.try(units)
	return out, err
}

// enough is the largest useful number of units of a choice: it covers by itself all demand that can
// come to its pools, all needs that it counts for, and all that can be spent, in every hour. It
// does not exceed what can be bought.
func (p *Problem) enough(j int, peaks [][]int64) int {
	c := &p.Choices[j]
	most := big.NewInt(int64(c.Least))
	// of returns how many units cover what is wanted, at each per unit.
	of := func(wanted *big.Int, each int64) {
		n := new(big.Int).Add(wanted, big.NewInt(each-1))
		if n.Quo(n, big.NewInt(each)).Cmp(most) > 0 {
			most = n
		}
	}
	for _, k := range c.Cover {
		for m := k.From; m < k.To; m++ {
			of(p.wanted(peaks[m], func(pool int) int64 {
				if pool == k.Pool {
					return 1
				}
				return 0
			}), int64(k.Units))
		}
		for i := range p.Needs {
			for _, t := range p.Needs[i].Terms {
				if t.Pool == k.Pool && k.Guaranteed {
					of(big.NewInt(int64(p.Needs[i].Least)), int64(t.PerUnit)*int64(k.Units))
				}
			}
		}
	}
	for _, k := range c.Spend {
		for m := k.From; m < k.To; m++ {
			of(p.wanted(peaks[m], func(pool int) int64 {
				if s := &p.Epochs[m].Pools[pool]; s.Spend == k.Spend {
					return int64(s.SpendPrice)
				}
				return 0
			}), int64(k.PerHour))
		}
	}
	lots := new(big.Int).Add(most, big.NewInt(int64(c.Lot-1)))
	lots.Quo(lots, big.NewInt(int64(c.Lot))).Mul(lots, big.NewInt(int64(c.Lot)))
	if !lots.IsInt64() || lots.Int64() > int64(c.most()) {
		return c.most()
	}
	return int(lots.Int64())
}

// peaks are the most units of each demand, by epoch.
func (p *Problem) peaks() [][]int64 {
	out := make([][]int64, len(p.Epochs))
	for m := range p.Epochs {
		out[m] = make([]int64, len(p.Demands))
		for c := range p.Epochs[m].Cases {
			for _, units := range p.most(&p.Epochs[m].Cases[c]) {
				for d, u := range units {
					out[m][d] = max(out[m][d], int64(u))
				}
			}
		}
	}
	return out
}

// wanted is the most that demand with these peaks can want of pools, each unit multiplied by each
// of its pool.
func (p *Problem) wanted(peak []int64, each func(pool int) int64) *big.Int {
	sum := new(big.Int)
	for _, r := range p.Routes {
		if n := each(r.Pool); n > 0 {
			v := new(big.Int).Mul(big.NewInt(n), big.NewInt((peak[r.Demand]*int64(r.Num)+int64(r.Den)-1)/int64(r.Den)))
			sum.Add(sum, v)
		}
	}
	return sum
}

// makeWhole adds the constraints of lots, least orders and groups to a program.
func (p *Problem) makeWhole(g *linear.Program, choices []int, column map[int]int) {
	g.Warm = nil
	g.Cost, g.Lower, g.Upper = slices.Clone(g.Cost), slices.Clone(g.Lower), slices.Clone(g.Upper)
	g.Whole = make([]bool, len(g.Cost))
	var rows []masterRow
	peaks := p.peaks()
	groups := map[string]int{}
	extra := func(upper float64) int {
		g.Cost, g.Lower, g.Upper, g.Whole = append(g.Cost, 0), append(g.Lower, 0), append(g.Upper, upper), append(g.Whole, true)
		return len(g.Cost) - 1
	}
	for _, j := range choices {
		c := &p.Choices[j]
		col := column[j]
		g.Whole[col] = true
		if c.Lot > 1 {
			r := masterRow{}
			r.put(col, 1)
			r.put(extra(math.Inf(1)), -float64(c.Lot))
			rows = append(rows, r)
		}
		if c.Least <= 1 && c.Group == "" {
			continue
		}
		b := extra(1)
		most := float64(p.enough(j, peaks))
		r := masterRow{lower: math.Inf(-1)}
		r.put(col, 1)
		r.put(b, -most)
		rows = append(rows, r)
		r = masterRow{upper: math.Inf(1)}
		r.put(col, 1)
		r.put(b, -float64(c.Least))
		rows = append(rows, r)
		if c.Group != "" {
			at, ok := groups[c.Group]
			if !ok {
				at = len(rows)
				groups[c.Group] = at
				rows = append(rows, masterRow{lower: math.Inf(-1), upper: 1})
			}
			rows[at].put(b, 1)
		}
	}
	appendRows(g, rows)
}
