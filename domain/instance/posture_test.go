package instance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// twoRegions protects a demand in r by another region, where takes units of B do the work of one of
// A.
func twoRegions(t *testing.T, takes, overhead string) *Instance {
	t.Helper()
	in := workedInstance(t, "overflow")
	day := len(in.Demands[0].Hourly)
	in.Regions = []Region{{ID: "r"}, {ID: "s"}}
	in.Pools = []Pool{{ID: "a", Region: "r", Class: "A", Unit: "gpu", OnDemand: &Price{Hourly: dec("1")}}, {ID: "b", Region: "s", Class: "B", Unit: "gpu", OnDemand: &Price{Hourly: dec("1")}}}
	in.Demands = []Demand{{ID: "d", Pool: "a", Class: "serving", Hourly: hoursAt(day, 2), Shortage: dec("1000000"), LatencyBudgetMS: 50}}
	in.Overflow = []Overflow{{From: "r", To: "s", RoundTripMS: 10, Overhead: dec(overhead)}}
	in.Substitutes = []Substitute{{For: "A", Class: "B", Units: dec(takes)}}
	in.Offers = []Offer{{ID: "o", Kind: domain.OfferReserved, Pool: "b", Term: 1, Hourly: dec("0.5"), GuaranteesCapacity: true}}
	in.Commitments, in.Scenarios, in.Quotas = nil, nil, nil
	in.Posture = &Posture{Kind: ActivePassive, Share: dec("1"), Standby: "s"}
	return in
}

// If one unit takes a thousand of a class, two thousand stand by. If it takes more, the instance is
// refused with the reason instead of counting zero.
func TestPostureCountsSmallUnits(t *testing.T) {
	lp := linearOrSkip(t)
	in := twoRegions(t, "1000", "0")
	a, err := Solve(t.Context(), in, lp)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Purchases) != 1 || a.Purchases[0].Covers != 2000 {
		t.Errorf("%+v", a.Purchases)
	}
	_, err = Solve(t.Context(), twoRegions(t, "1000", "0.01"), lp)
	var faults *Faults
	if !errors.As(err, &faults) || faults.List[0].Path != "/posture" || !strings.Contains(faults.List[0].Detail, "count that class in larger units") {
		t.Errorf("at 1,010 units for one: %v", err)
	}
	// What it takes is rounded up to thousandths of a unit, so the capacity suffices.
	a, err = Solve(t.Context(), twoRegions(t, "0.3", "0"), lp)
	if err != nil || a.Purchases[0].Covers != 1 {
		t.Errorf("%v, %+v", err, a)
	}
	a, err = Solve(t.Context(), twoRegions(t, "333", "0"), lp)
	if err != nil {
		t.Fatal(err)
	}
	if n := a.Purchases[0].Covers; n < 666 || n > 667 {
		t.Errorf("%d units stand by, of which one takes 333, for two", n)
	}
}

// At a rate of 100 % money of the eighth year is worth less than a hundredth. A budget there could
// not be kept, and the instance is refused with advice. A budget a year earlier is accepted.
func TestBudgetFarAway(t *testing.T) {
	lp := linearOrSkip(t)
	in := followed()
	in.Epoch, in.Epochs, in.AnnualRate = Months, 96, dec("1")
	spans := in.Spans()
	in.Demands[0].Past, in.Demands[0].Hourly = nil, hoursAt(int((spans[95].To-spans[0].From)/domain.Hour), 1)
	in.Offers = nil
	budget := func(month int) error {
		in.Budgets = []Budget{{ID: "far", Basis: Cash, Interval: spans[month], Amount: dec("100000")}}
		_, err := Solve(t.Context(), in, lp)
		return err
	}
	if err := budget(60); err != nil {
		t.Errorf("a budget in the sixth year: %v", err)
	}
	var faults *Faults
	if err := budget(90); !errors.As(err, &faults) || faults.List[0].Path != "/annual_rate" || !strings.Contains(err.Error(), `too little for budget "far" to be kept with: lower the rate or shorten the horizon`) {
		t.Errorf("a budget in the eighth year: %v", err)
	}
}

// A cycle of substitutions that creates work is refused with its path; a neutral cycle is allowed.
func TestCyclesOfSubstitution(t *testing.T) {
	in := workedInstance(t, "substitute")
	in.Pools = nil
	for _, class := range []string{"A", "B", "C"} {
		in.Pools = append(in.Pools, Pool{ID: class, Region: in.Regions[0].ID, Class: class, Unit: "gpu", OnDemand: &Price{Hourly: dec("1")}})
	}
	in.Demands, in.Offers = in.Demands[:1], nil
	in.Demands[0].Pool = "A"
	ring := func(last string) error {
		in.Substitutes = []Substitute{{For: "A", Class: "B", Units: dec("2")}, {For: "B", Class: "C", Units: dec("0.5")}, {For: "C", Class: "A", Units: dec(last)}}
		return in.Validate()
	}
	if err := ring("1"); err != nil {
		t.Errorf("nothing is gained: %v", err)
	}
	err := ring("0.9")
	var faults *Faults
	if !errors.As(err, &faults) || !slices.ContainsFunc([]string{"A → B → C → A", "B → C → A → B", "C → A → B → C"}, func(path string) bool {
		return strings.Contains(err.Error(), path+" form a cycle that turns one unit into 0.9")
	}) {
		t.Errorf("%v", err)
	}
}

// A budget that just suffices is accepted at any discount rate: ten units for a year at 10 cost
// 876,000.
func TestBudgetThatJustSuffices(t *testing.T) {
	for _, c := range []struct {
		amount string
		kept   bool
	}{{"876020", true}, {"876100", true}, {"875900", false}} {
		in, err := Parse("budget", []byte(fmt.Sprintf(`{"format":"quartermaster.instance/1","name":"exact budget","currency":"USD","from":"2027-01-01T00:00:00Z","epoch":"month","epochs":12,
			"annual_rate":"0.08","salvage":"0.5","regions":[{"id":"r","country":"US"}],
			"pools":[{"id":"p","region":"r","class":"x","unit":"vm","gpus_per_unit":8,"on_demand":{"hourly":"10"}}],
			"demands":[{"id":"d","pool":"p","class":"serving","hourly":[%s10],"interruptible_share":"0","shortage_hourly":"100"}],
			"offers":[],"limits":{"max_unserved_share":"0"},
			"budgets":[{"id":"b","basis":"cash","interval":{"from":"2027-01-01T00:00:00Z","to":"2028-01-01T00:00:00Z"},"amount":"%s"}]}`,
			strings.Repeat("10,", 8759), c.amount)))
		if err != nil {
			t.Fatal(err)
		}
		m, err := compile(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := m.bounds[slices.IndexFunc(m.bounds, func(b bound) bool { return b.budget != nil })]
		// What serving everything takes of the budget, as the solvers count it.
		taken := decimal.Zero
		for e, s := range b.Serving {
			price, err := m.discounted(decimal.NewFromInt(10), e)
			if err != nil {
				t.Fatal(err)
			}
			taken = taken.Add(decimal.NewFromInt(int64(price)).Mul(whole(s)).Div(thousand).Mul(whole(10 * int64(m.cal.spans[e].Length()/domain.Hour))))
		}
		if kept := taken.LessThanOrEqual(whole(int64(b.Most))); kept != c.kept || b.parts < 50 {
			t.Errorf("a budget of %s in %d parts: kept %t, taken %s of %d", c.amount, b.parts, kept, taken, b.Most)
		}
	}
}
