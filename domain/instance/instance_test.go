package instance

import (
	"context"
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

// one pool, one day, no discount: a reservation for the whole horizon is worth its
// price where it is used more than its share of the price on demand.
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
	// 2 units around the clock at 2.5 × 48 × 2 = 240; 3 more in 24 hours on demand: 3 × 24 × 4 = 288.
	if a.Cost.String() != "528" || a.LowerBound.String() != "528" || len(a.Purchases) != 1 || a.Purchases[0].Units != 2 {
		t.Errorf("cost %s bound %s purchases %+v", a.Cost, a.LowerBound, a.Purchases)
	}
	if err := Check(t.Context(), in, a); err != nil {
		t.Error(err)
	}
}
