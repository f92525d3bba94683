package demand_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/demand"
	"quartermaster/projections/storetest"
)

// stated is an event of a cluster that is recorded at one time and takes effect at another, in
// days.
func stated(cluster string, recorded, effective int, ev domain.Event) domain.Envelope {
	return domain.Envelope{
		Workspace: "acme", Cluster: cluster, Time: storetest.Start.DayStart() + domain.Instant(effective)*domain.Day, Recorded: storetest.Start.DayStart() + domain.Instant(recorded)*domain.Day, Event: ev,
	}
}

func wants(name string, replicas uint32, need domain.GPUNeed) *domain.DeploymentChanged {
	return &domain.DeploymentChanged{Deployment: name, Class: domain.ClassServing, Replicas: replicas, Need: need}
}

// launches is a log in which c1 feeds GPUs and c2 machines of four in one region.
func launches() *storetest.Log {
	l := storetest.NewLog()
	big := storetest.Node("c2", "n1", "NVIDIA A100-SXM4-80GB", 4, storetest.Start)
	big.Event.(*domain.NodeRegistered).SKU = "m4"
	l.Append(storetest.Cluster("c1", "acme", "p", "eu", storetest.Start), storetest.Cluster("c2", "acme", "p", "eu", storetest.Start), storetest.Cluster("c3", "acme", "p", "us", storetest.Start), big)
	seen := func(cluster, model, pool, unit string, day int) {
		from := storetest.Start.DayStart() + domain.Instant(day)*domain.Day
		l.Append(domain.Envelope{Cluster: cluster, Time: from + domain.Day, Recorded: from + domain.Day, Event: &domain.DemandObserved{
			Pool: pool, Model: model, Unit: unit, Interval: domain.Interval{From: from, To: from + domain.Day}, RunningMilli: 1000,
		}})
	}
	for day := range 10 {
		seen("c1", "H100", "p", "gpu", day)
		seen("c2", "m4", "p", "vm", day)
	}
	return l
}

// The start, end, growth and shrinking of deployments is a change of the pool that has what they
// need, in its unit, from the first whole hour on.
func TestDemandChanges(t *testing.T) {
	h100, two := domain.GPUNeed{Models: []string{"H100"}, Count: 8}, domain.GPUNeed{Count: 2}
	l := launches()
	grown := stated("c1", 12, 12, wants("chat", 5, h100))
	grown.Time += domain.Hour / 2
	l.Append(
		stated("c1", 2, 2, wants("chat", 2, h100)), grown,
		stated("c1", 5, 15, &domain.DeploymentRemoved{Deployment: "chat"}),
		stated("c1", 1, 3, wants("gang", 1, domain.GPUNeed{Models: []string{"H100"}, Count: 8, GangNodes: 4})),
		stated("c1", 1, 15, wants("gang", 2, domain.GPUNeed{Models: []string{"H100"}, Count: 8, GangNodes: 4})),
		stated("c1", 1, 14, wants("part", 3, domain.GPUNeed{Models: []string{"H100"}, Count: 1, Milli: 500})),
		stated("c2", 1, 13, wants("any", 3, two)), // its cluster feeds only machines
		stated("c1", 1, 16, wants("cpu", 3, domain.GPUNeed{CPUMilli: 1000})),
		stated("c1", 1, 16, wants("moves", 1, two)),
		stated("c1", 1, 17, wants("moves", 1, domain.GPUNeed{Models: []string{"A100"}, Count: 4})),
		stated("c3", 1, 13, wants("abroad", 1, h100)),
		stated("c1", 1, 30, wants("far", 9, h100)),
	)
	storetest.FoldView(t, l, func(v projections.View) {
		from := storetest.Start.DayStart()
		pools, err := demand.Histories(v, from, from+13*domain.Day, demand.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		changes, unplaced, err := demand.Changes(v, pools, from+20*domain.Day, 0)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string][]string{
			"H100": {"2 +16000 [c1/chat]", "3 +32000 [c1/gang]", "12.04 +24000 [c1/chat]", "14 +1500 [c1/part]", "15 -8000 [c1/chat c1/gang]", "16 +2000 [c1/moves]", "17 -2000 [c1/moves]"},
			"m4":   {"13 +1500 [c2/any]", "17 +1000 [c1/moves]"},
		}
		for i := range pools {
			var got []string
			for _, c := range changes[i] {
				days := float64(c.At-from) / float64(domain.Day)
				got = append(got, fmt.Sprintf("%.4g %+d %v", days, c.Milli, c.Deployments))
			}
			if !slices.Equal(got, want[pools[i].Kind]) {
				t.Errorf("%s: %q\nwant %q", pools[i].Kind, got, want[pools[i].Kind])
			}
		}
		if len(unplaced) != 1 || !strings.HasPrefix(unplaced[0], "c3/abroad from ") || !strings.HasSuffix(unplaced[0], "in region us") {
			t.Errorf("unplaced: %q", unplaced)
		}
	})
}

