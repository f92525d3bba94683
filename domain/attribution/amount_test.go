package attribution

import (
	"math/big"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

// word draws words, with edge cases as often as others.
func word(t *rapid.T, name string) uint64 {
	return rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 3), rapid.SampledFrom([]uint64{^uint64(0), ^uint64(0) - 1, 1 << 63, 1<<63 - 1, 1 << 32})).Draw(t, name)
}

func TestScaleIsFloorOfProduct(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := u128{word(t, "a.hi"), word(t, "a.lo")}
		n := u128{word(t, "n.hi"), word(t, "n.lo")}
		d := u128{word(t, "d.hi"), word(t, "d.lo")}
		if rapid.Bool().Draw(t, "narrow") {
			n.hi, d.hi = 0, 0
		}
		if d.isZero() {
			t.Skip("nothing divides by zero")
		}
		if d.less(n) {
			n, d = d, n
		}
		want := new(big.Int).Mul(a.big(), n.big())
		want.Quo(want, d.big())
		if got := a.scale(n, d); got.big().Cmp(want) != 0 {
			t.Fatalf("%v × %v / %v = %v, want %v", a, n, d, got.big(), want)
		}
	})
}

func amounts() *rapid.Generator[Amount] {
	return rapid.Custom(func(t *rapid.T) Amount {
		var a Amount
		if rapid.Bool().Draw(t, "cents") {
			a = Whole(rapid.Int64Range(0, 1e9).Draw(t, "units"))
			q, _ := u128{uint64(a.hi), a.lo}.divMod(100)
			a = signed(q, false)
		} else {
			a = signed(u128{rapid.Uint64Range(0, 1<<45).Draw(t, "hi"), rapid.Uint64().Draw(t, "lo")}, false)
		}
		if rapid.Bool().Draw(t, "negative") {
			a = a.Neg()
		}
		return a
	})
}

func TestDivisionIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := amounts().Draw(t, "amount")
		weights := rapid.SliceOfN(rapid.Uint64Range(0, 1<<50), 1, 20).Draw(t, "weights")
		wide := rapid.Bool().Draw(t, "wide")
		var total uint64
		for _, w := range weights {
			total += w
		}
		if total == 0 {
			t.Skip("no weight")
		}
		// Money as a weight has two words: the same weights, 2⁶⁰ times as much.
		wider := func(w uint64) u128 { return u128{w >> 4, w << 60} }
		d, m := divisionOf(a), divisionOf(a.Neg())
		var sum Amount
		var at uint64
		for _, w := range weights {
			at += w
			var part, mirrored Amount
			if wide {
				part, mirrored = d.next(wider(at), wider(total)), m.next(wider(at), wider(total))
			} else {
				part, mirrored = d.next64(at, total), m.next64(at, total)
			}
			if w == 0 && !part.IsZero() {
				t.Fatalf("no weight costs %v", part)
			}
			if part != mirrored.Neg() {
				t.Fatalf("%v of %v, but %v of its negation", part, a, mirrored)
			}
			// |part·total − a·w| < total: within one unit of the exact share.
			off := new(big.Int).Mul(part.int(), new(big.Int).SetUint64(total))
			off.Sub(off, new(big.Int).Mul(a.int(), new(big.Int).SetUint64(w)))
			if off.CmpAbs(new(big.Int).SetUint64(total)) >= 0 {
				t.Fatalf("a share of %d/%d of %v is %v", w, total, a, part)
			}
			sum = sum.Add(part)
		}
		if sum != a {
			t.Fatalf("the parts of %v add up to %v", a, sum)
		}
	})
}

func (a Amount) int() *big.Int {
	m, negative := a.parts()
	if n := m.big(); negative {
		return n.Neg(n)
	} else {
		return n
	}
}

func TestAmountIsArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := amounts().Draw(t, "a"), amounts().Draw(t, "b")
		if got, want := a.Add(b).int(), new(big.Int).Add(a.int(), b.int()); got.Cmp(want) != 0 {
			t.Fatalf("%v + %v = %v", a, b, got)
		}
		if got, want := a.Sub(b).int(), new(big.Int).Sub(a.int(), b.int()); got.Cmp(want) != 0 {
			t.Fatalf("%v - %v = %v", a, b, got)
		}
		if got, want := a.Cmp(b), a.int().Cmp(b.int()); got != want {
			t.Fatalf("%v against %v: %d", a, b, got)
		}
		if a.Sign() != a.int().Sign() || a.Abs().int().Cmp(new(big.Int).Abs(a.int())) != 0 {
			t.Fatalf("%v has the sign %d and the magnitude %v", a, a.Sign(), a.Abs())
		}
		if !a.Decimal().Equal(decimal.RequireFromString(a.String())) || a.String() != a.Decimal().String() {
			t.Fatalf("%v is %v as a decimal", a, a.Decimal())
		}
		for _, back := range []func() (Amount, error){
			func() (Amount, error) { return ParseAmount(a.String()) },
			func() (Amount, error) { return AmountOf(a.Decimal()) },
		} {
			got, err := back()
			if big15 := new(big.Int).Exp(big.NewInt(10), big.NewInt(33), nil); a.int().CmpAbs(big15) >= 0 {
				if err == nil {
					t.Fatalf("%v is accepted", a)
				}
			} else if err != nil || got != a {
				t.Fatalf("%v comes back as %v: %v", a, got, err)
			}
		}
	})
}

func TestAmountOverflowPanics(t *testing.T) {
	largest := Amount{1<<63 - 1, ^uint64(0)}
	for _, sum := range []func(){func() { largest.Add(Amount{0, 1}) }, func() { largest.Neg().Sub(Amount{0, 2}) }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("an overflow went unnoticed")
				}
			}()
			sum()
		}()
	}
}

func TestAmountRefused(t *testing.T) {
	for _, s := range []string{"", "-", ".5", "5.", "1e3", "+1", "1,000", "1000000000000000", "0.0000000000000000001", " 1", "1_0", "--1", "NaN"} {
		if a, err := ParseAmount(s); err == nil {
			t.Errorf("%q is read as %v", s, a)
		}
	}
	for _, d := range []decimal.Decimal{
		decimal.New(1, 15), decimal.New(-1, 15), decimal.New(1, 2e9), decimal.New(1, -19), decimal.New(1, -2e9),
		decimal.RequireFromString("1.0000000000000000001"),
	} {
		if a, err := AmountOf(d); err == nil {
			t.Errorf("%d·10^%d is taken for %v", d.Coefficient(), d.Exponent(), a)
		}
	}
	for s, want := range map[string]string{"1.00000000000000000000": "1", "999999999999999.999999999999999999": "999999999999999.999999999999999999", "12e2": "1200", "0e-400": "0", "-0.10": "-0.1"} {
		if a, err := AmountOf(decimal.RequireFromString(s)); err != nil || a.String() != want {
			t.Errorf("%s is taken for %v (%v), want %s", s, a, err, want)
		}
	}
}

// A sum of amounts is kept with a month, and may be larger than each of them.
func TestSumIsReadBack(t *testing.T) {
	for _, s := range []string{"1000000000000000.01", "-999999999999999999.999999999999999999"} {
		var a Amount
		if err := a.UnmarshalText([]byte(s)); err != nil || a.String() != s {
			t.Errorf("%s is read as %v: %v", s, a, err)
		}
		var m Minor
		if err := m.UnmarshalText([]byte(s)); err != nil || m.String() != s {
			t.Errorf("%s is read as %v minor units: %v", s, m, err)
		}
	}
	if err := new(Amount).UnmarshalText([]byte("1000000000000000000")); err == nil {
		t.Error("1e18 is read")
	}
}

