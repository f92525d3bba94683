package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"quartermaster/adapters/parts"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/registry"
)

// BooksEntity is the ledger entity whose books are closed: all bills are in one ledger.
const BooksEntity = Platform

// BooksClose is the close of a month: proposed, approved, or in force.
type BooksClose struct {
	Month    domain.Interval `json:"period"`
	State    CloseState      `json:"state"`
	Position string          `json:"position"` // of the rows that the month was divided from
	Methods  costs.Methods   `json:"methods"`
	// Digest is the SHA-256 of the canonical form of the allocations, in hexadecimal.
	Digest      string              `json:"digest"`
	Allocations int                 `json:"allocations"`
	Lines       int                 `json:"lines"`
	Totals      []domain.BooksTotal `json:"totals"`
	// Translated are the totals in the currency of the books, of all entities and then of those that keep their books in
	// another one, and Rates are those that translate the month; empty if the books have no currency.
	Translated []domain.BooksTotal `json:"translated"`
	Rates      []domain.BooksRate  `json:"rates"`
	Checks     []domain.CloseCheck `json:"checks"`
	// Postings is the SHA-256 of what is posted into the month about earlier closed ones; absent if nothing is. Sums
	// sums it up.
	Postings string       `json:"postings,omitempty"`
	Sums     []PostingSum `json:"sums"`
	// SincePrepared sums up lines of the month that came or changed after the close was prepared, by currency, up to when
	// it was closed. They are not in the close. It is absent if there are none.
	SincePrepared []costs.StatedSince `json:"since_prepared,omitempty"`
	// Against is what stands against the close. It is empty once it is proposed.
	Against    []costs.Finding       `json:"against"`
	Exceptions []costs.OpenException `json:"exceptions"`
	Prepared   *ClosePart            `json:"prepared,omitempty"`
	Approved   *ClosePart            `json:"approved,omitempty"`
	Closed     *ClosePart            `json:"closed,omitempty"`
	// Problem says why the allocations or the postings of the close cannot be read. What depends on them is empty.
	Problem string `json:"problem,omitempty"`
	// Separation lists people with several duties that should be of different people.
	Separation []string `json:"separation"`
	// Checkpoint is what was archived and signed right after the close; absent if that was not asked for.
	Checkpoint *Archived `json:"checkpoint,omitempty"`

	posted  []costs.Posting
	problem error // Problem, as it was returned
}

// CloseState says how far a close is.
type CloseState string

// The states.
const (
	CloseOpen     CloseState = "open"     // nothing was decided
	CloseProposed CloseState = "proposed" // by one person
	CloseDone     CloseState = "closed"   // by two
)

// ClosePart is who decided a step of a close, and when.
type ClosePart struct {
	Operator string         `json:"operator"`
	At       domain.Instant `json:"at"`
}

func closePart(v *projections.Version) *ClosePart {
	if v == nil {
		return nil
	}
	return &ClosePart{v.Signer.Operator, v.Signer.Time}
}

// closesOf returns the valid decisions about the books at a view's position.
func closesOf(v projections.View) ([]registry.Close, error) {
	a, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	return a.Closes(v, BooksEntity)
}

// closeOf returns what was decided about a month; nil if nothing was.
func closeOf(closes []registry.Close, month domain.Interval) *registry.Close {
	i := slices.IndexFunc(closes, func(c registry.Close) bool { return c.Period == month })
	if i < 0 {
		return nil
	}
	return &closes[i]
}

// closedDivision returns the allocations of a closed month; nil if its books are open at the view's position.
// It divides nothing, unless the file is lost or damaged: then the month is divided from the rows of the
// position that was closed, and must have the same digest.
func (h *Conn) closedDivision(ctx context.Context, v projections.View, month domain.Interval) (*costs.Division, error) {
	scopes, err := v.Scopes(projections.TableCloses)
	if err != nil || len(scopes) == 0 {
		return nil, err
	}
	closes, err := closesOf(v)
	if err != nil {
		return nil, err
	}
	c := closeOf(closes, month)
	books := c.Books()
	if books == nil {
		return nil, nil
	}
	d, err := h.booksDivision(ctx, month, books.Digest, books.Position)
	if err != nil {
		return nil, fmt.Errorf("the closed allocations of %s: %w", MonthName(month), err)
	}
	if d, err = d.At(v); err != nil {
		return nil, err
	}
	return d.InBooks(costs.BooksOf(closes, month)), nil
}

