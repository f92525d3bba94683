package focus_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
)

// A value that repeats is not read again. So a row must give the same line, refusal and warnings after any other row as
// alone.
func TestARowDoesNotDependOnTheRowBefore(t *testing.T) {
	header := []string{
		"BilledCost", "EffectiveCost", "ListUnitPrice", "PricingQuantity", "PricingUnit", "BillingAccountId", "BillingCurrency", "BillingPeriodStart",
		"BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd", "ChargeCategory", "ChargeClass", "ChargeFrequency", "ChargeDescription",
		"InvoiceIssuerName", "ProviderName", "InvoiceId", "ResourceId", "Tags", "x_Custom", "x_ListUnitPriceAsWritten", "x_InvoiceIssuerNameSource", "",
		"x_CorrectsLineId", "x_CorrectionReason", "x_Generated",
	}
	plain := []string{
		"1.5", "1.50", "0.25", "1", "Hours", "a1", "USD", "2026-05-01T00:00:00Z",
		"2026-06-01T00:00:00Z", "2026-05-02T00:00:00Z", "2026-05-02T01:00:00Z", "Usage", "", "Usage-Based", "a machine",
		"Acme", "Maker", "inv-1", "i-1", `{"team":"search"}`, "kept", "", "", "", "", "", "",
	}
	row := func(changes ...string) string {
		values := append([]string{}, plain...)
		for _, c := range changes {
			name, value, _ := strings.Cut(c, "=")
			for i, h := range header {
				if h == name {
					values[i] = value
				}
			}
		}
		for i, v := range values {
			if strings.ContainsAny(v, "\",\n") {
				values[i] = `"` + strings.ReplaceAll(v, `"`, `""`) + `"`
			}
		}
		return strings.Join(values, ",")
	}
	rows := []string{
		row(),
		row("BilledCost=2", "ResourceId=i-2"),
		row("ResourceId=", "x_Custom=", "Tags=", "PricingQuantity=", "PricingUnit="),
		row("ListUnitPrice=0.12345678901234567891"),                                // rounded
		row("ListUnitPrice=0.12345678901234567891", "x_ListUnitPriceAsWritten=12"), // into a column that the file has
		row("x_ListUnitPriceAsWritten=12"),
		row("ListUnitPrice=many"), // set aside
		row("ListUnitPrice=-1"),
		row("PricingQuantity=-3"),
		row("PricingQuantity=-3", "BilledCost=-1", "EffectiveCost=-1"),
		row("PricingQuantity=900000000"),
		row("ChargeFrequency=Sometimes"),
		row("ChargeDescription=a\x01b"),
		row("x_Custom=a\x01b"),
		row("Tags=not JSON"),
		row("ResourceId=NULL", "x_Custom=(null)"),
		row("InvoiceIssuerName=", "InvoiceId="), // inferred
		row("InvoiceIssuerName=", "InvoiceId=", "x_InvoiceIssuerNameSource=theirs"),
		row("=nameless", "ResourceId=i-4"),
		row("BilledCost="),          // refused at the first column
		row("BillingCurrency=euro"), // refused at the end
		row("ChargePeriodEnd=yesterday"),
		row("ChargePeriodEnd=2026-05-01T00:00:00Z"),
		row("ChargeClass=Correction", "x_CorrectsLineId=l1", "x_CorrectionReason=late", "x_Generated=true"),
		row("BilledCost=1e2", "EffectiveCost=1e2", "ListUnitPrice=1.500"),
		row("ChargeDescription=" + strings.Repeat("long ", 3000)),
		row("x_Custom="+strings.Repeat("long ", 3000), "ResourceId=i-3"),
	}
	type outcome struct {
		events, bad []string
		warnings    map[string]int
	}
	run := func(rows ...string) (o outcome) {
		text := []byte(strings.Join(header, ",") + "\n" + strings.Join(rows, "\n") + "\n")
		sum, err := focus.Run(context.Background(), bytes.NewReader(text), bytes.NewReader(text), "f", focus.Options{}, func(env *domain.Envelope) error {
			e := *env
			e.Line = 0
			text, err := json.Marshal(e)
			o.events = append(o.events, string(text))
			return err
		}, func(b tabular.BadRow) {
			b.Line = 0
			o.bad = append(o.bad, b.String())
		})
		if err != nil {
			t.Fatal(err)
		}
		o.warnings = map[string]int{}
		for _, w := range sum.Warnings {
			o.warnings[w.Reason+"|"+w.Value] += w.Rows
		}
		return o
	}
	alone := make([]outcome, len(rows))
	for i, r := range rows {
		alone[i] = run(r)
	}
	for i, a := range rows {
		for j, b := range rows {
			if i == j || i >= 16 && i <= 17 || j >= 16 && j <= 17 {
				continue // equal rows are numbered, and an issuer is inferred from other rows
			}
			both := run(a, b)
			want := outcome{events: append(append([]string{}, alone[i].events...), alone[j].events...), bad: append(append([]string{}, alone[i].bad...), alone[j].bad...)}
			if fmt.Sprint(both.events) != fmt.Sprint(want.events) || fmt.Sprint(both.bad) != fmt.Sprint(want.bad) {
				t.Errorf("rows %d and %d together give\n%v\n%v\nand alone\n%v\n%v", i, j, both.events, both.bad, want.events, want.bad)
			}
			for w, n := range both.warnings {
				if of := alone[i].warnings[w] + alone[j].warnings[w]; n != of && !strings.HasPrefix(w, "columns that FOCUS") {
					t.Errorf("rows %d and %d together give %d times %q, alone %d", i, j, n, w, of)
				}
			}
		}
	}
}
