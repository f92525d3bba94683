package plan

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
)

const week = 168 // hours

// staleAfter is the greatest age of a series' last observation at the time of a plan. Imports of
// demand are weekly or monthly, so eight weeks allow for one that was missed. A series not seen for
// longer is assumed to have ended, and nothing is bought for it.
const staleAfter = 8 * week * domain.Hour

var unobserved = &refusal{"its demand was never observed", "import what was observed of its demand"}

// history is the observed demand of a pool that is repeated over the horizon.
type history struct {
	milli    []int64 // thousandths of a unit by the hour, whole weeks
	from, to domain.Instant
	missing  int
	sources  []string
	notes    []string
	repeats  []string // notes on what is repeated
	series   []Series // that it is the sum of
	kept     *capped  // nil if nothing is counted by workspace
	tenants  int      // workspaces that may not share machines; 0: they may
	// limited is, by what shares machines and hour of the horizon, the demand after growth that limits of
	// several pools leave, or unlimited. It is nil if none binds.
	limited [][]int64
}

// observe returns the last weeks of a pool's demand before a time, at most a number. Its error says why
// there are none.
//
// The weeks end with the newest series. A missing hour takes the value of the same hour in the
// nearest week that has it, preferring an earlier week; this includes the hours by which a series
// lags behind. If no week has that hour, the last observed hour before it is used. Before its first
// observation a series is zero, because it had not begun.
func observe(p *Pool, most int, at domain.Instant) (*history, error) {
	if p.Idle {
		to := at.HourStart()
		return &history{milli: make([]int64, week), from: to - week*domain.Hour, to: to, sources: []string{}}, nil
	}
	series := slices.Clone(p.Series)
	slices.SortStableFunc(series, func(x, y Series) int {
		return cmp.Or(cmp.Compare(x.Source, y.Source), cmp.Compare(x.From, y.From), slices.Compare(x.Milli, y.Milli))
	})
	h := &history{}
	var first, newest domain.Instant
	var stale, young []string
	series = slices.DeleteFunc(series, func(s Series) bool {
		end := s.observedTo()
		newest = max(newest, end)
		if end == 0 || end < at-staleAfter {
			stale = append(stale, fmt.Sprintf("%s (%s)", s.Source, cmp.Or(end.String(), "never")))
			return true
		}
		if first == 0 || s.From < first {
			first = s.From
		}
		h.to = max(h.to, end)
		h.sources = append(h.sources, s.Source)
		return false
	})
	switch {
	case newest == 0:
		return nil, unobserved
	case len(series) == 0:
		return nil, &refusal{fmt.Sprintf("no demand data since %s, more than %d weeks before the plan", newest,
			staleAfter/(week*domain.Hour)),
			"plan for an earlier time, or import newer data; if the demand has ended, nothing needs to be bought"}
	}
	h.sources, h.series = slices.Compact(h.sources), series
	weeks := min(most, int((h.to-first)/domain.Hour)/week)
	if weeks < 1 {
		return nil, &refusal{fmt.Sprintf("at least a week of observed demand is needed, and it begins at %s and "+
			"ends at %s", first, h.to), "import what was observed of its demand before, or wait for a week of it"}
	}
	h.milli = make([]int64, weeks*week)
	h.from = h.to - domain.Instant(len(h.milli))*domain.Hour
	for i := range series {
		h.missing += series[i].addTo(h.milli, h.from)
		if series[i].From > h.from {
			young = append(young, fmt.Sprintf("%s (%s)", series[i].Source, series[i].From))
		}
	}
	if len(stale) > 0 {
		h.notes = append(h.notes, fmt.Sprintf("excluded because last observed more than %d weeks before: %s",
			staleAfter/(week*domain.Hour), listed(stale)))
	}
	if len(young) > 0 {
		h.repeats = append(h.repeats,
			"first observed within the weeks that are repeated, so in a part of them only: "+listed(young))
	}
	if weeks < most {
		h.repeats = append(h.repeats, fmt.Sprintf("only %d whole weeks were observed and are repeated", weeks))
	}
	return h, nil
}

