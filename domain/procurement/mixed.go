package procurement

import (
	"math"
	"slices"
)

// mixed solves a pool in which the quota may bind discount-only commitments that compete with
// guaranteed units. The bound is that of the linear program, or close to it for a large pool; its
// prices become the certificate. The mix is the cheapest that flows make of its solution.
func (s *solver) mixed() {
	s.flow() // treats every unit as guaranteed: often that is enough
	switch {
	case s.best.cost == s.best.bound:
	case s.rows() > mostRows:
		s.large()
	default:
		s.simplex()
	}
}

// mostRows bounds the dense simplex: about 200 epochs that mix.
const mostRows = 600

func (s *solver) simplex() {
	s.best.algorithm = Linear
	l := s.linear()
	l.solve(20*len(l.vars) + 1000)
	s.work.Pivots += l.pivots
	s.prove(s.prices(l))
	s.wholes(l)
}

func (s *solver) large() {
	s.best.algorithm = Lagrange
	for _, guaranteed := range []bool{false, true} {
		s.improve(s.best.units, guaranteed)
	}
	s.ascend()
}

// rows returns the number of rows of the linear program.
func (s *solver) rows() int {
	n := len(s.epochs)
	for _, mixes := range s.mixes {
		if mixes {
			n += 2
		}
	}
	return n
}

// linear states the relaxation. Let cover be the bought units that cover an epoch, guaranteed those
// of them that are guaranteed, and t and g the points at which the two curves are evaluated. A
// mixed epoch has the rows
//
//	t + slack        = held discount-only + cover
//	g                = guaranteed
//	t + slack        = quota + guaranteed
//
// (t, g and guaranteed do not include the guaranteed units held). Any other epoch has t = cover,
// with t on the curve of the flow.
func (s *solver) linear() *program {
	epochs := len(s.epochs)
	mixed := make([]int, epochs+1) // preceding epochs that mix
	for m, mixes := range s.mixes {
		mixed[m+1] = mixed[m]
		if mixes {
			mixed[m+1]++
		}
	}
	n := mixed[epochs]
	p := &program{rows: epochs + 2*n}
	p.rhs, p.basic = make([]float64, p.rows), make([]int, p.rows)
	p.price, p.column = make([]float64, p.rows), make([]float64, p.rows)

	scale := s.scale()
	for _, a := range s.arcs {
		v := variable{slope: []float64{float64(a.cost) / scale}, from: []float64{0}, upper: math.Inf(1), row: -1}
		if a.max != Unlimited {
			v.upper = float64(a.max)
		}
		v.blocks[0] = block{a.from, a.to, -1}
		rows := a.to - a.from
		if a.guaranteed {
			v.blocks[1] = block{epochs + mixed[a.from], epochs + mixed[a.to], -1}
			v.blocks[2] = block{epochs + n + mixed[a.from], epochs + n + mixed[a.to], -1}
			rows += 2 * (mixed[a.to] - mixed[a.from])
		}
		v.weight = 1 / math.Sqrt(float64(1+rows))
		p.vars = append(p.vars, v)
	}
	add := func(c curve, basicIn int, blocks ...block) {
		v := variable{upper: math.Inf(1), row: -1, weight: 0.7}
		for i, at := range c.from {
			v.from = append(v.from, float64(at))
			v.slope = append(v.slope, -float64(c.saves[i])/scale)
		}
		copy(v.blocks[:], blocks)
		if basicIn >= 0 {
			p.basic[basicIn], v.row = len(p.vars), basicIn
		}
		p.vars = append(p.vars, v)
	}
	none := newCurve(nil)
	for m := range s.epochs {
		if !s.mixes[m] {
			add(s.curve(m), m, block{m, m + 1, 1})
			continue
		}
		e, c := &s.epochs[m], &s.costs[m]
		second, third := epochs+mixed[m], epochs+n+mixed[m]
		p.rhs[m], p.rhs[third] = float64(e.HeldDiscountOnly), float64(c.quota)
		// At first nothing is bought, and the smaller of the two bounds t.
		bySecond, byThird := m, third
		slackFirst, slackThird := -1, third
		if e.HeldDiscountOnly > c.quota {
			bySecond, slackFirst, slackThird = byThird, m, -1
		}
		total, guaranteed := c.parts(e.HeldGuaranteed)
		add(total, bySecond, block{m, m + 1, 1}, block{third, third + 1, 1})
		add(guaranteed, second, block{second, second + 1, 1})
		add(none, slackFirst, block{m, m + 1, 1})
		add(none, slackThird, block{third, third + 1, 1})
	}
	p.start()
	return p
}

