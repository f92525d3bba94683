package joint

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
)

// Bounds of the search. All are counts, so that equal problems take equal work.
const (
	cutRounds    = 60         // masters of the first leaf
	doubtRounds  = 10         // of these, until the feasibility of the limits is decided
	leafRounds   = 4          // masters of each further leaf
	dearerRounds = 12         // for each limit, multipliers tried in a round
	maxSplits    = 2000       // of branching
	branchGap    = 1e-5       // relative gap of the answer at which branching stops
	branchWork   = 10_000_000 // of branching, see effort
	wholeWork    = 4_000_000  // of masters in whole units
	strongTries  = 8          // choices whose division is tried in a node
	improveEvery = 20         // divisions after which a solution is rounded
	searchEvery  = 60         // and after which its neighbourhood is searched
	wholeEnough  = 1e-6       // of a lot
	closeEnough  = 1e-5       // relative gap of the linear program at which cutting stops
	goodEnough   = 1e-6       // relative gap of the answer at which the search stops
	polishGap    = 2e-5       // relative gap of the answer from which single units are tried
	polishRounds = 30         // times all slots, for what trying single units may price
	wholeRounds  = 12         // times a master is solved in whole units
	weakGap      = 1e-3       // relative gap of the answer from which a bound without limits is tried
	wholeGap     = 1e-4       // relative gap of the answer from which whole units are asked for
	wholeChoices = 60         // with more choices the search is restricted to the neighbourhood of what is known
	wholeMany    = 500

	// Of a search that is one of dozens, see Quick.
	quickEffort = -1
	quickWork   = 500_000 // of branching
	wholeNodes  = 500     // of its branch and bound
	wholeChecks = 50000   // the number of checks whether to go on
	coarsest    = 1 << 10 // of a unit, in which coverage is priced
	finest      = 1 << 20
)

// Solve finds purchases that serve all demand at low cost, and proves a bound on what is lost. It
// fails for a problem that [Problem.Validate] refuses; with an [Infeasible] for one without a
// solution; with the context's error if that ends; and, if lp is nil and a part of the problem
// needs it, with an error wrapping [linear.ErrUnavailable] that names the part.
//
// Independent parts are solved separately, a single pool by a minimum-cost flow. Any other part is
// decomposed (Benders, 1962). A linear program over what can be bought estimates the serving cost
// by cuts, which are feasible points of the duals of the hours. Each of its solutions is priced
// hour by hour, and adds cuts where the estimate was too low. The priced point lies halfway to the
// best known one (in-out separation, Ben-Ameur and Neto, 2007). Purchases are then rounded,
// evaluated exactly, and repaired unit by unit. All-or-nothing choices are branched over.
func Solve(ctx context.Context, p *Problem, lp linear.Solver) (*Solution, error) {
	return SolveUntil(ctx, ctx, p, lp)
}

// SolveUntil is [Solve] that stops searching when until ends. It then returns the best known
// purchases with the bound that it can prove. Buying nothing is one candidate if it satisfies all
// needs and limits. If none is known it fails with until's error.
func SolveUntil(ctx, until context.Context, p *Problem, lp linear.Solver) (*Solution, error) {
	return SolveWithin(ctx, until, p, lp, 0)
}

// Quick is [Solve] that branches less. It is for dozens of problems that differ in a price.
func Quick(ctx context.Context, p *Problem, lp linear.Solver) (*Solution, error) {
	return SolveWithin(ctx, ctx, p, lp, quickEffort)
}

