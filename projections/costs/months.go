package costs

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/dimension"
	"quartermaster/projections/registry"
	"quartermaster/projections/usage"
)

// MonthsQuery is a query for the costs of several billing months. Its fields are as in [Query].
type MonthsQuery struct {
	Months    []domain.Interval // billing months, one after the other
	Workspace string
	By        []Dimension
	Currency  string
	Where     []dimension.Condition
	Under     string // see [MonthsQuery.Resolve]
	// Compare also returns what each group cost before: in the month before if groups are by month, in the quarter
	// before if they are by quarter, else in as many months before. Hours and days have no such counterpart.
	Compare bool
	// Back is how many months before a month is compared with, instead of that; 0 for that.
	Back int
}

// Resolve is [Query.Resolve].
func (q MonthsQuery) Resolve(v projections.View) (_ MonthsQuery, err error) {
	q.Where, err = access.Under(v, q.Under, q.Where, ByWorkspace)
	q.Under = ""
	return q, err
}

// MonthsReport is the costs of several billing months, each divided as a [Report] of it says. Rates are those of the
// sums; they are never added up.
type MonthsReport struct {
	Position  string                `json:"position"`
	Months    []MonthOf             `json:"months"`
	Workspace string                `json:"workspace,omitempty"` // restricts groups and totals
	By        []Dimension           `json:"by"`
	Where     []dimension.Condition `json:"where,omitempty"` // restricts groups and totals
	Groups    []MonthsGroup         `json:"groups"`          // by their keys, in the order of By, then currency
	Totals    []MonthsCost          `json:"totals"`          // one for each currency
	// Compared are the months that groups are compared with; absent if they are not.
	Compared []MonthOf `json:"compared_with,omitempty"`
	// Coverage is the share of held time with measured activity in per mille, as in [Report].
	Coverage *int64 `json:"activity_coverage_permille"`
	// UnreconciledCount is the number of invoices and lines of all months that do not reconcile.
	UnreconciledCount int `json:"unreconciled_count"`
	registry.Completeness
}

// MonthOf says how a month was divided.
type MonthOf struct {
	Month        domain.Interval `json:"period"`
	Methods      Methods         `json:"methods"`
	Policies     []AppliedPolicy `json:"policies"`
	Books        *ClosedBooks    `json:"books,omitempty"` // absent while the month is open
	Generated    bool            `json:"generated"`       // some of the input is synthetic
	Lines        int             `json:"lines"`
	Allocations  int             `json:"allocations"`
	Unreconciled []Unreconciled  `json:"unreconciled"`
	Exceptions   int             `json:"exceptions"`
	Translation  *Translation    `json:"translation,omitempty"` // as in [Report]
}

// MonthsGroup is the cost of one group.
type MonthsGroup struct {
	Key map[Dimension]string `json:"key"`
	MonthsCost
	Allocations int `json:"allocations"`
}

// MonthsCost is a cost, compared with the one before if that was asked for.
type MonthsCost struct {
	Cost
	Before *CostBefore `json:"before,omitempty"`
}

// CostBefore is what a group cost before, and the difference: what it costs now less that.
type CostBefore struct {
	Billed              attribution.Amount `json:"billed"`
	Effective           attribution.Amount `json:"effective"`
	Bought              int64              `json:"bought_gpu_ms"`
	Allocated           int64              `json:"allocated_gpu_ms"`
	BilledDifference    attribution.Amount `json:"billed_difference"`
	EffectiveDifference attribution.Amount `json:"effective_difference"`
	// Change is EffectiveDifference / Effective, rounded half away from zero to six places; null if nothing or a
	// credit was charged before.
	Change *domain.Decimal `json:"effective_change"`
}

func before(now, then *Cost) *CostBefore {
	b := &CostBefore{
		Billed: then.Billed, Effective: then.Effective, Bought: then.Bought, Allocated: then.Allocated,
		BilledDifference: now.Billed.Sub(then.Billed), EffectiveDifference: now.Effective.Sub(then.Effective),
	}
	if then.Effective.Sign() > 0 {
		change := b.EffectiveDifference.Decimal().DivRound(then.Effective.Decimal(), 6)
		b.Change = &change
	}
	return b
}

