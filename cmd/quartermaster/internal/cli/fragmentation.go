package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/domain/packing/online"
)

func (a *Program) fragmentationCommand() *cobra.Command {
	var (
		region, at, asOf string
		days, most       int
		headroom         int64
	)
	cmd := &cobra.Command{
		Use:   "fragmentation",
		Short: "Stranded GPUs by shape, moves that free them, and workloads that fit a slice",
		Long: `Fragmentation uses the GPU holders of each node's last report within --days. It judges free
GPUs by the deployments declared for the region, or for any region if none is declared there.

A free GPU is stranded for a shape (GPUs, CPU and memory of a replica) if the node lacks whole
GPUs, CPU or memory for one replica. The total of stranded GPUs is the mean over the shapes
that may run on the node, weighted by replicas. If residency, model, certification or placement
exclude all shapes, nothing is judged. Nodes that did not report are left out and counted,
because their holders are unknown.

Each move migrates one replica. Moves are ordered: the next one always makes the most free GPUs
usable, and respects every constraint. Only replicas of declared deployments with a named unit
(pod or job) can move. Other GPUs in use count as fixed.

Rightsizing compares the peak memory and the mean activity of a deployment with the MIG profiles
of its GPU. It names the smallest profile that has both with --headroom. Amounts use the
cluster's effective price per GPU-hour in the billing month before --at.`,
		Example: "  quartermaster fragmentation\n  quartermaster fragmentation --region us-east-1 --at 2026-06-01 --days 7 --moves 20 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var t domain.Instant
			if at != "" {
				var err error
				if t, err = domain.ParseTime(at); err != nil {
					return commandline.Usagef("--at: %w", err)
				}
			}
			ans, err := a.caller().Fragmentation(cmd.Context(), app.At(asOf), app.FragmentationQuery{At: t, Days: days, Region: region, Moves: most, HeadroomPermille: headroom})
			if err != nil {
				return err
			}
			if a.json {
				return a.answerReport(ans)
			}
			a.showFragmentation(ans)
			a.showProgram()
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&region, "region", "", "only this region")
	f.StringVar(&at, "at", "", "time of the answer: RFC 3339, a date or a month in UTC (default now)")
	f.IntVar(&days, "days", 7, "use reports of this many days")
	f.IntVar(&most, "moves", 10, "maximum number of moves")
	f.Int64Var(&headroom, "headroom", 250, "spare capacity of a slice above peak memory and mean activity, per mille")
	asOfFlag(cmd, &asOf)
	return cmd
}

func (a *Program) showFragmentation(r *app.Fragmentation) {
	fmt.Fprintf(a.out, "observed from %s to %s: %s nodes, %s identified replicas, %s GPUs in use by others\n",
		r.From, r.At, comma(r.Nodes), comma(r.Replicas), comma(r.FixedGPUs))
	if r.UnseenNodes > 0 {
		fmt.Fprintf(a.out, "excluded: %s nodes with %s GPUs that did not report\n", comma(r.UnseenNodes), comma(r.UnseenGPUs))
	}
	if r.Workloads == 0 {
		fmt.Fprintln(a.out, "no deployments are declared, so the needed shapes are unknown: declare them with \"quartermaster apply -f FILE\" or import pods")
	} else if len(r.Models) > 0 {
		a.showIdle(r)
	}
	switch {
	case len(r.Moves) > 0:
		fmt.Fprintln(a.out, "\nMoves, in order:")
		t := a.table("replica", "from", "to", "frees whole GPUs", "makes usable")
		t.SetColumnConfigs(rightFrom(4, 5))
		for _, m := range r.Moves {
			t.AppendRow(table.Row{named(m.Replica), named(m.From), named(m.To), m.FreesGPUs, milliGPUs(m.GainMilli)})
		}
		t.Render()
	case r.Replicas > 0:
		fmt.Fprintln(a.out, "\nno single move makes more free GPUs usable")
	case r.Nodes > 0:
		fmt.Fprintln(a.out, "\nno moves: no replica of a declared deployment was seen with its unit's name and its declared GPUs")
	}
	a.showFits(r)
}

