package joint

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"quartermaster/domain/procurement"
)

// shape is the hour of a block as a linear program in columns, without prices:
//
//	M·x + s = r,  x, s ≥ 0
//
// where r is the demand (negative) and the supply of everything else. A route's columns are in Den
// units of demand, so that M is integral. Bases of a shape are shared by every epoch and case that
// has it.
type shape struct {
	demands, pools int
	// Rows: a demand's at its position, a pool's at demands + position, and the following, −1 for
	// none: interruptible shares, spot and discount-only units by pool, quotas and spends.
	spotShare, spot, discountOnly, quota, spend []int
	rows                                        int
	columns                                     []column
	greatest                                    int64 // magnitude in a column
	bases                                       map[string]*basis
	memory                                      int
	slack                                       *basis
}

type columnKind uint8

const (
	firmRoute    columnKind = iota // f
	spotRoute                      // s
	onDemand                       // y
	discountOnly                   // b
	committed                      // w
	shortage                       // h
)

type column struct {
	kind columnKind
	of   int // the position of the route, pool or demand in the block
	row  []int
	val  []int64
}

// basis is rows columns of [M I] with the inverse of their matrix, in integers: inverse =
// adjugate/det, det > 0. One of small and large is set. It MUST NOT change once it is kept: several
// goroutines begin with the bases of one ([Recourse.Seed]).
type basis struct {
	columns []int // by row of the inverse; len(shape.columns) + k is the slack of row k
	in      []bool
	key     string  // of columns, in any order
	small   []int64 // rows × rows
	norm    int64   // the largest row sum of magnitudes of small
	large   []*big.Int
	approx  []float64 // large/det
	det     *big.Int
	det64   int64 // if small
}

const (
	maxBases = 96 << 20 // bytes of a shape's bases, before they are dropped
	inSmall  = 1 << 40  // the largest number of an inverse that is kept in 64 bits
)

func (s *shape) start() *basis {
	if s.slack == nil {
		b := &basis{columns: make([]int, s.rows), small: make([]int64, s.rows*s.rows), norm: 1, det: big.NewInt(1), det64: 1}
		for i := range s.rows {
			b.columns[i] = len(s.columns) + i
			b.small[i*s.rows+i] = 1
		}
		b.key = key(b.columns)
		s.slack = s.keep(b)
	}
	return s.slack
}

func (s *shape) keep(b *basis) *basis {
	b.in = make([]bool, len(s.columns)+s.rows)
	for _, j := range b.columns {
		b.in[j] = true
	}
	if s.memory > maxBases {
		clear(s.bases)
		s.memory = 0
	}
	s.bases[b.key] = b
	s.memory += 8*s.rows*s.rows + 32*s.rows
	if b.large != nil {
		s.memory += 64 * s.rows * s.rows
	}
	return b
}

func key(columns []int) string {
	c := slices.Clone(columns)
	slices.Sort(c)
	out := make([]byte, 2*len(c))
	for i, v := range c {
		binary.BigEndian.PutUint16(out[2*i:], uint16(v))
	}
	return string(out)
}

// into returns row i of the inverse times column j, times det.
func (s *shape) into(b *basis, i, j int) *big.Int {
	if j >= len(s.columns) {
		return b.at(i, j-len(s.columns), s.rows)
	}
	sum, c := new(big.Int), &s.columns[j]
	var t big.Int
	for k, row := range c.row {
		sum.Add(sum, t.Mul(b.at(i, row, s.rows), big.NewInt(c.val[k])))
	}
	return sum
}

func (b *basis) at(i, k, rows int) *big.Int {
	if b.small != nil {
		return big.NewInt(b.small[i*rows+k])
	}
	return b.large[i*rows+k]
}

// pivot returns the entry with column j in place of the one in row i, nil if it is not dual feasible.
func (g *regime) pivot(e *entry, i, j int) *entry {
	columns := slices.Clone(e.columns)
	columns[i] = j
	k := key(columns)
	if have := g.of[k]; have != nil {
		return have
	}
	next := g.bases[k]
	if next == nil {
		if next = g.pivotSmall(e.basis, i, j); next == nil {
			next = g.pivotLarge(e.basis, i, j)
		}
		next.columns, next.key = columns, k
		g.keep(next)
	}
	return g.enter(next)
}

