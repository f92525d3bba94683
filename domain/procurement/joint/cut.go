package joint

import (
	"errors"
	"math"
	"math/big"
	"slices"
)

// spot is the point at which a block was last priced in a case.
type spot struct {
	at          []int64
	multipliers []int64
	value       float64
	cut         *cut
}

// at lists what a block has in a case.
func (s *solver) at(k caseKey, have *cover) []int64 {
	var out []int64
	b := s.blocks[k.block]
	for _, i := range b.Pools {
		out = append(out, have.guaranteed[k.epoch][i], have.discountOnly[k.epoch][i])
	}
	for _, i := range b.Spends {
		out = append(out, have.spends[k.epoch][i])
	}
	return append(out, have.grid)
}

// value is the approximate cost of serving at the regime's prices.
func (pd *priced) value() float64 {
	sum := 0.0
	n := len(pd.rows)
	for at, e := range pd.entries {
		x := 0.0
		for k, v := range pd.r {
			x += float64(e.value[k] * float64(v))
		}
		x *= float64(pd.hours[at])
		for k, row := range pd.rows {
			x += float64(e.value[row] * float64(pd.sums[at*n+k]))
		}
		sum += x / float64(pd.grid)
	}
	return sum
}

// spread is what units, in fractions of the grid, cover in the master (see [covered]).
func (s *solver) spread(units []int64) *cover {
	p, useful := s.p, s.useful
	out := p.cover(make([]int64, len(units)), s.grid)
	for j, x := range units {
		if x == 0 {
			continue
		}
		c := &p.Choices[j]
		n := int64(max(c.least(), s.lows[j]))
		for i := range c.Cover {
			k := &c.Cover[i]
			to := out.discountOnly
			if k.Guaranteed {
				to = out.guaranteed
			}
			for m := k.From; m < k.To; m++ {
				v := min(scale(x, int64(k.Units), 1), scale(x, useful.most(k, m), n))
				to[m][k.Pool] = min(farBeyond, to[m][k.Pool]+min(farBeyond, v))
			}
		}
		for _, k := range c.Spend {
			for m := k.From; m < k.To; m++ {
				v := scale(x, int64(k.PerHour), 1)
				if most := useful.spends[m][k.Spend]; most.IsInt64() {
					v = min(v, scale(x, most.Int64(), n))
				}
				out.spends[m][k.Spend] = min(farBeyond, out.spends[m][k.Spend]+min(farBeyond, v))
			}
		}
	}
	return out
}

// query prices all slots with what units cover. It returns the cost (times the weight, in Nano),
// including the multipliers' part for what serving may take of limits, and the resulting cuts.
func (s *solver) query(units []float64, multipliers []int64) (float64, []*cut, error) {
	x := make([]int64, len(units))
	value := 0.0
	for j, v := range units {
		x[j] = int64(math.Round(v * float64(s.grid)))
		value += float64(float64(float64(x[j])/float64(s.grid)*float64(s.p.Choices[j].Cost)) * float64(s.p.Weight))
	}
	have := s.spread(x)
	var cuts []*cut
	for _, k := range s.keys {
		at := s.at(k, have)
		if o := s.seen[k]; o != nil && slices.Equal(o.at, at) && slices.Equal(o.multipliers, multipliers) {
			value += o.value
			cuts = append(cuts, o.cut)
			continue
		}
		pd, err := s.pr.price(s.ctx, k.block, k.epoch, k.c, multipliers, have, nil)
		if err != nil {
			return 0, nil, err
		}
		v := float64(pd.value() * float64(s.p.Epochs[k.epoch].Cases[k.c].Weight))
		o := &spot{at, multipliers, v, s.p.newCut(s.blocks, k, multipliers, pd)}
		s.seen[k] = o
		value += v
		cuts = append(cuts, o.cut)
	}
	return value, cuts, nil
}

