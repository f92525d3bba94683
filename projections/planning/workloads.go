package planning

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"quartermaster/domain"
	"quartermaster/domain/packing"
	"quartermaster/projections"
	"quartermaster/projections/demand"
	"quartermaster/projections/inventory"
	"quartermaster/projections/market"
	"quartermaster/projections/registry"
)

// WorkloadFilter selects workloads; empty fields match all.
type WorkloadFilter struct {
	Workspace, Cluster, Deployment string
	Region                         string // of the cluster
	Class                          domain.WorkloadClass
}

// Ruling says what a policy did to workloads, to explain a plan.
type Ruling struct {
	Workspace  string             `json:"workspace"` // that set the policy
	Policy     string             `json:"policy"`
	Kind       domain.PolicyKind  `json:"kind"`
	Constraint packing.Constraint `json:"constraint"` // under which it appears in a packing
	Workloads  []string           `json:"workloads"`  // ids, sorted
	// Emptied are those of them for which this policy left nothing allowed, after their own
	// requirements and the policies before it: [demand.Nowhere].
	Emptied []string `json:"emptied,omitempty"`
}

// workload is a deployment that is being converted for a packing.
type workload struct {
	packing.Workload
	cluster, tier, environment string
	region, country            string // of the cluster
	shown                      bool
}

