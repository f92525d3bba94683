package projections

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"quartermaster/domain"
)

// Units of time in rows: milliseconds within an hour, and their nanoseconds.
const (
	MsPerHour = 3_600_000
	NsPerMs   = 1_000_000
)

// Holder identifies the holder of a device.
type Holder struct {
	Workspace  string `json:"workspace"`
	Deployment string `json:"deployment,omitempty"`
	Unit       string `json:"unit,omitempty"` // pod or job
}

// BusyAt is the activity, in per mille, from which a device counts as busy. A GPU that runs nothing
// shows 0; one that is polled or drives a display shows a few percent of utilization.
const BusyAt = 50

// Segment is a part of an hour in which one observer saw a device with one holder. From and To are
// milliseconds into the hour, half-open. Without a holder, all samples in one segment are of one
// state: measured busy, measured idle, or not measured.
type Segment struct {
	From   uint32
	To     uint32
	Holder uint32 // index+1 into the row's Holders; 0: none
	// Known is the number of milliseconds with measured activity. Active is the sum of per-mille
	// activity over those milliseconds.
	Known  uint32
	Active uint64
}

// Reading sums a metric over an hour: Sum is value × milliseconds, so the mean is Sum ÷ Known.
type Reading struct {
	Sum   uint64
	Known uint32
	Max   uint32
}

func (r *Reading) add(values []uint32, i int, ms uint32) {
	if len(values) == 0 || values[i] == 0 {
		return
	}
	v := values[i] - 1
	r.Sum += uint64(v) * uint64(ms)
	r.Known += ms
	r.Max = max(r.Max, v)
}

// Cut says which part of a physical GPU a MIG instance is.
type Cut struct {
	Parent  domain.GPUID
	Profile string
}

// Device is what one observer saw of a GPU, MIG instance or time-slice replica in one hour.
type Device struct {
	ID       domain.GPUID
	Replica  uint32
	Cut      uint32    // index+1 into the observer's Cuts; 0: a whole GPU
	Segments []Segment // ascending, disjoint
	Tensor   Reading   // per mille
	DRAM     Reading   // per mille
	Memory   Reading   // MiB
	Power    Reading   // watts
	Heat     Reading   // degrees Celsius
	Clock    Reading   // MHz
	// Covered are the parts of the hour that each reading includes, for scraped data; nil for other
	// observers.
	Covered *[6][]Span
	// Unasked are the parts of the hour in which the observer did not know the holder of the
	// device. A segment without a holder may have had one during those parts.
	Unasked []Span
}

// Span is a part of an hour in milliseconds, half-open.
type Span struct{ From, To uint32 }

// Other sums a reading without a column of its own, by DCGM field.
type Other struct {
	Device uint32 // index into the observer's Devices
	Field  uint32 // DCGM field id
	Count  uint64
	Sum    uint64
	Max    uint64
}

// Observer is what one source reported of a node in one hour. Sources are never summed. Where two
// overlap, the reader decides which counts: by rank, and within a rank the one that came later.
type Observer struct {
	Source        string
	ActivityField uint32 // DCGM field of the activity, of the last sample
	Cuts          []Cut
	Devices       []Device
	Others        []Other
	Samples       uint32
}

// UsageHour is the row of a node and UTC hour: who held its devices when, as seen by each source.
// If two samples of one source overlap, the later in the log counts; for scraped data, the first
// (see scrape.go).
type UsageHour struct {
	Holders   []Holder
	Observers []Observer
}

func (*UsageHour) row() {}

func (u *UsageHour) observer(rows *WorkingSet, source string) *Observer {
	for i := range u.Observers {
		if u.Observers[i].Source == source {
			return &u.Observers[i]
		}
	}
	n := len(u.Observers)
	u.Observers = slices.Grow(u.Observers, 1)[:n+1]
	o := &u.Observers[n]
	*o = Observer{Source: rows.keep(source), Cuts: o.Cuts[:0], Devices: o.Devices[:0], Others: o.Others[:0]}
	return o
}

// add adds a device. Like observer it reuses the memory that a sealed hour left behind the end of
// the slice.
func (o *Observer) add(id domain.GPUID, replica uint32) *Device {
	n := len(o.Devices)
	o.Devices = slices.Grow(o.Devices, 1)[:n+1]
	d := &o.Devices[n]
	*d = Device{ID: id, Replica: replica, Segments: d.Segments[:0]}
	return d
}

