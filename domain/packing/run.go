package packing

import (
	"cmp"
	"container/heap"
	"math/big"
)

// run is one order in progress: machines by state, and what is left to place.
type run struct {
	p      *problem
	order  *order
	groups []*group
	byKey  map[string]*group
	left   []int // replicas, by demand
	// clusters tells which cluster holds a demand with anti-affinity to another one in its cluster.
	clusters map[clusterHolds]bool
	// gangs tells in which fabric a gang is, or is being tried.
	gangs map[string]string
	// arrivals lists groups in the order in which they gained machines, once for each time. lanes
	// holds, by demand, the choices among them.
	arrivals []*group
	lanes    []lane
	kept     int // choices in all lanes
	work     int64
	lost     *big.Int // what stranded returned
	improved bool     // by columns, see columns.go
	key      []byte
}

type clusterHolds struct{ cluster, demand, place int }

// group is machines in the same state. It may be empty.
type group struct {
	state
	n       int // machines; unbounded stands for any number
	batches []batch
}

// batch is machines with the same contents.
type batch struct {
	on *content
	n  int
}

// content is what was placed on a machine, the last first.
type content struct {
	below  *content
	demand int
	took
}

// took is consecutive replicas that took the same.
type took struct {
	from uint16 // what was free of the GPU of which a part was taken
	n    int
}

func (p *problem) start(o *order) *run {
	r := &run{
		p: p, order: o, byKey: map[string]*group{}, clusters: map[clusterHolds]bool{}, gangs: map[string]string{},
		left: make([]int, len(p.demands)), lanes: make([]lane, len(p.demands)),
	}
	for c := range p.classes {
		g := r.group(&p.classes[c].empty)
		g.n = p.classes[c].n
		g.batches = append(g.batches, batch{n: g.n})
		r.arrivals = append(r.arrivals, g)
	}
	for d := range p.demands {
		r.left[d] = p.demands[d].replicas
	}
	return r
}

// group returns the group of a state, creating it if necessary.
func (r *run) group(s *state) *group {
	r.key = s.key(r.key[:0])
	g, ok := r.byKey[string(r.key)]
	if !ok {
		g = &group{state: *s}
		r.byKey[string(r.key)] = g
		r.groups = append(r.groups, g)
	}
	return g
}

// choice is a machine for one replica of a demand.
type choice struct {
	group *group // the machine's group; nil if the machine was chosen just before
	at    *state
	from  uint16
	tier  int      // lower first
	score [2]int64 // then lower
}

// before orders choices, with ties only between machines in equal states.
func (c *choice) before(d *choice) bool {
	if k := cmp.Or(cmp.Compare(c.tier, d.tier), cmp.Compare(c.score[0], d.score[0]),
		cmp.Compare(c.score[1], d.score[1])); k != 0 {
		return k < 0
	}
	if k := c.at.compare(d.at); k != 0 {
		return k < 0
	}
	return c.from < d.from
}

type choices []choice

func (h choices) Len() int           { return len(h) }
func (h choices) Less(i, j int) bool { return h[i].before(&h[j]) }
func (h choices) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *choices) Push(x any)        { *h = append(*h, x.(choice)) }
func (h *choices) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// lane is the choices of a demand, as a heap.
type lane struct {
	open choices
	seen int  // arrivals that were weighed
	kept int  // choices that run.kept counts
	shut bool // no machine took it; machines only fill, so none ever will
}

// catchUp weighs the groups that arrived since the last call. A choice's score does not change
// while its machines stay in their state. The exception is demands that depend on clusters, which
// start anew whenever a cluster is taken.
func (r *run) catchUp(demand int) *lane {
	l := &r.lanes[demand]
	for _, g := range r.arrivals[l.seen:] {
		if g.n == 0 {
			continue
		}
		if c, ok := r.weigh(&g.state, demand); ok {
			c.group = g
			heap.Push(&l.open, c)
		}
	}
	l.seen = len(r.arrivals)
	return l
}

