package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"quartermaster/adapters/commandline"
	"quartermaster/adapters/highs"
	"quartermaster/adapters/importer"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/packing"
)

// packFlags say what "plan pack" packs and how.
type packFlags struct {
	nodes, pods string
	shape       string // of all nodes, instead of those of a file
	everyPod    bool
	online      onlineFlags
}

func (a *app) planPackCommand() *cobra.Command {
	var fl packFlags
	cmd := &cobra.Command{
		Use:   "pack --pods PODS.csv {--nodes NODES.csv | --node-shape SHAPE}",
		Short: "Pack pods onto nodes, from files alone",
		Long: `Pack puts pods onto nodes and proves how good that is. It reads two CSV files in
the columns of the openb trace, changes nothing and needs no home.

With --node-shape it says how many nodes of one size hold the pods (bins), and
how many at least any packing needs (lower_bound): column generation over greedy
starts, where this build has a solver of linear programs. The bound is proven in
whole numbers. Pods without GPUs are left out unless --every-pod is given,
because machines with GPUs are not bought for them; a shape without a GPU model
stands for every model. With --nodes alone it packs all pods onto the nodes of
the file and says what did not fit, and why.

Columns of nodes: sn, cpu_milli, memory_mib, gpu, model. Columns of pods: name,
cpu_milli, memory_mib, num_gpu, gpu_milli (thousandths of each GPU) and perhaps
gpu_spec (models allowed, separated by |). A file with a bad row is refused, with
file, line and column.

JSON keys: method, order, shape (cpu_milli, memory_mib, gpus, model), pods,
left_out, bins (of the pods that fit a node at all), fit_no_node (pods that no
node of the shape holds, however empty), lower_bound, gap (bins less lower_bound), columns (state, rounds,
patterns, programs), gpu_milli_needed, gpu_milli_placed, gpu_milli_total, stranded
(model, total_milli, free_milli, stranded_milli), patterns (machines, on (pod of
each kind: cpu_milli, memory_mib, gpu_milli, models, replicas)), unplaced_pods,
constraints (constraint, pods, machines: how many unplaced pods it ruled machines
out for, and how many in all), unplaced (workload, replicas, ruled_out
(constraint, machines)).`,
		Example: "  quartermaster plan pack --pods openb_pod_list_default.csv --node-shape 96000m,393216MiB,8\n" +
			"  quartermaster plan pack --pods openb_pod_list_default.csv --nodes openb_node_list_gpu_node.csv --json",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fl.check(); err != nil {
				return err
			}
			pods, err := readPods(cmd.Context(), fl.pods)
			if err != nil {
				return err
			}
			var nodes []packing.Node
			if fl.nodes != "" {
				if nodes, err = readNodes(cmd.Context(), fl.nodes); err != nil {
					return err
				}
			}
			if fl.online.policy != "" {
				return a.packOnline(cmd.Context(), &fl.online, nodes, pods)
			}
			ans, err := packFiles(cmd.Context(), &fl, nodes, pods)
			if err != nil {
				return err
			}
			if a.json {
				return a.answerJSON(ans)
			}
			a.showPack(ans)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&fl.pods, "pods", "", "pods to pack, CSV in the columns of the openb trace (required)")
	must(cmd.MarkFlagRequired("pods"))
	f.StringVar(&fl.nodes, "nodes", "", "nodes to pack onto, CSV in the columns of the openb trace")
	f.StringVar(&fl.shape, "node-shape", "", "pack onto as many nodes as it takes, all of this size, as 96000m,393216MiB,8 (CPU, memory, GPUs)")
	f.BoolVar(&fl.everyPod, "every-pod", false, "with --node-shape, pack the pods without GPUs, too")
	fl.online.register(cmd)
	return cmd
}

func (fl *packFlags) check() error {
	switch {
	case fl.nodes == "" && fl.shape == "":
		return errors.New("name the nodes with --nodes FILE, or a size for as many as it takes with --node-shape, as 96000m,393216MiB,8")
	case fl.online.policy != "" && fl.nodes == "":
		return commandline.Usagef("--online replays arrivals on given nodes: name them with --nodes FILE")
	case fl.online.policy != "" && fl.shape != "":
		return commandline.Usagef("--online replays arrivals on given nodes, --node-shape opens as many as it takes: leave one out")
	}
	return nil
}

