package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"quartermaster/domain/packing"
)

// fit is the number of machines per GPUs of demand, and how it was found.
type fit struct {
	// curve ascends in both values. It is piecewise linear from the origin; beyond the last point
	// it continues in proportion to that point.
	curve []Filled
	basis string
}

// Filled is an amount of GPU demand, in thousandths, and the machines that hold it.
type Filled struct {
	GPUMilli int64 `json:"gpu_milli"`
	Nodes    int64 `json:"nodes"`
}

// fitLevels are the levels of a mix, in thousandths, for which machines are counted: few replicas
// leave more of a machine unused than many.
var fitLevels = []int64{125, 250, 500, 1000, 2000, 4000}

// mostReplicas bounds the replicas that are packed to count machines.
const mostReplicas = 1_000_000

// perMachine packs the workloads of a pool onto machines of the kind for sale, if both are known.
// Otherwise a machine holds as many GPUs as it has.
func perMachine(p *Pool, s *shelf, country string) (*fit, error) {
	if !p.inGPUs() {
		return &fit{[]Filled{{1000, 1}}, "demand counts machines"}, nil
	}
	divided := func(why string, args ...any) (*fit, error) {
		return &fit{[]Filled{{int64(s.gpus) * 1000, 1}},
			fmt.Sprintf("%d GPUs fill a machine: ", s.gpus) + fmt.Sprintf(why, args...)}, nil
	}
	if len(p.Mix) == 0 {
		return divided("no deployments are declared for it")
	}
	if s.onDemand.CPUMilli == 0 || s.onDemand.MemoryMiB == 0 {
		return divided("CPU and memory of %s are not known", s.onDemand.SKU)
	}
	machine := packing.Node{
		ID: s.onDemand.SKU, Count: packing.Unlimited, Region: p.Region, Country: country, Model: s.onDemand.GPUModel,
		GPUs:     s.gpus,
		CPUMilli: clamped(s.onDemand.CPUMilli), MemoryMiB: clamped(s.onDemand.MemoryMiB),
	}
	mix := make([]packing.Workload, 0, len(p.Mix))
	replicas := int64(0)
	for _, w := range p.Mix {
		// A workload's bounds on places were met by choosing the pool. What remains is its shape
		// and anti-affinity within a machine.
		w.Models, w.Countries, w.Certifications, w.Clusters, w.ApartCluster = nil, nil, nil, nil, nil
		w.ApartIn = slices.DeleteFunc(slices.Clone(w.ApartIn), func(x packing.Apart) bool { return x.Cluster })
		mix = append(mix, w)
		replicas += int64(w.Replicas)
	}
	levels := slices.DeleteFunc(slices.Clone(fitLevels), func(l int64) bool {
		return l > 1000 && replicas*(l/1000) > mostReplicas
	})
	points, err := packing.Curve(context.Background(), []packing.Node{machine}, mix, levels, packing.Options{})
	if err != nil {
		return nil, &refusal{"its deployments could not be packed: " + err.Error(), "correct the deployments that it names"}
	}
	f := &fit{basis: fmt.Sprintf("packed %d workloads on machines like %s", len(mix), s.onDemand.SKU)}
	for i, x := range points {
		switch {
		case x.Level == 1000 && x.Unplaced > 0:
			return divided("%d of %d replicas fit no machine of this kind", x.Unplaced, replicas)
		case x.Level == 1000 && (x.Nodes == 0 || x.GPUMilli < 1000):
			return divided("what is declared needs less than a GPU")
		case x.GPUMilli == 0 || x.Nodes == 0, i > 0 && x.GPUMilli == points[i-1].GPUMilli:
		default:
			f.curve = append(f.curve, Filled{x.GPUMilli, int64(x.Nodes)})
		}
	}
	return f, nil
}

// pack reports for each region whether the declared workloads fit its fleet.
func (c *composer) pack(p *Plan) {
	packings := slices.Clone(c.q.Packings)
	slices.SortFunc(packings, func(x, y Packing) int { return cmp.Compare(x.Region, y.Region) })
	for i := range packings {
		k := &packings[i]
		r, err := packing.Pack(k.Nodes, k.Workloads, packing.Options{})
		if err != nil {
			p.Excluded = append(p.Excluded, ExcludedPool{
				Region: k.Region, Reason: "what is declared there could not be packed onto the fleet: " + err.Error(),
				Next: "correct the deployments and nodes that it names",
			})
			continue
		}
		p.region(k.Region).Packing = newPackingReport(r)
	}
}

// PackingReport says whether the declared workloads of a region fit its fleet.
type PackingReport struct {
	Order          string             `json:"order"`
	NodesUsed      int                `json:"nodes_used"`
	NodesNeeded    int                `json:"nodes_lower_bound"`
	GPUMilliNeeded int64              `json:"gpu_milli_needed"`
	GPUMilliPlaced int64              `json:"gpu_milli_placed"`
	GPUMilliTotal  int64              `json:"gpu_milli_total"`
	Stranded       []packing.Stranded `json:"stranded"`
	Unplaced       Unplaced           `json:"unplaced"`
}

// Unplaced adds up the workloads that found no place.
type Unplaced struct {
	Workloads int `json:"workloads"`
	Replicas  int `json:"replicas"`
	// RuledOut counts, over those workloads, the machines that each constraint was the first to
	// rule out.
	RuledOut []packing.RuledOut `json:"ruled_out"`
	// First are the first few of them.
	First []packing.Unplaced `json:"first"`
}

// listedUnplaced is the number of workloads that a plan names; "quartermaster fleet packing" lists
// all.
const listedUnplaced = 10

func newPackingReport(r *packing.Result) *PackingReport {
	out := &PackingReport{
		Order: r.Order, NodesUsed: r.NodesUsed, NodesNeeded: r.LowerBound, GPUMilliNeeded: r.GPUMilliNeeded,
		GPUMilliPlaced: r.GPUMilliPlaced, GPUMilliTotal: r.GPUMilliTotal, Stranded: r.Stranded,
		Unplaced: Unplaced{Workloads: len(r.Unplaced), RuledOut: []packing.RuledOut{}, First: []packing.Unplaced{}},
	}
	for i, u := range r.Unplaced {
		out.Unplaced.Replicas += u.Replicas
		if i < listedUnplaced {
			out.Unplaced.First = append(out.Unplaced.First, u)
		}
		for _, ruled := range u.RuledOut {
			at := slices.IndexFunc(out.Unplaced.RuledOut, func(x packing.RuledOut) bool {
				return x.Constraint == ruled.Constraint
			})
			if at < 0 {
				out.Unplaced.RuledOut = append(out.Unplaced.RuledOut, ruled)
			} else {
				out.Unplaced.RuledOut[at].Machines += ruled.Machines
			}
		}
	}
	slices.SortFunc(out.Unplaced.RuledOut, func(a, b packing.RuledOut) int {
		return cmp.Or(cmp.Compare(b.Machines, a.Machines), cmp.Compare(a.Constraint, b.Constraint))
	})
	return out
}
