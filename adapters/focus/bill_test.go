package focus_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"quartermaster/adapters/focus"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// The mandatory columns, and a row whose cells can be changed by name.
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

// bill returns a file with the needed columns and those given as name=value, with one row for
// each list.
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

// result is the result of a run.
type result struct {
	focus.Summary
	events []domain.Envelope // the events are copies
	bad    []tabular.BadRow
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

// warned returns the values and the row count of the warnings with a reason.
func (r result) warned(reason string) (values []string, rows int) {
	for _, w := range r.Warnings {
		if strings.Contains(w.Reason, reason) {
			values = append(values, w.Value)
			rows += w.Rows
		}
	}
	return values, rows
}

// read runs an import and checks the invariants of every import.
func read(t testing.TB, text string, opts focus.Options) result {
	t.Helper()
	var r result
	r.Summary, r.err = focus.Run(context.Background(), strings.NewReader(text), strings.NewReader(text), "f.csv", opts, func(e *domain.Envelope) error {
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
	}, func(b tabular.BadRow) { r.bad = append(r.bad, b) })
	if r.Bad != len(r.bad) || r.Events != len(r.events) || r.Bad > r.Rows {
		t.Errorf("summary %+v beside %d events and %d bad rows", r.Summary, len(r.events), len(r.bad))
	}
	return r
}

// dividable returns why attribution cannot process an event. Attribution must be able to process
// everything that was imported. It ignores a quantity that was set aside.
func dividable(e domain.Event) error {
	var line *domain.BillingLine
	switch e := e.(type) {
	case *domain.BillingPeriodClosed:
		return nil
	case *domain.BillingLineRecorded:
		line = &e.Line
	case *domain.BillingLineCorrected:
		line = &e.Line
	case *domain.InvoiceReceived:
		_, err := attribution.AmountOf(e.Total.Amount)
		return err
	}
	l, err := attribution.LineOf(line)
	if err == nil && l.UnusableQuantity != "" && line.Other[domain.AsWritten("PricingQuantity")]+line.Other[domain.AsWritten("ConsumedQuantity")] == "" {
		err = errors.New(l.UnusableQuantity)
	}
	return err
}

// copied copies an event through JSON, which keeps every field of these events.
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
	case *domain.BillingPeriodClosed:
		out = &domain.BillingPeriodClosed{}
	}
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}
