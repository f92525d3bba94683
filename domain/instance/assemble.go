package instance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/joint"
)

// served is how a pool is used in an epoch of a scenario, in unit-hours of the pool. Demand (with
// its spares), overflow and shortage are in unit-hours of the demand at home there.
type served struct {
	demand, guaranteed, discountOnly, spot, onDemand, shortage big.Rat
	spent                                                      big.Rat // on demand, paid by a spend commitment
	in, out                                                    big.Rat
	// spare is the part of demand that is its failure buffer. standby is the part of the serving
	// capacity in the pool that stands by for it.
	spare, standby big.Rat
	// Money of the demand at home there: extra is what its overflow costs, nominal, and transfer
	// the same at the discounted and rounded prices that cost is made of; penalty is the discounted
	// penalty of what is not served.
	extra, transfer, penalty big.Rat
}

// outcome is the result of purchases in all components.
type outcome struct {
	by    [][][]served // by epoch, scenario and pool
	costs []*big.Int   // by component, in units, times weight, without existing commitments
	// broken names limits that the purchases exceed.
	broken []string
}

// answer builds the answer document for purchases. Equal solutions give equal answers.
func (m *model) answer(s *solution) (*Answer, error) {
	o, err := m.outcome(s.units)
	if err != nil {
		return nil, err
	}
	digest, err := m.in.Digest()
	if err != nil {
		return nil, err
	}
	a := &Answer{
		Format: AnswerFormat, Instance: digest, Methods: Methods(), Currency: m.in.Currency,
		Notes: slices.Clone(m.notes), Binding: []Binding{}, EndOfHorizon: []Terminal{}, Proof: []Proof{},
	}
	a.Interrupted, a.stated, a.model, a.solved = s.interrupted, len(a.Notes), m, s
	cost := new(big.Int)
	for i, c := range o.costs {
		cost.Add(cost, c)
		if len(s.proofs) == 0 {
			continue
		}
		note, err := m.proven(i, c, &s.proofs[i])
		if err != nil {
			return nil, err
		}
		a.Notes = append(a.Notes, note...)
	}
	cost.Add(cost, m.needless(s.units))
	a.Cost = m.owed.RoundBank(m.digits).Add(m.quotient(cost, true))
	of := m.accounts(s.units, o)
	m.strand(s.units, o, of)
	m.amounts(a, of)
	m.divide(a, of)
	if err := m.certify(a, s); err != nil {
		return nil, err
	}
	a.Purchases = m.purchases(s, o)
	a.Recourse = m.recourse(s.units, o)
	if len(s.proofs) > 0 {
		a.Binding = m.binding(s)
		m.weigh(a)
	}
	a.EndOfHorizon = m.terminal(a, s.units)
	for _, b := range o.broken {
		a.Notes = append(a.Notes, fmt.Sprintf("these purchases do not keep %q", b))
	}
	return a, nil
}

// needless is the cost of purchases for pools without demand, which are in no component. It is in
// units, times weight.
func (m *model) needless(units []int) *big.Int {
	wanted := make([]bool, len(m.choices))
	for i := range m.components {
		for _, j := range m.components[i].choices {
			wanted[j] = true
		}
	}
	sum := new(big.Int)
	for j, n := range units {
		if !wanted[j] {
			paid := big.NewInt(int64(m.costs[j]))
			sum.Add(sum, paid.Mul(paid, big.NewInt(int64(n))))
		}
	}
	return sum.Mul(sum, big.NewInt(int64(m.weight)))
}

// proven checks the published cost of a component against the cost that its checker found, and
// notes where the checker's is lower.
func (m *model) proven(component int, cost *big.Int, p *proof) (notes []string, err error) {
	c := &m.components[component]
	pool := m.in.Pools[c.pools[0]].ID
	stated := p.cost()
	if stated.Cmp(cost) != 0 {
		return nil, fmt.Errorf("%w: the pools of %q cost %d, and %d is stated", check.ErrRejected, pool, cost, stated)
	}
	switch p.report.Cost.Cmp(cost) {
	case 0:
	case -1: // limits bind, and the checker may keep them with a cheaper recourse
		if len(c.bounds) > 0 {
			return []string{fmt.Sprintf("budgets or limits bind: the checker keeps them with the same purchases "+
				"for %s %s less, so what is stated is proven to be enough",
				m.quotient(new(big.Int).Sub(cost, p.report.Cost), true), m.in.Currency)}, nil
		}
		fallthrough
	default:
		return nil, fmt.Errorf("%w: the pools of %q cost %d, not %d", check.ErrRejected, pool, p.report.Cost, cost)
	}
	return nil, nil
}