// start finds the pieces on which the first basis stands.
func (p *program) start() {
	p.factor()
	for _, j := range p.basic {
		v := &p.vars[j]
		for v.piece+1 < len(v.from) && v.from[v.piece+1] <= v.value {
			v.piece++
		}
	}
}

// scale makes the steepest slope 1.
func (s *solver) scale() float64 {
	steepest := Nano(1)
	for m := range s.epochs {
		steepest = max(steepest, s.most(m))
	}
	return float64(steepest)
}

// prices reads the certificate from the prices of the rows.
func (s *solver) prices(p *program) Certificate {
	epochs := len(s.epochs)
	c := Certificate{make([]Nano, epochs), make([]Nano, epochs)}
	scale := s.scale()
	nano := func(m int, y float64) Nano {
		most := s.most(m)
		return min(Nano(min(max(math.RoundToEven(-y*scale), 0), float64(most))), most)
	}
	n := (p.rows - epochs) / 2
	k := epochs
	for m := range s.epochs {
		c.Cover[m] = nano(m, p.price[m])
		switch {
		case s.mixes[m]:
			c.Guarantee[m] = nano(m, p.price[k]+p.price[k+n])
			k++
		case s.kinds[m].discountOnly && !s.kinds[m].guaranteed:
			c.Guarantee[m] = max(0, s.most(m)-c.Cover[m])
		}
	}
	return c
}

// wholes makes integral mixes of a fractional one and improves each.
func (s *solver) wholes(p *program) {
	for _, add := range []float64{1e-6, 0.5, 1 - 1e-6} {
		units := make([]int, len(s.arcs))
		for i, a := range s.arcs {
			units[i] = max(0, int(math.Floor(p.vars[i].value+add)))
			if a.max != Unlimited {
				units[i] = min(units[i], a.max)
			}
		}
		s.offer(units)
		for _, guaranteed := range []bool{false, true} {
			if s.best.cost == s.best.bound {
				return
			}
			s.improve(units, guaranteed)
		}
	}
	s.nudge(p)
}

// nudge changes one purchase of the best mix and re-optimises the rest: first purchases that are
// fractional in the linear program, to the integers below and above, then every one by a unit.
func (s *solver) nudge(p *program) {
	before := s.work.Flows
	try := func(i, n int) {
		a := &s.arcs[i]
		if n < 0 || a.max != Unlimited && n > a.max || s.best.units[i] == n ||
			s.best.cost == s.best.bound || s.work.Flows-before > mostFlows {
			return
		}
		units := slices.Clone(s.best.units)
		units[i] = n
		s.improve(units, !a.guaranteed)
	}
	for i := range s.arcs {
		x := p.vars[i].value
		if low := math.Floor(x); x-low > 1e-6 && low+1-x > 1e-6 {
			try(i, int(low))
			try(i, int(low)+1)
		}
	}
	for i := range s.arcs {
		try(i, s.best.units[i]-1)
		try(i, s.best.units[i]+1)
	}
}

// mostFlows bounds the work of nudge.
const mostFlows = 400

// improve alternately optimises the purchases of one kind given those of the other, while that
// reduces the cost.
func (s *solver) improve(units []int, guaranteed bool) {
	units = slices.Clone(units)
	for range 8 {
		s.rest(units, guaranteed)
		better := s.offer(units)
		guaranteed = !guaranteed
		s.rest(units, guaranteed)
		if !s.offer(units) && !better {
			return
		}
		guaranteed = !guaranteed
	}
}

// rest replaces the purchases of one kind by the best ones given the others.
func (s *solver) rest(units []int, guaranteed bool) {
	for i := range units {
		if s.arcs[i].guaranteed == guaranteed {
			units[i] = 0
		}
	}
	curves := make([]curve, len(s.epochs))
	for m, h := range s.have(units) {
		if guaranteed {
			curves[m] = s.costs[m].byGuaranteed(h.guaranteed, h.discountOnly)
		} else {
			curves[m] = s.costs[m].byDiscountOnly(h.guaranteed, h.discountOnly)
		}
	}
	s.run(curves, func(a *purchase) bool { return a.guaranteed == guaranteed })
	for i := range units {
		if s.arcs[i].guaranteed == guaranteed {
			units[i] = s.net.arcs[i].units
		}
	}
}
