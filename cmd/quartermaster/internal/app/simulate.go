package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"quartermaster/domain"
	problem "quartermaster/domain/instance"
	"quartermaster/projections"
	"quartermaster/simulations/whatif"
)

// Freeze records a scenario with its answer as an event, once.
func (c *Caller) Freeze(ctx context.Context, r *whatif.Result, workspace string) error {
	if r.Scenario.Base.Instance != "" {
		return invalid("base.instance", "a scenario of an instance cannot be frozen: its base is not in the log; base it on a position")
	}
	h, err := c.at(ctx, At(r.Scenario.Base.Position))
	if err != nil {
		return err
	}
	recorded, err := h.simulations(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(recorded, func(e FrozenScenario) bool { return e.Simulation == r.ID && e.Workspace == workspace }) {
		h.app.tell("%s was recorded before", r.ID)
		return nil
	}
	document, err := json.Marshal(r)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(document)
	env := &domain.Envelope{Time: Now(), Subject: r.ID, Workspace: workspace, Event: &domain.ScenarioFrozen{
		Scenario: r.ID, Position: r.Position, Method: strings.Join(r.Methods, " "), Seed: r.Seed, Digest: sum[:], Document: document,
	}}
	if err := domain.Validate(env); err != nil {
		return fmt.Errorf("freeze %s: %w", r.ID, err)
	}
	if err := h.Stream("simulate").Append(ctx, env); err != nil {
		return fmt.Errorf("freeze %s: append to the log: %w", r.ID, err)
	}
	h.app.tell("recorded as %s", r.ID)
	if h.asOf != nil {
		return nil
	}
	return h.CatchUp(ctx)
}

// FrozenScenario is a frozen scenario in a list.
type FrozenScenario struct {
	Simulation string         `json:"simulation"`
	Workspace  string         `json:"workspace"`
	Name       string         `json:"name"`
	Recorded   domain.Instant `json:"recorded"`
	Seed       uint64         `json:"seed"`
	Runs       int            `json:"runs"`
	Method     string         `json:"method"`
	Position   string         `json:"position"`
	Digest     string         `json:"digest"` // SHA-256 of the document

	// Document is the answer as it was recorded, and Result its content.
	Document []byte        `json:"-"`
	Result   whatif.Result `json:"-"`
}

// Simulate answers a scenario. It forks the log in memory, or takes the instance that the
// scenario names, and appends nothing. workers is the number of trials evaluated at once; 0 is
// one for each processor. It does not affect the answer.
func (c *Caller) Simulate(ctx context.Context, s *whatif.Scenario, workers int) (*whatif.Result, error) {
	if s.Base.Instance != "" {
		in, err := c.app.ReadInstance(s.Base.Instance, strings.NewReader(""))
		if err != nil {
			return nil, fmt.Errorf("base.instance: %w", err)
		}
		return c.app.answerScenario(ctx, &whatif.Input{Scenario: s, Instance: in, Workers: workers})
	}
	var in *whatif.Input
	var p *whatif.Prepared
	err := c.readFrom(ctx, At(s.Base.Position), s.Base.At, func(v projections.View, about domain.Instant) (err error) {
		if err := (narrowed{region: s.Base.Region}).known(v); err != nil {
			return err
		}
		in = &whatif.Input{Scenario: s, View: v, At: about, Workers: workers}
		p, err = whatif.Prepare(ctx, in)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.app.runScenario(ctx, in, p) // after the rows are released: while they are read, nothing is folded
}

// Simulations returns the frozen scenarios, the newest first.
func (c *Caller) Simulations(ctx context.Context, at At) ([]FrozenScenario, error) {
	h, err := c.at(ctx, at)
	if err != nil {
		return nil, err
	}
	return h.simulations(ctx)
}

// Simulation returns a frozen scenario by its id.
func (c *Caller) Simulation(ctx context.Context, at At, id string) (*FrozenScenario, error) {
	h, err := c.at(ctx, at)
	if err != nil {
		return nil, err
	}
	return h.simulation(ctx, id)
}

// VerifySimulation folds the log up to a frozen scenario's position and answers it again.
func (c *Caller) VerifySimulation(ctx context.Context, id string, workers int) (*Verified, error) {
	e, err := c.Simulation(ctx, "", id)
	if err != nil {
		return nil, err
	}
	h, err := c.log(ctx)
	if err != nil {
		return nil, err
	}
	return h.verifySimulation(ctx, e, workers)
}

// simulations returns every frozen scenario, the newest first.
func (h *Conn) simulations(ctx context.Context) ([]FrozenScenario, error) {
	out := []FrozenScenario{}
	err := h.View(ctx, func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableScenarios}, func(k projections.Key, row projections.Row) error {
			version := row.(*projections.History).Latest()
			ev := version.Event.(*domain.ScenarioFrozen)
			e := FrozenScenario{
				Simulation: ev.Scenario, Workspace: k.Scope, Recorded: version.Order.Time, Seed: ev.Seed, Method: ev.Method, Position: ev.Position,
				Digest: fmt.Sprintf("%x", ev.Digest), Document: ev.Document,
			}
			if err := json.Unmarshal(ev.Document, &e.Result); err == nil {
				e.Name, e.Runs = e.Result.Name, e.Result.Runs
			}
			out = append(out, e)
			return nil
		})
	})
	slices.SortFunc(out, func(a, b FrozenScenario) int {
		return cmp.Or(cmp.Compare(b.Recorded, a.Recorded), cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Simulation, b.Simulation))
	})
	return out, err
}

