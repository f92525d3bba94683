package whatif

import (
	"fmt"
	"math"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/reliability"
)

// world is the course of one trial of an alternative. Factors are in millionths.
type world struct {
	factor, added  []int64            // demand, by pool and epoch: factor, and whole units added
	buffer         []*instance.Buffer // by pool: the purpose of its spare units; nil: none
	spare          []*reliability.Buffer
	spareFor       []spares          // what spare was made from
	onDemand, spot []int64           // price factors, by pool and epoch
	quota          []int64           // limits, by quota and epoch
	avail          []int64           // available spot units, by pool
	lost           []decimal.Decimal // by pool: the share of spot time lost to interruptions
	bought         []terms           // cost of what is bought, by offer
	held           []terms           // cost of what is held, by commitment
	late           []int64           // hours by which an offer is late, by offer
	windows        []window
	epochs         int
}

// terms are the factors of the parts of a price.
type terms struct {
	hourly, upfront int64
	// fx is the factor of the currency's value from an epoch on.
	fx   int64
	from int
}

// spares is what a buffer was made from, so that it is made only once.
type spares struct {
	buffer *instance.Buffer
	top    int
	made   *reliability.Buffer
}

// window is hours in which capacity of a pool is missing.
type window struct {
	pool     int
	from, to int // hours of the horizon
	units    int64
	whole    bool // all of it, including spot and on-demand
}

func (c *composed) newWorld(m *compiled) *world {
	n, pools := len(m.pools)*len(m.spans), len(m.pools)
	return &world{
		factor: make([]int64, n), added: make([]int64, n), buffer: make([]*instance.Buffer, pools),
		spare: make([]*reliability.Buffer, pools), spareFor: make([]spares, pools),
		onDemand: make([]int64, n), spot: make([]int64, n), quota: make([]int64, len(c.in.Quotas)*len(m.spans)),
		avail: make([]int64, pools), lost: make([]decimal.Decimal, pools),
		bought: make([]terms, len(c.in.Offers)), late: make([]int64, len(c.in.Offers)),
		held: make([]terms, len(c.in.Commitments)), epochs: len(m.spans),
	}
}

func fill(of []int64, v int64) {
	for i := range of {
		of[i] = v
	}
}

// ratio is a ÷ b in millionths, one if b is zero.
func ratio(a, b domain.Decimal) int64 {
	if !b.IsPositive() {
		return one
	}
	return scaled(a.DivRound(b, 12))
}

// values are the numbers of an alternative in one trial, and what has no distribution of its own:
// how often something happens, and when it begins.
type values struct {
	at []domain.Decimal // by variable
	// outages is the number of outages of a lever with the given mean. start is when the k-th of n
	// begins, as a share of the horizon.
	outages func(l *lever, mean float64) int
	start   func(l *lever, k, n int) float64
}

// occurs reports whether a lever's change happens in a trial.
func (v *values) occurs(l *lever) bool { return l.happens < 0 || v.at[l.happens].IsPositive() }

func (v *values) get(i int) domain.Decimal {
	if i < 0 {
		return decimal.Zero
	}
	return v.at[i]
}

