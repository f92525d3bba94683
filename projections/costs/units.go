package costs

import (
	"cmp"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections/dimension"
)

// Pods, jobs and machines are parts of allocations: see [attribution.Allocation.Divide]. An allocation is divided among
// them only for a question that names one of these dimensions. For others it has one unit and one machine, or is mixed.

// byHolder reports whether a question divides allocations among units and machines.
func byHolder(by []Dimension, where []dimension.Condition) bool {
	for _, d := range by {
		if d == ByUnit || d == ByNode {
			return true
		}
	}
	for _, c := range where {
		if c.Dimension == ByUnit || c.Dimension == ByNode {
			return true
		}
	}
	return false
}

// unit returns the pod or job that held what was paid for, [dimension.Mixed] for several, and "" for none.
func (p *part) unit() string {
	return p.held(func(unit, _ string) string { return unit })
}

// node returns the machine that was paid for, as cluster/node, [dimension.Mixed] for several, and "" for none.
func (p *part) node() string {
	return p.held(func(_, node string) string { return node })
}

// held returns what all holders have in common.
func (p *part) held(of func(unit, node string) string) string {
	if p.holder != nil {
		return of(p.holder.Unit, p.holder.Node)
	}
	if len(p.moved) > 0 {
		is := of(p.moved[0].unit, p.moved[0].node)
		for i := range p.moved {
			if of(p.moved[i].unit, p.moved[i].node) != is {
				return dimension.Mixed
			}
		}
		return is
	}
	h, is := p.allocation.Holders, ""
	for i := range h.Len() {
		at := h.At(i)
		switch value := of(at.Unit, at.Node); {
		case i == 0:
			is = value
		case value != is:
			return dimension.Mixed
		}
	}
	return is
}

// divide calls yield with the part of each unit on each machine, which is reused. The parts add up to p in everything
// that adds up, as [attribution.Allocation.Divide] says. List and contracted cost are divided as billed and effective
// cost are.
func (p *part) divide(yield func(*part) error) error {
	whole := p.allocation
	if len(p.moved) > 0 {
		return p.eachMoved(yield)
	}
	if whole.Holders.Len() < 2 {
		return yield(p)
	}
	var prices []priced
	if p.priced.hasList || p.priced.hasContracted {
		of := *whole
		of.Billed, of.Effective = p.priced.list, p.priced.contracted
		of.BoughtMs, of.AllocatedMs, of.MeasuredMs, of.UsefulMs = 0, 0, 0, 0
		_ = of.Divide(func(_ *attribution.Holder, l *attribution.Allocation) error {
			priced := p.priced
			priced.list, priced.contracted = l.Billed, l.Effective
			prices = append(prices, priced)
			return nil
		})
	}
	at, i := *p, 0
	return whole.Divide(func(h *attribution.Holder, l *attribution.Allocation) error {
		at.holder, at.allocation = h, l
		if prices != nil {
			at.priced = prices[i]
		}
		i++
		err := yield(&at)
		p.tags, p.tagsOf = at.tags, at.tagsOf
		return err
	})
}

// selection is what some holders have of an allocation together.
type selection struct {
	part
	l      attribution.Allocation
	holder attribution.Holder
	of     []bool // of each holder, whether it has a part of it
	some   bool
}

// selecting returns what the holders that are picked have of p, in each figure that adds up. It is reused.
func (s *selection) selecting(p *part, picks func(*part) bool) {
	s.of, s.some = s.of[:0], false
	_ = p.divide(func(q *part) error {
		picked := picks(q)
		s.of = append(s.of, picked)
		if !picked {
			return nil
		}
		l := q.allocation
		if !s.some {
			s.part, s.l, s.some = *q, *l, true
			s.holder = attribution.Holder{Unit: q.unit(), Node: q.node()}
			s.part.allocation, s.part.holder = &s.l, &s.holder
			return nil
		}
		s.l.Billed, s.l.Effective = s.l.Billed.Add(l.Billed), s.l.Effective.Add(l.Effective)
		s.priced.list, s.priced.contracted = s.priced.list.Add(q.priced.list), s.priced.contracted.Add(q.priced.contracted)
		s.l.BoughtMs, s.l.AllocatedMs = s.l.BoughtMs+l.BoughtMs, s.l.AllocatedMs+l.AllocatedMs
		s.l.UsefulMs, s.l.MeasuredMs = s.l.UsefulMs+l.UsefulMs, s.l.MeasuredMs+l.MeasuredMs
		for _, of := range [...]struct {
			all *string
			one string
		}{{&s.holder.Unit, q.unit()}, {&s.holder.Node, q.node()}} {
			if *of.all != of.one {
				*of.all = dimension.Mixed
			}
		}
		return nil
	})
}

// portion returns what the selected holders have of an amount that is divided as p's billed cost is.
func (s *selection) portion(p *part, text string) string {
	if text == "" || len(s.of) < 2 {
		return text
	}
	if len(p.moved) > 0 {
		return "" // it is not known of a posting
	}
	amounts, stated := portionsOf(text)
	wide := newWideNumber(text)
	weights, of := p.allocation.Holders.Weights()
	sum := domain.Decimal{}
	for i, w := range weights {
		next := ""
		switch {
		case stated:
			next = amounts.Next(w, of).String()
		case wide != nil:
			next = wide.next(w, of)
		}
		n, err := decimal.NewFromString(next)
		if err == nil && s.of[i] {
			sum = sum.Add(n)
		}
	}
	return sum.String()
}

// movedCost is the difference of what a unit has on a machine, of a posting.
type movedCost struct {
	unit, node string
	figures
}

// figures are what adds up of an allocation.
type figures struct {
	billed, effective, list, contracted attribution.Amount
	ms                                  [4]int64 // bought, allocated, useful, measured
}

// eachMoved is divide of a posting, whose differences are known.
func (p *part) eachMoved(yield func(*part) error) error {
	at := *p
	at.moved = nil
	l := *p.allocation
	at.allocation = &l
	for i := range p.moved {
		m := &p.moved[i]
		at.holder = &attribution.Holder{Unit: m.unit, Node: m.node}
		l.Billed, l.Effective, at.priced.list, at.priced.contracted = m.billed, m.effective, m.list, m.contracted
		l.BoughtMs, l.AllocatedMs, l.UsefulMs, l.MeasuredMs = m.ms[0], m.ms[1], m.ms[2], m.ms[3]
		if err := yield(&at); err != nil {
			return err
		}
	}
	return nil
}

// compare orders units and machines as holders are.
func (m *movedCost) compare(o *movedCost) int {
	return cmp.Or(cmp.Compare(m.unit, o.unit), cmp.Compare(m.node, o.node))
}
