package inventory_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
)

func take(t *testing.T, l *storetest.Log, filter inventory.Filter) (inv *inventory.Inventory) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		var err error
		if inv, err = inventory.New(v, filter); err != nil {
			t.Fatal(err)
		}
	})
	return inv
}

func TestInventory(t *testing.T) {
	const day = domain.Day
	l := storetest.NewLog()
	cert := func(provider, cluster, name string) domain.Envelope {
		return storetest.Root.Sign(domain.Envelope{Workspace: "home", Time: storetest.Start, Event: &domain.CertificationHeld{
			Provider: provider, Cluster: cluster, Certification: name, Valid: domain.Interval{From: storetest.Start, To: storetest.Start + 365*day}, Evidence: "audit",
		}})
	}
	l.Append(
		storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start),
		domain.Envelope{Workspace: "acme", Time: storetest.Start, Event: &domain.RegionDefined{Region: "eu", Country: "DE"}},
		cert("p", "", "SOC 2"), cert("", "c1", "ISO 27001"), cert("", "c2", "PCI"), cert("q", "", "BSI"),
		storetest.Cluster("c1", "acme", "p", "eu", storetest.Start), storetest.Cluster("c2", "beta", "q", "us", storetest.Start),
		storetest.Node("c1", "n1", "NVIDIA H100 80GB HBM3", 2, storetest.Start), storetest.Node("c1", "n2", "unheard of", 1, storetest.Start),
		storetest.Node("c2", "m1", "A100 40GB", 4, storetest.Start), storetest.Node("c2", "m2", "A100 40GB", 4, storetest.Start),
		domain.Envelope{Cluster: "c2", Time: storetest.Start + day, Event: &domain.NodeRetired{Node: "m2"}},
		domain.Envelope{Cluster: "c1", Time: storetest.Start, Event: &domain.AssetAcquired{Asset: "dgx", Nodes: []string{"n1"}, Capex: *storetest.USD("400000"), InServiceFrom: storetest.Start, LifeMonths: 60}},
		domain.Envelope{Cluster: "c1", Time: storetest.Start, Event: &domain.AssetRevised{Asset: "dgx", EffectiveFrom: storetest.Start + day, LifeMonths: 72}},
	)
	i := domain.Interval{From: storetest.Start, To: storetest.Start + 30*storetest.Minute}
	whole := func(cluster, node string, i int) storetest.Seen {
		return storetest.Seen{ID: storetest.GPU(cluster, node, i), Activity: -1}
	}
	cut := func(i int, profile string) storetest.Seen {
		return storetest.Seen{ID: storetest.GPU("c1", "n1", 10+i), Parent: storetest.GPU("c1", "n1", 1), Profile: profile, Activity: -1}
	}
	report := func(from domain.Interval, cluster, node string, devices ...storetest.Seen) {
		l.Append(domain.Envelope{Source: "reporter/" + node, Cluster: cluster, Time: from.To, Event: storetest.Sample(node, from, devices...)})
	}
	report(i, "c1", "n1", whole("c1", "n1", 0), cut(1, "7g.80gb"))
	report(domain.Interval{From: i.To, To: i.To + storetest.Minute}, "c1", "n1", whole("c1", "n1", 0), cut(2, "3g.40gb"), cut(3, "1g.10gb"))
	report(i, "c2", "m1", whole("c2", "m1", 0), whole("c2", "m1", 1), whole("c2", "m1", 2), whole("c2", "m1", 3))
	report(i, "c2", "m2", whole("c2", "m2", 0), whole("c2", "m2", 1), whole("c2", "m2", 2), whole("c2", "m2", 3))
	l.Append(
		domain.Envelope{Cluster: "c1", Time: storetest.Start + 40*storetest.Minute, Event: &domain.GPUFaultObserved{Node: "n1", GPU: storetest.GPU("c1", "n1", 0), Kind: domain.FaultXID, Code: 79, Fatal: true}},
		domain.Envelope{Cluster: "c2", Time: storetest.Start + 2*day, Event: &domain.NodeCordoned{Node: "m1", Reason: "firmware"}},
		domain.Envelope{Cluster: "c1", Time: storetest.Start + 3*day, Event: &domain.NodeReturned{Node: "n1", Reason: "replaced"}},
	)

	inv := take(t, l, inventory.Filter{At: storetest.Start + 2*day})
	if len(inv.Clusters) != 2 {
		t.Fatalf("%d clusters, want 2", len(inv.Clusters))
	}
	c1, c2 := inv.Clusters[0], inv.Clusters[1]
	if c1.Workspace != "acme" || c1.Country != "DE" || c2.Country != "" || c1.ProviderClass != domain.Neocloud {
		t.Errorf("clusters %+v %+v", c1, c2)
	}
	certs := func(c inventory.ClusterEntry) string {
		var s []string
		for _, x := range c.Certifications {
			s = append(s, x.Certification+" by "+x.From)
		}
		return strings.Join(s, ", ")
	}
	if got := certs(c1) + "; " + certs(c2); got != "ISO 27001 by cluster, SOC 2 by provider; BSI by provider, PCI by cluster" {
		t.Errorf("certifications %s", got)
	}
	if len(c1.Nodes) != 2 || len(c2.Nodes) != 1 {
		t.Fatalf("%d and %d nodes in service, want 2 and 1", len(c1.Nodes), len(c2.Nodes))
	}
	n1 := c1.Nodes[0]
	if n1.LastTelemetry != storetest.Start+31*storetest.Minute || n1.DriverVersion != "580.95.05" || n1.CUDAVersion != "13.0" || n1.Health.State != "failed" || len(n1.Health.Faults) != 1 {
		t.Errorf("node %+v", n1)
	}
	g0, g1 := n1.GPUs[0], n1.GPUs[1]
	if g0.Model != "H100 SXM 80GB" || !g0.ModelKnown || !g0.Failed || g1.Failed || len(g0.MIG) != 0 || !slices.Equal(g1.MIG, []string{"1g.10gb", "3g.40gb"}) {
		t.Errorf("GPUs %+v %+v", g0, g1)
	}
	if h := c2.Nodes[0].Health; h.State != "maintenance" || !h.Cordoned || h.Reason != "firmware" {
		t.Errorf("health %+v", h)
	}
	if got := fmt.Sprint(inv.Counts); got != "[{eu H100 SXM 80GB neocloud 2} {eu unheard of neocloud 1} {us A100 40GB neocloud 4}]" {
		t.Errorf("counts %s", got)
	}
	if len(inv.Assets) != 1 || inv.Assets[0].LifeMonths != 72 || inv.Assets[0].Cluster != "c1" {
		t.Errorf("assets %+v", inv.Assets)
	}
	// Earlier and later.
	if early := take(t, l, inventory.Filter{At: storetest.Start + domain.Hour}); len(early.Clusters[1].Nodes) != 2 || early.Assets[0].LifeMonths != 60 {
		t.Errorf("an hour after the start: %+v", early.Clusters[1])
	}
	if late := take(t, l, inventory.Filter{At: storetest.Start + 4*day}); late.Clusters[0].Nodes[0].Health.State != "ok" || late.Clusters[0].Nodes[0].GPUs[0].Failed {
		t.Errorf("after the return: %+v", late.Clusters[0].Nodes[0])
	}
	for _, f := range []inventory.Filter{{Workspace: "beta"}, {Cluster: "c2"}, {Region: "us"}} {
		f.At = storetest.Start + 2*day
		if got := take(t, l, f); len(got.Clusters) != 1 || got.Clusters[0].Cluster != "c2" || len(got.Counts) != 1 || len(got.Assets) != 0 {
			t.Errorf("%+v shows %+v", f, got)
		}
	}
	text, err := json.Marshal(inv)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"uuid":"GPU-`, `"mig":["1g.10gb","3g.40gb"]`, `"capex":{"amount":"400000","currency":"USD"}`, `"provider_class":"neocloud"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// Each GPU has its own time of the last report: a GPU that stopped before its node shows that.