// Months adds up billing months. Its size grows with groups, not with months, except for statements. Give it each of
// [Months.Needed] once, with [Months.Add] or [Months.Divide].
type Months struct {
	query      *MonthsQuery
	shift      int // how many months before a month is compared with
	now, then  *sums
	months     []MonthOf
	compared   []MonthOf
	statements []attribution.Statement
	held       HeldTime
}

// NewMonths returns an empty sum. It returns an error for a query that cannot be answered.
func NewMonths(q MonthsQuery) (*Months, error) {
	if len(q.Months) == 0 {
		return nil, errors.New("costs of several months: name the months")
	}
	for i, m := range q.Months {
		if m != projections.BillingMonth(m.From) || i > 0 && m.From != q.Months[i-1].To {
			return nil, fmt.Errorf("costs of several months: %v is not a month after the one before", m)
		}
	}
	m := &Months{query: &q, shift: len(q.Months)}
	of := Query{Workspace: q.Workspace, By: q.By, Where: q.Where}
	var err error
	if m.now, err = newSums(&of); err != nil {
		return nil, err
	}
	if !q.Compare {
		return m, nil
	}
	for _, d := range []Dimension{ByHour, ByDay} {
		if slices.Contains(q.By, d) {
			return nil, fmt.Errorf("costs by %s cannot be compared with the %ss of another month", d, d)
		}
	}
	switch {
	case q.Back > 0:
		m.shift = q.Back
	case slices.Contains(q.By, ByMonth):
		m.shift = 1
	case slices.Contains(q.By, ByQuarter):
		m.shift = 3
	}
	m.then, err = newSums(&of)
	return m, err
}

// Needed returns the months to add, in order.
func (m *Months) Needed() []domain.Interval {
	needed := slices.Clone(m.query.Months)
	if m.then != nil {
		for _, month := range m.query.Months {
			if earlier := MonthsAfter(month, -m.shift); earlier.From > 0 && !slices.Contains(needed, earlier) {
				needed = append(needed, earlier)
			}
		}
	}
	slices.SortFunc(needed, func(a, b domain.Interval) int { return int((a.From - b.From) / domain.Day) })
	return needed
}

// MonthsAfter returns the month that is n months after another one.
func MonthsAfter(month domain.Interval, n int) domain.Interval {
	return projections.BillingMonth(domain.InstantOf(month.From.Time().AddDate(0, n, 0)))
}

// monthSums are sums that a month is added to, and the month in whose place it is there.
type monthSums struct {
	*sums
	as domain.Instant
}

// of returns the sums that a month is added to.
func (m *Months) of(month domain.Interval) (to []monthSums) {
	if slices.Contains(m.query.Months, month) {
		to = append(to, monthSums{m.now, month.From})
	}
	if later := MonthsAfter(month, m.shift); m.then != nil && slices.Contains(m.query.Months, later) {
		to = append(to, monthSums{m.then, later.From})
	}
	return to
}

// add returns the function that adds the allocations of a month.
func (m *Months) add(month domain.Interval) func(*part) error {
	to := m.of(month)
	return func(p *part) error {
		of := p.month
		for _, s := range to {
			p.month = s.as
			s.add(p)
		}
		p.month = of
		return nil
	}
}

// Add adds a divided month, which may be translated.
func (m *Months) Add(d *Division) error {
	to := m.of(d.Month)
	kept, err := d.sum(m.now.query, func(p *part, c *Cost, n int) error {
		for _, s := range to {
			p.month = s.as
			s.addSum(p, c, n)
		}
		return nil
	})
	if err == nil && !kept {
		err = d.each(m.add(d.Month))
	}
	if err != nil {
		return err
	}
	m.added(d)
	return nil
}

