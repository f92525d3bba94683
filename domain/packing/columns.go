package packing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"

	"quartermaster/domain/linear"
)

// Column generation (Gilmore and Gomory, "A linear programming approach to the cutting-stock
// problem", Operations Research 9, 1961). A column is one machine with its contents. A linear
// program chooses how many machines of each column, allowing fractions, so that every demand is met
// at least cost. Its dual prices of the demands tell which machine is missing most, and pricing
// finds it.
//
// Floating point only proposes prices. Rounded to integers they still give a proof: if no machine
// of a kind can hold more worth than it costs, then holding everything costs at least its worth. If
// some kind holds ρ times its cost, dividing all prices by ρ proves the bound (Farley, "A note on
// bounding a class of linear programming problems", Operations Research 38, 1990).

// column is a machine of a class with its contents.
type column struct {
	class int
	puts  []put
	sums  []count // of replicas by demand, ascending
	x     float64 // machines, in the program's solution
}

// put is one replica to be placed on a machine. Parts with the same slot share a GPU, and so do
// instances, each with its own start. Slots are numbered from 0 in order of use.
type put struct{ demand, slot, start int }

// master is the linear program and its results.
type master struct {
	p       *problem
	ctx     context.Context
	lp      linear.Solver
	columns []*column
	seen    map[string]bool
	rows    []int // demand of each row
	rowOf   []int // by demand, -1 for none
	unit    float64
	costs   []int64 // of a machine by class, in integer prices
	work    int64   // remaining labels that pricing may create
	bound   *big.Rat
	prices  []int64 // by demand; they prove the bound
	worth   []int64 // by class; the most that a machine holds at these prices
	told    Columns
}

// Bounds on the effort of column generation.
const (
	mostRounds  = 64
	newColumns  = 64 // per round and class
	labelWork   = 60_000_000
	dives       = 40
	priceDigits = 26 // the cost of the most expensive machine is about 1<<priceDigits
	absent      = 16 // cost of an unplaced replica, as a multiple of the most expensive machine
)

// improve looks for a better outcome than the best greedy one, and for a bound.
func (p *problem) improve(ctx context.Context, best *run, starts []*run, lp linear.Solver) (*run, *master, error) {
	m := &master{p: p, ctx: ctx, lp: lp, seen: map[string]bool{}, work: labelWork, bound: new(big.Rat)}
	m.told.State = ColumnsDone
	m.begin(starts)
	if len(m.rows) == 0 {
		return best, m, nil
	}
	x, err := m.generate()
	if err == nil && x != nil {
		best, err = m.round(best, x, dives)
	}
	switch {
	case err == nil:
	case errors.Is(err, linear.ErrUnavailable):
		m.told.State = ColumnsUnavailable
	default:
		return nil, nil, err
	}
	m.told.Patterns = len(m.columns)
	return best, m, nil
}

// begin takes the machines of the greedy orders as the first columns.
func (m *master) begin(starts []*run) {
	p := m.p
	m.rowOf = make([]int, len(p.demands))
	for i := range p.demands {
		m.rowOf[i] = -1
		if p.room[i] > 0 && p.demands[i].replicas > 0 {
			m.rowOf[i] = len(m.rows)
			m.rows = append(m.rows, i)
		}
	}
	top := int64(1)
	for c := range p.classes {
		top = max(top, p.cost(c))
	}
	m.unit = math.Ldexp(1/float64(top), priceDigits)
	m.costs = make([]int64, len(p.classes))
	for c := range m.costs {
		m.costs[c] = max(1, int64(math.Round(float64(p.cost(c))*m.unit)))
	}
	for _, r := range starts {
		for _, g := range r.groups {
			for _, b := range g.batches {
				if b.on != nil && b.n > 0 {
					m.add(g.class, p.puts(g.class, b.on))
				}
			}
		}
	}
	for _, i := range m.rows {
		for c := range p.classes {
			if p.takes(c, i) {
				if alone := p.fillWith(c, i); len(alone) > 0 {
					m.add(c, alone)
				}
			}
		}
	}
}

// cost returns the cost of a machine of a class.
func (p *problem) cost(class int) int64 {
	if !p.priced {
		return 1
	}
	return p.classes[class].node.Cost
}

