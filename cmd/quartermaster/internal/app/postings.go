package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// Postings are the differences that a period has about earlier closed months.
type Postings struct {
	Position string          `json:"position"`
	Books    domain.Interval `json:"books_period"`
	// Closed: the period is closed, and these are the postings that were closed with it.
	Closed   bool            `json:"closed"`
	Sums     []PostingSum    `json:"sums"`     // by period, type, rounding and currency
	Postings []costs.Posting `json:"postings"` // by period and allocation
}

// PostingSum sums up postings about one month.
type PostingSum struct {
	Period    string             `json:"period"`
	Type      costs.PostingType  `json:"posting_type"`
	Rounding  bool               `json:"rounding,omitempty"`
	Currency  string             `json:"currency"`
	Postings  int                `json:"postings"`
	Billed    attribution.Amount `json:"billed"`
	Effective attribution.Amount `json:"effective"`
}

func sumPostings(all []costs.Posting) []PostingSum {
	out := []PostingSum{}
	for i := range all {
		p := &all[i]
		j := slices.IndexFunc(out, func(s PostingSum) bool {
			return s.Period == p.Period && s.Type == p.Type && s.Rounding == p.Rounding && s.Currency == p.Currency
		})
		if j < 0 {
			j = len(out)
			out = append(out, PostingSum{Period: p.Period, Type: p.Type, Rounding: p.Rounding, Currency: p.Currency})
		}
		s := &out[j]
		s.Postings++
		s.Billed, s.Effective = s.Billed.Add(p.Billed), s.Effective.Add(p.Effective)
	}
	slices.SortFunc(out, func(a, b PostingSum) int {
		return cmp.Or(strings.Compare(a.Period, b.Period), strings.Compare(string(a.Type), string(b.Type)),
			strings.Compare(a.Currency, b.Currency), compareBool(a.Rounding, b.Rounding))
	})
	return out
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// Postings returns what is posted into a month about earlier closed ones: what was closed with the month, else what
// would be closed with it now. The zero month is the open period.
func (c *Caller) Postings(ctx context.Context, at At, books domain.Interval) (out *Postings, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		closes, err := closesOf(v)
		if err != nil {
			return err
		}
		open := openPeriod(closes)
		if books == (domain.Interval{}) {
			books = open
		}
		out = &Postings{Position: v.Position().String(), Books: books, Sums: []PostingSum{}, Postings: []costs.Posting{}}
		out.Closed = closeOf(closes, books).Books() != nil
		if begun := open != (domain.Interval{}); begun && !out.Closed && books != open {
			if first := firstPeriod(closes); books.From < first.From {
				return invalid("month", "%s is before the books begin, with %s", MonthName(books), MonthName(first))
			}
			return invalid("month", "%s is after the open period, %s", MonthName(books), MonthName(open))
		}
		posted, err := h.postingsOf(ctx, v, closes, books, h.presentDivision)
		out.Postings, out.Sums = append(out.Postings, posted...), sumPostings(posted)
		return err
	})
	return out, err
}

// postingsOf returns what a month has about earlier closed ones: what was closed with it; for the open period what
// would be closed with it now, by the divisions that present returns; nothing for any other month.
func (h *Conn) postingsOf(
	ctx context.Context, v projections.View, closes []registry.Close, month domain.Interval, present dividing,
) ([]costs.Posting, error) {
	if of := closeOf(closes, month); of.Books() != nil {
		return h.postedInto(ctx, closes, of)
	}
	if openPeriod(closes) != month {
		return nil, nil
	}
	return h.postingsBy(ctx, v, closes, month, present)
}

// openPeriod returns the month after the last closed one; the zero interval if none is closed.
func openPeriod(closes []registry.Close) domain.Interval {
	to := domain.Instant(0)
	for i := range closes {
		if b := closes[i].Books(); b != nil {
			to = max(to, b.Period.To)
		}
	}
	if to == 0 {
		return domain.Interval{}
	}
	return projections.BillingMonth(to)
}

// firstPeriod returns the first closed month, with which the books begin; the zero interval if none is closed.
func firstPeriod(closes []registry.Close) (first domain.Interval) {
	for i := range closes {
		if b := closes[i].Books(); b != nil && (first.To == 0 || b.Period.From < first.From) {
			first = b.Period
		}
	}
	return first
}

// earlier returns what came about months before one since they were closed; nil if none of them is.
func (h *Conn) earlier(ctx context.Context, v projections.View, closes []registry.Close, month domain.Interval) (*costs.Earlier, error) {
	out := &costs.Earlier{}
	var last *domain.BooksClosed
	for i := range closes {
		b := closes[i].Books()
		if b == nil || b.Period.From >= month.From {
			continue
		}
		now, err := h.presentDivision(ctx, v, b.Period)
		if err != nil {
			return nil, err
		}
		out.Closed(now)
		if last == nil || b.Period.From > last.Period.From {
			last = b
		}
	}
	if last == nil {
		return nil, nil
	}
	at, err := domain.ParsePosition(last.Position)
	if err != nil {
		return nil, err
	}
	known, err := h.statedIn(ctx, at)
	if err != nil {
		return nil, err
	}
	return out, out.BeforeBooks(v, firstPeriod(closes), known)
}

