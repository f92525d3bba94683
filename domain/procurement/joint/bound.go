package joint

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"

	"quartermaster/domain/procurement"
)

// form is what a case's slots prove with one vector each: E and its slopes (see [Leaf]), without
// the case's weight. held and rho are times 10⁹.
type form struct {
	held     *big.Int
	pi, beta []*big.Int
	rho      []*big.Int
}

var giga = big.NewInt(1_000_000_000)

// tally is the slots with the same vector: their hours, and for each demand its units and its
// interruptible units, times hours.
type tally struct {
	worth *worth
	hours int64
	units []int64
	share []int64
}

func (b *block) form(m, c int, of []tally) *form {
	e := &b.p.Epochs[m]
	f := &form{held: new(big.Int), pi: bigs(len(b.Pools)), beta: bigs(len(b.Pools)), rho: bigs(len(b.Spends))}
	var value exact
	for i := range of {
		t := &of[i]
		w := t.worth
		for d := range w.lambda {
			value.add(w.lambda[d], t.units[d])
			value.add(-w.mu[d], t.share[d])
		}
		for k, p := range b.Pools {
			s := &e.Pools[p]
			if z := e.Cases[c].Spot[p]; z != procurement.Unlimited && s.Spot >= 0 && z > 0 {
				value.add(-w.zeta[k], int64(z)*t.hours)
			}
			addTo(f.pi[k], w.pi[k], t.hours)
			addTo(f.beta[k], w.beta[k], t.hours)
			value.add(-w.pi[k], int64(s.HeldGuaranteed)*t.hours)
			value.add(-w.beta[k], int64(s.HeldDiscountOnly)*t.hours)
		}
		for k, q := range b.Quotas {
			if n := e.Quotas[q]; n > 0 {
				value.add(-w.kappa[k], int64(n)*t.hours)
			}
		}
		for k, s := range b.Spends {
			r := new(big.Int).Mul(w.rho[k], big.NewInt(t.hours))
			f.rho[k].Add(f.rho[k], r)
			f.held.Sub(f.held, r.Mul(r, big.NewInt(int64(e.Spends[s]))))
		}
	}
	f.held.Add(f.held, value.big().Mul(value.big(), giga))
	return f
}

func bigs(n int) []*big.Int {
	out := make([]*big.Int, n)
	for i := range out {
		out[i] = new(big.Int)
	}
	return out
}

func addTo(to *big.Int, a, n int64) {
	if a != 0 {
		to.Add(to, new(big.Int).Mul(big.NewInt(a), big.NewInt(n)))
	}
}

// weighed is the shares of a block in an epoch and case, ready to be summed.
type weighed struct {
	block, epoch, weight int
	shares               []weighedShare
}

type weighedShare struct {
	*form
	weight int64
	limits []int64 // by limit of the problem; nil: all 0
	of     []tally
}

// proof is a leaf in the form in which it is summed.
type proof struct {
	p      *Problem
	part   *Part
	blocks []*block
	path   []Turn
	limits []int64 // by limit of the problem
	needs  [][]procurement.Nano
	cases  []weighed
}

// slopes are the value of one more unit, by epoch, and pool or spend: guaranteed and discountOnly
// times One, spend times One and 10⁹.
type slopes struct {
	guaranteed, discountOnly, spend [][]*big.Int
}

// sum adds up the value at what is held, and the slopes.
func (pf *proof) sum() (held *big.Int, s slopes) {
	p := pf.p
	held = new(big.Int) // times One and 10⁹
	for range p.Epochs {
		s.guaranteed = append(s.guaranteed, make([]*big.Int, len(p.Pools)))
		s.discountOnly = append(s.discountOnly, make([]*big.Int, len(p.Pools)))
		s.spend = append(s.spend, make([]*big.Int, len(p.Spends)))
	}
	for i := range pf.cases {
		w := &pf.cases[i]
		b := pf.blocks[w.block]
		for k := range w.shares {
			n := new(big.Int).Mul(big.NewInt(int64(w.weight)), big.NewInt(w.shares[k].weight))
			if n.Sign() == 0 {
				continue
			}
			f := w.shares[k].form
			held.Add(held, new(big.Int).Mul(n, f.held))
			into := func(to []*big.Int, of []int, v []*big.Int) {
				for i, at := range of {
					if v[i].Sign() == 0 {
						continue
					}
					x := new(big.Int).Mul(n, v[i])
					if to[at] != nil {
						x.Add(x, to[at])
					}
					to[at] = x
				}
			}
			into(s.guaranteed[w.epoch], b.Pools, f.pi)
			into(s.discountOnly[w.epoch], b.Pools, f.beta)
			into(s.spend[w.epoch], b.Spends, f.rho)
		}
	}
	return held, s
}

