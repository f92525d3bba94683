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

// baseOf returns the file that a scenario is based on, if it names one.
func baseOf(path string, text []byte) []string {
	s, err := app.ReadScenario(path, text)
	if err != nil || s.Base.Instance == "" {
		return nil // the server says what is wrong
	}
	return []string{s.Base.Instance}
}

func (a *Program) simulateCommand() *cobra.Command {
	fl := simulateFlags{workspace: app.Platform}
	cmd := &cobra.Command{
		Use:   "simulate FILE",
		Short: "Compare alternatives under uncertain growth, prices, outages and more",
		Long: `Simulate answers a scenario file. It forks the log in memory, adds the events that the scenario
assumes, and plans from the forked rows. Uncertain inputs are drawn at random. Purchases are solved
once for each alternative, over a few weighted scenarios that represent the trials. Then every trial
is costed with these purchases. Alternatives share their random numbers. The same file at the same
position gives the same bytes. Only --freeze appends to the log.

Purchases depend on assumptions: the annual rate, and the share of their cost beyond the horizon
that is credited (0.5 unless the file says otherwise). end_of_horizon shows their cost with nothing
and with all of it credited, and the cost of the best purchases in each case.

The weighted scenarios differ in demand and in available spot, so purchases hedge these. Prices,
exchange rates and interruptions enter the solved problem at their mean over the trials. So do
quotas, unless the purchases for a quota at its 25th or 5th percentile cost less in the trials.
Deliveries later than the median, outages and maintenance do not enter the solved problem.

The gap (solved_cost over lower_bound) is therefore a proof about the solved problem, not about the
trials. trials_above_solved is how much more or less the trials cost. unmodelled_drivers names what
varies in the trials but not in the problem (at its mean, at its p25, at its p5, never late, left
out; for constraints: kept in expectation).

Trials serve every hour like the solved problem without constraints. Pools that share a quota, or
that can serve each other's demand by overflow or as substitutes, are served together at the least
cost; so are the remaining pools during a region outage. Budgets and limits bind the solved problem,
in expectation over its scenarios. A trial may exceed them, and constraints shows the share of
trials that keep the limits.

Demand is whole machines: growth is rounded to the nearest, launches are rounded up. If machines
fail, demand includes spare machines for a service level of 99 %, or of the demand's own buffer. A
late delivery is not paid by the hour until it arrives; its upfront payment is. A break-even covers
an offer's whole term, discounted to its first day; owned hardware includes its running costs.

A file is YAML. schemas/scenario/v1.schema.json describes it, and "quartermaster simulate changes"
lists the possible changes. --out writes result.json, CSV tables and SVG charts into a directory,
and replaces those of an earlier run.`,
		Example: "  quartermaster simulate deploy/demo/scenarios/buy-versus-rent.yaml\n" +
			"  quartermaster simulate deploy/demo/scenarios/demand-growth.yaml --out growth -o json\n" +
			"  quartermaster simulate freeze deploy/demo/scenarios/demand-growth.yaml\n" +
			"  quartermaster simulate diff sim-0f3a9c81d2e4 growth/result.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := a.ReadScenarioFile(args[0])
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
	f.StringVar(&fl.out, "out", "", "write result.json, tables and charts to this directory")
	f.IntVar(&fl.runs, "runs", 0, "number of trials (default as in the file)")
	f.IntVar(&fl.workers, "workers", 0, "trials evaluated in parallel; does not change the answer (default one per processor)")
	f.BoolVar(&fl.freeze, "freeze", false, "record the scenario and its answer as an event, so that recommendations can cite it")
	f.StringVar(&fl.workspace, "workspace", fl.workspace, "workspace of a frozen scenario")
	cmd.AddCommand(a.simulateFreezeCommand(), a.simulateListCommand(), a.simulateShowCommand(), a.simulateVerifyCommand(), a.simulateCheckCommand(), a.simulateDiffCommand(), a.simulateChangesCommand())
	return cmd
}
