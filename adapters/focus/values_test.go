package focus_test

import (
	"encoding/json"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
)

func TestBadRowsAreLocatedAndTheRestGoesIn(t *testing.T) {
	utc, berlin := focus.Options{Zone: "UTC"}, focus.Options{Zone: "Europe/Berlin"}
	for _, c := range []struct {
		opts   focus.Options
		change string // separated by ';'
		field  string
		reason string
	}{
		{utc, "BilledCost=", "BilledCost", "is null"},
		{utc, "BilledCost=NULL", "BilledCost", "is null"},
		{utc, "BilledCost=1,234.50", "BilledCost", "has a comma"},
		{utc, "BilledCost=1.234,50", "BilledCost", "has a comma"},
		{utc, "BilledCost=$5", "BilledCost", "has a currency sign"},
		{utc, "BilledCost=+5", "BilledCost", "has a plus sign"},
		{utc, "BilledCost=--5", "BilledCost", "is not a number"},
		{utc, "BilledCost=5-", "BilledCost", "is not a number"},
		{utc, "BilledCost=.", "BilledCost", "is not a number"},
		{utc, "BilledCost=-", "BilledCost", "is not a number"},
		{utc, "BilledCost=1.2.3", "BilledCost", "is not a number"},
		{utc, "BilledCost=1e", "BilledCost", "is not a number"},
		{utc, "BilledCost=1e1.5", "BilledCost", "is not a number"},
		{utc, "BilledCost=0x10", "BilledCost", "is not a number"},
		{utc, "BilledCost=NaN", "BilledCost", "is not a number"},
		{utc, "BilledCost=Infinity", "BilledCost", "is not a number"},
		{utc, "BilledCost=1e999999999", "BilledCost", "its exponent is beyond 1100"},
		{utc, "EffectiveCost=1e-999999999999999999999", "EffectiveCost", "its exponent is beyond 1100"},
		{utc, "EffectiveCost=1e-1101", "EffectiveCost", "its exponent is beyond 1100"},
		{utc, "EffectiveCost=0.1e-1100", "EffectiveCost", "has 1101 decimals, at most 1100 are read"},
		{utc, "EffectiveCost=" + strings.Repeat("1", 1<<19), "EffectiveCost", "more than 1100 characters"},
		{utc, "BilledCost=999999999999999.9999999999999999999", "BilledCost", "is 1e15 or more"},
		{utc, "CommitmentDiscountStatus=unused", "CommitmentDiscountStatus", "is unknown"},
		{utc, "EffectiveCost=n/a", "EffectiveCost", "is not a number"},
		{utc, "BilledCost=1e15", "BilledCost", "is 1e15 or more, too large for attribution"},
		{utc, "BilledCost=-1000000000000000", "BilledCost", "is 1e15 or more"},
		{utc, "EffectiveCost=1000000000000000.01", "EffectiveCost", "is 1e15 or more"},
		{utc, "ChargePeriodStart=2025-04-03T23:59:59Z;BillingPeriodEnd=2026-06-01T00:00:00Z", "ChargePeriodEnd", "is more than 13 months after ChargePeriodStart 2025-04-03T23:59:59Z"},
		{utc, "ChargePeriodStart=2024-01-01T00:00:00Z;ChargeClass=Correction", "ChargePeriodEnd", "is more than 13 months"},
		{utc, "BilledCost=" + strings.Repeat("0", 1101), "BilledCost", "more than 1100 characters"},
		{utc, "ChargeCategory=usage", "ChargeCategory", "is unknown, want Usage"},
		{utc, "ChargeCategory=", "ChargeCategory", "is null"},
		{utc, "BillingCurrency=usd", "BillingCurrency", "is not an ISO 4217 code"},
		{utc, "BillingCurrency=", "BillingCurrency", "is null"},
		{focus.Options{Currency: "EUR"}, "", "BillingCurrency", "is not EUR"},
		{utc, "BillingAccountId=", "BillingAccountId", "is null"},
		{utc, "InvoiceIssuerName=;BillingAccountId=b", "InvoiceIssuerName", "is null, and neither another row nor another column"},
		{utc, "BillingAccountId=" + strings.Repeat("a", 300), "BillingAccountId", "at most 256"},
		{utc, "BillingAccountId=a\x00b", "BillingAccountId", "control characters"},
		{utc, "ResourceId=a\xffb", "ResourceId", "not UTF-8"},
		{focus.Options{}, "BillingPeriodStart=2026-05-01 00:00:00", "BillingPeriodStart", "has no time zone"},
		{focus.Options{}, "ChargePeriodEnd=2026-05-04", "ChargePeriodEnd", "has no time zone"},
		{berlin, "ChargePeriodStart=2026-03-29 02:30:00;ChargeClass=Correction", "ChargePeriodStart", "does not exist in Europe/Berlin"},
		{berlin, "ChargePeriodStart=2025-10-26 02:30:00;ChargeClass=Correction", "ChargePeriodStart", "happened twice in Europe/Berlin"},
		{utc, "ChargePeriodStart=5/1/26", "ChargePeriodStart", "May to some"},
		{utc, "ChargePeriodStart=2026-05-32T00:00:00Z", "ChargePeriodStart", "is not a time"},
		{utc, "ChargePeriodStart=1726000000", "ChargePeriodStart", "is not a time"},
		{utc, "ChargePeriodStart=0001-01-01T00:00:00Z", "ChargePeriodStart", "is outside the years"},
		{utc, "BillingPeriodEnd=2026-05-01T00:00:00Z", "BillingPeriodEnd", "is not after BillingPeriodStart"},
		{utc, "ChargePeriodEnd=2026-05-02T00:00:00Z", "ChargePeriodEnd", "is not after ChargePeriodStart"},
		{utc, "ChargePeriodStart=2026-06-01T00:00:00Z;ChargePeriodEnd=2026-06-02T00:00:00Z", "ChargePeriodStart", "is usage after the end of the billing period"},
		{utc, "x_Generated=yes", "x_Generated", "is neither true nor false"},
		{utc, "x_LineId=l1;x_CorrectsLineId=l1", "x_CorrectsLineId", "is the line itself"},
		{utc, "x_LineId=" + strings.Repeat("l", 257), "x_LineId", "at most 256"},
		{utc, "x_CorrectsLineId=" + strings.Repeat("l", 257), "x_CorrectsLineId", "at most 256"},
	} {
		change := strings.Split(c.change, ";")
		good := []string{}
		if c.opts.Currency != "" {
			good = []string{"BillingCurrency=" + c.opts.Currency}
		}
		r := read(t, bill(change, good), c.opts)
		if r.err != nil || r.Rows != 2 || len(r.bad) != 1 || len(r.events) != 1 {
			t.Errorf("%q: %+v, bad %v, error %v, want one bad row and the event of the other", c.change, r.Summary, r.bad, r.err)
			continue
		}
		if b := r.bad[0]; b.File != "f.csv" || b.Line != 2 || b.Field != c.field || !strings.Contains(b.Reason, c.reason) {
			t.Errorf("%q: bad row %+v, want line 2, field %q, reason %q", c.change, b, c.field, c.reason)
		}
	}
}

