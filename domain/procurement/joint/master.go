package joint

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"slices"

	"quartermaster/domain/linear"
	"quartermaster/domain/procurement"
)

// master is the linear program of a part: the units of each choice, what they cover, and an
// estimate from below, by cuts, of the cost of serving each block in each epoch and case. Money is
// scaled to keep numbers moderate.
type master struct {
	p    *Problem
	part *Part
	unit float64

	cost, lower, upper []float64
	rows               []masterRow
	choice             map[int]int    // column of a choice
	cap                map[capKey]int // column of what is bought in addition
	take               map[takeKey]int
	theta              map[caseKey]int
	need               [][]int // by need of the part and its epochs: row
	limit              map[int]int
	limitUnit          map[int]float64
	cuts               []*cut
	firstCut           int // row
	basis              *linear.Basis
	work               *Work
}

type capKey struct{ epoch, kind, of int }

const (
	capGuaranteed = iota
	capDiscountOnly
	capSpend
)

type caseKey struct{ block, epoch, c int }

type takeKey struct {
	caseKey
	limit int
}

type masterRow struct {
	lower, upper float64
	at           []int
	value        []float64
}

func (r *masterRow) put(col int, v float64) {
	if v != 0 {
		r.at, r.value = append(r.at, col), append(r.value, v)
	}
}

// cut says that serving costs at least constant less the additional capacities times their slopes.
// It is a feasible point of the dual of all slots of a block in a case.
type cut struct {
	caseKey
	multipliers []int64 // by limit of the problem
	priced      *priced
	constant    float64   // in Nano, at what is held, times the case's weight
	pi, beta    []float64 // by pool of the block, times the case's weight
	rho         []float64 // by spend of the block, times the case's weight
	row         int       // −1: it is not in the master
	idle        int       // consecutive solutions in which it was slack
}

// longIdle is the number of solutions after which a slack cut is dropped; if it is missed it is
// found again.
const longIdle = 5

// forget drops cuts that have long been slack. They have no price, so the bound does not change.
func (ms *master) forget(a *answer) {
	if a.Basis == nil {
		return
	}
	keep := ms.cuts[:0]
	rows, basis := ms.rows[:ms.firstCut], slices.Clone(a.Basis.Rows[:ms.firstCut])
	for _, c := range ms.cuts {
		if c.row < len(a.Prices) {
			if c.idle++; a.Basis.Rows[c.row] != linear.Basic {
				c.idle = 0
			} else if c.idle > longIdle {
				c.row = -1
				continue
			}
			basis = append(basis, a.Basis.Rows[c.row])
		}
		rows = append(rows, ms.rows[c.row])
		c.row = len(rows) - 1
		keep = append(keep, c)
	}
	ms.cuts, ms.rows = keep, rows
	ms.basis = &linear.Basis{Columns: a.Basis.Columns, Rows: basis}
}

