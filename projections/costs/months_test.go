package costs_test

import (
	"fmt"
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/dimension"
	"quartermaster/projections/storetest"
)

var juneBill = projections.BillingMonth(storetest.MayBill.To)

// mayAndJune is the house with bills of June: a line of an account, and one for an hour of May.
func mayAndJune() *storetest.Log {
	l := house()
	june := func(id, billed string, edit ...func(*domain.BillingLine)) {
		l.Append(recorded(billLine(id, billed, append([]func(*domain.BillingLine){func(b *domain.BillingLine) {
			b.BillingPeriodStart, b.BillingPeriodEnd, b.InvoiceID = juneBill.From, juneBill.To, "i-2"
			b.ChargePeriodStart, b.ChargePeriodEnd = juneBill.From, juneBill.To
		}}, edit...)...)))
	}
	june("20-support", "12.345678")
	june("21-late", "0.77", func(b *domain.BillingLine) {
		b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = storetest.Start, storetest.Start+domain.Hour, "r-1"
	})
	return l
}

func ofMonths(t *testing.T, l *storetest.Log, q costs.MonthsQuery) (r *costs.MonthsReport) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		m, err := costs.NewMonths(q)
		if err != nil {
			t.Fatal(err)
		}
		for i, month := range m.Needed() {
			if i%2 == 0 { // divided for it, or before
				err = m.Divide(v, month)
			} else {
				var d *costs.Division
				if d, err = costs.Divide(v, month, 1<<30); err == nil {
					err = m.Add(d)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if r, err = m.Report(v); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

// What groups cost over months is what they cost in each, added up, in every dimension; and what they cost before is
// what the report of the month before says.
func TestCostsOfMonthsAreThoseOfEach(t *testing.T) {
	l := mayAndJune()
	months := []domain.Interval{storetest.MayBill, juneBill}
	for _, d := range costs.Dimensions() {
		if d == costs.ByTag {
			d = "tag:team"
		}
		by := []costs.Dimension{d}
		billed, effective := map[string]attribution.Amount{}, map[string]attribution.Amount{}
		single := make([]*costs.Report, len(months))
		for i, month := range months {
			single[i] = report(t, l, costs.Query{Month: month, By: by})
			for _, g := range single[i].Groups {
				k := g.Key[d] + " " + g.Currency
				billed[k], effective[k] = billed[k].Add(g.Billed), effective[k].Add(g.Effective)
			}
		}
		r := ofMonths(t, l, costs.MonthsQuery{Months: months, By: by})
		if len(r.Groups) != len(billed) {
			t.Fatalf("by %s: %d groups, want %d", d, len(r.Groups), len(billed))
		}
		for _, g := range r.Groups {
			if k := g.Key[d] + " " + g.Currency; g.Billed != billed[k] || g.Effective != effective[k] || g.Before != nil {
				t.Errorf("by %s: %s costs %s and %s, want %s and %s", d, k, g.Billed, g.Effective, billed[k], effective[k])
			}
		}
		if d == costs.ByHour || d == costs.ByDay || d == costs.ByMonth || d == costs.ByQuarter {
			continue
		}
		compared := ofMonths(t, l, costs.MonthsQuery{Months: months[1:], By: by, Compare: true})
		then, now := map[string]attribution.Amount{}, map[string]attribution.Amount{}
		for _, g := range single[0].Groups {
			then[g.Key[d]+" "+g.Currency] = g.Effective
		}
		for _, g := range single[1].Groups {
			now[g.Key[d]+" "+g.Currency] = g.Effective
		}
		if len(compared.Groups) != len(billed) || len(compared.Compared) != 1 {
			t.Fatalf("by %s: %d groups are compared, want %d", d, len(compared.Groups), len(billed))
		}
		for _, g := range compared.Groups {
			k := g.Key[d] + " " + g.Currency
			if g.Effective != now[k] || g.Before.Effective != then[k] || g.Before.EffectiveDifference != now[k].Sub(then[k]) {
				t.Errorf("by %s: %s costs %s, before %s, difference %s; want %s and %s", d, k, g.Effective, g.Before.Effective,
					g.Before.EffectiveDifference, now[k], then[k])
			}
		}
	}
}

// By month each month is compared with the one before, and by quarter with the quarter before.
func TestCostsOfMonthsCompareLikeWithLike(t *testing.T) {
	l := mayAndJune()
	text := func(q costs.MonthsQuery) (out []string) {
		q.Where = []dimension.Condition{{Dimension: costs.ByLine, Values: []string{"p|1|20-support", "p|1|08-credit"}}}
		q.Compare = true
		for _, g := range ofMonths(t, l, q).Groups {
			of := g.Key[costs.ByMonth] + g.Key[costs.ByQuarter]
			out = append(out, fmt.Sprint(of, " ", g.Effective, " ", g.Before.Effective, " ", g.Before.EffectiveDifference))
		}
		return out
	}
	july := projections.BillingMonth(juneBill.To)
	by := func(d ...costs.Dimension) []costs.Dimension { return d }
	for _, c := range []struct {
		q    costs.MonthsQuery
		want []string
	}{
		{costs.MonthsQuery{Months: []domain.Interval{storetest.MayBill, juneBill, july}, By: by(costs.ByMonth)},
			[]string{"2026-05 -1 0 -1", "2026-06 12.345678 -1 13.345678", "2026-07 0 12.345678 -12.345678"}},
		{costs.MonthsQuery{Months: []domain.Interval{storetest.MayBill, juneBill, july}, By: by(costs.ByQuarter)},
			[]string{"2026-Q2 11.345678 0 11.345678", "2026-Q3 0 0 0"}[:1]},
		{costs.MonthsQuery{Months: []domain.Interval{juneBill}, By: by(costs.ByQuarter, costs.ByMonth)},
			[]string{"2026-062026-Q2 12.345678 -1 13.345678"}},
		{costs.MonthsQuery{Months: []domain.Interval{juneBill, july}}, []string{" 12.345678 -1 13.345678"}},
	} {
		if got := text(c.q); !slices.Equal(got, c.want) {
			t.Errorf("%v by %v: %q, want %q", c.q.Months, c.q.By, got, c.want)
		}
	}
	for _, d := range by(costs.ByHour, costs.ByDay) {
		if _, err := costs.NewMonths(costs.MonthsQuery{Months: []domain.Interval{juneBill}, By: by(d), Compare: true}); err == nil {
			t.Errorf("costs by %s are compared with another month", d)
		}
	}
	if _, err := costs.NewMonths(costs.MonthsQuery{Months: []domain.Interval{juneBill, storetest.MayBill}}); err == nil {
		t.Error("months in the wrong order are accepted")
	}
}
