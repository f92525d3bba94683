package recommend_test

import (
	"reflect"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/recommend"
	"quartermaster/domain/recommend/house"

	"github.com/shopspring/decimal"
)

func TestHeadroom(t *testing.T) {
	usd := func(n int64) domain.Money { return domain.Money{Amount: decimal.NewFromInt(n), Currency: "USD"} }
	e := &recommend.Estate{
		Figures: &advice.Figures{Prices: []advice.Price{
			{Cluster: "here", GPUModel: "H100", PerGPUHour: usd(3)}, {Cluster: "dear", GPUModel: "H100", PerGPUHour: usd(4)},
			{Cluster: "cheap", GPUModel: "H100", PerGPUHour: usd(2)}, {Cluster: "far", GPUModel: "H100", PerGPUHour: usd(1)},
			{Cluster: "abroad", GPUModel: "H100", PerGPUHour: usd(1)},
		}},
		Clusters: []recommend.Cluster{
			{ID: "here", Region: "a", Country: "DE"}, {ID: "dear", Region: "a", Country: "DE"}, {ID: "cheap", Region: "b", Country: "DE"},
			{ID: "far", Region: "c", Country: "DE"}, {ID: "abroad", Region: "d", Country: "US"}, {ID: "unknown", Region: "e", Country: "DE"},
		},
		Deployments: []recommend.Deployment{{Workspace: "w", Cluster: "here", Deployment: "d", GPUModel: "H100", GPUs: 4, Replicas: 3, LatencyMicros: 30_000}},
		Policies:    []recommend.Policy{{Workspace: "platform", PolicySet: domain.PolicySet{Policy: "stay", Kind: domain.PolicyResidency, Countries: []string{"DE"}}}},
		RoundTrips:  []recommend.RoundTrip{{A: "b", B: "a", Micros: 20_000, Measured: true}, {A: "a", B: "c", Micros: 50_000}, {A: "a", B: "d", Micros: 1_000}},
	}
	var nodes []recommend.FreeNode
	for _, c := range []string{"dear", "cheap", "far", "abroad", "unknown"} {
		nodes = append(nodes, recommend.FreeNode{Cluster: c, Node: c + "/n", GPUModel: "H100", Free: 8})
	}
	// 5 and 3 GPUs are free on two machines: one replica of 4, not two. The loss of the first takes it, and the 3 that it holds
	// need a place, too.
	nodes = append(nodes, recommend.FreeNode{Cluster: "here", Node: "n1", GPUModel: "H100", Free: 5, Held: 3}, recommend.FreeNode{Cluster: "here", Node: "n2", GPUModel: "H100", Free: 3, Held: 5})
	rows := recommend.NewHeadroom(e, nodes, "a", house.Check).Rows
	if len(rows) != 1 {
		t.Fatalf("%d rows, want one", len(rows))
	}
	if r := rows[0]; r.Fits != 1 || r.AfterLoss != -1 {
		t.Errorf("%d replicas fit, and %d after a loss; want 1 and -1", r.Fits, r.AfterLoss)
	}
	var targets []string
	for _, o := range rows[0].Targets {
		targets = append(targets, o.Cluster)
	}
	// Far is beyond the latency budget, abroad is not allowed, and nobody knows how far the last one is.
	if !reflect.DeepEqual(targets, []string{"cheap", "dear"}) {
		t.Errorf("targets %v, want cheap and dear", targets)
	}
	if got := recommend.NewHeadroom(e, nodes, "b", house.Check).Rows; len(got) != 0 {
		t.Errorf("region b has %d rows", len(got))
	}
}