// pivotSmall is the inverse after a pivot in 64 bits, nil if it might not fit with ample room.
func (s *shape) pivotSmall(b *basis, i, j int) *basis {
	if b.small == nil || b.norm >= (1<<62)/s.greatest {
		return nil
	}
	n := s.rows
	a, most := make([]int64, n), int64(1) // the column
	for k := range n {
		a[k] = s.intoSmall(b, k, j)
		most = max(most, a[k], -a[k])
	}
	if most > inSmall || b.norm > (1<<61)/most {
		return nil
	}
	sign := int64(1)
	if a[i] < 0 {
		sign = -1
	}
	next := &basis{small: make([]int64, n*n), det64: sign * a[i]}
	pivot := b.small[i*n : (i+1)*n]
	for k := range n {
		of, to, sum := b.small[k*n:(k+1)*n], next.small[k*n:(k+1)*n], int64(0)
		for l, v := range of {
			switch {
			case k == i:
			case b.det64 == 1:
				v = a[i]*v - a[k]*pivot[l]
			default:
				v = (a[i]*v - a[k]*pivot[l]) / b.det64
			}
			v *= sign
			if v > inSmall || v < -inSmall {
				return nil
			}
			to[l] = v
			sum += max(v, -v)
		}
		next.norm = max(next.norm, sum)
	}
	next.det = big.NewInt(next.det64)
	return next
}

// intoSmall is into in 64 bits, where norm times greatest fits.
func (s *shape) intoSmall(b *basis, i, j int) int64 {
	of := b.small[i*s.rows : (i+1)*s.rows]
	if j >= len(s.columns) {
		return of[j-len(s.columns)]
	}
	sum, c := int64(0), &s.columns[j]
	for k, row := range c.row {
		sum += of[row] * c.val[k]
	}
	return sum
}

// pivotLarge is the inverse after a pivot in as many bits as it needs.
func (s *shape) pivotLarge(b *basis, i, j int) *basis {
	n := s.rows
	a := make([]*big.Int, n) // the column
	for k := range n {
		a[k] = s.into(b, k, j)
	}
	next := &basis{large: make([]*big.Int, n*n), det: new(big.Int).Set(a[i])}
	var t big.Int
	for k := range n {
		for l := range n {
			v := new(big.Int)
			if k == i {
				v.Set(b.at(i, l, n))
			} else {
				v.Mul(a[i], b.at(k, l, n))
				v.Sub(v, t.Mul(a[k], b.at(i, l, n)))
				v.Quo(v, b.det)
			}
			next.large[k*n+l] = v
		}
	}
	if next.det.Sign() < 0 {
		next.det.Neg(next.det)
		for _, v := range next.large {
			v.Neg(v)
		}
	}
	next.shrink(n)
	return next
}

// shrink keeps the inverse in 64 bits if it fits with ample room.
func (b *basis) shrink(n int) {
	b.approx = make([]float64, n*n)
	det := new(big.Float).SetInt(b.det)
	for k, v := range b.large {
		b.approx[k], _ = new(big.Float).Quo(new(big.Float).SetInt(v), det).Float64()
	}
	if !b.det.IsInt64() || b.det.Int64() > inSmall {
		return
	}
	small, norm := make([]int64, n*n), int64(0)
	for k := range n {
		sum := int64(0)
		for l := range n {
			v := b.large[k*n+l]
			if !v.IsInt64() || v.Int64() > inSmall || v.Int64() < -inSmall {
				return
			}
			small[k*n+l] = v.Int64()
			sum += max(v.Int64(), -v.Int64())
		}
		norm = max(norm, sum)
	}
	b.small, b.norm, b.det64, b.large, b.approx = small, norm, b.det.Int64(), nil, nil
}

// regime is a shape with prices.
type regime struct {
	*shape
	block   *block
	prices  hourPrices
	cost    []int64 // by column
	entries []*entry
	of      map[string]*entry // by the basis' key
	pivots  *int
	dearest int64     // of cost
	wants   []float64 // a slot, while it is solved
}

// newRegime is a shape with prices, and the entry that all begin with.
func newRegime(s *shape, b *block, h hourPrices, cost []int64, pivots *int) *regime {
	g := &regime{shape: s, block: b, prices: h, cost: cost, of: map[string]*entry{}, pivots: pivots, dearest: slices.Max(cost)}
	g.enter(g.start())
	return g
}

