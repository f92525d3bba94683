package joint_test

import (
	"math/big"
	"slices"
	"testing"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// some draws units that the choices allow.
func some(n source, p *joint.Problem) []int {
	units := make([]int, len(p.Choices))
	taken := false
	for j := range units {
		c := &p.Choices[j]
		if n(0, 1) == 0 || c.Group != "" && taken {
			continue
		}
		low := (max(1, c.Least) + c.Lot - 1) / c.Lot
		high := 8
		if c.Max != procurement.Unlimited {
			high = c.Max / c.Lot
		}
		if low <= high {
			units[j] = n(low, high) * c.Lot
			taken = taken || c.Group != ""
		}
	}
	return units
}

// The serving cost equals that of a linear program over all slots.
func TestEvaluateAgainstLinearProgram(t *testing.T) {
	limited := 0
	for seed := range uint64(long.Count(75, 4000)) {
		n := seeded(seed)
		p := draw(n, everything)
		units := some(n, p)
		ev, err := joint.Evaluate(p, units)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		foot(t, p, units, ev)
		free := *p
		free.Needs = nil
		want, ok := optimum(t, &free, units, false)
		got := float(ev.Cost)
		kept := true
		for _, id := range ev.Broken {
			for _, l := range p.Limits {
				kept = kept && id != l.ID
			}
		}
		multiplied := false
		for _, w := range ev.Ways {
			multiplied = multiplied || slices.ContainsFunc(w.Multipliers, func(v int64) bool { return v != 0 })
		}
		if multiplied {
			limited++
		}
		switch {
		case ok != kept:
			// A limit may be kept only by a mix of ways.
			if kept {
				t.Errorf("seed %d: limits are kept, the linear program has no solution", seed)
			}
		case !ok:
		case got < want*(1-1e-9)-1 || !multiplied && got > want*(1+1e-9)+1:
			t.Errorf("seed %d: cost %.0f, the linear program's %.0f", seed, got, want)
		}
	}
	t.Logf("%d with multipliers", limited)
}

// foot checks invariants of any evaluation.
func foot(t testing.TB, p *joint.Problem, units []int, ev *joint.Evaluation) {
	t.Helper()
	for m, cases := range ev.Cases {
		for c, s := range cases {
			short := func(what string, r *big.Rat) {
				if r.Sign() < 0 {
					t.Errorf("epoch %d, case %d: %s is negative: %s", m, c, what, r)
				}
			}
			for d := range s.Demands {
				sum := new(big.Rat).Set(s.Demands[d].Shortage)
				short("shortage", sum)
				for i, r := range p.Routes {
					if r.Demand == d {
						short("firm", s.Routes[i].Firm)
						short("spot", s.Routes[i].Spot)
						sum.Add(sum, s.Routes[i].Firm)
						sum.Add(sum, s.Routes[i].Spot)
					}
				}
				if sum.Cmp(new(big.Rat).SetInt(s.Demands[d].Demand)) < 0 {
					t.Errorf("epoch %d, case %d, demand %d: %s of %s served or short", m, c, d, sum, s.Demands[d].Demand)
				}
			}
			for k := range s.Pools {
				used, spot := new(big.Rat), new(big.Rat)
				for i, r := range p.Routes {
					if r.Pool == k {
						ratio := big.NewRat(int64(r.Num), int64(r.Den))
						used.Add(used, new(big.Rat).Mul(ratio, s.Routes[i].Firm))
						spot.Add(spot, new(big.Rat).Mul(ratio, s.Routes[i].Spot))
					}
				}
				v := &s.Pools[k]
				by := new(big.Rat)
				for _, r := range []*big.Rat{v.Guaranteed, v.DiscountOnly, v.Committed, v.OnDemand} {
					short("a pool's use", r)
					by.Add(by, r)
				}
				if by.Cmp(used) != 0 || spot.Cmp(v.Spot) != 0 {
					t.Errorf("epoch %d, case %d, pool %d: used %s by %s, spot %s by %s", m, c, k, used, by, spot, v.Spot)
				}
			}
		}
	}
	sum := new(big.Rat)
	for _, r := range []*big.Rat{ev.Purchases, ev.OnDemand, ev.Spot, ev.Routes, ev.Shortage} {
		sum.Add(sum, r)
	}
	if d, _ := new(big.Rat).Sub(new(big.Rat).SetInt(ev.Cost), sum).Float64(); d < 0 || d >= 1 {
		t.Errorf("cost %s, parts %s", ev.Cost, sum.FloatString(3))
	}
}
