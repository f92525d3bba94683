package costs

import (
	"cmp"
	"slices"
	"strings"

	"quartermaster/domain/attribution"
)

// unitColumn is a column of what units cost.
type unitColumn struct {
	Column
	of func(*unitKey, *figures) string
}

func unitText(name, doc string, of func(*unitKey) string) unitColumn {
	return unitColumn{Column{name, KindText, doc}, func(k *unitKey, _ *figures) string { return of(k) }}
}

func unitTime(name, doc string, at int) unitColumn {
	return unitColumn{Column{name, KindDecimal, doc}, func(_ *unitKey, f *figures) string { return GPUSeconds(f.ms[at]) }}
}

// unitColumns are the columns of what units cost, in order.
var unitColumns = []unitColumn{
	unitText("x_WorkspaceId", "Workspace that is charged, or an account of the platform.", func(k *unitKey) string { return k.workspace }),
	unitText("x_ClusterId", "Cluster.", func(k *unitKey) string { return k.cluster }),
	unitText("x_DeploymentId", "Deployment that held what was paid for.", func(k *unitKey) string { return k.deployment }),
	unitText("x_Component", "What became of what was paid for: allocated, idle, failed and so on.",
		func(k *unitKey) string { return k.component.String() }),
	unitText("x_UnitId", "Pod or job that held what was paid for; null for none.", func(k *unitKey) string { return k.unit }),
	unitText("x_NodeId", "Machine that was paid for, as cluster/node; null for none.", func(k *unitKey) string { return k.node }),
	unitText("BillingCurrency", "Currency, ISO 4217.", func(k *unitKey) string { return k.currency }),
	{Column{"BilledCost", KindDecimal, "What it costs in the ledger that reconciles with invoices."},
		func(_ *unitKey, f *figures) string { return f.billed.String() }},
	{Column{"EffectiveCost", KindDecimal, "What it costs in the ledger that reconciles with commitments."},
		func(_ *unitKey, f *figures) string { return f.effective.String() }},
	unitTime("x_GpuSecondsBought", "GPU time that was bought, in seconds of whole GPUs.", 0),
	unitTime("x_GpuSecondsAllocated", "The part of it with a holder.", 1),
	unitTime("x_GpuSecondsMeasured", "The part of that with measured activity.", 3),
	unitTime("x_GpuSecondsUseful", "Measured time times activity.", 2),
}

// UnitColumns are the columns of what units cost.
func UnitColumns() []Column {
	columns := make([]Column, len(unitColumns))
	for i := range unitColumns {
		columns[i] = unitColumns[i].Column
	}
	return columns
}

// unitKey is what is added up to one row.
type unitKey struct {
	workspace, cluster, deployment, unit, node, currency string
	component                                            attribution.Component
}

func (k *unitKey) compare(o *unitKey) int {
	return cmp.Or(
		strings.Compare(k.workspace, o.workspace), strings.Compare(k.cluster, o.cluster), strings.Compare(k.deployment, o.deployment),
		cmp.Compare(k.component, o.component), strings.Compare(k.unit, o.unit), strings.Compare(k.node, o.node),
		strings.Compare(k.currency, o.currency),
	)
}

// mostUnits is how many rows of units are added up before they are passed on, so that memory does not grow with pods.
const mostUnits = 100_000

// unitSums adds up what units cost.
type unitSums struct {
	sums  map[unitKey]*figures
	yield func(row []string) error
	row   []string
}

func (u *unitSums) add(p *part) error {
	return p.divide(func(p *part) error {
		l := p.allocation
		k := unitKey{l.Workspace, l.Cluster, l.Deployment, p.unit(), p.node(), l.Line.Currency, l.Component}
		f := u.sums[k]
		if f == nil {
			if len(u.sums) >= mostUnits {
				if err := u.flush(); err != nil {
					return err
				}
			}
			f = &figures{}
			u.sums[k] = f
		}
		f.billed, f.effective = f.billed.Add(l.Billed), f.effective.Add(l.Effective)
		for i, ms := range [...]int64{l.BoughtMs, l.AllocatedMs, l.UsefulMs, l.MeasuredMs} {
			f.ms[i] += ms
		}
		return nil
	})
}

// flush passes on what was added up, in order.
func (u *unitSums) flush() error {
	keys := make([]unitKey, 0, len(u.sums))
	for k := range u.sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b unitKey) int { return a.compare(&b) })
	for i := range keys {
		u.row = u.row[:0]
		for j := range unitColumns {
			u.row = append(u.row, unitColumns[j].of(&keys[i], u.sums[keys[i]]))
		}
		if err := u.yield(u.row); err != nil {
			return err
		}
	}
	clear(u.sums)
	return nil
}

// Units calls yield with rows of what each pod or job costs on each machine, by workspace, cluster, deployment and
// component, until yield returns an error. A row has a cell for each of [UnitColumns], "" for null, and is reused. A
// large month may have several rows of one kind, which add up.
func (d *Division) Units(yield func(row []string) error) error {
	u := unitSums{sums: map[unitKey]*figures{}, yield: yield}
	if err := d.each(u.add); err != nil {
		return err
	}
	return u.flush()
}

// PostedUnits is [Division.Units] of one posting: what it changes.
func PostedUnits(of *Posting, yield func(row []string) error) error {
	p, err := of.part()
	if err != nil {
		return err
	}
	u := unitSums{sums: map[unitKey]*figures{}, yield: yield}
	if err := u.add(p); err != nil {
		return err
	}
	return u.flush()
}
