package forecast

import (
	"math"
	"slices"
)

// path is what a candidate erred by from one past origin on, hour by hour,
// relative to the level that it forecast; NaN where nothing was observed.
type path []float64

// errors returns the paths of a candidate from past origins, the oldest first.
func (w *window) errors(past []tried, candidate int) []path {
	floor := w.floor()
	out := make([]path, len(past))
	for i, t := range past {
		p := make(path, len(t.forecast[candidate]))
		for h, v := range t.forecast[candidate] {
			p[h] = math.NaN()
			if w.known[t.at+h] {
				p[h] = (w.value[t.at+h] - v) / max(v, floor)
			}
		}
		out[i] = p
	}
	return out
}

// near is how many hours of a first week are a bucket of their own.
const near = 24

// buckets are the stretches of the horizon whose errors are taken together: each
// day of the first week, then each week.
func buckets(hours int) [][2]int {
	var out [][2]int
	for h := 0; h < hours; {
		n := near
		if h >= Week {
			n = Week
		}
		out = append(out, [2]int{h, min(h+n, hours)})
		h += n
	}
	return out
}

// adaptRate is how far a level moves when an origin was covered more or less than
// it should (Gibbs and Candès, 2021).
const adaptRate = 0.05

// adaptFrom is how many origins must be known before a level moves.
const adaptFrom = 4

// quantiles turns past errors into quantiles of what is to come.
func (f *Forecast) quantiles(weeks int) {
	hours := weeks * Week
	f.Quantiles = make([][]int64, len(f.Levels))
	for i := range f.Quantiles {
		f.Quantiles[i] = make([]int64, hours)
	}
	var seen [][]float64 // errors of the last bucket that had any, by origin
	seenAt := 1.0
	for _, b := range buckets(hours) {
		by := f.errorsWithin(b)
		scale, middle := 1.0, float64(b[0]+b[1])/2
		if len(by) >= 2 {
			seen, seenAt = by, middle
		} else if seen == nil {
			seen, seenAt = by, middle
		} else {
			scale = math.Sqrt(middle / seenAt)
		}
		for i, r := range adapted(seen, f.Levels) {
			r = float64(r * scale)
			for h := b[0]; h < b[1]; h++ {
				f.Quantiles[i][h] = milli(f.base[h] + float64(r*max(f.base[h], f.floor)) + f.shift[h])
			}
		}
	}
	// A level that adapted further than the next one is put in order again.
	for h := range hours {
		for i := 1; i < len(f.Levels); i++ {
			f.Quantiles[i][h] = max(f.Quantiles[i][h], f.Quantiles[i-1][h])
		}
	}
}

// errorsWithin returns the errors of every origin that saw a whole bucket.
func (f *Forecast) errorsWithin(b [2]int) [][]float64 {
	var out [][]float64
	for _, p := range f.paths {
		if len(p) < b[1] {
			continue
		}
		var e []float64
		for _, v := range p[b[0]:b[1]] {
			if !math.IsNaN(v) {
				e = append(e, v)
			}
		}
		if len(e) > 0 {
			out = append(out, e)
		}
	}
	return out
}

// adapted returns for each level the error that so much of all errors does not
// exceed, the share corrected by how the same rule would have fared at each
// origin with what was known before it.
func adapted(by [][]float64, levels []int) []float64 {
	at := make([]float64, len(levels))
	for i, l := range levels {
		at[i] = float64(l) / 1000
	}
	var pool, merged []float64
	for o, e := range by {
		slices.Sort(e)
		if o >= adaptFrom {
			for i, l := range levels {
				q := quantile(pool, at[i])
				below, _ := slices.BinarySearchFunc(e, q, func(v, q float64) int {
					if v <= q {
						return -1
					}
					return 1
				})
				at[i] += float64(adaptRate * (float64(l)/1000 - float64(below)/float64(len(e))))
			}
		}
		merged = merge(merged[:0], pool, e)
		pool, merged = merged, pool
	}
	out := make([]float64, len(levels))
	for i := range levels {
		out[i] = quantile(pool, at[i])
	}
	return out
}

// merge appends two sorted lists in order.
func merge(into, a, b []float64) []float64 {
	for len(a) > 0 && len(b) > 0 {
		if a[0] <= b[0] {
			into, a = append(into, a[0]), a[1:]
		} else {
			into, b = append(into, b[0]), b[1:]
		}
	}
	return append(append(into, a...), b...)
}

// quantile returns the least of sorted values that, with one more that is not
// known yet, a share of all does not exceed: the ⌈(n+1)·share⌉-th, bounded by the
// least and the greatest.
func quantile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	k := int(math.Ceil(float64(share * float64(len(sorted)+1))))
	return sorted[min(max(k, 1), len(sorted))-1]
}
