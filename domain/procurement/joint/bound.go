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
	from   *cut    // nil when it was read
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
	rounds []roundPrice
	useful *saturation
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

// cost is the cost of a unit of a choice including what it takes of limits, times One, 10⁹ and the
// problem's weight.
func (pf *proof) cost(j int) *big.Int {
	p, c := pf.p, &pf.p.Choices[j]
	cost := new(big.Int)
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
	return cost.Mul(cost, big.NewInt(int64(p.Weight)))
}

// worth returns the value of units of a choice.
func (pf *proof) worth(j int, s *slopes) worths {
	p, c := pf.p, &pf.p.Choices[j]
	var out worths
	unit := product(int64(p.Weight), One).Num()
	unit.Mul(unit, giga)
	for i := range c.Cover {
		k := &c.Cover[i]
		for m := k.From; m < k.To; m++ {
			slope := new(big.Int)
			v := s.discountOnly[m][k.Pool]
			if k.Guaranteed {
				v = s.guaranteed[m][k.Pool]
				slope.Mul(pf.needed(m, k.Pool), unit)
			}
			if v != nil {
				slope.Add(slope, new(big.Int).Mul(v, giga))
			}
			if slope.Sign() != 0 {
				out = append(out, worthTerm{slope, big.NewInt(int64(k.Units)), big.NewInt(pf.useful.most(k, m))})
			}
		}
	}
	for i := range pf.rounds {
		r := &pf.rounds[i]
		if each := r.each(p, j); each > 0 {
			out = append(out, worthTerm{new(big.Int).Mul(unit, big.NewInt(int64(r.price))), big.NewInt(each), big.NewInt(r.most)})
		}
	}
	for _, k := range c.Spend {
		for m := k.From; m < k.To; m++ {
			if v := s.spend[m][k.Spend]; v != nil && v.Sign() != 0 {
				out = append(out, worthTerm{v, big.NewInt(int64(k.PerHour)), pf.useful.spends[m][k.Spend]})
			}
		}
	}
	return out
}

// needed is the value of a guaranteed unit of a pool in an epoch to the needs.
func (pf *proof) needed(m, pool int) *big.Int {
	sum := new(big.Int)
	for i, n := range pf.part.Needs {
		need := &pf.p.Needs[n]
		k, ok := slices.BinarySearch(need.Epochs, m)
		if !ok || pf.needs[i][k] == 0 {
			continue
		}
		for _, t := range need.Terms {
			if t.Pool == pool {
				sum.Add(sum, product2(int64(pf.needs[i][k]), int64(t.PerUnit)))
			}
		}
	}
	return sum
}

