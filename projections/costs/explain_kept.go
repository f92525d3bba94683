package costs

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// ExplainKept explains an allocation from a division, without dividing its month again. It covers time of one machine
// that a line names, and lines that are divided without usage: by commitments, rules and what they follow, and the
// rounding of invoices. The usage of the hour is read from the view, and counts only if it gives the weight of the
// allocation exactly; so do the charges that a line follows. It returns nil for any other allocation that the division
// has, and for a line or invoice that was stated otherwise since: the caller divides then.
func (d *Division) ExplainKept(view projections.View, ref attribution.Ref) (x *Explanation, has bool, err error) {
	k, err := d.find(&ref)
	if k == nil || err != nil {
		return nil, false, err
	}
	x, err = d.explain(view, ref, k)
	return x, true, err
}

func (d *Division) explain(view projections.View, ref attribution.Ref, k *keptLine) (*Explanation, error) {
	line := k.allocation.Line
	if !k.reclaimed.IsZero() {
		if line.TaxRule, k.taxShare = d.taxPolicy(line.Billed, k.reclaimed); line.TaxRule == "" {
			return nil, nil
		}
	}
	sources, err := allocationSources(view, ref)
	if err != nil {
		return nil, nil //nolint:nilerr // the line is gone since
	}
	var from *allocationSource
	for i := range sources {
		if s := &sources[i]; s.month == d.Month && (line.Number == 0 || k.same(s.charge)) {
			from = s
		}
	}
	if from == nil {
		return nil, nil
	}
	if line.Number == 0 {
		if same, err := d.sameInvoice(view, line); !same || err != nil {
			return nil, err
		}
	}
	k.whole.Corrects, k.whole.Reason, k.whole.Stated = from.whole.Corrects, from.whole.Reason, from.whole.Stated
	x := &Explanation{
		Allocation: k.shown, Position: d.position, Month: d.Month, Methods: d.Methods, Policies: d.Policies,
		Weight: k.allocation.Weight, Of: k.allocation.Of, Why: []string{}, Interval: line.ChargePeriod, Usage: []ExplainedUsage{},
		Charge: from.charge, Whole: &k.whole, Event: &from.event, Books: d.closed,
	}
	if x.Interval.Empty() {
		x.Interval = x.Month
	}
	trace := &attribution.Trace{Allocation: k.allocation, ClassReason: line.ClassReason, MeterReason: line.MeterReason}
	switch {
	case line.Number == 0:
		trace.MatchReason = "the invoice and its lines differ by the rounding of the invoice"
	case k.allocation.MatchMethod == attribution.ByResource && k.allocation.Hour != 0:
		x.Interval = x.Interval.Intersect(domain.Interval{From: k.allocation.Hour, To: k.allocation.Hour + domain.Hour})
		used, err := k.usage(view, x.Interval)
		if used == nil || err != nil {
			return nil, err
		}
		x.Usage, x.UnseenMs = []ExplainedUsage{*used}, k.unseen
		trace.MatchReason = fmt.Sprintf("it names %q, which is machine %s/%s", line.Resource, used.Cluster, used.Node)
	default:
		if ok, err := d.matchReason(k, trace); !ok || err != nil {
			return nil, err
		}
		x.Followed = trace.Followed
	}
	x.reconcile(&k.allocation, d.Invoices, d.Statements)
	x.reasons(trace)
	x.Completeness, err = registry.CompletenessOf(view, "", "", x.Month, costTopics...)
	return x, err
}

// keptLine is a line of a division with one of its allocations.
type keptLine struct {
	allocation attribution.Allocation
	shown      Allocation
	whole      ExplainedLine
	unseen     int64              // weight of unseen time, in milliseconds
	reclaimed  attribution.Amount // recoverable tax of the line
	taxShare   attribution.Amount // share of the line that this is
}

// find returns an allocation of a division, nil if it has none of that name.
func (d *Division) find(ref *attribution.Ref) (*keptLine, error) {
	var k *keptLine
	var of keptLine
	name := ref.String()
	err := d.each(func(p *part) error {
		l := p.allocation
		if l.Line.ID != ref.Line || l.Line.Account != ref.Account || l.Line.Issuer != ref.Issuer {
			return nil
		}
		of.whole.Billed, of.whole.Effective = of.whole.Billed.Add(l.Billed), of.whole.Effective.Add(l.Effective)
		of.whole.Allocations++
		if l.Component == attribution.Unseen {
			of.unseen += milliseconds(l.Weight)
		}
		if l.Component == attribution.TaxRecoverable {
			of.reclaimed = of.reclaimed.Add(l.Billed)
		}
		if k == nil && l.Ref() == name {
			of.allocation, of.shown = *l, newAllocation(p)
			line := *l.Line
			of.allocation.Line = &line
			k = &of
		}
		return nil
	})
	return k, err
}

