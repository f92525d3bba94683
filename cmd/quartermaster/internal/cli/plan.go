package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/plan"
	"quartermaster/projections/planning"
)

type planFlags struct {
	at                 string
	regions            []string
	months, weeks      int
	growth, rate       string
	salvage, overhead  string
	shortage, currency string
	serviceLevel       string
	demand             string
	scenarios, life    int
	seed               uint64
	secondBest         bool
	maxShare           string
	orderPrice         string
	workspace          string
	dryRun             bool
}

// usualPlan returns the flags with the defaults of [app.UsualPlan].
func usualPlan() planFlags {
	q := app.UsualPlan()
	as := &q.Assumptions
	return planFlags{
		months: as.Months, weeks: as.Weeks, growth: as.MonthlyGrowth.String(), overhead: as.SpotOverhead.String(),
		shortage: as.ShortageFactor.String(), currency: as.Currency, demand: app.RepeatDemand, scenarios: 12, seed: 1,
		life: forecast.Life, workspace: q.Workspace,
	}
}

func (a *Program) planCommand() *cobra.Command {
	fl, asOf := usualPlan(), ""
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Plan purchases: the cheapest mix of reserved, on-demand and spot, with a proof",
		Long: `Plan finds, for every pool (machines of one kind in one region), the purchases that serve its
demand at the least net present cost. It solves the problem exactly, with a lower bound, and a
checker that shares no code with the solver proves the result. Demand is the observed demand,
repeated over the horizon and grown by --growth, or scenarios of a forecast (--demand forecast;
see "plan forecast").

Price commitments and guaranteed capacity are separate: a price commitment still needs on-demand
quota.

With a forecast, purchases are chosen before it is known which scenario occurs, and the plan
minimises expected cost, with the same kind of proof. Pools are correlated: a scenario repeats the
forecast errors that all pools had in the same past weeks. Beyond 13 weeks demand grows by --growth
in every scenario. A machine type's demand ends at another time in each, when a successor replaces it
(--life): the mean is that of its kind, and less is left the longer it has been seen.

Amounts are net present values at the start of the horizon, which is the next month. The answer
begins with a summary: cost, savings, coverage by commitments, exclusions with reasons, and the
most expensive binding constraints. These amounts are compared:
  cost, "buy nothing"        include what is still owed on commitments that serve the demand, and
                             a penalty for unserved hours
  "on-demand, no quota"      (on_demand_cost) everything at the on-demand price, as if quotas were
                             unlimited; includes neither
  "on-demand under quota"    (the baseline on_demand) holds no commitments, and includes a penalty
                             for what the quota refuses

With --second-best the plan is computed again without each supplier that it buys from, and without
each of the three offers that most is spent on. The cheapest of these is the second-best plan, with
its own proof; the difference is what one supplier fewer, or a refused offer, costs. Commitments
already held, on-demand and spot of the supplier stay.

With --max-share 40% the plan also says what a cap on concentration costs: for each of the same
suppliers and offers that more than 40% of the cost is spent on, the best plan found that spends at
most that, with a bound. On-demand, spot and what is held count in the cost and not in the share.

With --order-price 5000 the plan also shows fewer, larger orders: orders of an offer are merged with
the next, or left out, while that costs less than placing an order does.

The plan is recorded as an event, and the same plan is recorded only once. Nothing is bought. A
pool that cannot be planned is excluded, with the reason and the next step. If every pool is
excluded, nothing is recorded and the exit status is 1.`,
		Example: "  quartermaster plan --at 2026-06-01 --growth 2%\n" +
			"  quartermaster plan --at 2026-06-01 --demand forecast --scenarios 20\n" +
			"  quartermaster plan --at 2026-06-01 --region us-east-1 --months 12 --salvage 0 --dry-run -o json\n" +
			"  quartermaster plan list\n  quartermaster plan show plan-0f3a9c81d2e4",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			as, err := fl.assumptions()
			if err != nil {
				return err
			}
			var at domain.Instant
			if fl.at != "" {
				if at, err = domain.ParseTime(fl.at); err != nil {
					return commandline.Usagef("--at: %w", err)
				}
			}
			p, recorded, err := a.caller().Plan(cmd.Context(), app.At(asOf), app.PlanQuery{At: at, Regions: fl.regions, Workspace: fl.workspace, Assumptions: as, DryRun: fl.dryRun})
			if err != nil {
				return err
			}
			if a.json {
				err = a.answerJSON(p)
			} else if p.Empty() {
				a.showNothing(p)
			} else {
				a.showPlan(p, 0)
			}
			switch {
			case err != nil:
				return err
			case p.Empty():
				return &failed{why: "no pool could be planned"}
			case a.json:
			case fl.dryRun:
				fmt.Fprintln(a.out, "not recorded: this was a dry run")
			case recorded:
				fmt.Fprintf(a.out, "recorded as %s\n", p.ID)
			default:
				fmt.Fprintf(a.out, "%s was recorded before\n", p.ID)
			}
			return nil
		},
	}
	f := cmd.Flags()
	questionFlags(cmd, &fl)
	f.StringVar(&fl.demand, "demand", fl.demand, "\"repeat\" the observed demand, or use scenarios of a \"forecast\"")
	f.IntVar(&fl.scenarios, "scenarios", fl.scenarios, "with a forecast, number of equally likely scenarios")
	f.Uint64Var(&fl.seed, "seed", fl.seed, "with a forecast, seed of the scenarios: equal seeds give equal plans")
	f.BoolVar(&fl.secondBest, "second-best", false, "also plan without each supplier that is bought from, and without the largest purchases, and show what that costs more")
	f.StringVar(&fl.maxShare, "max-share", fl.maxShare, maxShareFlag)
	f.StringVar(&fl.orderPrice, "order-price", fl.orderPrice, "price of placing one order, such as 5000: also plan with fewer, larger orders, and show what that saves")
	f.IntVar(&fl.life, "life", fl.life, "with a forecast, "+lifeFlag)
	f.StringVar(&fl.workspace, "workspace", fl.workspace, "workspace of the plan")
	f.BoolVar(&fl.dryRun, "dry-run", false, "compute and show the plan, but do not record it")
	asOfFlag(cmd, &asOf)
	cmd.AddCommand(a.planListCommand(), a.planShowCommand(), a.planVerifyCommand(), a.planDiffCommand(), a.planPackCommand(), a.planForecastCommand(), a.planBacktestCommand(), a.planSolveCommand(), a.planCheckCommand(), a.planEvaluateCommand(), a.planInstanceCommand())
	return cmd
}