// puts lists the contents of a machine that started empty.
func (p *problem) puts(class int, on *content) []put {
	var list []*content
	for ; on != nil; on = on.below {
		list = append(list, on)
	}
	free := make([]uint16, len(p.classes[class].empty.free))
	for i := range free {
		free[i] = 1000
	}
	slots, slotOf := 0, make([]int, len(free))
	var divided []gpuMask // by slot
	var puts []put
	for _, c := range slices.Backward(list) {
		d := &p.demands[c.demand]
		for range c.n {
			switch {
			case d.profiles != nil:
				start, before := decode(c.from)
				slot := slots
				if before == 0 {
					free[slices.Index(free, 1000)] = 0
					slots++
				} else {
					slot = slices.Index(divided, before)
				}
				for len(divided) <= slot {
					divided = append(divided, 0)
				}
				divided[slot] = before | d.profiles[class].taken(start)
				puts = append(puts, put{c.demand, slot, start})
			case d.part > 0:
				i := slices.Index(free, c.from)
				if c.from == 1000 {
					slotOf[i] = slots
					slots++
				}
				free[i] -= d.part
				puts = append(puts, put{c.demand, slotOf[i], 0})
			case d.whole > 0:
				for i, left := 0, d.whole; left > 0; i++ {
					if free[i] == 1000 {
						free[i] = 0
						left--
					}
				}
				puts = append(puts, put{c.demand, nothing, 0})
			default:
				puts = append(puts, put{c.demand, nothing, 0})
			}
		}
	}
	return puts
}

// fillWith fills an empty machine with replicas of one demand.
func (p *problem) fillWith(class, demand int) []put {
	d := &p.demands[demand]
	s := p.classes[class].empty
	free := make([]int, 0, 8) // by slot
	var divided []gpuMask     // by slot
	var puts []put
	for n := 0; n < d.replicas && (d.maxPerNode == 0 || n < d.maxPerNode); n++ {
		if n > 0 && p.parted(demand, class) || s.lacks(d) != "" || s.owner != nobody && s.owner != demand {
			break
		}
		slot, from, start := nothing, uint16(0), 0
		if d.profiles != nil {
			from, _ = s.wherever(d.profiles[class])
			var before gpuMask
			if start, before = decode(from); before == 0 {
				slot = len(divided)
				divided = append(divided, 0)
			} else {
				slot = slices.Index(divided, before)
			}
			divided[slot] = before | d.profiles[class].taken(start)
		}
		if d.part > 0 {
			slot = slices.IndexFunc(free, func(f int) bool { return f >= int(d.part) })
			if slot < 0 {
				slot = len(free)
				free = append(free, 1000)
			}
			from = uint16(free[slot])
			free[slot] -= int(d.part)
		}
		s = s.with(demand, d, from)
		puts = append(puts, put{demand, slot, start})
	}
	return puts
}

// add adds a column unless it is known.
func (m *master) add(class int, puts []put) bool {
	by := map[int]int{}
	for _, x := range puts {
		if m.rowOf[x.demand] >= 0 {
			by[x.demand]++
		}
	}
	col := &column{class: class, puts: puts}
	key := binary.AppendUvarint(nil, uint64(class))
	for _, i := range m.rows {
		if n := by[i]; n > 0 {
			col.sums = append(col.sums, count{i, n})
			key = binary.AppendUvarint(binary.AppendUvarint(key, uint64(i)), uint64(n))
		}
	}
	if len(col.sums) == 0 || m.seen[string(key)] {
		return false
	}
	m.seen[string(key)] = true
	m.columns = append(m.columns, col)
	return true
}

