package cli

import (
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/simulations/whatif"
)

type simulateFlags struct {
	out       string
	runs      int
	workers   int
	freeze    bool
	workspace string
}

func (a *Program) simulateCommand() *cobra.Command {
	fl := simulateFlags{workspace: app.Platform}
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "What if: alternatives under growth, prices, outages and more, trial by trial",
		Long: `Simulate answers a scenario file. It forks the log in memory, adds the events that
the scenario supposes, and plans from the forked rows. What is uncertain is
drawn: purchases are solved once for each alternative, over a few weighted
scenarios that the trials are reduced to, and then every trial says what they come
to. Alternatives share their random numbers. The same file on the same position
gives the same bytes; nothing is appended, but by --freeze.

Purchases rest on what is taken as given: the annual rate, and the share that is
credited of what they cost beyond the horizon, 0.5 where the file does not say.
end_of_horizon has what they cost with nothing and with all of it credited, and what
the best purchases cost then.

Purchases hedge what is wanted and the spot that can be had: those the weighted
scenarios have differently. Prices, exchange rates and interruptions enter the
solved problem at their mean over the trials, and so do quotas, or lower, if the
purchases for a quota at its 25th or 5th percentile cost less in the trials;
deliveries that are later than the median, outages and maintenance do not enter
it. So the gap (solved_cost over lower_bound) is a proof about that problem and
not about the trials. What the trials cost more, or less, stands beside it as
trials_above_solved, with the name of each thing that they vary and the problem
does not (unmodelled_drivers: at its mean, at its p25, at its p5, never late, left
out; of constraints: kept in expectation). Trials serve every hour as the solved
problem does without constraints: pools that share a quota, or may serve one
another's demand by overflow or as substitutes, are served together at least cost,
those that are left while a region is gone too. Budgets and limits among the
constraints bind the solved problem, in expectation over its scenarios: a trial may
exceed them, and constraints says in which share of the trials the limits are kept.

What is wanted is whole machines: growth is rounded to the nearest, what launches add
up. Where machines fail, spare ones that keep 99 % service level, or that of the
demand's own buffer, count as wanted. What comes late is not paid by the hour until
it is there; what was paid upfront is. A break-even is over an offer's whole term,
discounted to its first day, owned hardware with what it takes to run.

A file is YAML; schemas/scenario/v1.schema.json describes it, and
"quartermaster simulate changes" what can be supposed. With --out, a directory
gets result.json, tables in CSV and charts in SVG, in place of those of an earlier run.`,
		Example: "  quartermaster simulate deploy/demo/scenarios/buy-versus-rent.yaml\n" +
			"  quartermaster simulate deploy/demo/scenarios/demand-growth.yaml --out growth -o json\n" +
			"  quartermaster simulate freeze deploy/demo/scenarios/demand-growth.yaml\n" +
			"  quartermaster simulate diff sim-0f3a9c81d2e4 growth/result.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := app.ReadScenario(args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("runs") {
				if fl.runs < 1 || fl.runs > whatif.MaxRuns {
					return commandline.Usagef("--runs %d: want 1 to %d trials", fl.runs, whatif.MaxRuns)
				}
				s.Runs = fl.runs
			}
			if fl.out != "" {
				if err := outDirectory(fl.out); err != nil {
					return err
				}
			}
			r, err := a.caller().Simulate(cmd.Context(), s, fl.workers)
			if err != nil {
				return err
			}
			if fl.freeze {
				if err := a.caller().Freeze(cmd.Context(), r, fl.workspace); err != nil {
					return err
				}
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
	f.IntVar(&fl.runs, "runs", 0, "trials, instead of those in the file")
	f.IntVar(&fl.workers, "workers", 0, "trials that are evaluated at once; the answer is the same (default one for each processor)")
	f.BoolVar(&fl.freeze, "freeze", false, "record the scenario and its answer as an event, so that recommendations can cite it")
	f.StringVar(&fl.workspace, "workspace", fl.workspace, "workspace that a frozen scenario belongs to")
	cmd.AddCommand(a.simulateFreezeCommand(), a.simulateListCommand(), a.simulateShowCommand(), a.simulateDiffCommand(), a.simulateChangesCommand())
	return cmd
}
