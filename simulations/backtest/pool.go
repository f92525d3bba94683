package backtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/plan"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/baseline"
)

// test is a pool with the purchases of its alternatives so far.
type test struct {
	q      *Question
	index  int
	pool   *Pool
	months []domain.Interval
	// terms are the commitments for sale in any month, by id: the offers of books.
	terms []Term
	books []*books // by terminal rule, in the order of Question.salvages
	// sets are the decisions, see [Question.sets].
	sets      []set
	score     forecast.Score
	missing   int // hours of the months that were not observed
	synthetic int // months with a price that was not known
	blind     int // months without a forecast, and the first reason
	why       string
}

// set is the purchases of the alternatives with the same knowledge of the end.
type set struct {
	endKnown bool
	salvage  *domain.Decimal // that plans assume beyond their horizon; nil: it follows from the forecast
	// bought is by alternative; those that buy nothing have no entry.
	bought [][]procurement.Purchase
}

// sets are the variants of deciding: without knowing an end, as advice is given, and, for each
// terminal rule, knowing the end and the rule.
func (q *Question) sets() []set {
	out := []set{{false, q.PlanSalvage, make([][]procurement.Purchase, len(Alternatives()))}}
	for _, salvage := range q.salvages() {
		out = append(out, set{true, &salvage, make([][]procurement.Purchase, len(Alternatives()))})
	}
	return out
}

// newTest prepares the pools of the actual demand.
func newTest(q *Question, index int, months []domain.Interval) (*test, error) {
	t := &test{q: q, index: index, pool: &q.Pools[index], months: months, sets: q.sets()}
	byID := map[string]Term{}
	for m := range t.pool.Markets {
		market := &t.pool.Markets[m]
		synthetic := market.OnDemand.Synthetic || market.Spot != nil && market.Spot.Synthetic
		for _, term := range market.Terms {
			first, twice := byID[term.ID]
			if twice && (first.Months != term.Months || first.Guaranteed != term.Guaranteed || first.Lead != term.Lead) {
				return nil, fmt.Errorf("offer %s is not the same thing in every month", term.ID)
			}
			if term.Months < 1 || term.Months > MaxMonths || term.Lead < 0 || term.Lead > MaxMonths || term.Max < 0 {
				return nil, fmt.Errorf("offer %s: %d months long, %d to wait for, at most %d units: that is not an offer",
					term.ID, term.Months, term.Lead, term.Max)
			}
			byID[term.ID] = term
			synthetic = synthetic || term.Synthetic
		}
		if synthetic {
			t.synthetic++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		t.terms = append(t.terms, byID[id])
	}
	var epochs []procurement.Epoch
	for m, span := range months {
		e, err := t.epoch(&t.pool.Markets[m], span)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", month(span.From), err)
		}
		hours := units(between(t.pool.Milli, t.pool.From, span))
		t.missing += hoursOf(span) - len(hours)
		e.Demand = procurement.Steps(hours)
		t.hold(&e, span, nil, 0)
		epochs = append(epochs, e)
	}
	for _, salvage := range q.salvages() {
		p := &procurement.Pool{ID: t.pool.name(), Epochs: epochs}
		for i := range t.terms {
			o := procurement.Offer{ID: t.terms[i].ID, Guaranteed: t.terms[i].Guaranteed, Term: t.terms[i].Months}
			for m := range t.pool.Markets {
				k := slices.IndexFunc(t.pool.Markets[m].Terms, func(x Term) bool { return x.ID == o.ID })
				if at := m + t.terms[i].Lead; k >= 0 && at < len(months) {
					s, err := start(&t.pool.Markets[m].Terms[k], months, at, salvage)
					if err != nil {
						return nil, err
					}
					o.Starts = append(o.Starts, s)
				}
			}
			p.Offers = append(p.Offers, o)
		}
		if err := p.Validate(); err != nil {
			return nil, err
		}
		t.books = append(t.books, &books{salvage: salvage, past: p})
	}
	return t, nil
}

// between returns the observed hours of a span.
func between(milli []int64, from domain.Instant, span domain.Interval) []int64 {
	lo := min(max(0, int((span.From-from)/domain.Hour)), len(milli))
	hi := min(max(lo, int((span.To-from)/domain.Hour)), len(milli))
	return slices.DeleteFunc(slices.Clone(milli[lo:hi]), func(v int64) bool { return v < 0 })
}

// units rounds thousandths up to purchased units.
func units(milli []int64) []int {
	out := make([]int, len(milli))
	for i, v := range milli {
		out[i] = int((v + 999) / 1000)
	}
	return out
}

