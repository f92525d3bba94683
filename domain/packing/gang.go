package packing

import (
	"cmp"
	"maps"
	"slices"
)

// gang is a set of demands that start together, in one fabric.
type gang struct {
	name    string
	demands []int // the hardest to place first
	milli   int64
}

// gangsOf lists the gangs, those that need the most GPUs first.
func (p *problem) gangsOf() []gang {
	by := map[string]*gang{}
	for i := range p.demands {
		d := &p.demands[i]
		if d.gang == "" || d.replicas == 0 {
			continue
		}
		g := by[d.gang]
		if g == nil {
			g = &gang{name: d.gang}
			by[d.gang] = g
		}
		g.demands = append(g.demands, i)
		g.milli += int64(d.replicas) * d.gpuMilli()
	}
	var all []gang
	for _, name := range slices.Sorted(maps.Keys(by)) {
		g := by[name]
		slices.SortStableFunc(g.demands, func(a, b int) int {
			return cmp.Or(byGPU(p, a, b), byShare(p, a, b))
		})
		all = append(all, *g)
	}
	slices.SortStableFunc(all, func(a, b gang) int { return cmp.Compare(b.milli, a.milli) })
	return all
}

// placeGangs places every gang that is not placed yet, whole or not at all. It chooses the fabric
// with the fewest additional machines in use, then with the least free.
func (r *run) placeGangs() {
	for _, g := range r.p.gangsOf() {
		if _, ok := r.gangs[g.name]; ok {
			continue
		}
		var best *run
		var bestOf [2]int64
		for _, fabric := range r.fabrics(&g) {
			trial := r.fork()
			trial.gangs[g.name] = fabric
			whole := true
			for _, d := range g.demands {
				n := trial.left[d]
				trial.left[d] = trial.place(d, n)
				if whole = trial.left[d] == 0; !whole {
					break
				}
			}
			if !whole {
				r.work = trial.work
				continue
			}
			used, free := int64(0), int64(0)
			for _, h := range trial.groups {
				if h.used && h.n > 0 {
					used += int64(h.n)
				}
				if r.p.classes[h.class].node.Fabric == fabric {
					free += int64(min(h.n, maxMachines)) * h.freeMilli()
				}
			}
			if of := [2]int64{used, free}; best == nil || slices.Compare(of[:], bestOf[:]) < 0 {
				best, bestOf = trial, of
			}
			r.work = trial.work
		}
		if best != nil {
			work := r.work
			*r = *best
			r.work = work
		}
	}
}

// fabrics lists those in which every demand of a gang has a machine that takes it.
func (r *run) fabrics(g *gang) []string {
	var all []string
	for c := range r.p.classes {
		if f := r.p.classes[c].node.Fabric; f != "" {
			all = append(all, f)
		}
	}
	return slices.DeleteFunc(set(all), func(f string) bool {
		return slices.ContainsFunc(g.demands, func(d int) bool {
			for c := range r.p.classes {
				if r.p.classes[c].node.Fabric == f && r.p.takes(c, d) {
					return false
				}
			}
			return true
		})
	})
}

// fork copies a run, so that trials on the copy leave the run unchanged. The copy does not inherit
// cached choices.
func (r *run) fork() *run {
	f := *r
	f.groups, f.byKey = make([]*group, 0, len(r.groups)), make(map[string]*group, len(r.groups))
	f.arrivals, f.lanes, f.kept = nil, make([]lane, len(r.lanes)), 0
	for _, g := range r.groups {
		h := &group{state: g.state, n: g.n, batches: slices.Clone(g.batches)}
		f.groups = append(f.groups, h)
		f.byKey[string(h.key(nil))] = h
		if h.n > 0 {
			f.arrivals = append(f.arrivals, h)
		}
	}
	f.left, f.clusters, f.gangs = slices.Clone(r.left), maps.Clone(r.clusters), maps.Clone(r.gangs)
	return &f
}
