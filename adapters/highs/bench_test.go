package highs

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"quartermaster/domain/linear"
)

// overflow is a program of the kind that capacity planning makes. Capacity of a few regions is
// bought once and serves the demand of many hours there or, at a loss, elsewhere. The rest is
// bought by the hour. Every number is a quotient of two integers, which all processors round
// alike. An hour has eight rows and 24 columns.
func overflow(hours int, seed uint64) *linear.Program {
	const regions = 4
	r := rand.New(rand.NewPCG(seed, 1))
	inf := math.Inf(1)
	p := &linear.Program{Start: []int{0}}
	column := func(cost, upper float64, entries ...float64) { // pairs of row and value, rows ascending
		p.Cost = append(p.Cost, cost)
		p.Lower = append(p.Lower, 0)
		p.Upper = append(p.Upper, upper)
		for i := 0; i < len(entries); i += 2 {
			p.Index = append(p.Index, int(entries[i]))
			p.Value = append(p.Value, entries[i+1])
		}
		p.Start = append(p.Start, len(p.Index))
	}
	// Rows of hour t: 8t+r is the demand of region r, 8t+4+r its capacity.
	for g := range regions {
		var own []float64
		for t := range hours {
			own = append(own, float64(8*t+4+g), -1)
		}
		column(float64(hours*(10+g))/10, inf, own...)
	}
	for t := range hours {
		for g := range regions {
			wave := 8 * max((t+6*g)%24-12, 12-(t+6*g)%24)
			p.RowLower = append(p.RowLower, float64(wave*(50+r.IntN(100))/100))
			p.RowUpper = append(p.RowUpper, inf)
		}
		for range regions {
			p.RowLower = append(p.RowLower, -inf)
			p.RowUpper = append(p.RowUpper, 0)
		}
		for g := range regions {
			for to := range regions {
				if g == to {
					column(0, inf, float64(8*t+g), 1, float64(8*t+4+g), 1)
				} else {
					column(float64(2+(g+to)%3)/20, inf, float64(8*t+to), 1, float64(8*t+4+g), 1.05)
				}
			}
			column(float64(3000+r.IntN(200))/1000, inf, float64(8*t+g), 1)
			column(float64(1200+r.IntN(1000))/1000, 10, float64(8*t+g), 1)
		}
	}
	return p
}

// freeMPS writes a program for other solvers.
func freeMPS(p *linear.Program) []byte {
	var b bytes.Buffer
	// FREE is for CBC, which otherwise reads bounds in fixed columns.
	b.WriteString("NAME p FREE\nROWS\n N cost\n")
	var ranges bytes.Buffer
	rhs := make([]float64, len(p.RowLower))
	for i, l := range p.RowLower {
		u := p.RowUpper[i]
		switch kind := ""; {
		case l == u:
			fmt.Fprintf(&b, " E r%d\n", i)
			rhs[i] = l
		case math.IsInf(l, -1) && math.IsInf(u, 1):
			fmt.Fprintf(&b, " N r%d\n", i)
		case math.IsInf(l, -1):
			fmt.Fprintf(&b, " L r%d\n", i)
			rhs[i] = u
		default:
			fmt.Fprintf(&b, " G%s r%d\n", kind, i)
			rhs[i] = l
			if !math.IsInf(u, 1) {
				fmt.Fprintf(&ranges, " RNG r%d %.17g\n", i, u-l)
			}
		}
	}
	b.WriteString("COLUMNS\n")
	for j := range p.Cost {
		whole := p.Whole != nil && p.Whole[j]
		if whole {
			fmt.Fprintf(&b, " M%d 'MARKER' 'INTORG'\n", j)
		}
		fmt.Fprintf(&b, " x%d cost %.17g\n", j, p.Cost[j])
		for k := p.Start[j]; k < p.Start[j+1]; k++ {
			fmt.Fprintf(&b, " x%d r%d %.17g\n", j, p.Index[k], p.Value[k])
		}
		if whole {
			fmt.Fprintf(&b, " E%d 'MARKER' 'INTEND'\n", j)
		}
	}
	b.WriteString("RHS\n")
	for i, v := range rhs {
		if v != 0 {
			fmt.Fprintf(&b, " RHS r%d %.17g\n", i, v)
		}
	}
	if ranges.Len() > 0 {
		b.WriteString("RANGES\n")
		b.Write(ranges.Bytes())
	}
	b.WriteString("BOUNDS\n")
	for j := range p.Cost {
		l, u := p.Lower[j], p.Upper[j]
		switch {
		case l == u:
			fmt.Fprintf(&b, " FX B x%d %.17g\n", j, l)
		case math.IsInf(l, -1) && math.IsInf(u, 1):
			fmt.Fprintf(&b, " FR B x%d\n", j)
		default:
			if math.IsInf(l, -1) {
				fmt.Fprintf(&b, " MI B x%d\n", j)
			} else {
				fmt.Fprintf(&b, " LO B x%d %.17g\n", j, l)
			}
			if math.IsInf(u, 1) {
				fmt.Fprintf(&b, " PL B x%d\n", j)
			} else {
				fmt.Fprintf(&b, " UP B x%d %.17g\n", j, u)
			}
		}
	}
	b.WriteString("ENDATA\n")
	return b.Bytes()
}

