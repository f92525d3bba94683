package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/adapters/highs"
	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/long"
	"quartermaster/domain/packing"
)

// solver returns the linear programming solver, and skips a test without one.
func solver(t *testing.T) linear.Solver {
	t.Helper()
	lp, err := highs.Open(highs.Options{})
	if errors.Is(err, linear.ErrUnavailable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lp.Close() })
	return lp
}

// near allows for the rounding of proven bounds.
func near(t *testing.T, what string, got domain.Decimal, want string) {
	t.Helper()
	if got.Sub(dec(want)).Abs().GreaterThan(dec("0.000001")) {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// sharing is ten machines of K and ten of L in a region in which both may have
// twelve on demand together. A reservation of K costs 11 an hour and one of L 14,
// against 10 on demand.
func sharing() *Question {
	quota := []Quota{{Provider: "aws", GPUs: 12, Shared: true, Together: true}}
	k, l := even("2026-06-01", 10), even("2026-06-01", 10)
	l.Kind = "L"
	k.Quotas, l.Quotas = quota, quota
	k.Offers = append(k.Offers, sold("month", domain.OfferReserved, "11", 1))
	l.Offers = append(l.Offers, sold("month", domain.OfferReserved, "14", 1))
	return over(1, k, l)
}

// Of twenty machines twelve run on demand, so eight are reserved: of K, where that costs least
// more. Each pool by itself would reserve none. An hour costs 8 × 11 + 12 × 10 = 208, June has 720;
// one more GPU of the quota saves 1 in each.
func TestSharedQuotaByHand(t *testing.T) {
	p, err := Compute(t.Context(), sharing(), solver(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Components) != 1 {
		t.Fatalf("components %+v", p.Components)
	}
	x := &p.Components[0]
	if !slices.Equal(x.Pools, []string{"r K", "r L"}) || len(x.By) != 1 || !strings.Contains(x.By[0], "quota of aws in r for all models together, 12 GPUs") || len(p.Certificate) != 1 {
		t.Errorf("component %+v", x)
	}
	equal(t, "cost", x.Cost, "149760")
	near(t, "lower bound", x.LowerBound, "149760")
	near(t, "gap", x.Gap, "0")
	k, l := &p.Regions[0].Pools[0], &p.Regions[0].Pools[1]
	if bought(k) != "8 month from 06-01 to 07-01" || bought(l) != "" {
		t.Errorf("bought %q and %q", bought(k), bought(l))
	}
	if b := k.Purchases[0]; b.Reason == "" || b.Worth.Sub(dec("7920")).Abs().GreaterThan(dec("0.000001")) {
		t.Errorf("worth %v, because %q", b.Worth, b.Reason)
	}
	equal(t, "K", k.Cost, "77760") // 8 × 11 + 2 × 10
	equal(t, "L", l.Cost, "72000")
	equal(t, "total", p.Total.Cost, "149760")
	near(t, "bound of all", p.Total.LowerBound, "149760")
	equal(t, "paid", p.Total.Nominal, "149760")
	if k.Served.Guaranteed != 8*720 || k.Served.OnDemand != 2*720 || l.Served.OnDemand != 10*720 || k.Served.Shortage+l.Served.Shortage != 0 {
		t.Errorf("served %+v and %+v", k.Served, l.Served)
	}
	// All on demand, twelve of twenty fit the quota.
	if k.Refused+l.Refused != 8*720 {
		t.Errorf("the quota refuses %d and %d unit-hours, want %d in all", k.Refused, l.Refused, 8*720)
	}
	// Nothing bought: eight of twenty are short, at 100 an hour.
	equal(t, "buy nothing", p.Total.Current, "662400")
	equal(t, "current penalty", p.Total.CurrentPenalty, "576000")
	for _, c := range p.Baselines {
		if c.Cost.LessThan(p.Total.LowerBound) {
			t.Errorf("baseline %s costs %s, less than is proven", c.Name, c.Cost)
		}
		if c.Name == "buy_nothing" {
			equal(t, "baseline buy_nothing", c.Cost, "662400")
		}
	}
	at := slices.IndexFunc(x.Binding, func(b Binding) bool { return b.Constraint == "quota" })
	if at < 0 {
		t.Fatalf("binding %+v", x.Binding)
	}
	near(t, "worth of the quota", *x.Binding[at].Price, "720")
}

// Without a solver pools that share something are left out, and the plan says what to do.
func TestSharedQuotaWithoutSolver(t *testing.T) {
	q := sharing()
	q.Pools = append(q.Pools, even("2026-06-01", 10))
	q.Pools[2].Kind = "M"
	p, err := Compute(t.Context(), q, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Excluded) != 2 || !p.WithoutSolver || !strings.Contains(p.Excluded[0].Reason, "quota of aws") || !strings.Contains(p.Excluded[0].Next, "make highs") {
		t.Fatalf("excluded %+v", p.Excluded)
	}
	equal(t, "cost", p.Total.Cost, "72000")
}

// A remainder of the quota below a whole machine is unusable: with machines of eight GPUs 100 GPUs
// are twelve machines.
func TestSharedQuotaInWholeMachines(t *testing.T) {
	q := sharing()
	for i := range q.Pools {
		p := &q.Pools[i]
		p.NodeGPUs, p.Quotas = 8, []Quota{{Provider: "aws", GPUs: 100, Shared: true, Together: true}}
		for j := range p.Offers {
			p.Offers[j].GPUCount = 8
		}
		for h := range p.Series[0].Milli {
			p.Series[0].Milli[h] *= 8
		}
	}
	p, err := Compute(t.Context(), q, solver(t))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "cost", p.Total.Cost, "149760")
}

// A quota of eight million GPUs bounds a million machines of eight, also beside machines of one GPU.
func TestSharedQuotaBeyondAMillion(t *testing.T) {
	q := sharing()
	for i := range q.Pools {
		q.Pools[i].Quotas = []Quota{{Provider: "aws", GPUs: 8_000_000, Shared: true, Together: true}}
	}
	p := &q.Pools[0]
	p.NodeGPUs = 8
	for i := range p.Offers {
		p.Offers[i].GPUCount = 8
	}
	for h := range p.Series[0].Milli {
		p.Series[0].Milli[h] = 7_000_000_000
	}
	got, err := Compute(t.Context(), q, solver(t))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "unserved", got.Total.Penalty, "0")
	equal(t, "cost", got.Total.Cost, "6300072000") // (875,000 + 10) × 10 × 720
}

// afar is ten machines of K in r, at 10 an hour, and five in s, at 6.
func afar() *Question {
	near, far := even("2026-06-01", 10), even("2026-06-01", 5)
	far.Region = "s"
	far.Offers[0].Market.Region, far.Offers[0].Hourly = "s", dec("6")
	near.LatencyMicros = 20_900
	near.Mix = []packing.Workload{{ID: "w", Replicas: 1, GPUMilli: 1000, Countries: []string{"DE", "FR"}}}
	q := over(1, near, far)
	q.Regions = []Region{
		{Region: "r", Country: "DE", RoundTrips: []domain.RoundTrip{{To: "s", Micros: 19_100, Measured: true}}},
		{Region: "s", Country: "FR", RoundTrips: []domain.RoundTrip{{To: "r", Micros: 1000}}},
	}
	return q
}

// All demand of r may be served in s, where a machine costs 6 an hour: fifteen of them. If one
// deployment may not move, none of the demand does.
func TestServedElsewhereByHand(t *testing.T) {
	lp := solver(t)
	p, err := Compute(t.Context(), afar(), lp)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Components) != 1 || !strings.Contains(p.Components[0].By[0], "demand of r K may be served in s: a round trip of 20 ms, measured, is within the budget of 20 ms") {
		t.Fatalf("components %+v", p.Components)
	}
	equal(t, "cost", p.Total.Cost, "64800") // 15 × 6 × 720
	near(t, "lower bound", p.Total.LowerBound, "64800")
	r, s := &p.Regions[0].Pools[0], &p.Regions[1].Pools[0]
	if r.Served.Elsewhere != 7200 || s.Served.ForOthers != 7200 || r.Served.OnDemand != 0 || s.Served.OnDemand != 15*720 {
		t.Errorf("served %+v and %+v", r.Served, s.Served)
	}
	equal(t, "cost of r", r.Cost, "0")
	equal(t, "cost of s", s.Cost, "64800")
	for name, change := range map[string]func(*Question){
		"residency":     func(q *Question) { q.Pools[0].Mix[0].Countries = []string{"DE"} },
		"no budget":     func(q *Question) { q.Pools[0].LatencyMicros = 0 },
		"too far":       func(q *Question) { q.Regions[0].RoundTrips[0].Micros = 20_001 },
		"no way":        func(q *Question) { q.Regions[0].RoundTrips, q.Regions[1].RoundTrips = nil, nil },
		"certification": func(q *Question) { q.Pools[0].Mix[0].Certifications = []string{"iso"} },
		"placement":     func(q *Question) { q.Pools[0].Mix[0].Clusters = []string{"c"} },
		"no deployment": func(q *Question) { q.Pools[0].Mix = nil },
		"another kind":  func(q *Question) { q.Pools[1].Kind = "L" },
	} {
		q := afar()
		change(q)
		p, err := Compute(t.Context(), q, lp)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Components) != 0 || !p.Total.Cost.Equal(dec("93600")) { // (10 × 10 + 5 × 6) × 720
			t.Errorf("%s: cost %s, components %+v", name, p.Total.Cost, p.Components)
		}
	}
}

