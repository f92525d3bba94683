package costs

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// ClosedBooks says how the books of a month were closed.
type ClosedBooks struct {
	Closed   domain.Instant `json:"closed"`
	Position string         `json:"position"` // of the rows that the month was divided from
	// Digest is the SHA-256 of the canonical form of the allocations, in hexadecimal.
	Digest   string `json:"digest"`
	Prepared string `json:"prepared_by"` // operators
	Approved string `json:"approved_by"`
}

// BooksOf returns how the books of a month were closed; nil if they are open.
func BooksOf(closes []registry.Close, month domain.Interval) *ClosedBooks {
	for i := range closes {
		c := &closes[i]
		if b := c.Books(); b != nil && b.Period == month {
			return &ClosedBooks{
				Closed: c.Closed.Signer.Time, Position: b.Position, Digest: hex.EncodeToString(b.Digest),
				Prepared: c.Prepared.Signer.Operator, Approved: c.Approved.Signer.Operator,
			}
		}
	}
	return nil
}

// The points of the checklist of a close, in their order.
const (
	CheckOrder          = "order"           // months are closed one after the other
	CheckEnded          = "ended"           // no observation of the month is accepted any more
	CheckInvoices       = "invoices"        // every invoice was received and equals its lines
	CheckUninvoiced     = "uninvoiced"      // every line names an invoice
	CheckMissing        = "missing"         // every account that was billed or accrued the month before is billed, or accrued
	CheckAccruals       = "accruals"        // nothing is estimated
	CheckBillingPeriods = "billing_periods" // suppliers said that they change nothing more
	CheckRates          = "rates"           // every currency has a rate in that of the books
	CheckQuarantine     = "quarantine"      // no record is in quarantine
	CheckGaps           = "gaps"            // every event arrived
	CheckUnregistered   = "unregistered"    // every machine that reported is registered
	CheckTelemetry      = "telemetry"       // every hour that was paid for was observed
	CheckExceptions     = "exceptions"      // there are none
	CheckGenerated      = "generated"       // every line is from a supplier
	CheckClosedMonths   = "closed_months"   // every invoice of a closed month still equals its lines
	CheckBeforeBooks    = "before_books"    // nothing came for a month before the first closed one
)

// CheckNames returns the points of the checklist.
func CheckNames() []string {
	return []string{
		CheckOrder, CheckEnded, CheckInvoices, CheckUninvoiced, CheckMissing, CheckAccruals, CheckBillingPeriods, CheckRates, CheckQuarantine,
		CheckGaps, CheckUnregistered, CheckTelemetry, CheckExceptions, CheckGenerated,
		CheckClosedMonths, CheckBeforeBooks,
	}
}

// Finding is the result of a check. Without a count, nothing stands against the close.
type Finding struct {
	Check  string `json:"check"`
	Count  int    `json:"count"`
	Detail string `json:"detail,omitempty"`
	// Acceptable: a person may accept the finding, with a reason. Otherwise it must be mended.
	Acceptable bool `json:"acceptable"`
}

// OpenException is an exception of a month, with the role that can resolve it and since when it is known.
type OpenException struct {
	attribution.Exception
	Owner domain.Role    `json:"owner"`
	Since domain.Instant `json:"since,omitempty"`
}

// Checklist is what stands against closing a month.
type Checklist struct {
	Findings   []Finding           `json:"findings"` // one for each check
	Exceptions []OpenException     `json:"exceptions"`
	Totals     []domain.BooksTotal `json:"totals"`
	// Translated is the total in the currency of the books, and Rates are those that translate it; empty if the
	// books have no currency or a rate is missing.
	Translated []domain.BooksTotal `json:"translated"`
	Rates      []domain.BooksRate  `json:"rates"`
}

func booksTotals(r *Report) []domain.BooksTotal {
	out := []domain.BooksTotal{}
	for i := range r.Totals {
		t := &r.Totals[i]
		out = append(out, domain.BooksTotal{Currency: t.Currency, Billed: t.Billed.Decimal(), Effective: t.Effective.Decimal()})
	}
	return out
}

// owners of exceptions that are not about a supplier's bill.
var exceptionOwners = map[attribution.Kind]domain.Role{
	attribution.BilledNeverSeen: domain.RoleOperator, attribution.SeenNeverBilled: domain.RoleOperator,
	attribution.RegisteredNeither: domain.RoleOperator, attribution.NotInService: domain.RoleOperator,
	attribution.OwnerMissing: domain.RoleAdmin, DecisionVoid: domain.RoleAdmin,
	PolicyNotApplied: domain.RoleAdmin, PolicyChangedInPeriod: domain.RoleAdmin, CommitmentDeclaredTwice: domain.RoleAdmin,
}

