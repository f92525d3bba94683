package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	application "quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	problem "quartermaster/domain/instance"
	"quartermaster/projections"
	"quartermaster/simulations/whatif"
)

// simulationKeys names the keys of a result, for the help of the commands that
// show one.
const simulationKeys = `A result has simulation (its id), format, name, question, position, at, methods,
currency, horizon (from, to), annual_rate (it discounts), salvage (the share
credited of what a purchase costs beyond the horizon), seed, runs, scenario (the
file, with what it left out), drivers (driver, distribution, p5, p50, p95, mean,
alternatives), alternatives, differences (alternative, from, mean, mean_interval, p5, p50, p95,
cheaper_share_of_draws), break_even (pool, offer, kind, term_epochs, hourly,
on_demand_hourly, break_even_utilization, alternatives, generated, citation) and
notes.

An alternative has alternative, expected_cost, expected_cost_interval, p5_cost,
p50_cost, p95_cost, cvar_90_cost, median_world_cost, shortage_penalty,
committed_cost, stranded_cost, p95_stranded_cost, demand_unit_hours,
unserved_unit_hours, unserved_share, spot_share, constraints (constraint,
share_of_draws), purchases (offer, commitment, pool, units, term, upfront and hourly
(nominal, of all units), cost (within the horizon, after salvage),
guarantees_capacity, generated, citation), scenario_set (id, weight,
demand_unit_hours), solved_cost, lower_bound, gap, solvers, end_of_horizon (salvage,
cost of the same purchases, best_cost, lower_bound, purchases), draws_above_solved,
draws_above_solved_share, beside_the_gap (driver, solved), tornado (driver, given,
p5, p95, p5_cost, p95_cost), cost_distribution (from, to, draws), load_duration (pool,
hours, guaranteed, price_only, spot, on_demand, unserved, committed), draws_sha256
and notes. Amounts are decimal text, net present values.`

type simulateFlags struct {
	out       string
	runs      int
	workers   int
	freeze    bool
	workspace string
}

func (a *app) simulateCommand() *cobra.Command {
	fl := simulateFlags{workspace: platform}
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "What if: courses of action under growth, prices, outages and more, draw by draw",
		Long: `Simulate answers a scenario file. It forks the log in memory, adds the events that
the scenario supposes, and plans from the forked rows. What is uncertain is
drawn: purchases are solved once for each alternative, over a few weighted
scenarios that the draws are reduced to, and then every draw says what they come
to. Alternatives share their random numbers. The same file on the same position
gives the same bytes; nothing is appended, but by --freeze.

Purchases rest on what is taken as given: the annual rate, and the share that is
credited of what they cost beyond the horizon, 0.5 where the file does not say.
end_of_horizon has what they cost with nothing and with all of it credited, and what
the best purchases cost then.

Purchases hedge what is wanted and the spot that can be had: those the weighted
scenarios have differently. Prices, exchange rates and interruptions enter the
solved problem at their mean over the draws, and so do quotas, or lower, if the
purchases for a quota at its 25th or 5th percentile cost less in the draws;
deliveries that are later than the median, outages and maintenance do not enter
it. So the gap (solved_cost over lower_bound) is a proof about that problem and
not about the draws. What the draws cost more, or less, stands beside it as
draws_above_solved, with the name of each thing that they vary and the problem
does not (beside_the_gap: at its mean, at its p25, at its p5, never late, left
out; of constraints: kept in expectation). Draws serve every hour as the solved
problem does without constraints: pools that share a quota, or may serve one
another's demand by spill or as substitutes, are served together at least cost,
those that are left while a region is gone too. Budgets and limits among the
constraints bind the solved problem, in expectation over its scenarios: a draw may
exceed them, and constraints says in which share of the draws the limits are kept.

What is wanted is whole machines: growth is rounded to the nearest, what launches add
up. Where machines fail, spare ones that keep 99 % service level, or that of the
demand's own buffer, count as wanted. What comes late is not paid by the hour until
it is there; what was paid upfront is. A break-even is over an offer's whole term,
discounted to its first day, owned hardware with what it takes to run.

A file is YAML; schemas/scenario/v1.schema.json describes it, and
"quartermaster simulate changes" what can be supposed. With --out, a directory
gets result.json, tables in CSV and charts in SVG, in place of those of an earlier run.

` + simulationKeys,
		Example: "  quartermaster simulate deploy/demo/scenarios/buy-versus-rent.yaml\n" +
			"  quartermaster simulate deploy/demo/scenarios/demand-growth.yaml --out growth --json\n" +
			"  quartermaster simulate freeze deploy/demo/scenarios/demand-growth.yaml\n" +
			"  quartermaster simulate diff sim-0f3a9c81d2e4 growth/result.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := readScenario(args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("runs") {
				if fl.runs < 1 || fl.runs > whatif.MaxRuns {
					return commandline.Usagef("--runs %d: want 1 to %d draws", fl.runs, whatif.MaxRuns)
				}
				s.Runs = fl.runs
			}
			if fl.out != "" {
				if err := outDirectory(fl.out); err != nil {
					return err
				}
			}
			var r *whatif.Result
			if err := a.simulate(cmd.Context(), s, fl.workers, func(ctx context.Context, h *home, got *whatif.Result) error {
				r = got
				if !fl.freeze {
					return nil
				}
				return h.freeze(ctx, r, fl.workspace)
			}); err != nil {
				return err
			}
			if fl.out != "" {
				if err := a.writeSimulation(fl.out, r); err != nil {
					return err
				}
			}
			if a.json {
				return a.answerJSON(r)
			}
			a.showSimulation(r)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&fl.out, "out", "", "write result.json, tables and charts into this directory")
	f.IntVar(&fl.runs, "runs", 0, "draws, instead of those in the file")
	f.IntVar(&fl.workers, "workers", 0, "draws that are evaluated at once; the answer is the same (default one for each processor)")
	f.BoolVar(&fl.freeze, "freeze", false, "record the scenario and its answer as an event, so that recommendations can cite it")
	f.StringVar(&fl.workspace, "workspace", fl.workspace, "workspace that a frozen scenario belongs to")
	cmd.AddCommand(a.simulateFreezeCommand(), a.simulateListCommand(), a.simulateShowCommand(), a.simulateDiffCommand(), a.simulateChangesCommand())
	return cmd
}