// listed joins the first few names.
func listed(names []string) string {
	const few = 6
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// observedTo is the end of the last observed hour, 0 if there is none.
func (s *Series) observedTo() domain.Instant {
	for i, milli := range slices.Backward(s.Milli) {
		if milli >= 0 {
			return s.From + domain.Instant(i+1)*domain.Hour
		}
	}
	return 0
}

// addTo adds a series to the hours of a window. It returns how many hours it took from another
// week.
func (s *Series) addTo(window []int64, from domain.Instant) (missing int) {
	shift := int((from - s.From) / domain.Hour)
	for i := range window {
		at := i + shift
		if at < 0 {
			continue
		}
		v := int64(-1)
		if at < len(s.Milli) {
			v = s.Milli[at]
		}
		if v < 0 {
			missing++
			v = s.nearest(at)
		}
		if window[i] += v; window[i] < 0 { // beyond 64 bits
			window[i] = math.MaxInt64
		}
	}
	return missing
}

// nearest returns the value of the same hour in the nearest week that has one. If no week has it,
// it returns that of the nearest hour. Ties go to the earlier one. The series must have at least
// one observed hour.
func (s *Series) nearest(at int) int64 {
	observed := func(at int) bool { return at >= 0 && at < len(s.Milli) && s.Milli[at] >= 0 }
	for d := week; at-d >= 0 || at+d < len(s.Milli); d += week {
		if observed(at - d) {
			return s.Milli[at-d]
		}
		if observed(at + d) {
			return s.Milli[at+d]
		}
	}
	for d := 1; at-d >= 0; d++ {
		if observed(at - d) {
			return s.Milli[at-d]
		}
	}
	for !observed(at) {
		at++
	}
	return s.Milli[at]
}

// future describes the demand over the horizon.
type future struct {
	made    *forecast.Forecast // nil for repeated demand
	summary DemandSummary
	// levels are the means of demand by scenario and month, in thousandths of a unit.
	levels [][]int64
	// limited is, by scenario and hour of the horizon, the demand that limits of several pools leave, or
	// unlimited. It is nil, and so are its scenarios, where none binds.
	limited [][]int64
}

// at is the observed hour that is repeated in an hour of the horizon.
func (h *history) at(t domain.Instant) int64 {
	at := int64((t-h.from)/domain.Hour) % int64(len(h.milli))
	if at < 0 {
		at += int64(len(h.milli))
	}
	return at
}

// repeat repeats history over the months of the horizon, hour of the week by hour of the week, with
// monthly growth, and converts it to machines.
func (h *history) repeat(span []domain.Interval, growth growth, f *fit) ([]int, error) {
	out := make([]int, 0, (span[len(span)-1].To-span[0].From)/domain.Hour)
	units := map[int64]int{} // machines of a demand level, within one month
	for _, month := range span {
		clear(units)
		factor := growth.between(h.to, month.From)
		demands := h.apart(factor)
		for t := month.From; t < month.To; t += domain.Hour {
			at, sum := h.at(t), 0
			for d, demand := range demands {
				if h.limited != nil && h.limited[d][len(out)] != unlimited {
					u, err := f.machines(h.limited[d][len(out)], grown)
					if err != nil {
						return nil, err
					}
					sum += u
					continue
				}
				milli := demand[at]
				u, ok := units[milli]
				if !ok {
					var err error
					if u, err = f.machines(milli, factor); err != nil {
						return nil, err
					}
					units[milli] = u
				}
				sum += u
			}
			if sum > maxUnits {
				return nil, tooMany(fmt.Sprint(sum))
			}
			out = append(out, sum)
		}
	}
	return out, nil
}

// grown is the scale of growth factors.
const grown = 1_000_000_000

// growth is the factor of demand after a number of months, in billionths.
type growth []int64

// newGrowth computes the factors for a number of months at a monthly rate.
func newGrowth(rate domain.Decimal, n int) (growth, error) {
	one := decimal.NewFromInt(1)
	if rate.LessThan(decimal.New(-5, -1)) || rate.GreaterThan(one) {
		return nil, fmt.Errorf("monthly growth %s is not from -0.5 to 1", rate)
	}
	out := make(growth, n+1)
	step, factor := one.Add(rate), one
	for i := range out {
		v := factor.Mul(decimal.NewFromInt(grown)).Round(0)
		if v.GreaterThan(decimal.New(1, 15)) {
			return nil, fmt.Errorf("monthly growth %s comes to more than a millionfold within the horizon", rate)
		}
		out[i] = v.IntPart()
		factor = factor.Mul(step).Round(30)
	}
	return out, nil
}

// between returns the factor of a month: one step for every month that begins from the end of the
// observations to the month's own beginning, both included.
func (g growth) between(observed, month domain.Instant) int64 {
	n := 0
	for at := months(observed, 1)[0].From; at <= month; at = months(at+1, 1)[0].From {
		n++
	}
	return g[min(n, len(g)-1)]
}

// maxUnits bounds the machines of a pool.
const maxUnits = 1_000_000

// machines returns the number of machines for a demand, rounded up.
func (f *fit) machines(milli, factor int64) (int, error) {
	if last := f.curve[len(f.curve)-1]; factor == grown && len(f.curve) == 1 && milli <= math.MaxInt64/(2*maxUnits) &&
		last.GPUMilli <= math.MaxInt64/2 && last.Nodes <= maxUnits {
		if n := (milli*last.Nodes + last.GPUMilli - 1) / last.GPUMilli; n <= maxUnits {
			return int(n), nil
		}
	}
	// In thousandths of GPUs times grown.
	d := new(big.Int).Mul(big.NewInt(milli), big.NewInt(factor))
	var below Filled
	for _, x := range f.curve {
		if new(big.Int).Mul(big.NewInt(x.GPUMilli), big.NewInt(grown)).Cmp(d) >= 0 {
			return below.upTo(x, d)
		}
		below = x
	}
	return Filled{}.upTo(below, d)
}

// upTo interpolates the machines for a demand between two points, rounded up.
func (a Filled) upTo(b Filled, d *big.Int) (int, error) {
	d = new(big.Int).Sub(d, new(big.Int).Mul(big.NewInt(a.GPUMilli), big.NewInt(grown)))
	d.Mul(d, big.NewInt(b.Nodes-a.Nodes))
	per := new(big.Int).Mul(big.NewInt(b.GPUMilli-a.GPUMilli), big.NewInt(grown))
	d.Add(d, per).Sub(d, big.NewInt(1)).Quo(d, per).Add(d, big.NewInt(a.Nodes))
	if !d.IsInt64() || d.Int64() > maxUnits {
		return 0, tooMany(d.String())
	}
	return int(d.Int64()), nil
}

func tooMany(machines string) error {
	return &refusal{fmt.Sprintf("its demand is %s machines, at most %d are planned for", machines, maxUnits),
		"check the demand that was observed and its growth"}
}

func clamped(v uint64) int64 { return int64(min(v, math.MaxInt64)) }

// months returns n consecutive months, the first beginning at or after t.
func months(t domain.Instant, n int) []domain.Interval {
	u := t.Time()
	first := time.Date(u.Year(), u.Month(), 1, 0, 0, 0, 0, time.UTC)
	if first.Before(u) {
		first = first.AddDate(0, 1, 0)
	}
	out := make([]domain.Interval, n)
	for i := range out {
		out[i] = domain.Interval{From: domain.InstantOf(first.AddDate(0, i, 0)), To: domain.InstantOf(first.AddDate(0, i+1, 0))}
	}
	return out
}

// monthsOf is the length of an interval of whole months.
func monthsOf(i domain.Interval) int {
	from, to := i.From.Time(), i.To.Time()
	return 12*(to.Year()-from.Year()) + int(to.Month()-from.Month())
}

func hoursOf(i domain.Interval) int64 { return int64((i.To - i.From) / domain.Hour) }
