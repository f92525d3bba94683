package packing

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"quartermaster/domain"
)

// pricing finds the most valuable contents of one machine of a class at given prices. It uses
// integers throughout, so its result proves a bound. It builds sets of replicas from the inside
// out: what one GPU can hold (a fill), what k GPUs can hold, and finally two halves of a machine. A
// set is dropped if another takes no more of anything and is worth no less.
//
// Two multipliers, the shadow prices of the machine's own CPU and memory, bound the value that any
// set can still reach. Sets that cannot exceed a threshold are dropped. If the search becomes too
// long, that bound alone is the answer.
//
// Constraints between workloads (anti-affinity, the maximum per node) are ignored: the bound
// remains valid, and a pattern that breaks one is trimmed when it is used.
type pricing struct {
	cpu, mem int64 // of the machine
	gpus     int
	items    []item
	work     int64 // remaining labels that may be created

	threshold int64   // sets worth no more than this are not sought
	lc, lm    int64   // value of a milli of CPU and of a MiB, in 1/(1<<fine)
	base      int64   // value of all CPU and memory
	best      []int64 // largest gain of a number of GPUs, by that number
	made      []origin
}

// item is a demand with its price.
type item struct {
	demand   int
	price    int64
	cpu, mem int64
	gpus     int    // whole ones
	part     uint16 // of one
	profile  *profile
	most     int // on one machine
}

// shares reports whether other replicas can be on the same GPU.
func (it *item) shares() bool { return it.part > 0 || it.profile != nil }

// bare reports whether the item needs no GPU.
func (it *item) bare() bool { return it.gpus == 0 && !it.shares() }

// fine is the number of binary fraction digits of multipliers. Prices, also summed over a machine,
// are below 1<<maxPrice, so everything fits into 64 bits.
const (
	fine     = 20
	maxPrice = 40
)

// label is a set of replicas: its need, its value and its origin. The need is rounded down if there
// were too many labels.
type label struct {
	cpu, mem, val int64
	gain          int64 // val less the value of its CPU and memory, in 1/(1<<fine)
	left, right   int32 // into made; -1 for none
	start         int8  // of an instance
}

// origin is two combined sets, or an item added to a set on the same GPU.
type origin struct {
	left, right int32
	item        bool
	start       int8 // of an instance
}

const nothing = -1

// Bounds of the search, in labels. mostLabels is per list; heldLabels is the number collected
// before dominated ones are dropped.
const (
	mostLabels = 1 << 14
	heldLabels = 1 << 17
)

// found is a set of replicas for one machine that is worth more than the threshold.
type found struct {
	val   int64
	fills [][]placed // by GPU; items without a GPU or with whole ones individually
}

// placed is an item, and the memory slice where an instance starts.
type placed struct{ item, start int }

func (x placed) compare(y placed) int {
	return cmp.Or(cmp.Compare(x.item, y.item), cmp.Compare(x.start, y.start))
}

// solve returns an upper bound of the value of any set of replicas on one machine, at least the
// threshold, and up to most sets worth more than the threshold.
func (q *pricing) solve(most int) (bound int64, sets []found) {
	q.items = slices.DeleteFunc(q.items, func(it item) bool {
		return it.price <= 0 || it.most <= 0 || it.cpu > q.cpu || it.mem > q.mem || it.gpus > q.gpus ||
			it.shares() && q.gpus == 0
	})
	slices.SortStableFunc(q.items, func(a, b item) int {
		return cmp.Or(cmp.Compare(b.gpus, a.gpus), cmp.Compare(b.part, a.part), cmp.Compare(b.cpu, a.cpu),
			cmp.Compare(b.mem, a.mem))
	})
	// Items that take nothing can be on every machine; the greedy orders place them.
	gift, first := int64(0), len(q.items)
	for i, it := range slices.Backward(q.items) {
		if it.cpu == 0 && it.mem == 0 && it.bare() {
			gift, first = saturated(gift, it.price, int64(it.most)), i
		}
	}
	if gift > 0 {
		q.items = q.items[:first] // they are sorted last
		if gift >= 1<<maxPrice {
			return saturated(max(q.coarse(), q.threshold), gift, 1), nil
		}
		q.threshold -= gift
	}
	bound, sets = q.search(most)
	return saturated(bound, gift, 1), sets
}