// hourPrices are the prices of a block's hour, including the multipliers of limits; −1 means not
// sold.
type hourPrices struct {
	onDemand, spot, quotaUse []int64 // by pool; quotaUse is QuotaPerUnit
	quotaOf, spendOf         []int   // by pool: the position of its quota and spend, −1: none
	spendPrice               []int64 // by pool
	extra                    []int64 // by route
	shortage                 []int64 // by demand
	quota                    []bool  // by quota: bounded
	spotBound                []bool  // by pool: bounded
}

// entry is a basis that is dual feasible at the regime's prices: optimal wherever it is primal
// feasible.
type entry struct {
	*basis
	// Of the rows, times det; none positive. One of the two is set.
	dual   []int64
	duals  []*big.Int
	value  []float64 // dual/det
	vector *Vector   // and what follows from it; nil: not asked for yet
	worth  *worth

	rates []float64 // approximate reduced costs by column, where they do not fit 64 bits; nil: not known yet
	near  []float64 // the inverse in floating point, where products with it do not fit 64 bits; nil: not known yet

	uses int
	// For one query: what does not change between slots; floor and the others as they are needed.
	query, based int
	base         []int64
	wide         []*big.Int // base in large numbers, by row as it is needed
	rough, error []float64  // base by approx, and the sum of magnitudes in it
	floor        float64
}

// enter makes an entry of a basis, nil if it is not dual feasible.
func (g *regime) enter(b *basis) *entry {
	if e := g.of[b.key]; e != nil {
		return e
	}
	e := &entry{basis: b, value: make([]float64, g.rows)}
	fits, feasible := g.price(e)
	if !fits {
		feasible = g.priceLarge(e)
	}
	if !feasible {
		return nil
	}
	g.of[b.key] = e
	g.entries = append(g.entries, e)
	return e
}

// price computes an entry's dual in 64 bits, if it and the reduced costs fit, and whether it is
// feasible.
func (g *regime) price(e *entry) (fits, feasible bool) {
	if e.small == nil {
		return false, false
	}
	dearest := int64(1)
	for _, j := range e.columns {
		if j < len(g.columns) {
			dearest = max(dearest, g.cost[j])
		}
	}
	const room = 1 << 61
	if float64(dearest)*float64(e.norm)*float64(g.rows) > room {
		return false, false
	}
	dual := make([]int64, g.rows)
	for i, j := range e.columns {
		if j >= len(g.columns) || g.cost[j] == 0 {
			continue
		}
		for k, v := range e.small[i*g.rows : (i+1)*g.rows] {
			dual[k] += v * g.cost[j]
		}
	}
	most := 0.0
	for k, v := range dual {
		if v > 0 {
			return true, false
		}
		most = max(most, -float64(v))
		e.value[k] = float64(v) / float64(e.det64)
	}
	if float64(most*float64(g.greatest)*mostInColumn)+float64(float64(g.dearest)*float64(e.det64)) > room {
		return false, false
	}
	e.dual = dual
	for j := range g.columns {
		if !e.in[j] && g.reducedSmall(e, j) < 0 {
			return true, false
		}
	}
	return true, true
}

// mostInColumn is the most rows of a column.
const mostInColumn = 4

// priceLarge is price in as many bits as needed.
func (g *regime) priceLarge(e *entry) bool {
	e.duals = make([]*big.Int, g.rows)
	det, _ := new(big.Float).SetInt(e.det).Float64()
	var t big.Int
	for k := range g.rows {
		sum := new(big.Int)
		for i, j := range e.columns {
			if j < len(g.columns) && g.cost[j] != 0 {
				sum.Add(sum, t.Mul(e.basis.at(i, k, g.rows), big.NewInt(g.cost[j])))
			}
		}
		if sum.Sign() > 0 {
			return false
		}
		e.duals[k] = sum
		v, _ := new(big.Float).SetInt(sum).Float64()
		e.value[k] = v / det
	}
	for j := range g.columns {
		if !e.in[j] && g.reduced(e, j).Sign() < 0 {
			return false
		}
	}
	return true
}

// price is the dual of a row, times det.
func (e *entry) price(row int) *big.Int {
	if e.dual != nil {
		return big.NewInt(e.dual[row])
	}
	return e.duals[row]
}

