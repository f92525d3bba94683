package packing_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"quartermaster/adapters/highs"
	"quartermaster/domain/linear"
	"quartermaster/domain/long"
	"quartermaster/domain/packing"
	"quartermaster/simulations/public"
)

// published returns the mean GPU allocation, in percent of the fleet, that the paper's simulator
// reached with a policy at a requested load in percent of the fleet's GPUs.
func published(t testing.TB, trace, policy, asked string) float64 {
	t.Helper()
	sum := 0.0
	rows := public.Published(t, trace, policy)
	for _, row := range rows {
		x, err := strconv.ParseFloat(row[asked], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += x
	}
	return sum / float64(len(rows))
}

// lp returns the linear programming solver, or skips the test if this build has none.
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

// standard is the machine type used in studies of the trace.
var standard = []packing.Node{{ID: "node", GPUs: 8, CPUMilli: 96_000, MemoryMiB: 384 << 10}}

// forStandard reads the pods of a trace that have GPUs and fit a standard machine, whatever its
// model.
func forStandard(t testing.TB, trace string) []packing.Workload {
	pods := slices.DeleteFunc(public.OpenbPods(t, trace), func(w packing.Workload) bool {
		return w.GPUMilli == 0 || w.CPUMilli > standard[0].CPUMilli
	})
	for i := range pods {
		pods[i].Models = nil
	}
	return pods
}

// The optimum of all of these is known: as many machines as the bound. A study of the traces has
// 786 against 785 for default, 561 for gpushare100. More traces with CI_LONG=1.
func TestOpenbColumns(t *testing.T) {
	for i, c := range []struct {
		trace string
		nodes int
	}{{"default", 785}, {"gpushare100", 561}, {"gpushare40", 739}, {"multigpu20", 904}, {"cpu050", 785}, {"gpuspec10", 785}} {
		if i > 0 && !long.Run() {
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
// traces with CI_LONG=1.
func TestOpenbNeed(t *testing.T) {
	kind := standard
	for i, c := range []struct {
		trace         string
		greedy, bound int // 0: not known
	}{{"default", 796, 785}, {"gpushare100", 572, 561}, {"gpushare40", 0, 0}, {"multigpu20", 0, 0}} {
		if i > 0 && !long.Run() {
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

// A tenth of the pods needs about a tenth of the machines, and so on: the columns of the whole
// serve every level.
func TestOpenbCurve(t *testing.T) {
	long.Only(t, "packs eight levels")
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

// The real fleet, with all pods and with 130% of its GPUs requested. Pods come all at once here and
// one by one in the paper, so its policy is a minimum. With only parts of GPUs the minimum is
// missed by less than 0.2% of the fleet. More traces, and 100%, with CI_LONG=1.
func TestOpenbPack(t *testing.T) {
	nodes := public.OpenbNodes(t)
	for i, c := range []struct {
		trace string
		short float64 // of the published value
	}{{"default", 0}, {"gpuspec10", 0}, {"gpushare100", 0.2}, {"multigpu20", 0}} {
		if i > 0 && !long.Run() {
			break
		}
		t.Run(c.trace, func(t *testing.T) {
			pods := public.OpenbPods(t, c.trace)
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
			if long.Run() {
				pack(pods)
			}
			asked := int64(0)
			for _, w := range pods {
				asked += w.GPUMilli
			}
			// More of each pod, evenly over the list.
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
