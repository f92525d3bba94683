package packing_test

import (
	"context"
	"math"

	"quartermaster/domain/linear"
)

// simplex solves small programs, so that tests need no other solver: a dense
// tableau, the smallest index first (Bland's rule). It takes what column
// generation asks: rows with one bound, columns from 0 up, and for every row
// with a lower bound a last column of its own that meets it.
type simplex struct{}

func (simplex) Solve(ctx context.Context, p *linear.Program, _ linear.Limits) (*linear.Solution, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	rows, cols := len(p.RowLower), len(p.Cost)
	width := cols + rows + 1 // a slack a row, and the right hand side
	t := make([][]float64, rows)
	for i := range t {
		t[i] = make([]float64, width)
		if math.IsInf(p.RowUpper[i], 1) {
			t[i][cols+i], t[i][width-1] = -1, p.RowLower[i]
		} else {
			t[i][cols+i], t[i][width-1] = 1, p.RowUpper[i]
		}
	}
	for j := range cols {
		for k := p.Start[j]; k < p.Start[j+1]; k++ {
			t[p.Index[k]][j] = p.Value[k]
		}
	}
	basis := make([]int, rows)
	lower := 0 // rows with a lower bound come first, and so do their columns
	for i := range t {
		basis[i] = cols + i
		if math.IsInf(p.RowUpper[i], 1) {
			lower++
		}
	}
	for i := range lower {
		basis[i] = cols - lower + i
	}
	z := make([]float64, width) // reduced costs
	copy(z, p.Cost)
	for i, b := range basis {
		if b < cols {
			for j := range z {
				z[j] -= p.Cost[b] * t[i][j]
			}
		}
	}
	iterations := 0
	for ; iterations < 100_000; iterations++ {
		in, out := -1, -1
		for j := range width - 1 {
			if z[j] < -1e-9 {
				in = j
				break
			}
		}
		if in < 0 {
			break
		}
		for i := range t {
			if t[i][in] > 1e-9 && (out < 0 || t[i][width-1]/t[i][in] < t[out][width-1]/t[out][in]-1e-12 ||
				t[i][width-1]/t[i][in] <= t[out][width-1]/t[out][in]+1e-12 && basis[i] < basis[out]) {
				out = i
			}
		}
		if out < 0 {
			return &linear.Solution{Status: linear.Unbounded}, nil
		}
		by := t[out][in]
		for j := range width {
			t[out][j] /= by
		}
		for i := range t {
			if f := t[i][in]; i != out && f != 0 {
				for j := range width {
					t[i][j] -= f * t[out][j]
				}
			}
		}
		if f := z[in]; f != 0 {
			for j := range width {
				z[j] -= f * t[out][j]
			}
		}
		basis[out] = in
	}
	s := &linear.Solution{Status: linear.Optimal, X: make([]float64, cols), Prices: make([]float64, rows), Iterations: iterations}
	for i, b := range basis {
		if b < cols {
			s.X[b] = t[i][width-1]
		}
	}
	for i := range rows {
		s.Prices[i] = -z[cols+i]
		if math.IsInf(p.RowUpper[i], 1) {
			s.Prices[i] = z[cols+i]
		}
	}
	for j, x := range s.X {
		s.Objective += p.Cost[j] * x
	}
	return s, nil
}
