package usage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"quartermaster/domain"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// works is a GPU without a known holder, with its activity in per mille.
func works(activity int) storetest.Seen {
	return storetest.Seen{ID: storetest.DeviceOf(0), Activity: activity}
}

// unasked is a report of an observer that did not know the holders.
func unasked(env domain.Envelope) domain.Envelope {
	env.Event.(*domain.NodeSampled).HoldersUnknown = true
	return env
}

func TestUsageStates(t *testing.T) {
	corrected := func(from, to int, id domain.GPUID, by string) domain.Envelope {
		return storetest.Hardware(to, &domain.UsageCorrected{Correction: fmt.Sprint(from), Node: "n", GPU: id, Interval: storetest.Span(from, to), Workspace: by, Reason: "r"})
	}
	renamed := func(env domain.Envelope) domain.Envelope {
		env.Event.(*domain.UsageCorrected).Correction = "x"
		return env
	}
	off := func(env domain.Envelope) domain.Envelope {
		env.Event.(*domain.UsageCorrected).Cancelled = true
		return renamed(env)
	}
	mig := func(i int, profile, by string) storetest.Seen {
		return storetest.Seen{ID: storetest.DeviceOf(100 + i), Parent: storetest.DeviceOf(0), Profile: profile, Workspace: by, Activity: -1}
	}
	replica := func(i int, by string) storetest.Seen {
		return storetest.Seen{ID: storetest.DeviceOf(0), Replica: uint32(i), Workspace: by, Activity: -1}
	}
	one := storetest.Node("c", "n", "H100 80GB", 1, storetest.Start)
	lab := storetest.Cluster("c", "home", "p", "eu", storetest.Start)
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string // "from-to state workspace ms" in minutes and GPU-milliseconds
	}{
		{"never seen", []domain.Envelope{one}, "0-60 unobserved 3600000"},
		{"held, then idle, then silent", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 20, storetest.Held("a")), storetest.Sampled("reporter/n", 20, 30, storetest.Held(""))},
			"0-20 allocated a 1200000, 20-30 idle 600000, 30-60 unobserved 1800000"},
		{"without a holder failed, with a holder allocated", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 20, storetest.Held("a")), storetest.Sampled("reporter/n", 20, 60, storetest.Held("")),
			storetest.Hardware(10, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(0), Kind: domain.FaultXID, Code: 79, Fatal: true}), storetest.Hardware(50, &domain.NodeReturned{Node: "n"})},
			"0-10 allocated a 600000, 10-20 allocated! a 600000, 20-50 failed 1800000, 50-60 idle 600000"},
		{"a fault ends separately, in every order of reports", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, storetest.Held("")),
			storetest.Hardware(40, &domain.NodeReturned{Node: "n", GPU: storetest.DeviceOf(0), Faults: true}), storetest.Hardware(30, &domain.NodeReturned{Node: "n", GPU: storetest.DeviceOf(1), Faults: true}),
			storetest.Hardware(20, &domain.NodeReturned{Node: "n", Faults: true}), storetest.Hardware(15, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(0), Kind: domain.FaultOffBus, Fatal: true}),
			storetest.Hardware(10, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(0), Kind: domain.FaultXID, Code: 79, Fatal: true})},
			"0-10 idle 600000, 10-40 failed 1800000, 40-60 idle 1200000"},
		{"a GPU that is returned between repeats of its fault stays down", append(storetest.Storm(10, 40, 0, 79, true), one, storetest.Sampled("reporter/n", 0, 60, storetest.Held("")),
			storetest.Hardware(20, &domain.NodeReturned{Node: "n"}), storetest.Hardware(50, &domain.NodeReturned{Node: "n"})),
			"0-10 idle 600000, 10-50 failed 2400000, 50-60 idle 600000"},
		{"the end of a fault does not end a cordon", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, storetest.Held("")),
			storetest.Hardware(10, &domain.GPUFaultObserved{Node: "n", Kind: domain.FaultHealth, Code: 15, Fatal: true}), storetest.Hardware(15, &domain.NodeDrained{Node: "n"}),
			storetest.Hardware(20, &domain.NodeReturned{Node: "n", Faults: true}), storetest.Hardware(30, &domain.NodeReturned{Node: "n"}), storetest.Hardware(35, &domain.NodeCordoned{Node: "n", Repair: true}),
			storetest.Hardware(40, &domain.NodeReturned{Node: "n", Faults: true}), storetest.Hardware(50, &domain.NodeReturned{Node: "n"})},
			"0-10 idle 600000, 10-20 failed 600000, 20-30 maintenance 600000, 30-35 idle 300000, 35-50 failed 900000, 50-60 idle 600000"},
		{"an observer without the holder is skipped for the next", []domain.Envelope{one, storetest.Sampled("prometheus/p", 0, 40, storetest.Held("b")),
			unasked(storetest.Sampled("reporter/n", 0, 50, storetest.Held(""))), storetest.Sampled("reporter/n", 50, 60, storetest.Held(""))},
			"0-40 allocated b 2400000, 40-60 idle 1200000"},
		{"an observer that knows one holder counts for all replicas", []domain.Envelope{one, storetest.Sampled("prometheus/p", 0, 60, storetest.Held("b")),
			unasked(storetest.Sampled("reporter/n", 0, 60, replica(1, "a"), replica(2, "")))},
			"0-60 allocated a 3600000"},
		{"an observer without the holders is skipped for the partitioning", []domain.Envelope{one, storetest.Sampled("prometheus/p", 0, 60, mig(1, "3g.40gb", "b")),
			unasked(storetest.Sampled("reporter/n", 0, 60, storetest.Seen{ID: storetest.DeviceOf(7), Parent: storetest.DeviceOf(0), Profile: "3g.40gb", Activity: -1}))},
			"0-60 allocated b 1800000, 0-60 unprovisioned 1800000"},
		{"a fault that is not fatal, or of another GPU", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, storetest.Held("")),
			storetest.Hardware(10, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(0), Kind: domain.FaultXID, Code: 31}),
			storetest.Hardware(10, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(7), Kind: domain.FaultXID, Code: 79, Fatal: true})},
			"0-60 idle 3600000"},
		{"cordon for repair in a window", []domain.Envelope{one,
			storetest.Hardware(0, &domain.MaintenanceScheduled{Maintenance: "m", Window: storetest.Span(10, 50)}),
			storetest.Hardware(20, &domain.NodeCordoned{Node: "n", Repair: true}), storetest.Hardware(40, &domain.NodeReturned{Node: "n"})},
			"0-10 unobserved 600000, 10-20 maintenance 600000, 20-40 failed 1200000, 40-50 maintenance 600000, 50-60 unobserved 600000"},
		{"a declared outage while it had no holder", []domain.Envelope{lab, one, storetest.Sampled("reporter/n", 0, 20, storetest.Held("a")),
			storetest.Hardware(0, &domain.MaintenanceScheduled{Maintenance: "m", Window: storetest.Span(10, 50)}),
			storetest.Hardware(50, &domain.OutageDeclared{Outage: "o", Nodes: []string{"n"}, Window: storetest.Span(10, 40), Reason: "power"})},
			"0-10 allocated a 600000, 10-20 allocated! a 600000, 20-40 failed 1200000, 40-50 maintenance 600000, 50-60 unobserved 600000"},
		{"a cancelled outage", []domain.Envelope{lab, one,
			storetest.Hardware(50, &domain.OutageDeclared{Outage: "o", Window: storetest.Span(10, 40), Reason: "power"}),
			storetest.Hardware(55, &domain.OutageDeclared{Outage: "o", Window: storetest.Span(10, 40), Reason: "power", Cancelled: true})},
			"0-60 unobserved 3600000"},
		{"an outage declared without the right to", []domain.Envelope{lab, one,
			storetest.Mallory.Sign(storetest.Hardware(50, &domain.OutageDeclared{Outage: "o", Window: storetest.Span(10, 40), Reason: "power"}))},
			"0-60 unobserved 3600000"},
		{"cancelled window", []domain.Envelope{one,
			storetest.Hardware(0, &domain.MaintenanceScheduled{Maintenance: "m", Window: storetest.Span(10, 50)}),
			storetest.Hardware(5, &domain.MaintenanceScheduled{Maintenance: "m", Window: storetest.Span(10, 50), Cancelled: true})},
			"0-60 unobserved 3600000"},
		{"window of other nodes", []domain.Envelope{one, storetest.Hardware(0, &domain.MaintenanceScheduled{Maintenance: "m", Nodes: []string{"o"}, Window: storetest.Span(10, 50)})},
			"0-60 unobserved 3600000"},
		{"drained", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, storetest.Held("")), storetest.Hardware(30, &domain.NodeDrained{Node: "n"})},
			"0-30 idle 1800000, 30-60 maintenance 1800000"},
		{"the closer observer counts, the other fills gaps", []domain.Envelope{one,
			storetest.Sampled("import/x", 0, 60, storetest.Held("c")), storetest.Sampled("prometheus/p", 0, 40, storetest.Held("b")), storetest.Sampled("reporter/n", 10, 20, storetest.Held(""))},
			"0-10 allocated b 600000, 10-20 idle 600000, 20-40 allocated b 1200000, 40-60 allocated c 1200000"},
		{"the node's own reporter before a monitoring system", []domain.Envelope{one,
			storetest.Sampled("prometheus/p", 0, 60, storetest.Held("b")), storetest.Sampled("node-reporter/c1/n", 10, 20, storetest.Held("a"))},
			"0-10 allocated b 600000, 10-20 allocated a 600000, 20-60 allocated b 2400000"},
		{"the later within a rank", []domain.Envelope{one, storetest.Sampled("import/y", 0, 60, storetest.Held("y")), storetest.Sampled("import/x", 0, 30, storetest.Held("x"))},
			"0-30 allocated x 1800000, 30-60 allocated y 1800000"},
		{"a correction overrides, the later one wins", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, storetest.Held("a")),
			corrected(10, 30, storetest.DeviceOf(0), "b"), corrected(20, 40, storetest.DeviceOf(0), "")},
			"0-10 allocated a 600000, 10-20 allocated b 600000, 20-40 idle 1200000, 40-60 allocated a 1200000"},
		{"a correction where nothing was seen", []domain.Envelope{one, corrected(10, 30, storetest.DeviceOf(0), "b")},
			"0-10 unobserved 600000, 10-30 allocated b 1200000, 30-60 unobserved 1800000"},
		{"the last version of a correction counts", []domain.Envelope{one, renamed(corrected(10, 30, storetest.DeviceOf(0), "b")), renamed(corrected(20, 40, storetest.DeviceOf(0), "c"))},
			"0-20 unobserved 1200000, 20-40 allocated c 1200000, 40-60 unobserved 1200000"},
		{"a cancelled correction", []domain.Envelope{one, renamed(corrected(10, 30, storetest.DeviceOf(0), "b")), off(corrected(20, 40, storetest.DeviceOf(0), "b"))},
			"0-60 unobserved 3600000"},
		{"a correction without the right to", []domain.Envelope{one, corrected(10, 30, storetest.DeviceOf(0), "b"), storetest.Mallory.Sign(renamed(corrected(0, 60, storetest.DeviceOf(0), "c")))},
			"0-10 unobserved 600000, 10-30 allocated b 1200000, 30-60 unobserved 1800000"},
		{"instances weigh the greater share, the rest is unpartitioned", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 56, mig(1, "3g.40gb", "a"), mig(2, "1g.10gb", "b"), mig(3, "1g.10gb", "")), storetest.Sampled("reporter/n", 56, 60, storetest.Held("w"))},
			"0-56 allocated a 1680000, 0-56 allocated b 480000, 0-56 idle 480000, 0-56 unprovisioned 720000, 56-60 allocated w 240000"},
		{"instances that weigh more than the GPU shrink", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, mig(1, "3g.40gb", "a"), mig(2, "4g.40gb", "b"))},
			"0-60 allocated a 1680000, 0-60 allocated b 1920000"},
		{"replicas share by the time held", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 30, replica(1, "a"), replica(2, "b"), replica(3, "")), storetest.Sampled("reporter/n", 30, 60, replica(1, "a"), replica(2, ""), replica(3, ""))},
			"0-30 allocated a 900000, 0-30 allocated b 900000, 30-60 allocated a 1800000"},
		{"a GPU that is reported together with its replicas", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, replica(1, "a"), replica(2, ""), replica(0, "b"))},
			"0-60 allocated a 3600000"},
		{"a correction of a GPU that is shared", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, replica(1, "a"), replica(2, "b")), corrected(0, 30, storetest.DeviceOf(0), "c")},
			"0-30 allocated c 1800000, 30-60 allocated a 900000, 30-60 allocated b 900000"},
		{"a correction of a partitioned GPU", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, mig(1, "7g.80gb", "a")), corrected(0, 30, storetest.DeviceOf(0), "c")},
			"0-30 allocated c 1800000, 30-60 allocated a 1800000"},
		{"a correction of an instance", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, mig(1, "4g.40gb", "a"), mig(2, "3g.40gb", "b")), corrected(0, 60, storetest.DeviceOf(102), "")},
			"0-60 allocated a 1920000, 0-60 idle 1680000"},
		{"a busy GPU without a known holder is not idle", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 10, works(50)), storetest.Sampled("reporter/n", 10, 20, works(49)),
			storetest.Sampled("reporter/n", 20, 30, works(1000)), storetest.Sampled("reporter/n", 30, 40, storetest.Held("a")), storetest.Sampled("reporter/n", 40, 50, works(-1)), storetest.Sampled("reporter/n", 50, 60, works(900))},
			"0-10 busy_unattributed 600000, 10-20 idle 600000, 20-30 busy_unattributed 600000, 30-40 allocated a 600000, 40-50 idle 600000, 50-60 busy_unattributed 600000"},
		{"busy and idle times are not averaged", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 1, works(100)), storetest.Sampled("reporter/n", 1, 60, works(0))},
			"0-1 busy_unattributed 60000, 1-60 idle 3540000"},
		{"a later sample of part of the time", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, works(700)), storetest.Sampled("reporter/n", 20, 30, works(0))},
			"0-20 busy_unattributed 1200000, 20-30 idle 600000, 30-60 busy_unattributed 1800000"},
		{"unknown holder: busy and idle", []domain.Envelope{one, unasked(storetest.Sampled("reporter/n", 0, 30, works(500))), unasked(storetest.Sampled("reporter/n", 30, 60, works(0)))},
			"0-30 busy_unattributed 1800000, 30-60 idle 1800000"},
		{"another observer knows the holder", []domain.Envelope{one, unasked(storetest.Sampled("reporter/n", 0, 60, works(500))), storetest.Sampled("import/x", 0, 30, storetest.Held("b"))},
			"0-30 allocated b 1800000, 30-60 busy_unattributed 1800000"},
		{"one observer knows of no holder, another measures", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, works(-1)), storetest.Sampled("prometheus/p", 0, 30, works(500)), storetest.Sampled("prometheus/p", 30, 60, works(0))},
			"0-30 busy_unattributed 1800000, 30-60 idle 1800000"},
		{"the better measurement decides", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, works(0)), storetest.Sampled("prometheus/p", 0, 60, works(500))},
			"0-60 idle 3600000"},
		{"busy while failed or set aside", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, works(500)), storetest.Hardware(30, &domain.NodeDrained{Node: "n"})},
			"0-30 busy_unattributed 1800000, 30-60 maintenance 1800000"},
		{"a correction to no holder counts", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, works(500)), corrected(0, 30, storetest.DeviceOf(0), "")},
			"0-30 idle 1800000, 30-60 busy_unattributed 1800000"},
		{"a busy part of a GPU without a known holder", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, mig(1, "3g.40gb", "a"),
			storetest.Seen{ID: storetest.DeviceOf(102), Parent: storetest.DeviceOf(0), Profile: "4g.40gb", Activity: 500})},
			"0-60 allocated a 1680000, 0-60 busy_unattributed 1920000"},
		{"a busy replica without a known holder", []domain.Envelope{one, storetest.Sampled("reporter/n", 0, 60, replica(1, ""),
			storetest.Seen{ID: storetest.DeviceOf(0), Replica: 2, Activity: 500})},
			"0-60 busy_unattributed 3600000"},
		{"not declared: in service while it reports", []domain.Envelope{storetest.Sampled("reporter/n", 0, 20, storetest.Held("a")), storetest.Sampled("reporter/n", 40, 50, storetest.Held(""))},
			"0-20 allocated? a 1200000, 40-50 idle? 600000"},
		{"reports before service and after retirement", []domain.Envelope{storetest.Node("c", "n", "x", 1, storetest.Start+20*storetest.Minute), storetest.Hardware(40, &domain.NodeRetired{Node: "n"}), storetest.Sampled("reporter/n", 0, 60, storetest.Held("a"))},
			"0-20 allocated? a 1200000, 20-40 allocated a 1200000, 40-60 allocated? a 1200000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(c.log...)
			storetest.FoldView(t, l, func(v projections.View) {
				var got []string
				err := usage.EachDeviceHour(v, storetest.Start, storetest.Start+domain.Hour, func(d *usage.DeviceHour) error {
					for _, s := range d.Segments {
						state := s.State.String()
						if s.WhileFailed {
							state += "!"
						}
						if !d.Declared {
							state += "?"
						}
						if s.Holder != nil {
							state += " " + s.Holder.Workspace
						}
						got = append(got, fmt.Sprintf("%d-%d %s %d", s.From/60_000, s.To/60_000, state, s.GPUMs))
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				want := strings.Split(c.want, ", ")
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Errorf("got  %v\nwant %v", got, want)
				}
			})
		})
	}
}

