package cli

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/chart"
	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/simulations/backtest"
)

type backtestFlags struct {
	app.BacktestQuery
	from, to                               string
	months, scenarios, life                int
	growth, salvage, planSalvage, overhead string
	shortage, spotShare, currency          string
	seed                                   uint64
	chart, table                           string
}

func (a *Program) planBacktestCommand() *cobra.Command {
	fl := backtestFlags{}
	cmd := &cobra.Command{
		Use:   "backtest",
		Short: "Test what the plan's advice would have been worth in the past",
		Long: `Backtest goes back to the start of each month from --from to --to and plans with what was known
then: facts that were appended by then, or that their source recorded by then. It makes the
purchases that could not wait, carries them into the next month, and pays for the actual demand.

The plan is compared with these alternatives, which decide again every month:

  current                buy nothing
  on_demand              serve all demand on demand, within the quota
  lookback_7d, 30d, 60d  the one commitment that would have saved most over the last
                         days, like the cloud providers' own recommendations
  ladder_60d             one twelfth of that every month
  constant_60d           that at the start, and again only when it has ended
  peak_60d               reserve the highest hour of the last days

Perfect foresight is the exact optimum for the actual demand. No alternative costs less. Regret is
the extra cost of an alternative over perfect foresight.

All alternatives pay the same prices and share one terminal rule: the share --salvage of a
purchase's cost beyond the last month is not charged. Amounts are nominal. Low and high are a
bootstrap interval of regret over pools, each against its own foresight. A single pool has no
interval, and below ten pools it says little.

The plan under test is what "plan --demand forecast" advises. What a term is worth beyond its horizon follows
from the forecast there, as in "plan"; --plan-salvage sets a fixed share.

Results depend on the terminal rule, so regret is also shown for a salvage of 0, 0.5 and 1. The
advice does not know the end: alternatives buy the same under every rule and are only charged
differently. "End known" shows the cost of each alternative if it knows the end and the rule at
each decision and uses them. Mean is the mean regret over the rules whose end is unknown and that
whose end is known and leaves nothing. Excess is the most by which an alternative is above the least
of one of these rules. Where a rule that needs no plan does as well, a note says so.

Demand and prices come from the log or from files: --demand with the columns of "import demand",
--prices with those of "import prices". Without prices, generated prices are used: on-demand at 1,
and commitments of one and three years at 0.644 and 0.445. If a price was not known in its month,
the price now known for that month is used, else the next quote of the offer. Such prices are
marked as synthetic.

With --group region all kinds of a region form one pool, like a commitment that floats over machine
types (a spend commitment). Such a pool is not replaced by a successor (--life).`,
		Example: "  quartermaster plan backtest --from 2025-06 --to 2026-06\n" +
			"  quartermaster plan backtest --demand shavedice_regions_1_2.csv.gz --group region --chart regret.svg\n" +
			"  quartermaster plan backtest --demand demand.csv --prices offers.csv --salvage 0.5 --table regret.csv -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.backtest(cmd.Context(), &fl) },
	}
	demandFlags(cmd, &fl.DemandQuery)
	f := cmd.Flags()
	f.StringVar(&fl.from, "from", "", "first month of decisions (default a year before --to; with a file, half a year after its start)")
	f.StringVar(&fl.to, "to", "", "month before which the test ends (default this month; with a file, its last month)")
	f.StringVar(&fl.Prices, "prices", "", "with --demand: read offers from this file, in the columns of \"import prices\"")
	f.StringVar(&fl.Group, "group", "kind", "form pools by \"kind\", or of all kinds of a \"region\"")
	f.IntVar(&fl.months, "months", 36, "horizon of each plan, in months")
	f.IntVar(&fl.scenarios, "scenarios", 16, "demand scenarios in each plan")
	f.StringVar(&fl.growth, "growth", "0", "monthly growth beyond 13 weeks, as in \"plan\"")
	f.IntVar(&fl.life, "life", forecast.Life, lifeFlag)
	f.StringVar(&fl.salvage, "salvage", "1", "terminal rule: share of the cost beyond the last month that is not charged, 0 to 1")
	f.StringVar(&fl.planSalvage, "plan-salvage", "", "the same share, as assumed by plans that do not know the end; with less than 1 they buy earlier than needed (default follows from the forecast)")
	f.StringVar(&fl.overhead, "spot-overhead", "0.05", "share of spot time lost to interruptions")
	f.StringVar(&fl.spotShare, "spot-share", "0", "share of demand that may run on spot, 0 to 1")
	f.StringVar(&fl.shortage, "shortage-factor", "10", "cost of an unserved hour, as a multiple of the on-demand price")
	f.IntVar(&fl.Quota, "quota", -1, "on-demand quota of a pool in units; -1: as in the log, unlimited with a file")
	f.StringVar(&fl.currency, "currency", "USD", "currency of the offers")
	f.Uint64Var(&fl.seed, "seed", 1, "seed of scenarios and intervals: equal seeds give equal results")
	f.StringVar(&fl.chart, "chart", "", "regret of every alternative: "+chartFlag)
	f.StringVar(&fl.table, "table", "", "write regions and alternatives to this CSV file")
	return cmd
}

