package usage_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/access"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

func mapOf(t *testing.T, l *storetest.Log, at domain.Instant, by usage.MapBy, rights ...access.Right) (m *usage.FleetMap) {
	t.Helper()
	storetest.FoldView(t, l, func(v projections.View) {
		if len(rights) > 0 {
			scope, err := access.ScopeOf(v, rights)
			if err != nil {
				t.Fatal(err)
			}
			v = scope.View(v)
		}
		var err error
		if m, err = usage.NewFleetMap(v, at, usage.Filter{}, by); err != nil {
			t.Fatal(err)
		}
	})
	return m
}

// mapText returns a map as cluster, node and cells.
func mapText(m *usage.FleetMap) string {
	var parts []string
	for _, c := range m.Clusters {
		for i := range c.Runs {
			c.Runs[i].Each(func(node, cells string) { parts = append(parts, c.Cluster+"/"+node+" "+cells) })
		}
	}
	return strings.Join(parts, ", ")
}

// Every state has its character.
func TestFleetMapStates(t *testing.T) {
	device := func(i int) domain.GPUID { return storetest.DeviceOf(i) }
	l := storetest.NewLog()
	l.Append(
		storetest.Cluster("c", "acme", "p", "eu", storetest.Start), storetest.Node("c", "n", "H100 80GB", 9, storetest.Start),
		storetest.Sampled("reporter/n", 0, 60,
			storetest.Seen{ID: device(0), Workspace: "a", Activity: 1000}, storetest.Seen{ID: device(1), Workspace: "a", Activity: 99},
			storetest.Seen{ID: device(2), Workspace: "a", Activity: -1}, storetest.Seen{ID: device(3), Activity: 900}, storetest.Seen{ID: device(4), Activity: 0},
			storetest.Seen{ID: device(5), Activity: 0}, storetest.Seen{ID: device(10), Parent: device(6), Profile: "1g.10gb", Activity: -1},
			storetest.Seen{ID: device(99), Workspace: "a", Activity: 450},
		),
		storetest.Hardware(5, &domain.GPUFaultObserved{Node: "n", GPU: device(5), Kind: domain.FaultXID, Code: 79, Fatal: true}),
	)
	// Another node is set aside, and one is retired.
	l.Append(storetest.Node("c", "set-aside", "H100 80GB", 1, storetest.Start), storetest.Node("c", "retired", "H100 80GB", 1, storetest.Start-domain.Day),
		domain.Envelope{Cluster: "c", Time: storetest.Start - 1, Event: &domain.NodeRetired{Node: "retired"}},
		storetest.Hardware(0, &domain.NodeDrained{Node: "set-aside"}))
	for by, want := range map[usage.MapBy]string{
		usage.MapActivity:  "c/n 90hbifpuu4, c/set-aside m",
		usage.MapAllocated: "c/n 99900fpuu9, c/set-aside m",
		usage.MapState:     "c/n aaabifpuua, c/set-aside m",
	} {
		m := mapOf(t, l, storetest.Start+domain.Hour, by)
		if got := mapText(m); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
		n := 0
		for _, of := range m.Clusters[0].Counts {
			n += of
		}
		if c := m.Clusters[0]; n != 11 || c.GPUs != 11 || c.Nodes != 2 || m.Hour != storetest.Start {
			t.Errorf("%d GPUs are counted: %+v", n, c)
		}
	}
	// In the middle of an hour, the last whole one is shown.
	if m := mapOf(t, l, storetest.Start+119*storetest.Minute, usage.MapState); m.Hour != storetest.Start {
		t.Errorf("the hour is %s", m.Hour)
	}
}

// GPUs are in the place of their index, and those that are not in service leave it empty.
func TestFleetMapPlaces(t *testing.T) {
	l := storetest.NewLog()
	node := storetest.Node("c", "n", "H100 80GB", 4, storetest.Start)
	r := node.Event.(*domain.NodeRegistered)
	r.GPUs = []domain.GPUDeclared{r.GPUs[3], r.GPUs[1], r.GPUs[0]}
	l.Append(storetest.Cluster("c", "acme", "p", "eu", storetest.Start), node,
		storetest.Sampled("reporter/n", 0, 60, storetest.Seen{ID: storetest.DeviceOf(1), Workspace: "a", Activity: 300}))
	if got := mapText(mapOf(t, l, storetest.Start+domain.Hour, usage.MapActivity)); got != "c/n u3-u" {
		t.Errorf("%s", got)
	}
}

