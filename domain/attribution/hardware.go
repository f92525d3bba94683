package attribution

import (
	"cmp"

	"quartermaster/domain"
)

// Hardware says what the machines are that an allocation is for. A field is "" where no
// machine is known that could say it, [Unknown] where a machine does not say it, and
// [Mixed] where machines differ.
type Hardware struct {
	GPUModel string
	// Billing is how the machines are declared to be paid for. Where they do not say
	// it, the class of the line does: see [billingOf].
	Billing domain.BillingModel
}

// What stands for a property of machines that is not one.
const (
	Unknown = "unknown" // nobody said
	Mixed   = "mixed"   // of several machines, not all the same
)

// join is the hardware of two sets of machines together. It commutes, and joining again
// changes nothing, so the order in which machines come changes no allocation.
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

// billingOf is what a class of lines is billed as where its machines do not say: a
// commitment is taken for reserved. Tax, credits and shared charges say nothing.
func billingOf(c Class) domain.BillingModel {
	if all := models[c]; len(all) > 0 {
		return all[0]
	}
	return ""
}

// hardwares numbers what there is of hardware; 0 is that of no machine. Nothing that is
// reported depends on the numbers.
type hardwares struct {
	all    []Hardware
	ids    map[Hardware]uint32
	joins  map[[2]uint32]uint32
	billed [][Rounding + 1]uint32 // of a number and a class, the number and one of [hardwares.paid]; 0 is not known yet
}

func newHardwares() *hardwares {
	return &hardwares{all: []Hardware{{}}, ids: map[Hardware]uint32{{}: 0}, joins: map[[2]uint32]uint32{}, billed: make([][Rounding + 1]uint32, 1)}
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

// paid returns hardware with the billing model of a class where it has none.
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

// hardwareOf returns the hardware of those of the descriptions that held in a period, of
// all of them where none did.
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

// committed returns the hardware of a line of a commitment that nobody used: what the
// contract is for, else the account's machines of the line's SKU and region.
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
