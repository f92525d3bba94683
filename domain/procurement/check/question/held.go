package question

import (
	"fmt"
	"slices"
	"time"

	"quartermaster/domain"
)

// mostTerms bounds the further terms of a commitment.
const mostTerms = 60

// times is the time of a commitment's k-th further term; 0 is the stated one.
func (c *commitment) times(k int) domain.Interval {
	return domain.Interval{From: c.moved(c.Term.From, k), To: c.moved(c.Term.To, k)}
}

// notice is the day of notice of the k-th further term.
func (c *commitment) notice(k int) domain.Instant { return c.moved(c.NoticeBy, k-1) }

// moved moves a moment by k lengths of the term (renews).
func (c *commitment) moved(t domain.Instant, k int) domain.Instant {
	if t == 0 || k == 0 {
		return t
	}
	from, to := c.Term.From.Time(), c.Term.To.Time()
	months := 12*(to.Year()-from.Year()) + int(to.Month()) - int(from.Month())
	if months < 1 || from.Day() > 28 || !time.Date(from.Year(), from.Month()+time.Month(months), from.Day(), from.Hour(),
		from.Minute(), from.Second(), from.Nanosecond(), time.UTC).Equal(to) {
		return t + domain.Instant(k)*(c.Term.To-c.Term.From)
	}
	u := t.Time()
	last := time.Date(u.Year(), u.Month()+time.Month(k*months)+1, 0, 0, 0, 0, 0, time.UTC)
	return domain.InstantOf(time.Date(last.Year(), last.Month(), min(u.Day(), last.Day()), u.Hour(), u.Minute(), u.Second(),
		u.Nanosecond(), time.UTC))
}

// further counts the further terms that are certain, and the later ones that begin in the horizon.
func (c *commitment) further(from, end domain.Instant) (settled, weighed int) {
	if !c.Renews {
		return 0, 0
	}
	for settled < mostTerms && c.notice(settled+1) < from && c.times(settled+1).From < end {
		settled++
	}
	for weighed <= mostTerms && c.times(settled+weighed+1).From < end {
		weighed++
	}
	return settled, weighed
}

// pieces is a number of units that is there for a time.
type pieces struct {
	domain.Interval
	units int
}

// throughout is the least number of units at any moment of a span.
func throughout(list []pieces, span domain.Interval) int {
	least := -1
	at := func(t domain.Instant) {
		sum := 0
		for _, p := range list {
			if p.From <= t && (p.To == 0 || p.To > t) {
				sum += p.units
			}
		}
		if least < 0 || sum < least {
			least = sum
		}
	}
	at(span.From)
	for _, p := range list { // it falls where a term ends, and nowhere else
		if p.To > span.From && p.To < span.To {
			at(p.To)
		}
	}
	return least
}

