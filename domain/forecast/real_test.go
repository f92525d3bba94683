package forecast_test

import (
	"testing"

	"quartermaster/domain/forecast"
	"quartermaster/domain/long"
	"quartermaster/simulations/public"
)

// shavedice reads three years of hourly demand of all machines of each region, in
// thousandths.
func shavedice(t testing.TB) map[string][]int64 {
	t.Helper()
	out := map[string][]int64{}
	for _, s := range public.Together(public.Shavedice(t)) {
		out[s.Region] = s.Milli()
	}
	return out
}

var began = public.ShavediceFrom

func floats(v []int64) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

// score sums up the accuracy of four-week forecasts from many origins.
type score struct {
	origins            int
	mase, naiveMASE    float64
	below10, below90   float64
	below95, below99   float64
	pinball90, naive90 float64
	pinball95, naive95 float64
}

// rate makes four-week forecasts at regular intervals, with what was known at the time.
func rate(t testing.TB, series []int64, every int) score {
	const ahead = 4
	var s score
	for at := 16 * forecast.Week; at+ahead*forecast.Week <= len(series); at += every {
		f := must(t, &forecast.Question{From: began, History: series[:at], Weeks: ahead})
		past, actual := floats(series[:at]), floats(series[at:at+ahead*forecast.Week])
		naive := make([]float64, len(actual))
		for h := range naive {
			naive[h] = past[len(past)-forecast.Week+h%forecast.Week]
		}
		s.origins++
		s.mase += forecast.MASE(past, forecast.Week, actual, floats(f.Point))
		s.naiveMASE += forecast.MASE(past, forecast.Week, actual, naive)
		s.below10 += forecast.Coverage(actual, floats(f.At(100)))
		s.below90 += forecast.Coverage(actual, floats(f.At(900)))
		s.below95 += forecast.Coverage(actual, floats(f.At(950)))
		s.below99 += forecast.Coverage(actual, floats(f.At(990)))
		s.pinball90 += forecast.Pinball(0.9, actual, floats(f.At(900)))
		s.naive90 += forecast.Pinball(0.9, actual, naive)
		s.pinball95 += forecast.Pinball(0.95, actual, floats(f.At(950)))
		s.naive95 += forecast.Pinball(0.95, actual, naive)
	}
	n := float64(s.origins)
	for _, v := range []*float64{
		&s.mase, &s.naiveMASE, &s.below10, &s.below90, &s.below95, &s.below99,
		&s.pinball90, &s.naive90, &s.pinball95, &s.naive95,
	} {
		*v /= n
	}
	return s
}

// Four weeks ahead, in both regions: better than the seasonal naive forecast, and the upper 90%
// quantile covers 88 to 94% of the hours. CI_LONG=1 takes an origin every 25 hours, 917 a region,
// instead of every second week.
func TestShavedice(t *testing.T) {
	data := shavedice(t)
	every := 2 * forecast.Week
	if long.Run() {
		every = 25
	}
	for _, region := range []string{"1", "2"} {
		s := rate(t, data[region], every)
		t.Logf("region %s, all machine types (CPU machines), %d origins: MASE %.3f, seasonal naive %.3f; pinball loss in machines at 90%% %.2f, naive %.2f, at 95%% %.2f, naive %.2f; below the quantile of 10%% %.1f%%, 90%% %.1f%%, 95%% %.1f%%, 99%% %.1f%%",
			region, s.origins, s.mase, s.naiveMASE, s.pinball90/1000, s.naive90/1000, s.pinball95/1000, s.naive95/1000, 100*s.below10, 100*s.below90, 100*s.below95, 100*s.below99)
		if s.mase >= s.naiveMASE {
			t.Errorf("region %s: MASE %.3f, seasonal naive %.3f", region, s.mase, s.naiveMASE)
		}
		if s.below90 < 0.88 || s.below90 > 0.94 {
			t.Errorf("region %s: the 90%% quantile covers %.1f%%", region, 100*s.below90)
		}
		if s.pinball90 >= s.naive90 {
			t.Errorf("region %s: pinball loss %.2f, seasonal naive %.2f", region, s.pinball90, s.naive90)
		}
	}
}

func BenchmarkForecast(b *testing.B) {
	data := shavedice(b)["1"]
	for b.Loop() {
		must(b, &forecast.Question{From: began, History: data, Weeks: 4})
	}
}

func BenchmarkScenarios(b *testing.B) {
	f := must(b, &forecast.Question{From: began, History: shavedice(b)["1"], Weeks: 13})
	for b.Loop() {
		if _, err := f.Scenarios(&forecast.Spread{Hours: 26_280, Count: 20}, pcg(1)); err != nil {
			b.Fatal(err)
		}
	}
}
