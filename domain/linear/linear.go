// Package linear is the port to a solver of linear programs, some of whose
// variables may have to be whole. The planner proposes with it and never decides
// by it: what comes back is floating point, and whoever uses it rounds, repairs
// and proves in exact arithmetic.
//
// What always holds: equal programs and limits give equal solutions, bit for
// bit, on every machine. So a solver stops on counts of work, never on the clock.
package linear

import (
	"context"
	"errors"
)

// Program is
//
//	minimise cost·x   such that   RowLower ≤ A·x ≤ RowUpper,  Lower ≤ x ≤ Upper
//
// with A by columns: the entries of column j are Index and Value from Start[j]
// up to Start[j+1], rows ascending, none twice. math.Inf stands for no bound.
type Program struct {
	Cost         []float64 // by column
	Lower, Upper []float64 // by column
	Whole        []bool    // by column; nil: none has to be whole
	RowLower     []float64
	RowUpper     []float64
	Start        []int // one more than there are columns
	Index        []int
	Value        []float64
	// Warm is the basis of a solution of a like program, nil for none. What it
	// lacks (rows or columns added at the end) is filled in.
	Warm *Basis
}

// Limits bound the work. Zero stands for the solver's own limit.
type Limits struct {
	Iterations int     // of the simplex
	Nodes      int     // of branch and bound
	Gap        float64 // relative, at which branch and bound may stop
	// Checks is how often branch and bound may ask whether to go on, which it does
	// thousands of times a second, within a node too.
	Checks int
}

// Status says what became of a program.
type Status string

// The statuses.
const (
	Optimal    Status = "optimal"
	Infeasible Status = "infeasible"
	Unbounded  Status = "unbounded"
	Limited    Status = "limited" // work ran out; X is the best that was found, nil if none
)

// Solution is what a solver found. Prices are the dual values of the rows: what
// the objective gains when a row's bound grows by one. With whole variables they
// are those of no program, and nil.
type Solution struct {
	Status     Status
	X          []float64
	Objective  float64
	Bound      float64 // no solution is below it
	Prices     []float64
	Basis      *Basis
	Iterations int
	Nodes      int
}

// Basis says where each column and row stands, in the solver's own codes but for
// Basic. As many of them are basic as there are rows.
type Basis struct {
	Columns, Rows []int8
}

// Basic is the code of a column or row within the basis. A basic row is off its
// bounds, or might as well not be there: its price is 0, and the basis without it
// is one of the program without it.
const Basic = 1

// Solver solves programs, one at a time.
type Solver interface {
	// Solve returns an error wrapping ErrUnavailable when there is no solver, the
	// context's error when it ends first, and one of its own when a program is no
	// program: NaN, bounds crossed, indices out of range.
	Solve(ctx context.Context, p *Program, l Limits) (*Solution, error)
}

// ErrUnavailable means that this build has no solver of linear programs. What
// needs none still works; the rest says so and how to get one.
var ErrUnavailable = errors.New("no solver of linear programs is built in")
