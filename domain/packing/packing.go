// Package packing places workloads on nodes: whole GPUs, parts of a GPU, MIG instances at legal
// placements, CPU and memory. It respects residency, certification, GPU model, placement,
// anti-affinity, dedication, isolation, separation of classes, and gangs that start together in one
// fabric. It reports how many nodes are needed at least, what did not fit and which constraint
// prevented it, and how many GPUs are stranded: free, but unusable for the given workloads.
//
// [Pack] takes the machines, [Need] the kinds of machines. Both try a fixed list of greedy orders
// and keep the best outcome. This is a heuristic; [Result.LowerBound] is proven and tells how far
// the outcome can be from the optimum. With a linear programming solver Need continues with column
// generation, which mostly closes the gap; the solver proposes, and the proof uses integers.
// [Curve] is Need at many levels of demand at once. [Fragmentation] judges machines as they are.
//
// What always holds: no machine exceeds its CPU, memory or any one GPU, and instances lie where the
// vendor allows them. A gang is placed whole or not at all. Every replica is placed or counted as
// unplaced. Every machine that did not take an unplaced replica is counted under the constraint
// that ruled it out. Results are sorted by id, and the same nodes and workloads in any order give
// the same result.
//
// Equal workloads are placed together, and so are equal machines. With W different workloads and S
// different states that machines go through, an order takes O(W·S) weighings, plus one for each
// replica on the way to a state. S grows with the number of steps into which an order cuts the
// replicas: W, or about 16,000 at most. In the orders that consider fragmentation, a weighing looks
// at up to 256 workloads.
//
// The bound ignores constraints between replicas (anti-affinity, the maximum per node in mixed
// company, gangs), so it can be below the optimum where they bind. For fragmentation a divided GPU
// counts as full, whatever instances it has left. Not covered: a maximum number of replicas that
// time-share a GPU, priorities and eviction.
package packing

import (
	"context"
	"slices"

	"quartermaster/domain/linear"
)

// Method is the version of this package's method. A plan names it.
const Method = "packing/2"

// Unlimited stands for no bound.
const Unlimited = -1

// Node is a machine, or a kind of machine of which there are several.
type Node struct {
	ID             string // of the machine, or of the kind
	Count          int    // machines of the kind; 1 for a machine
	Cluster        string
	Region         string
	Country        string // ISO 3166-1 alpha-2, "" if unknown
	Model          string // GPU model, as the catalogue spells it
	GPUs           int
	CPUMilli       int64
	MemoryMiB      int64
	Certifications []string
	Dedicated      string // the only workspace that may use it, "" for any
	Held           Held   // what is in use already, by anyone
	// Cost is the cost of a machine of a kind, in any unit. If some kind has one, Need minimises
	// cost instead of the number of machines.
	Cost int64
	// MIG says that its GPUs may be divided into MIG instances, as the catalogue knows them for the
	// model. A GPU is divided once an instance is on it; it then holds only instances.
	MIG bool
	// Unshared says that its GPUs are not time-shared: it offers whole GPUs and instances, but not
	// parts of a GPU.
	Unshared bool
	// Fabric is the domain whose machines are joined by a fast network, "" for none. A gang needs
	// one.
	Fabric string
}

// Held is the part of a machine that is in use and stays so. A machine with anything held takes no
// dedicated workload.
type Held struct {
	GPUMilli  []int64 // of each GPU, 0 to 1000; missing ones are free
	CPUMilli  int64
	MemoryMiB int64
	Instances []Instance // MIG instances in use
}

// Instance is a MIG instance on a GPU: its profile and its first memory slice.
type Instance struct {
	GPU     int
	Profile string
	Start   int
}

// Workload is a number of equal replicas.
//
// An id under ApartNode, ApartCluster or ApartIn keeps the two workloads apart, whichever of them
// names it. The workload's own id keeps its replicas apart from each other. An unknown id has no
// effect.
type Workload struct {
	ID         string
	Workspace  string
	Class      string
	Deployment string
	Replicas   int
	// The need of one replica. GPUMilli is in thousandths: 1000 × n for n whole GPUs, 1 to 999 for
	// a part of one, 0 for none.
	GPUMilli  int64
	CPUMilli  int64
	MemoryMiB int64
	// Profile is the MIG profile that a replica needs, such as "1g.10gb", on a node whose GPUs may
	// be divided; GPUMilli is then 0. In sums it counts as the larger of its shares of compute and
	// memory, on the GPU where that is largest.
	Profile string
	// Isolated keeps others off the GPU of which the workload needs a part, because time-shared
	// GPUs share memory and faults. It then takes the whole GPU and counts as one. An instance is
	// always isolated.
	Isolated bool
	// Gang names a set of workloads whose replicas start together or not at all, on nodes of one
	// fabric.
	Gang string

	Models         []string // GPU models allowed; empty: any
	Countries      []string // residency; empty: any
	Certifications []string // all are required
	Clusters       []string // clusters allowed; empty: any
	Dedicated      bool     // shares no node with another workload
	MaxPerNode     int      // the most replicas on a node; 0: no bound
	ApartNode      []string // ids of workloads with which it shares no node
	ApartCluster   []string // ids of workloads with which it shares no cluster
	ApartIn        []Apart  // the same, limited to a part of the fleet
}

// Apart keeps a workload apart from others on machines of a place. Machines elsewhere do not count,
// even if the cluster has machines on both sides.
type Apart struct {
	Workloads []string // ids
	Cluster   bool     // they share no cluster; else they share no node
	In        Place
}

