package forecast

// Together forecasts pools that are parts of one whole, such as the machine types of a region. The whole
// is forecast, too, and every part is scaled hour by hour so that the parts add up to it. Their shares are
// those of their own forecasts (top-down by forecast proportions: Athanasopoulos, Ahmed and Hyndman,
// "Hierarchical forecasts for Australian domestic tourism", International Journal of Forecasting 25,
// 2009). Work that moves from one part to another leaves the whole as it is, so a decline that one part's
// history shows late and growth that another's shows early do not change the sum.
//
// Past forecasts are scaled in the same way, so intervals and scenarios come from the errors of scaled
// ones. Scenarios of the parts with equal draws repeat the errors of the same past weeks: their sums are
// courses of the whole (Panagiotelis, Gamakumara, Athanasopoulos and Hyndman, "Probabilistic forecast
// reconciliation", European Journal of Operational Research 306, 2023). Known changes are added afterwards.
//
// Questions MUST have equal weeks ahead, and histories that end with the same hour. A part that cannot be
// forecast has an error, and does not count in the whole. A single part is forecast as by [Make].
func Together(parts []*Question) ([]*Forecast, []error) {
	out, errs := make([]*Forecast, len(parts)), make([]error, len(parts))
	drafts := make([]*draft, len(parts))
	var made []*draft
	for i, q := range parts {
		if drafts[i], errs[i] = newDraft(q); errs[i] == nil {
			made = append(made, drafts[i])
		}
	}
	if len(made) > 1 {
		reconcile(made)
	}
	for i, d := range drafts {
		if errs[i] == nil {
			out[i] = d.finish()
		}
	}
	return out, errs
}

// reconcile scales the parts of a whole.
func reconcile(parts []*draft) {
	whole := &draft{w: wholeOf(parts)}
	whole.choose(parts[0].q.Weeks)
	forecasts := make([][]float64, len(parts))
	for i, d := range parts {
		forecasts[i] = d.base
	}
	addUp(forecasts, whole.base)
	for k := 1; k <= len(whole.past); k++ { // origins, from the last one back
		forecasts = forecasts[:0]
		for _, d := range parts {
			if k <= len(d.past) {
				forecasts = append(forecasts, d.past[len(d.past)-k].forecast[d.best])
			} else if len(d.w.value) > k*Week {
				// It is in the whole, but has begun too late for a forecast: the others do not add up to the whole.
				forecasts = nil
				break
			}
		}
		last := &whole.past[len(whole.past)-k]
		addUp(forecasts, last.forecast[whole.best])
	}
}

// addUp makes forecasts add up to another, except for hours in which all are zero.
func addUp(forecasts [][]float64, whole []float64) {
	for h := range whole {
		sum := 0.0
		for _, f := range forecasts {
			sum += f[h]
		}
		if !(sum > 0) {
			continue
		}
		by := whole[h] / sum
		for _, f := range forecasts {
			f[h] = float64(f[h] * by)
		}
	}
}

// wholeOf adds up windows that have the same end. What had not begun is zero.
func wholeOf(parts []*draft) *window {
	n := 0
	for _, d := range parts {
		n = max(n, len(d.w.value))
	}
	w := &window{end: parts[0].w.end, value: make([]float64, n), known: make([]bool, n)}
	for i := range w.known {
		w.known[i] = true
	}
	for _, d := range parts {
		skip := n - len(d.w.value)
		for i, v := range d.w.value {
			w.value[skip+i] += v
			w.known[skip+i] = w.known[skip+i] && d.w.known[i]
		}
	}
	return w
}
