package costs_test

import (
	"bytes"
	"errors"
	"fmt"
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

// account declares an entry of the chart of accounts.
func account(id, scope, value string, columns map[string]string) domain.Envelope {
	return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - 9*domain.Day, Event: &domain.PolicySet{
		Policy: id, Kind: domain.PolicyLedgerAccount, Scope: scope, Value: value, Columns: columns, EffectiveFrom: storetest.Start - domain.Day,
	}})
}

// chart is a chart of accounts with two entities.
func chart() []domain.Envelope {
	return []domain.Envelope{
		account("x", domain.LedgerExpense, "6000", nil), account("x-idle", domain.LedgerExpense, "6100", map[string]string{"x_Component": "idle"}),
		account("ap", domain.LedgerPayable, "2000", nil), account("acc", domain.LedgerAccrued, "2100", nil), account("pre", domain.LedgerPrepaid, "1400", nil),
		account("tax", domain.LedgerTax, "1500", nil), account("own", domain.LedgerOwned, "1690", nil), account("r", domain.LedgerRounding, "6999", nil),
		account("ic", domain.LedgerIntercompany, "1900", nil), account("cc", domain.LedgerCostCenter, "C", nil),
		account("e", domain.LedgerEntity, "us", nil), account("e-a", domain.LedgerEntity, "de", map[string]string{"x_WorkspaceId": "a"}),
	}
}

// decimals sums entries by text with big decimals.
type decimals map[string]decimal.Decimal

func (d decimals) add(key, amount string) { d[key] = d[key].Add(decimal.RequireFromString(amount)) }

func statementOf(month, workspace string) (string, error) { return month + "/" + workspace, nil }

