package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	instances "quartermaster/domain/instance"
)

func (a *Program) planSolveCommand() *cobra.Command {
	var (
		out                    string
		sensitivity, baselines bool
		secondBest             bool
		maxShare               string
		timeout                time.Duration
		effort                 int
	)
	cmd := &cobra.Command{
		Use:   "solve INSTANCE.json",
		Short: "Solve a procurement problem from a file: purchases, their cost and a proof",
		Long: `Solve reads an instance: regions, pools, demand by the hour or as load-duration curves, offers,
commitments, quotas, cross-region overflow, substitutes, posture, budgets, scenarios. It finds the
purchases that serve the demand at the least expected net present cost, and proves the gap to the
optimum. It needs no log and buys nothing. The same instance gives the same answer, byte for byte,
in whatever order its lists are. "-" reads standard input.

"quartermaster schema instance" describes instances. --out also writes the answer to a file, which
"quartermaster plan check" can prove again. Errors name file, line, column and path.

An interrupt or --timeout stops the search. Solve then prints and writes the best answer so far,
with the bound proven so far and interrupted true, and exits with status 5. end_of_horizon, baselines
and alternatives are left out if they were not finished. A second interrupt ends the program.

--effort ends the search for connected pools by counted work instead of by the clock, so the same
effort gives the same answer on every machine. The answer states the gap that was reached.

Exit status 2 if the instance is invalid. Exit status 1 if the checker rejects the answer, or if the
instance is infeasible. Then clash lists constraints (path, detail) that cannot be met together; without
any one of them, the others can.

The answer is compared with baselines, which need no plan: buy nothing; serve everything on demand,
within the quota; the commitment that would have saved most in the last 7, 30 or 60 days, as cloud
providers recommend; the same bought in equal parts over its term; the highest demand reserved.
Baselines look back at past_hourly of the demands, or, if it is not given, at the first days of the
horizon.

With --second-best and --max-share the problem is solved again without a supplier or an offer, or with
a cap on its purchases, as "quartermaster plan" does.`,
		Example: "  quartermaster plan solve deploy/demo/instances/single-pool.json\n" +
			"  quartermaster plan solve -o json instance.json --out answer.json\n" +
			"  quartermaster plan solve large.json --timeout 10m --out answer.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := a.ReadQuestion(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			if effort < 0 || effort > 1_000_000 {
				return commandline.Usagef("--effort %d: want 0 to 1000000", effort)
			}
			opts := app.SolveOptions{EndOfHorizon: sensitivity, Baselines: baselines, SecondBest: secondBest, Effort: effort}
			if maxShare != "" {
				if opts.MaxShare, err = shareFlag(maxShare); err != nil || !opts.MaxShare.IsPositive() || opts.MaxShare.GreaterThanOrEqual(decimal.NewFromInt(1)) {
					return commandline.Usagef("--max-share %q is not a share above 0 and below 1, such as 0.4 or 40%%", maxShare)
				}
			}
			until := cmd.Context()
			if timeout < 0 {
				return commandline.Usagef("--timeout %s is negative", timeout)
			} else if timeout > 0 {
				var done context.CancelFunc
				until, done = context.WithTimeout(until, timeout)
				defer done()
			}
			ans, err := a.caller().Solve(until, q, opts)
			var clash *instances.Infeasible
			if errors.As(err, &clash) {
				return a.showClash(clash)
			} else if err != nil {
				return err
			}
			if out != "" {
				if err := writeAnswer(out, ans); err != nil {
					return err
				}
			}
			if a.json {
				err = a.answerJSON(ans)
			} else {
				a.showAnswer(q.Instance, ans, opts)
			}
			switch {
			case err != nil:
				return err
			case ans.Interrupted:
				return &failed{"the search was stopped: this is the best answer so far", commandline.ExitIncomplete}
			case sensitivity && slices.ContainsFunc(ans.EndOfHorizon, func(t instances.Terminal) bool { return t.Best == nil }), baselines && ans.Baselines == nil,
				until.Err() != nil && len(ans.Unsolved) > 0:
				why := "the answer is complete, but the program was stopped before end_of_horizon, baselines and alternatives were finished"
				fmt.Fprintln(a.err, why)
				return &failed{why, commandline.ExitIncomplete}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&timeout, "timeout", 0, "stop the search after this time, such as 10m, with the best answer so far (default no limit)")
	f.IntVar(&effort, "effort", 0, "end the search for connected pools after about this many seconds of counted work (default as long as a first bound takes, and 10 more)")
	f.StringVar(&out, "out", "", "also write the answer to this file, as JSON")
	f.BoolVar(&sensitivity, "sensitivity", true, "solve again with none and with all of the cost beyond the horizon credited")
	f.BoolVar(&secondBest, "second-best", false, "also solve without each supplier that is bought from, and without the largest purchases, and show what that costs more")
	f.StringVar(&maxShare, "max-share", "", maxShareFlag)
	f.BoolVar(&baselines, "baselines", true, "compare with the baselines")
	return cmd
}