// What is recorded later, about the past or the future, does not change what was known before:
// launches, outages and demand.
func TestNothingLaterIsKnown(t *testing.T) {
	const cut = 10
	need := domain.GPUNeed{Models: []string{"H100"}, Count: 1}
	early := []domain.Envelope{
		stated("c1", 1, 2, wants("a", 4, need)), stated("c1", 8, 12, wants("a", 9, need)), stated("c1", 9, 14, wants("b", 2, need)),
		stated("c1", 4, 4, &domain.MaintenanceScheduled{Maintenance: "m", Window: storetest.Days(5, 6)}),
	}
	cordon := stated("c2", 11, 3, &domain.NodeCordoned{Node: "n1", Repair: true})
	late := []domain.Envelope{
		stated("c1", cut+1, 3, wants("a", 50, need)), stated("c1", cut+1, 11, wants("a", 70, need)), stated("c1", cut+2, 13, &domain.DeploymentRemoved{Deployment: "b"}),
		stated("c1", cut+1, 3, wants("late", 3, need)), stated("c1", cut+1, 12, wants("a", 9, need)),
		stated("c1", cut+1, 4, &domain.MaintenanceScheduled{Maintenance: "m", Cancelled: true, Window: storetest.Days(5, 6)}),
		stated("c1", cut+1, 4, &domain.MaintenanceScheduled{Maintenance: "more", Window: storetest.Days(7, 8)}),
		stated("c2", cut+1, 2, &domain.NodeRegistered{Node: "n2", SKU: "m4", CPUMilli: 1, MemoryMiB: 1, GPUs: []domain.GPUDeclared{{ID: storetest.GPU("c2", "n2", 0), Model: "H100"}}}),
		cordon,
	}
	read := func(knownBy domain.Instant, events ...domain.Envelope) string {
		l := launches()
		l.Append(events...)
		out := ""
		storetest.FoldView(t, l, func(v projections.View) {
			from := storetest.Start.DayStart()
			pools, err := demand.Histories(v, from, from+cut*domain.Day, demand.Filter{KnownBy: knownBy})
			if err != nil {
				t.Fatal(err)
			}
			changes, _, err := demand.Changes(v, pools, from+40*domain.Day, knownBy)
			if err != nil {
				t.Fatal(err)
			}
			out = fmt.Sprint(pools, changes)
		})
		return out
	}
	by := storetest.Start.DayStart() + cut*domain.Day
	before, after := read(by, early...), read(by, slices.Concat(early, late)...)
	if before != after {
		t.Errorf("known by then before %s\nand after       %s", before, after)
	}
	if now := read(0, slices.Concat(early, late)...); now == after {
		t.Error("what was recorded later says nothing: the case is too easy")
	}
}

// A pool is down while at least half of its GPUs are, failed or set aside, but for at most two
// weeks.
func TestPoolOutages(t *testing.T) {
	l := storetest.NewLog()
	at := func(day int, ev domain.Event) domain.Envelope { return stated("c1", day, day, ev) }
	l.Append(storetest.Cluster("c1", "acme", "p", "eu", storetest.Start.DayStart()))
	for n := range 4 {
		l.Append(storetest.Node("c1", fmt.Sprint("n", n), "H100", 8, storetest.Start.DayStart()))
	}
	l.Append(storetest.Node("c1", "other", "L40S", 8, storetest.Start.DayStart()),
		at(0, &domain.DemandObserved{Pool: "p", Model: "H100", Unit: "gpu", Interval: domain.Interval{From: storetest.Start.DayStart(), To: storetest.Start.DayStart() + domain.Day}, RunningMilli: 1}),
		at(1, &domain.NodeCordoned{Node: "n0", Repair: true}),
		at(2, &domain.GPUFaultObserved{Node: "n1", GPU: storetest.GPU("c1", "n1", 3), Kind: domain.FaultXID, Fatal: true}), // of one device
		at(3, &domain.GPUFaultObserved{Node: "n1", Kind: domain.FaultHealth, Fatal: true}),
		at(3, &domain.MaintenanceScheduled{Maintenance: "m", Nodes: []string{"n2"}, Window: storetest.Days(4, 5)}),
		at(6, &domain.NodeReturned{Node: "n0"}), at(7, &domain.NodeCordoned{Node: "other", Repair: true}),
		at(8, &domain.NodeRetired{Node: "n2"}), at(9, &domain.NodeCordoned{Node: "n3"}), at(30, &domain.NodeReturned{Node: "n3"}),
		at(32, &domain.NodeCordoned{Node: "n0", Repair: true}),
	)
	storetest.FoldView(t, l, func(v projections.View) {
		from := storetest.Start.DayStart()
		span := func(a, b int) domain.Interval {
			return domain.Interval{From: from + domain.Instant(a)*domain.Day, To: from + domain.Instant(b)*domain.Day}
		}
		for _, c := range []struct {
			to   int
			want []domain.Interval
		}{{5, []domain.Interval{span(3, 5)}}, {20, []domain.Interval{span(3, 6), span(9, 20)}}, {40, []domain.Interval{span(3, 6), span(32, 40)}}, {60, []domain.Interval{span(3, 6)}}} {
			pools, err := demand.Histories(v, from, from+domain.Instant(c.to)*domain.Day, demand.Filter{})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(pools[0].Outages, c.want) {
				t.Errorf("until day %d: %v, want %v", c.to, pools[0].Outages, c.want)
			}
		}
	})
}
