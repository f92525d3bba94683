package app_test

import (
	"errors"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/cmd/quartermaster/internal/apptest"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

// The causes of a restatement add up to the difference of the totals, in each ledger.
func TestCausesAddUpToTheDifference(t *testing.T) {
	dir := billedDir(t)
	a := &app.App{Dir: dir}
	r, err := a.For(app.Everyone).Costs(t.Context(), "", costs.Query{Month: may})
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	h, _ := apptest.Open(t, dir)
	apptest.AppendEvents(t, h.Log, lineOf("l-3", "1.000000000000000007"), lineOf("l-2", "5.5"), sampled("reporter/late", 1, "b"), invoiced("16.5"))
	apptest.Close(t, h)
	a = &app.App{Dir: dir}
	s, err := a.For(app.Everyone).Restate(t.Context(), app.At(r.Position), "", may)
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	if len(s.Before) != 1 || len(s.After) != 1 || len(s.Causes) < 2 {
		t.Fatalf("restated %+v", s)
	}
	var billed, effective attribution.Amount
	for _, c := range s.Causes {
		billed, effective = billed.Add(c.Billed), effective.Add(c.Effective)
	}
	if billed != s.After[0].Billed.Sub(s.Before[0].Billed) || effective != s.After[0].Effective.Sub(s.Before[0].Effective) {
		t.Errorf("causes add up to %s and %s, totals went from %+v to %+v", billed, effective, s.Before, s.After)
	}
	if _, err := a.For(app.Everyone).Restate(t.Context(), "", app.At(r.Position), may); err == nil {
		t.Error("the later position comes first, and it is not refused")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}
