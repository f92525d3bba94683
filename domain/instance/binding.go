package instance

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// worths returns the value of one unit of each bought choice at the certificates' prices; nil
// without proofs.
func (m *model) worths(s *solution) []*big.Rat {
	if len(s.proofs) == 0 {
		return nil
	}
	out := make([]*big.Rat, len(m.choices))
	for i, n := range s.units {
		if n > 0 {
			out[i] = new(big.Rat)
		}
	}
	scale := new(big.Rat).SetInt(new(big.Int).Mul(tens(m.digits), big.NewInt(int64(m.weight))))
	for k, p := range s.proofs {
		c := &m.components[k]
		if p.alone != nil {
			for _, i := range c.choices {
				if s.units[i] == 0 {
					continue
				}
				w, o, from := new(big.Int), m.offer(i), int(m.choices[i].epoch)
				for e := from; e < from+min(o.Term, m.cal.n-from); e++ {
					w.Add(w, big.NewInt(int64(p.alone.Certificate.Cover[e])))
					if o.GuaranteesCapacity {
						w.Add(w, big.NewInt(int64(p.alone.Certificate.Guarantee[e])))
					}
				}
				out[i] = new(big.Rat).Quo(new(big.Rat).SetInt(w), scale)
			}
			continue
		}
		for j, i := range c.choices {
			if s.units[i] > 0 && p.joint.Prices.Worth[j] != nil {
				out[i] = new(big.Rat).Quo(new(big.Rat).SetInt(p.joint.Prices.Worth[j]), scale)
			}
		}
	}
	return out
}

// reason says in words why a purchase is made.
func (m *model) reason(x *choice, p *Purchase, o *outcome, committed [][]int64) string {
	var b strings.Builder
	each := p.Cost.DivRound(whole(p.Units), 2)
	fmt.Fprintf(&b, "one costs %s %s within the horizon and is worth %s at the certificate's prices",
		each.StringFixed(2), m.in.Currency, p.Worth.StringFixed(2))
	switch {
	case x.goes != nil:
		fmt.Fprintf(&b, "; to let it end, give notice by %s", day(x.orderBy))
	case x.offer.Kind == domain.OfferSpendCommitment:
		b.WriteString("; it pays for what runs on demand at the committed prices")
	}
	if o := x.offer; o != nil {
		if p.Units == o.MinUnits && o.MinUnits > 1 {
			b.WriteString("; that is the least order")
		}
		if from, _ := m.starts(o); from > 0 && x.order.Epoch == from {
			b.WriteString("; it cannot begin earlier")
		}
	}
	if len(x.covers) == 0 {
		return b.String()
	}
	pool := x.covers[0].Pool
	hours, used, by, there := int64(0), new(big.Rat), new(big.Rat), new(big.Rat)
	for _, c := range x.covers {
		for e := c.From; e < c.To; e++ {
			hours += int64(c.Units) * m.cal.hoursIn(e, e+1)
			if committed[pool][e] == 0 {
				continue
			}
			there.Add(there, new(big.Rat).SetInt64(committed[pool][e]*m.cal.hoursIn(e, e+1)))
			for s := range m.scenarios {
				y := &o.by[e][s][pool]
				sum := new(big.Rat).Add(&y.guaranteed, &y.discountOnly)
				sum.Mul(sum, big.NewRat(int64(m.scenarios[s].Weight), int64(m.weight)))
				works := new(big.Rat).Mul(sum, y.working())
				used.Add(used, works)
				by.Add(by, sum.Sub(sum, works)) // stands by for failures
			}
		}
	}
	if prices := m.onDemand[pool]; prices != nil && hours > 0 {
		sum := new(big.Rat)
		for _, c := range x.covers {
			for e := c.From; e < c.To; e++ {
				sum.Add(sum, prices[e].Mul(m.cal.middle[e]).Mul(whole(int64(c.Units)*m.cal.hoursIn(e, e+1))).Rat())
			}
		}
		if sum.Sign() > 0 {
			cost := new(big.Rat).Quo(p.Cost.Rat(), new(big.Rat).SetInt64(int64(p.Units/x.order.Units)))
			percent := cost.Quo(cost, sum)
			fmt.Fprintf(&b, "; break-even utilization against on-demand: %s%%",
				fixed(percent.Mul(percent, big.NewRat(100, 1)), 1))
		}
	}
	if there.Sign() > 0 {
		percent := func(n *big.Rat) domain.Decimal {
			return fixed(n.Mul(n, new(big.Rat).Quo(big.NewRat(100, 1), there)), 1)
		}
		fmt.Fprintf(&b, "; what is committed in pool %q is used %s %% meanwhile", m.in.Pools[pool].ID, percent(used))
		if by.Sign() > 0 {
			fmt.Fprintf(&b, ", and stands by for failures another %s %%", percent(by))
		}
	}
	if len(m.needs) > 0 && slices.ContainsFunc(m.components, func(c component) bool {
		return slices.Contains(c.pools, pool) && len(c.needs) > 0
	}) && x.covers[0].Guaranteed {
		b.WriteString("; it counts for what must be there when a region is lost")
	}
	return b.String()
}

