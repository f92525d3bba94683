package joint

import (
	"cmp"
	"errors"
	"math"
	"math/big"
	"slices"
)

type leafNode struct {
	path  []Turn
	pf    *proof
	used  []*cut
	bound *big.Int
}

// each calls f with each cut that the proof uses, and its weight.
func (n *leafNode) each(f func(c *cut, weight int64)) {
	place, share := map[caseKey]int{}, map[caseKey]int{}
	for _, c := range n.used {
		at, ok := place[c.caseKey]
		if !ok {
			at = len(place)
			place[c.caseKey] = at
		}
		weight := n.pf.cases[at].shares[share[c.caseKey]].weight
		share[c.caseKey]++
		f(c, weight)
	}
}

// node is a leaf of the tree of branch and bound.
type node struct {
	leafNode
	answer *answer // of the master under the path; nil: it has no solution
	closed bool    // it is not branched any more
}

// low is approximately what the leaves prove.
func (s *solver) low() float64 {
	low := math.Inf(1)
	for _, n := range s.nodes {
		if n.bound != nil {
			v, _ := new(big.Float).SetInt(n.bound).Float64()
			low = min(low, v)
		}
	}
	return low
}

// near reports whether the gap between the best purchases and what is proven is at most a share of
// their cost.
func (s *solver) near(gap float64) bool {
	return s.best.units != nil && s.best.value-s.low() <= gap*s.best.value
}

// unlimited proves a bound without the limits, if the proof with them is weak, and keeps the better
// one.
func (s *solver) unlimited() error {
	if len(s.part.Limits) == 0 || s.best.units == nil || s.near(weakGap) {
		return nil
	}
	low := s.low()
	bounds := map[int]float64{}
	for l, row := range s.ms.limit {
		bounds[l], s.ms.rows[row].upper = s.ms.rows[row].upper, math.Inf(1)
	}
	serving := s.serving
	s.serving = nil
	a, err := s.cut(nil, cutRounds)
	var n leafNode
	if err == nil {
		n, err = s.prove(a, nil)
	}
	s.serving = serving
	for l, row := range s.ms.limit {
		s.ms.rows[row].upper = bounds[l]
	}
	if err != nil {
		return err
	}
	if v, _ := new(big.Float).SetInt(n.bound).Float64(); v > low {
		s.nodes[0].leafNode = n
	}
	return nil
}

// branch divides what may be bought, where the bound is lowest first, until the gap is small or the
// work runs out: a choice is bought or not, or at least or fewer units of it than a number between
// the master's. All nodes share their cuts.
func (s *solver) branch() error {
	s.gains = map[int]*gain{}
	for splits := 0; splits < maxSplits && !s.near(branchGap) && !s.spent(); {
		var n *node
		for _, m := range s.nodes {
			if !m.closed && m.bound != nil && (n == nil || m.bound.Cmp(n.bound) < 0) {
				n = m
			}
		}
		if n == nil || s.nodes.lowest().closed {
			return nil // what is left cannot raise the bound
		}
		turn, ok, err := s.split(n)
		if err != nil {
			return err
		}
		if !ok {
			n.closed = true
			continue
		}
		splits++
		if splits%improveEvery == 0 {
			if err := s.candidates(n.answer); err != nil {
				return err
			}
		}
		if splits%searchEvery == 0 && !s.near(weakGap) {
			if _, err := s.wholeMaster(n.answer); err != nil {
				return err
			}
		}
		// Both at once, so that the leaves are exhaustive whenever the search is stopped.
		var children [2]*node
		for k, bought := range []bool{true, false} {
			turn.Bought = bought
			if children[k], err = s.grow(n, turn); err != nil {
				return err
			}
		}
		*n = *children[0]
		s.nodes = append(s.nodes, children[1])
	}
	return nil
}

// tree is the leaves of branch and bound.
type tree []*node

// lowest is the first leaf of those with the lowest bound.
func (t tree) lowest() *node {
	var low *node
	for _, n := range t {
		if n.bound != nil && (low == nil || n.bound.Cmp(low.bound) < 0) {
			low = n
		}
	}
	return low
}

