package inventory

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// gpuIn is a GPU of a cluster. Within a cluster it is one device, whatever the reporting node is
// called.
type gpuIn struct {
	cluster string
	gpu     domain.GPUID
}

// home is a time at which a node has a GPU, see [Fleet.Settle].
type home struct {
	domain.Interval
	node *NodeTime
}

// Tell assigns faults and returns of GPUs to the nodes that have them, merges reports of one fault
// by several sources, and sorts them. It MUST run after Settle.
func (f *Fleet) Tell(view projections.View) error {
	for _, n := range f.Index {
		n.Health = slices.DeleteFunc(n.Health, func(v projections.Version) bool {
			fault, ok := v.Event.(*domain.GPUFaultObserved)
			return ok && slices.ContainsFunc(n.retired, func(d down) bool {
				return d.GPU == fault.GPU && d.From <= v.Order.Effective && v.Order.Effective < d.To
			})
		})
	}
	f.follow()
	for _, n := range f.Index {
		n.sort()
		if err := n.agree(view); err != nil {
			return err
		}
		n.Health = projections.Resume(n.Health)
	}
	return nil
}

func (n *NodeTime) sort() {
	slices.SortFunc(n.Health, func(a, b projections.Version) int {
		switch {
		case a.Order.After(b.Order):
			return 1
		case b.Order.After(a.Order):
			return -1
		}
		return 0 // equal: two that a move created
	})
}

// gpuOf returns the GPU of a fault or a return.
func gpuOf(v *projections.Version) (gpu domain.GPUID, ok bool) {
	switch ev := v.Event.(type) {
	case *domain.GPUFaultObserved:
		gpu = ev.GPU
	case *domain.NodeReturned:
		if ev.Faults && !v.Left {
			gpu = ev.GPU
		}
	}
	return gpu, gpu != domain.GPUID{}
}