// certify adds the components' proofs to an answer.
func (m *model) certify(a *Answer, s *solution) error {
	if len(s.proofs) == 0 {
		return nil
	}
	bound, bounds := new(big.Int), make([]*big.Int, len(s.proofs))
	for i, p := range s.proofs {
		c := &m.components[i]
		x := Proof{Digits: m.digits, Weight: m.weight}
		for _, pool := range c.pools {
			x.Pools = append(x.Pools, m.in.Pools[pool].ID)
		}
		var document any = p.alone
		if p.alone != nil {
			x.Solver, x.Cost, x.Bound = procurement.Method+" "+string(p.alone.Algorithm), p.alone.Cost, p.alone.Bound
		} else {
			x.Solver, x.Cost, x.Bound, document = joint.Method, p.joint.Cost, p.joint.Bound, p.joint
		}
		text, err := json.Marshal(document)
		if err != nil {
			return fmt.Errorf("write certificate: %w", err)
		}
		x.Document = text
		x.Bound = m.bounded(c, p.report)
		bounds[i] = x.Bound
		bound.Add(bound, x.Bound)
		a.Proof = append(a.Proof, x)
	}
	a.LowerBound = a.Committed.Add(m.quotient(bound, false))
	m.bound(a, s.units, bounds)
	switch {
	case a.LowerBound.IsPositive():
		a.Gap = a.Cost.Sub(a.LowerBound).DivRound(a.LowerBound, 12)
	case a.Cost.IsPositive():
		a.Gap = one
	}
	return nil
}

