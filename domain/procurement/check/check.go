// Package check verifies procurement solutions independently, of a single pool ([Check]) and of
// coupled pools ([Joint]), so that the solvers need not be trusted. It uses the types of packages
// procurement and joint but none of their functions (a test enforces this), and computes in
// integers of any size:
//
//   - every purchase is offered, starts when it may, and stays within its Max;
//   - every hour of every scenario is served from what there is, one source after the other, and
//     together with the purchases that comes to the stated cost;
//   - the certificate's prices prove the stated bound by weak duality; see
//     [procurement.Certificate] for the formula.
//
// It does not verify the work counts, which say nothing about the answer.
package check

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"sort"

	"quartermaster/domain/procurement"
)

// ErrRejected means that a solution is not what it claims to be. The text after it says what
// differs. A rejected solution MUST NOT be used.
var ErrRejected = errors.New("procurement solution rejected")

// Report is what was proven: the purchases cost Cost, and nothing costs less than Bound, both times
// the sum of the scenarios' weights.
type Report struct {
	Cost  *big.Int
	Bound *big.Int

	parts [][]leafProof
}

// leafProof is what a leaf of coupled pools proves.
type leafProof struct {
	bound *big.Int
	rates []*big.Int // by limit: what it proves less for one more of the limit, in fractions
}

// Loosened returns the bound that the same certificate proves if each limit of the problem were
// larger by more, by limit.
func (r Report) Loosened(more []*big.Int) *big.Int {
	out := new(big.Int).Set(r.Bound)
	for _, leaves := range r.parts {
		var before, after *big.Int
		for i := range leaves {
			l := &leaves[i]
			sum := new(big.Int)
			for n, v := range more {
				sum.Add(sum, times(v, l.rates[n]))
			}
			now := new(big.Int).Sub(l.bound, up(sum, fraction))
			if before == nil || l.bound.Cmp(before) < 0 {
				before = l.bound
			}
			if after == nil || now.Cmp(after) < 0 {
				after = now
			}
		}
		out.Sub(out, before).Add(out, after)
	}
	return out
}

// Gap returns Cost − Bound: other purchases save at most this much.
func (r Report) Gap() *big.Int { return new(big.Int).Sub(r.Cost, r.Bound) }

// Ratio returns the gap as a share of the cost; 0 if the cost is 0.
func (r Report) Ratio() *big.Rat {
	if r.Cost.Sign() == 0 {
		return new(big.Rat)
	}
	return new(big.Rat).SetFrac(r.Gap(), r.Cost)
}

// Percent returns the gap in percent of the cost, with six decimals, rounded up, so that "0.000000
// %" means no gap.
func (r Report) Percent() string {
	const decimals = 6
	q := r.Ratio()
	q.Mul(q, big.NewRat(100_000_000, 1)) // percent, and six decimals
	up := new(big.Int).Add(q.Num(), new(big.Int).Sub(q.Denom(), big.NewInt(1)))
	up.Quo(up, q.Denom())
	return new(big.Rat).SetFrac(up, big.NewInt(1_000_000)).FloatString(decimals) + " %"
}

// Check verifies a solution of a pool. Its error wraps [ErrRejected].
func Check(p *procurement.Pool, s *procurement.Solution) (Report, error) {
	r, err := recompute(p, s)
	if err != nil {
		return Report{}, fmt.Errorf("%w: pool %q: %v", ErrRejected, p.ID, err)
	}
	return r, nil
}

