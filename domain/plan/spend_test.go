package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/adapters/highs"
	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/long"
)

// savings is a committed price of K in a region.
func savings(region, hourly string, months uint32) domain.OfferQuoted {
	o := sold("sp-"+region, domain.OfferSpendCommitment, hourly, months)
	o.Market.Region, o.Spend = region, "compute plan"
	return o
}

// follows is demand in two regions of which one is busy when the other is not: by day ten machines
// of r at 10 an hour, and by night five of s at 12. A plan commits r at 6 and s at 8 for a month.
func follows() *Question {
	r, s := even("2026-06-01", 10), even("2026-06-01", 5)
	s.Region = "s"
	s.Offers[0].Market.Region, s.Offers[0].Hourly = "s", dec("12")
	for h := range r.Series[0].Milli {
		if h%24 < 12 {
			s.Series[0].Milli[h] = 0
		} else {
			r.Series[0].Milli[h] = 0
		}
	}
	r.Offers = append(r.Offers, savings("r", "6", 1))
	s.Offers = append(s.Offers, savings("s", "8", 1))
	return over(1, r, s)
}

// By day r takes 60 an hour of a commitment, and by night s takes 40. Up to 40 each 6 replace 10 by
// day and 9 by night, so 19 for 12. Beyond 40 they replace 10 for 12. A unit is 6: the seventh spans
// both and still pays.
func TestSpendOverRegionsByHand(t *testing.T) {
	q := follows()
	p, err := Compute(t.Context(), q, solver(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Components) != 1 || !slices.Equal(p.Components[0].Pools, []string{"r K", "s K"}) ||
		!slices.Contains(p.Components[0].By, "the spend commitment aws compute plan, 1 month") {
		t.Fatalf("components %+v", p.Components)
	}
	all := &p.Regions[0]
	if all.Region != "" || len(all.Purchases) != 1 || len(all.Pools) != 0 {
		t.Fatalf("regions %+v", p.Regions)
	}
	b := &all.Purchases[0]
	if b.Units != 7 || !b.Hourly.Equal(dec("42")) || b.Offer != "compute plan" || !slices.Equal(b.Covers, []string{"r K", "s K"}) {
		t.Errorf("purchase %+v", b)
	}
	// 42 an hour; by day 3 of 10 machines at 10; by night nothing.
	equal(t, "cost", p.Total.Cost, "41040") // (720 × 42 + 360 × 30)
	equal(t, "committed", all.Cost, "30240")
	equal(t, "r", p.Regions[1].Cost, "10800")
	equal(t, "s", p.Regions[2].Cost, "0")
	if p.Total.LowerBound.LessThan(dec("41039.99")) || p.Total.LowerBound.GreaterThan(p.Total.Cost) {
		t.Errorf("lower bound %s", p.Total.LowerBound)
	}
	r, s := &p.Regions[1].Pools[0].Served, &p.Regions[2].Pools[0].Served
	if r.OnDemand != 3600 || r.SpendCommitted != 7*360 || s.OnDemand != 1800 || s.SpendCommitted != 1800 {
		t.Errorf("served %+v and %+v", r, s)
	}
	equal(t, "all on demand", p.Total.OnDemand, "57600")
	in, err := q.Instance()
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Offers) != 1 || in.Offers[0].Kind != domain.OfferSpendCommitment || len(in.Offers[0].Rates) != 2 {
		t.Errorf("offers %+v", in.Offers)
	}
}

// upfront pays for a part of a savings plan at once, in tenths: 730 hours a month of it.
func upfront(o domain.OfferQuoted, tenths int64) domain.OfferQuoted {
	share := decimal.New(tenths, -1)
	o.Upfront = o.Hourly.Mul(share).Mul(decimal.NewFromInt(730 * int64(o.TermMonths)))
	o.Hourly = o.Hourly.Mul(dec("1").Sub(share))
	return o
}

