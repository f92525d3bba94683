package joint

import (
	"container/heap"
	"context"
	"encoding/binary"
	"math"
	"math/big"
	"slices"

	"quartermaster/domain/procurement"
)

// Work that waits is a flow between the hours of its window. The cost of an hour is convex in what
// runs in it, and work can only be put off. So it is placed from the last hour of a window to the
// first, each part where the next unit costs least (greedy in a laminar family of sets, Federgruen
// and Groenevelt, 1986). A further part then costs as much in every hour in which one runs, as far
// as work can be moved between them; these prices of the hours prove the bound (see [Leaf]). With
// several demands that wait, each is placed in turn around the others, until nothing changes.

const (
	placings = 4  // of each demand, where several wait
	settling = 4  // more of them for purchases that are compared
	settled  = 12 // and for those that are chosen
)

// waits reports whether some demand may be put off.
func (p *Problem) waits() bool {
	return slices.ContainsFunc(p.Demands, func(d Demand) bool { return d.Window > 0 })
}

// most is, by slot, the most units of each demand that may have to be served there.
func (p *Problem) most(c *Case) [][]int {
	out := make([][]int, len(c.Slots))
	carried := make([]int, len(p.Demands))
	waits := p.waits()
	for i := range c.Slots {
		s := &c.Slots[i]
		if out[i] = s.Units; !waits {
			continue
		}
		out[i] = slices.Clone(s.Units)
		for d := range p.Demands {
			if w := p.Demands[d].Window; w > 0 && i%w == 0 {
				carried[d] = 0
			}
			out[i][d] += carried[d]
			if s.Waits != nil {
				carried[d] += s.Waits[d]
			}
		}
	}
	return out
}

// windows is when the work of a case runs, and the prices that prove it.
type windows struct {
	loads   []int64   // slots × demands: what is served, in fractions of the grid
	vectors []*Vector // that prove the slots
	slots   []int32   // by slot: its vector
	tallies []tally   // by vector
	rises   int       // found, a measure of work
}

// proven is the vectors that prove a case, and by slot which of them.
func (pd *priced) proven() ([]*Vector, []int32) {
	if pd.windows != nil {
		return pd.windows.vectors, pd.windows.slots
	}
	out := make([]*Vector, len(pd.entries))
	for i, e := range pd.entries {
		out[i], _ = pd.regime.proves(e)
	}
	return out, pd.slots
}

// fill writes the right-hand side of a slot that serves loads.
func (g *regime) fill(slot, loads []int64, grid int64) {
	k := g.demands
	for i, u := range loads {
		slot[i] = -u
		if g.spotShare[i] < 0 {
			continue
		}
		of := &g.block.p.Demands[g.block.Demands[i]]
		if slot[k] = u / grid * int64(of.Interruptible) / 1000 * grid; of.Window > 0 {
			slot[k] = scale(u, int64(of.Interruptible), 1000)
		}
		k++
	}
}

// curve is what further work of a demand costs in an hour, beyond what has to be served there.
type curve struct {
	loads []int64 // by demand, to begin with
	rises []rise
	sum   int64 // their lengths
}

// rise is a length of work, in fractions of the grid, with the same price for each unit of it and
// the same best basis.
type rise struct {
	length, price int64
	entry         *entry
}

// placing places the work of one demand.
type placing struct {
	g      *regime
	q      *query
	demand int
	rows   []int
	slot   []int64
	most   int64 // work of a window
	curves map[string]*curve
	hours  []placed // by slot
	rises  int      // found, a measure of work
}

// placed is an hour of the window: its curve, and how much of which rise is taken.
type placed struct {
	*curve
	rise  int
	taken int64 // of it
	load  int64 // all that runs
}

