package instance

import (
	"container/heap"
	"fmt"
	"slices"
	"sync"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
)

// loads caches computed demand of an instance, which does not depend on prices. Models of the
// instance share it, also concurrently.
type loads struct {
	// level schedules deferrable work for which the best schedule is unknown: levelled with the
	// pool's other load if true, as it comes if false. See [model.exact].
	level bool

	mu     sync.Mutex
	levels map[levelKey][]int
	spares map[levelKey][]int64
	kept   int // hours in levels
	peaks  map[string][][]int
}

// levelKey identifies a demand in a scenario, as it comes or levelled.
type levelKey struct {
	demand, scenario int
	level            bool
}

// mostKept bounds the cached hours, 8 bytes each; the rest is recomputed.
const mostKept = 16_000_000

func newLoads() *loads {
	return &loads{levels: map[levelKey][]int{}, spares: map[levelKey][]int64{}, peaks: map[string][][]int{}}
}

// levels returns a demand's units in each hour of the horizon in a scenario: scaled, deferred if
// deferrable, and with its buffer, in this order. Callers must not modify it.
func (m *model) levels(demand, scenario int) ([]int, error) {
	return m.levelsOf(m.levelKey(demand, scenario))
}

// levelKey returns the key of a demand's schedule in a scenario.
func (m *model) levelKey(demand, scenario int) levelKey {
	return levelKey{demand, scenario, m.in.Demands[demand].waits() && (m.loads.level || m.exact[demand])}
}

// stated is [model.levels] of a demand that is not deferred.
func (m *model) stated(demand, scenario int) ([]int, error) {
	return m.levelsOf(levelKey{demand, scenario, false})
}

func (m *model) levelsOf(at levelKey) ([]int, error) {
	w := m.loads
	w.mu.Lock()
	known, ok := w.levels[at]
	w.mu.Unlock()
	if ok {
		return known, nil
	}
	out, err := m.wanted(at.demand, &m.scenarios[at.scenario])
	if err != nil {
		return nil, err
	}
	if at.level {
		if err := m.levelOut(at, out); err != nil {
			return nil, err
		}
	}
	spares, err := m.addSpares(at.demand, out)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spares[at] = spares
	if _, ok := w.levels[at]; !ok && w.kept+len(out) <= mostKept {
		w.levels[at] = out
		w.kept += len(out)
	}
	return out, nil
}

// peak stores the given peaks, if any, and returns the stored ones.
func (w *loads) peak(key string, peaks [][]int) [][]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if peaks != nil {
		w.peaks[key] = peaks
	}
	return w.peaks[key]
}

// spares returns the failure buffer of a demand in unit-hours per epoch of a scenario; nil if it
// has none.
func (m *model) spares(demand, scenario int) ([]int64, error) {
	if m.in.Demands[demand].Buffer == nil {
		return nil, nil
	}
	w, at := m.loads, m.levelKey(demand, scenario)
	w.mu.Lock()
	known, ok := w.spares[at]
	w.mu.Unlock()
	if ok {
		return known, nil
	}
	if _, err := m.levels(demand, scenario); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.spares[at], nil
}

// addSpares adds a demand's failure buffer and returns the added unit-hours per epoch; nil if it
// has none.
func (m *model) addSpares(demand int, units []int) ([]int64, error) {
	d := &m.in.Demands[demand]
	if d.Buffer == nil {
		return nil, nil
	}
	spare, err := d.spares(slices.Max(units))
	if err != nil {
		return nil, err
	}
	out := make([]int64, m.cal.n)
	for e := range out {
		for h := m.cal.hours[e]; h < m.cal.hours[e+1]; h++ {
			if n := units[h]; n > 0 {
				units[h] = spare.With(n)
				out[e] += int64(units[h] - n)
			}
		}
	}
	return out, nil
}

// spares returns the buffer of a demand that has one, for up to top units.
func (d *Demand) spares(top int) (*reliability.Buffer, error) {
	spare, err := d.Buffer.Spares(top)
	if err != nil {
		return nil, fmt.Errorf("demand %q: buffer: %w", d.ID, err)
	}
	return spare, nil
}

// Unavailability is the probability that a node is down.
func (b *Buffer) Unavailability() domain.Decimal {
	return reliability.Unavailability(b.FailuresPerGPUHour, b.RepairHours, max(1, b.UnitsPerNode)*max(1, b.GPUsPerUnit))
}

// Spares returns the spares that keep the service level for up to top units.
func (b *Buffer) Spares(top int) (*reliability.Buffer, error) {
	return reliability.NewBuffer(top, max(1, b.UnitsPerNode), b.Unavailability(), b.ServiceLevel)
}

