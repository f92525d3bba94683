package packing

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Quantities up to these bounds can be added and compared in 64 bits.
const (
	maxAmount   = 1 << 32 // CPU milli, memory MiB of a machine or a replica
	maxGPUs     = 1 << 10 // of a machine
	maxReplicas = 1 << 24 // of all workloads
	maxMachines = 1 << 24 // of all nodes
	maxCost     = 1 << 38 // of a machine
)

// problem is nodes and workloads with equal ones merged.
type problem struct {
	open    bool // machines are opened as needed
	priced  bool // and cost is minimised
	apart   [][2]string
	nodes   []Node
	loads   []Workload
	classes []class
	demands []demand
	ruled   [][]Constraint // by demand and class: fixed constraints
	in      [][]bool       // by place and class; place everywhere has all
	// The maximum over all machines, at least 1, used to normalise amounts.
	refGPU, refCPU, refMem int64

	room   []int64   // GPUs, in milli, of the machines that take a demand
	scarce [3]int64  // by resource: demand relative to the scarcest one, 1 to 1001
	mix    []mixture // by class
}

// class is machines that are equal for every workload.
type class struct {
	node    *Node // any of them
	nodes   []int // into problem.nodes, ascending
	n       int   // machines; unbounded stands for any number
	cluster int   // a number for the cluster
	empty   state
}

const unbounded = 1 << 40

// demand is workloads that are equal for every machine. Workloads whose identity matters are
// demands of their own.
type demand struct {
	load     *Workload // any of them
	loads    []int     // into problem.loads, ascending
	replicas int
	whole    int    // GPUs
	part     uint16 // thousandths of one
	cpu, mem int64
	weight   int64      // of a MIG instance, in thousandths of a GPU
	profiles []*profile // by class, of an instance; nil: none there

	gang         string
	tag, against uint64 // bits of its class and of those it shares no node with
	dedicated    bool
	counted      bool    // their number on a machine is part of its state
	maxPerNode   int     // 0: no bound
	apartNode    []apart // ascending
	apartCluster []apart
}

// apart is a demand to stay away from, in a place.
type apart struct{ demand, place int }

// everywhere is the place of all classes.
const everywhere = 0

func (a apart) compare(b apart) int {
	return cmp.Or(cmp.Compare(a.demand, b.demand), cmp.Compare(a.place, b.place))
}

func (d *demand) gpuMilli() int64 { return int64(d.whole)*1000 + int64(d.part) + d.weight }

func (n *Node) check(open bool) error {
	switch {
	case n.Count < Unlimited || n.Count < 1 && !open:
		return fmt.Errorf("node %q: count %d", n.ID, n.Count)
	case n.GPUs < 0 || n.GPUs > maxGPUs:
		return fmt.Errorf("node %q: %d GPUs", n.ID, n.GPUs)
	case n.CPUMilli < 0 || n.CPUMilli > maxAmount:
		return fmt.Errorf("node %q: CPU of %d milli", n.ID, n.CPUMilli)
	case n.MemoryMiB < 0 || n.MemoryMiB > maxAmount:
		return fmt.Errorf("node %q: memory of %d MiB", n.ID, n.MemoryMiB)
	case n.Cost < 0 || n.Cost > maxCost:
		return fmt.Errorf("node %q: cost %d", n.ID, n.Cost)
	case open && (len(n.Held.GPUMilli) > 0 || len(n.Held.Instances) > 0 || n.Held.CPUMilli != 0 || n.Held.MemoryMiB != 0):
		return fmt.Errorf("kind %q has something held", n.ID)
	case len(n.Held.GPUMilli) > n.GPUs:
		return fmt.Errorf("node %q: %d GPUs held of %d", n.ID, len(n.Held.GPUMilli), n.GPUs)
	case n.Held.CPUMilli < 0 || n.Held.CPUMilli > n.CPUMilli:
		return fmt.Errorf("node %q: CPU of %d milli held of %d", n.ID, n.Held.CPUMilli, n.CPUMilli)
	case n.Held.MemoryMiB < 0 || n.Held.MemoryMiB > n.MemoryMiB:
		return fmt.Errorf("node %q: memory of %d MiB held of %d", n.ID, n.Held.MemoryMiB, n.MemoryMiB)
	}
	if why := n.checkInstances(); why != "" {
		return fmt.Errorf("node %q: a MIG instance that is held %s", n.ID, why)
	}
	for i, h := range n.Held.GPUMilli {
		if h < 0 || h > 1000 {
			return fmt.Errorf("node %q: GPU %d has %d milli held", n.ID, i, h)
		}
	}
	return nil
}