// schedule finds when the work of a view runs at least cost.
func (g *regime) schedule(ctx context.Context, q *query, v *view) (*windows, error) {
	b, n := g.block, g.demands
	out := &windows{loads: make([]int64, len(v.units))}
	rows := make([]int, 0, 2*n)
	for i := range n {
		rows = append(rows, i)
	}
	for i := range n {
		if g.spotShare[i] >= 0 {
			rows = append(rows, g.spotShare[i])
		}
	}
	var order []*placing
	for i, d := range b.Demands {
		window := b.p.Demands[d].Window
		most := int64(0)
		for s := 0; window > 0 && s < len(v.hours); s += window {
			sum := int64(0)
			for k := s; k < min(s+window, len(v.hours)); k++ {
				sum += v.waits[k*n+i]
				q.most = max(q.most, (sum+v.units[k*n+i])*q.grid)
			}
			most = max(most, sum*q.grid)
		}
		if most > 0 {
			order = append(order, &placing{g: g, q: q, demand: i, rows: rows, slot: make([]int64, len(rows)), most: most})
		}
	}
	for k, u := range v.units {
		out.loads[k] = u * q.grid
	}
	for range placings {
		before := slices.Clone(out.loads)
		for _, x := range order {
			if err := x.place(ctx, v, out.loads, 0); err != nil {
				return nil, err
			}
		}
		if len(order) < 2 || slices.Equal(before, out.loads) {
			break
		}
	}
	for _, x := range order {
		out.rises += x.rises
	}
	if len(order) == 0 {
		order = []*placing{nil}
	}
	var best *windows // whose prices prove most
	for _, x := range order {
		w := &windows{loads: out.loads, rises: out.rises, slots: make([]int32, len(v.hours))}
		if err := w.prove(g, q, v, x, rows); err != nil {
			return nil, err
		}
		if best == nil || w.value(g, q) > best.value(g, q) {
			best = w
		}
	}
	if q.rounds > 0 && len(order) > 1 {
		if err := g.settle(ctx, q, v, order, best, rows); err != nil {
			return nil, err
		}
	}
	return best, ctx.Err()
}

// settle places the work of each demand again, with ties between hours broken otherwise in each round: work
// that could run elsewhere at the same cost may be in the way of others. It stops where the prices prove
// the cost, or two rounds save nothing.
func (g *regime) settle(ctx context.Context, q *query, v *view, order []*placing, w *windows, rows []int) error {
	const near = 1e-7 // of the cost
	cost, err := g.serves(q, v, w.loads, rows)
	if err != nil {
		return err
	}
	proven, idle := w.value(g, q), 0
	for round := 0; round < q.rounds && idle < 2 && cost-proven > float64(near*cost); round++ {
		for _, x := range order {
			before := x.rises
			if err := x.place(ctx, v, w.loads, round+1); err != nil {
				return err
			}
			w.rises += x.rises - before
		}
		now, err := g.serves(q, v, w.loads, rows)
		if err != nil {
			return err
		}
		if idle++; now < cost-float64(near*cost) {
			cost, idle = now, 0
		}
	}
	return nil
}

// serves is approximately what it costs to serve loads.
func (g *regime) serves(q *query, v *view, loads []int64, rows []int) (float64, error) {
	n, sum, slot := g.demands, 0.0, make([]int64, len(rows))
	var e *entry
	for s, hours := range v.hours {
		g.fill(slot, loads[s*n:(s+1)*n], q.grid)
		var err error
		if e, err = g.solve(q, e, slot, rows); err != nil {
			return 0, err
		}
		e.level(q)
		cost := e.floor
		for k, row := range rows {
			cost += float64(e.value[row] * float64(slot[k]))
		}
		sum += float64(cost*float64(hours)) / float64(q.grid)
	}
	return sum, nil
}

// place puts the demand's work where it costs least beside the loads of the others, and writes its
// loads. turn says which of several hours comes first in which it costs the same.
func (x *placing) place(ctx context.Context, v *view, loads []int64, turn int) error {
	n, i := x.g.demands, x.demand
	window := x.g.block.p.Demands[x.g.block.Demands[i]].Window
	x.curves, x.hours = map[string]*curve{}, make([]placed, len(v.hours))
	var key []byte
	for from := 0; from < len(v.hours); from += window {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := min(from+window, len(v.hours))
		if !slices.ContainsFunc(v.waits[from*n:to*n], func(w int64) bool { return w > 0 }) {
			continue
		}
		open := next{of: x.hours, turn: turn}
		for s := to - 1; s >= from; s-- {
			at := loads[s*n : (s+1)*n]
			at[i] = (v.units[s*n+i] - v.waits[s*n+i]) * x.q.grid
			key = key[:0]
			for _, u := range at {
				key = binary.AppendUvarint(key, uint64(u))
			}
			c := x.curves[string(key)]
			if c == nil {
				c = &curve{loads: slices.Clone(at)}
				x.curves[string(key)] = c
			}
			x.hours[s].curve = c
			if err := x.rise(&x.hours[s]); err != nil {
				return err
			}
			heap.Push(&open, s)
			for left := v.waits[s*n+i] * x.q.grid; left > 0; {
				h := &x.hours[open.hours[0]]
				take := min(left, h.rises[h.rise].length-h.taken)
				h.taken, h.load, left = h.taken+take, h.load+take, left-take
				if h.taken == h.rises[h.rise].length {
					h.rise, h.taken = h.rise+1, 0
					if err := x.rise(h); err != nil {
						return err
					}
					if h.rise == len(h.rises) { // it can take no more than there is
						heap.Pop(&open)
						continue
					}
				}
				heap.Fix(&open, 0)
			}
		}
		for s := from; s < to; s++ {
			loads[s*n+i] += x.hours[s].load
		}
	}
	return nil
}

