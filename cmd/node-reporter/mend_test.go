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

// The end of what took a GPU out of service is reported once, when nothing else keeps it
// down, over lives of reporter and collector as well.
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
	// Killed, not ended: the file does not know what the spool does.
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
	reads(0) // measured before
	hello("b")
	reads(1)
	want("the driver still wants a reset", "0 xid 95 true, 0 health 1 true")
	hello("b")
	reads(0)
	want("reset while nobody looked", "0 back")

	event(dcgm.Event{Kind: dcgm.KindHealth, Code: 15, Failed: true})
	event(dcgm.Event{Kind: dcgm.KindHealth, Code: 15, Failed: true, Over: true})
	want("of the node", "node health 15 true, node back")

	event(xid(0, 62))
	event(lost(1))
	event(dcgm.Event{Kind: dcgm.KindHealth, UUID: id(1), Code: 52, Failed: true})
	hello("b", 1)
	want("another run of the same boot", "0 xid 62 true, 1 off_bus 0 true, 1 health 52 true")
	hello("c", 1)
	want("what is lost is not mended by a boot", "0 back")
	hello("c")
	want("nor what asks for a replacement", "")
	event(over(dcgm.Event{Kind: dcgm.KindHealth, UUID: id(1), Code: 52}))
	want("until it ends", "1 back")
}