func (w *Workload) check() error {
	switch {
	case w.Replicas < 0 || w.Replicas > maxReplicas:
		return fmt.Errorf("workload %q: %d replicas", w.ID, w.Replicas)
	case w.GPUMilli < 0 || w.GPUMilli > 1000*maxGPUs || w.GPUMilli > 1000 && w.GPUMilli%1000 != 0:
		return fmt.Errorf("workload %q: %d milli of GPU", w.ID, w.GPUMilli)
	case w.CPUMilli < 0 || w.CPUMilli > maxAmount:
		return fmt.Errorf("workload %q: CPU of %d milli", w.ID, w.CPUMilli)
	case w.MemoryMiB < 0 || w.MemoryMiB > maxAmount:
		return fmt.Errorf("workload %q: memory of %d MiB", w.ID, w.MemoryMiB)
	case w.Profile != "" && w.GPUMilli != 0:
		return fmt.Errorf("workload %q: a MIG profile and %d milli of GPU", w.ID, w.GPUMilli)
	case w.Profile != "" && profileWeight(w.Profile, nil) == 0:
		return fmt.Errorf("workload %q: no GPU has a MIG profile %q", w.ID, w.Profile)
	case w.MaxPerNode < 0:
		return fmt.Errorf("workload %q: at most %d replicas a node", w.ID, w.MaxPerNode)
	}
	return nil
}

