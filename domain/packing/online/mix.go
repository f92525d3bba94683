package online

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/packing"
)

// Mix is the expected arrivals: shapes of replicas with their counts. A fleet's fragmentation is
// judged by it.
type Mix struct {
	shapes []*shape
	weight []int64
	total  int64
}

// Popular is the percentage of replicas that the paper's mix covers.
const Popular = 95

// MixOf returns the mix of workloads, weighted by replicas: the most frequent shapes that together
// cover the given percentage of all replicas. Replicas of one workspace with the same CPU, GPUs and
// constraints are one shape with their mean memory. Workspaces are kept apart because a machine may
// be dedicated to one.
func MixOf(loads []packing.Workload, percent int) (*Mix, error) {
	type kind struct {
		load   packing.Workload
		key    string
		n, mem int64
	}
	at, all := map[string]int{}, []kind{}
	var total int64
	for i := range loads {
		w := &loads[i]
		if err := w.Check(); err != nil {
			return nil, err
		}
		if w.Replicas == 0 {
			continue
		}
		if total += int64(w.Replicas); total > maxWeight {
			return nil, fmt.Errorf("more than %d replicas are too many to judge a fleet by", maxWeight)
		}
		key := fmt.Sprintf("%012d %012d %q %q %q %q %q", w.CPUMilli, w.GPUMilli, w.Models, w.Countries,
			w.Certifications, w.Clusters, w.Workspace)
		if w.Dedicated {
			key += " " + w.ID
		}
		k, ok := at[key]
		if !ok {
			k = len(all)
			at[key] = k
			all = append(all, kind{load: *w, key: key})
		}
		all[k].n += int64(w.Replicas)
		all[k].mem += int64(w.Replicas) * w.MemoryMiB
	}
	// Of equal counts the larger first, as in the paper's simulator.
	slices.SortFunc(all, func(a, b kind) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(b.key, a.key)) })
	m := &Mix{}
	for i := range all {
		if m.total*100 >= total*int64(percent) {
			break
		}
		k := &all[i]
		k.load.MemoryMiB = k.mem / k.n
		m.shapes = append(m.shapes, newShape(&k.load))
		m.weight = append(m.weight, k.n)
		m.total += k.n
	}
	return m, nil
}

// maxWeight keeps sums over a mix within 64 bits.
const maxWeight = 1 << 24

// mixture is a mix as seen by a class of machines.
type mixture struct {
	able    []mixed // by the need of one GPU
	useless int64   // weight of shapes that never run there or need no GPU
	// The total need of the shapes in able.
	milli, cpu, mem int64
}

type mixed struct {
	shape  *shape
	need   uint16 // of one GPU
	weight int64
}

func (m *Mix) of(n *packing.Node) mixture {
	var mx mixture
	for i, sh := range m.shapes {
		if sh.milli() == 0 || sh.load.RuledOut(n) != "" {
			mx.useless += m.weight[i]
			continue
		}
		need := sh.part
		if sh.whole > 0 {
			need = 1000
		}
		mx.able = append(mx.able, mixed{sh, need, m.weight[i]})
		mx.milli += m.weight[i] * sh.milli()
		mx.cpu += m.weight[i] * sh.cpu
		mx.mem += m.weight[i] * sh.mem
	}
	slices.SortStableFunc(mx.able, func(a, b mixed) int { return cmp.Compare(a.need, b.need) })
	return mx
}

// stranded returns the free milli that the mix cannot use on a machine in a state, times the mix's
// weight. For a shape that does not fit or needs no GPU this is everything free; for one that fits
// it is the GPUs with too little free.
func (mx *mixture) stranded(s *state, memory bool) int64 {
	free := s.freeMilli()
	if free == 0 {
		return 0
	}
	sum := mx.useless * free
	scraps, i := int64(0), len(s.free) // what is free of the GPUs from i on
	for k := range mx.able {
		a := &mx.able[k]
		for i > 0 && s.free[i-1] < a.need {
			i--
			scraps += int64(s.free[i])
		}
		sh := a.shape
		if i == 0 || i < sh.whole || s.cpu < sh.cpu || memory && s.mem < sh.mem ||
			s.owner != "" && (!sh.dedicated || s.owner != sh.load.ID) || sh.dedicated && s.owner == "" && s.busy {
			sum += a.weight * free
		} else {
			sum += a.weight * scraps
		}
	}
	return sum
}

// short returns the millionths of GPUs for which CPU or memory run out first, if a machine in a
// state is filled in the mix's proportions.
func (mx *mixture) short(s *state) int64 {
	free := s.freeMilli() * 1000
	var missing int64
	if mx.cpu > 0 {
		enough, _ := domain.MulDiv(s.cpu, mx.milli*1000, mx.cpu)
		missing = max(missing, free-enough)
	}
	if mx.mem > 0 {
		enough, _ := domain.MulDiv(s.mem, mx.milli*1000, mx.mem)
		missing = max(missing, free-enough)
	}
	return missing
}