func (u *UsageHour) holder(rows *WorkingSet, workspace, deployment, unit string) uint32 {
	for i := range u.Holders {
		h := &u.Holders[i]
		if h.Unit == unit && h.Deployment == deployment && h.Workspace == workspace {
			return uint32(i + 1)
		}
	}
	u.Holders = append(u.Holders, Holder{
		Workspace: rows.keep(workspace), Deployment: rows.keep(deployment), Unit: rows.keep(unit),
	})
	return uint32(len(u.Holders))
}

// usageKeys yields the keys of the rows that a sample touches.
func usageKeys(scope string, s *domain.NodeSampled, yield func(Key) bool) bool {
	for h := s.Interval.From.HourStart(); h < s.Interval.To; h += domain.Hour {
		hour := Key{Table: TableUsage, Scope: scope, ID: s.Node, Hour: int64(h / domain.Hour)}
		if !yield(hour) || !yield(nodeGPUsKey(scope, s.Node, h)) {
			return false
		}
	}
	return true
}

// foldSample adds a sample to the hours that it covers.
func foldSample(rows *WorkingSet, scope, source string, s *domain.NodeSampled, appended domain.Instant) {
	for h := s.Interval.From.HourStart(); h < s.Interval.To; h += domain.Hour {
		from := uint32(max(0, s.Interval.From-h) / NsPerMs)
		to := uint32(min(domain.Hour, s.Interval.To-h) / NsPerMs)
		if from == to {
			continue
		}
		u := change[*UsageHour](rows, Key{Table: TableUsage, Scope: scope, ID: s.Node, Hour: int64(h / domain.Hour)})
		before := u.size()
		if Scraped(source) {
			u.scrape(rows, scope, s, from, to)
		} else {
			u.add(rows, source, s, from, to)
		}
		if u.size() != before {
			noteGPUs(rows, scope, s, h)
		}
		noteLate(rows, scope, s, h, to-from, appended)
	}
}

// size changes when the hour gets another device, or another cut of one.
func (u *UsageHour) size() (n int) {
	for i := range u.Observers {
		n += len(u.Observers[i].Devices) + len(u.Observers[i].Cuts)
	}
	return n
}

func (u *UsageHour) add(rows *WorkingSet, source string, s *domain.NodeSampled, from, to uint32) {
	o := u.observer(rows, source)
	o.Samples++
	o.ActivityField = s.ActivityField
	n := s.Entries()
	if cap(o.Devices) == 0 {
		o.Devices = make([]Device, 0, n)
	}
	var few [32]uint32
	holders := u.holders(few[:0], rows, s)
	fresh := n - len(o.Devices)
	var slab []Segment
	if fresh > 0 && cap(o.Devices[:cap(o.Devices)][0].Segments) == 0 {
		slab = make([]Segment, 2*fresh)
	}
	ms := to - from
	for i := range n {
		id := domain.GPUID(s.IDs[16*i:])
		var replica uint32
		if len(s.Replica) > 0 {
			replica = s.Replica[i]
		}
		d := o.device(i, id, replica)
		if d == nil {
			d = o.add(id, replica)
			if cap(d.Segments) == 0 && len(slab) >= 2 {
				d.Segments, slab = slab[:0:2], slab[2:]
			}
		}
		if len(s.Parent) > 0 && s.Parent[i] > 0 {
			d.Cut = o.cut(rows, domain.GPUID(s.Parents[16*(s.Parent[i]-1):]), s.Text(s.Profile, i))
		}
		g := Segment{From: from, To: to}
		if len(s.Holder) > 0 && s.Holder[i] > 0 {
			g.Holder = holders[s.Holder[i]-1]
		} else if s.HoldersUnknown {
			d.unasked(from, to)
		}
		if len(s.ActivityMean) > 0 && s.ActivityMean[i] > 0 {
			g.Known = ms
			g.Active = uint64(s.ActivityMean[i]-1) * uint64(ms)
		}
		d.hold(g)
		d.Tensor.add(s.TensorActive, i, ms)
		d.DRAM.add(s.DRAMActive, i, ms)
		d.Memory.add(s.MemoryUsedMiB, i, ms)
		d.Power.add(s.PowerWatts, i, ms)
		d.Heat.add(s.TemperatureC, i, ms)
		d.Clock.add(s.SMClockMHz, i, ms)
	}
	for i, entry := range s.OtherEntry {
		o.other(entry, s.OtherField[i], s.OtherValue[i], s)
	}
}

