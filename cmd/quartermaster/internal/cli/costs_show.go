package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
)

// cents formats an amount in whole minor units of its currency, rounded half away from zero, with
// digit grouping.
func cents(amount attribution.Amount, currency string) string {
	return minorText(amount.Decimal(), currency)
}

func minorText(amount domain.Decimal, currency string) string {
	return digitGroups(amount.StringFixed(int32(domain.MinorUnits(currency))))
}

// digitGroups groups the digits before the point by thousands. Zero has no sign.
func digitGroups(s string) string {
	sign := ""
	if rest, negative := strings.CutPrefix(s, "-"); negative {
		if s = rest; strings.Trim(s, "0.") != "" {
			sign = "-"
		}
	}
	whole, fraction, point := strings.Cut(s, ".")
	var b strings.Builder
	b.WriteString(sign)
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteByte(whole[i])
	}
	if point {
		b.WriteString("." + fraction)
	}
	return b.String()
}

// exactly formats an amount with all its digits, grouped. Zero is 0.00.
func exactly(amount attribution.Amount, currency string) string {
	if amount.IsZero() {
		return cents(amount, currency)
	}
	return digitGroups(amount.String())
}

// amountText formats an amount with its currency.
func amountText(amount attribution.Amount, currency string) string {
	return cents(amount, currency) + " " + currency
}

