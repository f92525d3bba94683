package procurement

import "math/big"

// SolveLarge solves a pool the way that pools too large for the simplex are.
func SolveLarge(p *Pool) (*Solution, error) {
	s := newSolver(p)
	s.best.algorithm = Flow
	s.flow()
	if s.best.cost != s.best.bound {
		s.large()
	}
	return s.solution()
}

// CurveCost is what a pool's first epoch costs by the curves: A(g + min(p, Q)) +
// B(g).
func CurveCost(p *Pool, guaranteed, discountOnly int) *big.Int {
	c := newEpochCost(&p.Epochs[0], p.ways(0))
	total, alone := c.parts(0)
	var sum wide
	total.addCost(&sum, guaranteed+min(discountOnly, c.quota))
	alone.addCost(&sum, guaranteed)
	return sum.big()
}

// PricedCost is what an epoch costs by units bought of either kind where using
// them as guaranteed ones costs their worth: first by the curve, less what none
// can save, then by the split that it says, then by trying every split.
func PricedCost(p *Pool, worth Nano, units int) (byCurve, byUse, bySplit *big.Int) {
	p = &Pool{Weights: p.Weights, Epochs: p.Epochs[:1]}
	e := &p.Epochs[0]
	s := newSolver(p)
	curve, use := s.pricedCurve(0, worth)
	cost := func(g int) *big.Int {
		v := CurveCost(p, e.HeldGuaranteed+g, e.HeldDiscountOnly+units-g)
		return v.Add(v, new(big.Int).Mul(big.NewInt(int64(worth)), big.NewInt(int64(g))))
	}
	byUse = cost(use(units))
	for g := range units + 1 {
		if v := cost(g); bySplit == nil || v.Cmp(bySplit) < 0 {
			bySplit = v
		}
	}
	var sum wide
	curve.addCost(&sum, units)
	return sum.big(), byUse, bySplit
}
