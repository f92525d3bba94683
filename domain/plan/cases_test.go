package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/packing"
)

// even is a demand in GPUs for machines of one GPU, constant over the four weeks until a day, sold
// on demand for 10 an hour.
func even(until string, units int64) Pool {
	s := Series{Source: "lab", From: at(until) - 4*week*domain.Hour, Milli: make([]int64, 4*week)}
	for i := range s.Milli {
		s.Milli[i] = units * 1000
	}
	return Pool{Region: "r", Kind: "K", Unit: "gpu", NodeGPUs: 1, Series: []Series{s}, Offers: []domain.OfferQuoted{sold("od", domain.OfferOnDemand, "10", 0)}}
}

// sold is an offer of machines of one GPU.
func sold(id string, kind domain.OfferKind, hourly string, months uint32, edits ...func(*domain.OfferQuoted)) domain.OfferQuoted {
	o := domain.OfferQuoted{
		Market: domain.Market{Provider: "aws", Region: "r"}, Offer: id, SKU: "small", GPUModel: "K", GPUCount: 1, Kind: kind, TermMonths: months,
		Hourly: dec(hourly), Currency: "USD", ValidFrom: at("2026-01-01"), GuaranteesCapacity: kind == domain.OfferReserved,
	}
	for _, edit := range edits {
		edit(&o)
	}
	return o
}

// over asks on 1 June 2026 for a number of months: June has 720 hours, July 744.
func over(months int, pools ...Pool) *Question {
	return &Question{
		At: at("2026-06-01"), Position: "p", Folds: "folds/1", Pools: pools,
		Assumptions: Assumptions{
			Months: months, Weeks: 4, MonthlyGrowth: dec("0"), AnnualRate: dec("0"), Salvage: dec("1"),
			SpotOverhead: dec("0.2"), ShortageFactor: dec("10"), Currency: "USD",
		},
	}
}

// one computes a plan of one pool.
func one(t *testing.T, q *Question) *PoolPlan {
	t.Helper()
	p := compute(t, q)
	if len(p.Excluded) > 0 || len(p.Regions) != 1 || len(p.Regions[0].Pools) != 1 {
		t.Fatalf("left out %v, %d regions", p.Excluded, len(p.Regions))
	}
	return &p.Regions[0].Pools[0]
}

func equal(t *testing.T, what string, got domain.Decimal, want string) {
	t.Helper()
	if !got.Equal(dec(want)) {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// bought formats purchases, one a line.
func bought(p *PoolPlan) string {
	var lines []string
	for _, b := range p.Purchases {
		lines = append(lines, fmt.Sprintf("%d %s from %s to %s", b.Units, b.Offer, b.Term.From.Time().Format("01-02"), b.Term.To.Time().Format("01-02")))
	}
	return strings.Join(lines, ", ")
}

func binds(p *PoolPlan, constraint string) bool {
	return slices.ContainsFunc(p.Binding, func(b Binding) bool { return b.Constraint == constraint && len(b.Months) > 0 })
}

func notes(p *PoolPlan, text string) bool {
	return slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, text) })
}

// Of ten machines half may run on spot, which costs 5: 4 an hour with a fifth lost. The quota lets
// three run on demand; two stay unserved at ten times 10.
func TestSpotAndQuota(t *testing.T) {
	p := even("2026-06-01", 10)
	p.Offers = append(p.Offers, sold("spot", domain.OfferSpot, "4", 0))
	p.SpotShare = dec("0.5")
	p.Quotas = []Quota{{Provider: "aws", GPUs: 3}}
	got := one(t, over(1, p))
	equal(t, "cost", got.Cost, "183600") // 720 × (5×5 + 3×10 + 2×100)
	equal(t, "penalty", got.Penalty, "144000")
	equal(t, "penalty of buying nothing", got.CurrentPenalty, "144000")
	equal(t, "on demand", got.Amounts.OnDemand, "72000")
	equal(t, "bound", got.LowerBound, "183600")
	if !binds(got, "quota") || !binds(got, "shortage") || got.Served.Spot != 3600 {
		t.Errorf("binding %v, served %+v", got.Binding, got.Served)
	}
}

