package costs_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shopspring/decimal"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/storetest"
)

// served is the house with a model server that reported in the first of its two hours, and jobs.
func servedHouse() *storetest.Log {
	l := house()
	l.Append(domain.Envelope{Source: "scraper", Cluster: "c", Time: storetest.Start + domain.Hour, Event: &domain.ServingSampled{
		Interval: storetest.Span(0, 60), Deployment: "chat", Model: "llama", Engine: "vllm",
		PromptTokens: 3_000_000, GenerationTokens: 1_000_000, RequestsOK: 2000, RequestsFailed: 10,
	}})
	for i, outcome := range []domain.JobOutcome{domain.JobSucceeded, domain.JobSucceeded, domain.JobFailed} {
		job := fmt.Sprint("job", i)
		l.Append(
			domain.Envelope{Source: "slurm", Workspace: "b", Cluster: "c", Time: storetest.Start, Event: &domain.JobQueued{
				Job: job, Deployment: "train", Class: domain.ClassTraining, Need: domain.GPUNeed{Count: 1}}},
			domain.Envelope{Source: "slurm", Workspace: "b", Cluster: "c", Time: storetest.Start + domain.Hour, Event: &domain.JobFinished{
				Job: job, Outcome: outcome}})
	}
	return l
}

func units(t *testing.T, l *storetest.Log, per costs.UnitOf, by ...costs.Dimension) (r *costs.UnitReport) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		u, err := costs.NewUnitSums(v, costs.UnitQuery{Month: storetest.MayBill, Per: per, By: by})
		if err != nil {
			t.Fatal(err)
		}
		if r, err = u.Divide(v); err != nil {
			t.Fatal(err)
		}
	})
	return r
}

func unitText(r *costs.UnitReport) (out []string) {
	for _, g := range r.Groups {
		text := fmt.Sprintf("%v %s %s", g.Key, g.Currency, g.Absent)
		if g.Upper != nil {
			text = fmt.Sprintf("%v %s %s..%s", g.Key, g.Currency, g.Lower, g.Upper)
		}
		out = append(out, text)
	}
	return out
}