// follow assigns each fault and each return of a GPU to the node that has the GPU at that time. If
// no node has it, the event stays with the node that reported it. A fatal fault follows its GPU to
// the next node that has it, except for one that says that the GPU is absent.
func (f *Fleet) follow() {
	homes := map[gpuIn][]home{}
	for _, n := range f.Index {
		for i := range n.Health {
			if gpu, ok := gpuOf(&n.Health[i]); ok {
				homes[gpuIn{n.Cluster, gpu}] = nil
			}
		}
	}
	if len(homes) == 0 {
		return
	}
	for _, n := range f.Index {
		for i := range n.Service {
			s := &n.Service[i]
			for j := range s.GPUs {
				k := gpuIn{n.Cluster, s.GPUs[j].ID}
				if had, named := homes[k]; named {
					for _, t := range s.GPUs[j].Within(nil, s.Interval) {
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
	told := map[*NodeTime][]projections.Version{} // reported under another name
	for _, n := range f.Index {
		n.Health = slices.DeleteFunc(n.Health, func(v projections.Version) bool {
			gpu, ok := gpuOf(&v)
			if !ok {
				return false
			}
			at := v.Order.Effective
			for _, h := range homes[gpuIn{n.Cluster, gpu}] {
				if h.From <= at && at < h.To && h.node != n {
					told[h.node] = append(told[h.node], v)
					return true
				}
			}
			return false
		})
	}
	for n, versions := range told {
		n.Health = append(n.Health, versions...)
	}
	ill := map[gpuIn][]*NodeTime{} // the nodes with faults of a GPU
	for _, n := range f.Index {
		for i := range n.Health {
			fault, ok := n.Health[i].Event.(*domain.GPUFaultObserved)
			if !ok || !fault.Fatal {
				continue
			}
			if k := (gpuIn{n.Cluster, fault.GPU}); len(homes[k]) > 0 && !slices.Contains(ill[k], n) {
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

// hand ends the faults of a GPU that another node has from now on, and adds to that node the faults
// that follow the GPU.
func (n *NodeTime) hand(gpu domain.GPUID, to home) {
	n.sort()
	var open []projections.Version
	for i := range n.Health {
		v := &n.Health[i]
		if v.Order.Effective >= to.From {
			break
		}
		switch ev := v.Event.(type) {
		case *domain.GPUFaultObserved:
			// Spread repeats are all the same event.
			same := func(o projections.Version) bool { return o.Event == v.Event }
			if ev.Fatal && ev.GPU == gpu && !slices.ContainsFunc(open, same) {
				open = append(open, *v)
			}
		case *domain.NodeReturned:
			open = slices.DeleteFunc(open, func(o projections.Version) bool {
				return (v.Left || o.Last <= v.Order.Effective) && projections.Ends(v, &o)
			})
		}
	}
	if len(open) == 0 {
		return
	}
	n.Health = append(n.Health, projections.Version{
		Order: domain.Precedence{Effective: to.From}, Left: true, Moved: true,
		Event: &domain.NodeReturned{Node: n.Node, GPU: gpu, Faults: true, Reason: "the GPU is in node " + to.node.Node + " now"},
	})
	for _, o := range open {
		if o.Event.(*domain.GPUFaultObserved).Kind == domain.FaultOffBus {
			continue
		}
		o.Order.Effective, o.Moved = to.From, true
		to.node.Health = append(to.node.Health, o)
	}
}

// agree removes a fault reported by a monitoring system if the node's own agent reported one of the
// same GPU, kind and code within SightingGap of it, because a scrape is later than what it shows.
// After a return it is a separate fault, unless the agent was reporting the node at that time,
// because then the agent would have reported the fault.
func (n *NodeTime) agree(view projections.View) error {
	type fault struct {
		gpu  domain.GPUID
		kind domain.FaultKind
		code uint32
	}
	of := func(v *projections.Version) (fault, bool) {
		f, ok := v.Event.(*domain.GPUFaultObserved)
		if !ok || v.Rest {
			return fault{}, false
		}
		return fault{f.GPU, f.Kind, f.Code}, true
	}
	by := map[fault][]*projections.Version{} // of the agent, ascending
	var returns []*projections.Version
	some := false
	for i := range n.Health {
		v := &n.Health[i]
		if k, ok := of(v); ok && ofAgent(v) {
			by[k] = append(by[k], v)
		} else if ok && projections.Scraped(v.Order.Source) {
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
			if a.Order.Effective < at-projections.SightingGap-domain.Day {
				break // repeats of a version lie within one day
			}
			if at-a.LastAt() > projections.SightingGap || a.Order.Effective-at > projections.SightingGap {
				continue
			}
			if !slices.ContainsFunc(returns, func(r *projections.Version) bool {
				return a.LastAt() <= r.Order.Effective && r.Order.Effective <= at && projections.Ends(r, a)
			}) {
				return true, nil
			}
			if saw, err := n.reported(view, a, at); saw || err != nil {
				return saw, err
			}
		}
		return false, nil
	}
	left := make([]projections.Version, 0, len(n.Health))
	for i := range n.Health {
		v := n.Health[i]
		if k, ok := of(&v); ok && projections.Scraped(v.Order.Source) {
			first, err := told(k, v.Order.Effective)
			if err != nil {
				return err
			}
			if first {
				last, err := told(k, v.LastAt())
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
	n.Health = left
	n.sort()
	return nil
}

// agentLag is the maximum distance of an agent's report from a moment to count as a report of that
// moment.
const agentLag = 60 * domain.Second

// reported reports whether the agent that reported a fault reported GPUs of its node at a time.
func (n *NodeTime) reported(view projections.View, told *projections.Version, at domain.Instant) (bool, error) {
	span := domain.Interval{From: at - agentLag, To: at + agentLag}
	for hour := projections.HourOf(span.From); hour <= projections.HourOf(span.To); hour++ {
		node := told.Event.(*domain.GPUFaultObserved).Node
		row, err := view.Get(projections.Key{Table: projections.TableUsage, Scope: n.Cluster, ID: node, Hour: hour})
		if err != nil {
			return false, fmt.Errorf("read usage: %w", err)
		}
		u, ok := row.(*projections.UsageHour)
		if !ok {
			continue
		}
		start := domain.Instant(hour) * domain.Hour
		for i := range u.Observers {
			o := &u.Observers[i]
			if o.Source == told.Order.Source && slices.ContainsFunc(o.Devices, func(d projections.Device) bool {
				return slices.ContainsFunc(d.Segments, func(s projections.Segment) bool {
					return start+domain.Instant(s.From)*projections.NsPerMs < span.To &&
						span.From < start+domain.Instant(s.To)*projections.NsPerMs
				})
			}) {
				return true, nil
			}
		}
	}
	return false, nil
}
