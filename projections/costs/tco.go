package costs

import (
	"cmp"
	"maps"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/owned"
	"quartermaster/projections"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// TCO is the total cost of ownership of owned hardware in a month, beside what its hours cost
// elsewhere.
type TCO struct {
	Position string          `json:"position"`
	Month    domain.Interval `json:"period"`
	Methods  Methods         `json:"methods"`
	Assets   []AssetTCO      `json:"assets"` // by asset, then currency
	registry.Completeness
}

// AssetTCO is what an asset cost in a month, in one currency.
type AssetTCO struct {
	Asset string `json:"asset"` // cluster/asset
	// GPUModel is that of most of its hours, "" without any.
	GPUModel string `json:"gpu_model"`
	// Cost has the hours in service (bought), held (allocated) and useful, and the cost of each.
	Cost
	Charges []OwnedCharge `json:"charges"` // by what they are for
	// Elsewhere are offers for the GPU model in the same currency as the month ends: the cheapest of
	// each provider and kind, cheapest first.
	Elsewhere []Elsewhere `json:"elsewhere"`
}

// Elsewhere is an offer for what an asset provides.
type Elsewhere struct {
	Provider string           `json:"provider"`
	Region   string           `json:"region"`
	Offer    string           `json:"offer"`
	Kind     domain.OfferKind `json:"kind"`
	// PerGPUHour is the hourly price with the upfront amount spread over the term, rounded to six
	// decimals.
	PerGPUHour domain.Decimal `json:"per_gpu_hour"`
	// BreakEven is the part of the hours in service, in per mille rounded up, from which owning costs
	// no more than renting the hours that are used. Above 1000, renting every hour would have cost
	// less than owning. Null if no hour was in service.
	BreakEven *int64 `json:"break_even_permille"`
}

// TCOQuery is the query of costs whose answer [NewTCO] needs.
func TCOQuery(month domain.Interval) Query {
	return Query{Month: month, By: []Dimension{ByInvoice, ByGPUModel}}
}

type assetKey struct{ asset, currency string }

// assetSum is an asset with its hours by GPU model.
type assetSum struct {
	AssetTCO
	models  map[string]int64
	charges map[string]attribution.Amount
}

// NewTCO returns the total cost of ownership, from a division of a month and its answer to [TCOQuery]. All but the
// offers is of the division, so it is what a closed month was closed with. Of the offers in the view those count that
// were appended by a time, 0 for all.
func NewTCO(view projections.View, d *Division, r *Report, by domain.Instant) (*TCO, error) {
	assets, sums := map[string]string{}, map[assetKey]*assetSum{}
	sumOf := func(asset, currency string) *assetSum {
		k := assetKey{asset, currency}
		s := sums[k]
		if s == nil {
			s = &assetSum{models: map[string]int64{}, charges: map[string]attribution.Amount{}}
			s.Asset, s.Currency = asset, currency
			sums[k] = s
		}
		return s
	}
	err := d.each(func(p *part) error {
		if asset := p.charge().Column(owned.ColumnAsset); asset != "" {
			l := p.allocation.Line
			assets[ledgerName(l.Issuer, l.Account, l.Invoice)] = asset
			charges := sumOf(asset, l.Currency).charges
			charges[l.Detail] = charges[l.Detail].Add(p.allocation.Billed)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		if asset, ok := assets[g.Key[ByInvoice]]; ok {
			s := sumOf(asset, g.Currency)
			s.sum(&g.Cost)
			s.models[g.Key[ByGPUModel]] += g.Bought
		}
	}
	offers, err := market.Offers(view, r.Month.To-1, market.OfferFilter{AppendedBy: by})
	if err != nil {
		return nil, err
	}
	t := &TCO{Position: r.Position, Month: r.Month, Methods: r.Methods, Assets: []AssetTCO{}, Completeness: r.Completeness}
	for _, s := range sums {
		s.finish()
		s.BilledMinor, s.EffectiveMinor = s.Billed.Minor(s.Currency), s.Effective.Minor(s.Currency)
		for _, model := range slices.Sorted(maps.Keys(s.models)) {
			if s.models[model] > s.models[s.GPUModel] {
				s.GPUModel = model
			}
		}
		s.Charges = []OwnedCharge{}
		for _, what := range slices.Sorted(maps.Keys(s.charges)) {
			s.Charges = append(s.Charges, OwnedCharge{What: what, Billed: s.charges[what].Decimal()})
		}
		s.Elsewhere = s.elsewhere(offers)
		t.Assets = append(t.Assets, s.AssetTCO)
	}
	slices.SortFunc(t.Assets, func(x, y AssetTCO) int {
		return cmp.Or(cmp.Compare(x.Asset, y.Asset), cmp.Compare(x.Currency, y.Currency))
	})
	return t, nil
}

// elsewhere returns the cheapest offer of each provider and kind for the asset's GPU model.
func (s *assetSum) elsewhere(offers []market.OfferEntry) []Elsewhere {
	type key struct {
		provider string
		kind     domain.OfferKind
	}
	cheapest := map[key]Elsewhere{}
	for i := range offers {
		o := &offers[i]
		if s.GPUModel == "" || o.Model != market.ModelName(s.GPUModel) || o.Currency != s.Currency || o.GPUCount == 0 {
			continue
		}
		price := o.Hourly
		if o.TermMonths > 0 {
			// A month is a twelfth of 8,766 hours, a year with its leap days.
			price = price.Add(o.Upfront.DivRound(decimal.New(int64(o.TermMonths)*7305, -1), priceDecimals+6))
		}
		e := Elsewhere{
			Provider: o.Market.Provider, Region: o.Market.Region, Offer: o.Offer, Kind: o.Kind,
			PerGPUHour: price.DivRound(decimal.NewFromInt(int64(o.GPUCount)), priceDecimals),
		}
		k := key{e.Provider, e.Kind}
		if before, known := cheapest[k]; !known || e.PerGPUHour.Cmp(before.PerGPUHour) < 0 {
			cheapest[k] = e
		}
	}
	list := make([]Elsewhere, 0, len(cheapest))
	for _, e := range cheapest {
		// total / (price × hours in service)
		if rented := e.PerGPUHour.Mul(decimal.New(s.Bought, 0)); rented.Sign() > 0 {
			total := s.Effective.Decimal().Mul(decimal.NewFromInt(int64(domain.Hour/domain.Second) * 1000 * 1000))
			permille := total.DivRound(rented, 9).Ceil().IntPart()
			e.BreakEven = &permille
		}
		list = append(list, e)
	}
	slices.SortFunc(list, func(x, y Elsewhere) int {
		return cmp.Or(x.PerGPUHour.Cmp(y.PerGPUHour), cmp.Compare(x.Provider, y.Provider), cmp.Compare(x.Kind, y.Kind))
	})
	return list
}

// priceDecimals are the decimals of prices of an hour.
const priceDecimals = 6
