package forecast

import (
	"fmt"
	"math"
	"math/bits"

	"quartermaster/domain"
)

// quarter is the length of a step of growth, in hours.
const quarter = 13 * Week

// Growth is a way in which the level may go beyond the horizon of a forecast.
type Growth struct {
	Weight int // how likely it is beside the others, at least 1
	// Quarterly multiplies the level every 13 weeks, in millionths: 1,050,000 is
	// five percent more.
	Quarterly int64
}

// Spread is how scenarios are drawn from a forecast.
type Spread struct {
	Hours int // from the start of the forecast on; it may go beyond the forecast
	Count int
	// Growth is how the level goes on beyond the forecast. None: it walks at random
	// without a direction, each quarter by one of the steps that the window saw, by
	// the inverse of one, or not at all ([RandomWalk]). That is an assumption, and
	// to be shown as one.
	Growth []Growth
}

// RandomWalk says what is assumed of the level where no growth is stated.
const RandomWalk = "the level walks without a direction: each quarter by a step that the last weeks saw, by the inverse of one, or not at all"

// Bounds of a spread.
const (
	MaxScenarioHours = 100_000
	MaxScenarios     = 10_000
)

// steps of growth are kept within these, so that a machine type that began within
// the window does not grow for ever at the rate of its first weeks.
const (
	leastStep = 0.5
	mostStep  = 1.5
)

// quarters returns what the level of four weeks was after a quarter relative to
// before it, for every week of the window that has both.
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

// Scenarios draws ways in which demand may go, in thousandths of a unit by the
// hour, all equally likely. Each repeats the errors of past forecasts, relative to
// the level, week by week in blocks from random origins, at the level of its
// growth. Equal draws give equal scenarios, and the first of many are the same as
// few.
//
// Forecasts from the same hour, as far ahead, that are given equal draws repeat the
// errors of the same weeks of the past in the same weeks to come, as far as each has
// them, so that what moved together does so in scenarios of equal number. It is the
// block bootstrap of a vector of series (Künsch, "The jackknife and the bootstrap for
// general stationary observations", Annals of Statistics 17, 1989), of which the
// blocks are drawn once for all. Stated growth is likewise; where none is stated each
// walks by its own steps.
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
			return nil, fmt.Errorf("growth to %d millionths a quarter with weight %d: want 0 to 100000000, and a weight from 1 to %d", g.Quarterly, g.Weight, MaxScenarios)
		}
		total += g.Weight
	}
	below := func(n int) int { // each number from 0 to n−1 equally likely, to n/2⁶⁴
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

// block is a week of errors from a random origin, at the same distance from it if
// any origin has seen that far, else at the farthest that one has. A draw names an
// origin by how many weeks it lies before the end, of as many as a long history has;
// where there are no errors from that one it is drawn on, from the same draw, so that
// each that there is is equally likely and every block takes one draw.
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

// seeing is how many origins have seen so many hours: the oldest ones.
func (f *Forecast) seeing(hours int) int {
	n := 0
	for n < len(f.paths) && len(f.paths[n]) >= hours {
		n++
	}
	return n
}

// known keeps changes for scenarios that go beyond the forecast.
func known(changes []Change, from domain.Instant) []Change {
	var out []Change
	for _, c := range changes {
		if !c.Ignored && (c.Span.To == 0 || c.Span.To > from) {
			out = append(out, c)
		}
	}
	return out
}
