package whatif

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"sort"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/instance"
	"quartermaster/domain/procurement"
)

// Quantities are in millionths of a unit, prices in 10⁻⁹ of the currency and amounts in 10⁻⁶ of it,
// all in 64 bits. maxUnits, maxPrice and maxTotal keep every sum in range.
const (
	one          = 1_000_000
	maxUnits     = 1_000_000
	maxHeld      = 100_000_000 // units held or bought
	maxPrice     = 1_000_000   // of the currency, for a unit and hour
	maxTotal     = 1_000_000_000_000
	priceDigits  = 9
	unlimited    = math.MaxInt64
	noSpotBounds = math.MaxInt64
)

// compiled is an instance prepared for repeated evaluation: for each pool and epoch the
// load-duration curve with its sums, so that serving an epoch takes a few binary searches,
// independent of the number of hours.
type compiled struct {
	in     *instance.Instance
	priced *instance.Priced
	spans  []domain.Interval
	starts []int // first hour of each epoch, and the end
	pools  []poolModel
	pays   []payment // what is held and bought
	cold   int64     // cost of a cold standby, in amounts
	groups []group
}

type poolModel struct {
	demand string  // its id, "" for none
	hourly []int32 // demand, without spare units for failures
	// buffer determines the spare units; nil means none.
	buffer *instance.Buffer
	// permille of an hour's demand may run on spot, rounded down to whole units.
	permille int64
	epochs   []epochModel
	// protected is the share of demand, in millionths, that a posture lets another region take over
	// while its own is gone; 0 means none.
	protected int64
	group     int   // index of the group of pools that it is served with, −1: independent
	avail     int64 // available spot units
	quota     int   // index, −1: none
	perUnit   int64
	gpus      int
	region    string
	// listedShortage is the nominal penalty of an unserved unit for an hour.
	listedShortage procurement.Nano
	// held is the capacity by epoch, whatever pays for it, in millionths.
	held [2][]int64     // guaranteed, and discount-only
	over domain.Decimal // share of spot time lost to interruptions
}

type epochModel struct {
	curve          curve
	onDemand, spot int64 // discounted price of a unit and hour; −1: not sold
	shortage       int64
	// Nominal prices; −1 means not sold.
	listedOnDemand, listedSpot procurement.Nano
}

// curve is the hours of an epoch by ascending demand, in whole units. The sums are over the hours
// from a level on.
type curve struct {
	units, rest []int64 // demand, and the part that may not run on spot
	count       []int64 // hours of each level
	hours       []int64 // suffix sums
	sumUnits    []int64 // of units × hours
	sumRest     []int64 // of rest × hours
}

// payment is what is paid for capacity, whatever it serves.
type payment struct {
	amount int64 // in all
	pool   int
	// The amount is spread over epochs from and to, to compute the cost of an idle unit.
	from, to   int
	units      []int64 // added by a purchase, by epoch; nil for what is held
	guaranteed bool
	offer      int // index into the offers, −1
	held       int // index into the commitments, −1
	// The parts of the amount from the hourly and the upfront price. The rest is the running cost
	// of owned hardware.
	hourly, upfront int64
	rent            []int64 // part of hourly paid in each epoch; the remainder lies beyond
}

