package instance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement/check"
)

// daily is a pool for a day, with a reservation at 1 an hour and on demand at 4.
func daily(demands ...Demand) *Instance {
	from, err := domain.ParseInstant("2027-01-01T00:00:00Z")
	if err != nil {
		panic(err)
	}
	in := &Instance{
		Format: Format, Name: "waiting", Currency: "USD", From: from, Epoch: Days, Epochs: 1, AnnualRate: dec("0"), Salvage: dec("0"),
		Regions: []Region{{ID: "r", Country: "US"}}, Pools: []Pool{{ID: "p", Region: "r", Class: "A", Unit: "gpu", OnDemand: &Price{Hourly: dec("4")}}},
		Offers: []Offer{{ID: "o", Kind: domain.OfferReserved, Pool: "p", Term: 1, Hourly: dec("1"), GuaranteesCapacity: true}},
	}
	for i, d := range demands {
		d.ID, d.Pool, d.Interruptible = fmt.Sprint("d", i), "p", dec("0")
		if d.Shortage.IsZero() {
			d.Shortage = dec("40")
		}
		in.Demands = append(in.Demands, d)
	}
	return in
}

func halves(morning, evening int) []int { return append(hoursAt(12, morning), hoursAt(12, evening)...) }

// Work that may wait until the evening shares the machines of the morning load: twenty units serve
// both. Levelled by itself it would need thirty at times.
func TestWaitingSharesMachines(t *testing.T) {
	in := daily(Demand{Hourly: halves(20, 0)}, Demand{Hourly: halves(20, 0), DeferrableShare: dec("1"), DeferHours: 24})
	a, err := Solve(t.Context(), in, linearOrSkip(t))
	if err != nil {
		t.Fatal(err)
	}
	if a.Cost.String() != "480" || a.LowerBound.String() != "480" || len(a.Unproven) > 0 {
		t.Errorf("cost %s, at least %s, unproven %q: twenty units for a day are 480", a.Cost, a.LowerBound, a.Unproven)
	}
	if err := Check(t.Context(), in, a); err != nil {
		t.Error(err)
	}
}

// Permission to defer does not make a level load uneven.
func TestPermissionToWaitDoesNotCost(t *testing.T) {
	in := daily(Demand{Hourly: halves(0, 3)}, Demand{Hourly: halves(3, 0), DeferrableShare: dec("1"), DeferHours: 24})
	a, err := Solve(t.Context(), in, linearOrSkip(t))
	if err != nil {
		t.Fatal(err)
	}
	if a.Cost.String() != "72" {
		t.Errorf("cost %s: three units for a day are 72", a.Cost)
	}
}

// If a shortage of deferrable work costs less than one of the other demand, the most level load
// need not be the cheapest: no bound is claimed, and none is accepted.
func TestWaitingWithoutAProofClaimsNoBound(t *testing.T) {
	in := daily(Demand{Hourly: halves(3, 1)}, Demand{Hourly: halves(5, 2), DeferrableShare: dec("0.5"), DeferHours: 24, Shortage: dec("5")})
	a, err := Solve(t.Context(), in, linearOrSkip(t))
	if err != nil {
		t.Fatal(err)
	}
	if !a.LowerBound.IsZero() || !slices.Equal(a.Unproven, []string{"p"}) || !strings.Contains(strings.Join(a.Notes, "\n"), "no proven bound") {
		t.Errorf("at least %s, unproven %q, notes %q", a.LowerBound, a.Unproven, a.Notes)
	}
	if err := Check(t.Context(), in, a); err != nil {
		t.Error(err)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Answer){
		"a bound":           func(a *Answer) { a.LowerBound, a.Gap = a.Cost, dec("0") },
		"nothing unproven":  func(a *Answer) { a.Unproven = nil },
		"a component bound": func(a *Answer) { a.Proof[0].Bound = a.Proof[0].Cost },
		"the whole old answer": func(a *Answer) {
			a.LowerBound, a.Gap, a.Unproven, a.Waiting, a.Proof[0].Bound = a.Cost, dec("0"), nil, "", a.Proof[0].Cost
		},
	} {
		b, err := ParseAnswer("answer", text)
		if err != nil {
			t.Fatal(err)
		}
		change(b)
		if err := Check(t.Context(), in, b); !errors.Is(err, check.ErrRejected) {
			t.Errorf("%s is claimed and accepted: %v", name, err)
		}
	}
}

