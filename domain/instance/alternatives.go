package instance

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
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
)

// Alternative is an answer that buys less from a supplier, or less of one offer. Commitments that exist,
// on-demand and spot stay.
type Alternative struct {
	Supplier string `json:"supplier,omitempty"`
	// Offer is its ID; without it all offers of the supplier are meant.
	Offer string `json:"offer,omitempty"`
	// AtMost is the share of Cost that the purchases of it may cost. It is left out where none of it is
	// bought.
	AtMost domain.Decimal `json:"at_most,omitzero"`
	// Bought is what the answer's purchases of it cost, and Left what the alternative's do.
	Bought domain.Decimal `json:"bought_cost"`
	Left   domain.Decimal `json:"left_cost,omitzero"`
	// More is what Cost exceeds the answer's by.
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	More       domain.Decimal `json:"more"`
	// Purchases are those of the problems that buy something of it, and Certificate proves their
	// bounds where none of it is bought.
	Purchases   []Order `json:"purchases"`
	Certificate []Proof `json:"certificate,omitempty"`
}

// Settled is a problem that was solved by itself, with its answer's amounts.
type Settled struct {
	Problem          func() (*Instance, error)
	Cost, LowerBound domain.Decimal
	Bought           []Spent
}

// Spent is a purchase of an offer with its supplier and cost.
type Spent struct {
	Order
	Supplier string
	Cost     domain.Decimal
}

// Under returns the costs by scenario of other orders in the instance of an answer.
func (a *Answer) Under(ctx context.Context, in *Instance, orders []Order) ([]ScenarioCost, error) {
	m, err := a.modelOf(ctx, in)
	if err != nil {
		return nil, err
	}
	units, err := m.place(orders)
	if err != nil {
		return nil, err
	}
	other, err := m.answer(&solution{units: units})
	if err != nil {
		return nil, err
	}
	return other.Scenarios, nil
}

// Priced returns the cost of other orders in the instance of an answer; false if they are not sold so.
func (a *Answer) Priced(ctx context.Context, in *Instance, orders []Order) (cost domain.Decimal, sold bool, err error) {
	m, err := a.modelOf(ctx, in)
	if err != nil {
		return cost, false, err
	}
	if err := ctx.Err(); err != nil {
		return cost, false, err
	}
	units, err := m.place(orders)
	if err != nil {
		return cost, false, nil //nolint:nilerr // it says why they are not sold
	}
	other, err := m.answer(&solution{units: units})
	if err != nil {
		return cost, false, err
	}
	return other.Cost, true, nil
}

// Settled returns what [Alternatives] needs of an answer. problem states its instance again.
func (a *Answer) Settled(in *Instance, problem func() (*Instance, error)) Settled {
	out := Settled{Problem: problem, Cost: a.Cost, LowerBound: a.LowerBound}
	suppliers := make(map[string]string, len(in.Offers))
	for i := range in.Offers {
		suppliers[in.Offers[i].ID] = in.Offers[i].Provider
	}
	for i := range a.Purchases {
		if b := &a.Purchases[i]; b.Offer != "" {
			out.Bought = append(out.Bought, Spent{b.Order, suppliers[b.Offer], b.Cost})
		}
	}
	return out
}

// mostOffers bounds the offers that are left out one by one: those that most is spent on.
const mostOffers = 3

// target is a supplier's offers, or one of them.
type target struct{ supplier, offer string }

func (x target) has(supplier, offer string) bool {
	return x.supplier == supplier && (x.offer == "" || x.offer == offer)
}

func (x target) String() string {
	if x.offer != "" {
		return "offer " + x.offer
	}
	return x.supplier
}

