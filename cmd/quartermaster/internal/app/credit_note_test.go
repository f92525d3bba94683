package app

import (
	"encoding/json"
	"testing"

	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

// A note is what was posted about a statement in a currency. What is due are the notes and what is charged.
func TestNotesOnStatements(t *testing.T) {
	amount := func(text string) attribution.Amount {
		a, err := attribution.ParseAmount(text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	of := func(corrects, currency, billed string) StatementCorrection {
		return StatementCorrection{Corrects: corrects, Type: costs.PostedCorrection, Currency: currency, Billed: amount(billed), Causes: []string{"x"}}
	}
	s := &CostStatement{
		Number: "2026-07/search/0123abcd", Final: true,
		Totals: []costs.Cost{{Currency: "USD", BilledMinor: amount("100").Minor("USD")}},
		Corrections: []StatementCorrection{
			of("2026-06/search/22222222", "USD", "-0.004"), of("2026-06/search/22222222", "USD", "-0.004"), // each is nothing
			of("2026-05/search/11111111", "USD", "2.5"), of("2026-05/search/11111111", "JPY", "-10.5"),
			of("2026-05/search/11111111", "EUR", "3"), of("2026-05/search/11111111", "EUR", "-3"),
		},
	}
	s.note(map[[2]string]attribution.Minor{
		{"2026-06/search/22222222", "USD"}: amount("-0.01").Minor("USD"),
		{"2026-05/search/11111111", "USD"}: amount("2.50").Minor("USD"), {"2026-05/search/11111111", "JPY"}: amount("-11").Minor("JPY"),
		{"2026-05/search/11111111", "EUR"}: amount("0").Minor("EUR"),
	})
	type brief struct{ Number, Kind, Corrects, Currency, Amount string }
	var have []brief
	for _, n := range s.Notes {
		have = append(have, brief{n.Number, string(n.Kind), n.Corrects, n.Currency, n.Amount.String()})
	}
	got, err := json.Marshal(map[string]any{"notes": have, "due": s.Due})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"due":[{"currency":"EUR","amount":"0.00"},{"currency":"JPY","amount":"-11"},{"currency":"USD","amount":"102.49"}],"notes":[` +
		`{"Number":"2026-07/search/0123abcd/credit-2026-05-JPY","Kind":"credit_note","Corrects":"2026-05/search/11111111","Currency":"JPY","Amount":"-11"},` +
		`{"Number":"2026-07/search/0123abcd/debit-2026-05-USD","Kind":"debit_note","Corrects":"2026-05/search/11111111","Currency":"USD","Amount":"2.50"},` +
		`{"Number":"2026-07/search/0123abcd/credit-2026-06-USD","Kind":"credit_note","Corrects":"2026-06/search/22222222","Currency":"USD","Amount":"-0.01"}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := len(s.Notes[2].Corrections); n != 2 {
		t.Errorf("the note has %d corrections", n)
	}
}
