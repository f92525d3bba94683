package registry

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Books are closed in three decisions, in the order of the log: one operator proposes (ClosePrepared),
// another with another key consents (CloseApproved) and closes (BooksClosed). Nothing can be decided about
// a closed period: there is no way to open it again. Each is judged by who might decide when it was
// appended, so that a later revocation of a key does not open it either.

// Close is what was decided about the books of a period. Void decisions are left out.
type Close struct {
	Entity string
	Period domain.Interval
	// Prepared is the proposal that was approved, else the last one; nil for none.
	Prepared *projections.Version
	// Approved is the consent to it; nil for none.
	Approved *projections.Version
	// Closed is the close; nil while the period is open.
	Closed *projections.Version
}

// Proposal returns the event of Prepared, nil for none.
func (c *Close) Proposal() *domain.ClosePrepared {
	if c == nil || c.Prepared == nil {
		return nil
	}
	return c.Prepared.Event.(*domain.ClosePrepared)
}

// Books returns the event of Closed, nil for none.
func (c *Close) Books() *domain.BooksClosed {
	if c == nil || c.Closed == nil {
		return nil
	}
	return c.Closed.Event.(*domain.BooksClosed)
}

// OneHand says where whoever prepared or approved the close registered the other one's key, and so might have used
// both. It is "" if neither did.
func (c *Close) OneHand(a *Authority) string {
	if c == nil || c.Prepared == nil || c.Approved == nil {
		return ""
	}
	one, other := c.Prepared.Signer, c.Approved.Signer
	for range 2 {
		for _, g := range a.Grants() {
			if bytes.Equal(g.PublicKey, other.Key) && g.From <= other.Time && (g.To == 0 || other.Time < g.To) &&
				g.RegisteredBy == one.Operator && g.Operator != one.Operator {
				return fmt.Sprintf("%s registered the key of %s", one.Operator, g.Operator)
			}
		}
		one, other = other, one
	}
	return ""
}

// Closes returns what was decided about the books of an entity, by period.
func (a *Authority) Closes(view projections.View, entity string) ([]Close, error) {
	var out []Close
	q := projections.Query{Table: projections.TableCloses, Scope: entity}
	err := view.Scan(q, func(k projections.Key, row projections.Row) error {
		if k.Scope != entity { // an empty scope selects all
			return nil
		}
		h := row.(*projections.History)
		var s closing
		for _, v := range decisions(h) {
			s.judge(a, v)
		}
		c := Close{Entity: entity, Closed: s.closed}
		if c.Closed != nil {
			of := s.closed.Event.(*domain.BooksClosed).Prepared
			c.Prepared, c.Approved = s.prepared[of], s.approved[of]
		} else {
			for offset, v := range s.prepared {
				if c.Prepared == nil || offset > c.Prepared.Signer.Offset {
					c.Prepared, c.Approved = v, s.approved[offset]
				}
			}
		}
		if c.Prepared != nil {
			c.Period = c.Proposal().Period
			out = append(out, c)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableCloses, err)
	}
	slices.SortFunc(out, func(x, y Close) int { return cmp.Compare(x.Period.From, y.Period.From) })
	return out, nil
}

// decisions returns the signed versions of a history in the order of the log.
func decisions(h *projections.History) []*projections.Version {
	var all []*projections.Version
	for i := range h.Versions {
		if h.Versions[i].Signer != nil {
			all = append(all, &h.Versions[i])
		}
	}
	slices.SortStableFunc(all, func(v, w *projections.Version) int { return cmp.Compare(v.Signer.Offset, w.Signer.Offset) })
	return all
}

// closing returns why a decision about a close is void, "" if it is valid. v need not be in h.
func (a *Authority) closing(h *projections.History, v *projections.Version) string {
	var s closing
	for _, w := range decisions(h) {
		if w.Signer.Offset >= v.Signer.Offset {
			break
		}
		s.judge(a, w)
	}
	return s.judge(a, v)
}

// closing is the state of the books of a period, after decisions in the order of the log.
type closing struct {
	prepared map[int64]*projections.Version // valid, by offset
	approved map[int64]*projections.Version // by offset of what was prepared
	closed   *projections.Version
}

// judge applies a decision, unless it is void; then it returns why.
func (c *closing) judge(a *Authority, v *projections.Version) string {
	s := v.Signer
	g, reason := a.then(s).grant("", s)
	if reason == "" {
		reason = mayDecide(g, v.Event)
	}
	if reason != "" {
		return reason
	}
	if c.closed != nil {
		return fmt.Sprintf("the books were closed at %s: later changes are posted into the open period", c.closed.Signer.Time)
	}
	switch ev := v.Event.(type) {
	case *domain.ClosePrepared:
		if c.prepared == nil {
			c.prepared, c.approved = map[int64]*projections.Version{}, map[int64]*projections.Version{}
		}
		c.prepared[s.Offset] = v
	case *domain.CloseApproved:
		p := c.prepared[ev.Prepared]
		switch {
		case p == nil || p.Event.(*domain.ClosePrepared).Period != ev.Period:
			return "it approves a close that nobody prepared"
		case !bytes.Equal(p.Event.(*domain.ClosePrepared).Digest, ev.Digest):
			return "it approves other allocations than those that were prepared"
		}
		if reason := another(p.Signer, s); reason != "" {
			return reason
		}
		if c.approved[ev.Prepared] == nil {
			c.approved[ev.Prepared] = v
		}
	case *domain.BooksClosed:
		p := c.prepared[ev.Prepared]
		if p == nil || c.approved[ev.Prepared] == nil {
			return "it closes books that nobody approved"
		}
		if of := p.Event.(*domain.ClosePrepared); of.Period != ev.Period || of.Position != ev.Position || of.Method != ev.Method ||
			!bytes.Equal(of.Digest, ev.Digest) || !bytes.Equal(of.Postings, ev.Postings) {
			return "it closes other books than those that were approved"
		}
		if reason := another(p.Signer, s); reason != "" {
			return reason
		}
		c.closed = v
	}
	return ""
}

// SecondPerson reports whether a decision takes no effect because somebody else has to make it.
func SecondPerson(reason string) bool { return strings.HasSuffix(reason, " must approve it") }

// another returns "" if a signer is another person, with another key, than who prepared a close.
func another(prepared, s *projections.Signer) string {
	switch {
	case prepared.Operator == s.Operator:
		return fmt.Sprintf("operator %q prepared this close: another person must approve it", s.Operator)
	case bytes.Equal(prepared.Key, s.Key):
		return fmt.Sprintf("the key of operator %q prepared this close: another key must approve it", prepared.Operator)
	}
	return ""
}
