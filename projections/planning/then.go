package planning

import (
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/plan"
	"quartermaster/projections"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// HeldThen returns what was held at a past time, as known then: commitments that were not over, and
// owned machines. Terms that had begun count even if the log learned of them later, because they
// had been bought. A future purchase, renewal or end counts if it was known.
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

// OnDemandQuotasThen returns the quotas valid at a past time as known then. For an account in a
// market without a known quota, the quotas count that are now known to have been valid.
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
		same := func(o market.OnDemandQuotaEntry) bool { return o.Market == q.Market && o.Account == q.Account }
		if !slices.ContainsFunc(out[:known], same) {
			out = append(out, q)
		}
	}
	slices.SortFunc(out, market.CompareQuotas)
	return out, nil
}
