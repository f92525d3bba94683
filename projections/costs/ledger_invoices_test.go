package costs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// billFor is a line of invoice i-1 with the billing period of a month.
func billFor(id, billed string, month domain.Interval, edit ...func(*domain.BillingLine)) domain.Envelope {
	return recorded(billLine(id, billed, append([]func(*domain.BillingLine){func(l *domain.BillingLine) {
		l.BillingPeriodStart, l.BillingPeriodEnd, l.ChargePeriodStart, l.ChargePeriodEnd = month.From, month.To, month.From, month.To
	}}, edit...)...))
}

func invoiced(id, total, status string, period domain.Interval) domain.Envelope {
	return domain.Envelope{Source: "focus/i", Time: period.To, Event: &domain.InvoiceReceived{
		InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: id, Total: *storetest.USD(total), Status: status, BillingPeriod: period,
	}}
}

// An invoice reconciles with its lines in any months: each month states its own part and the other
// parts, and the printed parts of all months add up to the invoice.
func TestInvoiceSpansMonths(t *testing.T) {
	april, june := projections.BillingMonth(storetest.MayBill.From-1), projections.BillingMonth(storetest.MayBill.To)
	july := projections.BillingMonth(june.To)
	for _, c := range []struct {
		name                string
		total               string
		period              domain.Interval
		lines               []domain.Envelope
		want                map[domain.Interval]string
		unreconciled        bool
		roundingAdjustments string // of all months
	}{
		{"two months", "10", storetest.MayBill, []domain.Envelope{billFor("l1", "6.665", storetest.MayBill), billFor("l2", "3.335", june)},
			map[domain.Interval]string{storetest.MayBill: "spans_months 10 -> 6.665 0", june: "spans_months 10 -> 3.335 0"}, false, "0"},
		{"its own month has none", "10", july, []domain.Envelope{billFor("l1", "6.664", april), billFor("l2", "3.333", june)},
			map[domain.Interval]string{april: "spans_months 10 -> 6.664 0.003", june: "spans_months 10 -> 3.333 0.003", july: "spans_months 10 -> 0 0.003"}, false, "0.003"},
		{"a quarter", "9", domain.Interval{From: april.From, To: june.To}, []domain.Envelope{billFor("l1", "3", april), billFor("l2", "3", storetest.MayBill), billFor("l3", "3", june)},
			map[domain.Interval]string{april: "spans_months 9 -> 3 0", storetest.MayBill: "spans_months 9 -> 3 0", june: "spans_months 9 -> 3 0"}, false, "0"},
		{"more than its lines", "12", storetest.MayBill, []domain.Envelope{billFor("l1", "6", storetest.MayBill), billFor("l2", "3", june)},
			map[domain.Interval]string{storetest.MayBill: "differs 12 -> 6 3", june: "differs 12 -> 3 3"}, true, "0"},
		{"a line too many elsewhere", "6", storetest.MayBill, []domain.Envelope{billFor("l1", "6", storetest.MayBill), billFor("l2", "3", june)},
			map[domain.Interval]string{storetest.MayBill: "differs 6 -> 6 -3", june: "differs 6 -> 3 -3"}, true, "0"},
		{"one other month", "6", april, []domain.Envelope{billFor("l1", "6", june)},
			map[domain.Interval]string{april: "spans_months 6 -> 0 0", june: "reconciled 6 -> 6 0"}, false, "0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(c.lines...)
			l.Append(invoiced("i-1", c.total, "Issued", c.period))
			var printed, roundingAdjustments, billed attribution.Amount
			for month, want := range c.want {
				r := report(t, l, costs.Query{Month: month})
				if len(r.Invoices) != 1 {
					t.Fatalf("%v has %+v", month, r.Invoices)
				}
				x := r.Invoices[0]
				if got := fmt.Sprintf("%s %s -> %s %s", x.Status, x.Received, x.Attributed, x.Difference); got != want {
					t.Errorf("%v ties as %s, want %s", month.From, got, want)
				}
				if (r.UnreconciledCount != 0) != c.unreconciled || len(r.Unreconciled) != r.UnreconciledCount {
					t.Errorf("%v is unreconciled for %v", month.From, r.Unreconciled)
				}
				if !slices.ContainsFunc(r.Exceptions, func(e attribution.Exception) bool {
					return e.Kind == costs.InvoiceSpansMonths || e.Kind == costs.InvoiceOfOtherPeriod
				}) {
					t.Errorf("%v says nothing: %+v", month.From, r.Exceptions)
				}
				for _, s := range r.Statements {
					printed = printed.Add(s.Amount.Amount)
				}
				roundingAdjustments = roundingAdjustments.Add(x.RoundingAdjustment)
				for _, sum := range r.Totals {
					billed = billed.Add(sum.Billed)
				}
			}
			if !c.unreconciled && (printed.String() != c.total || billed.String() != c.total) || roundingAdjustments.String() != c.roundingAdjustments {
				t.Errorf("months print %s, rounding adjustment %s and bill %s of %s", printed, roundingAdjustments, billed, c.total)
			}
		})
	}
}

