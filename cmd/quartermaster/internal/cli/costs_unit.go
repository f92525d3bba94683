package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/costs"
)

func (a *Program) costUnitCommand() *cobra.Command {
	var (
		month, per, asOf string
		by               []string
	)
	cmd := &cobra.Command{
		Use:   "unit --per UNIT --period MONTH",
		Short: "Show what a useful GPU-hour, a million tokens, a request or a job cost",
		Long: `Unit divides what deployments are charged in a month by what they did in it:

  useful-gpu-hour  GPU time held, times its measured activity
  million-tokens   prompt and generated tokens of model servers, which are shown apart
  request          requests that model servers answered without an error
  job              jobs that ended in the month and succeeded

The cost is the effective cost of deployments: of the GPU time that they held, and of what follows it,
such as tax. Idle time belongs to no deployment and is not in it. Deployments without such units are
left out of the ratio, and their cost is shown. Jobs of no deployment are set against the GPU time that
their workspace held in the cluster without one.

Coverage is the share of the time held with telemetry: measured activity, or hours in which the model
server reported. The unit cost is an upper bound, as if nothing was done in the rest. The lower bound
takes the rest as useful from end to end, or as costing as much per token or request. Nothing is shown
where nothing was counted. Ratios are computed from the sums of a group, and are never added up.

Dimensions for --by: workspace, model, cluster, deployment. The model is the one that the deployment
is declared to serve or train, as in "quartermaster costs"; where none is declared, the one that its
model servers report. GPU time has the model and the workspace of its hour. Tokens, requests and jobs
are counted for deployments: if one had several models or workspaces, it is "mixed".

The last table compares providers: what a bought GPU-hour of a model cost there, and in the whole
fleet. Different GPU models are never compared.`,
		Example: "  quartermaster costs unit --per useful-gpu-hour --by workspace --period 2026-05\n" +
			"  quartermaster costs unit --per million-tokens --by model,workspace --period 2026-05\n" +
			"  quartermaster costs unit --per request --by model --period 2026-05 -o json\n" +
			"  quartermaster costs unit --per job --by workspace --period 2026-05",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := costs.UnitQuery{Per: costs.UnitOf(per), By: []costs.Dimension{}}
			var err error
			if q.Month, err = monthFlag("period", month); err != nil {
				return err
			}
			if !slices.Contains(costs.Units(), q.Per) {
				return commandline.Usagef("--per %q: want one of %v", per, costs.Units())
			}
			for i, d := range by {
				if !slices.Contains(costs.UnitDimensions(), costs.Dimension(d)) || slices.Contains(by[:i], d) {
					return commandline.Usagef("--by %q: want some of %v, each once", d, costs.UnitDimensions())
				}
				q.By = append(q.By, costs.Dimension(d))
			}
			r, err := a.caller().UnitCosts(cmd.Context(), app.At(asOf), q)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(r)
			}
			a.showUnitCosts(r)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&month, "period", "", "billing month in UTC, for example 2026-05 (required)")
	f.StringVar(&per, "per", "", "useful-gpu-hour, million-tokens, request or job (required)")
	f.StringSliceVar(&by, "by", []string{"workspace"}, "dimensions to group by, separated by commas")
	asOfFlag(cmd, &asOf)
	must(cmd.MarkFlagRequired("period"))
	must(cmd.MarkFlagRequired("per"))
	return cmd
}

// unitCounts are the columns of counts for each unit.
func unitCounts(per costs.UnitOf, c *costs.UnitCost) (titles, cells []any) {
	n := func(v uint64) string { return comma(int(v)) }
	switch per {
	case costs.UnitUsefulGPUHour:
		return []any{"useful"}, []any{hoursCell(c.Useful)}
	case costs.UnitMillionTokens:
		return []any{"prompt tokens", "generated tokens"}, []any{n(c.PromptTokens), n(c.GeneratedTokens)}
	case costs.UnitRequest:
		return []any{"requests", "failed"}, []any{n(c.Requests), n(c.RequestsFailed)}
	}
	return []any{"jobs", "not succeeded"}, []any{n(c.Jobs), n(c.JobsFailed)}
}

func (a *Program) showUnitCosts(r *costs.UnitReport) {
	fmt.Fprintf(a.out, "cost per %s in %s\n", r.Per, app.MonthName(r.Month))
	if r.Generated {
		fmt.Fprintln(a.out, generatedNote)
	}
	header := []any{}
	for _, d := range r.By {
		header = append(header, string(d))
	}
	titles, _ := unitCounts(r.Per, &costs.UnitCost{})
	header = append(append(header, "currency", "effective"), titles...)
	header = append(header, "per unit", "lower bound", "coverage %")
	t := a.table(header...)
	t.main, t.names = true, len(r.By)
	alignRight(t, len(r.By)+2, len(header))
	row := func(name []any, c *costs.UnitCost) {
		_, counts := unitCounts(r.Per, c)
		upper, lower, coverage := any(string(c.Absent)), any(""), any("")
		if c.Upper != nil {
			upper, lower = cell{c.Upper.StringFixed(4), c.Upper.String()}, cell{c.Lower.StringFixed(4), c.Lower.String()}
		}
		if c.Coverage != nil {
			coverage = fmt.Sprintf("%d.%d", *c.Coverage/10, *c.Coverage%10)
		}
		cells := append(append(name, c.Currency, cell{cents(c.Effective, c.Currency), c.Effective.String()}), counts...)
		t.AppendRow(table.Row(append(cells, upper, lower, coverage)))
	}
	for i := range r.Groups {
		name := []any{}
		for _, d := range r.By {
			name = append(name, clipped(cmp.Or(r.Groups[i].Key[d], costs.Blank(d))))
		}
		row(name, &r.Groups[i].UnitCost)
	}
	if len(r.By) > 0 {
		t.AppendSeparator()
	}
	for i := range r.Totals {
		name := make([]any, len(r.By))
		for j := range name {
			name[j] = map[bool]string{true: "total"}[j == 0]
		}
		row(name, &r.Totals[i])
	}
	t.Render()
	if len(r.Totals) == 0 {
		fmt.Fprintln(a.out, "nothing was counted")
	}
	for _, n := range r.NotCounted {
		fmt.Fprintf(a.out, "not counted: %s %s that cost %s\n", comma(n.Deployments), map[bool]string{true: "deployment", false: "deployments"}[n.Deployments == 1], amountText(n.Effective, n.Currency))
	}
	a.showProviderCosts(r.Providers)
	fmt.Fprintf(a.out, "\nmethod: %s on %s\nposition: %s\n", r.Methods.Attribution, r.Methods.Folds, a.position(r.Position))
	a.reportEnds(r.Completeness)
}

func (a *Program) showProviderCosts(all []costs.ProviderCost) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nbought GPU-hours of each provider, and the fleet's mean of the same GPU model")
	t := a.table("GPU model", "supplier", "currency", "effective", "bought", "per bought GPU-hour", "fleet", "difference %")
	alignRight(t, 4, 8)
	for _, p := range all {
		per, fleet, difference := "", "", ""
		if p.PerHour != nil {
			per = p.PerHour.StringFixed(4)
		}
		if p.Fleet != nil {
			fleet = p.Fleet.StringFixed(4)
		}
		if p.Difference != nil {
			difference = p.Difference.Shift(2).StringFixed(1)
		}
		t.AppendRow(table.Row{clipped(p.GPUModel), clipped(p.Provider), p.Currency, cents(p.Effective, p.Currency), hoursCell(p.Bought), per, fleet, difference})
	}
	t.Render()
}
