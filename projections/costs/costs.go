package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/usage"
)

// Dimension is what costs are grouped by.
type Dimension string

// The dimensions. Workspace may be one of the platform's accounts. Region is
// the cluster's, else the line's. Day and hour are empty where a line's charge
// period was not spread over time.
const (
	ByWorkspace   Dimension = "workspace"
	ByComponent   Dimension = "component"
	ByClass       Dimension = "class"
	ByCluster     Dimension = "cluster"
	ByDeployment  Dimension = "deployment"
	ByRegion      Dimension = "region"
	ByInvoice     Dimension = "invoice"
	ByLine        Dimension = "line"
	ByDay         Dimension = "day"
	ByHour        Dimension = "hour"
	ByMatchMethod Dimension = "match_method"
)

// Dimensions returns every dimension.
func Dimensions() []Dimension {
	return []Dimension{
		ByWorkspace, ByComponent, ByClass, ByCluster, ByDeployment, ByRegion,
		ByInvoice, ByLine, ByDay, ByHour, ByMatchMethod,
	}
}

// Query is what is asked of the books.
type Query struct {
	// Month is the billing period: see [projections.MonthOf].
	Month domain.Interval
	// Workspace narrows groups, totals and statements to what one workspace
	// carries. What reconciles with the supplier's figures (invoices, commitments,
	// matches, exceptions) stays whole, because a part of a bill reconciles with nothing.
	Workspace string
	By        []Dimension
}

// Cost is money in the two ledgers, exact, with the GPU time that it bought, in
// milliseconds of a whole GPU.
type Cost struct {
	Currency  string             `json:"currency"`  // ISO 4217
	Billed    attribution.Amount `json:"billed"`    // reconciles with invoices
	Effective attribution.Amount `json:"effective"` // reconciles with commitments over their term
	Bought    int64              `json:"bought_gpu_ms"`
	Allocated int64              `json:"allocated_gpu_ms"`
	Useful    int64              `json:"useful_gpu_ms"`
	// PerUseful is Effective per hour of Useful, rounded half away from zero to
	// six places; null where nothing useful was done.
	PerUseful *domain.Decimal `json:"effective_per_useful_gpu_hour"`
}

// Group is the cost of one group. Key has a value for each dimension that
// was asked for.
type Group struct {
	Key map[Dimension]string `json:"key"`
	Cost
}

// Report is a billing month divided among those who used what was billed.
//
// Billed and effective are two ledgers. What was billed adds up to the lines of
// the bill and the rounding adjustments of its invoices, and reconciles with totals that were
// received apart from them. What was consumed (effective) spreads commitments
// over their terms.
type Report struct {
	Position  string          `json:"position"`
	Month     domain.Interval `json:"period"`
	Workspace string          `json:"workspace,omitempty"` // that groups, totals and statements are narrowed to
	Note      string          `json:"note,omitempty"`      // what stays whole beside that
	Methods   Methods         `json:"methods"`
	Policies  []AppliedPolicy `json:"policies"`
	By        []Dimension     `json:"by"`
	Groups    []Group         `json:"groups"` // by their keys, in the order of By, then currency
	Totals    []Cost          `json:"totals"` // one for each currency
	// What each workspace carries of each invoice, rounded once to what can be
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
	Allocations       int                         `json:"allocations"`
	Generated         bool                        `json:"generated"` // something of it was made by a generator, and no supplier sent it
	registry.Completeness
}

// Methods are the versions that computed a report.
type Methods struct {
	Folds       string `json:"folds"`
	Attribution string `json:"attribution"`
}

var costMethods = Methods{Folds: projections.Method, Attribution: attribution.Method}

// checkDimensions refuses what costs cannot be grouped by.
func checkDimensions(by []Dimension) error {
	for i, d := range by {
		if !slices.Contains(Dimensions(), d) {
			return fmt.Errorf("costs by %q: want some of %v", d, Dimensions())
		}
		if slices.Contains(by[:i], d) {
			return fmt.Errorf("costs by %q twice", d)
		}
	}
	return nil
}

// costKey is a group's key with no more in it than was asked for.
type costKey struct {
	workspace, cluster, deployment, region, issuer, account, invoice, line, currency string

	component attribution.Component
	class     attribution.Class
	method    attribution.MatchMethod
	hour      domain.Instant // 0: not spread over time
}

func (k *costKey) value(d Dimension) string {
	switch d {
	case ByWorkspace:
		return k.workspace
	case ByComponent:
		return k.component.String()
	case ByClass:
		return k.class.String()
	case ByCluster:
		return k.cluster
	case ByDeployment:
		return k.deployment
	case ByRegion:
		return k.region
	case ByInvoice:
		return ledgerName(k.issuer, k.account, k.invoice)
	case ByLine:
		return ledgerName(k.issuer, k.account, k.line)
	case ByMatchMethod:
		return k.method.String()
	case ByDay:
		if k.hour != 0 {
			return k.hour.Time().Format(time.DateOnly)
		}
	case ByHour:
		return k.hour.String()
	}
	return ""
}

