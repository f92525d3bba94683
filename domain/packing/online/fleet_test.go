package online_test

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain/packing"
	"quartermaster/domain/packing/online"
)

// ledger is an independent record of placements, kept only from the answers of a fleet and the
// definition of the constraints.
type ledger struct {
	nodes map[string]packing.Node
	on    map[string]sitting // by id
}

type sitting struct {
	load packing.Workload
	at   online.Placement
}

func newLedger(nodes []packing.Node) *ledger {
	l := &ledger{map[string]packing.Node{}, map[string]sitting{}}
	for _, n := range nodes {
		l.nodes[n.ID] = n
	}
	return l
}

// free returns what is left of a node.
func (l *ledger) free(id string) (gpus []int64, cpu, mem int64) {
	n := l.nodes[id]
	gpus = make([]int64, n.GPUs)
	for g := range gpus {
		gpus[g] = 1000
		if g < len(n.Held.GPUMilli) {
			gpus[g] -= n.Held.GPUMilli[g]
		}
	}
	cpu, mem = n.CPUMilli-n.Held.CPUMilli, n.MemoryMiB-n.Held.MemoryMiB
	for _, s := range l.on {
		if s.at.Node == id {
			cpu, mem = cpu-s.load.CPUMilli, mem-s.load.MemoryMiB
			for _, g := range s.at.GPUs {
				gpus[g] -= min(s.load.GPUMilli, 1000)
			}
		}
	}
	return gpus, cpu, mem
}

// wrong returns what is wrong with adding a replica to a node, "" if nothing is.
func (l *ledger) wrong(w *packing.Workload, id string) string {
	n := l.nodes[id]
	out := func(list []string, x string) bool { return len(list) > 0 && !slices.Contains(list, x) }
	switch {
	case out(w.Models, n.Model):
		return "model"
	case out(w.Clusters, n.Cluster):
		return "cluster"
	case out(w.Countries, n.Country):
		return "country"
	case n.Dedicated != "" && n.Dedicated != w.Workspace:
		return "dedicated node"
	}
	for _, c := range w.Certifications {
		if !slices.Contains(n.Certifications, c) {
			return "certification"
		}
	}
	gpus, cpu, mem := l.free(id)
	if cpu < w.CPUMilli || mem < w.MemoryMiB {
		return "CPU or memory"
	}
	whole, most := 0, int64(0)
	for _, g := range gpus {
		if g == 1000 {
			whole++
		}
		most = max(most, g)
	}
	if w.GPUMilli >= 1000 && int64(whole) < w.GPUMilli/1000 || w.GPUMilli < 1000 && most < w.GPUMilli {
		return "GPUs"
	}
	if w.Dedicated && (n.Held.CPUMilli > 0 || n.Held.MemoryMiB > 0 || slices.ContainsFunc(n.Held.GPUMilli, func(h int64) bool { return h > 0 })) {
		return "held"
	}
	same := 0
	for _, s := range l.on {
		o := &s.load
		if s.at.Node == id {
			if o.ID == w.ID {
				same++
			}
			if (w.Dedicated || o.Dedicated) && o.ID != w.ID {
				return "shared with dedicated"
			}
			if slices.Contains(w.ApartNode, o.ID) || slices.Contains(o.ApartNode, w.ID) {
				return "apart on a node"
			}
			if apartIn(w, o.ID, &n, &n, false) || apartIn(o, w.ID, &n, &n, false) {
				return "apart on a node of a place"
			}
		}
		if l.nodes[s.at.Node].Cluster == n.Cluster && (slices.Contains(w.ApartCluster, o.ID) || slices.Contains(o.ApartCluster, w.ID)) {
			return "apart in a cluster"
		}
		if m := l.nodes[s.at.Node]; m.Cluster == n.Cluster && (apartIn(w, o.ID, &n, &m, true) || apartIn(o, w.ID, &n, &m, true)) {
			return "apart in a cluster of a place"
		}
	}
	if w.MaxPerNode > 0 && same >= w.MaxPerNode {
		return "too many of a kind"
	}
	return ""
}

