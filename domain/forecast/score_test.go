package forecast_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
)

func float(d domain.Decimal) float64 {
	f, _ := strconv.ParseFloat(d.String(), 64)
	return f
}

// A score equals the measures that are checked against published values, over all forecasts, and
// scores of parts merge into the score of the whole.
func TestScore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		history := make([]int64, (30+d.IntN(4))*forecast.Week)
		for h := range history {
			history[h] = 1000*int64(20+h%24) + d.Int64N(5000)
		}
		var whole, parts forecast.Score
		mase, naiveMASE, scale, off, hours := 0.0, 0.0, 0.0, 0.0, 0
		loss, covered := map[int]float64{}, map[int]float64{}
		n := 1 + d.IntN(3)
		for i := range n {
			past := history[:len(history)-i*7]
			f := must(t, &forecast.Question{From: began, History: past, Weeks: 1 + d.IntN(2)})
			actual := make([]int64, d.IntN(2*forecast.Week)+1)
			for h := range actual {
				actual[h] = 1000*int64(20+h%24) + d.Int64N(8000)
			}
			whole.Add(past, f, actual)
			var one forecast.Score
			one.Add(past, f, actual)
			parts.Merge(&one)
			came := floats(actual[:min(len(actual), len(f.Point))])
			naive := make([]float64, len(came))
			for h := range naive {
				naive[h] = float64(past[len(past)-forecast.Week+h%forecast.Week])
			}
			mase += forecast.MASE(floats(past), forecast.Week, came, floats(f.Point)) / float64(n)
			naiveMASE += forecast.MASE(floats(past), forecast.Week, came, naive) / float64(n)
			if e := forecast.MAE(came, floats(f.Point)); e > 0 {
				off += e * float64(len(came))
				scale += e * float64(len(came)) / forecast.MASE(floats(past), forecast.Week, came, floats(f.Point))
			}
			hours += len(came)
			for _, l := range f.Levels {
				loss[l] += forecast.Pinball(float64(l)/1000, came, floats(f.At(l))) * float64(len(came)) / 1000
				covered[l] += forecast.Coverage(came, floats(f.At(l))) * float64(len(came))
			}
		}
		if math.Abs(float(whole.MASE)-mase) > 1e-4 || math.Abs(float(whole.Naive)-naiveMASE) > 1e-4 || whole.Hours != hours {
			t.Errorf("MASE %s, naive %s over %d hours; want %f, %f, %d", whole.MASE, whole.Naive, whole.Hours, mase, naiveMASE, hours)
		}
		if math.Abs(float(whole.WeightedMASE)-off/scale) > 1e-4 {
			t.Errorf("weighted MASE %s, want %f", whole.WeightedMASE, off/scale)
		}
		for _, l := range forecast.Levels {
			q := whole.At(l)
			if math.Abs(float(q.Pinball)-loss[l]/float64(hours)) > 1e-5 || math.Abs(float(q.Covered)-covered[l]/float64(hours)) > 1e-4 {
				t.Errorf("level %d: %+v, want %f, %f", l, q, loss[l]/float64(hours), covered[l]/float64(hours))
			}
		}
		a, _ := json.Marshal(&whole)
		if b, _ := json.Marshal(&parts); string(a) != string(b) {
			t.Errorf("whole %s\nparts %s", a, b)
		}
	})
}

// Hours that were not observed, now or a week before, are not scored. Without a scale there is no
// MASE.
func TestScoreSkips(t *testing.T) {
	history := make([]int64, 4*forecast.Week)
	for h := range history {
		history[h] = 5000
	}
	f := must(t, &forecast.Question{From: began, History: history, Weeks: 1})
	known := append([]int64(nil), history...)
	known[len(known)-forecast.Week] = -1
	var s forecast.Score
	s.Add(known, f, []int64{9000, -1, 6000, 5000})
	if s.Hours != 2 || s.Scaled != 0 || !s.MASE.IsZero() || !s.At(900).Pinball.Equal(decimal.New(45, -2)) || s.Mass != 1 || !s.At(900).Covered.Equal(decimal.New(45, -2)) {
		t.Errorf("%+v", s)
	}
	if s.At(123) != nil {
		t.Error("a level that was not forecast is scored")
	}
}

// An idle pool that is forecast to be idle covers every quantile exactly, so that idle pools
// neither raise nor lower the coverage of others. If it is idle half of the time, the quantiles up
// to one half share the mass.
func TestCoverageOfPointMasses(t *testing.T) {
	idle := make([]int64, 8*forecast.Week)
	f := must(t, question(idle, 1))
	var s forecast.Score
	s.Add(idle, f, idle[:forecast.Week])
	for _, l := range forecast.Levels {
		if got, want := s.At(l).Covered, decimal.New(int64(l), -3); !got.Equal(want) {
			t.Errorf("an idle pool covers %s at %s", got, want)
		}
	}
	if s.Mass != forecast.Week {
		t.Errorf("%d hours at a point mass, want %d", s.Mass, forecast.Week)
	}
	// 0 at the levels 50, 100, 250 and 500, which is a mass of one half, and more above.
	for i, l := range forecast.Levels {
		for h := range f.Quantiles[i] {
			f.Quantiles[i][h] = max(0, int64(l)-500)
		}
	}
	actual := make([]int64, forecast.Week)
	for h := range actual {
		if h%2 == 1 {
			actual[h] = int64(h * 500 / forecast.Week) // evenly over the rest
		}
	}
	actual[1] = 1
	s = forecast.Score{}
	s.Add(idle, f, actual)
	for _, l := range forecast.Levels {
		if got, want := float(s.At(l).Covered), float64(l)/1000; math.Abs(got-want) > 0.01 {
			t.Errorf("a pool that is idle half of the time covers %f at %f", got, want)
		}
	}
}

// Demand after an origin does not affect its forecast, and ignored hours are not scored.
func TestAssess(t *testing.T) {
	history := make([]int64, 20*forecast.Week)
	d := rand.New(rand.NewPCG(3, 4))
	for h := range history {
		history[h] = 1000*int64(20+h%24) + d.Int64N(5000)
	}
	q := &forecast.Question{From: began, History: history, Weeks: 2}
	assess := func(q *forecast.Question) *forecast.Score {
		parts, _ := forecast.Assess([][]*forecast.Question{{q}}, 3, nil)
		return parts[0]
	}
	s := assess(q)
	if s.Forecasts != 3 || s.Hours != 6*forecast.Week || s.Scaled != 3 {
		t.Fatalf("%+v", s)
	}
	var want forecast.Score
	for _, weeks := range []int{14, 16, 18} {
		at := weeks * forecast.Week
		f := must(t, &forecast.Question{From: began, History: history[:at], Weeks: 2})
		want.Add(history[:at], f, history[at:])
	}
	a, _ := json.Marshal(s)
	if b, _ := json.Marshal(&want); string(a) != string(b) {
		t.Errorf("got  %s\nwant %s", a, b)
	}
	out := domain.Interval{From: began + 19*forecast.Week*domain.Hour, To: began + 20*forecast.Week*domain.Hour}
	q.Changes = []forecast.Change{{Span: out, Ignored: true}}
	if s := assess(q); s.Hours != 5*forecast.Week || s.Forecasts != 3 {
		t.Errorf("with a week ignored: %+v", s)
	}
	if s := assess(&forecast.Question{From: began, History: history[:5*forecast.Week], Weeks: 2}); s.Forecasts != 0 {
		t.Errorf("with too little history: %+v", s)
	}
}
