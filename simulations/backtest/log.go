package backtest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/plan"
	"quartermaster/domain/procurement"
	"quartermaster/projections"
	"quartermaster/projections/demand"
	"quartermaster/projections/market"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
)

// Excluded is a pool that cannot be tested, with the reason.
type Excluded struct {
	Region string `json:"region"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
}

// lookback is how far before a decision demand is read: more than any forecast uses.
const lookback = (forecast.Window + 1) * forecast.Week * domain.Hour

// Log says what a test reads from the log.
type Log struct {
	From, To domain.Instant // starts of months
	Region   string         // "" for all
	Currency string
	Overhead domain.Decimal // share of spot time lost to interruptions
}

// Pools reads the pools of a test: demand as known now and at each decision, and what was for sale.
// If demand counts GPUs, the machine size is the most frequent one on sale on demand.
//
// Data with a source's timestamp that shows it was recorded in time counts as known then.
// Everything else is known from the time it was appended. If prices of a month were not known in
// it, those known now of that month are used, else the next quote of each offer; both are
// synthetic. Deployments and outages count as known at each decision. What was held at the start
// and the on-demand quota of the seller come from [planning.HeldThen] and
// [planning.OnDemandQuotasThen]. A quota for all models together bounds each pool as if the pool
// had all of it. It returns a [plan.OutOfRangeError] for times between which there is no month.
func (l *Log) Pools(view projections.View) ([]Pool, []Excluded, error) {
	months, err := Months(l.From, l.To)
	if err != nil {
		return nil, nil, &plan.OutOfRangeError{Err: err}
	}
	from := l.From - lookback
	now, err := demand.Histories(view, from, l.To, demand.Filter{Region: l.Region})
	if err != nil {
		return nil, nil, err
	}
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, nil, err
	}
	held, err := planning.HeldThen(view, a, l.From, l.Region)
	if err != nil {
		return nil, nil, err
	}
	known := make([][]demand.History, len(months))
	declared := make([][][]demand.Change, len(months))
	quotas := make([][]market.OnDemandQuotaEntry, len(months))
	quotes := make([][]Quote, len(months))
	first, err := l.quotes(view, months)
	if err != nil {
		return nil, nil, err
	}
	for m, span := range months {
		if known[m], err = demand.Histories(view, from, span.From,
			demand.Filter{Region: l.Region, KnownBy: span.From}); err != nil {
			return nil, nil, err
		}
		// A plan looks at most as far ahead as the longest test.
		if declared[m], _, err = demand.Changes(view, known[m], span.From+MaxMonths*31*domain.Day, span.From); err != nil {
			return nil, nil, err
		}
		if quotas[m], err = planning.OnDemandQuotasThen(view, a, span.From); err != nil {
			return nil, nil, err
		}
		quotes[m] = first[m]
	}
	var pools []Pool
	left := []Excluded{}
	for i := range now {
		h := &now[i]
		leave := func(why string) { left = append(left, Excluded{h.Region, h.Kind, why}) }
		size := machine(quotes, h, l.Currency)
		if size == 0 {
			leave("no on-demand price in " + l.Currency + " was ever known for it")
			continue
		}
		p := Pool{
			Region: h.Region, Kind: h.Kind, Unit: h.Unit, From: h.From, Milli: machines(h.Milli, size),
			Known: make([][]int64, len(months)), Changes: make([][]forecast.Change, len(months)),
		}
		why := ""
		for m := range months {
			k := slices.IndexFunc(known[m], func(o demand.History) bool {
				return o.Region == h.Region && o.Kind == h.Kind && o.Unit == h.Unit
			})
			p.Known[m] = []int64{}
			if k >= 0 {
				p.Known[m] = machines(known[m][k].Milli, size)
				if slices.Equal(p.Known[m], p.Milli[:len(p.Known[m])]) {
					p.Known[m] = nil
				}
				p.Changes[m] = known[m][k].Knows(declared[m][k])
				for i := range p.Changes[m] {
					p.Changes[m][i].Milli = away(p.Changes[m][i].Milli, size)
				}
			}
			fit := fitting(quotes[m], h, size)
			market, err := MarketOf(fit, l.Currency, l.Overhead)
			if err != nil {
				why = fmt.Sprintf("%s: %v", month(months[m].From), err)
				break
			}
			market.Quota = quotaOf(&market, fit, quotas[m], h.Region)
			p.Markets = append(p.Markets, market)
		}
		if why != "" {
			leave(why)
			continue
		}
		p.Held, held = serving(held, h, size)
		pools = append(pools, p)
	}
	return pools, left, nil
}

// away divides, rounding away from 0.
func away(v, by int64) int64 {
	if v < 0 {
		return -away(-v, by)
	}
	return (v + by - 1) / by
}

// quotaOf returns how many machines of a market its seller's quota allows.
func quotaOf(m *Market, quotes []Quote, quotas []market.OnDemandQuotaEntry, region string) int {
	i := slices.IndexFunc(quotes, func(q Quote) bool { return q.Kind == domain.OfferOnDemand && q.Market.Provider == m.Seller })
	// A quota counts GPUs, so it does not bound machines without GPUs.
	if i < 0 || quotes[i].GPUCount == 0 {
		return procurement.Unlimited
	}
	for _, q := range planning.Quotas(quotas, region, quotes[i].GPUModel) {
		if q.Provider == m.Seller {
			return int(min(q.GPUs/uint64(quotes[i].GPUCount), procurement.MaxUnits))
		}
	}
	return procurement.Unlimited
}

// serving returns what of everything held serves a pool, in its machines, and the rest. Spend
// commitments span pools and serve none.
func serving(held []plan.Held, h *demand.History, size int64) (serves []Held, rest []plan.Held) {
	for _, c := range held {
		kind, units := c.GPUModel, int64(c.Units)*int64(c.GPUs)/size
		if h.Unit == "vm" {
			kind, units = c.SKU, int64(c.Units)
		}
		whole := h.Unit == "vm" || c.GPUs > 0 && (int64(c.GPUs)%size == 0 || size%int64(c.GPUs) == 0)
		if c.Kind == domain.OfferSpendCommitment || c.Region != h.Region || kind != h.Kind || !whole || units < 1 ||
			units > procurement.MaxUnits {
			rest = append(rest, c)
			continue
		}
		serves = append(serves, Held{Units: int(units), Guaranteed: c.Guaranteed, Span: c.Term})
	}
	return serves, rest
}

// quotes returns what was for sale in each month: what was known then, what is known now of that
// time, and later first quotes, carried back.
func (l *Log) quotes(view projections.View, months []domain.Interval) ([][]Quote, error) {
	all, err := l.everQuoted(view)
	if err != nil {
		return nil, err
	}
	out := make([][]Quote, len(months))
	for m := range months {
		at := months[m].From
		seen := map[[4]string]bool{}
		add := func(q Quote) {
			id := [4]string{q.Market.Provider, q.Market.Region, q.Offer, q.Zone}
			if !seen[id] {
				seen[id] = true
				out[m] = append(out[m], q)
			}
		}
		for _, known := range []domain.Instant{at, 0} {
			entries, err := market.Offers(view, at, market.OfferFilter{Region: l.Region, KnownBy: known})
			if err != nil {
				return nil, err
			}
			for i := range entries {
				q := Quote{entries[i].OfferQuoted, known == 0, max(entries[i].Known, entries[i].ValidFrom)}
				q.GPUModel = entries[i].Model
				add(q)
			}
		}
		for _, q := range all {
			if q.ValidFrom > at {
				add(q)
			}
		}
	}
	return out, nil
}

// everQuoted returns every quote, sorted by offer and start of validity, marked as not known
// before.
func (l *Log) everQuoted(view projections.View) ([]Quote, error) {
	var out []Quote
	err := view.Scan(projections.Query{Table: projections.TableOffers}, func(_ projections.Key, row projections.Row) error {
		for _, v := range row.(*projections.History).Versions {
			o, ok := v.Event.(*domain.OfferQuoted)
			if !ok || l.Region != "" && o.Market.Region != l.Region {
				continue
			}
			q := Quote{*o, true, max(v.Known(), o.ValidFrom)}
			if model, ok := domain.LookupGPU(o.GPUModel); ok {
				q.GPUModel = model.Name
			}
			out = append(out, q)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read offers: %w", err)
	}
	slices.SortStableFunc(out, func(a, b Quote) int { return cmp.Compare(a.ValidFrom, b.ValidFrom) })
	return out, nil
}

// fits reports whether an offer is of a pool's kind.
func fits(q *Quote, h *demand.History) bool {
	if q.Market.Region != h.Region {
		return false
	}
	if h.Unit == "vm" {
		return q.SKU == h.Kind
	}
	return q.GPUModel == h.Kind && q.GPUCount > 0
}

func fitting(quotes []Quote, h *demand.History, size int64) []Quote {
	var out []Quote
	for i := range quotes {
		if q := &quotes[i]; fits(q, h) && (h.Unit == "vm" || int64(q.GPUCount) == size) {
			out = append(out, *q)
		}
	}
	return out
}

// machine is the number of demand units per machine: the most frequent size of on-demand offers,
// the larger one on a tie; 0 if there are none.
func machine(quotes [][]Quote, h *demand.History, currency string) int64 {
	counts := map[int64]int{}
	for m := range quotes {
		for i := range quotes[m] {
			if q := &quotes[m][i]; fits(q, h) && q.Kind == domain.OfferOnDemand && q.Currency == currency {
				if h.Unit == "vm" {
					return 1
				}
				counts[int64(q.GPUCount)]++
			}
		}
	}
	best := int64(0)
	for size, n := range counts { // the best does not depend on the order
		if best == 0 || n > counts[best] || n == counts[best] && size > best {
			best = size
		}
	}
	return best
}

// machines converts demand to thousandths of machines, rounded up.
func machines(milli []int64, size int64) []int64 {
	if size == 1 {
		return milli
	}
	out := make([]int64, len(milli))
	for i, v := range milli {
		out[i] = v
		if v > 0 {
			out[i] = away(v, size)
		}
	}
	return out
}

// Priced adds the prices of a list to pools without prices: for each month what was valid then,
// else the first later price, which is synthetic. In a list, a price is known from the time from
// which it is valid.
func Priced(
	pools []Pool, months []domain.Interval, offers []domain.OfferQuoted, currency string, overhead domain.Decimal,
) ([]Pool, []Excluded, error) {
	out, left := []Pool{}, []Excluded{}
	if overhead.IsNegative() || overhead.GreaterThanOrEqual(decimal.NewFromInt(1)) {
		return nil, nil, fmt.Errorf("spot loses %s of its time: want 0 or more, and less than 1", overhead)
	}
	for _, p := range pools {
		p.Markets = nil
		why := ""
		for _, span := range months {
			m, err := MarketOf(listed(offers, &p, span.From), currency, overhead)
			if err != nil {
				why = fmt.Sprintf("%s: %v", month(span.From), err)
				break
			}
			p.Markets = append(p.Markets, m)
		}
		if why != "" {
			left = append(left, Excluded{p.Region, p.Kind, why})
			continue
		}
		out = append(out, p)
	}
	return out, left, nil
}

// listed returns a list's offers for a pool at a time: those of its region or without a region, for
// its machine type or GPU model.
func listed(offers []domain.OfferQuoted, p *Pool, at domain.Instant) []Quote {
	type id struct{ provider, region, offer, zone string }
	last := map[id]int{} // index into out
	var out []Quote
	for i := range offers {
		o := &offers[i]
		if o.Market.Region != "" && o.Market.Region != p.Region || o.SKU != p.Kind && o.GPUModel != p.Kind {
			continue
		}
		k := id{o.Market.Provider, o.Market.Region, o.Offer, o.Zone}
		q := Quote{*o, o.ValidFrom > at, o.ValidFrom}
		have, ok := last[k]
		switch {
		case !ok:
			last[k] = len(out)
			out = append(out, q)
		// A valid price is preferred to a future one; of valid ones the later, of future ones the
		// earlier.
		case out[have].Synthetic && (!q.Synthetic || o.ValidFrom < out[have].ValidFrom),
			!out[have].Synthetic && !q.Synthetic && o.ValidFrom > out[have].ValidFrom:
			out[have] = q
		}
	}
	return slices.DeleteFunc(out, func(q Quote) bool { return q.ValidTo != 0 && at >= q.ValidTo })
}