func recompute(p *procurement.Pool, s *procurement.Solution) (Report, error) {
	if err := sane(p); err != nil {
		return Report{}, err
	}
	if s.Cost == nil || s.Bound == nil {
		return Report{}, fmt.Errorf("cost or bound is missing")
	}
	bought, cost, err := cost(p, s.Purchases)
	if err != nil {
		return Report{}, err
	}
	if cost.Cmp(s.Cost) != 0 {
		return Report{}, fmt.Errorf("the purchases cost %d, not %d", cost, s.Cost)
	}
	bound, err := bound(p, &s.Certificate, bought)
	if err != nil {
		return Report{}, err
	}
	if bound.Cmp(s.Bound) != 0 {
		return Report{}, fmt.Errorf("the certificate proves %d, not %d", bound, s.Bound)
	}
	// This is impossible unless a formula here is wrong; then nothing is proven.
	if bound.Cmp(cost) > 0 {
		return Report{}, fmt.Errorf("the bound %d is above the cost %d", bound, cost)
	}
	if exact := cost.Cmp(bound) == 0; exact != s.Exact {
		return Report{}, fmt.Errorf("exact is %t, with cost %d and bound %d", s.Exact, cost, bound)
	}
	switch s.Algorithm {
	case procurement.Flow, procurement.Linear, procurement.Lagrange:
	default:
		return Report{}, fmt.Errorf("there is no algorithm %q", s.Algorithm)
	}
	return Report{Cost: cost, Bound: bound}, nil
}

// sane refuses a pool for which the computations below would be meaningless.
func sane(p *procurement.Pool) error {
	sum := 0
	for i, w := range p.Weights {
		if w < 1 || w > procurement.MaxWeight-sum {
			return fmt.Errorf("weight %d: %d", i, w)
		}
		sum += w
	}
	for m, e := range p.Epochs {
		scenarios := max(1, len(p.Weights))
		if len(e.Cases) > 0 && (len(e.Cases) != scenarios || len(e.Demand) > 0) {
			return fmt.Errorf("epoch %d: %d cases beside %d steps of demand, of %d scenarios", m, len(e.Cases),
				len(e.Demand), scenarios)
		}
		hours := 0
		for k := range scenarios {
			demand, spot, weight := scenario(p, m, k)
			if spot < procurement.Unlimited {
				return fmt.Errorf("epoch %d: case %d has %d units of spot", m, k, spot)
			}
			for i, s := range demand {
				if s.Units < 0 || s.Units > procurement.MaxUnits || s.Hours < 1 ||
					s.Hours > (procurement.MaxHours-hours)/weight || i > 0 && s.Units <= demand[i-1].Units {
					return fmt.Errorf("epoch %d: demand %d is no ascending step", m, i)
				}
				hours += s.Hours * weight
			}
		}
		if e.Shortage < max(0, e.OnDemand, e.Spot) || e.SpotPermille < 0 || e.SpotPermille > 1000 ||
			e.Quota < procurement.Unlimited || e.HeldGuaranteed < 0 || e.HeldDiscountOnly < 0 {
			return fmt.Errorf("epoch %d: prices, share, quota or holdings are impossible", m)
		}
	}
	for i, o := range p.Offers {
		if o.Term < 1 {
			return fmt.Errorf("offer %d: term %d", i, o.Term)
		}
		for j, s := range o.Starts {
			if s.Epoch < 0 || s.Epoch >= len(p.Epochs) || s.Cost < 0 || s.Max < procurement.Unlimited ||
				j > 0 && s.Epoch <= o.Starts[j-1].Epoch {
				return fmt.Errorf("offer %d: start %d is impossible", i, j)
			}
		}
	}
	return nil
}

// scenario returns an epoch in a scenario: demand, the units that spot can carry, and the weight.
func scenario(p *procurement.Pool, epoch, k int) (demand []procurement.Step, spot, weight int) {
	weight = 1
	if len(p.Weights) > 0 {
		weight = p.Weights[k]
	}
	if e := &p.Epochs[epoch]; len(e.Cases) > 0 {
		return e.Cases[k].Demand, e.Cases[k].SpotUnits, weight
	}
	return p.Epochs[epoch].Demand, procurement.Unlimited, weight
}

// total is the sum of the weights.
func total(p *procurement.Pool) int64 {
	sum := int64(0)
	for _, w := range p.Weights {
		sum += int64(w)
	}
	return max(1, sum)
}

// load is an epoch's hours in all scenarios: demand, what spot can carry of it, and the number of
// such hours times the weight of the scenario.
type load []struct{ units, spot, hours int }

func newLoad(p *procurement.Pool, epoch int) load {
	var out load
	for k := range max(1, len(p.Weights)) {
		demand, spot, weight := scenario(p, epoch, k)
		for _, s := range demand {
			most := s.Units * p.Epochs[epoch].SpotPermille / 1000
			if spot >= 0 && spot < most {
				most = spot
			}
			out = append(out, struct{ units, spot, hours int }{s.Units, most, s.Hours * weight})
		}
	}
	return out
}

