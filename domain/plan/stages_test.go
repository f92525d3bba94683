package plan

import (
	"fmt"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Ten machines are needed, and from December on twenty in three of four scenarios. Ten more are reserved
// by the month from then on: at 20 instead of 30 that pays if they run in more than two thirds of the
// scenarios. December's are decided when all scenarios still look alike. Those of January to May are
// decided by the demand of the month before, and nothing is spent on them in the fourth scenario.
func TestStagesByHand(t *testing.T) {
	k := even("2026-06-01", 10)
	k.Offers = append(k.Offers, sold("month", domain.OfferReserved, "6.7", 1), sold("year", domain.OfferReserved, "5", 12, func(o *domain.OfferQuoted) { o.ValidTo = at("2026-06-15") }))
	q := over(12, k)
	c, err := newComposer(q)
	if err != nil {
		t.Fatal(err)
	}
	c.take(q.Pools)
	g := &group{pools: c.pools}
	in, err := c.problem(g)
	if err != nil {
		t.Fatal(err)
	}
	for s, more := range []int{10, 10, 10, 0} {
		var hours []int
		var levels []int64
		for m, span := range c.span {
			n := 10
			if m >= 6 {
				n += more
			}
			for range hoursOf(span) {
				hours = append(hours, n)
			}
			levels = append(levels, int64(n)*1000)
		}
		in.Scenarios = append(in.Scenarios, instance.Scenario{ID: fmt.Sprint(s), Weight: 1, Hourly: map[string][]int{"r K": hours}})
		c.pools[0].future.levels = append(c.pools[0].future.levels, levels)
	}
	a, err := instance.Solve(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if later, err := c.stages(t.Context(), g, in, a); err != nil || later != nil {
		t.Errorf("repeated demand is decided later: %v, %v", later, err)
	}
	q.Assumptions.Demand = Forecast
	later, err := c.stages(t.Context(), g, in, a)
	if err != nil {
		t.Fatal(err)
	}
	regrets, err := c.regrets(t.Context(), in, a)
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.Purchases {
		// From December on, ten machines at 6.7 instead of 10, and in the fourth scenario for nothing.
		b := &a.Purchases[i]
		r, hours := regrets[b.Order], fmt.Sprint(hoursOf(c.span[b.Epoch]))
		if b.Epoch == 0 {
			if r.Scenarios != 0 || !r.Most.IsZero() || len(r.Saves) != 4 {
				t.Errorf("the year is regretted: %+v", r)
			}
			continue
		}
		equal(t, "saves", r.Saves[0], dec("33").Mul(dec(hours)).String())
		equal(t, "saves", r.Saves[3], dec("-67").Mul(dec(hours)).String())
		equal(t, "mean", r.Mean, dec("8").Mul(dec(hours)).String())
		equal(t, "most", r.Most, dec("67").Mul(dec(hours)).String())
		if r.Scenarios != 1 {
			t.Errorf("%+v is regretted in %d scenarios", b.Order, r.Scenarios)
		}
	}
	if len(a.Purchases) != 7 || len(later) != 6 {
		t.Fatalf("%d purchases, %d of them decided later", len(a.Purchases), len(later))
	}
	for i := range a.Purchases {
		b := &a.Purchases[i]
		d := later[b.Order]
		switch {
		case b.Epoch == 0:
			if d != nil || b.Units != 10 {
				t.Errorf("the year is %+v, decided by %+v", b.Order, d)
			}
		case d == nil || b.Units != 10 || d.By != b.Term.From || d.Month != c.span[b.Epoch-1].From.Time().Format("2006-01") || d.Unit != "gpu":
			t.Errorf("%+v is decided by %+v", b.Order, d)
		case b.Epoch == 6:
			equal(t, "December at least", d.AtLeast, "10")
			equal(t, "saves", d.Saves, "0")
		default:
			equal(t, "at least", d.AtLeast, "20")
			// 10 machines at 6.7 in a quarter of the scenarios
			equal(t, "saves", d.Saves, dec("16.75").Mul(dec(fmt.Sprint(hoursOf(c.span[b.Epoch])))).String())
			if d.Orders != 3 {
				t.Errorf("ordered in %d scenarios", d.Orders)
			}
		}
	}
}

// Of equally good levels the lowest counts, equal levels are decided alike, and a purchase that never
// gains is never ordered.
func TestDecide(t *testing.T) {
	gains := func(list ...string) (out []domain.Decimal) {
		for _, x := range list {
			out = append(out, dec(x))
		}
		return out
	}
	for _, x := range []struct {
		gains          []domain.Decimal
		levels         []int64
		orders         int
		atLeast, saves string
	}{
		{gains("5", "-1", "3", "-2"), []int64{4000, 1000, 3000, 2000}, 2, "3", "0.75"},
		{gains("5", "0", "3", "0"), []int64{4000, 1000, 3000, 2000}, 4, "1", "0"},
		{gains("5", "-6", "3"), []int64{2000, 2000, 1000}, 3, "1", "0"},
		{gains("-5", "-6"), []int64{2000, 1000}, 0, "2.001", "5.5"},
	} {
		d := decide(x.gains, x.levels)
		if d.Orders != x.orders {
			t.Errorf("%v: ordered in %d scenarios, want %d", x.gains, d.Orders, x.orders)
		}
		equal(t, "at least", d.AtLeast, x.atLeast)
		equal(t, "saves", d.Saves, x.saves)
	}
}