func (k *costKey) compare(l *costKey, d Dimension) int {
	switch d {
	case ByComponent:
		return cmp.Compare(k.component, l.component)
	case ByClass:
		return cmp.Compare(k.class, l.class)
	case ByMatchMethod:
		return cmp.Compare(k.method, l.method)
	case ByDay, ByHour:
		return cmp.Compare(k.hour, l.hour)
	default:
		return strings.Compare(k.value(d), l.value(d))
	}
}

func (c *Cost) add(l *attribution.Allocation) {
	c.Billed, c.Effective = c.Billed.Add(l.Billed), c.Effective.Add(l.Effective)
	c.Bought += l.BoughtMs
	c.Allocated += l.AllocatedMs
	c.Useful += l.UsefulMs
}

func (c *Cost) finish() {
	if c.Useful != 0 {
		rate := c.Effective.Decimal().Mul(decimal.NewFromInt(projections.MsPerHour)).DivRound(decimal.NewFromInt(c.Useful), 6)
		c.PerUseful = &rate
	}
}

// NewReport divides a billing month. Its memory follows lines, nodes and groups;
// hours of usage pass through it.
func NewReport(view projections.View, q Query) (*Report, error) {
	if err := checkDimensions(q.By); err != nil {
		return nil, err
	}
	b, err := openBooks(view, q.Month)
	if err != nil {
		return nil, err
	}
	groups, totals := map[costKey]*Cost{}, map[string]*Cost{}
	var last costKey
	var sum, total *Cost
	var held, known int64
	result, err := b.divideSeen(nil, func(l *attribution.Allocation) error {
		if q.Workspace != "" && l.Workspace != q.Workspace {
			return nil
		}
		k := b.key(l, q.By)
		if sum == nil || k != last {
			if sum = groups[k]; sum == nil {
				sum = &Cost{Currency: k.currency}
				groups[k] = sum
			}
			if total = totals[k.currency]; total == nil {
				total = &Cost{Currency: k.currency}
				totals[k.currency] = total
			}
			last = k
		}
		sum.add(l)
		total.add(l)
		return nil
	}, func(h *attribution.NodeHour) {
		for i := range h.Parts {
			if p := &h.Parts[i]; p.Component == attribution.Allocated && (q.Workspace == "" || p.Workspace == q.Workspace) {
				held += p.GPUMs
				known += p.KnownMs
			}
		}
	})
	if err != nil {
		return nil, err
	}
	if err := b.changedAfterBill(); err != nil {
		return nil, err
	}
	r := &Report{
		Position: view.Position().String(), Month: q.Month, Workspace: q.Workspace, Methods: costMethods, Policies: b.policies,
		By: append([]Dimension{}, q.By...), Groups: make([]Group, 0, len(groups)), Totals: []Cost{},
		Statements: []attribution.Statement{}, Invoices: b.reconciliations(result), Commitments: orEmpty(result.Commitments),
		Matches: orEmpty(result.Matches), Exceptions: b.findings(result), Lines: result.Lines, Allocations: result.Allocations, Generated: b.generated,
	}
	if q.Workspace != "" {
		r.Note = "groups, totals and statements are what " + q.Workspace + " carries; invoices, commitments, matches, exceptions, lines and leaves are of the whole period"
	}
	if held > 0 {
		coverage := usage.Permille(known, held)
		r.Coverage = &coverage
	}
	for _, s := range result.Statements {
		if q.Workspace == "" || s.Workspace == q.Workspace {
			r.Statements = append(r.Statements, s)
		}
	}
	r.Unreconciled = unreconciled(r.Invoices, r.Exceptions)
	r.UnreconciledCount = len(r.Unreconciled)
	r.groups(groups, totals)
	r.Completeness, err = registry.CompletenessOf(view, "", "", q.Month, costTopics...)
	return r, err
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

// groups enters what was added up, in order.
func (r *Report) groups(groups map[costKey]*Cost, totals map[string]*Cost) {
	keys := make([]costKey, 0, len(groups))
	for k := range groups {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b costKey) int {
		for _, d := range r.By {
			if c := a.compare(&b, d); c != 0 {
				return c
			}
		}
		return strings.Compare(a.currency, b.currency)
	})
	for _, k := range keys {
		g := Group{Key: make(map[Dimension]string, len(r.By)), Cost: *groups[k]}
		for _, d := range r.By {
			g.Key[d] = k.value(d)
		}
		g.finish()
		r.Groups = append(r.Groups, g)
	}
	for _, currency := range slices.Sorted(maps.Keys(totals)) {
		totals[currency].finish()
		r.Totals = append(r.Totals, *totals[currency])
	}
}
