package joint

import (
	"encoding/binary"
	"slices"

	"quartermaster/domain/procurement"
)

// block is a [Block] with the data needed to price its hours.
type block struct {
	Block
	p                *Problem
	routes           []int // of the problem, ascending
	demandOf, poolOf []int // by route: positions
	num, den         []int64
	views            [][]view // by epoch and case
	hasDiscountOnly  [][]bool // by epoch and pool: some can be present
	hasSpend         [][]bool // by epoch and spend
}

// view is a case's slots as the block sees them.
type view struct {
	hours []int64
	units []int64 // slots × demands
	waits []int64 // slots × demands: those of units that may be put off; nil if the block has no window
	total int64   // hours
}

func newBlock(p *Problem, of Block) *block {
	b := &block{Block: of, p: p}
	for i, r := range p.Routes {
		if k, ok := slices.BinarySearch(b.Pools, r.Pool); ok {
			d, _ := slices.BinarySearch(b.Demands, r.Demand)
			b.routes = append(b.routes, i)
			b.demandOf, b.poolOf = append(b.demandOf, d), append(b.poolOf, k)
			b.num, b.den = append(b.num, int64(r.Num)), append(b.den, int64(r.Den))
		}
	}
	for m := range p.Epochs {
		views := make([]view, len(p.Epochs[m].Cases))
		for c := range views {
			views[c] = b.view(p.Epochs[m].Cases[c].Slots)
		}
		b.views = append(b.views, views)
		has, spend := make([]bool, len(b.Pools)), make([]bool, len(b.Spends))
		for k, i := range b.Pools {
			has[k] = p.Epochs[m].Pools[i].HeldDiscountOnly > 0
		}
		for k, i := range b.Spends {
			spend[k] = p.Epochs[m].Spends[i] > 0
		}
		b.hasDiscountOnly, b.hasSpend = append(b.hasDiscountOnly, has), append(b.hasSpend, spend)
	}
	for j := range p.Choices {
		for _, c := range p.Choices[j].Cover {
			if k, ok := slices.BinarySearch(b.Pools, c.Pool); ok && !c.Guaranteed {
				for m := c.From; m < c.To; m++ {
					b.hasDiscountOnly[m][k] = true
				}
			}
		}
		for _, c := range p.Choices[j].Spend {
			if k, ok := slices.BinarySearch(b.Spends, c.Spend); ok {
				for m := c.From; m < c.To; m++ {
					b.hasSpend[m][k] = true
				}
			}
		}
	}
	return b
}

func (b *block) view(slots []Slot) view {
	var v view
	n := len(b.Demands)
	if n == 0 {
		return v
	}
	if slices.ContainsFunc(b.Demands, func(d int) bool { return b.p.Demands[d].Window > 0 }) {
		return b.hourly(slots)
	}
	order := make([]int, 0, len(slots))
	for i := range slots {
		if slices.ContainsFunc(b.Demands, func(d int) bool { return b.wants(&slots[i], d) > 0 }) {
			order = append(order, i)
		}
	}
	compare := func(i, j int) int {
		for _, d := range b.Demands {
			if c := b.wants(&slots[i], d) - b.wants(&slots[j], d); c != 0 {
				return c
			}
		}
		return 0
	}
	slices.SortFunc(order, compare)
	v.units = make([]int64, 0, len(order)*n)
	for k, i := range order {
		v.total += int64(slots[i].Hours)
		if k > 0 && compare(order[k-1], i) == 0 {
			v.hours[len(v.hours)-1] += int64(slots[i].Hours)
			continue
		}
		v.hours = append(v.hours, int64(slots[i].Hours))
		for _, d := range b.Demands {
			v.units = append(v.units, int64(b.wants(&slots[i], d)))
		}
	}
	return v
}

// hourly is the view of a block with demand that waits: all hours in order.
func (b *block) hourly(slots []Slot) view {
	var v view
	v.waits = []int64{}
	for i := range slots {
		v.hours = append(v.hours, int64(slots[i].Hours))
		v.total += int64(slots[i].Hours)
		for _, d := range b.Demands {
			units, waits := int64(b.wants(&slots[i], d)), int64(0)
			if slots[i].Waits != nil && units > 0 {
				waits = int64(slots[i].Waits[d])
			}
			v.units, v.waits = append(v.units, units), append(v.waits, waits)
		}
	}
	return v
}

// wants is the demand of a slot.
func (b *block) wants(s *Slot, d int) int {
	if b.p.unwanted != nil && b.p.unwanted[d] {
		return 0
	}
	return s.Units[d]
}

