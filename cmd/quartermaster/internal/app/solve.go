package app

import (
	"context"
	"errors"
	"fmt"

	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement/check"
	"quartermaster/projections"
	"quartermaster/projections/planning"
)

// SolveOptions select additional results.
type SolveOptions struct {
	EndOfHorizon bool // cost with none and with all of the remaining value credited at the end
	Baselines    bool // results without a plan
}

// Solve answers a procurement problem with the solver of this build. When until ends, it returns
// the best answer so far. It reads no log.
func (c *Caller) Solve(until context.Context, in *instances.Instance, opts SolveOptions) (*instances.Answer, error) {
	lp, done := linearSolver()
	defer done()
	defer c.app.still("solving")()
	ans, err := instances.SolveUntil(context.WithoutCancel(until), until, in, lp)
	if err == nil && opts.EndOfHorizon && until.Err() == nil {
		err = instances.EndOfHorizon(until, in, ans, lp)
	}
	if err == nil && opts.Baselines && until.Err() == nil {
		err = instances.Compare(until, in, ans)
	}
	if ans != nil && until.Err() != nil {
		err = nil
	}
	switch {
	case errors.Is(err, linear.ErrUnavailable):
		return nil, fmt.Errorf("%w: instances with connected pools need one; \"make highs\" fetches it, then build again", err)
	case errors.Is(err, check.ErrRejected):
		return nil, fmt.Errorf("the checker refuses the solver's answer, so there is none; please report this: %w", err)
	}
	return ans, err
}

// PlanInstance returns the procurement problem that [Caller.Plan] solves, as an instance.
func (c *Caller) PlanInstance(ctx context.Context, at At, q PlanQuery) (in *instances.Instance, err error) {
	err = c.readFrom(ctx, at, q.At, func(v projections.View, about domain.Instant) error {
		only, err := knownRegions(v, q.Regions)
		if err != nil {
			return err
		}
		question, err := planning.Question(v, about, only, q.Assumptions)
		if err != nil {
			return err
		}
		if in, err = question.Instance(); err == nil && len(in.Pools) == 0 {
			err = noPools(in, only, about)
		}
		return err
	})
	return in, err
}

// Appraise returns what a contract is worth, compared with the plan without it.
func (c *Caller) Appraise(ctx context.Context, in *instances.Instance, contract *instances.Contract) (*instances.Appraisal, error) {
	lp, done := linearSolver()
	defer done()
	defer c.app.still("appraising the contract")()
	got, err := instances.Appraise(ctx, in, contract, lp)
	switch {
	case errors.Is(err, linear.ErrUnavailable):
		return nil, fmt.Errorf("%w: a contract with a minimum order, tiers, a ramp or a renewal needs one; "+
			"\"make highs\" fetches it, then build again", err)
	case errors.Is(err, check.ErrRejected):
		return nil, fmt.Errorf("the checker refuses the solver's answer, so there is none; please report this: %w", err)
	}
	return got, err
}
