package failures

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
)

// outageLookback is how far before the requested time the start of a known outage may lie.
const outageLookback = 90 * domain.Day

// Model is what was observed of the GPUs of one model.
type Model struct {
	Model string `json:"model"` // as the catalogue spells it; "" for undeclared GPUs
	GPUs  int    `json:"gpus"`  // that reported
	reliability.Evidence
	Causes []Cause `json:"causes"` // of the interruptions, most frequent first
}

// Cause is what an interruption began with: a fault, "cordon" for a node that was cordoned for
// repair without a fault that counts, or "outage" for a declared outage.
type Cause struct {
	Kind  string `json:"kind"`
	Code  uint32 `json:"code,omitempty"`
	Class string `json:"class,omitempty"`
	Count int64  `json:"count"`
}

// ByModel returns, by GPU model, how long GPUs were observed up between two times, what
// interrupted them and how long repairs took: the evidence for [reliability.Prior.Learn].
//
// A node fails as a whole. An event that counts (see [reliability.Counts]) on a node that
// is up is an interruption: of the model of the GPU that it names, else of the model
// that most of the node's GPUs have. A fatal fault, or a cordon for repair, begins an
// outage, which lasts until the node is returned or all of its causes have ended. A
// declared outage lasts as long as declared. Events during an outage belong to it. Time
// to repair is the length of outages that began within the requested time. An outage
// that lasts beyond that time, or until the node is retired, counts up to then and does
// not count as an ended repair. Events of a node that is undeclared or out of service
// belong to no model.
//
// A GPU is up while any observer reports it, or an instance or replica of it, and its
// node has no outage. Outages that began more than 90 days before the requested time are
// ignored.
//
// It reads the declared nodes, and the rows of usage, faults and health of the requested
// time (and health of the days before it): older history costs nothing.
func ByModel(view projections.View, from, to domain.Instant, counts reliability.Counts) ([]Model, error) {
	w, err := walk(view, from, to, counts, func(Interruption) {})
	if err != nil {
		return nil, err
	}
	query := projections.Query{From: projections.HourOf(from), To: projections.HourOf(to-1) + 1}
	err = inventory.EachUsage(view, w.fleet.Index, query, func(k projections.Key, row *projections.UsageHour) error {
		w.hour(k, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableUsage, err)
	}
	out := []Model{}
	for _, name := range slices.Sorted(maps.Keys(w.models)) {
		m := w.models[name]
		r := Model{Model: name, GPUs: len(m.gpus), Evidence: m.Evidence, Causes: []Cause{}}
		for c, n := range m.causes {
			c.Count = n
			r.Causes = append(r.Causes, c)
		}
		slices.SortFunc(r.Causes, func(a, b Cause) int {
			return cmp.Or(
				cmp.Compare(b.Count, a.Count), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Code, b.Code),
				cmp.Compare(a.Class, b.Class),
			)
		})
		out = append(out, r)
	}
	return out, nil
}

// Interruption is one of [ByModel].
type Interruption struct {
	inventory.NodeName
	At    domain.Instant
	Model string // of the GPU that the event names, else of most of the node's GPUs
	Cause Cause  // with Count 0
}

// Interruptions returns the interruptions that [ByModel] counts, by cluster, node and time, and for each node in service
// within the time the GPU-hours for which it was in service and had no outage. It reads no usage: a GPU counts as up
// although it did not report.
func Interruptions(view projections.View, from, to domain.Instant, counts reliability.Counts) ([]Interruption, []Exposure, error) {
	var all []Interruption
	w, err := walk(view, from, to, counts, func(i Interruption) { all = append(all, i) })
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, func(a, b Interruption) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.At, b.At))
	})
	var exposed []Exposure
	for name, n := range w.fleet.Index {
		for i := range n.Service {
			s := &n.Service[i]
			part := s.Intersect(w.span)
			if part.Empty() {
				continue
			}
			up := part.Length()
			for _, o := range w.outages[name] {
				if o = o.Intersect(part); !o.Empty() {
					up -= o.Length()
				}
			}
			model, _ := inventory.MostGPUs(s.GPUs)
			exposed = append(exposed, Exposure{name, model, int64(up/projections.NsPerMs) * int64(len(s.GPUs))})
		}
	}
	slices.SortFunc(exposed, func(a, b Exposure) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Model, b.Model), cmp.Compare(a.GPUMs, b.GPUMs))
	})
	return all, exposed, nil
}

// Exposure is the time of a node's GPUs in service and without an outage, under one description of the node.
type Exposure struct {
	inventory.NodeName
	Model string // that most of its GPUs have
	GPUMs int64
}

