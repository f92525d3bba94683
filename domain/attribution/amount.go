package attribution

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

const (
	// amountDigits is the number of digits after the point of an Amount.
	amountDigits = 18
	// wholeDigits bounds input amounts: below 10¹⁵. A sum of 170,000 such amounts still fits. [Run]
	// checks the sums of its lines once, and Add checks each sum.
	wholeDigits = 15
	// sumDigits bounds sums that are kept as text: those of a thousand of the largest amounts.
	sumDigits = 18
	one18     = 1e18
)

// Amount is an exact amount of money: a signed 128-bit integer in units of 10⁻¹⁸ of the currency.
// The zero Amount is zero, and Amounts can be compared with ==.
type Amount struct {
	hi int64
	lo uint64
}

// Whole returns n units, for example of a currency or of a weight.
func Whole(n int64) Amount {
	hi, lo := bits.Mul64(magnitude(n), one18)
	return signed(u128{hi, lo}, n < 0)
}

// ofMicros converts microseconds: the result is a weight in milliseconds.
func ofMicros(n uint64) Amount {
	hi, lo := bits.Mul64(n, one18/1000)
	return signed(u128{hi, lo}, false)
}

// AmountOf converts a decimal without rounding. It returns an error if the decimal has more than 18
// digits after the point, or is 10¹⁵ or more in magnitude.
func AmountOf(d domain.Decimal) (Amount, error) {
	exp := int64(d.Exponent())
	if d.IsZero() {
		return Amount{}, nil
	}
	// The magnitude follows from the digits, so that no hostile exponent is expanded.
	digits := int64(d.NumDigits())
	if digits+exp > wholeDigits {
		return Amount{}, fmt.Errorf("amount of %d digits before the point: want less than 1e%d", digits+exp, wholeDigits)
	}
	c := d.Coefficient()
	if exp < -amountDigits {
		if digits <= -exp-amountDigits {
			return Amount{}, fmt.Errorf("amount has more than %d digits after the point", amountDigits)
		}
		var rest big.Int
		c.QuoRem(c, pow10(-exp-amountDigits), &rest)
		if rest.Sign() != 0 {
			return Amount{}, fmt.Errorf("amount has more than %d digits after the point", amountDigits)
		}
	} else if exp != -amountDigits {
		c.Mul(c, pow10(exp+amountDigits))
	}
	var b [16]byte
	negative := c.Sign() < 0
	c.Abs(c).FillBytes(b[:])
	return signed(u128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, negative), nil
}

func pow10(n int64) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(n), nil) }

// ParseAmount reads a plain decimal in FOCUS form: an optional minus sign, digits, and at most 18
// digits after a point. It accepts no exponent, plus sign or separator, and refuses 10¹⁵ or more.
func ParseAmount(s string) (Amount, error) { return parseAmount(s, wholeDigits) }

// parseAmount reads what [ParseAmount] does, with at most 18 digits before the point.
func parseAmount(s string, most int) (Amount, error) {
	digits, negative := strings.CutPrefix(s, "-")
	whole, fraction, point := strings.Cut(digits, ".")
	if whole == "" || point && fraction == "" || len(fraction) > amountDigits {
		return Amount{}, fmt.Errorf("amount %q is not a plain decimal with at most %d digits after the point", s, amountDigits)
	}
	whole = strings.TrimLeft(whole, "0")
	if len(whole) > most {
		return Amount{}, fmt.Errorf("amount %q is not below 1e%d", s, most)
	}
	w, ok := digitsOf(whole)
	f, ok2 := digitsOf(fraction + strings.Repeat("0", amountDigits-len(fraction)))
	if !ok || !ok2 {
		return Amount{}, fmt.Errorf("amount %q is not a plain decimal", s)
	}
	hi, lo := bits.Mul64(w, one18)
	lo, carry := bits.Add64(lo, f, 0)
	return signed(u128{hi + carry, lo}, negative), nil
}

// digitsOf reads at most 18 digits.
func digitsOf(s string) (n uint64, ok bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = 10*n + uint64(s[i]-'0')
	}
	return n, true
}

// Decimal returns the same amount as a decimal.
func (a Amount) Decimal() domain.Decimal {
	m, negative := a.parts()
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], m.hi)
	binary.BigEndian.PutUint64(b[8:], m.lo)
	c := new(big.Int).SetBytes(b[:])
	if negative {
		c.Neg(c)
	}
	return decimal.NewFromBigInt(c, -amountDigits)
}

// String returns a plain decimal without trailing zeros, for example -12.5.
func (a Amount) String() string {
	m, negative := a.parts()
	whole, fraction := m.divMod(one18)
	var b [42]byte // a sign, 21 digits, a point and 18 digits, from the end
	at := len(b)
	put := func(n uint64, digits int) {
		for ; digits > 0 || n > 0; digits-- {
			at--
			b[at] = byte('0' + n%10)
			n /= 10
		}
	}
	if fraction != 0 {
		digits := 18
		for ; fraction%10 == 0; digits-- {
			fraction /= 10
		}
		put(fraction, digits)
		at--
		b[at] = '.'
	}
	if q, r := whole.divMod(one18); q.lo != 0 {
		put(r, 18)
		put(q.lo, 1)
	} else {
		put(r, 1)
	}
	if negative {
		at--
		b[at] = '-'
	}
	return string(b[at:])
}