func (a *Program) backtest(ctx context.Context, fl *backtestFlags) error {
	q, err := fl.question()
	if err != nil {
		return err
	}
	if err := checkChart(fl.chart); err != nil {
		return err
	}
	r, err := a.caller().Backtest(ctx, q)
	if err != nil {
		return err
	}
	return a.showBacktest(r, fl)
}

// question reads the flags into a question without pools.
func (fl *backtestFlags) question() (*app.BacktestQuery, error) {
	q := fl.BacktestQuery
	q.Question = &backtest.Question{
		Currency: fl.currency, Horizon: fl.months, Scenarios: fl.scenarios, Workers: runtime.GOMAXPROCS(0),
		Draws: func(stream uint64) func() uint64 { return rand.NewPCG(fl.seed, stream).Uint64 },
	}
	var planned domain.Decimal
	for _, n := range []struct {
		flag, text string
		into       *domain.Decimal
		most       int64
	}{
		{"salvage", fl.salvage, &q.Salvage, 1}, {"plan-salvage", fl.planSalvage, &planned, 1}, {"shortage-factor", fl.shortage, &q.Shortage, 1000},
		{"spot-overhead", fl.overhead, &q.Overhead, 1}, {"spot-share", fl.spotShare, &q.SpotShare, 1},
	} {
		if n.flag == "plan-salvage" && n.text == "" {
			continue
		}
		d, err := decimal.NewFromString(n.text)
		if err != nil || len(n.text) > 20 || d.IsNegative() || d.GreaterThan(decimal.NewFromInt(n.most)) {
			return nil, commandline.Usagef("--%s %q is not a number from 0 to %d", n.flag, n.text, n.most)
		}
		*n.into = d
	}
	if fl.planSalvage != "" {
		q.PlanSalvage = &planned
	}
	if len(fl.currency) != 3 || strings.ToUpper(fl.currency) != fl.currency {
		return nil, commandline.Usagef("--currency %q is not an ISO 4217 code of three capital letters, for example USD", fl.currency)
	}
	if fl.Group != "kind" && fl.Group != "region" {
		return nil, commandline.Usagef("--group %q: want kind or region", fl.Group)
	}
	if fl.Prices != "" && fl.File == "" {
		return nil, commandline.Usagef("--prices needs --demand; the log has its own offers")
	}
	growth, err := shareFlag(fl.growth)
	if err != nil {
		return nil, commandline.Usagef("--growth %q is not a number such as 0.05 or 5%%", fl.growth)
	}
	q.Growth, q.Life = growth, fl.life
	for _, n := range []struct {
		flag, text string
		into       *domain.Instant
	}{{"from", fl.from, &q.From}, {"to", fl.to, &q.To}} {
		if n.text == "" {
			continue
		}
		at, err := domain.ParseTime(n.text)
		if err != nil {
			return nil, commandline.Usagef("--%s: %w", n.flag, err)
		}
		*n.into = at
	}
	return &q, nil
}