// readNodes reads a list of nodes in the columns of the openb trace, one
// machine each, in the order of the rows.
func readNodes(ctx context.Context, path string) ([]packing.Node, error) {
	var nodes []packing.Node
	err := readTable(ctx, importer.Nodes, path, func(event domain.Event) error {
		n, ok := event.(*domain.NodeRegistered)
		if !ok {
			return nil
		}
		node := packing.Node{
			ID: n.Node, Count: 1, Cluster: filesCluster, GPUs: len(n.GPUs),
			CPUMilli: clampedAmount(n.CPUMilli), MemoryMiB: clampedAmount(n.MemoryMiB),
		}
		if len(n.GPUs) > 0 {
			node.Model = n.GPUs[0].Model
		}
		nodes = append(nodes, node)
		return nil
	})
	return nodes, err
}

// readPods reads a list of pods in the columns of the openb trace, each a
// workload of one replica, in the order of the rows. The models that a pod
// allows (gpu_spec) are spelled as those of nodes are.
func readPods(ctx context.Context, path string) ([]packing.Workload, error) {
	var pods []packing.Workload
	err := readTable(ctx, importer.Pods, path, func(event domain.Event) error {
		d, ok := event.(*domain.DeploymentChanged)
		if !ok {
			return nil
		}
		milli := int64(d.Need.Count) * 1000
		if d.Need.Milli > 0 {
			milli = int64(d.Need.Milli)
		}
		pods = append(pods, packing.Workload{
			ID: d.Deployment, Deployment: d.Deployment, Class: string(d.Class), Replicas: 1,
			GPUMilli: milli, CPUMilli: clampedAmount(d.Need.CPUMilli), MemoryMiB: clampedAmount(d.Need.RAMMiB),
			Models: d.Need.Models,
		})
		return nil
	})
	return pods, err
}

// packAnswer is what "plan pack" answers.
type packAnswer struct {
	Method         string             `json:"method"`
	Order          string             `json:"order"`
	Shape          *packShape         `json:"shape,omitempty"`
	Pods           int                `json:"pods"`     // that were to be packed
	LeftOut        int                `json:"left_out"` // without GPUs, not to be packed
	Bins           int                `json:"bins"`
	FitNoNode      int                `json:"fit_no_node"` // of a shape, nodes without end: what is not placed
	LowerBound     int                `json:"lower_bound"`
	Gap            int                `json:"gap"`
	Columns        packing.Columns    `json:"columns"`
	GPUMilliNeeded int64              `json:"gpu_milli_needed"`
	GPUMilliPlaced int64              `json:"gpu_milli_placed"`
	GPUMilliTotal  int64              `json:"gpu_milli_total"`
	Stranded       []packing.Stranded `json:"stranded"`
	Patterns       []packPattern      `json:"patterns"`
	UnplacedPods   int                `json:"unplaced_pods"`
	Constraints    []packConstraint   `json:"constraints"`
	Unplaced       []packing.Unplaced `json:"unplaced"`
}

type packShape struct {
	CPUMilli  int64  `json:"cpu_milli"`
	MemoryMiB int64  `json:"memory_mib"`
	GPUs      int    `json:"gpus"`
	Model     string `json:"model,omitempty"`
}

// packPattern is machines that hold the same numbers of pods of the same sizes.
type packPattern struct {
	Machines int       `json:"machines"`
	On       []packPod `json:"on"`
}

type packPod struct {
	CPUMilli  int64    `json:"cpu_milli"`
	MemoryMiB int64    `json:"memory_mib"`
	GPUMilli  int64    `json:"gpu_milli"`
	Models    []string `json:"models,omitempty"`
	Replicas  int      `json:"replicas"`
}

type packConstraint struct {
	Constraint packing.Constraint `json:"constraint"`
	Pods       int                `json:"pods"`
	Machines   int                `json:"machines"`
}

