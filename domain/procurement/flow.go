package procurement

import "math"

// network is the minimum-cost flow of a pool. Its nodes are the boundaries of epochs, from 0 to the
// horizon's end. The flow from the first to the last node is the largest number of units useful in
// any epoch. A unit of flow crosses each epoch either uncovered, at the price that the epoch's
// curve has for one unit less of coverage, or along a purchase, which spans the epochs that it
// covers. Where purchases overlap to more than is useful, flow returns over an epoch without cost.
//
// It is solved by successive shortest paths with capacity scaling (Ahuja, Magnanti, Orlin: Network
// Flows, 1993, sections 10.2 and 14.5). It starts with lots of many units; their flow and prices
// start the next pass with lots of half the size, down to single units. A pass with coarse lots may
// misjudge the curves between its lots, and the last pass repairs that. All lengths are integers,
// the flow is optimal, and the prices prove it.
type network struct {
	curves []curve // by epoch
	arcs   []arc
	first  []int32 // arcs at node v are at[first[v]:first[v+1]]
	at     []int32 // an arc from v, or ^arc for one to v

	lot     int
	covered []int  // by epoch; includes what does not flow yet, and may be negative until the end
	ahead   []Nano // by epoch: unit cost of covering a lot less
	back    []Nano // unit saving of covering a lot more
	over    []int  // by node: units that arrive and do not leave; negative: missing units
	price   []Nano // by node
	pushes  int

	dist  []Nano
	via   []int32 // how a node was reached
	state []uint8
	seen  []int32 // nodes whose state is not unseen
	heap  []entry
}

// arc is a possible purchase, with epochs [from, to).
type arc struct {
	from, to int32
	limit    int
	units    int
	cost     Nano
}

const (
	unseen = iota
	reached
	settled
)

// Ways to reach a node besides arcs: forward over the preceding epoch, with one lot less covered,
// and back over the following epoch, with one lot more.
const (
	viaAhead = math.MaxInt32
	viaBack  = math.MaxInt32 - 1
)

// newNetwork takes arcs that do not change; curves and limits are set for each flow.
func newNetwork(epochs int, arcs []arc) *network {
	n := &network{
		arcs: arcs, first: make([]int32, epochs+2), at: make([]int32, 2*len(arcs)),
		covered: make([]int, epochs), ahead: make([]Nano, epochs), back: make([]Nano, epochs),
		over: make([]int, epochs+1), price: make([]Nano, epochs+1),
		dist: make([]Nano, epochs+1), via: make([]int32, epochs+1), state: make([]uint8, epochs+1),
	}
	for i := range arcs {
		n.first[arcs[i].from+1]++
		n.first[arcs[i].to+1]++
	}
	for v := range epochs + 1 {
		n.first[v+1] += n.first[v]
	}
	next := append([]int32(nil), n.first...)
	for i := range arcs {
		a := &arcs[i]
		n.at[next[a.from]], n.at[next[a.to]] = int32(i), ^int32(i)
		next[a.from]++
		next[a.to]++
	}
	return n
}

// solve finds a least-cost flow under the curves and leaves the units in the arcs. price[m+1] −
// price[m] is then the value of coverage in epoch m.
func (n *network) solve(curves []curve) {
	n.curves = curves
	useful := 0
	for m := range curves {
		useful = max(useful, curves[m].top())
	}
	n.lot = 1
	for n.lot*4 <= useful {
		n.lot *= 2
	}
	useful = (useful + n.lot - 1) / n.lot * n.lot
	for m := range n.covered {
		n.covered[m] = useful
	}
	clear(n.price)
	clear(n.over)
	for i := range n.arcs {
		n.arcs[i].units = 0
	}
	n.over[0], n.over[len(curves)] = useful, -useful
	for ; n.lot > 0; n.lot /= 2 {
		n.mend()
		for v := range n.over {
			for n.over[v] > 0 {
				n.push(v, n.search(v))
			}
		}
	}
}

// look reads the curve of an epoch for the current lot size, at the lot's middle, so that a lot's
// price from above is the next lot's price from below.
func (n *network) look(m int) {
	c := &n.curves[m]
	n.back[m] = c.at(max(0, n.covered[m]+n.lot/2))
	n.ahead[m] = c.at(max(0, n.covered[m]+n.lot/2-n.lot))
}

