package planning_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/shopspring/decimal"
	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/domain/packing"
	"quartermaster/projections"
	"quartermaster/projections/demand"
	"quartermaster/projections/market"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

func policy(who storetest.Operator, workspace string, p domain.PolicySet) domain.Envelope {
	p.EffectiveFrom = storetest.Start
	return who.Sign(domain.Envelope{Workspace: workspace, Time: storetest.Start, Event: &p})
}

func deployed(cluster, workspace string, d domain.DeploymentChanged) domain.Envelope {
	if d.Class == "" {
		d.Class = domain.ClassServing
	}
	if d.Replicas == 0 {
		d.Replicas = 1
	}
	return domain.Envelope{Cluster: cluster, Workspace: workspace, Time: storetest.Start, Event: &d}
}

func workloads(t *testing.T, l *storetest.Log, f planning.WorkloadFilter) (loads []packing.Workload, rulings []planning.Ruling) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		a, err := registry.NewAuthority(v)
		if err != nil {
			t.Fatal(err)
		}
		if loads, rulings, err = planning.Workloads(v, a, storetest.Start+domain.Hour, f); err != nil {
			t.Fatal(err)
		}
	})
	return loads, rulings
}

func TestWorkloads(t *testing.T) {
	l := storetest.NewLog()
	past := domain.PolicySet{Policy: "over", Kind: domain.PolicyDedicated, EffectiveTo: storetest.Start + domain.Second}
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start-domain.Hour),
		storetest.Ann.Register(storetest.Root, "acme", domain.RolePlanner, nil, storetest.Start-domain.Hour),
		storetest.Cluster("c1", "acme", "p", "eu", storetest.Start), storetest.Cluster("c2", "acme", "p", "us", storetest.Start),
		deployed("c1", "acme", domain.DeploymentChanged{
			Deployment: "chat", Tier: "gold", Replicas: 3, Countries: []string{"DE", "AT", "FR"}, Certifications: []string{"SOC 2"}, MaxPerNode: 2,
			Need: domain.GPUNeed{Count: 2, CPUMilli: 4000, RAMMiB: 1024, Models: []string{"NVIDIA H100 80GB HBM3"}},
		}),
		deployed("c1", "acme", domain.DeploymentChanged{Deployment: "train", Class: domain.ClassTraining, Replicas: 2, Dedicated: true, Need: domain.GPUNeed{Count: 8, GangNodes: 4}}),
		deployed("c2", "beta", domain.DeploymentChanged{Deployment: "batch", Class: domain.ClassBatch, Countries: []string{"US"}, Need: domain.GPUNeed{Count: 1, Milli: 300}}),
		deployed("c2", "beta", domain.DeploymentChanged{Deployment: "gone"}),
		domain.Envelope{Cluster: "c2", Time: storetest.Start + storetest.Minute, Event: &domain.DeploymentRemoved{Deployment: "gone"}},
		// A policy of the root workspace: everything in Europe.
		policy(storetest.Root, "home", domain.PolicySet{Policy: "europe", Kind: domain.PolicyResidency, Countries: []string{"FR", "DE", "NL"}}),
		// A policy of acme: only its own workloads, whatever the selector says.
		policy(storetest.Ann, "acme", domain.PolicySet{Policy: "iso", Kind: domain.PolicyCertification, Certifications: []string{"ISO 27001", "SOC 2"}}),
		policy(storetest.Ann, "acme", domain.PolicySet{Policy: "hands off", Kind: domain.PolicyDedicated, Selector: domain.Selector{Workspace: "beta"}}),
		policy(storetest.Ann, "acme", domain.PolicySet{Policy: "gold", Kind: domain.PolicyPlacement, Selector: domain.Selector{Tier: "gold"}, Clusters: []string{"c2", "c1"}}),
		policy(storetest.Ann, "acme", domain.PolicySet{Policy: "quiet", Kind: domain.PolicyApart, Scope: "node", Selector: domain.Selector{Deployment: "chat"}, Others: []domain.Selector{{Class: domain.ClassBatch}, {Class: domain.ClassServing}}}),
		policy(storetest.Ann, "acme", domain.PolicySet{Policy: "far", Kind: domain.PolicyApart, Scope: "cluster", Selector: domain.Selector{Class: domain.ClassTraining}, Others: []domain.Selector{{Workspace: "beta"}}}),
		policy(storetest.Mallory, "home", domain.PolicySet{Policy: "forged", Kind: domain.PolicyDedicated}),
		policy(storetest.Root, "home", past),
		policy(storetest.Root, "home", domain.PolicySet{Policy: "spot", Kind: domain.PolicySpotShare, Share: decimal.NewNullDecimal(storetest.Dec("0.5"))}),
	)
	loads, rulings := workloads(t, l, planning.WorkloadFilter{})
	want := []packing.Workload{
		{
			ID: "c1/chat", Workspace: "acme", Class: "serving", Deployment: "chat", Replicas: 3, GPUMilli: 2000, CPUMilli: 4000, MemoryMiB: 1024,
			Models: []string{"H100 SXM 80GB"}, Countries: []string{"DE", "FR"}, Certifications: []string{"ISO 27001", "SOC 2"},
			Clusters: []string{"c1", "c2"}, MaxPerNode: 2, ApartNode: []string{"c2/batch"},
		},
		{
			// Two gangs of four, and no node takes two replicas of one gang.
			ID: "c1/train", Workspace: "acme", Class: "training", Deployment: "train", Replicas: 8, GPUMilli: 8000, Dedicated: true, MaxPerNode: 2,
			Countries: []string{"DE", "FR", "NL"}, Certifications: []string{"ISO 27001", "SOC 2"}, ApartCluster: []string{"c2/batch"},
		},
		{
			ID: "c2/batch", Workspace: "beta", Class: "batch", Deployment: "batch", Replicas: 1, GPUMilli: 300, Countries: []string{demand.Nowhere},
		},
	}
	if !reflect.DeepEqual(loads, want) {
		t.Errorf("workloads\n%s\nwant\n%s", lines(loads), lines(want))
	}
	all := []string{"c1/chat", "c1/train", "c2/batch"}
	wantRulings := []planning.Ruling{
		{Workspace: "acme", Policy: "far", Kind: domain.PolicyApart, Constraint: packing.ApartConstraint, Workloads: all[1:2]},
		{Workspace: "acme", Policy: "gold", Kind: domain.PolicyPlacement, Constraint: packing.PlacementConstraint, Workloads: all[:1]},
		{Workspace: "acme", Policy: "iso", Kind: domain.PolicyCertification, Constraint: packing.CertificationConstraint, Workloads: all[:2]},
		{Workspace: "acme", Policy: "quiet", Kind: domain.PolicyApart, Constraint: packing.ApartConstraint, Workloads: all[:1]},
		{Workspace: "home", Policy: "europe", Kind: domain.PolicyResidency, Constraint: packing.ResidencyConstraint, Workloads: all, Emptied: all[2:]},
	}
	if !reflect.DeepEqual(rulings, wantRulings) {
		t.Errorf("rulings\n%s\nwant\n%s", lines(rulings), lines(wantRulings))
	}
	for _, c := range []struct {
		filter planning.WorkloadFilter
		want   string
	}{
		{planning.WorkloadFilter{Workspace: "acme"}, "c1/chat c1/train"},
		{planning.WorkloadFilter{Region: "us"}, "c2/batch"},
		{planning.WorkloadFilter{Cluster: "c1", Class: domain.ClassTraining}, "c1/train"},
		{planning.WorkloadFilter{Deployment: "batch"}, "c2/batch"},
		{planning.WorkloadFilter{Deployment: "nobody's"}, ""},
	} {
		some, ruled := workloads(t, l, c.filter)
		var ids []string
		for _, w := range some {
			ids = append(ids, w.ID)
			// Filtering others out does not change it.
			if i := slices.IndexFunc(loads, func(x packing.Workload) bool { return x.ID == w.ID }); !reflect.DeepEqual(w, loads[i]) {
				t.Errorf("%+v: %+v, want %+v", c.filter, w, loads[i])
			}
		}
		if got := strings.Join(ids, " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.filter, got, c.want)
		}
		for _, r := range ruled {
			if len(r.Workloads) == 0 || slices.ContainsFunc(r.Workloads, func(id string) bool { return !slices.Contains(ids, id) }) {
				t.Errorf("%+v: ruling about others %+v", c.filter, r)
			}
		}
	}
}

