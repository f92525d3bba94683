package instance

import (
	"slices"
	"strings"
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

// A commitment of 2 an hour over two pools, by day in one and by night in the other, for two days. All of it
// is paid upfront: 80 instead of 96 by the hour, and 240 on demand. The cash is due at once, and half of it is
// charged to each day. A cash budget of 79 leaves it out.
func TestSpendPaidUpfront(t *testing.T) {
	lp := linearOrSkip(t)
	for _, c := range []struct {
		name    string
		change  func(in *Instance)
		cost    string
		bought  int
		accrual string
	}{
		{"upfront", func(in *Instance) {}, "80", 1, "80"},
		{"half upfront", func(in *Instance) { in.Offers[0].Upfront, in.Offers[0].Hourly = dec("40"), dec("1") }, "88", 1, "88"},
		{"too little cash", func(in *Instance) {
			in.Budgets = []Budget{{ID: "b", Basis: Cash, Interval: domain.Interval{From: in.From, To: in.From + 2*domain.Day}, Amount: dec("79")}}
		}, "", 0, ""},
		{"charged to the first day", func(in *Instance) {
			in.Budgets = []Budget{{ID: "b", Basis: Accrual, Interval: domain.Interval{From: in.From, To: in.From + domain.Day}, Amount: dec("40")}}
		}, "80", 1, "80"},
		{"held", func(in *Instance) {
			o := in.Offers[0]
			in.Commitments = []Commitment{{
				ID: "held", Kind: o.Kind, Spend: o.Spend, Rates: o.Rates, Units: 1, Upfront: o.Upfront, Commits: o.Commits,
				Term: domain.Interval{From: in.From - domain.Day, To: in.From + domain.Day},
			}}
			in.Offers[0].Term, in.Offers[0].Upfront = 1, dec("39")
		}, "39", 1, "79"}, // and half of the 80 that were paid before
		{"nothing is committed", func(in *Instance) { in.Offers[0].Commits = dec("0") }, "240", 0, "240"},
	} {
		in := daily(Demand{Hourly: slices.Repeat(slices.Concat(hoursAt(12, 1), hoursAt(12, 0)), 2)})
		in.Epochs, in.Pools[0].OnDemand.Hourly = 2, dec("4")
		in.Pools = append(in.Pools, Pool{ID: "q", Region: in.Pools[0].Region, Class: "B", Unit: "gpu", OnDemand: &Price{Hourly: dec("6")}})
		night := in.Demands[0]
		night.ID, night.Pool, night.Hourly = "e", "q", slices.Repeat(slices.Concat(hoursAt(12, 0), hoursAt(12, 1)), 2)
		in.Demands = append(in.Demands, night)
		in.Offers = []Offer{{
			ID: "s", Kind: domain.OfferSpendCommitment, Spend: "plan", Term: 2, Commits: dec("2"), Upfront: dec("80"),
			Rates: map[string]domain.Decimal{"p": dec("2"), "q": dec("2")},
		}}
		c.change(in)
		a, err := Solve(t.Context(), in, lp)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if c.cost != "" && a.Cost.String() != c.cost || len(a.Purchases) != c.bought || c.accrual != "" && a.Calendar[0].Accrual.String() != c.accrual {
			t.Errorf("%s: cost %s, purchases %v, charged %s; want %s, %d, %s", c.name, a.Cost, a.Purchases, a.Calendar[0].Accrual, c.cost, c.bought, c.accrual)
		}
		asked, answered := documents(t, in, a)
		if _, err := certificate.Check(t.Context(), asked, answered); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	in := daily(Demand{Hourly: hoursAt(24, 2)})
	in.Offers = append(in.Offers, Offer{ID: "o", Kind: domain.OfferReserved, Pool: "p", Term: 1, Commits: dec("2")})
	if err := in.Validate(); err == nil || !strings.Contains(err.Error(), "commits_hourly") {
		t.Errorf("a reservation that commits to spend: %v", err)
	}
}
