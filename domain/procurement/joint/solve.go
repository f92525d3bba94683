package joint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"

	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
)

// How far it goes. All are counts, so that equal problems take equal work.
const (
	cutRounds    = 60   // masters of the first leaf
	doubtRounds  = 10   // of them, until it is asked whether anything keeps the limits
	leafRounds   = 8    // masters of each further leaf
	dearerRounds = 12   // for each limit, multipliers looked at in a round
	maxLeaves    = 60   // of branching
	closeEnough  = 1e-5 // relative gap of the linear program at which cutting stops
	goodEnough   = 1e-6 // relative gap of the answer at which nothing more is tried
	polishRounds = 30   // times all slots, for what trying single units may price
	wholeRounds  = 12   // times a master is asked for whole units
	weakGap      = 1e-3 // relative gap of the answer from which on a bound without limits is looked for
	wholeGap     = 1e-4 // relative gap of the answer from which on it is asked
	wholeChoices = 60   // with more choices it is asked near what is known
	wholeMany    = 500
	wholeNodes   = 500     // of its branch and bound
	wholeChecks  = 50000   // and how often that may ask whether to go on
	coarsest     = 1 << 10 // of a unit, in which coverage is priced
	finest       = 1 << 20
)

// Solve finds purchases that serve all demand at little cost, and proves how
// little is lost. It fails for a problem that [Problem.Validate] refuses, with an
// [Infeasible] for one that nothing solves, with the context's error when that
// ends, and, when lp is nil and a part of the problem needs it, with an error
// wrapping [linear.ErrUnavailable] that says which part.
//
// Parts that have nothing to do with each other are solved one by one, a pool
// alone by a minimum-cost flow. Any other part is decomposed (Benders, 1962): a
// linear program over what can be bought estimates what serving costs by cuts,
// feasible points of the duals of the hours, and each of its solutions is priced
// hour by hour and adds cuts where it was estimated too low. What is priced lies
// halfway to the best that was found (in-out separation, Ben-Ameur and Neto,
// 2007). Purchases are then rounded, tried exactly, and mended unit by unit.
// Choices that are all or nothing are branched over.
func Solve(ctx context.Context, p *Problem, lp linear.Solver) (*Solution, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	out := &Solution{Units: make([]int, len(p.Choices)), Bound: new(big.Int)}
	out.Prices = Prices{Worth: bigs(len(p.Choices)), Limits: bigs(len(p.Limits)), Quotas: make([][]*big.Int, len(p.Quotas)), Needs: make([][]*big.Int, len(p.Needs))}
	for q := range p.Quotas {
		out.Prices.Quotas[q] = bigs(len(p.Epochs))
	}
	for n := range p.Needs {
		out.Prices.Needs[n] = bigs(len(p.Needs[n].Epochs))
	}
	parts := p.parts()
	out.Work.Parts = len(parts)
	cost := new(big.Rat)
	for i := range parts {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := p.solvePart(ctx, &parts[i], lp, out)
		if err != nil {
			var clash *Infeasible
			if errors.As(err, &clash) || ctx.Err() != nil {
				return nil, err
			}
			return nil, fmt.Errorf("problem %q: %w", p.ID, err)
		}
		cost.Add(cost, c)
	}
	out.Certificate.Parts = parts
	out.Cost = ceil(cost)
	if slices.ContainsFunc(p.Limits, func(l Limit) bool { return l.Serving != nil }) {
		ev, err := Evaluate(p, out.Units)
		if err != nil {
			return nil, err
		}
		out.Ways = ev.Ways
	}
	if out.Cost.Cmp(out.Bound) < 0 {
		return nil, fmt.Errorf("problem %q: the bound %d is above the cost %d: the solver is wrong", p.ID, out.Bound, out.Cost)
	}
	return out, nil
}

// solvePart solves a part into the solution, and returns what it costs.
func (p *Problem) solvePart(ctx context.Context, part *Part, lp linear.Solver, out *Solution) (*big.Rat, error) {
	if cost, ok, err := p.solveAlone(part, out); ok || err != nil {
		return cost, err
	}
	s := &solver{ctx: ctx, p: p, part: part, lp: lp, work: &out.Work, grid: p.grid()}
	s.open()
	// What costs nothing without any purchase needs no solver.
	nothing, err := s.try(make([]int, len(p.Choices)))
	if err != nil {
		return nil, err
	}
	if nothing && s.best.cost.Sign() == 0 {
		leaf := Leaf{Cases: []CaseProof{}, Limits: make([]int64, len(part.Limits))}
		for _, n := range part.Needs {
			leaf.Needs = append(leaf.Needs, make([]procurement.Nano, len(p.Needs[n].Epochs)))
		}
		part.Leaves = []Leaf{leaf}
		return s.best.cost, nil
	}
	if lp == nil {
		return nil, fmt.Errorf("%s: %w", p.coupling(part), linear.ErrUnavailable)
	}
	if err := s.solve(); err != nil {
		return nil, err
	}
	for _, j := range part.Choices {
		out.Units[j] = s.best.units[j]
	}
	return s.best.cost, s.write(out)
}

// open prepares what the solver prices.
func (s *solver) open() {
	for _, b := range s.part.Blocks {
		s.blocks = append(s.blocks, newBlock(s.p, b))
	}
	s.pr = newPricer(s.p, s.blocks, s.work)
	for b := range s.blocks {
		for m := range s.p.Epochs {
			for c := range s.p.Epochs[m].Cases {
				if len(s.blocks[b].views[m][c].hours) > 0 {
					s.keys = append(s.keys, caseKey{b, m, c})
				}
			}
		}
	}
	for _, l := range s.part.Limits {
		if s.p.Limits[l].Serving != nil {
			s.serving = append(s.serving, l)
		}
	}
}