// mend makes every length non-negative again after the lot size was halved. This takes at most one
// lot in each epoch and along each arc.
func (n *network) mend() {
	for m := range n.curves {
		n.look(m)
		worth := n.price[m+1] - n.price[m]
		if n.ahead[m] < worth {
			n.cover(m, -n.lot)
		} else if n.back[m] > worth {
			n.cover(m, n.lot)
		}
	}
	for i := range n.arcs {
		a := &n.arcs[i]
		if a.cost < n.price[a.to]-n.price[a.from] {
			for a.limit-a.units >= n.lot {
				n.send(a, n.lot)
			}
		}
	}
}

func (n *network) cover(m, units int) {
	n.covered[m] += units
	n.over[m] += units
	n.over[m+1] -= units
	n.look(m)
}

func (n *network) send(a *arc, units int) {
	a.units += units
	n.over[a.from] -= units
	n.over[a.to] += units
}

// search finds shortest distances from a node, in lengths reduced by the prices, until it settles a
// node with missing units. It then changes the prices by the distances. Of equally near nodes the
// earliest is settled first; of equally short ways the first one found is kept.
func (n *network) search(from int) (to int) {
	for _, v := range n.seen {
		n.state[v] = unseen
	}
	n.seen, n.heap = n.seen[:0], n.heap[:0]
	n.reach(int32(from), 0, 0)
	last := int32(len(n.price) - 1)
	var e entry
	for {
		e = n.pop()
		u := e.node
		if n.state[u] == settled {
			continue
		}
		n.state[u] = settled
		if n.over[u] < 0 {
			break
		}
		base := e.dist + n.price[u]
		if u < last {
			n.reach(u+1, base+n.ahead[u]-n.price[u+1], viaAhead)
		}
		if u > 0 {
			n.reach(u-1, base-n.back[u-1]-n.price[u-1], viaBack)
		}
		for _, i := range n.at[n.first[u]:n.first[u+1]] {
			if i >= 0 {
				if a := &n.arcs[i]; a.limit-a.units >= n.lot {
					n.reach(a.to, base+a.cost-n.price[a.to], i)
				}
			} else if a := &n.arcs[^i]; a.units > 0 {
				n.reach(a.from, base-a.cost-n.price[a.from], i)
			}
		}
	}
	low := Nano(0)
	for _, v := range n.seen {
		if n.state[v] == settled {
			n.price[v] += n.dist[v] - e.dist
			low = min(low, n.price[v])
		}
	}
	if low < -2*MaxWorth { // only differences matter
		base := n.price[0]
		for v := range n.price {
			n.price[v] -= base
		}
	}
	return int(e.node)
}

func (n *network) reach(v int32, dist Nano, via int32) {
	if n.state[v] == unseen {
		n.state[v] = reached
		n.seen = append(n.seen, v)
	} else if n.state[v] == settled || dist >= n.dist[v] {
		return
	}
	n.dist[v], n.via[v] = dist, via
	n.add(entry{dist, v})
}

// push sends one lot along the path that search found.
func (n *network) push(from, to int) {
	n.pushes++
	for v := int32(to); v != int32(from); {
		switch i := n.via[v]; {
		case i == viaAhead:
			v--
			n.cover(int(v), -n.lot)
		case i == viaBack:
			n.cover(int(v), n.lot)
			v++
		case i >= 0:
			n.send(&n.arcs[i], n.lot)
			v = n.arcs[i].from
		default:
			n.send(&n.arcs[^i], -n.lot)
			v = n.arcs[^i].to
		}
	}
}

// entry of the heap: a node at a distance. Ties go to the lower node.
type entry struct {
	dist Nano
	node int32
}

func (a entry) before(b entry) bool { return a.dist < b.dist || a.dist == b.dist && a.node < b.node }

func (n *network) add(e entry) {
	h := append(n.heap, e)
	i := len(h) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !e.before(h[up]) {
			break
		}
		h[i], i = h[up], up
	}
	h[i] = e
	n.heap = h
}

func (n *network) pop() entry {
	h := n.heap
	top, e := h[0], h[len(h)-1]
	h = h[:len(h)-1]
	for i := 0; len(h) > 0; {
		down := 2*i + 1
		if down+1 < len(h) && h[down+1].before(h[down]) {
			down++
		}
		if down >= len(h) || !h[down].before(e) {
			h[i] = e
			break
		}
		h[i], i = h[down], down
	}
	n.heap = h
	return top
}
