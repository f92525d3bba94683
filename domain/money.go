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
