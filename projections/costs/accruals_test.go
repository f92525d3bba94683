package costs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// accrualOf accrues May for account 1 of p, and describes the charges.
func accrualOf(t *testing.T, l *storetest.Log, method costs.AccrualMethod) (b *costs.AccrualBill, got []string, err error) {
	t.Helper()
	q := costs.AccrualQuery{Month: storetest.MayBill, Issuer: "p", Account: "1", Method: method}
	if method == costs.AccrueManual {
		q.Amount, q.Reason = *storetest.USD("300"), "as ordered"
	}
	storetest.FoldView(t, l, func(v projections.View) { b, err = costs.NewAccrualBill(v, q) })
	if err == nil {
		for _, c := range b.Charges {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s/%s %s", c.Resource, c.Billed, c.Effective, c.Basis)))
		}
	}
	return b, got, err
}

// accrue records what was accrued, as an import does.
func accrue(l *storetest.Log, b *costs.AccrualBill) {
	for _, line := range b.Lines() {
		l.Append(recorded(line))
	}
	for _, in := range b.Received() {
		l.Append(domain.Envelope{Source: "focus/p", Time: in.IssueDate, Event: &in})
	}
}

func invoiceFor(id, total string, period domain.Interval, status string) domain.Envelope {
	return domain.Envelope{Source: "focus/p", Time: period.To, Event: &domain.InvoiceReceived{
		InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: id, Total: *storetest.USD(total), IssueDate: period.To, Status: status, BillingPeriod: period,
	}}
}

// TestInvoicesThatReplaceAccruals checks which invoices of a month end its accrual. Week 0 begins on
// Monday 27 April 2026. Weeks 1 to 4, to 1 June, are billed for May.
func TestInvoicesThatReplaceAccruals(t *testing.T) {
	may := storetest.MayBill
	week := func(n int) domain.Interval {
		from := may.From - 4*domain.Day + domain.Instant(n)*7*domain.Day
		return domain.Interval{From: from, To: from + 7*domain.Day}
	}
	shifted := func(hours domain.Instant) domain.Interval {
		return domain.Interval{From: may.From + hours*domain.Hour, To: may.To + hours*domain.Hour}
	}
	weeks := func(numbers ...int) (all []domain.Envelope) {
		for _, n := range numbers {
			all = append(all, invoiceFor(fmt.Sprint("w-", n), "100", week(n), "Issued"))
		}
		return all
	}
	for _, c := range []struct {
		name     string
		received []domain.Envelope
		ends     bool
	}{
		{"none", nil, false},
		{"the month", []domain.Envelope{invoiceFor("i-5", "100", may, "Issued")}, true},
		{"a Pacific month", []domain.Envelope{invoiceFor("i-5", "100", shifted(7), "Issued")}, true},
		{"a month of Tokyo", []domain.Envelope{invoiceFor("i-5", "100", shifted(-9), "Issued")}, true},
		{"the month, void", []domain.Envelope{invoiceFor("i-5", "100", may, "Voided")}, false},
		{"a line of a void invoice", []domain.Envelope{invoiceFor("i-1", "100", may, "Voided"), recorded(billLine("1", "100"))}, false},
		{"a line that names an invoice that has not come", []domain.Envelope{recorded(billLine("1", "100"))}, true},
		{"a line that names none", []domain.Envelope{recorded(billLine("1", "100", func(l *domain.BillingLine) { l.InvoiceID = "" }))}, false},
		{"the first week", weeks(0, 1), false},
		{"three weeks", weeks(1, 2, 3), false},
		{"all weeks but one in the middle", weeks(1, 3, 4), false},
		{"all weeks", weeks(1, 2, 3, 4), true},
		{"all weeks, and those around", weeks(0, 1, 2, 3, 4, 5), true},
		{"all weeks but the first", weeks(0, 2, 3, 4), false},
		{"two halves", []domain.Envelope{
			invoiceFor("a", "1", domain.Interval{From: may.From, To: may.From + 15*domain.Day}, "Issued"),
			invoiceFor("b", "1", domain.Interval{From: may.From + 15*domain.Day, To: may.To}, "Issued"),
		}, true},
		{"another month", []domain.Envelope{invoiceFor("i-4", "100", projections.BillingMonth(may.From-1), "Issued")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			b, _, err := accrualOf(t, l, costs.AccrueManual)
			if err != nil {
				t.Fatal(err)
			}
			accrue(l, b)
			l.Append(c.received...)
			lines := 0
			storetest.FoldView(t, l, func(v projections.View) {
				err = costs.EachLine(v, may, func(l *costs.LedgerLine) error {
					if l.Other[costs.ColumnAccrual] != "" {
						lines++
					}
					return nil
				})
			})
			if err != nil || (lines == 0) != c.ends {
				t.Errorf("%d lines of the accrual count, %v; want the end of it: %t", lines, err, c.ends)
			}
			if _, _, err := accrualOf(t, l, costs.AccrueManual); (err != nil) != c.ends {
				t.Errorf("accrued again: %v", err)
			}
		})
	}
}