// packFiles packs what files say.
func packFiles(ctx context.Context, fl *packFlags, nodes []packing.Node, pods []packing.Workload) (*packAnswer, error) {
	ans := &packAnswer{Patterns: []packPattern{}, Constraints: []packConstraint{}}
	var r *packing.Result
	var err error
	if fl.shape == "" {
		r, err = packing.Pack(nodes, pods, packing.Options{})
	} else {
		var shape packing.Node
		if shape, err = parseShape(fl.shape); err != nil {
			return nil, err
		}
		ans.Shape = &packShape{shape.CPUMilli, shape.MemoryMiB, shape.GPUs, shape.Model}
		kept := pods[:0]
		for _, p := range pods {
			if p.GPUMilli == 0 && !fl.everyPod {
				ans.LeftOut++
				continue
			}
			if shape.Model == "" {
				p.Models = nil
			}
			kept = append(kept, p)
		}
		pods = kept
		var opts packing.Options
		solver, openErr := highs.Open(highs.Options{})
		switch {
		case openErr == nil:
			defer func() { _ = solver.Close() }() // it ends a process that has nothing to say
			opts.LP = solver
		case !errors.Is(openErr, linear.ErrUnavailable):
			return nil, openErr
		}
		r, err = packing.NeedContext(ctx, []packing.Node{shape}, pods, opts)
	}
	if err != nil {
		return nil, fmt.Errorf("pack the pods of %s: %w", fl.pods, err)
	}
	ans.Method, ans.Order, ans.Pods = r.Method, r.Order, len(pods)
	ans.Bins, ans.LowerBound, ans.Gap, ans.Columns = r.NodesUsed, r.LowerBound, max(0, r.NodesUsed-r.LowerBound), r.Columns
	ans.GPUMilliNeeded, ans.GPUMilliPlaced, ans.GPUMilliTotal = r.GPUMilliNeeded, r.GPUMilliPlaced, r.GPUMilliTotal
	ans.Stranded, ans.Unplaced = r.Stranded, r.Unplaced
	if fl.shape != "" {
		ans.Patterns = packPatterns(r, pods)
	}
	for _, u := range r.Unplaced {
		ans.UnplacedPods += u.Replicas
		if fl.shape != "" {
			ans.FitNoNode += u.Replicas
		}
		for _, ruled := range u.RuledOut {
			at := slices.IndexFunc(ans.Constraints, func(c packConstraint) bool { return c.Constraint == ruled.Constraint })
			if at < 0 {
				at = len(ans.Constraints)
				ans.Constraints = append(ans.Constraints, packConstraint{Constraint: ruled.Constraint})
			}
			ans.Constraints[at].Pods += u.Replicas
			ans.Constraints[at].Machines += u.Replicas * ruled.Machines
		}
	}
	slices.SortFunc(ans.Constraints, func(x, y packConstraint) int { return cmp.Compare(x.Constraint, y.Constraint) })
	return ans, nil
}

// packPatterns counts machines by the sizes of the pods on them, the most
// machines first.
func packPatterns(r *packing.Result, pods []packing.Workload) []packPattern {
	byID := make(map[string]*packing.Workload, len(pods))
	for i := range pods {
		byID[pods[i].ID] = &pods[i]
	}
	bySize := func(x, y packPod) int {
		return cmp.Or(cmp.Compare(y.GPUMilli, x.GPUMilli), cmp.Compare(y.CPUMilli, x.CPUMilli), cmp.Compare(y.MemoryMiB, x.MemoryMiB), slices.Compare(x.Models, y.Models))
	}
	all := make([]packPattern, 0, len(r.Machines))
	for _, m := range r.Machines {
		p := packPattern{Machines: m.Machines}
		for _, s := range m.On {
			w := byID[s.Workload]
			p.On = append(p.On, packPod{w.CPUMilli, w.MemoryMiB, w.GPUMilli, w.Models, s.Replicas})
		}
		slices.SortFunc(p.On, bySize)
		on := p.On[:0]
		for _, x := range p.On {
			if last := len(on) - 1; last >= 0 && bySize(on[last], x) == 0 {
				on[last].Replicas += x.Replicas
			} else {
				on = append(on, x)
			}
		}
		p.On = on
		all = append(all, p)
	}
	same := func(x, y packPattern) int {
		return slices.CompareFunc(x.On, y.On, func(x, y packPod) int { return cmp.Or(bySize(x, y), cmp.Compare(y.Replicas, x.Replicas)) })
	}
	slices.SortFunc(all, same)
	patterns := all[:0]
	for _, p := range all {
		if last := len(patterns) - 1; last >= 0 && same(patterns[last], p) == 0 {
			patterns[last].Machines += p.Machines
		} else {
			patterns = append(patterns, p)
		}
	}
	slices.SortStableFunc(patterns, func(x, y packPattern) int { return cmp.Compare(y.Machines, x.Machines) })
	return patterns
}

