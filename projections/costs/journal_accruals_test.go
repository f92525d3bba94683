package costs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// serviceRules map the services Sa, Sb and Sc to workspaces.
func serviceRules(l *storetest.Log) {
	l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), storetest.Start-10*domain.Day))
	for _, w := range []string{"a", "b", "c"} {
		l.Append(storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - 9*domain.Day, Event: &domain.MappingRuleSet{
			Rule: "r" + w, ToWorkspace: w, Columns: map[string]string{"ServiceName": "S" + w}, EffectiveFrom: storetest.Start - domain.Day}}))
	}
}

// accruedLines are lines of an accrual of May, one for each workspace.
func accruedLines(l *storetest.Log, billed ...string) {
	total := decimal.Zero
	for i, b := range billed {
		total = total.Add(storetest.Dec(b))
		l.Append(recorded(billLine(fmt.Sprintf("accrual/2026-05/%d", i), b, func(l *domain.BillingLine) {
			l.InvoiceID, l.ServiceName = "accrual/2026-05", "S"+string("abc"[i])
		})))
	}
	l.Append(domain.Envelope{Source: "focus/p", Time: storetest.MayBill.To, Event: &domain.InvoiceReceived{
		InvoiceIssuerName: "p", BillingAccountID: "1", InvoiceID: "accrual/2026-05", Status: "Issued", BillingPeriod: storetest.MayBill,
		Total: domain.Money{Amount: total.Round(2), Currency: "USD"},
	}})
}

// monthly closes May and the months after it one after another, as the log is then.
type monthly struct {
	l      *storetest.Log
	before *costs.Division // May as it was closed
	posted []costs.Posting // about May
	last   *costs.Journal
}

// closed is a month that was closed.
type closed struct {
	journal  *costs.Journal
	posted   []costs.Posting // into it
	division *costs.Division
}

func (c *monthly) close(month domain.Interval) (done closed, err error) {
	m, err := c.l.Fold(context.Background())
	if err != nil {
		return done, err
	}
	err = m.View(context.Background(), func(v projections.View) error {
		chart, err := costs.ReadChart(v, month)
		if err != nil {
			return err
		}
		if done.division, err = costs.Divide(v, month, 1<<30); err != nil {
			return err
		}
		if month == storetest.MayBill {
			c.before = done.division
		} else {
			may, err := costs.Divide(v, storetest.MayBill, 1<<30)
			if err != nil {
				return err
			}
			if done.posted, err = costs.Difference(c.before, c.posted, may, month, nil); err != nil {
				return err
			}
			c.posted = append(c.posted, done.posted...)
		}
		in := &costs.JournalInput{
			Division: done.division, Posted: done.posted, Before: c.last, Chart: chart, Close: month.From.String(), Statement: statementOf,
			Earlier: func(string) (*costs.Rates, error) { return nil, nil },
		}
		if in.Rates, err = costs.ReadRates(v, month); err != nil && !errors.Is(err, costs.ErrNoBooksCurrency) {
			return err
		}
		done.journal, err = costs.NewJournal(in)
		c.last = done.journal
		return err
	})
	return done, err
}

// monthsFromMay returns May and the months after it.
func monthsFromMay(n int) []domain.Interval {
	months := []domain.Interval{storetest.MayBill}
	for len(months) < n {
		months = append(months, projections.BillingMonth(months[len(months)-1].To))
	}
	return months
}

