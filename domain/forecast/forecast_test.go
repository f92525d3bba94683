package forecast_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
)

// wave is demand with a daily and a weekly pattern, around a level, with noise.
func wave(weeks int, level int64, noise int, seed uint64) []int64 {
	d := rand.New(rand.NewPCG(seed, 1))
	out := make([]int64, weeks*forecast.Week)
	for h := range out {
		v := level
		if h%24 >= 8 && h%24 < 18 && h%forecast.Week < 120 {
			v += level / 2
		}
		if noise > 0 {
			v += int64(d.IntN(2*noise+1) - noise)
		}
		out[h] = max(0, v)
	}
	return out
}

// fataler is the common interface of a test and a property.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func must(t fataler, q *forecast.Question) *forecast.Forecast {
	t.Helper()
	f, err := forecast.Make(q)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func question(history []int64, weeks int) *forecast.Question {
	return &forecast.Question{From: began, History: history, Weeks: weeks}
}

// An exactly repeating history is forecast exactly, without spread, and zero stays zero.
func TestExactHistory(t *testing.T) {
	for name, level := range map[string]int64{"zeros": 0, "pattern": 40_000} {
		history := wave(12, level, 0, 1)
		f := must(t, question(history, 4))
		for h, v := range f.Point {
			if want := history[h%forecast.Week]; v != want || f.At(50)[h] != want || f.At(990)[h] != want {
				t.Fatalf("%s: hour %d is forecast as %d (%d to %d), want %d", name, h, v, f.At(50)[h], f.At(990)[h], want)
			}
		}
	}
}

// Quantiles are ordered and not negative, whatever was observed.
func TestLevelsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := wave(rapid.IntRange(6, 9).Draw(t, "weeks"), rapid.Int64Range(0, 50_000).Draw(t, "level"), rapid.IntRange(0, 80_000).Draw(t, "noise"), rapid.Uint64().Draw(t, "seed"))
		for range rapid.IntRange(0, 5).Draw(t, "gaps") {
			at := rapid.IntRange(0, len(history)-1).Draw(t, "at")
			for h := at; h < min(len(history), at+rapid.IntRange(1, 60).Draw(t, "long")); h++ {
				history[h] = -1
			}
		}
		f, err := forecast.Make(question(history, rapid.IntRange(1, 13).Draw(t, "ahead")))
		if err != nil {
			t.Fatal(err)
		}
		for h := range f.Point {
			last := int64(0)
			for i := range f.Levels {
				if f.Quantiles[i][h] < last {
					t.Fatalf("hour %d: level %d is %d, below %d", h, f.Levels[i], f.Quantiles[i][h], last)
				}
				last = f.Quantiles[i][h]
			}
		}
	})
}

// Demand in other units gives the same forecast in those units.
func TestScales(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		history := wave(8, 20_000, 9_000, rapid.Uint64().Draw(t, "seed"))
		factor := int64(1) << rapid.IntRange(1, 10).Draw(t, "factor")
		large := slices.Clone(history)
		for i := range large {
			large[i] *= factor
		}
		a, err := forecast.Make(question(history, 2))
		if err != nil {
			t.Fatal(err)
		}
		b, err := forecast.Make(question(large, 2))
		if err != nil {
			t.Fatal(err)
		}
		if a.Candidate != b.Candidate {
			t.Fatalf("%q and %q", a.Candidate, b.Candidate)
		}
		for i := range a.Quantiles {
			for h, v := range a.Quantiles[i] {
				if d := b.Quantiles[i][h] - factor*v; d > factor || d < -factor {
					t.Fatalf("level %d hour %d: %d, and %d times as large %d", a.Levels[i], h, v, factor, b.Quantiles[i][h])
				}
			}
		}
	})
}

// If errors are exchangeable, the coverage of a quantile equals its level.
func TestCoversWhatItSays(t *testing.T) {
	covered, n := map[int]float64{}, 0.0
	for seed := range uint64(12) {
		all := wave(40, 100_000, 30_000, seed)
		cut := len(all) - 2*forecast.Week
		f := must(t, question(all[:cut], 2))
		n++
		for _, l := range f.Levels {
			covered[l] += forecast.Coverage(floats(all[cut:]), floats(f.At(l)))
		}
	}
	for _, l := range forecast.Levels {
		got, want := covered[l]/n, float64(l)/1000
		if got < want-0.025 || got > want+0.025 {
			t.Errorf("the %.1f%% quantile covers %.1f%%", want*100, got*100)
		}
	}
}

