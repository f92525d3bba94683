package whatif

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/long"
)

// coupledInstance has pools that share hours: regions that serve each other at a price and an
// overhead, within latency budgets and countries, substitutes, quotas shared by several pools,
// spot, spare units and deferrable work.
func coupledInstance(rng *rand.Rand) *instance.Instance {
	chance := func(n int) bool { return rng.IntN(n) == 0 }
	day := func(n int) domain.Instant { return at("2027-03-01") + domain.Instant(n)*domain.Day/2 }
	in := &instance.Instance{
		Format: instance.Format, Name: "coupled", Currency: "USD", From: day(0), Epoch: instance.Days, Epochs: 1 + rng.IntN(3),
		AnnualRate: dec("0.1"), Salvage: dec("0.4"),
	}
	regions := 1 + rng.IntN(3)
	for i := range regions {
		in.Regions = append(in.Regions, instance.Region{ID: fmt.Sprint("r", i), Country: []string{"US", "DE"}[rng.IntN(2)]})
		for j := range regions {
			if i != j && !chance(4) {
				s := instance.Overflow{From: fmt.Sprint("r", i), To: fmt.Sprint("r", j), RoundTripMS: 10 * (1 + rng.IntN(5)), Hourly: dec([]string{"0", "0.35"}[rng.IntN(2)])}
				if chance(2) {
					s.Overhead = dec("0.05")
				}
				in.Overflow = append(in.Overflow, s)
			}
		}
	}
	classes := []string{"a", "b"}[:1+rng.IntN(2)]
	if len(classes) == 2 && !chance(3) {
		in.Substitutes = []instance.Substitute{{For: "a", Class: "b", Units: dec("0.6")}}
	}
	for i := range 1 + rng.IntN(2) {
		q := instance.Quota{ID: fmt.Sprint("q", i), Limit: 2 * rng.IntN(12)}
		if chance(3) {
			q.Path = []instance.QuotaStep{{From: day(1 + rng.IntN(5)), Limit: 2 * rng.IntN(12)}}
		}
		in.Quotas = append(in.Quotas, q)
	}
	for _, r := range in.Regions {
		for _, class := range classes {
			name := r.ID + " " + class
			pool := instance.Pool{ID: name, Region: r.ID, Class: class, Unit: "vm", GPUs: 8, OnDemand: &instance.Price{Hourly: dec(fmt.Sprint(4 + rng.IntN(4)))}}
			if chance(4) {
				pool.OnDemand.Path = []instance.PriceStep{{From: day(1 + rng.IntN(5)), Hourly: dec("3.5")}}
			}
			if chance(2) {
				pool.Spot = &instance.Spot{Price: instance.Price{Hourly: dec("1.2")}, Overhead: dec("0.1")}
				if n := rng.IntN(4); n > 0 {
					pool.Spot.Available = &n
				}
			}
			if !chance(4) {
				pool.Quota, pool.QuotaPerUnit = in.Quotas[rng.IntN(len(in.Quotas))].ID, 1+rng.IntN(2)
			}
			in.Pools = append(in.Pools, pool)
			for k := range 2 {
				in.Offers = append(in.Offers, instance.Offer{
					ID: fmt.Sprint(name, " o", k), Kind: domain.OfferReserved, Pool: name, Term: 1 + k, Hourly: dec(fmt.Sprint(1 + rng.IntN(3))), GuaranteesCapacity: chance(2), MaxUnits: 2 + rng.IntN(6),
				})
			}
			if chance(3) {
				in.Commitments = append(in.Commitments, instance.Commitment{
					ID: "held " + name, Kind: domain.OfferReserved, Pool: name, Units: 1 + rng.IntN(2), Hourly: dec("2"), GuaranteesCapacity: chance(2), Term: domain.Interval{From: day(-2), To: day(1 + rng.IntN(6))},
				})
			}
			if chance(5) {
				continue
			}
			d := instance.Demand{ID: "d " + name, Pool: name, Shortage: dec(fmt.Sprint(40 + rng.IntN(20))), LatencyBudgetMS: 10 * rng.IntN(6)}
			if chance(2) {
				d.Interruptible = dec("0.5")
			}
			if chance(3) {
				d.Countries = []string{in.Regions[0].Country, r.Country}
			}
			for range 24 * in.Epochs {
				d.Hourly = append(d.Hourly, rng.IntN(9))
			}
			switch rng.IntN(5) {
			case 0:
				d.Buffer = &instance.Buffer{ServiceLevel: dec("0.99"), FailuresPerGPUHour: dec("0.0005"), RepairHours: dec("8"), GPUsPerUnit: 8}
			case 1:
				d.DeferHours, d.DeferrableShare = 4+rng.IntN(8), dec("0.5")
			}
			in.Demands = append(in.Demands, d)
		}
	}
	if len(in.Demands) == 0 {
		return coupledInstance(rng)
	}
	return in
}

