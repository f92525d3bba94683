package backtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/baseline"
	"quartermaster/domain/procurement/check"
)

// test is a pool and what its courses have bought so far.
type test struct {
	q      *Question
	index  int
	pool   *Pool
	months []domain.Interval
	// terms are the commitments for sale in any month, by id: the offers of past.
	terms []Term
	past  *procurement.Pool // what happened
	// bought is by course; those that buy nothing have none.
	bought    [][]procurement.Purchase
	foresight *procurement.Solution
	costs     []costs // by course, perfect foresight last
	score     ForecastScore
	missing   int // hours of the months that were not observed
	synthetic int // months with a price that was not known
	blind     int // months without a forecast, and why first
	why       string
}

// newTest puts what happened into a pool.
func newTest(q *Question, index int, months []domain.Interval) (*test, error) {
	t := &test{q: q, index: index, pool: &q.Pools[index], months: months, bought: make([][]procurement.Purchase, len(Courses()))}
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
				return nil, fmt.Errorf("offer %s: %d months long, %d to wait for, at most %d units: that is no offer", term.ID, term.Months, term.Lead, term.Max)
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
	t.past = &procurement.Pool{ID: t.pool.name()}
	for m, span := range months {
		e, err := t.epoch(&t.pool.Markets[m], span)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", month(span.From), err)
		}
		hours := units(between(t.pool.Milli, t.pool.From, span))
		t.missing += hoursOf(span) - len(hours)
		e.Demand = procurement.Steps(hours)
		t.hold(&e, span, nil, 0)
		t.past.Epochs = append(t.past.Epochs, e)
	}
	for i := range t.terms {
		o := procurement.Offer{ID: t.terms[i].ID, Guaranteed: t.terms[i].Guaranteed, Term: t.terms[i].Months}
		for m := range t.pool.Markets {
			k := slices.IndexFunc(t.pool.Markets[m].Terms, func(x Term) bool { return x.ID == o.ID })
			if at := m + t.terms[i].Lead; k >= 0 && at < len(months) {
				s, err := start(&t.pool.Markets[m].Terms[k], months, at, q.Salvage)
				if err != nil {
					return nil, err
				}
				o.Starts = append(o.Starts, s)
			}
		}
		t.past.Offers = append(t.past.Offers, o)
	}
	return t, t.past.Validate()
}

// between returns the hours of a span that were observed.
func between(milli []int64, from domain.Instant, span domain.Interval) []int64 {
	lo := min(max(0, int((span.From-from)/domain.Hour)), len(milli))
	hi := min(max(lo, int((span.To-from)/domain.Hour)), len(milli))
	return slices.DeleteFunc(slices.Clone(milli[lo:hi]), func(v int64) bool { return v < 0 })
}

// units rounds thousandths up to what is bought.
func units(milli []int64) []int {
	out := make([]int, len(milli))
	for i, v := range milli {
		out[i] = int((v + 999) / 1000)
	}
	return out
}

// nano turns an amount into what procurement counts in.
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