// Alternatives solves problems again without each supplier that their answers buy from, and without each
// of the offers that most is spent on. The cheapest is the second-best answer; only it has a
// certificate. If most is above 0, they are also solved with the purchases of each of these at most that
// share of the cost, where they cost more: capped. Both lists are in the order of costs. notes name what
// could not be solved.
func Alternatives(
	ctx context.Context, of []Settled, most domain.Decimal, lp linear.Solver,
) (without, capped []Alternative, notes []string, err error) {
	spent := map[target]domain.Decimal{}
	cost, bound := decimal.Zero, decimal.Zero
	for i := range of {
		cost, bound = cost.Add(of[i].Cost), bound.Add(of[i].LowerBound)
		for _, b := range of[i].Bought {
			one := target{b.Supplier, b.Offer}
			spent[one] = spent[one].Add(b.Cost)
			if all := (target{b.Supplier, ""}); b.Supplier != "" {
				spent[all] = spent[all].Add(b.Cost)
			}
		}
	}
	var suppliers, offers []target
	for _, x := range slices.SortedFunc(maps.Keys(spent), func(a, b target) int {
		return cmp.Or(cmp.Compare(a.supplier, b.supplier), cmp.Compare(a.offer, b.offer))
	}) {
		if x.offer == "" {
			suppliers = append(suppliers, x)
		} else {
			offers = append(offers, x)
		}
	}
	slices.SortStableFunc(offers, func(x, y target) int { return spent[y].Cmp(spent[x]) })
	for _, x := range slices.Concat(suppliers, offers[:min(len(offers), mostOffers)]) {
		s := &search{target: x, lp: lp, start: corner{cost: cost, bound: bound, spent: spent[x]}}
		for i := range of {
			if slices.ContainsFunc(of[i].Bought, func(b Spent) bool { return x.has(b.Supplier, b.Offer) }) {
				s.of = append(s.of, &of[i])
			}
		}
		none, err := s.without(ctx)
		var clash *Infeasible
		switch {
		case errors.Is(err, linear.ErrUnavailable):
			notes = append(notes, fmt.Sprintf("no plan without %s: there is no solver of linear programs", x))
			continue
		case errors.As(err, &clash):
			notes = append(notes, fmt.Sprintf("no plan without %s: %v", x, clash))
			continue
		case err != nil:
			return nil, nil, nil, fmt.Errorf("without %s: %w", x, err)
		}
		without = append(without, s.alternative(none, decimal.Zero))
		if !most.IsPositive() || !s.start.exceeds(most) {
			continue
		}
		best, err := s.cap(ctx, most, none)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("at most %s of the cost for %s: %w", most, x, err)
		}
		capped = append(capped, s.alternative(best, most))
	}
	dearer := func(x, y Alternative) int { return x.Cost.Cmp(y.Cost) }
	slices.SortStableFunc(without, dearer)
	slices.SortStableFunc(capped, dearer)
	for i := range without {
		if i > 0 {
			without[i].Certificate = nil
		}
	}
	return without, capped, notes, nil
}

// Alternate adds [Alternatives] to an answer: those without a supplier or an offer if secondBest, and
// capped ones if most is above 0. Their bounds have no certificates there.
func (a *Answer) Alternate(ctx context.Context, in *Instance, secondBest bool, most domain.Decimal, lp linear.Solver) error {
	of := a.Settled(in, func() (*Instance, error) { return in, nil })
	without, capped, notes, err := Alternatives(ctx, []Settled{of}, most, lp)
	if err != nil {
		return err
	}
	for i := range without {
		without[i].Certificate = nil
	}
	if secondBest {
		a.Alternatives = without
	}
	a.Capped, a.Unsolved = capped, notes
	return nil
}

// checkAlternatives checks the costs of the purchases of alternatives, and copies them. Their lower
// bounds are informative and not proven.
func (a *Answer) checkAlternatives(ctx context.Context, in *Instance, m *model, again *Answer) error {
	of := a.Settled(in, nil)
	each := func(list []Alternative, name string, capped bool) error {
		for i := range list {
			if err := ctx.Err(); err != nil {
				return err
			}
			x, bought := &list[i], decimal.Zero
			s := &search{target: target{x.Supplier, x.Offer}}
			for _, b := range of.Bought {
				if s.has(b.Supplier, b.Offer) {
					bought = bought.Add(b.Cost)
				}
			}
			units, err := m.place(x.Purchases)
			if err != nil {
				return fmt.Errorf("%w: %s/%d: %v", check.ErrRejected, name, i, err)
			}
			p, err := s.come(m, units)
			if err != nil {
				return err
			}
			allowed := p.spent.IsZero()
			if capped {
				allowed = x.AtMost.IsPositive() && !p.exceeds(x.AtMost)
			}
			if len(p.orders) == 0 || !allowed || !x.Cost.Equal(p.cost) || !x.Left.Equal(p.spent) || !x.Bought.Equal(bought) ||
				!x.More.Equal(x.Cost.Sub(a.Cost)) || x.LowerBound.GreaterThan(x.Cost) || len(x.Certificate) > 0 {
				return fmt.Errorf("%w: %s/%d does not follow from its purchases: they cost %s, of which %s is for %s",
					check.ErrRejected, name, i, p.cost, p.spent, s)
			}
		}
		return nil
	}
	if err := each(a.Alternatives, "alternatives", false); err != nil {
		return err
	}
	if err := each(a.Capped, "capped", true); err != nil {
		return err
	}
	again.Alternatives, again.Capped, again.Unsolved = a.Alternatives, a.Capped, a.Unsolved
	return nil
}

