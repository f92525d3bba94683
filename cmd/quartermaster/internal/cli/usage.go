package cli

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
	"quartermaster/projections/usage"
)

// usageQuestion is what commands about usage are asked.
type usageQuestion struct {
	span      spanFlags
	by, where []string
	asOf      string
	filter    usage.Filter
}

// add defines the flags; by is the dimension that groups unless others are given.
func (q *usageQuestion) add(cmd *cobra.Command, by string) {
	f := cmd.Flags()
	f.StringSliceVar(&q.by, "by", []string{by}, "dimensions to group by, separated by commas")
	q.span.add(cmd)
	f.StringVar(&q.filter.Workspace, "workspace", "", "only time held by this workspace, and time without a holder in its clusters")
	underFlag(cmd, &q.filter.Under)
	f.StringVar(&q.filter.Cluster, "cluster", "", "only this cluster")
	f.StringVar(&q.filter.Region, "region", "", "only this region")
	whereFlag(cmd, &q.where)
	asOfFlag(cmd, &q.asOf)
}

// read returns the period and the dimensions, and completes the filter.
func (q *usageQuestion) read() (period domain.Interval, dims []usage.Dimension, err error) {
	if period, err = q.span.read(); err != nil {
		return period, nil, err
	}
	if dims, err = usage.ParseDimensions(q.by); err != nil {
		return period, nil, commandline.Usagef("--by: %w", err)
	}
	if q.filter.Where, err = usage.ParseConditions(q.where); err != nil {
		return period, nil, commandline.Usagef("--where: %w", err)
	}
	return period, dims, nil
}

func (a *Program) usageCommand() *cobra.Command {
	var q usageQuestion
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show who used the GPUs, and the state of every GPU-second",
		Long: `Usage assigns every second of every GPU in service to exactly one state: allocated,
busy_unattributed, idle, failed, maintenance, unprovisioned or unobserved. A GPU that was active
(5 percent or more, sample by sample) without a known holder is busy_unattributed. A GPU without a
holder that was not active, or not measured, is idle.

The table shows GPU-hours; JSON has exact GPU-milliseconds. A MIG instance counts as its part of the
GPU. Time-slices share a GPU by the time that they are held.

Dimensions for --by and --where: workspace, cluster, node, gpu, gpu_model, deployment,
workload_class, region, provider, provider_class, billing_model, hour, day. Workspace, deployment
and workload class are those of the holder. For time without a holder, workspace and deployment are
empty, and the workload class is none. Undeclared values are unknown.`,
		Example: "  quartermaster usage --by workspace --from 2026-05 --to 2026-06\n" +
			"  quartermaster usage --by cluster,day --from 2026-05-01 --to 2026-05-08 --workspace research -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			period, dims, err := q.read()
			if err != nil {
				return err
			}
			r, err := a.caller().Usage(cmd.Context(), app.At(q.asOf), period, q.filter, dims...)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(r)
			}
			a.showUsage(r)
			return nil
		},
	}
	q.add(cmd, "workspace")
	cmd.AddCommand(a.usageCourseCommand())
	return cmd
}

