package focus

import (
	"fmt"
	"strings"

	"github.com/shopspring/decimal"

	"quartermaster/adapters/tabular"
	"quartermaster/domain"
	"quartermaster/domain/attribution"
)

// What a row may say at most; a typo or a wrong unit is far likelier than more.
const (
	// maxAmountDigits is how many digits before the point an amount may have
	// that is divided. See attribution.AmountOf.
	maxAmountDigits = 15
	// maxMachineHours is the machine time of one line: 268,000 machines for a
	// month. It is less than attribution.LineOf takes for meant.
	maxMachineHours = 200_000_000
	// maxUsageMonths is the length of a charge period of usage: a year and the
	// month in which it is settled. Purchases are for terms of any length.
	maxUsageMonths = 13
)

const millisecond = domain.Second / 1000

// maxUnits bounds the memory for units; those beyond are worked out each time.
const maxUnits = 1 << 10

// dividable refuses a line whose charge period attribution could not divide, and
// sets aside quantities of machine time that no charge has: the line buys no time
// then, and its money follows what else is known of the machine. Amounts are
// refused by parseAmount.
func (ls *lines) dividable(l *line) error {
	// Thirteen months are longer than this, so that most rows need no calendar.
	if length := l.ChargePeriodEnd - l.ChargePeriodStart; l.ChargeCategory == "Usage" && length > 366*domain.Day {
		if last := l.ChargePeriodStart.Time().AddDate(0, maxUsageMonths, 0); l.ChargePeriodEnd.Time().After(last) {
			return ls.refuse("ChargePeriodEnd", fmt.Sprintf("is more than %d months after ChargePeriodStart %s, which no usage is", maxUsageMonths, l.ChargePeriodStart))
		}
	}
	for _, q := range []struct {
		column, unit string
		value        *domain.NullDecimal
	}{
		{"PricingQuantity", l.PricingUnit, &l.PricingQuantity}, {"ConsumedQuantity", l.ConsumedUnit, &l.ConsumedQuantity},
	} {
		if !q.value.Valid || q.unit == "" {
			continue
		}
		reason := unusable(l, q.unit, q.value.Decimal, ls.mostOf(q.unit))
		if reason == "" {
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

// unusable says why a line cannot have a quantity of a unit, of which it may have so
// much: null for what is no machine time.
func unusable(l *line, unit string, d domain.Decimal, most domain.NullDecimal) string {
	switch {
	case !most.Valid:
		return ""
	case above(d, most.Decimal):
		return fmt.Sprintf("of %q is more than %d machine-hours, which no line has", tabular.Clip(unit), maxMachineHours)
	case d.IsNegative() && !mayBeNegative(l):
		return onlyTakenBack
	}
	return ""
}

const onlyTakenBack = "is negative, which only a correction is or a charge that is taken back with a negative cost"

// mayBeNegative reports whether the quantities of a line may be.
func mayBeNegative(l *line) bool {
	return l.ChargeClass == "Correction" || l.ChargeCategory != "Usage" && l.ChargeCategory != "Purchase" || takenBack(l)
}

// above reports whether a quantity is larger in magnitude than a bound, which
// its digits show for all but a few.
func above(d, bound domain.Decimal) bool {
	if bound.IsZero() {
		return !d.IsZero()
	}
	if order(d) < order(bound) {
		return false
	}
	return d.Abs().Cmp(bound) > 0
}

// order returns how many digits a number that is not zero has before the point.
func order(d domain.Decimal) int64 { return int64(d.NumDigits()) + int64(d.Exponent()) }

// mostOf returns the largest quantity that a line may have of a unit; null for
// what is no machine time.
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
	one := domain.BillingLine{ChargePeriodEnd: 1, PricingQuantity: decimal.NewNullDecimal(decimal.New(1, 0)), PricingUnit: unit}
	switch at, err := attribution.LineOf(&one); {
	case err != nil || at.UnusableQuantity != "": // one of it is too much
		return domain.NullDecimal{Valid: true}
	case max(at.NodeMs, at.GPUMs) > 0:
		ms := decimal.New(max(at.NodeMs, at.GPUMs), 0)
		return decimal.NewNullDecimal(decimal.New(maxMachineHours*int64(domain.Hour/millisecond), 0).Div(ms))
	}
	return domain.NullDecimal{}
}
