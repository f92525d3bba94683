package focus

import (
	"context"
	"os"
	"strings"
	"testing"

	"quartermaster/domain"
)

// The columns of FOCUS whose value can refuse a row with money. The package comment gives the
// reason for each.
var canRefuse = []string{
	"BilledCost", "EffectiveCost",
	"BillingAccountId", "BillingCurrency", "InvoiceDetailId", "InvoiceId", "InvoiceIssuerName",
	"BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart",
	"CapacityReservationStatus", "ChargeCategory", "CommitmentDiscountStatus", "ServiceCategory",
	"CapacityReservationId", "CommitmentDiscountId", "RegionId", "ResourceId", "SkuId",
	"ConsumedUnit", "PricingUnit",
}

func TestOnlyTheseColumnsRefuseARow(t *testing.T) {
	can := map[string]bool{}
	for _, name := range canRefuse {
		can[name] = true
	}
	row := map[string]string{
		"BilledCost": "12.5", "BillingAccountId": "a", "BillingCurrency": "USD", "ChargeCategory": "Usage", "InvoiceIssuerName": "Cloud",
		"BillingPeriodStart": "2026-05-01T00:00:00Z", "BillingPeriodEnd": "2026-06-01T00:00:00Z",
		"ChargePeriodStart": "2026-05-01T00:00:00Z", "ChargePeriodEnd": "2026-05-02T00:00:00Z",
		"PricingUnit": "Hours", "ConsumedUnit": "GPU-Hours",
	}
	refuses := func(name, value string) bool {
		header, values := []string{name}, []string{`"` + strings.ReplaceAll(value, `"`, `""`) + `"`}
		for column, v := range row {
			if column != name {
				header, values = append(header, column), append(values, v)
			}
		}
		text := strings.Join(header, ",") + "\n" + strings.Join(values, ",") + "\n"
		sum, err := Run(context.Background(), strings.NewReader(text), strings.NewReader(text), "f.csv", Options{}, func(*domain.Envelope) error { return nil }, nil)
		if err != nil || sum.Rows != 1 || sum.Bad+sum.Events != 1 {
			t.Fatalf("%s %.20q: %+v, error %v", name, value, sum, err)
		}
		return sum.Bad == 1
	}
	for i := range fields {
		name, refused := fields[i].name, ""
		for _, value := range []string{"a\x01b", "caf\xe9", strings.Repeat("é", 40_000), `{"a":"\x01"}`, "N/A", "1,5", "-2", "1e30", "0.12345678901234567890123", "Partial"} {
			if refuses(name, value) {
				refused = value
			}
		}
		if (refused != "") != can[name] {
			t.Errorf("%s: refused by %.20q, and listed: %v", name, refused, can[name])
		}
	}
	comment, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(comment), "// Only these columns of FOCUS can refuse a row by their value:")
	list, _, _ = strings.Cut(list, "// Of our own columns")
	words := map[string]bool{}
	for _, w := range strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(" ,;:\n/", r) }) {
		words[w] = true
	}
	for i := range fields {
		if name := fields[i].name; words[name] != can[name] {
			t.Errorf("the package comment lists %s: %v", name, words[name])
		}
	}
}