// Place is a part of the fleet: the machines whose region and country are listed. An empty list
// means all. Order and duplicates do not matter.
type Place struct {
	Regions   []string
	Countries []string // ISO 3166-1 alpha-2
}

// Has reports whether a node is in the place. A node with unknown region or country is in no place
// that lists them.
func (p *Place) Has(n *Node) bool {
	return (len(p.Regions) == 0 || slices.Contains(p.Regions, n.Region)) &&
		(len(p.Countries) == 0 || slices.Contains(p.Countries, n.Country))
}

// Constraint is a reason why a replica cannot be on a node.
type Constraint string

// The constraints, in the order in which they are tried. The first that rules a node out is
// counted.
const (
	ModelConstraint         Constraint = "gpu_model"
	ProfileConstraint       Constraint = "mig_profile"
	SharingConstraint       Constraint = "sharing"
	PlacementConstraint     Constraint = "placement"
	ResidencyConstraint     Constraint = "residency"
	CertificationConstraint Constraint = "certification"
	DedicatedConstraint     Constraint = "dedicated"
	GangConstraint          Constraint = "gang"
	ClassConstraint         Constraint = "class"
	ApartConstraint         Constraint = "apart"
	MaxPerNodeConstraint    Constraint = "max_per_node"
	GPUConstraint           Constraint = "gpu"
	CPUConstraint           Constraint = "cpu"
	MemoryConstraint        Constraint = "memory"
)

// Options control the effort.
type Options struct {
	// Work is the number of weighings (see the package comment) after which no further order is
	// begun; the first order is always finished. A weighing that looks at fragmentation counts as
	// sixteen. 0 means DefaultWork.
	Work int64
	// LP solves linear programs for [Need], which improves the best greedy outcome by column
	// generation and proves a better bound. If nil, only greedy orders and bounds of single
	// resources are used, and the result says so.
	LP linear.Solver
	// ApartClasses are pairs of workload classes that share no node. A class paired with itself has
	// no effect.
	ApartClasses [][2]string
}

// DefaultWork takes a few seconds on one core.
const DefaultWork = 50_000_000

// Pack places workloads on machines. Of all orders it keeps the outcome with the most GPUs placed,
// then the most replicas, then the fewest machines used, then the fewest stranded GPUs.
//
// It fails if an id is used twice, or if a quantity is meaningless or too large to count exactly:
// negative, a count below 1, or more than one GPU but not a whole number.
func Pack(nodes []Node, workloads []Workload, opts Options) (*Result, error) {
	p, err := compile(nodes, workloads, false, opts)
	if err != nil {
		return nil, err
	}
	best, _ := p.best(packOrders, opts)
	return best.result(), nil
}

// Need returns how many machines of the given kinds hold all workloads. A kind's Count is the
// largest available number; 0 and Unlimited both mean no limit. A machine is opened when no opened
// one takes the replica. Of all orders it keeps the outcome with the most GPUs placed, then the
// most replicas, then the fewest machines, then the fewest GPUs in them. Machines of different
// kinds count alike unless a kind has a Cost; then the least cost comes before the fewest machines.
//
// It fails as [Pack] does, and if a kind has something held.
func Need(kinds []Node, workloads []Workload, opts Options) (*Result, error) {
	return NeedContext(context.Background(), kinds, workloads, opts)
}

// NeedContext is Need with a context for the linear programming solver. It returns the solver's
// errors, except [linear.ErrUnavailable]: then it continues without a solver.
func NeedContext(ctx context.Context, kinds []Node, workloads []Workload, opts Options) (*Result, error) {
	p, err := compile(kinds, workloads, true, opts)
	if err != nil {
		return nil, err
	}
	best, starts := p.best(needOrders, opts)
	if opts.LP == nil {
		return best.result(), nil
	}
	best, m, err := p.improve(ctx, best, starts, opts.LP)
	if err != nil {
		return nil, err
	}
	r := best.result()
	m.tell(r)
	return r, nil
}

// best runs orders until the work is spent, and returns the best outcome and all outcomes.
func (p *problem) best(orders []order, opts Options) (best *run, all []*run) {
	left := opts.Work
	if left <= 0 {
		left = DefaultWork
	}
	for i := range orders {
		r := p.run(&orders[i])
		all = append(all, r)
		if best == nil || r.better(best) {
			best = r
		}
		if left -= r.work; left <= 0 {
			break
		}
	}
	return best, all
}

// better reports whether r is strictly the better outcome; on a tie the earlier order stays.
func (r *run) better(than *run) bool {
	if c := slices.Compare(r.worth(), than.worth()); c != 0 {
		return c < 0
	}
	return r.stranded().Cmp(than.stranded()) < 0
}

// worth lists the criteria of an outcome; smaller is better.
func (r *run) worth() []int64 {
	var milli, replicas int64
	for i, n := range r.left {
		milli += int64(n) * r.p.demands[i].gpuMilli()
		replicas += int64(n)
	}
	used, gpus, cost := int64(0), int64(0), int64(0)
	for _, g := range r.groups {
		if g.used && g.n > 0 {
			used += int64(g.n)
			cost += int64(g.n) * r.p.classes[g.class].node.Cost
			gpus += int64(g.n) * int64(len(g.free))
		}
	}
	if !r.p.open {
		gpus, cost = 0, 0
	}
	return []int64{milli, replicas, cost, used, gpus}
}
