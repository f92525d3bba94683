package instance_test

import (
	"fmt"
	"math"
	"slices"
)

// protect adds what must survive the loss of a region in an epoch.
func (m *mip) protect(e int) {
	if m.Posture == nil {
		return
	}
	if m.Posture.Kind == "multi_provider" {
		gone := map[string]bool{}
		for i := range m.Pools {
			if lost := m.Pools[i].Provider; !gone[lost] {
				gone[lost] = true
				var of []int
				for i := range m.Demands {
					if m.protected(i) {
						of = append(of, i)
					}
				}
				m.each(of, func(some []int) { m.survive(e, some, func(p *pool) bool { return p.Provider != lost }) })
			}
		}
		return
	}
	for _, lost := range m.Regions {
		if m.Posture.Kind == "active_passive" && lost.ID == m.Posture.Standby {
			continue
		}
		if m.Posture.Cold != nil {
			m.standby(e, lost.ID)
			continue
		}
		var of []int
		touched := m.Posture.Kind == "active_active" // passive: a region without protected demand is no loss
		for i := range m.Demands {
			home := m.Pools[m.pool(m.Demands[i].Pool)].Region
			if m.protected(i) && (m.Posture.Kind == "active_active" || home == lost.ID || home == m.Posture.Standby) {
				of = append(of, i)
				touched = touched || home == lost.ID
			}
		}
		if !touched {
			continue
		}
		m.each(of, func(some []int) {
			m.survive(e, some, func(p *pool) bool {
				return p.Region != lost.ID && (m.Posture.Kind == "active_active" || p.Region == m.Posture.Standby)
			})
		})
	}
}

// each does something for every set of demands.
func (m *mip) each(of []int, do func(some []int)) {
	for set := 1; set < 1<<len(of); set++ {
		var some []int
		for k, i := range of {
			if set>>k&1 == 1 {
				some = append(some, i)
			}
		}
		do(some)
	}
}

// survive lets the pools that remain carry a set of demands.
func (m *mip) survive(e int, some []int, remains func(p *pool) bool) {
	row := m.b.Row(math.Ceil(float64(m.peak(e, some)*m.Posture.Share.up())/1000), inf)
	for p := range m.Pools {
		if !remains(&m.Pools[p]) {
			continue
		}
		most := 0.0
		for _, i := range some {
			if u, _, ok := m.takes(&m.Demands[i], &m.Pools[p]); ok {
				each, _ := u.Float64()
				most = max(most, each)
			}
		}
		if most > 0 {
			m.b.Add(row, m.guaranteed[p][e].column, math.Floor(1000/most)/1000)
		}
	}
}

// standby pays for a cold standby.
func (m *mip) standby(e int, lost string) {
	b := m.newBill()
	for i := range m.Demands {
		if !m.protected(i) || m.Pools[m.pool(m.Demands[i].Pool)].Region != lost {
			continue
		}
		least := inf
		for p := range m.Pools {
			pool := &m.Pools[p]
			if u, _, ok := m.takes(&m.Demands[i], pool); ok && pool.Region == m.Posture.Standby && pool.OnDemand != nil {
				each, _ := u.Float64()
				least = min(least, m.in(pool.OnDemand, e)*each)
			}
		}
		if math.IsInf(least, 1) { // nothing there may serve it
			m.b.Add(m.b.Row(2, inf), m.one, 1)
			continue
		}
		share := float64(m.Posture.Share.up()) / 1000
		b.pay(e, float64(m.peak(e, []int{i}))*share*float64(*m.Posture.Cold)*least*float64(m.hours(e)))
	}
	m.fixed += b.cash[e] * m.middle(e)
	m.spend(m.one, b)
}

func (m *mip) protected(i int) bool {
	if len(m.Posture.Demands) == 0 {
		return m.Demands[i].Class == "serving"
	}
	return slices.Contains(m.Posture.Demands, m.Demands[i].ID)
}

