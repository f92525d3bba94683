package advice

import (
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/packing/online"
)

const (
	weeks     = 4
	weekHours = 7 * 24
)

// headroom is what a slice must have beyond the peak memory and the mean activity, in per mille.
const headroom = 200

// weeks reads the GPU time of a week, and by hour of four weeks, from kept days and the day that was read; and the
// deployments that fit a slice, from the last seven whole days.
func (r *reader) weeks() error {
	window := r.last(weeks * 7 * domain.Day)
	var days []domain.Interval
	for at := window.From.DayStart(); at < r.end.DayStart(); at += domain.Day {
		days = append(days, domain.Interval{From: at, To: at + domain.Day})
	}
	sums, err := r.days(days)
	if err != nil {
		return err
	}
	of := map[model]*[weeks * weekHours]sum{}
	add := func(k model, hour domain.Instant, s *sum) {
		if of[k] == nil {
			of[k] = &[weeks * weekHours]sum{}
		}
		of[k][(hour-window.From)/domain.Hour] = *s
	}
	today := r.last(domain.Day)
	for k, s := range sums {
		for i := range s.hours {
			for h := range s.hours[i].sum {
				if hour := k.day + domain.Instant(h)*domain.Hour; hour >= window.From && hour < today.From {
					add(model{k.cluster, s.hours[i].gpu}, hour, &s.hours[i].sum[h])
				}
			}
		}
	}
	for k, s := range r.today {
		add(k.model, k.hour, s)
	}
	week := map[model]*sum{}
	for _, k := range slices.SortedFunc(maps.Keys(of), model.compare) {
		hours := of[k]
		w := advice.Week{Window: window, Cluster: k.cluster, GPUModel: k.gpu, Service: make([]int64, len(hours)), Unused: make([]int64, len(hours))}
		total := &sum{}
		for h := range hours {
			w.Service[h], w.Unused[h] = hours[h].service-hours[h].down, hours[h].idle
			if h >= len(hours)-weekHours {
				total.add(&hours[h])
			}
		}
		r.f.Weeks = append(r.f.Weeks, w)
		if total.service > 0 {
			week[k] = total
		}
	}
	r.window(r.last(7*domain.Day), week)
	r.months = of
	r.holdings(sums)
	return nil
}

// holdings reads the deployments that fit a slice of their GPU, as "fragmentation" names it.
func (r *reader) holdings(sums map[clusterDay]*daySums) {
	window := domain.Interval{From: r.end.DayStart() - 7*domain.Day, To: r.end.DayStart()}
	type key struct{ cluster, workspace, deployment, model string }
	of := map[key]*online.Holding{}
	for k, s := range sums {
		if k.day < window.From {
			continue
		}
		for i := range s.held {
			h := &s.held[i]
			x := of[key{h.Cluster, h.Workspace, h.Deployment, h.Model}]
			if x == nil {
				own := *h
				of[key{h.Cluster, h.Workspace, h.Deployment, h.Model}] = &own
				continue
			}
			x.GPUMs += h.GPUMs
			x.KnownMs += h.KnownMs
			x.ActiveMs += h.ActiveMs
			x.PeakKnownMs += h.PeakKnownMs
			x.PeakMiB, x.MostTogether = max(x.PeakMiB, h.PeakMiB), max(x.MostTogether, h.MostTogether)
		}
	}
	all := make([]online.Holding, 0, len(of))
	for _, h := range of {
		all = append(all, *h)
	}
	for i := range all {
		h := advice.Held{
			Window: window, Workspace: all[i].Workspace, Cluster: all[i].Cluster, Deployment: all[i].Deployment, GPUModel: all[i].Model,
			GPUMs: all[i].GPUMs, Activity: -1,
		}
		if activity, ok := all[i].Activity(); ok {
			h.Activity = activity
		}
		r.f.Held = append(r.f.Held, h)
	}
	slices.SortFunc(r.f.Held, func(a, b advice.Held) int {
		return compareAll(a.Cluster, b.Cluster, a.Workspace, b.Workspace, a.Deployment, b.Deployment, a.GPUModel, b.GPUModel)
	})
	for _, f := range online.Rightsize(all, headroom, nil) {
		if f.Profile == "" || f.GPUMs <= 0 {
			continue
		}
		activity, _ := f.Activity()
		r.f.Holdings = append(r.f.Holdings, advice.Fit{
			Window: window, Workspace: f.Workspace, Cluster: f.Cluster, Deployment: f.Deployment, GPUModel: f.Model, To: f.Profile,
			PeakMiB: uint64(f.PeakMiB), Activity: activity, GPUMs: f.GPUMs, SavedMs: f.SavedGPUMs, Coverage: f.KnownMs * 1000 / f.GPUMs,
		})
	}
	slices.SortFunc(r.f.Holdings, func(a, b advice.Fit) int {
		return compareAll(a.Cluster, b.Cluster, a.Workspace, b.Workspace, a.Deployment, b.Deployment, a.GPUModel, b.GPUModel)
	})
}
