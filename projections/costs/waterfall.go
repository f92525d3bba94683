package costs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// waterfallLevels are the levels of a waterfall from the total down to allocations.
var waterfallLevels = []Dimension{ByComponent, ByCluster, ByDeployment}

// WaterfallOf returns the query of a month for a waterfall of a workspace, whose deepest steps list
// up to largest allocations. A report by more dimensions, or of all workspaces and by workspace,
// works as well.
func WaterfallOf(month domain.Interval, workspace string, ledger Ledger, largest int) Query {
	return Query{Month: month, Workspace: workspace, By: slices.Clone(waterfallLevels), Largest: largest, LargestBy: ledger}
}

// WaterfallQuery selects a waterfall from two reports.
type WaterfallQuery struct {
	Workspace string
	Ledger    Ledger // for the order, shares and changes; "" is Effective
}

// Waterfall explains to a workspace what it is charged for in a month, step by step: by component,
// then by cluster, then by deployment, largest first, and finally the largest allocations, which
// [Explain] traces to their lines.
//
// What always holds, for each currency: the parts of a step add up to it, exactly and in minor
// units, in this month and in the month before, and so do their changes; and the first step is what
// [NewReport] says that the workspace is charged.
type Waterfall struct {
	Position  string          `json:"position"`
	Month     domain.Interval `json:"period"`
	Workspace string          `json:"workspace"`
	Ledger    Ledger          `json:"ledger"` // effective or billed: for shares and changes
	// Before is the month compared with; null if it has no bills.
	Before     *domain.Interval `json:"before"`
	Methods    Methods          `json:"methods"`
	Currencies []Step           `json:"currencies"` // the totals, by currency
	Generated  bool             `json:"generated"`  // some of the input is synthetic, and no supplier sent it
	registry.Completeness
}

// Step is a part of a waterfall with its own parts.
type Step struct {
	Level Dimension `json:"level,omitempty"` // "" for the total
	Name  string    `json:"name"`            // the value in that dimension
	Cost
	// Share is the percentage of the total in the ledger of the waterfall, rounded to two places,
	// half away from zero; null if the total is 0.
	Share *domain.Decimal `json:"share_percent"`
	// Before is the same step in the month before; null if that month has no bills. A step that did
	// not exist then cost 0.
	Before *Cost  `json:"before"`
	Change Change `json:"change"`
	// Steps are ordered by amount, largest first, then by the amount before, then by name.
	Steps []Step `json:"steps,omitempty"`
	// Allocations is the number of allocations in the step this month. Largest are the
	// largest of them, for a step without further steps, as far as the report has them.
	Allocations int          `json:"allocations"`
	Largest     []Allocation `json:"largest,omitempty"`
}

// Change is this month less the month before, in the ledger of the waterfall.
type Change struct {
	Amount *attribution.Amount `json:"amount"`       // null without bills of the month before
	Minor  *attribution.Minor  `json:"amount_minor"` // the difference of both in minor units
	// Percent is the change in percent of the amount before, rounded to two places, half away from
	// zero. It is null if undefined, and PercentAbsent says why.
	Percent       *domain.Decimal `json:"percent"`
	PercentAbsent Absent          `json:"percent_absent,omitempty"`
}

// Why a change in percent is undefined.
const (
	NoBillsBefore   Absent = "no bills before"   // the month before has none
	NothingBefore   Absent = "nothing before"    // it cost 0 in the month before
	BelowZeroBefore Absent = "below zero before" // the month before had a net refund
)

// ErrNotComparable is returned for reports that cannot form a waterfall. The text says why. Make
// the reports with [WaterfallOf].
var ErrNotComparable = errors.New("no waterfall can be made of these reports")

