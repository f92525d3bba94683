package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
		return node.Check()
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
		return pods[len(pods)-1].Check()
	})
	return pods, err
}

// Packed is a packing of pods onto nodes, with its quality.
type Packed struct {
	Method         string             `json:"method"`
	Order          string             `json:"order"`
	Shapes         []PackKind         `json:"shapes,omitempty"`
	Pods           int                `json:"pods"`        // number of pods to pack
	Excluded       int                `json:"excluded"`    // without GPUs, not packed
	Bins           int                `json:"bins"`        // used by the pods that fit a node
	FitNoNode      int                `json:"fit_no_node"` // unplaced pods, with shapes of unlimited nodes
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

// PackKind is a size of unlimited nodes and how many are used.
type PackKind struct {
	PackShape
	Bins int `json:"bins"`
}

// PackPattern is a group of machines that hold the same numbers of pods of the same sizes.
type PackPattern struct {
	Shape    int       `json:"shape"` // index in shapes, from 0
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

// PackBin is a line of the file of assignments: a machine with its pods or, in the last lines, a pod
// that is on none. Each pod of the file of pods is in one line.
type PackBin struct {
	Bin  int           `json:"bin,omitempty"`  // number of the machine, from 1
	Node string        `json:"node,omitempty"` // id of the machine, if the nodes are given
	Size *PackShape    `json:"size,omitempty"` // of the machine
	Pods []AssignedPod `json:"pods"`
	// NotPlaced says why the pods are on no machine: unplaced, or excluded because they need no GPU.
	NotPlaced string `json:"not_placed,omitempty"`
}

// AssignedPod is a pod in the file of assignments.
type AssignedPod struct {
	Pod       string   `json:"pod"`
	CPUMilli  int64    `json:"cpu_milli"`
	MemoryMiB int64    `json:"memory_mib"`
	GPUMilli  int64    `json:"gpu_milli"`        // of all its GPUs
	Models    []string `json:"models,omitempty"` // allowed GPU models
	GPUs      []int    `json:"gpus,omitempty"`   // indices of its GPUs on the machine, from 0
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
	// Shapes are sizes of unlimited nodes, instead of Nodes, such as 96000m,393216MiB,8.
	Shapes []string
	// EveryPod also packs the pods without GPUs, with Shapes.
	EveryPod bool
	// Assignments is the file to write the pods of each machine to, a [PackBin] a line; "" for none.
	Assignments string
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
	var excluded []packing.Workload
	var r *packing.Result
	var err error
	if len(q.Shapes) == 0 {
		r, err = packing.Pack(nodes, pods, packing.Options{})
	} else {
		if nodes, err = parseShapes(q.Shapes); err != nil {
			return nil, err
		}
		anyModel := !slices.ContainsFunc(nodes, func(n packing.Node) bool { return n.Model != "" })
		kept := pods[:0:0]
		for _, p := range pods {
			if p.GPUMilli == 0 && !q.EveryPod {
				excluded = append(excluded, p)
				continue
			}
			if anyModel {
				p.Models = nil
			}
			kept = append(kept, p)
		}
		pods = kept
		ans.Excluded = len(excluded)
		var opts packing.Options
		solver, openErr := highs.Open(highs.Options{})
		switch {
		case openErr == nil:
			defer func() { _ = solver.Close() }() // the process has nothing left to report
			opts.LP = solver
		case !errors.Is(openErr, linear.ErrUnavailable):
			return nil, openErr
		}
		r, err = packing.NeedContext(ctx, nodes, pods, opts)
	}
	if err != nil {
		return nil, fmt.Errorf("pack the pods of %s: %w", q.Pods, err)
	}
	ans.Method, ans.Order, ans.Pods = r.Method, r.Order, len(pods)
	ans.Bins, ans.LowerBound, ans.Gap, ans.Columns = r.NodesUsed, r.LowerBound, max(0, r.NodesUsed-r.LowerBound), r.Columns
	ans.GPUMilliNeeded, ans.GPUMilliPlaced, ans.GPUMilliTotal = r.GPUMilliNeeded, r.GPUMilliPlaced, r.GPUMilliTotal
	ans.Stranded, ans.Unplaced = r.Stranded, r.Unplaced
	if len(q.Shapes) > 0 {
		for i := range nodes {
			ans.Shapes = append(ans.Shapes, PackKind{PackShape: sizeOf(&nodes[i])})
		}
		for _, m := range r.Machines {
			ans.Shapes[kindOf(nodes, m.Node)].Bins += m.Machines
		}
		ans.Patterns = packPatterns(r, nodes, pods)
	}
	if q.Assignments != "" {
		if err := writeBins(q, packBins(r, nodes, pods, excluded)); err != nil {
			return nil, err
		}
	}
	for _, u := range r.Unplaced {
		ans.UnplacedPods += u.Replicas
		if len(q.Shapes) > 0 {
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

func sizeOf(n *packing.Node) PackShape { return PackShape{n.CPUMilli, n.MemoryMiB, n.GPUs, n.Model} }

// kindOf returns the index of a node.
func kindOf(nodes []packing.Node, id string) int {
	return slices.IndexFunc(nodes, func(n packing.Node) bool { return n.ID == id })
}

func podsByID(pods []packing.Workload) map[string]*packing.Workload {
	byID := make(map[string]*packing.Workload, len(pods))
	for i := range pods {
		byID[pods[i].ID] = &pods[i]
	}
	return byID
}

// packBins lists the machines with their pods, then the pods that are on none.
func packBins(r *packing.Result, nodes []packing.Node, pods, excluded []packing.Workload) []PackBin {
	byID := podsByID(pods)
	byNode := make(map[string]*packing.Node, len(nodes))
	for i := range nodes {
		byNode[nodes[i].ID] = &nodes[i]
	}
	var bins []PackBin
	for _, m := range r.Machines { // each is one machine, because each pod is a workload of its own
		n := byNode[m.Node]
		size := sizeOf(n)
		bin := PackBin{Bin: len(bins) + 1, Size: &size}
		if n.Count != packing.Unlimited {
			bin.Node = n.ID
		}
		for _, s := range m.On {
			bin.Pods = append(bin.Pods, assigned(byID[s.Workload], s.GPUs))
		}
		bins = append(bins, bin)
	}
	for _, u := range r.Unplaced {
		bins = append(bins, PackBin{Pods: []AssignedPod{assigned(byID[u.Workload], nil)}, NotPlaced: "unplaced"})
	}
	for i := range excluded {
		bins = append(bins, PackBin{Pods: []AssignedPod{assigned(&excluded[i], nil)}, NotPlaced: "excluded"})
	}
	return bins
}

func assigned(w *packing.Workload, gpus []int) AssignedPod {
	return AssignedPod{w.ID, w.CPUMilli, w.MemoryMiB, w.GPUMilli, w.Models, gpus}
}

// writeBins writes the file of assignments.
func writeBins(q PackQuery, bins []PackBin) error {
	if to, err := os.Stat(q.Assignments); err == nil {
		for _, from := range []string{q.Pods, q.Nodes} {
			if read, err := os.Stat(from); err == nil && os.SameFile(read, to) {
				return invalid("assignments", "%s is a file of the question: name another file", q.Assignments)
			}
		}
	}
	return WriteWhole(q.Assignments, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		for i := range bins {
			if err := enc.Encode(&bins[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// packPatterns groups machines by the sizes of the pods on them, the largest group first.
func packPatterns(r *packing.Result, nodes []packing.Node, pods []packing.Workload) []PackPattern {
	byID := podsByID(pods)
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
		p := PackPattern{Shape: kindOf(nodes, m.Node), Machines: m.Machines}
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
		return cmp.Or(cmp.Compare(x.Shape, y.Shape), slices.CompareFunc(x.On, y.On, func(x, y PackPod) int {
			return cmp.Or(bySize(x, y), cmp.Compare(y.Replicas, x.Replicas))
		}))
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

// parseShapes parses sizes of unlimited nodes. Those with GPUs all name a model, or none does.
func parseShapes(texts []string) ([]packing.Node, error) {
	var kinds []packing.Node
	named := -1 // index of a shape with GPUs
	for i, text := range texts {
		n, err := parseShape(text)
		if err != nil {
			return nil, err
		}
		if k := slices.IndexFunc(kinds, func(o packing.Node) bool { return sizeOf(&o) == sizeOf(&n) }); k >= 0 {
			return nil, invalid("node-shape", "%q is the same as %q", text, texts[k])
		}
		switch {
		case n.GPUs == 0:
		case named >= 0 && (n.Model == "") != (kinds[named].Model == ""):
			return nil, invalid("node-shape", "%q and %q: name the GPU model of each shape or of none", texts[named], text)
		default:
			named = i
		}
		n.ID = fmt.Sprintf("shape %03d", i)
		kinds = append(kinds, n)
	}
	return kinds, nil
}

// parseShape parses a size of nodes: CPU in thousandths ("96000m") or cores ("96"), memory in MiB
// or GiB ("393216MiB", "384GiB"), GPUs, and optionally their model.
func parseShape(text string) (packing.Node, error) {
	n := packing.Node{Count: packing.Unlimited}
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