func TestLastReportOfEachGPU(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Node("c", "n", "H100 80GB", 3, storetest.Start))
	for _, s := range []struct {
		minutes int
		gpus    []int
	}{{10, []int{0, 1}}, {20, []int{0}}} {
		var seen []storetest.Seen
		for _, i := range s.gpus {
			seen = append(seen, storetest.Seen{ID: storetest.GPU("c", "n", i), Activity: -1})
		}
		over := domain.Interval{From: storetest.Start + domain.Instant(s.minutes-10)*storetest.Minute, To: storetest.Start + domain.Instant(s.minutes)*storetest.Minute}
		l.Append(domain.Envelope{Source: "reporter/n", Cluster: "c", Time: over.To, Event: storetest.Sample("n", over, seen...)})
	}
	n := take(t, l, inventory.Filter{At: storetest.Start + domain.Hour}).Clusters[0].Nodes[0]
	if n.LastTelemetry != storetest.Start+20*storetest.Minute {
		t.Errorf("the node last reported at %s", n.LastTelemetry)
	}
	for i, want := range []domain.Instant{storetest.Start + 20*storetest.Minute, storetest.Start + 10*storetest.Minute, 0} {
		if n.GPUs[i].LastTelemetry != want {
			t.Errorf("GPU %d last reported at %s, want %s", i, n.GPUs[i].LastTelemetry, want)
		}
	}
}

