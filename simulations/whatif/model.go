package whatif

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"slices"
	"sort"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
)

// Quantities are in millionths of a unit, prices in 10⁻⁹ of the currency and
// amounts in 10⁻⁶ of it, all in 64 bits: maxUnits, maxPrice and maxTotal keep
// every sum within them.
const (
	one          = 1_000_000
	maxUnits     = 1_000_000
	maxPrice     = 1_000_000 // of the currency, for a unit and hour
	maxTotal     = 1_000_000_000_000
	priceDigits  = 9
	unlimited    = math.MaxInt64
	noSpotBounds = math.MaxInt64
)

// compiled is an instance made ready to be evaluated often: for each pool and epoch
// the load-duration curve with its sums, so that serving an epoch takes a few
// binary searches, whatever the hours.
type compiled struct {
	in     *instance.Instance
	spans  []domain.Interval
	starts []int // first hour of each epoch, and the end
	pools  []poolModel
	pays   []payment // what is held
	cold   int64     // what a cold standby costs, in amounts
	spill  []route
	// quotaShare: of a shared quota each pool has a part.
	notes []string
}

type poolModel struct {
	hourly []int32
	spot   []int32 // of each hour's demand, what may run on spot, in whole units
	// permille of demand may run on spot.
	permille int64
	epochs   []epochModel
	// protected is the share of demand that another region takes over, in
	// millionths; 0: none.
	protected int64
	avail     int64 // spot units that can be had
	quota     int   // index, −1: none
	part      int64 // of the quota, in millionths
	perUnit   int64
	gpus      int
	region    string
	over      domain.Decimal // share of spot time that interruptions lose
}

// route is where demand goes when its pool is gone.
type route struct {
	from, to int
	price    int64 // by epoch it is the same: nominal, discounted with the middle
	overhead int64 // in millionths
}

type epochModel struct {
	curve          curve
	onDemand, spot int64 // price of a unit and hour; −1: there is none
	shortage       int64
	quota          int64 // units, in millionths
	discount       domain.Decimal
}

// curve is the hours of an epoch by ascending demand. after[i] sums over the
// hours from i on.
type curve struct {
	units, rest []int64 // demand, and what of it may not run on spot, in whole units
	hours       []int64 // suffix sums
	sumUnits    []int64 // of units × hours
	sumRest     []int64 // of rest × hours
}

// line is a level of demand to be cut off: of demand, or of what of it may not run
// on spot. As the log has it that is whole units, rounded as procurement rounds;
// grown demand is not rounded, and then it is so many thousandths of demand.
type line struct {
	a, b     int64
	rest     bool
	permille int64 // of demand that may run on spot; 0 where rest is whole units
}

// payment is what is paid for capacity, whatever it serves.
type payment struct {
	amount int64 // in all
	pool   int
	// spread is the part of the amount in each epoch, and units the capacity that
	// is had for it, to say what an idle unit cost.
	from, to   int
	units      int64
	guaranteed bool
	offer      int // index into the offers, −1
	held       int // index into the commitments, −1
	begins     domain.Instant
	hourlyPart int64 // of the amount, in millionths: paid by the hour
	ramp       []instance.RampStep
}

