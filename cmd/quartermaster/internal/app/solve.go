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

// SolveOptions say what is computed beside the answer to an instance.
type SolveOptions struct {
	EndOfHorizon bool // what the purchases cost with nothing and with all of what is left at the end credited
	Baselines    bool // what is done without a plan
}

// Solve answers a procurement problem with the solver of this build. When until ends, it
// answers with what is known by then. It reads no log.
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
		return nil, fmt.Errorf("%w: instances whose pools have to do with one another need one; \"make highs\" fetches it, then build again", err)
	case errors.Is(err, check.ErrRejected):
		return nil, fmt.Errorf("the checker refuses the solver's answer, so there is none; please report this: %w", err)
	}
	return ans, err
}

// PlanInstance answers the procurement problem that [Caller.Plan] solves, as an instance.
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

// Appraise answers what a contract is worth beside the plan without it.
func (c *Caller) Appraise(ctx context.Context, in *instances.Instance, contract *instances.Contract) (*instances.Appraisal, error) {
	lp, done := linearSolver()
	defer done()
	defer c.app.still("weighing the contract")()
	got, err := instances.Appraise(ctx, in, contract, lp)
	switch {
	case errors.Is(err, linear.ErrUnavailable):
		return nil, fmt.Errorf("%w: a contract with a least order, tiers, a ramp or a renewal needs one; \"make highs\" fetches it, then build again", err)
	case errors.Is(err, check.ErrRejected):
		return nil, fmt.Errorf("the checker refuses the solver's answer, so there is none; please report this: %w", err)
	}
	return got, err
}
