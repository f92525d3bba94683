package packing_test

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"quartermaster/domain/packing"
)

// openb reads a file of the openb trace (Weng et al., ATC 2023) as rows by
// column name, or skips the test.
func openb(t testing.TB, name string) []map[string]string {
	t.Helper()
	dir := os.Getenv("QUARTERMASTER_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(dir, "openb", name))
	if err != nil {
		t.Skipf("the public data sets are not here (set QUARTERMASTER_DATA): %v", err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]string
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, v := range row {
			m[rows[0][i]] = v
		}
		all = append(all, m)
	}
	return all
}

func number(t testing.TB, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func openbNodes(t testing.TB) []packing.Node {
	t.Helper()
	var nodes []packing.Node
	for _, row := range openb(t, "openb_node_list_gpu_node.csv") {
		nodes = append(nodes, packing.Node{
			ID: row["sn"], Count: 1, Cluster: "openb", Model: row["model"], GPUs: int(number(t, row["gpu"])),
			CPUMilli: number(t, row["cpu_milli"]), MemoryMiB: number(t, row["memory_mib"]),
		})
	}
	return nodes
}

// openbPods reads the pods of a trace, each as a workload of its own. Models are
// kept only where asked for: the paper's default trace has none.
func openbPods(t testing.TB, trace string) []packing.Workload {
	t.Helper()
	var loads []packing.Workload
	for _, row := range openb(t, "openb_pod_list_"+trace+".csv") {
		w := packing.Workload{ID: row["name"], Replicas: 1, CPUMilli: number(t, row["cpu_milli"]), MemoryMiB: number(t, row["memory_mib"])}
		if n := number(t, row["num_gpu"]); n == 1 {
			w.GPUMilli = number(t, row["gpu_milli"])
		} else {
			w.GPUMilli = n * 1000
		}
		if spec := row["gpu_spec"]; spec != "" {
			w.Models = strings.Split(spec, "|")
		}
		loads = append(loads, w)
	}
	return loads
}
