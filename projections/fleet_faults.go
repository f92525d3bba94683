package projections

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
)

// gpuIn is a GPU of a cluster. Within a cluster it is one device, whatever the node is
// called that tells of it.
type gpuIn struct {
	cluster string
	gpu     domain.GPUID
}

// home is a time at which a node has a GPU, see [fleet.settle].
type home struct {
	domain.Interval
	node *nodeTime
}

// tell gives what was told of GPUs to the nodes that have them, counts what several told
// once, and puts it in order. It comes after settle.
func (f *fleet) tell(view View) error {
	for _, n := range f.index {
		n.health = slices.DeleteFunc(n.health, func(v Version) bool {
			fault, ok := v.Event.(*domain.GPUFaultObserved)
			return ok && slices.ContainsFunc(n.retired, func(d down) bool {
				return d.gpu == fault.GPU && d.From <= v.Order.Effective && v.Order.Effective < d.To
			})
		})
	}
	f.follow()
	for _, n := range f.index {
		n.sort()
		if err := n.agree(view); err != nil {
			return err
		}
		n.health = resume(n.health)
	}
	return nil
}

func (n *nodeTime) sort() {
	slices.SortFunc(n.health, func(a, b Version) int {
		switch {
		case a.Order.After(b.Order):
			return 1
		case b.Order.After(a.Order):
			return -1
		}
		return 0 // of two that a move made
	})
}

// gpuOf returns the GPU that a fault or a return is about.
func gpuOf(v *Version) (gpu domain.GPUID, ok bool) {
	switch ev := v.Event.(type) {
	case *domain.GPUFaultObserved:
		gpu = ev.GPU
	case *domain.NodeReturned:
		if ev.Faults && !v.left {
			gpu = ev.GPU
		}
	}
	return gpu, gpu != domain.GPUID{}
}

// follow gives each fault and each return of a GPU to the node that has the GPU at its
// time. One that nobody has then stays under the name by which it was told. A fatal fault
// goes with its GPU to the node that has it next, but for one that says that the GPU is
// not there.
func (f *fleet) follow() {
	homes := map[gpuIn][]home{}
	for _, n := range f.index {
		for i := range n.health {
			if gpu, ok := gpuOf(&n.health[i]); ok {
				homes[gpuIn{n.cluster, gpu}] = nil
			}
		}
	}
	if len(homes) == 0 {
		return
	}
	for _, n := range f.index {
		for i := range n.service {
			s := &n.service[i]
			for j := range s.gpus {
				k := gpuIn{n.cluster, s.gpus[j].id}
				if had, named := homes[k]; named {
					for _, t := range s.gpus[j].within(nil, s.Interval) {
						had = append(had, home{t, n})
					}
					homes[k] = had
				}
			}
		}
	}
	for _, h := range homes {
		slices.SortFunc(h, func(a, b home) int { return cmp.Compare(a.From, b.From) })
	}
	told := map[*nodeTime][]Version{} // under another name
	for _, n := range f.index {
		n.health = slices.DeleteFunc(n.health, func(v Version) bool {
			gpu, ok := gpuOf(&v)
			if !ok {
				return false
			}
			at := v.Order.Effective
			for _, h := range homes[gpuIn{n.cluster, gpu}] {
				if h.From <= at && at < h.To && h.node != n {
					told[h.node] = append(told[h.node], v)
					return true
				}
			}
			return false
		})
	}
	for n, versions := range told {
		n.health = append(n.health, versions...)
	}
	ill := map[gpuIn][]*nodeTime{} // the nodes with faults of a GPU
	for _, n := range f.index {
		for i := range n.health {
			fault, ok := n.health[i].Event.(*domain.GPUFaultObserved)
			if !ok || !fault.Fatal {
				continue
			}
			if k := (gpuIn{n.cluster, fault.GPU}); len(homes[k]) > 0 && !slices.Contains(ill[k], n) {
				ill[k] = append(ill[k], n)
			}
		}
	}
	for k, nodes := range ill {
		for _, h := range homes[k] {
			for _, n := range nodes {
				if n != h.node {
					n.hand(k.gpu, h)
				}
			}
			if !slices.Contains(nodes, h.node) {
				nodes = append(nodes, h.node)
			}
		}
	}
}