// booksDivision returns the division with a digest that a close names.
func (h *Conn) booksDivision(ctx context.Context, month domain.Interval, digest []byte, position string) (*costs.Division, error) {
	want := parts.Digest(digest)
	d, err := keptAs(h.app.cache(), "books "+want.String(), func() string { return "books " + want.String() }, func() (*costs.Division, string, error) {
		key := "books " + want.String()
		dir := h.Parts()
		d, err := openDivision(dir, month, want)
		if err == nil {
			return d, key, nil
		}
		if !errors.Is(err, parts.ErrMissing) {
			h.app.tell("closed allocations are not used, and %s is divided again as of its close: %v", MonthName(month), err)
		}
		d, err = h.divideAsClosed(ctx, month, want, position)
		return d, key, err
	})
	return d, err
}

// divideAsClosed divides a month from the rows of the position that was closed, and keeps it again.
func (h *Conn) divideAsClosed(ctx context.Context, month domain.Interval, want parts.Digest, position string) (*costs.Division, error) {
	to, err := domain.ParsePosition(position)
	if err != nil {
		return nil, err
	}
	m, _, err := h.rowsAt(ctx, to, nil)
	if err != nil {
		return nil, err
	}
	var d *costs.Division
	err = m.View(ctx, func(v projections.View) error {
		k, err := h.keepDivision(v, month, true)
		if err != nil {
			return err
		}
		if k.Digest != want {
			return fmt.Errorf("the month now divides to %s, and %s was closed: restore %s from a copy, or divide with the methods of then",
				k.Digest, want, h.Parts().AllocationsFile(month, want))
		}
		d, err = openDivision(h.Parts(), month, want)
		return err
	})
	return d, err
}

// Closing returns the close of a month as far as it is. For an open month that nobody proposed to close, it says
// what stands against it.
func (c *Caller) Closing(ctx context.Context, at At, month domain.Interval) (out *BooksClose, err error) {
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		closes, err := closesOf(v)
		if err != nil {
			return err
		}
		if of := closeOf(closes, month); of != nil {
			if out, err = h.closing(ctx, v, of); err == nil {
				out.SincePrepared, err = h.sincePrepared(ctx, v, of)
			}
			return err
		}
		out, err = c.prepareClose(ctx, h, v, month, nil, true)
		return err
	})
	return out, err
}

// sincePrepared sums up what was stated about a month after the position that its proposal divides, until its close or
// until now. When that was signed does not matter: a large month is divided for minutes, and lines may come meanwhile.
func (h *Conn) sincePrepared(ctx context.Context, v projections.View, of *registry.Close) ([]costs.StatedSince, error) {
	at, err := domain.ParsePosition(of.Proposal().Position)
	if err != nil || !v.Position().Covers(at) { // of a position that the log does not have, closing tells
		return nil, err
	}
	divided, err := h.statedIn(ctx, at)
	if err != nil {
		return nil, err
	}
	until := forever
	if of.Closed != nil {
		until = of.Closed.Signer.Appended
	}
	return costs.LinesStated(v, of.Period, divided, costs.StatedBy(until))
}

// Closes returns what was decided about the books of each month, oldest first.
func (c *Caller) Closes(ctx context.Context, at At) (out []BooksClose, err error) {
	out = []BooksClose{}
	err = c.read(ctx, at, func(h *Conn, v projections.View) error {
		closes, err := closesOf(v)
		if err != nil {
			return err
		}
		for i := range closes {
			one, err := h.closing(ctx, v, &closes[i])
			if err != nil {
				return err
			}
			out = append(out, *one)
		}
		return nil
	})
	return out, err
}

