package planning

import (
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/plan"
	"quartermaster/projections"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// HeldThen returns what was held at a past time, as it looked then: commitments
// whose terms were not over and machines of one's own. What had begun counts
// whenever the log heard of it, because it had been bought; a purchase, a renewal
// or an end that was to come counts if it was known.
func HeldThen(view projections.View, a *registry.Authority, at domain.Instant, region string) ([]plan.Held, error) {
	view = registry.Then(view, at)
	var in regions
	if region != "" {
		in = regions{region}
	}
	held, _, err := planHeld(view, a, at, in)
	if err != nil {
		return nil, err
	}
	owned, err := planOwned(view, at, in)
	if err != nil {
		return nil, err
	}
	return append(held, owned...), nil
}

// OnDemandQuotasThen returns the quotas in force at a past time as they were known
// then. Of an account in a market of which none was known, those count that are
// known now to have been in force.
func OnDemandQuotasThen(view projections.View, a *registry.Authority, at domain.Instant) ([]market.OnDemandQuotaEntry, error) {
	out, err := market.OnDemandQuotas(registry.Known(view, at), a, at)
	if err != nil {
		return nil, err
	}
	since, err := market.OnDemandQuotas(view, a, at)
	if err != nil {
		return nil, err
	}
	known := len(out)
	for _, q := range since {
		if !slices.ContainsFunc(out[:known], func(o market.OnDemandQuotaEntry) bool { return o.Market == q.Market && o.Account == q.Account }) {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, market.CompareQuotas)
	return out, nil
}