// grid is the fraction of a unit in which coverage is priced: the finer the fewer
// units there are, so that rounding does not keep bound and cost apart.
func (p *Problem) grid() int64 {
	most := 1
	for m := range p.Epochs {
		e := &p.Epochs[m]
		for i := range e.Pools {
			most = max(most, e.Pools[i].HeldGuaranteed, e.Pools[i].HeldPriceOnly)
		}
		for c := range e.Cases {
			for _, slot := range e.Cases[c].Slots {
				most = max(most, slices.Max(append(slot.Units[:len(slot.Units):len(slot.Units)], 0)))
			}
		}
	}
	g := int64(coarsest)
	for g < finest && 2*g*int64(most) <= 1<<31 {
		g *= 2
	}
	return g
}

// solveAlone solves a part that is a pool alone, if it is.
func (p *Problem) solveAlone(part *Part, out *Solution) (*big.Rat, bool, error) {
	if len(part.Blocks) != 1 || len(part.Needs) > 0 || len(part.Limits) > 0 {
		return nil, false, nil
	}
	b := &part.Blocks[0]
	if len(b.Pools) != 1 || len(b.Demands) != 1 || len(b.Quotas) > 1 || len(b.Spends) > 0 {
		return nil, false, nil
	}
	for _, j := range part.Choices {
		if len(p.Choices[j].Cover) == 0 {
			return nil, false, nil
		}
	}
	pool, ok := p.Alone(b.Pools[0])
	if !ok {
		return nil, false, nil
	}
	s, err := procurement.Solve(pool)
	if err != nil {
		return nil, false, err
	}
	for _, x := range s.Purchases {
		out.Units[part.Choices[x.Offer]] = x.Units
	}
	for i, j := range part.Choices {
		out.Prices.Worth[j].SetInt64(int64(s.Certificate.Worth(pool, i, 0)))
	}
	out.Work.Alone++
	out.Bound.Add(out.Bound, s.Bound)
	part.Alone = &s.Certificate
	return new(big.Rat).SetInt(s.Cost), true, nil
}

// coupling says why a part needs a solver of linear programs.
func (p *Problem) coupling(part *Part) string {
	pools := 0
	for i := range part.Blocks {
		pools += len(part.Blocks[i].Pools)
	}
	first := p.Pools[part.Blocks[0].Pools[0]]
	by := "routes, a shared quota or a commitment to spend"
	switch {
	case len(part.Limits) > 0:
		by = fmt.Sprintf("limit %q", p.Limits[part.Limits[0]].ID)
	case len(part.Needs) > 0:
		by = fmt.Sprintf("need %q", p.Needs[part.Needs[0]].ID)
	case pools == 1:
		by = "choices that are not any number of single units, or routes that are not one to one"
	case len(part.Blocks) > 1:
		by = "choices that cover several pools or exclude one another"
	}
	return fmt.Sprintf("pool %q and %d others are coupled by %s", first, pools-1, by)
}

// solver solves a part.
type solver struct {
	ctx     context.Context
	p       *Problem
	part    *Part
	blocks  []*block
	pr      *pricer
	lp      linear.Solver
	ms      *master
	work    *Work
	grid    int64
	keys    []caseKey // with slots
	serving []int     // limits that serving takes of
	kept    bool      // something that was priced keeps them

	best struct {
		units []int
		cost  *big.Rat
		// Of limits, at the ways in which it is served.
		multipliers []int64
		value       float64
	}
	center struct {
		units []float64
		value float64
	}
	seen    map[caseKey]*spot
	leafs   []leafNode
	against map[Member]bool // of a relaxed problem that nothing solves: what the proof rests on
}

// spot is what a block was last priced at in a case.
type spot struct {
	at          []int64
	multipliers []int64
	value       float64
	cut         *cut
}

type leafNode struct {
	path  []Turn
	pf    *proof
	used  []*cut
	bound *big.Int
}

// at lists what a block has in a case.
func (s *solver) at(k caseKey, have *cover) []int64 {
	var out []int64
	b := s.blocks[k.block]
	for _, i := range b.Pools {
		out = append(out, have.guaranteed[k.epoch][i], have.priceOnly[k.epoch][i])
	}
	for _, i := range b.Spends {
		out = append(out, have.spends[k.epoch][i])
	}
	return append(out, have.grid)
}

// value is what serving costs at the regime's prices, nearly.
func (pd *priced) value() float64 {
	sum := 0.0
	n := len(pd.rows)
	for at, e := range pd.entries {
		x := 0.0
		for k, v := range pd.r {
			x += float64(e.value[k] * float64(v))
		}
		x *= float64(pd.hours[at]) / float64(pd.grid)
		for k, row := range pd.rows {
			x += float64(e.value[row] * float64(pd.sums[at*n+k]))
		}
		sum += x
	}
	return sum
}

// query prices all slots with what units cover, and returns what that costs (times
// the weight, in Nano), beside the multipliers' part for what serving may take of
// limits, and the cuts that it makes.
func (s *solver) query(units []float64, multipliers []int64) (float64, []*cut, error) {
	x := make([]int64, len(units))
	value := 0.0
	for j, v := range units {
		x[j] = int64(math.Round(v * float64(s.grid)))
		value += float64(float64(float64(x[j])/float64(s.grid)*float64(s.p.Choices[j].Cost)) * float64(s.p.Weight))
	}
	have := s.p.cover(x, s.grid)
	var cuts []*cut
	for _, k := range s.keys {
		at := s.at(k, have)
		if o := s.seen[k]; o != nil && slices.Equal(o.at, at) && slices.Equal(o.multipliers, multipliers) {
			value += o.value
			cuts = append(cuts, o.cut)
			continue
		}
		pd, err := s.pr.price(s.ctx, k.block, k.epoch, k.c, multipliers, have, nil)
		if err != nil {
			return 0, nil, err
		}
		v := float64(pd.value() * float64(s.p.Epochs[k.epoch].Cases[k.c].Weight))
		o := &spot{at, multipliers, v, s.p.newCut(s.blocks, k, multipliers, pd)}
		s.seen[k] = o
		value += v
		cuts = append(cuts, o.cut)
	}
	return value, cuts, nil
}

