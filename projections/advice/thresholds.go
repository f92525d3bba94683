package advice

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/registry"

	"github.com/shopspring/decimal"
)

// off is the value of a policy that switches a rule off.
const off = "off"

// Thresholds returns what policies of kind advice_threshold set at a time, by the workspace and policy that set it. A policy
// of the root workspace binds all, of another workspace that one, and if its selector names one below it, that. Policies
// about rules that do not exist, or with a threshold that means nothing, take no effect.
func Thresholds(view projections.View, at domain.Instant) ([]advice.Override, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	var all []advice.Override
	err = view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), at)
		if v == nil {
			return nil
		}
		p, ok := v.Event.(*domain.PolicySet)
		if !ok || p.Kind != domain.PolicyAdviceThreshold || p.EffectiveTo != 0 && p.EffectiveTo <= at {
			return nil
		}
		o, err := OverrideOf(k.Scope, p)
		if err != nil || advice.CheckOverride(&o) != nil {
			return nil //nolint:nilerr // see above
		}
		if k.Scope != a.Root() {
			below, err := access.Below(view, k.Scope)
			if err != nil {
				return err
			}
			if o.Workspace == "" {
				o.Workspace = k.Scope
			} else if !slices.Contains(below, o.Workspace) {
				return nil
			}
		}
		all = append(all, o)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read policies: %w", err)
	}
	slices.SortFunc(all, func(x, y advice.Override) int { return cmp.Compare(x.SetBy, y.SetBy) })
	return all, nil
}

// OverrideOf returns the override that a policy states, for whatever its selector names.
func OverrideOf(workspace string, p *domain.PolicySet) (advice.Override, error) {
	o := advice.Override{
		Rule: advice.RuleID(p.Scope), Workspace: p.Selector.Workspace, Cluster: p.Selector.Cluster, Class: string(p.Selector.Class),
		Coverage: p.Share, Off: p.Value == off, SetBy: workspace + "/" + p.Policy,
	}
	if o.Off {
		return o, nil
	}
	var err error
	if o.Value, err = decimal.NewFromString(p.Value); err != nil {
		return o, fmt.Errorf("policy %s: a threshold of %q: want a number or %q", o.SetBy, p.Value, off)
	}
	return o, nil
}
