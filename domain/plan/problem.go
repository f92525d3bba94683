package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Instance converts a question to a problem that needs no log: the pools that can be planned, in
// machines, with the demand of each hour of the horizon. The notes name the pools that cannot be
// planned, as a plan does.
//
// Prices, quotas and offers are those in force at the question's time. A pool is named after its
// region and kind, and its single demand has the same name. Offers are those that a plan considers;
// an offer can begin when its lead time after an immediate order is over. Everything held serves
// the same pool as in a plan. Scenarios are those of the forecast.
//
// Prices in other currencies are converted if [Question.FX] has a rate, and left out otherwise, as
// a plan does.
func (q *Question) Instance() (*instance.Instance, error) {
	if len(q.FX) > 0 {
		q = q.exchanged()
	}
	c, err := newComposer(q)
	if err != nil {
		return nil, err
	}
	c.take(q.Pools)
	all := group{pools: c.pools}
	all.pay(c)
	for _, g := range c.groups(c.planned()) {
		all.overflow = ways(all.overflow, g.overflow...) // pools of two kinds may overflow the same way
	}
	in, err := c.problem(&all)
	if err == nil && q.SpendsApart {
		in.Notes = append(in.Notes, c.apart()...)
	}
	if err == nil {
		in.Source = fmt.Sprintf("the log at %s, as of %s, by %s and %s", q.Position, q.At, q.Folds, Method)
	}
	return in, err
}

// maxQuota is a number of GPUs beyond all demand that is planned for.
const maxQuota = 1_000_000_000_000

// problem states the prepared pools of a group, in their order.
func (c *composer) problem(g *group) (*instance.Instance, error) {
	q := c.q
	one := decimal.NewFromInt(1)
	in := &instance.Instance{
		Format: instance.Format, Name: "plan", Currency: q.Assumptions.Currency, From: c.span[0].From,
		Epoch: instance.Months, Epochs: len(c.span),
		AnnualRate: q.Assumptions.AnnualRate, Salvage: c.salvage,
		Regions: []instance.Region{}, Pools: []instance.Pool{}, Demands: []instance.Demand{}, Offers: []instance.Offer{},
		Overflow: g.overflow, Substitutes: c.substitutes(g), Posture: c.protect(g), Budgets: c.budget,
	}
	if len(q.Only) > 0 {
		in.Name += " " + strings.Join(q.Only, " ")
	}
	sizes := map[string]int{} // by quota
	for _, k := range g.pools {
		if k.left != "" {
			in.Notes = append(in.Notes, fmt.Sprintf("excluded: %s: %s; to do: %s", k.name(), k.left, k.next))
			continue
		}
		s, name := k.shelf, k.name()
		if !slices.ContainsFunc(in.Regions, func(r instance.Region) bool { return r.ID == k.Region }) {
			in.Regions = append(in.Regions, instance.Region{ID: k.Region, Country: c.region(k.Region).Country})
		}
		p := instance.Pool{
			ID: name, Region: k.Region, Class: c.class(k), Unit: "vm", GPUs: s.gpus,
			OnDemand: &instance.Price{Hourly: s.onDemand.Hourly},
		}
		if s.quota != nil {
			p.Quota, p.QuotaPerUnit = quotaName(k), s.gpus
			limit := int(min(s.quota.GPUs, maxQuota))
			at := slices.IndexFunc(in.Quotas, func(x instance.Quota) bool { return x.ID == p.Quota })
			if at < 0 {
				at = len(in.Quotas)
				in.Quotas = append(in.Quotas, instance.Quota{ID: p.Quota})
			}
			// A remainder smaller than a whole machine of any pool is unusable.
			sizes[p.Quota] = divisor(sizes[p.Quota], max(1, s.gpus))
			in.Quotas[at].Limit = limit - limit%sizes[p.Quota]
		}
		if s.spot != nil {
			p.Spot = &instance.Spot{Price: instance.Price{Hourly: s.spot.Hourly}, Overhead: q.Assumptions.SpotOverhead}
		}
		split := c.byProvider(g)
		if split {
			p.Provider = k.providers()[0]
		}
		in.Pools = append(in.Pools, p)
		for _, id := range g.spent(k) {
			p.ID, p.Spot = id, nil
			in.Pools = append(in.Pools, p)
		}
		if split {
			for _, provider := range k.providers()[1:] {
				in.Pools = append(in.Pools, instance.Pool{
					ID: k.poolOf(provider), Provider: provider, Region: p.Region, Class: p.Class, Unit: p.Unit, GPUs: p.GPUs,
				})
			}
		}
		hourly, err := c.hourly(k)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		scenarios, err := c.cases(k)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		past, err := c.past(k)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for i := range scenarios {
			if len(in.Scenarios) == i {
				in.Scenarios = append(in.Scenarios, instance.Scenario{
					ID: fmt.Sprintf("forecast %03d", i+1), Weight: 1, Hourly: map[string][]int{},
				})
			}
			in.Scenarios[i].Hourly[name] = scenarios[i]
		}
		in.Demands = append(in.Demands, instance.Demand{
			ID: name, Pool: name, Hourly: hourly, Interruptible: decimal.Min(one, k.SpotShare),
			Shortage: s.onDemand.Hourly.Mul(q.Assumptions.ShortageFactor), Past: past,
		})
		d := &in.Demands[len(in.Demands)-1]
		if slices.ContainsFunc(g.pools, func(l *candidate) bool {
			if l == k || l.left != "" {
				return false
			}
			r := c.route(k, l)
			return r != nil && r.overflow != nil
		}) {
			d.OverflowHourly = k.transfer().Price.Amount.Mul(decimal.NewFromInt(int64(s.gpus)))
			// In the instance a region's overflow applies to all its demand; budgets and countries
			// narrow it to the demand that may leave.
			d.LatencyBudgetMS, d.Countries = int(min(k.LatencyMicros/1000, 1_000_000)), k.countries()
		}
		if f := k.future.summary.Failures; f != nil {
			d.Buffer = &instance.Buffer{
				ServiceLevel: c.a.ServiceLevel, FailuresPerGPUHour: f.PerGPUHour, RepairHours: f.RepairHours, Counted: f.Counted,
				GPUsPerUnit: s.gpus,
			}
		}
		for _, t := range g.terms(c, k) {
			o := c.offer(name, &t)
			if split && t.guarantees() {
				o.Pool = k.poolOf(t.Market.Provider)
			}
			in.Offers = append(in.Offers, o)
		}
		for j := range k.held {
			h, pool := &k.held[j], name
			if split && h.guaranteed {
				pool = k.poolOf(h.of.Provider)
			}
			in.Commitments = append(in.Commitments, commitmentsOf(pool, h)...)
		}
		for _, n := range c.notesOf(g, k) {
			in.Notes = append(in.Notes, name+": "+n)
		}
	}
	for i := range g.spans {
		g.spans[i].state(c, in)
	}
	distinct(in.Commitments)
	return in, nil
}

