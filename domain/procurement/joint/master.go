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
	useful             *saturation
	covers             []covered
	rounds             []rounded
	roundRow           []int
	cuts               []*cut
	firstCut           int // row
	basis              *linear.Basis
	work               *Work
	effort             int // of the programs solved, in about a microsecond
}

// covered is an entry of a row of what choices cover: at so many units of a choice and more, each
// counts for min(each, most/units).
type covered struct {
	choice, row, entry int
	each, most         float64
	sign               float64
}

// at is what a unit counts for where at least n are bought, if any.
func (c *covered) at(n int) float64 { return c.sign * min(c.each, c.most/float64(n)) }

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
	vectors     []*Vector
	slots       []int32 // by slot: its vector
	form        *form
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
func (ms *master) forget(a *answer, idle int) {
	if a.Basis == nil {
		return
	}
	keep := ms.cuts[:0]
	rows, basis := ms.rows[:ms.firstCut], slices.Clone(a.Basis.Rows[:ms.firstCut])
	for _, c := range ms.cuts {
		if c.row < len(a.Prices) {
			if c.idle++; a.Basis.Rows[c.row] != linear.Basic {
				c.idle = 0
			} else if c.idle > idle {
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

func newMaster(p *Problem, part *Part, blocks []*block, useful *saturation, unit float64, work *Work) *master {
	ms := &master{
		p: p, part: part, unit: unit, work: work,
		choice: map[int]int{}, cap: map[capKey]int{}, take: map[takeKey]int{}, theta: map[caseKey]int{},
		limit: map[int]int{}, limitUnit: map[int]float64{}, useful: useful,
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
	add := func(k capKey, j int, each, most float64) {
		at, ok := capRow[k]
		if !ok {
			at = len(ms.rows)
			capRow[k] = at
			ms.rows = append(ms.rows, masterRow{})
			ms.cap[k] = ms.column(0, 0, math.Inf(1))
			ms.rows[at].put(ms.cap[k], 1)
		}
		r := &ms.rows[at]
		c := covered{j, at, slices.Index(r.at, ms.choice[j]), each, most, -1}
		v := c.at(p.Choices[j].least())
		if c.entry >= 0 {
			// Two covers of one pool count in full together.
			for i := range ms.covers {
				if x := &ms.covers[i]; x.choice == j && x.row == at {
					x.each, x.most = x.each+each, math.Inf(1)
					r.value[c.entry] = -x.each
				}
			}
			return
		}
		c.entry = len(r.at)
		r.at, r.value = append(r.at, ms.choice[j]), append(r.value, v)
		ms.covers = append(ms.covers, c)
	}
	for _, j := range part.Choices {
		c := &p.Choices[j]
		for i := range c.Cover {
			k := &c.Cover[i]
			kind := capDiscountOnly
			if k.Guaranteed {
				kind = capGuaranteed
			}
			for m := k.From; m < k.To; m++ {
				add(capKey{m, kind, k.Pool}, j, float64(k.Units), float64(ms.useful.most(k, m)))
			}
		}
		for _, k := range c.Spend {
			for m := k.From; m < k.To; m++ {
				most, _ := new(big.Float).SetInt(ms.useful.spends[m][k.Spend]).Float64()
				add(capKey{m, capSpend, k.Spend}, j, float64(k.PerHour)/1e9, most/1e9)
			}
		}
	}
	// At most one choice of a group is bought, and of each at most what is of use.
	groups := map[string]int{}
	for _, j := range part.Choices {
		g := p.Choices[j].Group
		if g == "" || p.useful(ms.useful, j) == 0 {
			continue
		}
		at, ok := groups[g]
		if !ok {
			at = len(ms.rows)
			groups[g] = at
			ms.rows = append(ms.rows, masterRow{lower: math.Inf(-1), upper: 1})
		}
		ms.rows[at].put(ms.choice[j], 1/float64(p.useful(ms.useful, j)))
	}
	for _, n := range part.Needs {
		need := &p.Needs[n]
		var rows []int
		for _, m := range need.Epochs {
			r := masterRow{lower: float64(need.left(p, m)), upper: math.Inf(1)}
			for _, t := range need.Terms {
				if col, ok := ms.cap[capKey{m, capGuaranteed, t.Pool}]; ok {
					r.put(col, float64(t.PerUnit))
				}
			}
			if p.keeping {
				r.put(ms.column(1/max(1, float64(need.Least)), 0, math.Inf(1)), 1)
			}
			rows = append(rows, len(ms.rows))
			ms.rows = append(ms.rows, r)
		}
		ms.need = append(ms.need, rows)
	}
	if !p.keeping {
		ms.rounds = p.rounds(part)
	}
	for i := range ms.rounds {
		r := &ms.rounds[i]
		row := masterRow{lower: float64(r.most), upper: math.Inf(1)}
		for _, j := range part.Choices {
			if each := r.each(p, j); each > 0 {
				c := covered{j, len(ms.rows), len(row.at), float64(each), float64(r.most), 1}
				row.put(ms.choice[j], c.at(p.Choices[j].least()))
				ms.covers = append(ms.covers, c)
			}
		}
		ms.roundRow = append(ms.roundRow, len(ms.rows))
		ms.rows = append(ms.rows, row)
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
	c := &cut{
		caseKey: k, row: -1, multipliers: p.asked(k.epoch, multipliers), form: f, constant: number(f.held) / 1e9,
	}
	c.vectors, c.slots = pd.proven()
	for i := range f.pi {
		c.pi, c.beta = append(c.pi, number(f.pi[i])), append(c.beta, number(f.beta[i]))
	}
	for i := range f.rho {
		c.rho = append(c.rho, number(f.rho[i])/1e9)
	}
	return c
}

// tallies are the priced slots by entry, or by what proves them where work waits.
func (pd *priced) tallies(b *block) []tally {
	if pd.windows != nil {
		return pd.windows.tallies
	}
	out := make([]tally, len(pd.entries))
	n := len(pd.rows)
	for at, e := range pd.entries {
		_, of := pd.regime.proves(e)
		t := tally{
			worth: of, hours: pd.hours[at], units: make([]int64, len(b.Demands)),
			share: make([]int64, len(b.Demands)),
		}
		for k, row := range pd.rows {
			v := pd.sums[at*n+k] / pd.grid
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

// tallies are those that the cut is made of.
func (c *cut) tallies(b *block) []tally {
	v, h := &b.views[c.epoch][c.c], b.multiplied(c.epoch, c.c, c.multipliers)
	out := make([]tally, len(c.vectors))
	for i, x := range c.vectors {
		out[i] = tally{worth: h.worth(b, x), units: make([]int64, len(b.Demands)), share: make([]int64, len(b.Demands))}
	}
	if v.waits == nil {
		for s, at := range c.slots {
			out[at].add(b, v, s)
		}
	}
	b.spread(v, out, c.slots)
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
	for i := range ms.covers {
		if c := &ms.covers[i]; low[c.choice] > ms.p.Choices[c.choice].least() {
			ms.rows[c.row].value[c.entry] = c.at(low[c.choice])
		}
	}
	appendRows(g, ms.rows)
	for i := range ms.covers {
		if c := &ms.covers[i]; low[c.choice] > ms.p.Choices[c.choice].least() {
			ms.rows[c.row].value[c.entry] = c.at(ms.p.Choices[c.choice].least())
		}
	}
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

// missing is the price of missing a need by one or a limit by its unit, in the master's money, of
// which buying nothing costs a million.
const missing = 1e6

// errImpossible means that the master is infeasible.
var errImpossible = fmt.Errorf("no purchases keep all of what is needed and limited")

func (ms *master) solve(ctx context.Context, lp linear.Solver, path []Turn) (*answer, error) {
	g, ok := ms.program(path)
	if !ok {
		return nil, errImpossible
	}
	return ms.run(ctx, lp, g)
}

// missed solves the master where needs and limits may be missed, at a price that is beyond any
// cost. Its prices prove a high bound where the needs and limits are impossible under the path.
func (ms *master) missed(ctx context.Context, lp linear.Solver, path []Turn) (*answer, error) {
	g, ok := ms.program(path)
	if !ok {
		return nil, errImpossible
	}
	var at []int
	var by []float64
	for _, rows := range ms.need {
		for _, row := range rows {
			at, by = append(at, row), append(by, 1)
		}
	}
	for _, row := range ms.roundRow {
		at, by = append(at, row), append(by, 1)
	}
	for _, l := range ms.part.Limits {
		at, by = append(at, ms.limit[l]), append(by, -1)
	}
	g.Cost, g.Lower, g.Upper = slices.Clone(g.Cost), slices.Clone(g.Lower), slices.Clone(g.Upper)
	for i := range at {
		g.Cost, g.Lower, g.Upper = append(g.Cost, missing), append(g.Lower, 0), append(g.Upper, math.Inf(1))
		g.Index, g.Value = append(g.Index, at[i]), append(g.Value, by[i])
		g.Start = append(g.Start, len(g.Index))
	}
	g.Warm = nil
	basis := ms.basis
	a, err := ms.run(ctx, lp, g)
	ms.basis = basis
	return a, err
}

// count counts the work of a program.
func (ms *master) count(g *linear.Program, s *linear.Solution) {
	size := len(g.Cost) + len(g.RowLower)
	ms.work.Masters++
	ms.work.Iterations += s.Iterations
	each := size / 2
	if g.Whole != nil {
		each = max(150, size/6) // many are of smaller programs, and each has cuts of its own
	}
	ms.effort += 4000 + 10*size + (s.Iterations+10*s.Nodes)*each
}

// run solves the master's program.
func (ms *master) run(ctx context.Context, lp linear.Solver, g *linear.Program) (*answer, error) {
	s, err := lp.Solve(ctx, g, linear.Limits{})
	if err != nil && ctx.Err() == nil && g.Warm != nil {
		// Rarely the simplex fails numerically, and succeeds from another start.
		g.Warm = nil
		s, err = lp.Solve(ctx, g, linear.Limits{})
	}
	if err != nil {
		return nil, err
	}
	ms.count(g, s)
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
// tolerance broke: weights with a sum above One, and limits that shares price higher.
func (ms *master) prove(a *answer, blocks []*block, path []Turn) (*proof, []*cut) {
	p := ms.p
	pf := &proof{p: p, part: ms.part, blocks: blocks, path: path, limits: ms.multipliers(a), useful: ms.useful}
	for i, n := range ms.part.Needs {
		var of []procurement.Nano
		for k := range p.Needs[n].Epochs {
			v := max(0, a.Prices[ms.need[i][k]]) * ms.unit / float64(p.Weight)
			of = append(of, procurement.Nano(min(v, 1e18)))
		}
		pf.needs = append(pf.needs, of)
	}
	for i, r := range ms.rounds {
		v := max(0, a.Prices[ms.roundRow[i]]) * ms.unit / float64(p.Weight)
		if price := procurement.Nano(min(v, 1e18)); price > 0 {
			pf.rounds = append(pf.rounds, roundPrice{r, price})
		}
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
		pf.cases[at].shares = append(pf.cases[at].shares, weighedShare{
			form: c.form, weight: min(weight, One), limits: c.multipliers, from: c,
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
	return pf, used
}

// written is the cuts of a part's proofs, by block, epoch and case as they are first used.
type written struct {
	ms    *master
	place map[caseKey]int
	at    map[*cut][2]int // case and cut
}

// put writes a cut, unless it is there already.
func (w *written) put(c *cut) {
	if _, ok := w.at[c]; ok {
		return
	}
	p, part := w.ms.p, w.ms.part
	at, ok := w.place[c.caseKey]
	if !ok {
		at = len(part.Cases)
		w.place[c.caseKey] = at
		part.Cases = append(part.Cases, CaseProof{Block: c.block, Epoch: c.epoch, Case: c.c})
	}
	to := &part.Cases[at]
	where := make([]int, len(c.vectors))
	for i, x := range c.vectors {
		where[i] = slices.IndexFunc(to.Vectors, func(v Vector) bool { return equalVectors(&v, x) })
		if where[i] < 0 {
			where[i] = len(to.Vectors)
			to.Vectors = append(to.Vectors, *x)
		}
	}
	x := Cut{Slots: shareOf(c.slots, where)}
	for _, l := range part.Limits {
		if p.Limits[l].Serving != nil && c.multipliers[l] != 0 {
			x.Limits = w.ms.byPart(c.multipliers)
			for i, l := range part.Limits {
				if p.Limits[l].Serving == nil {
					x.Limits[i] = 0
				}
			}
			break
		}
	}
	w.at[c] = [2]int{at, len(to.Cuts)}
	to.Cuts = append(to.Cuts, x)
}

// byPart converts multipliers by limit of the problem to those by limit of the part.
func (ms *master) byPart(v []int64) []int64 {
	out := make([]int64, 0, len(ms.part.Limits))
	for _, l := range ms.part.Limits {
		out = append(out, v[l])
	}
	return out
}

// write writes proofs as the leaves of the part, and the cuts that they use.
func (ms *master) write(leafs tree) {
	w := &written{ms: ms, place: map[caseKey]int{}, at: map[*cut][2]int{}}
	for i := range leafs {
		leafs[i].each(func(c *cut, weight int64) {
			if weight != 0 {
				w.put(c)
			}
		})
	}
	first := make([]int, len(ms.part.Cases)+1) // the number of each case's first cut
	for i := range ms.part.Cases {
		first[i+1] = first[i] + len(ms.part.Cases[i].Cuts)
	}
	rounds := map[Round]int{}
	for i := range leafs {
		n := leafs[i]
		leaf := Leaf{Path: n.path, Limits: ms.byPart(n.pf.limits), Needs: n.pf.needs, Shares: []Share{}}
		if len(ms.part.Limits) == 0 {
			leaf.Limits = nil
		}
		n.each(func(c *cut, weight int64) {
			if weight != 0 {
				leaf.Shares = append(leaf.Shares, Share{first[w.at[c][0]] + w.at[c][1], weight})
			}
		})
		for _, r := range n.pf.rounds {
			at, ok := rounds[r.Round]
			if !ok {
				at = len(ms.part.Rounds)
				rounds[r.Round] = at
				ms.part.Rounds = append(ms.part.Rounds, r.Round)
			}
			leaf.Rounds = append(leaf.Rounds, RoundPrice{at, r.price})
		}
		slices.SortFunc(leaf.Shares, func(a, b Share) int { return a.Cut - b.Cut })
		ms.part.Leaves = append(ms.part.Leaves, leaf)
	}
}
