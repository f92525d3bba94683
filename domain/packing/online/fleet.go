package online

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain/packing"
)

// Draws is a source of randomness, such as *rand.Rand of math/rand. Equal draws give equal answers.
type Draws interface {
	// Int returns any non-negative number.
	Int() int
	// Intn returns one of [0, n).
	Intn(n int) int
	// Shuffle permutes n items randomly.
	Shuffle(n int, swap func(i, j int))
}

// Placement is where a replica runs.
type Placement struct {
	Node string
	// GPUs are the indices of its GPUs, from 0: one for a part of a GPU, n for n GPUs.
	GPUs []int
}

// Fleet is machines with their replicas.
//
// Machines that are equal in everything that a policy considers form one group. A policy weighs
// each group once per shape of replica for as long as the group exists, so a placement takes as
// many steps as there are groups.
type Fleet struct {
	policy   *policy
	mix      *Mix
	draws    Draws
	classes  []class
	machines []machine
	byID     []int    // machines by id
	groups   []*group // those with machines, in an order determined by history
	byState  map[string]*group
	shapes   map[shapeKey]*shape
	byShape  []*shape
	on       map[string]*resident
	shunned  map[string]int // by workload: residents with anti-affinity to it
	sites    []site
	clusters map[atSite]int
	reserves []reserve
	idle     []int64 // free milli by class
	extra    []int64 // by class, what the reserves add to the loss of the replica being placed
	// The maximum over all machines, at least 1, used to normalise amounts.
	maxGPU, maxCPU int64

	// Buffers that are reused.
	key   []byte
	state state
	tied  []*group
}

// site is the part of a cluster in one region and country, usually the whole cluster.
type site struct {
	node   *packing.Node // any of it
	beside []int         // the sites of its cluster, including itself
}

// atSite counts replicas of a workload at a site, or the replicas of its cluster that have
// anti-affinity to the workload there.
type atSite struct {
	site     int
	workload string
	shun     bool
}

// class is the immutable properties of machines.
type class struct {
	node     packing.Node // any of them
	site     int
	capacity state
	mixture  mixture
}

// machine is one machine.
type machine struct {
	id       string
	group    *group
	free     []uint16 // thousandths of each GPU, by index
	replicas map[string]int
	shuns    map[string]int
	kinds    map[uint8]int // by kind of replica
}

// state is what a policy sees of a machine.
type state struct {
	class    int
	cpu, mem int64
	free     []uint16 // thousandths of each GPU, most free first
	kinds    uint64   // kinds of replicas with GPUs present, one bit each
	busy     bool     // something is placed or was held from the start
	owner    string   // the workload that it is dedicated to
}

func (s *state) freeMilli() int64 {
	var sum int64
	for _, f := range s.free {
		sum += int64(f)
	}
	return sum
}

// group is machines in one state.
type group struct {
	state
	key       string
	at        int   // index in Fleet.groups
	machines  []int // ascending
	weighed   []weighed
	lost      int64 // the policy's value of the state itself; see lostKnown
	lostKnown bool
}

// weighed is a policy's score of a shape on a group.
type weighed struct {
	known bool
	fits  bool
	from  uint16 // free thousandths of the GPU from which a part is taken
	score int64
}

// shape is replicas that are equal for every machine, except for what is already on it.
type shape struct {
	n         int // its number
	load      packing.Workload
	whole     int
	part      uint16
	cpu, mem  int64
	kind      uint8
	dedicated bool
	ruled     []packing.Constraint // by class
}

func (sh *shape) milli() int64 { return int64(sh.whole)*1000 + int64(sh.part) }

type shapeKey struct {
	milli, cpu, mem int64
	dedicated       bool
	rest            string
}

// resident is a placed replica.
type resident struct {
	load    packing.Workload
	shape   *shape
	machine int
	gpus    []int
}