// A GPU that its node no longer reports keeps the time of its last report, across hours and months,
// under whatever name it was reported, and seen from any time.
func TestLastReportStays(t *testing.T) {
	l := storetest.NewLog()
	const hours = 40 * 24
	l.Append(storetest.Node("c", "n", "H100 80GB", 3, storetest.Start))
	for _, s := range []struct {
		node          string
		gpu, from, to int // minutes
	}{{"n", 0, 0, 70}, {"n", 1, 0, 50}, {"ip-10", 2, 0, 30}, {"n", 0, 60 * hours, 60*hours + 10}, {"n", 1, 180, 190}} {
		over := storetest.Span(s.from, s.to)
		l.Append(domain.Envelope{Source: "reporter/n", Cluster: "c", Time: over.To,
			Event: storetest.Sample(s.node, over, storetest.Seen{ID: storetest.DeviceOf(s.gpu), Activity: -1})})
	}
	for at, want := range map[int][3]int{60: {60, 50, 30}, 70: {70, 50, 30}, 170: {70, 50, 30}, 200: {70, 190, 30}, 60*hours + 5: {60*hours + 5, 190, 30}} {
		n := take(t, l, inventory.Filter{At: storetest.Start + domain.Instant(at)*storetest.Minute}).Clusters[0].Nodes[0]
		for i := range want {
			if got := n.GPUs[i].LastTelemetry; got != storetest.Start+domain.Instant(want[i])*storetest.Minute {
				t.Errorf("at minute %d GPU %d last reported at %s, want minute %d", at, i, got, want[i])
			}
		}
	}
}

