package projections

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"quartermaster/domain"
)

// forever stands for an end that is not known.
const forever domain.Instant = math.MaxInt64

// fleet is what was declared and what broke, prepared for views that go
// through time. Its size follows nodes and incidents, not hours.
type fleet struct {
	clusters map[string]*History
	nodes    []*nodeTime // by cluster, then node
	index    map[nodeName]*nodeTime
}

type nodeName struct{ cluster, node string }

// nodeTime is a node through time.
type nodeTime struct {
	nodeName
	service     []service // ascending, disjoint
	missing     []down    // GPUs that the node's agent left out when it registered
	retired     []down    // GPUs from their retirement until they are registered again
	health      []Version // faults, cordons, drains, returns, silences, in order
	windows     []window
	down        []down       // of health and windows, ascending
	corrections []correction // the later one wins
}

type window struct {
	id string
	ev *domain.MaintenanceScheduled
}

// service is a time in service under one description.
type service struct {
	domain.Interval
	node *domain.NodeRegistered
	gpus []declared
}

type declared struct {
	id    domain.GPUID
	model string // as the catalogue spells it, else as declared
	// left is when a registration left it out, 0 where the last one states it.
	left domain.Instant
	// elsewhere are times at which another node of the cluster has it: of two that
	// declare it, one that was not registered without it since, else the later, else the
	// first by name. One that was registered without it has it no more from then on.
	elsewhere []domain.Interval // ascending, disjoint
}

// gone reports whether a GPU that a registration left out is another node's at a time.
func (g *declared) gone(at domain.Instant) bool {
	return g.left > 0 && slices.ContainsFunc(g.elsewhere, func(t domain.Interval) bool { return t.From <= at && at < t.To })
}

// has reports whether a service has a GPU at some moment of a span, and returns when
// it does.
func (s *service) has(gpu domain.GPUID, span domain.Interval) []domain.Interval {
	for i := range s.gpus {
		if s.gpus[i].id == gpu {
			return s.gpus[i].within(nil, s.Intersect(span))
		}
	}
	return nil
}

// within appends the parts of a span at which the GPU is nowhere else.
func (g *declared) within(parts []domain.Interval, span domain.Interval) []domain.Interval {
	return without(parts, span, g.elsewhere)
}