// TestAccrueRest accrues what weekly invoices have not covered, in proportion to what was billed for the month before.
func TestAccrueRest(t *testing.T) {
	l := storetest.NewLog()
	april := projections.BillingMonth(storetest.MayBill.From - 1)
	l.Append(recorded(billLine("a", "3100", func(l *domain.BillingLine) {
		l.InvoiceID, l.ResourceID = "i-4", "r-1"
		l.BillingPeriodStart, l.BillingPeriodEnd = april.From, april.To
	})))
	if _, got, err := accrualOf(t, l, costs.AccrueLastInvoice); err != nil || fmt.Sprint(got) != "[r-1 3100/3100 as billed for 2026-04]" {
		t.Fatalf("%q, %v", got, err)
	}
	first := domain.Interval{From: storetest.MayBill.From - 4*domain.Day, To: storetest.MayBill.From + 3*domain.Day}
	l.Append(invoiceFor("w-1", "700", first, "Issued"))
	b, got, err := accrualOf(t, l, costs.AccrueLastInvoice)
	if err != nil || fmt.Sprint(got) != "[r-1 2800/2800 as billed for 2026-04, times 28 / 31 days]" {
		t.Fatalf("%q, %v", got, err)
	}
	if line := b.Lines()[0]; line.ChargePeriodStart != first.To || line.ChargePeriodEnd != storetest.MayBill.To {
		t.Errorf("the rest is from %s to %s", line.ChargePeriodStart, line.ChargePeriodEnd)
	}
}

// TestAccrueRestOfZone repeats the whole invoice of a supplier whose months begin in the Pacific time zone: April's own
// covers the first hours of May in UTC, and May's will be for a month all the same.
func TestAccrueRestOfZone(t *testing.T) {
	l := storetest.NewLog()
	april := projections.BillingMonth(storetest.MayBill.From - 1)
	pacific := domain.Interval{From: april.From + 7*domain.Hour, To: april.To + 7*domain.Hour}
	l.Append(recorded(billLine("a", "3100", func(l *domain.BillingLine) {
		l.InvoiceID, l.ResourceID = "i-4", "r-1"
		l.BillingPeriodStart, l.BillingPeriodEnd = pacific.From, pacific.To
	})), invoiceFor("i-4", "3100", pacific, "Issued"))
	b, got, err := accrualOf(t, l, costs.AccrueLastInvoice)
	if err != nil || fmt.Sprint(got) != "[r-1 3100/3100 as billed for 2026-04]" {
		t.Fatalf("%q, %v", got, err)
	}
	if line := b.Lines()[0]; line.ChargePeriodStart != pacific.To || line.ChargePeriodEnd != storetest.MayBill.To {
		t.Errorf("it is for %s to %s, want the time that April's invoice does not cover", line.ChargePeriodStart, line.ChargePeriodEnd)
	}
}

