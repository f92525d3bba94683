package procurement

import (
	"math/big"
	"math/bits"
)

// wide is a signed 128-bit sum of products, in two's complement. The limits of a pool keep every
// sum of this package below 2¹²⁰.
type wide struct{ hi, lo uint64 }

// add adds a × n.
func (w *wide) add(a Nano, n int) {
	negative := (a < 0) != (n < 0)
	hi, lo := bits.Mul64(magnitude(int64(a)), magnitude(int64(n)))
	var carry uint64
	if negative {
		w.lo, carry = bits.Sub64(w.lo, lo, 0)
		w.hi, _ = bits.Sub64(w.hi, hi, carry)
		return
	}
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi, _ = bits.Add64(w.hi, hi, carry)
}

func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}

// less compares as signed numbers.
func (w wide) less(v wide) bool {
	if w.hi != v.hi {
		return int64(w.hi) < int64(v.hi)
	}
	return w.lo < v.lo
}

func (w wide) big() *big.Int {
	negative := int64(w.hi) < 0
	if negative {
		var carry uint64
		w.lo, carry = bits.Sub64(0, w.lo, 0)
		w.hi, _ = bits.Sub64(0, w.hi, carry)
	}
	z := new(big.Int).SetUint64(w.hi)
	z.Lsh(z, 64).Or(z, new(big.Int).SetUint64(w.lo))
	if negative {
		z.Neg(z)
	}
	return z
}