// simulation returns a frozen scenario by its id.
func (h *Conn) simulation(ctx context.Context, id string) (*FrozenScenario, error) {
	all, err := h.simulations(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(e FrozenScenario) bool { return e.Simulation == id })
	if i < 0 {
		return nil, &NotFoundError{What: "simulation", Name: id, Err: fmt.Errorf("no frozen scenario %q; \"quartermaster simulate list\" shows the recorded ones", id)}
	}
	return &all[i], nil
}

// verifySimulation folds the log up to a frozen scenario's position and answers it again.
func (h *Conn) verifySimulation(ctx context.Context, e *FrozenScenario, workers int) (*Verified, error) {
	if now := strings.Join(whatif.Methods(), " "); e.Method != now {
		return nil, fmt.Errorf("scenario %s was answered by %s, this program answers by %s: verify it with that version",
			e.Simulation, e.Method, now)
	}
	r := recorded{"answer", e.Simulation, "answered", e.Position, e.Digest, e.Document}
	return h.verify(ctx, &r, func(v projections.View) (any, error) {
		return h.app.answerScenario(ctx, &whatif.Input{Scenario: e.Result.Scenario, View: v, At: e.Result.At, Workers: workers})
	})
}

// SimulationDiff compares two answers, alternative by alternative.
type SimulationDiff struct {
	A            string              `json:"a"`
	B            string              `json:"b"`
	Alternatives []AlternativeChange `json:"alternatives"`
	Notes        []string            `json:"notes"`
}

// AlternativeChange is how an alternative differs between two answers.
type AlternativeChange struct {
	Alternative string         `json:"alternative"`
	A           domain.Decimal `json:"a_expected_cost"`
	B           domain.Decimal `json:"b_expected_cost"`
	Change      domain.Decimal `json:"change"`
	P95         domain.Decimal `json:"p95_change"`
	Units       int            `json:"units_bought_change"`
	Only        string         `json:"only_in,omitempty"` // a or b
}

// CompareSimulations compares the alternatives of two answers by name.
func CompareSimulations(x, y *whatif.Result) *SimulationDiff {
	d := &SimulationDiff{A: x.ID, B: y.ID, Alternatives: []AlternativeChange{}, Notes: []string{}}
	bought := func(o *whatif.Outcome) (n int) {
		for _, p := range o.Purchases {
			n += p.Units
		}
		return n
	}
	for i := range x.Alternatives {
		o := &x.Alternatives[i]
		j := slices.IndexFunc(y.Alternatives, func(z whatif.Outcome) bool { return z.Alternative == o.Alternative })
		if j < 0 {
			d.Alternatives = append(d.Alternatives, AlternativeChange{Alternative: o.Alternative, A: o.Expected, Only: "a"})
			continue
		}
		z := &y.Alternatives[j]
		d.Alternatives = append(d.Alternatives, AlternativeChange{
			Alternative: o.Alternative, A: o.Expected, B: z.Expected,
			Change: z.Expected.Sub(o.Expected), P95: z.P95.Sub(o.P95), Units: bought(z) - bought(o),
		})
	}
	for i := range y.Alternatives {
		z := &y.Alternatives[i]
		if !slices.ContainsFunc(x.Alternatives, func(o whatif.Outcome) bool { return o.Alternative == z.Alternative }) {
			d.Alternatives = append(d.Alternatives, AlternativeChange{Alternative: z.Alternative, B: z.Expected, Only: "b"})
		}
	}
	for _, n := range []struct{ what, a, b string }{
		{"position", x.Position, y.Position},
		{"seed", fmt.Sprint(x.Seed), fmt.Sprint(y.Seed)},
		{"trials", fmt.Sprint(x.Runs), fmt.Sprint(y.Runs)},
		{"methods", strings.Join(x.Methods, " "), strings.Join(y.Methods, " ")},
		{"currency", x.Currency, y.Currency},
		{"horizon", day(x.Horizon.From) + " to " + day(x.Horizon.To), day(y.Horizon.From) + " to " + day(y.Horizon.To)},
		{"time", x.At.String(), y.At.String()},
	} {
		if n.a != n.b {
			d.Notes = append(d.Notes, fmt.Sprintf("another %s: %s, and %s", n.what, domain.Clip(n.a, 200), domain.Clip(n.b, 200)))
		}
	}
	return d
}

// answerScenario answers a scenario.
func (s *App) answerScenario(ctx context.Context, in *whatif.Input) (*whatif.Result, error) {
	p, err := whatif.Prepare(ctx, in)
	if err != nil {
		return nil, err
	}
	return s.runScenario(ctx, in, p)
}

// runScenario answers a scenario that is prepared.
func (s *App) runScenario(ctx context.Context, in *whatif.Input, p *whatif.Prepared) (*whatif.Result, error) {
	sc := in.Scenario
	lp, done := linearSolver()
	defer done()
	in.Solve = func(ctx context.Context, p *problem.Instance) (*problem.Answer, error) {
		return problem.Solve(ctx, p, lp)
	}
	in.EndOfHorizon = func(ctx context.Context, p *problem.Instance, a *problem.Answer) error {
		return problem.EndOfHorizon(ctx, p, a, lp, 0)
	}
	if in.Workers <= 0 {
		in.Workers = runtime.GOMAXPROCS(0)
	}
	bar := s.track(Work{Name: "simulate", Total: int64(sc.Runs) * int64(len(sc.Alternatives)), Unit: "trials", Slow: true})
	defer bar.Stop()
	in.Progress = func(done, _ int64) { bar.Set(done) }
	return p.Run(ctx)
}