// Whatever was billed and posted, the debits of each document, and of each entity and currency, are its credits. What
// is owed for the month is the sum of its statements, and what is owed for postings is the sum of the notes, which add up
// to what was posted about each invoice, rounded once. No external id occurs twice.
func TestJournalBalances(t *testing.T) {
	long.Check(t, 60, 10_000, func(t *rapid.T) {
		l := house()
		l.Append(chart()...)
		var c *costs.Chart
		divide := func() (d *costs.Division, why *costs.Changes) {
			m, err := l.Fold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := m.View(t.Context(), func(v projections.View) (err error) {
				if c, err = costs.ReadChart(v, storetest.MayBill); err != nil {
					return err
				}
				if d, err = costs.Divide(v, storetest.MayBill, 1<<30); err == nil {
					why, err = costs.ReadChanges(v, storetest.MayBill, storetest.MayBill.To)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return d, why
		}
		closed, _ := divide()
		l.Append(later(t, 0)...)
		now, why := divide()
		posted, err := costs.Difference(closed, nil, now, projections.BillingMonth(storetest.MayBill.To), why)
		if err != nil {
			t.Fatal(err)
		}
		for i := range posted {
			posted[i].Period = "2026-04" // of another month than the one that is closed here
		}
		j, err := costs.NewJournal(&costs.JournalInput{
			Division: closed, Posted: posted, Chart: c, Close: "close", Statement: statementOf,
		})
		if err != nil {
			t.Fatal(err)
		}
		balance, owed, ids := decimals{}, decimals{}, map[string]bool{}
		for i := range j.Entries {
			e := &j.Entries[i]
			for _, of := range []string{"document " + e.Document + " " + e.Currency, "entity " + e.Entity + " " + e.Currency} {
				balance.add(of, e.Debit.String())
				balance.add(of, "-"+e.Credit.String())
			}
			if strings.HasPrefix(e.Debit.String(), "-") || strings.HasPrefix(e.Credit.String(), "-") || e.Debit.Amount.IsZero() == e.Credit.Amount.IsZero() {
				t.Errorf("%+v: want one side", e)
			}
			if ids[e.ID] {
				t.Errorf("two entries are %s", e.ID)
			}
			ids[e.ID] = true
			if e.Account == "2000" || e.Account == "2100" || e.Account == "1690" {
				owed.add(e.Statement+" "+e.Currency, e.Credit.String())
				owed.add(e.Statement+" "+e.Currency, "-"+e.Debit.String())
			}
		}
		for of, sum := range balance {
			if !sum.IsZero() {
				t.Errorf("%s is off by %s", of, sum)
			}
		}
		want := decimals{}
		for _, s := range closed.Statements {
			want.add("2026-05/"+s.Workspace+" "+s.Currency, s.Amount.String())
		}
		notes, err := costs.Notes(posted)
		if err != nil {
			t.Fatal(err)
		}
		noted, invoices := decimals{}, decimals{}
		for of, m := range notes {
			want.add(of.Month+"/"+of.Workspace+" "+of.Currency, m.String())
			noted.add(of.Currency, m.String())
		}
		for i := range posted {
			invoices.add(posted[i].Currency+" "+posted[i].Invoice, posted[i].Billed.String())
		}
		for of, sum := range invoices {
			currency, _, _ := strings.Cut(of, " ")
			noted.add(currency, sum.Round(2).Neg().String())
		}
		for currency, off := range noted {
			if !off.IsZero() {
				t.Errorf("notes are off by %s %s", off, currency)
			}
		}
		for of := range want {
			if !want[of].Equal(owed[of]) {
				t.Errorf("%s owes %s, want %s", of, owed[of], want[of])
			}
			delete(owed, of)
		}
		for of, sum := range owed {
			if !sum.IsZero() {
				t.Errorf("%s owes %s of nothing", of, sum)
			}
		}
	})
}

// What the chart does not say is listed, and no journal is made.
func TestJournalNamesWhatIsMissing(t *testing.T) {
	l := house()
	l.Append(account("ap", domain.LedgerPayable, "2000", nil), account("x", domain.LedgerExpense, "6000", nil))
	storetest.FoldView(t, l, func(v projections.View) {
		d, err := costs.Divide(v, storetest.MayBill, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		c, err := costs.ReadChart(v, storetest.MayBill)
		if err != nil {
			t.Fatal(err)
		}
		_, err = costs.NewJournal(&costs.JournalInput{Division: d, Chart: c, Statement: statementOf})
		var missing *costs.MissingAccountsError
		if !errors.As(err, &missing) {
			t.Fatalf("error %v, want what is missing", err)
		}
		text := fmt.Sprint(missing.Missing)
		for _, want := range []string{"entity for workspace a", "entity for invoices of p to account 1", "cost_center for component allocated", "accrued for issuer p, account 1"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q does not name %q", text, want)
			}
		}
		for _, not := range []string{"payable for", "expense for"} {
			if strings.Contains(text, not) {
				t.Errorf("%q names %q, which is declared", text, not)
			}
		}
	})
}

// journalOf makes the journal of a month and of postings into it, as the chart of accounts is in the log.
func journalOf(t *testing.T, l *storetest.Log, closed *costs.Division, posted []costs.Posting) *costs.Journal {
	t.Helper()
	var c *costs.Chart
	storetest.FoldView(t, l, func(v projections.View) {
		var err error
		if c, err = costs.ReadChart(v, storetest.MayBill); err != nil {
			t.Fatal(err)
		}
	})
	for i := range posted {
		posted[i].Period = "2026-04"
	}
	j, err := costs.NewJournal(&costs.JournalInput{
		Division: closed, Posted: posted, Chart: c, Close: "close", Statement: statementOf,
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// A posting is booked on the cost centre of its own workspace.
func TestJournalCostCentreOfPostings(t *testing.T) {
	l := house()
	for _, w := range []string{"a", "b"} {
		l.Append(domain.Envelope{Workspace: w, Time: storetest.Start - 20*domain.Day, Event: &domain.WorkspaceRegistered{Name: w, Owner: w, CostCentre: "cc-" + w}})
	}
	for _, env := range chart() {
		if env.Event.(*domain.PolicySet).Scope != domain.LedgerCostCenter {
			l.Append(env)
		}
	}
	l.Append(
		account("cc", domain.LedgerCostCenter, "none", nil),
		account("cc-a", domain.LedgerCostCenter, "CC-A", map[string]string{"x_CostCentre": "cc-a"}),
		account("cc-b", domain.LedgerCostCenter, "CC-B", map[string]string{"x_CostCentre": "cc-b"}),
	)
	closed := divided(t, l)
	late := recorded(billLine("01-n1", "20.02", func(l *domain.BillingLine) {
		l.ChargePeriodStart, l.ChargePeriodEnd, l.ResourceID = storetest.Span(0, 60).From, storetest.Span(0, 120).To, "r-1"
		l.PricingQuantity, l.PricingUnit = decimal.NewNullDecimal(decimal.NewFromInt(2)), "Hours"
		l.ServiceCategory, l.RegionID, l.SKUID = "Compute", "eu", "gpu-2"
	}))
	late.Source, late.Time = "focus/again", storetest.MayBill.To+domain.Day
	l.Append(late)
	now := divided(t, l)
	posted, err := costs.Difference(closed, nil, now, projections.BillingMonth(storetest.MayBill.To), nil)
	if err != nil {
		t.Fatal(err)
	}
	j := journalOf(t, l, closed, posted)
	for _, e := range j.Entries {
		if strings.HasSuffix(e.Statement, "/b") && e.CostCenter != "" && e.CostCenter != "CC-B" {
			t.Errorf("%s of workspace b, cost centre %s: %s %s", e.Text, e.CostCenter, e.Debit, e.Corrects)
		}
	}
}

// The journal of a closed month does not change when a line that was posted into it is removed later.
func TestJournalStays(t *testing.T) {
	l := house()
	for _, env := range chart() {
		if env.Event.(*domain.PolicySet).Policy != "x" {
			l.Append(env)
		}
	}
	l.Append(
		account("x", domain.LedgerExpense, "6000", map[string]string{"ServiceName": "Compute"}),
		account("x-any", domain.LedgerExpense, "6900", nil),
	)
	closed := divided(t, l)
	late := recorded(billLine("new", "5", func(l *domain.BillingLine) { l.ResourceID, l.ServiceName = "r-1", "Compute" }))
	late.Time = storetest.MayBill.To + domain.Day
	l.Append(late)
	posted, err := costs.Difference(closed, nil, divided(t, l), projections.BillingMonth(storetest.MayBill.To), nil)
	if err != nil {
		t.Fatal(err)
	}
	first := journalOf(t, l, closed, posted)
	// In July the supplier removes the line. What was posted is kept.
	l.Append(domain.Envelope{Source: "focus/again", Time: storetest.MayBill.To + 40*domain.Day, Event: &domain.BillingLineRemoved{
		InvoiceIssuerName: "p", BillingAccountID: "1", LineID: "new", BillingPeriod: storetest.MayBill,
	}})
	var kept bytes.Buffer
	if err := costs.WritePostings(&kept, posted); err != nil {
		t.Fatal(err)
	}
	if posted, err = costs.ReadPostings(kept.Bytes()); err != nil {
		t.Fatal(err)
	}
	again := journalOf(t, l, closed, posted)
	text := func(j *costs.Journal) (out []string) {
		for _, e := range j.Entries {
			if e.Corrects != "" {
				out = append(out, fmt.Sprint(e.Account, " ", e.Debit, " ", e.Credit, " ", e.ID[:6]))
			}
		}
		return out
	}
	if a, b := fmt.Sprint(text(first)), fmt.Sprint(text(again)); a != b || !strings.Contains(b, "6000 4.98") {
		t.Errorf("the journal was\n%s\nand is now\n%s", a, b)
	}
}

// What the journal takes out of prepaid is what was consumed, to the cent: 1.00 of a commitment, used by three workspaces.
func TestJournalPrepaidClears(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), storetest.Start-10*domain.Day))
	l.Append(chart()...)
	for i, w := range []string{"a", "b", "c"} {
		rule := storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - 9*domain.Day, Event: &domain.MappingRuleSet{
			Rule: "r" + w, ToWorkspace: w, Columns: map[string]string{"ServiceName": "S" + w}, EffectiveFrom: storetest.Start - domain.Day}})
		l.Append(rule, recorded(billLine(fmt.Sprint("u", i), "0", func(l *domain.BillingLine) {
			l.ServiceName = "S" + w
			l.EffectiveCost = decimal.NewNullDecimal(storetest.Dec([]string{"0.333333", "0.333333", "0.333334"}[i]))
		})))
	}
	d := divided(t, l)
	j := journalOf(t, l, d, nil)
	prepaid, expense := decimal.Zero, decimal.Zero
	for _, e := range j.Entries {
		switch e.Account {
		case "1400":
			prepaid = prepaid.Add(e.Amount().Amount.Decimal())
		case "6000":
			expense = expense.Add(e.Amount().Amount.Decimal())
		}
	}
	if prepaid.String() != "-1" || expense.String() != "1" {
		t.Errorf("the journal books %s of expense and %s of prepaid, want 1 and -1", expense, prepaid)
	}
}

// Where no entry of the chart says a cost centre, it is the workspace's own in the hour that was paid for.
func TestJournalCostCentreOfTheHour(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, storetest.USD("1000000"), storetest.Start-10*domain.Day))
	for _, env := range chart() {
		if env.Event.(*domain.PolicySet).Scope != domain.LedgerCostCenter {
			l.Append(env)
		}
	}
	moved := storetest.MayBill.From + 10*domain.Day
	for centre, from := range map[string]domain.Instant{"C-old": storetest.Start - 20*domain.Day, "C-new": moved} {
		l.Append(domain.Envelope{Workspace: "b", Time: from, Event: &domain.WorkspaceRegistered{Name: "b", CostCentre: centre}})
	}
	l.Append(storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start - 9*domain.Day, Event: &domain.MappingRuleSet{
		Rule: "r", ToWorkspace: "b", Columns: map[string]string{"ServiceName": "S"}, EffectiveFrom: storetest.Start - domain.Day}}))
	for id, at := range map[string]domain.Instant{"old": moved - domain.Day, "new": moved} {
		l.Append(recorded(billLine(id, map[string]string{"old": "3", "new": "4"}[id], func(l *domain.BillingLine) {
			l.ServiceName, l.ChargePeriodStart, l.ChargePeriodEnd = "S", at, at+domain.Day
		})))
	}
	got := map[string]string{}
	for _, e := range journalOf(t, l, divided(t, l), nil).Entries {
		if e.CostCenter != "" {
			got[e.CostCenter] = e.Debit.String()
		}
	}
	if len(got) != 2 || got["C-old"] != "3.00" || got["C-new"] != "4.00" {
		t.Errorf("expense by cost centre %v, want 3.00 of C-old and 4.00 of C-new", got)
	}
}
