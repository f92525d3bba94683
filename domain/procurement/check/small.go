package check

import (
	"context"
	"errors"
	"math/big"
	"math/bits"
	"slices"
)

// The numbers of most hours are small. Their tableau is in 64 bits, where a bound on the magnitudes
// says before each step that nothing overflows; else it is in big integers.

// errWide means that a number might not fit 64 bits.
var errWide = errors.New("it might not fit 64 bits")

// room is the bound on magnitudes.
const room = 1 << 62

// narrow is a column in 64 bits.
type narrow struct {
	rows, entries []int64
	cost          int64
}

// narrowed is a program in 64 bits.
type narrowed struct {
	columns []narrow
	// The largest magnitudes: of an entry times the entries of a column, and of a cost.
	entry, cost float64
}

// narrowed returns the program in 64 bits, nil if it does not fit.
func (g *program) narrowed() *narrowed {
	out := &narrowed{}
	for i := range g.columns {
		c := &g.columns[i]
		if !c.cost.IsInt64() {
			return nil
		}
		x := narrow{rows: c.rows, cost: c.cost.Int64()}
		for _, v := range c.entries {
			if !v.IsInt64() {
				return nil
			}
			x.entries = append(x.entries, v.Int64())
			out.entry = max(out.entry, size(v.Int64())*float64(len(c.entries)))
		}
		out.cost = max(out.cost, size(x.cost))
		out.columns = append(out.columns, x)
	}
	return out
}

func size(v int64) float64 { return max(float64(v), -float64(v)) }

func sizeOf(list []int64) float64 {
	most := 0.0
	for _, v := range list {
		most = max(most, size(v))
	}
	return most
}

// inSmall returns numbers in 64 bits, nil if they do not fit.
func inSmall(list []*big.Int) []int64 {
	out := make([]int64, len(list))
	for i, v := range list {
		if !v.IsInt64() {
			return nil
		}
		out[i] = v.Int64()
	}
	return out
}

// costs are the costs of a basis' columns times its inverse; nil if they might not fit.
func (b *basis) costs(g *narrowed) []int64 {
	rows := len(b.columns)
	if b.small == nil || b.most*g.cost*float64(rows) >= room {
		return nil
	}
	out := make([]int64, rows)
	for r, j := range b.columns {
		if cost := g.columns[j].cost; cost != 0 {
			for i, v := range b.small[r*rows : (r+1)*rows] {
				out[i] += cost * v
			}
		}
	}
	if float64(sizeOf(out)*g.entry)+float64(g.cost*float64(b.denominator.Int64())) >= room {
		return nil
	}
	return out
}

// reduced is the reduced cost of a column.
func (c *narrow) reduced(costs []int64, denominator int64) int64 {
	d := denominator * c.cost
	for i, r := range c.rows {
		d -= costs[r] * c.entries[i]
	}
	return d
}

// smallTableau is a tableau in 64 bits, its cells line by line.
type smallTableau struct {
	cells       []int64
	bits        []int // by line: of its magnitudes
	columns     []int
	denominator int64
	rows, width int
}

// newSmallTableau is newTableau in 64 bits, nil if something might not fit.
func newSmallTableau(g *narrowed, from *basis, right []*big.Int) *smallTableau {
	values := inSmall(right)
	if g == nil || values == nil {
		return nil
	}
	rows := len(right)
	if from == nil {
		from = slack(rows, len(g.columns))
	}
	costs := from.costs(g)
	if costs == nil || from.most*max(g.entry, sizeOf(values)*float64(rows)) >= room {
		return nil
	}
	t := &smallTableau{
		columns: slices.Clone(from.columns), denominator: from.denominator.Int64(), rows: rows, width: len(g.columns),
	}
	t.cells = make([]int64, 0, (rows+1)*(t.width+1))
	for r := range rows {
		inverse := from.small[r*rows : (r+1)*rows]
		for j := range g.columns {
			v, c := int64(0), &g.columns[j]
			for i, n := range c.rows {
				v += inverse[n] * c.entries[i]
			}
			t.cells = append(t.cells, v)
		}
		v := int64(0)
		for i, x := range inverse {
			v += x * values[i]
		}
		t.cells = append(t.cells, v)
	}
	for j := range g.columns {
		t.cells = append(t.cells, g.columns[j].reduced(costs, t.denominator))
	}
	t.cells = append(t.cells, 0)
	for r := range rows + 1 {
		all := uint64(0)
		for _, v := range t.line(r) {
			all |= uint64(v ^ v>>63)
		}
		t.bits = append(t.bits, bits.Len64(all))
	}
	return t
}

