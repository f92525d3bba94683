package domain

import "github.com/shopspring/decimal"

// Bounds of a number in a bill that is read at all, written out or with an
// exponent. The smallest double-precision number has 1,074 decimals.
const (
	MaxWritten       = 1100 // characters
	MaxWrittenPlaces = 1100 // digits after the point
)

// AsWritten names the column of BillingLine.Other that keeps what a supplier
// wrote in a column of FOCUS, where the line cannot hold it as it stands.
func AsWritten(column string) string { return "x_" + column + "AsWritten" }

var billedAsWritten, effectiveAsWritten = AsWritten("BilledCost"), AsWritten("EffectiveCost")

// RoundedAway returns what rounding to 18 decimals took from the costs of a
// line: each as the supplier wrote it less as the line has it, exactly. Both are
// zero where nothing was rounded.
func (l *BillingLine) RoundedAway() (billed, effective Decimal) {
	if len(l.Other) == 0 {
		return billed, effective
	}
	billed = roundedAway(l.Other[billedAsWritten], l.BilledCost)
	if l.EffectiveCost.Valid {
		effective = roundedAway(l.Other[effectiveAsWritten], l.EffectiveCost.Decimal)
	}
	return billed, effective
}

// halfPlace is the most that rounding to 18 decimals takes.
var halfPlace = decimal.New(5, -maxScale-1)

func roundedAway(written string, kept Decimal) Decimal {
	if written == "" || len(written) > MaxWritten {
		return Decimal{}
	}
	d, err := decimal.NewFromString(written)
	if err != nil || d.Exponent() >= -maxScale || d.Exponent() < -MaxWrittenPlaces-MaxWritten {
		return Decimal{}
	}
	if d = d.Sub(kept); d.Abs().Cmp(halfPlace) > 0 {
		return Decimal{} // a column of the supplier's own
	}
	return d
}
