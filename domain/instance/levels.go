package instance

import (
	"container/heap"
	"fmt"
	"slices"
	"sync"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
)

// loads keeps what was computed of an instance's demand, which does not depend on
// prices. Models of the instance share it, at the same time too.
type loads struct {
	// level says how work that may wait runs where the best way is not known: level
	// with what else its pool serves, or as it comes. See [model.exact].
	level bool

	mu     sync.Mutex
	levels map[levelKey][]int
	spares map[levelKey][]int64
	kept   int // hours in levels
	peaks  map[string][][]int
}

// levelKey names a demand in a scenario, as it comes or levelled.
type levelKey struct {
	demand, scenario int
	level            bool
}

// mostKept bounds the hours that are kept, 8 bytes each; what is beyond is computed
// again.
const mostKept = 16_000_000

func newLoads() *loads {
	return &loads{levels: map[levelKey][]int{}, spares: map[levelKey][]int64{}, peaks: map[string][][]int{}}
}

// levels is what a demand runs in each hour of the horizon in a scenario: multiplied,
// put off where it may wait, and with its buffer, in this order. Nobody may change it.
func (m *model) levels(demand, scenario int) ([]int, error) {
	return m.levelsOf(m.levelKey(demand, scenario))
}

// levelKey is how a demand runs in a scenario.
func (m *model) levelKey(demand, scenario int) levelKey {
	return levelKey{demand, scenario, m.in.Demands[demand].waits() && (m.loads.level || m.exact[demand])}
}

// stated is [model.levels] of a demand that never waits.
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

// peak keeps peaks of demand, if any are given, and returns those that are kept.
func (w *loads) peak(key string, peaks [][]int) [][]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if peaks != nil {
		w.peaks[key] = peaks
	}
	return w.peaks[key]
}

// spares is how many of the unit-hours that a demand wants in each epoch of a
// scenario are of its buffer for failures; nil: none are.
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

// addSpares raises a demand by its buffer for failures, and says by how many
// unit-hours in each epoch; nil: it has none.
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

// spares is the buffer of a demand that has one, for up to so many units.
func (d *Demand) spares(top int) (*reliability.Buffer, error) {
	spare, err := d.Buffer.Spares(top)
	if err != nil {
		return nil, fmt.Errorf("demand %q: buffer: %w", d.ID, err)
	}
	return spare, nil
}

// Unavailability is the probability with which a node is down.
func (b *Buffer) Unavailability() domain.Decimal {
	return reliability.Unavailability(b.FailuresPerGPUHour, b.RepairHours, max(1, b.UnitsPerNode)*max(1, b.GPUsPerUnit))
}

// Spares is what keeps the service level of up to so many units.
func (b *Buffer) Spares(top int) (*reliability.Buffer, error) {
	return reliability.NewBuffer(top, max(1, b.UnitsPerNode), b.Unavailability(), b.ServiceLevel)
}

// wanted is what a demand wants in each hour of a scenario as it comes, without a buffer.
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
					return nil, fmt.Errorf("demand %q in scenario %q: %d units in hour %d, more than the %d that may be", d.ID, s.ID, x, h, MaxUnits)
				}
				out[h] = int(x)
			}
		}
	}
	return out, nil
}

// waits reports whether some of a demand may run later than it comes.
func (d *Demand) waits() bool { return d.DeferHours > 0 && d.DeferrableShare.IsPositive() }

// levelOut puts off what may wait of a demand, so that its pool serves as level a load
// as can be. Of the other demands at home there those before it are put off already.
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

// putOff lets a share of each hour's demand, rounded down to whole units, run
// later within the window: each unit where the load, with what runs beside it, is
// least, of equal hours the first. The hours that may be used by what arrives last are
// the fewest, so it comes first. The loads are then as level as can be: no other way to
// run the work costs less where an hour's cost is convex in its load and alike in all
// hours (Hardy, Littlewood and Pólya, 1929). The tests compare it with every way.
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

// findExact finds the demands for which no other way of waiting costs less than the
// most level one, whatever is bought. That is so where all hours of an epoch are served
// alike, at a cost that is convex in one load:
//
//   - every window lies within an epoch;
//   - of its component the demand alone may wait, and has no buffer, as spares are not
//     in proportion to what they are for;
//   - it is the only demand there, or all have the same pool, no other may serve them,
//     and a shortage of each costs the same;
//   - whole hours of them may run on spot, or none: a share is rounded down by the hour.
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

// withinEpochs reports whether no window of so many hours reaches into another epoch.
func (m *model) withinEpochs(hours int) bool {
	return !slices.ContainsFunc(m.cal.hours[:m.cal.n], func(h int64) bool { return h%int64(hours) != 0 })
}

type hour struct{ at, units int }

// hours is a heap, the least loaded first.
type hours []hour

func (h hours) Len() int { return len(h) }
func (h hours) Less(i, j int) bool {
	return h[i].units < h[j].units || h[i].units == h[j].units && h[i].at < h[j].at
}
func (h hours) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push is heap.Interface's.
func (h *hours) Push(x any) { *h = append(*h, x.(hour)) }

// Pop is heap.Interface's.
func (h *hours) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// fill puts n units on the least loaded hours, as if one after the other.
func (h *hours) fill(n int) {
	if n == 0 {
		return
	}
	// The hours that are raised come to one level: take them out.
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

// weighted returns the scenarios, at least one, with weights divided by what
// they share.
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