func BenchmarkOverflow(b *testing.B) {
	for _, hours := range []int{168, 2052} {
		p := overflow(hours, 1)
		b.Run(fmt.Sprintf("rows=%d/columns=%d", len(p.RowLower), len(p.Cost)), func(b *testing.B) {
			s := open(b)
			if err := s.Warm(b.Context()); err != nil {
				b.Fatal(err)
			}
			var last *linear.Solution
			for b.Loop() {
				var err error
				if last, err = s.Solve(b.Context(), p, linear.Limits{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(last.Iterations), "iterations")
			p.Warm = last.Basis
			begun := time.Now()
			again, err := s.Solve(b.Context(), p, linear.Limits{})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(time.Since(begun).Seconds(), "s/warm")
			b.Logf("%.6f %.6f, warm %d iterations", last.Objective, again.Objective, again.Iterations)
			p.Warm = nil
		})
	}
}

// The time of other solvers for the same program, including reading it.
func BenchmarkOthers(b *testing.B) {
	for _, hours := range []int{168, 2052} {
		p := overflow(hours, 1)
		file := filepath.Join(b.TempDir(), "p.mps")
		if err := os.WriteFile(file, freeMPS(p), 0o600); err != nil {
			b.Fatal(err)
		}
		for _, other := range [][]string{{"clp", file, "-dualsimplex", "-quit"}, {"cbc", file, "-dualsimplex", "-quit"}, {"glpsol", "--freemps", file}} {
			b.Run(fmt.Sprintf("%s/rows=%d/columns=%d", other[0], len(p.RowLower), len(p.Cost)), func(b *testing.B) {
				if _, err := exec.LookPath(other[0]); err != nil {
					b.Skip("not installed")
				}
				for b.Loop() {
					cmd := exec.Command(other[0], other[1:]...)
					out, err := cmd.CombinedOutput()
					if err != nil {
						b.Fatalf("%v\n%s", err, out)
					}
					b.ReportMetric(cmd.ProcessState.UserTime().Seconds(), "cpu-s/op")
					b.Logf("%s", out[max(0, len(out)-300):])
				}
			})
		}
	}
}

// A master problem of a decomposition. Cuts are added a hundred at a time, and each solve is
// warm-started from the last one.
func BenchmarkCuts(b *testing.B) {
	s := open(b)
	if err := s.Warm(b.Context()); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		p, rows := cuts(600, 1)
		b.StartTimer()
		for round := range 20 {
			got, err := s.Solve(b.Context(), p, linear.Limits{})
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if round == 0 || round == 19 {
				b.Logf("round %d: %d rows, %d iterations, %f", round, len(p.RowLower), got.Iterations, got.Objective)
			}
			rows(got.X)
			p.Warm = got.Basis
			b.StartTimer()
		}
	}
}

// cuts approximates a sum of convex functions by tangents; rows adds a hundred of them at a
// point.
func cuts(columns int, seed uint64) (*linear.Program, func(x []float64)) {
	r := rand.New(rand.NewPCG(seed, 2))
	const parts = 100
	inf := math.Inf(1)
	p := &linear.Program{}
	dense := make([][]float64, 0)
	for range columns {
		p.Cost = append(p.Cost, 1+r.Float64())
		p.Lower = append(p.Lower, 0)
		p.Upper = append(p.Upper, 100)
	}
	for range parts {
		p.Cost = append(p.Cost, 1)
		p.Lower = append(p.Lower, 0)
		p.Upper = append(p.Upper, inf)
	}
	weight := make([][]float64, parts)
	for k := range weight {
		weight[k] = make([]float64, columns)
		for range 30 {
			weight[k][r.IntN(columns)] = r.Float64()
		}
	}
	build := func() {
		p.Start, p.Index, p.Value = []int{0}, nil, nil
		for j := range p.Cost {
			for i, row := range dense {
				if row[j] != 0 {
					p.Index = append(p.Index, i)
					p.Value = append(p.Value, row[j])
				}
			}
			p.Start = append(p.Start, len(p.Index))
		}
	}
	build()
	return p, func(x []float64) {
		for k, w := range weight {
			// Part k costs 1000/(1+w·x); its tangent at x bounds it from below.
			at := 1.0
			for j, v := range w {
				at += v * x[j]
			}
			slope := -1000 / (at * at)
			row := make([]float64, columns+parts)
			rhs := 1000 / at
			for j, v := range w {
				row[j] = -slope * v
				rhs -= slope * v * x[j]
			}
			row[columns+k] = 1
			dense = append(dense, row)
			p.RowLower = append(p.RowLower, rhs)
			p.RowUpper = append(p.RowUpper, inf)
		}
		build()
	}
}

func BenchmarkTiny(b *testing.B) {
	s := open(b)
	p := overflow(2, 1)
	for b.Loop() {
		if _, err := s.Solve(b.Context(), p, linear.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart starts children with a compiled module.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s := open(b)
		if err := s.Warm(b.Context()); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