// New returns a fleet that holds only what its nodes hold. A node with a count stands for that many
// machines; if there are several, they are named by the node's id and "#1", "#2" and so on.
//
// The mix is the expected arrivals. Policies that consider fragmentation need it; for others it may
// be nil. Draws are only for [Random]; other policies break ties by the smallest machine id. New
// fails if a node's quantities are invalid or an id is used twice.
func New(nodes []packing.Node, mix *Mix, by Policy, draws Draws) (*Fleet, error) {
	p, err := policyOf(by)
	if err != nil {
		return nil, err
	}
	if mix == nil {
		mix = &Mix{}
	}
	if p.chance && draws == nil {
		return nil, fmt.Errorf("policy %s needs a source of draws", by)
	}
	f := &Fleet{
		policy: p, mix: mix, draws: draws, byState: map[string]*group{}, shapes: map[shapeKey]*shape{},
		on: map[string]*resident{}, shunned: map[string]int{}, clusters: map[atSite]int{}, maxGPU: 1, maxCPU: 1,
	}
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b packing.Node) int { return cmp.Compare(a.ID, b.ID) })
	classes, machines := map[string]int{}, 0
	for i := range nodes {
		n := &nodes[i]
		if err := n.Check(); err != nil {
			return nil, err
		}
		if i > 0 && n.ID == nodes[i-1].ID {
			return nil, fmt.Errorf("two nodes have the id %q", n.ID)
		}
		if machines += n.Count; n.Count > maxMachines || machines > maxMachines {
			return nil, fmt.Errorf("more than %d machines", maxMachines)
		}
		f.maxGPU, f.maxCPU = max(f.maxGPU, int64(n.GPUs)*1000), max(f.maxCPU, n.CPUMilli)
		certs := slices.Sorted(slices.Values(n.Certifications))
		key := fmt.Sprintf("%q %q %q %q %q %q %d %d %d", n.Cluster, n.Region, n.Country, n.Model, certs, n.Dedicated,
			n.GPUs, n.CPUMilli, n.MemoryMiB)
		c, ok := classes[key]
		if !ok {
			c = len(f.classes)
			classes[key] = c
			capacity := state{class: c, cpu: n.CPUMilli, mem: n.MemoryMiB, free: make([]uint16, n.GPUs)}
			for i := range capacity.free {
				capacity.free[i] = 1000
			}
			f.classes = append(f.classes, class{node: *n, site: f.siteOf(n), capacity: capacity, mixture: mix.of(n)})
		}
		s := state{class: c, cpu: n.CPUMilli - n.Held.CPUMilli, mem: n.MemoryMiB - n.Held.MemoryMiB,
			busy: n.Held.CPUMilli > 0 || n.Held.MemoryMiB > 0}
		free := make([]uint16, n.GPUs)
		for g := range free {
			free[g] = 1000
			if g < len(n.Held.GPUMilli) {
				free[g] -= uint16(n.Held.GPUMilli[g])
				s.busy = s.busy || n.Held.GPUMilli[g] > 0
			}
		}
		s.free = descending(free)
		for k := range n.Count {
			id := n.ID
			if n.Count > 1 {
				id = fmt.Sprintf("%s#%d", n.ID, k+1)
			}
			f.machines = append(f.machines, machine{id: id, free: slices.Clone(free)})
			f.byID = append(f.byID, len(f.machines)-1)
			f.enter(len(f.machines)-1, &s)
		}
	}
	slices.SortFunc(f.byID, func(a, b int) int { return cmp.Compare(f.machines[a].id, f.machines[b].id) })
	f.idle, f.extra = make([]int64, len(f.classes)), make([]int64, len(f.classes))
	for i := range f.machines {
		g := f.machines[i].group
		f.idle[g.class] += g.freeMilli()
	}
	if f.policy.reserves {
		f.reserves = mix.reserves(f.classes)
	}
	return f, nil
}

// siteOf returns the number of a node's site.
func (f *Fleet) siteOf(n *packing.Node) int {
	var beside []int
	for i := range f.sites {
		o := f.sites[i].node
		if o.Cluster != n.Cluster {
			continue
		}
		if o.Region == n.Region && o.Country == n.Country {
			return i
		}
		beside = append(beside, i)
	}
	at := len(f.sites)
	for _, i := range beside {
		f.sites[i].beside = append(f.sites[i].beside, at)
	}
	f.sites = append(f.sites, site{n, append(beside, at)})
	return at
}

// maxMachines bounds a fleet: each machine is stored individually.
const maxMachines = 1 << 20

