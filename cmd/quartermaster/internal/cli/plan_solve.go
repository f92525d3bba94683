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
		timeout                time.Duration
	)
	cmd := &cobra.Command{
		Use:   "solve INSTANCE.json",
		Short: "Answer a procurement problem stated in a file: what to buy, its cost and the proof",
		Long: `Solve reads an instance (regions, pools, demand by the hour or as load-duration
curves, offers, commitments, quotas, cross-region overflow, substitutes, posture, budgets,
scenarios), finds the purchases that serve it at least expected net present cost,
and proves how far from the least any purchases are. It needs no log and no data,
and buys nothing. The same instance has the same answer, byte for byte, whatever
the order of its lists. "-" reads standard input.

"quartermaster schema instance" describes instances. --out also writes the answer to a
file that "quartermaster plan check" proves again. Errors name file, line, column
and path. An interrupt, and --timeout, stop the search: the best answer known by then is
printed and written with the bound that is proven by then, interrupted is true in it, and
the exit status is 5; end_of_horizon and baselines are left out where they are not done.
A second interrupt ends the program. The exit status is 2 where the instance breaks a rule, and 1 where the
checker refuses the answer and where nothing meets the constraints: then clash names some that
cannot be met together, and without any one of them the others can (path, detail).

Beside the answer stand baselines, what is done without a plan: buy nothing; serve all
on demand, as far as the quota goes; what the clouds recommend, the one commitment that
would have saved most in the last 7, 30 or 60 days; the same bought in parts over its
term; the highest demand reserved. They look back at past_hourly of the demands; where
that is not given, at the first days of the horizon.`,
		Example: "  quartermaster plan solve deploy/demo/instances/single-pool.json\n" +
			"  quartermaster plan solve -o json instance.json --out answer.json\n" +
			"  quartermaster plan solve large.json --timeout 10m --out answer.json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := app.ReadInstance(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			until := cmd.Context()
			if timeout < 0 {
				return commandline.Usagef("--timeout %s is negative", timeout)
			} else if timeout > 0 {
				var done context.CancelFunc
				until, done = context.WithTimeout(until, timeout)
				defer done()
			}
			ans, err := a.caller().Solve(until, in, app.SolveOptions{EndOfHorizon: sensitivity, Baselines: baselines})
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
				a.showAnswer(in, ans)
			}
			switch {
			case err != nil:
				return err
			case ans.Interrupted:
				return &failed{"the search was stopped: this is the best answer that was known by then", commandline.ExitIncomplete}
			case sensitivity && slices.ContainsFunc(ans.EndOfHorizon, func(t instances.Terminal) bool { return t.Best == nil }), baselines && ans.Baselines == nil:
				why := "the answer is whole, but the program was stopped before end_of_horizon and baselines were done"
				fmt.Fprintln(a.err, why)
				return &failed{why, commandline.ExitIncomplete}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.DurationVar(&timeout, "timeout", 0, "stop the search after this time, such as 10m, and answer with the best that is known (default no limit)")
	f.StringVar(&out, "out", "", "also write the answer to this file, as JSON")
	f.BoolVar(&sensitivity, "sensitivity", true, "solve again with nothing, and with everything, of what terms beyond the horizon cost taken to be worth keeping")
	f.BoolVar(&baselines, "baselines", true, "compare with what is done without a plan")
	return cmd
}

func (a *Program) showClash(clash *instances.Infeasible) error {
	if a.json {
		if err := a.answerJSON(clash); err != nil {
			return err
		}
		return &failed{why: "nothing meets the constraints"}
	}
	fmt.Fprintln(a.out, "nothing that can be bought meets these constraints together; without any one of them the others can be met")
	t := a.table("constraint", "what it asks")
	for _, c := range clash.Constraints {
		t.AppendRow(table.Row{c.Path, c.Detail})
	}
	t.Render()
	return &failed{why: "nothing meets the constraints"}
}

// checkedAnswer is an answer that was proven again.
type checkedAnswer struct {
	Checked    bool           `json:"checked"`  // always true: what cannot be proven is an error
	Instance   string         `json:"instance"` // SHA-256 of the instance
	Cost       domain.Decimal `json:"cost"`
	LowerBound domain.Decimal `json:"lower_bound"`
	Gap        domain.Decimal `json:"gap"`
	// Unproven are pools that have no proven bound. Their part of the lower bound counts as nothing.
	Unproven  []string `json:"no_proven_bound,omitempty"`
	Purchases int      `json:"purchases"`  // how many
	NotProven []string `json:"not_proven"` // JSON Pointers into the answer
}

func (a *Program) planCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check INSTANCE.json ANSWER.json",
		Short: "Prove an answer again, without the solver that found it",
		Long: `Check states the problems of an instance anew, has the purchases and certificates
of the answer proven by a checker that shares no code with the solver, in exact
arithmetic, and computes everything again that the answer says of them: amounts,
shadow prices and worths of the certificate, what the purchases in end_of_horizon come
to, and the baselines. It starts no solver. Not proven are the lower bounds in
end_of_horizon and counts of work in certificates; what the answer has of them is
listed. Where a budget or limit binds, the cost is proven to be enough, and a note says
if the checker needs less.

Exit status 1 when the answer is not what it claims to be; the error names where.`,
		Example: "  quartermaster plan solve instance.json --out answer.json\n  quartermaster plan check instance.json answer.json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := app.ReadInstance(args[0], cmd.InOrStdin())
			if err != nil {
				return err
			}
			data, err := app.ReadDocument(args[1], cmd.InOrStdin())
			if err != nil {
				return err
			}
			ans, err := instances.ParseAnswer(args[1], data)
			if err != nil {
				return err
			}
			if err := instances.Check(cmd.Context(), in, ans); err != nil {
				return fmt.Errorf("%s: %w", args[1], err)
			}
			notProven := ans.NotProven()
			if a.json {
				return a.answerJSON(checkedAnswer{true, ans.Instance, ans.Cost, ans.LowerBound, ans.Gap, ans.Unproven, len(ans.Purchases), notProven})
			}
			if len(ans.Unproven) > 0 {
				fmt.Fprintf(a.out, "proven: %d purchases cost %s %s\nnot proven: how little others could cost; no bound is proven for pool %s\n",
					len(ans.Purchases), money(ans.Cost), ans.Currency, strings.Join(ans.Unproven, ", "))
			} else {
				fmt.Fprintf(a.out, "proven: %d purchases cost %s %s, and nothing costs less than %s (gap %s)\n",
					len(ans.Purchases), money(ans.Cost), ans.Currency, money(ans.LowerBound), percentOf(ans.Gap))
			}
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
