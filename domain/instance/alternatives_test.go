package instance

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement/check"
)

// A cap keeps its share, costs at least its bound, and no purchases that keep the share cost less than
// that: all purchases of small instances are tried.
func TestCapAgainstAllPurchases(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 9))
	tried, worst := 0, decimal.Zero
	for range long.Count(40, 400) {
		in := daily(Demand{Hourly: hoursAt(24, 0)}, Demand{Hourly: hoursAt(24, 0)})
		for i := range in.Demands {
			for h := range in.Demands[i].Hourly {
				in.Demands[i].Hourly[h] = rng.IntN(5)
			}
		}
		second := in.Pools[0]
		second.ID, second.Class = "q", "B"
		in.Pools, in.Demands[1].Pool = append(in.Pools, second), "q"
		price := func() domain.Decimal { return whole(1 + rng.IntN(30)).Shift(-1) }
		in.Offers = nil
		for _, o := range []Offer{{ID: "a", Provider: "x", Pool: "p"}, {ID: "b", Provider: "y", Pool: "p"}, {ID: "c", Provider: "x", Pool: "q"}} {
			o.Kind, o.Term, o.Hourly, o.GuaranteesCapacity = domain.OfferReserved, 1, price(), true
			in.Offers = append(in.Offers, o)
		}
		a, err := Solve(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		most := whole(1 + rng.IntN(8)).Shift(-1)
		if err := a.Alternate(t.Context(), in, true, most, nil); err != nil {
			t.Fatal(err)
		}
		if err := Check(t.Context(), in, a); err != nil {
			t.Fatal(err)
		}
		for i := range a.Capped {
			x := &a.Capped[i]
			s := &search{target: target{x.Supplier, x.Offer}}
			var least *corner
			for n := range 125 {
				var orders []Order
				for k, units := range []int{n % 5, n / 5 % 5, n / 25} {
					if units > 0 {
						orders = append(orders, Order{Offer: in.Offers[k].ID, Units: units})
					}
				}
				p, err := s.placed(t.Context(), in, orders)
				if err != nil {
					t.Fatal(err)
				}
				if !p.exceeds(most) && (least == nil || p.cost.LessThan(least.cost)) {
					least = p
				}
			}
			tried++
			if x.LowerBound.GreaterThan(least.cost) || x.Cost.LessThan(least.cost) || x.Left.GreaterThan(x.Cost.Mul(most)) {
				t.Fatalf("at most %s for %s: %s to %s with %s for it; the best of all purchases cost %s", most, s, x.LowerBound, x.Cost, x.Left, least.cost)
			}
			worst = decimal.Max(worst, x.Cost.DivRound(least.cost, 4))
		}
	}
	if t.Logf("%d caps, at worst %s times the best", tried, worst); tried == 0 {
		t.Error("no cap was tried")
	}
}

// An alternative whose purchases cost something else, or that spends more than its cap, is refused.
func TestForgedAlternatives(t *testing.T) {
	in := daily(Demand{Hourly: halves(4, 2)})
	in.Offers[0].Provider = "x"
	a, err := Solve(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Alternate(t.Context(), in, true, dec("0.5"), nil); err != nil {
		t.Fatal(err)
	}
	if len(a.Alternatives) != 2 || len(a.Capped) != 2 {
		t.Fatalf("%d alternatives, %d caps", len(a.Alternatives), len(a.Capped))
	}
	for name, forge := range map[string]func(){
		"cost":       func() { a.Alternatives[0].Cost = a.Alternatives[0].Cost.Sub(one) },
		"more":       func() { a.Capped[0].More = a.Capped[0].More.Sub(one) },
		"share":      func() { a.Capped[0].AtMost = dec("0.1") },
		"still some": func() { a.Alternatives[0].Purchases = a.Capped[0].Purchases },
		"bought":     func() { a.Capped[1].Bought = one },
	} {
		list, capped := a.Alternatives, a.Capped
		a.Alternatives, a.Capped = append([]Alternative{}, list...), append([]Alternative{}, capped...)
		forge()
		if err := Check(t.Context(), in, a); !errors.Is(err, check.ErrRejected) {
			t.Errorf("%s: %v", name, err)
		}
		a.Alternatives, a.Capped = list, capped
	}
	if err := Check(t.Context(), in, a); err != nil {
		t.Error(err)
	}
}
