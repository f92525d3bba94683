package recommend

import (
	"cmp"
	"slices"

	"github.com/shopspring/decimal"
)

// FreeNode is a healthy machine with its whole GPUs that nobody holds, and those that somebody does.
type FreeNode struct {
	Cluster, Node, GPUModel string
	Free, Held              int64
}

// Headroom says what clusters can still take.
type Headroom struct {
	Rows []Room `json:"rows"` // by cluster and deployment
}

// Room is what a cluster can still take of a deployment that it runs.
type Room struct {
	Cluster    string `json:"cluster"`
	Region     string `json:"region"`
	Workspace  string `json:"workspace"`
	Deployment string `json:"deployment"`
	Model      string `json:"model,omitempty"`
	GPUModel   string `json:"gpu_model"`
	GPUs       int64  `json:"gpus_per_replica"`
	Replicas   int64  `json:"replicas"` // declared
	Fits       int64  `json:"fits"`     // replicas that fit besides, node by node
	// AfterLoss is Fits after the loss of the machine that would hurt most, if all that it held had to be placed again as
	// replicas of this shape. Below 0: so many would find no place.
	AfterLoss int64 `json:"fits_after_node_loss"`
	// Targets are where else replicas may run, the cheapest first: allowed by policy, and within the latency budget.
	Targets []Target `json:"overflow_targets"`
}

// Target is a cluster that may take what does not fit.
type Target struct {
	Cluster    string          `json:"cluster"`
	Region     string          `json:"region"`
	Fits       int64           `json:"fits"`
	Micros     uint64          `json:"round_trip_micros"`
	Measured   bool            `json:"round_trip_measured"` // false: about 5 ms for each time zone
	PerGPUHour decimal.Decimal `json:"per_gpu_hour"`        // effective price; 0: not known
	Currency   string          `json:"currency,omitempty"`
}

// NewHeadroom says what the clusters of a region can take, "" for all. check finds policies that a move would break.
func NewHeadroom(e *Estate, nodes []FreeNode, region string, check func(*Estate, *Recommendation) []Checked) *Headroom {
	m := &maker{e: e}
	of := map[[2]string][]FreeNode{}
	for _, n := range nodes {
		k := [2]string{n.Cluster, n.GPUModel}
		of[k] = append(of[k], n)
	}
	prices := map[[2]string]int{}
	for i := range e.Figures.Prices {
		prices[[2]string{e.Figures.Prices[i].Cluster, e.Figures.Prices[i].GPUModel}] = i
	}
	home := map[string]*Cluster{}
	for i := range e.Clusters {
		home[e.Clusters[i].ID] = &e.Clusters[i]
	}
	h := &Headroom{Rows: []Room{}}
	for i := range e.Deployments {
		d := &e.Deployments[i]
		at := home[d.Cluster]
		if at == nil || d.GPUs <= 0 || d.GPUModel == "" || region != "" && at.Region != region {
			continue
		}
		r := Room{
			Cluster: d.Cluster, Region: at.Region, Workspace: d.Workspace, Deployment: d.Deployment, Model: d.Model, GPUModel: d.GPUModel, GPUs: d.GPUs,
			Replicas: d.Replicas, Targets: []Target{},
		}
		r.Fits, r.AfterLoss = fits(of[[2]string{d.Cluster, d.GPUModel}], d.GPUs)
		for k := range e.Clusters {
			c := &e.Clusters[k]
			room, _ := fits(of[[2]string{c.ID, d.GPUModel}], d.GPUs)
			if c.ID == d.Cluster || room == 0 || !lives(d, c) {
				continue
			}
			t := Target{Cluster: c.ID, Region: c.Region, Fits: room, Measured: true}
			if c.Region != at.Region {
				t.Micros, t.Measured = m.round(at.Region, c.Region)
				if t.Micros >= unknownTrip || d.LatencyMicros > 0 && t.Micros > d.LatencyMicros {
					continue
				}
			}
			probe := Recommendation{Workspace: d.Workspace, Moves: []Move{{
				Workspace: d.Workspace, Deployment: d.Deployment, FromCluster: d.Cluster, ToCluster: c.ID, Replicas: 1, ToModel: d.GPUModel,
			}}}
			if slices.ContainsFunc(check(e, &probe), func(c Checked) bool { return !c.Kept }) {
				continue
			}
			if p, ok := prices[[2]string{c.ID, d.GPUModel}]; ok {
				t.PerGPUHour, t.Currency = e.Figures.Prices[p].PerGPUHour.Amount, e.Figures.Prices[p].PerGPUHour.Currency
			}
			r.Targets = append(r.Targets, t)
		}
		slices.SortFunc(r.Targets, func(a, b Target) int {
			return cmp.Or(a.PerGPUHour.Cmp(b.PerGPUHour), cmp.Compare(a.Micros, b.Micros), cmp.Compare(a.Cluster, b.Cluster))
		})
		h.Rows = append(h.Rows, r)
	}
	return h
}

// unknownTrip stands for a round trip that nobody knows.
const unknownTrip = 1 << 40

// fits returns how many replicas of some GPUs fit on machines, and how many do after the worst loss of one of them.
func fits(nodes []FreeNode, gpus int64) (now, afterLoss int64) {
	for _, n := range nodes {
		now += n.Free / gpus
	}
	if len(nodes) == 0 {
		return 0, 0
	}
	worst := int64(0)
	for _, n := range nodes {
		worst = max(worst, n.Free/gpus+(n.Held+gpus-1)/gpus)
	}
	return now, now - worst
}