// search implements solve for items that take something.
func (q *pricing) search(most int) (bound int64, sets []found) {
	coarse := q.coarse()
	if coarse <= q.threshold || coarse >= 1<<maxPrice {
		return max(coarse, q.threshold), nil
	}
	fills, ok := q.fills()
	if !ok {
		return coarse, nil
	}
	top := q.multipliers(fills)
	if top == unheard {
		return coarse, nil
	}
	if top = min(coarse, top); top <= q.threshold {
		return q.threshold, nil
	}
	if sets, ok = q.meet(fills, most); !ok {
		return top, sets
	}
	bound = q.threshold
	if len(sets) > 0 {
		bound = sets[0].val
	}
	return bound, sets
}

// coarse bounds the value of a machine by one resource at a time.
func (q *pricing) coarse() int64 {
	by := [3]int64{math.MaxInt64, math.MaxInt64, math.MaxInt64}
	for r := range by {
		whole := int64(0) // value of items that need none of the resource
		top := int64(0)
		for _, it := range q.items {
			gpu := int64(it.gpus)*1000 + int64(it.part)
			if it.profile != nil {
				gpu = int64(it.profile.size) * 125 // of at most 8
			}
			have, need := []int64{q.cpu, q.mem, int64(q.gpus) * 1000}[r], []int64{it.cpu, it.mem, gpu}[r]
			if need == 0 {
				whole = saturated(whole, it.price, int64(it.most))
				continue
			}
			// price × have ÷ need, rounded up: the value of the whole resource.
			top = max(top, mulDivUp(it.price, have, need))
		}
		by[r] = saturated(whole, top, 1)
	}
	return min(by[0], by[1], by[2])
}

func saturated(a, b, n int64) int64 {
	if b > 0 && n > (math.MaxInt64/4-a)/b {
		return math.MaxInt64 / 4
	}
	return a + b*n
}

// spell lists the items of two combined sets, fill by fill.
func (q *pricing) spell(a, b int32) [][]placed {
	var fills [][]placed
	var walk func(at int32, fill *[]placed)
	walk = func(at int32, fill *[]placed) {
		if at == nothing {
			return
		}
		m := q.made[at]
		if !m.item {
			walk(m.left, fill)
			walk(m.right, fill)
			return
		}
		x := placed{int(m.right), int(m.start)}
		switch {
		case fill != nil:
			*fill = append(*fill, x)
			walk(m.left, fill)
		default: // the last item added to a GPU; the previous ones are in left
			f := []placed{x}
			walk(m.left, &f)
			slices.SortFunc(f, placed.compare)
			fills = append(fills, f)
		}
	}
	walk(a, nil)
	walk(b, nil)
	slices.SortFunc(fills, func(a, b []placed) int { return slices.CompareFunc(a, b, placed.compare) })
	return fills
}

// keep stores labels among those made, so that others can build on them.
func (q *pricing) keep(list []label, item bool) []label {
	for i := range list {
		l := &list[i]
		if l.left == nothing && l.right == nothing && !item {
			continue
		}
		q.made = append(q.made, origin{l.left, l.right, item, l.start})
		l.left, l.right = int32(len(q.made)-1), nothing
	}
	return list
}

// id is the index of a kept label among those made.
func (l *label) id() int32 { return l.left }

// fills lists the undominated contents of one GPU: parts next to each other, or one workload that
// takes it whole.
func (q *pricing) fills() ([]label, bool) {
	byPart := make([][]label, 1001)
	byPart[0] = []label{{left: nothing, right: nothing}}
	all := []label{}
	parts := false
	for i, it := range q.items {
		parts = parts || it.part > 0
		if it.gpus == 1 {
			all = append(all, q.keep([]label{{cpu: it.cpu, mem: it.mem, val: it.price, left: nothing,
				right: int32(i)}}, true)...)
		}
	}
	for m := 1; parts && m <= 1000; m++ {
		var list []label
		for i, it := range q.items {
			if it.part == 0 || int(it.part) > m {
				continue
			}
			for _, l := range byPart[m-int(it.part)] {
				if l.cpu+it.cpu > q.cpu || l.mem+it.mem > q.mem {
					continue
				}
				list = append(list, label{
					cpu: l.cpu + it.cpu, mem: l.mem + it.mem, val: l.val + it.price, left: l.id(), right: int32(i),
				})
				if q.work--; q.work < 0 {
					return nil, false
				}
			}
		}
		if len(list) == 0 {
			continue
		}
		byPart[m] = q.keep(undominated(list), true)
		all = append(all, byPart[m]...)
	}
	divided, ok := q.dividedFills()
	if !ok {
		return nil, false
	}
	return undominated(append(all, divided...)), true
}

