package usage

import (
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// gpuWalk merges everything known of one GPU in a part of an hour into segments that add up to it.
// Its memory is reused for the next GPU.
type gpuWalk struct {
	id       domain.GPUID
	from, to uint32
	declared bool
	row      *projections.UsageHour

	lanes   []lane
	outages []outage
	fixes   []fix
	cuts    []uint32 // where anything changes
	units   []unit
	out     []DeviceSegment
}

// lane is one device as seen by one observer.
type lane struct {
	rank   int
	source string
	dev    *projections.Device
	cut    string // MIG profile, "" for a whole GPU
	weight int64  // of a MIG instance; 0: the whole GPU
	at     int    // the first segment that is not in the past
}

type outage struct {
	from, to uint32
	failed   bool
}

type fix struct {
	from, to uint32
	ev       *domain.UsageCorrected
	holder   projections.Holder
}

// unit is a MIG instance or a whole GPU at a moment, with the replicas that share it.
type unit struct {
	id      domain.GPUID
	part    bool // a MIG instance
	profile string
	weight  int64
	hands   []hand
}

type hand struct {
	replica       uint32
	holder        *projections.Holder // nil: none
	known, active int64               // at the moment, unweighted
	busy          bool                // busy without a known holder
	source        string
}

func (g *gpuWalk) begin(id domain.GPUID, from, to uint32, declared bool, row *projections.UsageHour) {
	g.id, g.from, g.to, g.declared, g.row = id, from, to, declared, row
	g.lanes, g.outages, g.fixes, g.out = g.lanes[:0], g.outages[:0], g.fixes[:0], g.out[:0]
}

func (g *gpuWalk) lane(rank int, o *projections.Observer, d *projections.Device, weight int64) {
	l := lane{rank: rank, source: o.Source, dev: d, weight: weight}
	if d.Cut > 0 {
		l.cut = o.Cuts[d.Cut-1].Profile
	}
	g.lanes = append(g.lanes, l)
}

func (g *gpuWalk) outage(from, to uint32, failed bool) {
	if from, to = max(from, g.from), min(to, g.to); from < to {
		g.outages = append(g.outages, outage{from, to, failed})
	}
}

// correct adds a correction if it is about this GPU or a part of it.
func (g *gpuWalk) correct(from, to uint32, ev *domain.UsageCorrected) {
	from, to = max(from, g.from), min(to, g.to)
	isPart := func(l lane) bool { return l.dev.ID == ev.GPU }
	if from >= to || ev.GPU != g.id && !slices.ContainsFunc(g.lanes, isPart) {
		return
	}
	holder := projections.Holder{Workspace: ev.Workspace, Deployment: ev.Deployment, Unit: ev.Unit}
	g.fixes = append(g.fixes, fix{from, to, ev, holder})
}

func (g *gpuWalk) resolve() []DeviceSegment {
	if len(g.outages) > 0 || len(g.fixes) > 0 || len(g.lanes) > 1 ||
		len(g.lanes) == 1 && (g.lanes[0].weight > 0 || g.lanes[0].dev.Replica > 0) {
		g.sweep()
		return g.out
	}
	// One observer of a whole GPU and no incident: almost always.
	at := g.from
	if len(g.lanes) == 1 {
		l := &g.lanes[0]
		for i := range l.dev.Segments {
			s := &l.dev.Segments[i]
			from, to := max(s.From, g.from), min(s.To, g.to)
			if from >= to {
				continue
			}
			g.nothing(at, from)
			seg := DeviceSegment{
				From: from, To: to, State: inventory.Idle, Holder: g.holder(s.Holder), Device: g.id,
				GPUMs: int64(to - from), Micros: 1000 * int64(to-from), Source: l.source,
			}
			seg.Known, seg.Active = s.Measured(from, to)
			switch {
			case seg.Holder != nil:
				seg.State = inventory.Allocated
			case s.Busy():
				seg.State = inventory.BusyUnattributed
			}
			g.out = append(g.out, seg)
			at = to
		}
	}
	g.nothing(at, g.to)
	return g.out
}

// nothing adds a time without observations.
func (g *gpuWalk) nothing(from, to uint32) {
	if from < to && g.declared {
		g.out = append(g.out, DeviceSegment{
			From: from, To: to, State: inventory.Unobserved, Device: g.id,
			GPUMs: int64(to - from), Micros: 1000 * int64(to-from),
		})
	}
}

// holder returns a holder of the row, nil for none.
func (g *gpuWalk) holder(i uint32) *projections.Holder {
	if i == 0 {
		return nil
	}
	return &g.row.Holders[i-1]
}

// sweep processes the time between each change and the next.
func (g *gpuWalk) sweep() {
	g.cuts = append(g.cuts[:0], g.from, g.to)
	cut := func(at uint32) {
		if g.from < at && at < g.to {
			g.cuts = append(g.cuts, at)
		}
	}
	for _, l := range g.lanes {
		for _, s := range l.dev.Segments {
			cut(s.From)
			cut(s.To)
		}
		for _, s := range l.dev.Unasked {
			cut(s.From)
			cut(s.To)
		}
	}
	for _, o := range g.outages {
		cut(o.from)
		cut(o.to)
	}
	for _, f := range g.fixes {
		cut(f.from)
		cut(f.to)
	}
	slices.Sort(g.cuts)
	g.cuts = slices.Compact(g.cuts)
	for i := 1; i < len(g.cuts); i++ {
		g.moment(g.cuts[i-1], g.cuts[i])
	}
}

// moment adds a time without changes.
func (g *gpuWalk) moment(from, to uint32) {
	g.units = g.units[:0]
	g.observe(from, to)
	g.fix(from, to)
	idle, rest := inventory.Idle, inventory.Unprovisioned
	failed := false
	for _, o := range g.outages {
		if o.from <= from && from < o.to {
			failed = failed || o.failed
			idle, rest = inventory.Maintenance, inventory.Maintenance
		}
	}
	if failed {
		idle, rest = inventory.Failed, inventory.Failed
	}
	length := int64(to - from)
	if len(g.units) == 0 {
		switch {
		case !g.declared:
		case idle == inventory.Idle:
			g.nothing(from, to)
		default:
			g.put(DeviceSegment{From: from, To: to, State: idle, Device: g.id, GPUMs: length, Micros: 1000 * length})
		}
		return
	}
	var total int64
	for i := range g.units {
		total += g.units[i].weight
	}
	parts := max(total, whole)
	var weight, given, givenMicros int64
	for i := range g.units {
		u := &g.units[i]
		weight += u.weight
		share := length*weight/parts - given
		given += share
		micros := 1000*length*weight/parts - givenMicros
		givenMicros += micros
		held, busy := int64(0), false
		for _, h := range u.hands {
			if h.holder != nil {
				held++
			}
			busy = busy || h.busy
		}
		if held == 0 {
			h, state := u.hands[0], idle
			if busy && idle == inventory.Idle {
				state = inventory.BusyUnattributed
			}
			g.put(DeviceSegment{From: from, To: to, State: state, Device: u.id, Profile: u.profile, GPUMs: share, Micros: micros,
				Known: h.known * share / length, Active: h.active * share / length, Source: h.source})
			continue
		}
		var n, done, doneMicros int64
		for _, h := range u.hands {
			if h.holder == nil {
				continue
			}
			n++
			ms := share*n/held - done
			done += ms
			us := micros*n/held - doneMicros
			doneMicros += us
			g.put(DeviceSegment{
				From: from, To: to, State: inventory.Allocated, Holder: h.holder,
				Device: u.id, Replica: h.replica, Profile: u.profile, GPUMs: ms, Micros: us,
				Known: h.known * ms / length, Active: h.active * ms / length, WhileFailed: failed, Source: h.source,
			})
		}
	}
	if givenMicros < 1000*length {
		g.put(DeviceSegment{
			From: from, To: to, State: rest, Device: g.id,
			GPUMs: length - given, Micros: 1000*length - givenMicros, Source: g.units[0].hands[0].source,
		})
	}
}

// observe adds what the most trusted observer of the moment saw. Instances count instead of the GPU
// that contains them, replicas instead of the device that they share.
//
// An observer that does not know the holder of some part of the GPU is skipped for holders and
// partitioning, in favour of the next that does. Its measurements of a part still count. If no
// observer knows, there is no known holder.
func (g *gpuWalk) observe(from, to uint32) {
	first, best := -1, -1 // by rank; best knows the holders
	for i := range g.lanes {
		l := &g.lanes[i]
		for l.at < len(l.dev.Segments) && l.dev.Segments[l.at].To <= from {
			l.at++
		}
		s := l.now(from)
		if s == nil {
			continue
		}
		if first < 0 || l.rank < first {
			first = l.rank
		}
		if (best < 0 || l.rank < best) && (s.Holder > 0 || !l.dev.UnaskedAt(from)) {
			best = l.rank
		}
	}
	if best < 0 {
		best = first
	}
	instances := false
	for i := range g.lanes {
		l := &g.lanes[i]
		instances = instances || l.rank == best && l.weight > 0 && l.now(from) != nil
	}
	for i := range g.lanes {
		l := &g.lanes[i]
		s := l.now(from)
		if l.rank != best || s == nil || instances != (l.weight > 0) {
			continue
		}
		h := hand{replica: l.dev.Replica, holder: g.holder(s.Holder), source: l.source}
		h.known, h.active = s.Measured(from, to)
		if m := g.measuredBy(first, l.dev, from); first != best && m != nil {
			if known, active := m.Measured(from, to); known > 0 {
				h.known, h.active = known, active
			}
		}
		h.busy = h.holder == nil && g.busy(l.dev, from)
		g.unit(l.dev.ID, l.cut, l.weight).take(h)
	}
}

// now returns the current segment, nil if there is none, and sets l.at to it.
func (l *lane) now(from uint32) *projections.Segment {
	if l.at == len(l.dev.Segments) || l.dev.Segments[l.at].From > from {
		return nil
	}
	return &l.dev.Segments[l.at]
}

// measuredBy returns what the observer of a rank saw of a device at a moment.
func (g *gpuWalk) measuredBy(rank int, d *projections.Device, from uint32) *projections.Segment {
	for i := range g.lanes {
		if l := &g.lanes[i]; l.rank == rank && l.dev.ID == d.ID && l.dev.Replica == d.Replica {
			return l.now(from)
		}
	}
	return nil
}

// busy reports whether a device without a known holder was busy at a moment, according to the first
// observer that measured it then.
func (g *gpuWalk) busy(d *projections.Device, from uint32) bool {
	for i := range g.lanes {
		l := &g.lanes[i]
		if l.dev.ID != d.ID || l.dev.Replica != d.Replica {
			continue
		}
		if s := l.now(from); s != nil && s.Known > 0 {
			return s.Active >= projections.BusyAt*uint64(s.Known)
		}
	}
	return false
}

// unit returns the unit of a device at this moment.
func (g *gpuWalk) unit(id domain.GPUID, profile string, weight int64) *unit {
	for i := range g.units {
		if g.units[i].id == id {
			return &g.units[i]
		}
	}
	part := weight > 0
	if !part {
		weight = whole
	}
	if len(g.units) < cap(g.units) {
		g.units = g.units[:len(g.units)+1]
	} else {
		g.units = append(g.units, unit{})
	}
	u := &g.units[len(g.units)-1]
	*u = unit{id: id, part: part, profile: profile, weight: weight, hands: u.hands[:0]}
	return u
}

// take adds a hand. Replicas replace the entry of the device itself.
func (u *unit) take(h hand) {
	for i := range u.hands {
		switch have := &u.hands[i]; {
		case have.replica == h.replica:
			h.known, h.active = max(h.known, have.known), max(h.active, have.active)
			*have = h
			return
		case have.replica == 0:
			*have = h
			return
		case h.replica == 0:
			return
		}
	}
	u.hands = append(u.hands, h)
}

// fix applies the corrections of the moment to the observations. One for the whole GPU replaces
// everything; one for an instance or replica that was not observed adds it.
func (g *gpuWalk) fix(from, to uint32) {
	for i := range g.fixes {
		f := &g.fixes[i]
		if f.from > from || from >= f.to {
			continue
		}
		h := hand{replica: f.ev.Replica, source: "correction"}
		if f.ev.Workspace != "" {
			h.holder = &f.holder
		}
		if f.ev.GPU == g.id && f.ev.Replica == 0 {
			if len(g.units) == 1 && g.units[0].id == g.id && len(g.units[0].hands) == 1 {
				h.known, h.active = g.units[0].hands[0].known, g.units[0].hands[0].active
			}
			g.units = g.units[:0]
		}
		var profile string
		var weight int64
		for _, l := range g.lanes {
			if l.dev.ID == f.ev.GPU {
				profile, weight = l.cut, l.weight
			}
		}
		// An instance and the whole GPU exclude each other.
		g.units = slices.DeleteFunc(g.units, func(u unit) bool { return u.part != (weight > 0) })
		g.unit(f.ev.GPU, profile, weight).take(h)
	}
}

// put adds a segment. It is merged with the previous one of the same part and share if they differ
// only in time.
func (g *gpuWalk) put(s DeviceSegment) {
	if s.Micros == 0 {
		return
	}
	for i := len(g.out) - 1; i >= 0; i-- {
		o := &g.out[i]
		if o.To < s.From {
			break
		}
		if o.To == s.From && o.Device == s.Device && o.Replica == s.Replica && o.State == s.State && o.Profile == s.Profile &&
			o.WhileFailed == s.WhileFailed && o.Source == s.Source &&
			o.GPUMs*int64(s.To-s.From) == s.GPUMs*int64(o.To-o.From) &&
			(o.Holder == s.Holder || o.Holder != nil && s.Holder != nil && *o.Holder == *s.Holder) {
			o.To = s.To
			o.GPUMs += s.GPUMs
			o.Micros += s.Micros
			o.Known += s.Known
			o.Active += s.Active
			return
		}
	}
	g.out = append(g.out, s)
}
