package usage

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
)

// DeviceSegment is a part of a GPU for a part of an hour, in one state with one holder.
type DeviceSegment struct {
	From, To uint32 // milliseconds into the hour, half-open
	State    inventory.State
	Holder   *projections.Holder // nil when not allocated
	// Device, Replica and Profile identify the part: the GPU itself, a MIG instance, or a
	// time-slice replica. The remainder outside of instances is the GPU.
	Device  domain.GPUID
	Replica uint32
	Profile string
	// GPUMs is the length times the part's share of the GPU, in milliseconds of a whole GPU. At
	// every moment the parts add up to the GPU.
	GPUMs int64
	// Micros is the same in microseconds, with less rounding: GPUMs times 1000, or for a part of a
	// GPU, exact to the microsecond.
	Micros int64
	// Known is the part of GPUMs with measured activity. Active is Known times the activity in per
	// mille.
	Known, Active int64
	WhileFailed   bool   // allocated although failed
	Source        string // the observer that counted, "correction", or ""
}

// DeviceHour is one GPU in one UTC hour under one description of its node.
type DeviceHour struct {
	Cluster, Node string
	Owner         string // workspace that owns the cluster, "" if it is not registered
	Region        string // of the cluster
	// Provider and ProviderClass are the cluster's, Billing is the node's; "" if not declared.
	Provider      string
	ProviderClass domain.ProviderClass
	Billing       domain.BillingModel
	Hour          domain.Instant
	GPU           domain.GPUID
	Model         string // as the catalogue spells it, else as declared; "" if not declared
	// Declared is false for a GPU that reported without a declaration. It is in service while it
	// reports.
	Declared bool
	// Segments add up to the time in service within the hour.
	Segments []DeviceSegment
}

// EachDeviceHour calls yield for each GPU and hour of [from, to) with any time in service, by
// cluster, node, hour and the order of declaration. An hour with a change of the node's description
// comes in parts, one after the other. What yield gets is reused after it returns. Memory is
// bounded by nodes, incidents and one usage row.
//
// If several observers reported a GPU at the same moment, the first by rank decides about the whole
// GPU, including its partitioning. Ranks are: sources that begin with "node-reporter/" or
// "reporter/", then "prometheus/" (SM activity before engine activity before utilization), then
// others, and within a rank the one that came into the hour later. An observer that did not know
// the holder of some part of the GPU at the moment is skipped in favour of the next that did,
// except for its measurements. If none knew, or none saw a holder, the GPU is busy_unattributed or
// idle, according to the first of them that measured its activity; if none measured it, idle. If
// several node names report a GPU at the same moment, only the observers of one of them count (see
// aliases.go).
//
// [domain.UsageCorrected] overrides all of them; of two corrections the later counts. A correction
// to no holder makes a GPU idle, whatever was measured.
//
// MIG instances weigh max(compute slices, memory slices) of their parent's slices. If that adds up
// to more than the GPU, as 3g plus 4g does, all shrink in proportion. Time-slice replicas that are
// held at a moment share it equally, so over time they share by the seconds held. Shares are
// rounded to milliseconds so that they add up exactly.
func EachDeviceHour(view projections.View, from, to domain.Instant, yield func(*DeviceHour) error) error {
	if err := checkPeriod(from, to); err != nil {
		return err
	}
	f, err := inventory.ReadFleet(view)
	if err != nil {
		return err
	}
	return eachDeviceHour(view, f, from, to, yield)
}

// EachDeviceHourOf is [EachDeviceHour] of some nodes, in any order, without reading the usage of others.
func EachDeviceHourOf(
	view projections.View, f *inventory.Fleet, some []inventory.NodeName, from, to domain.Instant, yield func(*DeviceHour) error,
) error {
	if err := checkPeriod(from, to); err != nil {
		return err
	}
	some = inventory.InOrder(some)
	only := *f
	only.Nodes = nil
	for _, name := range some {
		if n := f.Index[name]; n != nil {
			only.Nodes = append(only.Nodes, n)
		}
	}
	return walkDevices(&only, from, to, func(q projections.Query, take func(projections.Key, *projections.UsageHour) error) error {
		return inventory.EachUsageOf(view, f.Index, q, some, take)
	}, yield)
}

