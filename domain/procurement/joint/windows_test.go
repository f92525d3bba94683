package joint_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/joint"
)

// waiting draws a problem in which demand waits: one demand, or several.
func waiting(n source, several bool) *joint.Problem {
	w := everything
	w.slots, w.hours = 8, 1
	p := draw(n, w)
	first := n(0, len(p.Demands)-1)
	for d := range p.Demands {
		if d == first || several && n(0, 1) == 1 {
			p.Demands[d].Window = n(2, 5)
		}
	}
	for m := range p.Epochs {
		for c := range p.Epochs[m].Cases {
			var hours []joint.Slot
			for range n(0, w.slots) {
				s := joint.Slot{Hours: 1, Waits: make([]int, len(p.Demands))}
				for d := range p.Demands {
					u := n(0, w.units)
					if s.Units = append(s.Units, u); p.Demands[d].Window > 0 {
						s.Waits[d] = n(0, u)
					}
				}
				hours = append(hours, s)
			}
			p.Epochs[m].Cases[c].Slots = hours
		}
	}
	return p
}

// Work that waits is served at the least cost of all schedules, which the linear program decides.
func TestWaitingAgainstLinearProgram(t *testing.T) {
	problems := *problemsAsked
	if problems == 0 {
		problems = long.Count(60, 2000)
	}
	t.Run("one demand", func(t *testing.T) {
		against(t, problems, 1e-4, func(seed uint64) *joint.Problem { return waiting(seeded(seed), false) })
	})
	t.Run("several", func(t *testing.T) {
		against(t, problems, 0.02, func(seed uint64) *joint.Problem { return waiting(seeded(seed), true) })
	})
}

// The checker refuses work that runs before it comes, not at all, twice, or beyond its window, and a
// bound that takes another window, a smaller share or the price of another hour for granted.
func TestCheckerRefusesOtherWindows(t *testing.T) {
	found := map[string]int{}
	for seed := range uint64(long.Count(40, 400)) {
		p := waiting(seeded(seed), true)
		s, err := joint.Solve(t.Context(), p, lp(t))
		var clash *joint.Infeasible
		if errors.As(err, &clash) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		refused := func(name string, p *joint.Problem, s *joint.Solution) {
			if _, err := check.Joint(p, s); errors.Is(err, check.ErrRejected) {
				found[name]++
			} else if err != nil {
				t.Errorf("seed %d: %s: %v", seed, name, err)
			} else if name != "a shorter window" && name != "a smaller share" && name != "a longer window" {
				t.Errorf("seed %d: %s is accepted", seed, name)
			}
		}
		for i := range s.Runs {
			units := decoded(s.Runs[i].Units)
			at := slices.IndexFunc(units, func(u uint64) bool { return u > 0 })
			change := func(name string, to func([]uint64)) {
				m := clone(t, s)
				other := slices.Clone(units)
				to(other)
				m.Runs[i].Units = nil
				for _, u := range other {
					m.Runs[i].Units = binary.AppendUvarint(m.Runs[i].Units, u)
				}
				refused(name, p, m)
			}
			change("work that never runs", func(u []uint64) { u[at]-- })
			change("work that nobody wants", func(u []uint64) { u[at]++ })
			r := &s.Runs[i]
			first := slices.IndexFunc(p.Epochs[r.Epoch].Cases[r.Case].Slots, func(x joint.Slot) bool { return x.Waits[r.Demand] > 0 })
			if first > 0 {
				change("work before it comes", func(u []uint64) { u[first-1], u[at] = u[at], 0 })
			}
			m := clone(t, s)
			m.Runs = append(m.Runs, m.Runs[i])
			refused("a run twice", p, m)
		}
		for name, change := range map[string]func(d *joint.Demand, s *joint.Slot, i int){
			"a shorter window": func(d *joint.Demand, _ *joint.Slot, _ int) { d.Window = max(1, d.Window-1) },
			"a longer window":  func(d *joint.Demand, _ *joint.Slot, _ int) { d.Window = min(d.Window, 8) + 3 },
			"a smaller share":  func(_ *joint.Demand, s *joint.Slot, i int) { s.Waits[i] /= 2 },
		} {
			q := *p
			q.Demands = slices.Clone(p.Demands)
			q.Epochs = slices.Clone(p.Epochs)
			for m := range q.Epochs {
				q.Epochs[m].Cases = slices.Clone(q.Epochs[m].Cases)
				for c := range q.Epochs[m].Cases {
					k := &q.Epochs[m].Cases[c]
					k.Slots = slices.Clone(k.Slots)
					for h := range k.Slots {
						k.Slots[h].Waits = slices.Clone(k.Slots[h].Waits)
						for d := range q.Demands {
							change(&joint.Demand{}, &k.Slots[h], d)
						}
					}
				}
			}
			for d := range q.Demands {
				if q.Demands[d].Window > 0 {
					change(&q.Demands[d], &joint.Slot{Waits: make([]int, len(q.Demands))}, d)
				}
			}
			refused(name, &q, s)
		}
	}
	for _, name := range []string{"work that never runs", "work that nobody wants", "work before it comes", "a run twice", "a shorter window", "a longer window", "a smaller share"} {
		if found[name] == 0 {
			t.Errorf("%s never made a solution wrong", name)
		}
	}
	t.Log(found)
}

func decoded(encoded []byte) (out []uint64) {
	for len(encoded) > 0 {
		v, n := binary.Uvarint(encoded)
		out, encoded = append(out, v), encoded[n:]
	}
	return out
}
