package backtest

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/procurement"
	"quartermaster/simulations/public"
)

func at(text string) domain.Instant {
	t, err := time.Parse("2006-01-02", text)
	if err != nil {
		panic(err)
	}
	return domain.InstantOf(t)
}

func draws(stream uint64) func() uint64 { return rand.NewPCG(1, stream).Uint64 }

// shavedice makes pools of demand.
func shavedice(all []public.Series) []Pool {
	var pools []Pool
	for _, s := range all {
		pools = append(pools, Pool{Region: s.Region, Kind: s.Kind, Family: s.Kind == "all", From: public.ShavediceFrom, Milli: s.Milli(), Markets: generated(30)})
	}
	return pools
}

func generated(months int) []Market { return slices.Repeat([]Market{Generated()}, months) }

// share is a number of tenths.
func share(tenths int64) *domain.Decimal {
	d := decimal.New(tenths, -1)
	return &d
}

func question(from, to string, pools []Pool) *Question {
	return &Question{
		From: at(from), To: at(to), Pools: pools, Currency: "USD", Horizon: 36, Scenarios: 16,
		Salvage: decimal.NewFromInt(1), PlanSalvage: share(5), Shortage: decimal.NewFromInt(10), Draws: draws, Workers: 2,
	}
}

// The prices are generated, one list for all months.
func TestShavedice(t *testing.T) {
	long.Only(t, "two regions by machine type over 30 months")
	all := public.Shavedice(t)
	for name, pools := range map[string][]Pool{"by machine type": shavedice(all), "types together": shavedice(public.Together(all))} {
		r := run(t, question("2021-08-01", "2024-02-01", pools))
		for _, g := range append([]Region{r.All}, r.Regions...) {
			t.Logf("%s, region %q (CPU machines, generated prices): foresight %s", name, g.Region, g.Foresight.StringFixed(0))
			for _, c := range g.Alternatives {
				t.Logf("  %-13s %s, regret %s (%s to %s)", c.Name, c.Cost.StringFixed(0), c.Regret, c.Low, c.High)
			}
			if plan := alternative(&g, "plan"); plan.Cost.GreaterThan(alternative(&g, "on_demand").Cost) || plan.Cost.GreaterThan(alternative(&g, "peak_60d").Cost) {
				t.Errorf("%s, region %q: the plan costs more than all on demand, or than the peak reserved", name, g.Region)
			}
		}
	}
}

func run(t testing.TB, q *Question) *Result {
	t.Helper()
	r, err := Run(context.Background(), q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func alternative(g *Region, name string) *Alternative {
	i := slices.IndexFunc(g.Alternatives, func(c Alternative) bool { return c.Name == name })
	return &g.Alternatives[i]
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// flat is a pool with the same demand in every hour from a time on.
func flat(region string, from string, days int, milli int64) Pool {
	p := Pool{Region: region, Kind: "a", From: at(from), Milli: make([]int64, days*24)}
	for h := range p.Milli {
		p.Milli[h] = milli
	}
	return p
}

// Ten machines in every hour: the plan buys ten for three years on the first day, as perfect
// foresight does, and all on-demand costs 1/0.445 as much.
func TestSteadyDemand(t *testing.T) {
	p := flat("r", "2023-01-01", 2*365, 9_500) // 9.5 machines round up to ten
	p.Markets = generated(12)
	q := question("2024-01-01", "2025-01-01", []Pool{p})
	p.Milli = append(p.Milli, slices.Repeat([]int64{9_500}, 24)...) // a leap year
	q.Pools[0].Milli = p.Milli
	r := run(t, q)
	hours := decimal.NewFromInt(366 * 24 * 10)
	if want := hours.Mul(decimal.RequireFromString("0.445")); !r.All.Foresight.Equal(want) {
		t.Errorf("foresight costs %s, want %s", r.All.Foresight, want)
	}
	if c := alternative(&r.All, "plan"); !c.Cost.Equal(r.All.Foresight) || !c.Regret.IsZero() || c.High != nil {
		t.Errorf("the plan costs %s, regret %s", c.Cost, c.Regret)
	}
	if c := alternative(&r.All, "on_demand"); !c.Cost.Equal(hours) || c.Regret.String() != "1.2472" {
		t.Errorf("on demand costs %s, regret %s", c.Cost, c.Regret)
	}
	if c := alternative(&r.All, "buy_nothing"); !c.Cost.Equal(hours) {
		t.Errorf("to buy nothing costs %s", c.Cost)
	}
	want := []Bought{{"generated/3y", "2024-01", 10}}
	if got := r.Pools[0].Bought; !slices.Equal(got, want) {
		t.Errorf("the plan buys %v, want %v", got, want)
	}
	if r.Pools[0].Synthetic != 12 || !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "in 12 of 12 months") }) {
		t.Errorf("synthetic in %d months, notes %v", r.Pools[0].Synthetic, r.Notes)
	}
}