// solve is Solve of the part.
func (s *solver) solve() error {
	err := s.search()
	if errors.Is(err, errImpossible) || err == nil && s.best.units == nil {
		return s.clash()
	}
	return err
}

func (s *solver) search() error {
	p := s.p
	s.seen = map[caseKey]*spot{}
	zero := make([]float64, len(p.Choices))
	value, cuts, err := s.query(zero, make([]int64, len(p.Limits)))
	if err != nil {
		return err
	}
	least := 0.0
	for _, j := range s.part.Choices {
		least = max(least, float64(p.Choices[j].Cost))
	}
	// The unit of money makes the cost of nothing bought a million.
	s.ms = newMaster(p, s.part, s.blocks, max(1, max(value, least)/1e6), s.work)
	s.ms.add(cuts, s.blocks)

	root, err := s.cut(nil, cutRounds)
	if err != nil {
		return err
	}
	if err := s.candidates(root); err != nil {
		return err
	}
	if err := s.polish(); err != nil {
		return err
	}
	if err := s.branch(root); err != nil {
		return err
	}
	if err := s.unlimited(); err != nil {
		return err
	}
	return s.whole(root)
}

// low is what the leaves prove, nearly.
func (s *solver) low() float64 {
	low := math.Inf(1)
	for i := range s.leafs {
		if b := s.leafs[i].bound; b != nil {
			v, _ := new(big.Float).SetInt(b).Float64()
			low = min(low, v)
		}
	}
	return low
}

// unlimited proves a bound without any limit, where what was proven with them is
// little, and keeps the better one.
func (s *solver) unlimited() error {
	low := s.low()
	if len(s.part.Limits) == 0 || s.best.units == nil || s.best.value-low <= weakGap*s.best.value {
		return nil
	}
	bounds := map[int]float64{}
	for l, row := range s.ms.limit {
		bounds[l], s.ms.rows[row].upper = s.ms.rows[row].upper, math.Inf(1)
	}
	serving := s.serving
	s.serving = nil
	a, err := s.cut(nil, cutRounds)
	var n leafNode
	if err == nil {
		n, err = s.prove(a, nil)
	}
	s.serving = serving
	for l, row := range s.ms.limit {
		s.ms.rows[row].upper = bounds[l]
	}
	if err != nil {
		return err
	}
	if v, _ := new(big.Float).SetInt(n.bound).Float64(); v > low {
		s.leafs = []leafNode{n}
	}
	return nil
}

// whole asks for whole units, where rounding left much of a gap or found nothing:
// each answer is tried, adds the cuts that it breaks, and is asked for again.
func (s *solver) whole(root *answer) error {
	low := s.low()
	for round := range wholeRounds {
		enough := wholeGap
		if len(s.part.Choices) > wholeMany {
			enough *= 2
		}
		if s.best.units != nil && s.best.value-low <= enough*s.best.value {
			return nil
		}
		if round == 0 {
			s.ms.only(root)
		}
		before := s.best.value
		a, err := s.wholeMaster(root)
		if err != nil || a == nil || a.X == nil || s.best.units != nil && s.best.value <= a.bound*(1+closeEnough/10) {
			return err // what it finds is no better than it estimates
		}
		x := make([]float64, len(s.p.Choices))
		for j, v := range a.units {
			x[j] = math.Round(v)
		}
		_, cuts, err := s.ask(x, make([]int64, len(s.p.Limits)))
		if err != nil {
			return err
		}
		if s.ms.add(s.ms.broken(cuts, s.blocks, a), s.blocks) == 0 && s.best.value == before {
			return nil // it would say the same again
		}
	}
	return nil
}

// cut solves the master under a path and cuts, until little is between it and the
// best, or for so many rounds.
func (s *solver) cut(path []Turn, rounds int) (*answer, error) {
	p := s.p
	s.center.units, s.center.value = nil, math.Inf(1)
	var a *answer
	before, still := math.Inf(-1), 0
	for round := 0; ; round++ {
		next, err := s.ms.solve(s.ctx, s.lp, path)
		if err != nil && a != nil && s.ctx.Err() == nil && !errors.Is(err, errImpossible) {
			return a, nil // the solver came to nothing: what was found before still holds
		} else if err != nil {
			return nil, err
		}
		a = next
		if a.bound > before+float64(1e-7*math.Abs(before)) || p.keeping {
			still = 0
		} else {
			still++
		}
		before = max(before, a.bound)
		near := s.center.units != nil && s.center.value-a.bound <= closeEnough*s.center.value
		if round == rounds || still > 8 || near {
			return a, nil
		}
		if round == doubtRounds && len(path) == 0 && len(s.serving) > 0 && !s.kept && !p.keeping {
			if err := s.doubt(); err != nil {
				return nil, err
			}
		}
		if p.keeping {
			if done, err := s.settled(a); done || err != nil {
				return a, err
			}
		}
		multipliers := s.ms.multipliers(a)
		for l := range multipliers {
			if p.Limits[l].Serving == nil {
				multipliers[l] = 0
			} else {
				multipliers[l] = min(multipliers[l], p.highest(l))
			}
		}
		// Halfway to the best, and where that is no news at the solution itself.
		halfway := s.center.units != nil && still%3 != 2
		var cuts []*cut
		for {
			x := make([]float64, len(p.Choices))
			for j, v := range a.units {
				if x[j] = v; halfway {
					x[j] = (v + s.center.units[j]) / 2
				}
			}
			var value float64
			if value, cuts, err = s.ask(x, multipliers); err != nil {
				return nil, err
			}
			if value < s.center.value {
				s.center.units, s.center.value = x, value
			}
			if len(s.ms.broken(cuts, s.blocks, a)) > 0 {
				break
			} else if !halfway {
				return a, nil // what it estimates is what it costs
			}
			halfway = false
		}
		s.ms.forget(a)
		s.ms.add(cuts, s.blocks)
	}
}