// reducedSmall returns the reduced cost of a column outside the basis, times det, of an entry with
// a dual in 64 bits.
func (g *regime) reducedSmall(e *entry, j int) int64 {
	if j >= len(g.columns) {
		return -e.dual[j-len(g.columns)]
	}
	c := &g.columns[j]
	d := g.cost[j] * e.det64
	for k, row := range c.row {
		d -= e.dual[row] * c.val[k]
	}
	return d
}

// reduced returns the reduced cost of a column outside the basis, times det.
func (g *regime) reduced(e *entry, j int) *big.Int {
	if e.dual != nil {
		return big.NewInt(g.reducedSmall(e, j))
	}
	if j >= len(g.columns) {
		return new(big.Int).Neg(e.duals[j-len(g.columns)])
	}
	c := &g.columns[j]
	d := big.NewInt(g.cost[j])
	d.Mul(d, e.det)
	var t big.Int
	for k, row := range c.row {
		d.Sub(d, t.Mul(e.duals[row], big.NewInt(c.val[k])))
	}
	return d
}

// proves returns what an entry proves of an hour: its prices in whole Nano, and all that follow.
func (g *regime) proves(e *entry) (*Vector, *worth) {
	if e.vector == nil {
		v := g.vector(e)
		e.vector, e.worth = &v, g.prices.worth(g.block, &v)
	}
	return e.vector, e.worth
}

// vector rounds an entry's prices to whole Nano.
func (g *regime) vector(e *entry) Vector {
	price := func(row int) int64 {
		if row < 0 || e.value[row] == 0 {
			return 0
		}
		v := new(big.Int).Neg(e.price(row))
		v.Add(v.Lsh(v, 1), e.det)
		v.Quo(v, new(big.Int).Lsh(e.det, 1))
		if !v.IsInt64() || v.Int64() > maxVector {
			return maxVector
		}
		return v.Int64()
	}
	v := Vector{Firm: make([]procurement.Nano, g.pools)}
	spot, quota := make([]procurement.Nano, g.pools), make([]procurement.Nano, len(g.quota))
	spots, quotas := false, false
	for i := range g.pools {
		v.Firm[i] = procurement.Nano(price(g.demands + i))
		if g.prices.spot[i] >= 0 {
			spot[i] = procurement.Nano(min(maxVector, g.prices.spot[i]+price(g.spot[i])))
			spots = spots || spot[i] > 0
		}
	}
	for i := range g.quota {
		quota[i] = procurement.Nano(price(g.quota[i]))
		quotas = quotas || quota[i] > 0
	}
	if spots {
		v.Spot = spot
	}
	if quotas {
		v.Quota = quota
	}
	return v
}

// maxVector bounds a vector's prices. With MaxPrice and MaxRatio, larger ones are never useful.
const maxVector = 4_000_000_000_000_000_000

// worth is all prices of an hour that follow from a vector; see [Leaf].
type worth struct {
	lambda, mu     []int64 // by demand
	pi, beta, zeta []int64 // by pool
	kappa          []int64 // by quota
	rho            []*big.Int
}

