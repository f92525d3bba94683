package app

import (
	"context"

	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// UnitCosts returns what a unit of work cost in a month.
func (c *Caller) UnitCosts(ctx context.Context, at At, q costs.UnitQuery) (r *costs.UnitReport, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		r, err = kept(c, v, "unit costs", q, func() (*costs.UnitReport, error) {
			u, err := costs.NewUnitSums(v, q)
			if err != nil {
				return nil, err
			}
			d, err := c.division(ctx, v, q.Month)
			if err != nil {
				return nil, err
			}
			if d == nil { // it is too large for memory
				return u.Divide(v)
			}
			return u.Report(d)
		})
		return err
	})
	return r, err
}
