package forecast

import "slices"

// names of the candidates. Ties are resolved in this order.
var names = []string{
	"seasonal naive",
	"weekly profile with damped trend",
	"double-seasonal exponential smoothing",
	"mean of profile and smoothing",
	"mean of robust profile and smoothing",
}

// Candidates names the models that a forecast chooses from.
func Candidates() []string { return slices.Clone(names) }

// candidates forecasts the hours after an origin with every model. learn is the hours before it, at
// least two weeks.
func candidates(learn []float64, hours int) [][]float64 {
	means := weekly(learn)
	shape := profile(learn, means, min(len(means), 8))
	trend, smooth := profileTrend(shape, means, hours), doubleSeasonal(learn, hours)
	robust := profileTrend(shape, medians(means), hours)
	return [][]float64{
		seasonalNaive(learn, hours), trend, smooth, between(trend, smooth), between(robust, smooth),
	}
}

// between is the mean of two forecasts.
func between(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for h := range out {
		out[h] = (a[h] + b[h]) / 2
	}
	return out
}

// seasonalNaive repeats the last week.
func seasonalNaive(learn []float64, hours int) []float64 {
	out := make([]float64, hours)
	for h := range out {
		out[h] = learn[len(learn)-Week+h%Week]
	}
	return out
}

// weekly is the mean of each whole week, the last of which ends with the hours.
func weekly(learn []float64) []float64 {
	means := make([]float64, len(learn)/Week)
	first := len(learn) - len(means)*Week
	for w := range means {
		means[w] = mean(learn[first+w*Week : first+(w+1)*Week])
	}
	return means
}

// medians is the median of each week and the two before it. The level of one exceptional week has no
// effect. A lasting change is seen after two weeks.
func medians(means []float64) []float64 {
	out := make([]float64, len(means))
	for w := range out {
		out[w] = median(slices.Clone(means[max(0, w-2) : w+1]))
	}
	return out
}

// profileTrend is the median weekly pattern of the last eight weeks, each relative to its mean, at
// a level that follows the weekly means by Holt's method with a damped trend (Gardner and McKenzie,
// 1985). Its three parameters are chosen from a small grid: those that best forecast the next
// week's mean.
func profileTrend(shape, means []float64, hours int) []float64 {
	levels := holt(means, (hours+Week-1)/Week)
	out := make([]float64, hours)
	for h := range out {
		out[h] = max(0, float64(shape[h%Week]*levels[h/Week]))
	}
	return out
}

// profile is the median over the last weeks of each hour of the week, relative to its week's mean.
func profile(learn, means []float64, over int) []float64 {
	shape := make([]float64, Week)
	buf := make([]float64, 0, over)
	total := 0.0
	for h := range shape {
		buf = buf[:0]
		for k := range over {
			if m := means[len(means)-1-k]; m > 0 {
				buf = append(buf, learn[len(learn)-(k+1)*Week+h]/m)
			}
		}
		if len(buf) > 0 {
			shape[h] = median(buf)
		}
		total += shape[h]
	}
	if total > 0 {
		for h := range shape {
			shape[h] = shape[h] * Week / total
		}
	}
	return shape
}

// holt returns the levels of the next weeks.
func holt(means []float64, weeks int) []float64 {
	var best []float64
	least := 0.0
	for _, alpha := range []float64{0.3, 0.5, 0.8} {
		for _, beta := range []float64{0.05, 0.2} {
			for _, phi := range []float64{0.8, 0.9} {
				level, trend, sum := means[0], 0.0, 0.0
				for _, m := range means[1:] {
					ahead := level + float64(phi*trend)
					e := m - ahead
					sum += abs(e)
					next := ahead + float64(alpha*e)
					trend = float64(beta*(next-level)) + float64((1-beta)*float64(phi*trend))
					level = next
				}
				if best != nil && sum >= least {
					continue
				}
				least = sum
				best = make([]float64, weeks)
				damped, power := 0.0, 1.0
				for k := range best {
					power = float64(power * phi)
					damped += power
					best[k] = max(0, level+float64(damped*trend))
				}
			}
		}
	}
	return best
}

// doubleSeasonal is Taylor's exponential smoothing with a day and a week as
// seasons and a correction for the last error (Taylor, 2003), additive, without
// trend.
func doubleSeasonal(learn []float64, hours int) []float64 {
	const (
		day   = 24
		alpha = 0.02 // level
		delta = 0.10 // day
		omega = 0.20 // week
		rho   = 0.80 // of the last error
	)
	level := mean(learn[:Week])
	var daily [day]float64
	for h := range Week {
		daily[h%day] += (learn[h] - level) / 7
	}
	var weekly [Week]float64
	for h := range weekly {
		weekly[h] = learn[h] - level - daily[h%day]
	}
	last := 0.0
	for i := Week; i < len(learn); i++ {
		d, w := &daily[i%day], &weekly[i%Week]
		smooth := level + *d + *w
		e := learn[i] - smooth - float64(rho*last)
		last = learn[i] - smooth
		level += float64(alpha * e)
		*d += float64(delta * e)
		*w += float64(omega * e)
	}
	out := make([]float64, hours)
	for h := range out {
		i := len(learn) + h
		last = float64(rho * last)
		out[h] = max(0, level+daily[i%day]+weekly[i%Week]+last)
	}
	return out
}
