package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// mostBudgetMonths bounds the months of a budget that are read.
const mostBudgetMonths = 120

// Budgets compares the budgets whose period overlaps a month with what was spent until its end.
func (c *Caller) Budgets(ctx context.Context, at At, month domain.Interval) (r *costs.BudgetReport, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		r, err = c.budgets(ctx, h, v, month)
		return err
	})
	return r, err
}

// budgets returns the budgets of a month from rows.
func (c *Caller) budgets(ctx context.Context, h *Conn, v projections.View, month domain.Interval) (r *costs.BudgetReport, err error) {
	r = &costs.BudgetReport{Position: v.Position().String(), Month: month}
	if r.Completeness, err = registry.CompletenessOf(v, "", "", month, domain.TopicBilling, domain.TopicTelemetry); err != nil {
		return nil, err
	}
	if r.Budgets, err = costs.ReadBudgets(v, month); err != nil {
		return nil, err
	}
	var closes []registry.Close
	read := map[domain.Interval][]costs.Posting{} // into months
	posted := func(months []domain.Interval, currency string) (all []costs.Posting, err error) {
		for _, m := range months {
			if _, known := read[m]; !known {
				if read[m], closes, err = h.postedWithin(ctx, v, m); err != nil {
					return nil, err
				}
			}
			into := read[m]
			if currency != "" && len(into) > 0 {
				rates, err := ratesFor(v, m, currency)
				if err != nil {
					return nil, err
				}
				if into, err = costs.PostingsIn(into, costs.NewPostingRates(rates, earlierRates(closes))); err != nil {
					return nil, err
				}
			}
			all = append(all, into...)
		}
		return all, nil
	}
	for i := range r.Budgets {
		if err := c.useBudget(ctx, v, &r.Budgets[i], month, posted); err != nil {
			return nil, fmt.Errorf("budget %s/%s: %w", r.Budgets[i].Workspace, r.Budgets[i].Budget, err)
		}
	}
	return r, nil
}

// useBudget sets what was spent. posted returns what was posted into months, in a currency, or as it was billed if that is "".
func (c *Caller) useBudget(
	ctx context.Context, v projections.View, b *costs.BudgetUse, month domain.Interval,
	posted func(months []domain.Interval, currency string) ([]costs.Posting, error),
) error {
	months := b.Months(month)
	switch {
	case len(months) == 0:
		b.Problem = "no month of its period is whole: budgets count billing months"
	case len(months) > mostBudgetMonths:
		b.Problem = fmt.Sprintf("it began more than %d months before %s", mostBudgetMonths, MonthName(month))
	}
	if b.Problem != "" {
		b.Absent = "nothing was counted"
		return nil
	}
	before := make([]domain.Interval, len(months))
	for i, m := range months {
		before[i] = costs.MonthsAfter(m, -len(months))
	}
	q := costs.MonthsQuery{
		Months: months, Workspace: b.Workspace, By: []costs.Dimension{costs.ByGPUModel, costs.ByProvider}, Compare: true,
	}
	spent, err := c.costsOfMonths(ctx, v, q)
	if err != nil {
		return err
	}
	now, err := posted(months, "")
	if err != nil {
		return err
	}
	then, err := posted(before, "")
	if err != nil {
		return err
	}
	foreign := slices.ContainsFunc(spent.Groups, func(g costs.MonthsGroup) bool { return g.Currency != b.Currency }) ||
		slices.ContainsFunc(slices.Concat(now, then), func(p costs.Posting) bool { return p.Currency != b.Currency })
	if foreign {
		q.Currency = b.Currency
		in, err := c.costsOfMonths(ctx, v, q)
		if cannotTranslate(err) {
			b.Uncompared = err.Error()
			q.Compare = false
			in, err = c.costsOfMonths(ctx, v, q)
		}
		switch {
		case cannotTranslate(err):
			b.Uncompared, q.Currency = "", ""
		case err != nil:
			return err
		default:
			spent, b.Translated = in, true
			for _, p := range []struct {
				all *[]costs.Posting
				of  []domain.Interval
			}{{&now, months}, {&then, before}} {
				switch in, err := posted(p.of, q.Currency); {
				case err == nil:
					*p.all = in
				case !cannotTranslate(err): // else those in other currencies are listed
					return err
				}
			}
		}
	}
	b.Spent(spent, now, then)
	if err := b.Commit(access.Beneath(v), month); err != nil { // its own share of all
		return err
	}
	if len(b.NotCounted) > 0 {
		b.Absent = "it is charged in other currencies too"
		return nil
	}
	last := months[max(0, len(months)-3):] // a forecast learns from months, not from years
	hours, err := c.costsOfMonths(ctx, v, costs.MonthsQuery{
		Months: last, Workspace: b.Workspace, By: []costs.Dimension{costs.ByHour}, Currency: q.Currency,
	})
	if err != nil {
		return err
	}
	return b.Expect(hours, month)
}

// cannotTranslate reports whether an error says that costs cannot be had in a currency.
func cannotTranslate(err error) bool {
	var rates *costs.RatesError
	var other *InvalidError
	return errors.As(err, &rates) || errors.As(err, &other) && other.Field == "currency" || errors.Is(err, costs.ErrNoBooksCurrency)
}
