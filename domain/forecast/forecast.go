// Package forecast says what demand of a pool will be, hour by hour, and how sure
// that is.
//
// A forecast is learned from a bounded window of hourly demand, so that its cost
// does not grow with history. Several candidates ([Candidates]) each forecast from
// past weeks what then happened (rolling origin); the one that erred least is
// taken. Its errors there, hour by hour and relative to the level, give the
// intervals (split conformal prediction by horizon) and, resampled in blocks of a
// week, scenarios. A year of origins covers what a year's seasons err by. A level
// that adapts to the coverage that was reached (Gibbs and Candès, 2021) was
// measured beside it, over weekly origins: it covered less, at a greater loss.
//
// Hourly models carry some thirteen weeks at most. What lies beyond is the weekly
// pattern at a level that the planner's scenarios of growth give ([Growth]).
//
// What always holds:
//
//   - Equal questions give equal answers, byte for byte, on every machine: no
//     product is fused with a sum, nothing but the four operations and square
//     roots is used on floating point, and answers are whole thousandths of a
//     unit. From there on everything is exact.
//   - A higher level is never below a lower one, nothing is below zero, and
//     demand in other units gives the same forecast in those units, but for
//     rounding.
//   - What is known is used: a change of level from a time on ([Change]), and
//     hours that are not to be learned from.
//   - Draws come from the caller.
package forecast

import (
	"fmt"
	"slices"

	"quartermaster/domain"
)

// Method is the version of this package's method. What is computed from a
// forecast names it.
const Method = "forecast/3"

// Week is the season of every model, in hours.
const Week = 168

// Bounds of a question.
const (
	MinWeeks   = 4  // of history
	MaxHorizon = 13 // weeks
	// MaxMilli bounds demand: a million million units, which floating point holds
	// exactly in thousandths.
	MaxMilli = 1_000_000_000_000_000

	// Stale is for how many hours before its end a history may say nothing: eight
	// weeks, as imports of demand come weekly or monthly. Longer ago, demand may have
	// stopped as well as gone on, and nothing can be said of what comes.
	Stale = 8 * Week

	learned = 39 // weeks before an origin that candidates learn from
	origins = 52 // weekly origins that errors are taken from

	// Window is the weeks of history that are looked at, at most.
	Window = learned + origins + MaxHorizon
)

// Question is what a forecast is made from.
type Question struct {
	// From is the start of the first hour of History. The forecast begins where
	// History ends.
	From domain.Instant
	// History is demand in thousandths of a unit by the hour; −1: not observed.
	// What is older than the window is not looked at.
	History []int64
	Changes []Change
	Weeks   int   // how far to look ahead
	Levels  []int // of the quantiles in per mille, ascending; none: [Levels]
}

// Change is what is known of demand besides what was observed.
type Change struct {
	Span domain.Interval `json:"span"` // To 0: for good
	// Milli is what demand is higher by meanwhile than without it: a launch, or, if
	// negative, what is shut down.
	Milli int64 `json:"milli"`
	// Ignored: what was observed meanwhile is not learned from, because it was an
	// outage or a fault of metering. Milli is then 0.
	Ignored bool `json:"ignored"`
	// Why says where it is known from, for whoever reads the answer.
	Why string `json:"why,omitempty"`
}

// Levels are the quantiles of a question that names none, in per mille.
var Levels = []int{50, 100, 250, 500, 750, 900, 950, 990}

// Forecast is demand to come, in thousandths of a unit by the hour.
type Forecast struct {
	From  domain.Instant `json:"from"`
	Point []int64        `json:"point"` // of the candidate that was taken
	// Quantiles are by level and hour.
	Levels    []int     `json:"levels"`
	Quantiles [][]int64 `json:"quantiles"`
	// Candidate is the one taken, and Tried what each erred by.
	Candidate string  `json:"candidate"`
	Tried     []Trial `json:"tried"`
	// Window is the history that was looked at, Missing the hours of it that were
	// not observed or are ignored, Origins how many past weeks errors were taken
	// from. With less than two, or for weeks ahead that none of them had seen, the
	// errors of nearer weeks are scaled up.
	Window  domain.Interval `json:"window"`
	Missing int             `json:"missing_hours"`
	Origins int             `json:"origins"`
	// ObservedTo is the end of the last hour that was observed, and Gaps are the longest
	// stretches of missing hours, ten at most, by start. A missing hour is taken from the
	// same hour of the nearest week, and never for one without demand.
	ObservedTo domain.Instant    `json:"observed_to"`
	Gaps       []domain.Interval `json:"gaps"` // the longest, ten at most

	paths   []path    // of past errors, for scenarios
	base    []float64 // the point without changes
	floor   float64
	shift   []float64 // what changes add, by hour of the forecast
	changes []Change
	steps   []float64 // by what the level changed within a quarter, see quarters
}