// worth returns the value of a unit of a choice, and its cost including what it takes of limits.
// Both are times One, 10⁹ and the problem's weight.
func (pf *proof) worth(j int, s *slopes) (worth, cost *big.Int) {
	p, c := pf.p, &pf.p.Choices[j]
	worth, cost = new(big.Int), new(big.Int)
	w := big.NewInt(int64(p.Weight))
	unit := new(big.Int).Mul(big.NewInt(One), giga)
	cost.Mul(big.NewInt(int64(c.Cost)), unit)
	for l, v := range c.Spent {
		if v != 0 && pf.limits[l] != 0 {
			t := new(big.Int).Mul(big.NewInt(int64(v)), big.NewInt(pf.limits[l]))
			t.Mul(t, big.NewInt(One))
			if p.Limits[l].counts() {
				t.Mul(t, giga)
			}
			cost.Add(cost, t)
		}
	}
	cost.Mul(cost, w)
	for _, k := range c.Cover {
		t := new(big.Int)
		for m := k.From; m < k.To; m++ {
			v := s.discountOnly[m][k.Pool]
			if k.Guaranteed {
				v = s.guaranteed[m][k.Pool]
			}
			if v != nil {
				t.Add(t, v)
			}
		}
		worth.Add(worth, t.Mul(t, new(big.Int).Mul(giga, big.NewInt(int64(k.Units)))))
	}
	for _, k := range c.Spend {
		t := new(big.Int)
		for m := k.From; m < k.To; m++ {
			if v := s.spend[m][k.Spend]; v != nil {
				t.Add(t, v)
			}
		}
		worth.Add(worth, t.Mul(t, big.NewInt(int64(k.PerHour))))
	}
	unit.Mul(unit, w)
	for i, n := range pf.part.Needs {
		need := &p.Needs[n]
		for k, m := range need.Epochs {
			if pf.needs[i][k] == 0 {
				continue
			}
			units := int64(0)
			for _, cover := range c.Cover {
				if cover.Guaranteed && cover.From <= m && m < cover.To {
					for _, t := range need.Terms {
						if t.Pool == cover.Pool {
							units += int64(t.PerUnit) * int64(cover.Units)
						}
					}
				}
			}
			if units != 0 {
				t := new(big.Int).Mul(big.NewInt(int64(pf.needs[i][k])), big.NewInt(units))
				worth.Add(worth, t.Mul(t, unit))
			}
		}
	}
	return worth, cost
}

// counts reports whether a limit counts unit-hours instead of money.
func (l *Limit) counts() bool { return l.Unserved || l.Spot }

// rangeOf returns the range of units of each choice that a path allows; false if some range is
// empty, so that the path is impossible.
func (p *Problem) rangeOf(path []Turn, choices []int) (low, high map[int]int, ok bool) {
	low, high = map[int]int{}, map[int]int{}
	group := map[string]int{}
	for _, t := range path {
		if g := p.Choices[t.Choice].Group; t.Bought && g != "" {
			if other, is := group[g]; is && other != t.Choice {
				return nil, nil, false
			}
			group[g] = t.Choice
		}
	}
	for _, j := range choices {
		c := &p.Choices[j]
		low[j], high[j] = 0, c.Max
		for _, t := range path {
			if t.Choice != j {
				continue
			}
			if t.Bought {
				low[j] = max(1, c.Least)
			} else {
				high[j] = 0
			}
		}
		if only, is := group[c.Group]; c.Group != "" && is && only != j {
			high[j] = 0
		}
		if high[j] != procurement.Unlimited && high[j] < low[j] {
			return nil, nil, false
		}
	}
	return low, high, true
}

