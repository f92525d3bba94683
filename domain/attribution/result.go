package attribution

import (
	"cmp"
	"slices"
	"strings"
)

// Result is the result of a division, besides its allocations.
type Result struct {
	Lines       int `json:"lines"`
	Allocations int `json:"allocations"`
	// Each is sorted by its leading fields.
	Matches     []Matched        `json:"matches"`
	Invoices    []Reconciliation `json:"invoices"`
	Statements  []Statement      `json:"statements"`
	Commitments []CommitmentUse  `json:"commitments"`
	Exceptions  []Exception      `json:"exceptions"`
	// Groups are the machines that lines were matched to; see [Matching].
	Groups []Group `json:"-"`
	// Trace explains the allocation that [Input.Trace] names; nil if the division has no such
	// allocation.
	Trace *Trace `json:"trace,omitempty"`
}

// Matched sums up what was divided by one match method.
type Matched struct {
	MatchMethod MatchMethod `json:"match_method"`
	Currency    string      `json:"currency"`
	Lines       int         `json:"lines"`
	Billed      Amount      `json:"billed"`
	Effective   Amount      `json:"effective"`
}

func (r *Result) matched(g MatchMethod, currency string, rec *Line) {
	i := slices.IndexFunc(r.Matches, func(m Matched) bool { return m.MatchMethod == g && m.Currency == currency })
	if i < 0 {
		i = len(r.Matches)
		r.Matches = append(r.Matches, Matched{MatchMethod: g, Currency: currency})
	}
	m := &r.Matches[i]
	m.Lines++
	m.Billed, m.Effective = m.Billed.Add(rec.Billed), m.Effective.Add(rec.Effective)
}

// finish fills in what is known after the last allocation.
func (r *run) finish() {
	out := r.result
	slices.SortFunc(out.Matches, func(a, b Matched) int {
		return cmp.Or(cmp.Compare(a.MatchMethod, b.MatchMethod), strings.Compare(a.Currency, b.Currency))
	})
	for i := range r.reconciliations.all {
		t := &r.reconciliations.all[i]
		out.Invoices = append(out.Invoices, t.Reconciliation)
		out.Statements = append(out.Statements, t.statements(r.keys)...)
	}
	out.Commitments = r.owners.sorted()
	out.Exceptions = r.ex.sorted()
	out.Trace = r.trace.done(r.fleet)
}
