package forecast_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
)

// families names every second part a family, as GPU models of one kind are.
func families(all []*forecast.Question) []*forecast.Question {
	for i, q := range all {
		q.Family = fmt.Sprintf("f%d", i/2)
	}
	return all
}

// sums are the hours of a sum of forecasts.
func sums(parts []*forecast.Forecast) []int64 {
	out := make([]int64, len(parts[0].Point))
	for _, f := range parts {
		for h, v := range f.Point {
			out[h] += v
		}
	}
	return out
}

// Points add up exactly at every level: types to their family, families to their region, regions to the
// total, in any order, with known changes. Quantiles are ordered, and the same question gives the same
// bytes.
func TestSum(t *testing.T) {
	for seed := range uint64(6) {
		regions := [][]*forecast.Question{families(parts(seed, 30)), families(parts(seed+100, 40)[:2])}
		regions[0][0].Changes = []forecast.Change{{Span: domain.Interval{From: regions[0][0].From + 30*forecast.Week*domain.Hour}, Milli: -1_500_000}}
		regions[1][0].From, regions[1][1].From = began-10*forecast.Week*domain.Hour, began-10*forecast.Week*domain.Hour
		var all, tops []*forecast.Forecast
		for _, of := range regions {
			made, errs := forecast.Together(of)
			var byFamily []*forecast.Forecast
			for i := 0; i < len(made); i += 2 {
				if errs[i] != nil {
					t.Fatal(errs[i])
				}
				byFamily = append(byFamily, forecast.Sum(made[i:min(i+2, len(made))]))
			}
			region := forecast.Sum(made)
			if !slices.Equal(region.Point, sums(byFamily)) || !slices.Equal(region.Point, sums(made)) {
				t.Fatalf("seed %d: parts, families and their region do not add up", seed)
			}
			all, tops = append(all, made...), append(tops, region)
		}
		total := forecast.Sum(all)
		if !slices.Equal(total.Point, sums(tops)) {
			t.Fatalf("seed %d: regions do not add up to the total", seed)
		}
		for h := range total.Point {
			for i := 1; i < len(total.Levels); i++ {
				if total.Quantiles[i][h] < total.Quantiles[i-1][h] {
					t.Fatalf("seed %d, hour %d: quantile %d is below the one before", seed, h, total.Levels[i])
				}
			}
		}
		first, _ := json.Marshal(total)
		if again, _ := json.Marshal(forecast.Sum(all)); string(first) != string(again) {
			t.Fatalf("seed %d: another sum of the same", seed)
		}
	}
	if forecast.Sum(nil) != nil {
		t.Error("there is a sum of nothing")
	}
}

// Where one pool errs high when another errs low, the sum's interval is narrower than the sum of theirs.
// Where both err alike, it is as wide.
func TestSumInterval(t *testing.T) {
	a := parts(4, 40)[0]
	for h := range a.History {
		a.History[h] = 50_000 + int64(h*h%7919)
		if h/forecast.Week%3 == 0 {
			a.History[h] += 20_000
		}
	}
	other := func(of func(v int64) int64) *forecast.Question {
		q := *a
		q.History = make([]int64, len(a.History))
		for h, v := range a.History {
			q.History[h] = of(v)
		}
		return &q
	}
	width := func(f *forecast.Forecast) int64 { return f.HalfWidth[0] }
	alone := must(t, a)
	alike := forecast.Sum([]*forecast.Forecast{alone, must(t, other(func(v int64) int64 { return v }))})
	if d := width(alike) - 2*width(alone); d < -2 || d > 2 {
		t.Errorf("twice the same has a half-width of %d, not of twice %d", width(alike), width(alone))
	}
	against := must(t, other(func(v int64) int64 { return 150_000 - v }))
	if got := width(forecast.Sum([]*forecast.Forecast{alone, against})); 2*got > width(alone)+width(against) {
		t.Errorf("contrary pools of half-widths %d and %d have a sum's of %d", width(alone), width(against), got)
	}
}

// Families add up to the forecast of their own sum in proportion to the whole: work that moves within a
// family changes nothing for the parts outside.
func TestFamilies(t *testing.T) {
	all := parts(1, 30)
	for len(all) < 3 {
		all = append(all, parts(9, 30)[0])
	}
	all = all[:3]
	all[0].Family, all[1].Family = "f", "f"
	before, errs := forecast.Together(all)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	whole := must(t, sumOf(all))
	for h, want := range whole.Point {
		if d := sums(before)[h] - want; d < -10 || d > 10 {
			t.Fatalf("hour %d: the parts add up to %d, the whole is %d", h, sums(before)[h], want)
		}
	}
	for h := range all[0].History { // all of it has always been the other's
		if all[0].History[h] > 0 {
			all[1].History[h] = max(0, all[1].History[h]) + all[0].History[h]
			all[0].History[h] = 0
		}
	}
	after, errs := forecast.Together(all)
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	for h, v := range before[2].Point {
		if d := after[2].Point[h] - v; d < -2 || d > 2 {
			t.Fatalf("hour %d: the part outside of the family is %d, and was %d", h, after[2].Point[h], v)
		}
	}
}

// The sum of past forecasts is scored against the sum of demand.
func TestAssessSum(t *testing.T) {
	wholes := [][]*forecast.Question{parts(1, 30), parts(2, 30)}
	all := slices.Concat(wholes...)
	members := []int{0, len(wholes[0])}
	_, of := forecast.Assess(wholes, 2, [][]int{members})
	var want forecast.Score
	for _, weeks := range []int{24, 27} {
		at := weeks * forecast.Week
		var with []*forecast.Forecast
		for _, whole := range wholes {
			var then []*forecast.Question
			for _, q := range whole {
				past := *q
				past.History = q.History[:at]
				then = append(then, &past)
			}
			made, _ := forecast.Together(then)
			with = append(with, made[0])
		}
		both := make([]int64, len(all[0].History))
		for h := range both {
			both[h] = all[members[0]].History[h] + all[members[1]].History[h]
		}
		want.Add(both[:at], forecast.Sum(with), both[at:])
	}
	a, _ := json.Marshal(of[0])
	if b, _ := json.Marshal(&want); string(a) != string(b) {
		t.Errorf("got  %s\nwant %s", a, b)
	}
}