// A search that is stopped between the two schedules keeps what it found, and reports the stop.
func TestStoppedBetweenWaysOfWaiting(t *testing.T) {
	lp := linearOrSkip(t)
	in := daily(Demand{Hourly: halves(3, 1)}, Demand{Hourly: halves(5, 2), DeferrableShare: dec("0.5"), DeferHours: 24, Shortage: dec("5")})
	whole := &stopping{Solver: lp, stop: func() {}}
	best, err := SolveUntil(t.Context(), t.Context(), in, whole, 0)
	if err != nil {
		t.Fatal(err)
	}
	tight := *in
	tight.Pools = slices.Clone(in.Pools)
	tight.Pools[0].OnDemand = nil
	tight.Limits.MaxUnservedShare = new(domain.Decimal)
	kept := 0
	for _, in := range []*Instance{in, &tight} {
		for after := 1; after <= whole.calls+8; after++ {
			until, stop := context.WithCancel(t.Context())
			s := &stopping{Solver: lp, after: after, stop: stop}
			a, err := SolveUntil(t.Context(), until, in, s, 0)
			stop()
			switch {
			case s.calls < after:
				if err != nil || a.Interrupted {
					t.Errorf("not stopped in %d calls: %v, interrupted %t", s.calls, err, err == nil && a.Interrupted)
				}
				continue
			case err != nil && kept > 0 && in == &tight:
				t.Errorf("stopped at call %d: %v, where less was answered", after, err)
			case err != nil:
				continue
			}
			if in == &tight {
				kept++
			} else if !a.Interrupted && !a.Cost.Equal(best.Cost) {
				t.Errorf("stopped at call %d: cost %s, the whole search finds %s, and it is not said to be interrupted", after, a.Cost, best.Cost)
			}
			if err := Check(t.Context(), in, a); err != nil {
				t.Errorf("stopped at call %d: %v", after, err)
			}
		}
	}
	if kept == 0 {
		t.Error("nothing was kept where nothing may be unserved")
	}
}

// stopping stops a search at a call of the linear programming solver.
type stopping struct {
	linear.Solver
	calls, after int
	stop         func()
}

func (s *stopping) Solve(ctx context.Context, p *linear.Program, l linear.Limits) (*linear.Solution, error) {
	if s.calls++; s.calls == s.after {
		s.stop()
	}
	return s.Solver.Solve(ctx, p, l)
}

// leastOfWaiting is the least cost over all schedules; each schedule is an instance.
func leastOfWaiting(t *rapid.T, in *Instance) domain.Decimal {
	var best *domain.Decimal
	demands := slices.Clone(in.Demands)
	var each func(i, hour, left int, load []int)
	each = func(i, hour, left int, load []int) {
		if i == len(demands) {
			fixed := *in
			fixed.Demands = demands
			a, err := Solve(context.Background(), &fixed, solver())
			if err != nil {
				t.Fatal(err)
			}
			if best == nil || a.Cost.LessThan(*best) {
				best = &a.Cost
			}
			return
		}
		d := &in.Demands[i]
		if load == nil {
			load = slices.Clone(d.Hourly)
			if d.waits() {
				for h, n := range d.Hourly {
					load[h] -= n * permille(d.DeferrableShare) / 1000
				}
			}
			hour, left = -1, 0
		}
		for left == 0 {
			if hour++; hour == len(d.Hourly) {
				demands[i].Hourly, demands[i].DeferHours, demands[i].DeferrableShare = slices.Clone(load), 0, dec("0")
				each(i+1, 0, 0, nil)
				return
			}
			if d.waits() {
				left = d.Hourly[hour] * permille(d.DeferrableShare) / 1000
			}
		}
		for h := hour; h < min(len(load), hour-hour%d.DeferHours+d.DeferHours); h++ {
			load[h]++
			each(i, hour, left-1, load)
			load[h]--
		}
	}
	each(0, 0, 0, nil)
	return *best
}

