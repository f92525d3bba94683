package domain

import (
	"strings"

	"github.com/shopspring/decimal"
)

// Size limits of a number in a bill, with or without an exponent. Longer numbers are not read. The
// smallest double-precision number has 1,074 decimals.
const (
	MaxWritten       = 1100 // characters
	MaxWrittenPlaces = 1100 // digits after the point
)

// AsWritten names the column of BillingLine.Other that keeps the supplier's original text of a
// FOCUS column whose value the line cannot hold exactly.
func AsWritten(column string) string { return asWrittenBegins + column + asWrittenEnds }

// IsAsWritten reports whether a column is one that [AsWritten] names.
func IsAsWritten(column string) bool {
	return strings.HasPrefix(column, asWrittenBegins) && strings.HasSuffix(column, asWrittenEnds)
}

const asWrittenBegins, asWrittenEnds = "x_", "AsWritten"

var billedAsWritten, effectiveAsWritten = AsWritten("BilledCost"), AsWritten("EffectiveCost")

// RoundedAway returns what rounding to 18 decimals removed from the costs of a line: the exact
// value that the supplier wrote less the value of the line. Both are zero where nothing was
// rounded.
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

// halfPlace is the most that rounding to 18 decimals changes.
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
		return Decimal{} // a supplier's own column
	}
	return d
}
