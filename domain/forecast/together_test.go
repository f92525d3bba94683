package forecast_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"quartermaster/domain/forecast"
)

// parts are histories of random demand with different levels, trends and beginnings.
func parts(seed uint64, weeks int) []*forecast.Question {
	d := rand.New(rand.NewPCG(seed, 1))
	var out []*forecast.Question
	for i := range 2 + d.IntN(4) {
		level, step := int64(2000+d.IntN(50_000)), int64(d.IntN(40))-10
		history := make([]int64, weeks*forecast.Week)
		begin := min(i, 1) * d.IntN(2) * d.IntN(weeks-forecast.MinWeeks) * forecast.Week
		for h := range history {
			history[h] = -1
			if h >= begin {
				history[h] = max(0, level+step*int64(h-begin)+int64(h%24)*200+d.Int64N(3000))
			}
		}
		out = append(out, &forecast.Question{From: began, History: history, Weeks: 3})
	}
	return out
}

// sumOf is the demand of parts together; what has not begun is zero.
func sumOf(parts []*forecast.Question) *forecast.Question {
	history := make([]int64, len(parts[0].History))
	for _, q := range parts {
		for h, v := range q.History {
			history[h] += max(0, v)
		}
	}
	return &forecast.Question{From: began, History: history, Weeks: parts[0].Weeks}
}

// The parts add up to the forecast of the whole, except for their rounding. Their order does not matter,
// and a part that cannot be forecast changes nothing for the others.
func TestTogether(t *testing.T) {
	for seed := range uint64(6) {
		all := parts(seed, 30)
		made, errs := forecast.Together(all)
		whole := must(t, sumOf(all))
		for h, want := range whole.Point {
			sum := int64(0)
			for i, f := range made {
				if errs[i] != nil {
					t.Fatal(errs[i])
				}
				sum += f.Point[h]
			}
			if d := sum - want; d < -10 || d > 10 {
				t.Fatalf("seed %d, hour %d: the parts add up to %d, the whole is %d", seed, h, sum, want)
			}
		}
		other := []*forecast.Question{{From: began, History: make([]int64, forecast.Week), Weeks: 3}}
		for i := range all {
			other = append(other, all[len(all)-1-i])
		}
		again, errs := forecast.Together(other)
		if errs[0] == nil || again[0] != nil {
			t.Errorf("seed %d: a week of history is forecast", seed)
		}
		for i, f := range made {
			for h, v := range again[len(all)-i].Point {
				if d := v - f.Point[h]; d < -1 || d > 1 { // sums of floats in another order
					t.Fatalf("seed %d, part %d, hour %d: %d in another order, not %d", seed, i, h, v, f.Point[h])
				}
			}
		}
	}
}

// A part alone is forecast as by itself.
func TestTogetherAlone(t *testing.T) {
	q := parts(3, 20)[0]
	made, _ := forecast.Together([]*forecast.Question{q})
	got, _ := json.Marshal(made[0])
	if want, _ := json.Marshal(must(t, q)); string(got) != string(want) {
		t.Errorf("alone it is\n%s\nnot\n%s", got, want)
	}
}

// Work moves from one machine type to another at a steady rate, and the sum stays. The sum of separate
// forecasts is off by more than that of forecasts made together.
func TestMigration(t *testing.T) {
	const weeks, ahead = 26, 4
	d := rand.New(rand.NewPCG(5, 6))
	from, to := make([]int64, (weeks+ahead)*forecast.Week), make([]int64, (weeks+ahead)*forecast.Week)
	for h := range from {
		moved := int64(max(0, h-20*forecast.Week)) * 80_000 / (10 * forecast.Week)
		from[h], to[h] = 100_000-moved+d.Int64N(2000), moved*9/10+moved*moved/800_000+d.Int64N(2000)
	}
	now := weeks * forecast.Week
	ask := func(v []int64) *forecast.Question {
		return &forecast.Question{From: began, History: v[:now], Weeks: ahead}
	}
	made, _ := forecast.Together([]*forecast.Question{ask(from), ask(to)})
	a, b := must(t, ask(from)), must(t, ask(to))
	together, apart := int64(0), int64(0)
	for h := range made[0].Point {
		sum := from[now+h] + to[now+h]
		together += max(sum-made[0].Point[h]-made[1].Point[h], made[0].Point[h]+made[1].Point[h]-sum)
		apart += max(sum-a.Point[h]-b.Point[h], a.Point[h]+b.Point[h]-sum)
	}
	if 2*together > apart {
		t.Errorf("the sum is off by %d forecast together, by %d apart", together, apart)
	}
}

// A single exceptional week at the end hardly changes the forecast, if such weeks were no sign of growth
// before.
func TestExceptionalWeek(t *testing.T) {
	d := rand.New(rand.NewPCG(7, 8))
	history := make([]int64, 60*forecast.Week)
	for h := range history {
		history[h] = 100_000 + d.Int64N(5000)
		if w := h / forecast.Week; w%10 == 9 {
			history[h] += 30_000
		}
	}
	f := must(t, &forecast.Question{From: began, History: history, Weeks: 4})
	sum := int64(0)
	for _, v := range f.Point {
		sum += v / int64(len(f.Point))
	}
	if f.Candidate != "mean of robust profile and smoothing" || sum > 115_000 {
		t.Errorf("after an exceptional week %s forecasts %d", f.Candidate, sum)
	}
}
