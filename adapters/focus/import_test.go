package focus_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// The columns that must be there, and a row under them in which cells can be
// changed by name.
var (
	columns = []string{
		"BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodStart", "BillingPeriodEnd", "ChargeCategory",
		"ChargePeriodStart", "ChargePeriodEnd", "InvoiceIssuerName",
	}
	cells = []string{
		"12.5", "a-1", "USD", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z", "Usage",
		"2026-05-03T00:00:00Z", "2026-05-04T00:00:00Z", "Example Cloud",
	}
)

// bill writes a file with the needed columns and those given as name=value, one
// row for each list of them.
func bill(rows ...[]string) string {
	header := append([]string(nil), columns...)
	at := map[string]int{}
	for i, c := range header {
		at[c] = i
	}
	for _, row := range rows {
		for _, cell := range row {
			name, _, _ := strings.Cut(cell, "=")
			if _, ok := at[name]; !ok {
				at[name] = len(header)
				header = append(header, name)
			}
		}
	}
	var b strings.Builder
	b.WriteString(strings.Join(header, ",") + "\n")
	for _, row := range rows {
		values := make([]string, len(header))
		copy(values, cells)
		for _, cell := range row {
			name, value, _ := strings.Cut(cell, "=")
			values[at[name]] = value
		}
		for i, v := range values {
			if strings.ContainsAny(v, ",\"\n") {
				v = `"` + strings.ReplaceAll(v, `"`, `""`) + `"`
			}
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(v)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// result is what a run gave.
type result struct {
	focus.Summary
	events []domain.Envelope // their events are copies
	bad    []focus.BadRow
	err    error
}

func (r result) line(i int) domain.BillingLine {
	switch e := r.events[i].Event.(type) {
	case *domain.BillingLineRecorded:
		return e.Line
	case *domain.BillingLineCorrected:
		return e.Line
	}
	panic("not a billing line")
}

// warned returns the values under which a reason was warned of, and how often.
func (r result) warned(reason string) (values []string, rows int) {
	for _, w := range r.Warnings {
		if strings.Contains(w.Reason, reason) {
			values = append(values, w.Value)
			rows += w.Rows
		}
	}
	return values, rows
}

// read runs an import and holds what is true of every one.
func read(t testing.TB, text string, opts focus.Options) result {
	t.Helper()
	var r result
	r.Summary, r.err = focus.Run(context.Background(), strings.NewReader(text), "f.csv", opts, func(e *domain.Envelope) error {
		if err := domain.Validate(e); err != nil {
			t.Errorf("an event is invalid: %v", err)
		}
		kept := *e
		kept.Event = copied(t, e.Event)
		if err := dividable(e.Event); err != nil {
			t.Errorf("an event cannot be divided: %v", err)
		}
		r.events = append(r.events, kept)
		return nil
	}, func(b focus.BadRow) { r.bad = append(r.bad, b) })
	if r.Bad != len(r.bad) || r.Events != len(r.events) || r.Bad > r.Rows {
		t.Errorf("summary %+v beside %d events and %d bad rows", r.Summary, len(r.events), len(r.bad))
	}
	return r
}

// dividable says why attribution cannot take an event: what was imported must
// never be left out of the books.
func dividable(e domain.Event) (err error) {
	switch e := e.(type) {
	case *domain.BillingLineRecorded:
		_, err = attribution.LineOf(&e.Line)
	case *domain.BillingLineCorrected:
		_, err = attribution.LineOf(&e.Line)
	case *domain.InvoiceReceived:
		_, err = attribution.AmountOf(e.Total.Amount)
	}
	return err
}

// copied copies an event by way of JSON, which keeps every field of these.
func copied(t testing.TB, e domain.Event) domain.Event {
	t.Helper()
	b, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var out domain.Event
	switch e.(type) {
	case *domain.BillingLineRecorded:
		out = &domain.BillingLineRecorded{}
	case *domain.BillingLineCorrected:
		out = &domain.BillingLineCorrected{}
	case *domain.InvoiceReceived:
		out = &domain.InvoiceReceived{}
	}
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

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
		{utc, "BilledCost=1e999999999", "BilledCost", "is not a number"},
		{utc, "BilledCost=1e15", "BilledCost", "is 1e15 or more, which is more than can be divided"},
		{utc, "BilledCost=-1000000000000000", "BilledCost", "is 1e15 or more"},
		{utc, "EffectiveCost=1000000000000000.01", "EffectiveCost", "is 1e15 or more"},
		{utc, "ListCost=1e24", "ListCost", "is 1e24 or more"},
		{utc, "ListCost=1000000000000000000000000", "ListCost", "is 1e24 or more"},
		{utc, "PricingQuantity=200000001;PricingUnit=Hours", "PricingQuantity", `of "Hours" is more than 200000000 machine-hours`},
		{utc, "PricingQuantity=2000001;PricingUnit=100 Hours", "PricingQuantity", "is more than 200000000 machine-hours"},
		{utc, "ConsumedQuantity=8333333.4;ConsumedUnit=GPU-Days", "ConsumedQuantity", "is more than 200000000 machine-hours"},
		{utc, "PricingQuantity=-1e12;PricingUnit=Seconds;BilledCost=-1", "PricingQuantity", "is more than 200000000 machine-hours"},
		{utc, "PricingQuantity=0.5;PricingUnit=1000000 1000000 Weeks", "PricingQuantity", "is more than 200000000 machine-hours"},
		{utc, "PricingQuantity=1;PricingUnit=1000000 1000000 Weeks", "PricingQuantity", "is more than 200000000 machine-hours"},
		{utc, "ChargePeriodStart=2025-04-03T23:59:59Z;BillingPeriodEnd=2026-06-01T00:00:00Z", "ChargePeriodEnd", "is more than 13 months after ChargePeriodStart 2025-04-03T23:59:59Z"},
		{utc, "ChargePeriodStart=2024-01-01T00:00:00Z;ChargeClass=Correction", "ChargePeriodEnd", "is more than 13 months"},
		{utc, "BilledCost=0.1234567890123456789", "BilledCost", "has 19 digits behind the point"},
		{utc, "BilledCost=1e-19", "BilledCost", "has 19 digits behind the point"},
		{utc, "BilledCost=" + strings.Repeat("0", 81), "BilledCost", "more than 80 characters"},
		{utc, "ListUnitPrice=-1", "ListUnitPrice", "is negative"},
		{utc, "ConsumedQuantity=-1", "ConsumedQuantity", "is negative"},
		{utc, "PricingQuantity=-0.5;EffectiveCost=0", "PricingQuantity", "is negative"},
		{utc, "ChargeCategory=Purchase;CommitmentDiscountQuantity=-1", "CommitmentDiscountQuantity", "is negative"},
		{utc, "ChargeCategory=usage", "ChargeCategory", "is unknown, want Usage"},
		{utc, "ChargeCategory=", "ChargeCategory", "is null"},
		{utc, "ChargeClass=Corrected", "ChargeClass", "is unknown, want Correction"},
		{utc, "PricingCategory=Spot", "PricingCategory", "is unknown"},
		{utc, "BillingCurrency=usd", "BillingCurrency", "is not an ISO 4217 code"},
		{utc, "BillingCurrency=", "BillingCurrency", "is null"},
		{focus.Options{Currency: "EUR"}, "", "BillingCurrency", "is not EUR"},
		{utc, "BillingAccountId=", "BillingAccountId", "is null"},
		{utc, "InvoiceIssuerName=", "InvoiceIssuerName", "is null, and no other column"},
		{utc, "BillingAccountId=" + strings.Repeat("a", 300), "BillingAccountId", "at most 256"},
		{utc, "BillingAccountId=a\x00b", "BillingAccountId", "control characters"},
		{utc, "ResourceId=a\xffb", "ResourceId", "not UTF-8"},
		{utc, "x_Plan=p;x_Note=a\x01b", "x_Note", "control character"},
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

func TestVersionsAreToldFromColumns(t *testing.T) {
	for change, want := range map[string]string{
		"":                                     "1.0",
		"SkuMeter=":                            "1.1",
		"CapacityReservationId=":               "1.1",
		"InvoiceId=":                           "1.2",
		"InvoiceId=;ProviderName=":             "1.2",
		"HostProviderName=":                    "1.3",
		"ProviderName=;ServiceProviderName=":   "1.3",
		"InvoiceDetailId=":                     "1.4",
		"InvoiceDetailId=;ProviderName=":       "1.3",
		"CommitmentProgramEligibilityDetails=": "1.4",
	} {
		r := read(t, bill(strings.Split(change, ";")), focus.Options{})
		if r.FocusVersion != want || r.Dataset != focus.CostAndUsage || r.line(0).FocusVersion != want {
			t.Errorf("with %q: %s %q, want %s", change, r.Dataset, r.FocusVersion, want)
		}
		if r := read(t, bill(strings.Split(change, ";")), focus.Options{FocusVersion: "1.1"}); r.line(0).FocusVersion != "1.1" {
			t.Errorf("with %q and 1.1 given: %q", change, r.line(0).FocusVersion)
		}
	}
	r := read(t, bill(nil), focus.Options{FocusVersion: "1.4"})
	values, rows := r.warned("FOCUS 1.4 makes mandatory")
	if len(values) != 1 || rows != 1 || !strings.Contains(values[0], "BillingAccountName, ChargeClass, ChargeDescription, ContractedCost, EffectiveCost, HostProviderName, ListCost") {
		t.Errorf("missing columns: %q in %d rows", values, rows)
	}
}

func TestIdsOfRows(t *testing.T) {
	// Another order of columns, other spellings of numbers, times and names,
	// and a column that is null make no other line; any value does.
	base := read(t, bill([]string{"ResourceId=i-1", "ListCost=1.50"}), focus.Options{}).line(0).LineID
	if len(base) != 32 {
		t.Errorf("id %q", base)
	}
	same := []string{
		bill([]string{"ListCost=1.5", "ResourceId=i-1"}),
		bill([]string{"ListCost=15e-1", "ResourceId= i-1", "RegionId=", "RegionName=NULL"}),
		bill([]string{"RESOURCEID=i-1", "ListCost=01.500", "BilledCost=12.500", "ChargePeriodStart=2026-05-03T02:00:00+02:00"}),
		",ResourceId,ListCost," + strings.Join(columns, ",") + "\n0,i-1,1.5," + strings.Join(cells, ",") + "\n",
	}
	for _, text := range same {
		if r := read(t, text, focus.Options{}); len(r.events) != 1 || r.line(0).LineID != base {
			t.Errorf("%q: %+v is not the line %s", text, r.events, base)
		}
	}
	seen := map[string]string{base: "the base"}
	for _, change := range []string{
		"ResourceId=i-2", "ResourceId=i-1;ListCost=1.51", "ResourceId=i-1;ListCost=1.50;x_Plan=p", "ResourceName=i-1;ListCost=1.5", "ListCost=1.5",
		"ResourceId=i-1;EffectiveCost=1.50", "ResourceId=i-1;ListCost=1.5;x_Generated=true",
		// These would read alike if values were not closed off.
		"ResourceId=i-1 3\nSkuId=s;ListCost=1.5", "ResourceId=i-1;SkuId=s;ListCost=1.5",
	} {
		r := read(t, bill(strings.Split(change, ";")), focus.Options{})
		id := r.line(0).LineID
		if seen[id] != "" {
			t.Errorf("%q has the id of %q", change, seen[id])
		}
		seen[id] = change
	}
	r := read(t, bill(nil, nil, []string{"BilledCost=13"}, []string{"BilledCost=12.50"}), focus.Options{})
	first := r.line(0).LineID
	if r.line(1).LineID != first+"-2" || r.line(3).LineID != first+"-3" || r.line(2).LineID == first {
		t.Errorf("equal rows have the ids %s, %s, %s", first, r.line(1).LineID, r.line(3).LineID)
	}
	if len(r.Warnings) < 2 || r.Warnings[1].Line != 3 || !strings.Contains(r.Warnings[1].Reason, "equals the one in line 2, and both count") {
		t.Errorf("warnings %+v", r.Warnings)
	}
	r = read(t, bill([]string{"x_LineId=l1"}, []string{"x_LineId=l1", "BilledCost=1"}, []string{"x_LineId=l1", "BillingAccountId=b"}, []string{"x_LineId="}), focus.Options{})
	if len(r.bad) != 1 || r.bad[0].Line != 3 || r.bad[0].Reason != "is also the id of line 2" || len(r.events) != 3 || len(r.line(2).LineID) != 32 {
		t.Errorf("ids given twice: %+v, bad %+v", r.events, r.bad)
	}
}

// The recipe of an id as the package comment has it, so that an auditor can
// follow it and no change of the program changes it unseen.
func TestIdIsMadeAsDocumented(t *testing.T) {
	r := read(t, bill([]string{"ListCost=1.50", "Tags={\"k\": \"v\"}", "x_Plan=gold", "RegionId="}), focus.Options{})
	recipe := ""
	for _, column := range []struct{ name, value string }{
		{"BilledCost", "12.5"}, {"BillingAccountId", "a-1"}, {"BillingCurrency", "USD"}, {"BillingPeriodEnd", "2026-06-01T00:00:00Z"},
		{"BillingPeriodStart", "2026-05-01T00:00:00Z"}, {"ChargeCategory", "Usage"}, {"ChargePeriodEnd", "2026-05-04T00:00:00Z"},
		{"ChargePeriodStart", "2026-05-03T00:00:00Z"}, {"InvoiceIssuerName", "Example Cloud"}, {"ListCost", "1.5"}, {"Tags", `{"k": "v"}`}, {"x_Plan", "gold"},
	} {
		recipe += fmt.Sprintf("%s=%s %d\n", column.name, column.value, len(column.value))
	}
	sum := sha256.Sum256([]byte(recipe))
	if got, want := r.line(0).LineID, hex.EncodeToString(sum[:16]); got != want {
		t.Errorf("id %s, want %s", got, want)
	}
}

func TestRowsShareNothing(t *testing.T) {
	r := read(t, bill([]string{"x_Plan=gold", "ListCost=1", "x_Generated=true", "RegionId=r", "ProviderName=p"}, nil), focus.Options{})
	if l := r.line(1); l.Other != nil || l.ListCost.Valid || l.Generated || l.RegionID != "" || l.ServiceProviderName != "" {
		t.Errorf("the second row has something of the first: %+v", l)
	}
}

func TestCorrections(t *testing.T) {
	r := read(t, bill(
		[]string{"ChargeClass=Correction", "x_CorrectsLineId=l0", "x_CorrectionReason=wrong machine", "BilledCost=-3"},
		[]string{"ChargeClass=Correction", "BilledCost=-4"},
		[]string{"x_CorrectsLineId=l0"},
	), focus.Options{})
	if len(r.events) != 3 || r.Types[domain.TypeBillingLineCorrected] != 2 || r.Types[domain.TypeBillingLineRecorded] != 1 {
		t.Fatalf("%+v, bad %v", r.Summary, r.bad)
	}
	c := r.events[0].Event.(*domain.BillingLineCorrected)
	if c.Corrects != "l0" || c.Reason != "wrong machine" || c.Line.BilledCost.String() != "-3" || c.Line.Other != nil {
		t.Errorf("correction %+v", c)
	}
	if l := r.line(1); l.ChargeClass != "Correction" {
		t.Errorf("a correction that names no line lost its class: %+v", l)
	}
	if r := read(t, bill([]string{"x_Corrects=l0"}), focus.Options{}); r.Types[domain.TypeBillingLineCorrected] != 1 {
		t.Errorf("x_Corrects: %+v", r.Summary)
	}
	if r := read(t, bill([]string{"x_Corrects=l0", "x_CorrectsLineId=l1"}), focus.Options{}); r.events[0].Event.(*domain.BillingLineCorrected).Corrects != "l1" || r.line(0).Other["x_Corrects"] != "l0" {
		t.Errorf("both columns: %+v", r.events)
	}
}

func TestTimeOfALineIsInItsBillingPeriod(t *testing.T) {
	for change, want := range map[string]string{
		"":                                     "2026-05-04T00:00:00Z",
		"ChargePeriodEnd=2026-06-01T00:00:00Z": "2026-06-01T00:00:00Z",
		"ChargeCategory=Purchase;ChargePeriodEnd=2027-05-03T00:00:00Z":                                       "2026-06-01T00:00:00Z",
		"ChargeClass=Correction;ChargePeriodStart=2026-03-03T00:00:00Z;ChargePeriodEnd=2026-03-04T00:00:00Z": "2026-06-01T00:00:00Z",
	} {
		r := read(t, bill(strings.Split(change, ";")), focus.Options{Historical: true})
		if e := r.events[0]; e.Time.String() != want || e.Recorded != e.Time || e.Subject != r.line(0).LineID || e.Workspace != "" {
			t.Errorf("%q: %+v, want %s", change, e, want)
		}
	}
	if r := read(t, bill(nil), focus.Options{}); r.events[0].Recorded != 0 {
		t.Error("a bill is known from when it is appended")
	}
}

func TestWarnings(t *testing.T) {
	r := read(t, bill(
		[]string{"ResourceId=NULL", "RegionId=null", "Tags=team:a", "InvoiceId=i", "InvoiceIssuerName=", "ProviderName=AWS"},
		[]string{"ResourceId=NULL", "InvoiceId=i", "BillingCurrency=EUR", "InvoiceIssuerName=", "ProviderName=AWS"},
		[]string{"BillingAccountId=b", "ChargePeriodStart=2026-03-03T00:00:00Z", "ChargePeriodEnd=2026-03-04T00:00:00Z"},
		[]string{"BillingAccountId=b", "BillingCurrency=EUR"},
	), focus.Options{})
	if len(r.events) != 4 {
		t.Fatalf("%+v, bad %v", r.Summary, r.bad)
	}
	for reason, want := range map[string]string{
		"the text NULL is read as null": "[ResourceId] 2",
		"the text null is read as null": "[RegionId] 1",
		"is not JSON":                   "[Tags] 1",
		"billed in two currencies":      "[i in USD and EUR 2026-05-01T00:00:00Z in USD and EUR] 2",
		"it was billed late":            "[] 1",
		"is taken from ProviderName":    "[AWS] 2",
		"makes mandatory are missing":   "[BillingAccountName, ChargeClass, ChargeDescription, ContractedCost, EffectiveCost, ListCost, PricingQuantity, PricingUni…] 4",
	} {
		values, rows := r.warned(reason)
		if got := fmt.Sprint(values, rows); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
	many := make([][]string, 300)
	for i := range many {
		many[i] = []string{"InvoiceIssuerName=", fmt.Sprintf("ProviderName=p%d", i)}
	}
	if r := read(t, bill(many...), focus.Options{}); len(r.Warnings) != 201 || r.Warnings[200].Reason != "further warnings" || r.Warnings[200].Rows < 100 {
		t.Errorf("%d warnings, the last %+v", len(r.Warnings), r.Warnings[len(r.Warnings)-1])
	}
}

func TestFilesThatAreNoDataset(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "the file is empty"},
		{"blank", "\n\n\r\n", "the file is empty"},
		{"missing", "BilledCost,BillingAccountId,x\n", "missing InvoiceIssuerName (or, before 1.4, ProviderName), BillingCurrency, BillingPeriodEnd, BillingPeriodStart, ChargeCategory, ChargePeriodEnd, ChargePeriodStart; found BilledCost, BillingAccountId, x"},
		{"twice", "BilledCost,x,billedCost\n", `column "billedCost" stands twice in the header, as number 1 and 3`},
		{"commitments", "ContractCommitmentId,ContractId\n", "Contract Commitment, which is not imported"},
		{"periods", "BillingPeriodStatus,BillingPeriodStart\n", "Billing Period, which is not imported"},
		{"AWS", "line_item_unblended_cost\n", "export it as FOCUS"},
		{"semicolons", "BilledCost;BillingAccountId\n", "columns must be separated by commas"},
		{"UTF-16", "\xff\xfeB\x00", "UTF-16"},
		{"spreadsheet", "PK\x03\x04....", "export it as CSV"},
		{"parquet", "PAR1....", "export it as CSV"},
		{"quotes", "a\"b\"\n", "has a quote in the middle"},
		{"long", strings.Repeat("x,", 1<<20), "longer than"},
		{"invoice", "InvoiceDetailId,InvoiceIssueStatus,x\n", "missing BilledCost, BillingAccountId, BillingCurrency, BillingPeriodEnd, BillingPeriodStart, ChargeCategory, InvoiceId, InvoiceIssuerName; found"},
	} {
		r := read(t, c.text, focus.Options{})
		if !errors.Is(r.err, focus.ErrColumns) || !strings.Contains(r.err.Error(), c.want) || len(r.events) > 0 {
			t.Errorf("%s: error %v, want %q", c.name, r.err, c.want)
		}
	}
	if r := read(t, bill(), focus.Options{}); r.err != nil {
		t.Errorf("a header alone: %v", r.err)
	} else if _, rows := r.warned("there are no rows"); rows != 1 {
		t.Errorf("a header alone: %+v", r.Summary)
	}
}

func TestOptionsAreCheckedAndNameTheSource(t *testing.T) {
	for want, o := range map[string]focus.Options{
		"Middle/Earth": {Zone: "Middle/Earth"}, "zone Local": {Zone: "Local"}, "ISO 4217": {Currency: "usd"}, `version "2.0"`: {FocusVersion: "2.0"},
	} {
		if r := read(t, bill(nil), o); r.err == nil || !strings.Contains(r.err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", o, r.err, want)
		}
	}
	sum := [32]byte{0xab}
	if got, want := focus.SourceName(sum, focus.Options{Limits: focus.Limits{LineBytes: 5}}), "sha256:ab"+strings.Repeat("0", 62)+"/focus.v1"; got != want {
		t.Errorf("source %s, want %s", got, want)
	}
	if got, want := focus.SourceName(sum, focus.Options{Zone: "Europe/Berlin", Currency: "EUR", FocusVersion: "1.2", Historical: true}), "/focus.v1?currency=EUR&focus_version=1.2&historical=true&zone=Europe%2FBerlin"; !strings.HasSuffix(got, want) {
		t.Errorf("source %s, want %s", got, want)
	}
}

func zipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestGzipAndByteOrderMark(t *testing.T) {
	text := bill(nil, []string{"BilledCost=1"})
	plain := read(t, text, focus.Options{})
	for name, other := range map[string]string{"gzip": zipped(t, text), "mark": "\xef\xbb\xbf" + text, "both": zipped(t, "\xef\xbb\xbf"+text), "CRLF": strings.ReplaceAll(text, "\n", "\r\n")} {
		r := read(t, other, focus.Options{})
		if r.err != nil || len(r.events) != 2 || r.line(0).LineID != plain.line(0).LineID || r.line(1).LineID != plain.line(1).LineID {
			t.Errorf("%s: %+v, error %v", name, r.Summary, r.err)
		}
	}
	var rows [][]string
	for i := range 5000 {
		rows = append(rows, []string{fmt.Sprintf("BilledCost=%d", i*i*7919)})
	}
	packed := zipped(t, bill(rows...))
	r := read(t, packed[:len(packed)/2], focus.Options{})
	if !errors.Is(r.err, io.ErrUnexpectedEOF) || len(r.events) == 0 || r.Bad != 0 || r.Rows != len(r.events) {
		t.Errorf("cut off: %+v, error %v, want some rows and an error", r.Summary, r.err)
	}
	damaged := []byte(packed)
	damaged[len(damaged)/2] ^= 0x40
	if r := read(t, string(damaged), focus.Options{}); !errors.Is(r.err, focus.ErrDamaged) {
		t.Errorf("a damaged gzip file: error %v", r.err)
	}
}

func TestWholeFindsWhatRunWouldStopAt(t *testing.T) {
	packed := zipped(t, bill(nil, nil))
	flipped := []byte(packed)
	flipped[len(flipped)-6] ^= 1 // of the checksum
	for _, c := range []struct {
		name, text string
		limits     focus.Limits
		want       error
	}{
		{"plain", bill(nil), focus.Limits{}, nil},
		{"empty", "", focus.Limits{}, nil},
		{"gzip", packed, focus.Limits{}, nil},
		{"two members", packed + packed, focus.Limits{}, nil},
		{"cut off", packed[:len(packed)-1], focus.Limits{}, focus.ErrDamaged},
		{"cut off in the header", packed[:5], focus.Limits{}, focus.ErrDamaged},
		{"another checksum", string(flipped), focus.Limits{}, focus.ErrDamaged},
		{"rubbish behind", packed + "x", focus.Limits{}, focus.ErrDamaged},
		{"a bomb", zipped(t, strings.Repeat(" ", 32<<20)), focus.Limits{}, focus.ErrTooLarge},
		{"a large file", bill(nil), focus.Limits{DecodedBytes: 9}, focus.ErrTooLarge},
		{"a spreadsheet", "PK\x03\x04....", focus.Limits{}, focus.ErrColumns},
	} {
		if err := focus.Whole(context.Background(), strings.NewReader(c.text), c.limits); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	// A file that cannot be read is not called damaged.
	gone := errors.New("the disk is gone")
	if err := focus.Whole(context.Background(), io.MultiReader(strings.NewReader(packed[:30]), iotest.ErrReader(gone)), focus.Limits{}); !errors.Is(err, gone) || errors.Is(err, focus.ErrDamaged) {
		t.Errorf("a file that cannot be read: error %v", err)
	}
}

func TestFilesWithoutALastLineEnd(t *testing.T) {
	text := bill(nil, nil)
	for name, c := range map[string]struct {
		text      string
		bad, warn int
	}{
		"whole":                  {text, 0, 0},
		"without the line end":   {text[:len(text)-1], 0, 1},
		"within the last column": {text[:len(text)-3], 0, 1},
		"within another":         {text[:len(text)-20], 1, 0},
	} {
		r := read(t, c.text, focus.Options{})
		if _, rows := r.warned("does not end in a line end"); rows != c.warn || len(r.bad) != c.bad {
			t.Errorf("%s: bad %v, %+v", name, r.bad, r.Warnings)
		}
		if c.bad == 1 && !strings.Contains(r.bad[0].Reason, "as one that was cut off does") {
			t.Errorf("%s: %v", name, r.bad)
		}
	}
}

func TestLimits(t *testing.T) {
	bomb := zipped(t, bill(nil)+strings.Repeat(strings.Repeat(" ", 9999)+"\n", 2000))
	if r := read(t, bomb, focus.Options{}); !errors.Is(r.err, focus.ErrTooLarge) || len(r.events) != 1 {
		t.Errorf("a bomb: %+v, error %v", r.Summary, r.err)
	}
	if r := read(t, bill(nil)+strings.Repeat("\n", 2000), focus.Options{Limits: focus.Limits{DecodedBytes: 1000}}); !errors.Is(r.err, focus.ErrTooLarge) {
		t.Errorf("a large file: error %v", r.err)
	}
	row := strings.Join(cells, ",") + "\n"
	for name, long := range map[string]string{
		"longer than 1048576": strings.Repeat("x", 3<<20) + "\n",
		"not closed within":   `"` + strings.Repeat(strings.Repeat("x", 9999)+"\n", 110),
		"never closed":        "\"x\n",
	} {
		r := read(t, bill(nil)+row+long, focus.Options{})
		if r.err != nil || len(r.events) != 2 || len(r.bad) == 0 || r.bad[0].Line != 4 || !strings.Contains(r.bad[0].Reason, name) {
			t.Errorf("%s: %+v, error %v, bad %.200v", name, r.Summary, r.err, r.bad)
		}
	}
}

func TestRowsBesideABrokenOneGoIn(t *testing.T) {
	row := strings.Join(cells, ",") + "\n"
	text := bill() + row + strings.Replace(row, "a-1", `a"1`, 1) + row + strings.Replace(row, "a-1", `"a-1`, 1) + row + "1,2\n" + row
	r := read(t, text, focus.Options{})
	lines := []int{}
	for _, b := range r.bad {
		lines = append(lines, b.Line)
	}
	if len(r.events) != 4 || fmt.Sprint(lines) != "[3 5 7]" {
		t.Errorf("%d events, bad %+v", len(r.events), r.bad)
	}
}

func TestWhatEmitReturnsEndsTheImport(t *testing.T) {
	full := errors.New("the disk is full")
	n := 0
	sum, err := focus.Run(context.Background(), strings.NewReader(bill(nil, nil, nil)), "f.csv", focus.Options{}, func(*domain.Envelope) error {
		if n++; n == 2 {
			return full
		}
		return nil
	}, nil)
	if !errors.Is(err, full) || sum.Events != 1 || n != 2 || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("%+v after %d calls, error %v", sum, n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := focus.Run(ctx, strings.NewReader(bill(nil)), "f.csv", focus.Options{}, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
}