// NewWaterfall explains a workspace's month by its report and by that of the month before, which
// may be nil. It does not change the reports.
func NewWaterfall(this, before *Report, q WaterfallQuery) (*Waterfall, error) {
	switch q.Ledger {
	case "":
		q.Ledger = Effective
	case Effective, Billed:
	default:
		return nil, fmt.Errorf("waterfall in ledger %q: want %s or %s", q.Ledger, Effective, Billed)
	}
	if q.Workspace == "" {
		return nil, fmt.Errorf("%w: they are of one workspace, and none is named", ErrNotComparable)
	}
	for _, r := range []*Report{this, before} {
		if err := q.fits(r); err != nil {
			return nil, err
		}
	}
	w := &Waterfall{
		Position: this.Position, Month: this.Month, Workspace: q.Workspace, Ledger: q.Ledger, Methods: this.Methods,
		Currencies: []Step{}, Generated: this.Generated, Completeness: this.Completeness,
	}
	if before != nil {
		if before.Month != projections.BillingMonth(this.Month.From-1) || before.Position != this.Position {
			return nil, fmt.Errorf("%w: %s at %s is not the month before %s at %s",
				ErrNotComparable, monthText(before.Month), before.Position, monthText(this.Month), this.Position)
		}
		w.Generated = w.Generated || before.Generated
		w.Incomplete, w.Missing = max(w.Incomplete, before.Incomplete), max(w.Missing, before.Missing)
		if before.Billed() {
			w.Before = &before.Month
		}
	}
	trees := map[string]*branch{} // by currency
	q.grow(trees, this, false)
	if w.Before != nil {
		q.grow(trees, before, true)
	}
	for _, currency := range slices.Sorted(maps.Keys(trees)) {
		t := trees[currency]
		t.round(this.charged(q.Workspace, currency, &t.now), false)
		if w.Before != nil {
			t.round(before.charged(q.Workspace, currency, &t.before), true)
		}
		w.Currencies = append(w.Currencies, t.step(&q, w.Before != nil, t.now.amount(q.Ledger)))
	}
	return w, nil
}

// fits returns an error for a report without the necessary data.
func (q *WaterfallQuery) fits(r *Report) error {
	if r == nil {
		return nil
	}
	if r.Workspace != q.Workspace && (r.Workspace != "" || !slices.Contains(r.By, ByWorkspace)) {
		return fmt.Errorf("%w: that of %s is of workspace %q, want %q or all by workspace",
			ErrNotComparable, monthText(r.Month), r.Workspace, q.Workspace)
	}
	if len(r.Where) > 0 {
		return fmt.Errorf("%w: that of %s is narrowed, and statements are of the whole", ErrNotComparable, monthText(r.Month))
	}
	for _, d := range waterfallLevels {
		if !slices.Contains(r.By, d) {
			return fmt.Errorf("%w: that of %s is not by %s", ErrNotComparable, monthText(r.Month), d)
		}
	}
	return nil
}

// branch is a step while it is being summed.
type branch struct {
	level       int // 0 for the whole, else of waterfallLevels
	name        string
	now, before Cost
	allocations int
	largest     []Allocation
	next        map[string]*branch
}

// grow adds the groups of a report to the tree of their currency.
func (q *WaterfallQuery) grow(trees map[string]*branch, r *Report, before bool) {
	for i := range r.Groups {
		g := &r.Groups[i]
		if r.Workspace == "" && g.Key[ByWorkspace] != q.Workspace {
			continue
		}
		b := trees[g.Currency]
		if b == nil {
			b = &branch{now: Cost{Currency: g.Currency}, before: Cost{Currency: g.Currency}}
			trees[g.Currency] = b
		}
		for level := 0; ; level++ {
			if before {
				b.before.sum(&g.Cost)
			} else {
				b.now.sum(&g.Cost)
				b.allocations += g.Allocations
			}
			if level == len(waterfallLevels) {
				break
			}
			name := g.Key[waterfallLevels[level]]
			b = b.child(name)
		}
		if !before {
			b.keep(g.Largest, q.Ledger)
		}
	}
}

// child returns the branch of a name. It creates the branch on first use.
func (b *branch) child(name string) *branch {
	n := b.next[name]
	if n == nil {
		if b.next == nil {
			b.next = map[string]*branch{}
		}
		n = &branch{level: b.level + 1, name: name, now: Cost{Currency: b.now.Currency}, before: Cost{Currency: b.now.Currency}}
		b.next[name] = n
	}
	return n
}