// hold counts what is held, and adds the choices of further terms.
func (r *reading) hold() error {
	n, d := r.cal.n, r.doc
	table := func(rows int) [][]int {
		out := make([][]int, rows)
		for i := range out {
			out[i] = make([]int, n)
		}
		return out
	}
	r.guaranteed, r.discount = table(len(d.Pools)), table(len(d.Pools))
	r.cash = make([]domain.Decimal, n)
	for range len(d.Pools) + 1 {
		r.accrual = append(r.accrual, make([]domain.Decimal, n))
	}
	type shelf struct {
		pool       int
		guaranteed bool
	}
	there, place := map[shelf][]pieces{}, make([]int, len(d.Commitments))
	for i := range d.Commitments {
		c := &d.Commitments[i]
		settled, weighed := c.further(d.From, r.cal.end())
		if settled == mostTerms || weighed > mostTerms {
			return fmt.Errorf("commitment %q has more than %d further terms", c.ID, mostTerms)
		}
		if _, err := d.worth(c.Currency); err != nil {
			return fmt.Errorf("commitment %q: %w", c.ID, err)
		}
		charged := len(d.Pools)
		if c.Kind != spending {
			charged = r.pool[c.Pool]
		}
		for k := 0; k <= settled; k++ {
			r.committed = r.committed.Add(r.due(c, c.times(k), nil))
			r.pay(c, c.times(k), r.cash, r.accrual[charged])
		}
		until := domain.Interval{From: c.Term.From, To: c.times(settled).To}
		if c.Kind == spending {
			s, _ := slices.BinarySearch(r.spends, c.Spend)
			fx, _ := d.worth(c.Currency)
			for e := range n {
				if r.cal.common(e, until) == r.cal.span(e).Length() {
					r.spend[s][e] = r.spend[s][e].Add(c.promises().Mul(fx))
				}
			}
			continue
		}
		k := shelf{charged, c.Guaranteed}
		place[i] = len(there[k])
		there[k] = append(there[k], pieces{until, c.Units})
	}
	for k, list := range there { // a shelf writes its own units only
		for e := range n {
			if units := throughout(list, r.cal.span(e)); k.guaranteed {
				r.guaranteed[k.pool][e] = units
			} else {
				r.discount[k.pool][e] = units
			}
		}
	}
	for i := range d.Commitments {
		c := &d.Commitments[i]
		settled, weighed := c.further(d.From, r.cal.end())
		first := c.times(settled + 1)
		for j := 1; j <= weighed; j++ {
			fx, _ := d.worth(c.Currency)
			last := c.times(settled + j)
			x := choice{
				goes: c, epoch: r.cal.of(first.From), settled: settled, renewals: j, lot: c.Units, least: 1, most: 1,
				term: domain.Interval{From: first.From, To: last.To}, orderBy: c.notice(settled + 1), pool: -1, spend: -1,
				upfront: c.Upfront.Mul(fx).Mul(whole(j)), hourly: c.Hourly.Mul(fx).Mul(whole(c.Units)),
				group: "renewals of " + c.ID,
			}
			var err error
			if x.cost, err = rounded(r.value(&x, d.Salvage), r.digits); err != nil || x.cost < 0 {
				return fmt.Errorf("commitment %q: %d further terms cost less than nothing or too much (%w)", c.ID, j, err)
			}
			until := domain.Interval{From: c.Term.From, To: last.To}
			if c.Kind == spending {
				x.spend, _ = slices.BinarySearch(r.spends, c.Spend)
				perHour, err := rounded(c.promises().Mul(fx), r.digits)
				if err != nil {
					return fmt.Errorf("commitment %q: %w", c.ID, err)
				}
				before := domain.Interval{From: c.Term.From, To: first.From}
				for e := range n {
					if l := r.cal.span(e).Length(); perHour > 0 && r.cal.common(e, until) == l && r.cal.common(e, before) < l {
						x.spends = append(x.spends, SpendCover{x.spend, e, e + 1, perHour})
					}
				}
			} else {
				x.pool = r.pool[c.Pool]
				k := shelf{x.pool, c.Guaranteed}
				longer := slices.Clone(there[k])
				longer[place[i]].Interval = until
				for e := range n {
					more := throughout(longer, r.cal.span(e)) - throughout(there[k], r.cal.span(e))
					if l := len(x.covers) - 1; l >= 0 && x.covers[l].To == e && x.covers[l].Units == more {
						x.covers[l].To++
					} else if more > 0 {
						x.covers = append(x.covers, Cover{x.pool, e, e + 1, more, c.Guaranteed})
					}
				}
			}
			r.further = append(r.further, x)
			r.choices = append(r.choices, listing{offer: int32(-len(r.further)), epoch: int32(x.epoch), least: 1, most: 1})
		}
	}
	return nil
}

// promises is what a spend commitment commits to spend in an hour.
func (c *commitment) promises() domain.Decimal {
	if c.Commits.Sign() != 0 {
		return c.Commits
	}
	return c.Hourly
}

// due is the present value of a term of a commitment: what is paid in the horizon, and beyond it
// what a salvage leaves; nil: nothing beyond counts.
func (r *reading) due(c *commitment, t domain.Interval, salvage *domain.Decimal) domain.Decimal {
	fx, _ := r.doc.worth(c.Currency)
	kept := zero
	if salvage != nil {
		kept = one.Sub(*salvage)
	}
	hours, inside, beyond := zero, zero, zero
	for e := range len(r.cal.middle) {
		l := inHours(r.cal.common(e, t))
		switch {
		case e < r.cal.n:
			hours, inside = hours.Add(l.Mul(r.cal.middle[e])), inside.Add(l)
		case salvage != nil:
			hours, beyond = hours.Add(kept.Mul(l).Mul(r.cal.middle[e])), beyond.Add(l)
		}
	}
	sum := c.Hourly.Mul(whole(c.Units)).Mul(fx).Mul(hours)
	if e := r.cal.of(t.From); e >= 0 && e < r.cal.n {
		part := one
		if all := inside.Add(beyond); all.IsPositive() {
			part = inside.Add(kept.Mul(beyond)).DivRound(all, places)
		}
		sum = sum.Add(c.Upfront.Mul(fx).Mul(r.cal.begin[e]).Mul(part))
	}
	return sum
}

// pay adds what a term of a commitment pays and is charged, by epoch.
func (r *reading) pay(c *commitment, t domain.Interval, cash, accrual []domain.Decimal) {
	fx, _ := r.doc.worth(c.Currency)
	upfront := c.Upfront.Mul(fx)
	if e := r.cal.of(t.From); e >= 0 && e < r.cal.n {
		cash[e] = cash[e].Add(upfront)
		if t.To == 0 {
			accrual[e] = accrual[e].Add(upfront)
		}
	}
	for e := range r.cal.n {
		l := inHours(r.cal.common(e, t))
		amount := c.Hourly.Mul(whole(c.Units)).Mul(fx).Mul(l)
		cash[e], accrual[e] = cash[e].Add(amount), accrual[e].Add(amount)
		if t.To != 0 && l.IsPositive() {
			accrual[e] = accrual[e].Add(upfront.Mul(l).DivRound(inHours(t.Length()), places))
		}
	}
}
