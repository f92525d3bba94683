package focus_test

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
)

const periodHeader = "InvoiceIssuerName,BillingPeriodStart,BillingPeriodEnd,BillingPeriodStatus,BillingPeriodCreated,BillingPeriodLastUpdated\n"

func closures(r result) string {
	var all []string
	for _, e := range r.events {
		p := e.Event.(*domain.BillingPeriodClosed)
		all = append(all, fmt.Sprint(p.InvoiceIssuerName, " ", p.BillingAccountID, " ", p.Period.From.Time().Format("2006-01"), " ", e.Time))
	}
	return strings.Join(all, "|")
}

func TestBillingPeriod(t *testing.T) {
	may := "Acme,2026-05-01T00:00:00Z,2026-06-01T00:00:00Z,Closed,2026-05-01T00:00:00Z,2026-06-04T00:00:00Z\n"
	june := "Acme,2026-06-01T00:00:00Z,2026-07-01T00:00:00Z,Open,2026-06-01T00:00:00Z,2026-06-04T00:00:00Z\n"
	r := read(t, periodHeader+may+june, focus.Options{Accounts: []string{"b", "a", "b"}, Historical: true})
	if want := "Acme a 2026-05 2026-06-04T00:00:00Z|Acme b 2026-05 2026-06-04T00:00:00Z"; r.err != nil || r.Dataset != focus.BillingPeriods ||
		r.FocusVersion != "1.4" || closures(r) != want || len(r.Warnings) != 1 || r.Warnings[0].Line != 3 {
		t.Errorf("%s, %+v, error %v", closures(r), r.Summary, r.err)
	}
	// A column names the account of its row.
	own := strings.ReplaceAll(strings.TrimSuffix(periodHeader, "\n")+",x_BillingAccountId\n"+strings.TrimSuffix(may, "\n")+",c\n", "2026-06-04T00:00:00Z", "")
	if r := read(t, own, focus.Options{}); r.err != nil || closures(r) != "Acme c 2026-05 2026-05-01T00:00:00Z" {
		t.Errorf("%s, error %v", closures(r), r.err)
	}
	if r := read(t, periodHeader+may, focus.Options{}); !errors.Is(r.err, focus.ErrColumns) || !strings.Contains(r.err.Error(), "--account") {
		t.Errorf("without an account: %v", r.err)
	}
	if r := read(t, bill(), focus.Options{Accounts: []string{"a"}}); !errors.Is(r.err, focus.ErrColumns) {
		t.Errorf("a bill with accounts: %v", r.err)
	}
	if r := read(t, periodHeader+may, focus.Options{FocusVersion: "1.2", Accounts: []string{"a"}}); r.err == nil {
		t.Error("FOCUS 1.2 has no Billing Period")
	}
	for change, want := range map[string]string{
		"Closed=closed": `BillingPeriodStatus "closed" is neither Open nor Closed`,
		"Acme=":         "InvoiceIssuerName is null",
		"2026-06-01T00:00:00Z=2026-05-01T00:00:00Z":           "is not after BillingPeriodStart",
		"2026-05-01T00:00:00Z,2026=2026-05-01,2026":           "BillingPeriodStart",
		"2026-06-01T00:00:00Z,Closed=,Closed":                 "BillingPeriodEnd is null",
		"2026-06-04T00:00:00Z\n=x\n":                          `BillingPeriodLastUpdated "x"`,
		"2026-06-04T00:00:00Z\n=2026-06-04T00:00:00Z\n" + may: "is also the period of line 2",
	} {
		from, to, _ := strings.Cut(change, "=")
		text := strings.Replace(may, from, to, 1)
		r := read(t, periodHeader+text, focus.Options{Accounts: []string{"a"}})
		if r.err != nil || len(r.bad) != 1 || !strings.Contains(r.bad[0].String(), want) {
			t.Errorf("%q: bad %v, error %v, want %s", change, r.bad, r.err, want)
		}
	}
	a, b := focus.SourceName([32]byte{}, focus.Options{Accounts: []string{"x", "y"}}), focus.SourceName([32]byte{}, focus.Options{Accounts: []string{"y", "x", "x"}})
	if a != b || a == focus.SourceName([32]byte{}, focus.Options{}) {
		t.Errorf("sources %s and %s", a, b)
	}
}