// Every reason why a bill does not reconcile is listed.
func TestUnreconciled(t *testing.T) {
	unnamed := func(l *domain.BillingLine) { l.InvoiceID = "" }
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string // beginnings, by line
	}{
		{"reconciled, and not yet invoiced", []domain.Envelope{billFor("l1", "6", storetest.MayBill), invoiced("i-1", "6", "Issued", storetest.MayBill), billFor("l2", "1", storetest.MayBill, unnamed)}, ""},
		{"adjusted", []domain.Envelope{billFor("l1", "6.004", storetest.MayBill), invoiced("i-1", "6", "Issued", storetest.MayBill)}, ""},
		{"differs", []domain.Envelope{billFor("l1", "6", storetest.MayBill), invoiced("i-1", "7", "Issued", storetest.MayBill)}, "p|1|i-1 received 7 USD, and its lines come to 6 USD"},
		{"never received", []domain.Envelope{billFor("l1", "6", storetest.MayBill)}, "p|1|i-1 no invoice in USD was received, and lines that name it come to 6 USD"},
		{"without lines", []domain.Envelope{invoiced("i-1", "7", "Issued", storetest.MayBill)}, "p|1|i-1 received 7 USD, and no line names it"},
		{"voided", []domain.Envelope{billFor("l1", "6", storetest.MayBill), invoiced("i-1", "6", "Voided", storetest.MayBill)}, "p|1|i-1 it was voided, and lines that name it come to 6 USD"},
		{"a line left out", []domain.Envelope{billFor("l1", "6", storetest.MayBill), billFor("l2", "1e15", storetest.MayBill), invoiced("i-1", "6", "Issued", storetest.MayBill)}, "p|1|l2 line_unusable: "},
		{"no total", []domain.Envelope{billFor("l1", "6", storetest.MayBill, unnamed), invoiced("i-1", "1e15", "Issued", storetest.MayBill)}, "p|1|i-1 invoice_unusable: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(c.log...)
			r := report(t, l, costs.Query{Month: storetest.MayBill})
			var got []string
			for _, u := range r.Unreconciled {
				got = append(got, u.Subject+" "+u.Why)
			}
			if text := strings.Join(got, "\n"); !strings.HasPrefix(text, c.want) || c.want == "" && text != "" || r.UnreconciledCount != len(r.Unreconciled) {
				t.Errorf("unreconciled for %q, want %q", text, c.want)
			}
		})
	}
}

