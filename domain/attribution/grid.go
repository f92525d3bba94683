package attribution

import (
	"cmp"
	"slices"
	"sort"

	"quartermaster/domain"
)

// grid collects the usage of a match in the slots that its charge periods need. No charge period
// begins or ends within a slot. Where allocations are hourly, no slot crosses the end of an hour.
type grid struct {
	slots     []slot
	cutsHours bool // some slot begins or ends within an hour
}

type slot struct {
	from, to domain.Instant
	uses     []use
	full     int // length at which repeated keys are merged
	settled  bool
}

// newGrid makes the slots for ascending periods.
func newGrid(periods []domain.Interval, hourly bool) grid {
	spans := merge(slices.Clone(periods))
	var cuts []domain.Instant
	for _, p := range periods {
		cuts = append(cuts, p.From, p.To)
	}
	if hourly {
		for _, s := range spans {
			for h := s.From.HourStart() + domain.Hour; h < s.To; h += domain.Hour {
				cuts = append(cuts, h)
			}
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	g := grid{slots: make([]slot, 0, len(cuts))}
	for i := 1; i < len(cuts); i++ {
		for len(spans) > 0 && spans[0].To <= cuts[i-1] {
			spans = spans[1:]
		}
		if len(spans) > 0 && spans[0].From <= cuts[i-1] {
			g.slots = append(g.slots, slot{from: cuts[i-1], to: cuts[i]})
			g.cutsHours = g.cutsHours || cuts[i-1] != cuts[i-1].HourStart() || cuts[i] != cuts[i].HourStart()
		}
	}
	return g
}

// find returns the first slot that ends after t.
func (g *grid) find(t domain.Instant) int {
	return sort.Search(len(g.slots), func(i int) bool { return g.slots[i].to > t })
}

// add adds the usage within an interval. ok is false if a slot boundary lies within the interval.
// covered is how much of the interval a slot covers: all or nothing. entered, unless nil, is called
// with what the slot got.
func (g *grid) add(held domain.Interval, uses []use, h *hardwares, entered func(*slot, use)) (covered domain.Instant, ok bool) {
	i := g.find(held.From)
	if i == len(g.slots) || g.slots[i].from >= held.To {
		return 0, true
	}
	s := &g.slots[i]
	if s.from > held.From || s.to < held.To {
		return 0, false
	}
	for _, u := range uses {
		if u.micros > 0 {
			s.uses = append(s.uses, u)
			if entered != nil {
				entered(s, u)
			}
		}
	}
	if len(s.uses) > max(64, s.full) {
		// Numbers of keys compare faster than their texts.
		s.uses = addUp(s.uses, h, func(a, b *use) int {
			return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.unit, b.unit), cmp.Compare(a.machine, b.machine))
		})
		s.full = 2 * len(s.uses)
	}
	return held.Length(), true
}

// sum returns all GPU time in the slots, in microseconds.
func (g *grid) sum() (micros int64) {
	for i := range g.slots {
		for _, u := range g.slots[i].uses {
			micros += u.micros
		}
	}
	return micros
}

// settle sorts usage by allocation key, unit and machine, with one entry for each.
func (s *slot) settle(r *run) {
	if !s.settled {
		s.uses = r.settle(s.uses)
		s.settled = true
	}
}

func (r *run) settle(uses []use) []use {
	return addUp(uses, r.hardware, func(a, b *use) int {
		if a.key != b.key {
			return compareKeys(&r.keys.all[a.key], &r.keys.all[b.key])
		}
		return r.names.compare(a.unit, a.machine, b.unit, b.machine)
	})
}

// addUp sorts uses and merges those with the same key, unit and machine, in place.
func addUp(uses []use, h *hardwares, compare func(a, b *use) int) []use {
	slices.SortFunc(uses, func(a, b use) int { return compare(&a, &b) })
	out := uses[:0]
	for _, u := range uses {
		if n := len(out); n > 0 && out[n-1].key == u.key && out[n-1].unit == u.unit && out[n-1].machine == u.machine {
			out[n-1].join(&u, h)
			continue
		}
		out = append(out, u)
	}
	return out
}

// join adds another use.
func (u *use) join(o *use, h *hardwares) {
	switch {
	case o.micros == 0: // zero weight says nothing about hardware
	case u.micros == 0:
		u.hardware = o.hardware
	default:
		u.hardware = h.join(u.hardware, o.hardware)
	}
	u.micros += o.micros
	u.useful += o.useful
	u.known += o.known
}

// sameKey returns how many uses, starting with the first, have its key.
func sameKey(uses []use) int {
	n := 1
	for n < len(uses) && uses[n].key == uses[0].key {
		n++
	}
	return n
}

// weight is what one allocation of a cell weighs.
type weight struct {
	hour    domain.Instant
	use              // of all units and machines together
	of      []use    // each of them
	holders *Holders // those of them, once they are known
}

// weightsOf appends the weight of each allocation key in each hour of a period, in the order of
// allocations. With whole, hours are not distinguished.
func (r *run) weightsOf(g *grid, period domain.Interval, whole bool, to []weight) []weight {
	var pending []use
	var hour domain.Instant
	slots := 0
	flush := func() {
		if slots > 1 {
			pending = r.settle(pending)
		}
		for len(pending) > 0 {
			n := sameKey(pending)
			w := weight{hour: hour, use: pending[0], of: pending[:n:n]}
			for i := range w.of[1:] {
				w.join(&w.of[1+i], r.hardware)
			}
			to, pending = append(to, w), pending[n:]
		}
		pending, slots = nil, 0
	}
	for i := g.find(period.From); i < len(g.slots) && g.slots[i].from < period.To; i++ {
		s := &g.slots[i]
		s.settle(r)
		at := s.from.HourStart()
		if whole {
			at = 0
		}
		if at != hour {
			flush()
			hour = at
		}
		if slots == 0 {
			pending = s.uses // read only while it is the hour's only slot
		} else {
			pending = append(slices.Clip(pending), s.uses...)
		}
		slots++
	}
	flush()
	return to
}

// overHours appends microseconds of one key, hardware and holders, spread evenly over a period. With whole
// it appends one weight.
func overHours(period domain.Interval, whole bool, of use, micros int64, holders *Holders, to []weight) []weight {
	if whole {
		of.micros = micros
		return append(to, weight{use: of, holders: holders})
	}
	d := divisionOfMs(micros)
	for h := period.From.HourStart(); h < period.To; h += domain.Hour {
		end := min(h+domain.Hour, period.To)
		of.micros = d.nextMs(uint64(end-period.From), uint64(period.Length()))
		to = append(to, weight{hour: h, use: of, holders: holders})
	}
	return to
}