// Trial is what a candidate erred by: the mean absolute error over the origins, in
// thousandths of a unit.
type Trial struct {
	Candidate string `json:"candidate"`
	Error     int64  `json:"mean_absolute_error_milli"`
}

// At returns the quantile of a level, nil when the forecast has none of it.
func (f *Forecast) At(level int) []int64 {
	if i := slices.Index(f.Levels, level); i >= 0 {
		return f.Quantiles[i]
	}
	return nil
}

// Make makes a forecast. Its errors say what is wrong with the question.
func Make(q *Question) (*Forecast, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	w, err := newWindow(q)
	if err != nil {
		return nil, err
	}
	hours := q.Weeks * Week
	f := &Forecast{
		From: w.end, Levels: slices.Clone(q.Levels), Missing: w.missing, ObservedTo: w.observedTo, Gaps: w.gaps,
		Window: domain.Interval{From: w.end - domain.Instant(len(w.value))*domain.Hour, To: w.end},
	}
	if len(f.Levels) == 0 {
		f.Levels = slices.Clone(Levels)
	}
	past := w.try(q.Weeks)
	best, errors := w.choose(past)
	f.Candidate = names[best]
	for c, e := range errors {
		f.Tried = append(f.Tried, Trial{names[c], milli(e)})
	}
	f.base = candidates(w.learn(len(w.value)), hours)[best]
	f.floor = w.floor()
	f.shift, f.changes = w.shifts(q.Changes, hours), known(q.Changes, w.end)
	f.Point = make([]int64, hours)
	for h := range f.Point {
		f.Point[h] = milli(f.base[h] + f.shift[h])
	}
	f.paths = w.errors(past, best)
	f.Origins = len(f.paths)
	f.quantiles(q.Weeks)
	f.steps = w.quarters()
	return f, nil
}

func (q *Question) check() error {
	switch {
	case q.Weeks < 1 || q.Weeks > MaxHorizon:
		return fmt.Errorf("forecast %d weeks ahead: 1 to %d can be; what is beyond is growth, which scenarios say", q.Weeks, MaxHorizon)
	case q.From != q.From.HourStart():
		return fmt.Errorf("history from %s: it begins with a whole hour", q.From)
	}
	for i, l := range q.Levels {
		if l < 1 || l > 999 || i > 0 && l <= q.Levels[i-1] {
			return fmt.Errorf("levels %v: want per mille from 1 to 999, ascending", q.Levels)
		}
	}
	for i, v := range q.History {
		if v < -1 || v > MaxMilli {
			return fmt.Errorf("demand of %d thousandths at %s: want 0 to %d, or -1 for an hour that was not observed", v, q.From+domain.Instant(i)*domain.Hour, int64(MaxMilli))
		}
	}
	for _, c := range q.Changes {
		switch {
		case c.Span.To != 0 && c.Span.To <= c.Span.From:
			return fmt.Errorf("a change from %s to %s: it ends before it begins", c.Span.From, c.Span.To)
		case c.Milli < -MaxMilli || c.Milli > MaxMilli:
			return fmt.Errorf("a change of %d thousandths from %s: want at most %d", c.Milli, c.Span.From, int64(MaxMilli))
		case c.Ignored && c.Milli != 0:
			return fmt.Errorf("a change from %s is to be ignored and by %d thousandths at once", c.Span.From, c.Milli)
		}
	}
	return nil
}

// milli rounds to whole thousandths, not below 0 and not beyond what demand can be.
func milli(v float64) int64 {
	switch {
	case !(v > 0):
		return 0
	case v >= MaxMilli:
		return MaxMilli
	}
	return int64(v + 0.5)
}
