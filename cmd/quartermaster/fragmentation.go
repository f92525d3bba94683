package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/shopspring/decimal"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/domain"
	"quartermaster/domain/packing/online"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
)

// fragmentationAnswer is what is free and of no use, and what would help.
type fragmentationAnswer struct {
	Position string         `json:"position"`
	At       domain.Instant `json:"at"`
	From     domain.Instant `json:"from"`
	Region   string         `json:"region,omitempty"`
	Nodes    int            `json:"nodes"`
	// Machines that did not report, of which nothing is said.
	UnseenNodes int           `json:"unseen_nodes"`
	UnseenGPUs  int           `json:"unseen_gpus"`
	Replicas    int           `json:"replicas"`
	FixedGPUs   int           `json:"fixed_gpus"`
	Workloads   int           `json:"workloads"` // by which is judged
	Models      []online.Idle `json:"models"`
	Moves       []online.Move `json:"moves"`
	Fits        []online.Fit  `json:"rightsizing"`
	Unpriced    string        `json:"unpriced,omitempty"` // why savings have no money
}

func (a *app) fragmentationCommand() *cobra.Command {
	var (
		region, at, asOf string
		days, most       int
		headroom         int64
	)
	cmd := &cobra.Command{
		Use:   "fragmentation",
		Short: "GPUs stranded by shape, the moves that would free them, and slices that would do",
		Long: `Fragmentation looks at who held which GPU when a node last reported, within
--days, and judges what was free by the deployments declared for the region (for
any region, where none is declared there).

A free GPU is stranded for a shape (GPUs, CPU and memory of a replica) when the
node lacks whole GPUs, CPU or memory for one. What is stranded in all is the mean,
by replicas, over the shapes that may run on the node; where residency, model,
certification or placement bar all of them, nothing is judged. Nodes that did not
report are left out and counted, because nothing is known of what they hold.

Moves are migrations of one replica each, in order: the next is always the one
that makes most of what is free usable, and respects every constraint. Only
replicas of declared deployments whose unit (pod or job) is named can be moved;
other GPUs in use are counted as fixed.

Rightsizing compares the peak of memory in use and the mean activity of a
deployment with the MIG profiles of its GPU, and names the smallest that has both
with --headroom. Money is at the effective price per GPU-hour of the cluster in
the billing month before --at.

JSON keys: program (version, commit, date, methods: what made the report), position, at, from, region, nodes, unseen_nodes, unseen_gpus, replicas,
fixed_gpus, workloads; models (model, machines, total_milli, free_milli,
stranded_milli, unjudged_milli (free where no shape may run), shapes (gpu_milli, cpu_milli, memory_mib, models, replicas,
useless_milli, lacks (constraint, milli))); moves (replica, workload, from, to,
gpus_before, gpus_after, frees_gpus, gain_milli); rightsizing (cluster, workspace,
deployment, model, gpu_ms, most_gpus_together, peak_memory_mib, memory_known_ms,
activity_known_ms, activity_permille_ms, profile, slices_per_gpu, why (no slice
is named), saved_gpu_ms, saved (amount, currency)); unpriced (why there is no
money).`,
		Example: "  quartermaster fragmentation\n  quartermaster fragmentation --region us-east-1 --at 2026-06-01 --days 7 --moves 20 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case days < 1 || days > 366:
				return commandline.Usagef("--days %d: want 1 to 366", days)
			case most < 0 || most > mostMoves:
				return commandline.Usagef("--moves %d: want 0 to %d", most, mostMoves)
			case headroom < 0 || headroom > 10_000:
				return commandline.Usagef("--headroom %d: want 0 to 10000 per mille", headroom)
			}
			var t domain.Instant
			if at != "" {
				var err error
				if t, err = instantFlag(at); err != nil {
					return commandline.Usagef("--at: %w", err)
				}
			}
			return a.readAt(cmd.Context(), asOf, func(h *home) (err error) {
				if at == "" {
					if t, err = h.now(cmd.Context()); err != nil {
						return err
					}
				}
				return h.view(cmd.Context(), func(v projections.View) error {
					if err := (asked{region: region}).known(v); err != nil {
						return err
					}
					ans, err := fragmentation(v, t-domain.Instant(days)*domain.Day, t, region, most, headroom)
					if err != nil {
						return err
					}
					if a.json {
						return a.answerReport(ans)
					}
					a.showFragmentation(ans)
					a.showProgram()
					return nil
				})
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&region, "region", "", "only this region")
	f.StringVar(&at, "at", "", "time to look at: RFC 3339, a date or a month in UTC (default now)")
	f.IntVar(&days, "days", 7, "how far back what was seen counts")
	f.IntVar(&most, "moves", 10, "moves to name at most")
	f.Int64Var(&headroom, "headroom", 250, "what a slice must have beyond the peak of memory and the mean activity, per mille")
	asOfFlag(cmd, &asOf)
	return cmd
}

const mostMoves = 1000

// fragmentation computes the answer from rows.
func fragmentation(v projections.View, from, at domain.Instant, region string, most int, headroom int64) (*fragmentationAnswer, error) {
	auth, err := registry.NewAuthority(v)
	if err != nil {
		return nil, err
	}
	s, err := planning.PlacementsAt(v, auth, from, at, region)
	if err != nil {
		return nil, err
	}
	mix, err := online.MixOf(s.Declared, 100)
	if err != nil {
		return nil, err
	}
	f, err := online.Restore(s.Nodes, mix, online.BestFit, s.Assignments)
	if err != nil {
		return nil, err
	}
	ans := &fragmentationAnswer{
		Position: v.Position().String(), At: at, From: from, Region: region, Nodes: len(s.Nodes), UnseenNodes: s.Unseen, UnseenGPUs: s.UnseenGPUs,
		Replicas: len(s.Assignments), FixedGPUs: s.Fixed, Workloads: len(s.Declared), Models: f.Stranded(),
	}
	if ans.Moves, err = online.Moves(s.Nodes, mix, s.Assignments, most); err != nil {
		return nil, err
	}
	prices := map[string]online.Price{}
	ans.Fits = online.Rightsize(s.Held, headroom, prices)
	if slices.ContainsFunc(ans.Fits, func(f online.Fit) bool { return f.Profile != "" }) {
		month := projections.BillingMonth(at - domain.Hour)
		if prices, ans.Unpriced, err = effectivePrices(v, month); err != nil {
			return nil, err
		}
		ans.Fits = online.Rightsize(s.Held, headroom, prices)
	}
	return ans, nil
}

// effectivePrices returns what an hour of a GPU cost by cluster, or why that is
// not known. A cluster billed in two currencies has no one price.
func effectivePrices(v projections.View, month domain.Interval) (prices map[string]online.Price, why string, err error) {
	r, err := costs.NewReport(v, costs.Query{Month: month, By: []costs.Dimension{costs.ByCluster}})
	if err != nil {
		return nil, "", err
	}
	prices, twice := map[string]online.Price{}, map[string]bool{}
	for i := range r.Groups {
		g := &r.Groups[i]
		cluster := g.Key[costs.ByCluster]
		if cluster == "" || g.Bought <= 0 {
			continue
		}
		if _, ok := prices[cluster]; ok {
			twice[cluster] = true
		}
		hours := decimal.NewFromInt(g.Bought)
		prices[cluster] = online.Price{Currency: g.Currency, PerHour: g.Effective.Decimal().Mul(decimal.NewFromInt(3_600_000)).DivRound(hours, 10)}
	}
	for cluster := range twice {
		delete(prices, cluster)
	}
	if len(prices) == 0 {
		why = fmt.Sprintf("no cluster has a cost per GPU-hour in one currency in the month from %s", day(month.From))
	}
	return prices, why, nil
}

func (a *app) showFragmentation(r *fragmentationAnswer) {
	fmt.Fprintf(a.out, "seen from %s to %s: %s nodes, %s replicas that can be told apart, %s GPUs in use by others\n",
		r.From, r.At, comma(r.Nodes), comma(r.Replicas), comma(r.FixedGPUs))
	if r.UnseenNodes > 0 {
		fmt.Fprintf(a.out, "left out: %s nodes with %s GPUs that did not report\n", comma(r.UnseenNodes), comma(r.UnseenGPUs))
	}
	if r.Workloads == 0 {
		fmt.Fprintln(a.out, "no deployments are declared, so nothing says which shapes are needed: declare them with \"quartermaster apply -f FILE\" or import pods")
	} else if len(r.Models) > 0 {
		a.showIdle(r)
	}
	switch {
	case len(r.Moves) > 0:
		fmt.Fprintln(a.out, "\nMoves, one after the other:")
		t := a.table("replica", "from", "to", "frees whole GPUs", "makes usable")
		t.SetColumnConfigs(rightFrom(4, 5))
		for _, m := range r.Moves {
			t.AppendRow(table.Row{clipped(m.Replica), clipped(m.From), clipped(m.To), m.FreesGPUs, milliGPUs(m.GainMilli)})
		}
		t.Render()
	case r.Replicas > 0:
		fmt.Fprintln(a.out, "\nno single move makes more of what is free usable")
	case r.Nodes > 0:
		fmt.Fprintln(a.out, "\nno moves: no replica of a declared deployment was seen on a node, with the name of its unit and the GPUs that it declares")
	}
	a.showFits(r)
}

func (a *app) showIdle(r *fragmentationAnswer) {
	fmt.Fprintf(a.out, "\nFree GPUs, and those stranded as a mean over those shapes of %s workloads that may run there:\n", comma(r.Workloads))
	t := a.table("model", "nodes", "GPUs", "free", "stranded", "no shape may run there")
	t.SetColumnConfigs(rightFrom(2, 6))
	type worst struct {
		model string
		shape online.IdleShape
	}
	var shapes []worst
	for _, m := range r.Models {
		t.AppendRow(table.Row{m.Model, comma(m.Machines), milliGPUs(m.TotalMilli), milliGPUs(m.FreeMilli), milliGPUs(m.StrandedMilli), milliGPUs(m.UnjudgedMilli)})
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
	fmt.Fprintln(a.out, "\nOf no use to a shape, by what is missing:")
	t = a.table("model", "GPUs", "CPU", "memory", "replicas", "useless", "because of")
	t.SetColumnConfigs(rightFrom(2, 6))
	for i, w := range shapes {
		if i == listedShapes {
			break
		}
		var why []string
		for _, l := range w.shape.Lacks {
			why = append(why, fmt.Sprintf("%s %s", l.Constraint, milliGPUs(l.Milli)))
		}
		s := &w.shape
		t.AppendRow(table.Row{w.model, milliGPUs(s.GPUMilli), milliGPUs(s.CPUMilli), fmt.Sprintf("%s MiB", comma(int(s.MemoryMiB))),
			comma(int(s.Replicas)), milliGPUs(s.UselessMilli), strings.Join(why, ", ")})
	}
	t.Render()
	if n := len(shapes) - listedShapes; n > 0 {
		fmt.Fprintf(a.out, "and %s more; --json has all\n", comma(n))
	}
}

const listedShapes = 12

func (a *app) showFits(r *fragmentationAnswer) {
	if len(r.Fits) == 0 {
		return
	}
	why := map[string]int{}
	var named []online.Fit
	for _, f := range r.Fits {
		if f.Profile == "" {
			why[f.Why]++
		} else {
			named = append(named, f)
		}
	}
	if len(named) > 0 {
		fmt.Fprintln(a.out, "\nA slice would do:")
		t := a.table("workspace", "deployment", "cluster", "GPU", "peak memory", "activity", "slice", "GPU-hours saved", "saved")
		t.SetColumnConfigs(rightFrom(5, 9))
		for i, f := range named {
			if i == listedShapes {
				break
			}
			saved := "no price"
			if f.Saved != nil {
				saved = money(f.Saved.Amount) + " " + f.Saved.Currency
			}
			active, _ := f.Activity()
			t.AppendRow(table.Row{clipped(f.Workspace), clipped(f.Deployment), clipped(f.Cluster), f.Model, fmt.Sprintf("%s MiB", comma(int(f.PeakMiB))),
				fmt.Sprintf("%d.%d%%", active/10, active%10), f.Profile, gpuHours(f.SavedGPUMs), saved})
		}
		t.Render()
		if n := len(named) - listedShapes; n > 0 {
			fmt.Fprintf(a.out, "and %s more; --json has all\n", comma(n))
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
			fmt.Fprintln(a.out, "\nNo slice is named:")
		}
		fmt.Fprintf(a.out, "  for %s of %s deployments: %s\n", comma(why[w]), comma(len(r.Fits)), w)
	}
}

// milliGPUs shows thousandths without needless zeros.
func milliGPUs(n int64) string {
	s := comma(int(n / 1000))
	if rest := n % 1000; rest != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%03s", strconv.FormatInt(rest, 10)), "0")
	}
	return s
}
