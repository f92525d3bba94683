package instance

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// A budget that no purchases of coupled regions keep is named, whatever it counts. It was once left
// undecided until the effort of a whole search was spent.
func TestImpossibleBudgetsOfManyRegionsAreNamed(t *testing.T) {
	lp := linearOrSkip(t)
	for _, basis := range []BudgetBasis{Cash, Accrual} {
		in := &Instance{
			Format: Format, Name: "impossible", Currency: "USD", From: instant(t, "2026-01-01T00:00:00Z"), Epoch: Months, Epochs: 6,
			AnnualRate: dec("0.08"), Salvage: dec("0.5"), Limits: Limits{MaxUnservedShare: &decimal.Zero},
		}
		spans := in.Spans()
		in.Budgets = []Budget{{ID: "half", Basis: basis, Interval: domain.Interval{From: in.From, To: spans[5].To}, Amount: dec("500000")}}
		hours := 0
		for _, s := range spans {
			hours += int(hoursOf(s))
		}
		for i := range 4 {
			region, pool := fmt.Sprint("r", i), fmt.Sprint("p", i)
			in.Regions = append(in.Regions, Region{ID: region})
			price := whole(30 + i)
			in.Pools = append(in.Pools, Pool{ID: pool, Region: region, Class: "c", Unit: "vm", OnDemand: &Price{Hourly: price}})
			d := Demand{ID: fmt.Sprint("d", i), Pool: pool, Shortage: dec("300"), LatencyBudgetMS: 200, Hourly: make([]int, hours)}
			for h := range d.Hourly {
				d.Hourly[h] = 20 + 5*i + (h*7+i)%4
				if h%168 < 120 && h%24 > 7 && h%24 < 20 {
					d.Hourly[h] += 10
				}
			}
			in.Demands = append(in.Demands, d)
			for k, term := range []int{1, 3, 6} {
				in.Offers = append(in.Offers, Offer{
					ID: fmt.Sprint(pool, " offer ", k), Kind: domain.OfferReserved, Pool: pool, Term: term,
					Hourly: price.Mul(decimal.New(int64(90-10*k), -2)), GuaranteesCapacity: true,
				})
			}
			for j := range 4 {
				if j != i {
					in.Overflow = append(in.Overflow, Overflow{From: region, To: fmt.Sprint("r", j), RoundTripMS: 60, Hourly: dec("0.1")})
				}
			}
		}
		_, err := Solve(context.Background(), in, lp)
		var clash *Infeasible
		if !errors.As(err, &clash) {
			t.Fatalf("%s: %v", basis, err)
		}
		named := map[string]bool{}
		for _, c := range clash.Constraints {
			named[c.Path] = true
		}
		if !named["/budgets/0"] || !named["/limits/max_unserved_share"] {
			t.Errorf("%s: %v", basis, clash)
		}
	}
}
