package procurement_test

import (
	"bytes"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
)

// Two scenarios of one epoch of ten hours, by hand. In the first, weight 3,
// demand is 4 and spot is plenty; in the second, weight 1, demand is 10 and spot
// carries one unit, where its share would be 5. A reserved unit costs 300.
func TestScenariosByHand(t *testing.T) {
	p := &procurement.Pool{ID: "p", Weights: []int{3, 1}, Epochs: []procurement.Epoch{{
		Span:     domain.Interval{To: 10 * domain.Hour},
		OnDemand: 100, Spot: 40, Shortage: 1000, SpotPermille: 500, Quota: procurement.Unlimited,
		Cases: []procurement.Case{
			{Demand: []procurement.Step{{Units: 4, Hours: 10}}, SpotUnits: procurement.Unlimited},
			{Demand: []procurement.Step{{Units: 10, Hours: 10}}, SpotUnits: 1},
		},
	}}, Offers: []procurement.Offer{{ID: "o", Guaranteed: true, Term: 1, Starts: []procurement.Start{{Cost: 300, Max: procurement.Unlimited}}}}}
	s := solve(t, p)
	// Up to 2 units, a unit saves on-demand in both: 1000 a scenario. The next two
	// save spot, 400, in the first and on-demand in the second: (3·400 + 1000)/4 =
	// 550. Further ones save 1000 in the second alone, 250 on average: too little.
	if len(s.Purchases) != 1 || s.Purchases[0].Units != 4 || !s.Exact {
		t.Fatalf("%+v", s)
	}
	// Four times 4 units of 300; nothing in the first; in the second one on spot
	// and five on-demand.
	if want := int64(4*4*300 + 400 + 5000); s.Cost.Int64() != want {
		t.Errorf("cost %d, want %d", s.Cost, want)
	}
	ev, err := procurement.Evaluate(p, s.Purchases)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := ev.Scenarios[0], ev.Scenarios[1]; a.Cost.Int64() != 1200 || b.Cost.Int64() != 1200+400+5000 || b.SpotCost.Int64() != 400 || b.OnDemandCost.Int64() != 5000 {
		t.Errorf("scenarios cost %d and %d", a.Cost, b.Cost)
	}
	// An unlimited purchase is worth its cost.
	if w := s.Certificate.Worth(p, 0, 0); w != 4*300 {
		t.Errorf("a unit is worth %d", w)
	}
}

// alone is a pool with a certain scenario.
func alone(p *procurement.Pool, scenario int) *procurement.Pool {
	q := *p
	q.Weights, q.Epochs = nil, slices.Clone(p.Epochs)
	for m := range q.Epochs {
		if e := &q.Epochs[m]; len(e.Cases) > 0 {
			e.Cases = e.Cases[scenario : scenario+1]
		}
	}
	return &q
}

func times(weight int, v *big.Int) *big.Int { return new(big.Int).Mul(big.NewInt(int64(weight)), v) }

// A pool with scenarios costs the weighted sum of its scenarios. Knowing which comes true would
// cost less, and buying for another one more.
func TestScenariosAddUp(t *testing.T) {
	long.Check(t, 166, 50_000, func(t *rapid.T) {
		n := drawn(t)
		z := tiny
		z.kinds, z.units = anyKind, 8
		p := uncertain(n, draw(n, z))
		s := solve(t, p)
		ev, err := procurement.Evaluate(p, s.Purchases)
		if err != nil {
			t.Fatal(err)
		}
		sum, known, parts := new(big.Int), new(big.Int), new(big.Int)
		served := make([]procurement.Serving, len(p.Epochs))
		for i, w := range p.Weights {
			one := alone(p, i)
			got, err := procurement.Evaluate(one, s.Purchases)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(marshal(t, got), marshal(t, ev.Scenarios[i])) {
				t.Fatalf("scenario %d: %s, alone %s", i, marshal(t, ev.Scenarios[i]), marshal(t, got))
			}
			sum.Add(sum, times(w, got.Cost))
			parts.Add(parts, times(w, got.SpotCost)).Add(parts, times(w, got.OnDemandCost)).Add(parts, times(w, got.ShortageCost)).Add(parts, times(w, got.Purchases))
			best := solve(t, one)
			known.Add(known, times(w, best.Bound))
			other, err := procurement.Evaluate(p, best.Purchases)
			if err != nil || other.Cost.Cmp(s.Bound) < 0 {
				t.Fatalf("buying for scenario %d costs %+v, below the bound %d: %v", i, other, s.Bound, err)
			}
			for m, v := range got.Epochs {
				served[m].Demand += int64(w) * v.Demand
				served[m].Spot += int64(w) * v.Spot
				served[m].UnusedGuaranteed += int64(w) * v.UnusedGuaranteed
			}
		}
		if sum.Cmp(ev.Cost) != 0 || parts.Cmp(ev.Cost) != 0 || ev.Cost.Cmp(s.Cost) != 0 {
			t.Fatalf("cost %d, evaluated %d, scenarios %d, their parts %d", s.Cost, ev.Cost, sum, parts)
		}
		if known.Cmp(s.Cost) > 0 {
			t.Fatalf("knowing the scenario costs %d, not knowing %d", known, s.Cost)
		}
		for m, v := range served {
			if g := ev.Epochs[m]; g.Demand != v.Demand || g.Spot != v.Spot || g.UnusedGuaranteed != v.UnusedGuaranteed {
				t.Fatalf("epoch %d: %+v, scenarios %+v", m, g, v)
			}
		}
	})
}

