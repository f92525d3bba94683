package costs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"unsafe"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/usage"
)

// Division is a divided billing month at a position, with all allocations: in memory, or in their
// canonical form (see [WriteCanonical]). It answers each [Query] and [AllocationFilter] of the month. It
// holds for every position at which what it read is the same: see [Division.At]. It is safe for
// concurrent use.
type Division struct {
	Summary
	position     string
	completeness registry.Completeness
	books        *books // nil for a canonical form
	allocations  []attribution.Allocation
	canonical    Open
	content      [32]byte // see [Division.Identify]
	bytes        int
	reads        *projections.Reads // all but completeness
	closed       *ClosedBooks       // nil while the month is open
	rates        *Rates             // translate the allocations; nil: they are as billed
	scoped       bool               // only what a scope sees is left; see [Division.Within]
	narrowed     []narrowed         // its allocations
}

// Summary is what a division says besides its allocations.
type Summary struct {
	Format      string                      `json:"format"` // [CanonicalFormat]
	Month       domain.Interval             `json:"month"`
	Methods     Methods                     `json:"methods"`
	Policies    []AppliedPolicy             `json:"policies"`
	Rules       []AppliedRule               `json:"rules"`
	Generated   bool                        `json:"generated"`
	Lines       int                         `json:"lines"`
	Allocations int                         `json:"allocations"`
	Matches     []attribution.Matched       `json:"matches"`
	Statements  []attribution.Statement     `json:"statements"`
	Commitments []attribution.CommitmentUse `json:"commitments"`
	Invoices    []InvoiceReconciliation     `json:"invoices"`
	Exceptions  []attribution.Exception     `json:"exceptions"`
	Held        []HeldTime                  `json:"held"` // by workspace
	// Unregistered are machines that reported without a registration, as cluster/node.
	Unregistered []string `json:"unregistered"`
	// BilledSince is when the month was first billed for an account; 0 if it was not.
	BilledSince domain.Instant `json:"billed_since,omitempty"`
	// Groups are the machines that lines were matched to, by the group of their line, and Machines what their Nodes
	// are indexes into.
	Groups   []attribution.Group `json:"groups"`
	Machines []attribution.Node  `json:"machines"`
	// Shared says whose cost is passed on in views of the month; nil if no policy did.
	Shared *SharedCosts `json:"shared_costs,omitempty"`
}

// HeldTime is the GPU time that a workspace held, and the part of it with measured activity.
type HeldTime struct {
	Workspace  string `json:"workspace"`
	HeldMs     int64  `json:"held_gpu_ms"`
	MeasuredMs int64  `json:"measured_gpu_ms"`
}

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
		if bytes += int(unsafe.Sizeof(l)) + l.Holders.Bytes(); bytes > most {
			return ErrTooLarge
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d.allocations, d.bytes = allocations, bytes+d.books.charges.bytes+len(d.books.nodes)*int(unsafe.Sizeof(attribution.Node{}))
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
	at.completeness, err = registry.CompletenessOf(view, "", "", d.Month, costTopics...)
	return &at, err
}

// Identify notes the SHA-256 of the canonical form that the division was read from.
func (d *Division) Identify(content [32]byte) { d.content = content }

// Same reports whether two divisions are known to have the same allocations: both were read from the same canonical
// form, and are in the same currencies.
func (d *Division) Same(other *Division) bool {
	return d.content != [32]byte{} && d.content == other.content && d.rates == other.rates
}

// Books says who closed the month; nil while it is open.
func (d *Division) Books() *ClosedBooks { return d.closed }

// Unreconciled is empty if every invoice reconciles, and so does every line that names one.
func (s *Summary) Unreconciled() []Unreconciled { return unreconciled(s.Invoices, s.Exceptions) }

// InBooks returns the division as the allocations of closed books.
func (d *Division) InBooks(of *ClosedBooks) *Division {
	closed := *d
	closed.closed = of
	return &closed
}

