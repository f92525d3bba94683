package app

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// CostsJournal is the journal of a closed month, for a general ledger.
type CostsJournal struct {
	*costs.Journal
	Position string             `json:"position"`
	Books    *costs.ClosedBooks `json:"books"`
	Layout   string             `json:"layout"` // name@version
	File     string             `json:"file"`   // empty: none was written
}

// Journal returns the journal of a closed month: of one entity, or if that is "" of all. It is in the currencies that were
// billed, or with [costs.BooksCurrencies] in the currency of the books of each entity.
func (c *Caller) Journal(ctx context.Context, at At, month domain.Interval, entity, currency string) (out *CostsJournal, err error) {
	if currency != "" && currency != costs.BooksCurrencies {
		return nil, invalid("currency", "%q: a journal is in the currencies that were billed, or in that of the \"books\" of each entity", currency)
	}
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		closes, err := closesOf(v)
		if err != nil {
			return err
		}
		this := closeOf(closes, month)
		if this.Books() == nil {
			return &ConflictError{Err: fmt.Errorf("the books of %s are open: only a closed month has a journal", MonthName(month))}
		}
		j, err := h.journal(ctx, v, closes, this, currency == costs.BooksCurrencies)
		if err != nil {
			return err
		}
		if err := j.Only(entity); err != nil {
			return invalid("entity", "%w", err)
		}
		out = &CostsJournal{Journal: j, Position: v.Position().String(), Books: costs.BooksOf(closes, month)}
		return nil
	})
	return out, err
}

// journal makes the journal of a closed month. What was accrued in closed months before is taken back in the order of
// time, so their journals are made as well, from the first month with an accrual on.
func (h *Conn) journal(ctx context.Context, v projections.View, closes []registry.Close, of *registry.Close, books bool) (*costs.Journal, error) {
	first, accrued, err := costs.FirstAccrual(v)
	if err != nil {
		return nil, err
	}
	var inputs []func() (*costs.JournalInput, error)
	for i := range closes {
		c := &closes[i]
		before := accrued && c.Period.From >= first.From && c.Period.From < of.Period.From
		if before && c.Books() != nil || c.Period == of.Period {
			inputs = append(inputs, func() (*costs.JournalInput, error) { return h.journalInput(ctx, v, closes, c, books) })
		}
	}
	j, err := costs.JournalChain(inputs)
	if errors.Is(err, costs.ErrNoBooksCurrency) {
		return nil, &ConflictError{Err: fmt.Errorf("the journal of %s: a month was closed without a currency of the books: make it in the currencies that were billed", MonthName(of.Period))}
	}
	if err != nil {
		return nil, &ConflictError{Err: fmt.Errorf("the journal of %s: %w", MonthName(of.Period), err)}
	}
	return j, nil
}

// journalInput returns what the journal of a closed month is made of.
func (h *Conn) journalInput(ctx context.Context, v projections.View, closes []registry.Close, of *registry.Close, books bool) (*costs.JournalInput, error) {
	in := &costs.JournalInput{Close: hex.EncodeToString(of.Books().Digest)}
	var err error
	if in.Division, err = h.closedDivision(ctx, v, of.Period); err != nil {
		return nil, err
	}
	if in.Posted, err = h.postedInto(ctx, closes, of); err != nil {
		return nil, err
	}
	if in.Chart, err = costs.ReadChart(v, of.Period); err != nil {
		return nil, err
	}
	if books {
		if in.Rates, err = costs.FrozenRates(of.Proposal()); err != nil {
			return nil, err
		}
		in.Earlier = earlierRates(closes)
	}
	in.Statement = func(text, workspace string) (string, error) {
		m, err := projections.ParseMonth(text)
		return statementNumber(m, workspace, costs.BooksOf(closes, m)), err
	}
	return in, nil
}

// earlierRates returns the rates that a month was closed with, nil for none.
func earlierRates(closes []registry.Close) func(month string) (*costs.Rates, error) {
	return func(text string) (*costs.Rates, error) {
		month, err := projections.ParseMonth(text)
		if err != nil {
			return nil, err
		}
		of := closeOf(closes, month)
		if of.Books() == nil {
			return nil, nil
		}
		r, err := costs.FrozenRates(of.Proposal())
		if errors.Is(err, costs.ErrNoBooksCurrency) {
			return nil, nil
		}
		return r, err
	}
}
