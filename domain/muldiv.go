package domain

import (
	"math"
	"math/bits"
)

// MulDiv returns a × b ÷ c, rounded down, and the remainder. The result is capped at math.MaxInt64
// / 4. Arguments MUST NOT be negative and c MUST NOT be 0.
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
