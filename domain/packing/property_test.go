package packing_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/packing"
)

// drawNodes and drawLoads draw cases in which every constraint can matter.
func drawNodes(t *rapid.T, most int, open bool) []packing.Node {
	var nodes []packing.Node
	for i := range rapid.IntRange(1, most).Draw(t, "nodes") {
		n := packing.Node{
			ID: fmt.Sprintf("n%d", i), Count: 1,
			Cluster:   rapid.SampledFrom([]string{"c1", "c1", "c2"}).Draw(t, "cluster"),
			Region:    rapid.SampledFrom([]string{"r1", "r1", "r2", ""}).Draw(t, "region"),
			Country:   rapid.SampledFrom([]string{"DE", "DE", "US", ""}).Draw(t, "country"),
			Model:     rapid.SampledFrom([]string{"H100", "H100", "T4", "", "A100 80GB", "A30"}).Draw(t, "model"),
			Unshared:  rapid.IntRange(0, 5).Draw(t, "unshared") == 0,
			Fabric:    rapid.SampledFrom([]string{"", "f1", "f1", "f2"}).Draw(t, "fabric"),
			MIG:       rapid.Bool().Draw(t, "MIG"),
			GPUs:      rapid.SampledFrom([]int{0, 1, 2, 2, 4, 8}).Draw(t, "GPUs"),
			CPUMilli:  rapid.SampledFrom([]int64{0, 4000, 8000, 8000, 16000}).Draw(t, "CPU"),
			MemoryMiB: rapid.SampledFrom([]int64{16, 32, 64, 64}).Draw(t, "memory"),
		}
		if rapid.IntRange(0, 3).Draw(t, "certified") > 0 {
			n.Certifications = rapid.SampledFrom([][]string{{"iso", "soc"}, {"soc", "iso"}, {"soc"}}).Draw(t, "certifications")
		}
		if rapid.IntRange(0, 5).Draw(t, "dedicated") == 0 {
			n.Dedicated = "w1"
		}
		if open {
			n.Count = rapid.SampledFrom([]int{1, 3, 0, packing.Unlimited}).Draw(t, "count")
		} else if rapid.IntRange(0, 3).Draw(t, "count") == 0 {
			n.Count = 2
		}
		if !open && rapid.IntRange(0, 3).Draw(t, "held") == 0 {
			for range rapid.IntRange(0, n.GPUs).Draw(t, "held GPUs") {
				n.Held.GPUMilli = append(n.Held.GPUMilli, rapid.SampledFrom([]int64{0, 5, 300, 1000}).Draw(t, "held milli"))
			}
			for i := len(n.Held.GPUMilli); i < n.GPUs && n.MIG && placements[n.Model] != nil; i++ {
				name := rapid.SampledFrom(slices.Sorted(maps.Keys(placements[n.Model]))).Draw(t, "held instance")
				n.Held.Instances = append(n.Held.Instances, packing.Instance{GPU: i, Profile: name,
					Start: rapid.SampledFrom(placements[n.Model][name].starts).Draw(t, "held start")})
			}
			n.Held.CPUMilli = rapid.Int64Range(0, n.CPUMilli).Draw(t, "held CPU")
			n.Held.MemoryMiB = rapid.Int64Range(0, n.MemoryMiB).Draw(t, "held memory")
		}
		if i > 0 && rapid.IntRange(0, 3).Draw(t, "twin") == 0 { // equal but for its id and count
			id, count := n.ID, n.Count
			n = nodes[i-1]
			n.ID, n.Count = id, count
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func drawLoads(t *rapid.T, most, replicas int) []packing.Workload {
	var loads []packing.Workload
	some := func(label string, from ...string) []string {
		if rapid.IntRange(0, 4).Draw(t, label) > 0 {
			return nil
		}
		return rapid.SliceOfN(rapid.SampledFrom(from), 1, 2).Draw(t, label)
	}
	n := rapid.IntRange(0, most).Draw(t, "workloads")
	for i := range n {
		w := packing.Workload{
			ID:             fmt.Sprintf("w%d", i),
			Class:          rapid.SampledFrom([]string{"serving", "training", "batch"}).Draw(t, "class"),
			Isolated:       rapid.IntRange(0, 5).Draw(t, "isolated") == 0,
			Workspace:      rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "workspace"),
			Replicas:       rapid.IntRange(0, replicas).Draw(t, "replicas"),
			GPUMilli:       rapid.SampledFrom([]int64{0, 200, 300, 500, 510, 700, 1000, 1000, 2000, 3000, 4000, 8000}).Draw(t, "GPU"),
			CPUMilli:       rapid.SampledFrom([]int64{0, 500, 1000, 2000, 3000, 5000}).Draw(t, "CPU"),
			MemoryMiB:      rapid.SampledFrom([]int64{0, 1, 4, 10, 20}).Draw(t, "memory"),
			Models:         some("models", "H100", "T4"),
			Countries:      some("countries", "DE", "US"),
			Certifications: some("certifications", "iso", "soc"),
			Clusters:       some("clusters", "c1", "c2"),
			Dedicated:      rapid.IntRange(0, 7).Draw(t, "dedicated") == 0,
			ApartNode:      some("apart on nodes", "w0", "w1", "w2", "w3", "none"),
			ApartCluster:   some("apart in clusters", "w0", "w1", "w2", "none"),
		}
		for range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "apart in places") {
			w.ApartIn = append(w.ApartIn, packing.Apart{
				Workloads: some("apart there", "w0", "w1", "w2", "w3", "none"), Cluster: rapid.Bool().Draw(t, "whole cluster"),
				In: packing.Place{Regions: some("regions", "r1", "r2", "r3"), Countries: some("countries of it", "DE", "US")},
			})
		}
		if rapid.IntRange(0, 3).Draw(t, "instance") == 0 {
			w.GPUMilli, w.Profile = 0, rapid.SampledFrom([]string{"1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.6gb", "2g.12gb", "7g.40gb"}).Draw(t, "profile")
		}
		if rapid.IntRange(0, 5).Draw(t, "in a gang") == 0 {
			w.Gang = rapid.SampledFrom([]string{"g1", "g1", "g2"}).Draw(t, "gang")
		}
		if rapid.IntRange(0, 4).Draw(t, "bounded") == 0 {
			w.MaxPerNode = rapid.IntRange(1, 2).Draw(t, "max per node")
		}
		if i > 0 && rapid.IntRange(0, 3).Draw(t, "twin") == 0 { // equal but for its id and perhaps its workspace
			id, workspace := w.ID, w.Workspace
			w = loads[i-1]
			w.ID, w.Workspace = id, workspace
		}
		loads = append(loads, w)
	}
	return loads
}

// drawPairs draws classes that are kept apart.
func drawPairs(t *rapid.T) [][2]string {
	return rapid.SampledFrom([][][2]string{nil, {{"serving", "training"}}, {{"batch", "serving"}, {"training", "batch"}, {"batch", "batch"}}}).Draw(t, "apart classes")
}

type packer func([]packing.Node, []packing.Workload, packing.Options) (*packing.Result, error)

func either(t *rapid.T) (packer, bool) {
	if rapid.Bool().Draw(t, "open") {
		return packing.Need, true
	}
	return packing.Pack, false
}

// The verifier agrees with any answer, with little work and with much.
func TestResultHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pack, open := either(t)
		nodes, loads := drawNodes(t, 8, open), drawLoads(t, 8, 12)
		pairs := drawPairs(t)
		r, err := pack(nodes, loads, packing.Options{Work: rapid.SampledFrom([]int64{0, 1, 200}).Draw(t, "work"), ApartClasses: pairs})
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(nodes, loads, r, open, pairs...); err != nil {
			t.Fatalf("%v\n%s", err, text(r))
		}
	})
}

