package costs

import (
	"cmp"
	"fmt"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/dimension"
)

// Allocation is one line's part for one hour, workspace, cluster, deployment and component, as it
// is listed. [Explain] explains it.
type Allocation struct {
	Allocation  string                  `json:"allocation"` // see [attribution.Allocation.Ref]
	Line        string                  `json:"line"`
	Invoice     string                  `json:"invoice"`
	Hour        domain.Instant          `json:"hour"` // empty: the whole charge period
	Workspace   string                  `json:"workspace"`
	Cluster     string                  `json:"cluster"`
	Node        string                  `json:"node"` // as cluster/node; mixed if it was on several
	Unit        string                  `json:"unit"` // pod or job that held it; mixed for several
	Deployment  string                  `json:"deployment"`
	Component   attribution.Component   `json:"component"`
	Class       attribution.Class       `json:"class"`
	MatchMethod attribution.MatchMethod `json:"match_method"`
	Model       string                  `json:"model"`         // declared for the deployment; or none, unknown or mixed
	GPUModel    string                  `json:"gpu_model"`     // or unknown or mixed; see [attribution.Hardware]
	Billing     domain.BillingModel     `json:"billing_model"` // or unknown or mixed
	Currency    string                  `json:"currency"`
	Billed      attribution.Amount      `json:"billed"`
	Effective   attribution.Amount      `json:"effective"`
	List        *attribution.Amount     `json:"list"`       // at list price; null if the line does not state it
	Contracted  *attribution.Amount     `json:"contracted"` // at contracted price; null alike
	Bought      int64                   `json:"bought_gpu_ms"`
	Allocated   int64                   `json:"allocated_gpu_ms"`
	Measured    int64                   `json:"measured_gpu_ms"` // the part with measured activity
	Useful      *int64                  `json:"useful_gpu_ms"`   // null if it was held and not measured
	Generated   bool                    `json:"generated"`       // its line is synthetic
}

func newAllocation(p *part) Allocation {
	l := p.allocation
	a := Allocation{
		Allocation: l.Ref(), Line: l.Line.ID, Invoice: l.Line.Invoice, Hour: l.Hour,
		Workspace: l.Workspace, Cluster: l.Cluster, Node: p.node(), Unit: p.unit(), Deployment: l.Deployment,
		Component: l.Component, Class: l.Line.Class, MatchMethod: l.MatchMethod,
		Model: p.model(), GPUModel: cmp.Or(l.Hardware.GPUModel, dimension.Unknown), Billing: cmp.Or(l.Hardware.Billing, dimension.Unknown),
		Currency: l.Line.Currency, Billed: l.Billed, Effective: l.Effective,
		Bought: l.BoughtMs, Allocated: l.AllocatedMs, Measured: l.MeasuredMs,
		Useful: usefulOf(l.AllocatedMs, l.MeasuredMs, l.UsefulMs), Generated: l.Line.Generated,
	}
	if p.priced.hasList {
		list := p.priced.list
		a.List = &list
	}
	if p.priced.hasContracted {
		contracted := p.priced.contracted
		a.Contracted = &contracted
	}
	return a
}

// AllocationFilter selects allocations; empty fields match all. With a condition of a unit or a machine it selects
// what these have of each allocation.
type AllocationFilter struct {
	Workspace string
	Line      string // its id, or as groups name it: issuer|account|id, with a bar within the first two as \|
	Where     []dimension.Condition
}

func (f *AllocationFilter) accepts(l *attribution.Allocation) bool {
	return (f.Workspace == "" || l.Workspace == f.Workspace) &&
		(f.Line == "" || l.Line.ID == f.Line ||
			strings.HasSuffix(f.Line, l.Line.ID) && f.Line == ledgerName(l.Line.Issuer, l.Line.Account, l.Line.ID))
}

// picking returns a function that passes the allocations that the filter selects to yield.
func (f *AllocationFilter) picking(yield func(*Allocation) error) (func(*part) error, error) {
	picker, err := dimensions.Picker(f.Where)
	if err != nil {
		return nil, fmt.Errorf("allocations where %v: %w", f.Where, err)
	}
	divided := byHolder(nil, f.Where)
	var some selection
	return func(p *part) error {
		switch {
		case !f.accepts(p.allocation):
			return nil
		case divided:
			if some.selecting(p, picker.Picks); !some.some {
				return nil
			}
			p = &some.part
		case !picker.Picks(p):
			return nil
		}
		allocation := newAllocation(p)
		return yield(&allocation)
	}, nil
}

// EachAllocation calls yield with every allocation of a month that the filter selects, in the order
// of [attribution.Run], until yield returns an error.
func EachAllocation(
	view projections.View, month domain.Interval, filter AllocationFilter, yield func(*Allocation) error,
) error {
	pick, err := filter.picking(yield)
	if err != nil {
		return err
	}
	b, err := openBooks(view, month)
	if err != nil {
		return err
	}
	at := part{books: b, month: month.From}
	var prices pricing
	_, err = b.divide(func(l *attribution.Allocation) error {
		at.allocation = l
		prices.price(&at)
		return pick(&at)
	})
	return err
}