// without appends a span without others that are ascending and disjoint.
func without(left []domain.Interval, span domain.Interval, others []domain.Interval) []domain.Interval {
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

// joined joins the spans that overlap or touch, of spans ascending by their begin. It
// uses their memory.
func joined(spans []domain.Interval) []domain.Interval {
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

// down is a time in which a device, or with a zero id every device of the node,
// could not be given to anybody.
type down struct {
	domain.Interval
	gpu    domain.GPUID
	failed bool     // otherwise set aside on purpose
	begun  *Version // nil of a window and of a GPU that is missing
}

// ends reports whether a return to service ends what a fault, a cordon or a drain
// began. One of faults alone ends those of its device, or of the node itself, and no
// cordon. What a monitoring system says ends only a cordon that one made: that a
// scheduler would use a node does not mend its GPUs.
func ends(returned, begun *Version) bool {
	r := returned.Event.(*domain.NodeReturned)
	if scraped(returned.Order.Source) {
		_, cordon := begun.Event.(*domain.NodeCordoned)
		return cordon && scraped(begun.Order.Source)
	}
	if !r.Faults {
		return true
	}
	f, fault := begun.Event.(*domain.GPUFaultObserved)
	return fault && f.GPU == r.GPU
}

type correction struct {
	order domain.Order
	ev    *domain.UsageCorrected
}

// readClusters returns a fleet of which only clusters are known: their
// registrations that are in force.
func readClusters(view View) (*fleet, error) {
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	return clustersOf(view, a)
}

func clustersOf(view View, a *Authority) (*fleet, error) {
	clusters, err := a.clusters(view)
	if err != nil {
		return nil, err
	}
	return &fleet{clusters: clusters, index: map[nodeName]*nodeTime{}}, nil
}

func readFleet(view View) (*fleet, error) {
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	f, err := clustersOf(view, a)
	if err != nil {
		return nil, err
	}
	models := map[string]string{}
	windows := map[string][]window{}
	for _, t := range []Table{TableNodes, TableHealth, TableFaults, TableMaintenance, TableUsageCorrections} {
		err := view.Scan(Query{Table: t}, func(k Key, row Row) error {
			h := row.(*History)
			switch t {
			case TableNodes:
				f.node(k.Scope, k.ID).serve(a, k, h, models)
			case TableHealth, TableFaults:
				n := f.node(k.Scope, k.ID)
				n.health = append(n.health, h.Versions...)
			case TableMaintenance:
				if ev := h.Latest().Event.(*domain.MaintenanceScheduled); !ev.Cancelled {
					windows[k.Scope] = append(windows[k.Scope], window{k.ID, ev})
				}
			case TableUsageCorrections:
				n := f.node(k.Scope, k.ID)
				for _, v := range h.Versions {
					n.corrections = append(n.corrections, correction{v.Order, v.Event.(*domain.UsageCorrected)})
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	f.settle()
	if err := f.tell(view); err != nil {
		return nil, err
	}
	for _, n := range f.index {
		n.suffer()
		n.down = append(n.down, n.missing...)
		for _, w := range windows[n.cluster] {
			if len(w.ev.Nodes) == 0 || slices.Contains(w.ev.Nodes, n.node) {
				n.windows = append(n.windows, w)
				n.down = append(n.down, down{Interval: w.ev.Window})
			}
		}
		slices.SortFunc(n.down, func(a, b down) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
		slices.SortFunc(n.corrections, func(a, b correction) int {
			if a.order.After(b.order) {
				return 1
			}
			return -1
		})
		f.nodes = append(f.nodes, n)
	}
	slices.SortFunc(f.nodes, func(a, b *nodeTime) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.node, b.node))
	})
	return f, nil
}

// settle gives each GPU that several nodes of a cluster declare at once to one.
func (f *fleet) settle() {
	each := func(yield func(*nodeTime, *service, *declared)) {
		for _, n := range f.index {
			for i := range n.service {
				for j := range n.service[i].gpus {
					yield(n, &n.service[i], &n.service[i].gpus[j])
				}
			}
		}
	}
	var several claimants
	each(func(n *nodeTime, _ *service, g *declared) { several.add(g.id, n.nodeName) })
	if len(several.several) == 0 {
		return
	}
	type claim struct {
		node *nodeTime
		s    *service
		g    *declared
	}
	twice := map[gpuIn][]claim{}
	each(func(n *nodeTime, s *service, g *declared) {
		if several.has(g.id) {
			k := gpuIn{n.cluster, g.id}
			twice[k] = append(twice[k], claim{n, s, g})
		}
	})
	for _, claims := range twice {
		// The strongest comes first.
		slices.SortFunc(claims, func(a, b claim) int {
			return cmp.Or(cmp.Compare(min(a.g.left, 1), min(b.g.left, 1)), cmp.Compare(b.s.From, a.s.From), cmp.Compare(a.node.node, b.node.node))
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
						if d := &c.node.missing[i]; d.gpu == c.g.id && d.From < c.s.To {
							d.To = max(d.From, min(d.To, gone))
						}
					}
				}
			}
			taken = append(taken, without(nil, c.s.Interval, c.g.elsewhere)...)
		}
	}
}

func (f *fleet) node(cluster, node string) *nodeTime {
	name := nodeName{cluster, node}
	n := f.index[name]
	if n == nil {
		n = &nodeTime{nodeName: name}
		f.index[name] = n
	}
	return n
}

// cluster returns the registration of a cluster at a time and its owner; before
// the first registration it is the first. It is nil for a cluster that nobody
// registered.
func (f *fleet) cluster(id string, at domain.Instant) (*domain.ClusterRegistered, string) {
	h := f.clusters[id]
	if h == nil {
		return nil, ""
	}
	v := h.At(at)
	if v == nil {
		v = &h.Versions[0]
	}
	return v.Event.(*domain.ClusterRegistered), v.Workspace
}

// serve turns registrations and retirements into times in service. A GPU that a
// registration leaves out stays in service (see [domain.NodeRegistered]); where the node's
// own agent left it out it is missing, and failed until that registers it again or another
// node declares it (see settle). The faults of a GPU end when it leaves.
func (n *nodeTime) serve(a *Authority, k Key, h *History, models map[string]string) {
	end := func(at domain.Instant) {
		if last := len(n.service) - 1; last >= 0 && n.service[last].To == forever {
			if n.service[last].To = at; n.service[last].Empty() {
				n.service = n.service[:last]
			}
		}
	}
	// now is the description in force until at, nil where the node is not in service.
	now := func(at domain.Instant) *domain.NodeRegistered {
		if last := len(n.service) - 1; last >= 0 && n.service[last].To >= at {
			return n.service[last].node
		}
		return nil
	}
	left := map[domain.GPUID]domain.Instant{} // when a registration left a GPU out
	begin := func(at domain.Instant, node *domain.NodeRegistered) {
		s := service{Interval: domain.Interval{From: at, To: forever}, node: node, gpus: make([]declared, len(node.GPUs))}
		for j, g := range node.GPUs {
			model, ok := models[g.Model]
			if !ok {
				model = g.Model
				if m, known := domain.LookupGPU(g.Model); known {
					model = m.Name
				}
				models[g.Model] = model
			}
			s.gpus[j] = declared{id: g.ID, model: model, left: left[g.ID]}
		}
		n.service = append(n.service, s)
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
					if !declares(ev, g.ID) {
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
					if d := &n.retired[j]; d.gpu == g.ID {
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
			n.retired = append(n.retired, down{Interval: domain.Interval{From: at, To: forever}, gpu: ev.GPU})
			end(at)
			begin(at, &rest)
		}
	}
}

func declares(r *domain.NodeRegistered, gpu domain.GPUID) bool {
	return slices.ContainsFunc(r.GPUs, func(g domain.GPUDeclared) bool { return g.ID == gpu })
}

// ofAgent reports whether a node's own agent stated something.
func ofAgent(v *Version) bool { return strings.HasPrefix(v.Order.Source, "node-reporter/") }

// keep returns a registration with those GPUs of the one before behind its own that it
// leaves out and that were not replaced.
func (n *nodeTime) keep(before, ev *domain.NodeRegistered, v *Version) *domain.NodeRegistered {
	var kept []domain.GPUDeclared
	for _, g := range before.GPUs {
		if declares(ev, g.ID) {
			continue
		}
		replaced := slices.ContainsFunc(ev.GPUs, func(x domain.GPUDeclared) bool {
			if declares(before, x.ID) {
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

// miss notes that a GPU is missing.
func (n *nodeTime) miss(gpu domain.GPUID, at domain.Instant) {
	if !slices.ContainsFunc(n.missing, func(d down) bool { return d.gpu == gpu && d.To == forever }) {
		n.missing = append(n.missing, down{Interval: domain.Interval{From: at, To: forever}, gpu: gpu, failed: true})
	}
}

// found ends that a GPU is missing.
func (n *nodeTime) found(gpu domain.GPUID, at domain.Instant) {
	for i := range n.missing {
		if d := &n.missing[i]; d.gpu == gpu && d.To == forever {
			d.To = max(at, d.From)
		}
	}
}

// leave ends what is wrong with a GPU that leaves the node.
func (n *nodeTime) leave(gpu domain.GPUID, v *Version, why string) {
	n.found(gpu, v.Order.Effective)
	n.health = append(n.health, Version{Order: v.Order, left: true, Event: &domain.NodeReturned{Node: n.node, GPU: gpu, Faults: true, Reason: why}})
}

// suffer turns faults, cordons, drains and returns into times down. A cordon
// lasts, and a fatal fault disables its device, until a return ends it. A drain
// without a cordon is one for convenience.
func (n *nodeTime) suffer() {
	var open []down
	begin := func(d down) {
		for _, o := range open {
			if o.gpu == d.gpu && o.failed == d.failed && o.begun.Event.Type() == d.begun.Event.Type() && scraped(o.begun.Order.Source) == scraped(d.begun.Order.Source) {
				return
			}
		}
		open = append(open, d)
	}
	for i := range n.health {
		v := &n.health[i]
		since := domain.Interval{From: v.Order.Effective, To: forever}
		switch ev := v.Event.(type) {
		case *domain.GPUFaultObserved:
			if ev.Fatal {
				begin(down{Interval: since, gpu: ev.GPU, failed: true, begun: v})
			}
		case *domain.NodeCordoned:
			begin(down{Interval: since, failed: ev.Repair, begun: v})
		case *domain.NodeDrained:
			if !slices.ContainsFunc(open, func(d down) bool { return d.begun.Event.Type() != domain.TypeGPUFaultObserved }) {
				begin(down{Interval: since, begun: v})
			}
		case *domain.NodeReturned:
			left := open[:0]
			for _, d := range open {
				if !ends(v, d.begun) {
					left = append(left, d)
					continue
				}
				if d.To = since.From; !d.Empty() {
					n.down = append(n.down, d)
				}
			}
			open = left
		}
	}
	n.down = append(n.down, open...)
}

// failed reports whether a GPU had failed at a time, by itself or with its node.
func (n *nodeTime) failed(gpu domain.GPUID, at domain.Instant) bool {
	return slices.ContainsFunc(n.down, func(d down) bool {
		return d.failed && d.From <= at && at < d.To && (d.gpu == gpu || d.gpu == (domain.GPUID{}))
	})
}

// at returns the time in service that holds t, nil when there is none.
func (n *nodeTime) at(t domain.Instant) *service {
	for i := range n.service {
		if s := &n.service[i]; s.From <= t && t < s.To {
			return s
		}
	}
	return nil
}
