package forecast

import (
	"math"
	"slices"
	"testing"
)

// The exponential function is that of package math, within a billionth.
func TestExpMinus(t *testing.T) {
	for y := 0.0; y < 30; y += 0.37 {
		if got, want := expMinus(y), math.Exp(-y); math.Abs(got-want) > 1e-9 {
			t.Errorf("e^-%g is %g, want %g", y, got, want)
		}
	}
}

// A type whose beginning was seen lasts for the mean life on average; one that has been seen for as
// long as types last is replaced soon; one that has been seen for several lives is among those that
// stay.
func TestLives(t *testing.T) {
	left := func(a age) float64 { // mean half months within ten years, without those that stay
		sum := 0.0
		for _, s := range a.survival(Life, 240) {
			sum += s
		}
		return sum
	}
	if got := left(age{0, true}); got < 48 || got > 54 {
		t.Errorf("a new type lasts %.0f half months, want about 48 and those that stay", got)
	}
	young, old, stayed := left(age{6, true}), left(age{22, true}), left(age{72, false})
	if old >= young || stayed < 200 {
		t.Errorf("what is left of a young type %.0f, an old one %.0f and one that stayed %.0f half months", young, old, stayed)
	}
	if a, b := left(age{1, false}), left(age{18, false}); b >= a {
		t.Errorf("a type of unknown age seen for a month lasts %.0f half months, for 18 months %.0f", a, b)
	}
	s := age{12, false}.survival(Life, 100)
	if !slices.IsSortedFunc(s, func(a, b float64) int { return int(math.Copysign(1, b-a)) }) || s[0] != 1 {
		t.Error("survival rises, or is not one now")
	}
}

// Ends of scenarios are spread over the distribution: of 16, in as many as survive demand lasts.
func TestEnds(t *testing.T) {
	s := age{0, true}.survival(Life, 200)
	for _, months := range []int{12, 24, 36} {
		last := 0
		for i := range 16 {
			if ends(s, i, 1<<30) > months*month {
				last++
			}
		}
		if want := 16 * s[2*months]; math.Abs(float64(last)-want) > 1.5 {
			t.Errorf("after %d months demand lasts in %d of 16 scenarios, want %.1f", months, last, want)
		}
	}
}

// The beginning of demand counts as seen after four weeks without any.
func TestAge(t *testing.T) {
	history := func(unknown, none, some int) []int64 {
		return slices.Concat(slices.Repeat([]int64{-1}, unknown), make([]int64, none), slices.Repeat([]int64{5}, some))
	}
	for _, c := range []struct {
		history []int64
		want    age
	}{
		{history(0, 4*Week, 1460), age{2, true}},
		{history(4*Week, 10, 1460), age{2, false}},
		{history(0, 0, 730), age{1, false}},
		{history(5, 5, 0), age{0, true}},
	} {
		if got := ageOf(c.history); got != c.want {
			t.Errorf("got %v, want %v", got, c.want)
		}
	}
}

// Without growth and replacement all is left. Growth leaves no more than all, decline less, and lives the
// less the later.
func TestLeft(t *testing.T) {
	f := &Forecast{age: age{months: 6, born: true}}
	for _, x := range []struct {
		growth            int64
		life, span, after int
		want              int64
	}{
		{0, 0, 36, 36, 1_000_000}, {1_000_000, 0, 12, 12, 1_000_000}, {1_100_000, 0, 12, 12, 1_000_000},
		{500_000, 0, 3, 3, 500_000}, {500_000, 0, 6, 6, 250_000}, {0, 24, 0, 12, 1_000_000},
	} {
		if got := f.Left(x.growth, x.life, x.span, x.after); got != x.want {
			t.Errorf("%+v: %d", x, got)
		}
	}
	before := int64(1_000_000)
	for _, after := range []int{1, 6, 12, 36} {
		if got := f.Left(0, 24, 12, after); got >= before || got <= 0 {
			t.Errorf("after %d months %d is left, before that %d", after, got, before)
		} else {
			before = got
		}
	}
}