func descending(free []uint16) []uint16 {
	free = slices.Clone(free)
	slices.SortFunc(free, func(a, b uint16) int { return cmp.Compare(b, a) })
	return free
}

// enter puts a machine into the group of its state.
func (f *Fleet) enter(m int, s *state) {
	key := f.key[:0]
	key = binary.AppendUvarint(key, uint64(s.class))
	key = binary.AppendVarint(key, s.cpu)
	key = binary.AppendVarint(key, s.mem)
	key = binary.AppendUvarint(key, s.kinds)
	if s.busy {
		key = append(key, 1)
	} else {
		key = append(key, 0)
	}
	for _, free := range s.free { // as many as the class has
		key = binary.BigEndian.AppendUint16(key, free)
	}
	f.key = append(key, s.owner...)
	g, ok := f.byState[string(f.key)]
	if !ok {
		g = &group{state: *s, key: string(f.key), at: len(f.groups)}
		g.free = slices.Clone(s.free)
		f.byState[g.key] = g
		f.groups = append(f.groups, g)
	}
	i, _ := slices.BinarySearch(g.machines, m)
	g.machines = slices.Insert(g.machines, i, m)
	f.machines[m].group = g
}

// leave takes a machine out of its group.
func (f *Fleet) leave(m int) {
	g := f.machines[m].group
	i, _ := slices.BinarySearch(g.machines, m)
	g.machines = slices.Delete(g.machines, i, i+1)
	if len(g.machines) == 0 {
		last := f.groups[len(f.groups)-1]
		f.groups[g.at], last.at = last, g.at
		f.groups = f.groups[:len(f.groups)-1]
		delete(f.byState, g.key)
	}
}

// shapeOf returns the shape of a workload's replicas.
func (f *Fleet) shapeOf(w *packing.Workload) (*shape, error) {
	key := shapeKey{milli: w.GPUMilli, cpu: w.CPUMilli, mem: w.MemoryMiB, dedicated: w.Dedicated, rest: w.Workspace}
	if w.Dedicated {
		key.rest += "\x00" + w.ID
	}
	if len(w.Models)+len(w.Countries)+len(w.Certifications)+len(w.Clusters) > 0 {
		var b strings.Builder
		for _, list := range [][]string{{w.Workspace}, w.Models, w.Countries, w.Certifications, w.Clusters} {
			fmt.Fprintf(&b, "%q ", list)
		}
		key.rest += b.String()
	}
	if sh, ok := f.shapes[key]; ok {
		return sh, nil
	}
	if err := w.Check(); err != nil {
		return nil, err
	}
	sh := newShape(w)
	sh.n = len(f.byShape)
	sh.ruled = make([]packing.Constraint, len(f.classes))
	for c := range f.classes {
		sh.ruled[c] = w.RuledOut(&f.classes[c].node)
	}
	f.shapes[key] = sh
	f.byShape = append(f.byShape, sh)
	return sh, nil
}

func newShape(w *packing.Workload) *shape {
	sh := &shape{
		load: *w, whole: int(w.GPUMilli / 1000), part: uint16(w.GPUMilli % 1000), cpu: w.CPUMilli, mem: w.MemoryMiB,
		dedicated: w.Dedicated,
	}
	switch {
	case sh.part > 0:
		sh.kind = 1
	case sh.whole > 0:
		sh.kind = uint8(min(sh.whole, 62) + 1)
	}
	return sh
}

// lacks returns the first resource that is insufficient.
func (s *state) lacks(sh *shape) packing.Constraint {
	switch {
	case sh.whole > len(s.free) || sh.whole > 0 && s.free[sh.whole-1] < 1000:
		return packing.GPUConstraint
	case sh.part > 0 && (len(s.free) == 0 || s.free[0] < sh.part):
		return packing.GPUConstraint
	case s.cpu < sh.cpu:
		return packing.CPUConstraint
	case s.mem < sh.mem:
		return packing.MemoryConstraint
	}
	return ""
}

// refuses returns the first constraint that keeps a shape off machines in a state, not counting
// other replicas on them or in their cluster.
func (f *Fleet) refuses(s *state, sh *shape) packing.Constraint {
	if c := sh.ruled[s.class]; c != "" {
		return c
	}
	if s.owner != "" && (!sh.dedicated || s.owner != sh.load.ID) || sh.dedicated && s.owner == "" && s.busy {
		return packing.DedicatedConstraint
	}
	return s.lacks(sh)
}