// TestAccrueLastInvoice keeps apart what differs in who pays for it, and repeats what a commitment covers.
func TestAccrueLastInvoice(t *testing.T) {
	l := storetest.NewLog()
	april := projections.BillingMonth(storetest.MayBill.From - 1)
	line := func(id, billed, effective string, edit func(*domain.BillingLine)) {
		l.Append(recorded(billLine(id, billed, func(l *domain.BillingLine) {
			l.InvoiceID, l.BillingPeriodStart, l.BillingPeriodEnd = "i-4", april.From, april.To
			l.EffectiveCost = decimal.NewNullDecimal(storetest.Dec(effective))
			edit(l)
		})))
	}
	line("1", "1", "1", func(l *domain.BillingLine) { l.ResourceID, l.SubAccountID = "a", "s-1" })
	line("2", "2", "2", func(l *domain.BillingLine) { l.ResourceID, l.SubAccountID = "a", "s-2" })
	line("3", "3", "3", func(l *domain.BillingLine) { l.ResourceID, l.SubAccountID, l.Tags = "a", "s-2", `{"team":"x"}` })
	line("4", "0", "4", func(l *domain.BillingLine) {
		l.ResourceID, l.CommitmentDiscountID, l.CommitmentDiscountStatus = "b", "res", "Used"
	})
	line("5", "4", "0", func(l *domain.BillingLine) {
		l.ChargeCategory, l.ChargeFrequency, l.CommitmentDiscountID = "Purchase", "Recurring", "res"
	})
	line("6", "9", "0", func(l *domain.BillingLine) { l.ChargeCategory, l.ChargeFrequency = "Purchase", "One-Time" })
	line("7", "-1", "-1", func(l *domain.BillingLine) { l.ChargeCategory = "Credit" })
	b, got, err := accrualOf(t, l, costs.AccrueLastInvoice)
	slices.Sort(got)
	want := []string{"4/0", "a 1/1", "a 2/2", "a 3/3", "b 0/4"}
	for i := range want {
		want[i] += " as billed for 2026-04"
	}
	if err != nil || !slices.Equal(got, want) || !b.Total.Amount.Equal(storetest.Dec("10")) {
		t.Fatalf("%q, total %s, %v", got, b.Total, err)
	}
	for _, line := range b.Lines() {
		if line.CommitmentDiscountID == "res" && line.BilledCost.IsZero() != (line.ChargeCategory == "Usage") {
			t.Errorf("%s of the commitment is billed %s", line.ChargeCategory, line.BilledCost)
		}
	}
	accrue(l, b)
	r := report(t, l, costs.Query{Month: storetest.MayBill})
	if c := r.Totals[0]; c.Billed.String() != "10" || c.Effective.String() != "10" || r.UnreconciledCount != 0 {
		t.Errorf("May is %s billed, %s effective, %d not reconciled", c.Billed, c.Effective, r.UnreconciledCount)
	}
}

// accrualFleet has a cluster of account 1 with machines of two GPUs and their names as resource ids, quotes and a
// contract.
func accrualFleet(nodes ...string) *storetest.Log {
	l := storetest.NewLog()
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), storetest.Start-10*domain.Day),
		domain.Envelope{Workspace: "own", Cluster: "c", Time: storetest.Start - 9*domain.Day, Event: &domain.ClusterRegistered{
			Provider: "p", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "1"}},
	)
	for _, name := range nodes {
		env := storetest.Node("c", name, "H100 80GB", 2, storetest.Start-9*domain.Day)
		n := env.Event.(*domain.NodeRegistered)
		n.ResourceID, n.SKU, n.BillingAccount = name, "gpu-2", "1"
		l.Append(env)
	}
	return l
}

func quoted(hourly string, gpus uint32, from domain.Instant) domain.Envelope {
	return domain.Envelope{Source: "prices", Time: from, Event: &domain.OfferQuoted{
		Market: domain.Market{Provider: "p", Region: "eu"}, Offer: "od", SKU: "gpu-2", GPUModel: "H100 80GB", GPUCount: gpus,
		Kind: domain.OfferOnDemand, Hourly: storetest.Dec(hourly), Currency: "USD", ValidFrom: from,
	}}
}