// EachDeviceHourAndRow is [EachDeviceHour] of a fleet that was read, and of one cluster or, for "", of all. It also calls
// rows with each usage hour, after its devices, so that what else the hours hold needs no second pass. rows MUST NOT change
// or keep what it gets.
func EachDeviceHourAndRow(
	view projections.View, f *inventory.Fleet, cluster string, from, to domain.Instant,
	rows func(projections.Key, *projections.UsageHour) error, yield func(*DeviceHour) error,
) error {
	if err := checkPeriod(from, to); err != nil {
		return err
	}
	walked := f
	if cluster != "" {
		only := *f
		first, _ := slices.BinarySearchFunc(f.Nodes, cluster, func(n *inventory.NodeTime, c string) int { return strings.Compare(n.Cluster, c) })
		last := first
		for last < len(f.Nodes) && f.Nodes[last].Cluster == cluster {
			last++
		}
		only.Nodes = f.Nodes[first:last]
		walked = &only
	}
	return walkDevices(walked, from, to, func(q projections.Query, take func(projections.Key, *projections.UsageHour) error) error {
		q.Scope = cluster
		return inventory.EachUsage(view, f.Index, q, func(k projections.Key, row *projections.UsageHour) error {
			if err := take(k, row); err != nil {
				return err
			}
			return rows(k, row)
		})
	}, yield)
}

func checkPeriod(from, to domain.Instant) error {
	if from <= 0 || to <= from {
		return fmt.Errorf("usage from %s to %s: want a time and a later one", from, to)
	}
	return nil
}

func eachDeviceHour(
	view projections.View, f *inventory.Fleet, from, to domain.Instant, yield func(*DeviceHour) error,
) error {
	return walkDevices(f, from, to, func(q projections.Query, take func(projections.Key, *projections.UsageHour) error) error {
		return inventory.EachUsage(view, f.Index, q, take)
	}, yield)
}

