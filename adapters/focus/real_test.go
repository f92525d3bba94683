package focus_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
	"quartermaster/simulations/public"
)

// published reads a published example of the FOCUS project or a supplier, or skips the test.
func published(t *testing.T, name string) string {
	t.Helper()
	b, err := io.ReadAll(public.Open(t, "focus/"+name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// with prepends columns with constant values to a file that lacks them, and drops its blank
// rows.
func with(text string, added ...string) string {
	names, values := []string{}, []string{}
	for _, a := range added {
		name, value, _ := strings.Cut(a, "=")
		names, values = append(names, name), append(values, value)
	}
	var b strings.Builder
	for i, row := range strings.Split(text, "\n") {
		switch {
		case i == 0:
			b.WriteString(strings.Join(names, ",") + "," + row + "\n")
		case strings.TrimSpace(row) != "":
			b.WriteString(strings.Join(values, ",") + "," + row + "\n")
		}
	}
	return b.String()
}

// The sample of the FOCUS project: no zone, NULL as text, costs of 11 decimals.
func TestOfficialSample(t *testing.T) {
	text := published(t, "finops-sample-1.0/focus_sample_first_300.csv")
	if r := read(t, text, focus.Options{}); r.err != nil || r.Bad != 300 || r.Rows != 300 || !strings.Contains(r.bad[0].Reason, "has no time zone") {
		t.Errorf("without a zone: %+v, error %v", r.Summary, r.err)
	}
	r := read(t, text, focus.Options{Zone: "UTC"})
	if r.err != nil || r.Rows != 300 || r.Events != 300 || r.FocusVersion != "1.0" {
		t.Fatalf("%+v, bad %v, error %v", r.Summary, r.bad, r.err)
	}
	// An independent sum of the column, with encoding/csv and decimals.
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	want, got, ids, nulls := decimal.Zero, decimal.Zero, map[string]bool{}, 0
	for _, row := range rows[1:] {
		want = want.Add(decimal.RequireFromString(row[1]))
		for _, v := range row {
			if v == "NULL" {
				nulls++
			}
		}
	}
	for i := range r.events {
		l := r.line(i)
		got = got.Add(l.BilledCost)
		ids[l.LineID] = true
		if l.Other["Id"] == "" || l.Other["ProviderName"] == "" || l.ServiceProviderName != l.Other["ProviderName"] {
			t.Fatalf("line %d: %+v", i, l)
		}
	}
	if !got.Equal(want) || got.IsZero() || len(ids) != 300 {
		t.Errorf("the lines add up to %s, the file to %s; %d ids", got, want, len(ids))
	}
	if _, n := r.warned("NULL is read as null"); n != nulls || nulls < 2000 {
		t.Errorf("NULL is read %d times, the file has it %d times", n, nulls)
	}
}

// The examples of the specification are excerpts. They lack mandatory columns, which one error
// names together, or have dates such as 5/1/25.
func TestSpecificationExamples(t *testing.T) {
	excerpts, undated := 0, 0
	published(t, "focus_1_4_columns.csv")
	files, err := filepath.Glob(filepath.Join(public.Dir(t), "focus", "spec-*", "*", "*.csv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r := read(t, string(b), focus.Options{Zone: "UTC"})
		if r.err != nil {
			excerpts++
			if !errors.Is(r.err, focus.ErrColumns) || !strings.Contains(r.err.Error(), "missing InvoiceIssuerName (or, before 1.4, ProviderName), BillingAccountId, BillingCurrency; found") {
				t.Errorf("%s: %v", file, r.err)
			}
			continue
		}
		undated++
		if r.Events != 0 || r.Bad != r.Rows || r.Rows == 0 {
			t.Errorf("%s: %+v, bad %v", file, r.Summary, r.bad)
		}
		for _, b := range r.bad {
			if !strings.Contains(b.Reason, "May to some") && !strings.Contains(b.Reason, "currency sign") {
				t.Errorf("%s: %v", file, b)
			}
		}
	}
	if excerpts != 11 || undated != 15 {
		t.Errorf("%d excerpts and %d files with unclear dates, want 11 and 15", excerpts, undated)
	}
}

// The commitment scenarios, completed to bills: the purchase equals the used plus the unused
// commitment.
func TestCommitmentScenarios(t *testing.T) {
	for file, want := range map[string]string{ // rows, bad, billed and effective
		"commitment_discount_scenarios/commitment_discount_purchase_scenario_1.csv":                                                 "1 0 8760 0",
		"commitment_discount_scenarios/commitment_discount_purchase_scenario_2.csv":                                                 "3 1 2 0",
		"commitment_discount_scenarios/commitment_discount_purchase_scenario_3.csv":                                                 "4 1 4381 0",
		"commitment_discount_scenarios/commitment_discount_usage_scenario_1.csv":                                                    "1 0 0 1",
		"commitment_discount_scenarios/commitment_discount_usage_scenario_2.csv":                                                    "1 0 0 1",
		"commitment_discount_scenarios/commitment_discount_usage_scenario_3.csv":                                                    "2 0 0 1",
		"commitment_discount_scenarios/commitment_discount_usage_scenario_4.csv":                                                    "2 0 0.5 1.5",
		"commitment_discount_flexibility/one_hundred_percent_utilization_with_commitment_discount_flexibility_with_2_resources.csv": "3 0 2 2",
	} {
		text := with(published(t, "spec-1.2-examples/"+file), "InvoiceIssuerName=Example", "BillingAccountId=a", "BillingCurrency=USD")
		r := read(t, text, focus.Options{})
		billed, effective := decimal.Zero, decimal.Zero
		for i := range r.events {
			l := r.line(i)
			billed, effective = billed.Add(l.BilledCost), effective.Add(l.EffectiveCost.Decimal)
			if l.CommitmentDiscountID == "null" {
				t.Errorf("%s: null is an id", file)
			}
		}
		if got := strings.Join([]string{decimal.NewFromInt(int64(r.Rows)).String(), decimal.NewFromInt(int64(r.Bad)).String(), billed.String(), effective.String()}, " "); got != want {
			t.Errorf("%s: %s, want %s; bad %v, error %v", file, got, want, r.bad, r.err)
		}
		for _, b := range r.bad { // the examples contain the hour 30
			if b.Field != "ChargePeriodEnd" || b.Value != "2023-02-01T30:00:00Z" {
				t.Errorf("%s: %v", file, b)
			}
		}
	}
}

// The corrections of a closed period, completed to bills: charges of May billed in June, which
// add up to zero.
func TestClosedPeriodCorrections(t *testing.T) {
	for file, want := range map[string]string{"closed_scenario_1_original.csv": "1500", "closed_scenario_1_delta.csv": "0", "closed_scenario_1_ledger.csv": "0"} {
		r := read(t, with(published(t, "spec-corrections/"+file), "InvoiceIssuerName=Example", "BillingAccountId=a", "BillingCurrency=USD"), focus.Options{})
		sum := decimal.Zero
		for i := range r.events {
			l := r.line(i)
			sum = sum.Add(l.BilledCost)
			if correction := l.ChargeClass == "Correction"; correction != (l.BillingPeriodStart.String() == "2025-06-01T00:00:00Z") || correction == (file == "closed_scenario_1_original.csv") {
				t.Errorf("%s: %+v", file, l)
			}
			if l.Other["x_IncurredDateTime"] != "2025-05-01T00:00:00Z" {
				t.Errorf("%s: %v", file, l.Other)
			}
		}
		if r.err != nil || r.Bad != 0 || sum.String() != want || r.Types[domain.TypeBillingLineRecorded] != r.Rows || r.Rows == 0 {
			t.Errorf("%s: %+v, sum %s, bad %v, error %v", file, r.Summary, sum, r.bad, r.err)
		}
	}
}

// Azure's columns suffice, although some of FOCUS's are missing.
func TestAzureColumns(t *testing.T) {
	var schema struct {
		FocusVersion string
		Columns      []struct{ ColumnName string }
	}
	if err := json.Unmarshal([]byte(published(t, "azure/FocusCost_1.2-preview.json")), &schema); err != nil {
		t.Fatal(err)
	}
	var row []string
	for _, c := range schema.Columns {
		found := false
		for _, have := range columns {
			found = found || have == c.ColumnName
		}
		if !found {
			row = append(row, c.ColumnName+"=")
		}
	}
	r := read(t, bill(row), focus.Options{})
	values, _ := r.warned("makes mandatory are missing")
	if r.err != nil || r.Events != 1 || r.FocusVersion != schema.FocusVersion || len(values) != 0 || len(row) < 80 {
		t.Errorf("%d columns: %+v, error %v, missing %v", len(row), r.Summary, r.err, values)
	}
}

// The table of columns equals that of the specification.
func TestColumnsAreThoseOfTheSpecification(t *testing.T) {
	rows, err := csv.NewReader(strings.NewReader(published(t, "focus_1_4_columns.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := focus.NewWriter(&b).Flush(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), ",")
	b.Reset()
	if err := focus.WriteInvoices(&b, nil); err != nil {
		t.Fatal(err)
	}
	invoices := strings.Split(strings.TrimSpace(b.String()), ",")
	for _, row := range rows[1:] {
		switch row[0] {
		case focus.CostAndUsage:
			if lines[0] != row[1] {
				t.Fatalf("column %s where %s is next", lines[0], row[1])
			}
			lines = lines[1:]
		case focus.InvoiceDetails:
			if invoices[0] != row[1] {
				t.Fatalf("column %s where %s is next", invoices[0], row[1])
			}
			invoices = invoices[1:]
		}
	}
	if lines[0] != "x_LineId" || len(invoices) != 1 || invoices[0] != "x_Generated" {
		t.Errorf("beyond the specification: %v, %v", lines, invoices)
	}
}
