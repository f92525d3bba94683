package forecast

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// window is the history that is used: whole weeks up to its end, without the effect of known
// changes, and with gaps filled in.
type window struct {
	end     domain.Instant
	value   []float64
	known   []bool // observed, and not ignored
	missing int

	observedTo domain.Instant
	gaps       []domain.Interval
}

func newWindow(q *Question) (*window, error) {
	first := slices.IndexFunc(q.History, func(v int64) bool { return v >= 0 })
	if first < 0 {
		return nil, fmt.Errorf("none of %d hours of history was observed", len(q.History))
	}
	weeks := min((len(q.History)-first)/Week, Window)
	if weeks < MinWeeks {
		return nil, fmt.Errorf("%d hours were observed from %s on: a forecast needs %d weeks of history",
			len(q.History)-first, q.From+domain.Instant(first)*domain.Hour, MinWeeks)
	}
	n := weeks * Week
	skip := len(q.History) - n
	w := &window{end: q.From + domain.Instant(len(q.History))*domain.Hour, value: make([]float64, n), known: make([]bool, n)}
	from := q.From + domain.Instant(skip)*domain.Hour
	for i, v := range q.History {
		if v >= 0 {
			w.observedTo = q.From + domain.Instant(i+1)*domain.Hour
		}
	}
	if w.end-w.observedTo > Stale*domain.Hour {
		return nil, fmt.Errorf(
			"demand was last observed at %s, more than %d weeks before %s: whether it goes on is not known",
			w.observedTo, Stale/Week, w.end)
	}
	for i, v := range q.History[skip:] {
		w.value[i], w.known[i] = float64(v), v >= 0
	}
	for _, c := range q.Changes {
		for i := range w.value {
			if at := from + domain.Instant(i)*domain.Hour; at < c.Span.From || c.Span.To != 0 && at >= c.Span.To {
				continue
			}
			if c.Ignored {
				w.known[i] = false
			} else if w.known[i] {
				w.value[i] -= float64(c.Milli)
			}
		}
	}
	seen := 0
	for i := range w.value {
		if w.known[i] {
			w.value[i] = max(0, w.value[i])
			seen++
		}
	}
	w.missing = n - seen
	w.gaps = gaps(w.known, from)
	if seen < 2*Week {
		return nil, fmt.Errorf("of the %d hours before %s, %d were observed and count: a forecast needs two weeks of them",
			n, w.end, seen)
	}
	w.fill()
	return w, nil
}

// mostGaps bounds the number of reported gaps.
const mostGaps = 10

// gaps are the longest stretches of unknown hours, by start.
func gaps(known []bool, from domain.Instant) []domain.Interval {
	out := []domain.Interval{}
	at := func(h int) domain.Instant { return from + domain.Instant(h)*domain.Hour }
	begin := 0
	for h, ok := range append(slices.Clip(known), true) {
		if !ok {
			continue
		}
		if begin < h {
			out = append(out, domain.Interval{From: at(begin), To: at(h)})
		}
		begin = h + 1
	}
	slices.SortStableFunc(out, func(a, b domain.Interval) int { return cmp.Compare(b.Length(), a.Length()) })
	out = out[:min(len(out), mostGaps)]
	slices.SortFunc(out, func(a, b domain.Interval) int { return cmp.Compare(a.From, b.From) })
	return out
}

// fill sets unknown hours to the same hour of the nearest week that is known, preferring an earlier
// week. If no week has it, the hour before is used.
func (w *window) fill() {
	n := len(w.value)
	filled := slices.Clone(w.known)
	for i := range w.value {
		if filled[i] {
			continue
		}
		for d := Week; i-d >= 0 || i+d < n; d += Week {
			if i-d >= 0 && w.known[i-d] {
				w.value[i], filled[i] = w.value[i-d], true
				break
			}
			if i+d < n && w.known[i+d] {
				w.value[i], filled[i] = w.value[i+d], true
				break
			}
		}
	}
	last := slices.Index(filled, true)
	for i := range w.value {
		if filled[i] {
			last = i
		} else {
			w.value[i] = w.value[last]
		}
	}
}

// shifts is the increase by changes, by hour from the end of the window on.
func (w *window) shifts(changes []Change, hours int) []float64 {
	out := make([]float64, hours)
	for _, c := range changes {
		for h := range out {
			at := w.end + domain.Instant(h)*domain.Hour
			if !c.Ignored && at >= c.Span.From && (c.Span.To == 0 || at < c.Span.To) {
				out[h] += float64(c.Milli)
			}
		}
	}
	return out
}

// learn is the history that candidates learn from at an origin.
func (w *window) learn(at int) []float64 { return w.value[max(0, at-learned*Week):at] }

// floor is the least level that errors are relative to: half the mean of the last four weeks, and
// at least a thousandth of a unit. Without it, the relative error of a time with hardly any demand
// would predict that demand may grow a thousandfold.
func (w *window) floor() float64 { return max(1, mean(w.value[len(w.value)-4*Week:])/2) }

// tried is the forecasts from a past origin.
type tried struct {
	at       int // hours of the window before it
	forecast [][]float64
}

// try forecasts from past origins a week apart, oldest first.
func (w *window) try(weeks int) []tried {
	n := len(w.value)
	var out []tried
	for i := 1; i <= origins+weeks-1 && n-i*Week >= 2*Week; i++ {
		at := n - i*Week
		out = append(out, tried{at, candidates(w.learn(at), min(weeks*Week, n-at))})
	}
	slices.Reverse(out)
	return out
}

// choose returns the candidate with the least error from past origins, the first of equals, and the
// errors of all.
func (w *window) choose(past []tried) (best int, errors []float64) {
	errors = make([]float64, len(names))
	for c := range names {
		sum, n := 0.0, 0
		for _, p := range past {
			for h, v := range p.forecast[c] {
				if w.known[p.at+h] {
					sum += abs(w.value[p.at+h] - v)
					n++
				}
			}
		}
		if errors[c] = sum / float64(max(1, n)); errors[c] < errors[best] {
			best = c
		}
	}
	return best, errors
}

func abs(v float64) float64 {
	if v < 0 {
		return -v
	}
	return v
}

func mean(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// median of values, which it reorders.
func median(v []float64) float64 {
	slices.Sort(v)
	if n := len(v); n%2 == 1 {
		return v[n/2]
	} else {
		return (v[n/2-1] + v[n/2]) / 2
	}
}
