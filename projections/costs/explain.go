package costs

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Explanation traces an allocation to its line, to the usage that it was measured by, and to the
// decisions and versions that divided it.
type Explanation struct {
	Allocation
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Methods  Methods         `json:"methods"`
	Policies []AppliedPolicy `json:"policies"`
	// The allocation gets the share Weight/Of of its line. Of bounds the sum of weights of the
	// line's allocations.
	Weight     attribution.Amount `json:"weight"`
	Of         attribution.Amount `json:"of"`
	WeightUnit string             `json:"weight_unit"` // gpu_ms, money, share or whole
	Why        []string           `json:"why"`         // the class, the match method, the meter and the weight, in words
	// Interval is the part of the charge period that the allocation covers.
	Interval domain.Interval `json:"interval"`
	// Usage is what the weight was measured on: the machines that the line was matched to. It is
	// empty if the weight is not GPU time. The weights of machines add up to Weight, except for
	// Unseen time, which is UnseenMs of Of.
	Usage    []ExplainedUsage `json:"usage"`
	UnseenMs int64            `json:"unseen_gpu_ms"`
	// Followed is what the line followed; null for a line that followed nothing.
	Followed *attribution.Followed `json:"followed"`

	// Charge is the line as the supplier wrote it; null for a rounding adjustment, which is not a
	// supplier's line.
	Charge *domain.BillingLine `json:"charge"`
	Whole  *ExplainedLine      `json:"whole"`
	Event  *LedgerEvent        `json:"event"`         // that recorded the line, or for a rounding adjustment the invoice
	Raw    *RawRow             `json:"raw,omitempty"` // of the event, if it was asked for

	Invoice   *InvoiceReconciliation `json:"invoice_reconciliation"`
	Statement *attribution.Statement `json:"statement"` // that contains the allocation, rounded once
	// Books says who closed the month; then everything is as it was when it was closed.
	Books *ClosedBooks `json:"books,omitempty"`
	registry.Completeness
}

// ExplainedLine is a line as attribution interpreted it.
type ExplainedLine struct {
	Billed      attribution.Amount `json:"billed"`
	Effective   attribution.Amount `json:"effective"`
	Allocations int                `json:"allocations"`
	Corrects    string             `json:"corrects,omitempty"`
	Reason      string             `json:"reason,omitempty"`
	Stated      int                `json:"stated"` // number of statements; the last counts
}

// ExplainedUsage is the weight of one machine in an allocation, and all of its time that the line
// was divided by.
type ExplainedUsage struct {
	Cluster    string `json:"cluster"`
	Node       string `json:"node"`
	Resource   string `json:"resource_id"`
	SKU        string `json:"sku"`
	Registered bool   `json:"registered"`
	GPUMs      int64  `json:"gpu_ms"`
	UsefulMs   int64  `json:"useful_gpu_ms"`
	PeriodMs   int64  `json:"period_gpu_ms"`
}

// ErrNoAllocation is returned for an allocation that a division does not have. The text says what
// exists instead.
var ErrNoAllocation = errors.New("no such allocation")

// roundingAdjustmentPrefix begins the id of the line that attribution adds for the rounding of an
// invoice.
const roundingAdjustmentPrefix = "invoice:"

// Explain divides the month of an allocation, and explains the allocation. If several months have
// the line, the last of them that has the allocation counts.
//
// closed, if not nil, is asked first about each of these months. It returns the explanation of what
// was kept, or nil if the month is open or has no such allocation.
func Explain(view projections.View, ref attribution.Ref, closed func(domain.Interval) (*Explanation, error)) (*Explanation, error) {
	var missing error
	for source, err := range allocationSources(view, ref) {
		if err != nil {
			return nil, err
		}
		if closed != nil {
			if x, err := closed(source.month); x != nil || err != nil {
				return x, err
			}
		}
		x, err := explainIn(view, ref, source)
		if !errors.Is(err, ErrNoAllocation) {
			return x, err
		}
		missing = cmp.Or(missing, err)
	}
	return nil, missing
}