// class is the name under which pools of one kind and machine size may serve each other's demand.
func (c *composer) class(k *candidate) string {
	first := c.pools[slices.IndexFunc(c.pools, func(l *candidate) bool { return l.left == "" && l.Kind == k.Kind })]
	if k.shelf.gpus == first.shelf.gpus && k.Unit == first.Unit {
		return k.Kind
	}
	return fmt.Sprintf("%s in %s of %d", k.Kind, k.Unit, k.shelf.gpus)
}

// countries are those allowed for all workloads of a pool, nil for any.
func (k *candidate) countries() []string {
	var both []string
	bound := false
	for i := range k.Mix {
		if w := &k.Mix[i]; len(w.Countries) > 0 && !bound {
			both, bound = slices.Clone(w.Countries), true
		} else if len(w.Countries) > 0 {
			both = slices.DeleteFunc(both, func(x string) bool { return !slices.Contains(w.Countries, x) })
		}
	}
	return both
}

// divisor is the greatest common divisor of two numbers; one of them may be 0.
func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// exchanged returns the question with all amounts in its own currency.
func (q *Question) exchanged() *Question {
	out := *q
	own := q.Assumptions.Currency
	out.Budgets = slices.Clone(q.Budgets)
	rate := func(currency string) (domain.Decimal, bool) {
		r, ok := q.FX[currency]
		return r, ok && currency != own
	}
	out.Pools = slices.Clone(q.Pools)
	for i := range out.Pools {
		p := &out.Pools[i]
		p.Offers = slices.Clone(p.Offers)
		for j := range p.Offers {
			o := &p.Offers[j]
			if r, ok := rate(o.Currency); ok {
				o.Hourly, o.Upfront, o.Currency = o.Hourly.Mul(r), o.Upfront.Mul(r), own
			}
		}
		p.Transfers = slices.Clone(p.Transfers)
		for j := range p.Transfers {
			m := &p.Transfers[j].Price
			if r, ok := rate(m.Currency); ok {
				m.Amount, m.Currency = m.Amount.Mul(r), own
			}
		}
	}
	for i := range out.Budgets {
		b := &out.Budgets[i].Amount
		if r, ok := rate(b.Currency); ok {
			b.Amount, b.Currency = b.Amount.Mul(r), own
		}
	}
	out.Held = slices.Clone(q.Held)
	for i := range out.Held {
		h := &out.Held[i]
		if r, ok := rate(cmp.Or(h.Hourly.Currency, h.Upfront.Currency)); ok && h.SpendPerHour.Valid {
			h.SpendPerHour.Decimal = h.SpendPerHour.Decimal.Mul(r)
		}
		for _, m := range []*domain.Money{&h.Hourly, &h.Upfront} {
			if r, ok := rate(m.Currency); ok {
				m.Amount, m.Currency = m.Amount.Mul(r), own
			}
		}
	}
	return &out
}

// quotaName names a quota. One for all models together has the same name for every pool that
// nothing else bounds.
func quotaName(k *candidate) string {
	q := k.shelf.quota
	if q.Together {
		return fmt.Sprintf("%s %s all models %d", q.Provider, k.Region, q.GPUs)
	}
	return q.Provider + " " + k.name()
}

