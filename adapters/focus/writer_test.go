package focus_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/focus"
	"quartermaster/domain"
)

// may2026 is the start of the billing period of these tests.
const may2026 = domain.Instant(1777593600) * domain.Second

// machine is a typical line of a supplier of GPUs.
func machine() *domain.BillingLine {
	return &domain.BillingLine{
		LineID: "l1", BilledCost: decimal.RequireFromString("12.50000000001"), BillingAccountID: "acct-1", BillingCurrency: "USD",
		BillingPeriodStart: may2026, BillingPeriodEnd: may2026 + 31*domain.Day, ChargePeriodStart: may2026, ChargePeriodEnd: may2026 + domain.Hour,
		ChargeCategory: "Usage", InvoiceIssuerName: "Example Cloud", ServiceCategory: "Compute", ServiceName: "GPU machines", ServiceProviderName: "Example Cloud",
		ResourceID: "i-1", PricingQuantity: decimal.NewNullDecimal(decimal.New(1, 3)), FocusVersion: "1.4",
		Tags: `{"team":"search, ranking"}`, Other: map[string]string{"x_Plan": "reserved"},
	}
}

func TestWriterKeepsFocusOrderAndPlainNumbers(t *testing.T) {
	var b bytes.Buffer
	w := focus.NewWriter(&b, "x_Plan")
	l := machine()
	l.Generated = true
	if err := w.WriteLine(l); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	header, row, _ := strings.Cut(b.String(), "\n")
	names := strings.Split(header, ",")
	if len(names) != 65+5+1 || names[0] != "AllocatedMethodDetails" || names[6] != "BilledCost" || names[64] != "Tags" || names[65] != "x_LineId" || names[70] != "x_Plan" {
		t.Errorf("header %s", header)
	}
	for _, want := range []string{",12.50000000001,acct-1,", ",2026-06-01T00:00:00Z,2026-05-01T00:00:00Z,", ",1000,", `"{""team"":""search, ranking""}",l1,,,1.4,true,reserved`} {
		if !strings.Contains(row, want) {
			t.Errorf("row %s does not hold %s", row, want)
		}
	}
}

func TestWriterRefusesWhatItWouldDrop(t *testing.T) {
	if err := focus.NewWriter(&bytes.Buffer{}).WriteLine(machine()); err == nil || !strings.Contains(err.Error(), `line "l1"`) {
		t.Errorf("a column that the file lacks: error %v", err)
	}
	for _, other := range [][]string{{"x_Plan", "X_PLAN"}, {"tags"}, {" "}} {
		if err := focus.NewWriter(&bytes.Buffer{}, other...).Flush(); err == nil {
			t.Errorf("columns %q are accepted", other)
		}
	}
	inv := domain.InvoiceReceived{InvoiceIssuerName: "e", BillingAccountID: "a", InvoiceID: "i", Total: domain.Money{Amount: decimal.NewFromInt(3), Currency: "USD"}}
	for want, change := range map[string]func(){
		"no details": func() {},
		"add up to 2": func() {
			inv.Details = []domain.InvoiceDetail{{InvoiceDetailID: "d", ChargeCategory: "Usage", BilledCost: decimal.NewFromInt(2)}}
		},
	} {
		inv.Details = nil
		change()
		if err := focus.WriteInvoices(&bytes.Buffer{}, []domain.InvoiceReceived{inv}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	inv.Total.Amount = decimal.NewFromInt(2)
	inv.Details = []domain.InvoiceDetail{{InvoiceDetailID: "d", ChargeCategory: "Usage", BilledCost: decimal.NewFromInt(2)}}
	if err := focus.WriteInvoices(&bytes.Buffer{}, []domain.InvoiceReceived{inv, inv}); err == nil || !strings.Contains(err.Error(), "duplicate") {
		t.Errorf("an invoice twice: error %v", err)
	}
}