// holders appends the numbers in the row of the event's holders.
func (u *UsageHour) holders(holders []uint32, rows *WorkingSet, s *domain.NodeSampled) []uint32 {
	if cap(u.Holders) == 0 && len(s.HolderWorkspace) > 0 {
		u.Holders = make([]Holder, 0, len(s.HolderWorkspace))
	}
	for i := range s.HolderWorkspace {
		workspace, deployment := s.Text(s.HolderWorkspace, i), s.Text(s.HolderDeployment, i)
		holders = append(holders, u.holder(rows, workspace, deployment, s.Text(s.HolderUnit, i)))
	}
	return holders
}

// device finds a device. It first tries the index of the last time.
func (o *Observer) device(i int, id domain.GPUID, replica uint32) *Device {
	if i < len(o.Devices) && o.Devices[i].ID == id && o.Devices[i].Replica == replica {
		return &o.Devices[i]
	}
	for j := range o.Devices {
		if o.Devices[j].ID == id && o.Devices[j].Replica == replica {
			return &o.Devices[j]
		}
	}
	return nil
}

func (o *Observer) cut(rows *WorkingSet, parent domain.GPUID, profile string) uint32 {
	for i := range o.Cuts {
		if o.Cuts[i].Parent == parent && o.Cuts[i].Profile == profile {
			return uint32(i + 1)
		}
	}
	o.Cuts = append(o.Cuts, Cut{Parent: parent, Profile: rows.keep(profile)})
	return uint32(len(o.Cuts))
}

func (o *Observer) other(entry, field uint32, value uint64, s *domain.NodeSampled) {
	var replica uint32
	if len(s.Replica) > 0 {
		replica = s.Replica[entry]
	}
	id := domain.GPUID(s.IDs[16*entry:])
	for j := range o.Devices {
		if o.Devices[j].ID != id || o.Devices[j].Replica != replica {
			continue
		}
		for k := range o.Others {
			if r := &o.Others[k]; r.Device == uint32(j) && r.Field == field {
				r.Count++
				r.Sum += value
				r.Max = max(r.Max, value)
				return
			}
		}
		o.Others = append(o.Others, Other{Device: uint32(j), Field: field, Count: 1, Sum: value, Max: value})
		return
	}
}

// unasked adds a time in which the holder of the device was unknown.
func (d *Device) unasked(from, to uint32) {
	if n := len(d.Unasked); n > 0 && d.Unasked[n-1].To == from {
		d.Unasked[n-1].To = to
		return
	}
	d.Unasked = append(d.Unasked, Span{From: from, To: to})
}

// hold adds a segment. Usually it follows the last segment and extends it or is appended. Otherwise
// it replaces what it overlaps.
func (d *Device) hold(g Segment) {
	n := len(d.Segments)
	if n == 0 {
		d.Segments = append(d.Segments, g)
		return
	}
	last := &d.Segments[n-1]
	switch {
	case last.joins(&g):
		last.To = g.To
		last.Known += g.Known
		last.Active += g.Active
	case last.To <= g.From:
		d.Segments = append(d.Segments, g)
	default:
		d.Segments = overlay(d.Segments, g)
	}
}

// overlay puts g over segments, replacing what it covers.
func overlay(segments []Segment, g Segment) []Segment {
	out := make([]Segment, 0, len(segments)+2)
	put := func(s Segment) {
		if n := len(out); n > 0 && out[n-1].joins(&s) {
			out[n-1].To = s.To
			out[n-1].Known += s.Known
			out[n-1].Active += s.Active
			return
		}
		out = append(out, s)
	}
	placed := false
	for _, s := range segments {
		if s.From < g.From {
			put(s.part(s.From, min(s.To, g.From)))
		}
		if !placed && s.To > g.From {
			put(g)
			placed = true
		}
		if s.To > g.To {
			put(s.part(max(s.From, g.To), s.To))
		}
	}
	if !placed {
		put(g)
	}
	return out
}

