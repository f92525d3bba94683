package joint

import (
	"math"
	"math/big"
	"math/bits"
)

// wide is a 128-bit sum of non-negative products, saturating at its largest value.
type wide struct{ hi, lo uint64 }

func newWide(v int64) *wide { return &wide{lo: uint64(v)} }

func (w *wide) addProduct(a, b int64) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, carry = bits.Add64(w.hi, hi, carry)
	if carry > 0 {
		*w = wide{math.MaxUint64, math.MaxUint64}
	}
}

// times returns ⌊w·a/den⌋, saturating at the largest number.
func (w *wide) times(a, den int64) int64 {
	if w.hi == 0 {
		hi, lo := bits.Mul64(w.lo, uint64(a))
		if hi >= uint64(den) {
			return math.MaxInt64
		}
		q, _ := bits.Div64(hi, lo, uint64(den))
		return int64(min(q, math.MaxInt64))
	}
	v := new(big.Int).SetUint64(w.hi)
	v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(w.lo))
	v.Mul(v, big.NewInt(a)).Quo(v, big.NewInt(den))
	if !v.IsInt64() {
		return math.MaxInt64
	}
	return v.Int64()
}

// exact is a signed sum of products of 64 bits, in 128 bits and then in as many as needed.
type exact struct {
	hi, lo uint64
	rest   *big.Int
}

func (e *exact) add(a, n int64) {
	hi, lo := bits.Mul64(magnitude(a), magnitude(n))
	if hi >= 1<<61 || e.hi+1<<61 >= 1<<62 { // near the limit of its range
		e.flush()
		if hi >= 1<<61 {
			t := new(big.Int).Mul(big.NewInt(a), big.NewInt(n))
			e.rest.Add(e.rest, t)
			return
		}
	}
	var carry uint64
	if (a < 0) != (n < 0) {
		e.lo, carry = bits.Sub64(e.lo, lo, 0)
		e.hi, _ = bits.Sub64(e.hi, hi, carry)
		return
	}
	e.lo, carry = bits.Add64(e.lo, lo, 0)
	e.hi, _ = bits.Add64(e.hi, hi, carry)
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

func (e *exact) flush() {
	if e.rest == nil {
		e.rest = new(big.Int)
	}
	e.rest.Add(e.rest, e.part())
	e.hi, e.lo = 0, 0
}

func (e *exact) part() *big.Int {
	hi, lo := e.hi, e.lo
	negative := int64(hi) < 0
	if negative {
		var carry uint64
		lo, carry = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, carry)
	}
	z := new(big.Int).SetUint64(hi)
	z.Lsh(z, 64).Or(z, new(big.Int).SetUint64(lo))
	if negative {
		z.Neg(z)
	}
	return z
}

func (e *exact) big() *big.Int {
	z := e.part()
	if e.rest != nil {
		z.Add(z, e.rest)
	}
	return z
}