func FuzzParseAmount(f *testing.F) {
	for _, s := range []string{"0", "-0", "1.5", "-999999999999999.999999999999999999", "00012.340", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAmount(s)
		if err != nil {
			return
		}
		d, err := decimal.NewFromString(s)
		if err != nil || !a.Decimal().Equal(d) || strings.ContainsAny(s, "eE+") {
			t.Fatalf("%q is read as %v, and by decimal as %v (%v)", s, a, d, err)
		}
		if b, err := ParseAmount(a.String()); err != nil || b != a {
			t.Fatalf("%q is read as %v and then as %v (%v)", s, a, b, err)
		}
	})
}

// BenchmarkShare compares the division of one amount by a thousand weights with the two obvious
// ways of equal precision.
func BenchmarkShare(b *testing.B) {
	const parts = 1000
	weights := make([]int64, parts)
	var total int64
	for i := range weights {
		weights[i] = int64(i*7919%3_600_000) + 1
		total += weights[i]
	}
	amount, _ := ParseAmount("20179.851851016")
	measure := func(name string, divide func(*testing.B)) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				divide(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/parts, "ns/part")
		})
	}
	measure("integer", func(b *testing.B) {
		d, at, sum := divisionOf(amount), int64(0), Amount{}
		for _, w := range weights {
			at += w
			sum = sum.Add(d.next64(uint64(at), uint64(total)))
		}
		if sum != amount {
			b.Fatal("not exact")
		}
	})
	measure("rational", func(b *testing.B) {
		at, done, sum, whole := int64(0), new(big.Int), new(big.Int), new(big.Rat).SetInt(amount.int())
		for _, w := range weights {
			at += w
			share := big.NewRat(at, total)
			share.Mul(share, whole)
			upTo := new(big.Int).Quo(share.Num(), share.Denom())
			sum.Add(sum, new(big.Int).Sub(upTo, done))
			done = upTo
		}
		if sum.Cmp(amount.int()) != 0 {
			b.Fatal("not exact")
		}
	})
	measure("decimal", func(b *testing.B) {
		at, done, sum := int64(0), decimal.Zero, decimal.Zero
		whole, of := amount.Decimal(), decimal.NewFromInt(total)
		for _, w := range weights {
			at += w
			upTo, _ := whole.Mul(decimal.NewFromInt(at)).QuoRem(of, amountDigits)
			sum = sum.Add(upTo.Sub(done))
			done = upTo
		}
		if !sum.Equal(whole) {
			b.Fatal("not exact")
		}
	})
}

// A rate equals its computation in decimals, for all sizes and signs.
func TestPerHour(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Amount{rapid.Int64Range(-1<<57, 1<<57).Draw(t, "hi") >> rapid.IntRange(0, 57).Draw(t, "shift"), rapid.Uint64().Draw(t, "lo")}
		ms := rapid.Int64().Filter(func(ms int64) bool { return ms != 0 }).Draw(t, "ms") >> rapid.IntRange(0, 62).Draw(t, "short")
		if ms == 0 {
			ms = 1
		}
		want := a.Decimal().Mul(decimal.NewFromInt(3_600_000)).DivRound(decimal.NewFromInt(ms), 6)
		if got := a.PerHour(ms); !got.Equal(want) || got.String() != want.String() {
			t.Fatalf("%s in %d ms: %s an hour, want %s", a, ms, got, want)
		}
	})
}

// The binary form is exact, and each amount has one.
func TestAmountBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := amounts().Draw(t, "amount")
		b := a.AppendBytes([]byte("x"))[1:]
		if n, ok := BytesAfter(b[0]); !ok || n != len(b)-1 {
			t.Fatalf("%s is %x: %d bytes follow, %t", a, b, n, ok)
		}
		if got, err := AmountOfBytes(b[0], b[1:]); err != nil || got != a {
			t.Fatalf("%s is %x, which is read as %s: %v", a, b, got, err)
		}
		head, raw := rapid.Byte().Draw(t, "head"), rapid.SliceOfN(rapid.Byte(), 0, 17).Draw(t, "bytes")
		if got, err := AmountOfBytes(head, raw); err == nil && string(got.AppendBytes(nil)) != string(append([]byte{head}, raw...)) {
			t.Fatalf("%x %x is read as %s, which has other bytes", head, raw, got)
		}
	})
}
