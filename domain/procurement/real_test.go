package procurement_test

import (
	"maps"
	"math/big"
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/simulations/public"
)

// shavedice reads three years of hourly demand by region and machine type, and
// "all" types of each region together.
func shavedice(t testing.TB) map[string][]int {
	t.Helper()
	each := public.Shavedice(t)
	out := map[string][]int{}
	for _, s := range each {
		out[s.Region+s.Kind] = s.Units
	}
	for _, s := range public.Together(each) {
		out[s.Region+" "+s.Kind] = s.Units
	}
	return out
}

// Real demand is solved to a proven optimum, much cheaper than the best constant commitment.
func TestRealDemand(t *testing.T) {
	demand := shavedice(t)
	const price = 1_000_000_000
	all, constants := new(big.Int), new(big.Int)
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		p := &procurement.Pool{ID: name}
		for m := range 36 {
			p.Epochs = append(p.Epochs, procurement.Epoch{
				Span:     domain.Interval{From: domain.Instant(m) * 730 * domain.Hour, To: domain.Instant(m+1) * 730 * domain.Hour},
				Demand:   procurement.Steps(demand[name][m*730 : (m+1)*730]),
				OnDemand: price, Spot: -1, Shortage: 10 * price, Quota: procurement.Unlimited,
			})
		}
		for _, o := range []struct {
			id               string
			months, permille procurement.Nano
		}{{"1 month", 1, 850}, {"3 months", 3, 780}, {"6 months", 6, 720}, {"12 months", 12, 644}, {"36 months", 36, 445}} {
			offer := procurement.Offer{ID: o.id, Guaranteed: true, Term: int(o.months)}
			for m := range procurement.Nano(36) {
				offer.Starts = append(offer.Starts, procurement.Start{Epoch: int(m), Cost: min(o.months, 36-m) * 730 * price / 1000 * o.permille, Max: procurement.Unlimited})
			}
			p.Offers = append(p.Offers, offer)
		}
		s := solve(t, p)
		rule := constant(t, p)
		nothing, err := procurement.Evaluate(p, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !s.Exact || s.Cost.Cmp(rule) > 0 {
			t.Errorf("%s: cost %d, bound %d; a constant commitment %d", name, s.Cost, s.Bound, rule)
		}
		if len(name) > 2 {
			t.Logf("region %s: %.1f%% of on-demand; the best constant commitment costs %.1f%% more", name, 100*ratio(s.Cost, nothing.Cost), 100*ratio(rule, s.Cost)-100)
			continue
		}
		all.Add(all, s.Cost)
		constants.Add(constants, rule)
	}
	t.Logf("the best constant commitment of each of %d pools costs %.1f%% more than theirs", len(demand)-2, 100*ratio(constants, all)-100)
}