// grow makes a child of a node.
func (s *solver) grow(parent *node, turn Turn) (*node, error) {
	path := append(slices.Clone(parent.path), turn)
	a, err := s.tighten(path, leafRounds)
	switch {
	case err != nil && s.ctx.Err() == nil:
		if a, err = s.ms.missed(s.ctx, s.lp, path); err != nil && s.ctx.Err() == nil {
			a, err = nil, nil // what the parent proves remains
		}
	case err == nil && s.buyable(a):
		units := make([]int, len(s.p.Choices))
		for _, j := range s.part.Choices {
			units[j] = int(math.Round(a.units[j]))
		}
		_, err = s.try(units)
	}
	if err != nil {
		return nil, err
	}
	// What the parent proves holds for its children, and may be more than their own proof.
	inherited := *parent.pf
	inherited.path = path
	b, possible, err := inherited.bound()
	if err != nil {
		return nil, err
	}
	child := &node{leafNode: leafNode{path, &inherited, parent.used, b}, answer: a}
	if !possible {
		child.bound = nil
	} else if a != nil {
		own, err := s.prove(a, path)
		if err == nil && own.bound != nil && own.bound.Cmp(child.bound) > 0 {
			child.leafNode = own
		}
	}
	child.closed = a == nil || child.bound == nil
	return child, nil
}

// lows is, by choice, the units of which a path requires at least so many; 0 for none.
func (p *Problem) lows(path []Turn) []int {
	out := make([]int, len(p.Choices))
	for _, t := range path {
		if t.Bought {
			out[t.Choice] = max(out[t.Choice], t.Units)
		}
	}
	return out
}

// tighten solves the master under a path and adds the cuts that its solution violates, for a number
// of rounds or until the bound is above what the best purchases cost.
func (s *solver) tighten(path []Turn, rounds int) (*answer, error) {
	s.lows, s.center.units = s.p.lows(path), nil
	var a *answer
	for round := 0; ; round++ {
		next, err := s.ms.solve(s.ctx, s.lp, path)
		if err != nil {
			if a != nil && s.ctx.Err() == nil && !errors.Is(err, errImpossible) {
				return a, nil // the solver found nothing: the previous result still holds
			}
			return nil, err
		}
		small := a != nil && next.bound-a.bound <= 1e-5*math.Abs(next.bound)
		a = next
		if round == rounds || small || s.best.units != nil && a.bound >= s.best.value*(1-goodEnough) {
			return a, nil
		}
		x := make([]float64, len(s.p.Choices))
		for j, v := range a.units {
			x[j] = v
		}
		_, cuts, err := s.ask(x, s.multipliers(a))
		if err != nil {
			return nil, err
		}
		cuts = s.ms.broken(cuts, s.blocks, a)
		if len(cuts) == 0 {
			return a, nil
		}
		s.ms.forget(a, longIdle*10)
		s.ms.add(cuts, s.blocks)
	}
}

// buyable reports whether a solution buys what can be bought.
func (s *solver) buyable(a *answer) bool {
	for _, j := range s.part.Choices {
		lots := a.units[j] / float64(s.p.Choices[j].Lot)
		if math.Abs(lots-math.Round(lots)) > wholeEnough {
			return false
		}
	}
	return s.undecided(a) < 0
}

// gain is how much the bound rises by a unit that a choice is moved, up and down, with the number
// of times it was seen.
type gain struct {
	up, down   float64
	ups, downs int
}

// split chooses the turn at which a node is divided: a choice bought in less than its least order
// or beside another of its group; then the choice whose division is likely to raise both bounds the
// most, by what earlier divisions have shown or by trying (Achterberg, Koch and Martin, 2005, on
// reliability branching). It returns false if the node's solution can be bought as it is.
func (s *solver) split(n *node) (Turn, bool, error) {
	if j := s.undecided(n.answer); j >= 0 {
		return Turn{Choice: j}, true, nil
	}
	type candidate struct {
		choice, units int
		up, down      float64 // distances
		first         float64
	}
	var of []candidate
	for _, j := range s.part.Choices {
		c := &s.p.Choices[j]
		lots := n.answer.units[j] / float64(c.Lot)
		down := lots - math.Floor(lots)
		if math.Abs(lots-math.Round(lots)) <= wholeEnough {
			continue
		}
		of = append(of, candidate{
			j, int(math.Ceil(lots)) * c.Lot, 1 - down, down, min(down, 1-down) * float64(c.Lot) * float64(c.Cost),
		})
	}
	if len(of) == 0 {
		return Turn{}, false, nil
	}
	slices.SortStableFunc(of, func(a, b candidate) int { return cmp.Compare(b.first, a.first) })
	best, most, tried := 0, -1.0, 0
	for i := range of {
		x := &of[i]
		g := s.gains[x.choice]
		if g == nil {
			g = &gain{}
			s.gains[x.choice] = g
		}
		if (g.ups == 0 || g.downs == 0) && tried < strongTries {
			tried++
			for _, bought := range []bool{true, false} {
				a, err := s.ms.solve(s.ctx, s.lp, append(slices.Clone(n.path), Turn{x.choice, bought, x.units}))
				rise := s.best.value - n.answer.bound
				if s.best.units == nil {
					rise = math.Abs(n.answer.bound)
				}
				if err == nil {
					rise = max(0, a.bound-n.answer.bound)
				} else if s.ctx.Err() != nil {
					return Turn{}, false, err
				}
				if bought {
					g.see(&g.up, &g.ups, rise/x.up)
				} else {
					g.see(&g.down, &g.downs, rise/x.down)
				}
			}
		}
		up, down := float64(g.up*x.up), float64(g.down*x.down)
		if g.ups == 0 || g.downs == 0 {
			continue
		}
		tiny := 1e-9 * math.Abs(n.answer.bound)
		if score := max(up, tiny) * max(down, tiny); score > most {
			best, most = i, score
		}
	}
	return Turn{Choice: of[best].choice, Units: of[best].units}, true, nil
}

