package packing_test

import (
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain/packing"
)

// Meaningless input is refused, and the error names it.
func TestRefusesNonsense(t *testing.T) {
	node := packing.Node{ID: "n", Count: 1, GPUs: 2, CPUMilli: 1000, MemoryMiB: 1000}
	load := packing.Workload{ID: "w", Replicas: 1, GPUMilli: 500}
	for want, c := range map[string]func(n *packing.Node, w *packing.Workload){
		`workload "w": 1500 milli of GPU`:                  func(_ *packing.Node, w *packing.Workload) { w.GPUMilli = 1500 },
		`workload "w": -1 milli of GPU`:                    func(_ *packing.Node, w *packing.Workload) { w.GPUMilli = -1 },
		`workload "w": -2 replicas`:                        func(_ *packing.Node, w *packing.Workload) { w.Replicas = -2 },
		`workload "w": CPU of -5 milli`:                    func(_ *packing.Node, w *packing.Workload) { w.CPUMilli = -5 },
		`workload "w": memory of -5 MiB`:                   func(_ *packing.Node, w *packing.Workload) { w.MemoryMiB = -5 },
		`workload "w": at most -1 replicas a node`:         func(_ *packing.Node, w *packing.Workload) { w.MaxPerNode = -1 },
		`node "n": count 0`:                                func(n *packing.Node, _ *packing.Workload) { n.Count = 0 },
		`node "n": 5000 GPUs`:                              func(n *packing.Node, _ *packing.Workload) { n.GPUs = 5000 },
		`node "n": CPU of 1099511627776 milli`:             func(n *packing.Node, _ *packing.Workload) { n.CPUMilli = 1 << 40 },
		`node "n": memory of -1 MiB`:                       func(n *packing.Node, _ *packing.Workload) { n.MemoryMiB = -1 },
		`node "n": 3 GPUs held of 2`:                       func(n *packing.Node, _ *packing.Workload) { n.Held.GPUMilli = make([]int64, 3) },
		`node "n": GPU 1 has 1001 milli held`:              func(n *packing.Node, _ *packing.Workload) { n.Held.GPUMilli = []int64{0, 1001} },
		`node "n": CPU of 1001 milli held of 1000`:         func(n *packing.Node, _ *packing.Workload) { n.Held.CPUMilli = 1001 },
		`node "n": memory of 1001 MiB held of 1000`:        func(n *packing.Node, _ *packing.Workload) { n.Held.MemoryMiB = 1001 },
		`two nodes have the id "other"`:                    func(n *packing.Node, _ *packing.Workload) { n.ID = "other" },
		`workload "w": a MIG profile and 500 milli of GPU`: func(_ *packing.Node, w *packing.Workload) { w.Profile = "1g.10gb" },
		`workload "w": no GPU has a MIG profile "9g.1gb"`:  func(_ *packing.Node, w *packing.Workload) { w.GPUMilli, w.Profile = 0, "9g.1gb" },
		`node "n": a MIG instance that is held is none of its GPUs`: func(n *packing.Node, _ *packing.Workload) {
			n.Held.Instances = []packing.Instance{{GPU: 1, Profile: "1g.10gb"}}
		},
		`node "n": a MIG instance that is held cannot lie there`: func(n *packing.Node, _ *packing.Workload) {
			n.MIG, n.Model = true, "A100 80GB"
			n.Held.Instances = []packing.Instance{{GPU: 1, Profile: "3g.40gb", Start: 4}, {GPU: 1, Profile: "1g.20gb", Start: 6}}
		},
		`node "n": cost -1`:                 func(n *packing.Node, _ *packing.Workload) { n.Cost = -1 },
		`two workloads have the id "other"`: func(_ *packing.Node, w *packing.Workload) { w.ID = "other" },
		`too many replicas`:                 func(_ *packing.Node, w *packing.Workload) { w.Replicas = 1 << 24 },
		`too many machines`:                 func(n *packing.Node, _ *packing.Workload) { n.Count = 1 << 24 },
	} {
		n, w, other, others := node, load, node, load
		other.ID, others.ID = "other", "other"
		c(&n, &w)
		_, err := packing.Pack([]packing.Node{n, other}, []packing.Workload{w, others}, packing.Options{})
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	node.Held.CPUMilli = 1
	if _, err := packing.Need([]packing.Node{node}, nil, packing.Options{}); err == nil || !strings.Contains(err.Error(), `kind "n" has something held`) {
		t.Errorf("error %v of a kind with something held", err)
	}
}

// By hand: three of four replicas need 600 milli, one needs two whole GPUs.
func TestFragmentation(t *testing.T) {
	loads := []packing.Workload{
		{ID: "part", Replicas: 3, GPUMilli: 600, CPUMilli: 4},
		{ID: "whole", Replicas: 1, GPUMilli: 2000, CPUMilli: 1},
		{ID: "none", Replicas: 9, CPUMilli: 100}, // not drawn
	}
	node := func(id, model string, cpu int64, held ...int64) packing.Node {
		return packing.Node{ID: id, Count: 1, Model: model, GPUs: 4, CPUMilli: 8, Held: packing.Held{CPUMilli: 8 - cpu, GPUMilli: held}}
	}
	got, err := packing.Fragmentation([]packing.Node{
		node("a", "A", 8, 0, 0, 500, 300),      // part: 500; whole: 500 + 700 → (3·500 + 1200) ÷ 4
		node("b", "B", 2, 0, 0, 0, 300),        // part: no CPU, all 3700; whole: 700 → (3·3700 + 700) ÷ 4
		node("c", "B", 8, 1000, 0, 1000, 1000), // part: none; whole: all 1000 → 1000 ÷ 4
		{ID: "d", Count: 5, Model: "C", CPUMilli: 8},
	}, loads)
	if err != nil {
		t.Fatal(err)
	}
	want := []packing.Stranded{
		{Model: "A", TotalMilli: 4000, FreeMilli: 3200, StrandedMilli: 675},
		{Model: "B", TotalMilli: 8000, FreeMilli: 4700, StrandedMilli: 3200},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Production in the EU never shares with research: on a machine there they exclude each other
// whichever comes first; elsewhere they share.
func TestApartInAPlace(t *testing.T) {
	eu := packing.Place{Countries: []string{"DE", "IE"}}
	machine := func(id, cluster, region, country string) packing.Node {
		return packing.Node{ID: id, Count: 1, Cluster: cluster, Region: region, Country: country, GPUs: 8, CPUMilli: 8000, MemoryMiB: 8000}
	}
	load := func(id string, gpus int64, in ...packing.Apart) packing.Workload {
		return packing.Workload{ID: id, Replicas: 1, GPUMilli: gpus * 1000, CPUMilli: 1000, MemoryMiB: 1000, ApartIn: in}
	}
	for _, x := range []struct {
		name  string
		apart packing.Apart
		nodes []packing.Node
		left  int
	}{
		{"in it", packing.Apart{Workloads: []string{"research"}, In: eu}, []packing.Node{machine("n1", "a", "r1", "DE")}, 1},
		{"outside", packing.Apart{Workloads: []string{"research"}, In: eu}, []packing.Node{machine("n1", "a", "r1", "US")}, 0},
		{"where the country is not known", packing.Apart{Workloads: []string{"research"}, In: eu}, []packing.Node{machine("n1", "a", "r1", "")}, 0},
		{"of two lists both", packing.Apart{Workloads: []string{"research"}, In: packing.Place{Regions: []string{"r2"}, Countries: eu.Countries}}, []packing.Node{machine("n1", "a", "r1", "DE")}, 0},
		{"two machines in it", packing.Apart{Workloads: []string{"research"}, In: eu}, []packing.Node{machine("n1", "a", "r1", "DE"), machine("n2", "a", "r1", "DE")}, 0},
		{"one cluster in it", packing.Apart{Workloads: []string{"research"}, Cluster: true, In: eu}, []packing.Node{machine("n1", "a", "r1", "DE"), machine("n2", "a", "r1", "IE")}, 1},
		{"two clusters in it", packing.Apart{Workloads: []string{"research"}, Cluster: true, In: eu}, []packing.Node{machine("n1", "a", "r1", "DE"), machine("n2", "b", "r1", "IE")}, 0},
		{"a cluster on both sides", packing.Apart{Workloads: []string{"research"}, Cluster: true, In: eu}, []packing.Node{machine("n1", "a", "r1", "DE"), machine("n2", "a", "r2", "US")}, 0},
	} {
		loads := []packing.Workload{load("production", 4, x.apart), load("research", 3)}
		r, err := packing.Pack(x.nodes, loads, packing.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Unplaced) != x.left || x.left > 0 && (r.Unplaced[0].Workload != "research" || r.Unplaced[0].RuledOut[0].Constraint != packing.ApartConstraint) {
			t.Errorf("%s: unplaced %+v, want %d", x.name, r.Unplaced, x.left)
		}
		if err := verify(x.nodes, loads, r, false); err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
	}
}