// drawnOf answers a scenario of an instance with given purchases.
func drawnOf(t *testing.T, in *instance.Instance, orders []instance.Order, runs int, changes ...Change) *Result {
	t.Helper()
	s := &Scenario{
		Name: "coupled", Question: "the same?", Base: Base{Instance: "in.json"}, Seed: 1, Runs: runs, Set: 1, Changes: changes, Alternatives: []Alternative{{Name: "best"}}, Report: []string{"load_duration"},
	}
	r, err := Run(t.Context(), &Input{Scenario: s, Instance: in, Workers: 2, Solve: func(ctx context.Context, in *instance.Instance) (*instance.Answer, error) {
		return instance.Evaluate(ctx, in, orders)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// levelled is an instance with work deferred as in trials.
func levelled(t *testing.T, in *instance.Instance) *instance.Instance {
	t.Helper()
	priced, err := in.Priced()
	if err != nil {
		t.Fatal(err)
	}
	out := *in
	out.Demands = slices.Clone(in.Demands)
	for i := range out.Demands {
		d := &out.Demands[i]
		if d.DeferHours == 0 {
			continue
		}
		if d.Hourly, err = priced.Levels(d.ID, 0); err != nil {
			t.Fatal(err)
		}
		d.DeferHours, d.DeferrableShare = 0, decimal.Zero
	}
	return &out
}

// With nothing uncertain, trials of coupled pools equal the evaluation of their instance, hour by
// hour: cost, what serves, and what is unserved.
func TestCoupledDrawsEqualEvaluation(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 11))
	seen := map[string]int{}
	for i := range long.Count(25, 80) {
		in := coupledInstance(rng)
		orders := drawnOrders(t, rng, in)
		want, err := instance.Evaluate(t.Context(), levelled(t, in), orders)
		if err != nil {
			t.Fatalf("instance %d: %v", i, err)
		}
		r := drawnOf(t, in, orders, 1)
		got := &r.Alternatives[0]
		for _, x := range []struct {
			what      string
			got, want decimal.Decimal
		}{
			{"cost", got.Expected, want.Cost}, {"penalty", got.Penalty, want.Penalty}, {"capacity", got.Committed, want.Committed.Add(want.Bought)}, {"median world", got.Median, want.Cost},
		} {
			if x.got.Sub(x.want).Abs().GreaterThan(dec("0.02")) {
				t.Errorf("instance %d: %s is %s, evaluated %s", i, x.what, x.got, x.want)
			}
		}
		if len(got.Unmodelled) > 0 || len(got.Notes) > 0 {
			t.Errorf("instance %d: unmodelled drivers are %v, notes %q", i, got.Unmodelled, got.Notes)
		}
		count := func(what string, is bool) {
			if is {
				seen[what]++
			}
		}
		count("bought", len(orders) > 0)
		count("unserved", want.Penalty.IsPositive())
		count("a substitute", len(in.Substitutes) > 0)
		shared := map[string]int{}
		for j := range in.Pools {
			shared[in.Pools[j].Quota]++
			count("a shared quota", in.Pools[j].Quota != "" && shared[in.Pools[j].Quota] == 2)
		}
		for j := range in.Demands {
			count("spare units", in.Demands[j].Buffer != nil)
			count("work that waits", in.Demands[j].DeferHours > 0)
		}
		for j := range want.Recourse {
			for _, x := range want.Recourse[j].Pools {
				count("overflow", x.OverflowIn != "" && x.OverflowIn != "0")
				count("spot", x.Spot != "0")
				count("on a price alone", x.DiscountOnly != "0")
			}
		}
	}
	for _, what := range []string{"bought", "unserved", "a substitute", "a shared quota", "spare units", "work that waits", "overflow", "spot", "on a price alone"} {
		if seen[what] < 5 {
			t.Errorf("%d drawn instances have %s: the test is too easy", seen[what], what)
		}
	}
}

// A trial with twice the demand equals the evaluation of the instance with twice the demand;
// likewise for quotas and overflow.
func TestCoupledDrawsFollowDemand(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 11))
	for i := range long.Count(8, 20) {
		in := coupledInstance(rng)
		twice := *in
		twice.Demands = slices.Clone(in.Demands)
		for j := range twice.Demands {
			d := &twice.Demands[j]
			d.Hourly, d.DeferHours, d.DeferrableShare = slices.Clone(d.Hourly), 0, decimal.Zero
			in.Demands[j].DeferHours, in.Demands[j].DeferrableShare = 0, decimal.Zero
			for h := range d.Hourly {
				d.Hourly[h] *= 2
			}
		}
		orders := drawnOrders(t, rng, in)
		want, err := instance.Evaluate(t.Context(), &twice, orders)
		if err != nil {
			t.Fatal(err)
		}
		r := drawnOf(t, in, orders, 3, Change{Kind: DemandGrowth, Factor: number(Fixed, "2")})
		if got := &r.Alternatives[0]; got.Expected.Sub(want.Cost).Abs().GreaterThan(dec("0.02")) || !got.TrialsAbove.Abs().LessThan(dec("0.02")) {
			t.Errorf("instance %d: twice the demand costs %s, evaluated %s; solved %s", i, got.Expected, want.Cost, got.Solved)
		}
	}
}

