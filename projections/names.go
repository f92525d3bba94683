package projections

import (
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
)

// Names is what there is to ask for, each list sorted. Whoever asks for
// anything else has probably mistyped it.
type Names struct {
	Workspaces []string // registered, or the owner of a cluster
	Clusters   []string // that an event names
	Regions    []string // defined, or that of a cluster, at any time
}

// NewNames returns what there is to ask for.
func NewNames(view View) (*Names, error) {
	a, err := NewAuthority(view)
	if err != nil {
		return nil, err
	}
	workspaces, err := registered(view, a)
	if err != nil {
		return nil, err
	}
	clusters, err := clustersNamed(view)
	if err != nil {
		return nil, err
	}
	regions := map[string]bool{}
	if err := view.Scan(Query{Table: TableRegions}, func(k Key, _ Row) error {
		regions[k.ID] = true
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read %s: %w", TableRegions, err)
	}
	declared, err := a.clusters(view)
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

// registered returns the workspaces that somebody registered, at any time:
// history that is imported is older than the registration.
func registered(view View, a *Authority) (map[string]bool, error) {
	out := map[string]bool{}
	err := view.Scan(Query{Table: TableWorkspaces}, func(k Key, row Row) error {
		h := row.(*History)
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

// clustersNamed returns every cluster that an event names, with a table that
// has it.
func clustersNamed(view View) (map[string]Table, error) {
	named := map[string]Table{}
	for _, t := range []Table{
		TableClusters, TableNodes, TableUsage, TableServing, TableServers, TableHealth, TableFaults, TableDeployments, TableReplicas,
		TableJobs, TableDemand, TableEnergy, TableUsageCorrections, TableClusterKeys, TableAssets, TableMaintenance,
	} {
		last := ""
		err := view.Scan(Query{Table: t, Last: true}, func(k Key, _ Row) error {
			if k.Scope != last {
				last = k.Scope
				if _, ok := named[k.Scope]; !ok {
					named[k.Scope] = t
				}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", t, err)
		}
	}
	return named, nil
}
