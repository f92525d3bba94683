package check_test

import (
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
)

// pool draws a pool with every feature, always the same for a seed.
func pool(seed uint64) *procurement.Pool {
	r := rand.New(rand.NewPCG(seed, 1))
	n := func(low, high int) int { return low + r.IntN(high-low+1) }
	p := &procurement.Pool{ID: fmt.Sprintf("drawn-%d", seed)}
	units := n(3, 40)
	if seed%2 == 0 {
		for range n(1, 3) {
			p.Weights = append(p.Weights, n(1, 9))
		}
	}
	drawn := func() []procurement.Step {
		hours := make([]int, 20)
		for i := range hours {
			hours[i] = n(0, units)
		}
		return procurement.Steps(hours)
	}
	for range n(1, 8) {
		e := procurement.Epoch{
			Demand:   drawn(),
			OnDemand: procurement.Nano(n(40, 100)), Spot: procurement.Nano(n(-10, 120)), Shortage: procurement.Nano(n(120, 400)),
			SpotPermille: n(0, 3) * 150, Quota: n(-1, units), HeldGuaranteed: n(0, units/4), HeldDiscountOnly: n(0, units/4),
		}
		if n(0, 9) == 0 {
			e.OnDemand = -1
		}
		if seed%2 == 0 && n(0, 3) > 0 {
			e.Demand = nil
			for range p.Weights {
				e.Cases = append(e.Cases, procurement.Case{Demand: drawn(), SpotUnits: n(-1, 4)})
			}
		}
		p.Epochs = append(p.Epochs, e)
	}
	for i := range n(1, 5) {
		o := procurement.Offer{ID: fmt.Sprint("offer-", i), Guaranteed: n(0, 1) == 1, Term: n(1, len(p.Epochs)+1)}
		each := n(300, 900)
		if !o.Guaranteed {
			each -= 100
		}
		for m := range p.Epochs {
			if n(0, 4) > 0 {
				cost := each * min(o.Term, len(p.Epochs)-m)
				o.Starts = append(o.Starts, procurement.Start{Epoch: m, Cost: procurement.Nano(cost), Max: []int{procurement.Unlimited, n(0, units)}[n(0, 1)]})
			}
		}
		p.Offers = append(p.Offers, o)
	}
	return p
}

