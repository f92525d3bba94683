package attribution

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unsafe"
)

// Who held what an allocation paid for is a second division, of the allocation among pods or jobs and machines. It
// does not change allocations or their names: see [Allocation.Divide].

// Holder is what one unit had of an allocation on one machine. Its weight is time for a line that was divided by
// use, and money for one that follows others; the other fields are zero.
type Holder struct {
	Unit string // pod or job, as the usage names it; "" for what none held
	Node string // the machine, as cluster/node; "" for none
	// Micros is GPU time in microseconds, as the allocation's Weight, Useful a part of Known, and Known a part of it.
	Micros, Useful, Known uint64
	// Billed and Effective are the cost of the charges that the line follows, in each ledger.
	Billed, Effective Amount
}

// Holders are those of an allocation, by unit and node, each pair once. Nil is none: nobody held it, and it is for no
// machine. If there is one, all of the allocation is its, whatever its weight.
type Holders struct {
	names *names
	uses  []use      // of a line that was divided by use
	after []heldCost // of a line that follows others
	list  []Holder   // given
}

// heldCost is the cost of a unit on a machine.
type heldCost struct {
	unit, machine uint32
	costs
}

// HoldersOf returns given holders, which it keeps. They MUST be in order.
func HoldersOf(list []Holder) *Holders { return &Holders{list: list} }

// Len is how many there are.
func (h *Holders) Len() int {
	if h == nil {
		return 0
	}
	return len(h.uses) + len(h.after) + len(h.list)
}

// Bytes is about how much memory they take; lines that are divided alike share them.
func (h *Holders) Bytes() int {
	if h == nil {
		return 0
	}
	return int(unsafe.Sizeof(*h)) + len(h.uses)*int(unsafe.Sizeof(use{})) + len(h.after)*int(unsafe.Sizeof(heldCost{})) +
		len(h.list)*int(unsafe.Sizeof(Holder{}))
}

// At returns one of them.
func (h *Holders) At(i int) Holder {
	switch {
	case len(h.uses) > 0:
		u := &h.uses[i]
		return Holder{
			Unit: h.names.units[u.unit], Node: h.names.nodes[u.machine],
			Micros: uint64(u.micros), Useful: uint64(u.useful), Known: uint64(u.known),
		}
	case len(h.after) > 0:
		a := &h.after[i]
		return Holder{Unit: h.names.units[a.unit], Node: h.names.nodes[a.machine], Billed: a.billed, Effective: a.effective}
	}
	return h.list[i]
}

// pair returns the numbers of a unit and a machine of holders that this division made.
func (h *Holders) pair(i int) (unit, machine uint32) {
	if len(h.uses) > 0 {
		return h.uses[i].unit, h.uses[i].machine
	}
	return h.after[i].unit, h.after[i].machine
}

// weight returns a holder's weight in each ledger.
func (h *Holders) weight(i int) (billed, effective u128) {
	switch {
	case len(h.uses) > 0:
		w := u128{0, uint64(h.uses[i].micros)}
		return w, w
	case len(h.after) > 0:
		billed, _ = h.after[i].billed.parts()
		effective, _ = h.after[i].effective.parts()
		return billed, effective
	}
	l := &h.list[i]
	if l.Micros > 0 {
		return u128{0, l.Micros}, u128{0, l.Micros}
	}
	billed, _ = l.Billed.parts()
	effective, _ = l.Effective.parts()
	return billed, effective
}

// measured returns the parts of a holder's time that were useful and measured.
func (h *Holders) measured(i int) (useful, known u128) {
	switch {
	case len(h.uses) > 0:
		return u128{0, uint64(h.uses[i].useful)}, u128{0, uint64(h.uses[i].known)}
	case len(h.list) > 0:
		return u128{0, h.list[i].Useful}, u128{0, h.list[i].Known}
	}
	return u128{}, u128{}
}

// nextOf is next of a division whose weights may all be zero: then the first part is the whole.
func (d *division) nextOf(sum, total u128) Amount {
	if total.isZero() {
		sum, total = u128{0, 1}, u128{0, 1}
	}
	return d.next(sum, total)
}

// Weights returns what each holder weighs in the billed ledger, and the sum; in the effective one if that is zero.
func (h *Holders) Weights() (all []Amount, of Amount) {
	var effective []Amount
	var sum Amount
	for i := range h.Len() {
		b, e := h.weight(i)
		all, effective = append(all, signed(b, false)), append(effective, signed(e, false))
		of, sum = of.Add(all[i]), sum.Add(effective[i])
	}
	if of.IsZero() {
		return effective, sum
	}
	return all, of
}

// amounts calls yield with what each holder has of an allocation's amounts: Weight of the weights of all, rounded
// cumulatively. They add up to it exactly.
func (l *Allocation) amounts(yield func(i int, billed, effective Amount)) {
	n := l.Holders.Len()
	if n < 2 {
		yield(0, l.Billed, l.Effective)
		return
	}
	var totalB, totalE, atB, atE u128
	for i := range n {
		b, e := l.Holders.weight(i)
		totalB, totalE = totalB.add(b), totalE.add(e)
	}
	billed, effective := divisionOf(l.Billed), divisionOf(l.Effective)
	for i := range n {
		b, e := l.Holders.weight(i)
		atB, atE = atB.add(b), atE.add(e)
		yield(i, billed.nextOf(atB, totalB), effective.nextOf(atE, totalE))
	}
}

