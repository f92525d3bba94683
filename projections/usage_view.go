package projections

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"quartermaster/domain"
)

// State is what a GPU was in at a moment. Every moment of a GPU in service is
// in exactly one state; where several could be said, the first that applies
// counts:
//
//   - allocated: somebody was seen to hold it. That is observed of the moment
//     itself, while "failed" lasts from one event to another of which the
//     second may be missing; and what one holds nobody else can have, however
//     ill it is. What was held while failed is reported beside it.
//   - failed: a fatal fault or a cordon for repair, and the node not yet
//     returned. A failure inside a maintenance window is a failure: the window
//     did not cause it.
//   - maintenance: set aside on purpose, by a window, a cordon that is no
//     repair, or a drain.
//   - busy_unattributed: it worked, at [BusyAt] or more, and nobody is known to have
//     held it: a process on the machine itself, or a holder that no observer knew of.
//   - idle: reported, nobody is known to have held it, and it was not seen to work.
//   - unprovisioned: the part of a GPU that is cut into MIG instances which no
//     instance covers: nobody can be given it until somebody cuts it. It takes
//     a report to know that, so a GPU that never reported is not in it.
//   - unobserved: in service, and nothing is known.
type State uint8

// The states, in the order of their precedence.
const (
	Allocated State = iota
	Failed
	Maintenance
	BusyUnattributed
	Idle
	Unprovisioned
	Unobserved
	stateEnd
)

var stateNames = [stateEnd]string{"allocated", "failed", "maintenance", "busy_unattributed", "idle", "unprovisioned", "unobserved"}

