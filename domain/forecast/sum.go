package forecast

import (
	"fmt"
	"math"

	"quartermaster/domain"
)

// Sum is the forecast of demand for several pools together: of a family, a region or all regions. Its point
// forecast is exactly the sum of theirs, also of their known changes. Its intervals come from the errors of
// the sums of their past forecasts, which are narrower than the sums of their intervals where some err high
// when others err low. An origin counts the pools that have it.
//
// The forecasts MUST begin with the same hour, and have the same length and levels. There is none of none.
func Sum(parts []*Forecast) *Forecast {
	if len(parts) == 0 {
		return nil
	}
	if len(parts) == 1 {
		return parts[0]
	}
	first := parts[0]
	hours := len(first.Point)
	f := &Forecast{
		From: first.From, Levels: first.Levels, Window: first.Window, ObservedTo: first.ObservedTo,
		Candidate: fmt.Sprintf("sum of %d forecasts", len(parts)), Tried: []Trial{}, Gaps: []domain.Interval{},
		Point: make([]int64, hours), base: make([]float64, hours), shift: make([]float64, hours),
	}
	n, begun := 0, 0 // origins of the part with the most, and those since demand of any has begun
	for _, p := range parts {
		f.Window.From, f.ObservedTo = min(f.Window.From, p.Window.From), min(f.ObservedTo, p.ObservedTo)
		f.Missing += p.Missing
		f.floor += p.floor
		n, begun = max(n, len(p.paths)), max(begun, len(p.paths)-p.begun)
		for h := range hours {
			f.Point[h] += p.Point[h]
			f.base[h] += p.base[h]
			f.shift[h] += p.shift[h]
		}
		f.changes = append(f.changes, p.changes...)
	}
	for k := n; k >= 1; k-- { // from the last origin
		var with []*Forecast
		for _, p := range parts {
			if k <= len(p.paths) {
				with = append(with, p)
			}
		}
		made, errors := sumAt(with, k)
		out := make(path, len(made))
		for h := range out {
			out[h] = errors[h] / max(made[h], f.floor)
		}
		f.paths, f.tried = append(f.paths, out), append(f.tried, made)
	}
	f.begun = n - begun
	f.Origins = begun
	f.quantiles(hours / Week)
	f.halve()
	return f
}

// sumAt adds up what was forecast from the k-th last origin, and the errors; NaN where one is not known.
func sumAt(parts []*Forecast, k int) (made, errors []float64) {
	hours := math.MaxInt
	for _, p := range parts {
		hours = min(hours, len(p.paths[len(p.paths)-k]))
	}
	made, errors = make([]float64, hours), make([]float64, hours)
	for _, p := range parts {
		i := len(p.paths) - k
		for h := range hours {
			v := p.tried[i][h]
			made[h] += v
			errors[h] += float64(p.paths[i][h] * max(v, p.floor))
		}
	}
	return made, errors
}