// rise extends an hour's curve to the rise that is next, unless all work is on it.
func (x *placing) rise(h *placed) error {
	c := h.curve
	if h.rise < len(c.rises) || c.sum >= x.most {
		return nil
	}
	g, q, d := x.g, x.q, x.demand
	at := slices.Clone(c.loads)
	look := func(by int64) {
		at[d] = c.loads[d] + c.sum + by
		g.fill(x.slot, at, q.grid)
	}
	var before *entry
	if n := len(c.rises); n > 0 {
		before = c.rises[n-1].entry
	}
	look(1)
	e, err := g.solve(q, before, x.slot, x.rows)
	if err != nil {
		return err
	}
	r := rise{length: 1, price: x.price(e), entry: e}
	if look(0); x.begins(e) {
		r.length = max(1, x.reach(e, x.most-c.sum, look))
	}
	x.rises++
	if n := len(c.rises); n > 0 {
		r.price = max(r.price, c.rises[n-1].price) // apart from rounding it is
	}
	c.rises, c.sum = append(c.rises, r), c.sum+r.length
	return nil
}

// price is what a unit of work costs where an entry serves it.
func (x *placing) price(e *entry) int64 {
	v := -e.value[x.demand]
	if row := x.g.spotShare[x.demand]; row >= 0 {
		v += float64(e.value[row]*float64(x.interruptible())) / 1000
	}
	return int64(min(max(0, math.Round(v)), maxVector))
}

func (x *placing) interruptible() int64 {
	return int64(x.g.block.p.Demands[x.g.block.Demands[x.demand]].Interruptible)
}

// begins reports whether an entry serves what look has looked at; in large numbers, up to rounding,
// because only the price depends on it.
func (x *placing) begins(e *entry) bool {
	if x.g.prepare(e, x.q); e.base != nil || e.near == nil {
		return x.g.holds(e, x.q, x.slot, x.rows)
	}
	for i := range x.g.rows {
		if v, size, _ := x.roughly(e, i); v < -1e-9*size {
			return false
		}
	}
	return true
}

// roughly is the value of an entry's i-th column, the sum of magnitudes in it, and by how much it
// falls with each fraction of work.
func (x *placing) roughly(e *entry, i int) (v, size, falls float64) {
	v, size = e.rough[i], e.error[i]
	a := e.near[i*x.g.rows : (i+1)*x.g.rows]
	for k, row := range x.rows {
		d := float64(a[row] * float64(x.slot[k]))
		v += d
		size += math.Abs(d)
	}
	falls = a[x.demand]
	if share := x.g.spotShare[x.demand]; share >= 0 {
		falls -= float64(a[share]*float64(x.interruptible())) / 1000
	}
	return v, size, falls
}