// newModel compiles an instance at its own prices, levels and holdings. refuge, if not nil, is the
// instance with the routes that protected demand may take while its region is gone; nothing else of
// it is read.
func newModel(in, refuge *instance.Instance) (*compiled, error) {
	priced, err := in.Priced()
	if err != nil {
		return nil, err
	}
	spans := priced.Spans
	m := &compiled{in: in, priced: priced, spans: spans, starts: make([]int, len(spans)+1)}
	for i, s := range spans {
		m.starts[i+1] = m.starts[i] + int((s.To-s.From)/domain.Hour)
	}
	quotas := map[string]int{}
	for i := range in.Quotas {
		quotas[in.Quotas[i].ID] = i
	}
	for p := range in.Pools {
		pool, sold := &in.Pools[p], &priced.Pools[p]
		x := poolModel{
			avail: noSpotBounds, group: -1, quota: -1, perUnit: 1, gpus: pool.GPUs, region: pool.Region,
			epochs: make([]epochModel, len(spans)),
		}
		if pool.Spot != nil {
			x.over = pool.Spot.Overhead
			if pool.Spot.Available != nil {
				x.avail = int64(*pool.Spot.Available) * one
			}
		}
		if pool.Quota != "" {
			x.quota, x.perUnit = quotas[pool.Quota], int64(max(1, pool.QuotaPerUnit))
		}
		for k, held := range [][]int{sold.HeldGuaranteed, sold.HeldDiscountOnly} {
			for _, units := range held {
				if units > maxHeld {
					return nil, unfit("pool %s: %d units held, at most %d are drawn", pool.ID, units, maxHeld)
				}
				x.held[k] = append(x.held[k], int64(units)*one)
			}
		}
		d := slices.IndexFunc(in.Demands, func(d instance.Demand) bool { return d.Pool == pool.ID })
		x.hourly = make([]int32, m.starts[len(spans)])
		if d >= 0 {
			demand := &in.Demands[d]
			if x.hourly, err = m.levels(demand.ID); err != nil {
				return nil, err
			}
			x.demand, x.buffer, x.permille = demand.ID, demand.Buffer, demand.Interruptible.Shift(3).IntPart()
			if priced.Protected(demand.ID) {
				x.protected = scaled(in.Posture.Share)
			}
			if x.listedShortage, err = nano(demand.Shortage); err != nil {
				return nil, fmt.Errorf("demand %s: shortage: %w", demand.ID, err)
			}
		}
		for e := range spans {
			y := &x.epochs[e]
			y.curve = newCurve(x.hourly[m.starts[e]:m.starts[e+1]], x.permille)
			y.onDemand, y.spot, y.listedOnDemand, y.listedSpot = -1, -1, -1, -1
			if sold.OnDemand != nil {
				y.onDemand = int64(sold.OnDemand[e])
				if y.listedOnDemand, err = nano(sold.ListedOnDemand[e]); err != nil {
					return nil, fmt.Errorf("pool %s: on demand: %w", pool.ID, err)
				}
			}
			if sold.Spot != nil {
				y.spot = int64(sold.Spot[e])
				kept := decimal.NewFromInt(1).Sub(x.over)
				if y.listedSpot, err = nano(sold.ListedSpot[e].DivRound(kept, places)); err != nil {
					return nil, fmt.Errorf("pool %s: spot: %w", pool.ID, err)
				}
			}
			if d >= 0 {
				shortage, err := priced.Discounted(in.Demands[d].Shortage, e)
				if err != nil {
					return nil, fmt.Errorf("demand %s: shortage: %w", x.demand, err)
				}
				y.shortage = int64(shortage)
			}
			const most = maxPrice * 1_000_000_000
			if y.onDemand > most || y.spot > most || y.shortage > most {
				return nil, unfit("pool %s: a unit and hour costs more than %d %s, which trials do not add up",
					pool.ID, maxPrice, in.Currency)
			}
			y.shortage = max(y.shortage, y.onDemand)
			if y.spot > y.shortage {
				y.spot, y.listedSpot = -1, -1 // spot cannot serve this demand
			}
		}
		m.pools = append(m.pools, x)
	}
	if err := m.couple(refuge); err != nil {
		return nil, err
	}
	return m, m.hold()
}

// levels is a demand by the hour, without spare units. Demand given as curves is sorted in
// descending order within each epoch, which matters only for outages.
func (m *compiled) levels(demand string) ([]int32, error) {
	units, err := m.priced.Levels(demand, 0)
	if err != nil {
		return nil, err
	}
	out := make([]int32, len(units))
	for h, u := range units {
		if u > maxUnits {
			return nil, unfit("demand %s: %d units wanted in an hour, at most %d are drawn", demand, u, maxUnits)
		}
		out[h] = int32(u)
	}
	return out, nil
}

// quotaAt is the limit of a quota in an epoch; noQuota means none.
func (m *compiled) quotaAt(quota, e int) int64 {
	if n := m.priced.Quotas[quota][e]; n != procurement.Unlimited {
		return int64(n)
	}
	return noQuota
}