func TestWhatFocusAllowsIsRead(t *testing.T) {
	for change, want := range map[string]string{
		"BilledCost=0.00000080000":                       `"BilledCost":"0.0000008"`,
		"BilledCost=-999999999999999.999999999999999999": `"BilledCost":"-999999999999999.999999999999999999"`,
		"ListCost=123456789012345678.123456789012345678": `"ListCost":"123456789012345678.123456789012345678"`,
		"BilledCost=-0":                                                `"BilledCost":"0"`,
		"BilledCost=0.00 ":                                             `"BilledCost":"0"`,
		"BilledCost=1.00000000000000000000000":                         `"BilledCost":"1"`,
		"BilledCost=35.2E-7":                                           `"BilledCost":"0.00000352"`,
		"BilledCost=1.5e+3":                                            `"BilledCost":"1500"`,
		"ListCost=999999999999999999999999":                            `"ListCost":"999999999999999999999999"`,
		"PricingQuantity=200000000;PricingUnit=Hours":                  `"PricingQuantity":"200000000"`,
		"PricingQuantity=1e18;PricingUnit=GB-Hours":                    `"PricingQuantity":"1000000000000000000"`,
		"ConsumedQuantity=720000000000;ConsumedUnit=Seconds":           `"ConsumedQuantity":"720000000000"`,
		"ChargePeriodStart=2025-04-04T00:00:00Z":                       `"ChargePeriodStart":"2025-04-04T00:00:00Z"`,
		"ChargeCategory=Purchase;ChargePeriodEnd=2029-05-03T00:00:00Z": `"ChargePeriodEnd":"2029-05-03T00:00:00Z"`,
		"ChargePeriodStart=2026-05-03T02:00:00+02:00":                  `"ChargePeriodStart":"2026-05-03T00:00:00Z"`,
		"ChargePeriodStart=2026-05-03T00:00Z":                          `"ChargePeriodStart":"2026-05-03T00:00:00Z"`,
		"ChargePeriodStart=2026-05-03 00:00:00 UTC":                    `"ChargePeriodStart":"2026-05-03T00:00:00Z"`,
		"ChargePeriodStart=2026-05-03 01:02:03.5Z":                     `"ChargePeriodStart":"2026-05-03T01:02:03.5Z"`,
		"ChargeClass=Correction;ConsumedQuantity=-5":                   `"ConsumedQuantity":"-5"`,
		"BilledCost=-5;PricingQuantity=-1":                             `"PricingQuantity":"-1"`,
		"ListCost=-5;PricingQuantity=-1":                               `"PricingQuantity":"-1"`,
		"ChargeCategory=Credit;PricingQuantity=-1":                     `"PricingQuantity":"-1"`,
		"ChargeClass=Correction;ChargePeriodStart=2025-05-03T00:00:00Z;ChargePeriodEnd=2025-05-04T00:00:00Z":  `"ChargeClass":"Correction"`,
		"ChargeCategory=Purchase;ChargePeriodStart=2026-06-01T00:00:00Z;ChargePeriodEnd=2027-06-01T00:00:00Z": `"ChargePeriodEnd":"2027-06-01T00:00:00Z"`,
		"RESOURCEID=i-1":               `"ResourceId":"i-1"`,
		"skupriceid=s":                 `"SkuPriceId":"s"`,
		"ResourceId= i-1 ":             `"ResourceId":"i-1"`,
		`Tags={"a": "b,c"}`:            `"Tags":"{\"a\": \"b,c\"}"`,
		"x_Plan=gold":                  `"Other":{"x_Plan":"gold"}`,
		"x_Generated=True":             `"x_Generated":true`,
		"x_LineId=l-9":                 `"x_LineId":"l-9"`,
		"x_FocusVersion=1.1":           `"x_FocusVersion":"1.1"`,
		"ProviderName=AWS":             `"ServiceProviderName":"AWS","Other":{"ProviderName":"AWS"},"x_FocusVersion":"1.0"`,
		"ChargeDescription=two\nlines": `"ChargeDescription":"two\nlines"`,
		"ResourceName=(null)":          `"InvoiceIssuerName":"Example Cloud","x_FocusVersion":"1.0"`,
		"InvoiceIssuerName=;ProviderName=AWS;PublisherName=P": `"InvoiceIssuerName":"AWS"`,
		"InvoiceIssuerName=;ProviderName=;PublisherName=P":    `"InvoiceIssuerName":"P"`,
	} {
		r := read(t, bill(strings.Split(change, ";")), focus.Options{})
		if r.err != nil || len(r.events) != 1 {
			t.Errorf("%q: bad %v, error %v", change, r.bad, r.err)
			continue
		}
		b, err := json.Marshal(r.events[0].Event)
		if want = strings.TrimSuffix(want, "}"); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%q: %s, want %s", change, b, want)
		}
	}
}