func (a *Program) showBacktest(r *app.Backtested, fl *backtestFlags) error {
	if fl.chart != "" {
		if err := a.writeChart(fl.chart, regretFigure(r)); err != nil {
			return err
		}
	}
	if fl.table != "" {
		if err := app.WriteWhole(fl.table, func(w io.Writer) error { return regretTable(w, r) }); err != nil {
			return err
		}
		a.note("written: %s", fl.table)
	}
	if a.json {
		return a.answerJSON(r)
	}
	fmt.Fprintf(a.out, "%d months from %s to %s, amounts in %s, nominal; %s of a purchase's cost beyond the end is not charged\n",
		r.Months, day(r.Period.From), day(r.Period.To), r.Currency, percent(r.Salvage))
	regions := r.Regions
	if len(regions) > 1 {
		regions = append([]backtest.Region{r.All}, regions...)
	}
	scores := []scored{}
	for i := range regions {
		g := &regions[i]
		fmt.Fprintf(a.out, "\n%s: perfect foresight costs %s; cheapest alternative: %s\n", cmp.Or(g.Region, everyRegion), money(g.Foresight), strings.Join(g.Least, ", "))
		t := a.table("alternative", "cost", "regret", "low", "high", "incl. penalty", "reserved hours", "incl. unused")
		t.SetColumnConfigs(rightFrom(2, 8))
		for _, c := range g.Alternatives {
			t.AppendRow(table.Row{c.Name, moneyCell(c.Cost), percent(c.Regret), percentOr(c.Low), percentOr(c.High), moneyCell(c.Penalty),
				count(int(c.Served.Reserved + c.Served.Unused)), count(int(c.Served.Unused))})
		}
		t.Render()
		if g.Synthetic > 0 {
			fmt.Fprintf(a.out, "prices are synthetic in %d of %d pool-months\n", g.Synthetic, g.PoolMonths)
		}
		a.showTerminal(g)
		if g.Forecast.Forecasts > 0 {
			scores = append(scores, scored{cmp.Or(g.Region, everyRegion), &g.Forecast})
		}
	}
	a.showScores("forecasts of the plan, first four weeks of each", scores)
	fmt.Fprintf(a.out, "\nlow and high: %s\nthe plan: %d scenarios over %d months; beyond %d weeks demand grows by %s a month; a machine type lasts %d months on average\n",
		r.Interval, r.Scenarios, r.Horizon, forecast.MaxHorizon, percent(r.Growth), r.Life)
	for i := range r.Pools {
		p := &r.Pools[i]
		for _, x := range p.Prices {
			// The answer and the notes report offers. Without an on-demand price there would be no test.
			if x.Price == "on_demand" && x.Since != 0 {
				fmt.Fprintf(a.out, "%s %s: in %d of %d months the on-demand price was not known, and a later quote is used; the first was known from %s\n", p.Region, p.Kind, x.Months, r.Months, day(x.Since))
			}
		}
	}
	for _, n := range r.Notes {
		fmt.Fprintln(a.out, n)
	}
	for _, l := range r.Excluded {
		fmt.Fprintf(a.out, "excluded: %s %s: %s\n", l.Region, l.Kind, l.Reason)
	}
	return nil
}

// everyRegion is the name of all regions together.
const everyRegion = "all regions"

// percentOr shows an optional bound in percent.
func percentOr(d *domain.Decimal) string {
	if d == nil {
		return "-"
	}
	return percent(*d)
}

// ruleName names a terminal rule in tables and charts.
func ruleName(x *backtest.Terminal) string {
	if x.EndKnown {
		return "end known, " + percent(x.Salvage)
	}
	return "salvage " + percent(x.Salvage)
}