// commitment is a row of Contract Commitment 1.4, by column.
func commitment() map[string]string {
	return map[string]string{
		"BillingCurrency": "USD", "ContractCommitmentApplicability": `{"Scope": "all"}`, "ContractCommitmentBenefitCategory": "Discount",
		"ContractCommitmentCategory": "Usage", "ContractCommitmentCost": "26380.5", "ContractCommitmentCreated": "2025-12-01T00:00:00Z",
		"ContractCommitmentDescription": "", "ContractCommitmentDiscountPercentage": "40", "ContractCommitmentDurationType": "1Y",
		"ContractCommitmentFulfillmentInterval": "Hourly", "ContractCommitmentId": "c-1", "ContractCommitmentLastUpdated": "2026-01-01T00:00:00Z",
		"ContractCommitmentLifecycleStatus": "Active", "ContractCommitmentModel": "Continuous", "ContractCommitmentOfferCategory": "Negotiated",
		"ContractCommitmentPaymentInterval": "Monthly", "ContractCommitmentPaymentModel": "Partial Upfront",
		"ContractCommitmentPaymentUpfrontPercentage": "10", "ContractCommitmentPeriodEnd": "2027-01-01T00:00:00Z",
		"ContractCommitmentPeriodStart": "2026-01-01T00:00:00Z", "ContractCommitmentQuantity": "", "ContractCommitmentType": "Reserved",
		"ContractCommitmentUnit": "", "ContractId": "k-1", "ContractPeriodEnd": "2027-01-01T00:00:00Z", "ContractPeriodStart": "2026-01-01T00:00:00Z",
		"InvoiceIssuerName": "Acme", "PricingCurrency": "USD", "PricingCurrencyContractCommitmentCost": "", "ServiceProviderName": "Acme",
	}
}