// binding lists the binding constraints, with the value of loosening each by one.
func (m *model) binding(s *solution) []Binding {
	out := []Binding{}
	scale := new(big.Int).Mul(tens(m.digits), big.NewInt(int64(m.weight)))
	amount := func(n *big.Int) *big.Rat {
		if n == nil {
			return new(big.Rat)
		}
		return new(big.Rat).SetFrac(n, scale)
	}
	add := func(constraint, detail string, price *big.Rat, epochs []int) {
		if price.Sign() > 0 {
			out = append(out, Binding{Constraint: constraint, Detail: detail, Price: fixed(price, m.digits), Epochs: epochs})
		}
	}
	worth := m.worths(s)
	for i, n := range s.units {
		if n == 0 {
			continue
		}
		x := m.choice(i)
		if x.offer == nil || x.max == procurement.Unlimited || n < x.max || x.offer.MaxUnits == 0 ||
			x.offer.MaxUnits/max(1, x.offer.Lot) != x.max {
			continue
		}
		price := new(big.Rat).Sub(worth[i], m.inCurrency(m.costs[i]))
		add("max_units", fmt.Sprintf("no more than %d units of offer %q are sold in an order, from %s on",
			x.offer.MaxUnits, x.offer.ID, day(x.term.From)),
			price.Quo(price, new(big.Rat).SetInt64(int64(x.order.Units))), []int{x.order.Epoch})
	}
	for k, p := range s.proofs {
		c := &m.components[k]
		if p.alone != nil {
			m.bindingAlone(c, s.units, add)
			continue
		}
		list := func(prices []*big.Int, epochs func(int) int) (*big.Rat, []int) {
			sum, at := new(big.Rat), []int{}
			for e, n := range prices {
				if n != nil && n.Sign() > 0 {
					sum.Add(sum, amount(n))
					at = append(at, epochs(e))
				}
			}
			return sum, at
		}
		for q, prices := range p.joint.Prices.Quotas {
			sum, at := list(prices, func(e int) int { return e })
			add("quota", fmt.Sprintf("quota %q bounds what is served on demand; one more of it, in all these epochs",
				c.joint.Quotas[q]), sum, at)
		}
		for j, prices := range p.joint.Prices.Needs {
			n := &c.joint.Needs[j]
			sum, at := list(prices, func(e int) int { return n.Epochs[e] })
			unit := sum
			if len(n.Terms) > 0 && slices.MaxFunc(n.Terms, func(a, b joint.NeedTerm) int {
				return a.PerUnit - b.PerUnit
			}).PerUnit > 1 {
				unit = sum.Mul(sum, big.NewRat(needScale, 1))
			}
			add("posture", fmt.Sprintf("%s must be there; one unit less, in all these epochs", n.ID), unit, at)
		}
		for j, price := range p.joint.Prices.Limits {
			b := &m.bounds[c.bounds[j]]
			switch {
			case b.budget != nil:
				add("budget", fmt.Sprintf("budget %q (%s) of %s %s; one %s more", b.budget.ID, b.budget.Basis,
					b.budget.Amount, m.in.Currency, m.in.Currency),
					new(big.Rat).Mul(amount(price), big.NewRat(b.parts, 1)), nil)
			case b.Unserved:
				add("max_unserved_share", fmt.Sprintf("at most %d unit-hours unserved; one more", b.Most), amount(price), nil)
			default:
				add("max_spot_share", fmt.Sprintf("at most %d unit-hours on spot; one more", b.Most), amount(price), nil)
			}
		}
	}
	return out
}

