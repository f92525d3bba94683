package attribution

import (
	"cmp"
	"slices"

	"quartermaster/domain"
)

// following records which lines follow which. This is decided before anything is divided, so that
// only charges with followers are summed.
//
// A tax, credit, rounding or adjustment follows the charges of the first scope that has any with
// nonzero amounts. The scopes are: charges for its resource in the same account and billing period;
// charges of its invoice detail; of its invoice; of its account and billing period. A scope has one
// issuer and currency. Lines that follow are never followed themselves: tax on a credited charge is
// divided by the charge, not by the charge less its credit.
//
// Within the scope, billed cost is divided by billed cost and effective cost by effective cost, or
// by the other ledger if that one is zero throughout. An allocation key counts with its net cost
// over all charges of the scope, if that has the sign of the scope's total. So an invoice that only
// reverses another is followed like the one that it reverses.
type following struct {
	tallies []tally
	scopes  map[scope]int32
	covers  map[coverKey]*covers
}

// covers are the lines of one commitment, used and unused, that its recurring purchases follow:
// those whose charge period begins within the purchase's.
type covers struct {
	of      []cover // by period
	longest domain.Instant
}

type cover struct {
	period domain.Interval
	tally  int32
}

type coverKey struct{ issuer, commit, currency name }

func newFollowing(b *book) *following {
	f := &following{scopes: map[scope]int32{}, covers: map[coverKey]*covers{}}
	const wanted, found = -2, -1
	var at []scope
	for i := range b.records {
		if r := &b.records[i]; r.basis == byOthers {
			for _, s := range scopesOf(r, at[:0]) {
				f.scopes[s] = wanted
			}
		}
	}
	if len(f.scopes) > 0 {
		for i := range b.records {
			if r := &b.records[i]; r.basis != byOthers && !(r.billed.IsZero() && r.effective.IsZero()) {
				at = scopesOf(r, at[:0])
				for _, s := range at {
					if _, ok := f.scopes[s]; ok {
						f.scopes[s] = found
					}
				}
			}
		}
	}
	for i := range b.records {
		switch r := &b.records[i]; r.basis {
		case byOthers:
			at = scopesOf(r, at[:0])
			for _, s := range at {
				id := f.scopes[s]
				if id == wanted {
					continue
				}
				if id == found {
					id = f.tally(s)
					f.scopes[s] = id
				}
				r.follow = id
				if s.Kind == ofResource && r.class == Credit && b.texts[r.category] == categoryCredit {
					t := &f.tallies[id]
					t.credits = costs{t.credits.billed.Add(r.billed), t.credits.effective.Add(r.effective)}
				}
				break
			}
		case byCovered:
			k := coverKey{r.issuer, r.commit, r.currency}
			c := f.covers[k]
			if c == nil {
				c = &covers{}
				f.covers[k] = c
			}
			byPurchase := func(c cover, p domain.Interval) int { return byPeriod(c.period, p) }
			n, ok := slices.BinarySearchFunc(c.of, r.charge, byPurchase)
			if !ok {
				tally := f.tally(scope{
					Kind: ofCommitment, Issuer: r.issuer, Currency: r.currency, Object: r.commit, Period: r.charge,
				})
				c.of = slices.Insert(c.of, n, cover{r.charge, tally})
				c.longest = max(c.longest, r.charge.Length())
			}
			r.follow = c.of[n].tally
		}
	}
	// Scopes without followers need no sum.
	for s, id := range f.scopes {
		if id < 0 {
			delete(f.scopes, s)
		}
	}
	return f
}

func (f *following) tally(of scope) int32 {
	f.tallies = append(f.tallies, tally{of: of, sums: map[uint32]tallied{}, held: map[heldKey]costs{}})
	return int32(len(f.tallies) - 1)
}

// feeds appends the tallies that a line's allocations are added to.
func (f *following) feeds(r *record, to []int32) []int32 {
	if r.basis == byOthers {
		return to
	}
	if len(f.scopes) > 0 {
		var space [4]scope
		for _, s := range scopesOf(r, space[:0]) {
			if id, ok := f.scopes[s]; ok {
				to = append(to, id)
			}
		}
	}
	if r.commit != 0 && (r.basis == byUse || r.basis == byOwner || r.basis == byNobody) {
		if c := f.covers[coverKey{r.issuer, r.commit, r.currency}]; c != nil {
			from := r.charge.From
			after := func(c cover, t domain.Instant) int { return cmp.Or(cmp.Compare(c.period.From, t), -1) }
			n, _ := slices.BinarySearchFunc(c.of, from, after)
			for n--; n >= 0 && c.of[n].period.From+c.longest > from; n-- {
				if c.of[n].period.To > from {
					to = append(to, c.of[n].tally)
				}
			}
		}
	}
	return to
}