// quotaOf is the number of on-demand units that a limit allows a pool.
func (x *poolModel) quotaOf(limit int64) int64 {
	if limit >= noQuota {
		return unlimited
	}
	return limit / x.perUnit * one // whole units
}

// scaled is a decimal in millionths, rounded.
func scaled(d domain.Decimal) int64 { return d.Shift(6).Round(0).IntPart() }

func newCurve(units []int32, permille int64) curve {
	sorted := slices.Clone(units)
	slices.Sort(sorted)
	c := curve{}
	for i, u := range sorted {
		if i > 0 && u == sorted[i-1] {
			c.count[len(c.count)-1]++
			continue
		}
		c.units, c.count = append(c.units, int64(u)), append(c.count, 1)
	}
	c.add(permille)
	return c
}

// add sums a curve of units and their hours.
func (c *curve) add(permille int64) {
	n := len(c.units)
	grow := func(of []int64, n int) []int64 { return slices.Grow(of[:0], n)[:n] }
	c.rest, c.hours, c.sumUnits, c.sumRest = grow(c.rest, n), grow(c.hours, n+1), grow(c.sumUnits, n+1), grow(c.sumRest, n+1)
	c.hours[n], c.sumUnits[n], c.sumRest[n] = 0, 0, 0
	for i := n - 1; i >= 0; i-- {
		c.rest[i] = c.units[i] - c.units[i]*permille/1000
		c.hours[i] = c.hours[i+1] + c.count[i]
		c.sumUnits[i] = c.sumUnits[i+1] + c.count[i]*c.units[i]
		c.sumRest[i] = c.sumRest[i+1] + c.count[i]*c.rest[i]
	}
}

// above sums the demand above x, or its part that may not run on spot, over the levels from lo to
// hi. x and the sum are in millionths.
func (c *curve) above(rest bool, x int64, lo, hi int) int64 {
	if x >= unlimited/2 || lo >= hi {
		return 0
	}
	of, sum := c.units, c.sumUnits
	if rest {
		of, sum = c.rest, c.sumRest
	}
	i := lo + sort.Search(hi-lo, func(i int) bool { return of[lo+i]*one > x })
	return (sum[i]-sum[hi])*one - x*(c.hours[i]-c.hours[hi])
}

// mulDiv is a·b ÷ c of non-negative numbers, rounded down.
func mulDiv(a, b, c int64) int64 {
	n, _ := domain.MulDiv(a, b, c)
	return n
}

// cost is the amount for unit-hours in millionths at a price, half rounded up.
func cost(unitHours, price int64) int64 {
	if unitHours <= 0 || price <= 0 {
		return 0
	}
	n, rest := domain.MulDiv(unitHours, price, 1_000_000_000)
	if rest >= 500_000_000 {
		n++
	}
	return n
}

// hold adds up what is held already.
func (m *compiled) hold() error {
	for h := range m.in.Commitments {
		c, held := &m.in.Commitments[h], &m.priced.Held[h]
		p := slices.IndexFunc(m.in.Pools, func(x instance.Pool) bool { return x.ID == c.Pool })
		pay := payment{pool: p, from: len(m.spans), guaranteed: c.GuaranteesCapacity, offer: -1, held: h}
		for e, span := range m.spans {
			if held.Term.From < span.To && (held.Term.To == 0 || span.From < held.Term.To) {
				pay.from, pay.to = min(pay.from, e), e+1
			}
		}
		pay.from = min(pay.from, pay.to)
		var err error
		if pay.amount, err = amountOf(held.Cost, m.in); err != nil {
			return fmt.Errorf("commitment %s: %w", c.ID, err)
		}
		if pay.hourly, err = amountOf(held.Hourly, m.in); err != nil {
			return fmt.Errorf("commitment %s: %w", c.ID, err)
		}
		if pay.rent, err = amountsOf(held.Rent, m.in); err != nil {
			return fmt.Errorf("commitment %s: %w", c.ID, err)
		}
		pay.upfront = pay.amount - pay.hourly
		m.pays = append(m.pays, pay)
	}
	return nil
}