func newMaster(p *Problem, part *Part, blocks []*block, unit float64, work *Work) *master {
	ms := &master{
		p: p, part: part, unit: unit, work: work,
		choice: map[int]int{}, cap: map[capKey]int{}, take: map[takeKey]int{}, theta: map[caseKey]int{},
		limit: map[int]int{}, limitUnit: map[int]float64{},
	}
	w := float64(p.Weight)
	for _, j := range part.Choices {
		c := &p.Choices[j]
		most := math.Inf(1)
		if c.Max != procurement.Unlimited {
			most = float64(c.Max)
		}
		ms.choice[j] = ms.column(float64(c.Cost)*w/unit, 0, most)
	}
	// What choices cover: cap − Σ units·x = 0.
	capRow := map[capKey]int{}
	var order []capKey
	add := func(k capKey, j int, v float64) {
		at, ok := capRow[k]
		if !ok {
			at = len(ms.rows)
			capRow[k] = at
			ms.rows = append(ms.rows, masterRow{})
			ms.cap[k] = ms.column(0, 0, math.Inf(1))
			ms.rows[at].put(ms.cap[k], 1)
			order = append(order, k)
		}
		r := &ms.rows[at]
		for i, col := range r.at {
			if col == ms.choice[j] {
				r.value[i] -= v
				return
			}
		}
		r.put(ms.choice[j], -v)
	}
	for _, j := range part.Choices {
		c := &p.Choices[j]
		for _, k := range c.Cover {
			kind := capDiscountOnly
			if k.Guaranteed {
				kind = capGuaranteed
			}
			for m := k.From; m < k.To; m++ {
				add(capKey{m, kind, k.Pool}, j, float64(k.Units))
			}
		}
		for _, k := range c.Spend {
			for m := k.From; m < k.To; m++ {
				add(capKey{m, capSpend, k.Spend}, j, float64(k.PerHour)/1e9)
			}
		}
	}
	for _, n := range part.Needs {
		need := &p.Needs[n]
		var rows []int
		for _, m := range need.Epochs {
			left := float64(need.Least)
			r := masterRow{upper: math.Inf(1)}
			for _, t := range need.Terms {
				left -= float64(float64(t.PerUnit) * float64(p.Epochs[m].Pools[t.Pool].HeldGuaranteed))
				if col, ok := ms.cap[capKey{m, capGuaranteed, t.Pool}]; ok {
					r.put(col, float64(t.PerUnit))
				}
			}
			r.lower = left
			if p.keeping {
				r.put(ms.column(1/max(1, float64(need.Least)), 0, math.Inf(1)), 1)
			}
			rows = append(rows, len(ms.rows))
			ms.rows = append(ms.rows, r)
		}
		ms.need = append(ms.need, rows)
	}
	for _, l := range part.Limits {
		limit := &p.Limits[l]
		of := unit
		if limit.counts() {
			of = max(1, float64(limit.Most)*w/1e4)
		}
		if p.keeping {
			of = p.scale[l]
		}
		ms.limitUnit[l] = of
		r := masterRow{lower: math.Inf(-1), upper: float64(limit.Most) * w / of}
		for _, j := range part.Choices {
			if s := p.Choices[j].Spent; len(s) > 0 {
				r.put(ms.choice[j], float64(s[l])*w/of)
			}
		}
		if p.keeping {
			r.put(ms.column(1, 0, math.Inf(1)), -1)
		}
		ms.limit[l] = len(ms.rows)
		ms.rows = append(ms.rows, r)
	}
	for b, block := range blocks {
		for m := range p.Epochs {
			for c := range p.Epochs[m].Cases {
				if len(block.views[m][c].hours) == 0 {
					continue
				}
				k := caseKey{b, m, c}
				ms.theta[k] = ms.column(1, 0, math.Inf(1))
				if p.keeping {
					ms.upper[ms.theta[k]] = 0
				}
				for _, l := range part.Limits {
					if s := p.Limits[l].Serving; s != nil && s[m] > 0 {
						col := ms.column(0, 0, math.Inf(1))
						ms.take[takeKey{k, l}] = col
						ms.rows[ms.limit[l]].put(col, 1)
					}
				}
			}
		}
	}
	ms.firstCut = len(ms.rows)
	return ms
}

func (ms *master) column(cost, lower, upper float64) int {
	ms.cost, ms.lower, ms.upper = append(ms.cost, cost), append(ms.lower, lower), append(ms.upper, upper)
	return len(ms.cost) - 1
}

// asked returns the multipliers that apply in an epoch: 0 for limits of which serving takes nothing
// in it. A share that named those would require as much of its leaf.
func (p *Problem) asked(m int, multipliers []int64) []int64 {
	out := slices.Clone(multipliers)
	for l := range out {
		if s := p.Limits[l].Serving; s == nil || s[m] == 0 {
			out[l] = 0
		}
	}
	return out
}

