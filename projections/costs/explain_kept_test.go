package costs_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// What is explained from a division is what dividing again explains, but for the words of the match and the meter.
func TestExplainKeptAsDivided(t *testing.T) {
	m, err := billedTeams(2, 6, 4).Fold(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	text := func(x *costs.Explanation) string {
		x.Why = slices.DeleteFunc(x.Why, func(s string) bool { return strings.HasPrefix(s, "match method") || strings.HasPrefix(s, "meter") })
		b, err := json.Marshal(x)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	kept, slow := 0, 0
	storetest.Look(t, m, func(v projections.View) error {
		d, err := costs.Divide(v, storetest.MayBill, 1<<30)
		if err != nil {
			return err
		}
		return d.Each(costs.AllocationFilter{}, func(a *costs.Allocation) error {
			ref, err := attribution.ParseRef(a.Allocation)
			if err != nil {
				return err
			}
			x, has, err := d.ExplainKept(v, ref)
			if err != nil || !has {
				t.Fatalf("%s: %t, %v", a.Allocation, has, err)
			}
			if x == nil {
				slow++
				return nil
			}
			kept++
			full, err := costs.Explain(v, ref, nil)
			if err != nil {
				return err
			}
			if got, want := text(x), text(full); got != want {
				t.Fatalf("%s is explained as\n%s\nwant\n%s", a.Allocation, got, want)
			}
			return nil
		})
	})
	if kept < 20 || slow > kept/4 {
		t.Errorf("%d allocations were explained from the division, %d were not", kept, slow)
	}
}
