package focus_test

import (
	"strings"
	"testing"

	"quartermaster/adapters/focus"
)

// A file in the names of 1.0-preview, as Oracle's reports have them.
const previewBill = `AvailabilityZone,BilledCost,BillingAccountId,BillingCurrency,BillingPeriodEnd,BillingPeriodStart,ChargeCategory,ChargePeriodEnd,ChargePeriodStart,ChargeSubcategory,CommitmentDiscountId,EffectiveCost,InvoiceIssuer,PricingCategory,Provider,Publisher,Region,ResourceId,UsageQuantity,UsageUnit,oci_ReferenceNumber
AD-1,2.5,acct,USD,2026-06-01T00:00Z,2026-05-01T00:00Z,Usage,2026-05-02T01:00Z,2026-05-02T00:00Z,On-Demand,,2.5,Example Corp.,On-Demand,Oracle,Oracle,us-ashburn-1,ocid1,1,GPU_HOURS,r-1
AD-1,0,acct,USD,2026-06-01T00:00Z,2026-05-01T00:00Z,Usage,2026-05-02T01:00Z,2026-05-02T00:00Z,Unused Commitment,cd-1,1.5,Example Corp.,Commitment-Based,Oracle,Oracle,us-ashburn-1,,1,GPU_HOURS,r-2
AD-1,-3,acct,USD,2026-06-01T00:00Z,2026-05-01T00:00Z,Adjustment,2026-05-02T01:00Z,2026-05-02T00:00Z,Credit,,-3,,,Oracle,,,,,,r-3
`

func TestNamesOfPreview(t *testing.T) {
	r := read(t, previewBill, focus.Options{})
	if r.err != nil || r.FocusVersion != "1.0-preview" || len(r.events) != 3 || len(r.bad) > 0 || len(r.Deviations) > 0 {
		t.Fatalf("%+v, bad %v, error %v", r.Summary, r.bad, r.err)
	}
	l := r.line(0)
	if l.InvoiceIssuerName != "Example Corp." || l.ServiceProviderName != "Oracle" || l.RegionID != "us-ashburn-1" ||
		l.ConsumedQuantity.Decimal.String() != "1" || l.ConsumedUnit != "GPU_HOURS" || l.PricingCategory != "Standard" ||
		l.Other["PublisherName"] != "Oracle" || l.Other["ChargeSubcategory"] != "On-Demand" || l.FocusVersion != "1.0-preview" {
		t.Errorf("usage: %+v", l)
	}
	if l := r.line(1); l.CommitmentDiscountStatus != "Unused" || l.PricingCategory != "Committed" {
		t.Errorf("unused commitment: %+v", l)
	}
	// The third names no issuer: the rows of its account and period do.
	if l := r.line(2); l.ChargeCategory != "Credit" || l.InvoiceIssuerName != "Example Corp." {
		t.Errorf("credit: %+v", l)
	}
	if _, rows := r.warned("FOCUS 1.0-preview makes mandatory"); rows != 3 {
		t.Errorf("missing columns: %+v", r.Warnings)
	}
	for _, w := range r.Warnings {
		if strings.Contains(w.Reason, "mandatory") && (strings.Contains(w.Value, "ContractedCost") || strings.Contains(w.Value, "ChargeClass")) {
			t.Errorf("a column that preview does not have is missed: %+v", w)
		}
	}
}

// A custom column of a later version keeps its name.
func TestNamesOfPreviewInLaterFiles(t *testing.T) {
	r := read(t, bill([]string{"Region=a", "UsageQuantity=2"}), focus.Options{})
	if l := r.line(0); l.RegionID != "" || l.ConsumedQuantity.Valid || l.Other["Region"] != "a" || l.Other["UsageQuantity"] != "2" {
		t.Errorf("%+v", l)
	}
}
