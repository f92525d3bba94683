package costs

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// readTax reads the policies that say how much of which tax is recoverable. As with other policies, only those of the
// root workspace count, as they are when the month begins. Those with more columns come first.
func (l *ledger) readTax(view projections.View, a *registry.Authority) error {
	type policy struct {
		rule    attribution.MeterRule
		applied AppliedPolicy
	}
	var all []policy
	err := view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		subject := k.Scope + "/" + k.ID
		for i := range h.Versions {
			v := &h.Versions[i]
			ev := v.Event.(*domain.PolicySet)
			ended := ev.EffectiveTo != 0 && ev.EffectiveTo <= l.month.From
			if ev.Kind != domain.PolicyRecoverableTax || v.Order.Effective >= l.month.To || ended {
				continue
			}
			if reason := a.Judge(k, h, i); reason != "" {
				l.except(DecisionVoid, subject, "PolicySet: %s", reason)
			} else if v.Order.Effective > l.month.From {
				l.except(PolicyChangedInPeriod, subject, "%s %s takes effect at %s, from the next month on",
					ev.Kind, ev.Share.Decimal, v.Order.Effective)
			}
		}
		v := a.At(k, h, l.month.From)
		if v == nil {
			return nil
		}
		ev := v.Event.(*domain.PolicySet)
		switch {
		case ev.Kind != domain.PolicyRecoverableTax || ev.EffectiveTo != 0 && ev.EffectiveTo <= l.month.From:
			return nil
		case k.Scope != a.Root():
			l.except(PolicyNotApplied, subject, "%s is decided for all workspaces, by %s", ev.Kind, cmp.Or(a.Root(), "nobody yet"))
			return nil
		case !ev.Selector.IsZero():
			l.except(PolicyNotApplied, subject, "%s for a part of the workloads: tax is for lines of bills", ev.Kind)
			return nil
		}
		share, err := attribution.AmountOf(ev.Share.Decimal)
		if err != nil {
			return fmt.Errorf("share of %s: %w", subject, err)
		}
		all = append(all, policy{
			attribution.MeterRule{Name: subject, Columns: ev.Columns, Tax: true, Recoverable: share},
			AppliedPolicy{
				Kind: ev.Kind, Value: ev.Share.Decimal.String(), Policy: k.ID, Workspace: k.Scope,
				From: ev.EffectiveFrom, Operator: v.Signer.Operator,
			},
		})
		return nil
	})
	if err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	slices.SortFunc(all, func(a, b policy) int {
		return cmp.Or(cmp.Compare(len(b.rule.Columns), len(a.rule.Columns)), cmp.Compare(a.rule.Name, b.rule.Name))
	})
	for _, p := range all {
		l.rules = append(l.rules, p.rule)
		l.policies = append(l.policies, p.applied)
	}
	return nil
}
