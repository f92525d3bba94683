package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
)

// cents shows an amount in whole minor units of its currency, rounded half away
// from zero, in groups of three.
func cents(amount attribution.Amount, currency string) string {
	return minorText(amount.Decimal(), currency)
}

func minorText(amount domain.Decimal, currency string) string {
	s := amount.StringFixed(int32(domain.MinorUnits(currency)))
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

// exactly is an amount to its last digit, nothing shown as 0.00.
func exactly(amount attribution.Amount, currency string) string {
	if amount.IsZero() {
		return cents(amount, currency)
	}
	return amount.String()
}

// amountText is cents with the currency behind.
func amountText(amount attribution.Amount, currency string) string {
	return cents(amount, currency) + " " + currency
}

// alignRight aligns the columns from a number on, counted from 1, to the right.
func alignRight(t table.Writer, first, last int) {
	columns := []table.ColumnConfig{}
	for i := first; i <= last; i++ {
		columns = append(columns, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
}

const generatedNote = "generated: some of these figures were made by a generator, and no supplier sent them"

func (a *app) showCosts(v projections.View, r *costs.Report) error {
	fmt.Fprintf(a.out, "costs of %s", monthName(r.Month))
	if r.Workspace != "" {
		fmt.Fprintf(a.out, ", what %s carries", clipped(r.Workspace))
	}
	fmt.Fprintln(a.out)
	if r.Generated {
		fmt.Fprintln(a.out, generatedNote)
	}
	if r.Lines == 0 && len(r.Invoices) == 0 {
		if err := a.noBills(v, r.Month, ""); err != nil {
			return err
		}
	} else {
		a.showCostGroups(r)
		a.showStatements(r)
		a.showInvoices(r)
		a.showCommitments(r)
		a.showMatches(r)
	}
	a.showExceptions(costExceptions(r.Exceptions))
	fmt.Fprintln(a.out)
	for _, p := range r.Policies {
		fmt.Fprintln(a.out, policyText(p))
	}
	fmt.Fprintf(a.out, "method: %s on %s\nposition: %s\n", r.Methods.Attribution, r.Methods.Folds, r.Position)
	a.reportEnds(r.Completeness)
	return nil
}

func policyText(p costs.AppliedPolicy) string {
	if p.Policy == "" {
		return fmt.Sprintf("policy: %s %s, the default", p.Kind, p.Value)
	}
	return fmt.Sprintf("policy: %s %s, by %s/%s of %s, decided by %s", p.Kind, p.Value, p.Workspace, p.Policy, p.From, p.Operator)
}

// paid returns what statements add up to, by workspace ("" for all) and
// currency: the amounts that were rounded once.
func paid(r *costs.Report) map[[2]string]attribution.Amount {
	sums := map[[2]string]attribution.Amount{}
	for _, s := range r.Statements {
		for _, k := range [][2]string{{s.Workspace, s.Currency}, {"", s.Currency}} {
			sums[k] = sums[k].Add(s.Amount)
		}
	}
	return sums
}

func (a *app) showCostGroups(r *costs.Report) {
	header := table.Row{}
	for _, d := range r.By {
		header = append(header, string(d))
	}
	header = append(header, "currency", "billed", "effective", "bought", "allocated", "useful", "effective per useful GPU-hour")
	t := a.table(header...)
	alignRight(t, len(r.By)+2, len(header))
	sums := paid(r)
	cells := func(c *costs.Cost, billed, effective domain.Decimal) []any {
		rate := ""
		if c.PerUseful != nil {
			rate = c.PerUseful.StringFixed(4)
		}
		return []any{c.Currency, minorText(billed, c.Currency), minorText(effective, c.Currency), gpuHours(c.Bought), gpuHours(c.Allocated), gpuHours(c.Useful), rate}
	}
	byWorkspace := len(r.By) == 1 && r.By[0] == costs.ByWorkspace
	groups := r.Groups
	if len(r.By) == 0 {
		groups = nil // the totals say it
	}
	billed, effective := make([]domain.Decimal, len(groups)), make([]domain.Decimal, len(groups))
	for i := range groups {
		g := &groups[i]
		billed[i], effective[i] = g.Billed.Decimal(), g.Effective.Decimal()
		if byWorkspace {
			billed[i] = sums[[2]string{g.Key[costs.ByWorkspace], g.Currency}].Decimal()
		}
	}
	for i := range r.Totals {
		c := &r.Totals[i]
		which := func(j int) bool { return groups[j].Currency == c.Currency }
		foot(billed, which, sums[[2]string{"", c.Currency}].Decimal(), c.Currency)
		foot(effective, which, c.Effective.Decimal(), c.Currency)
	}
	for i := range groups {
		g := &groups[i]
		row := table.Row{}
		for _, d := range r.By {
			name := g.Key[d]
			if name == "" {
				name = "(none)"
				if d == costs.ByDay || d == costs.ByHour {
					name = "(whole period)"
				}
			}
			row = append(row, clipped(name))
		}
		t.AppendRow(append(row, cells(&g.Cost, billed[i], effective[i])...))
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
		t.AppendRow(append(row, cells(c, sums[[2]string{"", c.Currency}].Decimal(), c.Effective.Decimal())...))
	}
	fmt.Fprintln(a.out, "\nGPU time in hours")
	t.Render()
	if c := r.Coverage; c != nil && *c < 1000 {
		fmt.Fprintf(a.out, "activity was measured for %d.%d%% of the time held; the rest is not counted as useful\n", *c/10, *c%10)
	}
	if len(groups) > 0 {
		fmt.Fprintln(a.out, "cents of rows are apportioned so that they add up to the total; see --json for every digit")
	}
}

// foot rounds those of the amounts that which picks to whole minor units so
// that they add up to a total: each down, and then the largest remainders up,
// the first of equal ones first.
func foot(amounts []domain.Decimal, which func(int) bool, total domain.Decimal, currency string) {
	places := int32(domain.MinorUnits(currency))
	missing := total.Round(places)
	var order []int
	rest := make([]domain.Decimal, len(amounts))
	for i := range amounts {
		if which(i) {
			floor := amounts[i].RoundFloor(places)
			rest[i], amounts[i] = amounts[i].Sub(floor), floor
			missing = missing.Sub(floor)
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return rest[j].Cmp(rest[i]) })
	unit := decimal.New(1, -places)
	for len(order) > 0 && !missing.IsZero() {
		step := unit
		if missing.IsNegative() { // statements were rounded up by more than the rows can be
			step = unit.Neg()
		}
		for _, i := range order {
			if missing.IsZero() {
				break
			}
			amounts[i], missing = amounts[i].Add(step), missing.Sub(step)
		}
	}
}

// shownRows is how many statements and invoices a table lists; JSON has all.
const shownRows = 40

func (a *app) more(n int) {
	if n > shownRows {
		fmt.Fprintf(a.out, "and %s more; see --json\n", comma(n-shownRows))
	}
}

func (a *app) showStatements(r *costs.Report) {
	if len(r.Statements) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nstatements, rounded once so that they add up to the lines of each invoice, and to the invoice where it ties")
	t := a.table("workspace", "issuer", "account", "invoice", "amount")
	alignRight(t, 5, 5)
	for i, s := range r.Statements {
		if i < shownRows {
			t.AppendRow(table.Row{clipped(s.Workspace), clipped(s.Issuer), clipped(s.Account), invoiceText(s.Invoice, s.Period), amountText(s.Amount, s.Currency)})
		}
	}
	t.Render()
	a.more(len(r.Statements))
}

// invoiceText names an invoice, or the period of lines that name none.
func invoiceText(id string, period domain.Interval) string {
	if id == "" {
		return fmt.Sprintf("(none yet, for %s to %s)", dayText(period.From), dayText(period.To))
	}
	return clipped(id)
}

func (a *app) showInvoices(r *costs.Report) {
	fmt.Fprintln(a.out, "\ninvoices")
	t := a.table("issuer", "account", "invoice", "lines", "attributed", "other months", "received", "difference", "rounding", "status")
	alignRight(t, 4, 9)
	for i, x := range r.Invoices {
		if i >= shownRows {
			break
		}
		received, difference := "", ""
		if x.Status != attribution.NoInvoice {
			received = amountText(x.Received, x.Currency)
			difference = exactly(x.Difference, x.Currency)
		}
		t.AppendRow(table.Row{
			clipped(x.Issuer), clipped(x.Account), invoiceText(x.Invoice, x.Period), comma(x.Lines),
			amountText(x.Attributed, x.Currency), elsewhereText(&x), received, difference, exactly(x.RoundingAdjustment, x.Currency), statusText(&x),
		})
	}
	t.Render()
	a.more(len(r.Invoices))
	for _, x := range r.Invoices {
		if x.RoundedAway != nil {
			fmt.Fprintf(a.out, "%s of %s, account %s: lines had more than 18 decimals, and rounding them took %s %s\n",
				invoiceText(x.Invoice, x.Period), clipped(x.Issuer), clipped(x.Account), x.RoundedAway, x.Currency)
		}
	}
}

// dayText is a date where a time is the start of one, else the whole time.
func dayText(t domain.Instant) string {
	if t == t.DayStart() {
		return t.Time().Format(time.DateOnly)
	}
	return t.String()
}

// elsewhereText is what the lines of other months come to.
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

func (a *app) showCommitments(r *costs.Report) {
	if len(r.Commitments) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\ncommitments")
	t := a.table("issuer", "commitment", "purchased", "used", "unused", "sponsors")
	alignRight(t, 3, 5)
	for _, c := range r.Commitments {
		sponsors := "declared"
		if !c.Sponsored {
			sponsors = "none: the platform"
		}
		t.AppendRow(table.Row{clipped(c.Issuer), clipped(c.Commitment), amountText(c.Purchased, c.Currency), amountText(c.Used, c.Currency), amountText(c.Unused, c.Currency), sponsors})
	}
	t.Render()
}

func (a *app) showMatches(r *costs.Report) {
	if len(r.Matches) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nhow lines found what they are for")
	t := a.table("match_method", "lines", "billed", "effective")
	alignRight(t, 2, 4)
	for _, m := range r.Matches {
		t.AppendRow(table.Row{m.MatchMethod.String(), comma(m.Lines), amountText(m.Billed, m.Currency), amountText(m.Effective, m.Currency)})
	}
	t.Render()
}

// costExceptions puts what is in question into words.
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
