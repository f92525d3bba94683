package cli

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/domain"
	"quartermaster/projections/inventory"
)

// Nodes that nobody registered are shown with what failed, those first, and the last
// that their cluster was heard.
func TestFleetShowsUnregisteredNodes(t *testing.T) {
	const noon = 1_780_000_000 * domain.Second
	c := inventory.ClusterEntry{Cluster: "lab", Registered: true, Provider: "own", ProviderClass: domain.Owned, Region: "eu"}
	for i := range 30 {
		n := inventory.UnregisteredNode{Node: fmt.Sprintf("n%02d", i), LastTelemetry: noon, Health: inventory.Health{State: "ok"}, GPUs: make([]inventory.UndeclaredGPU, 8)}
		if i == 29 {
			n.Health = inventory.Health{State: "failed", Reason: "XID 79"}
			n.GPUs[3].Failed = true
		}
		c.UnregisteredNodes = append(c.UnregisteredNodes, n)
	}
	show := func(all bool) string {
		var b bytes.Buffer
		(commandLine(&app.App{}, &b, io.Discard)).showFleet(&inventory.Inventory{Clusters: []inventory.ClusterEntry{c}}, all, "")
		return b.String()
	}
	short := show(false)
	for _, want := range []string{"not registered and not counted: 30 nodes that report", "failed: XID 79", "and 20 more", seen(noon)} {
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

// A GPU that two nodes of a cluster declare is one GPU of the cluster.
func TestFleetCountsEachGPUOnce(t *testing.T) {
	c := inventory.ClusterEntry{Cluster: "lab", Registered: true, Provider: "own", ProviderClass: domain.Owned, Region: "eu"}
	for n, gpus := range [][]byte{{1, 2}, {2, 3}} {
		e := inventory.NodeEntry{Node: fmt.Sprint("n", n), Health: inventory.Health{State: "ok"}}
		for _, g := range gpus {
			e.GPUs = append(e.GPUs, inventory.GPUEntry{ID: domain.GPUID{g}})
		}
		c.Nodes = append(c.Nodes, e)
	}
	var b bytes.Buffer
	(commandLine(&app.App{}, &b, io.Discard)).showFleet(&inventory.Inventory{Clusters: []inventory.ClusterEntry{c}}, false, "")
	var line []string
	for l := range strings.Lines(b.String()) {
		if strings.Contains(l, "lab") {
			line = strings.FieldsFunc(l, func(r rune) bool { return r == ' ' || r == '|' || r == '│' })
		}
	}
	if got := strings.Join(line, " "); !strings.Contains(got, " eu 2 3 0 ") {
		t.Errorf("%s, want 2 nodes with 3 GPUs, all ok", got)
	}
}