// only drops all cuts that were slack in a solution.
func (ms *master) only(a *answer) {
	if a.Basis == nil {
		return
	}
	slack := map[*cut]bool{}
	for i, c := range a.cuts {
		slack[c] = a.Basis.Rows[ms.firstCut+i] == linear.Basic
	}
	keep, rows := ms.cuts[:0], ms.rows[:ms.firstCut]
	for _, c := range ms.cuts {
		if slack[c] {
			c.row = -1
			continue
		}
		rows = append(rows, ms.rows[c.row])
		c.row = len(rows) - 1
		keep = append(keep, c)
	}
	ms.cuts, ms.rows, ms.basis = keep, rows, nil
}

// newCut makes a cut of priced slots.
func (p *Problem) newCut(blocks []*block, k caseKey, multipliers []int64, pd *priced) *cut {
	b := blocks[k.block]
	f := b.form(k.epoch, k.c, pd.tallies(b))
	w := float64(p.Epochs[k.epoch].Cases[k.c].Weight)
	number := func(x *big.Int) float64 {
		v, _ := new(big.Float).SetInt(x).Float64()
		return v * w
	}
	c := &cut{caseKey: k, row: -1, multipliers: p.asked(k.epoch, multipliers), priced: pd, constant: number(f.held) / 1e9}
	for i := range f.pi {
		c.pi, c.beta = append(c.pi, number(f.pi[i])), append(c.beta, number(f.beta[i]))
	}
	for i := range f.rho {
		c.rho = append(c.rho, number(f.rho[i])/1e9)
	}
	return c
}

// tallies are the priced slots by entry.
func (pd *priced) tallies(b *block) []tally {
	out := make([]tally, len(pd.entries))
	n := len(pd.rows)
	for at, e := range pd.entries {
		t := tally{
			worth: e.worth, hours: pd.hours[at], units: make([]int64, len(b.Demands)),
			share: make([]int64, len(b.Demands)),
		}
		for k, row := range pd.rows {
			v := pd.sums[at*n+k]
			if row < len(b.Demands) {
				t.units[row] = -v
				continue
			}
			for d, share := range pd.regime.spotShare {
				if share == row {
					t.share[d] = v
				}
			}
		}
		for d, share := range pd.regime.spotShare {
			if share < 0 && b.p.Demands[b.Demands[d]].Interruptible == 1000 {
				t.share[d] = t.units[d]
			}
		}
		out[at] = t
	}
	return out
}

// broken returns the cuts that a solution of the master violates.
func (ms *master) broken(cuts []*cut, blocks []*block, a *answer) []*cut {
	var out []*cut
	for _, c := range cuts {
		if ms.p.keeping && ms.p.faint(c.multipliers) {
			continue
		}
		r := ms.rowOf(c, blocks)
		by := r.lower
		for i, col := range r.at {
			by -= float64(r.value[i] * a.X[col])
		}
		if by > 1e-9*max(1, math.Abs(r.lower)) {
			out = append(out, c)
		}
	}
	return out
}

// faint reports whether multipliers are negligible compared with the cost of exceeding each limit.
// A cut of only such multipliers would be a badly scaled duplicate.
func (p *Problem) faint(multipliers []int64) bool {
	for l, v := range multipliers {
		if v > p.ceiling[l]/1e6 {
			return false
		}
	}
	return true
}

// add adds new cuts to the master, and returns how many.
func (ms *master) add(cuts []*cut, blocks []*block) int {
	before := len(ms.cuts)
	for _, c := range cuts {
		if c.row >= 0 || ms.p.keeping && ms.p.faint(c.multipliers) {
			continue
		}
		c.row, c.idle = len(ms.rows), 0
		ms.rows = append(ms.rows, ms.rowOf(c, blocks))
		ms.cuts = append(ms.cuts, c)
		ms.work.Cuts++
	}
	return len(ms.cuts) - before
}