// reach is how much further work, up to most, an entry serves from where look has looked.
func (x *placing) reach(e *entry, most int64, look func(int64)) int64 {
	g := x.g
	if e.base == nil && e.near != nil {
		for i := range g.rows {
			v, size, falls := x.roughly(e, i)
			if falls > 0 && float64(falls*float64(most)) > v+float64(1e-9*size) {
				most = max(0, int64(v/falls))
			}
		}
		return most
	}
	if e.base == nil { // bisect
		low, high := int64(0), most
		for low < high {
			mid := low + (high-low+1)/2
			if look(mid); g.holds(e, x.q, x.slot, x.rows) {
				low = mid
			} else {
				high = mid - 1
			}
		}
		return low
	}
	share := g.spotShare[x.demand]
	for i, v := range e.base {
		a := e.small[i*g.rows : (i+1)*g.rows]
		for k, row := range x.rows {
			v += a[row] * x.slot[k]
		}
		falls := 1000 * a[x.demand]
		if share >= 0 {
			falls -= a[share] * x.interruptible()
		}
		if falls > 0 {
			most = min(most, scale(max(0, v), 1000, falls))
		}
	}
	return most
}

// next is a heap of the hours of a window, with the one first in which the next unit costs least.
type next struct {
	of    []placed
	hours []int
	turn  int // of hours that cost the same, 0: the first, 1: the last, else any order
}

func (n *next) Len() int { return len(n.hours) }
func (n *next) Less(i, j int) bool {
	a, b := &n.of[n.hours[i]], &n.of[n.hours[j]]
	p, q := a.rises[a.rise].price, b.rises[b.rise].price
	return p < q || p == q && n.rank(n.hours[i]) < n.rank(n.hours[j])
}

