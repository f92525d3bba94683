package plan

import (
	"cmp"
	"math/big"
	"slices"

	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/check"
)

// leastSteps bounds the number of problems solved in the search for least orders.
const leastSteps = 24

// answer is a checked solution, with the purchases below their offer's least order that would be
// made without least orders.
type answer struct {
	*procurement.Solution
	tooFew []procurement.Purchase
}

// solve finds the purchases of a pool, with for each offer none or at least its least order, and
// has them checked.
//
// Procurement does not solve least orders; its solution is a bound and a first proposal. Where it
// buys too few in some start, the search branches: the start is removed, or its least order is
// bought and the rest solved around it. The search is depth first and cuts off branches that cannot
// become cheaper. After leastSteps problems the cheapest answer so far is returned. Every proposal
// is also tried with the purchases that are too small removed, and rounded up. The bound is that of
// the problem without least orders, which also holds with them.
//
// known are feasible purchases; the answer costs no more than they do.
func solve(p *procurement.Pool, least []int, known []procurement.Purchase) (*answer, error) {
	relaxed, err := procurement.Solve(p)
	if err != nil {
		return nil, err
	}
	if _, err := check.Check(p, relaxed); err != nil {
		return nil, err
	}
	s := search{pool: p, least: least}
	out := &answer{relaxed, s.tooFew(relaxed.Purchases)}
	if len(out.tooFew) == 0 && relaxed.Exact {
		return out, nil
	}
	if err := s.try(known); err != nil {
		return nil, err
	}
	if err := s.run(branch{p, nil, new(big.Int)}, relaxed); err != nil {
		return nil, err
	}
	out.Solution = &procurement.Solution{
		Purchases: s.best, Cost: s.cost, Bound: relaxed.Bound, Exact: s.cost.Cmp(relaxed.Bound) == 0,
		Certificate: relaxed.Certificate, Algorithm: relaxed.Algorithm, Work: relaxed.Work,
	}
	if _, err := check.Check(p, out.Solution); err != nil {
		return nil, err
	}
	return out, nil
}

type search struct {
	pool  *procurement.Pool
	least []int // units, by offer
	best  []procurement.Purchase
	cost  *big.Int // of best, nil for none yet
}

// branch is a pool in which some starts are removed and the least orders of others are bought.
// Their price is multiplied by the pool's weight, as costs are.
type branch struct {
	pool   *procurement.Pool
	bought []procurement.Purchase
	price  *big.Int
}

// run searches from a branch whose solution is known.
func (s *search) run(root branch, sol *procurement.Solution) error {
	open := []branch{root}
	for step := 0; len(open) > 0 && step < leastSteps; step++ {
		b := open[len(open)-1]
		open = open[:len(open)-1]
		if step > 0 {
			var err error
			if sol, err = procurement.Solve(b.pool); err != nil {
				return err
			}
		}
		if s.cost != nil && new(big.Int).Add(sol.Bound, b.price).Cmp(s.cost) >= 0 {
			continue
		}
		all := joined(b.bought, sol.Purchases)
		short := s.tooFew(all)
		if err := s.try(without(all, short)); err != nil {
			return err
		}
		if len(short) == 0 {
			continue
		}
		if err := s.try(s.roundedUp(all)); err != nil {
			return err
		}
		open = append(open, b.closed(short[0]), b.ordered(short[0], s.least[short[0].Offer]))
	}
	return nil
}

// try keeps purchases that are cheaper than the best so far.
func (s *search) try(bought []procurement.Purchase) error {
	ev, err := procurement.Evaluate(s.pool, bought)
	if err != nil {
		return err
	}
	if s.cost == nil || ev.Cost.Cmp(s.cost) < 0 {
		s.best, s.cost = bought, ev.Cost
	}
	return nil
}

func (s *search) tooFew(bought []procurement.Purchase) (short []procurement.Purchase) {
	for _, b := range bought {
		if b.Units < s.least[b.Offer] {
			short = append(short, b)
		}
	}
	return short
}

// roundedUp raises every purchase to its least order. A start always sells that much, because
// offers that do not are not considered.
func (s *search) roundedUp(bought []procurement.Purchase) []procurement.Purchase {
	out := slices.Clone(bought)
	for i := range out {
		out[i].Units = max(out[i].Units, s.least[out[i].Offer])
	}
	return out
}

func without(bought, gone []procurement.Purchase) []procurement.Purchase {
	return slices.DeleteFunc(slices.Clone(bought), func(b procurement.Purchase) bool { return slices.Contains(gone, b) })
}

// joined adds up purchases by offer and epoch.
func joined(a, b []procurement.Purchase) []procurement.Purchase {
	all := slices.Concat(a, b)
	slices.SortStableFunc(all, func(x, y procurement.Purchase) int {
		return cmp.Or(cmp.Compare(x.Offer, y.Offer), cmp.Compare(x.Epoch, y.Epoch))
	})
	out := all[:0]
	for _, x := range all {
		if n := len(out); n > 0 && out[n-1].Offer == x.Offer && out[n-1].Epoch == x.Epoch {
			out[n-1].Units += x.Units
		} else {
			out = append(out, x)
		}
	}
	return out
}

// closed is the branch without the start of a purchase.
func (b *branch) closed(at procurement.Purchase) branch {
	p := *b.pool
	p.Offers = slices.Clone(p.Offers)
	o := &p.Offers[at.Offer]
	o.Starts = slices.DeleteFunc(slices.Clone(o.Starts), func(s procurement.Start) bool { return s.Epoch == at.Epoch })
	return branch{&p, b.bought, b.price}
}

// ordered is the branch in which units are bought at the start of a purchase: they are held there,
// and more can be bought.
func (b *branch) ordered(at procurement.Purchase, units int) branch {
	p := *b.pool
	p.Offers, p.Epochs = slices.Clone(p.Offers), slices.Clone(p.Epochs)
	o := &p.Offers[at.Offer]
	o.Starts = slices.Clone(o.Starts)
	i := slices.IndexFunc(o.Starts, func(s procurement.Start) bool { return s.Epoch == at.Epoch })
	if o.Starts[i].Max != procurement.Unlimited {
		o.Starts[i].Max -= units
	}
	for m := at.Epoch; m < min(at.Epoch+o.Term, len(p.Epochs)); m++ {
		if o.Guaranteed {
			p.Epochs[m].HeldGuaranteed += units
		} else {
			p.Epochs[m].HeldDiscountOnly += units
		}
	}
	price := new(big.Int).Mul(big.NewInt(int64(o.Starts[i].Cost)), big.NewInt(int64(units)*int64(b.pool.Weight())))
	bought := joined(b.bought, []procurement.Purchase{{Offer: at.Offer, Epoch: at.Epoch, Units: units}})
	return branch{&p, bought, price.Add(price, b.price)}
}
