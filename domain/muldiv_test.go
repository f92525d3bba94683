package domain_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
)

func TestMulDivIsExactUpToItsBound(t *testing.T) {
	const most = math.MaxInt64 / 4
	check := func(t rapid.TB, a, b, c int64) {
		want, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c), new(big.Int))
		if want.Cmp(big.NewInt(most)) > 0 {
			want.SetInt64(most)
			rest.SetInt64(0)
		}
		if got, left := domain.MulDiv(a, b, c); got != want.Int64() || left != rest.Int64() {
			t.Fatalf("%d × %d ÷ %d is %d and %d, want %d and %d", a, b, c, got, left, want, rest)
		}
	}
	check(t, most, 7, 7)
	check(t, most+1, 7, 7)
	check(t, math.MaxInt64, math.MaxInt64, math.MaxInt64)
	check(t, 1<<62, 1<<62, 1<<60) // the quotient is 1<<64
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.Int64Min(0).Draw(t, "a"), rapid.Int64Min(0).Draw(t, "b"), rapid.Int64Min(1).Draw(t, "c"))
	})
}
