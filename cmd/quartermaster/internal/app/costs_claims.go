package app

import (
	"context"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// Claims returns the failed machine hours of a month that suppliers were paid for, against the credits that they gave.
// With maintenance, hours in maintenance are claimed too.
func (c *Caller) Claims(ctx context.Context, at At, month domain.Interval, maintenance bool) (out *costs.Claims, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		d, err := h.whole(ctx, v, month, c.division)
		if err == nil {
			out, err = costs.NewClaims(v, d, maintenance)
		}
		return err
	})
	return out, err
}