// The same commitment, of which a part is paid for at once. June has 720 hours, so it costs 730/720 of what
// it costs by the hour. Cash is due with the term, and a budget of cash counts it then.
func TestSpendUpfrontByHand(t *testing.T) {
	lp := solver(t)
	for _, c := range []struct {
		tenths            int64
		cost, cash, hours string
		name              string
	}{
		{10, "41460", "30660", "0", "aws compute plan, 1 month, paid upfront"},        // 7 × 6 × 730 and 360 × 30
		{5, "41250", "15330", "21", "aws compute plan, 1 month, partly paid upfront"}, // 7 × 3 × (730 + 720)
	} {
		q := follows()
		for i := range q.Pools {
			q.Pools[i].Offers[1] = upfront(q.Pools[i].Offers[1], c.tenths)
		}
		p, err := Compute(t.Context(), q, lp)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Components) != 1 || !slices.Contains(p.Components[0].By, "the spend commitment "+c.name) || len(p.Regions[0].Purchases) != 1 {
			t.Fatalf("components %+v, regions %+v", p.Components, p.Regions)
		}
		b := &p.Regions[0].Purchases[0]
		equal(t, "cost", p.Total.Cost, c.cost)
		equal(t, "paid upfront", b.Upfront, c.cash)
		equal(t, "paid by the hour", b.Hourly, c.hours)
		equal(t, "committed", b.SpendPerHour.Decimal, "42")
		asProblem(t, q, p, lp)
		q.Budgets = []Budget{{
			ID: "june", Basis: domain.BudgetCash, Amount: domain.Money{Amount: dec("41000"), Currency: "USD"},
			Period: domain.Interval{From: at("2026-06-01"), To: at("2026-07-01")},
		}}
		if p, err = Compute(t.Context(), q, lp); err != nil {
			t.Fatal(err)
		}
		if len(p.Excluded) > 0 || p.Total.Nominal.GreaterThan(dec("41000")) || !p.Total.Cost.GreaterThan(dec(c.cost)) {
			t.Errorf("under a budget %s of %s is paid, left out %+v", p.Total.Nominal, p.Total.Cost, p.Excluded)
		}
	}
	// One that is held was paid for, and goes on paying for use.
	q := follows()
	for i := range q.Pools {
		q.Pools[i].Offers[1] = upfront(q.Pools[i].Offers[1], 10)
	}
	q.Held = []Held{{
		Commitment: "sp-1", Provider: "aws", Kind: domain.OfferSpendCommitment, Spend: "compute plan",
		SpendPerHour: decimal.NewNullDecimal(dec("60")), Term: domain.Interval{From: at("2026-05-31"), To: at("2026-07-01")},
		Hourly: domain.Money{Currency: "USD"}, Upfront: domain.Money{Amount: dec("44640"), Currency: "USD"},
	}}
	p, err := Compute(t.Context(), q, lp)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "cost", p.Total.Cost, "0")
	equal(t, "charged", p.Calendar[0].Accrual, "43200") // 30 of 31 days
	if len(p.Ignored) != 0 {
		t.Errorf("ignored %+v", p.Ignored)
	}
}

// Two terms of one commitment have prices of their own, and a pool can use both.
func TestSpendOfTwoTerms(t *testing.T) {
	q := follows()
	q.Assumptions.Months = 3
	q.Pools[0].Offers = append(q.Pools[0].Offers, savings("r", "5", 3))
	q.Pools[1].Offers = append(q.Pools[1].Offers, savings("s", "11", 3))
	p, err := Compute(t.Context(), q, solver(t))
	if err != nil {
		t.Fatal(err)
	}
	terms := map[string]bool{}
	for _, b := range p.Regions[0].Purchases {
		terms[b.Term.From.String()[:10]+" to "+b.Term.To.String()[:10]] = true
	}
	one := follows()
	one.Assumptions.Months = 3
	less, err := Compute(t.Context(), one, solver(t))
	if err != nil {
		t.Fatal(err)
	}
	if !p.Total.Cost.LessThan(less.Total.Cost) || len(terms) == 0 {
		t.Errorf("cost %s with two terms, %s with one, %v", p.Total.Cost, less.Total.Cost, terms)
	}
	for i := range p.Regions[1:] {
		pool := &p.Regions[i+1].Pools[0]
		if pool.Served.Elsewhere != 0 || pool.Served.ForOthers != 0 {
			t.Errorf("%s is served elsewhere: %+v", p.Regions[i+1].Region, pool.Served)
		}
	}
}

