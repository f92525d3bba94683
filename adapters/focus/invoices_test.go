package focus_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

const invoiceHeader = "InvoiceIssuerName,BillingAccountId,InvoiceId,InvoiceDetailId,BilledCost,BillingCurrency,ChargeCategory,InvoiceIssueStatus," +
	"BillingPeriodStart,BillingPeriodEnd,InvoiceIssueDate,InvoiceDetailLastUpdated,PaymentDueDate,PaymentTerms,ReferenceInvoiceId,PurchaseOrderNumber,InvoiceDetailGrain,InvoiceDetailDescription\n"

// detail is a row under invoiceHeader; changes are name=value.
func detail(invoice, id, cost string, changes ...string) string {
	names := strings.Split(strings.TrimSpace(invoiceHeader), ",")
	values := []string{
		"Example Cloud", "a-1", invoice, id, cost, "USD", "Usage", "Issued", "2026-05-01T00:00:00Z", "2026-06-01T00:00:00Z",
		"2026-06-03T00:00:00Z", "2026-06-04T00:00:00Z", "2026-07-03T00:00:00Z", "net 30", invoice, "PO-1", "", "GPU machines",
	}
	for _, change := range changes {
		name, value, _ := strings.Cut(change, "=")
		for i := range names {
			if names[i] == name {
				values[i] = value
			}
		}
	}
	return strings.Join(values, ",") + "\n"
}

func TestInvoiceDetail(t *testing.T) {
	r := read(t, invoiceHeader+
		detail("I-2", "d1", "10.00000000001")+detail("I-1", "d1", "5", "InvoiceDetailLastUpdated=2026-06-09T00:00:00Z")+
		detail("I-2", "d2", "-0.5", "ChargeCategory=Credit")+detail("I-1", "d2", "1e-2", "ChargeCategory=Tax")+
		detail("I-2", "d3", "1", "BillingAccountId=b"), focus.Options{Historical: true})
	if r.err != nil || r.Dataset != focus.InvoiceDetails || r.FocusVersion != "1.4" || r.Rows != 5 || len(r.events) != 3 || len(r.Warnings) != 0 {
		t.Fatalf("%+v, bad %v, error %v", r.Summary, r.bad, r.err)
	}
	for i, want := range []string{"I-2 a-1 9.50000000001 USD 2 2026-06-04T00:00:00Z", "I-1 a-1 5.01 USD 2 2026-06-09T00:00:00Z", "I-2 b 1 USD 1 2026-06-04T00:00:00Z"} {
		e := r.events[i]
		inv := e.Event.(*domain.InvoiceReceived)
		if got := fmt.Sprint(inv.InvoiceID, " ", inv.BillingAccountID, " ", inv.Total, " ", len(inv.Details), " ", e.Time); got != want || e.Recorded != e.Time || e.Subject != inv.InvoiceID {
			t.Errorf("invoice %d: %s, want %s", i, got, want)
		}
	}
	inv := r.events[0].Event.(*domain.InvoiceReceived)
	if inv.Status != "Issued" || inv.IssueDate.String() != "2026-06-03T00:00:00Z" || inv.PaymentDueDate.String() != "2026-07-03T00:00:00Z" || inv.PaymentTerms != "net 30" ||
		inv.PurchaseOrder != "PO-1" || inv.ReferenceInvoiceID != "I-2" || inv.BillingPeriod.To.String() != "2026-06-01T00:00:00Z" || inv.Details[1].ChargeCategory != "Credit" || inv.Details[0].Description != "GPU machines" {
		t.Errorf("%+v", inv)
	}
	for changes, want := range map[string]string{
		"InvoiceDetailLastUpdated=":                   "2026-06-03T00:00:00Z",
		"InvoiceDetailLastUpdated=;InvoiceIssueDate=": "2026-06-01T00:00:00Z",
	} {
		if r := read(t, invoiceHeader+detail("I", "d", "1", strings.Split(changes, ";")...), focus.Options{}); r.events[0].Time.String() != want {
			t.Errorf("%s: time %s, want %s", changes, r.events[0].Time, want)
		}
	}
}

