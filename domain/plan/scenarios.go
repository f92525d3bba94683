package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/forecast"
	"quartermaster/domain/instance"
)

// Forecast is the kind of demand drawn by package forecast (Assumptions.Demand).
const Forecast = "forecast"

// MaxScenarios bounds the number of demand scenarios in a plan.
const MaxScenarios = 200

// Observed is the demand of a pool as input of a forecast.
type Observed struct {
	From domain.Instant // start of the first hour
	// Milli is in thousandths of a unit per hour; −1 means not observed. The forecast begins at its
	// end.
	Milli []int64
	// Changes are the known changes of demand, as far as they are visible.
	Changes []forecast.Change
	// Made is the forecast of these, if it is made already, as far as the horizon or further.
	Made *forecast.Forecast

	why   error // why it cannot be made
	parts int   // pools that it was made together with, itself included
}

// end is the hour from which demand is not observed yet.
func (o *Observed) end() domain.Instant { return o.From + domain.Instant(len(o.Milli))*domain.Hour }

// DemandRange is the range of demand over the horizon in the scenarios of a forecast.
type DemandRange struct {
	Candidate string         `json:"candidate"` // the method that forecasts
	UnitHours Quantiles      `json:"unit_hours"`
	Peak      Quantiles      `json:"peak_units"`
	Months    []MonthsDemand `json:"months"`
}

// MonthsDemand is the demand of a month.
type MonthsDemand struct {
	Month     string    `json:"month"` // 2006-01
	UnitHours Quantiles `json:"unit_hours"`
	Peak      Quantiles `json:"peak_units"`
}

// Quantiles are those of scenarios: the smallest values that at least a tenth, half and nine tenths
// of them do not exceed.
type Quantiles struct {
	P10 int64 `json:"p10"`
	P50 int64 `json:"p50"`
	P90 int64 `json:"p90"`
}

// CostRange is the range of a plan's cost over scenarios.
type CostRange struct {
	Least domain.Decimal `json:"least"`
	P50   domain.Decimal `json:"p50"`
	Most  domain.Decimal `json:"most"`
}

// checkDemand refuses assumptions about demand that are out of range.
func (a *Assumptions) checkDemand() error {
	switch {
	case a.SalvageFrom != "" && a.SalvageFrom != Forecast:
		return fmt.Errorf("salvage from %q, want %q or none", a.SalvageFrom, Forecast)
	case a.Demand == "" && a.SalvageFrom != "":
		return errors.New("a salvage follows from demand that is forecast: state a share for demand that repeats")
	case a.Demand == "" && (a.Scenarios != 0 || a.Seed != 0 || a.Life != 0):
		return errors.New("scenarios, their seed and lives of machine types are for demand that is forecast")
	case a.Demand == "":
		return nil
	case a.Demand != Forecast:
		return fmt.Errorf("demand %q, want %q, or none for demand that repeats", a.Demand, Forecast)
	case a.Scenarios < 1 || a.Scenarios > MaxScenarios:
		return fmt.Errorf("%d scenarios of demand, want 1 to %d", a.Scenarios, MaxScenarios)
	case a.Life < 0 || a.Life > forecast.MaxLife:
		return fmt.Errorf("a mean life of machine types of %d months, want 0 to %d", a.Life, forecast.MaxLife)
	}
	return nil
}

// foreseeTogether makes the forecasts of pools, which are sorted: those of a region that count in one
// unit add up to a forecast of the region, and those of a family to one of the family. So a plan of one
// region forecasts the same as a plan of all. A pool that cannot be forecast gets none.
func (c *composer) foreseeTogether(pools []Pool) {
	if c.a.Demand != Forecast {
		return
	}
	type whole struct {
		region, unit string
		end          domain.Instant
	}
	wholes := map[whole][]int{}
	for i := range pools {
		if p := &pools[i]; !p.Idle && p.Observed != nil && p.Observed.Made == nil {
			w := whole{p.Region, p.Unit, p.Observed.end()}
			wholes[w] = append(wholes[w], i)
		}
	}
	for _, of := range wholes { // none depends on another
		parts := make([]*forecast.Question, len(of))
		for n, i := range of {
			o := pools[i].Observed
			parts[n] = &forecast.Question{From: o.From, History: o.Milli, Changes: o.Changes, Weeks: c.weeksAhead(o),
				Family: domain.Family(pools[i].Kind)}
		}
		made, errs := forecast.Together(parts)
		for n, i := range of {
			o := *pools[i].Observed
			o.Made, o.why, o.parts = made[n], errs[n], len(of)
			pools[i].Observed = &o
		}
	}
}

