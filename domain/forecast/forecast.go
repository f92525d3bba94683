// Package forecast predicts the hourly demand of a pool, with prediction intervals.
//
// A forecast is learned from a bounded window of hourly demand, so that its cost does
// not grow with history. Several candidates ([Candidates]) forecast past weeks from
// rolling origins; the one with the least error is chosen. Its errors there, hour by
// hour and relative to the level, give the intervals (split conformal prediction by
// horizon) and, resampled in blocks of a week, the scenarios. A year of origins covers
// the errors of all seasons. Adapting the level to the observed coverage (Gibbs and
// Candès, 2021) was measured as an alternative, over weekly origins: it had less
// coverage and a greater loss.
//
// Pools that are parts of a whole, such as the machine types of a region, are forecast with the whole
// and add up to its forecast ([Together]). Forecasts of any pools are added up by [Sum].
//
// Hourly models are useful for about thirteen weeks at most. Beyond that, the forecast
// is the weekly pattern at a level that the planner's growth gives ([Spread]), until a
// successor of the machine type replaces it ([Spread.Life]).
//
// What always holds:
//
//   - Equal questions give equal answers, byte for byte, on every machine: products
//     are never fused with sums, floating-point code uses only the four operations and
//     square roots, and answers are whole thousandths of a unit. All later steps are
//     exact.
//   - A higher level is never below a lower one, nothing is below zero, and demand in
//     other units gives the same forecast in those units, except for rounding.
//   - Known changes are used: changes of the level ([Change]), and hours to ignore in
//     learning.
//   - Random draws come from the caller.
package forecast

import (
	"fmt"
	"slices"

	"quartermaster/domain"
)

// Method is the version of this package's method. Results computed from a forecast state it.
const Method = "forecast/6"

// Week is the season of every model, in hours.
const Week = 168

// Bounds of a question.
const (
	MinWeeks   = 4  // of history
	MaxHorizon = 13 // weeks
	// MaxMilli bounds demand: 10¹² units, which floating point represents exactly in thousandths.
	MaxMilli = 1_000_000_000_000_000

	// Stale is the number of hours at the end of a history that may be unobserved: eight weeks,
	// because imports of demand come weekly or monthly. After a longer gap, demand may have stopped
	// as well as continued, and no forecast is possible.
	Stale = 8 * Week

	learned = 39 // weeks before an origin that candidates learn from
	origins = 52 // weekly origins that the errors come from

	// Window is the maximum number of weeks of history that are used.
	Window = learned + origins + MaxHorizon
)

// Question is the input of a forecast.
type Question struct {
	// From is the start of the first hour of History. The forecast begins where
	// History ends.
	From domain.Instant
	// History is demand in thousandths of a unit by the hour; −1: not observed. Hours before the
	// window are ignored.
	History []int64
	Changes []Change
	Weeks   int   // how far to look ahead
	Levels  []int // of the quantiles in per mille, ascending; none: [Levels]
	// Family names parts of a whole that replace each other first, see [Together]; "": none.
	Family string
}

// Change is a known change of demand that observations may not show.
type Change struct {
	Span domain.Interval `json:"span"` // To 0: permanent
	// Milli is the increase of demand during Span: a launch, or a shutdown if negative.
	Milli int64 `json:"milli"`
	// Ignored excludes the observations of Span from learning, because of an outage or a metering
	// fault. Milli is then 0.
	Ignored bool `json:"ignored"`
	// Why states the source of the information, for readers of the answer.
	Why string `json:"why,omitempty"`
}

// Levels are the default quantiles, in per mille.
var Levels = []int{50, 100, 250, 500, 750, 900, 950, 990}

// Forecast is predicted demand, in thousandths of a unit by the hour.
type Forecast struct {
	From  domain.Instant `json:"from"`
	Point []int64        `json:"point"` // of the chosen candidate
	// Quantiles are indexed by level and hour.
	Levels    []int     `json:"levels"`
	Quantiles [][]int64 `json:"quantiles"`
	// HalfWidth is half the distance between the 5% and the 95% quantile, the mean of each week's hours;
	// nil without these levels.
	HalfWidth []int64 `json:"half_width_milli,omitempty"`
	// Candidate is the chosen one, and Tried the errors of all.
	Candidate string  `json:"candidate"`
	Tried     []Trial `json:"tried"`
	// Window is the history that was used. Missing is the number of its hours that were not
	// observed or are ignored. Origins is the number of past weeks that errors come from. With
	// fewer than two, or for weeks ahead that no origin had observed, the errors of nearer weeks
	// are scaled up.
	Window  domain.Interval `json:"window"`
	Missing int             `json:"missing_hours"`
	Origins int             `json:"origins"`
	// ObservedTo is the end of the last observed hour. Gaps are the ten longest stretches of
	// missing hours, by start. A missing hour is filled from the same hour of the nearest week, and
	// never treated as zero demand.
	ObservedTo domain.Instant    `json:"observed_to"`
	Gaps       []domain.Interval `json:"gaps"` // the longest, ten at most

	paths   []path      // of past errors
	tried   [][]float64 // past forecasts, from the same origins
	begun   int         // the first of them after demand began: quantiles come from these
	base    []float64   // Point without changes
	floor   float64
	shift   []float64 // increase by changes, by hour of the forecast
	changes []Change
	age     age
}