// Moving a GPU-hour to s costs what the dearest policy says. At 3 it is 9 there, instead of 10 in r; at 5 it is 11,
// and nothing moves. What cannot be counted moves nothing.
func TestTransferByHand(t *testing.T) {
	lp := solver(t)
	for _, c := range []struct {
		prices     []domain.Money
		fx         map[string]domain.Decimal
		gpus       int
		cost, note string
	}{
		{[]domain.Money{{Amount: dec("1"), Currency: "USD"}, {Amount: dec("3"), Currency: "USD"}}, nil, 1, "86400", ""}, // (15 × 6 + 10 × 3) × 720
		{[]domain.Money{{Amount: dec("5"), Currency: "USD"}}, nil, 1, "93600", ""},
		{[]domain.Money{{Amount: dec("1.5"), Currency: "EUR"}}, map[string]domain.Decimal{"EUR": dec("2")}, 1, "86400", ""},
		{[]domain.Money{{Amount: dec("1.5"), Currency: "EUR"}}, nil, 1, "93600", "prices moving it in EUR"},
		// Machines of four GPUs: five of demand are two, and ten are three.
		{[]domain.Money{{Amount: dec("0.75"), Currency: "USD"}}, nil, 4, "28080", ""}, // (5 × 6 + 3 × 4 × 0.75) × 720
	} {
		q := afar()
		q.FX = c.fx
		for i := range q.Pools {
			p := &q.Pools[i]
			p.NodeGPUs, p.Offers[0].GPUCount = c.gpus, uint32(c.gpus)
		}
		for i, m := range c.prices {
			q.Pools[0].Transfers = append(q.Pools[0].Transfers, Transfer{m, fmt.Sprint("egress ", i)})
		}
		if len(q.FX) > 0 {
			q = q.exchanged()
		}
		p, err := Compute(t.Context(), q, lp)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprint(c.prices), p.Total.Cost, c.cost)
		if r := &p.Regions[0].Pools[0]; notes(r, "its demand stays in its region") != (c.note != "") || c.note != "" && !notes(r, c.note) {
			t.Errorf("%v: notes %q", c.prices, r.Notes)
		}
		if len(p.Components) > 0 {
			asProblem(t, q, p, lp)
			if why := p.Components[0].By[0]; !strings.Contains(why, "; moving it costs "+c.prices[len(c.prices)-1].String()+" for a GPU-hour, by the policy egress") && c.fx == nil {
				t.Errorf("coupled by %q", why)
			}
		}
	}
}