// left is what a need lacks in an epoch beyond what is held. What is bought comes in whole units, so
// it is rounded up to what whole units can come to.
func (n *Need) left(p *Problem, m int) int64 {
	left, each := int64(n.Least), int64(0)
	for _, t := range n.Terms {
		left -= int64(t.PerUnit) * int64(p.Epochs[m].Pools[t.Pool].HeldGuaranteed)
		each = gcd(each, int64(t.PerUnit))
	}
	if each > 1 {
		if rest := left % each; rest > 0 {
			left += each - rest
		} else {
			left -= rest
		}
	}
	return left
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
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
			if n := max(1, t.Units); t.Bought {
				low[j] = max(low[j], n, c.Least)
			} else if high[j] == procurement.Unlimited || n <= high[j] {
				high[j] = n - 1
			}
		}
		if only, is := group[c.Group]; c.Group != "" && is && only != j {
			high[j] = 0
		}
		low[j] = (low[j] + c.Lot - 1) / c.Lot * c.Lot
		if high[j] != procurement.Unlimited {
			if high[j] -= high[j] % c.Lot; high[j] < c.Least {
				high[j] = 0
			}
			if high[j] < low[j] {
				return nil, nil, false
			}
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
	groups := map[string]*big.Int{} // the smallest term of those of which none has to be bought
	for _, j := range pf.part.Choices {
		if high[j] == 0 {
			continue
		}
		c := &p.Choices[j]
		r, ok := pf.worth(j, &s).least(pf.cost(j), max(low[j], c.least()), high[j], c.Lot)
		if !ok {
			return nil, true,
				fmt.Errorf("choice %d (%q) takes less than nothing, and there is no bound to it", j, c.ID)
		}
		if low[j] == 0 && r.Sign() > 0 {
			continue
		}
		if g := c.Group; g != "" && low[j] == 0 {
			if least := groups[g]; least == nil || r.Cmp(least) < 0 {
				groups[g] = r
			}
			continue
		}
		sum.Add(sum, r)
	}
	for _, r := range groups {
		sum.Add(sum, r)
	}
	unit := new(big.Int).Mul(big.NewInt(One), big.NewInt(int64(p.Weight)))
	for i, n := range pf.part.Needs {
		need := &p.Needs[n]
		for k, m := range need.Epochs {
			t := product2(int64(pf.needs[i][k]), need.left(p, m))
			sum.Add(sum, t.Mul(t, unit).Mul(t, giga))
		}
	}
	for i := range pf.rounds {
		t := product2(int64(pf.rounds[i].price), pf.rounds[i].most)
		sum.Add(sum, t.Mul(t, unit).Mul(t, giga))
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
	sum, useful := new(big.Int), p.saturation()
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
		cuts, err := part.open(p, blocks)
		if err != nil {
			return nil, fmt.Errorf("part %d: %w", i, err)
		}
		for k := range part.Leaves {
			pf, err := part.leaf(p, &part.Leaves[k], blocks, cuts)
			if err != nil {
				return nil, fmt.Errorf("part %d, leaf %d: %w", i, k, err)
			}
			pf.useful = useful
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

// weighable is a cut of a certificate, ready to be weighed.
type weighable struct {
	caseKey
	*form
	limits []int64 // by limit of the problem; nil: all 0
}

// byLimit converts multipliers by limit of the part to those by limit of the problem.
func (part *Part) byLimit(p *Problem, v []int64) ([]int64, error) {
	if len(v) != len(part.Limits) {
		return nil, fmt.Errorf("multipliers of %d limits, there are %d", len(v), len(part.Limits))
	}
	out := make([]int64, len(p.Limits))
	for i, l := range part.Limits {
		out[l] = v[i]
	}
	return out, nil
}

// open reads the cuts of a part.
func (part *Part) open(p *Problem, blocks []*block) ([]weighable, error) {
	var out []weighable
	for i := range part.Cases {
		c := &part.Cases[i]
		b := blocks[c.Block]
		v := &b.views[c.Epoch][c.Case]
		for k := range c.Cuts {
			s := &c.Cuts[k]
			var limits []int64
			if s.Limits != nil {
				var err error
				if limits, err = part.byLimit(p, s.Limits); err != nil {
					return nil, err
				}
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
			var vectors []int32
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
					if v.waits == nil {
						of[vector].add(b, v, at)
					} else {
						vectors = append(vectors, int32(vector))
					}
					at++
				}
			}
			if at != len(v.hours) {
				return nil, fmt.Errorf("block %d in epoch %d: %d slots of %d", c.Block, c.Epoch, at, len(v.hours))
			}
			b.spread(v, of, vectors)
			out = append(out, weighable{caseKey{c.Block, c.Epoch, c.Case}, b.form(c.Epoch, c.Case, of), limits})
		}
	}
	return out, nil
}

// leaf reads a leaf.
func (part *Part) leaf(p *Problem, leaf *Leaf, blocks []*block, cuts []weighable) (*proof, error) {
	if len(leaf.Needs) != len(part.Needs) {
		return nil, fmt.Errorf("multipliers of %d needs, there are %d", len(leaf.Needs), len(part.Needs))
	}
	limits, err := part.byLimit(p, leaf.Limits)
	if err != nil {
		return nil, err
	}
	pf := &proof{p: p, part: part, blocks: blocks, path: leaf.Path, limits: limits, needs: leaf.Needs}
	place := map[caseKey]int{}
	for _, s := range leaf.Shares {
		if s.Cut < 0 || s.Cut >= len(cuts) {
			return nil, fmt.Errorf("there is no cut %d", s.Cut)
		}
		c := &cuts[s.Cut]
		at, ok := place[c.caseKey]
		if !ok {
			at = len(pf.cases)
			place[c.caseKey] = at
			pf.cases = append(pf.cases, weighed{block: c.block, epoch: c.epoch, weight: p.Epochs[c.epoch].Cases[c.c].Weight})
		}
		pf.cases[at].shares = append(pf.cases[at].shares, weighedShare{form: c.form, weight: s.Weight, limits: c.limits})
	}
	for _, r := range leaf.Rounds {
		if r.Round < 0 || r.Round >= len(part.Rounds) || r.Price < 0 {
			return nil, fmt.Errorf("round %d has price %d", r.Round, r.Price)
		}
		x, ok := p.round(part.Rounds[r.Round])
		if !ok {
			return nil, fmt.Errorf("round %d rounds nothing", r.Round)
		}
		pf.rounds = append(pf.rounds, roundPrice{x, r.Price})
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
