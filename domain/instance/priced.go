package instance

import (
	"container/heap"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement"
	"quartermaster/domain/procurement/joint"
)

// pricedDigits is the resolution of exported prices: 10⁻⁹ of the currency.
const pricedDigits = 9

// Priced is an instance as its problems see it: every price in the instance's currency, by epoch
// and discounted, and the existing commitments with the further terms that are certain. Lists are
// in the order of the instance. It is for callers that evaluate baselines outside of this package.
type Priced struct {
	Spans []domain.Interval
	// Middle is the discount factor of hourly payments in each epoch.
	Middle []domain.Decimal
	Pools  []PricedPool
	// Quotas by epoch: the lowest limit within it, procurement.Unlimited if none.
	Quotas [][]int
	Held   []HeldCost

	in *Instance
	m  *model
}

// PricedPool is what a pool sells and what is held in it, by epoch.
type PricedPool struct {
	// Listed prices are nominal, per unit and hour: the mean over an epoch's hours.
	ListedOnDemand, ListedSpot []domain.Decimal
	// OnDemand and Spot are discounted, spot with its overhead; nil if not sold.
	OnDemand, Spot                   []procurement.Nano
	HeldGuaranteed, HeldDiscountOnly []int
}

// HeldCost is the cost of an existing commitment within the horizon, with the further terms that
// are certain.
type HeldCost struct {
	Term domain.Interval
	Cost domain.Decimal // present value
	// Hourly is the part of Cost that is paid by the hour, and Rent that part by epoch.
	Hourly domain.Decimal
	Rent   []domain.Decimal
}

// Priced prices an instance for evaluation.
func (in *Instance) Priced() (*Priced, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	m, err := newModel(in, nil)
	if err != nil {
		return nil, err
	}
	if err := m.commitments(); err != nil {
		return nil, err
	}
	out := &Priced{Spans: m.cal.spans[:m.cal.n], Middle: m.cal.middle[:m.cal.n], in: in, m: m}
	for i := range in.Pools {
		p := m.pool[in.Pools[i].ID]
		x := PricedPool{HeldGuaranteed: m.heldGuaranteed[p], HeldDiscountOnly: m.heldDiscountOnly[p]}
		nano := func(nominal []domain.Decimal, of string) ([]procurement.Nano, error) {
			var all []procurement.Nano
			for e, price := range nominal {
				n, err := rounded(price.Mul(m.cal.middle[e]), pricedDigits)
				if err != nil {
					return nil, fmt.Errorf("pool %q: %s: %w", in.Pools[i].ID, of, err)
				}
				all = append(all, n)
			}
			return all, nil
		}
		if x.OnDemand, err = nano(m.onDemand[p], "on demand"); err != nil {
			return nil, err
		}
		if x.Spot, err = nano(m.spot[p], "spot"); err != nil {
			return nil, err
		}
		x.ListedOnDemand = m.onDemand[p]
		if s := in.Pools[i].Spot; s != nil {
			x.ListedSpot = m.in.hourly(&s.Price, out.Spans)
		}
		out.Pools = append(out.Pools, x)
	}
	for i := range in.Quotas {
		out.Quotas = append(out.Quotas, m.quotas[in.Quotas[i].ID])
	}
	for i := range in.Commitments {
		c := in.Commitments[i]
		settled, _ := c.renewals(in.From, m.cal.end())
		upfront := c
		upfront.Hourly = decimal.Zero
		h := HeldCost{Term: c.Term, Rent: make([]domain.Decimal, m.cal.n)}
		for k := 0; k <= settled; k++ {
			t := c.term(k)
			h.Term.To = t.To
			all := m.due(&c, t, false)
			h.Cost, h.Hourly = h.Cost.Add(all), h.Hourly.Add(all.Sub(m.due(&upfront, t, false)))
			m.rent(&c, t, h.Rent)
		}
		out.Held = append(out.Held, h)
	}
	return out, nil
}

// Worth is the value of one unit of a currency in the instance's currency.
func (p *Priced) Worth(currency string) domain.Decimal { return p.in.fx(currency) }

