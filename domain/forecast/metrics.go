package forecast

import "math"

// Measures of forecast accuracy. Values and forecasts have the same unit and length.

// MASE is the mean absolute error relative to that of the seasonal naive forecast within the
// history that was learned from (Hyndman and Koehler, 2006). It is NaN if that history repeats
// exactly, or is no longer than a season.
func MASE(learned []float64, season int, actual, forecast []float64) float64 {
	scale := 0.0
	for i := season; i < len(learned); i++ {
		scale += abs(learned[i] - learned[i-season])
	}
	scale /= float64(len(learned) - season)
	if !(scale > 0) || len(learned) <= season {
		return math.NaN()
	}
	return MAE(actual, forecast) / scale
}

// MAE is the mean absolute error.
func MAE(actual, forecast []float64) float64 {
	sum := 0.0
	for i, a := range actual {
		sum += abs(a - forecast[i])
	}
	return sum / float64(len(actual))
}

// SMAPE is the symmetric mean absolute percentage error as defined by the M4 competition: 200 |a −
// f| ÷ (|a| + |f|), and 0 where both are 0.
func SMAPE(actual, forecast []float64) float64 {
	sum := 0.0
	for i, a := range actual {
		if d := abs(a) + abs(forecast[i]); d > 0 {
			sum += 200 * abs(a-forecast[i]) / d
		}
	}
	return sum / float64(len(actual))
}

// Pinball is the mean pinball loss of a quantile's forecasts, without the factor of 2 that some
// authors use: a miss costs level per unit above and 1 − level per unit below (Gneiting and
// Raftery, 2007).
func Pinball(level float64, actual, quantile []float64) float64 {
	sum := 0.0
	for i, a := range actual {
		if a >= quantile[i] {
			sum += float64(level * (a - quantile[i]))
		} else {
			sum += float64((1 - level) * (quantile[i] - a))
		}
	}
	return sum / float64(len(actual))
}

// Coverage is the share of values that are not above the forecast of a quantile. For a forecast
// with point masses it exceeds the quantile's level even if the forecast is right; [QuantileScore]
// corrects for those.
func Coverage(actual, quantile []float64) float64 {
	n := 0
	for i, a := range actual {
		if a <= quantile[i] {
			n++
		}
	}
	return float64(n) / float64(len(actual))
}
