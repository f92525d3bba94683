package online_test

import (
	"math/rand"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/packing"
	"quartermaster/domain/packing/online"
)

// stranded computes from the definition how much of the free GPUs the workloads cannot use, times
// their replicas.
func (l *ledger) stranded(mix []packing.Workload) int64 {
	var sum int64
	for id := range l.nodes {
		gpus, _, _ := l.free(id)
		var free int64
		for _, g := range gpus {
			free += g
		}
		for i := range mix {
			w := &mix[i]
			useless := free
			if w.GPUMilli > 0 && l.wrong(&packing.Workload{
				// Other replicas do not count, only room and fixed properties.
				ID: "mix", Workspace: w.Workspace, GPUMilli: w.GPUMilli, CPUMilli: w.CPUMilli, MemoryMiB: w.MemoryMiB,
				Models: w.Models, Countries: w.Countries, Certifications: w.Certifications, Clusters: w.Clusters,
			}, id) == "" {
				useless = 0
				for _, g := range gpus {
					if g < min(w.GPUMilli, 1000) {
						useless += g
					}
				}
			}
			sum += int64(w.Replicas) * useless
		}
	}
	return sum
}

// settle places random arrivals, and returns the placements.
func settle(t *rapid.T, nodes []packing.Node, loads []packing.Workload) ([]online.Assignment, *ledger) {
	f, err := online.New(nodes, nil, online.Random, rand.New(rand.NewSource(rapid.Int64Range(0, 99).Draw(t, "seed"))))
	if err != nil {
		t.Fatal(err)
	}
	l, out := newLedger(nodes), []online.Assignment{}
	for i, w := range rapid.SliceOfN(rapid.SampledFrom(loads), 0, 8).Draw(t, "arrivals") {
		id := strconv.Itoa(i)
		at, ok, err := f.Arrive(id, &w)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.arrive(id, &w, at, ok); err != nil {
			t.Fatal(err)
		}
		if ok {
			out = append(out, online.Assignment{ID: id, Load: w, At: at, Stays: rapid.IntRange(0, 4).Draw(t, "stays") == 0})
		}
	}
	return out, l
}

// The first move is as good as the best of all replicas, machines and GPUs, and every move is
// feasible and has the stated gain.
func TestMovesAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, loads := drawFleet(t), drawLoads(t)
		for i := range loads { // a dedicated machine's owner has a part in the mix that the definition above leaves out
			loads[i].Dedicated, loads[i].Replicas = false, rapid.IntRange(1, 3).Draw(t, "replicas")
		}
		mix, err := online.MixOf(loads, 100)
		if err != nil {
			t.Fatal(err)
		}
		merged := mixed(loads)
		var total int64
		for _, w := range loads {
			total += int64(w.Replicas)
		}
		sitting, l := settle(t, nodes, loads)
		moves, err := online.Moves(nodes, mix, sitting, 4)
		if err != nil {
			t.Fatal(err)
		}
		best, before := int64(0), l.stranded(merged)
		for _, s := range sitting {
			if s.Stays {
				continue
			}
			was := l.on[s.ID]
			delete(l.on, s.ID)
			for id, n := range l.nodes {
				if id == s.At.Node || l.wrong(&s.Load, id) != "" {
					continue
				}
				gpus, _, _ := l.free(id)
				var choices [][]int
				switch {
				case s.Load.GPUMilli == 0:
					choices = [][]int{nil}
				case s.Load.GPUMilli < 1000:
					for g := range n.GPUs {
						if gpus[g] >= s.Load.GPUMilli {
							choices = append(choices, []int{g})
						}
					}
				default:
					var whole []int
					for g := range n.GPUs {
						if gpus[g] == 1000 {
							whole = append(whole, g)
						}
					}
					choices = [][]int{whole[:s.Load.GPUMilli/1000]} // any of them
				}
				for _, c := range choices {
					l.on[s.ID] = sitting2(s.Load, id, c)
					best = max(best, before-l.stranded(merged))
					delete(l.on, s.ID)
				}
			}
			l.on[s.ID] = was
		}
		if got := len(moves) > 0; got != (best > 0) {
			t.Fatalf("%d moves, though the best gains %d", len(moves), best)
		}
		for i, m := range moves {
			s := l.on[m.Replica]
			if s.at.Node != m.From || m.From == m.To || !slices.Equal(s.at.GPUs, m.GPUsBefore) {
				t.Fatalf("move %d: %+v, but it sits on %+v", i, m, s.at)
			}
			if k := slices.IndexFunc(sitting, func(s online.Assignment) bool { return s.ID == m.Replica }); sitting[k].Stays {
				t.Fatalf("move %d takes %s away, which stays", i, m.Replica)
			}
			whole, was := l.whole(), l.stranded(merged)
			delete(l.on, m.Replica)
			if err := l.arrive(m.Replica, &s.load, online.Placement{Node: m.To, GPUs: m.GPUsAfter}, true); err != nil {
				t.Fatalf("move %d: %v", i, err)
			}
			gain := was - l.stranded(merged)
			if gain <= 0 || gain/total != m.GainMilli || l.whole()-whole != m.FreesGPUs {
				t.Fatalf("move %d says %+v; it gains %d of %d and frees %d GPUs", i, m, gain, total, l.whole()-whole)
			}
			if i == 0 && gain != best {
				t.Fatalf("the first move gains %d, the best %d", gain, best)
			}
		}
	})
}

func sitting2(w packing.Workload, node string, gpus []int) sitting {
	return sitting{w, online.Placement{Node: node, GPUs: gpus}}
}

