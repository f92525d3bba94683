package market

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// ModelName returns the catalogue's name of a GPU model, or the name unchanged if it is unknown.
func ModelName(name string) string {
	if m, ok := domain.LookupGPU(name); ok {
		return m.Name
	}
	return name
}

// OfferFilter selects offers; empty fields match all.
type OfferFilter struct {
	Provider, Region, SKU string
	GPUModel              string // in any spelling that the catalogue knows
	// KnownBy excludes what became known later, as in [demand.Filter].
	KnownBy domain.Instant
	// AppendedBy excludes what was appended later, whenever it was known.
	AppendedBy domain.Instant
}

// OfferEntry is a valid offer: its latest quote and its source.
type OfferEntry struct {
	domain.OfferQuoted
	Model string            `json:"model"` // GPU model as the catalogue spells it, else as quoted
	Known domain.Instant    `json:"known"` // when the quote became known
	Order domain.Precedence `json:"order"` // the event: its source, sequence and times
}

// Offers returns the valid offers at a time, by provider, region and id. The last quote or
// withdrawal up to then counts: an offer that was withdrawn, or whose last quote has expired, is
// not valid, even if an earlier quote was given for longer.
func Offers(view projections.View, at domain.Instant, f OfferFilter) ([]OfferEntry, error) {
	out := []OfferEntry{}
	model := ModelName(f.GPUModel)
	var last projections.Key
	var says *projections.Version
	finish := func() {
		if says == nil {
			return
		}
		q, ok := says.Event.(*domain.OfferQuoted)
		if !ok || q.ValidTo != 0 && at >= q.ValidTo {
			return
		}
		e := OfferEntry{OfferQuoted: *q, Model: ModelName(q.GPUModel), Known: says.Known(), Order: says.Order}
		if (f.Provider == "" || f.Provider == q.Market.Provider) && (f.Region == "" || f.Region == q.Market.Region) &&
			(f.SKU == "" || f.SKU == q.SKU) && (f.GPUModel == "" || model == e.Model) {
			out = append(out, e)
		}
	}
	query := projections.Query{Table: projections.TableOffers, To: projections.MonthStart(at) + 1}
	if f.Provider != "" && f.Region != "" {
		query.Scope = domain.Market{Provider: f.Provider, Region: f.Region}.Key()
	}
	err := view.Scan(query, func(k projections.Key, row projections.Row) error {
		if k.Scope != last.Scope || k.ID != last.ID {
			finish()
			last, says = k, nil
		}
		h := row.(*projections.History)
		for i := range h.Versions {
			v := &h.Versions[i]
			if v.Order.Effective > at {
				break
			}
			if (f.KnownBy == 0 || v.Known() <= f.KnownBy) && (f.AppendedBy == 0 || v.Order.Appended <= f.AppendedBy) {
				says = v
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read offers: %w", err)
	}
	finish()
	slices.SortFunc(out, func(a, b OfferEntry) int {
		return cmp.Or(compareMarkets(a.Market, b.Market), cmp.Compare(a.Offer, b.Offer))
	})
	return out, nil
}

func compareMarkets(a, b domain.Market) int {
	return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Region, b.Region))
}

// OnDemandQuotaEntry is a valid quota.
type OnDemandQuotaEntry struct {
	domain.OnDemandQuotaSet
	// Model is the GPU model as the catalogue spells it, else as stated; "" for all models together.
	Model string `json:"model"`
}

// OnDemandQuotas returns the valid quotas of accounts at a time, by provider, region, account and
// model. If one model has quotas under several spellings, the latest decision counts.
func OnDemandQuotas(view projections.View, a *registry.Authority, at domain.Instant) ([]OnDemandQuotaEntry, error) {
	type bound struct {
		market         domain.Market
		account, model string
	}
	type decided struct {
		entry OnDemandQuotaEntry
		order domain.Precedence
	}
	quotas := map[bound]decided{}
	query := projections.Query{Table: projections.TableOnDemandQuotas}
	err := view.Scan(query, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), at)
		if v == nil {
			return nil
		}
		q := v.Event.(*domain.OnDemandQuotaSet)
		e := OnDemandQuotaEntry{OnDemandQuotaSet: *q, Model: ModelName(q.GPUModel)}
		b := bound{q.Market, q.Account, e.Model}
		if before, twice := quotas[b]; !twice || v.Order.After(before.order) {
			quotas[b] = decided{e, v.Order}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read on-demand quotas: %w", err)
	}
	out := make([]OnDemandQuotaEntry, 0, len(quotas))
	for _, d := range quotas {
		out = append(out, d.entry)
	}
	slices.SortFunc(out, CompareQuotas)
	return out, nil
}