// Discounted is the discounted price of an hour in an epoch.
func (p *Priced) Discounted(hourly domain.Decimal, epoch int) (procurement.Nano, error) {
	return rounded(hourly.Mul(p.m.cal.middle[epoch]), pricedDigits)
}

// Route lets a pool serve a demand: Num/Den of its units do the work of one unit.
type Route struct {
	Pool     string
	Num, Den int
	Hourly   domain.Decimal // extra cost per unit of demand and hour; nominal
}

// Routes returns the pools that may serve a demand, its own first: within its latency budget,
// countries and certifications, including substitutes.
func (p *Priced) Routes(demand string) []Route {
	var out []Route
	for _, r := range p.m.ways[p.m.demand[demand]] {
		out = append(out, Route{p.m.in.Pools[r.pool].ID, r.num, r.den, r.extra})
	}
	return out
}

// Protected reports whether the posture protects a demand.
func (p *Priced) Protected(demand string) bool {
	if p.in.Posture == nil {
		return false
	}
	for _, d := range p.m.protected() {
		if p.m.in.Demands[d].ID == demand {
			return true
		}
	}
	return false
}

// Levels returns a demand's units in each hour of a scenario (scenario 0 if the instance has none),
// without spare units for failures. Deferrable work is levelled in its windows.
func (p *Priced) Levels(demand string, scenario int) ([]int, error) {
	i := p.m.demand[demand]
	out, own, err := p.m.wanted(i, &p.m.scenarios[scenario])
	if !own {
		out = slices.Clone(out)
	}
	if d := &p.m.in.Demands[i]; err == nil && d.waits() {
		for e := range p.m.cal.n {
			for from := p.m.cal.hours[e]; from < p.m.cal.hours[e+1]; from += int64(d.DeferHours) {
				putOff(out[from:min(from+int64(d.DeferHours), p.m.cal.hours[e+1])], permille(d.DeferrableShare))
			}
		}
	}
	return out, err
}

// putOff lets a share of each hour's demand, rounded down to whole units, run later within the
// window. Each unit goes to the hour with the least load; ties go to the first hour. The last
// arrivals have the fewest hours to choose from, so they are placed first. The resulting load is as
// level as possible: no other schedule costs less if an hour's cost is convex in its load and the
// same in all hours (Hardy, Littlewood and Pólya, 1929).
func putOff(window []int, permille int) {
	load := &hours{}
	for h := len(window) - 1; h >= 0; h-- {
		wait := int(int64(window[h]) * int64(permille) / 1000)
		heap.Push(load, hour{h, window[h] - wait})
		load.fill(wait)
	}
	for _, x := range *load {
		window[x.at] = x.units
	}
}

type hour struct{ at, units int }

// hours is a heap with the least loaded hour first.
type hours []hour

func (h hours) Len() int { return len(h) }
func (h hours) Less(i, j int) bool {
	return h[i].units < h[j].units || h[i].units == h[j].units && h[i].at < h[j].at
}
func (h hours) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *hours) Push(x any) { *h = append(*h, x.(hour)) }

// Pop implements heap.Interface.
func (h *hours) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// fill adds n units to the least loaded hours, as if one by one.
func (h *hours) fill(n int) {
	if n == 0 {
		return
	}
	// The raised hours reach a common level: take them out of the heap.
	var low []hour
	sum := 0
	for len(*h) > 0 && (*h)[0].units*len(low)-sum < n {
		x := heap.Pop(h).(hour)
		low, sum = append(low, x), sum+x.units
	}
	slices.SortFunc(low, func(a, b hour) int { return a.at - b.at })
	level, rest := (sum+n)/len(low), (sum+n)%len(low)
	for i, x := range low {
		x.units = level
		if i < rest {
			x.units++
		}
		heap.Push(h, x)
	}
}

// Bought is what an order covers and costs.
type Bought struct {
	Pool       string
	Guaranteed bool
	Units      []int          // by epoch
	Cost       domain.Decimal // within the horizon, less salvage
	// Hourly and Upfront are the parts of Cost from the hourly and upfront prices; the rest is the
	// running cost of owned hardware.
	Hourly, Upfront domain.Decimal
	// Rent is the part of Hourly that is paid in each epoch. The remainder of Hourly belongs to
	// epochs beyond the horizon.
	Rent []domain.Decimal
}

