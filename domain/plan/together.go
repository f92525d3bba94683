package plan

import (
	"fmt"
	"math/bits"
	"slices"

	"quartermaster/domain"
)

// together is a limit of what several pools hold in one hour.
type together struct {
	most    uint64 // thousandths of a GPU
	members []member
}

// member is a pool under such a limit, with the demand that counts.
type member struct {
	at    int    // the pool, of those that limits span
	gpus  uint64 // of a unit
	parts []int  // workspaces of the pool; of a forecast only the first, which is all of them
}

// share applies the limits that span pools, after each pool's own. In an hour in which pools want more than a
// limit, each is planned for in proportion to what it wants, so that the order of pools does not matter.
// Demand that counts machines is then rounded down to whole ones. Limits apply in turn, those of few
// workspaces first, each to what those before it leave.
//
// A forecast does not tell workspaces apart, so a limit bounds forecasts of pools whose workspaces are all
// under it.
func (c *composer) share() {
	var pools []*candidate
	var limits []together
	for _, l := range inOrder(c.q.Limits) {
		x := together{most: uint64(clampedDecimal(l.GPUs.Shift(3)))}
		var of []*candidate
		var names []string
		for _, k := range c.planned() {
			m, ok := l.member(k, c.a.Demand == Forecast)
			if !ok {
				continue
			}
			if len(c.q.Only) > 0 && l.Region == "" {
				k.notes = append(k.notes, fmt.Sprintf("the hard quota %s also holds in regions that this plan leaves out: "+
					"what they take of it is not counted", l.ID))
			}
			if m.at = slices.Index(pools, k); m.at < 0 {
				m.at, pools = len(pools), append(pools, k)
			}
			x.members, of, names = append(x.members, m), append(of, k), append(names, k.name())
		}
		if len(of) < 2 {
			continue
		}
		limits = append(limits, x)
		for _, k := range of {
			k.notes = append(k.notes, fmt.Sprintf("the hard quota %s is for %s together: where they want more, "+
				"each is planned for in proportion to what it wants", l.ID, listed(names)))
		}
	}
	switch {
	case len(limits) == 0:
	case c.a.Demand == Forecast:
		c.shareForecasts(pools, limits)
	default:
		c.shareRepeated(pools, limits)
	}
}

// member is a pool's part in a limit; ok is false if it has none. The pool's own limits are known.
func (l *Limit) member(k *candidate, whole bool) (m member, ok bool) {
	if k.seen.kept == nil || !l.holds(k.Pool) {
		return m, false
	}
	m.gpus = 1
	if !k.inGPUs() {
		m.gpus = uint64(max(0, min(k.shelf.gpus, 1<<16)))
	}
	names := k.workspaces()
	for j, name := range names {
		if slices.Contains(l.Workspaces, name) {
			m.parts = append(m.parts, j)
		}
	}
	if whole {
		if len(m.parts) < len(names) {
			return m, false
		}
		m.parts = m.parts[:min(1, len(names))]
	}
	return m, len(m.parts) > 0 && m.gpus > 0
}

// unlimited marks an hour in which no limit that spans pools binds.
const unlimited = -1

// shareRepeated shares limits in each hour of the horizon, workspace by workspace.
func (c *composer) shareRepeated(pools []*candidate, limits []together) {
	now, hour := make([]wants, len(pools)), 0
	for _, month := range c.span {
		parts, factors := make([][][]int64, len(pools)), make([]int64, len(pools))
		for i, k := range pools {
			factors[i] = c.growth.between(k.seen.to, month.From)
			parts[i] = k.seen.parts(factors[i])
		}
		for t := month.From; t < month.To; t, hour = t+domain.Hour, hour+1 {
			for i, k := range pools {
				x, at := &now[i], k.seen.at(t)
				x.parts, x.bound = x.parts[:0], false
				for j := range parts[i] {
					x.parts = append(x.parts, grow(parts[i][j][at], factors[i]))
				}
			}
			limit(now, limits)
			for i, k := range pools {
				if now[i].bound {
					k.seen.bind(hour, c.hours(), now[i].planned(k))
				}
			}
		}
	}
}

