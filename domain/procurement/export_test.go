package procurement

import "math/big"

// SolveLarge solves a pool by the method for pools too large for the simplex.
func SolveLarge(p *Pool) (*Solution, error) {
	s := newSolver(p)
	s.best.algorithm = Flow
	s.flow()
	if s.best.cost != s.best.bound {
		s.large()
	}
	return s.solution()
}

// CurveCost is the cost of a pool's first epoch by the curves: A(g + min(p, Q)) + B(g).
func CurveCost(p *Pool, guaranteed, discountOnly int) *big.Int {
	c := newEpochCost(&p.Epochs[0], p.ways(0))
	total, alone := c.parts(0)
	var sum wide
	total.addCost(&sum, guaranteed+min(discountOnly, c.quota))
	alone.addCost(&sum, guaranteed)
	return sum.big()
}

// PricedCost is the cost of an epoch by units of either kind, if using a unit as guaranteed costs
// its worth. It is computed by the curve, without the part that no unit saves, then by the curve's
// split, then by trying every split.
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
