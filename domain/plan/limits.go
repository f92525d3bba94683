package plan

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Limit is a hard quota: what some workspaces together may hold of GPUs, in all pools of a question that it
// names. Demand beyond it is not planned for.
type Limit struct {
	ID         string
	Workspaces []string // that of the quota, and those below it
	Region     string   // "": every region
	Model      string   // GPU model; "": every model
	GPUs       domain.Decimal
}

// capped is the demand of workspaces under limits, beside the rest of a pool's demand.
type capped struct {
	parts [][]int64 // thousandths of a unit by hour, of each workspace
	caps  []bound   // those of few workspaces before those of many
}

// bound is a limit of the sum of parts, in thousandths of a unit.
type bound struct {
	parts []int
	most  int64
}

// inOrder are limits in the order in which they apply: those of few workspaces first.
func inOrder(limits []Limit) []Limit {
	return slices.SortedFunc(slices.Values(limits), func(a, b Limit) int {
		return cmp.Or(cmp.Compare(len(a.Workspaces), len(b.Workspaces)), cmp.Compare(a.ID, b.ID), a.GPUs.Cmp(b.GPUs))
	})
}

// holds reports whether a limit is about the GPUs of a pool.
func (l *Limit) holds(p *Pool) bool {
	return (l.Region == "" || l.Region == p.Region) && (l.Model == "" || l.Model == p.Model())
}

// limit applies each limit of a pool to its observed demand alone. gpus are those of a machine.
func (h *history) limit(p *Pool, limits []Limit, gpus int) {
	if h.kept != nil || len(limits) == 0 {
		return
	}
	names := p.workspaces()
	x := &capped{}
	for _, l := range inOrder(limits) {
		if !l.holds(p) {
			continue
		}
		most := l.GPUs
		if !p.inGPUs() {
			if gpus == 0 {
				continue
			}
			most = most.Div(decimal.NewFromInt(int64(gpus))).Truncate(0)
		}
		b := bound{most: clampedDecimal(most.Shift(3))}
		for j, name := range names {
			if slices.Contains(l.Workspaces, name) {
				b.parts = append(b.parts, j)
			}
		}
		if len(b.parts) == 0 {
			continue
		}
		x.caps = append(x.caps, b)
		h.notes = append(h.notes, fmt.Sprintf("the hard quota %s lets %s hold %s GPUs: demand beyond that is not planned for",
			l.ID, listed(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(l.Workspaces, n) })), l.GPUs))
	}
	if len(x.caps) == 0 {
		return
	}
	x.parts = h.byWorkspace(names)
	h.kept = x
}

// workspaces are those with demand in a pool, in order.
func (p *Pool) workspaces() []string {
	var names []string
	for i := range p.Series {
		names = append(names, p.Series[i].Workspace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// byWorkspace is the observed demand of workspaces.
func (h *history) byWorkspace(names []string) [][]int64 {
	out := make([][]int64, len(names))
	for j, name := range names {
		out[j] = make([]int64, len(h.milli))
		for i := range h.series {
			if s := &h.series[i]; s.Workspace == name {
				s.addTo(out[j], h.from)
			}
		}
	}
	return out
}

// consumer reports whether a pool's GPUs are sold for desktops. No machine of those is shared by
// workspaces: they isolate nothing, neither memory nor faults.
func (p *Pool) consumer() bool {
	m, ok := domain.LookupGPU(p.Model())
	return ok && m.Consumer
}

// separate keeps the demand of workspaces apart where they may not share machines.
func (h *history) separate(p *Pool) {
	names := p.workspaces()
	if !p.inGPUs() || !p.consumer() || len(names) < 2 {
		return
	}
	if h.kept == nil {
		h.kept = &capped{parts: h.byWorkspace(names)}
	}
	h.tenants = len(names)
	h.notes = append(h.notes, fmt.Sprintf("%s is a consumer card: no machine is shared by workspaces, so that the demand of "+
		"each of %d is rounded up to whole machines", p.Model(), len(names)))
}

// within is the demand in each hour that limits allow, before a growth by factor.
func (h *history) within(factor int64) []int64 {
	if h.kept == nil {
		return h.milli
	}
	out := make([]int64, len(h.milli))
	for _, part := range h.parts(factor) {
		for at, v := range part {
			if out[at] += v; out[at] < 0 {
				out[at] = 1<<63 - 1
			}
		}
	}
	return out
}

// parts is the demand of each workspace in each hour that limits allow, before a growth by factor.
func (h *history) parts(factor int64) [][]int64 {
	out := make([][]int64, len(h.kept.parts))
	for j := range out {
		out[j] = slices.Clone(h.kept.parts[j])
	}
	for _, b := range h.kept.caps {
		high, low := bits.Mul64(uint64(b.most), grown)
		if high >= uint64(factor) {
			continue // beyond 64 bits
		}
		q, _ := bits.Div64(high, low, uint64(factor))
		for at := range h.milli {
			left := int64(min(q, 1<<62))
			for _, j := range b.parts {
				out[j][at] = min(out[j][at], left)
				left -= out[j][at]
			}
		}
	}
	return out
}

// apart is the demand that shares machines, by workspace if none may, in each hour.
func (h *history) apart(factor int64) [][]int64 {
	if h.tenants > 1 {
		return h.parts(factor)
	}
	return [][]int64{h.within(factor)}
}

// everything is the least limit that bounds all demand of a pool, −1 if none does.
func (h *history) everything() int64 {
	most := int64(-1)
	if h.kept != nil {
		for _, b := range h.kept.caps {
			if len(b.parts) == len(h.kept.parts) && (most < 0 || b.most < most) {
				most = b.most
			}
		}
	}
	return most
}

// week is the history of one week of it.
func (h *history) week(from int) *history {
	out := *h
	out.limited = nil
	out.milli, out.from = h.milli[from:from+week], h.from+domain.Instant(from)*domain.Hour
	if h.kept != nil {
		out.kept = &capped{caps: h.kept.caps}
		for _, p := range h.kept.parts {
			out.kept.parts = append(out.kept.parts, p[from:from+week])
		}
	}
	return &out
}

// Model is the GPU model of a pool, "" if it is not known. Machines have the GPUs of the first of their
// offers that names some.
func (p *Pool) Model() string {
	if p.inGPUs() {
		return p.Kind
	}
	for i := range p.Offers {
		if p.Offers[i].GPUModel != "" {
			return p.Offers[i].GPUModel
		}
	}
	return ""
}

func clampedDecimal(d domain.Decimal) int64 {
	d = decimal.Max(decimal.Zero, decimal.Min(d, decimal.New(1, 15)))
	return d.IntPart()
}
