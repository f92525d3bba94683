package planning

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/packing"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// NodeFilter selects machines; empty fields match all.
type NodeFilter struct {
	Cluster, Region string
	Model           string // GPU model, in any spelling that the catalogue knows
}

// PackingNodes returns the machines in service and healthy at a time, by id, which is
// "cluster/node". A machine that failed, is cordoned or drained, or is in a maintenance window is
// left out completely. A machine inherits from its cluster what it does not state itself.
// Certifications are the valid ones of the cluster and of the provider, and those in the cluster's
// registration.
//
// If a machine has GPUs of several models, only those of the most frequent model count (in a tie,
// the first by name), because a packing node has one model.
func PackingNodes(view projections.View, a *registry.Authority, at domain.Instant, f NodeFilter) ([]packing.Node, error) {
	fleet, err := inventory.ReadFleet(view)
	if err != nil {
		return nil, err
	}
	certified, err := registry.Certifications(view, a, at)
	if err != nil {
		return nil, err
	}
	country, err := inventory.Countries(view, at)
	if err != nil {
		return nil, err
	}
	type origin struct{ cluster, provider string }
	certificates := map[origin][]string{}
	out := []packing.Node{}
	wanted := market.ModelName(f.Model)
	for _, n := range fleet.Nodes {
		s := n.At(at)
		if s == nil || f.Cluster != "" && f.Cluster != n.Cluster || n.HealthAt(at).State != "ok" {
			continue
		}
		c, _ := fleet.Cluster(n.Cluster, at)
		if c == nil {
			c = &domain.ClusterRegistered{}
		}
		model, gpus := inventory.MostGPUs(s.GPUs)
		if f.Region != "" && f.Region != c.Region || f.Model != "" && wanted != model {
			continue
		}
		from := origin{n.Cluster, cmp.Or(s.Node.Provider, c.Provider)}
		held, ok := certificates[from]
		if !ok {
			held = certificatesOf(from.cluster, from.provider, c, certified)
			certificates[from] = held
		}
		out = append(out, packing.Node{
			ID: n.Cluster + "/" + n.Node, Count: 1, Cluster: n.Cluster, Region: c.Region, Country: country[c.Region],
			Model: model, GPUs: gpus, CPUMilli: clampInt64(s.Node.CPUMilli), MemoryMiB: clampInt64(s.Node.MemoryMiB),
			Certifications: held, Dedicated: s.Node.DedicatedWorkspace,
		})
	}
	slices.SortFunc(out, func(a, b packing.Node) int { return cmp.Compare(a.ID, b.ID) })
	for i := 1; i < len(out); i++ {
		if out[i].ID == out[i-1].ID {
			return nil, fmt.Errorf("two machines are both called %q", out[i].ID)
		}
	}
	return out, nil
}

// certificatesOf returns the certifications of a provider's machines in a cluster, sorted.
func certificatesOf(cluster, provider string, c *domain.ClusterRegistered, certified []registry.CertificationEntry) []string {
	held := slices.Clone(c.Certifications)
	for _, e := range certified {
		if e.Cluster != "" && e.Cluster == cluster || e.Provider != "" && e.Provider == provider {
			held = append(held, e.Certification)
		}
	}
	slices.Sort(held)
	return slices.Compact(held)
}

func clampInt64(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