// see adds a rise to a mean.
func (g *gain) see(mean *float64, n *int, rise float64) {
	*n++
	*mean += (rise - *mean) / float64(*n)
}

// prove makes a proof of a solution of the master.
func (s *solver) prove(a *answer, path []Turn) (leafNode, error) {
	pf, used := s.ms.prove(a, s.blocks, path)
	b, possible, err := pf.bound()
	if err != nil || !possible {
		b = nil
	}
	return leafNode{path, pf, used, b}, err
}

// undecided returns a choice of which the solution buys less than the least order, or another of
// whose group it also buys; −1 if there is none.
func (s *solver) undecided(a *answer) int {
	p := s.p
	best, most := -1, 0.0
	group := map[string]int{}
	for _, j := range s.part.Choices {
		if a.units[j] > 1e-6 && p.Choices[j].Group != "" {
			group[p.Choices[j].Group]++
		}
	}
	for _, j := range s.part.Choices {
		c := &p.Choices[j]
		x := a.units[j]
		if x <= 1e-6 || (x >= float64(c.Least)-1e-6 && group[c.Group] < 2) {
			continue
		}
		if v := x * float64(c.Cost); best < 0 || v > most {
			best, most = j, v
		}
	}
	return best
}

// write puts the proof and its prices into the solution.
func (s *solver) write(out *Solution) error {
	p := s.p
	s.ms.write(s.nodes)
	least := s.nodes.lowest()
	if least == nil {
		return s.clash()
	}
	s.work.Leaves += len(s.nodes)
	out.Bound.Add(out.Bound, least.bound)
	pf := least.pf
	_, slope := pf.sum()
	unit := new(big.Int).Mul(big.NewInt(One), giga)
	for _, j := range s.part.Choices {
		n := p.Choices[j].least()
		worth := pf.worth(j, &slope).of(n)
		out.Prices.Worth[j] = worth.Quo(worth, new(big.Int).Mul(unit, big.NewInt(int64(n))))
	}
	for i, n := range s.part.Needs {
		for k, v := range pf.needs[i] {
			out.Prices.Needs[n][k] = new(big.Int).Mul(big.NewInt(int64(v)), big.NewInt(int64(p.Weight)))
		}
	}
	for _, l := range s.part.Limits {
		out.Prices.Limits[l] = new(big.Int).Mul(big.NewInt(pf.limits[l]), big.NewInt(int64(p.Weight)))
	}
	least.each(func(c *cut, weight int64) {
		b := s.blocks[c.block]
		for i, q := range b.Quotas {
			sum := new(big.Int)
			for _, t := range c.tallies(b) {
				addTo(sum, t.worth.kappa[i], t.hours)
			}
			sum.Mul(sum, big.NewInt(weight)).Mul(sum, big.NewInt(int64(p.Epochs[c.epoch].Cases[c.c].Weight)))
			to := out.Prices.Quotas[q][c.epoch]
			to.Add(to, sum)
		}
	})
	for i := range s.part.Blocks {
		for _, q := range s.part.Blocks[i].Quotas {
			for _, v := range out.Prices.Quotas[q] {
				v.Quo(v, big.NewInt(One))
			}
		}
	}
	return nil
}