// Spot that costs as much as a shortage is not used, and does not change the price of a shortage.
func TestDearSpot(t *testing.T) {
	p := even("2026-06-01", 10)
	p.Offers = append(p.Offers, sold("spot", domain.OfferSpot, "80", 0)) // 100 with what is lost
	p.SpotShare = dec("1")
	p.Quotas = []Quota{{Provider: "aws", GPUs: 3}}
	got := one(t, over(1, p))
	equal(t, "cost", got.Cost, "525600") // 720 × (3×10 + 7×100)
	if len(got.ExcludedOffers) != 1 || got.Spot != nil || got.Served.Spot != 0 {
		t.Errorf("left out %v, served %+v", got.ExcludedOffers, got.Served)
	}
	p.Offers[1].Hourly = dec("79")
	equal(t, "cost with spot below a shortage", one(t, over(1, p)).Cost, "519300") // 720 × (3×10 + 7×98.75)
}

// An offer with a lead time of 20 days cannot begin before July, and must be ordered on 11 June. At
// 8 % a year its upfront payment is worth 1000 × 1.08^(−1/12) a unit and its hours 744 ×
// 1.08^(−1.5/12); June on demand is at 1.08^(−0.5/12).
func TestLeadTimeAndDiscount(t *testing.T) {
	late := func(o *domain.OfferQuoted) { o.LeadTimeHours, o.Upfront = 480, dec("1000") }
	p := even("2026-06-01", 10)
	p.Offers = append(p.Offers, sold("1m", domain.OfferReserved, "1", 1, late))
	q := over(2, p)
	got := one(t, q)
	if bought(got) != "10 1m from 07-01 to 08-01" || got.Purchases[0].OrderBy != at("2026-06-11") || !strings.Contains(got.Purchases[0].Reason, "cannot begin earlier") {
		t.Fatalf("bought %s, order by %s, binding %v", bought(got), got.Purchases[0].OrderBy, got.Binding)
	}
	equal(t, "cost", got.Cost, "89440") // 720×10×10 + 10×(1000 + 744)
	q.Assumptions.AnnualRate = dec("0.08")
	got = one(t, q)
	equal(t, "purchase at 8 %", got.Purchases[0].Cost, "17304.84042477")
	equal(t, "on demand at 8 %", got.Cost.Sub(got.Purchases[0].Cost), "71769.486672")
	// Offers that begin after the horizon are not sold.
	q.Pools[0].Offers[1].LeadTimeHours = 24 * 31
	got = one(t, q)
	if len(got.Purchases) > 0 || len(got.ExcludedOffers) != 1 || got.ExcludedOffers[0].Reason != "cannot be there within the horizon" {
		t.Errorf("bought %s, left out %v", bought(got), got.ExcludedOffers)
	}
	if !notes(got, "no commitment that could be considered") {
		t.Errorf("notes %q", got.Notes)
	}
}

// Demand observed until 1 June has grown once in June and twice in July.
func TestGrowth(t *testing.T) {
	for _, until := range []string{"2026-06-01", "2026-05-28"} {
		q := over(2, even(until, 100))
		q.Assumptions.MonthlyGrowth = dec("0.5")
		equal(t, "cost", one(t, q).Cost, "2754000") // 10 × (720×150 + 744×225)
	}
}

// An unobserved hour takes the value of the week before: nine on a Monday, and there are five in
// June.
func TestGap(t *testing.T) {
	p := even("2026-06-01", 1)
	milli := p.Series[0].Milli
	milli[2*week], milli[3*week] = 9000, -1
	q := over(1, p)
	q.Assumptions.Weeks = 1
	got := one(t, q)
	if d := got.Demand; d.UnitHours != 720+5*8 || d.Peak != 9 || d.MissingHours != 1 {
		t.Errorf("%d unit-hours, peak %d, %d hours missing", d.UnitHours, d.Peak, d.MissingHours)
	}
}

func TestMostUnits(t *testing.T) {
	p := even("2026-06-01", 10)
	p.Offers = append(p.Offers, sold("1m", domain.OfferReserved, "5", 1, func(o *domain.OfferQuoted) { o.MaxUnits = 3 }))
	got := one(t, over(1, p))
	equal(t, "cost", got.Cost, "61200") // 720 × (3×5 + 7×10)
	if !binds(got, "max_units") || bought(got) != "3 1m from 06-01 to 07-01" {
		t.Errorf("bought %s, binding %v", bought(got), got.Binding)
	}
}

