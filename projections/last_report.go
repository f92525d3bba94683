package projections

import (
	"fmt"
	"slices"

	"quartermaster/domain"
)

// lastSeen is the last report of a node.
type lastSeen struct {
	at domain.Instant
	// agent is until when the node's own agent reported in the hour of the report.
	agent domain.Instant
	mig   map[domain.GPUID][]string
	gpu   map[domain.GPUID]bool
	// holders are the workspaces that held a device in the hour of the report.
	holders map[string]bool
}

// lastReports returns the last report of each node before a time, each GPU of a
// cluster under one name. nodes are those declared.
func lastReports(view View, nodes map[nodeName]*nodeTime, at domain.Instant) (map[nodeName]*lastSeen, error) {
	out := map[nodeName]*lastSeen{}
	var ranks []*Observer
	err := eachUsage(view, nodes, Query{To: hourOf(at-1) + 1, Last: true}, func(k Key, u *UsageHour) error {
		hour := domain.Instant(k.Hour) * domain.Hour
		name := nodeName{k.Scope, k.ID}
		s := out[name]
		if s == nil {
			s = &lastSeen{mig: map[domain.GPUID][]string{}, gpu: map[domain.GPUID]bool{}, holders: map[string]bool{}}
			out[name] = s
		}
		clear(s.mig)
		clear(s.gpu)
		clear(s.holders)
		ranks = ranked(ranks, u)
		for _, o := range ranks {
			for i := range o.Devices {
				segments := o.Devices[i].Segments
				if n := len(segments); n > 0 {
					end := min(at, hour+domain.Instant(segments[n-1].To)*nsPerMs)
					if s.at = max(s.at, end); observerRank(o) == 0 {
						s.agent = max(s.agent, end)
					}
				}
				for _, x := range segments {
					if x.Holder > 0 && hour+domain.Instant(x.From)*nsPerMs < at {
						s.holders[u.Holders[x.Holder-1].Workspace] = true
					}
				}
				s.gpu[o.physical(&o.Devices[i])] = true
			}
		}
		if !slices.ContainsFunc(ranks, func(o *Observer) bool { return len(o.Cuts) > 0 }) {
			return nil
		}
		// How a GPU is cut is what its most believed observer saw last: what of
		// the hour reaches to the end of what it saw.
		decided := map[domain.GPUID]bool{}
		for _, o := range ranks {
			ends := map[domain.GPUID]uint32{}
			for i := range o.Devices {
				d := &o.Devices[i]
				if n := len(d.Segments); n > 0 {
					ends[o.physical(d)] = max(ends[o.physical(d)], d.Segments[n-1].To)
				}
			}
			for i := range o.Devices {
				d := &o.Devices[i]
				id := o.physical(d)
				if n := len(d.Segments); d.Cut > 0 && d.Replica <= 1 && n > 0 && !decided[id] && d.Segments[n-1].To == ends[id] {
					s.mig[id] = append(s.mig[id], o.Cuts[d.Cut-1].Profile)
				}
			}
			for id := range ends {
				slices.Sort(s.mig[id])
				if len(s.mig[id]) == 0 {
					delete(s.mig, id)
				}
				decided[id] = true
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return out, nil
}