// last returns the epoch before which a purchase ends.
func last(p *procurement.Pool, o procurement.Offer, epoch int) int {
	return epoch + min(o.Term, len(p.Epochs)-epoch)
}

// units is the number of bought units that cover an epoch.
type units struct{ guaranteed, discountOnly int }

// cost returns what the purchases cover, and the cost of the purchases and of serving.
func cost(p *procurement.Pool, purchases []procurement.Purchase) ([]units, *big.Int, error) {
	bought := make([]units, len(p.Epochs))
	sum := new(big.Int)
	for i, b := range purchases {
		if i > 0 {
			if a := purchases[i-1]; b.Offer < a.Offer || b.Offer == a.Offer && b.Epoch <= a.Epoch {
				return nil, nil, fmt.Errorf("purchase %d does not come after the one before", i)
			}
		}
		if b.Offer < 0 || b.Offer >= len(p.Offers) {
			return nil, nil, fmt.Errorf("purchase %d: there is no offer %d", i, b.Offer)
		}
		o := p.Offers[b.Offer]
		at := slices.IndexFunc(o.Starts, func(s procurement.Start) bool { return s.Epoch == b.Epoch })
		if at < 0 {
			return nil, nil, fmt.Errorf("purchase %d: offer %d does not start in epoch %d", i, b.Offer, b.Epoch)
		}
		start := o.Starts[at]
		if b.Units < 1 || b.Units > 8*procurement.MaxUnits || start.Max != procurement.Unlimited && b.Units > start.Max {
			return nil, nil, fmt.Errorf("purchase %d: %d units, of %d", i, b.Units, start.Max)
		}
		sum.Add(sum, product(int64(start.Cost), int64(b.Units)*total(p)))
		for m := b.Epoch; m < last(p, o, b.Epoch); m++ {
			if o.Guaranteed {
				bought[m].guaranteed += b.Units
			} else {
				bought[m].discountOnly += b.Units
			}
		}
	}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		sum.Add(sum, serve(e, newLoad(p, m), e.HeldGuaranteed+bought[m].guaranteed, e.HeldDiscountOnly+bought[m].discountOnly))
	}
	return bought, sum, nil
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// serve is the cost of an epoch. Each hour takes from the cheapest source first, and sources that
// need quota take from what is left of it. This is optimal because only the quota is shared, and
// every source that shares it takes one per unit.
func serve(e *procurement.Epoch, hours load, guaranteed, discountOnly int) *big.Int {
	quota := e.Quota
	switch {
	case e.OnDemand < 0:
		quota = 0
	case e.Quota == procurement.Unlimited:
		quota = math.MaxInt
	}
	spotLast := e.OnDemand >= 0 && e.OnDemand <= e.Spot
	var spot, onDemand, short int64 // unit-hours
	for i := range hours {
		hour := &hours[i]
		left := hour.units - guaranteed
		if left <= 0 {
			continue
		}
		room := quota // of on-demand
		n := min(left, discountOnly, room)
		left, room = left-n, room-n
		if spotLast {
			n = min(left, room)
			left -= n
			onDemand += int64(n) * int64(hour.hours)
		}
		if e.Spot >= 0 {
			n = min(left, hour.spot)
			left -= n
			spot += int64(n) * int64(hour.hours)
		}
		if !spotLast {
			n = min(left, room)
			left -= n
			onDemand += int64(n) * int64(hour.hours)
		}
		short += int64(left) * int64(hour.hours)
	}
	sum := product(int64(e.Shortage), short)
	if spot > 0 {
		sum.Add(sum, product(int64(e.Spot), spot))
	}
	if onDemand > 0 {
		sum.Add(sum, product(int64(e.OnDemand), onDemand))
	}
	return sum
}

