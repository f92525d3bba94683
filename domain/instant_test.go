package domain

import (
	"slices"
	"testing"
)

func TestIntervalWithout(t *testing.T) {
	of := func(times ...Instant) (all []Interval) {
		for i := 0; i < len(times); i += 2 {
			all = append(all, Interval{times[i], times[i+1]})
		}
		return all
	}
	whole := Interval{10, 20}
	for _, c := range []struct{ others, want []Interval }{
		{nil, of(10, 20)},
		{of(0, 10, 20, 30), of(10, 20)},
		{of(0, 30), nil},
		{of(15, 16, 12, 13), of(10, 12, 13, 15, 16, 20)}, // in any order
		{of(5, 12, 11, 14, 13, 15), of(15, 20)},          // overlapping
		{of(18, 25, 30, 40), of(10, 18)},                 // beyond its end
	} {
		before := slices.Clone(c.others)
		if got := whole.Without(c.others); !slices.Equal(got, c.want) || !slices.Equal(c.others, before) {
			t.Errorf("without %v: %v, want %v", before, got, c.want)
		}
	}
	if got := (Interval{20, 20}).Without(of(0, 10)); got != nil {
		t.Errorf("of nothing %v is left", got)
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]Instant{
		"1970-01-02": Day, "1970-02": 31 * Day, "1970-01-01T00:00:01Z": Second, "1970-01-01T01:00:00+01:00": 0,
		"1970-01-01": 0, "1970-01": 0, "1969-12-31": 0, "9999-12-31": 0, "0000-00-00": 0, "tomorrow": 0, "": 0,
	} {
		if have, err := ParseTime(text); have != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", text, have, err, want)
		}
	}
}