// wild is a pool with random demand and prices.
func wild(d *rand.Rand, region string, from, testFrom string, days, months int) Pool {
	p := Pool{Region: region, Kind: "a", From: at(from), Milli: make([]int64, days*24), SpotPermille: d.IntN(400)}
	level := int64(d.IntN(20_000))
	for h := range p.Milli {
		if d.IntN(400) == 0 {
			level = int64(d.IntN(20_000))
		}
		p.Milli[h] = max(0, level+int64(d.IntN(6000))-3000)
		if d.IntN(50) == 0 {
			p.Milli[h] = -1
		}
	}
	price := func(low, high int) domain.Decimal { return decimal.New(int64(low+d.IntN(high-low)), -3) }
	for range months {
		m := Market{OnDemand: Price{Hourly: price(700, 1500)}, Quota: d.IntN(30) - 1}
		if d.IntN(2) == 0 {
			m.Spot = &Price{Hourly: price(200, 600)}
		}
		if d.IntN(4) > 0 {
			m.Terms = append(m.Terms, Term{ID: "year", Months: 12, Hourly: price(400, 900), Upfront: price(1, 900_000)})
		}
		if d.IntN(4) > 0 {
			m.Terms = append(m.Terms, Term{ID: "block", Months: 1, Lead: 1, Guaranteed: true, Hourly: price(500, 1100), Max: d.IntN(9)})
		}
		p.Markets = append(p.Markets, m)
	}
	if d.IntN(2) == 0 {
		p.Held = []Held{{Units: d.IntN(6), Guaranteed: d.IntN(2) == 0, Span: domain.Interval{From: at(testFrom) - domain.Day, To: at(testFrom) + 60*domain.Day}}}
	}
	return p
}

func wildQuestion(seed uint64, pools int) *Question {
	d := rand.New(rand.NewPCG(seed, 2))
	q := question("2024-03-01", "2024-07-01", nil)
	q.Horizon, q.Scenarios = 6, 3
	q.Salvage, q.PlanSalvage = decimal.New(int64(d.IntN(11)), -1), share(int64(d.IntN(11)))
	for i := range pools {
		q.Pools = append(q.Pools, wild(d, string(rune('a'+i%2))+string(rune('a'+i)), "2024-01-01", "2024-03-01", 31+29+31+30+31+30, 4))
	}
	return q
}

// Any purchases from what was for sale cost at least what perfect foresight does, under every
// terminal rule; and Run refuses an alternative that seems to cost less.
func TestForesightIsLeast(t *testing.T) {
	for seed := range uint64(long.Count(4, 60)) {
		q := wildQuestion(seed, 1)
		months, err := q.check()
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, q)
		for _, c := range r.All.Alternatives {
			if c.Cost.LessThan(r.All.Foresight) || c.Regret.IsNegative() {
				t.Errorf("seed %d: alternative %s costs %s, foresight %s", seed, c.Name, c.Cost, r.All.Foresight)
			}
		}
		tested, err := newTest(q, 0, months)
		if err != nil {
			t.Fatal(err)
		}
		d := rand.New(rand.NewPCG(seed, 3))
		past := tested.books[q.main()].past
		for range 200 {
			var bought []procurement.Purchase
			for o := range past.Offers {
				for _, s := range past.Offers[o].Starts {
					most := 12
					if s.Max != procurement.Unlimited {
						most = min(most, s.Max)
					}
					if n := d.IntN(most + 1); n > 0 && d.IntN(2) == 0 {
						bought = append(bought, procurement.Purchase{Offer: o, Epoch: s.Epoch, Units: n})
					}
				}
			}
			ev, err := procurement.Evaluate(past, bought)
			if err != nil {
				t.Fatal(err)
			}
			if money(ev.Cost).LessThan(r.All.Foresight) {
				t.Fatalf("seed %d: %v costs %s, foresight %s", seed, bought, money(ev.Cost), r.All.Foresight)
			}
		}
	}
}

