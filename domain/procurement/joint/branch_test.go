package joint_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/joint"
)

// machines is three regions of which any two carry the peak, with machines of three, five and eight
// GPUs and tiers. Its linear program is several percent below what can be bought.
func machines(seed uint64) *joint.Problem {
	n := seeded(seed)
	p := draw(func(low, high int) int { return high }, with{epochs: 3, pools: 3, slots: 1, cases: 1, units: 9, hours: 5})
	p.Demands, p.Routes, p.Choices = nil, nil, nil
	for k := range p.Pools {
		p.Demands = append(p.Demands, joint.Demand{ID: fmt.Sprint("demand ", k)})
		for to := range p.Pools {
			p.Routes = append(p.Routes, joint.Route{Demand: k, Pool: to, Num: 1, Den: 1})
		}
	}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		e.Routes, e.Shortage = nil, nil
		for _, r := range p.Routes {
			e.Routes = append(e.Routes, procurement.Nano(r.Pool+r.Demand)*million/10)
		}
		c := &e.Cases[0]
		c.Slots = nil
		for i := range 6 {
			s := joint.Slot{Hours: 20}
			for range p.Pools {
				e.Shortage = append(e.Shortage, 40*million)
				s.Units = append(s.Units, 2*i+n(0, 1))
			}
			c.Slots = append(c.Slots, s)
		}
		e.Shortage = e.Shortage[:len(p.Demands)]
		for i := range e.Pools {
			e.Pools[i] = joint.Supply{OnDemand: procurement.Nano(9+i) * million, Spot: -1, Quota: -1, Spend: -1}
		}
	}
	for k := range p.Pools {
		need := joint.Need{ID: "without " + p.Pools[k], Epochs: []int{0, 1, 2}, Least: 31}
		for i, size := range []int{3, 5, 8} {
			for from := range 3 {
				cost := procurement.Nano(120*(3-from)*size*n(40, 60)) * million / 10
				c := joint.Choice{
					ID: fmt.Sprintf("%d GPUs in %d from %d", size, k, from), Cost: cost, Max: procurement.Unlimited, Lot: 1,
					Cover: []joint.Cover{{Pool: k, From: from, To: 3, Units: size, Guaranteed: true}},
				}
				if i == 1 {
					c.Group, c.Max = c.ID, 2
					more := c
					more.ID, more.Least, more.Max, more.Cost = c.ID+", many", 3, procurement.Unlimited, cost*9/10
					p.Choices = append(p.Choices, more)
				}
				p.Choices = append(p.Choices, c)
			}
			if i != k {
				need.Terms = append(need.Terms, joint.NeedTerm{Pool: i, PerUnit: 1})
			}
		}
		p.Needs = append(p.Needs, need)
	}
	return p
}

// Whole units are bounded by branching: to a proven thousandth, and to what one program in whole
// units finds.
func TestMachines(t *testing.T) {
	for seed := range uint64(long.Count(2, 8)) {
		p := machines(seed)
		s, err := joint.Solve(context.Background(), p, lp(t))
		if err != nil {
			t.Fatal(err)
		}
		judge(t, p, s)
		t.Logf("seed %d: gap %.4f%%, %d leaves", seed, 100*gap(s), s.Work.Leaves)
		if gap(s) > 1e-3 {
			t.Errorf("seed %d: cost %d, bound %d: a gap of %g", seed, s.Cost, s.Bound, gap(s))
		}
		if best, ok := optimum(t, p, nil, true); !ok || float(s.Cost) > best*(1+1e-3) || float(s.Bound) > best*(1+1e-6) {
			t.Errorf("seed %d: cost %d and bound %d; in one program %g", seed, s.Cost, s.Bound, best)
		}
	}
}

// Wherever branching is stopped, its leaves prove a bound, and a larger effort proves no less. Equal
// efforts give equal answers.
func TestStoppedBranching(t *testing.T) {
	p := machines(1)
	for _, after := range []int{8, 20, 33, 60} {
		until, stop := context.WithCancel(t.Context())
		s, err := joint.SolveUntil(t.Context(), until, p, &canceling{Solver: lp(t), after: after, cancel: stop})
		stop()
		if err != nil {
			t.Fatalf("stopped in program %d: %v", after, err)
		}
		if _, err := check.Joint(p, s); err != nil {
			t.Errorf("stopped in program %d: %v", after, err)
		}
		if !s.Interrupted || s.Bound.Sign() <= 0 {
			t.Errorf("stopped in program %d: bound %d, interrupted %t", after, s.Bound, s.Interrupted)
		}
	}
	more, err := joint.Solve(t.Context(), p, lp(t))
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for range 2 {
		s, err := joint.SolveWithin(t.Context(), t.Context(), p, lp(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		judge(t, p, s)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
		if more.Cost.Cmp(s.Cost) > 0 || more.Bound.Cmp(s.Bound) < 0 {
			t.Errorf("with more effort cost %d and bound %d, with less %d and %d", more.Cost, more.Bound, s.Cost, s.Bound)
		}
	}
	if texts[0] != texts[1] {
		t.Error("two answers for one effort")
	}
}
