package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quartermaster/adapters/highs"
	"quartermaster/cmd/quartermaster/internal/app"
)

const (
	fewNodes = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,P100\nn2,8000,32768,1,T4\n"
	fewPods  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" +
		"half-1,4000,8192,1,500,\nhalf-2,4000,8192,1,500,P100|V100M16\nwhole,4000,8192,1,1000,\n" +
		"wide,4000,8192,4,1000,\nplain,60000,1024,0,0,\nchosen,1000,1024,1,700,A10\n"
)

// packed runs plan pack on texts of nodes and pods.
func packed(t *testing.T, nodes, pods string, args ...string) (code int, out, errs string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"nodes.csv": nodes, "pods.csv": pods} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args = append([]string{"--data-dir", dir, "plan", "pack", "--pods", filepath.Join(dir, "pods.csv")}, args...)
	if nodes != "" {
		args = append(args, "--nodes", filepath.Join(dir, "nodes.csv"))
	}
	var o, e strings.Builder
	code = run(args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// Two halves and a whole GPU fill two of the four GPUs of a machine, so two
// machines hold everything that fits; what needs more than one has says why.
func TestPackShape(t *testing.T) {
	code, out, errs := packed(t, "", fewPods, "--node-shape", "16,64GiB,4", "-o", "json")
	var ans app.Packed
	if err := json.Unmarshal([]byte(out), &ans); code != 0 || err != nil {
		t.Fatal(code, err, out, errs)
	}
	if ans.Pods != 5 || ans.Excluded != 1 || ans.Bins != 2 || ans.LowerBound != 2 || ans.Gap != 0 || ans.UnplacedPods != 0 || len(ans.Patterns) != 2 {
		t.Errorf("%s", out)
	}
	_, again, _ := packed(t, "", fewPods, "--node-shape", "16000m,65536MiB,4", "-o", "json")
	if again != out {
		t.Errorf("the same question gives\n%s\nand\n%s", out, again)
	}
	// With a model, what asks for others finds no place; with every pod, the
	// one without GPUs is told, too.
	_, out, _ = packed(t, "", fewPods, "--node-shape", "16,64GiB,4,P100", "--every-pod", "-o", "json")
	ans = app.Packed{}
	if err := json.Unmarshal([]byte(out), &ans); err != nil || ans.Pods != 6 || ans.UnplacedPods != 2 || ans.FitNoNode != 2 ||
		!slices.Equal(ans.Constraints, []app.PackConstraint{{Constraint: "cpu", Pods: 1, Machines: 3}, {Constraint: "gpu_model", Pods: 1, Machines: 3}}) {
		t.Errorf("%v %s", err, out)
	}
	if _, out, _ = packed(t, "", fewPods, "--node-shape", "16,64GiB,4,P100", "--every-pod"); !strings.Contains(out, "4 of 6 pods on ") || !strings.Contains(out, "2 pods do not fit an empty node") {
		t.Errorf("%s", out)
	}
	// For people: whether the bound is the best there is.
	_, out, _ = packed(t, "", fewPods, "--node-shape", "16,64GiB,4")
	want := "no column generation: this build has no LP solver"
	if highs.Available() {
		want = "converged"
	}
	if !strings.Contains(out, want) || !strings.Contains(out, "5 pods on 2 nodes") {
		t.Errorf("%s", out)
	}
}

func TestPackOnNodes(t *testing.T) {
	code, out, errs := packed(t, fewNodes, fewPods, "-o", "json")
	var ans app.Packed
	if err := json.Unmarshal([]byte(out), &ans); code != 0 || err != nil {
		t.Fatal(code, err, out, errs)
	}
	var names []string
	for _, u := range ans.Unplaced {
		names = append(names, u.Workload)
	}
	if ans.Pods != 6 || ans.Bins != 1 || !slices.Equal(names, []string{"chosen", "plain", "wide"}) {
		t.Errorf("%s", out)
	}
}

func TestPackRefuses(t *testing.T) {
	for _, c := range []struct {
		nodes, pods string
		args        []string
		want        string
	}{
		{"", fewPods, nil, "--node-shape"},
		{"", fewPods, []string{"--node-shape", "1,2"}, "has 2 parts"},
		{"", fewPods, []string{"--node-shape", "x,2GiB,3"}, `CPU "x" is not`},
		{"", fewPods, []string{"--node-shape", "1,2GB,3"}, `memory "2GB" is not`},
		{"", fewPods, []string{"--node-shape", "1,2GiB,-3"}, `GPUs "-3" is not`},
		{"", fewPods, []string{"--node-shape", "1,2GiB,3,"}, "GPU model"},
		{"", fewPods, []string{"--node-shape", "0m,0MiB,0"}, `CPU "0m" is not above 0`},
		{"", fewPods, []string{"--node-shape", "1,0GiB,0"}, `memory "0GiB" is not above 0`},
		{"", fewPods, []string{"--node-shape", "1,2GiB,5000"}, "5000 GPUs"},
		{"sn\n", fewPods, nil, "missing cpu_milli, memory_mib, gpu, model"},
		{fewNodes + "n3,many,1,1,T4\n", fewPods, nil, `nodes.csv:4: cpu_milli "many" is not a number`},
		{fewNodes, fewPods + "half-1,1,1,0,0,\n", nil, `pods.csv:8: name "half-1" is also the pod of line 2`},
	} {
		code, out, errs := packed(t, c.nodes, c.pods, c.args...)
		if code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit %d, %s%s, want %q", c.args, code, out, errs, c.want)
		}
	}
}
