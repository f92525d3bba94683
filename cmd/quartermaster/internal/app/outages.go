package app

import (
	"errors"
	"maps"
	"slices"

	"quartermaster/adapters/manifest"
	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/registry"
)

// placed expands an outage of a region to one for each of its clusters, and refuses outages of
// nodes that their cluster never had.
func placed(v projections.View, auth *registry.Authority, d *Declarations) ([]domain.Envelope, []manifest.Entry, error) {
	if !slices.ContainsFunc(d.envs, func(env domain.Envelope) bool { return env.Event.Type() == domain.TypeOutageDeclared }) {
		return slices.Clone(d.envs), d.entries, nil
	}
	clusters, err := clustersOf(v, auth, d.envs)
	if err != nil {
		return nil, nil, err
	}
	var envs []domain.Envelope
	var entries []manifest.Entry
	var errs []error
	for i, env := range d.envs {
		entry := d.entries[i]
		ev, ok := env.Event.(*domain.OutageDeclared)
		switch {
		case !ok:
		case entry.Region != "":
			if len(clusters[entry.Region]) == 0 {
				errs = append(errs, entry.Fault("region", "no cluster is in %q, in these files or in the log", entry.Region))
			}
			for _, cluster := range clusters[entry.Region] {
				env.Cluster = cluster
				envs, entries = append(envs, env), append(entries, entry)
			}
			continue
		default:
			known, err := nodesOf(v, env.Cluster)
			if err != nil {
				return nil, nil, err
			}
			for _, node := range ev.Nodes {
				if !known[node] {
					errs = append(errs, entry.Fault("nodes", "cluster %q has no node %q%s", env.Cluster, node, suggested(node, known)))
				}
			}
		}
		envs, entries = append(envs, env), append(entries, entry)
	}
	if len(errs) > 0 {
		return nil, nil, &InvalidError{Err: errors.Join(errs...)}
	}
	return envs, entries, nil
}

// clustersOf returns the cluster names of each region, from the log and from the declarations.
func clustersOf(v projections.View, auth *registry.Authority, envs []domain.Envelope) (map[string][]string, error) {
	known, err := auth.Clusters(v)
	if err != nil {
		return nil, err
	}
	region := map[string]string{}
	for name, h := range known {
		region[name] = h.Latest().Event.(*domain.ClusterRegistered).Region
	}
	for i := range envs {
		if ev, ok := envs[i].Event.(*domain.ClusterRegistered); ok {
			region[envs[i].Cluster] = ev.Region
		}
	}
	of := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(region)) {
		of[region[name]] = append(of[region[name]], name)
	}
	return of, nil
}

// nodesOf returns all nodes that a cluster ever had.
func nodesOf(v projections.View, cluster string) (map[string]bool, error) {
	known := map[string]bool{}
	err := v.Scan(projections.Query{Table: projections.TableNodes, Scope: cluster}, func(k projections.Key, _ projections.Row) error {
		known[k.ID] = true
		return nil
	})
	return known, err
}