// apartIn reports whether a workload may not have another next to it, given the nodes of the two.
func apartIn(w *packing.Workload, other string, one, two *packing.Node, cluster bool) bool {
	in := func(list []string, x string) bool { return len(list) == 0 || slices.Contains(list, x) }
	return slices.ContainsFunc(w.ApartIn, func(x packing.Apart) bool {
		return x.Cluster == cluster && slices.Contains(x.Workloads, other) &&
			in(x.In.Regions, one.Region) && in(x.In.Regions, two.Region) && in(x.In.Countries, one.Country) && in(x.In.Countries, two.Country)
	})
}

// arrive checks a fleet's answer to an arrival, and records it.
func (l *ledger) arrive(id string, w *packing.Workload, at online.Placement, ok bool) error {
	if !ok {
		for _, node := range slices.Sorted(maps.Keys(l.nodes)) {
			if l.wrong(w, node) == "" {
				return fmt.Errorf("%s was refused, though %s takes it", id, node)
			}
		}
		return nil
	}
	if why := l.wrong(w, at.Node); why != "" {
		return fmt.Errorf("%s is on %s against %s", id, at.Node, why)
	}
	gpus, _, _ := l.free(at.Node)
	want, need := int(w.GPUMilli/1000), int64(1000)
	if w.GPUMilli%1000 > 0 {
		want, need = 1, w.GPUMilli
	}
	if len(at.GPUs) != want || len(slices.Compact(slices.Sorted(slices.Values(at.GPUs)))) != want {
		return fmt.Errorf("%s of %d milli is on the GPUs %v", id, w.GPUMilli, at.GPUs)
	}
	for _, g := range at.GPUs {
		if gpus[g] < need {
			return fmt.Errorf("%s is on GPU %d of %s, of which %d milli are free", id, g, at.Node, gpus[g])
		}
	}
	l.on[id] = sitting{*w, at}
	return nil
}

func drawFleet(t *rapid.T) []packing.Node {
	var nodes []packing.Node
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		n := packing.Node{
			ID: fmt.Sprintf("n%d", i), Count: 1, Cluster: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "cluster"),
			Region:  rapid.SampledFrom([]string{"r1", "r2"}).Draw(t, "region"),
			Country: rapid.SampledFrom([]string{"DE", "US"}).Draw(t, "country"), Model: rapid.SampledFrom([]string{"A100", "H100"}).Draw(t, "model"),
			GPUs: rapid.SampledFrom([]int{0, 1, 2, 4}).Draw(t, "gpus"), CPUMilli: rapid.Int64Range(0, 8).Draw(t, "cpu") * 1000, MemoryMiB: rapid.Int64Range(0, 8).Draw(t, "mem") * 1024,
		}
		if rapid.IntRange(0, 4).Draw(t, "certified") == 0 {
			n.Certifications = []string{"c"}
		}
		if rapid.IntRange(0, 6).Draw(t, "own") == 0 {
			n.Dedicated = "w1"
		}
		if n.GPUs > 0 && rapid.IntRange(0, 4).Draw(t, "held") == 0 {
			n.Held.GPUMilli = []int64{rapid.SampledFrom([]int64{300, 1000}).Draw(t, "milli")}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func drawLoads(t *rapid.T) []packing.Workload {
	var loads []packing.Workload
	rare := func(name string) bool { return rapid.IntRange(0, 7).Draw(t, name) == 0 }
	for i := range rapid.IntRange(1, 5).Draw(t, "workloads") {
		w := packing.Workload{
			ID: fmt.Sprintf("l%d", i), Workspace: rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "workspace"), Replicas: 1,
			GPUMilli: rapid.SampledFrom([]int64{0, 200, 300, 500, 1000, 2000}).Draw(t, "gpu"),
			CPUMilli: rapid.Int64Range(0, 3).Draw(t, "cpu") * 1000, MemoryMiB: rapid.Int64Range(0, 3).Draw(t, "mem") * 1024,
			Dedicated: rare("dedicated"),
		}
		if rare("models") {
			w.Models = []string{"H100"}
		}
		if rare("countries") {
			w.Countries = []string{"DE"}
		}
		if rare("clusters") {
			w.Clusters = []string{"a"}
		}
		if rare("certs") {
			w.Certifications = []string{"c"}
		}
		if rare("most") {
			w.MaxPerNode = rapid.IntRange(1, 2).Draw(t, "n")
		}
		other := []string{fmt.Sprintf("l%d", rapid.IntRange(0, 5).Draw(t, "other"))}
		if rare("apart") {
			w.ApartNode = other
		}
		if rare("far") {
			w.ApartCluster = other
		}
		if rare("there") || rare("there too") {
			x := packing.Apart{Workloads: other, Cluster: rapid.Bool().Draw(t, "whole cluster")}
			if rapid.Bool().Draw(t, "of regions") {
				x.In.Regions = []string{"r1"}
			}
			if rapid.Bool().Draw(t, "of countries") {
				x.In.Countries = []string{"DE"}
			}
			w.ApartIn = append(w.ApartIn, x)
		}
		loads = append(loads, w)
	}
	return loads
}

