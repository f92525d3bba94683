package question

import (
	"fmt"
	"slices"
	"time"

	"quartermaster/domain"
)

// listing is a choice as a reading keeps it; there may be millions.
type listing struct {
	offer       int32 // index in the document; −1 − the index of further terms
	tier        int32 // of the offer's tiers, −1 below the first
	epoch       int32
	least, most int32
}

// choice is something that can be bought: lots of an offer from an epoch on at the prices of a
// tier, or a number of further terms of a commitment.
type choice struct {
	offer *offer
	goes  *commitment
	epoch int
	// settled are the further terms that are certain, renewals those that are bought.
	settled, renewals int
	tier, lot         int
	least, most       int // lots; most −1: no bound
	term              domain.Interval
	orderBy           domain.Instant
	upfront, hourly   domain.Decimal // of a lot
	cost              int64          // of a lot
	pool, spend       int            // −1: none
	covers            []Cover
	spends            []SpendCover
	group             string
}

// lots are the whole lots that a number of units needs.
func lots(units, lot int) int { return (units + lot - 1) / lot }

// window is the epochs [from, to) with which a term of an offer may begin.
func (r *reading) window(o *offer) (from, to int) {
	earliest := max(o.From, r.doc.From+domain.Instant(o.LeadHours)*domain.Hour)
	for from < r.cal.n && r.cal.starts[from] < earliest {
		from++
	}
	for to = from; to < r.cal.n && (o.To == 0 || r.cal.starts[to] < o.To); to++ {
	}
	return from, to
}

// stretch is a part of an order that is there in epochs [from, to).
type stretch struct{ from, to, permille int }

func (o *offer) stretches(begin int) []stretch {
	if len(o.Ramp) == 0 {
		return []stretch{{begin, begin + o.Term, 1000}}
	}
	var out []stretch
	for i, s := range o.Ramp {
		to := o.Term
		if i+1 < len(o.Ramp) {
			to = o.Ramp[i+1].Epoch
		}
		if s.Permille > 0 {
			out = append(out, stretch{begin + s.Epoch, begin + to, s.Permille})
		}
	}
	return out
}

// times is a price of a lot, of what is left of it.
func times(price, fall domain.Decimal, lot int) domain.Decimal {
	if lot == 1 && fall.Equal(one) {
		return price
	}
	return price.Mul(fall).Mul(whole(lot))
}

// sell lists the choices of an offer.
func (r *reading) sell(i int) error {
	o := &r.doc.Offers[i]
	from, to := r.window(o)
	if from == to {
		return nil
	}
	r.outlive = r.outlive || to-1+o.Term > r.cal.n
	if _, err := r.doc.worth(o.Currency); err != nil {
		return err
	}
	lot := max(1, o.Lot)
	for begin := from; begin < to; begin++ {
		for k := -1; k < len(o.Tiers); k++ {
			c := listing{offer: int32(i), tier: int32(k), epoch: int32(begin), most: -1}
			least := o.MinUnits
			if k >= 0 {
				least = max(least, o.Tiers[k].Units)
			}
			c.least = int32(max(1, lots(least, lot)))
			if o.MaxUnits > 0 && o.MaxUnits < 100_000_000 {
				c.most = int32(o.MaxUnits / lot)
			}
			if k+1 < len(o.Tiers) {
				if below := int32((o.Tiers[k+1].Units - 1) / lot); c.most < 0 || below < c.most {
					c.most = below
				}
			}
			if c.most < 0 || c.most >= c.least {
				r.choices = append(r.choices, c)
			}
		}
	}
	return nil
}

// excludes names the choices of which one at most is bought; "" if a choice excludes no other.
func (r *reading) excludes(c listing) string {
	if c.offer < 0 {
		return r.further[-1-c.offer].group
	}
	switch o := &r.doc.Offers[c.offer]; {
	case o.Exclusive != "":
		return "exclusive " + o.Exclusive
	case len(o.Tiers) > 0:
		return fmt.Sprintf("tiers of %s in epoch %d", o.ID, c.epoch)
	}
	return ""
}

// left is what is left of the prices of an offer in each epoch, in the currency of the question.
func (r *reading) left(i int32) []domain.Decimal {
	if r.falls.list == nil || r.falls.offer != i {
		o := &r.doc.Offers[i]
		fall, _ := r.doc.worth(o.Currency) // it was found before
		r.falls.offer, r.falls.list = i, make([]domain.Decimal, r.cal.n)
		for e := range r.falls.list {
			if e > 0 && !o.Decline.IsZero() {
				fall = fall.Mul(one.Sub(o.Decline)).Round(places)
			}
			r.falls.list[e] = fall
		}
	}
	return r.falls.list
}

