package projections_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"quartermaster/domain"
	"quartermaster/domain/reliability"
	"quartermaster/projections"
	"quartermaster/projections/storetest"
)

func fault(minutes, g int, code uint32, fatal bool) domain.Envelope {
	ev := &domain.GPUFaultObserved{Node: "n", Kind: domain.FaultXID, Code: code, Class: "hardware", Fatal: fatal}
	if g >= 0 {
		ev.GPU = gpu(g)
	}
	return hardware(minutes, ev)
}

func cordon(minutes int, repair bool) domain.Envelope {
	return hardware(minutes, &domain.NodeCordoned{Node: "n", Repair: repair})
}

func returned(minutes int) domain.Envelope {
	return hardware(minutes, &domain.NodeReturned{Node: "n"})
}

// mended says that a GPU works again.
func mended(minutes, g int) domain.Envelope {
	return hardware(minutes, &domain.NodeReturned{Node: "n", GPU: gpu(g), Faults: true})
}

func TestReliability(t *testing.T) {
	two := storetest.Node("c", "n", "H100 80GB", 2, t0)
	both := func(from, to int) domain.Envelope {
		return sampled("reporter/n", from, to, storetest.Seen{ID: gpu(0), Workspace: "a", Activity: 1}, storetest.Seen{ID: gpu(1), Activity: -1})
	}
	mixed := storetest.Node("c", "n", "H100 80GB", 3, t0)
	mixed.Event.(*domain.NodeRegistered).GPUs[0].Model = "A100 80GB"
	for _, c := range []struct {
		name   string
		log    []domain.Envelope
		counts func(*reliability.Counts)
		want   string // "model: minutes up, interruptions, repairs of minutes; causes" over hours 1 to 3
	}{
		{name: "declared and silent", log: []domain.Envelope{two}},
		{name: "observed, and cut to the time asked for", log: []domain.Envelope{two, both(0, 60), both(60, 90), both(180, 240)},
			want: "H100 80GB: 60 up, 0, 0 of 0"},
		// 2 GPUs from 60 to 90 and from 120 to 180; the repair took from 90 to 120.
		{name: "a fault, its cordon and others are one interruption", log: []domain.Envelope{two, both(60, 120), both(120, 180),
			fault(90, 0, 79, true), cordon(91, true), fault(95, 1, 79, true), fault(96, -1, 48, true), returned(120)},
			want: "H100 80GB: 180 up, 1, 1 of 30; xid 79 hardware 1"},
		{name: "each fault ends by itself", log: []domain.Envelope{two, both(60, 120), both(120, 180),
			fault(90, 0, 79, true), fault(95, 1, 79, true), mended(100, 1), mended(120, 0), fault(150, 0, 79, true), mended(155, 1), mended(160, 0)},
			want: "H100 80GB: 160 up, 2, 2 of 40; xid 79 hardware 2"},
		{name: "again after it was returned", log: []domain.Envelope{two, both(60, 120), both(120, 180),
			fault(70, 0, 79, true), returned(80), cordon(100, true), returned(130), fault(150, 1, 79, true), returned(170)},
			want: "H100 80GB: 120 up, 3, 3 of 60; xid 79 hardware 2, cordon 1"},
		{name: "a repair that lasts", log: []domain.Envelope{two, both(60, 180), fault(150, 0, 79, true), returned(180)},
			want: "H100 80GB: 180 up, 1, 0 of 30; xid 79 hardware 1"},
		{name: "a repair that ends with the node", log: []domain.Envelope{two, both(60, 180), fault(150, 0, 79, true),
			hardware(170, &domain.NodeRetired{Node: "n"}), returned(175)},
			want: ": 20 up, 0, 0 of 0\nH100 80GB: 180 up, 1, 0 of 20; xid 79 hardware 1"},
		{name: "back after it was retired, it can fail again", log: []domain.Envelope{two, both(60, 180), fault(100, 0, 79, true),
			hardware(110, &domain.NodeRetired{Node: "n"}), storetest.Node("c", "n", "H100 80GB", 2, t0+120*minute), fault(140, 0, 79, true), returned(150)},
			want: ": 20 up, 0, 0 of 0\nH100 80GB: 180 up, 2, 1 of 20; xid 79 hardware 2"},
		{name: "described anew is not retired", log: []domain.Envelope{two, both(60, 180), fault(100, 0, 79, true),
			storetest.Node("c", "n", "H200", 2, t0+120*minute), returned(150)},
			want: "H100 80GB: 80 up, 1, 1 of 50; xid 79 hardware 1\nH200 141GB: 60 up, 0, 0 of 0"},
		// What began before counts for nothing, but the node is down till it returns.
		{name: "begun before", log: []domain.Envelope{two, both(0, 60), both(60, 180), fault(30, 0, 79, true), fault(70, 0, 79, true), returned(90)},
			want: "H100 80GB: 180 up, 0, 0 of 0"},
		{name: "what takes nothing away does not count", log: []domain.Envelope{two, both(60, 180), fault(70, 0, 31, false), cordon(80, false), returned(90)},
			want: "H100 80GB: 240 up, 0, 0 of 0"},
		{name: "unless it is said to, and an hour long once", log: []domain.Envelope{two, both(60, 180),
			fault(60, 0, 31, false), fault(90, 0, 31, false), fault(120, 1, 31, false), fault(121, 1, 31, false), fault(182, 1, 31, false)},
			counts: func(c *reliability.Counts) { c.XIDs = []uint32{31} },
			want:   "H100 80GB: 240 up, 2, 0 of 0; xid 31 hardware 2"},
		{name: "a cordon that a fault led to", log: []domain.Envelope{two, both(60, 180), fault(70, 0, 31, false), cordon(75, true), returned(95)},
			counts: func(c *reliability.Counts) { c.Classes = []string{"hardware"} },
			want:   "H100 80GB: 200 up, 1, 1 of 20; xid 31 hardware 1"},
		{name: "cordons alone", log: []domain.Envelope{two, both(60, 180), fault(70, 0, 79, true), cordon(75, true), returned(95)},
			counts: func(c *reliability.Counts) { c.Fatal = false },
			want:   "H100 80GB: 200 up, 1, 1 of 20; cordon 1"},
		{name: "faults alone", log: []domain.Envelope{two, both(60, 180), cordon(75, true), returned(95)},
			counts: func(c *reliability.Counts) { c.Repair = false },
			want:   "H100 80GB: 240 up, 0, 0 of 0"},
		{name: "the model of the GPU, else of most", log: []domain.Envelope{mixed,
			sampled("reporter/n", 60, 180, storetest.Seen{ID: gpu(0), Activity: -1}, storetest.Seen{ID: gpu(2), Activity: -1}),
			fault(60, 0, 79, true), returned(70), fault(80, -1, 79, true), returned(90)},
			want: "A100 80GB: 100 up, 1, 1 of 10; xid 79 hardware 1\nH100 80GB: 100 up, 1, 1 of 10; xid 79 hardware 1"},
		{name: "two observers, an instance and replicas are one GPU", log: []domain.Envelope{two,
			sampled("reporter/n", 60, 90, storetest.Seen{ID: gpu(100), Parent: gpu(0), Profile: "1g.10gb", Activity: -1}, storetest.Seen{ID: gpu(101), Parent: gpu(0), Profile: "2g.20gb", Activity: -1}),
			sampled("prometheus/p", 80, 120, storetest.Seen{ID: gpu(0), Activity: -1}),
			sampled("import/x", 60, 100, storetest.Seen{ID: gpu(1), Replica: 1, Activity: -1}, storetest.Seen{ID: gpu(1), Replica: 2, Activity: -1})},
			want: "H100 80GB: 100 up, 0, 0 of 0"},
		{name: "nobody declared it", log: []domain.Envelope{both(60, 120), fault(90, 0, 79, true), returned(100)},
			want: ": 100 up, 1, 1 of 10; xid 79 hardware 1"},
	} {
		l := storetest.NewLog()
		l.Append(c.log...)
		counts := reliability.DefaultCounts()
		if c.counts != nil {
			c.counts(&counts)
		}
		view(t, l, func(v projections.View) {
			models, err := projections.Reliability(v, t0+60*minute, t0+180*minute, counts)
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
	view(t, storetest.NewLog(), func(v projections.View) {
		for _, to := range []domain.Instant{0, t0} {
			if _, err := projections.Reliability(v, t0, to, reliability.DefaultCounts()); err == nil {
				t.Errorf("from %s to %s was accepted", t0, to)
			}
		}
	})
}

// Where nothing breaks, GPUs are up for just the time in which the usage view does
// not call them unobserved, whoever reported them; and cutting the time in two
// changes nothing.
func TestReliabilityIsUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := storetest.DrawUsage(t)
		l = l.Filter(func(r *domain.Record) bool {
			switch env := l.Event(r); env.Event.(type) {
			case *domain.GPUFaultObserved, *domain.NodeCordoned, *domain.NodeDrained, *domain.MaintenanceScheduled, *domain.UsageCorrected:
				return false
			}
			return true
		})
		m := fold(t, l)
		err := m.View(t.Context(), func(v projections.View) error {
			from := domain.Instant(rapid.Int64Range(1, 72).Draw(t, "from"))*domain.Hour/2 + t0 - domain.Day
			to := from + domain.Instant(rapid.Int64Range(2, 72).Draw(t, "length"))*domain.Hour/2
			want := map[string]int64{}
			err := projections.EachDeviceHour(v, from, to, func(d *projections.DeviceHour) error {
				for _, s := range d.Segments {
					if s.State != projections.Unobserved {
						want[d.Model] += s.GPUMs
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			up := func(from, to domain.Instant, into map[string]int64) {
				models, err := projections.Reliability(v, from, to, reliability.DefaultCounts())
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

// counting counts rows that are read.
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

// A day costs what a day holds, however long the fleet ran before and after.
func TestReliabilityReadsWhatIsAsked(t *testing.T) {
	l := storetest.Fleet(3, 24*20, t0)
	for d := range 20 {
		l.Append(domain.Envelope{Cluster: "c1", Time: t0 + domain.Instant(d)*domain.Day, Event: &domain.GPUFaultObserved{Node: "n00001", Kind: domain.FaultXID, Code: 79, Fatal: true}},
			domain.Envelope{Cluster: "c1", Time: t0 + domain.Instant(d)*domain.Day + domain.Hour, Event: &domain.NodeReturned{Node: "n00001"}})
	}
	view(t, l, func(v projections.View) {
		c := counting{v, map[projections.Table]int{}}
		from := t0 + 10*domain.Day
		models, err := projections.Reliability(c, from, from+domain.Day, reliability.DefaultCounts())
		if err != nil {
			t.Fatal(err)
		}
		want := []projections.ModelReliability{{
			Model: "H100 80GB", GPUs: 24,
			Evidence: reliability.Evidence{GPUMs: (24*24 - 8) * 3_600_000, Interruptions: 1, Repairs: 1, RepairMs: 3_600_000},
			Causes:   []projections.FaultCause{{Kind: "xid", Code: 79, Count: 1}},
		}}
		if !reflect.DeepEqual(models, want) {
			t.Errorf("%+v\nwant\n%+v", models, want)
		}
		if c.rows[projections.TableUsage] != 3*24 || c.rows[projections.TableNodes] != 3 || c.rows[projections.TableFaults] != 11 {
			t.Errorf("read %v", c.rows)
		}
	})
}
