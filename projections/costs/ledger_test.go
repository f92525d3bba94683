package costs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// billLine is an edited line of invoice i-1 of account 1 for usage in all of May.
func billLine(id, billed string, edit ...func(*domain.BillingLine)) domain.BillingLine {
	l := domain.BillingLine{
		LineID: id, InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-1", BillingCurrency: "USD",
		BillingPeriodStart: storetest.MayBill.From, BillingPeriodEnd: storetest.MayBill.To, ChargePeriodStart: storetest.MayBill.From, ChargePeriodEnd: storetest.MayBill.To,
		ChargeCategory: "Usage", ChargeFrequency: "Usage-Based", PricingCategory: "Standard",
		BilledCost: storetest.Dec(billed), EffectiveCost: decimal.NewNullDecimal(storetest.Dec(billed)),
	}
	for _, e := range edit {
		e(&l)
	}
	return l
}

func recorded(l domain.BillingLine) domain.Envelope {
	return domain.Envelope{Source: "focus/" + l.InvoiceIssuerName, Time: l.BillingPeriodEnd, Event: &domain.BillingLineRecorded{Line: l}}
}

func TestEachLine(t *testing.T) {
	week := func(from int) func(*domain.BillingLine) {
		return func(l *domain.BillingLine) {
			l.BillingPeriodStart = storetest.Start + domain.Instant(from)*domain.Day
			l.BillingPeriodEnd = l.BillingPeriodStart + 7*domain.Day
		}
	}
	other := func(l *domain.BillingLine) { l.InvoiceIssuerName = "a" }
	again := recorded(billLine("l1", "3"))
	again.Time += domain.Hour
	l := storetest.NewLog()
	l.Append(
		recorded(billLine("april", "1", week(-4))), recorded(billLine("last", "1", week(27))), recorded(billLine("june", "1", week(28))),
		recorded(billLine("l1", "1")), again, recorded(billLine("l1", "2", other)),
		domain.Envelope{Time: storetest.MayBill.To, Event: &domain.BillingLineCorrected{Line: billLine("l2", "-0.5"), Corrects: "l1", Reason: "credit"}},
	)
	read := func(month domain.Interval) (got []string) {
		storetest.FoldView(t, l, func(v projections.View) {
			err := costs.EachLine(v, month, func(l *costs.LedgerLine) error {
				got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s x%d %s %s %s@%d", l.InvoiceIssuerName, l.LineID, l.BilledCost, l.Stated, l.Corrects, l.Reason, l.Event.Source, l.Event.Sequence)))
				if l.Event.Key != l.InvoiceIssuerName+"|1" || l.Event.Topic != domain.TopicBilling || l.Event.Partition != domain.PartitionOf([]byte(l.Event.Key), 4) {
					t.Errorf("recorded by %+v", l.Event)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
		return got
	}
	if got, want := read(storetest.MayBill), []string{
		"a l1 2 x1   focus/a@1", "p l1 3 x2   focus/p@5", "p l2 -0.5 x1 l1 credit test/1@1", "p last 1 x1   focus/p@2",
	}; !slices.Equal(got, want) {
		t.Errorf("May has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := read(projections.BillingMonth(storetest.MayBill.From - 1)); len(got) != 1 || !strings.HasPrefix(got[0], "p april") {
		t.Errorf("April has %q", got)
	}
	if got := read(projections.BillingMonth(storetest.MayBill.To)); len(got) != 1 || !strings.HasPrefix(got[0], "p june") {
		t.Errorf("June has %q", got)
	}
	storetest.FoldView(t, l, func(v projections.View) {
		for _, bad := range []domain.Interval{{From: storetest.Start, To: storetest.Start + domain.Day}, {From: storetest.Start + 1, To: storetest.MayBill.To}, {}} {
			if err := costs.EachLine(v, bad, func(*costs.LedgerLine) error { return nil }); err == nil {
				t.Errorf("%v is no month, and was read", bad)
			}
		}
	})
}

// The last statement counts, whatever time it is about.
func TestLastStatementCounts(t *testing.T) {
	l := storetest.NewLog()
	line := recorded(billLine("l1", "1"))
	restated := recorded(billLine("l1", "3"))
	restated.Time -= 20 * domain.Day // its charge ended earlier
	invoice := domain.Envelope{Source: "focus/i", Time: storetest.MayBill.To, Event: &domain.InvoiceReceived{InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "i-1", Total: *storetest.USD("1"), Status: "Issued", BillingPeriod: storetest.MayBill}}
	voided := invoice
	voided.Time = storetest.MayBill.From // without a date
	again := *invoice.Event.(*domain.InvoiceReceived)
	again.Status = "Voided"
	voided.Event = &again
	for i, env := range []domain.Envelope{line, invoice, restated, voided} {
		l.AppendAt(env, storetest.MayBill.To+domain.Instant(i)*domain.Day)
	}
	storetest.FoldView(t, l, func(v projections.View) {
		err := costs.EachLine(v, storetest.MayBill, func(l *costs.LedgerLine) error {
			if l.BilledCost.String() != "3" || l.Stated != 2 || l.Event.Appended != storetest.MayBill.To+2*domain.Day {
				t.Errorf("the line counts as %s, stated %d times, by %+v", l.BilledCost, l.Stated, l.Event)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	if r := report(t, l, costs.Query{Month: storetest.MayBill}); len(r.Invoices) != 1 || r.Invoices[0].Status != attribution.Voided {
		t.Errorf("the invoice counts as %+v", r.Invoices)
	}
}

// A month of another time zone is the month of that name, and a week belongs to the month that
// contains most of it.
func TestMonthOf(t *testing.T) {
	berlin := domain.Interval{From: storetest.Start - 2*domain.Hour, To: storetest.MayBill.To - 2*domain.Hour}
	l := storetest.NewLog()
	l.Append(recorded(billLine("l1", "1", func(l *domain.BillingLine) { l.BillingPeriodStart, l.BillingPeriodEnd = berlin.From, berlin.To })))
	if r := report(t, l, costs.Query{Month: storetest.MayBill}); r.Lines != 1 {
		t.Errorf("May has %d lines", r.Lines)
	}
	for _, c := range []struct {
		from, to domain.Instant
		want     string
	}{
		{berlin.From, berlin.To, "2026-05"},
		{storetest.Start + 7*domain.Hour, storetest.MayBill.To + 7*domain.Hour, "2026-05"},
		{storetest.Start - 4*domain.Day, storetest.Start + 3*domain.Day, "2026-04"},
		{storetest.Start - 3*domain.Day, storetest.Start + 4*domain.Day, "2026-05"},
		{storetest.Start, storetest.Start, "2026-05"},
	} {
		if got := projections.MonthOf(domain.Interval{From: c.from, To: c.to}); got.From.Time().Format("2006-01") != c.want || got != projections.BillingMonth(got.From) {
			t.Errorf("%s to %s is of %v, want %s", c.from, c.to, got, c.want)
		}
	}
}

// Accounts whose names differ only in the place of a bar are different.
func TestAccountsWithBars(t *testing.T) {
	line := func(issuer, account, billed string) domain.Envelope {
		return recorded(billLine("l1", billed, func(l *domain.BillingLine) { l.InvoiceIssuerName, l.BillingAccountID = issuer, account }))
	}
	l := storetest.NewLog()
	l.Append(line("a|b", "42", "1"), line("a", "b|42", "2"), line(`a\`, "b|42", "4"))
	r := report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByLine}})
	if len(r.Groups) != 3 || r.Lines != 3 || r.Totals[0].Billed.String() != "7" {
		t.Fatalf("%d lines of %v in %+v", r.Lines, r.Totals, r.Groups)
	}
	storetest.FoldView(t, l, func(v projections.View) {
		for _, g := range r.Groups {
			n, name := 0, g.Key[costs.ByLine]
			err := costs.EachAllocation(v, storetest.MayBill, costs.AllocationFilter{Line: name}, func(allocation *costs.Allocation) error {
				n++
				ref, err := attribution.ParseRef(allocation.Allocation)
				if err != nil {
					return err
				}
				x, err := costs.Explain(v, ref, nil)
				if err != nil || x.Billed != g.Billed {
					t.Errorf("%s is explained as %+v, %v", allocation.Allocation, x, err)
				}
				return nil
			})
			if n != 1 || err != nil {
				t.Errorf("%s has %d allocations, %v", name, n, err)
			}
		}
	})
}