// explainIn explains an allocation in one month.
func explainIn(view projections.View, ref attribution.Ref, from *allocationSource) (*Explanation, error) {
	b, err := openBooks(view, from.month)
	if err != nil {
		return nil, err
	}
	whole := from.whole
	others := []string{}
	at, prices, traced := part{books: b}, pricing{}, priced{}
	result, err := b.divideSeen(&ref, func(l *attribution.Allocation) error {
		if l.Line.ID != ref.Line || l.Line.Account != ref.Account || l.Line.Issuer != ref.Issuer {
			return nil
		}
		whole.Billed, whole.Effective = whole.Billed.Add(l.Billed), whole.Effective.Add(l.Effective)
		whole.Allocations++
		at.allocation = l
		if prices.price(&at); l.Ref() == ref.String() {
			traced = at.priced
		}
		if len(others) < offeredAllocations {
			others = append(others, l.Ref())
		}
		return nil
	}, nil)
	switch {
	case err != nil:
		return nil, err
	case result.Trace == nil && whole.Allocations == 0:
		return nil, fmt.Errorf("%w: line %q cannot be divided, see the exceptions of %s",
			ErrNoAllocation, ref.Line, monthText(from.month))
	case result.Trace == nil:
		return nil, fmt.Errorf("%w: line %q has %d allocations, such as\n  %s",
			ErrNoAllocation, ref.Line, whole.Allocations, strings.Join(others, "\n  "))
	}
	allocation := &result.Trace.Allocation
	line := allocation.Line
	at.allocation, at.priced = allocation, traced
	x := &Explanation{
		Allocation: newAllocation(&at), Position: view.Position().String(), Month: from.month,
		Methods: costMethods, Policies: b.policies,
		Weight: allocation.Weight, Of: allocation.Of, Why: []string{}, Interval: line.ChargePeriod, Usage: []ExplainedUsage{},
		UnseenMs: result.Trace.UnseenMs, Followed: result.Trace.Followed, Charge: from.charge, Whole: &whole, Event: &from.event,
	}
	if x.Interval.Empty() {
		x.Interval = x.Month
	}
	if allocation.Hour != 0 {
		x.Interval = x.Interval.Intersect(domain.Interval{From: allocation.Hour, To: allocation.Hour + domain.Hour})
	}
	x.reconcile(allocation, b.reconciliations(result), result.Statements)
	for _, m := range result.Trace.Machines {
		n := &b.nodes[m.Node]
		x.Usage = append(x.Usage, ExplainedUsage{
			Cluster: n.Cluster, Node: n.Node, Resource: n.Resource, SKU: n.SKU, Registered: n.Registered,
			GPUMs: m.WeightMs, UsefulMs: m.UsefulMs, PeriodMs: m.PeriodMs,
		})
	}
	x.reasons(result.Trace)
	x.Completeness, err = registry.CompletenessOf(view, "", "", x.Month, costTopics...)
	return x, err
}

// reconcile adds the invoice of the allocation's line, and the statement that contains the allocation.
func (x *Explanation) reconcile(l *attribution.Allocation, invoices []InvoiceReconciliation, statements []attribution.Statement) {
	line := l.Line
	for i := range invoices {
		t := &invoices[i]
		if t.Issuer == line.Issuer && t.Account == line.Account && t.Invoice == line.Invoice &&
			t.Currency == line.Currency && (t.Invoice != "" || t.Period == line.BillingPeriod) {
			x.Invoice = t
		}
	}
	for i := range statements {
		s := &statements[i]
		if in := x.Invoice; in != nil && s.Workspace == l.Workspace && s.Issuer == in.Issuer &&
			s.Account == in.Account && s.Invoice == in.Invoice && s.Currency == in.Currency && s.Period == in.Period {
			x.Statement = s
		}
	}
}

// offeredAllocations is the number of allocations that an error lists.
const offeredAllocations = 8

// allocationSource is a line, or the invoice of a rounding adjustment, in one month.
type allocationSource struct {
	month  domain.Interval
	event  LedgerEvent
	charge *domain.BillingLine // nil for a rounding adjustment
	whole  ExplainedLine
}

