package packing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
)

// The placements that NVIDIA publishes for A100 (by size in memory slices and compute slices)
// follow from the rule, and as many instances fit together as the catalogue says.
func TestInstancesLieAsPublished(t *testing.T) {
	published := map[string]string{ // "nvidia-smi mig -lgipp", by compute and memory slices
		"1/1": "[0 1 2 3 4 5 6]", "1/2": "[0 2 4 6]", "2/2": "[0 2 4]", "3/4": "[0 4]", "4/4": "[0]", "7/8": "[0]",
	}
	seen := 0
	for _, m := range domain.GPUModels() {
		n := Node{Model: m.Name, MIG: true, GPUs: 1}
		if m.MIG == nil || layoutOf(&n) == nil {
			continue
		}
		for _, p := range m.MIG.Profiles {
			f := profileOn(p.Name, &n)
			if m.MIG.MemorySlices == 8 {
				seen++
				if got := fmt.Sprint(f.starts); got != published[fmt.Sprintf("%d/%d", p.ComputeSlices, p.MemorySlices)] {
					t.Errorf("%s %s starts at %s", m.Name, p.Name, got)
				}
			}
			if f.room(0) != int(p.MaxInstances) {
				t.Errorf("%s %s: room for %d, the catalogue has %d", m.Name, p.Name, f.room(0), p.MaxInstances)
			}
		}
	}
	if seen < 21 {
		t.Errorf("only %d profiles were looked at", seen)
	}
}

// On one GPU the configurations drawn in the guide fit in any order, and others do not.
func TestConfigurations(t *testing.T) {
	node := Node{ID: "n", Count: 1, Model: "H100 SXM 80GB", GPUs: 1, MIG: true}
	for _, c := range []struct {
		profiles string
		gpus     int
	}{
		{"7g.80gb", 1},
		{"4g.40gb 3g.40gb", 1},
		{"3g.40gb 3g.40gb", 1},
		{"3g.40gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb", 1},
		{"4g.40gb 2g.20gb 1g.10gb", 1},
		{"2g.20gb 2g.20gb 2g.20gb 1g.10gb", 1},
		{"1g.20gb 1g.20gb 1g.20gb 1g.20gb", 1},
		{"1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb 1g.10gb", 1},
		{"3g.40gb 3g.40gb 1g.10gb", 2},                                 // no memory left, one compute slice is lost
		{"4g.40gb 4g.40gb", 2},                                         // eight compute slices
		{"2g.20gb 2g.20gb 2g.20gb 2g.20gb", 2},                         // eight again
		{"1g.20gb 1g.20gb 1g.20gb 1g.20gb 1g.10gb", 2},                 // memory
		{"1g.10gb+me 1g.10gb+me", 2},                                   // one media engine
		{"3g.40gb 2g.20gb 1g.10gb 1g.10gb 1g.10gb", 2},                 // nine slices of memory
		{"4g.40gb 1g.20gb 1g.20gb 3g.40gb 3g.40gb 2g.20gb 1g.10gb", 3}, // three of four would do by sums
	} {
		var loads []Workload
		for i, p := range strings.Fields(c.profiles) {
			loads = append(loads, Workload{ID: fmt.Sprint("w", i), Replicas: 1, Profile: p})
		}
		for range 2 {
			slices.Reverse(loads)
			for i := range loads {
				loads[i].ID = fmt.Sprint("w", i)
			}
			node.Count = Unlimited
			r, err := Need([]Node{node}, loads, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.NodesUsed != c.gpus {
				t.Errorf("%s: %d GPUs, want %d: %+v", c.profiles, r.NodesUsed, c.gpus, r.Machines)
			}
		}
	}
}