// alignRight aligns the columns first to last, counted from 1, to the right.
func alignRight(t *grid, first, last int) {
	columns := []table.ColumnConfig{}
	for i := first; i <= last; i++ {
		columns = append(columns, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
}

const generatedNote = "generated: some of these figures are generated, not from a supplier"

func (a *Program) showCosts(ctx context.Context, at app.At, r *costs.Report) error {
	fmt.Fprintf(a.out, "costs of %s", app.MonthName(r.Month))
	if r.Workspace != "" {
		fmt.Fprintf(a.out, ", what %s is charged", clipped(r.Workspace))
	}
	fmt.Fprintln(a.out, whereText(r.Where, costs.Blank))
	if r.Generated {
		fmt.Fprintln(a.out, generatedNote)
	}
	if r.Lines == 0 && r.Allocations == 0 && len(r.Invoices) == 0 {
		if err := a.noBills(ctx, at, r.Month, ""); err != nil {
			return err
		}
	} else {
		a.showCostGroups(r)
		a.showLoaded(r.Loaded)
		a.showStatements(r)
		a.showInvoices(r)
		a.showCommitments(r)
		a.showMatches(r)
	}
	a.showExceptions(costExceptions(r.Exceptions))
	fmt.Fprintln(a.out)
	if b := r.Books; b != nil {
		fmt.Fprintf(a.out, "%s at %s; later changes are posted into the open period\n", closedBy(b), b.Closed)
		for _, p := range r.Posted {
			fmt.Fprintf(a.out, "posted into it about earlier months, and not in the totals: %s %s billed, %s effective, in %s postings (costs postings --month %s)\n",
				cents(p.Billed, p.Currency), p.Currency, cents(p.Effective, p.Currency), comma(p.Postings), app.MonthName(r.Month))
		}
	}
	a.showTranslation(r.Translation)
	for _, p := range r.Policies {
		fmt.Fprintln(a.out, policyText(p))
	}
	fmt.Fprintf(a.out, "method: %s on %s\nposition: %s\n", r.Methods.Attribution, r.Methods.Folds, a.position(r.Position))
	a.reportEnds(r.Completeness)
	return nil
}

// closedBy says who closed books, if that is seen.
func closedBy(b *costs.ClosedBooks) string {
	if b.Prepared == "" {
		return "closed"
	}
	return fmt.Sprintf("closed by %s and %s", clipped(b.Prepared), clipped(b.Approved))
}

func policyText(p costs.AppliedPolicy) string {
	if p.Policy == "" {
		return fmt.Sprintf("policy: %s %s, the default", p.Kind, p.Value)
	}
	return fmt.Sprintf("policy: %s %s, by %s/%s of %s, decided by %s", p.Kind, p.Value, p.Workspace, p.Policy, p.From, p.Operator)
}

func (a *Program) showCostGroups(r *costs.Report) {
	header := table.Row{}
	for _, d := range r.By {
		header = append(header, string(d))
	}
	header = append(header, "currency", "billed", "effective", "bought", "allocated", "useful", "per bought GPU-hour", "per allocated", "per useful",
		"list", "negotiated", "by commitments", "savings rate")
	t := a.table(header...)
	t.names = len(r.By)
	t.spare = []string{"by commitments", "negotiated", "list", "savings rate", "allocated", "bought", "useful", "per bought GPU-hour", "per allocated"}
	alignRight(t, len(r.By)+2, len(header))
	cells := func(c *costs.Cost) []any {
		return append([]any{
			c.Currency, cell{minorText(c.BilledMinor.Amount.Decimal(), c.Currency), c.Billed.String()},
			cell{minorText(c.EffectiveMinor.Amount.Decimal(), c.Currency), c.Effective.String()},
		}, append(hourCells(c), savingsCells(c)...)...)
	}
	groups := r.Groups
	if len(r.By) == 0 {
		groups = nil // equal to the totals
	}
	for i := range groups {
		g := &groups[i]
		row := table.Row{}
		for _, d := range r.By {
			name := g.Key[d]
			if name == "" {
				name = costs.Blank(d)
			}
			row = append(row, clipped(name))
		}
		t.AppendRow(append(row, cells(&g.Cost)...))
	}
	if len(r.By) > 0 {
		t.AppendSeparator()
	}
	for i := range r.Totals {
		c := &r.Totals[i]
		row := table.Row{}
		for j := range r.By {
			row = append(row, map[bool]string{true: "total"}[j == 0])
		}
		t.AppendRow(append(row, cells(c)...))
	}
	fmt.Fprintln(a.out, "\nGPU time in hours")
	t.Render()
	if c := r.Coverage; c != nil && *c < 1000 {
		fmt.Fprintf(a.out, "activity was measured for %d.%d%% of the time held; the rest is not counted as useful\n", *c/10, *c%10)
	}
	if len(groups) > 0 {
		fmt.Fprintln(a.out, "cents of rows are apportioned so that they add up to the total; see -o json for every digit")
	}
}

// savingsCells shows list prices and what was saved; blank for costs without list prices.
func savingsCells(c *costs.Cost) []any {
	if c.SavingsRate == nil {
		return []any{"", "", "", ""}
	}
	return []any{
		cents(c.List, c.Currency), cents(c.Negotiated, c.Currency), cents(c.Committed, c.Currency),
		c.SavingsRate.Shift(2).StringFixed(1) + "%",
	}
}

// usefulText shows useful time, or that it was not measured.
func usefulText(ms *int64) string {
	if ms == nil {
		return string(costs.NotMeasured)
	}
	return gpuHours(*ms)
}

// shownRows bounds the statements and invoices in a table. JSON has all.
const shownRows = 40

func (a *Program) more(n int) {
	if n > shownRows {
		fmt.Fprintf(a.out, "and %s more; see -o json\n", comma(n-shownRows))
	}
}

func (a *Program) showStatements(r *costs.Report) {
	if len(r.Statements) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nstatements, rounded once so that they add up to the lines of each invoice, and to the invoice if it reconciles")
	t := a.table("workspace", "issuer", "account", "invoice", "amount")
	alignRight(t, 5, 5)
	for i, s := range r.Statements {
		if i < shownRows {
			t.AppendRow(table.Row{named(s.Workspace), named(s.Issuer), named(s.Account), invoiceText(s.Invoice, s.Period), amountText(s.Amount.Amount, s.Currency)})
		}
	}
	t.Render()
	a.more(len(r.Statements))
}

// invoiceText names an invoice, or says what there is instead.
func invoiceText(id string, period domain.Interval) string {
	if id == "" {
		return "(" + noInvoiceText(period) + ")"
	}
	return clipped(id)
}

// noInvoiceText says the period of lines without an invoice. Within a scope neither is known.
func noInvoiceText(period domain.Interval) string {
	if period == (domain.Interval{}) {
		return "the supplier's, not shown"
	}
	return fmt.Sprintf("none yet, for %s to %s", dayText(period.From), dayText(period.To))
}

func (a *Program) showInvoices(r *costs.Report) {
	fmt.Fprintln(a.out, "\ninvoices")
	t := a.table("invoice", "issuer", "account", "lines", "attributed", "other months", "received", "difference", "rounding", "status")
	t.spare, t.vital = []string{"lines"}, []string{"attributed", "received", "difference"}
	alignRight(t, 4, 9)
	for i, x := range r.Invoices {
		if i >= shownRows {
			break
		}
		received, difference := "", ""
		if x.Status != attribution.NoInvoice {
			received = cents(x.Received, x.Currency)
			difference = exactly(x.Difference, x.Currency)
		}
		t.AppendRow(table.Row{
			invoiceText(x.Invoice, x.Period), named(x.Issuer), named(x.Account), count(x.Lines),
			amountText(x.Attributed, x.Currency), elsewhereText(&x), received, difference, exactly(x.RoundingAdjustment, x.Currency), statusText(&x),
		})
	}
	t.Render()
	a.more(len(r.Invoices))
	for _, x := range r.Invoices {
		if x.RoundedAway != nil {
			fmt.Fprintf(a.out, "%s of %s, account %s: rounding lines to 18 decimals took %s %s\n",
				invoiceText(x.Invoice, x.Period), clipped(x.Issuer), clipped(x.Account), x.RoundedAway, x.Currency)
		}
	}
}

// dayText shows a time as a date if it is the start of a day.
func dayText(t domain.Instant) string {
	if t == t.DayStart() {
		return t.Time().Format(time.DateOnly)
	}
	return t.String()
}

// elsewhereText shows the total of the invoice's lines in other months.
func elsewhereText(t *costs.InvoiceReconciliation) string {
	if len(t.Elsewhere) == 0 {
		return ""
	}
	var sum attribution.Amount
	for _, p := range t.Elsewhere {
		sum = sum.Add(p.Billed)
	}
	return amountText(sum, t.Currency)
}

func statusText(t *costs.InvoiceReconciliation) string {
	status := strings.ReplaceAll(string(t.Status), "_", " ")
	if t.Generated {
		status += ", generated"
	}
	return status
}

func (a *Program) showCommitments(r *costs.Report) {
	if len(r.Commitments) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\ncommitments")
	t := a.table("issuer", "commitment", "purchased", "used", "unused", "owners")
	alignRight(t, 3, 5)
	for _, c := range r.Commitments {
		owners := "declared"
		if !c.Owned {
			owners = "none: the platform"
		}
		t.AppendRow(table.Row{named(c.Issuer), named(c.Commitment), amountText(c.Purchased, c.Currency), amountText(c.Used, c.Currency), amountText(c.Unused, c.Currency), owners})
	}
	t.Render()
}

func (a *Program) showMatches(r *costs.Report) {
	if len(r.Matches) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nhow lines were matched to machines")
	t := a.table("match_method", "lines", "billed", "effective")
	alignRight(t, 2, 4)
	for _, m := range r.Matches {
		t.AppendRow(table.Row{m.MatchMethod.String(), count(m.Lines), amountText(m.Billed, m.Currency), amountText(m.Effective, m.Currency)})
	}
	t.Render()
}

// costExceptions formats exceptions for a table.
func costExceptions(all []attribution.Exception) []inventory.Exception {
	out := make([]inventory.Exception, len(all))
	for i, e := range all {
		detail := e.Detail
		if e.Currency != "" {
			detail += "; " + amountText(e.Billed, e.Currency)
			if e.Lines > 1 {
				detail += fmt.Sprintf(" in %s lines", comma(e.Lines))
			}
		}
		if e.GPUMs > 0 {
			detail += "; " + gpuHours(e.GPUMs) + " GPU-hours"
		}
		out[i] = inventory.Exception{Kind: string(e.Kind), Subject: e.Subject, Detail: detail}
	}
	return out
}
