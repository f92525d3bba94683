package whatif

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/plan"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
)

// composed is an alternative being prepared.
type composed struct {
	alt     *Alternative
	changes []Change           // the scenario's and its own
	in      *instance.Instance // prices, quotas and offers at the median; demand as in the log
	sold    []string           // by pool: the supplier of the on-demand price
	foreign map[string]string  // currency of offers and commitments that are not in the instance's currency, by id
	deploy  []deployed
	notes   []string
	levers  []lever
	vars    variables
	// clusters maps clusters to their regions.
	clusters map[string]string
	answer   *instance.Answer
}

// composer prepares alternatives. Alternatives with the same events share the folded rows and the
// plan made from them.
type composer struct {
	ctx   context.Context
	s     *Scenario
	view  projections.View
	at    domain.Instant
	given *instance.Instance
	known map[string]*composed
}

func (k *composer) compose(alt *Alternative) (*composed, error) {
	c := &composed{alt: alt, changes: append(slices.Clone(k.s.Changes), alt.Changes...)}
	if err := k.state(c); err != nil {
		return nil, err
	}
	if err := c.decide(k.s); err != nil {
		return nil, err
	}
	return c, c.resolve()
}

// state gives an alternative its instance.
func (k *composer) state(c *composed) error {
	key, err := json.Marshal(c.changes)
	if err != nil {
		return err
	}
	same := k.known[string(key)]
	if same == nil {
		same = &composed{changes: c.changes}
		if k.view != nil {
			err = k.fromLog(same)
		} else {
			err = k.fromInstance(same)
		}
		if err != nil {
			return err
		}
		k.known[string(key)] = same
	}
	in := *same.in
	in.Pools, in.Demands, in.Offers = slices.Clone(in.Pools), slices.Clone(in.Demands), slices.Clone(in.Offers)
	c.changes = slices.Clone(same.changes)
	c.in, c.sold, c.foreign, c.deploy, c.clusters, c.notes = &in, same.sold, same.foreign, same.deploy, same.clusters,
		slices.Clone(same.notes)
	return nil
}

// fromLog forks the rows, folds the hypothetical events, and lets the planner state the resulting
// instance. Changes that take effect later are read from the same rows at that time.
func (k *composer) fromLog(c *composed) error {
	end := monthsAfter(k.at, k.s.Months+1)
	s := &supposer{ctx: k.ctx, fork: NewFork(k.view), at: k.at, end: end, currency: k.s.Assumptions.Currency}
	for i := range c.changes {
		if err := s.suppose(i, &c.changes[i]); err != nil {
			return err
		}
	}
	c.deploy, c.notes = s.deployments, s.notes
	rows := s.fork.Rows()
	inv, err := inventory.New(rows, inventory.Filter{At: k.at})
	if err != nil {
		return err
	}
	c.clusters = map[string]string{}
	for i := range inv.Clusters {
		c.clusters[inv.Clusters[i].Cluster] = inv.Clusters[i].Region
	}
	a, err := registry.NewAuthority(rows)
	if err != nil {
		return err
	}
	var only []string
	if k.s.Base.Region != "" {
		only = []string{k.s.Base.Region}
	}
	q, err := planning.Question(rows, k.at, only, k.s.Assumptions)
	if err != nil {
		return err
	}
	q.SpendsApart = true
	if q.FX, err = rates(rows, a, k.at, q.Assumptions.Currency); err != nil {
		return err
	}
	if c.in, err = q.Instance(); err != nil {
		return err
	}
	if len(c.in.Pools) == 0 {
		return unfit("nothing could be planned: %s", cmp.Or(firstOf(c.in.Notes), "no demand was observed"))
	}
	if err := k.describe(c, q, rows); err != nil {
		return err
	}
	for _, t := range k.later(c) {
		then := *q
		then.Pools = slices.Clone(q.Pools)
		quotas, err := market.OnDemandQuotas(rows, a, t)
		if err != nil {
			return err
		}
		for i := range then.Pools {
			p := &then.Pools[i]
			if p.Offers, err = offersFor(rows, t, p); err != nil {
				return err
			}
			p.Quotas = quotasFor(p.Quotas, quotas, p)
		}
		if then.FX, err = rates(rows, a, t, q.Assumptions.Currency); err != nil {
			return err
		}
		in, err := then.Instance()
		if err != nil {
			return err
		}
		c.changeAt(in, t)
	}
	return nil
}

