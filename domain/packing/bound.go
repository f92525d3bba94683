package packing

import (
	"cmp"
	"maps"
	"math/big"
	"slices"
)

// The lower bound relaxes everything but one resource at a time. A function f of sizes is dual
// feasible if sizes that fit together still do after f. If f is also superadditive and
// non-decreasing, then f applied to the contents of any machine of capacity c, larger or smaller,
// sums to at most f(c). So covering the sum of f over all replicas with the f of capacities needs
// no more machines than the original problem. Two families are used. The first gives the bound L2
// of Martello and Toth ("Lower bounds and reduction procedures for the bin packing problem",
// Discrete Applied Mathematics 28, 1990), and both are in Fekete and Schepers ("New classes of fast
// lower bounds for bin packing problems", Mathematical Programming 91, 2001). For GPUs they are
// applied twice: to parts of one GPU, then to GPUs of one machine.

// sizes is a number of items of equal size.
type sizes struct {
	size  int64
	count int64
}

// dual is a dual feasible function of sizes up to its capacity.
type dual func(size int64) int64

// Bounds on the number of functions tried per family.
const (
	thresholds = 32
	multiples  = 6 // more would not fit into 64 bits
)

// duals lists functions for a capacity that may give a strong bound for the sizes.
func duals(capacity int64, of []sizes) []dual {
	fs := []dual{func(x int64) int64 { return x }}
	for k := int64(1); k <= multiples; k++ {
		fs = append(fs, func(x int64) int64 { // in k-ths
			if (k+1)*x%capacity == 0 {
				return k * x
			}
			return (k + 1) * x / capacity * capacity
		})
	}
	var ts []int64
	for _, s := range of {
		if s.size > 0 && s.size <= capacity/2 {
			ts = append(ts, s.size)
		}
	}
	ts = set(ts)
	for i := range min(len(ts), thresholds) {
		t := ts[i*len(ts)/min(len(ts), thresholds)]
		fs = append(fs, func(x int64) int64 {
			switch {
			case x > capacity-t:
				return capacity
			case x < t:
				return 0
			}
			return x
		})
	}
	return fs
}

// supply is a number of machines of equal capacity.
type supply struct{ capacity, n int64 }

// cover returns the number of machines, largest first, that cover a sum of sizes. If all of them do
// not suffice, it continues as if there were more of the largest.
func cover(have []supply, of []sizes) int64 {
	var need int64
	for _, s := range of {
		need += s.size * s.count
	}
	slices.SortFunc(have, func(a, b supply) int { return cmp.Compare(b.capacity, a.capacity) })
	var n int64
	for _, s := range have {
		if need <= 0 || s.capacity == 0 {
			break
		}
		take := min(s.n, (need-1)/s.capacity+1)
		need -= take * s.capacity
		n += take
	}
	if need > 0 && len(have) > 0 && have[0].capacity > 0 {
		n += (need-1)/have[0].capacity + 1
	}
	return n
}

// lineBound bounds the number of machines by one resource.
func lineBound(have []supply, of []sizes) int64 {
	capacity := int64(0)
	for _, s := range have {
		capacity = max(capacity, s.capacity)
	}
	if capacity == 0 {
		return 0
	}
	best := int64(0)
	have2, of2 := make([]supply, len(have)), make([]sizes, len(of))
	for _, f := range duals(capacity, of) {
		for i, s := range have {
			have2[i] = supply{f(s.capacity), s.n}
		}
		for i, s := range of {
			of2[i] = sizes{f(s.size), s.count}
		}
		best = max(best, cover(have2, of2))
	}
	return best
}

// tally adds up counts by size.
type tally map[int64]int64

func (t tally) sizes() []sizes {
	var list []sizes
	for _, x := range slices.Sorted(maps.Keys(t)) {
		if x > 0 && t[x] > 0 {
			list = append(list, sizes{x, t[x]})
		}
	}
	return list
}

