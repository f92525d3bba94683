package plan

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Ten machines ran in seven of ten hours of the last weeks, and twelve in the others. Four are held. Six may
// be ordered now, of the longest term first, and the others wait.
func TestWaits(t *testing.T) {
	k := even("2026-06-01", 10)
	for h := range k.Series[0].Milli {
		if h%10 < 3 {
			k.Series[0].Milli[h] = 12_000
		}
	}
	k.Offers = append(k.Offers, sold("year", domain.OfferReserved, "6", 12), sold("three", domain.OfferReserved, "4", 36),
		sold("slow", domain.OfferReserved, "4", 36, func(o *domain.OfferQuoted) { o.LeadTimeHours = longLead }))
	order := func(offer string, epoch, units int) instance.Order {
		return instance.Order{Offer: OfferName("r K", &domain.OfferQuoted{Market: domain.Market{Provider: "aws"}, Offer: offer}), Epoch: epoch, Units: units}
	}
	orders := []instance.Order{order("year", 0, 5), order("three", 0, 4), order("three", 1, 7), order("slow", 0, 9)}
	waits := func(edit func(q *Question)) map[instance.Order]*Wait {
		t.Helper()
		q := over(6, k)
		q.Held = []Held{held("2025-10-01", "2027-06-01")}
		q.Held[0].Units = 4
		edit(q)
		c, err := newComposer(q)
		if err != nil {
			t.Fatal(err)
		}
		c.take(q.Pools)
		q.Assumptions.SalvageFrom = Forecast
		out, err := c.waits(&group{pools: c.pools}, orders)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	got := waits(func(*Question) {})
	if w := got[orders[0]]; len(got) != 1 || w == nil || *w != (Wait{3, 10, 4}) {
		t.Errorf("waits %v, want three of the year's five", got)
	}
	if got := waits(func(q *Question) { q.Held[0].Units = 1 }); len(got) != 0 {
		t.Errorf("with one held, waits %v", got)
	}
	if got := waits(func(q *Question) { q.Held[0].Units = 20 }); len(got) != 2 || got[orders[1]].Units != 4 || got[orders[0]].Units != 5 {
		t.Errorf("with twenty held, waits %v", got)
	}
	least := func(q *Question) { q.Pools[0].Offers[1].MinUnits = 3 }
	if got := waits(least); got[orders[0]] == nil || got[orders[0]].Units != 5 {
		t.Errorf("with room for less than the least order, waits %v", got)
	}
	if got := waits(func(q *Question) { q.Pools[0].Quotas = []Quota{{Provider: "aws", GPUs: 100}} }); got != nil {
		t.Errorf("with a quota, waits %v", got)
	}
	if got := waits(func(q *Question) { q.Assumptions.ServiceLevel = dec("0.99") }); got != nil {
		t.Errorf("with a service level, waits %v", got)
	}
}
