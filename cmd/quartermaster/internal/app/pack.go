package app

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

	"quartermaster/adapters/highs"
	"quartermaster/adapters/importer"
	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/linear"
	"quartermaster/domain/packing"
)

// readNodes reads a list of nodes in the columns of the openb trace, one machine each, in the
// order of the rows.
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

// readPods reads a list of pods in the columns of the openb trace, each a workload of one
// replica, in the order of the rows. The models that a pod allows (gpu_spec) are spelled like
// those of nodes.
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

// Packed is a packing of pods onto nodes, with its quality.
type Packed struct {
	Method         string             `json:"method"`
	Order          string             `json:"order"`
	Shape          *PackShape         `json:"shape,omitempty"`
	Pods           int                `json:"pods"`        // number of pods to pack
	Excluded       int                `json:"excluded"`    // without GPUs, not packed
	Bins           int                `json:"bins"`        // used by the pods that fit a node
	FitNoNode      int                `json:"fit_no_node"` // unplaced pods, with a shape of unlimited nodes
	LowerBound     int                `json:"lower_bound"`
	Gap            int                `json:"gap"` // bins minus lower_bound
	Columns        packing.Columns    `json:"columns"`
	GPUMilliNeeded int64              `json:"gpu_milli_needed"`
	GPUMilliPlaced int64              `json:"gpu_milli_placed"`
	GPUMilliTotal  int64              `json:"gpu_milli_total"`
	Stranded       []packing.Stranded `json:"stranded"`
	Patterns       []PackPattern      `json:"patterns"`
	UnplacedPods   int                `json:"unplaced_pods"`
	Constraints    []PackConstraint   `json:"constraints"`
	Unplaced       []packing.Unplaced `json:"unplaced"`
}

// PackShape is the size of a node.
type PackShape struct {
	CPUMilli  int64  `json:"cpu_milli"`
	MemoryMiB int64  `json:"memory_mib"`
	GPUs      int    `json:"gpus"`
	Model     string `json:"model,omitempty"`
}

// PackPattern is a group of machines that hold the same numbers of pods of the same sizes.
type PackPattern struct {
	Machines int       `json:"machines"`
	On       []PackPod `json:"on"`
}

// PackPod is a number of pods of one size on a machine.
type PackPod struct {
	CPUMilli  int64    `json:"cpu_milli"`
	MemoryMiB int64    `json:"memory_mib"`
	GPUMilli  int64    `json:"gpu_milli"`
	Models    []string `json:"models,omitempty"`
	Replicas  int      `json:"replicas"`
}

// PackConstraint counts what a constraint ruled out.
type PackConstraint struct {
	Constraint packing.Constraint `json:"constraint"`
	Pods       int                `json:"pods"`
	Machines   int                `json:"machines"` // unplaced pods that it ruled machines out for
}

// PackQuery asks how to place pods on nodes.
type PackQuery struct {
	Nodes string // file of nodes to pack onto, in the columns of the openb trace
	Pods  string // file of pods, likewise
	Shape string // size of unlimited nodes, instead of Nodes, such as 96000m,393216MiB,8
	// EveryPod also packs the pods without GPUs, with Shape.
	EveryPod bool
}

// Pack packs the pods of a file onto nodes. It reads no log.
func (c *Caller) Pack(ctx context.Context, q PackQuery) (*Packed, error) {
	nodes, pods, err := readPackFiles(ctx, q)
	if err != nil {
		return nil, err
	}
	return packFiles(ctx, q, nodes, pods)
}

func readPackFiles(ctx context.Context, q PackQuery) (nodes []packing.Node, pods []packing.Workload, err error) {
	if pods, err = readPods(ctx, q.Pods); err != nil || q.Nodes == "" {
		return nil, pods, err
	}
	nodes, err = readNodes(ctx, q.Nodes)
	return nodes, pods, err
}