// resourceBound bounds the number of machines of some classes that hold some demands.
func (p *problem) resourceBound(classes, demands []int) int64 {
	supplies := func(capacity func(*state) int64) []supply {
		var have []supply
		for _, c := range classes {
			k := &p.classes[c]
			have = append(have, supply{capacity(&k.empty), int64(k.n)})
		}
		return have
	}
	cpu, mem, parts := tally{}, tally{}, tally{}
	for _, i := range demands {
		d := &p.demands[i]
		n := int64(d.replicas)
		cpu[d.cpu] += n
		mem[d.mem] += n
		parts[int64(d.part)] += n
	}
	best := max(lineBound(supplies(func(s *state) int64 { return s.cpu }), cpu.sizes()),
		lineBound(supplies(func(s *state) int64 { return s.mem }), mem.sizes()))
	// MIG instances count only under the identity function: by their share of memory slices, and by
	// their share of compute slices, wherever that is smallest.
	functions := duals(1000, parts.sizes())
	functions = append(functions, functions[0])
	for k, f := range functions {
		gpus := tally{}
		for _, i := range demands {
			d := &p.demands[i]
			gpus[int64(d.whole)*f(1000)+f(int64(d.part))+p.instanceMilli(d, classes, k == 0,
				k == len(functions)-1)] += int64(d.replicas)
		}
		have := supplies(func(s *state) int64 {
			var sum int64
			for _, g := range s.free {
				sum += f(int64(g))
			}
			return sum + int64(len(s.divided))*f(1000)
		})
		best = max(best, lineBound(have, gpus.sizes()))
	}
	return best
}

// instanceMilli is the smallest share of a GPU's memory or compute that an instance takes on
// machines of some classes.
func (p *problem) instanceMilli(d *demand, classes []int, memory, compute bool) int64 {
	least := int64(0)
	for _, c := range classes {
		if d.profiles == nil || d.profiles[c] == nil {
			continue
		}
		l := layoutOf(p.classes[c].node)
		f, _ := l.Profile(d.load.Profile)
		share := int64(0)
		switch {
		case memory:
			share = int64(f.MemorySlices) * 1000 / int64(l.MemorySlices)
		case compute:
			share = int64(f.ComputeSlices) * 1000 / int64(l.ComputeSlices)
		}
		if least == 0 || share < least {
			least = share
		}
	}
	return least
}

// ownBound bounds the number of machines that hold one demand, by the replicas that an empty
// machine takes.
func (p *problem) ownBound(demand int) int64 {
	d := &p.demands[demand]
	var have []supply
	for c := range p.classes {
		if !p.takes(c, demand) {
			continue
		}
		s := &p.classes[c].empty
		n := int64(d.replicas)
		if d.cpu > 0 {
			n = min(n, s.cpu/d.cpu)
		}
		if d.mem > 0 {
			n = min(n, s.mem/d.mem)
		}
		var gpus int64
		for _, g := range s.free {
			switch {
			case d.profiles != nil:
				if g == 1000 {
					gpus += int64(d.profiles[c].room(0))
				}
			case d.part > 0:
				gpus += int64(g / d.part)
			case g == 1000:
				gpus++
			}
		}
		for _, on := range s.divided {
			if d.profiles != nil {
				gpus += int64(d.profiles[c].room(on))
			}
		}
		if d.whole > 0 {
			gpus /= int64(d.whole)
		}
		if d.gpuMilli() > 0 {
			n = min(n, gpus)
		}
		if d.maxPerNode > 0 {
			n = min(n, int64(d.maxPerNode))
		}
		if p.parted(demand, c) {
			n = min(n, 1)
		}
		have = append(have, supply{n, int64(p.classes[c].n)})
	}
	return cover(have, []sizes{{1, int64(d.replicas)}})
}

