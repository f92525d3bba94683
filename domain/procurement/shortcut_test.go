package procurement_test

import (
	"math/big"
	"testing"

	"quartermaster/domain/procurement"
)

// byLevels is the tempting shortcut: for each level of demand separately, the cheapest way through
// the epochs, by a shortest path. The sum is the cost of some purchases, but not the least. It
// needs unlimited guaranteed offers.
func byLevels(t testing.TB, p *procurement.Pool) *big.Int {
	t.Helper()
	serving := func(m, units int) *big.Int {
		e := p.Epochs[m]
		e.HeldGuaranteed += units
		ev, err := procurement.Evaluate(&procurement.Pool{Epochs: []procurement.Epoch{e}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return ev.Cost
	}
	top := 0
	for _, e := range p.Epochs {
		top = max(top, e.Demand[len(e.Demand)-1].Units)
	}
	sum := new(big.Int)
	for m := range p.Epochs {
		sum.Add(sum, serving(m, top))
	}
	for level := range top {
		dist := make([]*big.Int, len(p.Epochs)+1)
		reach := func(to int, cost, from *big.Int) {
			if d := new(big.Int).Add(cost, from); dist[to] == nil || d.Cmp(dist[to]) < 0 {
				dist[to] = d
			}
		}
		dist[0] = new(big.Int)
		for m := range p.Epochs {
			reach(m+1, new(big.Int).Sub(serving(m, level), serving(m, level+1)), dist[m])
			for _, o := range p.Offers {
				for _, s := range o.Starts {
					if s.Epoch == m {
						reach(min(m+o.Term, len(p.Epochs)), big.NewInt(int64(s.Cost)), dist[m])
					}
				}
			}
		}
		sum.Add(sum, dist[len(p.Epochs)])
	}
	return sum
}

// Demand of 1, 2 and 1 is served best by two purchases that overlap in the middle. No level of
// demand by itself would buy them: the lower one then has only the last epoch left to cover, and
// the upper one, six hours, is not worth a purchase. So a flow over all levels is needed.
func TestLevelsAloneAreNotOptimal(t *testing.T) {
	epoch := func(units, hours int) procurement.Epoch {
		return procurement.Epoch{Demand: []procurement.Step{{Units: units, Hours: hours}}, OnDemand: 1, Spot: -1, Shortage: 1, Quota: procurement.Unlimited}
	}
	p := &procurement.Pool{ID: "overlap", Epochs: []procurement.Epoch{epoch(1, 9), epoch(2, 6), epoch(1, 10)}}
	o := procurement.Offer{ID: "two epochs", Guaranteed: true, Term: 2}
	for m := range p.Epochs {
		o.Starts = append(o.Starts, procurement.Start{Epoch: m, Cost: 7, Max: procurement.Unlimited})
	}
	p.Offers = []procurement.Offer{o}

	s := solve(t, p)
	if got := s.Cost.Int64(); got != 14 || !s.Exact {
		t.Errorf("cost %d, exact %t, want 14: %+v", got, s.Exact, s.Purchases)
	}
	if got := byLevels(t, p).Int64(); got != 20 {
		t.Errorf("levels alone cost %d, want 20", got)
	}
}

// On random pools separate levels are never better and often worse.
func TestLevelsAlone(t *testing.T) {
	worse, n := 0, 300
	for seed := range n {
		p := contested(even(uint64(seed)), 8, 4, 20, 0)
		for i := range p.Offers {
			p.Offers[i].Guaranteed = true
		}
		s := solve(t, p)
		switch byLevels(t, p).Cmp(s.Cost) {
		case -1:
			t.Fatalf("seed %d: levels alone are cheaper than %d", seed, s.Cost)
		case 1:
			worse++
		}
	}
	t.Logf("levels alone cost more on %d of %d pools", worse, n)
	if worse < n/4 {
		t.Errorf("levels alone were worse on %d of %d pools only: this shows nothing", worse, n)
	}
}
