package registry

import (
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Names lists the known names, each list sorted. Any other name in a query is probably a typo.
type Names struct {
	Workspaces []string // registered, or owners of clusters
	Clusters   []string // named by an event
	Regions    []string // defined, or the region of a cluster, at any time
}

// NewNames returns the known names.
func NewNames(view projections.View) (*Names, error) {
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	workspaces, err := Registered(view, a)
	if err != nil {
		return nil, err
	}
	clusters, err := ClustersNamed(view)
	if err != nil {
		return nil, err
	}
	regions := map[string]bool{}
	if err := view.Scan(projections.Query{Table: projections.TableRegions}, func(k projections.Key, _ projections.Row) error {
		regions[k.ID] = true
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", projections.TableRegions, err)
	}
	declared, err := a.Clusters(view)
	if err != nil {
		return nil, err
	}
	for _, h := range declared {
		for i := range h.Versions {
			workspaces[h.Versions[i].Workspace] = true
			regions[h.Versions[i].Event.(*domain.ClusterRegistered).Region] = true
		}
	}
	delete(workspaces, "")
	delete(regions, "")
	return &Names{
		Workspaces: slices.Sorted(maps.Keys(workspaces)),
		Clusters:   slices.Sorted(maps.Keys(clusters)),
		Regions:    slices.Sorted(maps.Keys(regions)),
	}, nil
}

// Registered returns the workspaces that were registered at any time, because imported history is
// older than the registration.
func Registered(view projections.View, a *Authority) (map[string]bool, error) {
	out := map[string]bool{}
	err := view.Scan(projections.Query{Table: projections.TableWorkspaces}, func(k projections.Key, row projections.Row) error {
		h := row.(*projections.History)
		for i := range h.Versions {
			if a.Judge(k, h, i) == "" {
				out[k.Scope] = true
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read workspaces: %w", err)
	}
	return out, nil
}

// ClustersNamed returns every cluster that an event names, with a table that contains it.
func ClustersNamed(view projections.View) (map[string]projections.Table, error) {
	named := map[string]projections.Table{}
	for _, t := range []projections.Table{
		projections.TableClusters, projections.TableNodes, projections.TableUsage, projections.TableServing,
		projections.TableServers, projections.TableHealth, projections.TableFaults, projections.TableDeployments,
		projections.TableReplicas,
		projections.TableJobs, projections.TableDemand, projections.TableEnergy, projections.TableUsageCorrections,
		projections.TableClusterKeys, projections.TableAssets, projections.TableMaintenance, projections.TableOutages,
	} {
		scopes, err := view.Scopes(t)
		if err != nil {
			return nil, fmt.Errorf("read the clusters of %s: %w", t, err)
		}
		for _, cluster := range scopes {
			if _, ok := named[cluster]; !ok {
				named[cluster] = t
			}
		}
	}
	return named, nil
}