// String returns the state's name.
func (s State) String() string {
	if s < stateEnd {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// MarshalText writes the name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// DeviceSegment is a part of a GPU for a part of an hour, in one state and one
// pair of hands.
type DeviceSegment struct {
	From, To uint32 // milliseconds into the hour, half-open
	State    State
	Holder   *Holder // who held it; nil when not allocated
	// Device, Replica and Profile say which part: the GPU itself, a MIG
	// instance, a time-slice replica. What no instance covers is the GPU.
	Device  domain.GPUID
	Replica uint32
	Profile string
	// GPUMs is the length times the part's share of the GPU, in milliseconds of
	// a whole GPU. At every moment the parts add up to the GPU.
	GPUMs int64
	// Micros are the same in microseconds, with less rounding: GPUMs times 1000,
	// and a part of a GPU to the microsecond.
	Micros int64
	// Known is the part of GPUMs for which activity was measured, Active that
	// times the activity in per mille.
	Known, Active int64
	WhileFailed   bool   // allocated although failed
	Source        string // the observer that was believed, "correction", or ""
}

// DeviceHour is one GPU in one UTC hour under one description of its node.
type DeviceHour struct {
	Cluster, Node string
	Owner         string // workspace that owns the cluster, "" when nobody registered it
	Region        string // of the cluster
	Hour          domain.Instant
	GPU           domain.GPUID
	Model         string // as the catalogue spells it, else as declared; "" when not declared
	// Declared is false for a GPU that reported without being declared. It is
	// in service while it reports.
	Declared bool
	// Segments add up to the time in service within the hour.
	Segments []DeviceSegment
}

// EachDeviceHour calls yield for each GPU and hour of [from, to) with a moment
// in service, by cluster, node, hour and the order of declaration. An hour in
// which the node was described anew comes in parts, one after the other. What
// yield gets is reused after it returns. Memory is bounded by nodes, incidents
// and one usage row.
//
// Where several observers reported a GPU at the same moment, the first by rank
// decides about the whole GPU, how it was cut included: sources that begin with
// "node-reporter/" or "reporter/", then "prometheus/" (SM activity before engine
// activity before utilization), then others, and within a rank whoever came into
// the hour later. One that did not know who held any part of the GPU at the moment
// leaves that to the next that did, but for what it measured. Where none did, or none
// saw a holder, the GPU is busy_unattributed or idle, by the first of them that measured
// its activity; where none measured it, idle.
// Of a GPU that several names of nodes report at the same moment, all observers are
// those of one of them (see aliases.go).
// [domain.UsageCorrected] overrides all of them; of two corrections the later
// holds. One that says that nobody held a GPU makes it idle, whatever was measured.
//
// MIG instances weigh max(compute slices, memory slices) of their parent's
// slices; where that adds up to more than the GPU, as 3g with 4g does, all
// shrink in proportion. Time-slice replicas that are held at a moment share it
// equally, so over time they share by the seconds held. Shares are rounded to
// milliseconds so that they add up exactly.
func EachDeviceHour(view View, from, to domain.Instant, yield func(*DeviceHour) error) error {
	if from <= 0 || to <= from {
		return fmt.Errorf("usage from %s to %s: want a time and a later one", from, to)
	}
	f, err := readFleet(view)
	if err != nil {
		return err
	}
	w := &usageWalk{fleet: f, span: domain.Interval{From: from, To: to}, yield: yield, weights: map[cutOf]int64{}}
	err = eachUsage(view, f.index, Query{From: hourOf(from), To: hourOf(to-1) + 1}, func(k Key, row *UsageHour) error {
		name := nodeName{k.Scope, k.ID}
		if w.node == nil || w.node.nodeName != name {
			if err := w.advance(name); err != nil {
				return err
			}
		}
		hour := domain.Instant(k.Hour) * domain.Hour
		if err := w.silent(hour); err != nil {
			return err
		}
		w.next = hour + domain.Hour
		return w.hour(hour, row)
	})
	if err != nil {
		return err
	}
	return w.advance(nodeName{})
}

type cutOf struct{ model, profile string }

type usageWalk struct {
	fleet   *fleet
	span    domain.Interval
	yield   func(*DeviceHour) error
	weights map[cutOf]int64

	done int            // nodes of the fleet that are behind
	node *nodeTime      // being walked
	next domain.Instant // its first hour that was not yielded

	ranks []*Observer
	plain []bool // of ranks: whole GPUs only, one entry each
	seen  []domain.GPUID
	here  []domain.Interval
	out   DeviceHour
	gpu   gpuWalk
}

// advance finishes the node being walked and every node of the fleet before
// name, which have no rows, and begins with name. A zero name is the end.
func (w *usageWalk) advance(name nodeName) error {
	finish := func(n *nodeTime) error {
		w.node = n
		return w.silent(w.span.To)
	}
	if w.node != nil {
		if err := finish(w.node); err != nil {
			return err
		}
	}
	nodes := w.fleet.nodes
	for ; w.done < len(nodes); w.done++ {
		n := nodes[w.done]
		if name != (nodeName{}) && (n.cluster > name.cluster || n.cluster == name.cluster && n.node >= name.node) {
			break
		}
		w.next = w.span.From.HourStart()
		if err := finish(n); err != nil {
			return err
		}
	}
	w.next = w.span.From.HourStart()
	if w.done < len(nodes) && nodes[w.done].nodeName == name {
		w.node = nodes[w.done]
		w.done++
	} else {
		w.node = &nodeTime{nodeName: name}
	}
	return nil
}

// silent yields the hours before end in which the node reported nothing.
func (w *usageWalk) silent(end domain.Instant) error {
	if len(w.node.service) == 0 && len(w.node.corrections) == 0 {
		return nil
	}
	for ; w.next < end; w.next += domain.Hour {
		if err := w.hour(w.next, nil); err != nil {
			return err
		}
	}
	return nil
}

// observerRank orders observers by how near to the device they look, and what
// was scraped by how well the field tells how busy a GPU is.
func observerRank(o *Observer) int {
	switch {
	case strings.HasPrefix(o.Source, "node-reporter/"), strings.HasPrefix(o.Source, "reporter/"):
		return 0
	case !scraped(o.Source):
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

// ranked returns the observers of a row, the most believed first: by rank, and
// within a rank whoever came into the hour later. So a corrected file that is
// imported after the first one counts. Which came later is the order of their
// partition in the log.
func ranked(into []*Observer, row *UsageHour) []*Observer {
	into = into[:0]
	if row == nil {
		return into
	}
	for i := range row.Observers {
		into = append(into, &row.Observers[i])
	}
	if len(into) > 1 {
		slices.Reverse(into)
		slices.SortStableFunc(into, func(a, b *Observer) int { return cmp.Compare(observerRank(a), observerRank(b)) })
	}
	return into
}

// hour yields an hour of the node, cut where its description changes.
func (w *usageWalk) hour(hour domain.Instant, row *UsageHour) error {
	span := domain.Interval{From: hour, To: hour + domain.Hour}.Intersect(w.span)
	w.ranks = ranked(w.ranks, row)
	w.plain = w.plain[:0]
	for _, o := range w.ranks {
		w.plain = append(w.plain, len(o.Cuts) == 0 && !slices.ContainsFunc(o.Devices, func(d Device) bool { return d.Replica > 0 }))
	}
	w.out.Cluster, w.out.Node, w.out.Hour = w.node.cluster, w.node.node, hour
	w.out.Region, w.out.Owner = "", ""
	if c, owner := w.fleet.cluster(w.node.cluster, hour); c != nil {
		w.out.Region, w.out.Owner = c.Region, owner
	}
	at := span.From
	for i := range w.node.service {
		s := &w.node.service[i]
		part := s.Intersect(span)
		if part.Empty() {
			continue
		}
		if at < part.From {
			if err := w.part(domain.Interval{From: at, To: part.From}, nil, row); err != nil {
				return err
			}
		}
		if err := w.part(part, s, row); err != nil {
			return err
		}
		at = part.To
	}
	if at < span.To {
		return w.part(domain.Interval{From: at, To: span.To}, nil, row)
	}
	return nil
}

// part yields the GPUs of a part of an hour: those declared, then those that
// reported without.
func (w *usageWalk) part(span domain.Interval, s *service, row *UsageHour) error {
	from, to := w.ms(span.From), w.ms(span.To)
	if from >= to {
		return nil
	}
	var gpus []declared
	if s != nil {
		gpus = s.gpus
	}
	total := 0
	w.out.Declared = true
	for i := range gpus {
		g, n := &gpus[i], 0
		w.here = g.within(w.here[:0], span)
		for _, part := range w.here {
			var err error
			if n, err = w.device(g.id, g.model, i, w.ms(part.From), w.ms(part.To), row); err != nil {
				return err
			}
		}
		total += n
	}
	w.out.Declared = false
	reported := 0
	for _, o := range w.ranks {
		reported += len(o.Devices)
	}
	if total == reported && len(w.node.corrections) == 0 {
		return nil // every device that reported belongs to a declared GPU
	}
	w.seen = w.seen[:0]
	note := func(id domain.GPUID) {
		if !slices.Contains(w.seen, id) && !slices.ContainsFunc(gpus, func(g declared) bool { return g.id == id }) {
			w.seen = append(w.seen, id)
		}
	}
	for _, o := range w.ranks {
		for i := range o.Devices {
			note(o.physical(&o.Devices[i]))
		}
	}
	for _, c := range w.node.corrections {
		if !c.ev.Interval.Intersect(span).Empty() && !w.instance(c.ev.GPU) {
			note(c.ev.GPU)
		}
	}
	slices.SortFunc(w.seen, func(a, b domain.GPUID) int { return slices.Compare(a[:], b[:]) })
	for _, id := range w.seen {
		if _, err := w.device(id, "", -1, from, to, row); err != nil {
			return err
		}
	}
	return nil
}

// ms returns where in the hour being walked a time lies, in milliseconds.
func (w *usageWalk) ms(t domain.Instant) uint32 {
	return uint32(max(0, min(t-w.out.Hour, domain.Hour)) / nsPerMs)
}

// instance reports whether an id was reported as a part of a GPU.
func (w *usageWalk) instance(id domain.GPUID) bool {
	for _, o := range w.ranks {
		for i := range o.Devices {
			if o.Devices[i].ID == id && o.Devices[i].Cut > 0 {
				return true
			}
		}
	}
	return false
}

// physical returns the GPU that a device is, or is a part of.
func (o *Observer) physical(d *Device) domain.GPUID {
	if d.Cut > 0 {
		return o.Cuts[d.Cut-1].Parent
	}
	return d.ID
}

// device yields one GPU and returns how many of the devices reported are it or
// its parts. hint is where it probably stands among them.
func (w *usageWalk) device(id domain.GPUID, model string, hint int, from, to uint32, row *UsageHour) (int, error) {
	g := &w.gpu
	g.begin(id, from, to, w.out.Declared, row)
	for rank, o := range w.ranks {
		if w.plain[rank] && hint >= 0 && hint < len(o.Devices) && o.Devices[hint].ID == id {
			g.lane(rank, o, &o.Devices[hint], 0)
			continue
		}
		for i := range o.Devices {
			d := &o.Devices[i]
			if o.physical(d) != id {
				continue
			}
			var weight int64
			if d.Cut > 0 {
				weight = w.weight(model, o.Cuts[d.Cut-1].Profile)
			}
			g.lane(rank, o, d, weight)
		}
	}
	for i := range w.node.down {
		d := &w.node.down[i]
		if d.From >= w.out.Hour+domain.Hour {
			break
		}
		if d.gpu == id || d.gpu == (domain.GPUID{}) {
			g.outage(w.ms(d.From), w.ms(d.To), d.failed)
		}
	}
	for _, c := range w.node.corrections {
		g.correct(w.ms(c.ev.Interval.From), w.ms(c.ev.Interval.To), c.ev)
	}
	w.out.Segments = g.resolve()
	w.out.GPU, w.out.Model = id, model
	if len(w.out.Segments) == 0 {
		return len(g.lanes), nil
	}
	return len(g.lanes), w.yield(&w.out)
}

// whole is the weight of a whole GPU: a multiple of every number of slices
// that GPUs have.
const whole = 840

// weight returns what part of its parent a MIG profile takes, in parts of
// whole. Of a profile that the catalogue does not know, the compute slices that
// its name begins with are taken for sevenths.
func (w *usageWalk) weight(model, profile string) int64 {
	key := cutOf{model, profile}
	if n, ok := w.weights[key]; ok {
		return n
	}
	n := profileWeight(model, profile)
	w.weights[key] = n
	return n
}

func profileWeight(model, profile string) int64 {
	if m, ok := domain.LookupGPU(model); ok && m.MIG != nil {
		if p, ok := m.MIG.Profile(profile); ok {
			return max(whole*int64(p.ComputeSlices)/int64(m.MIG.ComputeSlices), whole*int64(p.MemorySlices)/int64(m.MIG.MemorySlices))
		}
	}
	slices, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(profile, "MIG "), "MIG-"), "g.")
	n, err := strconv.Atoi(slices)
	if err != nil || n < 1 || n > 7 {
		n = 1
	}
	return whole * int64(n) / 7
}