func (h *hourPrices) worth(b *block, v *Vector) *worth {
	w := &worth{
		lambda: slices.Clone(h.shortage), mu: make([]int64, len(h.shortage)),
		pi: make([]int64, len(h.onDemand)), beta: make([]int64, len(h.onDemand)), zeta: make([]int64, len(h.onDemand)),
		kappa: make([]int64, len(h.quota)), rho: make([]*big.Int, len(b.Spends)),
	}
	for q := range h.quota {
		if h.quota[q] && v.Quota != nil {
			w.kappa[q] = int64(v.Quota[q])
		}
	}
	for i := range w.rho {
		w.rho[i] = new(big.Int)
	}
	sigma := make([]int64, len(h.spot))
	for i := range w.pi {
		use := int64(0)
		if q := h.quotaOf[i]; q >= 0 {
			use = scale(w.kappa[q], h.quotaUse[i], 1)
		}
		w.pi[i] = int64(v.Firm[i])
		if h.onDemand[i] >= 0 {
			w.pi[i] = min(w.pi[i], add(h.onDemand[i], use))
			w.beta[i] = max(0, w.pi[i]-use)
			if s := h.spendOf[i]; s >= 0 && w.beta[i] > 0 {
				r := new(big.Int).Mul(big.NewInt(w.beta[i]), big.NewInt(1_000_000_000))
				r.Add(r, big.NewInt(h.spendPrice[i]-1)).Quo(r, big.NewInt(h.spendPrice[i]))
				if r.Cmp(w.rho[s]) > 0 {
					w.rho[s] = r
				}
			}
		}
		if h.spot[i] >= 0 {
			if v.Spot != nil {
				sigma[i] = int64(v.Spot[i])
			}
			if !h.spotBound[i] {
				sigma[i] = min(sigma[i], h.spot[i])
			}
			w.zeta[i] = max(0, sigma[i]-h.spot[i])
		}
	}
	for r := range b.routes {
		d, p := b.demandOf[r], b.poolOf[r]
		w.lambda[d] = min(w.lambda[d], add(scale(w.pi[p], b.num[r], b.den[r]), h.extra[r]))
	}
	for r := range b.routes {
		d, p := b.demandOf[r], b.poolOf[r]
		if h.spot[p] >= 0 {
			w.mu[d] = max(w.mu[d], w.lambda[d]-add(scale(sigma[p], b.num[r], b.den[r]), h.extra[r]))
		}
	}
	for d, i := range b.Demands {
		// A unit that waits may run on spot by its own share.
		if of := &b.p.Demands[i]; of.Window > 0 {
			w.lambda[d], w.mu[d] = w.lambda[d]-w.mu[d]+scale(w.mu[d], int64(1000-of.Interruptible), 1000), 0
		}
	}
	return w
}

// scale returns ⌊a·num/den⌋ and add the sum of two numbers, for non-negative numbers, saturating at
// the largest one: prices that high are above all others.
func scale(a, num, den int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(num))
	if hi >= uint64(den) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(den))
	return int64(min(q, math.MaxInt64))
}

func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// query is the hours of one case at one coverage. r is a slot's right-hand side other than its
// demand; grid is the fraction in which all of r is counted.
type query struct {
	number int
	grid   int64
	r      []int64
	most   int64 // the largest magnitude of any slot's r
	rounds int   // as the pricer
}

// level computes the cost of serving no demand, at an entry's prices.
func (e *entry) level(q *query) {
	if e.query == q.number {
		return
	}
	e.query, e.floor = q.number, 0
	for k, v := range q.r {
		e.floor += float64(e.value[k] * float64(v))
	}
}

// prepare computes what does not change between slots.
func (g *regime) prepare(e *entry, q *query) {
	if e.based == q.number {
		return
	}
	e.based = q.number
	if e.small == nil || q.most > (1<<62)/max(1, e.norm) {
		e.base, e.wide = nil, make([]*big.Int, g.rows)
		if e.near == nil {
			e.near = e.approx
		}
		if e.near == nil {
			e.near = make([]float64, len(e.small))
			for k, v := range e.small {
				e.near[k] = float64(v) / float64(e.det64)
			}
		}
		e.rough, e.error = make([]float64, g.rows), make([]float64, g.rows)
		for i := range g.rows {
			for k, a := range e.near[i*g.rows : (i+1)*g.rows] {
				v := float64(a * float64(q.r[k]))
				e.rough[i] += v
				e.error[i] += math.Abs(v)
			}
		}
		return
	}
	if e.base == nil {
		e.base = make([]int64, g.rows)
	}
	for i := range g.rows {
		sum := int64(0)
		for k, a := range e.small[i*g.rows : (i+1)*g.rows] {
			sum += a * q.r[k]
		}
		e.base[i] = sum
	}
}

// holds reports whether an entry serves the slot: no x is negative. slot is the right-hand side of
// demands and interruptible shares, by rows.
func (g *regime) holds(e *entry, q *query, slot []int64, rows []int) bool {
	g.prepare(e, q)
	if e.base == nil {
		for i := range g.rows {
			x, m := e.rough[i], e.error[i]
			for k, row := range rows {
				v := float64(e.near[i*g.rows+row] * float64(slot[k]))
				x += v
				m += math.Abs(v)
			}
			if x > 1e-12*m { // far beyond rounding
				continue
			} else if x < -1e-12*m {
				return false
			}
			if g.at(e, q, slot, rows, i).Sign() < 0 {
				return false
			}
		}
		return true
	}
	n := g.rows
	for i, x := range e.base {
		a := e.small[i*n : (i+1)*n]
		for k, row := range rows {
			x += a[row] * slot[k]
		}
		if x < 0 {
			return false
		}
	}
	return true
}

