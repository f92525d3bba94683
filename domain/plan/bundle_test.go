package plan

import (
	"slices"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Eleven machines run in June, and thirteen in July. Two more from June on cost 2 × 2 × 720 more; two on
// demand in July would cost (10 − 2) × 2 × 744.
func TestBundleByHand(t *testing.T) {
	k := even("2026-06-01", 10)
	k.Offers = append(k.Offers, sold("year", domain.OfferReserved, "2", 12))
	q := over(2, k)
	q.Assumptions.MonthlyGrowth = dec("0.1")
	if p := compute(t, q); p.FewerOrders != nil {
		t.Errorf("fewer orders that were not asked for: %+v", p.FewerOrders)
	}
	q.Assumptions.OrderPrice = dec("3000")
	b := compute(t, q).FewerOrders
	want := []BundledOrder{{instance.Order{Offer: "r K|aws|year", Units: 13}, at("2026-06-01")}}
	if b.Orders != 1 || !slices.Equal(b.Purchases, want) {
		t.Errorf("orders %+v, want %+v", b.Purchases, want)
	}
	equal(t, "more", b.More, "2880")
	equal(t, "saves", b.Saves, "120")
	q.Assumptions.OrderPrice = dec("2000")
	if b := compute(t, q).FewerOrders; b.Orders != 2 || !b.More.IsZero() || !b.Saves.IsZero() {
		t.Errorf("at 2,000 an order they are %+v", b)
	}
}

// Ten machines are reserved by the month. June's order saves 10 × 4 × 720, those of July and August
// 10 × 4 × 744: at a higher price of placing one, it is left out.
func TestBundleLeavesOut(t *testing.T) {
	k := even("2026-06-01", 10)
	k.Offers = append(k.Offers, sold("month", domain.OfferReserved, "6", 1))
	q := over(3, k)
	q.Assumptions.OrderPrice = dec("29000")
	b := compute(t, q).FewerOrders
	equal(t, "saves", b.Saves, "200")
	if b.Orders != 2 || b.Purchases[0].From != at("2026-07-01") {
		t.Errorf("orders %+v", b)
	}
	q.Assumptions.OrderPrice = dec("30000")
	b = compute(t, q).FewerOrders
	equal(t, "saves", b.Saves, "1680")
	if b.Orders != 0 {
		t.Errorf("orders %+v", b)
	}
	q.Assumptions.OrderPrice = dec("-1")
	if _, err := Compute(t.Context(), q, lazily(t)); err == nil {
		t.Error("a price below 0 is taken")
	}
}

// A bundle costs what its orders cost, saves what it says and never less than nothing, has no more orders
// than the plan, and costs no less than is proven of the plan.
func TestAnyBundle(t *testing.T) {
	lp, ctx, fewer := lazily(t), t.Context(), 0
	rapid.Check(t, func(t *rapid.T) {
		q := anyQuestion(t)
		q.Assumptions.OrderPrice = decimal.NewFromInt(rapid.SampledFrom([]int64{1, 100, 5_000, 100_000, 10_000_000}).Draw(t, "price"))
		p, err := Compute(ctx, q, lp)
		if err != nil {
			t.Fatal(err)
		}
		b := p.FewerOrders
		if b == nil {
			return // nothing is planned
		}
		n := 0
		for i := range p.Regions {
			n += len(p.Regions[i].Purchases)
		}
		if b.Orders < n {
			fewer++
		}
		placing := q.Assumptions.OrderPrice.Mul(decimal.NewFromInt(int64(n - b.Orders)))
		if b.Orders > n || b.Orders != len(b.Purchases) || b.Saves.IsNegative() || !b.Saves.Equal(placing.Sub(b.More)) ||
			!b.More.Equal(b.Cost.Sub(p.Total.Cost)) || b.Cost.LessThan(p.Total.LowerBound) {
			t.Fatalf("%d orders for %s, at least %s; bundled %+v", n, p.Total.Cost, p.Total.LowerBound, b)
		}
	})
	t.Logf("%d with fewer orders", fewer) // few questions have several; the tests above have some for sure
}