// An invoice with a bad row is not imported, because its total would be wrong.
func TestInvoicesAreRefusedWhole(t *testing.T) {
	for _, c := range []struct {
		row, field, reason string
	}{
		{detail("I-1", "d2", "1", "InvoiceIssueStatus=Open"), "InvoiceIssueStatus", "differs from line 2 of the same invoice"},
		{detail("I-1", "d2", "1", "BillingCurrency=EUR"), "BillingCurrency", "differs from line 2"},
		{detail("I-1", "d2", "1", "InvoiceIssueDate="), "InvoiceIssueDate", "differs from line 2"},
		{detail("I-1", "d2", "1", "PaymentDueDate=2026-07-04T00:00:00Z"), "PaymentDueDate", "differs from line 2"},
		{detail("I-1", "d2", "1", "BillingPeriodStart=2026-05-02T00:00:00Z"), "BillingPeriodStart", "differs from line 2"},
		{detail("I-1", "d2", "1", "BillingPeriodEnd=2026-06-02T00:00:00Z"), "BillingPeriodEnd", "differs from line 2"},
		{detail("I-1", "d2", "1", "PaymentTerms=cash"), "PaymentTerms", "differs from line 2"},
		{detail("I-1", "d2", "1", "PurchaseOrderNumber="), "PurchaseOrderNumber", "differs from line 2"},
		{detail("I-1", "d2", "1", "ReferenceInvoiceId=I-0"), "ReferenceInvoiceId", "differs from line 2"},
		{detail("I-1", "d2", "one"), "BilledCost", "is not a number"},
		{detail("I-1", "d2", ""), "BilledCost", "is null"},
		{detail("I-1", "d2", "1e15"), "BilledCost", "is 1e15 or more"},
		{detail("I-1", "", "1"), "InvoiceDetailId", "is null"},
		{detail("I-1", "d1", "1"), "InvoiceDetailId", "is also the id of the detail in line 2"},
		{detail("I-1", "d2", "1", "BillingPeriodEnd=2026-05-01T00:00:00Z"), "BillingPeriodEnd", "is not after"},
		{detail("I-1", "d2", "1", "BillingPeriodStart="), "BillingPeriodStart", "is null"},
		{detail("I-1", "d2", "1", "InvoiceIssueDate=3.6.2026"), "InvoiceIssueDate", "is not a time"},
	} {
		r := read(t, invoiceHeader+detail("I-1", "d1", "1")+c.row+detail("I-2", "d1", "1"), focus.Options{})
		if r.err != nil || len(r.events) != 1 || r.events[0].Subject != "I-2" || len(r.bad) != 2 {
			t.Errorf("%s: %+v, bad %v, error %v", c.row, r.Summary, r.bad, r.err)
			continue
		}
		if b := r.bad[0]; b.Line != 3 || b.Field != c.field || !strings.Contains(b.Reason, c.reason) {
			t.Errorf("%s: bad row %+v, want field %q, reason %q", c.row, b, c.field, c.reason)
		}
		if b := r.bad[1]; b.Line != 2 || b.Reason != "is refused as a whole because of line 3" {
			t.Errorf("%s: the other row %+v", c.row, b)
		}
	}
	// Faults that only the whole invoice shows.
	for changes, field := range map[string]string{"InvoiceIssueStatus=Paid": "InvoiceIssueStatus", "ChargeCategory=Fee": "details[0].ChargeCategory", "BillingCurrency=usd": "total"} {
		r := read(t, invoiceHeader+detail("I-1", "d1", "1", changes), focus.Options{})
		if len(r.bad) != 1 || r.bad[0].Field != field || len(r.events) != 0 || r.bad[0].Line != 2 {
			t.Errorf("%s: %+v, bad %+v", changes, r.Summary, r.bad)
		}
	}
	r := read(t, invoiceHeader+detail("I-1", "d1", "9e14")+detail("I-1", "d2", "1e14")+detail("I-2", "d1", "9e14"), focus.Options{})
	if len(r.bad) != 2 || r.bad[0].Field != "BilledCost" || r.bad[0].Value != "1000000000000000" || len(r.events) != 1 || r.events[0].Subject != "I-2" {
		t.Errorf("a sum too large: %+v, bad %+v", r.Summary, r.bad)
	}
	r = read(t, invoiceHeader+detail("", "d1", "1")+detail("I-2", "d1", "1"), focus.Options{})
	if _, rows := r.warned("rows that name no invoice"); rows != 1 || len(r.bad) != 1 || len(r.events) != 1 {
		t.Errorf("a row of no invoice: %+v, bad %v", r.Summary, r.bad)
	}
}

func TestInvoicesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(invoiceHeader)
	for i := range 10_001 {
		b.WriteString(detail("I-1", fmt.Sprint("d", i), "0.01"))
	}
	r := read(t, b.String(), focus.Options{})
	if inv := r.events[0].Event.(*domain.InvoiceReceived); inv.Details != nil || inv.Total.String() != "100.01 USD" || len(r.Warnings) != 1 {
		t.Errorf("10,001 details: %s with %d of them, %+v", inv.Total, len(inv.Details), r.Warnings)
	}
	if r := read(t, b.String(), focus.Options{InvoiceBytes: 100_000}); !errors.Is(r.err, tabular.ErrTooLarge) || len(r.events) != 0 {
		t.Errorf("beyond the limit: %+v, error %v", r.Summary, r.err)
	}
	if r := read(t, invoiceHeader+detail("I", "d", "1"), focus.Options{FocusVersion: "1.3"}); r.err == nil || !strings.Contains(r.err.Error(), "came with 1.4") {
		t.Errorf("Invoice Detail of 1.3: error %v", r.err)
	}
	if r := read(t, invoiceHeader+detail("I", "d", "1"), focus.Options{Currency: "EUR"}); len(r.bad) != 1 || r.bad[0].Field != "BillingCurrency" {
		t.Errorf("in another currency: %+v", r.bad)
	}
}

func TestInvoicesComeBackAsWritten(t *testing.T) {
	r := read(t, invoiceHeader+detail("I-2", "d1", "10.00000000001")+detail("I-1", "d1", "5", "InvoiceDetailLastUpdated=")+detail("I-2", "d2", "-0.5", "ChargeCategory=Credit"), focus.Options{})
	var invoices []domain.InvoiceReceived
	for _, e := range r.events {
		inv := *e.Event.(*domain.InvoiceReceived)
		inv.Generated = true
		invoices = append(invoices, inv)
	}
	var b bytes.Buffer
	if err := focus.WriteInvoices(&b, invoices); err != nil {
		t.Fatal(err)
	}
	again := read(t, b.String(), focus.Options{})
	if len(again.events) != len(invoices) {
		t.Fatalf("%+v, bad %v", again.Summary, again.bad)
	}
	for i, e := range again.events {
		if got, want := asJSON(t, e.Event), asJSON(t, &invoices[i]); got != want {
			t.Errorf("invoice %d came back as\n%s, was\n%s", i, got, want)
		}
	}
}