func (a *app) showPack(ans *packAnswer) {
	if s := ans.Shape; s != nil {
		of := ""
		if ans.FitNoNode > 0 {
			of = " of " + comma(ans.Pods)
		}
		fmt.Fprintf(a.out, "%s%s pods on %s nodes of %s CPU milli, %s MiB and %d GPUs; no packing needs fewer than %s",
			comma(ans.Pods-ans.FitNoNode), of, comma(ans.Bins), comma(int(s.CPUMilli)), comma(int(s.MemoryMiB)), s.GPUs, comma(ans.LowerBound))
		if ans.FitNoNode > 0 {
			fmt.Fprintf(a.out, "\n%s pods fit no such node, however empty, and are in neither number", comma(ans.FitNoNode))
		}
	} else {
		fmt.Fprintf(a.out, "%s of %s pods on %s nodes; all of them need at least %s",
			comma(ans.Pods-ans.UnplacedPods), comma(ans.Pods), comma(ans.Bins), comma(ans.LowerBound))
	}
	fmt.Fprintf(a.out, "\npacked by %s, %s\n", ans.Method, ans.Order)
	switch ans.Columns.State {
	case packing.ColumnsDone:
		fmt.Fprintf(a.out, "column generation: %d rounds, %s patterns, none is lacking\n", ans.Columns.Rounds, comma(ans.Columns.Patterns))
	case packing.ColumnsStopped:
		fmt.Fprintf(a.out, "column generation stopped on its limit of work after %d rounds and %s patterns: the bound could be better\n", ans.Columns.Rounds, comma(ans.Columns.Patterns))
	case packing.ColumnsUnavailable:
		fmt.Fprintln(a.out, "not improved by column generation: the solver of linear programs cannot run here")
	case packing.ColumnsNotAsked:
		if ans.Shape != nil {
			fmt.Fprintln(a.out, "not improved by column generation: this build has no solver of linear programs")
		}
	}
	if ans.LeftOut > 0 {
		fmt.Fprintf(a.out, "%s pods without GPUs are left out (--every-pod packs them, too)\n", comma(ans.LeftOut))
	}
	free, stranded := int64(0), int64(0)
	for _, s := range ans.Stranded {
		free, stranded = free+s.FreeMilli, stranded+s.StrandedMilli
	}
	fmt.Fprintf(a.out, "%s of %s GPUs needed are placed on %s; %s stay free, of which %s are stranded: of no use to these pods\n",
		gpus(ans.GPUMilliPlaced), gpus(ans.GPUMilliNeeded), gpus(ans.GPUMilliTotal), gpus(free), gpus(stranded))
	if ans.UnplacedPods == 0 {
		fmt.Fprintln(a.out, "every pod is placed")
		return
	}
	fmt.Fprintf(a.out, "%s pods are not placed, because of:\n", comma(ans.UnplacedPods))
	t := a.table("constraint", "pods", "nodes ruled out, over all pods")
	t.SetColumnConfigs(rightFrom(2, 3))
	for _, c := range ans.Constraints {
		t.AppendRow(table.Row{c.Constraint, comma(c.Pods), comma(c.Machines)})
	}
	t.Render()
}

// filesCluster is where the nodes of a file stand: in one cluster.
const filesCluster = "files"

