package costs

import (
	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/dimension"
	"quartermaster/projections/registry"
)

// Query is what is asked of the books.
type Query struct {
	// Month is the billing period: see [projections.MonthOf].
	Month domain.Interval
	// Workspace narrows groups, totals and statements to what one workspace
	// is charged. What reconciles with the supplier's figures (invoices, commitments,
	// matches, exceptions) stays whole, because a part of a bill reconciles with nothing.
	Workspace string
	By        []Dimension
	// Where narrows groups and totals further, to what meets all conditions. Statements
	// are of whole invoices and do not follow it.
	Where []dimension.Condition
	// Largest is how many allocations each group names, the largest by what counts in
	// LargestBy first; 0 names none.
	Largest   int
	LargestBy Ledger
}

// Ledger is one of the two that costs are kept in.
type Ledger string

// The ledgers; see [Cost]. The zero Ledger is Effective.
const (
	Effective Ledger = "effective"
	Billed    Ledger = "billed"
)

// Report is a billing month divided among those who used what was billed.
//
// Billed and effective are two ledgers. What was billed adds up to the lines of
// the bill and the rounding adjustments of its invoices, and reconciles with totals that were
// received apart from them. What was consumed (effective) spreads commitments
// over their terms.
type Report struct {
	Position  string                `json:"position"`
	Month     domain.Interval       `json:"period"`
	Workspace string                `json:"workspace,omitempty"` // that groups, totals and statements are narrowed to
	Note      string                `json:"note,omitempty"`      // what stays whole beside that
	Methods   Methods               `json:"methods"`
	Policies  []AppliedPolicy       `json:"policies"`
	By        []Dimension           `json:"by"`
	Where     []dimension.Condition `json:"where,omitempty"` // that groups and totals are narrowed to
	Groups    []Group               `json:"groups"`          // by their keys, in the order of By, then currency
	Totals    []Cost                `json:"totals"`          // one for each currency
	// What each workspace is charged of each invoice, rounded once to what can be
	// paid, so that an invoice's statements add up to it.
	Statements []attribution.Statement `json:"statements"`
	// Coverage is how much of the time that was held in the hours billed, by
	// the workspace or by all, activity was measured for; per mille, rounded
	// down, null where nothing was held. What was not measured is not counted as
	// useful, so below 1000 the cost per useful hour is an upper bound.
	Coverage *int64 `json:"activity_coverage_permille"`

	Invoices          []InvoiceReconciliation     `json:"invoices"`
	Unreconciled      []Unreconciled              `json:"unreconciled"` // empty when every invoice reconciles, and every line that names one
	UnreconciledCount int                         `json:"unreconciled_count"`
	Commitments       []attribution.CommitmentUse `json:"commitments"`
	Matches           []attribution.Matched       `json:"matches"`
	Exceptions        []attribution.Exception     `json:"exceptions"` // by kind, subject and detail
	Lines             int                         `json:"lines"`
	Allocations       int                         `json:"allocations"` // how many
	Generated         bool                        `json:"generated"`   // something of it was made by a generator, and no supplier sent it
	registry.Completeness
}

// Methods are the versions that computed a report.
type Methods struct {
	Folds       string `json:"folds"`
	Attribution string `json:"attribution"`
}

var costMethods = Methods{Folds: projections.Method, Attribution: attribution.Method}

// NewReport divides a billing month. Its memory follows lines, nodes and groups;
// hours of usage pass through it. Who asks several queries of a month asks [Divide] once.
func NewReport(view projections.View, q Query) (*Report, error) {
	s, err := newSums(&q)
	if err != nil {
		return nil, err
	}
	d, err := divide(view, q.Month, func(p *part) error { s.add(p); return nil })
	if err != nil {
		return nil, err
	}
	return d.report(s), nil
}

// costTopics are the topics that costs are made of. Whatever is missing in one
// of them may concern every workspace, because a bill is divided as a whole.
var costTopics = []domain.Topic{domain.TopicBilling, domain.TopicFleet, domain.TopicTelemetry, domain.TopicHardware, domain.TopicDeployments, domain.TopicProcurement, domain.TopicWorkspaces}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}
