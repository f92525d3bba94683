package question

import (
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

var (
	zero = decimal.Zero
	one  = decimal.NewFromInt(1)
)

func whole[N int | int64](n N) domain.Decimal { return decimal.NewFromInt(int64(n)) }

// places are the digits of quotients, far more than any amount keeps.
const places = 30

// horizon is the epochs of a question and those beyond it that terms reach.
type horizon struct {
	n      int              // epochs of the question
	starts []domain.Instant // of epochs, and the end of the last
	hours  []int64          // before each epoch, and all
	// begin and middle are the factors of payments at the beginning of an epoch and by the hour in
	// it. paid are Σ hours × middle before each epoch, and of all.
	begin, middle, paid []domain.Decimal
}

func newHorizon(d *document, reach int) (*horizon, error) {
	h := &horizon{n: d.Epochs, hours: []int64{0}, paid: []domain.Decimal{zero}}
	from, parts := d.From.Time(), int64(12)
	switch d.Epoch {
	case "month":
	case "day":
		parts = 365
	default:
		return nil, fmt.Errorf("epoch %q is neither month nor day", d.Epoch)
	}
	if d.Epochs < 1 || reach < d.Epochs {
		return nil, fmt.Errorf("%d epochs", d.Epochs)
	}
	for i := range reach + 1 {
		at := time.Date(from.Year(), from.Month(), from.Day()+i, 0, 0, 0, 0, time.UTC)
		if d.Epoch == "month" {
			at = time.Date(from.Year(), from.Month()+time.Month(i), 1, 0, 0, 0, 0, time.UTC)
		}
		h.starts = append(h.starts, domain.InstantOf(at))
	}
	full, half := root(d.AnnualRate, parts), root(d.AnnualRate, 2*parts)
	factor := number(1)
	for i := range reach {
		n := int64((h.starts[i+1] - h.starts[i]) / domain.Hour)
		middle := new(big.Float).SetPrec(precision).Mul(factor, half)
		h.hours = append(h.hours, h.hours[i]+n)
		h.begin, h.middle = append(h.begin, inDecimal(factor)), append(h.middle, inDecimal(middle))
		h.paid = append(h.paid, h.paid[i].Add(h.middle[i].Mul(whole(n))))
		factor = new(big.Float).SetPrec(precision).Mul(factor, full)
	}
	h.begin = append(h.begin, inDecimal(factor))
	return h, nil
}

// end is the end of the question's horizon.
func (h *horizon) end() domain.Instant { return h.starts[h.n] }

func (h *horizon) span(e int) domain.Interval {
	return domain.Interval{From: h.starts[e], To: h.starts[e+1]}
}

func (h *horizon) length(e int) int64 { return h.hours[e+1] - h.hours[e] }

// of is the epoch of a moment: −1 before the first, their number after the last.
func (h *horizon) of(t domain.Instant) int {
	for e := range h.starts {
		if t < h.starts[e] {
			return e - 1
		}
	}
	return len(h.starts) - 1
}

// name names an epoch for a reader.
func (h *horizon) name(e int) string {
	if t := h.starts[e].Time(); h.length(e) > 24 {
		return fmt.Sprintf("epoch %d (%s)", e, t.Format("2006-01"))
	} else {
		return fmt.Sprintf("epoch %d (%s)", e, t.Format("2006-01-02"))
	}
}

// common is the time that an epoch and a term have in common. A term without end has the end 0.
func (h *horizon) common(e int, term domain.Interval) domain.Instant {
	s := h.span(e)
	if term.To == 0 {
		term.To = max(s.To, term.From)
	}
	return s.Intersect(term).Length()
}

// inHours is a time in hours.
func inHours(t domain.Instant) domain.Decimal {
	return whole(int64(t)).DivRound(whole(int64(domain.Hour)), places)
}

// precision is that of factors in bits: seventy digits.
const precision = 256

func number(n int64) *big.Float { return new(big.Float).SetPrec(precision).SetInt64(n) }

// root is (1 + rate)^(−1/n), from the series of the logarithm and the exponential: ln(1 + r) = 2 Σ
// z^(2k+1)/(2k+1) with z = r/(2 + r), at most a third.
func root(rate domain.Decimal, n int64) *big.Float {
	r := new(big.Float).SetPrec(precision).SetRat(rate.Rat())
	if r.Sign() == 0 {
		return number(1)
	}
	z := new(big.Float).SetPrec(precision).Quo(r, new(big.Float).SetPrec(precision).Add(r, number(2)))
	square := new(big.Float).SetPrec(precision).Mul(z, z)
	log, power := number(0), new(big.Float).SetPrec(precision).Add(z, z)
	for k := int64(1); k < 200; k += 2 {
		log.Add(log, new(big.Float).SetPrec(precision).Quo(power, number(k)))
		power.Mul(power, square)
	}
	x := log.Quo(log, number(-n))
	sum, term := number(1), number(1)
	for k := int64(1); k < 80; k++ {
		term.Mul(term, x)
		term.Quo(term, number(k))
		sum.Add(sum, term)
	}
	return sum
}

func inDecimal(f *big.Float) domain.Decimal {
	if f.IsInt() {
		n, _ := f.Int(nil)
		return decimal.NewFromBigInt(n, 0)
	}
	return decimal.RequireFromString(f.Text('f', 40))
}

// errLarge means that an amount does not fit 64 bits in the resolution of the answer.
var errLarge = errors.New("the amount does not fit in the resolution of the answer")

// rounded counts an amount in 10^−digits, half to even.
func rounded(amount domain.Decimal, digits int32) (int64, error) {
	n, more := amount.Coefficient(), amount.Exponent()+digits
	if more > 0 {
		n.Mul(n, ten(more))
	} else if more < 0 {
		part, rest := ten(-more), new(big.Int)
		n.QuoRem(n, part, rest)
		// Above a half, or at a half of an odd number, it is the next one.
		sign := rest.Sign()
		if c := rest.Abs(rest.Lsh(rest, 1)).Cmp(part); c > 0 || c == 0 && n.Bit(0) == 1 {
			n.Add(n, big.NewInt(int64(sign)))
		}
	}
	if !n.IsInt64() {
		return 0, fmt.Errorf("%s: %w", amount.StringFixed(2), errLarge)
	}
	return n.Int64(), nil
}

// ten is 10^n. It is not to be changed.
func ten(n int32) *big.Int {
	if int(n) < len(tens) {
		return tens[n]
	}
	return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
}

var tens = func() (out [3 * places]*big.Int) {
	for n := range out {
		out[n] = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	}
	return out
}()

// worth is what a unit of a currency is worth.
func (d *document) worth(currency string) (domain.Decimal, error) {
	if currency == "" || currency == d.Currency {
		return one, nil
	}
	fx, ok := d.FX[currency]
	if !ok {
		return zero, fmt.Errorf("no rate is given for %q", currency)
	}
	return fx, nil
}

// prices are an hourly price by epoch, in the currency of the question: the mean over the time of
// the epoch.
func (r *reading) prices(p *price) ([]domain.Decimal, error) {
	fx, err := r.doc.worth(p.Currency)
	if err != nil {
		return nil, err
	}
	out := make([]domain.Decimal, r.cal.n)
	for e := range out {
		s := r.cal.span(e)
		at, now, sum := s.From, p.Hourly, zero
		changed := false
		for _, step := range p.Path {
			if step.From <= s.From {
				now = step.Hourly
			} else if step.From < s.To {
				sum, at, now, changed = sum.Add(now.Mul(whole(int64(step.From-at)))), step.From, step.Hourly, true
			}
		}
		if changed {
			now = sum.Add(now.Mul(whole(int64(s.To-at)))).DivRound(whole(int64(s.Length())), places)
		}
		out[e] = now.Mul(fx)
	}
	return out, nil
}

// quotaUnits are a quota's units by epoch: the least at any moment of it, −1 without bound.
func (r *reading) quotaUnits(q *quota, each int) []int {
	out := make([]int, r.cal.n)
	for e := range out {
		s := r.cal.span(e)
		now, least := q.Limit, -1
		for _, step := range q.Path {
			if step.From > s.From && step.From < s.To && (least < 0 || now < least) {
				least = now
			}
			if step.From < s.To {
				now = step.Limit
			}
		}
		if least < 0 || now < least {
			least = now
		}
		if least > 100_000_000 {
			out[e] = -1
		} else {
			out[e] = least - least%each
		}
	}
	return out
}
