package app

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/market"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
)

// Declared lists what of a kind is in force at a time.
type Declared struct {
	Position string               `json:"position"`
	At       domain.Instant       `json:"at"`
	Kind     string               `json:"kind"`
	Entries  []registry.Statement `json:"entries"`
}

// declaredTables are the tables of the kinds that one row declares.
var declaredTables = map[string]projections.Table{
	"workspaces": projections.TableWorkspaces, "policies": projections.TablePolicies, "quotas": projections.TableQuotas,
	"budgets": projections.TableBudgets, "rules": projections.TableMappingRules, "methods": projections.TableMethods,
	"regions": projections.TableRegions, "clusters": projections.TableClusters, "on-demand-quotas": projections.TableOnDemandQuotas,
	"tariffs": projections.TableTariffs, "deployments": projections.TableDeployments, "maintenance": projections.TableMaintenance,
	"usage-corrections": projections.TableUsageCorrections, "outages": projections.TableOutages,
	"legal-holds": projections.TableLegalHolds, "removals": projections.TableRemovals,
}

// houseKinds are the kinds that belong to no workspace.
var houseKinds = []string{"offers", "on-demand-quotas", "tariffs"}

// DeclaredKinds returns the kinds that [Caller.Get] answers, sorted.
func DeclaredKinds() []string {
	kinds := append(slices.Collect(maps.Keys(declaredTables)), "operators", "offers", "commitments")
	slices.Sort(kinds)
	return kinds
}

// Get returns what of a kind is in force, since when, and who decided it; with a name or a
// workspace, only those. As of a point in the past it returns what was in force then.
func (c *Caller) Get(ctx context.Context, at At, kind, name, workspace string) (ans *Declared, err error) {
	if err := oneOf("kind", kind, DeclaredKinds()); err != nil {
		return nil, err
	}
	if workspace != "" && slices.Contains(houseKinds, kind) {
		return nil, invalid("workspace", "%s belong to no workspace", kind)
	}
	err = c.readFrom(ctx, at, 0, func(v projections.View, about domain.Instant) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		ans = &Declared{Position: v.Position().String(), At: about, Kind: kind}
		switch kind {
		case "operators":
			ans.Entries = auth.Operators(about)
		case "offers":
			ans.Entries, err = market.OfferStatements(v, about)
		case "commitments":
			ans.Entries, err = planning.CommitmentStatements(v, auth, about)
		default:
			ans.Entries, err = registry.Statements(v, auth, declaredTables[kind], about)
		}
		if err != nil {
			return err
		}
		if workspace != "" {
			ans.Entries = slices.DeleteFunc(ans.Entries, func(s registry.Statement) bool { return s.Workspace != workspace })
			if len(ans.Entries) == 0 {
				if err := (narrowed{workspace: workspace}).empty(v); err != nil {
					return err
				}
			}
		}
		if name == "" {
			return nil
		}
		var names []string
		for i := range ans.Entries {
			names = append(names, ans.Entries[i].Name)
		}
		slices.Sort(names)
		if err := among(singular(kind), name, slices.Compact(names)); err != nil {
			return err
		}
		ans.Entries = slices.DeleteFunc(ans.Entries, func(s registry.Statement) bool { return s.Name != name })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ans, nil
}

// singular names one of a kind.
func singular(kind string) string {
	switch kind {
	case "policies":
		return "policy"
	case "maintenance":
		return "maintenance window"
	case "usage-corrections":
		return "usage correction"
	case "on-demand-quotas":
		return "on-demand quota"
	}
	return kind[:len(kind)-1]
}

// Decisions are the signed decisions in the log.
type Decisions struct {
	Position  string              `json:"position"`
	Decisions []registry.Decision `json:"decisions"`
}

// Decisions returns who decided what, when, and under which role and limit, including decisions
// without effect.
func (c *Caller) Decisions(ctx context.Context, at At, filter registry.DecisionFilter) (ans *Decisions, err error) {
	if filter.To != 0 && filter.To <= filter.From {
		return nil, invalid("until", "%s is not after %s", filter.To, filter.From)
	}
	err = c.read(ctx, at, func(_ *Conn, v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		found, err := auth.Decisions(v, filter)
		if err != nil {
			return err
		}
		ans = &Decisions{v.Position().String(), found}
		if len(found) > 0 {
			return nil
		}
		if filter.Operator != "" {
			all, err := auth.Decisions(v, registry.DecisionFilter{})
			if err != nil {
				return err
			}
			if err := among("operator", filter.Operator, auth.Deciders(all)); err != nil {
				return err
			}
		}
		return (narrowed{workspace: filter.Workspace}).empty(v)
	})
	if err != nil {
		return nil, err
	}
	return ans, nil
}

// Revocation is what a revocation of an operator ends.
type Revocation struct {
	Operator  string           `json:"operator"`
	Workspace string           `json:"workspace"`
	Reason    string           `json:"reason"`
	Keys      []registry.Grant `json:"keys"` // valid until then
	At        domain.Instant   `json:"at"`
	By        string           `json:"by,omitempty"` // who signed it
	Revoked   bool             `json:"revoked"`      // false: a dry run
}

// RevokeOperator drafts the revocation of an operator of a workspace: with all their keys, or
// with one.
func (c *Caller) RevokeOperator(ctx context.Context, workspace, name string, key []byte, reason string) (ans *Revocation, draft Draft, err error) {
	at := Now()
	ans = &Revocation{Operator: name, Workspace: workspace, Reason: reason, At: at, Keys: []registry.Grant{}}
	draft.Use = "operator-revoke"
	err = c.read(ctx, "", func(_ *Conn, v projections.View) error {
		auth, err := registry.NewAuthority(v)
		if err != nil {
			return err
		}
		var names []string
		var ended domain.Instant
		root, others := false, false
		for _, g := range auth.Grants() {
			of := g.Workspace == workspace && g.Operator == name && (key == nil || slices.Equal(key, g.PublicKey))
			if g.To != 0 && g.To <= at {
				if of {
					ended = max(ended, g.To)
				}
				continue
			}
			if g.Workspace == workspace {
				names = append(names, g.Operator)
			}
			if of && g.To != 0 {
				return &ConflictError{Err: fmt.Errorf("operator %q of workspace %q ends at %s already", name, workspace, g.To)}
			}
			if of {
				ans.Keys = append(ans.Keys, g)
				draft.Events = append(draft.Events, domain.Envelope{Time: at, Subject: name, Workspace: workspace,
					Event: &domain.OperatorRevoked{Operator: name, PublicKey: g.PublicKey, Reason: reason}})
			}
			if g.Root && g.Role == domain.RoleAdmin && g.To == 0 {
				root, others = root || of, others || !of
			}
		}
		switch {
		case len(ans.Keys) == 0 && ended != 0:
			return &ConflictError{Err: fmt.Errorf("operator %q of workspace %q was revoked at %s already", name, workspace, ended)}
		case len(ans.Keys) == 0 && key != nil && slices.Contains(names, name):
			return &NotFoundError{What: "key", Name: name, Err: fmt.Errorf("operator %q of workspace %q has no such key", name, workspace)}
		case len(ans.Keys) == 0:
			return oneOf("operator", name, slices.Compact(names))
		case root && !others:
			return &DeniedError{Err: fmt.Errorf("operator %q is the last admin of workspace %q, and nobody could register anyone after: "+
				"register another admin first", name, workspace)}
		}
		return nil
	})
	return ans, draft, err
}