// bindingAlone finds what one more unit of a pool's quota would save with the same purchases.
func (m *model) bindingAlone(c *component, units []int, add func(string, string, *big.Rat, []int)) {
	pool := &m.in.Pools[c.pools[0]]
	if pool.Quota == "" {
		return
	}
	alone, bought := m.boughtAlone(c, units)
	more := *alone
	more.Epochs = slices.Clone(alone.Epochs)
	for e := range more.Epochs {
		if more.Epochs[e].Quota != procurement.Unlimited {
			more.Epochs[e].Quota++
		}
	}
	before, err := procurement.Evaluate(alone, bought)
	if err != nil {
		return
	}
	after, err := procurement.Evaluate(&more, bought)
	if err != nil {
		return
	}
	var epochs []int
	for e := range before.Epochs {
		if before.Epochs[e].OnDemand+before.Epochs[e].DiscountOnly != after.Epochs[e].OnDemand+after.Epochs[e].DiscountOnly {
			epochs = append(epochs, e)
		}
	}
	saved := new(big.Rat).SetInt(new(big.Int).Sub(before.Cost, after.Cost))
	saved.Quo(saved, new(big.Rat).SetInt64(int64(m.weight))).Mul(saved, m.inCurrency(1))
	add("quota", fmt.Sprintf("quota %q bounds what is served on demand; one more unit, in all these epochs, "+
		"beside the same purchases", pool.Quota), saved, epochs)
}

// plainGap is the gap above which an answer says how weak its proof is. weakGap is the gap above
// which it shows no prices of constraints.
var plainGap, weakGap = decimal.New(1, -4), decimal.New(1, -2)

// weigh explains a gap that is more than rounding. It removes the constraints' prices if the
// certificate, from which they come, proves too little.
func (m *model) weigh(a *Answer) {
	if !a.Gap.GreaterThan(plainGap) {
		return
	}
	note := fmt.Sprintf("the gap is %s %%: these purchases cost up to %s %s more than the best could, which is "+
		"not known closer",
		a.Gap.Shift(2).RoundUp(3), a.Cost.Sub(a.LowerBound).RoundUp(2), m.in.Currency)
	if a.Gap.GreaterThan(weakGap) {
		note += "; what loosening a constraint is worth is left out, as a bound this weak does not tell"
		a.Binding = []Binding{}
	}
	a.Notes = append(a.Notes, note)
}

// Target is the hourly price of a unit up to which an offer may be worth buying, at the prices of the
// certificate: in an exact answer nothing is bought above it. A negative target means that not even a
// free hour would make up for the upfront payment.
type Target struct {
	Offer  string
	Quoted domain.Decimal // the offer's hourly price, in its own currency
	Hourly domain.Decimal // the target, in the same currency, rounded down to six digits
	Epoch  int            // in which a term would begin
}

// Targets are the price targets of the offers of capacity that an answer of [Solve] considers, bought
// or not, at the start where each is worth most. They are the prices of a linear relaxation where
// units are whole. An answer that was read from a document has none.
func (a *Answer) Targets() []Target {
	m, s := a.model, a.solved
	if m == nil || s == nil || len(s.proofs) == 0 {
		return nil
	}
	best := map[string]Target{}
	scale := decimal.NewFromInt(int64(m.weight)).Shift(m.digits)
	add := func(x *choice, worth *big.Int) {
		o := x.offer
		if o == nil || o.Kind == domain.OfferSpendCommitment || x.tier > 0 || worth == nil {
			return
		}
		fixed := m.worth(o, prices{upfront: m.ofUnit(x).upfront}, x.order.Epoch)
		hour := m.worth(o, prices{hourly: one}, x.order.Epoch).Sub(m.worth(o, prices{}, x.order.Epoch))
		if !hour.IsPositive() {
			return
		}
		each := decimal.NewFromBigInt(worth, 0).DivRound(scale.Mul(whole(x.order.Units)), digits)
		t := Target{Offer: o.ID, Quoted: m.ofUnit(x).hourly.DivRound(m.in.fx(o.Currency), 9), Epoch: x.order.Epoch}
		t.Hourly = each.Sub(fixed).DivRound(hour.Mul(m.in.fx(o.Currency)), digits).RoundFloor(6)
		if was, ok := best[o.ID]; !ok || t.Hourly.GreaterThan(was.Hourly) {
			best[o.ID] = t
		}
	}
	for k := range s.proofs {
		c, p := &m.components[k], &s.proofs[k]
		if p.alone == nil {
			for j, i := range c.choices {
				add(m.choice(i), p.joint.Prices.Worth[j])
			}
			continue
		}
		alone := m.alone(c)
		for offer := range alone.Offers {
			for at := range alone.Offers[offer].Starts {
				add(m.choice(c.first[offer]+at), big.NewInt(int64(p.alone.Certificate.Worth(alone, offer, at))))
			}
		}
	}
	return slices.SortedFunc(maps.Values(best), func(x, y Target) int { return cmp.Compare(x.Offer, y.Offer) })
}
