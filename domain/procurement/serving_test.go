package procurement_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
)

// One epoch of ten hours, three ways to serve it, by hand.
func TestEvaluateByHand(t *testing.T) {
	epoch := procurement.Epoch{
		Span:     domain.Interval{To: 10 * domain.Hour},
		Demand:   []procurement.Step{{Units: 10, Hours: 4}, {Units: 25, Hours: 1}},
		OnDemand: 100, Spot: 40, Shortage: 1000,
		SpotPermille: 250, // 2 units of 10, and 6 of 25
		Quota:        8, HeldGuaranteed: 3, HeldDiscountOnly: 2,
	}
	dear := epoch
	dear.Spot = 300
	none := epoch
	none.OnDemand = -1

	for _, c := range []struct {
		name  string
		epoch procurement.Epoch
		want  procurement.Serving
		cost  int64
	}{
		// 10: 3 guaranteed, 2 discount-only, 2 spot, 3 on-demand.
		// 25: 3 guaranteed, 2 discount-only, 6 spot, 6 on-demand as the quota of 8 allows, 8 short.
		{"spot first", epoch, procurement.Serving{Demand: 65, Guaranteed: 15, DiscountOnly: 10, Spot: 14, OnDemand: 18, Shortage: 8}, 14*40 + 18*100 + 8*1000},
		// 10: 3 guaranteed, 2 discount-only, 5 on-demand. 25: 3, 2, 6 on-demand, 6 spot, 8 short.
		{"spot last", dear, procurement.Serving{Demand: 65, Guaranteed: 15, DiscountOnly: 10, Spot: 6, OnDemand: 26, Shortage: 8}, 6*300 + 26*100 + 8*1000},
		// 10: 3 guaranteed, 2 spot, 5 short. 25: 3 guaranteed, 6 spot, 16 short.
		{"no on-demand", none, procurement.Serving{Demand: 65, Guaranteed: 15, Spot: 14, Shortage: 36}, 14*40 + 36*1000},
	} {
		c.want.UnusedGuaranteed, c.want.UnusedDiscountOnly = 3*10-c.want.Guaranteed, 2*10-c.want.DiscountOnly
		ev, err := procurement.Evaluate(&procurement.Pool{Epochs: []procurement.Epoch{c.epoch}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ev.Epochs[0] != c.want || ev.Cost.Int64() != c.cost {
			t.Errorf("%s: %+v for %d, want %+v for %d", c.name, ev.Epochs[0], ev.Cost, c.want, c.cost)
		}
	}
}

// The two convex functions that the solver works on come to what serving hour
// by hour costs, for any number of units of either kind.
func TestCurvesAreServing(t *testing.T) {
	z := tiny
	z.epochs, z.units, z.hours, z.price, z.kinds = 1, 30, 20, 100, anyKind
	long.Check(t, 1000, 300_000, func(t *rapid.T) {
		n := drawn(t)
		p := draw(n, z)
		if n(0, 1, "uncertain") == 1 {
			uncertain(n, p)
		}
		e := &p.Epochs[0]
		e.HeldGuaranteed, e.HeldDiscountOnly = n(0, 40, "guaranteed"), n(0, 40, "discount-only")
		ev, err := procurement.Evaluate(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := procurement.CurveCost(p, e.HeldGuaranteed, e.HeldDiscountOnly); got.Cmp(ev.Cost) != 0 {
			t.Fatalf("curves cost %d, serving %d: %+v", got, ev.Cost, e)
		}
		s := ev.Epochs[0]
		if s.Demand != s.Guaranteed+s.DiscountOnly+s.Spot+s.OnDemand+s.Shortage || min(s.UnusedGuaranteed, s.UnusedDiscountOnly) < 0 {
			t.Fatalf("the parts do not add up: %+v", s)
		}
	})
}

func TestEvaluateRefuses(t *testing.T) {
	p := &procurement.Pool{ID: "p", Epochs: make([]procurement.Epoch, 3), Offers: []procurement.Offer{
		{ID: "o", Term: 2, Starts: []procurement.Start{{Epoch: 1, Cost: 5, Max: 3}}},
		{ID: "many", Term: 9, Starts: []procurement.Start{{Epoch: 0, Max: procurement.Unlimited}}},
	}}
	for want, purchases := range map[string][]procurement.Purchase{
		"purchase 0: there is no offer 2":                                {{Offer: 2}},
		"purchase 0: there is no offer -1":                               {{Offer: -1}},
		`purchase 0: offer 0 ("o") does not start in epoch 2`:            {{Offer: 0, Epoch: 2, Units: 1}},
		`purchase 0: 0 units of offer 0 ("o") from epoch 1: below 1`:     {{Offer: 0, Epoch: 1}},
		`purchase 1: 2 units of offer 0 ("o") from epoch 1: below 1, or`: {{Offer: 0, Epoch: 1, Units: 2}, {Offer: 0, Epoch: 1, Units: 2}},
		`above the 1000000000 that there are`:                            {{Offer: 1, Units: procurement.MaxUnits + 1}},
	} {
		if _, err := procurement.Evaluate(p, purchases); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", purchases, err, want)
		}
	}
	ev, err := procurement.Evaluate(p, []procurement.Purchase{{Offer: 0, Epoch: 1, Units: 3}})
	if err != nil || ev.Cost.Int64() != 15 || ev.Purchases.Int64() != 15 {
		t.Errorf("%+v, %v", ev, err)
	}
}
