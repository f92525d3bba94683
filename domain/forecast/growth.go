package forecast

import (
	"fmt"
	"math"
	"math/bits"

	"quartermaster/domain"
)

// quarter is the length of a step of growth, in hours.
const quarter = 13 * Week

// Spread says how to draw scenarios from a forecast.
type Spread struct {
	Hours int // from the start of the forecast on; it may go beyond the forecast
	Count int
	// Growth multiplies the level every 13 weeks beyond the forecast, in millionths: 1,050,000 means
	// five percent more. 0 means that the level stays.
	Growth int64
	// Life is the assumed mean number of months until demand for a machine type ends because a
	// successor replaces it, at most MaxLife; 0: it never ends.
	Life int
}

// Bounds of a spread.
const (
	MaxScenarioHours = 100_000
	MaxScenarios     = 10_000
)

// Scenarios draws equally likely courses of demand, in thousandths of a unit by the hour. Each
// repeats the errors of past forecasts, relative to the level, in weekly blocks from random
// origins, at the level of its growth. Equal draws give equal scenarios, and the first of many are
// the same as few.
//
// Forecasts from the same hour and with the same horizon that get equal draws repeat the errors of
// the same past weeks in the same future weeks, as far as each has them. So correlated demand stays
// correlated in scenarios with equal numbers. This is the block bootstrap of a vector of series
// (Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of
// Statistics 17, 1989), with blocks drawn once for all series.
func (f *Forecast) Scenarios(s *Spread, draw func() uint64) ([][]int64, error) {
	switch {
	case s.Hours < 1 || s.Hours > MaxScenarioHours:
		return nil, fmt.Errorf("scenarios of %d hours: want 1 to %d", s.Hours, MaxScenarioHours)
	case s.Count < 1 || s.Count > MaxScenarios:
		return nil, fmt.Errorf("%d scenarios: want 1 to %d", s.Count, MaxScenarios)
	case s.Life < 0 || s.Life > MaxLife:
		return nil, fmt.Errorf("a mean life of %d months: want 0 to %d", s.Life, MaxLife)
	case s.Growth < 0 || s.Growth > 100_000_000:
		return nil, fmt.Errorf("growth to %d millionths a quarter: want 0 to 100000000", s.Growth)
	}
	step := 1.0
	if s.Growth > 0 {
		step = float64(s.Growth) / 1_000_000
	}
	shift := (&window{end: f.From}).shifts(f.changes, s.Hours)
	var survival []float64
	if s.Life > 0 {
		survival = f.age.survival(s.Life, 2*s.Hours/month+2)
	}
	out := make([][]int64, s.Count)
	for i := range out {
		out[i] = f.scenario(s.Hours, shift, draw, step)
		if survival != nil {
			clear(out[i][ends(survival, i, s.Hours):])
		}
	}
	return out, nil
}

func (f *Forecast) scenario(hours int, shift []float64, draw func() uint64, step float64) []int64 {
	out := make([]int64, hours)
	level, next := 1.0, 1.0 // at the start and the end of the quarter beyond the forecast
	var block path
	for h := range out {
		if h%Week == 0 {
			block = f.block(min(h, len(f.base)-Week), draw())
		}
		var base float64
		if h < len(f.base) {
			base = f.base[h]
		} else {
			if beyond := (h - len(f.base)) % quarter; beyond == 0 {
				level, next = next, min(float64(next*step), 1e9)
			}
			share := float64((h-len(f.base))%quarter+1) / quarter
			base = f.base[len(f.base)-Week+(h-len(f.base))%Week] * (level + float64((next-level)*share))
		}
		v := base
		if e := block[h%Week]; !math.IsNaN(e) {
			v += float64(e * max(base, f.floor))
		}
		out[h] = milli(v + shift[h])
	}
	return out
}

// block is a week of errors from a random origin, at the same distance from the origin if any
// origin has observed that far, else at the farthest observed distance. A draw names an origin by
// the number of weeks before the end, out of the number that a long history has. If there are no
// errors from that origin, further numbers are derived from the same draw. So each available origin
// is equally likely and every block takes one draw.
func (f *Forecast) block(from int, draw uint64) path {
	for ; from > 0; from -= Week {
		if f.seeing(from+Week) > 0 {
			break
		}
	}
	n := f.seeing(from + Week)
	if n == 0 {
		return make(path, Week)
	}
	most := uint64(origins + len(f.base)/Week - 1)
	for state := draw; ; draw = splitMix(&state) {
		weeks, _ := bits.Mul64(draw, most)
		if i := len(f.paths) - 1 - int(weeks); i >= 0 && i < n {
			return f.paths[i][from : from+Week]
		}
	}
}

// splitMix returns the next number of the generator SplitMix64 (Steele, Lea and Flood,
// "Fast splittable pseudorandom number generators", OOPSLA 2014).
func splitMix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// seeing is the number of origins that have observed that many hours. They are the oldest.
func (f *Forecast) seeing(hours int) int {
	n := 0
	for n < len(f.paths) && len(f.paths[n]) >= hours {
		n++
	}
	return n
}

// known keeps the changes for scenarios that go beyond the forecast.
func known(changes []Change, from domain.Instant) []Change {
	var out []Change
	for _, c := range changes {
		if !c.Ignored && (c.Span.To == 0 || c.Span.To > from) {
			out = append(out, c)
		}
	}
	return out
}