// newModel compiles an instance and what is bought.
func newModel(in *instance.Instance, spans []domain.Interval) (*compiled, error) {
	m := &compiled{in: in, spans: spans, starts: make([]int, len(spans)+1)}
	for i, s := range spans {
		m.starts[i+1] = m.starts[i] + int((s.To-s.From)/domain.Hour)
	}
	mid, begin, err := discounts(in, spans)
	if err != nil {
		return nil, err
	}
	quotas := map[string]int{}
	for i := range in.Quotas {
		quotas[in.Quotas[i].ID] = i
	}
	for p := range in.Pools {
		pool := &in.Pools[p]
		x := poolModel{avail: noSpotBounds, quota: -1, part: one, perUnit: 1, gpus: pool.GPUs, region: pool.Region, epochs: make([]epochModel, len(spans))}
		if pool.Spot != nil {
			x.over = pool.Spot.Overhead
			if pool.Spot.Available != nil {
				x.avail = int64(*pool.Spot.Available) * one
			}
		}
		if pool.Quota != "" {
			x.quota, x.perUnit = quotas[pool.Quota], int64(max(1, pool.QuotaPerUnit))
		}
		d := slices.IndexFunc(in.Demands, func(d instance.Demand) bool { return d.Pool == pool.ID })
		shortage := decimal.Zero
		if d >= 0 {
			demand := &in.Demands[d]
			if x.hourly, err = hourly(demand, m.starts); err != nil {
				return nil, err
			}
			x.permille, shortage = demand.Interruptible.Shift(3).IntPart(), demand.Shortage
			if in.Posture != nil && (len(in.Posture.Demands) == 0 || slices.Contains(in.Posture.Demands, demand.ID)) {
				x.protected = scaled(in.Posture.Share)
			}
		} else {
			x.hourly = make([]int32, m.starts[len(spans)])
		}
		x.spot = make([]int32, len(x.hourly))
		for h, u := range x.hourly {
			if u < 0 || u > maxUnits {
				return nil, fmt.Errorf("pool %s: %d units wanted in an hour, at most %d are drawn", pool.ID, u, maxUnits)
			}
			x.spot[h] = int32(int64(u) * x.permille / 1000)
		}
		for e := range spans {
			y := &x.epochs[e]
			y.discount = mid[e]
			y.curve = newCurve(x.hourly[m.starts[e]:m.starts[e+1]], x.spot[m.starts[e]:m.starts[e+1]])
			y.onDemand, y.spot, y.quota = -1, -1, unlimited
			if pool.OnDemand != nil {
				if y.onDemand, err = price(priceAt(pool.OnDemand, spans[e].From), mid[e], in); err != nil {
					return nil, fmt.Errorf("pool %s on demand: %w", pool.ID, err)
				}
			}
			if pool.Spot != nil {
				over := decimal.NewFromInt(1).Sub(pool.Spot.Overhead)
				if y.spot, err = price(priceAt(&pool.Spot.Price, spans[e].From).DivRound(over, 30), mid[e], in); err != nil {
					return nil, fmt.Errorf("pool %s spot: %w", pool.ID, err)
				}
			}
			if y.shortage, err = price(shortage, mid[e], in); err != nil {
				return nil, fmt.Errorf("pool %s shortage: %w", pool.ID, err)
			}
			y.shortage = max(y.shortage, y.onDemand, y.spot)
		}
		m.pools = append(m.pools, x)
	}
	m.shareQuotas()
	for p := range m.pools {
		x := &m.pools[p]
		if x.quota < 0 {
			continue
		}
		for e := range spans {
			x.epochs[e].quota = x.quotaOf(int64(quotaAt(&in.Quotas[x.quota], spans[e].From)))
		}
	}
	m.failover()
	return m, m.hold(mid, begin)
}

// quotaOf is how many units a pool may have on demand of a limit.
func (x *poolModel) quotaOf(limit int64) int64 {
	units := mulDiv(limit, x.part, x.perUnit)
	return units / one * one // whole units
}

// shareQuotas divides quotas that several pools draw on, by the demand of each in
// units of the quota.
func (m *compiled) shareQuotas() {
	for q := range m.in.Quotas {
		total, used := int64(0), 0
		weight := make([]int64, len(m.pools))
		for p := range m.pools {
			if x := &m.pools[p]; x.quota == q {
				used++
				for e := range x.epochs {
					weight[p] += x.epochs[e].curve.sumUnits[0] * x.perUnit
				}
				total += weight[p]
			}
		}
		if used < 2 || total == 0 {
			continue
		}
		for p := range m.pools {
			if m.pools[p].quota == q {
				m.pools[p].part = mulDiv(weight[p], one, total)
			}
		}
		m.notes = append(m.notes, fmt.Sprintf("quota %s is shared by %d pools: in a draw each has the part that its demand has of theirs", m.in.Quotas[q].ID, used))
	}
}

func quotaAt(q *instance.Quota, t domain.Instant) int {
	limit := q.Limit
	for _, s := range q.Path {
		if s.From <= t {
			limit = s.Limit
		}
	}
	return limit
}

func priceAt(p *instance.Price, t domain.Instant) domain.Decimal {
	hourly := p.Hourly
	for _, s := range p.Path {
		if s.From <= t {
			hourly = s.Hourly
		}
	}
	return hourly
}

