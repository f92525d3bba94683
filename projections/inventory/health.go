package inventory

import (
	"cmp"
	"fmt"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Health is the condition of a node at a time.
type Health struct {
	State  string         `json:"state"` // ok, failed, maintenance: see [State]
	Since  domain.Instant `json:"since,omitempty"`
	Reason string         `json:"reason,omitempty"`
	// Cordoned and Drained are since the last return of the node.
	Cordoned    bool     `json:"cordoned"`
	Drained     bool     `json:"drained"`
	Maintenance string   `json:"maintenance,omitempty"` // the current maintenance window
	Outage      string   `json:"outage,omitempty"`      // the current declared outage
	Faults      []string `json:"faults,omitempty"`      // fatal ones without a return
	// Missing are the GPUs that the node's agent no longer reports. Each counts as failed until it
	// is seen again, replaced in its slot, declared by another node, or retired.
	Missing []string `json:"missing,omitempty"`
}

// HealthAt returns the condition of a node at a time.
func (n *NodeTime) HealthAt(at domain.Instant) Health {
	h := Health{State: "ok"}
	var seen []projections.Version // what counts since the node's last return
	for _, v := range n.Health {
		if v.Order.Effective > at {
			break
		}
		switch ev := v.Event.(type) {
		case *domain.GPUFaultObserved:
			if ev.Fatal {
				seen = append(seen, v)
			}
		case *domain.NodeCordoned, *domain.NodeDrained:
			seen = append(seen, v)
		case *domain.NodeReturned:
			left := len(seen)
			seen = slices.DeleteFunc(seen, func(s projections.Version) bool { return projections.Ends(&v, &s) })
			if len(seen) == 0 && (left > 0 || !ev.Faults && !projections.Scraped(v.Order.Source)) {
				h.Since, h.Reason = v.Order.Effective, ev.Reason
			}
		}
	}
	worsen := func(state string, since domain.Instant, reason string) {
		if h.State == "ok" || h.State == Maintenance.String() && state == Failed.String() {
			h.State, h.Since, h.Reason = state, since, reason
		}
	}
	for _, v := range seen {
		t := v.Order.Effective
		switch ev := v.Event.(type) {
		case *domain.GPUFaultObserved:
			fault := fmt.Sprintf("%s %d at %s", ev.Kind, ev.Code, t)
			if ev.GPU != (domain.GPUID{}) {
				fault = ev.GPU.String() + " " + fault
			}
			h.Faults = append(h.Faults, fault)
			worsen(Failed.String(), t, cmp.Or(ev.Detail, fault))
		case *domain.NodeCordoned:
			h.Cordoned = true
			if ev.Repair {
				worsen(Failed.String(), t, ev.Reason)
			} else {
				worsen(Maintenance.String(), t, ev.Reason)
			}
		case *domain.NodeDrained:
			h.Drained = true
			worsen(Maintenance.String(), t, ev.Reason)
		}
	}
	for _, d := range n.missing {
		if d.From <= at && at < d.To {
			h.Missing = append(h.Missing, d.GPU.String())
			worsen(Failed.String(), d.From, d.GPU.String()+" is missing: its node was registered without it")
		}
	}
	for _, o := range n.outages {
		if o.ev.Window.From <= at && at < o.ev.Window.To {
			h.Outage = o.id
			worsen(Failed.String(), o.ev.Window.From, o.ev.Reason)
		}
	}
	for _, w := range n.windows {
		if w.ev.Window.From <= at && at < w.ev.Window.To {
			h.Maintenance = w.id
			worsen(Maintenance.String(), w.ev.Window.From, w.ev.Reason)
		}
	}
	return h
}
