package cli

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/projections/usage"
)

func (a *Program) usageCourseCommand() *cobra.Command {
	var q usageQuestion
	var points int
	cmd := &cobra.Command{
		Use:   "course",
		Short: "Show usage over time, in as many points as a chart has",
		Long: `Course shows GPU time by state over a period of whole hours, in at most --points buckets of equally many
hours. A bucket has the sums that "quartermaster usage --by hour" has of its hours. It also has the least and
the most of its hours, of the allocated share and of the activity, so that no spike disappears.

JSON has a list for each figure, with a value for each bucket. Dimensions for --by and --where are those of
usage, but for --by without hour and day.`,
		Example: "  quartermaster usage course --by cluster --from 2026-05 --to 2026-06\n" +
			"  quartermaster usage course --by gpu_model --from 2026-05-01 --to 2026-05-08 --points 56 -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			period, dims, err := q.read()
			if err != nil {
				return err
			}
			c, err := a.caller().UsageCourse(cmd.Context(), app.At(q.asOf), period, points, q.filter, dims...)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(c)
			}
			a.showUsageCourse(c)
			return nil
		},
	}
	q.add(cmd, "cluster")
	cmd.Flags().IntVar(&points, "points", 300, fmt.Sprintf("buckets at most, up to %d", usage.MostPoints))
	return cmd
}

func (a *Program) showUsageCourse(c *usage.Course) {
	header := table.Row{}
	for _, d := range c.By {
		header = append(header, string(d))
	}
	header = append(header, "from", "in service", "allocated", "idle", "failed", "unobserved", "allocated share", "least", "most",
		"activity", "least activity", "most activity")
	t := a.table(header...)
	t.names = len(c.By) + 1
	t.spare = []string{"failed", "unobserved", "least activity", "most activity"}
	t.SetColumnConfigs(rightFrom(len(c.By)+2, len(header)))
	for i := range c.Series {
		s := &c.Series[i]
		for j, from := range c.Starts {
			row := table.Row{}
			for _, d := range c.By {
				name := s.Key[d]
				if name == "" {
					name = usage.Blank(d)
				}
				row = append(row, clipped(name))
			}
			row = append(row, from, hoursCell(s.Service[j]), hoursCell(s.Allocated[j]), hoursCell(s.Idle[j]), hoursCell(s.Failed[j]), hoursCell(s.Unobserved[j]))
			for _, of := range []*int64{
				s.AllocatedShare[j], s.AllocatedLeast[j], s.AllocatedMost[j], s.Activity[j], s.ActivityLeast[j], s.ActivityMost[j],
			} {
				row = append(row, permilleCell(of))
			}
			t.AppendRow(row)
		}
	}
	fmt.Fprintf(a.out, "GPU-hours from %s to %s, in buckets of %d hours%s\n", c.From, c.To, c.Hours, whereText(c.Where, usage.Blank))
	t.Render()
	a.showPosition(c.Position)
	a.reportEnds(c.Completeness)
}

// permilleCell shows per mille in percent, "" for nil.
func permilleCell(of *int64) cell {
	if of == nil {
		return cell{}
	}
	percent := fmt.Sprintf("%d.%d", *of/10, *of%10)
	return cell{percent + "%", percent}
}
