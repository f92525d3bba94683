package costs

import (
	"errors"
	"fmt"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// ExplainKept explains an allocation from a division, without dividing its month again. What divided the line is kept
// with the division: its statement, the machines it was matched to, and why. Only what each machine weighs is read from
// the view: the usage of these machines in the charge period. It counts only if it gives the weight of the allocation
// exactly; so do the charges that a line follows. Otherwise x is nil: the caller asks again with the rows that the
// month was divided from. has is false if the division has no such allocation.
func (d *Division) ExplainKept(view projections.View, ref attribution.Ref) (x *Explanation, has bool, err error) {
	k, err := d.find(&ref)
	if k == nil || err != nil {
		return nil, false, err
	}
	x, err = d.explain(view, k)
	return x, true, err
}

func (d *Division) explain(view projections.View, k *keptLine) (*Explanation, error) {
	line := k.allocation.Line
	if !k.reclaimed.IsZero() {
		if line.TaxRule, k.taxShare = d.taxPolicy(line.Billed, k.reclaimed); line.TaxRule == "" {
			return nil, nil
		}
	}
	from, err := d.source(view, k)
	if from == nil || err != nil {
		return nil, err
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
	trace := &attribution.Trace{
		Allocation: k.allocation, ClassReason: line.ClassReason, MatchReason: line.Matching.Reason(),
		MeterReason: line.Matching.MeterReason(line),
	}
	switch {
	case line.Number == 0:
		trace.MatchReason = "the invoice and its lines differ by the rounding of the invoice"
	case k.allocation.MatchMethod <= attribution.ByAccount:
		if x.Usage, err = d.weigh(view, k); x.Usage == nil || err != nil {
			return nil, err
		}
		x.UnseenMs = k.unseen.Decimal().IntPart()
	case k.allocation.MatchMethod != attribution.ByNothing:
		if ok, err := d.matchReason(k, trace); !ok || err != nil {
			return nil, err
		}
		x.Followed = trace.Followed
	}
	if k.allocation.Hour != 0 {
		x.Interval = x.Interval.Intersect(domain.Interval{From: k.allocation.Hour, To: k.allocation.Hour + domain.Hour})
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
	unseen     attribution.Amount // weight of unseen time
	reclaimed  attribution.Amount // recoverable tax of the line
	taxShare   attribution.Amount // share of the line that this is
}

// find returns an allocation of a division, nil if it has none of that name.
func (d *Division) find(ref *attribution.Ref) (*keptLine, error) {
	var k *keptLine
	var of keptLine
	name := ref.String()
	err := d.eachOfLine(ref.Issuer, ref.Account, ref.Line, func(p *part) error {
		l := p.allocation
		if l.Line.ID != ref.Line || l.Line.Account != ref.Account || l.Line.Issuer != ref.Issuer {
			return nil
		}
		of.whole.Billed, of.whole.Effective = of.whole.Billed.Add(l.Billed), of.whole.Effective.Add(l.Effective)
		of.whole.Allocations++
		if l.Component == attribution.Unseen {
			of.unseen = of.unseen.Add(l.Weight)
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
	if errors.Is(err, errStopped) {
		err = nil
	}
	return k, err
}

// same reports whether a line of the ledger is as the division had it.
func (k *keptLine) same(charge *domain.BillingLine) bool {
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

// source returns the statement of a line, or of the invoice of a rounding adjustment, that the division had; nil if the
// view does not have it. Later statements do not count.
func (d *Division) source(view projections.View, k *keptLine) (*allocationSource, error) {
	line := k.allocation.Line
	key := projections.Key{Scope: domain.AccountKey(line.Issuer, line.Account)}
	if line.Number == 0 {
		key.Table, key.ID = projections.TableInvoices, line.Invoice
	} else {
		key.Table, key.ID, key.Hour = projections.TableBillingLines, line.ID, projections.MonthStart(d.Month.From)
	}
	row, err := view.Get(key)
	if err != nil {
		return nil, fmt.Errorf("read %s %q: %w", key.Table, key.ID, err)
	}
	h, ok := row.(*projections.History)
	if !ok {
		return nil, nil
	}
	for i := len(h.Versions) - 1; i >= 0; i-- {
		v := &h.Versions[i]
		if line.Number == 0 {
			if d.sameInvoice(line, v.Event.(*domain.InvoiceReceived)) {
				return &allocationSource{month: d.Month, event: ledgerEvent(key, v)}, nil
			}
			continue
		}
		if charge := billingLine(v); charge == nil || !k.same(charge) {
			continue
		}
		l := ledgerLine(key, &projections.History{Versions: h.Versions[:i+1]})
		return &allocationSource{d.Month, l.Event, &l.BillingLine, ExplainedLine{Corrects: l.Corrects, Reason: l.Reason, Stated: l.Stated}}, nil
	}
	return nil, nil
}

// sameInvoice reports whether the invoice of a rounding adjustment is as the division had it.
func (d *Division) sameInvoice(line *attribution.Line, in *domain.InvoiceReceived) bool {
	for i := range d.Invoices {
		t := &d.Invoices[i]
		if t.Issuer == line.Issuer && t.Account == line.Account && t.Invoice == line.Invoice && t.Currency == line.Currency {
			total, err := attribution.AmountOf(in.Total.Amount)
			return err == nil && total == t.Received && in.Total.Currency == t.Currency && in.Status != voided
		}
	}
	return false
}