// rowOf is a cut as a row.
func (ms *master) rowOf(c *cut, blocks []*block) masterRow {
	b := blocks[c.block]
	r := masterRow{lower: c.constant / ms.unit, upper: math.Inf(1)}
	r.put(ms.theta[c.caseKey], 1)
	for i, pool := range b.Pools {
		if col, ok := ms.cap[capKey{c.epoch, capGuaranteed, pool}]; ok {
			r.put(col, c.pi[i]/ms.unit)
		}
		if col, ok := ms.cap[capKey{c.epoch, capDiscountOnly, pool}]; ok {
			r.put(col, c.beta[i]/ms.unit)
		}
	}
	for i, spend := range b.Spends {
		if col, ok := ms.cap[capKey{c.epoch, capSpend, spend}]; ok {
			r.put(col, c.rho[i]*1e9/ms.unit)
		}
	}
	for _, l := range ms.part.Limits {
		if col, ok := ms.take[takeKey{c.caseKey, l}]; ok && c.multipliers[l] != 0 {
			v := float64(c.multipliers[l])
			if !ms.p.Limits[l].counts() {
				v /= 1e9
			}
			// Negligible values, such as multipliers that only break ties, would upset the solver's
			// scaling; a proof counts them.
			if v *= ms.limitUnit[l] / ms.unit; v > 1e-7 {
				r.put(col, v)
			}
		}
	}
	return r
}

// program is the master under the bounds of a path.
func (ms *master) program(path []Turn) (*linear.Program, bool) {
	g := &linear.Program{
		Cost: ms.cost, Lower: append([]float64(nil), ms.lower...), Upper: append([]float64(nil), ms.upper...),
		Warm: ms.basis,
	}
	low, high, ok := ms.p.rangeOf(path, ms.part.Choices)
	if !ok {
		return nil, false
	}
	for _, j := range ms.part.Choices {
		col := ms.choice[j]
		g.Lower[col] = float64(low[j])
		if high[j] != procurement.Unlimited {
			g.Upper[col] = float64(high[j])
		}
	}
	g.Start = make([]int, len(ms.cost)+1)
	appendRows(g, ms.rows)
	return g, true
}

// appendRows adds rows to a program that already has its columns.
func appendRows(g *linear.Program, rows []masterRow) {
	old, first := *g, len(g.RowLower)
	count := make([]int, len(g.Cost)+1)
	for j := range len(old.Start) - 1 {
		count[j+1] = old.Start[j+1] - old.Start[j]
	}
	for i := range rows {
		g.RowLower, g.RowUpper = append(g.RowLower, rows[i].lower), append(g.RowUpper, rows[i].upper)
		for _, col := range rows[i].at {
			count[col+1]++
		}
	}
	for j := range g.Cost {
		count[j+1] += count[j]
	}
	g.Start = slices.Clone(count)
	g.Index, g.Value = make([]int, count[len(g.Cost)]), make([]float64, count[len(g.Cost)])
	for j := range len(old.Start) - 1 {
		for k := old.Start[j]; k < old.Start[j+1]; k++ {
			g.Index[count[j]], g.Value[count[j]] = old.Index[k], old.Value[k]
			count[j]++
		}
	}
	for i := range rows {
		for k, col := range rows[i].at {
			g.Index[count[col]], g.Value[count[col]] = first+i, rows[i].value[k]
			count[col]++
		}
	}
}

// answer is a solution of the master.
type answer struct {
	*linear.Solution
	units map[int]float64 // by choice
	bound float64         // in Nano
	cuts  []*cut          // of its last rows
}

// errImpossible means that the master is infeasible.
var errImpossible = fmt.Errorf("no purchases keep all of what is needed and limited")

func (ms *master) solve(ctx context.Context, lp linear.Solver, path []Turn) (*answer, error) {
	g, ok := ms.program(path)
	if !ok {
		return nil, errImpossible
	}
	s, err := lp.Solve(ctx, g, linear.Limits{})
	if err != nil && ctx.Err() == nil && g.Warm != nil {
		// Rarely the simplex fails numerically, and succeeds from another start.
		g.Warm = nil
		s, err = lp.Solve(ctx, g, linear.Limits{})
	}
	if err != nil {
		return nil, err
	}
	ms.work.Masters++
	ms.work.Iterations += s.Iterations
	switch s.Status {
	case linear.Optimal:
	case linear.Infeasible:
		return nil, errImpossible
	default:
		return nil, fmt.Errorf("the linear program of %d choices and %d cuts: the solver says %s",
			len(ms.part.Choices), len(ms.cuts), s.Status)
	}
	ms.basis = s.Basis
	a := &answer{Solution: s, units: map[int]float64{}, bound: s.Objective * ms.unit, cuts: slices.Clone(ms.cuts)}
	for _, j := range ms.part.Choices {
		a.units[j] = max(0, s.X[ms.choice[j]])
	}
	return a, nil
}

