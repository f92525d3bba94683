package packing_test

import (
	"compress/gzip"
	"encoding/csv"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"quartermaster/adapters/highs"
	"quartermaster/domain/linear"
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
	text := io.Reader(f)
	if strings.HasSuffix(name, ".gz") {
		if text, err = gzip.NewReader(f); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := csv.NewReader(text).ReadAll()
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

// openbPods reads the pods of a trace, each as a workload of its own.
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

// published returns the mean GPU allocation, in percent of the fleet, that the
// paper's simulator reached with a policy once so many percent of the fleet's
// GPUs had been asked for.
func published(t testing.TB, trace, policy, asked string) float64 {
	t.Helper()
	sum, n := 0.0, 0.0
	for _, row := range openb(t, "fgd_expected_allo_discrete.csv.gz") {
		if row["workload"] == "openb_pod_list_"+trace && row["sc_policy"] == policy {
			x, err := strconv.ParseFloat(row[asked], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum, n = sum+x, n+1
		}
	}
	if n == 0 {
		t.Fatalf("nothing is published of %s under %s", trace, policy)
	}
	return sum / n
}

// lp returns the solver of linear programs, or skips where this build has none.
func lp(t testing.TB) linear.Solver {
	t.Helper()
	s, err := highs.Open(highs.Options{})
	if errors.Is(err, linear.ErrUnavailable) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// standard is the machine that studies of the trace pack onto.
var standard = []packing.Node{{ID: "node", GPUs: 8, CPUMilli: 96_000, MemoryMiB: 384 << 10}}

// forStandard reads the pods of a trace that have GPUs and fit a standard
// machine, whatever its model.
func forStandard(t testing.TB, trace string) []packing.Workload {
	pods := slices.DeleteFunc(openbPods(t, trace), func(w packing.Workload) bool {
		return w.GPUMilli == 0 || w.CPUMilli > standard[0].CPUMilli
	})
	for i := range pods {
		pods[i].Models = nil
	}
	return pods
}

// The optimum is known of all of these: as many machines as the bound says. A
// study of the traces has 786 against 785 for default, 561 for gpushare100. More
// traces with QM_LONG=1.
func TestOpenbColumns(t *testing.T) {
	for i, c := range []struct {
		trace string
		nodes int
	}{{"default", 785}, {"gpushare100", 561}, {"gpushare40", 739}, {"multigpu20", 904}, {"cpu050", 785}, {"gpuspec10", 785}} {
		if i > 1 && os.Getenv("QM_LONG") != "1" {
			break
		}
		t.Run(c.trace, func(t *testing.T) {
			solver, pods := lp(t), forStandard(t, c.trace)
			r, err := packing.Need(standard, pods, packing.Options{LP: solver})
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(standard, pods, r, true); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d pods on %d machines, at least %d, by %q; %+v", len(pods), r.NodesUsed, r.LowerBound, r.Order, r.Columns)
			if r.NodesUsed != c.nodes || r.LowerBound != c.nodes || len(r.Unplaced) > 0 {
				t.Errorf("%d machines, at least %d, want %d; %d unplaced", r.NodesUsed, r.LowerBound, c.nodes, len(r.Unplaced))
			}
		})
	}
}

// Machines of 96 cores, 384 GiB and 8 GPUs for all pods with GPUs that fit on
// one. The figures to meet are from a study of these traces: the best of many
// greedy runs in random order, and the bound proven by column generation. More
// traces with QM_LONG=1.
func TestOpenbNeed(t *testing.T) {
	kind := standard
	for i, c := range []struct {
		trace         string
		greedy, bound int // 0: not known
	}{{"default", 796, 785}, {"gpushare100", 572, 561}, {"gpushare40", 0, 0}, {"multigpu20", 0, 0}} {
		if i > 0 && os.Getenv("QM_LONG") != "1" {
			break
		}
		t.Run(c.trace, func(t *testing.T) {
			pods := forStandard(t, c.trace)
			r, err := packing.Need(kind, pods, packing.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(kind, pods, r, true); err != nil {
				t.Fatal(err)
			}
			first := firstFitByGPU(kind[0], pods)
			t.Logf("%d pods on %d machines by %q, at least %d; first fit decreasing by GPU %d; stranded %+v",
				len(pods), r.NodesUsed, r.Order, r.LowerBound, first, r.Stranded)
			if len(r.Unplaced) > 0 || r.LowerBound > r.NodesUsed || r.NodesUsed >= first {
				t.Errorf("%d workloads unplaced, at least %d machines", len(r.Unplaced), r.LowerBound)
			}
			if c.greedy > 0 && (r.NodesUsed > c.greedy || r.NodesUsed < c.bound || r.LowerBound > c.bound) {
				t.Errorf("%d machines, at least %d; the study has %d and %d", r.NodesUsed, r.LowerBound, c.greedy, c.bound)
			}
		})
	}
}

// A tenth of the pods needs about a tenth of the machines, and so on: the columns
// of the whole serve every level.
func TestOpenbCurve(t *testing.T) {
	if os.Getenv("QM_LONG") != "1" {
		t.Skip("set QM_LONG=1")
	}
	points, err := packing.Curve(t.Context(), standard, forStandard(t, "default"), []int64{0, 100, 300, 500, 700, 900, 1000, 1500}, packing.Options{LP: lp(t)})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range points {
		t.Logf("%d thousandths: %d machines, at least %d", c.Level, c.Nodes, c.LowerBound)
		if proportion := int(785 * c.Level / 1000); c.LowerBound < proportion || c.LowerBound > c.Nodes || c.Nodes > proportion+20 || c.Unplaced > 0 {
			t.Errorf("%+v", c)
		}
	}
}

// The real fleet, asked for all pods and for 130% of its GPUs. Pods come all at
// once here and one by one in the paper, so its policy is the least to expect.
// Where pods are parts of GPUs alone it is missed, by less than 0.2% of the
// fleet. More traces, and 100%, with QM_LONG=1.
func TestOpenbPack(t *testing.T) {
	nodes := openbNodes(t)
	long := os.Getenv("QM_LONG") == "1"
	for i, c := range []struct {
		trace string
		short float64 // of what is published
	}{{"default", 0}, {"gpuspec10", 0}, {"gpushare100", 0.2}, {"multigpu20", 0}} {
		if i > 0 && !long {
			break
		}
		t.Run(c.trace, func(t *testing.T) {
			pods := openbPods(t, c.trace)
			share := func(milli int64) float64 { return float64(milli) / 10 / 6212 }
			pack := func(pods []packing.Workload) *packing.Result {
				r, err := packing.Pack(nodes, pods, packing.Options{})
				if err != nil {
					t.Fatal(err)
				}
				if err := verify(nodes, pods, r, false); err != nil {
					t.Fatal(err)
				}
				t.Logf("asked for %.2f%%, placed %.2f%% on %d machines by %q; at least %d machines for all; stranded %+v",
					share(r.GPUMilliNeeded), share(r.GPUMilliPlaced), r.NodesUsed, r.Order, r.LowerBound, r.Stranded)
				return r
			}
			if long {
				pack(pods)
			}
			asked := int64(0)
			for _, w := range pods {
				asked += w.GPUMilli
			}
			// As many of each pod more, evenly over the list.
			owed := int64(0)
			for i := range pods {
				owed += 1300*6_212_000/asked - 1000
				pods[i].Replicas += int(owed / 1000)
				owed %= 1000
			}
			r := pack(pods)
			want := published(t, c.trace, "06-FGD", "130")
			t.Logf("published: %.2f%%", want)
			if share(r.GPUMilliPlaced) < want-c.short {
				t.Errorf("%.2f%% of the GPUs are placed, the paper has %.2f%%", share(r.GPUMilliPlaced), want)
			}
		})
	}
}
