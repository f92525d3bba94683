package projections

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
)

// outageLookback is how far before the time asked for an outage may have begun to
// be known of.
const outageLookback = 90 * domain.Day

// ModelReliability is what was observed of the GPUs of a model.
type ModelReliability struct {
	Model string `json:"model"` // as the catalogue spells it; "" for GPUs that nobody declared
	GPUs  int    `json:"gpus"`  // that reported
	reliability.Evidence
	Causes []FaultCause `json:"causes"` // of the interruptions, most first
}

// FaultCause is what interruptions began with: a fault, or "cordon" for a node
// that was cordoned for repair with no fault that counts.
type FaultCause struct {
	Kind  string `json:"kind"`
	Code  uint32 `json:"code,omitempty"`
	Class string `json:"class,omitempty"`
	Count int64  `json:"count"`
}

// Reliability returns, by GPU model, how long GPUs were observed up from one time
// to another, what interrupted them and how long repairs took: the evidence that
// [reliability.Prior.Learn] takes.
//
// A node fails as a whole. What counts (see [reliability.Counts]) on a node that is
// up is an interruption: of the model of the GPU that it names, else of the model
// of which the node has most. A fault that is fatal, or a cordon for repair, begins
// an outage, which lasts until the node is returned or all that it lasts for has
// ended; whatever comes before then belongs to it. Time to repair is that of outages that began within the time asked
// for. One that lasts beyond it, or until the node is retired, counts as far as it
// went and is no repair that ended. What happens to a node that nobody declared, or
// that is not in service, is of no model.
//
// A GPU is up while any observer reports it, or an instance or replica of it, and
// its node has no outage. An outage that began more than 90 days before the time
// asked for is not known of.
//
// It reads the nodes declared, and of usage, faults and health the rows of the
// time asked for (and health of the days before it): time before costs nothing.
func Reliability(view View, from, to domain.Instant, counts reliability.Counts) ([]ModelReliability, error) {
	if from <= 0 || to <= from {
		return nil, fmt.Errorf("reliability from %s to %s: want a time and a later one", from, to)
	}
	w := &reliabilityWalk{
		fleet: &fleet{index: map[nodeName]*nodeTime{}}, span: domain.Interval{From: from, To: to},
		models: map[string]*modelEvidence{}, outages: map[nodeName][]domain.Interval{},
	}
	models := map[string]string{}
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	err = view.Scan(Query{Table: TableNodes}, func(k Key, row Row) error {
		w.fleet.node(k.Scope, k.ID).serve(a, k, row.(*History), models)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", TableNodes, err)
	}
	for _, t := range []Table{TableFaults, TableHealth} {
		q := Query{Table: t, From: max(1, dayOf(max(0, from-outageLookback))), To: dayOf(to-1) + 1}
		err := view.Scan(q, func(k Key, row Row) error {
			n := w.fleet.node(k.Scope, k.ID)
			for i := range row.(*History).Versions {
				v := &row.(*History).Versions[i]
				f, ok := v.Event.(*domain.GPUFaultObserved)
				switch {
				case ok && !counts.Fault(f):
				case ok && f.Fatal: // one goes on by itself, unless its node is retired
					n.health = spreadRepeats(n.health, v, domain.Hour)
				default: // each may be an interruption
					n.health = spreadRepeats(n.health, v, min(counts.Same, repeatGap))
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	w.fleet.settle()
	if err := w.fleet.tell(view); err != nil {
		return nil, err
	}
	for _, n := range w.fleet.index {
		w.interruptions(n, &counts)
	}
	err = eachUsage(view, w.fleet.index, Query{From: hourOf(from), To: hourOf(to-1) + 1}, func(k Key, row *UsageHour) error {
		w.hour(k, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", TableUsage, err)
	}
	out := []ModelReliability{}
	for _, name := range slices.Sorted(maps.Keys(w.models)) {
		m := w.models[name]
		r := ModelReliability{Model: name, GPUs: len(m.gpus), Evidence: m.Evidence, Causes: []FaultCause{}}
		for c, n := range m.causes {
			c.Count = n
			r.Causes = append(r.Causes, c)
		}
		slices.SortFunc(r.Causes, func(a, b FaultCause) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Class, b.Class))
		})
		out = append(out, r)
	}
	return out, nil
}

type reliabilityWalk struct {
	fleet   *fleet
	span    domain.Interval
	models  map[string]*modelEvidence
	outages map[nodeName][]domain.Interval // ascending, disjoint
	seen    []gpuSeen
}

type modelEvidence struct {
	reliability.Evidence
	gpus   map[domain.GPUID]bool
	causes map[FaultCause]int64 // of Count 0
}

func (w *reliabilityWalk) model(name string) *modelEvidence {
	m := w.models[name]
	if m == nil {
		m = &modelEvidence{gpus: map[domain.GPUID]bool{}, causes: map[FaultCause]int64{}}
		w.models[name] = m
	}
	return m
}

// interruptions goes through what happened to a node. What it adds up does not
// depend on the order of nodes.
func (w *reliabilityWalk) interruptions(n *nodeTime, counts *reliability.Counts) {
	type outage struct {
		domain.Interval
		model string
		lasts []*Version // what keeps it open
	}
	var open *outage
	end := func(at domain.Instant, repaired bool) {
		retired := n.until(open.From)
		if at > retired {
			at, repaired = retired, false
		}
		w.outages[n.nodeName] = append(w.outages[n.nodeName], domain.Interval{From: open.From, To: at})
		if w.holds(open.From) {
			m := w.model(open.model)
			m.RepairMs += int64((min(at, w.span.To) - open.From) / nsPerMs)
			if repaired && at < w.span.To {
				m.Repairs++
			}
		}
		open = nil
	}
	var last *outage // that took nothing away
	begin := func(v *Version, gpu domain.GPUID, cause FaultCause, lasts bool) {
		at := v.Order.Effective
		if open != nil && at >= n.until(open.From) {
			end(at, false) // it was retired, and is back
		}
		if open != nil {
			if lasts {
				open.lasts = append(open.lasts, v)
			}
			return
		}
		o := &outage{Interval: domain.Interval{From: at}, model: n.modelOf(gpu, at), lasts: []*Version{v}}
		if last != nil && at-last.From <= counts.Same {
			o.model = last.model // it goes on
		} else if w.holds(at) && !v.moved {
			m := w.model(o.model)
			m.Interruptions++
			m.causes[cause]++
		}
		if lasts {
			open, last = o, nil
		} else if last == nil || at-last.From > counts.Same {
			last = o
		}
	}
	for i := range n.health {
		v := &n.health[i]
		at := v.Order.Effective
		if at >= w.span.To {
			break
		}
		switch ev := v.Event.(type) {
		case *domain.GPUFaultObserved:
			if counts.Fault(ev) {
				begin(v, ev.GPU, FaultCause{Kind: string(ev.Kind), Code: ev.Code, Class: ev.Class}, ev.Fatal)
			}
		case *domain.NodeCordoned:
			if counts.Repair && ev.Repair {
				begin(v, domain.GPUID{}, FaultCause{Kind: "cordon"}, true)
			}
		case *domain.NodeReturned:
			if open != nil {
				open.lasts = slices.DeleteFunc(open.lasts, func(b *Version) bool { return ends(v, b) })
				if len(open.lasts) > 0 {
					break
				}
				end(at, !v.moved)
			}
			last = nil
		}
	}
	if open != nil {
		end(forever, false)
	}
}

func (w *reliabilityWalk) holds(at domain.Instant) bool { return w.span.From <= at && at < w.span.To }

// until returns when a node that is in service at a time is retired.
func (n *nodeTime) until(at domain.Instant) domain.Instant {
	end := forever
	for i := range n.service {
		s := &n.service[i]
		if s.From <= at && at < s.To || i > 0 && end == s.From && s.From > at {
			end = s.To // described anew is not retired
		}
	}
	return end
}

// modelOf returns the model of a GPU of the node at a time, or of most of them.
func (n *nodeTime) modelOf(gpu domain.GPUID, at domain.Instant) string {
	s := n.at(at)
	if s == nil {
		return ""
	}
	for i := range s.gpus {
		if s.gpus[i].id == gpu {
			return s.gpus[i].model
		}
	}
	model, _ := mostGPUs(s.gpus)
	return model
}

// gpuSeen is a time within an hour, in milliseconds, in which a GPU was reported.
type gpuSeen struct {
	gpu      domain.GPUID
	from, to uint32
}

// hour adds up the time that a node's GPUs were up in an hour.
func (w *reliabilityWalk) hour(k Key, row *UsageHour) {
	w.seen = w.seen[:0]
	for i := range row.Observers {
		o := &row.Observers[i]
		for j := range o.Devices {
			d := &o.Devices[j]
			gpu := o.physical(d)
			for _, s := range d.Segments {
				if n := len(w.seen); n > 0 && w.seen[n-1].gpu == gpu && w.seen[n-1].to == s.From {
					w.seen[n-1].to = s.To // as most do
					continue
				}
				w.seen = append(w.seen, gpuSeen{gpu, s.From, s.To})
			}
		}
	}
	slices.SortFunc(w.seen, func(a, b gpuSeen) int {
		return cmp.Or(bytes.Compare(a.gpu[:], b.gpu[:]), cmp.Compare(a.from, b.from))
	})
	n := w.fleet.index[nodeName{k.Scope, k.ID}]
	start := domain.Instant(k.Hour) * domain.Hour
	for i := 0; i < len(w.seen); {
		gpu, done := w.seen[i].gpu, uint32(0)
		for ; i < len(w.seen) && w.seen[i].gpu == gpu; i++ {
			from, to := max(done, w.seen[i].from), w.seen[i].to
			if from >= to {
				continue
			}
			done = to
			w.up(n, gpu, domain.Interval{From: start + domain.Instant(from)*nsPerMs, To: start + domain.Instant(to)*nsPerMs})
		}
	}
}

// up adds a time in which a GPU was reported, as far as its node had no outage.
func (w *reliabilityWalk) up(n *nodeTime, gpu domain.GPUID, span domain.Interval) {
	span = span.Intersect(w.span)
	if span.Empty() {
		return
	}
	ms := func(i domain.Interval) int64 { return int64(i.To/nsPerMs - i.From/nsPerMs) }
	add := func(model string, part domain.Interval) {
		total := ms(part)
		if n != nil {
			outages := w.outages[n.nodeName]
			i, _ := slices.BinarySearchFunc(outages, part.From, func(o domain.Interval, at domain.Instant) int { return cmp.Compare(o.To, at+1) })
			for ; i < len(outages) && outages[i].From < part.To; i++ {
				if down := outages[i].Intersect(part); !down.Empty() {
					total -= ms(down)
				}
			}
		}
		m := w.model(model)
		m.gpus[gpu] = true
		m.GPUMs += total
	}
	if n == nil {
		add("", span)
		return
	}
	rest := span
	for i := range n.service {
		s := &n.service[i]
		part := s.Intersect(span)
		if part.Empty() {
			continue
		}
		if rest.From < part.From {
			add("", domain.Interval{From: rest.From, To: part.From})
		}
		rest.From = part.To
		model := ""
		for j := range s.gpus {
			if s.gpus[j].id == gpu {
				model = s.gpus[j].model
				break
			}
		}
		add(model, part)
	}
	if !rest.Empty() {
		add("", rest)
	}
}