// ask prices all slots with what units cover, under the limits if serving takes of
// any; see query.
func (s *solver) ask(units []float64, multipliers []int64) (float64, []*cut, error) {
	if len(s.serving) > 0 {
		return s.dearer(units, multipliers)
	}
	return s.query(units, multipliers)
}

// dearer looks for the multipliers at which what serving x costs, less what they
// ask for what the limits leave it, is most: its cost under the limits. It begins at
// the multipliers given. It returns what the best mix of ways costs, and the cuts of
// its ways and of the multipliers that bound best what any mix costs.
func (s *solver) dearer(x []float64, multipliers []int64) (float64, []*cut, error) {
	p := s.p
	scaled := make([]int64, len(x))
	room := make([]*big.Rat, len(p.Limits))
	for l := range room {
		room[l] = p.bound(l)
	}
	value := 0.0
	for j, v := range x {
		n := int64(math.Round(v * float64(s.grid)))
		if scaled[j] = n; n == 0 {
			continue
		}
		value += float64(float64(float64(n)/float64(s.grid)*float64(p.Choices[j].Cost)) * float64(p.Weight))
		for l, of := range p.Choices[j].Spent {
			if of != 0 {
				d := product(n, int64(of), int64(p.Weight))
				room[l].Sub(room[l], d.Mul(d, big.NewRat(1, s.grid)))
			}
		}
	}
	for l := range room {
		if room[l].Sign() < 0 {
			room[l].SetInt64(0)
		}
	}
	have := p.cover(scaled, s.grid)
	m, err := p.mixed(room, multipliers, dearerRounds*len(s.serving), closeEnough/10, func(multipliers []int64) (*outcome, error) {
		var cuts []*cut
		o, err := p.outcome(s.ctx, s.pr, multipliers, have, func(k caseKey, pd *priced) {
			at := s.at(k, have)
			o := s.seen[k]
			if o == nil || !slices.Equal(o.at, at) || !slices.Equal(o.multipliers, multipliers) {
				o = &spot{at, multipliers, pd.value() * float64(p.Epochs[k.epoch].Cases[k.c].Weight), p.newCut(s.blocks, k, multipliers, pd)}
				s.seen[k] = o
			}
			cuts = append(cuts, o.cut)
		})
		if err == nil {
			o.cuts = cuts
		}
		return o, err
	})
	if err != nil {
		return 0, nil, err
	}
	cuts := m.bound.cuts
	for _, o := range m.of {
		if o != m.bound {
			cuts = append(cuts, o.cuts...)
		}
	}
	s.kept = s.kept || m.kept
	mixed, _ := m.value.Float64()
	return value + mixed, cuts, nil
}

// try evaluates units exactly, keeps the best, and reports whether they keep all
// that is needed and limited.
func (s *solver) try(units []int) (bool, error) {
	p := s.p
	s.work.Tried++
	if !p.allows(units) {
		return false, nil
	}
	have := p.cover(wholes(units), 1)
	for _, n := range s.part.Needs {
		if !p.Needs[n].kept(p, have) {
			return false, nil
		}
	}
	bought := p.spent(units)
	for _, l := range s.part.Limits {
		if bought[l].Cmp(p.bound(l)) > 0 {
			return false, nil
		}
	}
	mix, err := p.keep(s.ctx, s.pr, units)
	if err != nil || mix != nil && !mix.kept {
		return false, err
	}
	cost := new(big.Rat)
	for j, x := range units {
		if x != 0 {
			cost.Add(cost, product(int64(p.Choices[j].Cost), int64(x), int64(p.Weight)))
		}
	}
	multipliers := make([]int64, len(p.Limits))
	if mix != nil {
		cost.Add(cost, mix.cost())
		multipliers = mix.multipliers(p)
	} else {
		for _, k := range s.keys {
			pd, err := s.pr.price(s.ctx, k.block, k.epoch, k.c, multipliers, have, nil)
			if err != nil {
				return false, err
			}
			c := pd.cost()
			cost.Add(cost, c.Mul(c, product(int64(p.Epochs[k.epoch].Cases[k.c].Weight))))
		}
	}
	if s.best.units == nil || cost.Cmp(s.best.cost) < 0 {
		s.best.units, s.best.cost, s.best.multipliers = slices.Clone(units), cost, multipliers
		s.best.value, _ = cost.Float64()
	}
	return true, nil
}

// money is what serving costs at prices without multipliers.
func (p *Problem) money(b *block, pd *priced, m int) *big.Rat {
	e := &p.Epochs[m]
	sum := new(big.Rat)
	for j, x := range pd.amounts() {
		if x.Sign() == 0 {
			continue
		}
		of := new(big.Int)
		switch k := &pd.regime.columns[j]; k.kind {
		case firmRoute, spotRoute:
			of.Mul(big.NewInt(int64(e.Routes[b.routes[k.of]])), big.NewInt(b.den[k.of]))
			if k.kind == spotRoute {
				of.Add(of, new(big.Int).Mul(big.NewInt(int64(e.Pools[b.Pools[b.poolOf[k.of]]].Spot)), big.NewInt(b.num[k.of])))
			}
		case onDemand:
			of.SetInt64(int64(e.Pools[b.Pools[k.of]].OnDemand))
		case shortage:
			of.SetInt64(int64(e.Shortage[b.Demands[k.of]]))
		}
		sum.Add(sum, x.Mul(x, new(big.Rat).SetInt(of)))
	}
	return sum
}

