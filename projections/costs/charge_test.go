package costs_test

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/dimension"
	"quartermaster/projections/storetest"
)

// The allocations of a line add up to its list and its contracted cost, whatever it is matched to, in memory and in the
// canonical form. A line that states none has none.
func TestListCostIsDivided(t *testing.T) {
	long.Check(t, 100, 20_000, func(t *rapid.T) {
		prices := rapid.SampledFrom([]string{"", "0", "7", "-3.33", "0.000000000000000001", "123456.789012345678901234", "999999999999999"})
		want := map[string]string{}
		l := storetest.NewLog()
		for _, env := range houseEvents() {
			edited := &domain.BillingLine{}
			switch ev := env.Event.(type) {
			case *domain.BillingLineRecorded:
				again := *ev
				env.Event, edited = &again, &again.Line
			case *domain.BillingLineCorrected:
				again := *ev
				env.Event, edited = &again, &again.Line
			}
			if edited.LineID != "" {
				for _, of := range []*domain.NullDecimal{&edited.ListCost, &edited.ContractedCost} {
					if text := prices.Draw(t, "price"); text != "" {
						*of = decimal.NewNullDecimal(decimal.RequireFromString(text))
					}
				}
				want[edited.LineID] = exact(t, edited.ListCost) + " " + exact(t, edited.ContractedCost)
			}
			l.Append(env)
		}
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.View(t.Context(), func(v projections.View) error {
			d, err := costs.Divide(v, storetest.MayBill, 1<<30)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if _, _, err := costs.WriteCanonical(v, storetest.MayBill, &b); err != nil {
				return err
			}
			kept, err := costs.ReadCanonical(openBytes(b.Bytes()))
			if err != nil {
				return err
			}
			for name, of := range map[string]*costs.Division{"memory": d, "canonical": kept} {
				if got := listed(t, of); !maps.Equal(got, want) {
					t.Errorf("%s: %v, want %v", name, got, want)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// exact is a price to 18 digits, as an amount has them.
func exact(t *rapid.T, price domain.NullDecimal) string {
	if !price.Valid {
		return "none"
	}
	a, err := attribution.AmountOf(price.Decimal)
	if err != nil {
		t.Fatal(err)
	}
	return a.String()
}

// listed sums the list and the contracted cost by line, with decimals.
func listed(t *rapid.T, d *costs.Division) map[string]string {
	type sum struct{ list, contracted *decimal.Decimal }
	sums := map[string]*sum{}
	add := func(to **decimal.Decimal, a *attribution.Amount) {
		if a == nil {
			return
		}
		if *to == nil {
			*to = &decimal.Decimal{}
		}
		**to = (**to).Add(a.Decimal())
	}
	if err := d.Each(costs.AllocationFilter{}, func(a *costs.Allocation) error {
		if a.Component == attribution.RoundingAdjustment {
			if a.List != nil || a.Contracted != nil {
				t.Errorf("%s is no supplier's line, and has a list cost", a.Allocation)
			}
			return nil
		}
		s := sums[a.Line]
		if s == nil {
			s = &sum{}
			sums[a.Line] = s
		}
		add(&s.list, a.List)
		add(&s.contracted, a.Contracted)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	text := func(d *decimal.Decimal) string {
		if d == nil {
			return "none"
		}
		return d.String()
	}
	for line, s := range sums {
		out[line] = text(s.list) + " " + text(s.contracted)
	}
	return out
}

// Costs are grouped by what the supplier's line says, and by any of its tags, and show what was saved: list 12,
// contracted 9 and effective 6 are a quarter negotiated, a quarter committed and a rate of one half. Tax is not saved.
func TestCostsByLine(t *testing.T) {
	l := storetest.NewLog()
	price := func(list, contracted, effective string) func(*domain.BillingLine) {
		return func(l *domain.BillingLine) {
			l.ListCost, l.ContractedCost = decimal.NewNullDecimal(storetest.Dec(list)), decimal.NewNullDecimal(storetest.Dec(contracted))
			l.EffectiveCost = decimal.NewNullDecimal(storetest.Dec(effective))
			l.ServiceName, l.Tags = "Storage", `{"team":"search","n":3}`
		}
	}
	l.Append(
		recorded(billLine("1", "7", price("12", "9", "6"))),
		recorded(billLine("2", "1", price("1", "1", "1"), func(l *domain.BillingLine) { l.ChargeCategory = "Tax" })),
		recorded(billLine("3", "2", func(l *domain.BillingLine) { l.ServiceName, l.Tags = "Support", "not JSON" })),
	)
	r := report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByService, "tag:team", "tag:n"}})
	var got []string
	for _, g := range r.Groups {
		rate := "none"
		if g.SavingsRate != nil {
			rate = g.SavingsRate.String()
		}
		got = append(got, fmt.Sprint(g.Key[costs.ByService], " ", g.Key["tag:team"], " ", g.Key["tag:n"], " ", g.Effective, " ", g.Negotiated, " ", g.Committed, " ", rate))
	}
	if want := "[Storage search 3 7 3 3 0.5 Support   2 0 0 none]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	r = report(t, l, costs.Query{Month: storetest.MayBill, Where: []dimension.Condition{{Dimension: "tag:team", Values: []string{"search"}}}})
	if len(r.Totals) != 1 || r.Totals[0].Billed.String() != "8" {
		t.Errorf("totals %+v", r.Totals)
	}
}
