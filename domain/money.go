package domain

import (
	"fmt"
	"strings"

	"github.com/shopspring/decimal"
)

// Decimal is an exact decimal number. Money, and every factor of it, is a Decimal and never
// floating point.
type Decimal = decimal.Decimal

// NullDecimal is a decimal that may be absent.
type NullDecimal = decimal.NullDecimal

// Money is an amount in a currency.
type Money struct {
	Amount   Decimal `json:"amount"`
	Currency string  `json:"currency"` // ISO 4217
}

// String returns for example "12.50 USD".
func (m Money) String() string { return m.Amount.String() + " " + m.Currency }

// IsZero reports whether no money was given. An amount of zero in a currency was.
func (m Money) IsZero() bool { return m.Currency == "" && m.Amount.IsZero() }

// ParseMoney reads what [Money.String] writes.
func ParseMoney(s string) (Money, error) {
	amount, currency, _ := strings.Cut(s, " ")
	d, err := decimal.NewFromString(amount)
	if err != nil {
		return Money{}, fmt.Errorf("%q is not an amount with its currency, such as 12.50 USD", s)
	}
	return Money{d, currency}, nil
}

// MinorUnits returns the number of digits after the point of a currency's smallest unit: 2 for US
// dollars, 0 for yen. An unknown currency has 2, as most do.
//
// Source: ISO 4217, list one, column "minor unit".
func MinorUnits(currency string) int {
	switch currency {
	case "BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV", "XAF", "XOF", "XPF":
		return 0
	case "BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND":
		return 3
	case "CLF", "UYW":
		return 4
	}
	return 2
}
