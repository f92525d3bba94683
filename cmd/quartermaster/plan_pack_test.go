package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/adapters/highs"
	"quartermaster/cmd/quartermaster/internal/app"
	"quartermaster/simulations/public"
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

// Machines of two models and one without GPUs: each pod is on a model that it allows.
func TestPackShapesOfModels(t *testing.T) {
	pods := fewPods + "other,1000,1024,2,1000,A10\nlimited,1000,1024,4,1000,P100\n"
	args := []string{"--node-shape", "16,64GiB,4,P100", "--node-shape", "16,64GiB,2,A10", "--node-shape", "64,64GiB,0", "--every-pod"}
	code, out, errs := packed(t, "", pods, append(args, "-o", "json")...)
	var ans app.Packed
	if err := json.Unmarshal([]byte(out), &ans); code != 0 || err != nil {
		t.Fatal(code, err, out, errs)
	}
	// Four GPUs of "wide", four of "limited", two halves and a whole; two A10 and a part of one; CPU.
	var bins []int
	for _, s := range ans.Shapes {
		bins = append(bins, s.Bins)
	}
	if ans.UnplacedPods != 0 || !slices.Equal(bins, []int{3, 2, 1}) || ans.Bins != 6 || ans.LowerBound != 6 {
		t.Errorf("%s", out)
	}
	if _, out, _ = packed(t, "", pods, args...); !strings.Contains(out, "3 of 16,000 CPU milli, 65,536 MiB and 4 GPUs P100") {
		t.Errorf("%s", out)
	}
}