// program states the remaining replicas as a linear program. After the columns come, for every row,
// replicas without a machine.
func (m *master) program(left []int, machines []int) *linear.Program {
	p := m.p
	q := &linear.Program{Start: []int{0}}
	top := 0.0
	for c := range p.classes {
		top = max(top, float64(p.cost(c)))
	}
	limit := make([]int, len(p.classes)) // row of the available machines
	rows := len(m.rows)
	for _, i := range m.rows {
		q.RowLower = append(q.RowLower, float64(left[i]))
		q.RowUpper = append(q.RowUpper, math.Inf(1))
	}
	for c := range p.classes {
		limit[c] = -1
		if p.classes[c].n < unbounded {
			limit[c] = rows
			rows++
			q.RowLower = append(q.RowLower, math.Inf(-1))
			q.RowUpper = append(q.RowUpper, float64(machines[c]))
		}
	}
	end := func(cost float64) {
		q.Cost = append(q.Cost, cost)
		q.Lower = append(q.Lower, 0)
		q.Upper = append(q.Upper, math.Inf(1))
		q.Start = append(q.Start, len(q.Index))
	}
	for _, col := range m.columns {
		for _, s := range col.sums {
			q.Index = append(q.Index, m.rowOf[s.demand])
			q.Value = append(q.Value, float64(s.n))
		}
		if limit[col.class] >= 0 {
			q.Index = append(q.Index, limit[col.class])
			q.Value = append(q.Value, 1)
		}
		end(float64(p.cost(col.class)))
	}
	for row := range m.rows {
		q.Index = append(q.Index, row)
		q.Value = append(q.Value, 1)
		end(absent * top)
	}
	return q
}

func (m *master) solve(left, machines []int) (*linear.Solution, error) {
	q := m.program(left, machines)
	s, err := m.lp.Solve(m.ctx, q, linear.Limits{})
	if err != nil {
		return nil, fmt.Errorf("choose among %d patterns: %w", len(m.columns), err)
	}
	m.told.Programs++
	if s.Status != linear.Optimal {
		return nil, nil // the caller continues with what there is
	}
	for j, col := range m.columns {
		col.x = s.X[j]
	}
	return s, nil
}

// generate adds columns until none is missing, and returns the last solution.
func (m *master) generate() (*linear.Solution, error) {
	left, machines := m.all()
	for m.told.Rounds < mostRounds {
		s, err := m.solve(left, machines)
		if err != nil || s == nil {
			return nil, err
		}
		m.told.Rounds++
		grown := m.price(s.Prices)
		if !grown {
			return s, nil
		}
		if m.work <= 0 {
			m.told.State = ColumnsStopped
			return s, nil
		}
	}
	m.told.State = ColumnsStopped
	return m.solve(left, machines)
}

// all returns every replica and every machine.
func (m *master) all() (left, machines []int) {
	left, machines = make([]int, len(m.p.demands)), make([]int, len(m.p.classes))
	for _, i := range m.rows {
		left[i] = m.p.demands[i].replicas
	}
	for c := range machines {
		machines[c] = m.p.classes[c].n
	}
	return left, machines
}

// price proves a bound by the prices of a solution and adds the missing columns. It returns false
// if none is missing.
func (m *master) price(prices []float64) bool {
	p := m.p
	whole := make([]int64, len(p.demands))
	for row, i := range m.rows {
		if v := math.Floor(prices[row] * m.unit); v > 0 {
			whole[i] = int64(min(v, 1<<(priceDigits+8)))
		}
	}
	grown := false
	worth := make([]int64, len(p.classes)) // upper bound of what a machine of the class holds
	row := len(m.rows)
	for c := range p.classes {
		rent := int64(0) // value of one more machine of the class
		if p.classes[c].n < unbounded {
			rent = int64(math.Ceil(min(max(0, -prices[row])*m.unit, 1<<(priceDigits+8))))
			row++
		}
		for _, barred := range p.separated() {
			q := m.pricing(c, whole, barred)
			q.threshold = m.costs[c] + rent + 1
			q.work = m.work
			bound, sets := q.solve(newColumns)
			m.work = q.work
			worth[c] = max(worth[c], bound)
			for _, set := range sets {
				grown = m.add(c, q.puts(set.fills)) || grown
			}
		}
		for _, i := range m.rows {
			if d := &p.demands[i]; d.dedicated && p.takes(c, i) {
				worth[c] = max(worth[c], saturated(0, whole[i], int64(len(p.fillWith(c, i)))))
			}
		}
	}
	m.prove(whole, worth)
	return grown
}