// clampedAmount keeps what is beyond any machine beyond any machine, so that
// the packer and not the conversion refuses it.
func clampedAmount(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// readTable hands out the events of a file, in the order of its rows. Unlike an
// import it refuses a file of which any row is bad: what is left would be
// another problem.
func readTable(ctx context.Context, kind importer.Kind, path string, each func(domain.Event) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	defer f.Close()
	// The times of pods do not matter here, so any epoch will do.
	opts := importer.Options{
		Cluster: filesCluster, Workspace: platform, Standing: true,
		Epoch: domain.InstantOf(time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
	var bad []tabular.BadRow
	sum, err := importer.Run(ctx, kind, f, path, opts,
		func(env *domain.Envelope) error { return each(env.Event) },
		func(b tabular.BadRow) {
			if len(bad) < listedBadPods {
				bad = append(bad, b)
			}
		})
	if err != nil {
		return err
	}
	if len(bad) > 0 {
		lines := make([]string, 0, len(bad))
		for _, b := range bad {
			lines = append(lines, b.String())
		}
		if more := sum.Bad - len(bad); more > 0 {
			lines = append(lines, fmt.Sprintf("and %s more", comma(more)))
		}
		return fmt.Errorf("%s of %s rows of %s cannot be read: %s", comma(sum.Bad), comma(sum.Rows), path, strings.Join(lines, "\n  "))
	}
	return nil
}

// listedBadPods is how many bad rows an error names.
const listedBadPods = 5

// parseShape reads a size of nodes: CPU in thousandths ("96000m") or cores
// ("96"), memory in MiB or GiB ("393216MiB", "384GiB"), GPUs, and perhaps their
// model.
func parseShape(text string) (packing.Node, error) {
	n := packing.Node{ID: "node", Count: packing.Unlimited}
	fields := strings.Split(text, ",")
	wrong := func(what, value, want string) (packing.Node, error) {
		return packing.Node{}, commandline.Usagef("--node-shape %q: %s %q is not %s", text, what, value, want)
	}
	if len(fields) != 3 && len(fields) != 4 {
		return packing.Node{}, commandline.Usagef("--node-shape %q has %d parts, want CPU, memory, GPUs and perhaps their model, as 96000m,393216MiB,8", text, len(fields))
	}
	for i := range fields {
		fields[i] = strings.TrimSpace(fields[i])
	}
	number := func(s string, unit int64) (int64, bool) {
		v, err := strconv.ParseInt(s, 10, 64)
		return v * unit, err == nil && v >= 0 && v <= math.MaxInt32 && !strings.HasPrefix(s, "+")
	}
	cpu, milli := strings.CutSuffix(fields[0], "m")
	unit := int64(1000)
	if milli {
		unit = 1
	}
	var ok bool
	if n.CPUMilli, ok = number(cpu, unit); !ok {
		return wrong("CPU", fields[0], "thousandths such as 96000m or cores such as 96")
	}
	memory, gib := strings.CutSuffix(fields[1], "GiB")
	unit = 1024
	if !gib {
		unit = 1
		if memory, ok = strings.CutSuffix(fields[1], "MiB"); !ok {
			return wrong("memory", fields[1], "a size such as 393216MiB or 384GiB")
		}
	}
	if n.MemoryMiB, ok = number(memory, unit); !ok {
		return wrong("memory", fields[1], "a size such as 393216MiB or 384GiB")
	}
	gpus, ok := number(fields[2], 1)
	if !ok {
		return wrong("GPUs", fields[2], "a number such as 8")
	}
	switch {
	case n.CPUMilli == 0:
		return wrong("CPU", fields[0], "above 0, and a node without any holds no pod")
	case n.MemoryMiB == 0:
		return wrong("memory", fields[1], "above 0, and a node without any holds no pod")
	}
	n.GPUs = int(gpus)
	if len(fields) == 4 {
		if n.Model = fields[3]; n.Model == "" {
			return wrong("GPU model", fields[3], "a name such as A100")
		}
		if m, known := domain.LookupGPU(n.Model); known {
			n.Model = m.Name
		}
	}
	return n, nil
}
