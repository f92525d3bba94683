package joint

import (
	"context"
	"encoding/binary"
	"math/big"
	"slices"

	"quartermaster/domain/procurement"
)

// cover is what is held and bought in each epoch, in fractions of a grid.
type cover struct {
	grid                             int64
	guaranteed, discountOnly, spends [][]int64 // by epoch, and pool or spend of the problem
}

// farBeyond is larger than anything that could bind.
const farBeyond = 1 << 58

// cover adds up what units (in fractions of the grid) cover in addition to what is held.
func (p *Problem) cover(units []int64, grid int64) *cover {
	c := &cover{grid: grid}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		g, o, s := make([]int64, len(p.Pools)), make([]int64, len(p.Pools)), make([]int64, len(p.Spends))
		for i := range e.Pools {
			g[i], o[i] = int64(e.Pools[i].HeldGuaranteed)*grid, int64(e.Pools[i].HeldDiscountOnly)*grid
		}
		for i, v := range e.Spends {
			s[i] = min(farBeyond, scale(int64(v), grid, 1))
		}
		c.guaranteed, c.discountOnly, c.spends = append(c.guaranteed, g), append(c.discountOnly, o), append(c.spends, s)
	}
	for j, x := range units {
		if x == 0 {
			continue
		}
		for _, k := range p.Choices[j].Cover {
			to := c.discountOnly
			if k.Guaranteed {
				to = c.guaranteed
			}
			for m := k.From; m < k.To; m++ {
				to[m][k.Pool] = min(farBeyond, to[m][k.Pool]+min(farBeyond, scale(x, int64(k.Units), 1)))
			}
		}
		for _, k := range p.Choices[j].Spend {
			for m := k.From; m < k.To; m++ {
				c.spends[m][k.Spend] = min(farBeyond, c.spends[m][k.Spend]+min(farBeyond, scale(x, int64(k.PerHour), 1)))
			}
		}
	}
	return c
}

// pricer prices the hours of blocks.
type pricer struct {
	p       *Problem
	blocks  []*block
	shapes  map[string]*shape
	last    map[*shape]*regime
	regimes map[string]*regime
	work    *Work
	queries int
	// rounds are further ones in which work that waits is placed: 0 for cuts.
	rounds int
}

func newPricer(p *Problem, blocks []*block, work *Work) *pricer {
	return &pricer{
		p: p, blocks: blocks, shapes: map[string]*shape{}, last: map[*shape]*regime{}, regimes: map[string]*regime{},
		work: work,
	}
}

// regime finds or makes the prices of a block's hour, beginning with the bases that last served the
// same shape.
func (pr *pricer) regime(b, m, c int, multipliers []int64) *regime {
	k := binary.AppendUvarint(nil, uint64(b))
	k = binary.AppendUvarint(k, uint64(m))
	for _, i := range pr.blocks[b].Pools {
		if pr.p.Epochs[m].Cases[c].Spot[i] == procurement.Unlimited {
			k = append(k, 1)
		} else {
			k = append(k, 0)
		}
	}
	for l, v := range multipliers {
		if s := pr.p.Limits[l].Serving; s != nil && s[m] > 0 {
			k = binary.AppendUvarint(k, uint64(v))
		}
	}
	if g := pr.regimes[string(k)]; g != nil {
		pr.last[g.shape] = g
		return g
	}
	if len(pr.regimes) > 8*len(pr.blocks)*len(pr.p.Epochs)+64 {
		clear(pr.regimes)
	}
	h := pr.blocks[b].multiplied(m, c, multipliers)
	s, cost := pr.blocks[b].shape(m, &h)
	if have := pr.shapes[s.signature()]; have != nil {
		s = have
	} else {
		pr.shapes[s.signature()] = s
	}
	g := newRegime(s, pr.blocks[b], h, cost, &pr.work.Pivots)
	if before := pr.last[s]; before != nil {
		es := slices.Clone(before.entries)
		slices.SortStableFunc(es, func(a, b *entry) int { return b.uses - a.uses })
		for _, e := range es[:min(len(es), scan)] {
			g.enter(e.basis)
		}
	}
	pr.last[s] = g
	pr.regimes[string(k)] = g
	return g
}

// priced is a case's slots, each with the entry that serves it at least cost.
type priced struct {
	regime  *regime
	entries []*entry
	slots   []int32 // by slot: its entry
	hours   []int64 // by entry: the sum of its slots' hours
	// By entry: the right-hand side of its slots in rows, times their hours.
	rows []int
	sums []int64
	r    []int64 // the rest of the right-hand side
	grid int64   // in whose fractions sums and r are

	// windows is when work that waits runs, nil where none does.
	windows *windows
}