func packFiles(ctx context.Context, q PackQuery, nodes []packing.Node, pods []packing.Workload) (*Packed, error) {
	ans := &Packed{Patterns: []PackPattern{}, Constraints: []PackConstraint{}}
	var r *packing.Result
	var err error
	if q.Shape == "" {
		r, err = packing.Pack(nodes, pods, packing.Options{})
	} else {
		var shape packing.Node
		if shape, err = parseShape(q.Shape); err != nil {
			return nil, err
		}
		ans.Shape = &PackShape{shape.CPUMilli, shape.MemoryMiB, shape.GPUs, shape.Model}
		kept := pods[:0]
		for _, p := range pods {
			if p.GPUMilli == 0 && !q.EveryPod {
				ans.Excluded++
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
			defer func() { _ = solver.Close() }() // the process has nothing left to report
			opts.LP = solver
		case !errors.Is(openErr, linear.ErrUnavailable):
			return nil, openErr
		}
		r, err = packing.NeedContext(ctx, []packing.Node{shape}, pods, opts)
	}
	if err != nil {
		return nil, fmt.Errorf("pack the pods of %s: %w", q.Pods, err)
	}
	ans.Method, ans.Order, ans.Pods = r.Method, r.Order, len(pods)
	ans.Bins, ans.LowerBound, ans.Gap, ans.Columns = r.NodesUsed, r.LowerBound, max(0, r.NodesUsed-r.LowerBound), r.Columns
	ans.GPUMilliNeeded, ans.GPUMilliPlaced, ans.GPUMilliTotal = r.GPUMilliNeeded, r.GPUMilliPlaced, r.GPUMilliTotal
	ans.Stranded, ans.Unplaced = r.Stranded, r.Unplaced
	if q.Shape != "" {
		ans.Patterns = packPatterns(r, pods)
	}
	for _, u := range r.Unplaced {
		ans.UnplacedPods += u.Replicas
		if q.Shape != "" {
			ans.FitNoNode += u.Replicas
		}
		for _, ruled := range u.RuledOut {
			at := slices.IndexFunc(ans.Constraints, func(c PackConstraint) bool { return c.Constraint == ruled.Constraint })
			if at < 0 {
				at = len(ans.Constraints)
				ans.Constraints = append(ans.Constraints, PackConstraint{Constraint: ruled.Constraint})
			}
			ans.Constraints[at].Pods += u.Replicas
			ans.Constraints[at].Machines += u.Replicas * ruled.Machines
		}
	}
	slices.SortFunc(ans.Constraints, func(x, y PackConstraint) int { return cmp.Compare(x.Constraint, y.Constraint) })
	return ans, nil
}

// packPatterns groups machines by the sizes of the pods on them, the largest group first.
func packPatterns(r *packing.Result, pods []packing.Workload) []PackPattern {
	byID := make(map[string]*packing.Workload, len(pods))
	for i := range pods {
		byID[pods[i].ID] = &pods[i]
	}
	bySize := func(x, y PackPod) int {
		return cmp.Or(
			cmp.Compare(y.GPUMilli, x.GPUMilli),
			cmp.Compare(y.CPUMilli, x.CPUMilli),
			cmp.Compare(y.MemoryMiB, x.MemoryMiB),
			slices.Compare(x.Models, y.Models),
		)
	}
	all := make([]PackPattern, 0, len(r.Machines))
	for _, m := range r.Machines {
		p := PackPattern{Machines: m.Machines}
		for _, s := range m.On {
			w := byID[s.Workload]
			p.On = append(p.On, PackPod{w.CPUMilli, w.MemoryMiB, w.GPUMilli, w.Models, s.Replicas})
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
	same := func(x, y PackPattern) int {
		return slices.CompareFunc(x.On, y.On, func(x, y PackPod) int { return cmp.Or(bySize(x, y), cmp.Compare(y.Replicas, x.Replicas)) })
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
	slices.SortStableFunc(patterns, func(x, y PackPattern) int { return cmp.Compare(y.Machines, x.Machines) })
	return patterns
}

// filesCluster is the cluster of all nodes of a file.
const filesCluster = "files"

// clampedAmount converts amounts beyond any machine without overflow, so that the packer refuses
// them.
func clampedAmount(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// readTable calls each with the events of a file, in the order of its rows. Unlike an import it
// refuses a file with any bad row, because the remaining rows would be a different problem.
func readTable(ctx context.Context, kind importer.Kind, path string, each func(domain.Event) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", kind, err)
	}
	defer f.Close()
	// The times of pods do not matter here, so any epoch works.
	opts := importer.Options{
		Cluster: filesCluster, Workspace: Platform, Standing: true,
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
		return fmt.Errorf("%s of %s rows of %s cannot be read: %s",
			comma(sum.Bad), comma(sum.Rows), path, strings.Join(lines, "\n  "))
	}
	return nil
}

// parseShape parses a size of nodes: CPU in thousandths ("96000m") or cores ("96"), memory in MiB
// or GiB ("393216MiB", "384GiB"), GPUs, and optionally their model.
func parseShape(text string) (packing.Node, error) {
	n := packing.Node{ID: "node", Count: packing.Unlimited}
	fields := strings.Split(text, ",")
	wrong := func(what, value, want string) (packing.Node, error) {
		return packing.Node{}, invalid("node-shape", "%q: %s %q is not %s", text, what, value, want)
	}
	if len(fields) != 3 && len(fields) != 4 {
		return packing.Node{}, invalid("node-shape", "%q has %d parts, want CPU, memory, GPUs and optionally their model, as 96000m,393216MiB,8",
			text, len(fields))
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
		return wrong("CPU", fields[0], "above 0; a node without any cannot hold a pod")
	case n.MemoryMiB == 0:
		return wrong("memory", fields[1], "above 0; a node without any cannot hold a pod")
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

// listedBadPods is how many bad rows an error names.
const listedBadPods = 5