func firstOf(notes []string) string {
	if len(notes) == 0 {
		return ""
	}
	return notes[0]
}

// describe records what an instance does not contain: who sells on demand, and what is priced in
// another currency. Countries of regions come from the registry.
func (k *composer) describe(c *composed, q *plan.Question, rows projections.View) error {
	own := q.Assumptions.Currency
	c.sold, c.foreign = make([]string, len(c.in.Pools)), map[string]string{}
	for i := range q.Pools {
		p := &q.Pools[i]
		name := p.Region + " " + p.Kind
		at := slices.IndexFunc(c.in.Pools, func(x instance.Pool) bool { return x.ID == name })
		if at < 0 {
			continue
		}
		offers := slices.Clone(p.Offers)
		slices.SortFunc(offers, func(x, y domain.OfferQuoted) int {
			return cmp.Or(cmp.Compare(x.Market.Provider, y.Market.Provider), cmp.Compare(x.Offer, y.Offer))
		})
		for j := range offers {
			o := &offers[j]
			hourly := o.Hourly
			if r, ok := q.FX[o.Currency]; ok && o.Currency != own {
				hourly = hourly.Mul(r)
			}
			if o.Kind == domain.OfferOnDemand && int(o.GPUCount) == c.in.Pools[at].GPUs &&
				hourly.Equal(c.in.Pools[at].OnDemand.Hourly) && c.sold[at] == "" {
				c.sold[at] = o.Market.Provider
				if o.Currency != own {
					c.foreign[name] = o.Currency
				}
			}
			if o.Currency != own {
				c.foreign[plan.OfferName(name, o)] = o.Currency
			}
		}
	}
	for i := range q.Held {
		if h := &q.Held[i]; h.Hourly.Currency != own && h.Hourly.Currency != "" {
			c.foreign[h.Commitment] = h.Hourly.Currency
		}
	}
	return rows.Scan(projections.Query{Table: projections.TableRegions}, func(key projections.Key, row projections.Row) error {
		v := row.(*projections.History).At(k.at)
		if v == nil {
			return nil
		}
		for i := range c.in.Regions {
			if ev, ok := v.Event.(*domain.RegionDefined); ok && key.ID == c.in.Regions[i].ID {
				c.in.Regions[i].Country = ev.Country
			}
		}
		return nil
	})
}

