package inventory

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// Forever stands for an unknown end.
const Forever domain.Instant = math.MaxInt64

// Fleet holds declarations and incidents, prepared for views over time. Its size grows with nodes
// and incidents, not hours.
type Fleet struct {
	Clusters map[string]*projections.History
	Nodes    []*NodeTime // by cluster, then node
	Index    map[NodeName]*NodeTime
}

// NodeName identifies a node of a cluster.
type NodeName struct{ Cluster, Node string }

// InOrder returns names by cluster, then node, each once.
func InOrder(names []NodeName) []NodeName {
	names = slices.Clone(names)
	slices.SortFunc(names, func(a, b NodeName) int {
		return cmp.Or(strings.Compare(a.Cluster, b.Cluster), strings.Compare(a.Node, b.Node))
	})
	return slices.Compact(names)
}

// NodeTime is the history of a node.
type NodeTime struct {
	NodeName
	Service     []Service             // ascending, disjoint
	missing     []down                // GPUs that the node's agent omitted when it registered
	retired     []down                // GPUs from their retirement until they are registered again
	Health      []projections.Version // faults, cordons, drains, returns, silences, in order
	windows     []window
	outages     []outage
	Down        []down       // of health, windows and outages, ascending
	Corrections []correction // the later one counts
}

type window struct {
	id string
	ev *domain.MaintenanceScheduled
}

// outage is a declared time in which nodes were down.
type outage struct {
	id string
	ev *domain.OutageDeclared
}

// of reports whether the outage includes a node of its cluster.
func (o outage) of(node string) bool {
	return len(o.ev.Nodes) == 0 || slices.Contains(o.ev.Nodes, node)
}

// Service is a time in service under one description.
type Service struct {
	domain.Interval
	Node *domain.NodeRegistered
	GPUs []Declared
}

// Declared is a GPU in a registration of its node.
type Declared struct {
	ID    domain.GPUID
	Model string // as the catalogue spells it, else as declared
	// left is when a registration omitted it, 0 if the last one states it.
	left domain.Instant
	// elsewhere are times at which another node of the cluster has the GPU. Of two nodes that
	// declare it, the one that was not registered without it since has it, else the later one, else
	// the first by name. A node that was registered without it does not have it from then on.
	elsewhere []domain.Interval // ascending, disjoint
}

// gone reports whether an omitted GPU belongs to another node at a time.
func (g *Declared) gone(at domain.Instant) bool {
	return g.left > 0 && slices.ContainsFunc(g.elsewhere, func(t domain.Interval) bool { return t.From <= at && at < t.To })
}

// has returns the times of a span at which a service has a GPU.
func (s *Service) has(gpu domain.GPUID, span domain.Interval) []domain.Interval {
	for i := range s.GPUs {
		if s.GPUs[i].ID == gpu {
			return s.GPUs[i].Within(nil, s.Intersect(span))
		}
	}
	return nil
}

// Within appends the parts of a span at which the GPU is not elsewhere.
func (g *Declared) Within(parts []domain.Interval, span domain.Interval) []domain.Interval {
	return Without(parts, span, g.elsewhere)
}

// Without appends a span without others, which are ascending and disjoint.
func Without(left []domain.Interval, span domain.Interval, others []domain.Interval) []domain.Interval {
	for _, o := range others {
		if before := (domain.Interval{From: span.From, To: min(o.From, span.To)}); !before.Empty() {
			left = append(left, before)
		}
		span.From = max(span.From, o.To)
	}
	if !span.Empty() {
		left = append(left, span)
	}
	return left
}

// Joined merges the spans that overlap or touch. Spans are ascending by start. It reuses their
// memory.
func Joined(spans []domain.Interval) []domain.Interval {
	n := 0
	for _, s := range spans {
		if n > 0 && s.From <= spans[n-1].To {
			spans[n-1].To = max(spans[n-1].To, s.To)
			continue
		}
		spans[n] = s
		n++
	}
	return spans[:n]
}

// down is a time in which a device, or with a zero id every device of the node, was unavailable.
type down struct {
	domain.Interval
	GPU    domain.GPUID
	Failed bool                 // otherwise set aside deliberately
	begun  *projections.Version // nil for a window, an outage and a missing GPU
}