// More of a shared quota, and further overflow routes, never cost more in any trial; trials do not
// depend on which worker evaluates them.
func TestCoupledDrawsAreMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 11))
	changes := []Change{
		{Kind: DemandGrowth, Factor: number(Triangular, "0.8", "1", "1.6")},
		{Kind: ProviderOutage, Region: "r0", PerYear: number(Fixed, "300"), Duration: number(Lognormal, "4", "12")},
		{Kind: SpotInterruption, PerUnitHour: number(Triangular, "0.02", "0.1", "0.3"), LostHours: number(Fixed, "1"), Available: number(Triangular, "0", "2", "5")},
	}
	run := func(in *instance.Instance, workers int) *Result {
		s := &Scenario{Name: "monotone", Question: "more?", Base: Base{Instance: "in.json"}, Seed: 3, Runs: 12, Set: 1, Changes: changes, Alternatives: []Alternative{{Name: "rent", Buy: BuyNothing}}}
		r, err := Run(t.Context(), &Input{Scenario: s, Instance: in, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	cheaper := 0
	for i := range long.Count(10, 25) {
		in := coupledInstance(rng)
		for p := range in.Pools {
			if in.Pools[p].Spot == nil {
				in.Pools[p].Spot = &instance.Spot{Price: instance.Price{Hourly: dec("1.5")}}
			}
		}
		before := run(in, 1)
		if again := run(in, 3); again.Alternatives[0].Trials != before.Alternatives[0].Trials {
			t.Errorf("instance %d: three workers come to other trials than one", i)
		}
		more := *in
		if i%2 == 0 {
			more.Quotas = slices.Clone(in.Quotas)
			for q := range more.Quotas {
				more.Quotas[q] = instance.Quota{ID: in.Quotas[q].ID, Limit: 30}
			}
		} else {
			more.Overflow, more.Demands = nil, slices.Clone(in.Demands)
			for _, from := range in.Regions {
				for _, to := range in.Regions {
					if from.ID != to.ID {
						more.Overflow = append(more.Overflow, instance.Overflow{From: from.ID, To: to.ID, RoundTripMS: 1, Hourly: decimal.Zero})
					}
				}
			}
			for d := range more.Demands {
				more.Demands[d].LatencyBudgetMS = max(1, more.Demands[d].LatencyBudgetMS)
			}
		}
		after := run(&more, 2)
		for d := range before.trials[0] {
			was, is := before.trials[0][d].cost, after.trials[0][d].cost
			if is > was+200 { // each amount is rounded to a millionth
				t.Fatalf("instance %d, trial %d: with more it costs %d, with less %d", i, d, is, was)
			}
			if is < was {
				cheaper++
			}
		}
	}
	if cheaper < 50 {
		t.Errorf("more made %d trials cheaper: the test is too easy", cheaper)
	}
}

// One of two regions is unavailable for ten hours: its five units are unserved, except those that
// the other may serve, at its cost.
func TestOutageOfACoupledRegion(t *testing.T) {
	pair := func(edit func(*instance.Instance)) *instance.Instance {
		return plain(func(int) int { return 5 }, func(in *instance.Instance) {
			in.AnnualRate = decimal.Zero
			in.Regions = append(in.Regions, instance.Region{ID: "s"})
			in.Pools = append(in.Pools, instance.Pool{ID: "q", Region: "s", Class: "c", Unit: "vm", GPUs: 8, OnDemand: &instance.Price{Hourly: dec("6")}})
			other := in.Demands[0]
			other.ID, other.Pool = "e", "q"
			in.Demands = append(in.Demands, other)
			in.Demands[0].LatencyBudgetMS = 50
			edit(in)
		})
	}
	away := func(overhead string) func(*instance.Instance) {
		return func(in *instance.Instance) {
			in.Overflow = []instance.Overflow{{From: "r", To: "s", RoundTripMS: 40, Hourly: dec("0.5"), Overhead: dec(overhead)}}
		}
	}
	outage := Change{Kind: ProviderOutage, Region: "r", When: at("2027-03-01"), Duration: number(Fixed, "10")}
	const usual = 48 * 5 * (4 + 6)
	for name, c := range map[string]struct {
		edit           func(*instance.Instance)
		cost, unserved string
	}{
		"alone":                       {func(*instance.Instance) {}, fmt.Sprint(usual + 50*(40-4)), "50"},
		"it overflows":                {away("0"), fmt.Sprint(usual + 50*(6-4) + 25), "0"},
		"it overflows and takes more": {away("0.1"), fmt.Sprint(usual + 55*6 - 50*4 + 25), "0"},
		"too far":                     {func(in *instance.Instance) { away("0")(in); in.Demands[0].LatencyBudgetMS = 30 }, fmt.Sprint(usual + 50*(40-4)), "50"},
		"it must stay in its country": {func(in *instance.Instance) {
			away("0")(in)
			in.Regions[0].Country, in.Regions[1].Country, in.Demands[0].Countries = "DE", "US", []string{"DE"}
		}, fmt.Sprint(usual + 50*(40-4)), "50"},
		"the quota there has two left": {func(in *instance.Instance) {
			away("0")(in)
			in.Quotas = []instance.Quota{{ID: "k", Limit: 7}}
			in.Pools[1].Quota = "k"
		}, fmt.Sprint(usual + 20*(6-4) + 10 + 30*(40-4)), "30"},
		// Five and five fit it, and only five are wanted on demand while one region is unavailable.
		"a shared quota of ten": {func(in *instance.Instance) {
			away("0")(in)
			in.Quotas = []instance.Quota{{ID: "k", Limit: 10}}
			in.Pools[0].Quota, in.Pools[1].Quota = "k", "k"
		}, fmt.Sprint(usual + 50*(6-4) + 25), "0"},
	} {
		got := ofInstance(t, pair(c.edit), []Change{outage}, Alternative{Name: "x", Buy: BuyNothing}).Alternatives[0]
		if !got.Expected.Equal(dec(c.cost)) || !got.Unserved.Equal(dec(c.unserved)) {
			t.Errorf("%s: costs %s with %s unit-hours unserved, by hand %s and %s", name, got.Expected, got.Unserved, c.cost, c.unserved)
		}
	}
}

// What serves a coupled pool, by hours of falling demand, adds up to its total: with a shared quota
// of six, two pools that want one to eight.
func TestStackOfCoupledPools(t *testing.T) {
	in := plain(func(h int) int { return 1 + h%8 }, func(in *instance.Instance) {
		in.Pools = append(in.Pools, instance.Pool{ID: "q", Region: "r", Class: "other", Unit: "vm", GPUs: 8, OnDemand: &instance.Price{Hourly: dec("5")}})
		other := in.Demands[0]
		other.ID, other.Pool, other.Shortage = "e", "q", dec("80")
		in.Demands = append(in.Demands, other)
		in.Quotas = []instance.Quota{{ID: "k", Limit: 6}}
		in.Pools[0].Quota, in.Pools[1].Quota = "k", "k"
	})
	r := ofInstance(t, in, nil, Alternative{Name: "x", Buy: BuyNothing})
	// The dearer shortage is served first: of e up to six, of d the rest.
	for i, want := range [][2]int{{6 * (1 + 2), 6*(8+7+6+5+4) + 6*3 + 6*0}, {6 * (1 + 2 + 3 + 4 + 5 + 6 + 6 + 6), 6 * (2 + 1)}} {
		x := &r.Alternatives[0].Stacks[i]
		rented, short := decimal.Zero, decimal.Zero
		last := 0
		for k, end := range x.Hours {
			n := decimal.NewFromInt(int64(end - last))
			rented, short, last = rented.Add(x.OnDemand[k].Mul(n)), short.Add(x.Unserved[k].Mul(n)), end
		}
		if i == 0 { // of 3, 4 and 5 of e, 3, 2 and 1 are left for as many of d
			want[0] += 6 * (3 + 2 + 1)
			want[1] = 48/8*(1+2+3+4+5+6+7+8) - want[0]
		}
		if !rented.Equal(decimal.NewFromInt(int64(want[0]))) || !short.Equal(decimal.NewFromInt(int64(want[1]))) {
			t.Errorf("%s: %s unit-hours on demand and %s unserved, want %d and %d", x.Pool, rented, short, want[0], want[1])
		}
	}
}

// A limit that the solved problem keeps in expectation does not limit trials, which use more of
// cheap spot; that is an unmodelled driver.
func TestLimitsStandBesideTheGap(t *testing.T) {
	in := plain(func(int) int { return 10 }, func(in *instance.Instance) {
		in.Pools[0].Spot = &instance.Spot{Price: instance.Price{Hourly: dec("1")}}
		in.Demands[0].Interruptible = dec("1")
	})
	s := scenario(nil, Alternative{Name: "x"})
	s.Base.Instance, s.Constraints.MaxSpotShare = "in.json", ptr("0.25")
	r, err := Run(t.Context(), &Input{Scenario: s, Instance: in, Solve: func(ctx context.Context, in *instance.Instance) (*instance.Answer, error) {
		a, err := instance.Evaluate(ctx, in, nil)
		if err == nil {
			a.Proof = []instance.Proof{{Solver: "evaluated"}}
		}
		return a, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	// Per hour, a quarter of ten on spot costs 2.5 + 7.5 × 4, and all of it 10.
	a := r.Alternatives[0]
	if want := []Unmodelled{{"constraints", InExpectation}}; !slices.Equal(a.Unmodelled, want) || a.Solved.LessThan(a.Expected.Mul(dec("3"))) || !a.TrialsAbove.Equal(a.Expected.Sub(a.Solved)) {
		t.Errorf("unmodelled drivers are %v; solved %s, drawn %s", a.Unmodelled, a.Solved, a.Expected)
	}
}

// Pools that share only a quota are rationed as by the linear program.
func TestRationEqualsTheProgram(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 11))
	rationed := 0
	for i := range long.Count(60, 120) {
		in := coupledInstance(rng)
		in.Overflow, in.Substitutes, in.Quotas = nil, nil, in.Quotas[:1]
		for p := range in.Pools {
			in.Pools[p].Quota, in.Pools[p].QuotaPerUnit = in.Quotas[0].ID, 1+rng.IntN(3)
		}
		orders := drawnOrders(t, rng, in)
		c := &composed{alt: &Alternative{}, in: in}
		m, err := newModel(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		priced, err := instance.Evaluate(t.Context(), in, orders)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.bought(in, priced); err != nil {
			t.Fatal(err)
		}
		e := &experiment{m: m, c: c}
		w := c.newWorld(m)
		if err := w.set(c, m, e.typical(point{})); err != nil {
			t.Fatal(err)
		}
		w.windows = append(w.windows, window{pool: 0, from: 3, to: 9, whole: rng.IntN(2) == 0, units: one})
		var by [2]outcome
		for k, across := range []bool{false, true} {
			for g := range m.groups {
				m.groups[g].across = across
			}
			v, err := newEvaluator(m)
			if err != nil {
				t.Fatal(err)
			}
			if by[k], err = v.evaluate(w); err != nil {
				t.Fatal(err)
			}
		}
		// The remaining part of a unit of quota is rationed to the millionth in each hour.
		if d := by[0].cost - by[1].cost; d < -2000 || d > 2000 {
			t.Errorf("instance %d: rationed it costs %d, by the program %d", i, by[0].cost, by[1].cost)
		}
		if len(m.groups) > 0 && by[0].unserved > 0 {
			rationed++
		}
	}
	if rationed < 30 {
		t.Errorf("only %d instances lacked anything: the test is too easy", rationed)
	}
}