// Restated, duplicate and unknown statements are reported.
func TestRestatedAndUnknown(t *testing.T) {
	april, june := projections.BillingMonth(storetest.MayBill.From-1), projections.BillingMonth(storetest.MayBill.To)
	year := projections.BillingMonth(storetest.MayBill.From - 400*domain.Day)
	corrects := func(id, what string) domain.Envelope {
		return domain.Envelope{Source: "focus/c", Time: storetest.MayBill.To, Event: &domain.BillingLineCorrected{Line: billLine(id, "-1"), Corrects: what}}
	}
	foreign := corrects("c7", "april") // in another month
	foreign.Event.(*domain.BillingLineCorrected).Line.BillingCurrency = "EUR"
	l := storetest.NewLog()
	for i, env := range []domain.Envelope{
		foreign,
		billFor("l1", "6", storetest.MayBill), billFor("l1", "5", storetest.MayBill), billFor("l1", "7", storetest.MayBill), billFor("l1", "7", storetest.MayBill),
		billFor("same", "6", storetest.MayBill), billFor("same", "6", storetest.MayBill),
		billFor("moved", "1", april), billFor("moved", "1", storetest.MayBill), billFor("april", "1", april), billFor("old", "1", year), billFor("new", "1", june),
		corrects("c1", "l1"), corrects("c2", "april"), corrects("c3", "old"), corrects("c4", "new"), corrects("c5", "lost"), corrects("c6", "c1"),
		invoiced("i-2", "5", "Open", storetest.MayBill), invoiced("i-2", "5", "Issued", storetest.MayBill),
		invoiced("i-3", "5", "Open", storetest.MayBill), invoiced("i-3", "6", "Issued", storetest.MayBill), invoiced("i-3", "6", "Voided", storetest.MayBill),
	} {
		l.AppendAt(env, june.To+domain.Instant(i))
	}
	r := report(t, l, costs.Query{Month: storetest.MayBill})
	var got []string
	for _, e := range r.Exceptions {
		switch e.Kind {
		case costs.LineRestated, costs.LineInTwoMonths, costs.InvoiceRestated, costs.CorrectionOfUnknownLine,
			costs.CorrectionOfCorrection, costs.CorrectionInOtherCurrency:
			got = append(got, fmt.Sprintf("%s %s: %s", e.Kind, e.Subject, e.Detail))
		}
		if !slices.Contains(costs.ExceptionKinds(), e.Kind) {
			t.Errorf("%s is on no list of kinds", e.Kind)
		}
	}
	want := []string{
		`correction_in_other_currency p|1|c7: it is in EUR and corrects line "april", which is in USD`,
		`correction_of_correction p|1|c6: it corrects line "c1", which corrects line "l1"`,
		`correction_of_unknown_line p|1|c5: it corrects line "lost", which is unknown`,
		"invoice_restated p|1|i-3: 6 USD, Voided; before 6 USD, Issued",
		"line_in_two_months p|1|moved: it counts in 2026-04 and in 2026-05: its billing period was restated, or two lines have one id",
		"line_restated p|1|l1: 7 USD; before 5 USD; stated 4 times",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(costs.ExceptionKinds()); n != len(slices.Compact(costs.ExceptionKinds())) || n < 21 {
		t.Errorf("%d kinds", n)
	}
}

// A line that counts in two months is found in each by its allocation there, and the rounding
// adjustment of an invoice that spans months in the month that has it.
func TestExplainTriesEachMonth(t *testing.T) {
	april, june := projections.BillingMonth(storetest.MayBill.From-1), projections.BillingMonth(storetest.MayBill.To)
	l := storetest.NewLog()
	l.Append(
		billFor("l1", "1", april), billFor("l1", "2", june, func(l *domain.BillingLine) { l.ChargeCategory, l.CommitmentDiscountID = "Purchase", "res" }), billFor("l2", "0.004", june),
		invoiced("i-1", "3", "Issued", storetest.MayBill),
	)
	seen := 0
	storetest.FoldView(t, l, func(v projections.View) {
		for _, month := range []domain.Interval{april, june} {
			err := costs.EachAllocation(v, month, costs.AllocationFilter{}, func(allocation *costs.Allocation) error {
				ref, err := attribution.ParseRef(allocation.Allocation)
				if err != nil {
					return err
				}
				x, err := costs.Explain(v, ref, nil)
				if err != nil || x.Month != month || x.Billed != allocation.Billed {
					t.Errorf("%s of %v is explained as %+v, %v", allocation.Allocation, month.From, x, err)
				}
				seen++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if seen < 4 {
		t.Errorf("%d allocations", seen)
	}
}

// What rounding removed from lines is listed with their invoice, exactly, and only if it is a
// rounding of that cost.
func TestRoundedAwayOfAnInvoice(t *testing.T) {
	written := func(cost string) func(*domain.BillingLine) {
		return func(l *domain.BillingLine) {
			l.Other = map[string]string{domain.AsWritten("BilledCost"): cost}
		}
	}
	unnamed := func(l *domain.BillingLine) { l.InvoiceID = "" }
	l := storetest.NewLog()
	l.Append(
		billFor("l1", "2.000001234567890123", storetest.MayBill, written("2.00000123456789012345678")),
		billFor("l2", "1", storetest.MayBill, written("999999999999999999.5E-18")),
		billFor("l3", "5", storetest.MayBill, written("5.5")), // a supplier's own column
		billFor("l4", "5", storetest.MayBill, written("1e-999999999")),
		billFor("l5", "5", storetest.MayBill, written("n/a")),
		billFor("l6", "0.000000000000000001", storetest.MayBill, written("0.0000000000000000006"), unnamed),
		billFor("l7", "3", projections.BillingMonth(storetest.MayBill.To), written("3.0000000000000000001")),
	)
	var got []string
	for _, x := range report(t, l, costs.Query{Month: storetest.MayBill}).Invoices {
		got = append(got, fmt.Sprintf("%q %v", x.Invoice, x.RoundedAway))
	}
	slices.Sort(got)
	if want := []string{`"" -0.0000000000000000004`, `"i-1" -0.00000000000000000004322`}; !slices.Equal(got, want) {
		t.Errorf("rounded away: %q, want %q", got, want)
	}
}
