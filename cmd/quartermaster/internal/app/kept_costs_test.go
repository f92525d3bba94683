package app_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

var may = projections.BillingMonth(apptest.May)

// lineOf is a line for a node of cluster lab in May, of a source of its own.
func lineOf(id, cost string, change ...func(*domain.BillingLine)) domain.Envelope {
	l := domain.BillingLine{
		LineID: id, InvoiceIssuerName: "Acme", BillingAccountID: "1", BillingCurrency: "USD", BilledCost: decimal.RequireFromString(cost),
		InvoiceID: "i-1", BillingPeriodStart: may.From, BillingPeriodEnd: may.To, ChargePeriodStart: may.From, ChargePeriodEnd: may.From + domain.Day,
		ChargeCategory: "Usage", ServiceCategory: "Compute", ServiceName: "GPU", ServiceProviderName: "Acme",
	}
	l.EffectiveCost = decimal.NewNullDecimal(l.BilledCost)
	for _, c := range change {
		c(&l)
	}
	return domain.Envelope{Source: "focus/" + id + "/" + cost, Time: may.To, Event: &domain.BillingLineRecorded{Line: l}}
}

// invoiced is the invoice of those lines.
func invoiced(total string) domain.Envelope {
	return domain.Envelope{Source: "invoice/" + total, Time: may.To, Event: &domain.InvoiceReceived{
		InvoiceIssuerName: "Acme", BillingAccountID: "1", InvoiceID: "i-1", Status: "Issued", BillingPeriod: may,
		Total: domain.Money{Currency: "USD", Amount: decimal.RequireFromString(total)},
	}}
}

// billedDir is a data directory whose May is sealed and has a bill.
func billedDir(t *testing.T) string {
	dir := t.TempDir()
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, sampled("reporter/a", 1, "a"), sampled("reporter/a", 9, "b"), sampled("reporter/a", 80, "a"),
		lineOf("l-1", "10.000000000000000001"), lineOf("l-2", "5"), invoiced("15"))
	apptest.Close(t, h)
	return dir
}

// A sealed month is divided once, and later processes answer from its file, byte for byte alike. A damaged
// file is named, divided again and replaced. A line of the month makes it be divided again, and the file of
// before is removed.
func TestCostsAreAnsweredFromKeptAllocations(t *testing.T) {
	dir := billedDir(t)
	var told []string
	ask := func() (answer string, divisions int) {
		t.Helper()
		told = nil
		a := &app.App{Dir: dir, Tell: func(note string) { told = append(told, note) }}
		c := a.For(app.Everyone)
		r, err := c.Costs(t.Context(), "", costs.Query{Month: may, By: costs.Dimensions(), Largest: 1})
		var all []costs.Allocation
		n, err2 := c.Allocations(t.Context(), "", may, costs.AllocationFilter{}, func(a *costs.Allocation) error {
			all = append(all, *a)
			return nil
		})
		divisions = app.Divisions(a)
		if err := errors.Join(err, err2, a.Close()); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal([]any{r, all, n})
		if err != nil {
			t.Fatal(err)
		}
		return string(b), divisions
	}
	files := func() (names []string) {
		names, err := filepath.Glob(filepath.Join(dir, "parts", "*", "month=2026-05", "allocations", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(names, func(s string) bool { return filepath.Base(s) == "manifest.json" })
	}

	first, n := ask()
	if n != 1 || len(files()) != 1 {
		t.Fatalf("%d divisions, files %q", n, files())
	}
	if again, n := ask(); again != first || n != 0 || len(told) > 0 {
		t.Errorf("%d divisions, told %q, answer\n%s\nwant\n%s", n, told, again, first)
	}

	// In memory the answer is the same.
	file := files()[0]
	good := contentOf(t, file)
	folder := filepath.Dir(file)
	if os.Getuid() != 0 { // root may write everywhere
		if err := errors.Join(os.RemoveAll(folder), os.Mkdir(folder, 0o500)); err != nil {
			t.Fatal(err)
		}
		if memory, n := ask(); memory != first || n != 1 {
			t.Errorf("%d divisions, answer from memory\n%s\nwant\n%s", n, memory, first)
		}
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		ask()
	}

	for name, damage := range map[string]func([]byte) []byte{
		"changed": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut":     func(b []byte) []byte { return b[:len(b)-9] },
	} {
		if err := os.WriteFile(file, damage(slices.Clone(good)), 0o600); err != nil {
			t.Fatal(err)
		}
		again, n := ask()
		if again != first || n != 1 || !strings.Contains(strings.Join(told, "\n"), filepath.Base(file)) {
			t.Errorf("%s: %d divisions, told %q, answer %s", name, n, told, again)
		}
		if string(contentOf(t, file)) != string(good) {
			t.Errorf("%s: the file was not mended", name)
		}
	}

	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, lineOf("l-3", "1"))
	apptest.Close(t, h)
	if later, n := ask(); n != 1 || later == first || len(files()) != 1 || files()[0] == file {
		t.Errorf("after a late line: %d divisions, files %q", n, files())
	}

	// An event about nothing that was read.
	h, _ = apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, sampled("reporter/a", 81, "a"))
	apptest.Close(t, h)
	if _, n := ask(); n != 0 {
		t.Errorf("after a sample of another month: %d divisions", n)
	}
}
