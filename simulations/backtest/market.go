package backtest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// Quote is an offer at a point in time.
type Quote struct {
	domain.OfferQuoted
	Synthetic bool // invented, or not known at the time
	// Since is when it became known and valid; 0 if invented.
	Since domain.Instant
}

// Generated is the market of pools without prices: on-demand at 1 an hour, a one-year commitment at
// 0.644 and a three-year one at 0.445 of that, both discount-only with nothing upfront. The ratios
// are those of g5.48xlarge in cn-north-1, for which AWS published its whole grid of terms. All of
// it is synthetic.
func Generated() Market {
	price := func(milli int64) domain.Decimal { return decimal.New(milli, -3) }
	return Market{
		OnDemand: Price{Hourly: price(1000), Synthetic: true},
		Terms: []Term{
			{ID: "generated/1y", Months: 12, Hourly: price(644), Synthetic: true},
			{ID: "generated/3y", Months: 36, Hourly: price(445), Synthetic: true},
		},
		Quota: procurement.Unlimited,
	}
}

// MarketOf sorts the quotes for one machine size into a market. The cheapest on-demand and spot
// offers count; an hour of spot work takes 1/(1 − overhead) hours. Its error says why there is no
// price to test against.
//
// If some on-demand price was known at the time, quotes that were not known then are ignored.
// Otherwise all quotes count, and are synthetic.
//
// A discount-only commitment counts whichever provider sells on demand. A commitment begins after
// its lead time, rounded up to whole months.
func MarketOf(quotes []Quote, currency string, overhead domain.Decimal) (Market, error) {
	m := Market{Quota: procurement.Unlimited}
	one := decimal.NewFromInt(1)
	if overhead.IsNegative() || overhead.GreaterThanOrEqual(one) {
		return m, fmt.Errorf("spot loses %s of its time: want 0 or more, and less than 1", overhead)
	}
	quotes = slices.Clone(quotes)
	slices.SortStableFunc(quotes, func(a, b Quote) int {
		return cmp.Or(cmp.Compare(a.Market.Provider, b.Market.Provider), cmp.Compare(a.Offer, b.Offer),
			cmp.Compare(a.Zone, b.Zone), a.Hourly.Cmp(b.Hourly))
	})
	if slices.ContainsFunc(quotes, func(q Quote) bool {
		return q.Kind == domain.OfferOnDemand && q.Currency == currency && !q.Synthetic
	}) {
		quotes = slices.DeleteFunc(quotes, func(q Quote) bool { return q.Synthetic })
	}
	found, other := false, ""
	for i := range quotes {
		o := &quotes[i]
		if o.Currency != currency {
			other = o.Currency
			continue
		}
		synthetic := o.Synthetic || o.Generated
		switch o.Kind {
		case domain.OfferOnDemand:
			if !found || o.Hourly.LessThan(m.OnDemand.Hourly) {
				m.OnDemand, m.Seller, found = Price{o.Hourly, synthetic, o.Since}, o.Market.Provider, true
			}
		case domain.OfferSpot:
			p := Price{o.Hourly.DivRound(one.Sub(overhead), 9), synthetic, o.Since}
			if m.Spot == nil || p.Hourly.LessThan(m.Spot.Hourly) {
				m.Spot = &p
			}
		case domain.OfferReserved, domain.OfferCapacityBlock:
			t := Term{
				ID: o.Market.Provider + " " + o.Offer, Seller: o.Market.Provider, Months: int(o.TermMonths), Lead: (int(o.LeadTimeHours) + 729) / 730,
				Guaranteed: o.GuaranteesCapacity, Upfront: o.Upfront, Hourly: o.Hourly,
				Max: int(min(o.MaxUnits, procurement.MaxUnits)), Synthetic: synthetic, Since: o.Since,
			}
			if o.Zone != "" {
				t.ID += " " + o.Zone
			}
			if t.Months >= 1 && t.Months <= MaxMonths && t.Lead <= MaxMonths &&
				(len(m.Terms) == 0 || m.Terms[len(m.Terms)-1].ID != t.ID) {
				m.Terms = append(m.Terms, t)
			}
		}
	}
	switch {
	case !found && other != "":
		return m, fmt.Errorf("no on-demand price in %s, only in others such as %s", currency, other)
	case !found:
		return m, fmt.Errorf("no on-demand price is known")
	}
	slices.SortFunc(m.Terms, func(a, b Term) int { return cmp.Compare(a.ID, b.ID) })
	return m, nil
}
