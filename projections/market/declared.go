package market

import (
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// OfferStatements returns [Offers] as statements, by provider, region and offer. Quotes need no
// signature and belong to no workspace: Source states the source of the quote. Declared is an
// [OfferEntry].
func OfferStatements(view projections.View, at domain.Instant) ([]registry.Statement, error) {
	offers, err := Offers(view, at, OfferFilter{})
	if err != nil {
		return nil, err
	}
	out := make([]registry.Statement, len(offers))
	for i := range offers {
		o := &offers[i]
		name := o.Market.Provider + "/" + o.Offer
		if o.Market.Region != "" {
			name = o.Market.Provider + "/" + o.Market.Region + "/" + o.Offer
		}
		out[i] = registry.Statement{
			Name: name, Since: o.ValidFrom, Until: o.ValidTo, Decided: o.Order.Time, Source: o.Order.Source,
			Declared: *o,
		}
	}
	registry.SortStatements(out)
	return out, nil
}
