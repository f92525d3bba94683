package instance

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/domain/procurement/joint"
)

// route lets a pool serve a demand: num/den of its units do the work of one unit.
type route struct {
	pool     int
	num, den int
	extra    domain.Decimal // per unit of demand and hour
}

// routes returns the pools that may serve a demand, its own first.
//
// A pool qualifies if all of this holds. It is in the demand's region, or in one within its latency
// budget by a listed overflow. Its country is allowed. It has the certifications. It is of the
// demand's class or of a substitute class. The overhead of an overflow multiplies the capacity
// taken. Machines of one class with different numbers of GPUs are not interchangeable.
func (m *model) routes(d *Demand) []route {
	home := &m.in.Pools[m.pool[d.Pool]]
	out := []route{{pool: m.pool[d.Pool], num: 1, den: 1}}
	for i := range m.in.Pools {
		p := &m.in.Pools[i]
		if p.ID == home.ID || !m.allowed(d, p) ||
			p.Class == home.Class && (p.Unit != home.Unit || max(1, p.GPUs) != max(1, home.GPUs)) {
			continue
		}
		r, takes := route{pool: i}, one
		if p.Region != home.Region {
			s := m.way(home.Region, p.Region)
			if s == nil || d.LatencyBudgetMS == 0 || s.RoundTripMS > d.LatencyBudgetMS {
				continue
			}
			r.extra = s.Hourly.Add(d.OverflowHourly)
			takes = s.Overhead.Add(one)
		}
		if p.Class != home.Class {
			s := m.substitute(d, home.Class, p.Class)
			if s == nil {
				continue
			}
			takes = takes.Mul(s.Units)
		}
		// An overflow and a substitute together may have too many digits; then the ratio is rounded
		// up.
		for places := int32(4); ; places-- {
			var ok bool
			if r.num, r.den, ok = fraction(takes.RoundUp(places)); ok {
				break
			}
			if places == 0 {
				r.num, r.den = int(takes.RoundUp(0).IntPart()), 1
				break
			}
		}
		if r.num <= joint.MaxRatio {
			out = append(out, r)
		}
	}
	return out
}

func (m *model) allowed(d *Demand, p *Pool) bool {
	if len(d.Countries) > 0 && !slices.Contains(d.Countries, m.in.Regions[m.region[p.Region]].Country) {
		return false
	}
	for _, c := range d.Certifications {
		if !slices.Contains(p.Certifications, c) {
			return false
		}
	}
	return true
}

func (m *model) way(from, to string) *Overflow {
	i, ok := slices.BinarySearchFunc(m.in.Overflow, [2]string{from, to}, func(s Overflow, key [2]string) int {
		return cmp.Or(cmp.Compare(s.From, key[0]), cmp.Compare(s.To, key[1]))
	})
	if !ok {
		return nil
	}
	return &m.in.Overflow[i]
}

func (m *model) substitute(d *Demand, of, class string) *Substitute {
	for i := range m.in.Substitutes {
		s := &m.in.Substitutes[i]
		if s.For == of && s.Class == class && (len(s.Demands) == 0 || slices.Contains(s.Demands, d.ID)) {
			return s
		}
	}
	return nil
}

// together checks rules that span several parts of an instance.
func (v *validator) together() {
	in := v.in
	// Leaving demand unserved must not be the cheapest option.
	for i := range in.Demands {
		d := &in.Demands[i]
		p := v.pools[d.Pool]
		if p.OnDemand == nil {
			continue
		}
		for m, price := range in.hourly(p.OnDemand, v.spans) {
			if price.GreaterThan(d.Shortage) {
				v.fault(fmt.Sprintf("/demands/%d/shortage_hourly", i),
					"%s is below the price on demand of pool %q, %s from %s on: it would be cheapest to serve nobody",
					d.Shortage, p.ID, price, day(v.spans[m].From))
				break
			}
		}
	}
	v.alone()
}

// alone checks load-duration curves, which do not say which hours are busy: no other demand or
// quota may share hours with them.
func (v *validator) alone() {
	if !slices.ContainsFunc(v.in.Demands, func(d Demand) bool { return d.Duration != nil }) {
		return
	}
	m, err := newModel(v.in, nil)
	if err != nil {
		v.fault("", "%v", err)
		return
	}
	blocks := m.blocks()
	members := map[int][]int{}
	for i := range m.in.Demands {
		b := blocks.Find(m.pool[m.in.Demands[i].Pool])
		members[b] = append(members[b], i)
	}
	for i := range m.in.Demands {
		d := &m.in.Demands[i]
		with := members[blocks.Find(m.pool[d.Pool])]
		if d.Duration == nil || len(with) == 1 {
			continue
		}
		other := with[0]
		if other == i {
			other = with[1]
		}
		v.fault(fmt.Sprintf("/demands/%d/duration", m.at.demands[i]),
			"it meets demand %q hour by hour (a pool, route, quota or spend commitment is shared), and a "+
				"load-duration curve does not say which hours are its busy ones: give it hourly",
			m.in.Demands[other].ID)
	}
}

// blocks are the pools that share hours: by routes, quotas and spend commitments.
func (m *model) blocks() domain.Sets {
	out := domain.NewSets(len(m.in.Pools))
	for i := range m.in.Demands {
		for _, r := range m.ways[i] {
			out.Join(m.pool[m.in.Demands[i].Pool], r.pool)
		}
	}
	quota, spend := map[string]int{}, map[int]int{}
	for i := range m.in.Pools {
		if q := m.in.Pools[i].Quota; q != "" {
			if j, ok := quota[q]; ok {
				out.Join(i, j)
			}
			quota[q] = i
		}
		if s := m.rates[i].spend; s >= 0 {
			if j, ok := spend[s]; ok {
				out.Join(i, j)
			}
			spend[s] = i
		}
	}
	return out
}

// rate is the committed price of a pool's on-demand use and its spend commitment; −1 means none.
type rate struct {
	spend int
	price domain.Decimal
}

func (m *model) spendRates() {
	m.spendOf = map[string]int{}
	m.rates = make([]rate, len(m.in.Pools))
	for i := range m.rates {
		m.rates[i].spend = -1
	}
	add := func(name, currency string, rates map[string]decimal.Decimal) {
		for i := range m.in.Pools {
			if price, ok := rates[m.in.Pools[i].ID]; ok {
				m.rates[i] = rate{m.spendOf[name], price.Mul(m.in.fx(currency))}
			}
		}
	}
	name := func(s string) {
		if _, ok := m.spendOf[s]; !ok {
			m.spends = append(m.spends, s)
			m.spendOf[s] = 0
		}
	}
	for i := range m.in.Commitments {
		if c := &m.in.Commitments[i]; c.Kind == domain.OfferSpendCommitment {
			name(c.Spend)
		}
	}
	for i := range m.in.Offers {
		if o := &m.in.Offers[i]; o.Kind == domain.OfferSpendCommitment {
			name(o.Spend)
		}
	}
	slices.Sort(m.spends)
	for i, s := range m.spends {
		m.spendOf[s] = i
	}
	for i := range m.in.Commitments {
		if c := &m.in.Commitments[i]; c.Kind == domain.OfferSpendCommitment {
			add(c.Spend, c.Currency, c.Rates)
		}
	}
	for i := range m.in.Offers {
		if o := &m.in.Offers[i]; o.Kind == domain.OfferSpendCommitment {
			add(o.Spend, o.Currency, o.Rates)
		}
	}
}
