package online

import (
	"cmp"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"quartermaster/domain/packing"
)

// Assignment is a replica with its placement.
type Assignment struct {
	ID   string // of the replica
	Load packing.Workload
	At   Placement
	// Stays is set for a replica that may not be moved.
	Stays bool
}

// Restore returns a fleet with each replica placed as assigned.
func Restore(nodes []packing.Node, mix *Mix, by Policy, assigned []Assignment) (*Fleet, error) {
	f, err := New(nodes, mix, by, nil)
	if err != nil {
		return nil, err
	}
	for i := range assigned {
		s := &assigned[i]
		if err := f.Place(s.ID, &s.Load, s.At); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// Place puts a replica at a given placement. It fails if the machine does not exist or cannot take
// the replica there.
func (f *Fleet) Place(id string, w *packing.Workload, at Placement) error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("place %q on %s: %s", id, at.Node, fmt.Sprintf(format, args...))
	}
	if _, ok := f.on[id]; ok {
		return refuse("it is placed already")
	}
	m, ok := slices.BinarySearchFunc(f.byID, at.Node, func(m int, id string) int { return cmp.Compare(f.machines[m].id, id) })
	if !ok {
		return refuse("there is no such machine")
	}
	sh, err := f.shapeOf(w)
	if err != nil {
		return err
	}
	m = f.byID[m]
	machine := &f.machines[m]
	if why := cmp.Or(f.refuses(&machine.group.state, sh), f.company(machine, w)); why != "" {
		return refuse("its %s does not allow that", why)
	}
	want, need := sh.whole, uint16(1000)
	if sh.part > 0 {
		want, need = 1, sh.part
	}
	gpus := slices.Sorted(slices.Values(at.GPUs))
	if len(gpus) != want {
		return refuse("it needs %d GPUs and is said to be on %v", want, gpus)
	}
	for i, g := range gpus {
		if g < 0 || g >= len(machine.free) || i > 0 && g == gpus[i-1] || machine.free[g] < need {
			return refuse("GPU %d is not free for it", g)
		}
	}
	r := &resident{load: *w, shape: sh, machine: m, gpus: gpus}
	for _, g := range gpus {
		machine.free[g] -= need
	}
	f.settle(r, 1)
	f.on[id] = r
	return nil
}

// Move takes a replica from one machine to another.
type Move struct {
	Replica    string `json:"replica"`
	Workload   string `json:"workload"`
	From       string `json:"from"`
	To         string `json:"to"`
	GPUsBefore []int  `json:"gpus_before"`
	GPUsAfter  []int  `json:"gpus_after"`
	// FreesGPUs is the number of additional entirely free GPUs after the move.
	FreesGPUs int `json:"frees_gpus"`
	// GainMilli is the decrease of stranded GPUs, in thousandths, in expectation over the mix;
	// rounded down.
	GainMilli int64 `json:"gain_milli"`
}

// Moves returns up to limit migrations in order. Each is feasible once the previous ones are done,
// and reduces stranded GPUs most over all replicas and machines. Ties go to the move that frees
// more whole GPUs, then to the first replica, then to the first machine. It stops when no single
// move helps, although several moves together still might.
func Moves(nodes []packing.Node, mix *Mix, assigned []Assignment, limit int) ([]Move, error) {
	f, err := Restore(nodes, mix, unstranding, assigned)
	if err != nil {
		return nil, err
	}
	stays := map[string]bool{}
	for i := range assigned {
		stays[assigned[i].ID] = assigned[i].Stays
	}
	out := []Move{}
	for len(out) < limit {
		m, gain, ok := f.bestMove(stays)
		if !ok {
			break
		}
		r := f.on[m.Replica]
		load := r.load
		before := f.whole()
		if err := f.Depart(m.Replica); err != nil {
			return nil, err
		}
		to, _ := slices.BinarySearchFunc(f.byID, m.To, func(m int, id string) int { return cmp.Compare(f.machines[m].id, id) })
		at := f.byID[to]
		p := f.put(m.Replica, &load, r.shape, at, f.weigh(f.machines[at].group, r.shape).from)
		m.GPUsBefore, m.GPUsAfter = listed(r.gpus), listed(p.GPUs)
		m.FreesGPUs = f.whole() - before
		m.GainMilli = gain / max(mix.total, 1)
		out = append(out, m)
	}
	return out, nil
}

func listed(gpus []int) []int { return append([]int{}, gpus...) }

// whole counts the entirely free GPUs.
func (f *Fleet) whole() int {
	n := 0
	for _, g := range f.groups {
		n += g.whole() * len(g.machines)
	}
	return n
}

func (s *state) whole() int {
	n := 0
	for _, free := range s.free {
		if free == 1000 {
			n++
		}
	}
	return n
}