// dividedFills lists the possible contents of a GPU divided into MIG instances. Instances are added
// from the first memory slice to the last.
func (q *pricing) dividedFills() ([]label, bool) {
	var all []label
	by := make([][]label, 2*singleBit)
	by[0] = []label{{left: nothing, right: nothing}}
	for on := range by { // every addition increases the GPU's mask
		if on > 0 && len(by[on]) > 0 {
			by[on] = q.keep(undominated(by[on]), true)
			all = append(all, by[on]...)
		}
		end := bits.Len16(uint16(on) & uint16(singleBit-1))
		for i, it := range q.items {
			if it.profile == nil {
				continue
			}
			for _, start := range it.profile.starts {
				if start < end || !it.profile.fits(start, gpuMask(on)) {
					continue
				}
				after := gpuMask(on) | it.profile.taken(start)
				for _, l := range by[on] {
					if q.work--; q.work < 0 {
						return nil, false
					}
					if l.cpu+it.cpu <= q.cpu && l.mem+it.mem <= q.mem {
						by[after] = append(by[after], label{
							cpu: l.cpu + it.cpu, mem: l.mem + it.mem, val: l.val + it.price, left: l.id(),
							right: int32(i), start: int8(start),
						})
					}
				}
			}
		}
	}
	return all, true
}

// undominated drops labels for which another one is at least as good in everything. The rest are
// sorted by CPU, then memory.
func undominated(list []label) []label {
	slices.SortFunc(list, func(a, b label) int {
		switch { // most differ in the first
		case a.cpu != b.cpu:
			return cmp.Compare(a.cpu, b.cpu)
		case a.mem != b.mem:
			return cmp.Compare(a.mem, b.mem)
		}
		return cmp.Or(cmp.Compare(b.val, a.val), cmp.Compare(a.left, b.left), cmp.Compare(a.right, b.right),
			cmp.Compare(a.start, b.start))
	})
	type stair struct{ mem, val int64 } // both ascend
	var stairs []stair
	kept := list[:0]
	for _, l := range list {
		i, _ := slices.BinarySearchFunc(stairs, l.mem, func(s stair, mem int64) int {
			if s.mem <= mem {
				return -1
			}
			return 1
		})
		if i > 0 && stairs[i-1].val >= l.val {
			continue
		}
		kept = append(kept, l)
		// It replaces the stairs that take at least as much memory and are worth no more.
		from := i
		if i > 0 && stairs[i-1].mem == l.mem {
			from = i - 1
		}
		to := i
		for to < len(stairs) && stairs[to].val <= l.val {
			to++
		}
		stairs = slices.Replace(stairs, from, to, stair{l.mem, l.val})
	}
	return kept
}

