package whatif

import (
	"math"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"
)

func dec(s string) decimal.Decimal { return decimal.RequireFromString(s) }

func number(d Distribution, p ...string) *Number {
	n := &Number{Distribution: d}
	for _, x := range p {
		n.P = append(n.P, dec(x))
	}
	return n
}

// The quantiles that define a distribution are reproduced to the last digit.
func TestQuantilesByConstruction(t *testing.T) {
	for _, c := range []struct {
		n    *Number
		u    float64
		want string
	}{
		{number(Lognormal, "40", "90"), 0.5, "40"},
		{number(Lognormal, "40", "90"), 0.95, "90"},
		{number(Lognormal, "40", "90"), 0.05, "17.777777778"}, // p50²/p95
		{number(Lognormal, "0.00002", "0.0001"), 0.95, "0.0001"},
		{number(Lognormal, "312000", "360000"), 0.95, "360000"},
		{number(Lognormal, "7", "7"), 0.95, "7"},
		{number(Triangular, "0", "0.02", "0.05"), 0.4, "0.02"}, // the mode is at its fraction of the width
		{number(Triangular, "0", "1", "1"), 0.25, "0.5"},
		{number(Triangular, "0", "0", "1"), 0.75, "0.5"},
		{number(Fixed, "5"), 0.01, "5"},
		{number(Poisson, "0"), 0.99, "0"},
		{number(Poisson, "2"), 0.5, "2"},
		{number(Poisson, "2"), 0.95, "5"},
	} {
		if got := c.n.Quantile(c.u); !got.Equal(dec(c.want)) {
			t.Errorf("quantile %v of %s is %s, want %s", c.u, c.n, got, c.want)
		}
	}
}

// The standard library's functions, which differ between processors in the last digits, agree with
// ours up to those.
func TestFunctionsAgainstTheLibrary(t *testing.T) {
	near := func(what string, x, got, want, within float64) {
		t.Helper()
		if math.Abs(got-want) > within*max(1, math.Abs(want)) {
			t.Errorf("%s(%v) is %v, want %v", what, x, got, want)
		}
	}
	for i := 1; i < 4000; i++ {
		p := float64(i) / 4000
		near("normal", p, normal(p), math.Sqrt2*math.Erfinv(2*p-1), 1e-13) // 2p−1 loses digits near the ends
		x := p*80 - 40
		if want := math.Exp(x); math.Abs(exp(x)-want) > 4e-15*want {
			t.Errorf("exp(%v) is %v, want %v", x, exp(x), want)
		}
		near("ln", p*1000, ln(p*1000), math.Log(p*1000), 4e-15)
	}
	for _, p := range []float64{1e-15, 1e-9, 1e-5} {
		if got := normal(p); math.Abs(math.Erfc(-got/math.Sqrt2)/2-p) > 1e-12*p+1e-22 {
			t.Errorf("normal(%v) is %v", p, got)
		}
	}
}

// A Poisson quantile is the smallest count at which the distribution function, added up
// differently, reaches the uniform number.
func TestPoisson(t *testing.T) {
	for _, mean := range []float64{0.3, 2, 17.5, 120, 500} {
		for _, u := range []float64{0.001, 0.05, 0.5, 0.9, 0.999} {
			n := poisson(mean, u)
			below := func(n int64) (sum float64) {
				for k := int64(0); k <= n; k++ {
					g, _ := math.Lgamma(float64(k) + 1)
					sum += math.Exp(float64(k)*math.Log(mean) - mean - g)
				}
				return sum
			}
			if below(n) < u-1e-9 || n > 0 && below(n-1) >= u+1e-9 {
				t.Errorf("quantile %v of poisson %v is %d", u, mean, n)
			}
		}
	}
}

// Quantiles rise, and lie within the range of the distribution.
func TestQuantilesRise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Float64Range(0.01, 1000).Draw(t, "a")
		b := a * rapid.Float64Range(1, 20).Draw(t, "b")
		c := b * rapid.Float64Range(1, 20).Draw(t, "c")
		d := func(f float64) decimal.Decimal { return rounded(f).Round(6) }
		n := rapid.SampledFrom([]*Number{{Triangular, []decimal.Decimal{d(a), d(b), d(c)}}, {Lognormal, []decimal.Decimal{d(a), d(c)}}, {Poisson, []decimal.Decimal{d(min(a, 300))}}}).Draw(t, "number")
		u := rapid.Float64Range(0.0001, 0.9999).Draw(t, "u")
		v := rapid.Float64Range(u, 0.9999).Draw(t, "v")
		low, high := n.Quantile(u), n.Quantile(v)
		if low.GreaterThan(high) {
			t.Fatalf("%s: quantile %v is %s, %v is %s", n, u, low, v, high)
		}
		if n.Distribution == Triangular && (low.LessThan(n.P[0]) || high.GreaterThan(n.P[2])) {
			t.Fatalf("%s: %s to %s", n, low, high)
		}
	})
}

// Random numbers stay as they were when the first result was frozen: another value here would
// change every frozen scenario.
func TestUniformIsForEver(t *testing.T) {
	for _, c := range []struct {
		seed  uint64
		name  string
		trial int
		want  float64
	}{
		{1, "demand_growth monthly", 0, 0.26109374421110665}, {1, "demand_growth monthly", 1, 0.97205427196194083},
		{2, "demand_growth monthly", 0, 0.94916111153526639}, {1, "x", 1999, 0.3846422117366356},
	} {
		if got := uniform(c.seed, c.name, c.trial); got != c.want {
			t.Errorf("trial %d of %q with seed %d is %.17g, was %.17g", c.trial, c.name, c.seed, got, c.want)
		}
	}
	if got := number(Lognormal, "40", "90").Quantile(uniform(1, "x", 0)).String(); got != golden {
		t.Errorf("the first trial is %s, was %s", got, golden)
	}
	var sum float64
	const n = 20000
	for i := range n {
		u := uniform(9, "mean", i)
		if u <= 0 || u >= 1 {
			t.Fatalf("trial %d is %v", i, u)
		}
		sum += u
	}
	if mean := sum / n; math.Abs(mean-0.5) > 0.01 { // five standard errors
		t.Errorf("the mean is %v", mean)
	}
}

const golden = "36.594136456"
