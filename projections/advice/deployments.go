package advice

import (
	"fmt"
	"strings"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/planning"
	"quartermaster/projections/usage"
)

// deployments reads the shadow deployments, and the declared ones that are not seen. It notes the declared ones.
func (r *reader) deployments() error {
	inv, err := inventory.Models(r.view, r.at, r.as.StaleAfter, inventory.ModelFilter{Recent: true})
	if err != nil {
		return err
	}
	window := domain.Interval{From: r.at - r.as.StaleAfter, To: r.at}
	r.declared = map[deployed]*inventory.ModelEntry{}
	shadows, seen := map[string]bool{}, map[string]bool{} // clusters
	var observed map[string]bool
	for i := range inv.Deployments {
		e := &inv.Deployments[i]
		if e.Declared {
			r.declared[deployed{e.Cluster, e.Deployment}] = e
		}
		if e.Status == inventory.ModelShadow {
			shadows[e.Cluster] = true
		}
		if e.LastSeen > window.From {
			seen[e.Cluster] = true
		}
	}
	held, err := r.heldIn(shadows, window)
	if err != nil {
		return err
	}
	for i := range inv.Deployments {
		e := &inv.Deployments[i]
		s := advice.Sighting{
			Window: window, Workspace: e.Workspace, Cluster: e.Cluster, Model: e.Model, Deployment: e.Deployment,
			Units: e.Units, LastSeen: e.LastSeen, Known: true,
		}
		switch e.Status {
		case inventory.ModelShadow:
			s.Shadow = true
			most := int64(-1)
			for _, h := range held[deployed{e.Cluster, e.Deployment}] {
				if h.workspace != e.Workspace {
					continue
				}
				if s.GPUMs += h.ms; h.ms > most {
					s.GPUModel, most = h.model, h.ms
				}
			}
		case inventory.ModelStale:
			s.Since = e.DeclaredAt
			if observed == nil {
				if observed, err = r.observed(window); err != nil {
					return err
				}
			}
			s.Known = observed[e.Cluster] || seen[e.Cluster]
		default:
			continue
		}
		r.f.Deployments = append(r.f.Deployments, s)
	}
	return nil
}

// held is what a deployment held of a GPU model.
type held struct {
	workspace, model string
	ms               int64
}

// heldIn returns what deployments of some clusters held, by GPU model in order.
func (r *reader) heldIn(clusters map[string]bool, window domain.Interval) (map[deployed][]held, error) {
	if len(clusters) == 0 {
		return nil, nil
	}
	only := ""
	if len(clusters) == 1 {
		for only = range clusters {
		}
	}
	var sums planning.Holdings
	ignored := func(projections.Key, *projections.UsageHour) error { return nil }
	err := usage.EachDeviceHourAndRow(r.view, r.fleet, only, window.From, window.To, ignored, func(d *usage.DeviceHour) error {
		if clusters[d.Cluster] {
			sums.Device(d)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	of := map[deployed][]held{}
	for _, h := range sums.All() {
		k := deployed{h.Cluster, h.Deployment}
		of[k] = append(of[k], held{h.Workspace, h.Model, h.GPUMs})
	}
	return of, nil
}

// observed returns the clusters of whose nodes or servers anything was observed in a window.
func (r *reader) observed(window domain.Interval) (map[string]bool, error) {
	seen := map[string]bool{}
	for _, t := range []projections.Table{projections.TableUsage, projections.TableServers, projections.TableServing} {
		q := projections.Query{Table: t, From: projections.HourOf(window.From), To: projections.HourOf(window.To-1) + 1}
		err := r.view.Scan(q, func(k projections.Key, _ projections.Row) error {
			if c := domain.ClusterOf(k.Scope); !seen[c] {
				seen[strings.Clone(c)] = true
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	return seen, nil
}
