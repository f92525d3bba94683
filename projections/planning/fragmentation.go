package planning

import (
	"cmp"
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
	f, err := inventory.ReadFleet(view)
	if err != nil {
		return nil, err
	}
	w := &seatWalk{last: map[string]*seatNode{}}
	within := func(cluster string, hour domain.Instant) bool {
		if region == "" {
			return true
		}
		c, _ := f.Cluster(cluster, hour)
		return c != nil && c.Region == region
	}
	err = usage.EachDeviceHourAndRow(view, f, "", from, at, func(k projections.Key, u *projections.UsageHour) error {
		if within(k.Scope, domain.Instant(k.Hour)*domain.Hour) {
			w.held.Row(k, u)
		}
		return nil
	}, func(d *usage.DeviceHour) error {
		if region == "" || d.Region == region {
			w.held.Device(d)
			w.see(d)
		}
		return nil
	})
	if err != nil {
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
	s.Held = w.held.All()
	return s, nil
}

// seatWalk collects data from device hours.
type seatWalk struct {
	last map[string]*seatNode // by "cluster/node"
	held Holdings
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
