package attribution

import (
	"encoding/binary"
	"fmt"
	"math/big"

	"quartermaster/domain"
)

// Rate is an exchange rate: what one unit of a currency is worth in another, with at most 18 digits after the
// point. The zero Rate translates to nothing.
type Rate struct{ units *big.Int } // of 10⁻¹⁸

// RateOf converts a rate. It returns an error for a rate that is not above 0, has more than 18 digits after the
// point, or is 10¹⁵ or more.
func RateOf(d domain.Decimal) (Rate, error) {
	a, err := AmountOf(d)
	if err != nil {
		return Rate{}, err
	}
	if a.Sign() <= 0 {
		return Rate{}, fmt.Errorf("%s is not above 0", d)
	}
	m, _ := a.parts()
	return Rate{m.big()}, nil
}

func (a u128) big() *big.Int {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], a.hi)
	binary.BigEndian.PutUint64(b[8:], a.lo)
	return new(big.Int).SetBytes(b[:])
}

var (
	units     = pow10(amountDigits)
	halfUnits = new(big.Int).Rsh(units, 1)
)

// Translate returns the amount × the rate, rounded half away from zero to 10⁻¹⁸. It reports false if that has
// more than 126 bits (8.5 × 10¹⁹).
func (a Amount) Translate(r Rate) (Amount, bool) {
	if a.IsZero() || r.units == nil {
		return Amount{}, true
	}
	m, negative := a.parts()
	n := m.big()
	n.Mul(n, r.units).Add(n, halfUnits).Quo(n, units)
	if n.BitLen() > 126 {
		return Amount{}, false
	}
	var b [16]byte
	n.FillBytes(b[:])
	return signed(u128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}, negative), true
}

// Translation translates the allocations of a line, so that they add up to the translation of their sum: each is
// what the translated sum grows by. Each is within one unit of 10⁻¹⁸ of its own translation.
type Translation struct {
	rate      Rate
	sum, done Amount
}

// TranslationAt begins a translation.
func TranslationAt(r Rate) Translation { return Translation{rate: r} }

// Next translates the next allocation. It reports false for an amount that is too large.
func (t *Translation) Next(a Amount) (Amount, bool) {
	t.sum = t.sum.Add(a)
	upTo, ok := t.sum.Translate(t.rate)
	part := upTo.Sub(t.done)
	t.done = upTo
	return part, ok
}
