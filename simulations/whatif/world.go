package whatif

import (
	"fmt"
	"math"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
)

// world is how things go in one draw of a course. Factors are in millionths.
type world struct {
	factor, added  []int64 // demand, by pool and epoch: times, and units more
	onDemand, spot []int64 // prices, by pool and epoch: times
	quota          []int64 // limits, by quota and epoch: as it is then
	down           []int64 // share of guaranteed capacity that is broken, by pool
	avail          []int64 // spot units that can be had, by pool
	bought         []int64 // cost of what is bought, by offer: times
	held           []int64 // cost of what is held, by commitment: times
	late           []int64 // hours that an offer comes later, by offer
	fxFrom         []int   // epoch from which an offer's currency is worth otherwise
	fxHeld         []int   // the same of what is held
	windows        []window
	epochs         int
}

// window is hours in which capacity of a pool is not there.
type window struct {
	pool     int
	from, to int // hours of the horizon
	units    int64
	whole    bool // all of it, and spot and on-demand with it
}

func (c *course) newWorld(m *compiled) *world {
	n := len(m.pools) * len(m.spans)
	return &world{
		factor: make([]int64, n), added: make([]int64, n), onDemand: make([]int64, n), spot: make([]int64, n), quota: make([]int64, len(c.in.Quotas)*len(m.spans)),
		down: make([]int64, len(m.pools)), avail: make([]int64, len(m.pools)), bought: make([]int64, len(c.in.Offers)), late: make([]int64, len(c.in.Offers)),
		held: make([]int64, len(c.in.Commitments)), fxFrom: make([]int, len(c.in.Offers)), fxHeld: make([]int, len(c.in.Commitments)), epochs: len(m.spans),
	}
}

func fill(of []int64, v int64) {
	for i := range of {
		of[i] = v
	}
}

// ratio is a ÷ b in millionths, one where b is nothing.
func ratio(a, b domain.Decimal) int64 {
	if !b.IsPositive() {
		return one
	}
	return scaled(a.DivRound(b, 12))
}

// values are the numbers of a course in one draw, and random numbers that have no
// distribution of their own: when something begins.
type values struct {
	at     []domain.Decimal // by variable
	random func(name string) float64
}

// occurs reports whether a lever's change happens in a draw.
func (v *values) occurs(l *lever) bool { return l.happens < 0 || v.at[l.happens].IsPositive() }

func (v *values) get(i int) domain.Decimal {
	if i < 0 {
		return decimal.Zero
	}
	return v.at[i]
}

// set makes a world of values. What a change did to the instance at its median is
// undone by what it does in the draw.
func (w *world) set(c *course, m *compiled, v *values) error {
	for _, of := range [][]int64{w.factor, w.onDemand, w.spot, w.bought, w.held} {
		fill(of, one)
	}
	fill(w.added, 0)
	fill(w.down, 0)
	fill(w.late, 0)
	for i := range w.fxFrom {
		w.fxFrom[i] = 0
	}
	for i := range w.fxHeld {
		w.fxHeld[i] = 0
	}
	for p := range m.pools {
		w.avail[p] = m.pools[p].avail
	}
	for q := range c.in.Quotas {
		for e := range m.spans {
			w.quota[q*w.epochs+e] = m.quotaAt(q, e)
		}
	}
	w.windows = w.windows[:0]
	for i := range c.levers {
		if err := w.pull(c, m, &c.levers[i], v); err != nil {
			return fmt.Errorf("%s: %w", c.levers[i].name, err)
		}
	}
	return nil
}

// times multiplies factors of some pools from one epoch to another.
func (w *world) times(of []int64, pools []int, from, to int, by int64) {
	if by == one {
		return
	}
	for _, p := range pools {
		for e := from; e < to; e++ {
			of[p*w.epochs+e] = mulDiv(of[p*w.epochs+e], by, one)
		}
	}
}

