package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/serving"
)

// spanFlags are the period of a report.
type spanFlags struct{ from, to string }

func (s *spanFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.from, "from", "", "start: RFC 3339, a date or a month in UTC (required)")
	f.StringVar(&s.to, "to", "", "end, not included (required)")
	must(cmd.MarkFlagRequired("from"))
	must(cmd.MarkFlagRequired("to"))
}

func (s *spanFlags) read() (domain.Interval, error) {
	from, err := domain.ParseTime(s.from)
	if err != nil {
		return domain.Interval{}, commandline.Usagef("--from: %w", err)
	}
	to, err := domain.ParseTime(s.to)
	if err != nil {
		return domain.Interval{}, commandline.Usagef("--to: %w", err)
	}
	if to <= from {
		return domain.Interval{}, commandline.Usagef("--to %s is not after --from %s", s.to, s.from)
	}
	return domain.Interval{From: from, To: to}, nil
}

func (a *Program) servingCommand() *cobra.Command {
	var (
		span   spanFlags
		filter serving.Filter
		asOf   string
	)
	cmd := &cobra.Command{
		Use:   "serving",
		Short: "Latency and load of model servers: time to first token, queues, batches, memory",
		Long: `Serving aggregates the reports of model servers by model, cluster and tier, over whole quarters of
an hour: time to first token, time in the queue, requests served at once, use of the KV cache and of GPU
memory, and the share of successful requests. It compares the clusters of each model. Memory and peaks are
shown for whole hours only.

Quantiles are read from histograms. The bucket of a quantile is exact; the time shown is
interpolated linearly within the bucket. For a bucket without an upper bound, its lower bound is
shown with a ">". Only histograms with equal bounds are added up. Others are shown separately, most
requests first.`,
		Example: "  quartermaster serving --from 2026-05-01 --to 2026-05-02\n" +
			"  quartermaster serving --from 2026-05-01T10:15:00Z --to 2026-05-01T10:30:00Z\n" +
			"  quartermaster serving --from 2026-05 --to 2026-06 --model llama-70b -o json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			period, err := span.read()
			if err != nil {
				return err
			}
			r, err := a.caller().Serving(cmd.Context(), app.At(asOf), period, filter)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(r)
			}
			a.showServing(r)
			return nil
		},
	}
	span.add(cmd)
	f := cmd.Flags()
	f.StringVar(&filter.Cluster, "cluster", "", "only this cluster")
	f.StringVar(&filter.Model, "model", "", "only this model")
	f.StringVar(&filter.Tier, "tier", "", "only this tier")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showServing(r *serving.Report) {
	if len(r.Groups) == 0 {
		fmt.Fprintf(a.out, "no model server reported from %s to %s: see \"quartermaster cluster register --help\" for what Prometheus needs\n", r.From, r.To)
		a.showPosition(r.Position)
		a.reportEnds(r.Completeness)
		return
	}
	t := a.table("model", "cluster", "tier", "servers", "requests", "ok", "ttft p50", "p95", "p99", "wait p95", "waiting", "batch", "kv cache", "gpu memory")
	others := 0
	for i := range r.Groups {
		g := &r.Groups[i]
		ttft, wait := firstLatency(g.TTFT), firstLatency(g.QueueWait)
		others += max(0, len(g.TTFT)-1)
		memory := "-"
		if g.Memory != nil {
			memory = comma(int(g.Memory.MeanMiB)) + " MiB"
			if g.Memory.Permille != nil {
				memory = ofThousand(g.Memory.Permille)
			}
		}
		batch := "-"
		if g.Running != nil {
			batch = thousandths(g.Running)
			if g.Batch != nil {
				batch += " (" + ofThousand(g.Batch) + " of peak)"
			}
		}
		t.AppendRow(table.Row{
			named(g.Model), named(g.Cluster), named(g.Tier), count(g.Servers), count(int(g.RequestsOK + g.RequestsFailed)), ofThousand(g.Success),
			quantile(ttft.P50), quantile(ttft.P95), quantile(ttft.P99), quantile(wait.P95), thousandths(g.Waiting), batch, ofThousand(g.KVCache), memory,
		})
	}
	t.Render()
	for _, m := range r.Models {
		s := m.Spread
		if s == nil {
			continue
		}
		note := ""
		if !s.EqualBounds {
			note = "; their histograms have different bounds, so part of the spread may be rounding"
		}
		fmt.Fprintf(a.out, "%s: p95 from %s in %s to %s in %s%s\n", clipped(m.Model), micros(s.P95.Least), clipped(s.P95.LeastAt), micros(s.P95.Greatest), clipped(s.P95.GreatestAt), note)
	}
	if others > 0 {
		fmt.Fprintf(a.out, "%s histograms with other bounds are in -o json\n", comma(others))
	}
	fmt.Fprintln(a.out, "times are interpolated within the bucket of a histogram; -o json has the bounds")
	a.showPosition(r.Position)
	a.reportEnds(r.Completeness)
}

