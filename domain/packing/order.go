package packing

import (
	"cmp"
	"slices"
)

// order is one greedy heuristic: the sequence of replicas, and the choice of machine. Gangs come
// first, then dedicated demands, which need machines of their own, then demands that keep clusters
// apart. Demands without GPUs come last.
type order struct {
	name string
	// by compares demands. Ties go to the lower number.
	by func(p *problem, a, b int) int
	// mixed spreads each demand of less than half a machine evenly over the sequence among those
	// that by finds equal, so that demands large in one resource meet demands large in another.
	// Otherwise equal demands follow one another.
	mixed bool
	fit   fit
	open  open
}

// fit is how the machine is chosen.
type fit int

const (
	fitSnug fit = iota // the least left over, weighted by scarcity
	fitNorm            // the smallest sum of squares left over
	fitFrag            // the smallest growth of stranded GPUs
)

// open is when a machine is opened on which nothing was placed yet.
type open int

const (
	openAny   open = iota // whenever it is the best
	openSnug              // if no opened one takes the replica, then the best
	openLarge             // likewise, then the one with the most left
)

func byShare(p *problem, a, b int) int { return cmp.Compare(p.share(b), p.share(a)) }

func byGPU(p *problem, a, b int) int {
	x, y := &p.demands[a], &p.demands[b]
	return cmp.Or(cmp.Compare(y.gpuMilli(), x.gpuMilli()), cmp.Compare(y.cpu, x.cpu), cmp.Compare(y.mem, x.mem))
}

// byRoom puts first the demands that the fewest GPUs may take.
func byRoom(p *problem, a, b int) int { return cmp.Compare(p.room[a], p.room[b]) }

func byRoomAndShare(p *problem, a, b int) int { return cmp.Or(byRoom(p, a, b), byShare(p, a, b)) }

func byNothing(*problem, int, int) int { return 0 }

// one is a whole machine when shares of machines are compared.
const one = 1 << 15

// shares returns what a replica takes of each resource, in shares of the largest machine, capped at
// twice that.
func (p *problem) shares(demand int) (gpu, cpu, mem int64) {
	d := &p.demands[demand]
	at := func(x, ref int64) int64 { return min(x, 2*ref) * one / ref }
	return at(d.gpuMilli(), p.refGPU), at(d.cpu, p.refCPU), at(d.mem, p.refMem)
}

func (p *problem) share(demand int) int64 {
	g, c, m := p.shares(demand)
	return max(g, c, m)
}

// prepare computes what orders use.
func (p *problem) prepare() {
	p.room = make([]int64, len(p.demands))
	for i := range p.demands {
		for c := range p.classes {
			if k := &p.classes[c]; p.takes(c, i) {
				p.room[i] = min(p.room[i]+int64(k.n)*max(1, k.empty.freeMilli()), 1<<60)
			}
		}
	}

	var need, have [3]int64 // in shares of the largest machine, rounded up
	for i := range p.demands {
		g, c, m := p.shares(i)
		n := int64(p.demands[i].replicas)
		if p.room[i] == 0 {
			continue
		}
		need[0], need[1], need[2] = need[0]+(g+1)*n, need[1]+(c+1)*n, need[2]+(m+1)*n
	}
	for i := range p.classes {
		k := &p.classes[i]
		n := int64(k.n)
		if k.n >= unbounded {
			n = 1
		}
		have[0] += n * (k.empty.freeMilli()*one/p.refGPU + 1)
		have[1] += n * (k.empty.cpu*one/p.refCPU + 1)
		have[2] += n * (k.empty.mem*one/p.refMem + 1)
	}
	top := int64(1)
	for r := range need {
		need[r] = need[r] * 1000 / max(1, have[r])
		top = max(top, need[r])
	}
	for r := range need {
		p.scarce[r] = 1 + need[r]*1000/top
	}

	// Where an order weighs fragmentation at every step, the demands for the most GPUs represent
	// all.
	heavy := p.everyDemand()
	slices.SortStableFunc(heavy, func(a, b int) int {
		x, y := &p.demands[a], &p.demands[b]
		return cmp.Compare(y.gpuMilli()*int64(y.replicas), x.gpuMilli()*int64(x.replicas))
	})
	p.mix = p.mixtures(heavy[:min(len(heavy), heaviest)])
}

const heaviest = 256

// fragWork is the number of extra weighings that one look at fragmentation counts as.
const fragWork = 15

func (s *state) freeMilli() int64 {
	var free int64
	for _, f := range s.free {
		free += int64(f)
	}
	return free
}

// step is some replicas of a demand, placed together.
type step struct {
	demand, n int
	rank      int
	late      int64 // position of one replica in the sequence, as a fraction of one
}

// pieces is the approximate largest number of steps, so that time does not grow with the number of
// replicas.
const pieces = 1 << 14

