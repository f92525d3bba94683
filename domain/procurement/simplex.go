package procurement

import "math"

// program is a linear program with piecewise linear convex costs:
//
//	minimise Σ cost(x)   such that   Σ column(x)·x = right-hand side, 0 ≤ x ≤ upper
//
// solved by a primal simplex with a dense inverse of the basis. A non-basic variable stands at a
// breakpoint of its cost, and a basic one may pass breakpoints while that still pays (Fourer: A
// simplex algorithm for piecewise-linear programming, 1985), so a curve with a thousand pieces is
// one column.
//
// It computes in floating point and decides nothing: its results are proposals that are evaluated
// in integers. Each product is converted before it is added, which forbids fused multiply-add, so
// all processors give the same result. It stops on counts, never on the clock.
type program struct {
	rows    int
	rhs     []float64
	vars    []variable
	inverse [][]float64
	basic   []int // by row: the variable
	price   []float64
	column  []float64
	pivots  int
}

type variable struct {
	blocks [3]block // its column
	slope  []float64
	from   []float64 // by piece of the cost: where it begins
	upper  float64   // end of the last piece
	weight float64   // for comparing reduced costs

	row   int // where it is basic, or -1
	piece int // basic: the piece of the value; else: the one above the value
	value float64
}

// block is a run of equal entries of a column.
type block struct {
	from, to int
	entry    float64
}

const (
	pivotTolerance = 1e-9
	priceTolerance = 1e-10
	refactorEvery  = 128
)

// end returns the upper end of a piece.
func (v *variable) end(piece int) float64 {
	if piece+1 < len(v.from) {
		return v.from[piece+1]
	}
	return v.upper
}

// solve starts from the current basis and reports whether it reached an optimum within limit
// pivots.
func (p *program) solve(limit int) bool {
	p.factor()
	stalled, since := 0, 0
	for p.pivots < limit {
		if since == refactorEvery {
			p.factor()
			since = 0
		}
		p.multipliers()
		// Bland's rule, the first improving variable, prevents cycling.
		q, up, rate := p.entering(stalled > 2*p.rows+50)
		if q < 0 {
			if since == 0 {
				return true
			}
			p.factor()
			since = 0
			continue
		}
		moved := p.move(q, up, rate, stalled > 2*p.rows+50)
		p.pivots++
		since++
		if moved > 1e-9 {
			stalled = 0
		} else {
			stalled++
		}
	}
	p.multipliers()
	return false
}

// multipliers sets the prices of rows from the slopes of the basic variables.
func (p *program) multipliers() {
	clear(p.price)
	for i, j := range p.basic {
		v := &p.vars[j]
		c := v.slope[v.piece]
		if c == 0 {
			continue
		}
		for k, b := range p.inverse[i] {
			p.price[k] += float64(c * b)
		}
	}
}

// entering chooses the variable to move, its direction, and the rate of change of the cost, which
// is negative. q is -1 if nothing improves.
func (p *program) entering(first bool) (q int, up bool, rate float64) {
	sums := make([]float64, p.rows+1)
	for i, y := range p.price {
		sums[i+1] = sums[i] + y
	}
	q = -1
	best := 0.0
	for j := range p.vars {
		v := &p.vars[j]
		if v.row >= 0 {
			continue
		}
		worth := 0.0
		for _, b := range v.blocks {
			if b.to-b.from == 1 {
				worth += float64(b.entry * p.price[b.from])
			} else {
				worth += float64(b.entry * (sums[b.to] - sums[b.from]))
			}
		}
		try := func(r float64, ahead bool) {
			if r < -priceTolerance {
				if score := -r * v.weight; q < 0 || score > best {
					q, up, rate, best = j, ahead, r, score
				}
			}
		}
		if v.piece < len(v.slope) && v.upper > 0 {
			try(v.slope[v.piece]-worth, true)
		}
		if v.piece > 0 {
			try(worth-v.slope[v.piece-1], false)
		}
		if first && q >= 0 {
			break
		}
	}
	return q, up, rate
}