// For any arrivals, departures and policy: nothing is over-filled, no constraint is broken, and
// nothing is refused that some machine takes.
func TestEveryPlacementHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, loads := drawFleet(t), drawLoads(t)
		mix, err := online.MixOf(loads, 100)
		if err != nil {
			t.Fatal(err)
		}
		by := rapid.SampledFrom(online.Policies()).Draw(t, "policy")
		f, err := online.New(nodes, mix, by, rand.New(rand.NewSource(1)))
		if err != nil {
			t.Fatal(err)
		}
		l := newLedger(nodes)
		for i := range rapid.IntRange(1, 30).Draw(t, "steps") {
			if ids := slices.Sorted(maps.Keys(l.on)); len(ids) > 0 && rapid.IntRange(0, 2).Draw(t, "depart") == 0 {
				id := rapid.SampledFrom(ids).Draw(t, "who")
				if err := f.Depart(id); err != nil {
					t.Fatal(err)
				}
				delete(l.on, id)
				continue
			}
			w := rapid.SampledFrom(loads).Draw(t, "load")
			at, ok, err := f.Arrive(strconv.Itoa(i), &w)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.arrive(strconv.Itoa(i), &w, at, ok); err != nil {
				t.Fatalf("%s: %v", by, err)
			}
		}
	})
}

// After arrivals have departed, in any order, a fleet answers as if they had never come, for any
// order of the nodes.
func TestDepartureRestores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes, loads := drawFleet(t), drawLoads(t)
		mix, err := online.MixOf(loads, 100)
		if err != nil {
			t.Fatal(err)
		}
		policies := slices.DeleteFunc(online.Policies(), func(p online.Policy) bool { return p == online.Random })
		by := rapid.SampledFrom(policies).Draw(t, "policy")
		f, err := online.New(nodes, mix, by, nil)
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := online.New(rapid.Permutation(nodes).Draw(t, "order"), mix, by, nil)
		if err != nil {
			t.Fatal(err)
		}
		first := rapid.SliceOfN(rapid.SampledFrom(loads), 0, 15).Draw(t, "first")
		var placed []string
		for i := range first {
			id := "first" + strconv.Itoa(i)
			if _, ok, err := f.Arrive(id, &first[i]); err != nil {
				t.Fatal(err)
			} else if ok {
				placed = append(placed, id)
			}
		}
		if len(placed) > 0 {
			placed = rapid.Permutation(placed).Draw(t, "departures")
		}
		for _, id := range placed {
			if err := f.Depart(id); err != nil {
				t.Fatal(err)
			}
		}
		for i, w := range rapid.SliceOfN(rapid.SampledFrom(loads), 1, 15).Draw(t, "then") {
			a, aok, err := f.Arrive(strconv.Itoa(i), &w)
			if err != nil {
				t.Fatal(err)
			}
			b, bok, err := fresh.Arrive(strconv.Itoa(i), &w)
			if err != nil {
				t.Fatal(err)
			}
			if aok != bok || a.Node != b.Node || !slices.Equal(a.GPUs, b.GPUs) {
				t.Fatalf("%s: arrival %d is on %v %v, and on a fresh fleet on %v %v", by, i, a, aok, b, bok)
			}
		}
	})
}