// hand ends the faults of a GPU that another node has from now on, and enters there those
// that go with it.
func (n *nodeTime) hand(gpu domain.GPUID, to home) {
	n.sort()
	var open []Version
	for i := range n.health {
		v := &n.health[i]
		if v.Order.Effective >= to.From {
			break
		}
		switch ev := v.Event.(type) {
		case *domain.GPUFaultObserved:
			// Of repeats that are spread over time, each is the same event.
			if ev.Fatal && ev.GPU == gpu && !slices.ContainsFunc(open, func(o Version) bool { return o.Event == v.Event }) {
				open = append(open, *v)
			}
		case *domain.NodeReturned:
			open = slices.DeleteFunc(open, func(o Version) bool {
				return (v.left || o.Last <= v.Order.Effective) && ends(v, &o)
			})
		}
	}
	if len(open) == 0 {
		return
	}
	n.health = append(n.health, Version{
		Order: domain.Order{Effective: to.From}, left: true, moved: true,
		Event: &domain.NodeReturned{Node: n.node, GPU: gpu, Faults: true, Reason: "the GPU is in node " + to.node.node + " now"},
	})
	for _, o := range open {
		if o.Event.(*domain.GPUFaultObserved).Kind == domain.FaultOffBus {
			continue
		}
		o.Order.Effective, o.moved = to.From, true
		to.node.health = append(to.node.health, o)
	}
}

// agree sets aside a fault that a monitoring system told where the node's own agent told
// of the same GPU, kind and code within sightingGap of it: a scrape is later than what it
// shows. After a return it is one of its own unless the agent reported the node at that
// time, because then the agent would have told of it.
func (n *nodeTime) agree(view View) error {
	type fault struct {
		gpu  domain.GPUID
		kind domain.FaultKind
		code uint32
	}
	of := func(v *Version) (fault, bool) {
		f, ok := v.Event.(*domain.GPUFaultObserved)
		if !ok || v.Rest {
			return fault{}, false
		}
		return fault{f.GPU, f.Kind, f.Code}, true
	}
	by := map[fault][]*Version{} // the agent's, ascending
	var returns []*Version
	some := false
	for i := range n.health {
		v := &n.health[i]
		if k, ok := of(v); ok && ofAgent(v) {
			by[k] = append(by[k], v)
		} else if ok && scraped(v.Order.Source) {
			some = true
		} else if v.Event.Type() == domain.TypeNodeReturned {
			returns = append(returns, v)
		}
	}
	if len(by) == 0 || !some {
		return nil
	}
	told := func(k fault, at domain.Instant) (bool, error) {
		for i := len(by[k]) - 1; i >= 0; i-- {
			a := by[k][i]
			if a.Order.Effective < at-sightingGap-domain.Day {
				break // a version has repeats of one day
			}
			if at-a.last() > sightingGap || a.Order.Effective-at > sightingGap {
				continue
			}
			if !slices.ContainsFunc(returns, func(r *Version) bool {
				return a.last() <= r.Order.Effective && r.Order.Effective <= at && ends(r, a)
			}) {
				return true, nil
			}
			if saw, err := n.reported(view, a, at); saw || err != nil {
				return saw, err
			}
		}
		return false, nil
	}
	left := make([]Version, 0, len(n.health))
	for i := range n.health {
		v := n.health[i]
		if k, ok := of(&v); ok && scraped(v.Order.Source) {
			first, err := told(k, v.Order.Effective)
			if err != nil {
				return err
			}
			if first {
				last, err := told(k, v.last())
				if err != nil {
					return err
				}
				if last {
					continue
				}
				v.Order.Effective, v.Count, v.Last = v.Last, 0, 0
			}
		}
		left = append(left, v)
	}
	n.health = left
	n.sort()
	return nil
}

// agentLag is how far from a moment an agent's report may be to be one of that moment.
const agentLag = 60 * domain.Second

// reported reports whether the agent that told a fault reported GPUs of its node at a time.
func (n *nodeTime) reported(view View, told *Version, at domain.Instant) (bool, error) {
	span := domain.Interval{From: at - agentLag, To: at + agentLag}
	for hour := hourOf(span.From); hour <= hourOf(span.To); hour++ {
		row, err := view.Get(Key{TableUsage, n.cluster, told.Event.(*domain.GPUFaultObserved).Node, hour})
		if err != nil {
			return false, fmt.Errorf("read usage: %w", err)
		}
		u, ok := row.(*UsageHour)
		if !ok {
			continue
		}
		start := domain.Instant(hour) * domain.Hour
		for i := range u.Observers {
			o := &u.Observers[i]
			if o.Source == told.Order.Source && slices.ContainsFunc(o.Devices, func(d Device) bool {
				return slices.ContainsFunc(d.Segments, func(s Segment) bool {
					return start+domain.Instant(s.From)*nsPerMs < span.To && span.From < start+domain.Instant(s.To)*nsPerMs
				})
			}) {
				return true, nil
			}
		}
	}
	return false, nil
}
