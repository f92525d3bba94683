package inventory_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/projections/costs"
	"quartermaster/projections/failures"
	"quartermaster/projections/inventory"
	"quartermaster/projections/registry"
	"quartermaster/projections/serving"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

// A GPU whose node has several names is one GPU: its states add up to the hour, and the most
// trusted observer counts, whatever name it uses.
func TestGPUUnderTwoNames(t *testing.T) {
	as := func(node, source string, from, to int, devices ...storetest.Seen) domain.Envelope {
		i := storetest.Span(from, to)
		return domain.Envelope{Source: source, Cluster: "c", Time: i.To, Event: storetest.Sample(node, i, devices...)}
	}
	mig := func(i int, profile, by string) storetest.Seen {
		return storetest.Seen{ID: storetest.DeviceOf(100 + i), Parent: storetest.DeviceOf(0), Profile: profile, Workspace: by, Activity: -1}
	}
	replica := func(i int, by string) storetest.Seen {
		return storetest.Seen{ID: storetest.DeviceOf(0), Replica: uint32(i), Workspace: by, Activity: -1}
	}
	other := storetest.Seen{ID: storetest.DeviceOf(7), Workspace: "o", Activity: -1}
	one := storetest.Node("c", "n", "H100 80GB", 1, storetest.Start)
	twice := storetest.Node("c", "o", "H100 80GB", 1, storetest.Start+30*storetest.Minute)
	twice.Event.(*domain.NodeRegistered).GPUs[0].ID = storetest.DeviceOf(0)
	at := func(env domain.Envelope, minutes int) domain.Envelope {
		env.Time = storetest.Start + domain.Instant(minutes)*storetest.Minute
		return env
	}
	for _, c := range []struct {
		name string
		log  []domain.Envelope
		want string // "node from-to state workspace ms" in minutes and GPU-milliseconds
	}{
		{"declared: under that name", []domain.Envelope{one, as("n", "node-reporter/c/n", 0, 60, storetest.Held("a")), as("ip-10", "prometheus/p", 0, 60, storetest.Held("b"))},
			"n 0-60 allocated a 3600000"},
		{"the other name comes first and fills in", []domain.Envelope{one, as("n", "node-reporter/c/n", 10, 20, storetest.Held("a")), as("a-ip-10", "prometheus/p", 0, 50, storetest.Held("b"))},
			"n 0-10 allocated b 600000, n 10-20 allocated a 600000, n 20-50 allocated b 1800000, n 50-60 unobserved 600000"},
		{"declared, but reported only under another name", []domain.Envelope{one, as("ip-10", "prometheus/p", 0, 60, storetest.Held(""))},
			"n 0-60 idle 3600000"},
		{"undeclared: under the reporter's name", []domain.Envelope{as("n", "node-reporter/c/n", 0, 30, storetest.Held("a")), as("a-ip-10", "prometheus/p", 0, 60, storetest.Held("b"))},
			"n 0-30 allocated? a 1800000, n 30-60 allocated? b 1800000"},
		{"GPUs that are not shared stay", []domain.Envelope{one, as("n", "node-reporter/c/n", 0, 60, storetest.Held("a")), as("ip-10", "prometheus/p", 0, 60, storetest.Held("b"), other)},
			"n 0-60 allocated a 3600000, ip-10 0-60 allocated? o 3600000"},
		{"instances", []domain.Envelope{one, as("n", "node-reporter/c/n", 0, 60, mig(1, "4g.40gb", "a"), mig(2, "3g.40gb", "")), as("ip-10", "prometheus/p", 0, 60, mig(3, "4g.40gb", "a"), mig(4, "3g.40gb", "b"))},
			"n 0-60 allocated a 1920000, n 0-60 idle 1680000"},
		{"replicas", []domain.Envelope{one, as("n", "node-reporter/c/n", 0, 60, replica(1, "a"), replica(2, "")), as("ip-10", "prometheus/p", 0, 60, replica(1, "b"), replica(2, "b"))},
			"n 0-60 allocated a 3600000"},
		{"a GPU that moved is in each node at its time", []domain.Envelope{one, as("n", "reporter/n", 0, 20, storetest.Held("a")), storetest.Hardware(20, &domain.NodeRetired{Node: "n"}),
			storetest.Node("c", "m", "H100 80GB", 1, storetest.Start+90*storetest.Minute), as("m", "reporter/m", 30, 60, storetest.Held("b"))},
			"n 0-20 allocated a 1200000, m 30-60 allocated? b 1800000"},
		{"declared by two: the later counts", []domain.Envelope{one, twice, as("n", "reporter/n", 0, 60, storetest.Held("a"))},
			"n 0-30 allocated a 1800000, o 30-60 allocated a 1800000"},
		{"declared by two, reported under the later name", []domain.Envelope{one, twice, as("o", "reporter/o", 0, 60, storetest.Held("a"))},
			"n 0-30 allocated a 1800000, o 30-60 allocated a 1800000"},
		{"declared by two at once", []domain.Envelope{one, at(twice, 0), as("o", "reporter/o", 0, 60, storetest.Held("a"))},
			"n 0-60 allocated a 3600000"},
		{"renamed, and the old name retired", []domain.Envelope{one, storetest.Hardware(30, &domain.NodeRetired{Node: "n"}), twice, as("o", "reporter/o", 0, 60, storetest.Held("a"))},
			"n 0-30 allocated a 1800000, o 30-60 allocated a 1800000"},
		{"renamed, and registered late", []domain.Envelope{one, twice, as("n", "reporter/n", 0, 20, storetest.Held("a")), as("o", "reporter/o", 20, 50, storetest.Held("b"))},
			"n 0-20 allocated a 1200000, n 20-30 allocated b 600000, o 30-50 allocated b 1200000, o 50-60 unobserved 600000"},
		{"renamed, with an undeclared time", []domain.Envelope{one, storetest.Hardware(20, &domain.NodeRetired{Node: "n"}), at(twice, 40), as("o", "reporter/o", 0, 60, storetest.Held("a"))},
			"n 0-20 allocated a 1200000, n 20-40 allocated? a 1200000, o 40-60 allocated a 1200000"},
		{"two declared names, reported under a third", []domain.Envelope{one, twice, as("z", "reporter/z", 10, 60, storetest.Held("a"))},
			"n 0-10 unobserved 600000, n 10-30 allocated a 1200000, o 30-60 allocated a 1800000"},
		{"renamed, with instances", []domain.Envelope{one, twice, as("o", "reporter/o", 0, 60, mig(1, "4g.40gb", "a"), mig(2, "3g.40gb", ""))},
			"n 0-30 allocated a 960000, n 0-30 idle 840000, o 30-60 allocated a 960000, o 30-60 idle 840000"},
		{"a fault and a correction of it", []domain.Envelope{one, as("n", "node-reporter/c/n", 0, 60, storetest.Held("")), as("ip-10", "prometheus/p", 0, 60, storetest.Held("b")),
			storetest.Hardware(30, &domain.GPUFaultObserved{Node: "n", GPU: storetest.DeviceOf(0), Kind: domain.FaultXID, Code: 79, Fatal: true}),
			storetest.Hardware(60, &domain.UsageCorrected{Correction: "x", Node: "n", GPU: storetest.DeviceOf(0), Interval: storetest.Span(0, 10), Workspace: "c", Reason: "r"})},
			"n 0-10 allocated c 600000, n 10-30 idle 1200000, n 30-60 failed 1800000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := storetest.NewLog()
			l.Append(c.log...)
			storetest.FoldView(t, l, func(v projections.View) {
				var got []string
				err := usage.EachDeviceHour(v, storetest.Start, storetest.Start+domain.Hour, func(d *usage.DeviceHour) error {
					for _, s := range d.Segments {
						state := s.State.String()
						if !d.Declared {
							state += "?"
						}
						if s.Holder != nil {
							state += " " + s.Holder.Workspace
						}
						got = append(got, fmt.Sprintf("%s %d-%d %s %d", d.Node, s.From/60_000, s.To/60_000, state, s.GPUMs))
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

// Other views of usage count such a GPU once too, and the inventory says which name to fix.
func TestTwoNamesElsewhere(t *testing.T) {
	l := storetest.NewLog()
	l.Append(storetest.Cluster("c", "acme", "p", "eu", storetest.Start), storetest.Node("c", "n", "H100 80GB", 2, storetest.Start), domain.Envelope{Workspace: "acme", Time: storetest.Start, Event: &domain.WorkspaceRegistered{Name: "Acme"}})
	both := []storetest.Seen{{ID: storetest.DeviceOf(0), Workspace: "acme", Deployment: "chat", Unit: "u", Activity: 500}, {ID: storetest.DeviceOf(1), Activity: 0}}
	for hour := range 3 {
		i := storetest.Span(60*hour, 60*hour+60)
		for node, source := range map[string]string{"n": "node-reporter/c/n", "10.0.0.7": "prometheus/p"} {
			ev := storetest.Sample(node, i, both...)
			ev.MemoryUsedMiB = []uint32{1001, 0}
			l.Append(domain.Envelope{Source: source, Cluster: "c", Time: i.To, Event: ev})
		}
	}
	l.Append(domain.Envelope{Cluster: "c", Time: storetest.Start + 3*domain.Hour, Event: &domain.MetricsObserved{
		Base: storetest.Start + domain.Hour, StepMs: 30_000, Strings: []string{"vllm", "chat", "llama", "u"}, Engine: []uint32{1}, Deployment: []uint32{2}, Model: []uint32{3}, Tier: []uint32{0}, Unit: []uint32{4}, Node: []uint32{0},
		Server: []uint32{0}, Metric: []uint32{uint32(domain.MetricWaiting)}, Bound: []uint64{0}, Series: []uint64{1}, Samples: []uint32{1}, Offset: []uint32{0}, Value: []uint64{1},
	}})
	to := storetest.Start + 3*domain.Hour
	storetest.FoldView(t, l, func(v projections.View) {
		u, err := usage.NewReport(v, storetest.Start, to, usage.Filter{})
		if err != nil || u.Total.Service != 6*3_600_000 || u.Total.Allocated != 3*3_600_000 || u.Total.Undeclared != 0 {
			t.Errorf("usage is %+v, %v", u.Total, err)
		}
		rel, err := failures.ByModel(v, storetest.Start, to, reliability.Counts{})
		if err != nil || len(rel) != 1 || rel[0].GPUs != 2 || rel[0].GPUMs != 6*3_600_000 {
			t.Errorf("reliability is %+v, %v", rel, err)
		}
		s, err := serving.NewReport(v, storetest.Start, to, serving.Filter{})
		if err != nil || len(s.Groups) != 1 || s.Groups[0].Memory == nil || s.Groups[0].Memory.GPUMs != 3*3_600_000 {
			t.Errorf("serving is %+v, %v", s, err)
		}
	})
	for _, at := range []domain.Instant{to, storetest.Start + 90*storetest.Minute} {
		inv := take(t, l, inventory.Filter{At: at})
		want := fmt.Sprintf("gpu_under_two_names c/10.0.0.7: 2 GPUs of node n are reported under this name too, last before %s, the first %s: each counts once, under n; relabel the exporter's hostname",
			(at-1).HourStart()+domain.Hour, min(storetest.DeviceOf(0).String(), storetest.DeviceOf(1).String()))
		var got []string
		for _, e := range inv.Exceptions {
			got = append(got, e.Kind+" "+e.Subject+": "+e.Detail)
		}
		if len(got) != 1 || got[0] != want {
			t.Errorf("at %s got %q, want %q", at, got, want)
		}
		if len(inv.Counts) != 1 || inv.Counts[0].GPUs != 2 || inv.Clusters[0].Nodes[0].LastTelemetry != at {
			t.Errorf("at %s the inventory is %+v", at, inv)
		}
	}
	// Long after the name was fixed it is no longer reported.
	if inv := take(t, l, inventory.Filter{At: storetest.Start + 60*domain.Day}); slices.ContainsFunc(inv.Exceptions, func(e inventory.Exception) bool { return e.Kind == inventory.GPUUnderTwoNames }) {
		t.Errorf("exceptions %v", inv.Exceptions)
	}
}

// Whatever the names of a node, each of its GPUs is in service exactly as long as under one name,
// and never longer than the hour.
func TestNamesDoNotCount(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := storetest.Start + 30*domain.Day - 2*domain.Hour // over the end of a month
		var several, single []domain.Envelope
		// Some of the names are declared, some of them repeatedly, and some end.
		const steps = 72 // of five minutes
		var declared [steps]bool
		moment := func(step int) domain.Instant { return start + domain.Instant(step)*5*storetest.Minute }
		change := func(to *[]domain.Envelope, node string, step int, begin bool) {
			env := storetest.Node("c", node, "H100 80GB", 2, moment(step))
			if begin {
				for i := range 2 {
					env.Event.(*domain.NodeRegistered).GPUs[i].ID = storetest.DeviceOf(i)
				}
			} else {
				env.Event = &domain.NodeRetired{Node: node}
			}
			*to = append(*to, env)
		}
		for _, node := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"a", "n", "z"}), rapid.ID).Draw(t, "declared") {
			for at := rapid.IntRange(0, 20).Draw(t, "from"); at < steps; at += rapid.IntRange(1, 30).Draw(t, "out") {
				end := min(steps, at+rapid.IntRange(1, 60).Draw(t, "for"))
				change(&several, node, at, true)
				if end < steps {
					change(&several, node, end, false)
				}
				for ; at < end; at++ {
					declared[at] = true
				}
			}
		}
		for i := range declared {
			if before := i > 0 && declared[i-1]; before != declared[i] {
				change(&single, "n", i, declared[i])
			}
		}
		for range rapid.IntRange(1, 8).Draw(t, "samples") {
			from := start + domain.Instant(rapid.IntRange(0, 50).Draw(t, "begin"))*5*storetest.Minute
			i := domain.Interval{From: from, To: from + domain.Instant(rapid.IntRange(1, 20).Draw(t, "length"))*5*storetest.Minute}
			source := rapid.SampledFrom([]string{"node-reporter/c/n", "import/x", "import/y"}).Draw(t, "source")
			var seen []storetest.Seen
			for g := range rapid.IntRange(1, 3).Draw(t, "gpus") {
				seen = append(seen, storetest.Seen{ID: storetest.DeviceOf(g), Workspace: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "by"), Activity: -1})
			}
			add := func(to *[]domain.Envelope, node string) {
				*to = append(*to, domain.Envelope{Source: source, Cluster: "c", Time: i.To, Event: storetest.Sample(node, i, seen...)})
			}
			add(&several, rapid.SampledFrom([]string{"a", "n", "z"}).Draw(t, "node"))
			add(&single, "n")
		}
		service := func(log []domain.Envelope) map[string]int64 {
			l := storetest.NewLog()
			l.Append(log...)
			out := map[string]int64{}
			m, err := l.Fold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := m.View(t.Context(), func(v projections.View) error {
				if _, err := inventory.New(v, inventory.Filter{At: start + 6*domain.Hour}); err != nil {
					return err
				}
				if _, err := costs.NewReport(v, costs.Query{Month: storetest.MayBill}); err != nil {
					return err
				}
				return usage.EachDeviceHour(v, start, start+6*domain.Hour, func(d *usage.DeviceHour) error {
					for _, s := range d.Segments {
						key := fmt.Sprintf("%s at %s", d.GPU, d.Hour)
						out[key] += s.GPUMs
						if s.State != inventory.Unobserved {
							out[key+" observed"] += s.GPUMs
						}
					}
					return nil
				})
			}); err != nil {
				t.Fatal(err)
			}
			return out
		}
		got, want := service(several), service(single)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("got  %v\nwant %v", got, want)
		}
	})
}

// Two machines with one image report as one node. If the state of the reporter was copied too, the
// second machine's records that claim sequences of the first are quarantined and reported as an
// exception, and the time of the first counts once. With a state of its own, the time of the second
// counts as well.
func TestClonedImage(t *testing.T) {
	for _, copied := range []bool{true, false} {
		l := storetest.NewLog()
		l.Append(storetest.Cluster("c", "a", "p", "eu", storetest.Start), storetest.Node("c", "n", "H100 80GB", 1, storetest.Start))
		for hour := range 3 {
			i := storetest.Span(60*hour, 60*hour+60)
			for machine := range 2 {
				env := domain.Envelope{Source: "node-reporter/c/n", Incarnation: 1, Sequence: uint64(hour + 1), Cluster: "c", Time: i.To,
					Event: storetest.Sample("n", i, storetest.Seen{ID: storetest.DeviceOf(machine), Workspace: "a", Activity: -1})}
				if !copied {
					env.Incarnation += uint64(machine)
				}
				l.Append(env)
			}
		}
		want := map[domain.GPUID]int64{storetest.DeviceOf(0): 3 * 3_600_000}
		if !copied {
			want[storetest.DeviceOf(1)] = 3 * 3_600_000
		}
		m, err := l.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.View(t.Context(), func(v projections.View) error {
			got := map[domain.GPUID]int64{}
			if err := usage.EachDeviceHour(v, storetest.Start, storetest.Start+3*domain.Hour, func(d *usage.DeviceHour) error {
				for _, s := range d.Segments {
					if s.State == inventory.Allocated {
						got[d.GPU] += s.GPUMs
					}
				}
				return nil
			}); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("copied %v: got %v, want %v, %v", copied, got, want, err)
			}
			q, err := registry.Quarantine(v)
			if err != nil || copied != (len(q.Entries) == 3) {
				t.Errorf("copied %v: quarantine is %+v, %v", copied, q, err)
			}
			kind := inventory.GPUUndeclared
			if copied {
				kind = inventory.StreamConflict
			}
			inv, err := inventory.New(v, inventory.Filter{At: storetest.Start + 3*domain.Hour})
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(inv.Exceptions, func(e inventory.Exception) bool { return e.Kind == kind }) {
				t.Errorf("copied %v: exceptions %v, want one of %s", copied, inv.Exceptions, kind)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