// Two machines with one name are reported, whether or not each took the other's GPUs out of
// service. A restarted machine, even without its state, is not.
func TestTwoAgentsOfOneName(t *testing.T) {
	report := func(source string, start, sequence, from, to, g int) domain.Envelope {
		over := storetest.Span(from, to)
		return domain.Envelope{Source: source, Incarnation: uint64(storetest.Start+domain.Instant(start)*storetest.Minute) / 1000, Sequence: uint64(sequence),
			Cluster: "c", Time: over.To, Event: storetest.Sample("n", over, storetest.Seen{ID: storetest.DeviceOf(g), Activity: -1})}
	}
	const agent = "node-reporter/c/n"
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		at   int
		want string
	}{
		{"at once", []domain.Envelope{report(agent, 0, 1, 0, 20, 0), report(agent, 10, 1, 10, 30, 1), report(agent, 0, 2, 20, 40, 0)}, 60,
			"c/n: agents started at 2026-05-01T00:00:00Z and 2026-05-01T00:10:00Z both reported up to 2026-05-01T00:30:00Z: two machines use this name, and each takes the other's GPUs out of service; give each its own (node in the configuration of the node-reporter)"},
		{"a day later", []domain.Envelope{report(agent, 0, 1, 0, 20, 0), report(agent, 10, 1, 10, 30, 1)}, 60 * 30, ""},
		{"restarted without its state", []domain.Envelope{report(agent, 0, 1, 0, 20, 0), report(agent, 21, 1, 21, 40, 0)}, 60, ""},
		{"two observers", []domain.Envelope{report(agent, 0, 1, 0, 20, 0), report("import/x", 10, 1, 10, 30, 0)}, 60, ""},
	} {
		l := storetest.NewLog()
		l.Append(storetest.Node("c", "n", "H100 80GB", 2, storetest.Start))
		l.Append(c.log...)
		var got string
		for _, e := range take(t, l, inventory.Filter{At: storetest.Start + domain.Instant(c.at)*storetest.Minute}).Exceptions {
			if e.Kind == "two_agents_of_one_name" {
				got += e.Subject + ": " + e.Detail
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// An unregistered node that reports is shown with its GPUs and faults, and is not counted. A node
// that only a scheduler names has no GPUs to show.
func TestUnregisteredNode(t *testing.T) {
	l := storetest.NewLog()
	i := domain.Interval{From: storetest.Start, To: storetest.Start + 30*storetest.Minute}
	lost, broken := storetest.GPU("c1", "n1", 0), storetest.GPU("c1", "n1", 1)
	fault := func(node string, gpu domain.GPUID) domain.Envelope {
		return domain.Envelope{Source: "node-reporter/c1/" + node, Cluster: "c1", Time: storetest.Start + 40*storetest.Minute, Event: &domain.GPUFaultObserved{Node: node, GPU: gpu, Kind: domain.FaultXID, Code: 79, Fatal: true, Detail: "off the bus"}}
	}
	l.Append(
		storetest.Cluster("c1", "acme", "p", "eu", storetest.Start),
		domain.Envelope{Source: "reporter/n1", Cluster: "c1", Time: i.To, Event: storetest.Sample("n1", i, storetest.Seen{ID: broken, Activity: -1}, storetest.Seen{ID: storetest.GPU("c1", "n1", 2), Activity: -1})},
		fault("n1", lost), fault("n1", broken), fault("n2", storetest.GPU("c1", "n2", 0)),
		domain.Envelope{Source: "prometheus/home", Cluster: "c1", Time: storetest.Start, Event: &domain.NodeCordoned{Node: "cpu", Reason: "unschedulable"}},
	)
	inv := take(t, l, inventory.Filter{At: storetest.Start + domain.Hour})
	c := inv.Clusters[0]
	if len(c.Nodes) != 0 || len(inv.Counts) != 0 {
		t.Errorf("it counts: %+v %+v", c.Nodes, inv.Counts)
	}
	if len(c.UnregisteredNodes) != 2 {
		t.Fatalf("unregistered: %+v", c.UnregisteredNodes)
	}
	n1, n2 := c.UnregisteredNodes[0], c.UnregisteredNodes[1]
	failed := map[domain.GPUID]bool{}
	for _, g := range n1.GPUs {
		failed[g.ID] = g.Failed
	}
	if n1.Node != "n1" || n1.LastTelemetry != i.To || n1.Health.State != "failed" || len(n1.Health.Faults) != 2 || len(n1.GPUs) != 3 || !failed[lost] || !failed[broken] || failed[storetest.GPU("c1", "n1", 2)] {
		t.Errorf("%+v", n1)
	}
	if n2.Node != "n2" || n2.LastTelemetry != 0 || n2.Health.State != "failed" || len(n2.GPUs) != 1 || !n2.GPUs[0].Failed {
		t.Errorf("%+v", n2)
	}
	var said []string
	for _, e := range inv.Exceptions {
		if e.Kind == inventory.NodeUnregistered {
			said = append(said, e.Subject+": "+e.Detail)
		}
	}
	if len(said) != 2 || !strings.HasPrefix(said[0], "c1/n1: it reported 2 GPUs, last at 2026-05-01T00:30:00Z, and is not registered") || !strings.Contains(said[0], "register.enabled") || !strings.HasSuffix(said[0], "; failed since 2026-05-01T00:40:00Z: off the bus") {
		t.Errorf("said %q", said)
	}
	if early := take(t, l, inventory.Filter{At: storetest.Start + 35*storetest.Minute}).Clusters[0].UnregisteredNodes; len(early) != 1 || early[0].Health.State != "ok" || len(early[0].GPUs) != 2 {
		t.Errorf("before the faults: %+v", early)
	}
}

func TestExceptions(t *testing.T) {
	at := storetest.Start + domain.Hour
	i := domain.Interval{From: storetest.Start, To: storetest.Start + 30*storetest.Minute}
	cluster := func(id string) domain.Envelope { return storetest.Cluster(id, "acme", "p", "eu", storetest.Start) }
	seen := func(cluster, node string, devices ...int) domain.Envelope {
		var d []storetest.Seen
		for _, n := range devices {
			d = append(d, storetest.Seen{ID: storetest.GPU(cluster, node, n), Activity: -1})
		}
		return domain.Envelope{Source: "reporter/" + node, Cluster: cluster, Time: i.To, Event: storetest.Sample(node, i, d...)}
	}
	holding := func(node string, from domain.Instant, workspaces ...string) domain.Envelope {
		var d []storetest.Seen
		for n, w := range workspaces {
			d = append(d, storetest.Seen{ID: storetest.GPU("c1", node, n), Workspace: w, Activity: -1})
		}
		return domain.Envelope{Source: "reporter/" + node, Cluster: "c1", Time: from + storetest.Minute, Event: storetest.Sample(node, domain.Interval{From: from, To: from + storetest.Minute}, d...)}
	}
	stolen := storetest.Node("c1", "n2", "A100 40GB", 1, storetest.Start)
	stolen.Event.(*domain.NodeRegistered).GPUs[0].ID = storetest.GPU("c1", "n1", 0)
	bought := func(cluster, node, resource string) domain.Envelope {
		env := storetest.Node(cluster, node, "A100 40GB", 1, storetest.Start)
		ev := env.Event.(*domain.NodeRegistered)
		ev.BillingAccount, ev.ResourceID = "1", resource
		return env
	}
	gap := seen("c1", "n1", 0)
	gap.Sequence = 4
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want []string
	}{
		{"no exceptions", []domain.Envelope{cluster("c1"), storetest.Node("c1", "n1", "A100 40GB", 1, storetest.Start), seen("c1", "n1", 0)}, nil},
		{"declared twice", []domain.Envelope{cluster("c1"), storetest.Node("c1", "n1", "A100 40GB", 1, storetest.Start), seen("c1", "n1", 0), stolen, {Source: "reporter/n2", Cluster: "c1", Time: i.To, Event: storetest.Sample("n2", i, storetest.Seen{ID: storetest.GPU("c1", "n1", 0), Activity: -1})}},
			[]string{"gpu_in_two_nodes " + storetest.GPU("c1", "n1", 0).String() + ": declared by [c1/n1 c1/n2]"}},
		{"a node in two clusters", []domain.Envelope{cluster("c1"), cluster("c2"), storetest.Node("c1", "n1", "A100 40GB", 1, storetest.Start), seen("c1", "n1", 0), storetest.Node("c2", "n1", "A100 40GB", 1, storetest.Start), seen("c2", "n1", 0)},
			[]string{"node_in_two_clusters n1: in service in [c1 c2]"}},
		{"equal names of two machines", []domain.Envelope{cluster("c1"), cluster("c2"), bought("c1", "n1", "i-1"), seen("c1", "n1", 0), bought("c2", "n1", "i-2"), seen("c2", "n1", 0)}, nil},
		{"a machine in two clusters", []domain.Envelope{cluster("c1"), cluster("c2"), bought("c1", "n1", "i-1"), seen("c1", "n1", 0), bought("c2", "n2", "i-1"), seen("c2", "n2", 0)},
			[]string{"node_in_two_clusters 1/i-1: in service in [c1 c2]"}},
		{"never declared", []domain.Envelope{cluster("c1"), seen("c1", "n1", 0, 1)}, []string{"node_unregistered c1/n1: it reported 2 GPUs"}},
		{"never seen", []domain.Envelope{cluster("c1"), storetest.Node("c1", "n1", "A100 40GB", 2, storetest.Start)}, []string{"node_never_seen c1/n1: declared from 2026-05-01T00:00:00Z with 2 GPUs"}},
		{"no cluster", []domain.Envelope{storetest.Node("c1", "n1", "A100 40GB", 1, storetest.Start), seen("c1", "n1", 0)}, []string{"cluster_unregistered c1: nodes names it"}},
		{"reported when retired", []domain.Envelope{cluster("c1"), storetest.Node("c1", "n1", "A100 40GB", 1, storetest.Start), {Cluster: "c1", Time: storetest.Start + storetest.Minute, Event: &domain.NodeRetired{Node: "n1"}}, seen("c1", "n1", 0)},
			[]string{"node_not_in_service c1/n1: it reported up to 2026-05-01T00:30:00Z"}},
		{"another GPU than declared", []domain.Envelope{cluster("c1"), storetest.Node("c1", "n1", "A100 40GB", 2, storetest.Start), seen("c1", "n1", 0, 2)},
			[]string{"gpu_not_reported " + storetest.GPU("c1", "n1", 1).String(), "gpu_undeclared " + storetest.GPU("c1", "n1", 2).String()}},
		{"unknown models", []domain.Envelope{
			cluster("c1"), storetest.Node("c1", "n2", "G2", 3, storetest.Start), seen("c1", "n2", 0, 1, 2), storetest.Node("c1", "n1", "G2", 1, storetest.Start), seen("c1", "n1", 0), storetest.Node("c1", "n3", "G3", 1, storetest.Start), seen("c1", "n3", 0),
			cluster("c2"), storetest.Node("c2", "m1", "G2", 2, storetest.Start), seen("c2", "m1", 0, 1),
		}, []string{"gpu_model_unknown G2: 2 GPUs in c2, the first in node m1", "gpu_model_unknown G2: 4 GPUs in c1, the first in node n1", "gpu_model_unknown G3: 1 GPUs in c1, the first in node n3"}},
		{"unregistered workspaces", []domain.Envelope{
			cluster("c1"), storetest.Cluster("c2", "owner", "p", "eu", storetest.Start), storetest.Cluster("c3", "owner", "p", "eu", storetest.Start),
			storetest.Node("c1", "n1", "A100 40GB", 2, storetest.Start), storetest.Node("c1", "n2", "A100 40GB", 1, storetest.Start),
			{Cluster: "c1", Workspace: "gone", Time: storetest.Start, Event: &domain.DeploymentChanged{Deployment: "d", Model: "m", Class: domain.ClassServing}},
			{Cluster: "c1", Workspace: "gone", Time: storetest.Start + storetest.Minute, Event: &domain.DeploymentRemoved{Deployment: "d"}},
			{Cluster: "c1", Workspace: "tenant", Time: storetest.Start, Event: &domain.DeploymentChanged{Deployment: "e", Model: "m", Class: domain.ClassServing}},
			holding("n1", storetest.Start-storetest.Minute, "past", "acme"), holding("n1", storetest.Start, "holder", "acme"), holding("n2", storetest.Start, "tenant"), holding("n2", at, "future"),
		}, []string{
			"workspace_unregistered holder: named by the last report of c1/n1, and nobody registered it",
			"workspace_unregistered owner: named by cluster c2 and 1 more, and nobody registered it",
			"workspace_unregistered tenant: named by deployment c1/e and 1 more, and nobody registered it",
		}},
		{"a gap", []domain.Envelope{cluster("c1"), storetest.Node("c1", "n1", "A100 40GB", 1, storetest.Start), gap}, []string{"stream_incomplete qm.telemetry/"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(domain.Envelope{Workspace: "acme", Time: at + domain.Day, Event: &domain.WorkspaceRegistered{Name: "Acme"}}) // history may be older
			l.Append(c.log...)
			var got []string
			for _, e := range take(t, l, inventory.Filter{At: at}).Exceptions {
				got = append(got, e.Kind+" "+e.Subject+": "+e.Detail)
			}
			if len(got) != len(c.want) {
				t.Fatalf("got %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("got %q, want %q", got[i], c.want[i])
				}
			}
		})
	}
	t.Run("clocks", func(t *testing.T) {
		for _, ahead := range []domain.Instant{5 * storetest.Minute, 60 * storetest.Minute} {
			l := storetest.NewLog()
			l.Append(domain.Envelope{Workspace: "acme", Time: storetest.Start, Event: &domain.WorkspaceRegistered{Name: "Acme"}})
			env := cluster("c1")
			env.Time += ahead
			l.AppendAt(env, storetest.Start)
			inv := take(t, l, inventory.Filter{At: at})
			if want := ahead > 5*storetest.Minute; want != (len(inv.Exceptions) == 1) || want && !strings.Contains(inv.Exceptions[0].Detail, "dated 1h0m0s after") {
				t.Errorf("%d minutes ahead: %+v", int64(ahead/storetest.Minute), inv.Exceptions)
			}
		}
	})
}

// Each GPU's fault ends separately; the node is ok when none is left. A return by a monitoring
// system ends none.
func TestFaultsEnd(t *testing.T) {
	at := func(minutes int, ev domain.Event) domain.Envelope {
		return domain.Envelope{Source: "node-reporter/c1/n1", Cluster: "c1", Time: storetest.Start + domain.Instant(minutes)*storetest.Minute, Event: ev}
	}
	fault := func(g int) *domain.GPUFaultObserved {
		return &domain.GPUFaultObserved{Node: "n1", GPU: storetest.GPU("c1", "n1", g), Kind: domain.FaultXID, Code: 79, Fatal: true}
	}
	mended := func(g int) *domain.NodeReturned {
		return &domain.NodeReturned{Node: "n1", GPU: storetest.GPU("c1", "n1", g), Faults: true, Reason: "reached again"}
	}
	monitoring := at(15, &domain.NodeReturned{Node: "n1"})
	monitoring.Source = "prometheus/c1"
	log := []domain.Envelope{storetest.Cluster("c1", "acme", "p", "eu", storetest.Start), storetest.Node("c1", "n1", "H100 80GB", 2, storetest.Start),
		at(10, fault(0)), at(11, fault(1)), at(12, fault(0)), monitoring, at(20, mended(0)), at(30, mended(1)), at(40, fault(1)), at(50, mended(1))}
	for _, turned := range []bool{false, true} {
		if turned {
			slices.Reverse(log[2:])
		}
		l := storetest.NewLog()
		l.Append(log...)
		for _, c := range []struct {
			at, faults int
			state      string
		}{{5, 0, "ok"}, {16, 3, "failed"}, {25, 1, "failed"}, {35, 0, "ok"}, {45, 1, "failed"}, {55, 0, "ok"}} {
			h := take(t, l, inventory.Filter{At: storetest.Start + domain.Instant(c.at)*storetest.Minute}).Clusters[0].Nodes[0].Health
			if h.State != c.state || len(h.Faults) != c.faults || c.at > 30 && c.state == "ok" && h.Reason != "reached again" {
				t.Errorf("turned %v, at %d: %+v", turned, c.at, h)
			}
		}
	}
}
