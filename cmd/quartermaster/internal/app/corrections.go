package app

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"quartermaster/adapters/manifest"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/usage"
	"quartermaster/simulations/whatif"
)

// HeldChange is who held a device during a correction, without and with the correction.
type HeldChange struct {
	Before []Held `json:"before"`
	After  []Held `json:"after"`
}

// Held is how long a device was held by a holder, or was in a state without one.
type Held struct {
	State      string `json:"state"`
	Workspace  string `json:"workspace,omitempty"`
	Deployment string `json:"deployment,omitempty"`
	Unit       string `json:"unit,omitempty"`
	GPUMs      int64  `json:"gpu_ms"`
}

// fix is a new or changed correction of usage.
type fix struct {
	env    *domain.Envelope
	ev     *domain.UsageCorrected
	before *domain.UsageCorrected // the version that it replaces; nil: none
	entry  manifest.Entry
	held   HeldChange

	there []domain.Interval // when the device was in service or reported
	gpus  map[string]bool   // GPUs of the node at that time
}

// spans returns the times that a fix changes.
func (f *fix) spans() []domain.Interval {
	spans := []domain.Interval{f.ev.Interval}
	if f.before != nil && f.before.Node == f.ev.Node && f.before.GPU == f.ev.GPU {
		spans = append(spans, f.before.Interval)
	}
	return ordered(spans)
}

// ordered merges spans in the order of their start.
func ordered(spans []domain.Interval) []domain.Interval {
	slices.SortFunc(spans, func(a, b domain.Interval) int { return cmp.Compare(a.From, b.From) })
	return inventory.Joined(spans)
}

// correct refuses corrections of unknown or absent devices. For the others it computes who held
// what before and after. It reads the hours of the corrections.
func correct(ctx context.Context, v projections.View, auth *registry.Authority, envs []domain.Envelope, fixes []*fix) error {
	if len(fixes) == 0 {
		return nil
	}
	var events []domain.Envelope
	var hours []domain.Interval
	byNode := map[inventory.NodeName][]*fix{}
	for _, f := range fixes {
		f.gpus = map[string]bool{}
		name := inventory.NodeName{Cluster: f.env.Cluster, Node: f.ev.Node}
		events, byNode[name], hours = append(events, *f.env), append(byNode[name], f), append(hours, f.spans()...)
	}
	hours = ordered(hours)
	nodes, deployments := map[string]map[string]bool{}, map[string]map[string]bool{} // by cluster
	for _, f := range fixes {
		nodes[f.env.Cluster], deployments[f.env.Cluster] = map[string]bool{}, map[string]bool{}
	}
	if err := eachHour(v, hours, func(d *usage.DeviceHour) {
		known, mine := nodes[d.Cluster]
		if !mine {
			return
		}
		known[d.Node] = true
		for i := range d.Segments {
			if h := d.Segments[i].Holder; h != nil {
				deployments[d.Cluster][h.Deployment] = true
			}
		}
		for _, f := range byNode[inventory.NodeName{Cluster: d.Cluster, Node: d.Node}] {
			f.see(d)
			f.held.Before = f.add(f.held.Before, d)
		}
	}); err != nil {
		return err
	}
	if err := v.Scan(projections.Query{Table: projections.TableDeployments}, func(k projections.Key, _ projections.Row) error {
		if known, mine := deployments[k.Scope]; mine {
			known[k.ID] = true
		}
		return nil
	}); err != nil {
		return err
	}
	for i := range envs {
		if ev, ok := envs[i].Event.(*domain.DeploymentChanged); ok && deployments[envs[i].Cluster] != nil {
			deployments[envs[i].Cluster][ev.Deployment] = true
		}
	}
	var errs []error
	for _, f := range fixes {
		if err := f.fault(nodes[f.env.Cluster], deployments[f.env.Cluster]); err != nil {
			errs = append(errs, err)
		}
	}
	if err := overlaps(v, auth, fixes, func(err error) { errs = append(errs, err) }); err != nil {
		return err
	}
	if len(errs) > 0 {
		return &InvalidError{Err: errors.Join(errs...)}
	}
	fork := whatif.NewFork(v)
	if err := fork.Append(ctx, Now(), events...); err != nil {
		return err
	}
	return fork.View(ctx, func(then projections.View) error {
		return eachHour(then, hours, func(d *usage.DeviceHour) {
			for _, f := range byNode[inventory.NodeName{Cluster: d.Cluster, Node: d.Node}] {
				f.held.After = f.add(f.held.After, d)
			}
		})
	})
}