// company returns the constraint by which residents of a machine or its cluster keep a workload
// away.
func (f *Fleet) company(m *machine, w *packing.Workload) packing.Constraint {
	at := f.classes[m.group.class].site
	here := f.sites[at].node
	if m.shuns[w.ID] > 0 || f.clusters[atSite{at, w.ID, true}] > 0 || f.meets(m, at, w.ApartNode, false, nil) ||
		f.meets(m, at, w.ApartCluster, true, nil) {
		return packing.ApartConstraint
	}
	for i := range w.ApartIn {
		if x := &w.ApartIn[i]; x.In.Has(here) && f.meets(m, at, x.Workloads, x.Cluster, &x.In) {
			return packing.ApartConstraint
		}
	}
	if w.MaxPerNode > 0 && m.replicas[w.ID] >= w.MaxPerNode {
		return packing.MaxPerNodeConstraint
	}
	return ""
}

// meets reports whether any of the workloads is on a machine at a site, or in its cluster. If in is
// not nil, only machines in that place count.
func (f *Fleet) meets(m *machine, at int, ids []string, cluster bool, in *packing.Place) bool {
	for _, id := range ids {
		if !cluster {
			if m.replicas[id] > 0 {
				return true
			}
			continue
		}
		for _, s := range f.sites[at].beside {
			if f.clusters[atSite{s, id, false}] > 0 && (in == nil || in.Has(f.sites[s].node)) {
				return true
			}
		}
	}
	return false
}

// choosy reports whether a workload's placement depends on other replicas.
func (f *Fleet) choosy(w *packing.Workload) bool {
	return w.MaxPerNode > 0 || len(w.ApartNode) > 0 || len(w.ApartCluster) > 0 || len(w.ApartIn) > 0 || f.shunned[w.ID] > 0
}

// weigh returns the policy's score of a shape on a group.
func (f *Fleet) weigh(g *group, sh *shape) *weighed {
	if sh.n >= len(g.weighed) {
		g.weighed = append(g.weighed, make([]weighed, sh.n+1-len(g.weighed))...)
	}
	w := &g.weighed[sh.n]
	if !w.known {
		w.known = true
		if w.fits = f.refuses(&g.state, sh) == ""; w.fits {
			w.score, w.from = f.policy.score(f, g, sh)
		}
	}
	return w
}

// Arrive places one replica of a workload under its own id, where the policy says, and returns the
// placement. It returns false, and changes nothing, if no machine takes the replica.
func (f *Fleet) Arrive(id string, w *packing.Workload) (Placement, bool, error) {
	if _, ok := f.on[id]; ok {
		return Placement{}, false, fmt.Errorf("place %q: it is placed already", id)
	}
	sh, err := f.shapeOf(w)
	if err != nil {
		return Placement{}, false, err
	}
	m, from := f.choose(w, sh)
	if m < 0 {
		return Placement{}, false, nil
	}
	return f.put(id, w, sh, m, from), true, nil
}

// choose returns the machine for a replica, -1 if there is none, and the GPU part to take.
func (f *Fleet) choose(w *packing.Workload, sh *shape) (m int, from uint16) {
	choosy := f.choosy(w)
	f.tied = f.tied[:0]
	f.reserve(sh)
	var best int64
	count := 0
	for _, g := range f.groups {
		a := f.weigh(g, sh)
		score := a.score - f.extra[g.class]
		if !a.fits || len(f.tied) > 0 && score < best {
			continue
		}
		n := len(g.machines)
		if choosy {
			n = 0
			for _, m := range g.machines {
				if f.company(&f.machines[m], w) == "" {
					n++
				}
			}
			if n == 0 {
				continue
			}
		}
		if len(f.tied) == 0 || score > best {
			best, f.tied, count = score, f.tied[:0], 0
		}
		f.tied = append(f.tied, g)
		count += n
	}
	if count == 0 {
		return -1, 0
	}
	// The smallest id of all, or the drawn machine.
	skip := 0
	if f.policy.chance {
		skip = f.draws.Intn(count)
	}
	m = -1
	for _, g := range f.tied {
		if !choosy && f.policy.chance && skip >= len(g.machines) {
			skip -= len(g.machines)
			continue
		}
		for _, k := range g.machines {
			if choosy && f.company(&f.machines[k], w) != "" {
				continue
			}
			if !f.policy.chance {
				if m < 0 || k < m {
					m, from = k, g.weighed[sh.n].from
				}
				break
			}
			if skip == 0 {
				return k, g.weighed[sh.n].from
			}
			skip--
		}
	}
	return m, from
}