// closing describes a close that was proposed. A proposal may name allocations that its position does not give: it is
// described with its problem, so that it stops no other close from being shown.
func (h *Conn) closing(ctx context.Context, v projections.View, of *registry.Close) (*BooksClose, error) {
	p := of.Proposal()
	d, problem := h.booksDivision(ctx, of.Period, p.Digest, p.Position)
	if problem != nil {
		d = &costs.Division{Summary: costs.Summary{Methods: costs.Methods{Attribution: p.Method}}}
	}
	out := describeClose(of.Period, d)
	out.State, out.Position, out.Digest = CloseProposed, p.Position, hex.EncodeToString(p.Digest)
	out.Postings = hex.EncodeToString(p.Postings)
	out.Totals, out.Checks = p.Totals, p.Checks
	out.Translated, out.Rates = append(out.Translated, p.Translated...), append(out.Rates, p.Rates...)
	out.Prepared, out.Approved, out.Closed = closePart(of.Prepared), closePart(of.Approved), closePart(of.Closed)
	approver := ""
	if of.Approved != nil {
		approver = of.Approved.Signer.Operator
	}
	if of.Closed != nil {
		out.State = CloseDone
	}
	out.Separation = costs.Separation(&d.Summary, of.Prepared.Signer.Operator, approver)
	authority, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	if one := of.OneHand(authority); one != "" {
		out.Separation = append(out.Separation, one)
	}
	if problem == nil {
		var list *costs.Checklist
		if list, problem = costs.NewChecklist(v, d, nil, true, nil); problem == nil {
			out.Exceptions = list.Exceptions
		}
	}
	if problem == nil && len(p.Postings) > 0 {
		closes, err := closesOf(v)
		if err != nil {
			return nil, err
		}
		var posted []costs.Posting
		posted, problem = h.postedInto(ctx, closes, of)
		out.Sums = sumPostings(posted)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if problem != nil {
		out.Problem, out.problem = problem.Error(), problem
	}
	return out, nil
}

func describeClose(month domain.Interval, d *costs.Division) *BooksClose {
	return &BooksClose{
		Month: month, State: CloseOpen, Methods: d.Methods, Allocations: d.Summary.Allocations, Lines: d.Lines,
		Translated: []domain.BooksTotal{}, Rates: []domain.BooksRate{},
		Sums: []PostingSum{}, Against: []costs.Finding{}, Exceptions: []costs.OpenException{}, Separation: []string{},
	}
}

// PrepareClose drafts the proposal to close a month. accept has the reasons for which findings are accepted, by
// check, and shown the digest of the allocations that were shown, "" if that is not known. It returns a [ConflictError] that
// names everything that stands against the close.
func (c *Caller) PrepareClose(ctx context.Context, month domain.Interval, accept map[string]string, shown string, dryRun bool) (out *BooksClose, draft Draft, err error) {
	for check := range accept {
		if !slices.Contains(costs.CheckNames(), check) {
			return nil, draft, invalid("accept", "%q is not a check: want one of %s", check, strings.Join(costs.CheckNames(), ", "))
		}
	}
	if month.To > Now() {
		return nil, draft, &ConflictError{Err: fmt.Errorf("%s has not ended", MonthName(month))}
	}
	err = c.read(ctx, "", func(h *Conn, v projections.View) error {
		closes, err := closesOf(v)
		if err != nil {
			return err
		}
		if of := closeOf(closes, month); of.Books() != nil {
			return &ConflictError{Err: fmt.Errorf("the books of %s were closed at %s and are not opened again: later changes are posted into the open period",
				MonthName(month), of.Closed.Signer.Time)}
		}
		if out, err = c.prepareClose(ctx, h, v, month, accept, dryRun); err != nil || len(out.Against) > 0 {
			return err
		}
		if err := asShown("the division of "+MonthName(month), shown, out.Digest); err != nil {
			return err
		}
		digest, err := hex.DecodeString(out.Digest)
		if err != nil {
			return err
		}
		posted, err := hex.DecodeString(out.Postings)
		if err != nil {
			return err
		}
		draft = Draft{Use: "close-prepare", Events: []domain.Envelope{{Time: Now(), Subject: MonthName(month), Event: &domain.ClosePrepared{
			Entity: BooksEntity, Period: month, Position: out.Position, Method: out.Methods.Attribution,
			Digest: digest, Postings: posted, Totals: out.Totals, Checks: out.Checks,
			Translated: out.Translated, Rates: out.Rates,
		}}}}
		return nil
	})
	if err == nil && len(out.Against) > 0 {
		err = against(month, out.Against)
	}
	return out, draft, err
}

// against names what stands against a close.
func against(month domain.Interval, all []costs.Finding) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s cannot be closed:", MonthName(month))
	for _, f := range all {
		fmt.Fprintf(&b, "\n  %s: %s", f.Check, f.Detail)
		if f.Acceptable {
			b.WriteString(" (can be accepted, with a reason)")
		}
	}
	return &ConflictError{Err: errors.New(b.String())}
}