// multiplied is an epoch's prices for the block, including the multipliers of limits, which are by
// limit of the problem; nil means all 0.
func (b *block) multiplied(m, c int, multipliers []int64) hourPrices {
	p, e := b.p, &b.p.Epochs[m]
	money, spot, unserved := newWide(1_000_000_000_000), newWide(0), newWide(0)
	short := func(v procurement.Nano) int64 { return int64(v) }
	if p.keeping {
		money, short = newWide(0), func(procurement.Nano) int64 { return 0 }
	}
	for l, v := range multipliers {
		if limit := &p.Limits[l]; limit.Serving != nil && v > 0 {
			to := money
			if limit.Spot {
				to = spot
			} else if limit.Unserved {
				to = unserved
			}
			to.addProduct(v, limit.Serving[m])
		}
	}
	price := func(v procurement.Nano) int64 {
		if v < 0 {
			return -1
		}
		return money.times(int64(v), 1_000_000_000_000)
	}
	h := hourPrices{}
	for _, i := range b.Pools {
		s := &e.Pools[i]
		h.onDemand = append(h.onDemand, price(s.OnDemand))
		z := price(s.Spot)
		if z >= 0 {
			z = add(z, spot.times(1, 1000))
		}
		h.spot = append(h.spot, z)
		h.spotBound = append(h.spotBound, e.Cases[c].Spot[i] != procurement.Unlimited)
		at := func(of []int, v int) int {
			if v < 0 {
				return -1
			}
			k, _ := slices.BinarySearch(of, v)
			return k
		}
		h.quotaOf, h.quotaUse = append(h.quotaOf, at(b.Quotas, s.Quota)), append(h.quotaUse, int64(s.QuotaPerUnit))
		h.spendOf, h.spendPrice = append(h.spendOf, at(b.Spends, s.Spend)), append(h.spendPrice, int64(s.SpendPrice))
	}
	for _, i := range b.routes {
		h.extra = append(h.extra, price(e.Routes[i]))
	}
	for _, i := range b.Demands {
		h.shortage = append(h.shortage, add(short(e.Shortage[i]), unserved.times(1, 1000)))
	}
	for _, i := range b.Quotas {
		h.quota = append(h.quota, e.Quotas[i] != procurement.Unlimited)
	}
	return h
}

// shape returns the columns of an hour at these prices, and their costs.
func (b *block) shape(m int, h *hourPrices) (*shape, []int64) {
	s := &shape{
		demands: len(b.Demands), pools: len(b.Pools), rows: len(b.Demands) + len(b.Pools), greatest: 1,
		bases: map[string]*basis{},
	}
	var cost []int64
	row := func(is bool) int {
		if !is {
			return -1
		}
		s.rows++
		return s.rows - 1
	}
	spots := make([]bool, s.demands)
	for r, p := range b.poolOf {
		d := b.demandOf[r]
		spots[d] = spots[d] || h.spot[p] >= 0 && b.p.Demands[b.Demands[d]].Interruptible > 0
	}
	for i := range s.demands {
		s.spotShare = append(s.spotShare, row(spots[i] && b.p.Demands[b.Demands[i]].Interruptible < 1000))
	}
	for i := range s.pools {
		s.spot = append(s.spot, row(h.spot[i] >= 0 && h.spotBound[i]))
		s.discountOnly = append(s.discountOnly, row(h.onDemand[i] >= 0 && b.hasDiscountOnly[m][i]))
	}
	for i := range h.quota {
		s.quota = append(s.quota, row(h.quota[i]))
	}
	for i := range b.Spends {
		used := false
		for k := range s.pools {
			used = used || b.hasSpend[m][i] && h.spendOf[k] == i && h.onDemand[k] >= 0
		}
		s.spend = append(s.spend, row(used))
	}
	put := func(kind columnKind, of int, price int64, at ...int64) {
		c := column{kind: kind, of: of}
		for k := 0; k < len(at); k += 2 {
			if at[k] >= 0 {
				c.row, c.val = append(c.row, int(at[k])), append(c.val, at[k+1])
				s.greatest = max(s.greatest, at[k+1], -at[k+1])
			}
		}
		s.columns = append(s.columns, c)
		cost = append(cost, min(price, maxVector))
	}
	for r := range b.routes {
		d, p := b.demandOf[r], b.poolOf[r]
		put(firmRoute, r, scale(h.extra[r], b.den[r], 1), int64(d), -b.den[r], int64(s.demands+p), b.num[r])
		if h.spot[p] >= 0 && spots[d] {
			put(spotRoute, r, add(scale(h.extra[r], b.den[r], 1), scale(h.spot[p], b.num[r], 1)),
				int64(d), -b.den[r], int64(s.spotShare[d]), b.den[r], int64(s.spot[p]), b.num[r])
		}
	}
	for i := range s.pools {
		if h.onDemand[i] < 0 {
			continue
		}
		quota := int64(-1)
		if q := h.quotaOf[i]; q >= 0 {
			quota = int64(s.quota[q])
		}
		pool := int64(s.demands + i)
		put(onDemand, i, h.onDemand[i], pool, -1, quota, h.quotaUse[i])
		if s.discountOnly[i] >= 0 {
			put(discountOnly, i, 0, pool, -1, quota, h.quotaUse[i], int64(s.discountOnly[i]), 1)
		}
		if c := h.spendOf[i]; c >= 0 && s.spend[c] >= 0 {
			put(committed, i, 0, pool, -1, quota, h.quotaUse[i], int64(s.spend[c]), h.spendPrice[i])
		}
	}
	for i := range s.demands {
		put(shortage, i, h.shortage[i], int64(i), -1)
	}
	return s, cost
}

// signature identifies a shape.
func (s *shape) signature() string {
	out := binary.AppendUvarint(nil, uint64(s.demands))
	for _, rows := range [][]int{{s.rows}, s.spotShare, s.spot, s.discountOnly, s.quota, s.spend} {
		out = binary.AppendUvarint(out, uint64(len(rows)))
		for _, row := range rows {
			out = binary.AppendVarint(out, int64(row))
		}
	}
	for _, c := range s.columns {
		out = append(out, byte(c.kind))
		out = binary.AppendUvarint(out, uint64(c.of))
		for k := range c.row {
			out = binary.AppendUvarint(out, uint64(c.row[k]))
			out = binary.AppendVarint(out, c.val[k])
		}
	}
	return string(out)
}
