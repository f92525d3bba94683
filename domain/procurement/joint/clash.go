package joint

import (
	"cmp"
	"slices"

	"quartermaster/domain/procurement"
)

// clashWork bounds the number of linear programs that are solved to find a minimal conflict; beyond
// it the remaining members are reported without being tested.
const clashWork = 600

// clash finds a minimal conflict of needs, limits, quotas, demands and choices. It drops one after
// the other for as long as the rest stays infeasible (deletion filter, Chinneck and Dravnieks,
// 1991). It also drops at once everything that a proof of infeasibility does not use.
func (s *solver) clash() error {
	f := &filter{solver: s, loose: map[Member]bool{}}
	for _, j := range s.part.Choices {
		if c := &s.p.Choices[j]; c.Max != procurement.Unlimited || c.Least > 1 || c.Lot > 1 || c.Group != "" {
			f.members = append(f.members, Member{"choice", c.ID, j})
		}
	}
	for _, b := range s.part.Blocks {
		for _, q := range b.Quotas {
			if slices.ContainsFunc(s.p.Epochs, func(e Epoch) bool { return e.Quotas[q] != procurement.Unlimited }) {
				f.members = append(f.members, Member{"quota", s.p.Quotas[q], q})
			}
		}
	}
	// The smallest demands first, so that large ones remain.
	var demands []Member
	for _, b := range s.part.Blocks {
		for _, d := range b.Demands {
			demands = append(demands, Member{"demand", s.p.Demands[d].ID, d})
		}
	}
	sums := s.p.unitHours()
	slices.SortStableFunc(demands, func(a, b Member) int {
		return cmp.Or(cmp.Compare(sums[a.Index], sums[b.Index]), cmp.Compare(a.Index, b.Index))
	})
	f.members = append(f.members, demands...)
	for _, n := range s.part.Needs {
		f.members = append(f.members, Member{"need", s.p.Needs[n].ID, n})
	}
	for _, l := range s.part.Limits {
		f.members = append(f.members, Member{"limit", s.p.Limits[l].ID, l})
	}
	return f.run()
}

// unitHours is the approximate unit-hours of each demand.
func (p *Problem) unitHours() []float64 {
	out := make([]float64, len(p.Demands))
	for m := range p.Epochs {
		for c := range p.Epochs[m].Cases {
			for _, slot := range p.Epochs[m].Cases[c].Slots {
				for d, u := range slot.Units {
					out[d] += float64(float64(u) * float64(slot.Hours))
				}
			}
		}
	}
	return out
}

// filter narrows down a conflict.
type filter struct {
	*solver
	members []Member
	loose   map[Member]bool // no longer required
	masters int
}

func (f *filter) run() error {
	is, err := f.feasible()
	if err != nil {
		return err
	}
	if is != never {
		return errUndecided
	}
	var needed []Member
	undecided := false
	// try drops members and restores those that are needed.
	try := func(of []Member) (verdict, error) {
		for _, m := range of {
			f.loose[m] = true
		}
		if f.masters > clashWork {
			is, undecided = unknown, true
		} else if is, err = f.feasible(); err != nil {
			return is, err
		}
		if is != never {
			for _, m := range of {
				delete(f.loose, m)
			}
		}
		return is, nil
	}
	// Try choices and quotas each all at once: they are rarely part of a conflict.
	for _, kind := range []string{"choice", "quota"} {
		var of []Member
		for _, m := range f.members {
			if m.Kind == kind && !f.loose[m] {
				of = append(of, m)
			}
		}
		if len(of) > 1 {
			if _, err := try(of); err != nil {
				return err
			}
		}
	}
	for _, m := range f.members {
		if f.loose[m] {
			continue
		}
		is, err := try([]Member{m})
		if err != nil {
			return err
		}
		if is == unknown {
			undecided = true
		}
		if is != never {
			needed = append(needed, m)
		}
	}
	order := []string{"need", "limit", "quota", "demand", "choice"}
	slices.SortStableFunc(needed, func(a, b Member) int {
		return cmp.Or(slices.Index(order, a.Kind)-slices.Index(order, b.Kind), a.Index-b.Index)
	})
	return &Infeasible{Clash: needed, Undecided: undecided}
}

// feasible reports whether the members that were not dropped are feasible together. If a proof
// shows that they are not, it drops what the proof does not use.
func (f *filter) feasible() (verdict, error) {
	if err := f.ctx.Err(); err != nil {
		return unknown, err
	}
	t := f.relaxed(f.p.loosened(f.loose))
	is, err := t.decide()
	f.masters += t.work.Masters
	if err != nil || is != never || t.against == nil {
		return is, err
	}
	for _, m := range f.members {
		if !t.against[m] {
			f.loose[m] = true
		}
	}
	return is, nil
}

// loosened is the problem without some of its members.
func (p *Problem) loosened(loose map[Member]bool) *Problem {
	q := *p
	q.Needs, q.Limits, q.Choices, q.Epochs = slices.Clone(p.Needs), slices.Clone(p.Limits), slices.Clone(p.Choices),
		slices.Clone(p.Epochs)
	q.unwanted = make([]bool, len(p.Demands))
	for i := range q.Needs {
		if loose[Member{"need", p.Needs[i].ID, i}] {
			q.Needs[i].Least = 0
		}
	}
	for i := range q.Limits {
		if loose[Member{"limit", p.Limits[i].ID, i}] {
			q.Limits[i].Most, q.Limits[i].Serving = 9*MaxCost, nil
			for j := range q.Choices {
				if len(q.Choices[j].Spent) > 0 {
					q.Choices[j].Spent = slices.Clone(q.Choices[j].Spent)
					q.Choices[j].Spent[i] = 0
				}
			}
		}
	}
	for j := range q.Choices {
		if c := &q.Choices[j]; loose[Member{"choice", c.ID, j}] {
			c.Max, c.Least, c.Lot, c.Group = procurement.Unlimited, 0, 1, ""
		}
	}
	for d := range q.Demands {
		q.unwanted[d] = loose[Member{"demand", p.Demands[d].ID, d}]
	}
	for m := range q.Epochs {
		q.Epochs[m].Quotas = slices.Clone(p.Epochs[m].Quotas)
		for i := range q.Quotas {
			if loose[Member{"quota", p.Quotas[i], i}] {
				q.Epochs[m].Quotas[i] = procurement.Unlimited
			}
		}
	}
	return &q
}
