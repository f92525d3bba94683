package instance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/joint"
)

// pays returns the tier of an offer whose price a choice pays.
func (x *choice) pays() Tier {
	for _, t := range x.offer.Tiers {
		if t.Units == x.tier {
			return t
		}
	}
	return Tier{Upfront: x.offer.Upfront, Hourly: x.offer.Hourly}
}

// breakEvenUse is the cost of a choice divided by the on-demand cost of its hours.
func (m *model) breakEvenUse(x *choice) *domain.Decimal {
	if x == nil {
		return nil
	}
	sum := decimal.Zero
	for _, v := range x.covers {
		if m.onDemand[v.Pool] == nil {
			return nil
		}
		for e := v.From; e < v.To; e++ {
			sum = sum.Add(m.onDemand[v.Pool][e].Mul(m.cal.middle[e]).Mul(whole(int64(v.Units) * m.cal.hoursIn(e, e+1))))
		}
	}
	if !sum.IsPositive() {
		return nil
	}
	use := decimal.New(int64(m.cost(x)), -m.digits).DivRound(sum, 6)
	return &use
}

// Resolution of prices in decimal digits: hourly, a cent for a thousand hours; upfront, a cent.
const (
	hourlyStep  = 5
	upfrontStep = 2
)

// farthest bounds the search for a break-even price, as a multiple of the unit's alternative cost
// (see pricing.scale).
const farthest = 64

// pricing solves a contract's component at other prices.
type pricing struct {
	m       *model
	offers  []Offer
	asked   Tier // the tier that is taken
	upfront bool // the upfront price is varied instead of the hourly one
	// scale is the order of magnitude of a unit's hourly cost: the largest of the asked price, the
	// upfront price over the hours of the term, and the price on demand or of a shortage.
	scale domain.Decimal
}

// pricing prepares to solve at prices other than those of a tier.
func (m *model) pricing(offers []Offer, asked Tier) *pricing {
	o := &offers[0]
	from, _ := m.starts(o)
	hours := whole(m.cal.hoursIn(from, from+o.Term))
	other := decimal.Zero
	for i := range m.in.Pools {
		for _, p := range m.onDemand[i] {
			other = decimal.Max(other, p)
		}
	}
	for i := range m.in.Demands {
		other = decimal.Max(other, m.in.Demands[i].Shortage)
	}
	other = other.Mul(whole(max(1, o.PerUnit))).DivRound(m.in.fx(o.Currency), digits)
	return &pricing{
		m: m, offers: offers, asked: asked,
		scale: decimal.Max(asked.Hourly, asked.Upfront.DivRound(hours, digits), other),
	}
}

// brackets hold the highest price at which taking some of a contract is proven to pay, and the
// lowest price at which it is proven not to. beyond is set instead of both if it pays at every
// price up to there.
type brackets struct{ low, high, beyond *domain.Decimal }

// of varies the hourly price, and also the upfront price if all is paid upfront.
func (b *pricing) of(ctx context.Context, in *Instance, pool string, lp linear.Solver) (hourly, upfront brackets, err error) {
	base, err := newLoads().compile(ctx, in, nil)
	if err != nil {
		return hourly, upfront, err
	}
	cost, bound, err := base.component(ctx, pool, lp)
	if err != nil {
		return hourly, upfront, err
	}
	if hourly, err = b.breakEven(ctx, pool, lp, cost, bound, nil); err != nil || !b.asked.Hourly.IsZero() ||
		!b.asked.Upfront.IsPositive() {
		return hourly, upfront, err
	}
	o := &b.offers[0]
	from, to := b.m.starts(o)
	var about *domain.Decimal // equivalent upfront price
	if hourly.low != nil && from < to {
		free := b.m.worth(o, prices{}, from)
		perHour, once := b.m.worth(o, prices{hourly: one}, from).Sub(free), b.m.worth(o, prices{upfront: one}, from).Sub(free)
		if once.IsPositive() {
			x := b.asked.Upfront.Add(hourly.low.Mul(perHour).DivRound(once, digits))
			about = &x
		}
	}
	up := *b
	up.upfront, up.scale = true, b.scale.Mul(whole(b.m.cal.hoursIn(from, from+o.Term)))
	upfront, err = up.breakEven(ctx, pool, lp, cost, bound, about)
	return hourly, upfront, err
}