// SolveWithin is [SolveUntil] that ends the search for each part when its counted work exceeds
// effort, in about seconds of a processor. Equal efforts give equal answers. 0 stands for as long as
// the linear program over purchases takes and then 10 for branching.
func SolveWithin(ctx, until context.Context, p *Problem, lp linear.Solver, effort int) (*Solution, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	out := &Solution{Units: make([]int, len(p.Choices)), Bound: new(big.Int)}
	out.Prices = Prices{
		Worth: bigs(len(p.Choices)), Limits: bigs(len(p.Limits)), Quotas: make([][]*big.Int, len(p.Quotas)),
		Needs: make([][]*big.Int, len(p.Needs)),
	}
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
		c, err := p.solvePart(ctx, until, &parts[i], lp, effort, out)
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
	if p.waits() || slices.ContainsFunc(p.Limits, func(l Limit) bool { return l.Serving != nil }) {
		ev, err := Evaluate(p, out.Units)
		if err != nil {
			return nil, err
		}
		out.Ways, out.Runs = ev.Ways, ev.Runs
		if p.waits() {
			out.Cost = ev.Cost // where hours cost the same, work may have been placed in others
		}
	}
	if out.Cost.Cmp(out.Bound) < 0 {
		return nil, fmt.Errorf("problem %q: the bound %d is above the cost %d: the solver is wrong", p.ID, out.Bound, out.Cost)
	}
	return out, nil
}

// solvePart solves a part into the solution, and returns its cost.
func (p *Problem) solvePart(
	ctx, until context.Context, part *Part, lp linear.Solver, effort int, out *Solution,
) (*big.Rat, error) {
	if cost, ok, err := p.solveAlone(part, out); ok || err != nil {
		return cost, err
	}
	s := &solver{ctx: ctx, until: until, p: p, part: part, lp: lp, work: &out.Work, grid: p.grid(), limit: max(0, effort) * 1_000_000, before: out.Work.Slots}
	if s.branching = branchWork; effort == quickEffort {
		s.branching = quickWork
	}
	s.open()
	// If the cost is zero without any purchase, no solver is needed.
	nothing, err := s.try(make([]int, len(p.Choices)))
	if err != nil {
		return nil, err
	}
	if nothing && s.best.cost.Sign() == 0 {
		part.Leaves = []Leaf{p.freeLeaf(part)}
		return s.best.cost, nil
	}
	if lp == nil {
		return nil, fmt.Errorf("%s: %w", p.coupling(part), linear.ErrUnavailable)
	}
	s.ctx = until
	err = s.solve()
	if err != nil && until.Err() != nil && ctx.Err() == nil {
		out.Interrupted = true
		s.ctx = ctx
		err = s.interrupted()
	}
	if err != nil {
		return nil, err
	}
	for _, j := range part.Choices {
		out.Units[j] = s.best.units[j]
	}
	if len(s.nodes) == 0 {
		part.Leaves = []Leaf{p.freeLeaf(part)}
		return s.best.cost, nil
	}
	return s.best.cost, s.write(out)
}

// interrupted finishes a stopped search. It rounds what the last master bought, and proves a bound
// by its prices if no other cut does.
func (s *solver) interrupted() error {
	if s.root != nil && len(s.nodes) == 0 {
		if err := s.candidates(s.root); err != nil {
			return err
		}
		n, err := s.prove(s.root, nil)
		if err == nil && n.bound != nil && n.bound.Sign() > 0 {
			s.nodes = tree{{leafNode: n}}
		}
	}
	if s.best.units == nil {
		return fmt.Errorf("stopped before anything was found that keeps all needs and limits: %w", context.Cause(s.until))
	}
	return nil
}

// freeLeaf proves that no cost is negative.
func (p *Problem) freeLeaf(part *Part) Leaf {
	leaf := Leaf{Shares: []Share{}, Limits: make([]int64, len(part.Limits))}
	for _, n := range part.Needs {
		leaf.Needs = append(leaf.Needs, make([]procurement.Nano, len(p.Needs[n].Epochs)))
	}
	return leaf
}

