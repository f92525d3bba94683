package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Ten machines are always needed, at 30 on demand and 20 reserved for a year of 8,760 hours. The
// 60-day rule buys the ten, as the plan does, and so does the peak. A ladder of twelve parts cannot
// have them all from the start: ten parts of one begin one after the other, so machine i is
// reserved from month i·12/10 on.
func TestBaselinesByHand(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	p := &q.Pools[0]
	p.Offers = slices.DeleteFunc(p.Offers, func(o domain.OfferQuoted) bool { return o.Offer == "3y" || o.Offer == "spot" })
	for i := range p.Series[0].Milli {
		p.Series[0].Milli[i] = 10 * 8000
	}
	q.Assumptions.AnnualRate, q.Assumptions.Salvage = dec("0"), dec("1")
	plan := compute(t, q)
	got := plan.Regions[0].Pools[0]
	late := int64(0) // machine-hours before their part begins
	span := months(q.At, 12)
	for part := range 10 {
		late += hoursOf(domain.Interval{From: span[0].From, To: span[12/10*part+12%10*part/10].From})
	}
	hours := decimal.NewFromInt
	for baseline, want := range map[string]domain.Decimal{
		"buy_nothing": dec("30").Mul(hours(87_600)), "on_demand": dec("30").Mul(hours(87_600)),
		"lookback_7d": dec("20").Mul(hours(87_600)), "lookback_30d": dec("20").Mul(hours(87_600)), "lookback_60d": dec("20").Mul(hours(87_600)),
		"peak_60d": dec("20").Mul(hours(87_600)), "ladder_60d": dec("20").Mul(hours(87_600)).Add(dec("10").Mul(hours(late))),
	} {
		i := slices.IndexFunc(plan.Baselines, func(c Baseline) bool { return c.Name == baseline })
		if i < 0 {
			t.Errorf("there is no baseline %s", baseline)
		} else if !plan.Baselines[i].Cost.Equal(want) {
			t.Errorf("%s costs %s, want %s", baseline, plan.Baselines[i].Cost, want)
		}
	}
	if len(plan.Baselines) != 7 {
		t.Errorf("%d baselines", len(plan.Baselines))
	}
	if !got.Nominal.Equal(dec("1752000")) || !got.Calendar[0].Cash.Equal(dec("144000")) || got.Calendar[0].Month != "2026-06" || !got.Stranded.IsZero() {
		t.Errorf("nominal %s, first month %+v, stranded %s", got.Nominal, got.Calendar[0], got.Stranded)
	}
	if b := got.Purchases[0]; !strings.Contains(b.Reason, "break-even utilization against on-demand: 66.7%") || b.Worth.LessThan(dec("175200")) {
		t.Errorf("worth %s: %s", b.Worth, b.Reason)
	}
}

// An upfront payment is paid at once and charged over its term. In the least demanding week half of
// the ten machines would be idle: half of the annual charge of the three-year term.
func TestCalendarAndStrandedByHand(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	p := &q.Pools[0]
	p.Offers = slices.DeleteFunc(p.Offers, func(o domain.OfferQuoted) bool { return o.Offer == "1y" || o.Offer == "spot" })
	for i := range p.Series[0].Milli {
		p.Series[0].Milli[i] = 10 * 8000
		if i >= week && i < 2*week {
			p.Series[0].Milli[i] = 5 * 8000
		}
	}
	q.Assumptions.AnnualRate, q.Assumptions.Salvage = dec("0"), dec("1")
	got := compute(t, q).Regions[0].Pools[0]
	if len(got.Purchases) != 1 || got.Purchases[0].Units != 10 {
		t.Fatalf("bought is %+v", got.Purchases)
	}
	all := months(q.At, 36)
	total := decimal.NewFromInt(hoursOf(domain.Interval{From: all[0].From, To: all[35].To}))
	june := dec("3000000").Mul(decimal.NewFromInt(720)).DivRound(total, 9)
	if c := got.Calendar[0]; !c.Cash.Equal(dec("3000000")) || !c.Accrual.Equal(june) || !got.Calendar[1].Cash.IsZero() || !got.Nominal.Equal(dec("3000000")) {
		t.Errorf("June %+v, want 3000000 and %s; July %+v", c, june, got.Calendar[1])
	}
	year := dec("3000000").Mul(decimal.NewFromInt(8760)).DivRound(total.Mul(decimal.NewFromInt(2)), 9)
	if d := got.Stranded.Sub(year).Abs(); d.GreaterThan(dec("0.000001")) {
		t.Errorf("stranded %s, want %s", got.Stranded, year)
	}
}

// One more machine of a quota saves the difference between shortage and on-demand in the short
// hours.
func TestWorthOfQuota(t *testing.T) {
	q := question()
	q.Pools = q.Pools[:1]
	p := &q.Pools[0]
	p.Offers = p.Offers[:1]
	p.Quotas = []Quota{{Provider: "aws", GPUs: 96}} // 12 of the 14 machines in use
	q.Assumptions.AnnualRate = dec("0")
	got := compute(t, q).Regions[0].Pools[0]
	want := dec("270").Mul(decimal.NewFromInt(got.Served.Shortage)).DivRound(dec("2"), 9)
	i := slices.IndexFunc(got.Binding, func(b Binding) bool { return b.Constraint == "quota" })
	if i < 0 || got.Binding[i].Price == nil || !got.Binding[i].Price.Equal(want) {
		t.Errorf("bindings %+v, want a quota of %s", got.Binding, want)
	}
}

// What an answer says of itself is beside its pool, or in the notes of the plan if several are planned
// together. A bound of nothing is no proof.
func TestCaveats(t *testing.T) {
	for pools := 1; pools <= 2; pools++ {
		q := sharing()
		q.Pools = q.Pools[:pools]
		c, err := newComposer(q)
		if err != nil {
			t.Fatal(err)
		}
		c.take(q.Pools)
		x, err := c.solve(t.Context(), &c.groups(c.planned())[0], lazily(t))
		if err != nil {
			t.Fatal(err)
		}
		x.answer.Notes = append(x.answer.Notes, "the gap is wide")
		into := map[*candidate]*PoolPlan{}
		if err := c.present(x, &Plan{}, into); err != nil {
			t.Fatal(err)
		}
		if pools == 1 && !notes(into[c.pools[0]], "the gap is wide") || pools == 2 && !slices.Equal(c.notes, []string{"r K, r L: the gap is wide"}) {
			t.Errorf("%d pools: notes %q and %q", pools, c.notes, into[c.pools[0]].Notes)
		}
	}
	equal(t, "gap", gap(dec("5"), dec("0")), "1")
	equal(t, "gap of nothing", gap(dec("0"), dec("0")), "0")
}
