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

// What is prepaid goes on with a renewal, and expires once when the commitment ends.
func TestCommitmentsExpireOnce(t *testing.T) {
	months := []domain.Interval{projections.BillingMonth(storetest.Start)}
	for len(months) < 6 {
		months = append(months, projections.BillingMonth(months[len(months)-1].To))
	}
	l := storetest.NewLog()
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), storetest.Start-10*domain.Day),
		storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.CommitmentPurchased{
			Commitment: "a", Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "gpu-2", GPUModel: "H100 80GB",
			GPUsPerUnit: 2, Units: 1, Term: domain.Interval{From: months[0].From, To: months[1].To}, Upfront: *storetest.USD("100"), Hourly: *storetest.USD("0"),
		}}),
		storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.CommitmentRenewed{
			Commitment: "a", Units: 1, Term: domain.Interval{From: months[1].To, To: months[3].To}, Upfront: *storetest.USD("0"), Hourly: *storetest.USD("0"),
		}}),
	)
	line := func(m int, category, billed, effective string) {
		l.Append(recorded(billLine(fmt.Sprint(m, category), billed, func(b *domain.BillingLine) {
			b.CommitmentDiscountID, b.ChargeCategory, b.EffectiveCost = "a", category, decimal.NewNullDecimal(storetest.Dec(effective))
			b.BillingPeriodStart, b.BillingPeriodEnd = months[m].From, months[m].To
			b.ChargePeriodStart, b.ChargePeriodEnd = months[m].From, months[m].To
		})))
	}
	line(0, "Purchase", "100", "0")
	line(0, "Usage", "0", "30")
	line(1, "Usage", "0", "30")
	line(5, "Purchase", "7", "0") // after its end
	storetest.FoldView(t, l, func(v projections.View) {
		for m, want := range []string{"0 70 0", "70 40 0", "40 40 0", "40 0 40", "", "0 7 0"} {
			b, err := costs.NewCommitmentBook(v, months[m])
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, c := range b.Commitments {
				got = fmt.Sprint(c.Opening, " ", c.Closing, " ", c.Expired)
			}
			if got != want {
				t.Errorf("month %d: opening, closing, expired %q, want %q", m+1, got, want)
			}
		}
	})
}

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