// milliseconds is a weight of GPU time in whole milliseconds.
func milliseconds(weight attribution.Amount) int64 { return weight.Decimal().Round(0).IntPart() }

// same reports whether a line of the ledger is as the division had it.
func (k *keptLine) same(charge *domain.BillingLine) bool {
	if charge == nil {
		return false
	}
	line := k.allocation.Line
	now, err := attribution.LineOf(charge)
	if err != nil {
		return false
	}
	if !k.reclaimed.IsZero() { // the division has the effective cost without recoverable tax
		of := attribution.PortionsOf(now.Effective)
		now.Effective = now.Effective.Sub(of.Next(k.taxShare, attribution.Whole(1)))
	}
	return now.Billed == line.Billed && now.Effective == line.Effective && now.Resource == line.Resource &&
		now.Currency == line.Currency && now.ChargePeriod == line.ChargePeriod && now.Invoice == line.Invoice
}

// sameInvoice reports whether the invoice of a rounding adjustment is as the division had it.
func (d *Division) sameInvoice(view projections.View, line *attribution.Line) (bool, error) {
	row, err := view.Get(projections.Key{Table: projections.TableInvoices, Scope: domain.AccountKey(line.Issuer, line.Account), ID: line.Invoice})
	if err != nil {
		return false, fmt.Errorf("read invoice %q: %w", line.Invoice, err)
	}
	h, ok := row.(*projections.History)
	if !ok {
		return false, nil
	}
	in := h.Latest().Event.(*domain.InvoiceReceived)
	for i := range d.Invoices {
		t := &d.Invoices[i]
		if t.Issuer == line.Issuer && t.Account == line.Account && t.Invoice == line.Invoice && t.Currency == line.Currency {
			total, err := attribution.AmountOf(in.Total.Amount)
			return err == nil && total == t.Received && in.Total.Currency == t.Currency && in.Status != voided, nil
		}
	}
	return false, nil
}

// usage returns the weight of the machine that the line names in a part of an hour; nil if the view does not have
// exactly one such machine, or its usage does not give the weight of the allocation.
func (k *keptLine) usage(view projections.View, in domain.Interval) (*ExplainedUsage, error) {
	c, err := readCostFleet(view, in)
	if err != nil {
		return nil, err
	}
	l := &k.allocation
	at := -1
	for i := range c.nodes {
		n := &c.nodes[i]
		named := n.Resource == l.Line.Resource || n.Resource == "" && n.Node == l.Line.Resource
		if !named || n.Account != l.Line.Account || n.Cluster != l.Cluster || n.Service.Intersect(in).Empty() {
			continue
		}
		if at >= 0 {
			return nil, nil
		}
		at = i
	}
	if at < 0 {
		return nil, nil
	}
	n := &c.nodes[at]
	x := &ExplainedUsage{
		Cluster: n.Cluster, Node: n.Node, Resource: n.Resource, SKU: n.SKU, Registered: n.Registered,
		PeriodMs: milliseconds(l.Of) - k.unseen,
	}
	micros := int64(0)
	err = c.usage([]domain.Interval{in}, uncut, func(h *attribution.NodeHour) error {
		if h.Node != at || h.Hour != l.Hour {
			return nil
		}
		for i := range h.Parts {
			p := &h.Parts[i]
			holder := p.Workspace == l.Workspace && p.Deployment == l.Deployment
			if p.Component == l.Component && (holder || p.Component != attribution.Allocated) {
				x.GPUMs += p.GPUMs
				x.UsefulMs += p.UsefulMs
				micros += p.Micros
			}
		}
		return nil
	})
	if err != nil || micros != 0 || attribution.Whole(x.GPUMs) != l.Weight {
		return nil, err
	}
	return x, nil
}

// uncut divides no hour.
func uncut(int, domain.Instant) []domain.Instant { return nil }
