package advice

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/market"

	"github.com/shopspring/decimal"
)

// gpuHour is what a GPU-hour of an offer costs, over its whole term.
type gpuHour struct {
	offer string
	price domain.Money
}

// perGPUHour returns what a GPU-hour of an offer costs if it is paid for its whole term, used or not. It reports false for
// an offer of less than a GPU, or with an upfront price and no term.
func perGPUHour(o *market.OfferEntry) (gpuHour, bool) {
	if o.GPUCount == 0 || o.Upfront.IsPositive() && o.TermMonths == 0 {
		return gpuHour{}, false
	}
	each := o.Hourly
	if o.TermMonths > 0 {
		each = each.Add(o.Upfront.DivRound(decimal.NewFromInt(domain.MonthHours*int64(o.TermMonths)), 18))
	}
	each = each.DivRound(decimal.NewFromInt(int64(o.GPUCount)), 18)
	return gpuHour{o.Market.Provider + "/" + o.Market.Region + "/" + o.Offer, domain.Money{Amount: each, Currency: o.Currency}}, true
}

type regionModel struct{ region, gpu string }

func (m regionModel) compare(o regionModel) int { return compareAll(m.region, o.region, m.gpu, o.gpu) }

// owning compares the cheapest on-demand offer of a region with the cheapest owned one, for the GPU models that are rented
// there. What is used is the time that GPUs were held, of that of the most GPUs that were up in an hour of the last four
// weeks: so many would be owned.
func (r *reader) owning() error {
	offers, err := market.Offers(r.view, r.at, market.OfferFilter{})
	if err != nil {
		return err
	}
	type prices map[string]gpuHour // by currency
	rent, own := map[regionModel]prices{}, map[regionModel]prices{}
	for i := range offers {
		o := &offers[i]
		to := rent
		if o.Kind == domain.OfferOwned {
			to = own
		} else if o.Kind != domain.OfferOnDemand {
			continue
		}
		k := regionModel{o.Market.Region, o.Model}
		x, ok := perGPUHour(o)
		if !ok {
			continue
		}
		if to[k] == nil {
			to[k] = prices{}
		}
		if have, known := to[k][o.Currency]; !known || x.price.Amount.LessThan(have.price.Amount) {
			to[k][o.Currency] = x
		}
	}
	window := r.last(weeks * 7 * domain.Day)
	type use struct{ up, used, unobserved, most int64 }
	rented := map[regionModel]*[weeks * weekHours]sum{}
	for k, hours := range r.months {
		c, _ := r.fleet.Cluster(k.cluster, r.at)
		if c == nil || c.ProviderClass == domain.Owned || own[regionModel{c.Region, k.gpu}] == nil {
			continue
		}
		of := regionModel{c.Region, k.gpu}
		if rented[of] == nil {
			rented[of] = &[weeks * weekHours]sum{}
		}
		for h := range hours {
			rented[of][h].add(&hours[h])
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(rented), regionModel.compare) {
		var u use
		for _, h := range rented[k] {
			up := h.service - h.down
			u.up, u.unobserved, u.most = u.up+up, u.unobserved+h.unobserved, max(u.most, up)
			u.used += up - h.idle - h.unobserved
		}
		currencies := slices.DeleteFunc(slices.Sorted(maps.Keys(own[k])), func(c string) bool {
			return !rent[k][c].price.Amount.IsPositive()
		})
		if u.most == 0 || len(currencies) == 0 {
			continue
		}
		o, x := own[k][currencies[0]], rent[k][currencies[0]]
		r.f.Owning = append(r.f.Owning, advice.Owning{
			Window: window, Region: k.region, GPUModel: k.gpu, Used: u.used * 1000 / (u.most * weeks * weekHours),
			BreakEven: o.price.Amount.Mul(decimal.NewFromInt(1000)).DivRound(x.price.Amount, 6).Ceil().IntPart(),
			Rented:    u.used, RentPerHour: x.price, OwnPerHour: o.price, RentOffer: x.offer, OwnOffer: o.offer,
			Coverage: 1000 - u.unobserved*1000/max(u.up, 1),
		})
	}
	return nil
}

// A plan states which share of spot time is lost, and not how often machines are interrupted. lostHours is what an
// interruption is taken to cost, in hours: the restart, and the work since a checkpoint.
const lostHours = 1

// spot reads how often spot machines were taken back in the last seven days, beside what the plan for that time assumed. Without a
// plan that assumes something there is nothing to compare with.
func (r *reader) spot() error {
	id, overhead, err := r.assumed()
	if err != nil || !overhead.IsPositive() {
		return err
	}
	window := r.last(7 * domain.Day)
	rates, err := market.SpotRates(r.view, window.From, window.To)
	if err != nil {
		return err
	}
	offers, err := market.Offers(r.view, r.at, market.OfferFilter{})
	if err != nil {
		return err
	}
	type sku struct{ provider, name string }
	models := map[sku]string{}
	for i := range offers {
		models[sku{offers[i].Market.Provider, offers[i].SKU}] = offers[i].Model
	}
	of := map[advice.Subject]*advice.Spot{}
	for i := range rates {
		x := &rates[i]
		s := advice.Subject{Provider: x.Market.Provider, Region: x.Market.Region, GPUModel: models[sku{x.Market.Provider, x.SKU}]}
		if of[s] == nil {
			of[s] = &advice.Spot{
				Window: window, Provider: s.Provider, Region: s.Region, GPUModel: s.GPUModel, Plan: id,
				AssumedPerHour: overhead.DivRound(decimal.NewFromInt(lostHours), 18),
			}
		}
		of[s].Interrupted += int64(min(x.Interrupted, 1<<32))
		of[s].UnitHours = of[s].UnitHours.Add(decimal.NewFromInt(x.ServiceMs).DivRound(decimal.NewFromInt(projections.MsPerHour), 6))
	}
	for _, s := range slices.SortedFunc(maps.Keys(of), advice.Subject.Compare) {
		r.f.Spot = append(r.f.Spot, *of[s])
	}
	return nil
}

// assumed returns the share of spot time that a plan assumes to be lost; "" and 0 without a plan. It is the plan that is
// about the time: of those whose horizon contains it, the one that begins last, and of equals the one recorded last. When it
// was recorded does not matter, because plans may be made ahead, and for a time that has passed.
func (r *reader) assumed() (id string, overhead domain.Decimal, err error) {
	var last *projections.Version
	var from domain.Instant
	err = r.view.Scan(projections.Query{Table: projections.TablePlans}, func(_ projections.Key, row projections.Row) error {
		for i := range row.(*projections.History).Versions {
			v := &row.(*projections.History).Versions[i]
			ev, ok := v.Event.(*domain.PlanComputed)
			if !ok || r.at < ev.Horizon.From || r.at >= ev.Horizon.To {
				continue
			}
			if last == nil || ev.Horizon.From > from || ev.Horizon.From == from && v.Order.After(last.Order) {
				own := *v
				last, from = &own, ev.Horizon.From
			}
		}
		return nil
	})
	if err != nil {
		return "", overhead, fmt.Errorf("read plans: %w", err)
	}
	if last == nil {
		return "", overhead, nil
	}
	ev := last.Event.(*domain.PlanComputed)
	return strings.Clone(ev.Plan), overheadOf(ev.Document), nil
}

// overheadOf reads the assumption of a plan; 0 if its method states it elsewhere.
func overheadOf(plan []byte) domain.Decimal {
	var document struct {
		Assumptions struct {
			SpotOverhead domain.Decimal `json:"spot_overhead"`
		} `json:"assumptions"`
	}
	if json.Unmarshal(plan, &document) != nil {
		return domain.Decimal{}
	}
	return document.Assumptions.SpotOverhead
}
