package instance

import (
	"container/heap"
	"fmt"
	"slices"
	"sync"

	"quartermaster/domain/reliability"
)

// loads keeps what was computed of an instance's demand, which does not depend on
// prices. Models of the instance share it, at the same time too.
type loads struct {
	mu     sync.Mutex
	levels map[[2]int][]int // by demand and scenario
	kept   int              // hours in levels
	peaks  map[string][][]int
}

// mostKept bounds the hours that are kept, 8 bytes each; what is beyond is computed
// again.
const mostKept = 16_000_000

func newLoads() *loads { return &loads{levels: map[[2]int][]int{}, peaks: map[string][][]int{}} }

// levels is what a demand wants in each hour of the horizon in a scenario:
// multiplied, put off, and with its buffer, in this order. Nobody may change it.
func (m *model) levels(demand, scenario int) ([]int, error) {
	w, at := m.loads, [2]int{demand, scenario}
	w.mu.Lock()
	known, ok := w.levels[at]
	w.mu.Unlock()
	if ok {
		return known, nil
	}
	out, err := m.level(demand, scenario)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
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

func (m *model) level(demand, scenario int) ([]int, error) {
	d, s := &m.in.Demands[demand], &m.scenarios[scenario]
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
	if d.DeferHours > 0 && d.DeferrableShare.IsPositive() {
		permille := int(d.DeferrableShare.Shift(3).IntPart())
		for at := 0; at < len(out); at += d.DeferHours {
			putOff(out[at:min(at+d.DeferHours, len(out))], permille)
		}
	}
	if b := d.Buffer; b != nil {
		perNode := max(1, b.UnitsPerNode)
		down := reliability.Unavailability(b.FailuresPerGPUHour, b.RepairHours, perNode*max(1, b.GPUsPerUnit))
		spare, err := reliability.NewBuffer(slices.Max(out), perNode, down, b.ServiceLevel)
		if err != nil {
			return nil, fmt.Errorf("demand %q: buffer: %w", d.ID, err)
		}
		for h, n := range out {
			if n > 0 {
				out[h] = spare.With(n)
			}
		}
	}
	return out, nil
}

// putOff lets a share of each hour's demand, rounded down to whole units, run
// later within the window: each unit where the load is least, of equal hours the
// first. The hours that may be used by what arrives last are the fewest, so it
// comes first; every choice is then as level as can be, and no other way to run
// the same work costs less where an hour's cost is convex in its load and alike in
// all hours.
func putOff(window []int, permille int) {
	fixed := make([]int, len(window))
	for h, n := range window {
		fixed[h] = n - int(int64(n)*int64(permille)/1000)
	}
	load := &hours{}
	for h := len(window) - 1; h >= 0; h-- {
		wait := window[h] - fixed[h]
		window[h] = fixed[h]
		heap.Push(load, hour{h, fixed[h]})
		load.fill(wait)
	}
	for _, x := range *load {
		window[x.at] = x.units
	}
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