// Two rules that cannot be satisfied together are reported once, for the later.
func TestContradictions(t *testing.T) {
	l := storetest.NewLog()
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start-domain.Hour),
		deployed("c1", "acme", domain.DeploymentChanged{Deployment: "d"}),
	)
	for i, clusters := range [][]string{{"c1", "c2"}, {"c3"}, {"c4"}} {
		l.Append(policy(storetest.Root, "home", domain.PolicySet{Policy: fmt.Sprint(i), Kind: domain.PolicyPlacement, Clusters: clusters}))
	}
	loads, rulings := workloads(t, l, planning.WorkloadFilter{})
	if len(loads) != 1 || !slices.Equal(loads[0].Clusters, []string{demand.Nowhere}) {
		t.Errorf("workloads %+v", loads)
	}
	if len(rulings) != 3 || len(rulings[0].Emptied) != 0 || len(rulings[1].Emptied) != 1 || len(rulings[2].Emptied) != 0 {
		t.Errorf("rulings %+v", rulings)
	}
}

func lines[T any](xs []T) string {
	var b strings.Builder
	for _, x := range xs {
		fmt.Fprintf(&b, "%+v\n", x)
	}
	return b.String()
}

func TestPackingNodes(t *testing.T) {
	l := storetest.NewLog()
	cert := func(provider, cluster, name string) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.CertificationHeld{
			Provider: provider, Cluster: cluster, Certification: name, Valid: storetest.Days(0, 100),
		}})
	}
	stated := storetest.Cluster("c1", "acme", "p", "eu", storetest.Start)
	stated.Event.(*domain.ClusterRegistered).Certifications = []string{"stated", "ISO 27001"}
	node := func(name string, edit func(*domain.NodeRegistered)) domain.Envelope {
		env := storetest.Node("c1", name, "NVIDIA H100 80GB HBM3", 8, storetest.Start)
		edit(env.Event.(*domain.NodeRegistered))
		return env
	}
	health := func(ev domain.Event) domain.Envelope {
		return domain.Envelope{Cluster: "c1", Time: storetest.Start + storetest.Minute, Event: ev}
	}
	plain := func(*domain.NodeRegistered) {}
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start),
		domain.Envelope{Workspace: "acme", Time: storetest.Start, Event: &domain.RegionDefined{Region: "eu", Country: "DE"}},
		cert("p", "", "SOC 2"), cert("", "c1", "ISO 27001"), cert("q", "", "BSI"), cert("", "c2", "PCI"),
		stated, storetest.Cluster("c2", "beta", "q", "us", storetest.Start),
		node("plain", plain), node("down", plain), node("cordoned", plain), node("mended", plain), node("window", plain), node("retired", plain),
		node("leased", func(r *domain.NodeRegistered) { r.Provider, r.DedicatedWorkspace = "q", "acme" }),
		node("mixed", func(r *domain.NodeRegistered) { r.GPUs[0].Model, r.GPUs[1].Model = "T4", "T4" }),
		node("halves", func(r *domain.NodeRegistered) {
			for i := range 4 {
				r.GPUs[i].Model = "A2"
			}
		}),
		storetest.Node("c2", "far", "odd", 4, storetest.Start), storetest.Node("c3", "stray", "T4", 1, storetest.Start), storetest.Node("c2", "later", "T4", 1, storetest.Start+domain.Day),
		health(&domain.GPUFaultObserved{Node: "down", GPU: storetest.GPU("c1", "down", 0), Kind: domain.FaultXID, Code: 79, Fatal: true}),
		health(&domain.NodeCordoned{Node: "cordoned"}),
		health(&domain.NodeCordoned{Node: "mended"}), domain.Envelope{Cluster: "c1", Time: storetest.Start + 2*storetest.Minute, Event: &domain.NodeReturned{Node: "mended"}},
		health(&domain.MaintenanceScheduled{Maintenance: "m", Nodes: []string{"window"}, Window: domain.Interval{From: storetest.Start, To: storetest.Start + domain.Day}}),
		health(&domain.NodeRetired{Node: "retired"}),
	)
	nodes := func(at domain.Instant, f planning.NodeFilter) (out []packing.Node) {
		storetest.FoldView(t, l, func(v projections.View) {
			a, err := registry.NewAuthority(v)
			if err != nil {
				t.Fatal(err)
			}
			if out, err = planning.PackingNodes(v, a, at, f); err != nil {
				t.Fatal(err)
			}
		})
		return out
	}
	here := func(id string, gpus int, dedicated string, certified ...string) packing.Node {
		return packing.Node{
			ID: "c1/" + id, Count: 1, Cluster: "c1", Region: "eu", Country: "DE", Model: "H100 SXM 80GB", GPUs: gpus,
			CPUMilli: 64_000, MemoryMiB: 1 << 20, Certifications: certified, Dedicated: dedicated,
		}
	}
	own := []string{"ISO 27001", "SOC 2", "stated"}
	want := []packing.Node{
		{
			ID: "c1/halves", Count: 1, Cluster: "c1", Region: "eu", Country: "DE", Model: "A2", GPUs: 4,
			CPUMilli: 64_000, MemoryMiB: 1 << 20, Certifications: own,
		},
		here("leased", 8, "acme", "BSI", "ISO 27001", "stated"),
		here("mended", 8, "", own...), here("mixed", 6, "", own...), here("plain", 8, "", own...),
		{ID: "c2/far", Count: 1, Cluster: "c2", Region: "us", Model: "odd", GPUs: 4, CPUMilli: 64_000, MemoryMiB: 1 << 20, Certifications: []string{"BSI", "PCI"}},
		{ID: "c3/stray", Count: 1, Cluster: "c3", Model: "T4", GPUs: 1, CPUMilli: 64_000, MemoryMiB: 1 << 20},
	}
	for range 8 { // the order of two models does not depend on chance
		if got := nodes(storetest.Start+domain.Hour, planning.NodeFilter{}); !reflect.DeepEqual(got, want) {
			t.Fatalf("nodes\n%s\nwant\n%s", lines(got), lines(want))
		}
	}
	for _, c := range []struct {
		at     domain.Instant
		filter planning.NodeFilter
		want   string
	}{
		{storetest.Start + domain.Hour, planning.NodeFilter{Region: "us"}, "c2/far"},
		{storetest.Start + domain.Hour, planning.NodeFilter{Model: "NVIDIA H100 80GB HBM3", Cluster: "c1"}, "c1/leased c1/mended c1/mixed c1/plain"},
		{storetest.Start + 2*domain.Day, planning.NodeFilter{Model: "Tesla T4"}, "c2/later c3/stray"},
		{storetest.Start + 2*domain.Day, planning.NodeFilter{Cluster: "c1"}, "c1/halves c1/leased c1/mended c1/mixed c1/plain c1/window"},
		{storetest.Start - domain.Day, planning.NodeFilter{}, ""},
	} {
		var ids []string
		for _, n := range nodes(c.at, c.filter) {
			ids = append(ids, n.ID)
		}
		if got := strings.Join(ids, " "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.filter, got, c.want)
		}
	}
	// Certifications end.
	if got := nodes(storetest.Start+200*domain.Day, planning.NodeFilter{Cluster: "c2", Model: "odd"}); len(got) != 1 || len(got[0].Certifications) != 0 {
		t.Errorf("after the certifications have ended: %+v", got)
	}
}