// hourly is a demand by the hour. One that is given as curves lies in ascending
// hours of each epoch, which matters for outages alone.
func hourly(d *instance.Demand, starts []int) ([]int32, error) {
	n := starts[len(starts)-1]
	out := make([]int32, n)
	if len(d.Hourly) > 0 {
		if len(d.Hourly) != n {
			return nil, fmt.Errorf("demand %s: %d hours, the horizon has %d", d.ID, len(d.Hourly), n)
		}
		for i, u := range d.Hourly {
			out[i] = int32(min(u, math.MaxInt32))
		}
		return out, nil
	}
	for e := range d.Duration {
		if e >= len(starts)-1 {
			return nil, fmt.Errorf("demand %s: %d load-duration curves, the horizon has %d epochs", d.ID, len(d.Duration), len(starts)-1)
		}
		total := 0
		for _, s := range d.Duration[e] {
			total += s.Hours
		}
		at := starts[e+1] - total
		if at < starts[e] {
			return nil, fmt.Errorf("demand %s: epoch %d has %d hours of demand, it lasts %d", d.ID, e, total, starts[e+1]-starts[e])
		}
		for _, s := range d.Duration[e] {
			for range s.Hours {
				out[at] = int32(min(s.Units, math.MaxInt32))
				at++
			}
		}
	}
	return out, nil
}

// scaled is a decimal in millionths, rounded.
func scaled(d domain.Decimal) int64 { return d.Shift(6).Round(0).IntPart() }

// price is a price of a unit and hour, discounted.
func price(d, discount domain.Decimal, in *instance.Instance) (int64, error) {
	if d.IsNegative() || d.GreaterThan(decimal.NewFromInt(maxPrice)) {
		return 0, fmt.Errorf("price %s %s of a unit and hour: want 0 to %d", d, in.Currency, maxPrice)
	}
	return d.Mul(discount).Shift(priceDigits).Round(0).IntPart(), nil
}

// discounts returns the factors of what is paid by the hour in each epoch, and of
// what is paid as it begins: (1 + rate) to minus the years, of which a month is
// the twelfth and a day the 365th.
func discounts(in *instance.Instance, spans []domain.Interval) (middle, begin []domain.Decimal, err error) {
	const digits = 30
	oneUnit := decimal.NewFromInt(1)
	per := int64(12)
	if in.Epoch == instance.Days {
		per = 365
	}
	root := func(of int64) (domain.Decimal, error) {
		if in.AnnualRate.IsZero() {
			return oneUnit, nil
		}
		return oneUnit.Add(in.AnnualRate).PowWithPrecision(oneUnit.DivRound(decimal.NewFromInt(of), digits), digits)
	}
	whole, err := root(per)
	if err != nil {
		return nil, nil, fmt.Errorf("annual rate %s: %w", in.AnnualRate, err)
	}
	half, err := root(2 * per)
	if err != nil {
		return nil, nil, fmt.Errorf("annual rate %s: %w", in.AnnualRate, err)
	}
	step, halfStep := oneUnit.DivRound(whole, digits), oneUnit.DivRound(half, digits)
	at := oneUnit
	for range spans {
		begin, middle = append(begin, at), append(middle, at.Mul(halfStep))
		at = at.Mul(step).Round(digits)
	}
	return middle, begin, nil
}

func newCurve(units, spot []int32) curve {
	type level struct{ units, spot int32 }
	levels := make([]level, len(units))
	for i := range units {
		levels[i] = level{units[i], spot[i]}
	}
	slices.SortFunc(levels, func(a, b level) int { return int(a.units) - int(b.units) })
	c := curve{}
	var count []int64
	for i, l := range levels {
		if i > 0 && l == levels[i-1] {
			count[len(count)-1]++
			continue
		}
		c.units, c.rest, count = append(c.units, int64(l.units)), append(c.rest, int64(l.units-l.spot)), append(count, 1)
	}
	n := len(c.units)
	c.hours, c.sumUnits, c.sumRest = make([]int64, n+1), make([]int64, n+1), make([]int64, n+1)
	for i := n - 1; i >= 0; i-- {
		c.hours[i] = c.hours[i+1] + count[i]
		c.sumUnits[i] = c.sumUnits[i+1] + count[i]*c.units[i]
		c.sumRest[i] = c.sumRest[i+1] + count[i]*c.rest[i]
	}
	return c
}

