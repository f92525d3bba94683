package packing

import (
	"cmp"
	"math/big"
	"slices"
)

// Fragmentation returns the number of stranded GPUs of the nodes by GPU model, given what is held
// on them. Stranded is the part of the free GPUs that a replica drawn from the workloads cannot
// use, in expectation over the draw (Weng et al., "Beware of Fragmentation", USENIX ATC 2023,
// section 3.2). A replica cannot use any part of a node that lacks the GPUs, the CPU or the memory
// for it, or that a constraint rules out. On other nodes it cannot use the GPUs with less free than
// it needs (or not entirely free, if it needs whole ones).
//
// There are two differences from the paper. Workloads that need no GPU are not drawn, because they
// would count GPUs as stranded merely because they want CPU. Every fixed constraint counts, not
// only the model. Constraints between replicas on a node (anti-affinity and max_per_node) do not
// count. Without a workload that needs a GPU nothing is stranded.
//
// It fails as [Pack] does.
func Fragmentation(nodes []Node, workloads []Workload) ([]Stranded, error) {
	p, err := compile(nodes, workloads, false, Options{})
	if err != nil {
		return nil, err
	}
	return p.start(nil).fragmentation(), nil
}

// mixture is the GPU demands as seen by a class of machines.
type mixture struct {
	able    []mixed // by the need of one GPU
	useless int64   // replicas that never run there
}

type mixed struct {
	demand int
	need   uint16 // of one GPU
	weight int64  // replicas
}

// mixtures computes the mixture of every class from the listed demands.
func (p *problem) mixtures(of []int) []mixture {
	ms := make([]mixture, len(p.classes))
	for c := range ms {
		m := &ms[c]
		for _, i := range of {
			d := &p.demands[i]
			switch {
			case d.gpuMilli() == 0 || d.replicas == 0:
			case p.ruled[i][c] != "" || d.dedicated && p.classes[c].empty.held || p.classes[c].empty.lacks(d) != "":
				m.useless += int64(d.replicas)
			default:
				need := d.part
				if d.whole > 0 || d.profiles != nil {
					need = 1000
				}
				m.able = append(m.able, mixed{i, need, int64(d.replicas)})
			}
		}
		slices.SortStableFunc(m.able, func(a, b mixed) int { return cmp.Compare(a.need, b.need) })
	}
	return ms
}

// strandedBy returns the stranded milli of a machine, times the number of replicas in the draw.
func (p *problem) strandedBy(s *state, m *mixture) int64 {
	var free int64
	for _, f := range s.free {
		free += int64(f)
	}
	if free == 0 {
		return 0
	}
	sum := m.useless * free
	scraps, i := int64(0), len(s.free) // what is free of the GPUs from i on
	for k := range m.able {
		a := &m.able[k]
		for i > 0 && s.free[i-1] < a.need {
			i--
			scraps += int64(s.free[i])
		}
		d := &p.demands[a.demand]
		if s.owner != a.demand && (s.owner != nobody || d.dedicated && s.used) || s.lacks(d) != "" {
			sum += a.weight * free
		} else {
			sum += a.weight * scraps
		}
	}
	return sum
}

// everyDemand lists the demands.
func (p *problem) everyDemand() []int {
	all := make([]int, len(p.demands))
	for i := range all {
		all[i] = i
	}
	return all
}

// stranded returns the stranded milli of all machines, times the number of replicas that need a
// GPU.
func (r *run) stranded() *big.Int {
	if r.lost == nil {
		r.lost = new(big.Int)
		for _, by := range r.strandedByClass() {
			r.lost.Add(r.lost, by)
		}
	}
	return r.lost
}

func (r *run) strandedByClass() []*big.Int {
	mix := r.p.mixtures(r.p.everyDemand())
	sums := make([]*big.Int, len(r.p.classes))
	for c := range sums {
		sums[c] = new(big.Int)
	}
	for _, g := range r.groups {
		if r.counts(g) {
			by := big.NewInt(r.p.strandedBy(&g.state, &mix[g.class]))
			sums[g.class].Add(sums[g.class], by.Mul(by, big.NewInt(int64(g.n))))
		}
	}
	return sums
}

// counts reports whether the machines of a group exist: for kinds, whether they were opened.
func (r *run) counts(g *group) bool { return g.n > 0 && (!r.p.open || g.used) }

func (r *run) fragmentation() []Stranded {
	var drawn int64
	for i := range r.p.demands {
		if d := &r.p.demands[i]; d.gpuMilli() > 0 {
			drawn += int64(d.replicas)
		}
	}
	by := []Stranded{}
	at, sums := map[string]int{}, []*big.Int{}
	of := func(c int) int {
		model := r.p.classes[c].node.Model
		i, ok := at[model]
		if !ok {
			i = len(by)
			at[model] = i
			by, sums = append(by, Stranded{Model: model}), append(sums, new(big.Int))
		}
		return i
	}
	for c, sum := range r.strandedByClass() {
		if r.p.classes[c].node.GPUs > 0 {
			i := of(c)
			sums[i].Add(sums[i], sum)
		}
	}
	for _, g := range r.groups {
		if !r.counts(g) || len(g.free) == 0 {
			continue
		}
		s := &by[of(g.class)]
		s.TotalMilli += int64(g.n) * int64(len(g.free)) * 1000
		for _, f := range g.free {
			s.FreeMilli += int64(g.n) * int64(f)
		}
	}
	for i := range by {
		if drawn > 0 { // to the nearest, halves up
			twice := new(big.Int).Lsh(sums[i], 1)
			twice.Add(twice, big.NewInt(drawn))
			by[i].StrandedMilli = twice.Quo(twice, big.NewInt(2*drawn)).Int64()
		}
	}
	by = slices.DeleteFunc(by, func(s Stranded) bool { return s.TotalMilli == 0 })
	slices.SortFunc(by, func(a, b Stranded) int { return cmp.Compare(a.Model, b.Model) })
	return by
}
