package online

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
		key := fmt.Sprintf("%012d %012d %s %q %q %q %q", w.CPUMilli, w.GPUMilli, strings.Join(w.Models, "|"),
			w.Countries, w.Certifications, w.Clusters, w.Workspace)
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
	weight  int64   // of the shapes in able
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
		mx.weight += m.weight[i]
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

// short returns the millionths of GPUs that are left over when CPU or memory run out, if a machine
// in a state is filled with one shape; the mean over the mix. Parts of a GPU are taken by whole
// replicas. Whole GPUs also count for a fraction of a replica, since smaller ones take the rest.
func (mx *mixture) short(s *state) int64 {
	free := s.freeMilli()
	if free == 0 {
		return 0
	}
	var sum int64
	for i := range mx.able {
		sh := mx.able[i].shape
		milli := sh.milli()
		enough := free + int64(sh.part) // this much takes all
		for _, r := range [2][2]int64{{s.cpu, sh.cpu}, {s.mem, sh.mem}} {
			has, need := max(r[0], 0), r[1]
			switch {
			case has*milli >= enough*need: // mostly, and a division is slow
			case sh.part > 0:
				enough = has / need * milli
			default:
				enough = has * milli / need
			}
		}
		sum += mx.able[i].weight * max(0, free-enough)
	}
	return sum * 1000 / max(mx.weight, 1)
}

// reserve is classes of machines that some shapes of a mix are limited to.
type reserve struct {
	in []bool // by class
	// need is the milli that those shapes and the shapes limited to a part of the classes request, and
	// of all is what the whole mix requests.
	need, of int64
}

// reserves lists the sets of classes that shapes of the mix are limited to, in the order of the mix.
func (m *Mix) reserves(classes []class) []reserve {
	var out []reserve
	var own []int64
	var all int64
	for i, sh := range m.shapes {
		if sh.milli() == 0 {
			continue
		}
		in := make([]bool, len(classes))
		for c := range classes {
			in[c] = sh.load.RuledOut(&classes[c].node) == ""
		}
		if !slices.Contains(in, true) {
			continue
		}
		k := slices.IndexFunc(out, func(r reserve) bool { return slices.Equal(r.in, in) })
		if k < 0 {
			k = len(out)
			out, own = append(out, reserve{in: in}), append(own, 0)
		}
		own[k] += m.weight[i] * sh.milli()
		all += m.weight[i] * sh.milli()
	}
	for i := range out {
		out[i].of = all
		for k := range out {
			if within(out[k].in, out[i].in) {
				out[i].need += own[k]
			}
		}
	}
	return slices.DeleteFunc(out, func(r reserve) bool { return !slices.Contains(r.in, false) })
}

// within reports whether all classes of a set are in another.
func within(set, other []bool) bool {
	for c, in := range set {
		if in && !other[c] {
			return false
		}
	}
	return true
}

// margin is how many times the mix's share of the free GPUs is kept for shapes that are limited to
// few machines: not all that is free is usable, and what arrives varies. On the openb traces with
// constraints on the model, 1 is too little for as many GPUs as FGD allocates, and 2 and 3 do.
const margin = 2

// reserve sets the extra loss by class of machines for a shape: the millionths of GPUs that others
// will lack if it is placed there, while everything that is free is filled in the proportions of
// the mix. By Hall's theorem they lack nothing if each set of classes has enough for the shapes
// limited to it.
func (f *Fleet) reserve(sh *shape) {
	clear(f.extra)
	milli := sh.milli()
	if milli == 0 {
		return
	}
	free := -milli
	for _, idle := range f.idle {
		free += idle
	}
	for i := range f.reserves {
		r := &f.reserves[i]
		idle, limited := int64(0), true
		for c, in := range r.in {
			if in {
				idle += f.idle[c]
			} else if sh.ruled[c] == "" {
				limited = false
			}
		}
		if limited {
			continue
		}
		need, _ := domain.MulDiv(max(free, 0), margin*r.need, r.of)
		lack := max(0, need-idle+milli) - max(0, need-idle)
		for c, in := range r.in {
			if in {
				f.extra[c] = max(f.extra[c], lack*1000)
			}
		}
	}
}