func (a *Program) showUsage(r *usage.Report) {
	header := table.Row{}
	for _, d := range r.By {
		header = append(header, string(d))
	}
	header = append(header, "allocated", "busy_unattributed", "idle", "failed", "maintenance", "unprovisioned", "unobserved", "in service", "activity")
	t := a.table(header...)
	t.names = len(r.By)
	t.spare = []string{"busy_unattributed", "failed", "maintenance", "activity"}
	columns := []table.ColumnConfig{}
	for i := len(r.By) + 1; i <= len(header); i++ {
		columns = append(columns, table.ColumnConfig{Number: i, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	cells := func(g *usage.GPUTime) []any {
		return []any{
			hoursCell(g.Allocated), hoursCell(g.BusyUnattributed), hoursCell(g.Idle), hoursCell(g.Failed), hoursCell(g.Maintenance),
			hoursCell(g.Unprovisioned), hoursCell(g.Unobserved), hoursCell(g.Service), cell{activity(g), activityRaw(g)},
		}
	}
	for i := range r.Groups {
		row := table.Row{}
		for _, d := range r.By {
			name := r.Groups[i].Key[d]
			if name == "" {
				name = usage.Blank(d)
			}
			row = append(row, clipped(name))
		}
		t.AppendRow(append(row, cells(&r.Groups[i].GPUTime)...))
	}
	total := table.Row{"total"}
	for range len(r.By) - 1 {
		total = append(total, "")
	}
	if len(r.By) == 0 {
		total = table.Row{}
	}
	t.AppendSeparator()
	t.AppendRow(append(total, cells(&r.Total)...))
	fmt.Fprintf(a.out, "GPU-hours from %s to %s%s\n", r.From, r.To, whereText(r.Where, usage.Blank))
	t.Render()
	if r.Total.Undeclared > 0 {
		fmt.Fprintf(a.out, "%s GPU-hours are of GPUs that are not declared\n", gpuHours(r.Total.Undeclared))
	}
	a.showPosition(r.Position)
	a.reportEnds(r.Completeness)
}

// gpuHours formats milliseconds as hours with two decimals, rounded half away from zero, with digit
// grouping.
func gpuHours(ms int64) string {
	magnitude, sign := uint64(ms), ""
	if ms < 0 {
		magnitude, sign = -magnitude, "-"
	}
	hundredths := (magnitude + 18_000) / 36_000
	if hundredths == 0 {
		sign = ""
	}
	return fmt.Sprintf("%s%s.%02d", sign, comma(int(hundredths/100)), hundredths%100)
}

func activity(g *usage.GPUTime) string {
	if g.Allocated == 0 {
		return "" // activity is of held time only
	}
	if g.Activity == nil {
		return "not measured"
	}
	s := fmt.Sprintf("%d.%d%%", *g.Activity/10, *g.Activity%10)
	if g.Coverage != nil && *g.Coverage < 1000 {
		s += fmt.Sprintf(" of %d.%d%%", *g.Coverage/10, *g.Coverage%10)
	}
	return s
}

// activityRaw formats the activity in percent, over the measured time.
func activityRaw(g *usage.GPUTime) string {
	if g.Allocated == 0 || g.Activity == nil {
		return ""
	}
	return fmt.Sprintf("%d.%d", *g.Activity/10, *g.Activity%10)
}

func (a *Program) showLogStats(s *registry.LogStats) {
	t := a.table("partition", "records", "streams", "missing", "quarantined", "last event", "ahead")
	for _, p := range s.Partitions {
		if p.Next == 0 {
			continue
		}
		t.AppendRow(table.Row{
			domain.TopicPartition{Topic: p.Topic, Partition: p.Partition}, comma(int(p.Next)), comma(p.Streams),
			count(int(p.Missing)), count(int(p.Quarantined)), p.Last, ahead(p.AheadMs),
		})
	}
	t.Render()
	holes := false
	for _, src := range s.Sources {
		if src.Missing > 0 || src.AheadMs >= clockAheadMs {
			holes = true
			fmt.Fprintf(a.out, "%s: %d missing, %s ahead\n", app.ShortSource(src.Source), src.Missing, ahead(src.AheadMs))
		}
	}
	if !holes {
		fmt.Fprintf(a.out, "%s sources, no missing events, no clocks ahead\n", comma(len(s.Sources)))
	}
	names := make([]string, 0, len(s.Rows))
	for _, t := range projections.Tables() {
		if n := s.Rows[t.String()]; n > 0 {
			names = append(names, fmt.Sprintf("%s %s", comma(int(n)), t))
		}
	}
	fmt.Fprintf(a.out, "rows: %s\nposition: %s\n", strings.Join(names, ", "), a.position(s.Position))
}

// clockAheadMs is how far an event may be dated ahead of its record before its clock is suspect:
// five minutes.
const clockAheadMs = 300_000

func ahead(ms int64) string {
	if ms < 1000 {
		return "-"
	}
	return fmt.Sprintf("%d s", ms/1000)
}
