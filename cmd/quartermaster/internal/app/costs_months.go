package app

import (
	"context"
	"errors"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// CostsOfMonths allocates several billing months to those who used what was billed. Closed and kept months are read row
// by row; others are divided, one after the other.
func (c *Caller) CostsOfMonths(ctx context.Context, at At, q costs.MonthsQuery) (r *costs.MonthsReport, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		if err := (narrowed{workspace: q.Under}).empty(v); err != nil {
			return err
		}
		if r, err = c.costsOfMonths(ctx, v, q); err == nil && len(r.Groups) == 0 {
			err = charged(v, q.Workspace)
		}
		return err
	})
	return r, err
}

// costsOfMonths is CostsOfMonths on rows. The report is cached: callers MUST NOT modify it.
func (c *Caller) costsOfMonths(ctx context.Context, v projections.View, q costs.MonthsQuery) (*costs.MonthsReport, error) {
	q, err := q.Resolve(v)
	if err != nil {
		return nil, err
	}
	return kept(c, v, "costs of months", q, func() (*costs.MonthsReport, error) { return c.monthsOf(ctx, v, q, c.division) })
}

// monthsOf is costsOfMonths of divisions that divide returns.
func (c *Caller) monthsOf(ctx context.Context, v projections.View, q costs.MonthsQuery, divide dividing) (*costs.MonthsReport, error) {
	m, err := costs.NewMonths(q)
	if err != nil {
		return nil, &InvalidError{Field: "query", Err: err}
	}
	for _, month := range m.Needed() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.addMonth(ctx, v, m, month, q.Currency, divide); err != nil {
			return nil, fmt.Errorf("costs of %s: %w", MonthName(month), err)
		}
	}
	return m.Report(v)
}

func (c *Caller) addMonth(ctx context.Context, v projections.View, m *costs.Months, month domain.Interval, currency string, divide dividing) error {
	rates, untranslated := ratesFor(v, month, currency)
	if untranslated != nil && !errors.Is(untranslated, costs.ErrNoBooksCurrency) {
		return untranslated
	}
	d, err := divide(ctx, v, month)
	if err != nil {
		return err
	}
	if untranslated != nil && (d == nil || d.Allocations > 0) { // a month without cost needs no rates
		return untranslated
	}
	if d == nil && rates == nil {
		return m.Divide(v, month)
	}
	if d == nil { // it is too large for memory
		if d, err = c.app.conn.presentDivision(ctx, v, month); err != nil {
			return err
		}
	}
	return m.Add(d.In(rates))
}
