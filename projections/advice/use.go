package advice

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/usage"
)

// lowActivity is the activity in per mille below which a GPU counts as low.
const lowActivity = 400

// model is a GPU model of a cluster.
type model struct{ cluster, gpu string }

func (m model) compare(o model) int {
	return cmp.Or(strings.Compare(m.cluster, o.cluster), strings.Compare(m.gpu, o.gpu))
}

// sum is GPU time, as [advice.Use] has it, and the part without a holder.
type sum struct{ service, down, idle, measured, active, unobserved int64 }

func (s *sum) add(o *sum) {
	s.service += o.service
	s.down += o.down
	s.idle += o.idle
	s.measured += o.measured
	s.active += o.active
	s.unobserved += o.unobserved
}

// segment adds a part of a GPU's hour.
func (s *sum) segment(d *usage.DeviceSegment) {
	s.service += d.GPUMs
	switch d.State {
	case inventory.Allocated:
		s.measured += d.Known
		s.active += d.Active
	case inventory.Failed, inventory.Maintenance, inventory.Unprovisioned:
		s.down += d.GPUMs
	case inventory.Idle:
		s.idle += d.GPUMs
	case inventory.Unobserved:
		s.unobserved += d.GPUMs
	}
}

// pass is the pass over the usage of a day.
type pass struct {
	hours   map[hourOf]*sum
	devices map[model]*advice.Devices

	// Of the current node.
	cluster, node string
	gpus          []gpuDay
	last          hourOf
	sum           *sum
}

// hourOf is an hour of a GPU model of a cluster.
type hourOf struct {
	model
	hour domain.Instant
}

// gpuDay is a day of a GPU.
type gpuDay struct {
	id    domain.GPUID
	model string
	sum
}

// device adds a GPU's hour.
func (p *pass) device(d *usage.DeviceHour) error {
	if k := (hourOf{model{d.Cluster, d.Model}, d.Hour}); p.sum == nil || k != p.last {
		if p.sum = p.hours[k]; p.sum == nil {
			p.sum = &sum{}
			k.cluster, k.gpu = strings.Clone(k.cluster), strings.Clone(k.gpu)
			p.hours[k] = p.sum
		}
		p.last = k
	}
	if d.Cluster != p.cluster || d.Node != p.node {
		p.flush()
		p.cluster, p.node = strings.Clone(d.Cluster), strings.Clone(d.Node)
	}
	var of sum
	for i := range d.Segments {
		of.segment(&d.Segments[i])
	}
	p.sum.add(&of)
	i := slices.IndexFunc(p.gpus, func(g gpuDay) bool { return g.id == d.GPU && g.model == d.Model })
	if i < 0 {
		i = len(p.gpus)
		p.gpus = append(p.gpus, gpuDay{id: d.GPU, model: strings.Clone(d.Model)})
	}
	p.gpus[i].add(&of)
	return nil
}

// flush counts the GPUs of the current node. A GPU is known if at least half of the time that it was not down is.
func (p *pass) flush() {
	for i := range p.gpus {
		g := &p.gpus[i]
		k := model{p.cluster, g.model}
		d := p.devices[k]
		if d == nil {
			d = &advice.Devices{Cluster: k.cluster, GPUModel: k.gpu}
			p.devices[k] = d
		}
		d.All++
		known := g.measured + g.idle
		if known == 0 || 2*known < g.service-g.down {
			continue
		}
		d.Known++
		if g.active < lowActivity*known {
			d.Low++
			d.LowMs += g.service
		}
	}
	p.gpus = p.gpus[:0]
}

// use reads the GPU time of a day, and of its devices.
func (r *reader) use() error {
	day := r.last(domain.Day)
	p := &pass{hours: map[hourOf]*sum{}, devices: map[model]*advice.Devices{}}
	ignored := func(projections.Key, *projections.UsageHour) error { return nil }
	if err := usage.EachDeviceHourAndRow(r.view, r.fleet, "", day.From, day.To, ignored, p.device); err != nil {
		return err
	}
	p.flush()
	of := map[model]*sum{}
	for k, s := range p.hours {
		total := of[k.model]
		if total == nil {
			total = &sum{}
			of[k.model] = total
		}
		total.add(s)
	}
	r.today = p.hours
	r.window(day, of)
	for _, k := range slices.SortedFunc(maps.Keys(p.devices), model.compare) {
		d := p.devices[k]
		d.Window = day
		r.f.Devices = append(r.f.Devices, *d)
	}
	return nil
}

// window adds the use of a window.
func (r *reader) window(window domain.Interval, of map[model]*sum) {
	for _, k := range slices.SortedFunc(maps.Keys(of), model.compare) {
		s := of[k]
		r.f.Use = append(r.f.Use, advice.Use{
			Window: window, Cluster: k.cluster, GPUModel: k.gpu,
			Service: s.service, Down: s.down, Idle: s.idle, Measured: s.measured, Active: s.active,
		})
	}
}
