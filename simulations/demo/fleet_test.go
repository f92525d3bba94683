package demo_test

import (
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
)

// The published totals: 1,213 nodes, and GPUs by model.
func TestFleetNodes(t *testing.T) {
	nodes := rows(t, "nodes")
	gpus, names := map[string]int{}, map[string]bool{}
	for _, n := range nodes {
		gpus[n["model"]] += number(t, n["gpu"])
		if names[n["sn"]] || !strings.HasPrefix(n["sn"], "gen-node-") {
			t.Errorf("node %q is there twice or not called generated", n["sn"])
		}
		names[n["sn"]] = true
		if _, known := domain.LookupGPU(n["model"]); !known {
			t.Errorf("GPU model %q is not in the catalogue", n["model"])
		}
	}
	want := map[string]int{"A10G": 4392, "T4": 842, "A100 40GB": 312, "P100": 265, "V100M32": 204, "V100M16": 195, "A10": 2}
	total := 0
	for model, n := range want {
		total += n
		if gpus[model] != n {
			t.Errorf("%d GPUs %s, want %d", gpus[model], model, n)
		}
	}
	if len(nodes) != 1213 || total != 6212 || len(gpus) != len(want) {
		t.Errorf("%d nodes with %v", len(nodes), gpus)
	}
}

// Population by GPU request, in per mille: Weng et al. state 133, 378, 480, 2,
// 2 and 5.
func TestFleetPods(t *testing.T) {
	pods := rows(t, "pods")
	kinds := map[string]int{}
	constrained, withGPU, milli, last := 0, 0, 0, 0
	names := map[string]bool{}
	for _, p := range pods {
		gpus, share := number(t, p["num_gpu"]), number(t, p["gpu_milli"])
		switch {
		case gpus == 1 && share < 1000:
			kinds["part"]++
		default:
			kinds[p["num_gpu"]]++
		}
		if gpus == 0 && share != 0 || gpus > 0 && (share < 1 || share > 1000) || gpus > 1 && share != 1000 {
			t.Errorf("pod %s asks for %d GPUs with %d thousandths of each", p["name"], gpus, share)
		}
		milli += gpus * share
		if gpus > 0 {
			withGPU++
		}
		if p["gpu_spec"] != "" {
			constrained++
		}
		created := number(t, p["creation_time"])
		if created < last || created >= 30*86400 || number(t, p["scheduled_time"]) < created || p["deletion_time"] != "" {
			t.Errorf("pod %s is created at %d, after one at %d", p["name"], created, last)
		}
		last = created
		if names[p["name"]] || !strings.HasPrefix(p["name"], "gen-pod-") {
			t.Errorf("pod %q is there twice or not called generated", p["name"])
		}
		names[p["name"]] = true
	}
	for kind, perMille := range map[string]int{"0": 133, "part": 378, "1": 480, "2": 2, "4": 2, "8": 5} {
		if got := (kinds[kind]*1000 + len(pods)/2) / len(pods); got != perMille {
			t.Errorf("%d per mille of the pods ask for %s GPUs, want %d", got, kind, perMille)
		}
	}
	if len(pods) != 7600 {
		t.Errorf("%d pods, want 7600", len(pods))
	}
	// The pods of the trace ask for 6,086.8 GPUs with 8,152 pods.
	if perPod := milli / len(pods); perPod < 730 || perPod > 765 {
		t.Errorf("a pod asks for %d thousandths of a GPU on average, want about 747", perPod)
	}
	if part := constrained * 1000 / withGPU; part < 80 || part > 110 {
		t.Errorf("%d per mille of the pods with GPUs name models, want about 100", part)
	}
}

// Every pod fits on some node that it may use, by trying all of them.
func TestFleetPodsFit(t *testing.T) {
	nodes := rows(t, "nodes")
	type shape struct {
		model             string
		gpus, cpu, memory int
	}
	var shapes []shape
	for _, n := range nodes {
		s := shape{n["model"], number(t, n["gpu"]), number(t, n["cpu_milli"]), number(t, n["memory_mib"])}
		if !slices.Contains(shapes, s) {
			shapes = append(shapes, s)
		}
	}
	for _, p := range rows(t, "pods") {
		gpus, cpu, memory := number(t, p["num_gpu"]), number(t, p["cpu_milli"]), number(t, p["memory_mib"])
		spec := strings.Split(p["gpu_spec"], "|")
		for _, model := range spec {
			if _, known := domain.LookupGPU(model); !known && p["gpu_spec"] != "" {
				t.Fatalf("pod %s wants a GPU %q, which is not in the catalogue", p["name"], model)
			}
		}
		if !slices.ContainsFunc(shapes, func(s shape) bool {
			return s.gpus >= gpus && s.cpu >= cpu && s.memory >= memory && (p["gpu_spec"] == "" || slices.Contains(spec, s.model))
		}) {
			t.Errorf("pod %v fits on no node", p)
		}
	}
}