// A commitment for a single pool is one of whole machines at its price, and needs no linear program.
func TestSpendOfOnePool(t *testing.T) {
	q := follows()
	q.Pools = q.Pools[:1]
	for h := range q.Pools[0].Series[0].Milli {
		q.Pools[0].Series[0].Milli[h] = 10_000
	}
	p := compute(t, q)
	if len(p.Regions) != 1 || bought(&p.Regions[0].Pools[0]) != "10 sp-r from 06-01 to 07-01" {
		t.Fatalf("regions %+v", p.Regions)
	}
	if b := p.Regions[0].Purchases[0]; b.Kind != domain.OfferSpendCommitment || b.Guaranteed {
		t.Errorf("purchase %+v", b)
	}
	equal(t, "cost", p.Total.Cost, "43200")
}

// What is held of a commitment pays at today's committed prices, also if it was ended before its notice
// was due. One that says too little is listed.
func TestSpendHeld(t *testing.T) {
	q := follows()
	h := Held{
		Commitment: "sp-1", Provider: "aws", Kind: domain.OfferSpendCommitment, Spend: "compute plan", SpendPerHour: domain.NullDecimal{Decimal: dec("40"), Valid: true},
		Term: domain.Interval{From: at("2026-06-01"), To: at("2026-07-01")}, Hourly: domain.Money{Currency: "USD"}, Upfront: domain.Money{Currency: "USD"}, NoticeBy: at("2026-08-01"),
	}
	q.Held = []Held{h}
	p, err := Compute(t.Context(), q, solver(t))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "held", p.Total.Held, "28800")
	if len(p.Ignored) != 0 {
		t.Errorf("ignored %+v", p.Ignored)
	}
	// Another 6 would cost 4320 and save 3600.
	equal(t, "cost", p.Total.Cost, "40800")
	for reason, change := range map[string]func(*Held){
		"does not say which": func(h *Held) { h.Spend = "" },
		"no pool of the plan has a committed price of aws compute plan, 12 months":                    func(h *Held) { h.Term.To = at("2027-06-01") },
		"no pool of the plan has a committed price of aws another, 1 month":                           func(h *Held) { h.Spend = "another" },
		"no pool of the plan has a committed price of aws compute plan, 1 month, paid upfront":        func(h *Held) { h.Upfront.Amount = dec("1") },
		"no pool of the plan has a committed price of aws compute plan, 1 month, partly paid upfront": func(h *Held) { h.Upfront.Amount, h.Hourly.Amount = dec("1"), dec("1") },
		"it pays 39 an hour and commits 40, and nothing is paid upfront":                              func(h *Held) { h.Hourly.Amount = dec("39") },
		"commits no amount": func(h *Held) { h.SpendPerHour.Valid = false },
		"paid in EUR":       func(h *Held) { h.Hourly.Currency = "EUR" },
	} {
		x := h
		change(&x)
		q.Held = []Held{x}
		p, err := Compute(t.Context(), q, solver(t))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Ignored) != 1 || !strings.Contains(p.Ignored[0].Reason, reason) {
			t.Errorf("%s: ignored %+v", reason, p.Ignored)
		}
	}
}

