package highs

import (
	"bytes"
	"errors"
	"io"
	"math"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"quartermaster/domain/linear"
)

// A frame survives a round trip, and a truncated frame is never accepted.
func TestFrames(t *testing.T) {
	var b bytes.Buffer
	for _, body := range []string{"", "a", "some more"} {
		if err := writeFrame(&b, kindFailure, []byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	all := b.Bytes()
	for _, want := range []string{"", "a", "some more"} {
		kind, body, err := readFrame(&b, nil, 9)
		if err != nil || kind != kindFailure || string(body) != want {
			t.Fatalf("%d %q %v, want %q", kind, body, err, want)
		}
	}
	if _, _, err := readFrame(&b, nil, 9); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	last := all[len(all)-headerSize-9:]
	for n := 1; n < len(last); n++ {
		if _, _, err := readFrame(bytes.NewReader(last[:n]), nil, 9); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of %d: %v", n, len(last), err)
		}
	}
	if _, _, err := readFrame(bytes.NewReader(last), nil, 8); !errors.Is(err, errFrame) {
		t.Errorf("longer than is taken: %v", err)
	}
}

// A header that announces gigabytes allocates no memory before they arrive.
func TestFramePromises(t *testing.T) {
	head := appendHeader(nil, kindProgram, maxProgram)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := readFrame(bytes.NewReader(head), nil, maxProgram)
	runtime.ReadMemStats(&after)
	if err == nil {
		t.Error("a header was taken for a frame")
	}
	allocated := after.TotalAlloc - before.TotalAlloc
	if allocated > 64<<20 {
		t.Errorf("a header alone took %d bytes", allocated)
	}
}

func TestSolutions(t *testing.T) {
	for _, s := range []*linear.Solution{
		{Status: linear.Optimal, X: []float64{1, -2.5}, Objective: 7, Bound: 6, Prices: []float64{0, 1, math.Pi}, Basis: &linear.Basis{Columns: []int8{1, 0}, Rows: []int8{2, 3, 1}}, Iterations: 5},
		{Status: linear.Infeasible, Objective: math.Inf(1), Bound: math.Inf(1)},
		{Status: linear.Limited, X: []float64{0, 0}, Nodes: 8, Bound: math.Inf(-1)},
	} {
		b := appendSolution(nil, s)
		got, err := parseSolution(b, 3, 2)
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%+v came out as %+v, %v", s, got, err)
		}
		for n := range b {
			if _, err := parseSolution(b[:n], 3, 2); !errors.Is(err, errFrame) {
				t.Errorf("%d bytes of %d: %v", n, len(b), err)
			}
		}
		if _, err := parseSolution(b, 3, 1); err == nil && s.X != nil {
			t.Error("a solution of another program was taken")
		}
	}
}

// The parsers do not panic, and what they accept has the announced length.
func FuzzFrames(f *testing.F) {
	p := overflow(1, 1)
	f.Add(append(appendHeader(nil, kindProgram, 0), appendProgram(nil, p, linear.Limits{Gap: 0.1})...), uint8(8), uint8(28))
	p.Whole = make([]bool, len(p.Cost))
	p.Whole[0] = true
	body := appendProgram(nil, p, linear.Limits{Nodes: 5})
	f.Add(append(appendHeader(nil, kindProgram, len(body)), body...), uint8(8), uint8(28))
	s := appendSolution(nil, &linear.Solution{Status: linear.Optimal, X: []float64{1}, Prices: []float64{2}, Basis: &linear.Basis{Columns: []int8{1}, Rows: []int8{0}}})
	f.Add(append(appendHeader(nil, kindSolution, len(s)), s...), uint8(1), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, rows, columns uint8) {
		_, body, err := readFrame(bytes.NewReader(b), nil, 1<<20)
		if err == nil && len(body) > len(b) {
			t.Fatalf("%d bytes hold %d", len(b), len(body))
		}
		if err != nil {
			body = b
		}
		if r, err := parseProgram(body); err == nil {
			ends := []int{r.cost + 8*r.columns, r.lower + 8*r.columns, r.upper + 8*r.columns, r.rowLower + 8*r.rows, r.rowUpper + 8*r.rows,
				r.value + 8*r.entries, r.start + 4*(r.columns+1), r.index + 4*r.entries}
			if r.whole != 0 {
				ends = append(ends, r.whole+4*r.columns)
			}
			if r.columnBasis != 0 {
				ends = append(ends, r.columnBasis+4*r.columns, r.rowBasis+4*r.rows)
			}
			for _, end := range ends {
				if end > len(body) {
					t.Fatalf("an array ends at %d of %d", end, len(body))
				}
			}
		}
		if s, err := parseSolution(body, int(rows), int(columns)); err == nil {
			// NaN differs from itself, but its bytes do not.
			if again := appendSolution(nil, s); !bytes.Equal(again, body) {
				t.Fatalf("%d bytes came out as %d others", len(body), len(again))
			}
		}
	})
}

// An option of a type without a setter is never ignored silently.
func TestOptionOfUnknownType(t *testing.T) {
	for _, v := range []any{1, int64(1), float32(1), nil} {
		func() {
			defer func() {
				if p, ok := recover().(failure); !ok || !strings.Contains(p.Error(), "threads") {
					t.Errorf("%T: %v", v, p)
				}
			}()
			new(instance).option("threads", v)
		}()
	}
}
