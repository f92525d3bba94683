package plan

import (
	"fmt"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// digits is the precision of discount factors, far finer than a nano-unit of any price.
const digits = 30

// discount returns present values at the start of the horizon.
type discount struct {
	month []domain.Decimal // factor of payments at the start of month i
	half  domain.Decimal   // factor of the half month from there to its middle
}

// newDiscount computes factors for a number of months at an annual rate: (1 + rate)^(−m/12), the
// twelfth root taken to 30 digits.
func newDiscount(rate domain.Decimal, months int) (discount, error) {
	one := decimal.NewFromInt(1)
	if rate.IsNegative() || rate.GreaterThan(one) {
		return discount{}, fmt.Errorf("annual rate %s is not from 0 to 1", rate)
	}
	growth, half := one, one
	if !rate.IsZero() {
		var err error
		if growth, err = one.Add(rate).PowWithPrecision(one.DivRound(decimal.NewFromInt(12), digits), digits); err != nil {
			return discount{}, fmt.Errorf("annual rate %s: %w", rate, err)
		}
		if half, err = one.Add(rate).PowWithPrecision(one.DivRound(decimal.NewFromInt(24), digits), digits); err != nil {
			return discount{}, fmt.Errorf("annual rate %s: %w", rate, err)
		}
	}
	d := discount{month: make([]domain.Decimal, months+1), half: one.DivRound(half, digits)}
	monthly := one.DivRound(growth, digits)
	d.month[0] = one
	for i := 1; i <= months; i++ {
		d.month[i] = d.month[i-1].Mul(monthly).Round(digits)
	}
	return d, nil
}

// middle is the factor of hourly payments in month i.
func (d discount) middle(i int) domain.Decimal { return d.month[i].Mul(d.half) }

// nano rounds an amount to the unit in which procurement counts, half away from zero.
func nano(amount domain.Decimal) (procurement.Nano, error) {
	n := amount.Shift(9).Round(0).BigInt()
	if !n.IsInt64() {
		return 0, fmt.Errorf("amount %s is too large for a plan", amount)
	}
	return procurement.Nano(n.Int64()), nil
}

// months returns n consecutive months, the first beginning at or after t.
func months(t domain.Instant, n int) []domain.Interval {
	u := t.Time()
	first := time.Date(u.Year(), u.Month(), 1, 0, 0, 0, 0, time.UTC)
	if first.Before(u) {
		first = first.AddDate(0, 1, 0)
	}
	out := make([]domain.Interval, n)
	for i := range out {
		out[i] = domain.Interval{From: domain.InstantOf(first.AddDate(0, i, 0)), To: domain.InstantOf(first.AddDate(0, i+1, 0))}
	}
	return out
}

func hoursOf(i domain.Interval) int64 { return int64((i.To - i.From) / domain.Hour) }

// purchaseCost is the cost of one unit of an offer that begins in month s of a horizon of n months:
// what is paid within the horizon, plus the cost of its months beyond less the salvage share. all
// are the months that any term can reach.
//
// The upfront payment is discounted from the day on which the term begins and spread over the
// term's hours, so months beyond the horizon carry their part of it.
func purchaseCost(o *domain.OfferQuoted, s, n int, all []domain.Interval, d discount, salvage domain.Decimal) domain.Decimal {
	term := all[s : s+int(o.TermMonths)]
	hours := decimal.NewFromInt(hoursOf(domain.Interval{From: term[0].From, To: term[len(term)-1].To}))
	upfront := o.Upfront.Mul(d.month[s])
	kept := decimal.NewFromInt(1).Sub(salvage)
	sum := decimal.Zero
	for i := range term {
		h := decimal.NewFromInt(hoursOf(term[i]))
		cost := o.Hourly.Mul(h).Mul(d.middle(s + i)).Add(upfront.Mul(h).DivRound(hours, digits))
		if s+i >= n {
			cost = cost.Mul(kept)
		}
		sum = sum.Add(cost)
	}
	return sum
}