func text(r *packing.Result) string {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// The order of nodes, workloads and lists does not matter, and the inputs are not changed.
func TestOrderOfInputsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pack, open := either(t)
		nodes, loads := drawNodes(t, 8, open), drawLoads(t, 8, 12)
		before := fmt.Sprint(nodes, loads)
		want, err := pack(nodes, loads, packing.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(nodes, loads) != before {
			t.Fatal("the inputs have changed")
		}
		shuffled := rapid.Permutation(loads).Draw(t, "shuffled workloads")
		for i := range shuffled {
			slices.Reverse(shuffled[i].Models)
			slices.Reverse(shuffled[i].ApartNode)
			slices.Reverse(shuffled[i].ApartIn)
			slices.Reverse(shuffled[i].Certifications)
		}
		got, err := pack(rapid.Permutation(nodes).Draw(t, "shuffled nodes"), shuffled, packing.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if text(got) != text(want) {
			t.Fatalf("%s\nwant\n%s", text(got), text(want))
		}
	})
}

// With one more machine the answer remains valid; one that can take nothing only changes the counts
// of ruled-out machines.
func TestMachineMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, loads := drawNodes(t, 5, false), drawLoads(t, 6, 8)
		before, err := packing.Pack(nodes, loads, packing.Options{})
		if err != nil {
			t.Fatal(err)
		}
		more := drawNodes(t, 1, false)[0]
		more.ID = "more"
		with := append(slices.Clone(nodes), more)
		r, err := packing.Pack(with, loads, packing.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(with, loads, r, false); err != nil {
			t.Fatal(err)
		}

		useless := packing.Node{ID: "useless", Count: 1, Dedicated: "somebody else"}
		r, err = packing.Pack(append(slices.Clone(nodes), useless), loads, packing.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(r.Machines) != fmt.Sprint(before.Machines) || r.LowerBound != before.LowerBound || len(r.Unplaced) != len(before.Unplaced) {
			t.Fatalf("%s\nwas\n%s", text(r), text(before))
		}
		for i, u := range r.Unplaced {
			was, is := 0, 0
			for _, c := range before.Unplaced[i].RuledOut {
				was += c.Machines
			}
			for _, c := range u.RuledOut {
				is += c.Machines
			}
			if is != was+1 {
				t.Fatalf("%+v were %+v", u, before.Unplaced[i])
			}
		}
	})
}

