package instance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/long"
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
	if a.Cost.String() != "480" || a.LowerBound.String() != "480" {
		t.Errorf("cost %s, at least %s: twenty units for a day are 480", a.Cost, a.LowerBound)
	}
	if err := Check(t.Context(), in, a); err != nil {
		t.Error(err)
	}
}

// A unit is held. Two units of one demand run in the first two hours, so one of another, which may run
// in any of the first four, has to leave the second hour, where it runs at no cost.
func TestWorkMakesWay(t *testing.T) {
	late, early := hoursAt(24, 0), hoursAt(24, 0)
	late[0], early[0] = 1, 2
	in := daily(
		Demand{Hourly: late, DeferrableShare: dec("1"), DeferHours: 4},
		Demand{Hourly: early, DeferrableShare: dec("1"), DeferHours: 2},
	)
	in.Commitments = []Commitment{{
		ID: "c", Kind: domain.OfferReserved, Pool: "p", Units: 1, Hourly: dec("0"), GuaranteesCapacity: true,
		Term: domain.Interval{From: in.From, To: in.From + domain.Day},
	}}
	a, err := Solve(t.Context(), in, linearOrSkip(t))
	if err != nil {
		t.Fatal(err)
	}
	if a.Cost.String() != "0" {
		t.Errorf("it costs %s", a.Cost)
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

// Where work that waits may be short at less than other demand, what runs is proven too: six units
// for a day serve all of it.
func TestWaitingBesideDearerDemandIsProven(t *testing.T) {
	in := daily(Demand{Hourly: halves(3, 1)}, Demand{Hourly: halves(5, 2), DeferrableShare: dec("0.5"), DeferHours: 24, Shortage: dec("5")})
	a, err := Solve(t.Context(), in, linearOrSkip(t))
	if err != nil {
		t.Fatal(err)
	}
	if a.Cost.String() != "144" || a.LowerBound.String() != "144" {
		t.Errorf("cost %s, at least %s", a.Cost, a.LowerBound)
	}
	if err := Check(t.Context(), in, a); err != nil {
		t.Error(err)
	}
}

// Windows begin with each epoch: what comes on one day is not put off to the next, whatever that
// would save.
func TestWindowsEndWithTheirEpoch(t *testing.T) {
	in := daily(Demand{Hourly: append(hoursAt(24, 1), hoursAt(24, 0)...), DeferrableShare: dec("1"), DeferHours: 48})
	in.Epochs = 2
	in.Offers = nil
	in.Pools[0].OnDemand.Path = []PriceStep{{From: in.From + domain.Day, Hourly: dec("1")}}
	a, err := Solve(t.Context(), in, linearOrSkip(t))
	if err != nil {
		t.Fatal(err)
	}
	if a.Cost.String() != "96" || a.LowerBound.String() != "96" {
		t.Errorf("cost %s, at least %s: 24 unit-hours on the first day are 96", a.Cost, a.LowerBound)
	}
}

// A search that is stopped keeps what it found, and reports the stop.
func TestStoppedWhileWorkWaits(t *testing.T) {
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
			in.Demands[i].Interruptible = dec(fmt.Sprint(n("interruptible", 0, 1)))
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

// An answer has the least cost over all schedules, up to its gap, and its bound is not above that.
func TestWaitingIsServedAtLeastCost(t *testing.T) {
	linearOrSkip(t)
	long.Check(t, 25, 200, func(t *rapid.T) {
		in := waiting(t)
		a, least := costOf(t, in), leastOfWaiting(t, in)
		if a.LowerBound.GreaterThan(least) || a.Cost.LessThan(least.Sub(dec("0.000001"))) {
			t.Fatalf("cost %s, at least %s; the least of all ways is %s", a.Cost, a.LowerBound, least)
		}
		if a.Cost.Sub(least).GreaterThan(dec("0.0001")) {
			t.Fatalf("cost %s, and the least of all ways is %s", a.Cost, least)
		}
	})
}

// Whatever permits more never costs more: quota, offers, cheaper prices, deferral of a larger share
// or in windows that hold the smaller ones, more that may run on spot.
func TestPermissionNeverCosts(t *testing.T) {
	linearOrSkip(t)
	long.Check(t, 40, 1000, func(t *rapid.T) {
		in := waiting(t)
		was := costOf(t, in)
		for _, c := range []struct {
			name   string
			change func(*Instance)
		}{
			{"no permission", func(in *Instance) { in.Demands[0].DeferHours, in.Demands[0].DeferrableShare = 0, dec("0") }},
			{"a smaller share", func(in *Instance) { in.Demands[0].DeferrableShare = dec("0.3") }},
			{"a shorter window", func(in *Instance) { in.Demands[0].DeferHours /= 2 }},
			{"no offer", func(in *Instance) { in.Offers = nil }},
			{"a dearer offer", func(in *Instance) {
				in.Offers = slices.Clone(in.Offers)
				in.Offers[0].Hourly = in.Offers[0].Hourly.Mul(dec("1.3"))
			}},
			{"less on spot", func(in *Instance) {
				for i := range in.Demands {
					in.Demands[i].Interruptible = in.Demands[i].Interruptible.Mul(dec("0.5"))
				}
			}},
			{"less quota", func(in *Instance) {
				if len(in.Quotas) > 0 {
					in.Quotas = []Quota{{ID: "q", Limit: max(0, in.Quotas[0].Limit-1)}}
				}
			}},
		} {
			less := *in
			less.Demands = slices.Clone(in.Demands)
			c.change(&less)
			now := costOf(t, &less)
			if was.LowerBound.GreaterThan(now.Cost) || was.Cost.Sub(now.Cost).GreaterThan(was.Cost.Sub(was.LowerBound)) {
				t.Fatalf("with %s it costs %s, with more %s, at least %s", c.name, now.Cost, was.Cost, was.LowerBound)
			}
		}
	})
}
