package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"quartermaster/adapters/highs"
	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/domain/linear"
	"quartermaster/domain/plan"
	"quartermaster/domain/procurement/check"
	"quartermaster/projections"
	"quartermaster/projections/planning"

	"github.com/shopspring/decimal"
)

// RepeatDemand is future demand that repeats the observed weeks.
const RepeatDemand = "repeat"

// ErrNothingToPlan means that no demand to plan for was observed.
var ErrNothingToPlan = errors.New("there is nothing to plan")

// PlanQuery asks what to buy.
type PlanQuery struct {
	At          domain.Instant // 0: now
	Regions     []string       // in any order; none: all regions
	Workspace   string         // owner of the plan
	Assumptions plan.Assumptions
	DryRun      bool // do not record the plan
}

// Plan computes a plan and records it as an event, unless the same plan was recorded before.
// recorded reports whether it was recorded now. An empty plan is not recorded.
func (c *Caller) Plan(ctx context.Context, at At, q PlanQuery) (p *plan.Plan, recorded bool, err error) {
	if at != "" && !q.DryRun {
		return nil, false, &helped{invalid("as-of", "a plan computed from the past is not recorded"), RemedyDryRun}
	}
	h, err := c.at(ctx, at)
	if err != nil {
		return nil, false, err
	}
	if q.At == 0 {
		if q.At, err = h.now(ctx); err != nil {
			return nil, false, err
		}
	}
	return h.plan(ctx, q)
}

func (h *Conn) plan(ctx context.Context, q PlanQuery) (*plan.Plan, bool, error) {
	p, known, err := h.computePlan(ctx, q)
	if err != nil {
		return nil, false, err
	}
	if known || p.Empty() || q.DryRun {
		return p, false, nil
	}
	env, err := planComputed(p, q.Workspace, q.Assumptions)
	if err != nil {
		return nil, false, fmt.Errorf("record plan: %w", err)
	}
	if err := h.Stream("plan").Append(ctx, env); err != nil {
		return nil, false, fmt.Errorf("record plan: append to the log: %w", err)
	}
	return p, true, h.CatchUp(ctx)
}

// inRegion describes the regions of a question, for messages.
func inRegion(only ...string) string {
	switch {
	case len(only) == 0 || len(only) == 1 && only[0] == "":
		return ""
	case len(only) == 1:
		return " in region " + only[0]
	}
	return " in regions " + strings.Join(only, ", ")
}

// knownRegions refuses unknown regions, and sorts the known ones, so that equal questions are
// equal.
func knownRegions(v projections.View, named []string) ([]string, error) {
	for _, region := range named {
		if region == "" {
			return nil, invalid("region", "a region has no name")
		}
		if err := (narrowed{region: region}).known(v); err != nil {
			return nil, err
		}
	}
	only := slices.Clone(named)
	slices.Sort(only)
	return slices.Compact(only), nil
}

// computePlan computes a plan and reports whether the same was recorded before. An empty plan is
// not worth recording: nothing could be planned. It is computed without a view, because nothing can be folded while
// there is one.
func (h *Conn) computePlan(ctx context.Context, q PlanQuery) (p *plan.Plan, known bool, err error) {
	var only []string
	var asked *plan.Question
	if err := h.View(ctx, func(v projections.View) (err error) {
		if only, err = knownRegions(v, q.Regions); err != nil {
			return err
		}
		if q.Workspace != Platform { // it exists even before it is registered
			if err := (narrowed{workspace: q.Workspace}).empty(v); err != nil {
				return err
			}
		}
		asked, err = planQuestion(v, q.At, only, q.Assumptions)
		return err
	}); err != nil {
		return nil, false, err
	}
	lp, done := linearSolver()
	defer done()
	if p, err = plan.Compute(ctx, asked, lp); errors.Is(err, check.ErrRejected) {
		return nil, false, fmt.Errorf("the checker refuses the solver's answer, so there is no plan; please report this: %w", err)
	} else if err != nil {
		return nil, false, err
	}
	if len(p.Regions) == 0 && len(p.Excluded) == 0 {
		return nil, false, noDemand(only, q.At)
	}
	err = h.View(ctx, func(v projections.View) error {
		row, err := v.Get(projections.Key{Table: projections.TablePlans, Scope: q.Workspace, ID: p.ID})
		known = row != nil
		return err
	})
	return p, known, err
}