// candidates rounds a solution in several ways, mends what rounding broke, and
// tries what comes out.
func (s *solver) candidates(a *answer) error {
	points := []map[int]float64{a.units}
	if s.center.units != nil {
		c := map[int]float64{}
		for _, j := range s.part.Choices {
			c[j] = s.center.units[j]
		}
		points = append(points, c)
	}
	for _, x := range points {
		for _, up := range []float64{0.5, 0.01, 0.8} {
			units := s.round(x, up)
			s.mend(units, x)
			if _, err := s.try(units); err != nil {
				return err
			}
		}
	}
	if s.best.units == nil && (len(s.part.Needs) > 0 || len(s.part.Limits) > 0) {
		_, err := s.wholeMaster(a)
		return err
	}
	return nil
}

// round makes lots of units whole where their fraction is at least up, as least
// orders and groups allow.
func (s *solver) round(x map[int]float64, up float64) []int {
	p := s.p
	units := make([]int, len(p.Choices))
	most := map[string]int{} // by group: of which most is bought
	for _, j := range s.part.Choices {
		if g := p.Choices[j].Group; g != "" {
			if k, ok := most[g]; !ok || x[j]*float64(p.Choices[j].Cost) > x[k]*float64(p.Choices[k].Cost) {
				most[g] = j
			}
		}
	}
	for _, j := range s.part.Choices {
		c := &p.Choices[j]
		v := x[j]
		if c.Group != "" {
			if most[c.Group] != j {
				continue
			}
			for _, k := range s.part.Choices { // what it takes from the others
				if o := &p.Choices[k]; k != j && o.Group == c.Group && slices.Equal(o.Cover, c.Cover) {
					v += x[k]
				}
			}
		}
		lots := v / float64(c.Lot)
		n := int(math.Floor(lots+1-up)) * c.Lot
		if low := c.least(); n < low {
			n = 0
			if v >= up*float64(low) {
				n = low
			}
		}
		if high := c.most() / c.Lot * c.Lot; n > high {
			n = high
		}
		if n < c.least() {
			n = 0
		}
		units[j] = n
	}
	return units
}

// least is the smallest order.
func (c *Choice) least() int { return (max(1, c.Least) + c.Lot - 1) / c.Lot * c.Lot }

// more returns the next larger order, 0 if there is none.
func (c *Choice) more(n int) int {
	n = max(n+c.Lot, c.least())
	if n > c.most() {
		return 0
	}
	return n
}

// mend adds units until needs are kept: of what helps most for its cost, beside
// what the solution wants of it.
func (s *solver) mend(units []int, x map[int]float64) {
	p := s.p
	for range 10_000 {
		have := p.cover(wholes(units), 1)
		missing := map[[2]int]int64{} // by need and epoch
		for _, n := range s.part.Needs {
			need := &p.Needs[n]
			for _, m := range need.Epochs {
				left := int64(need.Least)
				for _, t := range need.Terms {
					left -= int64(t.PerUnit) * min(have.guaranteed[m][t.Pool], int64(need.Least))
				}
				if left > 0 {
					missing[[2]int{n, m}] = left
				}
			}
		}
		if len(missing) == 0 {
			return
		}
		best, most := -1, 0.0
		for _, j := range s.part.Choices {
			c := &p.Choices[j]
			next := c.more(units[j])
			if next == 0 || c.Group != "" && units[j] == 0 && slices.ContainsFunc(s.part.Choices, func(k int) bool { return units[k] > 0 && p.Choices[k].Group == c.Group }) {
				continue
			}
			added := int64(next - units[j])
			helps := 0.0
			for _, n := range s.part.Needs {
				for _, m := range p.Needs[n].Epochs {
					left := missing[[2]int{n, m}]
					if left <= 0 {
						continue
					}
					for _, k := range c.Cover {
						if k.Guaranteed && k.From <= m && m < k.To {
							for _, t := range p.Needs[n].Terms {
								if t.Pool == k.Pool {
									helps += float64(min(left, added*int64(k.Units)*int64(t.PerUnit)))
								}
							}
						}
					}
				}
			}
			if helps == 0 {
				continue
			}
			cost := float64(float64(c.Cost)*float64(added)) + 1
			if x[j] > float64(units[j]) {
				cost /= 4
			}
			if v := helps / cost; v > most {
				best, most = j, v
			}
		}
		if best < 0 {
			return
		}
		units[best] = p.Choices[best].more(units[best])
	}
}