// Six machines are needed. With an offer at half the price, a least order of eight pays and one of
// twenty does not.
func TestLeastUnits(t *testing.T) {
	for _, c := range []struct {
		least, most     uint32
		cost, purchases string
	}{{1, 0, "21600", "6 1m from 06-01 to 07-01"}, {8, 0, "28800", "8 1m from 06-01 to 07-01"}, {8, 8, "28800", "8 1m from 06-01 to 07-01"}, {20, 0, "43200", ""}} {
		p := even("2026-06-01", 6)
		p.Offers = append(p.Offers, sold("1m", domain.OfferReserved, "5", 1, func(o *domain.OfferQuoted) { o.MinUnits, o.MaxUnits = c.least, c.most }))
		got := one(t, over(1, p))
		equal(t, "cost", got.Cost, c.cost)
		near(t, "bound", got.LowerBound, c.cost)
		if bought(got) != c.purchases || c.least == 8 != (len(got.Purchases) > 0 && strings.Contains(got.Purchases[0].Reason, "the least order")) {
			t.Errorf("least %d: bought %q, binding %v", c.least, bought(got), got.Binding)
		}
	}
	p := even("2026-06-01", 6)
	p.Offers = append(p.Offers, sold("1m", domain.OfferReserved, "5", 1, func(o *domain.OfferQuoted) { o.MinUnits, o.MaxUnits = 5, 4 }))
	if got := one(t, over(1, p)); len(got.ExcludedOffers) != 1 || len(got.Purchases) > 0 {
		t.Errorf("least above most: bought %s, left out %v", bought(got), got.ExcludedOffers)
	}
}

// Demand in machines counts machines as sold, whatever GPUs they have.
func TestMachines(t *testing.T) {
	p := even("2026-06-01", 3)
	p.Kind, p.Unit, p.NodeGPUs, p.Note = "small", "vm", 0, "the demand counts machines, which are taken for small"
	p.Quotas = []Quota{{Provider: "aws", GPUs: 4}}
	for i := range p.Offers {
		p.Offers[i].GPUCount = 2
	}
	got := one(t, over(1, p))
	if got.GPUsPerUnit != 2 || got.Demand.Peak != 3 || !notes(got, "taken for small") || got.Demand.Packing == "" {
		t.Errorf("%d GPUs a unit, peak %d, notes %q", got.GPUsPerUnit, got.Demand.Peak, got.Notes)
	}
	equal(t, "cost", got.Cost, "86400") // the quota is of two machines: 720 × (2×10 + 100)
	// A quota of GPUs does not bound machines without GPUs.
	p.Offers[0].GPUCount = 0
	if got = one(t, over(1, p)); got.QuotaGPUs != nil || got.Refused != 0 {
		t.Errorf("a quota of %d GPUs refuses %d hours of machines without", *got.QuotaGPUs, got.Refused)
	}
}

// Four replicas of one GPU and half of a machine's processors need two machines for four GPUs.
func TestMix(t *testing.T) {
	p := even("2026-06-01", 8)
	p.NodeGPUs = 8
	p.Offers[0].GPUCount, p.Offers[0].CPUMilli, p.Offers[0].MemoryMiB = 8, 64_000, 1<<20
	p.Mix = []packing.Workload{
		{ID: "a", Replicas: 2, GPUMilli: 1000, CPUMilli: 32_000, Clusters: []string{"elsewhere"}, ApartCluster: []string{"b"}},
		{ID: "b", Replicas: 2, GPUMilli: 1000, CPUMilli: 32_000, Countries: []string{"DE"}},
	}
	got := one(t, over(1, p))
	want := []Filled{{1000, 1}, {2000, 1}, {4000, 2}, {8000, 4}, {16000, 8}}
	if d := got.Demand; !slices.Equal(d.Curve, want) || d.Peak != 4 || d.Packing != "packed 2 workloads on machines like small" {
		t.Errorf("machines %v (%s), peak %d", d.Curve, d.Packing, d.Peak)
	}
	if !notes(got, "takes the 2 workloads") {
		t.Errorf("notes %q", got.Notes)
	}
	p.Mix[1].CPUMilli = 65_000
	if d := one(t, over(1, p)).Demand; !slices.Equal(d.Curve, []Filled{{8000, 1}}) || !strings.Contains(d.Packing, "2 of 4 replicas fit no machine") {
		t.Errorf("machines %v (%s)", d.Curve, d.Packing)
	}
	p.Mix = nil
	if d := one(t, over(1, p)).Demand; d.Peak != 1 || !strings.Contains(d.Packing, "no deployments") {
		t.Errorf("peak %d (%s)", d.Peak, d.Packing)
	}
	p.Mix = []packing.Workload{{ID: "a", Replicas: -1}}
	if plan := compute(t, over(1, p)); len(plan.Excluded) != 1 || !strings.Contains(plan.Excluded[0].Reason, "could not be packed") {
		t.Errorf("left out %v", plan.Excluded)
	}
}

