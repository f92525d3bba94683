package instance

import (
	"fmt"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// listing is a choice as a model keeps it. There are millions: an offer has one for each tier and epoch.
type listing struct {
	offer      int32 // index in the sorted instance, or −1 − the index of a renewal
	tier       int32 // of the offer's tiers, −1 below the first
	epoch      int32
	least, max int32
}

// choice is something that can be bought: an offer with a start epoch at the price of a tier, or a
// number of further terms of a commitment. Its unit is the smallest quantity that can be bought
// alone: a lot of the offer, or a whole commitment.
type choice struct {
	order Order // Units is the size of one unit of the choice
	offer *Offer
	goes  *Commitment // the commitment that renews
	// settled is the number of further terms that are certain because notice is too late.
	settled int
	path    string // in the document
	tier    int    // least order size of the tier, 0 below the first
	// least and max are in units of the choice; procurement.Unlimited means no bound.
	least, max int
	term       domain.Interval
	orderBy    domain.Instant
	upfront    domain.Decimal // of one unit, in the instance's currency
	hourly     domain.Decimal
	at         int // index of its cost in model.costs
	covers     []joint.Cover
	spends     []joint.SpendCover
	group      string
}

// span is a range of epochs [from, to) in which part of an order is present.
type span struct {
	from, to, permille int
}

// ramp returns the parts of an order that begins in epoch s.
func (o *Offer) ramp(s int) []span {
	if len(o.Ramp) == 0 {
		return []span{{s, s + o.Term, 1000}}
	}
	var out []span
	for i, r := range o.Ramp {
		to := o.Term
		if i+1 < len(o.Ramp) {
			to = o.Ramp[i+1].Epoch
		}
		if r.Permille > 0 {
			out = append(out, span{s + r.Epoch, s + to, r.Permille})
		}
	}
	return out
}

// prices are those of one unit of an offer in the instance's currency.
type prices struct{ upfront, hourly domain.Decimal }

// declined returns the remaining fraction of a declining price in each epoch of the horizon.
func (o *Offer) declined(n int) []domain.Decimal {
	out := make([]domain.Decimal, n)
	out[0] = one
	left := one.Sub(o.Decline)
	for i := 1; i < n; i++ {
		out[i] = out[i-1].Mul(left).Round(digits)
	}
	return out
}

// monthly is the length of epoch i in months.
func (m *model) monthly(i int) domain.Decimal {
	if m.in.Epoch == Months {
		return one
	}
	u := m.cal.spans[i].From.Time()
	return one.DivRound(whole(int64(time.Date(u.Year(), u.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day())), digits)
}

// running is the running cost of a unit of owned hardware by the hour and by the month, in the
// instance's currency, in addition to its hourly price.
func (m *model) running(o *Offer) (hourly, month domain.Decimal) {
	w, fx := o.Owned, m.in.fx(o.Currency)
	return w.PowerKW.Mul(w.PUE).Mul(w.TariffKWh).Mul(fx), w.SpaceMonthly.Add(w.NetworkMonthly).Add(w.SupportMonthly).Mul(fx)
}

// unitPrices are those of one unit of an offer that begins in epoch s, at the price of a tier (−1: below
// the first).
func (m *model) unitPrices(o *Offer, tier, s int) prices {
	p, fx := prices{o.Upfront, o.Hourly}, m.in.fx(o.Currency)
	if tier >= 0 {
		p = prices{o.Tiers[tier].Upfront, o.Tiers[tier].Hourly}
	}
	if !o.Decline.IsZero() {
		fx = fx.Mul(o.declined(s + 1)[s])
	}
	if fx.Equal(one) {
		return p
	}
	return prices{p.upfront.Mul(fx), p.hourly.Mul(fx)}
}

// ofUnit are the prices of one unit of a choice's offer.
func (m *model) ofUnit(x *choice) prices {
	at := &m.choices[x.at]
	return m.unitPrices(x.offer, int(at.tier), int(at.epoch))
}

// worthOf is the present value of the cost of one unit of a choice.
func (m *model) worthOf(x *choice) domain.Decimal {
	if x.goes == nil {
		return m.worth(x.offer, m.ofUnit(x), x.order.Epoch).Mul(whole(x.order.Units))
	}
	sum := decimal.Zero
	for k := range x.order.Renewals {
		sum = sum.Add(m.due(x.goes, x.goes.term(x.settled+k+1), true))
	}
	return sum
}

// factors of a plain term: what an upfront payment and an hourly price are worth.
type factors struct{ upfront, hourly domain.Decimal }

// factorsOf are those of a term that begins in epoch s, without a ramp.
func (m *model) factorsOf(s, term int) factors {
	at := [2]int{s, term}
	if f, ok := m.plain[at]; ok {
		return f
	}
	c, n, end := m.cal, m.cal.n, s+term
	kept, inside := one.Sub(m.salvage), min(end, n)
	parts := whole(c.hoursIn(s, inside)).Add(kept.Mul(whole(c.hoursIn(inside, end)))).DivRound(whole(c.hoursIn(s, end)), digits)
	hours := c.paid[inside].Sub(c.paid[s])
	if end > n {
		hours = hours.Add(kept.Mul(c.paid[end].Sub(c.paid[max(s, n)])))
	}
	f := factors{c.start[s].Mul(parts), hours}
	m.plain[at] = f
	return f
}

// worth is the present value of the cost of a unit of an offer that starts in epoch s: what is paid
// within the horizon, plus the cost of its epochs beyond less their salvage. The upfront payment is
// due on the day the term begins and is spread over its hours, so epochs beyond the horizon carry
// their part of it.
func (m *model) worth(o *Offer, p prices, s int) domain.Decimal {
	if o.Owned == nil && len(o.Ramp) == 0 {
		f := m.factorsOf(s, o.Term)
		return p.upfront.Mul(f.upfront).Add(p.hourly.Mul(f.hourly))
	}
	c, n, end := m.cal, m.cal.n, s+o.Term
	upfront := p.upfront.Mul(c.start[s])
	kept := one.Sub(m.salvage)
	inside := min(end, n)
	parts := whole(c.hoursIn(s, inside)).Add(kept.Mul(whole(c.hoursIn(inside, end)))).DivRound(whole(c.hoursIn(s, end)), digits)
	if o.Owned != nil {
		capital := upfront.Sub(p.upfront.Mul(o.Owned.Salvage).Mul(c.start[end]))
		perHour, perMonth := m.running(o)
		sum := capital.Mul(parts).Add(p.hourly.Add(perHour).Mul(c.paid[inside].Sub(c.paid[s])))
		if !perMonth.IsZero() {
			for i := s; i < inside; i++ {
				sum = sum.Add(perMonth.Mul(m.monthly(i)).Mul(c.middle[i]))
			}
		}
		return sum
	}
	sum := upfront.Mul(parts)
	for _, r := range o.ramp(s) {
		hours := decimal.Zero
		if r.from < n {
			hours = c.paid[min(r.to, n)].Sub(c.paid[r.from])
		}
		if r.to > n {
			hours = hours.Add(kept.Mul(c.paid[r.to].Sub(c.paid[max(r.from, n)])))
		}
		sum = sum.Add(p.hourly.Mul(hours).Mul(decimal.New(int64(r.permille), -3)))
	}
	return sum
}

// money returns what is paid for one unit of a choice in each epoch of the horizon, and what each
// epoch is charged. Both are undiscounted, in the instance's currency.
func (m *model) money(x *choice) (cash, accrual []domain.Decimal) {
	n := m.cal.n
	cash, accrual = make([]domain.Decimal, n), make([]domain.Decimal, n)
	if x.goes != nil {
		for k := range x.order.Renewals {
			m.pay(x.goes, x.goes.term(x.settled+k+1), cash, accrual)
		}
		return cash, accrual
	}
	o, s := x.offer, x.order.Epoch
	end := s + o.Term
	total := whole(m.cal.hoursIn(s, end))
	spread := x.upfront
	cash[s] = cash[s].Add(x.upfront)
	if o.Owned != nil {
		left := x.upfront.Mul(o.Owned.Salvage)
		spread = x.upfront.Sub(left)
		if end < n {
			cash[end] = cash[end].Sub(left)
		}
	}
	for i := s; i < min(end, n); i++ {
		accrual[i] = accrual[i].Add(spread.Mul(whole(m.cal.hoursIn(i, i+1))).DivRound(total, digits))
	}
	add := func(i int, amount domain.Decimal) {
		cash[i], accrual[i] = cash[i].Add(amount), accrual[i].Add(amount)
	}
	for _, r := range o.ramp(s) {
		for i := r.from; i < min(r.to, n); i++ {
			add(i, x.hourly.Mul(whole(m.cal.hoursIn(i, i+1))).Mul(decimal.New(int64(r.permille), -3)))
		}
	}
	if o.Owned != nil {
		perHour, perMonth := m.running(o)
		units := whole(x.order.Units)
		for i := s; i < min(end, n); i++ {
			add(i, perHour.Mul(whole(m.cal.hoursIn(i, i+1))).Add(perMonth.Mul(m.monthly(i))).Mul(units))
		}
	}
	return cash, accrual
}

// starts returns the epochs in which a term of an offer may begin: within the horizon, not before
// the offer is sold, and not before it can be delivered.
func (m *model) starts(o *Offer) (from, to int) {
	first := max(o.From, m.in.From+domain.Instant(o.LeadHours)*domain.Hour)
	for from = 0; from < m.cal.n && m.cal.spans[from].From < first; from++ {
	}
	for to = from; to < m.cal.n && (o.To.IsZero() || m.cal.spans[to].From < o.To); to++ {
	}
	return from, to
}

// offerChoices adds the choices of an offer.
func (m *model) offerChoices(offer int, price *pricer) error {
	o, path := &m.in.Offers[offer], fmt.Sprintf("/offers/%d", m.at.offers[offer])
	from, to := m.starts(o)
	if from == to {
		m.notes = append(m.notes, fmt.Sprintf("offer %q can begin in no epoch of the horizon", o.ID))
		return nil
	}
	if to-1+o.Term > m.cal.n {
		m.outlive++
	}
	lot := max(1, o.Lot)
	up := func(units int) int { return (units + lot - 1) / lot }
	for s := from; s < to; s++ {
		for k := -1; k < len(o.Tiers); k++ {
			least := max(1, up(o.MinUnits))
			if k >= 0 {
				least = max(1, up(max(o.MinUnits, o.Tiers[k].Units)))
			}
			most := procurement.Unlimited
			if o.MaxUnits > 0 && o.MaxUnits < MaxUnits {
				most = o.MaxUnits / lot
			}
			if k+1 < len(o.Tiers) {
				below := (o.Tiers[k+1].Units - 1) / lot
				if most == procurement.Unlimited || below < most {
					most = below
				}
			}
			if most != procurement.Unlimited && most < least {
				continue
			}
			at := listing{int32(offer), int32(k), int32(s), int32(least), int32(most)}
			cost, err := price.of(at)
			if err != nil {
				return fault(path, err, "a lot of offer %q from epoch %d: %v", o.ID, s, err)
			}
			if o.Kind == domain.OfferSpendCommitment {
				if _, err := m.spending(o, m.lotPrices(o, k, s).hourly, s); err != nil {
					key := "/hourly"
					if !o.Commits.IsZero() {
						key = "/commits_hourly"
					}
					return fault(path+key, err, "%v", err)
				}
			}
			m.add(at, cost)
		}
	}
	return nil
}

// choice describes a choice.
func (m *model) choice(i int) *choice {
	at := m.choices[i]
	if at.offer < 0 {
		x := m.renewals[-1-at.offer]
		x.at = i
		return &x
	}
	o, s := &m.in.Offers[at.offer], int(at.epoch)
	x := &choice{
		order: Order{Offer: o.ID, Epoch: s, Units: max(1, o.Lot)}, offer: o, least: int(at.least), max: int(at.max), at: i,
		group: m.group(i), term: domain.Interval{From: m.cal.spans[s].From, To: m.cal.spans[s+o.Term-1].To},
	}
	if at.tier >= 0 {
		x.tier = o.Tiers[at.tier].Units
	}
	p, other := m.asked[i]
	if !other {
		p = m.lotPrices(o, int(at.tier), s)
	}
	x.upfront, x.hourly = p.upfront, p.hourly
	x.orderBy = x.term.From - domain.Instant(o.LeadHours)*domain.Hour
	if o.Kind == domain.OfferSpendCommitment {
		x.spends, _ = m.spending(o, x.hourly, s) // it was counted before
		return x
	}
	for _, r := range o.ramp(s) {
		if r.from < m.cal.n {
			x.covers = append(x.covers, joint.Cover{
				Pool: m.pool[o.Pool], From: r.from, To: min(r.to, m.cal.n),
				Units: x.order.Units * max(1, o.PerUnit) * r.permille / 1000, Guaranteed: o.GuaranteesCapacity,
			})
		}
	}
	return x
}

// offer is the offer of a choice, nil for a renewal.
func (m *model) offer(i int) *Offer {
	if k := m.choices[i].offer; k >= 0 {
		return &m.in.Offers[k]
	}
	return nil
}

// path is the place of a choice in the document.
func (m *model) path(i int) string {
	if k := m.choices[i].offer; k >= 0 {
		return fmt.Sprintf("/offers/%d", m.at.offers[k])
	} else {
		return m.renewals[-1-k].path
	}
}

// group names the choices of which at most one is bought; "" if a choice excludes no other.
func (m *model) group(i int) string {
	at := m.choices[i]
	if at.offer < 0 {
		return m.renewals[-1-at.offer].group
	}
	switch o := &m.in.Offers[at.offer]; {
	case o.Exclusive != "":
		return "exclusive " + o.Exclusive
	case len(o.Tiers) > 0:
		return fmt.Sprintf("tiers of %s in epoch %d", o.ID, at.epoch)
	}
	return ""
}

// lotPrices are those of a lot of an offer that begins in epoch s at the price of a tier.
func (m *model) lotPrices(o *Offer, tier, s int) prices {
	p := m.unitPrices(o, tier, s)
	if o.Lot > 1 {
		return prices{p.upfront.Mul(whole(o.Lot)), p.hourly.Mul(whole(o.Lot))}
	}
	return p
}

// spending is what a lot of a spend commitment that begins in epoch s commits. hourly is its price.
func (m *model) spending(o *Offer, hourly domain.Decimal, s int) (out []joint.SpendCover, err error) {
	if !o.Commits.IsZero() {
		hourly = o.Commits.Mul(whole(max(1, o.Lot))).Mul(m.in.fx(o.Currency))
	}
	for _, r := range o.ramp(s) {
		if r.from >= m.cal.n {
			continue
		}
		perHour, err := rounded(hourly.Mul(decimal.New(int64(r.permille), -3)), m.digits)
		if err != nil {
			return nil, err
		}
		if perHour > 0 {
			out = append(out, joint.SpendCover{
				Spend: m.spendOf[o.Spend], From: r.from, To: min(r.to, m.cal.n), PerHour: perHour,
			})
		}
	}
	return out, nil
}