// wholeMaster asks the solver for whole units under the cuts that there are. Of many
// choices it asks for so many units as are next to what a solution of the master
// and the best so far buy (Danna, Rothberg and Le Pape, 2005, after relaxations).
func (s *solver) wholeMaster(root *answer) (*answer, error) {
	g, ok := s.ms.program(nil)
	if !ok {
		return nil, nil
	}
	if len(s.part.Choices) > wholeChoices && s.best.units != nil && root != nil {
		for _, j := range s.part.Choices {
			c, col, x, have := &s.p.Choices[j], s.ms.choice[j], root.units[j], float64(s.best.units[j])
			lot := float64(c.Lot)
			low, high := math.Floor(x/lot+1e-6)*lot, math.Ceil(x/lot-1e-6)*lot
			if x < float64(c.least()) {
				low = 0
			}
			if x > 1e-6 {
				high = max(high, float64(c.least()))
			}
			g.Lower[col] = max(g.Lower[col], min(low, have))
			g.Upper[col] = min(g.Upper[col], max(high, have))
		}
	}
	s.p.makeWhole(g, s.part.Choices, s.ms.choice)
	sol, err := s.lp.Solve(s.ctx, g, linear.Limits{Nodes: wholeNodes, Gap: closeEnough, Checks: wholeChecks})
	if err != nil && s.ctx.Err() == nil && !errors.Is(err, linear.ErrUnavailable) {
		return &answer{Solution: &linear.Solution{Status: linear.Limited, Bound: math.Inf(-1)}}, nil // it came to nothing
	} else if err != nil {
		return nil, err
	}
	s.work.Masters++
	s.work.Iterations += sol.Iterations
	if sol.X == nil {
		return &answer{Solution: sol}, nil
	}
	out := &answer{Solution: sol, units: map[int]float64{}, bound: sol.Objective * s.ms.unit}
	units := make([]int, len(s.p.Choices))
	for _, j := range s.part.Choices {
		out.units[j] = sol.X[s.ms.choice[j]]
		units[j] = int(math.Round(out.units[j]))
	}
	_, err = s.try(units)
	return out, err
}

// enough is as much of a choice as can be of use: as covers all demand that can
// come to its pools, all needs that it counts for, and all that can be spent, in
// every hour, by itself; and no more than can be bought.
func (p *Problem) enough(j int, peaks [][]int64) int {
	c := &p.Choices[j]
	most := big.NewInt(int64(c.Least))
	// of counts what wants so much of what one unit has.
	of := func(wanted *big.Int, each int64) {
		n := new(big.Int).Add(wanted, big.NewInt(each-1))
		if n.Quo(n, big.NewInt(each)).Cmp(most) > 0 {
			most = n
		}
	}
	for _, k := range c.Cover {
		for m := k.From; m < k.To; m++ {
			of(p.wanted(peaks[m], func(pool int) int64 {
				if pool == k.Pool {
					return 1
				}
				return 0
			}), int64(k.Units))
		}
		for i := range p.Needs {
			for _, t := range p.Needs[i].Terms {
				if t.Pool == k.Pool && k.Guaranteed {
					of(big.NewInt(int64(p.Needs[i].Least)), int64(t.PerUnit)*int64(k.Units))
				}
			}
		}
	}
	for _, k := range c.Spend {
		for m := k.From; m < k.To; m++ {
			of(p.wanted(peaks[m], func(pool int) int64 {
				if s := &p.Epochs[m].Pools[pool]; s.Spend == k.Spend {
					return int64(s.SpendPrice)
				}
				return 0
			}), int64(k.PerHour))
		}
	}
	lots := new(big.Int).Add(most, big.NewInt(int64(c.Lot-1)))
	lots.Quo(lots, big.NewInt(int64(c.Lot))).Mul(lots, big.NewInt(int64(c.Lot)))
	if !lots.IsInt64() || lots.Int64() > int64(c.most()) {
		return c.most()
	}
	return int(lots.Int64())
}

// peaks are the most units of each demand, by epoch.
func (p *Problem) peaks() [][]int64 {
	out := make([][]int64, len(p.Epochs))
	for m := range p.Epochs {
		out[m] = make([]int64, len(p.Demands))
		for c := range p.Epochs[m].Cases {
			for _, slot := range p.Epochs[m].Cases[c].Slots {
				for d, u := range slot.Units {
					out[m][d] = max(out[m][d], int64(u))
				}
			}
		}
	}
	return out
}

// wanted is the most that demand of such peaks can want of pools, each unit counted
// as often as each says.
func (p *Problem) wanted(peak []int64, each func(pool int) int64) *big.Int {
	sum := new(big.Int)
	for _, r := range p.Routes {
		if n := each(r.Pool); n > 0 {
			v := new(big.Int).Mul(big.NewInt(n), big.NewInt((peak[r.Demand]*int64(r.Num)+int64(r.Den)-1)/int64(r.Den)))
			sum.Add(sum, v)
		}
	}
	return sum
}

// makeWhole adds to a program what lots, least orders and groups demand.
func (p *Problem) makeWhole(g *linear.Program, choices []int, column map[int]int) {
	g.Warm = nil
	g.Cost, g.Lower, g.Upper = slices.Clone(g.Cost), slices.Clone(g.Lower), slices.Clone(g.Upper)
	g.Whole = make([]bool, len(g.Cost))
	var rows []masterRow
	peaks := p.peaks()
	groups := map[string]int{}
	extra := func(upper float64) int {
		g.Cost, g.Lower, g.Upper, g.Whole = append(g.Cost, 0), append(g.Lower, 0), append(g.Upper, upper), append(g.Whole, true)
		return len(g.Cost) - 1
	}
	for _, j := range choices {
		c := &p.Choices[j]
		col := column[j]
		g.Whole[col] = true
		if c.Lot > 1 {
			r := masterRow{}
			r.put(col, 1)
			r.put(extra(math.Inf(1)), -float64(c.Lot))
			rows = append(rows, r)
		}
		if c.Least <= 1 && c.Group == "" {
			continue
		}
		b := extra(1)
		most := float64(p.enough(j, peaks))
		r := masterRow{lower: math.Inf(-1)}
		r.put(col, 1)
		r.put(b, -most)
		rows = append(rows, r)
		r = masterRow{upper: math.Inf(1)}
		r.put(col, 1)
		r.put(b, -float64(c.Least))
		rows = append(rows, r)
		if c.Group != "" {
			at, ok := groups[c.Group]
			if !ok {
				at = len(rows)
				groups[c.Group] = at
				rows = append(rows, masterRow{lower: math.Inf(-1), upper: 1})
			}
			rows[at].put(b, 1)
		}
	}
	appendRows(g, rows)
}

