package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"quartermaster/adapters/dcgm"
	"quartermaster/domain"
)

// The end of the faults that took a GPU out of service is reported once, when no other fault keeps
// it down, also over several lives of reporter and collector.
func TestFaultsEnd(t *testing.T) {
	cfg := &Config{Cluster: testCluster, Node: "n1", Interval: 10 * time.Second, Listen: "off"}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	var r *reporter
	open := func() {
		t.Helper()
		var err error
		if r, err = openReporter(cfg, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	open()
	defer func() { _ = r.spool.Close() }()
	second := 0
	frame := func(body dcgm.Body) {
		t.Helper()
		second++
		f := dcgm.Frame{At: noon + domain.Instant(second)*domain.Second, Boot: time.Duration(second) * time.Second, Body: body}
		if err := r.frame(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	devices := testGPUs()
	id := func(i int) domain.GPUID { return devices[i].UUID }
	event := func(e dcgm.Event) {
		t.Helper()
		e.Count, e.At = 1, noon+domain.Instant(second+1)*domain.Second-1
		frame(&dcgm.Events{Generation: 1, Events: []dcgm.Event{e}})
	}
	xid := func(i int, code uint32) dcgm.Event {
		return dcgm.Event{Kind: dcgm.KindXID, UUID: id(i), Code: code, Field: dcgm.FieldXID}
	}
	wants := func(i int, code uint32) dcgm.Event {
		return dcgm.Event{Kind: dcgm.KindRecovery, UUID: id(i), Code: code, Field: dcgm.FieldRecovery, Recovery: code + 1}
	}
	over := func(e dcgm.Event) dcgm.Event { e.Over = true; return e }
	hello := func(boot string, lost ...int) {
		list := slices.Clone(testGPUs())
		for _, i := range lost {
			list[i].Lost = true
		}
		frame(&dcgm.Hello{BootID: boot, Inventory: dcgm.Inventory{Generation: 1, Devices: list}})
	}
	told := func() string {
		t.Helper()
		var out []string
		q := r.queue(domain.TopicHardware)
		batch, err := q.Next(1000, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range batch.Entries {
			gpu := func(g domain.GPUID) string {
				if g == (domain.GPUID{}) {
					return "node"
				}
				return fmt.Sprint(slices.IndexFunc(devices, func(d dcgm.Device) bool { return d.UUID == g }))
			}
			switch ev := spooled(t, testCluster, e).(type) {
			case *domain.GPUFaultObserved:
				out = append(out, fmt.Sprintf("%s %s %d %v", gpu(ev.GPU), ev.Kind, ev.Code, ev.Fatal))
			case *domain.NodeReturned:
				if !ev.Faults || ev.Node != "n1" || ev.Reason == "" {
					t.Errorf("%+v", ev)
				}
				out = append(out, gpu(ev.GPU)+" back")
			}
		}
		if len(batch.Entries) > 0 {
			if err := q.Done(batch); err != nil {
				t.Fatal(err)
			}
		}
		return strings.Join(out, ", ")
	}
	want := func(what, want string) {
		t.Helper()
		if got := told(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", what, got, want)
		}
	}
	lost := func(i int) dcgm.Event { return dcgm.Event{Kind: dcgm.KindLost, UUID: id(i)} }

	hello("a")
	event(over(dcgm.Event{Kind: dcgm.KindRecovery, UUID: id(0), Field: dcgm.FieldRecovery, Found: true}))
	event(xid(0, 13))
	event(over(wants(0, 0)))
	want("what takes nothing out of service", "0 xid 13 false")

	event(xid(0, 79))
	event(lost(0))
	event(over(lost(0)))
	event(over(lost(0)))
	want("lost and found", "0 xid 79 true, 0 off_bus 0 true, 0 back")

	event(xid(1, 48))
	event(wants(1, 1))
	event(over(wants(1, 1)))
	want("the driver wants nothing more", "1 xid 48 true, 1 health 1 true, 1 back")

	event(lost(1))
	event(wants(1, 2))
	event(over(lost(1)))
	want("reached, and the driver wants a reboot", "1 off_bus 0 true, 1 health 2 true")
	// The reporter is killed: the file does not know what the spool has.
	if err := r.spool.Close(); err != nil {
		t.Fatal(err)
	}
	open()
	hello("b")
	want("booted while nobody looked", "1 back")

	event(xid(0, 95))
	event(wants(0, 1))
	reads := func(value float64) {
		frame(&dcgm.Readings{Generation: 1, Readings: []dcgm.Reading{ok(0, dcgm.FieldRecovery, value)}})
	}
	reads(0) // measured earlier
	hello("b")
	reads(1)
	want("the driver still wants a reset", "0 xid 95 true, 0 health 1 true")
	hello("b")
	reads(0)
	want("reset while nobody looked", "0 back")

	// A fault that the driver may not know outlasts the end of its recovery action.
	event(dcgm.Event{Kind: dcgm.KindRowRemap, UUID: id(0), Field: dcgm.FieldRemapFailed, Recovery: 1})
	event(dcgm.Event{Kind: dcgm.KindHealth, UUID: id(0), Code: 120, Failed: true, Recovery: 1})
	event(wants(0, 5))
	event(over(wants(0, 5)))
	want("a failed remap and check, and a driver that wants nothing", "0 row_remap 0 true, 0 health 120 true, 0 health 5 true")
	event(over(dcgm.Event{Kind: dcgm.KindHealth, UUID: id(0), Code: 120}))
	event(over(dcgm.Event{Kind: dcgm.KindRowRemap, UUID: id(0), Field: dcgm.FieldRemapFailed}))
	want("until both end", "0 back")

	// If only the driver's action makes a verdict to replace fatal, it lasts as long as the action.
	remapped := func(i int, wants uint32) dcgm.Event {
		return dcgm.Event{Kind: dcgm.KindRowRemap, UUID: id(i), Field: 394, Recovery: wants + 1}
	}
	event(remapped(2, 0))
	event(remapped(2, 1))
	event(wants(2, 1))
	want("rows are remapped, and the driver wants a reset", "2 row_remap 0 false, 2 row_remap 0 true, 2 health 1 true")
	event(over(wants(2, 1)))
	want("which was done", "2 back")
	event(remapped(2, 39))
	event(wants(2, 39))
	want("the driver wants what no table knows", "2 row_remap 0 true, 2 health 39 true")
	hello("b2")
	want("a boot is not known to be it", "")
	event(over(wants(2, 39)))
	want("until it wants nothing more", "2 back")

	event(dcgm.Event{Kind: dcgm.KindHealth, Code: 15, Failed: true})
	event(dcgm.Event{Kind: dcgm.KindHealth, Code: 15, Failed: true, Over: true})
	want("of the node", "node health 15 true, node back")

	event(xid(0, 62))
	event(lost(1))
	event(dcgm.Event{Kind: dcgm.KindHealth, UUID: id(1), Code: 52, Failed: true})
	hello("b2", 1)
	want("another run of the same boot", "0 xid 62 true, 1 off_bus 0 true, 1 health 52 true")
	hello("c", 1)
	want("what is lost is not mended by a boot", "0 back")
	hello("c")
	want("nor what asks for a replacement", "")
	event(over(dcgm.Event{Kind: dcgm.KindHealth, UUID: id(1), Code: 52}))
	want("until it ends", "1 back")
}

// Every later life knows the end of the last sample, although it was delivered, its segment is
// removed, and a life in between ended before it measured anything.
func TestSamplesEndIsRemembered(t *testing.T) {
	cfg := &Config{Cluster: testCluster, Node: "n1", Interval: 10 * time.Second, Listen: "off"}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	open := func() *reporter {
		r, err := openReporter(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := open()
	frames := func(second int) {
		body := dcgm.Body(&dcgm.Readings{Generation: 1, Readings: []dcgm.Reading{ok(0, fieldUtil, 50)}})
		if second == 0 {
			body = &dcgm.Hello{BootID: "a", Inventory: dcgm.Inventory{Generation: 1, Devices: testGPUs()}}
		}
		if err := r.frame(t.Context(), dcgm.Frame{At: noon + domain.Instant(second)*domain.Second, Boot: time.Duration(second) * time.Second, Body: body}); err != nil {
			t.Fatal(err)
		}
	}
	for second := range 12 {
		frames(second)
	}
	q := r.queue(domain.TopicTelemetry)
	batch, err := q.Next(10, 1<<20)
	if err != nil || len(batch.Entries) != 1 || q.Done(batch) != nil {
		t.Fatalf("%+v, %v", batch, err)
	}
	for life := range 3 {
		if err := r.spool.Close(); err != nil {
			t.Fatal(err)
		}
		if r = open(); r.memory.Measured != noon+10*domain.Second {
			t.Errorf("life %d takes the last sample to end at %s, it did at %s", life, r.memory.Measured, noon+10*domain.Second)
		}
	}
	if err := r.spool.Close(); err != nil {
		t.Fatal(err)
	}
}

// A GPU is replaced only by one that is new to the node. When slots are renumbered because a GPU is
// missing, one of the node's own GPUs gets another's address.
func TestPlace(t *testing.T) {
	gpu := func(n int, pci string) dcgm.Device {
		return dcgm.Device{GPU: uint32(n), UUID: domain.DeriveGPUID("test", "place", n), PCI: pci}
	}
	three := []dcgm.Device{gpu(1, "18"), gpu(2, "2A"), gpu(3, "3A")}
	for _, c := range []struct {
		name  string
		after []dcgm.Device
		want  string // replaced, missing, left in the node
	}{
		{"renumbered", []dcgm.Device{gpu(1, "18"), gpu(3, "2A")}, "[] [2] [1 2 3]"},
		{"swapped", []dcgm.Device{gpu(1, "2A"), gpu(2, "18"), gpu(3, "3A")}, "[] [] [1 2 3]"},
		{"replaced", []dcgm.Device{gpu(1, "18"), gpu(4, "2A"), gpu(3, "3A")}, "[2] [] [1 3 4]"},
		{"replaced and renumbered", []dcgm.Device{gpu(3, "18"), gpu(4, "2A")}, "[2] [1] [1 3 4]"},
		{"missing", []dcgm.Device{gpu(1, "18"), gpu(3, "3A")}, "[] [2] [1 2 3]"},
	} {
		m := &memory{}
		m.updateSlots(three)
		m.updateSlots(append(slices.Clone(c.after), dcgm.Device{GPU: 9})) // one has no known UUID
		replaced, missing, _ := m.updateSlots(c.after)
		names := func(slots []gpuSlot) []int {
			out := []int{}
			for _, s := range slots {
				for n := range 5 {
					if s.UUID == gpu(n, "").UUID {
						out = append(out, n)
					}
				}
			}
			slices.Sort(out)
			return out
		}
		if got := fmt.Sprint(names(replaced), names(missing), names(m.Slots)); got != c.want {
			t.Errorf("%s: replaced, missing, left %s, want %s", c.name, got, c.want)
		}
	}
}

// A missing GPU is a fault until it is seen again, also after a restart of everything. If another
// GPU is in its slot, its faults end.
func TestMissingAfterRestart(t *testing.T) {
	cfg := &Config{Cluster: testCluster, Node: "n1", Interval: 10 * time.Second, Listen: "off"}
	cfg.Spool = SpoolConfig{Dir: t.TempDir(), QuotaMiB: 1}
	cfg.Register.Enabled = true
	all := testGPUs()
	for i := range all {
		all[i].PCI = fmt.Sprintf("00000000:%02x:00.0", i)
	}
	other := domain.DeriveGPUID("test", "another", 1)
	name := func(id domain.GPUID) string {
		if id == other {
			return "other"
		}
		return fmt.Sprint(slices.IndexFunc(all, func(d dcgm.Device) bool { return d.UUID == id }))
	}
	second := 0
	// live is a life of the reporter that ends without closing anything.
	live := func(devices []dcgm.Device, events ...dcgm.Event) string {
		t.Helper()
		r, err := openReporter(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer r.spool.Close()
		frame := func(body dcgm.Body) {
			second++
			if err := r.frame(t.Context(), dcgm.Frame{At: noon + domain.Instant(second)*domain.Second, Boot: time.Duration(second) * time.Second, Body: body}); err != nil {
				t.Fatal(err)
			}
		}
		frame(&dcgm.Hello{BootID: "a", Inventory: dcgm.Inventory{Generation: 1, Devices: slices.Clone(devices)}})
		for _, e := range events {
			e.Count, e.At = 1, noon+domain.Instant(second)*domain.Second
			frame(&dcgm.Events{Generation: 1, Events: []dcgm.Event{e}})
		}
		var out []string
		for _, topic := range []domain.Topic{domain.TopicHardware, domain.TopicFleet} {
			q := r.queue(topic)
			batch, err := q.Next(1000, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range batch.Entries {
				switch ev := spooled(t, testCluster, e).(type) {
				case *domain.GPUFaultObserved:
					out = append(out, fmt.Sprintf("%s %s %v", name(ev.GPU), ev.Kind, ev.Fatal))
					if ev.Kind == domain.FaultOffBus && !strings.Contains(ev.Detail, "GPU 1 at 00000000:01:00.0 is missing from this node") || ev.BootTime != noon {
						t.Errorf("%+v", ev)
					}
				case *domain.NodeReturned:
					out = append(out, name(ev.GPU)+" back: "+ev.Reason)
				case *domain.NodeRegistered:
					out = append(out, fmt.Sprintf("registers %d", len(ev.GPUs)))
				}
			}
			if len(batch.Entries) > 0 {
				if err := q.Done(batch); err != nil {
					t.Fatal(err)
				}
			}
		}
		return strings.Join(out, ", ")
	}
	fewer := slices.Delete(slices.Clone(all), 1, 2)
	for i := range fewer {
		fewer[i].GPU = uint32(i) // the driver counts the present GPUs
	}
	swapped := slices.Clone(all)
	swapped[1].UUID = other
	for i, c := range []struct {
		devices []dcgm.Device
		events  []dcgm.Event
		want    string
	}{
		{all, nil, "registers 4"},
		{fewer, nil, "1 off_bus true, registers 3"},
		{fewer, nil, ""},
		{all, nil, "1 back: the driver reaches it again, registers 4"},
		{all, []dcgm.Event{{Kind: dcgm.KindHealth, UUID: all[1].UUID, Code: 52, Failed: true}}, "1 health true"},
		{swapped, nil, "1 back: another GPU stands in its slot, registers 4"},
		{swapped, nil, ""},
	} {
		if got := live(c.devices, c.events...); got != c.want {
			t.Errorf("life %d:\n got %s\nwant %s", i, got, c.want)
		}
	}
}