// separated lists sets of workload classes, as bits. On every machine, all classes of at least one
// set are absent, and the remaining ones may share it. If there would be too many sets, the
// separation of classes is ignored.
func (p *problem) separated() []uint64 {
	sets := []uint64{0}
	for i := range p.demands {
		a := &p.demands[i]
		for j := range p.demands[:i] {
			if b := &p.demands[j]; a.against&b.tag != 0 {
				var next []uint64
				for _, s := range sets {
					if s&(a.tag|b.tag) != 0 {
						next = append(next, s)
					} else {
						next = append(next, s|a.tag, s|b.tag)
					}
				}
				if sets = set(next); len(sets) > mostSeparated {
					return []uint64{0}
				}
			}
		}
	}
	// A set that contains another one leaves fewer classes and is not needed.
	return slices.DeleteFunc(slices.Clone(sets), func(s uint64) bool {
		return slices.ContainsFunc(sets, func(t uint64) bool { return t != s && t&s == t })
	})
}

const mostSeparated = 8

// pricing states what one machine of a class can hold at given prices while some workload classes
// are barred from it.
func (m *master) pricing(class int, prices []int64, barred uint64) *pricing {
	k := &m.p.classes[class]
	q := &pricing{cpu: k.empty.cpu, mem: k.empty.mem, gpus: len(k.empty.free)}
	for _, i := range m.rows {
		d := &m.p.demands[i]
		if d.dedicated || d.tag&barred != 0 || prices[i] == 0 || !m.p.takes(class, i) {
			continue
		}
		it := item{demand: i, price: prices[i], cpu: d.cpu, mem: d.mem, gpus: d.whole, part: d.part, most: d.replicas}
		if d.profiles != nil {
			it.profile = d.profiles[class]
		}
		q.items = append(q.items, it)
	}
	return q
}

// puts converts sets of items by GPU to replicas to be placed.
func (q *pricing) puts(fills [][]placed) []put {
	slots := 0
	var puts []put
	for _, fill := range fills {
		slot := nothing
		if q.items[fill[0].item].shares() {
			slot = slots
			slots++
		}
		for _, x := range fill {
			puts = append(puts, put{q.items[x.item].demand, slot, x.start})
		}
	}
	return puts
}

// prove raises the bound to what the prices prove, given the most that a machine of each class
// holds.
func (m *master) prove(prices, worth []int64) {
	p := m.p
	sum := new(big.Int)
	for _, i := range m.rows {
		sum.Add(sum, new(big.Int).Mul(big.NewInt(prices[i]), big.NewInt(int64(p.demands[i].replicas))))
	}
	// Prices are divided so that no machine holds more than it costs; or only no machine of an
	// unlimited class, and limited classes then lower the sum by what they hold beyond their cost.
	for _, all := range []bool{true, false} {
		over := big.NewRat(0, 1)
		for c := range p.classes {
			if !all && p.classes[c].n < unbounded {
				continue
			}
			if r := ratio(worth[c], p.cost(c)); r != nil && r.Cmp(over) > 0 {
				over = r
			} else if r == nil && worth[c] > 0 {
				return // a machine that costs nothing may hold everything
			}
		}
		if over.Sign() == 0 {
			over.SetInt64(1 << priceDigits)
		}
		bound := new(big.Rat).Quo(new(big.Rat).SetInt(sum), over)
		for c := range p.classes {
			if all || p.classes[c].n >= unbounded {
				continue
			}
			beyond := new(big.Rat).Quo(new(big.Rat).SetInt64(worth[c]), over)
			beyond.Sub(beyond, new(big.Rat).SetInt64(p.cost(c)))
			if beyond.Sign() > 0 {
				bound.Sub(bound, beyond.Mul(beyond, new(big.Rat).SetInt64(int64(p.classes[c].n))))
			}
		}
		if bound.Cmp(m.bound) > 0 {
			m.bound, m.prices, m.worth = bound, prices, worth
		}
	}
}

// ratio is nil if the divisor is 0.
func ratio(a, b int64) *big.Rat {
	if b == 0 {
		return nil
	}
	return big.NewRat(a, b)
}

// ceil returns the smallest integer that is not below a ratio.
func ceil(r *big.Rat) int64 {
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	return n.Int64()
}

