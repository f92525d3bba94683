package attribution

import (
	"cmp"
	"slices"
	"strings"
)

// Result is what a division comes to, beside its leaves.
type Result struct {
	Lines  int `json:"lines"`
	Leaves int `json:"leaves"`
	// Each is sorted by its leading fields.
	Matches     []Matched       `json:"matches"`
	Invoices    []Tie           `json:"invoices"`
	Statements  []Statement     `json:"statements"`
	Commitments []CommitmentUse `json:"commitments"`
	Exceptions  []Exception     `json:"exceptions"`
	// Trace is of the leaf that [Input.Trace] names; nil where the division has
	// no such leaf.
	Trace *Trace `json:"trace,omitempty"`
}

// Matched is what was divided by one rung.
type Matched struct {
	Rung      Rung   `json:"rung"`
	Currency  string `json:"currency"`
	Lines     int    `json:"lines"`
	Billed    Amount `json:"billed"`
	Effective Amount `json:"effective"`
}

func (r *Result) matched(g Rung, currency string, rec *Line) {
	i := slices.IndexFunc(r.Matches, func(m Matched) bool { return m.Rung == g && m.Currency == currency })
	if i < 0 {
		i = len(r.Matches)
		r.Matches = append(r.Matches, Matched{Rung: g, Currency: currency})
	}
	m := &r.Matches[i]
	m.Lines++
	m.Billed, m.Effective = m.Billed.Add(rec.Billed), m.Effective.Add(rec.Effective)
}

// finish fills in what is known once every leaf was given out.
func (r *run) finish() {
	out := r.result
	slices.SortFunc(out.Matches, func(a, b Matched) int {
		return cmp.Or(cmp.Compare(a.Rung, b.Rung), strings.Compare(a.Currency, b.Currency))
	})
	for i := range r.ties.all {
		t := &r.ties.all[i]
		out.Invoices = append(out.Invoices, t.Tie)
		out.Statements = append(out.Statements, t.statements(r.keys)...)
	}
	out.Commitments = r.spons.sorted()
	out.Exceptions = r.ex.sorted()
	out.Trace = r.trace.done(r.fleet)
}