// The file of assignments proves the packing to a reader who has only that file and the two inputs.
func TestPackAssignments(t *testing.T) {
	openb := func(name string) string {
		if !public.Has(t, "openb/"+name) {
			return ""
		}
		text, err := os.ReadFile(filepath.Join(public.Dir(t), "openb", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, c := range []struct {
		name, nodes, pods string
		args              []string
	}{
		{name: "nodes", nodes: fewNodes, pods: fewPods},
		{name: "shape", pods: fewPods, args: []string{"--node-shape", "16,64GiB,4"}},
		{name: "models", pods: fewPods, args: []string{"--node-shape", "16,64GiB,4,P100", "--node-shape", "64,64GiB,0", "--every-pod"}},
		{name: "openb", nodes: openb("openb_node_list_gpu_node.csv"), pods: openb("openb_pod_list_gpuspec10.csv")},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.pods == "" {
				t.Skip("the openb trace is not here (set QUARTERMASTER_DATA)")
			}
			file := filepath.Join(t.TempDir(), "assignments.jsonl")
			code, out, errs := packed(t, c.nodes, c.pods, append(c.args, "--assignments", file, "-o", "json")...)
			var ans app.Packed
			if err := json.Unmarshal([]byte(out), &ans); code != 0 || err != nil {
				t.Fatal(code, err, out, errs)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			bins, left, err := readAssignments(lines, c.nodes, c.pods)
			if err != nil {
				t.Error(err)
			}
			if bins != ans.Bins || left["unplaced"] != ans.UnplacedPods || left["excluded"] != ans.Excluded {
				t.Errorf("%d bins and not placed %v, the answer has %d, %d and %d", bins, left, ans.Bins, ans.UnplacedPods, ans.Excluded)
			}
			// A file that says something else is found out.
			first := lines[0]
			for what, wrong := range map[string][]string{
				"a bin twice":      append([]string{first}, lines...),
				"a bin missing":    lines[1:],
				"a smaller need":   append([]string{regexp.MustCompile(`"cpu_milli":(\d+),"memory_mib":(\d+),"gpu_milli"`).ReplaceAllString(first, `"cpu_milli":1,"memory_mib":$2,"gpu_milli"`)}, lines[1:]...),
				"a smaller bin":    append([]string{regexp.MustCompile(`"size":{"cpu_milli":\d+`).ReplaceAllString(first, `"size":{"cpu_milli":1`)}, lines[1:]...),
				"a GPU too many":   append([]string{strings.Replace(first, `"gpus":[`, `"gpus":[999,`, 1)}, lines[1:]...),
				"a model too many": append([]string{strings.Replace(first, `"pods":[{`, `"pods":[{"models":["none"],`, 1)}, lines[1:]...),
			} {
				if _, _, err := readAssignments(wrong, c.nodes, c.pods); err == nil {
					t.Errorf("%s is not found", what)
				}
			}
		})
	}
}

// readAssignments checks lines of assignments against the texts of nodes, "" for none, and pods. It
// returns the number of machines and of pods on none, by why.
func readAssignments(lines []string, nodes, pods string) (bins int, left map[string]int, err error) {
	type amounts struct {
		CPUMilli  int64 `json:"cpu_milli"`
		MemoryMiB int64 `json:"memory_mib"`
	}
	table := func(text, key string) (map[string]map[string]string, error) {
		rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		out := map[string]map[string]string{}
		for _, row := range rows[1:] {
			m := map[string]string{}
			for i, v := range row {
				m[rows[0][i]] = v
			}
			out[m[key]] = m
		}
		return out, nil
	}
	want, err := table(pods, "name")
	if err != nil {
		return 0, nil, err
	}
	machines, err := table(nodes, "sn")
	if err != nil {
		return 0, nil, err
	}
	left = map[string]int{}
	for _, line := range lines {
		var bin struct {
			Bin  int
			Node string
			Size *struct {
				amounts
				GPUs  int
				Model string
			}
			Pods []struct {
				Pod string
				amounts
				GPUMilli int64 `json:"gpu_milli"`
				Models   []string
				GPUs     []int
			}
			NotPlaced string `json:"not_placed"`
		}
		dec := json.NewDecoder(strings.NewReader(line))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&bin); err != nil {
			return 0, nil, err
		}
		if bin.Bin > 0 {
			if bins++; bin.Bin != bins || len(bin.Pods) == 0 {
				return 0, nil, fmt.Errorf("bin %d is in the place of bin %d, with %d pods", bin.Bin, bins, len(bin.Pods))
			}
		}
		if m := machines[bin.Node]; bin.Bin > 0 && nodes != "" {
			if m == nil || m["cpu_milli"] != strconv.FormatInt(bin.Size.CPUMilli, 10) ||
				m["memory_mib"] != strconv.FormatInt(bin.Size.MemoryMiB, 10) || m["gpu"] != strconv.Itoa(bin.Size.GPUs) {
				return 0, nil, fmt.Errorf("bin %d is no node of the file", bin.Bin)
			}
			delete(machines, bin.Node)
		}
		var cpu, memory int64
		gpus := map[int]int64{}
		for _, p := range bin.Pods {
			row := want[p.Pod]
			if row == nil {
				return 0, nil, fmt.Errorf("%s is no pod of the file, or is there twice", p.Pod)
			}
			delete(want, p.Pod)
			each, err := strconv.ParseInt(row["gpu_milli"], 10, 64)
			if err != nil {
				return 0, nil, err
			}
			count, err := strconv.Atoi(row["num_gpu"])
			if err != nil {
				return 0, nil, err
			}
			if row["cpu_milli"] != strconv.FormatInt(p.CPUMilli, 10) || row["memory_mib"] != strconv.FormatInt(p.MemoryMiB, 10) ||
				each*int64(count) != p.GPUMilli || row["gpu_spec"] == "" && len(p.Models) > 0 {
				return 0, nil, fmt.Errorf("%s has other needs than in the file", p.Pod)
			}
			if bin.Bin == 0 {
				left[bin.NotPlaced]++
				continue
			}
			cpu, memory = cpu+p.CPUMilli, memory+p.MemoryMiB
			if len(p.GPUs) != count || len(p.Models) > 0 && !slices.Contains(p.Models, bin.Size.Model) {
				return 0, nil, fmt.Errorf("%s is on the GPUs %v of a %s", p.Pod, p.GPUs, bin.Size.Model)
			}
			for _, g := range p.GPUs {
				if gpus[g] += each; g < 0 || g >= bin.Size.GPUs || gpus[g] > 1000 {
					return 0, nil, fmt.Errorf("GPU %d of bin %d has %d thousandths", g, bin.Bin, gpus[g])
				}
			}
		}
		if bin.Bin > 0 && (cpu > bin.Size.CPUMilli || memory > bin.Size.MemoryMiB) {
			return 0, nil, fmt.Errorf("bin %d holds too much", bin.Bin)
		}
	}
	if len(want) > 0 {
		return 0, nil, fmt.Errorf("%d pods are missing", len(want))
	}
	return bins, left, nil
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
		{"", fewPods, []string{"--node-shape", "1,2GiB,3,A10", "--node-shape", "4,2GiB,3"}, "name the GPU model of each shape or of none"},
		{"", fewPods, []string{"--node-shape", "1,2GiB,3", "--node-shape", "1000m,2048MiB,3"}, "is the same as"},
		{fewNodes, fewPods, []string{"--node-shape", "1,2GiB,3"}, "leave one out"},
		{fewNodes, fewPods, []string{"--online", "fgd", "--assignments", "a.jsonl"}, "--assignments writes one packing"},
		{fewNodes, fewPods, []string{"--assignments", "/nowhere/a.jsonl"}, "/nowhere"},
		{"sn\n", fewPods, nil, "missing cpu_milli, memory_mib, gpu, model"},
		{fewNodes + "n3,many,1,1,T4\n", fewPods, nil, `nodes.csv:4: cpu_milli "many" is not a number`},
		{fewNodes + "n3,99999999999,1,1,T4\n", fewPods, nil, `nodes.csv: line 4: node "n3": CPU of 99999999999 milli`},
		{fewNodes, fewPods + "big,1,99999999999,0,0,\n", nil, `pods.csv: line 8: workload "big": memory of 99999999999 MiB`},
		{fewNodes, fewPods + "spec,1,1,1,500,P100||T4\n", nil, `pods.csv:8: gpu_spec "P100||T4" names an empty model`},
		{fewNodes, fewPods + "half-1,1,1,0,0,\n", nil, `pods.csv:8: name "half-1" is also the pod of line 2`},
	} {
		code, out, errs := packed(t, c.nodes, c.pods, c.args...)
		if code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("%v: exit %d, %s%s, want %q", c.args, code, out, errs, c.want)
		}
	}
	// The file of assignments replaces neither file of the question.
	file := filepath.Join(t.TempDir(), "pods.csv")
	if err := os.WriteFile(file, []byte(fewPods), 0o600); err != nil {
		t.Fatal(err)
	}
	var o, e strings.Builder
	args := []string{"plan", "pack", "--pods", file, "--node-shape", "16,64GiB,4", "--assignments", file}
	if code := run(args, strings.NewReader(""), &o, &e); code == 0 || !strings.Contains(e.String(), "is a file of the question") {
		t.Errorf("exit %d, %s%s", code, o.String(), e.String())
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != fewPods {
		t.Errorf("%v %s", err, text)
	}
}