func compile(nodes []Node, loads []Workload, open bool, opts Options) (*problem, error) {
	p := &problem{open: open, apart: opts.ApartClasses, refGPU: 1, refCPU: 1, refMem: 1}
	p.nodes, p.loads = slices.Clone(nodes), slices.Clone(loads)
	slices.SortFunc(p.nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(p.loads, func(a, b Workload) int { return cmp.Compare(a.ID, b.ID) })
	if err := p.addNodes(); err != nil {
		return nil, err
	}
	if err := p.addLoads(); err != nil {
		return nil, err
	}
	p.ruled = make([][]Constraint, len(p.demands))
	for d := range p.demands {
		p.ruled[d] = make([]Constraint, len(p.classes))
		for c := range p.classes {
			p.ruled[d][c] = neverOn(p.demands[d].load, p.classes[c].node)
		}
		if name := p.demands[d].load.Profile; name != "" {
			p.demands[d].weight = profileWeight(name, p.nodes)
			for c := range p.classes {
				p.demands[d].profiles = append(p.demands[d].profiles, profileOn(name, p.classes[c].node))
			}
		}
	}
	p.prepare()
	return p, nil
}

func (p *problem) addNodes() error {
	classes, clusters := map[string]int{}, map[string]int{}
	machines := 0
	for i := range p.nodes {
		n := &p.nodes[i]
		if err := n.check(p.open); err != nil {
			return err
		}
		if i > 0 && n.ID == p.nodes[i-1].ID {
			return fmt.Errorf("two nodes have the id %q", n.ID)
		}
		n.Certifications = set(n.Certifications)
		count := n.Count
		if count <= 0 {
			count = unbounded
		} else if machines += count; machines > maxMachines || count > maxMachines {
			return errors.New("too many machines")
		}
		empty := emptyState(n)
		p.priced = p.priced || p.open && n.Cost > 0
		key := fmt.Sprintf("%q %t %t %v %d %q %q %q %q %q %q %v %d %d %v %d %d", n.Fabric, n.Unshared, n.MIG,
			masks(n), n.Cost, n.Cluster, n.Region, n.Country, n.Model, n.Certifications, n.Dedicated,
			freeGPUs(n), n.CPUMilli, n.MemoryMiB, empty.held, empty.cpu, empty.mem)
		c, ok := classes[key]
		if !ok {
			c = len(p.classes)
			classes[key] = c
			if _, ok := clusters[n.Cluster]; !ok {
				clusters[n.Cluster] = len(clusters)
			}
			empty.class = c
			p.classes = append(p.classes, class{node: n, cluster: clusters[n.Cluster], empty: empty})
		}
		k := &p.classes[c]
		k.nodes = append(k.nodes, i)
		k.n = min(k.n+count, unbounded)
		p.refGPU = max(p.refGPU, int64(n.GPUs)*1000)
		p.refCPU = max(p.refCPU, n.CPUMilli)
		p.refMem = max(p.refMem, n.MemoryMiB)
	}
	return nil
}

func (p *problem) addLoads() error {
	at := make(map[string]int, len(p.loads))
	replicas := 0
	for i := range p.loads {
		w := &p.loads[i]
		if err := w.check(); err != nil {
			return err
		}
		if i > 0 && w.ID == p.loads[i-1].ID {
			return fmt.Errorf("two workloads have the id %q", w.ID)
		}
		if replicas += w.Replicas; replicas > maxReplicas {
			return errors.New("too many replicas")
		}
		w.Models, w.Countries, w.Certifications, w.Clusters = set(w.Models), set(w.Countries), set(w.Certifications),
			set(w.Clusters)
		at[w.ID] = i
	}
	apartNode, apartCluster := make([][]apart, len(p.loads)), make([][]apart, len(p.loads))
	both := func(from [][]apart, i int, ids []string, place int) {
		for _, id := range ids {
			if j, ok := at[id]; ok {
				from[i] = append(from[i], apart{j, place})
				from[j] = append(from[j], apart{i, place})
			}
		}
	}
	places := map[string]int{}
	p.in = [][]bool{slices.Repeat([]bool{true}, len(p.classes))}
	for i := range p.loads {
		w := &p.loads[i]
		both(apartNode, i, w.ApartNode, everywhere)
		both(apartCluster, i, w.ApartCluster, everywhere)
		for k := range w.ApartIn {
			x := &w.ApartIn[k]
			from := apartNode
			if x.Cluster {
				from = apartCluster
			}
			both(from, i, x.Workloads, p.place(places, &x.In))
		}
	}

	tags, against, err := p.tagClasses()
	if err != nil {
		return err
	}
	hosts := map[string]bool{} // workspaces with machines of their own
	for i := range p.nodes {
		hosts[p.nodes[i].Dedicated] = true
	}
	demands, of := map[string]int{}, make([]int, len(p.loads))
	for i := range p.loads {
		w := &p.loads[i]
		key := w.ID
		alone := w.Gang != "" || w.Dedicated || w.MaxPerNode > 0 || len(apartNode[i]) > 0 || len(apartCluster[i]) > 0
		if !alone {
			workspace := w.Workspace
			if !hosts[workspace] {
				workspace = ""
			}
			key = fmt.Sprintf("%d %q %d %d %d %q %q %q %q %q", tags[w.Class], w.Profile, w.need(), w.CPUMilli, w.MemoryMiB,
				w.Models, w.Countries, w.Certifications, w.Clusters, workspace)
		}
		key = fmt.Sprint(alone, " ", key)
		d, ok := demands[key]
		if !ok {
			d = len(p.demands)
			demands[key] = d
			p.demands = append(p.demands, demand{
				load: w, cpu: w.CPUMilli, mem: w.MemoryMiB,
				whole: int(w.need() / 1000), part: uint16(w.need() % 1000),
				gang: w.Gang, tag: tags[w.Class], against: against[w.Class],
				dedicated: w.Dedicated, maxPerNode: w.MaxPerNode,
				counted: w.MaxPerNode > 0 || len(apartNode[i]) > 0,
			})
		}
		of[i] = d
		p.demands[d].loads = append(p.demands[d].loads, i)
		p.demands[d].replicas += w.Replicas
	}
	for i := range p.loads {
		d := &p.demands[of[i]]
		for _, a := range apartNode[i] {
			d.apartNode = append(d.apartNode, apart{of[a.demand], a.place})
		}
		for _, a := range apartCluster[i] {
			d.apartCluster = append(d.apartCluster, apart{of[a.demand], a.place})
		}
	}
	for i := range p.demands {
		d := &p.demands[i]
		for _, list := range []*[]apart{&d.apartNode, &d.apartCluster} {
			slices.SortFunc(*list, apart.compare)
			*list = slices.Compact(*list)
		}
	}
	return nil
}

// place returns the number of a place, by the classes in it.
func (p *problem) place(numbers map[string]int, at *Place) int {
	in := make([]bool, len(p.classes))
	all := true
	for c := range p.classes {
		in[c] = at.Has(p.classes[c].node)
		all = all && in[c]
	}
	if all {
		return everywhere
	}
	key := fmt.Sprint(in)
	n, ok := numbers[key]
	if !ok {
		n = len(p.in)
		numbers[key] = n
		p.in = append(p.in, in)
	}
	return n
}

// parted reports whether a demand's replicas are kept apart from each other on machines of a class.
func (p *problem) parted(demand, class int) bool {
	return slices.ContainsFunc(p.demands[demand].apartNode, func(a apart) bool {
		return a.demand == demand && p.in[a.place][class]
	})
}

// need is the GPU milli that a replica takes.
func (w *Workload) need() int64 {
	if w.Isolated && w.GPUMilli%1000 > 0 {
		return 1000
	}
	return w.GPUMilli
}

// tagClasses assigns a bit to every class that is kept apart from another, and returns which ones
// it is against.
func (p *problem) tagClasses() (tags, against map[string]uint64, err error) {
	tags, against = map[string]uint64{}, map[string]uint64{}
	for _, pair := range p.apart {
		if pair[0] == pair[1] {
			continue
		}
		for _, c := range pair {
			if _, ok := tags[c]; !ok {
				if len(tags) == 64 {
					return nil, nil, errors.New("more than 64 classes are kept apart")
				}
				tags[c] = 1 << len(tags)
			}
		}
		against[pair[0]] |= tags[pair[1]]
		against[pair[1]] |= tags[pair[0]]
	}
	return tags, against, nil
}

// set sorts and deduplicates a copy.
func set[T cmp.Ordered](xs []T) []T {
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return slices.Compact(xs)
}

// neverOn returns the first constraint that keeps a workload off a node whatever else is on it, ""
// if there is none. Lists are sorted.
func neverOn(w *Workload, n *Node) Constraint {
	allowed := func(list []string, x string) bool {
		if len(list) == 0 {
			return true
		}
		_, ok := slices.BinarySearch(list, x)
		return ok
	}
	if !allowed(w.Models, n.Model) {
		return ModelConstraint
	}
	if w.Profile != "" && profileOn(w.Profile, n) == nil {
		return ProfileConstraint
	}
	if w.need()%1000 > 0 && n.Unshared {
		return SharingConstraint
	}
	if !allowed(w.Clusters, n.Cluster) {
		return PlacementConstraint
	}
	if !allowed(w.Countries, n.Country) {
		return ResidencyConstraint
	}
	for _, c := range w.Certifications {
		if _, ok := slices.BinarySearch(n.Certifications, c); !ok {
			return CertificationConstraint
		}
	}
	if n.Dedicated != "" && n.Dedicated != w.Workspace {
		return DedicatedConstraint
	}
	if w.Gang != "" && n.Fabric == "" {
		return GangConstraint
	}
	return ""
}
