package inventory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/projections/failures"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// toldFault is XID 79 of a GPU of node n, reported by a source.
func toldFault(source string, minutes, g int) domain.Envelope {
	return domain.Envelope{Source: source, Cluster: "c", Time: storetest.Start + domain.Instant(minutes)*storetest.Minute,
		Event: &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(g), Kind: domain.FaultXID, Code: 79, Count: 1, Fatal: true}}
}

const (
	scraper = "prometheus/p"
	agentOf = "node-reporter/c/n"
)

// standing returns the condition of the nodes in service: "node state faults", with the indexes of
// failed GPUs.
func standing(t *testing.T, l *storetest.Log, at domain.Instant) string {
	t.Helper()
	var out []string
	for _, n := range take(t, l, inventory.Filter{At: at}).Clusters[0].Nodes {
		s := fmt.Sprintf("%s %s %d", n.Node, n.Health.State, len(n.Health.Faults))
		for _, g := range n.GPUs {
			if g.Failed {
				s += fmt.Sprintf(" !%d", slices.IndexFunc([]int{0, 1, 2, 3}, func(i int) bool { return storetest.DeviceOf(i) == g.ID }))
			}
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// A fault that a monitoring system sees again after a return keeps its GPU down, however soon it
// recurs, and in every order of the two sightings.
func TestSightedAgainAfterReturn(t *testing.T) {
	first, back, again := toldFault(scraper, 5, 0), storetest.Hardware(10, &domain.NodeReturned{Node: "n"}), toldFault(scraper, 15, 0)
	other := toldFault("prometheus/q", 15, 0)
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string
	}{
		{"returned", []domain.Envelope{first, back}, "n ok 0"},
		{"reported again before the return", []domain.Envelope{first, toldFault(scraper, 9, 0), back}, "n ok 0"},
		{"back after the return", []domain.Envelope{first, back, again}, "n failed 1 !0"},
		{"reported by another system", []domain.Envelope{first, back, other}, "n failed 1 !0"},
		{"the later arrives first", []domain.Envelope{again, back, first}, "n failed 1 !0"},
		{"between two others", []domain.Envelope{first, again, toldFault(scraper, 8, 0), back}, "n failed 1 !0"},
		{"returned again", []domain.Envelope{first, back, again, storetest.Hardware(20, &domain.NodeReturned{Node: "n"})}, "n ok 0"},
		{"reported by the agent", []domain.Envelope{toldFault(agentOf, 5, 0), back, toldFault(agentOf, 15, 0)}, "n failed 1 !0"},
	} {
		l := storetest.NewLog()
		l.Append(storetest.Cluster("c", "acme", "p", "eu", storetest.Start), storetest.Node("c", "n", "H100 80GB", 1, storetest.Start))
		l.Append(c.log...)
		if got := standing(t, l, storetest.Start+30*storetest.Minute); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		for _, row := range storetest.FaultRows(t, l) {
			var events uint64
			for i := range row.Versions {
				events += row.Versions[i].Events()
			}
			if want := uint64(1); events != want && c.name != "reported by the agent" {
				t.Errorf("%s: counts %d faults, want %d", c.name, events, want)
			}
		}
	}
}

// A fault belongs to a GPU. It counts for the node that has the GPU, under whatever name it was
// reported, and follows the GPU to another node.
func TestFaultsFollowGPUs(t *testing.T) {
	under := func(node string, env domain.Envelope) domain.Envelope {
		switch ev := env.Event.(type) {
		case *domain.GPUFaultObserved:
			ev.Node = node
		case *domain.NodeReturned:
			ev.Node = node
		case *domain.NodeRegistered:
			ev.Node = node
		}
		return env
	}
	registered := func(node string, minutes int, gpus ...int) domain.Envelope {
		e := &domain.NodeRegistered{Node: node}
		for i, g := range gpus {
			e.GPUs = append(e.GPUs, domain.GPUDeclared{ID: storetest.DeviceOf(g), Index: uint32(i), Model: "H100 80GB", PCI: fmt.Sprint("p", g)})
		}
		return domain.Envelope{Source: "node-reporter/c/" + node, Cluster: "c", Time: storetest.Start + domain.Instant(minutes)*storetest.Minute, Event: e}
	}
	offBus := func(node string, minutes, g int) domain.Envelope {
		return domain.Envelope{Source: "node-reporter/c/" + node, Cluster: "c", Time: storetest.Start + domain.Instant(minutes)*storetest.Minute,
			Event: &domain.GPUFaultObserved{Node: node, GPU: storetest.DeviceOf(g), Kind: domain.FaultOffBus, Count: 1, Fatal: true}}
	}
	one := registered("n", 1, 0)
	retired := func(minutes int) domain.Envelope {
		return storetest.Ann.Sign(storetest.Hardware(minutes, &domain.GPURetired{Node: "n", GPU: storetest.DeviceOf(1), Reason: "sent back"}))
	}
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string
	}{
		{"reported under another name", []domain.Envelope{one, under("ip-10", toldFault(scraper, 5, 0))}, "n failed 1 !0"},
		{"and returned under the node's", []domain.Envelope{one, under("ip-10", toldFault(scraper, 5, 0)), storetest.Hardware(6, &domain.NodeReturned{Node: "n"})}, "n ok 0"},
		{"and mended under another", []domain.Envelope{one, toldFault(agentOf, 5, 0), under("ip-10", storetest.Mended(6, 0))}, "n ok 0"},
		{"reported before the node was declared", []domain.Envelope{under("ip-10", toldFault(scraper, 0, 0)), one}, "n failed 1 !0"},
		{"of an unknown GPU", []domain.Envelope{one, under("ip-10", toldFault(scraper, 5, 3))}, "n ok 0"},
		{"renamed with a fault", []domain.Envelope{one, toldFault(agentOf, 5, 0), registered("m", 6, 0)}, "m failed 1 !0, n ok 0"},
		{"between its repeats", append(storetest.Storm(2, 8, 0, 79, true), one, registered("m", 6, 0)), "m failed 1 !0, n ok 0"},
		{"renamed when it was mended", []domain.Envelope{one, toldFault(agentOf, 5, 0), storetest.Mended(6, 0), registered("m", 7, 0)}, "m ok 0, n ok 0"},
		{"mended under the new name", []domain.Envelope{one, toldFault(agentOf, 5, 0), registered("m", 6, 0), under("m", storetest.Mended(7, 0))}, "m ok 0, n ok 0"},
		{"renamed and back", []domain.Envelope{one, toldFault(agentOf, 5, 0), registered("m", 6, 0), storetest.Hardware(7, &domain.NodeRetired{Node: "m"})}, "n failed 1 !0"},
		{"the old name is returned", []domain.Envelope{one, toldFault(agentOf, 5, 0), registered("m", 6, 0), storetest.Hardware(7, &domain.NodeReturned{Node: "n"})}, "m failed 1 !0, n ok 0"},

		{"retired, then pulled", []domain.Envelope{registered("n", 1, 0, 1), retired(4), registered("n", 5, 0), offBus("n", 5, 1)}, "n ok 0"},
		{"retired between repeats", append(storetest.Storm(2, 8, 1, 79, true), registered("n", 1, 0, 1), retired(4)), "n ok 0"},
		{"retired, and back", []domain.Envelope{registered("n", 1, 0, 1), retired(4), registered("n", 5, 0, 1), toldFault(agentOf, 6, 1)}, "n failed 1 !1"},
		{"retired without the right to", []domain.Envelope{registered("n", 1, 0, 1),
			storetest.Mallory.Sign(storetest.Hardware(4, &domain.GPURetired{Node: "n", GPU: storetest.DeviceOf(1), Reason: "r"})), toldFault(agentOf, 5, 1)}, "n failed 1 !1"},

		{"moved to another node", []domain.Envelope{registered("a", 1, 0, 1), registered("a", 3, 0), offBus("a", 3, 1), registered("b", 4, 2, 1)}, "a ok 0, b ok 0"},
		{"and there first", []domain.Envelope{registered("a", 1, 0, 1), registered("b", 3, 2, 1), registered("a", 4, 0)}, "a ok 0, b ok 0"},
		{"and lost there", []domain.Envelope{registered("a", 1, 0, 1), registered("a", 3, 0), registered("b", 4, 2, 1), registered("b", 5, 2)}, "a ok 0, b failed 0 !1"},
		{"and back", []domain.Envelope{registered("a", 1, 0, 1), registered("a", 3, 0), registered("b", 4, 2, 1), registered("b", 5, 2), registered("a", 6, 0, 1)}, "a ok 0, b ok 0"},
		{"and retired there", []domain.Envelope{registered("a", 1, 0, 1), registered("a", 3, 0), registered("b", 4, 2, 1), storetest.Hardware(5, &domain.NodeRetired{Node: "b"})}, "a ok 0"},
	} {
		l := storetest.NewLog()
		l.Append(
			storetest.Root.Register(storetest.Root, "home", domain.RoleAdmin, nil, storetest.Start),
			storetest.Ann.Register(storetest.Root, "acme", domain.RoleOperator, nil, storetest.Start+1),
			storetest.Mallory.Register(storetest.Root, "beta", domain.RoleAdmin, nil, storetest.Start+1),
			storetest.Ann.Sign(storetest.Cluster("c", "acme", "p", "eu", storetest.Start+2)),
		)
		l.Append(c.log...)
		if got := standing(t, l, storetest.Start+30*storetest.Minute); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		storetest.FoldView(t, l, func(v projections.View) {
			if _, err := failures.ByModel(v, storetest.Start, storetest.Start+domain.Hour, reliability.DefaultCounts()); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		})
	}
}

// A fault reported under a second name fails the hour of the node that has the GPU.
func TestFaultUnderOtherNameFailsTheHour(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Node("c", "n", "H100 80GB", 1, storetest.Start))
	sample := storetest.Sampled(scraper, 0, 60, storetest.Seen{ID: storetest.DeviceOf(0), Workspace: "a", Activity: -1})
	sample.Event.(*domain.NodeSampled).Node = "ip-10"
	fault := toldFault(scraper, 30, 0)
	fault.Event.(*domain.GPUFaultObserved).Node = "ip-10"
	l.Append(sample, fault)
	storetest.FoldView(t, l, func(v projections.View) {
		var got string
		if err := usage.EachDeviceHour(v, storetest.Start, storetest.Start+domain.Hour, func(d *usage.DeviceHour) error {
			for _, s := range d.Segments {
				got += fmt.Sprintf("%s %d-%d %s %t;", d.Node, s.From/60_000, s.To/60_000, s.State, s.WhileFailed)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if want := "n 0-30 allocated false;n 30-60 allocated true;"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// Reports of one fault by the agent and a monitoring system are one fault. A scrape after the
// agent's return has no effect while the agent reports the node.
func TestFaultToldByAgentAndScrape(t *testing.T) {
	reports := func(from, to int) domain.Envelope {
		return storetest.Sampled(agentOf, from, to, storetest.Seen{ID: storetest.DeviceOf(0), Activity: 0})
	}
	back := storetest.Hardware(6, &domain.NodeReturned{Node: "n", GPU: storetest.DeviceOf(0), Faults: true})
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string
	}{
		{"both", []domain.Envelope{reports(0, 20), toldFault(agentOf, 5, 0), toldFault(scraper, 7, 0)}, "n failed 1 !0"},
		{"the scrape first", []domain.Envelope{reports(0, 20), toldFault(scraper, 4, 0), toldFault(agentOf, 5, 0)}, "n failed 1 !0"},
		{"mended, and a late scrape", []domain.Envelope{reports(0, 20), toldFault(agentOf, 5, 0), back, toldFault(scraper, 7, 0)}, "n ok 0"},
		{"scraped twice", []domain.Envelope{reports(0, 20), toldFault(agentOf, 5, 0), toldFault(scraper, 5, 0), back, toldFault(scraper, 7, 0)}, "n ok 0"},
		{"long after the agent's", []domain.Envelope{reports(0, 40), toldFault(agentOf, 5, 0), back, toldFault(scraper, 25, 0)}, "n failed 1 !0"},
		{"the agent stopped", []domain.Envelope{reports(0, 6), toldFault(agentOf, 5, 0), back, toldFault(scraper, 15, 0)}, "n failed 1 !0"},
		{"the agent goes while it is scraped", []domain.Envelope{reports(0, 8), toldFault(agentOf, 5, 0), back, toldFault(scraper, 7, 0), toldFault(scraper, 15, 0)}, "n failed 1 !0"},
		{"another GPU", []domain.Envelope{reports(0, 20), toldFault(agentOf, 5, 0), back, toldFault(scraper, 7, 1)}, "n failed 1 !1"},
	} {
		l := storetest.NewLog()
		l.Append(storetest.Cluster("c", "acme", "p", "eu", storetest.Start), storetest.Node("c", "n", "H100 80GB", 2, storetest.Start))
		l.Append(c.log...)
		if got := standing(t, l, storetest.Start+30*storetest.Minute); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}