// put places a replica on a machine that takes it.
func (f *Fleet) put(id string, w *packing.Workload, sh *shape, at int, from uint16) Placement {
	m := &f.machines[at]
	r := &resident{load: *w, shape: sh, machine: at}
	switch {
	case sh.whole > 0:
		for g, free := range m.free {
			if free == 1000 && len(r.gpus) < sh.whole {
				r.gpus = append(r.gpus, g)
				m.free[g] = 0
			}
		}
	case sh.part > 0:
		gpu := slices.Index(m.free, from)
		if f.policy.first {
			gpu = f.firstGPU(m, sh)
		}
		if f.policy.chance {
			n := 0
			for g, free := range m.free {
				if free >= sh.part {
					if n++; f.draws.Intn(n) == 0 {
						gpu = g
					}
				}
			}
		}
		r.gpus = []int{gpu}
		m.free[r.gpus[0]] -= sh.part
	}
	f.settle(r, 1)
	f.on[id] = r
	return Placement{Node: m.id, GPUs: slices.Clone(r.gpus)}
}

// settle adds a replica to (1) or removes it from (-1) its machine's counts. The GPUs have already
// been taken or freed.
func (f *Fleet) settle(r *resident, by int) {
	m := &f.machines[r.machine]
	old := m.group
	here := f.sites[f.classes[old.class].site].node
	if m.replicas == nil {
		m.replicas, m.shuns, m.kinds = map[string]int{}, map[string]int{}, map[uint8]int{}
	}
	bump(m.replicas, r.load.ID, by)
	bump(m.kinds, r.shape.kind, by)
	f.bumpCluster(r, by)
	for _, id := range r.load.ApartNode {
		bump(m.shuns, id, by)
		bump(f.shunned, id, by)
	}
	for _, id := range r.load.ApartCluster {
		bump(f.shunned, id, by)
	}
	for i := range r.load.ApartIn {
		x := &r.load.ApartIn[i]
		for _, id := range x.Workloads {
			bump(f.shunned, id, by)
			if !x.Cluster && x.In.Has(here) {
				bump(m.shuns, id, by)
			}
		}
	}

	s := &f.state
	*s = state{class: old.class, cpu: old.cpu - int64(by)*r.shape.cpu, mem: old.mem - int64(by)*r.shape.mem,
		free: append(s.free[:0], m.free...), owner: old.owner}
	slices.SortFunc(s.free, func(a, b uint16) int { return cmp.Compare(b, a) })
	c := &f.classes[old.class].capacity
	s.busy = len(m.replicas) > 0 || s.cpu < c.cpu || s.mem < c.mem || slices.Compare(s.free, c.free) != 0
	if f.policy.kinds {
		for k := range m.kinds {
			if k > 0 {
				s.kinds |= 1 << k
			}
		}
	}
	if r.shape.dedicated {
		if s.owner = r.load.ID; m.replicas[r.load.ID] == 0 {
			s.owner = ""
		}
	}
	f.leave(r.machine)
	f.enter(r.machine, s)
	f.idle[old.class] -= int64(by) * r.shape.milli()
}

func bump[K comparable](m map[K]int, k K, by int) {
	if m[k] += by; m[k] == 0 {
		delete(m, k)
	}
}

// Depart removes a replica by the id under which it was placed.
func (f *Fleet) Depart(id string) error {
	r, ok := f.on[id]
	if !ok {
		return fmt.Errorf("take %q away: it is not placed", id)
	}
	m := &f.machines[r.machine]
	for _, g := range r.gpus {
		if r.shape.whole > 0 {
			m.free[g] = 1000
		} else {
			m.free[g] += r.shape.part
		}
	}
	delete(f.on, id)
	f.settle(r, -1)
	return nil
}