// foresee describes a pool's demand over the horizon by the scenarios of a forecast. h holds what is
// known of its sources.
func (c *composer) foresee(k *candidate, h *history) error {
	switch {
	case c.q.Draws == nil:
		return errors.New("no forecast: there is no source of draws")
	case k.Observed == nil:
		return unobserved
	}
	made := k.Observed.Made
	if made == nil {
		return &refusal{"no forecast: " + k.Observed.why.Error(),
			"plan for demand that repeats, or import what was observed of it before"}
	}
	k.future = &future{made: made, summary: DemandSummary{
		ObservedFrom: made.Window.From, ObservedTo: made.Window.To, MissingHours: made.Missing, Sources: h.sources,
		Range: &DemandRange{Candidate: made.Candidate},
	}}
	return nil
}

// hoursAhead is the number of hours from the end of observations to the end of the horizon.
func (c *composer) hoursAhead(o *Observed) int {
	return int((c.end() - o.end() + domain.Hour - 1) / domain.Hour)
}

// weeksAhead is the length of a forecast.
func (c *composer) weeksAhead(o *Observed) int {
	return min(forecast.MaxHorizon, (c.hoursAhead(o)+forecast.Week-1)/forecast.Week)
}

// cases is the demand of a pool in each scenario of its forecast, in machines and without spares;
// nil for repeated demand. All pools use the same draws, so that scenarios with equal numbers use
// the same past weeks, and a plan of one region draws the same as a plan of all.
func (c *composer) cases(k *candidate) ([][]int, error) {
	made := k.future.made
	if made == nil {
		return nil, nil
	}
	drawn, err := c.draw(k)
	if err != nil {
		return nil, err
	}
	out := make([][]int, len(drawn))
	for i := range drawn {
		if k.future.limited != nil && k.future.limited[i] != nil {
			first := c.firstOf(k)
			for h, milli := range k.future.limited[i] {
				if milli != unlimited {
					drawn[i][first+h] = milli
				}
			}
		}
		if out[i], err = c.unitsOf(drawn[i], made.From, k.fit); err != nil {
			return nil, err
		}
		for h, n := range out[i] {
			if n > 0 && k.seen.tenants > 1 {
				out[i][h] += k.seen.tenants - 1 // Σ⌈dᵢ⌉ < ⌈Σdᵢ⌉ + n
			}
		}
	}
	k.future.levels = c.levelsOf(drawn, made.From)
	return out, nil
}

// draw is the demand of a pool in each scenario from the end of what was observed on, in thousandths of a
// unit, as far as the pool's own limits allow.
func (c *composer) draw(k *candidate) ([][]int64, error) {
	drawn, err := k.future.made.Scenarios(&forecast.Spread{
		Hours: c.hoursAhead(k.Observed), Count: c.a.Scenarios, Growth: c.beyond(), Life: c.a.Life,
	}, c.q.Draws(0))
	if err != nil {
		return nil, fmt.Errorf("no forecast: %w", err)
	}
	if most := k.seen.everything(); most >= 0 {
		for i := range drawn {
			for h := range drawn[i] {
				drawn[i][h] = min(drawn[i][h], most)
			}
		}
	}
	return drawn, nil
}

