package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	instances "quartermaster/domain/instance"
	"quartermaster/simulations/whatif"
)

func (a *Program) planEvaluateCommand() *cobra.Command {
	var path, asOf string
	fl := usualPlan()
	cmd := &cobra.Command{
		Use:   "evaluate CONTRACT.yaml",
		Short: "Evaluate a contract: its worth compared with the plan without it",
		Long: `Evaluate plans twice, without the contract and with it, and shows
- the worth of the contract, with a proven bound;
- the highest hourly price at which it pays to sign, and the price from which signing is proven
  not to pay;
- the highest upfront payment, if there is no hourly price;
- the break-even utilization of a unit;
- how many units the plan would take, what the contract strands, and what it replaces.

A contract is signed as a whole or not at all. It is compared with the offers and commitments of
the log, as "quartermaster plan" uses them, or with an instance of "plan solve". Nothing is
recorded or bought.

A contract is a YAML file; "quartermaster schema contract" describes it. Fields:
  apiVersion, kind: Contract, name
  pool, or region and class
  term_epochs (months, or days if the instance counts in days)
  hourly, upfront, currency, guarantees_capacity
  from and to (when the term may begin; with only from, it begins with the next epoch)
  lead_time_hours, min_units, max_units, lot, covers_per_unit
  tiers (units, upfront, hourly), ramp (epoch, permille)
  renews, notice_days, offer_kind, provider, citation

A pool of the log is named by region and kind, such as "us-east-1 H100 80GB", and a unit is a
machine. Errors name file, line and column.`,
		Example: "  quartermaster plan evaluate deploy/demo/contracts/one-year-p4d.yaml --at 2026-06-01 --months 24\n" +
			"  quartermaster plan evaluate deploy/demo/contracts/one-year-p4d.yaml --instance deploy/demo/instances/single-pool.json -o json",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			doc, c, err := a.ReadContract(args[0])
			if err != nil {
				return err
			}
			var in *instances.Instance
			if path != "" {
				for _, f := range planQuestionFlags {
					if cmd.Flags().Changed(f) {
						return commandline.Usagef("--%s applies to plans from the log, and an instance states everything itself", f)
					}
				}
				in, err = a.ReadInstance(path, cmd.InOrStdin())
			} else {
				in, err = a.instanceOfLog(cmd.Context(), &fl, asOf)
			}
			if err != nil {
				return err
			}
			got, err := a.caller().Appraise(cmd.Context(), in, c)
			var clash *instances.Infeasible
			if errors.As(err, &clash) {
				return a.showClash(clash)
			} else if err != nil {
				return app.InFile(args[0], whatif.ContractFaults(doc, err))
			}
			if a.json {
				return a.answerJSON(got)
			}
			a.showAppraisal(got)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&path, "instance", "", "evaluate against this instance instead of the log")
	questionFlags(cmd, &fl)
	asOfFlag(cmd, &asOf)
	return cmd
}

// instanceOfLog returns the instance that a plan would be computed from.
func (a *Program) instanceOfLog(ctx context.Context, fl *planFlags, asOf string) (in *instances.Instance, err error) {
	as, err := fl.assumptions()
	if err != nil {
		return nil, err
	}
	var at domain.Instant
	if fl.at != "" {
		if at, err = domain.ParseTime(fl.at); err != nil {
			return nil, commandline.Usagef("--at: %w", err)
		}
	}
	return a.caller().PlanInstance(ctx, app.At(asOf), app.PlanQuery{At: at, Regions: fl.regions, Assumptions: as})
}

func (a *Program) showAppraisal(x *instances.Appraisal) {
	fmt.Fprintf(a.out, "%s, for %s: %s\n\n%s\n\n", clipped(x.Contract), clipped(x.Pool), strings.ToUpper(string(x.Decision)), x.Verdict)
	t := a.table("", "units", "cost", "lower bound", "gap", "not served", "paid within the horizon", "unused unit-hours", "stranded at low demand")
	t.SetColumnConfigs(rightFrom(2, 9))
	row := func(name string, c *instances.Expectation) {
		t.AppendRow(table.Row{name, count(c.Units), moneyCell(c.Cost), moneyCell(c.LowerBound), percentOf(c.Gap), moneyCell(c.Penalty), moneyCell(c.Nominal), moneyCell(c.Unused), moneyCell(c.Stranded)})
	}
	row("without it", &x.Without)
	row("with it", &x.With)
	if x.Signed != nil {
		row("signed all the same", x.Signed)
	}
	t.Render()
	of := x.Pool
	if n := len(x.Pools); n > 1 {
		of = fmt.Sprintf("%s and related pools, %d in all", of, n)
	}
	fmt.Fprintf(a.out, "amounts in %s at net present value, of pool %s\n", x.Currency, domain.Clip(of, 3*widest))
	if x.BreakEvenUse != nil {
		fmt.Fprintf(a.out, "break-even utilization against on-demand: %s", percentOf(*x.BreakEvenUse))
		if x.Use != nil {
			fmt.Fprintf(a.out, "; expected utilization of the pool's commitments: %s", percentOf(*x.Use))
		}
		fmt.Fprintln(a.out)
	}
	for _, r := range x.Replaces {
		fmt.Fprintf(a.out, "%s: %s units bought with it, %s without it\n", clipped(r.Offer+r.Commitment), comma(r.With), comma(r.Without))
	}
	for _, n := range x.Notes {
		fmt.Fprintln(a.out, "note: "+n)
	}
}

// planQuestionFlags are the flags of a plan from the log.
var planQuestionFlags = []string{"region", "at", "months", "weeks", "growth", "rate", "salvage", "spot-overhead", "shortage-factor", "service-level", "currency", "as-of"}

// questionFlags adds the flags of a plan from the log.
func questionFlags(cmd *cobra.Command, fl *planFlags) {
	f := cmd.Flags()
	f.StringSliceVar(&fl.regions, "region", nil, "only these regions, comma-separated or repeated (default all)")
	f.StringVar(&fl.at, "at", "", "plan with the offers, quotas, demand and decisions as of this time; the horizon begins with the next month (default now)")
	f.IntVar(&fl.months, "months", fl.months, "length of the horizon in months")
	f.IntVar(&fl.weeks, "weeks", fl.weeks, "weeks of observed demand to repeat")
	f.StringVar(&fl.growth, "growth", fl.growth, "growth of demand per month, for example 0.02 or 2%")
	f.StringVar(&fl.rate, "rate", "", "annual discount rate (default the policy cost_of_capital, else 0.08)")
	f.StringVar(&fl.salvage, "salvage", fl.salvage, "credited share of a purchase's cost beyond the horizon, 0 to 1 (default 0.5; of a forecast, the share of its use that demand makes of a term beyond the horizon)")
	f.StringVar(&fl.overhead, "spot-overhead", fl.overhead, "share of spot time lost to interruptions")
	f.StringVar(&fl.shortage, "shortage-factor", fl.shortage, "cost of an unserved hour, as a multiple of the on-demand price")
	f.StringVar(&fl.serviceLevel, "service-level", "", "probability, such as 0.999, of serving all demand despite failures; plans spare machines from the failures of the last 90 days (default none)")
	f.StringVar(&fl.currency, "currency", fl.currency, "currency of the plan; offers in other currencies are excluded")
}