// peak is the most that demands want at once in an epoch of any scenario.
func (m *mip) peak(e int, some []int) (most int) {
	for s := range m.Scenarios {
		for h := m.before(e); h < m.before(e+1); h++ {
			sum := 0
			for _, i := range some {
				sum += m.come[s][i][h] + m.spares[s][i][h]
			}
			most = max(most, sum)
		}
	}
	return most
}

// stretch is hours of an epoch that want the same: in each of so many blocks
// a stretch of them.
type stretch struct {
	first, hours int          // the first of them, and how many follow each other in a block
	times        int          // blocks that are alike
	starts       map[int]bool // demands of which a window begins
}

// waits is how much of what comes in an hour may wait.
func (m *mip) waits(s, i, h int) int {
	n := &m.Demands[i]
	if n.Deferrable == nil || n.DeferHours == 0 {
		return 0
	}
	return n.Deferrable.floor(m.come[s][i][h])
}

// stretches divides an epoch. Without work that waits, all hours that want the same are one stretch.
// Otherwise the windows of all demands begin together again after a block; blocks that are alike are
// one, and in a block hours that follow each other. An average of what alike hours do is as good, since
// all that is asked of serving is convex.
func (m *mip) stretches(s, e int) []stretch {
	first, n := m.before(e), m.hours(e)
	block := 1
	for i := range m.Demands {
		if d := &m.Demands[i]; d.Deferrable != nil && d.DeferHours > 0 && d.Deferrable.Sign() > 0 {
			a, b := block, d.DeferHours
			for b > 0 {
				a, b = b, a%b
			}
			block = min(n, block/a*d.DeferHours)
		}
	}
	wants := func(h int) string {
		out := ""
		for i := range m.Demands {
			out += fmt.Sprint(m.come[s][i][h], ",", m.spares[s][i][h], ";")
		}
		return out
	}
	var out []stretch
	alike := map[string][2]int{} // where the stretches of a block are
	for from := 0; from < n; from += block {
		to := min(n, from+block)
		key, last, at := "", "", len(out)
		var here []stretch
		for h := from; h < to; h++ {
			starts := map[int]bool{}
			for i := range m.Demands {
				if w := m.Demands[i].DeferHours; w > 0 && h%w == 0 {
					starts[i] = true
				}
			}
			now := wants(first + h)
			if h == from || now != last || block > 1 && len(starts) > 0 {
				here = append(here, stretch{first: first + h, times: 1, starts: starts})
			}
			here[len(here)-1].hours++
			last, key = now, key+now+"/"
		}
		if known, ok := alike[key]; ok {
			for k := known[0]; k < known[1]; k++ {
				out[k].times++
			}
			continue
		}
		out = append(out, here...)
		alike[key] = [2]int{at, len(out)}
	}
	return out
}