// 300 are accrued in May. On 1 June they are taken back, and accrued again until July, because no invoice has come. In
// July one of 280 comes: then 300 are taken back on 1 July, and 280 are owed.
func TestAccrualIsReversed(t *testing.T) {
	l := storetest.NewLog()
	serviceRules(l)
	l.Append(chart()...)
	accruedLines(l, "300")
	c := &monthly{l: l}
	var got []string
	for i, month := range monthsFromMay(4) {
		if i == 2 {
			l.Append(recorded(billLine("l", "280", func(l *domain.BillingLine) { l.ServiceName = "Sa" })), invoiceFor("i-1", "280", storetest.MayBill, "Issued"))
		}
		done, err := c.close(month)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range done.journal.Entries {
			if e.Entity != "de" || e.Account == "1900" {
				continue
			}
			text := fmt.Sprintf("%s %s %s", e.Date.String()[5:10], e.Account, e.Amount())
			if !e.ReversalDate.IsZero() {
				text += " until " + e.ReversalDate.String()[5:10]
			}
			if e.Reverses != "" {
				text += " reverses " + e.Reverses[:8]
			}
			got = append(got, text)
		}
	}
	want := []string{
		"05-31 6000 300.00 until 06-01",
		"06-01 6000 -300.00 reverses QM202605", "06-30 6000 300.00 until 07-01",
		"07-01 6000 -300.00 reverses QM202606", "07-31 6000 280.00",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The journal of each month takes back exactly what the one before accrued, and balances. Whatever is posted about an
// accrual until its invoice comes, and even if that is in the journal of no month, expense and liabilities are what was
// closed and posted, rounded; and nothing stays accrued after the invoice.
func TestAccrualsClear(t *testing.T) {
	long.Check(t, 30, 1_000, func(t *rapid.T) {
		l := storetest.NewLog()
		serviceRules(l)
		l.Append(chart()...)
		amount := func(name string) string {
			return decimal.New(rapid.Int64Range(1, 1e6).Draw(t, name), -rapid.Int32Range(0, 6).Draw(t, "digits")).String()
		}
		accruedLines(l, amount("a"), amount("b"), amount("c"))
		c := &monthly{l: l}
		months := monthsFromMay(4)
		books := rapid.Bool().Draw(t, "in books")
		if books {
			l.Append(keptIn("", "EUR"), account("fx", domain.LedgerFX, "7000", nil))
			for _, month := range months {
				rate := func() string { return decimal.New(int64(rapid.IntRange(500, 2000).Draw(t, "rate")), -3).String() }
				l.Append(rateSet("USD", "EUR", rate(), domain.FXAverage, month),
					rateSet("USD", "EUR", rate(), domain.FXClosing, domain.Interval{From: month.To - domain.Day, To: month.To}))
			}
		}
		comes := rapid.IntRange(1, len(months)).Draw(t, "invoice")
		open := decimals{}  // accrued, by account, entity and cost centre
		total := decimals{} // by account, over all months
		exact := decimals{} // billed and posted
		for i, month := range months {
			if i > 0 && rapid.Bool().Draw(t, "changed") && i < comes {
				env := recorded(billLine("accrual/2026-05/0", amount("again"), func(l *domain.BillingLine) { l.InvoiceID, l.ServiceName = "accrual/2026-05", "Sb" }))
				env.Source, env.Time = fmt.Sprint("focus/", i), month.From
				l.Append(env)
			}
			if i == comes {
				sum := decimal.Zero
				for _, w := range "abc" {
					billed := amount("billed")
					sum = sum.Add(storetest.Dec(billed))
					l.Append(recorded(billLine("l-"+string(w), billed, func(l *domain.BillingLine) { l.ServiceName = "S" + string(w) })))
				}
				l.Append(invoiceFor("i-1", sum.Round(2).String(), storetest.MayBill, "Issued"))
			}
			done, err := c.close(month)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range done.division.Statements {
				exact.add("2026-05", s.Amount.String())
			}
			for n := range done.posted {
				exact.add("2026-05", done.posted[n].Billed.String())
			}
			documents, accrued := decimals{}, decimals{}
			reversed := decimals{}
			for n := range done.journal.Entries {
				e := &done.journal.Entries[n]
				documents.add(e.Document+e.Entity+e.Date.String(), e.Amount().String())
				total.add(e.Account, e.Amount().String())
				at := e.Entity + " " + e.Account + " " + e.CostCenter + " " + e.Statement
				switch {
				case e.Reverses != "":
					reversed.add(at, e.Amount().Amount.Neg().String())
					if e.Date != month.From || !e.ReversalDate.IsZero() {
						t.Fatalf("%+v: want the first day", e)
					}
				case !e.ReversalDate.IsZero():
					accrued.add(at, e.Amount().String())
					if e.ReversalDate != month.To || e.Date != month.To-domain.Day {
						t.Fatalf("%+v: want the last day until the next", e)
					}
				}
			}
			for of, sum := range documents {
				if !sum.IsZero() {
					t.Fatalf("document %s is off by %s", of, sum)
				}
			}
			if fmt.Sprint(reversed) != fmt.Sprint(open) {
				t.Fatalf("%s takes back %v, want %v", month.From, reversed, open)
			}
			if open = accrued; i >= comes && len(open) > 0 {
				t.Fatalf("after the invoice %v stay accrued", open)
			}
		}
		if comes < len(months) && !total["2100"].IsZero() {
			t.Errorf("%s stay accrued", total["2100"])
		}
		if books { // at other rates than those of any month
			return
		}
		owed := total["2100"].Add(total["2000"]).Neg()
		// Statements are whole cents. Each note rounds what is posted, of three workspaces in up to three months.
		if off := owed.Sub(exact["2026-05"]).Abs(); off.GreaterThan(storetest.Dec("0.1")) {
			t.Errorf("%s are owed, and %s were billed and posted", owed, exact["2026-05"])
		}
		if used := total["6000"].Add(total["6100"]).Add(total["6999"]).Add(total["1400"]); !used.Equal(owed) {
			t.Errorf("%s were used, and %s are owed", used, owed)
		}
	})
}