// above sums what of a·units + b (or a·rest + b) is above x over the hours from lo
// to hi, in unit-hours.
func (c *curve) above(l line, x int64, lo, hi int) int64 {
	if x >= unlimited/2 || lo >= hi {
		return 0
	}
	of, sum := c.units, c.sumUnits
	if l.rest && l.permille == 0 {
		of, sum = c.rest, c.sumRest
	}
	kept := int64(1000)
	if l.rest {
		kept -= l.permille
	}
	// a·kept is below 10¹², units below 10⁶.
	i := lo + sort.Search(hi-lo, func(i int) bool { return mulDiv(l.a*kept, of[lo+i], 1000) > x-l.b })
	if i >= hi {
		return 0
	}
	return mulDiv(l.a*kept, sum[i]-sum[hi], 1000) + (l.b-x)*(c.hours[i]-c.hours[hi])
}

// mulDiv is a·b ÷ c of numbers that are not negative, rounded down, without
// overflow in between.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// cost is unit-hours in millionths at a price, as an amount, half rounded up.
func cost(unitHours, price int64) int64 {
	if unitHours <= 0 || price <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(unitHours), uint64(price))
	lo, carry := bits.Add64(lo, 500_000_000, 0)
	hi += carry
	if hi >= 1_000_000_000 {
		return math.MaxInt64 / 4
	}
	q, _ := bits.Div64(hi, lo, 1_000_000_000)
	return int64(min(q, math.MaxInt64/4))
}

// failover says where the demand of a pool goes while it is gone: to pools of its
// class, by the posture or along spill.
func (m *compiled) failover() {
	in := m.in
	for p := range in.Pools {
		for q := range in.Pools {
			if p == q || in.Pools[p].Class != in.Pools[q].Class || in.Pools[p].Region == in.Pools[q].Region {
				continue
			}
			r := route{from: p, to: q, overhead: one}
			i := slices.IndexFunc(in.Spill, func(s instance.Spill) bool { return s.From == in.Pools[p].Region && s.To == in.Pools[q].Region })
			if i >= 0 {
				r.price = in.Spill[i].Hourly.Shift(priceDigits).Round(0).IntPart()
				r.overhead = one + scaled(in.Spill[i].Overhead)
			}
			posture := in.Posture != nil && m.pools[p].protected > 0 && (in.Posture.Kind == instance.ActiveActive || in.Posture.Standby == in.Pools[q].Region)
			if posture || i >= 0 {
				if !posture {
					m.pools[p].protected = one
				}
				m.spill = append(m.spill, r)
			}
		}
	}
}

// hold adds up what is held already, and what a cold standby costs.
func (m *compiled) hold(mid, begin []domain.Decimal) error {
	for h := range m.in.Commitments {
		c := &m.in.Commitments[h]
		p := slices.IndexFunc(m.in.Pools, func(x instance.Pool) bool { return x.ID == c.Pool })
		if p < 0 {
			continue
		}
		to := c.Term.To
		if to == 0 {
			to = forever
		}
		sum, byHour := decimal.Zero, decimal.Zero
		pay := payment{pool: p, from: len(m.spans), units: int64(c.Units) * one, guaranteed: c.GuaranteesCapacity, offer: -1, held: h, begins: c.Term.From}
		for e, span := range m.spans {
			if span.From <= c.Term.From && c.Term.From < span.To {
				sum = sum.Add(c.Upfront.Mul(begin[e]))
			}
			within := min(to, span.To) - max(c.Term.From, span.From)
			if within > 0 {
				hours := decimal.NewFromInt(int64(within)).DivRound(decimal.NewFromInt(int64(domain.Hour)), 30)
				byHour = byHour.Add(c.Hourly.Mul(decimal.NewFromInt(int64(c.Units))).Mul(hours).Mul(mid[e]))
			}
			if c.Term.From <= span.From && span.To <= to {
				pay.from, pay.to = min(pay.from, e), e+1
			}
		}
		var err error
		if pay.amount, err = amountOf(sum.Add(byHour), m.in); err != nil {
			return fmt.Errorf("commitment %s: %w", c.ID, err)
		}
		if total := sum.Add(byHour); total.IsPositive() {
			pay.hourlyPart = scaled(byHour.DivRound(total, 12))
		}
		pay.from = min(pay.from, pay.to)
		m.pays = append(m.pays, pay)
	}
	if p := m.in.Posture; p != nil && p.Kind == instance.ActivePassive && p.Cold != nil {
		// The standby keeps room for the most that any other region needs of a class.
		sum := decimal.Zero
		for q := range m.in.Pools {
			if m.in.Pools[q].Region != p.Standby {
				continue
			}
			for e, span := range m.spans {
				peak := int64(0)
				for k := range m.pools {
					if m.in.Pools[k].Class == m.in.Pools[q].Class && k != q && m.pools[k].protected > 0 {
						c := &m.pools[k].epochs[e].curve
						peak = max(peak, mulDiv(c.units[len(c.units)-1]*one, m.pools[k].protected, one))
					}
				}
				hours := decimal.NewFromInt(int64((span.To - span.From) / domain.Hour))
				if m.pools[q].epochs[e].onDemand > 0 {
					sum = sum.Add(decimal.New(peak, -6).Ceil().Mul(hours).Mul(decimal.New(m.pools[q].epochs[e].onDemand, -priceDigits)).Mul(*p.Cold))
				}
			}
		}
		var err error
		if m.cold, err = amountOf(sum, m.in); err != nil {
			return fmt.Errorf("cold standby: %w", err)
		}
	}
	return nil
}