// Equivalent changes have no effect: a scenario split in two, identical scenarios, and a single
// scenario stated as a case.
func TestScenariosThatAreNone(t *testing.T) {
	long.Check(t, 66, 20_000, func(t *rapid.T) {
		n := drawn(t)
		p := contested(n, 6, 4, 12, 0)
		same := func(what string, q *procurement.Pool, weight int, base *procurement.Solution) {
			s := solve(t, q)
			if a, b := marshal(t, base.Purchases), marshal(t, s.Purchases); base.Exact && s.Exact && !bytes.Equal(a, b) {
				t.Fatalf("%s: bought are %s instead of %s", what, b, a)
			}
			if base.Exact && s.Exact && times(weight, base.Cost).Cmp(s.Cost) != 0 {
				t.Fatalf("%s: cost %d instead of %d × %d", what, s.Cost, weight, base.Cost)
			}
		}
		base := solve(t, p)
		q := *p
		q.Weights = []int{n(1, 5, "weight"), n(1, 5, "weight")}
		same("alike", &q, q.Weights[0]+q.Weights[1], base)
		q.Epochs = slices.Clone(p.Epochs)
		for m := range q.Epochs {
			if e := &q.Epochs[m]; n(0, 1, "stated") == 1 {
				c := procurement.Case{Demand: e.Demand, SpotUnits: []int{procurement.Unlimited, 13}[n(0, 1, "spot")]}
				e.Cases, e.Demand = []procurement.Case{c, c}, nil
			}
		}
		same("alike, case by case", &q, q.Weights[0]+q.Weights[1], base)

		u := uncertain(n, p)
		base = solve(t, u)
		cut := *u
		i := n(0, len(u.Weights)-1, "which")
		if u.Weights[i] < 2 {
			return
		}
		by := n(1, u.Weights[i]-1, "by")
		cut.Weights = slices.Insert(slices.Clone(u.Weights), i, by)
		cut.Weights[i+1] -= by
		cut.Epochs = slices.Clone(u.Epochs)
		for m := range cut.Epochs {
			if e := &cut.Epochs[m]; len(e.Cases) > 0 {
				e.Cases = slices.Insert(slices.Clone(e.Cases), i, e.Cases[i])
			}
		}
		same("cut in two", &cut, 1, base)
	})
}

// More spot never costs more, and neither do fewer hours of demand.
func TestScenariosAreMonotone(t *testing.T) {
	long.Check(t, 66, 20_000, func(t *rapid.T) {
		n := drawn(t)
		p := uncertain(n, contested(n, 6, 4, 12, 0))
		s := solve(t, p)
		q := *p
		q.Epochs = slices.Clone(p.Epochs)
		for m := range q.Epochs {
			e := &q.Epochs[m]
			e.Cases = slices.Clone(e.Cases)
			for i := range e.Cases {
				c := &e.Cases[i]
				if n(0, 1, "more spot") == 1 && c.SpotUnits != procurement.Unlimited {
					c.SpotUnits += n(0, 3, "by")
				}
				if n(0, 2, "less demand") == 0 && len(c.Demand) > 0 {
					c.Demand = c.Demand[:len(c.Demand)-1]
				}
			}
		}
		if r := solve(t, &q); r.Bound.Cmp(s.Cost) > 0 {
			t.Fatalf("with more spot or less demand it costs at least %d, instead of %d", r.Bound, s.Cost)
		}
	})
}