// choice prices a choice.
func (r *reading) choice(i int) (*choice, error) {
	c := &choice{}
	return c, r.price(i, c)
}

// price is choice in memory that is used again.
func (r *reading) price(i int, c *choice) error {
	at := r.choices[i]
	if at.offer < 0 {
		*c = r.further[-1-at.offer]
		return nil
	}
	o, begin := &r.doc.Offers[at.offer], int(at.epoch)
	lot, t, fall := max(1, o.Lot), tier{0, o.Upfront, o.Hourly}, r.left(at.offer)[begin]
	if at.tier >= 0 {
		t = o.Tiers[at.tier]
	}
	*c = choice{
		offer: o, epoch: begin, tier: t.Units, lot: lot, group: r.excludes(at), pool: -1, spend: -1,
		least: int(at.least), most: int(at.most),
		term:    domain.Interval{From: r.cal.starts[begin], To: r.cal.starts[begin+o.Term]},
		orderBy: r.cal.starts[begin] - domain.Instant(o.LeadHours)*domain.Hour,
		upfront: times(t.Upfront, fall, lot), hourly: times(t.Hourly, fall, lot), covers: c.covers[:0],
	}
	fx, err := r.doc.worth(o.Currency)
	if err != nil {
		return err
	}
	if c.cost, err = rounded(r.present(c, r.doc.Salvage, fx), r.digits); err != nil {
		return fmt.Errorf("offer %q: %w", o.ID, err)
	}
	if c.cost < 0 {
		return fmt.Errorf("offer %q: a lot from %s is worth more at the end of the horizon than it costs", o.ID,
			r.cal.name(begin))
	}
	if o.Kind == spending {
		c.spend, _ = slices.BinarySearch(r.spends, o.Spend)
	} else {
		c.pool = r.pool[o.Pool]
	}
	for _, s := range o.stretches(begin) {
		if s.from >= r.cal.n {
			continue
		}
		s.to = min(s.to, r.cal.n)
		if c.pool >= 0 {
			c.covers = append(c.covers, Cover{c.pool, s.from, s.to, lot * max(1, o.PerUnit) * s.permille / 1000, o.Guaranteed})
			continue
		}
		commits := c.hourly // paid by the hour, unless the offer says otherwise
		if o.Commits.Sign() != 0 {
			commits = times(o.Commits, fx, lot)
		}
		perHour, err := rounded(commits.Mul(whole(s.permille)).Shift(-3), r.digits)
		if err != nil {
			return fmt.Errorf("offer %q: %w", o.ID, err)
		}
		if perHour > 0 {
			c.spends = append(c.spends, SpendCover{c.spend, s.from, s.to, perHour})
		}
	}
	return nil
}

// running is what a lot of owned hardware costs by the hour and by the month besides its prices.
func (c *choice) running(fx domain.Decimal) (hour, month domain.Decimal) {
	w := c.offer.Owned
	units := fx.Mul(whole(c.lot))
	return w.PowerKW.Mul(w.PUE).Mul(w.TariffKWh).Mul(units),
		w.SpaceMonthly.Add(w.NetworkMonthly).Add(w.SupportMonthly).Mul(units)
}