// joins reports whether next continues the segment.
func (s *Segment) joins(next *Segment) bool {
	return s.To == next.From && s.Holder == next.Holder &&
		(s.Holder > 0 || (s.Known > 0) == (next.Known > 0) && s.Busy() == next.Busy())
}

// Busy reports whether a device without a known holder was busy.
func (s *Segment) Busy() bool {
	return s.Holder == 0 && s.Known > 0 && s.Active >= BusyAt*uint64(s.Known)
}

// part returns a part of a segment, with its share of the measurements, rounded down.
func (s Segment) part(from, to uint32) Segment {
	if from == s.From && to == s.To {
		return s
	}
	length, whole := uint64(to-from), uint64(s.To-s.From)
	s.From, s.To = from, to
	s.Known = uint32(uint64(s.Known) * length / whole)
	s.Active = s.Active * length / whole // below 2^42 × 2^22
	return s
}

// Join adds a row's data of some GPUs in some parts of its hour.
func (u *UsageHour) Join(row *UsageHour, of func(domain.GPUID) []Span) {
	base := uint32(len(u.Holders))
	used := false
	for i := range row.Observers {
		o := row.Observers[i]
		var devices []Device
		for _, d := range o.Devices {
			d, ok := d.within(of(o.Physical(&d)))
			if !ok {
				continue
			}
			if base > 0 {
				d.Segments = slices.Clone(d.Segments)
				for j := range d.Segments {
					if d.Segments[j].Holder > 0 {
						d.Segments[j].Holder += base
					}
				}
			}
			devices = append(devices, d)
		}
		if len(devices) == 0 {
			continue
		}
		o.Devices, o.Others = devices, nil
		u.Observers = append(u.Observers, o)
		used = true
	}
	if used {
		u.Holders = append(u.Holders, row.Holders...)
	}
}

// within returns what was seen of a device in parts of its hour, which are ascending and disjoint,
// with their share of each reading in proportion to the time in which the device was seen. The
// shares of parts that make up the hour add up to the reading. It returns false if the device was
// not seen then.
func (d Device) within(spans []Span) (Device, bool) {
	if len(spans) == 1 && spans[0] == WholeHour[0] {
		return d, true
	}
	out := d
	out.Segments, out.Unasked, out.Covered = nil, nil, nil
	readings := [...][2]*Reading{
		{&out.Tensor, &d.Tensor}, {&out.DRAM, &d.DRAM}, {&out.Memory, &d.Memory},
		{&out.Power, &d.Power}, {&out.Heat, &d.Heat}, {&out.Clock, &d.Clock},
	}
	for _, r := range readings {
		*r[0] = Reading{Max: r[1].Max}
	}
	seen := d.seenUpTo(MsPerHour)
	for _, span := range spans {
		for i := range d.Segments {
			s := &d.Segments[i]
			if from, to := max(s.From, span.From), min(s.To, span.To); from < to {
				known, active := s.Measured(from, to)
				out.Segments = append(out.Segments, Segment{
					From: from, To: to, Holder: s.Holder, Known: uint32(known), Active: uint64(active),
				})
			}
		}
		for _, s := range d.Unasked {
			if from, to := max(s.From, span.From), min(s.To, span.To); from < to {
				out.Unasked = append(out.Unasked, Span{from, to})
			}
		}
		from, to := d.seenUpTo(span.From), d.seenUpTo(span.To)
		for _, r := range readings {
			r[0].Sum += portion(r[1].Sum, to, seen) - portion(r[1].Sum, from, seen)
			r[0].Known += uint32(portion(uint64(r[1].Known), to, seen) - portion(uint64(r[1].Known), from, seen))
		}
	}
	return out, len(out.Segments) > 0
}

// seenUpTo returns how many milliseconds of the hour before a time a device was seen.
func (d *Device) seenUpTo(at uint32) (ms uint64) {
	for _, s := range d.Segments {
		if s.From < at {
			ms += uint64(min(s.To, at) - s.From)
		}
	}
	return ms
}

