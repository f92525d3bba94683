package app

import (
	"context"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// mostBudgetMonths bounds the months of a budget that are read.
const mostBudgetMonths = 36

// Budgets compares the budgets whose period overlaps a month with what was spent until its end.
func (c *Caller) Budgets(ctx context.Context, at At, month domain.Interval) (r *costs.BudgetReport, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		r = &costs.BudgetReport{Position: v.Position().String(), Month: month}
		if r.Completeness, err = registry.CompletenessOf(v, "", "", month, domain.TopicBilling, domain.TopicTelemetry); err != nil {
			return err
		}
		if r.Budgets, err = costs.ReadBudgets(v, month); err != nil {
			return err
		}
		for i := range r.Budgets {
			if err := c.useBudget(ctx, v, &r.Budgets[i], month); err != nil {
				return fmt.Errorf("budget %s/%s: %w", r.Budgets[i].Workspace, r.Budgets[i].Budget, err)
			}
		}
		return nil
	})
	return r, err
}

func (c *Caller) useBudget(ctx context.Context, v projections.View, b *costs.BudgetUse, month domain.Interval) error {
	months := b.Months(month)
	if len(months) > mostBudgetMonths {
		return invalid("period", "it began more than %d months before %s", mostBudgetMonths, MonthName(month))
	}
	spent, err := c.costsOfMonths(ctx, v, costs.MonthsQuery{
		Months: months, Workspace: b.Workspace, By: []costs.Dimension{costs.ByGPUModel, costs.ByProvider}, Compare: true,
	})
	if err != nil {
		return err
	}
	b.Spent(spent)
	if err := b.Commit(v, month); err != nil {
		return err
	}
	last := months[max(0, len(months)-3):] // a forecast learns from months, not from years
	hours, err := c.costsOfMonths(ctx, v, costs.MonthsQuery{Months: last, Workspace: b.Workspace, By: []costs.Dimension{costs.ByHour}})
	if err != nil {
		return err
	}
	return b.Expect(hours, month)
}