// tally is the cost of the charges of a scope, by allocation key.
type tally struct {
	of      scope
	lines   int    // that were added
	costly  bool   // some of them cost something
	node    string // of those; see [Line.Node]
	sums    map[uint32]tallied
	held    map[heldKey]costs // of the same, by holder
	holders map[heldIn]*Holders
	pairs   map[uint32][]heldKey // of held, by key and in order, once sums are complete
	credits costs                // the sum of credits that name a resource

	ordered []uint32 // the keys in the order of allocations, once sums are complete
}

type costs struct{ billed, effective Amount }

// heldKey is a unit and a machine that have a part of an allocation key.
type heldKey struct{ key, unit, machine uint32 }

// heldIn is a key, and the ledgers in which its cost weighs for billed and for effective cost.
type heldIn struct {
	key     uint32
	ledgers [2]int // see [tally.weights]
}

// tallied is the cost of an allocation key, and its hardware.
type tallied struct {
	costs
	hardware uint32
}

// begin notes a line whose allocations are added next.
func (t *tally) begin(l *Line) {
	t.lines++
	switch {
	case l.Billed.IsZero() && l.Effective.IsZero(): // it is not followed
	case !t.costly:
		t.costly, t.node = true, l.Node
	case t.node != l.Node:
		t.node = Mixed
	}
}

func (t *tally) add(key, hardware uint32, l *Allocation, h *hardwares) {
	billed, effective := l.Billed, l.Effective
	if billed.IsZero() && effective.IsZero() {
		hardware = 0 // a key without cost is not followed
	}
	c := t.sums[key]
	t.sums[key] = tallied{costs{c.billed.Add(billed), c.effective.Add(effective)}, h.join(c.hardware, hardware)}
	l.amounts(func(i int, billed, effective Amount) {
		of := heldKey{key: key}
		if l.Holders != nil {
			of.unit, of.machine = l.Holders.pair(i)
		}
		c := t.held[of]
		t.held[of] = costs{c.billed.Add(billed), c.effective.Add(effective)}
	})
}

func (t *tally) order(k *keys) []uint32 {
	if t.ordered == nil {
		for key := range t.sums {
			t.ordered = append(t.ordered, key)
		}
		slices.SortFunc(t.ordered, k.compare)
	}
	return t.ordered
}

// holdersOf returns the holders of a key. Each counts with its net cost, if that has the sign of the key's.
func (t *tally) holdersOf(key uint32, n *names, by [2]int) *Holders {
	if t.pairs == nil {
		t.pairs, t.holders = map[uint32][]heldKey{}, map[heldIn]*Holders{}
		for k := range t.held {
			t.pairs[k.key] = append(t.pairs[k.key], k)
		}
		for _, pairs := range t.pairs {
			slices.SortFunc(pairs, func(a, b heldKey) int { return n.compare(a.unit, a.machine, b.unit, b.machine) })
		}
	}
	in := heldIn{key, by}
	h, known := t.holders[in]
	if known {
		return h
	}
	var all []heldCost
	for _, k := range t.pairs[key] {
		weight := func(ledger int) (w Amount) {
			if c := ledgers[ledger](t.held[k]); c.Sign() == ledgers[ledger](t.sums[key].costs).Sign() {
				w = c.Abs()
			}
			return w
		}
		if c := (costs{weight(by[0]), weight(by[1])}); c != (costs{}) {
			all = append(all, heldCost{k.unit, k.machine, c})
		}
	}
	switch len(all) {
	case 0:
	case 1:
		h = n.holder(all[0].unit, all[0].machine)
	default:
		h = &Holders{names: n, after: all}
	}
	t.holders[in] = h
	return h
}

// ledgers select one of the two costs.
var ledgers = [...]func(costs) Amount{
	ofBilled:    func(c costs) Amount { return c.billed },
	ofEffective: func(c costs) Amount { return c.effective },
}