func (a *Program) showIdle(r *app.Fragmentation) {
	fmt.Fprintf(a.out, "\nFree GPUs, and the mean stranded over the shapes of %s workloads that may run there:\n", comma(r.Workloads))
	t := a.table("model", "nodes", "GPUs", "free", "stranded", "no shape may run there")
	t.SetColumnConfigs(rightFrom(2, 6))
	type worst struct {
		model string
		shape online.IdleShape
	}
	var shapes []worst
	for _, m := range r.Models {
		t.AppendRow(table.Row{m.Model, count(m.Machines), milliGPUs(m.TotalMilli), milliGPUs(m.FreeMilli), milliGPUs(m.StrandedMilli), milliGPUs(m.UnjudgedMilli)})
		for _, s := range m.Shapes {
			if s.UselessMilli > 0 {
				shapes = append(shapes, worst{m.Model, s})
			}
		}
	}
	t.Render()
	slices.SortStableFunc(shapes, func(x, y worst) int {
		return cmp.Compare(y.shape.UselessMilli*y.shape.Replicas, x.shape.UselessMilli*x.shape.Replicas)
	})
	if len(shapes) == 0 {
		return
	}
	fmt.Fprintln(a.out, "\nFree GPUs that a shape cannot use, by what is missing:")
	t = a.table("model", "GPUs", "CPU", "memory", "replicas", "unusable", "because of")
	t.SetColumnConfigs(rightFrom(2, 6))
	for i, w := range shapes {
		if i == a.limit(listedShapes) {
			break
		}
		var why []string
		for _, l := range w.shape.Lacks {
			why = append(why, fmt.Sprintf("%s %s", l.Constraint, milliGPUs(l.Milli)))
		}
		s := &w.shape
		t.AppendRow(table.Row{w.model, milliGPUs(s.GPUMilli), milliGPUs(s.CPUMilli), fmt.Sprintf("%s MiB", comma(int(s.MemoryMiB))),
			count(int(s.Replicas)), milliGPUs(s.UselessMilli), strings.Join(why, ", ")})
	}
	t.Render()
	if n := len(shapes) - a.limit(listedShapes); n > 0 {
		fmt.Fprintf(a.out, "and %s more; -o json has all\n", comma(n))
	}
}

const listedShapes = 12

func (a *Program) showFits(r *app.Fragmentation) {
	if len(r.Fits) == 0 {
		return
	}
	why := map[string]int{}
	var would []online.Fit
	for _, f := range r.Fits {
		if f.Profile == "" {
			why[f.Why]++
		} else {
			would = append(would, f)
		}
	}
	if len(would) > 0 {
		fmt.Fprintln(a.out, "\nA slice is enough for:")
		t := a.table("workspace", "deployment", "cluster", "GPU", "peak memory", "activity", "slice", "GPU-hours saved", "saved")
		t.SetColumnConfigs(rightFrom(5, 9))
		for i, f := range would {
			if i == a.limit(listedShapes) {
				break
			}
			saved := "no price"
			if f.Saved != nil {
				saved = money(f.Saved.Amount) + " " + f.Saved.Currency
			}
			active, _ := f.Activity()
			t.AppendRow(table.Row{named(f.Workspace), named(f.Deployment), named(f.Cluster), f.Model, fmt.Sprintf("%s MiB", comma(int(f.PeakMiB))),
				fmt.Sprintf("%d.%d%%", active/10, active%10), f.Profile, hoursCell(f.SavedGPUMs), saved})
		}
		t.Render()
		if n := len(would) - a.limit(listedShapes); n > 0 {
			fmt.Fprintf(a.out, "and %s more; -o json has all\n", comma(n))
		}
		if r.Unpriced != "" {
			fmt.Fprintf(a.out, "%s\n", r.Unpriced)
		}
	}
	reasons := make([]string, 0, len(why))
	for w := range why {
		reasons = append(reasons, w)
	}
	slices.Sort(reasons)
	for i, w := range reasons {
		if i == 0 {
			fmt.Fprintln(a.out, "\nNo slice is proposed:")
		}
		fmt.Fprintf(a.out, "  for %s of %s deployments: %s\n", comma(why[w]), comma(len(r.Fits)), w)
	}
}

// milliGPUs formats thousandths without trailing zeros.
func milliGPUs(n int64) string {
	s := comma(int(n / 1000))
	if rest := n % 1000; rest != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%03s", strconv.FormatInt(rest, 10)), "0")
	}
	return s
}