// multipliers chooses the value of CPU and memory so that the bound they prove for a machine is
// small, and returns that bound.
func (q *pricing) multipliers(fills []label) int64 {
	var most int64 // value of a machine if CPU and memory are free
	at := func(lc, lm int64) int64 {
		q.lc, q.lm = lc, lm
		if mulDivUp(lc, q.cpu, 1) >= unheard || mulDivUp(lm, q.mem, 1) >= unheard {
			return unheard
		}
		q.weigh(fills)
		return q.base + q.best[q.gpus]
	}
	q.best = make([]int64, q.gpus+1)
	most = max(1, at(0, 0))
	lcFrom, lcTo := int64(0), int64(0)
	if q.cpu > 0 {
		lcTo = most/q.cpu + 1
	}
	// Items without a GPU must not have a positive gain, or the gain would be unbounded.
	for _, it := range q.items {
		if it.bare() && it.mem == 0 {
			lcFrom = max(lcFrom, (it.price<<fine-1)/it.cpu+1)
		}
	}
	lcTo = max(lcFrom, lcTo)
	lmOf := func(lc int64) (from, to int64) {
		if q.mem > 0 {
			to = most/q.mem + 1
		}
		for _, it := range q.items {
			if over := it.price<<fine - lc*it.cpu; it.bare() && it.mem > 0 && over > 0 {
				from = max(from, (over-1)/it.mem+1)
			}
		}
		return from, max(from, to)
	}
	inner := func(lc int64) (int64, int64) {
		from, to := lmOf(lc)
		return valley(from, to, func(lm int64) int64 { return at(lc, lm) })
	}
	lc, _ := valley(lcFrom, lcTo, func(lc int64) int64 { _, v := inner(lc); return v })
	lm, v := inner(lc)
	if at(lc, lm); v >= unheard {
		return unheard
	}
	return (v-1)>>fine + 1
}

// unheard is a value beyond the range of the computation.
const unheard = math.MaxInt64 / 4

// valley returns an approximate minimum of a convex function and its value.
func valley(from, to int64, f func(int64) int64) (int64, int64) {
	least, value := from, f(from)
	try := func(x int64) int64 {
		v := f(x)
		if v < value {
			least, value = x, v
		}
		return v
	}
	try(to)
	for range 24 {
		if to-from < 3 {
			break
		}
		a, b := from+(to-from)/3, to-(to-from)/3
		if try(a) <= try(b) {
			to = b
		} else {
			from = a
		}
	}
	return least, value
}

// weigh computes the gain that the GPUs of a machine can reach.
func (q *pricing) weigh(fills []label) {
	q.base = q.lc*q.cpu + q.lm*q.mem
	one := int64(0)
	for i := range fills {
		one = max(one, q.gain(&fills[i]))
	}
	for k := 1; k <= q.gpus; k++ {
		q.best[k] = q.best[k-1] + one
	}
	for _, it := range q.items {
		if it.gpus < 2 {
			break // they are sorted by GPUs, the most first
		}
		gain := it.price<<fine - q.lc*it.cpu - q.lm*it.mem
		for k := it.gpus; gain > int64(it.gpus)*one && k <= q.gpus; k++ {
			q.best[k] = max(q.best[k], q.best[k-1]+one, q.best[k-it.gpus]+gain)
		}
	}
	for k := 1; k <= q.gpus; k++ {
		q.best[k] = max(q.best[k], q.best[k-1]+one)
	}
}

func (q *pricing) gain(l *label) int64 { return l.val<<fine - q.lc*l.cpu - q.lm*l.mem }

// hopeful reports whether a set of k GPUs with this gain can become worth more than the threshold.
func (q *pricing) hopeful(gain int64, k int) bool {
	return gain+q.base+q.best[q.gpus-k] > q.threshold<<fine
}

// gather collects sets and bounds their number.
type gather struct {
	q    *pricing
	list []label
	// worth is, by steps of CPU and memory, the largest value of a set that takes no more: sets
	// worth less need not be collected. It is nil before sets were thinned.
	worth            []int64
	cpuStep, memStep int64
}

// worthSteps is the number of steps of each resource.
const worthSteps = 256

func (g *gather) join(a, b *label) {
	l := label{cpu: a.cpu + b.cpu, mem: a.mem + b.mem, val: a.val + b.val, left: a.id(), right: b.id()}
	if g.worth != nil && l.val < g.worth[l.cpu/g.cpuStep*(worthSteps+1)+l.mem/g.memStep] {
		return
	}
	g.list = append(g.list, l)
	if len(g.list) >= heldLabels {
		g.list = g.thin(g.list)
		g.weigh()
	}
}