// bound is what the leaf proves (see [Leaf]). It is nil with an error if the leaf proves nothing.
// possible is false if the path is impossible.
func (pf *proof) bound() (bound *big.Int, possible bool, err error) {
	p := pf.p
	low, high, ok := p.rangeOf(pf.path, pf.part.Choices)
	if !ok {
		return nil, false, nil
	}
	for i := range pf.cases {
		w := &pf.cases[i]
		total := int64(0)
		for k := range w.shares {
			if w.shares[k].weight < 0 || w.shares[k].weight > One-total {
				return nil, true, fmt.Errorf("the weights of block %d in epoch %d sum up to more than %d", w.block,
					w.epoch, int64(One))
			}
			total += w.shares[k].weight
		}
		for _, l := range pf.part.Limits {
			if p.Limits[l].Serving == nil {
				continue
			}
			sum := new(big.Int)
			for k := range w.shares {
				if v := w.shares[k].limits; v != nil {
					sum.Add(sum, new(big.Int).Mul(big.NewInt(v[l]), big.NewInt(w.shares[k].weight)))
				}
			}
			if sum.Cmp(new(big.Int).Mul(big.NewInt(pf.limits[l]), big.NewInt(One))) > 0 {
				return nil, true, fmt.Errorf("the shares of block %d in epoch %d price limit %q above its multiplier",
					w.block, w.epoch, p.Limits[l].ID)
			}
		}
	}
	sum, s := pf.sum()
	for _, j := range pf.part.Choices {
		worth, cost := pf.worth(j, &s)
		r := cost.Sub(cost, worth)
		x := low[j]
		if r.Sign() < 0 {
			if x = high[j]; x == procurement.Unlimited {
				return nil, true,
					fmt.Errorf("choice %d (%q) is worth more than it costs, and there is no bound to it", j,
						p.Choices[j].ID)
			}
		}
		sum.Add(sum, r.Mul(r, big.NewInt(int64(x))))
	}
	unit := new(big.Int).Mul(big.NewInt(One), big.NewInt(int64(p.Weight)))
	for i, n := range pf.part.Needs {
		need := &p.Needs[n]
		for k, m := range need.Epochs {
			left := int64(need.Least)
			for _, t := range need.Terms {
				left -= int64(t.PerUnit) * int64(p.Epochs[m].Pools[t.Pool].HeldGuaranteed)
			}
			t := new(big.Int).Mul(big.NewInt(int64(pf.needs[i][k])), big.NewInt(left))
			sum.Add(sum, t.Mul(t, unit).Mul(t, giga))
		}
	}
	for _, l := range pf.part.Limits {
		t := new(big.Int).Mul(big.NewInt(int64(p.Limits[l].Most)), big.NewInt(pf.limits[l]))
		t.Mul(t, unit)
		if p.Limits[l].counts() {
			t.Mul(t, giga)
		}
		sum.Sub(sum, t)
	}
	return sum.Div(sum, new(big.Int).Mul(big.NewInt(One), giga)), true, nil
}

// Bound computes what a certificate proves. It does not check what [Certificate] demands of the
// division into parts.
func (c *Certificate) Bound(p *Problem) (*big.Int, error) {
	sum := new(big.Int)
	for i := range c.Parts {
		part := &c.Parts[i]
		if part.Alone != nil {
			return nil, fmt.Errorf("part %d: a pool that is alone is proven by package check", i)
		}
		var least *big.Int
		blocks := make([]*block, len(part.Blocks))
		for b := range blocks {
			blocks[b] = newBlock(p, part.Blocks[b])
		}
		for k := range part.Leaves {
			pf, err := part.open(p, &part.Leaves[k], blocks)
			if err != nil {
				return nil, fmt.Errorf("part %d, leaf %d: %w", i, k, err)
			}
			b, possible, err := pf.bound()
			if err != nil {
				return nil, fmt.Errorf("part %d, leaf %d: %w", i, k, err)
			}
			if possible && (least == nil || b.Cmp(least) < 0) {
				least = b
			}
		}
		if least == nil {
			return nil, fmt.Errorf("part %d: no leaf is possible", i)
		}
		sum.Add(sum, least)
	}
	return sum, nil
}

