// Package check proves a procurement solution again, so that nobody has to
// trust the solver. It takes the types of package procurement and none of its
// functions (a test holds that), and computes in integers of any size:
//
//   - every purchase is offered, starts when it may, and stays within its Max;
//   - every hour is served from what there is, one source after the other, and
//     with the purchases that comes to the stated cost;
//   - the certificate's prices prove the stated bound, by weak duality: see
//     [procurement.Certificate] for the formula.
//
// It does not prove the counts of work, which are not about the answer.
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

// ErrRejected says that a solution is not what it claims to be. What differs
// follows it. A rejected solution must not be used.
var ErrRejected = errors.New("procurement solution rejected")

// Report is what was proven: the purchases cost Cost, and nothing costs less
// than Bound.
type Report struct {
	Cost  *big.Int
	Bound *big.Int
}

// Gap returns Cost − Bound: no other purchases save more.
func (r Report) Gap() *big.Int { return new(big.Int).Sub(r.Cost, r.Bound) }

// Ratio returns the gap as a share of the cost; 0 where nothing costs anything.
func (r Report) Ratio() *big.Rat {
	if r.Cost.Sign() == 0 {
		return new(big.Rat)
	}
	return new(big.Rat).SetFrac(r.Gap(), r.Cost)
}

// Percent returns the gap in percent of the cost, rounded up in the last of six
// decimals, so that "0.000000 %" stands for none.
func (r Report) Percent() string {
	const decimals = 6
	q := r.Ratio()
	q.Mul(q, big.NewRat(100_000_000, 1)) // percent, and six decimals
	up := new(big.Int).Add(q.Num(), new(big.Int).Sub(q.Denom(), big.NewInt(1)))
	up.Quo(up, q.Denom())
	return new(big.Rat).SetFrac(up, big.NewInt(1_000_000)).FloatString(decimals) + " %"
}

// Check recomputes a solution of a pool. Its error wraps [ErrRejected].
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
	cost, err := cost(p, s.Purchases)
	if err != nil {
		return Report{}, err
	}
	if cost.Cmp(s.Cost) != 0 {
		return Report{}, fmt.Errorf("the purchases cost %d, not %d", cost, s.Cost)
	}
	bound, err := bound(p, &s.Certificate)
	if err != nil {
		return Report{}, err
	}
	if bound.Cmp(s.Bound) != 0 {
		return Report{}, fmt.Errorf("the certificate proves %d, not %d", bound, s.Bound)
	}
	// It cannot be, unless a formula here is wrong; then nothing is proven.
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

// sane refuses a pool on which what follows would mean nothing.
func sane(p *procurement.Pool) error {
	for m, e := range p.Epochs {
		hours := 0
		for i, s := range e.Demand {
			if s.Units < 0 || s.Units > procurement.MaxUnits || s.Hours < 1 || s.Hours > procurement.MaxHours-hours || i > 0 && s.Units <= e.Demand[i-1].Units {
				return fmt.Errorf("epoch %d: demand %d is no ascending step", m, i)
			}
			hours += s.Hours
		}
		if e.Shortage < max(0, e.OnDemand, e.Spot) || e.SpotPermille < 0 || e.SpotPermille > 1000 ||
			e.Quota < procurement.Unlimited || e.HeldGuaranteed < 0 || e.HeldPriceOnly < 0 {
			return fmt.Errorf("epoch %d: prices, share, quota or holdings are impossible", m)
		}
	}
	for i, o := range p.Offers {
		if o.Term < 1 {
			return fmt.Errorf("offer %d: term %d", i, o.Term)
		}
		for j, s := range o.Starts {
			if s.Epoch < 0 || s.Epoch >= len(p.Epochs) || s.Cost < 0 || s.Max < procurement.Unlimited || j > 0 && s.Epoch <= o.Starts[j-1].Epoch {
				return fmt.Errorf("offer %d: start %d is impossible", i, j)
			}
		}
	}
	return nil
}

// last returns the epoch before which a purchase ends.
func last(p *procurement.Pool, o procurement.Offer, epoch int) int {
	return epoch + min(o.Term, len(p.Epochs)-epoch)
}

// cost is what the purchases cost and what serving costs beside them.
func cost(p *procurement.Pool, purchases []procurement.Purchase) (*big.Int, error) {
	guaranteed, priceOnly := make([]int, len(p.Epochs)), make([]int, len(p.Epochs))
	for m, e := range p.Epochs {
		guaranteed[m], priceOnly[m] = e.HeldGuaranteed, e.HeldPriceOnly
	}
	sum := new(big.Int)
	for i, b := range purchases {
		if i > 0 {
			if a := purchases[i-1]; b.Offer < a.Offer || b.Offer == a.Offer && b.Epoch <= a.Epoch {
				return nil, fmt.Errorf("purchase %d does not come after the one before", i)
			}
		}
		if b.Offer < 0 || b.Offer >= len(p.Offers) {
			return nil, fmt.Errorf("purchase %d: there is no offer %d", i, b.Offer)
		}
		o := p.Offers[b.Offer]
		at := slices.IndexFunc(o.Starts, func(s procurement.Start) bool { return s.Epoch == b.Epoch })
		if at < 0 {
			return nil, fmt.Errorf("purchase %d: offer %d does not start in epoch %d", i, b.Offer, b.Epoch)
		}
		start := o.Starts[at]
		if b.Units < 1 || b.Units > 8*procurement.MaxUnits || start.Max != procurement.Unlimited && b.Units > start.Max {
			return nil, fmt.Errorf("purchase %d: %d units, of %d", i, b.Units, start.Max)
		}
		sum.Add(sum, product(int64(start.Cost), int64(b.Units)))
		for m := b.Epoch; m < last(p, o, b.Epoch); m++ {
			if o.Guaranteed {
				guaranteed[m] += b.Units
			} else {
				priceOnly[m] += b.Units
			}
		}
	}
	for m := range p.Epochs {
		sum.Add(sum, serve(&p.Epochs[m], guaranteed[m], priceOnly[m]))
	}
	return sum, nil
}

