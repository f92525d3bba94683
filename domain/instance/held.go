package instance

import (
	"fmt"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// mostRenewals bounds the number of renewals of a commitment that are weighed.
const mostRenewals = 60

// term is the k-th further term of a commitment; k = 0 is the stated term. A term of whole months
// renews by calendar months.
func (c *Commitment) term(k int) domain.Interval { return shifted(c.Term, c.Term, k) }

// notice is the day by which notice against the k-th further term must be given.
func (c *Commitment) notice(k int) domain.Instant {
	return shifted(domain.Interval{From: c.NoticeBy}, c.Term, k-1).From
}

// shifted moves an interval by k lengths of a term.
func shifted(what, term domain.Interval, k int) domain.Interval {
	if k == 0 {
		return what
	}
	from, to := term.From.Time(), term.To.Time()
	months := 12*(to.Year()-from.Year()) + int(to.Month()-from.Month())
	move := func(t domain.Instant) domain.Instant { return t + domain.Instant(k)*(term.To-term.From) }
	if months > 0 && from.Day() <= 28 && from.AddDate(0, months, 0).Equal(to) {
		move = func(t domain.Instant) domain.Instant {
			// In a shorter month, use its last day at the latest.
			u := t.Time()
			first := time.Date(u.Year(), u.Month()+time.Month(k*months), 1, u.Hour(), u.Minute(), u.Second(),
				u.Nanosecond(), time.UTC)
			return domain.InstantOf(first.AddDate(0, 0, min(u.Day(), first.AddDate(0, 1, -1).Day())-1))
		}
	}
	if what.To != 0 {
		what.To = move(what.To)
	}
	what.From = move(what.From)
	return what
}

// renewals returns the number of further terms that are certain because notice is too late
// (settled), and the number of later ones that begin within the horizon (weighed).
func (c *Commitment) renewals(from, end domain.Instant) (settled, weighed int) {
	if !c.Renews {
		return 0, 0
	}
	for settled < mostRenewals && c.notice(settled+1) < from && c.term(settled+1).From < end {
		settled++
	}
	for weighed <= mostRenewals && c.term(settled+weighed+1).From < end {
		weighed++
	}
	return settled, weighed
}

// commits is what a spend commitment commits in an hour.
func (c *Commitment) commits() domain.Decimal {
	if c.Commits.IsZero() {
		return c.Hourly
	}
	return c.Commits
}

// commitments adds the existing commitments with their costs, and the choices of their renewals.
func (m *model) commitments() error {
	n := m.cal.n
	held := make([]stretch, len(m.in.Commitments))
	on := map[shelf][]int{}
	var further [][3]int // commitment, settled, weighed
	for i := range m.in.Commitments {
		c := &m.in.Commitments[i]
		path := fmt.Sprintf("/commitments/%d", m.at.commitments[i])
		settled, weighed := c.renewals(m.in.From, m.cal.end())
		if weighed > mostRenewals || settled == mostRenewals {
			return fault(path+"/renews", nil, "it would go on more than %d times within the horizon", mostRenewals)
		}
		// The cost of a spend commitment is not charged to a pool.
		pool, spend := len(m.in.Pools), 0
		if c.Kind == domain.OfferSpendCommitment {
			spend = m.spendOf[c.Spend]
		} else {
			pool = m.pool[c.Pool]
		}
		until := c.Term
		for k := 0; k <= settled; k++ {
			t := c.term(k)
			until.To = t.To
			m.owe(pool, m.due(c, t, false))
			m.pay(c, t, m.heldCash[pool], m.heldAccrual[pool])
		}
		if settled > 0 {
			m.notes = append(m.notes, fmt.Sprintf("commitment %q goes on until %s: notice is too late", c.ID, day(until.To)))
		}
		if c.Kind == domain.OfferSpendCommitment {
			for e := range n {
				if m.cal.overlap(e, until) == m.cal.spans[e].Length() {
					m.heldSpend[spend][e] = m.heldSpend[spend][e].Add(c.commits().Mul(m.in.fx(c.Currency)))
				}
			}
		} else {
			held[i] = stretch{until, c.Units}
			k := shelf{pool, c.GuaranteesCapacity}
			on[k] = append(on[k], i)
		}
		if weighed > 0 {
			further = append(further, [3]int{i, settled, weighed})
		}
		if c.Kind == domain.OfferSpendCommitment || weighed == 0 {
			for e := range n {
				if l := m.cal.overlap(e, until); l > 0 && l < m.cal.spans[e].Length() {
					m.notes = append(m.notes,
						fmt.Sprintf("commitment %q holds for a part of an epoch: there it costs, and counts only "+
							"where another goes on from it", c.ID))
				}
			}
		}
	}
	for k, list := range on { // each key writes its own entries, so the map's order does not matter
		for e := range n {
			units := throughout(held, list, m.cal.spans[e])
			if k.guaranteed {
				m.heldGuaranteed[k.pool][e] = units
			} else {
				m.heldDiscountOnly[k.pool][e] = units
			}
		}
	}
	for _, f := range further {
		c, settled := &m.in.Commitments[f[0]], f[1]
		path := fmt.Sprintf("/commitments/%d", m.at.commitments[f[0]])
		fx, cost, first := m.in.fx(c.Currency), decimal.Zero, c.term(settled+1)
		for j := 1; j <= f[2]; j++ {
			t := c.term(settled + j)
			cost = cost.Add(m.due(c, t, true))
			x := choice{
				order: Order{Commitment: c.ID, Renewals: j, Epoch: m.cal.of(first.From), Units: c.Units}, goes: c,
				settled: settled,
				path:    path, least: 1, max: 1, group: "renewals of " + c.ID,
				term: domain.Interval{From: first.From, To: t.To}, orderBy: c.notice(settled + 1),
				upfront: c.Upfront.Mul(fx).Mul(whole(j)), hourly: c.Hourly.Mul(fx).Mul(whole(c.Units)),
			}
			price, err := m.nano(cost)
			if err != nil {
				return fault(path, err, "%d further terms: %v", j, err)
			}
			until := domain.Interval{From: c.Term.From, To: t.To}
			if c.Kind == domain.OfferSpendCommitment {
				perHour, err := rounded(c.commits().Mul(fx), m.digits)
				if err != nil {
					return fault(path+"/hourly", err, "%v", err)
				}
				before := domain.Interval{From: c.Term.From, To: first.From}
				for e := range n {
					if l := m.cal.spans[e].Length(); perHour > 0 && m.cal.overlap(e, until) == l && m.cal.overlap(e, before) < l {
						x.spends = append(x.spends, joint.SpendCover{
							Spend: m.spendOf[c.Spend], From: e, To: e + 1, PerHour: perHour,
						})
					}
				}
			} else {
				k := shelf{m.pool[c.Pool], c.GuaranteesCapacity}
				was := held[f[0]]
				for e := range n {
					before := throughout(held, on[k], m.cal.spans[e])
					held[f[0]].Interval = until
					more := throughout(held, on[k], m.cal.spans[e]) - before
					held[f[0]] = was
					if last := len(x.covers) - 1; last >= 0 && x.covers[last].To == e && x.covers[last].Units == more {
						x.covers[last].To++
					} else if more > 0 {
						x.covers = append(x.covers, joint.Cover{
							Pool: k.pool, From: e, To: e + 1, Units: more, Guaranteed: k.guaranteed,
						})
					}
				}
			}
			m.renewals = append(m.renewals, x)
			m.add(listing{offer: int32(-len(m.renewals)), epoch: int32(x.order.Epoch), least: 1, max: 1}, price)
		}
	}
	return nil
}

// owe adds a present value to what is owed for a pool.
func (m *model) owe(pool int, amount domain.Decimal) {
	m.owed, m.owedBy[pool] = m.owed.Add(amount), m.owedBy[pool].Add(amount)
}

// shelf identifies one kind of held capacity in a pool. stretch is a number of its units for a
// time.
type shelf struct {
	pool       int
	guaranteed bool
}

type stretch struct {
	domain.Interval
	units int
}

// throughout is the smallest number of units held at any time of a span.
func throughout(held []stretch, list []int, span domain.Interval) int {
	at := []domain.Instant{span.From}
	for _, i := range list {
		if t := held[i].To; t > span.From && t < span.To {
			at = append(at, t)
		}
	}
	least := -1
	for _, t := range at { // the sum changes only at these times
		units := 0
		for _, i := range list {
			if h := &held[i]; h.From <= t && (h.To == 0 || h.To > t) {
				units += h.units
			}
		}
		if least < 0 || units < least {
			least = units
		}
	}
	return least
}

// due is the present value of a term of a commitment: hourly cost from the middle of each epoch,
// and the upfront payment if the term has not begun. A further term that reaches beyond the horizon
// also counts the cost beyond it less salvage, like any purchase. A term already held counts only
// what is paid within the horizon.
func (m *model) due(c *Commitment, t domain.Interval, further bool) domain.Decimal {
	fx := m.in.fx(c.Currency)
	inside, beyond, length := decimal.Zero, decimal.Zero, [2]domain.Instant{}
	for i := range m.cal.spans {
		l := m.cal.overlap(i, t)
		if l == 0 {
			continue
		}
		if i < m.cal.n {
			inside, length[0] = inside.Add(inHours(l).Mul(m.cal.middle[i])), length[0]+l
		} else if further {
			beyond, length[1] = beyond.Add(inHours(l).Mul(m.cal.middle[i])), length[1]+l
		}
	}
	kept := one.Sub(m.salvage)
	sum := c.Hourly.Mul(whole(c.Units)).Mul(fx).Mul(inside.Add(kept.Mul(beyond)))
	if begins := m.cal.of(t.From); begins >= 0 && begins < m.cal.n {
		parts := one
		if all := length[0] + length[1]; all > 0 {
			parts = inHours(length[0]).Add(kept.Mul(inHours(length[1]))).DivRound(inHours(all), digits)
		}
		sum = sum.Add(c.Upfront.Mul(fx).Mul(m.cal.start[begins]).Mul(parts))
	}
	return sum
}

// pay adds the cost of a term of a commitment to each epoch.
func (m *model) pay(c *Commitment, t domain.Interval, cash, accrual []domain.Decimal) {
	fx := m.in.fx(c.Currency)
	hourly, upfront := c.Hourly.Mul(whole(c.Units)).Mul(fx), c.Upfront.Mul(fx)
	if begins := m.cal.of(t.From); begins >= 0 && begins < m.cal.n {
		cash[begins] = cash[begins].Add(upfront)
		if t.To == 0 { // an open-ended term has nothing to spread it over
			accrual[begins] = accrual[begins].Add(upfront)
		}
	}
	for i := range m.cal.n {
		l := m.cal.overlap(i, t)
		if l == 0 {
			continue
		}
		amount := hourly.Mul(inHours(l))
		cash[i], accrual[i] = cash[i].Add(amount), accrual[i].Add(amount)
		if t.To != 0 {
			accrual[i] = accrual[i].Add(upfront.Mul(inHours(l)).DivRound(inHours(t.Length()), digits))
		}
	}
}

func day(t domain.Instant) string { return t.Time().Format("2006-01-02") }

// nano rounds a present value to the unit in which costs are counted.
func (m *model) nano(amount domain.Decimal) (procurement.Nano, error) {
	n, err := rounded(amount, m.digits)
	if err == nil && n < 0 {
		err = fmt.Errorf("it would be worth more at the end of the horizon than it costs (%s)", amount.Round(2))
	}
	return n, err
}
