package joint

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math/big"
	"math/bits"
	"slices"

	"quartermaster/domain/procurement"
)

// Recourse serves hours at least cost by the same linear program as [Evaluate], with prices and
// capacity given in each call instead of by a problem. It is for evaluating the same purchases in
// thousands of worlds, one after another. It is not safe for concurrent use.
//
// If several ways of serving cost the same, the chosen one depends on the hours since the last
// [Recourse.Begin] and on the seeds, and on nothing before.
type Recourse struct {
	b       *block
	shapes  map[string]*shape
	regimes map[string]*worldly
	seeds   Seeds
	world   int
	queries int
	pivots  int
	key     []byte
	slot    []int64
	sums    []int64
}

// worldly is a regime whose entries, other than the seeds, belong to one world.
type worldly struct {
	*regime
	seeds []*entry
	world int
}

// Seeds are bases that served hours well, by the signature of their shape. They may be shared.
type Seeds map[string][]*basis

// mostSeeds bounds the seeds of a shape, mostRegimes the cached prices.
const (
	mostSeeds   = 64
	mostRegimes = 512
)

// Terms are the hourly prices per unit; −1 means not sold.
type Terms struct {
	OnDemand, Spot []procurement.Nano // by pool
	Routes         []procurement.Nano // by route, for a unit of demand along it
	Shortage       []procurement.Nano // by demand
}

// Capacity is the supply in an hour, in fractions of Grid, below 2⁴⁰.
type Capacity struct {
	Grid                           int64
	Guaranteed, DiscountOnly, Spot []int64 // by pool; for spot procurement.Unlimited: no bound
	Quotas                         []int64 // by quota; procurement.Unlimited: no bound
}

// Amounts are how hours are served, in millionths of unit-hours, each rounded.
type Amounts struct {
	OnDemand []int64 // by pool, in its units
	// Firm and Spot are by route, in units of demand.
	Firm, Spot []int64
	Shortage   []int64 // by demand
}

// NewRecourse prepares for the pools, demands, routes and quotas of a problem with one epoch. From
// the epoch it reads which quota a pool draws on, with how much, and whether the pool can have
// discount-only units (HeldDiscountOnly above 0). Spend commitments are refused.
func NewRecourse(p *Problem) (*Recourse, error) {
	switch {
	case len(p.Epochs) != 1:
		return nil, fmt.Errorf("problem %q: %d epochs, recourse is of one", p.ID, len(p.Epochs))
	case len(p.Spends) > 0:
		return nil, fmt.Errorf("problem %q: commitments to spend have no recourse of their own", p.ID)
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	all := Block{}
	for i := range p.Pools {
		all.Pools = append(all.Pools, i)
	}
	for i := range p.Demands {
		all.Demands = append(all.Demands, i)
	}
	for i := range p.Quotas {
		all.Quotas = append(all.Quotas, i)
	}
	return &Recourse{b: newBlock(p, all), shapes: map[string]*shape{}, regimes: map[string]*worldly{}}, nil
}

// Begin forgets what was found in previous hours, except the seeds.
func (r *Recourse) Begin() {
	r.world++
	memory := 0
	for _, s := range r.shapes {
		memory += s.memory
	}
	// Caches that only save time are cleared between worlds, never within one.
	if len(r.regimes) > mostRegimes || memory > maxBases/2 {
		clear(r.regimes)
		clear(r.shapes)
	}
}

// Seed sets bases to begin with. They apply to the next prices that are new.
func (r *Recourse) Seed(s Seeds) { r.seeds = s }

// Seeds returns the bases that served most since the last Begin.
func (r *Recourse) Seeds() Seeds {
	uses := map[string]map[string]int{}
	bases := map[string]map[string]*basis{}
	for _, g := range r.regimes {
		s := g.signature()
		if uses[s] == nil {
			uses[s], bases[s] = map[string]int{}, map[string]*basis{}
		}
		for _, e := range g.entries {
			if k := e.key; e.uses > 0 {
				uses[s][k] += e.uses
				bases[s][k] = e.basis
			}
		}
	}
	out := Seeds{}
	for s, of := range uses {
		keys := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
			return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b))
		})
		for _, k := range keys[:min(len(keys), mostSeeds)] {
			out[s] = append(out[s], bases[s][k])
		}
	}
	return out
}