// Where no round trip is stated, it is estimated at 5 ms for each time zone crossed, and the plan says
// so. What is stated for the way back holds in both directions.
func TestRoundTripsByHand(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string // time zones
		back     []domain.RoundTrip
		ms       int
		how      string
	}{
		"five zones":          {"-05:00", "+00:00", nil, 25, "estimated at 5 ms for each time zone crossed"},
		"half a zone more":    {"+05:30", "+01:00", nil, 25, "estimated at 5 ms for each time zone crossed"},
		"across the date":     {"+12:00", "-11:00", nil, 5, "estimated at 5 ms for each time zone crossed"},
		"the same zone":       {"+01:00", "+01:00", nil, 5, "estimated at 5 ms for each time zone crossed"},
		"unknown":             {"", "+01:00", nil, 0, ""},
		"stated for the back": {"+01:00", "+01:00", []domain.RoundTrip{{To: "r", Micros: 7001, Measured: true}}, 8, "measured"},
		"estimated there":     {"", "", []domain.RoundTrip{{To: "r", Micros: 7000}}, 7, "estimated"},
	} {
		r, s := &Region{Region: "r", UTCOffset: c.from}, &Region{Region: "s", UTCOffset: c.to, RoundTrips: c.back}
		for _, way := range [][2]*Region{{r, s}, {s, r}} {
			if ms, how, ok := way[0].trip(way[1]); ms != c.ms || how != c.how || ok != (c.ms > 0) {
				t.Errorf("%s: %d ms, %s, %t", name, ms, how, ok)
			}
		}
	}
	r := &Region{Region: "r", RoundTrips: []domain.RoundTrip{{To: "s", Micros: 1000}}}
	s := &Region{Region: "s", RoundTrips: []domain.RoundTrip{{To: "r", Micros: 2000, Measured: true}}}
	if ms, how, _ := r.trip(s); ms != 2 || how != "measured" {
		t.Errorf("%d ms, %s: what was measured counts, and not an estimate", ms, how)
	}
	q := afar()
	q.Regions = []Region{{Region: "r", Country: "DE", UTCOffset: "+01:00"}, {Region: "s", Country: "FR", UTCOffset: "+04:00"}}
	p, err := Compute(t.Context(), q, solver(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Components) != 1 || !strings.Contains(p.Components[0].By[0], "a round trip of 15 ms, estimated at 5 ms for each time zone crossed, is within the budget of 20 ms") {
		t.Fatalf("components %+v", p.Components)
	}
	equal(t, "cost", p.Total.Cost, "64800") // 15 × 6 × 720, as if it were measured
	q.Regions[1].UTCOffset = "+05:30"       // 25 ms
	if p, err = Compute(t.Context(), q, solver(t)); err != nil || len(p.Components) != 0 {
		t.Errorf("beyond the budget: components %+v, %v", p.Components, err)
	}
}

