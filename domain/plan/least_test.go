package plan

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/procurement"
)

// On pools small enough to try all purchases, nothing is cheaper than the result of the search.
func TestLeastOrdersByForce(t *testing.T) {
	rounded := 0
	rapid.Check(t, func(t *rapid.T) {
		const top = 4
		p := &procurement.Pool{ID: "tiny"}
		for range rapid.IntRange(1, 2).Draw(t, "months") {
			e := procurement.Epoch{OnDemand: 10, Spot: -1, Shortage: 30, Quota: rapid.IntRange(-1, 3).Draw(t, "quota")}
			for units := 1; units <= top; units++ {
				if hours := rapid.IntRange(0, 9).Draw(t, "hours"); hours > 0 {
					e.Demand = append(e.Demand, procurement.Step{Units: units, Hours: hours})
				}
			}
			p.Epochs = append(p.Epochs, e)
		}
		var least []int
		for range rapid.IntRange(1, 2).Draw(t, "offers") {
			o := procurement.Offer{Guaranteed: rapid.Bool().Draw(t, "guaranteed"), Term: rapid.IntRange(1, 2).Draw(t, "term")}
			for m := range p.Epochs {
				o.Starts = append(o.Starts, procurement.Start{Epoch: m, Cost: procurement.Nano(rapid.IntRange(0, 300).Draw(t, "cost")), Max: top})
			}
			p.Offers, least = append(p.Offers, o), append(least, rapid.IntRange(1, top).Draw(t, "least"))
		}
		got, err := solve(p, least, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.tooFew) > 0 && len(got.Purchases) > 0 {
			rounded++
		}
		var best *big.Int
		var force func(offer, start int, bought []procurement.Purchase)
		force = func(offer, start int, bought []procurement.Purchase) {
			switch {
			case offer == len(p.Offers):
				ev, err := procurement.Evaluate(p, bought)
				if err != nil {
					t.Fatal(err)
				}
				if best == nil || ev.Cost.Cmp(best) < 0 {
					best = ev.Cost
				}
				return
			case start == len(p.Offers[offer].Starts):
				force(offer+1, 0, bought)
				return
			}
			force(offer, start+1, bought)
			for units := least[offer]; units <= top; units++ {
				force(offer, start+1, append(bought[:len(bought):len(bought)], procurement.Purchase{Offer: offer, Epoch: start, Units: units}))
			}
		}
		force(0, 0, nil)
		if got.Cost.Cmp(best) != 0 {
			t.Fatalf("cost %d, and %d is possible", got.Cost, best)
		}
	})
	if rounded == 0 {
		t.Error("no least order ever decided")
	}
}