// planQuestion returns the input of a plan, with draws for forecast demand.
func planQuestion(v projections.View, at domain.Instant, only []string, as plan.Assumptions) (*plan.Question, error) {
	q, err := planning.Question(v, at, only, as)
	if err == nil {
		q.Draws = func(stream uint64) func() uint64 { return rand.NewPCG(as.Seed, stream).Uint64 }
	}
	return q, err
}

// planComputed returns the event that records a plan.
func planComputed(p *plan.Plan, workspace string, as plan.Assumptions) (*domain.Envelope, error) {
	document, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(document)
	ev := &domain.PlanComputed{
		Plan: p.ID, Position: p.Position, Method: strings.Join(p.Methods, " "), Horizon: p.Horizon,
		Cost: domain.Money{Amount: p.Total.Cost, Currency: as.Currency}, LowerBound: domain.Money{Amount: p.Total.LowerBound, Currency: as.Currency},
		Digest: sum[:], Document: document,
	}
	for i := range p.Regions {
		if r := p.Regions[i].Region; r != "" {
			ev.Regions = append(ev.Regions, r)
		}
	}
	env := &domain.Envelope{Time: Now(), Subject: p.ID, Workspace: workspace, Event: ev}
	return env, domain.Validate(env)
}

// RecordedPlan is a plan in the log.
type RecordedPlan struct {
	Plan       string          `json:"plan"`
	Workspace  string          `json:"workspace"`
	Recorded   domain.Instant  `json:"recorded"`
	Horizon    domain.Interval `json:"horizon"`
	Regions    []string        `json:"regions"`
	Cost       domain.Money    `json:"cost"`
	LowerBound domain.Money    `json:"lower_bound"`
	Method     string          `json:"method"`
	Position   string          `json:"position"`
	Digest     string          `json:"digest"` // SHA-256 of the document

	// Document is the plan as it was recorded.
	Document []byte `json:"-"`
}

// Plans returns the recorded plans, the newest first.
func (c *Caller) Plans(ctx context.Context, at At) ([]RecordedPlan, error) {
	h, err := c.at(ctx, at)
	if err != nil {
		return nil, err
	}
	return h.Plans(ctx)
}

// RecordedPlan returns a recorded plan by its id.
func (c *Caller) RecordedPlan(ctx context.Context, at At, id string) (*RecordedPlan, *plan.Plan, error) {
	all, err := c.Plans(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(all, func(p RecordedPlan) bool { return p.Plan == id })
	if i < 0 {
		return nil, nil, &NotFoundError{What: "plan", Name: id, Err: fmt.Errorf("no plan %q; \"quartermaster plan list\" shows the recorded plans", id)}
	}
	var p plan.Plan
	if err := json.Unmarshal(all[i].Document, &p); err != nil {
		return nil, nil, fmt.Errorf("plan %s: its document cannot be read: %w", id, err)
	}
	return &all[i], &p, nil
}

// VerifyPlan folds the log up to a recorded plan's position and computes the plan again.
func (c *Caller) VerifyPlan(ctx context.Context, id string) (*Verified, error) {
	e, p, err := c.RecordedPlan(ctx, "", id)
	if err != nil {
		return nil, err
	}
	h, err := c.log(ctx)
	if err != nil {
		return nil, err
	}
	return h.verifyPlan(ctx, e, p)
}

// Plans returns every recorded plan, the newest first.
func (h *Conn) Plans(ctx context.Context) ([]RecordedPlan, error) {
	out := []RecordedPlan{}
	err := h.View(ctx, func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TablePlans}, func(k projections.Key, row projections.Row) error {
			version := row.(*projections.History).Latest()
			ev := version.Event.(*domain.PlanComputed)
			out = append(out, RecordedPlan{
				Plan: ev.Plan, Workspace: k.Scope, Recorded: version.Order.Time, Horizon: ev.Horizon, Regions: ev.Regions, Cost: ev.Cost,
				LowerBound: ev.LowerBound, Method: ev.Method, Position: ev.Position, Digest: fmt.Sprintf("%x", ev.Digest), Document: ev.Document,
			})
			return nil
		})
	})
	slices.SortFunc(out, func(a, b RecordedPlan) int {
		return cmp.Or(cmp.Compare(b.Recorded, a.Recorded), cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Plan, b.Plan))
	})
	return out, err
}

