package public

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/domain/packing"
)

// Openb reads a file of the openb trace (Weng et al., ATC 2023; Apache-2.0) as rows by column name.
func Openb(t testing.TB, name string) []map[string]string {
	t.Helper()
	rows := Rows(t, "openb/"+name)
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

func number(t testing.TB, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// OpenbNodes reads the machines of the trace that have GPUs.
func OpenbNodes(t testing.TB) []packing.Node {
	t.Helper()
	var nodes []packing.Node
	for _, row := range Openb(t, "openb_node_list_gpu_node.csv") {
		nodes = append(nodes, packing.Node{
			ID: row["sn"], Count: 1, Cluster: "openb", Model: row["model"], GPUs: int(number(t, row["gpu"])),
			CPUMilli: number(t, row["cpu_milli"]), MemoryMiB: number(t, row["memory_mib"]),
		})
	}
	return nodes
}

// OpenbPods reads the pods of a variant of the trace such as "default", each as a separate
// workload.
func OpenbPods(t testing.TB, variant string) []packing.Workload {
	t.Helper()
	var loads []packing.Workload
	for _, row := range Openb(t, "openb_pod_list_"+variant+".csv") {
		w := packing.Workload{
			ID: row["name"], Replicas: 1, CPUMilli: number(t, row["cpu_milli"]),
			MemoryMiB: number(t, row["memory_mib"]),
		}
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

// OpenbVariants lists the variants of the trace whose pods are here and whose results are published,
// and logs those that are not here.
func OpenbVariants(t testing.TB) []string {
	t.Helper()
	var all []string
	for _, row := range Openb(t, "fgd_expected_allo_discrete.csv.gz") {
		all = append(all, strings.TrimPrefix(row["workload"], "openb_pod_list_"))
	}
	return slices.DeleteFunc(slices.Compact(all), func(variant string) bool {
		return !Has(t, "openb/openb_pod_list_"+variant+".csv")
	})
}

// Published reads the results that the authors of the trace published for a variant and a policy: a
// row for each seed, with the percentage of GPUs allocated by the percentage of GPUs requested.
func Published(t testing.TB, variant, policy string) []map[string]string {
	t.Helper()
	var out []map[string]string
	for _, row := range Openb(t, "fgd_expected_allo_discrete.csv.gz") {
		if row["workload"] == "openb_pod_list_"+variant && row["sc_policy"] == policy {
			out = append(out, row)
		}
	}
	if len(out) == 0 {
		t.Fatalf("nothing is published of %s under %s", variant, policy)
	}
	return out
}