// Ten machines are needed for 2,208 hours, at 10 on demand. Paid ahead in June a machine costs 15,000
// for all of them. June's budget of 100,000 allows three: 3 × 15,000 + 7 × 7,200 = 95,400.
func TestHardBudget(t *testing.T) {
	p := even("2026-06-01", 10)
	p.Offers = append(p.Offers, sold("ahead", domain.OfferReserved, "0", 3, func(o *domain.OfferQuoted) {
		o.Upfront, o.ValidTo = dec("15000"), at("2026-06-02")
	}))
	q := over(3, p)
	equal(t, "without a budget", one(t, q).Cost, "150000")
	june := Budget{ID: "june", Basis: domain.BudgetCash, Amount: domain.Money{Amount: dec("100000"), Currency: "USD"}, Period: domain.Interval{From: at("2026-06-01"), To: at("2026-07-01")}}
	euros, year, part := june, june, june
	euros.ID, euros.Amount.Currency = "euros", "EUR"
	year.ID, year.Period.From = "year", at("2026-01-01")
	part.ID, part.Period.To = "part", at("2026-06-16")
	q.Budgets = []Budget{year, euros, june, part}
	plan := compute(t, q)
	got := &plan.Regions[0].Pools[0]
	if bought(got) != "3 ahead from 06-01 to 09-01" || !got.Calendar[0].Cash.Equal(dec("95400")) {
		t.Errorf("bought %s, June %s", bought(got), got.Calendar[0].Cash)
	}
	near(t, "cost", plan.Total.Cost, "199560") // 3 × 15,000 + 7 × 22,080
	if len(plan.Notes) != 3 || !strings.Contains(plan.Notes[0], "euros") || !strings.Contains(plan.Notes[1], "month") || !strings.Contains(plan.Notes[2], "begins before the horizon") {
		t.Errorf("notes %q", plan.Notes)
	}
	// Rules would pay for all ten ahead.
	for _, b := range plan.Baselines {
		if over := b.Name != "buy_nothing" && b.Name != "on_demand"; slices.Contains(b.Broken, "budget june") != over {
			t.Errorf("%s breaks %q", b.Name, b.Broken)
		}
	}
	// What costs less, because it exceeds the budget, is no saving that is missed.
	low := *q
	low.Budgets = slices.Clone(q.Budgets)
	low.Budgets[2].Amount.Amount = dec("50000")
	if s := compute(t, &low).Summary().Savings; !slices.Equal(s[0].Broken, []string{"budget june"}) || !s[0].Amount.IsNegative() || s[2].Broken != nil {
		t.Errorf("savings %+v", s)
	}
	// One budget couples pools that share nothing else.
	other := even("2026-06-01", 1)
	other.Kind = "L"
	q.Pools = append(q.Pools, other)
	if c := compute(t, q).Components; len(c) != 1 || !strings.Contains(c[0].By[0], "hard budget june of 100000 USD (cash)") {
		t.Errorf("components %+v", c)
	}
}

