package whatif

import (
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// plain is an instance of one pool with a given demand in each hour of two days.
func plain(hourly func(h int) int, edit func(*instance.Instance)) *instance.Instance {
	in := &instance.Instance{
		Format: instance.Format, Name: "plain", Currency: "USD", From: at("2027-03-01"), Epoch: instance.Days, Epochs: 2, AnnualRate: dec("0.08"),
		Regions: []instance.Region{{ID: "r"}},
		Pools:   []instance.Pool{{ID: "p", Region: "r", Class: "c", Unit: "vm", GPUs: 8, OnDemand: &instance.Price{Hourly: dec("4")}}},
		Demands: []instance.Demand{{ID: "d", Pool: "p", Shortage: dec("40")}},
	}
	for h := range 48 {
		in.Demands[0].Hourly = append(in.Demands[0].Hourly, hourly(h))
	}
	if edit != nil {
		edit(in)
	}
	return in
}

// ofInstance answers a scenario of an instance.
func ofInstance(t *testing.T, in *instance.Instance, changes []Change, alternatives ...Alternative) *Result {
	t.Helper()
	s := scenario(changes, alternatives...)
	s.Base.Instance = "in.json"
	r, err := Run(t.Context(), &Input{Scenario: s, Instance: in, Solve: solve, EndOfHorizon: endOfHorizon})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Failing machines are counted once, whether the demand has its own buffer or a change states the
// rate, and twice the demand has the spare units of twice the demand.
func TestSparesAreCountedOnceAndGrow(t *testing.T) {
	buffer := &instance.Buffer{ServiceLevel: dec("0.99"), FailuresPerGPUHour: dec("0.0005"), RepairHours: dec("8"), GPUsPerUnit: 8}
	hourly := func(h int) int { return 20 + h%7 }
	with := func(times int) *instance.Instance {
		return plain(func(h int) int { return times * hourly(h) }, func(in *instance.Instance) { in.Demands[0].Buffer = buffer })
	}
	fails := Change{Kind: FailureRate, PerGPUHour: FixedAt(buffer.FailuresPerGPUHour), RepairHours: FixedAt(buffer.RepairHours)}
	cost := func(in *instance.Instance, changes ...Change) decimal.Decimal {
		r := ofInstance(t, in, changes, Alternative{Name: "best"})
		if a := r.Alternatives[0]; !a.Solved.Equal(a.Expected) {
			t.Errorf("with nothing uncertain %s is solved and %s drawn", a.Solved, a.Expected)
		}
		return r.Alternatives[0].Expected
	}
	evaluated := func(in *instance.Instance) decimal.Decimal {
		a, err := instance.Evaluate(t.Context(), in, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.Cost.Round(2)
	}
	want := evaluated(with(1))
	if none := evaluated(plain(hourly, nil)); !want.GreaterThan(none) {
		t.Fatalf("with spares it costs %s, without %s: the case is too easy", want, none)
	}
	for name, got := range map[string]decimal.Decimal{
		"its own buffer": cost(with(1)), "and the same rate": cost(with(1), fails), "the rate alone": cost(plain(hourly, nil), fails),
	} {
		if !got.Equal(want) {
			t.Errorf("%s: costs %s, want %s", name, got, want)
		}
	}
	twice := Change{Kind: DemandGrowth, Factor: number(Fixed, "2")}
	for name, got := range map[string]decimal.Decimal{"a buffer": cost(with(1), twice), "a rate": cost(plain(hourly, nil), fails, twice)} {
		if want := evaluated(with(2)); !got.Equal(want) {
			t.Errorf("%s under twice the demand: costs %s, want %s", name, got, want)
		}
	}
	// Spare units of twice the demand are fewer than twice those of the demand: multiplying the
	// spares would show here.
	if double := want.Mul(dec("2")); !evaluated(with(2)).LessThan(double) {
		t.Errorf("twice the demand costs %s, twice the cost is %s: the case is too easy", evaluated(with(2)), double)
	}
	// A machine that is nearly always down counts as down half of the time.
	worst := Change{Kind: FailureRate, PerGPUHour: number(Fixed, "0.5"), RepairHours: number(Fixed, "8760")}
	if most := cost(plain(hourly, nil), worst); !most.GreaterThan(want.Mul(dec("1.5"))) {
		t.Errorf("machines that are down half of the time cost %s, those that seldom are %s", most, want)
	}
	// If the rate is uncertain, scenarios include its spare units.
	fails.RepairHours = number(Lognormal, "8", "60")
	if a := ofInstance(t, plain(hourly, nil), []Change{fails}, Alternative{Name: "best"}).Alternatives[0]; len(a.Set) < 2 || len(a.Unmodelled) > 0 || a.TrialsAboveShare.Abs().GreaterThan(dec("0.01")) {
		t.Errorf("%d scenarios, %v beside the gap, and trials are %s above", len(a.Set), a.Unmodelled, a.TrialsAboveShare)
	}
}

// What the solved problem does not vary is listed next to its gap, by name and with its effect; if
// nothing is uncertain the effect is zero.
func TestBesideTheGap(t *testing.T) {
	view := house(t)
	growth := east(DemandGrowth, func(c *Change) { c.Monthly = number(Fixed, "0.02") })
	quota := east(QuotaChange, func(c *Change) {
		c.Provider, c.LimitGPUs, c.Name = "aws", number(Triangular, "0", "40", "400"), "quota"
	})
	outage := east(ProviderOutage, func(c *Change) {
		c.Model, c.PerYear, c.Duration, c.Name = "", number(Fixed, "4"), number(Fixed, "12"), "outage"
	})
	euros := east(NewOffer, func(c *Change) {
		c.Provider, c.Offer, c.OfferKind, c.Term, c.Hourly, c.Guaranteed, c.Currency, c.Name = "neo", "euros", "reserved", 3, number(Triangular, "8", "9", "14"), true, "EUR", "price"
	})
	rate := Change{Kind: FXChange, Base: "EUR", Quote: "USD", Rate: number(Lognormal, "1.1", "1.4"), Name: "rate"}
	late := east(LeadTime, func(c *Change) { c.Hours, c.Name = number(Lognormal, "24", "900"), "late" })
	for name, c := range map[string]struct {
		changes    []Change
		unmodelled []Unmodelled
		zero       bool // the trials cost what was solved
	}{
		"nothing uncertain": {[]Change{growth}, nil, true},
		"a quota":           {[]Change{growth, quota}, []Unmodelled{{"quota", "at its p25"}}, false},
		"an outage":         {[]Change{growth, outage}, []Unmodelled{{"outage", Excluded}}, false},
		"late":              {[]Change{late}, []Unmodelled{{"late", NeverLate}}, false},
		// At these prices serving does not depend on purchases, so means suffice, including a price
		// and a rate that multiply.
		"prices": {[]Change{euros, rate}, []Unmodelled{{"price", AtItsMean}, {"rate", AtItsMean}}, true},
	} {
		a := answer(t, view, scenario(c.changes)).Alternatives[0]
		if !slices.Equal(a.Unmodelled, c.unmodelled) && len(a.Unmodelled)+len(c.unmodelled) > 0 {
			t.Errorf("%s: unmodelled drivers are %v, want %v", name, a.Unmodelled, c.unmodelled)
		}
		if !a.TrialsAbove.Equal(a.Expected.Sub(a.Solved)) || !a.TrialsAboveShare.Equal(a.TrialsAbove.DivRound(a.Solved, 6)) {
			t.Errorf("%s: %s (%s) above, of %s and %s", name, a.TrialsAbove, a.TrialsAboveShare, a.Expected, a.Solved)
		}
		if near := a.TrialsAboveShare.Abs().LessThan(dec("0.0001")); near != c.zero {
			t.Errorf("%s: the trials cost %s (%s) more than was solved", name, a.TrialsAbove, a.TrialsAboveShare)
		}
		if name == "prices" && !slices.ContainsFunc(a.Purchases, func(p Purchase) bool { return strings.Contains(p.Offer, "euros") }) {
			t.Error("nothing is bought in euros: the case is too easy")
		}
	}
	// Nothing is solved if nothing is bought, so there is no gap.
	if a := answer(t, view, scenario([]Change{quota}, Alternative{Name: "x", Buy: BuyNothing})).Alternatives[0]; len(a.Unmodelled) > 0 || !a.TrialsAbove.IsZero() {
		t.Errorf("nothing was solved: %+v", a.Unmodelled)
	}
}

// A machine that is bought breaks even as computed by hand, among the offers of the alternative
// that has it.
func TestBreakEvenByHand(t *testing.T) {
	view := house(t)
	own := east(NewOffer, func(c *Change) {
		c.Provider, c.Offer, c.OfferKind, c.Term, c.Upfront, c.PowerKW = "own", "machine", "owned", 24, number(Triangular, "90000", "100000", "110000"), number(Fixed, "10")
		c.PUE, c.TariffKWh, c.SpaceMonth, c.NetworkMonth, c.SupportMonth, c.Salvage = number(Fixed, "1.2"), number(Fixed, "0.1"), number(Fixed, "300"), number(Fixed, "100"), number(Fixed, "600"), number(Fixed, "0.25")
	})
	cut := east(PriceChange, func(c *Change) { c.Factor, c.OfferKind, c.When = number(Fixed, "0.75"), "on_demand", at("2026-09-01") })
	find := func(r *Result, offer string) *BreakEven {
		i := slices.IndexFunc(r.BreakEven, func(b BreakEven) bool { return strings.Contains(b.Offer, offer) && strings.HasPrefix(b.Pool, "east") })
		if i < 0 {
			t.Fatalf("no break-even of %q: %+v", offer, r.BreakEven)
		}
		return &r.BreakEven[i]
	}
	equal := func(what string, got, want decimal.Decimal) {
		t.Helper()
		if got.Sub(want).Abs().GreaterThan(dec("0.000001")) {
			t.Errorf("%s is %s, by hand %s", what, got, want)
		}
	}
	// Without discount. 24 months from 1 June 2026 are 731 days, 17,544 hours: capital
	// 100,000 less 25,000 at the end, power 10 kW × 1.2 × 0.10, and 1,000 a month.
	s := scenario(nil, Alternative{Name: "rented"}, Alternative{Name: "or owned", Changes: []Change{own}})
	s.Assumptions.AnnualRate = decimal.Zero
	r := answer(t, view, s)
	b := find(r, "machine")
	equal("an hour", b.Hourly, dec("75000").Add(dec("1.2").Mul(dec("17544"))).Add(dec("24000")).DivRound(dec("17544"), 6))
	equal("on demand", b.OnDemand, dec("40"))
	equal("break-even", b.Utilization, b.Hourly.DivRound(dec("40"), 6))
	if b.Kind != domain.OfferOwned || !slices.Equal(b.Alternatives, []string{"or owned"}) || b.Term != 24 {
		t.Errorf("%+v", b)
	}
	if year := find(r, "year"); !slices.Equal(year.Alternatives, []string{"rented", "or owned"}) || !year.Hourly.Equal(dec("20")) || !year.Utilization.Equal(dec("0.5")) {
		t.Errorf("%+v", year)
	}
	// On-demand is a quarter cheaper after three of the 24 months: 2,208 hours at 40.
	s = scenario([]Change{cut}, Alternative{Name: "or owned", Changes: []Change{own}})
	s.Assumptions.AnnualRate = decimal.Zero
	b = find(answer(t, view, s), "machine")
	equal("on demand, cheaper later", b.OnDemand, dec("40").Mul(dec("2208")).Add(dec("30").Mul(dec("15336"))).DivRound(dec("17544"), 6))
	// At 100 % a year a month reduces the value to 2^(−1/12), and the middle of the first to
	// 2^(−1/24). Two months from June are 720 and 744 hours.
	s = scenario(nil, Alternative{Name: "or owned", Changes: []Change{east(NewOffer, func(c *Change) {
		c.Provider, c.Offer, c.OfferKind, c.Term, c.Upfront = "own", "machine", "owned", 2, number(Fixed, "10000")
	})}})
	s.Assumptions.AnnualRate = dec("1")
	b = find(answer(t, view, s), "machine")
	equal("discounted", b.Hourly, dec("10000").DivRound(dec("720").Add(dec("744").Mul(dec("0.943874312681694"))).Mul(dec("0.971531941153606")), 6))
}

// A tornado gives the low and high number of outages, and moves one driver at a time.
func TestTornadoNamesCounts(t *testing.T) {
	region := func(name, region, perYear string) Change {
		return Change{Kind: ProviderOutage, Name: name, Region: region, PerYear: number(Fixed, perYear), Duration: number(Lognormal, "6", "24")}
	}
	s := scenario([]Change{region("a", "east", "8"), region("b", "west", "0.5")}, Alternative{Name: "x", Buy: BuyNothing})
	a := answer(t, house(t), s).Alternatives[0]
	of := func(name string) *Swing {
		i := slices.IndexFunc(a.Tornado, func(s Swing) bool { return s.Driver == name })
		if i < 0 {
			t.Fatalf("no %q in %+v", name, a.Tornado)
		}
		return &a.Tornado[i]
	}
	// Half a year of 8 a year is 4.03 on average: of Poisson(4.03) at most 1 with 9 %, at
	// most 7 with 95 %. Of Poisson(0.25) none with 78 %, at most 1 with 97 %.
	if x := of("a outages"); !x.Low.Equal(dec("1")) || !x.High.Equal(dec("8")) && !x.High.Equal(dec("7")) {
		t.Errorf("outages are %s and %s", x.Low, x.High)
	}
	b := of("b outages")
	if !b.Low.IsZero() || !b.High.Equal(dec("1")) || !b.LowCost.Equal(a.Median) || !b.HighCost.GreaterThan(b.LowCost) {
		t.Errorf("outages are %s and %s, and cost %s and %s beside %s", b.Low, b.High, b.LowCost, b.HighCost, a.Median)
	}
	// At the median there is no outage of b, so its duration is shown for one.
	if x := of("b duration"); x.Given != "of one outage" || !x.HighCost.GreaterThan(x.LowCost) || !x.LowCost.GreaterThan(a.Median) {
		t.Errorf("%+v beside %s", x, a.Median)
	}
	if x := of("a duration"); x.Given != "" || !x.HighCost.GreaterThan(x.LowCost) {
		t.Errorf("%+v", x)
	}
	maybe := east(PriceChange, func(c *Change) {
		c.Factor, c.OfferKind, c.Probability, c.Name = number(Triangular, "1.1", "1.2", "1.5"), "on_demand", number(Fixed, "0.2"), "dearer"
	})
	a = answer(t, house(t), scenario([]Change{maybe}, Alternative{Name: "x", Buy: BuyNothing})).Alternatives[0]
	if x := of("dearer factor"); x.Given != "if it happens" || !x.LowCost.GreaterThan(a.Median) || !x.HighCost.GreaterThan(x.LowCost) {
		t.Errorf("%+v beside %s", x, a.Median)
	}
}

// Of an outage that began before the horizon only the rest counts, and one that ended before counts
// nothing.
func TestOutageThatBeganBefore(t *testing.T) {
	in := plain(func(int) int { return 5 }, nil)
	unserved := func(when string, hours string) decimal.Decimal {
		c := Change{Kind: ProviderOutage, Region: "r", When: at(when), Duration: number(Fixed, hours)}
		return ofInstance(t, in, []Change{c}, Alternative{Name: "x", Buy: BuyNothing}).Alternatives[0].Unserved
	}
	for _, c := range []struct{ when, hours, want string }{
		{"2027-03-01", "10", "50"}, {"2027-02-28", "34", "50"}, {"2027-02-28", "24", "0"}, {"2027-02-20", "3", "0"}, {"2027-03-02", "72", "120"}, {"2027-02-28", "9000", "240"},
	} {
		if got := unserved(c.when, c.hours); !got.Equal(dec(c.want)) {
			t.Errorf("%s hours from %s leave %s unit-hours unserved, want %s", c.hours, c.when, got, c.want)
		}
	}
}

// A falling quota bounds on-demand from the epoch in which it falls, which has its lowest value;
// demand above it is short.
func TestQuotaBound(t *testing.T) {
	view := house(t)
	cut := func(gpus string) *Outcome {
		c := east(QuotaChange, func(c *Change) { c.Provider, c.LimitGPUs, c.When = "aws", number(Fixed, gpus), at("2026-08-15") })
		return &answer(t, view, scenario([]Change{c}, Alternative{Name: "x", Buy: BuyNothing, Without: []string{"spot"}})).Alternatives[0]
	}
	// A day of the house wants 10 to 33 machines, for an hour each, and four are held. August to
	// November have 122 days.
	short := func(machines int) (sum int64) {
		for wanted := 10; wanted <= 33; wanted++ {
			sum += int64(max(0, wanted-4-machines))
		}
		return 122 * sum
	}
	for gpus, machines := range map[string]int{"400": 50, "64": 8, "7": 0, "0": 0} {
		if got, want := cut(gpus).Unserved, decimal.NewFromInt(short(machines)); !got.Equal(want) {
			t.Errorf("with a quota of %s GPUs %s unit-hours are short, want %s", gpus, got, want)
		}
	}
}
