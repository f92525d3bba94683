package cli

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain/attribution"
	"quartermaster/projections/costs"
)

func (a *Program) costBudgetCommand() *cobra.Command {
	var period, asOf string
	cmd := &cobra.Command{
		Use:   "budget --period MONTH",
		Short: "Compare budgets with what was spent, committed and forecast",
		Long: `Budget shows each declared budget whose period overlaps the month: what its workspace was charged from
the start of the period to the end of the month, with what was posted into these months about earlier
closed ones, what commitments cost for the rest of the period, and what all of it is expected to cost,
with the 5% and 95% levels. Only whole months are counted. A budget of basis cash counts billed cost,
one of basis accrual effective cost. Costs in other currencies are translated if the books are kept in
that of the budget; otherwise they are listed beside it. What is paid in advance is charged to
platform:prepaid, which may have a budget like a workspace, and has no forecast.

The interval adds up hourly levels, so it is wider than that of the sum. A forecast needs four weeks of
hourly costs, and looks 13 weeks ahead at most.

The variance explains what was spent less the cost of as many months before, and adds up to the
difference exactly:
  volume      more or fewer GPU-hours were held
  mix         of other GPU models or providers
  efficiency  with more or fewer bought hours for each hour held
  price       at another cost of a bought hour
  other       what is without held and bought GPU-hours: fees, idle time, credits
Factors change one after the other, in this order. There is no part for FX: the months before
are translated at their own rates, so a change of a rate is in price.`,
		Example: "  quartermaster costs budget --period 2026-05\n  quartermaster costs budget --period 2026-05 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			month, err := monthFlag("period", period)
			if err != nil {
				return err
			}
			r, err := a.caller().Budgets(cmd.Context(), app.At(asOf), month)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(r)
			}
			a.showBudgets(r)
			return nil
		},
	}
	cmd.Flags().StringVar(&period, "period", "", "last month to count, for example 2026-05 (required)")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	return cmd
}

func (a *Program) showBudgets(r *costs.BudgetReport) {
	fmt.Fprintf(a.out, "budgets at the end of %s\n", app.MonthName(r.Month))
	if len(r.Budgets) == 0 {
		fmt.Fprintln(a.out, "no budget is declared for this month")
	}
	t := a.table("workspace", "budget", "basis", "currency", "amount", "actual", "remaining", "committed", "forecast", "low", "high")
	why := a.table("budget", "before", "volume", "mix", "efficiency", "price", "other", "difference")
	t.main, t.names = true, 2
	alignRight(t, 5, 11)
	alignRight(why, 2, 8)
	for i := range r.Budgets {
		b := &r.Budgets[i]
		money := func(x attribution.Amount) any { return cell{cents(x, b.Currency), x.String()} }
		row := table.Row{clipped(b.Workspace), clipped(b.Budget), string(b.Basis), b.Currency, money(b.Amount), money(b.Actual), money(b.Remaining), money(b.Committed)}
		for _, x := range []*attribution.Amount{b.Forecast, b.Low, b.High} {
			if x == nil {
				row = append(row, "unknown")
			} else {
				row = append(row, money(*x))
			}
		}
		t.AppendRow(row)
		if b.Uncompared != "" {
			continue
		}
		v := &b.Variance
		row = table.Row{clipped(b.Workspace + "/" + b.Budget), money(b.Before)}
		for _, x := range []attribution.Amount{v.Volume, v.Mix, v.Efficiency, v.Price, v.Other, v.Difference} {
			row = append(row, money(x))
		}
		why.AppendRow(row)
	}
	if len(r.Budgets) > 0 {
		t.Render()
		fmt.Fprintln(a.out, "\nactual compared with as many months before")
		why.Render()
	}
	for i := range r.Budgets {
		b := &r.Budgets[i]
		name := clipped(b.Workspace + "/" + b.Budget)
		for _, m := range b.LeftOut {
			fmt.Fprintf(a.out, "%s: %s is not whole in its period, and is not counted\n", name, app.MonthName(m))
		}
		if !b.Posted.IsZero() {
			fmt.Fprintf(a.out, "%s: %s %s of it is posted about earlier closed months\n", name, cents(b.Posted, b.Currency), b.Currency)
		}
		for _, n := range b.NotCounted {
			fmt.Fprintf(a.out, "%s: %s %s is not counted: it cannot be translated to %s\n", name, cents(n.Amount, n.Currency), n.Currency, b.Currency)
		}
		if b.Uncompared != "" {
			fmt.Fprintf(a.out, "%s is not compared with the months before: %s\n", name, b.Uncompared)
		}
		if b.Problem != "" {
			fmt.Fprintf(a.out, "%s: %s\n", name, b.Problem)
		}
		if b.Absent != "" {
			fmt.Fprintf(a.out, "no forecast for %s: %s\n", name, b.Absent)
		}
	}
	fmt.Fprintf(a.out, "\nposition: %s\n", a.position(r.Position))
	a.reportEnds(r.Completeness)
}