// cent is the exponent of the smallest saving for which a contract is worth taking.
const cent = 2

// breakEven brackets the price above which a contract is no longer worth taking. The least cost
// rises with the price, up to the least cost without the contract. For fixed purchases the cost is
// linear in the price, so the minimum over all purchases is concave. A line through two prices at
// which the contract pays therefore reaches the cost without the contract no later than the least
// cost does. The search begins at about, if given.
func (b *pricing) breakEven(
	ctx context.Context, pool string, lp linear.Solver, cost, bound domain.Decimal, about *domain.Decimal,
) (out brackets, err error) {
	step, price := int32(hourlyStep), b.asked.Hourly
	if b.upfront {
		step, price = upfrontStep, b.asked.Upfront
	}
	type result struct{ cost, bound domain.Decimal }
	known := map[int64]result{}
	at := func(k int64) (result, error) {
		if r, ok := known[k]; ok {
			return r, nil
		}
		if err := b.set(decimal.New(k, -step)); err != nil {
			return result{}, err
		}
		c, l, err := b.m.component(ctx, pool, lp)
		if err == nil {
			known[k] = result{c, l}
		}
		return result{c, l}, err
	}
	// A negative difference is a saving.
	pays := func(k int64) (domain.Decimal, error) {
		r, err := at(k)
		return r.cost.Sub(bound), err
	}
	nothing := decimal.New(int64(b.m.weight), -cent) // smaller savings do not count
	might := func(k int64) (domain.Decimal, error) {
		r, err := at(k)
		return r.bound.Sub(cost).Add(nothing), err
	}
	steps := func(x domain.Decimal) int64 {
		return max(1, decimal.Min(x.Shift(step), decimal.New(1, 14)).IntPart())
	}
	scale := steps(b.scale)
	// last returns the highest price, starting from a lower one, at which something is saved. It
	// returns false with the highest price tried if the search range or the number range ends
	// first.
	last := func(left func(int64) (domain.Decimal, error), from, guess int64) (int64, bool, error) {
		first, to, large := from, max(guess, from+1), int64(0)
		var saves, before point // at the last two prices
		try := func(k int64) (bool, error) {
			x, err := left(k)
			switch {
			case errors.Is(err, errLarge):
				large = k
				return false, nil
			case err != nil || !x.IsNegative():
				return false, err
			}
			saves, before = point{k, x}, saves
			return true, nil
		}
		if ok, err := try(from); err != nil || !ok {
			return from, true, err
		}
		for width := max(1, to-from); ; width *= 2 {
			ok, err := try(to)
			if err != nil {
				return 0, false, err
			}
			if !ok {
				break
			}
			if to > farthest*max(scale, first) {
				return to, false, nil
			}
			from, to = to, to+width
		}
		// Bounds are not exact, so a line may miss. Then, and every third time, the interval is
		// halved.
		for step, missed := 1, false; to-from > 1; step++ {
			k := from + (to-from)/2
			line, ok := before.reaches(saves)
			if ok = ok && !missed && step%3 != 0; ok {
				k = min(max(line, from+1), to-1)
			}
			holds, err := try(k)
			if err != nil {
				return 0, false, err
			}
			if missed = ok && !holds && k > from+1; holds {
				from = k
			} else {
				to = k
			}
		}
		return from, to != large, nil
	}
	saved, err := might(0)
	if err != nil || !saved.IsNegative() {
		return out, err
	}
	most := int64(0)
	if saved, err = pays(0); err != nil {
		return out, err
	} else if saved.IsNegative() {
		from, guess := int64(0), max(steps(price), scale/farthest)
		if about != nil {
			const near = 16
			guess = steps(*about) + near
			if k := guess - 2*near; k > 0 {
				if saved, err = pays(k); err != nil && !errors.Is(err, errLarge) {
					return out, err
				} else if err == nil && saved.IsNegative() {
					from = k
				}
			}
		}
		var found bool
		if most, found, err = last(pays, from, guess); err != nil {
			return out, err
		}
		x := decimal.New(most, -step)
		if !found {
			out.beyond = &x
			return out, nil
		}
		out.low = &x
	}
	k, ok, err := last(might, most, most+1)
	if err != nil || !ok {
		return out, err
	}
	x := decimal.New(k+1, -step)
	out.high = &x
	return out, nil
}

