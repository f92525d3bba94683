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

// contract is a commitment according to its history.
type contract struct {
	order    domain.Precedence // of the purchase
	scope    string
	owners   []domain.Share
	terms    []domain.Interval
	hardware attribution.Hardware
}

// billingModels are the billing models of machines under an offer.
var billingModels = map[domain.OfferKind]domain.BillingModel{
	domain.OfferReserved: domain.BillingReserved, domain.OfferCapacityBlock: domain.BillingCapacityBlock,
}

// modelName returns the catalogue's name of a GPU model, or the name unchanged if it is unknown.
func modelName(model string) string {
	if m, ok := domain.LookupGPU(model); ok {
		return m.Name
	}
	return model
}

// contractOf reads the valid decisions about a commitment that take effect before a time: the last
// purchase with its owners, its renewals, and its end. It returns nil if there is no purchase yet.
func contractOf(a *registry.Authority, k projections.Key, h *projections.History, before domain.Instant) *contract {
	var c *contract
	for i := range h.Versions {
		v := &h.Versions[i]
		if v.Order.Effective >= before || a.Judge(k, h, i) != "" {
			continue
		}
		switch ev := v.Event.(type) {
		case *domain.CommitmentPurchased:
			c = &contract{
				order: v.Order, scope: k.Scope, owners: ev.Owners, terms: []domain.Interval{ev.Term},
				hardware: attribution.Hardware{GPUModel: modelName(ev.GPUModel), Billing: billingModels[ev.Kind]},
			}
		case *domain.CommitmentRenewed:
			if c != nil {
				c.terms = append(c.terms, ev.Term)
			}
		case *domain.CommitmentEnded:
			if c == nil {
				continue
			}
			for j := range c.terms {
				c.terms[j].To = min(c.terms[j].To, ev.At)
			}
		}
	}
	return c
}

// readCommitments reads the owners of the commitments on the bill. Owners commit only for the terms
// that they bought. A bill for any other time is charged to them too, but reported as an exception.
func (l *ledger) readCommitments(view projections.View, a *registry.Authority, charges map[string]charged) error {
	contracts := map[string]*contract{}
	err := view.Scan(projections.Query{Table: projections.TableCommitments}, func(k projections.Key, row projections.Row) error {
		times, billed := charges[k.ID]
		if !billed {
			return nil
		}
		h := row.(*projections.History)
		for i := range h.Versions {
			if reason := a.Judge(k, h, i); reason != "" {
				l.except(DecisionVoid, k.ID, "%s of %s: %s", h.Versions[i].Event.Type(), k.Scope, reason)
			}
		}
		c := contractOf(a, k, h, max(l.month.To, times.any.To))
		if c == nil {
			return nil
		}
		if other := contracts[k.ID]; other != nil {
			winner := other
			if c.order.After(other.order) {
				winner = c
			}
			l.except(CommitmentDeclaredTwice, k.ID, "by %s and %s; the decision of %s is the later",
				other.scope, k.Scope, winner.scope)
			c = winner
		}
		contracts[k.ID] = c
		return nil
	})
	if err != nil {
		return fmt.Errorf("read commitments: %w", err)
	}
	for id, c := range contracts {
		l.commitments = append(l.commitments, attribution.Commitment{ID: id, Owners: c.owners, Hardware: c.hardware})
		used := charges[id].usage
		for _, t := range c.terms {
			if t.From <= used.From {
				used.From = max(used.From, min(t.To, used.To))
			}
		}
		if !used.Empty() {
			l.except(CommitmentOutOfTerm, id,
				"charged for %s to %s, in which it has no term; its owners are charged for that too", used.From, used.To)
		}
	}
	slices.SortFunc(l.commitments, func(a, b attribution.Commitment) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

// AppliedPolicy is a policy that a division of costs followed.
type AppliedPolicy struct {
	Kind      domain.PolicyKind `json:"kind"`
	Value     string            `json:"value"`
	Policy    string            `json:"policy,omitempty"` // empty: no decision, and the value is the default
	Workspace string            `json:"workspace,omitempty"`
	From      domain.Instant    `json:"effective_from,omitempty"`
	Operator  string            `json:"operator,omitempty"`
}

// idleToPlatform is the value of [domain.PolicyIdleCost] that charges idle time to the platform.
const idleToPlatform = "platform"

// AppliedRule is a mapping rule that may have said what lines buy.
type AppliedRule struct {
	Rule     string         `json:"rule"` // workspace/id
	From     domain.Instant `json:"effective_from,omitempty"`
	Operator string         `json:"operator,omitempty"`
}

// readPolicies reads the two accounting policies. A bill is divided by the same rules for
// everybody. So only policies of the root workspace count, whose operators decide for all
// workspaces, and only as they are when the month begins.
func (l *ledger) readPolicies(view projections.View, a *registry.Authority) error {
	type candidate struct {
		AppliedPolicy
		order domain.Precedence
	}
	chosen := map[domain.PolicyKind]*candidate{
		domain.PolicyCommitmentDiscount: {AppliedPolicy: AppliedPolicy{
			Kind: domain.PolicyCommitmentDiscount, Value: string(attribution.AsSupplied),
		}},
		domain.PolicyIdleCost: {AppliedPolicy: AppliedPolicy{Kind: domain.PolicyIdleCost, Value: "owner"}},
	}
	err := view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		subject := k.Scope + "/" + k.ID
		for i := range h.Versions {
			ev := h.Versions[i].Event.(*domain.PolicySet)
			ended := ev.EffectiveTo != 0 && ev.EffectiveTo <= l.month.From
			if chosen[ev.Kind] == nil || h.Versions[i].Order.Effective >= l.month.To || ended {
				continue
			}
			if reason := a.Judge(k, h, i); reason != "" {
				l.except(DecisionVoid, subject, "PolicySet: %s", reason)
			} else if h.Versions[i].Order.Effective > l.month.From {
				l.except(PolicyChangedInPeriod, subject, "%s %q takes effect at %s, from the next month on",
					ev.Kind, ev.Value, h.Versions[i].Order.Effective)
			}
		}
		v := a.At(k, h, l.month.From)
		if v == nil {
			return nil
		}
		ev := v.Event.(*domain.PolicySet)
		have := chosen[ev.Kind]
		switch {
		case have == nil || ev.EffectiveTo != 0 && ev.EffectiveTo <= l.month.From:
			return nil
		case k.Scope != a.Root():
			l.except(PolicyNotApplied, subject, "%s is decided for all workspaces, by %s", ev.Kind, cmp.Or(a.Root(), "nobody yet"))
			return nil
		case !ev.Selector.IsZero():
			l.except(PolicyNotApplied, subject, "%s for a part of the workloads: a bill is divided by one rule", ev.Kind)
			return nil
		}
		next := &candidate{order: v.Order, AppliedPolicy: AppliedPolicy{
			Kind: ev.Kind, Value: ev.Value, Policy: k.ID, Workspace: k.Scope, From: ev.EffectiveFrom, Operator: v.Signer.Operator,
		}}
		if have.Policy != "" {
			if have.order.After(next.order) {
				have, next = next, have
			}
			l.except(PolicyNotApplied, have.Workspace+"/"+have.Policy, "%s is replaced by %s", ev.Kind, next.Policy)
		}
		chosen[ev.Kind] = next
		return nil
	})
	if err != nil {
		return fmt.Errorf("read policies: %w", err)
	}
	for _, kind := range []domain.PolicyKind{domain.PolicyCommitmentDiscount, domain.PolicyIdleCost} {
		l.policies = append(l.policies, chosen[kind].AppliedPolicy)
	}
	l.policy = attribution.Policy{
		Discount:       attribution.Discount(chosen[domain.PolicyCommitmentDiscount].Value),
		IdleToPlatform: chosen[domain.PolicyIdleCost].Value == idleToPlatform,
	}
	return nil
}

