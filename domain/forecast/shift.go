package forecast

import "quartermaster/domain"

// believed is the number of observed hours after a change before which the change is assumed real
// without a check.
const believed = 24

// Shifts returns those of the declared changes that a forecast should use. A change that begins
// after the end of the history, or less than a day of observations before it, is assumed real. An
// earlier change counts if observations show it: on the mean of the week after it, against the same
// hours of the week before, demand changed by the amount declared for that time, to within half of
// the change. Excluded are changes that begin before the history, and changes that others undo by
// half within a week before or after, as autoscalers do. Changes never end. Ignored changes are
// passed on.
func Shifts(from domain.Instant, history []int64, changes []Change) []Change {
	hours := len(history)
	known := make([]bool, hours)
	for h, v := range history {
		known[h] = v >= 0
	}
	// index is the first whole hour at or after a time, within the history.
	index := func(at domain.Instant) int {
		return int(min(max(0, (at-from+domain.Hour-1)/domain.Hour), domain.Instant(hours)))
	}
	// Declared changes up to an hour: in total and by direction.
	declared, up, down := make([]float64, hours+1), make([]float64, hours+1), make([]float64, hours+1)
	for _, c := range changes {
		switch {
		case !c.Ignored:
			at := index(c.Span.From)
			declared[at] += float64(c.Milli)
			up[at] += max(0, float64(c.Milli))
			down[at] += max(0, -float64(c.Milli))
		case c.Span.To == 0:
			clear(known[index(c.Span.From):])
		default:
			first := index(c.Span.From - domain.Hour + 1) // includes the hour that it begins in
			clear(known[first:max(first, index(c.Span.To))])
		}
	}
	for h := 1; h <= hours; h++ {
		declared[h] += declared[h-1]
		up[h] += up[h-1]
		down[h] += down[h-1]
	}
	var out []Change
	for _, c := range changes {
		at := index(c.Span.From)
		if c.Ignored || at == hours {
			out = append(out, c)
			continue
		}
		if c.Span.From <= from {
			continue
		}
		against := up
		if c.Milli > 0 {
			against = down
		}
		contrary := against[min(at+Week, hours-1)]
		if at > Week {
			contrary -= against[at-Week-1]
		}
		if 2*contrary >= abs(float64(c.Milli)) {
			continue
		}
		seen, pairs := 0, 0
		observed, stated := 0.0, 0.0
		for h := at; h < min(at+Week, hours); h++ {
			if !known[h] {
				continue
			}
			seen++
			if h >= Week && known[h-Week] {
				pairs++
				observed += float64(history[h] - history[h-Week])
				stated += declared[h] - declared[h-Week]
			}
		}
		shows := pairs >= believed && 2*abs(observed-stated) <= abs(float64(c.Milli))*float64(pairs)
		if seen < believed || shows {
			out = append(out, c)
		}
	}
	return out
}