// Pools of two kinds may overflow the same way. Stated together, also because a budget bounds both, they
// name it once.
func TestOneWayForTwoKinds(t *testing.T) {
	lp, q := solver(t), afar()
	for _, p := range q.Pools[:2] {
		p.Kind = "L"
		q.Pools = append(q.Pools, p)
	}
	alone, err := Compute(t.Context(), q, lp)
	if err != nil {
		t.Fatal(err)
	}
	in, err := q.Instance()
	if err != nil {
		t.Fatal(err)
	}
	a, err := instance.Solve(t.Context(), in, lp)
	if err != nil {
		t.Fatal(err)
	}
	q.Budgets = []Budget{{ID: "b", Basis: domain.BudgetCash, Amount: domain.Money{Amount: dec("1000000"), Currency: "USD"}, Period: domain.Interval{From: at("2026-06-01")}}}
	together, err := Compute(t.Context(), q, lp)
	if err != nil {
		t.Fatal(err)
	}
	if len(alone.Components) != 2 || len(together.Components) != 1 || len(in.Overflow) != 1 {
		t.Errorf("%d components, and %d under a budget; overflow %+v", len(alone.Components), len(together.Components), in.Overflow)
	}
	equal(t, "alone", alone.Total.Cost, "129600") // twice 15 × 6 × 720
	equal(t, "as one problem", a.Cost, "129600")
	equal(t, "under a budget", together.Total.Cost, "129600")
}

// Pools that share nothing have the same plan with and without a solver.
func TestNothingShared(t *testing.T) {
	q := question()
	q.Pools[0].Quotas = []Quota{{Provider: "aws", GPUs: 96, Shared: true, Together: true}}
	want := compute(t, q)
	got, err := Compute(t.Context(), q, solver(t))
	if err != nil {
		t.Fatal(err)
	}
	if !equalJSON(t, got, want) || len(got.Components) != 0 {
		t.Errorf("with a solver the plan is another: %d components", len(got.Components))
	}
}

