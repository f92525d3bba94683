package costs

import (
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/dimension"
	"quartermaster/projections/registry"
)

// Query is a query for a cost report.
type Query struct {
	// Month is the billing period: see [projections.MonthOf].
	Month domain.Interval
	// Workspace restricts groups, totals and statements to what one workspace is charged. What
	// reconciles with the supplier's figures (invoices, commitments, matches, exceptions) stays
	// whole, because a part of a bill reconciles with nothing.
	Workspace string
	By        []Dimension
	// Currency is that of groups and totals: the currency of the books, or "" for those that were billed.
	// What reconciles with the supplier's figures stays as it was billed.
	Currency string
	// Where restricts groups and totals further, to what meets all conditions. It does not affect
	// statements, which are for whole invoices.
	Where []dimension.Condition
	// Under is Where for a workspace and those below it: see [Query.Resolve].
	Under string
	// Largest is the number of allocations to list for each group, the largest in LargestBy first;
	// 0 lists none.
	Largest   int
	LargestBy Ledger
}

// Resolve returns the query with Under as a condition of Where, by the parents of workspaces in the view. Queries MUST be
// resolved before they are answered.
func (q Query) Resolve(v projections.View) (_ Query, err error) {
	q.Where, err = access.Under(v, q.Under, q.Where, ByWorkspace)
	q.Under = ""
	return q, err
}

// Ledger is one of the two ledgers of costs.
type Ledger string

// The ledgers; see [Cost]. The zero Ledger is Effective.
const (
	Effective Ledger = "effective"
	Billed    Ledger = "billed"
)

// Report is a billing month divided among those who used what was billed.
//
// It has two ledgers. Billed costs add up to the lines of the bill and the rounding adjustments of
// its invoices, and reconcile with independently received totals. Effective costs spread
// commitments over their terms.
type Report struct {
	Position  string                `json:"position"`
	Month     domain.Interval       `json:"period"`
	Workspace string                `json:"workspace,omitempty"` // restricts groups, totals and statements
	Note      string                `json:"note,omitempty"`      // says what Workspace does not restrict
	Methods   Methods               `json:"methods"`
	Policies  []AppliedPolicy       `json:"policies"`
	By        []Dimension           `json:"by"`
	Where     []dimension.Condition `json:"where,omitempty"` // restricts groups and totals
	Groups    []Group               `json:"groups"`          // by their keys, in the order of By, then currency
	Totals    []Cost                `json:"totals"`          // one for each currency
	// Translation says how groups and totals were translated to the currency of the books; absent if they
	// are in the currencies that were billed.
	Translation *Translation `json:"translation,omitempty"`
	// Loaded is the view that was asked for, in which the cost of pools is passed on; absent for the direct view.
	Loaded *Loaded `json:"loaded,omitempty"`
	// Posted is what was posted into the closed month about earlier ones, by currency; with Workspace, about it. Groups and
	// totals are without it. It is absent while the month is open: ask for the postings then.
	Posted []PostedSum `json:"posted,omitempty"`
	// What each workspace is charged of each invoice, rounded once to payable amounts, so that an
	// invoice's statements add up to it.
	Statements []attribution.Statement `json:"statements"`
	// Coverage is the share of held time, in the billed hours of the workspace or of all, with
	// measured activity. It is in per mille, rounded down, and null if nothing was held. Time
	// without measurements does not count as useful, so below 1000 the cost per useful hour is an
	// upper bound.
	Coverage *int64 `json:"activity_coverage_permille"`

	Invoices []InvoiceReconciliation `json:"invoices"`
	// Unreconciled is empty if every invoice reconciles, and so does every line that names one.
	Unreconciled      []Unreconciled              `json:"unreconciled"`
	UnreconciledCount int                         `json:"unreconciled_count"`
	Commitments       []attribution.CommitmentUse `json:"commitments"`
	Matches           []attribution.Matched       `json:"matches"`
	Exceptions        []attribution.Exception     `json:"exceptions"` // by kind, subject and detail
	Lines             int                         `json:"lines"`
	Allocations       int                         `json:"allocations"` // number of allocations
	// Generated: some of the input is synthetic, and no supplier sent it.
	Generated bool `json:"generated"`
	// Books says who closed the month. The answer is from the closed allocations. It is absent while the
	// month is open.
	Books *ClosedBooks `json:"books,omitempty"`
	registry.Completeness
	shared *SharedCosts // nil if no policy names pools
}

// Billed reports whether the month has bills, as far as that is seen.
func (r *Report) Billed() bool { return r.Lines > 0 || r.Allocations > 0 }

// PostedSum is the sum of postings in a currency.
type PostedSum struct {
	Currency  string             `json:"currency"`
	Postings  int                `json:"postings"`
	Billed    attribution.Amount `json:"billed"`
	Effective attribution.Amount `json:"effective"`
}

// Methods are the versions that computed a report.
type Methods struct {
	Folds       string `json:"folds"`
	Attribution string `json:"attribution"`
}

var costMethods = Methods{Folds: projections.Method, Attribution: attribution.Method}

// CurrentMethods are the versions by which this program divides a month.
func CurrentMethods() Methods { return costMethods }

// NewReport divides a billing month. Its memory grows with lines, nodes and groups; hours of usage
// are streamed. For several queries of a month, call [Divide] once instead.
func NewReport(view projections.View, q Query) (*Report, error) {
	s, err := newSums(&q)
	if err != nil {
		return nil, err
	}
	d, err := divide(view, q.Month, func(p *part) error { s.add(p); return nil })
	if err != nil {
		return nil, err
	}
	if d, err = d.At(view); err != nil {
		return nil, err
	}
	return d.report(s, d.Unreconciled()), nil
}

// costTopics are the topics that costs depend on. A missing event in any of them may concern every
// workspace, because a bill is divided as a whole.
var costTopics = []domain.Topic{
	domain.TopicBilling, domain.TopicFleet, domain.TopicTelemetry, domain.TopicHardware,
	domain.TopicDeployments, domain.TopicProcurement, domain.TopicWorkspaces,
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