// at returns x of the entry's i-th column at the slot, times det and grid.
func (g *regime) at(e *entry, q *query, slot []int64, rows []int, i int) *big.Int {
	if e.base != nil {
		x := e.base[i]
		for k, row := range rows {
			x += e.small[i*g.rows+row] * slot[k]
		}
		return big.NewInt(x)
	}
	var t, n big.Int
	if e.wide[i] == nil {
		sum := new(big.Int)
		for k, v := range q.r {
			if v != 0 {
				sum.Add(sum, t.Mul(e.basis.at(i, k, g.rows), n.SetInt64(v)))
			}
		}
		e.wide[i] = sum
	}
	x := new(big.Int).Set(e.wide[i])
	for k, row := range rows {
		if slot[k] != 0 {
			x.Add(x, t.Mul(e.basis.at(i, row, g.rows), n.SetInt64(slot[k])))
		}
	}
	return x
}

// scan bounds how many entries are tried for a slot.
const scan = 192

// mostEntries bounds how many entries are kept from one query to the next.
const mostEntries = 1024

// begin prepares the regime for a query.
func (g *regime) begin() {
	if len(g.entries) <= scan {
		return
	}
	slices.SortStableFunc(g.entries, func(a, b *entry) int { return b.uses - a.uses })
	for _, e := range g.entries {
		e.uses /= 2
	}
	if n := len(g.entries); n > mostEntries {
		for _, e := range g.entries[mostEntries:] {
			delete(g.of, e.key)
		}
		clear(g.entries[mostEntries:])
		g.entries = g.entries[:mostEntries]
	}
}

// solve returns the entry that serves a slot at least cost, trying the previous one first.
func (g *regime) solve(q *query, before *entry, slot []int64, rows []int) (*entry, error) {
	if before != nil && g.holds(before, q, slot, rows) {
		before.uses++
		return before, nil
	}
	var best *entry
	most := math.Inf(-1)
	g.wants = g.wants[:0]
	for _, x := range slot {
		g.wants = append(g.wants, float64(x))
	}
	demand, shares, more := g.wants[:g.demands], g.wants[g.demands:], rows[g.demands:]
	look := func(es []*entry) {
		for _, e := range es {
			e.level(q)
			v := e.floor
			for k, x := range e.value[:len(demand)] {
				v += float64(x * demand[k])
			}
			for k, row := range more {
				v += float64(e.value[row] * shares[k])
			}
			if v > most {
				most, best = v, e
			}
		}
	}
	if n := len(g.entries); n <= 2*scan {
		look(g.entries)
	} else {
		look(g.entries[:scan])
		look(g.entries[n-scan:])
	}
	for step := 0; ; step++ {
		if g.holds(best, q, slot, rows) {
			best.uses++
			return best, nil
		}
		if step > 20_000 {
			return nil, fmt.Errorf("an hour's linear program took more than %d steps: the solver is wrong", step)
		}
		next, err := g.step(best, q, slot, rows, step > 50)
		if err != nil {
			return nil, err
		}
		best = next
	}
}

// quickStep is a step in 64 bits with floating-point ratios. If they mislead, the basis is not dual
// feasible, and nil is returned.
func (g *regime) quickStep(e *entry, slot []int64, rows []int) *entry {
	leave, least := -1, int64(0)
	for i, x := range e.base {
		for k, row := range rows {
			x += e.small[i*g.rows+row] * slot[k]
		}
		if x < least || x == least && x < 0 && e.columns[i] < e.columns[leave] {
			leave, least = i, x
		}
	}
	if leave < 0 {
		return nil
	}
	a := e.small[leave*g.rows : (leave+1)*g.rows]
	enter, lowest := -1, math.Inf(1)
	var rates []float64
	if e.dual == nil {
		rates = g.reducedRates(e)
	}
	for j := range len(g.columns) + g.rows {
		if e.in[j] {
			continue
		}
		alpha := int64(0)
		if j >= len(g.columns) {
			alpha = a[j-len(g.columns)]
		} else {
			c := &g.columns[j]
			for k, row := range c.row {
				alpha += a[row] * c.val[k]
			}
		}
		if alpha >= 0 {
			continue
		}
		var d float64
		if rates != nil {
			d = rates[j]
		} else {
			d = float64(g.reducedSmall(e, j)) / float64(e.det64)
		}
		if ratio := d / float64(-alpha); ratio < lowest {
			enter, lowest = j, ratio
		}
	}
	if enter < 0 {
		return nil
	}
	return g.pivot(e, leave, enter)
}