// cut alternates between solving the master under a path and adding cuts, until the gap is small or
// the given number of rounds is reached.
func (s *solver) cut(path []Turn, rounds int) (*answer, error) {
	p := s.p
	s.lows = p.lows(path)
	s.center.units, s.center.value = nil, math.Inf(1)
	var a *answer
	before, still := math.Inf(-1), 0
	for round := 0; ; round++ {
		next, err := s.ms.solve(s.ctx, s.lp, path)
		if err != nil && a != nil && s.ctx.Err() == nil && !errors.Is(err, errImpossible) {
			return a, nil // the solver found nothing: the previous result still holds
		} else if err != nil {
			return nil, err
		}
		a = next
		if len(path) == 0 && len(s.nodes) == 0 {
			s.root = a
		}
		if a.bound > before+float64(1e-7*math.Abs(before)) || p.keeping {
			still = 0
		} else {
			still++
		}
		before = max(before, a.bound)
		near := s.center.units != nil && s.center.value-a.bound <= closeEnough*s.center.value
		if round == rounds || still > 8 || near || s.spent() {
			return a, nil
		}
		if round == doubtRounds && len(path) == 0 && len(s.serving) > 0 && !s.kept && !p.keeping {
			if err := s.doubt(); err != nil {
				return nil, err
			}
		}
		if p.keeping {
			if done, err := s.settled(a); done || err != nil {
				return a, err
			}
		}
		multipliers := s.multipliers(a)
		// Halfway to the best, and if that gives nothing new, at the solution itself.
		halfway := s.center.units != nil && still%3 != 2
		var cuts []*cut
		for {
			x := make([]float64, len(p.Choices))
			for j, v := range a.units {
				if x[j] = v; halfway {
					x[j] = (v + s.center.units[j]) / 2
				}
			}
			var value float64
			if value, cuts, err = s.ask(x, multipliers); err != nil {
				return nil, err
			}
			if value < s.center.value {
				s.center.units, s.center.value = x, value
			}
			if len(s.ms.broken(cuts, s.blocks, a)) > 0 {
				break
			} else if !halfway {
				return a, nil // the estimate equals the cost
			}
			halfway = false
		}
		s.ms.forget(a, longIdle)
		s.ms.add(cuts, s.blocks)
	}
}

// multipliers are those of limits in the master's solution that serving takes of.
func (s *solver) multipliers(a *answer) []int64 {
	out := s.ms.multipliers(a)
	for l := range out {
		if s.p.Limits[l].Serving == nil {
			out[l] = 0
		} else {
			out[l] = min(out[l], s.p.highest(l))
		}
	}
	return out
}

// ask prices all slots with what units cover, under the limits if serving takes of any; see query.
func (s *solver) ask(units []float64, multipliers []int64) (float64, []*cut, error) {
	if len(s.serving) > 0 {
		return s.dearer(units, multipliers)
	}
	return s.query(units, multipliers)
}

// dearer looks for the multipliers that maximise the cost of serving x less the price of what the
// limits leave for it: the cost under the limits. It begins at the given multipliers. It returns
// the cost of the best mix of ways, and the cuts of its ways and of the multipliers that give the
// best bound on any mix.
func (s *solver) dearer(x []float64, multipliers []int64) (float64, []*cut, error) {
	p := s.p
	scaled := make([]int64, len(x))
	room := make([]*big.Rat, len(p.Limits))
	for l := range room {
		room[l] = p.bound(l)
	}
	value := 0.0
	for j, v := range x {
		n := int64(math.Round(v * float64(s.grid)))
		if scaled[j] = n; n == 0 {
			continue
		}
		value += float64(float64(float64(n)/float64(s.grid)*float64(p.Choices[j].Cost)) * float64(p.Weight))
		for l, of := range p.Choices[j].Spent {
			if of != 0 {
				d := product(n, int64(of), int64(p.Weight))
				room[l].Sub(room[l], d.Mul(d, big.NewRat(1, s.grid)))
			}
		}
	}
	for l := range room {
		if room[l].Sign() < 0 {
			room[l].SetInt64(0)
		}
	}
	have := s.spread(scaled)
	m, err := p.mixed(room, multipliers, dearerRounds*len(s.serving), closeEnough/10,
		func(multipliers []int64) (*outcome, error) {
			var cuts []*cut
			o, err := p.outcome(s.ctx, s.pr, multipliers, have, func(k caseKey, pd *priced) {
				at := s.at(k, have)
				o := s.seen[k]
				if o == nil || !slices.Equal(o.at, at) || !slices.Equal(o.multipliers, multipliers) {
					o = &spot{at, multipliers, pd.value() * float64(p.Epochs[k.epoch].Cases[k.c].Weight),
						p.newCut(s.blocks, k, multipliers, pd)}
					s.seen[k] = o
				}
				cuts = append(cuts, o.cut)
			})
			if err == nil {
				o.cuts = cuts
			}
			return o, err
		})
	if err != nil {
		return 0, nil, err
	}
	cuts := m.bound.cuts
	for _, o := range m.of {
		if o != m.bound {
			cuts = append(cuts, o.cuts...)
		}
	}
	s.kept = s.kept || m.kept
	mixed, _ := m.value.Float64()
	return value + mixed, cuts, nil
}
