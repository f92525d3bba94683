package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// Costs allocates a billing month to those who used what was billed.
func (c *Caller) Costs(ctx context.Context, at At, q costs.Query) (r *costs.Report, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		if err := (narrowed{workspace: q.Under}).empty(v); err != nil {
			return err
		}
		if r, err = c.costs(ctx, v, q); err != nil {
			return err
		}
		if r.Books != nil {
			posted, _, err := h.postedWithin(ctx, v, q.Month)
			if err != nil {
				return err
			}
			copied := *r // the report is cached
			r, copied.Posted = &copied, costs.SumPosted(posted, q.Workspace)
		}
		if len(r.Groups) == 0 && len(r.Posted) == 0 {
			return charged(v, q.Workspace)
		}
		return nil
	})
	return r, err
}

// postedWithin returns what a closed or the open month has about earlier closed ones, as far as it is about what is
// seen, and the closes.
func (h *Conn) postedWithin(ctx context.Context, v projections.View, month domain.Interval) ([]costs.Posting, []registry.Close, error) {
	whole := access.Beneath(v)
	closes, err := closesOf(whole)
	if err != nil {
		return nil, nil, err
	}
	posted, err := h.postingsOf(ctx, whole, closes, month, h.presentDivision)
	if lens, is := access.Of(v); is {
		posted = slices.DeleteFunc(slices.Clone(posted), func(p costs.Posting) bool { return !lens.Scope().Sees(p.Workspace, p.Cluster) })
		for i := range posted {
			p := &posted[i]
			p.Allocation, p.Line, p.Invoice, p.Causes, p.Events = "", "", "", []string{}, []string{}
		}
	}
	return posted, closes, err
}

// notesWithin returns what the postings of a month add to the statements of workspaces that are seen, and rounds over
// all of them.
func (h *Conn) notesWithin(ctx context.Context, v projections.View, month domain.Interval) (map[costs.NoteOf]attribution.Minor, error) {
	posted, _, err := h.postedWithin(ctx, access.Beneath(v), month)
	if err != nil {
		return nil, err
	}
	notes, err := costs.Notes(posted)
	if lens, is := access.Of(v); is {
		maps.DeleteFunc(notes, func(of costs.NoteOf, _ attribution.Minor) bool { return !lens.Scope().Sees(of.Workspace, "") })
	}
	return notes, err
}

// costs is Costs on rows. The report is cached: callers MUST NOT modify it.
func (c *Caller) costs(ctx context.Context, v projections.View, q costs.Query) (*costs.Report, error) {
	q, err := q.Resolve(v)
	if err != nil {
		return nil, err
	}
	return kept(c, v, "costs", q, func() (*costs.Report, error) {
		rates, err := ratesFor(v, q.Month, q.Currency)
		if err != nil {
			return nil, err
		}
		d, err := c.division(ctx, v, q.Month)
		if err != nil {
			return nil, err
		}
		if d == nil && rates == nil {
			return costs.NewReport(v, q)
		}
		if d == nil { // it is too large for memory
			if d, err = c.app.conn.presentDivision(ctx, v, q.Month); err != nil {
				return nil, err
			}
		}
		return d.In(rates).Report(q)
	})
}

// CostsView is Costs by workspace, with a view in which the cost of pools is passed on.
func (c *Caller) CostsView(
	ctx context.Context, at At, month domain.Interval, currency string, view costs.View,
) (out *costs.Report, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		r, err := c.costs(ctx, v, costs.Query{Month: month, By: []costs.Dimension{costs.ByWorkspace}, Currency: currency})
		if err != nil {
			return err
		}
		copied := *r // the report is cached
		out = &copied
		if view != costs.ViewDirect {
			out.Loaded, err = loaded(r, view)
		}
		return err
	})
	return out, err
}

// loaded returns a view of a report of all workspaces.
func loaded(r *costs.Report, view costs.View) (*costs.Loaded, error) {
	l, err := r.Load(view)
	if errors.Is(err, costs.ErrNoPools) {
		return nil, &ConflictError{Err: fmt.Errorf(
			"%s has no %s view: %w; declare some with \"quartermaster apply\", before the month is closed", MonthName(r.Month), view, err)}
	}
	return l, err
}

// FX returns a month in the currency of the books.
func (c *Caller) FX(ctx context.Context, at At, month domain.Interval) (out *costs.FXMonth, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		rates, err := ratesOf(v, month)
		if err != nil {
			return noBooksCurrency(month, err)
		}
		closing, err := costs.ReadRates(v, month)
		if err != nil && !errors.Is(err, costs.ErrNoBooksCurrency) {
			return err
		}
		d, err := h.whole(ctx, v, month, c.division)
		if err == nil {
			out, err = d.FX(rates, closing)
		}
		return err
	})
	return out, err
}