func (a *Program) showClash(clash *instances.Infeasible) error {
	if a.json {
		if err := a.answerJSON(clash); err != nil {
			return err
		}
		return &failed{why: "no purchases meet the constraints"}
	}
	fmt.Fprintln(a.out, "no purchases meet all of these constraints; without any one of them, the others can be met")
	t := a.table("constraint", "requirement")
	for _, c := range clash.Constraints {
		t.AppendRow(table.Row{c.Path, c.Detail})
	}
	t.Render()
	return &failed{why: "no purchases meet the constraints"}
}

// checkedAnswer is the answer of "plan check".
type checkedAnswer struct {
	Checked    bool           `json:"checked"`  // always true: a failed proof is an error
	Instance   string         `json:"instance"` // SHA-256 of the instance
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	Purchases  int            `json:"purchases"`  // number of purchases
	NotProven  []string       `json:"not_proven"` // JSON Pointers into the answer
}

func (a *Program) planCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check INSTANCE.json ANSWER.json",
		Short: "Prove an answer again, without the solver that found it",
		Long: `Check builds the problems of an instance again. A checker that shares no code with the solver then
proves the purchases and certificates of the answer, in exact arithmetic. Check computes again
everything that the answer says about them: amounts, shadow prices and worths of the certificate,
the costs of the purchases in end_of_horizon, and the baselines. It starts no solver.

A second translation, written from the schema alone, then reads the instance as text. It computes
purchases, costs, calendar and recourse again, and holds the certificates against its own reading.
Its errors name the constraint, the pool and the epoch.

Not proven are the lower bounds in end_of_horizon and the work counts in certificates. Check lists
those that the answer contains. If a budget or limit binds, the cost is proven to be sufficient, and
a note says if the checker needs less.

Exit status 1 if the answer is wrong; the error names the place.`,
		Example: "  quartermaster plan solve instance.json --out answer.json\n  quartermaster plan check instance.json answer.json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := a.ReadQuestion(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			data, err := a.ReadDocument(args[1], cmd.InOrStdin())
			if err != nil {
				return err
			}
			ans, err := app.CheckAnswer(cmd.Context(), q, args[1], data)
			if err != nil {
				return err
			}
			notProven := ans.NotProven()
			if a.json {
				return a.answerJSON(checkedAnswer{true, ans.Instance, ans.Cost, ans.LowerBound, ans.Gap, len(ans.Purchases), notProven})
			}
			fmt.Fprintf(a.out, "proven: %d purchases cost %s %s, lower bound %s (gap %s)\n",
				len(ans.Purchases), money(ans.Cost), ans.Currency, money(ans.LowerBound), percentOf(ans.Gap))
			if len(notProven) > 0 {
				fmt.Fprintln(a.out, "not proven: "+strings.Join(notProven, ", "))
			}
			return nil
		},
	}
}

func writeAnswer(path string, ans *instances.Answer) error {
	text, err := json.MarshalIndent(ans, "", "  ")
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	return nil
}
