package planning

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/packing/online"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/usage"
)

// Holdings sums up what deployments held of GPUs and how they used them, from device hours and their rows, in the order of
// [usage.EachDeviceHourAndRow]. The zero value is empty.
type Holdings struct {
	held map[heldKey]*online.Holding
	last *online.Holding // of lastKey
	key  heldKey

	// Of the current node and hour: how many GPUs each unit held.
	cluster, node string
	hour          domain.Instant
	together      []unitGPUs
	units         []*projections.Holder // of the current device
	model         string                // of the node's GPUs
}

type heldKey struct{ cluster, workspace, deployment, model string }

func (k heldKey) compare(l heldKey) int {
	return cmp.Or(
		cmp.Compare(k.cluster, l.cluster), cmp.Compare(k.workspace, l.workspace),
		cmp.Compare(k.deployment, l.deployment), cmp.Compare(k.model, l.model),
	)
}

type unitGPUs struct {
	by   projections.Holder
	gpus int
}

func (h *Holdings) of(k heldKey) *online.Holding {
	if h.last == nil || h.key != k {
		x := h.held[k]
		if x == nil {
			if h.held == nil {
				h.held = map[heldKey]*online.Holding{}
			}
			k = heldKey{strings.Clone(k.cluster), strings.Clone(k.workspace), strings.Clone(k.deployment), k.model}
			x = &online.Holding{Cluster: k.cluster, Workspace: k.workspace, Deployment: k.deployment, Model: k.model, MostTogether: 1}
			h.held[k] = x
		}
		h.last, h.key = x, k
	}
	return h.last
}

// Device adds a GPU's hour.
func (h *Holdings) Device(d *usage.DeviceHour) {
	if d.Cluster != h.cluster || d.Node != h.node || d.Hour != h.hour {
		h.cluster, h.node, h.hour, h.together = d.Cluster, d.Node, d.Hour, h.together[:0]
	}
	h.model, h.units = d.Model, h.units[:0]
	for i := range d.Segments {
		s := &d.Segments[i]
		if s.State != inventory.Allocated || s.Holder == nil {
			continue
		}
		x := h.of(heldKey{d.Cluster, s.Holder.Workspace, s.Holder.Deployment, d.Model})
		x.GPUMs += s.GPUMs
		x.KnownMs += s.Known
		x.ActiveMs += s.Active
		// Without a unit name, the number of GPUs held together is unknown.
		if s.Holder.Unit == "" || slices.ContainsFunc(h.units, func(u *projections.Holder) bool { return *u == *s.Holder }) {
			continue
		}
		h.units = append(h.units, s.Holder)
		j := slices.IndexFunc(h.together, func(u unitGPUs) bool { return u.by == *s.Holder })
		if j < 0 {
			j = len(h.together)
			h.together = append(h.together, unitGPUs{by: *s.Holder})
		}
		h.together[j].gpus++
		x.MostTogether = max(x.MostTogether, h.together[j].gpus)
	}
}

// Row adds the memory in use of a node's hour, of GPUs that a single deployment held.
func (h *Holdings) Row(k projections.Key, u *projections.UsageHour) {
	if k.Scope != h.cluster || k.ID != h.node {
		return // none of its devices was in service
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
			by := &u.Holders[who-1]
			if x := h.held[heldKey{k.Scope, by.Workspace, by.Deployment, h.model}]; x != nil {
				x.PeakMiB = max(x.PeakMiB, d.Memory.Max)
				x.PeakKnownMs += int64(d.Memory.Known)
			}
		}
	}
}

// All returns the holdings by cluster, workspace, deployment and model.
func (h *Holdings) All() []online.Holding {
	var all []online.Holding
	for _, k := range slices.SortedFunc(maps.Keys(h.held), heldKey.compare) {
		all = append(all, *h.held[k])
	}
	return all
}
