package procurement_test

import (
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
)

// The curve with a worth of guaranteed capacity is the minimum over all splits of the units into
// the two kinds, up to the part that no unit saves.
func TestPricedCurve(t *testing.T) {
	long.Check(t, 50, 6_000, func(t *rapid.T) {
		n := drawn(t)
		p := contested(n, 2, 2, 12, 0)
		if n(0, 1, "uncertain") == 1 {
			uncertain(n, p)
		}
		e := &p.Epochs[0]
		e.HeldDiscountOnly = n(0, 12, "held discount-only")
		worth := procurement.Nano(n(0, 2000, "worth"))
		const many = 40 // more than is useful
		floorCurve, _, floorSplit := procurement.PricedCost(p, worth, many)
		for units := range many {
			curve, use, split := procurement.PricedCost(p, worth, units)
			if use.Cmp(split) != 0 {
				t.Fatalf("%d units at %d: used so they cost %d, at best %d: %+v", units, worth, use, split, e)
			}
			if curve.Sub(curve, floorCurve).Cmp(new(big.Int).Sub(split, floorSplit)) != 0 {
				t.Fatalf("%d units at %d: %d by the curve, %d by splitting %+v", units, worth, curve, new(big.Int).Sub(split, floorSplit), e)
			}
		}
	})
}

// The bound of a pool too large for the simplex is weaker, but valid.
func TestLargeAgainstSimplex(t *testing.T) {
	var gaps []float64
	for seed := range uint64(60) {
		p := enlarge(contested(even(seed), 12, 6, 60, []int{0, 0, 5}[seed%3]))
		if seed%4 == 3 {
			uncertain(even(seed), p)
		}
		s := solve(t, p)
		large, err := procurement.SolveLarge(p)
		if err != nil {
			t.Fatal(err)
		}
		ev, err := procurement.Evaluate(p, large.Purchases)
		if err != nil || ev.Cost.Cmp(large.Cost) != 0 || large.Bound.Cmp(s.Cost) > 0 || large.Cost.Cmp(s.Bound) < 0 {
			t.Fatalf("seed %d: from %d to %d, evaluated %+v, %v; by simplex from %d to %d", seed, large.Bound, large.Cost, ev, err, s.Bound, s.Cost)
		}
		if s.Algorithm == procurement.Linear {
			gap, _ := new(big.Rat).SetFrac(large.Gap(), large.Cost).Float64()
			gaps = append(gaps, gap)
		}
	}
	slices.Sort(gaps)
	n := len(gaps)
	t.Logf("%d pools by flows at prices: gap median %.1e, 90%% %.1e, most %.1e", n, gaps[n/2], gaps[n*9/10], gaps[n-1])
	if n < 30 || gaps[n-1] > 0.05 || gaps[n/2] > 0.005 {
		t.Errorf("the gaps of %d pools are wider than they were", n)
	}
}
