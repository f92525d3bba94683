package app

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// Restatement says what changed in the division of a month between two positions. Books that were closed between
// them do not matter: it compares divisions.
type Restatement struct {
	Month  domain.Interval `json:"period"`
	From   string          `json:"from"` // position
	To     string          `json:"to"`   // position
	Before []BooksSum      `json:"before"`
	After  []BooksSum      `json:"after"`
	// Causes sum up Changes by type and causes, rounding apart. For each currency they add up to After less
	// Before.
	Causes  []RestatedCause `json:"causes"`
	Changes []costs.Posting `json:"changes"` // by allocation
}

// BooksSum is the sum of a month's allocations in one currency.
type BooksSum struct {
	Currency  string             `json:"currency"`
	Billed    attribution.Amount `json:"billed"`
	Effective attribution.Amount `json:"effective"`
}

// RestatedCause sums up the changes of one type with the same causes.
type RestatedCause struct {
	PostingSum
	Causes []string `json:"causes"`
}

// Restate compares the divisions of a month at two positions, the later of which must cover the earlier.
func (c *Caller) Restate(ctx context.Context, from, to At, month domain.Interval) (*Restatement, error) {
	var before, after *costs.Division
	var changes *costs.Changes
	var since domain.Instant
	var first domain.Position
	divided := func(h *Conn, v projections.View) (*costs.Division, error) {
		d, err := h.present(ctx, v, month)
		if err == nil && d == nil {
			err = costs.ErrTooLarge
		}
		return d, err
	}
	if err := c.read(ctx, from, func(h *Conn, v projections.View) (err error) {
		first = v.Position().Clone()
		if since, err = h.lastAppended(ctx, first); err != nil {
			return err
		}
		before, err = divided(h, v)
		return err
	}); err != nil {
		return nil, err
	}
	out := &Restatement{Month: month, From: first.String(), Causes: []RestatedCause{}}
	if err := c.read(ctx, to, func(h *Conn, v projections.View) (err error) {
		if !v.Position().Covers(first) {
			return invalid("to", "%s is not after %s", v.Position(), first)
		}
		out.To = v.Position().String()
		if changes, err = costs.ReadChanges(v, month, since); err != nil {
			return err
		}
		after, err = divided(h, v)
		return err
	}); err != nil {
		return nil, err
	}
	var err error
	if out.Before, err = booksSums(before); err != nil {
		return nil, err
	}
	if out.After, err = booksSums(after); err != nil {
		return nil, err
	}
	if out.Changes, err = costs.Difference(before, nil, after, domain.Interval{}, changes); err != nil {
		return nil, err
	}
	for i := range out.Changes {
		out.Changes[i].Books = ""
	}
	out.Causes = restatedCauses(out.Changes)
	return out, nil
}

// restatedCauses sums up changes by type, causes and currency, rounding apart.
func restatedCauses(changes []costs.Posting) []RestatedCause {
	type key struct {
		typ              costs.PostingType
		rounding         bool
		currency, causes string
	}
	out, at := []RestatedCause{}, map[key]int{}
	for i := range changes {
		p := &changes[i]
		k := key{p.Type, p.Rounding, p.Currency, strings.Join(p.Causes, "\x00")}
		j, known := at[k]
		if !known {
			j = len(out)
			at[k] = j
			out = append(out, RestatedCause{
				PostingSum{Period: p.Period, Type: p.Type, Rounding: p.Rounding, Currency: p.Currency}, p.Causes,
			})
		}
		s := &out[j]
		s.Postings++
		s.Billed, s.Effective = s.Billed.Add(p.Billed), s.Effective.Add(p.Effective)
	}
	slices.SortStableFunc(out, func(a, b RestatedCause) int {
		return cmp.Or(compareBool(a.Rounding, b.Rounding), strings.Compare(string(a.Type), string(b.Type)),
			strings.Compare(a.Currency, b.Currency), slices.Compare(a.Causes, b.Causes))
	})
	return out
}

func booksSums(d *costs.Division) ([]BooksSum, error) {
	r, err := d.Report(costs.Query{Month: d.Month})
	if err != nil {
		return nil, err
	}
	out := []BooksSum{}
	for i := range r.Totals {
		t := &r.Totals[i]
		out = append(out, BooksSum{t.Currency, t.Billed, t.Effective})
	}
	return out, nil
}

// explainClosed explains an allocation of a closed month from its closed allocations, so that its amounts are those that
// were closed. What divided the line was kept with them; only the usage of its machines is read. Where that is another
// one since, it is read from the rows of the close. It returns nil for an allocation that was not closed: it came later.
func (h *Conn) explainClosed(ctx context.Context, v projections.View, closes []registry.Close, month domain.Interval, ref attribution.Ref) (*costs.Explanation, error) {
	books := costs.BooksOf(closes, month)
	if books == nil {
		return nil, nil
	}
	d, err := h.closedDivision(ctx, v, month)
	if err != nil {
		return nil, err
	}
	closed, has, err := d.ExplainKept(v, ref)
	if err != nil || !has {
		return nil, err
	}
	if closed != nil {
		closed.Position = books.Position
		return closed, nil
	}
	to, err := domain.ParsePosition(books.Position)
	if err != nil {
		return nil, err
	}
	m, _, err := h.rowsAt(ctx, to, nil)
	if err != nil {
		return nil, err
	}
	err = m.View(ctx, func(v projections.View) (err error) {
		if closed, _, err = d.ExplainKept(v, ref); closed != nil || err != nil {
			return err
		}
		h.app.cache().dividedOnce() // the rows do not give what was closed: a division shows what they give
		closed, err = costs.Explain(v, ref, nil)
		return err
	})
	if err != nil || closed.Month != month {
		return nil, err
	}
	closed.Position, closed.Books = books.Position, books
	return closed, nil
}