func noBooksCurrency(month domain.Interval, err error) error {
	if errors.Is(err, costs.ErrNoBooksCurrency) {
		return &ConflictError{Err: fmt.Errorf("%s cannot be translated: %w; declare one with \"quartermaster apply\", before the month is closed", MonthName(month), err)}
	}
	return err
}

// ratesFor returns the rates that translate a month to a currency, which must be that of the books, or
// [costs.BooksCurrencies]: those that the month was closed with, else those of now. It returns nil for the currencies that
// were billed.
func ratesFor(v projections.View, month domain.Interval, currency string) (*costs.Rates, error) {
	if currency == "" {
		return nil, nil
	}
	if _, is := access.Of(v); is {
		return nil, invalid("currency", "the books are of the whole estate, and you see a part of it: leave the currency out")
	}
	rates, err := ratesOf(v, month)
	if err != nil {
		return nil, noBooksCurrency(month, err)
	}
	switch currency {
	case costs.BooksCurrencies:
		return rates, nil
	case rates.Currency:
		return rates.Group(), nil
	}
	return nil, invalid("currency", "the books of %s are kept in %s, not in %q; %q is for each entity its own currency",
		MonthName(month), rates.Currency, currency, costs.BooksCurrencies)
}

// ratesOf returns the rates that translate a month.
func ratesOf(v projections.View, month domain.Interval) (*costs.Rates, error) {
	closes, err := closesOf(v)
	if err != nil {
		return nil, err
	}
	of := closeOf(closes, month)
	if of.Books() == nil || len(of.Proposal().Totals) == 0 { // open, or closed with nothing to translate
		return costs.ReadRates(v, month)
	}
	return costs.FrozenRates(of.Proposal())
}

// division returns the base of all answers about a month's costs. A closed month is answered from the
// allocations that were closed. Another is divided once, and again
// when anything that it was computed from has changed, but not for every event. A sealed month is kept in
// a file, others in memory. It is nil for a month that is too large to cache.
//
// All rows are divided, whoever asks, because who shares a line decides what is charged of it. What is returned is what
// is seen of that.
func (c *Caller) division(ctx context.Context, v projections.View, month domain.Interval) (*costs.Division, error) {
	h, whole := c.app.conn, access.Beneath(v)
	d, err := h.closedDivision(ctx, whole, month)
	if d == nil && err == nil {
		d, err = h.present(ctx, whole, month)
	}
	if _, is := access.Of(v); !is || err != nil {
		return d, err
	}
	return kept(c, v, "division", month, func() (*costs.Division, error) {
		if d == nil { // it is too large for memory
			if d, err = h.presentDivision(ctx, whole, month); err != nil {
				return nil, err
			}
		}
		return d.Within(v)
	})
}

// present is division for rows whose books are open, or as if they were.
func (h *Conn) present(ctx context.Context, v projections.View, month domain.Interval) (*costs.Division, error) {
	a := h.app.cache()
	here := divisionKey(v, month, nil)
	last := func() string { return divisionKey(v, month, a.lastRead(month)) }
	d, err := keptAs(a, here, last, func() (*costs.Division, string, error) {
		d, reads, err := h.divide(ctx, v, month)
		if errors.Is(err, costs.ErrTooLarge) {
			a.divided(month, nil)
			return nil, here, nil
		}
		if err != nil {
			return nil, "", err
		}
		// Another division of the month may replace the last one now. This one has its own key.
		a.divided(month, reads)
		return d, divisionKey(v, month, reads), nil
	})
	if d == nil || err != nil {
		return nil, err
	}
	return d.At(v)
}

// divide returns a division of a month, kept or new, and what it read.
func (h *Conn) divide(ctx context.Context, v projections.View, month domain.Interval) (*costs.Division, *projections.Reads, error) {
	if d, k := h.keptDivision(v, month); d != nil {
		return d, k.Reads, nil
	}
	keeps, err := h.keepsMonth(ctx, v, month)
	if err != nil {
		return nil, nil, err
	}
	if keeps {
		k, err := h.keepDivision(v, month, false)
		if err == nil {
			d, err := openDivision(h.Parts(), month, k.Digest)
			return d, k.Reads, err
		}
		if !unkeepable(err) {
			return nil, nil, err
		}
	}
	d, err := costs.Divide(v, month, mostBytes)
	h.app.cache().dividedOnce()
	if err != nil {
		return nil, nil, err
	}
	return d, d.Reads(), nil
}

