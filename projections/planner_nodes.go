package projections

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/packing"
)

// NodeFilter picks machines; empty fields match all.
type NodeFilter struct {
	Cluster, Region string
	Model           string // GPU model, in any spelling that the catalogue knows
}

// PackingNodes returns the machines in service and healthy at a time, by id,
// which is "cluster/node". A machine that failed, is cordoned or drained, or is
// in a maintenance window is left out whole. What a machine does not say of
// itself is its cluster's. Certifications are those in force of the cluster and
// of the provider, and those that the cluster's registration states.
//
// Where the GPUs of a machine are of several models, those of the model with
// the most count (of equally many the first by name), since a packing's node
// has one.
func PackingNodes(view View, a *Authority, at domain.Instant, f NodeFilter) ([]packing.Node, error) {
	fleet, err := readFleet(view)
	if err != nil {
		return nil, err
	}
	certified, err := certifications(view, a, at)
	if err != nil {
		return nil, err
	}
	country, err := countries(view, at)
	if err != nil {
		return nil, err
	}
	type origin struct{ cluster, provider string }
	certificates := map[origin][]string{}
	out := []packing.Node{}
	wanted := modelName(f.Model)
	for _, n := range fleet.nodes {
		s := n.at(at)
		if s == nil || f.Cluster != "" && f.Cluster != n.cluster || n.healthAt(at).State != "ok" {
			continue
		}
		c, _ := fleet.cluster(n.cluster, at)
		if c == nil {
			c = &domain.ClusterRegistered{}
		}
		model, gpus := mostGPUs(s.gpus)
		if f.Region != "" && f.Region != c.Region || f.Model != "" && wanted != model {
			continue
		}
		from := origin{n.cluster, cmp.Or(s.node.Provider, c.Provider)}
		held, ok := certificates[from]
		if !ok {
			held = certificatesOf(from.cluster, from.provider, c, certified)
			certificates[from] = held
		}
		out = append(out, packing.Node{
			ID: n.cluster + "/" + n.node, Count: 1, Cluster: n.cluster, Region: c.Region, Country: country[c.Region],
			Model: model, GPUs: gpus, CPUMilli: clampInt64(s.node.CPUMilli), MemoryMiB: clampInt64(s.node.MemoryMiB),
			Certifications: held, Dedicated: s.node.DedicatedWorkspace,
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

// certificatesOf returns what is certified of machines of a provider in a
// cluster, sorted.
func certificatesOf(cluster, provider string, c *domain.ClusterRegistered, certified []CertificationEntry) []string {
	held := slices.Clone(c.Certifications)
	for _, e := range certified {
		if e.Cluster != "" && e.Cluster == cluster || e.Provider != "" && e.Provider == provider {
			held = append(held, e.Certification)
		}
	}
	slices.Sort(held)
	return slices.Compact(held)
}

// mostGPUs returns the model of which there are most, and how many.
func mostGPUs(gpus []declared) (model string, n int) {
	counts := map[string]int{}
	for _, g := range gpus {
		counts[g.model]++
	}
	for m, k := range counts {
		if k > n || k == n && m < model {
			model, n = m, k
		}
	}
	return model, n
}

func clampInt64(v uint64) int64 { return int64(min(v, math.MaxInt64)) }
