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
		s.uses = addUp(s.uses, h, func(a, b uint32) int { return cmp.Compare(a, b) })
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

// settle sorts usage by allocation key, with one entry for each key.
func (s *slot) settle(k *keys, h *hardwares) {
	if !s.settled {
		s.uses = settle(s.uses, k, h)
		s.settled = true
	}
}

func settle(uses []use, k *keys, h *hardwares) []use { return addUp(uses, h, k.compare) }

// addUp sorts uses and merges those with the same key, in place.
func addUp(uses []use, h *hardwares, compare func(a, b uint32) int) []use {
	slices.SortFunc(uses, func(a, b use) int { return compare(a.key, b.key) })
	out := uses[:0]
	for _, u := range uses {
		if n := len(out); n > 0 && out[n-1].key == u.key {
			o := &out[n-1]
			switch {
			case u.micros == 0: // zero weight says nothing about hardware
			case o.micros == 0:
				o.hardware = u.hardware
			default:
				o.hardware = h.join(o.hardware, u.hardware)
			}
			o.micros += u.micros
			o.useful += u.useful
			o.known += u.known
			continue
		}
		out = append(out, u)
	}
	return out
}

// weight is what one allocation of a cell weighs.
type weight struct {
	hour domain.Instant
	use
}

// weights appends the weight of each allocation key in each hour of a period, in the order of
// allocations. With whole, hours are not distinguished.
func (g *grid) weights(period domain.Interval, whole bool, k *keys, hw *hardwares, to []weight) []weight {
	var pending []use
	var hour domain.Instant
	slots := 0
	flush := func() {
		if slots > 1 {
			pending = settle(pending, k, hw)
		}
		for _, u := range pending {
			to = append(to, weight{hour, u})
		}
		pending, slots = nil, 0
	}
	for i := g.find(period.From); i < len(g.slots) && g.slots[i].from < period.To; i++ {
		s := &g.slots[i]
		s.settle(k, hw)
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

// overHours appends microseconds of one key and hardware, spread evenly over a period. With whole
// it appends one weight.
func overHours(period domain.Interval, whole bool, key, hardware uint32, micros int64, to []weight) []weight {
	if whole {
		return append(to, weight{0, use{key: key, hardware: hardware, micros: micros}})
	}
	d := divisionOfMs(micros)
	for h := period.From.HourStart(); h < period.To; h += domain.Hour {
		end := min(h+domain.Hour, period.To)
		ms := d.nextMs(uint64(end-period.From), uint64(period.Length()))
		to = append(to, weight{h, use{key: key, hardware: hardware, micros: ms}})
	}
	return to
}