// serve adds what one scenario does in an epoch.
func (m *mip) serve(s, e int) {
	share := float64(m.Scenarios[s].Weight) / float64(m.weights)
	backlog := make([]int, len(m.Demands)) // columns: what waits at the end of the last stretch, −1: nothing
	list := m.stretches(s, e)
	for k := range list {
		st := &list[k]
		times := float64(st.hours*st.times) * share
		column := func(nominal, discounted, upper float64) int {
			x := m.b.Column((nominal+discounted)*m.middle(e)*times/m.scale, 0, upper)
			if nominal != 0 {
				for _, l := range m.budgets {
					if e >= l.from && e < l.to {
						m.b.Add(l.row, x, nominal*times/l.unit)
					}
				}
			}
			return x
		}
		// A pool serves with what covers it, or on demand. What is spent pays for use on demand.
		pools, spots := make([]int, len(m.Pools)), make([]int, len(m.Pools))
		quotas, names := map[string]int{}, map[string]int{}
		for q := range m.Quotas {
			quotas[m.Quotas[q].ID] = m.b.Row(-inf, m.quota(q, e))
		}
		for name := range m.spends {
			names[name] = m.b.Row(-inf, 0)
			m.b.Add(names[name], m.spends[name][e].column, -1)
		}
		for p := range m.Pools {
			pool := &m.Pools[p]
			pools[p] = m.b.Row(-inf, 0)
			m.b.Add(pools[p], m.guaranteed[p][e].column, -1)
			use := func(x int) {
				m.b.Add(pools[p], x, -1)
				if row, ok := quotas[pool.Quota]; ok {
					m.b.Add(row, x, float64(max(1, pool.QuotaPerUnit)))
				}
			}
			if pool.OnDemand != nil {
				use(column(m.in(pool.OnDemand, e), 0, inf))
				x := column(0, 0, inf)
				use(x)
				row := m.b.Row(-inf, 0)
				m.b.Add(row, x, 1)
				m.b.Add(row, m.discounted[p][e].column, -1)
				for name, rates := range m.rates {
					if rate, ok := rates[pool.ID]; ok {
						x := column(0, 0, inf)
						use(x)
						m.b.Add(names[name], x, rate)
					}
				}
			}
			spots[p] = m.b.Row(-inf, m.spotUnits(s, p))
		}
		for i := range m.Demands {
			d, come := &m.Demands[i], m.come[s][i][st.first]
			waits := m.waits(s, i, st.first)
			stays := float64(come - waits + m.spares[s][i][st.first])
			want := m.b.Row(stays, stays)
			var spot int
			if d.Deferrable == nil || d.Deferrable.Sign() == 0 {
				spot = m.b.Row(-inf, float64(d.Interruptible.floor(come+m.spares[s][i][st.first])))
			} else {
				spot = m.b.Row(-inf, stays*float64(d.Interruptible.thousandths())/1000)
			}
			if d.Deferrable != nil && d.DeferHours > 0 && d.Deferrable.Sign() > 0 {
				runs := column(0, 0, inf)
				m.b.Add(want, runs, -1)
				m.b.Add(spot, runs, -float64(d.Interruptible.thousandths())/1000)
				// What waited and what comes runs or waits.
				come := float64(waits * st.hours)
				row := m.b.Row(-come, -come)
				if !st.starts[i] && k > 0 {
					m.b.Add(row, backlog[i], 1)
				}
				m.b.Add(row, runs, -float64(st.hours))
				if k+1 < len(list) && !list[k+1].starts[i] {
					backlog[i] = column(0, 0, inf)
					m.b.Add(row, backlog[i], -1)
				}
			}
			short := column(0, float64(d.Shortage), inf)
			m.b.Add(want, short, 1)
			if m.unserved >= 0 {
				m.b.Add(m.unserved, short, times/100)
			}
			for p := range m.Pools {
				pool := &m.Pools[p]
				u, transfer, ok := m.takes(d, pool)
				if !ok {
					continue
				}
				each, _ := u.Float64()
				x := column(transfer, 0, inf)
				m.b.Add(want, x, 1)
				m.b.Add(pools[p], x, each)
				if pool.Spot == nil || d.Interruptible.thousandths() == 0 {
					continue
				}
				lost, _ := pool.Spot.Overhead.Float64()
				x = column(transfer+each*m.in(&pool.Spot.price, e)/(1-lost), 0, inf)
				m.b.Add(want, x, 1)
				m.b.Add(spots[p], x, each)
				m.b.Add(spot, x, 1)
				if m.spot >= 0 {
					m.b.Add(m.spot, x, each*times/100)
				}
			}
		}
	}
}

// spotUnits is what the spot units of a pool serve in an hour.
func (m *mip) spotUnits(s, p int) float64 {
	pool := &m.Pools[p]
	if pool.Spot == nil {
		return 0
	}
	units, bound := 0, pool.Spot.Available != nil
	if bound {
		units = *pool.Spot.Available
	}
	if n, ok := m.Scenarios[s].Spot[pool.ID]; ok {
		units, bound = n, true
	}
	if !bound {
		return inf
	}
	lost, _ := pool.Spot.Overhead.Float64()
	return math.Floor(float64(units)*(1-lost) + 1e-9)
}
