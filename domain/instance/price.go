package instance

import (
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

// digits is the precision of factors and means, far finer than the rounding of amounts. Rounding is
// half to even, and happens once, where an amount becomes an integer.
const digits = 30

// Spans returns the epochs of the horizon.
func (in *Instance) Spans() []domain.Interval { return in.epochs(in.Epochs) }

// epochs returns n epochs from the start of the horizon.
func (in *Instance) epochs(n int) []domain.Interval {
	at := func(i int) domain.Instant {
		if in.Epoch == Days {
			return in.From + domain.Instant(i)*domain.Day
		}
		u := in.From.Time()
		return domain.InstantOf(time.Date(u.Year(), u.Month()+time.Month(i), 1, 0, 0, 0, 0, time.UTC))
	}
	out := make([]domain.Interval, n)
	for i := range out {
		out[i] = domain.Interval{From: at(i), To: at(i + 1)}
	}
	return out
}

func hoursOf(i domain.Interval) int64 { return int64(i.Length() / domain.Hour) }

func whole[N int | int64](n N) domain.Decimal { return decimal.NewFromInt(int64(n)) }

// calendar is the horizon and the epochs beyond it that terms reach, with the discount factors of
// payments in them.
type calendar struct {
	n     int // epochs of the horizon
	spans []domain.Interval
	hours []int64 // before each epoch, one entry more than epochs
	// start is the discount factor of a payment at the beginning of an epoch, middle that of a
	// payment by the hour within it: (1 + rate)^(−m/12), with months as twelfths of a year and days
	// as 365ths.
	start, middle []domain.Decimal
	// paid is Σ hours × middle of the preceding epochs.
	paid []domain.Decimal
}

func newCalendar(in *Instance, reach int) (*calendar, error) {
	year := int64(12)
	if in.Epoch == Days {
		year = 365
	}
	root := func(of int64) (domain.Decimal, error) {
		if in.AnnualRate.IsZero() {
			return one, nil
		}
		x, err := one.Add(in.AnnualRate).PowWithPrecision(one.DivRound(whole(of), digits), digits)
		if err != nil {
			return x, fmt.Errorf("annual rate %s: %w", in.AnnualRate, err)
		}
		return one.DivRound(x, digits), nil
	}
	full, err := root(year)
	if err != nil {
		return nil, err
	}
	half, err := root(2 * year)
	if err != nil {
		return nil, err
	}
	c := &calendar{
		n: in.Epochs, spans: in.epochs(max(reach, in.Epochs)), hours: []int64{0}, start: []domain.Decimal{one},
		paid: []domain.Decimal{decimal.Zero},
	}
	for i, s := range c.spans {
		h := hoursOf(s)
		c.hours = append(c.hours, c.hours[i]+h)
		c.middle = append(c.middle, c.start[i].Mul(half).Round(digits))
		c.start = append(c.start, c.start[i].Mul(full).Round(digits))
		c.paid = append(c.paid, c.paid[i].Add(c.middle[i].Mul(whole(h))))
	}
	return c, nil
}

// end is the end of the horizon.
func (c *calendar) end() domain.Instant { return c.spans[c.n-1].To }

// hoursIn is the number of hours of epochs [from, to).
func (c *calendar) hoursIn(from, to int) int64 { return c.hours[to] - c.hours[from] }

// of returns the epoch that contains t, −1 before the first and len(spans) after the last.
func (c *calendar) of(t domain.Instant) int {
	if t < c.spans[0].From {
		return -1
	}
	low, high := 0, len(c.spans)
	for low < high {
		if mid := (low + high) / 2; c.spans[mid].To <= t {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// overlap is the part of epoch i within a term, whose To may be zero.
func (c *calendar) overlap(i int, term domain.Interval) domain.Instant {
	s := c.spans[i]
	if term.To != 0 {
		s.To = min(s.To, term.To)
	}
	s.From = max(s.From, term.From)
	return s.Length()
}

func inHours(t domain.Instant) domain.Decimal {
	return whole(int64(t)).DivRound(whole(int64(domain.Hour)), digits)
}

// fx returns the value of a unit of a currency.
func (in *Instance) fx(currency string) domain.Decimal {
	if currency == "" || currency == in.Currency {
		return one
	}
	return in.FX[currency]
}

// hourly returns the hourly price in each epoch of the horizon, in the instance's currency: the
// mean over the epoch's hours if a step lies within it.
func (in *Instance) hourly(p *Price, spans []domain.Interval) []domain.Decimal {
	fx := in.fx(p.Currency)
	out := make([]domain.Decimal, len(spans))
	for m, s := range spans {
		sum, at, price, split := decimal.Zero, s.From, p.Hourly, false
		for _, step := range p.Path {
			if step.From >= s.To {
				break
			}
			if step.From > at {
				sum, at, split = sum.Add(price.Mul(whole(int64(step.From-at)))), step.From, true
			}
			price = step.Hourly
		}
		if split {
			price = sum.Add(price.Mul(whole(int64(s.To-at)))).DivRound(whole(int64(s.To-s.From)), digits)
		}
		out[m] = price.Mul(fx)
	}
	return out
}

// bounds returns the limit of a quota in each epoch, the lowest within it. A limit beyond all
// possible demand counts as unlimited.
func (q *Quota) bounds(spans []domain.Interval) []int {
	out := make([]int, len(spans))
	for m, s := range spans {
		limit := q.Limit
		least := -1
		for _, step := range q.Path {
			if step.From >= s.To {
				break
			}
			if step.From > s.From && (least < 0 || limit < least) {
				least = limit
			}
			limit = step.Limit
		}
		if least < 0 || limit < least {
			least = limit
		}
		if out[m] = least; least > MaxUnits {
			out[m] = procurement.Unlimited
		}
	}
	return out
}

// rounded converts an amount to an integer in units of 10⁻ᵈⁱᵍⁱᵗˢ of the currency, half to even.
func rounded(amount domain.Decimal, digits int32) (procurement.Nano, error) {
	n, shift := amount.Coefficient(), amount.Exponent()+digits
	if shift < 0 {
		n = halfEven(n, tens(-shift))
	} else if shift > 0 {
		n.Mul(n, tens(shift))
	}
	if !n.IsInt64() {
		return 0, fmt.Errorf("%s: %w", clip(amount.Round(2).String()), errLarge)
	}
	return procurement.Nano(n.Int64()), nil
}

// halfEven is n ÷ of, rounded half to even. of is positive.
func halfEven(n, of *big.Int) *big.Int {
	out := new(big.Int).Set(n)
	halved(out, of, new(big.Int), new(big.Int))
	return out
}

// halved sets n to n ÷ of, rounded half to even, in the memory of quotient and rest.
func halved(n, of, quotient, rest *big.Int) {
	quotient.QuoRem(n, of, rest)
	sign := rest.Sign()
	n.Set(quotient)
	if c := rest.Abs(rest.Lsh(rest, 1)).Cmp(of); c > 0 || c == 0 && quotient.Bit(0) == 1 {
		if sign < 0 {
			n.Sub(n, unit)
		} else {
			n.Add(n, unit)
		}
	}
}

var unit = big.NewInt(1)

// tens is a power of ten. Callers must not modify it.
func tens(n int32) *big.Int {
	if int(n) < len(powers) {
		return powers[n]
	}
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

var powers = func() (out [2*digits + 1]*big.Int) {
	for n := range out {
		out[n] = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	}
	return out
}()

// ErrTooLarge means that amounts of an instance fit in no unit: whoever states it states less.
var ErrTooLarge = errors.New("amounts times the scenarios' weights are too large to be computed")

// errLarge means that an amount does not fit into 64 bits in the unit in which it is counted.
var errLarge = errors.New("too large an amount")