// Whatever is shared, the parts of a component add up, its bound is at least the sum of the pools'
// bounds with all of the quota each, no baseline costs less than the bound, and another order of
// the question gives the same bytes.
func TestAnyComponent(t *testing.T) {
	lp := solver(t)
	coupled, dearer := 0, 0
	most := long.Count(6, 1000)
	rapid.Check(t, func(rt *rapid.T) {
		if coupled >= most {
			return
		}
		q := sharing()
		ints := func(label string, from, to int) int { return rapid.IntRange(from, to).Draw(rt, label) }
		q.Assumptions.Months, q.Assumptions.AnnualRate = ints("months", 1, 3), decimal.New(int64(ints("rate", 0, 10)), -2)
		limit := uint64(ints("limit", 0, 10))
		least := false // orders, which rules of baselines ignore
		for i := range q.Pools {
			p := &q.Pools[i]
			p.Quotas[0].GPUs = limit
			p.SpotShare = decimal.New(int64(ints("spot share", 0, 9)), -1)
			base := ints("base", 0, 6)
			for h := range p.Series[0].Milli {
				p.Series[0].Milli[h] = int64(1000 * (base + h%24/8*(i+1)))
			}
			p.Offers = p.Offers[:1]
			p.Offers[0].GPUCount = 1
			for j := range ints("offers", 0, 3) {
				o := sold("o"+string(rune('0'+j)), domain.OfferReserved, "0", uint32(ints("term", 1, 3)))
				o.Hourly, o.Upfront = decimal.New(int64(ints("hourly", 300, 1200)), -2), decimal.NewFromInt(int64(ints("upfront", 0, 2)*500))
				o.GuaranteesCapacity = rapid.Bool().Draw(rt, "guaranteed")
				o.MinUnits = uint32(max(0, ints("min", -4, 4)))
				least = least || o.MinUnits > 1
				p.Offers = append(p.Offers, o)
			}
			if rapid.Bool().Draw(rt, "spot") {
				p.Offers = append(p.Offers, sold("spot", domain.OfferSpot, "4", 0))
			}
		}
		if rapid.Bool().Draw(rt, "held") {
			h := held("2026-05-01", "2026-07-01")
			h.Region = "r"
			q.Held = []Held{h}
		}
		// The same with all of the quota for each.
		apart := *q
		apart.Pools = slices.Clone(q.Pools)
		for i := range apart.Pools {
			apart.Pools[i].Quotas = []Quota{{Provider: "aws", GPUs: limit}}
		}
		alone, err := Compute(t.Context(), &apart, lp)
		if err != nil {
			rt.Fatal(err)
		}
		p, err := Compute(t.Context(), q, lp)
		if err != nil {
			rt.Fatal(err)
		}
		if len(p.Components) != 1 {
			rt.Fatalf("components %+v", p.Components)
		}
		coupled++
		x := &p.Components[0]
		if !x.Cost.Equal(p.Total.Cost) || !x.LowerBound.Equal(p.Total.LowerBound) || x.LowerBound.GreaterThan(x.Cost) {
			rt.Fatalf("component %s, at least %s; total %s, at least %s", x.Cost, x.LowerBound, p.Total.Cost, p.Total.LowerBound)
		}
		// Bounds of pools rest on prices that are rounded differently in the ninth digit.
		if x.LowerBound.LessThan(alone.Total.LowerBound.Sub(dec("0.0001"))) && x.Gap.IsZero() {
			rt.Fatalf("proven are %s together, %s alone", x.LowerBound, alone.Total.LowerBound)
		}
		if x.Cost.GreaterThan(alone.Total.Cost) {
			dearer++
		}
		cash, penalty := decimal.Zero, decimal.Zero
		for _, r := range p.Regions {
			for i := range r.Pools {
				k := &r.Pools[i]
				if k.LowerBound.GreaterThan(k.Cost.Add(dec("0.00001"))) || k.Held.Add(k.Penalty).GreaterThan(k.Cost) {
					rt.Fatalf("%s: amounts %+v", k.Kind, k.Amounts)
				}
				if s := k.Served; s.Held+s.Spot+s.OnDemand+s.Shortage != k.Demand.UnitHours || s.Elsewhere+s.ForOthers != 0 {
					rt.Fatalf("served %+v of %d", s, k.Demand.UnitHours)
				}
				for _, b := range k.Purchases {
					if b.Reason == "" {
						rt.Fatalf("no reason for %+v", b)
					}
				}
				for _, m := range k.Calendar {
					cash = cash.Add(m.Cash)
				}
				penalty = penalty.Add(k.Penalty)
			}
		}
		if !cash.Equal(p.Total.Nominal) || !penalty.Equal(p.Total.Penalty) {
			rt.Fatalf("cash %s of %s, penalty %s of %s", cash, p.Total.Nominal, penalty, p.Total.Penalty)
		}
		for _, c := range p.Baselines {
			if !least && c.Name != "on_demand" && c.Cost.LessThan(p.Total.LowerBound.Sub(dec("0.0001"))) {
				rt.Fatalf("baseline %s costs %s, at least %s are proven", c.Name, c.Cost, p.Total.LowerBound)
			}
		}
		if p.Total.Cost.GreaterThan(p.Total.Current.Add(dec("0.0001"))) {
			rt.Fatalf("cost %s, buying nothing %s", p.Total.Cost, p.Total.Current)
		}
		other := *q
		other.Pools = backward(q.Pools)
		again, err := Compute(t.Context(), &other, lp)
		if err != nil {
			rt.Fatal(err)
		}
		a, _ := json.Marshal(p)
		if b, _ := json.Marshal(again); string(a) != string(b) {
			rt.Fatalf("another order:\n%s\nwant\n%s", b, a)
		}
	})
	if t.Logf("%d components, %d dearer than apart", coupled, dearer); long.Run() && dearer == 0 {
		t.Error("the questions say nothing")
	}
}

