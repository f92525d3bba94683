package advice

import (
	"fmt"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/registry"

	"github.com/shopspring/decimal"
)

// Thresholds returns the thresholds that valid policies of kind advice_threshold set at a time, by workspace and policy. One
// of workspace platform is about all; one of another workspace is about what that workspace answers for.
func Thresholds(view projections.View, at domain.Instant) ([]advice.Override, error) {
	auth, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	all, err := registry.Statements(view, auth, projections.TablePolicies, at)
	if err != nil {
		return nil, err
	}
	var overrides []advice.Override
	for i := range all {
		e, ok := all[i].Declared.(*domain.PolicySet)
		if !ok || e.Kind != domain.PolicyAdviceThreshold {
			continue
		}
		o, err := Override(all[i].Workspace, e)
		if err != nil || advice.CheckOverride(&o) != nil {
			continue // a policy that means nothing to this version of the rules sets nothing
		}
		overrides = append(overrides, o)
	}
	return overrides, nil
}

// Override returns the threshold that a policy of a workspace sets.
func Override(workspace string, e *domain.PolicySet) (advice.Override, error) {
	o := advice.Override{
		Rule: advice.RuleID(e.Scope), Workspace: e.Selector.Workspace, Cluster: e.Selector.Cluster, Class: string(e.Selector.Class),
		Coverage: e.Share, Off: e.Value == "off", SetBy: workspace + "/" + e.Policy,
	}
	if workspace != advice.Platform {
		o.Workspace = workspace
	}
	if !o.Off {
		var err error
		if o.Value, err = decimal.NewFromString(e.Value); err != nil {
			return o, fmt.Errorf("policy %s of workspace %s: %q is not a number: %w", e.Policy, workspace, e.Value, err)
		}
	}
	return o, nil
}
