package costs

import (
	"cmp"
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
)

// ownership says who answers for what a workspace is charged. Empty fields are not declared.
type ownership struct{ owner, costCentre, entity string }

// owners are the ownerships of workspaces, each from a time on, in the order of time.
type owners map[string][]struct {
	from domain.Instant
	ownership
}

func readOwners(view projections.View) (owners, error) {
	o := owners{}
	err := view.Scan(projections.Query{Table: projections.TableWorkspaces}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			if ev, ok := h.Versions[i].Event.(*domain.WorkspaceRegistered); ok {
				o[k.Scope] = append(o[k.Scope], struct {
					from domain.Instant
					ownership
				}{h.Versions[i].Order.Effective, ownership{ev.Owner, ev.CostCentre, ev.Entity}})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read workspaces: %w", err)
	}
	return o, nil
}

// at returns the ownership of a workspace at a time.
func (o owners) at(workspace string, t domain.Instant) ownership {
	all := o[workspace]
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].from <= t {
			return all[i].ownership
		}
	}
	return ownership{}
}

// ownership returns who answers for an allocation: in its hour, else at the start of the line's charge period. A
// rounding adjustment, which has neither, belongs to the start of the month.
func (p *part) ownership() ownership {
	if p.kept != nil {
		return p.kept.ownership
	}
	l := p.allocation
	return p.books.owners.at(l.Workspace, cmp.Or(l.Hour, l.Line.ChargePeriod.From, p.month))
}