// regime finds or makes the regime of prices.
func (r *Recourse) regime(t *Terms, have *Capacity) *worldly {
	k := r.key[:0]
	for _, of := range [][]procurement.Nano{t.OnDemand, t.Spot, t.Routes, t.Shortage} {
		for _, v := range of {
			k = binary.AppendVarint(k, int64(v))
		}
	}
	bound := func(v int64) bool { return v != procurement.Unlimited }
	for _, of := range [][]int64{have.Spot, have.Quotas} {
		for _, v := range of {
			if bound(v) {
				k = append(k, 1)
			} else {
				k = append(k, 0)
			}
		}
	}
	r.key = k
	g := r.regimes[string(k)]
	if g == nil {
		g = r.price(t, have, bound)
		r.regimes[string(k)] = g
	}
	if g.world != r.world {
		clear(g.of)
		g.entries, g.world = append(g.entries[:0], g.seeds...), r.world
		for _, e := range g.entries {
			g.of[e.key] = e
			e.uses = 0
		}
	}
	return g
}

// price makes the regime of prices, with the seeds that are useful there.
func (r *Recourse) price(t *Terms, have *Capacity, bound func(int64) bool) *worldly {
	b := r.b
	e := &b.p.Epochs[0]
	h := hourPrices{}
	whole := func(of []procurement.Nano) (out []int64) {
		for _, v := range of {
			out = append(out, int64(v))
		}
		return out
	}
	h.onDemand, h.spot, h.extra, h.shortage = whole(t.OnDemand), whole(t.Spot), whole(t.Routes), whole(t.Shortage)
	for i := range b.Pools {
		h.spotBound = append(h.spotBound, bound(have.Spot[i]))
		h.quotaOf, h.quotaUse = append(h.quotaOf, e.Pools[i].Quota), append(h.quotaUse, int64(e.Pools[i].QuotaPerUnit))
		h.spendOf, h.spendPrice = append(h.spendOf, -1), append(h.spendPrice, 0)
	}
	for i := range b.Quotas {
		h.quota = append(h.quota, bound(have.Quotas[i]))
	}
	s, cost := b.shape(0, &h)
	name := s.signature()
	if known := r.shapes[name]; known != nil {
		s = known
	} else {
		r.shapes[name] = s
	}
	g := &worldly{regime: newRegime(s, b, h, cost, &r.pivots)}
	for _, x := range r.seeds[name] {
		// A basis must be the shape's own, so that its columns find it again.
		k := x.key
		if s.bases[k] == nil {
			s.bases[k] = x
		}
		g.enter(s.bases[k])
	}
	g.seeds = slices.Clone(g.entries)
	return g
}

