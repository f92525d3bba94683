package recommend_test

import (
	"slices"
	"testing"

	"quartermaster/domain"
	rules "quartermaster/domain/advice"
	propose "quartermaster/domain/recommend"
	"quartermaster/projections"
	"quartermaster/projections/advice"
	"quartermaster/projections/costs"
	"quartermaster/projections/recommend"
	"quartermaster/projections/storetest"
)

// The estate is what was declared and seen: places with their countries, certifications and free GPUs, deployments with what
// they held, policies of the house, and workspaces with their parents.
func TestRead(t *testing.T) {
	const tick = storetest.Start + 20*storetest.Minute
	born := storetest.Start - 31*domain.Day
	sign := func(workspace string, ev domain.Event) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: workspace, Time: born, Event: ev})
	}
	l := storetest.NewLog()
	l.Append(
		storetest.Cluster("lab", "acme", "example", "eu-1", born), storetest.Node("lab", "n", "H100 80GB", 2, born),
		sign("acme", &domain.WorkspaceRegistered{Name: "Acme", Parent: "home"}),
		sign("home", &domain.RegionDefined{Region: "eu-1", Country: "DE", UTCOffset: "+01:00"}),
		sign("home", &domain.RegionDefined{Region: "us-1", Country: "US", UTCOffset: "-05:00"}),
		sign("home", &domain.CertificationHeld{Provider: "example", Certification: "SOC 2", Valid: domain.Interval{From: born, To: tick + domain.Day}}),
		sign("home", &domain.CertificationHeld{Cluster: "lab", Certification: "old", Valid: domain.Interval{From: born, To: tick - domain.Day}}),
		sign("home", &domain.PolicySet{Policy: "stay", Kind: domain.PolicyResidency, EffectiveFrom: born, Countries: []string{"DE"}}),
		sign("home", &domain.PolicySet{Policy: "spot", Kind: domain.PolicyIdleCost, EffectiveFrom: born, Value: "owner"}),
		domain.Envelope{Cluster: "lab", Workspace: "team", Time: born, Event: &domain.DeploymentChanged{
			Deployment: "chat", Model: "llama", Class: domain.ClassServing, Replicas: 4, Need: domain.GPUNeed{Count: 1},
		}},
	)
	for at := storetest.Start - 8*domain.Day; at < storetest.Start; at += domain.Hour {
		l.Append(domain.Envelope{
			Source: "node-reporter/lab/n", Cluster: "lab", Time: at + domain.Hour,
			Event: storetest.Sample("n", domain.Interval{From: at, To: at + domain.Hour},
				storetest.Seen{ID: storetest.GPU("lab", "n", 0), Activity: 300, Workspace: "team", Deployment: "chat", Unit: "pod"},
				storetest.Seen{ID: storetest.GPU("lab", "n", 1)}),
		})
	}
	m, err := l.Fold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	storetest.Look(t, m, func(v projections.View) error {
		f, err := advice.Read(v, tick, advice.Options{})
		if err != nil {
			return err
		}
		e, err := recommend.Read(v, f, rules.Evaluate(f, nil), func(costs.Query) (*costs.Report, error) {
			t.Error("costs are asked for, and no price is known")
			return &costs.Report{}, nil
		})
		if err != nil {
			return err
		}
		if len(e.Clusters) != 1 || len(e.Deployments) != 1 {
			t.Fatalf("%+v", e)
		}
		c, d := &e.Clusters[0], &e.Deployments[0]
		if c.ID != "lab" || c.Country != "DE" || !slices.Equal(c.Certifications, []string{"SOC 2"}) || c.Free[d.GPUModel] != 1 {
			t.Errorf("cluster %+v", c)
		}
		// Four replicas at 30% are two at 60%: below the 70% at which a server is busy enough.
		if d.Cluster != "lab" || d.Workspace != "team" || d.GPUModel == "" || d.Activity != 300 || d.GPUs != 1 || d.Unneeded != 2 || d.Lacking != 0 {
			t.Errorf("deployment %+v", d)
		}
		if len(e.Policies) != 1 || e.Policies[0].Policy != "stay" || e.Parents["acme"] != "home" {
			t.Errorf("policies %+v, parents %v", e.Policies, e.Parents)
		}
		if want := (propose.RoundTrip{A: "eu-1", B: "us-1", Micros: 30_000}); !slices.Contains(e.RoundTrips, want) {
			t.Errorf("round trips %+v, want six time zones of 5 ms", e.RoundTrips)
		}
		if e.Plan != nil || len(e.Paid) > 0 {
			t.Errorf("plan %v, paid %v", e.Plan, e.Paid)
		}
		nodes, err := recommend.FreeNodes(v, tick, "")
		if err == nil && (len(nodes) != 1 || nodes[0].Free != 1 || nodes[0].Held != 1) {
			t.Errorf("nodes %+v, want one with one GPU free and one held", nodes)
		}
		return err
	})
}
