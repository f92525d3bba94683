package forecast_test

import (
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
)

// A day of demand that swings by the hour, at a level by day.
func swing(levels ...int64) []int64 {
	var out []int64
	for _, l := range levels {
		for h := range int64(24) {
			out = append(out, 1000*(l+h%12))
		}
	}
	return out
}

// A declared change counts if it shows, if it cannot have been observed yet, or if it is still to
// come. A change that an autoscaler made and undid does not.
func TestShifts(t *testing.T) {
	const start = domain.Instant(100) * domain.Day
	level := func(days int, of int64) []int64 { return slices.Repeat([]int64{of}, days) }
	on := func(day int, units int64) forecast.Change {
		return forecast.Change{Span: domain.Interval{From: start + domain.Instant(day)*domain.Day}, Milli: 1000 * units}
	}
	off := forecast.Change{Span: domain.Interval{From: start + 20*domain.Day, To: start + 27*domain.Day}, Ignored: true}
	var scaled []forecast.Change
	for day := range 40 {
		scaled = append(scaled, on(day, 8), on(day, -8))
		scaled[len(scaled)-1].Span.From += 12 * domain.Hour
	}
	for name, c := range map[string]struct {
		history       []int64
		changes, want []forecast.Change
	}{
		"shows":                     {swing(slices.Concat(level(20, 10), level(20, 26))...), []forecast.Change{on(20, 16)}, []forecast.Change{on(20, 16)}},
		"shows and goes":            {swing(slices.Concat(level(20, 30), level(20, 20))...), []forecast.Change{on(20, -10)}, []forecast.Change{on(20, -10)}},
		"does not show":             {swing(level(40, 10)...), []forecast.Change{on(20, 16)}, nil},
		"shows less than half":      {swing(slices.Concat(level(20, 10), level(20, 17))...), []forecast.Change{on(20, 16)}, nil},
		"the other way":             {swing(slices.Concat(level(20, 30), level(20, 14))...), []forecast.Change{on(20, 16)}, nil},
		"two in a week":             {swing(slices.Concat(level(20, 10), level(3, 26), level(17, 34))...), []forecast.Change{on(20, 16), on(23, 8)}, []forecast.Change{on(20, 16), on(23, 8)}},
		"undone":                    {swing(slices.Concat(level(20, 10), level(3, 26), level(17, 10))...), []forecast.Change{on(20, 16), on(23, -16)}, nil},
		"to end later":              {swing(slices.Concat(level(20, 10), level(16, 26))...), []forecast.Change{on(20, 16), on(36, -16)}, []forecast.Change{on(20, 16), on(36, -16)}},
		"scaled up and down":        {swing(level(40, 10)...), scaled, nil},
		"seen for half a day":       {swing(level(40, 10)...)[:39*24+12], []forecast.Change{on(39, 16)}, []forecast.Change{on(39, 16)}},
		"to come":                   {swing(level(40, 10)...), []forecast.Change{on(50, 16)}, []forecast.Change{on(50, 16)}},
		"before the history":        {swing(level(40, 10)...), []forecast.Change{on(-5, 16)}, nil},
		"in the first week":         {swing(slices.Concat(level(3, 10), level(37, 26))...), []forecast.Change{on(3, 16)}, []forecast.Change{on(3, 16)}},
		"hidden by an outage":       {swing(slices.Concat(level(20, 10), level(20, 26))...), []forecast.Change{on(20, 16), off}, []forecast.Change{on(20, 16), off}},
		"outages are passed on":     {swing(level(40, 10)...), []forecast.Change{off}, []forecast.Change{off}},
		"nothing has been observed": {nil, []forecast.Change{on(20, 16)}, []forecast.Change{on(20, 16)}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := forecast.Shifts(start, c.history, c.changes); !slices.Equal(got, c.want) {
				t.Errorf("%+v\nwant %+v", got, c.want)
			}
		})
	}
}

// A launch that the learner is told of is taken neither for a trend nor for an error: the forecast
// of flat demand is at the new level, with the same certainty as before.
func TestToldOfALaunch(t *testing.T) {
	history := append(slices.Repeat([]int64{10_000}, 16*forecast.Week), slices.Repeat([]int64{26_000}, 2*forecast.Week)...)
	launch := forecast.Change{Span: domain.Interval{From: 16 * forecast.Week * domain.Hour}, Milli: 16_000}
	told := forecast.Shifts(0, history, []forecast.Change{launch})
	f, err := forecast.Make(&forecast.Question{History: history, Weeks: 4, Changes: told})
	if err != nil {
		t.Fatal(err)
	}
	for h := range f.Point {
		if f.Point[h] != 26_000 || f.At(990)[h] != 26_000 || f.At(50)[h] != 26_000 {
			t.Fatalf("hour %d: %d, from %d to %d", h, f.Point[h], f.At(50)[h], f.At(990)[h])
		}
	}
	f, err = forecast.Make(&forecast.Question{History: history, Weeks: 4})
	if err != nil {
		t.Fatal(err)
	}
	if f.At(990)[0] == 26_000 {
		t.Error("untold, the learner is as sure: the case is too easy")
	}
}