// prepareClose divides a month, keeps it for its close unless it is a dry run, and checks it.
func (c *Caller) prepareClose(ctx context.Context, h *Conn, v projections.View, month domain.Interval, accept map[string]string, dryRun bool) (*BooksClose, error) {
	before, err := h.sealed(ctx, v.Position(), month)
	if err != nil {
		return nil, err
	}
	var d *costs.Division
	digest := ""
	if dryRun {
		if d, err = c.division(ctx, v, month); err == nil && d == nil {
			err = fmt.Errorf("%s is too large for memory, and cannot be kept in a file: it cannot be tried out", MonthName(month))
		}
		if err == nil {
			digest, err = h.divisionDigest(v, month)
		}
	} else {
		var k *parts.AllocationsVersion
		if k, err = h.keepForBooks(v, month); err == nil {
			digest = k.Digest.String()
			if d, err = openDivision(h.Parts(), month, k.Digest); err == nil {
				d, err = d.At(v)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	closes, err := closesOf(v)
	if err != nil {
		return nil, err
	}
	earlier, err := h.earlier(ctx, v, closes, month)
	if err != nil {
		return nil, err
	}
	list, err := costs.NewChecklist(v, d, closes, projections.HourOf(month.To) <= before, earlier)
	if err != nil {
		return nil, err
	}
	out := describeClose(month, d)
	out.Position, out.Digest, out.Totals, out.Exceptions = v.Position().String(), digest, list.Totals, list.Exceptions
	out.Translated, out.Rates = list.Translated, list.Rates
	out.Checks, out.Against = list.Decide(accept)
	if out.Against == nil {
		out.Against = []costs.Finding{}
	}
	out.Separation = costs.Separation(&d.Summary, "", "")
	if len(out.Against) > 0 {
		return out, nil
	}
	if out.posted, err = h.postingsNow(ctx, v, closes, month); err != nil || len(out.posted) == 0 {
		return out, err
	}
	out.Sums = sumPostings(out.posted)
	if dryRun {
		return out, nil
	}
	posted, err := h.keepPostings(month, out.posted)
	out.Postings = posted.String()
	return out, err
}

// divisionDigest returns the digest of the canonical form of a month, and keeps nothing.
func (h *Conn) divisionDigest(v projections.View, month domain.Interval) (string, error) {
	if _, k := h.keptDivision(v, month); k != nil {
		return k.Digest.String(), nil
	}
	sum := sha256.New()
	_, _, err := costs.WriteCanonical(v, month, sum)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// keepForBooks keeps the division of a month for a close, and divides it only if it is not kept yet.
func (h *Conn) keepForBooks(v projections.View, month domain.Interval) (*parts.AllocationsVersion, error) {
	if !h.app.hasParts() {
		return nil, errors.New("closed allocations are kept beside the parts: name their directory under parts in the configuration")
	}
	_, k := h.keptDivision(v, month)
	if k == nil {
		return h.keepDivision(v, month, true)
	}
	w, err := parts.NewWriter(h.Parts())
	if err != nil {
		return nil, err
	}
	return k, errors.Join(w.NameAllocations(month, k.Digest), w.Close())
}

// ApproveClose drafts the consent of a second person to the last proposal to close a month, and the close.
// shown is the digest of the allocations that they were shown, "" if that is not known.
func (c *Caller) ApproveClose(ctx context.Context, month domain.Interval, shown string) (out *BooksClose, draft Draft, err error) {
	err = c.read(ctx, "", func(h *Conn, v projections.View) error {
		closes, err := closesOf(v)
		if err != nil {
			return err
		}
		of := closeOf(closes, month)
		p := of.Proposal()
		switch {
		case of.Books() != nil:
			return &ConflictError{Err: fmt.Errorf("the books of %s were closed at %s", MonthName(month), of.Closed.Signer.Time)}
		case p == nil:
			return &NotFoundError{What: "close", Name: MonthName(month), Err: fmt.Errorf("nobody proposed to close %s: \"quartermaster costs close prepare\" does", MonthName(month))}
		}
		if out, err = h.closing(ctx, v, of); err == nil {
			err = out.problem
		}
		if err != nil {
			return err
		}
		if out.SincePrepared, err = h.sincePrepared(ctx, v, of); err != nil {
			return err
		}
		if err := asShown("the proposal to close "+MonthName(month), shown, out.Digest); err != nil {
			return err
		}
		if err := h.approvable(ctx, v, closes, of); err != nil {
			return err
		}
		offset := of.Prepared.Signer.Offset
		draft = Draft{Use: "close-approve", Events: []domain.Envelope{
			{Time: Now(), Subject: MonthName(month), Event: &domain.CloseApproved{Entity: BooksEntity, Period: month, Digest: p.Digest, Prepared: offset}},
			{Time: Now(), Subject: MonthName(month), Event: &domain.BooksClosed{
				Entity: BooksEntity, Period: month, Position: p.Position, Method: p.Method, Digest: p.Digest, Postings: p.Postings, Prepared: offset,
			}},
		}}
		return nil
	})
	return out, draft, err
}

// approvable checks what was proposed against its allocations, whatever the proposal says: they may have been
// proposed by another program.
func (h *Conn) approvable(ctx context.Context, v projections.View, closes []registry.Close, of *registry.Close) error {
	p := of.Proposal()
	d, err := h.booksDivision(ctx, of.Period, p.Digest, p.Position)
	if err != nil {
		return err
	}
	if err := d.CheckSums(); err != nil {
		return &ConflictError{Err: fmt.Errorf("the allocations that the proposal to close %s names: %w: prepare it again", MonthName(of.Period), err)}
	}
	// What the kept allocations do not say is asked now: records in quarantine, gaps, what may still arrive, and earlier
	// months.
	if d, err = d.At(v); err != nil {
		return err
	}
	before, err := h.sealed(ctx, v.Position(), of.Period)
	if err != nil {
		return err
	}
	earlier, err := h.earlier(ctx, v, closes, of.Period)
	if err != nil {
		return err
	}
	list, err := costs.NewChecklist(v, d, closes, projections.HourOf(of.Period.To) <= before, earlier)
	if err != nil {
		return err
	}
	if !sameTotals(list.Totals, p.Totals) {
		return &ConflictError{Err: fmt.Errorf("the proposal to close %s states other totals than its allocations have", MonthName(of.Period))}
	}
	if !sameTotals(list.Translated, p.Translated) || !slices.EqualFunc(list.Rates, p.Rates, func(a, b domain.BooksRate) bool {
		same := a.Rate.Equal(b.Rate)
		a.Rate = b.Rate
		return same && a == b
	}) {
		return &ConflictError{Err: fmt.Errorf("the proposal to close %s states other rates than those declared now: prepare it again", MonthName(of.Period))}
	}
	if err := checksProposed(of, list.Findings); err != nil {
		return err
	}
	if err := h.postingsProposed(ctx, closes, of); err != nil {
		return err
	}
	var left []costs.Finding
	for _, f := range list.Findings {
		if f.Count > 0 && !f.Acceptable {
			left = append(left, f)
		}
	}
	if len(left) > 0 {
		return against(of.Period, left)
	}
	return nil
}

func sameTotals(a, b []domain.BooksTotal) bool {
	return slices.EqualFunc(a, b, func(a, b domain.BooksTotal) bool {
		return a.Currency == b.Currency && a.Entity == b.Entity && a.Billed.Equal(b.Billed) && a.Effective.Equal(b.Effective)
	})
}

// checksProposed compares the checklist of a proposal with what is found now: each check is stated once, and what is
// found was accepted with a reason.
func checksProposed(of *registry.Close, found []costs.Finding) error {
	stated := map[string]domain.CloseCheck{}
	for _, c := range of.Proposal().Checks {
		if _, twice := stated[c.Check]; twice {
			return &ConflictError{Err: fmt.Errorf("the proposal to close %s states the check %q twice", MonthName(of.Period), c.Check)}
		}
		stated[c.Check] = c
	}
	for _, name := range costs.CheckNames() {
		if _, ok := stated[name]; !ok {
			return &ConflictError{Err: fmt.Errorf("the proposal to close %s lacks the check %q: prepare it again", MonthName(of.Period), name)}
		}
	}
	for _, f := range found {
		if c := stated[f.Check]; f.Count > 0 && f.Acceptable && (c.Outcome != domain.CheckAccepted || c.Reason == "") {
			return &ConflictError{Err: fmt.Errorf("the proposal to close %s says that nothing stands against it in %s, and there is: %s; prepare it again",
				MonthName(of.Period), f.Check, f.Detail)}
		}
	}
	return nil
}

// postingsProposed compares the postings of a proposal with what the rows of its position give.
func (h *Conn) postingsProposed(ctx context.Context, closes []registry.Close, of *registry.Close) error {
	p := of.Proposal()
	var want parts.Digest // zero: nothing is posted
	if slices.ContainsFunc(closes, func(c registry.Close) bool { return c.Books() != nil && c.Period.From < of.Period.From }) {
		at, err := domain.ParsePosition(p.Position)
		if err != nil {
			return err
		}
		m, _, err := h.rowsAt(ctx, at, nil)
		if err != nil {
			return err
		}
		err = m.View(ctx, func(v projections.View) error {
			all, err := h.postingsNow(ctx, v, closes, of.Period)
			if err == nil && len(all) > 0 {
				want, err = h.keepPostings(of.Period, all)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if none := want == (parts.Digest{}); none != (len(p.Postings) == 0) || !none && !bytes.Equal(want[:], p.Postings) {
		return &ConflictError{Err: fmt.Errorf("the proposal to close %s states other postings than its position gives", MonthName(of.Period))}
	}
	return nil
}

// CloseRefused records that an attempt to close a month was refused. It returns the reason, joined with what went
// wrong with recording it.
func (c *Caller) CloseRefused(ctx context.Context, who, action string, month domain.Interval, why error) error {
	h, err := c.conn(ctx, Appending)
	if err != nil {
		return errors.Join(why, err)
	}
	env := &domain.Envelope{Time: Now(), Subject: cmp.Or(who, "unknown"), Event: &domain.AccessDenied{
		Entity: BooksEntity, Principal: cmp.Or(who, "unknown"), Action: action, Target: MonthName(month),
		Reason: domain.Clip(oneLine(why.Error()), 1000),
	}}
	if err := domain.Validate(env); err != nil {
		return errors.Join(why, err)
	}
	return errors.Join(why, h.Stream("close").Append(ctx, env))
}

// oneLine joins the lines of a text.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
