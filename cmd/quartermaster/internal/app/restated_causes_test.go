package app

import (
	"fmt"
	"testing"
	"time"

	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

// TestRestatedCausesGrowWithCauses: ten times the causes take about ten times as long, not a hundred times.
func TestRestatedCausesGrowWithCauses(t *testing.T) {
	took := func(n int) time.Duration {
		var changes []costs.Posting
		for i := range 2 * n {
			changes = append(changes, costs.Posting{
				Type: costs.PostedReattribution, Currency: "USD", Billed: attribution.Whole(1), Causes: []string{fmt.Sprint("UsageCorrected c/", i%n)},
			})
		}
		best := time.Hour
		for range 5 {
			start := time.Now()
			all := restatedCauses(changes)
			best = min(best, time.Since(start))
			if len(all) != n || all[0].Postings != 2 || all[0].Billed != attribution.Whole(2) {
				t.Fatalf("%d causes, the first %+v, want %d", len(all), all[0], n)
			}
		}
		return best
	}
	few, many := took(1_000), took(10_000)
	t.Logf("1,000 causes %s, 10,000 %s", few, many)
	if many > 40*few {
		t.Errorf("1,000 causes take %s, 10,000 take %s", few, many)
	}
}
