package attribution

import (
	"cmp"

	"quartermaster/domain"
)

// Hardware describes the machines of an allocation. A field is "" if no known machine is involved,
// [Unknown] if a machine does not state it, and [Mixed] if machines differ.
type Hardware struct {
	GPUModel string
	// Billing is the billing model that the machines are declared with. If they declare none, the
	// class of the line implies it: see [billingOf].
	Billing domain.BillingModel
}

// Special values of a property of machines.
const (
	Unknown = "unknown" // not stated
	Mixed   = "mixed"   // several machines that differ
)

// join merges the hardware of two sets of machines. It is commutative and idempotent, so the order
// of machines does not affect allocations.
func (h Hardware) join(o Hardware) Hardware {
	return Hardware{joinText(h.GPUModel, o.GPUModel), joinText(h.Billing, o.Billing)}
}

func joinText[T ~string](a, b T) T {
	switch {
	case a == b || b == "":
		return a
	case a == "":
		return b
	}
	return Mixed
}

// billingOf is the billing model that a class of lines implies if its machines state none: a
// commitment implies reserved. Tax, credits and shared charges imply none.
func billingOf(c Class) domain.BillingModel {
	if all := models[c]; len(all) > 0 {
		return all[0]
	}
	return ""
}

// hardwares numbers the distinct values of Hardware; 0 stands for no machine. The numbers do not
// affect any output.
type hardwares struct {
	all    []Hardware
	ids    map[Hardware]uint32
	joins  map[[2]uint32]uint32
	billed [][Rounding + 1]uint32 // by number and class: 1 + the result of [hardwares.paid]; 0 is not computed yet
}

func newHardwares() *hardwares {
	return &hardwares{
		all:    []Hardware{{}},
		ids:    map[Hardware]uint32{{}: 0},
		joins:  map[[2]uint32]uint32{},
		billed: make([][Rounding + 1]uint32, 1),
	}
}

func (h *hardwares) id(x Hardware) uint32 {
	id, ok := h.ids[x]
	if !ok {
		id = uint32(len(h.all))
		h.ids[x] = id
		h.all = append(h.all, x)
		h.billed = append(h.billed, [Rounding + 1]uint32{})
	}
	return id
}

// of returns the hardware of a machine.
func (h *hardwares) of(n *Node) uint32 {
	return h.id(Hardware{cmp.Or(n.GPUModel, Unknown), cmp.Or(n.Billing, Unknown)})
}

func (h *hardwares) join(a, b uint32) uint32 {
	if a == b || b == 0 {
		return a
	}
	if a == 0 {
		return b
	}
	key := [2]uint32{min(a, b), max(a, b)}
	id, ok := h.joins[key]
	if !ok {
		id = h.id(h.all[a].join(h.all[b]))
		h.joins[key] = id
	}
	return id
}

// paid returns hardware with the billing model of a class if it states none.
func (h *hardwares) paid(id uint32, c Class) uint32 {
	if known := h.billed[id][c]; known > 0 {
		return known - 1
	}
	out := id
	if x := h.all[id]; x.Billing == "" || x.Billing == Unknown {
		if x.Billing = cmp.Or(billingOf(c), x.Billing); x != h.all[id] {
			out = h.id(x)
		}
	}
	h.billed[id][c] = out + 1
	return out
}

// hardwareOf returns the hardware of the descriptions that were in service in a period, or of all
// if none was.
func (f *fleet) hardwareOf(h *hardwares, descs []int32, period domain.Interval) (id uint32) {
	all := uint32(0)
	for _, i := range descs {
		d := &f.descs[i]
		if all = h.join(all, d.hardware); !d.Service.Intersect(period).Empty() {
			id = h.join(id, d.hardware)
		}
	}
	if id == 0 {
		return all
	}
	return id
}

// committed returns the hardware of an unused commitment's line: that of the contract, else of the
// account's machines of the line's SKU and region.
func (r *run) committed(rec *record) uint32 {
	var pool []int32
	if rec.sku != 0 {
		region := r.book.texts[rec.region]
		for _, i := range r.fleet.bySKU[[2]string{r.book.texts[rec.account], r.book.texts[rec.sku]}] {
			if region == "" || r.fleet.descs[i].Region == region {
				pool = append(pool, i)
			}
		}
	}
	x := r.hardware.all[r.fleet.hardwareOf(r.hardware, pool, rec.charge)]
	contract := r.owners.hardware[r.book.texts[rec.commit]]
	return r.hardware.id(Hardware{cmp.Or(contract.GPUModel, x.GPUModel), cmp.Or(contract.Billing, x.Billing)})
}