// steps lists what to place in an order, in sequence.
func (p *problem) steps(o *order) []step {
	var steps []step
	all := 0
	for i := range p.demands {
		all += p.demands[i].replicas
	}
	for i := range p.demands {
		d := &p.demands[i]
		if d.gang != "" {
			continue // placed before all others
		}
		s := step{demand: i, n: d.replicas, late: -1}
		switch {
		case d.dedicated:
			s.rank = 0
		case len(d.apartCluster) > 0:
			s.rank = 1
		case d.gpuMilli() > 0:
			s.rank = 2
		default:
			s.rank = 3
		}
		if !o.mixed || p.share(i) >= one/2 || d.replicas == 0 {
			steps = append(steps, s)
			continue
		}
		// Demands start at different points, or all would meet at each turn: multiples of the
		// golden ratio are spread evenly wherever the sequence stops.
		phase := int64(i) * 20251 % one
		n := (d.replicas-1)/(all/pieces+1) + 1
		for k := range n {
			s.n = d.replicas*(k+1)/n - d.replicas*k/n
			s.late = (int64(k)*one + phase) / int64(n)
			steps = append(steps, s)
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int {
		if a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		if c := o.by(p, a.demand, b.demand); c != 0 {
			return c
		}
		if a.late != b.late {
			return cmp.Compare(a.late, b.late)
		}
		return byShare(p, a.demand, b.demand)
	})
	return steps
}

// run places everything in an order.
func (p *problem) run(o *order) *run {
	r := p.start(o)
	r.placeGangs()
	for _, s := range p.steps(o) {
		r.left[s.demand] += r.place(s.demand, s.n) - s.n
	}
	return r
}

// weigh scores a machine for one more replica of a demand; false if it cannot be there.
func (r *run) weigh(s *state, demand int) (choice, bool) {
	r.work++
	if r.refuses(s, demand) != "" {
		return choice{}, false
	}
	d := &r.p.demands[demand]
	c := choice{at: s}
	if r.order.open != openAny && !s.used {
		c.tier = 1
	}
	if r.closes(s, demand) {
		c.tier += 2 // rather not close one more cluster to others
	}
	if d.profiles != nil {
		c.from, _ = s.wherever(d.profiles[s.class])
		if _, before := decode(c.from); before == 0 {
			c.tier += 4 // rather not divide one more GPU
		}
	}
	if d.part > 0 { // the fullest GPU that takes it
		i := len(s.free) - 1
		for s.free[i] < d.part {
			i--
		}
		c.from = s.free[i]
	}
	c.score[1] = r.snug(s)
	switch r.order.fit {
	case fitNorm:
		c.score[0] = r.norm(s, demand)
	case fitFrag:
		r.work += fragWork
		c.from, c.score[0] = r.frag(s, demand, c.from)
	}
	if r.order.open == openLarge && !s.used {
		c.score = [2]int64{-c.score[1], c.score[0]}
	}
	return c, true
}

// remains returns what is left of a machine, in shares of the largest one.
func (p *problem) remains(s *state) (gpu, cpu, mem int64) {
	return s.freeMilli() * one / p.refGPU, s.cpu * one / p.refCPU, s.mem * one / p.refMem
}

func (r *run) snug(s *state) int64 {
	g, c, m := r.p.remains(s)
	return g*r.p.scarce[0] + c*r.p.scarce[1] + m*r.p.scarce[2]
}

func (r *run) norm(s *state, demand int) int64 {
	g, c, m := r.p.remains(s)
	dg, dc, dm := r.p.shares(demand)
	g, c, m = g-dg, c-dc, m-dm
	return g*g/one*r.p.scarce[0] + c*c/one*r.p.scarce[1] + m*m/one*r.p.scarce[2]
}

// frag returns the increase of stranded GPUs by one more replica, and the GPU to take so that it is
// least; ties go to the fullest. An instance goes where the parameter says.
func (r *run) frag(s *state, demand int, instance uint16) (from uint16, growth int64) {
	d, m := &r.p.demands[demand], &r.p.mix[s.class]
	was := r.p.strandedBy(s, m)
	if d.part == 0 {
		after := s.with(demand, d, instance)
		return instance, r.p.strandedBy(&after, m) - was
	}
	for i := len(s.free) - 1; i >= 0; i-- {
		if f := s.free[i]; f >= d.part && f != from {
			after := s.with(demand, d, f)
			if by := r.p.strandedBy(&after, m) - was; from == 0 || by < growth {
				from, growth = f, by
			}
		}
	}
	return from, growth
}

// The orders, in the order in which they are tried, cheap ones first.
var (
	packOrders = append(ordersThatOpen(openAny), ordersThatOpenLarge...)
	needOrders = append(ordersThatOpen(openSnug), ordersThatOpenLarge...)

	ordersThatOpenLarge = []order{
		{name: "mixed, snug, large first", by: byNothing, mixed: true, fit: fitSnug, open: openLarge},
		{name: "room and mixed, frag, large first", by: byRoom, mixed: true, fit: fitFrag, open: openLarge},
	}
)

func ordersThatOpen(o open) []order {
	return []order{
		{name: "share, snug", by: byShare, fit: fitSnug, open: o},
		{name: "gpu, snug", by: byGPU, fit: fitSnug, open: o},
		{name: "room and share, snug", by: byRoomAndShare, fit: fitSnug, open: o},
		{name: "share, frag", by: byShare, fit: fitFrag, open: o},
		{name: "gpu, frag", by: byGPU, fit: fitFrag, open: o},
		{name: "room and share, frag", by: byRoomAndShare, fit: fitFrag, open: o},
		{name: "mixed, snug", by: byNothing, mixed: true, fit: fitSnug, open: o},
		{name: "mixed, norm", by: byNothing, mixed: true, fit: fitNorm, open: o},
		{name: "mixed, frag", by: byNothing, mixed: true, fit: fitFrag, open: o},
		{name: "room and mixed, frag", by: byRoom, mixed: true, fit: fitFrag, open: o},
	}
}
