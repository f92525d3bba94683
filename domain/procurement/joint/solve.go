package joint

import (
	"context"

	"quartermaster/domain/linear"
)

// Solve finds purchases that serve all demand at little cost, and proves how
// little is lost. It fails for a problem that [Problem.Validate] refuses, with an
// [Infeasible] for one that nothing solves, with the context's error when that
// ends, and, when lp is nil and a part of the problem needs it, with an error
// wrapping [linear.ErrUnavailable] that says which part.
func Solve(ctx context.Context, p *Problem, lp linear.Solver) (*Solution, error) {
	panic("to be written")
}
