package focus_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
)

// A charge is never lost for a column that attribution does not need. Each deviation occurred in
// a bill or is named in FOCUS's own documents.
func TestRowsWithMoneyGoIn(t *testing.T) {
	long := strings.Repeat("é", 3000)
	for _, c := range []struct {
		change string // separated by ';'
		column string // whose original text is kept
		field  string // value of the column in the line
		kind   focus.Deviation
	}{
		{"ChargeFrequency=Usage-based", "ChargeFrequency", "", focus.UnknownValue}, // the sample of the FOCUS project
		{"ChargeFrequency=Monthly", "ChargeFrequency", "", focus.UnknownValue},
		{"PricingCategory=Spot", "PricingCategory", "", focus.UnknownValue},
		{"PricingCategory=On-Demand", "PricingCategory", "", focus.UnknownValue}, // FOCUS 0.5
		{"ChargeClass=Corrected", "ChargeClass", "", focus.UnknownValue},
		{"CommitmentDiscountCategory=spend", "CommitmentDiscountCategory", "", focus.UnknownValue},
		{"ContractedUnitPrice=-3.00000000000", "ContractedUnitPrice", "", focus.NegativePrice}, // the sample of the FOCUS project
		{"ListUnitPrice=-1e-3", "ListUnitPrice", "", focus.NegativePrice},
		{"ListCost=N/A", "ListCost", "", focus.NotANumber},
		{"ContractedCost=1,234.50", "ContractedCost", "", focus.NotANumber},
		{"ListUnitPrice=$5", "ListUnitPrice", "", focus.NotANumber},
		{"ListCost=1e24", "ListCost", "", focus.NotANumber},
		{"PricingQuantity=1,000;PricingUnit=Requests", "PricingQuantity", "", focus.NotANumber},
		{"BilledCost=0.00000123456789012345678", "BilledCost", "0.000001234567890123", focus.MoreDecimals}, // Azure has 23
		{"EffectiveCost=1.2345678901234567895", "EffectiveCost", "1.23456789012345679", focus.MoreDecimals},
		{"ListUnitPrice=1e-30", "ListUnitPrice", "0", focus.MoreDecimals},
		{"PricingQuantity=0.33333333333333333333;PricingUnit=Hours", "PricingQuantity", "0.333333333333333333", focus.MoreDecimals},
		{"ResourceName=" + long, "ResourceName", long[:4096], focus.BrokenText},
		{"ChargeDescription=a\x01b\xff", "ChargeDescription", "a\uFFFDb\uFFFD", focus.BrokenText},
		{"ConsumedQuantity=-1;ConsumedUnit=Requests", "", "", focus.NegativeQuantity},
		{"PricingQuantity=-0.5;EffectiveCost=0", "", "", focus.NegativeQuantity},
		{"CommitmentDiscountQuantity=-1;ChargeCategory=Purchase", "", "", focus.NegativeQuantity},
		{"x_Note=a\x01b", "", "", focus.BrokenText},
		{"Tags={\"a\":\"\x01\"}", "Tags", "a", focus.BrokenText},
		{"Tags={\"a\":\"\xe9\"}", "Tags", "a", focus.BrokenText},
		{"SkuPriceDetails={\"InstanceType\":\"p5\",\"x_a\":\"\x01" + strings.Repeat("x", 5000) + "\"}", "SkuPriceDetails", "p5", focus.BrokenText},
		{"ResourceType=M\xe1quina", "ResourceType", "M", focus.BrokenText},
		{"SubAccountId=a\x01", "SubAccountId", "a", focus.BrokenText},
		{"PricingQuantity=N/A;PricingUnit=Hours", "PricingQuantity", "", focus.NotANumber},
		{"PricingQuantity=1,5;PricingUnit=Hours", "PricingQuantity", "", focus.NotANumber},
		{"PricingQuantity=-2;PricingUnit=Hours", "PricingQuantity", "", focus.UnusableQuantity},
		{"PricingQuantity=-2;PricingUnit=Hours;BilledCost=0", "PricingQuantity", "", focus.UnusableQuantity},
		{"ConsumedQuantity=-2;ConsumedUnit=GPU-Hours", "ConsumedQuantity", "", focus.UnusableQuantity},
		{"PricingQuantity=200000001;PricingUnit=Hours", "PricingQuantity", "", focus.UnusableQuantity},
		{"PricingQuantity=2000001;PricingUnit=100 Hours", "PricingQuantity", "", focus.UnusableQuantity},
		{"ConsumedQuantity=8333333.4;ConsumedUnit=GPU-Days", "ConsumedQuantity", "", focus.UnusableQuantity},
		{"PricingQuantity=-1e12;PricingUnit=Seconds;BilledCost=-1", "PricingQuantity", "", focus.UnusableQuantity},
		{"PricingQuantity=1.2;PricingUnit=1000000 Weeks", "PricingQuantity", "", focus.UnusableQuantity},
	} {
		name, written, _ := strings.Cut(strings.Split(c.change, ";")[0], "=")
		row := strings.Split(c.change, ";")
		r := read(t, bill(row, []string{"BilledCost=7"}), focus.Options{})
		if r.err != nil || len(r.events) != 2 {
			t.Errorf("%q: bad %v, error %v", c.change, r.bad, r.err)
			continue
		}
		l := r.line(0)
		if fmt.Sprint(r.Deviations) != fmt.Sprintf("map[%s:1]", c.kind) {
			t.Errorf("%q: deviations %v", c.change, r.Deviations)
		}
		if values, n := r.warned(name + " "); n != 1 || c.kind == focus.UnknownValue && values[0] != written {
			t.Errorf("%q: warnings %+v", c.change, r.Warnings)
		}
		if c.column != "" {
			want := strings.ToValidUTF8(strings.ReplaceAll(written, "\x01", "\uFFFD"), "\uFFFD")
			if got := l.Other[domain.AsWritten(c.column)]; got != want {
				t.Errorf("%q: %q is kept", c.change, got)
			}
			if got := asJSON(t, l); c.field == "" == strings.Contains(got, `"`+c.column+`":`) || !strings.Contains(got, c.field) {
				t.Errorf("%q: %s", c.change, got)
			}
		} else if c.kind == focus.NegativeQuantity && !strings.Contains(asJSON(t, l), `"`+written+`"`) {
			t.Errorf("%q: %s", c.change, asJSON(t, l))
		}
		if o := r.line(1).Other; o[domain.AsWritten(c.column)] != "" {
			t.Errorf("%q: the next row has it too: %v", c.change, o)
		}
		strict := read(t, bill(row, []string{"BilledCost=7"}), focus.Options{Strict: true})
		if len(strict.bad) != 1 || strict.bad[0].Field != name || strict.bad[0].Line != 2 || len(strict.events) != 1 {
			t.Errorf("%q: with Strict bad %v", c.change, strict.bad)
		}
	}
}

