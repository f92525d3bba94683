package app

import (
	"context"
	"errors"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// AccrualAnswer is an accrual, and where it was written.
type AccrualAnswer struct {
	*costs.AccrualBill
	Files *BillFiles `json:"files,omitempty"`
}

// Accrue estimates what an account is billed for a month whose invoice has not come. If dir is not empty, it also
// writes the accrual there as FOCUS 1.4, ready to be imported.
func (c *Caller) Accrue(ctx context.Context, at At, q costs.AccrualQuery, dir string) (*AccrualAnswer, error) {
	ans := &AccrualAnswer{}
	err := c.read(ctx, at, func(_ *Conn, v projections.View) (err error) {
		ans.AccrualBill, err = costs.NewAccrualBill(v, q)
		return err
	})
	if none := (*costs.AccrualError)(nil); errors.As(err, &none) {
		err = &ConflictError{Err: none}
	}
	if err != nil || dir == "" {
		return ans, err
	}
	name := "accrual-" + MonthName(q.Month) + "-" + fileName(q.Issuer+"-"+q.Account)
	ans.Files, err = writeBill(dir, name, costs.AccrualColumns(), ans.Lines(), ans.Received())
	return ans, err
}

// fileName returns a text with everything but letters and digits of ASCII replaced.
func fileName(s string) string {
	b := []byte(s)
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			b[i] = '-'
		}
	}
	return string(b)
}

// Accruals compares the accruals of a month with what was billed instead.
func (c *Caller) Accruals(ctx context.Context, at At, month domain.Interval) (b *costs.AccrualBook, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		b, err = costs.NewAccrualBook(v, month)
		return err
	})
	return b, err
}
