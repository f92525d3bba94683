package app

import (
	"context"
	"encoding/hex"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// CostsJournal is the journal of a closed month, for a general ledger.
type CostsJournal struct {
	*costs.Journal
	Position string             `json:"position"`
	Books    *costs.ClosedBooks `json:"books"`
	Layout   string             `json:"layout"` // name@version
	File     string             `json:"file"`   // empty: none was written
}

// Journal returns the journal of a closed month: of one entity, or if that is "" of all.
func (c *Caller) Journal(ctx context.Context, at At, month domain.Interval, entity string) (out *CostsJournal, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		closes, err := closesOf(v)
		if err != nil {
			return err
		}
		this := closeOf(closes, month)
		if this.Books() == nil {
			return &ConflictError{Err: fmt.Errorf("the books of %s are open: only a closed month has a journal", MonthName(month))}
		}
		in := &costs.JournalInput{Close: hex.EncodeToString(this.Books().Digest)}
		if in.Division, err = h.closedDivision(ctx, v, month); err != nil {
			return err
		}
		if in.Posted, err = h.postedInto(ctx, closes, this); err != nil {
			return err
		}
		if in.Chart, err = costs.ReadChart(v, month); err != nil {
			return &ConflictError{Err: err}
		}
		in.Statement = func(text, workspace string) (string, error) {
			m, err := projections.ParseMonth(text)
			return statementNumber(m, workspace, costs.BooksOf(closes, m)), err
		}
		j, err := costs.NewJournal(in)
		if err != nil {
			return &ConflictError{Err: fmt.Errorf("the journal of %s: %w", MonthName(month), err)}
		}
		if err := j.Only(entity); err != nil {
			return invalid("entity", "%w", err)
		}
		out = &CostsJournal{Journal: j, Position: v.Position().String(), Books: in.Division.Books()}
		return nil
	})
	return out, err
}