// weigh computes the minimum value of a set to be kept.
func (g *gather) weigh() {
	g.cpuStep, g.memStep = g.q.cpu/worthSteps+1, g.q.mem/worthSteps+1
	g.worth = make([]int64, (worthSteps+1)*(worthSteps+1))
	for i := range g.list {
		l := &g.list[i]
		c, m := (l.cpu+g.cpuStep-1)/g.cpuStep, (l.mem+g.memStep-1)/g.memStep
		at := c*(worthSteps+1) + m
		g.worth[at] = max(g.worth[at], l.val)
	}
	for c := range worthSteps + 1 {
		for m := range worthSteps + 1 {
			at := c*(worthSteps+1) + m
			if c > 0 {
				g.worth[at] = max(g.worth[at], g.worth[at-worthSteps-1])
			}
			if m > 0 {
				g.worth[at] = max(g.worth[at], g.worth[at-1])
			}
		}
	}
}

// thin drops dominated sets. While there are still too many, it rounds their needs down to fewer
// and fewer steps.
func (g *gather) thin(list []label) []label {
	list = undominated(list)
	for steps := int64(1024); len(list) > mostLabels && steps >= 8; steps /= 2 {
		cpu, mem := max(1, g.q.cpu/steps), max(1, g.q.mem/steps)
		for i := range list {
			list[i].cpu -= list[i].cpu % cpu
			list[i].mem -= list[i].mem % mem
		}
		list = undominated(list)
	}
	return list
}

// done keeps the sets and sorts them by descending gain.
func (g *gather) done() []label {
	list := g.q.keep(g.thin(g.list), false)
	return g.q.byGain(list)
}

func (q *pricing) byGain(list []label) []label {
	for i := range list {
		list[i].gain = q.gain(&list[i])
	}
	slices.SortStableFunc(list, func(a, b label) int { return cmp.Compare(b.gain, a.gain) })
	return list
}

// meet returns the sets worth more than the threshold, the most valuable first; false if the search
// was given up.
func (q *pricing) meet(fills []label, most int) ([]found, bool) {
	empty := []label{{left: nothing, right: nothing}}
	one := make([]label, 0, len(fills))
	for i := range fills {
		if q.hopeful(q.gain(&fills[i]), 1) {
			one = append(one, fills[i])
		}
	}
	one = q.byGain(one)
	bare, ok := q.bare()
	if !ok {
		return nil, false
	}
	byGPUs := make([][]label, q.gpus+1)
	byGPUs[0] = empty
	upTo := q.half()
	multi := map[int][]label{} // by GPUs
	for i, it := range q.items {
		if it.gpus > 1 {
			l := q.keep([]label{{cpu: it.cpu, mem: it.mem, val: it.price, left: nothing, right: int32(i)}}, true)
			multi[it.gpus] = q.byGain(append(multi[it.gpus], l...))
		}
	}
	for k := 1; k <= upTo; k++ {
		g := &gather{q: q, list: slices.Clone(byGPUs[k-1])}
		for i := range g.list {
			g.list[i].right = nothing
		}
		if !q.cross(g, byGPUs[k-1], one, k) {
			return nil, false
		}
		for size := 2; size <= k; size++ {
			if !q.cross(g, byGPUs[k-size], multi[size], k) {
				return nil, false
			}
		}
		byGPUs[k] = g.done()
	}
	var pairs []pair
	search := func(a, b []label, k int) bool {
		g := &gather{q: q}
		if !q.cross(g, a, bare, k) {
			return false
		}
		pairs = append(pairs, q.pairs(g.done(), b)...)
		return true
	}
	for k := (q.gpus + 1) / 2; k <= max(upTo, (q.gpus+1)/2); k++ {
		if !search(byGPUs[k], byGPUs[q.gpus-k], k) {
			return nil, false
		}
	}
	for size := q.gpus/2 + 1; size <= q.gpus; size++ {
		if len(multi[size]) > 0 && size > upTo && !search(multi[size], byGPUs[q.gpus-size], size) {
			return nil, false
		}
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return cmp.Compare(b.val, a.val) })
	var sets []found
	for _, p := range pairs[:min(most, len(pairs))] {
		sets = append(sets, found{p.val, q.spell(p.a, p.b)})
	}
	return sets, true
}