// Planned apart, a commitment pays for one pool, and what is held of it is named.
func TestSpendsApart(t *testing.T) {
	q := follows()
	q.SpendsApart = true
	q.Held = []Held{{Commitment: "sp-1", Provider: "aws", Kind: domain.OfferSpendCommitment, Spend: "compute plan"}}
	in, err := q.Instance()
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Offers) != 2 || in.Offers[0].ID != "r K|aws|sp-r" || in.Offers[0].Kind != domain.OfferReserved || in.Offers[0].GuaranteesCapacity || len(in.Pools) != 2 || len(in.Commitments) != 0 {
		t.Errorf("offers %+v, pools %+v", in.Offers, in.Pools)
	}
	notes := strings.Join(in.Notes, "; ")
	if !strings.Contains(notes, "pays for one pool here") || !strings.Contains(notes, "the held spend commitment sp-1 is not counted here") {
		t.Error(notes)
	}
	p := compute(t, q) // needs no linear program
	if len(p.Components) != 0 || p.Total.Cost.LessThan(dec("41040")) {
		t.Errorf("cost %s, components %+v", p.Total.Cost, p.Components)
	}
}

// A held commitment in another currency pays at the same rate as what it costs.
func TestSpendHeldInAnotherCurrency(t *testing.T) {
	q := follows()
	q.FX = map[string]domain.Decimal{"EUR": dec("2")}
	q.Held = []Held{{
		Commitment: "sp-1", Provider: "aws", Kind: domain.OfferSpendCommitment, Spend: "compute plan", SpendPerHour: decimal.NewNullDecimal(dec("20")),
		Term: domain.Interval{From: at("2026-06-01"), To: at("2026-07-01")}, Hourly: domain.Money{Amount: dec("20"), Currency: "EUR"},
	}}
	in, err := q.Instance()
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Commitments) != 1 || !in.Commitments[0].Hourly.Equal(dec("40")) || !q.Held[0].SpendPerHour.Decimal.Equal(dec("20")) {
		t.Errorf("commitments %+v", in.Commitments)
	}
}