// hourly is the demand of a pool in each hour of the horizon, in machines and without spares, as
// its history repeats. Scenarios of a forecast replace it.
func (c *composer) hourly(k *candidate) ([]int, error) {
	return k.seen.repeat(c.span, c.growth, k.fit)
}

// lookbackWeeks covers the sixty days of the rule with the longest lookback.
const lookbackWeeks = 9

// past is the observed demand before the horizon, in machines by the hour. If fewer than sixty days
// were observed, rules use what there is.
func (c *composer) past(k *candidate) ([]int, error) {
	h, err := observe(k.Pool, lookbackWeeks, c.q.At)
	if err != nil {
		return nil, err
	}
	h.limit(k.Pool, c.q.Limits, k.shelf.gpus)
	h.separate(k.Pool)
	out := make([]int, len(h.milli))
	for _, demand := range h.apart(grown) {
		for i, milli := range demand {
			n, err := k.fit.machines(milli, grown)
			if err != nil {
				return nil, err
			}
			out[i] += n
		}
	}
	return out, nil
}

// low is the least demanding of the repeated weeks, week after week, without assumed growth.
func (c *composer) low(k *candidate) ([]int, error) {
	observed := k.seen.within(grown)
	least, sum := 0, int64(math.MaxInt64)
	for w := 0; w < len(observed); w += week {
		all := int64(0)
		for _, milli := range observed[w : w+week] {
			if all += milli; all < 0 { // beyond 64 bits
				all = math.MaxInt64
				break
			}
		}
		if all < sum {
			least, sum = w, all
		}
	}
	h := k.seen.week(least)
	growth := c.growth
	if c.a.MonthlyGrowth.IsPositive() {
		growth = slices.Repeat([]int64{grown}, len(c.growth))
	}
	out, err := h.repeat(c.span, growth, k.fit)
	if err != nil || k.seen.limited == nil {
		return out, err
	}
	hourly, err := c.hourly(k)
	for t := range hourly {
		out[t] = min(out[t], hourly[t])
	}
	return out, err
}

// offer states an offer that a plan considers for a pool. From and To hold when a term may begin,
// including the lead time.
func (c *composer) offer(pool string, t *term) instance.Offer {
	out := instance.Offer{
		ID: OfferName(pool, t.OfferQuoted), Provider: t.Market.Provider, Kind: t.Kind, Pool: pool, Term: int(t.TermMonths),
		Upfront: t.Upfront, Hourly: t.Hourly, GuaranteesCapacity: t.GuaranteesCapacity,
		From: max(c.ready(t.OfferQuoted), t.ValidFrom), To: t.ValidTo,
		MinUnits: int(t.MinUnits), MaxUnits: int(min(t.MaxUnits, maxUnits)), Citation: t.Citation, Generated: t.Generated,
	}
	if out.From <= c.span[0].From {
		out.From = 0
	}
	if t.Kind == domain.OfferSpendCommitment {
		out.Kind, out.GuaranteesCapacity = domain.OfferReserved, false
	}
	if t.Kind == domain.OfferOwned {
		// What running it costs is its hourly price.
		out.GuaranteesCapacity, out.Owned = true, &instance.Owned{PUE: decimal.NewFromInt(1)}
	}
	return out
}

// OfferName is the name of an offer to a pool in an instance.
func OfferName(pool string, o *domain.OfferQuoted) string {
	return offerName(pool, o.Market.Provider, o.Offer, o.Zone)
}

func offerName(pool, provider, offer, zone string) string {
	name := pool + "|" + provider + "|" + escaped.Replace(offer)
	if zone != "" {
		name += "|" + escaped.Replace(zone)
	}
	return name
}

// escaped keeps a bar of an offer's own name apart from the one before its zone.
var escaped = strings.NewReplacer(`|`, `\|`, `\`, `\\`)

// distinct numbers commitments with the same name.
func distinct(held []instance.Commitment) {
	seen := make(map[string]int, len(held))
	for i := range held {
		name := held[i].ID
		if seen[name]++; seen[name] > 1 {
			held[i].ID = fmt.Sprintf("%s (%d)", name, seen[name])
		}
	}
}

// commitmentsOf states the terms of a holding, in units of the pool.
func commitmentsOf(pool string, h *holding) []instance.Commitment {
	out := make([]instance.Commitment, 0, len(h.terms))
	for i, t := range h.terms {
		x := instance.Commitment{
			ID: h.of.Commitment, Kind: h.of.Kind, Pool: pool, Units: t.units, Term: t.Interval, Upfront: t.upfront,
			Hourly: t.hourly.DivRound(decimal.NewFromInt(int64(t.units)), 18), GuaranteesCapacity: h.guaranteed,
			NoticeBy: t.noticeBy,
		}
		if i > 0 {
			x.ID = fmt.Sprintf("%s, term %d", x.ID, i+1)
		}
		if h.of.Kind == domain.OfferOwned {
			x.ID = strings.TrimSpace(fmt.Sprintf("owned %s %s", h.of.Commitment, h.of.SKU))
		}
		if x.Term.To == math.MaxInt64 {
			x.Term.To = 0
		}
		out = append(out, x)
	}
	return out
}
