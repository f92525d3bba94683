package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Downtime is a time in which a node, or one of its GPUs, could not be used.
type Downtime struct {
	From domain.Instant `json:"from"`
	To   domain.Instant `json:"to"`
	// Open: it had not ended at To.
	Open  bool   `json:"open,omitempty"`
	GPU   string `json:"gpu,omitempty"` // empty: the whole node
	State string `json:"state"`         // failed, maintenance: see [State]
	// Cause says what began it, for example "xid 79", "cordoned", "outage line-cut", and Reason is what was stated.
	Cause  string `json:"cause"`
	Reason string `json:"reason,omitempty"`
	// Event is the source and the sequence of what began it; empty for declared windows and outages, and for a GPU
	// that a registration omits.
	Event string `json:"event,omitempty"`
}

// Fault is a fault as it was reported.
type Fault struct {
	At     domain.Instant   `json:"at"`
	Last   domain.Instant   `json:"last,omitempty"` // of several
	Events uint64           `json:"events"`
	GPU    string           `json:"gpu,omitempty"` // empty: the node
	Kind   domain.FaultKind `json:"kind"`
	Code   uint32           `json:"code"` // of xid: the XID number
	Class  string           `json:"class,omitempty"`
	Action string           `json:"action,omitempty"`
	Fatal  bool             `json:"fatal"`
	Detail string           `json:"detail,omitempty"`
	Event  string           `json:"event"` // source and sequence
}

func eventName(v *projections.Version) string {
	return fmt.Sprintf("%s#%d/%d", v.Order.Source, v.Order.Incarnation, v.Order.Sequence)
}

func gpuName(gpu domain.GPUID) string {
	if gpu == (domain.GPUID{}) {
		return ""
	}
	return gpu.String()
}

// Downtimes returns the times within a span in which a node in service, or one of its GPUs, was down, by start. They
// may overlap: a GPU may fail in a maintenance window.
func (n *NodeTime) Downtimes(span domain.Interval) []Downtime {
	var out []Downtime
	add := func(down domain.Interval, gpu domain.GPUID, state State, cause, reason, event string) {
		for i := range n.Service {
			within := n.Service[i].Intersect(span).Intersect(down)
			if within.Empty() {
				continue
			}
			out = append(out, Downtime{
				From: within.From, To: within.To, Open: down.To == Forever && within.To == span.To, GPU: gpuName(gpu), State: state.String(),
				Cause: cause, Reason: reason, Event: event,
			})
		}
	}
	stateOf := func(failed bool) State {
		if failed {
			return Failed
		}
		return Maintenance
	}
	for _, d := range n.Down {
		if d.begun == nil {
			continue // see below
		}
		cause, reason := "", ""
		switch ev := d.begun.Event.(type) {
		case *domain.GPUFaultObserved:
			cause, reason = fmt.Sprintf("%s %d", ev.Kind, ev.Code), ev.Detail
		case *domain.NodeCordoned:
			cause, reason = "cordoned", ev.Reason
		case *domain.NodeDrained:
			cause, reason = "drained", ev.Reason
		}
		add(d.Interval, d.GPU, stateOf(d.Failed), cause, reason, eventName(d.begun))
	}
	for _, d := range n.missing {
		add(d.Interval, d.GPU, stateOf(d.Failed), "missing", "the node was registered without it", "")
	}
	for _, w := range n.windows {
		add(w.ev.Window, domain.GPUID{}, Maintenance, "maintenance "+w.id, w.ev.Reason, "")
	}
	for _, o := range n.outages {
		add(o.ev.Window, domain.GPUID{}, Failed, "outage "+o.id, o.ev.Reason, "")
	}
	slices.SortStableFunc(out, func(a, b Downtime) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To), strings.Compare(a.GPU, b.GPU), strings.Compare(a.Cause, b.Cause),
			strings.Compare(a.Event, b.Event))
	})
	return out
}

// Faults returns what was reported of a node within a span: fatal faults, and every XID.
func (n *NodeTime) Faults(span domain.Interval) []Fault {
	var out []Fault
	for i := range n.Health {
		v := &n.Health[i]
		ev, ok := v.Event.(*domain.GPUFaultObserved)
		if !ok || !ev.Fatal && ev.Kind != domain.FaultXID || v.LastAt() < span.From || v.Order.Effective >= span.To {
			continue
		}
		out = append(out, Fault{
			At: v.Order.Effective, Last: v.Last, Events: v.Events(), GPU: gpuName(ev.GPU), Kind: ev.Kind, Code: ev.Code, Class: ev.Class,
			Action: ev.Action, Fatal: ev.Fatal, Detail: ev.Detail, Event: eventName(v),
		})
	}
	return out
}