// What is held already takes more than a hard budget: no plan keeps it, also not one without the pool for
// which it is held.
func TestBudgetBelowWhatIsHeld(t *testing.T) {
	other := even("2026-06-01", 1)
	other.Kind = "L"
	q := over(1, even("2026-06-01", 10), other)
	q.Held = []Held{held("2026-01-01", "2027-01-01")} // 14,400 in June
	q.Budgets = []Budget{{
		ID: "june", Basis: domain.BudgetCash, Amount: domain.Money{Amount: dec("14000"), Currency: "USD"},
		Period: domain.Interval{From: at("2026-06-01"), To: at("2026-07-01")},
	}}
	for range 2 {
		p := compute(t, q)
		if len(p.Excluded) != len(q.Pools) {
			t.Fatalf("%d pools excluded of %d", len(p.Excluded), len(q.Pools))
		}
		for _, x := range p.Excluded {
			if !strings.Contains(x.Reason, `budget "june" of 14000 USD (cash); what is held already takes 400 more`) || !strings.Contains(x.Next, "budget") {
				t.Errorf("%s is excluded because %q, to do: %q", x.Kind, x.Reason, x.Next)
			}
		}
		q.Pools = q.Pools[:1]
	}
	// What is not in the plan is not counted in its budgets.
	q.Budgets[0].Amount.Amount, q.Held[0].Hourly.Currency = dec("100000"), "EUR"
	if p := compute(t, q); len(p.Ignored) != 1 || len(p.Notes) != 1 || !strings.Contains(p.Notes[0], "ignored commitments") {
		t.Errorf("ignored %+v, notes %q", p.Ignored, p.Notes)
	}
}

// Hardware to own is capacity that is paid once and has an hourly cost: 36,000 over 36 months of which
// the horizon has one, and 1 an hour.
func TestHardwareToOwn(t *testing.T) {
	p := even("2026-06-01", 10)
	p.Offers = append(p.Offers, sold("dgx", domain.OfferOwned, "1", 36, func(o *domain.OfferQuoted) { o.Upfront = dec("36000") }))
	p.Quotas = []Quota{{Provider: "aws", GPUs: 3}}
	got := one(t, over(1, p))
	if bought(got) != "10 dgx from 06-01 to 06-01" || !got.Purchases[0].Guaranteed || got.Purchases[0].Kind != domain.OfferOwned {
		t.Fatalf("bought %s: %+v", bought(got), got.Purchases)
	}
	if got.Served.Guaranteed != 7200 || !got.Cost.GreaterThan(dec("17000")) || !got.Cost.LessThan(dec("18000")) {
		t.Errorf("served %+v at %s", got.Served, got.Cost) // 10 × (36,000 × 720/26,304 + 720)
	}
}

// A month reserved at 11 an hour is worth 10, what it costs on demand. With 720 paid ahead it is worth
// nine. Above its target an offer is not bought, and below it is.
func TestPriceTargets(t *testing.T) {
	ahead := func(o *domain.OfferQuoted) { o.Upfront = dec("720") }
	p := even("2026-06-01", 10)
	p.Offers = append(p.Offers, sold("plain", domain.OfferReserved, "11", 1), sold("ahead", domain.OfferReserved, "11", 1, ahead))
	q := over(1, p)
	got := one(t, q)
	if len(got.Targets) != 2 || got.Targets[0].Offer != "ahead" || !got.Targets[0].Hourly.Equal(dec("11")) || got.Targets[1].Units != 0 || got.Targets[0].From != at("2026-06-01") {
		t.Fatalf("targets %+v", got.Targets)
	}
	equal(t, "ahead", got.Targets[0].BuyAt, "9")
	equal(t, "plain", got.Targets[1].BuyAt, "10")
	for hourly, units := range map[string]int{"10.01": 0, "9.99": 10} {
		q.Pools[0].Offers[1].Hourly = dec(hourly)
		if got := one(t, q); got.Targets[1].Units != units {
			t.Errorf("at %s %d units are bought", hourly, got.Targets[1].Units)
		}
	}
	// Without an hourly price there is none to compare.
	q.Pools[0].Offers[1].Hourly, q.Pools[0].Offers[1].Upfront = dec("0"), dec("72000000")
	if x := one(t, q).Targets[1]; !x.BuyAt.IsNegative() {
		t.Errorf("a term that costs too much ahead is worth %s", x.BuyAt)
	}
}
