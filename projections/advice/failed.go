package advice

import (
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/projections/failures"
	"quartermaster/projections/inventory"
	"quartermaster/projections/usage"

	"github.com/shopspring/decimal"
)

// failed reads the interruptions of the last seven days, until the tick, because an outage does not wait for the end of its hour:
// of each node, GPU model, cluster, and provider in a region. What was to be expected is the published rate, updated by what the
// whole fleet had in the three weeks before. Who reports nothing reports no faults either, so time counts by the part of it that
// was observed of the cluster's GPUs of the model.
func (r *reader) failed() error {
	window, before := r.last(7*domain.Day), r.last(weeks*7*domain.Day)
	before.To, window.To = window.From, r.at
	counts := reliability.DefaultCounts()
	earlier, exposed, err := failures.Interruptions(r.view, before.From, before.To, counts)
	if err != nil {
		return err
	}
	known := reliability.Evidence{Interruptions: int64(len(earlier))}
	r.observedOf(exposed, before)
	for i := range exposed {
		known.GPUMs += exposed[i].GPUMs
	}
	estimate, err := reliability.Published().Learn(known)
	if err != nil {
		return err
	}
	now, exposed, err := failures.Interruptions(r.view, window.From, window.To, counts)
	if err != nil {
		return err
	}
	r.observedOf(exposed, window)
	type part struct {
		level   string
		subject advice.Subject
	}
	type evidence struct {
		gpuMs, n int64
		nodes    map[inventory.NodeName]bool
	}
	of := map[part]*evidence{}
	each := func(name inventory.NodeName, model string, yield func(*evidence)) {
		parts := []part{
			{"node", advice.Subject{Cluster: name.Cluster, Node: name.Node}},
			{"gpu_model", advice.Subject{GPUModel: model}},
			{"cluster", advice.Subject{Cluster: name.Cluster}},
		}
		if c, _ := r.fleet.Cluster(name.Cluster, r.at); c != nil {
			parts = append(parts, part{"provider", advice.Subject{Provider: c.Provider, Region: c.Region}})
		}
		for _, p := range parts {
			if of[p] == nil {
				of[p] = &evidence{nodes: map[inventory.NodeName]bool{}}
			}
			yield(of[p])
		}
	}
	for i := range exposed {
		each(exposed[i].NodeName, exposed[i].Model, func(e *evidence) { e.gpuMs += exposed[i].GPUMs })
	}
	for i := range now {
		each(now[i].NodeName, now[i].Model, func(e *evidence) {
			e.n++
			e.nodes[now[i].NodeName] = true
		})
	}
	for p, e := range of {
		f := advice.Failed{
			Window: window, Level: p.level, Subject: p.subject, Interruptions: e.n,
			GPUHours:   decimal.NewFromInt(e.gpuMs).DivRound(decimal.NewFromInt(projections.MsPerHour), 6),
			PriorShape: int64(estimate.Counted), PriorPerGPUHour: estimate.PerGPUHour,
		}
		if p.level != "node" {
			for _, n := range inventory.InOrder(slices.Collect(maps.Keys(e.nodes))) {
				f.Of = append(f.Of, advice.Subject{Cluster: n.Cluster, Node: n.Node})
			}
		}
		r.f.Failed = append(r.f.Failed, f)
	}
	slices.SortFunc(r.f.Failed, func(a, b advice.Failed) int {
		if c := compareAll(a.Level, b.Level); c != 0 {
			return c
		}
		return a.Subject.Compare(b.Subject)
	})
	return nil
}

// observedOf reduces exposures within the last four weeks to the part that was observed.
func (r *reader) observedOf(exposed []failures.Exposure, span domain.Interval) {
	type observed struct{ up, seen int64 }
	of := map[model]*observed{}
	first := r.last(weeks * 7 * domain.Day).From
	for i := range exposed {
		k := model{exposed[i].Cluster, exposed[i].Model}
		t := of[k]
		if t == nil {
			t = &observed{}
			of[k] = t
			if hours := r.months[k]; hours != nil {
				for h := (span.From - first) / domain.Hour; h < (span.To-first)/domain.Hour; h++ {
					s := &hours[h]
					t.up, t.seen = t.up+s.service-s.down, t.seen+s.service-s.down-s.unobserved
				}
			}
		}
		share := int64(0)
		if t.up > 0 {
			share = usage.Permille(t.seen, t.up)
		}
		exposed[i].GPUMs = exposed[i].GPUMs / 1000 * share
	}
}
