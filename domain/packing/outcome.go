package packing

import (
	"cmp"
	"slices"
)

// result converts an outcome to ids.
func (r *run) result() *Result {
	res := &Result{
		Method: Method, Order: r.order.name, Machines: []Machine{}, Used: []Used{}, Unplaced: []Unplaced{},
		Stranded: r.fragmentation(),
	}
	for i := range r.p.demands {
		d := &r.p.demands[i]
		res.GPUMilliNeeded += int64(d.replicas) * d.gpuMilli()
		res.GPUMilliPlaced += int64(d.replicas-r.left[i]) * d.gpuMilli()
	}
	for _, s := range res.Stranded {
		res.GPUMilliTotal += s.TotalMilli
	}
	if r.improved {
		res.Order = "columns, then " + res.Order
	}
	res.Columns.State = ColumnsNotAsked
	r.spell(res)
	used := make(map[string]int, len(r.p.nodes))
	for _, m := range res.Machines {
		used[m.Node] += m.Machines
		res.NodesUsed += m.Machines
		if at := slices.IndexFunc(r.p.nodes, func(n Node) bool { return n.ID == m.Node }); r.p.priced {
			res.Cost += int64(m.Machines) * r.p.nodes[at].Cost
		}
	}
	for i := range r.p.nodes {
		res.Used = append(res.Used, Used{Node: r.p.nodes[i].ID, Machines: used[r.p.nodes[i].ID]})
	}
	for i := range r.p.demands {
		if r.left[i] > 0 {
			r.explain(res, i)
		}
	}
	slices.SortFunc(res.Unplaced, func(a, b Unplaced) int { return cmp.Compare(a.Workload, b.Workload) })
	res.LowerBound = r.p.lowerBound()
	if r.p.priced {
		least := r.p.classes[0].node.Cost
		for c := range r.p.classes {
			least = min(least, r.p.classes[c].node.Cost)
		}
		res.CostLowerBound = least * int64(res.LowerBound)
	}
	return res
}

// filled is machines of a class with the same demands on the same GPUs.
type filled struct {
	class, n int
	on       []seat // by demand, then by GPU
}

type seat struct {
	demand int
	gpus   []int // ascending
	starts []int // the first memory slice of an instance
	n      int   // replicas; 1 if they need GPUs
}

func (s seat) compare(t seat) int {
	return cmp.Or(cmp.Compare(s.demand, t.demand), slices.Compare(s.gpus, t.gpus), slices.Compare(s.starts, t.starts),
		cmp.Compare(s.n, t.n))
}

func (f *filled) compare(g *filled) int {
	return cmp.Or(cmp.Compare(f.class, g.class), slices.CompareFunc(f.on, g.on, seat.compare))
}