func firstLatency(l []projections.Latency) projections.Latency {
	if len(l) == 0 {
		return projections.Latency{}
	}
	return l[0]
}

func quantile(q *projections.Quantile) string {
	switch {
	case q == nil:
		return "-"
	case q.UpTo == nil:
		return ">" + micros(q.Above)
	default:
		return micros(q.Micros)
	}
}

// micros shows a time with about three significant digits.
func micros(n uint64) string {
	d := time.Duration(min(n, 1<<52)) * time.Microsecond
	switch {
	case d >= 10*time.Second:
		d = d.Round(100 * time.Millisecond)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= 10*time.Millisecond:
		d = d.Round(100 * time.Microsecond)
	}
	return d.String()
}

func ofThousand(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%d.%d%%", *n/10, *n%10)
}

func thousandths(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%s.%d", comma(int(*n/1000)), *n%1000/100)
}

func (a *Program) jobsCommand() *cobra.Command {
	var (
		span   spanFlags
		filter serving.JobsFilter
		asOf   string
	)
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "Outcomes and waiting times of jobs",
		Long: `Jobs counts the jobs that finished in a period, by outcome, and shows how long the jobs that began
in it had waited. Cancelled jobs count neither as success nor as failure.`,
		Example: "  quartermaster jobs --from 2026-05 --to 2026-06\n  quartermaster jobs --from 2026-05-01 --to 2026-05-08 --workspace research -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			period, err := span.read()
			if err != nil {
				return err
			}
			r, err := a.caller().Jobs(cmd.Context(), app.At(asOf), period, filter)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(r)
			}
			a.showJobs(r)
			return nil
		},
	}
	span.add(cmd)
	cmd.Flags().StringVar(&filter.Workspace, "workspace", "", "only this workspace")
	cmd.Flags().StringVar(&filter.Cluster, "cluster", "", "only this cluster")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showJobs(r *serving.JobsReport) {
	if len(r.Groups) == 0 {
		fmt.Fprintf(a.out, "no job finished or began from %s to %s\n", r.From, r.To)
		a.showPosition(r.Position)
		a.reportEnds(r.Completeness)
		return
	}
	t := a.table("workspace", "cluster", "class", "finished", "succeeded", "failed", "cancelled", "preempted", "interrupted", "success", "waited p50", "p95")
	row := func(workspace, cluster, class string, c *serving.JobCounts) table.Row {
		success := "-"
		if c.Success != nil {
			success = fmt.Sprintf("%d.%d%%", *c.Success/10, *c.Success%10)
		}
		wait := func(ms *int64) string {
			if ms == nil {
				return "-"
			}
			return (time.Duration(*ms) * time.Millisecond).Round(time.Second).String()
		}
		return table.Row{workspace, cluster, class, count(c.Finished), count(c.Succeeded), count(c.Failed), count(c.Cancelled), count(c.Preempted), count(c.Interrupted), success, wait(c.WaitP50), wait(c.WaitP95)}
	}
	for i := range r.Groups {
		g := &r.Groups[i]
		t.AppendRow(row(clipped(g.Workspace), clipped(g.Cluster), strings.TrimSpace(string(g.Class)), &g.JobCounts))
	}
	t.AppendSeparator()
	t.AppendRow(row("total", "", "", &r.Total))
	t.Render()
	a.showPosition(r.Position)
	a.reportEnds(r.Completeness)
}
