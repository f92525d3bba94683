package projections

import (
	"slices"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// Scraped data comes in parts: a scrape of a node is split over requests, and each
// request may be delivered again, by the same or another monitoring server, through the
// same or another gateway. So scraped data is added in a way that parts and repeats
// cannot disturb:
//
//   - All scraped data of a cluster has one source with several observers, whoever
//     delivered it. For each field that activity was read from there is one, named
//     after the field, which holds activity and the holder of the device. One named
//     "readings" holds everything else and the holder. On reading, SM activity takes
//     precedence over engine activity, and that over utilization, so that blanks and
//     poorer fields do not hide better ones.
//   - Time that the same field of the same device already covers is not added again.
//     So a second delivery changes nothing.
//   - A gap of at most the sample's own length before it is bridged, so that a failed
//     or slightly late scrape does not make a GPU unobserved.

const scrapedPrefix = "prometheus/"

// Scraped reports whether a source is a monitoring system.
func Scraped(source string) bool { return strings.HasPrefix(source, scrapedPrefix) }

// scrapedObserver names the observer of a scraped field; 0 stands for the readings.
func scrapedObserver(scope string, field uint32) string {
	cluster := domain.ClusterOf(scope)
	switch field {
	case 0:
		return scrapedPrefix + cluster + "/readings"
	case FieldSMActive:
		return scrapedPrefix + cluster + "/sm_active"
	case FieldEngineActive:
		return scrapedPrefix + cluster + "/engine_active"
	case FieldUtilization:
		return scrapedPrefix + cluster + "/gpu_util"
	default:
		return scrapedPrefix + cluster + "/field_" + strconv.FormatUint(uint64(field), 10)
	}
}

// The DCGM fields that activity is read from, best first.
const (
	FieldSMActive     = 1002
	FieldEngineActive = 1001
	FieldUtilization  = 203
)

// MaxScraped bounds the devices of a scraped observer, of one node and hour, because labels can
// name any number of them. A node has at most 32 GPUs, with 8 instances each. The receiver of
// scraped data drops what exceeds the bound.
const MaxScraped = 512

// scrape adds scraped data of a node from one time to another.
func (u *UsageHour) scrape(rows *WorkingSet, scope string, s *domain.NodeSampled, from, to uint32) {
	var few [32]uint32
	holders := u.holders(few[:0], rows, s)
	active := 0
	for _, v := range s.ActivityMean {
		if v > 0 {
			active++
		}
	}
	observers := [2]string{scrapedObserver(scope, 0)}
	fields := [2]uint32{0, s.ActivityField}
	n := 1
	if active > 0 {
		observers[1] = scrapedObserver(scope, s.ActivityField)
		n = 2
	}
	for k, source := range observers[:n] {
		o := u.observer(rows, source)
		o.Samples++
		o.ActivityField = fields[k]
		for i := range s.Entries() {
			measured := len(s.ActivityMean) > 0 && s.ActivityMean[i] > 0
			if k == 1 && !measured {
				continue
			}
			d := o.scrapedDevice(rows, s, i)
			if d == nil {
				continue
			}
			g := Segment{From: from, To: to}
			if len(s.Holder) > 0 && s.Holder[i] > 0 {
				g.Holder = holders[s.Holder[i]-1]
			}
			if k == 1 {
				d.fill(g, uint64(s.ActivityMean[i]-1), true)
				continue
			}
			d.fill(g, 0, false)
			if d.Covered == nil {
				d.Covered = new([6][]Span)
			}
			columns := [6][]uint32{s.TensorActive, s.DRAMActive, s.MemoryUsedMiB, s.PowerWatts, s.TemperatureC, s.SMClockMHz}
			for c, r := range d.readings() {
				if len(columns[c]) == 0 || columns[c][i] == 0 {
					continue
				}
				if ms := cover(&d.Covered[c], from, to); ms > 0 {
					r.add(columns[c], i, ms)
				}
			}
		}
	}
}

// scrapedDevice returns a device of the observer, nil if there is no room for it.
func (o *Observer) scrapedDevice(rows *WorkingSet, s *domain.NodeSampled, i int) *Device {
	id := domain.GPUID(s.IDs[16*i:])
	var replica uint32
	if len(s.Replica) > 0 {
		replica = s.Replica[i]
	}
	d := o.device(i, id, replica)
	if d == nil {
		if len(o.Devices) >= MaxScraped {
			return nil
		}
		d = o.add(id, replica)
	}
	if len(s.Parent) > 0 && s.Parent[i] > 0 {
		d.Cut = o.cut(rows, domain.GPUID(s.Parents[16*(s.Parent[i]-1):]), s.Text(s.Profile, i))
	}
	return d
}

// maxBridge bounds the gaps that are bridged, in milliseconds: longer scrape intervals are
// deliberate.
const maxBridge = 300_000

// fill adds a segment where nothing is recorded yet, with a mean activity in per mille if that was
// measured.
func (d *Device) fill(g Segment, mean uint64, measured bool) {
	put := func(from, to uint32) {
		p := Segment{From: from, To: to, Holder: g.Holder}
		if measured {
			p.Known, p.Active = to-from, mean*uint64(to-from)
		}
		d.hold(p)
	}
	i := len(d.Segments) // the first that ends after g begins
	for i > 0 && d.Segments[i-1].To > g.From {
		i--
	}
	if free := i == len(d.Segments) || d.Segments[i].From > g.From; free && i > 0 {
		g.From = bridge(d.Segments[i-1].To, g.From, g.To)
	}
	// Find all gaps before filling any, because filling moves segments.
	var few [4]Span
	holes := few[:0]
	at := g.From
	for ; i < len(d.Segments) && d.Segments[i].From < g.To; i++ {
		if s := &d.Segments[i]; s.From > at {
			holes = append(holes, Span{at, s.From})
		}
		at = d.Segments[i].To
	}
	if at < g.To {
		holes = append(holes, Span{at, g.To})
	}
	for _, h := range holes {
		put(h.From, h.To)
	}
}

// bridge returns the start of a part, extended back to the end of the one before if the gap is
// small.
func bridge(end, from, to uint32) uint32 {
	if hole := from - end; hole <= to-from && hole <= maxBridge {
		return end
	}
	return from
}

// cover adds a part to spans, bridges a gap before it, and returns how much was not covered before.
func cover(spans *[]Span, from, to uint32) (added uint32) {
	s := *spans
	i := len(s) // the first that ends after the part begins
	for i > 0 && s[i-1].To > from {
		i--
	}
	if free := i == len(s) || s[i].From > from; free && i > 0 {
		from = bridge(s[i-1].To, from, to)
	}
	// s[i:j] touch the part or overlap it.
	if i > 0 && s[i-1].To == from {
		i--
	}
	j, at, merged := i, from, Span{from, to}
	for ; j < len(s) && s[j].From <= to; j++ {
		if s[j].From > at {
			added += s[j].From - at
		}
		at = max(at, s[j].To)
		merged = Span{min(merged.From, s[j].From), max(merged.To, s[j].To)}
	}
	if at < to {
		added += to - at
	}
	*spans = slices.Replace(s, i, j, merged)
	return added
}

// ScrapedFault returns the detail of the last fault of a GPU that a monitoring system reported for
// a DCGM field, "" if there is none.
func ScrapedFault(view View, cluster, node string, gpu domain.GPUID, field uint32) (detail string, err error) {
	var last *Version
	err = view.Scan(Query{Table: TableFaults, Scope: cluster, ID: node}, func(_ Key, row Row) error {
		h := row.(*History)
		for i := range h.Versions {
			v := &h.Versions[i]
			f, ok := v.Event.(*domain.GPUFaultObserved)
			if ok && f.GPU == gpu && f.Field == field && Scraped(v.Order.Source) && !v.Rest &&
				(last == nil || v.LastAt() > last.LastAt() || v.LastAt() == last.LastAt() && v.Order.After(last.Order)) {
				kept := *v
				last, detail = &kept, f.Detail
			}
		}
		return nil
	})
	return detail, err
}