// polish tries one lot more or less of each choice while the slopes of what
// serving costs allow that it pays: the cost is convex in units, so a slope says
// the most that a step can save.
func (s *solver) polish() error {
	if s.best.units == nil {
		return nil
	}
	p := s.p
	total := 0
	for _, k := range s.keys {
		total += len(s.blocks[k.block].views[k.epoch][k.c].hours)
	}
	end := s.work.Slots + polishRounds*total
	// Under limits, at the multipliers that keep them now.
	multipliers := s.best.multipliers
	price := make([]float64, len(p.Choices))
	for _, j := range s.part.Choices {
		price[j] = float64(p.Choices[j].Cost) * float64(p.Weight)
		for l, v := range p.Choices[j].Spent {
			at := float64(multipliers[l])
			if !p.Limits[l].counts() {
				at /= 1e9
			}
			price[j] += float64(float64(at*float64(v)) * float64(p.Weight))
		}
	}
	units := slices.Clone(s.best.units)
	have := p.cover(wholes(units), 1)
	byEpoch := map[[2]int][]caseKey{} // by block and epoch
	now := map[caseKey]*cut{}
	values := map[caseKey]float64{}
	priced := func(k caseKey, have *cover) (*cut, float64, error) {
		pd, err := s.pr.price(s.ctx, k.block, k.epoch, k.c, multipliers, have, nil)
		if err != nil {
			return nil, 0, err
		}
		return p.newCut(s.blocks, k, multipliers, pd), pd.value() * float64(p.Epochs[k.epoch].Cases[k.c].Weight), nil
	}
	var cuts []*cut
	for _, k := range s.keys {
		byEpoch[[2]int{k.block, k.epoch}] = append(byEpoch[[2]int{k.block, k.epoch}], k)
		c, v, err := priced(k, have)
		if err != nil {
			return err
		}
		now[k], values[k] = c, v
		cuts = append(cuts, c)
	}
	s.ms.add(cuts, s.blocks)
	blockOf := map[int]int{}
	place := map[int]int{}
	spendBlock, spendPlace := map[int]int{}, map[int]int{}
	for b := range s.blocks {
		for i, k := range s.blocks[b].Pools {
			blockOf[k], place[k] = b, i
		}
		for i, k := range s.blocks[b].Spends {
			spendBlock[k], spendPlace[k] = b, i
		}
	}
	touched := func(j int) [][2]int { // blocks and epochs
		var out [][2]int
		c := &p.Choices[j]
		for _, k := range c.Cover {
			for m := k.From; m < k.To; m++ {
				out = append(out, [2]int{blockOf[k.Pool], m})
			}
		}
		for _, k := range c.Spend {
			for m := k.From; m < k.To; m++ {
				out = append(out, [2]int{spendBlock[k.Spend], m})
			}
		}
		slices.SortFunc(out, func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) })
		return slices.Compact(out)
	}
	// reduced is what a unit more costs, at the slopes.
	reduced := func(j int) float64 {
		c := &p.Choices[j]
		r := price[j]
		for _, k := range c.Cover {
			for m := k.From; m < k.To; m++ {
				for _, key := range byEpoch[[2]int{blockOf[k.Pool], m}] {
					v := now[key].beta[place[k.Pool]]
					if k.Guaranteed {
						v = now[key].pi[place[k.Pool]]
					}
					r -= float64(v * float64(k.Units))
				}
			}
		}
		for _, k := range c.Spend {
			for m := k.From; m < k.To; m++ {
				for _, key := range byEpoch[[2]int{spendBlock[k.Spend], m}] {
					r -= float64(now[key].rho[spendPlace[k.Spend]] * float64(k.PerHour))
				}
			}
		}
		return r
	}
	type move struct {
		choice, to int
		saves      float64
	}
	for changed := true; changed; {
		changed = false
		var moves []move
		for _, j := range s.part.Choices {
			c := &p.Choices[j]
			r := reduced(j)
			if r < 0 {
				if to := c.more(units[j]); to > 0 {
					moves = append(moves, move{j, to, -r * float64(to-units[j])})
				}
			} else if units[j] > 0 {
				to := units[j] - c.Lot
				if to < c.least() {
					to = 0
				}
				moves = append(moves, move{j, to, r * float64(units[j]-to)})
			}
		}
		slices.SortStableFunc(moves, func(a, b move) int { return cmp.Compare(b.saves, a.saves) })
		for _, mv := range moves {
			if mv.saves < 1e-8*s.best.value || s.work.Slots > end {
				break
			}
			before := units[mv.choice]
			if units[mv.choice] = mv.to; !s.may(units) {
				units[mv.choice] = before
				continue
			}
			next := p.cover(wholes(units), 1)
			d := price[mv.choice] * float64(mv.to-before)
			cuts, vs := map[caseKey]*cut{}, map[caseKey]float64{}
			for _, at := range touched(mv.choice) {
				for _, k := range byEpoch[at] {
					c, v, err := priced(k, next)
					if err != nil {
						return err
					}
					d += v - values[k]
					cuts[k], vs[k] = c, v
				}
			}
			if d >= -1e-10*s.best.value {
				units[mv.choice] = before
				continue
			}
			changed = true
			for k, c := range cuts {
				now[k], values[k] = c, vs[k]
			}
		}
	}
	_, err := s.try(units)
	return err
}

// may reports whether units keep what can be told without serving.
func (s *solver) may(units []int) bool {
	if !s.p.allows(units) {
		return false
	}
	if len(s.part.Needs) > 0 {
		have := s.p.cover(wholes(units), 1)
		for _, n := range s.part.Needs {
			if !s.p.Needs[n].kept(s.p, have) {
				return false
			}
		}
	}
	if len(s.part.Limits) > 0 {
		bought := s.p.spent(units)
		for _, l := range s.part.Limits {
			if bought[l].Cmp(s.p.bound(l)) > 0 {
				return false
			}
		}
	}
	return true
}

