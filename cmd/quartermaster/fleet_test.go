package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
)

// Nodes that nobody registered are shown with what failed, those first, and the last
// that their cluster was heard.
func TestFleetShowsUnregisteredNodes(t *testing.T) {
	const noon = 1_780_000_000 * domain.Second
	c := projections.ClusterEntry{Cluster: "lab", Registered: true, Provider: "own", ProviderClass: domain.Owned, Region: "eu"}
	for i := range 30 {
		n := projections.UnregisteredNode{Node: fmt.Sprintf("n%02d", i), LastTelemetry: noon, Health: projections.Health{State: "ok"}, GPUs: make([]projections.UndeclaredGPU, 8)}
		if i == 29 {
			n.Health = projections.Health{State: "failed", Reason: "XID 79"}
			n.GPUs[3].Failed = true
		}
		c.UnregisteredNodes = append(c.UnregisteredNodes, n)
	}
	show := func(all bool) string {
		var b bytes.Buffer
		(&app{out: &b}).showFleet(&projections.Inventory{Clusters: []projections.ClusterEntry{c}}, all, asked{})
		return b.String()
	}
	short := show(false)
	for _, want := range []string{"not registered, and counted nowhere: 30 nodes that report", "failed: XID 79", "and 20 more", seen(noon)} {
		if !strings.Contains(short, want) {
			t.Errorf("no %q in\n%s", want, short)
		}
	}
	if strings.Contains(short, "never") || strings.Index(short, "n29") > strings.Index(short, "n00") {
		t.Errorf("got\n%s", short)
	}
	if all := show(true); !strings.Contains(all, "n28") || strings.Contains(all, " more") {
		t.Errorf("got\n%s", all)
	}
}