// walk reads nodes and what interrupted them.
func walk(
	view projections.View, from, to domain.Instant, counts reliability.Counts, yield func(Interruption),
) (*reliabilityWalk, error) {
	if from <= 0 || to <= from {
		return nil, fmt.Errorf("reliability from %s to %s: want a time and a later one", from, to)
	}
	w := &reliabilityWalk{
		fleet: &inventory.Fleet{Index: map[inventory.NodeName]*inventory.NodeTime{}}, span: domain.Interval{From: from, To: to},
		models: map[string]*modelEvidence{}, interrupted: yield, outages: map[inventory.NodeName][]domain.Interval{},
	}
	models := map[string]string{}
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	err = view.Scan(projections.Query{Table: projections.TableNodes}, func(k projections.Key, row projections.Row) error {
		w.fleet.Node(k.Scope, k.ID).Serve(a, k, row.(*projections.History), models)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableNodes, err)
	}
	for _, t := range []projections.Table{projections.TableFaults, projections.TableHealth} {
		q := projections.Query{
			Table: t, From: max(1, projections.DayOf(max(0, from-outageLookback))), To: projections.DayOf(to-1) + 1,
		}
		err := view.Scan(q, func(k projections.Key, row projections.Row) error {
			n := w.fleet.Node(k.Scope, k.ID)
			for i := range row.(*projections.History).Versions {
				v := &row.(*projections.History).Versions[i]
				f, ok := v.Event.(*domain.GPUFaultObserved)
				switch {
				case ok && !counts.Fault(f):
				case ok && f.Fatal: // a fatal fault continues by itself, unless its node is retired
					n.Health = projections.SpreadRepeats(n.Health, v, domain.Hour)
				default: // each may be an interruption
					n.Health = projections.SpreadRepeats(n.Health, v, min(counts.Same, projections.RepeatGap))
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	w.fleet.Settle()
	if err := w.fleet.Tell(view); err != nil {
		return nil, err
	}
	if err := w.declared(view, a); err != nil {
		return nil, err
	}
	for _, n := range w.fleet.Index {
		w.interruptions(n, &counts)
	}
	return w, nil
}

type reliabilityWalk struct {
	fleet   *inventory.Fleet
	span    domain.Interval
	models  map[string]*modelEvidence
	outages map[inventory.NodeName][]domain.Interval // ascending, disjoint
	seen    []gpuSeen
	// interrupted is called with each interruption, in no particular order.
	interrupted func(Interruption)
}

type modelEvidence struct {
	reliability.Evidence
	gpus   map[domain.GPUID]bool
	causes map[Cause]int64 // with Count 0
}

func (w *reliabilityWalk) model(name string) *modelEvidence {
	m := w.models[name]
	if m == nil {
		m = &modelEvidence{gpus: map[domain.GPUID]bool{}, causes: map[Cause]int64{}}
		w.models[name] = m
	}
	return m
}

// declared adds the start and the end of declared outages to the history of nodes. An end is marked
// with Left.
func (w *reliabilityWalk) declared(view projections.View, a *registry.Authority) error {
	known := domain.Interval{From: w.span.From - outageLookback, To: w.span.To}
	err := view.Scan(projections.Query{Table: projections.TableOutages}, func(k projections.Key, row projections.Row) error {
		v := a.Latest(k, row.(*projections.History))
		if v == nil {
			return nil
		}
		ev := v.Event.(*domain.OutageDeclared)
		if ev.Cancelled || ev.Window.Intersect(known).Empty() {
			return nil
		}
		for name, n := range w.fleet.Index {
			if name.Cluster != k.Scope || len(ev.Nodes) > 0 && !slices.Contains(ev.Nodes, name.Node) {
				continue
			}
			begin, end := *v, *v
			begin.Order.Effective, end.Order.Effective, end.Left = ev.Window.From, ev.Window.To, true
			n.Health = append(n.Health, begin, end)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read %s: %w", projections.TableOutages, err)
	}
	for _, n := range w.fleet.Index {
		slices.SortStableFunc(n.Health, func(x, y projections.Version) int {
			return cmp.Compare(x.Order.Effective, y.Order.Effective)
		})
	}
	return nil
}

// interruptions processes the history of a node. Its sums do not depend on the order of nodes.
func (w *reliabilityWalk) interruptions(n *inventory.NodeTime, counts *reliability.Counts) {
	type outage struct {
		domain.Interval
		model string
		lasts []*projections.Version // what keeps it open
	}
	var open *outage
	end := func(at domain.Instant, repaired bool) {
		retired := n.Until(open.From)
		if at > retired {
			at, repaired = retired, false
		}
		w.outages[n.NodeName] = append(w.outages[n.NodeName], domain.Interval{From: open.From, To: at})
		if w.holds(open.From) {
			m := w.model(open.model)
			m.RepairMs += int64((min(at, w.span.To) - open.From) / projections.NsPerMs)
			if repaired && at < w.span.To {
				m.Repairs++
			}
		}
		open = nil
	}
	var last *outage // that took no device down
	begin := func(v *projections.Version, gpu domain.GPUID, cause Cause, lasts bool) {
		at := v.Order.Effective
		if open != nil && at >= n.Until(open.From) {
			end(at, false) // it was retired, and has returned
		}
		if open != nil {
			if lasts {
				open.lasts = append(open.lasts, v)
			}
			return
		}
		o := &outage{Interval: domain.Interval{From: at}, model: n.ModelOf(gpu, at), lasts: []*projections.Version{v}}
		if last != nil && at-last.From <= counts.Same {
			o.model = last.model // the same interruption continues
		} else if w.holds(at) && !v.Moved {
			m := w.model(o.model)
			m.Interruptions++
			m.causes[cause]++
			w.interrupted(Interruption{n.NodeName, at, o.model, cause})
		}
		if lasts {
			open, last = o, nil
		} else if last == nil || at-last.From > counts.Same {
			last = o
		}
	}
	for i := range n.Health {
		v := &n.Health[i]
		at := v.Order.Effective
		if at >= w.span.To {
			break
		}
		switch ev := v.Event.(type) {
		case *domain.GPUFaultObserved:
			if counts.Fault(ev) {
				begin(v, ev.GPU, Cause{Kind: string(ev.Kind), Code: ev.Code, Class: ev.Class}, ev.Fatal)
			}
		case *domain.NodeCordoned:
			if counts.Repair && ev.Repair {
				begin(v, domain.GPUID{}, Cause{Kind: "cordon"}, true)
			}
		case *domain.OutageDeclared:
			if !counts.Repair {
				break
			}
			if !v.Left {
				begin(v, domain.GPUID{}, Cause{Kind: "outage"}, true)
			} else if open != nil {
				open.lasts = slices.DeleteFunc(open.lasts, func(b *projections.Version) bool { return b.Event == v.Event })
				if len(open.lasts) == 0 {
					end(at, true)
				}
			}
		case *domain.NodeReturned:
			if open != nil {
				open.lasts = slices.DeleteFunc(open.lasts, func(b *projections.Version) bool {
					return b.Event.Type() != domain.TypeOutageDeclared && projections.Ends(v, b)
				})
				if len(open.lasts) > 0 {
					break
				}
				end(at, !v.Moved)
			}
			last = nil
		}
	}
	if open != nil {
		end(inventory.Forever, false)
	}
}

func (w *reliabilityWalk) holds(at domain.Instant) bool { return w.span.From <= at && at < w.span.To }

// gpuSeen is a time within an hour, in milliseconds, in which a GPU was reported.
type gpuSeen struct {
	gpu      domain.GPUID
	from, to uint32
}

// hour adds the uptime of a node's GPUs in an hour.
func (w *reliabilityWalk) hour(k projections.Key, row *projections.UsageHour) {
	w.seen = w.seen[:0]
	for i := range row.Observers {
		o := &row.Observers[i]
		for j := range o.Devices {
			d := &o.Devices[j]
			gpu := o.Physical(d)
			for _, s := range d.Segments {
				if n := len(w.seen); n > 0 && w.seen[n-1].gpu == gpu && w.seen[n-1].to == s.From {
					w.seen[n-1].to = s.To // the usual case
					continue
				}
				w.seen = append(w.seen, gpuSeen{gpu, s.From, s.To})
			}
		}
	}
	slices.SortFunc(w.seen, func(a, b gpuSeen) int {
		return cmp.Or(bytes.Compare(a.gpu[:], b.gpu[:]), cmp.Compare(a.from, b.from))
	})
	n := w.fleet.Index[inventory.NodeName{Cluster: k.Scope, Node: k.ID}]
	start := domain.Instant(k.Hour) * domain.Hour
	for i := 0; i < len(w.seen); {
		gpu, done := w.seen[i].gpu, uint32(0)
		for ; i < len(w.seen) && w.seen[i].gpu == gpu; i++ {
			from, to := max(done, w.seen[i].from), w.seen[i].to
			if from >= to {
				continue
			}
			done = to
			w.up(n, gpu, domain.Interval{
				From: start + domain.Instant(from)*projections.NsPerMs,
				To:   start + domain.Instant(to)*projections.NsPerMs,
			})
		}
	}
}

// up adds a time in which a GPU was reported, without its node's outages.
func (w *reliabilityWalk) up(n *inventory.NodeTime, gpu domain.GPUID, span domain.Interval) {
	span = span.Intersect(w.span)
	if span.Empty() {
		return
	}
	ms := func(i domain.Interval) int64 { return int64(i.To/projections.NsPerMs - i.From/projections.NsPerMs) }
	add := func(model string, part domain.Interval) {
		total := ms(part)
		if n != nil {
			outages := w.outages[n.NodeName]
			endsAfter := func(o domain.Interval, at domain.Instant) int { return cmp.Compare(o.To, at+1) }
			i, _ := slices.BinarySearchFunc(outages, part.From, endsAfter)
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
	for i := range n.Service {
		s := &n.Service[i]
		part := s.Intersect(span)
		if part.Empty() {
			continue
		}
		if rest.From < part.From {
			add("", domain.Interval{From: rest.From, To: part.From})
		}
		rest.From = part.To
		model := ""
		for j := range s.GPUs {
			if s.GPUs[j].ID == gpu {
				model = s.GPUs[j].Model
				break
			}
		}
		add(model, part)
	}
	if !rest.Empty() {
		add("", rest)
	}
}
