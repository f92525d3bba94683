package highs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"quartermaster/domain/linear"
)

// Parent and child exchange frames: a header of sixteen bytes (magic number, kind, length of the
// body), then the body. All numbers are little-endian, and arrays follow each other without
// padding, so the child can pass a program to the module unchanged.
const (
	magic      = 0x31504c51 // "QLP1"; another format gets another number
	headerSize = 16

	kindHello    = 1 // child, once: it is ready to solve
	kindProgram  = 2 // parent
	kindSolution = 3 // child
	kindFailure  = 4 // child: why there is no solution, as text
)

// Limits of a program. The module can address 2 GiB. The simplex needs some hundred bytes for
// each row and column and fifty for each entry.
const (
	MaxRows    = 1 << 22
	MaxColumns = 1 << 22
	MaxEntries = 1 << 24
)

const (
	maxText    = 16 << 10
	programFix = 40
	maxProgram = programFix +
		8*(3*MaxColumns+2*MaxRows+MaxEntries) +
		4*(MaxColumns+1+MaxEntries+2*MaxColumns+MaxRows)
	maxAnswer = solutionFix + 9*(MaxColumns+MaxRows)

	solutionFix = 40
)

var errFrame = errors.New("broken frame")

func appendHeader(b []byte, kind uint32, length int) []byte {
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = binary.LittleEndian.AppendUint32(b, kind)
	return binary.LittleEndian.AppendUint64(b, uint64(length))
}

func writeFrame(w io.Writer, kind uint32, body []byte) error {
	if _, err := w.Write(appendHeader(make([]byte, 0, headerSize), kind, len(body))); err != nil {
		return err
	}
	_, err := w.Write(body)
	return err
}

// readFrame reads a frame into buf, which grows only as bytes arrive. The error is io.EOF if the
// input ends before the first byte of a frame.
func readFrame(r io.Reader, buf []byte, most int) (kind uint32, body []byte, err error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return 0, nil, err
	}
	if got := binary.LittleEndian.Uint32(h[:]); got != magic {
		return 0, nil, fmt.Errorf("%w: it begins with %#x", errFrame, got)
	}
	kind = binary.LittleEndian.Uint32(h[4:])
	length := binary.LittleEndian.Uint64(h[8:])
	if length > uint64(most) {
		return 0, nil, fmt.Errorf("%w: %d bytes, want at most %d", errFrame, length, most)
	}
	const chunk = 16 << 20
	body = buf[:0]
	for left := int(length); left > 0; {
		n := min(left, max(chunk, cap(body)-len(body)))
		body = slices.Grow(body, n)
		part := body[len(body) : len(body)+n]
		if _, err := io.ReadFull(r, part); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		body = body[:len(body)+n]
		left -= n
	}
	return kind, body, nil
}

// The body of a program:
//
//	rows, columns, entries, flags   uint32
//	iterations, nodes               int32, 0 for no limit
//	gap                             float64
//	checks                          uint64, 0 for no limit
//	cost, lower, upper              float64 by column
//	row lower, row upper            float64 by row
//	value                           float64 by entry
//	start                           int32, one more than columns
//	index                           int32 by entry
//	whole                           int32 by column, if flagged
//	basis of columns, of rows       int32, if flagged
const (
	flagWhole = 1
	flagWarm  = 2
)

