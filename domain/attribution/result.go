package attribution

import (
	"cmp"
	"slices"
	"strings"
)

// Result is what a division comes to, beside its leaves.
type Result struct {
	Method  string `json:"method"`
	Lines   int    `json:"lines"`
	Repeats int    `json:"repeats"` // lines that were given again and not counted
	Leaves  int    `json:"leaves"`
	// Each is sorted by its leading fields.
	Totals      []Total         `json:"totals"`
	Matches     []Matched       `json:"matches"`
	Invoices    []Tie           `json:"invoices"`
	Statements  []Statement     `json:"statements"`
	Commitments []CommitmentUse `json:"commitments"`
	Exceptions  []Exception     `json:"exceptions"`
	// Trace is of the leaf that [Input.Trace] names; nil where the division has
	// no such leaf.
	Trace *Trace `json:"trace,omitempty"`
}

// Total is all money of one currency. Billed is LinesBilled and Bridges,
// Effective is LinesEffective.
type Total struct {
	Currency       string `json:"currency"`
	Lines          int    `json:"lines"`
	LinesBilled    Amount `json:"lines_billed"`
	LinesEffective Amount `json:"lines_effective"`
	Billed         Amount `json:"billed"`    // by leaves
	Effective      Amount `json:"effective"` // by leaves
	Bridges        Amount `json:"bridges"`
	Received       Amount `json:"received"` // by invoices that were not voided
}

// Matched is what was divided by one rung.
type Matched struct {
	Rung      Rung   `json:"rung"`
	Currency  string `json:"currency"`
	Lines     int    `json:"lines"`
	Billed    Amount `json:"billed"`
	Effective Amount `json:"effective"`
}

// total returns the sums of a currency. The pointer is valid until the next new
// currency.
func (r *Result) total(currency string) *Total {
	for i := range r.Totals {
		if r.Totals[i].Currency == currency {
			return &r.Totals[i]
		}
	}
	r.Totals = append(r.Totals, Total{Currency: currency})
	return &r.Totals[len(r.Totals)-1]
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
	out.Repeats = r.book.repeats
	slices.SortFunc(out.Totals, func(a, b Total) int { return strings.Compare(a.Currency, b.Currency) })
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