// keep merges the largest allocations of a group. A step may have several groups; it keeps as many
// allocations as the group with the most.
func (b *branch) keep(largest []Allocation, of Ledger) {
	n := max(len(b.largest), len(largest))
	b.largest = append(slices.Clone(b.largest), largest...)
	slices.SortStableFunc(b.largest, func(x, y Allocation) int { return y.size(of).Cmp(x.size(of)) })
	b.largest = b.largest[:min(n, len(b.largest))]
}

// size is the magnitude of an allocation.
func (l *Allocation) size(of Ledger) attribution.Amount {
	if of == Billed {
		return l.Billed.Abs()
	}
	return l.Effective.Abs()
}

// charged returns what a workspace pays for a month: the sum of its statements, and its rounded
// effective cost.
func (r *Report) charged(workspace, currency string, exact *Cost) Cost {
	paid := attribution.Amount{}
	for i := range r.Statements {
		if s := &r.Statements[i]; s.Workspace == workspace && s.Currency == currency {
			paid = paid.Add(s.Amount.Amount)
		}
	}
	return Cost{BilledMinor: paid.Minor(currency), EffectiveMinor: exact.Effective.Minor(currency)}
}

// cost returns the cost of a branch in one of the two months.
func (b *branch) cost(before bool) *Cost {
	if before {
		return &b.before
	}
	return &b.now
}

// branches returns the children of a branch by name.
func (b *branch) branches() []*branch {
	all := make([]*branch, 0, len(b.next))
	for _, name := range slices.Sorted(maps.Keys(b.next)) {
		all = append(all, b.next[name])
	}
	return all
}

// round sets the minor units of a branch, and rounds its children so that they add up to them.
func (b *branch) round(to Cost, before bool) {
	c := b.cost(before)
	c.BilledMinor, c.EffectiveMinor = to.BilledMinor, to.EffectiveMinor
	c.finish()
	all := b.branches()
	var costs []*Cost
	var billed, effective []attribution.Amount
	for _, n := range all {
		part := n.cost(before)
		costs, billed, effective = append(costs, part), append(billed, part.Billed), append(effective, part.Effective)
	}
	foot(costs, billed, effective, c)
	for _, n := range all {
		n.round(*n.cost(before), before)
	}
}

// step makes a step of a branch, as a part of the total.
func (b *branch) step(q *WaterfallQuery, compared bool, whole attribution.Amount) Step {
	s := Step{Name: b.name, Cost: b.now, Allocations: b.allocations, Share: percent(b.now.amount(q.Ledger), whole)}
	if b.level > 0 {
		s.Level = waterfallLevels[b.level-1]
	}
	s.Change.PercentAbsent = NoBillsBefore
	if compared {
		s.Before = &b.before
		s.Change = changeOf(&b.now, &b.before, q.Ledger)
	}
	for _, n := range b.branches() {
		s.Steps = append(s.Steps, n.step(q, compared, whole))
	}
	slices.SortStableFunc(s.Steps, func(x, y Step) int {
		if c := y.amount(q.Ledger).Cmp(x.amount(q.Ledger)); c != 0 || !compared {
			return cmp.Or(c, strings.Compare(x.Name, y.Name))
		}
		return cmp.Or(y.Before.amount(q.Ledger).Cmp(x.Before.amount(q.Ledger)), strings.Compare(x.Name, y.Name))
	})
	if len(b.next) == 0 {
		s.Largest = b.largest
	}
	return s
}

func changeOf(now, before *Cost, of Ledger) Change {
	amount, minor := now.amount(of).Sub(before.amount(of)), now.minor(of).Sub(before.minor(of))
	c := Change{Amount: &amount, Minor: &minor}
	switch before.amount(of).Sign() {
	case 0:
		c.PercentAbsent = NothingBefore
	case -1:
		c.PercentAbsent = BelowZeroBefore
	default:
		c.Percent = percent(amount, before.amount(of))
	}
	return c
}

// percent returns part as a percentage of whole, nil if whole is 0.
func percent(part, whole attribution.Amount) *domain.Decimal {
	if whole.IsZero() {
		return nil
	}
	p := part.Decimal().Mul(decimal.NewFromInt(100)).DivRound(whole.Decimal(), 2)
	return &p
}