// round makes a solution integral. Each column is opened as often as the solution has whole
// machines of it, and the program is solved again for the rest. After every step the greedy orders
// pack what is left, and the best outcome is kept.
func (m *master) round(best *run, s *linear.Solution, dives int) (*run, error) {
	p := m.p
	type opened struct {
		col *column
		n   int
	}
	var fixed []opened
	left, machines := m.all()
	// The greedy orders place gangs whole, after columns are opened.
	gangs := false
	for _, i := range m.rows {
		if p.demands[i].gang != "" {
			left[i], gangs = 0, true
		}
	}
	if gangs {
		var err error
		if s, err = m.solve(left, machines); err != nil {
			return best, err
		}
	}
	for dive := 0; dive < dives && s != nil; dive++ {
		grew := false
		take := func(col *column, n int) {
			if p.classes[col.class].n < unbounded {
				n = min(n, machines[col.class])
				machines[col.class] -= n
			}
			if n <= 0 {
				return
			}
			grew = true
			fixed = append(fixed, opened{col, n})
			for _, c := range col.sums {
				left[c.demand] = max(0, left[c.demand]-n*c.n)
			}
		}
		var most *column
		for _, col := range m.columns {
			if whole := math.Floor(col.x + 1e-6); whole >= 1 {
				take(col, int(whole))
			} else if col.x > 1e-6 && (most == nil || col.x > most.x+1e-9) {
				most = col
			}
		}
		if !grew && most != nil {
			take(most, 1)
		}
		r := p.start(&needOrders[0])
		for _, f := range fixed {
			r.open(f.col, f.n)
		}
		for i := range needOrders {
			done := r
			if i > 0 {
				done = p.start(&needOrders[i])
				for _, f := range fixed {
					done.open(f.col, f.n)
				}
			}
			done.finish()
			if done.better(best) {
				best, done.improved = done, true
				if m.proven(best) {
					return best, nil
				}
			}
		}
		if !grew || slices.Max(left) == 0 {
			break
		}
		var err error
		if s, err = m.solve(left, machines); err != nil {
			return best, err
		}
	}
	return best, nil
}

// proven reports whether an outcome reaches the bound.
func (m *master) proven(r *run) bool {
	w := r.worth()
	at := w[3] // machines
	if m.p.priced {
		at = w[2]
	}
	return w[0] == 0 && w[1] == 0 && at <= ceil(m.bound)
}

// open opens machines of a column's class and puts the column's contents on each, except replicas
// that are already placed or ruled out.
func (r *run) open(col *column, machines int) {
	for machines > 0 {
		n := machines
		for _, c := range col.sums {
			if len(r.p.demands[c.demand].apartCluster) > 0 {
				n = 1 // the first may close the cluster to the next
			}
			if left := r.left[c.demand]; left >= c.n {
				n = min(n, left/c.n)
			} else {
				n = 1
			}
		}
		g := r.group(&r.p.classes[col.class].empty)
		if n = min(n, g.n); n == 0 {
			return
		}
		free, divided := map[int]uint16{}, map[int]gpuMask{} // by slot
		opened := false
		for _, x := range col.puts {
			d := &r.p.demands[x.demand]
			from := uint16(0)
			if d.part > 0 {
				var ok bool
				if from, ok = free[x.slot]; !ok {
					from = 1000
				}
			}
			if r.left[x.demand] < n || d.part > 0 && from < d.part || r.refuses(&g.state, x.demand) != "" ||
				d.part > 0 && !slices.Contains(g.free, from) {
				continue
			}
			if d.profiles != nil {
				from = encode(x.start, divided[x.slot])
				if !g.can(d.profiles[col.class], from) {
					continue
				}
				divided[x.slot] |= d.profiles[col.class].taken(x.start)
			}
			end := g.with(x.demand, d, from)
			if d.part > 0 {
				free[x.slot] = from - d.part
			}
			r.hold(&g.state, x.demand)
			r.move(g, &end, n, x.demand, []took{{from, 1}})
			g = r.group(&end)
			r.left[x.demand] -= n
			opened = true
		}
		if !opened {
			return
		}
		machines -= n
	}
}

// finish places the rest by the order of the run.
func (r *run) finish() {
	r.placeGangs()
	for _, s := range r.p.steps(r.order) {
		if n := min(s.n, r.left[s.demand]); n > 0 {
			r.left[s.demand] += r.place(s.demand, n) - n
		}
	}
}

// tell reports in a result what column generation did and proved.
func (m *master) tell(r *Result) {
	r.Columns = m.told
	if n := ceil(m.bound); m.p.priced {
		r.CostLowerBound = max(r.CostLowerBound, n)
	} else {
		r.LowerBound = max(r.LowerBound, int(n))
	}
}