// CompareQuotas orders quotas by market, account and GPU model.
func CompareQuotas(a, b OnDemandQuotaEntry) int {
	return cmp.Or(compareMarkets(a.Market, b.Market), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Model, b.Model))
}

// SpotRate is what was observed of spot capacity in a market: how many units were interrupted, and
// for how long units were in service.
type SpotRate struct {
	Market       domain.Market `json:"market"`
	SKU          string        `json:"sku"`
	Interrupted  uint64        `json:"interrupted"` // units; an event that states none counts as one
	Events       int           `json:"events"`
	ServiceMs    int64         `json:"service_ms"`     // milliseconds in service, over all nodes
	NoticeMedian uint32        `json:"notice_seconds"` // the lower median over events
}

// PerUnitHour returns the interruptions per unit and hour to 12 digits. It returns false if no unit
// was seen in service.
func (r *SpotRate) PerUnitHour() (domain.Decimal, bool) {
	if r.ServiceMs == 0 {
		return domain.Decimal{}, false
	}
	perMs := decimal.NewFromUint64(r.Interrupted).Mul(decimal.NewFromInt(projections.MsPerHour))
	return perMs.DivRound(decimal.NewFromInt(r.ServiceMs), 12), true
}

// SpotRates returns what was observed of spot capacity between two times, by provider, region and
// SKU: the interruptions, and the time in service of nodes registered as spot. A quantity that was
// not observed is zero.
func SpotRates(view projections.View, from, to domain.Instant) ([]SpotRate, error) {
	type kind struct {
		market domain.Market
		sku    string
	}
	rates, notices := map[kind]*SpotRate{}, map[kind][]uint32{}
	of := func(k kind) *SpotRate {
		r := rates[k]
		if r == nil {
			r = &SpotRate{Market: k.market, SKU: k.sku}
			rates[k] = r
		}
		return r
	}
	span := domain.Interval{From: from, To: to}
	if span.Empty() {
		return nil, fmt.Errorf("spot rates from %s to %s: there is no time between", from, to)
	}
	query := projections.Query{
		Table: projections.TableSpotInterruptions, From: projections.DayOf(max(0, from)),
		To: projections.HourOf(to-1) + 1,
	}
	err := view.Scan(query, func(_ projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			if at := h.Versions[i].Order.Effective; at < from || at >= to {
				continue
			}
			ev := h.Versions[i].Event.(*domain.SpotInterrupted)
			k := kind{ev.Market, ev.SKU}
			r := of(k)
			r.Events++
			r.Interrupted += uint64(max(1, ev.Units))
			notices[k] = append(notices[k], ev.NoticeSeconds)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read spot interruptions: %w", err)
	}
	f, err := inventory.ReadFleet(view)
	if err != nil {
		return nil, err
	}
	for _, n := range f.Nodes {
		for i := range n.Service {
			s := &n.Service[i]
			within := s.Intersect(span)
			if s.Node.BillingModel != domain.BillingSpot || within.Empty() {
				continue
			}
			market := domain.Market{Provider: s.Node.Provider}
			if c, _ := f.Cluster(n.Cluster, within.From); c != nil {
				market = domain.Market{Provider: cmp.Or(s.Node.Provider, c.Provider), Region: c.Region}
			}
			of(kind{market, s.Node.SKU}).ServiceMs += int64(within.Length() / projections.NsPerMs)
		}
	}
	out := make([]SpotRate, 0, len(rates))
	for k, r := range rates {
		if n := notices[k]; len(n) > 0 {
			slices.Sort(n)
			r.NoticeMedian = n[(len(n)-1)/2]
		}
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b SpotRate) int {
		return cmp.Or(compareMarkets(a.Market, b.Market), cmp.Compare(a.SKU, b.SKU))
	})
	return out, nil
}