// NewChecklist checks a divided month before its close. sealed: no observation of the month is accepted any
// more. earlier is what came about earlier months since the last close, nil if nothing was closed.
func NewChecklist(view projections.View, d *Division, closes []registry.Close, sealed bool, earlier *Earlier) (*Checklist, error) {
	r, err := d.Report(Query{Month: d.Month, By: []Dimension{ByComponent}})
	if err != nil {
		return nil, err
	}
	c := &Checklist{Exceptions: []OpenException{}, Totals: booksTotals(r), Translated: []domain.BooksTotal{}, Rates: []domain.BooksRate{}}
	if err := c.exceptions(view, d); err != nil {
		return nil, err
	}
	c.order(d.Month, closes)
	c.met(CheckEnded, sealed, true, "observations of the month may still arrive")
	c.invoices(r)
	if err := c.accruals(view, r); err != nil {
		return nil, err
	}
	if err := c.periods(view, d); err != nil {
		return nil, err
	}
	if err := c.rates(view, d); err != nil {
		return nil, err
	}
	c.found(CheckQuarantine, r.Incomplete, true, "%d records in quarantine may concern the month", r.Incomplete)
	lost := len(r.Dropped)
	c.found(CheckGaps, lost+int(min(r.Missing, 1<<30)), true, "%d events have not arrived, and agents lost samples of %d times", r.Missing, lost)
	c.found(CheckUnregistered, len(d.Unregistered), true, "machines reported without a registration: %s", some(d.Unregistered))
	c.telemetry(r)
	kinds := map[attribution.Kind]int{}
	for i := range c.Exceptions {
		kinds[c.Exceptions[i].Kind]++
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		list = append(list, fmt.Sprintf("%d %s", kinds[k], k))
	}
	c.found(CheckExceptions, len(c.Exceptions), true, "%s", strings.Join(list, ", "))
	c.met(CheckGenerated, !r.Generated, true, "some lines or invoices are synthetic")
	c.earlier(earlier)
	return c, nil
}

// found adds a finding; with a count of 0 it has no detail.
func (c *Checklist) found(check string, count int, acceptable bool, format string, args ...any) {
	f := Finding{Check: check, Count: count, Acceptable: acceptable}
	if count > 0 {
		f.Detail = domain.Clip(fmt.Sprintf(format, args...), mostDetail)
	}
	c.Findings = append(c.Findings, f)
}

// mostDetail bounds the text of a finding, in characters.
const mostDetail = 400

func (c *Checklist) met(check string, met, acceptable bool, otherwise string) {
	count := 0
	if !met {
		count = 1
	}
	c.found(check, count, acceptable, "%s", otherwise)
}

// note says something about a check that is met.
func (c *Checklist) note(format string, args ...any) {
	if f := &c.Findings[len(c.Findings)-1]; f.Count == 0 {
		f.Detail = domain.Clip(fmt.Sprintf(format, args...), mostDetail)
	}
}