const (
	ofBilled = iota
	ofEffective
)

// weights returns the weight of each key in the order of allocations, and the ledger that they are of: the first of
// two that has any cost; nil if none has.
func (t *tally) weights(k *keys, first, second int) ([]u128, int) {
	order := t.order(k)
	for _, ledger := range [...]int{first, second} {
		of := ledgers[ledger]
		var sum Amount
		for _, key := range order {
			sum = sum.Add(of(t.sums[key].costs))
		}
		w := make([]u128, len(order))
		some := false
		for i, key := range order {
			cost := of(t.sums[key].costs)
			if sum.IsZero() || cost.Sign() == sum.Sign() {
				w[i], _ = cost.parts()
				some = some || !cost.IsZero()
			}
		}
		if some {
			return w, ledger
		}
	}
	return nil, first
}

// netting lets credits first pay for failed and maintenance time, up to its cost; the rest follows
// the other keys. The limit applies to all credits of a scope together, and all are divided alike,
// so that a reversed credit cancels.
func (t *tally) netting(k *keys, w []u128, ledger int) []u128 {
	credits, _ := ledgers[ledger](t.credits).parts()
	if credits.isZero() || w == nil {
		return w
	}
	var down, up u128
	first := make([]bool, len(w))
	for i, key := range t.ordered {
		c := k.all[key].component
		if first[i] = c == Failed || c == Maintenance; first[i] {
			down = down.add(w[i])
		} else {
			up = up.add(w[i])
		}
	}
	switch {
	case down.isZero() || up.isZero():
		return w
	case !down.less(credits):
		for i := range w {
			if !first[i] {
				w[i] = u128{}
			}
		}
		return w
	}
	rest := division{whole: credits.sub(down)}
	var at u128
	for i := range w {
		if !first[i] {
			at = at.add(w[i])
			w[i], _ = rest.next(at, up).parts()
		}
	}
	return w
}

// others divides a line that follows charges.
func (r *run) others(rec *record) error {
	if rec.follow < 0 {
		return r.unmatched(rec, howNoCharge)
	}
	t := &r.follow.tallies[rec.follow]
	billed, inBilled := t.weights(r.keys, ofBilled, ofEffective)
	effective, inEffective := t.weights(r.keys, ofEffective, ofBilled)
	if r.line.Class == Credit && r.line.Category == categoryCredit {
		// Only scopes of a resource collect such credits.
		billed, effective = t.netting(r.keys, billed, ofBilled), t.netting(r.keys, effective, ofEffective)
	}
	if billed == nil {
		return r.unmatched(rec, howCancelled)
	}
	return r.after(rec, t, ByFollowing, billed, effective, [2]int{inBilled, inEffective})
}

// covered divides a recurring purchase of a commitment like the usage that it covered, by effective
// cost. If that is unknown, the commitment's owners are charged.
func (r *run) covered(rec *record) error {
	t := &r.follow.tallies[rec.follow]
	w, ledger := t.weights(r.keys, ofEffective, ofBilled)
	if w == nil {
		return r.owned(rec)
	}
	return r.after(rec, t, ByCommitment, w, w, [2]int{ledger, ledger})
}

// after divides the current record by weights of a tally, for each ledger, and says which ledgers the weights are of.
func (r *run) after(rec *record, t *tally, method MatchMethod, billed, effective []u128, by [2]int) error {
	r.followed(rec, t)
	var totalB, totalE, atB, atE u128
	for i := range billed {
		totalB, totalE = totalB.add(billed[i]), totalE.add(effective[i])
	}
	b, e := divisionOf(rec.cost()), divisionOf(rec.effective)
	r.out.Hour, r.out.MatchMethod, r.out.Of = 0, method, signed(totalB, false)
	for i, key := range t.ordered {
		if billed[i].isZero() && effective[i].isZero() {
			continue
		}
		atB, atE = atB.add(billed[i]), atE.add(effective[i])
		r.out.Weight, r.out.Holders = signed(billed[i], false), t.holdersOf(key, r.names, by)
		if err := r.give(key, t.sums[key].hardware, b.next(atB, totalB), e.next(atE, totalE)); err != nil {
			return err
		}
	}
	return nil
}