type correction struct {
	order domain.Precedence
	Ev    *domain.UsageCorrected
}

// ReadClusters returns a fleet with only clusters: their valid registrations.
func ReadClusters(view projections.View) (*Fleet, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	return clustersOf(view, a)
}

func clustersOf(view projections.View, a *registry.Authority) (*Fleet, error) {
	clusters, err := a.Clusters(view)
	if err != nil {
		return nil, err
	}
	return &Fleet{Clusters: clusters, Index: map[NodeName]*NodeTime{}}, nil
}

// ReadFleet returns the declarations of clusters, nodes and GPUs over time.
func ReadFleet(view projections.View) (*Fleet, error) {
	a, err := registry.NewAuthority(view)
	if err != nil {
		return nil, err
	}
	f, err := clustersOf(view, a)
	if err != nil {
		return nil, err
	}
	models := map[string]string{}
	windows := map[string][]window{}
	outages := map[string][]outage{}
	for _, t := range []projections.Table{
		projections.TableNodes, projections.TableHealth, projections.TableFaults,
		projections.TableMaintenance, projections.TableOutages, projections.TableUsageCorrections,
	} {
		err := view.Scan(projections.Query{Table: t}, func(k projections.Key, row projections.Row) error {
			h := row.(*projections.History)
			switch t {
			case projections.TableNodes:
				f.Node(k.Scope, k.ID).Serve(a, k, h, models)
			case projections.TableHealth, projections.TableFaults:
				n := f.Node(k.Scope, k.ID)
				n.Health = append(n.Health, h.Versions...)
			case projections.TableMaintenance:
				if ev := h.Latest().Event.(*domain.MaintenanceScheduled); !ev.Cancelled {
					windows[k.Scope] = append(windows[k.Scope], window{k.ID, ev})
				}
			case projections.TableOutages:
				if v := a.Latest(k, h); v != nil {
					if ev := v.Event.(*domain.OutageDeclared); !ev.Cancelled {
						outages[k.Scope] = append(outages[k.Scope], outage{k.ID, ev})
					}
				}
			case projections.TableUsageCorrections:
				v := a.Latest(k, h)
				if v == nil {
					break
				}
				if ev := v.Event.(*domain.UsageCorrected); !ev.Cancelled {
					n := f.Node(k.Scope, ev.Node)
					n.Corrections = append(n.Corrections, correction{v.Order, ev})
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	f.Settle()
	if err := f.Tell(view); err != nil {
		return nil, err
	}
	for _, n := range f.Index {
		n.suffer()
		n.Down = append(n.Down, n.missing...)
		for _, w := range windows[n.Cluster] {
			if len(w.ev.Nodes) == 0 || slices.Contains(w.ev.Nodes, n.Node) {
				n.windows = append(n.windows, w)
				n.Down = append(n.Down, down{Interval: w.ev.Window})
			}
		}
		for _, o := range outages[n.Cluster] {
			if o.of(n.Node) {
				n.outages = append(n.outages, o)
				n.Down = append(n.Down, down{Interval: o.ev.Window, Failed: true})
			}
		}
		slices.SortFunc(n.Down, func(a, b down) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
		slices.SortFunc(n.Corrections, func(a, b correction) int {
			if a.order.After(b.order) {
				return 1
			}
			return -1
		})
		f.Nodes = append(f.Nodes, n)
	}
	slices.SortFunc(f.Nodes, func(a, b *NodeTime) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Node, b.Node))
	})
	return f, nil
}

// Settle assigns each GPU that several nodes of a cluster declare at once to one of them.
func (f *Fleet) Settle() {
	each := func(yield func(*NodeTime, *Service, *Declared)) {
		for _, n := range f.Index {
			for i := range n.Service {
				for j := range n.Service[i].GPUs {
					yield(n, &n.Service[i], &n.Service[i].GPUs[j])
				}
			}
		}
	}
	var several Claimants
	each(func(n *NodeTime, _ *Service, g *Declared) { several.Add(g.ID, n.NodeName) })
	if len(several.Several) == 0 {
		return
	}
	type claim struct {
		node *NodeTime
		s    *Service
		g    *Declared
	}
	twice := map[gpuIn][]claim{}
	each(func(n *NodeTime, s *Service, g *Declared) {
		if several.Has(g.ID) {
			k := gpuIn{n.Cluster, g.ID}
			twice[k] = append(twice[k], claim{n, s, g})
		}
	})
	for _, claims := range twice {
		// The strongest claim comes first.
		slices.SortFunc(claims, func(a, b claim) int {
			return cmp.Or(
				cmp.Compare(min(a.g.left, 1), min(b.g.left, 1)), cmp.Compare(b.s.From, a.s.From),
				cmp.Compare(a.node.Node, b.node.Node),
			)
		})
		var taken []domain.Interval
		for _, c := range claims {
			for _, t := range taken {
				if o := t.Intersect(c.s.Interval); !o.Empty() {
					c.g.elsewhere = append(c.g.elsewhere, o)
				}
			}
			slices.SortFunc(c.g.elsewhere, func(a, b domain.Interval) int { return cmp.Compare(a.From, b.From) })
			if c.g.left > 0 {
				gone := c.s.To
				for _, d := range claims {
					if d.node != c.node && d.g.left == 0 && d.s.To > c.g.left {
						gone = min(gone, max(d.s.From, c.s.From))
					}
				}
				if gone < c.s.To {
					c.g.elsewhere = slices.DeleteFunc(c.g.elsewhere, func(t domain.Interval) bool { return t.From >= gone })
					if last := len(c.g.elsewhere) - 1; last >= 0 {
						c.g.elsewhere[last].To = min(c.g.elsewhere[last].To, gone)
					}
					c.g.elsewhere = append(c.g.elsewhere, domain.Interval{From: gone, To: c.s.To})
					for i := range c.node.missing {
						if d := &c.node.missing[i]; d.GPU == c.g.ID && d.From < c.s.To {
							d.To = max(d.From, min(d.To, gone))
						}
					}
				}
			}
			taken = append(taken, Without(nil, c.s.Interval, c.g.elsewhere)...)
		}
	}
}

// Node returns a node of the fleet. It creates the node if nothing was declared of it.
func (f *Fleet) Node(cluster, node string) *NodeTime {
	name := NodeName{cluster, node}
	n := f.Index[name]
	if n == nil {
		n = &NodeTime{NodeName: name}
		f.Index[name] = n
	}
	return n
}

// Cluster returns the registration of a cluster at a time and its owner. Before the first
// registration it returns the first. It returns nil for an unregistered cluster.
func (f *Fleet) Cluster(id string, at domain.Instant) (*domain.ClusterRegistered, string) {
	h := f.Clusters[id]
	if h == nil {
		return nil, ""
	}
	v := h.At(at)
	if v == nil {
		v = &h.Versions[0]
	}
	return v.Event.(*domain.ClusterRegistered), v.Workspace
}

// Serve turns registrations and retirements into times in service. A GPU that a registration omits
// stays in service (see [domain.NodeRegistered]). If the node's own agent omitted it, it is
// missing: it counts as failed until the agent registers it again or another node declares it (see
// Settle). The faults of a GPU end when it leaves.
func (n *NodeTime) Serve(a *registry.Authority, k projections.Key, h *projections.History, models map[string]string) {
	end := func(at domain.Instant) {
		if last := len(n.Service) - 1; last >= 0 && n.Service[last].To == Forever {
			if n.Service[last].To = at; n.Service[last].Empty() {
				n.Service = n.Service[:last]
			}
		}
	}
	// now is the valid description until at, nil if the node is not in service.
	now := func(at domain.Instant) *domain.NodeRegistered {
		if last := len(n.Service) - 1; last >= 0 && n.Service[last].To >= at {
			return n.Service[last].Node
		}
		return nil
	}
	left := map[domain.GPUID]domain.Instant{} // when a registration omitted a GPU
	begin := func(at domain.Instant, node *domain.NodeRegistered) {
		s := Service{Interval: domain.Interval{From: at, To: Forever}, Node: node, GPUs: make([]Declared, len(node.GPUs))}
		for j, g := range node.GPUs {
			model, ok := models[g.Model]
			if !ok {
				model = g.Model
				if m, known := domain.LookupGPU(g.Model); known {
					model = m.Name
				}
				models[g.Model] = model
			}
			s.GPUs[j] = Declared{ID: g.ID, Model: model, left: left[g.ID]}
		}
		n.Service = append(n.Service, s)
	}
	var retired *domain.NodeRegistered // and not registered since
	for i := range h.Versions {
		v := &h.Versions[i]
		at := v.Order.Effective
		switch ev := v.Event.(type) {
		case *domain.NodeRegistered:
			end(at)
			stated := ev.GPUs
			if before := now(at); retired != nil {
				for _, g := range retired.GPUs {
					if !Declares(ev, g.ID) {
						n.leave(g.ID, v, "its node came back without it")
					}
				}
				retired = nil
			} else if before != nil {
				ev = n.keep(before, ev, v)
			}
			for _, g := range stated {
				delete(left, g.ID)
				for j := range n.retired {
					if d := &n.retired[j]; d.GPU == g.ID {
						d.To = min(d.To, at)
					}
				}
			}
			for _, g := range ev.GPUs[len(stated):] {
				if left[g.ID] == 0 {
					left[g.ID] = at
				}
			}
			if ofAgent(v) {
				for _, g := range stated {
					n.found(g.ID, at)
				}
				for _, g := range ev.GPUs[len(stated):] {
					n.miss(g.ID, at)
				}
			}
			begin(at, ev)
		case *domain.NodeRetired:
			if retired = cmp.Or(now(at), retired); retired != nil {
				for _, g := range retired.GPUs {
					n.found(g.ID, at)
				}
			}
			end(at)
		case *domain.GPURetired:
			s := now(at)
			if s == nil || retired != nil || a.Judge(k, h, i) != "" {
				continue
			}
			rest := *s
			rest.GPUs = slices.DeleteFunc(slices.Clone(s.GPUs), func(g domain.GPUDeclared) bool { return g.ID == ev.GPU })
			if len(rest.GPUs) == len(s.GPUs) {
				continue
			}
			n.leave(ev.GPU, v, "it was retired: "+ev.Reason)
			n.retired = append(n.retired, down{Interval: domain.Interval{From: at, To: Forever}, GPU: ev.GPU})
			end(at)
			begin(at, &rest)
		}
	}
}

// Declares reports whether a registration states a GPU.
func Declares(r *domain.NodeRegistered, gpu domain.GPUID) bool {
	return slices.ContainsFunc(r.GPUs, func(g domain.GPUDeclared) bool { return g.ID == gpu })
}

// ofAgent reports whether a node's own agent made a statement.
func ofAgent(v *projections.Version) bool { return strings.HasPrefix(v.Order.Source, "node-reporter/") }

// keep returns a registration extended by those GPUs of the one before that it omits and that were
// not replaced.
func (n *NodeTime) keep(before, ev *domain.NodeRegistered, v *projections.Version) *domain.NodeRegistered {
	var kept []domain.GPUDeclared
	for _, g := range before.GPUs {
		if Declares(ev, g.ID) {
			continue
		}
		replaced := slices.ContainsFunc(ev.GPUs, func(x domain.GPUDeclared) bool {
			if Declares(before, x.ID) {
				return false
			}
			if x.PCI != "" && g.PCI != "" {
				return x.PCI == g.PCI
			}
			return x.Index == g.Index
		})
		if before.IDsDerived || replaced {
			n.leave(g.ID, v, "another GPU stands in its place")
			continue
		}
		kept = append(kept, g)
	}
	if len(kept) == 0 {
		return ev
	}
	all := *ev
	all.GPUs = append(slices.Clone(ev.GPUs), kept...)
	return &all
}

// miss records that a GPU is missing.
func (n *NodeTime) miss(gpu domain.GPUID, at domain.Instant) {
	if !slices.ContainsFunc(n.missing, func(d down) bool { return d.GPU == gpu && d.To == Forever }) {
		n.missing = append(n.missing, down{Interval: domain.Interval{From: at, To: Forever}, GPU: gpu, Failed: true})
	}
}

// found ends the time in which a GPU is missing.
func (n *NodeTime) found(gpu domain.GPUID, at domain.Instant) {
	for i := range n.missing {
		if d := &n.missing[i]; d.GPU == gpu && d.To == Forever {
			d.To = max(at, d.From)
		}
	}
}

// leave ends the faults of a GPU that leaves the node.
func (n *NodeTime) leave(gpu domain.GPUID, v *projections.Version, why string) {
	n.found(gpu, v.Order.Effective)
	n.Health = append(n.Health, projections.Version{
		Order: v.Order, Left: true, Event: &domain.NodeReturned{Node: n.Node, GPU: gpu, Faults: true, Reason: why},
	})
}

// suffer turns faults, cordons, drains and returns into times down. A cordon lasts until a return
// ends it, and a fatal fault disables its device until then. A drain without a cordon is for
// convenience.
func (n *NodeTime) suffer() {
	var open []down
	begin := func(d down) {
		for _, o := range open {
			if o.GPU == d.GPU && o.Failed == d.Failed && o.begun.Event.Type() == d.begun.Event.Type() &&
				projections.Scraped(o.begun.Order.Source) == projections.Scraped(d.begun.Order.Source) {
				return
			}
		}
		open = append(open, d)
	}
	for i := range n.Health {
		v := &n.Health[i]
		since := domain.Interval{From: v.Order.Effective, To: Forever}
		switch ev := v.Event.(type) {
		case *domain.GPUFaultObserved:
			if ev.Fatal {
				begin(down{Interval: since, GPU: ev.GPU, Failed: true, begun: v})
			}
		case *domain.NodeCordoned:
			begin(down{Interval: since, Failed: ev.Repair, begun: v})
		case *domain.NodeDrained:
			if !slices.ContainsFunc(open, func(d down) bool { return d.begun.Event.Type() != domain.TypeGPUFaultObserved }) {
				begin(down{Interval: since, begun: v})
			}
		case *domain.NodeReturned:
			left := open[:0]
			for _, d := range open {
				if !projections.Ends(v, d.begun) {
					left = append(left, d)
					continue
				}
				if d.To = since.From; !d.Empty() {
					n.Down = append(n.Down, d)
				}
			}
			open = left
		}
	}
	n.Down = append(n.Down, open...)
}

// failed reports whether a GPU had failed at a time, by itself or with its node.
func (n *NodeTime) failed(gpu domain.GPUID, at domain.Instant) bool {
	return slices.ContainsFunc(n.Down, func(d down) bool {
		return d.Failed && d.From <= at && at < d.To && (d.GPU == gpu || d.GPU == (domain.GPUID{}))
	})
}

// At returns the time in service that contains t, nil if there is none.
func (n *NodeTime) At(t domain.Instant) *Service {
	for i := range n.Service {
		if s := &n.Service[i]; s.From <= t && t < s.To {
			return s
		}
	}
	return nil
}

// Until returns when a node that is in service at a time is retired.
func (n *NodeTime) Until(at domain.Instant) domain.Instant {
	end := Forever
	for i := range n.Service {
		s := &n.Service[i]
		if s.From <= at && at < s.To || i > 0 && end == s.From && s.From > at {
			end = s.To // a new description is not a retirement
		}
	}
	return end
}

// ModelOf returns the model of a GPU of the node at a time, or the most frequent model.
func (n *NodeTime) ModelOf(gpu domain.GPUID, at domain.Instant) string {
	s := n.At(at)
	if s == nil {
		return ""
	}
	for i := range s.GPUs {
		if s.GPUs[i].ID == gpu {
			return s.GPUs[i].Model
		}
	}
	model, _ := MostGPUs(s.GPUs)
	return model
}

// Memory returns the memory of a GPU in MiB; 0 if unknown.
func (s *Service) Memory(id domain.GPUID) uint64 {
	if s == nil {
		return 0
	}
	for i := range s.Node.GPUs {
		g := &s.Node.GPUs[i]
		if g.ID != id {
			continue
		}
		if g.MemoryMiB > 0 {
			return g.MemoryMiB
		}
		if m, ok := domain.LookupGPU(g.Model); ok {
			return m.MemoryMiB
		}
	}
	return 0
}

// MostGPUs returns the most frequent model, and its number of GPUs.
func MostGPUs(gpus []Declared) (model string, n int) {
	counts := map[string]int{}
	for _, g := range gpus {
		counts[g.Model]++
	}
	for m, k := range counts {
		if k > n || k == n && m < model {
			model, n = m, k
		}
	}
	return model, n
}