// walkDevices calls yield with the hours of a fleet's devices, from the usage hours that each yields.
func walkDevices(
	f *inventory.Fleet, from, to domain.Instant,
	each func(projections.Query, func(projections.Key, *projections.UsageHour) error) error, yield func(*DeviceHour) error,
) error {
	w := &usageWalk{fleet: f, span: domain.Interval{From: from, To: to}, yield: yield, weights: map[cutOf]int64{}}
	query := projections.Query{From: projections.HourOf(from), To: projections.HourOf(to-1) + 1}
	err := each(query, func(k projections.Key, row *projections.UsageHour) error {
		name := inventory.NodeName{Cluster: k.Scope, Node: k.ID}
		if w.node == nil || w.node.NodeName != name {
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
	return w.advance(inventory.NodeName{})
}

type cutOf struct{ model, profile string }

type usageWalk struct {
	fleet   *inventory.Fleet
	span    domain.Interval
	yield   func(*DeviceHour) error
	weights map[cutOf]int64

	done int                 // nodes of the fleet that are done
	node *inventory.NodeTime // current node
	next domain.Instant      // its first hour that is not yielded yet

	ranks []*projections.Observer
	plain []bool // by rank: whole GPUs only, one entry each
	seen  []domain.GPUID
	here  []domain.Interval
	out   DeviceHour
	gpu   gpuWalk
}

// advance finishes the current node and every node of the fleet before name, which have no rows,
// and starts with name. A zero name is the end.
func (w *usageWalk) advance(name inventory.NodeName) error {
	finish := func(n *inventory.NodeTime) error {
		w.node = n
		return w.silent(w.span.To)
	}
	if w.node != nil {
		if err := finish(w.node); err != nil {
			return err
		}
	}
	nodes := w.fleet.Nodes
	for ; w.done < len(nodes); w.done++ {
		n := nodes[w.done]
		if name != (inventory.NodeName{}) && (n.Cluster > name.Cluster || n.Cluster == name.Cluster && n.Node >= name.Node) {
			break
		}
		w.next = w.span.From.HourStart()
		if err := finish(n); err != nil {
			return err
		}
	}
	w.next = w.span.From.HourStart()
	if w.done < len(nodes) && nodes[w.done].NodeName == name {
		w.node = nodes[w.done]
		w.done++
	} else {
		w.node = &inventory.NodeTime{NodeName: name}
	}
	return nil
}

// silent yields the hours before end in which the node reported nothing.
func (w *usageWalk) silent(end domain.Instant) error {
	if len(w.node.Service) == 0 && len(w.node.Corrections) == 0 {
		return nil
	}
	for ; w.next < end; w.next += domain.Hour {
		if err := w.hour(w.next, nil); err != nil {
			return err
		}
	}
	return nil
}

// hour yields an hour of the node, split where its description changes.
func (w *usageWalk) hour(hour domain.Instant, row *projections.UsageHour) error {
	span := domain.Interval{From: hour, To: hour + domain.Hour}.Intersect(w.span)
	w.ranks = projections.Ranked(w.ranks, row)
	w.plain = w.plain[:0]
	for _, o := range w.ranks {
		isReplica := func(d projections.Device) bool { return d.Replica > 0 }
		w.plain = append(w.plain, len(o.Cuts) == 0 && !slices.ContainsFunc(o.Devices, isReplica))
	}
	w.out.Cluster, w.out.Node, w.out.Hour = w.node.Cluster, w.node.Node, hour
	w.out.Region, w.out.Owner, w.out.Provider, w.out.ProviderClass = "", "", "", ""
	if c, owner := w.fleet.Cluster(w.node.Cluster, hour); c != nil {
		w.out.Region, w.out.Owner, w.out.Provider, w.out.ProviderClass = c.Region, owner, c.Provider, c.ProviderClass
	}
	at := span.From
	for i := range w.node.Service {
		s := &w.node.Service[i]
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

// part yields the GPUs of a part of an hour: declared ones, then undeclared ones that reported.
func (w *usageWalk) part(span domain.Interval, s *inventory.Service, row *projections.UsageHour) error {
	from, to := w.ms(span.From), w.ms(span.To)
	if from >= to {
		return nil
	}
	var gpus []inventory.Declared
	w.out.Billing = ""
	if s != nil {
		gpus, w.out.Billing = s.GPUs, s.Node.BillingModel
	}
	total := 0
	w.out.Declared = true
	for i := range gpus {
		g, n := &gpus[i], 0
		w.here = g.Within(w.here[:0], span)
		for _, part := range w.here {
			var err error
			if n, err = w.device(g.ID, g.Model, i, w.ms(part.From), w.ms(part.To), row); err != nil {
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
	if total == reported && len(w.node.Corrections) == 0 {
		return nil // every reported device belongs to a declared GPU
	}
	w.seen = w.seen[:0]
	note := func(id domain.GPUID) {
		if !slices.Contains(w.seen, id) && !slices.ContainsFunc(gpus, func(g inventory.Declared) bool { return g.ID == id }) {
			w.seen = append(w.seen, id)
		}
	}
	for _, o := range w.ranks {
		for i := range o.Devices {
			note(o.Physical(&o.Devices[i]))
		}
	}
	for _, c := range w.node.Corrections {
		if !c.Ev.Interval.Intersect(span).Empty() && !w.instance(c.Ev.GPU) {
			note(c.Ev.GPU)
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

// ms returns a time's place in the current hour, in milliseconds.
func (w *usageWalk) ms(t domain.Instant) uint32 {
	return uint32(max(0, min(t-w.out.Hour, domain.Hour)) / projections.NsPerMs)
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

// device yields one GPU and returns how many of the reported devices are it or its parts. hint is
// its probable index among them.
func (w *usageWalk) device(id domain.GPUID, model string, hint int, from, to uint32, row *projections.UsageHour) (int, error) {
	g := &w.gpu
	g.begin(id, from, to, w.out.Declared, row)
	for rank, o := range w.ranks {
		if w.plain[rank] && hint >= 0 && hint < len(o.Devices) && o.Devices[hint].ID == id {
			g.lane(rank, o, &o.Devices[hint], 0)
			continue
		}
		for i := range o.Devices {
			d := &o.Devices[i]
			if o.Physical(d) != id {
				continue
			}
			var weight int64
			if d.Cut > 0 {
				weight = w.weight(model, o.Cuts[d.Cut-1].Profile)
			}
			g.lane(rank, o, d, weight)
		}
	}
	for i := range w.node.Down {
		d := &w.node.Down[i]
		if d.From >= w.out.Hour+domain.Hour {
			break
		}
		if d.GPU == id || d.GPU == (domain.GPUID{}) {
			g.outage(w.ms(d.From), w.ms(d.To), d.Failed)
		}
	}
	for _, c := range w.node.Corrections {
		g.correct(w.ms(c.Ev.Interval.From), w.ms(c.Ev.Interval.To), c.Ev)
	}
	w.out.Segments = g.resolve()
	w.out.GPU, w.out.Model = id, model
	if len(w.out.Segments) == 0 {
		return len(g.lanes), nil
	}
	return len(g.lanes), w.yield(&w.out)
}

// whole is the weight of a whole GPU: a multiple of every number of slices of a GPU.
const whole = 840

// weight returns the part of the parent that a MIG profile takes, in units of whole. For an unknown
// profile, the compute slices at the start of its name are assumed to be sevenths.
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
			compute := whole * int64(p.ComputeSlices) / int64(m.MIG.ComputeSlices)
			return max(compute, whole*int64(p.MemorySlices)/int64(m.MIG.MemorySlices))
		}
	}
	slices, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(profile, "MIG "), "MIG-"), "g.")
	n, err := strconv.Atoi(slices)
	if err != nil || n < 1 || n > 7 {
		n = 1
	}
	return whole * int64(n) / 7
}

// Within returns the part of a segment within a part of the hour. Adjacent parts add up to the
// segment.
func (s *DeviceSegment) Within(from, to uint32) (DeviceSegment, bool) {
	from, to = max(from, s.From), min(to, s.To)
	if from >= to {
		return DeviceSegment{}, false
	}
	part, length := *s, int64(s.To-s.From)
	part.From, part.To = from, to
	for _, of := range [...]*int64{&part.GPUMs, &part.Micros, &part.Known, &part.Active} {
		all := *of
		*of = all*int64(to-s.From)/length - all*int64(from-s.From)/length
	}
	return part, part.Micros > 0
}
