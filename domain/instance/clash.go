package instance

import (
	"fmt"
	"slices"

	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// clash maps conflicting constraints of a component to their places in the document.
func (m *model) clash(e *joint.Infeasible) error {
	out := &Infeasible{Undecided: e.Undecided}
	add := func(path, text string, args ...any) {
		c := Constraint{path, fmt.Sprintf(text, args...)}
		if !slices.Contains(out.Constraints, c) {
			out.Constraints = append(out.Constraints, c)
		}
	}
	for _, member := range e.Clash {
		switch member.Kind {
		case "need":
			add("/posture", "%s must be there whatever happens: %s", "guaranteed capacity", member.ID)
		case "limit":
			i := slices.IndexFunc(m.bounds, func(b bound) bool { return b.ID == member.ID })
			if i < 0 {
				add("", "%s", member.ID)
			} else if b := m.bounds[i].budget; b != nil {
				end := "on"
				if b.Interval.To != 0 {
					end = "to " + day(b.Interval.To)
				}
				add(m.bounds[i].path, "at most %s %s (%s) from %s %s", b.Amount, m.in.Currency, b.Basis,
					day(b.Interval.From), end)
			} else {
				add(m.bounds[i].path, "at most %d unit-hours", m.bounds[i].Most)
			}
		case "quota":
			i := slices.IndexFunc(m.in.Quotas, func(q Quota) bool { return q.ID == member.ID })
			add(fmt.Sprintf("/quotas/%d", m.at.quotas[i]), "quota %q bounds what runs on demand: %s", member.ID,
				m.quotaRange(member.ID))
		case "demand":
			d := &m.in.Demands[m.demand[member.ID]]
			p := &m.in.Pools[m.pool[d.Pool]]
			add(fmt.Sprintf("/demands/%d", m.at.demands[m.demand[member.ID]]),
				"demand %q wants to run in pool %q of region %q, or where it may overflow to", d.ID, p.ID, p.Region)
		default:
			i := 0
			for i < len(m.choices) && choiceID(m.choice(i)) != member.ID && m.group(i) != member.ID {
				i++
			}
			if i == len(m.choices) {
				add("", "%s %q", member.Kind, member.ID)
				continue
			}
			x := m.choice(i)
			switch {
			case x.goes != nil:
				add(m.path(i), "commitment %q can go on for so many terms and no more", x.goes.ID)
			case x.offer.MaxUnits > 0:
				add(m.path(i), "of offer %q at most %d units can be bought in an order", x.offer.ID, x.offer.MaxUnits)
			default:
				add(m.path(i), "what can be bought of offer %q: least order, tiers, exclusive", x.offer.ID)
			}
		}
	}
	return out
}

// quotaRange describes a quota's range over the epochs.
func (m *model) quotaRange(id string) string {
	low, high := procurement.Unlimited, procurement.Unlimited
	i := slices.IndexFunc(m.in.Quotas, func(q Quota) bool { return q.ID == id })
	for _, n := range m.in.Quotas[i].bounds(m.cal.spans[:m.cal.n]) {
		if n != procurement.Unlimited {
			high = max(high, n)
			if low == procurement.Unlimited || n < low {
				low = n
			}
		}
	}
	if low == high {
		return fmt.Sprintf("at most %d", low)
	}
	return fmt.Sprintf("at most %d to %d", low, high)
}