func (w *world) pull(c *course, m *compiled, l *lever, v *values) error {
	occurs := v.occurs(l)
	value := v.get(l.value)
	switch l.kind {
	case DemandGrowth:
		return w.grow(l, value)
	case EfficiencyChange:
		if occurs {
			w.times(w.factor, l.pools, l.from, l.to, scaled(decimal.NewFromInt(1).DivRound(value, 12)))
		}
	case ModelLaunch, DeploymentChange:
		if !occurs {
			return nil
		}
		replicas := value.Ceil().IntPart()
		if l.times {
			replicas = value.Mul(decimal.NewFromInt(l.before)).Ceil().IntPart()
		}
		more := (replicas - l.before) * l.unit
		for _, p := range l.pools {
			for e := l.from; e < l.to; e++ {
				w.added[p*w.epochs+e] += more
			}
		}
	case ProviderOutage:
		if occurs {
			w.outages(m, l, v)
		}
	case Maintenance:
		if occurs {
			w.window(m, window{pool: l.pools[0], units: value.Ceil().IntPart() * one}, l.at, v.get(l.second))
		}
	case PriceChange:
		w.reprice(c, l, v, occurs)
	case NewOffer:
		by := one
		if x := c.number(l.value); x != nil {
			by = int(ratio(value, x.Median()))
		}
		for _, o := range l.offers {
			w.bought[o] = mulDiv(w.bought[o], w.offered(c, l, o, v, int64(by)), one)
			if x := c.number(l.third); x != nil {
				w.late[o] += lateHours(v.get(l.third), x.Median())
			}
		}
	case Renewal:
		for _, h := range l.held {
			w.held[h] = mulDiv(w.held[h], ratio(value, c.number(l.value).Median()), one)
		}
	case FailureRate:
		for _, p := range l.pools {
			gpus := cmp0(l.before, int64(m.pools[p].gpus))
			w.down[p] = min(one, w.down[p]+scaled(value.Mul(v.get(l.second)).Mul(decimal.NewFromInt(max(1, gpus)))))
		}
	case SpotInterruption:
		for _, p := range l.pools {
			if l.third >= 0 {
				w.avail[p] = v.get(l.third).IntPart() * one
			}
			if l.value >= 0 {
				lost := decimal.Min(decimal.New(95, -2), value.Mul(v.get(l.second)))
				kept := decimal.NewFromInt(1)
				w.times(w.spot, []int{p}, 0, w.epochs, ratio(kept.Sub(m.pools[p].over), kept.Sub(lost)))
			}
		}
	case LeadTime:
		for _, o := range l.offers {
			w.late[o] += lateHours(value, c.number(l.value).Median())
		}
	case QuotaChange:
		for _, q := range l.quotas {
			for e := l.from; e < l.to; e++ {
				switch {
				case occurs:
					w.quota[q*w.epochs+e] = value.IntPart()
				case l.from > 0:
					w.quota[q*w.epochs+e] = w.quota[q*w.epochs+l.from-1]
				}
			}
		}
	case FXChange:
		median := c.number(l.value).Median()
		by := ratio(value, median)
		if l.times {
			by = ratio(median, value)
		}
		w.times(w.onDemand, l.pools, l.from, l.to, by)
		w.times(w.spot, l.pools, l.from, l.to, by)
		for _, o := range l.offers {
			w.bought[o], w.fxFrom[o] = mulDiv(w.bought[o], by, one), l.from
		}
		for _, h := range l.held {
			w.held[h], w.fxHeld[h] = mulDiv(w.held[h], by, one), l.from
		}
	}
	return nil
}

func cmp0(a, b int64) int64 {
	if a != 0 {
		return a
	}
	return b
}

// number returns a variable's number, nil where there is none.
func (c *course) number(i int) *Number {
	if i < 0 {
		return nil
	}
	return c.vars.list[i].number
}

func lateHours(drawn, median domain.Decimal) int64 {
	return max(0, drawn.Sub(median).Ceil().IntPart())
}