// Seen returns the time from the first to the last moment of an hour in which any device was seen;
// empty if none was.
func (u *UsageHour) Seen(hour domain.Instant) domain.Interval {
	from, to := uint32(MsPerHour), uint32(0)
	for i := range u.Observers {
		for j := range u.Observers[i].Devices {
			if s := u.Observers[i].Devices[j].Segments; len(s) > 0 {
				from, to = min(from, s[0].From), max(to, s[len(s)-1].To)
			}
		}
	}
	if from >= to {
		return domain.Interval{}
	}
	return domain.Interval{From: hour + domain.Instant(from)*NsPerMs, To: hour + domain.Instant(to)*NsPerMs}
}

// HeldUntil returns when a holder was last seen in the hour, in milliseconds.
func (u *UsageHour) HeldUntil(holder uint32) uint32 {
	var end uint32
	for i := range u.Observers {
		for j := range u.Observers[i].Devices {
			for _, s := range u.Observers[i].Devices[j].Segments {
				if s.Holder == holder {
					end = max(end, s.To)
				}
			}
		}
	}
	return end
}

// Alone returns the deployment that held a device in the hour, if there was exactly one.
func (u *UsageHour) Alone(d *Device) (string, bool) {
	var who *Holder
	for _, s := range d.Segments {
		if s.Holder == 0 {
			continue
		}
		h := &u.Holders[s.Holder-1]
		if who != nil && (h.Deployment != who.Deployment || h.Workspace != who.Workspace) {
			return "", false
		}
		who = h
	}
	if who == nil {
		return "", false
	}
	return who.Deployment, true
}

// Measured returns the activity of a part of a segment. Adjacent parts add up to the segment.
func (s *Segment) Measured(from, to uint32) (known, active int64) {
	if from == s.From && to == s.To {
		return int64(s.Known), int64(s.Active)
	}
	length := uint64(s.To - s.From)
	upTo := func(sum uint64, t uint32) int64 { return int64(sum * uint64(t-s.From) / length) }
	known = upTo(uint64(s.Known), to) - upTo(uint64(s.Known), from)
	active = upTo(s.Active, to) - upTo(s.Active, from)
	return known, active
}

// UnaskedAt reports whether the holder of the device was unknown at a moment.
func (d *Device) UnaskedAt(at uint32) bool {
	return slices.ContainsFunc(d.Unasked, func(s Span) bool { return s.From <= at && at < s.To })
}

// ObserverRank orders observers by how close to the device they measure. Scraped observers are
// ordered by how well their field shows how busy a GPU is.
func ObserverRank(o *Observer) int {
	switch {
	case strings.HasPrefix(o.Source, "node-reporter/"), strings.HasPrefix(o.Source, "reporter/"):
		return 0
	case !Scraped(o.Source):
		return 6
	}
	switch o.ActivityField {
	case FieldSMActive:
		return 1
	case FieldEngineActive:
		return 2
	case FieldUtilization:
		return 3
	case 0:
		return 5
	default:
		return 4
	}
}

// Ranked returns the observers of a row, most trusted first: by rank, and within a rank by which
// came into the hour later. So a corrected file that is imported after the first one counts. The
// order of arrival is that of their partition in the log.
func Ranked(into []*Observer, row *UsageHour) []*Observer {
	into = into[:0]
	if row == nil {
		return into
	}
	for i := range row.Observers {
		into = append(into, &row.Observers[i])
	}
	if len(into) > 1 {
		slices.Reverse(into)
		slices.SortStableFunc(into, func(a, b *Observer) int { return cmp.Compare(ObserverRank(a), ObserverRank(b)) })
	}
	return into
}

// Physical returns the GPU that a device is or is a part of.
func (o *Observer) Physical(d *Device) domain.GPUID {
	if d.Cut > 0 {
		return o.Cuts[d.Cut-1].Parent
	}
	return d.ID
}

// WholeHour is the single span of a whole hour.
var WholeHour = []Span{{0, MsPerHour}}

// portion returns sum × part ÷ whole, rounded down. part is at most whole.
func portion(sum, part, whole uint64) uint64 {
	if part == whole {
		return sum
	}
	hi, lo := bits.Mul64(sum, part)
	out, _ := bits.Div64(hi, lo, whole)
	return out
}