// MarshalText writes what [Amount.String] returns.
func (a Amount) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what [ParseAmount] reads, and sums below 10¹⁸.
func (a *Amount) UnmarshalText(b []byte) (err error) {
	*a, err = parseAmount(string(b), sumDigits)
	return err
}

// AppendBytes appends the amount in its shortest binary form: a byte with the number of bytes that follow,
// plus 128 for a negative amount, and the magnitude, most significant byte first.
func (a Amount) AppendBytes(b []byte) []byte {
	m, negative := a.parts()
	n := (bits.Len64(m.lo) + 7) / 8
	if m.hi != 0 {
		n = 8 + (bits.Len64(m.hi)+7)/8
	}
	head := byte(n)
	if negative {
		head |= 0x80
	}
	b = append(b, head)
	for i := n - 1; i >= 0; i-- {
		if i >= 8 {
			b = append(b, byte(m.hi>>(8*(i-8))))
		} else {
			b = append(b, byte(m.lo>>(8*i)))
		}
	}
	return b
}

// BytesAfter returns how many bytes follow the first byte of the form of [Amount.AppendBytes]. It reports
// false for a byte that begins no amount.
func BytesAfter(head byte) (n int, ok bool) {
	n = int(head &^ 0x80)
	return n, n <= 16 && (n > 0 || head == 0)
}

// AmountOfBytes reads what [Amount.AppendBytes] appended: its first byte, and the bytes after it. It refuses
// every other form of an amount, so that equal amounts have equal bytes.
func AmountOfBytes(head byte, magnitude []byte) (Amount, error) {
	n, ok := BytesAfter(head)
	if !ok || len(magnitude) != n || n > 0 && magnitude[0] == 0 || n == 16 && magnitude[0] >= 0x80 {
		return Amount{}, fmt.Errorf("%x %x is not an amount", head, magnitude)
	}
	var m u128
	high, low := magnitude[:max(n-8, 0)], magnitude[max(n-8, 0):]
	for _, c := range high {
		m.hi = m.hi<<8 | uint64(c)
	}
	for _, c := range low {
		m.lo = m.lo<<8 | uint64(c)
	}
	return signed(m, head&0x80 != 0), nil
}

// PerHour returns the amount per hour, given that it is for ms milliseconds, which MUST NOT be 0.
// It is rounded half away from zero to six digits after the point.
func (a Amount) PerHour(ms int64) domain.Decimal {
	const hour, digits, step = 3_600_000, 6, one18 / 1_000_000
	m, negative := a.parts()
	if m.hi >= 1<<40 { // 2·10¹³ units: the product may not fit
		return a.Decimal().Mul(decimal.NewFromInt(hour)).DivRound(decimal.NewFromInt(ms), digits)
	}
	hi, lo := bits.Mul64(m.lo, hour)
	rate, _ := u128{hi + m.hi*hour, lo}.divMod(magnitude(ms))
	if rate, _ = rate.add(u128{0, step / 2}).divMod(step); rate.hi > 0 || rate.lo > math.MaxInt64 {
		return a.Decimal().Mul(decimal.NewFromInt(hour)).DivRound(decimal.NewFromInt(ms), digits)
	}
	if negative != (ms < 0) {
		return decimal.New(-int64(rate.lo), -digits)
	}
	return decimal.New(int64(rate.lo), -digits)
}

// IsZero reports whether a is zero.
func (a Amount) IsZero() bool { return a == Amount{} }

// Sign returns -1, 0 or 1.
func (a Amount) Sign() int {
	switch {
	case a.hi < 0:
		return -1
	case a.IsZero():
		return 0
	}
	return 1
}

// Cmp returns -1, 0 or 1 as a is less than, equal to or greater than b.
func (a Amount) Cmp(b Amount) int {
	return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo))
}

// Neg returns -a.
func (a Amount) Neg() Amount {
	lo, borrow := bits.Sub64(0, a.lo, 0)
	return Amount{-a.hi - int64(borrow), lo}
}

// Abs returns the magnitude of a.
func (a Amount) Abs() Amount {
	if a.hi < 0 {
		return a.Neg()
	}
	return a
}

// Add returns a+b. It panics beyond 1.7·10²⁰. A sum of fewer than 170,000 input amounts cannot
// reach that.
func (a Amount) Add(b Amount) Amount {
	s, ok := a.TryAdd(b)
	if !ok {
		panic("attribution: a sum of amounts is beyond 1.7e20")
	}
	return s
}

// TryAdd is Add for amounts that nobody bounded: ok is false where Add panics.
func (a Amount) TryAdd(b Amount) (sum Amount, ok bool) {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi := a.hi + b.hi + int64(carry)
	// On overflow, both operands have the opposite sign.
	return Amount{hi, lo}, (a.hi^hi)&(b.hi^hi) >= 0
}

// Sub returns a-b. It panics like Add.
func (a Amount) Sub(b Amount) Amount { return a.Add(b.Neg()) }

// parts returns the magnitude and whether the amount is below zero.
func (a Amount) parts() (u128, bool) {
	m := a.Abs()
	return u128{uint64(m.hi), m.lo}, a.hi < 0
}

func signed(m u128, negative bool) Amount {
	a := Amount{int64(m.hi), m.lo}
	if negative {
		return a.Neg()
	}
	return a
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}
