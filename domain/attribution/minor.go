package attribution

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Minor is an amount in whole minor units, with the decimals of its currency: "783078.90" US
// dollars, "783079" yen. For the source of the decimals see [domain.MinorUnits].
type Minor struct {
	Amount   Amount // a whole number of units of Decimals
	Decimals int
}

// Minor returns the amount rounded to minor units of a currency, half away from zero.
func (a Amount) Minor(currency string) Minor {
	return Minor{roundMinor(a, currency), domain.MinorUnits(currency)}
}

// Sub returns m-o. Both MUST be of the same currency.
func (m Minor) Sub(o Minor) Minor { return Minor{m.Amount.Sub(o.Amount), m.Decimals} }

// Add returns m+o. Both MUST be of the same currency.
func (m Minor) Add(o Minor) Minor { return Minor{m.Amount.Add(o.Amount), m.Decimals} }

// String returns a plain decimal with all decimals of the currency.
func (m Minor) String() string {
	s := m.Amount.String()
	if m.Decimals == 0 {
		return s
	}
	whole, fraction, _ := strings.Cut(s, ".")
	return whole + "." + fraction + strings.Repeat("0", max(0, m.Decimals-len(fraction)))
}

// MarshalText writes what [Minor.String] returns.
func (m Minor) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what [Minor.String] returns, below 10¹⁸.
func (m *Minor) UnmarshalText(b []byte) (err error) {
	if m.Amount, err = parseAmount(string(b), sumDigits); err != nil {
		return fmt.Errorf("amount in minor units: %w", err)
	}
	_, fraction, _ := strings.Cut(string(b), ".")
	m.Decimals = len(fraction)
	return nil
}

// Foot rounds amounts to minor units so that they add up to a total that is already rounded. Each
// is rounded down. The missing units go to the largest remainders, one each, the first of equal
// ones first, starting over if that is not enough. If the total is less than the sum of the rounded
// amounts, units are taken in the same order. Without amounts, nothing adds up to the total.
func Foot(exact []Amount, total Minor) []Minor {
	unit := unitOf(total.Decimals)
	out, rest, order := make([]Minor, len(exact)), make([]uint64, len(exact)), make([]int, len(exact))
	missing := total.Amount
	for i, a := range exact {
		m, negative := a.parts()
		_, r := m.divMod(unit)
		if negative && r > 0 {
			r = unit - r
		}
		out[i], rest[i], order[i] = Minor{a.Sub(Amount{0, r}), total.Decimals}, r, i
		missing = missing.Sub(out[i].Amount)
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(rest[j], rest[i]) })
	step := signed(u128{0, unit}, missing.Sign() < 0)
	for len(order) > 0 && !missing.IsZero() {
		for _, i := range order {
			if missing.IsZero() {
				break
			}
			out[i].Amount, missing = out[i].Amount.Add(step), missing.Sub(step)
		}
	}
	return out
}
