package wire

import (
	"quartermaster/domain"
	eventsv1 "quartermaster/schemas/events/v1"
)

// Fields of the events of qm.market, keyed by provider and region, or by currency pair.

func market(m *mover, p *eventsv1.Market, d *domain.Market) {
	text(m, "provider", &p.Provider, &d.Provider)
	text(m, "region", &p.Region, &d.Region)
}

func offerQuoted(m *mover, p *eventsv1.OfferQuoted, d *domain.OfferQuoted) {
	nested(m, "market", &p.Market, &d.Market, market)
	text(m, "offer", &p.Offer, &d.Offer)
	text(m, "zone", &p.Zone, &d.Zone)
	text(m, "sku", &p.Sku, &d.SKU)
	text(m, "gpu_model", &p.GpuModel, &d.GPUModel)
	same(m, &p.GpuCount, &d.GPUCount)
	same(m, &p.GpuMilli, &d.GPUMilli)
	text(m, "spend", &p.Spend, &d.Spend)
	same(m, &p.GpuMemoryMib, &d.GPUMemoryMiB)
	same(m, &p.CpuMilli, &d.CPUMilli)
	same(m, &p.MemoryMib, &d.MemoryMiB)
	text(m, "kind", &p.Kind, &d.Kind)
	same(m, &p.TermMonths, &d.TermMonths)
	same(m, &p.Convertible, &d.Convertible)
	m.decimal("upfront", &p.Upfront, &d.Upfront)
	m.decimal("hourly", &p.Hourly, &d.Hourly)
	m.nullDecimal("effective_hourly", &p.EffectiveHourly, &d.EffectiveHourly)
	text(m, "currency", &p.Currency, &d.Currency)
	same(m, &p.GuaranteesCapacity, &d.GuaranteesCapacity)
	same(m, &p.LeadTimeHours, &d.LeadTimeHours)
	same(m, &p.MinUnits, &d.MinUnits)
	same(m, &p.MaxUnits, &d.MaxUnits)
	m.instant("valid_from", &p.ValidFrom, &d.ValidFrom)
	m.instant("valid_to", &p.ValidTo, &d.ValidTo)
	text(m, "as_of", &p.AsOf, &d.AsOf)
	text(m, "citation", &p.Citation, &d.Citation)
	same(m, &p.Generated, &d.Generated)
}

func offerWithdrawn(m *mover, p *eventsv1.OfferWithdrawn, d *domain.OfferWithdrawn) {
	nested(m, "market", &p.Market, &d.Market, market)
	text(m, "offer", &p.Offer, &d.Offer)
	m.instant("at", &p.At, &d.At)
}

func onDemandQuotaSet(m *mover, p *eventsv1.OnDemandQuotaSet, d *domain.OnDemandQuotaSet) {
	nested(m, "market", &p.Market, &d.Market, market)
	text(m, "account", &p.Account, &d.Account)
	text(m, "gpu_model", &p.GpuModel, &d.GPUModel)
	same(m, &p.LimitGpus, &d.LimitGPUs)
	m.instant("effective_from", &p.EffectiveFrom, &d.EffectiveFrom)
}

func spotInterrupted(m *mover, p *eventsv1.SpotInterrupted, d *domain.SpotInterrupted) {
	nested(m, "market", &p.Market, &d.Market, market)
	text(m, "zone", &p.Zone, &d.Zone)
	text(m, "sku", &p.Sku, &d.SKU)
	text(m, "node", &p.Node, &d.Node)
	same(m, &p.NoticeSeconds, &d.NoticeSeconds)
	same(m, &p.Units, &d.Units)
}

func tariffSet(m *mover, p *eventsv1.TariffSet, d *domain.TariffSet) {
	nested(m, "market", &p.Market, &d.Market, market)
	m.money("per_kwh", &p.PerKwh, &d.PerKWh)
	m.decimal("pue", &p.Pue, &d.PUE)
	m.instant("effective_from", &p.EffectiveFrom, &d.EffectiveFrom)
	list(m, "rates", &p.Rates, &d.Rates, siteRate)
}

func siteRate(m *mover, p *eventsv1.SiteRate, d *domain.SiteRate) {
	text(m, "cost", &p.Cost, &d.Cost)
	text(m, "per", &p.Per, &d.Per)
	m.money("price", &p.Price, &d.Price)
}

func fXRateSet(m *mover, p *eventsv1.FXRateSet, d *domain.FXRateSet) {
	text(m, "base", &p.Base, &d.Base)
	text(m, "quote", &p.Quote, &d.Quote)
	m.decimal("rate", &p.Rate, &d.Rate)
	text(m, "kind", &p.Kind, &d.Kind)
	m.interval("effective", &p.Effective, &d.Effective)
	text(m, "citation", &p.Citation, &d.Citation)
}
