package plan

import (
	"encoding/json"
	"testing"

	"quartermaster/domain"
)

// An instance has the plan's demand, hour by hour, and what the plan considers and holds.
func TestInstance(t *testing.T) {
	p := even("2026-06-01", 6)
	for i := range p.Series[0].Milli {
		p.Series[0].Milli[i] += int64(i%24) * 500
	}
	p.SpotShare = dec("0.25")
	p.Offers = append(p.Offers, sold("spot", domain.OfferSpot, "4", 0), sold("year", domain.OfferReserved, "6", 12, func(o *domain.OfferQuoted) { o.LeadTimeHours = 800 }),
		sold("dear", domain.OfferReserved, "5", 12, func(o *domain.OfferQuoted) { o.Currency = "EUR" }))
	p.Quotas = []Quota{{Provider: "aws", GPUs: 7}}
	q := over(3, p)
	q.Assumptions.MonthlyGrowth = dec("0.1")
	q.Held = []Held{{
		Commitment: "c", Provider: "aws", Region: "r", Kind: domain.OfferReserved, SKU: "small", GPUModel: "K", GPUs: 1, Units: 2,
		Term: domain.Interval{From: at("2026-01-01"), To: at("2026-07-01")}, Hourly: domain.Money{Amount: dec("3"), Currency: "USD"}, Guaranteed: true,
	}}
	in, err := q.Instance()
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Pools) != 1 || len(in.Demands) != 1 || len(in.Offers) != 1 || len(in.Commitments) != 1 || len(in.Quotas) != 1 {
		t.Fatalf("%d pools, %d demands, %d offers, %d commitments, %d quotas", len(in.Pools), len(in.Demands), len(in.Offers), len(in.Commitments), len(in.Quotas))
	}
	p2 := compute(t, q)
	sum := int64(0)
	for _, u := range in.Demands[0].Hourly {
		sum += int64(u)
	}
	if d := p2.Regions[0].Pools[0].Demand; d.UnitHours != sum || d.Hours != len(in.Demands[0].Hourly) {
		t.Errorf("%d unit-hours in %d hours, want %d in %d", d.UnitHours, d.Hours, sum, len(in.Demands[0].Hourly))
	}
	if o := in.Offers[0]; o.ID != "r K|aws|year" || o.Term != 12 || o.From != q.At+800*domain.Hour {
		t.Errorf("offered is %+v", o)
	}
	if h := in.Commitments[0]; h.Units != 2 || !h.Hourly.Equal(dec("3")) || h.Pool != "r K" {
		t.Errorf("held is %+v", h)
	}
	if in.Quotas[0].Limit != 7 || in.Pools[0].Quota != in.Quotas[0].ID || !in.Demands[0].Shortage.Equal(dec("100")) {
		t.Errorf("quota %+v, pool %+v, demand %s", in.Quotas[0], in.Pools[0], in.Demands[0].Shortage)
	}
	// With a rate, prices in another currency are included.
	q.FX = map[string]domain.Decimal{"EUR": dec("1.1")}
	if in, err = q.Instance(); err != nil {
		t.Fatal(err)
	}
	if len(in.Offers) != 2 || !in.Offers[0].Hourly.Equal(dec("5.5")) {
		t.Errorf("with a rate offered are %+v", in.Offers)
	}
	if q.Pools[0].Offers[3].Currency != "EUR" {
		t.Error("the question was changed")
	}
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

// Bars in an offer's own name are none between the parts of its name in a problem.
func TestOfferNamesDiffer(t *testing.T) {
	seen := map[string]domain.OfferQuoted{}
	for _, offer := range []string{"a", "a|b", `a\`, `a\|b`, "a|b|c"} {
		for _, zone := range []string{"", "b", "b|c", "|b", "c"} {
			o := domain.OfferQuoted{Market: domain.Market{Provider: "p"}, Offer: offer, Zone: zone}
			name := OfferName("r k", &o)
			if other, twice := seen[name]; twice {
				t.Errorf("%q in zone %q and %q in zone %q are both %q", offer, zone, other.Offer, other.Zone, name)
			}
			seen[name] = o
		}
	}
}