// Trial is the error of a candidate: the mean absolute error over the origins, in thousandths of a
// unit.
type Trial struct {
	Candidate string `json:"candidate"`
	Error     int64  `json:"mean_absolute_error_milli"`
}

// At returns the quantile of a level, nil if the forecast does not have it.
func (f *Forecast) At(level int) []int64 {
	if i := slices.Index(f.Levels, level); i >= 0 {
		return f.Quantiles[i]
	}
	return nil
}

// Make makes a forecast of a pool by itself. Its errors explain what is wrong with the question.
func Make(q *Question) (*Forecast, error) {
	d, err := newDraft(q)
	if err != nil {
		return nil, err
	}
	return d.finish(), nil
}

// draft is a forecast before its errors become quantiles.
type draft struct {
	q      *Question
	w      *window
	past   []tried
	best   int       // the chosen candidate
	errors []float64 // of all
	base   []float64 // what it forecasts
}

func newDraft(q *Question) (*draft, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	w, err := newWindow(q)
	if err != nil {
		return nil, err
	}
	d := &draft{q: q, w: w}
	d.choose(q.Weeks)
	return d, nil
}

// choose selects the candidate with the least past error.
func (d *draft) choose(weeks int) {
	d.past = d.w.try(weeks)
	d.best, d.errors = d.w.choose(d.past)
	d.base = candidates(d.w.learn(len(d.w.value)), weeks*Week)[d.best]
}

func (d *draft) finish() *Forecast {
	q, w := d.q, d.w
	f := &Forecast{
		From: w.end, Levels: slices.Clone(q.Levels), Missing: w.missing, ObservedTo: w.observedTo, Gaps: w.gaps,
		Window:    domain.Interval{From: w.end - domain.Instant(len(w.value))*domain.Hour, To: w.end},
		Candidate: names[d.best], base: d.base, floor: w.floor(),
		shift: w.shifts(q.Changes, len(d.base)), changes: known(q.Changes, w.end),
		Point: make([]int64, len(d.base)),
	}
	if len(f.Levels) == 0 {
		f.Levels = slices.Clone(Levels)
	}
	for c, e := range d.errors {
		f.Tried = append(f.Tried, Trial{names[c], milli(e)})
	}
	for h := range f.Point {
		f.Point[h] = milli(f.base[h] + f.shift[h])
	}
	f.paths, f.begun = w.errors(d.past, d.best), w.begun(d.past)
	for _, t := range d.past {
		f.tried = append(f.tried, t.forecast[d.best])
	}
	f.Origins = len(f.paths) - f.begun
	f.quantiles(q.Weeks)
	f.halve()
	f.age = ageOf(q.History)
	return f
}

func (f *Forecast) halve() {
	low, high := f.At(50), f.At(950)
	if low == nil || high == nil {
		return
	}
	for from := 0; from < len(low); from += Week {
		sum := int64(0)
		for h := from; h < from+Week; h++ {
			sum += high[h] - low[h]
		}
		f.HalfWidth = append(f.HalfWidth, milli(float64(sum)/(2*Week)))
	}
}

func (q *Question) check() error {
	switch {
	case q.Weeks < 1 || q.Weeks > MaxHorizon:
		return fmt.Errorf("forecast %d weeks ahead: 1 to %d can be; what is beyond is growth, which scenarios say",
			q.Weeks, MaxHorizon)
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
			at := q.From + domain.Instant(i)*domain.Hour
			return fmt.Errorf("demand of %d thousandths at %s: want 0 to %d, or -1 for an hour that was not observed",
				v, at, int64(MaxMilli))
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

// milli rounds to whole thousandths, and limits the result to 0 to MaxMilli.
func milli(v float64) int64 {
	switch {
	case !(v > 0):
		return 0
	case v >= MaxMilli:
		return MaxMilli
	}
	return int64(v + 0.5)
}