// nano converts an amount to procurement's unit.
func nano(d domain.Decimal) (procurement.Nano, error) {
	n := d.Shift(9).Round(0)
	if d.IsNegative() || !n.BigInt().IsInt64() {
		return 0, fmt.Errorf("an amount of %s cannot be planned with", d)
	}
	return procurement.Nano(n.IntPart()), nil
}

// epoch is a month at the prices of a market, without demand.
func (t *test) epoch(m *Market, span domain.Interval) (procurement.Epoch, error) {
	e := procurement.Epoch{Span: span, Spot: -1, Quota: m.Quota, SpotPermille: t.pool.SpotPermille}
	var err error
	if e.OnDemand, err = nano(m.OnDemand.Hourly); err != nil {
		return e, fmt.Errorf("on-demand price: %w", err)
	}
	if e.Shortage, err = nano(m.OnDemand.Hourly.Mul(t.q.Shortage)); err != nil {
		return e, fmt.Errorf("shortage price: %w", err)
	}
	if m.Spot != nil && t.pool.SpotPermille > 0 {
		if e.Spot, err = nano(m.Spot.Hourly); err != nil {
			return e, fmt.Errorf("spot price: %w", err)
		}
		e.Spot = min(e.Spot, e.Shortage)
	}
	return e, nil
}

// hold adds to a month what is held in it: from the start, and from an alternative's purchases,
// whose epochs count from the first month of the test.
func (t *test) hold(e *procurement.Epoch, span domain.Interval, bought []procurement.Purchase, at int) {
	add := func(units int, guaranteed bool) {
		if guaranteed {
			e.HeldGuaranteed += units
		} else {
			e.HeldDiscountOnly += units
		}
	}
	for _, h := range t.pool.Held {
		if h.Span.From <= span.From && (h.Span.To == 0 || h.Span.To >= span.To) {
			add(h.Units, h.Guaranteed)
		}
	}
	for _, b := range bought {
		if term := &t.terms[b.Offer]; b.Epoch <= at && at < b.Epoch+term.Months {
			add(b.Units, term.Guaranteed)
		}
	}
}

// start is the cost of a unit that begins in an epoch of a horizon: the cost within, plus the cost
// beyond less the salvage.
func start(term *Term, months []domain.Interval, at int, salvage domain.Decimal) (procurement.Start, error) {
	whole, within := 0, 0
	for i, span := range following(months[at].From, term.Months) {
		whole += hoursOf(span)
		if at+i < len(months) {
			within += hoursOf(span)
		}
	}
	cost := term.Upfront.Add(term.Hourly.Mul(decimal.NewFromInt(int64(whole))))
	beyond := decimal.NewFromInt(1).Sub(salvage).Mul(decimal.NewFromInt(int64(whole - within)))
	share := decimal.NewFromInt(int64(within)).Add(beyond)
	n, err := nano(cost.Mul(share).DivRound(decimal.NewFromInt(int64(whole)), 12))
	if err != nil {
		return procurement.Start{}, fmt.Errorf("offer %s: %w", term.ID, err)
	}
	s := procurement.Start{Epoch: at, Cost: n, Max: procurement.Unlimited}
	if term.Max > 0 {
		s.Max = term.Max
	}
	return s, nil
}

// horizon is the months that a decision looks at: the planning horizon, cut off at the end if that
// is known.
func (t *test) horizon(m int, s *set) []domain.Interval {
	n := t.q.Horizon
	if s.endKnown {
		n = min(n, len(t.months)-m)
	}
	return following(t.months[m].From, n)
}

// ahead is the pool as seen from a month on by an alternative with its purchases so far. The offers
// of that month stay available, and cost beyond the horizon is credited at a salvage. of maps each
// offer to its term.
func (t *test) ahead(m int, s *set, alternative int, salvage domain.Decimal) (p *procurement.Pool, of []int, err error) {
	span := t.horizon(m, s)
	p = &procurement.Pool{ID: t.pool.name() + " " + month(span[0].From)}
	market := &t.pool.Markets[m]
	for i := range span {
		e, err := t.epoch(market, span[i])
		if err != nil {
			return nil, nil, err
		}
		t.hold(&e, span[i], s.bought[alternative], m+i)
		p.Epochs = append(p.Epochs, e)
	}
	for i := range t.terms {
		k := slices.IndexFunc(market.Terms, func(x Term) bool { return x.ID == t.terms[i].ID })
		if k < 0 || t.terms[i].Lead >= len(span) {
			continue
		}
		o := procurement.Offer{ID: t.terms[i].ID, Guaranteed: t.terms[i].Guaranteed, Term: t.terms[i].Months}
		for at := t.terms[i].Lead; at < len(span); at++ {
			s, err := start(&market.Terms[k], span, at, salvage)
			if err != nil {
				return nil, nil, err
			}
			o.Starts = append(o.Starts, s)
		}
		p.Offers, of = append(p.Offers, o), append(of, i)
	}
	return p, of, nil
}

