package planning

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// CommitmentStatements returns [CommitmentsHeld] as statements, by workspace and commitment. Since
// is the start of the first remaining term, Until the end of the last, and DecidedBy the operator
// of the latest decision that counts. Declared is a [CommitmentEntry].
func CommitmentStatements(view projections.View, a *registry.Authority, at domain.Instant) ([]registry.Statement, error) {
	held, err := CommitmentsHeld(view, a, at)
	if err != nil {
		return nil, err
	}
	out := make([]registry.Statement, 0, len(held))
	for i := range held {
		e := &held[i]
		k := projections.Key{Table: projections.TableCommitments, Scope: e.Workspace, ID: e.Commitment}
		row, err := view.Get(k)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", k, err)
		}
		h, ok := row.(*projections.History)
		if !ok {
			return nil, fmt.Errorf("read %s: it is gone", k)
		}
		var last *projections.Version
		for j := range h.Versions {
			v := &h.Versions[j]
			begun := v.Order.Effective <= at || v.Order.Time <= at
			if begun && a.Judge(k, h, j) == "" && (last == nil || v.Order.Time >= last.Order.Time) {
				last = v
			}
		}
		out = append(out, registry.Statement{
			Workspace: e.Workspace, Name: e.Commitment, Since: e.Terms[0].Term.From, Until: e.End(),
			DecidedBy: last.Signer.Operator, Decided: last.Signer.Time, Source: last.Order.Source, Declared: *e,
		})
	}
	registry.SortStatements(out)
	return out, nil
}