// spell lists machines and their contents. Equal machines and equal workloads are assigned in the
// order of their ids.
func (r *run) spell(res *Result) {
	var all []filled
	for _, g := range r.groups {
		for _, b := range g.batches {
			if b.on != nil {
				all = append(all, filled{g.class, b.n, r.p.seat(g.class, b.on)})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b filled) int { return a.compare(&b) })
	// Machines with equal contents are reported together.
	merged := all[:0]
	for _, f := range all {
		if last := len(merged) - 1; last >= 0 && merged[last].compare(&f) == 0 {
			merged[last].n += f.n
		} else {
			merged = append(merged, f)
		}
	}

	nodes := make([]stock, len(r.p.classes))
	for c := range r.p.classes {
		for _, i := range r.p.classes[c].nodes {
			n := r.p.nodes[i].Count
			if n <= 0 {
				n = unbounded
			}
			nodes[c].add(r.p.nodes[i].ID, n)
		}
	}
	loads := make([]stock, len(r.p.demands))
	for d := range r.p.demands {
		for _, i := range r.p.demands[d].loads {
			loads[d].add(r.p.loads[i].ID, r.p.loads[i].Replicas)
		}
	}
	for _, f := range merged {
		for f.n > 0 {
			// As many machines as belong to one node and hold the same workloads.
			n := nodes[f.class].most(1, f.n)
			for i := 0; i < len(f.on); {
				demand, each := f.on[i].demand, 0
				for ; i < len(f.on) && f.on[i].demand == demand; i++ {
					each += f.on[i].n
				}
				n = loads[demand].most(each, n)
			}
			node, _ := nodes[f.class].take(1, n)
			m := Machine{Node: node, Machines: n}
			for _, s := range f.on {
				for left := s.n; left > 0; {
					id, k := loads[s.demand].take(left, n)
					last := len(m.On) - 1
					if last < 0 || m.On[last].Workload != id {
						m.On = append(m.On, Share{Workload: id})
						last++
					}
					m.On[last].Replicas += k
					m.On[last].GPUs = append(m.On[last].GPUs, s.gpus...)
					m.On[last].Starts = append(m.On[last].Starts, s.starts...)
					left -= k
				}
			}
			slices.SortFunc(m.On, func(a, b Share) int { return cmp.Compare(a.Workload, b.Workload) })
			res.Machines = append(res.Machines, m)
			f.n -= n
		}
	}
	slices.SortStableFunc(res.Machines, func(a, b Machine) int { return cmp.Compare(a.Node, b.Node) })
}

// stock hands out ids, each as often as it was added.
type stock struct {
	ids []string
	n   []int
}

func (s *stock) add(id string, n int) {
	if n > 0 {
		s.ids, s.n = append(s.ids, id), append(s.n, n)
	}
}

// most returns for how many machines, between one and a limit, the next each ids per machine are
// the same.
func (s *stock) most(each, limit int) int { return max(1, min(limit, s.n[0]/each)) }

// take takes the next id for a number of machines, on each as often as wanted or available.
func (s *stock) take(wanted, machines int) (id string, each int) {
	id, each = s.ids[0], min(wanted, s.n[0]/machines)
	if s.n[0] -= each * machines; s.n[0] == 0 {
		s.ids, s.n = s.ids[1:], s.n[1:]
	}
	return id, each
}

// seat assigns the contents of a machine to GPUs of an empty machine of the class, always the
// lowest suitable indices.
func (p *problem) seat(class int, on *content) []seat {
	var list []*content
	for ; on != nil; on = on.below {
		list = append(list, on)
	}
	free, taken := freeGPUs(p.classes[class].node), masks(p.classes[class].node)
	seats := make([]seat, 0, len(list))
	for _, c := range slices.Backward(list) {
		d := &p.demands[c.demand]
		if d.gpuMilli() == 0 {
			seats = append(seats, seat{demand: c.demand, n: c.n})
			continue
		}
		for range c.n {
			s := seat{demand: c.demand, n: 1}
			if d.profiles != nil {
				start, before := decode(c.from)
				i := slices.IndexFunc(free, func(f uint16) bool { return f == 1000 })
				if before != 0 {
					i = slices.Index(taken, before)
				}
				free[i] = 0
				taken[i] |= d.profiles[class].taken(start)
				s.gpus, s.starts = []int{i}, []int{start}
			}
			if d.part > 0 {
				i := slices.Index(free, c.from)
				free[i] -= d.part
				s.gpus = []int{i}
			}
			for i := 0; len(s.gpus) < d.whole; i++ {
				if free[i] == 1000 {
					free[i] = 0
					s.gpus = append(s.gpus, i)
				}
			}
			seats = append(seats, s)
		}
	}
	slices.SortFunc(seats, seat.compare)
	return seats
}

// tried lists the constraints in order.
var tried = []Constraint{
	ModelConstraint, ProfileConstraint, SharingConstraint, PlacementConstraint, ResidencyConstraint,
	CertificationConstraint, DedicatedConstraint,
	GangConstraint, ClassConstraint, ApartConstraint, MaxPerNodeConstraint, GPUConstraint, CPUConstraint, MemoryConstraint,
}

// told returns the number of machines that a group counts for: an unopened group of an unlimited
// kind counts once.
func (r *run) told(g *group) int {
	if g.n < unbounded {
		return g.n
	}
	opened := 0
	for _, h := range r.groups {
		if h.class == g.class && h.used {
			opened += h.n
		}
	}
	n := 0
	for _, i := range r.p.classes[g.class].nodes {
		if c := r.p.nodes[i].Count; c > 0 { // taken in this order, as in spell
			n += max(0, c-opened)
			opened -= min(opened, c)
		} else {
			n++
			opened = 0
		}
	}
	return n
}

// explain reports what ruled machines out for a demand that was not fully placed.
func (r *run) explain(res *Result, demand int) {
	machines := map[Constraint]int{}
	for _, g := range r.groups {
		if g.n > 0 {
			machines[r.refuses(&g.state, demand)] += r.told(g)
		}
	}
	by := []RuledOut{}
	for _, c := range tried {
		if machines[c] > 0 {
			by = append(by, RuledOut{c, machines[c]})
		}
	}
	left := r.left[demand]
	for _, i := range slices.Backward(r.p.demands[demand].loads) {
		w := &r.p.loads[i]
		if n := min(left, w.Replicas); n > 0 {
			res.Unplaced = append(res.Unplaced, Unplaced{w.ID, n, slices.Clone(by)})
			left -= n
		}
	}
}
