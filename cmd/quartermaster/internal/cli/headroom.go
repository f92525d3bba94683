package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
)

func (a *Program) headroomCommand() *cobra.Command {
	var (
		region, at, asOf string
		limit            int
	)
	cmd := &cobra.Command{
		Use:   "headroom",
		Short: "What each cluster can still take of what it runs, and where the rest may go",
		Long: `Headroom counts, for each deployment that holds whole GPUs, how many more of its replicas fit in its cluster,
machine by machine, and how many would fit after the loss of the machine that would hurt most: below 0, so
many would find no place. Overflow targets are the other clusters that may take replicas, the cheapest
first: those that its policies allow and that are within its latency budget. A round trip that nobody
measured is estimated with 5 ms for each time zone.

Who holds what is taken from each machine's last report within a day.`,
		Example: "  quartermaster headroom --at 2026-06-01\n  quartermaster headroom --at 2026-06-01 --region us-east-1 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var about domain.Instant
			if err := timeFlag("at", at, &about); err != nil {
				return err
			}
			if limit < 0 {
				return commandline.Usagef("--limit %d: want 0 or more", limit)
			}
			ans, err := a.caller().Headroom(cmd.Context(), app.At(asOf), about, region)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(ans)
			}
			a.showHeadroom(ans, limit)
			a.showPosition(ans.Position)
			a.showProgram()
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&region, "region", "", "only clusters of this region")
	f.StringVar(&at, "at", "", "time of the answer: RFC 3339, a date or a month in UTC (default now)")
	f.IntVar(&limit, "limit", 40, "rows to list; JSON has all")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showHeadroom(r *app.Headroom, limit int) {
	if len(r.Rows) == 0 {
		fmt.Fprintln(a.out, "no deployment is declared that holds whole GPUs")
		return
	}
	t := a.table("cluster", "deployment", "GPU model", "GPUs", "replicas", "fit", "after a loss", "overflow to")
	t.SetColumnConfigs(rightFrom(4, 7))
	for i := range r.Rows[:min(limit, len(r.Rows))] {
		x := &r.Rows[i]
		var targets []string
		for _, o := range x.Targets[:min(3, len(x.Targets))] {
			text := fmt.Sprintf("%s (%d", o.Cluster, o.Fits)
			if o.Micros > 0 {
				text += fmt.Sprintf(", %d ms", o.Micros/1000)
				if !o.Measured {
					text += " estimated"
				}
			}
			targets = append(targets, text+")")
		}
		t.AppendRow(table.Row{x.Cluster, x.Deployment, x.GPUModel, x.GPUs, x.Replicas, x.Fits, x.AfterLoss, strings.Join(targets, ", ")})
	}
	t.Render()
	if n := len(r.Rows) - limit; n > 0 {
		fmt.Fprintf(a.out, "and %s more; see --limit\n", comma(n))
	}
}