// search looks for the best answers that buy less of a target.
type search struct {
	target
	of    []*Settled // that buy something of it
	start corner     // the answer
	lp    linear.Solver
}

// corner is an answer: its cost, a bound of what is minimised, and what is spent on the target. orders are
// by problem.
type corner struct {
	cost, bound, spent domain.Decimal
	orders             [][]Order
	proof              []Proof
}

// exceeds reports whether more than a share of the cost is spent on the target.
func (p *corner) exceeds(most domain.Decimal) bool { return p.spent.GreaterThan(p.cost.Mul(most)) }

func (s *search) alternative(p *corner, most domain.Decimal) Alternative {
	return Alternative{
		Supplier: s.supplier, Offer: s.offer, AtMost: most, Bought: s.start.spent, Left: p.spent, Cost: p.cost, LowerBound: p.bound,
		More: p.cost.Sub(s.start.cost), Purchases: slices.Concat([]Order{}, slices.Concat(p.orders...)), Certificate: p.proof,
	}
}

// each replaces the answers of the problems that buy something of the target. The others stay best:
// less of it is no gain to them.
func (s *search) each(again func(i int, in *Instance) (*corner, error)) (*corner, error) {
	out := &corner{cost: s.start.cost, bound: s.start.bound}
	for i, x := range s.of {
		in, err := x.Problem()
		if err != nil {
			return nil, err
		}
		p, err := again(i, in)
		if err != nil {
			return nil, err
		}
		out.cost, out.bound = out.cost.Add(p.cost).Sub(x.Cost), out.bound.Add(p.bound).Sub(x.LowerBound)
		out.spent = out.spent.Add(p.spent)
		out.orders, out.proof = append(out.orders, p.orders...), append(out.proof, p.proof...)
	}
	return out, nil
}

// without is the best answer that buys nothing of the target.
func (s *search) without(ctx context.Context) (*corner, error) {
	return s.each(func(_ int, in *Instance) (*corner, error) {
		less := *in
		less.Offers = slices.DeleteFunc(slices.Clone(in.Offers), func(o Offer) bool { return s.has(o.Provider, o.ID) })
		a, err := Solve(ctx, &less, s.lp)
		if err != nil {
			return nil, err
		}
		return &corner{cost: a.Cost, bound: a.LowerBound, orders: [][]Order{a.Orders()}, proof: a.Proof}, nil
	})
}

// mostSteps bounds the multipliers that are tried for a share. Each finds another corner of the
// trade-off between cost and what is spent on the target, so few are needed.
const mostSteps = 24

// cap is the best answer found with at most a share of the cost spent on the target, and a bound of all
// such answers. none spends nothing on it.
//
// The share is a constraint over all problems: spent − share × cost ≤ 0. Its Lagrangian relaxation
// minimises cost + μ × spent for each problem by itself. Its least value L bounds every answer that keeps the
// share, since for these L ≤ cost + μ × spent ≤ (1 + μ × share) × cost. The multiplier is that for which
// the best known answers on both sides of the share are equally good. At the end, amounts between
// these two are tried, because in whole problems they may be far apart.
func (s *search) cap(ctx context.Context, most domain.Decimal, none *corner) (*corner, error) {
	over, under := &corner{cost: s.start.cost, spent: s.start.spent}, none
	for _, x := range s.of {
		var orders []Order
		for _, b := range x.Bought {
			orders = append(orders, b.Order)
		}
		over.orders = append(over.orders, orders)
	}
	bound := s.start.bound
	for range mostSteps {
		if !over.spent.GreaterThan(under.spent) || under.cost.LessThan(over.cost) {
			break
		}
		mu := under.cost.Sub(over.cost).DivRound(over.spent.Sub(under.spent), 9)
		p, err := s.each(func(_ int, in *Instance) (*corner, error) { return s.weighed(ctx, in, mu) })
		if err != nil {
			return nil, err
		}
		least, _ := p.bound.QuoRem(one.Add(mu.Mul(most)), 9)
		bound = decimal.Max(bound, least)
		// A tie within rounding is the corner itself.
		gain := over.cost.Add(mu.Mul(over.spent)).Sub(p.cost).Sub(mu.Mul(p.spent))
		if gain.LessThanOrEqual(over.cost.Shift(-9)) {
			break
		}
		if p.exceeds(most) {
			over = p
		} else {
			under = p
		}
	}
	best := under
	const parts = 64
	for low, high := 0, parts; high-low > 1; {
		k := (low + high) / 2
		p, err := s.each(func(i int, in *Instance) (*corner, error) {
			return s.placed(ctx, in, between(under.orders[i], over.orders[i], k, parts))
		})
		if err != nil {
			return nil, err
		}
		if len(p.orders) < len(s.of) || p.exceeds(most) { // some are not sold, or too many
			high = k
			continue
		}
		if low = k; p.cost.LessThan(best.cost) {
			best = p
		}
	}
	out := *best
	out.bound, out.proof = decimal.Min(bound, out.cost), nil
	return &out, nil
}