// Three machines, one with little CPU and one with much: how each policy treats the same arrivals,
// all of which fit if CPU is kept for GPUs.
func TestGoldenReplay(t *testing.T) {
	nodes := []packing.Node{
		{ID: "big", Count: 1, GPUs: 4, CPUMilli: 16_000, MemoryMiB: 65_536},
		{ID: "lean", Count: 1, GPUs: 2, CPUMilli: 4_000, MemoryMiB: 16_384},
		{ID: "rich", Count: 1, GPUs: 1, CPUMilli: 32_000, MemoryMiB: 65_536},
	}
	pods := []packing.Workload{
		{ID: "half", Replicas: 3, GPUMilli: 500, CPUMilli: 1_000, MemoryMiB: 4_096},
		{ID: "one", Replicas: 3, GPUMilli: 1_000, CPUMilli: 4_000, MemoryMiB: 8_192},
		{ID: "plain", Replicas: 2, CPUMilli: 8_000, MemoryMiB: 4_096},
		{ID: "two", Replicas: 1, GPUMilli: 2_000, CPUMilli: 4_000, MemoryMiB: 8_192},
	}
	mix, err := online.MixOf(pods, 100)
	if err != nil {
		t.Fatal(err)
	}
	order := []int{0, 2, 1, 0, 3, 1, 2, 0, 1}
	want := `
balanced   half:rich[0] plain:rich[] one:big[0] half:rich[0] two:lean[0 1] one:big[1] plain:rich[] half:big[2] one:big[3]
bestfit    half:lean[0] plain:rich[] one:rich[0] half:lean[0] two:big[0 1] one:big[2] plain:big[] half:lean[1] one:-
clustering half:rich[0] plain:big[] one:lean[0] half:rich[0] two:big[0 1] one:big[2] plain:rich[] half:- one:-
dotprod    half:lean[0] plain:big[] one:rich[0] half:lean[0] two:big[0 1] one:big[2] plain:rich[] half:lean[1] one:-
fgd        half:rich[0] plain:big[] one:big[0] half:rich[0] two:lean[0 1] one:big[1] plain:rich[] half:- one:-
packing    half:rich[0] plain:big[] one:lean[0] half:rich[0] two:big[0 1] one:big[2] plain:rich[] half:- one:-
random     half:rich[0] plain:rich[] one:lean[0] half:big[3] two:big[0 1] one:big[2] plain:rich[] half:big[3] one:-
`
	var b strings.Builder
	b.WriteByte('\n')
	for _, by := range online.Policies() {
		f, err := online.New(nodes, mix, by, rand.New(rand.NewSource(7)))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%-10s", by)
		for i, k := range order {
			at, ok, err := f.Arrive(strconv.Itoa(i), &pods[k])
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				fmt.Fprintf(&b, " %s:-", pods[k].ID)
				continue
			}
			fmt.Fprintf(&b, " %s:%s%v", pods[k].ID, at.Node, at.GPUs)
		}
		b.WriteByte('\n')
	}
	if b.String() != want {
		t.Errorf("got%swant%s", b.String(), want)
	}
}