// left is the share of its use within the horizon that demand makes of a term beyond it, in hundredths.
// It is the mean over pools, by what their demand costs on demand, for as long as the longest term for
// sale.
func (c *composer) left() domain.Decimal {
	sum, all := decimal.Zero, decimal.Zero
	for _, k := range c.planned() {
		longest := 0
		for _, t := range k.shelf.terms {
			longest = max(longest, int(t.TermMonths))
		}
		for _, o := range k.shelf.spends {
			longest = max(longest, int(o.TermMonths))
		}
		weight := k.shelf.onDemand.Hourly.Mul(decimal.NewFromInt(k.future.summary.UnitHours))
		sum = sum.Add(weight.Mul(decimal.New(k.future.made.Left(c.beyond(), c.a.Life, c.a.Months, longest), -6)))
		all = all.Add(weight)
	}
	if !all.IsPositive() {
		return decimal.NewFromInt(1)
	}
	return sum.DivRound(all, 2)
}

// beyond is the growth beyond the forecast: three months of the assumed growth per quarter.
func (c *composer) beyond() int64 {
	step := decimal.NewFromInt(1).Add(c.a.MonthlyGrowth)
	return step.Mul(step).Mul(step).Shift(6).Round(0).IntPart()
}

// unitsOf is drawn demand of each hour of the horizon, in machines.
func (c *composer) unitsOf(milli []int64, from domain.Instant, f *fit) ([]int, error) {
	milli = milli[(c.span[0].From-from)/domain.Hour:]
	out := make([]int, (c.end()-c.span[0].From)/domain.Hour)
	for h := range out {
		var err error
		if out[h], err = f.machines(milli[h], grown); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// summarize describes the demand of a pool, with its spares: one series of hours, or one for each
// scenario.
func (c *composer) summarize(k *candidate, cases [][]int) {
	s, n := &k.future.summary, len(cases)
	s.Curve, s.Packing = k.fit.curve, k.fit.basis
	s.Hours, s.Peak = len(cases[0]), 0
	all, peaks := make([]int64, n), make([]int64, n)
	from := 0
	for _, span := range c.span {
		to := from + int(hoursOf(span))
		hours, peak := make([]int64, n), make([]int64, n)
		for i := range cases {
			for _, u := range cases[i][from:to] {
				hours[i] += int64(u)
				peak[i] = max(peak[i], int64(u))
			}
			all[i] += hours[i]
			peaks[i] = max(peaks[i], peak[i])
		}
		if s.Range != nil {
			s.Range.Months = append(s.Range.Months, MonthsDemand{span.From.Time().Format("2006-01"), quantiles(hours),
				quantiles(peak)})
		}
		from = to
	}
	if s.Range != nil {
		s.Range.UnitHours, s.Range.Peak = quantiles(all), quantiles(peaks)
	}
	s.Peak = int(slices.Max(peaks))
	sum := int64(0)
	for _, v := range all {
		sum += v
	}
	s.UnitHours = mean(sum, n)
}

// rank is the index of a quantile, in per mille, among n sorted values.
func rank(n, level int) int { return max(0, (n*level+999)/1000-1) }

func quantiles(values []int64) Quantiles {
	v := slices.Sorted(slices.Values(values))
	return Quantiles{v[rank(len(v), 100)], v[rank(len(v), 500)], v[rank(len(v), 900)]}
}

// mean is a sum of non-negative integers divided by n, rounded to the nearest.
func mean(sum int64, n int) int64 { return (sum + int64(n)/2) / int64(n) }

// risk computes the spread of cost over scenarios, if there are any.
func (a *Amounts) risk() {
	n := len(a.Costs)
	if n == 0 {
		return
	}
	v := slices.SortedFunc(slices.Values(a.Costs), domain.Decimal.Cmp)
	a.Range = &CostRange{v[0], v[rank(n, 500)], v[n-1]}
	equal := make([]instance.ScenarioCost, n)
	for i := range v {
		equal[i] = instance.ScenarioCost{Weight: 1, Cost: v[i]}
	}
	worst := instance.CVaR(equal)
	a.CVaR = &worst
}