// verifyPlan folds the log up to a plan's position and computes the plan again.
func (h *Conn) verifyPlan(ctx context.Context, e *RecordedPlan, p *plan.Plan) (*Verified, error) {
	if now := strings.Join(p.Assumptions.Methods(projections.Method), " "); e.Method != now {
		return nil, fmt.Errorf("plan %s was computed by %s, this program computes by %s: verify it with that version", e.Plan, e.Method, now)
	}
	r := recorded{"plan", e.Plan, "computed", p.Position, e.Digest, e.Document}
	return h.verify(ctx, &r, func(v projections.View) (any, error) {
		q, err := planQuestion(v, p.At, p.Asked(), p.Assumptions)
		if err != nil {
			return nil, err
		}
		lp, done := linearSolver()
		defer done()
		if p.WithoutSolver {
			lp = nil // as the plan was computed
		}
		again, err := plan.Compute(ctx, q, lp)
		if err == nil && again.WithoutSolver && !p.WithoutSolver {
			return nil, errors.New("the plan needs a linear programming solver, and this program was built without one: " +
				"run \"make highs\" and build again")
		}
		return again, err
	})
}

// recorded is a document that can be recomputed from the log.
type recorded struct {
	kind, id string
	verb     string // verb for messages: how it was made
	position string
	digest   string // SHA-256 of the document, in hexadecimal digits
	document []byte
}

// Verified compares a recorded document with a recomputed one.
type Verified struct {
	Position string `json:"position"` // of the rows that it was computed from
	Recorded string `json:"recorded"` // SHA-256 of the recorded document, in hexadecimal digits
	Again    string `json:"again"`    // SHA-256 of the recomputed one
	Equal    bool   `json:"equal"`    // byte for byte
}

// verify folds the log up to a document's position, calls again with the rows there, and compares
// the documents byte for byte.
func (h *Conn) verify(ctx context.Context, r *recorded, again func(projections.View) (any, error)) (*Verified, error) {
	until, err := domain.ParsePosition(r.position)
	if err != nil {
		return nil, fmt.Errorf("%s %s: position: %w", r.kind, r.id, err)
	}
	fresh, sealer := h.memory(false)
	if err := NewRunner(sealingLog{h.Log, sealer}, fresh).CatchUp(ctx, until); err != nil {
		return nil, fmt.Errorf("replay the log to %s: %w", r.position, err)
	}
	var document []byte
	if err := fresh.View(ctx, func(v projections.View) error {
		made, err := again(v)
		if err != nil {
			return err
		}
		document, err = json.Marshal(made)
		return err
	}); err != nil {
		return nil, err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(document))
	return &Verified{r.position, r.digest, sum, bytes.Equal(document, r.document) && sum == r.digest}, nil
}

func noDemand(only []string, at domain.Instant) error {
	return &ConflictError{Err: fmt.Errorf(
		"%w%s: no demand was observed before %s; import some with \"quartermaster import usage\" or \"quartermaster import demand\"",
		ErrNothingToPlan, inRegion(only...), at)}
}

// noPools says why there is nothing to plan.
func noPools(in *instances.Instance, only []string, at domain.Instant) error {
	if len(in.Notes) == 0 {
		return noDemand(only, at)
	}
	more := ""
	if n := len(in.Notes) - 1; n > 0 {
		more = fmt.Sprintf(", and %s more", comma(n))
	}
	return &helped{&ConflictError{Err: fmt.Errorf("%w at %s: %s%s", ErrNothingToPlan, at, in.Notes[0], more)}, RemedyOtherTime}
}

// lazySolver opens a linear programming solver at the first program, so that an instance that
// needs none never starts it.
type lazySolver struct {
	solver *highs.Solver
	err    error
}

// Solve implements [linear.Solver].
func (l *lazySolver) Solve(ctx context.Context, p *linear.Program, limits linear.Limits) (*linear.Solution, error) {
	if l.solver == nil && l.err == nil {
		l.solver, l.err = highs.Open(highs.Options{})
	}
	if l.err != nil {
		return nil, l.err
	}
	return l.solver.Solve(ctx, p, limits)
}

func (l *lazySolver) close() {
	if l.solver != nil {
		_ = l.solver.Close() // all answers were received
	}
}

// linearSolver returns the solver of this build, nil if it has none.
func linearSolver() (solver linear.Solver, done func()) {
	if !highs.Available() {
		return nil, func() {}
	}
	l := &lazySolver{}
	return l, l.close
}

// UsualPlan is the default query of people and schedules: three years, four weeks of observed
// demand repeated without growth.
func UsualPlan() PlanQuery {
	return PlanQuery{Workspace: Platform, Assumptions: plan.Assumptions{
		Months: 36, Weeks: 4, AnnualRate: planning.FromPolicy, Salvage: decimal.New(5, -1),
		SpotOverhead: decimal.New(5, -2), ShortageFactor: decimal.NewFromInt(10), Currency: "USD",
	}}
}
