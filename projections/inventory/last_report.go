package inventory

import (
	"fmt"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/projections"
)

// lastSeen is the last report of a node.
type lastSeen struct {
	at domain.Instant
	// agent is the end of the reports of the node's own agent in the hour of the report.
	agent domain.Instant
	mig   map[domain.GPUID][]string
	// gpu is the end of the reports of each GPU in the hour of the report.
	gpu map[domain.GPUID]domain.Instant
	// holders are the workspaces that held a device in the hour of the report.
	holders map[string]bool
	// unmapped are the namespaces of pods that held a device and for which nobody pays.
	unmapped map[string]bool
}

// lastReports returns the last report of each node before a time, with each GPU of a cluster under
// one name. nodes are the declared ones.
func lastReports(view projections.View, nodes map[NodeName]*NodeTime, at domain.Instant) (map[NodeName]*lastSeen, error) {
	out := map[NodeName]*lastSeen{}
	var ranks []*projections.Observer
	query := projections.Query{To: projections.HourOf(at-1) + 1, Last: true}
	err := EachUsage(view, nodes, query, func(k projections.Key, u *projections.UsageHour) error {
		hour := domain.Instant(k.Hour) * domain.Hour
		name := NodeName{k.Scope, k.ID}
		s := out[name]
		if s == nil {
			s = &lastSeen{
				mig: map[domain.GPUID][]string{}, gpu: map[domain.GPUID]domain.Instant{}, holders: map[string]bool{},
				unmapped: map[string]bool{},
			}
			out[name] = s
		}
		clear(s.mig)
		clear(s.gpu)
		clear(s.holders)
		clear(s.unmapped)
		ranks = projections.Ranked(ranks, u)
		for _, o := range ranks {
			for i := range o.Devices {
				segments, id := o.Devices[i].Segments, o.Physical(&o.Devices[i])
				s.gpu[id] = max(s.gpu[id], 0)
				if n := len(segments); n > 0 {
					end := min(at, hour+domain.Instant(segments[n-1].To)*projections.NsPerMs)
					s.gpu[id] = max(s.gpu[id], end)
					if s.at = max(s.at, end); projections.ObserverRank(o) == 0 {
						s.agent = max(s.agent, end)
					}
				}
				for _, x := range segments {
					if x.Holder > 0 && hour+domain.Instant(x.From)*projections.NsPerMs < at {
						h := &u.Holders[x.Holder-1]
						s.holders[h.Workspace] = true
						if h.Workspace == Unmapped {
							s.unmapped[strings.Clone(namespaceOf(h.Unit))] = true
						}
					}
				}
			}
		}
		if !slices.ContainsFunc(ranks, func(o *projections.Observer) bool { return len(o.Cuts) > 0 }) {
			return nil
		}
		// The partitioning of a GPU is what its most trusted observer saw last: the entries of the
		// hour that reach the end of its observations.
		decided := map[domain.GPUID]bool{}
		for _, o := range ranks {
			ends := map[domain.GPUID]uint32{}
			for i := range o.Devices {
				d := &o.Devices[i]
				if n := len(d.Segments); n > 0 {
					ends[o.Physical(d)] = max(ends[o.Physical(d)], d.Segments[n-1].To)
				}
			}
			for i := range o.Devices {
				d := &o.Devices[i]
				id := o.Physical(d)
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

// lastReport returns the end of the last report of a node's GPU before a time, under any of the
// node's names, 0 for never.
func (a *Aliases) lastReport(
	view projections.View, name NodeName, gpu domain.GPUID, at domain.Instant,
) (last domain.Instant, err error) {
	names := []NodeName{name}
	if n := a.index[name]; n != nil {
		for _, o := range n.gpus[gpu] {
			if o != n {
				names = append(names, o.NodeName)
			}
		}
	}
	end := projections.HourOf(at-1) + 1
	for _, name := range names {
		from, to := int64(0), int64(0)
		query := projections.Query{Table: projections.TableNodeGPUs, Scope: name.Cluster, ID: name.Node, To: end}
		err := view.Scan(query, func(_ projections.Key, row projections.Row) error {
			r := row.(*projections.NodeGPUs)
			if i, known := r.Find(gpu); known && r.GPUs[i].First < end {
				from, to = r.GPUs[i].Last, r.GPUs[i].Last+1
				if to > end { // it was also reported later in that month
					from, to = r.GPUs[i].First, end
				}
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", projections.TableNodeGPUs, err)
		}
		if to == 0 {
			continue
		}
		query = projections.Query{Table: projections.TableUsage, Scope: name.Cluster, ID: name.Node, From: from, To: to}
		err = view.Scan(query, func(k projections.Key, row projections.Row) error {
			u := row.(*projections.UsageHour)
			for i := range u.Observers {
				o := &u.Observers[i]
				for j := range o.Devices {
					if n := len(o.Devices[j].Segments); n > 0 && o.Physical(&o.Devices[j]) == gpu {
						to := domain.Instant(o.Devices[j].Segments[n-1].To)
						until := domain.Instant(k.Hour)*domain.Hour + to*projections.NsPerMs
						last = max(last, min(at, until))
					}
				}
			}
			return nil
		})
		if err != nil {
			return 0, fmt.Errorf("read usage: %w", err)
		}
	}
	return last, nil
}
