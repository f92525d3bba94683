package instance

import (
	"context"
	"math/rand/v2"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
)

// rationed is a day with a demand of two units, on demand at the given price, for part of which the
// budget pays.
func rationed(price, budget, rate string) *Instance {
	in := daily(Demand{Hourly: hoursAt(24, 2)})
	in.Offers, in.AnnualRate, in.Pools[0].OnDemand.Hourly = []Offer{}, dec(rate), dec(price)
	in.Budgets = []Budget{{ID: "b", Basis: Cash, Interval: domain.Interval{From: in.From, To: in.From + domain.Day}, Amount: dec(budget)}}
	return in
}

// A budget pays for as many unit-hours as it covers at the price; the rest is short. That is the
// optimum, and no bound exceeds it.
func TestBoundOfABudgetIsNotAboveTheOptimum(t *testing.T) {
	lp := linearOrSkip(t)
	rng := rand.New(rand.NewPCG(3, 5))
	for range long.Count(5, 20) {
		price, budget := dec("0.01").Mul(whole(100+rng.IntN(900))), whole(10+rng.IntN(30))
		in := rationed(price.String(), budget.String(), "0.37")
		a, err := Solve(t.Context(), in, lp)
		if err != nil {
			t.Fatal(err)
		}
		m, err := compile(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		served, short := price.Mul(m.cal.middle[0]).RoundBank(9), dec("40").Mul(m.cal.middle[0]).RoundBank(9)
		hours := budget.DivRound(price, 25)
		least := hours.Mul(served).Add(whole(48).Sub(hours).Mul(short))
		if a.LowerBound.GreaterThan(least) || a.Cost.LessThan(least.Truncate(9)) || a.Cost.Sub(a.LowerBound).GreaterThan(dec("0.01")) {
			t.Errorf("at %s with %s: cost %s, at least %s; the optimum is %s", price, budget, a.Cost, a.LowerBound, least)
		}
		if err := Check(t.Context(), in, a); err != nil {
			t.Error(err)
		}
	}
}

// "" is an open-ended interval, as the schema says.
func TestBudgetWithoutEnd(t *testing.T) {
	in := rationed("4", "20", "0")
	until := costUnder(t, in)
	in.Budgets[0].Interval.To = 0
	if without := costUnder(t, in); without != until {
		t.Errorf("without an end it costs %s, to the end of the horizon %s", without, until)
	}
}

func costUnder(t *testing.T, in *Instance) string {
	t.Helper()
	a, err := Solve(t.Context(), in, linearOrSkip(t))
	if err != nil {
		t.Fatal(err)
	}
	return a.Cost.String()
}

// Ten units of spot that lose half the time to interruptions serve five.
func TestSpotServesWhatInterruptionsLeave(t *testing.T) {
	in := daily(Demand{Hourly: hoursAt(24, 10)})
	units := 10
	in.Demands[0].Interruptible, in.Offers = dec("1"), []Offer{}
	in.Pools[0].Spot = &Spot{Price: Price{Hourly: dec("1")}, Overhead: dec("0.5"), Available: &units}
	p := solved(t, in).Recourse[0].Pools[0]
	if p.Spot != "120" || p.OnDemand != "120" {
		t.Errorf("spot serves %s unit-hours, on demand %s: want 120 each", p.Spot, p.OnDemand)
	}
	in.Pools[0].Spot.Available = nil
	in.Scenarios = []Scenario{{ID: "s", Weight: 1, Spot: map[string]int{"p": 5}}}
	if p := solved(t, in).Recourse[0].Pools[0]; p.Spot != "48" {
		t.Errorf("spot serves %s unit-hours: five units leave two whole ones, 48", p.Spot)
	}
	if n := (&Spot{Overhead: dec("0")}).Serves(procurement.MaxUnits); n != procurement.MaxUnits {
		t.Error(n)
	}
}

// A search that is stopped before it begins buys nothing, and reports the cost of that.
func TestSolveUntil(t *testing.T) {
	lp := linearOrSkip(t)
	in := workedInstance(t, "overflow")
	until, stop := context.WithCancel(t.Context())
	stop()
	a, err := SolveUntil(t.Context(), until, in, lp, 0)
	if err != nil {
		t.Fatal(err)
	}
	nothing, err := Evaluate(t.Context(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !a.Interrupted || !a.Cost.Equal(nothing.Cost) || a.LowerBound.IsNegative() || a.LowerBound.GreaterThan(solvedBy(t, in).Cost) {
		t.Errorf("interrupted %t, cost %s, at least %s; nothing bought costs %s", a.Interrupted, a.Cost, a.LowerBound, nothing.Cost)
	}
	if err := Check(t.Context(), in, a); err != nil {
		t.Error(err)
	}
	if _, err := Solve(until, in, lp); err == nil {
		t.Error("a context that ended answers")
	}
}

func solvedBy(t *testing.T, in *Instance) *Answer {
	t.Helper()
	a, err := Solve(t.Context(), in, solver())
	if err != nil {
		t.Fatal(err)
	}
	return a
}
