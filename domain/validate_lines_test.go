package domain_test

import (
	"fmt"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
)

// LineValidator gives the verdict of Validate, whatever lines came before.
func TestLineValidator(t *testing.T) {
	text := rapid.SampledFrom([]string{"", "a", "a\x01", "Usage", "Usage-Based", "Used", "USD", "x\xff"})
	number := rapid.Custom(func(t *rapid.T) domain.NullDecimal {
		return domain.NullDecimal{Decimal: decimal.New(rapid.Int64Range(-2, 2).Draw(t, "n"), rapid.Int32Range(-20, 25).Draw(t, "exponent")), Valid: rapid.Bool().Draw(t, "valid")}
	})
	rapid.Check(t, func(t *rapid.T) {
		var v domain.LineValidator
		line := domain.BillingLine{
			LineID: "l", InvoiceIssuerName: "i", BillingAccountID: "a", BillingCurrency: "USD", ChargeCategory: "Usage",
			BillingPeriodStart: 0, BillingPeriodEnd: 1, ChargePeriodStart: 0, ChargePeriodEnd: 1, Other: map[string]string{},
		}
		texts := []*string{
			&line.LineID, &line.BillingCurrency, &line.ChargeCategory, &line.ChargeClass, &line.ChargeFrequency, &line.ResourceID, &line.Tags,
			&line.CommitmentDiscountStatus, &line.SKUID, &line.FocusVersion,
		}
		numbers := []*domain.NullDecimal{&line.ListCost, &line.EffectiveCost, &line.ListUnitPrice, &line.PricingQuantity}
		for range rapid.IntRange(1, 12).Draw(t, "lines") {
			before := line
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				*rapid.SampledFrom(texts).Draw(t, "column") = text.Draw(t, "text")
			case 1:
				*rapid.SampledFrom(numbers).Draw(t, "column") = number.Draw(t, "number")
			case 2:
				line.BilledCost = number.Draw(t, "billed").Decimal
				line.ListUnitPrice = domain.NullDecimal{Decimal: line.BilledCost, Valid: true}
			case 3:
				line.Other[rapid.SampledFrom([]string{"x", "y", "z\x01"}).Draw(t, "name")] = text.Draw(t, "text")
			case 4:
				line.ChargePeriodEnd = domain.Instant(rapid.Int64Range(0, 2).Draw(t, "end"))
			}
			env := domain.Envelope{Time: 1, Event: &domain.BillingLineRecorded{Line: line}}
			if got, want := v.Validate(&env), domain.Validate(&env); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			if domain.Validate(&env) != nil && rapid.Bool().Draw(t, "mend") {
				other := line.Other
				line = before
				line.Other = other
				clear(line.Other)
			}
		}
	})
}