// mostKept is about 200 MB of choices. Beyond it they are weighed again.
const mostKept = 1 << 22

// leave drops the choices of a demand that are not needed again or are too many to keep.
func (r *run) leave(demand int, last bool) {
	l := &r.lanes[demand]
	r.kept += len(l.open) - l.kept
	l.kept = len(l.open)
	if last || r.kept > mostKept {
		r.kept -= l.kept
		*l = lane{}
	}
}

// place puts n replicas of a demand on machines, each on the one that is best at that point, and
// returns how many no machine took.
//
// Replicas are moved in bulk with the same outcome as placing them one by one. As long as a machine
// stays the best after taking one replica, it takes the next. The other, equal machines of its
// group then take as many each.
func (r *run) place(demand, n int) int {
	d := &r.p.demands[demand]
	if r.lanes[demand].shut {
		return n
	}
	asked := n
	if len(d.apartCluster) > 0 {
		r.leave(demand, true)
	}
	for n > 0 {
		l := r.catchUp(demand)
		if len(l.open) == 0 {
			break
		}
		first := heap.Pop(&l.open).(choice)
		g := first.group
		if g.n == 0 {
			continue // if machines come back to it, it arrives again
		}
		taken, each := []took{{first.from, 1}}, 1
		end := g.with(demand, d, first.from)
		if newly := r.hold(&g.state, demand); newly {
			r.move(g, &end, 1, demand, taken)
			n--
			r.leave(demand, true)
			continue
		}
		g.n-- // the machine that is being filled
		for each < n {
			next, ok := r.weigh(&end, demand)
			if !ok || g.n > 0 && !next.before(&first) || len(l.open) > 0 && !next.before(&l.open[0]) {
				break
			}
			if last := len(taken) - 1; taken[last].from == next.from {
				taken[last].n++
			} else {
				taken = append(taken, took{next.from, 1})
			}
			each++
			end = end.with(demand, d, next.from)
		}
		g.n++
		machines := min(g.n, n/each)
		r.move(g, &end, machines, demand, taken)
		n -= machines * each
		if g.n > 0 {
			heap.Push(&l.open, first)
		}
	}
	r.leave(demand, n > 0 || r.left[demand] == asked)
	r.lanes[demand].shut = n > 0
	return n
}

// move moves machines of a group to the state that they reached by taking replicas of a demand.
func (r *run) move(g *group, end *state, machines, demand int, taken []took) {
	to := r.group(end)
	if to.n == 0 {
		r.arrivals = append(r.arrivals, to)
	}
	if g.n < unbounded {
		g.n -= machines
	}
	to.n += machines
	for machines > 0 {
		last := &g.batches[len(g.batches)-1]
		b := batch{on: last.on, n: min(last.n, machines)}
		if last.n < unbounded {
			if last.n -= b.n; last.n == 0 {
				g.batches = g.batches[:len(g.batches)-1]
			}
		}
		machines -= b.n
		for _, t := range taken {
			b.on = &content{below: b.on, demand: demand, took: t}
		}
		to.batches = append(to.batches, b)
	}
}

// hold records that the cluster of a machine holds a demand, if that matters to any other, and
// reports whether it is new.
func (r *run) hold(s *state, demand int) (newly bool) {
	for _, a := range r.p.demands[demand].apartCluster {
		at := clusterHolds{r.p.classes[s.class].cluster, demand, a.place}
		if r.p.in[a.place][s.class] && !r.clusters[at] {
			r.clusters[at] = true
			newly = true
		}
	}
	return newly
}

// closes reports whether a replica of a demand would close the machine's cluster to others that may
// still come.
func (r *run) closes(s *state, demand int) bool {
	for _, a := range r.p.demands[demand].apartCluster {
		if r.p.in[a.place][s.class] && !r.clusters[clusterHolds{r.p.classes[s.class].cluster, demand, a.place}] {
			return true
		}
	}
	return false
}