// Serve serves hours at least cost, and adds the amounts to out. By hour and demand, units is the
// number wanted and interruptible the number of them that may run on spot, both in fractions of the
// grid. hours is the number of such hours. A pool with neither capacity nor prices serves nothing.
func (r *Recourse) Serve(t *Terms, have *Capacity, units, interruptible, hours []int64, out *Amounts) error {
	if len(hours) == 0 {
		return nil
	}
	g := r.regime(t, have)
	g.begin()
	r.queries++
	q := &query{number: r.queries, grid: have.Grid, r: make([]int64, g.rows)}
	for i := range r.b.Pools {
		q.r[g.demands+i] = have.Guaranteed[i]
		if row := g.discountOnly[i]; row >= 0 {
			q.r[row] = have.DiscountOnly[i]
		}
		if row := g.spot[i]; row >= 0 {
			q.r[row] = have.Spot[i]
		}
	}
	for i := range r.b.Quotas {
		if row := g.quota[i]; row >= 0 {
			q.r[row] = have.Quotas[i]
		}
	}
	n := g.demands
	q.most = max(slices.Max(q.r), slices.Max(units))
	rows := make([]int, 0, 2*n)
	for i := range n {
		rows = append(rows, i)
	}
	for i := range n {
		if g.spotShare[i] >= 0 {
			rows = append(rows, g.spotShare[i])
		}
	}
	r.slot = slices.Grow(r.slot[:0], len(rows))[:len(rows)]
	slot := r.slot
	var used []*entry
	r.sums = r.sums[:0] // by used entry: its slots' rows, times hours, and its hours
	width := len(rows) + 1
	place := map[*entry]int{}
	var before *entry
	at := 0
	for s, count := range hours {
		if count == 0 {
			continue
		}
		k := n
		for i, u := range units[s*n : (s+1)*n] {
			slot[i] = -u
			if g.spotShare[i] >= 0 {
				slot[k] = interruptible[s*n+i]
				k++
			}
		}
		now, err := g.solve(q, before, slot, rows)
		if err != nil {
			return err
		}
		if now != before {
			var ok bool
			if at, ok = place[now]; !ok {
				at = len(used)
				place[now] = at
				used = append(used, now)
				r.sums = slices.Grow(r.sums, width)[:(at+1)*width]
				clear(r.sums[at*width:])
			}
			before = now
		}
		sums := r.sums[at*width : (at+1)*width]
		for k, x := range slot {
			sums[k] += x * count
		}
		sums[width-1] += count
	}
	for at, e := range used {
		r.amounts(g.regime, e, q, rows, r.sums[at*width:(at+1)*width], out)
	}
	return nil
}

// amounts adds what an entry's hours take of each column.
func (r *Recourse) amounts(g *regime, e *entry, q *query, rows []int, sums []int64, out *Amounts) {
	count := sums[len(rows)]
	right := make([]int64, g.rows)
	for k, v := range q.r {
		right[k] = v * count
	}
	for k, row := range rows {
		right[row] = sums[k]
	}
	most := int64(0)
	for _, v := range right {
		most = max(most, v, -v)
	}
	quick := e.small != nil && most < (1<<62)/max(1, e.norm) && e.det64 < (1<<62)/q.grid
	for i, j := range e.columns {
		if j >= len(g.columns) {
			continue
		}
		c := &g.columns[j]
		to, times := &out.OnDemand, int64(millionths)
		switch c.kind {
		case firmRoute:
			to, times = &out.Firm, millionths*r.b.den[c.of]
		case spotRoute:
			to, times = &out.Spot, millionths*r.b.den[c.of]
		case shortage:
			to = &out.Shortage
		case onDemand:
		default:
			continue
		}
		if quick {
			x := int64(0)
			for k, a := range e.small[i*g.rows : (i+1)*g.rows] {
				x += a * right[k]
			}
			(*to)[c.of] += nearest(x, times, e.det64*q.grid)
			continue
		}
		x := new(big.Int)
		var v big.Int
		for k, of := range right {
			x.Add(x, v.Mul(e.basis.at(i, k, g.rows), v.SetInt64(of)))
		}
		den := new(big.Int).Mul(e.det, big.NewInt(q.grid))
		x.Mul(x, big.NewInt(2*times)).Add(x, den).Quo(x, den.Lsh(den, 1))
		(*to)[c.of] += x.Int64()
	}
}

const millionths = 1_000_000

// nearest returns a·num/den rounded to the nearest, for non-negative numbers.
func nearest(a, num, den int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(num))
	lo, carry := bits.Add64(lo, uint64(den)/2, 0)
	n, _ := bits.Div64(hi+carry, lo, uint64(den))
	return int64(n)
}