// multipliers are those of limits in the solution, by limit of the problem, in their units.
func (ms *master) multipliers(a *answer) []int64 {
	out := make([]int64, len(ms.p.Limits))
	for _, l := range ms.part.Limits {
		v := max(0, -a.Prices[ms.limit[l]]) * ms.unit / ms.limitUnit[l]
		if !ms.p.Limits[l].counts() {
			v *= 1e9
		}
		out[l] = int64(min(v, 1e18))
	}
	return out
}

// prove rounds the prices of a solution to a proof. It repairs what rounding and the solver's
// tolerance broke: weights with a sum above One, limits that shares price higher, and unbounded
// choices that are worth more than they cost.
func (ms *master) prove(a *answer, blocks []*block, path []Turn) (*proof, []*cut) {
	p := ms.p
	pf := &proof{p: p, part: ms.part, blocks: blocks, path: path, limits: ms.multipliers(a)}
	for i, n := range ms.part.Needs {
		var of []procurement.Nano
		for k := range p.Needs[n].Epochs {
			v := max(0, a.Prices[ms.need[i][k]]) * ms.unit / float64(p.Weight)
			of = append(of, procurement.Nano(min(v, 1e18)))
		}
		pf.needs = append(pf.needs, of)
	}
	place := map[caseKey]int{}
	var used []*cut
	for i, c := range a.cuts {
		weight := int64(a.Prices[ms.firstCut+i] * One)
		if weight <= 0 {
			continue
		}
		at, ok := place[c.caseKey]
		if !ok {
			at = len(pf.cases)
			place[c.caseKey] = at
			pf.cases = append(pf.cases, weighed{block: c.block, epoch: c.epoch, weight: p.Epochs[c.epoch].Cases[c.c].Weight})
		}
		of := c.priced.tallies(blocks[c.block])
		f := blocks[c.block].form(c.epoch, c.c, of)
		pf.cases[at].shares = append(pf.cases[at].shares, weighedShare{
			form: f, weight: min(weight, One), limits: c.multipliers, of: of,
		})
		used = append(used, c)
	}
	for i := range pf.cases {
		w := &pf.cases[i]
		total := int64(0)
		for k := range w.shares {
			total += w.shares[k].weight
		}
		for k := range w.shares {
			if total > One {
				w.shares[k].weight = int64(float64(w.shares[k].weight) / float64(total) * (One - 1000))
			}
		}
		for _, l := range ms.part.Limits {
			sum := new(big.Int)
			for k := range w.shares {
				sum.Add(sum, new(big.Int).Mul(big.NewInt(w.shares[k].limits[l]), big.NewInt(w.shares[k].weight)))
			}
			if v := sum.Add(sum, big.NewInt(One-1)).Quo(sum, big.NewInt(One)).Int64(); p.Limits[l].Serving != nil &&
				v > pf.limits[l] {
				pf.limits[l] = v
			}
		}
	}
	ms.afford(pf)
	return pf, used
}

