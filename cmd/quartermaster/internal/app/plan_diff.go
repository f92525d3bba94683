package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"quartermaster/domain/plan"
)

// PlanDiff compares two plans. Each is the id of a recorded plan, or the path of a file
// with a plan's document.
func (c *Caller) PlanDiff(ctx context.Context, at At, a, b string) (*plan.Diff, error) {
	first, err := c.planNamed(ctx, at, a)
	if err != nil {
		return nil, err
	}
	second, err := c.planNamed(ctx, at, b)
	if err != nil {
		return nil, err
	}
	d, err := plan.NewDiff(first, second)
	if errors.Is(err, plan.ErrCurrencies) {
		err = &InvalidError{Err: err}
	}
	return d, err
}

// planPrefix begins the ids of plans.
const planPrefix = "plan-"

// planNamed returns the plan with an id, or in a file.
func (c *Caller) planNamed(ctx context.Context, at At, name string) (*plan.Plan, error) {
	document, err := os.ReadFile(name)
	switch {
	case err == nil:
		var p plan.Plan
		if err := json.Unmarshal(document, &p); err != nil {
			return nil, &InvalidError{Err: fmt.Errorf("read plan %s: %w", name, err)}
		}
		if !strings.HasPrefix(p.ID, planPrefix) || p.Regions == nil {
			return nil, &InvalidError{Err: fmt.Errorf("read plan %s: it has no plan; \"quartermaster plan show\" writes one as JSON", name)}
		}
		return &p, nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, &UnavailableError{Err: fmt.Errorf("read plan: %w", err)}
	case !strings.HasPrefix(name, planPrefix) || strings.ContainsAny(name, "./\\"):
		return nil, &NotFoundError{What: "plan", Name: name, Err: fmt.Errorf("%q is neither a file nor the id of a plan; "+
			"\"quartermaster plan list\" shows the recorded plans", name)}
	}
	_, p, err := c.RecordedPlan(ctx, at, name)
	return p, err
}
