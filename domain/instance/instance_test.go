package instance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

func instant(t *testing.T, s string) domain.Instant {
	t.Helper()
	i, err := domain.ParseInstant(s)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func dec(s string) domain.Decimal { return decimal.RequireFromString(s) }

// One pool, one day, no discount: a reservation for the whole horizon pays if it is used more than
// the ratio of its price to the on-demand price.
func tiny(t *testing.T) *Instance {
	hourly := make([]int, 48)
	for h := range hourly {
		hourly[h] = 2
		if h%24 >= 12 {
			hourly[h] = 5
		}
	}
	return &Instance{
		Format: Format, Name: "tiny", Currency: "USD", From: instant(t, "2026-03-01T00:00:00Z"), Epoch: Days, Epochs: 2,
		Regions: []Region{{ID: "r1", Country: "US"}},
		Pools:   []Pool{{ID: "p", Region: "r1", Class: "H100", Unit: "gpu", OnDemand: &Price{Hourly: dec("4")}}},
		Demands: []Demand{{ID: "d", Pool: "p", Hourly: hourly, Shortage: dec("40")}},
		Offers:  []Offer{{ID: "reserve", Kind: domain.OfferReserved, Pool: "p", Term: 2, Hourly: dec("2.5"), GuaranteesCapacity: true}},
	}
}

func TestTiny(t *testing.T) {
	in := tiny(t)
	a, err := Solve(context.Background(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	// 2 units day and night at 2.5 × 48 × 2 = 240; 3 more in 24 hours on demand: 3 × 24 × 4 = 288.
	if a.Cost.String() != "528" || a.LowerBound.String() != "528" || len(a.Purchases) != 1 || a.Purchases[0].Units != 2 {
		t.Errorf("cost %s bound %s purchases %+v", a.Cost, a.LowerBound, a.Purchases)
	}
	if err := Check(t.Context(), in, a); err != nil {
		t.Error(err)
	}
}

// Purchases for a pool without demand are paid for, although they serve nothing; and an answer that
// leaves them out of its cost is refused.
func TestWhatNobodyWantsIsPaidFor(t *testing.T) {
	in := tiny(t)
	in.Pools = append(in.Pools, Pool{ID: "unwanted", Region: "r1", Class: "A100", Unit: "gpu", OnDemand: &Price{Hourly: dec("4")}})
	in.Offers = append(in.Offers, Offer{ID: "needless", Kind: domain.OfferReserved, Pool: "unwanted", Term: 1, Hourly: dec("1"), GuaranteesCapacity: true})
	in.Scenarios = []Scenario{{ID: "a", Weight: 2}, {ID: "b", Weight: 1}}
	a, err := Evaluate(t.Context(), in, []Order{{Offer: "reserve", Units: 2}, {Offer: "needless", Epoch: 1, Units: 3}})
	if err != nil {
		t.Fatal(err)
	}
	// As in TestTiny, and three units for a day.
	if a.Cost.String() != "600" || a.Bought.String() != "312" || a.Serving.String() != "288" {
		t.Errorf("cost %s, bought %s, serving %s", a.Cost, a.Bought, a.Serving)
	}
	for _, s := range a.Scenarios {
		if !s.Cost.Equal(a.Cost) {
			t.Errorf("scenario %s costs %s, all of them %s", s.Scenario, s.Cost, a.Cost)
		}
	}
	best, err := Solve(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), in, best); err != nil {
		t.Fatal(err)
	}
	best.Purchases = append([]Purchase{{Order: Order{Offer: "needless", Epoch: 1, Units: 3}, Cost: dec("72")}}, best.Purchases...)
	best.Bought = best.Bought.Add(dec("72"))
	best.Serving = best.Serving.Sub(dec("72"))
	if err := Check(t.Context(), in, best); err == nil {
		t.Error("an answer is accepted whose cost leaves out what it buys")
	}
}

// The digest is that of the canonical form, however demands are named.
func TestDigestIsOfTheCanonicalForm(t *testing.T) {
	for _, n := range []int{0, 1, 3} {
		in := many(n)
		in.Name = `"demands":[]`
		text, err := in.Canonical()
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(text)
		if digest, err := in.Digest(); err != nil || digest != hex.EncodeToString(sum[:]) {
			t.Errorf("%d demands: digest %s, %v", n, digest, err)
		}
	}
}
