package check

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"slices"

	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// Joint verifies a solution of a valid problem of coupled pools. Its error wraps [ErrRejected]. It
// proves the following with its own functions, in integers and fractions of any size:
//
//   - Purchases keep their bounds, lots, groups and all needs.
//   - Work that waits runs within its window, all of it and none before it comes.
//   - Every slot of every epoch and scenario is served at the least possible cost (hour.go), which
//     together with the purchases is the stated cost. Where the cheapest serving would exceed a
//     limit, it is mixed, epoch by epoch, with the cheapest serving under the solution's
//     multipliers. A mix must keep every limit and cost no more than stated; its cost is the
//     report's cost.
//   - The certificate proves the stated bound by the formula in the comment of [joint.Leaf], and
//     leaves out no part of the problem.
//   - Shadow prices and worths are those of the certificate: for each part, of the leaf that proves
//     least, the first of equal ones.
//
// It does not verify the work counts or Way.Share, nor that no other prices would prove as much.
func Joint(p *joint.Problem, s *joint.Solution) (Report, error) {
	return JointContext(context.Background(), p, s)
}

// JointContext is [Joint] with a context; if the context ends, the error is the context's.
func JointContext(ctx context.Context, p *joint.Problem, s *joint.Solution) (Report, error) {
	r, err := recomputeJoint(ctx, p, s)
	if err != nil && ctx.Err() != nil {
		return Report{}, fmt.Errorf("check problem %q: %w", p.ID, ctx.Err())
	} else if err != nil {
		return Report{}, fmt.Errorf("%w: problem %q: %v", ErrRejected, p.ID, err)
	}
	return r, nil
}

func recomputeJoint(ctx context.Context, p *joint.Problem, s *joint.Solution) (Report, error) {
	if s.Cost == nil || s.Bound == nil {
		return Report{}, errors.New("cost or bound is missing")
	}
	c := &coupled{p: p, s: s, routes: make([][]int, len(p.Demands)), worths: newWorths(p)}
	for i, r := range p.Routes {
		c.routes[r.Demand] = append(c.routes[r.Demand], i)
	}
	if err := c.buy(); err != nil {
		return Report{}, err
	}
	if err := c.run(); err != nil {
		return Report{}, err
	}
	cost, err := c.serve(ctx)
	if err != nil {
		return Report{}, err
	}
	bound, err := c.bound(ctx)
	if err != nil {
		return Report{}, err
	}
	if bound.Cmp(s.Bound) != 0 {
		return Report{}, fmt.Errorf("the certificate proves %d, not %d", bound, s.Bound)
	}
	if bound.Cmp(cost) > 0 {
		return Report{}, fmt.Errorf("the bound %d is above the cost %d", bound, cost)
	}
	if err := c.worths.same(&s.Prices); err != nil {
		return Report{}, err
	}
	return Report{Cost: cost, Bound: bound, parts: c.proven}, nil
}

// worths are the certificate's shadow prices, in the units of [joint.Prices].
type worths struct {
	choices, limits []*big.Int
	quotas, needs   [][]*big.Int
}

func newWorths(p *joint.Problem) *worths {
	w := &worths{choices: zeros(len(p.Choices)), limits: zeros(len(p.Limits)), quotas: grid(len(p.Quotas), len(p.Epochs))}
	for i := range p.Needs {
		w.needs = append(w.needs, zeros(len(p.Needs[i].Epochs)))
	}
	return w
}

func zeros(n int) []*big.Int {
	out := make([]*big.Int, n)
	for i := range out {
		out[i] = new(big.Int)
	}
	return out
}