// optimum is the smallest number of machines that hold all replicas, by trying everything; false if
// none do. Each box is one machine.
func optimum(all []*box, loads []packing.Workload) (int, bool) {
	n, ok := least(all, loads, func(*packing.Node) int64 { return 1 })
	return int(n), ok
}

// leastCost is the least cost of machines that hold all replicas.
func leastCost(all []*box, loads []packing.Workload) int64 {
	n, _ := least(all, loads, func(n *packing.Node) int64 { return n.Cost })
	return n
}

func least(all []*box, loads []packing.Workload, cost func(*packing.Node) int64) (int64, bool) {
	byID := map[string]*packing.Workload{}
	var queue []*packing.Workload
	for i := range loads {
		byID[loads[i].ID] = &loads[i]
		for range loads[i].Replicas {
			queue = append(queue, &loads[i])
		}
	}
	best, found := int64(1)<<60, false
	var try func(k int)
	try = func(k int) {
		used := int64(0)
		for _, b := range all {
			if len(b.on) > 0 {
				used += cost(b.node)
			}
		}
		if used >= best {
			return
		}
		if k == len(queue) {
			best, found = used, true
			return
		}
		w := queue[k]
		for _, b := range all {
			if refusal(b, w, all, byID) != "" {
				continue
			}
			was := slices.Clone(b.gpu)
			put := func(gpus []int) {
				if err := b.put(w, gpus); err != nil {
					panic(err)
				}
				try(k + 1)
				if b.on[w.ID]--; b.on[w.ID] == 0 {
					delete(b.on, w.ID)
				}
				b.cpu, b.mem = b.cpu+w.CPUMilli, b.mem+w.MemoryMiB
				copy(b.gpu, was)
			}
			switch {
			case w.Profile != "":
				for i := range b.gpu {
					for s := range 8 {
						if !b.may(w.Profile, i, s) {
							continue
						}
						if err := b.put(w, []int{i}, s); err != nil {
							panic(err)
						}
						try(k + 1)
						if b.on[w.ID]--; b.on[w.ID] == 0 {
							delete(b.on, w.ID)
						}
						b.cpu, b.mem = b.cpu+w.CPUMilli, b.mem+w.MemoryMiB
						b.undivide(w.Profile, i, s)
					}
				}
			case w.GPUMilli == 0:
				put(nil)
			case asked(w) < 1000:
				for i, f := range was {
					if f >= asked(w) && slices.Index(was, f) == i {
						put([]int{i})
					}
				}
			default:
				var gpus []int
				for i, f := range was {
					if f == 1000 && int64(len(gpus)) < asked(w)/1000 {
						gpus = append(gpus, i)
					}
				}
				put(gpus)
			}
		}
	}
	try(0)
	return best, found
}

// The bound never exceeds the optimum. Replicas that fit on no empty machine are removed first,
// because the bound leaves them out.
func TestBoundIsBelowOptimum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pack, open := either(t)
		nodes, loads := drawNodes(t, 3, open), drawLoads(t, 5, 3)
		var all []*box
		for i := range nodes {
			if nodes[i].Count <= 0 {
				nodes[i].Count = 4
			}
			for range nodes[i].Count {
				all = append(all, newBox(&nodes[i]))
			}
		}
		byID := map[string]*packing.Workload{}
		loads = slices.DeleteFunc(loads, func(w packing.Workload) bool {
			return !slices.ContainsFunc(all, func(b *box) bool { return refusal(b, &w, nil, byID) == "" })
		})
		for i, total := 0, 0; i < len(loads); i++ {
			loads[i].Replicas = min(loads[i].Replicas, 6-total)
			total += loads[i].Replicas
		}
		pairs := drawPairs(t)
		for _, b := range all {
			b.apart = pairs
		}
		r, err := pack(nodes, loads, packing.Options{ApartClasses: pairs})
		if err != nil {
			t.Fatal(err)
		}
		best, ok := optimum(all, loads)
		if !ok {
			if len(r.Unplaced) == 0 {
				t.Fatalf("the packer places what cannot be placed: %s", text(r))
			}
			return
		}
		if r.LowerBound > best {
			t.Fatalf("the bound is %d, the optimum %d", r.LowerBound, best)
		}
		if len(r.Unplaced) == 0 && r.NodesUsed < best {
			t.Fatalf("%d machines used, the optimum is %d", r.NodesUsed, best)
		}
	})
}