// open prepares what the solver prices.
func (s *solver) open() {
	s.useful = s.p.saturation()
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

// grid is the fraction of a unit in which coverage is priced. It is finer for fewer units, so that
// rounding does not separate bound and cost. It stays coarse enough that the largest possible
// hourly spend is distinguishable from more.
func (p *Problem) grid() int64 {
	most := 1
	for m := range p.Epochs {
		e := &p.Epochs[m]
		for i := range e.Pools {
			most = max(most, e.Pools[i].HeldGuaranteed, e.Pools[i].HeldDiscountOnly)
		}
		for c := range e.Cases {
			for _, units := range p.most(&e.Cases[c]) {
				most = max(most, slices.Max(append(units[:len(units):len(units)], 0)))
			}
		}
	}
	g := int64(coarsest)
	for g < finest && 2*g*int64(most) <= 1<<31 {
		g *= 2
	}
	peaks, spent := p.peaks(), big.NewInt(1)
	for m := range p.Epochs {
		for k := range p.Spends {
			v := p.wanted(peaks[m], func(pool int) int64 {
				if s := &p.Epochs[m].Pools[pool]; s.Spend == k {
					return int64(s.SpendPrice)
				}
				return 0
			})
			if v.Cmp(spent) > 0 {
				spent = v
			}
		}
	}
	for spent.Mul(spent, big.NewInt(g)); g > 1 && spent.Cmp(big.NewInt(farBeyond)) > 0; spent.Rsh(spent, 1) {
		g /= 2
	}
	return g
}

// solveAlone solves a part that is a single pool, if it is one.
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

// coupling says why a part needs a linear programming solver.
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
	until   context.Context // when it ends, the search stops
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
	kept    bool      // some priced point keeps them

	branching int // as branchWork

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
	useful  *saturation
	lows    []int // of the path on which the master is solved
	nodes   tree
	gains   map[int]*gain   // by choice
	before  int             // slots priced before
	limit   int             // of work; 0: none yet
	root    *answer         // the last master's without a path
	against map[Member]bool // of an infeasible relaxed problem: what the proof uses
}

// solve is Solve for the part.
func (s *solver) solve() error {
	err := s.search()
	if err == nil && s.best.units == nil && s.spent() {
		return fmt.Errorf("nothing was found within an effort of %d that keeps all needs and limits: allow more",
			s.limit/1_000_000)
	}
	if errors.Is(err, errImpossible) || err == nil && s.best.units == nil {
		return s.clash()
	}
	return err
}

func (s *solver) search() error {
	p := s.p
	s.seen = map[caseKey]*spot{}
	s.lows = p.lows(nil)
	value, cuts, err := s.query(make([]float64, len(p.Choices)), make([]int64, len(p.Limits)))
	if err != nil {
		return err
	}
	least := 0.0
	for _, j := range s.part.Choices {
		least = max(least, float64(p.Choices[j].Cost))
	}
	// Money is scaled so that the cost of buying nothing is a million.
	s.ms = newMaster(p, s.part, s.blocks, s.useful, max(1, max(value, least)/1e6), s.work)
	s.ms.add(cuts, s.blocks)

	root, err := s.cut(nil, cutRounds)
	if err != nil {
		return err
	}
	if err := s.candidates(root); err != nil {
		return err
	}
	first, err := s.prove(root, nil)
	if err != nil {
		return err
	}
	s.nodes = tree{{leafNode: first, answer: root}}
	if !s.near(polishGap) {
		if err := s.polish(); err != nil {
			return err
		}
	}
	if err := s.unlimited(); err != nil {
		return err
	}
	if err := s.whole(root); err != nil {
		return err
	}
	if s.best.units == nil && len(p.Limits) > 0 && s.limit == 0 {
		if err := s.decided(askRounds); err != nil {
			return err
		}
	}
	if s.limit == 0 {
		s.limit = s.effort() + s.branching
	}
	before := s.best.cost
	if err := s.branch(); err != nil || s.best.cost == before {
		return err
	}
	return s.polish()
}

// effort is the work so far, in about a microsecond.
func (s *solver) effort() int {
	sum := s.work.Slots - s.before
	if s.ms != nil {
		sum += s.ms.effort
	}
	return sum
}

// spent reports whether the work that is allowed is done.
func (s *solver) spent() bool { return s.limit > 0 && s.effort() > s.limit }