func eachHour(v projections.View, spans []domain.Interval, yield func(*usage.DeviceHour)) error {
	for _, s := range spans {
		if err := usage.EachDeviceHour(v, s.From, s.To, func(d *usage.DeviceHour) error {
			yield(d)
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// see notes when the device of a correction was present.
func (f *fix) see(d *usage.DeviceHour) {
	f.gpus[d.GPU.String()] = true
	for i := range d.Segments {
		if s := &d.Segments[i]; d.GPU == f.ev.GPU || s.Device == f.ev.GPU {
			at := domain.Interval{
				From: d.Hour + domain.Instant(s.From)*projections.NsPerMs,
				To:   d.Hour + domain.Instant(s.To)*projections.NsPerMs,
			}
			if at = at.Intersect(f.ev.Interval); !at.Empty() {
				f.there = append(f.there, at)
			}
		}
	}
}

// add adds the part of a device's hour within a correction to held.
func (f *fix) add(held []Held, d *usage.DeviceHour) []Held {
	for _, span := range f.spans() {
		if span = span.Intersect(domain.Interval{From: d.Hour, To: d.Hour + domain.Hour}); span.Empty() {
			continue
		}
		from, to := uint32((span.From-d.Hour)/projections.NsPerMs), uint32((span.To-d.Hour)/projections.NsPerMs)
		for i := range d.Segments {
			s, ok := d.Segments[i].Within(from, to)
			if !ok || d.GPU != f.ev.GPU && s.Device != f.ev.GPU {
				continue
			}
			h := Held{State: s.State.String()}
			if s.Holder != nil {
				h.Workspace, h.Deployment, h.Unit = s.Holder.Workspace, s.Holder.Deployment, s.Holder.Unit
			}
			ms := s.GPUMs
			if n := slices.IndexFunc(held, func(x Held) bool { x.GPUMs = 0; return x == h }); n >= 0 {
				held[n].GPUMs += ms
				continue
			}
			h.GPUMs = ms
			held = append(held, h)
		}
	}
	return held
}

// fault returns the error in a correction, or nil.
func (f *fix) fault(nodes, deployments map[string]bool) error {
	ev := f.ev
	if ev.Cancelled {
		if f.before == nil {
			return f.entry.Fault("id", "there is no correction %q of cluster %q to cancel", ev.Correction, f.env.Cluster)
		}
		return nil
	}
	if !nodes[ev.Node] {
		return f.entry.Fault("node", "cluster %q had no node %q at that time%s", f.env.Cluster, ev.Node, suggested(ev.Node, nodes))
	}
	f.there = ordered(f.there)
	var covered domain.Instant
	for _, s := range f.there {
		covered += s.To - s.From
	}
	if covered == 0 && f.gpus[ev.GPU.String()] {
		return f.entry.Fault("interval", "node %q did not have the GPU at that time", ev.Node)
	}
	if covered == 0 {
		return f.entry.Fault("gpu", "node %q did not have %s at that time%s", ev.Node, ev.GPU, suggested(ev.GPU.String(), f.gpus))
	}
	// Usage is in whole milliseconds, so each end may be off by one.
	if length := ev.Interval.To - ev.Interval.From; covered+2*projections.NsPerMs < length {
		return f.entry.Fault("interval", "is %s, and node %q had the GPU for %s of it, from %s to %s",
			time.Duration(length), ev.Node, time.Duration(covered), f.there[0].From, f.there[len(f.there)-1].To)
	}
	if ev.Deployment != "" && !deployments[ev.Deployment] {
		return f.entry.Fault("holder.deployment", "cluster %q has no deployment %q%s", f.env.Cluster, ev.Deployment, suggested(ev.Deployment, deployments))
	}
	return nil
}

// suggested names a similar known name, if there is one.
func suggested(word string, known map[string]bool) string {
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(known)), func(name string) bool { return name == "" })
	if len(names) == 0 {
		return ""
	}
	return "; " + domain.Clip(domain.Suggest(word, names), 300)
}

// overlaps reports corrections that overlap another one: the GPU would be assigned twice.
func overlaps(v projections.View, auth *registry.Authority, fixes []*fix, report func(error)) error {
	type named struct {
		cluster string
		ev      *domain.UsageCorrected
	}
	var others []named
	if err := v.Scan(projections.Query{Table: projections.TableUsageCorrections}, func(k projections.Key, row projections.Row) error {
		if slices.ContainsFunc(fixes, func(f *fix) bool { return f.env.Cluster == k.Scope && f.ev.Correction == k.ID }) {
			return nil
		}
		if latest := auth.Latest(k, row.(*projections.History)); latest != nil {
			others = append(others, named{k.Scope, latest.Event.(*domain.UsageCorrected)})
		}
		return nil
	}); err != nil {
		return err
	}
	for _, f := range fixes {
		for _, o := range others {
			overlap := f.env.Cluster == o.cluster && f.ev.Node == o.ev.Node && f.ev.GPU == o.ev.GPU &&
				(f.ev.Replica == o.ev.Replica || f.ev.Replica == 0 || o.ev.Replica == 0) &&
				!f.ev.Interval.Intersect(o.ev.Interval).Empty()
			if !f.ev.Cancelled && !o.ev.Cancelled && overlap {
				report(f.entry.Fault("interval", "correction %q is about the same GPU from %s to %s; change that one, or cancel it",
					o.ev.Correction, o.ev.Interval.From, o.ev.Interval.To))
				break
			}
		}
		others = append(others, named{f.env.Cluster, f.ev})
	}
	return nil
}
