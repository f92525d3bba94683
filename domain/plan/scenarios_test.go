package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/instance"
)

// under plans a pool of a question in given scenarios: machines by the hour.
func under(t testing.TB, q *Question, scenarios ...func(hour int) int64) *Plan {
	t.Helper()
	c, err := newComposer(q)
	if err != nil {
		t.Fatal(err)
	}
	c.take(q.Pools)
	in, err := c.problem(&group{pools: c.pools})
	if err != nil {
		t.Fatal(err)
	}
	cases := make([][]int, len(scenarios))
	for i, machines := range scenarios {
		cases[i] = make([]int, (c.end()-c.span[0].From)/domain.Hour)
		for h := range cases[i] {
			cases[i][h] = int(machines(h))
		}
		in.Scenarios = append(in.Scenarios, instance.Scenario{
			ID: fmt.Sprint(i), Weight: 1, Hourly: map[string][]int{c.pools[0].name(): cases[i]},
		})
	}
	c.pools[0].future.summary.Range = &DemandRange{}
	c.summarize(c.pools[0], cases)
	q.Assumptions.Demand = Forecast
	defer func() { q.Assumptions.Demand = "" }()
	x, err := c.answer(t.Context(), &group{pools: c.pools}, in, lazily(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &Plan{}
	planned := map[*candidate]*PoolPlan{}
	if err := c.present(x, p, planned); err != nil {
		t.Fatal(err)
	}
	p.Regions = []RegionPlan{{Pools: []PoolPlan{*planned[c.pools[0]]}}}
	return p
}

func always(n int64) func(int) int64 { return func(int) int64 { return n } }

// Ten or twenty machines are needed with equal probability. At 20 reserved and 30 on demand ten are
// reserved, and the other ten, needed half of the time, are not. In a year of 8,760 hours that is
// 1,752,000 or 4,380,000.
func TestTwoScenariosByHand(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	p := &q.Pools[0]
	p.Offers = slices.DeleteFunc(p.Offers, func(o domain.OfferQuoted) bool { return o.Offer == "3y" || o.Offer == "spot" })
	q.Assumptions.AnnualRate = dec("0")
	got := &under(t, q, always(10), always(20)).Regions[0].Pools[0]
	if len(got.Purchases) != 1 || got.Purchases[0].Units != 10 {
		t.Fatalf("bought is %+v", got.Purchases)
	}
	equal(t, "cost", got.Cost, "3066000")
	equal(t, "bound", got.LowerBound, "3066000")
	equal(t, "buy nothing", got.Current, "3942000") // 15 × 30 × 8760
	equal(t, "on demand", got.Amounts.OnDemand, "3942000")
	equal(t, "in the first", got.Costs[0], "1752000")
	equal(t, "in the second", got.Costs[1], "4380000")
	equal(t, "CVaR 90", *got.CVaR, "4380000")
	equal(t, "least", got.Range.Least, "1752000")
	equal(t, "most", got.Range.Most, "4380000")
	equal(t, "nominal", got.Nominal, "3066000")
	equal(t, "June", got.Calendar[0].Cash, "252000") // 720 × (10×20 + 5×30)
	equal(t, "stranded", got.Stranded, "0")
	if got.Served.Held != 87_600 || got.Served.OnDemand != 43_800 || got.Demand.UnitHours != 131_400 || got.Demand.Peak != 20 {
		t.Errorf("served %+v of %+v", got.Served, got.Demand)
	}
	if r := got.Demand.Range; r.UnitHours != (Quantiles{87_600, 87_600, 175_200}) || r.Peak != (Quantiles{10, 10, 20}) || len(r.Months) != 12 || r.Months[0] != (MonthsDemand{"2026-06", Quantiles{7200, 7200, 14_400}, Quantiles{10, 10, 20}}) {
		t.Errorf("demand ranges over %+v", r)
	}
	if w := got.Purchases[0].Worth; w.LessThan(dec("175200")) || w.GreaterThan(dec("262800")) { // between reserved and on demand
		t.Errorf("worth %s", w)
	}
	// If twenty are likelier, twenty are reserved, ten of which are stranded in the scenario of
	// ten: 10 × 20 × 8760.
	got = &under(t, q, always(20), always(10), always(20), always(20)).Regions[0].Pools[0]
	if len(got.Purchases) != 1 || got.Purchases[0].Units != 20 {
		t.Fatalf("bought is %+v", got.Purchases)
	}
	equal(t, "stranded", got.Stranded, "1752000")
	equal(t, "unused", decimal.NewFromInt(got.Served.Unused), "21900") // a quarter of 87,600
}

// Of twelve scenarios the worst tenth is the worst, and a fifth of the next.
func TestWorstTenth(t *testing.T) {
	a := Amounts{}
	for _, cost := range []string{"7", "1", "120", "2", "3", "60", "4", "5", "6", "8", "9", "10"} {
		a.Costs = append(a.Costs, dec(cost))
	}
	a.risk()
	equal(t, "CVaR 90", *a.CVaR, "110") // (120 + 0.2×60) ÷ 1.2
	equal(t, "least", a.Range.Least, "1")
	equal(t, "median", a.Range.P50, "6")
	equal(t, "most", a.Range.Most, "120")
	for _, n := range []int{1, 9, 10, 11, 20, 25} { // against its definition, by every tenth of a scenario
		a = Amounts{}
		var tenths []domain.Decimal
		for i := range n {
			cost := decimal.NewFromInt(int64(i*i%17 + i))
			a.Costs, tenths = append(a.Costs, cost), append(tenths, slices.Repeat([]domain.Decimal{cost}, 10)...)
		}
		a.risk()
		slices.SortFunc(tenths, func(x, y domain.Decimal) int { return y.Cmp(x) })
		want := decimal.Sum(decimal.Zero, tenths[:n]...).DivRound(decimal.NewFromInt(int64(n)), 9)
		equal(t, fmt.Sprintf("worst tenth of %d", n), *a.CVaR, want.String())
	}
}

// forecastQuestion is a question with forecast demand.
func forecastQuestion() *Question {
	q := question()
	q.Assumptions.Demand, q.Assumptions.Scenarios, q.Assumptions.Seed = Forecast, 5, 7
	q.Draws = func(stream uint64) func() uint64 { return rand.NewPCG(7, stream).Uint64 }
	for i := range q.Pools {
		o := &Observed{From: q.At - 30*week*domain.Hour, Milli: make([]int64, 30*week)}
		noise := rand.New(rand.NewPCG(1, uint64(i)))
		for h := range o.Milli {
			o.Milli[h] = 80_000 + int64(h%24)*2000 + noise.Int64N(16_000)
		}
		q.Pools[i].Observed = o
	}
	return q
}

// A forecast plan is a function of its question and seed, and a pool's draws do not depend on other
// planned pools.
func TestForecastPlan(t *testing.T) {
	p := compute(t, forecastQuestion())
	want, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := json.Marshal(compute(t, forecastQuestion())); string(got) != string(want) {
		t.Error("computed again it differs")
	}
	if len(p.Regions) != 2 || len(p.Total.Costs) != 5 || p.Methods[len(p.Methods)-1] != forecast.Method {
		t.Fatalf("left out %+v; methods %v, costs %v", p.Excluded, p.Methods, p.Total.Costs)
	}
	for i, cost := range p.Total.Costs {
		equal(t, "sum", cost, p.Regions[0].Costs[i].Add(p.Regions[1].Costs[i]).String())
	}
	if r := p.Regions[0].Pools[0].Demand.Range; r.UnitHours.P10 >= r.UnitHours.P90 || r.Candidate == "" {
		t.Errorf("demand ranges over %+v", r)
	}
	one := forecastQuestion()
	one.Pools = one.Pools[1:]
	if alone := compute(t, one).Regions[0]; !equalJSON(t, alone.Pools[0].Costs, p.Regions[0].Pools[0].Costs) {
		t.Errorf("alone %v, with others %v", alone.Pools[0].Costs, p.Regions[0].Pools[0].Costs)
	}
	other := forecastQuestion()
	other.Draws = func(stream uint64) func() uint64 { return rand.NewPCG(8, stream).Uint64 }
	if equalJSON(t, compute(t, other).Total.Costs, p.Total.Costs) {
		t.Error("another seed draws the same")
	}
	other.Pools[0].Observed = nil
	other.Pools[1].Observed.Milli = other.Pools[1].Observed.Milli[:week]
	if left := compute(t, other).Excluded; len(left) != 2 {
		t.Errorf("left out %+v", left)
	}
}

// Two pools with identical demand cost twice what one does in every scenario, so their range and
// worst tenth are twice those of one. Independent draws would make them narrower.
func TestPoolsMoveTogether(t *testing.T) {
	q := forecastQuestion()
	q.Pools[1] = q.Pools[0]
	q.Pools[1].Region = "other"
	q.Pools[1].Offers = slices.Clone(q.Pools[1].Offers)
	for i := range q.Pools[1].Offers {
		q.Pools[1].Offers[i].Market.Region = "other"
	}
	p := compute(t, q)
	two := decimal.NewFromInt(2)
	for i := range p.Regions {
		r := &p.Regions[i]
		equal(t, r.Region+", least", p.Total.Range.Least, r.Range.Least.Mul(two).String())
		equal(t, r.Region+", most", p.Total.Range.Most, r.Range.Most.Mul(two).String())
		equal(t, r.Region+", CVaR 90", *p.Total.CVaR, r.CVaR.Mul(two).String())
		if !r.Range.Least.LessThan(r.Range.Most) {
			t.Errorf("%s ranges over %+v", r.Region, r.Range)
		}
	}
}

// An instance has the scenarios that the plan serves.
func TestForecastInstance(t *testing.T) {
	q := forecastQuestion()
	in, err := q.Instance()
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Validate(); err != nil {
		t.Fatal(err)
	}
	p := compute(t, q)
	if len(in.Scenarios) != 5 {
		t.Fatalf("%d scenarios", len(in.Scenarios))
	}
	for _, r := range p.Regions {
		sum := int64(0)
		for i := range in.Scenarios {
			for _, u := range in.Scenarios[i].Hourly[r.Region+" "+r.Pools[0].Kind] {
				sum += int64(u)
			}
		}
		if d := &r.Pools[0].Demand; mean(sum, 5) != d.UnitHours {
			t.Errorf("%s: %d unit-hours, want %d", r.Region, mean(sum, 5), d.UnitHours)
		}
	}
}

func TestDemandAssumptions(t *testing.T) {
	for want, change := range map[string]func(*Assumptions){
		"scenarios, their seed and lives of machine types are for demand that is forecast": func(a *Assumptions) { a.Demand, a.Seed = "", 0 },
		`demand "guess", want "forecast", or none for demand that repeats`:                 func(a *Assumptions) { a.Demand = "guess" },
		"0 scenarios of demand, want 1 to 200":                                             func(a *Assumptions) { a.Scenarios = 0 },
		"201 scenarios of demand, want 1 to 200":                                           func(a *Assumptions) { a.Scenarios = 201 },
	} {
		q := forecastQuestion()
		change(&q.Assumptions)
		if _, err := Compute(t.Context(), q, nil); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A salvage that follows from the forecast is all of the cost where demand goes on, less where machine
// types are replaced, and less the longer the terms are. The plan is that of the share that it states.
func TestSalvageFromForecast(t *testing.T) {
	var shares []domain.Decimal
	for _, x := range []struct{ life, term int }{{0, 36}, {24, 12}, {24, 36}} {
		q := forecastQuestion()
		q.Assumptions.Life, q.Assumptions.SalvageFrom = x.life, Forecast
		for i := range q.Pools {
			for j := range q.Pools[i].Offers {
				if o := &q.Pools[i].Offers[j]; o.TermMonths > 0 {
					o.TermMonths = uint32(x.term)
				}
			}
		}
		p := compute(t, q)
		shares = append(shares, p.Assumptions.Salvage)
		in, err := q.Instance()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "of the problem", in.Salvage, p.Assumptions.Salvage.String())
		q.Assumptions.SalvageFrom, q.Assumptions.Salvage = "", p.Assumptions.Salvage
		fixed := compute(t, q)
		equal(t, "cost", p.Total.Cost, fixed.Total.Cost.String())
		equal(t, "bound", p.Total.LowerBound, fixed.Total.LowerBound.String())
	}
	if one := dec("1"); !shares[0].Equal(one) || !shares[1].LessThan(one) || !shares[2].LessThan(shares[1]) || !shares[2].IsPositive() {
		t.Errorf("credited are %s", shares)
	}
	q := forecastQuestion()
	q.Assumptions.SalvageFrom = "guess"
	if _, err := Compute(t.Context(), q, nil); err == nil {
		t.Error("a guess is taken")
	}
}
