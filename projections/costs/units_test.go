package costs_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
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

// byUnit are the groups of a report by some dimensions, exactly.
func byUnit(r *costs.Report) string {
	var b strings.Builder
	for _, g := range r.Groups {
		for _, d := range r.By {
			fmt.Fprintf(&b, "%s=%s ", d, g.Key[d])
		}
		fmt.Fprintf(&b, "%s %s %s, %d %d %d, list %s %s, %d\n", g.Currency, g.Billed, g.Effective, g.Bought, g.Allocated, g.Measured,
			g.List, g.Contracted, g.Allocations)
	}
	return b.String()
}

// The house's pool line buys the time of n3, and the account's tax follows all machines: each pod and machine has its
// part of them.
func TestCostsByUnitAndNode(t *testing.T) {
	storetest.FoldView(t, house(), func(v projections.View) {
		r, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByUnit, costs.ByNode, costs.ByWorkspace}})
		if err != nil {
			t.Fatal(err)
		}
		text := byUnit(r)
		for _, want := range []string{
			"unit=chat-0 node=c/n1 workspace=a USD ", "unit=chat-0 node=c/n3 workspace=a USD ",
			"unit=train-0 node=c/n2 workspace=b USD ", "unit=train-1 node=c/n1 workspace=b USD ", "unit=train-1 node=c/n2 workspace=b USD ",
			"unit= node=c/n3 workspace=own USD ", // idle
			"unit= node= workspace=platform USD ",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("no group %q in\n%s", want, text)
			}
		}
		if strings.Contains(text, "mixed") {
			t.Errorf("something is mixed:\n%s", text)
		}
	})
}