// "Production in the EU never beside research": environments select workloads, regions and
// countries the machines on which they stay apart, wherever they are declared. For other kinds of
// policies the cluster's region counts.
func TestSelectorsOfPlaces(t *testing.T) {
	define := func(region, country string) domain.Envelope {
		return domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.RegionDefined{Region: region, Country: country}}
	}
	eu := []string{"DE", "IE"}
	research := []domain.Selector{{Environment: "research"}}
	apart := func(id, scope string, s domain.Selector, others ...domain.Selector) domain.Envelope {
		return policy(storetest.Root, "home", domain.PolicySet{Policy: id, Kind: domain.PolicyApart, Scope: scope, Selector: s, Others: others})
	}
	l := storetest.NewLog()
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start-domain.Hour),
		define("fra", "DE"), define("dub", "IE"), define("iad", "US"),
		storetest.Cluster("c1", "acme", "p", "fra", storetest.Start), storetest.Cluster("c2", "acme", "p", "iad", storetest.Start), storetest.Cluster("c3", "acme", "p", "nowhere", storetest.Start),
		storetest.Node("c1", "n", "NVIDIA H100 80GB HBM3", 8, storetest.Start), storetest.Node("c2", "n", "NVIDIA H100 80GB HBM3", 8, storetest.Start),
		deployed("c1", "acme", domain.DeploymentChanged{Deployment: "chat", Environment: "production", Need: domain.GPUNeed{Count: 1}}),
		deployed("c2", "acme", domain.DeploymentChanged{Deployment: "chat", Environment: "production", Need: domain.GPUNeed{Count: 1}}),
		deployed("c2", "beta", domain.DeploymentChanged{Deployment: "lab", Environment: "research", Need: domain.GPUNeed{Count: 1}}),
		deployed("c3", "beta", domain.DeploymentChanged{Deployment: "plain"}),
		apart("a", "node", domain.Selector{Environment: "production", Countries: eu}, research...),
		apart("b", "cluster", domain.Selector{Environment: "production", Regions: []string{"iad", "fra"}}, domain.Selector{Environment: "research", Regions: []string{"fra", "dub"}, Countries: eu}),
		apart("c", "node", domain.Selector{Environment: "production", Regions: []string{"fra"}}, domain.Selector{Environment: "research", Regions: []string{"iad"}}),
		apart("d", "node", domain.Selector{Environment: "staging"}, research...),
		policy(storetest.Root, "home", domain.PolicySet{Policy: "e", Kind: domain.PolicyResidency, Selector: domain.Selector{Countries: eu}, Countries: eu}),
		policy(storetest.Root, "home", domain.PolicySet{Policy: "f", Kind: domain.PolicyDedicated, Selector: domain.Selector{Regions: []string{"iad"}, Environment: "research"}}),
	)
	loads, rulings := workloads(t, l, planning.WorkloadFilter{})
	in := []packing.Apart{
		{Workloads: []string{"c2/lab"}, In: packing.Place{Countries: eu}},
		{Workloads: []string{"c2/lab"}, Cluster: true, In: packing.Place{Regions: []string{"fra"}, Countries: eu}},
	}
	want := []packing.Workload{
		{ID: "c1/chat", Workspace: "acme", Class: "serving", Deployment: "chat", Replicas: 1, GPUMilli: 1000, Countries: eu, ApartIn: in},
		{ID: "c2/chat", Workspace: "acme", Class: "serving", Deployment: "chat", Replicas: 1, GPUMilli: 1000, ApartIn: in},
		{ID: "c2/lab", Workspace: "beta", Class: "serving", Deployment: "lab", Replicas: 1, GPUMilli: 1000, Dedicated: true},
		{ID: "c3/plain", Workspace: "beta", Class: "serving", Deployment: "plain", Replicas: 1},
	}
	if !reflect.DeepEqual(loads, want) {
		t.Errorf("workloads\n%s\nwant\n%s", lines(loads), lines(want))
	}
	var ruled []string
	for _, r := range rulings {
		ruled = append(ruled, r.Policy+": "+strings.Join(r.Workloads, " "))
	}
	if got, want := strings.Join(ruled, ", "), "a: c1/chat c2/chat, b: c1/chat c2/chat, c: c1/chat c2/chat, e: c1/chat, f: c2/lab"; got != want {
		t.Errorf("rulings %q, want %q", got, want)
	}

	// On the machines of the log: without the dedication, research is placed beside production in
	// the United States and nowhere else.
	var nodes []packing.Node
	storetest.FoldView(t, l, func(v projections.View) {
		a, err := registry.NewAuthority(v)
		if err != nil {
			t.Fatal(err)
		}
		if nodes, err = planning.PackingNodes(v, a, storetest.Start+domain.Hour, planning.NodeFilter{}); err != nil {
			t.Fatal(err)
		}
	})
	loads[2].Dedicated, loads[1].Clusters, loads[0].Clusters = false, []string{"c2"}, []string{"c1"}
	for _, only := range []string{"c1", "c2"} {
		loads[2].Clusters = []string{only}
		r, err := packing.Pack(nodes, loads[:3], packing.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := len(r.Unplaced) == 1; got != (only == "c1") {
			t.Errorf("research in %s alone: unplaced %+v", only, r.Unplaced)
		}
	}
}

