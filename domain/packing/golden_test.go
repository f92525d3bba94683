package packing_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"quartermaster/domain/packing"
)

var update = flag.Bool("update", false, "write the goldens anew; read the difference before committing it")

// readCase reads a text of nodes and workloads, one a line, with non-zero fields as key=value. CPU
// is in cores, memory in GiB.
func readCase(t *testing.T, name string) (nodes []packing.Node, loads []packing.Workload) {
	t.Helper()
	file, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		n, w := packing.Node{Count: 1}, packing.Workload{}
		n.ID, w.ID = fields[1], fields[1]
		for _, f := range fields[2:] {
			key, value, _ := strings.Cut(f, "=")
			number, _ := strconv.ParseInt(value, 10, 64)
			list := strings.Split(value, ",")
			switch key {
			case "cluster":
				n.Cluster = value
			case "country":
				n.Country = value
			case "model":
				n.Model = strings.ReplaceAll(value, "_", " ")
			case "mig":
				n.MIG = true
			case "unshared":
				n.Unshared = true
			case "fabric":
				n.Fabric = value
			case "held_instance":
				start, _ := strconv.Atoi(list[1])
				n.Held.Instances = []packing.Instance{{GPU: 0, Profile: list[0], Start: start}}
			case "class":
				w.Class = value
			case "profile":
				w.Profile = value
			case "isolated":
				w.Isolated = true
			case "gang":
				w.Gang = value
			case "gpus":
				n.GPUs = int(number)
			case "cpu":
				n.CPUMilli, w.CPUMilli = number*1000, number*1000
			case "memory":
				n.MemoryMiB, w.MemoryMiB = number<<10, number<<10
			case "held_gpu":
				n.Held.GPUMilli = []int64{number}
			case "held_cpu":
				n.Held.CPUMilli = number * 1000
			case "workspace":
				w.Workspace = value
			case "replicas":
				w.Replicas = int(number)
			case "gpu":
				w.GPUMilli = number
			case "certifications":
				n.Certifications, w.Certifications = list, list
			case "dedicated":
				n.Dedicated, w.Dedicated = value, true
			case "models":
				w.Models = list
			case "countries":
				w.Countries = list
			case "clusters":
				w.Clusters = list
			case "max_per_node":
				w.MaxPerNode = int(number)
			case "apart_node":
				w.ApartNode = list
			case "apart_cluster":
				w.ApartCluster = list
			default:
				t.Fatalf("%s: %q", name, f)
			}
		}
		if fields[0] == "node" {
			nodes = append(nodes, n)
		} else {
			loads = append(loads, w)
		}
	}
	return nodes, loads
}

// render formats a result for people.
func render(r *packing.Result) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s by %q\n", r.Method, r.Order)
	fmt.Fprintf(&s, "%d machines used, at least %d for everything that an empty one takes\n", r.NodesUsed, r.LowerBound)
	fmt.Fprintf(&s, "GPU milli: %d needed, %d placed, %d there\n\n", r.GPUMilliNeeded, r.GPUMilliPlaced, r.GPUMilliTotal)
	for _, m := range r.Machines {
		fmt.Fprintf(&s, "%d × %s\n", m.Machines, m.Node)
		for _, on := range m.On {
			fmt.Fprintf(&s, "  %d × %s", on.Replicas, on.Workload)
			if len(on.GPUs) > 0 {
				fmt.Fprintf(&s, " on GPUs %v", on.GPUs)
			}
			if len(on.Starts) > 0 {
				fmt.Fprintf(&s, " from memory slices %v on", on.Starts)
			}
			s.WriteString("\n")
		}
	}
	s.WriteString("\n")
	for _, u := range r.Unplaced {
		fmt.Fprintf(&s, "%d × %s not placed:", u.Replicas, u.Workload)
		for _, c := range u.RuledOut {
			fmt.Fprintf(&s, " %s %d", c.Constraint, c.Machines)
		}
		s.WriteString("\n")
	}
	s.WriteString("\n")
	for _, m := range r.Stranded {
		fmt.Fprintf(&s, "%s: %d milli, %d free, %d stranded\n", m.Model, m.TotalMilli, m.FreeMilli, m.StrandedMilli)
	}
	return s.String()
}

// Each constraint at work, on machines and on kinds.
func TestGolden(t *testing.T) {
	nodes, loads := readCase(t, filepath.Join("testdata", "constraints.txt"))
	opts := packing.Options{ApartClasses: [][2]string{{"training", "serving"}}}
	pack, err := packing.Pack(nodes, loads, opts)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []packing.Node
	for _, n := range nodes {
		n.Count, n.Held = packing.Unlimited, packing.Held{}
		kinds = append(kinds, n)
	}
	opts.LP = simplex{}
	need, err := packing.Need(kinds, loads, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify(nodes, loads, pack, false, opts.ApartClasses...); err != nil {
		t.Error(err)
	}
	if err := verify(kinds, loads, need, true, opts.ApartClasses...); err != nil {
		t.Error(err)
	}
	got := "On these machines: " + render(pack) + "\nOn any number of empty machines of these kinds: " + render(need)
	golden := filepath.Join("testdata", "constraints.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
