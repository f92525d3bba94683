package registry

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Registry lists the tenants, operators and rules that are valid at a time. Void decisions have no
// effect in it, but are listed.
type Registry struct {
	Position       string               `json:"position"`
	At             domain.Instant       `json:"at"`
	Root           string               `json:"root,omitempty"` // the workspace whose operators decide everywhere
	Workspaces     []WorkspaceEntry     `json:"workspaces"`
	Operators      []Grant              `json:"operators"` // every key, with the time for which it was valid
	Policies       []PolicyEntry        `json:"policies"`
	Quotas         []QuotaEntry         `json:"quotas"`
	Budgets        []BudgetEntry        `json:"budgets"`
	Regions        []RegionEntry        `json:"regions"`
	Certifications []CertificationEntry `json:"certifications"`
	Methods        []MethodEntry        `json:"methods"`
	MappingRules   []MappingRuleEntry   `json:"mapping_rules"`
	Rejected       []Rejection          `json:"rejected"` // of every signed table, at any time
}

// The entries of a registry are the valid events with their workspace.
type (
	// WorkspaceEntry is a tenant.
	WorkspaceEntry struct {
		Workspace string `json:"workspace"`
		domain.WorkspaceRegistered
	}
	// PolicyEntry is a valid policy.
	PolicyEntry struct {
		Workspace string `json:"workspace"`
		domain.PolicySet
	}
	// QuotaEntry is a valid quota.
	QuotaEntry struct {
		Workspace string `json:"workspace"`
		domain.QuotaSet
	}
	// BudgetEntry is a budget whose period is not over.
	BudgetEntry struct {
		Workspace string `json:"workspace"`
		domain.BudgetSet
	}
	// RegionEntry is a region with its round trips.
	RegionEntry struct {
		Workspace string `json:"workspace"`
		domain.RegionDefined
	}
	// CertificationEntry is a valid certification.
	CertificationEntry struct {
		Workspace string `json:"workspace"`
		domain.CertificationHeld
	}
	// MethodEntry is a valid method version.
	MethodEntry struct {
		Workspace string `json:"workspace"`
		domain.MethodChanged
	}
	// MappingRuleEntry is a valid mapping rule.
	MappingRuleEntry struct {
		Workspace string `json:"workspace"`
		domain.MappingRuleSet
	}
)

// New returns the registry at a time.
func New(view projections.View, at domain.Instant) (*Registry, error) {
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	r := &Registry{
		Position: view.Position().String(), At: at, Root: a.Root(),
		Workspaces: []WorkspaceEntry{}, Operators: a.Grants(), Policies: []PolicyEntry{}, Quotas: []QuotaEntry{},
		Budgets: []BudgetEntry{}, Regions: []RegionEntry{}, Methods: []MethodEntry{}, MappingRules: []MappingRuleEntry{},
	}
	for _, t := range []projections.Table{
		projections.TableWorkspaces, projections.TablePolicies, projections.TableQuotas, projections.TableBudgets,
		projections.TableRegions, projections.TableMethods, projections.TableMappingRules,
	} {
		err := view.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
			h := row.(*projections.History)
			v := a.At(k, h, at)
			if v == nil {
				return nil
			}
			switch ev := v.Event.(type) {
			case *domain.WorkspaceRegistered:
				r.Workspaces = append(r.Workspaces, WorkspaceEntry{k.Scope, *ev})
			case *domain.PolicySet:
				if ev.EffectiveTo == 0 || at < ev.EffectiveTo {
					r.Policies = append(r.Policies, PolicyEntry{k.Scope, *ev})
				}
			case *domain.QuotaSet:
				r.Quotas = append(r.Quotas, QuotaEntry{k.Scope, *ev})
			case *domain.BudgetSet:
				if at < ev.Period.To {
					r.Budgets = append(r.Budgets, BudgetEntry{k.Scope, *ev})
				}
			case *domain.RegionDefined:
				r.Regions = append(r.Regions, RegionEntry{k.Scope, *ev})
			case *domain.MethodChanged:
				r.Methods = append(r.Methods, MethodEntry{k.Scope, *ev})
			case *domain.MappingRuleSet:
				r.MappingRules = append(r.MappingRules, MappingRuleEntry{k.Scope, *ev})
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	if r.Certifications, err = Certifications(view, a, at); err != nil {
		return nil, err
	}
	if r.Rejected, err = a.Rejections(view); err != nil {
		return nil, err
	}
	return r, nil
}

// Certifications returns the certifications valid at a time. A certification has its own interval,
// and may be stated long after its start: of two statements the one whose interval starts later
// counts from there on, and of two that start together the later statement.
func Certifications(view projections.View, a *Authority, at domain.Instant) ([]CertificationEntry, error) {
	out := []CertificationEntry{}
	query := projections.Query{Table: projections.TableCertifications}
	err := view.Scan(query, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		var held *domain.CertificationHeld
		for i := range h.Versions {
			ev, ok := h.Versions[i].Event.(*domain.CertificationHeld)
			if ok && ev.Valid.From <= at && (held == nil || ev.Valid.From >= held.Valid.From) && a.Judge(k, h, i) == "" {
				held = ev
			}
		}
		if held != nil && at < held.Valid.To {
			out = append(out, CertificationEntry{k.Scope, *held})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read certifications: %w", err)
	}
	return out, nil
}