// point is the cost difference at a price, negative if the contract saves.
type point struct {
	price int64
	left  domain.Decimal
}

// reaches returns the price up to which a line through two points stays negative, the second point
// being at a higher price. It returns false if the line does not rise.
func (p point) reaches(q point) (int64, bool) {
	if rise := q.left.Sub(p.left); p.left.IsNegative() && q.price > p.price && rise.IsPositive() {
		more := q.left.Neg().Mul(whole(q.price-p.price)).DivRound(rise, 0)
		return q.price + decimal.Min(more, decimal.New(1, 15)).IntPart(), true
	}
	return 0, false
}

// set changes a contract's hourly or upfront price, and shifts its tiers by the same amount.
func (b *pricing) set(price domain.Decimal) error {
	m, more, how := b.m, Tier{Hourly: price.Sub(b.asked.Hourly)}, "an hour"
	if b.upfront {
		more, how = Tier{Upfront: price.Sub(b.asked.Upfront)}, "upfront"
	}
	for k := range m.components {
		c := &m.components[k]
		for j, i := range c.choices {
			x := m.choice(i)
			if x.offer == nil || !slices.ContainsFunc(b.offers, func(o Offer) bool { return o.ID == x.offer.ID }) {
				continue
			}
			t := x.pays()
			fx, units := m.in.fx(x.offer.Currency), whole(x.order.Units)
			p := prices{decimal.Max(decimal.Zero, t.Upfront.Add(more.Upfront)).Mul(fx),
				decimal.Max(decimal.Zero, t.Hourly.Add(more.Hourly)).Mul(fx)}
			x.upfront, x.hourly = p.upfront.Mul(units), p.hourly.Mul(units)
			m.asked[i] = prices{x.upfront, x.hourly}
			var err error
			if m.costs[i], err = m.nano(m.worth(x.offer, p, x.order.Epoch).Mul(units)); err == nil &&
				m.costs[i] > procurement.MaxWorth/procurement.Nano(m.weight) {
				err = errLarge
			}
			if err != nil {
				return fmt.Errorf("contract at %s %s: %w", price, how, err)
			}
			if c.alone != nil {
				continue
			}
			y := &c.joint.Choices[j]
			y.Cost = m.costs[i]
			for l, bound := range c.bounds {
				if y.Spent[l], err = m.spent(x, &m.bounds[bound]); err != nil {
					return fmt.Errorf("contract at %s %s: %w", price, how, err)
				}
			}
		}
	}
	return nil
}

// component solves a pool's component. It returns an upper and a lower bound of its cost in the
// currency, times the scenarios' weights, without existing commitments.
func (m *model) component(ctx context.Context, pool string, lp linear.Solver) (cost, bound domain.Decimal, err error) {
	for i := range m.components {
		c := &m.components[i]
		if !slices.ContainsFunc(c.pools, func(p int) bool { return m.in.Pools[p].ID == pool }) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return cost, bound, err
		}
		if c.alone != nil {
			s, err := procurement.Solve(m.alone(c))
			if err != nil {
				return cost, bound, err
			}
			if !m.tooFew(c, s) {
				return m.within(c, check.Report{Cost: s.Cost, Bound: s.Bound})
			}
			if err := m.together(ctx, c); err != nil {
				return cost, bound, err
			}
		}
		s, err := joint.Quick(ctx, c.joint, lp)
		var clash *joint.Infeasible
		if errors.As(err, &clash) {
			return cost, bound, m.clash(clash)
		} else if err != nil {
			return cost, bound, err
		}
		r, err := check.JointContext(ctx, c.joint, s)
		if err != nil {
			return cost, bound, err
		}
		return m.within(c, r)
	}
	return cost, bound, fmt.Errorf("no component has pool %q", pool)
}

// within returns the range in which a component's least cost lies.
func (m *model) within(c *component, by check.Report) (domain.Decimal, domain.Decimal, error) {
	return decimal.NewFromBigInt(by.Cost, -m.digits), decimal.NewFromBigInt(m.bounded(c, by), -m.digits), nil
}
