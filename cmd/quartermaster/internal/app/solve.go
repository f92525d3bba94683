package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/procurement/check"
	"quartermaster/domain/procurement/check/certificate"
	"quartermaster/domain/procurement/check/question"
	"quartermaster/projections"
	"quartermaster/projections/planning"
)

// SolveOptions select additional results.
type SolveOptions struct {
	EndOfHorizon bool // cost with none and with all of the remaining value credited at the end
	Baselines    bool // results without a plan
	SecondBest   bool // answers without a supplier or an offer
	// MaxShare asks for answers with at most this share of the cost for the purchases from a supplier or
	// of an offer; 0 asks for none.
	MaxShare domain.Decimal
	// Effort ends the search for coupled pools, in about seconds of counted work; 0 stands for as
	// long as a first bound takes and 10 more.
	Effort int
}

// largeDocument is a size in bytes from which on garbage is collected more often: an instance of 1,000
// pools takes 0.9 instead of 1.6 GiB so, for a tenth more time.
const largeDocument = 16 << 20

// Solve answers a procurement problem with the solver of this build. When until ends, it returns
// the best answer so far. An answer that does not follow from the document is an error. It reads no
// log.
func (c *Caller) Solve(until context.Context, q *Question, opts SolveOptions) (*instances.Answer, error) {
	if len(q.Document) > largeDocument {
		defer collectSooner(20)()
	}
	in := q.Instance
	lp, done := linearSolver()
	defer done()
	defer c.app.still("solving")()
	ans, err := instances.SolveUntil(context.WithoutCancel(until), until, in, lp, opts.Effort)
	if err == nil && opts.EndOfHorizon && until.Err() == nil {
		err = instances.EndOfHorizon(until, in, ans, lp, opts.Effort)
	}
	if err == nil && opts.Baselines && until.Err() == nil {
		err = instances.Compare(until, in, ans)
	}
	if err == nil && (opts.SecondBest || opts.MaxShare.IsPositive()) && until.Err() == nil {
		if err = ans.Alternate(until, in, opts.SecondBest, opts.MaxShare, lp); until.Err() != nil {
			ans.Unsolved = []string{"stopped before alternatives were finished"}
		}
	}
	if ans != nil && until.Err() != nil {
		err = nil
	}
	if err == nil {
		ans.Forget()
		err = follows(context.WithoutCancel(until), q, ans)
	}
	switch {
	case errors.Is(err, question.ErrRejected):
		return nil, fmt.Errorf("the checker that reads the document refuses the solver's answer, so there is none; "+
			"please report this: %w", err)
	case errors.Is(err, linear.ErrUnavailable):
		return nil, fmt.Errorf("%w: instances with connected pools need one; \"make highs\" fetches it, then build again", err)
	case errors.Is(err, check.ErrRejected):
		return nil, fmt.Errorf("the checker refuses the solver's answer, so there is none; please report this: %w", err)
	}
	return ans, err
}

// follows verifies an answer against the document of its question.
func follows(ctx context.Context, q *Question, ans *instances.Answer) error {
	text, err := json.Marshal(ans)
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	_, err = certificate.Check(ctx, q.Document, text)
	return err
}

// CheckAnswer proves the document of an answer again: with the planner's reading of the question, and
// against the question's document. name identifies the answer in errors.
func CheckAnswer(ctx context.Context, q *Question, name string, data []byte) (*instances.Answer, error) {
	ans, err := instances.ParseAnswer(name, data)
	if err != nil {
		return nil, err
	}
	if err := instances.Check(ctx, q.Instance, ans); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if _, err := certificate.Check(ctx, q.Document, data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return ans, nil
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