func (t *smallTableau) line(r int) []int64 { return t.cells[r*(t.width+1) : (r+1)*(t.width+1)] }

// pivot brings a column into the basis in a row.
func (t *smallTableau) pivot(row, column int) error {
	of := t.line(row)
	p := of[column]
	sign := int64(1)
	if p < 0 {
		sign = -1
	}
	for i := range t.rows + 1 {
		line := t.line(i)
		factor := line[column]
		if i == row || factor == 0 && p == t.denominator {
			continue
		}
		// Magnitudes are at most 2 to the power of their bits.
		if t.bits[i]+bits.Len64(uint64(sign*p)) > 61 || t.bits[row]+bits.Len64(uint64(max(factor, -factor))) > 61 {
			return errWide
		}
		all := uint64(0)
		for j, v := range line {
			v = v*p - factor*of[j]
			if t.denominator != 1 {
				v /= t.denominator // exact division
			}
			v *= sign
			line[j] = v
			all |= uint64(v ^ v>>63)
		}
		t.bits[i] = bits.Len64(all)
	}
	if sign < 0 {
		for j, v := range of {
			of[j] = -v
		}
	}
	t.columns[row], t.denominator = column, sign*p
	return nil
}

// less compares a·b and c·d, none of them negative.
func less(a, b, c, d int64) int {
	high, low := bits.Mul64(uint64(a), uint64(b))
	above, below := bits.Mul64(uint64(c), uint64(d))
	switch {
	case high < above, high == above && low < below:
		return -1
	case high == above && low == below:
		return 0
	}
	return 1
}

// primal pivots until no reduced cost is negative.
func (t *smallTableau) primal(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		enter := slices.IndexFunc(t.line(t.rows)[:t.width], func(v int64) bool { return v < 0 })
		if enter < 0 {
			return nil
		}
		leave := -1
		for r := range t.rows {
			line := t.line(r)
			if line[enter] <= 0 {
				continue
			}
			if leave >= 0 {
				least := t.line(leave)
				if n := less(line[t.width], least[enter], least[t.width], line[enter]); n > 0 ||
					n == 0 && t.columns[r] > t.columns[leave] {
					continue
				}
			}
			leave = r
		}
		if leave < 0 {
			return errNoEnd
		}
		if err := t.pivot(leave, enter); err != nil {
			return err
		}
	}
}

// dual pivots until no value is negative.
func (t *smallTableau) dual(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		leave := -1
		for r := range t.rows {
			if t.line(r)[t.width] < 0 && (leave < 0 || t.columns[r] < t.columns[leave]) {
				leave = r
			}
		}
		if leave < 0 {
			return nil
		}
		line, costs := t.line(leave), t.line(t.rows)
		enter := -1
		for j, v := range line[:t.width] {
			// The least of reduced cost ÷ −entry.
			if v < 0 && (enter < 0 || less(costs[j], -line[enter], costs[enter], -v) < 0) {
				enter = j
			}
		}
		if enter < 0 {
			return errNoEnd
		}
		if err := t.pivot(leave, enter); err != nil {
			return err
		}
	}
}

// end pivots until the basis is optimal: by the dual simplex if its costs are already.
func (t *smallTableau) end(ctx context.Context, cheapest bool) error {
	if cheapest {
		return t.dual(ctx)
	}
	return t.primal(ctx)
}

// basis reads the inverse from the rows' own columns.
func (t *smallTableau) basis() *basis {
	inverse := make([]int64, 0, t.rows*t.rows)
	for r := range t.rows {
		inverse = append(inverse, t.line(r)[t.width-t.rows:t.width]...)
	}
	return newBasis(t.columns, t.denominator, inverse)
}