// Names become runs, in natural order, and are the same after that.
func TestFleetMapNames(t *testing.T) {
	for _, c := range []struct{ names, want string }{
		{"n1 n2 n10 n3", "n 1 3, n 10 1"},
		{"n08 n09 n10 n11", "n 08 4"},
		{"n8 n9 n10", "n 8 3"},
		{"n9 n010", "n 9 1, n 010 1"},
		{"a1.zone b1.zone a2.zone", "a 1 .zone 2, b 1 .zone 1"},
		{"gpu login", "gpu 1, login 1"},
		{"n1-a2 n1-a3 n2-a4", "n1-a 2 2, n2-a 4 1"},
		{"n1234567890123456 n1234567890123457", "n1234567890123456 1, n1234567890123457 1"},
	} {
		l := storetest.NewLog()
		l.Append(storetest.Cluster("c", "acme", "p", "eu", storetest.Start))
		for name := range strings.FieldsSeq(c.names) {
			l.Append(storetest.Node("c", name, "H100 80GB", 1, storetest.Start))
		}
		m := mapOf(t, l, storetest.Start+domain.Hour, usage.MapState)
		var runs []string
		for _, r := range m.Clusters[0].Runs {
			runs = append(runs, strings.Join(strings.Fields(fmt.Sprint(r.Prefix, " ", r.First, " ", r.Suffix, " ", r.Nodes)), " "))
		}
		if got := strings.Join(runs, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", c.names, got, c.want)
		}
	}
	long.Check(t, 100, 10_000, func(t *rapid.T) {
		l := storetest.NewLog()
		l.Append(storetest.Cluster("c", "acme", "p", "eu", storetest.Start))
		want := map[string]bool{}
		for range rapid.IntRange(1, 12).Draw(t, "nodes") {
			name := rapid.StringMatching("[ab]{0,1}[019]{1,3}[.]{0,1}[0129]{0,2}").Draw(t, "name")
			want[name] = true
			l.Append(storetest.Node("c", name, "H100 80GB", rapid.IntRange(1, 2).Draw(t, "GPUs"), storetest.Start))
		}
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
			m, err := usage.NewFleetMap(v, storetest.Start+domain.Hour, usage.Filter{}, usage.MapState)
			if err != nil {
				return err
			}
			n := 0
			for _, r := range m.Clusters[0].Runs {
				r.Each(func(node, _ string) {
					if !want[node] {
						t.Errorf("%q is no node of %v", node, want)
					}
					n++
				})
			}
			if n != len(want) {
				t.Errorf("%d nodes, want %d", n, len(want))
			}
			return nil
		})
	})
}

// Whoever owns no cluster has no map, and a guest neither.
func TestFleetMapWithin(t *testing.T) {
	l := overTwo()
	for workspace, want := range map[string]string{"acme": "own/n a", "rival": "host/n a", "third": ""} {
		if got := mapText(mapOf(t, l, storetest.Start+domain.Hour, usage.MapState, access.Right{Workspace: workspace, Role: domain.RoleViewer})); got != want {
			t.Errorf("%s sees %q, want %q", workspace, got, want)
		}
	}
}

// overTwo is two clusters of two workspaces; acme holds a GPU of each.
func overTwo() *storetest.Log {
	l := storetest.NewLog()
	for cluster, owner := range map[string]string{"own": "acme", "host": "rival"} {
		l.Append(storetest.Cluster(cluster, owner, "p", "eu", storetest.Start), storetest.Node(cluster, "n", "H100 80GB", 1, storetest.Start),
			domain.Envelope{Source: "reporter/" + cluster, Cluster: cluster, Time: storetest.Start + domain.Hour, Event: storetest.Sample("n", storetest.Span(0, 60),
				storetest.Seen{ID: storetest.GPU(cluster, "n", 0), Workspace: "acme", Activity: 500})})
	}
	return l
}

// busyFleet is 100,000 GPUs of ten clusters in one hour, as different from each other as can be: each is held with any
// activity, or idle, or not seen. With mixed names, no two nodes are in one run.
func busyFleet(mixed bool) *storetest.Log {
	r := rand.New(rand.NewPCG(1, 2))
	l := storetest.NewLog()
	l.Batch = 1000
	for c := range 10 {
		cluster := fmt.Sprintf("cluster-%02d", c)
		l.Append(storetest.Cluster(cluster, "acme", "p", "eu", storetest.Start))
		for n := range 1250 {
			node := fmt.Sprintf("gpu-%04d", n)
			if mixed {
				node = fmt.Sprintf("ip-10-%d-%d-%d", r.IntN(256), r.IntN(256), 2*n)
			}
			l.Append(storetest.Node(cluster, node, "H100 80GB", 8, storetest.Start))
			var seen []storetest.Seen
			for i := range 8 {
				d := storetest.Seen{ID: storetest.GPU(cluster, node, i), Activity: r.IntN(1001)}
				if r.IntN(4) > 0 {
					d.Workspace = "acme"
				}
				if r.IntN(20) > 0 {
					seen = append(seen, d)
				}
			}
			if len(seen) > 0 {
				l.Append(domain.Envelope{
					Source: "reporter/" + cluster + "/" + node, Cluster: cluster, Time: storetest.Start + domain.Hour,
					Event: storetest.Sample(node, storetest.Span(0, 60), seen...),
				})
			}
		}
	}
	return l
}

// BenchmarkFleetMap maps a fleet of 100,000 GPUs. bytes are those of the answer, compressed.
func BenchmarkFleetMap(b *testing.B) {
	for _, mixed := range []bool{false, true} {
		m, err := busyFleet(mixed).Fold(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("mixed names %t", mixed), func(b *testing.B) {
			var answer *usage.FleetMap
			for b.Loop() {
				if err := m.View(context.Background(), func(v projections.View) (err error) {
					answer, err = usage.NewFleetMap(v, storetest.Start+domain.Hour, usage.Filter{}, usage.MapActivity)
					return err
				}); err != nil {
					b.Fatal(err)
				}
			}
			text, err := json.MarshalIndent(answer, "", "  ")
			if err != nil {
				b.Fatal(err)
			}
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			if _, err := z.Write(text); err != nil || z.Close() != nil {
				b.Fatal(err)
			}
			gpus := 0
			for _, c := range answer.Clusters {
				gpus += c.GPUs
			}
			if packed.Len() > 200_000 || gpus != 100_000 {
				b.Errorf("%d bytes for %d GPUs", packed.Len(), gpus)
			}
			b.ReportMetric(float64(packed.Len()), "bytes")
			b.ReportMetric(float64(len(text)), "plain-bytes")
		})
	}
}