// The large machine has CPU to spare. On a small one, a replica that needs much CPU leaves GPUs over.
// It goes there all the same if replicas are expected that only the large machine can take.
func TestScarceMachinesAreKept(t *testing.T) {
	nodes := []packing.Node{
		{ID: "large", Count: 1, Model: "T4", GPUs: 4, CPUMilli: 64_000, MemoryMiB: 65_536},
		{ID: "small", Count: 2, Model: "A10", GPUs: 4, CPUMilli: 16_000, MemoryMiB: 65_536},
	}
	loads := []packing.Workload{
		{ID: "any", Replicas: 2, GPUMilli: 1000, CPUMilli: 8_000, MemoryMiB: 1_024},
		{ID: "light", Replicas: 6, GPUMilli: 1000, CPUMilli: 4_000, MemoryMiB: 1_024},
		{ID: "model", Replicas: 0, GPUMilli: 1000, CPUMilli: 4_000, MemoryMiB: 1_024, Models: []string{"T4"}},
	}
	for _, c := range []struct {
		limited int
		want    string
	}{{0, "large"}, {4, "small#1"}} {
		loads[2].Replicas = c.limited
		mix, err := online.MixOf(loads, 100)
		if err != nil {
			t.Fatal(err)
		}
		f, err := online.New(nodes, mix, online.Balanced, nil)
		if err != nil {
			t.Fatal(err)
		}
		if at, ok, err := f.Arrive("first", &loads[0]); err != nil || !ok || at.Node != c.want {
			t.Errorf("with %d limited replicas expected: on %v %v %v, want %s", c.limited, at, ok, err, c.want)
		}
	}
}

func TestFleetRefuses(t *testing.T) {
	node := packing.Node{ID: "n", Count: 1, GPUs: 1, CPUMilli: 1000, MemoryMiB: 1000}
	for _, c := range []struct {
		what  string
		nodes []packing.Node
		by    online.Policy
	}{
		{"same id", []packing.Node{node, node}, online.FGD},
		{"no policy", []packing.Node{node}, "best"},
		{"no draws", []packing.Node{node}, online.Random},
		{"negative", []packing.Node{{ID: "n", Count: 1, GPUs: -1}}, online.FGD},
		{"more machines than there is memory for", []packing.Node{{ID: "n", Count: 1 << 30, GPUs: 1}}, online.FGD},
	} {
		if _, err := online.New(c.nodes, nil, c.by, nil); err == nil {
			t.Errorf("%s: no error", c.what)
		}
		if c.by == online.FGD {
			if _, err := online.Replay(c.nodes, nil, nil, c.by, rand.New(rand.NewSource(1))); err == nil {
				t.Errorf("%s: no error of a replay", c.what)
			}
		}
	}
	f, err := online.New([]packing.Node{node}, nil, online.FGD, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := packing.Workload{ID: "w", Replicas: 1, GPUMilli: 500}
	if _, ok, err := f.Arrive("a", &w); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if _, _, err := f.Arrive("a", &w); err == nil {
		t.Error("placed twice under one id")
	}
	if err := f.Depart("b"); err == nil {
		t.Error("took away what was not there")
	}
	bad := packing.Workload{ID: "bad", Replicas: 1, GPUMilli: 1500}
	if _, _, err := f.Arrive("c", &bad); err == nil {
		t.Error("placed a GPU and a half")
	}
}

func TestMeanAndSeries(t *testing.T) {
	a := online.Series{{0, 100}, {1, 201}, {3, 9999}}
	b := online.Series{{0, 101}, {1, 202}, {2, 300}, {3, 10000}}
	got, err := online.Mean([]online.Series{a, b}).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"0":1.01,"1":2.02,"3":100.00}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Workloads above the load are thinned out, and workloads without GPUs cannot load anything.
func TestArrivals(t *testing.T) {
	pods := online.Each([]packing.Workload{{ID: "a", Replicas: 50, GPUMilli: 1000}, {ID: "b", Replicas: 10}})
	for _, perMille := range []int64{100, 1000, 5000, 7000} {
		seq, err := online.Arrivals(pods, 10_000, perMille, rand.New(rand.NewSource(3)))
		if err != nil {
			t.Fatal(err)
		}
		asked := int64(0)
		for _, w := range seq {
			asked += w.GPUMilli
		}
		if asked != 10*perMille {
			t.Errorf("%d arrivals ask for %d milli, want %d", len(seq), asked, 10*perMille)
		}
	}
	if _, err := online.Arrivals(pods[50:], 10_000, 1000, rand.New(rand.NewSource(3))); err == nil {
		t.Error("no error without GPUs")
	}
}
