package costs_test

import (
	"fmt"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// What closes a month opens the next, every month adds up, and the last balance is what all lines
// together leave.
func TestCommitmentsRollForward(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := storetest.NewLog()
		month := projections.BillingMonth(storetest.Start)
		left := map[string]domain.Decimal{}
		months := []domain.Interval{}
		for m := range rapid.IntRange(1, 5).Draw(r, "months") {
			months = append(months, month)
			for i := range rapid.IntRange(1, 6).Draw(r, "lines") {
				amount := decimal.New(rapid.Int64Range(-1e9, 1e9).Draw(r, "amount"), -rapid.Int32Range(0, 9).Draw(r, "decimals"))
				id := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "commitment")
				line := billLine(fmt.Sprint(m, "-", i), "0", func(b *domain.BillingLine) {
					b.CommitmentDiscountID = id
					b.BillingPeriodStart, b.BillingPeriodEnd = month.From, month.To
					b.ChargePeriodStart, b.ChargePeriodEnd = month.From, month.To
					switch rapid.IntRange(0, 2).Draw(r, "what") {
					case 0:
						b.ChargeCategory, b.BilledCost = "Purchase", amount
						left[id] = left[id].Add(amount)
					case 1:
						b.CommitmentDiscountStatus, b.EffectiveCost = "Unused", decimal.NewNullDecimal(amount)
						left[id] = left[id].Sub(amount)
					default:
						b.CommitmentDiscountStatus, b.EffectiveCost = "Used", decimal.NewNullDecimal(amount)
						left[id] = left[id].Sub(amount)
					}
				})
				l.Append(recorded(line))
			}
			month = projections.BillingMonth(month.To)
		}
		storetest.FoldView(t, l, func(v projections.View) {
			before := map[string]attribution.Amount{}
			for _, m := range months {
				b, err := costs.NewCommitmentBook(v, m)
				if err != nil {
					r.Fatal(err)
				}
				now := map[string]attribution.Amount{}
				for _, c := range b.Commitments {
					sum := c.Opening.Add(c.Purchased).Sub(c.Used).Sub(c.Unused).Sub(c.Expired)
					if c.Opening != before[c.Commitment] || sum != c.Closing {
						r.Fatalf("%s of %s: %+v after a balance of %s", c.Commitment, m.From, c, before[c.Commitment])
					}
					now[c.Commitment] = c.Closing
				}
				before = now
			}
			for id, want := range left {
				if got := before[id]; !got.Decimal().Equal(want) {
					r.Fatalf("%s ends at %s, want %s", id, got, want)
				}
			}
		})
	})
}