// half is the number of GPUs up to which sets are built, so that any set on a machine, except items
// of more than half of it, divides into two of these.
func (q *pricing) half() int {
	largest, even := 1, q.gpus%2 == 0
	for _, it := range q.items { // the largest first
		if it.gpus < 2 {
			break
		}
		if it.gpus > q.gpus/2 {
			continue
		}
		if largest == 1 {
			largest, even = it.gpus, even && q.gpus/2%it.gpus == 0
		}
	}
	// If each size divides the next, they fill one half exactly.
	last := q.gpus / 2
	for _, it := range q.items {
		if it.gpus > 1 && it.gpus <= q.gpus/2 {
			even = even && last%it.gpus == 0
			last = it.gpus
		}
	}
	if even {
		return q.gpus / 2
	}
	return (q.gpus + largest) / 2
}

// cross combines every set of one list with every set of another, if the result is hopeful on k
// GPUs. The second list is sorted by gain.
func (q *pricing) cross(g *gather, as, bs []label, k int) bool {
	for i := range as {
		a := &as[i]
		for j := range bs {
			b := &bs[j]
			if !q.hopeful(a.gain+b.gain, k) {
				break
			}
			if q.work--; q.work < 0 {
				return false
			}
			if a.cpu+b.cpu <= q.cpu && a.mem+b.mem <= q.mem {
				g.join(a, b)
			}
		}
	}
	return true
}

// bare lists the sets of items that need no GPU, by gain.
func (q *pricing) bare() ([]label, bool) {
	all := []label{{left: nothing, right: nothing}}
	for i, it := range q.items {
		if !it.bare() {
			continue
		}
		one := q.keep([]label{{cpu: it.cpu, mem: it.mem, val: it.price, left: nothing, right: int32(i)}}, true)
		one = q.byGain(one)
		next := all
		for range it.most {
			g := &gather{q: q}
			if !q.cross(g, next, one, 0) {
				return nil, false
			}
			if next = g.done(); len(next) == 0 {
				break
			}
			both := &gather{q: q, list: slices.Concat(all, next)}
			all = q.byGain(both.thin(both.list))
			next = slices.Clone(next)
		}
	}
	return all, true
}

// pair is two sets that together fill a machine.
type pair struct {
	a, b int32
	val  int64
}

// pairs finds for each set of the first list the best one of the second that fits with it.
func (q *pricing) pairs(as, bs []label) []pair {
	byCPU := func(a, b label) int { return cmp.Compare(a.cpu, b.cpu) }
	as, bs = slices.Clone(as), slices.Clone(bs)
	slices.SortStableFunc(as, byCPU)
	slices.SortStableFunc(bs, byCPU)
	mems := make([]int64, 0, len(bs))
	for i := range bs {
		mems = append(mems, bs[i].mem)
	}
	mems = set(mems)
	// best holds the largest value of the sets with memory up to some step, as a Fenwick tree ("A
	// new data structure for cumulative frequency tables", 1994) with the maximum in place of the
	// sum.
	best := make([]int, len(mems)+1) // index into bs plus one; 0 for none
	better := func(i, j int) int {
		if i == 0 || j != 0 && bs[j-1].val > bs[i-1].val {
			return j
		}
		return i
	}
	var list []pair
	in := 0
	for i := len(as) - 1; i >= 0; i-- {
		a := &as[i]
		for ; in < len(bs) && bs[in].cpu+a.cpu <= q.cpu; in++ {
			at, _ := slices.BinarySearch(mems, bs[in].mem)
			for at++; at <= len(mems); at += at & -at {
				best[at] = better(best[at], in+1)
			}
		}
		at, ok := slices.BinarySearch(mems, q.mem-a.mem)
		if ok {
			at++
		}
		top := 0
		for ; at > 0; at -= at & -at {
			top = better(top, best[at])
		}
		if top > 0 && a.val+bs[top-1].val > q.threshold {
			list = append(list, pair{a.id(), bs[top-1].id(), a.val + bs[top-1].val})
		}
	}
	return list
}

// mulDivUp is [domain.MulDiv] rounded up.
func mulDivUp(a, b, c int64) int64 {
	n, rest := domain.MulDiv(a, b, c)
	if rest > 0 {
		n++
	}
	return n
}