// rank orders hours that cost the same: from the third turn on by a hash (Steele, Lea and Flood, 2014).
func (n *next) rank(hour int) uint64 {
	switch n.turn {
	case 0:
		return uint64(hour)
	case 1:
		return math.MaxUint64 - uint64(hour)
	}
	x := uint64(hour)*0x9e3779b97f4a7c15 + uint64(n.turn)*0xbf58476d1ce4e5b9
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (n *next) Swap(i, j int) { n.hours[i], n.hours[j] = n.hours[j], n.hours[i] }

// Push implements heap.Interface.
func (n *next) Push(x any) { n.hours = append(n.hours, x.(int)) }

// Pop implements heap.Interface.
func (n *next) Pop() any {
	last := len(n.hours) - 1
	x := n.hours[last]
	n.hours = n.hours[:last]
	return x
}

// value is approximately what the prices prove of serving the case.
func (w *windows) value(g *regime, q *query) float64 {
	sum := 0.0
	for i := range w.tallies {
		t := &w.tallies[i]
		for d, u := range t.units {
			sum += float64(float64(t.worth.lambda[d])*float64(u)) - float64(float64(t.worth.mu[d])*float64(t.share[d]))
		}
		each := 0.0
		has := func(row int, price float64) {
			if row >= 0 {
				each += float64(price * float64(q.r[row]))
			}
		}
		for k := range g.pools {
			has(g.demands+k, float64(t.worth.pi[k]))
			has(g.spot[k], float64(t.worth.zeta[k]))
			has(g.discountOnly[k], float64(t.worth.beta[k]))
		}
		for k := range g.quota {
			has(g.quota[k], float64(t.worth.kappa[k]))
		}
		for k := range g.spend {
			v, _ := new(big.Float).SetInt(t.worth.rho[k]).Float64()
			has(g.spend[k], v/1e9)
		}
		sum -= float64(each*float64(t.hours)) / float64(q.grid)
	}
	return sum
}

// prove finds prices for each hour. Those of one demand are such that no part of its work costs less
// in another hour to which it can be moved.
func (w *windows) prove(g *regime, q *query, v *view, last *placing, rows []int) error {
	type between struct {
		low, high *entry
		at        int64
	}
	place := map[between]int32{}
	use := func(s int, k between) {
		at, ok := place[k]
		if !ok {
			at = int32(len(w.vectors))
			place[k] = at
			vector, of := g.proves(k.low)
			if k.high != nil {
				low, high := last.price(k.low), last.price(k.high)
				most, _ := g.proves(k.high)
				vector = mixed(vector, most, min(1, float64(max(0, k.at-low))/float64(max(1, high-low))))
				of = g.prices.worth(g.block, vector)
			}
			w.vectors = append(w.vectors, vector)
			w.tallies = append(w.tallies, tally{worth: of, units: make([]int64, g.demands), share: make([]int64, g.demands)})
		}
		w.slots[s] = at
	}
	n := g.demands
	slot := make([]int64, len(rows))
	window := len(v.hours)
	if last != nil {
		window = g.block.p.Demands[g.block.Demands[last.demand]].Window
	}
	var before *entry
	for from := 0; from < len(v.hours); from += window {
		to := min(from+window, len(v.hours))
		if last == nil || last.hours[from].curve == nil { // nothing waits
			for s := from; s < to; s++ {
				g.fill(slot, w.loads[s*n:(s+1)*n], q.grid)
				e, err := g.solve(q, before, slot, rows)
				if err != nil {
					return err
				}
				before = e
				use(s, between{low: e})
			}
			continue
		}
		price := int64(-1)
		for first := from; first < to; {
			// Work moves freely within hours [first, end): some of it is still waiting after each
			// but the last.
			end, open := first, int64(0)
			for {
				h := &last.hours[end]
				open += v.waits[end*n+last.demand]*q.grid - h.load
				if low := h.low(); low != nil {
					price = max(price, low.price)
				}
				if end++; open == 0 || end == to {
					break
				}
			}
			for s := first; s < end; s++ {
				h := &last.hours[s]
				low, high := h.low(), h.high()
				switch {
				case low == nil || high != nil && price >= high.price:
					use(s, between{low: high.entry})
				case high == nil || price <= low.price:
					use(s, between{low: low.entry})
				default:
					use(s, between{low.entry, high.entry, price})
				}
			}
			first = end
		}
	}
	g.block.spread(v, w.tallies, w.slots)
	return nil
}

// low and high are the rise of the last part that runs in the hour, and that of the next one; nil if
// there is none.
func (h *placed) low() *rise {
	switch {
	case h.taken > 0:
		return &h.rises[h.rise]
	case h.rise > 0:
		return &h.rises[h.rise-1]
	}
	return nil
}

func (h *placed) high() *rise {
	if h.rise < len(h.rises) {
		return &h.rises[h.rise]
	}
	return nil
}

// mixed is a vector between two others.
func mixed(a, b *Vector, share float64) *Vector {
	between := func(a, b []procurement.Nano, n int) []procurement.Nano {
		if a == nil && b == nil {
			return nil
		}
		out := make([]procurement.Nano, n)
		if a != nil {
			copy(out, a)
		}
		for i := range out {
			to := procurement.Nano(0)
			if b != nil {
				to = b[i]
			}
			out[i] += procurement.Nano(math.Round(float64(to-out[i]) * share))
		}
		return out
	}
	return &Vector{
		Firm: between(a.Firm, b.Firm, len(a.Firm)), Spot: between(a.Spot, b.Spot, len(a.Firm)),
		Quota: between(a.Quota, b.Quota, max(len(a.Quota), len(b.Quota))),
	}
}

// spread adds a case's hours to the tallies of their vectors, and work that waits to that of the hour
// in which it is worth least.
func (b *block) spread(v *view, of []tally, slots []int32) {
	if v.waits == nil {
		return
	}
	n := len(b.Demands)
	for s, hours := range v.hours {
		t := &of[slots[s]]
		t.hours += hours
		for i, d := range b.Demands {
			u := v.units[s*n+i]
			t.units[i] += (u - v.waits[s*n+i]) * hours
			t.share[i] += u * int64(b.p.Demands[d].Interruptible) / 1000 * hours
		}
	}
	for i, d := range b.Demands {
		window := b.p.Demands[d].Window
		for from := 0; window > 0 && from < len(v.hours); from += window {
			least := -1
			for s := min(from+window, len(v.hours)) - 1; s >= from; s-- {
				if least < 0 || of[slots[s]].worth.lambda[i] < of[slots[least]].worth.lambda[i] {
					least = s
				}
				of[slots[least]].units[i] += v.waits[s*n+i]
			}
		}
	}
}

// runs is how much of the work that waits runs in each hour, where the grid is Grain.
func (w *windows) runs(b *block, v *view, m, c int) []Run {
	var out []Run
	n := len(b.Demands)
	for i, d := range b.Demands {
		r := Run{Epoch: m, Case: c, Demand: d}
		some := false
		for s := range v.hours {
			some = some || v.waits[s*n+i] > 0
			r.Units = binary.AppendUvarint(r.Units, uint64(w.loads[s*n+i]-(v.units[s*n+i]-v.waits[s*n+i])*Grain))
		}
		if some {
			out = append(out, r)
		}
	}
	return out
}
