package forecast

import (
	"math/big"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// Score is the accuracy of forecasts, against actual demand and against the seasonal naive
// forecast, which repeats the week before. It is computed in whole numbers, so that scores add up
// to the same bytes in any order.
//
// It skips hours without an observation, and hours whose same hour of the week before was not
// observed, because the naive forecast has no value for them.
type Score struct {
	Forecasts int `json:"forecasts"`
	Hours     int `json:"hours"`
	// MASE is the mean over forecasts of the mean absolute error, each relative to the error of
	// repeating the week before within all the history that was known then (Hyndman and Koehler,
	// 2006; [MASE]). Naive is the same for repeating the last week. Scaled is the number of
	// forecasts in the mean: history that repeats exactly gives no scale. To four digits.
	MASE   domain.Decimal `json:"mase"`
	Naive  domain.Decimal `json:"seasonal_naive_mase"`
	Scaled int            `json:"forecasts_scaled"` // number of forecasts in the MASE
	// WeightedMASE and WeightedNaive are the same as a ratio of sums: all errors over the errors of
	// all hours at the scale of their history. A pool whose history had hardly any demand dominates
	// a mean over forecasts, but has hardly any weight here.
	WeightedMASE domain.Decimal `json:"weighted_mase"`
	// WeightedNaive is a sum of errors over a sum of scales, in which small pools have little weight.
	WeightedNaive domain.Decimal `json:"seasonal_naive_weighted_mase"`
	// AgainstNaive is the sum of absolute errors over that of repeating the last week, to four
	// digits.
	AgainstNaive domain.Decimal  `json:"error_against_seasonal_naive"`
	Quantiles    []QuantileScore `json:"quantiles"`
	// Mass is the number of hours exactly at a value that several quantiles share, such as hours
	// with neither forecast nor actual demand.
	Mass int `json:"hours_at_point_mass"`

	error, naive           big.Int        // sums of absolute errors
	scaled, naiveScaled    domain.Decimal // sums over forecasts
	scale                  domain.Decimal // sum over forecasts of hours times scale
	weighed, naiveWeighed  big.Int        // the part of error and naive that has a scale
	pinball, naivePinballs []big.Int      // by level, in thousandths of thousandths
	within                 []int64        // by level, hours that count fully
	parts                  []big.Rat      // by level, sums of hours that count partly
}

// QuantileScore is the accuracy of the forecasts of one quantile.
type QuantileScore struct {
	Level int `json:"level"` // per mille
	// Pinball is the mean loss of an hour in units ([Pinball]). Naive is the loss with the same
	// hour of the last week as the quantile. Both have six digits. Covered is the share of hours
	// that were not above the quantile, to four digits; its mean is Level if the forecast is right.
	//
	// Where several levels have the same quantile, the forecast has a point mass: from the level
	// below them, 0 if there is none, to the highest of them, or to 1 if that is the highest of
	// all. An hour exactly at that value has no single place among the quantiles. For each of them
	// it counts with the share of the mass at or below its level, the expectation of the randomized
	// probability integral transform (Smith, "Diagnostic checks of non-standard time series
	// models", Journal of Forecasting 4, 1985; Czado, Gneiting and Held, "Predictive model
	// assessment for count data", Biometrics 65, 2009). Counted fully, a pool without any demand
	// would always be below its 5% quantile.
	Pinball domain.Decimal `json:"pinball"`
	Naive   domain.Decimal `json:"seasonal_naive_pinball"`
	Covered domain.Decimal `json:"coverage"`
}

// At returns the score of a quantile, nil if it is not scored.
func (s *Score) At(level int) *QuantileScore {
	for i := range s.Quantiles {
		if s.Quantiles[i].Level == level {
			return &s.Quantiles[i]
		}
	}
	return nil
}

// Add scores a forecast against actual, which may have fewer or more hours than the forecast.
// history is what the forecast was made from. All forecasts of a score MUST have the same levels.
func (s *Score) Add(history []int64, f *Forecast, actual []int64) {
	s.levels(f.Levels)
	s.Forecasts++
	var off, offNaive big.Int
	hours := 0
	for h, a := range actual[:min(len(actual), len(f.Point))] {
		last := int64(-1)
		if n := len(history); n >= Week {
			last = history[n-Week+h%Week]
		}
		if a < 0 || last < 0 {
			continue
		}
		hours++
		off.Add(&off, big.NewInt(distance(a, f.Point[h])))
		offNaive.Add(&offNaive, big.NewInt(distance(a, last)))
		for i, l := range f.Levels {
			q := f.Quantiles[i][h]
			s.pinball[i].Add(&s.pinball[i], loss(l, a, q))
			s.naivePinballs[i].Add(&s.naivePinballs[i], loss(l, a, last))
			if a < q {
				s.within[i]++
			}
		}
		s.place(f, h, a)
	}
	s.Hours += hours
	s.error.Add(&s.error, &off)
	s.naive.Add(&s.naive, &offNaive)
	if scale, pairs := repeats(history); hours > 0 && scale.Sign() > 0 {
		s.Scaled++
		by := decimal.NewFromBigInt(new(big.Int).Mul(scale, big.NewInt(int64(hours))), 0)
		relative := func(e *big.Int) domain.Decimal {
			return decimal.NewFromBigInt(new(big.Int).Mul(e, big.NewInt(pairs)), 0).DivRound(by, 12)
		}
		s.scaled, s.naiveScaled = s.scaled.Add(relative(&off)), s.naiveScaled.Add(relative(&offNaive))
		s.scale = s.scale.Add(by.DivRound(decimal.NewFromInt(pairs), 6))
		s.weighed.Add(&s.weighed, &off)
		s.naiveWeighed.Add(&s.naiveWeighed, &offNaive)
	}
	s.settle()
}

// place counts an hour for the quantiles that it exactly equals.
func (s *Score) place(f *Forecast, h int, actual int64) {
	first := slices.IndexFunc(f.Quantiles, func(q []int64) bool { return q[h] == actual })
	if first < 0 {
		return
	}
	last := first
	for last+1 < len(f.Levels) && f.Quantiles[last+1][h] == actual {
		last++
	}
	if first == last {
		s.within[first]++
		return
	}
	s.Mass++
	low, high := 0, f.Levels[last]
	if first > 0 {
		low = f.Levels[first-1]
	}
	if last == len(f.Levels)-1 {
		high = 1000
	}
	for i := first; i <= last; i++ {
		s.parts[i].Add(&s.parts[i], big.NewRat(int64(f.Levels[i]-low), int64(high-low)))
	}
}

// Merge adds the forecasts of another score, which MUST have the same levels or none.
func (s *Score) Merge(o *Score) {
	s.Forecasts += o.Forecasts
	s.Hours += o.Hours
	s.Mass += o.Mass
	s.Scaled += o.Scaled
	s.error.Add(&s.error, &o.error)
	s.naive.Add(&s.naive, &o.naive)
	s.scaled, s.naiveScaled = s.scaled.Add(o.scaled), s.naiveScaled.Add(o.naiveScaled)
	s.scale = s.scale.Add(o.scale)
	s.weighed.Add(&s.weighed, &o.weighed)
	s.naiveWeighed.Add(&s.naiveWeighed, &o.naiveWeighed)
	if len(o.Quantiles) > 0 {
		levels := make([]int, len(o.Quantiles))
		for i := range levels {
			levels[i] = o.Quantiles[i].Level
		}
		s.levels(levels)
	}
	for i := range o.pinball {
		s.pinball[i].Add(&s.pinball[i], &o.pinball[i])
		s.naivePinballs[i].Add(&s.naivePinballs[i], &o.naivePinballs[i])
		s.within[i] += o.within[i]
		s.parts[i].Add(&s.parts[i], &o.parts[i])
	}
	s.settle()
}

// levels allocates the levels of the first forecast.
func (s *Score) levels(levels []int) {
	if s.Quantiles != nil {
		return
	}
	s.Quantiles = make([]QuantileScore, len(levels))
	for i, l := range levels {
		s.Quantiles[i].Level = l
	}
	s.pinball, s.naivePinballs, s.within = make([]big.Int, len(levels)), make([]big.Int, len(levels)), make([]int64, len(levels))
	s.parts = make([]big.Rat, len(levels))
}

// settle computes the results from the sums.
func (s *Score) settle() {
	ratio := func(a *big.Int, b *big.Int, digits int32) domain.Decimal {
		if b.Sign() == 0 {
			return decimal.Zero
		}
		return decimal.NewFromBigInt(a, 0).DivRound(decimal.NewFromBigInt(b, 0), digits)
	}
	if s.Scaled > 0 {
		n := decimal.NewFromInt(int64(s.Scaled))
		s.MASE, s.Naive = s.scaled.DivRound(n, 4), s.naiveScaled.DivRound(n, 4)
		s.WeightedMASE = decimal.NewFromBigInt(&s.weighed, 0).DivRound(s.scale, 4)
		s.WeightedNaive = decimal.NewFromBigInt(&s.naiveWeighed, 0).DivRound(s.scale, 4)
	}
	s.AgainstNaive = ratio(&s.error, &s.naive, 4)
	hours := big.NewInt(int64(s.Hours))
	units := new(big.Int).Mul(hours, big.NewInt(1_000_000))
	for i := range s.Quantiles {
		q := &s.Quantiles[i]
		q.Pinball, q.Naive = ratio(&s.pinball[i], units, 6), ratio(&s.naivePinballs[i], units, 6)
		covered := new(big.Int).Mul(big.NewInt(s.within[i]), s.parts[i].Denom())
		q.Covered = ratio(covered.Add(covered, s.parts[i].Num()), new(big.Int).Mul(hours, s.parts[i].Denom()), 4)
	}
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// loss is the pinball loss of an hour in millionths of a unit.
func loss(level int, actual, quantile int64) *big.Int {
	if actual >= quantile {
		return new(big.Int).Mul(big.NewInt(int64(level)), big.NewInt(actual-quantile))
	}
	return new(big.Int).Mul(big.NewInt(int64(1000-level)), big.NewInt(quantile-actual))
}

// repeats returns the sum of absolute differences between hours of history and the same hour of the
// week before, and the number of such pairs.
func repeats(history []int64) (sum *big.Int, pairs int64) {
	sum = new(big.Int)
	for i := Week; i < len(history); i++ {
		if history[i] >= 0 && history[i-Week] >= 0 {
			pairs++
			sum.Add(sum, big.NewInt(distance(history[i], history[i-Week])))
		}
	}
	return sum, pairs
}

// Assess repeats the forecasts of questions, made [Together] by whole, and the sums of some of them ([Sum]),
// from past origins, which are one horizon apart, the last of them one horizon before the end of the
// history. It scores each against what then happened. sums are indices into all parts, whole after whole. A
// forecast knows the changes that had begun by its time. Ignored hours are not scored. Origins with too
// little history are skipped, and so are parts whose question is invalid: a sum is that of the others.
//
// All histories MUST have equal lengths and weeks ahead.
func Assess(wholes [][]*Question, origins int, sums [][]int) (parts, of []*Score) {
	all := slices.Concat(wholes...)
	parts, of = make([]*Score, len(all)), make([]*Score, len(sums))
	actual := make([][]int64, len(all))
	for i, q := range all {
		parts[i], actual[i] = &Score{}, scored(q)
	}
	for i := range sums {
		of[i] = &Score{}
	}
	for i := origins; i >= 1; i-- {
		made := make([]*Forecast, 0, len(all))
		for _, whole := range wholes {
			made = append(made, asOf(whole, i)...)
		}
		for k, f := range made {
			if f != nil { // there was enough history
				at := len(all[k].History) - i*all[k].Weeks*Week
				parts[k].Add(all[k].History[:at], f, actual[k][at:])
			}
		}
		for n, members := range sums {
			var with []*Forecast
			var history, then [][]int64
			for _, k := range members {
				if made[k] != nil {
					at := len(all[k].History) - i*all[k].Weeks*Week
					with, history, then = append(with, made[k]), append(history, all[k].History[:at]), append(then, actual[k][at:])
				}
			}
			if len(with) > 0 {
				of[n].Add(added(history), Sum(with), added(then))
			}
		}
	}
	return parts, of
}

// asOf makes forecasts as of a number of horizons before the end of the history; nil where there was too
// little history.
func asOf(whole []*Question, horizons int) []*Forecast {
	out := make([]*Forecast, len(whole))
	var then []*Question
	var of []int
	for k, q := range whole {
		at := len(q.History) - horizons*q.Weeks*Week
		if at < MinWeeks*Week {
			continue
		}
		past := *q
		past.History, past.Changes = q.History[:at], nil
		for _, c := range q.Changes {
			if c.Span.From < q.From+domain.Instant(at)*domain.Hour {
				past.Changes = append(past.Changes, c)
			}
		}
		then, of = append(then, &past), append(of, k)
	}
	made, _ := Together(then)
	for k, f := range made {
		out[of[k]] = f
	}
	return out
}

// added is demand hour by hour. What has not begun is zero. An hour that is unknown in one that has is
// unknown in the sum, and so is one before all.
func added(series [][]int64) []int64 {
	out := slices.Repeat([]int64{-1}, len(series[0]))
	unknown := make([]bool, len(out))
	for _, s := range series {
		begun := false
		for h, v := range s {
			switch {
			case v >= 0:
				begun, out[h] = true, max(0, out[h])+v
			case begun:
				unknown[h] = true
			}
		}
	}
	for h := range out {
		if unknown[h] {
			out[h] = -1
		}
	}
	return out
}

// scored is the history of a question without ignored hours.
func scored(q *Question) []int64 {
	actual := q.History
	for _, c := range q.Changes {
		if !c.Ignored {
			continue
		}
		if len(actual) > 0 && &actual[0] == &q.History[0] {
			actual = append([]int64(nil), q.History...)
		}
		for h := range actual {
			if at := q.From + domain.Instant(h)*domain.Hour; at >= c.Span.From && (c.Span.To == 0 || at < c.Span.To) {
				actual[h] = -1
			}
		}
	}
	return actual
}
