package instance

import (
	"fmt"
	"slices"
	"testing"

	"quartermaster/domain"
)

func baselineOf(t *testing.T, list []Baseline, name string) *Baseline {
	t.Helper()
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	t.Fatalf("no baseline %q", name)
	return nil
}

func hoursAt(n, units int) []int { return slices.Repeat([]int{units}, n) }

// followed is an instance of ten days: four units are wanted on the first five days and six on the
// others. On demand costs 10, a term of five days 6 an hour, and one of ten days 5; a quota of five
// serves on demand.
func followed() *Instance {
	from, err := domain.ParseInstant("2027-01-01T00:00:00Z")
	if err != nil {
		panic(err)
	}
	return &Instance{
		Format: Format, Name: "followed", Currency: "USD", From: from, Epoch: Days, Epochs: 10, AnnualRate: dec("0"), Salvage: dec("0"),
		Regions: []Region{{ID: "r"}}, Quotas: []Quota{{ID: "q", Limit: 5}},
		Pools:   []Pool{{ID: "p", Region: "r", Class: "K", Unit: "gpu", OnDemand: &Price{Hourly: dec("10")}, Quota: "q"}},
		Demands: []Demand{{ID: "d", Pool: "p", Hourly: append(hoursAt(120, 4), hoursAt(120, 6)...), Shortage: dec("100"), Past: append(hoursAt(30*24, 3), hoursAt(7*24, 2)...)}},
		Offers: []Offer{
			{ID: "five", Kind: domain.OfferReserved, Pool: "p", Term: 5, Hourly: dec("6"), GuaranteesCapacity: true},
			{ID: "ten", Kind: domain.OfferReserved, Pool: "p", Term: 10, Hourly: dec("5"), GuaranteesCapacity: true, MinUnits: 3, Lot: 3},
		},
	}
}

// The baselines, computed by hand.
func TestBaselinesByHand(t *testing.T) {
	in := followed()
	list, err := Baselines(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ name, cost, penalty, unserved string }{
		// 4 × 120 × 10; of six units five run on demand and one is short: (5 × 10 + 100) × 120.
		{"buy_nothing", "22800", "12000", "120"},
		{"on_demand", "22800", "12000", "120"},
		// Two units, all that was wanted in the last week, at 5 for ten days: 2 × 240 × 5. The rest
		// on demand, 2 × 120 and 4 × 120 at 10.
		{"lookback_7d", "9600", "0", "0"},
		// Of 720 hours 552 wanted three and all at least two: a third unit pays from half of them.
		// 3 × 240 × 5 + 1 × 120 × 10 + 3 × 120 × 10.
		{"lookback_30d", "8400", "0", "0"},
		{"lookback_60d", "8400", "0", "0"},
		// One unit from each of the first, fourth and seventh day, each paid for ten days, because
		// there is no salvage: 3 × 240 × 5. On demand 3 × 3 + 2 × 2 + 4 + 4 × 3 days of a unit.
		{"ladder_60d", "10560", "0", "0"},
		// Three, the observed peak, at the cheapest hourly price.
		{"peak_60d", "8400", "0", "0"},
	}
	if len(list) != len(want) {
		t.Fatalf("%d baselines", len(list))
	}
	for i, w := range want {
		b := &list[i]
		if b.Name != w.name || b.Unserved != w.unserved {
			t.Errorf("%s: %s unserved; want %s, %s", b.Name, b.Unserved, w.name, w.unserved)
		}
		same(t, b.Name, b.Cost, w.cost)
		same(t, b.Name+", penalty", b.Penalty, w.penalty)
	}
	if p := baselineOf(t, list, "lookback_7d").Pools[0]; p != (BaselinePool{Pool: "p", Offer: "ten", Units: 2, Hours: 168}) {
		t.Errorf("%+v", p)
	}
}