func solve(t testing.TB, p *procurement.Pool) *procurement.Solution {
	t.Helper()
	s, err := procurement.Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Solutions of every kind pass.
func TestSolutionsPass(t *testing.T) {
	seen := map[procurement.Algorithm]int{}
	for seed := range uint64(400) {
		p := pool(seed)
		s := solve(t, p)
		r, err := check.Check(p, s)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if r.Cost.Cmp(s.Cost) != 0 || r.Bound.Cmp(s.Bound) != 0 {
			t.Errorf("seed %d: %+v", seed, r)
		}
		seen[s.Algorithm]++
	}
	if seen[procurement.Flow] < 100 || seen[procurement.Linear] < 50 {
		t.Errorf("seen were %v", seen)
	}
}

// copyOf is a deep copy for mutations.
func copyOf(s *procurement.Solution) *procurement.Solution {
	c := *s
	c.Purchases = slices.Clone(s.Purchases)
	c.Cost, c.Bound = new(big.Int).Set(s.Cost), new(big.Int).Set(s.Bound)
	c.Certificate.Cover, c.Certificate.Guarantee = slices.Clone(s.Certificate.Cover), slices.Clone(s.Certificate.Guarantee)
	return &c
}

// mutations changes each number of a solution in turn. It calls f with what it changed and whether
// the claim could still be true: another purchase may cost the same, and another price may prove
// the same.
func mutations(s *procurement.Solution, f func(what string, s *procurement.Solution, maybe bool)) {
	change := func(what string, maybe bool, do func(*procurement.Solution)) {
		c := copyOf(s)
		do(c)
		f(what, c, maybe)
	}
	for _, by := range []int64{-1, 1, 1 << 40} {
		change("cost", false, func(s *procurement.Solution) { s.Cost.Add(s.Cost, big.NewInt(by)) })
		change("bound", false, func(s *procurement.Solution) { s.Bound.Add(s.Bound, big.NewInt(by)) })
		change("cost and bound", false, func(s *procurement.Solution) {
			s.Cost.Add(s.Cost, big.NewInt(by))
			s.Bound.Add(s.Bound, big.NewInt(by))
		})
		for m := range s.Certificate.Cover {
			change("cover", true, func(s *procurement.Solution) { s.Certificate.Cover[m] += procurement.Nano(by) })
			change("guarantee", true, func(s *procurement.Solution) { s.Certificate.Guarantee[m] += procurement.Nano(by) })
		}
	}
	change("exact", false, func(s *procurement.Solution) { s.Exact = !s.Exact })
	change("algorithm", false, func(s *procurement.Solution) { s.Algorithm += "?" })
	change("no cost", false, func(s *procurement.Solution) { s.Cost = nil })
	change("no bound", false, func(s *procurement.Solution) { s.Bound = nil })
	change("cover cut", false, func(s *procurement.Solution) { s.Certificate.Cover = s.Certificate.Cover[1:] })
	change("guarantee cut", false, func(s *procurement.Solution) { s.Certificate.Guarantee = nil })
	for i := range s.Purchases {
		for _, by := range []int{-1, 1, 1000} {
			change("units", true, func(s *procurement.Solution) { s.Purchases[i].Units += by })
			change("offer", true, func(s *procurement.Solution) { s.Purchases[i].Offer += by })
			change("epoch", true, func(s *procurement.Solution) { s.Purchases[i].Epoch += by })
		}
		change("purchase gone", true, func(s *procurement.Solution) { s.Purchases = slices.Delete(s.Purchases, i, i+1) })
		change("purchase twice", false, func(s *procurement.Solution) { s.Purchases = slices.Insert(s.Purchases, i, s.Purchases[i]) })
	}
}

// Any changed number is rejected, unless the changed solution is also true, which the checker must
// find out by itself.
func TestMutationsAreRejected(t *testing.T) {
	rejected, asTrue := map[string]int{}, map[string]int{}
	for seed := range uint64(40) {
		p := pool(seed)
		s := solve(t, p)
		mutations(s, func(what string, c *procurement.Solution, maybe bool) {
			r, err := check.Check(p, c)
			switch {
			case errors.Is(err, check.ErrRejected):
				rejected[what]++
			case err != nil:
				t.Errorf("seed %d: %s: %v is not ErrRejected", seed, what, err)
			case !maybe || r.Cost.Cmp(s.Cost) != 0 || r.Bound.Cmp(s.Bound) != 0:
				t.Errorf("seed %d: %s changed, and passed: %+v", seed, what, c)
			default:
				asTrue[what]++
				ev, err := procurement.Evaluate(p, c.Purchases)
				if err != nil || ev.Cost.Cmp(c.Cost) != 0 {
					t.Errorf("seed %d: %s changed, and passed with %d: %v, %v", seed, what, c.Cost, ev, err)
				}
			}
		})
	}
	t.Logf("rejected: %v", rejected)
	t.Logf("as true as before: %v", asTrue)
	for _, what := range []string{"cost", "bound", "units", "offer", "epoch", "purchase gone", "cover", "guarantee"} {
		if rejected[what] < 4*asTrue[what] && what != "guarantee" || rejected[what] < 20 {
			t.Errorf("%s: %d rejected, %d as true as before", what, rejected[what], asTrue[what])
		}
	}
}

// A pool that changed after it was solved no longer fits its solution.
func TestChangedPools(t *testing.T) {
	p := pool(7)
	s := solve(t, p)
	for what, change := range map[string]func(p *procurement.Pool){
		"demand":      func(p *procurement.Pool) { p.Epochs[0].Demand[len(p.Epochs[0].Demand)-1].Units += 100 },
		"descending":  func(p *procurement.Pool) { slices.Reverse(p.Epochs[0].Demand) },
		"on-demand":   func(p *procurement.Pool) { p.Epochs[0].OnDemand++ },
		"shortage":    func(p *procurement.Pool) { p.Epochs[0].Shortage = p.Epochs[0].OnDemand - 1 },
		"held":        func(p *procurement.Pool) { p.Epochs[0].HeldGuaranteed = -1 },
		"term":        func(p *procurement.Pool) { p.Offers[0].Term = 0 },
		"start":       func(p *procurement.Pool) { p.Offers[0].Starts[0].Epoch = len(p.Epochs) },
		"epochs":      func(p *procurement.Pool) { p.Epochs = append(p.Epochs, p.Epochs[0]) },
		"cost of all": func(p *procurement.Pool) { p.Offers[0].Starts[0].Cost = 0 },
	} {
		q := pool(7)
		change(q)
		if _, err := check.Check(q, s); !errors.Is(err, check.ErrRejected) || !strings.Contains(err.Error(), `"drawn-7"`) {
			t.Errorf("%s changed: %v", what, err)
		}
	}
}

// The same for changed scenarios.
func TestChangedScenarios(t *testing.T) {
	made := func() *procurement.Pool {
		p := pool(7)
		p.Weights = []int{3, 4}
		for m := range p.Epochs {
			e := &p.Epochs[m]
			e.Cases = []procurement.Case{{Demand: e.Demand, SpotUnits: procurement.Unlimited}, {Demand: e.Demand[:2], SpotUnits: 1}}
			e.Demand, e.Spot, e.SpotPermille = nil, 1, 900
		}
		return p
	}
	s := solve(t, made())
	if _, err := check.Check(made(), s); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(p *procurement.Pool){
		"weight":       func(p *procurement.Pool) { p.Weights[0]++ },
		"no weight":    func(p *procurement.Pool) { p.Weights[0] = 0 },
		"much weight":  func(p *procurement.Pool) { p.Weights[1] = procurement.MaxWeight },
		"a scenario":   func(p *procurement.Pool) { p.Weights = append(p.Weights, 1) },
		"a case":       func(p *procurement.Pool) { p.Epochs[0].Cases = p.Epochs[0].Cases[:1] },
		"both":         func(p *procurement.Pool) { p.Epochs[0].Demand = p.Epochs[0].Cases[0].Demand },
		"spot":         func(p *procurement.Pool) { p.Epochs[0].Cases[0].SpotUnits = 0 },
		"no such spot": func(p *procurement.Pool) { p.Epochs[0].Cases[0].SpotUnits = -2 },
		"hours":        func(p *procurement.Pool) { d := p.Epochs[0].Cases[0].Demand; d[len(d)-1].Hours += 9 },
		"many hours":   func(p *procurement.Pool) { p.Epochs[0].Cases[1].Demand[0].Hours = procurement.MaxHours / 4 },
		"order":        func(p *procurement.Pool) { slices.Reverse(p.Epochs[0].Cases[0].Demand) },
		"swapped":      func(p *procurement.Pool) { slices.Reverse(p.Weights) },
	} {
		q := made()
		change(q)
		if _, err := check.Check(q, s); !errors.Is(err, check.ErrRejected) {
			t.Errorf("%s changed: %v", what, err)
		}
	}
}

// The search for an epoch's least cost finds it from any starting point: a solution that is not the
// best still has the bound of its certificate.
func TestOtherPurchasesSameBound(t *testing.T) {
	for seed := range uint64(100) {
		p := pool(seed)
		s := solve(t, p)
		c := copyOf(s)
		c.Purchases = nil
		ev, err := procurement.Evaluate(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.Cost, c.Exact = ev.Cost, ev.Cost.Cmp(s.Bound) == 0
		r, err := check.Check(p, c)
		if err != nil || r.Bound.Cmp(s.Bound) != 0 {
			t.Errorf("seed %d: bound %v beside other purchases, %d before: %v", seed, r.Bound, s.Bound, err)
		}
	}
}

func TestPercentRoundsUp(t *testing.T) {
	for _, c := range []struct {
		cost, bound int64
		want        string
	}{
		{0, 0, "0.000000 %"},
		{100, 100, "0.000000 %"},
		{1_000_000_000_000, 999_999_999_999, "0.000001 %"},
		{200, 199, "0.500000 %"},
		{3, 2, "33.333334 %"},
	} {
		r := check.Report{Cost: big.NewInt(c.cost), Bound: big.NewInt(c.bound)}
		if got := r.Percent(); got != c.want {
			t.Errorf("from %d to %d: %s, want %s", c.bound, c.cost, got, c.want)
		}
	}
}