// postingsNow returns the differences between what was closed and posted about each closed month, and its division at
// the position of a view.
func (h *Conn) postingsNow(ctx context.Context, v projections.View, closes []registry.Close, books domain.Interval) ([]costs.Posting, error) {
	return h.postingsBy(ctx, v, closes, books, h.presentDivision)
}

// postingsBy is postingsNow by the divisions that present returns.
func (h *Conn) postingsBy(
	ctx context.Context, v projections.View, closes []registry.Close, books domain.Interval, present dividing,
) ([]costs.Posting, error) {
	var posted []costs.Posting // into closed periods
	for i := range closes {
		if closes[i].Books() == nil || closes[i].Period.From >= books.From {
			continue
		}
		some, err := h.postedInto(ctx, closes, &closes[i])
		if err != nil {
			return nil, err
		}
		posted = append(posted, some...)
	}
	out := []costs.Posting{}
	for i := range closes {
		b := closes[i].Books()
		if b == nil || b.Period.From >= books.From {
			continue
		}
		closed, err := h.booksDivision(ctx, b.Period, b.Digest, b.Position)
		if err != nil {
			return nil, fmt.Errorf("the closed allocations of %s: %w", MonthName(b.Period), err)
		}
		now, err := present(ctx, v, b.Period)
		if err != nil {
			return nil, err
		}
		before := slices.DeleteFunc(slices.Clone(posted), func(p costs.Posting) bool { return p.Period != MonthName(b.Period) })
		if len(before) == 0 && closed.Same(now) {
			continue // a late change would divide the month into other allocations
		}
		to, err := domain.ParsePosition(b.Position)
		if err != nil {
			return nil, err
		}
		since, err := h.lastAppended(ctx, to)
		if err != nil {
			return nil, err
		}
		changes, err := costs.ReadChanges(v, b.Period, since)
		if err != nil {
			return nil, err
		}
		some, err := costs.Difference(closed, before, now, books, changes)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	return out, nil
}

// presentDivision returns the division of a month at the position of a view, whether its books are closed or not.
func (h *Conn) presentDivision(ctx context.Context, v projections.View, month domain.Interval) (*costs.Division, error) {
	d, err := h.present(ctx, v, month)
	if d != nil || err != nil {
		return d, err
	}
	k, err := h.keepDivision(v, month, false) // it is too large for memory
	if err != nil {
		return nil, err
	}
	return openDivision(h.Parts(), month, k.Digest)
}

// postedInto returns the postings that were closed with a period. Without their file they are computed again from the
// rows of the position that was closed, and must have the same digest.
func (h *Conn) postedInto(ctx context.Context, closes []registry.Close, of *registry.Close) ([]costs.Posting, error) {
	p := of.Proposal()
	if len(p.Postings) == 0 {
		return nil, nil
	}
	want := parts.Digest(p.Postings)
	all, err := h.Parts().Postings(of.Period, want)
	if err == nil {
		return all, nil
	}
	if !errors.Is(err, parts.ErrMissing) {
		h.app.tell("closed postings are not used, and are computed again as of their close: %v", err)
	}
	to, err := domain.ParsePosition(p.Position)
	if err != nil {
		return nil, err
	}
	m, _, err := h.rowsAt(ctx, to, nil)
	if err != nil {
		return nil, err
	}
	err = m.View(ctx, func(v projections.View) error {
		if all, err = h.postingsNow(ctx, v, closes, of.Period); err != nil {
			return err
		}
		digest, err := h.keepPostings(of.Period, all)
		if err == nil && digest != want {
			err = fmt.Errorf("the postings into %s are now %s, and %s was closed: restore %s from a copy",
				MonthName(of.Period), digest, want, h.Parts().PostingsFile(of.Period, want))
		}
		return err
	})
	return all, err
}

// keepPostings keeps the postings into a period for its close.
func (h *Conn) keepPostings(books domain.Interval, all []costs.Posting) (parts.Digest, error) {
	draft, err := h.Parts().NewDraft(books)
	if err != nil {
		return parts.Digest{}, err
	}
	if err := costs.WritePostings(draft, all); err != nil {
		return parts.Digest{}, errors.Join(err, draft.Discard())
	}
	w, err := parts.NewWriter(h.Parts())
	if err != nil {
		return parts.Digest{}, errors.Join(err, draft.Discard())
	}
	digest, err := w.PutPostings(books, draft)
	return digest, errors.Join(err, w.Close())
}