func (fl *planFlags) assumptions() (plan.Assumptions, error) {
	as := plan.Assumptions{
		Months: fl.months, Weeks: fl.weeks, Currency: fl.currency, AnnualRate: planning.FromPolicy, SecondBest: fl.secondBest,
		Salvage: app.UsualPlan().Assumptions.Salvage,
	}
	if len(fl.currency) != 3 || strings.ToUpper(fl.currency) != fl.currency {
		return as, commandline.Usagef("--currency %q is not an ISO 4217 code of three capital letters, for example USD", fl.currency)
	}
	switch fl.demand {
	case app.RepeatDemand:
	case plan.Forecast:
		as.Demand, as.Scenarios, as.Seed, as.Life = fl.demand, fl.scenarios, fl.seed, fl.life
		if fl.salvage == "" {
			as.SalvageFrom = plan.Forecast
		}
	default:
		return as, commandline.Usagef("--demand %q: want %q or %q", fl.demand, app.RepeatDemand, plan.Forecast)
	}
	for _, n := range []struct {
		flag, text string
		into       *domain.Decimal
	}{
		{"growth", fl.growth, &as.MonthlyGrowth}, {"rate", fl.rate, &as.AnnualRate}, {"salvage", fl.salvage, &as.Salvage},
		{"spot-overhead", fl.overhead, &as.SpotOverhead}, {"shortage-factor", fl.shortage, &as.ShortageFactor}, {"service-level", fl.serviceLevel, &as.ServiceLevel},
		{"max-share", fl.maxShare, &as.MaxShare}, {"order-price", fl.orderPrice, &as.OrderPrice},
	} {
		if n.text == "" && (n.flag == "rate" || n.flag == "service-level" || n.flag == "max-share" || n.flag == "order-price" || n.flag == "salvage") {
			continue
		}
		d, err := shareFlag(n.text)
		if err != nil || n.flag == "rate" && d.IsNegative() {
			return as, commandline.Usagef("--%s %q is not a number such as 0.05 or 5%%", n.flag, n.text)
		}
		*n.into = d
	}
	return as, nil
}

