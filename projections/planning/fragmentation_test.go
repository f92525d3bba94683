package planning_test

import (
	"fmt"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/domain/packing/online"
	"quartermaster/projections"
	"quartermaster/projections/planning"
	"quartermaster/projections/registry"
	"quartermaster/projections/storetest"
)

// Two nodes of two GPUs: placements are those last seen, unidentifiable holders are fixed, a silent
// node is left out, and the one move that makes room for two GPUs together is found.
func TestSeated(t *testing.T) {
	at := storetest.Start + 3*domain.Hour
	declare := func(deployment string, gpus uint32) domain.Envelope {
		return domain.Envelope{Cluster: "c", Workspace: "w", Time: storetest.Start, Event: &domain.DeploymentChanged{
			Deployment: deployment, Class: domain.ClassServing, Replicas: 2, Need: domain.GPUNeed{Count: gpus, CPUMilli: 4_000, RAMMiB: 8_192},
		}}
	}
	sampled := func(node string, hour int, memory []uint32, seen ...storetest.Seen) domain.Envelope {
		from := storetest.Start + domain.Instant(hour)*domain.Hour
		s := storetest.Sample(node, domain.Interval{From: from, To: from + domain.Hour}, seen...)
		s.MemoryUsedMiB = memory
		return domain.Envelope{Source: "reporter/c-" + node, Cluster: "c", Time: from + domain.Hour, Event: s}
	}
	gpu := func(node string, i int, deployment, unit string) storetest.Seen {
		s := storetest.Seen{ID: storetest.GPU("c", node, i), Deployment: deployment, Unit: unit, Activity: 90}
		if deployment == "" {
			s.Activity = 0
		} else {
			s.Workspace = "w"
		}
		return s
	}
	l := storetest.NewLog()
	l.Append(
		storetest.Cluster("c", "w", "p", "eu", storetest.Start), declare("small", 1), declare("pair", 2),
		storetest.Node("c", "a", "A100 80GB", 2, storetest.Start), storetest.Node("c", "b", "A100 80GB", 2, storetest.Start),
		storetest.Node("c", "d", "A100 80GB", 2, storetest.Start), storetest.Node("c", "silent", "A100 80GB", 2, storetest.Start),
		storetest.Node("c", "e", "A100 80GB", 1, storetest.Start),
		// A reading is stored as one more than its value: 0 is not measured.
		sampled("a", 1, []uint32{6_001, 8_001}, gpu("a", 0, "small", "s1"), gpu("a", 1, "small", "s0")),
		sampled("a", 2, []uint32{7_001, 0}, gpu("a", 0, "small", "s1"), gpu("a", 1, "", "")),
		sampled("b", 2, []uint32{0, 5_001}, gpu("b", 0, "", ""), gpu("b", 1, "small", "s2")),
		sampled("d", 2, nil, gpu("d", 0, "wild", "x"), gpu("d", 1, "small", "")),
		// A busy GPU without a known holder is not free.
		sampled("e", 2, nil, storetest.Seen{ID: storetest.GPU("c", "e", 0), Activity: 500}),
	)
	storetest.FoldView(t, l, func(v projections.View) {
		a, err := registry.NewAuthority(v)
		if err != nil {
			t.Fatal(err)
		}
		s, err := planning.PlacementsAt(v, a, storetest.Start, at, "eu")
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "unseen %d nodes %d GPUs, fixed %d, declared %d\n", s.Unseen, s.UnseenGPUs, s.Fixed, len(s.Declared))
		for _, n := range s.Nodes {
			fmt.Fprintf(&b, "%s held %v\n", n.ID, n.Held.GPUMilli)
		}
		for _, x := range s.Assignments {
			fmt.Fprintf(&b, "%s %s on %s%v\n", x.ID, x.Load.ID, x.At.Node, x.At.GPUs)
		}
		for _, h := range s.Held {
			fmt.Fprintf(&b, "%s %s %.1fh peak %d in %.1fh\n", h.Deployment, h.Model, float64(h.GPUMs)/3.6e6, h.PeakMiB, float64(h.PeakKnownMs)/3.6e6)
		}
		want := `unseen 1 nodes 2 GPUs, fixed 3, declared 2
c/a held [0 0]
c/b held [0 0]
c/d held [1000 1000]
c/e held [1000]
c/a/s1 c/small on c/a[0]
c/b/s2 c/small on c/b[1]
small A100 80GB 5.0h peak 8000 in 4.0h
wild A100 80GB 1.0h peak 0 in 0.0h
`
		if b.String() != want {
			t.Errorf("got\n%swant\n%s", b.String(), want)
		}
		mix, err := online.MixOf(s.Declared, 100)
		if err != nil {
			t.Fatal(err)
		}
		moves, err := online.Moves(s.Nodes, mix, s.Assignments, 5)
		if err != nil {
			t.Fatal(err)
		}
		// Two free GPUs on two nodes are useless for a pair; after the move both can be used.
		if len(moves) != 1 || moves[0].Replica != "c/a/s1" || moves[0].To != "c/b" || moves[0].GainMilli != 1000 {
			t.Errorf("%+v", moves)
		}
		fits := online.Rightsize(s.Held, 250, nil)
		if len(fits) != 2 || fits[0].Deployment != "small" || fits[0].Profile != "1g.10gb" || fits[1].Why != online.NotMeasured {
			t.Errorf("%+v", fits)
		}
	})
}