// On demand without a quota is what demand costs where it is, though it would be cheaper elsewhere.
func TestOnDemandIsAtHome(t *testing.T) {
	p, err := Compute(t.Context(), afar(), solver(t))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "r", p.Regions[0].OnDemand, "72000") // 10 × 10 × 720
	equal(t, "s", p.Regions[1].OnDemand, "21600") // 5 × 6 × 720
}

// substituting is ten machines of K in r, at 10 an hour, and five of L there, at 12. Half a GPU of L does
// the work of one of K.
func substituting() *Question {
	k, l := even("2026-06-01", 10), even("2026-06-01", 5)
	l.Kind = "L"
	l.Offers[0].GPUModel, l.Offers[0].Hourly = "L", dec("12")
	k.Substitutes = []Substitute{{Model: "L", GPUs: dec("0.5"), Measured: true, Policy: "newer"}}
	return over(1, k, l)
}

// Half a machine of L for one of K costs 6 an hour instead of 10: ten machines of L do all of the work.
func TestSubstituteByHand(t *testing.T) {
	lp := solver(t)
	q := substituting()
	p, err := Compute(t.Context(), q, lp)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Components) != 1 || p.Components[0].By[0] != "r L may do the work of r K: 0.5 L for one K, measured, by the policy newer" {
		t.Fatalf("components %+v", p.Components)
	}
	equal(t, "cost", p.Total.Cost, "86400") // 10 × 12 × 720
	near(t, "lower bound", p.Total.LowerBound, "86400")
	asProblem(t, q, p, lp)
	k, l := &p.Regions[0].Pools[0], &p.Regions[0].Pools[1]
	if k.Served.Elsewhere != 7200 || l.Served.ForOthers != 7200 || l.Served.OnDemand != 7200 {
		t.Errorf("served %+v and %+v", k.Served, l.Served)
	}
	equal(t, "on demand, where the demand is", p.Total.OnDemand, "115200") // (10 × 10 + 5 × 12) × 720
	// Machines of four GPUs instead of one: an eighth of a machine does the work of one.
	q = substituting()
	q.Pools[1].NodeGPUs, q.Pools[1].Offers[0].GPUCount = 4, 4
	q.Pools[1].Offers[0].Hourly = dec("48")
	q.Pools[1].Series[0].Milli = slices.Repeat([]int64{20_000}, len(q.Pools[1].Series[0].Milli))
	if p, err = Compute(t.Context(), q, lp); err != nil {
		t.Fatal(err)
	}
	equal(t, "in machines of four GPUs", p.Total.Cost, "216000") // (5 + 10 ÷ 8) × 48 × 720
	// What may go to another region may go to a substitute there, too.
	q = substituting()
	q.Pools[1].Region, q.Pools[1].Offers[0].Market.Region = "s", "s"
	q.Pools[0].LatencyMicros, q.Pools[0].Mix = 20_000, []packing.Workload{{ID: "w", Replicas: 1, GPUMilli: 1000}}
	q.Regions = []Region{{Region: "r", UTCOffset: "+01:00"}, {Region: "s", UTCOffset: "+02:00"}}
	if p, err = Compute(t.Context(), q, lp); err != nil {
		t.Fatal(err)
	}
	equal(t, "elsewhere", p.Total.Cost, "86400")
	q.Pools[0].LatencyMicros = 0
	if p, err = Compute(t.Context(), q, lp); err != nil {
		t.Fatal(err)
	}
	equal(t, "at home", p.Total.Cost, "115200")
}