// maxShareFlag describes a cap on concentration.
const maxShareFlag = "also plan with the purchases from a supplier, or of an offer, at most this share of the cost, such as 40%, and show what that costs more"

// lifeFlag describes the mean life of a machine type.
const lifeFlag = "mean months until a successor replaces a machine type and its demand ends; 0: it never ends"

// shareFlag reads a share, as 0.05 or as 5%.
func shareFlag(text string) (domain.Decimal, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	d, err := decimal.NewFromString(number)
	switch {
	case err != nil:
		return d, err
	case len(text) > 20:
		return d, fmt.Errorf("%q is longer than 20 characters", text)
	case percent:
		d = d.Shift(-2)
	}
	return d, nil
}

func (a *Program) planListCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List recorded plans",
		Long:    `List shows every recorded plan, newest first.`,
		Example: "  quartermaster plan list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plans, err := a.caller().Plans(cmd.Context(), app.At(asOf))
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(plans)
			}
			if len(plans) == 0 {
				fmt.Fprintln(a.out, "no plans yet: \"quartermaster plan\" makes one")
				return nil
			}
			t := a.table("plan", "workspace", "recorded", "horizon", "regions", "cost", "lower bound", "currency")
			t.SetColumnConfigs(rightFrom(6, 7))
			for _, p := range plans {
				t.AppendRow(table.Row{p.Plan, named(p.Workspace), p.Recorded.Time().Format("2006-01-02 15:04:05"), day(p.Horizon.From) + " to " + day(p.Horizon.To),
					named(strings.Join(p.Regions, " ")), moneyCell(p.Cost.Amount), moneyCell(p.LowerBound.Amount), p.Cost.Currency})
			}
			t.Render()
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) planShowCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:     "show PLAN",
		Short:   "Show a recorded plan",
		Long:    "Show prints a plan as it was recorded. With -o json the recorded document is printed unchanged.",
		Example: "  quartermaster plan show plan-0f3a9c81d2e4",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, p, err := a.caller().RecordedPlan(cmd.Context(), app.At(asOf), args[0])
			if err != nil {
				return err
			}
			if a.json {
				_, err := fmt.Fprintln(a.out, string(e.Document))
				return err
			}
			a.showPlan(p, 0)
			return nil
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) planVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify PLAN",
		Short: "Compute a recorded plan again from the log, and compare",
		Long: `Verify folds the log up to the plan's position and computes the plan again. Both must be equal byte for
byte; exit status 1 if they are not. A plan of another method version cannot be verified by this
program, and is reported as such.`,
		Example: "  quartermaster plan verify plan-0f3a9c81d2e4",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.caller().VerifyPlan(cmd.Context(), args[0])
			return a.showVerified(v, err, "plan", "computed")
		},
	}
}

// showVerified reports whether a recorded document equals the one computed again from the log.
func (a *Program) showVerified(v *app.Verified, err error, kind, verb string) error {
	switch {
	case err != nil:
		return err
	case a.json:
		err = a.answerJSON(v)
	case v.Equal:
		fmt.Fprintf(a.out, "equal: %s again from the log at %s, digest %s\n", verb, a.position(v.Position), v.Recorded)
	default:
		fmt.Fprintf(a.out, "DIFFERENT: recorded %s, %s again %s\n", v.Recorded, verb, v.Again)
	}
	if err == nil && !v.Equal {
		return &failed{why: "the " + kind + " differs from the log"}
	}
	return err
}
