package costs_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// A division holds as long as the tallies of what it read are the same, whatever else happens. Later
// telemetry, and bills of other months, do not change it.
func TestDivisionHoldsWhileItsInputsAreTheSame(t *testing.T) {
	same, changed := 0, 0
	q := costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByWorkspace, costs.ByComponent, costs.ByLine}}
	text := func(t *rapid.T, r *costs.Report, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		out, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	long.Check(t, 60, 10_000, func(t *rapid.T) {
		l := house()
		var d *costs.Division
		var inputs string
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) (err error) {
			if d, err = costs.Divide(v, storetest.MayBill, 1<<30); err == nil {
				inputs, err = d.Reads().Inputs(v)
			}
			return err
		})
		elsewhere := rapid.Bool().Draw(t, "elsewhere") // all events are samples of other months
		for range rapid.IntRange(1, 3).Draw(t, "events") {
			env := storetest.DrawEvent(t)
			for _, ok := env.Event.(*domain.NodeSampled); elsewhere && !ok; _, ok = env.Event.(*domain.NodeSampled) {
				env = storetest.DrawEvent(t)
			}
			if s, ok := env.Event.(*domain.NodeSampled); ok {
				days := rapid.SampledFrom([]int{0, 80}).Draw(t, "days")
				if elsewhere {
					days = 80
				}
				later := domain.Instant(days) * domain.Day
				env.Time, s.Interval.From, s.Interval.To = env.Time+later, s.Interval.From+later, s.Interval.To+later
			} else if rapid.Bool().Draw(t, "bill") {
				at := storetest.Start + domain.Instant(rapid.SampledFrom([]int{0, 20, 62, 92}).Draw(t, "charged"))*domain.Day
				env = recorded(billLine(fmt.Sprint("late-", at), "3", func(b *domain.BillingLine) {
					month := projections.BillingMonth(at)
					b.BillingPeriodStart, b.BillingPeriodEnd = month.From, month.To
					b.ChargePeriodStart, b.ChargePeriodEnd = at, at+domain.Hour
				}))
			}
			l.Append(env)
		}
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
			now, err := d.Reads().Inputs(v)
			if err != nil {
				return err
			}
			if now != inputs {
				changed++
				return nil
			}
			same++
			r, err := costs.NewReport(v, q)
			want := text(t, r, err)
			at, err := d.At(v)
			if err != nil {
				return err
			}
			r, err = at.Report(q)
			if got := text(t, r, err); got != want {
				t.Errorf("the division says\n%s\nthe rows\n%s", got, want)
			}
			return nil
		})
	})
	if !t.Failed() && (same == 0 || changed == 0) {
		t.Errorf("inputs were the same %d times and changed %d times: the test shows nothing", same, changed)
	}
}

// Costs of a month read as many rows after fourteen months of telemetry and bills as after three, if
// its invoices reconcile. Nothing of the bills is read to list the months that have any.
func TestCostsReadNoHistory(t *testing.T) {
	read := func(months int) map[projections.Table]int {
		l := billedFleet(1, 24)
		for n := range months {
			first := domain.InstantOf(storetest.MayBill.To.Time().AddDate(0, n-months, 0))
			if first == storetest.MayBill.From {
				continue // the fleet has this month
			}
			month := projections.BillingMonth(first)
			for day := first; day < month.To; day += domain.Day {
				i := domain.Interval{From: day, To: day + domain.Hour}
				l.Append(domain.Envelope{
					Source: "reporter/old", Cluster: "c1", Time: i.To,
					Event: storetest.Sample("n00000", i, storetest.Seen{ID: storetest.GPU("c1", "n00000", 0), Workspace: "a"}),
				}, recorded(billLine(fmt.Sprint("old-", day), "3", func(b *domain.BillingLine) {
					b.BillingPeriodStart, b.BillingPeriodEnd = month.From, month.To
					b.ChargePeriodStart, b.ChargePeriodEnd, b.ResourceID = i.From, i.To, "r00000"
				})))
			}
		}
		rows := map[projections.Table]int{}
		storetest.FoldView(t, l, func(v projections.View) {
			c := storetest.Count(v)
			if _, err := costs.NewReport(c, costs.Query{Month: storetest.MayBill}); err != nil {
				t.Fatal(err)
			}
			read := c.All()
			listed, err := costs.BillingMonths(c)
			if err != nil || len(listed) != months || listed[months-1] != storetest.MayBill || c.All() != read {
				t.Errorf("months with bills are %v, after %d rows: %v", listed, c.All()-read, err)
			}
			rows = maps.Clone(c.Rows)
		})
		delete(rows, projections.TableStreams) // of the sources of this test
		return rows
	}
	if few, many := read(3), read(14); !maps.Equal(few, many) || few[projections.TableUsage] == 0 {
		t.Errorf("after three months %v are read, after fourteen %v", few, many)
	}
}