// between are amounts k ÷ parts of the way from some orders to others.
func between(from, to []Order, k, parts int) []Order {
	units := map[Order]int{} // by order without its units
	var list []Order
	add := func(orders []Order, weight int) {
		for _, o := range orders {
			n := o.Units
			o.Units = 0
			if _, seen := units[o]; !seen {
				list = append(list, o)
			}
			units[o] += n * weight
		}
	}
	add(from, parts-k)
	add(to, k)
	out := make([]Order, 0, len(list))
	for _, o := range list {
		if o.Units = (units[o] + parts/2) / parts; o.Units > 0 {
			out = append(out, o)
		}
	}
	return out
}

// weighed solves an instance in which the purchases of the target cost 1 + mu times as much. The bound
// of the corner is that of cost + mu × spent.
func (s *search) weighed(ctx context.Context, in *Instance, mu domain.Decimal) (*corner, error) {
	m, err := s.model(ctx, in)
	if err != nil {
		return nil, err
	}
	w, factor := *m, one.Add(mu)
	w.costs = slices.Clone(m.costs)
	for i := range w.choices {
		if o := w.offer(i); o != nil && s.has(o.Provider, o.ID) {
			n := factor.Mul(decimal.NewFromInt(int64(m.costs[i]))).Floor().BigInt()
			if !n.IsInt64() {
				return nil, fmt.Errorf("%q: %w", o.ID, errLarge)
			}
			w.costs[i] = procurement.Nano(n.Int64())
		}
	}
	if err := w.recost(); err != nil {
		return nil, err
	}
	solved, err := w.solveUntil(ctx, ctx, s.lp, 0)
	if err != nil {
		return nil, err
	}
	p := &corner{orders: [][]Order{m.orders(solved.units)}}
	if p.cost, p.bound, err = w.proves(solved); err != nil {
		return nil, err
	}
	extra := new(big.Int)
	for i, n := range solved.units {
		more := big.NewInt(int64(w.costs[i] - m.costs[i]))
		extra.Add(extra, more.Mul(more, big.NewInt(int64(n))))
	}
	p.cost, p.spent = p.cost.Sub(decimal.NewFromBigInt(extra, -m.digits)), s.spentOf(m, solved.units)
	return p, nil
}

// placed is what orders come to, without orders if the instance does not sell or allow them.
func (s *search) placed(ctx context.Context, in *Instance, orders []Order) (*corner, error) {
	m, err := s.model(ctx, in)
	if err != nil {
		return nil, err
	}
	units, err := m.place(orders)
	if err != nil {
		return &corner{}, nil //nolint:nilerr // a rounded amount that is not sold is no answer
	}
	return s.come(m, units)
}

// come is what units of choices come to, without orders if limits do not allow them.
func (s *search) come(m *model, units []int) (*corner, error) {
	o, err := m.outcome(units)
	if err != nil {
		return nil, err
	}
	if len(o.broken) > 0 {
		return &corner{}, nil
	}
	sum := m.needless(units)
	for _, c := range o.costs {
		sum.Add(sum, c)
	}
	cost := m.owed.RoundBank(m.digits).Add(m.quotient(sum, true))
	return &corner{cost: cost, spent: s.spentOf(m, units), orders: [][]Order{m.orders(units)}}, nil
}

func (s *search) model(ctx context.Context, in *Instance) (*model, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	return newLoads().compile(ctx, in, nil)
}

// spentOf is the cost of purchases of the target.
func (s *search) spentOf(m *model, units []int) domain.Decimal {
	sum := new(big.Int)
	for i, n := range units {
		if o := m.offer(i); n > 0 && o != nil && s.has(o.Provider, o.ID) {
			paid := big.NewInt(int64(m.costs[i]))
			sum.Add(sum, paid.Mul(paid, big.NewInt(int64(n))))
		}
	}
	return decimal.NewFromBigInt(sum, -m.digits)
}
