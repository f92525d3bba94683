package joint

import (
	"cmp"
	"slices"
)

// polish tries one lot more or less of each choice while the slopes of the serving cost suggest
// that it pays. The cost is convex in units, so a slope bounds what a step can save.
func (s *solver) polish() error {
	if s.best.units == nil || s.spent() {
		return nil
	}
	p := s.p
	total := 0
	for _, k := range s.keys {
		total += len(s.blocks[k.block].views[k.epoch][k.c].hours)
	}
	end := s.work.Slots + polishRounds*total
	// Under limits, at the multipliers that currently keep them.
	multipliers := s.best.multipliers
	price := make([]float64, len(p.Choices))
	for _, j := range s.part.Choices {
		price[j] = float64(p.Choices[j].Cost) * float64(p.Weight)
		for l, v := range p.Choices[j].Spent {
			at := float64(multipliers[l])
			if !p.Limits[l].counts() {
				at /= 1e9
			}
			price[j] += float64(float64(at*float64(v)) * float64(p.Weight))
		}
	}
	units := slices.Clone(s.best.units)
	have := p.covers(units)
	byEpoch := map[[2]int][]caseKey{} // by block and epoch
	now := map[caseKey]*cut{}
	values := map[caseKey]float64{}
	priced := func(k caseKey, have *cover) (*cut, float64, error) {
		pd, err := s.pr.price(s.ctx, k.block, k.epoch, k.c, multipliers, have, nil)
		if err != nil {
			return nil, 0, err
		}
		return p.newCut(s.blocks, k, multipliers, pd), pd.value() * float64(p.Epochs[k.epoch].Cases[k.c].Weight), nil
	}
	var cuts []*cut
	for _, k := range s.keys {
		byEpoch[[2]int{k.block, k.epoch}] = append(byEpoch[[2]int{k.block, k.epoch}], k)
		c, v, err := priced(k, have)
		if err != nil {
			return err
		}
		now[k], values[k] = c, v
		cuts = append(cuts, c)
	}
	s.ms.add(cuts, s.blocks)
	blockOf := map[int]int{}
	place := map[int]int{}
	spendBlock, spendPlace := map[int]int{}, map[int]int{}
	for b := range s.blocks {
		for i, k := range s.blocks[b].Pools {
			blockOf[k], place[k] = b, i
		}
		for i, k := range s.blocks[b].Spends {
			spendBlock[k], spendPlace[k] = b, i
		}
	}
	touched := func(j int) [][2]int { // blocks and epochs
		var out [][2]int
		c := &p.Choices[j]
		for _, k := range c.Cover {
			for m := k.From; m < k.To; m++ {
				out = append(out, [2]int{blockOf[k.Pool], m})
			}
		}
		for _, k := range c.Spend {
			for m := k.From; m < k.To; m++ {
				out = append(out, [2]int{spendBlock[k.Spend], m})
			}
		}
		slices.SortFunc(out, func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) })
		return slices.Compact(out)
	}
	// reduced is the cost of one more unit, at the slopes.
	reduced := func(j int) float64 {
		c := &p.Choices[j]
		r := price[j]
		for _, k := range c.Cover {
			for m := k.From; m < k.To; m++ {
				for _, key := range byEpoch[[2]int{blockOf[k.Pool], m}] {
					v := now[key].beta[place[k.Pool]]
					if k.Guaranteed {
						v = now[key].pi[place[k.Pool]]
					}
					r -= float64(v * float64(k.Units))
				}
			}
		}
		for _, k := range c.Spend {
			for m := k.From; m < k.To; m++ {
				for _, key := range byEpoch[[2]int{spendBlock[k.Spend], m}] {
					r -= float64(now[key].rho[spendPlace[k.Spend]] * float64(k.PerHour))
				}
			}
		}
		return r
	}
	type move struct {
		choice, to int
		saves      float64
	}
	for changed := true; changed; {
		changed = false
		var moves []move
		for _, j := range s.part.Choices {
			c := &p.Choices[j]
			r := reduced(j)
			if r < 0 {
				if to := c.more(units[j]); to > 0 {
					moves = append(moves, move{j, to, -r * float64(to-units[j])})
				}
			} else if units[j] > 0 {
				to := units[j] - c.Lot
				if to < c.least() {
					to = 0
				}
				moves = append(moves, move{j, to, r * float64(units[j]-to)})
			}
		}
		slices.SortStableFunc(moves, func(a, b move) int { return cmp.Compare(b.saves, a.saves) })
		for _, mv := range moves {
			if mv.saves < 1e-8*s.best.value || s.work.Slots > end {
				break
			}
			before := units[mv.choice]
			if units[mv.choice] = mv.to; !s.may(units) {
				units[mv.choice] = before
				continue
			}
			next := p.covers(units)
			d := price[mv.choice] * float64(mv.to-before)
			cuts, vs := map[caseKey]*cut{}, map[caseKey]float64{}
			for _, at := range touched(mv.choice) {
				for _, k := range byEpoch[at] {
					c, v, err := priced(k, next)
					if err != nil {
						return err
					}
					d += v - values[k]
					cuts[k], vs[k] = c, v
				}
			}
			if d >= -1e-10*s.best.value {
				units[mv.choice] = before
				continue
			}
			changed = true
			for k, c := range cuts {
				now[k], values[k] = c, vs[k]
			}
		}
	}
	_, err := s.try(units)
	return err
}

// may reports whether units satisfy everything that can be checked without serving.
func (s *solver) may(units []int) bool {
	if !s.p.allows(units) {
		return false
	}
	if len(s.part.Needs) > 0 {
		have := s.p.covers(units)
		for _, n := range s.part.Needs {
			if !s.p.Needs[n].kept(s.p, have) {
				return false
			}
		}
	}
	if len(s.part.Limits) > 0 {
		bought := s.p.spent(units)
		for _, l := range s.part.Limits {
			if bought[l].Cmp(s.p.bound(l)) > 0 {
				return false
			}
		}
	}
	return true
}