// The cost of a unit is what deployments are charged, by what they did: tokens, requests and jobs where they were
// counted, and nothing where they were not. What is counted and what is not adds up to the cost of deployments.
func TestUnitCosts(t *testing.T) {
	l := servedHouse()
	full := report(t, l, costs.Query{Month: storetest.MayBill, By: []costs.Dimension{costs.ByDeployment, costs.ByCluster}})
	of := map[string]costs.Cost{}
	for _, g := range full.Groups {
		of[g.Key[costs.ByDeployment]+" "+g.Currency] = g.Cost
	}
	tokens := units(t, l, costs.UnitMillionTokens, costs.ByModel, costs.ByWorkspace)
	for _, g := range tokens.Groups {
		chat := of["chat "+g.Currency]
		if g.Key[costs.ByModel] != "llama" || g.Key[costs.ByWorkspace] != "a" || g.Effective != chat.Effective || g.PromptTokens != 3_000_000 || g.GeneratedTokens != 1_000_000 {
			t.Errorf("tokens: %+v, want the cost %s", g, chat.Effective)
		}
		if want := chat.Effective.Decimal().DivRound(storetest.Dec("4"), 9); !g.Upper.Equal(want) || g.Lower.Cmp(*g.Upper) > 0 {
			t.Errorf("a million tokens cost %s to %s, want at most %s", g.Lower, g.Upper, want)
		}
	}
	if len(tokens.Groups) != 2 || len(tokens.NotCounted) != 2 || *tokens.Groups[1].Coverage != 590 /* 7,800 of 13,200 s */ {
		t.Fatalf("tokens: %+v", tokens)
	}
	for _, n := range tokens.NotCounted {
		if n.Effective != of["train "+n.Currency].Effective || n.Deployments != 1 {
			t.Errorf("%+v is not counted, want %s", n, of["train "+n.Currency].Effective)
		}
	}
	jobs := units(t, l, costs.UnitJob, costs.ByWorkspace)
	for _, g := range jobs.Groups {
		want := of["train "+g.Currency].Effective.Decimal().DivRound(storetest.Dec("2"), 9)
		if g.Key[costs.ByWorkspace] != "b" || g.Jobs != 2 || g.JobsFailed != 1 || !g.Upper.Equal(want) || g.Coverage != nil {
			t.Errorf("jobs: %+v, want %s", g, want)
		}
	}
	requests := units(t, l, costs.UnitRequest)
	if g := requests.Groups[0]; g.Requests != 2000 || g.RequestsFailed != 10 || !g.Upper.Equal(of["chat "+g.Currency].Effective.Decimal().DivRound(storetest.Dec("2000"), 9)) {
		t.Errorf("requests: %+v", g)
	}
	useful := units(t, l, costs.UnitUsefulGPUHour, costs.ByDeployment)
	for _, g := range useful.Groups {
		if c := of[g.Key[costs.ByDeployment]+" "+g.Currency]; g.Effective != c.Effective || c.Useful == nil || g.Useful != *c.Useful || *g.Coverage != 1000 {
			t.Errorf("useful: %+v, want %+v", g, c)
		} else if c.PerUseful != nil && !g.Upper.Round(6).Equal(*c.PerUseful) {
			t.Errorf("a useful hour of %v costs %s, want %s", g.Key, g.Upper, c.PerUseful)
		}
	}
	// A model that is declared counts, not the name that model servers give it.
	l.Append(domain.Envelope{Workspace: "a", Cluster: "c", Time: storetest.Start - domain.Day, Event: &domain.DeploymentChanged{
		Deployment: "chat", Model: "meta/llama", Class: domain.ClassServing, Replicas: 1, Need: domain.GPUNeed{Count: 1},
	}})
	for i, g := range units(t, l, costs.UnitMillionTokens, costs.ByModel).Groups {
		if g.Key[costs.ByModel] != "meta/llama" || g.Effective != tokens.Groups[i].Effective {
			t.Errorf("tokens of a declared model: %+v", g)
		}
	}
	if none := units(t, house(), costs.UnitMillionTokens, costs.ByModel); len(none.Groups) != 0 || len(none.NotCounted) == 0 {
		t.Errorf("without tokens: %q", unitText(none))
	}
}

// Jobs that name no deployment are set against what their workspace held without one, or against the deployment of their
// own name. A machine of two GPUs costs 40 for two hours: 10 for each GPU-hour.
func TestUnitCostsOfJobsWithoutDeployment(t *testing.T) {
	l := house()
	l.Append(domain.Envelope{Workspace: "own", Cluster: "f", Time: storetest.Start - domain.Day, Event: &domain.ClusterRegistered{
		Provider: "q", ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: "9",
	}})
	env := storetest.Node("f", "m1", "H100 80GB", 2, storetest.Start-domain.Day)
	env.Event.(*domain.NodeRegistered).ResourceID = "m-f"
	l.Append(env, recorded(billLine("41-f", "40", func(b *domain.BillingLine) {
		b.BillingAccountID, b.InvoiceID, b.ResourceID = "9", "", "m-f"
		b.ChargePeriodStart, b.ChargePeriodEnd = storetest.Start, storetest.Start+2*domain.Hour
		b.PricingQuantity, b.PricingUnit, b.ServiceCategory = decimal.NewNullDecimal(storetest.Dec("2")), "Hours", "Compute"
	})))
	held := func(from, to int, second storetest.Seen) {
		first := storetest.Seen{ID: storetest.GPU("f", "m1", 0), Workspace: "b", Activity: 500}
		second.ID = storetest.GPU("f", "m1", 1)
		i := storetest.Span(from, to)
		l.Append(domain.Envelope{Source: "reporter/f", Cluster: "f", Time: i.To, Event: storetest.Sample("m1", i, first, second)})
	}
	held(0, 60, storetest.Seen{Workspace: "a"})
	held(60, 120, storetest.Seen{Workspace: "a", Deployment: "solo"})
	job := func(name, workspace string, outcome domain.JobOutcome) {
		l.Append(
			domain.Envelope{Source: "slurm", Workspace: workspace, Cluster: "f", Time: storetest.Start, Event: &domain.JobQueued{
				Job: name, Class: domain.ClassTraining, Need: domain.GPUNeed{Count: 1}}},
			domain.Envelope{Source: "slurm", Workspace: workspace, Cluster: "f", Time: storetest.Start + domain.Hour, Event: &domain.JobFinished{
				Job: name, Outcome: outcome}})
	}
	job("one", "b", domain.JobSucceeded)
	job("two", "b", domain.JobSucceeded)
	job("three", "b", domain.JobFailed)
	job("solo", "a", domain.JobSucceeded)
	job("four", "c", domain.JobSucceeded) // of a workspace that held nothing
	r := units(t, l, costs.UnitJob, costs.ByWorkspace, costs.ByDeployment)
	want := []string{
		"map[deployment:solo workspace:a] USD 10..10", // an hour for one job
		"map[deployment: workspace:b] USD 10..10",     // two hours for two jobs
	}
	if got := unitText(r); !slices.Equal(got, want) {
		t.Errorf("jobs cost %q, want %q", got, want)
	}
	if g := r.Groups[1]; g.Effective.String() != "20" || g.Jobs != 2 || g.JobsFailed != 1 {
		t.Errorf("jobs of no deployment: %+v", g)
	}
	// What a held without a deployment and without jobs is not listed as a deployment that was not counted.
	for _, n := range r.NotCounted {
		if n.Deployments != 2 && n.Currency == "USD" {
			t.Errorf("%+v is not counted, want chat and train", n)
		}
	}
}