// reducedRates are the reduced costs of an entry's columns, rounded.
func (g *regime) reducedRates(e *entry) []float64 {
	if e.rates == nil {
		e.rates = make([]float64, len(g.columns)+g.rows)
		det, _ := new(big.Float).SetInt(e.det).Float64()
		for j := range e.rates {
			if !e.in[j] {
				v, _ := new(big.Float).SetInt(g.reduced(e, j)).Float64()
				e.rates[j] = v / det
			}
		}
	}
	return e.rates
}

// roughStep is a step in floating point, of an entry whose numbers do not fit 64 bits. The row that
// leaves and the column that enters are verified exactly. Where the ratios mislead, the basis is not
// dual feasible, and nil is returned.
func (g *regime) roughStep(e *entry, q *query, slot []int64, rows []int) *entry {
	const beyond = 1e-9 // of the sum of magnitudes: far beyond rounding
	leave, least := -1, 0.0
	for i := range g.rows {
		x, size := e.rough[i], e.error[i]
		for k, row := range rows {
			v := float64(e.near[i*g.rows+row] * float64(slot[k]))
			x += v
			size += math.Abs(v)
		}
		if x < least && x < -beyond*size {
			leave, least = i, x
		}
	}
	if leave < 0 {
		return nil
	}
	a := e.near[leave*g.rows : (leave+1)*g.rows]
	enter, lowest := -1, math.Inf(1)
	for j, d := range g.reducedRates(e) {
		if e.in[j] {
			continue
		}
		alpha, size := 0.0, 0.0
		if j >= len(g.columns) {
			alpha = a[j-len(g.columns)]
			size = math.Abs(alpha)
		} else {
			c := &g.columns[j]
			for k, row := range c.row {
				v := float64(a[row] * float64(c.val[k]))
				alpha += v
				size += math.Abs(v)
			}
		}
		if alpha < -beyond*size {
			if ratio := d / -alpha; ratio < lowest {
				enter, lowest = j, ratio
			}
		}
	}
	if enter < 0 || g.at(e, q, slot, rows, leave).Sign() >= 0 || g.into(e.basis, leave, enter).Sign() >= 0 {
		return nil
	}
	return g.pivot(e, leave, enter)
}

// step is a step of the dual simplex. It takes the most violated row, or, with Bland's rule, which
// excludes cycling, the first.
func (g *regime) step(e *entry, q *query, slot []int64, rows []int, bland bool) (*entry, error) {
	*g.pivots++
	g.prepare(e, q)
	if !bland && e.base != nil && e.norm < (1<<62)/g.greatest {
		if next := g.quickStep(e, slot, rows); next != nil {
			return next, nil
		}
	}
	if !bland && e.base == nil && e.near != nil {
		if next := g.roughStep(e, q, slot, rows); next != nil {
			return next, nil
		}
	}
	leave := -1
	var least *big.Int
	for i, j := range e.columns {
		x := g.at(e, q, slot, rows, i)
		switch {
		case x.Sign() >= 0:
		case leave < 0,
			bland && j < e.columns[leave],
			!bland && x.Cmp(least) < 0,
			!bland && x.Cmp(least) == 0 && j < e.columns[leave]:
			leave, least = i, x
		}
	}
	enter := -1
	var num, den *big.Int // the least ratio
	var a, b big.Int
	for j := range len(g.columns) + g.rows {
		if e.in[j] {
			continue
		}
		alpha := g.into(e.basis, leave, j)
		if alpha.Sign() >= 0 {
			continue
		}
		d, m := g.reduced(e, j), new(big.Int).Neg(alpha)
		if enter < 0 || a.Mul(d, den).Cmp(b.Mul(num, m)) < 0 {
			enter, num, den = j, d, m
		}
	}
	if enter < 0 {
		return nil, fmt.Errorf("an hour's linear program has no solution: the solver is wrong")
	}
	next := g.pivot(e, leave, enter)
	if next == nil {
		return nil, fmt.Errorf("a step of an hour's linear program left what is dual feasible: the solver is wrong")
	}
	return next, nil
}