// amountOf is money as an amount.
func amountOf(d domain.Decimal, in *instance.Instance) (int64, error) {
	if d.Abs().GreaterThan(decimal.NewFromInt(maxTotal)) {
		return 0, fmt.Errorf("%s %s is more than draws add up", d, in.Currency)
	}
	return d.Shift(6).Round(0).IntPart(), nil
}

// bought adds what an answer buys.
func (m *compiled) bought(a *instance.Answer) error {
	for i := range a.Purchases {
		b := &a.Purchases[i]
		pay := payment{pool: -1, offer: -1, held: -1, begins: b.Term.From, units: int64(b.Covers) * one, from: len(m.spans)}
		pool := b.Pool
		var hourly, upfront domain.Decimal
		if o := slices.IndexFunc(m.in.Offers, func(o instance.Offer) bool { return o.ID == b.Offer }); o >= 0 && b.Offer != "" {
			pay.offer, pay.guaranteed, pay.ramp = o, m.in.Offers[o].GuaranteesCapacity, m.in.Offers[o].Ramp
			pool, hourly, upfront = m.in.Offers[o].Pool, m.in.Offers[o].Hourly, m.in.Offers[o].Upfront
		} else if h := slices.IndexFunc(m.in.Commitments, func(c instance.Commitment) bool { return c.ID == b.Commitment }); h >= 0 {
			pay.held, pay.guaranteed, pool = h, m.in.Commitments[h].GuaranteesCapacity, m.in.Commitments[h].Pool
			hourly = m.in.Commitments[h].Hourly
		} else {
			return fmt.Errorf("purchase %d is of nothing that is offered or held: %q%q", i, b.Offer, b.Commitment)
		}
		pay.pool = slices.IndexFunc(m.in.Pools, func(x instance.Pool) bool { return x.ID == pool })
		if pay.pool < 0 {
			return fmt.Errorf("purchase %d of %q is for no pool", i, b.Offer)
		}
		for e, span := range m.spans {
			if b.Term.From <= span.From && span.To <= b.Term.To {
				pay.from, pay.to = min(pay.from, e), e+1
			}
		}
		pay.from = min(pay.from, pay.to)
		var err error
		if pay.amount, err = amountOf(b.Cost, m.in); err != nil {
			return fmt.Errorf("purchase of %s: %w", b.Offer, err)
		}
		hours := hourly.Mul(decimal.NewFromInt(int64(b.Term.Length() / domain.Hour)))
		if total := hours.Add(upfront); total.IsPositive() {
			pay.hourlyPart = scaled(hours.DivRound(total, 12))
		}
		m.pays = append(m.pays, pay)
	}
	return nil
}

// at is how many units a payment is for in an epoch.
func (p *payment) at(e int) int64 {
	if e < p.from || e >= p.to {
		return 0
	}
	units := p.units
	for _, r := range p.ramp {
		if e-p.from >= r.Epoch {
			units = mulDiv(p.units, int64(r.Permille), 1000)
		}
	}
	return units
}

// money shows an amount, to cents.
func money(amount int64) domain.Decimal { return decimal.New(amount, -6).Round(2) }

func bigMoney(amount *big.Int) domain.Decimal { return decimal.NewFromBigInt(amount, -6).Round(2) }
