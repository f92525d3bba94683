package app

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"quartermaster/adapters/postgres"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
)

// LoadBooks loads into the database the closed months that SQL does not show yet, and returns their names. It removes
// those that are not closed under these digests. What it loads was kept when the month was closed, so doing it again
// changes nothing. Without a database it does nothing, and neither for a caller who sees a part: a part of a month is not the
// month.
func (c *Caller) LoadBooks(ctx context.Context) (loaded []string, err error) {
	loaded = []string{}
	if c.app.Config == nil || !c.app.scope().IsWhole() {
		return loaded, nil
	}
	err = c.read(ctx, "", func(h *Conn, v projections.View) error {
		if h.DB == nil {
			return nil
		}
		closes, err := closesOf(v)
		if err != nil {
			return err
		}
		var all []postgres.Books
		for i := range closes {
			if b := closes[i].Books(); b != nil {
				all = append(all, postgres.Books{Month: b.Period, Allocations: b.Digest, Postings: b.Postings})
			}
		}
		missing, err := h.DB.BooksMissing(ctx, all)
		if err != nil {
			return err
		}
		bar := h.app.track(Work{Name: "load", Total: int64(len(missing)), Unit: "months", Slow: true})
		defer bar.Stop()
		for i, of := range missing {
			content, err := c.booksContent(ctx, h, v, of.Month)
			if err != nil {
				return err
			}
			if err := h.DB.PutBooks(ctx, of, content); err != nil {
				return err
			}
			loaded = append(loaded, MonthName(of.Month))
			bar.Set(int64(i + 1))
		}
		return nil
	})
	return loaded, err
}

// booksContent is what SQL shows of a closed month.
func (c *Caller) booksContent(ctx context.Context, h *Conn, v projections.View, month domain.Interval) (*postgres.BooksContent, error) {
	closes, err := closesOf(v)
	if err != nil {
		return nil, err
	}
	d, err := h.closedDivision(ctx, v, month)
	if err != nil {
		return nil, err
	}
	posted, err := h.postedInto(ctx, closes, closeOf(closes, month))
	if err != nil {
		return nil, err
	}
	statements, err := c.costStatements(ctx, h, v, month, "")
	if err != nil {
		return nil, err
	}
	content := &postgres.BooksContent{Rows: func(yield func(domain.Interval, []string) error) error {
		if _, err := d.Export(costs.AllocationFilter{}, nil, func(row []string) error { return yield(month, row) }); err != nil {
			return err
		}
		n := 0 // every posting is a row
		_, err := costs.ExportPostings(posted, costs.AllocationFilter{}, nil, func(row []string) error {
			about, err := projections.ParseMonth(posted[n].Period)
			if err != nil {
				return fmt.Errorf("a posting about %q: %w", posted[n].Period, err)
			}
			n++
			return yield(about, row)
		})
		return err
	}, Units: func(yield func(domain.Interval, string, []string) error) error {
		if err := d.Units(func(row []string) error { return yield(month, "", row) }); err != nil {
			return err
		}
		for i := range posted {
			about, err := projections.ParseMonth(posted[i].Period)
			if err != nil {
				return fmt.Errorf("a posting about %q: %w", posted[i].Period, err)
			}
			if err := costs.PostedUnits(&posted[i], func(row []string) error { return yield(about, string(posted[i].Type), row) }); err != nil {
				return err
			}
		}
		return nil
	}}
	for i := range statements {
		if err := statementRows(content, &statements[i]); err != nil {
			return nil, err
		}
	}
	return content, nil
}

// statementRows adds the rows of a statement.
func statementRows(to *postgres.BooksContent, s *CostStatement) error {
	for i := range s.Components {
		g := &s.Components[i]
		row := postgres.StatementRow{
			Workspace: s.Workspace, Number: s.Number, About: s.Month, Component: g.Key[costs.ByComponent], Currency: g.Currency,
			Billed: g.Billed.String(), Effective: g.Effective.String(),
			SecondsBought: costs.GPUSeconds(g.Bought), SecondsAllocated: costs.GPUSeconds(g.Allocated), SecondsMeasured: costs.GPUSeconds(g.Measured),
		}
		if g.Useful != nil {
			row.SecondsUseful = costs.GPUSeconds(*g.Useful)
		}
		to.Statements = append(to.Statements, row)
	}
	for i := range s.Corrections {
		k := &s.Corrections[i]
		name, _, _ := strings.Cut(k.Corrects, "/")
		about, err := projections.ParseMonth(name)
		if err != nil {
			return fmt.Errorf("statement %s corrects %q: %w", s.Number, k.Corrects, err)
		}
		to.Statements = append(to.Statements, postgres.StatementRow{
			Workspace: s.Workspace, Number: s.Number, About: about, Corrects: k.Corrects, PostingType: string(k.Type),
			Currency: k.Currency, Billed: k.Billed.String(), Effective: k.Effective.String(), Causes: strings.Join(k.Causes, "; "),
		})
	}
	for _, due := range s.Due {
		row := postgres.StatementDue{Workspace: s.Workspace, Number: s.Number, Currency: due.Currency, Due: due.Amount.String()}
		notes := due.Amount
		for i := range s.Totals {
			if s.Totals[i].Currency == due.Currency {
				row.Charged, notes = s.Totals[i].BilledMinor.String(), due.Amount.Sub(s.Totals[i].BilledMinor)
			}
		}
		row.Charged, row.Notes = cmp.Or(row.Charged, "0"), notes.String()
		to.Due = append(to.Due, row)
	}
	return nil
}
