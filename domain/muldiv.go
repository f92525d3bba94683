package domain

import (
	"math"
	"math/bits"
)

// MulDiv returns a × b ÷ c, rounded down, and what is left; at most a quarter of the
// largest number. None is negative and c is not 0.
func MulDiv(a, b, c int64) (quotient, rest int64) {
	const most = math.MaxInt64 / 4
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return most, 0
	}
	n, left := bits.Div64(hi, lo, uint64(c))
	if n > most {
		return most, 0
	}
	return int64(n), int64(left)
}