// bound is what the certificate proves.
func bound(p *procurement.Pool, c *procurement.Certificate, bought []units) (*big.Int, error) {
	if len(c.Cover) != len(p.Epochs) || len(c.Guarantee) != len(p.Epochs) {
		return nil, fmt.Errorf("the certificate has prices for %d and %d epochs, of %d", len(c.Cover),
			len(c.Guarantee), len(p.Epochs))
	}
	sum := new(big.Int)
	for m := range p.Epochs {
		if c.Cover[m] < 0 || c.Guarantee[m] < 0 {
			return nil, fmt.Errorf("epoch %d: the certificate's prices %d and %d are negative", m, c.Cover[m], c.Guarantee[m])
		}
		sum.Add(sum, least(&p.Epochs[m], newLoad(p, m), c.Cover[m], c.Guarantee[m], bought[m]))
	}
	cover, guarantee := before(c.Cover), before(c.Guarantee)
	margin, weight, cost := new(big.Int), big.NewInt(total(p)), new(big.Int)
	for i, o := range p.Offers {
		for _, s := range o.Starts {
			margin.Mul(cost.SetInt64(int64(s.Cost)), weight)
			from, to := s.Epoch, last(p, o, s.Epoch)
			margin.Add(margin, cover[from]).Sub(margin, cover[to])
			if o.Guaranteed {
				margin.Add(margin, guarantee[from]).Sub(margin, guarantee[to])
			}
			if margin.Sign() >= 0 {
				continue
			}
			if s.Max == procurement.Unlimited {
				return nil,
					fmt.Errorf("offer %d from epoch %d is worth more than it costs, without limit: the "+
						"certificate proves nothing", i, s.Epoch)
			}
			sum.Add(sum, margin.Mul(margin, big.NewInt(int64(s.Max))))
		}
	}
	return sum, nil
}

// before returns the sum of the prices before each epoch, and of all.
func before(prices []procurement.Nano) []*big.Int {
	sums := []*big.Int{new(big.Int)}
	for i, v := range prices {
		sums = append(sums, new(big.Int).Add(sums[i], big.NewInt(int64(v))))
	}
	return sums
}

// least is the least cost of an epoch when coverage is bought at the certificate's prices.
//
// The serving cost is the optimal value of a linear program as a function of its right-hand side,
// so it is jointly convex in guaranteed and discount-only units. Its minimum over one of them is
// convex in the other. Units beyond the highest demand are never worth a price, so both lie between
// 0 and that. The search begins at what is bought: without a gap the minimum lies there.
func least(e *procurement.Epoch, hours load, cover, guarantee procurement.Nano, bought units) *big.Int {
	top := 0
	for _, hour := range hours {
		top = max(top, hour.units)
	}
	most := top // discount-only units
	if guarantee == 0 {
		most = 0 // a guaranteed unit serves whatever they do, for the same price
	}
	return lowest(top, bought.guaranteed, func(guaranteed int) *big.Int {
		v := lowest(most, bought.discountOnly, func(discountOnly int) *big.Int {
			v := serve(e, hours, e.HeldGuaranteed+guaranteed, e.HeldDiscountOnly+discountOnly)
			return v.Add(v, product(int64(cover), int64(discountOnly)))
		})
		v.Add(v, product(int64(cover), int64(guaranteed)))
		return v.Add(v, product(int64(guarantee), int64(guaranteed)))
	})
}

// lowest returns the minimum of a convex function on 0 to top. It begins near a point, descends in
// doubling steps, then bisects.
func lowest(top, near int, f func(int) *big.Int) *big.Int {
	known := map[int]*big.Int{}
	at := func(x int) *big.Int {
		if known[x] == nil {
			known[x] = f(x)
		}
		return known[x]
	}
	falls := func(x int) bool { return x < top && at(x+1).Cmp(at(x)) < 0 } // it is lower behind x
	low := min(max(0, near), top)
	high := low // the minimum lies between low and high
	if falls(low) {
		for step := 1; falls(high); step *= 2 {
			low, high = high+1, min(high+step, top)
		}
	} else {
		for step := 1; low > 0; step *= 2 {
			if low = max(0, high-step); falls(low) {
				low++
				break
			}
			high = low
		}
	}
	low += sort.Search(high-low, func(i int) bool { return !falls(low + i) })
	return at(low)
}
