package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/costs"
)

// monthFlags name one month or several.
type monthFlags struct{ period, from, to string }

func (m *monthFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.period, "period", "", "billing month in UTC, for example 2026-05")
	f.StringVar(&m.from, "from", "", "first billing month, instead of --period")
	f.StringVar(&m.to, "to", "", "billing month after the last")
}

func (m *monthFlags) months() ([]domain.Interval, error) {
	return exportedMonths("period", m.period, m.from, m.to)
}

// compareFlag adds --compare.
func compareFlag(cmd *cobra.Command, compare *string) {
	cmd.Flags().StringVar(compare, "compare", "", "previous: also what each group cost before, and the difference")
}

func comparing(compare string) (bool, error) {
	if compare != "" && compare != "previous" {
		return false, commandline.Usagef("--compare %q: want previous", compare)
	}
	return compare != "", nil
}

// monthsText names months, for example "2026-01 to 2026-03".
func monthsText(first, last domain.Interval) string {
	if first == last {
		return app.MonthName(first)
	}
	return app.MonthName(first) + " to " + app.MonthName(last)
}

func spanText(months []costs.MonthOf) string {
	return monthsText(months[0].Month, months[len(months)-1].Month)
}

func (a *Program) showCostsOfMonths(r *costs.MonthsReport) {
	fmt.Fprintf(a.out, "costs of %s", spanText(r.Months))
	if r.Workspace != "" {
		fmt.Fprintf(a.out, ", what %s is charged", clipped(r.Workspace))
	}
	if len(r.Compared) > 0 {
		fmt.Fprintf(a.out, ", compared with %s", spanText(r.Compared))
	}
	fmt.Fprintln(a.out, whereText(r.Where, costs.Blank))
	if slices.ContainsFunc(r.Months, func(m costs.MonthOf) bool { return m.Generated }) {
		fmt.Fprintln(a.out, generatedNote)
	}
	a.showMonthsGroups(r)
	if c := r.Coverage; c != nil && *c < 1000 {
		fmt.Fprintf(a.out, "activity was measured for %d.%d%% of the time held; the rest is not counted as useful\n", *c/10, *c%10)
	}
	fmt.Fprintln(a.out)
	for _, m := range r.Months {
		state := "open"
		switch {
		case m.Books != nil:
			state = closedBy(m.Books)
		case m.Lines == 0 && m.Allocations == 0:
			state = "no bills"
		case len(m.Unreconciled) > 0:
			state = fmt.Sprintf("open, and %s of its bills do not reconcile", comma(len(m.Unreconciled)))
		}
		fmt.Fprintf(a.out, "%s: %s; %s lines, %s exceptions, %s on %s\n", app.MonthName(m.Month), state, comma(m.Lines),
			comma(m.Exceptions), m.Methods.Attribution, m.Methods.Folds)
	}
	if t := r.Months[0].Translation; t != nil {
		fmt.Fprintf(a.out, "in %s, each month at its own rates; \"quartermaster costs fx --period MONTH\" shows them\n", t.Currency)
	}
	fmt.Fprintf(a.out, "position: %s\n", a.position(r.Position))
	a.reportEnds(r.Completeness)
}

func (a *Program) showMonthsGroups(r *costs.MonthsReport) {
	compared := len(r.Compared) > 0
	header := table.Row{}
	for _, d := range r.By {
		header = append(header, string(d))
	}
	header = append(header, "currency", "billed", "effective")
	if compared {
		header = append(header, "before", "difference", "change %")
	}
	header = append(header, "bought", "allocated", "useful", "per bought GPU-hour", "per allocated", "per useful", "list", "negotiated",
		"by commitments", "savings rate")
	t := a.table(header...)
	t.main, t.names = true, len(r.By)
	t.spare = []string{
		"by commitments", "negotiated", "list", "savings rate", "allocated", "bought", "useful", "per bought GPU-hour", "per allocated",
	}
	alignRight(t, len(r.By)+2, len(header))
	cells := func(c *costs.MonthsCost) []any {
		row := []any{
			c.Currency, cell{minorText(c.BilledMinor.Amount.Decimal(), c.Currency), c.Billed.String()},
			cell{minorText(c.EffectiveMinor.Amount.Decimal(), c.Currency), c.Effective.String()},
		}
		if b := c.Before; b != nil {
			change := ""
			if b.Change != nil {
				change = b.Change.Shift(2).StringFixed(1)
			}
			row = append(row, cell{cents(b.Effective, c.Currency), b.Effective.String()},
				cell{cents(b.EffectiveDifference, c.Currency), b.EffectiveDifference.String()}, change)
		}
		return append(append(row, hourCells(&c.Cost)...), savingsCells(&c.Cost)...)
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		row := table.Row{}
		for _, d := range r.By {
			row = append(row, clipped(cmp.Or(g.Key[d], costs.Blank(d))))
		}
		if len(r.By) > 0 { // else it is equal to the total
			t.AppendRow(append(row, cells(&g.MonthsCost)...))
		}
	}
	if len(r.By) > 0 {
		t.AppendSeparator()
	}
	for i := range r.Totals {
		row := table.Row{}
		for j := range r.By {
			row = append(row, map[bool]string{true: "total"}[j == 0])
		}
		t.AppendRow(append(row, cells(&r.Totals[i])...))
	}
	fmt.Fprintln(a.out, "\nGPU time in hours")
	t.Render()
	if compared {
		fmt.Fprintln(a.out, "before, difference and change are of the effective cost")
	}
	if len(r.Groups) > 0 && len(r.By) > 0 {
		fmt.Fprintln(a.out, "cents of rows are apportioned so that they add up to the total; see -o json for every digit")
	}
}

// unreconciledMonths lists what does not reconcile in any of the months.
func unreconciledMonths(r *costs.MonthsReport) (all []costs.Unreconciled) {
	for _, m := range r.Months {
		for _, u := range m.Unreconciled {
			all = append(all, costs.Unreconciled{Subject: app.MonthName(m.Month) + " " + u.Subject, Why: u.Why})
		}
	}
	return all
}