// takes reports whether an empty machine of a class takes a demand.
func (p *problem) takes(class, demand int) bool {
	d, k := &p.demands[demand], &p.classes[class]
	return p.ruled[demand][class] == "" && k.empty.lacks(d) == "" && !(d.dedicated && k.empty.held)
}

// lowerBound returns a lower bound on the machines that hold all replicas which fit on an empty
// machine. Dedicated demands use machines of their own, so their bounds add up, and add to that of
// the rest. The same goes for demands with mutual anti-affinity.
func (p *problem) lowerBound() int {
	var rest, kept []int // kept apart
	var alone int64
	own := make([]int64, len(p.demands))
	for i := range p.demands {
		d := &p.demands[i]
		if p.room[i] == 0 || d.replicas == 0 {
			continue
		}
		own[i] = p.ownBound(i)
		switch {
		case d.dedicated:
			alone += max(own[i], p.setBound([]int{i}, own))
		default:
			rest = append(rest, i)
			if len(d.apartNode) > 0 {
				kept = append(kept, i)
			}
		}
	}
	slices.SortStableFunc(kept, func(a, b int) int { return cmp.Compare(own[b], own[a]) })
	var clique []int
	var inClique int64
	for _, i := range kept {
		all := true
		for _, j := range clique {
			if _, ok := slices.BinarySearchFunc(p.demands[i].apartNode, apart{j, everywhere}, apart.compare); !ok {
				all = false
				break
			}
		}
		if all {
			clique = append(clique, i)
			inClique += own[i]
		}
	}
	return int(alone + max(p.setBound(rest, own), inClique))
}

// sets is the number of class sets that setBound considers.
const sets = 32

// setBound bounds the number of machines for some demands: over all classes, and over any set of
// classes by the demands that fit nowhere else. Bounds of sets without a common class add up.
func (p *problem) setBound(demands []int, own []int64) int64 {
	if len(demands) == 0 {
		return 0
	}
	type bounded struct {
		classes *big.Int // a bit for each
		own     int64
		bound   int64
	}
	var list []bounded
	at := map[string]int{}
	where := make([]*big.Int, len(demands))
	all := new(big.Int)
	for j, i := range demands {
		where[j] = new(big.Int)
		for c := range p.classes {
			if p.takes(c, i) {
				where[j].SetBit(where[j], c, 1)
			}
		}
		all.Or(all, where[j])
		key := string(where[j].Bytes())
		k, ok := at[key]
		if !ok {
			k = len(list)
			at[key] = k
			list = append(list, bounded{classes: where[j]})
		}
		list[k].own = max(list[k].own, own[i])
	}
	slices.SortStableFunc(list, func(a, b bounded) int { return cmp.Compare(b.own, a.own) })
	if _, ok := at[string(all.Bytes())]; !ok {
		list = append([]bounded{{classes: all}}, list...)
	}
	for k := range list {
		b := &list[k]
		b.bound = b.own
		if k >= sets {
			continue
		}
		var classes, within []int
		for c := range p.classes {
			if b.classes.Bit(c) == 1 {
				classes = append(classes, c)
			}
		}
		for j, i := range demands {
			if new(big.Int).AndNot(where[j], b.classes).Sign() == 0 {
				within = append(within, i)
			}
		}
		b.bound = max(b.bound, p.resourceBound(classes, within))
	}
	slices.SortStableFunc(list, func(a, b bounded) int { return cmp.Compare(b.bound, a.bound) })
	// Greedy from the largest bound on, and once more without the set of all classes, which
	// excludes every other set.
	best := int64(0)
	for _, with := range []bool{true, false} {
		taken, sum := new(big.Int), int64(0)
		for _, b := range list {
			if !with && b.classes.Cmp(all) == 0 {
				continue
			}
			if new(big.Int).And(taken, b.classes).Sign() == 0 {
				taken.Or(taken, b.classes)
				sum += b.bound
			}
		}
		best = max(best, sum)
	}
	return best
}
