package joint

import (
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

// low is approximately what the leaves prove.
func (s *solver) low() float64 {
	low := math.Inf(1)
	for i := range s.leafs {
		if b := s.leafs[i].bound; b != nil {
			v, _ := new(big.Float).SetInt(b).Float64()
			low = min(low, v)
		}
	}
	return low
}

// unlimited proves a bound without the limits, if the proof with them is weak, and keeps the better
// one.
func (s *solver) unlimited() error {
	low := s.low()
	if len(s.part.Limits) == 0 || s.best.units == nil || s.best.value-low <= weakGap*s.best.value {
		return nil
	}
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
		s.leafs = []leafNode{n}
	}
	return nil
}

// branch proves the root. While all-or-nothing choices leave a gap, it proves both branches of one
// of them.
func (s *solver) branch(root *answer) error {
	type node struct {
		leafNode
		answer *answer
	}
	prove := func(a *answer, path []Turn) (node, error) {
		n, err := s.prove(a, path)
		return node{n, a}, err
	}
	first, err := prove(root, nil)
	if err != nil {
		return err
	}
	open := []node{first}
	var done []node
	for leaves := 1; len(open) > 0; {
		// The lowest bound first.
		at := 0
		for i := range open {
			if open[i].bound.Cmp(open[at].bound) < 0 {
				at = i
			}
		}
		n := open[at]
		j := s.undecided(n.answer)
		low, _ := new(big.Float).SetInt(n.bound).Float64()
		if j < 0 || leaves >= maxLeaves || s.best.units != nil && s.best.value-low <= goodEnough*s.best.value {
			open = slices.Delete(open, at, at+1)
			done = append(done, n)
			continue
		}
		open = slices.Delete(open, at, at+1)
		for _, bought := range []bool{true, false} {
			path := append(slices.Clone(n.path), Turn{j, bought})
			a, err := s.cut(path, leafRounds)
			if errors.Is(err, errImpossible) {
				// No proof is needed if the path contradicts itself; otherwise the parent's proof
				// still holds.
				m := node{leafNode{path, nil, n.used, n.bound}, nil}
				pf := *n.pf
				pf.path = path
				m.pf = &pf
				b, possible, err := pf.bound()
				if err != nil || !possible {
					m.bound = nil
				} else {
					m.bound = b
				}
				if err != nil {
					return err
				}
				done = append(done, m)
				continue
			} else if err != nil {
				return err
			}
			if err := s.candidates(a); err != nil {
				return err
			}
			m, err := prove(a, path)
			if err != nil {
				return err
			}
			if m.bound == nil {
				done = append(done, m)
			} else {
				open = append(open, m)
			}
		}
		leaves++
	}
	if len(done) > 1 {
		if err := s.polish(); err != nil {
			return err
		}
	}
	for _, n := range done {
		s.leafs = append(s.leafs, n.leafNode)
	}
	s.work.Leaves += len(done)
	return nil
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
	var least *leafNode
	for i := range s.leafs {
		n := &s.leafs[i]
		s.part.Leaves = append(s.part.Leaves, s.ms.leaf(n.pf, n.used))
		if n.bound != nil && (least == nil || n.bound.Cmp(least.bound) < 0) {
			least = n
		}
	}
	if least == nil {
		return s.clash()
	}
	out.Bound.Add(out.Bound, least.bound)
	pf := least.pf
	_, slope := pf.sum()
	unit := new(big.Int).Mul(big.NewInt(One), giga)
	for _, j := range s.part.Choices {
		worth, _ := pf.worth(j, &slope)
		out.Prices.Worth[j] = worth.Quo(worth, unit)
	}
	for i, n := range s.part.Needs {
		for k, v := range pf.needs[i] {
			out.Prices.Needs[n][k] = new(big.Int).Mul(big.NewInt(int64(v)), big.NewInt(int64(p.Weight)))
		}
	}
	for _, l := range s.part.Limits {
		out.Prices.Limits[l] = new(big.Int).Mul(big.NewInt(pf.limits[l]), big.NewInt(int64(p.Weight)))
	}
	place, share := map[caseKey]int{}, map[caseKey]int{}
	for _, c := range least.used {
		at, ok := place[c.caseKey]
		if !ok {
			at = len(place)
			place[c.caseKey] = at
		}
		weight := pf.cases[at].shares[share[c.caseKey]].weight
		share[c.caseKey]++
		b := s.blocks[c.block]
		for i, q := range b.Quotas {
			sum := new(big.Int)
			for at, e := range c.priced.entries {
				addTo(sum, e.worth.kappa[i], c.priced.hours[at])
			}
			sum.Mul(sum, big.NewInt(weight)).Mul(sum, big.NewInt(int64(p.Epochs[c.epoch].Cases[c.c].Weight)))
			to := out.Prices.Quotas[q][c.epoch]
			to.Add(to, sum)
		}
	}
	for i := range s.part.Blocks {
		for _, q := range s.part.Blocks[i].Quotas {
			for _, v := range out.Prices.Quotas[q] {
				v.Quo(v, big.NewInt(One))
			}
		}
	}
	return nil
}
