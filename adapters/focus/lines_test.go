package focus_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
)

func TestIdsOfRows(t *testing.T) {
	// The id does not depend on the order of columns, on the spelling of numbers, times and
	// names, or on null columns. It depends on every value.
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
		// These would have equal encodings without the lengths of values.
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

// The id is computed as the package comment describes, so that an auditor can follow it and no
// change of the program changes it unnoticed.
func TestIdIsMadeAsDocumented(t *testing.T) {
	first := []string{"ListCost=1.50", "Tags={\"k\": \"v\"}", "x_Plan=gold", "RegionId="}
	rows := [][]string{first}
	for _, change := range []string{
		"BilledCost=13.5", "ResourceId=i-1", "Tags={}", "x_Plan=blue", "x_Plan=iron", // each differs from row to row
		"BillingAccountId=a-2", "RegionId=r-1", "InvoiceIssuerName=Other", "RegionId=", // each repeats
		"ChargePeriodEnd=2026-05-05T00:00:00Z", "BillingAccountId=a-3", "ResourceId=i-2", "ResourceId=", "BillingAccountId=a-1",
	} {
		rows = append(rows, append(slices.Clone(rows[len(rows)-1]), change))
	}
	order := []string{
		"BillingAccountId", "BillingCurrency", "ChargeCategory", "InvoiceIssuerName", "RegionId", // then what differs
		"BilledCost", "BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart", "ListCost", "ResourceId", "Tags", "x_Plan",
	}
	r := read(t, bill(rows...), focus.Options{})
	for i, row := range rows {
		values := map[string]string{
			"BilledCost": "12.5", "BillingAccountId": "a-1", "BillingCurrency": "USD", "BillingPeriodEnd": "2026-06-01T00:00:00Z",
			"BillingPeriodStart": "2026-05-01T00:00:00Z", "ChargeCategory": "Usage", "ChargePeriodEnd": "2026-05-04T00:00:00Z",
			"ChargePeriodStart": "2026-05-03T00:00:00Z", "InvoiceIssuerName": "Example Cloud",
		}
		for _, change := range row {
			name, value, _ := strings.Cut(change, "=")
			values[name] = value
		}
		values["ListCost"] = "1.5" // written plainly
		recipe := ""
		for _, name := range order {
			if v := values[name]; v != "" {
				recipe += fmt.Sprintf("%s=%s %d\n", name, v, len(v))
			}
		}
		sum := sha256.Sum256([]byte(recipe))
		if got, want := r.line(i).LineID, hex.EncodeToString(sum[:16]); got != want {
			t.Errorf("row %d has the id %s, want %s", i, got, want)
		}
	}
}

func TestRowsShareNothing(t *testing.T) {
	r := read(t, bill([]string{"x_Plan=gold", "ListCost=1", "x_Generated=true", "RegionId=r", "ProviderName=p"}, nil), focus.Options{})
	if l := r.line(1); l.Other != nil || l.ListCost.Valid || l.Generated || l.RegionID != "" || l.ServiceProviderName != "" {
		t.Errorf("the second row has something of the first: %+v", l)
	}
}

// Repeated values are parsed once, and no row gets the values of another.
func TestRowsAreReadAsIfAlone(t *testing.T) {
	var rows [][]string
	for _, billed := range []string{"1.50", "2", "2", "1.5"} {
		for _, effective := range []string{"", "2", "1.50", "2.0"} {
			for _, day := range []string{"04", "05"} {
				rows = append(rows, []string{"BilledCost=" + billed, "EffectiveCost=" + effective, "AvailabilityZone=" + day, "ChargePeriodEnd=2026-05-" + day + "T00:00:00Z", fmt.Sprintf("x_Row=%d", len(rows))})
			}
		}
	}
	together := read(t, bill(rows...), focus.Options{})
	if len(together.events) != len(rows) {
		t.Fatalf("%+v, bad %v", together.Summary, together.bad)
	}
	for i, row := range rows {
		alone := read(t, bill(row), focus.Options{})
		if got, want := asJSON(t, together.events[i].Event), asJSON(t, alone.events[0].Event); got != want {
			t.Errorf("row %d is\n%s, alone\n%s", i, got, want)
		}
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