// appendProgram encodes a program that Check accepts.
func appendProgram(b []byte, p *linear.Program, l linear.Limits) []byte {
	rows, columns := len(p.RowLower), len(p.Cost)
	var flags uint32
	whole := slices.Contains(p.Whole, true)
	if whole {
		flags |= flagWhole
	}
	warm := p.Warm != nil && !whole
	if warm {
		flags |= flagWarm
	}
	u32 := binary.LittleEndian.AppendUint32
	f64s := func(xs []float64) {
		for _, x := range xs {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	i32s := func(xs []int) {
		for _, x := range xs {
			b = u32(b, uint32(x))
		}
	}
	for _, v := range []uint32{
		uint32(rows), uint32(columns), uint32(len(p.Index)), flags,
		count(l.Iterations), count(l.Nodes),
	} {
		b = u32(b, v)
	}
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(l.Gap))
	b = binary.LittleEndian.AppendUint64(b, uint64(l.Checks))
	f64s(p.Cost)
	f64s(p.Lower)
	f64s(p.Upper)
	f64s(p.RowLower)
	f64s(p.RowUpper)
	f64s(p.Value)
	i32s(p.Start)
	i32s(p.Index)
	if whole {
		for _, w := range p.Whole {
			if w {
				b = u32(b, 1)
			} else {
				b = u32(b, 0)
			}
		}
	}
	if warm {
		for j := range columns {
			switch {
			case j < len(p.Warm.Columns):
				b = u32(b, uint32(p.Warm.Columns[j]))
			case !math.IsInf(p.Lower[j], -1):
				b = u32(b, atLower)
			case !math.IsInf(p.Upper[j], 1):
				b = u32(b, atUpper)
			default:
				b = u32(b, atZero)
			}
		}
		for i := range rows {
			if i < len(p.Warm.Rows) {
				b = u32(b, uint32(p.Warm.Rows[i]))
			} else {
				b = u32(b, basic)
			}
		}
	}
	return b
}

// The solver's codes of a basis.
const (
	atLower = 0
	basic   = linear.Basic
	atUpper = 2
	atZero  = 3
)

func count(n int) uint32 { return uint32(min(max(n, 0), math.MaxInt32)) }

// request is a program in the layout of the module: body and the offsets of the arrays in it.
type request struct {
	body                         []byte
	rows, columns, entries       int
	iterations, nodes            int32
	gap                          float64
	checks                       uint64
	cost, lower, upper           int
	rowLower, rowUpper, value    int
	start, index                 int
	whole, columnBasis, rowBasis int // 0 for none
}

// parseProgram finds the parts of a program. It checks only sizes. linear.Program.Check has
// checked the values before they are sent, and the module, which is sandboxed, checks them again.
func parseProgram(body []byte) (*request, error) {
	if len(body) < programFix {
		return nil, fmt.Errorf("%w: a program of %d bytes", errFrame, len(body))
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(body[at:]) }
	if u32(0) > MaxRows || u32(4) > MaxColumns || u32(8) > MaxEntries || u32(12)&^(flagWhole|flagWarm) != 0 {
		return nil, fmt.Errorf("%w: %d rows, %d columns, %d entries, flags %#x", errFrame, u32(0), u32(4), u32(8), u32(12))
	}
	r := &request{body: body, rows: int(u32(0)), columns: int(u32(4)), entries: int(u32(8))}
	r.iterations, r.nodes = int32(u32(16)), int32(u32(20))
	r.gap = math.Float64frombits(binary.LittleEndian.Uint64(body[24:]))
	r.checks = binary.LittleEndian.Uint64(body[32:])
	if r.iterations < 0 || r.nodes < 0 || !(r.gap >= 0) || math.IsInf(r.gap, 0) {
		return nil, fmt.Errorf("%w: limits of %d iterations, %d nodes, gap %g", errFrame, r.iterations, r.nodes, r.gap)
	}
	at := programFix
	take := func(n, size int) int {
		from := at
		at += n * size
		return from
	}
	r.cost, r.lower, r.upper = take(r.columns, 8), take(r.columns, 8), take(r.columns, 8)
	r.rowLower, r.rowUpper = take(r.rows, 8), take(r.rows, 8)
	r.value = take(r.entries, 8)
	r.start, r.index = take(r.columns+1, 4), take(r.entries, 4)
	if u32(12)&flagWhole != 0 {
		r.whole = take(r.columns, 4)
	}
	if u32(12)&flagWarm != 0 {
		r.columnBasis, r.rowBasis = take(r.columns, 4), take(r.rows, 4)
	}
	if at != len(body) {
		return nil, fmt.Errorf(
			"%w: %d rows, %d columns and %d entries are %d bytes, but there are %d",
			errFrame, r.rows, r.columns, r.entries, at, len(body),
		)
	}
	return r, nil
}

// The body of a solution:
//
//	status, flags       uint32
//	iterations, nodes   int64
//	objective, bound    float64
//	x                   float64 by column, if flagged
//	prices              float64 by row, if flagged
//	basis               one byte for each column, then for each row, if flagged
const (
	flagX      = 1
	flagPrices = 2
	flagBasis  = 4
)

var statuses = []linear.Status{linear.Optimal, linear.Infeasible, linear.Unbounded, linear.Limited}

func appendSolution(b []byte, s *linear.Solution) []byte {
	u64 := binary.LittleEndian.AppendUint64
	var flags uint32
	if s.X != nil {
		flags |= flagX
	}
	if s.Prices != nil {
		flags |= flagPrices
	}
	if s.Basis != nil {
		flags |= flagBasis
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(slices.Index(statuses, s.Status)))
	b = binary.LittleEndian.AppendUint32(b, flags)
	b = u64(b, uint64(s.Iterations))
	b = u64(b, uint64(s.Nodes))
	b = u64(b, math.Float64bits(s.Objective))
	b = u64(b, math.Float64bits(s.Bound))
	for _, x := range s.X {
		b = u64(b, math.Float64bits(x))
	}
	for _, y := range s.Prices {
		b = u64(b, math.Float64bits(y))
	}
	if s.Basis != nil {
		for _, c := range s.Basis.Columns {
			b = append(b, byte(c))
		}
		for _, c := range s.Basis.Rows {
			b = append(b, byte(c))
		}
	}
	return b
}

// parseSolution decodes the solution of a program with the given numbers of rows and columns.
func parseSolution(body []byte, rows, columns int) (*linear.Solution, error) {
	if len(body) < solutionFix {
		return nil, fmt.Errorf("%w: a solution of %d bytes", errFrame, len(body))
	}
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(body[at:]) }
	status, flags := binary.LittleEndian.Uint32(body), binary.LittleEndian.Uint32(body[4:])
	want := solutionFix
	if flags&flagX != 0 {
		want += 8 * columns
	}
	if flags&flagPrices != 0 {
		want += 8 * rows
	}
	if flags&flagBasis != 0 {
		want += columns + rows
	}
	if int64(status) >= int64(len(statuses)) || flags&^(flagX|flagPrices|flagBasis) != 0 || want != len(body) {
		return nil, fmt.Errorf(
			"%w: a solution of %d rows and %d columns with status %d and flags %#x in %d bytes",
			errFrame, rows, columns, status, flags, len(body),
		)
	}
	s := &linear.Solution{
		Status:     statuses[status],
		Iterations: int(int64(u64(8))),
		Nodes:      int(int64(u64(16))),
		Objective:  math.Float64frombits(u64(24)),
		Bound:      math.Float64frombits(u64(32)),
	}
	if s.Iterations < 0 || s.Nodes < 0 {
		return nil, fmt.Errorf("%w: %d iterations and %d nodes", errFrame, s.Iterations, s.Nodes)
	}
	at := solutionFix
	f64s := func(n int) []float64 {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = math.Float64frombits(u64(at))
			at += 8
		}
		return xs
	}
	codes := func(n int) []int8 {
		cs := make([]int8, n)
		for i := range cs {
			cs[i] = int8(body[at])
			at++
		}
		return cs
	}
	if flags&flagX != 0 {
		s.X = f64s(columns)
	}
	if flags&flagPrices != 0 {
		s.Prices = f64s(rows)
	}
	if flags&flagBasis != 0 {
		s.Basis = &linear.Basis{Columns: codes(columns), Rows: codes(rows)}
	}
	return s, nil
}