// Whatever is committed and held, a plan with spend commitments costs at most what one without them
// costs, its parts add up, and its problem stated as a whole has the same least cost.
func TestAnySpend(t *testing.T) {
	lp := solver(t)
	spanned, drawn, most := 0, 0, long.Count(25, 2000)
	rapid.Check(t, func(rt *rapid.T) {
		if drawn++; drawn > most {
			return
		}
		ints := func(label string, from, to int) int { return rapid.IntRange(from, to).Draw(rt, label) }
		q := follows()
		q.Assumptions.Months, q.Assumptions.Salvage = ints("months", 1, 3), dec("1")
		for i := range q.Pools {
			p := &q.Pools[i]
			peak, base := ints("peak", 0, 9), ints("base", 0, 4)
			for h := range p.Series[0].Milli {
				p.Series[0].Milli[h] = int64(1000 * (base + max(0, peak-(h%24+i*12)%24)))
			}
			p.Offers = p.Offers[:1]
			for j := range ints("prices", 0, 4) {
				o := savings(p.Region, "0", uint32(ints("term", 1, 3)))
				o.Hourly = decimal.New(int64(ints("hourly", 300, 1300)), -2)
				o = upfront(o, rapid.SampledFrom([]int64{0, 0, 5, 10}).Draw(rt, "tenths"))
				o.Offer, o.Spend = fmt.Sprint(o.Offer, j), rapid.SampledFrom([]string{"x", "x", "y", ""}).Draw(rt, "name")
				p.Offers = append(p.Offers, o)
			}
			if rapid.Bool().Draw(rt, "reserved") {
				p.Offers = append(p.Offers, sold("month", domain.OfferReserved, "7", 1))
			}
			if rapid.Bool().Draw(rt, "quota") {
				p.Quotas = []Quota{{Provider: "aws", GPUs: uint64(ints("limit", 0, 12))}}
			}
		}
		if rapid.Bool().Draw(rt, "held") {
			q.Held = []Held{{
				Commitment: "sp", Provider: "aws", Kind: domain.OfferSpendCommitment, Spend: "x",
				SpendPerHour: decimal.NewNullDecimal(decimal.New(int64(ints("commits", 1, 9000)), -2)), Hourly: domain.Money{Currency: "USD"},
				Term: domain.Interval{From: at("2026-05-20"), To: at("2026-05-20") + domain.Instant(ints("days", 28, 100))*domain.Day},
			}}
			if rapid.Bool().Draw(rt, "paid upfront") {
				q.Held[0].Upfront = domain.Money{Amount: dec("1000"), Currency: "USD"}
			}
		}
		p, err := Compute(t.Context(), q, lp)
		if err != nil {
			rt.Fatal(err)
		}
		var sum Amounts
		for i := range p.Regions {
			r := &p.Regions[i]
			sum.add(&r.Amounts)
			if r.Region == "" {
				spanned += len(r.Purchases)
			}
			for j := range r.Pools {
				s := &r.Pools[j].Served
				if all := s.Held + s.OnDemand + s.Shortage + s.Elsewhere - s.ForOthers; max(all, r.Pools[j].Demand.UnitHours)-min(all, r.Pools[j].Demand.UnitHours) > 3 {
					rt.Fatalf("%s: served %+v of %d", r.Region, s, r.Pools[j].Demand.UnitHours)
				}
			}
		}
		if !sum.Cost.Equal(p.Total.Cost) || !sum.Current.Equal(p.Total.Current) || p.Total.LowerBound.GreaterThan(p.Total.Cost) {
			rt.Fatalf("parts %+v of %+v", sum, p.Total)
		}
		in, err := q.Instance()
		if err != nil {
			rt.Fatal(err)
		}
		a, err := instance.Solve(t.Context(), in, lp)
		if err != nil {
			rt.Fatal(err)
		}
		slack := dec("0.0001").Add(p.Total.Cost.Mul(decimal.Max(a.Gap, p.Total.Gap)))
		if a.Cost.Sub(p.Total.Cost).Abs().GreaterThan(slack) {
			rt.Fatalf("the problem costs %s, the plan %s", a.Cost, p.Total.Cost)
		}
		for i := range q.Pools {
			k := &q.Pools[i]
			k.Offers = slices.DeleteFunc(slices.Clone(k.Offers), func(o domain.OfferQuoted) bool { return o.Kind == domain.OfferSpendCommitment })
		}
		if q.Held != nil {
			return // without prices what is held is not counted
		}
		without, err := Compute(t.Context(), q, lp)
		if err != nil {
			rt.Fatal(err)
		}
		if p.Total.Cost.GreaterThan(without.Total.Cost.Add(slack)) {
			rt.Fatalf("it costs %s, and %s without commitments", p.Total.Cost, without.Total.Cost)
		}
	})
	if !testing.Short() && spanned == 0 {
		t.Error("no commitment over pools was bought")
	}
	t.Logf("%d commitments over pools", spanned)
}

// BenchmarkSpend plans pools in regions whose peaks follow the sun, for a year, with a savings plan
// of two terms over all of them.
func BenchmarkSpend(b *testing.B) {
	lp, err := highs.Open(highs.Options{})
	if err != nil {
		b.Skip(err)
	}
	defer func() { _ = lp.Close() }()
	for _, regions := range []int{2, 4, 8} {
		b.Run(fmt.Sprintf("regions=%d", regions), func(b *testing.B) {
			q := over(12)
			for i := range regions {
				p := even("2026-06-01", 0)
				p.Region = fmt.Sprint("r", i)
				for h := range p.Series[0].Milli {
					angle := 2 * math.Pi * (float64(h%24)/24 - float64(i)/float64(regions))
					p.Series[0].Milli[h] = int64(1000 * math.Round(float64(20+5*i)*(1+0.6*math.Sin(angle))+float64(h%168)/12))
				}
				p.Offers[0].Market.Region = p.Region
				p.Offers = append(p.Offers, savings(p.Region, "7.2", 12), savings(p.Region, "5.4", 36))
				q.Pools = append(q.Pools, p)
			}
			for b.Loop() {
				p, err := Compute(b.Context(), q, lp)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(p.Total.Gap.Shift(9).IntPart())/1e7, "gap%")
			}
		})
	}
}
