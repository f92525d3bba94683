// Package linear is the port to a solver of (mixed-integer) linear programs. The planner uses it
// for proposals, never for decisions: solutions are floating point, and callers round, repair and
// prove them in exact arithmetic.
//
// What always holds: equal programs and limits give equal solutions, bit for bit, on every machine.
// So a solver stops on counts of work, never on the clock.
package linear

import (
	"context"
	"errors"
)

// Program is
//
//	minimise cost·x   such that   RowLower ≤ A·x ≤ RowUpper,  Lower ≤ x ≤ Upper
//
// with A by columns: the entries of column j are Index and Value from Start[j] up to Start[j+1],
// with rows ascending and distinct. math.Inf stands for no bound.
type Program struct {
	Cost         []float64 // by column
	Lower, Upper []float64 // by column
	Whole        []bool    // by column; nil: no integer variables
	RowLower     []float64
	RowUpper     []float64
	Start        []int // one more than the number of columns
	Index        []int
	Value        []float64
	// Warm is the basis of a solution of a similar program, nil for none. Missing entries (rows or
	// columns added at the end) are filled in.
	Warm *Basis
}

// Limits bound the work. Zero stands for the solver's own limit.
type Limits struct {
	Iterations int     // of the simplex
	Nodes      int     // of branch and bound
	Gap        float64 // relative gap at which branch and bound may stop
	// Checks is how often branch and bound may ask whether to continue, which it does thousands of
	// times a second, also within a node.
	Checks int
}

// Status is the result status of a program.
type Status string

// The statuses.
const (
	Optimal    Status = "optimal"
	Infeasible Status = "infeasible"
	Unbounded  Status = "unbounded"
	Limited    Status = "limited" // a limit was reached; X is the best solution found, nil if none
)

// Solution is the result of a solver. Prices are the dual values of the rows: the change of the
// objective when a row's bound grows by one. With integer variables dual values do not exist, and
// Prices is nil.
type Solution struct {
	Status     Status
	X          []float64
	Objective  float64
	Bound      float64 // lower bound on the objective
	Prices     []float64
	Basis      *Basis
	Iterations int
	Nodes      int
}

// Basis holds the status of each column and row, in the solver's own codes except for Basic. As
// many of them are basic as there are rows.
type Basis struct {
	Columns, Rows []int8
}

// Basic is the code of a basic column or row. A basic row is not binding: its price is 0, and the
// basis without it is a basis of the program without it.
const Basic = 1

// Solver solves programs, one at a time.
type Solver interface {
	// Solve returns an error wrapping ErrUnavailable if there is no solver, the context's error if
	// the context ends first, and an error of its own for an invalid program: NaN, crossed bounds,
	// indices out of range.
	Solve(ctx context.Context, p *Program, l Limits) (*Solution, error)
}

// ErrUnavailable means that this build has no solver of linear programs. Features that need none
// still work. The others say so, and how to get a solver.
var ErrUnavailable = errors.New("no solver of linear programs is built in")
