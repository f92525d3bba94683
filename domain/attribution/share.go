package attribution

import "math/bits"

// u128 is an unsigned 128-bit integer.
type u128 struct{ hi, lo uint64 }

func (a u128) isZero() bool { return a.hi|a.lo == 0 }

func (a u128) less(b u128) bool { return a.hi < b.hi || a.hi == b.hi && a.lo < b.lo }

// add wraps around. Callers MUST bound the sum.
func (a u128) add(b u128) u128 {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return u128{a.hi + b.hi + carry, lo}
}

func (a u128) sub(b u128) u128 {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	return u128{a.hi - b.hi - borrow, lo}
}

func (a u128) divMod(d uint64) (u128, uint64) {
	hi, r := a.hi/d, a.hi%d
	lo, r := bits.Div64(r, a.lo, d)
	return u128{hi, lo}, r
}

// scale64 returns floor(a·n/d). The quotient MUST fit, as it does for n ≤ d.
func (a u128) scale64(n, d uint64) u128 {
	// The product has three words.
	p1, p0 := bits.Mul64(a.lo, n)
	p2, q := bits.Mul64(a.hi, n)
	p1, carry := bits.Add64(p1, q, 0)
	p2 += carry
	hi, r := bits.Div64(p2, p1, d)
	lo, _ := bits.Div64(r, p0, d)
	return u128{hi, lo}
}

// scale returns floor(a·n/d). The quotient MUST fit, as it does for n ≤ d.
func (a u128) scale(n, d u128) u128 {
	if d.hi == 0 && n.hi == 0 {
		return a.scale64(n.lo, d.lo)
	}
	// The product has four words.
	p1, p0 := bits.Mul64(a.lo, n.lo)
	h1, l1 := bits.Mul64(a.lo, n.hi)
	h2, l2 := bits.Mul64(a.hi, n.lo)
	p3, p2 := bits.Mul64(a.hi, n.hi)
	var c uint64
	p1, c = bits.Add64(p1, l1, 0)
	p2, c = bits.Add64(p2, h1, c)
	p3 += c
	p1, c = bits.Add64(p1, l2, 0)
	p2, c = bits.Add64(p2, h2, c)
	p3 += c
	// Long division by two words needs the divisor's top bit set (Knuth, The Art of Computer
	// Programming 2, 4.3.1, algorithm D). The shift loses no bits of the product, because the
	// quotient fits in two words.
	s := uint(bits.LeadingZeros64(d.hi))
	if d.hi == 0 {
		s = 64 + uint(bits.LeadingZeros64(d.lo))
	}
	for ; s >= 64; s -= 64 {
		d = u128{d.lo, 0}
		p3, p2, p1, p0 = p2, p1, p0, 0
	}
	if s > 0 {
		d = u128{d.hi<<s | d.lo>>(64-s), d.lo << s}
		p3 = p3<<s | p2>>(64-s)
		p2 = p2<<s | p1>>(64-s)
		p1 = p1<<s | p0>>(64-s)
		p0 <<= s
	}
	hi, r := divide3by2(p3, p2, p1, d)
	lo, _ := divide3by2(r.hi, r.lo, p0, d)
	return u128{hi, lo}
}

// divide3by2 divides three words by two. The upper word of the divisor has its top bit set. The
// quotient MUST fit in one word: (u2, u1) < d.
func divide3by2(u2, u1, u0 uint64, d u128) (q uint64, r u128) {
	q = ^uint64(0)
	if u2 < d.hi {
		q, _ = bits.Div64(u2, u1, d.hi)
	}
	// q is at most two too large: decrease it until the remainder is not negative.
	h0, l0 := bits.Mul64(q, d.lo)
	h1, l1 := bits.Mul64(q, d.hi)
	m1, c := bits.Add64(h0, l1, 0)
	m2 := h1 + c
	r0, b := bits.Sub64(u0, l0, 0)
	r1, b := bits.Sub64(u1, m1, b)
	r2, b := bits.Sub64(u2, m2, b)
	for b != 0 {
		q--
		var c uint64
		r0, c = bits.Add64(r0, d.lo, 0)
		r1, c = bits.Add64(r1, d.hi, c)
		r2, c = bits.Add64(r2, 0, c)
		b -= c
	}
	return q, u128{r1, r0}
}

// division splits an amount by cumulative rounding: after each step, the sum of the parts is the
// floor of the amount's share so far. The last step, whose cumulative weight is the total, yields
// the rest. So the parts are exact in sum, and each is within one unit of its exact value.
type division struct {
	whole    u128
	negative bool
	done     u128
}

func divisionOf(a Amount) division {
	m, negative := a.parts()
	return division{whole: m, negative: negative}
}

// next returns the part that ends at cumulative weight sum, of a total weight.
func (d *division) next(sum, total u128) Amount {
	if d.whole.isZero() {
		return Amount{}
	}
	upTo := d.whole.scale(sum, total)
	part := upTo.sub(d.done)
	d.done = upTo
	return signed(part, d.negative)
}

// next64 is next for weights of one word.
func (d *division) next64(sum, total uint64) Amount {
	if d.whole.isZero() {
		return Amount{}
	}
	upTo := d.whole.scale64(sum, total)
	part := upTo.sub(d.done)
	d.done = upTo
	return signed(part, d.negative)
}

// nextMs is next64 for a whole number that fits in 63 bits.
func (d *division) nextMs(sum, total uint64) int64 {
	return int64(d.next64(sum, total).lo)
}

// Portions divides another amount of a line like the line: among its allocations, in their order. The portions of a
// line add up to the amount, because the weights of its allocations add up to their Of.
type Portions struct {
	division
	at u128
}

// PortionsOf begins the division of an amount.
func PortionsOf(a Amount) Portions { return Portions{division: divisionOf(a)} }

// Next returns the portion of the next allocation, which has a weight of a total.
func (p *Portions) Next(weight, of Amount) Amount {
	w, _ := weight.parts()
	total, _ := of.parts()
	if rest := total.sub(p.at); total.less(p.at) || rest.less(w) {
		w = rest // weights that no division has
	}
	if total.isZero() || total.less(p.at) {
		return Amount{}
	}
	p.at = p.at.add(w)
	return p.next(p.at, total)
}

func divisionOfMs(n int64) division {
	return division{whole: u128{0, magnitude(n)}, negative: n < 0}
}
