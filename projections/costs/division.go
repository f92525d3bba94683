package costs

import (
	"errors"
	"fmt"
	"unsafe"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/usage"
)

// Division is a divided billing month at a position, with all allocations. It answers each [Query]
// and [AllocationFilter] of the month. It holds for every position at which what it read is the same:
// see [Division.At]. It is safe for concurrent use.
type Division struct {
	position     string
	books        *books
	result       *attribution.Result
	invoices     []InvoiceReconciliation
	exceptions   []attribution.Exception
	held         map[string]heldTime // by workspace
	completeness registry.Completeness
	allocations  []attribution.Allocation
	bytes        int
	reads        *projections.Reads // all but completeness
}

// heldTime is GPU time with a holder, and the part of it with measured activity.
type heldTime struct{ heldMs, measuredMs int64 }

// ErrTooLarge is returned for a month that takes more memory than allowed.
var ErrTooLarge = errors.New("the month is too large to keep")

// Divide divides a month and keeps all allocations. It returns [ErrTooLarge] if they take more than
// most bytes.
func Divide(view projections.View, month domain.Interval, most int) (*Division, error) {
	var allocations []attribution.Allocation
	var line *attribution.Line
	bytes := 0
	recorded, reads := projections.Record(view)
	d, err := divide(recorded, month, func(p *part) error {
		l := *p.allocation
		if line == nil || *line != *l.Line {
			copied := *l.Line
			line = &copied
			bytes += int(unsafe.Sizeof(copied)) + len(copied.ID)
		}
		l.Line = line
		allocations = append(allocations, l)
		if bytes += int(unsafe.Sizeof(l)); bytes > most {
			return ErrTooLarge
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.allocations, d.bytes = allocations, bytes+len(d.books.nodes)*int(unsafe.Sizeof(attribution.Node{}))
	d.books.view = nil // the rows may change after this
	d.reads = reads
	return d.At(view)
}

// Reads returns what the division was computed from. While their inputs are the same, so is the
// division, except for position and completeness.
func (d *Division) Reads() *projections.Reads { return d.reads }

// At returns the division at the position of a view in which the inputs of its Reads are the same.
func (d *Division) At(view projections.View) (*Division, error) {
	at := *d
	at.position = view.Position().String()
	var err error
	at.completeness, err = registry.CompletenessOf(view, "", "", d.books.month, costTopics...)
	return &at, err
}

// divide divides a month and calls each with every allocation, which is reused after each returns.
// Its memory grows with lines and nodes; hours of usage are streamed. It sets neither position nor
// completeness.
func divide(view projections.View, month domain.Interval, each func(*part) error) (*Division, error) {
	b, err := openBooks(view, month)
	if err != nil {
		return nil, err
	}
	d := &Division{books: b, held: map[string]heldTime{}}
	at := part{books: b}
	d.result, err = b.divideSeen(nil, func(l *attribution.Allocation) error {
		at.allocation = l
		return each(&at)
	}, func(h *attribution.NodeHour) {
		for i := range h.Parts {
			if p := &h.Parts[i]; p.Component == attribution.Allocated {
				of := d.held[p.Workspace]
				d.held[p.Workspace] = heldTime{of.heldMs + p.GPUMs, of.measuredMs + p.KnownMs}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if err := b.changedAfterBill(); err != nil {
		return nil, err
	}
	d.invoices, d.exceptions = b.reconciliations(d.result), b.findings(d.result)
	return d, nil
}

// Bytes is the approximate memory of the division, 0 for nil.
func (d *Division) Bytes() int {
	if d == nil {
		return 0
	}
	return d.bytes
}

// Report answers a query of the division's month.
func (d *Division) Report(q Query) (*Report, error) {
	if q.Month != d.books.month {
		return nil, fmt.Errorf("a division of %s is asked about %s", monthText(d.books.month), monthText(q.Month))
	}
	s, err := newSums(&q)
	if err != nil {
		return nil, err
	}
	if err := d.each(func(p *part) error { s.add(p); return nil }); err != nil {
		return nil, err
	}
	return d.report(s), nil
}

// Each calls yield with every allocation that the filter selects, in the order of
// [attribution.Run], until yield returns an error.
func (d *Division) Each(filter AllocationFilter, yield func(*Allocation) error) error {
	pick, err := filter.picking(yield)
	if err != nil {
		return err
	}
	return d.each(pick)
}

func (d *Division) each(yield func(*part) error) error {
	at := part{books: d.books.reader()}
	for i := range d.allocations {
		at.allocation = &d.allocations[i]
		if err := yield(&at); err != nil {
			return err
		}
	}
	return nil
}

// report answers a query from the sums of its allocations.
func (d *Division) report(s *sums) *Report {
	q, result := s.query, d.result
	r := &Report{
		Position: d.position, Month: q.Month, Workspace: q.Workspace, Methods: costMethods, Policies: d.books.policies,
		By: append([]Dimension{}, q.By...), Where: q.Where, Groups: []Group{}, Totals: []Cost{},
		Statements: []attribution.Statement{}, Invoices: d.invoices, Commitments: orEmpty(result.Commitments),
		Matches: orEmpty(result.Matches), Exceptions: d.exceptions, Lines: result.Lines, Allocations: result.Allocations,
		Generated: d.books.generated, Completeness: d.completeness,
	}
	if q.Workspace != "" {
		r.Note = "groups, totals and statements are what " + q.Workspace +
			" is charged; invoices, commitments, matches, exceptions, lines and allocations are of the whole period"
	}
	var held heldTime
	for workspace, of := range d.held {
		if q.Workspace == "" || q.Workspace == workspace {
			held = heldTime{held.heldMs + of.heldMs, held.measuredMs + of.measuredMs}
		}
	}
	if held.heldMs > 0 {
		coverage := usage.Permille(held.measuredMs, held.heldMs)
		r.Coverage = &coverage
	}
	for _, st := range result.Statements {
		if q.Workspace == "" || st.Workspace == q.Workspace {
			r.Statements = append(r.Statements, st)
		}
	}
	r.Unreconciled = unreconciled(r.Invoices, r.Exceptions)
	r.UnreconciledCount = len(r.Unreconciled)
	s.report(r)
	return r
}
