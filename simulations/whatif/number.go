package whatif

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Distribution is a kind of probability distribution.
type Distribution string

// The distributions.
const (
	Fixed      Distribution = "fixed"
	Triangular Distribution = "triangular" // least, most likely, most
	Lognormal  Distribution = "lognormal"  // p50, p95
	Poisson    Distribution = "poisson"    // mean
)

// Number is a number of a scenario, which may be uncertain.
type Number struct {
	Distribution Distribution
	// P are its parameters: of fixed the value, of triangular the least, most likely and most, of
	// lognormal the median and the 95th percentile, of poisson the mean.
	P []domain.Decimal
}

// FixedAt is a certain number.
func FixedAt(d domain.Decimal) *Number { return &Number{Fixed, []domain.Decimal{d}} }

// Certain reports whether a number has one value.
func (n *Number) Certain() bool {
	for _, p := range n.P[1:] {
		if !p.Equal(n.P[0]) {
			return false
		}
	}
	return n.Distribution != Poisson || n.P[0].IsZero()
}

// MarshalJSON writes {"fixed": ["5"]} and the like.
func (n Number) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[Distribution][]domain.Decimal{n.Distribution: n.P})
}

// UnmarshalJSON reads the output of [Number.MarshalJSON].
func (n *Number) UnmarshalJSON(b []byte) error {
	var m map[Distribution][]domain.Decimal
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	want := map[Distribution]int{Fixed: 1, Triangular: 3, Lognormal: 2, Poisson: 1}
	for d, p := range m {
		if len(m) == 1 && want[d] == len(p) {
			n.Distribution, n.P = d, p
			return nil
		}
	}
	return fmt.Errorf("number %s is no distribution", b)
}

// String shows a number as in a file.
func (n *Number) String() string {
	if n.Distribution == Fixed {
		return n.P[0].String()
	}
	s := string(n.Distribution)
	for _, p := range n.P {
		s += " " + p.String()
	}
	return s
}

// places is the precision of drawn values.
const places = 9

// Quantile returns the value that the number does not exceed with probability u, 0 < u < 1, to nine
// decimals. The quantiles that define a lognormal number are exact.
func (n *Number) Quantile(u float64) domain.Decimal {
	if n.Certain() {
		return n.P[0]
	}
	switch n.Distribution {
	case Triangular:
		low, mode, high := float(n.P[0]), float(n.P[1]), float(n.P[2])
		width, rise := high-low, mode-low
		if left := float64(u * width); left < rise {
			return rounded(low + math.Sqrt(float64(left*rise)))
		}
		return rounded(high - math.Sqrt(float64(float64((1-u)*width)*(high-mode))))
	case Lognormal:
		if z := normal(u); z != 0 {
			p50 := float(n.P[0])
			return rounded(float64(p50 * exp(float64(ln(float(n.P[1])/p50)*(z/normal(0.95))))))
		}
		return n.P[0]
	case Poisson:
		return decimal.NewFromInt(poisson(float(n.P[0]), u))
	}
	return n.P[0]
}

// Median returns the value of a number that is not drawn.
func (n *Number) Median() domain.Decimal { return n.Quantile(0.5) }

// float is the double nearest to a decimal, as strconv rounds it.
func float(d domain.Decimal) float64 {
	f, _ := strconv.ParseFloat(d.String(), 64)
	return f
}

func rounded(f float64) domain.Decimal {
	d, err := decimal.NewFromString(strconv.FormatFloat(f, 'f', places, 64))
	if err != nil { // an infinity, which the bounds of a file exclude
		return decimal.Zero
	}
	return d
}

// uniform is the random number of a variable in a trial, strictly between 0 and 1: 52 bits of
// SHA-256 over seed, name and trial, plus half of the last bit.
func uniform(seed uint64, name string, trial int) float64 {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 24+len(name)), seed)
	b = binary.BigEndian.AppendUint64(b, uint64(trial))
	sum := sha256.Sum256(append(b, name...))
	k := binary.BigEndian.Uint64(sum[:8]) >> 12
	return float64(2*k+1) / (1 << 53) // both exact
}

// normal is the inverse of the standard normal distribution, to about 16 digits: M. J. Wichura,
// algorithm AS 241 (PPND16), Applied Statistics 37 (1988) 477-484.
func normal(p float64) float64 {
	q := p - 0.5
	if math.Abs(q) <= 0.425 {
		r := 0.180625 - float64(q*q)
		return q * horner(r, 2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
			13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608) /
			horner(r, 5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
				5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1)
	}
	r := p
	if q > 0 {
		r = 1 - p
	}
	r = math.Sqrt(-ln(r))
	var z float64
	if r <= 5 {
		r -= 1.6
		z = horner(r, 7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
			3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734) /
			horner(r, 1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
				0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1)
	} else {
		r -= 5
		z = horner(r, 2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
			0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772) /
			horner(r, 2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
				0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1)
	}
	if q < 0 {
		return -z
	}
	return z
}

// horner evaluates a polynomial, the highest coefficient first.
func horner(x float64, coefficients ...float64) float64 {
	sum := 0.0
	for _, c := range coefficients {
		sum = float64(sum*x) + c
	}
	return sum
}

// ln is the natural logarithm of a positive number: with x = m·2ᵏ and m near 1, ln x = k·ln 2 +
// 2·artanh((m−1)/(m+1)), with the series summed until it no longer changes. The functions of
// package math differ between processors in the last digit.
func ln(x float64) float64 {
	m, k := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, k = 2*m, k-1
	}
	t := (m - 1) / (m + 1)
	square, power, sum := float64(t*t), t, 0.0
	for i := 1; ; i += 2 {
		next := sum + power/float64(i)
		if next == sum {
			break
		}
		sum, power = next, float64(power*square)
	}
	return float64(float64(k)*math.Ln2) + float64(2*sum)
}

// exp is e to the power x, by x = k·ln 2 + r and the series of r.
func exp(x float64) float64 {
	k := math.Floor(float64(x/math.Ln2) + 0.5)
	// ln 2 in two parts, the first exact in 33 bits (FreeBSD, e_exp.c).
	r := x - float64(k*6.93147180369123816490e-01)
	r -= float64(k * 1.90821492927058770002e-10)
	term, sum := 1.0, 1.0
	for i := 1; i < 40; i++ {
		term = float64(term*r) / float64(i)
		next := sum + term
		if next == sum {
			break
		}
		sum = next
	}
	return math.Ldexp(sum, int(k))
}

// maxPoisson bounds the mean of a Poisson number, so that e^−mean is not 0.
const maxPoisson = 500

// poisson is the smallest count at which the distribution function reaches u, by adding up
// probabilities.
func poisson(mean, u float64) int64 {
	p := exp(-mean)
	sum := p
	n := int64(0)
	for most := int64(10*maxPoisson + 100); sum < u && n < most; {
		n++
		p = float64(p*mean) / float64(n)
		sum += p
	}
	return n
}