// grow multiplies demand: by a factor from an epoch on, or month by month, where
// the first month has grown once.
func (w *world) grow(l *lever, value domain.Decimal) error {
	if l.times {
		w.times(w.factor, l.pools, l.from, l.to, scaled(value))
		return nil
	}
	const nano = 1_000_000_000
	rate := value.Shift(9).Round(0).IntPart()
	at := int64(nano)
	for e := l.from; e < w.epochs; e++ {
		if e < l.to {
			if at = mulDiv(at, nano+rate, nano); at > 1_000_000*nano/1000 {
				return fmt.Errorf("growth of %s a month comes to more than a thousandfold", value)
			}
		}
		w.times(w.factor, l.pools, e, e+1, at/1000)
	}
	return nil
}

// reprice multiplies prices by what was drawn over what the instance has.
func (w *world) reprice(c *course, l *lever, v *values, occurs bool) {
	n := c.number(l.value)
	drawn, has := v.get(l.value), n.Median()
	if l.happens >= 0 && l.times {
		// A probability is for factors: without the change they are 1.
		if !occurs {
			drawn = decimal.NewFromInt(1)
		}
		if x := c.number(l.happens); x.P[0].LessThan(decimal.New(5, -1)) {
			has = decimal.NewFromInt(1)
		}
	}
	by := ratio(drawn, has)
	if l.before&1 != 0 {
		w.times(w.onDemand, l.pools, l.from, l.to, by)
	}
	if l.before&2 != 0 {
		w.times(w.spot, l.pools, l.from, l.to, by)
	}
	for _, o := range l.offers {
		w.bought[o] = mulDiv(w.bought[o], by, one)
	}
}

// offered is what the price of a new offer comes to over what the instance has,
// of hourly and upfront together.
func (w *world) offered(c *course, l *lever, o int, v *values, hourly int64) int64 {
	up := c.number(l.second)
	if up == nil || up.Certain() {
		if c.number(l.value) == nil {
			return one
		}
		if f := &c.in.Offers[o]; f.Upfront.IsPositive() {
			return w.share(c, o, hourly, one)
		}
		return hourly
	}
	return w.share(c, o, hourly, ratio(v.get(l.second), up.Median()))
}

// share weighs two factors by what of an offer's price is paid by the hour.
func (w *world) share(c *course, o int, hourly, upfront int64) int64 {
	f := &c.in.Offers[o]
	byHour := f.Hourly.Mul(decimal.NewFromInt(int64(f.Term) * 730))
	total := byHour.Add(f.Upfront)
	if !total.IsPositive() {
		return one
	}
	part := scaled(byHour.DivRound(total, 12))
	return (hourly*part + upfront*(one-part)) / one
}

// outages places what takes a region or supplier away.
func (w *world) outages(m *compiled, l *lever, v *values) {
	place := func(at domain.Instant) {
		for _, p := range l.pools {
			w.window(m, window{pool: p, whole: true}, at, v.get(l.second))
		}
	}
	if l.value < 0 {
		place(l.at)
		return
	}
	first, last := m.spans[0].From, m.spans[len(m.spans)-1].To
	years := float(decimal.NewFromInt(int64((last-first)/domain.Hour)).DivRound(decimal.NewFromInt(8760), 12))
	n := poisson(min(float64(maxPoisson), float64(float(v.get(l.value))*years)), v.random(l.name+" count"))
	hours := m.starts[len(m.spans)]
	for k := range n {
		hour := int(math.Floor(float64(v.random(fmt.Sprintf("%s start %d", l.name, k)) * float64(hours))))
		place(first + domain.Instant(hour)*domain.Hour)
	}
}

// window places hours of the horizon; hours that have begun count whole, and of
// what began before the horizon what is left of it.
func (w *world) window(m *compiled, x window, at domain.Instant, hours domain.Decimal) {
	first := m.spans[0].From
	end := at + hoursOf(hours)
	at = max(at, first)
	x.from = int((at - first) / domain.Hour)
	x.to = min(int((end-first+domain.Hour-1)/domain.Hour), m.starts[len(m.spans)])
	if x.from < x.to {
		w.windows = append(w.windows, x)
	}
}

// clusters of windows: hours that any of them touches, ascending.
func hoursTouched(ws []window) []int {
	var out []int
	for _, x := range ws {
		for h := x.from; h < x.to; h++ {
			out = append(out, h)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