// byRule sorts the rules that alternatives do not know first.
func byRule(rules []backtest.Terminal) []backtest.Terminal {
	rules = slices.Clone(rules)
	slices.SortStableFunc(rules, func(a, b backtest.Terminal) int {
		switch {
		case a.EndKnown == b.EndKnown:
			return 0
		case b.EndKnown:
			return -1
		}
		return 1
	})
	return rules
}

// showTerminal shows regrets by terminal rule.
func (a *Program) showTerminal(g *backtest.Region) {
	rules := byRule(g.Terminal)
	head := table.Row{"regret by terminal rule"}
	for i := range rules {
		head = append(head, ruleName(&rules[i]))
	}
	head = append(head, "mean", "excess, points")
	t := a.table(head...)
	t.SetColumnConfigs(rightFrom(2, len(head)))
	for k := range rules[0].Alternatives {
		row := table.Row{rules[0].Alternatives[k].Name}
		for i := range rules {
			row = append(row, percent(rules[i].Alternatives[k].Regret))
		}
		t.AppendRow(append(row, percent(g.Robust[k].Mean), g.Robust[k].Excess.Shift(2).String()))
	}
	row := table.Row{"least"}
	for i := range rules {
		row = append(row, strings.Join(rules[i].Least, ", "))
	}
	t.AppendRow(row)
	t.Render()
}

// regretFigure draws the regret of every alternative over all regions, by terminal rule.
func regretFigure(r *app.Backtested) chart.Figure {
	f := chart.Dots{
		Title: fmt.Sprintf("Regret by terminal rule, %s to %s", day(r.Period.From), day(r.Period.To)),
		X:     "percent over perfect foresight",
	}
	rules := byRule(r.All.Terminal)
	for k, alternative := range r.All.Alternatives {
		for i := range rules {
			c := &rules[i].Alternatives[k]
			b := chart.Dot{Name: alternative.Name, Series: ruleName(&rules[i]), Value: chart.Point(c.Regret.Shift(2))}
			if c.Low != nil {
				b.Low, b.High = chart.Point(c.Low.Shift(2)), chart.Point(c.High.Shift(2))
				f.X = "percent over perfect foresight, with the interval over pools"
			}
			f.Dots = append(f.Dots, b)
		}
	}
	return f
}

// regretTable writes regions and alternatives under every terminal rule as CSV. The region without a
// name is the total.
func regretTable(w io.Writer, r *app.Backtested) error {
	out := csv.NewWriter(w)
	err := out.Write([]string{"region", "alternative", "cost", "currency", "foresight_cost", "regret", "regret_low", "regret_high", "shortage_penalty",
		"reserved_unit_hours", "reserved_unused_unit_hours", "spot_unit_hours", "on_demand_unit_hours", "shortage_unit_hours",
		"salvage", "end_known", "pool_months_with_synthetic_prices", "pool_months"})
	bound := func(d *domain.Decimal) string {
		if d == nil {
			return ""
		}
		return d.String()
	}
	for _, g := range append(slices.Clone(r.Regions), r.All) {
		for _, x := range byRule(g.Terminal) {
			for _, c := range x.Alternatives {
				if err != nil {
					return err
				}
				err = out.Write([]string{g.Region, c.Name, c.Cost.String(), r.Currency, x.Foresight.String(), c.Regret.String(), bound(c.Low), bound(c.High), c.Penalty.String(),
					fmt.Sprint(c.Served.Reserved), fmt.Sprint(c.Served.Unused), fmt.Sprint(c.Served.Spot), fmt.Sprint(c.Served.OnDemand), fmt.Sprint(c.Served.Shortage),
					x.Salvage.String(), fmt.Sprint(x.EndKnown), fmt.Sprint(g.Synthetic), fmt.Sprint(g.PoolMonths)})
			}
		}
	}
	out.Flush()
	return cmp.Or(err, out.Error())
}
