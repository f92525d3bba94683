package forecast

import (
	"fmt"
	"math"
	"math/bits"

	"quartermaster/domain"
)

// quarter is the length of a step of growth, in hours.
const quarter = 13 * Week

// Growth is a possible development of the level beyond the horizon of a forecast.
type Growth struct {
	Weight int // relative probability, at least 1
	// Quarterly multiplies the level every 13 weeks, in millionths: 1,050,000 means five percent
	// more.
	Quarterly int64
}

// Spread says how to draw scenarios from a forecast.
type Spread struct {
	Hours int // from the start of the forecast on; it may go beyond the forecast
	Count int
	// Growth is the development of the level beyond the forecast. Without it the level follows a
	// random walk without drift: each quarter it changes by one of the steps within the window, by
	// the inverse of one, or not at all ([RandomWalk]). That is an assumption, and answers should
	// show it.
	Growth []Growth
}

// RandomWalk states the assumption about the level if no growth is given.
const RandomWalk = "the level walks without a direction: each quarter by a step that the last weeks saw, " +
	"by the inverse of one, or not at all"

// Bounds of a spread.
const (
	MaxScenarioHours = 100_000
	MaxScenarios     = 10_000
)

// Bounds of growth steps, so that a machine type that began within the window does not keep growing
// at the rate of its first weeks.
const (
	leastStep = 0.5
	mostStep  = 1.5
)

// quarters returns the ratio of the level of four weeks to that of a quarter before, for every week
// of the window that has both.
func (w *window) quarters() []float64 {
	const span = 4 * Week
	var out []float64
	floor := w.floor() / 2
	for at := len(w.value); at-quarter-span >= 0; at -= Week {
		before, after := mean(w.value[at-quarter-span:at-quarter]), mean(w.value[at-span:at])
		if before >= floor {
			out = append(out, min(max(after/before, leastStep), mostStep))
		}
	}
	return out
}

// Scenarios draws equally likely courses of demand, in thousandths of a unit by the hour. Each
// repeats the errors of past forecasts, relative to the level, in weekly blocks from random
// origins, at the level of its growth. Equal draws give equal scenarios, and the first of many are
// the same as few.
//
// Forecasts from the same hour and with the same horizon that get equal draws repeat the errors of
// the same past weeks in the same future weeks, as far as each has them. So correlated demand stays
// correlated in scenarios with equal numbers. This is the block bootstrap of a vector of series
// (Künsch, "The jackknife and the bootstrap for general stationary observations", Annals of
// Statistics 17, 1989), with blocks drawn once for all series. Given growth is shared in the same
// way; without it, each series walks by its own steps.
func (f *Forecast) Scenarios(s *Spread, draw func() uint64) ([][]int64, error) {
	switch {
	case s.Hours < 1 || s.Hours > MaxScenarioHours:
		return nil, fmt.Errorf("scenarios of %d hours: want 1 to %d", s.Hours, MaxScenarioHours)
	case s.Count < 1 || s.Count > MaxScenarios:
		return nil, fmt.Errorf("%d scenarios: want 1 to %d", s.Count, MaxScenarios)
	}
	total := 0
	for _, g := range s.Growth {
		if g.Weight < 1 || g.Weight > MaxScenarios || g.Quarterly < 0 || g.Quarterly > 100_000_000 {
			return nil, fmt.Errorf(
				"growth to %d millionths a quarter with weight %d: want 0 to 100000000, and a weight from 1 to %d",
				g.Quarterly, g.Weight, MaxScenarios)
		}
		total += g.Weight
	}
	below := func(n int) int { // uniform from 0 to n−1, up to a bias of n/2⁶⁴
		hi, _ := bits.Mul64(draw(), uint64(n))
		return int(hi)
	}
	shift := (&window{end: f.From}).shifts(f.changes, s.Hours)
	out := make([][]int64, s.Count)
	for i := range out {
		step := func() float64 {
			switch k := below(2*len(f.steps) + 1); {
			case k < len(f.steps):
				return f.steps[k]
			case k < 2*len(f.steps):
				return 1 / f.steps[k-len(f.steps)]
			}
			return 1
		}
		if total > 0 {
			at := below(total)
			for _, g := range s.Growth {
				if at -= g.Weight; at < 0 {
					step = func() float64 { return float64(g.Quarterly) / 1_000_000 }
					break
				}
			}
		}
		out[i] = f.scenario(s.Hours, shift, draw, step)
	}
	return out, nil
}

func (f *Forecast) scenario(hours int, shift []float64, draw func() uint64, step func() float64) []int64 {
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
				level, next = next, min(next*step(), 1e9)
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