// A model that nobody uses yet may do the work.
func TestIdleSubstitute(t *testing.T) {
	lp, q := solver(t), substituting()
	q.Pools[1].Idle, q.Pools[1].Series = true, nil
	p, err := Compute(t.Context(), q, lp)
	if err != nil {
		t.Fatal(err)
	}
	asProblem(t, q, p, lp)
	equal(t, "cost", p.Total.Cost, "43200") // 5 × 12 × 720
	l := &p.Regions[0].Pools[1]
	if l.Served.ForOthers != 7200 || l.Served.OnDemand != 3600 || l.Demand.UnitHours != 0 || !slices.Contains(l.Notes, "no demand of its own was observed: it may do the work of others") {
		t.Errorf("served %+v, notes %q", l.Served, l.Notes)
	}
}

// A substitute is a permission: it never raises the cost, whatever its ratio and price, and equal
// questions with it pass both checkers.
func TestSubstitutesNeverCost(t *testing.T) {
	lp, drawn, cheaper := solver(t), 0, 0
	most := long.Count(15, 500)
	rapid.Check(t, func(rt *rapid.T) {
		if drawn++; drawn > most {
			return
		}
		ints := func(label string, from, to int) int { return rapid.IntRange(from, to).Draw(rt, label) }
		q := substituting()
		q.Assumptions.Months = ints("months", 1, 3)
		for i := range q.Pools {
			p := &q.Pools[i]
			base := ints("base", 0, 4)
			for h := range p.Series[0].Milli {
				p.Series[0].Milli[h] = int64(1000 * (base + h%24/8*(i+1)))
			}
			p.Offers[0].Hourly = decimal.New(int64(ints("hourly", 200, 1500)), -2)
			for j := range ints("offers", 0, 2) {
				o := sold("o"+string(rune('0'+j)), domain.OfferReserved, "0", uint32(ints("term", 1, 3)))
				o.GPUModel, o.Hourly = p.Kind, decimal.New(int64(ints("reserved", 100, 1200)), -2)
				p.Offers = append(p.Offers, o)
			}
			if rapid.Bool().Draw(rt, "quota") {
				p.Quotas = []Quota{{Provider: "aws", GPUs: uint64(ints("limit", 0, 6))}}
			}
		}
		s := q.Pools[0].Substitutes
		s[0].GPUs = decimal.New(int64(ints("ratio", 1, 3000)), -3)
		q.Pools[0].Substitutes = nil
		without, err := Compute(t.Context(), q, lp)
		if err != nil {
			rt.Fatal(err)
		}
		q.Pools[0].Substitutes = s
		with, err := Compute(t.Context(), q, lp)
		if err != nil {
			rt.Fatal(err)
		}
		if with.Total.LowerBound.GreaterThan(without.Total.Cost.Add(dec("0.0001"))) {
			rt.Fatalf("cost %s, at least %s with a substitute", without.Total.Cost, with.Total.LowerBound)
		}
		if with.Total.Cost.GreaterThan(without.Total.Cost.Mul(decimal.NewFromInt(1).Add(with.Total.Gap)).Add(dec("0.0001"))) {
			rt.Fatalf("cost %s, with a substitute %s, gap %s", without.Total.Cost, with.Total.Cost, with.Total.Gap)
		}
		if with.Total.Cost.LessThan(without.Total.Cost) {
			cheaper++
		}
	})
	if t.Logf("%d of the substitutes help", cheaper); cheaper == 0 && !testing.Short() {
		t.Error("no substitute helps")
	}
}
