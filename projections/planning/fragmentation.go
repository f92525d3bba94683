package planning

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/packing"
	"quartermaster/domain/packing/online"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/usage"
)

// Placements is the placement of replicas on the machines of a region, as last seen, and the
// holdings of deployments.
type Placements struct {
	// Nodes are the healthy machines that reported, by id. GPUs of holders that cannot be moved or
	// identified are held.
	Nodes []packing.Node
	// Unseen counts the healthy machines that did not report, and their GPUs: nothing is known of
	// those.
	Unseen, UnseenGPUs int
	// Assignments are the replicas of declared deployments, by id, which is "cluster/node/unit".
	Assignments []online.Assignment
	// Fixed counts the GPUs that are held, at least in part, by something outside Assignments:
	// undeclared, without a unit name, sliced, violating its own declaration, or busy without a
	// known holder.
	Fixed int
	// Declared are the deployments declared for the region, or for any if region is "".
	Declared []packing.Workload
	Held     []online.Holding // by cluster, workspace, deployment and model
}

// PlacementsAt returns the placements in a region ("" for all) at a time, as last seen in [from,
// at).
//
// A replica is what one unit (pod or job) of a declared deployment held as whole GPUs on a machine
// in the last observed moment. CPU and memory are the declared values. Memory in use comes from
// readings of hours in which a single deployment held a whole GPU.
func PlacementsAt(view projections.View, a *registry.Authority, from, at domain.Instant, region string) (*Placements, error) {
	all, err := PackingNodes(view, a, at, NodeFilter{Region: region})
	if err != nil {
		return nil, err
	}
	declared, _, err := Workloads(view, a, at, WorkloadFilter{})
	if err != nil {
		return nil, err
	}
	s := &Placements{}
	if region != "" {
		if s.Declared, _, err = Workloads(view, a, at, WorkloadFilter{Region: region}); err != nil {
			return nil, err
		}
	}
	if len(s.Declared) == 0 {
		s.Declared = declared
	}
	w := &seatWalk{last: map[string]*seatNode{}, held: map[heldKey]*online.Holding{}}
	err = usage.EachDeviceHour(view, from, at, func(d *usage.DeviceHour) error {
		if region == "" || d.Region == region {
			w.see(d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := w.memory(view, from, at); err != nil {
		return nil, err
	}
	for _, n := range all {
		seen := w.last[n.ID]
		if seen == nil || !seen.observed {
			s.Unseen++
			s.UnseenGPUs += n.GPUs
			continue
		}
		s.Nodes = append(s.Nodes, n)
		s.seat(&s.Nodes[len(s.Nodes)-1], seen, declared)
	}
	if err := s.settle(); err != nil {
		return nil, err
	}
	for _, k := range slices.SortedFunc(maps.Keys(w.held), heldKey.compare) {
		s.Held = append(s.Held, *w.held[k])
	}
	return s, nil
}

type heldKey struct{ cluster, workspace, deployment, model string }

func (k heldKey) compare(l heldKey) int {
	return cmp.Or(
		cmp.Compare(k.cluster, l.cluster), cmp.Compare(k.workspace, l.workspace),
		cmp.Compare(k.deployment, l.deployment), cmp.Compare(k.model, l.model),
	)
}

// seatWalk collects data from device hours.
type seatWalk struct {
	last map[string]*seatNode // by "cluster/node"
	held map[heldKey]*online.Holding
	// The number of GPUs by holder on the node of the current hour.
	together map[projections.Holder]int
	node     string
	hour     domain.Instant
	models   map[inventory.NodeName]string
}

// seatNode is the last observed hour of a machine.
type seatNode struct {
	observed bool
	gpus     []seatGPU // declared GPUs of every model, in order
	// The current hour of the walk.
	hour domain.Instant
	next []seatGPU
	seen bool
}

type seatGPU struct {
	id       domain.GPUID
	model    string
	observed bool
	at       []usage.DeviceSegment // the holders or the work in its last observed moment
}

func (w *seatWalk) see(d *usage.DeviceHour) {
	id := d.Cluster + "/" + d.Node
	if id != w.node || d.Hour != w.hour {
		w.node, w.hour, w.together = id, d.Hour, map[projections.Holder]int{}
	}
	if w.models == nil {
		w.models = map[inventory.NodeName]string{}
	}
	w.models[inventory.NodeName{Cluster: d.Cluster, Node: d.Node}] = d.Model
	units := map[projections.Holder]bool{}
	for i := range d.Segments {
		s := &d.Segments[i]
		if s.State != inventory.Allocated || s.Holder == nil {
			continue
		}
		k := heldKey{d.Cluster, s.Holder.Workspace, s.Holder.Deployment, d.Model}
		h := w.held[k]
		if h == nil {
			h = &online.Holding{
				Cluster: k.cluster, Workspace: k.workspace, Deployment: k.deployment, Model: k.model, MostTogether: 1,
			}
			w.held[k] = h
		}
		h.GPUMs += s.GPUMs
		h.KnownMs += s.Known
		h.ActiveMs += s.Active
		// Without a unit name, the number of GPUs held together is unknown.
		if s.Holder.Unit != "" && !units[*s.Holder] {
			units[*s.Holder] = true
			w.together[*s.Holder]++
			h.MostTogether = max(h.MostTogether, w.together[*s.Holder])
		}
	}
	if !d.Declared || len(d.Segments) == 0 {
		return
	}
	n := w.last[id]
	if n == nil {
		n = &seatNode{}
		w.last[id] = n
	}
	// In an hour with a new description of the machine its GPUs are listed again.
	if n.hour != d.Hour || slices.ContainsFunc(n.next, func(g seatGPU) bool { return g.id == d.GPU }) {
		n.hour, n.next, n.seen = d.Hour, nil, false
	}
	g := seatGPU{id: d.GPU, model: d.Model}
	end := uint32(0)
	for i := range d.Segments {
		switch d.Segments[i].State {
		case inventory.Allocated, inventory.BusyUnattributed, inventory.Idle, inventory.Unprovisioned:
			end, g.observed = max(end, d.Segments[i].To), true
		}
	}
	for _, s := range d.Segments {
		if g.observed && s.To == end && (s.State == inventory.Allocated || s.State == inventory.BusyUnattributed) {
			g.at = append(g.at, s)
		}
	}
	n.next, n.seen = append(n.next, g), n.seen || g.observed
	if n.seen {
		n.gpus, n.observed = n.next, true
	}
}

// memory adds the observed memory in use.
func (w *seatWalk) memory(view projections.View, from, at domain.Instant) error {
	f, err := inventory.ReadFleet(view)
	if err != nil {
		return err
	}
	query := projections.Query{From: projections.HourOf(from), To: projections.HourOf(at-1) + 1}
	err = inventory.EachUsage(view, f.Index, query, func(k projections.Key, u *projections.UsageHour) error {
		model, ok := w.models[inventory.NodeName{Cluster: k.Scope, Node: k.ID}]
		if !ok {
			return nil
		}
		for i := range u.Observers {
			o := &u.Observers[i]
			for j := range o.Devices {
				d := &o.Devices[j]
				if d.Memory.Known == 0 || d.Cut != 0 || d.Replica != 0 {
					continue
				}
				who := uint32(0)
				alone := true
				for _, s := range d.Segments {
					if s.Holder == 0 || s.Holder == who {
						continue
					}
					alone = alone && (who == 0 ||
						u.Holders[s.Holder-1].Deployment == u.Holders[who-1].Deployment &&
							u.Holders[s.Holder-1].Workspace == u.Holders[who-1].Workspace)
					who = s.Holder
				}
				if who == 0 || !alone {
					continue
				}
				by := u.Holders[who-1]
				if h := w.held[heldKey{k.Scope, by.Workspace, by.Deployment, model}]; h != nil {
					h.PeakMiB = max(h.PeakMiB, d.Memory.Max)
					h.PeakKnownMs += int64(d.Memory.Known)
				}
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read memory in use: %w", err)
	}
	return nil
}

// seat turns the last observation of a machine into replicas and held GPUs.
func (s *Placements) seat(n *packing.Node, seen *seatNode, declared []packing.Workload) {
	n.Held.GPUMilli = make([]int64, n.GPUs)
	units := map[projections.Holder][]int{}
	g := 0
	for i := range seen.gpus {
		if seen.gpus[i].model != n.Model || g == n.GPUs {
			continue
		}
		at := seen.gpus[i].at
		switch whole := len(at) == 1 && at[0].Device != (domain.GPUID{}) && at[0].Profile == "" && at[0].Replica == 0; {
		case len(at) == 0 && seen.gpus[i].observed:
		case whole && at[0].Holder != nil && at[0].Holder.Unit != "":
			units[*at[0].Holder] = append(units[*at[0].Holder], g)
		default:
			n.Held.GPUMilli[g] = 1000
			s.Fixed++
		}
		g++
	}
	for _, by := range slices.SortedFunc(maps.Keys(units), func(a, b projections.Holder) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Unit, b.Unit))
	}) {
		gpus := units[by]
		byID := func(w packing.Workload, id string) int { return cmp.Compare(w.ID, id) }
		i, ok := slices.BinarySearchFunc(declared, n.Cluster+"/"+by.Deployment, byID)
		if !ok || declared[i].GPUMilli != int64(len(gpus))*1000 {
			for _, g := range gpus {
				n.Held.GPUMilli[g] = 1000
			}
			s.Fixed += len(gpus)
			continue
		}
		s.Assignments = append(s.Assignments, online.Assignment{
			ID: n.ID + "/" + by.Unit, Load: declared[i], At: online.Placement{Node: n.ID, GPUs: gpus},
		})
	}
}

// settle turns replicas whose own declaration, or that of another workload, does not allow their
// place into held GPUs, so that everything else can be placed as it is.
func (s *Placements) settle() error {
	slices.SortFunc(s.Assignments, func(a, b online.Assignment) int { return cmp.Compare(a.ID, b.ID) })
	for {
		f, err := online.New(s.Nodes, nil, online.BestFit, nil)
		if err != nil {
			return err
		}
		kept := make([]online.Assignment, 0, len(s.Assignments))
		for _, x := range s.Assignments {
			if f.Place(x.ID, &x.Load, x.At) == nil {
				kept = append(kept, x)
				continue
			}
			byID := func(n packing.Node, id string) int { return cmp.Compare(n.ID, id) }
			i, _ := slices.BinarySearchFunc(s.Nodes, x.At.Node, byID)
			for _, g := range x.At.GPUs {
				s.Nodes[i].Held.GPUMilli[g] = 1000
			}
			s.Fixed += len(x.At.GPUs)
		}
		// New held GPUs may rule out more replicas: those that need a machine of their own.
		if len(kept) == len(s.Assignments) {
			return nil
		}
		s.Assignments = kept
	}
}