// keep keeps the planned purchases of a month that must be decided then: waiting would make them begin
// later than planned.
func (t *test) keep(m int, s *set, alternative int, of []int, planned []procurement.Purchase) {
	for _, b := range planned {
		term := &t.terms[of[b.Offer]]
		if at := m + term.Lead; b.Epoch == term.Lead && at < len(t.months) {
			s.bought[alternative] = append(s.bought[alternative], procurement.Purchase{
				Offer: of[b.Offer], Epoch: at, Units: b.Units,
			})
		}
	}
}

// seen is what was known of demand when a month began.
func (t *test) seen(m int) []int64 {
	at := int((t.months[m].From - t.pool.From) / domain.Hour)
	milli := t.pool.Milli
	if t.pool.Known != nil && t.pool.Known[m] != nil {
		milli = t.pool.Known[m]
	}
	if at <= 0 {
		return nil
	}
	out := milli[:min(at, len(milli))]
	if len(out) < at { // what is not known yet counts as not observed
		out = append(slices.Clone(out), slices.Repeat([]int64{-1}, at-len(out))...)
	}
	return out
}

// decide decides a month, with the forecast of it or the reason why there is none.
func (t *test) decide(ctx context.Context, m int, o *plan.Observed, why error) error {
	if err := t.plan(ctx, m, o, why); err != nil {
		return fmt.Errorf("plan of %s: %w", month(t.months[m].From), err)
	}
	past := make([]int, 0, 60*24)
	for _, v := range o.Milli[max(0, len(o.Milli)-cap(past)):] {
		past = append(past, int(max(-1, (v+999)/1000)))
		if v < 0 {
			past[len(past)-1] = -1
		}
	}
	for i := range t.sets {
		if err := t.follow(m, &t.sets[i], past); err != nil {
			return err
		}
	}
	return nil
}

// follow decides a month by the rules that need no plan. Without a known end they compare an
// offer's hourly cost over its whole term, which equals a salvage of 1. With a known end they
// compare the charge up to the end with the saving until then.
func (t *test) follow(m int, s *set, past []int) error {
	salvage := decimal.NewFromInt(1)
	if s.endKnown {
		salvage = *s.salvage
	}
	for i, r := range rules {
		alternative := i + len(Alternatives()) - len(rules)
		if r.constant && t.holds(s.bought[alternative], m) {
			continue
		}
		p, of, err := t.ahead(m, s, alternative, salvage)
		if err != nil {
			return err
		}
		var c baseline.Baseline
		switch r.kind {
		case baseline.Ladder:
			c = baseline.Ladders(p, past, r.days, ladderParts)
		case baseline.Peak:
			c = baseline.PeakReserved(p, past, r.days)
		default:
			c = baseline.LookBack(p, past, r.days)
		}
		t.keep(m, s, alternative, of, c.Purchases)
	}
	return nil
}

// holds reports whether something bought lasts in a month or begins later.
func (t *test) holds(bought []procurement.Purchase, m int) bool {
	return slices.ContainsFunc(bought, func(b procurement.Purchase) bool { return m < b.Epoch+t.terms[b.Offer].Months })
}

// observed is what the plan of a month learns from.
func (t *test) observed(m int) *plan.Observed {
	o := &plan.Observed{From: t.pool.From, Milli: t.seen(m)}
	if t.pool.Changes != nil {
		o.Changes = forecast.Shifts(o.From, o.Milli, t.pool.Changes[m])
	}
	return o
}

// plan decides a month by the plan: what package plan orders at that time, of what was known then.
func (t *test) plan(ctx context.Context, m int, observed *plan.Observed, why error) error {
	if why != nil {
		t.unseen(why)
		return nil
	}
	t.rate(m, observed.Milli, observed.Made)
	for i := range t.sets {
		s := &t.sets[i]
		bought, left, err := plan.Orders(ctx, t.question(m, s, observed), nil)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			if i == 0 {
				t.unseen(errors.New(left[0].Reason))
			}
			continue
		}
		for _, o := range bought {
			if o.Now == 0 {
				continue
			}
			k := slices.IndexFunc(t.terms, func(x Term) bool { return o.Offer == plan.OfferName(o.Pool, t.offer(&x)) })
			t.keep(m, s, 0, []int{k}, []procurement.Purchase{{Epoch: o.Month, Units: o.Now}})
		}
	}
	return nil
}