// simulate answers a scenario, and calls with the answer while the home, if there
// is one, is open.
func (a *app) simulate(ctx context.Context, s *whatif.Scenario, workers int, with func(context.Context, *home, *whatif.Result) error) error {
	if s.Base.Instance != "" {
		in, err := readInstance(s.Base.Instance, strings.NewReader(""))
		if err != nil {
			return fmt.Errorf("base.instance: %w", err)
		}
		r, err := a.answerScenario(ctx, s, &whatif.Input{Instance: in, Workers: workers})
		if err != nil {
			return err
		}
		return with(ctx, nil, r)
	}
	return a.readAt(ctx, s.Base.Position, func(h *home) error {
		at := s.Base.At
		if at == 0 {
			var err error
			if at, err = h.now(ctx); err != nil {
				return err
			}
		}
		var r *whatif.Result
		err := h.view(ctx, func(v projections.View) (err error) {
			if s.Base.Region != "" {
				if err := (asked{region: s.Base.Region}).known(v); err != nil {
					return err
				}
			}
			r, err = a.answerScenario(ctx, s, &whatif.Input{View: v, At: at, Workers: workers})
			return err
		})
		if err != nil {
			return err
		}
		return with(ctx, h, r)
	})
}

// answerScenario runs a scenario with a progress bar.
func (a *app) answerScenario(ctx context.Context, s *whatif.Scenario, in *whatif.Input) (*whatif.Result, error) {
	in.Scenario = s
	lp, done := linearSolver()
	defer done()
	in.Solve = func(ctx context.Context, p *problem.Instance) (*problem.Answer, error) {
		return problem.Solve(ctx, p, lp)
	}
	in.EndOfHorizon = func(ctx context.Context, p *problem.Instance, a *problem.Answer) error {
		return problem.EndOfHorizon(ctx, p, a, lp)
	}
	if in.Workers <= 0 {
		in.Workers = runtime.GOMAXPROCS(0)
	}
	bar := a.barAlways("simulate", int64(s.Runs)*int64(len(s.Alternatives)), "draws")
	defer bar.stop()
	in.Progress = func(done, _ int64) { bar.set(done) }
	return whatif.Run(ctx, in)
}