func TestUsageGroups(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Cluster("c", "owner", "p", "eu", storetest.Start), storetest.Node("c", "n", "NVIDIA H100 80GB HBM3", 2, storetest.Start))
	l.Append(storetest.Sampled("reporter/n", 0, 60, storetest.Seen{ID: storetest.DeviceOf(0), Workspace: "a", Deployment: "d", Activity: 250}, storetest.Seen{ID: storetest.DeviceOf(1), Activity: 0}))
	l.Append(storetest.Sampled("reporter/n", 60, 120, storetest.Seen{ID: storetest.DeviceOf(0), Workspace: "a", Deployment: "e", Activity: -1}, storetest.Seen{ID: storetest.DeviceOf(1), Workspace: "b", Activity: 1000}))
	report := func(filter usage.Filter, by ...usage.Dimension) string {
		var lines []string
		storetest.FoldView(t, l, func(v projections.View) {
			r, err := usage.NewReport(v, storetest.Start+30*storetest.Minute, storetest.Start+3*domain.Hour, filter, by...)
			if err != nil {
				t.Fatal(err)
			}
			for _, g := range r.Groups {
				var key []string
				for _, d := range by {
					key = append(key, g.Key[d])
				}
				line := fmt.Sprintf("%s|%d+%d+%d=%d", strings.Join(key, ","), g.Allocated/60_000, g.Idle/60_000, g.Unobserved/60_000, g.Service/60_000)
				if g.Activity != nil {
					line += fmt.Sprintf(" %d‰ of %d‰", *g.Activity, *g.Coverage)
				}
				lines = append(lines, line)
			}
			lines = append(lines, fmt.Sprint(r.Total.Service/60_000))
		})
		return strings.Join(lines, "\n")
	}
	for _, c := range []struct {
		filter usage.Filter
		by     []usage.Dimension
		want   string
	}{
		{usage.Filter{}, []usage.Dimension{usage.ByWorkspace}, ",|0+30+120=150\na|90+0+0=90 250‰ of 333‰\nb|60+0+0=60 1000‰ of 1000‰\n300"},
		{usage.Filter{}, []usage.Dimension{usage.ByDay, usage.ByRegion, usage.ByGPUModel}, "2026-05-01,eu,H100 SXM 80GB|150+30+120=300 750‰ of 600‰\n300"},
		{usage.Filter{}, []usage.Dimension{usage.ByHour}, "2026-05-01T00:00:00Z|30+30+0=60 250‰ of 1000‰\n2026-05-01T01:00:00Z|120+0+0=120 1000‰ of 500‰\n2026-05-01T02:00:00Z|0+0+120=120\n300"},
		{usage.Filter{Workspace: "a"}, []usage.Dimension{usage.ByDeployment}, "d|30+0+0=30 250‰ of 1000‰\ne|60+0+0=60\n90"},
		{usage.Filter{Workspace: "owner"}, nil, "|0+30+120=150\n150"},
		{usage.Filter{Cluster: "other"}, nil, "0"},
	} {
		want := strings.Replace(c.want, ",|", "|", 1)
		got := report(c.filter, c.by...)
		// An allocated group without any measurement has no activity, but has a coverage.
		if got != want {
			t.Errorf("by %v of %+v:\n%s\nwant\n%s", c.by, c.filter, got, want)
		}
	}
	storetest.FoldView(t, l, func(v projections.View) {
		if _, err := usage.NewReport(v, storetest.Start, storetest.Start+1, usage.Filter{}, "colour"); err == nil {
			t.Error("grouped by colour")
		}
		if _, err := usage.NewReport(v, storetest.Start, storetest.Start, usage.Filter{}); err == nil {
			t.Error("an empty time was accepted")
		}
	})
}