// some lists the first few names.
func some(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// order checks that the month follows the last closed one. The first close begins the books.
func (c *Checklist) order(month domain.Interval, closes []registry.Close) {
	wrong := ""
	last := domain.Interval{}
	for i := range closes {
		if b := closes[i].Books(); b != nil && b.Period.To > last.To {
			last = b.Period
		}
	}
	if next := projections.BillingMonth(last.To); last.To != 0 && month != next {
		wrong = fmt.Sprintf("the books are closed to %s: the next month is %s", last.To, monthText(next))
	}
	c.met(CheckOrder, wrong == "", false, wrong)
}

func (c *Checklist) invoices(r *Report) {
	var names []string
	for _, u := range r.Unreconciled {
		names = append(names, u.Subject+": "+u.Why)
	}
	c.found(CheckInvoices, len(names), false, "%s", some(names))
	var open []string
	for i := range r.Invoices {
		if in := &r.Invoices[i]; in.Invoice == "" && in.Lines > 0 {
			open = append(open, fmt.Sprintf("%d lines of %s, %s %s", in.Lines, domain.AccountKey(in.Issuer, in.Account), in.Billed, in.Currency))
		}
	}
	c.found(CheckUninvoiced, len(open), true, "%s", some(open))
	if r.Lines == 0 {
		c.note("the month has no lines")
	}
}

// accruals checks what was not billed. A person accepts an estimate with a reason.
func (c *Checklist) accruals(view projections.View, r *Report) error {
	have := map[string]bool{}
	var estimated []string
	received := accrued{view: view}
	for i := range r.Invoices {
		in := &r.Invoices[i]
		account := domain.AccountKey(in.Issuer, in.Account)
		if in.Lines > 0 {
			have[account] = true
		}
		if isAccrual(in.Invoice) && in.Lines > 0 {
			had, err := received.received(account, r.Month)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("%s, %s %s", account, in.Billed, in.Currency)
			if len(had.ids) > 0 {
				text += fmt.Sprintf(" beside %s, which is for a part of the month: accrue the rest again", had)
			}
			estimated = append(estimated, text)
		}
	}
	missing, err := notBilled(view, r.Month, have)
	if err != nil {
		return err
	}
	c.found(CheckMissing, len(missing), true, "accounts were billed or accrued the month before and have no lines: %s", some(missing))
	c.found(CheckAccruals, len(estimated), true, "estimated: %s", some(estimated))
	return nil
}

// PeriodsClosed returns when the suppliers' last statements that a month is closed were appended, by account.
func PeriodsClosed(view projections.View, month domain.Interval) (map[string]domain.Instant, error) {
	out := map[string]domain.Instant{}
	err := view.Scan(projections.Query{Table: projections.TableBillingPeriods}, func(k projections.Key, row projections.Row) error {
		last := row.(*projections.History).Latest()
		if p, ok := last.Event.(*domain.BillingPeriodClosed); ok && projections.MonthOf(p.Period) == month {
			out[strings.Clone(k.Scope)] = last.Order.Appended
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableBillingPeriods, err)
	}
	return out, nil
}

// periods checks whether suppliers closed the billing period. Most never say.
func (c *Checklist) periods(view projections.View, d *Division) error {
	said, err := PeriodsClosed(view, d.Month)
	if err != nil {
		return err
	}
	silent := map[string]bool{}
	for i := range d.Invoices {
		account := domain.AccountKey(d.Invoices[i].Issuer, d.Invoices[i].Account)
		if _, ok := said[account]; !ok {
			silent[account] = true
		}
	}
	c.found(CheckBillingPeriods, 0, true, "")
	if len(silent) > 0 {
		c.note("the supplier has not said that the period is closed: %s", some(slices.Sorted(maps.Keys(silent))))
	}
	return nil
}

// rates translates the month to the currency of the books.
func (c *Checklist) rates(view projections.View, d *Division) error {
	rates, err := ReadRates(view, d.Month)
	switch {
	case errors.Is(err, ErrNoBooksCurrency):
		several := len(c.Totals) > 1
		c.met(CheckRates, !several, false, fmt.Sprintf("it has %d currencies, and %v", len(c.Totals), err))
		return nil
	case err != nil:
		return err
	}
	translated, err := d.translatedTotals(rates)
	var missing *RatesError
	switch {
	case errors.As(err, &missing):
		c.found(CheckRates, len(missing.Problems), false, "%s", strings.Join(missing.Problems, "; "))
		return nil
	case err != nil:
		return err
	}
	if err := d.foresee(rates); err != nil {
		return err
	}
	for _, of := range rates.all() {
		for _, base := range of.bases() {
			of.of(&attribution.Line{Currency: base}) // of what is posted into the month
		}
	}
	c.Translated, c.Rates = translated, rates.Used()
	var unknown []string
	for _, of := range rates.all() {
		needed := of.bases()
		for i := range c.Totals {
			needed = append(needed, c.Totals[i].Currency)
		}
		slices.Sort(needed)
		for _, base := range slices.Compact(needed) {
			if base == of.Currency {
				continue
			}
			rate, citation, problem := of.Closing(base)
			switch {
			case problem == "":
				c.Rates = append(c.Rates, domain.BooksRate{Base: base, Quote: of.Currency, Rate: rate, Kind: domain.FXClosing, Citation: citation})
			case slices.ContainsFunc(c.Totals, func(t domain.BooksTotal) bool { return t.Currency == base }):
				unknown = append(unknown, base+" in "+of.Currency)
			}
		}
	}
	c.found(CheckRates, 0, false, "")
	for i := range c.Translated {
		t := &c.Translated[i]
		of := "the month"
		if t.Entity != "" {
			of = t.Entity
		}
		c.note("%s is %s %s effective in the books", of, t.Effective.Round(int32(domain.MinorUnits(t.Currency))), t.Currency)
	}
	if doubtful := rates.Doubtful(); len(doubtful) > 0 {
		c.note("nobody declared the commitments %s: their use has the average rate of the month, which is wrong if they were paid at once", some(doubtful))
	}
	if len(unknown) > 0 {
		c.note("no closing rate of %s: an entity with those books that owes or is owed the other currency at the end of the month"+
			" will have no journal in the currency of its books", some(unknown))
	}
	return nil
}

// translatedTotals returns the sum in the currency of the books, and those of entities that keep them in another one.
func (d *Division) translatedTotals(rates *Rates) ([]domain.BooksTotal, error) {
	r, err := d.In(rates.Group()).Report(Query{Month: d.Month})
	if err != nil {
		return nil, err
	}
	out := booksTotals(r)
	if len(out) == 0 { // nothing was billed, but something may be posted
		out = append(out, domain.BooksTotal{Currency: rates.Currency})
	}
	if len(rates.entities) == 0 {
		return out, nil
	}
	if r, err = d.In(rates).Report(Query{Month: d.Month, By: []Dimension{ByEntity}}); err != nil {
		return nil, err
	}
	for _, entity := range slices.Sorted(maps.Keys(rates.entities)) {
		t := domain.BooksTotal{Entity: entity, Currency: rates.entities[entity].Currency}
		for i := range r.Groups {
			if g := &r.Groups[i]; g.Key[ByEntity] == entity {
				t.Billed, t.Effective = g.Billed.Decimal(), g.Effective.Decimal()
			}
		}
		out = append(out, t)
	}
	return out, nil
}

// foresee looks up the rates of each line in all currencies of the books: its invoice may be that of another entity.
// Those that are missing stand against nothing.
func (d *Division) foresee(rates *Rates) error {
	if len(rates.entities) == 0 {
		return nil
	}
	all := rates.all()
	var last lineKey
	return d.each(func(p *part) error {
		l := p.allocation.Line
		if key := (lineKey{l.Issuer, l.Account, l.ID}); key != last {
			last = key
			for _, of := range all {
				of.of(l)
			}
		}
		return nil
	})
}

func (c *Checklist) telemetry(r *Report) {
	var unseen []string
	for i := range r.Groups {
		g := &r.Groups[i]
		if k := g.Key[ByComponent]; (k == attribution.Unobserved.String() || k == attribution.Unseen.String()) && !g.Effective.IsZero() {
			unseen = append(unseen, fmt.Sprintf("%s %s is %s", g.EffectiveMinor, g.Currency, k))
		}
	}
	c.found(CheckTelemetry, len(unseen), true, "%s", strings.Join(unseen, ", "))
	if r.Coverage != nil {
		c.note("activity was measured for %d.%d%% of the time held", *r.Coverage/10, *r.Coverage%10)
	}
}

// exceptions adds who can resolve each exception, and since when it is known: since its line was first stated,
// else since the month was billed.
func (c *Checklist) exceptions(view projections.View, d *Division) error {
	accruals := accrued{view: view}
	for _, e := range d.Exceptions {
		since, err := accruals.statedSince(d.Month, e.Subject)
		if err != nil {
			return err
		}
		c.Exceptions = append(c.Exceptions, OpenException{
			e, cmp.Or(exceptionOwners[e.Kind], domain.RoleFinance), cmp.Or(since, d.BilledSince),
		})
	}
	return nil
}

// Decide returns the points of the event of a close, with the reasons for which findings are accepted, and what
// is left against it.
func (c *Checklist) Decide(accepted map[string]string) (checks []domain.CloseCheck, against []Finding) {
	for _, f := range c.Findings {
		reason := accepted[f.Check]
		switch {
		case f.Count == 0:
			checks = append(checks, domain.CloseCheck{Check: f.Check, Outcome: domain.CheckMet, Detail: f.Detail})
		case f.Acceptable && reason != "":
			checks = append(checks, domain.CloseCheck{Check: f.Check, Outcome: domain.CheckAccepted, Detail: f.Detail, Reason: reason})
		default:
			against = append(against, f)
		}
	}
	return checks, against
}

// Separation says which duties about a month one person has that should be of different people: who prepared
// or approved its close, and who decided a policy or a rule that it was divided by.
func Separation(s *Summary, prepared, approved string) []string {
	duties := map[string][]string{}
	add := func(operator, duty string) {
		if operator != "" && !slices.Contains(duties[operator], duty) {
			duties[operator] = append(duties[operator], duty)
		}
	}
	add(prepared, "prepared the close")
	add(approved, "approved the close")
	for _, p := range s.Policies {
		add(p.Operator, "set policy "+p.Policy)
	}
	for _, r := range s.Rules {
		add(r.Operator, "set mapping rule "+r.Rule)
	}
	out := []string{}
	for _, operator := range slices.Sorted(maps.Keys(duties)) {
		// Who only wrote rules does not check their own work.
		if d := duties[operator]; len(d) > 1 && (operator == prepared || operator == approved) {
			out = append(out, operator+" "+strings.Join(d, ", "))
		}
	}
	return out
}