// divide divides a month and calls each with every allocation, which is reused after each returns.
// Its memory grows with lines and nodes; hours of usage are streamed. It sets neither position nor
// completeness.
func divide(view projections.View, month domain.Interval, each func(*part) error) (*Division, error) {
	b, err := openBooks(view, month)
	if err != nil {
		return nil, err
	}
	d, held := &Division{books: b}, map[string]HeldTime{}
	at := part{books: b, month: month.From}
	var prices pricing
	result, err := b.divideSeen(nil, func(l *attribution.Allocation) error {
		at.allocation = l
		prices.price(&at)
		return each(&at)
	}, func(h *attribution.NodeHour) {
		for i := range h.Parts {
			if p := &h.Parts[i]; p.Component == attribution.Allocated {
				of := held[p.Workspace]
				held[p.Workspace] = HeldTime{p.Workspace, of.HeldMs + p.GPUMs, of.MeasuredMs + p.KnownMs}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if err := b.changedAfterBill(); err != nil {
		return nil, err
	}
	d.Summary = Summary{
		Format: CanonicalFormat, Month: month, Methods: costMethods, Policies: b.policies, Rules: orEmpty(b.applied),
		Generated: b.generated, Lines: result.Lines, Allocations: result.Allocations, Matches: orEmpty(result.Matches),
		Statements: orEmpty(result.Statements), Commitments: orEmpty(result.Commitments),
		Invoices: b.reconciliations(result), Exceptions: b.findings(result), Held: []HeldTime{},
	}
	for _, workspace := range slices.Sorted(maps.Keys(held)) {
		d.Held = append(d.Held, held[workspace])
	}
	d.Unregistered = []string{}
	for i := range b.nodes {
		if n := &b.nodes[i]; !n.Registered {
			d.Unregistered = append(d.Unregistered, n.Cluster+"/"+n.Node)
		}
	}
	d.Unregistered = slices.Compact(d.Unregistered)
	d.matched(b.nodes, result.Groups)
	d.BilledSince, _ = b.billed.first()
	d.Shared = b.shared
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
	if q.Month != d.Month {
		return nil, fmt.Errorf("a division of %s is asked about %s", monthText(d.Month), monthText(q.Month))
	}
	s, err := newSums(&q)
	if err != nil {
		return nil, err
	}
	kept, err := d.sum(&q, func(p *part, c *Cost, n int) error { s.addSum(p, c, n); return nil })
	if err == nil && !kept {
		err = d.each(func(p *part) error { s.add(p); return nil })
	}
	if err != nil {
		return nil, err
	}
	return d.report(s, d.Unreconciled()), nil
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

// eachOfLine is each for the allocations of a line. Others may be among them.
func (d *Division) eachOfLine(issuer, account, line string, yield func(*part) error) error {
	if d.scoped || d.rates != nil || d.canonical == nil {
		return d.each(yield)
	}
	return d.canonical.eachNear(d.Month.From, lineMark(issuer, account, line), yield)
}

func (d *Division) each(yield func(*part) error) error {
	if d.scoped {
		return d.eachNarrowed(yield)
	}
	if d.rates != nil {
		return d.translated(yield)
	}
	if d.canonical != nil {
		return d.canonical.each(d.Month.From, yield)
	}
	at := part{books: d.books.reader(), month: d.Month.From}
	var prices pricing
	for i := range d.allocations {
		at.allocation = &d.allocations[i]
		prices.price(&at)
		if err := yield(&at); err != nil {
			return err
		}
	}
	return nil
}

// report answers a query from the sums of its allocations.
func (d *Division) report(s *sums, unreconciled []Unreconciled) *Report {
	q := s.query
	r := &Report{
		Position: d.position, Month: q.Month, Workspace: q.Workspace, Methods: d.Methods, Policies: d.Policies,
		By: append([]Dimension{}, q.By...), Where: q.Where, Groups: []Group{}, Totals: []Cost{},
		Statements: []attribution.Statement{}, Invoices: d.Invoices, Commitments: d.Commitments,
		Matches: d.Matches, Exceptions: d.Exceptions, Lines: d.Lines, Allocations: d.Allocations,
		Generated: d.Generated, Completeness: d.completeness, Books: d.closed, shared: d.Shared,
	}
	if q.Workspace != "" {
		r.Note = "groups, totals and statements are what " + q.Workspace +
			" is charged; invoices, commitments, matches, exceptions, lines and allocations are of the whole period"
	}
	if d.scoped {
		r.Note = noteWithin
	}
	var held HeldTime
	for _, of := range d.Held {
		if q.Workspace == "" || q.Workspace == of.Workspace {
			held.HeldMs, held.MeasuredMs = held.HeldMs+of.HeldMs, held.MeasuredMs+of.MeasuredMs
		}
	}
	if held.HeldMs > 0 {
		coverage := usage.Permille(held.MeasuredMs, held.HeldMs)
		r.Coverage = &coverage
	}
	for _, st := range d.Statements {
		if q.Workspace == "" || st.Workspace == q.Workspace {
			r.Statements = append(r.Statements, st)
		}
	}
	r.Translation = d.rates.Translation()
	r.Unreconciled = unreconciled
	r.UnreconciledCount = len(r.Unreconciled)
	s.report(r)
	return r
}
