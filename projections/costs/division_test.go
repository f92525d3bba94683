package costs_test

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"

	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/dimension"
	"quartermaster/projections/storetest"
)

// A stored division answers every query like the rows do, also concurrently.
func TestDivisionAnswersAsRowsDo(t *testing.T) {
	for name, l := range map[string]*storetest.Log{"classified": classified(), "fleet": billedFleet(3, 30)} {
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var d, canonical *costs.Division
		want := map[string]string{} // by query
		var queries []costs.Query
		var filters []costs.AllocationFilter
		for _, by := range costs.Dimensions() {
			queries = append(queries, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{by}, Largest: 2},
				costs.Query{Month: storetest.MayBill, By: []costs.Dimension{by}, Workspace: "team-1", LargestBy: costs.Billed},
				costs.Query{Month: storetest.MayBill, By: []costs.Dimension{by}, Where: []dimension.Condition{{Dimension: costs.ByComponent, Values: []string{"allocated"}}}})
		}
		filters = append(filters, costs.AllocationFilter{}, costs.AllocationFilter{Workspace: "team-2"},
			costs.AllocationFilter{Where: []dimension.Condition{{Dimension: costs.ByWorkloadClass, Values: []string{"training", "unknown"}}}})
		text := func(v any) string {
			out, err := json.Marshal(v)
			if err != nil {
				t.Error(err)
			}
			return string(out)
		}
		list := func(each func(costs.AllocationFilter, func(*costs.Allocation) error) error, f costs.AllocationFilter) string {
			all := []costs.Allocation{}
			if err := each(f, func(a *costs.Allocation) error { all = append(all, *a); return nil }); err != nil {
				t.Error(err)
			}
			return text(all)
		}
		if err := m.View(t.Context(), func(v projections.View) (err error) {
			for _, q := range queries {
				r, err := costs.NewReport(v, q)
				if err != nil {
					return err
				}
				want[text(q)] = text(r)
			}
			for _, f := range filters {
				want[text(f)] = list(func(f costs.AllocationFilter, yield func(*costs.Allocation) error) error {
					return costs.EachAllocation(v, storetest.MayBill, f, yield)
				}, f)
			}
			if _, err := costs.Divide(v, storetest.MayBill, 1000); !errors.Is(err, costs.ErrTooLarge) {
				t.Errorf("%s: within 1000 bytes: %v", name, err)
			}
			if d, err = costs.Divide(v, storetest.MayBill, 1<<30); err != nil {
				return err
			}
			if canonical, err = costs.ReadCanonical(openBytes(canonicalForm(t, v, storetest.MayBill))); err != nil {
				return err
			}
			canonical, err = canonical.At(v)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if d.Bytes() < 1000 {
			t.Errorf("%s: it says that it takes %d bytes", name, d.Bytes())
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				for i, q := range append(queries, queries...) {
					d := d
					if i >= len(queries) {
						d = canonical
					}
					if r, err := d.Report(q); err != nil || text(r) != want[text(q)] {
						t.Errorf("%s: %+v: %v\nkept %s\nrows %s", name, q, err, text(r), want[text(q)])
					}
				}
				for _, f := range filters {
					for _, d := range []*costs.Division{d, canonical} {
						if got := list(d.Each, f); got != want[text(f)] {
							t.Errorf("%s: %+v: kept %s\nrows %s", name, f, got, want[text(f)])
						}
					}
				}
			})
		}
		all.Wait()
		if _, err := d.Report(costs.Query{Month: projections.BillingMonth(storetest.MayBill.From - 1)}); err == nil {
			t.Errorf("%s: it answers about another month", name)
		}
	}
}