// outcome serves all demand with the given purchases.
func (m *model) outcome(units []int) (*outcome, error) {
	o := &outcome{}
	for range m.cal.n {
		o.by = append(o.by, make([][]served, len(m.scenarios)))
	}
	for e := range o.by {
		for s := range o.by[e] {
			o.by[e][s] = make([]served, len(m.in.Pools))
		}
	}
	for i := range m.components {
		c := &m.components[i]
		var err error
		if c.alone != nil {
			err = m.outcomeAlone(c, units, o)
		} else {
			err = m.outcomeJoint(c, units, o)
		}
		if err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (m *model) outcomeAlone(c *component, units []int, o *outcome) error {
	ev, err := procurement.Evaluate(m.boughtAlone(c, units))
	if err != nil {
		return err
	}
	o.costs = append(o.costs, ev.Cost)
	for s := range m.scenarios {
		for e := range m.cal.n {
			x, y := &o.by[e][s][c.pools[0]], &ev.Scenarios[s].Epochs[e]
			x.demand.SetInt64(y.Demand)
			x.guaranteed.SetInt64(y.Guaranteed)
			x.discountOnly.SetInt64(y.DiscountOnly)
			x.spot.SetInt64(y.Spot)
			x.onDemand.SetInt64(y.OnDemand)
			if err := m.isShort(o, c.demands[0], e, s, new(big.Rat).SetInt64(y.Shortage)); err != nil {
				return err
			}
			by, err := m.standsBy(o, c.demands[0], e, s, &x.demand, &x.shortage)
			if err != nil {
				return err
			}
			x.standby.SetInt64(y.Demand - y.Shortage)
			x.standby.Mul(&x.standby, by)
		}
	}
	return nil
}

// standsBy adds the spares that a demand wants for failures. It returns the share of its serving
// capacity that stands by: unserved demand is taken from the spares first.
func (m *model) standsBy(o *outcome, demand, e, s int, wanted, short *big.Rat) (*big.Rat, error) {
	share := new(big.Rat)
	spares, err := m.spares(demand, s)
	if err != nil || spares == nil || spares[e] == 0 {
		return share, err
	}
	spare := new(big.Rat).SetInt64(spares[e])
	x := &o.by[e][s][m.pool[m.in.Demands[demand].Pool]]
	x.spare.Add(&x.spare, spare)
	served := new(big.Rat).Sub(wanted, short)
	if share.Sub(spare, short); share.Sign() <= 0 || served.Sign() <= 0 {
		return new(big.Rat), nil
	}
	return share.Quo(share, served), nil
}

// isShort adds the unserved part of a demand.
func (m *model) isShort(o *outcome, demand, e, s int, units *big.Rat) error {
	d := &m.in.Demands[demand]
	price, err := m.discounted(d.Shortage, e)
	if err != nil {
		return fmt.Errorf("demand %q: shortage: %w", d.ID, err)
	}
	x := &o.by[e][s][m.pool[d.Pool]]
	x.shortage.Add(&x.shortage, units)
	x.penalty.Add(&x.penalty, new(big.Rat).Mul(units, m.inCurrency(price)))
	return nil
}

func (m *model) outcomeJoint(c *component, units []int, o *outcome) error {
	mine := make([]int, len(c.choices))
	for j, i := range c.choices {
		mine[j] = units[i]
	}
	ev, err := joint.Evaluate(c.joint, mine)
	if err != nil {
		return err
	}
	o.costs = append(o.costs, ev.Cost)
	o.broken = append(o.broken, ev.Broken...)
	add := func(to *big.Rat, n *big.Rat) {
		if n != nil {
			to.Add(to, n)
		}
	}
	for e := range m.cal.n {
		for s := range m.scenarios {
			from := &ev.Cases[e][s]
			for j, p := range c.pools {
				x, y := &o.by[e][s][p], &from.Pools[j]
				add(&x.guaranteed, y.Guaranteed)
				add(&x.discountOnly, y.DiscountOnly)
				add(&x.spot, y.Spot)
				add(&x.onDemand, y.OnDemand)
				add(&x.spent, y.Committed)
			}
			standby := make([]*big.Rat, len(c.demands)) // share of the capacity that serves each demand
			for j, d := range c.demands {
				wanted, unserved := new(big.Rat), new(big.Rat)
				x := &o.by[e][s][m.pool[m.in.Demands[d].Pool]]
				if y := &from.Demands[j]; y.Demand != nil {
					x.demand.Add(&x.demand, wanted.SetInt(y.Demand))
				}
				if short := from.Demands[j].Shortage; short != nil && short.Sign() != 0 {
					unserved = short
					if err := m.isShort(o, d, e, s, short); err != nil {
						return err
					}
				}
				if standby[j], err = m.standsBy(o, d, e, s, wanted, unserved); err != nil {
					return err
				}
			}
			k := 0
			for j, d := range c.demands {
				home := m.pool[m.in.Demands[d].Pool]
				for _, r := range m.ways[d] {
					y := &from.Routes[k]
					k++
					sum := new(big.Rat)
					add(sum, y.Firm)
					add(sum, y.Spot)
					if standby[j].Sign() > 0 { // in units of the pool
						by := new(big.Rat).Mul(sum, big.NewRat(int64(r.num), int64(r.den)))
						add(&o.by[e][s][r.pool].standby, by.Mul(by, standby[j]))
					}
					if r.pool == home {
						continue
					}
					from := &o.by[e][s][home]
					add(&from.out, sum)
					add(&o.by[e][s][r.pool].in, sum)
					price, err := m.discounted(r.extra, e)
					if err != nil {
						return fmt.Errorf("overflow: %w", err)
					}
					from.transfer.Add(&from.transfer, new(big.Rat).Mul(sum, m.inCurrency(price)))
					from.extra.Add(&from.extra, sum.Mul(sum, r.extra.Rat()))
				}
			}
		}
	}
	return nil
}

func (m *model) inCurrency(n procurement.Nano) *big.Rat {
	return decimal.New(int64(n), -m.digits).Rat()
}

// fixed writes a fraction as a decimal, rounded half to even.
func fixed(r *big.Rat, digits int32) domain.Decimal {
	num := new(big.Int).Mul(r.Num(), tens(digits))
	return decimal.NewFromBigInt(halfEven(num, r.Denom()), -digits)
}

// unitHours writes unit-hours: as an integer if they are whole, else with six digits.
func unitHours(r *big.Rat) string { return fixed(r, 6).String() }

// purchases describes the purchases of a solution.
func (m *model) purchases(s *solution, o *outcome) []Purchase {
	out := []Purchase{}
	worth, committed := m.worths(s), m.committed(s.units)
	for i, n := range s.units {
		if n == 0 {
			continue
		}
		x := m.choice(i)
		p := Purchase{
			Order: x.order, Term: x.term, OrderBy: x.orderBy, Tier: x.tier, Upfront: x.upfront.Mul(whole(n)),
			Hourly: x.hourly.Mul(whole(n)),
		}
		p.Units *= n
		p.Cost = decimal.New(int64(m.costs[i]), -m.digits).Mul(whole(n))
		if x.offer != nil {
			p.Pool = x.offer.Pool
		} else {
			p.Pool = x.goes.Pool
		}
		for _, c := range x.covers {
			p.Covers = max(p.Covers, c.Units*n)
		}
		if worth != nil {
			p.Worth = fixed(new(big.Rat).Quo(worth[i], new(big.Rat).SetInt64(int64(x.order.Units))), m.digits)
			p.Reason = m.reason(x, &p, o, committed)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Purchase) int {
		return cmp.Or(cmp.Compare(a.Term.From, b.Term.From), cmp.Compare(a.Offer, b.Offer),
			cmp.Compare(a.Commitment, b.Commitment), cmp.Compare(a.Renewals, b.Renewals))
	})
	return out
}

// committed returns the units held and bought in each pool and epoch.
func (m *model) committed(units []int) [][]int64 {
	out := make([][]int64, len(m.in.Pools))
	for p := range out {
		out[p] = make([]int64, m.cal.n)
		for e := range m.cal.n {
			out[p][e] = int64(m.heldGuaranteed[p][e] + m.heldDiscountOnly[p][e])
		}
	}
	for i, n := range units {
		if n == 0 {
			continue
		}
		for _, c := range m.choice(i).covers {
			for e := c.From; e < c.To; e++ {
				out[c.Pool][e] += int64(c.Units) * int64(n)
			}
		}
	}
	return out
}

func (m *model) recourse(units []int, o *outcome) []Recourse {
	out := []Recourse{}
	committed := m.committed(units)
	for e := range m.cal.n {
		for s := range m.scenarios {
			r := Recourse{Epoch: e, Scenario: m.scenarios[s].ID, Pools: []PoolHours{}}
			for p := range m.in.Pools {
				x := &o.by[e][s][p]
				h := PoolHours{
					Pool: m.in.Pools[p].ID, Demand: unitHours(new(big.Rat).Sub(&x.demand, &x.spare)),
					Guaranteed: unitHours(&x.guaranteed), DiscountOnly: unitHours(&x.discountOnly),
					Spot: unitHours(&x.spot), OnDemand: unitHours(new(big.Rat).Add(&x.onDemand, &x.spent)),
					Shortage:        unitHours(&x.shortage),
					UnusedCommitted: unitHours(m.unused(committed, o, e, s, p)),
				}
				if x.spare.Sign() > 0 {
					h.Spare = unitHours(&x.spare)
				}
				if x.standby.Sign() > 0 {
					h.StandingBy = unitHours(&x.standby)
				}
				if x.in.Sign() > 0 {
					h.OverflowIn = unitHours(&x.in)
				}
				if x.out.Sign() > 0 {
					h.OverflowOut = unitHours(&x.out)
				}
				if x.spent.Sign() > 0 {
					h.SpendCommitted = unitHours(&x.spent)
				}
				r.Pools = append(r.Pools, h)
			}
			out = append(out, r)
		}
	}
	return out
}

// working is the share of a pool's serving capacity that does not stand by for failures. It is the
// same for each kind of capacity.
func (x *served) working() *big.Rat {
	all := new(big.Rat)
	for _, y := range []*big.Rat{&x.guaranteed, &x.discountOnly, &x.spot, &x.onDemand, &x.spent} {
		all.Add(all, y)
	}
	if all.Sign() == 0 {
		return all
	}
	return all.Sub(big.NewRat(1, 1), all.Quo(&x.standby, all))
}

// unused returns the committed unit-hours of a pool that neither serve nor stand by.
func (m *model) unused(committed [][]int64, o *outcome, e, s, p int) *big.Rat {
	x := &o.by[e][s][p]
	out := new(big.Rat).SetInt64(committed[p][e] * m.cal.hoursIn(e, e+1))
	return out.Sub(out, &x.guaranteed).Sub(out, &x.discountOnly)
}

// CVaR is the mean cost of the worst tenth of scenarios by weight, of which one may be a part
// (Rockafellar and Uryasev, "Optimization of conditional value-at-risk", Journal of Risk 2(3), 2000).
func CVaR(scenarios []ScenarioCost) domain.Decimal {
	worst := slices.Clone(scenarios)
	slices.SortStableFunc(worst, func(a, b ScenarioCost) int { return b.Cost.Cmp(a.Cost) })
	total := 0
	for _, s := range worst {
		total += s.Weight
	}
	// Count in tenths of a weight, so that the tenth is an integer.
	left, sum := total, decimal.Zero
	for _, s := range worst {
		take := min(left, 10*s.Weight)
		sum = sum.Add(s.Cost.Mul(whole(take)))
		left -= take
	}
	return sum.DivRound(whole(total), 9)
}

// terminal evaluates the same purchases with a salvage of 0 and of 1 for terms beyond the horizon.
// It is empty if no offer outlives the horizon.
func (m *model) terminal(a *Answer, units []int) []Terminal {
	out := []Terminal{}
	if m.outlive == 0 {
		return out
	}
	for _, salvage := range []domain.Decimal{decimal.Zero, one} {
		other := *m
		other.salvage, other.plain = salvage, map[[2]int]factors{}
		sum := decimal.Zero
		for i, n := range units {
			if n == 0 {
				continue
			}
			sum = sum.Add(other.worthOf(m.choice(i)).RoundBank(m.digits).Mul(whole(n)))
		}
		out = append(out, Terminal{Salvage: salvage, Cost: a.Cost.Sub(a.Bought).Add(sum)})
	}
	return out
}
