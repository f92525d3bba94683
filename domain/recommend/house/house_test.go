package house_test

import (
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/advice"
	"quartermaster/domain/recommend"
	"quartermaster/domain/recommend/house"

	"github.com/shopspring/decimal"
)

// A hard quota of a workspace, or of one above it, bounds what replicas take besides.
func TestQuotas(t *testing.T) {
	e := &recommend.Estate{
		Figures: &advice.Figures{Limits: []advice.Limit{{
			Rule: advice.Quota, Workspace: "company", Name: "gpus", Hard: true, Unit: "nvidia.com/gpu", Region: "a",
			Used: decimal.NewFromInt(90), Limit: decimal.NewFromInt(100),
		}}},
		Clusters:    []recommend.Cluster{{ID: "here", Region: "a"}, {ID: "there", Region: "a"}, {ID: "far", Region: "b"}},
		Deployments: []recommend.Deployment{{Workspace: "team", Cluster: "here", Deployment: "d", GPUs: 4, Replicas: 2, GPUModel: "H100"}},
		Parents:     map[string]string{"team": "company"},
	}
	check := func(to string, replicas int64) []recommend.Checked {
		return house.Check(e, &recommend.Recommendation{Workspace: "team", Moves: []recommend.Move{{
			Workspace: "team", Deployment: "d", FromCluster: "here", ToCluster: to, Replicas: replicas, ToModel: "H100",
		}}})
	}
	if c := check("there", 2); len(c) != 1 || !c[0].Kept || c[0].Kind != "quota" {
		t.Errorf("8 of 10: %+v", c)
	}
	if c := check("there", 3); len(c) != 1 || c[0].Kept || c[0].Why != "10 of 100 nvidia.com/gpu are left, and this takes 12" {
		t.Errorf("12 of 10: %+v", c)
	}
	if c := check("far", 3); len(c) != 0 {
		t.Errorf("in another region: %+v", c)
	}
	e.Figures.Limits[0].Hard = false
	if c := check("there", 3); len(c) != 0 {
		t.Errorf("a soft one: %+v", c)
	}
}

// A hard budget bounds what a recommendation commits.
func TestBudgets(t *testing.T) {
	usd := func(n int64) domain.Money { return domain.Money{Amount: decimal.NewFromInt(n), Currency: "USD"} }
	e := &recommend.Estate{Figures: &advice.Figures{Limits: []advice.Limit{{
		Rule: advice.Budget, Workspace: "w", Name: "year", Hard: true, Unit: "USD", Used: decimal.NewFromInt(900), Limit: decimal.NewFromInt(1000),
	}}}}
	for cost, kept := range map[int64]bool{100: true, 101: false} {
		c := house.Check(e, &recommend.Recommendation{Workspace: "w", Cost: usd(cost)})
		if len(c) != 1 || c[0].Kept != kept {
			t.Errorf("%d of 100: %+v", cost, c)
		}
	}
	if c := house.Check(e, &recommend.Recommendation{Workspace: "w", Cost: domain.Money{Amount: decimal.NewFromInt(1), Currency: "EUR"}}); len(c) != 1 || c[0].Kept {
		t.Errorf("in another currency: %+v", c)
	}
}

// What is not declared cannot be checked, so it is not kept.
func TestUnknownIsNotKept(t *testing.T) {
	e := &recommend.Estate{Figures: &advice.Figures{}, Clusters: []recommend.Cluster{{ID: "c"}}}
	c := house.Check(e, &recommend.Recommendation{Moves: []recommend.Move{{Deployment: "x", FromCluster: "c", ToCluster: "c"}}})
	if len(c) != 1 || c[0].Kept {
		t.Errorf("%+v", c)
	}
}
