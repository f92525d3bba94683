package planning_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/plan"
	"quartermaster/projections"
	"quartermaster/projections/market"
	"quartermaster/projections/planning"
	"quartermaster/projections/storetest"
)

func wanted(cluster, pool, workspace, region, model string, hour int, running, pending uint64) domain.Envelope {
	span := domain.Interval{From: storetest.Start + domain.Instant(hour)*domain.Hour, To: storetest.Start + domain.Instant(hour+1)*domain.Hour}
	return domain.Envelope{Cluster: cluster, Workspace: workspace, Time: span.To, Recorded: span.To, Event: &domain.DemandObserved{
		Pool: pool, Region: region, Model: model, Unit: "gpu", Interval: span, RunningMilli: running, PendingMilli: pending,
	}}
}

// Demand for one kind in one region is one pool, over all workspaces. The spot share follows from
// policies, weighted by demand. Quotas, commitments and the cost of capital are the valid ones of
// authorized operators.
func TestPlanQuestion(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	model := "H100 SXM 80GB"
	l := storetest.NewLog()
	share := func(workspace, id, selects, s string) domain.Envelope {
		return policy(storetest.Root, workspace, domain.PolicySet{Policy: id, Kind: domain.PolicySpotShare, Selector: domain.Selector{Workspace: selects}, Share: domain.NullDecimal{Decimal: storetest.Dec(s), Valid: true}})
	}
	l.Append(buyer(storetest.Start)...)
	l.Append(
		storetest.Cluster("c1", "acme", "aws", storetest.Frankfurt.Region, storetest.Start), storetest.Node("c1", "n1", h100, 8, storetest.Start), storetest.Node("c1", "n2", h100, 4, storetest.Start), storetest.Node("c1", "n3", h100, 8, storetest.Start),
		wanted("c1", "a", "acme", "", h100, 0, 3000, 1000), wanted("c1", "a", "acme", "", h100, 2, 4000, 0),
		wanted("c1", "b", "beta", "", h100, 0, 1000, 0), wanted("c1", "far", "acme", "mars", h100, 0, 1000, 0),
		share("home", "all", "", "0.5"), share("home", "beta", "beta", "0.1"), share("home", "void", "acme", "0.9"),
		policy(storetest.Root, "home", domain.PolicySet{Policy: "mars", Kind: domain.PolicySpotShare, Selector: domain.Selector{Regions: []string{"mars"}}, Share: domain.NullDecimal{Decimal: storetest.Dec("0.25"), Valid: true}}),
		policy(storetest.Root, "home", domain.PolicySet{Policy: "capital", Kind: domain.PolicyCostOfCapital, Share: domain.NullDecimal{Decimal: storetest.Dec("0.06"), Valid: true}}),
		policy(storetest.Root, "home", domain.PolicySet{Policy: "classes", Kind: domain.PolicySpotShare, Selector: domain.Selector{Class: domain.ClassBatch}, Share: domain.NullDecimal{Decimal: storetest.Dec("0"), Valid: true}}),
		purchased(storetest.Root, "home", "c-1", 3, storetest.Days(-10, 90), 0),
		deployed("c1", "acme", domain.DeploymentChanged{Deployment: "d", Need: domain.GPUNeed{Count: 2}}),
	)
	storetest.FoldView(t, l, func(v projections.View) {
		q, err := planning.Question(v, storetest.Start+domain.Day, nil, plan.Assumptions{AnnualRate: planning.FromPolicy})
		if err != nil {
			t.Fatal(err)
		}
		if !q.Assumptions.AnnualRate.Equal(storetest.Dec("0.06")) {
			t.Errorf("annual rate %s, want that of the policy", q.Assumptions.AnnualRate)
		}
		i := slices.IndexFunc(q.Pools, func(p plan.Pool) bool { return p.Region == storetest.Frankfurt.Region })
		if len(q.Pools) != 2 || i < 0 {
			t.Fatalf("%d pools", len(q.Pools))
		}
		p := q.Pools[i]
		if p.Kind != model || p.NodeGPUs != 8 || len(p.Series) != 2 || len(p.Mix) != 1 {
			t.Fatalf("pool of %s in nodes of %d GPUs, %d series, %d workloads", p.Kind, p.NodeGPUs, len(p.Series), len(p.Mix))
		}
		if p.Series[0].From != storetest.Start {
			t.Errorf("series a begins at %s, want when it was first observed", p.Series[0].From)
		}
		if want := []int64{4000, -1, 4000}; !slices.Equal(p.Series[0].Milli, want) {
			t.Errorf("series a: %v, want %v", p.Series[0].Milli, want)
		}
		// acme may run half of its 8 GPU-hours on spot, beta a tenth of its one.
		if want := storetest.Dec("8").Mul(storetest.Dec("0.5")).Add(storetest.Dec("0.1")).DivRound(storetest.Dec("9"), 12); !p.SpotShare.Equal(want) {
			t.Errorf("spot share %s, want %s", p.SpotShare, want)
		}
		// In its region a policy for that region applies in addition.
		if far := q.Pools[1-i]; far.Region != "mars" || !far.SpotShare.Equal(storetest.Dec("0.25")) {
			t.Errorf("spot share of %s %s, want 0.25", far.Region, far.SpotShare)
		}
		if len(q.Held) != 1 || q.Held[0].Units != 3 || !q.Held[0].Guaranteed {
			t.Errorf("held: %+v", q.Held)
		}
		if len(q.Packings) != 1 || len(q.Packings[0].Nodes) == 0 || len(q.Packings[0].Workloads) != 1 {
			t.Errorf("%d packings", len(q.Packings))
		}
		narrow, err := planning.Question(v, storetest.Start+domain.Day, []string{"mars"}, plan.Assumptions{})
		if err != nil || len(narrow.Pools) != 1 || len(narrow.Held) != 0 || len(narrow.Packings) != 0 {
			t.Errorf("of mars alone: %v", err)
		}
		two, err := planning.Question(v, storetest.Start+domain.Day, []string{storetest.Frankfurt.Region, "mars"}, plan.Assumptions{})
		if err != nil || len(two.Pools) != 2 || len(narrow.Pools) != 1 || len(two.Held) < len(narrow.Held) || len(two.Only) != 2 {
			t.Errorf("of two regions %+v, %v", two, err)
		}
		again, err := planning.Question(v, storetest.Start+domain.Day, nil, plan.Assumptions{AnnualRate: planning.FromPolicy})
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

// Healthy machines of owned clusters are held, with equal ones combined, without an end and without
// cost; those of other clusters are not.
func TestPlanQuestionOwned(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	l := storetest.NewLog()
	l.Append(buyer(storetest.Start)...)
	own := storetest.Cluster("lab", "acme", "own", "home", storetest.Start)
	own.Event.(*domain.ClusterRegistered).ProviderClass = domain.Owned
	l.Append(
		own, storetest.Node("lab", "n1", h100, 8, storetest.Start), storetest.Node("lab", "n2", h100, 8, storetest.Start+domain.Hour), storetest.Node("lab", "n3", h100, 4, storetest.Start),
		storetest.Node("lab", "sick", h100, 8, storetest.Start),
		domain.Envelope{Cluster: "lab", Time: storetest.Start + domain.Hour, Event: &domain.NodeCordoned{Node: "sick", Reason: "broken"}},
		storetest.Cluster("rented", "acme", "aws", "home", storetest.Start), storetest.Node("rented", "n1", h100, 8, storetest.Start),
		wanted("lab", "a", "acme", "", h100, 0, 3000, 0),
	)
	storetest.FoldView(t, l, func(v projections.View) {
		q, err := planning.Question(v, storetest.Start+domain.Day, nil, plan.Assumptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := []plan.Held{
			{Commitment: "lab", Provider: "own", Region: "home", Kind: domain.OfferOwned, GPUModel: "H100 SXM 80GB", GPUs: 8, Units: 2, Term: domain.Interval{From: storetest.Start + domain.Hour}, Guaranteed: true},
			{Commitment: "lab", Provider: "own", Region: "home", Kind: domain.OfferOwned, GPUModel: "H100 SXM 80GB", GPUs: 4, Units: 1, Term: domain.Interval{From: storetest.Start}, Guaranteed: true},
		}
		if !reflect.DeepEqual(q.Held, want) || len(q.Expiry) != 0 {
			t.Errorf("held: %+v, running out: %+v", q.Held, q.Expiry)
		}
		if q, err = planning.Question(v, storetest.Start+domain.Day, []string{"mars"}, plan.Assumptions{}); err != nil || len(q.Held) != 0 {
			t.Errorf("of mars: %+v, %v", q.Held, err)
		}
	})
}

// The smaller of an account's quotas applies, and accounts add up. A renewal continues a
// commitment: only the units that it lacks expire.
func TestPlanQuestionQuotasAndExpiry(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	quota := func(provider, account, model string, gpus uint64) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.OnDemandQuotaSet{
			Market: domain.Market{Provider: provider, Region: storetest.Frankfurt.Region}, Account: account, GPUModel: model, LimitGPUs: gpus, EffectiveFrom: storetest.Start,
		}})
	}
	l := storetest.NewLog()
	l.Append(buyer(storetest.Start)...)
	l.Append(
		storetest.Cluster("c1", "acme", "aws", storetest.Frankfurt.Region, storetest.Start), storetest.Node("c1", "n1", h100, 8, storetest.Start),
		wanted("c1", "a", "acme", "", h100, 0, 3000, 0),
		quota("aws", "1", "", 100), quota("aws", "1", h100, 64), quota("aws", "1", "L4", 8),
		quota("aws", "2", "", 32), quota("aws", "2", h100, 64), quota("aws", "3", h100, 16), quota("aws", "4", "L4", 16),
		quota("gcp", "1", h100, 24),
		purchased(storetest.Root, "home", "c-1", 10, storetest.Days(-10, 90), 0), renewed(storetest.Root, "home", "c-1", 4, storetest.Days(90, 200), 0),
	)
	storetest.FoldView(t, l, func(v projections.View) {
		q, err := planning.Question(v, storetest.Start+domain.Day, nil, plan.Assumptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want := []plan.Quota{{Provider: "aws", GPUs: 64 + 32 + 16, Shared: true}, {Provider: "gcp", GPUs: 24}}; len(q.Pools) != 1 || !slices.Equal(q.Pools[0].Quotas, want) {
			t.Errorf("%d pools, quotas %+v, want %+v", len(q.Pools), q.Pools[0].Quotas, want)
		}
		var rungs []string
		for _, x := range q.Expiry {
			rungs = append(rungs, fmt.Sprintf("%s %d×%d %d-%d", x.Commitment, x.Units, x.GPUs, (x.Term.From-storetest.Start)/domain.Day, (x.Term.To-storetest.Start)/domain.Day))
		}
		if want := []string{"c-1 6×8 -10-90", "c-1 4×8 90-200"}; !slices.Equal(rungs, want) {
			t.Errorf("running out: %v, want %v", rungs, want)
		}
	})
}

// Pools share a quota for all models, unless another quota limits one of them too.
func TestPlanQuotasTogether(t *testing.T) {
	entry := func(account, model string, gpus uint64) market.OnDemandQuotaEntry {
		return market.OnDemandQuotaEntry{OnDemandQuotaSet: domain.OnDemandQuotaSet{Market: storetest.Frankfurt, Account: account, LimitGPUs: gpus}, Model: model}
	}
	for name, c := range map[string]struct {
		quotas   []market.OnDemandQuotaEntry
		gpus     uint64
		together bool
	}{
		"all models":              {[]market.OnDemandQuotaEntry{entry("1", "", 10)}, 10, true},
		"two accounts":            {[]market.OnDemandQuotaEntry{entry("1", "", 10), entry("2", "", 5)}, 15, true},
		"one of its own, greater": {[]market.OnDemandQuotaEntry{entry("1", "", 10), entry("1", "K", 10), entry("1", "L", 2)}, 10, true},
		"one of its own, less":    {[]market.OnDemandQuotaEntry{entry("1", "", 10), entry("1", "K", 9)}, 9, false},
		"its own alone":           {[]market.OnDemandQuotaEntry{entry("1", "K", 9)}, 9, false},
		"an account of its own":   {[]market.OnDemandQuotaEntry{entry("1", "", 10), entry("2", "K", 5)}, 15, false},
	} {
		got := planning.Quotas(c.quotas, storetest.Frankfurt.Region, "K")
		if len(got) != 1 || got[0].GPUs != c.gpus || got[0].Together != c.together {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// A question includes distances between regions and the round trips that deployments allow: for a
// pool the smallest, and none if one of its deployments states none.
func TestPlanQuestionWays(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	serves := func(id string, micros uint64) domain.Envelope {
		return domain.Envelope{Cluster: "c1", Workspace: "acme", Time: storetest.Start, Event: &domain.DeploymentChanged{
			Deployment: id, Class: domain.ClassServing, Replicas: 1, Need: domain.GPUNeed{Count: 1, Models: []string{h100}}, LatencyMicros: micros,
		}}
	}
	l := storetest.NewLog()
	l.Append(buyer(storetest.Start)...)
	l.Append(
		storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.RegionDefined{Region: storetest.Frankfurt.Region, Country: "DE", RoundTrips: []domain.RoundTrip{{To: "eu-west-1", Micros: 25_000, Measured: true}}}}),
		storetest.Cluster("c1", "acme", "aws", storetest.Frankfurt.Region, storetest.Start), storetest.Node("c1", "n1", h100, 8, storetest.Start),
		wanted("c1", "a", "acme", "", h100, 0, 3000, 0), serves("x", 40_000), serves("y", 30_000),
	)
	question := func() *plan.Question {
		var q *plan.Question
		storetest.FoldView(t, l, func(v projections.View) {
			var err error
			if q, err = planning.Question(v, storetest.Start+domain.Day, nil, plan.Assumptions{}); err != nil {
				t.Fatal(err)
			}
		})
		return q
	}
	q := question()
	if len(q.Pools) != 1 || q.Pools[0].LatencyMicros != 30_000 || len(q.Pools[0].Mix) != 2 {
		t.Errorf("pools %+v", q.Pools)
	}
	if len(q.Regions) != 1 || q.Regions[0].Country != "DE" || len(q.Regions[0].RoundTrips) != 1 || q.Regions[0].RoundTrips[0].Micros != 25_000 {
		t.Errorf("regions %+v", q.Regions)
	}
	l.Append(serves("z", 0))
	if q := question(); q.Pools[0].LatencyMicros != 0 {
		t.Errorf("with a deployment that names no round trip: %d", q.Pools[0].LatencyMicros)
	}
}

// A pool that counts machines learns failure rates from the GPUs that its offers name, and has none
// if they name none.
func TestPlanQuestionFailuresOfMachines(t *testing.T) {
	const sku = "p5.48xlarge"
	quoted := func(sku string, gpus uint32, model string) domain.Envelope {
		return domain.Envelope{Time: storetest.Start, Event: &domain.OfferQuoted{
			Market: storetest.Frankfurt, Offer: sku, SKU: sku, GPUModel: model, GPUCount: gpus, Kind: domain.OfferOnDemand, Hourly: storetest.Dec("40"), Currency: "USD", ValidFrom: storetest.Start,
		}}
	}
	demand := func(pool, sku string) domain.Envelope {
		e := wanted("c1", pool, "acme", storetest.Frankfurt.Region, sku, 0, 3000, 0)
		e.Event.(*domain.DemandObserved).Unit = "vm"
		return e
	}
	l := storetest.NewLog()
	l.Append(buyer(storetest.Start)...)
	l.Append(storetest.Cluster("c1", "acme", "aws", storetest.Frankfurt.Region, storetest.Start),
		quoted(sku, 8, "NVIDIA H100 80GB HBM3"), quoted("c5.large", 0, ""), demand("a", sku), demand("b", "c5.large"))
	storetest.FoldView(t, l, func(v projections.View) {
		q, err := planning.Question(v, storetest.Start+domain.Day, nil, plan.Assumptions{ServiceLevel: storetest.Dec("0.99")})
		if err != nil {
			t.Fatal(err)
		}
		if len(q.Pools) != 2 {
			t.Fatalf("%d pools", len(q.Pools))
		}
		for _, p := range q.Pools {
			if p.Unit != "vm" || (p.Failures != nil) != (p.Kind == sku) {
				t.Errorf("%s in %s: failures %+v", p.Kind, p.Unit, p.Failures)
			}
		}
	})
}

// What deployments say is interruptible may run on spot, at most what a policy allows. Hard budgets of
// the root workspace bind plans; those of others and soft ones do not.
func TestPlanQuestionInterruptibleAndBudgets(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	budget := func(workspace, id string, hard bool) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: workspace, Time: storetest.Start, Event: &domain.BudgetSet{
			Budget: id, Period: storetest.Days(0, 31), Amount: domain.Money{Amount: storetest.Dec("1000"), Currency: "USD"}, Basis: domain.BudgetCash, Hard: hard,
		}})
	}
	for _, c := range []struct{ policy, want string }{{"", "0.25"}, {"0.1", "0.1"}, {"0.9", "0.25"}} {
		l := storetest.NewLog()
		l.Append(buyer(storetest.Start)...)
		l.Append(
			storetest.Cluster("c1", "acme", "aws", storetest.Frankfurt.Region, storetest.Start), storetest.Node("c1", "n1", h100, 8, storetest.Start),
			wanted("c1", "a", "acme", "", h100, 0, 3000, 0),
			deployed("c1", "acme", domain.DeploymentChanged{Deployment: "serve", Need: domain.GPUNeed{Count: 2}, Replicas: 3}),
			deployed("c1", "acme", domain.DeploymentChanged{Deployment: "batch", Need: domain.GPUNeed{Count: 1}, Replicas: 2, Interruptible: true}),
			budget("home", "hard", true), budget("home", "soft", false), budget("acme", "theirs", true),
		)
		if c.policy != "" {
			l.Append(policy(storetest.Root, "home", domain.PolicySet{Policy: "all", Kind: domain.PolicySpotShare, Share: domain.NullDecimal{Decimal: storetest.Dec(c.policy), Valid: true}}))
		}
		storetest.FoldView(t, l, func(v projections.View) {
			q, err := planning.Question(v, storetest.Start+domain.Day, nil, plan.Assumptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(q.Pools) != 1 || !q.Pools[0].SpotShare.Equal(storetest.Dec(c.want)) {
				t.Errorf("policy %q: spot share %s, want %s", c.policy, q.Pools[0].SpotShare, c.want)
			}
			if len(q.Budgets) != 1 || q.Budgets[0].ID != "hard" {
				t.Errorf("budgets %+v", q.Budgets)
			}
		})
	}
}

// A policy says which GPU models may do all work of a pool. Of several ratios the one that takes the
// most GPUs counts, and deployments that list models must list it.
func TestPlanQuestionSubstitutes(t *testing.T) {
	const h100 = "NVIDIA H100 80GB HBM3"
	by := func(gpus string) domain.PolicySet {
		return domain.PolicySet{Kind: domain.PolicySubstitution, Substitutes: []domain.GPUSubstitute{{For: h100, By: "NVIDIA B200", GPUs: storetest.Dec(gpus), Measured: true}}}
	}
	for name, c := range map[string]struct {
		change func(p *domain.PolicySet, serve, batch *domain.DeploymentChanged)
		want   string
	}{
		"all work":         {func(*domain.PolicySet, *domain.DeploymentChanged, *domain.DeploymentChanged) {}, "B200 0.5"},
		"each by one":      {func(p *domain.PolicySet, _, _ *domain.DeploymentChanged) { p.Selector.Class = domain.ClassServing }, "B200 0.5"},
		"some of the work": {func(p *domain.PolicySet, _, _ *domain.DeploymentChanged) { p.Selector.Class = domain.ClassTraining }, ""},
		"somewhere else":   {func(p *domain.PolicySet, _, _ *domain.DeploymentChanged) { p.Selector.Regions = []string{"mars"} }, ""},
		"another model":    {func(p *domain.PolicySet, _, _ *domain.DeploymentChanged) { p.Substitutes[0].For = "A100 80GB" }, ""},
		"not on it":        {func(_ *domain.PolicySet, serve, _ *domain.DeploymentChanged) { serve.Need.Models = []string{h100} }, ""},
		"also on it": {func(_ *domain.PolicySet, serve, _ *domain.DeploymentChanged) {
			serve.Need.Models = []string{h100, "NVIDIA B200"}
		}, "B200 0.5"},
	} {
		p, serve, batch := by("0.5"), domain.DeploymentChanged{Deployment: "serve", Class: domain.ClassServing, Need: domain.GPUNeed{Count: 2}, Replicas: 3},
			domain.DeploymentChanged{Deployment: "batch", Class: domain.ClassBatch, Need: domain.GPUNeed{Count: 1}, Replicas: 2}
		p.Policy = "newer"
		egress := domain.PolicySet{Policy: "egress", Kind: domain.PolicyTransferPrice, Value: "0.05 EUR", Selector: domain.Selector{Class: domain.ClassBatch}}
		c.change(&p, &serve, &batch)
		less := by("0.25") // for a part of the work, for which the other policy is the more cautious
		less.Policy, less.Selector = "less", domain.Selector{Class: domain.ClassBatch}
		l := storetest.NewLog()
		l.Append(buyer(storetest.Start)...)
		l.Append(
			storetest.Cluster("c1", "acme", "aws", storetest.Frankfurt.Region, storetest.Start), storetest.Node("c1", "n1", h100, 8, storetest.Start),
			wanted("c1", "a", "acme", "", h100, 0, 3000, 0), deployed("c1", "acme", serve), deployed("c1", "acme", batch),
			policy(storetest.Root, "home", p), policy(storetest.Root, "home", less), policy(storetest.Root, "home", egress),
			domain.Envelope{Time: storetest.Start, Event: &domain.OfferQuoted{
				Market: storetest.Frankfurt, Offer: "b200", SKU: "p6", GPUModel: "NVIDIA B200", GPUCount: 8, Kind: domain.OfferOnDemand,
				Hourly: storetest.Dec("90"), Currency: "USD", ValidFrom: storetest.Start,
			}},
		)
		storetest.FoldView(t, l, func(v projections.View) {
			q, err := planning.Question(v, storetest.Start+domain.Day, nil, plan.Assumptions{})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range q.Pools {
				for _, s := range p.Substitutes {
					got = append(got, s.Model+" "+s.GPUs.String())
				}
			}
			// A price of moving some of the work counts.
			if tr := q.Pools[0].Transfers; len(tr) != 1 || tr[0].Policy != "egress" || tr[0].Price.String() != "0.05 EUR" {
				t.Errorf("%s: prices of moving %+v", name, tr)
			}
			if strings.Join(got, ", ") != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
			// Nobody uses the model yet, and it is sold there.
			if last := q.Pools[len(q.Pools)-1]; (c.want != "") != last.Idle || last.Idle && (last.Kind != "B200" || len(last.Offers) != 1) {
				t.Errorf("%s: %d pools, %+v", name, len(q.Pools), last)
			}
		})
	}
}
