package instance

import (
	"fmt"
	"slices"
	"sync"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
)

// loads caches computed demand of an instance, which does not depend on prices. Models of the
// instance share it, also concurrently.
type loads struct {
	mu     sync.Mutex
	levels map[levelKey][]int
	spares map[levelKey][]int64
	kept   int // hours in levels
	peaks  map[string][][]int
}

// levelKey identifies a demand in a scenario.
type levelKey struct{ demand, scenario int }

// mostKept bounds the cached hours, 8 bytes each; the rest is recomputed.
const mostKept = 16_000_000

func newLoads() *loads {
	return &loads{levels: map[levelKey][]int{}, spares: map[levelKey][]int64{}, peaks: map[string][][]int{}}
}

// levels returns a demand's units in each hour of the horizon in a scenario as it comes: scaled, and
// with its buffer, in this order. Callers must not modify it.
func (m *model) levels(demand, scenario int) ([]int, error) {
	w, at := m.loads, levelKey{demand, scenario}
	w.mu.Lock()
	known, ok := w.levels[at]
	w.mu.Unlock()
	if ok {
		return known, nil
	}
	out, own, err := m.wanted(demand, &m.scenarios[scenario])
	if err != nil {
		return nil, err
	}
	if m.in.Demands[demand].Buffer == nil && !own {
		return out, nil
	}
	if !own {
		out = slices.Clone(out)
	}
	spares, err := m.addSpares(demand, out)
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

// waiting returns how many of a demand's units in each hour may run later in its window. Spares do
// not.
func (m *model) waiting(demand, scenario int) ([]int, error) {
	out, own, err := m.wanted(demand, &m.scenarios[scenario])
	if !own {
		out = slices.Clone(out)
	}
	share := int64(permille(m.in.Demands[demand].DeferrableShare))
	for h, n := range out {
		out[h] = int(int64(n) * share / 1000)
	}
	return out, err
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
	w, at := m.loads, levelKey{demand, scenario}
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
	return reliability.NewBuffer(top, max(1, b.UnitsPerNode), b.Unavailability(), b.ServiceLevel, b.Counted)
}

// wanted returns a demand's units in each hour of a scenario, neither deferred nor buffered. They are
// those of the instance where a scenario changes nothing; own reports whether callers may modify them.
func (m *model) wanted(demand int, s *Scenario) (out []int, own bool, err error) {
	d := &m.in.Demands[demand]
	replaced, ok := s.Hourly[d.ID]
	switch {
	case ok:
		return replaced, false, nil
	case d.Hourly != nil:
		out = d.Hourly
	default:
		out, own = make([]int, m.cal.hours[m.cal.n]), true
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
	factor := int64(1000)
	if s.Factor != 0 {
		factor = int64(s.Factor)
	}
	if f, ok := s.Factors[d.ID]; ok {
		factor *= int64(f)
	} else {
		factor *= 1000
	}
	if factor == 1_000_000 {
		return out, own, nil
	}
	if !own {
		out, own = slices.Clone(out), true
	}
	for h, n := range out {
		if n == 0 {
			continue
		}
		x := int64(n) * (factor / 1_000_000)
		x += (int64(n)*(factor%1_000_000) + 999_999) / 1_000_000
		if x > MaxUnits {
			return nil, false, fmt.Errorf("demand %q in scenario %q: %d units in hour %d, more than the %d that may be",
				d.ID, s.ID, x, h, MaxUnits)
		}
		out[h] = int(x)
	}
	return out, own, nil
}

// waits reports whether a demand has a deferrable share.
func (d *Demand) waits() bool { return d.DeferHours > 0 && d.DeferrableShare.IsPositive() }

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