// Every view of the planner answers for every log, identically each time, whatever the order in
// which the partitions were folded.
func TestPlannerViewsOfAnything(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		l := storetest.Draw(t)
		for range rapid.IntRange(0, 3).Draw(t, "more") {
			workspace := rapid.SampledFrom([]string{"home", "acme"}).Draw(t, "rules")
			kind := rapid.SampledFrom([]domain.PolicyKind{domain.PolicyResidency, domain.PolicyPlacement, domain.PolicyApart, domain.PolicyDedicated, domain.PolicyCertification}).Draw(t, "policy")
			l.Append(policy(storetest.Root, workspace, domain.PolicySet{
				Policy: string(kind), Kind: kind, Countries: []string{rapid.SampledFrom([]string{"DE", "US"}).Draw(t, "country")},
				Clusters: []string{"c1"}, Certifications: []string{"x"}, Scope: "node", Others: []domain.Selector{{Countries: rapid.SampledFrom([][]string{nil, {"DE"}}).Draw(t, "others in")}},
				Selector: domain.Selector{Regions: rapid.SampledFrom([][]string{nil, {"eu"}}).Draw(t, "selected in")},
			}))
		}
		at := storetest.Start + domain.Instant(rapid.IntRange(-1, 30).Draw(t, "at"))*domain.Hour
		answer := func(v projections.View) string {
			a, err := registry.NewAuthority(v)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			say := func(x any, err error) {
				text, jerr := json.Marshal(x)
				if err != nil || jerr != nil {
					t.Fatal(err, jerr)
				}
				b.Write(append(text, '\n'))
			}
			say(demand.Pools(v, at, at+5*domain.Hour, demand.Filter{}))
			say(market.Offers(v, at, market.OfferFilter{}))
			say(market.OnDemandQuotas(v, a, at))
			held, err := planning.CommitmentsHeld(v, a, at)
			say(held, err)
			say(planning.ExpiryLadder(held), nil)
			nodes, err := planning.PackingNodes(v, a, at, planning.NodeFilter{})
			say(nodes, err)
			loads, rulings, err := planning.Workloads(v, a, at, planning.WorkloadFilter{})
			say(loads, err)
			say(rulings, nil)
			say(market.SpotRates(v, at, at+domain.Day))
			for _, w := range loads {
				if !slices.IsSorted(w.Countries) || !slices.IsSorted(w.ApartNode) || slices.Contains(w.ApartNode, w.ID) {
					t.Fatalf("workload %+v", w)
				}
			}
			return b.String()
		}
		var one, two string
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error { one = answer(v); return nil })
		m := projections.NewMemory(domain.TopicSpecs())
		parts := domain.AllPartitions()
		for len(parts) > 0 {
			i := rapid.IntRange(0, len(parts)-1).Draw(t, "partition")
			n, err := storetest.Step(context.Background(), l, m, parts[i], 50)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				parts = slices.Delete(parts, i, i+1)
			}
		}
		storetest.Look(t, m, func(v projections.View) error { two = answer(v); return nil })
		if one != two {
			t.Fatalf("two answers:\n%s\n%s", one, two)
		}
	})
}