// Divide calls yield with what each holder has of the allocation, by unit and node, until yield returns an error.
// Holder and part are reused. The part is the allocation with other amounts and GPU times, and without Holders:
//
//   - The parts add up to the allocation exactly, in both ledgers and in each of its GPU times.
//   - The amounts are divided by the holders' weights, by cumulative rounding as lines are, and so are bought and
//     allocated time. Measured and useful time are divided by what was measured of each holder. In each part, useful
//     time ≤ measured ≤ allocated.
//
// An allocation without holders is one part, of no unit and no machine.
func (l *Allocation) Divide(yield func(h *Holder, part *Allocation) error) error {
	var h Holder
	switch l.Holders.Len() {
	case 0:
		return yield(&h, l)
	case 1:
		h = l.Holders.At(0)
		return yield(&h, l)
	}
	part := *l
	part.Holders = nil
	times := l.times()
	var err error
	l.amounts(func(i int, billed, effective Amount) {
		if err != nil {
			return
		}
		h = l.Holders.At(i)
		part.Billed, part.Effective = billed, effective
		if times != nil {
			part.BoughtMs, part.AllocatedMs, part.MeasuredMs, part.UsefulMs = times[i][0], times[i][1], times[i][2], times[i][3]
		}
		err = yield(&h, &part)
	})
	return err
}

// times divides bought, allocated, measured and useful time among several holders; nil if there is none.
func (l *Allocation) times() [][4]int64 {
	if l.BoughtMs|l.AllocatedMs|l.MeasuredMs|l.UsefulMs == 0 {
		return nil
	}
	h := l.Holders
	all := make([][4]int64, h.Len())
	for at, ms := range [...]int64{l.BoughtMs, l.AllocatedMs, l.MeasuredMs, l.UsefulMs} {
		divideTime(all, at, ms, func(i int) (w u128) {
			switch at {
			case 2:
				_, w = h.measured(i)
			case 3:
				w, _ = h.measured(i)
			default:
				w, _ = h.weight(i)
			}
			return w
		})
	}
	return all
}

// divideTime divides one of the times. What rounding would give a holder of measured or useful time beyond the time
// that it is a part of, the first holders with room for it get.
func divideTime(all [][4]int64, at int, ms int64, weight func(int) u128) {
	var total, sum u128
	for i := range all {
		total = total.add(weight(i))
	}
	d, left := divisionOfMs(int64(magnitude(ms))), int64(0)
	room := func(i int) int64 {
		if at < 2 {
			return math.MaxInt64
		}
		return int64(magnitude(all[i][at-1])) - all[i][at]
	}
	for i := range all {
		sum = sum.add(weight(i))
		part, _ := d.nextOf(sum, total).parts()
		n := min(int64(part.lo), room(i))
		all[i][at], left = n, left+int64(part.lo)-n
	}
	for i := range all {
		n := min(left, max(0, room(i)))
		all[i][at], left = all[i][at]+n, left-n
	}
	all[0][at] += left // of times that no division has
	if ms < 0 {
		for i := range all {
			all[i][at] = -all[i][at]
		}
	}
}

// names are the units and machines of holders, by number; 0 stands for none. The numbers do not affect any output.
type names struct {
	units []string
	nodes []string // by machine + 1, as cluster/node
	ids   map[string]uint32
}

func newNames(f *fleet) *names {
	n := &names{units: []string{""}, nodes: make([]string, 1, len(f.machines)+1), ids: map[string]uint32{"": 0}}
	for i := range f.machines {
		n.nodes = append(n.nodes, f.machines[i].subject(f))
	}
	return n
}

// unit numbers a unit. Its text may be a part of a large buffer that is reused.
func (n *names) unit(text string) uint32 {
	if id, ok := n.ids[text]; ok {
		return id
	}
	text = strings.Clone(text)
	id := uint32(len(n.units))
	n.ids[text] = id
	n.units = append(n.units, text)
	return id
}

// compare orders pairs of a unit and a machine. Machines are numbered by name.
func (n *names) compare(unit, machine, otherUnit, otherMachine uint32) int {
	if unit != otherUnit {
		return strings.Compare(n.units[unit], n.units[otherUnit])
	}
	return cmp.Compare(machine, otherMachine)
}

// holder returns the holders of what one unit had on one machine; nil for neither.
func (n *names) holder(unit, machine uint32) *Holders {
	if unit == 0 && machine == 0 {
		return nil
	}
	return &Holders{names: n, uses: []use{{unit: unit, machine: machine, micros: 1}}}
}

// holders returns those of uses of one key, in order. copied: the uses may change later.
func (n *names) holders(uses []use, copied bool) *Holders {
	if copied {
		uses = slices.DeleteFunc(slices.Clone(uses), func(u use) bool { return u.micros == 0 })
	}
	return &Holders{names: n, uses: uses}
}
