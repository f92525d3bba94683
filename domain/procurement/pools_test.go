package procurement_test

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// numbers draws a number from low to high.
type numbers func(low, high int, label string) int

// drawn uses rapid, which prefers small numbers and shrinks failures.
func drawn(t *rapid.T) numbers {
	return func(low, high int, label string) int { return rapid.IntRange(low, high).Draw(t, label) }
}

// even draws uniformly, always the same for a seed.
func even(seed uint64) numbers {
	r := rand.New(rand.NewPCG(seed, 0))
	return func(low, high int, _ string) int { return low + r.IntN(high-low+1) }
}

// size bounds the pools that are drawn.
type size struct {
	epochs, steps, units, hours, price int
	offers, starts, most               int // most units of a start; 0: Unlimited is drawn too
	kinds                              string
}

// Which kinds of offers a pool has.
const (
	anyKind    = "any"
	oneKind    = "one"  // only guaranteed offers, or only discount-only ones
	bothKinds  = "both" // both, and a quota
	guaranteed = "guaranteed"
)

func draw(n numbers, z size) *procurement.Pool {
	yes := func(label string) bool { return n(0, 1, label) == 1 }
	price := func(low procurement.Nano, label string) procurement.Nano {
		return low + procurement.Nano(n(0, z.price, label))
	}
	p := &procurement.Pool{ID: "drawn"}
	at := domain.Instant(0)
	for range n(1, z.epochs, "epochs") {
		e := procurement.Epoch{OnDemand: -1, Spot: -1, Quota: procurement.Unlimited}
		units := 0
		hours := 0
		for range n(0, z.steps, "steps") {
			if units = n(units+1, units+1+z.units/z.steps, "units"); units > z.units {
				break
			}
			e.Demand = append(e.Demand, procurement.Step{Units: units, Hours: n(1, z.hours, "hours")})
			hours += e.Demand[len(e.Demand)-1].Hours
		}
		e.Span = domain.Interval{From: at, To: at + domain.Instant(hours+n(0, 2, "without demand"))*domain.Hour}
		at = e.Span.To
		if n(0, 5, "no on-demand") > 0 {
			e.OnDemand = price(0, "on-demand")
		}
		if n(0, 2, "no spot") > 0 {
			e.Spot = price(0, "spot")
			e.SpotPermille = []int{0, 100, 333, 500, 1000}[n(0, 4, "permille")]
		}
		e.Shortage = price(max(0, e.OnDemand, e.Spot), "shortage")
		if z.kinds == bothKinds || n(0, 2, "no quota") > 0 {
			e.Quota = n(0, z.units, "quota")
		}
		if n(0, 2, "nothing held") == 0 {
			e.HeldGuaranteed = n(0, z.units/2, "held guaranteed")
		}
		if n(0, 2, "no price held") == 0 {
			e.HeldDiscountOnly = n(0, z.units/2, "held discount-only")
		}
		p.Epochs = append(p.Epochs, e)
	}
	kind := yes("guaranteed")
	left := z.starts
	for i := range n(0, z.offers, "offers") {
		o := procurement.Offer{ID: fmt.Sprintf("offer-%d", i), Guaranteed: kind, Term: n(1, len(p.Epochs)+1, "term")}
		switch z.kinds {
		case anyKind, bothKinds:
			o.Guaranteed = yes("guaranteed")
		case guaranteed:
			o.Guaranteed = true
		}
		for e := range p.Epochs {
			if left == 0 || n(0, 3, "not in this epoch") == 0 {
				continue
			}
			left--
			s := procurement.Start{Epoch: e, Cost: procurement.Nano(n(0, z.price*z.hours*o.Term/2, "cost")), Max: procurement.Unlimited}
			if z.most > 0 {
				s.Max = n(0, z.most, "max")
			} else if yes("limited") {
				s.Max = n(0, z.units, "max")
			}
			o.Starts = append(o.Starts, s)
		}
		p.Offers = append(p.Offers, o)
	}
	return p
}

