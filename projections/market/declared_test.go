package market_test

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/market"
	"quartermaster/projections/storetest"
)

// Valid offers are listed with their source.
func TestOfferStatements(t *testing.T) {
	start := storetest.Start
	quote := func(region, id string, to domain.Instant) domain.Envelope {
		return domain.Envelope{Source: "importer/prices", Time: start, Event: &domain.OfferQuoted{
			Market: domain.Market{Provider: "p", Region: region}, Offer: id, SKU: "s", GPUModel: "H100", GPUCount: 8, Kind: domain.OfferOnDemand,
			Hourly: storetest.Dec("2"), Currency: "USD", ValidFrom: start, ValidTo: to,
		}}
	}
	l := storetest.NewLog()
	l.Append(quote("fra", "o2", 0), quote("", "o1", start+9*domain.Day), quote("fra", "over", start+domain.Day))
	storetest.FoldView(t, l, func(v projections.View) {
		got, err := market.OfferStatements(v, start+2*domain.Day)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != 2 || got[0].Name != "p/fra/o2" || got[0].Until != 0 || got[1].Name != "p/o1" || got[1].Until != start+9*domain.Day {
			t.Fatalf("%+v", got)
		}
		for _, s := range got {
			if s.Since != start || s.DecidedBy != "" || s.Source != "importer/prices" || s.Declared.(market.OfferEntry).Model == "" {
				t.Errorf("%+v", s)
			}
		}
	})
}
