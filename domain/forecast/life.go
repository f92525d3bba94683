package forecast

import "slices"

// Demand for a machine type ends when a successor replaces it. That is seldom in a type's own
// history, so scenarios draw the end from an assumed distribution of lives. Its shape and the share
// that stays are assumptions, too; the mean is the planner's ([Spread.Life]).
//
// A life is Weibull with shape 3, an ageing type, except for a small share of types that stay whatever
// their age: what has been seen for long is among them. If the demand began within the history, its
// age is known. Otherwise it is that of a stationary process of replacements that has been observed as
// long as the history: the longer a type has been seen, the sooner it is replaced, or the more likely
// it stays.

// Life is the default mean life in months. Generations of one cloud's GPU machines came 36, 33 and 22
// months after each other (AWS p3 in October 2017, p4d in November 2020, p5 in July 2023, p6 in May
// 2025). Of lives of 24, 30 and 36 months and shapes 3 and 4, each of the two regions of Shaved Ice
// alone chooses this one: the advice has the least regret.
const Life = 24

// MaxLife bounds a mean life, in months.
const MaxLife = 1200

const (
	stays = 0.02    // share of types that are not replaced
	scale = 1.11985 // of a Weibull distribution with shape 3 and mean 1: 1 ÷ Γ(4/3)
	month = 730     // hours

	unborn = 4 * Week // hours without demand before a beginning that counts as seen
)

// age is what a history says of the age of its demand.
type age struct {
	months float64 // since it was first seen
	born   bool    // its beginning was seen
}

// ageOf reads a history of hours.
func ageOf(history []int64) age {
	first := slices.IndexFunc(history, func(v int64) bool { return v > 0 })
	if first < 0 {
		return age{born: true}
	}
	none := 0
	for _, v := range history[:first] {
		if v == 0 {
			none++
		}
	}
	return age{float64(len(history)-first) / month, none >= unborn}
}

// halves is the number of steps in which lives are counted: half months, over several mean lives.
func halves(mean int) int { return 8 * mean }

// survival is the probability that demand of an age lasts that many half months more, from zero on.
func (a age) survival(mean, steps int) []float64 {
	// alive is the probability that a type reaches an age, in half months.
	alive := make([]float64, halves(mean)+1)
	for i := range alive {
		x := float64(i) / float64(float64(2*mean)*scale)
		alive[i] = expMinus(float64(float64(x*x) * x))
	}
	if !a.born {
		// Of a stationary process: the chance to be seen so long is in proportion to the lives beyond.
		for i := len(alive) - 2; i >= 0; i-- {
			alive[i] += alive[i+1]
		}
	}
	first := int(float64(a.months*2) + 0.5)
	at := func(i int) float64 {
		if i >= len(alive) {
			return stays
		}
		return stays + float64((1-stays)*(alive[i]/alive[0]))
	}
	out := make([]float64, steps)
	for i := range out {
		out[i] = at(first+i) / at(first)
	}
	return out
}

// ends is the hour in which demand ends in a scenario, the number of hours if it does not. Numbers of
// scenarios are spread evenly over the distribution (van der Corput), so that few scenarios have
// short and long lives alike and the first of many are the same as few. In the first it never ends.
func ends(survival []float64, scenario, hours int) int {
	u, part := 0.0, 0.5
	for n := scenario; n > 0; n /= 2 {
		u += float64(part * float64(n%2))
		part /= 2
	}
	for i, s := range survival {
		if s < u {
			return min(hours, i*month/2)
		}
	}
	return hours
}

// expMinus is e⁻ʸ for y ≥ 0, by the four operations alone so that it is the same on every machine.
func expMinus(y float64) float64 {
	if y > 700 {
		return 0
	}
	z := float64(y / 4096) // a division by a power of two is compiled to a product, and then fused
	e := 1 - z + float64(float64(z*z)/2) - float64(float64(float64(z*z)*z)/6)
	for range 12 {
		e = float64(e * e)
	}
	return e
}

// Left is the mean of demand in some months after a span of months, relative to its mean in the span, in
// millionths and at most 1,000,000: with growth beyond the forecast and ends of lives as [Forecast.Scenarios]
// draws them, without the errors of the forecast. The span begins with the forecast. growth and life are
// those of a [Spread].
func (f *Forecast) Left(growth int64, life, span, after int) int64 {
	if span < 1 || after < 1 {
		return 1_000_000
	}
	var survival []float64
	if life > 0 {
		survival = f.age.survival(life, 2*(span+after)+2)
	}
	within, beyond, level := 0.0, 0.0, 1.0
	for m := range span + after {
		if m > 0 && m%3 == 0 && growth > 0 { // from the first quarter on, the length of a forecast
			level = min(float64(level*float64(growth))/1_000_000, 1e9)
		}
		use := level
		if survival != nil {
			use = float64(level * survival[2*m+1])
		}
		if m < span {
			within += use
		} else {
			beyond += use
		}
	}
	share := float64(beyond*float64(span)) / float64(within*float64(after))
	return int64(float64(min(share, 1)*1_000_000) + 0.5)
}
