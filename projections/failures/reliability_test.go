package failures_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/projections/failures"
	"quartermaster/projections/inventory"
	"quartermaster/projections/storetest"
	"quartermaster/projections/usage"
)

func cordon(minutes int, repair bool) domain.Envelope {
	return storetest.Hardware(minutes, &domain.NodeCordoned{Node: "n", Repair: repair})
}

func returned(minutes int) domain.Envelope {
	return storetest.Hardware(minutes, &domain.NodeReturned{Node: "n"})
}

func TestReliability(t *testing.T) {
	two := storetest.Node("c", "n", "H100 80GB", 2, storetest.Start)
	both := func(from, to int) domain.Envelope {
		return storetest.Sampled("reporter/n", from, to, storetest.Seen{ID: storetest.DeviceOf(0), Workspace: "a", Activity: 1}, storetest.Seen{ID: storetest.DeviceOf(1), Activity: -1})
	}
	down := func(from, to int, nodes ...string) domain.Envelope {
		return storetest.Hardware(to, &domain.OutageDeclared{Outage: fmt.Sprint(from), Nodes: nodes, Window: storetest.Span(from, to), Reason: "power"})
	}
	lab := storetest.Cluster("c", "home", "p", "eu", storetest.Start)
	off := down(120, 130, "n")
	off.Event.(*domain.OutageDeclared).Cancelled = true
	mixed := storetest.Node("c", "n", "H100 80GB", 3, storetest.Start)
	mixed.Event.(*domain.NodeRegistered).GPUs[0].Model = "A100 80GB"
	for _, c := range []struct {
		name   string
		log    []domain.Envelope
		counts func(*reliability.Counts)
		want   string // "model: minutes up, interruptions, repairs of minutes; causes" over hours 1 to 3
	}{
		{name: "declared and silent", log: []domain.Envelope{two}},
		{name: "observed, limited to the requested time", log: []domain.Envelope{two, both(0, 60), both(60, 90), both(180, 240)},
			want: "H100 80GB: 60 up, 0, 0 of 0"},
		// 2 GPUs from 60 to 90 and from 120 to 180; the repair took from 90 to 120.
		{name: "a fault, its cordon and others are one interruption", log: []domain.Envelope{two, both(60, 120), both(120, 180),
			storetest.Fault(90, 0, 79, true), cordon(91, true), storetest.Fault(95, 1, 79, true), storetest.Fault(96, -1, 48, true), returned(120)},
			want: "H100 80GB: 180 up, 1, 1 of 30; xid 79 hardware 1"},
		{name: "each fault ends separately", log: []domain.Envelope{two, both(60, 120), both(120, 180),
			storetest.Fault(90, 0, 79, true), storetest.Fault(95, 1, 79, true), storetest.Mended(100, 1), storetest.Mended(120, 0), storetest.Fault(150, 0, 79, true), storetest.Mended(155, 1), storetest.Mended(160, 0)},
			want: "H100 80GB: 160 up, 2, 2 of 40; xid 79 hardware 2"},
		{name: "again after it was returned", log: []domain.Envelope{two, both(60, 120), both(120, 180),
			storetest.Fault(70, 0, 79, true), returned(80), cordon(100, true), returned(130), storetest.Fault(150, 1, 79, true), returned(170)},
			want: "H100 80GB: 120 up, 3, 3 of 60; xid 79 hardware 2, cordon 1"},
		{name: "a repair that continues", log: []domain.Envelope{two, both(60, 180), storetest.Fault(150, 0, 79, true), returned(180)},
			want: "H100 80GB: 180 up, 1, 0 of 30; xid 79 hardware 1"},
		{name: "a repair that ends with the node", log: []domain.Envelope{two, both(60, 180), storetest.Fault(150, 0, 79, true),
			storetest.Hardware(170, &domain.NodeRetired{Node: "n"}), returned(175)},
			want: ": 20 up, 0, 0 of 0\nH100 80GB: 180 up, 1, 0 of 20; xid 79 hardware 1"},
		{name: "back after it was retired, it can fail again", log: []domain.Envelope{two, both(60, 180), storetest.Fault(100, 0, 79, true),
			storetest.Hardware(110, &domain.NodeRetired{Node: "n"}), storetest.Node("c", "n", "H100 80GB", 2, storetest.Start+120*storetest.Minute), storetest.Fault(140, 0, 79, true), returned(150)},
			want: ": 20 up, 0, 0 of 0\nH100 80GB: 180 up, 2, 1 of 20; xid 79 hardware 2"},
		{name: "a new description is not a retirement", log: []domain.Envelope{two, both(60, 180), storetest.Fault(100, 0, 79, true),
			storetest.Node("c", "n", "H200", 2, storetest.Start+120*storetest.Minute), returned(150)},
			want: "H100 80GB: 80 up, 1, 1 of 50; xid 79 hardware 1\nH200 141GB: 60 up, 0, 0 of 0"},
		// An interruption that began before does not count, but the node is down until its return.
		{name: "begun before", log: []domain.Envelope{two, both(0, 60), both(60, 180), storetest.Fault(30, 0, 79, true), storetest.Fault(70, 0, 79, true), returned(90)},
			want: "H100 80GB: 180 up, 0, 0 of 0"},
		{name: "faults that take nothing down do not count", log: []domain.Envelope{two, both(60, 180), storetest.Fault(70, 0, 31, false), cordon(80, false), returned(90)},
			want: "H100 80GB: 240 up, 0, 0 of 0"},
		{name: "unless configured, and then once per hour", log: []domain.Envelope{two, both(60, 180),
			storetest.Fault(60, 0, 31, false), storetest.Fault(90, 0, 31, false), storetest.Fault(120, 1, 31, false), storetest.Fault(121, 1, 31, false), storetest.Fault(182, 1, 31, false)},
			counts: func(c *reliability.Counts) { c.XIDs = []uint32{31} },
			want:   "H100 80GB: 240 up, 2, 0 of 0; xid 31 hardware 2"},
		{name: "a cordon that a fault led to", log: []domain.Envelope{two, both(60, 180), storetest.Fault(70, 0, 31, false), cordon(75, true), returned(95)},
			counts: func(c *reliability.Counts) { c.Classes = []string{"hardware"} },
			want:   "H100 80GB: 200 up, 1, 1 of 20; xid 31 hardware 1"},
		{name: "only cordons count", log: []domain.Envelope{two, both(60, 180), storetest.Fault(70, 0, 79, true), cordon(75, true), returned(95)},
			counts: func(c *reliability.Counts) { c.Fatal = false },
			want:   "H100 80GB: 200 up, 1, 1 of 20; cordon 1"},
		{name: "only faults count", log: []domain.Envelope{two, both(60, 180), cordon(75, true), returned(95)},
			counts: func(c *reliability.Counts) { c.Repair = false },
			want:   "H100 80GB: 240 up, 0, 0 of 0"},
		{name: "the model of the GPU, else the most frequent", log: []domain.Envelope{mixed,
			storetest.Sampled("reporter/n", 60, 180, storetest.Seen{ID: storetest.DeviceOf(0), Activity: -1}, storetest.Seen{ID: storetest.DeviceOf(2), Activity: -1}),
			storetest.Fault(60, 0, 79, true), returned(70), storetest.Fault(80, -1, 79, true), returned(90)},
			want: "A100 80GB: 100 up, 1, 1 of 10; xid 79 hardware 1\nH100 80GB: 100 up, 1, 1 of 10; xid 79 hardware 1"},
		{name: "two observers, an instance and replicas are one GPU", log: []domain.Envelope{two,
			storetest.Sampled("reporter/n", 60, 90, storetest.Seen{ID: storetest.DeviceOf(100), Parent: storetest.DeviceOf(0), Profile: "1g.10gb", Activity: -1}, storetest.Seen{ID: storetest.DeviceOf(101), Parent: storetest.DeviceOf(0), Profile: "2g.20gb", Activity: -1}),
			storetest.Sampled("prometheus/p", 80, 120, storetest.Seen{ID: storetest.DeviceOf(0), Activity: -1}),
			storetest.Sampled("import/x", 60, 100, storetest.Seen{ID: storetest.DeviceOf(1), Replica: 1, Activity: -1}, storetest.Seen{ID: storetest.DeviceOf(1), Replica: 2, Activity: -1})},
			want: "H100 80GB: 100 up, 0, 0 of 0"},
		{name: "a declared outage, and faults within it", log: []domain.Envelope{lab, two, both(60, 120), both(120, 180), down(80, 110, "n"), storetest.Fault(90, 0, 79, true), returned(100)},
			want: "H100 80GB: 180 up, 1, 1 of 30; outage 1"},
		{name: "one of the cluster, one cancelled, one of another node", log: []domain.Envelope{lab, two, both(60, 180), down(80, 110), down(120, 130, "o"), off},
			want: "H100 80GB: 180 up, 1, 1 of 30; outage 1"},
		{name: "undeclared node", log: []domain.Envelope{both(60, 120), storetest.Fault(90, 0, 79, true), returned(100)},
			want: ": 100 up, 1, 1 of 10; xid 79 hardware 1"},
	} {
		l := storetest.NewLog()
		l.Append(c.log...)
		counts := reliability.DefaultCounts()
		if c.counts != nil {
			c.counts(&counts)
		}
		storetest.FoldView(t, l, func(v projections.View) {
			models, err := failures.ByModel(v, storetest.Start+60*storetest.Minute, storetest.Start+180*storetest.Minute, counts)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, m := range models {
				line := fmt.Sprintf("%s: %d up, %d, %d of %d", m.Model, m.GPUMs/60_000, m.Interruptions, m.Repairs, m.RepairMs/60_000)
				for i, c := range m.Causes {
					line += []string{"; ", ", "}[min(i, 1)] + c.Kind
					if c.Code > 0 {
						line += fmt.Sprint(" ", c.Code, " ", c.Class)
					}
					line += fmt.Sprint(" ", c.Count)
				}
				lines = append(lines, line)
			}
			if got := strings.Join(lines, "\n"); got != c.want {
				t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
			}
		})
	}
	storetest.FoldView(t, storetest.NewLog(), func(v projections.View) {
		for _, to := range []domain.Instant{0, storetest.Start} {
			if _, err := failures.ByModel(v, storetest.Start, to, reliability.DefaultCounts()); err == nil {
				t.Errorf("from %s to %s was accepted", storetest.Start, to)
			}
		}
	})
}