// A broken text is mended in a column that says when the export was made too: a snapshot would be refused for a bad row.
func TestBrokenTextOfExportTime(t *testing.T) {
	row := []string{"export_time=a\x01b"}
	r := read(t, bill(row), focus.Options{ExportTime: focus.ExportTimeColumns})
	if len(r.bad) != 0 || len(r.events) != 1 || r.line(0).Other["export_time"] != "a\uFFFDb" {
		t.Errorf("bad %v, events %+v", r.bad, r.events)
	}
	strict := read(t, bill(row), focus.Options{ExportTime: focus.ExportTimeColumns, Strict: true})
	if len(strict.bad) != 1 || strict.bad[0].Field != "export_time" {
		t.Errorf("with Strict bad %v", strict.bad)
	}
}

// FOCUS allows exponents, so there is no warning.
func TestExponentsAreNoDeviation(t *testing.T) {
	r := read(t, bill([]string{"BilledCost=35.2E-7", "ListCost=1.5e+3"}), focus.Options{Strict: true})
	if len(r.events) != 1 || len(r.Deviations) != 0 || r.line(0).Other != nil || r.line(0).BilledCost.String() != "0.00000352" {
		t.Errorf("%+v, bad %v", r.Summary, r.bad)
	}
}

// Rounding differences of costs are summed exactly, by invoice.
func TestRoundingIsCountedByInvoice(t *testing.T) {
	fine := "BilledCost=0.00000123456789012345678"
	r := read(t, bill(
		[]string{"InvoiceId=i", fine, "EffectiveCost=1e-19"},
		[]string{"InvoiceId=i", "BilledCost=-0.00000000000000000051"},
		[]string{"InvoiceId=j", "EffectiveCost=0.0000000000000000006"},
		[]string{"InvoiceId=j", "ListCost=0.0000000000000000006"},
		[]string{"InvoiceId=k", fine, "ChargePeriodEnd=x"},
		[]string{fine},
	), focus.Options{})
	type sum struct{ invoice, lines, billed, effective string }
	var got []sum
	for _, x := range r.Rounded {
		if x.Issuer != "Example Cloud" || x.Account != "a-1" || x.Currency != "USD" || (x.Invoice == "") == (x.Period == domain.Interval{}) {
			t.Errorf("rounded %+v", x)
		}
		got = append(got, sum{x.Invoice, fmt.Sprint(x.Lines), x.Billed.String(), x.Effective.String()})
	}
	want := []sum{
		{"i", "2", "0.00000000000000000094678", "0.0000000000000000001"},
		{"j", "1", "0", "-0.0000000000000000004"},
		{"", "1", "0.00000000000000000045678", "0"},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || r.Deviations[focus.MoreDecimals] != 6 || len(r.bad) != 1 {
		t.Errorf("rounded %v, want %v; %v, bad %v", got, want, r.Deviations, r.bad)
	}
	inv := read(t, invoiceHeader+detail("I", "d", "0.0000000000000000016")+detail("I", "e", "5"), focus.Options{})
	if len(inv.events) != 1 || len(inv.Rounded) != 1 || inv.Rounded[0].Billed.String() != "-0.0000000000000000004" || inv.Rounded[0].Invoice != "I" {
		t.Errorf("invoice: %+v, bad %v", inv.Summary, inv.bad)
	}
}

// A supplier's custom column whose name looks like that of a kept text never replaces the value
// of the line.
func TestWriterTrustsNoTextThatReadsOtherwise(t *testing.T) {
	for column, text := range map[string]string{
		"BilledCost": "13", "EffectiveCost": "0.1234567890123456789", "PricingCategory": "Committed", "ListUnitPrice": "1", "ChargeDescription": "short",
		"ListCost": " n/a", "ChargeFrequency": "NULL", "ResourceId": strings.Repeat("r", 5000), "ChargePeriodEnd": "2026",
	} {
		l := machine()
		l.Other = map[string]string{domain.AsWritten(column): text}
		if err := focus.NewWriter(&bytes.Buffer{}).WriteLine(l); err == nil || !strings.Contains(err.Error(), `line "l1"`) {
			t.Errorf("%s: error %v", column, err)
		}
		var b bytes.Buffer
		w := focus.NewWriter(&b, domain.AsWritten(column))
		if err := w.WriteLine(l); err != nil || w.Flush() != nil {
			t.Fatal(err)
		}
		r := read(t, b.String(), focus.Options{})
		if len(r.events) != 1 || !r.line(0).BilledCost.Equal(decimal.RequireFromString("12.50000000001")) || len(r.Deviations) != 0 {
			t.Errorf("%s: %+v, bad %v", column, r.Summary, r.bad)
		}
	}
}