// question is what the plan of a month is asked: the pool with what is for sale and what it holds
// then. Amounts are nominal.
func (t *test) question(m int, s *set, observed *plan.Observed) *plan.Question {
	market, at := &t.pool.Markets[m], t.months[m].From
	p := plan.Pool{
		Region: t.pool.Region, Kind: t.pool.Kind, Unit: "vm", Observed: observed,
		Series:    []plan.Series{{Source: "demand", From: observed.From, Milli: observed.Milli}},
		SpotShare: decimal.New(int64(t.pool.SpotPermille), -3),
	}
	sold := func(kind domain.OfferKind, hourly domain.Decimal) domain.OfferQuoted {
		return domain.OfferQuoted{
			Market: domain.Market{Provider: supplier(market.Seller), Region: p.Region}, Offer: string(kind), SKU: p.Kind, Kind: kind,
			GPUCount: 1, Currency: t.q.Currency, Hourly: hourly,
		}
	}
	p.Offers = append(p.Offers, sold(domain.OfferOnDemand, market.OnDemand.Hourly))
	if market.Spot != nil {
		p.Offers = append(p.Offers, sold(domain.OfferSpot, market.Spot.Hourly)) // including its overhead
	}
	for i := range market.Terms {
		x := &market.Terms[i]
		o := t.offer(x)
		o.Upfront, o.Hourly, o.MaxUnits = x.Upfront, x.Hourly, uint32(x.Max)
		o.LeadTimeHours = uint32((following(at, x.Lead+1)[x.Lead].From - at) / domain.Hour)
		p.Offers = append(p.Offers, *o)
	}
	if market.Quota != procurement.Unlimited {
		p.Quotas = append(p.Quotas, plan.Quota{Provider: supplier(market.Seller), GPUs: uint64(market.Quota)})
	}
	q := &plan.Question{
		At: at, Draws: func(uint64) func() uint64 { return t.q.Draws(uint64(m)) }, Pools: []plan.Pool{p},
		Assumptions: plan.Assumptions{
			Months: len(t.horizon(m, s)), Weeks: 4, MonthlyGrowth: t.q.Growth, ShortageFactor: t.q.Shortage,
			Currency: t.q.Currency, Demand: plan.Forecast, Scenarios: t.q.Scenarios, Life: t.q.Life,
		},
	}
	if s.salvage == nil {
		q.Assumptions.SalvageFrom = plan.Forecast
	} else {
		q.Assumptions.Salvage = *s.salvage
	}
	if t.pool.Family {
		q.Assumptions.Life = 0
	}
	hold := func(units int, guaranteed bool, span domain.Interval) {
		q.Held = append(q.Held, plan.Held{
			Commitment: fmt.Sprintf("held %d", len(q.Held)+1), Provider: supplier(market.Seller), Region: p.Region,
			Kind: domain.OfferReserved, SKU: p.Kind, GPUs: 1, Units: units, Guaranteed: guaranteed, Term: span,
			Hourly: domain.Money{Currency: t.q.Currency}, Upfront: domain.Money{Currency: t.q.Currency},
		})
	}
	for _, h := range t.pool.Held {
		hold(h.Units, h.Guaranteed, h.Span)
	}
	for _, b := range s.bought[0] {
		x := &t.terms[b.Offer]
		term := following(t.months[0].From, b.Epoch+x.Months)
		hold(b.Units, x.Guaranteed, domain.Interval{From: term[b.Epoch].From, To: term[len(term)-1].To})
	}
	return q
}

// supplier names a supplier. Generated prices have none.
func supplier(name string) string { return cmp.Or(name, "any supplier") }

// offer names a term as an offer.
func (t *test) offer(x *Term) *domain.OfferQuoted {
	return &domain.OfferQuoted{
		Market: domain.Market{Provider: supplier(x.Seller), Region: t.pool.Region}, Offer: x.ID, SKU: t.pool.Kind,
		Kind: domain.OfferReserved, GPUCount: 1, Currency: t.q.Currency, TermMonths: uint32(x.Months),
		GuaranteesCapacity: x.Guaranteed,
	}
}

// unseen records a month without a forecast, in which the plan buys nothing.
func (t *test) unseen(why error) {
	t.blind++
	t.why = cmp.Or(t.why, why.Error())
}

// rate scores the first four weeks of a forecast.
func (t *test) rate(m int, history []int64, f *forecast.Forecast) {
	at := min(int((t.months[m].From-t.pool.From)/domain.Hour), len(t.pool.Milli))
	actual := t.pool.Milli[at:]
	t.score.Add(history, f, actual[:min(4*forecast.Week, len(actual))])
}
