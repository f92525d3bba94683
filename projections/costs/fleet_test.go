package costs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/attribution"
	"quartermaster/domain/long"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

var stateOf = map[attribution.Component]inventory.State{
	attribution.Allocated: inventory.Allocated, attribution.Idle: inventory.Idle, attribution.BusyUnattributed: inventory.BusyUnattributed, attribution.Unprovisioned: inventory.Unprovisioned,
	attribution.Failed: inventory.Failed, attribution.Maintenance: inventory.Maintenance, attribution.Unobserved: inventory.Unobserved,
}

func noCuts(int, domain.Instant) []domain.Instant { return nil }

// For every history of a fleet, attribution gets every second of every GPU, with the state and the
// holder of usage, under one description of its node.
func TestCostHoursAreUsage(t *testing.T) {
	long.Check(t, 30, 10_000, func(t *rapid.T) {
		draw := rapid.SampledFrom([]func(*rapid.T) *storetest.Log{storetest.Draw, storetest.DrawUsage}).Draw(t, "log")
		l := draw(t)
		var spans []domain.Interval
		at := storetest.Start - domain.Hour
		for range rapid.IntRange(1, 12).Draw(t, "spans") {
			from := at + domain.Instant(rapid.IntRange(0, 120).Draw(t, "from"))*storetest.Minute
			at = from + domain.Instant(rapid.SampledFrom([]int{1, 20, 60, 300}).Draw(t, "length"))*storetest.Minute
			spans = append(spans, domain.Interval{From: from, To: at})
		}
		// Hours are whole, and each counts once.
		var merged []domain.Interval
		for _, s := range spans {
			s.From, s.To = s.From.HourStart(), (s.To-1).HourStart()+domain.Hour
			if n := len(merged); n > 0 && s.From <= merged[n-1].To {
				merged[n-1].To = s.To
				continue
			}
			merged = append(merged, s)
		}
		storetest.Look(t, storetest.Fold(t, l), func(v projections.View) error {
			type key struct {
				state              inventory.State
				workspace, cluster string
			}
			got, want := map[key]int64{}, map[key]int64{}
			for _, s := range merged {
				err := usage.EachDeviceHour(v, s.From, s.To, func(d *usage.DeviceHour) error {
					for _, s := range d.Segments {
						k := key{s.State, "", d.Cluster}
						if s.Holder != nil {
							k.workspace = s.Holder.Workspace
						}
						want[k] += s.GPUMs
					}
					return nil
				})
				if err != nil {
					return err
				}
			}
			type hourOf struct {
				node int
				hour domain.Instant
			}
			type seen struct {
				hourOf
				part attribution.Part
			}
			var hours []seen
			last, held := hourOf{-1, 0}, domain.Interval{}
			// Every other hour is split, at some nodes twice.
			cuts := func(node int, hour domain.Instant) []domain.Instant {
				all := []domain.Instant{hour + 7*storetest.Minute, hour + 40*storetest.Minute + 1}
				return all[:int(hour/domain.Hour)%2*(1+node%2)]
			}
			nodes, err := costs.CostHours(v, spans, cuts, func(h *attribution.NodeHour) error {
				at := hourOf{h.Node, h.Hour}
				if h.Node < last.node || h.Node == last.node && (h.Hour < last.hour || h.Hour == last.hour && h.Held.From <= held.From) {
					t.Errorf("node %d at %s, %s comes after %d at %s", h.Node, h.Hour, h.Held.From, last.node, last.hour)
				}
				for _, c := range cuts(h.Node, h.Hour) {
					if h.Held == (domain.Interval{}) || h.Held.From < c && c < h.Held.To {
						t.Errorf("node %d at %s is of %v and not cut at %s", h.Node, h.Hour, h.Held, c)
					}
				}
				last, held = at, h.Held
				for _, p := range h.Parts {
					hours = append(hours, seen{at, p})
				}
				return nil
			})
			if err != nil {
				return err
			}
			for i, n := range nodes {
				if n.Service.Empty() || i > 0 && nodes[i-1].Cluster == n.Cluster && nodes[i-1].Node == n.Node && n.Service.From < nodes[i-1].Service.To {
					t.Errorf("descriptions overlap: %+v", nodes)
				}
			}
			for _, h := range hours {
				n, p := nodes[h.node], h.part
				got[key{stateOf[p.Component], p.Workspace, n.Cluster}] += p.GPUMs
				if p.UsefulMs > p.KnownMs || p.KnownMs > p.GPUMs || p.HeldMs > 3_600_000 || (p.Workspace != "") != (p.Component == attribution.Allocated) {
					t.Errorf("part %+v of %+v", p, n)
				}
				if (domain.Interval{From: h.hour, To: h.hour + domain.Hour}).Intersect(n.Service).Empty() {
					t.Errorf("%s is outside the service of %+v", h.hour, n)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			return nil
		})
	})
}

func TestCostNodes(t *testing.T) {
	const day = domain.Day
	month := domain.Interval{From: storetest.Start, To: storetest.Start + 31*day}
	register := func(at domain.Instant, region, account string) domain.Envelope {
		return domain.Envelope{Cluster: "c", Workspace: "owner", Time: at, Event: &domain.ClusterRegistered{
			Provider: "p", ProviderClass: domain.Neocloud, Region: region, BillingAccount: account,
		}}
	}
	own := storetest.Node("c", "n", "H100 80GB", 2, storetest.Start+day)
	own.Event.(*domain.NodeRegistered).BillingAccount = "own"
	l := storetest.NewLog()
	l.Append(
		register(storetest.Start, "eu", "1"), storetest.Node("c", "n", "H100 80GB", 1, storetest.Start-day), own,
		register(storetest.Start+2*day+30*storetest.Minute, "us", "2"), register(storetest.Start+3*day, "us", "2"),
		storetest.Hardware(5*24*60, &domain.NodeRetired{Node: "n"}),
		// Usage is in whole milliseconds, and so begins before this node does.
		storetest.Cluster("z", "owner", "q", "eu", storetest.Start), storetest.Node("z", "odd", "H100 80GB", 1, storetest.Start+2*day+1),
		storetest.Node("c", "later", "H100 80GB", 1, month.To), storetest.Node("c", "quiet", "H100 80GB", 1, storetest.Start+20*day),
	)
	l.Append(storetest.Sampled("reporter/n", 6*24*60, 6*24*60+10, storetest.Held("a")))
	l.Append(domain.Envelope{Source: "reporter/x", Cluster: "x", Time: storetest.Start + domain.Hour, Event: storetest.Sample("m", storetest.Span(0, 60),
		storetest.Seen{ID: storetest.GPU("x", "m", 0), Activity: -1}, storetest.Seen{ID: storetest.GPU("x", "m", 1), Activity: -1})})
	var got []string
	storetest.FoldView(t, l, func(v projections.View) {
		nodes, err := costs.CostHours(v, []domain.Interval{month}, noCuts, func(*attribution.NodeHour) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			days := func(at domain.Instant) float64 { return float64(at-storetest.Start) / float64(day) }
			got = append(got, fmt.Sprintf("%s/%s %q %s %d %v %.2f-%.2f", n.Cluster, n.Node, n.Account, n.Region, n.GPUs, n.Registered, days(n.Service.From), days(n.Service.To)))
		}
	})
	want := []string{
		`c/n "1" eu 1 true 0.00-1.00`,
		`c/n "own" eu 2 true 1.00-2.04`, // the cluster moves within an hour: valid from the next hour on
		`c/n "own" us 2 true 2.04-5.00`,
		`c/n "2" us 1 false 6.00-6.04`, // it reported for an hour after it was retired
		`c/quiet "2" us 1 true 20.00-31.00`,
		`x/m ""  2 false 0.00-31.00`,
		`z/odd "" eu 1 true 2.00-31.00`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A unit counts once for its time on a node, however many GPUs it held, and has the requests of one
// replica of its deployment.
func TestCostParts(t *testing.T) {
	deploy := func(minutes int, workspace string, cpu uint64) domain.Envelope {
		return domain.Envelope{Cluster: "c", Workspace: workspace, Time: storetest.Start + domain.Instant(minutes)*storetest.Minute, Event: &domain.DeploymentChanged{
			Deployment: "d", Class: domain.ClassServing, Replicas: 1, Need: domain.GPUNeed{Count: 2, CPUMilli: cpu, RAMMiB: 1024},
		}}
	}
	pod := func(i int, workspace, unit string) storetest.Seen {
		return storetest.Seen{ID: storetest.DeviceOf(i), Workspace: workspace, Deployment: "d", Unit: unit, Activity: 500}
	}
	l := storetest.NewLog()
	l.Append(storetest.Cluster("c", "owner", "p", "eu", storetest.Start), storetest.Node("c", "n", "H100 80GB", 3, storetest.Start), deploy(30, "a", 8000), deploy(60, "a", 16_000))
	l.Append(
		storetest.Sampled("reporter/n", 0, 20, pod(0, "a", "u"), pod(1, "a", "u"), pod(2, "b", "u")),
		storetest.Sampled("reporter/n", 20, 40, pod(0, "a", "u"), pod(1, "", ""), pod(2, "a", "")),
		storetest.Sampled("reporter/n", 60, 90, pod(0, "a", "u"), storetest.Seen{ID: storetest.DeviceOf(1), Activity: 900}, pod(2, "a", "v")),
		storetest.Hardware(80, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(2), Kind: domain.FaultXID, Code: 79, Fatal: true}),
	)
	var got []string
	storetest.FoldView(t, l, func(v projections.View) {
		_, err := costs.CostHours(v, []domain.Interval{storetest.Span(0, 120)}, noCuts, func(h *attribution.NodeHour) error {
			for _, p := range h.Parts {
				got = append(got, fmt.Sprintf("%d %s %s %s/%s/%s gpu %d useful %d known %d held %d cpu %d mem %d", (h.Hour-storetest.Start)/domain.Hour, h.Owner, p.Component,
					p.Workspace, p.Deployment, p.Unit, p.GPUMs/60_000, p.UsefulMs/60_000, p.KnownMs/60_000, p.HeldMs/60_000, p.CPUMilli, p.MemoryMiB))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
	slices.Sort(got)
	want := []string{
		"0 owner allocated a/d/ gpu 20 useful 10 known 20 held 0 cpu 0 mem 0",
		"0 owner allocated a/d/u gpu 60 useful 30 known 60 held 40 cpu 8000 mem 1024",
		"0 owner allocated b/d/u gpu 20 useful 10 known 20 held 20 cpu 0 mem 0",
		"0 owner busy_unattributed // gpu 20 useful 0 known 0 held 0 cpu 0 mem 0",
		"0 owner unobserved // gpu 60 useful 0 known 0 held 0 cpu 0 mem 0",
		"1 owner allocated a/d/u gpu 30 useful 15 known 30 held 30 cpu 16000 mem 1024",
		"1 owner allocated a/d/v gpu 30 useful 10 known 30 held 30 cpu 16000 mem 1024",
		"1 owner busy_unattributed // gpu 30 useful 0 known 0 held 0 cpu 0 mem 0",
		"1 owner failed // gpu 30 useful 0 known 0 held 0 cpu 0 mem 0",
		"1 owner unobserved // gpu 60 useful 0 known 0 held 0 cpu 0 mem 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
