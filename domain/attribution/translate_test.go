package attribution

import (
	"math/big"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

// The parts of a line add up to the line's translation, which big.Rat computes otherwise.
func TestTranslationAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stated := decimal.New(rapid.Int64Range(1, 1e12).Draw(t, "rate"), -int32(rapid.IntRange(0, 12).Draw(t, "digits")))
		rate, err := RateOf(stated)
		if err != nil {
			t.Fatal(err)
		}
		var sum, translated Amount
		parts := TranslationAt(rate)
		for _, n := range rapid.SliceOfN(rapid.Int64(), 1, 30).Draw(t, "amounts") {
			a := signed(u128{0, magnitude(n)}, n < 0)
			part, ok := parts.Next(a)
			if !ok {
				t.Fatalf("%s at %s does not fit", a, stated)
			}
			alone, _ := a.Translate(rate)
			if d := part.Sub(alone).Abs(); d.Cmp(Amount{0, 1}) > 0 {
				t.Fatalf("a part of %s is %s, %s from its own translation", a, part, d)
			}
			sum, translated = sum.Add(a), translated.Add(part)
		}
		exact := new(big.Rat).Mul(sum.Decimal().Rat(), stated.Rat())
		want := new(big.Rat).SetInt(roundHalfAway(exact.Mul(exact, new(big.Rat).SetInt(units))))
		if got := new(big.Rat).SetInt(translated.int()); got.Cmp(want) != 0 {
			t.Fatalf("%s at %s is %s, want %s units", sum, stated, translated, want)
		}
	})
}

func roundHalfAway(r *big.Rat) *big.Int {
	half := big.NewRat(int64(r.Sign()), 2)
	r = new(big.Rat).Add(r, half)
	return new(big.Int).Quo(r.Num(), r.Denom())
}

func TestRateOfRefuses(t *testing.T) {
	for _, s := range []string{"0.0000000000000000001", "1000000000000000", "0", "-1.1"} {
		if _, err := RateOf(decimal.RequireFromString(s)); err == nil {
			t.Errorf("a rate of %s was accepted", s)
		}
	}
	huge, _ := RateOf(decimal.New(1, 14))
	if _, ok := Whole(1e15).Translate(huge); ok {
		t.Error("10¹⁵ at 10¹⁴ fits")
	}
}
