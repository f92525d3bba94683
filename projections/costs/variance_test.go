package costs_test

import (
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

// The parts of a variance add up to the difference to the last digit, and a factor that did not change has no part.
func TestVarianceAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		amount := func(name string) attribution.Amount {
			a, err := attribution.ParseAmount(rapid.StringMatching(`-?[0-9]{1,7}\.[0-9]{1,18}`).Draw(t, name))
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		held := func() costs.Held {
			return costs.Held{
				Cost: amount("cost"), Bought: rapid.Int64Range(-5, 1_000_000_000).Draw(t, "bought"),
				Allocated: rapid.Int64Range(0, 1_000_000_000).Draw(t, "allocated"),
			}
		}
		kinds := make([][2]costs.Held, rapid.IntRange(0, 6).Draw(t, "kinds"))
		for i := range kinds {
			kinds[i] = [2]costs.Held{held(), held()}
		}
		v := costs.VarianceOf(kinds)
		var want attribution.Amount
		for i := range kinds {
			want = want.Add(kinds[i][1].Cost).Sub(kinds[i][0].Cost)
		}
		if sum := v.Volume.Add(v.Mix).Add(v.Efficiency).Add(v.Price).Add(v.FX).Add(v.Other); sum != want || v.Difference != want {
			t.Fatalf("parts %+v add up to %s, want %s", v, sum, want)
		}
		// Only prices change.
		for i := range kinds {
			kinds[i][1].Bought, kinds[i][1].Allocated = kinds[i][0].Bought, kinds[i][0].Allocated
		}
		if v := costs.VarianceOf(kinds); !v.Volume.IsZero() || !v.Mix.IsZero() || !v.Efficiency.IsZero() {
			t.Fatalf("only prices changed: %+v", v)
		}
	})
}

// A worked example: 10 hours at 2 become 20 hours at 3 with a quarter more bought for each, and 5 of another kind.
func TestVarianceOfAnExample(t *testing.T) {
	v := costs.VarianceOf([][2]costs.Held{
		{{Cost: attribution.Whole(20), Bought: 10, Allocated: 10}, {Cost: attribution.Whole(75), Bought: 25, Allocated: 20}},
		{{}, {Cost: attribution.Whole(40), Bought: 5, Allocated: 5}},
		{{Cost: attribution.Whole(7)}, {Cost: attribution.Whole(4)}},
	})
	// 20 → 25 hours at 2: 30 more; 20×2 + 5×8 − 50: 30; 25×2 − 20×2: 10; 25×(3−2): 25; and −3.
	for name, of := range map[string][2]attribution.Amount{
		"volume": {v.Volume, attribution.Whole(30)}, "mix": {v.Mix, attribution.Whole(30)}, "efficiency": {v.Efficiency, attribution.Whole(10)},
		"price": {v.Price, attribution.Whole(25)}, "other": {v.Other, attribution.Whole(-3)}, "difference": {v.Difference, attribution.Whole(92)},
	} {
		if of[0] != of[1] {
			t.Errorf("%s is %s, want %s", name, of[0], of[1])
		}
	}
}