func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// source is something that serves demand.
type source struct {
	price    procurement.Nano
	units    int
	permille int  // of the hour's demand; not 0: instead of units
	quota    bool // uses the quota
	used     int64
}

// serve is what an epoch costs. Each hour takes from the cheapest source first,
// and what needs quota from what is left of it. That is best because only the
// quota is shared, and every source that shares it takes one for a unit.
func serve(e *procurement.Epoch, guaranteed, priceOnly int) *big.Int {
	sources := make([]source, 0, 5)
	sources = append(sources, source{units: guaranteed}, source{units: priceOnly, quota: true})
	if e.OnDemand >= 0 {
		sources = append(sources, source{price: e.OnDemand, units: math.MaxInt, quota: true})
	}
	if e.Spot >= 0 && e.SpotPermille > 0 {
		sources = append(sources, source{price: e.Spot, permille: e.SpotPermille})
	}
	if n := len(sources); n == 4 && sources[3].price < sources[2].price {
		sources[2], sources[3] = sources[3], sources[2]
	}
	sources = append(sources, source{price: e.Shortage, units: math.MaxInt})
	for _, hour := range e.Demand {
		left, quota := hour.Units, e.Quota
		if e.OnDemand < 0 {
			quota = 0
		} else if e.Quota == procurement.Unlimited {
			quota = hour.Units
		}
		for i := range sources {
			s := &sources[i]
			n := s.units
			if s.permille > 0 {
				n = hour.Units * s.permille / 1000
			}
			n = min(n, left)
			if s.quota {
				n = min(n, quota)
				quota -= n
			}
			left -= n
			s.used += int64(n) * int64(hour.Hours)
		}
	}
	sum := new(big.Int)
	for _, s := range sources {
		if s.price != 0 && s.used != 0 {
			sum.Add(sum, product(int64(s.price), s.used))
		}
	}
	return sum
}

// bound is what the certificate proves.
func bound(p *procurement.Pool, c *procurement.Certificate) (*big.Int, error) {
	if len(c.Cover) != len(p.Epochs) || len(c.Guarantee) != len(p.Epochs) {
		return nil, fmt.Errorf("the certificate has prices for %d and %d epochs, of %d", len(c.Cover), len(c.Guarantee), len(p.Epochs))
	}
	sum := new(big.Int)
	for m := range p.Epochs {
		if c.Cover[m] < 0 || c.Guarantee[m] < 0 {
			return nil, fmt.Errorf("epoch %d: the certificate's prices %d and %d are negative", m, c.Cover[m], c.Guarantee[m])
		}
		sum.Add(sum, least(&p.Epochs[m], c.Cover[m], c.Guarantee[m]))
	}
	for i, o := range p.Offers {
		for _, s := range o.Starts {
			margin := big.NewInt(int64(s.Cost))
			for m := s.Epoch; m < last(p, o, s.Epoch); m++ {
				margin.Sub(margin, big.NewInt(int64(c.Cover[m])))
				if o.Guaranteed {
					margin.Sub(margin, big.NewInt(int64(c.Guarantee[m])))
				}
			}
			if margin.Sign() >= 0 {
				continue
			}
			if s.Max == procurement.Unlimited {
				return nil, fmt.Errorf("offer %d from epoch %d is worth more than it costs, without limit: the certificate proves nothing", i, s.Epoch)
			}
			sum.Add(sum, margin.Mul(margin, big.NewInt(int64(s.Max))))
		}
	}
	return sum, nil
}

// least is the least that an epoch costs when coverage is bought at the
// certificate's prices.
//
// Serving cost is the optimum of a linear program by its right-hand side, hence
// convex in guaranteed and price-only units together, and so is the least over
// one of them in the other. What cannot serve the highest demand is never worth
// a price, so both lie between none and that.
func least(e *procurement.Epoch, cover, guarantee procurement.Nano) *big.Int {
	top := 0
	if n := len(e.Demand); n > 0 {
		top = e.Demand[n-1].Units
	}
	return lowest(top, func(guaranteed int) *big.Int {
		v := lowest(top, func(priceOnly int) *big.Int {
			v := serve(e, e.HeldGuaranteed+guaranteed, e.HeldPriceOnly+priceOnly)
			return v.Add(v, product(int64(cover), int64(priceOnly)))
		})
		v.Add(v, product(int64(cover), int64(guaranteed)))
		return v.Add(v, product(int64(guarantee), int64(guaranteed)))
	})
}

// lowest returns the least of a convex function from 0 to top.
func lowest(top int, f func(int) *big.Int) *big.Int {
	at := sort.Search(top, func(x int) bool { return f(x+1).Cmp(f(x)) >= 0 })
	return f(at)
}