// amountOf is money as an amount.
func amountOf(d domain.Decimal, in *instance.Instance) (int64, error) {
	if d.Abs().GreaterThan(decimal.NewFromInt(maxTotal)) {
		return 0, unfit("%s %s is more than trials add up", d, in.Currency)
	}
	return d.Shift(6).Round(0).IntPart(), nil
}

func amountsOf(all []domain.Decimal, in *instance.Instance) ([]int64, error) {
	out := make([]int64, len(all))
	for i, d := range all {
		var err error
		if out[i], err = amountOf(d, in); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// bought adds the purchases of an answer to the problem that it solves, at the prices of the
// model's instance, and the cost of a cold standby there.
func (m *compiled) bought(problem *instance.Instance, a *instance.Answer) error {
	same := *problem
	same.Commitments, same.Offers = m.in.Commitments, slices.Clone(same.Offers)
	for i := range same.Offers {
		f := &same.Offers[i]
		f.Hourly, f.Upfront = m.in.Offers[i].Hourly, m.in.Offers[i].Upfront
	}
	priced, err := same.Priced()
	if err != nil {
		return err
	}
	orders := make([]instance.Order, len(a.Purchases))
	for i := range a.Purchases {
		orders[i] = a.Purchases[i].Order
	}
	all, standby, err := priced.Bought(orders)
	if err != nil {
		return fmt.Errorf("what is bought: %w", err)
	}
	if m.cold, err = amountOf(standby, m.in); err != nil {
		return fmt.Errorf("cold standby: %w", err)
	}
	if len(all) != len(orders) {
		return fmt.Errorf("%d orders are %d purchases", len(orders), len(all))
	}
	for i := range all {
		b, o := &all[i], &orders[i]
		pay := payment{offer: -1, held: -1, guaranteed: b.Guaranteed, from: len(m.spans), units: make([]int64, len(m.spans))}
		pay.pool = slices.IndexFunc(m.in.Pools, func(x instance.Pool) bool { return x.ID == b.Pool })
		if o.Commitment != "" {
			pay.held = slices.IndexFunc(m.in.Commitments, func(c instance.Commitment) bool { return c.ID == o.Commitment })
		} else {
			pay.offer = slices.IndexFunc(m.in.Offers, func(f instance.Offer) bool { return f.ID == o.Offer })
		}
		if pay.pool < 0 || pay.offer < 0 && pay.held < 0 {
			return fmt.Errorf("purchase %d is of nothing that is offered or held for a pool: %q%q", i, o.Offer, o.Commitment)
		}
		for e, units := range b.Units {
			if units == 0 {
				continue
			}
			if units > maxHeld {
				return unfit("%d units of %q are bought, at most %d are drawn", units, o.Offer, maxHeld)
			}
			pay.units[e] = int64(units) * one
			pay.from, pay.to = min(pay.from, e), e+1
		}
		pay.from = min(pay.from, pay.to)
		for _, x := range []struct {
			into *int64
			part domain.Decimal
		}{{&pay.amount, b.Cost}, {&pay.hourly, b.Hourly}, {&pay.upfront, b.Upfront}} {
			if *x.into, err = amountOf(x.part, m.in); err != nil {
				return fmt.Errorf("purchase of %s: %w", o.Offer+o.Commitment, err)
			}
		}
		if pay.rent, err = amountsOf(b.Rent, m.in); err != nil {
			return fmt.Errorf("purchase of %s: %w", o.Offer+o.Commitment, err)
		}
		m.pays = append(m.pays, pay)
	}
	return nil
}

// at is the number of units that a purchase adds in an epoch.
func (p *payment) at(e int) int64 {
	if p.units == nil || e >= len(p.units) {
		return 0
	}
	return p.units[e]
}

// money is an amount in the currency, to cents.
func money(amount int64) domain.Decimal { return decimal.New(amount, -6).Round(2) }

func bigMoney(amount *big.Int) domain.Decimal { return decimal.NewFromBigInt(amount, -6).Round(2) }