// wanted returns a demand's units in each hour of a scenario, neither deferred nor buffered.
func (m *model) wanted(demand int, s *Scenario) ([]int, error) {
	d := &m.in.Demands[demand]
	out := make([]int, m.cal.hours[m.cal.n])
	replaced, ok := s.Hourly[d.ID]
	switch {
	case ok:
		copy(out, replaced)
	case d.Hourly != nil:
		copy(out, d.Hourly)
	default:
		for e, curve := range d.Duration {
			at := m.cal.hours[e]
			for i := len(curve) - 1; i >= 0; i-- {
				for range curve[i].Hours {
					out[at] = curve[i].Units
					at++
				}
			}
		}
	}
	if !ok {
		factor := int64(1000)
		if s.Factor != 0 {
			factor = int64(s.Factor)
		}
		if f, ok := s.Factors[d.ID]; ok {
			factor *= int64(f)
		} else {
			factor *= 1000
		}
		if factor != 1_000_000 {
			for h, n := range out {
				if n == 0 {
					continue
				}
				x := int64(n) * (factor / 1_000_000)
				x += (int64(n)*(factor%1_000_000) + 999_999) / 1_000_000
				if x > MaxUnits {
					return nil,
						fmt.Errorf("demand %q in scenario %q: %d units in hour %d, more than the %d that may be",
							d.ID, s.ID, x, h, MaxUnits)
				}
				out[h] = int(x)
			}
		}
	}
	return out, nil
}

// waits reports whether a demand has a deferrable share.
func (d *Demand) waits() bool { return d.DeferHours > 0 && d.DeferrableShare.IsPositive() }

// levelOut defers the deferrable share of a demand so that the load of its pool is as level as
// possible. Of the other demands at home there, those before it are already deferred.
func (m *model) levelOut(at levelKey, units []int) error {
	d := &m.in.Demands[at.demand]
	beside := make([]int, len(units))
	for i := range m.in.Demands {
		if i == at.demand || m.in.Demands[i].Pool != d.Pool {
			continue
		}
		others, err := m.levelsOf(levelKey{i, at.scenario, i < at.demand && m.in.Demands[i].waits()})
		if err != nil {
			return err
		}
		for h, n := range others {
			beside[h] += n
		}
	}
	for from := 0; from < len(units); from += d.DeferHours {
		to := min(from+d.DeferHours, len(units))
		putOff(units[from:to], beside[from:to], permille(d.DeferrableShare))
	}
	return nil
}

// putOff lets a share of each hour's demand, rounded down to whole units, run later within the
// window. Each unit goes to the hour with the least load, including other demand; ties go to the
// first hour. The last arrivals have the fewest hours to choose from, so they are placed first. The
// resulting load is as level as possible: no other schedule costs less if an hour's cost is convex
// in its load and the same in all hours (Hardy, Littlewood and Pólya, 1929). The tests compare it
// with every schedule.
func putOff(window, beside []int, permille int) {
	load := &hours{}
	for h := len(window) - 1; h >= 0; h-- {
		wait := int(int64(window[h]) * int64(permille) / 1000)
		heap.Push(load, hour{h, window[h] - wait + beside[h]})
		load.fill(wait)
	}
	for _, x := range *load {
		window[x.at] = x.units - beside[x.at]
	}
}

// findExact finds the demands for which no other schedule costs less than the most level one,
// whatever is bought. That holds where all hours of an epoch are served alike, at a cost that is
// convex in a single load:
//
//   - every window lies within an epoch;
//   - it is the only deferrable demand of its component, and has no buffer, because spares are
//     not proportional to load;
//   - it is the only demand of its component; or all have the same pool, no other pool may serve
//     them, and their shortage costs are equal;
//   - if a pool has spot, all these demands have the same interruptible share, 0 or 1, because
//     other shares are rounded down in each hour.
func (m *model) findExact() {
	m.exact = make([]bool, len(m.in.Demands))
	for i := range m.components {
		c := &m.components[i]
		waiting := -1
		exact := true
		for _, j := range c.demands {
			d, first := &m.in.Demands[j], &m.in.Demands[c.demands[0]]
			if d.waits() {
				exact = exact && waiting < 0 && d.Buffer == nil && m.withinEpochs(d.DeferHours)
				waiting = j
			}
			if len(c.demands) > 1 {
				exact = exact && d.Pool == first.Pool && len(m.ways[j]) == 1 && d.Shortage.Equal(first.Shortage)
			}
			if slices.ContainsFunc(c.pools, func(p int) bool { return m.in.Pools[p].Spot != nil }) {
				share := permille(d.Interruptible)
				exact = exact && (share == 0 || share == 1000) && share == permille(first.Interruptible)
			}
		}
		switch {
		case waiting < 0:
		case exact:
			m.exact[waiting] = true
		default:
			c.unproven = true
		}
	}
}

// withinEpochs reports whether no window of this length crosses an epoch boundary.
func (m *model) withinEpochs(hours int) bool {
	return !slices.ContainsFunc(m.cal.hours[:m.cal.n], func(h int64) bool { return h%int64(hours) != 0 })
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

// weighted returns the scenarios, at least one, with their weights divided by the greatest common
// divisor.
func (in *Instance) weighted() []Scenario {
	if len(in.Scenarios) == 0 {
		return []Scenario{{ID: "as stated", Weight: 1}}
	}
	out := make([]Scenario, len(in.Scenarios))
	copy(out, in.Scenarios)
	g := 0
	for _, s := range out {
		g = gcd(s.Weight, g)
	}
	for i := range out {
		out[i].Weight /= g
	}
	return out
}
