package focus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

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
		{"twice", "BilledCost,x,billedCost\n", `column "billedCost" is in the header twice, as columns 1 and 3`},
		{"commitments", "ContractCommitmentId,ContractId\n", "missing ContractCommitmentCategory, ContractCommitmentPeriodEnd, ContractCommitmentPeriodStart; found ContractCommitmentId, ContractId; this looks like the FOCUS dataset Contract Commitment"},
		{"periods", "BillingPeriodStatus,BillingPeriodStart\n", "missing BillingPeriodEnd, InvoiceIssuerName; found BillingPeriodStatus, BillingPeriodStart; this looks like the FOCUS dataset Billing Period"},
		{"AWS", "line_item_unblended_cost\n", "export it as FOCUS"},
		{"semicolons", "BilledCost;BillingAccountId\n", `the delimiter looks like ";": save the file with commas`},
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
	if got, want := focus.SourceName(sum, focus.Options{Limits: tabular.Limits{LineBytes: 5}}), "sha256:ab"+strings.Repeat("0", 62)+"/focus.v3"; got != want {
		t.Errorf("source %s, want %s", got, want)
	}
	if got, want := focus.SourceName(sum, focus.Options{Zone: "Europe/Berlin", Currency: "EUR", FocusVersion: "1.2", Historical: true}), "/focus.v3?currency=EUR&focus_version=1.2&historical=true&zone=Europe%2FBerlin"; !strings.HasSuffix(got, want) {
		t.Errorf("source %s, want %s", got, want)
	}
}

func TestSourceNamesFitInAnIdentifier(t *testing.T) {
	o := focus.Options{Mapping: "aws-cur-2.0@2:239614c21202", ExportTime: focus.ExportTimeColumns, Zone: "Europe/Berlin"}
	names := map[string]bool{}
	for _, month := range []string{"123456789012/2026-05", "123456789012/2026-06", strings.Repeat("é", 128) + "/2026-05"} {
		for _, before := range []string{strings.Repeat("0", 32), strings.Repeat("1", 32)} {
			name := focus.SnapshotName([32]byte{1}, o, month, before)
			if len(name) > 256 || !strings.HasSuffix(name, "&zone=Europe%2FBerlin") {
				t.Errorf("%d bytes: %s", len(name), name)
			}
			names[name] = true
		}
	}
	if len(names) != 6 {
		t.Errorf("%d names for 6 exports", len(names))
	}
	long := focus.Options{Accounts: []string{strings.Repeat("a", 256)}}
	if name := focus.SourceName([32]byte{1}, long); len(name) > 256 {
		t.Errorf("%d bytes: %s", len(name), name)
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
	sum, err := focus.Run(context.Background(), strings.NewReader(bill(nil, nil, nil)), nil, "f.csv", focus.Options{}, func(*domain.Envelope) error {
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
	if _, err := focus.Run(ctx, strings.NewReader(bill(nil)), nil, "f.csv", focus.Options{}, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: error %v", err)
	}
}