// Equal questions give equal bytes for any number of workers.
func TestSameBytes(t *testing.T) {
	q := wildQuestion(5, 2)
	q.Workers = 1
	one := text(t, run(t, q))
	q.Workers = 4
	if four := text(t, run(t, q)); four != one {
		t.Error("four workers come to something else than one")
	}
	q.Draws = func(stream uint64) func() uint64 { return rand.NewPCG(2, stream).Uint64 }
	if other := text(t, run(t, q)); other == one {
		t.Error("other draws come to the same")
	}
}

// What happens later changes no earlier decision.
func TestDecidesWithoutHindsight(t *testing.T) {
	q := wildQuestion(7, 1)
	before := run(t, q)
	cut := at("2024-05-01")
	p := &q.Pools[0]
	for h := int((cut - p.From) / domain.Hour); h < len(p.Milli); h++ {
		p.Milli[h] = 90_000
	}
	p.Markets[3].OnDemand.Hourly = decimal.NewFromInt(50)
	after := run(t, q)
	early := func(r *Result) []Bought {
		return slices.DeleteFunc(slices.Clone(r.Pools[0].Bought), func(b Bought) bool { return b.Month > "2024-05" })
	}
	// What begins in May without lead time was decided on the first of it, and what begins a month
	// later may have been decided by then.
	if a, b := text(t, early(before)), text(t, early(after)); a != b {
		t.Errorf("before %s\nafter  %s", a, b)
	}
	if before.All.Foresight.Equal(after.All.Foresight) {
		t.Error("the later demand costs nothing")
	}
}

// Data that became known late was not known earlier: the plan buys nothing until it is.
func TestKnownLate(t *testing.T) {
	p := flat("r", "2023-09-01", 30+31+30+31+31+29+31, 5_000)
	p.Markets = generated(2)
	p.Known = [][]int64{{}, nil}
	q := question("2024-02-01", "2024-04-01", []Pool{p})
	r := run(t, q)
	if got := r.Pools[0]; got.Blind != 1 || got.Bought[0] != (Bought{"generated/3y", "2024-03", 5}) || got.Why == "" {
		t.Errorf("%+v", got)
	}
}

// Hours that were not observed cost nothing, and are counted.
func TestMissingHours(t *testing.T) {
	p := flat("r", "2024-01-01", 31+29+31, 1_000)
	for h := 60*24 + 5; h < 60*24+15; h++ {
		p.Milli[h] = -1
	}
	p.Markets = generated(1)
	r := run(t, question("2024-03-01", "2024-04-01", []Pool{p}))
	if c := alternative(&r.All, "on_demand"); !c.Cost.Equal(decimal.NewFromInt(31*24-10)) || r.Pools[0].Missing != 10 {
		t.Errorf("on demand costs %s, %d hours are missing", c.Cost, r.Pools[0].Missing)
	}
}

func TestCancel(t *testing.T) {
	q := wildQuestion(9, 4)
	ctx, stop := context.WithCancel(context.Background())
	q.Workers = 1
	done := 0
	q.Progress = func(n int) {
		done = n
		if n == 3 {
			stop()
		}
	}
	if _, err := Run(ctx, q); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped with %v", err)
	}
	if done != 3 {
		t.Errorf("%d of %d decisions were made after it was stopped at the third", done, q.Decisions())
	}
}

