package registry

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Decision is a signed event: who decided what, when, and under which right.
type Decision struct {
	Time      domain.Instant `json:"time"`      // when it was decided
	Effective domain.Instant `json:"effective"` // when it takes effect
	Operator  string         `json:"operator"`
	PublicKey []byte         `json:"public_key"`
	Type      domain.Type    `json:"type"`
	Workspace string         `json:"workspace,omitempty"` // of the event
	Scope     string         `json:"scope"`               // the topic key of the event
	ID        string         `json:"id"`
	// Role and Limits are those of the grant of the operator's key at that time. Both are empty if
	// the key had no grant.
	Role    domain.Role    `json:"role,omitempty"`
	Limits  []domain.Money `json:"limits,omitempty"`
	Commits []domain.Money `json:"commits,omitempty"` // the money that it commits
	Refused string         `json:"refused,omitempty"` // why it is void
	Event   domain.Event   `json:"event"`

	offset int64
}

// DecisionFilter selects decisions; empty fields match all.
type DecisionFilter struct {
	Operator  string
	Workspace string         // of the event
	From, To  domain.Instant // of the decision, To exclusive; 0: no bound
}

// decisionTables lists the tables with signed events: those whose events must be signed, the health of nodes, where
// returns and drains are, and those whose events are signed if an operator declares them.
func decisionTables() []projections.Table {
	return append(signedTables(), projections.TableHealth,
		projections.TableWorkspaces, projections.TableRegions, projections.TableAssets, projections.TableMaintenance,
		projections.TableDeployments, projections.TableSessions)
}

// Decisions returns the decisions in the log, valid and void, by time, then table, scope, id and
// offset.
func (a *Authority) Decisions(view projections.View, f DecisionFilter) ([]Decision, error) {
	type placed struct {
		key projections.Key
		Decision
	}
	var found []placed
	for _, t := range decisionTables() {
		err := view.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
			h := row.(*projections.History)
			for i := range h.Versions {
				v := &h.Versions[i]
				s := v.Signer
				if s == nil || f.Operator != "" && s.Operator != f.Operator || f.Workspace != "" && v.Workspace != f.Workspace ||
					s.Time < f.From || f.To != 0 && s.Time >= f.To {
					continue
				}
				d := Decision{
					Time: s.Time, Effective: v.Order.Effective, Operator: s.Operator, PublicKey: s.Key, Type: v.Event.Type(),
					Workspace: v.Workspace, Scope: k.Scope, ID: k.ID, Refused: a.told(v, a.Judge(k, h, i)), Event: v.Event, offset: s.Offset,
				}
				if g := a.under(k, v); g != nil {
					d.Role, d.Limits = g.Role, g.AuthorityLimits
				}
				// A decision without a computable price is refused for that reason.
				d.Commits, _ = a.commits(k, h, v)
				d.Commits = slices.DeleteFunc(d.Commits, func(m domain.Money) bool { return m.Amount.Sign() <= 0 })
				found = append(found, placed{k, d})
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	slices.SortFunc(found, func(x, y placed) int {
		return cmp.Or(cmp.Compare(x.Time, y.Time), x.key.Compare(y.key), cmp.Compare(x.offset, y.offset))
	})
	out := make([]Decision, len(found))
	for i := range found {
		out[i] = found[i].Decision
	}
	return out, nil
}

// Deciders returns the operators who ever signed a decision or were registered, sorted.
func (a *Authority) Deciders(decisions []Decision) []string {
	var names []string
	for _, g := range a.Grants() {
		names = append(names, g.Operator)
	}
	for i := range decisions {
		names = append(names, decisions[i].Operator)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// under returns the grant under which a version was decided, nil if there was none.
func (a *Authority) under(k projections.Key, v *projections.Version) *Grant {
	scope, reason := v.Workspace, ""
	if domain.NeedsSignature(v.Event) {
		scope, reason = a.decidedFor(k, v)
	}
	if reason != "" {
		return nil
	}
	g, _ := a.grant(scope, v.Signer)
	return g
}

// Committed returns the money that a decision about a commitment commits: for a purchase or a
// renewal, that of the whole term.
func Committed(ev domain.Event) []domain.Money {
	amounts := committed(ev)
	return slices.DeleteFunc(amounts, func(m domain.Money) bool { return m.Amount.Sign() <= 0 })
}
