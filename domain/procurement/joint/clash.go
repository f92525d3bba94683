package joint

import (
	"errors"
	"slices"

	"quartermaster/domain/linear"
)

// clash says which needs, limits and choices exclude each other, by leaving out
// one after the other for as long as nothing keeps the rest (deletion filter,
// Chinneck and Dravnieks, 1991).
func (s *solver) clash() error {
	p := s.p
	q := *p
	q.Needs, q.Limits, q.Choices = slices.Clone(p.Needs), slices.Clone(p.Limits), slices.Clone(p.Choices)
	feasible := func() (bool, error) { return s.feasible(&q) }
	is, err := feasible()
	if err != nil {
		return err
	}
	if is {
		return errors.New("nothing was found that keeps all needs and limits, nor a proof that nothing does: loosen a limit, or let orders be smaller")
	}
	var out Infeasible
	for _, n := range s.part.Needs {
		least := q.Needs[n].Least
		q.Needs[n].Least = 0
		if is, err = feasible(); err != nil {
			return err
		} else if is {
			q.Needs[n].Least = least
			out.Clash = append(out.Clash, Member{"need", p.Needs[n].ID})
		}
	}
	for _, l := range s.part.Limits {
		limit := q.Limits[l]
		q.Limits[l].Most, q.Limits[l].Serving = 9*MaxCost, nil
		if is, err = feasible(); err != nil {
			return err
		} else if is {
			q.Limits[l] = limit
			out.Clash = append(out.Clash, Member{"limit", p.Limits[l].ID})
		}
	}
	// Bounds of choices, all at once, and one by one if they matter.
	free := func(c *Choice) { c.Max, c.Least, c.Lot, c.Group = -1, 0, 1, "" }
	bounded := slices.Clone(q.Choices)
	for _, j := range s.part.Choices {
		free(&q.Choices[j])
	}
	if is, err = feasible(); err != nil {
		return err
	}
	if !is {
		return &out
	}
	q.Choices = bounded
	for tried, j := range s.part.Choices {
		c := q.Choices[j]
		if c.Max < 0 && c.Least <= 1 && c.Lot == 1 && c.Group == "" || tried > 1000 {
			continue
		}
		free(&q.Choices[j])
		if is, err = feasible(); err != nil {
			return err
		} else if is {
			q.Choices[j] = c
			out.Clash = append(out.Clash, Member{"choice", c.ID})
		}
	}
	return &out
}

// feasible reports whether any purchases keep the needs and limits of a problem
// like the part's.
func (s *solver) feasible(q *Problem) (bool, error) {
	part := *s.part
	var work Work
	ms := newMaster(q, &part, nil, 1e9, &work)
	g, ok := ms.program(nil)
	if !ok {
		return false, nil
	}
	for j := range g.Cost {
		g.Cost[j] = 0
	}
	q.makeWhole(g, part.Choices, ms.choice)
	if err := s.ctx.Err(); err != nil {
		return false, err
	}
	sol, err := s.lp.Solve(s.ctx, g, linear.Limits{Nodes: 10_000})
	if err != nil {
		return false, err
	}
	if sol.Status == linear.Infeasible {
		return false, nil
	}
	for _, l := range part.Limits {
		if q.Limits[l].Unserved && q.Limits[l].Serving != nil {
			return s.servable(q)
		}
	}
	return true, nil // no more than nothing need be spent, or run on spot, to serve
}

// servable reports whether purchases are found that keep limits on what is not
// served.
func (s *solver) servable(q *Problem) (bool, error) {
	t := &solver{ctx: s.ctx, p: q, part: s.part, lp: s.lp, work: &Work{}, keys: s.keys}
	for _, b := range s.part.Blocks {
		t.blocks = append(t.blocks, newBlock(q, b))
	}
	t.pr = newPricer(q, t.blocks, t.work)
	for _, l := range s.part.Limits {
		if q.Limits[l].Serving != nil {
			t.serving = append(t.serving, l)
		}
	}
	err := t.search()
	if errors.Is(err, errImpossible) {
		return false, nil
	}
	return t.best.units != nil, err
}
