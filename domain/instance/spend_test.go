package instance

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/procurement/check/certificate"
)

// A spend commitment may commit nothing by the hour: in a step of its ramp, or because all is paid
// upfront. It covers nothing then.
func TestSpendOfNothingByTheHour(t *testing.T) {
	lp := linearOrSkip(t)
	in := daily(Demand{Hourly: hoursAt(24, 2)})
	rates := map[string]domain.Decimal{"p": dec("3")}
	in.Commitments = []Commitment{{
		ID: "held", Kind: domain.OfferSpendCommitment, Spend: "plan", Rates: rates, Units: 1, Renews: true, NoticeBy: in.From + domain.Hour,
		Upfront: dec("5"), Term: domain.Interval{From: in.From - domain.Day, To: in.From + 12*domain.Hour},
	}}
	in.Offers = append(in.Offers, Offer{ID: "s", Kind: domain.OfferSpendCommitment, Spend: "plan", Rates: rates, Term: 1, Upfront: dec("5")})
	a, err := Solve(t.Context(), in, lp)
	if err != nil {
		t.Fatal(err)
	}
	if a.Cost.String() != "48" || len(a.Purchases) != 1 {
		t.Errorf("cost %s, purchases %v: two reserved units are 48", a.Cost, a.Purchases)
	}
	asked, answered := documents(t, in, a)
	if _, err := certificate.Check(t.Context(), asked, answered); err != nil {
		t.Error(err)
	}
}