// freeze records a scenario with its answer.
func (h *home) freeze(ctx context.Context, r *whatif.Result, workspace string) error {
	if h == nil {
		return errors.New("a scenario of an instance cannot be frozen: what it rests on is not in the log; base it on a position")
	}
	recorded, err := h.simulations(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(recorded, func(e simulationEntry) bool { return e.Simulation == r.ID && e.Workspace == workspace }) {
		h.app.note("%s was recorded before", r.ID)
		return nil
	}
	document, err := json.Marshal(r)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(document)
	env := &domain.Envelope{Time: now(), Subject: r.ID, Workspace: workspace, Event: &domain.ScenarioFrozen{
		Scenario: r.ID, Position: r.Position, Method: strings.Join(r.Methods, " "), Seed: r.Seed, Digest: sum[:], Document: document,
	}}
	if err := domain.Validate(env); err != nil {
		return fmt.Errorf("freeze %s: %w", r.ID, err)
	}
	if err := h.stream("simulate").Append(ctx, env); err != nil {
		return fmt.Errorf("freeze %s: append to the log: %w", r.ID, err)
	}
	h.app.note("recorded as %s", r.ID)
	if h.asOf != nil {
		return nil
	}
	return h.catchUp(ctx)
}

// simulationEntry is a frozen scenario in a list.
type simulationEntry struct {
	Simulation string         `json:"simulation"`
	Workspace  string         `json:"workspace"`
	Name       string         `json:"name"`
	Recorded   domain.Instant `json:"recorded"`
	Seed       uint64         `json:"seed"`
	Runs       int            `json:"runs"`
	Method     string         `json:"method"`
	Position   string         `json:"position"`
	Digest     string         `json:"digest"` // SHA-256 of the document

	document []byte
	result   whatif.Result
}

// simulations returns every frozen scenario, the newest first.
func (h *home) simulations(ctx context.Context) ([]simulationEntry, error) {
	out := []simulationEntry{}
	err := h.view(ctx, func(v projections.View) error {
		return v.Scan(projections.Query{Table: projections.TableScenarios}, func(k projections.Key, row projections.Row) error {
			version := row.(*projections.History).Latest()
			ev := version.Event.(*domain.ScenarioFrozen)
			e := simulationEntry{
				Simulation: ev.Scenario, Workspace: k.Scope, Recorded: version.Order.Time, Seed: ev.Seed, Method: ev.Method, Position: ev.Position,
				Digest: fmt.Sprintf("%x", ev.Digest), document: ev.Document,
			}
			if err := json.Unmarshal(ev.Document, &e.result); err == nil {
				e.Name, e.Runs = e.result.Name, e.result.Runs
			}
			out = append(out, e)
			return nil
		})
	})
	slices.SortFunc(out, func(a, b simulationEntry) int {
		return cmp.Or(cmp.Compare(b.Recorded, a.Recorded), cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Simulation, b.Simulation))
	})
	return out, err
}

// simulation returns a frozen scenario by its id.
func (h *home) simulation(ctx context.Context, id string) (*simulationEntry, error) {
	all, err := h.simulations(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(e simulationEntry) bool { return e.Simulation == id })
	if i < 0 {
		return nil, &application.NotFoundError{What: "simulation", Name: id, Err: fmt.Errorf("no frozen scenario %q; \"quartermaster simulate list\" names those recorded", id)}
	}
	return &all[i], nil
}

// verifySimulation folds the log up to a frozen scenario's position and answers it
// again.
func (h *home) verifySimulation(ctx context.Context, e *simulationEntry, workers int) error {
	if now := strings.Join(whatif.Methods(), " "); e.Method != now {
		return fmt.Errorf("scenario %s was answered by %s, this program answers by %s: verify it with that version", e.Simulation, e.Method, now)
	}
	r := recorded{"answer", e.Simulation, "answered", e.Position, e.Digest, e.document}
	return h.verify(ctx, &r, func(v projections.View) (any, error) {
		return h.app.answerScenario(ctx, e.result.Scenario, &whatif.Input{View: v, At: e.result.At, Workers: workers})
	})
}
