package plan

import (
	"fmt"
	"maps"
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
)

const week = 168 // hours

// future is demand over the horizon.
type future struct {
	steps   [][]procurement.Step // per month
	summary DemandSummary
}

// repeat lays the last weeks of history over the months of the horizon, hour of
// the week on hour of the week, grown month by month, and counts in machines:
// nodes of them hold gpus units of demand.
//
// An hour that was not observed is taken from the same hour of the nearest week
// that has it, an earlier one before a later one.
func repeat(p *Pool, a *Assumptions, span []domain.Interval, nodes, gpus int64) (*future, error) {
	f := &future{summary: DemandSummary{Sources: []string{}, Nodes: nodes, GPUs: gpus}}
	var first, last domain.Instant
	for i := range p.Series {
		s := &p.Series[i]
		f.summary.Sources = append(f.summary.Sources, s.Source)
		if i == 0 || s.From < first {
			first = s.From
		}
		last = max(last, s.To())
	}
	weeks := min(a.Weeks, int((last-first)/domain.Hour)/week)
	if weeks < 1 {
		return nil, fmt.Errorf("pool %s %s: at least a week of observed demand is needed", p.Region, p.Kind)
	}
	hours := weeks * week
	f.summary.ObservedFrom, f.summary.ObservedTo = last-domain.Instant(hours)*domain.Hour, last
	window := make([]int64, hours)
	for i := range p.Series {
		f.summary.MissingHours += p.Series[i].addTo(window, f.summary.ObservedFrom)
	}
	growth, err := growthFactors(a.MonthlyGrowth, last, span)
	if err != nil {
		return nil, err
	}
	counts, units := map[int64]int{}, map[int]int{}
	for m, month := range span {
		clear(counts)
		for h := month.From; h < month.To; h += domain.Hour {
			at := int64((h-f.summary.ObservedFrom)/domain.Hour) % int64(hours)
			if at < 0 {
				at += int64(hours)
			}
			counts[window[at]]++
		}
		clear(units)
		for milli, n := range counts {
			u, err := machines(milli, growth[m], nodes, gpus)
			if err != nil {
				return nil, fmt.Errorf("pool %s %s: %w", p.Region, p.Kind, err)
			}
			units[u] += n
		}
		steps := make([]procurement.Step, 0, len(units))
		for _, u := range slices.Sorted(maps.Keys(units)) {
			n := units[u]
			steps = append(steps, procurement.Step{Units: u, Hours: n})
			f.summary.UnitHours += int64(u) * int64(n)
			f.summary.Hours += n
			f.summary.Peak = max(f.summary.Peak, u)
		}
		f.steps = append(f.steps, steps)
	}
	return f, nil
}

// addTo adds the part of a series that lies in a window, and returns how many
// hours within the series' own span it had to take from another week. Outside
// of its span a series is nothing: it had not begun, or had ended.
func (s *Series) addTo(window []int64, from domain.Instant) (missing int) {
	shift := int((from - s.From) / domain.Hour)
	for i := range window {
		at := i + shift
		if at < 0 || at >= len(s.Milli) {
			continue
		}
		v := s.Milli[at]
		if v < 0 {
			missing++
			v = s.nearest(at)
		}
		window[i] += v
	}
	return missing
}

// nearest returns the value of the same hour in the nearest week that has one,
// 0 when none has.
func (s *Series) nearest(at int) int64 {
	for d := week; d < len(s.Milli); d += week {
		if at-d >= 0 && s.Milli[at-d] >= 0 {
			return s.Milli[at-d]
		}
		if at+d < len(s.Milli) && s.Milli[at+d] >= 0 {
			return s.Milli[at+d]
		}
	}
	return 0
}

// grown is the scale of growth factors.
const grown = 1_000_000_000

// growthFactors returns by what demand is multiplied in each month, in
// billionths: one step for every month begun since the end of what was observed.
func growthFactors(rate domain.Decimal, observed domain.Instant, span []domain.Interval) ([]int64, error) {
	one := decimal.NewFromInt(1)
	if rate.LessThan(decimal.New(-5, -1)) || rate.GreaterThan(one) {
		return nil, fmt.Errorf("monthly growth %s is not from -0.5 to 1", rate)
	}
	out := make([]int64, len(span))
	step := one.Add(rate)
	factor := one
	at := months(observed, 1)[0].From
	for i, m := range span {
		for at <= m.From {
			factor = factor.Mul(step).Round(digits)
			at = months(at+1, 1)[0].From
		}
		v := factor.Mul(decimal.NewFromInt(grown)).Round(0)
		if v.GreaterThan(decimal.New(1, 15)) {
			return nil, fmt.Errorf("monthly growth %s over %d months is beyond a millionfold", rate, len(span))
		}
		out[i] = v.IntPart()
	}
	return out, nil
}

// maxUnits bounds the machines of a pool.
const maxUnits = 1_000_000

// machines returns how many machines hold a demand, rounded up.
func machines(milli, factor, nodes, gpus int64) (int, error) {
	d := new(big.Int).Mul(big.NewInt(milli), big.NewInt(factor))
	d.Mul(d, big.NewInt(nodes))
	per := new(big.Int).Mul(big.NewInt(gpus), big.NewInt(1000*grown))
	d.Add(d, per).Sub(d, big.NewInt(1)).Quo(d, per)
	if !d.IsInt64() || d.Int64() > maxUnits {
		return 0, fmt.Errorf("demand of %s machines, at most %d are planned for", d, maxUnits)
	}
	return int(d.Int64()), nil
}
