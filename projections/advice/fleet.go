package advice

import (
	"maps"
	"slices"

	"quartermaster/domain/advice"
)

// parts reads the clusters and the nodes in service.
func (r *reader) parts() error {
	for _, id := range slices.Sorted(maps.Keys(r.fleet.Clusters)) {
		if c, owner := r.fleet.Cluster(id, r.at); c != nil {
			r.f.Clusters = append(r.f.Clusters, advice.Cluster{
				ID: id, Workspace: owner, Provider: c.Provider, ProviderClass: string(c.ProviderClass), Region: c.Region,
			})
		}
	}
	for _, n := range r.fleet.Nodes {
		if s := n.At(r.at); s != nil {
			r.f.Nodes = append(r.f.Nodes, advice.Node{
				Cluster: n.Cluster, Node: n.Node, Fabric: s.Node.FabricDomain, GPUs: len(s.GPUs),
			})
		}
	}
	return nil
}