// Workloads returns the deployments declared at a time as workloads to pack, by id, which is
// "cluster/deployment", and the policies that apply to them, by workspace and policy.
//
// A workload has the requirements of its deployment and of every valid policy whose selector
// matches it: it may be only where all of them allow, and has all certifications that any of them
// needs. Policies of the root workspace, whose operators decide everywhere, bind every workload;
// those of another workspace bind its own. A workload is not bound to the cluster that declares it;
// callers that need this must filter.
//
// "Apart" is between workloads: replicas of one are limited only by max_per_node. If its selectors
// name regions or countries, it binds the machines there ([packing.Workload.ApartIn]), wherever
// deployments are declared. For all other policies the region of a workload is that of the cluster
// that declares it. A replica that is a gang over several nodes counts as that many replicas, and
// one node takes at most one of each gang. That a gang needs one fabric domain is not part of a
// packing.
func Workloads(
	view projections.View, a *registry.Authority, at domain.Instant, f WorkloadFilter,
) ([]packing.Workload, []Ruling, error) {
	loads, err := readWorkloads(view, at, f)
	if err != nil {
		return nil, nil, err
	}
	rulings := []Ruling{}
	err = view.Scan(projections.Query{Table: projections.TablePolicies}, func(k projections.Key, row projections.Row) error {
		v := a.At(k, row.(*projections.History), at)
		if v == nil {
			return nil
		}
		p := v.Event.(*domain.PolicySet)
		if p.EffectiveTo != 0 && at >= p.EffectiveTo {
			return nil
		}
		binds := k.Scope
		if binds == a.Root() {
			binds = ""
		}
		if r := rule(k.Scope, binds, p, loads); len(r.Workloads) > 0 {
			rulings = append(rulings, r)
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read policies: %w", err)
	}
	out := []packing.Workload{}
	for i := range loads {
		if loads[i].shown {
			out = append(out, loads[i].Workload)
		}
	}
	return out, rulings, nil
}

// readWorkloads returns every deployment with replicas, by id.
func readWorkloads(view projections.View, at domain.Instant, f WorkloadFilter) ([]workload, error) {
	clusters, err := inventory.ReadClusters(view)
	if err != nil {
		return nil, err
	}
	countries, err := inventory.Countries(view, at)
	if err != nil {
		return nil, err
	}
	present, err := modelsPresent(view, at)
	if err != nil {
		return nil, err
	}
	var out []workload
	err = view.Scan(projections.Query{Table: projections.TableDeployments}, func(k projections.Key, row projections.Row) error {
		v := row.(*projections.History).At(at)
		if v == nil {
			return nil
		}
		d, ok := v.Event.(*domain.DeploymentChanged)
		if !ok || d.Replicas == 0 {
			return nil
		}
		w := workload{
			Workload: packing.Workload{
				ID: k.Scope + "/" + d.Deployment, Workspace: v.Workspace, Class: string(d.Class), Deployment: d.Deployment,
				Replicas: int(d.Replicas), CPUMilli: clampInt64(d.Need.CPUMilli), MemoryMiB: clampInt64(d.Need.RAMMiB),
				Countries: sortedSet(d.Countries), Certifications: sortedSet(d.Certifications),
				Dedicated: d.Dedicated, MaxPerNode: int(d.MaxPerNode),
			},
			cluster: k.Scope, tier: d.Tier, environment: d.Environment,
		}
		w.GPUMilli, w.Models = demand.GPUNeed(&d.Need, present)
		if g := uint64(d.Need.GangNodes); g > 1 {
			if w.MaxPerNode == 0 || w.MaxPerNode > w.Replicas {
				w.MaxPerNode = w.Replicas
			}
			w.Replicas = int(clampInt64(uint64(d.Replicas) * g))
		}
		if c, _ := clusters.Cluster(k.Scope, at); c != nil {
			w.region, w.country = c.Region, countries[c.Region]
		}
		w.shown = (f.Workspace == "" || f.Workspace == v.Workspace) && (f.Cluster == "" || f.Cluster == k.Scope) &&
			(f.Deployment == "" || f.Deployment == d.Deployment) && (f.Class == "" || f.Class == d.Class) &&
			(f.Region == "" || f.Region == w.region)
		out = append(out, w)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read deployments: %w", err)
	}
	slices.SortFunc(out, func(a, b workload) int { return cmp.Compare(a.ID, b.ID) })
	for i := 1; i < len(out); i++ {
		if out[i].ID == out[i-1].ID {
			return nil, fmt.Errorf("two deployments are both called %q", out[i].ID)
		}
	}
	return out, nil
}

// modelsPresent returns the GPU models of the nodes declared at a time, sorted.
func modelsPresent(view projections.View, at domain.Instant) ([]string, error) {
	models := map[string]bool{}
	err := view.Scan(projections.Query{Table: projections.TableNodes}, func(_ projections.Key, row projections.Row) error {
		if v := row.(*projections.History).At(at); v != nil {
			if n, ok := v.Event.(*domain.NodeRegistered); ok {
				for i := range n.GPUs {
					models[market.ModelName(n.GPUs[i].Model)] = true
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	return slices.Sorted(maps.Keys(models)), nil
}

// rule applies a policy to the workloads that it binds: those of a workspace, or all if that is
// empty.
func rule(workspace, binds string, p *domain.PolicySet, loads []workload) Ruling {
	r := Ruling{Workspace: workspace, Policy: p.Policy, Kind: p.Kind}
	var from []apartFrom
	switch p.Kind {
	case domain.PolicyResidency:
		r.Constraint = packing.ResidencyConstraint
	case domain.PolicyCertification:
		r.Constraint = packing.CertificationConstraint
	case domain.PolicyPlacement:
		r.Constraint = packing.PlacementConstraint
	case domain.PolicyDedicated:
		r.Constraint = packing.DedicatedConstraint
	case domain.PolicyApart:
		r.Constraint = packing.ApartConstraint
		from = separations(p, loads)
	default:
		return r // the policy does not affect packing
	}
	for i := range loads {
		w := &loads[i]
		if binds != "" && binds != w.Workspace || !picks(&p.Selector, w) ||
			p.Kind != domain.PolicyApart && !p.Selector.In(w.region, w.country) {
			continue
		}
		emptied := false
		switch p.Kind {
		case domain.PolicyResidency:
			w.Countries, emptied = narrow(w.Countries, p.Countries)
		case domain.PolicyPlacement:
			w.Clusters, emptied = narrow(w.Clusters, p.Clusters)
		case domain.PolicyCertification:
			w.Certifications = sortedSet(append(slices.Clone(w.Certifications), p.Certifications...))
		case domain.PolicyDedicated:
			w.Dedicated = true
		case domain.PolicyApart:
			w.keepApart(from, p.Scope == "cluster")
		}
		if w.shown {
			r.Workloads = append(r.Workloads, w.ID)
			if emptied {
				r.Emptied = append(r.Emptied, w.ID)
			}
		}
	}
	return r
}

// picks reports whether a selector matches a workload, ignoring its place.
func picks(s *domain.Selector, w *workload) bool {
	return (s.Workspace == "" || s.Workspace == w.Workspace) && (s.Class == "" || string(s.Class) == w.Class) &&
		(s.Deployment == "" || s.Deployment == w.Deployment) && (s.Cluster == "" || s.Cluster == w.cluster) &&
		(s.Tier == "" || s.Tier == w.tier) && (s.Environment == "" || s.Environment == w.environment)
}

// apartFrom is a set of workloads to stay away from, and where.
type apartFrom struct {
	ids []string // sorted
	in  packing.Place
}

// separations returns the workloads that a policy separates its workloads from, by place, in the
// order of its selectors. Workloads that share a machine are in the same place, so only places in
// both selectors count.
func separations(p *domain.PolicySet, loads []workload) []apartFrom {
	var out []apartFrom
	for i := range p.Others {
		s := &p.Others[i]
		in, ok := meet(&p.Selector, s)
		if !ok {
			continue
		}
		k := slices.IndexFunc(out, func(x apartFrom) bool {
			return slices.Equal(x.in.Regions, in.Regions) && slices.Equal(x.in.Countries, in.Countries)
		})
		if k < 0 {
			k = len(out)
			out = append(out, apartFrom{in: in})
		}
		for j := range loads {
			if picks(s, &loads[j]) {
				out[k].ids = append(out[k].ids, loads[j].ID)
			}
		}
	}
	for i := range out {
		out[i].ids = sortedSet(out[i].ids)
	}
	return out
}

// meet returns the common place of two selectors, and false if there is none.
func meet(s, t *domain.Selector) (packing.Place, bool) {
	both := func(a, b []string) (list []string, some bool) {
		switch {
		case len(a) == 0:
			return sortedSet(b), true
		case len(b) == 0:
			return sortedSet(a), true
		}
		for _, x := range sortedSet(a) {
			if slices.Contains(b, x) {
				list = append(list, x)
			}
		}
		return list, len(list) > 0
	}
	regions, ok := both(s.Regions, t.Regions)
	countries, too := both(s.Countries, t.Countries)
	return packing.Place{Regions: regions, Countries: countries}, ok && too
}

// keepApart separates a workload from others.
func (w *workload) keepApart(from []apartFrom, cluster bool) {
	for _, x := range from {
		if len(x.in.Regions)+len(x.in.Countries) > 0 {
			if ids := joinOthers(nil, x.ids, w.ID); len(ids) > 0 {
				w.ApartIn = append(w.ApartIn, packing.Apart{Workloads: ids, Cluster: cluster, In: x.in})
			}
			continue
		}
		list := &w.ApartNode
		if cluster {
			list = &w.ApartCluster
		}
		*list = joinOthers(*list, x.ids, w.ID)
	}
}

// narrow returns the intersection of the allowed entries (nothing stands for everything)
// and the entries that a rule allows, and whether the rule emptied it.
func narrow(allowed, by []string) (both []string, emptied bool) {
	if len(allowed) == 0 {
		return sortedSet(by), false
	}
	for _, x := range allowed {
		if slices.Contains(by, x) {
			both = append(both, x)
		}
	}
	if len(both) == 0 {
		return []string{demand.Nowhere}, allowed[0] != demand.Nowhere
	}
	return both, false
}

// joinOthers merges two sorted lists of ids, without own. Thousands of workloads may be apart from
// the same thousands, so lists are shared where possible.
func joinOthers(have, others []string, own string) []string {
	if i, ok := slices.BinarySearch(others, own); ok {
		others = slices.Concat(others[:i], others[i+1:])
	}
	if len(have) == 0 {
		return others
	}
	return sortedSet(slices.Concat(have, others))
}

func sortedSet(xs []string) []string {
	if len(xs) == 0 {
		return nil
	}
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return slices.Compact(xs)
}