func TestAccrueContractRate(t *testing.T) {
	half := storetest.MayBill.From + 15*domain.Day
	contract := func(units uint32, to domain.Instant) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - domain.Day, Event: &domain.CommitmentPurchased{
			Commitment: "res", Contract: "C-1", Market: domain.Market{Provider: "p"}, BillingAccount: "1", Kind: domain.OfferReserved, SKU: "gpu-2",
			GPUModel: "H100 80GB", GPUsPerUnit: 2, Units: units, Term: domain.Interval{From: storetest.Start - domain.Day, To: to}, Hourly: *storetest.USD("1"),
		}})
	}
	none := func(l *domain.BillingLine) { l.InvoiceID = "" }
	tax := recorded(billLine("tax", "5", none, func(l *domain.BillingLine) { l.ChargeCategory = "Tax" }))
	machine := func(name string, to domain.Instant) domain.Envelope {
		return recorded(billLine("of "+name, "5", none, func(l *domain.BillingLine) {
			l.ResourceID, l.ServiceCategory, l.ChargePeriodEnd = name, "Compute", to
			hours := decimal.NewFromInt(int64((to - storetest.MayBill.From) / domain.Hour))
			l.PricingQuantity, l.PricingUnit = decimal.NewNullDecimal(hours), "Hours"
		}))
	}
	for _, c := range []struct {
		name     string
		nodes    []string
		log      []domain.Envelope
		want     []string
		problems string
	}{
		{"the price changes within the month", []string{"a"}, []domain.Envelope{quoted("2", 2, storetest.Start-domain.Day), quoted("3", 2, half)},
			[]string{"a 720/720 360 hours at 2 USD of offer od", "a 1152/1152 384 hours at 3 USD of offer od"}, ""},
		{"a unit of another size", []string{"a"}, []domain.Envelope{quoted("8", 8, storetest.Start-domain.Day)},
			[]string{"a 1488/1488 744 hours at 8 USD of offer od, for 2 GPUs instead of 8"}, ""},
		{"the contract ends within the month", []string{"a"}, []domain.Envelope{contract(1, half), quoted("3", 2, storetest.Start-domain.Day)},
			[]string{"a 360/360 360 hours at 1 USD of contract C-1", "a 1152/1152 384 hours at 3 USD of offer od"}, ""},
		{"more machines than the contract has units", []string{"a", "b"}, []domain.Envelope{contract(1, storetest.MayBill.To), quoted("3", 2, storetest.Start-domain.Day)},
			[]string{"a 744/744 744 hours at 1 USD of contract C-1", "b 2232/2232 744 hours at 3 USD of offer od"}, ""},
		{"no price for a time", []string{"a"}, []domain.Envelope{quoted("3", 2, half)},
			[]string{"a 1152/1152 384 hours at 3 USD of offer od"}, `c/a: no contract or on-demand offer has a price of "gpu-2" from 2026-05-01T00:00:00Z to 2026-05-16T00:00:00Z`},
		{"a tax line buys no time", []string{"a"}, []domain.Envelope{contract(1, storetest.MayBill.To), tax},
			[]string{"a 744/744 744 hours at 1 USD of contract C-1"}, ""},
		{"another machine is billed, and this one is silent", []string{"a", "b"}, []domain.Envelope{contract(2, storetest.MayBill.To), machine("a", storetest.MayBill.To)},
			[]string{"b 744/744 744 hours at 1 USD of contract C-1"}, ""},
		{"the first half is billed", []string{"a"}, []domain.Envelope{contract(1, storetest.MayBill.To), machine("a", half)},
			[]string{"a 384/384 384 hours at 1 USD of contract C-1"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := accrualFleet(c.nodes...)
			l.Append(c.log...)
			b, got, err := accrualOf(t, l, costs.AccrueContractRate)
			if err != nil || !slices.Equal(got, c.want) || strings.Join(b.Problems, "; ") != c.problems {
				t.Fatalf("%q, %v, problems %v", got, err, b)
			}
			// Accrued and accrued again, it is the same.
			accrue(l, b)
			if _, again, err := accrualOf(t, l, costs.AccrueContractRate); err != nil || !slices.Equal(again, got) {
				t.Errorf("again: %q, %v", again, err)
			}
		})
	}
	t.Run("a machine without GPUs", func(t *testing.T) {
		l := accrualFleet("a")
		env := storetest.Node("c", "cpu", "", 0, storetest.Start-9*domain.Day)
		n := env.Event.(*domain.NodeRegistered)
		n.ResourceID, n.SKU, n.BillingAccount = "cpu", "gpu-2", "1"
		l.Append(env, contract(2, storetest.MayBill.To), machine("a", storetest.MayBill.To))
		b, got, err := accrualOf(t, l, costs.AccrueContractRate)
		if err == nil && (len(got) != 1 || !strings.HasPrefix(got[0], "cpu 744/744")) && !strings.Contains(strings.Join(b.Problems, ";"), "c/cpu has no GPUs") {
			t.Errorf("%q, %v", got, b.Problems)
		} else if err != nil && !strings.Contains(err.Error(), "c/cpu has no GPUs") {
			t.Error(err)
		}
	})
}

// TestAccrualBook shows what came in another currency, and misses an account again after a month that was accrued.
func TestAccrualBook(t *testing.T) {
	l := storetest.NewLog()
	b, _, err := accrualOf(t, l, costs.AccrueManual)
	if err != nil {
		t.Fatal(err)
	}
	accrue(l, b)
	june := projections.BillingMonth(storetest.MayBill.To)
	read := func(month domain.Interval) (book *costs.AccrualBook) {
		storetest.FoldView(t, l, func(v projections.View) {
			if book, err = costs.NewAccrualBook(v, month); err != nil {
				t.Fatal(err)
			}
		})
		return book
	}
	if got := read(june).NotBilled; !slices.Equal(got, []string{"p|1"}) {
		t.Errorf("missing in June: %q", got)
	}
	l.Append(recorded(billLine("1", "250", func(l *domain.BillingLine) { l.BillingCurrency = "EUR" })))
	got := ""
	for _, a := range read(storetest.MayBill).Accruals {
		got += fmt.Sprintf("%s accrued %s actual %s by %v %t; ", a.Currency, a.Accrued, a.Actual, a.Invoices, a.Replaced)
	}
	if want := "EUR accrued 0 actual 250 by [i-1] true; USD accrued 300 actual 0 by [i-1] true; "; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
