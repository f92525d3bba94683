package forecast

import "slices"

// Together forecasts pools that are parts of one whole, such as the machine types of a region. The whole
// is forecast, too, and every part is scaled hour by hour so that the parts add up to it. Their shares are
// those of their own forecasts (top-down by forecast proportions: Athanasopoulos, Ahmed and Hyndman,
// "Hierarchical forecasts for Australian domestic tourism", International Journal of Forecasting 25,
// 2009). Parts of one family are a level between: the families add up to the whole, and the parts of each
// add up to their family. Work that moves from one part to another leaves the whole as it is, so a decline that one part's
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
	reconcile(made)
	for i, d := range drafts {
		if errs[i] == nil {
			out[i] = d.finish()
		}
	}
	return out, errs
}

// reconcile scales the parts of a whole, families first.
func reconcile(parts []*draft) {
	if len(parts) < 2 {
		return
	}
	var top []*draft // families, and parts without others of their family
	families := map[*draft][]*draft{}
	for i, d := range parts {
		same := func(o *draft) bool { return o.q.Family == d.q.Family }
		if d.q.Family == "" || !slices.ContainsFunc(slices.Concat(parts[:i], parts[i+1:]), same) {
			top = append(top, d)
		} else if !slices.ContainsFunc(parts[:i], same) {
			members := slices.DeleteFunc(slices.Clone(parts), func(o *draft) bool { return !same(o) })
			whole := draftOf(members, d.q.Weeks)
			top, families[whole] = append(top, whole), members
		}
	}
	if len(top) > 1 {
		draftOf(top, parts[0].q.Weeks).scale(top)
	}
	for whole, members := range families { // none depends on another
		whole.scale(members)
	}
}

// draftOf forecasts the sum of parts.
func draftOf(parts []*draft, weeks int) *draft {
	d := &draft{w: wholeOf(parts)}
	d.choose(weeks)
	return d
}

// scale makes the forecasts of parts add up to that of the whole, and the past ones, too.
func (d *draft) scale(parts []*draft) {
	forecasts := make([][]float64, len(parts))
	for i, p := range parts {
		forecasts[i] = p.base
	}
	addUp(forecasts, d.base)
	for k := 1; k <= len(d.past); k++ { // origins, from the last one back
		forecasts = forecasts[:0]
		for _, p := range parts {
			if k <= len(p.past) {
				forecasts = append(forecasts, p.past[len(p.past)-k].forecast[p.best])
			} else if len(p.w.value) > k*Week {
				// It is in the whole, but has begun too late for a forecast: the others do not add up to the whole.
				forecasts = nil
				break
			}
		}
		addUp(forecasts, d.past[len(d.past)-k].forecast[d.best])
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