// set makes a world from values. A change's effect on the instance at its median is replaced by its
// effect in the trial.
func (w *world) set(c *composed, m *compiled, v *values) error {
	for _, of := range [][]int64{w.factor, w.onDemand, w.spot} {
		fill(of, one)
	}
	for _, of := range [][]terms{w.bought, w.held} {
		for i := range of {
			of[i] = terms{one, one, one, 0}
		}
	}
	fill(w.added, 0)
	fill(w.late, 0)
	for p := range m.pools {
		w.avail[p], w.lost[p], w.buffer[p] = m.pools[p].avail, m.pools[p].over, m.pools[p].buffer
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
	for i, n := range w.added {
		w.added[i] = ceil(n)
	}
	for p := range m.pools {
		if err := w.keepSpares(m, p); err != nil {
			return err
		}
	}
	return nil
}

// ceil rounds millionths up to whole units: added machines are whole ones, and of a partly removed
// machine the rest stays.
func ceil(millionths int64) int64 {
	n := millionths / one
	if n*one < millionths {
		n++
	}
	return n
}

// wanted is the demand of an hour of a pool in whole units: times its factor, to the nearest, plus
// what is added, plus the spare units.
func (w *world) wanted(p, e int, units int64) int64 {
	at := p*w.epochs + e
	n := (w.factor[at]*units+one/2)/one + w.added[at]
	if n <= 0 {
		return 0
	}
	if w.spare[p] != nil {
		return int64(w.spare[p].With(int(n)))
	}
	return n
}

// keepSpares makes the buffer of a pool for the largest demand.
func (w *world) keepSpares(m *compiled, p int) error {
	b := w.buffer[p]
	w.spare[p] = nil
	if b == nil {
		return nil
	}
	top := 0
	for e := range m.spans {
		c := &m.pools[p].epochs[e].curve
		if n := len(c.units); n > 0 {
			top = max(top, int(w.wanted(p, e, c.units[n-1])))
		}
	}
	if known := w.spareFor[p]; known.buffer == b && known.top >= top {
		w.spare[p] = known.made
		return nil
	}
	made, err := b.Spares(top)
	if err != nil {
		return fmt.Errorf("demand %s: spare units: %w", m.pools[p].demand, err)
	}
	w.spare[p], w.spareFor[p] = made, spares{b, top, made}
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

func (w *world) pull(c *composed, m *compiled, l *lever, v *values) error {
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
		for _, o := range l.offers {
			if x := c.number(l.value); x != nil {
				w.bought[o].hourly = mulDiv(w.bought[o].hourly, ratio(value, x.Median()), one)
			}
			if x := c.number(l.second); x != nil {
				w.bought[o].upfront = mulDiv(w.bought[o].upfront, ratio(v.get(l.second), x.Median()), one)
			}
			if x := c.number(l.third); x != nil {
				w.late[o] += lateHours(v.get(l.third), x.Median())
			}
		}
	case Renewal:
		if l.value < 0 { // it ends
			return nil
		}
		by := ratio(value, c.number(l.value).Median())
		for _, h := range l.held {
			w.held[h].hourly = mulDiv(w.held[h].hourly, by, one)
			if l.times {
				w.held[h].upfront = mulDiv(w.held[h].upfront, by, one)
			}
		}
	case FailureRate:
		for _, p := range l.pools {
			w.buffer[p] = l.failing(m, p, value, v.get(l.second))
		}
	case SpotInterruption:
		for _, p := range l.pools {
			if l.third >= 0 {
				w.avail[p] = v.get(l.third).IntPart() * one
			}
			if l.value >= 0 {
				lost := decimal.Min(decimal.New(95, -2), value.Mul(v.get(l.second)))
				w.lost[p] = lost
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
			for e := l.from; occurs && e < l.to; e++ {
				w.quota[q*w.epochs+e] = value.IntPart()
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
			w.bought[o].fx, w.bought[o].from = mulDiv(w.bought[o].fx, by, one), l.from
		}
		for _, h := range l.held {
			w.held[h].fx, w.held[h].from = mulDiv(w.held[h].fx, by, one), l.from
		}
	}
	return nil
}

// number returns a variable's number, nil if there is none.
func (c *composed) number(i int) *Number {
	if i < 0 {
		return nil
	}
	return c.vars.list[i].number
}

func lateHours(drawn, median domain.Decimal) int64 {
	return max(0, drawn.Sub(median).Ceil().IntPart())
}

// grow multiplies demand by a factor from an epoch on, or month by month, with one growth step in
// the first month.
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
				return unfit("growth of %s a month comes to more than a thousandfold", value)
			}
		}
		w.times(w.factor, l.pools, e, e+1, at/1000)
	}
	return nil
}

// reprice multiplies prices by the drawn value over the instance's value.
func (w *world) reprice(c *composed, l *lever, v *values, occurs bool) {
	n := c.number(l.value)
	drawn, has := v.get(l.value), n.Median()
	if l.happens >= 0 && l.times {
		// A probability is only allowed for factors: without the change they are 1.
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
		w.bought[o].hourly = mulDiv(w.bought[o].hourly, by, one)
		if l.times {
			w.bought[o].upfront = mulDiv(w.bought[o].upfront, by, one)
		}
	}
}

// failing is the buffer of a pool whose machines fail at a given rate: the demand's own buffer at
// that rate, or one for the service level failureLevel.
func (l *lever) failing(m *compiled, p int, perGPUHour, repairHours domain.Decimal) *instance.Buffer {
	b := instance.Buffer{ServiceLevel: failureLevel, GPUsPerUnit: max(1, m.pools[p].gpus), UnitsPerNode: 1}
	if own := m.pools[p].buffer; own != nil {
		b = *own
	}
	if l.before > 0 {
		b.GPUsPerUnit = int(l.before)
	}
	b.FailuresPerGPUHour, b.RepairHours, b.Counted = perGPUHour, repairHours, 0 // a rate that is supposed is known
	if q := b.Unavailability(); q.GreaterThan(mostDown) {
		b.RepairHours = repairHours.Mul(mostDown).DivRound(q, places).Truncate(places - 1)
	}
	return &b
}

// mostDown is the largest share of time that a machine may be down: a machine that is down more
// often than up is not a spare.
var mostDown = decimal.New(5, -1)

// failureLevel is the default service level: the probability that all demand is up although
// machines fail.
var failureLevel = decimal.New(99, -2)

// outages places outages of a region or supplier.
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
	first := m.spans[0].From
	n := v.outages(l, l.mean(m, v.get(l.value)))
	hours := m.starts[len(m.spans)]
	for k := range n {
		hour := int(math.Floor(float64(v.start(l, k, n) * float64(hours))))
		place(first + domain.Instant(hour)*domain.Hour)
	}
}

// mean is the mean number of outages over the horizon.
func (l *lever) mean(m *compiled, perYear domain.Decimal) float64 {
	hours := m.starts[len(m.spans)]
	years := float(decimal.NewFromInt(int64(hours)).DivRound(decimal.NewFromInt(8760), 12))
	return float64(float(perYear) * years)
}

// window places hours of the horizon. Hours that have begun count whole, and of an outage that
// began before the horizon the rest counts.
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

// hoursTouched returns the hours that any window touches, ascending.
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