// allocationSources yields where an allocation may be, last month first. For a rounding adjustment, the invoice's own
// month comes before all others. If it is nowhere, it yields an error that says what there is.
func allocationSources(view projections.View, ref attribution.Ref) iter.Seq2[*allocationSource, error] {
	return func(yield func(*allocationSource, error) bool) {
		found, err := eachSource(view, ref, func(s *allocationSource) bool { return yield(s, nil) })
		if err == nil && !found {
			err = noSource(view, ref)
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func eachSource(view projections.View, ref attribution.Ref, yield func(*allocationSource) bool) (found bool, err error) {
	scope := domain.AccountKey(ref.Issuer, ref.Account)
	months, err := BillingMonths(view)
	if err != nil {
		return false, err
	}
	for _, month := range slices.Backward(months) {
		k := projections.Key{Table: projections.TableBillingLines, Scope: scope, ID: ref.Line, Hour: projections.MonthStart(month.From)}
		row, err := view.Get(k)
		if err != nil {
			return found, fmt.Errorf("read billing line %q: %w", ref.Line, err)
		}
		h, ok := row.(*projections.History)
		if !ok {
			continue
		}
		if line := ledgerLine(k, h); line != nil {
			found = true
			if !yield(&allocationSource{month, line.Event, &line.BillingLine, ExplainedLine{Corrects: line.Corrects, Reason: line.Reason, Stated: line.Stated}}) {
				return true, nil
			}
		}
	}
	invoice, roundingAdjustment := strings.CutPrefix(ref.Line, roundingAdjustmentPrefix)
	if !roundingAdjustment {
		return found, nil
	}
	k := projections.Key{Table: projections.TableInvoices, Scope: scope, ID: invoice}
	row, err := view.Get(k)
	if err != nil {
		return found, fmt.Errorf("read invoice %q: %w", invoice, err)
	}
	h, ok := row.(*projections.History)
	if !ok {
		return found, nil
	}
	v := h.Latest()
	own := projections.MonthOf(v.Event.(*domain.InvoiceReceived).BillingPeriod)
	if !yield(&allocationSource{month: own, event: ledgerEvent(k, v)}) {
		return true, nil
	}
	named := map[int64]bool{} // other months with lines that name the invoice
	err = view.Scan(projections.Query{Table: projections.TableBillingLines, Scope: scope}, func(k projections.Key, row projections.Row) error {
		if k.Scope != scope || k.Hour == projections.MonthStart(own.From) { // an empty scope selects all
			return nil
		}
		if line := ledgerLine(k, row.(*projections.History)); line != nil && line.InvoiceID == invoice {
			named[k.Hour] = true
		}
		return nil
	})
	if err != nil {
		return true, fmt.Errorf("read billing lines: %w", err)
	}
	for _, month := range slices.Backward(months) {
		if named[projections.MonthStart(month.From)] && !yield(&allocationSource{month: month, event: ledgerEvent(k, v)}) {
			break
		}
	}
	return true, nil
}

// noSource says what there is instead of a line, at the first step that fails.
func noSource(view projections.View, ref attribution.Ref) error {
	scope := domain.AccountKey(ref.Issuer, ref.Account)
	var some, accounts []string
	lines := 0
	err := view.Scan(projections.Query{Table: projections.TableBillingLines}, func(k projections.Key, _ projections.Row) error {
		if n := len(accounts); n == 0 || accounts[n-1] != k.Scope {
			accounts = append(accounts, k.Scope)
		}
		if k.Scope != scope {
			return nil
		}
		if lines++; len(some) < offeredAllocations {
			some = append(some, k.ID)
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("read billing lines: %w", err)
	case len(accounts) == 0:
		return fmt.Errorf("%w: there is no billing line yet", ErrNoAllocation)
	case lines > 0:
		return fmt.Errorf("%w: issuer %q and account %q have %d lines and none is %q; such as %s",
			ErrNoAllocation, ref.Issuer, ref.Account, lines, ref.Line, strings.Join(some, ", "))
	}
	return fmt.Errorf("%w: no line of issuer %q and account %q; there are: %s",
		ErrNoAllocation, ref.Issuer, ref.Account, strings.Join(accounts[:min(len(accounts), offeredAllocations)], ", "))
}

// reasons explains the division in words.
func (x *Explanation) reasons(t *attribution.Trace) {
	l := &t.Allocation
	for _, reason := range []struct{ what, of, why string }{
		{"class", l.Line.Class.String(), t.ClassReason},
		{"match method", l.MatchMethod.String(), t.MatchReason},
		{"meter", l.Line.Meter.String(), t.MeterReason},
	} {
		if reason.why != "" {
			x.Why = append(x.Why, fmt.Sprintf("%s %s: %s", reason.what, reason.of, reason.why))
		}
	}
	switch {
	case l.MatchMethod == attribution.ByResource || l.MatchMethod == attribution.ByPool || l.MatchMethod == attribution.ByAccount:
		x.WeightUnit = "gpu_ms"
		x.Why = append(x.Why, fmt.Sprintf("weight: %s of %s GPU milliseconds in the charge period were %s", l.Weight, l.Of, held(l)))
	case l.Component == attribution.TaxRecoverable:
		x.WeightUnit = "money"
		x.Why = append(x.Why, fmt.Sprintf("weight: %s of %s of billed tax is recoverable, and is no cost", l.Weight, l.Of))
	case l.Line.TaxRule != "" && l.Of == l.Line.Billed.Abs():
		x.WeightUnit = "money"
		x.Why = append(x.Why, fmt.Sprintf("weight: %s of %s of billed tax; some of the tax is recoverable, and for nobody", l.Weight, l.Of))
	case t.Followed != nil:
		x.WeightUnit = "money"
		x.Why = append(x.Why, fmt.Sprintf("weight: what it follows cost %s %s, of which %s for this",
			l.Of, l.Line.Currency, l.Weight))
		if f := t.Followed; f.Effective != f.Billed {
			x.Why = append(x.Why, fmt.Sprintf("the effective part follows the effective cost of the same charges, in sum %s %s", f.Effective, l.Line.Currency))
		}
	case l.Component == attribution.SharedCost && l.Of != l.Weight:
		x.WeightUnit = "share"
		x.Why = append(x.Why, fmt.Sprintf("weight: %s of %s is for %s", l.Weight, l.Of, l.Workspace))
	case l.Component == attribution.UnusedCommitment && l.Of != l.Weight:
		x.WeightUnit = "share"
		x.Why = append(x.Why, fmt.Sprintf("weight: %s owns %s of the commitment, as fixed at its purchase", l.Workspace, l.Weight))
	default:
		x.WeightUnit = "whole"
		x.Why = append(x.Why, fmt.Sprintf("weight: %s is charged for all of it", l.Workspace))
	}
}

// held describes the state of an allocation's time.
func held(l *attribution.Allocation) string {
	switch l.Component {
	case attribution.Allocated:
		return "held by " + l.Workspace
	case attribution.Unseen:
		return "bought beyond what was in service"
	default:
		return l.Component.String()
	}
}
