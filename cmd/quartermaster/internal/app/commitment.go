package app

import (
	"context"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
)

// CommitmentDecision is a renewal or an end of a commitment, with its terms before and after.
type CommitmentDecision struct {
	Workspace  string                    `json:"workspace"`
	Commitment string                    `json:"commitment"`
	Before     []planning.CommitmentTerm `json:"before"` // the remaining terms
	After      []planning.CommitmentTerm `json:"after"`
	Commits    []domain.Money            `json:"commits"`  // amounts over the new term
	Released   []domain.Money            `json:"released"` // hourly payments that are no longer due
	Reason     string                    `json:"reason,omitempty"`
	At         domain.Instant            `json:"at,omitempty"`       // when it was decided
	Operator   string                    `json:"operator,omitempty"` // who signed it
	Decided    bool                      `json:"decided"`            // false: a dry run
}

// Renewal is the next term of a commitment. Zero fields keep the value of its last term.
type Renewal struct {
	From, To domain.Instant // From 0: when the commitment ends
	Units    uint32
	Upfront  *domain.Money // total
	Hourly   *domain.Money // per unit
	NoticeBy domain.Instant
}

// RenewCommitment drafts a renewal of a commitment, from within or at the end of its last term.
func (c *Caller) RenewCommitment(ctx context.Context, name string, r Renewal) (*CommitmentDecision, Draft, error) {
	return c.decideCommitment(ctx, "commitment-renew", name, func(e *planning.CommitmentEntry, ans *CommitmentDecision) (domain.Event, error) {
		last := e.Terms[len(e.Terms)-1]
		ev := &domain.CommitmentRenewed{
			Commitment: name, Term: domain.Interval{From: r.From, To: r.To}, Units: r.Units, Hourly: last.Hourly,
			Upfront: domain.Money{Currency: last.Upfront.Currency}, NoticeBy: r.NoticeBy,
		}
		if ev.Term.From == 0 {
			ev.Term.From = e.End()
		}
		if ev.Units == 0 {
			ev.Units = last.Units
		}
		if r.Hourly != nil {
			ev.Hourly = *r.Hourly
			ev.Upfront.Currency = r.Hourly.Currency
		}
		switch {
		case r.Upfront != nil:
			ev.Upfront = *r.Upfront
		case last.Upfront.Amount.Sign() > 0:
			return nil, invalid("upfront", "%s was paid upfront for the last term; give the upfront payment of the next term, which may be 0", last.Upfront)
		}
		switch {
		case ev.Term.To <= e.End() && r.From == 0:
			return nil, &ConflictError{Err: fmt.Errorf("commitment %q runs until %s already", name, e.End())}
		case ev.Term.Empty():
			return nil, invalid("until", "%s is not after the start of the term, %s", ev.Term.To, ev.Term.From)
		case ev.Term.From > e.End():
			return nil, invalid("from", "%s is after the end of the commitment, %s: declare a new commitment with \"quartermaster apply\"", ev.Term.From, e.End())
		case ev.Term.From <= last.Term.From:
			return nil, invalid("from", "%s is not after the start of the last term, %s, which would be undone", ev.Term.From, last.Term.From)
		}
		ans.After = cutTerms(e.Terms, ev.Term.From)
		ans.After = append(ans.After, planning.CommitmentTerm{
			Term: ev.Term, Units: ev.Units, Upfront: ev.Upfront, Hourly: ev.Hourly, NoticeBy: ev.NoticeBy, Renewed: true,
		})
		ans.Commits = append(ans.Commits, registry.Committed(ev)...)
		return ev, nil
	})
}

// EndCommitment drafts the end of a commitment at a time; 0 is now.
func (c *Caller) EndCommitment(ctx context.Context, name string, at domain.Instant, reason string) (*CommitmentDecision, Draft, error) {
	if at == 0 {
		at = Now()
	}
	return c.decideCommitment(ctx, "commitment-end", name, func(e *planning.CommitmentEntry, ans *CommitmentDecision) (domain.Event, error) {
		switch {
		case at >= e.End():
			return nil, &ConflictError{Err: fmt.Errorf("commitment %q ends at %s already", name, e.End())}
		case len(e.Terms) > 1 && at < e.Terms[len(e.Terms)-1].Term.From:
			// Events take effect in the order of their effective times, so the later renewal
			// would resume the commitment after its end.
			return nil, &ConflictError{Err: fmt.Errorf("commitment %q is renewed from %s: it can end then or later", name, e.Terms[len(e.Terms)-1].Term.From)}
		case at < e.Terms[0].Term.From && Now() >= e.Terms[0].Term.From:
			return nil, invalid("at", "%s is before the start of the current term, %s", at, e.Terms[0].Term.From)
		}
		ans.After, ans.Reason = cutTerms(e.Terms, at), reason
		return &domain.CommitmentEnded{Commitment: name, At: at, Reason: reason}, nil
	})
}

// cutTerms returns the remaining terms when they end at a time.
func cutTerms(terms []planning.CommitmentTerm, at domain.Instant) []planning.CommitmentTerm {
	out := []planning.CommitmentTerm{}
	for _, t := range terms {
		if t.Term.From < at {
			t.Term.To = min(t.Term.To, at)
			out = append(out, t)
		}
	}
	return out
}

// decideCommitment drafts an event about a commitment that has not ended.
func (c *Caller) decideCommitment(ctx context.Context, use, name string, event func(*planning.CommitmentEntry, *CommitmentDecision) (domain.Event, error)) (ans *CommitmentDecision, draft Draft, err error) {
	ans = &CommitmentDecision{Commitment: name, Commits: []domain.Money{}, Released: []domain.Money{}}
	draft.Use = use
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		held, err := planning.CommitmentsHeld(v, auth, Now())
		if err != nil {
			return err
		}
		var names []string
		for i := range held {
			names = append(names, held[i].Commitment)
		}
		slices.Sort(names)
		if err := oneOf("commitment", name, names); err != nil {
			return err
		}
		e := &held[slices.IndexFunc(held, func(e planning.CommitmentEntry) bool { return e.Commitment == name })]
		ans.Workspace, ans.Before = e.Workspace, e.Terms
		ev, err := event(e, ans)
		if err != nil {
			return err
		}
		// Hourly payments of the previous terms that are no longer due.
		for _, t := range e.Terms {
			gone := t.Term
			for _, kept := range ans.After {
				if kept.Term.From == t.Term.From {
					gone.From = kept.Term.To
				}
			}
			if !gone.Empty() {
				ans.Released = append(ans.Released, registry.Committed(&domain.CommitmentRenewed{Term: gone, Units: t.Units, Hourly: t.Hourly})...)
			}
		}
		draft.Events = []domain.Envelope{{Time: Now(), Subject: name, Workspace: e.Workspace, Event: ev}}
		return nil
	})
	return ans, draft, err
}