// branch proves the root, and while choices that are all or nothing leave a gap,
// both ways of each.
func (s *solver) branch(root *answer) error {
	type node struct {
		leafNode
		answer *answer
	}
	prove := func(a *answer, path []Turn) (node, error) {
		n, err := s.prove(a, path)
		return node{n, a}, err
	}
	first, err := prove(root, nil)
	if err != nil {
		return err
	}
	open := []node{first}
	var done []node
	for leaves := 1; len(open) > 0; {
		// The lowest bound first.
		at := 0
		for i := range open {
			if open[i].bound.Cmp(open[at].bound) < 0 {
				at = i
			}
		}
		n := open[at]
		j := s.undecided(n.answer)
		low, _ := new(big.Float).SetInt(n.bound).Float64()
		if j < 0 || leaves >= maxLeaves || s.best.units != nil && s.best.value-low <= goodEnough*s.best.value {
			open = slices.Delete(open, at, at+1)
			done = append(done, n)
			if j >= 0 && leaves >= maxLeaves {
				continue
			}
			continue
		}
		open = slices.Delete(open, at, at+1)
		for _, bought := range []bool{true, false} {
			path := append(slices.Clone(n.path), Turn{j, bought})
			a, err := s.cut(path, leafRounds)
			if errors.Is(err, errImpossible) {
				// No proof is needed where the path contradicts itself, and otherwise what
				// was proven before it still holds.
				m := node{leafNode{path, nil, n.used, n.bound}, nil}
				pf := *n.pf
				pf.path = path
				m.pf = &pf
				b, possible, err := pf.bound()
				if err != nil || !possible {
					m.bound = nil
				} else {
					m.bound = b
				}
				if err != nil {
					return err
				}
				done = append(done, m)
				continue
			} else if err != nil {
				return err
			}
			if err := s.candidates(a); err != nil {
				return err
			}
			m, err := prove(a, path)
			if err != nil {
				return err
			}
			if m.bound == nil {
				done = append(done, m)
			} else {
				open = append(open, m)
			}
		}
		leaves++
	}
	if len(done) > 1 {
		if err := s.polish(); err != nil {
			return err
		}
	}
	for _, n := range done {
		s.leafs = append(s.leafs, n.leafNode)
	}
	s.work.Leaves += len(done)
	return nil
}

// prove makes a proof of a solution of the master.
func (s *solver) prove(a *answer, path []Turn) (leafNode, error) {
	pf, used := s.ms.prove(a, s.blocks, path)
	b, possible, err := pf.bound()
	if err != nil || !possible {
		b = nil
	}
	return leafNode{path, pf, used, b}, err
}

// undecided returns a choice of which the solution buys less than the least
// order, or beside another of its group; −1: none.
func (s *solver) undecided(a *answer) int {
	p := s.p
	best, most := -1, 0.0
	group := map[string]int{}
	for _, j := range s.part.Choices {
		if a.units[j] > 1e-6 && p.Choices[j].Group != "" {
			group[p.Choices[j].Group]++
		}
	}
	for _, j := range s.part.Choices {
		c := &p.Choices[j]
		x := a.units[j]
		if x <= 1e-6 || (x >= float64(c.Least)-1e-6 && group[c.Group] < 2) {
			continue
		}
		if v := x * float64(c.Cost); best < 0 || v > most {
			best, most = j, v
		}
	}
	return best
}

// write puts the proof and its prices into the solution.
func (s *solver) write(out *Solution) error {
	p := s.p
	var least *leafNode
	for i := range s.leafs {
		n := &s.leafs[i]
		s.part.Leaves = append(s.part.Leaves, s.ms.leaf(n.pf, n.used))
		if n.bound != nil && (least == nil || n.bound.Cmp(least.bound) < 0) {
			least = n
		}
	}
	if least == nil {
		return s.clash()
	}
	out.Bound.Add(out.Bound, least.bound)
	pf := least.pf
	_, slope := pf.sum()
	unit := new(big.Int).Mul(big.NewInt(One), giga)
	for _, j := range s.part.Choices {
		worth, _ := pf.worth(j, &slope)
		out.Prices.Worth[j] = worth.Quo(worth, unit)
	}
	for i, n := range s.part.Needs {
		for k, v := range pf.needs[i] {
			out.Prices.Needs[n][k] = new(big.Int).Mul(big.NewInt(int64(v)), big.NewInt(int64(p.Weight)))
		}
	}
	for _, l := range s.part.Limits {
		out.Prices.Limits[l] = new(big.Int).Mul(big.NewInt(pf.limits[l]), big.NewInt(int64(p.Weight)))
	}
	place, share := map[caseKey]int{}, map[caseKey]int{}
	for _, c := range least.used {
		at, ok := place[c.caseKey]
		if !ok {
			at = len(place)
			place[c.caseKey] = at
		}
		weight := pf.cases[at].shares[share[c.caseKey]].weight
		share[c.caseKey]++
		b := s.blocks[c.block]
		for i, q := range b.Quotas {
			sum := new(big.Int)
			for at, e := range c.priced.entries {
				addTo(sum, e.worth.kappa[i], c.priced.hours[at])
			}
			sum.Mul(sum, big.NewInt(weight)).Mul(sum, big.NewInt(int64(p.Epochs[c.epoch].Cases[c.c].Weight)))
			to := out.Prices.Quotas[q][c.epoch]
			to.Add(to, sum)
		}
	}
	for i := range s.part.Blocks {
		for _, q := range s.part.Blocks[i].Quotas {
			for _, v := range out.Prices.Quotas[q] {
				v.Quo(v, big.NewInt(One))
			}
		}
	}
	return nil
}
