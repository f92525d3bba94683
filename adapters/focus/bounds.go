package focus

import (
	"fmt"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// Limits of a row. A larger value is almost certainly a typo or a wrong unit.
const (
	// maxAmountDigits is the number of digits before the point of an amount that attribution
	// divides. See attribution.AmountOf.
	maxAmountDigits = 15
	// maxMachineHours is the machine time of one line: 268,000 machines for a month. The limit
	// of attribution.LineOf is higher.
	maxMachineHours = 200_000_000
	// maxUsageMonths is the length of a charge period of usage: a year and the month in which
	// it is settled. Purchases may have terms of any length.
	maxUsageMonths = 13
)

const millisecond = domain.Second / 1000

// quantity is a quantity of a line.
type quantity struct {
	unit  string
	value domain.NullDecimal
}

// maxUnits bounds the cache of units. Units beyond it are computed each time.
const maxUnits = 1 << 10

// dividable refuses a line whose charge period attribution could not divide. It sets aside
// quantities of machine time that are out of bounds: the line then buys no time, and attribution
// divides its cost by what else is known of the machine. Amounts out of bounds are refused by
// parseAmount.
func (ls *lines) dividable(l *line) error {
	// A shortcut without the calendar: thirteen months are always longer than 366 days.
	if length := l.ChargePeriodEnd - l.ChargePeriodStart; l.ChargeCategory == "Usage" && length > 366*domain.Day {
		if last := l.ChargePeriodStart.Time().AddDate(0, maxUsageMonths, 0); l.ChargePeriodEnd.Time().After(last) {
			return ls.refuse("ChargePeriodEnd", fmt.Sprintf(
				"is more than %d months after ChargePeriodStart %s, too long for usage",
				maxUsageMonths, l.ChargePeriodStart,
			))
		}
	}
	for i, q := range [...]struct {
		column, unit string
		value        *domain.NullDecimal
	}{
		{"PricingQuantity", l.PricingUnit, &l.PricingQuantity},
		{"ConsumedQuantity", l.ConsumedUnit, &l.ConsumedQuantity},
	} {
		is := quantity{unit: q.unit, value: *q.value}
		if !q.value.Valid || q.unit == "" || is == ls.usable[i] {
			continue
		}
		reason := unusable(l, q.unit, q.value.Decimal, ls.mostOf(q.unit))
		if reason == "" {
			if !q.value.Decimal.IsNegative() { // other columns decide whether it may be
				ls.usable[i] = is
			}
			continue
		}
		if ls.opts.Strict {
			return ls.refuse(q.column, reason)
		}
		*q.value = domain.NullDecimal{}
		ls.setAside(deviation{kind: UnusableQuantity, column: q.column}, ls.value(q.column))
		l.Other = ls.other
	}
	return nil
}

// unusable returns why a quantity is out of bounds for its unit, or "". The limit most is null
// for a unit that does not measure machine time.
func unusable(l *line, unit string, d domain.Decimal, most domain.NullDecimal) string {
	switch {
	case !most.Valid:
		return ""
	case above(d, most.Decimal):
		return fmt.Sprintf("of %q is more than %d machine-hours, the limit of one line", tabular.Clip(unit), maxMachineHours)
	case d.IsNegative() && !mayBeNegative(l):
		return notNegative
	}
	return ""
}

const notNegative = "is negative, but the row is neither a correction nor has a negative cost"

// mayBeNegative reports whether the quantities of a line may be negative.
func mayBeNegative(l *line) bool {
	return l.ChargeClass == "Correction" ||
		l.ChargeCategory != "Usage" && l.ChargeCategory != "Purchase" ||
		hasNegativeCost(l)
}

// above reports whether a quantity is larger in magnitude than a bound. In most cases the number
// of digits decides.
func above(d, bound domain.Decimal) bool {
	if bound.IsZero() {
		return !d.IsZero()
	}
	if order(d) < order(bound) {
		return false
	}
	return d.Abs().Cmp(bound) > 0
}

// order returns the number of digits before the point of a nonzero number.
func order(d domain.Decimal) int64 { return int64(d.NumDigits()) + int64(d.Exponent()) }

// mostOf returns the largest quantity of a unit that a line may have. It is null for a unit that
// does not measure machine time.
func (ls *lines) mostOf(unit string) domain.NullDecimal {
	most, ok := ls.most[unit]
	if !ok {
		most = mostOf(unit)
		if len(ls.most) < maxUnits {
			ls.most[strings.Clone(unit)] = most
		}
	}
	return most
}

func mostOf(unit string) domain.NullDecimal {
	one := domain.BillingLine{
		ChargePeriodEnd: 1,
		PricingQuantity: decimal.NewNullDecimal(decimal.New(1, 0)),
		PricingUnit:     unit,
	}
	switch at, err := attribution.LineOf(&one); {
	case err != nil || at.UnusableQuantity != "": // a quantity of 1 is too much already
		return domain.NullDecimal{Valid: true}
	case max(at.NodeMs, at.GPUMs) > 0:
		ms := decimal.New(max(at.NodeMs, at.GPUMs), 0)
		return decimal.NewNullDecimal(decimal.New(maxMachineHours*int64(domain.Hour/millisecond), 0).Div(ms))
	}
	return domain.NullDecimal{}
}