// same reports where the stated prices differ.
func (w *worths) same(stated *joint.Prices) error {
	list := func(kind string, have, want []*big.Int) error {
		if len(have) != len(want) {
			return fmt.Errorf("%d prices of %s, of %d", len(have), kind, len(want))
		}
		for i, v := range want {
			if have[i] == nil && v.Sign() != 0 || have[i] != nil && have[i].Cmp(v) != 0 {
				return fmt.Errorf("the certificate's price %d of %s is %d, not %d", i, kind, v, have[i])
			}
		}
		return nil
	}
	lists := func(kind string, have, want [][]*big.Int) error {
		if len(have) != len(want) {
			return fmt.Errorf("prices of %d %ss, of %d", len(have), kind, len(want))
		}
		for i := range want {
			if err := list(fmt.Sprintf("%s %d", kind, i), have[i], want[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return cmp.Or(list("choices", stated.Worth, w.choices), list("limits", stated.Limits, w.limits),
		lists("quota", stated.Quotas, w.quotas), lists("need", stated.Needs, w.needs))
}

// coupled is a solution being checked.
type coupled struct {
	p *joint.Problem
	s *joint.Solution
	// By epoch, what is held and bought: units by pool, hourly money by spend.
	guaranteed, discountOnly [][]int64
	spends                   [][]*big.Int
	paid                     *big.Int // for purchases, times the weight
	routes                   [][]int  // by demand
	worths                   *worths
	proven                   [][]leafProof // by part that has leaves
	runs                     map[running][]int64
}

func whole(n int64) *big.Int { return big.NewInt(n) }

func nano(n procurement.Nano) *big.Int { return big.NewInt(int64(n)) }

func times(a, b *big.Int) *big.Int { return new(big.Int).Mul(a, b) }

// plus adds a·b to a sum.
func plus(sum, a, b *big.Int) { sum.Add(sum, times(a, b)) }

func minus(sum, a, b *big.Int) { sum.Sub(sum, times(a, b)) }

// down and up divide by a positive number, rounding down or up.
func down(a, b *big.Int) *big.Int { return new(big.Int).Div(a, b) }

func up(a, b *big.Int) *big.Int {
	q := new(big.Int).Neg(a)
	return q.Neg(q.Div(q, b))
}

// lesser and greater return the smaller and the larger of two numbers.
func lesser(a, b *big.Int) *big.Int {
	if b.Cmp(a) < 0 {
		return b
	}
	return a
}

func greater(a, b *big.Int) *big.Int {
	if b.Cmp(a) > 0 {
		return b
	}
	return a
}

// buy checks the purchases against their bounds, and against the needs.
func (c *coupled) buy() error {
	p := c.p
	if len(c.s.Units) != len(p.Choices) {
		return fmt.Errorf("units of %d choices, of %d", len(c.s.Units), len(p.Choices))
	}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		g, o := make([]int64, len(p.Pools)), make([]int64, len(p.Pools))
		for i, s := range e.Pools {
			g[i], o[i] = int64(s.HeldGuaranteed), int64(s.HeldDiscountOnly)
		}
		c.guaranteed, c.discountOnly = append(c.guaranteed, g), append(c.discountOnly, o)
		spends := make([]*big.Int, len(p.Spends))
		for i := range spends {
			spends[i] = nano(e.Spends[i])
		}
		c.spends = append(c.spends, spends)
	}
	c.paid = new(big.Int)
	groups := map[string]int{}
	for j, n := range c.s.Units {
		x := &p.Choices[j]
		switch {
		case n < 0 || x.Max != procurement.Unlimited && n > x.Max || n > joint.MaxUnits:
			return fmt.Errorf("choice %d (%s): %d units, of %d", j, x.ID, n, x.Max)
		case n == 0:
			continue
		case n < x.Least:
			return fmt.Errorf("choice %d (%s): %d units, and %d at least are sold", j, x.ID, n, x.Least)
		case n%max(1, x.Lot) != 0:
			return fmt.Errorf("choice %d (%s): %d units are not in lots of %d", j, x.ID, n, x.Lot)
		}
		if first, bought := groups[x.Group]; x.Group != "" && bought {
			return fmt.Errorf("choices %d and %d are both bought, and of group %q one may be", first, j, x.Group)
		}
		groups[x.Group] = j
		plus(c.paid, nano(x.Cost), whole(int64(n)*int64(p.Weight)))
		for _, v := range x.Cover {
			for m := v.From; m < v.To; m++ {
				if v.Guaranteed {
					c.guaranteed[m][v.Pool] += int64(n) * int64(v.Units)
				} else {
					c.discountOnly[m][v.Pool] += int64(n) * int64(v.Units)
				}
			}
		}
		for _, v := range x.Spend {
			for m := v.From; m < v.To; m++ {
				plus(c.spends[m][v.Spend], nano(v.PerHour), whole(int64(n)))
			}
		}
	}
	for _, n := range p.Needs {
		for _, m := range n.Epochs {
			have := new(big.Int)
			for _, t := range n.Terms {
				plus(have, whole(int64(t.PerUnit)), whole(c.guaranteed[m][t.Pool]))
			}
			if have.Cmp(whole(int64(n.Least))) < 0 {
				return fmt.Errorf("need %q: epoch %d has %d, of %d", n.ID, m, have, n.Least)
			}
		}
	}
	return nil
}

// ---- The bound

// bound is what the certificate proves.
func (c *coupled) bound(ctx context.Context) (*big.Int, error) {
	parts := c.s.Certificate.Parts
	if err := c.whole(parts); err != nil {
		return nil, err
	}
	sum := new(big.Int)
	for i := range parts {
		part := &parts[i]
		var v *big.Int
		var err error
		if part.Alone != nil {
			v, err = c.alone(part)
		} else {
			v, err = c.branches(ctx, part)
		}
		if err != nil {
			return nil, fmt.Errorf("part %d of the certificate: %w", i, err)
		}
		sum.Add(sum, v)
	}
	return sum, nil
}

// whole checks that the parts cover the problem and keep connected items together.
func (c *coupled) whole(parts []joint.Part) error {
	p := c.p
	type place struct{ part, block int }
	places := func(n int) []place { return slices.Repeat([]place{{-1, -1}}, n) }
	pools, demands, quotas, spends := places(len(p.Pools)), places(len(p.Demands)), places(len(p.Quotas)), places(len(p.Spends))
	choices, needs, limits := places(len(p.Choices)), places(len(p.Needs)), places(len(p.Limits))
	put := func(kind string, into []place, list []int, at place) error {
		for i, n := range list {
			switch {
			case n < 0 || n >= len(into):
				return fmt.Errorf("there is no %s %d", kind, n)
			case into[n].part >= 0:
				return fmt.Errorf("%s %d is in the certificate twice", kind, n)
			case i > 0 && n <= list[i-1]:
				return fmt.Errorf("%s %d does not come after the one before", kind, n)
			}
			into[n] = at
		}
		return nil
	}
	for i := range parts {
		for k, b := range parts[i].Blocks {
			at := place{i, k}
			if err := errors.Join(put("pool", pools, b.Pools, at), put("demand", demands, b.Demands, at),
				put("quota", quotas, b.Quotas, at), put("spend", spends, b.Spends, at)); err != nil {
				return err
			}
		}
		at := place{i, -1}
		if err := errors.Join(put("choice", choices, parts[i].Choices, at), put("need", needs, parts[i].Needs, at),
			put("limit", limits, parts[i].Limits, at)); err != nil {
			return err
		}
	}
	for i, list := range [][]place{pools, demands, quotas, spends, choices, needs, limits} {
		if n := slices.Index(list, place{-1, -1}); n >= 0 {
			kind := []string{"pool", "demand", "quota", "spend", "choice", "need", "limit"}[i]
			return fmt.Errorf("%s %d is not in the certificate", kind, n)
		}
	}
	for i, r := range p.Routes {
		if demands[r.Demand] != pools[r.Pool] {
			return fmt.Errorf("route %d leads out of its block", i)
		}
	}
	for m := range p.Epochs {
		for i, s := range p.Epochs[m].Pools {
			if s.Quota >= 0 && quotas[s.Quota] != pools[i] || s.Spend >= 0 && spends[s.Spend] != pools[i] {
				return fmt.Errorf("epoch %d: pool %d is not in the block of its quota or spend", m, i)
			}
		}
	}
	groups := map[string]int{}
	for j, x := range p.Choices {
		part := choices[j].part
		for _, v := range x.Cover {
			if pools[v.Pool].part != part {
				return fmt.Errorf("choice %d covers pool %d of another part", j, v.Pool)
			}
		}
		for _, v := range x.Spend {
			if spends[v.Spend].part != part {
				return fmt.Errorf("choice %d is of spend %d of another part", j, v.Spend)
			}
		}
		for l, n := range x.Spent {
			if n != 0 && limits[l].part != part {
				return fmt.Errorf("choice %d takes of limit %d of another part", j, l)
			}
		}
		if first, known := groups[x.Group]; x.Group != "" && known && first != part {
			return fmt.Errorf("choice %d is in another part than others of group %q", j, x.Group)
		}
		groups[x.Group] = part
	}
	for i, n := range p.Needs {
		for _, t := range n.Terms {
			if pools[t.Pool].part != needs[i].part {
				return fmt.Errorf("need %d is of pool %d of another part", i, t.Pool)
			}
		}
	}
	for i, l := range p.Limits {
		if l.Serving == nil {
			continue
		}
		for k := range pools {
			if pools[k].part != limits[i].part {
				return fmt.Errorf("serving takes of limit %d, and pool %d is of another part", i, k)
			}
		}
		for k := range demands {
			if demands[k].part != limits[i].part {
				return fmt.Errorf("serving takes of limit %d, and demand %d is of another part", i, k)
			}
		}
	}
	return nil
}

// slots are a block's hours in a case: demand by the block's demands, and the number of such hours.
type slots struct {
	units [][]int
	hours []int64
	// waits is the part of units that may be put off; nil if none of the demands has windows. Slots
	// are then all hours in their order.
	waits [][]int
}

func (c *coupled) slots(demands []int, epoch, k int) slots {
	at := map[string]int{}
	var out slots
	if slices.ContainsFunc(demands, func(d int) bool { return c.p.Demands[d].Window > 0 }) {
		return c.hours(demands, epoch, k)
	}
	var key []byte
	for _, s := range c.p.Epochs[epoch].Cases[k].Slots {
		key = key[:0]
		some := false
		for _, d := range demands {
			key = binary.AppendVarint(key, int64(s.Units[d]))
			some = some || s.Units[d] != 0
		}
		if !some {
			continue
		}
		i, known := at[string(key)]
		if !known {
			i = len(out.hours)
			at[string(key)] = i
			units := make([]int, len(demands))
			for n, d := range demands {
				units[n] = s.Units[d]
			}
			out.units, out.hours = append(out.units, units), append(out.hours, 0)
		}
		out.hours[i] += int64(s.Hours)
	}
	order := make([]int, len(out.hours))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return slices.Compare(out.units[a], out.units[b]) })
	sorted := slots{units: make([][]int, len(order)), hours: make([]int64, len(order))}
	for i, n := range order {
		sorted.units[i], sorted.hours[i] = out.units[n], out.hours[n]
	}
	return sorted
}

// alone proves the bound of a part that is one pool.
func (c *coupled) alone(part *joint.Part) (*big.Int, error) {
	p := c.p
	if len(part.Leaves) > 0 || len(part.Needs) > 0 || len(part.Limits) > 0 || len(part.Blocks) != 1 {
		return nil, errors.New("it is proven as one pool, and has more")
	}
	b := &part.Blocks[0]
	if len(b.Pools) != 1 || len(b.Demands) != 1 || len(b.Spends) > 0 || len(b.Quotas) > 1 {
		return nil, errors.New("it is proven as one pool, and has more")
	}
	pool, demand := b.Pools[0], b.Demands[0]
	routes := 0
	for i, r := range p.Routes {
		if r.Demand == demand || r.Pool == pool {
			routes++
			if p.Demands[demand].Window > 0 {
				return nil, errors.New("it is proven as one pool, and its demand waits")
			}
			for m := range p.Epochs {
				if r.Num != r.Den || p.Epochs[m].Routes[i] != 0 {
					return nil, errors.New("it is proven as one pool, and its route changes units or costs")
				}
			}
		}
	}
	if routes != 1 {
		return nil, fmt.Errorf("it is proven as one pool, and has %d routes", routes)
	}
	q := &procurement.Pool{ID: p.Pools[pool]}
	sum := 0
	for _, k := range p.Epochs[0].Cases {
		q.Weights = append(q.Weights, k.Weight)
		sum += k.Weight
	}
	if sum != p.Weight {
		return nil, fmt.Errorf("the weights of scenarios sum up to %d, not %d", sum, p.Weight)
	}
	for m := range p.Epochs {
		e := &p.Epochs[m]
		s := &e.Pools[pool]
		out := procurement.Epoch{
			Span: e.Span, OnDemand: s.OnDemand, Spot: s.Spot, Shortage: e.Shortage[demand],
			SpotPermille: p.Demands[demand].Interruptible,
			Quota:        procurement.Unlimited, HeldGuaranteed: s.HeldGuaranteed, HeldDiscountOnly: s.HeldDiscountOnly,
		}
		if s.Spend >= 0 {
			return nil, errors.New("it is proven as one pool, and has a commitment to spend")
		}
		if s.Quota >= 0 && e.Quotas[s.Quota] != procurement.Unlimited {
			if e.Quotas[s.Quota]%s.QuotaPerUnit != 0 {
				return nil, errors.New("it is proven as one pool, and may use a part of its quota")
			}
			out.Quota = e.Quotas[s.Quota] / s.QuotaPerUnit
		}
		// A source dearer than a shortage serves no demand; at the price of a shortage serving
		// makes no difference.
		out.OnDemand, out.Spot = min(out.OnDemand, out.Shortage), min(out.Spot, out.Shortage)
		for k := range e.Cases {
			if e.Cases[k].Weight != q.Weights[k] {
				return nil, errors.New("it is proven as one pool, and its weights change")
			}
			hours := c.slots(b.Demands, m, k)
			into := procurement.Case{SpotUnits: e.Cases[k].Spot[pool]}
			for i, n := range hours.hours {
				into.Demand = append(into.Demand, procurement.Step{Units: hours.units[i][0], Hours: int(n)})
			}
			out.Cases = append(out.Cases, into)
		}
		q.Epochs = append(q.Epochs, out)
	}
	bought := make([]units, len(p.Epochs))
	for _, j := range part.Choices {
		x := &p.Choices[j]
		if len(x.Cover) != 1 || len(x.Spend) > 0 || x.Cover[0].Pool != pool || x.Cover[0].Units != 1 || x.Least > 1 ||
			x.Lot > 1 || x.Group != "" {
			return nil, fmt.Errorf("it is proven as one pool, and choice %d is no plain purchase of it", j)
		}
		v := &x.Cover[0]
		q.Offers = append(q.Offers, procurement.Offer{
			ID: x.ID, Guaranteed: v.Guaranteed, Term: v.To - v.From, Starts: []procurement.Start{{
				Epoch: v.From, Cost: x.Cost, Max: x.Max,
			}},
		})
		for m := v.From; m < v.To; m++ {
			if v.Guaranteed {
				bought[m].guaranteed += c.s.Units[j]
			} else {
				bought[m].discountOnly += c.s.Units[j]
			}
		}
	}
	if err := sane(q); err != nil {
		return nil, err
	}
	v, err := bound(q, part.Alone, bought)
	if err != nil {
		return nil, err
	}
	for _, j := range part.Choices {
		w, x := c.worths.choices[j], &p.Choices[j].Cover[0]
		for m := x.From; m < x.To; m++ {
			w.Add(w, nano(part.Alone.Cover[m]))
			if x.Guaranteed {
				w.Add(w, nano(part.Alone.Guarantee[m]))
			}
		}
	}
	return v, nil
}

// branches proves the bound of a part by the leaves of its branching.
func (c *coupled) branches(ctx context.Context, part *joint.Part) (*big.Int, error) {
	if len(part.Leaves) == 0 {
		return nil, errors.New("it has no proof")
	}
	paths := make([][]joint.Turn, len(part.Leaves))
	for i := range part.Leaves {
		paths[i] = part.Leaves[i].Path
		if err := straight(part, paths[i]); err != nil {
			return nil, fmt.Errorf("leaf %d: %w", i, err)
		}
	}
	if err := exhaustive(paths); err != nil {
		return nil, err
	}
	t := &tangents{coupled: c, part: part}
	t.sate()
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	var least *big.Int
	var lowest *slopes
	var proven []leafProof
	for i := range part.Leaves {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v, slope, err := t.leaf(&part.Leaves[i])
		if err != nil {
			return nil, fmt.Errorf("leaf %d: %w", i, err)
		}
		if slope == nil {
			continue
		}
		l := leafProof{bound: v, rates: zeros(len(c.p.Limits))}
		for _, n := range part.Limits {
			l.rates[n] = times(times(slope.multipliers[n], whole(int64(c.p.Weight))), t.unit(n))
		}
		proven = append(proven, l)
		if least == nil || v.Cmp(least) < 0 {
			least, lowest = v, slope
		}
	}
	if least == nil {
		return nil, errors.New("its leaves leave no purchases that are possible")
	}
	t.price(lowest)
	c.proven = append(c.proven, proven)
	return least, nil
}

// longestPath bounds the length of a path, and so the depth of the recursion over it.
const longestPath = 10_000

// straight checks that a path uses choices of the part.
func straight(part *joint.Part, path []joint.Turn) error {
	if len(path) > longestPath {
		return fmt.Errorf("its path has %d turns, more than %d", len(path), longestPath)
	}
	for _, turn := range path {
		if _, ok := slices.BinarySearch(part.Choices, turn.Choice); !ok {
			return fmt.Errorf("its path is by choice %d, which is not of the part", turn.Choice)
		}
		if turn.Units < 0 || turn.Units > joint.MaxUnits {
			return fmt.Errorf("its path turns at %d units of choice %d", turn.Units, turn.Choice)
		}
	}
	return nil
}

// exhaustive checks that the paths leave no case out.
func exhaustive(paths [][]joint.Turn) error {
	for len(paths) > 0 {
		if len(paths) == 1 && len(paths[0]) == 0 {
			return nil
		}
		var with, without [][]joint.Turn
		for _, path := range paths {
			if len(path) == 0 || path[0].Choice != paths[0][0].Choice || path[0].Units != paths[0][0].Units {
				break
			}
			if path[0].Bought {
				with = append(with, path[1:])
			} else {
				without = append(without, path[1:])
			}
		}
		if len(with)+len(without) != len(paths) || len(with) == 0 {
			return errors.New("its leaves leave something out")
		}
		if err := exhaustive(with); err != nil {
			return err
		}
		paths = without
	}
	return errors.New("its leaves leave something out")
}

// tangents evaluates leaves of a part.
type tangents struct {
	*coupled
	part *joint.Part
	most sated
	cuts []tangent // as the leaves count them
}

// tangent is what a cut proves of its case with all of its weight: a value at what is held, and the
// value of further units by the positions of the block's pools, spends and quotas.
type tangent struct {
	of                         int // case of the part
	held                       *big.Int
	firm, priced, spend, quota []*big.Int
	multipliers                []*big.Int // by the problem's limits
}

// open evaluates the cuts of the part.
func (t *tangents) open(ctx context.Context) error {
	seen := map[[3]int]bool{}
	for i := range t.part.Cases {
		proof := &t.part.Cases[i]
		at := [3]int{proof.Block, proof.Epoch, proof.Case}
		switch {
		case proof.Block < 0 || proof.Block >= len(t.part.Blocks) || proof.Epoch < 0 || proof.Epoch >= len(t.p.Epochs) ||
			proof.Case < 0 || proof.Case >= len(t.p.Epochs[proof.Epoch].Cases):
			return fmt.Errorf("case %d is of no block, epoch and scenario", i)
		case seen[at]:
			return fmt.Errorf("case %d is there twice", i)
		}
		seen[at] = true
		hours := t.slots(t.part.Blocks[proof.Block].Demands, proof.Epoch, proof.Case)
		for k := range proof.Cuts {
			if err := ctx.Err(); err != nil {
				return err
			}
			c, err := t.cut(proof, &proof.Cuts[k], &hours)
			if err != nil {
				return fmt.Errorf("case %d, cut %d: %w", i, k, err)
			}
			c.of = i
			t.cuts = append(t.cuts, *c)
		}
	}
	return nil
}

var (
	one      = whole(joint.One)
	billion  = whole(1_000_000_000)
	trillion = whole(1_000_000_000_000)
	// fraction is the unit in which amounts are summed: 1/One of 10⁻⁹.
	fraction = times(one, billion)
)

// slopes are the value of one more unit in a leaf. Those of pools, spends and quotas are in 1/One;
// multipliers are by the problem's limits.
type slopes struct {
	firm, priced, spend, quota [][]*big.Int // by epoch, and pool, spend or quota
	needs                      [][]*big.Int // by epoch and pool: value of a guaranteed unit for the needs, in Nano
	need                       [][]procurement.Nano
	multipliers                []*big.Int
	rounds                     []round
}

// round is a need in an epoch, rounded, with its price, in fractions and times the weight.
type round struct {
	need                 *joint.Need
	epoch                int
	divisor, modulo, all *big.Int // all: what the need lacks, rounded
	price                *big.Int
}

// of rounds what units count for the need.
func (r *round) of(t *big.Int) *big.Int {
	q, rest := new(big.Int).DivMod(t, r.divisor, new(big.Int))
	return q.Add(q.Mul(q, r.modulo), lesser(r.modulo, rest))
}

// rounds evaluates the rounds of a leaf.
func (t *tangents) rounds(l *joint.Leaf) ([]round, error) {
	var out []round
	for i, x := range l.Rounds {
		if x.Round < 0 || x.Round >= len(t.part.Rounds) || x.Price < 0 {
			return nil, fmt.Errorf("round %d of the leaf is of round %d at %d", i, x.Round, x.Price)
		}
		r := t.part.Rounds[x.Round]
		if _, ok := slices.BinarySearch(t.part.Needs, r.Need); !ok || r.Epoch < 0 ||
			r.Epoch >= len(t.p.Needs[r.Need].Epochs) || r.Divisor < 1 {
			return nil, fmt.Errorf("round %d is of no need, epoch and divisor", x.Round)
		}
		need := &t.p.Needs[r.Need]
		y := round{need: need, epoch: need.Epochs[r.Epoch], divisor: whole(int64(r.Divisor))}
		lacks := t.lacks(need, y.epoch)
		y.modulo = new(big.Int).Mod(lacks, y.divisor)
		if lacks.Sign() <= 0 || y.modulo.Sign() == 0 {
			return nil, fmt.Errorf("round %d rounds nothing", x.Round)
		}
		y.all = y.of(lacks)
		y.price = times(times(nano(x.Price), whole(int64(t.p.Weight))), fraction)
		out = append(out, y)
	}
	return out, nil
}

// lacks is what a need lacks in an epoch beyond what is held, rounded up to what whole units can come
// to.
func (t *tangents) lacks(need *joint.Need, m int) *big.Int {
	lacks, each := whole(int64(need.Least)), new(big.Int)
	for _, term := range need.Terms {
		minus(lacks, whole(int64(term.PerUnit)), whole(int64(t.p.Epochs[m].Pools[term.Pool].HeldGuaranteed)))
		each.GCD(nil, nil, each, whole(int64(term.PerUnit)))
	}
	if each.Sign() > 0 {
		lacks = times(up(lacks, each), each)
	}
	return lacks
}

// sated is, by epoch, and pool or spend, the most further capacity or spend that can be of use.
type sated struct{ firm, priced, spend [][]*big.Int }

// sate computes the most that is of use.
func (t *tangents) sate() {
	p := t.p
	s := &t.most
	s.firm, s.priced = grid(len(p.Epochs), len(p.Pools)), grid(len(p.Epochs), len(p.Pools))
	s.spend = grid(len(p.Epochs), len(p.Spends))
	for m := range p.Epochs {
		e := &p.Epochs[m]
		for n := range p.Pools {
			wanted := new(big.Int)
			for k := range e.Cases {
				for _, units := range t.largest(m, k) {
					here := new(big.Rat)
					for _, r := range p.Routes {
						if r.Pool == n {
							here.Add(here, new(big.Rat).SetFrac(times(whole(int64(units[r.Demand])), whole(int64(r.Num))), whole(int64(r.Den))))
						}
					}
					wanted = greater(wanted, up(here.Num(), here.Denom()))
				}
			}
			supply := &e.Pools[n]
			if supply.Spend >= 0 {
				plus(s.spend[m][supply.Spend], wanted, nano(supply.SpendPrice))
			}
			s.priced[m][n] = greater(new(big.Int), new(big.Int).Sub(wanted, whole(int64(supply.HeldDiscountOnly))))
			for _, need := range p.Needs {
				if !slices.Contains(need.Epochs, m) {
					continue
				}
				for _, term := range need.Terms {
					if term.Pool == n {
						wanted = greater(wanted, up(whole(int64(need.Least)), whole(int64(term.PerUnit))))
					}
				}
			}
			s.firm[m][n] = greater(new(big.Int), new(big.Int).Sub(wanted, whole(int64(supply.HeldGuaranteed))))
		}
		for n, held := range e.Spends {
			s.spend[m][n] = greater(new(big.Int), new(big.Int).Sub(s.spend[m][n], nano(held)))
		}
	}
}

// worth is the value of units of a choice, in fractions and times the weight, and what the next
// unit is worth.
func (t *tangents) worth(j int, units *big.Int, s *slopes) (all, next *big.Int) {
	x := &t.p.Choices[j]
	weight := whole(int64(t.p.Weight))
	all, next = new(big.Int), new(big.Int)
	add := func(each, most, price *big.Int) {
		now := lesser(times(each, units), most)
		then := lesser(times(each, new(big.Int).Add(units, whole(1))), most)
		plus(all, now, price)
		plus(next, new(big.Int).Sub(then, now), price)
	}
	for _, v := range x.Cover {
		each := whole(int64(v.Units))
		for m := v.From; m < v.To; m++ {
			if v.Guaranteed {
				price := times(s.firm[m][v.Pool], billion)
				plus(price, times(weight, fraction), s.needs[m][v.Pool])
				add(each, t.most.firm[m][v.Pool], price)
			} else {
				add(each, t.most.priced[m][v.Pool], times(s.priced[m][v.Pool], billion))
			}
		}
	}
	for i := range s.rounds {
		r := &s.rounds[i]
		counts := new(big.Int)
		for _, v := range x.Cover {
			if !v.Guaranteed || r.epoch < v.From || r.epoch >= v.To {
				continue
			}
			for _, term := range r.need.Terms {
				if term.Pool == v.Pool {
					plus(counts, whole(int64(term.PerUnit)), whole(int64(v.Units)))
				}
			}
		}
		add(r.of(counts), r.all, r.price)
	}
	for _, v := range x.Spend {
		for m := v.From; m < v.To; m++ {
			add(nano(v.PerHour), t.most.spend[m][v.Spend], s.spend[m][v.Spend])
		}
	}
	return all, next
}

// first is the smallest order of a choice.
func first(x *joint.Choice) int {
	lot := max(1, x.Lot)
	return (max(1, x.Least) + lot - 1) / lot * lot
}

// term returns the least that n units of a choice cost less what they are worth, for n from low to
// high in lots, and false if there is none. The difference is convex in n: it falls as long as the
// next lot is worth more than it costs.
func (t *tangents) term(j, low, high int, cost *big.Int, s *slopes) (*big.Int, bool) {
	lot := max(1, t.p.Choices[j].Lot)
	at := func(lots int) *big.Int {
		n := whole(int64(lots) * int64(lot))
		all, _ := t.worth(j, n, s)
		return new(big.Int).Sub(times(cost, n), all)
	}
	if _, next := t.worth(j, whole(int64(low)), s); next.Cmp(cost) <= 0 {
		return at(low / lot), true // further units are worth no more than the next one
	}
	from, to := low/lot, high/lot
	if high == procurement.Unlimited {
		to = 4 * joint.MaxUnits / lot
		if _, next := t.worth(j, whole(int64(to)*int64(lot)), s); next.Cmp(cost) > 0 {
			return nil, false
		}
	}
	return lowestOf(from, to, at), true
}

// lowestOf is the minimum of a convex function on a range, which it bisects.
func lowestOf(from, to int, f func(int) *big.Int) *big.Int {
	for from < to {
		if middle := from + (to-from)/2; f(middle+1).Cmp(f(middle)) < 0 {
			from = middle + 1
		} else {
			to = middle
		}
	}
	return f(from)
}

// price records a leaf's shadow prices as those of the part.
func (t *tangents) price(s *slopes) {
	weight := whole(int64(t.p.Weight))
	for _, j := range t.part.Choices {
		n := whole(int64(first(&t.p.Choices[j])))
		all, _ := t.worth(j, n, s)
		t.worths.choices[j] = down(all, times(fraction, n))
	}
	for i, n := range t.part.Needs {
		if s.need == nil {
			break
		}
		for k, v := range s.need[i] {
			t.worths.needs[n][k] = times(nano(v), weight)
		}
	}
	for _, n := range t.part.Limits {
		t.worths.limits[n] = times(s.multipliers[n], weight)
	}
	for i := range t.part.Blocks {
		for _, q := range t.part.Blocks[i].Quotas {
			for m := range s.quota {
				t.worths.quotas[q][m] = down(s.quota[m][q], one)
			}
		}
	}
}

// leaf returns what a leaf proves, and its slopes; nil if its path is impossible.
func (t *tangents) leaf(l *joint.Leaf) (*big.Int, *slopes, error) {
	p, part := t.p, t.part
	low, high, possible := t.ranges(l.Path)
	if !possible {
		return nil, nil, nil
	}
	multipliers, err := t.multipliers(l.Limits)
	if err != nil {
		return nil, nil, err
	}
	if len(l.Needs) != len(part.Needs) && l.Needs != nil {
		return nil, nil, errors.New("prices of other needs")
	}
	sum := new(big.Int)
	epochs := len(p.Epochs)
	slope := &slopes{
		firm: grid(epochs, len(p.Pools)), priced: grid(epochs, len(p.Pools)), spend: grid(epochs, len(p.Spends)),
		quota: grid(epochs, len(p.Quotas)),
		needs: grid(epochs, len(p.Pools)), need: l.Needs, multipliers: multipliers,
	}
	if err := t.weigh(l.Shares, multipliers, sum, slope); err != nil {
		return nil, nil, err
	}
	weight := whole(int64(p.Weight))
	for i, n := range part.Needs {
		need := &p.Needs[n]
		if l.Needs == nil {
			break
		}
		if len(l.Needs[i]) != len(need.Epochs) && l.Needs[i] != nil {
			return nil, nil, fmt.Errorf("need %d has prices for other epochs", n)
		}
		for k, price := range l.Needs[i] {
			if price < 0 {
				return nil, nil, fmt.Errorf("need %d has a negative price", n)
			}
			m := need.Epochs[k]
			for _, term := range need.Terms {
				plus(slope.needs[m][term.Pool], nano(price), whole(int64(term.PerUnit)))
			}
			plus(sum, times(times(nano(price), weight), fraction), t.lacks(need, m))
		}
	}
	if slope.rounds, err = t.rounds(l); err != nil {
		return nil, nil, err
	}
	for i := range slope.rounds {
		plus(sum, slope.rounds[i].price, slope.rounds[i].all)
	}
	for _, n := range part.Limits {
		minus(sum, times(times(multipliers[n], weight), t.unit(n)), nano(p.Limits[n].Most))
	}
	groups := map[string]*big.Int{} // the smallest term of those of which none has to be bought
	for _, j := range part.Choices {
		x := &p.Choices[j]
		r := times(times(nano(x.Cost), weight), fraction)
		for n, spent := range x.Spent {
			if spent != 0 {
				plus(r, times(times(multipliers[n], weight), t.unit(n)), nano(spent))
			}
		}
		if high[j] == 0 {
			continue
		}
		r, bounded := t.term(j, max(low[j], first(x)), high[j], r, slope)
		if !bounded {
			return nil, nil, fmt.Errorf("choice %d takes less than nothing, without limit", j)
		}
		if low[j] == 0 && r.Sign() > 0 {
			continue
		}
		if x.Group == "" || low[j] > 0 {
			sum.Add(sum, r)
		} else if least, known := groups[x.Group]; !known || r.Cmp(least) < 0 {
			groups[x.Group] = r
		}
	}
	for _, r := range groups {
		sum.Add(sum, r)
	}
	return down(sum, fraction), slope, nil
}

func grid(rows, columns int) [][]*big.Int {
	g := make([][]*big.Int, rows)
	for i := range g {
		g[i] = zeros(columns)
	}
	return g
}

// unit is one unit of a multiplier times one unit of what its limit counts, in fractions:
// multipliers of money are in 10⁻⁹.
func (t *tangents) unit(limit int) *big.Int {
	if l := &t.p.Limits[limit]; l.Unserved || l.Spot {
		return fraction
	}
	return one
}

// multipliers converts a list by Part.Limits to one by the problem's limits.
func (t *tangents) multipliers(list []int64) ([]*big.Int, error) {
	out := make([]*big.Int, len(t.p.Limits))
	for i := range out {
		out[i] = new(big.Int)
	}
	if list == nil {
		return out, nil
	}
	if len(list) != len(t.part.Limits) {
		return nil, errors.New("multipliers of other limits")
	}
	for i, v := range list {
		if v < 0 {
			return nil, fmt.Errorf("limit %d has a negative multiplier", t.part.Limits[i])
		}
		out[t.part.Limits[i]] = whole(v)
	}
	return out, nil
}

// ranges returns the least and the most units of each choice that a straight path allows, and
// whether it allows any.
func (t *tangents) ranges(path []joint.Turn) (low, high []int, possible bool) {
	p := t.p
	low, high = make([]int, len(p.Choices)), make([]int, len(p.Choices))
	for j := range p.Choices {
		high[j] = p.Choices[j].Max
	}
	bought := map[string]int{} // by group
	for _, turn := range path {
		j := turn.Choice
		n := max(1, turn.Units)
		if !turn.Bought {
			if high[j] == procurement.Unlimited || high[j] >= n {
				high[j] = n - 1
			}
			continue
		}
		low[j] = max(low[j], n, p.Choices[j].Least)
		if g := p.Choices[j].Group; g != "" {
			if other, known := bought[g]; known && other != j {
				return nil, nil, false
			}
			bought[g] = j
		}
	}
	for j := range p.Choices {
		x := &p.Choices[j]
		if only, known := bought[x.Group]; x.Group != "" && known && only != j {
			high[j] = 0
		}
		if lot := max(1, x.Lot); high[j] != procurement.Unlimited {
			if high[j] -= high[j] % lot; high[j] < x.Least {
				high[j] = 0
			}
			low[j] += (lot - low[j]%lot) % lot
			if low[j] > high[j] {
				return nil, nil, false
			}
		} else {
			low[j] += (lot - low[j]%lot) % lot
		}
	}
	return low, high, true
}

// prices are an epoch's prices, including the multipliers of limits.
type prices struct {
	onDemand, spot  []*big.Int // by pool; nil: not sold
	extra, shortage []*big.Int // by route, by demand
}

// priced is an epoch's prices under multipliers, by the problem's limits.
func (c *coupled) priced(epoch int, multipliers []*big.Int) *prices {
	p := c.p
	e := &p.Epochs[epoch]
	money, spot, unserved := new(big.Int), new(big.Int), new(big.Int)
	for i := range p.Limits {
		l := &p.Limits[i]
		if l.Serving == nil {
			continue
		}
		into := money
		switch {
		case l.Spot:
			into = spot
		case l.Unserved:
			into = unserved
		}
		plus(into, multipliers[i], whole(l.Serving[epoch]))
	}
	thousand := whole(1000)
	dearer := func(v procurement.Nano) *big.Int {
		return down(times(nano(v), new(big.Int).Add(trillion, money)), trillion)
	}
	out := &prices{onDemand: make([]*big.Int, len(p.Pools)), spot: make([]*big.Int, len(p.Pools))}
	for i, s := range e.Pools {
		if s.OnDemand >= 0 {
			out.onDemand[i] = dearer(s.OnDemand)
		}
		if s.Spot >= 0 {
			v := dearer(s.Spot)
			out.spot[i] = v.Add(v, down(spot, thousand))
		}
	}
	for _, v := range e.Routes {
		out.extra = append(out.extra, dearer(v))
	}
	for _, v := range e.Shortage {
		h := nano(v)
		out.shortage = append(out.shortage, h.Add(h, down(unserved, thousand)))
	}
	return out
}

// hourly is the value of an hour at a vector: v in the comment of [joint.Leaf], as the value of
// demand less that of everything else. Lists are by the positions of a block's demands, pools,
// quotas and spends.
type hourly struct {
	lambda, mu []*big.Int // by demand
	pi, beta   []*big.Int // by pool
	rho        []*big.Int // by spend, in 10⁻⁹
	kappa      []*big.Int // by quota
	held       *big.Int   // what is subtracted for what is held, in 10⁻⁹ Nano
}

func (t *tangents) hourly(proof *joint.CaseProof, b *joint.Block, v *joint.Vector, pr *prices) (*hourly, error) {
	p := t.p
	e := &p.Epochs[proof.Epoch]
	k := &e.Cases[proof.Case]
	if len(v.Firm) != len(b.Pools) || v.Spot != nil && len(v.Spot) != len(b.Pools) ||
		v.Quota != nil && len(v.Quota) != len(b.Quotas) {
		return nil, errors.New("a vector has prices of other pools or quotas")
	}
	h := &hourly{held: new(big.Int)}
	quota := map[int]*big.Int{}
	for i, q := range b.Quotas {
		quota[q] = new(big.Int)
		if v.Quota != nil && e.Quotas[q] != procurement.Unlimited {
			if v.Quota[i] < 0 {
				return nil, errors.New("a vector has a negative price")
			}
			quota[q] = nano(v.Quota[i])
			plus(h.held, times(quota[q], whole(int64(e.Quotas[q]))), billion)
		}
		h.kappa = append(h.kappa, quota[q])
	}
	place := map[int]int{} // of pools
	sigma := make([]*big.Int, len(b.Pools))
	spends := map[int]*big.Int{}
	for i, n := range b.Pools {
		place[n] = i
		s := &e.Pools[n]
		if v.Firm[i] < 0 || v.Spot != nil && v.Spot[i] < 0 {
			return nil, errors.New("a vector has a negative price")
		}
		u := new(big.Int)
		if s.Quota >= 0 {
			u = times(quota[s.Quota], whole(int64(s.QuotaPerUnit)))
		}
		pi, beta := nano(v.Firm[i]), new(big.Int)
		if pr.onDemand[n] != nil {
			pi = lesser(pi, new(big.Int).Add(pr.onDemand[n], u))
			beta = greater(beta, new(big.Int).Sub(pi, u))
			if s.Spend >= 0 {
				r := up(times(billion, new(big.Int).Sub(pi, u)), nano(s.SpendPrice))
				if old, known := spends[s.Spend]; known {
					r = greater(r, old)
				}
				spends[s.Spend] = r
			}
		}
		sigma[i] = new(big.Int)
		if v.Spot != nil {
			sigma[i] = nano(v.Spot[i])
		}
		if pr.spot[n] != nil {
			if k.Spot[n] == procurement.Unlimited {
				sigma[i] = lesser(sigma[i], pr.spot[n])
			} else {
				zeta := greater(new(big.Int), new(big.Int).Sub(sigma[i], pr.spot[n]))
				plus(h.held, times(zeta, whole(int64(k.Spot[n]))), billion)
			}
		}
		h.pi, h.beta = append(h.pi, pi), append(h.beta, beta)
		plus(h.held, times(pi, whole(int64(s.HeldGuaranteed))), billion)
		plus(h.held, times(beta, whole(int64(s.HeldDiscountOnly))), billion)
	}
	for _, n := range b.Spends {
		r := new(big.Int)
		if v, known := spends[n]; known {
			r = greater(r, v)
		}
		h.rho = append(h.rho, r)
		plus(h.held, r, nano(e.Spends[n]))
	}
	for _, d := range b.Demands {
		lambda := pr.shortage[d]
		for _, i := range t.routes[d] {
			r := &p.Routes[i]
			lambda = lesser(lambda, new(big.Int).Add(down(times(h.pi[place[r.Pool]], whole(int64(r.Num))),
				whole(int64(r.Den))), pr.extra[i]))
		}
		mu := new(big.Int)
		for _, i := range t.routes[d] {
			if r := &p.Routes[i]; pr.spot[r.Pool] != nil {
				worth := new(big.Int).Sub(lambda, pr.extra[i])
				mu = greater(mu, worth.Sub(worth, down(times(sigma[place[r.Pool]], whole(int64(r.Num))), whole(int64(r.Den)))))
			}
		}
		if p.Demands[d].Window > 0 {
			lambda = new(big.Int).Sub(lambda, up(times(mu, whole(int64(p.Demands[d].Interruptible))), whole(1000)))
			mu = new(big.Int)
		}
		h.lambda, h.mu = append(h.lambda, lambda), append(h.mu, mu)
	}
	return h, nil
}

// cut evaluates a cut.
func (t *tangents) cut(proof *joint.CaseProof, cut *joint.Cut, hours *slots) (*tangent, error) {
	p := t.p
	b := &t.part.Blocks[proof.Block]
	out := &tangent{
		held: new(big.Int), firm: zeros(len(b.Pools)), priced: zeros(len(b.Pools)), spend: zeros(len(b.Spends)),
		quota: zeros(len(b.Quotas)),
	}
	var err error
	if out.multipliers, err = t.multipliers(cut.Limits); err != nil {
		return nil, err
	}
	for n := range out.multipliers {
		if p.Limits[n].Serving == nil && out.multipliers[n].Sign() != 0 {
			return nil, fmt.Errorf("it has a multiplier of limit %d, of which serving takes nothing", n)
		}
	}
	byVector, err := runs(cut.Slots, len(proof.Vectors), len(hours.hours))
	if err != nil {
		return nil, err
	}
	pr := t.priced(proof.Epoch, out.multipliers)
	weight := whole(int64(p.Epochs[proof.Epoch].Cases[proof.Case].Weight))
	worths := make([]*hourly, len(hours.hours)) // of hours, where work waits
	for n, list := range byVector {
		if len(list) == 0 {
			continue
		}
		h, err := t.hourly(proof, b, &proof.Vectors[n], pr)
		if err != nil {
			return nil, fmt.Errorf("vector %d: %w", n, err)
		}
		all := new(big.Int)
		units, spotted := zeros(len(b.Demands)), zeros(len(b.Demands))
		for _, run := range list {
			for s := run.from; s < run.to; s++ {
				hour := whole(hours.hours[s])
				all.Add(all, hour)
				worths[s] = h
				for d, u := range hours.units[s] {
					if hours.waits != nil {
						u -= hours.waits[s][d]
					}
					plus(units[d], hour, whole(int64(u)))
					plus(spotted[d], hour, whole(int64(u*p.Demands[b.Demands[d]].Interruptible/1000)))
				}
			}
		}
		worth := new(big.Int)
		for d := range units {
			plus(worth, h.lambda[d], units[d])
			minus(worth, h.mu[d], spotted[d])
		}
		worth.Mul(worth, billion)
		minus(worth, h.held, all)
		plus(out.held, worth, weight)
		counted := times(all, weight)
		for i := range b.Pools {
			plus(out.firm[i], h.pi[i], counted)
			plus(out.priced[i], h.beta[i], counted)
		}
		for i := range b.Spends {
			plus(out.spend[i], h.rho[i], counted)
		}
		for i := range b.Quotas {
			plus(out.quota[i], h.kappa[i], counted)
		}
	}
	plus(out.held, times(t.waiting(b, hours, worths), billion), weight)
	return out, nil
}

// weigh adds what shares of cuts prove to a sum, in fractions, and the value of further units to
// their pools, spends and quotas.
func (t *tangents) weigh(shares []joint.Share, multipliers []*big.Int, sum *big.Int, slope *slopes) error {
	total := map[int]*big.Int{}  // weights by case
	used := map[int][]*big.Int{} // Σ weight·multiplier, by case and limit
	for i, share := range shares {
		switch {
		case share.Cut < 0 || share.Cut >= len(t.cuts):
			return fmt.Errorf("share %d is of cut %d, of %d", i, share.Cut, len(t.cuts))
		case share.Weight < 0 || share.Weight > joint.One:
			return fmt.Errorf("share %d has weight %d", i, share.Weight)
		}
		c := &t.cuts[share.Cut]
		weight := whole(share.Weight)
		if total[c.of] == nil {
			total[c.of], used[c.of] = new(big.Int), zeros(len(multipliers))
		}
		total[c.of].Add(total[c.of], weight)
		for n := range multipliers {
			plus(used[c.of][n], c.multipliers[n], weight)
		}
		plus(sum, c.held, weight)
		proof := &t.part.Cases[c.of]
		b := &t.part.Blocks[proof.Block]
		for i, n := range b.Pools {
			plus(slope.firm[proof.Epoch][n], c.firm[i], weight)
			plus(slope.priced[proof.Epoch][n], c.priced[i], weight)
		}
		for i, n := range b.Spends {
			plus(slope.spend[proof.Epoch][n], c.spend[i], weight)
		}
		for i, n := range b.Quotas {
			plus(slope.quota[proof.Epoch][n], c.quota[i], weight)
		}
	}
	for i := range t.part.Cases {
		if total[i] == nil {
			continue
		}
		if total[i].Cmp(one) > 0 {
			return fmt.Errorf("the weights of the shares of case %d are more than one", i)
		}
		for n := range multipliers {
			if used[i][n].Cmp(times(multipliers[n], one)) > 0 {
				return fmt.Errorf("the multipliers of limit %d in the shares of case %d are above that of the leaf", n, i)
			}
		}
	}
	return nil
}

// run is slots [from, to).
type run struct{ from, to int }

// runs decodes which slots have which vector.
func runs(encoded []byte, vectors, slots int) ([][]run, error) {
	out := make([][]run, vectors)
	at := 0
	for len(encoded) > 0 {
		n, size := binary.Uvarint(encoded)
		if size <= 0 || n == 0 || n > uint64(slots-at) {
			return nil, errors.New("its runs of slots cannot be read")
		}
		encoded = encoded[size:]
		v, size := binary.Uvarint(encoded)
		if size <= 0 || v >= uint64(vectors) {
			return nil, errors.New("its runs of slots name no vector")
		}
		encoded = encoded[size:]
		out[v] = append(out[v], run{at, at + int(n)})
		at += int(n)
	}
	if at != slots {
		return nil, fmt.Errorf("its runs name %d slots, of %d", at, slots)
	}
	return out, nil
}