// monthly is the part of a month that an epoch is.
func (r *reading) monthly(e int) domain.Decimal {
	if r.doc.Epoch == "month" {
		return one
	}
	t := r.cal.starts[e].Time()
	return one.DivRound(whole(time.Date(t.Year(), t.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()), places)
}

// term is one whose hours were discounted.
type term struct{ begin, length int }

// paying is what an hourly price is paid for over a term: its hours, discounted, and those beyond the
// horizon less a salvage.
func (r *reading) paying(begin, length int, salvage domain.Decimal) domain.Decimal {
	if r.hours == nil || !r.salvage.Equal(salvage) {
		r.hours, r.salvage = map[term]domain.Decimal{}, salvage
	}
	at := term{begin, length}
	if hours, ok := r.hours[at]; ok {
		return hours
	}
	cal, end := r.cal, begin+length
	hours := cal.paid[min(end, cal.n)].Sub(cal.paid[begin])
	if end > cal.n {
		hours = hours.Add(one.Sub(salvage).Mul(cal.paid[end].Sub(cal.paid[cal.n])))
	}
	r.hours[at] = hours
	return hours
}

// present is the present value of a lot of an offer, with a salvage of what lies beyond the horizon.
func (r *reading) present(c *choice, salvage, fx domain.Decimal) domain.Decimal {
	o, cal := c.offer, r.cal
	begin, end := c.epoch, c.epoch+o.Term
	plain := o.Owned == nil && len(o.Ramp) == 0
	if plain && c.upfront.IsZero() {
		return c.hourly.Mul(r.paying(begin, o.Term, salvage))
	}
	inside, kept := min(end, cal.n), one.Sub(salvage)
	part := whole(cal.hours[inside] - cal.hours[begin]).Add(kept.Mul(whole(cal.hours[end] - cal.hours[inside])))
	capital := c.upfront.Mul(cal.begin[begin])
	if o.Owned != nil {
		capital = capital.Sub(c.upfront.Mul(o.Owned.Salvage).Mul(cal.begin[end]))
	}
	sum := capital.Mul(part).DivRound(whole(cal.hours[end]-cal.hours[begin]), places)
	if o.Owned != nil {
		hour, month := c.running(fx)
		sum = sum.Add(c.hourly.Add(hour).Mul(cal.paid[inside].Sub(cal.paid[begin])))
		for e := begin; e < inside; e++ {
			sum = sum.Add(month.Mul(r.monthly(e)).Mul(cal.middle[e]))
		}
		return sum
	}
	if plain {
		return sum.Add(c.hourly.Mul(r.paying(begin, o.Term, salvage)))
	}
	for _, s := range o.stretches(begin) {
		hours := zero
		if s.from < cal.n {
			hours = cal.paid[min(s.to, cal.n)].Sub(cal.paid[s.from])
		}
		if s.to > cal.n {
			hours = hours.Add(kept.Mul(cal.paid[s.to].Sub(cal.paid[max(s.from, cal.n)])))
		}
		sum = sum.Add(c.hourly.Mul(hours).Mul(whole(s.permille)).Shift(-3))
	}
	return sum
}

// value is the present value of a lot under a salvage, before it is rounded.
func (r *reading) value(c *choice, salvage domain.Decimal) domain.Decimal {
	if c.offer != nil {
		fx, _ := r.doc.worth(c.offer.Currency) // it was found before
		return r.present(c, salvage, fx)
	}
	sum := zero
	for k := 1; k <= c.renewals; k++ {
		sum = sum.Add(r.due(c.goes, c.goes.times(c.settled+k), &salvage))
	}
	return sum
}

// money is what a lot pays in each epoch of the horizon, and what each is charged: nominal.
func (r *reading) money(c *choice) (cash, accrual []domain.Decimal) {
	n := r.cal.n
	cash, accrual = make([]domain.Decimal, n), make([]domain.Decimal, n)
	if c.goes != nil {
		for k := 1; k <= c.renewals; k++ {
			r.pay(c.goes, c.goes.times(c.settled+k), cash, accrual)
		}
		return cash, accrual
	}
	o, end := c.offer, c.epoch+c.offer.Term
	cash[c.epoch] = c.upfront
	spread := c.upfront
	if o.Owned != nil {
		sale := c.upfront.Mul(o.Owned.Salvage)
		if spread = spread.Sub(sale); end < n {
			cash[end] = cash[end].Sub(sale)
		}
	}
	all := whole(r.cal.hours[end] - r.cal.hours[c.epoch])
	for e := c.epoch; e < min(end, n); e++ {
		accrual[e] = spread.Mul(whole(r.cal.length(e))).DivRound(all, places)
	}
	add := func(e int, amount domain.Decimal) { cash[e], accrual[e] = cash[e].Add(amount), accrual[e].Add(amount) }
	for _, s := range o.stretches(c.epoch) {
		for e := s.from; e < min(s.to, n); e++ {
			add(e, c.hourly.Mul(whole(r.cal.length(e))).Mul(whole(s.permille)).Shift(-3))
		}
	}
	if o.Owned != nil {
		fx, _ := r.doc.worth(o.Currency)
		hour, month := c.running(fx)
		for e := c.epoch; e < min(end, n); e++ {
			add(e, hour.Mul(whole(r.cal.length(e))).Add(month.Mul(r.monthly(e))))
		}
	}
	return cash, accrual
}