func TestRefuses(t *testing.T) {
	good := func() *Question {
		p := flat("r", "2024-01-01", 91, 1_000)
		p.Markets = generated(1)
		return question("2024-03-01", "2024-04-01", []Pool{p})
	}
	for want, change := range map[string]func(q *Question){
		"is not the start of a month":       func(q *Question) { q.From += domain.Day },
		"there is no month between":         func(q *Question) { q.To = q.From },
		"more than 120 months":              func(q *Question) { q.From = at("2001-01-01") },
		"plans that look 0 months ahead":    func(q *Question) { q.Horizon = 0 },
		"0 scenarios":                       func(q *Question) { q.Scenarios = 0 },
		"salvage of 2, and":                 func(q *Question) { q.Salvage = decimal.NewFromInt(2) },
		"shortage at 0 times":               func(q *Question) { q.Shortage = decimal.Zero },
		"there is no pool":                  func(q *Question) { q.Pools = nil },
		"is given twice":                    func(q *Question) { q.Pools = append(q.Pools, q.Pools[0]) },
		"0 months of prices":                func(q *Question) { q.Pools[0].Markets = nil },
		"demand of -7 thousandths":          func(q *Question) { q.Pools[0].Milli[3] = -7 },
		"an amount of -1 cannot be planned": func(q *Question) { q.Pools[0].Markets[0].OnDemand.Hourly = decimal.NewFromInt(-1) },
		"that is not an offer":              func(q *Question) { q.Pools[0].Markets[0].Terms[0].Months = 0 },
	} {
		q := good()
		change(q)
		if _, err := Run(context.Background(), q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Of a price list the valid prices count, and later ones only if there was no on-demand price; the
// cheapest are taken, and spot pays for interruptions.
func TestPriced(t *testing.T) {
	offer := func(id string, kind domain.OfferKind, hourly, from string) domain.OfferQuoted {
		return domain.OfferQuoted{
			Market: domain.Market{Provider: "p", Region: "r"}, Offer: id, SKU: "a", Kind: kind, Currency: "USD",
			Hourly: decimal.RequireFromString(hourly), ValidFrom: at(from), TermMonths: 12,
		}
	}
	p := flat("r", "2024-01-01", 121, 1_000)
	months, err := Months(at("2024-02-01"), at("2024-05-01"))
	if err != nil {
		t.Fatal(err)
	}
	pools, left, err := Priced([]Pool{p, flat("elsewhere", "2024-01-01", 121, 1_000)}, months, []domain.OfferQuoted{
		offer("od", domain.OfferOnDemand, "2", "2024-03-01"), offer("od", domain.OfferOnDemand, "1.5", "2024-04-01"),
		offer("dear", domain.OfferOnDemand, "9", "2024-01-01"), offer("spot", domain.OfferSpot, "0.95", "2024-01-01"),
		offer("year", domain.OfferReserved, "1", "2024-04-01"),
	}, "USD", decimal.New(5, -2))
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Region != "elsewhere" || !strings.Contains(left[0].Reason, "no on-demand price is known") {
		t.Errorf("left out: %+v", left)
	}
	for m, want := range []struct {
		hourly string
		terms  int
	}{{"9", 0}, {"2", 0}, {"1.5", 1}} {
		got := pools[0].Markets[m]
		if got.OnDemand.Hourly.String() != want.hourly || got.OnDemand.Synthetic || len(got.Terms) != want.terms || got.Spot.Hourly.String() != "1" {
			t.Errorf("month %d: %+v", m, got)
		}
	}
	pools, _, err = Priced([]Pool{p}, months, []domain.OfferQuoted{
		offer("od", domain.OfferOnDemand, "2", "2024-04-01"), offer("year", domain.OfferReserved, "1", "2024-04-01"),
	}, "USD", decimal.Zero)
	if err != nil {
		t.Fatal(err)
	}
	for m, synthetic := range []bool{true, true, false} {
		if got := pools[0].Markets[m]; got.OnDemand.Synthetic != synthetic || got.Terms[0].Synthetic != synthetic {
			t.Errorf("month %d: %+v", m, got)
		}
	}
	if _, left, _ := Priced([]Pool{p}, months, []domain.OfferQuoted{offer("od", domain.OfferOnDemand, "2", "2024-03-01")}, "EUR", decimal.Zero); len(left) != 1 || !strings.Contains(left[0].Reason, "no on-demand price in EUR, only in others such as USD") {
		t.Errorf("left out: %+v", left)
	}
}

// Under every terminal rule, with the end known or not, foresight is least and regrets lie in their
// intervals. Purchases without a known end are the same under all rules, so they cost less the more
// of the rest is not charged.
func TestTerminalRules(t *testing.T) {
	for seed := range uint64(3) {
		q := wildQuestion(seed+20, 4)
		q.Salvage = decimal.New(3, -1)
		for i := range q.Pools {
			q.Pools[i].Region, q.Pools[i].Kind = []string{"a", "b"}[i%2], []string{"x", "y"}[i/2]
		}
		r := run(t, q)
		for _, g := range append([]Region{r.All}, r.Regions...) {
			// By hand: the rules 0, 0.3, 0.5 and 1 with the end unknown, and 0 with it known.
			for k, c := range g.Robust {
				sum := decimal.Zero
				for _, x := range g.Terminal {
					if !x.EndKnown || x.Salvage.IsZero() {
						sum = sum.Add(x.Alternatives[k].Regret)
						if x.Alternatives[k].Regret.Sub(c.Excess).GreaterThan(x.Alternatives[0].Regret) {
							t.Errorf("%s is %s above the plan, and %s the most above the least", c.Name, x.Alternatives[k].Regret.Sub(x.Alternatives[0].Regret), c.Excess)
						}
					}
				}
				if !c.Mean.Equal(sum.DivRound(decimal.NewFromInt(5), 4)) {
					t.Errorf("%s has a mean regret of %s, want %s/5", c.Name, c.Mean, sum)
				}
			}
			good := slices.ContainsFunc(g.Robust[1:], func(c Robust) bool {
				return c.Mean.Sub(g.Robust[0].Mean).LessThanOrEqual(decimal.New(1, -2))
			})
			if note := g.asGood(); good != (note != "") {
				t.Errorf("note %q of %+v", note, g.Robust)
			}
			var rules []string
			before := map[string]domain.Decimal{}
			for _, x := range g.Terminal {
				if !x.EndKnown {
					rules = append(rules, x.Salvage.String())
				}
				least := x.Alternatives[0].Cost
				for _, c := range x.Alternatives {
					least = decimal.Min(least, c.Cost)
					if c.Cost.LessThan(x.Foresight) || c.Low == nil || c.Low.IsNegative() || c.Low.GreaterThan(*c.High) {
						t.Errorf("seed %d, region %q, salvage %s: %+v, foresight %s", seed, g.Region, x.Salvage, c, x.Foresight)
					}
					if x.EndKnown {
						continue
					}
					if dear, ok := before[c.Name]; ok && c.Cost.GreaterThan(dear) {
						t.Errorf("seed %d, region %q: with salvage %s alternative %s costs %s, with less %s", seed, g.Region, x.Salvage, c.Name, c.Cost, dear)
					}
					before[c.Name] = c.Cost
				}
				for _, name := range x.Least {
					if i := slices.IndexFunc(x.Alternatives, func(c Alternative) bool { return c.Name == name }); !x.Alternatives[i].Cost.Equal(least) {
						t.Errorf("seed %d: %s is not the least", seed, name)
					}
				}
			}
			if text(t, rules) != `["0","0.3","0.5","1"]` {
				t.Errorf("rules %v", rules)
			}
			for _, x := range g.Terminal {
				if x.Salvage.Equal(q.Salvage) && !x.EndKnown && text(t, x.Alternatives) != text(t, g.Alternatives) {
					t.Error("the question's own rule is shown differently")
				}
			}
		}
	}
}

// If they know that the test ends after a year without salvage, the plan and the rules buy for a
// year; otherwise they buy for three, and are charged for all of it.
func TestEndKnown(t *testing.T) {
	p := flat("r", "2022-01-01", 3*365, 10_000)
	p.Markets = generated(12)
	q := question("2023-01-01", "2024-01-01", []Pool{p})
	q.PlanSalvage = share(10)
	r := run(t, q)
	year := decimal.NewFromInt(365 * 24 * 10)
	for _, x := range r.All.Terminal {
		if !x.Salvage.IsZero() {
			continue
		}
		want := year.Mul(decimal.RequireFromString("0.644"))
		if !x.Foresight.Equal(want) {
			t.Errorf("foresight costs %s, want %s", x.Foresight, want)
		}
		if !x.EndKnown { // 2023 to 2025, of which 2024 is a leap year
			want = decimal.NewFromInt((365 + 366 + 365) * 24 * 10).Mul(decimal.RequireFromString("0.445"))
		}
		for _, name := range []string{"plan", "lookback_30d"} {
			i := slices.IndexFunc(x.Alternatives, func(c Alternative) bool { return c.Name == name })
			if !x.Alternatives[i].Cost.Equal(want) {
				t.Errorf("end known: %t: %s costs %s, want %s", x.EndKnown, name, x.Alternatives[i].Cost, want)
			}
		}
	}
}

// Without a known end a rule compares the hourly price of a whole term, whatever plans assume
// beyond their horizon: a term of three years in plans of one is not charged in full against the
// saving of one year.
func TestRulesWeighWholeTerms(t *testing.T) {
	p := flat("r", "2022-01-01", 3*365, 10_000)
	p.Markets = generated(12)
	q := question("2023-01-01", "2024-01-01", []Pool{p})
	q.Horizon, q.PlanSalvage = 12, share(0)
	r := run(t, q)
	if c := alternative(&r.All, "lookback_30d"); !c.Cost.Equal(r.All.Foresight) {
		t.Errorf("it costs %s, perfect foresight %s", c.Cost, r.All.Foresight)
	}
	// The plan knows that nothing is left after a year, and buys for one.
	if got, want := r.Pools[0].Bought, (Bought{"generated/1y", "2023-01", 10}); got[0] != want {
		t.Errorf("the plan buys %v first, want %v", got, want)
	}
}
