package costs

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// After a close, the division of a month may change. The difference is posted into the open period, allocation
// by allocation: what was closed, plus what was posted since, is the division of today, exactly, and so it is
// for each invoice. Postings into a period that is closed are kept with its close, so a later change is posted
// once, and later changes of the same allocation are posted as a difference to what was closed and posted before.

// PostingType says what changed an allocation after the close of its month.
type PostingType string

// The types.
const (
	PostedLate          PostingType = "late"          // a line that was not there
	PostedCorrection    PostingType = "correction"    // a line or an invoice was stated otherwise, or corrected
	PostedReversal      PostingType = "reversal"      // a line that is no longer there
	PostedReattribution PostingType = "reattribution" // the same line, divided otherwise
	PostedMethod        PostingType = "method"        // the same line, divided by another version of the method
	PostedAccrual       PostingType = "accrual"       // of a named accrual, and its reversal
)

// postingTypes lists them.
const postingTypes = "late, correction, reversal, reattribution, method, accrual"

// Posting is the difference of one allocation, in both ledgers.
type Posting struct {
	Period     string      `json:"period"`       // month of the allocation, for example 2026-05
	Books      string      `json:"books_period"` // month that the difference is posted into
	Type       PostingType `json:"posting_type"`
	Allocation string      `json:"allocation"` // see [attribution.Allocation.Ref]
	Line       string      `json:"line"`
	Invoice    string      `json:"invoice"`
	Hour       string      `json:"hour"` // empty: the whole charge period
	Workspace  string      `json:"workspace"`
	Cluster    string      `json:"cluster"`
	Deployment string      `json:"deployment"`
	Component  string      `json:"component"`
	Currency   string      `json:"currency"`
	// Billed and Effective are what is added to what was closed and posted before.
	Billed    attribution.Amount `json:"billed"`
	Effective attribution.Amount `json:"effective"`
	// Rounding: share and line are unchanged, and only the last digit moved.
	Rounding bool `json:"rounding,omitempty"`
	// Causes are the events that can have changed it: type and name.
	Causes []string `json:"causes"`
	// Events are the events themselves, as SOURCE#ID of CloudEvents: of each cause the last. Samples have none, because
	// a cause is many of them, and neither do events of the telemetry of a cluster with shards.
	Events []string `json:"events"`

	row *postedRow
}

// postingKey identifies an allocation. A line that changes its currency or its invoice has two: one is taken back and
// the other is added, so that the sums of both invoices and both currencies are those of today.
type postingKey struct {
	ref               attribution.Ref
	currency, invoice string
}

func (k *postingKey) compare(o *postingKey) int {
	a, b := &k.ref, &o.ref
	return cmp.Or(
		strings.Compare(a.Issuer, b.Issuer), strings.Compare(a.Account, b.Account), strings.Compare(a.Line, b.Line),
		strings.Compare(k.currency, o.currency), strings.Compare(k.invoice, o.invoice), cmp.Compare(a.Hour, b.Hour),
		strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Component, b.Component),
	)
}

type lineKey struct{ issuer, account, line string }

func lineKeyOf(r *attribution.Ref) lineKey { return lineKey{r.Issuer, r.Account, r.Line} }

func keyOf(l *attribution.Allocation) postingKey {
	return postingKey{attribution.Ref{
		Issuer: l.Line.Issuer, Account: l.Line.Account, Line: l.Line.ID, Hour: l.Hour,
		Workspace: l.Workspace, Cluster: l.Cluster, Deployment: l.Deployment, Component: l.Component,
	}, l.Line.Currency, l.Line.Invoice}
}

// lineState is what a division says about a line: its amounts, and a digest of its allocations.
type lineState struct {
	billed, effective attribution.Amount
	currency, invoice string
	rule              string // that says who is charged
	corrects          bool
	shared, follows   bool // as in movement
	digest            [sha256.Size]byte
}

