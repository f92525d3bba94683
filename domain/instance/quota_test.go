package instance

import (
	"context"
	"testing"

	"quartermaster/domain"
)

// With a quota of 12 and machines that take 8, one machine can run, whether the pool is planned by
// itself or a non-binding budget turns it into a linear program.
func TestQuotaInWholeUnits(t *testing.T) {
	in := ownedFor(10, 40, "0", "0", Offer{Kind: domain.OfferOwned, Upfront: dec("30000"), Owned: machine("0", "0", "0")})
	for i := range in.Demands[0].Hourly {
		in.Demands[0].Hourly[i] = 1 + i%3
	}
	in.Quotas = []Quota{{ID: "q", Limit: 12}}
	in.Pools[0].Quota, in.Pools[0].QuotaPerUnit = "q", 8
	alone := solved(t, in)
	in.Budgets = []Budget{{ID: "b", Basis: Cash, Interval: domain.Interval{From: in.From, To: in.From + 10*domain.Day}, Amount: dec("100000000")}}
	bounded, err := Solve(context.Background(), in, linearOrSkip(t))
	if err != nil {
		t.Fatal(err)
	}
	if !alone.Cost.Equal(bounded.Cost) || bounded.LowerBound.LessThan(alone.Cost.Sub(dec("1"))) {
		t.Errorf("cost %s, at least %s; under a budget that binds nothing %s, at least %s", alone.Cost, alone.LowerBound, bounded.Cost, bounded.LowerBound)
	}
}