// move moves a variable as far as that pays, exchanges it for the blocking basic one, and returns
// the distance.
func (p *program) move(q int, up bool, rate float64, first bool) (moved float64) {
	in := &p.vars[q]
	p.transform(in)
	sign := 1.0
	if !up {
		sign = -1
		in.piece--
	}
	for {
		// The entering variable's own next breakpoint, then the basic ones'.
		step := in.end(in.piece) - in.value
		if !up {
			step = in.value - in.from[in.piece]
		}
		out := -1
		for i, a := range p.column {
			if math.Abs(a) <= pivotTolerance {
				continue
			}
			v := &p.vars[p.basic[i]]
			r := -sign * a
			limit := v.from[v.piece]
			if r > 0 {
				limit = v.end(v.piece)
			}
			room := max((limit-v.value)/r, 0)
			switch {
			case room < step-1e-12:
			case room > step+1e-12 || out < 0:
				continue
			case first && p.basic[i] >= p.basic[out]:
				continue
			case !first && math.Abs(a) <= math.Abs(p.column[out]):
				continue
			}
			step, out = room, i
		}
		for i, a := range p.column {
			if a != 0 {
				p.vars[p.basic[i]].value -= float64(sign * a * step)
			}
		}
		in.value += float64(sign * step)
		moved += step
		if out < 0 { // its own breakpoint
			old := in.slope[in.piece]
			if up {
				in.piece++
				in.value = in.end(in.piece - 1)
				if in.piece == len(in.slope) {
					return moved
				}
				rate += in.slope[in.piece] - old
				if rate >= -priceTolerance {
					return moved
				}
				continue
			}
			in.value = in.from[in.piece]
			if in.piece == 0 {
				return moved
			}
			rate += old - in.slope[in.piece-1]
			if rate >= -priceTolerance {
				return moved
			}
			in.piece--
			continue
		}
		v := &p.vars[p.basic[out]]
		r := -sign * p.column[out]
		if r > 0 {
			v.value = v.end(v.piece)
			if v.piece+1 < len(v.slope) {
				if next := rate + float64((v.slope[v.piece+1]-v.slope[v.piece])*r); next < -priceTolerance {
					rate = next
					v.piece++
					continue
				}
			}
			v.piece++
		} else {
			v.value = v.from[v.piece]
			if v.piece > 0 {
				if next := rate + float64((v.slope[v.piece-1]-v.slope[v.piece])*r); next < -priceTolerance {
					rate = next
					v.piece--
					continue
				}
			}
		}
		v.row = -1
		in.row = out
		p.basic[out] = q
		p.exchange(out)
		return moved
	}
}

// transform sets column to the inverse times a variable's column.
func (p *program) transform(v *variable) {
	for i, row := range p.inverse {
		sum := 0.0
		for _, b := range v.blocks {
			part := 0.0
			for _, x := range row[b.from:b.to] {
				part += x
			}
			sum += float64(b.entry * part)
		}
		p.column[i] = sum
	}
}

// exchange updates the inverse for the variable that is now basic in row r.
func (p *program) exchange(r int) {
	pivot := p.inverse[r]
	f := 1 / p.column[r]
	for k := range pivot {
		pivot[k] *= f
	}
	for i, a := range p.column {
		if i == r || a == 0 {
			continue
		}
		row := p.inverse[i]
		for k, x := range pivot {
			row[k] -= float64(a * x)
		}
	}
}

// factor recomputes the inverse and the values of the basic variables.
func (p *program) factor() {
	n := p.rows
	work := make([][]float64, n) // the basis and what becomes its inverse, side by side
	for i := range work {
		work[i] = make([]float64, 2*n)
		work[i][n+i] = 1
	}
	for k, j := range p.basic {
		for _, b := range p.vars[j].blocks {
			for i := b.from; i < b.to; i++ {
				work[i][k] += b.entry
			}
		}
	}
	for k := range n {
		best := k
		for i := k + 1; i < n; i++ {
			if math.Abs(work[i][k]) > math.Abs(work[best][k]) {
				best = i
			}
		}
		work[k], work[best] = work[best], work[k]
		row := work[k]
		if row[k] == 0 {
			continue // a basis has an inverse; if rounding lost it, the proposal is poor
		}
		f := 1 / row[k]
		for c := k; c < 2*n; c++ {
			row[c] *= f
		}
		for i := range n {
			if a := work[i][k]; i != k && a != 0 {
				for c := k; c < 2*n; c++ {
					work[i][c] -= float64(a * row[c])
				}
			}
		}
	}
	p.inverse = make([][]float64, n)
	for i := range work {
		p.inverse[i] = work[i][n:]
	}
	rest := append([]float64(nil), p.rhs...)
	for j := range p.vars {
		v := &p.vars[j]
		if v.row >= 0 || v.value == 0 {
			continue
		}
		for _, b := range v.blocks {
			for i := b.from; i < b.to; i++ {
				rest[i] -= float64(b.entry * v.value)
			}
		}
	}
	for i, j := range p.basic {
		v := &p.vars[j]
		v.value = 0
		for k, x := range p.inverse[i] {
			v.value += float64(x * rest[k])
		}
	}
}