// lineStates reads the lines of a division. The allocations of a line are next to each other, or their digests
// are chained.
func lineStates(d *Division) (map[lineKey]lineState, error) {
	states := map[lineKey]lineState{}
	var b []byte
	err := d.each(func(p *part) error {
		l := p.allocation
		k := lineKey{l.Line.Issuer, l.Line.Account, l.Line.ID}
		s := states[k]
		b = append(b[:0], s.digest[:]...)
		for _, text := range [...]string{l.Workspace, l.Cluster, l.Deployment} {
			b = append(append(b, text...), 0)
		}
		b = fmt.Appendf(b, "%d %d ", l.Component, l.Hour)
		b = l.Effective.AppendBytes(l.Billed.AppendBytes(b))
		s.digest = sha256.Sum256(b)
		s.billed, s.effective = l.Line.Billed, l.Line.Effective
		s.currency, s.invoice, s.corrects, s.rule = l.Line.Currency, l.Line.Invoice, l.Line.Corrects != "", l.Line.ToRule
		s.shared = s.shared || l.Component == attribution.SharedCost
		s.follows = s.follows || l.MatchMethod == attribution.ByFollowing
		states[k] = s
		return nil
	})
	return states, err
}

// share is the part of a line that an allocation gets, and what it is of.
type shareOf struct {
	weight, of, billed, effective attribution.Amount // the last two of the line
}

