package projections_test

import (
	"encoding/json"
	"slices"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/plan"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

func wanted(cluster, pool, workspace, region, model string, hour int, running, pending uint64) domain.Envelope {
	span := domain.Interval{From: t0 + domain.Instant(hour)*domain.Hour, To: t0 + domain.Instant(hour+1)*domain.Hour}
	return domain.Envelope{Cluster: cluster, Workspace: workspace, Time: span.To, Recorded: span.To, Event: &domain.DemandObserved{
		Pool: pool, Region: region, Model: model, Unit: "gpu", Interval: span, RunningMilli: running, PendingMilli: pending,
	}}
}

// Demand of one kind in one region is one pool, whoever wants it; spot is what
// policies allow of it, weighted by who wants how much; quotas, commitments and
// the cost of capital are those in force and decided by whoever may.
func TestPlanQuestion(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	model := "H100 SXM 80GB"
	l := storetest.NewLog()
	share := func(workspace, id, selects, s string) domain.Envelope {
		return policy(root, workspace, domain.PolicySet{Policy: id, Kind: domain.PolicySpotShare, Selector: domain.Selector{Workspace: selects}, Share: domain.NullDecimal{Decimal: dec(s), Valid: true}})
	}
	l.Append(buyer(t0)...)
	l.Append(
		storetest.Cluster("c1", "acme", "aws", frankfurt.Region, t0), storetest.Node("c1", "n1", h100, 8, t0), storetest.Node("c1", "n2", h100, 4, t0), storetest.Node("c1", "n3", h100, 8, t0),
		wanted("c1", "a", "acme", "", h100, 0, 3000, 1000), wanted("c1", "a", "acme", "", h100, 2, 4000, 0),
		wanted("c1", "b", "beta", "", h100, 0, 1000, 0), wanted("c1", "far", "acme", "mars", h100, 0, 1000, 0),
		share("home", "all", "", "0.5"), share("home", "beta", "beta", "0.1"), share("home", "void", "acme", "0.9"),
		policy(root, "home", domain.PolicySet{Policy: "capital", Kind: domain.PolicyCostOfCapital, Share: domain.NullDecimal{Decimal: dec("0.06"), Valid: true}}),
		policy(root, "home", domain.PolicySet{Policy: "classes", Kind: domain.PolicySpotShare, Selector: domain.Selector{Class: domain.ClassBatch}, Share: domain.NullDecimal{Decimal: dec("0"), Valid: true}}),
		purchased(root, "home", "c-1", 3, days(-10, 90), 0),
		deployed("c1", "acme", domain.DeploymentChanged{Deployment: "d", Need: domain.GPUNeed{Count: 2}}),
	)
	view(t, l, func(v projections.View) {
		q, err := projections.PlanQuestion(v, t0+domain.Day, "", plan.Assumptions{AnnualRate: projections.FromPolicy})
		if err != nil {
			t.Fatal(err)
		}
		if !q.Assumptions.AnnualRate.Equal(dec("0.06")) {
			t.Errorf("annual rate %s, want that of the policy", q.Assumptions.AnnualRate)
		}
		i := slices.IndexFunc(q.Pools, func(p plan.Pool) bool { return p.Region == frankfurt.Region })
		if len(q.Pools) != 2 || i < 0 {
			t.Fatalf("%d pools", len(q.Pools))
		}
		p := q.Pools[i]
		if p.Kind != model || p.NodeGPUs != 8 || len(p.Series) != 2 || len(p.Mix) != 1 {
			t.Fatalf("pool of %s in nodes of %d GPUs, %d series, %d workloads", p.Kind, p.NodeGPUs, len(p.Series), len(p.Mix))
		}
		if p.Series[0].From != t0 {
			t.Errorf("series a begins at %s, want when it was first observed", p.Series[0].From)
		}
		if want := []int64{4000, -1, 4000}; !slices.Equal(p.Series[0].Milli, want) {
			t.Errorf("series a: %v, want %v", p.Series[0].Milli, want)
		}
		// acme may run half of its 8 GPU-hours on spot, beta a tenth of its one.
		if want := dec("8").Mul(dec("0.5")).Add(dec("0.1")).DivRound(dec("9"), 12); !p.SpotShare.Equal(want) {
			t.Errorf("spot share %s, want %s", p.SpotShare, want)
		}
		if len(q.Held) != 1 || q.Held[0].Units != 3 || !q.Held[0].Guaranteed {
			t.Errorf("held: %+v", q.Held)
		}
		if len(q.Packings) != 1 || len(q.Packings[0].Nodes) == 0 || len(q.Packings[0].Workloads) != 1 {
			t.Errorf("%d packings", len(q.Packings))
		}
		narrow, err := projections.PlanQuestion(v, t0+domain.Day, "mars", plan.Assumptions{})
		if err != nil || len(narrow.Pools) != 1 || len(narrow.Held) != 0 || len(narrow.Packings) != 0 {
			t.Errorf("of mars alone: %v", err)
		}
		again, err := projections.PlanQuestion(v, t0+domain.Day, "", plan.Assumptions{AnnualRate: projections.FromPolicy})
		if err != nil {
			t.Fatal(err)
		}
		a, _ := json.Marshal(q)
		b, _ := json.Marshal(again)
		if string(a) != string(b) {
			t.Error("asked twice, two answers")
		}
	})
}