// ofLines reports whether a mapping rule is for lines of bills, and returns it as attribution reads it.
func ofLines(subject string, ev *domain.MappingRuleSet) (r attribution.MeterRule, ok bool) {
	r = attribution.MeterRule{Name: subject, Columns: ev.Columns, Buys: ev.Buys}
	switch {
	case ev.Buys == domain.BuysOutside:
		r.To = attribution.PlatformOutside
	case ev.Buys == "" && len(ev.Columns) > 0:
		r.To, r.Shares, r.ShareBy = ev.ToWorkspace, ev.ToShares, ev.ToShareBy
	}
	return r, ev.Buys != "" || len(ev.Columns) > 0
}

// chargesLines reports whether an event is a rule that says who is charged for lines, and nothing else.
func chargesLines(ev domain.Event) bool {
	rule, ok := ev.(*domain.MappingRuleSet)
	if !ok {
		return false
	}
	of, forLines := ofLines(rule.Rule, rule)
	return forLines && of.Charges()
}

// readRules reads the mapping rules that say what lines buy, or who is charged for them. As with policies, only those
// of the root workspace count, as they are when the month begins.
func (l *ledger) readRules(view projections.View, a *registry.Authority) error {
	var rules []lineRule
	before := len(l.exceptions)
	err := view.Scan(projections.Query{Table: projections.TableMappingRules}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		subject := k.Scope + "/" + k.ID
		for i := range h.Versions {
			v := &h.Versions[i]
			if _, ok := ofLines(subject, v.Event.(*domain.MappingRuleSet)); !ok || v.Order.Effective >= l.month.To {
				continue
			}
			if reason := a.Judge(k, h, i); reason != "" {
				l.except(DecisionVoid, subject, "MappingRuleSet: %s", reason)
			} else if v.Order.Effective > l.month.From {
				l.except(PolicyChangedInPeriod, subject,
					"a rule about lines of bills takes effect at %s, from the next month on", v.Order.Effective)
			}
		}
		v := a.At(k, h, l.month.From)
		if v == nil {
			return nil
		}
		ev := v.Event.(*domain.MappingRuleSet)
		of, ok := ofLines(subject, ev)
		switch {
		case !ok:
		case k.Scope != a.Root():
			l.except(PolicyNotApplied, subject, "who is charged for lines, and what they buy, is decided for all workspaces, by %s",
				cmp.Or(a.Root(), "nobody yet"))
		default:
			rules = append(rules, lineRule{ev, of, v.Signer.Operator})
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read mapping rules: %w", err)
	}
	l.follow(rules)
	l.notFollowed = map[string]bool{}
	for _, x := range l.exceptions[before:] {
		l.notFollowed[x.Subject] = true
	}
	return nil
}

// lineRule is a mapping rule for lines of bills, with the operator who decided it.
type lineRule struct {
	*domain.MappingRuleSet
	attribution.MeterRule
	operator string
}

// follow notes the rules for lines of bills, in the order in which they are tried.
func (l *ledger) follow(rules []lineRule) {
	slices.SortFunc(rules, func(x, y lineRule) int {
		return cmp.Or(cmp.Compare(x.Priority, y.Priority), cmp.Compare(x.Rule, y.Rule))
	})
	for i := range rules {
		l.rules = append(l.rules, rules[i].MeterRule)
		l.applied = append(l.applied, AppliedRule{rules[i].Name, rules[i].EffectiveFrom, rules[i].operator})
	}
	l.lineRules = rules
}