// waiting draws demands of a few hours, and a market for them.
func waiting(t *rapid.T) *Instance {
	n := func(name string, least, most int) int { return rapid.IntRange(least, most).Draw(t, name) }
	demand := func(most int) Demand {
		d := Demand{Hourly: hoursAt(24, 0), Shortage: dec(fmt.Sprint(n("shortage", 1, 2) * 20))}
		for h := range 4 {
			d.Hourly[h] = n("units", 0, most)
		}
		return d
	}
	first := demand(2)
	first.DeferHours, first.DeferrableShare = n("window", 1, 2)*2, []domain.Decimal{dec("0.5"), dec("1")}[n("share", 0, 1)]
	in := daily(first)
	if n("another", 0, 2) == 0 {
		in = daily(first, demand(2))
	}
	in.Offers[0].Hourly, in.Offers[0].MaxUnits = dec(fmt.Sprintf("0.%d", n("price", 1, 9))), 1+n("max", 0, 3)
	if n("quota", 0, 1) == 1 {
		in.Quotas, in.Pools[0].Quota = []Quota{{ID: "q", Limit: n("limit", 0, 3)}}, "q"
	}
	if n("spot", 0, 2) == 0 {
		units := n("available", 0, 2)
		in.Pools[0].Spot = &Spot{Price: Price{Hourly: dec("0.5")}, Available: &units}
		for i := range in.Demands {
			in.Demands[i].Interruptible = []domain.Decimal{dec("0"), dec("0.5"), dec("1")}[n("interruptible", 0, 2)]
		}
	}
	return in
}

func costOf(t *rapid.T, in *Instance) *Answer {
	a, err := Solve(context.Background(), in, solver())
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(context.Background(), in, a); err != nil {
		t.Fatal(err)
	}
	return a
}

// A bound never exceeds the least cost over all schedules, and an answer that claims a bound has
// that cost.
func TestBoundsOfWaitingHold(t *testing.T) {
	linearOrSkip(t)
	long.Check(t, 25, 100, func(t *rapid.T) {
		in := waiting(t)
		a, least := costOf(t, in), leastOfWaiting(t, in)
		if a.LowerBound.GreaterThan(least) || a.Cost.LessThan(least.Sub(dec("0.000001"))) {
			t.Fatalf("cost %s, at least %s; the least of all ways is %s", a.Cost, a.LowerBound, least)
		}
		if len(a.Unproven) == 0 && a.Cost.Sub(least).GreaterThan(dec("0.0001")) {
			t.Fatalf("cost %s, which is proven; the least of all ways is %s", a.Cost, least)
		}
	})
}

// Quota, offers and permission to defer never increase the cost. More permission does not cost more
// than less if the best schedule is known.
func TestPermissionNeverCosts(t *testing.T) {
	linearOrSkip(t)
	long.Check(t, 25, 100, func(t *rapid.T) {
		in := waiting(t)
		was := costOf(t, in)
		for _, c := range []struct {
			name   string
			change func(*Instance)
			known  bool // the best schedule has to be known
		}{
			{"no permission", func(in *Instance) { in.Demands[0].DeferHours, in.Demands[0].DeferrableShare = 0, dec("0") }, false},
			{"a smaller share", func(in *Instance) { in.Demands[0].DeferrableShare = dec("0.3") }, true},
			{"a shorter window", func(in *Instance) { in.Demands[0].DeferHours /= 2 }, true},
			{"no offer", func(in *Instance) { in.Offers = nil }, false},
			{"less quota", func(in *Instance) {
				if len(in.Quotas) > 0 {
					in.Quotas = []Quota{{ID: "q", Limit: max(0, in.Quotas[0].Limit-1)}}
				}
			}, false},
		} {
			if c.known && len(was.Unproven) > 0 {
				continue
			}
			less := *in
			less.Demands = slices.Clone(in.Demands)
			c.change(&less)
			if now := costOf(t, &less); was.Cost.GreaterThan(now.Cost) {
				t.Fatalf("with %s it costs %s, with more %s", c.name, now.Cost, was.Cost)
			}
		}
	})
}