// price serves the slots of a block in a case. visit, if not nil, sees each slot.
func (pr *pricer) price(
	ctx context.Context, b, m, c int, multipliers []int64, have *cover,
	visit func(g *regime, e *entry, q *query, slot []int64, rows []int, hours int64),
) (*priced, error) {
	block, p := pr.blocks[b], pr.p
	v := &block.views[m][c]
	g := pr.regime(b, m, c, multipliers)
	g.begin()
	pr.queries++
	q := &query{number: pr.queries, rounds: pr.rounds, grid: have.grid, r: make([]int64, g.rows)}
	e := &p.Epochs[m]
	for k, i := range block.Pools {
		q.r[g.demands+k] = have.guaranteed[m][i]
		if row := g.discountOnly[k]; row >= 0 {
			q.r[row] = have.discountOnly[m][i]
		}
		if row := g.spot[k]; row >= 0 {
			q.r[row] = int64(e.Cases[c].Spot[i]) * have.grid
		}
	}
	for k, i := range block.Quotas {
		if row := g.quota[k]; row >= 0 {
			q.r[row] = int64(e.Quotas[i]) * have.grid
		}
	}
	for k, i := range block.Spends {
		if row := g.spend[k]; row >= 0 {
			q.r[row] = have.spends[m][i]
		}
	}
	for _, x := range q.r {
		q.most = max(q.most, x)
	}
	n := g.demands
	for _, u := range v.units {
		q.most = max(q.most, u*have.grid)
	}
	out := &priced{regime: g, slots: make([]int32, len(v.hours)), r: q.r, grid: have.grid}
	if v.waits != nil {
		var err error
		if out.windows, err = g.schedule(ctx, q, v); err != nil {
			return nil, err
		}
	}
	for i := range n {
		out.rows = append(out.rows, i)
	}
	for i := range n {
		if g.spotShare[i] >= 0 {
			out.rows = append(out.rows, g.spotShare[i])
		}
	}
	slot := make([]int64, len(out.rows))
	place := map[*entry]int32{}
	var before *entry
	at := int32(-1)
	for s, hours := range v.hours {
		if s%4096 == 4095 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if out.windows != nil {
			g.fill(slot, out.windows.loads[s*n:(s+1)*n], have.grid)
		} else {
			k := n
			for i, u := range v.units[s*n : (s+1)*n] {
				slot[i] = -u * have.grid
				if g.spotShare[i] >= 0 {
					slot[k] = u * int64(p.Demands[block.Demands[i]].Interruptible) / 1000 * have.grid
					k++
				}
			}
		}
		now, err := g.solve(q, before, slot, out.rows)
		if err != nil {
			return nil, err
		}
		if now != before {
			var ok bool
			if at, ok = place[now]; !ok {
				at = int32(len(out.entries))
				place[now] = at
				out.entries = append(out.entries, now)
				out.hours = append(out.hours, 0)
				out.sums = append(out.sums, make([]int64, len(slot))...)
			}
			before = now
		}
		if visit != nil {
			visit(g, now, q, slot, out.rows, hours)
		}
		out.slots[s] = at
		out.hours[at] += hours
		sums := out.sums[int(at)*len(slot) : (int(at)+1)*len(slot)]
		for k, x := range slot {
			sums[k] += x * hours
		}
	}
	pr.work.Slots += len(v.hours)
	if out.windows != nil {
		pr.work.Slots += 8 * out.windows.rises // each solves an hour, mostly in a few steps
	}
	return out, ctx.Err()
}

// right returns the sum of the right-hand sides of an entry's slots, each times its hours, in
// fractions of the grid.
func (pd *priced) right(at int) []*big.Int {
	out := make([]*big.Int, pd.regime.rows)
	for k, v := range pd.r {
		out[k] = new(big.Int).Mul(big.NewInt(v), big.NewInt(pd.hours[at]))
	}
	n := len(pd.rows)
	for k, row := range pd.rows {
		out[row].SetInt64(pd.sums[at*n+k])
	}
	return out
}

// amounts adds up, by column of the shape, hours times what the slots take of it, in the column's
// units.
func (pd *priced) amounts() []*big.Rat {
	out := make([]*big.Rat, len(pd.regime.columns))
	for j := range out {
		out[j] = new(big.Rat)
	}
	var t big.Int
	for at, e := range pd.entries {
		r := pd.right(at)
		den := new(big.Int).Mul(e.det, big.NewInt(pd.grid))
		for i, j := range e.columns {
			if j >= len(out) {
				continue
			}
			x := new(big.Int)
			for k, v := range r {
				if v.Sign() != 0 {
					x.Add(x, t.Mul(v, e.basis.at(i, k, pd.regime.rows)))
				}
			}
			if x.Sign() != 0 {
				out[j].Add(out[j], new(big.Rat).SetFrac(x, den))
			}
		}
	}
	return out
}

// cost is the cost of serving at the regime's prices.
func (pd *priced) cost() *big.Rat {
	sum := new(big.Rat)
	var t big.Int
	for at, e := range pd.entries {
		x := new(big.Int)
		for k, v := range pd.right(at) {
			if v.Sign() != 0 {
				x.Add(x, t.Mul(v, e.price(k)))
			}
		}
		sum.Add(sum, new(big.Rat).SetFrac(x, new(big.Int).Mul(e.det, big.NewInt(pd.grid))))
	}
	return sum
}
