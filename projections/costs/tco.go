package costs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

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
	// By is what Groups are by, and Groups the sums of assets; null if they were not asked for.
	By     TCODimension `json:"by,omitempty"`
	Groups []GroupTCO   `json:"groups,omitempty"` // by key, then currency
	registry.Completeness

	offers []market.OfferEntry
}

// TCODimension is what the cost of assets is summed up by.
type TCODimension string

// The dimensions.
const (
	TCOByAsset    TCODimension = "asset"
	TCOByGPUModel TCODimension = "gpu_model"
	TCOByCluster  TCODimension = "cluster"
	TCOByRegion   TCODimension = "region"
	TCOByProvider TCODimension = "provider"
)

// TCODimensions returns the dimensions, in the order in which help lists them.
func TCODimensions() []TCODimension {
	return []TCODimension{TCOByAsset, TCOByGPUModel, TCOByCluster, TCOByRegion, TCOByProvider}
}

// GroupTCO is what assets with something in common cost in a month, in one currency.
type GroupTCO struct {
	Key    string   `json:"key"` // "" for none
	Assets []string `json:"assets"`
	// GPUModel is that of its assets with GPUs, "" if they have several.
	GPUModel string `json:"gpu_model"`
	Cost
	Charges   []OwnedCharge `json:"charges"`
	Elsewhere []Elsewhere   `json:"elsewhere"` // see [AssetTCO]; none for several GPU models
}

// AssetTCO is what an asset cost in a month, in one currency.
type AssetTCO struct {
	Asset string `json:"asset"` // cluster/asset
	// GPUModel is that of most of its hours, "" without any.
	GPUModel string `json:"gpu_model"`
	Cluster  string `json:"cluster"`
	// Region and Provider are those of most of its hours, else of its cost.
	Region   string `json:"region"`
	Provider string `json:"provider"`
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
	return Query{Month: month, By: []Dimension{ByInvoice, ByGPUModel, ByRegion, ByProvider}}
}

type assetKey struct{ asset, currency string }

// assetSum is an asset with its hours by GPU model, region and provider.
type assetSum struct {
	AssetTCO
	models, regions, providers map[string]int64
	charges                    map[string]attribution.Amount
}

// most returns the name with the most hours, of several the first; without any hours the first name.
func most(hours map[string]int64) (of string) {
	for _, name := range slices.Sorted(maps.Keys(hours)) {
		if of == "" || hours[name] > hours[of] {
			of = name
		}
	}
	return of
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
			s = &assetSum{
				models: map[string]int64{}, regions: map[string]int64{}, providers: map[string]int64{},
				charges: map[string]attribution.Amount{},
			}
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
			s.regions[g.Key[ByRegion]] += g.Bought
			s.providers[g.Key[ByProvider]] += g.Bought
		}
	}
	offers, err := market.Offers(view, r.Month.To-1, market.OfferFilter{AppendedBy: by})
	if err != nil {
		return nil, err
	}
	t := &TCO{Position: r.Position, Month: r.Month, Methods: r.Methods, Assets: []AssetTCO{}, Completeness: r.Completeness, offers: offers}
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
		s.Cluster, _, _ = strings.Cut(s.Asset, "/")
		s.Region, s.Provider = most(s.regions), most(s.providers)
		s.Elsewhere = s.elsewhere(s.GPUModel, offers)
		t.Assets = append(t.Assets, s.AssetTCO)
	}
	slices.SortFunc(t.Assets, func(x, y AssetTCO) int {
		return cmp.Or(cmp.Compare(x.Asset, y.Asset), cmp.Compare(x.Currency, y.Currency))
	})
	return t, nil
}

// Of leaves the assets that have a name, cluster/asset or the asset alone, and reports whether there are any.
func (t *TCO) Of(name string) bool {
	t.Assets = slices.DeleteFunc(slices.Clone(t.Assets), func(x AssetTCO) bool {
		_, asset, _ := strings.Cut(x.Asset, "/")
		return x.Asset != name && asset != name
	})
	return len(t.Assets) > 0
}

// GroupBy sums up the assets.
func (t *TCO) GroupBy(by TCODimension) error {
	if !slices.Contains(TCODimensions(), by) {
		return fmt.Errorf("group assets by %q: want one of %v", by, TCODimensions())
	}
	t.By, t.Groups = by, []GroupTCO{}
	at, several := map[assetKey]int{}, map[assetKey]bool{}
	for i := range t.Assets {
		x := &t.Assets[i]
		key := assetKey{map[TCODimension]string{
			TCOByAsset: x.Asset, TCOByGPUModel: x.GPUModel, TCOByCluster: x.Cluster, TCOByRegion: x.Region, TCOByProvider: x.Provider,
		}[by], x.Currency}
		if _, known := at[key]; !known {
			at[key] = len(t.Groups)
			t.Groups = append(t.Groups, GroupTCO{Key: key.asset, Cost: Cost{Currency: x.Currency}, Charges: []OwnedCharge{}, Elsewhere: []Elsewhere{}})
		}
		g := &t.Groups[at[key]]
		g.Assets = append(g.Assets, x.Asset)
		several[key] = several[key] || g.GPUModel != "" && x.GPUModel != "" && g.GPUModel != x.GPUModel
		g.GPUModel = cmp.Or(g.GPUModel, x.GPUModel)
		g.sum(&x.Cost)
		for _, c := range x.Charges {
			j := slices.IndexFunc(g.Charges, func(of OwnedCharge) bool { return of.What == c.What })
			if j < 0 {
				j = len(g.Charges)
				g.Charges = append(g.Charges, OwnedCharge{What: c.What})
			}
			g.Charges[j].Billed = g.Charges[j].Billed.Add(c.Billed)
		}
	}
	for key, i := range at {
		g := &t.Groups[i]
		g.finish()
		g.BilledMinor, g.EffectiveMinor = g.Billed.Minor(g.Currency), g.Effective.Minor(g.Currency)
		slices.SortFunc(g.Charges, func(x, y OwnedCharge) int { return cmp.Compare(x.What, y.What) })
		if several[key] {
			g.GPUModel = ""
		}
		g.Elsewhere = g.elsewhere(g.GPUModel, t.offers)
	}
	slices.SortFunc(t.Groups, func(x, y GroupTCO) int {
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Currency, y.Currency))
	})
	return nil
}

// elsewhere returns the cheapest offer of each provider and kind for a GPU model, beside a cost.
func (c *Cost) elsewhere(model string, offers []market.OfferEntry) []Elsewhere {
	type key struct {
		provider string
		kind     domain.OfferKind
	}
	cheapest := map[key]Elsewhere{}
	for i := range offers {
		o := &offers[i]
		if model == "" || o.Model != market.ModelName(model) || o.Currency != c.Currency || o.GPUCount == 0 {
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
		if rented := e.PerGPUHour.Mul(decimal.New(c.Bought, 0)); rented.Sign() > 0 {
			total := c.Effective.Decimal().Mul(decimal.NewFromInt(int64(domain.Hour/domain.Second) * 1000 * 1000))
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