// solve also checks invariants of every solution.
func solve(t rapid.TB, p *procurement.Pool) *procurement.Solution {
	t.Helper()
	s, err := procurement.Solve(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cheapest tries every mix that the starts' Max allow. Each epoch's cost is
// evaluated once for each number of units of either kind.
func cheapest(t rapid.TB, p *procurement.Pool) *big.Int {
	const many = 64
	type cover [many][many]int64 // cost + 1; 0: not known
	costs := make([]cover, len(p.Epochs))
	weight := int64(p.Weight())
	serving := func(m, guaranteed, discountOnly int) int64 {
		known := &costs[m][guaranteed][discountOnly]
		if *known > 0 {
			return *known - 1
		}
		e := p.Epochs[m]
		e.HeldGuaranteed += guaranteed
		e.HeldDiscountOnly += discountOnly
		ev, err := procurement.Evaluate(&procurement.Pool{Weights: p.Weights, Epochs: []procurement.Epoch{e}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		*known = ev.Cost.Int64() + 1
		return *known - 1
	}
	guaranteed, discountOnly := make([]int, len(p.Epochs)), make([]int, len(p.Epochs))
	best := int64(math.MaxInt64)
	var try func(offer, start int, spent int64)
	try = func(offer, start int, spent int64) {
		for offer < len(p.Offers) && start == len(p.Offers[offer].Starts) {
			offer, start = offer+1, 0
		}
		if offer == len(p.Offers) {
			for m := range p.Epochs {
				spent += serving(m, guaranteed[m], discountOnly[m])
			}
			best = min(best, spent)
			return
		}
		o := &p.Offers[offer]
		s := o.Starts[start]
		covered := discountOnly
		if o.Guaranteed {
			covered = guaranteed
		}
		covered = covered[s.Epoch:min(s.Epoch+o.Term, len(p.Epochs))]
		for units := range s.Max + 1 {
			if units > 0 {
				for m := range covered {
					covered[m]++
				}
			}
			try(offer, start+1, spent+weight*int64(s.Cost)*int64(units))
		}
		for m := range covered {
			covered[m] -= s.Max
		}
	}
	try(0, 0, 0)
	return big.NewInt(best)
}

// contested draws a pool with hard choices: every epoch has demand and a quota below it, and
// purchases of both kinds cost about what they save.
func contested(n numbers, epochs, offers, units, most int) *procurement.Pool {
	p := &procurement.Pool{ID: "contested"}
	const hours = 12
	for m := range n(2, epochs, "epochs") {
		from := domain.Instant(m*hours) * domain.Hour
		e := procurement.Epoch{Span: domain.Interval{From: from, To: from + hours*domain.Hour}}
		var hourly []int
		for range hours {
			hourly = append(hourly, n(1, units, "demand"))
		}
		e.Demand = procurement.Steps(hourly)
		e.OnDemand = procurement.Nano(n(50, 100, "on-demand"))
		e.Spot = procurement.Nano(n(10, 120, "spot"))
		e.Shortage = procurement.Nano(n(120, 400, "shortage"))
		e.SpotPermille = max(0, 200*n(-1, 2, "permille"))
		e.Quota = n(0, units, "quota")
		e.HeldGuaranteed = n(0, units/4, "held guaranteed")
		e.HeldDiscountOnly = n(0, units/4, "held discount-only")
		p.Epochs = append(p.Epochs, e)
	}
	for i := range n(2, offers, "offers") {
		o := procurement.Offer{ID: fmt.Sprintf("offer-%d", i), Guaranteed: i%2 == 0, Term: n(1, len(p.Epochs), "term")}
		each := n(500, 600, "cost of an epoch") - 25*o.Term
		if !o.Guaranteed {
			each -= n(20, 200, "discount")
		}
		each = max(each, 100)
		for m := range p.Epochs {
			if n(0, 4, "not in this epoch") == 0 {
				continue
			}
			cost := (each + n(-10, 10, "cost")) * min(o.Term, len(p.Epochs)-m)
			s := procurement.Start{Epoch: m, Cost: procurement.Nano(cost), Max: procurement.Unlimited}
			if most > 0 {
				s.Max = n(1, most, "max")
			}
			o.Starts = append(o.Starts, s)
		}
		p.Offers = append(p.Offers, o)
	}
	return p
}

// uncertain adds up to three scenarios to a pool: they drop or add demand in some epochs, and bound
// spot. It returns the pool.
func uncertain(n numbers, p *procurement.Pool) *procurement.Pool {
	for range n(1, 3, "scenarios") {
		p.Weights = append(p.Weights, n(1, 4, "weight"))
	}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		if n(0, 3, "alike") == 0 {
			continue
		}
		for range p.Weights {
			c := procurement.Case{SpotUnits: n(procurement.Unlimited, 3, "spot units")}
			more := n(0, 2, "more")
			for _, s := range e.Demand {
				if n(0, 3, "left out") > 0 {
					c.Demand = append(c.Demand, procurement.Step{Units: s.Units + more, Hours: s.Hours})
				}
			}
			e.Cases = append(e.Cases, c)
		}
		e.Demand = nil
	}
	return p
}