// Difference returns the postings that make the allocations of one division of a month, with what was posted about
// them before, those of another: before + posted + result = after, exactly, for each allocation. They are ordered
// by allocation. books is the month that they are posted into. why may be nil.
func Difference(before *Division, posted []Posting, after *Division, books domain.Interval, why *Changes) ([]Posting, error) {
	if before.Month != after.Month {
		return nil, fmt.Errorf("the difference of %s and %s: want one month", monthText(before.Month), monthText(after.Month))
	}
	old, err := lineStates(before)
	if err != nil {
		return nil, err
	}
	now, err := lineStates(after)
	if err != nil {
		return nil, err
	}
	changed := map[lineKey]bool{}
	for k, s := range old {
		n := now[k]
		changed[k] = n.digest != s.digest || n.currency != s.currency || n.invoice != s.invoice
	}
	for k := range now {
		if _, known := old[k]; !known {
			changed[k] = true
		}
	}
	deltas := map[postingKey]*delta{}
	at := func(k postingKey) *delta {
		d := deltas[k]
		if d == nil {
			d = &delta{}
			deltas[k] = d
		}
		return d
	}
	keys := make([]postingKey, len(posted))
	for i := range posted {
		p := &posted[i]
		ref, err := attribution.ParseRef(p.Allocation)
		if err != nil {
			return nil, fmt.Errorf("a posting of %s: %w", p.Period, err)
		}
		keys[i] = postingKey{ref, p.Currency, p.Invoice}
		changed[lineKeyOf(&ref)] = true
	}
	to := targets{}
	side := func(of *Division, subtract bool, note func(*delta, shareOf)) error {
		var parts divider
		line := &attribution.Line{}
		return of.each(func(p *part) error {
			l := p.allocation
			if !changed[lineKey{l.Line.Issuer, l.Line.Account, l.Line.ID}] {
				return nil
			}
			parts.next(p)
			d := at(keyOf(l))
			if *line != *l.Line {
				copied := *l.Line
				line = &copied
			}
			d.describe(line, p.charge(), to.of(p), l.Hour, of.Methods.Attribution)
			note(d, shareOf{l.Weight, l.Of, l.Line.Billed, l.Line.Effective})
			d.takeHeld(subtract, p)
			return d.take(subtract, l, parts.share, &parts.numbers)
		})
	}
	if err := side(before, true, func(d *delta, s shareOf) { d.before = s }); err != nil {
		return nil, err
	}
	for i := range posted {
		p, err := posted[i].part()
		if err != nil {
			return nil, err
		}
		d := at(keys[i])
		d.describe(p.allocation.Line, p.keptCharge, posted[i].row.target, p.allocation.Hour, posted[i].row.method)
		d.takeHeld(true, p)
		if err := d.take(true, p.allocation, p.allocation.Weight, &p.keptCharge.numbers); err != nil {
			return nil, err
		}
	}
	if err := side(after, false, func(d *delta, s shareOf) { d.after = s }); err != nil {
		return nil, err
	}
	maps.DeleteFunc(deltas, func(_ postingKey, d *delta) bool { return d.billed.IsZero() && d.effective.IsZero() })
	known := map[lineKey]bool{} // lines that were posted before
	for i := range keys {
		known[lineKeyOf(&keys[i].ref)] = true
	}
	type onInvoice struct {
		lineKey
		currency, invoice string
	}
	totals := map[onInvoice]costDelta{} // of each line
	clusters := map[lineKey][]string{}  // that a line moved in
	type onCluster struct {
		lineKey
		cluster string
	}
	seen := map[onCluster]bool{}
	for k, d := range deltas {
		of := lineKeyOf(&k.ref)
		t := totals[onInvoice{of, k.currency, k.invoice}]
		totals[onInvoice{of, k.currency, k.invoice}] = costDelta{t.billed.Add(d.billed), t.effective.Add(d.effective)}
		if in := (onCluster{of, k.ref.Cluster}); !seen[in] {
			seen[in] = true
			clusters[of] = append(clusters[of], k.ref.Cluster)
		}
	}
	causes, events := map[lineKey][]string{}, map[lineKey][]string{}
	out := make([]Posting, 0, len(deltas))
	keys = slices.SortedFunc(maps.Keys(deltas), func(a, b postingKey) int { return a.compare(&b) })
	for i := range keys {
		k, d := &keys[i], deltas[keys[i]]
		of := lineKeyOf(&k.ref)
		was, had := old[of]
		is, has := now[of]
		total := totals[onInvoice{of, k.currency, k.invoice}]
		typ := PostedCorrection
		switch moved := !total.billed.IsZero() || !total.effective.IsZero(); {
		case isAccrual(of.line):
			typ = PostedAccrual
		case !has:
			typ = PostedReversal
		case !moved && before.Methods.Attribution != after.Methods.Attribution:
			typ = PostedMethod
		case !moved:
			typ = PostedReattribution
		case !had && !known[of] && !is.corrects:
			typ = PostedLate
		}
		if _, ok := causes[of]; !ok {
			causes[of] = why.of(of, typ, &movement{
				cmp.Or(is.invoice, was.invoice), clusters[of], [2]string{was.rule, is.rule}, was.shared || is.shared, was.follows || is.follows,
			}, before.Methods, after.Methods)
			events[of] = why.events(causes[of])
		}
		out = append(out, Posting{
			Period: monthText(after.Month), Books: monthText(books), Type: typ, Allocation: k.ref.String(),
			Line: k.ref.Line, Invoice: k.invoice, Hour: k.ref.Hour.String(), Workspace: k.ref.Workspace,
			Cluster: k.ref.Cluster, Deployment: k.ref.Deployment, Component: k.ref.Component.String(),
			Currency: k.currency, Billed: d.billed, Effective: d.effective,
			Rounding: had && has && d.before != shareOf{} && d.before == d.after, Causes: causes[of], Events: events[of],
			row: d.posted(),
		})
	}
	return out, nil
}

// SumPosted sums up postings by currency: those about a workspace, or with "" all.
func SumPosted(all []Posting, workspace string) []PostedSum {
	sums := map[string]PostedSum{}
	for i := range all {
		if p := &all[i]; workspace == "" || p.Workspace == workspace {
			of := sums[p.Currency]
			sums[p.Currency] = PostedSum{p.Currency, of.Postings + 1, of.Billed.Add(p.Billed), of.Effective.Add(p.Effective)}
		}
	}
	out := []PostedSum{}
	for _, currency := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, sums[currency])
	}
	return out
}