// What units and machines cost adds up to what workspaces cost, in every figure, whatever happens. A kept month has the
// same groups as a month that is divided for the question, and so has one in memory.
func TestUnitsAddUp(t *testing.T) {
	long.Check(t, 40, 10_000, func(t *rapid.T) {
		l := house()
		for n := range rapid.IntRange(0, 2).Draw(t, "more") {
			l.Append(later(t, n)...)
		}
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.View(t.Context(), func(v projections.View) error {
			memory, err := costs.Divide(v, storetest.MayBill, 1<<30)
			if err != nil {
				return err
			}
			var form strings.Builder
			if _, _, err := costs.WriteCanonical(v, storetest.MayBill, &form); err != nil {
				return err
			}
			kept, err := costs.ReadCanonical(openBytes([]byte(form.String())))
			if err != nil {
				return err
			}
			if kept, err = kept.At(v); err != nil {
				return err
			}
			where := []dimension.Condition{{Dimension: costs.ByUnit, Values: []string{"chat-0", "train-1"}}}
			for _, by := range [][]costs.Dimension{
				{costs.ByUnit}, {costs.ByNode}, {costs.ByUnit, costs.ByNode, costs.ByWorkspace, costs.ByComponent, costs.ByHour},
				{costs.ByWorkspace, costs.ByUnit, costs.ByNode},
			} {
				for _, where := range [][]dimension.Condition{nil, where} {
					q := costs.Query{Month: storetest.MayBill, By: by, Where: where}
					want, err := costs.NewReport(v, q)
					if err != nil {
						return err
					}
					for name, d := range map[string]*costs.Division{"memory": memory, "kept": kept} {
						got, err := d.Report(q)
						if err != nil {
							return err
						}
						if byUnit(got) != byUnit(want) {
							t.Fatalf("by %v of the month in %s:\n%swant\n%s", by, name, byUnit(got), byUnit(want))
						}
					}
				}
			}
			by := func(by ...costs.Dimension) map[string]costs.Cost {
				r, err := kept.Report(costs.Query{Month: storetest.MayBill, By: by})
				if err != nil {
					t.Fatal(err)
				}
				sums := map[string]costs.Cost{}
				for _, g := range r.Groups {
					k := g.Key[costs.ByWorkspace] + " " + g.Currency
					s := sums[k]
					s.Billed, s.Effective, s.List, s.Contracted = s.Billed.Add(g.Billed), s.Effective.Add(g.Effective), s.List.Add(g.List), s.Contracted.Add(g.Contracted)
					s.Listed = s.Listed.Add(g.Listed)
					s.Bought, s.Allocated, s.Measured = s.Bought+g.Bought, s.Allocated+g.Allocated, s.Measured+g.Measured
					sums[k] = s
				}
				return sums
			}
			want := by(costs.ByWorkspace)
			got := by(costs.ByWorkspace, costs.ByUnit, costs.ByNode)
			for k := range want {
				if got[k] != want[k] {
					t.Fatalf("units and nodes of %s have %+v, want %+v", k, got[k], want[k])
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// A row of an export for a unit has the unit's part of the allocation in every column that adds up. The rows for each
// unit and for what no unit held add up to the rows of all.
func TestExportOfUnit(t *testing.T) {
	storetest.FoldView(t, house(), func(v projections.View) {
		columns := costs.ExportedColumns()
		at := func(name string) int {
			return slices.IndexFunc(columns, func(c costs.Column) bool { return c.Name == name })
		}
		added := []string{"BilledCost", "EffectiveCost", "PricingQuantity", "x_GpuSecondsBought", "x_GpuSecondsUseful"}
		export := func(where ...dimension.Condition) (sums map[string]attribution.Amount) {
			sums = map[string]attribution.Amount{}
			_, _, err := costs.Export(v, storetest.MayBill, costs.AllocationFilter{Where: where}, nil, func(row []string) error {
				for _, name := range added {
					if text := row[at(name)]; text != "" {
						a, err := attribution.ParseAmount(text)
						if err != nil {
							return err
						}
						sums[name] = sums[name].Add(a)
					}
				}
				if len(where) > 0 && row[at("x_UnitId")] != where[0].Values[0] {
					return fmt.Errorf("unit %q in an export of %v", row[at("x_UnitId")], where)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return sums
		}
		all, parts := export(), map[string]attribution.Amount{}
		for _, unit := range []string{"", "chat-0", "train-0", "train-1"} {
			some := export(dimension.Condition{Dimension: costs.ByUnit, Values: []string{unit}})
			if some["BilledCost"].IsZero() && some["EffectiveCost"].IsZero() {
				t.Errorf("unit %q costs nothing", unit)
			}
			for name, sum := range some {
				parts[name] = parts[name].Add(sum)
			}
		}
		for _, name := range added {
			if all[name].IsZero() || parts[name] != all[name] {
				t.Errorf("%s of all units is %s, want %s", name, parts[name], all[name])
			}
		}
	})
}

// Postings say which units and machines they are about: what was closed for each and what was posted is what it costs
// today, of all allocations whose cost changed.
func TestPostingsOfUnits(t *testing.T) {
	long.Check(t, 40, 10_000, func(t *rapid.T) {
		l := house()
		divide := func() (d *costs.Division) {
			m, err := l.Fold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := m.View(t.Context(), func(v projections.View) (err error) {
				d, err = costs.Divide(v, storetest.MayBill, 1<<30)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return d
		}
		units := []string{"", "chat-0", "train-0", "train-1"}
		of := func(d *costs.Division, unit string, changed map[string]bool, add func(key string, billed, effective attribution.Amount)) {
			where := []dimension.Condition{{Dimension: costs.ByUnit, Values: []string{unit}}}
			if err := d.Each(costs.AllocationFilter{Where: where}, func(a *costs.Allocation) error {
				if changed[a.Currency+a.Invoice+a.Allocation] {
					add(unit+" "+a.Currency, a.Billed, a.Effective)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		closed := divide()
		l.Append(later(t, 0)...)
		now := divide()
		posted, err := costs.Difference(closed, nil, now, projections.BillingMonth(storetest.MayBill.To), nil)
		if err != nil {
			t.Fatal(err)
		}
		changed := map[string]bool{}
		for i := range posted {
			changed[posted[i].Currency+posted[i].Invoice+posted[i].Allocation] = true
		}
		columns := costs.ExportedColumns()
		at := func(name string) int {
			return slices.IndexFunc(columns, func(c costs.Column) bool { return c.Name == name })
		}
		got, want := exactly{}, exactly{}
		for _, unit := range units {
			of(closed, unit, changed, got.add)
			of(now, unit, changed, want.add)
			where := []dimension.Condition{{Dimension: costs.ByUnit, Values: []string{unit}}}
			if _, err := costs.ExportPostings(posted, costs.AllocationFilter{Where: where}, nil, func(row []string) error {
				billed, err := attribution.ParseAmount(row[at("BilledCost")])
				if err != nil {
					return err
				}
				effective, err := attribution.ParseAmount(row[at("EffectiveCost")])
				got.add(unit+" "+row[at("BillingCurrency")], billed, effective)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got.text(), want.text()) {
			t.Fatalf("closed and posted units have\n%q\nwant\n%q", got.text(), want.text())
		}
	})
}

// What is posted for units on machines adds up to the postings, in every figure of an export of groups, as billed and in the
// currency of the books, and also after the books were closed in between and postings were kept.
func TestPostedUnitsAddUp(t *testing.T) {
	long.Check(t, 40, 10_000, func(t *rapid.T) {
		l := house()
		l.Append(booksIn("USD")[1], rateSet("EUR", "USD", "1.1234567", domain.FXAverage, storetest.MayBill))
		var kept []costs.Posting
		var closed *costs.Division
		for n := range 3 {
			m, err := l.Fold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var now *costs.Division
			var rates *costs.Rates
			if err := m.View(t.Context(), func(v projections.View) (err error) {
				if now, err = costs.Divide(v, storetest.MayBill, 1<<30); err == nil {
					rates, err = costs.ReadRates(v, storetest.MayBill)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if closed == nil {
				closed = now
				l.Append(later(t, n)...)
				continue
			}
			books := projections.BillingMonth(storetest.MayBill.To + domain.Instant(n-1)*31*domain.Day)
			posted, err := costs.Difference(closed, kept, now, books, nil)
			if err != nil {
				t.Fatal(err)
			}
			var form bytes.Buffer
			if err := costs.WritePostings(&form, posted); err != nil {
				t.Fatal(err)
			}
			if posted, err = costs.ReadPostings(form.Bytes()); err != nil {
				t.Fatal(err)
			}
			none := func(string) (*costs.Rates, error) { return nil, nil }
			for _, in := range []*costs.Rates{nil, rates} {
				sums := func(by ...costs.Dimension) map[string][]decimal.Decimal {
					all := map[string][]decimal.Decimal{}
					skip := 3 + len(by)
					_, err := costs.ExportPostedGroups(posted, &costs.MonthsQuery{Months: []domain.Interval{books}, By: by}, costs.NewPostingRates(in, none), func(row []string) error {
						k := row[3] + " " + row[2] + " " + row[skip]
						if all[k] == nil {
							all[k] = make([]decimal.Decimal, len(row)-skip-1)
						}
						for i, cell := range row[skip+1:] {
							if cell == "" {
								continue
							}
							d, err := decimal.NewFromString(cell)
							if err != nil {
								return err
							}
							all[k][i] = all[k][i].Add(d)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					return all
				}
				want, got := sums(costs.ByWorkspace), sums(costs.ByWorkspace, costs.ByUnit, costs.ByNode)
				last := len(costs.GroupColumns(nil, false)) - 5 // useful time is null where none was measured
				for k := range want {
					if fmt.Sprint(got[k][:last]) != fmt.Sprint(want[k][:last]) {
						t.Fatalf("units and machines of %s have %s, want %s", k, got[k], want[k])
					}
				}
				if len(got) != len(want) {
					t.Fatalf("groups %v, want %v", got, want)
				}
			}
			kept = append(kept, posted...)
			l.Append(later(t, n)...)
		}
	})
}
