package instance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func workedInstance(t *testing.T, name string) *Instance {
	t.Helper()
	path := filepath.Join("testdata", name+".json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	in, err := Parse(path, text)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// Two units are wanted all day and a third stands by. The spare is not demand, and two thirds of
// the commitment are used.
func TestSparesAreShownApartFromDemand(t *testing.T) {
	a := solved(t, workedInstance(t, "buffer"))
	p := a.Recourse[0].Pools[0]
	if p.Demand != "48" || p.Spare != "24" || p.StandingBy != "24" || p.Guaranteed != "72" || p.UnusedCommitted != "0" {
		t.Errorf("%+v", p)
	}
	if want := "is used 66.7 % meanwhile, and stands by for failures another 33.3 %"; !strings.Contains(a.Purchases[0].Reason, want) {
		t.Errorf("%s: want %s", a.Purchases[0].Reason, want)
	}
	if !strings.Contains(strings.Join(a.Notes, "\n"), `demand "d" is served with spare units for failures`) {
		t.Error(a.Notes)
	}
}

// Of three wanted units, one of them a spare, a quota of two serves two: the missing one counts as
// the spare.
func TestWhatIsNotServedIsSparesFirst(t *testing.T) {
	in := workedInstance(t, "buffer")
	in.Offers, in.Quotas, in.Pools[0].Quota = []Offer{}, []Quota{{ID: "q", Limit: 2}}, "q"
	p := solved(t, in).Recourse[0].Pools[0]
	if p.Demand != "48" || p.Spare != "24" || p.StandingBy != "" || p.OnDemand != "48" || p.Shortage != "24" {
		t.Errorf("%+v", p)
	}
}

// Spares are served where the demand is served: next door, three units for 24 hours.
func TestSparesThatAreServedElsewhere(t *testing.T) {
	linearOrSkip(t)
	in := workedInstance(t, "overflow")
	in.Demands[0].Buffer = &Buffer{ServiceLevel: dec("0.999"), FailuresPerGPUHour: dec("0.01"), RepairHours: dec("1")}
	a, err := Solve(t.Context(), in, solver())
	if err != nil {
		t.Fatal(err)
	}
	home, away := a.Recourse[0].Pools[0], a.Recourse[0].Pools[1]
	if home.Pool != in.Demands[0].Pool {
		home, away = away, home
	}
	if home.Demand != "24" || home.Spare == "" || home.StandingBy != "" || away.StandingBy != home.Spare || away.Spare != "" {
		t.Errorf("%+v\n%+v", home, away)
	}
}

// A contract's utilization counts working units, without failure spares.
func TestContractIsNotUsedByWhatStandsBy(t *testing.T) {
	in := workedInstance(t, "buffer")
	in.Offers = []Offer{}
	a := appraise(t, in, &Contract{Name: "deal", Pool: "p", Term: 1, Hourly: dec("1"), GuaranteesCapacity: true}, nil)
	if a.Units != 3 {
		t.Fatalf("%d units", a.Units)
	}
	same(t, "utilization", *a.Use, "0.666667")
	same(t, "unused", a.With.Unused, "0")
}

// An answer's notes state its assumptions: that factors round up, and that units may serve for part
// of an hour if quotas and ratios require it.
func TestNotesSayWhatIsRounded(t *testing.T) {
	grown := followed()
	grown.Offers, grown.Scenarios = nil, []Scenario{{ID: "more", Weight: 1, Factor: 1300}}
	if notes := strings.Join(solved(t, grown).Notes, "\n"); !strings.Contains(notes, "rounded up to whole units") {
		t.Error(notes)
	}
	linearOrSkip(t)
	for name, want := range map[string]string{"quota": "within an hour units may serve for a part of it", "substitute": "within an hour units may serve for a part of it", "budget": "holds in expectation"} {
		a, err := Solve(t.Context(), workedInstance(t, name), solver())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(a.Notes, "\n"), want) {
			t.Errorf("%s: %q is not among its notes: %q", name, want, a.Notes)
		}
	}
}