// commitmentFile writes rows in the columns of the first.
func commitmentFile(t *testing.T, rows ...map[string]string) string {
	t.Helper()
	var b strings.Builder
	w := csv.NewWriter(&b)
	var names []string
	for name := range rows[0] {
		names = append(names, name)
	}
	slices.Sort(names)
	all := [][]string{names}
	for _, row := range rows {
		var cells []string
		for _, name := range names {
			cells = append(cells, row[name])
		}
		all = append(all, cells)
	}
	if err := w.WriteAll(all); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestContractCommitment(t *testing.T) {
	second := commitment()
	second["ContractCommitmentId"] = "c-2"
	r := read(t, commitmentFile(t, commitment(), second), focus.Options{})
	if r.err != nil || r.Dataset != focus.ContractCommitments || r.FocusVersion != "1.4" || len(r.bad) > 0 || len(r.events) > 0 || len(r.Warnings) > 0 || len(r.Contracts) != 2 {
		t.Fatalf("%+v, bad %v, error %v", r.Summary, r.bad, r.err)
	}
	c := r.Contracts[0]
	if got := fmt.Sprintln(c.Line, c.ID, c.ContractID, c.Issuer, c.Provider, c.Category, c.Lifecycle, c.PaymentModel, c.Currency, c.Cost.Decimal, c.Term.From, c.Term.To); got !=
		"2 c-1 k-1 Acme Acme Usage Active Partial Upfront USD 26380.5 2026-01-01T00:00:00Z 2027-01-01T00:00:00Z\n" {
		t.Error(got)
	}
	old := commitment()
	for name := range old {
		if !slices.Contains(strings.Fields("BillingCurrency ContractCommitmentCategory ContractCommitmentCost ContractCommitmentDescription ContractCommitmentId "+
			"ContractCommitmentPeriodEnd ContractCommitmentPeriodStart ContractCommitmentQuantity ContractCommitmentType ContractCommitmentUnit ContractId ContractPeriodEnd ContractPeriodStart"), name) {
			delete(old, name)
		}
	}
	if r := read(t, commitmentFile(t, old), focus.Options{}); r.err != nil || r.FocusVersion != "1.3" || len(r.Warnings) > 0 || len(r.Contracts) != 1 {
		t.Errorf("1.3: %+v, bad %v, error %v", r.Summary, r.bad, r.err)
	}
	if r := read(t, commitmentFile(t, old), focus.Options{FocusVersion: "1.2"}); r.err == nil {
		t.Error("FOCUS 1.2 has no Contract Commitment")
	}
	for change, want := range map[string]string{
		"ContractCommitmentLifecycleStatus=Live":           `"Live" is not one of Proposed, Pending, Active`,
		"ContractCommitmentCost=1,000":                     "ContractCommitmentCost",
		"ContractCommitmentCategory=":                      "ContractCommitmentCategory is null",
		"ContractCommitmentApplicability=[1]":              "is no object of JSON",
		"ContractCommitmentPeriodEnd=2026-01-01T00:00:00Z": "is not after ContractCommitmentPeriodStart",
		"ContractPeriodEnd=2025-01-01T00:00:00Z":           "is not after ContractPeriodStart",
		"ContractCommitmentCreated=yesterday":              `ContractCommitmentCreated "yesterday"`,
		"ContractCommitmentPaymentUpfrontPercentage=":      "ContractCommitmentPaymentUpfrontPercentage is null",
	} {
		name, value, _ := strings.Cut(change, "=")
		row := commitment()
		row[name] = value
		r := read(t, commitmentFile(t, row), focus.Options{})
		if r.err != nil || len(r.bad) != 1 || len(r.Contracts) != 0 || !strings.Contains(r.bad[0].String(), want) {
			t.Errorf("%s: bad %v, error %v, want %s", change, r.bad, r.err, want)
		}
	}
	if r := read(t, commitmentFile(t, commitment(), commitment()), focus.Options{}); len(r.bad) != 1 || !strings.Contains(r.bad[0].String(), "is also the commitment of line 2") {
		t.Errorf("twice: %v", r.bad)
	}
}

// The columns of Contract Commitment, Billing Period and Invoice Detail are those of the specification,
// with its types, nulls and allowed values: a row whose columns all break them breaks them one by one.
func TestDatasetsOfTheSpecification(t *testing.T) {
	dir := os.Getenv("QUARTERMASTER_DATA")
	if dir == "" {
		t.Skip("QUARTERMASTER_DATA is not set")
	}
	f, err := os.Open(filepath.Join(dir, "focus", "focus_1_4_columns.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, row := range rows[1:] {
		dataset, column, kind, null, values := row[0], row[1], row[2], row[3] == "True", row[7]
		if dataset != "Contract Commitment" {
			continue
		}
		seen++
		good := commitment()
		if _, ok := good[column]; !ok {
			t.Errorf("%s is not read", column)
			continue
		}
		good[column] = ""
		if r := read(t, commitmentFile(t, good), focus.Options{}); (len(r.bad) == 0) != null {
			t.Errorf("%s: null is allowed: %v, but bad %v", column, null, r.bad)
		}
		bad := commitment()
		switch {
		case values != "":
			bad[column] = "something else"
			for _, v := range strings.Split(values, ";") {
				allowed := commitment()
				allowed[column] = v
				if r := read(t, commitmentFile(t, allowed), focus.Options{}); len(r.bad) > 0 {
					t.Errorf("%s: %q is allowed, but bad %v", column, v, r.bad)
				}
			}
		case kind == "String":
			continue
		default:
			bad[column] = "something else"
		}
		if r := read(t, commitmentFile(t, bad), focus.Options{}); len(r.bad) != 1 || r.bad[0].Field != column {
			t.Errorf("%s of type %s takes %q: %v", column, kind, bad[column], r.bad)
		}
	}
	if seen != 30 {
		t.Errorf("%d columns of Contract Commitment, want 30", seen)
	}
}