func (l *ledger) whole() int {
	n := 0
	for id := range l.nodes {
		gpus, _, _ := l.free(id)
		for _, g := range gpus {
			if g == 1000 {
				n++
			}
		}
	}
	return n
}

// mixed gives workloads of one shape their mean memory, as a mix does.
func mixed(loads []packing.Workload) []packing.Workload {
	out := slices.Clone(loads)
	for i := range out {
		var mem, n int64
		for _, w := range loads {
			if w.Workspace == out[i].Workspace && w.GPUMilli == out[i].GPUMilli && w.CPUMilli == out[i].CPUMilli && slices.Equal(w.Models, out[i].Models) &&
				slices.Equal(w.Countries, out[i].Countries) && slices.Equal(w.Certifications, out[i].Certifications) && slices.Equal(w.Clusters, out[i].Clusters) {
				mem, n = mem+w.MemoryMiB*int64(w.Replicas), n+int64(w.Replicas)
			}
		}
		out[i].MemoryMiB = mem / n
	}
	return out
}

// Two halves on two machines of one GPU each: one move frees a whole GPU.
func TestMoveFreesAGPU(t *testing.T) {
	nodes := []packing.Node{
		{ID: "a", Count: 1, Model: "A100", GPUs: 1, CPUMilli: 8_000, MemoryMiB: 8_192},
		{ID: "b", Count: 1, Model: "A100", GPUs: 1, CPUMilli: 8_000, MemoryMiB: 8_192},
	}
	half := packing.Workload{ID: "half", Replicas: 2, GPUMilli: 500, CPUMilli: 1_000, MemoryMiB: 1_024}
	one := packing.Workload{ID: "one", Replicas: 2, GPUMilli: 1_000, CPUMilli: 1_000, MemoryMiB: 1_024}
	mix, err := online.MixOf([]packing.Workload{half, one}, 100)
	if err != nil {
		t.Fatal(err)
	}
	sitting := []online.Assignment{
		{ID: "x", Load: half, At: online.Placement{Node: "a", GPUs: []int{0}}},
		{ID: "y", Load: half, At: online.Placement{Node: "b", GPUs: []int{0}}},
	}
	moves, err := online.Moves(nodes, mix, sitting, 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(moves) != 1 || moves[0].Replica != "x" || moves[0].To != "b" || moves[0].FreesGPUs != 1 || moves[0].GainMilli != 500 {
		t.Errorf("%+v", moves)
	}
	f, err := online.Restore(nodes, mix, online.FGD, sitting)
	if err != nil {
		t.Fatal(err)
	}
	idle := f.Stranded()
	// Of 1,000 milli free, a half can use all and a whole GPU nothing.
	if len(idle) != 1 || idle[0].FreeMilli != 1000 || idle[0].StrandedMilli != 500 || len(idle[0].Shapes) != 2 {
		t.Fatalf("%+v", idle)
	}
	for _, s := range idle[0].Shapes {
		if s.GPUMilli == 1000 && (s.UselessMilli != 1000 || len(s.Lacks) != 1 || s.Lacks[0].Constraint != packing.GPUConstraint) ||
			s.GPUMilli == 500 && s.UselessMilli != 0 {
			t.Errorf("%+v", s)
		}
	}
	sitting[1].At.GPUs = []int{1}
	if _, err := online.Moves(nodes, mix, sitting, 1); err == nil {
		t.Error("no error for a GPU that is not there")
	}
}

// A shape counts only where it may run: of the free GPUs of two clusters, one in France, a shape
// that needs Germany strands nothing there, and a machine on which nothing may run is not judged.
func TestStrandedWhereShapesMayRun(t *testing.T) {
	nodes := []packing.Node{
		{ID: "de", Count: 1, Model: "A100", GPUs: 2, CPUMilli: 8_000, MemoryMiB: 8_192, Country: "DE"},
		{ID: "fr", Count: 1, Model: "A100", GPUs: 2, CPUMilli: 8_000, MemoryMiB: 8_192, Country: "FR"},
		{ID: "it", Count: 1, Model: "A100", GPUs: 4, CPUMilli: 8_000, MemoryMiB: 8_192, Country: "IT"},
	}
	large := packing.Workload{ID: "large", Replicas: 3, GPUMilli: 1_000, CPUMilli: 9_000, Countries: []string{"DE"}}
	small := packing.Workload{ID: "small", Replicas: 1, GPUMilli: 1_000, CPUMilli: 1_000, Countries: []string{"DE", "FR"}}
	none := packing.Workload{ID: "none", Replicas: 5, CPUMilli: 1_000}
	mix, err := online.MixOf([]packing.Workload{large, small, none}, 100)
	if err != nil {
		t.Fatal(err)
	}
	f, err := online.New(nodes, mix, online.FGD, nil)
	if err != nil {
		t.Fatal(err)
	}
	idle := f.Stranded()
	// In Germany three of four replicas that may run there lack CPU: 3/4 of 2 GPUs. In France the
	// one that may can use both. None may run in Italy.
	if len(idle) != 1 || idle[0].FreeMilli != 8000 || idle[0].StrandedMilli != 1500 || idle[0].UnjudgedMilli != 4000 || len(idle[0].Shapes) != 2 {
		t.Fatalf("%+v", idle)
	}
	for _, s := range idle[0].Shapes {
		if s.CPUMilli == 9_000 && (s.UselessMilli != 2000 || len(s.Lacks) != 1 || s.Lacks[0] != online.Lack{Constraint: packing.CPUConstraint, Milli: 2000}) || s.CPUMilli == 1_000 && s.UselessMilli != 0 {
			t.Errorf("%+v", s)
		}
	}
}