// If nothing breaks, GPUs are up for exactly the time in which the usage view does not call them
// unobserved, for every observer. Splitting the time in two changes nothing.
func TestReliabilityIsUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := storetest.DrawUsage(t)
		l = l.Filter(func(r *domain.Record) bool {
			switch env := l.Event(r); env.Event.(type) {
			case *domain.GPUFaultObserved, *domain.NodeCordoned, *domain.NodeDrained, *domain.MaintenanceScheduled, *domain.OutageDeclared, *domain.UsageCorrected:
				return false
			}
			return true
		})
		m := storetest.Fold(t, l)
		err := m.View(t.Context(), func(v projections.View) error {
			from := domain.Instant(rapid.Int64Range(1, 72).Draw(t, "from"))*domain.Hour/2 + storetest.Start - domain.Day
			to := from + domain.Instant(rapid.Int64Range(2, 72).Draw(t, "length"))*domain.Hour/2
			want := map[string]int64{}
			err := usage.EachDeviceHour(v, from, to, func(d *usage.DeviceHour) error {
				for _, s := range d.Segments {
					if s.State != inventory.Unobserved {
						want[d.Model] += s.GPUMs
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			up := func(from, to domain.Instant, into map[string]int64) {
				models, err := failures.ByModel(v, from, to, reliability.DefaultCounts())
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range models {
					if m.Interruptions > 0 || m.Repairs > 0 {
						t.Fatalf("%+v", m)
					}
					into[m.Model] += m.GPUMs
				}
			}
			whole, parts := map[string]int64{}, map[string]int64{}
			up(from, to, whole)
			middle := from + domain.Instant(rapid.Int64Range(1, int64(to-from)/1_000_000-1).Draw(t, "middle"))*1_000_000
			up(from, middle, parts)
			up(middle, to, parts)
			for _, got := range []map[string]int64{whole, parts} {
				for model, ms := range want {
					if ms == 0 {
						delete(want, model)
					}
				}
				if !reflect.DeepEqual(got, want) && len(got)+len(want) > 0 {
					t.Fatalf("up %v, in two parts %v, by usage %v", whole, parts, want)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// counting counts the rows read.
type counting struct {
	projections.View
	rows map[projections.Table]int
}

func (c counting) Scan(q projections.Query, yield func(projections.Key, projections.Row) error) error {
	return c.View.Scan(q, func(k projections.Key, r projections.Row) error {
		c.rows[q.Table]++
		return yield(k, r)
	})
}

// The cost of a day is that of the day's rows, however long the fleet ran before and after.
func TestReliabilityReadsWhatIsAsked(t *testing.T) {
	l := storetest.Fleet(3, 24*20, storetest.Start)
	for d := range 20 {
		l.Append(domain.Envelope{Cluster: "c1", Time: storetest.Start + domain.Instant(d)*domain.Day, Event: &domain.GPUFaultObserved{Node: "n00001", Kind: domain.FaultXID, Code: 79, Fatal: true}},
			domain.Envelope{Cluster: "c1", Time: storetest.Start + domain.Instant(d)*domain.Day + domain.Hour, Event: &domain.NodeReturned{Node: "n00001"}})
	}
	storetest.FoldView(t, l, func(v projections.View) {
		c := counting{View: v, rows: map[projections.Table]int{}}
		from := storetest.Start + 10*domain.Day
		models, err := failures.ByModel(c, from, from+domain.Day, reliability.DefaultCounts())
		if err != nil {
			t.Fatal(err)
		}
		want := []failures.Model{{
			Model: "H100 80GB", GPUs: 24,
			Evidence: reliability.Evidence{GPUMs: (24*24 - 8) * 3_600_000, Interruptions: 1, Repairs: 1, RepairMs: 3_600_000},
			Causes:   []failures.Cause{{Kind: "xid", Code: 79, Count: 1}},
		}}
		if !reflect.DeepEqual(models, want) {
			t.Errorf("%+v\nwant\n%+v", models, want)
		}
		if c.rows[projections.TableUsage] != 3*24 || c.rows[projections.TableNodes] != 3 || c.rows[projections.TableFaults] != 11 {
			t.Errorf("read %v", c.rows)
		}
	})
}