// afford lowers the shares and needs of epochs until no unbounded choice is worth more than it
// costs.
func (ms *master) afford(pf *proof) {
	p := ms.p
	_, high, ok := p.rangeOf(pf.path, ms.part.Choices)
	if !ok {
		return
	}
	of := make([]int, len(p.Pools))
	ofSpend := make([]int, len(p.Spends))
	for b := range pf.blocks {
		for _, i := range pf.blocks[b].Pools {
			of[i] = b
		}
		for _, i := range pf.blocks[b].Spends {
			ofSpend[i] = b
		}
	}
	for range 3 {
		_, s := pf.sum()
		again := false
		for _, j := range ms.part.Choices {
			if high[j] != procurement.Unlimited {
				continue
			}
			worth, cost := pf.worth(j, &s)
			if worth.Cmp(cost) <= 0 {
				continue
			}
			// ⌊cost/worth⌋ in 1/One, slightly reduced for rounding.
			v := new(big.Int).Mul(cost, big.NewInt(One))
			factor := max(0, v.Quo(v, worth).Int64()-1)
			lower := func(m, b int, worth func(*form) *big.Int) {
				for i := range pf.cases {
					if w := &pf.cases[i]; w.epoch == m && w.block == b {
						for k := range w.shares {
							if worth(w.shares[k].form).Sign() > 0 {
								w.shares[k].weight = scale(w.shares[k].weight, factor, One)
							}
						}
					}
				}
			}
			for _, k := range p.Choices[j].Cover {
				for m := k.From; m < k.To; m++ {
					at, _ := slices.BinarySearch(pf.blocks[of[k.Pool]].Pools, k.Pool)
					lower(m, of[k.Pool], func(f *form) *big.Int {
						if k.Guaranteed {
							return f.pi[at]
						}
						return f.beta[at]
					})
					for i, n := range ms.part.Needs {
						for at, e := range p.Needs[n].Epochs {
							if e == m {
								pf.needs[i][at] = procurement.Nano(scale(int64(pf.needs[i][at]), factor, One))
							}
						}
					}
				}
			}
			for _, k := range p.Choices[j].Spend {
				for m := k.From; m < k.To; m++ {
					at, _ := slices.BinarySearch(pf.blocks[ofSpend[k.Spend]].Spends, k.Spend)
					lower(m, ofSpend[k.Spend], func(f *form) *big.Int { return f.rho[at] })
				}
			}
			again = true
			_, s = pf.sum()
		}
		if !again {
			return
		}
	}
}

// leaf writes a proof as a Leaf.
func (ms *master) leaf(pf *proof, used []*cut) Leaf {
	p := ms.p
	byPart := func(v []int64) []int64 {
		out := make([]int64, 0, len(ms.part.Limits))
		for _, l := range ms.part.Limits {
			out = append(out, v[l])
		}
		return out
	}
	leaf := Leaf{Path: pf.path, Limits: byPart(pf.limits), Needs: pf.needs, Cases: []CaseProof{}}
	if len(ms.part.Limits) == 0 {
		leaf.Limits = nil
	}
	place := map[caseKey]int{}
	share := map[caseKey]int{}
	for _, c := range used {
		at, ok := place[c.caseKey]
		if !ok {
			at = len(leaf.Cases)
			place[c.caseKey] = at
			leaf.Cases = append(leaf.Cases, CaseProof{Block: c.block, Epoch: c.epoch, Case: c.c})
		}
		weight := pf.cases[at].shares[share[c.caseKey]].weight
		share[c.caseKey]++
		if weight == 0 {
			continue
		}
		to := &leaf.Cases[at]
		where := make([]int, len(c.priced.entries))
		for i, e := range c.priced.entries {
			where[i] = -1
			for k := range to.Vectors {
				if equalVectors(&to.Vectors[k], &e.vector) {
					where[i] = k
					break
				}
			}
			if where[i] < 0 {
				where[i] = len(to.Vectors)
				to.Vectors = append(to.Vectors, e.vector)
			}
		}
		s := Share{Weight: weight, Slots: shareOf(c.priced.slots, where)}
		for _, l := range ms.part.Limits {
			if p.Limits[l].Serving != nil && c.multipliers[l] != 0 {
				s.Limits = byPart(c.multipliers)
				for i, l := range ms.part.Limits {
					if p.Limits[l].Serving == nil {
						s.Limits[i] = 0
					}
				}
				break
			}
		}
		to.Shares = append(to.Shares, s)
	}
	return leaf
}
