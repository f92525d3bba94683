package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain/plan"
)

func (a *Program) planDiffCommand() *cobra.Command {
	var asOf string
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two plans",
		Long: `Diff compares two plans: ids of recorded plans, or files with a plan in JSON. It compares costs,
assumptions, regions, pools, and purchases that were added, removed or changed. Changes are B less
A. Exit status 1 if the plans differ, 0 if they do not.`,
		Example: "  quartermaster plan diff plan-0f3a9c81d2e4 plan-5b1c7e90a3d6\n" +
			"  quartermaster plan diff plan-0f3a9c81d2e4 result.json",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			d, err := a.caller().PlanDiff(cmd.Context(), app.At(asOf), args[0], args[1])
			if err != nil {
				return err
			}
			if a.json {
				err = a.answerJSON(d)
			} else {
				a.showDiff(d)
			}
			if err == nil && !d.Empty() {
				return &failed{why: "the plans differ"}
			}
			return err
		},
	}
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showDiff(d *plan.Diff) {
	fmt.Fprintf(a.out, "A: plan %s for %s to %s\nB: plan %s for %s to %s\n", d.A.Plan, day(d.A.Horizon.From), day(d.A.Horizon.To), d.B.Plan, day(d.B.Horizon.From), day(d.B.Horizon.To))
	if d.Empty() {
		fmt.Fprintln(a.out, "the plans do not differ")
		return
	}
	if len(d.Assumptions) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("assumption", "A", "B")
		for _, x := range d.Assumptions {
			t.AppendRow(table.Row{x.Name, clipped(x.A), clipped(x.B)})
		}
		t.Render()
	}
	fmt.Fprintln(a.out)
	t := a.table("amounts in "+d.Currency, "A", "B", "B less A")
	alignRight(t, 2, 4)
	for i := range d.Costs {
		t.AppendRow(pairRow(d.Costs[i].Name, &d.Costs[i]))
	}
	t.Render()
	if len(d.Regions) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("region", "status", "cost in A", "in B", "B less A")
		alignRight(t, 3, 5)
		for i := range d.Regions {
			x := &d.Regions[i]
			t.AppendRow(table.Row{named(regionName(x.Region)), x.Status, moneyCell(x.Cost.A), moneyCell(x.Cost.B), changeCell(&x.Cost)})
		}
		t.Render()
	}
	if len(d.Pools) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("pool", "status", "unit-hours in A", "in B", "committed in A", "in B", "cost, B less A")
		alignRight(t, 3, 7)
		for i := range d.Pools {
			x := &d.Pools[i]
			t.AppendRow(table.Row{named(strings.TrimSpace(x.Region + " " + x.Kind)), x.Status, count(int(x.UnitHoursA)), count(int(x.UnitHoursB)),
				count(int(x.HeldA)), count(int(x.HeldB)), changeCell(&x.Cost)})
		}
		t.Render()
		for i := range d.Pools {
			if x := &d.Pools[i]; x.Reason != "" {
				fmt.Fprintf(a.out, "%s %s: %s\n", strings.TrimSpace(x.Region+" "+x.Kind), x.Status, x.Reason)
			}
		}
	}
	if len(d.Purchases) > 0 {
		fmt.Fprintln(a.out)
		t := a.table("purchase", "status", "from", "units in A", "in B", "upfront, B less A", "cost, B less A")
		t.main = true
		alignRight(t, 4, 7)
		for i := range d.Purchases {
			x := &d.Purchases[i]
			what := inZone(x.Offer, x.Zone)
			if x.SKU != "" {
				what += " of " + x.SKU
			}
			name := cell{clipped(regionName(x.Region) + " " + what), regionName(x.Region) + " " + x.Offer}
			t.AppendRow(table.Row{name, x.Status, day(x.Term.From), count(x.UnitsA), count(x.UnitsB), changeCell(&x.Upfront), changeCell(&x.Cost)})
		}
		t.Render()
	}
}