// A bought GPU-hour is compared with the fleet's mean of the same GPU model, and of no other.
func TestUnitCostsCompareProviders(t *testing.T) {
	l := house()
	other := func(cluster, provider, model, account string) {
		l.Append(domain.Envelope{Workspace: "own", Cluster: cluster, Time: storetest.Start - domain.Day, Event: &domain.ClusterRegistered{
			Provider: provider, ProviderClass: domain.Neocloud, Region: "eu", BillingAccount: account,
		}})
		env := storetest.Node(cluster, "m1", model, 2, storetest.Start-domain.Day)
		env.Event.(*domain.NodeRegistered).ResourceID = "m-" + cluster
		l.Append(env, recorded(billLine("31-"+cluster, "40", func(b *domain.BillingLine) {
			b.BillingAccountID, b.InvoiceID, b.ResourceID = account, "", "m-"+cluster
			b.ChargePeriodStart, b.ChargePeriodEnd = storetest.Start, storetest.Start+2*domain.Hour
			b.PricingQuantity, b.PricingUnit, b.ServiceCategory = decimal.NewNullDecimal(storetest.Dec("2")), "Hours", "Compute"
		})))
	}
	other("d", "q", "H100 80GB", "7")
	other("e", "q", "A100 80GB", "8")
	var got []string
	r := units(t, l, costs.UnitUsefulGPUHour)
	var bought int64
	sum := costs.ProviderCost{}
	for _, p := range r.Providers {
		got = append(got, fmt.Sprint(p.GPUModel, " ", p.Provider, " ", p.Currency, " ", p.Fleet != nil))
		if p.GPUModel == "H100 80GB" && p.Currency == "USD" {
			bought += p.Bought
			sum.Effective = sum.Effective.Add(p.Effective)
		}
		if p.Provider == "q" && p.PerHour.String() != "10" {
			t.Errorf("an hour of %s at q costs %s, want 10", p.GPUModel, p.PerHour)
		}
	}
	want := []string{"A100 80GB q USD false", "H100 80GB p EUR false", "H100 80GB p USD true", "H100 80GB q USD true"}
	if got = slices.DeleteFunc(got, func(s string) bool { return s[0] != 'A' && s[0] != 'H' }); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, p := range r.Providers {
		if p.Fleet != nil && !p.Fleet.Equal(sum.Effective.PerHour(bought)) {
			t.Errorf("the fleet's mean is %s, want %s", p.Fleet, sum.Effective.PerHour(bought))
		}
	}
}