// open reads a leaf.
func (part *Part) open(p *Problem, leaf *Leaf, blocks []*block) (*proof, error) {
	if len(leaf.Limits) != len(part.Limits) || len(leaf.Needs) != len(part.Needs) {
		return nil, fmt.Errorf("multipliers of %d limits and %d needs, there are %d and %d", len(leaf.Limits),
			len(leaf.Needs), len(part.Limits), len(part.Needs))
	}
	byLimit := func(v []int64) []int64 {
		out := make([]int64, len(p.Limits))
		for i, l := range part.Limits {
			out[l] = v[i]
		}
		return out
	}
	pf := &proof{p: p, part: part, blocks: blocks, path: leaf.Path, limits: byLimit(leaf.Limits), needs: leaf.Needs}
	for i := range leaf.Cases {
		c := &leaf.Cases[i]
		b := blocks[c.Block]
		w := weighed{block: c.Block, epoch: c.Epoch, weight: p.Epochs[c.Epoch].Cases[c.Case].Weight}
		v := &b.views[c.Epoch][c.Case]
		for k := range c.Shares {
			s := &c.Shares[k]
			var limits []int64
			if s.Limits != nil {
				limits = byLimit(s.Limits)
			}
			h := b.multiplied(c.Epoch, c.Case, limits)
			of := make([]tally, len(c.Vectors))
			for i := range of {
				of[i] = tally{
					worth: h.worth(b, &c.Vectors[i]), units: make([]int64, len(b.Demands)),
					share: make([]int64, len(b.Demands)),
				}
			}
			at := 0
			for rest := s.Slots; len(rest) > 0; {
				n, a := binary.Uvarint(rest)
				if a <= 0 {
					return nil, fmt.Errorf("the slots of block %d in epoch %d are no varints", c.Block, c.Epoch)
				}
				vector, z := binary.Uvarint(rest[a:])
				if z <= 0 || vector >= uint64(len(of)) || n > uint64(len(v.hours)-at) {
					return nil, fmt.Errorf("the slots of block %d in epoch %d name what is not there", c.Block, c.Epoch)
				}
				rest = rest[a+z:]
				for range n {
					of[vector].add(b, v, at)
					at++
				}
			}
			if at != len(v.hours) {
				return nil, fmt.Errorf("block %d in epoch %d: %d slots of %d", c.Block, c.Epoch, at, len(v.hours))
			}
			w.shares = append(w.shares, weighedShare{form: b.form(c.Epoch, c.Case, of), weight: s.Weight, limits: limits})
		}
		pf.cases = append(pf.cases, w)
	}
	return pf, nil
}

// add counts a slot.
func (t *tally) add(b *block, v *view, slot int) {
	hours, n := v.hours[slot], len(b.Demands)
	t.hours += hours
	for d := range n {
		u := v.units[slot*n+d]
		t.units[d] += u * hours
		t.share[d] += u * int64(b.p.Demands[b.Demands[d]].Interruptible) / 1000 * hours
	}
}

// shareOf encodes which vector serves each slot.
func shareOf(slots []int32, place []int) []byte {
	var out []byte
	for i := 0; i < len(slots); {
		k := i
		for k < len(slots) && place[slots[k]] == place[slots[i]] {
			k++
		}
		out = binary.AppendUvarint(out, uint64(k-i))
		out = binary.AppendUvarint(out, uint64(place[slots[i]]))
		i = k
	}
	return out
}

func equalVectors(a, b *Vector) bool {
	return slices.Equal(a.Firm, b.Firm) && slices.Equal(a.Spot, b.Spot) && slices.Equal(a.Quota, b.Quota)
}