// Without a past the first days of the horizon are used, hourly or from a curve, and the baseline
// says so.
func TestBaselinesWithoutPast(t *testing.T) {
	in := followed()
	in.Demands[0].Past = nil
	list, err := Baselines(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	// Of the first seven days five want four units and two want six: five units would be used two
	// days of seven, and pay from half.
	if p := baselineOf(t, list, "lookback_7d").Pools[0]; p != (BaselinePool{Pool: "p", Offer: "ten", Units: 4, Hours: 168, Horizon: true}) {
		t.Errorf("%+v", p)
	}
	if p := baselineOf(t, list, "peak_60d").Pools[0]; p.Units != 6 || p.Hours != 240 {
		t.Errorf("%+v", p)
	}
	// A curve of a month has no order of days: each window sees all of it, thinned.
	in.Epoch, in.Epochs = Months, 1
	in.Demands[0].Hourly, in.Demands[0].Duration = nil, [][]Step{{{4, 500}, {6, 244}}}
	in.Offers[0].Term, in.Offers[1].Term = 1, 1
	if list, err = Baselines(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"lookback_7d", "lookback_60d"} {
		if p := baselineOf(t, list, name).Pools[0]; p.Units != 4 || p.Offer != "ten" {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// A term of twice the horizon is compared by its hourly cost, and paid in full without salvage:
// rules ignore the end of the horizon.
func TestBaselinesWeighWholeTerms(t *testing.T) {
	in := followed()
	in.Offers = []Offer{{ID: "twenty", Kind: domain.OfferReserved, Pool: "p", Term: 20, Hourly: dec("6"), GuaranteesCapacity: true}}
	for salvage, want := range map[string]string{"0": "12960", "1": "10080"} { // 2 × 240 × 6, twice or once, and (2 + 4) × 120 × 10 on demand
		in.Salvage = dec(salvage)
		list, err := Baselines(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		b := baselineOf(t, list, "lookback_7d")
		if p := b.Pools[0]; p.Offer != "twenty" || p.Units != 2 {
			t.Errorf("at %s: %+v", salvage, p)
		}
		same(t, "cost at "+salvage, b.Cost, want)
	}
}

// Commitments renew if nothing is decided, and all on-demand holds nothing.
func TestBaselinesOfWhatIsHeld(t *testing.T) {
	in := workedInstance(t, "renewal")
	list, err := Baselines(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	// Two units at 3 for three days, and all at 4 on demand.
	same(t, "buy_nothing", baselineOf(t, list, "buy_nothing").Cost, "432")
	same(t, "on demand", baselineOf(t, list, "on_demand").Cost, "576")
}

// Baselines ignore budgets, and report which ones they exceed and by how much, on the budget's
// basis. A budget that is met to the cent is not exceeded, at any discount rate.
func TestBaselinesBreakBudgets(t *testing.T) {
	in := followed()
	in.Offers[1].Upfront, in.Offers[1].Hourly = dec("600"), dec("2.5")
	free, err := Baselines(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	spans := in.Spans()
	ten, first := domain.Interval{From: spans[0].From, To: spans[9].To}, spans[0]
	// Three units of the ten-day term: 3 × (600 + 240 × 2.5), and one on demand on five days and
	// three on five. On the first day 3 × (600 + 24 × 2.5) are paid, plus 24 × 10 for one on
	// demand; a tenth of the upfront payment is charged then.
	in.Budgets = []Budget{
		{ID: "ten", Basis: Cash, Interval: ten, Amount: dec("8399.99")}, {ID: "just", Basis: Accrual, Interval: ten, Amount: dec("8400")},
		{ID: "day, paid", Basis: Cash, Interval: first, Amount: dec("2000")}, {ID: "day, charged", Basis: Accrual, Interval: first, Amount: dec("599")},
	}
	for _, rate := range []string{"0", "0.08"} {
		in.AnnualRate = dec(rate)
		list, err := Baselines(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, b := range baselineOf(t, list, "lookback_30d").Broken {
			got += fmt.Sprintf("%s by %s\n", b.Bound, b.Over)
		}
		if want := "budget day, charged by 1\nbudget day, paid by 220\nbudget ten by 0.01\n"; got != want {
			t.Errorf("at %s:\n%swant\n%s", rate, got, want)
		}
		for i := range list {
			if rate == "0" && (!list[i].Cost.Equal(free[i].Cost) || list[i].Unserved != free[i].Unserved) {
				t.Errorf("%s costs %s with budgets, %s without", list[i].Name, list[i].Cost, free[i].Cost)
			}
		}
	}
}

// No baseline costs less than the proven bound, if everything that rules may buy is sold; and
// answers with baselines can be checked again.
func TestBaselinesCostNoLess(t *testing.T) {
	in := followed()
	in.Offers[1].MinUnits, in.Offers[1].Lot = 0, 0
	a := solved(t, in)
	if err := Compare(t.Context(), in, a); err != nil {
		t.Fatal(err)
	}
	for i := range a.Baselines {
		if b := &a.Baselines[i]; b.Cost.LessThan(a.LowerBound) {
			t.Errorf("%s costs %s, below the bound of %s", b.Name, b.Cost, a.LowerBound)
		}
	}
	if err := Check(t.Context(), in, a); err != nil {
		t.Error(err)
	}
	a.Baselines[3].Cost = a.Baselines[3].Cost.Add(one)
	if err := Check(t.Context(), in, a); err == nil {
		t.Error("another cost of a baseline passes")
	}
}