// hold adds to a month what is held in it: from the start, and of purchases that a
// course has made, whose epochs count from the first month of the test.
func (t *test) hold(e *procurement.Epoch, span domain.Interval, bought []procurement.Purchase, at int) {
	add := func(units int, guaranteed bool) {
		if guaranteed {
			e.HeldGuaranteed += units
		} else {
			e.HeldPriceOnly += units
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

// start is what a unit costs that begins in an epoch of a horizon: what it costs
// within, and of what it costs beyond, all but the salvage.
func start(term *Term, months []domain.Interval, at int, salvage domain.Decimal) (procurement.Start, error) {
	whole, within := 0, 0
	for i, span := range following(months[at].From, term.Months) {
		whole += hoursOf(span)
		if at+i < len(months) {
			within += hoursOf(span)
		}
	}
	cost := term.Upfront.Add(term.Hourly.Mul(decimal.NewFromInt(int64(whole))))
	share := decimal.NewFromInt(int64(within)).Add(decimal.NewFromInt(1).Sub(salvage).Mul(decimal.NewFromInt(int64(whole - within))))
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

// ahead is the pool as it looks from a month on, to a course that has bought what
// it has, with the offers of that month for as long as anybody can see. of says
// which of the terms each offer is.
func (t *test) ahead(m, course int) (p *procurement.Pool, of []int, err error) {
	span := following(t.months[m].From, t.q.Horizon)
	p = &procurement.Pool{ID: t.pool.name() + " " + month(span[0].From)}
	market := &t.pool.Markets[m]
	for i := range span {
		e, err := t.epoch(market, span[i])
		if err != nil {
			return nil, nil, err
		}
		t.hold(&e, span[i], t.bought[course], m+i)
		p.Epochs = append(p.Epochs, e)
	}
	for i := range t.terms {
		k := slices.IndexFunc(market.Terms, func(x Term) bool { return x.ID == t.terms[i].ID })
		if k < 0 || t.terms[i].Lead >= len(span) {
			continue
		}
		o := procurement.Offer{ID: t.terms[i].ID, Guaranteed: t.terms[i].Guaranteed, Term: t.terms[i].Months}
		for at := t.terms[i].Lead; at < len(span); at++ {
			s, err := start(&market.Terms[k], span, at, t.q.PlanSalvage)
			if err != nil {
				return nil, nil, err
			}
			o.Starts = append(o.Starts, s)
		}
		p.Offers, of = append(p.Offers, o), append(of, i)
	}
	return p, of, nil
}

// decide keeps of purchases that were planned in a month what has to be decided
// then: what cannot begin later without beginning later than planned.
func (t *test) decide(m, course int, of []int, planned []procurement.Purchase) {
	for _, b := range planned {
		term := &t.terms[of[b.Offer]]
		if at := m + term.Lead; b.Epoch == term.Lead && at < len(t.months) {
			t.bought[course] = append(t.bought[course], procurement.Purchase{Offer: of[b.Offer], Epoch: at, Units: b.Units})
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
	if len(out) < at { // what is not known yet was not observed
		out = append(slices.Clone(out), slices.Repeat([]int64{-1}, at-len(out))...)
	}
	return out
}

// run decides month by month, and reckons up.
func (t *test) run(ctx context.Context, tell func()) error {
	for m := range t.months {
		if err := ctx.Err(); err != nil {
			return err
		}
		history := t.seen(m)
		if err := t.plan(m, history); err != nil {
			return fmt.Errorf("plan of %s: %w", month(t.months[m].From), err)
		}
		past := make([]int, 0, 60*24)
		for _, v := range history[max(0, len(history)-cap(past)):] {
			past = append(past, int(max(-1, (v+999)/1000)))
			if v < 0 {
				past[len(past)-1] = -1
			}
		}
		for i, r := range rules {
			course := i + len(Courses()) - len(rules)
			p, of, err := t.ahead(m, course)
			if err != nil {
				return err
			}
			var c baseline.Course
			switch r.kind {
			case baseline.Ladder:
				c = baseline.Ladders(p, past, r.days, ladderParts)
			case baseline.Peak:
				c = baseline.PeakReserved(p, past, r.days)
			default:
				c = baseline.LookBack(p, past, r.days)
			}
			t.decide(m, course, of, c.Purchases)
		}
		tell()
	}
	return t.reckon()
}

// plan decides a month by the plan.
func (t *test) plan(m int, history []int64) error {
	weeks := forecast.MaxHorizon
	if h := int((following(t.months[m].From, t.q.Horizon)[t.q.Horizon-1].To - t.months[m].From) / domain.Hour); h < weeks*forecast.Week {
		weeks = (h + forecast.Week - 1) / forecast.Week
	}
	if len(history) == 0 {
		t.unseen(errors.New("no demand was known"))
		return nil
	}
	question := &forecast.Question{From: t.pool.From, History: history, Weeks: weeks, Levels: []int{900}}
	if t.pool.Changes != nil {
		question.Changes = forecast.Shifts(t.pool.From, history, t.pool.Changes[m])
	}
	f, err := forecast.Make(question)
	if err != nil {
		t.unseen(err)
		return nil
	}
	t.rate(m, history, f)
	p, of, err := t.ahead(m, 0)
	if err != nil {
		return err
	}
	hours := int((p.Epochs[len(p.Epochs)-1].Span.To - t.months[m].From) / domain.Hour)
	draws, err := f.Scenarios(&forecast.Spread{Hours: hours, Count: t.q.Scenarios, Growth: t.q.Growth}, t.q.Draws(uint64(t.index)*MaxMonths+uint64(m)))
	if err != nil {
		return err
	}
	p.Weights = slices.Repeat([]int{1}, len(draws))
	for i := range p.Epochs {
		span := p.Epochs[i].Span
		for _, d := range draws {
			p.Epochs[i].Cases = append(p.Epochs[i].Cases, procurement.Case{Demand: procurement.Steps(units(between(d, t.months[m].From, span))), SpotUnits: procurement.Unlimited})
		}
	}
	s, err := procurement.Solve(p)
	if err != nil {
		return err
	}
	t.decide(m, 0, of, s.Purchases)
	return nil
}

// unseen notes a month in which nothing could be forecast, so that the plan buys
// nothing.
func (t *test) unseen(why error) {
	t.blind++
	t.why = cmp.Or(t.why, why.Error())
}

// rate notes what the first four weeks of a forecast were worth.
func (t *test) rate(m int, history []int64, f *forecast.Forecast) {
	n := min(4*forecast.Week, len(f.Point))
	at := int((t.months[m].From - t.pool.From) / domain.Hour)
	upper := f.At(900)
	for h := range n {
		if at+h >= len(t.pool.Milli) || t.pool.Milli[at+h] < 0 {
			continue
		}
		actual, naive := t.pool.Milli[at+h], history[len(history)-forecast.Week+h%forecast.Week]
		if naive < 0 { // a week before nothing was observed, so nothing to compare with
			continue
		}
		t.score.Hours++
		t.score.error.Add(&t.score.error, distance(actual, f.Point[h]))
		t.score.naive.Add(&t.score.naive, distance(actual, naive))
		if actual <= upper[h] {
			t.score.within++
		}
	}
	t.score.Forecasts++
}

func distance(a, b int64) *big.Int { return big.NewInt(max(a-b, b-a)) }

// reckon says what each course cost, and what the least was.
func (t *test) reckon() error {
	var err error
	if t.foresight, err = procurement.Solve(t.past); err != nil {
		return err
	}
	if _, err := check.Check(t.past, t.foresight); err != nil {
		return fmt.Errorf("the checker refuses perfect foresight; please report this: %w", err)
	}
	for i, name := range Courses() {
		c := baseline.Course{Rule: baseline.Rule(name), Offer: -1, Purchases: t.bought[i]}
		ev, err := c.Evaluate(t.past)
		if err != nil {
			return err
		}
		k, err := t.byMonth(ev, t.bought[i])
		if err != nil {
			return fmt.Errorf("course %s: %w", name, err)
		}
		if ev.Cost.Cmp(t.foresight.Bound) < 0 {
			return fmt.Errorf("course %s costs %d, less than perfect foresight proves: %d", name, ev.Cost, t.foresight.Bound)
		}
		t.costs = append(t.costs, k)
	}
	ev, err := procurement.Evaluate(t.past, t.foresight.Purchases)
	if err != nil {
		return err
	}
	k, err := t.byMonth(ev, t.foresight.Purchases)
	t.costs = append(t.costs, k)
	return err
}

// costs is what a course cost in each month, and what served its demand, in
// unit-hours.
type costs struct {
	month   []*big.Int // Nano
	penalty *big.Int   // of it, for what nobody served
	served  Served
}

// byMonth lays a course's cost over the months: purchases by the hours that they
// cover, what is charged of them beyond the end in the last month.
func (t *test) byMonth(ev *procurement.Evaluation, bought []procurement.Purchase) (costs, error) {
	k := costs{penalty: ev.ShortageCost}
	sum := new(big.Int)
	for m, s := range ev.Epochs {
		e := &t.past.Epochs[m]
		cost := new(big.Int)
		for _, x := range []struct {
			price procurement.Nano
			hours int64
		}{{e.Spot, s.Spot}, {e.OnDemand, s.OnDemand}, {e.Shortage, s.Shortage}} {
			if x.hours > 0 {
				cost.Add(cost, new(big.Int).Mul(big.NewInt(int64(x.price)), big.NewInt(x.hours)))
			}
		}
		k.month = append(k.month, cost)
		sum.Add(sum, cost)
		k.served.Reserved += s.Guaranteed + s.PriceOnly
		k.served.Unused += s.UnusedGuaranteed + s.UnusedPriceOnly
		k.served.Spot += s.Spot
		k.served.OnDemand += s.OnDemand
		k.served.Shortage += s.Shortage
	}
	for _, b := range bought {
		term := &t.terms[b.Offer]
		starts := t.past.Offers[b.Offer].Starts
		at := slices.IndexFunc(starts, func(s procurement.Start) bool { return s.Epoch == b.Epoch })
		if at < 0 {
			return k, fmt.Errorf("offer %s does not begin in month %d", term.ID, b.Epoch)
		}
		left := new(big.Int).Mul(big.NewInt(int64(starts[at].Cost)), big.NewInt(int64(b.Units)))
		sum.Add(sum, left)
		span := following(t.months[b.Epoch].From, term.Months)
		last := min(len(span), len(t.months)-b.Epoch) - 1
		whole, within := int64(0), int64(0)
		for i := range span {
			whole += int64(hoursOf(span[i]))
			if i <= last {
				within += int64(hoursOf(span[i]))
			}
		}
		charged := decimal.NewFromInt(within).Add(decimal.NewFromInt(1).Sub(t.q.Salvage).Mul(decimal.NewFromInt(whole - within)))
		spread := decimal.NewFromBigInt(left, 0).Mul(decimal.NewFromInt(within)).DivRound(charged, 0).BigInt()
		for i := range last + 1 {
			part := new(big.Int).Mul(spread, big.NewInt(int64(hoursOf(span[i]))))
			part.Quo(part, big.NewInt(within))
			k.month[b.Epoch+i].Add(k.month[b.Epoch+i], part)
			left.Sub(left, part)
		}
		k.month[b.Epoch+last].Add(k.month[b.Epoch+last], left)
	}
	if sum.Cmp(ev.Cost) != 0 {
		return k, fmt.Errorf("its months add up to %d, its cost is %d", sum, ev.Cost)
	}
	return k, nil
}