// CostsExplained asks what a workspace is charged for in a month, and what changed since the
// month before.
type CostsExplained struct {
	Month     domain.Interval
	Workspace string
	Ledger    costs.Ledger // "": effective
	Largest   int          // allocations to name in each of the deepest steps
}

// ExplainCosts explains what a workspace is charged for in a month, compared with the month
// before. Each month is divided once for each position.
func (c *Caller) ExplainCosts(ctx context.Context, at At, q CostsExplained) (w *costs.Waterfall, err error) {
	if q.Workspace == "" {
		return nil, invalid("workspace", "name the workspace whose costs are to be explained")
	}
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		this, err := c.costs(ctx, v, costs.WaterfallOf(q.Month, q.Workspace, q.Ledger, q.Largest))
		if err != nil {
			return err
		}
		before, err := c.costs(ctx, v, costs.WaterfallOf(projections.BillingMonth(q.Month.From-1), q.Workspace, q.Ledger, 0))
		if err != nil {
			return err
		}
		if !this.Billed() {
			before = nil // a month without bills is not a month that costs nothing
		}
		w, err = costs.NewWaterfall(this, before, costs.WaterfallQuery{Workspace: q.Workspace, Ledger: q.Ledger})
		if err == nil && len(w.Currencies) == 0 && this.Billed() {
			err = charged(v, q.Workspace)
		}
		return err
	})
	return w, err
}

// BillingMonths returns the months that have bills.
func (c *Caller) BillingMonths(ctx context.Context, at At) (months []domain.Interval, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		months, err = costs.BillingMonths(v)
		return err
	})
	return months, err
}

// Allocations calls yield with every allocation of a billing month that passes the filter, until
// yield returns an error. It returns their number.
func (c *Caller) Allocations(ctx context.Context, at At, month domain.Interval, filter costs.AllocationFilter, yield func(*costs.Allocation) error) (n int, err error) {
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		count := func(a *costs.Allocation) error {
			n++
			return yield(a)
		}
		d, err := c.division(ctx, v, month)
		switch {
		case err != nil:
		case d == nil:
			err = costs.EachAllocation(v, month, filter, count)
		default:
			err = d.Each(filter, count)
		}
		if err != nil || n > 0 {
			return err
		}
		if err := charged(v, filter.Workspace); err != nil || filter.Line == "" {
			return err
		}
		return &NotFoundError{What: "line", Name: filter.Line, Err: fmt.Errorf("no allocation of line %q in %s", filter.Line, MonthName(month))}
	})
	return n, err
}

// ExplainAllocation traces one allocation to its line, the machines, the rules and the event that
// recorded it.
func (c *Caller) ExplainAllocation(ctx context.Context, at At, ref attribution.Ref) (x *costs.Explanation, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		if _, is := access.Of(v); is {
			return &DeniedError{Err: errors.New("an allocation is explained by the supplier's line, which needs a right to the whole estate: explain a workspace")}
		}
		x, err = kept(c, v, "allocation", ref, func() (*costs.Explanation, error) {
			closes, err := closesOf(v)
			if err != nil {
				return nil, err
			}
			asked := map[domain.Interval]bool{}
			closed := func(month domain.Interval) (*costs.Explanation, error) {
				if asked[month] {
					return nil, nil
				}
				asked[month] = true
				return h.explainClosed(ctx, v, closes, month, ref)
			}
			x, missing := costs.Explain(v, ref, closed)
			if !errors.Is(missing, costs.ErrNoAllocation) {
				return x, missing
			}
			// What was closed is explained although its line has gone or is divided otherwise since.
			for i := range slices.Backward(closes) {
				if x, err := closed(closes[i].Period); x != nil || err != nil {
					return x, err
				}
			}
			return nil, missing
		})
		if errors.Is(err, costs.ErrNoAllocation) {
			err = &NotFoundError{What: "allocation", Name: ref.String(), Err: err}
		}
		return err
	})
	return x, err
}

// CostsMoved compares a saved answer with what this program computes for the same month at the
// same position.
func (c *Caller) CostsMoved(ctx context.Context, before *costs.Kept) (m *costs.Moves, err error) {
	err = c.read(ctx, At(before.Position), func(_ *Conn, v projections.View) error {
		r, err := c.costs(ctx, v, costs.Query{
			Month: before.Month, Workspace: before.Workspace, By: []costs.Dimension{costs.ByWorkspace, costs.ByComponent},
		})
		if err != nil {
			return err
		}
		m, err = costs.Compare(before, r)
		return err
	})
	return m, err
}

// MonthName names a billing month.
func MonthName(m domain.Interval) string { return m.From.Time().Format("2006-01") }