// shareForecasts shares limits in each hour of each scenario.
func (c *composer) shareForecasts(pools []*candidate, limits []together) {
	drawn, now := make([][][]int64, len(pools)), make([]wants, len(pools))
	for i, k := range pools {
		var err error
		if drawn[i], err = c.draw(k); err != nil {
			k.refuse(err)
		}
	}
	for s := range c.a.Scenarios {
		for hour := range c.hours() {
			for i, k := range pools {
				x := &now[i]
				x.parts, x.bound = append(x.parts[:0], 0), false
				if k.left == "" {
					x.parts[0] = drawn[i][s][c.firstOf(k)+hour]
				}
			}
			limit(now, limits)
			for i, k := range pools {
				if now[i].bound && k.left == "" {
					k.future.bind(s, hour, c.a.Scenarios, c.hours(), now[i].planned(k)[0])
				}
			}
		}
	}
}

// hours is the length of the horizon.
func (c *composer) hours() int { return int((c.end() - c.span[0].From) / domain.Hour) }

// firstOf is the hour of a forecast with which the horizon begins.
func (c *composer) firstOf(k *candidate) int {
	return int((c.span[0].From - k.future.made.From) / domain.Hour)
}

// wants is what the workspaces of a pool want in an hour, in thousandths of a unit.
type wants struct {
	parts []int64
	bound bool
}

// farBeyond is more than any demand that is planned for, in thousandths of a unit.
const farBeyond = 1000 * maxUnits * 100

// limit lowers what pools want in an hour to what limits allow.
func limit(now []wants, limits []together) {
	for _, l := range limits {
		sum := uint64(0)
		for _, m := range l.members {
			for _, j := range m.parts {
				sum = min(1<<62, sum+uint64(min(farBeyond, now[m.at].parts[j]))*m.gpus)
			}
		}
		if sum <= l.most {
			continue
		}
		for _, m := range l.members {
			x := &now[m.at]
			x.bound = true
			for _, j := range m.parts {
				high, low := bits.Mul64(uint64(min(farBeyond, x.parts[j])), l.most)
				part, _ := bits.Div64(high, low, sum) // no part is more than the sum
				x.parts[j] = int64(part)
			}
		}
	}
}

// planned is what a pool is planned for: in all, or by workspace where none shares machines.
func (x *wants) planned(k *candidate) []int64 {
	if len(x.parts) > 1 && k.seen.tenants > 1 {
		return slices.Clone(x.parts)
	}
	sum := int64(0)
	for _, part := range x.parts {
		sum += min(farBeyond, part)
	}
	if !k.inGPUs() {
		sum -= sum % 1000
	}
	return []int64{sum}
}

// grow is a demand after growth by a factor in billionths, rounded down to thousandths of a unit.
func grow(milli, factor int64) int64 {
	high, low := bits.Mul64(uint64(milli), uint64(factor))
	if high >= grown {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(high, low, grown)
	return int64(min(q, 1<<63-1))
}

// bind records the demand that is planned for in an hour of the horizon, of those that share machines.
func (h *history) bind(hour, hours int, milli []int64) {
	for d, v := range milli {
		if d == len(h.limited) {
			h.limited = append(h.limited, slices.Repeat([]int64{unlimited}, hours))
		}
		h.limited[d][hour] = v
	}
}

// bind records the demand that is planned for in an hour of a scenario.
func (f *future) bind(scenario, hour, scenarios, hours int, milli int64) {
	if f.limited == nil {
		f.limited = make([][]int64, scenarios)
	}
	if f.limited[scenario] == nil {
		f.limited[scenario] = slices.Repeat([]int64{unlimited}, hours)
	}
	f.limited[scenario][hour] = milli
}