// History before the window has no effect, so that cost does not grow.
func TestBoundedWindow(t *testing.T) {
	long := wave(140, 50_000, 9_000, 3)
	other := slices.Clone(long)
	for h := range 30 * forecast.Week {
		other[h] = 7_000_000
	}
	a, b := must(t, question(long, 4)), must(t, question(other, 4))
	if one, two := text(t, a), text(t, b); one != two {
		t.Error("what happened two years ago changes the forecast")
	}
	if hours := (a.Window.To - a.Window.From) / domain.Hour; hours > forecast.Window*forecast.Week {
		t.Errorf("the window is %d hours", hours)
	}
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A known launch adds its demand from its hour on; one that has already happened is no surprise.
func TestKnownChanges(t *testing.T) {
	history := wave(12, 40_000, 4_000, 5)
	end := began + domain.Instant(len(history))*domain.Hour
	plain := must(t, question(history, 2))

	q := question(history, 2)
	q.Changes = []forecast.Change{{Span: domain.Interval{From: end + 100*domain.Hour}, Milli: 16_000}, {Span: domain.Interval{From: end + 10*domain.Hour, To: end + 20*domain.Hour}, Milli: -5_000}}
	ahead := must(t, q)
	for h := range plain.Point {
		want := plain.At(900)[h]
		if h >= 100 {
			want += 16_000
		}
		if h >= 10 && h < 20 {
			want -= 5_000
		}
		if got := ahead.At(900)[h]; got < want-1 || got > want+1 {
			t.Fatalf("hour %d: %d with what is known, want %d", h, got, want)
		}
	}

	happened := slices.Clone(history)
	at := len(happened) - 60
	for h := at; h < len(happened); h++ {
		happened[h] += 16_000
	}
	q = question(happened, 2)
	q.Changes = []forecast.Change{{Span: domain.Interval{From: began + domain.Instant(at)*domain.Hour}, Milli: 16_000}}
	past := must(t, q)
	for h := range plain.Point {
		if got, want := past.Point[h], plain.Point[h]+16_000; got < want-1 || got > want+1 {
			t.Fatalf("hour %d: %d after a launch that was known, want %d", h, got, want)
		}
	}
}

// Hours without observations are reported, and are not hours of zero demand. A history that ends
// three weeks early continues as before. One that ends more than eight weeks early is not forecast,
// because it is unknown whether demand continues.
func TestGapsAreNoZeros(t *testing.T) {
	history := wave(20, 40_000, 0, 7)
	unknown := func(from, to int) []int64 {
		h := slices.Clone(history)
		for i := from; i < to; i++ {
			h[i] = -1
		}
		return h
	}
	n := len(history)
	span := func(from, to int) domain.Interval {
		return domain.Interval{From: began + domain.Instant(from)*domain.Hour, To: began + domain.Instant(to)*domain.Hour}
	}
	lagging := unknown(n-3*forecast.Week, n)
	lagging[100] = -1
	f := must(t, question(lagging, 1))
	if want := []domain.Interval{span(100, 101), span(n-3*forecast.Week, n)}; !slices.Equal(f.Gaps, want) || f.ObservedTo != want[1].From || f.Missing != 3*forecast.Week+1 {
		t.Errorf("gaps %v, observed to %s, %d missing; want %v", f.Gaps, f.ObservedTo, f.Missing, want)
	}
	if !slices.Equal(f.Point, history[:forecast.Week]) {
		t.Errorf("what lags is forecast as %v", f.Point[:24])
	}
	must(t, question(unknown(n-forecast.Stale, n), 1)) // eight weeks are allowed
	_, err := forecast.Make(question(unknown(n-forecast.Stale-1, n), 1))
	if err == nil || !strings.Contains(err.Error(), "last observed at "+span(0, n-forecast.Stale-1).To.String()+", more than 8 weeks before") {
		t.Errorf("ended: %v", err)
	}
}

// A known outage is treated like hours without observations.
func TestKnownOutage(t *testing.T) {
	history := wave(12, 40_000, 4_000, 6)
	broken, missing := slices.Clone(history), slices.Clone(history)
	from := len(history) - 50
	for h := from; h < len(history)-20; h++ {
		broken[h], missing[h] = 0, -1
	}
	q := question(broken, 2)
	q.Changes = []forecast.Change{{Span: domain.Interval{From: began + domain.Instant(from)*domain.Hour, To: began + domain.Instant(len(history)-20)*domain.Hour}, Ignored: true}}
	a, b := must(t, q), must(t, question(missing, 2))
	if text(t, a) != text(t, b) {
		t.Error("a known outage is learned from")
	}
	if a.Missing != 30 {
		t.Errorf("%d hours are missing, want 30", a.Missing)
	}
	if text(t, must(t, question(broken, 2))) == text(t, b) {
		t.Error("an outage that nobody knows of is not learned from")
	}
}

func TestRefuses(t *testing.T) {
	good := wave(8, 1000, 0, 1)
	with := func(change func(q *forecast.Question)) *forecast.Question {
		q := question(slices.Clone(good), 2)
		change(q)
		return q
	}
	for want, q := range map[string]*forecast.Question{
		"needs 4 weeks of history":            question(good[:500], 2),
		"none of 1344 hours":                  with(func(q *forecast.Question) { fill(q.History, -1) }),
		"needs two weeks of them":             with(func(q *forecast.Question) { fill(q.History[10:], -1) }),
		"demand of -5 thousandths":            with(func(q *forecast.Question) { q.History[7] = -5 }),
		"demand of 9000000000000000":          with(func(q *forecast.Question) { q.History[7] = 9e15 }),
		"forecast 0 weeks":                    with(func(q *forecast.Question) { q.Weeks = 0 }),
		"forecast 14 weeks":                   with(func(q *forecast.Question) { q.Weeks = 14 }),
		"levels [900 100]":                    with(func(q *forecast.Question) { q.Levels = []int{900, 100} }),
		"levels [1000]":                       with(func(q *forecast.Question) { q.Levels = []int{1000} }),
		"it begins with a whole hour":         with(func(q *forecast.Question) { q.From++ }),
		"it ends before it begins":            with(func(q *forecast.Question) { q.Changes = []forecast.Change{{Span: domain.Interval{From: 5, To: 5}}} }),
		"is to be ignored and by 1 thousandt": with(func(q *forecast.Question) { q.Changes = []forecast.Change{{Milli: 1, Ignored: true}} }),
		"a change of 9000000000000000":        with(func(q *forecast.Question) { q.Changes = []forecast.Change{{Milli: 9e15}} }),
	} {
		if _, err := forecast.Make(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func fill(v []int64, with int64) {
	for i := range v {
		v[i] = with
	}
}

func pcg(seed uint64) func() uint64 { return rand.NewPCG(seed, 7).Uint64 }

// Equal draws give equal scenarios, the first of many are the same as few, and they spread as the
// quantiles predict.
func TestScenarios(t *testing.T) {
	f := must(t, question(wave(60, 100_000, 30_000, 8), 4))
	few, err := f.Scenarios(&forecast.Spread{Hours: 4 * forecast.Week, Count: 20}, pcg(1))
	if err != nil {
		t.Fatal(err)
	}
	many, err := f.Scenarios(&forecast.Spread{Hours: 4 * forecast.Week, Count: 200}, pcg(1))
	if err != nil {
		t.Fatal(err)
	}
	if text(t, many[:20]) != text(t, few) {
		t.Error("the first of many scenarios are not the same as few")
	}
	below := 0
	for _, s := range many {
		for h, v := range s {
			if v <= f.At(900)[h] {
				below++
			}
		}
	}
	if share := float64(below) / float64(200*4*forecast.Week); share < 0.87 || share > 0.93 {
		t.Errorf("%.3f of what is drawn is within the 90%% quantile", share)
	}
}

// Forecasts with equal draws repeat the errors of the same weeks: correlated series stay correlated
// in scenarios. The younger series does so where it has those weeks, and each of its weeks is
// equally likely.
func TestScenariosMoveTogether(t *testing.T) {
	old := wave(104, 100_000, 30_000, 8)
	twice := slices.Clone(old)
	for h := range twice {
		twice[h] *= 2
	}
	young := slices.Clone(old)
	fill(young[:80*forecast.Week], -1)
	draw := func(history []int64) [][]int64 {
		t.Helper()
		out, err := must(t, question(history, 2)).Scenarios(&forecast.Spread{Hours: 9 * forecast.Week, Count: 300}, pcg(1))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	a, b, c := draw(old), draw(twice), draw(young)
	for i := range a {
		for h := range a[i] {
			if d := b[i][h] - 2*a[i][h]; d < -2 || d > 2 {
				t.Fatalf("scenario %d, hour %d: %d of twice the demand, %d of the demand", i, h, b[i][h], a[i][h])
			}
		}
	}
	// The young series has 22 of the 53 weeks that errors are drawn from. So often, and
	// occasionally by chance, it moves like the old one.
	same, blocks := 0, 0
	for i := range a {
		for h := 0; h < len(a[i]); h += forecast.Week {
			blocks++
			if together(a[i][h:h+forecast.Week], c[i][h:h+forecast.Week]) {
				same++
			}
		}
	}
	if share := float64(same) / float64(blocks); share < 0.35 || share > 0.55 {
		t.Errorf("in %.2f of the weeks the young series moves as the old one, want about 22 of 53", share)
	}
}

// together reports whether the deviations of two series from their means are highly correlated.
func together(a, b []int64) bool {
	var ma, mb, ab, aa, bb float64
	for h := range a {
		ma, mb = ma+float64(a[h])/float64(len(a)), mb+float64(b[h])/float64(len(b))
	}
	for h := range a {
		x, y := float64(a[h])-ma, float64(b[h])-mb
		ab, aa, bb = ab+x*y, aa+x*x, bb+y*y
	}
	return ab > 0.93*math.Sqrt(aa*bb)
}

// Beyond the forecast the level follows the planner's growth, plus known changes.
func TestGrowth(t *testing.T) {
	f := must(t, question(wave(30, 0, 0, 1), 4))
	if len(f.Point) != 4*forecast.Week {
		t.Fatal("not four weeks")
	}
	flat := make([]int64, 30*forecast.Week)
	fill(flat, 100_000)
	q := question(flat, 4)
	end := began + domain.Instant(len(flat))*domain.Hour
	late := 4*forecast.Week + 26*forecast.Week
	q.Changes = []forecast.Change{{Span: domain.Interval{From: end + domain.Instant(late)*domain.Hour}, Milli: 7_000}}
	f = must(t, q)
	s, err := f.Scenarios(&forecast.Spread{Hours: late + 10, Count: 50, Growth: 1_100_000}, pcg(3))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range s {
		before, after := path[late-1], path[late]
		if before != 121_000 || path[4*forecast.Week+13*forecast.Week-1] != 110_000 {
			t.Fatalf("after one and two quarters the level is %d and %d", path[17*forecast.Week-1], before)
		}
		if d := after - before; d < 7_000 || d > 7_100 {
			t.Fatalf("the launch adds %d", d)
		}
	}
	for _, bad := range []forecast.Spread{{Hours: 0, Count: 1}, {Hours: 1, Count: 0}, {Hours: 1, Count: 1, Growth: -1}, {Hours: 1, Count: 1, Life: -1}, {Hours: 1 << 30, Count: 1}} {
		if _, err := f.Scenarios(&bad, pcg(1)); err == nil {
			t.Errorf("%+v was drawn", bad)
		}
	}
}

// The bytes of a forecast and of its scenarios are the same on every machine and in every build.
func TestGolden(t *testing.T) {
	f := must(t, question(wave(30, 80_000, 20_000, 9), 3))
	s, err := f.Scenarios(&forecast.Spread{Hours: 40 * forecast.Week, Count: 3}, pcg(4))
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(f.Candidate, f.Point[100:103], f.At(50)[100:103], f.At(990)[500:503], s[0][5000:5003], s[2][6000:6003])
	const want = "mean of robust profile and smoothing[81524 73477 70384] [62635 56453 54076] [102600 110919 140699] [97911 72001 86838] [73275 86563 58362]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func FuzzMake(f *testing.F) {
	f.Add([]byte("0123456789"), 2, int64(1000))
	f.Fuzz(func(t *testing.T, raw []byte, weeks int, unit int64) {
		if len(raw) == 0 {
			return
		}
		history := make([]int64, 5*forecast.Week)
		for h := range history {
			history[h] = int64(raw[h%len(raw)]) * unit
			if raw[h%len(raw)] == 255 {
				history[h] = -1
			}
		}
		q := question(history, weeks)
		q.Changes = []forecast.Change{{Span: domain.Interval{From: began + domain.Instant(unit%1_000_000)*domain.Hour}, Milli: unit}}
		made, err := forecast.Make(q)
		if err != nil {
			return
		}
		for i := range made.Quantiles {
			for h, v := range made.Quantiles[i] {
				if v < 0 || v > forecast.MaxMilli || i > 0 && v < made.Quantiles[i-1][h] {
					t.Fatalf("level %d hour %d is %d", made.Levels[i], h, v)
				}
			}
		}
		if _, err := made.Scenarios(&forecast.Spread{Hours: 3000, Count: 2}, pcg(1)); err != nil {
			t.Fatal(err)
		}
	})
}
