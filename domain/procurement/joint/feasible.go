package joint

import (
	"errors"
	"math"
	"math/big"
	"slices"

	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
)

// Feasibility of all needs and limits is decided before cost, by a separate problem. In it
// purchases and serving cost nothing. Exceeding a limit or missing a need has a cost, scaled so
// that one of each weighs alike. It is decomposed like the original problem. An integer proof of
// any positive cost proves that the needs and limits are infeasible.

type verdict int

const (
	unknown verdict = iota // work ran out
	always                 // some integer purchases are feasible
	never
)

// errUndecided means that neither feasible purchases nor a proof of infeasibility was found.
var errUndecided = errors.New("nothing was found that keeps all needs and limits, nor a proof that nothing does: " +
	"loosen a limit, or let orders be smaller")

const (
	firstRounds = 12 // masters when feasibility is in doubt
	askRounds   = 40 // masters when nothing was found
	wholeTrials = 12 // then, masters in whole units
)

// relaxed is a solver of the feasibility problem of a problem like the part's.
func (s *solver) relaxed(of *Problem) *solver {
	q := *of
	q.keeping = true
	q.Choices = slices.Clone(of.Choices)
	for j := range q.Choices {
		q.Choices[j].Cost = 0
	}
	t := &solver{ctx: s.ctx, p: &q, part: s.part, lp: s.lp, work: &Work{}, grid: s.grid}
	t.open()
	q.ceilings(t)
	t.seen = map[caseKey]*spot{}
	t.ms = newMaster(&q, t.part, t.blocks, t.useful, q.one, t.work)
	return t
}

// ceilings sets the cost of exceeding each limit by one.
func (p *Problem) ceilings(s *solver) {
	hours := 0.0
	for d, v := range p.unitHours() {
		if p.unwanted == nil || !p.unwanted[d] {
			hours += v
		}
	}
	p.scale = make([]float64, len(p.Limits))
	p.one = 1e18
	for l := range p.Limits {
		limit := &p.Limits[l]
		of := float64(limit.Most)
		if limit.counts() {
			of = max(1, of, hours/1e3)
		} else {
			of = max(1e9, of)
		}
		p.scale[l] = of * float64(p.Weight)
		if limit.Serving != nil {
			high := float64(p.highest(l)) * p.scale[l]
			if !limit.counts() {
				high /= 1e9
			}
			if high > 0 { // else nothing that serves takes any of it
				p.one = min(p.one, high)
			}
		}
	}
	p.ceiling = make([]int64, len(p.Limits))
	for l := range p.Limits {
		v := p.one / p.scale[l]
		if !p.Limits[l].counts() {
			v *= 1e9
		}
		p.ceiling[l] = max(1, int64(v))
	}
}

// decide decides the feasibility of a relaxed problem.
func (s *solver) decide() (verdict, error) {
	is, err := s.decideSoon(askRounds)
	if err != nil || is != unknown {
		return is, err
	}
	return s.decideWhole()
}

// decideSoon is decide with a number of masters, without the integer search.
func (s *solver) decideSoon(rounds int) (verdict, error) {
	a, err := s.cut(nil, rounds)
	switch {
	case err != nil:
		return unknown, err
	case s.against != nil:
		return never, nil
	case s.center.units == nil || s.center.value > tiny*s.p.one:
		return unknown, nil
	}
	err = s.candidates(a)
	if err != nil || s.best.units == nil {
		return unknown, err
	}
	return always, nil
}

// decideWhole asks for feasible whole units under the known cuts, adds the cuts that they violate,
// and repeats.
func (s *solver) decideWhole() (verdict, error) {
	for range wholeTrials {
		a, err := s.wholeMaster(nil)
		if err != nil {
			return unknown, err
		}
		switch {
		case s.best.units != nil:
			return always, nil
		case a == nil, a.Status == linear.Infeasible, a.Bound > tiny:
			return never, nil
		case a.X == nil:
			return unknown, nil
		}
		x := make([]float64, len(s.p.Choices))
		for j, v := range a.units {
			x[j] = math.Round(v)
		}
		_, cuts, err := s.ask(x, s.p.ceiling)
		if err != nil {
			return unknown, err
		}
		if s.ms.add(s.ms.broken(cuts, s.blocks, a), s.blocks) == 0 {
			return unknown, nil
		}
	}
	return unknown, nil
}

// tiny is the share of a limit's scale that floating point may lose.
const tiny = 1e-6

// settled reports whether a solution of the master of a relaxed problem, or a priced point, decides
// it. s.against is what a proof of infeasibility rests on.
func (s *solver) settled(a *answer) (bool, error) {
	if s.center.units != nil && s.center.value == 0 {
		return true, nil
	}
	if a.Objective < tiny/1e3 {
		return false, nil
	}
	pf, _ := s.ms.prove(a, s.blocks, nil)
	b, _, err := pf.bound()
	if err != nil || b.Sign() <= 0 {
		return false, nil //nolint:nilerr // it proves nothing, and another may
	}
	s.against = pf.members()
	return true, nil
}

// members are the constraints that a proof uses. The proof needs each of them, and no others.
func (pf *proof) members() map[Member]bool {
	p := pf.p
	out := map[Member]bool{}
	for i, n := range pf.part.Needs {
		if slices.ContainsFunc(pf.needs[i], func(v procurement.Nano) bool { return v != 0 }) {
			out[Member{"need", p.Needs[n].ID, n}] = true
		}
	}
	for _, l := range pf.part.Limits {
		if pf.limits[l] != 0 {
			out[Member{"limit", p.Limits[l].ID, l}] = true
		}
	}
	_, slope := pf.sum()
	for _, j := range pf.part.Choices {
		if n := p.Choices[j].least(); pf.worth(j, &slope).of(n).Cmp(new(big.Int).Mul(pf.cost(j), big.NewInt(int64(n)))) > 0 {
			out[Member{"choice", p.Choices[j].ID, j}] = true
		}
	}
	for i := range pf.cases {
		w := &pf.cases[i]
		b := pf.blocks[w.block]
		for k := range w.shares {
			if w.shares[k].weight == 0 {
				continue
			}
			for _, t := range w.shares[k].from.tallies(b) {
				for i, q := range b.Quotas {
					if t.worth.kappa[i] != 0 {
						out[Member{"quota", p.Quotas[q], q}] = true
					}
				}
				for i, d := range b.Demands {
					if t.units[i] != 0 && t.worth.lambda[i] != 0 {
						out[Member{"demand", p.Demands[d].ID, d}] = true
					}
				}
			}
		}
	}
	return out
}

// doubt decides feasibility when no priced point keeps the limits.
func (s *solver) doubt() error { return s.decided(firstRounds) }

// decided decides feasibility with a number of masters, if that is enough. It tries what keeps the limits,
// and fails with errImpossible where nothing does.
func (s *solver) decided(rounds int) error {
	t := s.relaxed(s.p)
	is, err := t.decideSoon(rounds)
	s.work.add(t.work)
	switch {
	case err != nil:
		return err
	case is == never:
		return errImpossible
	case is == always:
		_, err = s.try(t.best.units)
	}
	return err
}

func (w *Work) add(other *Work) {
	w.Masters += other.Masters
	w.Iterations += other.Iterations
	w.Cuts += other.Cuts
	w.Slots += other.Slots
	w.Pivots += other.Pivots
	w.Tried += other.Tried
}