// bestMove returns the move that reduces stranded milli times the mix's weight most, and by how
// much.
func (f *Fleet) bestMove(stays map[string]bool) (best Move, gain int64, ok bool) {
	ids := make([]string, 0, len(f.on))
	for id := range f.on {
		if !stays[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var freed int
	targets := map[*shape][]*group{}
	for _, id := range ids {
		r := f.on[id]
		from := &f.machines[r.machine]
		mx := &f.classes[from.group.class].mixture
		left := f.without(r)
		away := f.lost(from.group, mx) - mx.stranded(left, true)
		leaves := left.whole() - from.group.whole()
		groups, known := targets[r.shape]
		if !known {
			groups = f.targets(r.shape)
			targets[r.shape] = groups
		}
		for _, g := range groups {
			a := f.weigh(g, r.shape)
			total := away + a.score
			if total <= 0 || ok && total < gain {
				break // the groups after it are no better
			}
			frees := leaves
			if r.shape.whole > 0 {
				frees -= r.shape.whole
			} else if a.from == 1000 {
				frees--
			}
			to := f.firstOther(g, r)
			if to < 0 {
				continue
			}
			name := f.machines[to].id
			if !ok || total > gain || frees > freed || frees == freed && id == best.Replica && name < best.To {
				best = Move{Replica: id, Workload: r.load.ID, From: from.id, To: name}
				gain, freed, ok = total, frees, true
			}
		}
	}
	return best, gain, ok
}

// targets lists the groups that take a shape, the best first.
func (f *Fleet) targets(sh *shape) []*group {
	var out []*group
	for _, g := range f.groups {
		if f.weigh(g, sh).fits {
			out = append(out, g)
		}
	}
	slices.SortStableFunc(out, func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.weighed[sh.n].score, a.weighed[sh.n].score), cmp.Compare(a.machines[0], b.machines[0]))
	})
	return out
}

// firstOther returns the first machine of a group that takes the replica, other than its current
// one; -1 for none.
func (f *Fleet) firstOther(g *group, r *resident) int {
	for _, m := range g.machines {
		if m == r.machine {
			continue
		}
		// In its own cluster the replica does not conflict with itself.
		f.bumpCluster(r, -1)
		why := f.company(&f.machines[m], &r.load)
		f.bumpCluster(r, 1)
		if why == "" {
			return m
		}
	}
	return -1
}

// bumpCluster adds a replica to (1) or removes it from (-1) the counts of its machine's cluster.
func (f *Fleet) bumpCluster(r *resident, by int) {
	at := f.classes[f.machines[r.machine].group.class].site
	here := &f.sites[at]
	bump(f.clusters, atSite{at, r.load.ID, false}, by)
	for _, s := range here.beside {
		for _, id := range r.load.ApartCluster {
			bump(f.clusters, atSite{s, id, true}, by)
		}
		for i := range r.load.ApartIn {
			if x := &r.load.ApartIn[i]; x.Cluster && x.In.Has(here.node) && x.In.Has(f.sites[s].node) {
				for _, id := range x.Workloads {
					bump(f.clusters, atSite{s, id, true}, by)
				}
			}
		}
	}
}

// without returns the state of a replica's machine without the replica. It is valid until the next
// call of any method.
func (f *Fleet) without(r *resident) *state {
	m := &f.machines[r.machine]
	g := m.group
	s := &f.state
	*s = state{
		class: g.class, cpu: g.cpu + r.shape.cpu, mem: g.mem + r.shape.mem, free: append(s.free[:0], m.free...),
		owner: g.owner,
	}
	for _, gpu := range r.gpus {
		if r.shape.whole > 0 {
			s.free[gpu] = 1000
		} else {
			s.free[gpu] += r.shape.part
		}
	}
	if r.shape.dedicated && m.replicas[r.load.ID] == 1 {
		s.owner = ""
	}
	slices.SortFunc(s.free, func(a, b uint16) int { return cmp.Compare(b, a) })
	c := &f.classes[g.class].capacity
	s.busy = len(m.replicas) > 1 || m.replicas[r.load.ID] > 1 || s.cpu < c.cpu || s.mem < c.mem ||
		slices.Compare(s.free, c.free) != 0
	return s
}

func (f *Fleet) lost(g *group, mx *mixture) int64 {
	if !g.lostKnown {
		g.lost, g.lostKnown = mx.stranded(&g.state, true), true
	}
	return g.lost
}

// unstranding is the policy of moves: the score is the exact decrease of stranded GPUs.
const unstranding Policy = "unstranding"

func unstrand(f *Fleet, g *group, sh *shape) (int64, uint16) {
	mx := &f.classes[g.class].mixture
	return f.descend(g, sh, func(s *state) int64 { return mx.stranded(s, true) }, func(better int64) int64 { return better })
}

// Idle is the free GPUs of a model and how many of them are unusable.
type Idle struct {
	Model      string `json:"model"`
	Machines   int    `json:"machines"`
	TotalMilli int64  `json:"total_milli"`
	FreeMilli  int64  `json:"free_milli"`
	// StrandedMilli is the part of the free GPUs that a replica cannot use, as an expectation
	// rounded to the nearest. On each machine the replica is drawn from those of the mix that need
	// a GPU and may run there.
	StrandedMilli int64 `json:"stranded_milli"`
	// UnjudgedMilli is the free part of machines on which no shape of the mix may run, because of
	// residency, model, certification or placement. It is not counted as stranded.
	UnjudgedMilli int64 `json:"unjudged_milli"`
	// Shapes says the same for each shape that may run on some of the machines, the most frequent
	// first.
	Shapes []IdleShape `json:"shapes"`
}

