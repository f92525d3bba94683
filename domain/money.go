package domain

import "github.com/shopspring/decimal"

// Decimal is an exact decimal number. Money and everything multiplied into
// money is one; floating point never is.
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

// MinorUnits returns how many digits after the point the smallest amount of a
// currency that is paid has: 2 for US dollars, 0 for yen. A currency that is not
// known has 2, as most do.
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