// later returns when prices, offers, quotas and rates change after the scenario's time, ascending.
func (k *composer) later(c *composed) []domain.Instant {
	var out []domain.Instant
	end := k.end(c.in)
	for i := range c.changes {
		x := &c.changes[i]
		switch x.Kind {
		case PriceChange, NewOffer, QuotaChange, FXChange:
			for _, t := range []domain.Instant{x.When, x.Until} {
				if t > k.at && t < end {
					out = append(out, t)
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (k *composer) end(in *instance.Instance) domain.Instant {
	spans := in.Spans()
	return spans[len(spans)-1].To
}

// offersFor returns what is for sale to a pool at a time, in the form of the planner's question.
func offersFor(rows projections.View, t domain.Instant, p *plan.Pool) ([]domain.OfferQuoted, error) {
	filter := market.OfferFilter{Region: p.Region, GPUModel: p.Kind}
	if p.Unit == "vm" {
		filter.GPUModel, filter.SKU = "", p.Kind
	}
	if p.Region == "" {
		return nil, nil
	}
	offers, err := market.Offers(rows, t, filter)
	if err != nil {
		return nil, err
	}
	out := make([]domain.OfferQuoted, len(offers))
	for i := range offers {
		out[i] = offers[i].OfferQuoted
		out[i].GPUModel = offers[i].Model
	}
	return out, nil
}

// quotasFor updates the quotas of a pool to later decisions.
func quotasFor(now []plan.Quota, later []market.OnDemandQuotaEntry, p *plan.Pool) []plan.Quota {
	model := p.Kind
	for i := range p.Offers {
		if p.Unit == "vm" {
			model = p.Offers[i].GPUModel
		}
	}
	out := slices.Clone(now)
	limits := map[string]uint64{}
	for i := range later {
		q := &later[i]
		if q.Market.Region != p.Region || q.Model != "" && q.Model != model {
			continue
		}
		if l, ok := limits[q.Market.Provider]; !ok || q.LimitGPUs < l {
			limits[q.Market.Provider] = q.LimitGPUs
		}
	}
	for i := range out {
		if l, ok := limits[out[i].Provider]; ok {
			out[i].GPUs = l
			delete(limits, out[i].Provider)
		}
	}
	for i := range p.Offers {
		provider := p.Offers[i].Market.Provider
		if l, ok := limits[provider]; ok {
			out = append(out, plan.Quota{Provider: provider, GPUs: l})
			delete(limits, provider)
		}
	}
	return out
}

// rates returns the value of one unit of each currency in another at a time, from average or spot
// rates quoted in either direction.
func rates(rows projections.View, a *registry.Authority, at domain.Instant, into string) (map[string]domain.Decimal, error) {
	out, order := map[string]domain.Decimal{}, map[string]domain.Precedence{}
	err := rows.Scan(projections.Query{Table: projections.TableFXRates}, func(key projections.Key, row projections.Row) error {
		v := a.At(key, row.(*projections.History), at)
		if v == nil {
			return nil
		}
		r := v.Event.(*domain.FXRateSet)
		if r.Kind == domain.FXPayment || !r.Rate.IsPositive() {
			return nil
		}
		currency, rate := r.Base, r.Rate
		switch into {
		case r.Quote:
		case r.Base:
			currency, rate = r.Quote, decimal.NewFromInt(1).DivRound(r.Rate, 18)
		default:
			return nil
		}
		if last, ok := order[currency]; !ok || v.Order.After(last) {
			out[currency], order[currency] = rate, v.Order
		}
		return nil
	})
	return out, err
}

// changeAt adds the differences of an instance of the same question at a later time: steps of
// prices and quotas, offers that begin and end.
func (c *composed) changeAt(then *instance.Instance, t domain.Instant) {
	in := c.in
	for i := range in.Pools {
		p := &in.Pools[i]
		j := slices.IndexFunc(then.Pools, func(x instance.Pool) bool { return x.ID == p.ID })
		if j < 0 {
			c.notes = append(c.notes,
				fmt.Sprintf("%s could not be planned from %s on, and is planned as it is before", p.ID, day(t)))
			continue
		}
		q := &then.Pools[j]
		step(p.OnDemand, q.OnDemand, t)
		if p.Spot != nil && q.Spot != nil {
			step(&p.Spot.Price, &q.Spot.Price, t)
		}
		limit := func(of *instance.Instance, id string) (int, bool) {
			for i := range of.Quotas {
				if of.Quotas[i].ID == id {
					return of.Quotas[i].Limit, true
				}
			}
			return 0, false
		}
		l, ok := limit(then, q.Quota)
		if !ok {
			continue
		}
		if p.Quota == "" {
			p.Quota, p.QuotaPerUnit = q.Quota, q.QuotaPerUnit
			in.Quotas = append(slices.Clone(in.Quotas), instance.Quota{ID: p.Quota, Limit: noQuota})
		}
		in.Quotas = slices.Clone(in.Quotas)
		for j := range in.Quotas {
			x := &in.Quotas[j]
			if x.ID != p.Quota {
				continue
			}
			last := x.Limit
			if n := len(x.Path); n > 0 {
				last = x.Path[n-1].Limit
			}
			if last != l {
				x.Path = append(slices.Clone(x.Path), instance.QuotaStep{From: t, Limit: l})
			}
		}
	}
	equal := func(x, y *instance.Offer) bool {
		return x.Hourly.Equal(y.Hourly) && x.Upfront.Equal(y.Upfront) && x.Term == y.Term &&
			x.GuaranteesCapacity == y.GuaranteesCapacity && x.MinUnits == y.MinUnits && x.MaxUnits == y.MaxUnits
	}
	var added []instance.Offer
	open := func(o *instance.Offer) bool { return o.To == 0 || o.To > t }
	for i := range then.Offers {
		o := then.Offers[i]
		id := o.ID
		at := slices.IndexFunc(in.Offers, func(x instance.Offer) bool {
			return (x.ID == id || originOf(x.ID) == id) && open(&x)
		})
		if at >= 0 && equal(&in.Offers[at], &o) {
			continue
		}
		if at >= 0 {
			in.Offers[at].To = t
		}
		o.From = max(o.From, t)
		o.ID = id + later + day(t)
		added = append(added, o)
		if currency, ok := c.foreign[id]; ok {
			c.foreign[o.ID] = currency
		}
	}
	for i := range in.Offers {
		o := &in.Offers[i]
		if open(o) && !slices.ContainsFunc(then.Offers, func(x instance.Offer) bool { return x.ID == originOf(o.ID) }) {
			o.To = t
		}
	}
	in.Offers = slices.DeleteFunc(append(in.Offers, added...), func(o instance.Offer) bool {
		return o.To != 0 && o.To <= max(o.From, in.From)
	})
}

// later separates the name of an offer from the day of its changed version.
const later = " from "

func originOf(id string) string {
	if n := len(id) - len(later) - len("2006-01-02"); n > 0 && id[n:n+len(later)] == later {
		return id[:n]
	}
	return id
}

// noQuota is a quota that bounds nothing, being above instance.MaxUnits.
const noQuota = 1_000_000_000

func step(p, then *instance.Price, t domain.Instant) {
	if p == nil || then == nil {
		return
	}
	last := p.Hourly
	if n := len(p.Path); n > 0 {
		last = p.Path[n-1].Hourly
	}
	if !last.Equal(then.Hourly) {
		p.Path = append(slices.Clone(p.Path), instance.PriceStep{From: t, Hourly: then.Hourly})
	}
}

// fromInstance applies changes to a given instance.
func (k *composer) fromInstance(c *composed) error {
	raw, err := json.Marshal(k.given)
	if err != nil {
		return err
	}
	c.in = &instance.Instance{}
	if err := json.Unmarshal(raw, c.in); err != nil {
		return err
	}
	c.sold, c.foreign = make([]string, len(c.in.Pools)), map[string]string{}
	for i := range c.in.Pools {
		c.sold[i] = c.in.Pools[i].Provider
	}
	for i := range c.changes {
		x := &c.changes[i]
		switch x.Kind {
		case DemandGrowth, EfficiencyChange, ProviderOutage, FailureRate, SpotInterruption:
			continue
		case Maintenance:
			if x.Cluster == "" {
				continue
			}
		}
		return unfit("changes[%d] %s: an instance has no log to suppose it in; change the instance, or base "+
			"the scenario on the log", i, x.Kind)
	}
	return nil
}

// decide applies the alternative's own settings.
func (c *composed) decide(s *Scenario) error {
	in, alt := c.in, c.alt
	if err := c.owned(); err != nil {
		return err
	}
	for _, k := range []domain.OfferKind{domain.OfferOnDemand, domain.OfferSpot} {
		if slices.Contains(alt.Without, string(k)) || len(alt.Only) > 0 && !slices.Contains(alt.Only, string(k)) {
			for i := range in.Pools {
				if k == domain.OfferSpot {
					in.Pools[i].Spot = nil
				} else if slices.Contains(alt.Without, string(k)) {
					return unfit("alternative %q: without on_demand nothing serves what is not bought; set a "+
						"quota of 0 instead", alt.Name)
				}
			}
		}
	}
	in.Offers = slices.DeleteFunc(in.Offers, func(o instance.Offer) bool {
		if len(alt.PaymentOptions) > 0 && !slices.Contains(alt.PaymentOptions, PaymentOption(&o)) {
			return true
		}
		return slices.Contains(alt.Without, string(o.Kind)) ||
			len(alt.Only) > 0 && !slices.Contains(alt.Only, string(o.Kind)) || alt.Buy == BuyNothing
	})
	in.Limits = instance.Limits{MaxUnservedShare: s.Constraints.MaxUnserved, MaxSpotShare: s.Constraints.MaxSpotShare}
	in.Budgets = s.Constraints.Budgets
	if alt.Posture != nil {
		// Demand from the log has no classes, so if no demand is named all of it is protected.
		p := *alt.Posture
		for i := range in.Pools {
			if p.Kind == instance.MultiProvider && in.Pools[i].Provider == "" {
				return unfit("alternative %q: posture: pool %q does not name its provider: base the scenario on an "+
					"instance whose pools do (\"quartermaster plan\" states them for a policy)", alt.Name, in.Pools[i].ID)
			}
		}
		for i := range in.Demands {
			if len(alt.Posture.Demands) == 0 && regionOf(in, in.Demands[i].Pool) != p.Standby {
				p.Demands = append(p.Demands, in.Demands[i].ID)
			}
		}
		for _, d := range p.Demands {
			if !slices.ContainsFunc(in.Demands, func(x instance.Demand) bool { return x.ID == d }) {
				return unfit("alternative %q: posture: no demand %q; demands are %s", alt.Name, d, c.poolNames())
			}
		}
		in.Posture = &p
	}
	widest := 0
	for _, x := range alt.Overflow {
		widest = max(widest, x.RoundTripMS)
	}
	in.Overflow = append(slices.Clone(in.Overflow), alt.Overflow...)
	for i := range in.Demands {
		d := &in.Demands[i]
		if alt.SpotShare != nil {
			d.Interruptible = *alt.SpotShare
		}
		if len(alt.Overflow) > 0 && d.LatencyBudgetMS == 0 {
			d.LatencyBudgetMS = max(1, widest)
		}
	}
	if len(alt.Overflow) > 0 {
		for _, x := range alt.Overflow {
			for _, r := range []string{x.From, x.To} {
				if !slices.ContainsFunc(in.Regions, func(y instance.Region) bool { return y.ID == r }) {
					return unfit("alternative %q: overflow: no pool is in region %q", alt.Name, r)
				}
			}
		}
	}
	if p := alt.Posture; p != nil && p.Standby != "" &&
		!slices.ContainsFunc(in.Regions, func(y instance.Region) bool {
			return y.ID == p.Standby
		}) {
		return unfit("alternative %q: posture: no pool is in region %q", alt.Name, p.Standby)
	}
	return c.drawable()
}

// drawable refuses features that trials do not evaluate.
func (c *composed) drawable() error {
	in := c.in
	refuse := func(what string) error {
		return unfit("the instance has %s, which what-ifs do not draw; \"quartermaster plan solve\" answers "+
			"it without trials", what)
	}
	switch {
	case len(in.Scenarios) > 0:
		return refuse("scenarios of its own")
	}
	for i := range in.Demands {
		d := &in.Demands[i]
		if slices.ContainsFunc(in.Demands[:i], func(x instance.Demand) bool { return x.Pool == d.Pool }) {
			return refuse("two demands for pool " + d.Pool)
		}
	}
	for i := range in.Offers {
		if in.Offers[i].Spend != "" {
			return refuse("commitments to spend")
		}
	}
	for i := range in.Commitments {
		if in.Commitments[i].Spend != "" {
			return refuse("commitments to spend")
		}
	}
	return nil
}

// owned adds the owned hardware that changes offer.
func (c *composed) owned() error {
	for i := range c.changes {
		x := &c.changes[i]
		if x.Kind != NewOffer || x.OfferKind != string(domain.OfferOwned) {
			continue
		}
		if x.Currency != "" && x.Currency != c.in.Currency {
			return unfit("changes[%d] %s: owned hardware is priced in %s, not in %s", i, x.Kind, c.in.Currency, x.Currency)
		}
		at := c.pools(x.Region, x.Model)
		if len(at) == 0 {
			c.notes = append(c.notes, fmt.Sprintf("nobody needs %s in %s, so %s is of no use", x.Model, x.Region, x.Offer))
			continue
		}
		p := &c.in.Pools[at[0]]
		o := instance.Offer{
			ID: plan.OfferName(p.ID, &domain.OfferQuoted{Market: domain.Market{Provider: x.Provider}, Offer: x.Offer}), Provider: x.Provider, Kind: domain.OfferOwned, Pool: p.ID,
			Term: x.Term, Upfront: median(x.Upfront), Hourly: median(x.Hourly),
			GuaranteesCapacity: true, LeadHours: 0, From: x.When, To: x.Until, MinUnits: x.MinUnits,
			MaxUnits: x.MaxUnits, Citation: x.Citation, Generated: x.Citation == "",
			Owned: &instance.Owned{
				PowerKW: median(x.PowerKW), PUE: median(x.PUE), TariffKWh: median(x.TariffKWh),
				SpaceMonthly:   median(x.SpaceMonth),
				NetworkMonthly: median(x.NetworkMonth), SupportMonthly: median(x.SupportMonth), Salvage: median(x.Salvage),
			},
		}
		if x.PUE == nil {
			o.Owned.PUE = decimal.NewFromInt(1)
		}
		if x.LeadHours != nil {
			o.From = max(o.From, c.in.From+hoursOf(median(x.LeadHours)))
		}
		c.in.Offers = append(c.in.Offers, o)
	}
	return nil
}

// pools returns the pools in a region and of a model; "" matches any.
func (c *composed) pools(region, model string) (out []int) {
	for i := range c.in.Pools {
		p := &c.in.Pools[i]
		if (region == "" || region == p.Region) && (model == "" || model == p.Class || named(model, p.Class)) {
			out = append(out, i)
		}
	}
	return out
}

// forever is after every horizon.
const forever domain.Instant = math.MaxInt64
