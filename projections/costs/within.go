package costs

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/registry"
)

// narrowed are the allocations of a division that a scope sees, without the supplier's lines and without machines: those
// of one hour, target and unit are one. A target is without how its line was matched.
type narrowed struct {
	key  narrowedKey
	cost attribution.Allocation
}

type narrowedKey struct {
	hour     domain.Instant
	currency string
	period   domain.Interval // that is billed
	unit     string
	target   target
}

func (k *narrowedKey) compare(l *narrowedKey) int {
	a, b := &k.target, &l.target
	return cmp.Or(
		cmp.Compare(k.hour, l.hour), strings.Compare(a.workspace, b.workspace), strings.Compare(a.cluster, b.cluster),
		strings.Compare(a.deployment, b.deployment), cmp.Compare(a.component, b.component),
		strings.Compare(a.hardware.GPUModel, b.hardware.GPUModel), strings.Compare(k.currency, l.currency),
		strings.Compare(a.place.model, b.place.model), strings.Compare(a.place.workload, b.place.workload),
		strings.Compare(a.place.region, b.place.region), strings.Compare(a.place.provider, b.place.provider),
		strings.Compare(a.place.providerClass, b.place.providerClass), strings.Compare(a.place.owner, b.place.owner),
		strings.Compare(a.place.costCentre, b.place.costCentre), strings.Compare(a.place.entity, b.place.entity),
		cmp.Compare(k.period.From, l.period.From), cmp.Compare(k.period.To, l.period.To), strings.Compare(k.unit, l.unit),
	)
}

// Within returns what a narrowed view sees of a division of all rows: the allocations of workspaces of its scope, added
// up over the lines of each hour, what was held, and statements without their invoices. Each sum is what the division
// has for these workspaces, digit for digit. Of the supplier's side nothing is left: lines and prices, matches,
// invoices, commitments, exceptions. The division is returned as it is if the view is not narrowed.
func (d *Division) Within(view projections.View) (*Division, error) {
	lens, is := access.Of(view)
	if !is {
		return d, nil
	}
	scope := lens.Scope()
	in := &Division{
		Summary: Summary{
			Format: d.Format, Month: d.Month, Methods: d.Methods, Policies: []AppliedPolicy{}, Rules: []AppliedRule{},
			Matches: []attribution.Matched{}, Statements: []attribution.Statement{}, Commitments: []attribution.CommitmentUse{},
			Invoices: []InvoiceReconciliation{}, Exceptions: []attribution.Exception{}, Held: []HeldTime{}, Unregistered: []string{},
		},
		position: view.Position().String(), narrowed: []narrowed{}, scoped: true,
	}
	var err error
	if in.completeness, err = registry.CompletenessOf(view, "", "", d.Month, costTopics...); err != nil {
		return nil, err
	}
	if d.closed != nil {
		in.closed = &ClosedBooks{Closed: d.closed.Closed, Position: d.closed.Position, Digest: d.closed.Digest}
	}
	for _, h := range d.Held {
		if scope.Sees(h.Workspace, "") {
			in.Held = append(in.Held, h)
		}
	}
	in.Statements = statementsWithin(scope, d.Statements)
	sums := map[narrowedKey]*attribution.Allocation{}
	err = d.each(func(p *part) error {
		l := p.allocation
		if !scope.Sees(l.Workspace, l.Cluster) {
			return nil
		}
		in.Generated = in.Generated || l.Line.Generated
		k := narrowedKey{hour: l.Hour, currency: l.Line.Currency, period: l.Line.BillingPeriod, target: p.target()}
		k.target.method, k.target.hardware = 0, attribution.Hardware{GPUModel: l.Hardware.GPUModel}
		return p.divide(func(p *part) error {
			l := p.allocation
			k.unit = p.unit()
			sum := sums[k]
			if sum == nil {
				sum = &attribution.Allocation{Holders: heldBy(k.unit)}
				sums[k] = sum
			}
			sum.Billed, sum.Effective = sum.Billed.Add(l.Billed), sum.Effective.Add(l.Effective)
			sum.BoughtMs, sum.AllocatedMs = sum.BoughtMs+l.BoughtMs, sum.AllocatedMs+l.AllocatedMs
			sum.UsefulMs, sum.MeasuredMs = sum.UsefulMs+l.UsefulMs, sum.MeasuredMs+l.MeasuredMs
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b narrowedKey) int { return a.compare(&b) }) {
		in.narrowed = append(in.narrowed, narrowed{k, *sums[k]})
	}
	in.Allocations = len(in.narrowed)
	in.bytes = len(in.narrowed) * bytesOfNarrowed
	return in, nil
}

// heldBy returns the holders of what one unit held.
func heldBy(unit string) *attribution.Holders {
	if unit == "" {
		return nil
	}
	return attribution.HoldersOf([]attribution.Holder{{Unit: unit, Micros: 1}})
}

// bytesOfNarrowed is about the memory of a narrowed allocation; its texts are shared.
const bytesOfNarrowed = 720

// statementsWithin adds up what each workspace that is seen pays, over the invoices.
func statementsWithin(scope *access.Scope, all []attribution.Statement) []attribution.Statement {
	type of struct{ workspace, currency string }
	sums := map[of]attribution.Statement{}
	for _, s := range all {
		if scope.Sees(s.Workspace, "") {
			k := of{s.Workspace, s.Currency}
			sums[k] = attribution.Statement{
				Workspace: s.Workspace, Currency: s.Currency, Billed: sums[k].Billed.Add(s.Billed), Amount: s.Amount.Add(sums[k].Amount),
			}
		}
	}
	out := []attribution.Statement{}
	for _, k := range slices.SortedFunc(maps.Keys(sums), func(a, b of) int {
		return cmp.Or(strings.Compare(a.workspace, b.workspace), strings.Compare(a.currency, b.currency))
	}) {
		out = append(out, sums[k])
	}
	return out
}

// eachNarrowed calls yield with the allocations that a scope sees.
func (d *Division) eachNarrowed(yield func(*part) error) error {
	for i := range d.narrowed {
		n := &d.narrowed[i]
		l := n.cost
		l.Line = &attribution.Line{Currency: n.key.currency, BillingPeriod: n.key.period, Generated: d.Generated}
		l.Hour = n.key.hour
		p := part{allocation: &l, month: d.Month.From, keptCharge: noCharge}
		n.key.target.set(&p)
		if err := yield(&p); err != nil {
			return err
		}
	}
	return nil
}

// noteWithin is the note of a report of a narrowed division.
const noteWithin = "groups, totals and statements are what your workspaces are charged; what is about the supplier's bills is not shown"