// Bought returns what orders cover and cost, and the cost of a cold standby. Orders are those of
// [Evaluate]. Without orders the posture need not be met, because the course that buys nothing has
// none.
func (p *Priced) Bought(orders []Order) (bought []Bought, standby domain.Decimal, err error) {
	if len(orders) == 0 && (p.in.Posture == nil || p.in.Posture.Cold == nil) {
		return nil, standby, nil
	}
	m, err := compile(p.in, nil)
	if err != nil {
		return nil, standby, err
	}
	standby = m.owed.Sub(p.m.owed)
	for _, o := range orders {
		units, err := m.place([]Order{o})
		if err != nil {
			return nil, standby, err
		}
		for i, n := range units {
			if n == 0 {
				continue
			}
			x := m.choice(i)
			b := Bought{Units: make([]int, m.cal.n), Cost: decimal.New(int64(m.costs[i]), -m.digits).Mul(whole(n))}
			if x.offer != nil {
				b.Pool, b.Guaranteed = x.offer.Pool, x.offer.GuaranteesCapacity
			} else {
				b.Pool, b.Guaranteed = x.goes.Pool, x.goes.GuaranteesCapacity
			}
			for _, c := range x.covers {
				b.cover(c, n)
			}
			hourly, upfront := m.parts(x)
			b.Hourly, b.Upfront, b.Rent = hourly.Mul(whole(n)), upfront.Mul(whole(n)), m.rents(x)
			for e := range b.Rent {
				b.Rent[e] = b.Rent[e].Mul(whole(n))
			}
			bought = append(bought, b)
		}
	}
	return bought, standby, nil
}

// parts returns the parts of a choice's cost from its hourly and upfront prices.
func (m *model) parts(x *choice) (hourly, upfront domain.Decimal) {
	if x.goes != nil {
		free := *x.goes
		free.Hourly = decimal.Zero
		for k := range x.order.Renewals {
			term := x.goes.term(x.settled + k + 1)
			part := m.due(&free, term, true)
			hourly, upfront = hourly.Add(m.due(x.goes, term, true).Sub(part)), upfront.Add(part)
		}
		return hourly, upfront
	}
	p, units := m.ofUnit(x), whole(x.order.Units)
	part := func(p prices) domain.Decimal {
		return m.worth(x.offer, p, x.order.Epoch).Sub(m.worth(x.offer, prices{}, x.order.Epoch)).Mul(units)
	}
	return part(prices{hourly: p.hourly}), part(prices{upfront: p.upfront})
}

// rents returns the discounted hourly payments of a choice in each epoch of the horizon.
func (m *model) rents(x *choice) []domain.Decimal {
	out := make([]domain.Decimal, m.cal.n)
	if x.goes != nil {
		for k := range x.order.Renewals {
			m.rent(x.goes, x.goes.term(x.settled+k+1), out)
		}
		return out
	}
	for _, r := range x.offer.ramp(x.order.Epoch) {
		for e := r.from; e < min(r.to, m.cal.n); e++ {
			out[e] = out[e].Add(x.hourly.Mul(m.cal.paid[e+1].Sub(m.cal.paid[e])).Mul(decimal.New(int64(r.permille), -3)))
		}
	}
	return out
}

// rent adds the discounted hourly payments of a term of a commitment to each epoch.
func (m *model) rent(c *Commitment, t domain.Interval, into []domain.Decimal) {
	hourly := c.Hourly.Mul(whole(c.Units)).Mul(m.in.fx(c.Currency))
	for e := range into {
		into[e] = into[e].Add(hourly.Mul(inHours(m.cal.overlap(e, t))).Mul(m.cal.middle[e]))
	}
}

func (b *Bought) cover(c joint.Cover, n int) {
	for e := c.From; e < c.To; e++ {
		b.Units[e] += c.Units * n
	}
}
