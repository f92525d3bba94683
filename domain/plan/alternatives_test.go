package plan

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// by gives an offer another provider.
func by(provider string) func(*domain.OfferQuoted) {
	return func(o *domain.OfferQuoted) { o.Market.Provider = provider }
}

// Ten machines of K are reserved from aws at 6 an hour, else from gcp at 7; twenty of L from gcp at 8,
// else on demand at 10. A month has 720 hours.
func TestSecondBestByHand(t *testing.T) {
	k, l := even("2026-06-01", 10), even("2026-06-01", 20)
	l.Kind = "L"
	k.Offers = append(k.Offers, sold("six", domain.OfferReserved, "6", 1), sold("seven", domain.OfferReserved, "7", 1, by("gcp")))
	l.Offers = append(l.Offers, sold("eight", domain.OfferReserved, "8", 1, by("gcp")))
	q := over(1, k, l)
	if p := compute(t, q); p.Alternatives != nil {
		t.Errorf("alternatives that were not asked for: %+v", p.Alternatives)
	}
	q.Assumptions.SecondBest = true
	p := compute(t, q)
	equal(t, "cost", p.Total.Cost, "158400") // (10 × 6 + 20 × 8) × 720
	type row struct{ supplier, offer, pool, bought, cost, more string }
	want := []row{
		{"aws", "", "", "43200", "165600", "7200"},
		{"aws", "six", "r K", "43200", "165600", "7200"},
		{"gcp", "", "", "115200", "187200", "28800"},
		{"gcp", "eight", "r L", "115200", "187200", "28800"},
	}
	if len(p.Alternatives) != len(want) {
		t.Fatalf("alternatives %+v", p.Alternatives)
	}
	for i, w := range want {
		x := &p.Alternatives[i]
		got := row{x.Supplier, x.Offer, x.Pool, x.Bought.String(), x.Cost.String(), x.More.String()}
		if got != w || !x.LowerBound.Equal(x.Cost) || (len(x.Certificate) > 0) != (i == 0) {
			t.Errorf("alternative %d: %+v, at least %s, %d proofs; want %+v", i, got, x.LowerBound, len(x.Certificate), w)
		}
	}
	if x := p.Alternatives[0].Purchases; len(x) != 1 || x[0] != (instance.Order{Offer: "r K|gcp|seven", Units: 10}) {
		t.Errorf("without aws is bought %+v", x)
	}
	if x := p.Alternatives[2].Purchases; len(x) != 0 {
		t.Errorf("without gcp is bought %+v", x)
	}
}

// A spend commitment over pools is an offer of its supplier, too: without it all runs on demand, half of
// the hours in each region.
func TestSecondBestWithoutSpendCommitment(t *testing.T) {
	q := follows()
	q.Assumptions.SecondBest = true
	p := compute(t, q)
	if len(p.Alternatives) != 2 || p.Alternatives[1].Offer != "compute plan" || p.Alternatives[1].Pool != "" {
		t.Fatalf("alternatives %+v", p.Alternatives)
	}
	for i := range p.Alternatives {
		x := &p.Alternatives[i]
		equal(t, "cost", x.Cost, "57600") // (10 × 10 + 5 × 12) × 360
		equal(t, "bought", x.Bought, p.Regions[0].Purchases[0].Cost.String())
		if len(x.Purchases) != 0 {
			t.Errorf("bought %+v", x.Purchases)
		}
	}
}

// An alternative costs what a plan costs from which its offers are left out, and no less than is proven
// of the plan.
func TestAnyAlternative(t *testing.T) {
	lp, ctx, seen := lazily(t), t.Context(), 0
	rapid.Check(t, func(t *rapid.T) {
		q := anyQuestion(t)
		q.Assumptions.SecondBest = true
		p, err := Compute(ctx, q, lp)
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Alternatives {
			x := &p.Alternatives[i]
			seen++
			if x.Cost.LessThan(p.Total.LowerBound) || x.LowerBound.GreaterThan(x.Cost) || !x.More.Equal(x.Cost.Sub(p.Total.Cost)) ||
				i > 0 && x.Cost.LessThan(p.Alternatives[i-1].Cost) {
				t.Fatalf("alternative %+v of a plan for %s, at least %s", x, p.Total.Cost, p.Total.LowerBound)
			}
			if x.Offer != "" && x.Pool == "" {
				continue // a spend commitment is several quotes
			}
			less := *q
			less.Assumptions.SecondBest = false
			less.Pools = slices.Clone(q.Pools)
			for j := range less.Pools {
				k := &less.Pools[j]
				k.Offers = slices.DeleteFunc(slices.Clone(k.Offers), func(o domain.OfferQuoted) bool {
					return (o.Kind == domain.OfferReserved || o.Kind == domain.OfferSpendCommitment) && o.Market.Provider == x.Supplier &&
						(x.Offer == "" || x.Offer == o.Offer && x.Zone == o.Zone && x.Pool == k.Region+" "+k.Kind)
				})
			}
			other, err := Compute(ctx, &less, lp)
			if err != nil {
				t.Fatal(err)
			}
			// Spend commitments couple pools, and coupled ones are proven to a small gap.
			if little := dec("0.0001"); x.LowerBound.GreaterThan(other.Total.Cost.Add(little)) || other.Total.LowerBound.GreaterThan(x.Cost.Add(little)) {
				t.Fatalf("without %s %s the plan costs %s to %s, as an alternative %s to %s", x.Supplier, x.Offer, other.Total.LowerBound,
					other.Total.Cost, x.LowerBound, x.Cost)
			}
		}
	})
	if t.Logf("%d alternatives", seen); !testing.Short() && seen == 0 {
		t.Error("the questions say nothing")
	}
}

// At most 60% of the cost is for machines from gcp: of twenty, n are reserved at 8 and the others run on
// demand, so 5,760 n ≤ 0.6 × (187,200 − 1,440 n). That is 16.96, and 16 in whole machines.
func TestCapByHand(t *testing.T) {
	k, l := even("2026-06-01", 10), even("2026-06-01", 20)
	l.Kind = "L"
	k.Offers = append(k.Offers, sold("six", domain.OfferReserved, "6", 1), sold("seven", domain.OfferReserved, "7", 1, by("gcp")))
	l.Offers = append(l.Offers, sold("eight", domain.OfferReserved, "8", 1, by("gcp")))
	q := over(1, k, l)
	q.Assumptions.MaxShare = dec("0.6")
	p := compute(t, q)
	if len(p.Capped) != 2 || p.Alternatives != nil {
		t.Fatalf("%d caps, want those of gcp and its offer; %d alternatives that were not asked for", len(p.Capped), len(p.Alternatives))
	}
	for i, offer := range []string{"", "eight"} {
		x := &p.Capped[i]
		if x.Supplier != "gcp" || x.Offer != offer || len(x.Purchases) != 1 || x.Purchases[0].Units != 16 {
			t.Errorf("capped: %+v", x)
		}
		equal(t, "cost", x.Cost, "164160")
		equal(t, "more", x.More, "5760")
		equal(t, "bought", x.Bought, "115200")
		equal(t, "left", x.Left, "92160")
		// A part of a machine more would cost 187,200 − 1,440 × 112,320 ÷ 6,624.
		if least := dec("162782.6"); x.LowerBound.Sub(least).Abs().GreaterThan(dec("0.1")) {
			t.Errorf("at least %s, want %s", x.LowerBound, least)
		}
	}
	q.Assumptions.MaxShare = dec("0.75")
	if p := compute(t, q); p.Capped != nil {
		t.Errorf("gcp has 72.7%% of the cost, and is capped at 75%%: %+v", p.Capped)
	}
}