// Divide divides a month and adds it, without keeping its allocations.
func (m *Months) Divide(view projections.View, month domain.Interval) error {
	d, err := divide(view, month, m.add(month))
	if err != nil {
		return err
	}
	m.added(d)
	return nil
}

func (m *Months) added(d *Division) {
	of := MonthOf{
		Month: d.Month, Methods: d.Methods, Policies: d.Policies, Books: d.closed, Generated: d.Generated, Lines: d.Lines,
		Allocations: d.Allocations, Unreconciled: orEmpty(d.Unreconciled()), Exceptions: len(d.Exceptions),
		Translation: d.rates.Translation(),
	}
	if m.then != nil && slices.Contains(m.query.Months, MonthsAfter(d.Month, m.shift)) {
		m.compared = append(m.compared, of)
	}
	if !slices.Contains(m.query.Months, d.Month) {
		return
	}
	m.months = append(m.months, of)
	for _, s := range d.Statements {
		if m.query.Workspace == "" || m.query.Workspace == s.Workspace {
			m.statements = append(m.statements, s)
		}
	}
	for _, h := range d.Held {
		if m.query.Workspace == "" || m.query.Workspace == h.Workspace {
			m.held.HeldMs, m.held.MeasuredMs = m.held.HeldMs+h.HeldMs, m.held.MeasuredMs+h.MeasuredMs
		}
	}
}

// Report answers the query, at the position of the view from which the months are.
func (m *Months) Report(view projections.View) (*MonthsReport, error) {
	q := m.query
	r := &MonthsReport{
		Position: view.Position().String(), Months: m.months, Compared: m.compared, Workspace: q.Workspace,
		By: append([]Dimension{}, q.By...), Where: q.Where, Groups: []MonthsGroup{}, Totals: []MonthsCost{},
	}
	span := domain.Interval{From: q.Months[0].From, To: q.Months[len(q.Months)-1].To}
	var err error
	if r.Completeness, err = registry.CompletenessOf(view, "", "", span, costTopics...); err != nil {
		return nil, err
	}
	if m.held.HeldMs > 0 {
		coverage := usage.Permille(m.held.MeasuredMs, m.held.HeldMs)
		r.Coverage = &coverage
	}
	rounded := Report{By: q.By, Where: q.Where, Statements: m.statements}
	for i := range m.months {
		r.UnreconciledCount += len(m.months[i].Unreconciled)
		rounded.Translation = m.months[i].Translation
	}
	if m.then != nil {
		for k := range m.then.groups { // what costs nothing any more is a group too
			if m.now.groups[k] == nil {
				m.now.groups[k] = &groupSum{Cost: Cost{Currency: k.currency}}
			}
		}
		for currency := range m.then.totals {
			if m.now.totals[currency] == nil {
				m.now.totals[currency] = &Cost{Currency: currency}
			}
		}
	}
	var keys []costKey
	m.now.each(func(k *costKey, g Group) {
		keys = append(keys, *k)
		rounded.Groups = append(rounded.Groups, g)
	})
	for _, currency := range slices.Sorted(maps.Keys(m.now.totals)) {
		m.now.totals[currency].finish()
		rounded.Totals = append(rounded.Totals, *m.now.totals[currency])
	}
	rounded.roundMinor()
	for i := range rounded.Groups {
		g := &rounded.Groups[i]
		of := MonthsGroup{Key: g.Key, MonthsCost: MonthsCost{Cost: g.Cost}, Allocations: g.Allocations}
		if m.then != nil {
			then := m.then.groups[keys[i]]
			if then == nil {
				then = &groupSum{}
			}
			of.Before = before(&g.Cost, &then.Cost)
		}
		r.Groups = append(r.Groups, of)
	}
	for i := range rounded.Totals {
		of := MonthsCost{Cost: rounded.Totals[i]}
		if m.then != nil {
			then := m.then.totals[of.Currency]
			if then == nil {
				then = &Cost{}
			}
			of.Before = before(&of.Cost, then)
		}
		r.Totals = append(r.Totals, of)
	}
	return r, nil
}