// IdleShape is the part of a model's free GPUs that replicas of a shape cannot use although they
// may run there, and why: the machine lacks GPUs, CPU or memory, or is dedicated to another
// workload. If the machine has room, GPUs with too little free count as lacking GPUs.
type IdleShape struct {
	GPUMilli     int64    `json:"gpu_milli"`
	CPUMilli     int64    `json:"cpu_milli"`
	MemoryMiB    int64    `json:"memory_mib"`
	Models       []string `json:"models"`
	Replicas     int64    `json:"replicas"` // of the mix
	UselessMilli int64    `json:"useless_milli"`
	Lacks        []Lack   `json:"lacks"`

	may bool // it may run on some of the machines
}

// Lack is the free milli of machines for which a constraint is the first to rule them out.
type Lack struct {
	Constraint packing.Constraint `json:"constraint"`
	Milli      int64              `json:"milli"`
}

// Stranded reports the free GPUs by model and shape of the mix, sorted by model. It ignores shapes
// that need no GPU. It also ignores a shape on a machine where the shape may not run even if the
// machine is empty, because moving other replicas would not help.
func (f *Fleet) Stranded() []Idle {
	out := []Idle{}
	at := map[string]int{}
	lost := []*big.Rat{}
	shapes := [][]IdleShape{} // by model and shape of the mix
	order := slices.Clone(f.groups)
	slices.SortFunc(order, func(a, b *group) int { return cmp.Compare(a.machines[0], b.machines[0]) })
	for _, g := range order {
		if len(g.free) == 0 {
			continue
		}
		class := &f.classes[g.class]
		i, ok := at[class.node.Model]
		if !ok {
			i = len(out)
			at[class.node.Model] = i
			out, lost, shapes = append(out, Idle{Model: class.node.Model}), append(lost, new(big.Rat)),
				append(shapes, f.idleShapes())
		}
		n, free := int64(len(g.machines)), g.freeMilli()
		o := &out[i]
		o.Machines += len(g.machines)
		o.TotalMilli += n * int64(len(g.free)) * 1000
		o.FreeMilli += n * free
		mx := &class.mixture
		if able := f.mix.total - mx.useless; able > 0 {
			lost[i].Add(lost[i], big.NewRat(n*(mx.stranded(&g.state, true)-mx.useless*free), able))
		} else {
			o.UnjudgedMilli += n * free
		}
		for k, sh := range f.mix.shapes {
			s := &shapes[i][k]
			if sh.milli() == 0 || sh.load.RuledOut(&class.node) != "" {
				continue
			}
			s.may = true
			why, useless := f.uselessFor(g, sh)
			if useless == 0 {
				continue
			}
			s.UselessMilli += n * useless
			j := slices.IndexFunc(s.Lacks, func(l Lack) bool { return l.Constraint == why })
			if j < 0 {
				j = len(s.Lacks)
				s.Lacks = append(s.Lacks, Lack{Constraint: why})
			}
			s.Lacks[j].Milli += n * useless
		}
	}
	for i := range out {
		half := big.NewRat(1, 2)
		half.Add(half, lost[i])
		out[i].StrandedMilli = new(big.Int).Quo(half.Num(), half.Denom()).Int64()
		out[i].Shapes = slices.DeleteFunc(shapes[i], func(s IdleShape) bool { return !s.may })
		for k := range out[i].Shapes {
			slices.SortStableFunc(out[i].Shapes[k].Lacks, func(a, b Lack) int {
				return cmp.Or(cmp.Compare(b.Milli, a.Milli), strings.Compare(string(a.Constraint), string(b.Constraint)))
			})
		}
	}
	slices.SortFunc(out, func(a, b Idle) int { return cmp.Compare(a.Model, b.Model) })
	return out
}

func (f *Fleet) idleShapes() []IdleShape {
	out := []IdleShape{}
	for i, sh := range f.mix.shapes {
		out = append(out, IdleShape{
			GPUMilli: sh.milli(), CPUMilli: sh.cpu, MemoryMiB: sh.mem, Models: append([]string{}, sh.load.Models...),
			Replicas: f.mix.weight[i], Lacks: []Lack{},
		})
	}
	return out
}

// uselessFor returns how much of a machine's free GPUs a shape that may run there cannot use, and
// why.
func (f *Fleet) uselessFor(g *group, sh *shape) (packing.Constraint, int64) {
	var why packing.Constraint
	switch {
	case g.owner != "" && (!sh.dedicated || g.owner != sh.load.ID) || sh.dedicated && g.owner == "" && g.busy:
		why = packing.DedicatedConstraint
	default:
		why = g.lacks(sh)
	}
	if why != "" {
		return why, g.freeMilli()
	}
	need := sh.part
	if sh.whole > 0 {
		need = 1000
	}
	var scraps int64
	for _, free := range g.free {
		if free < need {
			scraps += int64(free)
		}
	}
	return packing.GPUConstraint, scraps
}
